//! A client: its Lua state, its connections, and the requests of its script, carried out.

use std::cell::{Cell, RefCell};
use std::os::unix::process::ExitStatusExt;
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Function, Value};

use super::counts::{Counts, RESTARTING};
use super::links::Links;
use super::lua::{Coroutine, ScriptState, Yielded};
use super::program::{Program, Report, ScriptError};
use super::random::Random;
use super::session::{self, Answer, Prepared};
use reactor::{Connection, Error, Nanos, Reactor, Shared, shell};

/// The operations that a script asks for, as `lua/prelude.lua` numbers them.
mod operation {
    pub const CONNECT: u32 = 1;
    pub const DISCONNECT: u32 = 2;
    pub const QUERY: u32 = 3;
    pub const PREPARE: u32 = 4;
    pub const EXECUTE: u32 = 5;
    pub const SLEEP: u32 = 6;
    pub const EVENT: u32 = 7;
    pub const SHELL: u32 = 8;
    pub const DONE: u32 = 20;
    pub const STOP: u32 = 21;
    pub const RESTART: u32 = 22;
    pub const FAILED: u32 = 23;
}

/// What a script with its own loop asks before an event, and says after it.
const NEXT_EVENT: u32 = 0;
const EVENT_ENDS: u32 = 2;

/// Bytes of kept rows after which Lua's garbage is collected: it does not know of them.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// How an event ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventEnd {
    /// To be followed by the next.
    Done,
    /// Its script wants no more events.
    Stop,
    /// An error was ignored: the event is to be run again.
    Restart,
}

/// A client.
pub struct ScriptClient {
    program: Arc<Program>,
    tid: u32,
    random: Rc<RefCell<Random>>,
    state: ScriptState,
    events: Option<Coroutine>,
    part: Part,
    /// What has been given away of the counters.
    reported: Cell<Counts>,
}

/// What requests need besides the state.
#[derive(Default)]
struct Part {
    /// By number of the statement: its connection, and what that knows it as.
    statements: Vec<Option<(u32, Prepared)>>,
    /// An error of the server, until it is known whether the script catches it.
    failure: Option<Error>,
    kept_bytes: usize,
    /// Where errors are reported that end the script unless it catches them.
    report: Option<Report>,
    /// The streams of the commands that the script may run.
    shell: Option<Shared>,
    has_connected: bool,
    /// Whether the last event has waited for anything; in a script's own loop, the event that runs.
    has_waited: bool,
}

impl ScriptClient {
    /// Loads the script for client `tid`.
    pub fn new(program: Arc<Program>, tid: u32) -> Result<Self, ScriptError> {
        let random = program.random(tid).shared();
        let state = ScriptState::new(&program, tid, Rc::clone(&random))?;
        let part = Part::new(&program);
        Ok(Self { program, tid, random, state, events: None, part, reported: Cell::default() })
    }

    /// Loads the script again, with no connections. Random numbers and counters go on.
    pub fn reload(&mut self) -> Result<(), ScriptError> {
        let counts = self.counts();
        self.events = None;
        self.part = Part::new(&self.program);
        self.state = ScriptState::new(&self.program, self.tid, Rc::clone(&self.random))?;
        self.state.shared.counts.set(counts);
        Ok(())
    }

    /// What has been counted.
    pub fn counts(&self) -> Counts {
        self.state.shared.counts.get()
    }

    /// Adds what was counted since the last call to counters in the order of [`Counts::NAMES`].
    pub fn add_new_counts(&self, counters: &mut [u64]) {
        counters.iter_mut().zip(self.take_new_counts().values()).for_each(|(counter, new)| *counter += new);
    }

    /// What was counted since the last call.
    pub fn take_new_counts(&self) -> Counts {
        let counts = self.counts();
        counts.since(&self.reported.replace(counts))
    }

    /// Whether the script has opened a connection.
    pub fn has_connected(&self) -> bool {
        self.part.has_connected
    }

    /// The Lua state.
    pub fn state(&self) -> &ScriptState {
        &self.state
    }

    /// Runs a function of the script, with the client's number, to its end.
    pub async fn run(
        &mut self,
        reactor: &Reactor,
        function: Function,
        links: &mut impl Links,
    ) -> Result<(), ScriptError> {
        let mut coroutine = self.state.coroutine("run", function, self.tid)?;
        self.carry_on(reactor, &mut coroutine, links).await.map(|_| ())
    }

    /// Runs one event.
    pub async fn event(
        &mut self,
        reactor: &Reactor,
        links: &mut impl Links,
    ) -> Result<EventEnd, ScriptError> {
        let mut coroutine = if let Some(coroutine) = self.events.take() {
            coroutine
        } else {
            let event = self.state.find("event").ok_or_else(|| {
                ScriptError::Lua(format!("cannot find the event() function in {}", self.program.name))
            })?;
            self.state.coroutine("events", event, self.tid)?
        };
        let end = self.carry_on(reactor, &mut coroutine, links).await;
        if !self.part.has_waited {
            // An event that asks for nothing must not keep the loop to itself.
            reactor.pause().await;
        }
        self.events = Some(coroutine);
        if matches!(end, Ok(EventEnd::Done)) {
            // sysbench draws a number of the client at the end of each event, of which its statistics make use.
            self.random.borrow_mut().bits.next_u64();
        }
        end
    }

