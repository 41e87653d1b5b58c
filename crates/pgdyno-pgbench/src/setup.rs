//! Preparation of a run: reads scripts, determines the scale, vacuums tables.

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};

use pgbench::run::{Protocol, Startup};
use pgbench::script::Scripts;
use pgbench::script::command::Action;
use pgbench::script::error::ScriptError;
use pgbench::session::{Compat, OnUnprepared, Program};
use pgwire::SqlState;
use pgwire::conninfo::{self, Conninfo, ConninfoError};
use reactor::{Clock, Connection, Error, Reactor, Shared, tell};

use super::connect::connect_first;
use super::libpq::system_text;
use super::log::{Log, Reported, server_text, statement_text};
use super::options::{Options, POSTGRESQL, Source};
use super::values::{Refusal, refuse, unsigned};

const COUNT_BRANCHES: &str = "select count(*) from pgbench_branches";
const TABLES: &str = include_str!("tables.sql");

/// Server and tables in reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Version as reported by the server.
    pub server_version: String,
    /// Reported scale.
    pub scale: i64,
    /// Partitions of pgbench_accounts.
    pub partitions: Partitions,
}

/// Partitioning method and number of partitions, if any.
pub type Partitions = Option<(&'static str, u64)>;

/// Errors of the preparation, with pgbench's messages.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Invalid script or definition.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The script file cannot be read.
    #[error("could not {what} file \"{path}\": {}", system_text(.source))]
    File {
        /// Failed operation.
        what: &'static str,
        /// The file.
        path: String,
        /// The error.
        source: io::Error,
    },
}

/// Reads the scripts.
pub fn scripts(options: &Options) -> Result<Scripts, SetupError> {
    let mut scripts = Scripts::default();
    for (source, weight) in &options.scripts {
        let (name, text) = match source {
            Source::Builtin(builtin) => (builtin.description.to_owned(), builtin.text.as_bytes().to_vec()),
            Source::File(path) => (path.clone(), file(path)?),
        };
        scripts.add(&name, &text, *weight)?;
    }
    if options.protocol != Protocol::Simple {
        for command in scripts.scripts().iter().flat_map(|script| &script.commands) {
            if let Action::Sql(sql) = &command.action {
                sql.extended()?;
            }
        }
    }
    Ok(scripts)
}

fn file(path: &str) -> Result<Vec<u8>, SetupError> {
    let could_not = |what, source| SetupError::File { what, path: path.to_owned(), source };
    let mut text = Vec::new();
    let read = if path == "-" {
        io::stdin().lock().read_to_end(&mut text)
    } else {
        // Opening a directory succeeds.
        File::open(path).map_err(|error| could_not("open", error))?.read_to_end(&mut text)
    };
    read.map_err(|error| could_not("read", error))?;
    Ok(text)
}

/// The program of a run, with all options applied.
pub fn program(
    mut scripts: Scripts,
    options: &Options,
    scale: i64,
    seed: u64,
    log: &Log,
) -> Result<Arc<Program>, SetupError> {
    let (clients, jobs) = (options.clients as usize, options.jobs as usize);
    let startup = Startup::new(&mut scripts.names, &options.define, scale, seed, clients, jobs);
    let mut program = Program::new(scripts, options.protocol, startup?)?;
    program.compat = compat(options, log.clone());
    Ok(Arc::new(program))
}

fn compat(options: &Options, log: Log) -> Compat {
    let shell = Shared { input: true, output: !options.detail.is_json };
    let on_unprepared: OnUnprepared =
        Box::new(move |error, text| log.error(&statement_text(error, Some(&String::from_utf8_lossy(text)))));
    Compat { shell, on_unprepared: Some(on_unprepared) }
}

/// The seed of `--random-seed`.
pub fn seed(option: Option<&str>) -> Result<u64, Refusal> {
    match option {
        None | Some("time") => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Ok(now.as_micros() as u64)
        }
        Some("rand") => {
            let mut bytes = [0; 8];
            let filled = SystemRandom::new().fill(&mut bytes);
            filled.or_else(|_| refuse("could not generate random seed"))?;
            Ok(u64::from_ne_bytes(bytes))
        }
        Some(number) => unsigned(number).ok_or_else(|| {
            let detail = "Expecting an unsigned integer, \"time\" or \"rand\".".to_owned();
            Refusal::ErrorWithDetail(format!("unrecognized random seed option \"{number}\""), detail)
        }),
    }
}

/// Connection parameters from options and environment, as in pgbench.
pub fn conninfo(options: &Options) -> Result<Conninfo, ConninfoError> {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let dbname = options.dbname.clone().or_else(|| set("PGDATABASE")).or_else(|| set("PGUSER"));
    // Distinguish connection strings from database names, as libpq does.
    let is_string = |name: &str| {
        ["postgres://", "postgresql://"].iter().any(|uri| name.starts_with(uri)) || name.contains('=')
    };
    let load = |options: &[(&str, &str)], string: &str| conninfo::load("pgbench", options, string);
    let (string, name) = match dbname {
        Some(string) if is_string(&string) => (string, None),
        Some(name) => (String::new(), Some(name)),
        None => (String::new(), Some(load(&[], "")?.user)),
    };
    let options =
        [("host", &options.host), ("port", &options.port), ("user", &options.username), ("dbname", &name)];
    let given: Vec<_> = options
        .iter()
        .filter_map(|&(keyword, value)| Some((keyword, value.as_deref().filter(|value| !value.is_empty())?)))
        .collect();
    load(&given, &string)
}

