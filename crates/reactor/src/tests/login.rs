//! Login with each authentication method, with and without TLS.

use crate::{Clock, Connection, Error, Reactor};
use pgwire::conninfo::Conninfo;

use test_server::Database;

const ROLES: &str = "
set password_encryption = 'md5';
create role u_md5 login password 'sécret';
set password_encryption = 'scram-sha-256';
create role u_trust login;
create role u_clear login password 'sécret';
create role u_scram login password 'sécret';
create role u_only_tls login password 'sécret';
create role u_no_tls login password 'sécret';
";

/// Connects, queries whether the session is encrypted, and transfers 300 kB both ways.
fn log_in(conninfo: &str) -> Result<bool, String> {
    let conninfo =
        Conninfo::parse("test", &[], conninfo, &|_| None, Some("postgres")).map_err(|e| e.to_string())?;
    let reactor = Reactor::new(Clock::monotonic()).unwrap();
    let session = async {
        let mut connection = Connection::connect(&reactor, &conninfo).await?;
        let rows = connection.simple("select ssl from pg_stat_ssl where pid = pg_backend_pid()").await?;
        let long = "pgdyno".repeat(50_000);
        let echo = connection.simple(&format!("select '{long}'")).await?;
        assert_eq!(echo, [[Some(long)]]);
        Ok::<_, Error>(rows[0][0].as_deref() == Some("t"))
    };
    reactor.block_on(session).unwrap().map_err(|e| e.to_string())
}

#[test]
fn every_login_method_works_and_every_rejection_has_a_message() {
    let Some(database) = Database::create("login") else { return };
    let (unix, server) = (database.by_socket(), database.server);
    let tcp = format!("host=localhost hostaddr=127.0.0.1 port={} dbname={}", server.port, database.name);
    let named = format!("sslrootcert={}", server.certificate().display());
    let reactor = Reactor::new(Clock::monotonic()).unwrap();
    let superuser = Conninfo::parse("test", &[], &unix, &|_| None, Some("postgres")).unwrap();
    let query = |sql: &str| {
        let session = async { Connection::connect(&reactor, &superuser).await?.simple(sql).await };
        reactor.block_on(session).unwrap().unwrap()
    };
    query(ROLES);

    let (plain, tls) = (Ok(false), Ok(true));
    let table: [(&String, String, Result<bool, &str>); 35] = [
        (&unix, "sslmode=verify-full".into(), plain),
        (&tcp, "user=u_trust".into(), tls),
        (&tcp, "user=u_trust sslmode=disable".into(), plain),
        (&tcp, "user=u_trust sslmode=allow".into(), plain),
        (&tcp, "user=u_trust sslmode=require".into(), tls),
        (&tcp, format!("user=u_trust sslmode=verify-ca {named}"), tls),
        (&tcp, format!("user=u_trust sslmode=verify-full {named}"), tls),
        (&tcp, format!("user=u_trust sslmode=verify-full {named} host=elsewhere"), Err("not valid for name")),
        (&tcp, "user=u_trust sslrootcert=system".into(), Err("certificate was refused")),
        (&tcp, "user=u_clear password=sécret".into(), tls),
        (&tcp, "user=u_clear password=sécret sslmode=disable".into(), plain),
        (&tcp, "user=u_clear password=wrong".into(), Err("wrong password")),
        (&tcp, "user=u_clear".into(), Err("requires a password for user \"u_clear\"")),
        (&tcp, "user=u_md5 password=sécret".into(), tls),
        (&tcp, "user=u_md5 password=sécret sslmode=disable".into(), plain),
        (&tcp, "user=u_md5 password=wrong".into(), Err("wrong password")),
        (
            &tcp,
            "user=u_md5 password=sécret channel_binding=require".into(),
            Err("channel_binding=require, but"),
        ),
        (&tcp, "user=u_scram password=sécret".into(), tls),
        (&tcp, "user=u_scram password=sécret sslmode=disable".into(), plain),
        (&tcp, "user=u_scram password=wrong".into(), Err("wrong password")),
        (&tcp, "user=u_scram password=sécret channel_binding=require".into(), tls),
        (&tcp, "user=u_scram password=sécret channel_binding=disable".into(), tls),
        (&tcp, "user=u_scram password=sécret channel_binding=require sslmode=disable".into(), Err("use TLS")),
        (&tcp, "user=u_trust channel_binding=require".into(), Err("no proof bound to its certificate")),
        (&tcp, "user=u_only_tls password=sécret sslmode=allow".into(), tls),
        (&tcp, "user=u_only_tls password=sécret sslmode=disable".into(), Err("no encryption")),
        (&tcp, "user=u_no_tls password=sécret sslmode=prefer".into(), plain),
        (&tcp, "user=u_no_tls password=sécret sslmode=require".into(), Err("SQLSTATE 28000")),
        (&tcp, "user=u_nobody".into(), Err("refused the connection: no pg_hba.conf entry")),
        (&unix, "user=u_nobody".into(), Err("role \"u_nobody\" does not exist")),
        (&unix, "dbname=nowhere".into(), Err("database \"nowhere\" does not exist")),
        (&unix, "options='-c no_such=1'".into(), Err("unrecognized configuration parameter")),
        (&unix, "target_session_attrs=read-write".into(), plain),
        (
            &unix,
            "target_session_attrs=read-write options='-c default_transaction_read_only=on'".into(),
            Err("read-only"),
        ),
        (&unix, "target_session_attrs=primary options='-c default_transaction_read_only=on'".into(), plain),
    ];
    let mut wrong = misfits(&table);
    let loaded = query("select pg_conf_load_time()");
    server.reload_with_bare_certificate();
    while query("select pg_conf_load_time()") == loaded {}
    let bare = "user=u_scram password=sécret channel_binding=require sslmode=require".to_owned();
    wrong.extend(misfits(&[(&tcp, bare, tls)]));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The rows of a table (base and rest of a connection string, expected result) that fail.
fn misfits(table: &[(&String, String, Result<bool, &str>)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (base, extra, expected) in table {
        let found = log_in(&format!("{base} {extra}"));
        let fits = match (&found, expected) {
            (Ok(found), Ok(expected)) => found == expected,
            (Err(message), Err(part)) => message.contains(part) && !message.contains("sécret"),
            _ => false,
        };
        if !fits {
            wrong.push(format!("{extra}: {found:?}, not {expected:?}"));
        }
    }
    wrong
}
