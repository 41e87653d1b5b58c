#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::{env, fs, process};

use serde_json::json;

use pgbench::run::{Protocol, Startup};
use pgbench::script::Scripts;
use pgbench::session::Program;
use pgbench::value::Value;

use super::{CheckpointError, *};
use crate::statistics::{Ended, Outcome};

const CLIENTS: usize = 3;

fn program() -> Arc<Program> {
    let mut scripts = Scripts::default();
    scripts.add("s", b"\\set x 1\nselect :x, :y;\n", 1).unwrap();
    let definitions = [("y".to_owned(), "\u{e9} text".to_owned())];
    let startup = Startup::new(&mut scripts.names, &definitions, 1, 5, CLIENTS, 2).unwrap();
    Arc::new(Program::new(scripts, Protocol::Simple, startup).unwrap())
}

/// A directory for a test, removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("pgdyno-checkpoint-{name}-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("checkpoint")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn checkpoint(threads: Vec<ThreadState>) -> Checkpoint {
    Checkpoint::new(json!({"clients": CLIENTS}), false, &Before::default(), threads)
}

/// Records this number of transactions over three weeks, with latencies from the same thousand values.
fn record(thread: &mut ThreadState, transactions: u64) {
    let weeks = 21 * 86_400 * 1_000_000_000_u64;
    for number in 0..transactions {
        let latency = Nanos(number % 1000 * 1_000_000);
        let (lag, at) = (Nanos::ZERO, Nanos::ZERO);
        let ended = Ended { script: 0, outcome: Outcome::Done, tries: 1, latency, lag, is_late: false, at };
        thread.record.add(&ended, Nanos(weeks / transactions * number));
        thread.record.add_command(0, 1, latency);
    }
}

#[test]
fn a_written_state_round_trips() {
    let directory = Directory::new("state");
    let program = program();
    let mut threads = ThreadState::all(&program, CLIENTS, 2, true);
    let slot = program.scripts.names.find(b"x").unwrap();
    for (value, client) in [Value::Double(f64::NAN), Value::Double(0.1 + 0.2), Value::Int(i64::MIN)]
        .into_iter()
        .zip(threads.iter_mut().flat_map(|thread| &mut thread.place.clients))
    {
        client.variables.set(slot, value);
        client.random.bits();
        (client.ended, client.script) = (7, Some(0));
    }
    record(&mut threads[0], 1000);
    let written = checkpoint(threads);
    written.write(&directory.file()).unwrap();
    let read = Checkpoint::read(&directory.file()).unwrap();
    // NaN is not equal to itself, but its text is.
    let text = |checkpoint: &Checkpoint| serde_json::to_string(checkpoint).unwrap();
    assert_eq!(text(&read), text(&written));
    for (read, written) in read.threads.iter().zip(&written.threads) {
        assert_eq!(read.place.streams, written.place.streams);
        assert_eq!(read.record.total(), written.record.total());
        assert_eq!(read.record.series, written.record.series);
        let bins = |thread: &ThreadState| thread.record.latency().unwrap().bins();
        assert_eq!(bins(read), bins(written));
    }
    assert_eq!(read.threads[0].place.clients[1], written.threads[0].place.clients[1]);
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 1, "nothing but the checkpoint is left");
}

#[test]
fn a_state_does_not_grow_with_the_number_of_transactions() {
    let mut sizes = Vec::new();
    for transactions in [20_000, 200_000] {
        let mut threads = ThreadState::all(&program(), CLIENTS, 2, true);
        record(&mut threads[0], transactions);
        let series = threads[0].record.series.as_ref().unwrap();
        assert!(series.points.len() > 2048);
        sizes.push(serde_json::to_vec(&checkpoint(threads)).unwrap().len());
    }
    // Ten times as many transactions: one more digit per number.
    assert!(sizes[1] < sizes[0] * 3 / 2, "{sizes:?}");
}

#[test]
fn a_difference_from_the_earlier_run_is_named() {
    let then = json!({"clients": 2, "rate_per_s": null, "scripts": [{"name": "a"}]});
    let checkpoint = Checkpoint::new(then.clone(), false, &Before::default(), Vec::new());
    assert_eq!(checkpoint.difference(&then), None);
    let cases = [
        (json!({"clients": 3, "rate_per_s": null, "scripts": [{"name": "a"}]}), "clients is 3 now and was 2"),
        (
            json!({"clients": 2, "rate_per_s": 0.5, "scripts": [{"name": "a"}]}),
            "rate_per_s is 0.5 now and was null",
        ),
        (json!({"clients": 2, "rate_per_s": null, "scripts": []}), "the scripts or their weights are others"),
        (
            json!({"clients": 2, "scripts": [{"name": "a"}], "rate_per_s": null, "x": 1}),
            "x is 1 now and was null",
        ),
    ];
    for (now, expected) in cases {
        assert_eq!(checkpoint.difference(&now).as_deref(), Some(expected));
    }
}

