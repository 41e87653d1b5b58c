//! A client of pgbench's language allocates nothing once its buffers have grown, neither alone nor with a server.

#![allow(unsafe_code)] // An allocator cannot be written without; this one hands all on and counts.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, process, thread};

use pgdyno_engine::drive::{Ending, Seat, User, Workload};
use pgdyno_engine::io::{Clock, Connection, Error, Reactor};
use pgdyno_engine::pgbench::run::{Client, Protocol, Startup, Step};
use pgdyno_engine::pgbench::script::Scripts;
use pgdyno_engine::pgbench::script::builtin::BUILTINS;
use pgdyno_engine::pgbench::workload::{Choice, Pgbench};
use pgdyno_engine::wire::conninfo;
use serde_json::json;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// All threads are counted, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: every call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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

/// Carries out a script of this client and writes all it sends into `out`.
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
    let _alone = ALONE.lock().unwrap();
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
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    run(10_000);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
}

/// A server that agrees to everything and allocates nothing: each read is one request, which one packet answers.
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
    let _alone = ALONE.lock().unwrap();
    let directory = env::temp_dir().join(format!("pgdyno-allocations-{}", process::id()));
    fs::create_dir_all(&directory).unwrap();
    let listener = UnixListener::bind(directory.join(".s.PGSQL.5432")).unwrap();
    let server = thread::spawn(move || serve(listener.accept().unwrap().0));
    let stores = "select 42 as v \\gset\nupdate t set v = :v;";
    let scripts =
        json!([{"builtin": "select-only"}, {"builtin": "tpcb-like"}, {"name": "stores", "text": stores}]);
    let workload = json!({"kind": "pgbench", "protocol": "prepared", "scale": 10, "scripts": scripts});
    let workload = Pgbench::read(&workload, 1, 1, 1).unwrap();
    let conninfo = format!("host={} port=5432 user=u dbname=d sslmode=disable", directory.display());
    let conninfo = conninfo::load(&conninfo).unwrap();
    let mut user = workload.user(Seat { client: 0, clients: 1, thread: 0, seed: 1 });
    let reactor = Reactor::new(Clock::monotonic()).unwrap();
    let run = async {
        let mut connection = Connection::connect(&reactor, &conninfo).await?;
        user.prepare(&mut connection).await?;
        let mut choice = Choice::default();
        let mut before = 0;
        for transaction in 0..3000 {
            if transaction == 1000 {
                before = ALLOCATIONS.load(Ordering::Relaxed);
            }
            user.draw(&mut choice);
            assert_eq!(user.attempt(&mut connection).await?, Ending::Committed);
        }
        Ok::<_, Error>(ALLOCATIONS.load(Ordering::Relaxed) - before)
    };
    let allocations = reactor.block_on(run).unwrap().unwrap();
    fs::remove_dir_all(&directory).unwrap();
    server.join().unwrap();
    assert_eq!(allocations, 0);
}
