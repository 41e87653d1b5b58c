//! The password file: lines of `host:port:database:user:password`; the first that matches counts.

use super::target::{Address, Conninfo, DEFAULT_PORT, DEFAULT_SOCKET_DIRECTORY, Host, Password};

impl Conninfo {
    /// Gives every host without a password the one that a password file has for it.
    pub fn use_passfile(&mut self, text: &str) {
        for host in &mut self.hosts {
            if host.password.is_none() {
                let (name, port) = key_of(host);
                host.password = password_from(text, &name, port, &self.dbname, &self.user).map(Password::new);
                host.is_password_from_file = host.password.is_some();
            }
        }
    }
}

/// The password that the text of a password file has for a connection.
///
/// `*` matches anything, a backslash takes the next character as it is, a line that begins with `#` is a comment.
#[must_use]
pub fn password_from(text: &str, host: &str, port: u16, dbname: &str, user: &str) -> Option<String> {
    let port = port.to_string();
    let wanted = [host, &port, dbname, user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut rest = line;
        for want in wanted {
            let (field, after) = split_field(rest);
            let matches = field == "*" || unescape(field) == want;
            rest = after.filter(|_| matches)?;
        }
        let (password, _) = split_field(rest);
        Some(unescape(password)).filter(|p| !p.is_empty())
    })
}

/// What a password file calls a host: a socket in the default directory is `localhost`.
pub(super) fn key_of(host: &Host) -> (String, u16) {
    match &host.address {
        Address::Tcp { port, .. } => (host.name.clone(), *port),
        Address::Unix(path) => {
            let port = path.extension().and_then(|p| p.to_str()).and_then(|p| p.parse().ok());
            let name = if host.name == DEFAULT_SOCKET_DIRECTORY { "localhost" } else { &host.name };
            (name.to_owned(), port.unwrap_or(DEFAULT_PORT))
        }
    }
}

/// A field up to the next colon that no backslash precedes, and what follows that colon.
fn split_field(text: &str) -> (&str, Option<&str>) {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ':' => return (&text[..at], Some(&text[at + 1..])),
            _ => {}
        }
    }
    (text, None)
}

fn unescape(field: &str) -> String {
    let mut chars = field.chars();
    let mut text = String::with_capacity(field.len());
    while let Some(c) = chars.next() {
        match c {
            // At the very end a backslash stands for itself.
            '\\' => text.push(chars.next().unwrap_or('\\')),
            c => text.push(c),
        }
    }
    text
}