/// Reads the scale and partitions from the server, and vacuums. Errors are reported; the result is the exit
/// status.
pub fn prepare(
    options: &Options,
    scripts: &Scripts,
    conninfo: &mut Conninfo,
    log: &Log,
) -> Result<Tables, Reported> {
    let failed = |error: &Error| {
        log.error(&server_text(error));
        log.error("could not create connection for setup");
        Reported
    };
    let reactor = Reactor::new(Clock::monotonic()).map_err(|error| failed(&error))?;
    let conversation = async {
        let mut connection = connect_first(&reactor, conninfo).await.map_err(|error| failed(&error))?;
        let version = connection.simple("SHOW server_version").await.map_err(|error| failed(&error))?;
        let version = version.into_iter().flatten().flatten().next().unwrap_or_default();
        if !options.detail.is_json {
            let (postgresql, ours) = (POSTGRESQL, env!("CARGO_PKG_VERSION"));
            log.print(&format!("pgbench ({postgresql}, pgdyno {ours}, server {version})\n"))?;
        }
        log.debug(|| begun(options, conninfo));
        let scale = i64::from(options.scale.unwrap_or(1));
        let mut tables = Tables { server_version: version, scale, partitions: None };
        if options.has_builtin() {
            (tables.scale, tables.partitions) = table_info(&mut connection, conninfo, options, log).await?;
        } else if scripts.names.find(b"scale").is_some() && options.scale_is_assumed() {
            warn_of_scale(&mut connection, log).await;
        }
        if !options.no_vacuum {
            vacuum(&mut connection, options, log).await;
        }
        Ok(tables)
    };
    reactor.block_on(conversation).map_err(|error| failed(&error))?
}

/// Debug message with the target and duration of the run.
fn begun(options: &Options, conninfo: &Conninfo) -> String {
    let (host, port) = conninfo.hosts.first().map(|host| host.address.host_and_port()).unwrap_or_default();
    let (unit, count) =
        if options.time_s > 0 { ("duration", options.time_s) } else { ("nxacts", options.transactions) };
    let (clients, dbname) = (options.clients, &conninfo.dbname);
    format!("pghost: {host} pgport: {port} nclients: {clients} {unit}: {count} dbName: {dbname}")
}

async fn table_info(
    connection: &mut Connection,
    conninfo: &Conninfo,
    options: &Options,
    log: &Log,
) -> Result<(i64, Partitions), Reported> {
    let rows = connection.simple(COUNT_BRANCHES).await.map_err(|error| {
        let text = statement_text(&error, Some(COUNT_BRANCHES));
        log.error(&format!("could not count number of branches: {text}"));
        if error.sqlstate() == Some(SqlState::UNDEFINED_TABLE) {
            hint_at_initialisation(conninfo, log);
        }
        Reported
    })?;
    let scale = rows.into_iter().flatten().flatten().next().and_then(|count| count.parse().ok()).unwrap_or(0);
    if options.scale.is_some() {
        log.warning(&format!("scale option ignored, using count from pgbench_branches table ({scale})"));
    }
    // A server that fails this query is assumed to have no partitions.
    let Ok(rows) = connection.simple(TABLES).await else { return Ok((scale, None)) };
    let Some([method, count]) = rows.first().map(Vec::as_slice) else {
        log.error("no pgbench_accounts table found in \"search_path\"");
        hint_at_initialisation(conninfo, log);
        return Err(Reported);
    };
    let method = match method.as_deref() {
        None => return Ok((scale, None)),
        Some("r") => "range",
        Some("h") => "hash",
        Some(other) => {
            log.error(&format!("unexpected partition method: \"{other}\""));
            return Err(Reported);
        }
    };
    let count = count.as_deref().and_then(|count| count.parse().ok()).unwrap_or(0);
    Ok((scale, Some((method, count))))
}

fn hint_at_initialisation(conninfo: &Conninfo, log: &Log) {
    let dbname = &conninfo.dbname;
    log.hint(&format!("Perhaps you need to do initialization (\"pgbench -i\") in database \"{dbname}\"."));
}

/// Custom scripts have a scale of 1 unless it is given, whatever the scale of pgbench's tables.
async fn warn_of_scale(connection: &mut Connection, log: &Log) {
    // Without these tables there is no other scale.
    let Ok(rows) = connection.simple(COUNT_BRANCHES).await else { return };
    let count = rows.into_iter().flatten().flatten().next().and_then(|count| count.parse::<i64>().ok());
    if let Some(count) = count.filter(|count| !matches!(count, 0 | 1)) {
        log.warning(&format!("\":scale\" is 1, as in pgbench, but pgbench_branches has {count} rows"));
        log.hint(&format!("Give -s {count} if the scripts mean these tables."));
    }
}

async fn vacuum(connection: &mut Connection, options: &Options, log: &Log) {
    tell("starting vacuum...");
    let all = ["vacuum pgbench_branches", "vacuum pgbench_tellers", "truncate pgbench_history"];
    for sql in all {
        if !attempt(connection, sql, log).await {
            return;
        }
    }
    tell("end.\n");
    if options.vacuum_all {
        tell("starting vacuum pgbench_accounts...");
        if attempt(connection, "vacuum analyze pgbench_accounts", log).await {
            tell("end.\n");
        }
    }
}

/// Executes a statement and ignores its failure. Returns `false` if the server violated the protocol and the
/// session is unusable.
async fn attempt(connection: &mut Connection, sql: &str, log: &Log) -> bool {
    let Err(error) = connection.simple(sql).await else { return true };
    log.error(&statement_text(&error, Some(sql)));
    log.detail("(ignoring this error and continuing anyway)");
    !matches!(error, Error::Protocol(_) | Error::Encode(_) | Error::Startup(_) | Error::Tls(_))
}
