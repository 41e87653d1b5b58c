//! The program that takes sysbench's options and prints sysbench's output.
//!
//! | question | place |
//! |---|---|
//! | command line, and what is refused | [`arguments`] |
//! | script, command, exit status | [`main`] |
//! | threads and clients of a run | [`bench`](mod@bench) |
//! | a run from start to end | [`run`](mod@run) |
//! | what is counted, and timed | [`record`] |
//! | what is printed | [`report`], [`messages`] |

mod arguments;
mod bench;
mod messages;
mod record;
mod report;
mod run;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arguments::{Arguments, Refusal, RunOptions};
use bench::Bench;
use pgwire::conninfo::{self, Conninfo};
use reactor::{Clock, Reactor, Shared, print, tell};
use sysbench::general::{self, Section};
use sysbench::options::{Definition, OptionValue, help};
use sysbench::{Connections, Program, SYSBENCH_VERSION, ScriptClient, Sources, stock};

/// Prints what scripts print.
fn output(text: &str) {
    // Nobody reads on: SIGPIPE ends the program.
    let _ = print(text);
}

/// The program; the first argument is its name.
#[must_use]
pub fn main(arguments: &[String]) -> ExitCode {
    let outcome =
        arguments::read(arguments.get(1..).unwrap_or_default()).and_then(|read| start(&read, arguments));
    match outcome {
        Ok(status) => status,
        Err(Refusal::Fatal(problem)) => {
            messages::fatal(problem);
            ExitCode::FAILURE
        }
        Err(Refusal::Plain(problem)) => {
            tell(format_args!("{problem}\n"));
            ExitCode::FAILURE
        }
    }
}

