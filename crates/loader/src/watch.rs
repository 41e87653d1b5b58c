//! Ends the wait for a server: on order, or because the server answers nobody any more.
//!
//! A statement of a load may take hours, and no limit of time tells a long one from a dead server. So the server is asked
//! something over another connection now and then: as long as it answers there, the statement may go on.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;

use pgwire::conninfo::Conninfo;
use reactor::{Canceller, Connection, Error, Nanos, Reactor};

/// Limit on connecting, login included.
pub const CONNECT_TIMEOUT: Nanos = Nanos(30_000_000_000);
/// How often the server is asked whether it still answers.
const ASK_EVERY: Nanos = Nanos(30_000_000_000);
/// How soon an order to stop is seen, and how often statements are cancelled then.
const LOOK_FOR_STOP: Nanos = Nanos(50_000_000);
/// How long statements may take to end after an order to stop. With [`CLEAN_UP_TIMEOUT`] it is below the 5 s in which a
/// stopped program ends.
const STOP_TIMEOUT: Nanos = Nanos(2_000_000_000);
/// How long taking back what was done may take after an order to stop.
pub const CLEAN_UP_TIMEOUT: Nanos = Nanos(2_000_000_000);

/// What a wait for a server goes by.
pub struct Watch<'a> {
    /// The loop that waits.
    pub reactor: &'a Reactor,
    /// Where the server is.
    pub conninfo: &'a Conninfo,
    /// Flags that order the end.
    pub stops: &'a [&'a AtomicBool],
}

impl Watch<'_> {
    /// Runs `work`. After an order to stop, `canceller` asks the server to end its statement. Fails when that does not end
    /// in time, or when the server answers on no connection.
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

    /// Returns when what goes on has not ended in time after an order to stop.
    async fn stopped(&self, canceller: Option<&Canceller>) -> Error {
        while !self.stops.iter().any(|stop| stop.load(Relaxed)) {
            self.reactor.sleep_until(self.reactor.now() + LOOK_FOR_STOP).await;
        }
        let give_up = self.reactor.now() + STOP_TIMEOUT;
        while self.reactor.now() < give_up {
            if let Some(canceller) = canceller {
                // Again and again, as it may be between two statements now.
                let _ = self.reactor.until(give_up, canceller.cancel(self.conninfo)).await;
            }
            self.reactor.sleep_until(give_up.min(self.reactor.now() + LOOK_FOR_STOP)).await;
        }
        Error::Timeout { waited_for: "ending the statement on order", limit: STOP_TIMEOUT }
    }

    /// Returns when the server has left a question unanswered. To be refused is an answer.
    async fn silent(&self) -> Error {
        loop {
            self.reactor.sleep_until(self.reactor.now() + ASK_EVERY).await;
            let ask =
                async { Connection::connect(self.reactor, self.conninfo).await?.simple("SELECT 1").await };
            if self.reactor.until(self.reactor.now() + CONNECT_TIMEOUT, ask).await.is_none() {
                return Error::Timeout {
                    waited_for: "asking whether it still works on a statement",
                    limit: CONNECT_TIMEOUT,
                };
            }
        }
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

    /// What comes of work that goes on for ever, beside a server that takes connections and never answers. By a clock that
    /// jumps.
    fn outcome(name: &str, stop: bool, work: impl Future<Output = u8>) -> Result<u8, String> {
        let folder = temp_dir().join(format!("pgdyno-watch-{}-{name}", process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).expect("a socket");
        let conninfo = conninfo::load(&format!("host={} user=u", folder.display())).expect("sound");
        let reactor = Reactor::new(Clock::fake()).expect("a loop");
        let stop = AtomicBool::new(stop);
        let watch = Watch { reactor: &reactor, conninfo: &conninfo, stops: &[&stop] };
        let ended = reactor.block_on(watch.over(None, work)).expect("no stall");
        drop(listener);
        fs::remove_dir_all(&folder).expect("removed");
        ended.map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_that_answers_on_no_connection_ends_the_wait() {
        let why = outcome("silent", false, pending()).expect_err("a limit");
        assert!(why.starts_with("no answer from the server within 30 s while asking whether"), "{why}");
    }

    #[test]
    fn a_statement_that_does_not_end_on_order_is_given_up() {
        let why = outcome("stopped", true, pending()).expect_err("a limit");
        assert!(why.starts_with("no answer from the server within 2 s while ending the statement"), "{why}");
    }

    #[test]
    fn work_that_ends_is_its_outcome() {
        assert_eq!(outcome("done", true, ready(7)), Ok(7));
    }
}
