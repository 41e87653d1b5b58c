//! pgbench's command line over pgdyno's engine.

use std::process::ExitCode;

use pgdyno_engine::io::end_with_reader;
use pgdyno_engine::pgbench::command;

fn main() -> ExitCode {
    end_with_reader();
    let arguments: Vec<_> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    command::main(&arguments)
}
