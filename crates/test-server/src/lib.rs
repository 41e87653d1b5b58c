//! PostgreSQL servers for tests, from the binaries in `PGDYNO_TEST_PG_BIN`.
//!
//! The tests of a process share one server, on which each has its own [`Database`]. A test that restarts or pins its
//! server starts its own [`Server`].

#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc)] // A failure here ends the test.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::{env, fs, mem, process};

const HBA: &str = "\
local   all all trust
host    all u_trust 127.0.0.1/32 trust
host    all u_clear 127.0.0.1/32 password
host    all u_md5,u_md5_prompt,u_md5_file 127.0.0.1/32 md5
host    all u_scram 127.0.0.1/32 scram-sha-256
hostssl all u_only_tls 127.0.0.1/32 scram-sha-256
hostnossl all u_no_tls 127.0.0.1/32 scram-sha-256
";

// No test here depends on crash safety, so fsync is off. Autovacuum would change pg_class.reltuples between the
// readings of two databases.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
ssl = on
fsync = off
autovacuum = off
shared_buffers = 16MB
max_connections = 300
";

/// Waits for the end of the process of the tests, even if it is killed, stops the server and removes its directory.
const GUARD: &str = "read -r _; directory=$1; shift; \"$@\"; rm -rf \"$directory\"";

/// A database of one test on the server that the tests of this process share.
pub struct Database {
    /// The shared server.
    pub server: &'static Server,
    /// Name of the database.
    pub name: String,
    /// Directory for files of the test, removed with the server.
    pub directory: PathBuf,
}

impl Database {
    /// Creates the database of a test; `None` without `PGDYNO_TEST_PG_BIN`.
    pub fn create(test: &str) -> Option<Self> {
        static SHARED: OnceLock<Option<&'static Server>> = OnceLock::new();
        Some(Self::create_on((*SHARED.get_or_init(|| Server::start("shared")))?, test))
    }

    /// Creates the database of a test on this server.
    #[must_use]
    pub fn create_on(server: &'static Server, test: &str) -> Self {
        let name = format!("test_{test}");
        server.create_database(&name);
        let directory = server.directory.join(&name);
        fs::create_dir(&directory).unwrap();
        Self { server, name, directory }
    }

    /// Connection string of the superuser over the Unix socket.
    #[must_use]
    pub fn by_socket(&self) -> String {
        self.server.by_socket(&self.name)
    }

    /// Connection parameters of the superuser over the Unix socket, as in a specification of the engine.
    #[must_use]
    pub fn values(&self) -> BTreeMap<&'static str, String> {
        self.server.values(&self.name)
    }
}

/// A server in its own directory. It is stopped and removed when the process of the tests ends.
pub struct Server {
    bin: PathBuf,
    /// Directory of its data and socket.
    pub directory: PathBuf,
    /// Port of the socket, and on 127.0.0.1.
    pub port: u16,
}

impl Server {
    /// Starts a server for a test; `None` without `PGDYNO_TEST_PG_BIN`.
    pub fn start(name: &str) -> Option<&'static Self> {
        let Some(bin) = env::var_os("PGDYNO_TEST_PG_BIN").map(PathBuf::from) else {
            eprintln!("skipped: PGDYNO_TEST_PG_BIN names no PostgreSQL");
            return None;
        };
        let directory = env::temp_dir().join(format!("pgdyno-{name}-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let server = Self { bin, directory, port: free_port() };
        if is_root() {
            run(Command::new("chown").arg(unprivileged()).arg(&server.directory));
        }
        let data = server.data();
        run(Command::new("cp").arg("-a").arg(server.template()).arg(&data));
        fs::write(server.file("pg_hba.conf"), HBA).unwrap();
        let settings = fs::read_to_string(server.file("postgresql.conf")).unwrap();
        let sockets = format!("unix_socket_directories = '{}'\n", server.directory.display());
        fs::write(server.file("postgresql.conf"), settings + SETTINGS + &sockets).unwrap();
        server.pg_ctl("start");
        server.stop_with_process();
        Some(Box::leak(Box::new(server)))
    }

    /// Starts a process that stops the server when this process ends.
    fn stop_with_process(&self) {
        let stop = self.command("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]);
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "guard"]).arg(&self.directory).arg(stop.get_program()).args(stop.get_args());
        // In its own process group, so that Ctrl-C does not end it.
        guard.current_dir("/").process_group(0);
        let guard = guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        mem::forget(guard); // Its input ends with this process.
    }

