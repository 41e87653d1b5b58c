//! Transactions that leave a trace, and a ledger of them outside of the server: after a crash, every acknowledged one must be there.
//!
//! Each transaction inserts one row and overwrites another one. Both hold the client, the number of the transaction and a checksum of the
//! two. They are the whole transaction, or a part of a transaction of another workload.
//!
//! The ledger is a file of records of 24 bytes: client (u32), event (u32: 1 sent, 2 acknowledged, 3 rolled back by design), number of
//! the transaction (u64), and the instant on the monotonic clock in nanoseconds (u64), all little-endian. A record is appended before the
//! client goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use driver::{ClientId, Ending, User, Workload, WorkloadError, derive_seed};
use pgwire::frontend;
use reactor::{Connection, Error, Nanos, Seen, TransactionStatus, kernel_now};
use serde::Deserialize;
use serde_json::Value;

const WRITE: &str = include_str!("ledger.sql");
const STATEMENT: &str = "ledger";
const BEGIN: &str = "ledger_begin";
/// OIDs of the parameters: integer, bigint, bigint, text, integer.
const TYPES: [u32; 5] = [23, 20, 20, 25, 23];
/// The filler of a row is its checksum in hexadecimal, this often.
const FILLER_REPEATS: usize = 8;

/// When a transaction is recorded as acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Acknowledge {
    /// After the answer of the server.
    #[default]
    Answer,
    /// Before the answer. This is wrong, for a test of the test: the audit must find lost commits.
    Send,
}

/// The specification of the workload, or of the ledger of another workload.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Specification {
    /// The file, which is created or appended to.
    path: PathBuf,
    /// Part of every checksum, so that rows of another run are damage.
    key: u64,
    /// Rows per client that transactions overwrite.
    slots: u32,
    #[serde(default)]
    acknowledge: Acknowledge,
}

/// The workload.
pub struct Ledger {
    file: Arc<File>,
    key: u64,
    slots: u32,
    acknowledge: Acknowledge,
}

impl Ledger {
    /// Reads a specification and opens the file.
    pub fn read(workload: &Value) -> Result<Self, WorkloadError> {
        let Specification { path, key, slots, acknowledge } = Specification::deserialize(workload)?;
        if !(1..=i32::MAX as u32).contains(&slots) {
            return Err(WorkloadError::value("slots is not between 1 and 2147483647"));
        }
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|error| {
            WorkloadError::value(format!("cannot open the ledger {}: {error}", path.display()))
        })?;
        Ok(Self { file: Arc::new(file), key, slots, acknowledge })
    }
}

impl Workload for Ledger {
    type User = Writer;
    type Tally = ();

    fn kinds(&self) -> Vec<&str> {
        vec!["ledger"]
    }

    fn user(&self, client_id: ClientId) -> Writer {
        Writer {
            file: Arc::clone(&self.file),
            acknowledge: self.acknowledge,
            client: client_id.client,
            key: derive_seed(self.key, u64::from(client_id.client)),
            slots: self.slots,
            sequence: 0,
        }
    }
}

/// What a record says.
#[derive(Clone, Copy)]
enum Record {
    Sent = 1,
    Acknowledged = 2,
    RolledBack = 3,
}

/// A client of the ledger.
pub struct Writer {
    file: Arc<File>,
    acknowledge: Acknowledge,
    client: u32,
    key: u64,
    slots: u32,
    /// The number of the transaction, from 1. A transaction that failed is not repeated: its number stays in doubt.
    sequence: u64,
}

impl Writer {
    fn checksum(&self) -> u64 {
        derive_seed(self.key, self.sequence)
    }

    fn record(&self, record: Record) -> io::Result<()> {
        let mut bytes = [0; 24];
        bytes[..4].copy_from_slice(&self.client.to_le_bytes());
        bytes[4..8].copy_from_slice(&(record as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..].copy_from_slice(&kernel_now().0.to_le_bytes());
        (&*self.file).write_all(&bytes)
    }

    fn note(&self, record: Record) -> Result<(), Error> {
        self.record(record).map_err(|error| Error::Workload(format!("cannot write the ledger: {error}")))
    }

    /// Records that the transaction is sent.
    fn sent(&self) -> Result<(), Error> {
        self.note(Record::Sent)?;
        if self.acknowledge == Acknowledge::Send {
            self.note(Record::Acknowledged)?;
        }
        Ok(())
    }

    /// Records that the server has acknowledged the commit.
    fn committed(&self) -> Result<(), Error> {
        if self.acknowledge == Acknowledge::Answer {
            self.note(Record::Acknowledged)?;
        }
        Ok(())
    }

    /// Executes the two changes, and before them those statements that are in the output buffer.
    async fn change(&self, connection: &mut Connection) -> Result<(), Error> {
        let checksum = self.checksum();
        let slot = (checksum % u64::from(self.slots)) as i32;
        let filler = format!("{checksum:016x}").repeat(FILLER_REPEATS);
        let out = connection.out();
        let (client, sequence, signed) = (self.client as i32, self.sequence as i64, checksum as i64);
        frontend::bind(out, STATEMENT, &[&client, &sequence, &signed, &filler, &slot])?;
        frontend::execute(out);
        frontend::sync(out);
        connection.flush().await?;
        connection.read_over(&mut Seen::default()).await
    }
}

impl User for Writer {
    type Tally = ();

    async fn prepare(&mut self, connection: &mut Connection) -> Result<(), Error> {
        connection.prepare(STATEMENT, WRITE, &TYPES).await
    }

