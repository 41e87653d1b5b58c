//! A client of pgbench's language does not allocate after its buffers have grown, neither alone nor with a
//! server.

#![allow(unsafe_code)] // An allocator needs unsafe code; this one forwards all calls and counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::{env, fs, process, thread};

use driver::{ClientId, Ending, User, Workload};
use pgbench::run::{Client, Protocol, Startup, Step};
use pgbench::script::Scripts;
use pgbench::script::builtin::BUILTINS;
use pgbench::{Pgbench, ScriptChoice};
use pgdyno_pgbench::statistics::{Ended, Outcome};
use pgdyno_pgbench::transaction_log::{Columns, LogOptions, TransactionLog};
use pgwire::conninfo;
use reactor::{Clock, Connection, Error, Io, Nanos, Reactor};
use serde_json::json;

struct Counting;

thread_local! {
    /// Allocations of this thread: the test harness allocates in other threads.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

// SAFETY: every call is forwarded to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const EVERYTHING: &str = "\
\\set a random(1, 100000 * :scale) + random_zipfian(1, 100, 1.2)
\\set b case when :a > 50000 then random_gaussian(1, 100, 2.5) / 3.0 else null end
\\set c :a is null or not (:t and hash(:a) < permute(:a, 1000)) or greatest(:a, 1, 2, 3) = 1
\\if :c
\\sleep :a us
\\elif :b is null
update t set a = :a, b = :b, c = ':t' where d = :i;
\\else
\\shell echo :a :b :i
\\endif
insert into t values (:a, :b, :c, :t, :i, :scale);
";

/// Executes a script of this client and appends everything it sends to `out`.
fn transaction(client: &mut Client, scripts: &Scripts, script: usize, out: &mut Vec<u8>) {
    client.begin(script);
    out.clear();
    loop {
        match client.step(scripts, Protocol::Simple, &mut |_| {}).unwrap() {
            Step::End => return,
            Step::Sql(sql) => sql.write_simple(&client.variables, out),
            Step::Shell(shell) => client.shell_command(scripts, shell, out).unwrap(),
            _ => {}
        }
    }
}

#[test]
fn transactions_allocate_nothing() {
    let mut scripts = Scripts::default();
    scripts.add("everything", EVERYTHING.as_bytes(), 1).unwrap();
    for builtin in BUILTINS {
        scripts.add(builtin.name, builtin.text.as_bytes(), 1).unwrap();
    }
    let definitions = [("t".to_owned(), "yes".to_owned()), ("i".to_owned(), "+3".to_owned())];
    let startup = Startup::new(&mut scripts.names, &definitions, 10, 1, 1, 1).unwrap();
    let (mut client, mut choose) = (startup.client(0), startup.threads()[0].choose);
    let mut out = Vec::with_capacity(4096);
    let mut run = |transactions: u32| {
        for _ in 0..transactions {
            let script = scripts.choose(&mut choose);
            transaction(&mut client, &scripts, script, &mut out);
        }
    };
    run(1000);
    let before = allocations();
    run(10_000);
    assert_eq!(allocations() - before, 0);
}

/// A server that accepts everything and does not allocate: each read is one request, answered by one packet.
fn serve(mut client: UnixStream) {
    const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0S\0\0\0\x16server_version\x0015\0Z\0\0\0\x05I";
    const PREPARED: &[u8] = b"1\0\0\0\x04Z\0\0\0\x05I";
    const ROW: &[u8] = b"2\0\0\0\x04T\0\0\0\x1a\0\x01v\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0\
                         D\0\0\0\x0c\0\x01\0\0\0\x0242C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I";
    let mut request = [0; 4096];
    while client.read(&mut request).is_ok_and(|count| count > 0) {
        let answer = match request[0] {
            0 => WELCOME,
            b'P' => PREPARED,
            _ => ROW,
        };
        if client.write_all(answer).is_err() {
            return;
        }
    }
}

#[test]
fn transactions_on_a_connection_allocate_nothing() {
    // If the kernel does not permit io_uring, `Auto` is epoll again.
    for io in [Io::Epoll, Io::Auto] {
        allocate_nothing_on_a_connection(io);
    }
}

fn allocate_nothing_on_a_connection(io: Io) {
    let directory = env::temp_dir().join(format!("pgdyno-allocations-{}-{io:?}", process::id()));
    fs::create_dir_all(&directory).unwrap();
    let listener = UnixListener::bind(directory.join(".s.PGSQL.5432")).unwrap();
    let server = thread::spawn(move || serve(listener.accept().unwrap().0));
    let stores = "select 42 as v \\gset\nupdate t set v = :v;";
    let scripts =
        json!([{"builtin": "select-only"}, {"builtin": "tpcb-like"}, {"name": "stores", "text": stores}]);
    let workload = json!({"protocol": "prepared", "scale": 10, "scripts": scripts});
    let workload = Pgbench::read(&workload, 1, 1, 1).unwrap();
    let conninfo = format!("host={} port=5432 user=u dbname=d sslmode=disable", directory.display());
    let conninfo = conninfo::load("test", &[], &conninfo).unwrap();
    let mut user = workload.user(ClientId { client: 0, clients: 1, thread: 0, seed: 1 });
    let reactor = Reactor::with_io(Clock::monotonic(), io).unwrap();
    let run = async {
        let mut connection = Connection::connect(&reactor, &conninfo).await?;
        user.prepare(&mut connection).await?;
        let mut choice = ScriptChoice::default();
        let mut before = 0;
        for transaction in 0..3000 {
            if transaction == 1000 {
                before = allocations();
            }
            user.draw(&mut choice);
            assert_eq!(user.attempt(&mut connection).await?, Ending::Committed);
        }
        Ok::<_, Error>(allocations() - before)
    };
    let allocations = reactor.block_on(run).unwrap().unwrap();
    fs::remove_dir_all(&directory).unwrap();
    server.join().unwrap();
    assert_eq!(allocations, 0);
}

#[test]
fn logging_a_transaction_allocates_nothing() {
    let columns = Columns { has_lag: true, has_retries: true, has_failures: true, ..Columns::default() };
    let zero = Nanos(1_700_000_000_000_000_000);
    let mut log = TransactionLog::new(std::io::sink(), columns, zero, &LogOptions::default(), Nanos(0));
    let outcomes = [Outcome::Done, Outcome::Skipped, Outcome::Serialization];
    let before = allocations();
    for (number, outcome) in (1..=10_000).zip(outcomes.into_iter().cycle()) {
        let (latency, at) = (Nanos(number * 1_000_000), Nanos(number * 7_000_000));
        let ended = Ended { script: 1, outcome, tries: 1, latency, lag: latency, is_late: false, at };
        log.add(3, number, &ended);
    }
    assert_eq!(allocations() - before, 0);
    log.close(Nanos(0)).unwrap();
}
