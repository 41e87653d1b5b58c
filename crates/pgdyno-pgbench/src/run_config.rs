//! Configuration of a run in its result.

use serde_json::{Value, json};

use super::bench::Bench;

/// Options that determine the load, without passwords.
#[must_use]
pub fn options(bench: &Bench) -> Value {
    let options = &bench.options;
    let is_timed = options.time_s > 0;
    json!({
        "dbname": bench.conninfo.dbname,
        "clients": options.clients,
        "jobs": options.jobs,
        "connect": options.connect,
        "transactions_per_client": (!is_timed).then_some(options.transactions),
        "time_s": is_timed.then_some(options.time_s),
        "protocol": options.protocol,
        "define": options.define,
        "rate_per_s": options.rate_per_s,
        "latency_limit_ms": options.latency_limit_ms,
        "scale": bench.tables.scale,
        "max_tries": options.max_tries,
        "continue_on_error": options.continue_on_error,
        "random_seed": bench.seed,
    })
}
