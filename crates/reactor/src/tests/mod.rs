//! Connections with a server that may be hostile.

#[allow(clippy::unwrap_used)]
mod login;
#[allow(clippy::unwrap_used)]
mod values;

use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{
    Attempt, Clock, Connection, Error, Failure, Io, Nanos, Reactor, Shared, Socket, shell, thread_usage,
};
use pgwire::conninfo::Address;
use pgwire::frontend;

/// I/O interfaces available on this machine: the kernel may not permit io_uring.
fn io_modes() -> Vec<Io> {
    let best = Io::Auto.resolve();
    if best == Io::Epoll { vec![Io::Epoll] } else { vec![Io::Epoll, best] }
}

fn fake_loop(io: Io) -> Reactor {
    Reactor::with_io(Clock::fake(), io).expect("a loop")
}

/// Both ends join the ring, if the loop has one.
fn pair(reactor: &Reactor) -> (Connection, Socket) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair of sockets");
    let socket = |fd| {
        let mut socket = Socket::new(reactor, fd).expect("a socket");
        socket.join_ring();
        socket
    };
    (Connection::new(socket(ours)), socket(theirs))
}

/// Result of a simple query if the server sends `bytes` in pieces and then closes. It must be the same with
/// every I/O interface.
fn answered(bytes: &[u8], piece: usize) -> Result<super::TextRows, Error> {
    let mut outcomes: Vec<_> = io_modes().into_iter().map(|io| answered_by(io, bytes, piece)).collect();
    let outcome = outcomes.pop().expect("one way");
    for other in outcomes {
        assert_eq!(format!("{other:?}"), format!("{outcome:?}"));
    }
    outcome
}

fn answered_by(io: Io, bytes: &[u8], piece: usize) -> Result<super::TextRows, Error> {
    let reactor = fake_loop(io);
    let (mut connection, server) = pair(&reactor);
    let speak = async {
        for piece in bytes.chunks(piece.max(1)) {
            if send_all(&server, piece).await.is_err() {
                break;
            }
            reactor.pause().await;
        }
        drop(server);
    };
    reactor
        .run_concurrently(async { connection.simple("SELECT 1").await }, vec![Box::pin(speak)])
        .expect("no stall")
}

async fn send_all(socket: &Socket, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        match socket.send(&mut bytes.to_vec(), 0)? {
            Some(count) => bytes = &bytes[count..],
            None => socket.writable().await?,
        }
    }
    Ok(())
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

#[test]
fn a_response_is_read_in_pieces_of_any_size() {
    let row = message(b'D', &[0, 2, 0, 0, 0, 3, b'a', b'b', b'c', 255, 255, 255, 255]);
    let answer =
        [row.clone(), message(b'N', b"SNOTICE\0\0"), row, message(b'C', b"SELECT 2\0"), message(b'Z', b"I")];
    for piece in [1, 2, 3, 5, 7, 1000] {
        let rows = answered(&answer.concat(), piece).expect("rows");
        assert_eq!(rows, vec![vec![Some("abc".to_owned()), None]; 2]);
    }
}

#[test]
fn messages_of_a_hostile_server_are_errors() {
    let notices = message(b'N', b"SNOTICE\0\0").repeat(20_000);
    let rows = message(b'D', &[0, 0]).repeat(1_100_000);
    let copy = |tag| [message(tag, &[0, 0, 1, 0, 0]), message(b'Z', b"I")].concat();
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("a COPY that waits for rows", copy(b'G'), "unexpected CopyInResponse while reading an answer"),
        ("a COPY that sends rows", copy(b'H'), "unexpected CopyOutResponse while reading an answer"),
        ("no message at all", b"HTTP/1.1 400 Bad Request\r\n".to_vec(), "limit of the driver: the length"),
        ("a huge length", vec![b'D', 0x7f, 255, 255, 255], "limit of the driver: the length"),
        ("a length of less than itself", vec![b'D', 0, 0, 0, 3], "limit of the driver: the length"),
        ("an unknown type", message(b'?', b""), "unknown message type"),
        ("endless notices", notices, "limit of the driver: notices"),
        ("endless rows", rows, "limit of the driver: the text"),
        ("half a message", vec![b'D', 0, 0, 0, 9, 1], "closed the connection"),
    ];
    for (case, bytes, expected) in cases {
        let error = answered(&bytes, 60_000).expect_err(case).to_string();
        assert!(error.contains(expected), "{case}: {error}");
    }
}

