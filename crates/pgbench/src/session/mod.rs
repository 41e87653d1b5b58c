//! Execution of scripts by a client with a connection. It performs the steps of [`super::run`].
//!
//! | topic | module or function |
//! |---|---|
//! | one transaction from the first command to the last | [`ScriptRunner::attempt`] |
//! | debug output | [`debug`] |
//! | behavior of the pgbench program | [`Compat`] |

mod debug;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use pgwire::backend::{Message, Row};
use pgwire::frontend::{self, EncodeError, Format};
use reactor::{Connection, Error, Nanos, Seen, Shared, TransactionStatus, shell, tell};

use super::random::Prng;
use super::run::{Abort, Client, Columns, OUTPUT_BYTES_MAX, Protocol, Startup, Step};
use super::script::Scripts;
use super::script::command::{Action, Shell};
use super::script::error::ScriptError;
use super::script::sql::{Sql, Store};
use super::variables::{Names, Slot, Variables};

/// State shared by all clients of a run.
#[derive(Debug)]
pub struct Program {
    /// The scripts.
    pub scripts: Scripts,
    /// Query protocol.
    pub protocol: Protocol,
    /// Initial state of the clients.
    pub startup: Startup,
    /// Behavior of the program.
    pub compat: Compat,
    /// By number of the command: statements of the protocols with parameters.
    statements: Vec<Statement>,
}

impl Program {
    /// Prepares scripts for a protocol. Fails if the protocol does not support a command.
    pub fn new(scripts: Scripts, protocol: Protocol, startup: Startup) -> Result<Self, ScriptError> {
        let statements = match protocol {
            Protocol::Simple => Vec::new(),
            Protocol::Extended | Protocol::Prepared => prepared_statements(&scripts, protocol)?,
        };
        Ok(Self { scripts, protocol, startup, compat: Compat::default(), statements })
    }
}

/// Observer of a transaction.
pub struct Watch<'a> {
    /// Receives the index and the duration of each executed command.
    pub took: &'a mut dyn FnMut(usize, Nanos),
    /// Receives lines of debug output.
    pub debug: Option<&'a dyn Fn(String)>,
}

/// A client that runs scripts on a connection.
pub struct ScriptRunner {
    /// State shared with the other clients.
    pub program: Arc<Program>,
    /// Script of the current transaction.
    script: usize,
    /// State of the generator at its start, so that a retry draws the same numbers.
    random: Prng,
    part: Part,
}

/// Mutable part of a runner.
struct Part {
    client: Client,
    /// By number of the command: whether this connection has prepared it.
    prepared: Vec<bool>,
    answer: Answer,
    /// Number of Syncs in the open pipeline.
    syncs: u32,
    /// Number of completed statements in the current response.
    query: usize,
    /// Buffer for the text of a shell command.
    command: Vec<u8>,
}

impl ScriptRunner {
    /// Creates client `id` of a program, without a connection.
    #[must_use]
    pub fn new(program: Arc<Program>, id: u32) -> Self {
        let client = program.startup.client(id);
        let count = program.scripts.statements();
        let answer = Answer::new(count);
        let random = client.random;
        let part =
            Part { client, prepared: vec![false; count], answer, syncs: 0, query: 0, command: Vec::new() };
        Self { program, script: 0, random, part }
    }

