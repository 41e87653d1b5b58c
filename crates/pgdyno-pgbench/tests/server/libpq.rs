//! Features of libpq besides errors: startup parameters and target_session_attrs.

use super::Pgbench;
use super::connections::{Environment, both};
use super::wording::assert_equivalent;

#[test]
fn a_session_starts_with_settings_of_the_string_and_the_environment() {
    let Some(pgbench) = Pgbench::find("session") else { return };
    pgbench.query("create database latin template template0 encoding latin1 locale 'C'");
    let says = "do $$ begin raise notice '% % % % %', current_setting('client_encoding'), current_setting('timezone'), \
                current_setting('datestyle'), current_setting('geqo'), current_setting('application_name'); end $$;\n";
    let says = pgbench.script("says.sql", says);
    let run = ["-n", "-t", "1", "-f", &says];
    let cases: [(Environment<'_>, &[&str], i32); 17] = [
        (&[], &["postgres"], 0),
        (&[], &["latin"], 0),
        (&[("PGCLIENTENCODING", "LATIN1")], &["postgres"], 0),
        (&[("PGCLIENTENCODING", "utf-8")], &["latin"], 0),
        (&[("PGCLIENTENCODING", "")], &["latin"], 0),
        (&[("PGCLIENTENCODING", "none")], &["postgres"], 1),
        (&[("PGCLIENTENCODING", "LATIN1")], &["dbname=postgres client_encoding=latin2"], 0),
        (&[("PGTZ", "Asia/Tokyo"), ("PGDATESTYLE", "German")], &["postgres"], 0),
        (&[("PGTZ", "Default"), ("PGDATESTYLE", "default")], &["postgres"], 0),
        (&[("PGTZ", "")], &["postgres"], 1),
        (&[("PGTZ", "nowhere"), ("PGDATESTYLE", "none"), ("PGGEQO", "never")], &["postgres"], 1),
        (&[("PGGEQO", "off")], &["postgres"], 0),
        (&[("PGTZ", "Asia/Tokyo"), ("PGOPTIONS", "-c timezone=CET")], &["postgres"], 0),
        (&[("PGAPPNAME", "mine")], &["dbname=postgres fallback_application_name=x"], 0),
        (&[], &["dbname=postgres fallback_application_name=x"], 0),
        (&[], &["dbname=postgres application_name=x"], 0),
        (&[("PGTZ", "Asia/Tokyo")], &["-C", "postgres"], 0),
    ];
    for (environment, more, status) in cases {
        let (ours, real) = both(&pgbench, environment, &[&run, more].concat());
        assert_eq!(real.1, Some(status), "{environment:?} {more:?}: {real:?}");
        assert_eq!(real.0[0].starts_with("NOTICE:  "), status == 0, "{real:?}");
        assert_equivalent(&ours.0, &real.0, (environment, more));
        assert_eq!(ours.1, real.1, "{environment:?} {more:?}");
    }
}

#[test]
fn servers_that_do_not_match_target_session_attrs_are_skipped() {
    let Some(primary) = Pgbench::find("primary") else { return };
    let Some(standby) = Pgbench::find_alone("standby") else { return };
    standby.database.server.restart_as_standby();
    let one = primary.script("one.sql", "do $$ begin raise notice '%', pg_is_in_recovery(); end $$;\n");
    let place = |host: &Pgbench| {
        let server = host.database.server;
        (server.directory.display().to_string(), server.port.to_string())
    };
    let (first, second) = (place(&primary), place(&standby));
    let nobody = ("/nowhere".to_owned(), "1".to_owned());
    let servers = [
        vec![&first],
        vec![&second],
        vec![&first, &second],
        vec![&second, &first],
        vec![&nobody, &first],
        vec![&nobody],
    ];
    let read_only = ("PGOPTIONS", "-c default_transaction_read_only=on");
    for wanted in ["any", "read-write", "read-only", "primary", "standby", "prefer-standby"] {
        let mut told = Vec::new();
        for servers in &servers {
            let join = |part: fn(&(String, String)) -> &String| {
                servers.iter().map(|server| part(server).as_str()).collect::<Vec<_>>().join(",")
            };
            let (hosts, ports) = (join(|server| &server.0), join(|server| &server.1));
            let place = [("PGHOST", hosts.as_str()), ("PGPORT", &ports), ("PGTARGETSESSIONATTRS", wanted)];
            for environment in [&place[..], &[&place[..], &[read_only]].concat()] {
                let run = ["-n", "-t", "1", "-f", &one, "postgres"];
                let (ours, real) = both(&primary, environment, &run);
                assert_equivalent(&ours.0, &real.0, environment);
                assert_eq!(ours.1, real.1, "{environment:?}");
                told.push(real.1);
            }
        }
        let done = told.iter().filter(|status| **status == Some(0)).count();
        let expected = match wanted {
            "any" | "prefer-standby" => 10,
            "read-write" => 4,
            "primary" | "read-only" => 8,
            _ => 6,
        };
        assert_eq!(done, expected, "{wanted}: {told:?}");
    }
}
