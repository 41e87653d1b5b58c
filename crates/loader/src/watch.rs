//! Limits on waiting for a server: a stop, or a server that does not respond to anyone.
//!
//! A statement of a load may take hours, so a timeout cannot distinguish a long one from a dead server. The
//! server is therefore queried over another connection from time to time. While it responds there, the
//! statement continues.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;

use pgwire::conninfo::Conninfo;
use reactor::{Canceller, Connection, Error, Failure, Nanos, Reactor, TextRows};

/// Timeout of connecting, including login.
pub const CONNECT_TIMEOUT: Nanos = Nanos(30_000_000_000);
/// Interval of the queries.
const ASK_EVERY: Nanos = Nanos(30_000_000_000);
/// Interval of checking for a stop, and of CancelRequests after it.
const LOOK_FOR_STOP: Nanos = Nanos(50_000_000);
/// Time limit of statements after a stop, and again of cleaning up: together below 5 s, the time limit of stopping the
/// program.
const STOP_TIMEOUT: Nanos = Nanos(2_000_000_000);

/// Context of a wait.
pub struct Watch<'a> {
    /// Event loop.
    pub reactor: &'a Reactor,
    /// Connection parameters.
    pub conninfo: &'a Conninfo,
    /// Flags that request a stop.
    pub stops: &'a [&'a AtomicBool],
}

impl Watch<'_> {
    /// Runs `work`. After a stop, `canceller` cancels its statement.
    ///
    /// Fails if the statement does not end in time, or if the server does not respond on any connection.
    pub async fn over<T>(
        &self,
        canceller: Option<&Canceller>,
        work: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let mut work = std::pin::pin!(work);
        let mut stopped = std::pin::pin!(self.stopped(canceller));
        let mut silent = std::pin::pin!(self.silent());
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            if let Poll::Ready(error) = stopped.as_mut().poll(context) {
                return Poll::Ready(Err(error));
            }
            silent.as_mut().poll(context).map(Err)
        })
        .await
    }

    /// Returns if the work has not ended in time after a stop.
    async fn stopped(&self, canceller: Option<&Canceller>) -> Error {
        while !self.stops.iter().any(|stop| stop.load(Relaxed)) {
            self.reactor.sleep_until(self.reactor.now() + LOOK_FOR_STOP).await;
        }
        let give_up = self.reactor.now() + STOP_TIMEOUT;
        while self.reactor.now() < give_up {
            if let Some(canceller) = canceller {
                // Repeat it, because the work may be between two statements.
                let _ = self.reactor.until(give_up, canceller.cancel(self.conninfo)).await;
            }
            self.reactor.sleep_until(give_up.min(self.reactor.now() + LOOK_FOR_STOP)).await;
        }
        Error::Timeout { waited_for: "ending the statement on order", limit: STOP_TIMEOUT }
    }

    /// Returns when the server has not responded to a query.
    async fn silent(&self) -> Error {
        loop {
            self.reactor.sleep_until(self.reactor.now() + ASK_EVERY).await;
            if self.reactor.until(self.reactor.now() + CONNECT_TIMEOUT, self.response()).await.is_none() {
                return Error::Timeout {
                    waited_for: "asking whether it still works on a statement",
                    limit: CONNECT_TIMEOUT,
                };
            }
        }
    }

    /// Returns when the server has responded to a query. An error is a response, except the end of the user's
    /// connect_timeout, which may be short: then the query is repeated.
    async fn response(&self) {
        while let Err(Error::Unconnected(attempts)) = self.ask().await {
            let last = attempts.0.last();
            if !last.is_some_and(|attempt| matches!(attempt.why, Failure::TimedOut)) {
                return;
            }
        }
    }

    async fn ask(&self) -> Result<TextRows, Error> {
        Connection::connect(self.reactor, self.conninfo).await?.simple("SELECT 1").await
    }
}

#[cfg(test)]
mod tests {
    use std::env::temp_dir;
    use std::future::{pending, ready};
    use std::os::unix::net::UnixListener;
    use std::{fs, process};

    use super::*;
    use pgwire::conninfo;
    use reactor::Clock;

    /// Longer than all limits.
    const ENOUGH: Nanos = Nanos(600_000_000_000);

    /// Outcome of work with a server that accepts connections and never responds, and with a fake clock. `more`:
    /// further connection parameters.
    fn outcome(name: &str, more: &str, stop: bool, work: impl Future<Output = u8>) -> Result<u8, String> {
        let folder = temp_dir().join(format!("pgdyno-watch-{}-{name}", process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).expect("a socket");
        let conninfo =
            conninfo::load("test", &[], &format!("host={} user=u {more}", folder.display())).expect("sound");
        let reactor = Reactor::new(Clock::fake()).expect("a loop");
        let stop = AtomicBool::new(stop);
        let watch = Watch { reactor: &reactor, conninfo: &conninfo, stops: &[&stop] };
        let ended = reactor.block_on(reactor.until(ENOUGH, watch.over(None, work))).expect("no stall");
        drop(listener);
        fs::remove_dir_all(&folder).expect("removed");
        let ended = ended.expect("a limit");
        ended.map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_that_responds_on_no_connection_ends_the_wait() {
        for (name, more) in [("silent", ""), ("impatient", "connect_timeout=5")] {
            let why = outcome(name, more, false, pending()).expect_err("a limit");
            assert!(why.starts_with("no answer from the server within 30 s while asking whether"), "{why}");
        }
    }

    #[test]
    fn a_statement_that_cannot_be_canceled_is_abandoned() {
        let why = outcome("stopped", "", true, pending()).expect_err("a limit");
        assert!(why.starts_with("no answer from the server within 2 s while ending the statement"), "{why}");
    }

    #[test]
    fn work_that_ends_returns_its_result() {
        assert_eq!(outcome("done", "", true, ready(7)), Ok(7));
    }
}