    /// The state of the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.part.client
    }

    /// The state of the client, for example to set a variable.
    pub fn client_mut(&mut self) -> &mut Client {
        &mut self.part.client
    }

    /// Resets the state of the connection after a reconnect.
    pub fn reconnected(&mut self) {
        self.part.prepared.fill(false);
    }

    /// Starts the next transaction with this script.
    #[inline]
    pub fn begin(&mut self, script: usize) {
        self.script = script;
        self.random = self.part.client.random;
    }

    /// Executes the transaction.
    ///
    /// After a failure the response may be incomplete, and a transaction may be open: [`Connection::recover`].
    /// A retry draws the same random numbers; variables keep their values.
    #[inline]
    pub async fn attempt(&mut self, connection: &mut Connection) -> Result<(), Stop> {
        self.attempt_watched(connection, None).await
    }

    /// Executes the transaction with an observer.
    #[inline]
    pub async fn attempt_watched(
        &mut self,
        connection: &mut Connection,
        mut watch: Option<Watch<'_>>,
    ) -> Result<(), Stop> {
        let Self { program, script, random, part } = self;
        part.client.random = *random;
        part.client.begin(*script);
        let mut has_waited = false;
        loop {
            let began = if watch.is_some() { connection.reactor().now() } else { Nanos::ZERO };
            if let Some(Watch { debug: Some(tell), .. }) = watch {
                part.report_next(program, tell);
            }
            let step = part
                .client
                .step(&program.scripts, program.protocol, &mut |line| tell(format_args!("{line}\n")))?;
            match step {
                Step::Done => {}
                Step::Sql(sql) => part.sql(program, sql, connection).await?,
                Step::Sleep(time_us) => {
                    let reactor = connection.reactor().clone();
                    reactor.sleep_until(reactor.now() + Nanos((time_us as u64).saturating_mul(1000))).await;
                }
                Step::Shell(shell) => {
                    let tell = watch.as_ref().and_then(|watch| watch.debug);
                    Box::pin(part.shell(program, shell, connection, tell)).await?;
                }
                Step::StartPipeline => part.start_pipeline(program, *script, connection).await?,
                Step::SyncPipeline => part.sync(connection),
                Step::EndPipeline => part.end_pipeline(connection).await?,
                Step::End => break,
            }
            has_waited |= step != Step::Done;
            if let Some(watch) = &mut watch {
                (watch.took)(part.client.command(), connection.reactor().now() - began);
                if let (Step::EndPipeline, Some(tell)) = (step, watch.debug) {
                    part.report_syncs(tell);
                }
            }
        }
        if !has_waited {
            // A script that never waits must not block the loop.
            let reactor = connection.reactor().clone();
            reactor.sleep_until(reactor.now() + Nanos(1)).await;
        }
        if connection.transaction_status() == TransactionStatus::Idle {
            return Ok(());
        }
        let id = part.client.id;
        let message =
            format!("client {id} aborted: end of script reached without completing the last transaction");
        Err(Stop::LeftOpen(Abort { messages: vec![message] }))
    }
}

impl Part {
    #[inline]
    async fn sql(&mut self, program: &Program, sql: &Sql, connection: &mut Connection) -> Result<(), Stop> {
        let Self { client, prepared, answer, query, .. } = self;
        match program.protocol {
            Protocol::Simple => {
                let append = |out: &mut Vec<u8>| sql.write_simple(&client.variables, out);
                frontend::query_in_place(connection.out(), append)?;
            }
            protocol => {
                let statement = &program.statements[sql.number];
                if protocol == Protocol::Prepared && !prepared[sql.number] {
                    Box::pin(prepare(prepared, query, program, sql.number, connection)).await?;
                }
                statement.write(&client.variables, connection.out())?;
                if !client.in_pipeline() {
                    frontend::sync(connection.out());
                }
            }
        }
        if client.in_pipeline() {
            // Sent with the end of the pipeline, so that a Sync follows everything that was sent.
            return Ok(());
        }
        connection.flush().await?;
        match &sql.store {
            None => read_over(connection, 1, query).await?,
            Some(store) => {
                answer.store(connection, client, &program.scripts.names, sql.number, store, query).await?;
            }
        }
        Ok(())
    }

    async fn shell(
        &mut self,
        program: &Program,
        command: &Shell,
        connection: &mut Connection,
        tell: Option<&dyn Fn(String)>,
    ) -> Result<(), Stop> {
        self.command.clear();
        self.client.shell_command(&program.scripts, command, &mut self.command)?;
        let takes = command.variable.is_some();
        let reactor = connection.reactor().clone();
        let line_bytes_max = if takes { OUTPUT_BYTES_MAX } else { 0 };
        let shelled = shell(&reactor, &self.command, line_bytes_max, program.compat.shell).await;
        match shelled {
            Ok(shelled) if takes => {
                self.client.take_shell_output(&program.scripts, command, &shelled.line)?;
                if let Some(tell) = tell {
                    tell(Client::shell_printed(&program.scripts, command, &shelled.line));
                }
                Ok(())
            }
            Ok(shelled) if shelled.status.success() => Ok(()),
            _ => Err(self
                .client
                .shell_failed(&program.scripts, command, "could not launch shell command")
                .into()),
        }
    }

