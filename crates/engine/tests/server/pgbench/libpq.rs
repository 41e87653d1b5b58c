//! What libpq does for pgbench, besides telling of failures: the session's beginning, and which server it is with.

use super::Pgbench;
use super::connections::{Environment, both};

#[test]
fn a_session_begins_with_what_the_string_and_the_environment_say() {
    let Some(pgbench) = Pgbench::find("pgbench-session") else { return };
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
        assert_eq!(ours, real, "{environment:?} {more:?}");
    }
}