#[test]
fn after_an_unexpected_copy_a_connection_fails_at_once() {
    for io in io_modes() {
        let reactor = fake_loop(io);
        let (mut connection, server) = pair(&reactor);
        // The server sends this, and then waits for rows indefinitely.
        let speak = async {
            send_all(&server, &message(b'G', &[0, 0, 1, 0, 0])).await.expect("sent");
            reactor.sleep_until(Nanos::MAX).await;
        };
        let asked = async {
            let first = connection.simple("SELECT 1").await.expect_err("a COPY");
            let second = connection.simple("SELECT 1").await.expect_err("no answer");
            [first.to_string(), second.to_string()]
        };
        let [first, second] = reactor.run_concurrently(asked, vec![Box::pin(speak)]).expect("no stall");
        assert!(first.contains("CopyInResponse"), "{first}");
        assert_eq!(second, Error::Closed.to_string());
    }
}

#[test]
fn only_a_failure_that_may_be_due_to_it_suggests_a_missing_server() {
    let cases = [
        (Errno::NOENT, true),
        (Errno::CONNREFUSED, true),
        (Errno::HOSTUNREACH, true),
        (Errno::MFILE, false),
        (Errno::ACCESS, false),
    ];
    for (errno, suggests) in cases {
        let why = Failure::Unreachable(Error::system("connect", errno));
        let address = Address::Unix("/s".into());
        let text = Attempt { address, place: None, password_file: None, why }.to_string();
        assert!(text.starts_with("cannot connect to /s: "), "{text}");
        assert_eq!(text.ends_with("; is a server running there?"), suggests, "{text}");
    }
}

#[test]
fn a_copy_that_does_not_begin_is_an_error() {
    let reactor = fake_loop(Io::Epoll);
    let cases: [(Vec<u8>, &str); 3] = [
        ([message(b'C', b"SELECT 0\0"), message(b'Z', b"I")].concat(), "unexpected ReadyForQuery"),
        (message(b'H', &[0, 0, 1, 0, 0]), "unexpected CopyOutResponse"),
        (message(b'G', &[0, 0, 1, 0, 0]), "begun"),
    ];
    for (said, expected) in cases {
        let (mut connection, server) = pair(&reactor);
        let speak = async { send_all(&server, &said).await.expect("sent") };
        let begun =
            reactor.run_concurrently(async { connection.copy_in_begun().await }, vec![Box::pin(speak)]);
        let outcome =
            begun.expect("no stall").map_or_else(|error| error.to_string(), |()| "begun".to_owned());
        assert!(outcome.contains(expected), "{outcome}");
    }
}

#[test]
fn a_command_that_nobody_awaits_any_longer_ends_with_its_children() {
    let reactor = Reactor::new(Clock::monotonic()).expect("a loop");
    let fifo = std::env::temp_dir().join(format!("pgdyno-shell-{}", std::process::id()));
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("a program").success());
    let (reads, waits) =
        (format!("cat {}", fifo.display()), format!("sleep 600 & echo $! >{}; wait", fifo.display()));
    let beside = async {
        let _ = shell(&reactor, waits.as_bytes(), 0, Shared::default()).await;
    };
    let read = reactor
        .run_concurrently(shell(&reactor, reads.as_bytes(), 100, Shared::default()), vec![Box::pin(beside)]);
    std::fs::remove_file(&fifo).expect("a FIFO");
    let line = read.expect("an end").expect("a line").line;
    let pid = String::from_utf8(line).expect("text").trim().parse().ok().and_then(Pid::from_raw);
    let Ok(end) = pidfd_open(pid.expect("a process ID"), PidfdFlags::empty()) else { return };
    let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&limit)), Ok(1), "it still runs");
}

#[test]
fn a_large_request_is_sent_while_the_server_sends_without_reading() {
    for io in io_modes() {
        a_large_request_is_sent_while_the_server_sends_without_reading_by(io);
    }
}

fn a_large_request_is_sent_while_the_server_sends_without_reading_by(io: Io) {
    let reactor = fake_loop(io);
    let (mut connection, server) = pair(&reactor);
    let request = "x".repeat(4 << 20);
    let talk = async {
        // More than a socket buffer holds. Only then does the server read.
        send_all(&server, &message(b'N', b"SNOTICE\0\0").repeat(9_000)).await.expect("sent");
        send_all(&server, &message(b'D', &[0, 0]).repeat(100_000)).await.expect("sent");
        let (mut left, mut space) = (request.len() + 6, vec![0; 1 << 16]);
        while left > 0 {
            server.readable().await;
            left -= server.receive(&mut space).expect("received").unwrap_or(0);
        }
        send_all(&server, &message(b'Z', b"I")).await.expect("sent");
    };
    let rows = reactor.run_concurrently(async { connection.simple(&request).await }, vec![Box::pin(talk)]);
    assert_eq!(rows.expect("no stall").expect("rows").len(), 100_000);
}

