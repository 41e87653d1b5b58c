//! Password file: lines of `host:port:database:user:password`. The first match is used.

use super::target::{Address, Conninfo, DEFAULT_PORT, DEFAULT_SOCKET_DIRECTORY, Host, Password};

impl Conninfo {
    /// Sets the password of each host without one from a password file.
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

/// The password in a password file for a connection.
///
/// `*` matches any value, a backslash escapes the next character, and a line that starts with `#` is a comment.
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

/// The name of a host in a password file: `localhost` for a socket in the default directory.
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

/// Splits off a field at the next colon that is not escaped.
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
            // At the end of the text, a backslash is literal.
            '\\' => text.push(chars.next().unwrap_or('\\')),
            c => text.push(c),
        }
    }
    text
}
