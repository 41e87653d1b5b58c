//! The engine as a program: `pgdyno-engine drive`, `load`, `version`. `docs/engine.md` is the interface.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pgdyno_engine::copy;

/// The engine of pgdyno; `docs/engine.md` is its interface.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create and fill the tables of a workload, as standard input specifies
    Load,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Load => copy::command(),
    }
}
