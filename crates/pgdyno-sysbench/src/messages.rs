//! Messages of errors, where sysbench prints them: on standard output.

use std::fmt::Display;

use reactor::{Error, print};
use sysbench::ScriptError;

/// Reports that a function of the script failed.
pub fn failed(function: &str, error: &ScriptError) {
    fatal(format_args!("`{function}' function failed: {error}"));
}

/// Reports an error that ends the program, where sysbench does: on standard output.
pub fn fatal(problem: impl Display) {
    // Where that cannot be written there is nobody to be told.
    let _ = print(format_args!("FATAL: {problem}\n"));
}

/// Reports that a client could not connect.
pub fn refusal(error: &Error) {
    fatal(format_args!("Connection to database failed: {error}"));
}

/// Reports an error of the server.
pub fn server_error(function: &str, message: &str, query: &str) {
    let result = if function == "PQprepare()" { "ERROR: " } else { "7" };
    fatal(format_args!("{function} failed: {result} {message}"));
    if !query.is_empty() {
        fatal(format_args!("failed query was: {query}"));
    }
}