    /// Prepares the statements of a pipeline, because nothing can be prepared in an open one.
    async fn start_pipeline(
        &mut self,
        program: &Program,
        script: usize,
        connection: &mut Connection,
    ) -> Result<(), Stop> {
        self.syncs = 0;
        if program.protocol == Protocol::Prepared {
            let Self { client, prepared, query, .. } = self;
            for sql in program.scripts.in_pipeline(script, client.command()) {
                if !prepared[sql.number] {
                    Box::pin(prepare(prepared, query, program, sql.number, connection)).await?;
                }
            }
        }
        Ok(())
    }

    fn sync(&mut self, connection: &mut Connection) {
        frontend::sync(connection.out());
        self.syncs += 1;
    }

    async fn end_pipeline(&mut self, connection: &mut Connection) -> Result<(), Stop> {
        self.sync(connection);
        connection.flush().await?;
        Ok(read_over(connection, self.syncs, &mut self.query).await?)
    }
}

/// Prepares a statement. pgbench continues after a failure.
async fn prepare(
    prepared: &mut [bool],
    query: &mut usize,
    program: &Program,
    number: usize,
    connection: &mut Connection,
) -> Result<(), Error> {
    *query = 0;
    let statement = &program.statements[number];
    let outcome = connection.prepare(&statement.name, &statement.text, &[]).await;
    match (outcome, &program.compat.on_unprepared) {
        (Err(error), Some(tell)) if !error.is_fatal() => tell(&error, &statement.text),
        (outcome, _) => outcome?,
    }
    prepared[number] = true;
    Ok(())
}

/// Reads to the end of `count` responses. Rows are skipped. `query` counts statements.
#[inline]
async fn read_over(connection: &mut Connection, mut answers: u32, query: &mut usize) -> Result<(), Error> {
    let mut seen = Seen::default();
    let mut outcome = Ok(());
    while answers > 0 && outcome.is_ok() {
        outcome = connection.read_over(&mut seen).await;
        answers -= 1;
    }
    *query = seen.statements;
    outcome
}

/// Values of a response, kept until it is complete.
struct Answer {
    /// By number of the command.
    columns: Vec<Columns>,
    /// Values of the last row that a script uses, concatenated.
    text: Vec<u8>,
    /// The variable of each value, and the end of its text.
    values: Vec<(Slot, usize)>,
}

impl Answer {
    /// Creates the state for scripts with this number of SQL commands.
    fn new(statements: usize) -> Self {
        Self { columns: vec![Columns::default(); statements], text: Vec::new(), values: Vec::new() }
    }

    /// Reads the response of a command with `\gset` or `\aset` and stores its values. `query` counts
    /// statements.
    async fn store(
        &mut self,
        connection: &mut Connection,
        client: &mut Client,
        names: &Names,
        number: usize,
        store: &Store,
        query: &mut usize,
    ) -> Result<(), Stop> {
        let Self { columns, text, values } = self;
        let columns = &mut columns[number];
        *query = 0;
        // The statement of a combined command whose response is being read.
        let mut rows = 0;
        let mut last = None;
        let mut wrong_name = None;
        loop {
            match connection.next().await? {
                Message::RowDescription(fields) => {
                    rows = 0;
                    wrong_name = columns.slots(store, names, fields.names()).err();
                }
                Message::DataRow(row) => {
                    rows += 1;
                    keep(row, columns.known(), text, values);
                }
                Message::CommandComplete(_) | Message::EmptyQueryResponse => {
                    last = Some((*query, rows, wrong_name.take()));
                    if let (true, Some((query, 1.., name))) = (store.every, &last) {
                        if let Some(name) = name {
                            return Err(client.cannot_store(store, *query, name).into());
                        }
                        assign(client, text, values);
                    }
                    (rows, *query) = (0, *query + 1);
                }
                Message::ReadyForQuery(_) => break,
                _ => {}
            }
        }
        match last {
            _ if store.every => {}
            Some((query, 1, Some(name))) => return Err(client.cannot_store(store, query, &name).into()),
            Some((_, 1, None)) => assign(client, text, values),
            Some((query, rows, _)) => return Err(client.wrong_row_count(query, rows).into()),
            None => return Err(client.wrong_row_count(0, 0).into()),
        }
        Ok(())
    }
}