    /// The error after which the last event is to be run again.
    pub fn take_restart_error(&mut self) -> Error {
        let own = || Error::Workload("the script restarts the event by itself".to_owned());
        self.part.failure.take().unwrap_or_else(own)
    }

    async fn carry_on(
        &mut self,
        reactor: &Reactor,
        coroutine: &mut Coroutine,
        links: &mut impl Links,
    ) -> Result<EventEnd, ScriptError> {
        let Self { state, part, .. } = self;
        part.failure = None;
        part.has_waited = false;
        let mut yielded = state.resume(coroutine, ())?;
        loop {
            yielded = match yielded.0 {
                Some(operation::EXECUTE) => {
                    let done = part.execute(state, links, &yielded).await;
                    part.answer(state, coroutine, done, ("PQexecPrepared()", &Value::Nil))?
                }
                Some(operation::QUERY) => {
                    let done = part.query(state, links, &yielded).await;
                    part.answer(state, coroutine, done, ("PQexec()", &yielded.2))?
                }
                Some(operation::DONE) => return Ok(EventEnd::Done),
                Some(operation::STOP) => return Ok(EventEnd::Stop),
                Some(operation::RESTART) => return Ok(EventEnd::Restart),
                Some(operation::FAILED) => return Err(part.failed(state, &yielded.1)),
                Some(rare) => Box::pin(part.rare(reactor, state, coroutine, links, rare, yielded)).await?,
                None => return Err(ScriptError::Lua("attempt to yield outside a coroutine".to_owned())),
            };
        }
    }
}

fn number(value: &Value) -> u32 {
    value.as_u32().unwrap_or(u32::MAX)
}

fn closed() -> Error {
    Error::Workload("the connection is closed".to_owned())
}

impl Part {
    fn new(program: &Program) -> Self {
        let shell = program.limits.allow_os.then_some(program.shell);
        Self { report: program.report, shell, ..Self::default() }
    }

    async fn query(
        &mut self,
        state: &ScriptState,
        links: &mut impl Links,
        (_, link, sql, keep, ..): &Yielded,
    ) -> Result<Answer, Error> {
        self.has_waited = true;
        let keep = state.shared.keeps_rows.get() || matches!(keep, Value::Boolean(true));
        let text = match sql {
            Value::String(text) => text.as_bytes(),
            other => {
                let problem = format!("a query is a string, not a {}", other.type_name());
                return Err(Error::Workload(problem));
            }
        };
        let connection = links.link(number(link)).ok_or_else(closed)?;
        session::send_query(connection, &text)?;
        drop(text);
        let outcome = session::answer(connection, keep).await;
        recovered(connection, outcome).await
    }

    #[inline]
    async fn execute(
        &mut self,
        state: &ScriptState,
        links: &mut impl Links,
        (_, statement, first, second, third, others): &Yielded,
    ) -> Result<Answer, Error> {
        self.has_waited = true;
        let (link, prepared) =
            self.statements.get_mut(number(statement) as usize).and_then(Option::as_mut).ok_or_else(
                || Error::Workload("the statement is not prepared on this connection".to_owned()),
            )?;
        let connection = links.link(*link).ok_or_else(closed)?;
        let value = |place: usize| match place {
            0 => first,
            1 => second,
            2 => third,
            _ => others.get(place - 3).unwrap_or(&Value::Nil),
        };
        let outcome = session::execute(connection, prepared, value, state.shared.keeps_rows.get()).await;
        match outcome {
            Ok(answer) => Ok(answer),
            Err(error) => recovered(connection, Err(error)).await,
        }
    }