    /// Starts or restarts the server.
    fn pg_ctl(&self, action: &str) {
        let (data, options) = (self.data(), format!("-p {}", self.port));
        let log = format!("{data}/log");
        run(&mut self.command("pg_ctl", &["-D", &data, "-l", &log, "-o", &options, "-w", action]));
    }

    /// Creates a database.
    pub fn create_database(&self, name: &str) {
        let (port, host) = (self.port.to_string(), self.directory.display().to_string());
        run(&mut self.command("createdb", &["-h", &host, "-p", &port, "-U", "postgres", name]));
    }

    /// Connection string of the superuser over the Unix socket.
    #[must_use]
    pub fn by_socket(&self, database: &str) -> String {
        let values = self.values(database);
        values.iter().fold(String::new(), |text, (keyword, value)| text + keyword + "=" + value + " ")
    }

    /// See [`Database::values`].
    #[must_use]
    pub fn values(&self, database: &str) -> BTreeMap<&'static str, String> {
        let host = self.directory.display().to_string();
        let user = "postgres".to_owned();
        [("host", host), ("port", self.port.to_string()), ("user", user), ("dbname", database.to_owned())]
            .into()
    }

    /// Process ID of the postmaster.
    #[must_use]
    pub fn postmaster_pid(&self) -> u32 {
        fs::read_to_string(self.file("postmaster.pid")).unwrap().lines().next().unwrap().parse().unwrap()
    }

    /// Data directory with a certificate, made once per build of PostgreSQL and kept below Cargo's target directory.
    fn template(&self) -> PathBuf {
        static MADE: Mutex<()> = Mutex::new(());
        let _one_at_a_time = MADE.lock();
        let postgres = fs::metadata(self.bin.join("postgres")).unwrap();
        let mut hasher = DefaultHasher::new();
        (&self.bin, postgres.len(), postgres.mtime(), is_root()).hash(&mut hasher);
        let place = env::current_exe().unwrap().ancestors().nth(2).unwrap().join("test-servers");
        let template = place.join(format!("{:x}", hasher.finish()));
        if template.exists() {
            return template;
        }
        let data = self.data();
        let options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-N", "-D", &data];
        run(&mut self.command("initdb", &options));
        self.make_certificate();
        fs::create_dir_all(&place).unwrap();
        // Another process may make it, too: the first one names it.
        let own = template.with_extension(process::id().to_string());
        run(Command::new("cp").arg("-a").arg(&data).arg(&own));
        if fs::rename(&own, &template).is_err() {
            fs::remove_dir_all(&own).unwrap();
        }
        fs::remove_dir_all(&data).unwrap();
        template
    }

    fn make_certificate(&self) {
        let subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-new", "-x509", "-nodes", "-days", "3650", "-batch", "-newkey", "rsa:2048"]);
        openssl.args(subject).arg("-keyout").arg(self.file("server.key")).arg("-out").arg(self.certificate());
        run(&mut openssl);
        if is_root() {
            let mut chown = Command::new("chown");
            run(chown.arg(unprivileged()).arg(self.file("server.key")).arg(self.certificate()));
        }
    }

    fn data(&self) -> String {
        self.directory.join("data").display().to_string()
    }

    fn file(&self, name: &str) -> PathBuf {
        Path::new(&self.data()).join(name)
    }

    /// File of the server certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.file("server.crt")
    }

    /// Reloads with a certificate as in PostgreSQL's manual: without extensions, therefore of version 1 with
    /// openssl 3.0.
    pub fn reload_with_bare_certificate(&self) {
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
        self.pg_ctl("reload");
    }

    /// Restarts as a standby that waits for WAL.
    pub fn restart_as_standby(&self) {
        fs::write(self.file("standby.signal"), "").unwrap();
        self.pg_ctl("restart");
    }

    /// Command for a PostgreSQL program, which must not run as root.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let program = self.bin.join(program);
        let mut command = if is_root() {
            let mut runuser = Command::new("runuser");
            runuser.args(["-u", unprivileged(), "--"]).arg(program);
            runuser
        } else {
            Command::new(program)
        };
        command.args(arguments).current_dir("/");
        command
    }
}

/// Port that nothing uses now, and that no outgoing connection takes before the server binds it: they get ports from
/// 32768 (`ip_local_port_range`). Each process of tests starts at a place of its own.
fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let place = process::id().wrapping_mul(64).wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = 16_384 + (place % 16_384) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// User of PostgreSQL if the test runs as root: `postgres` if it exists, else `nobody`.
fn unprivileged() -> &'static str {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    if users.lines().any(|line| line.starts_with("postgres:")) { "postgres" } else { "nobody" }
}

fn run(command: &mut Command) -> Output {
    // A pipe for output would be kept open by the server: write its log to a file.
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
