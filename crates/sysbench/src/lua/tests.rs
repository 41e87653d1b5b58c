use std::sync::Arc;
use std::time::Duration;

use pgwire::conninfo::Conninfo;
use reactor::{Clock, Reactor};

use super::*;
use crate::links::Links;
use crate::program::Limits;
use crate::{Connections, EventEnd, Place, ScriptClient, Sources, stock};
use OptionType::{Bool, Double, List, Size, Text};

fn silent(_: &str) {}

fn program(text: &str) -> Program {
    Program::new("test.lua", text, Sources::default(), 2, 42, silent)
}

/// Runs one event of a client that has no server.
async fn event_of(client: &mut ScriptClient, reactor: &Reactor) -> Result<EventEnd, ScriptError> {
    let conninfo = Conninfo::parse("test", &[], "user=nobody", &|_| None, None).expect("sound");
    let place = Place { reactor, conninfo: &conninfo, on_refusal: |_| (), canceller: None, is_used: None };
    client.event(reactor, &mut Connections::new(place, None)).await
}

/// Runs one event of a script in client 0.
fn event(program: Program) -> Result<EventEnd, ScriptError> {
    let reactor = Reactor::new(Clock::monotonic()).expect("a loop");
    let mut client = ScriptClient::new(Arc::new(program), 0)?;
    reactor.block_on(event_of(&mut client, &reactor)).expect("an end")
}

fn ends(text: &str) -> EventEnd {
    event(program(text)).expect(text)
}

fn fails(program: Program) -> String {
    event(program).expect_err("a failure").to_string()
}

#[test]
fn an_event_ends_or_stops_or_restarts() {
    assert_eq!(ends("function event() end"), EventEnd::Done);
    assert_eq!(ends("function event() return false end"), EventEnd::Done);
    assert_eq!(ends("function event() return 1 end"), EventEnd::Stop);
    let restarts = "function event() error({errcode = sysbench.error.RESTART_EVENT}) end";
    assert_eq!(ends(restarts), EventEnd::Restart);
}

#[test]
fn an_error_has_its_place_in_the_script() {
    assert_eq!(fails(program("\nfunction event() error('boom') end")), "test.lua:2: boom");
    let message = fails(program("function event() local x; x.y = 1 end"));
    assert_eq!(message, "test.lua:1: attempt to index local 'x' (a nil value)");
    let message = fails(program("x = = 1"));
    assert_eq!(message, "test.lua:1: unexpected symbol near '='");
}