#[test]
fn a_future_that_pauses_again_and_again_keeps_no_event_from_others() {
    for io in io_modes() {
        let reactor = fake_loop(io);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair of sockets");
        let waits = Socket::new(&reactor, ours).expect("a socket");
        rustix::io::write(&theirs, b"x").expect("written");
        let pauses = std::cell::Cell::new(0);
        let pause = async {
            while pauses.get() < 1000 {
                pauses.set(pauses.get() + 1);
                reactor.pause().await;
            }
        };
        let received = reactor.run_concurrently(async { waits.readable().await }, vec![Box::pin(pause)]);
        received.expect("no stall");
        assert!(pauses.get() < 10, "{}", pauses.get());
    }
}

#[test]
fn a_socket_that_leaves_the_ring_keeps_events_of_others() {
    for io in io_modes() {
        let reactor = fake_loop(io);
        let (leaves, _peer) = pair(&reactor);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair of sockets");
        // It stays with epoll, as during a login.
        let waits = Socket::new(&reactor, ours).expect("a socket");
        let speak = async {
            reactor.pause().await;
            rustix::io::write(&theirs, b"x").expect("written");
            drop(leaves);
        };
        let received = reactor.run_concurrently(async { waits.readable().await }, vec![Box::pin(speak)]);
        received.expect("no stall");
    }
}

#[test]
fn a_connection_recovers_from_an_error_in_the_middle_of_a_pipeline() {
    for io in io_modes() {
        a_connection_recovers_from_an_error_in_the_middle_of_a_pipeline_by(io);
    }
}

fn a_connection_recovers_from_an_error_in_the_middle_of_a_pipeline_by(io: Io) {
    let reactor = fake_loop(io);
    let (mut connection, server) = pair(&reactor);
    let error = message(b'E', b"SERROR\0VERROR\0C40001\0Mscripted\0\0");
    let answers = [error.clone(), message(b'Z', b"E"), error, message(b'Z', b"E")].concat();
    let talk = async {
        send_all(&server, &answers).await.expect("sent");
        // Response to the rollback.
        let mut space = [0; 256];
        let mut seen = 0;
        while seen < 3 {
            server.readable().await;
            let count = server.receive(&mut space).expect("received").unwrap_or(0);
            seen += space[..count].iter().filter(|&&byte| byte == b'S' || byte == b'Q').count();
        }
        send_all(&server, &[message(b'C', b"ROLLBACK\0"), message(b'Z', b"I")].concat()).await.expect("sent");
    };
    let converse = async {
        frontend::sync(connection.out());
        frontend::sync(connection.out());
        connection.flush().await?;
        let error = connection.next().await.expect_err("an error");
        assert!(error.is_retryable());
        connection.recover().await
    };
    reactor.run_concurrently(converse, vec![Box::pin(talk)]).expect("no stall").expect("recovered");
}

#[test]
fn a_connection_recovers_from_an_error_after_an_answered_sync() {
    let reactor = Reactor::new(Clock::fake()).expect("a loop");
    let (mut connection, server) = pair(&reactor);
    let talk = async {
        let error = message(b'E', b"SERROR\0VERROR\0C42601\0Mof the second\0\0");
        let row = message(b'D', &[0, 1, 0, 0, 0, 1, b'1']);
        let answers =
            [message(b'Z', b"I"), [error, message(b'Z', b"I")].concat(), [row, message(b'Z', b"I")].concat()];
        let (mut space, mut seen) = ([0; 256], 0);
        for (answered, answer) in answers.iter().enumerate() {
            while seen <= answered {
                server.readable().await;
                let count = server.receive(&mut space).expect("received").unwrap_or(0);
                seen += space[..count].iter().filter(|&&byte| byte == b'S' || byte == b'Q').count();
            }
            send_all(&server, answer).await.expect("sent");
        }
    };
    let converse = async {
        frontend::sync(connection.out());
        connection.flush().await?;
        frontend::parse(connection.out(), "", "wrong", &[])?;
        connection.flush().await?;
        connection.next().await?;
        connection.recover().await?;
        connection.simple("one").await
    };
    let rows =
        reactor.run_concurrently(converse, vec![Box::pin(talk)]).expect("no stall").expect("its own answer");
    assert_eq!(rows, vec![vec![Some("1".to_owned())]]);
}

#[test]
#[should_panic = "send a Sync first"]
fn a_query_that_may_have_no_response_is_rejected() {
    let reactor = Reactor::new(Clock::fake()).expect("a loop");
    let (mut connection, _server) = pair(&reactor);
    let converse = async {
        frontend::parse(connection.out(), "", "wrong", &[])?;
        connection.flush().await?;
        connection.simple("one").await
    };
    let _ = reactor.run_concurrently(converse, vec![]);
}

#[test]
fn deadlines_come_in_order_and_the_fake_clock_jumps_to_each() {
    for io in io_modes() {
        deadlines_come_in_order_and_the_fake_clock_jumps_to_each_by(io);
    }
}

