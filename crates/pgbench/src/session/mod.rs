//! Execution of scripts by a client with a connection. It performs the steps of [`super::run`].
//!
//! | topic | module or function |
//! |---|---|
//! | one transaction from the first command to the last | [`ScriptRunner::attempt`] |
//! | messages sent for an SQL command | [`statement`] |
//! | processing of responses | [`answer`] |
//! | debug output | [`debug`] |
//! | behavior of the pgbench program | [`compat`] |

pub mod answer;
pub mod compat;
mod debug;
pub mod statement;
mod stop;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use answer::Answer;
use compat::Compat;
use statement::Statement;
pub use stop::Stop;

use super::random::Prng;
use super::run::shell::OUTPUT_BYTES_MAX;
use super::run::{Abort, Client, Protocol, Startup, Step};
use super::script::Scripts;
use super::script::command::Shell;
use super::script::error::ScriptError;
use super::script::sql::Sql;
use pgwire::frontend;
use reactor::{Connection, Error, Nanos, TransactionStatus, shell, tell};

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
            Protocol::Extended | Protocol::Prepared => statement::all(&scripts, protocol)?,
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
                    reactor.sleep_until(reactor.now() + Nanos(time_us as u64 * 1000)).await;
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
            None => answer::read_over(connection, 1, query).await?,
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
        Ok(answer::read_over(connection, self.syncs, &mut self.query).await?)
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
