//! Several statements and their answers, in one round trip each or in one for all.

use super::sql::Statement;
use pgwire::backend::{Message, ProtocolError, Row};
use pgwire::frontend::{self, EncodeError, Format, Parameter};
use reactor::{Connection, Error};

/// A connection and how it is used.
pub struct Session<'a> {
    pub connection: &'a mut Connection,
    pub pipeline: bool,
}

impl Session<'_> {
    /// Carries out `count` statements, none of which needs the answer of another one. `send` appends the one of an
    /// index, `read` gets the index and a row of its answer. Leaves at the first error.
    pub async fn exchange(
        &mut self,
        count: usize,
        mut send: impl FnMut(&mut Vec<u8>, usize) -> Result<(), EncodeError>,
        mut read: impl FnMut(usize, Row<'_>) -> Result<(), ProtocolError>,
    ) -> Result<(), Error> {
        let step = if self.pipeline { count } else { 1 };
        let mut first = 0;
        while first < count {
            for index in first..first + step {
                send(self.connection.out(), index)?;
            }
            frontend::sync(self.connection.out());
            self.connection.flush().await?;
            self.answers(first, &mut read).await?;
            first += step;
        }
        Ok(())
    }

    async fn answers(
        &mut self,
        first: usize,
        read: &mut impl FnMut(usize, Row<'_>) -> Result<(), ProtocolError>,
    ) -> Result<(), Error> {
        let mut index = first;
        loop {
            match self.connection.next().await? {
                Message::DataRow(row) => read(index, row)?,
                Message::CommandComplete(_) => index += 1,
                Message::ReadyForQuery(_) => return Ok(()),
                _ => {}
            }
        }
    }
}

/// Appends one prepared statement with its parameters.
pub fn call(
    out: &mut Vec<u8>,
    statement: Statement,
    parameters: &[&dyn Parameter],
) -> Result<(), EncodeError> {
    frontend::bind(out, "", statement.name(), parameters, Format::Binary)?;
    frontend::execute(out, "", 0)
}

/// For statements whose rows are taken in but not looked at.
#[allow(clippy::unnecessary_wraps)] // It takes the place of a reader that can fail.
pub fn ignore(_: usize, _: Row<'_>) -> Result<(), ProtocolError> {
    Ok(())
}

/// What a row had to give and did not: the dataset is damaged, or of another schema.
pub fn missing(what: &str) -> Error {
    Error::Workload(format!("the dataset has no {what}; load it again"))
}