fn start(read: &Arguments, argv: &[String]) -> Result<ExitCode, Refusal> {
    if read.is_on("help") {
        output(&usage());
        return Ok(ExitCode::SUCCESS);
    }
    if read.is_on("version") {
        output(&format!("sysbench {SYSBENCH_VERSION}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    if read.is_old {
        let advice = "You can pass a script name or path on the command line without any options.";
        tell(format_args!("WARNING: the --test option is deprecated. {advice}\n"));
    }
    let options = RunOptions::read(read)?;
    let Some(script) = &read.script else {
        output(&usage());
        return Err(Refusal::Fatal("no script is named".to_owned()));
    };
    if options.verbosity >= 3 {
        let ours = env!("CARGO_PKG_VERSION");
        output(&format!("sysbench {SYSBENCH_VERSION} (pgdyno {ours}, using bundled LuaJIT 2.1)\n\n"));
    }
    let mut program = find(script, read, &options)?;
    program.argv = argv.to_vec();
    set_general(&mut program, read, &options);
    let definitions = program.definitions().map_err(|error| Refusal::Fatal(error.to_string()))?;
    let name = script.rsplit('/').next().unwrap_or_default();
    let command = read.command.as_deref().unwrap_or_default();
    program.set_options(&definitions, &read.others).map_err(|error| {
        Refusal::Plain(error.to_string().split(';').next().unwrap_or_default().to_owned())
    })?;
    command.clone_into(&mut program.command);
    execute(program, &definitions, name, command, options, conninfo(read)?)
}

/// Runs the command.
fn execute(
    program: Program,
    definitions: &[Definition],
    name: &str,
    command: &str,
    options: RunOptions,
    conninfo: Conninfo,
) -> Result<ExitCode, Refusal> {
    let program = Arc::new(program);
    // Before the script, which may use up the files of the process.
    let reactor = Reactor::new(Clock::monotonic()).map_err(|error| Refusal::Fatal(error.to_string()))?;
    let mut main =
        ScriptClient::new(Arc::clone(&program), 0).map_err(|error| Refusal::Fatal(error.to_string()))?;
    let commands = main.state().commands().map_err(|error| Refusal::Fatal(error.to_string()))?;
    let is_parallel = commands.iter().any(|(known, is_parallel)| known == command && *is_parallel);
    let bench = Arc::new(Bench::new(options, program, conninfo));
    let mut links = Connections::new(bench.place(&reactor), None);
    match main.state().command(command) {
        _ if command == "run" => Ok(run::run(&bench, main, &mut links)),
        _ if command.is_empty() => Ok(ExitCode::SUCCESS),
        None if command == "help" && !definitions.is_empty() => {
            output(&format!("{name} options:\n{}\n", help(definitions)));
            Ok(ExitCode::SUCCESS)
        }
        Some(_) if is_parallel && bench.options.clients > 1 => Ok(run::run_command(&bench, command)),
        Some(function) => {
            let called = main.state().caller_of(command);
            let is_done = bench::call(&mut main, &mut links, called, function);
            Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        None => {
            let known = ["prepare", "cleanup", "help"];
            let message = if known.contains(&command) {
                format!("'{name}' test does not implement the '{command}' command.")
            } else {
                format!("Unknown command: {command}")
            };
            Err(Refusal::Plain(message))
        }
    }
}

/// Finds the script: a path, or one of sysbench's own.
fn find(script: &str, read: &Arguments, options: &RunOptions) -> Result<Program, Refusal> {
    let is_path =
        script.contains('/') || Path::new(script).extension().is_some_and(|extension| extension == "lua");
    let seed = options.seed.unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u32 | 1
    });
    let paths = [PathBuf::from(script), PathBuf::from(format!("{script}.lua"))];
    let found = paths.iter().find(|path| path.is_file() && (is_path || path.extension().is_some()));
    let stock = stock::text(script.trim_end_matches(".lua")).filter(|_| !script.contains('/'));
    let (name, text, directory) = match (found, stock) {
        (Some(path), _) => {
            let text =
                fs::read(path).map_err(|error| Refusal::Fatal(format!("cannot open {script}: {error}")))?;
            let directory =
                path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            (
                path.display().to_string(),
                String::from_utf8_lossy(&text).into_owned(),
                Some(directory.to_owned()),
            )
        }
        (None, Some(text)) => (format!("{script}.lua"), text.to_owned(), None),
        (None, None) => {
            let problem = format!("Cannot find benchmark '{script}': no such built-in test, file or module");
            return Err(Refusal::Fatal(problem));
        }
    };
    let anywhere = read.is_on("allow-os");
    let sources = Sources { directories: directory.into_iter().collect(), anywhere, ..Sources::default() };
    let mut program = Program::new(&name, &text, sources, options.clients, seed, output);
    program.random = options.random;
    program.report = Some(messages::server_error);
    program.limits.allow_os = anywhere;
    program.shell = Shared { input: true, output: true };
    Ok(program)
}

/// Sets the options that every script sees.
fn set_general(program: &mut Program, read: &Arguments, options: &RunOptions) {
    for definition in general::definitions() {
        program.set(&definition.key(), read.value(&definition.name));
    }
    let events = OptionValue::Int(options.events.unwrap_or(0) as i64);
    let time = OptionValue::Int(options.time_s.unwrap_or(0) as i64);
    let threads = OptionValue::Int(i64::from(options.clients));
    let values = [("threads", &threads), ("num_threads", &threads), ("events", &events), ("time", &time)];
    for (key, value) in values {
        program.set(key, value.clone());
    }
}

fn conninfo(read: &Arguments) -> Result<Conninfo, Refusal> {
    let keywords = [
        ("host", "pgsql-host"),
        ("port", "pgsql-port"),
        ("user", "pgsql-user"),
        ("password", "pgsql-password"),
        ("dbname", "pgsql-db"),
        ("sslmode", "pgsql-sslmode"),
    ];
    let values = keywords.map(|(keyword, option)| {
        let default = general::find(option).and_then(|definition| definition.default);
        (keyword, read.given(option).map_or(default.unwrap_or_default(), str::to_owned))
    });
    let given: Vec<_> =
        values.iter().filter(|(_, value)| !value.is_empty()).map(|(k, v)| (*k, v.as_str())).collect();
    conninfo::load("sysbench", &given, "").map_err(|error| Refusal::Fatal(error.to_string()))
}

fn usage() -> String {
    let sections = [
        ("General options", Section::General),
        ("Pseudo-Random Numbers Generator options", Section::Random),
        ("Log options", Section::Log),
        ("Latency options", Section::Latency),
        ("General database options", Section::Database),
        ("pgsql options", Section::PostgreSql),
    ];
    let parts = sections.map(|(title, section)| format!("{title}:\n{}\n", help(&general::section(section))));
    let scripts = stock::names().filter(|name| *name != "oltp_common").collect::<Vec<_>>().join(", ");
    format!(
        "Usage:\n  pgdyno-sysbench [options]... SCRIPT COMMAND\n\nCommands: prepare run cleanup help, and those of the script\nScripts: a .lua file, or {scripts}\n\n{}",
        parts.concat()
    )
}
