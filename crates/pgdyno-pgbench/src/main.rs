//! Command line of pgbench, with the engine of pgdyno.

use std::process::ExitCode;

use reactor::end_with_reader;

fn main() -> ExitCode {
    end_with_reader();
    let arguments: Vec<_> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    pgdyno_pgbench::main(&arguments)
}
