//! Work of one connection of a load.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::vec::IntoIter;

use super::dataset::{Job, Rows, Work};
use super::error::LoadError;
use super::phase::Phase;
use super::progress::Progress;
use pgwire::{copy, frontend};
use reactor::{Connection, Error};

/// State shared by all connections of a load.
pub struct Shared {
    /// Counters.
    pub progress: Progress,
    /// Set to end the load early, after a failure or a stop.
    pub stop: AtomicBool,
}

/// Pending jobs of one phase. A free connection takes the next one.
pub struct Queue {
    /// Phase of the jobs.
    pub phase: Phase,
    /// The jobs, the most expensive first.
    pub jobs: Mutex<IntoIter<Job>>,
}

impl Queue {
    fn take(&self) -> Option<Job> {
        self.jobs.lock().ok()?.next()
    }
}

/// Executes jobs until the queue is empty.
pub async fn work(connection: &mut Connection, queue: &Queue, shared: &Shared) -> Result<(), LoadError> {
    while let Some(job) = queue.take() {
        if shared.stop.load(Relaxed) {
            return Ok(());
        }
        shared.progress.begin(job.table);
        let done = match &job.work {
            Work::Statements(statements) => each(connection, statements, shared).await,
            Work::Copy { begin, copy, rows, end } => {
                fill(connection, [begin, copy, end], job.table, rows.as_ref(), shared).await
            }
        };
        done.map_err(|(error, statement)| {
            LoadError::from_statement(queue.phase.stage(), &job.doing, statement, &error)
        })?;
    }
    Ok(())
}

/// An error and its statement.
type Failure<'a> = (Error, &'a str);

async fn each<'a>(
    connection: &mut Connection,
    statements: &'a [String],
    shared: &Shared,
) -> Result<(), Failure<'a>> {
    for statement in statements.iter().take_while(|_| !shared.stop.load(Relaxed)) {
        connection.simple(statement).await.map_err(|error| (error, statement.as_str()))?;
    }
    Ok(())
}

/// Fills a table in one transaction, so that rows are frozen and become visible together.
async fn fill<'a>(
    connection: &mut Connection,
    [begin, copy_in, end]: [&'a str; 3],
    table: usize,
    rows: &dyn Rows,
    shared: &Shared,
) -> Result<(), Failure<'a>> {
    connection.simple(begin).await.map_err(|error| (error, begin))?;
    if copy_rows(connection, copy_in, table, rows, shared).await.map_err(|error| (error, copy_in))? {
        // Before the end, because its answer may be lost. Cleaning up accepts a table that is not there.
        shared.progress.filled(table);
        connection.simple(end).await.map_err(|error| (error, end))?;
    }
    Ok(())
}

/// Copies rows. Returns `false` if the load was stopped.
async fn copy_rows(
    connection: &mut Connection,
    copy_in: &str,
    table: usize,
    rows: &dyn Rows,
    shared: &Shared,
) -> Result<bool, Error> {
    frontend::query(connection.out(), copy_in)?;
    connection.flush().await?;
    connection.copy_in_begun().await?;
    if !send_rows(connection, table, rows, shared).await? {
        // Stopped: the server ends the COPY with an error, and `recover` rolls back.
        frontend::copy_fail(connection.out(), "stopped")?;
        connection.flush().await?;
        return match connection.recover().await {
            Err(error) if error.is_fatal() => Err(error),
            _ => Ok(false),
        };
    }
    frontend::copy_done(connection.out());
    connection.flush().await?;
    connection.answer().await?;
    Ok(true)
}

/// Sends all groups of rows. Returns `false` if the load was stopped.
async fn send_rows(
    connection: &mut Connection,
    table: usize,
    rows: &dyn Rows,
    shared: &Shared,
) -> Result<bool, Error> {
    let groups = rows.groups();
    for group in 0..groups {
        if shared.stop.load(Relaxed) {
            return Ok(false);
        }
        let out = connection.out();
        let begun = frontend::copy_data_begin(out);
        if group == 0 {
            copy::header(out);
        }
        let count = rows.append(group, out);
        if group + 1 == groups {
            copy::trailer(out);
        }
        frontend::copy_data_end(out, &begun)?;
        let bytes = out.len() as u64;
        connection.flush().await?;
        shared.progress.copied(table, count, bytes);
        // A message of the server during COPY is an error: a full disk is detected now, not after the last row. The
        // pause turns the loop: otherwise a lost connection, to which `flush` sends nothing, would not be detected.
        let reactor = connection.reactor().clone();
        reactor.pause().await;
        if let Some(said) = reactor.until(reactor.now(), connection.next()).await {
            said?;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use reactor::{Clock, Reactor, Socket};

    /// Rows of one byte per group, which count the groups that were appended.
    struct Counted {
        groups: u64,
        appended: AtomicU64,
    }

    impl Rows for Counted {
        fn groups(&self) -> u64 {
            self.groups
        }

        fn append(&self, _: u64, out: &mut Vec<u8>) -> u64 {
            out.push(0);
            self.appended.fetch_add(1, Relaxed);
            1
        }
    }

    fn counted(groups: u64) -> (Counted, Shared) {
        let shared = Shared { progress: Progress::new(1), stop: AtomicBool::new(false) };
        (Counted { groups, appended: AtomicU64::new(0) }, shared)
    }

    /// A session with a server that has sent these answers and closed it.
    fn abandoned(reactor: &Reactor, answers: &[u8]) -> Connection {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        theirs.write_all(answers).expect("sent");
        ours.set_nonblocking(true).expect("a socket");
        Connection::new(Socket::new(reactor, ours.into()).expect("a socket"))
    }

    #[test]
    fn a_copy_ends_with_its_connection() {
        let reactor = Reactor::new(Clock::monotonic()).expect("a loop");
        let mut connection = abandoned(&reactor, &[]);
        let (rows, shared) = counted(10_000);
        let sent = reactor.block_on(send_rows(&mut connection, 0, &rows, &shared)).expect("no stall");
        assert!(matches!(sent, Err(Error::Closed)), "{sent:?}");
        assert!(rows.appended.into_inner() < 10);
    }

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        [&[tag], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
    }

    #[test]
    fn a_table_may_be_filled_if_its_commit_has_no_answer() {
        let reactor = Reactor::new(Clock::monotonic()).expect("a loop");
        let in_transaction = message(b'Z', b"T");
        let begun = [message(b'C', b"BEGIN\0"), in_transaction.clone()].concat();
        let copied = [message(b'G', &[0, 0, 1, 0, 0]), message(b'C', b"COPY 1\0"), in_transaction].concat();
        let mut connection = abandoned(&reactor, &[begun, copied].concat());
        let (rows, shared) = counted(1);
        let statements = ["BEGIN", "COPY", "COMMIT"];
        let filled =
            reactor.block_on(fill(&mut connection, statements, 0, &rows, &shared)).expect("no stall");
        assert!(matches!(filled, Err((Error::Closed, "COMMIT"))), "{filled:?}");
        assert_eq!(shared.progress.tables_filled(), [0]);
    }
}
