//! Connections: addresses, sockets, startup.

use std::cell::RefCell;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};

use pgwire::conninfo::{Address, Conninfo, Host, TargetSessionAttrs};
use pgwire::startup::{Channel, Startup, StartupError};
use pgwire::tls::{self, Encryption};
use pgwire::{SqlState, frontend};

use super::socket::Socket;
use super::{Attempt, Attempts, Connection, Error, Failure, Nanos, Reactor};

/// Delay before a Unix socket with a full queue is tried again. The kernel does not report free space.
const KNOCK_AGAIN: Nanos = Nanos(1_000_000);
/// When TCP asks whether the host of an idle connection is still there, how often again, and how many times.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 3;

impl Connection {
    /// Connects to the first host that accepts the session, within `connect_timeout` per host.
    ///
    /// As in libpq, the first server that rejects the session ends the search, unless it is starting up or does not
    /// match `target_session_attrs`. If a standby is preferred and none is found, all hosts are tried once more.
    ///
    /// After the login, data is sent and received by the loop's io_uring, if it has one.
    pub async fn connect(reactor: &Reactor, conninfo: &Conninfo) -> Result<Self, Error> {
        let mut attempts = match try_all(reactor, conninfo).await {
            Ok(connection) => return Ok(connection),
            Err(attempts) => attempts,
        };
        let is_last = attempts.last().is_some_and(|attempt| !may_try_next(&attempt.why));
        if conninfo.target_session_attrs == TargetSessionAttrs::PreferStandby && !is_last {
            let mut any = conninfo.clone();
            any.target_session_attrs = TargetSessionAttrs::Any;
            match try_all(reactor, &any).await {
                Ok(connection) => return Ok(connection),
                Err(more) => attempts.extend(more),
            }
        }
        Err(Error::Unconnected(Attempts(attempts)))
    }

    /// A handle that can cancel while another future waits for the response.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        let canceller = Canceller::new(self.reactor());
        canceller.add(self);
        canceller
    }
}

/// The first host that accepts the session, or all attempts.
async fn try_all(reactor: &Reactor, conninfo: &Conninfo) -> Result<Connection, Vec<Attempt>> {
    let mut attempts: Vec<Attempt> = Vec::new();
    for host in &conninfo.hosts {
        let places = match resolve(&host.address) {
            Ok(places) => places,
            Err(why) => {
                attempts.push(Attempt::new(conninfo, host, None, why));
                continue;
            }
        };
        for place in places {
            match encrypted_or_not(reactor, conninfo, host, &place).await {
                Ok(connection) => return Ok(connection),
                Err(failed) => attempts.extend(failed),
            }
            let Some(last) = attempts.last() else { continue };
            if !may_try_next(&last.why) {
                return Err(attempts);
            }
            if has_wrong_session_attrs(&last.why) {
                // Its other addresses belong to the same server.
                break;
            }
        }
    }
    Err(attempts)
}

fn has_wrong_session_attrs(why: &Failure) -> bool {
    matches!(why, Failure::Rejected(Error::Startup(StartupError::WrongSessionAttrs { .. })))
}

fn may_try_next(why: &Failure) -> bool {
    match why {
        why if has_wrong_session_attrs(why) => true,
        Failure::Rejected(Error::Startup(error)) => error.sqlstate() == Some(SqlState::CANNOT_CONNECT_NOW),
        Failure::Rejected(Error::Protocol(_) | Error::Encode(_) | Error::Tls(_)) => false,
        _ => true,
    }
}

/// Tries with and without encryption, as `sslmode` allows.
async fn encrypted_or_not(
    reactor: &Reactor,
    conninfo: &Conninfo,
    host: &Host,
    place: &Place,
) -> Result<Connection, Vec<Attempt>> {
    let attempt = |why| Attempt::new(conninfo, host, place.tcp(), why);
    let mut encryption = tls::first_attempt(conninfo.sslmode, &host.address);
    let why = match in_time(reactor, conninfo, host, place, &mut encryption).await {
        Ok(connection) => return Ok(connection),
        Err(why) => why,
    };
    let second = tls::second_attempt(conninfo.sslmode, &host.address, encryption);
    let second = second.filter(|_| may_be_encryption(&why));
    let first = attempt(why);
    let Some(mut encryption) = second else { return Err(vec![first]) };
    let connected = in_time(reactor, conninfo, host, place, &mut encryption).await;
    connected.map_err(|why| vec![first, attempt(why)])
}

/// Whether the server rejected the session, or TLS failed.
fn may_be_encryption(why: &Failure) -> bool {
    match why {
        Failure::Rejected(Error::Startup(error)) => error.sqlstate().is_some(),
        Failure::Rejected(Error::Tls(error)) => error.is_failed_handshake(),
        _ => false,
    }
}

/// One attempt within `connect_timeout`. Records whether the server lacks encryption.
async fn in_time(
    reactor: &Reactor,
    conninfo: &Conninfo,
    host: &Host,
    place: &Place,
    encryption: &mut Encryption,
) -> Result<Connection, Failure> {
    let session = async {
        let socket = open(reactor, place).await.map_err(Failure::Unreachable)?;
        start(socket, conninfo, host, encryption).await.map_err(Failure::Rejected)
    };
    let Some(limit_s) = conninfo.connect_timeout_s else { return session.await };
    let limit = Nanos(u64::from(limit_s) * 1_000_000_000);
    let connected = reactor.until(reactor.now() + limit, session).await;
    connected.unwrap_or(Err(Failure::TimedOut))
}

