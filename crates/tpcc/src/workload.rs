//! The workload as the driver sees it: its specification, its terminals.

use serde::Deserialize;
use serde_json::Value;

use super::mix::KINDS;
use super::specification::Specification;
use super::tally::Tally;
use super::terminal::Terminal;
use driver::{ClientId, Workload, WorkloadError};

/// The workload `tpcc`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tpcc {
    specification: Specification,
    /// The run's seed, of which NURand's constants are made: all clients have the same.
    seed: u64,
}

impl Tpcc {
    /// Reads the workload's part of a specification, for a run with `seed`.
    pub fn read(workload: &Value, seed: u64) -> Result<Self, WorkloadError> {
        let specification = Specification::deserialize(workload)?;
        match specification.problem() {
            Some(problem) => Err(WorkloadError::value(problem)),
            None => Ok(Self { specification, seed }),
        }
    }
}

impl Workload for Tpcc {
    type User = Terminal;
    type Tally = Tally;

    fn kinds(&self) -> Vec<&str> {
        KINDS.to_vec()
    }

    fn counters(&self) -> &'static [&'static str] {
        &["new_orders"]
    }

    fn user(&self, client_id: ClientId) -> Terminal {
        Terminal::new(self.specification, self.seed, client_id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::specification::Calls;
    use super::*;
    use serde_json::json;

    fn sound() -> Value {
        json!({"calls": "procedures", "pipeline": false, "isolation": "read committed", "mix": "deck"})
    }

    #[test]
    fn a_sound_specification_is_read() {
        let read = Tpcc::read(&sound(), 1).expect("sound");
        assert_eq!(read.specification.calls, Calls::Procedures);
    }

    #[test]
    fn a_wrong_specification_is_refused() {
        let cases = [
            ("calls", json!("routines")),
            ("isolation", json!("read uncommitted")),
            ("mix", json!("cards")),
            ("mix", json!({"new_order": 1})),
            (
                "mix",
                json!({"new_order": 0, "payment": 0, "order_status": 0, "delivery": 0, "stock_level": 0}),
            ),
            ("pipeline", json!(1)),
            ("deviations", json!(["rollback"])),
            ("deviations", json!(["text-protocol"])),
            ("deviations", json!(["sysbench-sql"])),
            ("table_sets", json!(2)),
            ("unknown", json!(1)),
        ];
        for (key, value) in cases {
            let mut workload = sound();
            workload[key] = value;
            assert!(
                Tpcc::read(&workload, 1).expect_err(key).to_string().starts_with("workload: "),
                "{workload}"
            );
        }
    }
}
