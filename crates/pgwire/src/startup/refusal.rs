//! What a server's error before the session is ready means for the user.

use super::super::backend::ServerError;
use super::super::{SqlState, WireError};

/// The error that fits the server's.
pub(super) fn of(error: &ServerError, user: &str, dbname: &str) -> WireError {
    let told = Box::new(error.clone());
    match error.sqlstate {
        SqlState::INVALID_PASSWORD => WireError::WrongPassword { user: user.to_owned(), told },
        SqlState::INVALID_CATALOG_NAME => WireError::NoDatabase { dbname: dbname.to_owned(), told },
        _ => WireError::Refused(told),
    }
}
