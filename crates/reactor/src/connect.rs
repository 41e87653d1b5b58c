//! From a connection string to a session: addresses, sockets, start-up.

use std::net::{SocketAddr, ToSocketAddrs};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};

use super::socket::Socket;
use super::{Attempt, Attempts, Connection, Error, Failure, Nanos, Reactor};
use pgwire::SqlState;
use pgwire::conninfo::{Address, Conninfo, Host, TargetSessionAttrs};
use pgwire::frontend;
use pgwire::startup::{Channel, Startup, StartupError};
use pgwire::tls::{self, Encryption, FirstFailure};

/// How soon to knock again at a Unix socket whose queue is full. The kernel does not tell when there is room.
const KNOCK_AGAIN: Nanos = Nanos(1_000_000);

impl Connection {
    /// Connects to the first of the hosts that lets us in, within `connect_timeout` for each. After the login, what is
    /// sent and received goes through the loop's io_uring, if it has one.
    pub async fn connect(reactor: &Reactor, conninfo: &Conninfo) -> Result<Self, Error> {
        connect(reactor, conninfo).await
    }

    /// Asks the server, by a connection of its own, to end what this one is doing. Whether it does, nobody learns.
    pub async fn cancel(&self, conninfo: &Conninfo) {
        self.canceller().cancel(conninfo).await;
    }

    /// What can do that while somebody waits for the answer.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller::new(self.reactor(), self.key)
    }
}

/// Connects to the first of the hosts that lets us in. As in libpq a server that answers and refuses us is the last
/// one tried, unless it is only starting up, or is of another kind than is wanted. Where a standby is preferred, and there is
/// none, all are tried once more.
async fn connect(reactor: &Reactor, conninfo: &Conninfo) -> Result<Connection, Error> {
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

/// The first of the hosts that lets us in, or all attempts.
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
                // Its other addresses lead to the same server.
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

/// Tries with and without encryption, as far as `sslmode` allows both.
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
    let second = tls::second_attempt(conninfo.sslmode, &host.address, encryption, first_failure(&why));
    let first = attempt(why);
    let Some(mut encryption) = second else { return Err(vec![first]) };
    let connected = in_time(reactor, conninfo, host, place, &mut encryption).await;
    connected.map_err(|why| vec![first, attempt(why)])
}

fn first_failure(why: &Failure) -> FirstFailure {
    match why {
        Failure::Rejected(Error::Startup(error)) if error.sqlstate().is_some() => FirstFailure::Refused,
        Failure::Rejected(Error::Tls(error)) if error.is_failed_handshake() => FirstFailure::Handshake,
        _ => FirstFailure::Other,
    }
}

/// One try, within `connect_timeout`. A server may have no encryption: then that is noted.
async fn in_time(
    reactor: &Reactor,
    conninfo: &Conninfo,
    host: &Host,
    place: &Place,
    encryption: &mut Encryption,
) -> Result<Connection, Failure> {
    let limit = conninfo.connect_timeout_s.map_or(Nanos::MAX, |s| Nanos(u64::from(s) * 1_000_000_000));
    let session = async {
        let socket = open(reactor, place).await.map_err(Failure::Unreachable)?;
        start(socket, conninfo, host, encryption).await.map_err(Failure::Rejected)
    };
    let connected = reactor.until(reactor.now() + limit, session).await;
    connected.unwrap_or(Err(Failure::TimedOut))
}

/// A place that a socket can be connected to.
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

/// The places that an address stands for. Looking a name up blocks the loop: not for the hot path.
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
            match rustix::net::connect(&fd, address) {
                Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
                Err(errno) => return Err(Error::system("connect", errno)),
            }
            // Only now: a socket that is not yet connecting would be reported as hung up.
            let socket = Socket::new(reactor, fd)?;
            socket.writable().await?;
            let outcome = sockopt::socket_error(&socket).and_then(|outcome| outcome);
            outcome.map_err(|e| Error::system("connect", e))?;
            Ok(socket)
        }
    }
}

/// From a connected socket to a session: TLS if wanted, then the start-up conversation.
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

/// Can end what the server does for a connection, whoever has that.
pub struct Canceller {
    reactor: Reactor,
    /// What a CancelRequest must quote; a pooler may keep it to itself.
    key: Option<(i32, i32)>,
}

impl Canceller {
    pub(super) fn new(reactor: &Reactor, key: Option<(i32, i32)>) -> Self {
        Self { reactor: reactor.clone(), key }
    }

    /// Asks the server, wherever `conninfo` leads, by a connection of its own. A server that it does not belong to passes
    /// it over, and failures to send it are passed over here: there is nobody who could do anything about them.
    pub async fn cancel(&self, conninfo: &Conninfo) {
        let Some(key) = self.key else { return };
        let mut request = Vec::new();
        frontend::cancel_request(&mut request, key.0, key.1);
        for host in &conninfo.hosts {
            for place in resolve(&host.address).unwrap_or_default() {
                if let Ok(socket) = open(&self.reactor, &place).await {
                    let _ = socket.send(&request);
                }
            }
        }
    }
}
