//! One client's Lua state: the libraries it may use, its limits, and the functions behind `prelude.lua`.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Instant;

use mlua::{
    ChunkMode, FromLuaMulti, Function, HookTriggers, IntoLuaMulti, Lua, LuaOptions, StdLib, Table, Thread,
    UserData, UserDataMethods, Value, Variadic, VmState,
};
use pgwire::backend::Row;

use super::counts::Counts;
use super::options::{Definition, OptionType, OptionValue};
use super::program::{Program, ProgramError, ScriptError};
use super::random::{Distribution, Random};
use super::{Histogram, SYSBENCH_VERSION};

const PRELUDE: &str = include_str!("prelude.lua");
/// Instructions between two checks of the clock: usually less than 0.1 ms, but one that makes a long string takes longer.
const HOOK_EVERY: u32 = 10_000;
/// Bytes of SQL after which a bulk insert is sent.
const BULK_BYTES_MAX: usize = 512 << 10;
/// Bytes of the output of a command that a script reads.
const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// How a coroutine of the script was suspended: an operation of `prelude.lua` and its inputs. Four of them need no allocation.
pub type Yielded = (Option<u32>, Value, Value, Value, Value, Variadic<Value>);

/// What a state shares with the functions that it calls.
pub struct Shared {
    /// The client's random numbers: they outlive the state.
    pub random: Rc<RefCell<Random>>,
    /// The client's counters.
    pub counts: Cell<Counts>,
    /// Whether rows are kept for the script to fetch.
    pub keeps_rows: Cell<bool>,
    /// Whether the last error of the server is raised as one that ends the script.
    pub is_fatal: Cell<bool>,
    /// Whether the script has been resumed or called since the last look at the clock.
    is_resumed: Cell<bool>,
}

impl Shared {
    /// Changes the counters.
    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }
}

/// A client's state, with the script loaded.
pub struct ScriptState {
    lua: Lua,
    host: Table,
    /// Shared with its functions.
    pub shared: Rc<Shared>,
}

impl Program {
    /// The options that the script defines.
    pub fn definitions(&self) -> Result<Vec<Definition>, ProgramError> {
        Ok(ScriptState::new(self, 0, self.random(0).shared())?.definitions()?)
    }
}

impl ScriptState {
    /// Creates the state of client `tid` and loads the script.
    pub fn new(program: &Program, tid: u32, random: Rc<RefCell<Random>>) -> Result<Self, ScriptError> {
        let mut libraries =
            StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::BIT | StdLib::OS | StdLib::JIT;
        if program.limits.allow_os {
            libraries |= StdLib::IO;
        }
        // With this option pcall stays LuaJIT's own, and a coroutine can be suspended inside of it.
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(true))?;
        // Compiled code runs no hooks, so an endless loop would never end; and it would cost each client memory.
        lua.globals().get::<Table>("jit")?.get::<Function>("off")?.call::<()>(())?;
        let shared = Rc::new(Shared {
            random,
            counts: Cell::default(),
            keeps_rows: Cell::new(fetches(&program.text)),
            is_fatal: Cell::default(),
            is_resumed: Cell::new(true),
        });
        let host = lua.create_table()?;
        install(&Host { lua: &lua, table: &host, shared: &shared }, program)?;
        set_values(&lua, &host, program, tid)?;
        prelude(&lua)?.call::<()>(&host)?;
        set_globals(&lua, program, tid)?;
        lua.set_memory_limit(program.limits.memory_bytes)?;
        watch(&lua, &shared, program)?;
        let state = Self { lua, host, shared };
        let name = format!("@{}", program.name);
        // The first line may name an interpreter.
        let text = program
            .text
            .strip_prefix("#!")
            .map_or(program.text.as_str(), |rest| rest.find('\n').map_or("", |end| &rest[end..]));
        state.lua.load(text).set_name(name).set_mode(ChunkMode::Text).exec()?;
        Ok(state)
    }

    /// The options that the script defines.
    pub fn definitions(&self) -> Result<Vec<Definition>, ScriptError> {
        let found: Vec<Table> = self.host_function("definitions")?.call(())?;
        let read = |one: Table| {
            let option_type = OptionType::of_number(one.get(3)?).unwrap_or(OptionType::Text);
            let (name, description, default) = (one.get(1)?, one.get(2)?, one.get(4)?);
            Ok(Definition { name, description, option_type, default })
        };
        found.into_iter().map(read).collect()
    }

    /// The commands that the script defines, and whether all threads run each.
    pub fn commands(&self) -> Result<Vec<(String, bool)>, ScriptError> {
        let found: Vec<Table> = self.host_function("commands")?.call(())?;
        found.into_iter().map(|one| Ok((one.get(1)?, one.get(2)?))).collect()
    }

    /// A function of the script.
    pub fn find(&self, name: &str) -> Option<Function> {
        self.look_up("find", name)
    }

    /// What the script does for a command: what it defines for it, or the function of its name.
    pub fn command(&self, name: &str) -> Option<Function> {
        self.look_up("command_function", name).or_else(|| self.find(name))
    }

    /// What messages name where a command fails: the function of its name, or sysbench's own that calls a command which the script defines.
    pub fn caller_of<'a>(&self, command: &'a str) -> &'a str {
        match self.look_up("command_function", command) {
            Some(_) => "sysbench.cmdline.call_command",
            None => command,
        }
    }

    /// A hook of the script.
    pub fn hook(&self, name: &str) -> Option<Function> {
        self.look_up("hook", name)
    }

    /// Ends the list of reports that the script has printed as JSON.
    pub fn end_reports(&self) {
        // It prints, and cannot fail.
        let _ = self.host_function("end_reports").and_then(|end| end.call::<()>(()));
    }

    fn look_up(&self, by: &str, name: &str) -> Option<Function> {
        self.host_function(by).and_then(|find| find.call::<Option<Function>>(name)).ok()?
    }

    /// A function of `prelude.lua` that is to be called. The script's time to compute begins anew.
    fn host_function(&self, name: &str) -> mlua::Result<Function> {
        self.shared.is_resumed.set(true);
        self.host.get(name)
    }

    /// A coroutine that runs `runner` of `prelude.lua` with a function of the script.
    pub fn coroutine(&self, runner: &str, function: Function, tid: u32) -> Result<Coroutine, ScriptError> {
        let thread = self.lua.create_thread(self.host.get(runner)?)?;
        Ok(Coroutine { thread, first: Some((function, tid)) })
    }

    /// Goes on with a coroutine until it is suspended again.
    #[inline]
    pub fn resume(
        &self,
        coroutine: &mut Coroutine,
        answer: impl IntoLuaMulti,
    ) -> Result<Yielded, ScriptError> {
        self.shared.is_resumed.set(true);
        Ok(match coroutine.first.take() {
            Some(first) => coroutine.thread.resume(first)?,
            None => coroutine.thread.resume(answer)?,
        })
    }

    /// The Lua state, for values.
    pub fn lua(&self) -> &Lua {
        &self.lua
    }
}

