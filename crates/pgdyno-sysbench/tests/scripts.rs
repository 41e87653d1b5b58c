//! Scripts that fail, in the program as it is built: errors of callbacks unwind through Lua's C code, which depends on
//! the profile. No server is needed.

#![allow(clippy::unwrap_used, missing_docs)]

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs, process};

/// A script of a test, removed at its end.
struct Script(PathBuf);

impl Script {
    fn new(name: &str, text: &str) -> Self {
        let path = env::temp_dir().join(format!("pgdyno-script-{name}-{}.lua", process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    /// Exit status and standard output of a run.
    fn run(&self, options: &[&str]) -> (Option<i32>, String) {
        let mut program = Command::new(env!("CARGO_BIN_EXE_pgdyno-sysbench"));
        let output = program.arg(&self.0).args(options).arg("run").output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Calls that a function of the API refuses, and a part of their message.
const REFUSED: [(&str, &str); 12] = [
    ("sysbench.rand.uniform('x', 1)", "error converting Lua string to f64"),
    ("sysbench.rand.string(nil)", "error converting Lua nil to string"),
    ("sysbench.rand.varstring(5, 1)", "5 to 1 is not a range of lengths"),
    ("sysbench.histogram.new(-1, 0, 0)", "-1 bins from 0 to 0 is not a histogram"),
    ("sysbench.histogram.new(10, 1, 9):update('x')", "error converting Lua string to f64"),
    ("sb_rand_str({})", "error converting Lua table to string"),
    ("ffi.C.sb_counter_inc(0, {})", "error converting Lua nil to u32"),
    ("loadfile()", "error converting Lua nil to String"),
    ("dofile()", "error converting Lua nil to String"),
    ("require()", "error converting Lua nil to String"),
    ("os.execute('true')", "os.execute is not available without --allow-os"),
    ("string.rep('x', 1e9)", "not enough memory"),
];

#[test]
fn an_error_of_a_function_ends_the_run_with_a_message() {
    for (call, message) in REFUSED {
        for event in [call.to_owned(), format!("coroutine.wrap(function() {call} end)()")] {
            let script = Script::new("error", &format!("function event() {event} end"));
            let (status, output) = script.run(&["--events=1"]);
            assert!(output.contains("FATAL: `thread_run' function failed: "), "{event}: {status:?} {output}");
            assert!(output.contains(message), "{event}: {output}");
            assert_eq!(status, Some(1), "{event}");
        }
        let script = Script::new("load", &format!("{call} function event() end"));
        let (status, output) = script.run(&["--events=1"]);
        assert!(status == Some(1) && output.contains(message), "{call}: {status:?} {output}");
    }
}

#[test]
fn a_script_catches_an_error_of_a_function() {
    let calls: String = REFUSED.iter().fold(String::new(), |calls, (call, _)| {
        calls
            + &format!(
                "assert(not pcall(function() {call} end)) assert(not xpcall(function() {call} end, print)) "
            )
    });
    let script = Script::new("caught", &format!("function event() {calls} end"));
    let (status, output) = script.run(&["--events=1"]);
    assert_eq!(status, Some(0), "{output}");
}

#[test]
fn an_event_that_never_succeeds_ends_with_the_run_and_shows_its_errors_meanwhile() {
    let text = "
        function event()
            ffi.C.sb_counter_inc(sysbench.tid, ffi.C.SB_CNT_ERROR)
            error({errcode = sysbench.error.RESTART_EVENT})
        end
        sysbench.hooks.report_intermediate = function(stat) print('events ' .. stat.events, stat.errors > 0) end
        sysbench.hooks.report_cumulative = function(stat) print('in all ' .. stat.events, stat.errors > 0) end";
    let script = Script::new("restarts", text);
    // Without an end of its own, the run is aborted with exit status 2.
    let options = ["--threads=2", "--time=2", "--report-interval=1", "--forced-shutdown=20"];
    let (status, output) = script.run(&options);
    assert_eq!(status, Some(0), "{output}");
    assert!(output.contains("events 0\ttrue\n") && output.contains("in all 0\ttrue\n"), "{output}");
}

#[test]
fn a_script_with_its_own_loop_counts_what_it_does_while_it_runs() {
    let text = "
        function thread_run()
            while ffi.C.sb_more_events(sysbench.tid) do
                ffi.C.sb_event_start(sysbench.tid)
                ffi.C.sb_counter_inc(sysbench.tid, ffi.C.SB_CNT_READ)
                ffi.C.usleep(1000)
                ffi.C.sb_event_stop(sysbench.tid)
            end
            ffi.C.sb_counter_inc(sysbench.tid, ffi.C.SB_CNT_READ)
        end
        sysbench.hooks.report_intermediate = function(stat) print('reads', stat.reads > 0) end
        sysbench.hooks.report_cumulative = function(stat) print('in all', stat.reads - stat.events) end";
    let script = Script::new("own", text);
    let (status, output) = script.run(&["--time=2", "--report-interval=1"]);
    assert_eq!(status, Some(0), "{output}");
    assert!(output.contains("reads\ttrue\n") && output.contains("in all\t1\n"), "{output}");
}

#[test]
fn clients_that_do_not_start_in_time_end_the_run() {
    let script = Script::new("slow", "function thread_init() ffi.C.sleep(60) end function event() end");
    let (status, output) = script.run(&["--events=1", "--thread-init-timeout=1"]);
    assert_eq!(status, Some(2), "{output}");
    assert!(output.contains("FATAL: Worker threads failed to initialize within 1 seconds!"), "{output}");
}

#[test]
fn a_checkpoint_leaves_the_next_intermediate_report_whole() {
    let text = "
        local all, reported = 0, 0
        function event() ffi.C.usleep(10000) end
        sysbench.hooks.report_intermediate = function(stat) reported = reported + stat.events end
        sysbench.hooks.report_cumulative = function(stat)
            all = all + stat.events
            print('missing', all - reported > 1)
        end";
    let script = Script::new("checkpoint", text);
    let options = ["--time=2", "--report-interval=2", "--report-checkpoints=1"];
    let (status, output) = script.run(&options);
    assert_eq!(status, Some(0), "{output}");
    // At the end of the run. After the intermediate report at most one event ends.
    assert!(output.trim_end().ends_with("missing\tfalse"), "{output}");
}

/// A loop of a script's own that asks for nothing but events.
const EMPTY_LOOP: &str = "
    function thread_run()
        local n = 0
        while ffi.C.sb_more_events(sysbench.tid) do
            ffi.C.sb_event_start(sysbench.tid)
            ffi.C.sb_event_stop(sysbench.tid)
            n = n + 1
        end
        print('has run', n > 0)
    end
    sysbench.hooks.report_cumulative = function(stat) print('few', stat.events > 0 and stat.events < 1000) end";

#[test]
fn a_script_with_its_own_loop_keeps_the_rate() {
    let script = Script::new("rate", EMPTY_LOOP);
    let (status, output) = script.run(&["--time=1", "--rate=20"]);
    assert_eq!(status, Some(0), "{output}");
    assert!(output.contains("few\ttrue\n"), "{output}");
}

#[test]
fn a_loop_of_a_script_lets_the_other_clients_of_its_thread_run() {
    let script = Script::new("others", EMPTY_LOOP);
    let (status, output) = script.run(&["--time=2", "--threads=200"]);
    assert_eq!(status, Some(0), "{output}");
    assert_eq!(output.matches("has run\ttrue\n").count(), 200, "{output}");
}

#[test]
fn a_thread_that_cannot_start_ends_the_run() {
    // The script leaves no files for the event loops of the threads.
    let text = "
        files = {}
        repeat
            local file = io.open('/dev/null')
            files[#files + 1] = file
        until not file
        function event() end";
    let script = Script::new("files", text);
    let mut program = Command::new("prlimit");
    program.arg("--nofile=32:32").arg(env!("CARGO_BIN_EXE_pgdyno-sysbench")).arg(&script.0);
    let output = program.args(["--allow-os", "--threads=2", "run"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("FATAL: cannot create an epoll instance: "), "{text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
}