    /// Hands the outcome of a statement to the script.
    #[inline]
    fn answer(
        &mut self,
        state: &ScriptState,
        coroutine: &mut Coroutine,
        outcome: Result<Answer, Error>,
        (function, query): (&'static str, &Value),
    ) -> Result<Yielded, ScriptError> {
        match outcome {
            Ok(Answer { rows, columns, kept, class }) => {
                if let Some(class) = class {
                    state.shared.count(|counts| counts.add(class));
                }
                let Some(kept) = kept else { return state.resume(coroutine, (true, rows, columns)) };
                self.kept_bytes += kept.size_bytes();
                if self.kept_bytes > KEPT_BYTES_MAX {
                    self.kept_bytes = 0;
                    // The script's memory may be used up: it learns that soon enough.
                    let _ = state.lua().gc_collect();
                }
                state.resume(coroutine, (true, rows, columns, kept))
            }
            Err(error) => {
                let sqlstate = error.sqlstate().map_or_else(String::new, |state| state.as_str().to_owned());
                let message = match &error {
                    Error::Server(error) => error.message.clone(),
                    other => other.to_string(),
                };
                let is_ignorable = RESTARTING.contains(&sqlstate.as_str());
                if let (Some(report), false) = (self.report, is_ignorable) {
                    let query = if let Value::String(query) = query {
                        query.to_string_lossy()
                    } else {
                        String::new()
                    };
                    report(function, &message, &query);
                }
                self.failure = Some(error);
                state.resume(coroutine, (false, sqlstate, message, is_ignorable))
            }
        }
    }

    /// The error with which a script ended.
    fn failed(&mut self, state: &ScriptState, message: &Value) -> ScriptError {
        let message = match message {
            Value::String(text) => text.to_string_lossy(),
            other => format!("{other:?}"),
        };
        let message = message.split("\nstack traceback:").next().unwrap_or_default().to_owned();
        let is_fatal = state.shared.is_fatal.take();
        match self.failure.take().filter(|error| is_fatal || error.is_fatal()) {
            Some(error) => ScriptError::Server { message, error: Box::new(error) },
            None => ScriptError::Lua(message),
        }
    }

    /// Requests that are no statements.
    async fn rare(
        &mut self,
        reactor: &Reactor,
        state: &ScriptState,
        coroutine: &mut Coroutine,
        links: &mut impl Links,
        operation: u32,
        (_, first, second, third, fourth, types): Yielded,
    ) -> Result<Yielded, ScriptError> {
        self.has_waited |= operation != operation::EVENT;
        let link = number(&first);
        match operation {
            operation::CONNECT => match links.connect().await {
                Ok(link) => {
                    self.has_connected = true;
                    state.resume(coroutine, (true, link))
                }
                Err(error) => {
                    // The reasons of a server or a network are no part of sysbench's messages.
                    let problem = match &error {
                        Error::Workload(problem) => Some(problem.clone()),
                        _ => None,
                    };
                    self.failure = Some(error);
                    state.resume(coroutine, (false, problem))
                }
            },
            operation::DISCONNECT => {
                for statement in &mut self.statements {
                    statement.take_if(|(of, _)| *of == link);
                }
                match links.disconnect(link).await {
                    Ok(()) => state.resume(coroutine, true),
                    Err(error) => state.resume(coroutine, (false, error.to_string())),
                }
            }
            operation::PREPARE => {
                let name = session::statement_name(&mut state.shared.random.borrow_mut().bits);
                let types = types.iter().take(number(&fourth) as usize);
                let types: Vec<_> = types.map(|kind| session::type_oid(number(kind))).collect();
                match prepare(links, link, name, &third, &types).await {
                    Ok(prepared) => {
                        let place = number(&second) as usize;
                        self.statements.resize_with(self.statements.len().max(place + 1), || None);
                        self.statements[place] = Some((link, prepared));
                        state.resume(coroutine, true)
                    }
                    Err(error) => self.answer(state, coroutine, Err(error), ("PQprepare()", &Value::Nil)),
                }
            }
            operation::SLEEP => {
                // A number without a fraction arrives as an integer.
                let us = match second {
                    Value::Integer(us) => us as f64,
                    Value::Number(us) => us,
                    _ => 0.0,
                };
                let us = us.clamp(0.0, 1e12);
                reactor.sleep_until(reactor.now() + Nanos((us * 1000.0) as u64)).await;
                state.resume(coroutine, ())
            }
            operation::EVENT => {
                let what = number(&second);
                if what == NEXT_EVENT && !std::mem::take(&mut self.has_waited) {
                    // A loop that asks for nothing else must not keep the others waiting.
                    reactor.pause().await;
                }
                if what == EVENT_ENDS {
                    state.shared.random.borrow_mut().bits.next_u64();
                }
                let goes_on = links.event(what, &state.shared.counts.get()).await;
                state.resume(coroutine, goes_on)
            }
            operation::SHELL => match (&second, self.shell) {
                (Value::String(command), Some(streams)) => {
                    match shell(reactor, &command.as_bytes(), 0, streams).await {
                        Ok(output) => state.resume(coroutine, output.status.into_raw()),
                        Err(error) => state.resume(coroutine, (Value::Nil, error.to_string())),
                    }
                }
                _ => Err(ScriptError::Lua("a command is a string, and needs allow_os".to_owned())),
            },
            _ => Err(ScriptError::Lua("attempt to yield outside a coroutine".to_owned())),
        }
    }
}

async fn prepare(
    links: &mut impl Links,
    link: u32,
    name: String,
    sql: &Value,
    types: &[u32],
) -> Result<Prepared, Error> {
    let connection = links.link(link).ok_or_else(closed)?;
    let Value::String(sql) = sql else {
        return Err(Error::Workload("a statement is a string".to_owned()));
    };
    let sql = sql.as_bytes().to_vec();
    let prepared = session::prepare(connection, name, &sql, types).await;
    recovered(connection, prepared).await
}

/// After an error that leaves the connection usable, brings the session to where the next statement can be sent. Errors that restart the
/// event roll back, too.
async fn recovered<T>(connection: &mut Connection, outcome: Result<T, Error>) -> Result<T, Error> {
    match outcome {
        Err(error) if !error.is_fatal() && error.sqlstate().is_some() => {
            let restarts = error.sqlstate().is_some_and(|state| RESTARTING.contains(&state.as_str()));
            Box::pin(session::recover(connection, restarts)).await?;
            Err(error)
        }
        outcome => outcome,
    }
}
