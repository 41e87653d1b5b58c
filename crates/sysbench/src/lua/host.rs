//! The functions that `prelude.lua` calls.

use std::rc::Rc;

use mlua::{ChunkMode, Function, Lua, MultiValue, Table, UserData, UserDataMethods, Value, Variadic};

use super::{Program, Shared, fetches, message};
use crate::Histogram;
use crate::random::Distribution;

/// Counters by the numbers that scripts use.
const COUNTER_OTHER: u32 = 0;
const COUNTER_READ: u32 = 1;
const COUNTER_WRITE: u32 = 2;
const COUNTER_ERROR: u32 = 4;
const COUNTER_RECONNECT: u32 = 5;

/// Puts all functions into `host`.
pub fn install(lua: &Lua, host: &Table, program: &Program, shared: &Rc<Shared>) -> mlua::Result<()> {
    install_random(lua, host, shared)?;
    install_strings(lua, host, shared)?;
    install_counts(lua, host, shared)?;
    install_sources(lua, host, program, shared)?;
    let output = program.output;
    host.set(
        "print",
        lua.create_function(move |_, text: mlua::String| {
            output(&text.to_string_lossy());
            Ok(())
        })?,
    )?;
    host.set("traceback", lua.create_function(|_, text: Variadic<Value>| Ok(text.first().cloned()))?)?;
    host.set(
        "histogram",
        lua.create_function(|_, (size, lowest, highest): (f64, f64, f64)| {
            let histogram = Histogram::new(size.max(0.0) as usize, lowest, highest);
            histogram.map(Bins).ok_or_else(|| {
                let range = format!("{size} bins from {lowest} to {highest}");
                mlua::Error::RuntimeError(format!("sysbench.histogram.new: {range} is not a histogram"))
            })
        })?,
    )
}

/// A number as sysbench's 32 bits.
fn word(number: f64) -> u32 {
    number as i64 as u32
}

fn install_random(lua: &Lua, host: &Table, shared: &Rc<Shared>) -> mlua::Result<()> {
    let names = [
        ("rand_uniform", Distribution::Uniform),
        ("rand_gaussian", Distribution::Gaussian),
        ("rand_special", Distribution::Special),
        ("rand_pareto", Distribution::Pareto),
        ("rand_zipfian", Distribution::Zipfian),
    ];
    for (name, distribution) in names {
        let shared = Rc::clone(shared);
        host.set(
            name,
            lua.create_function(move |_, (from, to): (f64, f64)| {
                Ok(shared.random.borrow_mut().draw(distribution, word(from), word(to)))
            })?,
        )?;
    }
    let draws = Rc::clone(shared);
    host.set(
        "rand_default",
        lua.create_function(move |_, (from, to): (f64, f64)| {
            Ok(draws.random.borrow_mut().default(word(from), word(to)))
        })?,
    )?;
    let draws = Rc::clone(shared);
    host.set("rand_unique", lua.create_function(move |_, ()| Ok(draws.random.borrow_mut().unique()))?)?;
    let draws = Rc::clone(shared);
    host.set(
        "rand_uniform_double",
        lua.create_function(move |_, ()| Ok(draws.random.borrow_mut().bits.unit()))?,
    )?;
    let draws = Rc::clone(shared);
    host.set(
        "rand_halves",
        lua.create_function(move |_, ()| {
            let bits = draws.random.borrow_mut().bits.next_u64();
            Ok(((bits >> 32) as u32, bits as u32))
        })?,
    )
}

fn install_strings(lua: &Lua, host: &Table, shared: &Rc<Shared>) -> mlua::Result<()> {
    let draws = Rc::clone(shared);
    host.set(
        "rand_string",
        lua.create_function(move |lua, pattern: mlua::String| {
            let mut text = Vec::with_capacity(pattern.as_bytes().len());
            draws.random.borrow_mut().fill(&pattern.as_bytes(), &mut text);
            lua.create_string(text)
        })?,
    )?;
    let draws = Rc::clone(shared);
    host.set(
        "rand_varstring",
        lua.create_function(move |lua, (shortest, longest): (f64, f64)| {
            let (shortest, longest) = (word(shortest), word(longest));
            if shortest > longest || longest > 1 << 24 {
                let problem =
                    format!("sysbench.rand.varstring: {shortest} to {longest} is not a range of lengths");
                return Err(mlua::Error::RuntimeError(problem));
            }
            let mut text = Vec::new();
            draws.random.borrow_mut().letters(shortest, longest, &mut text);
            lua.create_string(text)
        })?,
    )
}

fn install_counts(lua: &Lua, host: &Table, shared: &Rc<Shared>) -> mlua::Result<()> {
    let counted = Rc::clone(shared);
    host.set(
        "ignored",
        lua.create_function(move |_, sqlstate: mlua::String| {
            let mut counts = counted.counts.get();
            counts.ignore(&sqlstate.to_string_lossy());
            counted.counts.set(counts);
            Ok(())
        })?,
    )?;
    let counted = Rc::clone(shared);
    host.set(
        "count",
        lua.create_function(move |_, (counter, n): (u32, f64)| {
            let mut counts = counted.counts.get();
            let n = n.clamp(0.0, 1e6) as u64;
            match counter {
                COUNTER_OTHER => counts.others += n,
                COUNTER_READ => counts.reads += n,
                COUNTER_WRITE => counts.writes += n,
                COUNTER_ERROR => counts.ignored += n,
                COUNTER_RECONNECT => counts.reconnects += n,
                _ => {}
            }
            counted.counts.set(counts);
            Ok(())
        })?,
    )?;
    let failed = Rc::clone(shared);
    let fatal = lua.create_function(move |_, ()| {
        failed.is_fatal.set(true);
        Ok(())
    })?;
    host.set("fatal", fatal)
}

fn install_sources(lua: &Lua, host: &Table, program: &Program, shared: &Rc<Shared>) -> mlua::Result<()> {
    let sources = program.sources.clone();
    host.set("module", lua.create_function(move |_, name: String| Ok(sources.module(&name).unzip()))?)?;
    let sources = program.sources.clone();
    host.set("file", lua.create_function(move |_, path: String| Ok(sources.file(&path).unzip()))?)?;
    let shared = Rc::clone(shared);
    host.set(
        "load",
        lua.create_function(move |lua, (text, name): (mlua::String, mlua::String)| {
            shared.keeps_rows.set(shared.keeps_rows.get() || fetches(&text.to_string_lossy()));
            let chunk =
                lua.load(text.as_bytes().to_vec()).set_name(name.to_string_lossy()).set_mode(ChunkMode::Text);
            match chunk.into_function() {
                Ok(function) => function_or_nil(Some(function), None, lua),
                Err(error) => function_or_nil(None, Some(message(&error)), lua),
            }
        })?,
    )
}

fn function_or_nil(
    function: Option<Function>,
    problem: Option<String>,
    lua: &Lua,
) -> mlua::Result<MultiValue> {
    mlua::IntoLuaMulti::into_lua_multi((function, problem), lua)
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
