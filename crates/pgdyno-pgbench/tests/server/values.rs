//! Random values of clients and threads.

use std::collections::BTreeMap;

use pgbench::random::clients_per_thread;
use pgbench::run::{Client, Protocol, Startup, Step};
use pgbench::script::Scripts;

use super::Pgbench;

/// Executes a script once. Returns the SQL sent by the simple protocol, and the lines of `debug()`.
fn through(client: &mut Client, scripts: &Scripts, script: usize) -> (Vec<String>, Vec<String>) {
    let (mut sent, mut shown) = (Vec::new(), Vec::new());
    client.begin(script);
    loop {
        let step = client.step(scripts, Protocol::Simple, &mut |line| shown.push(line.to_string()));
        match step.unwrap_or_else(|abort| panic!("{abort:?}")) {
            Step::Done => {}
            Step::Sql(sql) => {
                let mut text = Vec::new();
                sql.write_simple(&client.variables, &mut text);
                sent.push(String::from_utf8(text).unwrap());
            }
            Step::End => return (sent, shown),
            other => panic!("{other:?}"),
        }
    }
}

const DRAWS: &str = "\\set a debug(random(-9000000000000000000, 200000000000000000))
\\set b debug(random_exponential(1, 1000000000, 1.5) + random_exponential(1, 7, 50))
\\set c debug(random_gaussian(1, 1000000000, 2.5) + random_gaussian(-5, 5, 2.0))
\\set d debug(random_zipfian(1, 1000000000, 1.001) * 10 + random_zipfian(1, 9, 1.3))
\\set d debug(random_zipfian(1, 100000, 2.5) + random_zipfian(1, 100000, 1000))
\\set e debug(hash(:a) + 0 * hash_fnv1a(:b, :c))
\\set e debug(hash_fnv1a(:d))
\\set f debug(permute(:b, :c) + permute(:d, 3, :a))
\\set g debug(:a / 7.0 + sqrt(:b) - exp(:d / 1e6) * ln(:c) + pow(:b, 0.37))
\\set g debug(random(1, 6) > random(1, 6) or random(1, 6) < 3)
\\set g debug(case when random(1, 2) = 1 then random(1, 10) else random_gaussian(1, 10, 3) / 3.0 end)
";

const TRANSACTIONS: usize = 300;

#[test]
fn the_same_seed_gives_the_same_values() {
    let Some(pgbench) = Pgbench::find("values") else { return };
    let path = pgbench.script("draws.sql", DRAWS);
    for seed in [0, 1, 5432, u64::MAX] {
        let seed_option = format!("--random-seed={seed}");
        let errors = pgbench.errors(&["-t", &TRANSACTIONS.to_string(), &seed_option, "-f", &path]);
        let real: Vec<_> = errors.lines().filter(|line| line.starts_with("debug(")).collect();
        let mut scripts = Scripts::default();
        scripts.add("draws", DRAWS.as_bytes(), 1).unwrap();
        let mut client = Startup::new(&mut scripts.names, &[], 1, seed, 1, 1).unwrap().client(0);
        let ours: Vec<_> = (0..TRANSACTIONS).flat_map(|_| through(&mut client, &scripts, 0).1).collect();
        assert_eq!(ours.len(), TRANSACTIONS * 11);
        assert_eq!(real, ours, "{seed}");
    }
}

#[test]
fn clients_and_threads_draw_the_same_numbers_as_pgbenchs() {
    let Some(pgbench) = Pgbench::find("clients") else { return };
    pgbench.query("create table drawn (n bigserial, client int, script text, value text)");
    let text = |name: &str| {
        format!(
            "\\set v random(1, 1000000000)\ninsert into drawn (client, script, value) values (:client_id, '{name}', ':v :default_seed :random_seed :scale :d');"
        )
    };
    let names = ["a", "b", "c"];
    let weights = [1, 5, 2];
    let options: Vec<_> = names
        .iter()
        .zip(weights)
        .map(|(name, weight)| format!("{}@{weight}", pgbench.script(name, &text(name))))
        .collect();
    // Clients of one thread alternate with their responses, so the script drawn by a client is only determined
    // if each has its own thread.
    for (clients, threads, scripts_used) in [(3, 3, 3), (7, 3, 1), (5, 1, 1)] {
        pgbench.query("truncate drawn");
        let (c, j) = (clients.to_string(), threads.to_string());
        let mut arguments = vec!["-c", &c, "-j", &j, "-t", "60", "--random-seed=77", "-Dd=+0.50", "-s", "4"];
        arguments.extend(options[..scripts_used].iter().flat_map(|option| ["-f", option]));
        assert!(pgbench.run(&arguments).status.success());
        let mut real: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in pgbench.query("select client, script || ' ' || value from drawn order by n") {
            let (client, rest) = row.split_once('|').unwrap();
            real.entry(client.to_owned()).or_default().push(rest.to_owned());
        }
        let mut scripts = Scripts::default();
        for (name, weight) in names.iter().zip(weights).take(scripts_used) {
            scripts.add(name, text(name).as_bytes(), weight).unwrap();
        }
        let definitions = [("d".to_owned(), "+0.50".to_owned())];
        let startup = Startup::new(&mut scripts.names, &definitions, 4, 77, clients, threads).unwrap();
        assert_eq!(clients_per_thread(clients, threads).len(), threads);
        for id in 0..clients {
            let mut client = startup.client(id as u32);
            let mut choose = startup.threads()[id % threads].choose;
            let ours: Vec<_> = (0..60)
                .map(|_| {
                    let script = scripts.choose(&mut choose);
                    let (sent, _) = through(&mut client, &scripts, script);
                    let (_, values) = sent[0].split_once(", '").unwrap();
                    values.trim_end_matches("');").replacen("', '", " ", 1)
                })
                .collect();
            assert_eq!(real.get(&id.to_string()), Some(&ours), "client {id} of {clients}");
        }
    }
}
