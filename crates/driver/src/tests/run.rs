//! Complete runs. They need no server.

use std::sync::mpsc;

use serde_json::{Value, json};

use super::stage::Counting;
use crate::{ClientId, End, Workload, erase, run};

/// A workload whose clients cannot be created.
struct Panicking;

impl Workload for Panicking {
    type User = Counting;
    type Tally = ();

    fn kinds(&self) -> Vec<&str> {
        vec!["tx"]
    }

    fn user(&self, _: ClientId) -> Counting {
        unreachable!("scripted")
    }
}

#[test]
fn a_panic_in_a_worker_thread_ends_the_run_as_a_failure() {
    let spec = json!({"targets": [{"name": "a", "conninfo": {"user": "u"}}], "workload": {}, "clients": 2,
        "threads": 2, "seed": 1, "retries_max": 0, "discard_s": 0, "interval_s": 1, "connect_timeout_s": 1,
        "drain_timeout_s": 1, "slices": [{"target": 0, "role": "measure", "duration_s": 1}]});
    let mut written = Vec::new();
    let end = run(&spec.to_string(), mpsc::channel(), &mut written, &|_, _| Ok(erase(Panicking)));
    assert_eq!(end, End::Failed);
    let events = String::from_utf8(written).expect("text");
    let failed: Value = serde_json::from_str(events.lines().last().expect("an event")).expect("JSON");
    assert_eq!((&failed["event"], &failed["stage"]), (&json!("failed"), &json!("drive")));
    assert!(failed["message"].as_str().is_some_and(|message| message.contains("panicked")), "{failed}");
}
