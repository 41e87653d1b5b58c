//! `pgdyno-engine check`: validates scripts without a server.

use std::io::Write;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::drive::take;
use driver::{SpecificationError, WorkloadError};
use pgbench::Pgbench;
use sysbench::Sysbench;

/// The request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    workload: Json,
}

/// Reads the workload of `text` as a drive does, writes one event, and returns whether it is valid.
pub fn check(text: &str, out: &mut dyn Write) -> bool {
    let read = serde_json::from_str::<Question>(text)
        .map_err(SpecificationError::Json)
        .and_then(|question| Ok(found(question.workload)?));
    let event = match &read {
        Ok(found) => found.clone(),
        Err(error) => {
            json!({"event": "failed", "stage": "specification", "message": error.to_string()})
        }
    };
    // An error means that nobody reads. The exit status has the result.
    let _ = writeln!(out, "{event}");
    read.is_ok()
}

/// The result about valid scripts: whether they read the variable `scale`, and what they sample. Those of
/// sysbench do neither.
fn found(mut workload: Json) -> Result<Json, WorkloadError> {
    if take(&mut workload, "kind") == Some(json!("sysbench")) {
        Sysbench::read(&workload, 1, 0)?;
        return Ok(json!({"event": "result", "reads_scale": false, "samples": []}));
    }
    let read = Pgbench::read(&workload, 1, 1, 0)?;
    let samples: Vec<_> = read
        .samples()
        .map(|(script, command, source)| json!({"script": script, "command": command, "source": source}))
        .collect();
    Ok(json!({"event": "result", "reads_scale": read.reads_scale(), "samples": samples}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> (bool, Json) {
        let asked = json!({"workload": {"kind": "pgbench", "protocol": "simple", "scripts": [{"name": "f", "text": text}]}});
        let mut out = Vec::new();
        let sound = check(&asked.to_string(), &mut out);
        (sound, serde_json::from_slice(&out).expect("one event"))
    }

    #[test]
    fn a_valid_script_is_reported_with_its_use_of_the_scale() {
        assert_eq!(
            answer("select 1;"),
            (true, json!({"event": "result", "reads_scale": false, "samples": []}))
        );
        for reads in ["select :scale;", "\\set x 2 * :scale\nselect 1;"] {
            assert_eq!(
                answer(reads),
                (true, json!({"event": "result", "reads_scale": true, "samples": []})),
                "{reads}"
            );
        }
    }

    #[test]
    fn sampled_columns_are_reported_with_their_commands() {
        let (sound, event) = answer("\\sample c from customer.id  frequency\nselect :c;");
        let sample = json!({"script": "f", "command": "\\sample c from customer.id  frequency", "source": "customer.id frequency"});
        assert_eq!((sound, &event["samples"]), (true, &json!([sample])));
    }

    #[test]
    fn an_invalid_script_is_reported_with_its_line_and_a_caret() {
        let (sound, event) = answer("select 1;\n\\set x 1 +\n");
        assert!(!sound);
        let message = event["message"].as_str().expect("a text");
        assert!(message.contains("f:2: ") && message.contains("^ error found here"), "{message}");
    }

    #[test]
    fn an_invalid_request_is_rejected() {
        let mut out = Vec::new();
        assert!(!check("{}", &mut out));
        assert!(String::from_utf8_lossy(&out).contains("missing field"));
    }
}
