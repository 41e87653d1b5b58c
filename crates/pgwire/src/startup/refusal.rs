//! Errors of the server before the session is ready, translated for the user.

use super::super::SqlState;
use super::super::backend::ServerError;
use super::error::StartupError;

/// The startup error for an error of the server.
pub(super) fn of(error: &ServerError, user: &str, dbname: &str) -> StartupError {
    let server_error = Box::new(error.clone());
    match error.sqlstate {
        SqlState::INVALID_PASSWORD => StartupError::WrongPassword { user: user.to_owned(), server_error },
        SqlState::INVALID_CATALOG_NAME => {
            StartupError::NoDatabase { dbname: dbname.to_owned(), server_error }
        }
        _ => StartupError::Refused(server_error),
    }
}
