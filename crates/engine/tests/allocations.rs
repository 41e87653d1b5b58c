//! A client of pgbench's language allocates nothing once its buffers have grown.

#![allow(unsafe_code)] // An allocator cannot be written without; this one hands all on and counts.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use pgdyno_engine::pgbench::run::{Client, Protocol, Startup, Step};
use pgdyno_engine::pgbench::script::Scripts;
use pgdyno_engine::pgbench::script::builtin::BUILTINS;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

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
