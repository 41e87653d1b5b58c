//! Selection of one row by its key: pgbench's `-S` transaction on pgbench's table. It measures the driver more
//! than the server.

use serde::Deserialize;
use serde_json::Value;

use driver::{ClientId, Ending, Stream, User, Workload, WorkloadError};
use pgwire::frontend;
use reactor::{Connection, Error, Seen};

const SELECT: &str = include_str!("select_only.sql");
const STATEMENT: &str = "s";
/// The OID of `integer`, the type of `aid`.
const INT4: u32 = 23;

/// The select-only workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectOnly {
    /// Number of rows. Keys are uniform from 1 to this.
    accounts: u32,
}

impl SelectOnly {
    /// Reads the workload's part of a specification.
    pub fn read(workload: &Value) -> Result<Self, WorkloadError> {
        let read = Self::deserialize(workload)?;
        if !(1..=i32::MAX as u32).contains(&read.accounts) {
            return Err(WorkloadError::value("accounts is not between 1 and 2147483647"));
        }
        Ok(read)
    }
}

impl Workload for SelectOnly {
    type User = Reader;
    type Tally = ();

    fn kinds(&self) -> Vec<&str> {
        vec!["select"]
    }

    fn user(&self, client_id: ClientId) -> Reader {
        Reader { accounts: self.accounts, stream: Stream::new(client_id.seed), aid: 0 }
    }
}

/// A simulated user.
pub struct Reader {
    accounts: u32,
    stream: Stream,
    aid: i32,
}

impl User for Reader {
    type Tally = ();

    async fn prepare(&mut self, connection: &mut Connection) -> Result<(), Error> {
        connection.prepare(STATEMENT, SELECT, &[INT4]).await
    }

    #[inline]
    fn draw(&mut self, (): &mut ()) -> usize {
        self.aid = 1 + self.stream.below(u64::from(self.accounts)) as i32;
        0
    }

    #[inline]
    async fn attempt(&mut self, connection: &mut Connection) -> Result<Ending, Error> {
        let out = connection.out();
        frontend::bind(out, STATEMENT, &[&self.aid])?;
        frontend::execute(out);
        frontend::sync(out);
        connection.flush().await?;
        let mut seen = Seen::default();
        connection.read_over(&mut seen).await?;
        if seen.rows == 1 {
            return Ok(Ending::Committed);
        }
        let aid = self.aid;
        Err(Error::Workload(format!(
            "pgbench_accounts has {} rows with aid {aid}; accounts of the workload is wrong",
            seen.rows
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver::derive_seed;
    use serde_json::json;

    #[test]
    fn the_same_seed_gives_a_client_the_same_transactions() {
        let workload = SelectOnly::read(&json!({"accounts": 1_000_000})).expect("sound");
        let keys = |seed: u64, client: u32| {
            let client_id =
                ClientId { client, clients: 2, thread: 0, seed: derive_seed(seed, u64::from(client)) };
            let mut user = workload.user(client_id);
            (0..100)
                .map(|_| {
                    user.draw(&mut ());
                    user.aid
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(1, 0), keys(1, 0));
        assert_ne!(keys(1, 0), keys(1, 1));
        assert_ne!(keys(1, 0), keys(2, 0));
    }
}