#[test]
fn each_client_draws_the_numbers_of_its_thread_of_sysbench() {
    let text = "function event()
        assert(tostring(sysbench.rand.uniform_uint64()) == '6678695823595818893ULL')
        assert(sysbench.tid == 0 and thread_id == 0)
        assert(#sysbench.rand.varstring(3, 8) >= 3)
        assert(sysbench.rand.string('abc') == 'abc')
        assert(sb_rand_uniform(5, 5) == 5 and sysbench.rand.zipfian(7, 7) == 7)
    end";
    assert_eq!(ends(text), EventEnd::Done);
}

#[test]
fn an_endless_loop_is_stopped_even_inside_pcall_and_coroutines() {
    let loops = [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "coroutine.wrap(function() while true do end end)()",
        "local function f() return f() end f()",
    ];
    for text in loops {
        let mut program = program(&format!("function event() {text} end"));
        program.limits = Limits { compute: Duration::from_millis(20), ..Limits::default() };
        let message = fails(program);
        assert!(message.contains("computed for more than 0.02 s"), "{text}: {message}");
    }
    let mut endless = program("while true do end");
    endless.limits.compute = Duration::from_millis(20);
    assert!(ScriptClient::new(Arc::new(endless), 0).is_err(), "while it is loaded");
}

#[test]
fn each_call_of_a_hook_has_the_whole_limit() {
    let mut program = program("sysbench.hooks.report_intermediate = function() for _ = 1, 50000 do end end");
    program.limits.compute = Duration::from_millis(200);
    let state = ScriptState::new(&program, 0, program.random(0).shared()).expect("sound");
    for _ in 0..2 {
        let hook = state.hook("report_intermediate").expect("defined");
        hook.call::<()>(()).expect("within its limit");
        // The limit is one of the machine's clock.
        std::thread::sleep(Duration::from_millis(250));
    }
}

#[test]
fn memory_has_a_limit() {
    let texts = [
        "local t = {} for i = 1, 1e9 do t[i] = {} end",
        "local s = 'x' while true do s = s .. s end",
        "string.rep('x', 1e9)",
    ];
    for text in texts {
        let mut program = program(&format!("function event() {text} end"));
        program.limits.memory_bytes = 4 << 20;
        let message = fails(program);
        assert!(message.contains("not enough memory"), "{text}: {message}");
    }
}

#[test]
fn files_and_processes_need_allow_os() {
    let refused = [
        "io.open('/etc/passwd')",
        "io.popen('true')",
        "io.lines('/etc/passwd')",
        "os.execute('true')",
        "os.execute()",
        "os.execute('sleep')",
        "os.execute('sleep -1')",
        "os.execute('sleep 1s')",
        "os.execute('sleep 0x1')",
        "os.execute('sleep 1 2')",
        "os.execute('sleep 1; true')",
        "os.execute('sleep 1\\ntrue')",
        "os.execute('sleep $(true)')",
        "os.execute('sleep 1 &')",
        "os.execute('/bin/sleep 1')",
        "os.remove('x')",
        "os.exit(1)",
        "dofile('/etc/passwd')",
        "require('/etc/passwd')",
        "ffi.C.system('true')",
        "require('ffi').load('c')",
        "require('io').open('x')",
        "loadstring('\\27LJ')()",
        "load(string.dump(function() end))()",
        "debug.getregistry()",
        "package.loadlib('x', 'y')",
        "jit.on()",
    ];
    for text in refused {
        assert!(event(program(&format!("function event() {text} end"))).is_err(), "{text}");
    }
    let harmless = "function event() assert(os.time() > 0 and os.clock() >= 0 and os.date() and os.getenv('PATH')) io.write('') end";
    assert_eq!(ends(harmless), EventEnd::Done);
    let mut allowed =
        program("function event() assert(os.execute('true') == 0) assert(io.open('/dev/null')):close() end");
    allowed.limits.allow_os = true;
    assert_eq!(event(allowed).expect("allowed"), EventEnd::Done);
}

#[test]
fn clients_sleep_at_the_same_time() {
    // Without --allow-os, since no command runs.
    let text = "function event()
        assert(os.execute('sleep 30') == 0 and os.execute(' sleep 1.5 ') == 0)
        assert(ffi.C.sleep(1) == 0 and ffi.C.usleep(1000000) == 0 and ffi.C.usleep(0.5) == 0)
    end";
    let reactor = Reactor::new(Clock::fake()).expect("a loop");
    let program = Arc::new(program(text));
    let mut clients = [0, 1].map(|tid| ScriptClient::new(Arc::clone(&program), tid).expect("sound"));
    let [first, second] = &mut clients;
    let other = async {
        event_of(second, &reactor).await.expect("done");
    };
    let began = reactor.now();
    let ended = reactor.run_concurrently(event_of(first, &reactor), vec![Box::pin(other)]);
    ended.expect("an end").expect("done");
    assert_eq!((reactor.now() - began).0, 33_500_000_500);
}

#[test]
fn a_script_cannot_sleep_while_it_is_loaded() {
    let sleeps = ScriptClient::new(Arc::new(program("os.execute('sleep 1') function event() end")), 0);
    let message = sleeps.err().expect("refused").to_string();
    assert!(message.contains("in a function of the script"), "{message}");
}

#[test]
fn a_command_of_one_client_does_not_stop_the_others() {
    let path = std::env::temp_dir().join(format!("pgdyno-fifo-{}", std::process::id()));
    // Reading a FIFO waits for a writer, which is the other client's command.
    let text = format!(
        "assert(os.execute('true') == 0 and os.execute('exit 3') == 768 and os.execute() ~= 0)
        function event()
            local fifo, found = '{}', nil
            if sysbench.tid == 0 then
                found = os.execute('timeout 20 cat ' .. fifo .. ' >/dev/null')
            elseif sysbench.tid == 1 then
                found = os.execute('echo >' .. fifo .. '; exit 7') - 7 * 256
            else
                local output = io.popen('timeout 20 cat ' .. fifo .. '; echo end')
                found = output:read('*l') == 'written' and output:read() == 'end' and output:close() and 0
            end
            assert(found == 0, tostring(found))
        end",
        path.display()
    );
    let mut program = program(&text);
    program.limits.allow_os = true;
    let (program, reactor) = (Arc::new(program), Reactor::new(Clock::monotonic()).expect("a loop"));
    let write = format!("echo written >{}", path.display());
    for (reader, writer) in [(0, Some(1)), (2, None)] {
        assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("a program").success());
        let mut client = ScriptClient::new(Arc::clone(&program), reader).expect("sound");
        let mut other = writer.map(|tid| ScriptClient::new(Arc::clone(&program), tid).expect("sound"));
        let beside = async {
            match &mut other {
                Some(other) => drop(event_of(other, &reactor).await.expect("done")),
                None => drop(reactor::shell(&reactor, write.as_bytes(), 0, reactor::Shared::default()).await),
            }
        };
        let ended = reactor.run_concurrently(event_of(&mut client, &reactor), vec![Box::pin(beside)]);
        std::fs::remove_file(&path).expect("a FIFO");
        ended.expect("an end").expect("done");
    }
}