#[test]
fn transactions_after_a_checkpoint_are_known_unless_the_machine_crashed() {
    let directory = Directory::new("live");
    let mut first = checkpoint(ThreadState::all(&program(), CLIENTS, 2, false));
    let mut live = LiveCounters::lock(&directory.file()).unwrap();
    assert!(
        LiveCounters::lock(&directory.file()).is_err_and(|error| matches!(error, CheckpointError::InUse(_)))
    );
    live.begin(&first).unwrap();
    for client in 0..CLIENTS as u32 {
        live.set(client, 10 + u64::from(client));
    }
    drop(live);
    first.threads[0].place.clients[1].ended = 4;
    let live = LiveCounters::lock(&directory.file()).unwrap();
    assert_eq!(live.since(&first).map_err(|error| error.to_string()), Ok((10 + 7 + 12, true)));
    // After a reboot, data that was not on disk is lost.
    let mut other_boot = first.clone();
    other_boot.boot = "another".to_owned();
    assert_eq!(live.since(&other_boot).map_err(|error| error.to_string()), Ok((29, false)));
    // The checkpoint of a run that has not started to count: the counters are those of its predecessor, which
    // it knows.
    let mut next = first.clone();
    next.history.resumed = 1;
    assert_eq!(live.since(&next).map_err(|error| error.to_string()), Ok((0, true)));
    drop(live);
    fs::remove_file(beside(&directory.file(), "live")).unwrap();
    assert_eq!(
        LiveCounters::lock(&directory.file()).unwrap().since(&first).map_err(|error| error.to_string()),
        Ok((0, false))
    );
}

/// Files of a killed run: the checkpoint, and the bytes of the counters next to it.
fn killed(directory: &Directory) -> (Checkpoint, Vec<u8>) {
    let first = checkpoint(ThreadState::all(&program(), CLIENTS, 2, false));
    let mut live = LiveCounters::lock(&directory.file()).unwrap();
    live.begin(&first).unwrap();
    for client in 0..CLIENTS as u32 {
        live.set(client, 10);
    }
    drop(live);
    (first, fs::read(beside(&directory.file(), "live")).unwrap())
}

#[test]
fn each_flipped_bit_in_the_counters_is_detected() {
    let directory = Directory::new("live-bits");
    let (first, whole) = killed(&directory);
    let path = beside(&directory.file(), "live");
    let read = || {
        LiveCounters::lock(&directory.file())
            .and_then(|live| live.since(&first))
            .map_err(|error| error.to_string())
    };
    let known = read().unwrap();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &bytes).unwrap();
        match read() {
            Err(message) => assert!(message.contains("is damaged, or not of pgdyno-pgbench: remove it")),
            // A flip in the unused word, or as if the process had died between two stores.
            Ok(found) => assert!(found == known || found.0.abs_diff(known.0) <= 1, "bit {bit}: {found:?}"),
        }
    }
}

#[test]
fn truncated_and_foreign_counter_files_are_rejected() {
    let directory = Directory::new("live-foreign");
    let (first, whole) = killed(&directory);
    let path = beside(&directory.file(), "live");
    let read = || {
        LiveCounters::lock(&directory.file())
            .and_then(|live| live.since(&first))
            .map_err(|error| error.to_string())
    };
    for bytes in [
        &b"what took somebody a year"[..],
        b"x",
        &whole[..whole.len() - 16],
        &[&whole[..], &[0; 16]].concat(),
    ] {
        fs::write(&path, bytes).unwrap();
        let message = read().unwrap_err();
        assert!(
            message.ends_with("remove it to go on without the number of transactions run again"),
            "{message}"
        );
        assert_eq!(fs::read(&path).unwrap(), bytes, "what is refused is left as it is");
    }
    // A run that was killed during creation of the file had counted nothing; a machine crash leaves any part.
    fs::write(&path, vec![0; whole.len()]).unwrap();
    assert_eq!(read(), Ok((0, false)));
    fs::write(&path, &whole[..whole.len() - 16]).unwrap();
    let mut other_boot = first.clone();
    other_boot.boot = "another".to_owned();
    assert!(
        LiveCounters::lock(&directory.file()).unwrap().since(&other_boot).is_ok_and(|(_, certain)| !certain)
    );
}
