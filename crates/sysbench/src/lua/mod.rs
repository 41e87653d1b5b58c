//! One client's Lua state: the libraries it may use, its limits, and the functions behind `prelude.lua`.

mod host;
mod rows;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Instant;

use mlua::{
    ChunkMode, Function, HookTriggers, IntoLuaMulti, Lua, LuaOptions, StdLib, Table, Thread, Value, Variadic,
    VmState,
};

use super::SYSBENCH_VERSION;
use super::counts::Counts;
use super::options::{Definition, OptionType, OptionValue};
use super::program::{Program, ProgramError, ScriptError};
use super::random::Random;

pub use rows::Rows;

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
    /// Whether the script has been resumed since the last look at the clock.
    is_resumed: Cell<bool>,
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
        Self::create(program, tid, random).map_err(|error| ScriptError::Lua(message(&error)))
    }

    fn create(program: &Program, tid: u32, random: Rc<RefCell<Random>>) -> mlua::Result<Self> {
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
        host::install(&lua, &host, program, &shared)?;
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
        let read = || -> mlua::Result<Vec<Definition>> {
            let found: Vec<Table> = self.host.get::<Function>("definitions")?.call(())?;
            let read = |one: Table| -> mlua::Result<Definition> {
                let option_type = OptionType::of_number(one.get(3)?).unwrap_or(OptionType::Text);
                Ok(Definition {
                    name: one.get(1)?,
                    description: one.get(2)?,
                    option_type,
                    default: one.get(4)?,
                })
            };
            found.into_iter().map(read).collect()
        };
        read().map_err(|error| ScriptError::Lua(message(&error)))
    }

    /// The commands that the script defines, and whether all threads run each.
    pub fn commands(&self) -> Result<Vec<(String, bool)>, ScriptError> {
        let read = || -> mlua::Result<Vec<(String, bool)>> {
            let found: Vec<Table> = self.host.get::<Function>("commands")?.call(())?;
            found.into_iter().map(|one| Ok((one.get(1)?, one.get(2)?))).collect()
        };
        read().map_err(|error| ScriptError::Lua(message(&error)))
    }

    /// A function of the script.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Function> {
        self.look_up("find", name)
    }

    /// What the script does for a command: what it defines for it, or the function of its name.
    #[must_use]
    pub fn command(&self, name: &str) -> Option<Function> {
        self.look_up("command_function", name).or_else(|| self.find(name))
    }

    /// What messages name where a command fails: the function of its name, or sysbench's own that calls a command which the script defines.
    #[must_use]
    pub fn caller_of<'a>(&self, command: &'a str) -> &'a str {
        match self.look_up("command_function", command) {
            Some(_) => "sysbench.cmdline.call_command",
            None => command,
        }
    }

    /// A hook of the script.
    #[must_use]
    pub fn hook(&self, name: &str) -> Option<Function> {
        self.look_up("hook", name)
    }

    /// Ends the list of reports that the script has printed as JSON.
    pub fn end_reports(&self) {
        // It prints, and cannot fail.
        let _ = self.host.get::<Function>("end_reports").and_then(|end| end.call::<()>(()));
    }

    fn look_up(&self, by: &str, name: &str) -> Option<Function> {
        self.host.get::<Function>(by).and_then(|find| find.call::<Option<Function>>(name)).ok()?
    }

    /// A coroutine that runs `runner` of `prelude.lua` with a function of the script.
    pub fn coroutine(&self, runner: &str, function: Function, tid: u32) -> Result<Coroutine, ScriptError> {
        let create = || {
            let thread = self.lua.create_thread(self.host.get(runner)?)?;
            Ok(Coroutine { thread, first: Some((function, tid)) })
        };
        create().map_err(|error: mlua::Error| ScriptError::Lua(message(&error)))
    }

    /// Goes on with a coroutine until it is suspended again.
    #[inline]
    pub fn resume(
        &self,
        coroutine: &mut Coroutine,
        answer: impl IntoLuaMulti,
    ) -> Result<Yielded, ScriptError> {
        self.shared.is_resumed.set(true);
        let yielded = match coroutine.first.take() {
            Some(first) => coroutine.thread.resume(first),
            None => coroutine.thread.resume(answer),
        };
        yielded.map_err(|error| ScriptError::Lua(message(&error)))
    }

    /// The Lua state, for values.
    #[must_use]
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
    mlua::Error::RuntimeError(format!(
        "the script computed for more than {} s without a query",
        limit.as_secs_f64()
    ))
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

/// An error without the stack of Lua functions.
#[must_use]
pub fn message(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::CallbackError { cause, .. } => return message(cause),
        mlua::Error::RuntimeError(text) | mlua::Error::MemoryError(text) => text.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    text.split("\nstack traceback:").next().unwrap_or_default().to_owned()
}
