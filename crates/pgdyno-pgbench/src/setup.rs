//! What happens before the clients begin: scripts are read, the server is asked for the scale, tables are vacuumed.

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};

use super::connect::connect_first;
use super::libpq::system_text;
use super::log::{Log, Reported, server_text, statement_text};
use super::options::{Options, Source};
use super::values::unsigned;
use pgbench::run::{Protocol, Startup};
use pgbench::script::Scripts;
use pgbench::script::builtin::BUILTINS;
use pgbench::script::command::Action;
use pgbench::script::error::ScriptError;
use pgbench::session::Program;
use pgbench::session::compat::{Compat, OnUnprepared};
use pgwire::conninfo::{self, Conninfo, ConninfoError, SessionDefaults};
use reactor::{Clock, Connection, Error, Reactor, Shared, tell};

const COUNT_BRANCHES: &str = "select count(*) from pgbench_branches";
const TABLES: &str = include_str!("tables.sql");
const NO_TABLE: &str = "42P01";

/// The server and the tables, as reports show them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// The server's version, in its words.
    pub server_version: String,
    /// The scale that is reported.
    pub scale: i64,
    /// The parts of pgbench_accounts.
    pub partitions: Partitions,
}

/// How a table is divided, and into how many parts, if it is.
pub type Partitions = Option<(&'static str, u64)>;

/// Why a run cannot be set up, in pgbench's words.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// pgbench has no such script.
    #[error("no builtin script found for name \"{0}\"")]
    NoBuiltin(String),
    /// A script or a definition is wrong.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A script's file cannot be had.
    #[error("could not {what} file \"{path}\": {}", system_text(.source))]
    File {
        /// What could not be done.
        what: &'static str,
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// Why there is no seed.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// The operating system gives none.
    #[error("could not generate random seed")]
    NoRandomness,
    /// It is neither a number nor a word that stands for one.
    #[error("unrecognized random seed option \"{0}\"")]
    NoNumber(String),
}

impl SeedError {
    /// What is expected, where something else was given.
    #[must_use]
    pub fn detail(&self) -> Option<&'static str> {
        match self {
            Self::NoRandomness => None,
            Self::NoNumber(_) => Some("Expecting an unsigned integer, \"time\" or \"rand\"."),
        }
    }
}

/// Reads the scripts.
pub fn scripts(options: &Options) -> Result<Scripts, SetupError> {
    let mut scripts = Scripts::default();
    for (source, weight) in &options.scripts {
        let (name, text) = match source {
            Source::Builtin(name) => {
                let builtin = BUILTINS.into_iter().find(|builtin| builtin.name == *name);
                let builtin = builtin.ok_or_else(|| SetupError::NoBuiltin((*name).to_owned()))?;
                (builtin.description.to_owned(), builtin.text.as_bytes().to_vec())
            }
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
        // To open a directory succeeds.
        File::open(path).map_err(|error| could_not("open", error))?.read_to_end(&mut text)
    };
    read.map_err(|error| could_not("read", error))?;
    Ok(text)
}

/// The program of a run, all options applied.
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

/// The seed that `--random-seed` asks for.
pub fn seed(option: Option<&str>) -> Result<u64, SeedError> {
    match option {
        None | Some("time") => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Ok(now.as_micros() as u64)
        }
        Some("rand") => {
            let mut bytes = [0; 8];
            let filled = SystemRandom::new().fill(&mut bytes);
            filled.map_err(|_| SeedError::NoRandomness)?;
            Ok(u64::from_ne_bytes(bytes))
        }
        Some(number) => unsigned(number).ok_or_else(|| SeedError::NoNumber(number.to_owned())),
    }
}

/// Where to connect, by options and environment as pgbench has it.
pub fn conninfo(options: &Options) -> Result<Conninfo, ConninfoError> {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let dbname = options.dbname.clone().or_else(|| set("PGDATABASE")).or_else(|| set("PGUSER"));
    // As libpq tells them from names.
    let is_string = |name: &str| {
        ["postgres://", "postgresql://"].iter().any(|uri| name.starts_with(uri)) || name.contains('=')
    };
    let load = |options: &[(&str, &str)], string: &str| {
        conninfo::load_for(SessionDefaults::Libpq("pgbench"), options, string)
    };
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

/// Asks the server what has to be known, and vacuums. The error has been reported: it is for the exit status.
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
            let (postgresql, ours) = (super::run_config::POSTGRESQL, env!("CARGO_PKG_VERSION"));
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

/// Where and how long the run is, for finding faults.
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
        if error.sqlstate().is_some_and(|sqlstate| sqlstate.as_str() == NO_TABLE) {
            hint_at_initialisation(conninfo, log);
        }
        Reported
    })?;
    let scale = rows.into_iter().flatten().flatten().next().and_then(|count| count.parse().ok()).unwrap_or(0);
    if options.scale.is_some() {
        log.warning(&format!("scale option ignored, using count from pgbench_branches table ({scale})"));
    }
    // A server that cannot answer this is taken for one without partitions.
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

/// Scripts of one's own see a scale of 1 unless they are told of another, whatever pgbench's tables have.
async fn warn_of_scale(connection: &mut Connection, log: &Log) {
    // Where there are no such tables, there is no other scale.
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

/// Carries a statement out, and ignores its failure. `false` where the server broke the protocol: it would not answer
/// another statement.
async fn attempt(connection: &mut Connection, sql: &str, log: &Log) -> bool {
    let Err(error) = connection.simple(sql).await else { return true };
    log.error(&statement_text(&error, Some(sql)));
    log.detail("(ignoring this error and continuing anyway)");
    !matches!(error, Error::Protocol(_) | Error::Encode(_) | Error::Startup(_) | Error::Tls(_))
}
