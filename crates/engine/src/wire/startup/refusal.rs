//! What a server's error before the session is ready means for the user.

use super::super::backend::ServerError;
use super::super::{SqlState, WireError};

/// The error that fits the server's.
pub(super) fn of(error: &ServerError, user: &str, dbname: &str) -> WireError {
    match error.sqlstate {
        SqlState::INVALID_PASSWORD => WireError::WrongPassword { user: user.to_owned() },
        SqlState::INVALID_CATALOG_NAME => WireError::NoDatabase { dbname: dbname.to_owned() },
        _ => WireError::Refused(Box::new(error.clone())),
    }
}
