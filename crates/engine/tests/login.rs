//! Logging in to a real PostgreSQL by every method that we have, with and without TLS.
//!
//! Runs when `PGDYNO_TEST_PG_BIN` names a directory of PostgreSQL's binaries (10 or newer); says that it was
//! skipped when not. As root the server runs as the user `postgres`.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, process};

use pgdyno_engine::io::{Clock, Connection, Error, Reactor};
use pgdyno_engine::wire::conninfo::Conninfo;

const HBA: &str = "\
local   all all trust
host    all u_trust 127.0.0.1/32 trust
host    all u_clear 127.0.0.1/32 password
host    all u_md5 127.0.0.1/32 md5
host    all u_scram 127.0.0.1/32 scram-sha-256
hostssl all u_only_tls 127.0.0.1/32 scram-sha-256
hostnossl all u_no_tls 127.0.0.1/32 scram-sha-256
";

const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
ssl = on
fsync = off
shared_buffers = 16MB
";

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

/// A server in a directory of its own, stopped and removed at the end.
struct Server {
    bin: PathBuf,
    directory: PathBuf,
    port: u16,
}

impl Server {
    fn start(bin: PathBuf) -> Self {
        let directory = env::temp_dir().join(format!("pgdyno-login-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Self { bin, directory, port };
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(&server.directory));
        }
        let data = server.data();
        server.command(
            "initdb",
            &["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N", "-D", &data],
        );
        let subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-new", "-x509", "-nodes", "-days", "2", "-batch", "-newkey", "rsa:2048"]);
        openssl
            .args(subject)
            .arg("-keyout")
            .arg(server.file("server.key"))
            .arg("-out")
            .arg(server.certificate());
        run(&mut openssl);
        if is_root() {
            run(Command::new("chown")
                .arg("postgres")
                .arg(server.file("server.key"))
                .arg(server.certificate()));
        }
        fs::write(server.file("pg_hba.conf"), HBA).unwrap();
        let settings = fs::read_to_string(server.file("postgresql.conf")).unwrap();
        let sockets = format!("unix_socket_directories = '{}'\n", server.directory.display());
        fs::write(server.file("postgresql.conf"), settings + SETTINGS + &sockets).unwrap();
        let (log, options) = (format!("{data}/log"), format!("-p {port}"));
        server.command("pg_ctl", &["-D", &data, "-l", &log, "-o", &options, "-w", "start"]);
        server
    }

    fn data(&self) -> String {
        self.directory.join("data").display().to_string()
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new(&self.data()).join(name)
    }

    fn certificate(&self) -> PathBuf {
        self.file("server.crt")
    }

    /// Gives the server a certificate by the recipe of PostgreSQL's manual: without extensions, so of version 1 with
    /// openssl 3.0.
    fn restart_with_bare_certificate(&self) {
        let (key, request) = (self.file("server.key"), self.file("server.csr"));
        let mut openssl = Command::new("openssl");
        run(openssl
            .args(["req", "-new", "-subj", "/CN=localhost", "-key"])
            .arg(&key)
            .arg("-out")
            .arg(&request));
        let mut openssl = Command::new("openssl");
        openssl.args(["x509", "-req", "-days", "2", "-in"]).arg(&request).arg("-signkey").arg(&key);
        run(openssl.arg("-out").arg(self.certificate()));
        let (data, options) = (self.data(), format!("-p {}", self.port));
        self.command("pg_ctl", &["-D", &data, "-l", &format!("{data}/log"), "-o", &options, "-w", "restart"]);
    }

    /// Runs one of PostgreSQL's programs, which refuse to be run by root.
    fn command(&self, program: &str, arguments: &[&str]) {
        let program = self.bin.join(program);
        let mut command = if is_root() {
            let mut runuser = Command::new("runuser");
            runuser.args(["-u", "postgres", "--"]).arg(program);
            runuser
        } else {
            Command::new(program)
        };
        run(command.args(arguments).current_dir("/"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.command("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn run(command: &mut Command) -> Output {
    // A server started with a pipe for its output would keep it open: its log is a file.
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Connects, asks whether the session is encrypted, and carries 300 kB both ways.
fn log_in(conninfo: &str) -> Result<bool, String> {
    let conninfo = Conninfo::parse(conninfo, &|_| None, Some("postgres")).map_err(|e| e.to_string())?;
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
fn every_way_to_log_in_works_and_every_refusal_is_clear() {
    let Some(bin) = env::var_os("PGDYNO_TEST_PG_BIN") else {
        eprintln!("skipped: PGDYNO_TEST_PG_BIN names no PostgreSQL");
        return;
    };
    let server = Server::start(bin.into());
    let unix = format!("host={} port={} dbname=postgres", server.directory.display(), server.port);
    let tcp = format!("host=localhost hostaddr=127.0.0.1 port={} dbname=postgres", server.port);
    let named = format!("sslrootcert={}", server.certificate().display());
    let reactor = Reactor::new(Clock::monotonic()).unwrap();
    let superuser = Conninfo::parse(&unix, &|_| None, Some("postgres")).unwrap();
    let set_up = async { Connection::connect(&reactor, &superuser).await?.simple(ROLES).await };
    reactor.block_on(set_up).unwrap().unwrap();

    let (plain, tls) = (Ok(false), Ok(true));
    let table: [(&String, String, Result<bool, &str>); 34] = [
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
        (&tcp, "user=u_clear".into(), Err("wants a password for user \"u_clear\"")),
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
        (
            &tcp,
            "user=u_scram password=sécret channel_binding=require sslmode=disable".into(),
            Err("it takes TLS"),
        ),
        (&tcp, "user=u_trust channel_binding=require".into(), Err("no proof bound to its certificate")),
        (&tcp, "user=u_only_tls password=sécret sslmode=allow".into(), tls),
        (&tcp, "user=u_only_tls password=sécret sslmode=disable".into(), Err("no encryption")),
        (&tcp, "user=u_no_tls password=sécret sslmode=prefer".into(), plain),
        (&tcp, "user=u_no_tls password=sécret sslmode=require".into(), Err("SQLSTATE 28000")),
        (&tcp, "user=u_nobody".into(), Err("refused the connection: no pg_hba.conf entry")),
        (&unix, "user=u_nobody".into(), Err("role \"u_nobody\" does not exist")),
        (&unix, "dbname=nowhere".into(), Err("no database \"nowhere\"")),
        (&unix, "options='-c no_such=1'".into(), Err("unrecognized configuration parameter")),
        (&unix, "target_session_attrs=read-write".into(), plain),
        (
            &unix,
            "target_session_attrs=primary options='-c default_transaction_read_only=on'".into(),
            Err("read-only"),
        ),
    ];
    let mut wrong = misfits(&table);
    server.restart_with_bare_certificate();
    let bare = "user=u_scram password=sécret channel_binding=require sslmode=require".to_owned();
    wrong.extend(misfits(&[(&tcp, bare, tls)]));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The lines of a table (base and rest of a connection string, what is expected) that do not come true.
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