fn deadlines_come_in_order_and_the_fake_clock_jumps_to_each_by(io: Io) {
    let reactor = fake_loop(io);
    let seen = std::cell::RefCell::new(Vec::new());
    let sleeper = |at: u64| {
        let (reactor, seen) = (&reactor, &seen);
        async move {
            reactor.sleep_until(Nanos(at)).await;
            seen.borrow_mut().push((at, reactor.now().0));
        }
    };
    reactor.run(vec![Box::pin(sleeper(3)), Box::pin(sleeper(1)), Box::pin(sleeper(2))]).expect("no stall");
    assert_eq!(seen.take(), [(1, 1), (2, 2), (3, 3)]);
    let never = reactor.until(Nanos(10), std::future::pending::<()>());
    assert_eq!(reactor.block_on(never).expect("no stall"), None);
    let in_time = async {
        reactor.until(Nanos(20), reactor.pause()).await;
        std::future::pending::<()>().await;
    };
    assert!(matches!(reactor.block_on(in_time), Err(Error::Stalled)));
    assert_eq!(reactor.now(), Nanos(10), "the deadline is removed with its future");
}

#[test]
fn a_wait_with_the_latest_deadline_takes_no_cpu_time() {
    for io in io_modes() {
        let reactor = Reactor::with_io(Clock::monotonic(), io).expect("a loop");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair of sockets");
        let waits = Socket::new(&reactor, ours).expect("a socket");
        let writes = thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            rustix::io::write(&theirs, b"x").expect("written");
        });
        let before = thread_usage();
        let waited = reactor.block_on(reactor.until(Nanos::MAX, waits.readable()));
        let used = thread_usage() - before;
        assert_eq!(waited.expect("no stall"), Some(()));
        assert!(used.user + used.system < Nanos(100_000_000), "{io:?}: {used:?}");
        writes.join().expect("no panic");
    }
}

#[test]
fn a_socket_closed_with_requests_in_flight_sends_everything() {
    for io in io_modes() {
        let reactor = fake_loop(io);
        let talk = |round: u8| {
            let reactor = reactor.clone();
            async move {
                let (connection, server) = pair(&reactor);
                let _ = server.receive(&mut [0]); // It may not know yet that there is nothing.
                let listener = Socket::readable(&server);
                // The server waits, sends data that nobody takes, and receives Terminate and the end of the
                // stream.
                assert!(reactor.until(Nanos(u64::from(round)), listener).await.is_none());
                send_all(&server, &[round]).await.expect("sent");
                drop(connection);
                let (mut heard, mut space) = (Vec::new(), [0; 16]);
                loop {
                    server.readable().await;
                    match server.receive(&mut space) {
                        Ok(count) => heard.extend_from_slice(&space[..count.unwrap_or(0)]),
                        Err(error) => break assert!(matches!(error, Error::Closed), "{error}"),
                    }
                }
                assert_eq!(heard, [b'X', 0, 0, 0, 4]);
            }
        };
        // The second round reuses the lines of the first.
        for round in [1, 2] {
            let talks = (0..50).map(|_| Box::pin(talk(round)) as crate::Routine<'_>);
            reactor.run(talks.collect()).expect("no stall");
        }
    }
}

#[test]
fn bytes_that_exceed_the_socket_buffer_arrive_once_and_in_order() {
    for io in io_modes() {
        let reactor = fake_loop(io);
        let (mut connection, server) = pair(&reactor);
        let text = |number: usize| number.to_string().repeat(60_000);
        let mut expected = Vec::new();
        (0..9).for_each(|number| frontend::query(&mut expected, &text(number)).expect("a message"));
        let speak = async {
            for number in 0..9 {
                frontend::query(connection.out(), &text(number)).expect("a message");
                connection.flush().await.expect("sent");
            }
        };
        let listen = async {
            let (mut heard, mut space) = (Vec::new(), vec![0; 10_000]);
            while heard.len() < expected.len() {
                server.readable().await;
                let count = server.receive(&mut space).expect("received").unwrap_or(0);
                heard.extend_from_slice(&space[..count]);
            }
            assert!(heard == expected, "by {io:?}");
        };
        reactor.run(vec![Box::pin(speak), Box::pin(listen)]).expect("no stall");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn random_bytes_cause_only_errors(bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1_usize..50) {
        let _ = answered(&bytes, piece);
    }

    #[test]
    fn corrupt_messages_cause_only_errors(
        messages in prop::collection::vec(
            (prop::sample::select(b"123ACDEGHIKNRSTZcdnstv".to_vec()), prop::collection::vec(any::<u8>(), 0..20)), 0..20),
        piece in 1_usize..50,
    ) {
        let bytes: Vec<u8> = messages.iter().flat_map(|(tag, body)| message(*tag, body)).collect();
        let _ = answered(&bytes, piece);
    }
}