    fn draw(&mut self, (): &mut ()) -> usize {
        self.sequence += 1;
        0
    }

    async fn attempt(&mut self, connection: &mut Connection) -> Result<Ending, Error> {
        self.sent()?;
        self.change(connection).await?;
        self.committed()?;
        Ok(Ending::Committed)
    }
}

/// A workload whose transactions also write what the ledger writes.
///
/// The ledger begins a transaction and makes its changes. The workload's own BEGIN then has no effect except a
/// warning, and its COMMIT ends both. Statements that commit themselves stay in the transaction, which is ended here.
/// Not for workloads with due times of their own, restarts, or rollbacks within transactions.
pub struct WithLedger<W> {
    workload: W,
    ledger: Ledger,
}

impl<W> WithLedger<W> {
    /// Adds a ledger to a workload.
    pub fn new(workload: W, ledger: Ledger) -> Self {
        Self { workload, ledger }
    }
}

impl<W: Workload> Workload for WithLedger<W> {
    type User = WriterOf<W::User>;
    type Tally = W::Tally;

    fn kinds(&self) -> Vec<&str> {
        self.workload.kinds()
    }

    fn counters(&self) -> &'static [&'static str] {
        self.workload.counters()
    }

    fn user(&self, client_id: ClientId) -> Self::User {
        WriterOf { user: self.workload.user(client_id), writer: self.ledger.user(client_id) }
    }
}

/// A client of a workload with a ledger.
pub struct WriterOf<U> {
    user: U,
    writer: Writer,
}

impl<U: User> User for WriterOf<U> {
    type Tally = U::Tally;

    async fn prepare(&mut self, connection: &mut Connection) -> Result<(), Error> {
        self.user.prepare(connection).await?;
        connection.prepare(BEGIN, "BEGIN", &[]).await?;
        self.writer.prepare(connection).await
    }

    fn draw(&mut self, tally: &mut U::Tally) -> usize {
        self.writer.draw(&mut ());
        self.user.draw(tally)
    }

    fn redraw(&mut self, tally: &mut U::Tally) -> Option<usize> {
        self.user.redraw(tally)
    }

    async fn attempt(&mut self, connection: &mut Connection) -> Result<Ending, Error> {
        self.writer.sent()?;
        frontend::bind(connection.out(), BEGIN, &[])?;
        frontend::execute(connection.out());
        self.writer.change(connection).await?;
        let ending = self.user.attempt(connection).await?;
        if connection.transaction_status() != TransactionStatus::Idle {
            connection.simple(if ending == Ending::Committed { "COMMIT" } else { "ROLLBACK" }).await?;
        }
        match ending {
            Ending::Committed => self.writer.committed()?,
            Ending::RolledBack => self.writer.note(Record::RolledBack)?,
        }
        Ok(ending)
    }

    fn add_to_counters(&self, is_committed: bool, counters: &mut [u64]) {
        self.user.add_to_counters(is_committed, counters);
    }

    fn keying(&self) -> Nanos {
        self.user.keying()
    }

    fn thinking(&mut self) -> Nanos {
        self.user.thinking()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ledger_in(path: &std::path::Path) -> Result<Ledger, WorkloadError> {
        Ledger::read(&json!({"path": path, "key": 7, "slots": 10}))
    }

    #[test]
    fn records_are_appended_in_the_documented_format() {
        let path = std::env::temp_dir().join(format!("pgdyno-ledger-{}", std::process::id()));
        let ledger = ledger_in(&path).expect("sound");
        let mut user = ledger.user(ClientId { client: 3, clients: 4, thread: 0, seed: 1 });
        user.draw(&mut ());
        user.record(Record::Sent).expect("a file");
        user.record(Record::Acknowledged).expect("a file");
        let bytes = std::fs::read(&path).expect("a file");
        std::fs::remove_file(&path).expect("it was there");
        assert_eq!(bytes.len(), 48);
        assert_eq!(bytes[..16], [3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[24..40], [3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert!(bytes[16..24] != [0; 8]);
    }

    /// The audit computes the same numbers: python/pgdyno/features/crash_disk/tests/test_ledger.py has them, too.
    #[test]
    fn the_checksum_is_that_of_the_audit() {
        assert_eq!(derive_seed(derive_seed(7, 3), 1), 9_039_918_076_914_087_103);
    }

    #[test]
    fn a_ledger_that_cannot_be_written_is_refused() {
        assert!(ledger_in(std::path::Path::new("/nowhere/ledger")).is_err());
    }

    /// A user who draws another kind in place of a transaction that failed.
    struct Redrawing;

    impl User for Redrawing {
        type Tally = ();

        async fn prepare(&mut self, _: &mut Connection) -> Result<(), Error> {
            Ok(())
        }

        fn draw(&mut self, (): &mut ()) -> usize {
            0
        }

        fn redraw(&mut self, (): &mut ()) -> Option<usize> {
            Some(1)
        }

        async fn attempt(&mut self, _: &mut Connection) -> Result<Ending, Error> {
            Ok(Ending::Committed)
        }
    }

    #[test]
    fn a_retry_is_drawn_anew_with_a_ledger_as_without() {
        let ledger = ledger_in(std::path::Path::new("/dev/null")).expect("sound");
        let writer = ledger.user(ClientId { client: 0, clients: 1, thread: 0, seed: 1 });
        let mut user = WriterOf { user: Redrawing, writer };
        assert_eq!((user.draw(&mut ()), user.redraw(&mut ())), (0, Some(1)));
    }
}
