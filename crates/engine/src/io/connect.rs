//! From a connection string to a session: addresses, sockets, start-up.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with, sockopt};

use super::socket::Socket;
use super::{Connection, Error, Nanos, Reactor};
use crate::wire::conninfo::{Address, Conninfo, Host};
use crate::wire::frontend;
use crate::wire::startup::{Channel, Startup};
use crate::wire::tls::{self, Encryption};
use crate::wire::{SqlState, WireError};

/// How soon to knock again at a Unix socket whose queue is full. The kernel does not tell when there is room.
const KNOCK_AGAIN: Nanos = Nanos(1_000_000);

/// Connects to the first of the hosts that lets us in. As in libpq a server that answers and refuses us is the last
/// one tried, unless it is only starting up, or cannot write and must.
pub(super) async fn connect(reactor: &Reactor, conninfo: &Conninfo) -> Result<Connection, Error> {
    let mut failures: Vec<Error> = Vec::new();
    for host in &conninfo.hosts {
        match resolve(&host.address) {
            Err(error) => failures.push(error),
            Ok(places) => {
                for place in places {
                    match encrypted_or_not(reactor, conninfo, host, &place).await {
                        Err(error) if may_try_next(&error) => failures.push(error),
                        outcome => return outcome,
                    }
                }
            }
        }
    }
    let texts: Vec<_> = failures.iter().map(ToString::to_string).collect();
    match failures.pop() {
        Some(only) if failures.is_empty() => Err(only),
        _ => Err(Error::Connect(texts.join("; "))),
    }
}

fn may_try_next(error: &Error) -> bool {
    match error {
        Error::Wire(WireError::ReadOnly) => true,
        Error::Wire(error) => error.sqlstate() == Some(SqlState::CANNOT_CONNECT_NOW),
        _ => true,
    }
}

/// Tries with and without encryption, as far as `sslmode` allows both.
async fn encrypted_or_not(
    reactor: &Reactor,
    conninfo: &Conninfo,
    host: &Host,
    place: &Place,
) -> Result<Connection, Error> {
    let encryption = tls::first_attempt(conninfo.sslmode, &host.address);
    let first = in_time(reactor, conninfo, host, place, encryption).await;
    let Err(Error::Wire(error)) = &first else { return first };
    match tls::second_attempt(conninfo.sslmode, &host.address, encryption, error) {
        Some(encryption) => in_time(reactor, conninfo, host, place, encryption).await,
        None => first,
    }
}

async fn in_time(
    reactor: &Reactor,
    conninfo: &Conninfo,
    host: &Host,
    place: &Place,
    encryption: Encryption,
) -> Result<Connection, Error> {
    let limit = conninfo.connect_timeout_s.map_or(Nanos::MAX, |s| Nanos(u64::from(s) * 1_000_000_000));
    let session = async {
        let socket = open(reactor, place).await.map_err(|error| unreachable(&host.address, &error))?;
        start(socket, conninfo, host, encryption).await
    };
    let connected = reactor.until(reactor.now() + limit, session).await;
    connected.unwrap_or_else(|| {
        Err(Error::Connect(format!("cannot connect to {}: no answer in time", host.address)))
    })
}

fn unreachable(address: &Address, error: &Error) -> Error {
    let why = match error {
        Error::System { source, .. } if source.kind() == ErrorKind::NotFound => "no such socket".to_owned(),
        Error::System { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    Error::Connect(format!("cannot connect to {address}: {why}; is a server running there?"))
}

/// A place that a socket can be connected to.
enum Place {
    Unix(SocketAddrUnix),
    Tcp(SocketAddr),
}

/// The places that an address stands for. Looking a name up blocks the loop: not for the hot path.
fn resolve(address: &Address) -> Result<Vec<Place>, Error> {
    match address {
        Address::Unix(path) => {
            let place = SocketAddrUnix::new(path);
            place
                .map(|place| vec![Place::Unix(place)])
                .map_err(|e| Error::system(format!("use the socket {address}"), e))
        }
        Address::Tcp { ip: Some(ip), port, .. } => Ok(vec![Place::Tcp(SocketAddr::new(*ip, *port))]),
        Address::Tcp { name, ip: None, port } => {
            let found = (name.as_str(), *port).to_socket_addrs();
            let found = found.map_err(|e| Error::Connect(format!("cannot find the host {name}: {e}")))?;
            Ok(found.map(Place::Tcp).collect())
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
    encryption: Encryption,
) -> Result<Connection, Error> {
    let mut connection = Connection::new(socket);
    let channel = match encryption {
        Encryption::Plain => Channel::Plain,
        Encryption::Tls => connection.encrypt(conninfo, host).await?,
    };
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

/// Sends a CancelRequest to wherever `conninfo` leads. A server that it does not belong to passes it over, and failures
/// to send it are passed over here: there is nobody who could do anything about them.
pub(super) async fn cancel(reactor: &Reactor, conninfo: &Conninfo, key: (i32, i32)) {
    let mut request = Vec::new();
    frontend::cancel_request(&mut request, key.0, key.1);
    for host in &conninfo.hosts {
        for place in resolve(&host.address).unwrap_or_default() {
            if let Ok(socket) = open(reactor, &place).await {
                let _ = socket.send(&request);
            }
        }
    }
}