/// The function of `prelude.lua`. The first client's state compiles it, the others read what came of it.
fn prelude(lua: &Lua) -> mlua::Result<Function> {
    static COMPILED: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(compiled) = COMPILED.get() {
        return lua.load(&compiled[..]).set_name("=sysbench").set_mode(ChunkMode::Binary).into_function();
    }
    let prelude = lua.load(PRELUDE).set_name("=sysbench").set_mode(ChunkMode::Text).into_function()?;
    COMPILED.get_or_init(|| prelude.dump(false));
    Ok(prelude)
}

/// A coroutine of the host's.
pub struct Coroutine {
    thread: Thread,
    first: Option<(Function, u32)>,
}

/// Whether a text may fetch rows.
fn fetches(text: &str) -> bool {
    text.contains("fetch_row")
}

/// Ends a script that computes for too long. From its end on each instruction fails, so that no pcall can hold it.
fn watch(lua: &Lua, shared: &Rc<Shared>, program: &Program) -> mlua::Result<()> {
    let (shared, limit) = (Rc::clone(shared), program.limits.compute);
    let resumed_at = Cell::new(Instant::now());
    let triggers = |instructions| HookTriggers::new().every_nth_instruction(instructions);
    let hook = move |lua: &Lua, _: &mlua::Debug| {
        if shared.is_resumed.replace(false) {
            resumed_at.set(Instant::now());
        } else if resumed_at.get().elapsed() >= limit {
            let ends = move |_: &Lua, _: &mlua::Debug| -> mlua::Result<VmState> { Err(too_long(limit)) };
            lua.set_global_hook(triggers(1), ends)?;
            return Err(too_long(limit));
        }
        Ok(VmState::Continue)
    };
    lua.set_global_hook(triggers(HOOK_EVERY), hook)
}

fn too_long(limit: std::time::Duration) -> mlua::Error {
    let limit_s = limit.as_secs_f64();
    mlua::Error::runtime(format!("the script computed for more than {limit_s} s without a query"))
}