fn keep(row: Row<'_>, slots: &[Option<Slot>], text: &mut Vec<u8>, values: &mut Vec<(Slot, usize)>) {
    text.clear();
    values.clear();
    for (value, slot) in row.columns().zip(slots) {
        if let Some(slot) = slot {
            // As in pgbench, null becomes an empty text.
            text.extend_from_slice(value.unwrap_or_default());
            values.push((*slot, text.len()));
        }
    }
}

fn assign(client: &mut Client, text: &[u8], values: &[(Slot, usize)]) {
    let mut start = 0;
    for &(slot, end) in values {
        client.variables.set_text(slot, &text[start..end]);
        start = end;
    }
}

/// Handler of a statement that could not be prepared: the error and the text.
pub type OnUnprepared = Box<dyn Fn(&Error, &[u8]) + Send + Sync>;

/// Behavior of a program. The default is that of the engine.
#[derive(Default)]
pub struct Compat {
    /// Standard streams of shell commands. The engine shares none, because it uses its own for the protocol.
    pub shell: Shared,
    /// Handler of a statement that could not be prepared and is executed anyway. Without it, this is an error
    /// of the command.
    pub on_unprepared: Option<OnUnprepared>,
}

impl fmt::Debug for Compat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compat").field("shell", &self.shell).finish_non_exhaustive()
    }
}

/// An SQL command.
#[derive(Debug)]
struct Statement {
    /// Name of the prepared statement; empty if it is parsed each time.
    name: String,
    /// Text with `$1` and so on.
    text: Vec<u8>,
    parameters: Vec<Slot>,
    /// Whether column names are needed.
    describes: bool,
}

/// Builds all SQL commands, by their number.
///
/// # Panics
///
/// Never: scripts number their commands in order.
fn prepared_statements(scripts: &Scripts, protocol: Protocol) -> Result<Vec<Statement>, ScriptError> {
    let mut statements = Vec::with_capacity(scripts.statements());
    for command in scripts.scripts().iter().flat_map(|script| &script.commands) {
        if let Action::Sql(sql) = &command.action {
            let extended = sql.extended()?;
            let name = if protocol == Protocol::Prepared { sql.prepared_name() } else { String::new() };
            let (text, parameters, describes) = (extended.text, extended.parameters, sql.store.is_some());
            assert_eq!(statements.len(), sql.number);
            statements.push(Statement { name, text, parameters, describes });
        }
    }
    Ok(statements)
}

impl Statement {
    /// Appends the messages that execute it, without Sync.
    #[inline]
    fn write(&self, variables: &Variables, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.name.is_empty() {
            frontend::parse(out, "", &self.text, &[])?;
        }
        let parameters = &self.parameters;
        frontend::bind_text(out, &self.name, parameters.len(), Format::Text, |out, index| {
            variables.write_text(parameters[index], out)
        })?;
        if self.describes {
            frontend::describe(out);
        }
        frontend::execute(out);
        Ok(())
    }
}

/// Reason why a transaction is aborted.
#[derive(Debug)]
pub enum Stop {
    /// An error of the server or the connection.
    Session(Error),
    /// An error of the script. Its client does not continue.
    Script(Abort),
    /// A transaction is open at the end of the script. pgbench counts it as completed.
    LeftOpen(Abort),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Session(error.into())
    }
}

impl From<Abort> for Stop {
    fn from(abort: Abort) -> Self {
        Self::Script(abort)
    }
}
