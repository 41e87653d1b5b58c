//! A scripted server. It responds to each statement with the next reply, and records the messages.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use reactor::{Connection, Reactor, Socket};

/// Reply to a statement.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    /// Completed without rows.
    Done,
    /// Columns and their rows; `-` is null.
    Rows(&'static [&'static str], &'static [&'static [&'static str]]),
    /// An error with this SQLSTATE.
    Error(&'static str),
    /// CopyInResponse.
    CopyIn,
}

/// See the module. The last reply is repeated.
pub struct Server {
    replies: RefCell<Vec<Reply>>,
    /// One line per message: its type and contents.
    pub received: RefCell<Vec<String>>,
}

impl Server {
    pub fn new(replies: &[Reply]) -> Rc<Self> {
        let replies = RefCell::new(replies.iter().rev().copied().collect());
        Rc::new(Self { replies, received: RefCell::default() })
    }

    /// A connection to it, and the future of the server.
    pub fn connect(self: &Rc<Self>, reactor: &Reactor) -> (Connection, impl Future<Output = ()> + use<>) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (ours, theirs) = pair.expect("a pair of sockets");
        let connection = Connection::new(Socket::new(reactor, ours).expect("a socket"));
        (connection, Rc::clone(self).serve(reactor.clone(), theirs))
    }

    async fn serve(self: Rc<Self>, reactor: Reactor, fd: OwnedFd) {
        let socket = Socket::new(&reactor, fd).expect("a socket");
        let (mut received, mut space) = (Vec::new(), [0; 4096]);
        let mut session = Session { status: b'I', reply: Reply::Done, skips: false, out: Vec::new() };
        loop {
            socket.readable().await;
            match socket.receive(&mut space) {
                Ok(count) => received.extend_from_slice(&space[..count.unwrap_or(0)]),
                Err(_) => return,
            }
            while let Some((tag, body)) = take_message(&mut received) {
                self.answer(&mut session, tag, &body);
            }
            let sent = socket.send(&mut session.out, 0).ok().flatten();
            assert_eq!(sent.unwrap_or(0), session.out.len(), "answers are short");
            session.out.clear();
        }
    }

    fn answer(&self, session: &mut Session, tag: u8, body: &[u8]) {
        let shown = String::from_utf8_lossy(body).replace('\0', "|");
        let line = match tag {
            b'Q' | b'P' => format!("{}{}", tag as char, shown.trim_end_matches(['|', ';', ' ', '\n'])),
            b'B' => format!("B{}", bound(body)),
            _ => (tag as char).to_string(),
        };
        self.received.borrow_mut().push(line);
        if session.skips && tag != b'S' {
            return;
        }
        match tag {
            b'Q' => {
                session.reply = self.next_reply(&shown);
                session.describe();
                session.execute(&shown);
                session.ready();
            }
            b'P' => session.put(b'1', &[]),
            b'B' => {
                session.reply = self.next_reply("");
                session.put(b'2', &[]);
            }
            b'D' => session.describe(),
            b'E' => session.execute(""),
            b'S' => session.ready(),
            _ => {}
        }
    }

    fn next_reply(&self, sql: &str) -> Reply {
        if sql.starts_with("ROLLBACK") {
            return Reply::Done;
        }
        let mut replies = self.replies.borrow_mut();
        if replies.len() > 1 { replies.pop().expect("a reply") } else { replies[0] }
    }
}

struct Session {
    status: u8,
    reply: Reply,
    /// Whether an error occurred since the last Sync.
    skips: bool,
    out: Vec<u8>,
}

impl Session {
    fn put(&mut self, tag: u8, body: &[u8]) {
        self.out.push(tag);
        self.out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        self.out.extend_from_slice(body);
    }

    fn describe(&mut self) {
        let Reply::Rows(columns, _) = self.reply else { return };
        let mut body = (columns.len() as u16).to_be_bytes().to_vec();
        for column in columns {
            body.extend_from_slice(column.as_bytes());
            body.extend_from_slice(&[0; 19]);
        }
        self.put(b'T', &body);
    }

    fn execute(&mut self, sql: &str) {
        match self.reply {
            Reply::CopyIn => return self.put(b'G', &[0, 0, 0]),
            Reply::Error(code) => {
                self.status = if self.status == b'I' { b'I' } else { b'E' };
                self.skips = true;
                let fields = format!("SERROR\0VERROR\0C{code}\0Mscripted\0\0");
                return self.put(b'E', fields.as_bytes());
            }
            Reply::Rows(_, rows) => {
                for row in rows {
                    let mut body = (row.len() as u16).to_be_bytes().to_vec();
                    for value in *row {
                        let length = if *value == "-" { -1 } else { value.len() as i32 };
                        body.extend_from_slice(&length.to_be_bytes());
                        body.extend_from_slice(if *value == "-" { b"" } else { value.as_bytes() });
                    }
                    self.put(b'D', &body);
                }
            }
            Reply::Done => {}
        }
        match sql.split(['|', ' ', ';']).next() {
            Some("begin") => self.status = b'T',
            Some("end" | "ROLLBACK") => self.status = b'I',
            _ => {}
        }
        self.put(b'C', b"X\0");
    }

    fn ready(&mut self) {
        self.skips = false;
        self.put(b'Z', &[self.status]);
    }
}

/// The statement and the parameters of Bind.
fn bound(body: &[u8]) -> String {
    let mut parts = body[1..].splitn(2, |&byte| byte == 0);
    let (name, rest) = (parts.next().expect("a name"), parts.next().expect("parameters"));
    let mut line = String::from_utf8_lossy(name).into_owned();
    let mut rest = &rest[4..];
    while rest.len() > 2 {
        let length = i32::from_be_bytes(rest[..4].try_into().expect("a length"));
        let end = 4 + length.max(0) as usize;
        let value = String::from_utf8_lossy(&rest[4..end]);
        line.push('|');
        line.push_str(if length < 0 { "null" } else { &value });
        rest = &rest[end..];
    }
    line
}

fn take_message(received: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let length = 1 + u32::from_be_bytes(received.get(1..5)?.try_into().expect("four bytes")) as usize;
    let message: Vec<u8> = (received.len() >= length).then(|| received.drain(..length).collect())?;
    Some((message[0], message[5..].to_vec()))
}