fn set_values(lua: &Lua, host: &Table, program: &Program, tid: u32) -> mlua::Result<()> {
    host.set("tid", tid)?;
    host.set("version", SYSBENCH_VERSION)?;
    host.set("command", program.command.as_str())?;
    host.set("script_path", program.name.as_str())?;
    host.set("allow_os", program.limits.allow_os)?;
    host.set("bulk_bytes_max", BULK_BYTES_MAX)?;
    host.set("output_bytes_max", OUTPUT_BYTES_MAX)?;
    let argv = lua.create_table()?;
    for (place, argument) in program.argv.iter().enumerate() {
        argv.set(place, argument.as_str())?;
    }
    host.set("argv", argv)?;
    let options = lua.create_table()?;
    for (key, value) in &program.options {
        set_option(lua, &options, key, value)?;
    }
    host.set("opt", options)
}

fn set_option(lua: &Lua, table: &Table, key: &str, value: &OptionValue) -> mlua::Result<()> {
    match value {
        OptionValue::Bool(value) => table.set(key, *value),
        OptionValue::Int(value) => table.set(key, *value),
        OptionValue::Double(value) => table.set(key, *value),
        OptionValue::Text(value) => table.set(key, value.as_str()),
        OptionValue::List(values) => {
            table.set(key, lua.create_sequence_from(values.iter().map(String::as_str))?)
        }
    }
}

/// The global variables of sysbench 0.5.
fn set_globals(lua: &Lua, program: &Program, tid: u32) -> mlua::Result<()> {
    let globals = lua.globals();
    for (key, value) in &program.options {
        if !globals.contains_key(key.as_str())? {
            set_option(lua, &globals, key, value)?;
        }
    }
    for (key, value) in &program.globals {
        globals.set(key.as_str(), value.as_str())?;
    }
    globals.set("thread_id", tid)?;
    globals.set("test", program.name.as_str())
}

/// Without the stack of Lua functions.
impl From<mlua::Error> for ScriptError {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(message(&error))
    }
}

fn message(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::CallbackError { cause, .. } => return message(cause),
        mlua::Error::RuntimeError(text) | mlua::Error::MemoryError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    text.split("\nstack traceback:").next().unwrap_or_default().to_owned()
}

/// Counters by the numbers that scripts use.
const COUNTER_OTHER: u32 = 0;
const COUNTER_READ: u32 = 1;
const COUNTER_WRITE: u32 = 2;
const COUNTER_ERROR: u32 = 4;
const COUNTER_RECONNECT: u32 = 5;

/// The table with the functions behind `prelude.lua`.
struct Host<'a> {
    lua: &'a Lua,
    table: &'a Table,
    shared: &'a Rc<Shared>,
}

impl Host<'_> {
    /// Adds a function.
    fn set<A: FromLuaMulti, R: IntoLuaMulti>(
        &self,
        name: &str,
        function: impl Fn(&Lua, &Shared, A) -> mlua::Result<R> + 'static,
    ) -> mlua::Result<()> {
        let shared = Rc::clone(self.shared);
        let function = self.lua.create_function(move |lua, arguments| function(lua, &shared, arguments))?;
        self.table.set(name, function)
    }
}

/// Adds all functions.
fn install(host: &Host<'_>, program: &Program) -> mlua::Result<()> {
    install_random(host)?;
    install_counts(host)?;
    install_sources(host, program)?;
    let output = program.output;
    host.set("print", move |_, _, text: mlua::String| {
        output(&text.to_string_lossy());
        Ok(())
    })?;
    host.set("traceback", |_, _, text: Variadic<Value>| Ok(text.first().cloned()))?;
    host.set("histogram", |_, _, (size, lowest, highest): (f64, f64, f64)| {
        let histogram = Histogram::new(size.max(0.0) as usize, lowest, highest);
        histogram.map(Bins).ok_or_else(|| {
            let range = format!("{size} bins from {lowest} to {highest}");
            mlua::Error::runtime(format!("sysbench.histogram.new: {range} is not a histogram"))
        })
    })
}

/// A number as sysbench's 32 bits.
fn word(number: f64) -> u32 {
    number as i64 as u32
}