/// A socket address.
enum Place {
    Unix(SocketAddrUnix),
    Tcp(SocketAddr),
}

impl Place {
    fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(address) => Some(*address),
        }
    }
}

/// The socket addresses of a host. Name resolution blocks the loop, so this is not for the hot path.
fn resolve(address: &Address) -> Result<Vec<Place>, Failure> {
    match address {
        Address::Unix(path) => {
            let place = SocketAddrUnix::new(path);
            place
                .map(|place| vec![Place::Unix(place)])
                .map_err(|e| Failure::Unreachable(Error::system(format!("use the socket {address}"), e)))
        }
        Address::Tcp { ip: Some(ip), port, .. } => Ok(vec![Place::Tcp(SocketAddr::new(*ip, *port))]),
        Address::Tcp { name, ip: None, port } => {
            let found = (name.as_str(), *port).to_socket_addrs();
            Ok(found.map_err(Failure::NoSuchHost)?.map(Place::Tcp).collect())
        }
    }
}

async fn open(reactor: &Reactor, place: &Place) -> Result<Socket, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = match place {
        Place::Unix(_) => AddressFamily::UNIX,
        Place::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
        Place::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
    };
    let fd = socket_with(family, SocketType::STREAM, flags, None)
        .map_err(|e| Error::system("make a socket", e))?;
    match place {
        Place::Unix(address) => loop {
            match rustix::net::connect(&fd, address) {
                Ok(()) => return Socket::new(reactor, fd),
                Err(Errno::AGAIN) => reactor.sleep_until(reactor.now() + KNOCK_AGAIN).await,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::system("connect", errno)),
            }
        },
        Place::Tcp(address) => {
            sockopt::set_tcp_nodelay(&fd, true).map_err(|e| Error::system("set TCP_NODELAY", e))?;
            notice_vanished_host(&fd).map_err(|e| Error::system("set keepalives", e))?;
            match rustix::net::connect(&fd, address) {
                Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
                Err(errno) => return Err(Error::system("connect", errno)),
            }
            // Register the socket only now: before the connect it would be reported as hung up.
            let socket = Socket::new(reactor, fd)?;
            socket.writable().await?;
            let outcome = sockopt::socket_error(&socket).and_then(|outcome| outcome);
            outcome.map_err(|e| Error::system("connect", e))?;
            Ok(socket)
        }
    }
}

/// Ends a connection whose host has vanished while its client waits for an answer: otherwise it would wait forever.
///
/// Keepalives are not sent while sent data are unacknowledged: then the retries of the kernel end the connection, after
/// about 15 minutes. TCP_USER_TIMEOUT would be faster, but would also end one whose server is alive and reads slowly.
fn notice_vanished_host(fd: &OwnedFd) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(fd, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(fd, KEEPALIVE_COUNT)
}

/// Starts a session on a connected socket: TLS if required, then the startup.
async fn start(
    socket: Socket,
    conninfo: &Conninfo,
    host: &Host,
    encryption: &mut Encryption,
) -> Result<Connection, Error> {
    let mut connection = Connection::new(socket);
    let channel = match encryption {
        Encryption::Plain => Channel::Plain,
        Encryption::Tls => connection.encrypt(conninfo, host).await?,
    };
    if channel == Channel::Plain {
        *encryption = Encryption::Plain;
    }
    let mut startup = Startup::begin(conninfo, host, channel, connection.out())?;
    let mut answer = Vec::new();
    loop {
        connection.flush().await?;
        if startup.on_message(&connection.next_of_startup().await?, &mut answer)? {
            connection.key = startup.into_session().key;
            connection.join_ring();
            return Ok(connection);
        }
        connection.out().append(&mut answer);
    }
}

/// Handle to cancel statements of connections.
pub struct Canceller {
    reactor: Reactor,
    /// Process ID and secret key of each connection, for a CancelRequest. A pooler may not send them.
    keys: RefCell<Vec<(i32, i32)>>,
}

impl Canceller {
    /// A handle without connections.
    #[must_use]
    pub fn new(reactor: &Reactor) -> Self {
        Self { reactor: reactor.clone(), keys: RefCell::default() }
    }

    /// Adds a connection.
    pub fn add(&self, connection: &Connection) {
        self.keys.borrow_mut().extend(connection.key);
    }

    /// Sends CancelRequests to the server of `conninfo`, each over a new connection.
    ///
    /// A server ignores unknown keys. Errors are ignored here, because no caller can handle them.
    pub async fn cancel(&self, conninfo: &Conninfo) {
        let keys = self.keys.borrow().clone();
        for (process_id, secret_key) in keys {
            let mut request = Vec::new();
            frontend::cancel_request(&mut request, process_id, secret_key);
            for host in &conninfo.hosts {
                for place in resolve(&host.address).unwrap_or_default() {
                    if let Ok(socket) = open(&self.reactor, &place).await {
                        let _ = socket.send(&mut request.clone(), 0);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::Clock;

    #[test]
    fn a_connection_has_keepalives_and_no_limit_on_a_server_that_reads_slowly() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = Place::Tcp(listener.local_addr().expect("an address"));
        let reactor = Reactor::new(Clock::monotonic()).expect("a loop");
        let socket = reactor.block_on(open(&reactor, &place)).expect("a loop").expect("a connection");
        assert_eq!(sockopt::socket_keepalive(&socket), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&socket), Ok(KEEPALIVE_IDLE));
        assert_eq!(sockopt::tcp_user_timeout(&socket), Ok(0));
    }
}