/// Ways to run `BODY` that might keep an error from ending the event.
const SHELTERS: [&str; 6] = [
    "while true do pcall(function() BODY end) end",
    "xpcall(function() BODY end, function() BODY end)",
    "local co = coroutine.wrap(function() BODY end) co()",
    "local t = setmetatable({}, {__index = function() BODY end}) local _ = t.x",
    "loadstring([[BODY]])()",
    "table.sort({3, 1, 2}, function() BODY return true end)",
];

/// Bodies that neither end nor ask for anything.
const ENDLESS: [&str; 4] = [
    "while true do end",
    "repeat local s = tostring(1) until false",
    "local function f() return f() end f()",
    "for i = 1, math.huge do end",
];

#[test]
fn an_endless_loop_ends_whatever_shelters_it() {
    for shelter in SHELTERS {
        for body in ENDLESS {
            let text = format!("function event() {} end", shelter.replace("BODY", body));
            let mut program = program(&text);
            program.limits.compute = Duration::from_millis(5);
            let message = fails(program);
            let known = ["computed for more than 0.005 s", "error in error handling", "stack overflow"];
            assert!(known.iter().any(|part| message.contains(part)), "{text}: {message}");
        }
    }
}

#[test]
fn a_script_that_breaks_its_own_globals_harms_itself_only() {
    let texts = [
        "sysbench = nil collectgarbage() error('x')",
        "for k in pairs(_G) do _G[k] = nil end string.rep('x', 1)",
        "setfenv(0, {}) setfenv(1, {}) missing()",
        "string.format = nil table.concat = nil math.floor = nil pairs = nil unpack = nil error('x')",
        "getmetatable('').__index = nil local _ = ('x'):rep(3)",
        "coroutine.resume = nil coroutine.yield(1)",
        "error(nil)",
        "error(setmetatable({}, {__tostring = function() error('again') end}))",
        "error({errcode = 99})",
        "sysbench.sql.driver = 5 sysbench.sql.driver()",
    ];
    for text in texts {
        assert!(event(program(&format!("function event() {text} end"))).is_err(), "{text}");
        assert_eq!(ends("function event() end"), EventEnd::Done);
    }
}

#[test]
fn counters_that_a_script_increments_are_those_of_the_report() {
    let text = "function event()
        for name, n in pairs({SB_CNT_OTHER = 1, SB_CNT_READ = 2, SB_CNT_WRITE = 3, SB_CNT_ERROR = 4, SB_CNT_RECONNECT = 5}) do
            for _ = 1, n do ffi.C.sb_counter_inc(sysbench.tid, ffi.C[name]) end
        end
    end";
    let reactor = Reactor::new(Clock::monotonic()).expect("a loop");
    let mut client = ScriptClient::new(Arc::new(program(text)), 0).expect("sound");
    reactor.block_on(event_of(&mut client, &reactor)).expect("an end").expect("done");
    assert_eq!(client.counts().values(), [2, 3, 1, 0, 0, 0, 4, 5]);
}

#[test]
fn options_of_a_script_that_defines_none_are_text() {
    let mut program = program("function event() assert(sysbench.opt.a_b == '7' and a_b == '7') end");
    program.set_options(&[], &[("a-b".into(), "7".into())]).expect("any");
    assert_eq!(event(program).expect("sound"), EventEnd::Done);
}

#[test]
fn coroutines_of_the_script_hand_requests_on() {
    let text = "function event()
        local co = coroutine.wrap(function(a) ffi.C.usleep(1) local b = coroutine.yield(a + 1) ffi.C.usleep(1) return b * 2 end)
        assert(co(1) == 2)
        assert(co(21) == 42)
        assert(select(2, pcall(coroutine.yield, 1)):find('outside a coroutine'))
        local ok, problem = pcall(coroutine.wrap(function() error('inner', 0) end))
        assert(not ok and problem == 'inner', problem)
    end";
    assert_eq!(ends(text), EventEnd::Done);
}

#[test]
fn a_request_may_be_made_inside_pcall_and_iterators() {
    let text = "function event()
        assert(pcall(ffi.C.usleep, 1))
        for _ in function(_, i) ffi.C.usleep(1) return not i and 1 or nil end do end
        local t = setmetatable({}, {__index = function() ffi.C.usleep(1) return 7 end})
        assert(t.x == 7)
    end";
    assert_eq!(ends(text), EventEnd::Done);
}