fn install_random(host: &Host<'_>) -> mlua::Result<()> {
    let names = [
        ("rand_uniform", Distribution::Uniform),
        ("rand_gaussian", Distribution::Gaussian),
        ("rand_special", Distribution::Special),
        ("rand_pareto", Distribution::Pareto),
        ("rand_zipfian", Distribution::Zipfian),
    ];
    for (name, distribution) in names {
        host.set(name, move |_, shared, (from, to): (f64, f64)| {
            Ok(shared.random.borrow_mut().draw(distribution, word(from), word(to)))
        })?;
    }
    host.set("rand_default", |_, shared, (from, to): (f64, f64)| {
        Ok(shared.random.borrow_mut().default(word(from), word(to)))
    })?;
    host.set("rand_unique", |_, shared, ()| Ok(shared.random.borrow_mut().unique()))?;
    host.set("rand_uniform_double", |_, shared, ()| Ok(shared.random.borrow_mut().bits.unit()))?;
    host.set("rand_halves", |_, shared, ()| {
        let bits = shared.random.borrow_mut().bits.next_u64();
        Ok(((bits >> 32) as u32, bits as u32))
    })?;
    host.set("rand_string", |lua, shared, pattern: mlua::String| {
        let mut text = Vec::with_capacity(pattern.as_bytes().len());
        shared.random.borrow_mut().fill(&pattern.as_bytes(), &mut text);
        lua.create_string(text)
    })?;
    host.set("rand_varstring", |lua, shared, (shortest, longest): (f64, f64)| {
        let (shortest, longest) = (word(shortest), word(longest));
        if shortest > longest || longest > 1 << 24 {
            let range = format!("{shortest} to {longest} is not a range of lengths");
            return Err(mlua::Error::runtime(format!("sysbench.rand.varstring: {range}")));
        }
        let mut text = Vec::new();
        shared.random.borrow_mut().letters(shortest, longest, &mut text);
        lua.create_string(text)
    })
}

fn install_counts(host: &Host<'_>) -> mlua::Result<()> {
    host.set("ignored", |_, shared, sqlstate: mlua::String| {
        shared.count(|counts| counts.ignore(&sqlstate.to_string_lossy()));
        Ok(())
    })?;
    host.set("count", |_, shared, (counter, n): (u32, f64)| {
        let n = n.clamp(0.0, 1e6) as u64;
        shared.count(|counts| match counter {
            COUNTER_OTHER => counts.others += n,
            COUNTER_READ => counts.reads += n,
            COUNTER_WRITE => counts.writes += n,
            COUNTER_ERROR => counts.ignored += n,
            COUNTER_RECONNECT => counts.reconnects += n,
            _ => {}
        });
        Ok(())
    })?;
    host.set("fatal", |_, shared, ()| {
        shared.is_fatal.set(true);
        Ok(())
    })
}

fn install_sources(host: &Host<'_>, program: &Program) -> mlua::Result<()> {
    let sources = program.sources.clone();
    host.set("module", move |_, _, name: String| Ok(sources.module(&name).unzip()))?;
    let sources = program.sources.clone();
    host.set("file", move |_, _, path: String| Ok(sources.file(&path).unzip()))?;
    host.set("load", |lua, shared, (text, name): (mlua::String, mlua::String)| {
        shared.keeps_rows.set(shared.keeps_rows.get() || fetches(&text.to_string_lossy()));
        let chunk = lua.load(text.as_bytes().to_vec()).set_name(name.to_string_lossy());
        Ok(match chunk.set_mode(ChunkMode::Text).into_function() {
            Ok(function) => (Some(function), None),
            Err(error) => (None, Some(message(&error))),
        })
    })
}

/// A histogram of a script.
struct Bins(Histogram);

impl UserData for Bins {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method_mut("update", |_, bins, value: f64| {
            bins.0.update(value);
            Ok(())
        });
        methods.add_method("percentile", |_, bins, percent: f64| Ok(bins.0.percentile(percent)));
        methods.add_method("text", |_, bins, ()| Ok(bins.0.text()));
    }
}

/// Rows as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// All values, one after another.
    bytes: Vec<u8>,
    /// By value: where it ends; `None` is NULL.
    ends: Vec<Option<usize>>,
    columns: usize,
}

impl Rows {
    /// Adds a row.
    pub fn push(&mut self, row: &Row<'_>) {
        self.columns = row.column_count();
        for value in row.columns() {
            self.bytes.extend_from_slice(value.unwrap_or_default());
            self.ends.push(value.map(|_| self.bytes.len()));
        }
    }

    /// The bytes that it holds.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<Option<usize>>()
    }

    /// The values of a row, from 0.
    fn row(&self, row: usize) -> impl Iterator<Item = Option<&[u8]>> {
        let first = (row * self.columns).min(self.ends.len());
        let ends = &self.ends[first..(first + self.columns).min(self.ends.len())];
        let mut start = self.ends[..first].iter().rev().find_map(|end| *end).unwrap_or(0);
        ends.iter().map(move |end| {
            let from = start;
            start = end.unwrap_or(start);
            end.map(|end| &self.bytes[from..end])
        })
    }
}

impl UserData for Rows {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("row", |lua: &Lua, rows, row: usize| {
            let table = lua.create_table_with_capacity(rows.columns, 0)?;
            for (column, value) in rows.row(row.saturating_sub(1)).enumerate() {
                if let Some(value) = value {
                    table.raw_set(column + 1, lua.create_string(value)?)?;
                }
            }
            Ok::<Table, mlua::Error>(table)
        });
        methods.add_method_mut("free", |_, rows, ()| {
            *rows = Self::default();
            Ok(Value::Nil)
        });
    }
}