#[test]
fn without_a_server_a_script_cannot_connect() {
    let message = fails(program(
        "function event() sysbench.opt.db_driver = 'pgsql' sysbench.sql.driver():connect() end",
    ));
    assert_eq!(message, "test.lua:1: connection creation failed");
}

/// A caller that makes one connection, whether it has been made.
struct OneConnection(bool);

impl Links for OneConnection {
    async fn connect(&mut self) -> Result<u32, reactor::Error> {
        if std::mem::replace(&mut self.0, true) {
            return Err(reactor::Error::Workload("there is one connection".to_owned()));
        }
        Ok(0)
    }

    fn link(&mut self, _: u32) -> Option<&mut reactor::Connection> {
        None
    }
}

#[test]
fn a_script_is_told_why_the_caller_refuses_a_connection() {
    for again in ["driver:connect()", "connection:reconnect()"] {
        let text = format!(
            "function event()
                local driver = sysbench.sql.driver('pgsql')
                local connection = driver:connect()
                {again}
            end"
        );
        let reactor = Reactor::new(Clock::monotonic()).expect("a loop");
        let mut client = ScriptClient::new(Arc::new(program(&text)), 0).expect("sound");
        let ended = reactor.block_on(client.event(&reactor, &mut OneConnection(false))).expect("an end");
        let message = ended.expect_err("refused").to_string();
        assert_eq!(message, "test.lua:4: there is one connection");
    }
}

#[test]
fn definitions_have_the_types_of_their_defaults() {
    let text = "sysbench.cmdline.options = {
        n = {'A number', 5}, d = {'A double', 0.5}, s = {'A string', 'abc'}, b = {'A flag', true}, l = {'A list', {'a', 'b'}},
        none = {'No default'}, size = {'Size', '1M', sysbench.cmdline.ARG_SIZE}, ['with-dash'] = {'x', 3}}
        function event() end";
    let mut program = program(text);
    let mut definitions = program.definitions().expect("sound");
    definitions.sort_by(|a, b| a.name.cmp(&b.name));
    let types: Vec<_> = definitions.iter().map(|one| (one.name.as_str(), one.option_type)).collect();
    let expected = [
        ("b", Bool),
        ("d", Double),
        ("l", List),
        ("n", Double),
        ("none", Text),
        ("s", Text),
        ("size", Size),
        ("with-dash", Double),
    ];
    assert_eq!(types, expected);
    program.set_options(&definitions, &[("with_dash".into(), "9".into())]).expect("known");
    program.text += " assert(sysbench.opt.with_dash == 9 and sysbench.opt.size == 1048576 and sysbench.opt.l[2] == 'b' and sysbench.opt.none == '')";
    assert!(ScriptState::new(&program, 0, program.random(0).shared()).is_ok());
    let unknown = program.set_options(&definitions, &[("bogus".into(), "1".into())]);
    assert!(unknown.expect_err("unknown").to_string().starts_with("invalid option: --bogus=1"));
}

#[test]
fn all_stock_scripts_load_with_their_options() {
    for name in crate::stock::names() {
        let mut program =
            Program::new(name, stock::text(name).expect("stock"), Sources::default(), 1, 1, silent);
        let definitions = program.definitions().expect(name);
        program.set_options(&definitions, &[]).expect("defaults");
        let state = ScriptState::new(&program, 0, program.random(0).shared());
        let state = state.expect(name);
        assert!(name == "oltp_common" || state.find("event").is_some(), "{name}");
        assert!(state.command("prepare").is_some() && state.command("cleanup").is_some(), "{name}");
    }
}

thread_local! {
    static PRINTED: RefCell<String> = RefCell::default();
}

fn keep(text: &str) {
    PRINTED.with_borrow_mut(|printed| printed.push_str(text));
}

#[test]
fn reports_as_json_are_one_list() {
    let text = "local stat = {time_total = 1, time_interval = 2, threads_running = 3, events = 10, reads = 4, writes = 2,
            other = 2, errors = 0, reconnects = 0, latency_pct = 0.001}
        function event() end
        sysbench.report_json(stat)
        sysbench.report_json(stat)";
    let program = Program::new("test.lua", text, Sources::default(), 1, 1, keep);
    let state = ScriptState::new(&program, 0, program.random(0).shared()).expect("sound");
    state.end_reports();
    let reports: serde_json::Value = serde_json::from_str(&PRINTED.take()).expect("JSON");
    assert_eq!(reports.as_array().map(Vec::len), Some(2));
    assert_eq!((&reports[0]["tps"], &reports[1]["qps"]["total"]), (&5.0.into(), &4.0.into()));
}
