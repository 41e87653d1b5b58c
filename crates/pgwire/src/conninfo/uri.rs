//! Connection strings of the form `postgresql://user:password@host:port,host:port/database?keyword=value&…`.
//!
//! Errors never contain the part before the host, nor the text after an `@` that should be percent-encoded.

use super::error::{ConninfoError, problem};

/// The text after the scheme, if `text` is a connection URI.
pub(super) fn rest_of(text: &str) -> Option<&str> {
    text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://"))
}

/// The pairs of keyword and value of the URI.
pub(super) fn parse(rest: &str) -> Result<Vec<(String, String)>, ConninfoError> {
    let mut pairs = Vec::new();
    let mut put = |keyword: &str, value: String| pairs.push((keyword.to_owned(), value));

    // As in libpq, an "@" before the first "/" ends the user part, whatever else that part contains.
    let (userinfo, rest) = match rest.find(['@', '/']) {
        Some(at) if rest[at..].starts_with('@') => (Some(&rest[..at]), &rest[at + 1..]),
        _ => (None, rest),
    };
    let (before_query, query) = split_at_first(rest, "?");
    let (hosts, dbname) = split_at_first(before_query, "/");
    if hosts.contains('@') {
        return Err(problem("more than one \"@\" before the database; write %40 for one inside a password"));
    }
    if let Some(userinfo) = userinfo {
        let (user, password) = split_at_first(userinfo, ":");
        if !user.is_empty() {
            put("user", decode(user, "user")?);
        }
        if let Some(password) = password.filter(|p| !p.is_empty()) {
            put("password", decode(password, "password")?);
        }
    }
    let (hosts, ports) = split_hosts(hosts)?;
    if !hosts.is_empty() {
        put("host", decode(&hosts, "host")?);
    }
    if !ports.is_empty() {
        put("port", decode(&ports, "port")?);
    }
    if let Some(dbname) = dbname.filter(|d| !d.is_empty()) {
        put("dbname", decode(dbname, "dbname")?);
    }
    for parameter in query.into_iter().flat_map(|q| q.split('&')).filter(|p| !p.is_empty()) {
        let (keyword, value) = parse_parameter(parameter)?;
        put(&keyword, value);
    }
    Ok(pairs)
}

/// One `keyword=value` of the query. JDBC's `ssl=true` is accepted, as in libpq.
fn parse_parameter(parameter: &str) -> Result<(String, String), ConninfoError> {
    let (keyword, value) = split_at_first(parameter, "=");
    let keyword = decode(keyword, "a parameter's name")?;
    let Some(value) = value else {
        return Err(problem(format!("the parameter \"{keyword}\" has no \"=\"")));
    };
    if value.contains('=') {
        return Err(problem(format!("more than one \"=\" in the parameter \"{keyword}\"; write %3D")));
    }
    let value = decode(value, &keyword)?;
    if keyword == "ssl" && value == "true" {
        return Ok(("sslmode".to_owned(), "require".to_owned()));
    }
    Ok((keyword, value))
}

/// The hosts and the ports of `host:port,[ipv6]:port,…`, each separated by commas. Ports are empty if none is
/// given.
fn split_hosts(text: &str) -> Result<(String, String), ConninfoError> {
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for part in text.split(',') {
        let (host, port) = match part.strip_prefix('[') {
            Some(bracketed) => split_bracketed(bracketed)?,
            None => split_at_first(part, ":"),
        };
        hosts.push(host);
        ports.push(port.unwrap_or(""));
    }
    let join = |parts: Vec<&str>| {
        if parts.iter().all(|p| p.is_empty()) { String::new() } else { parts.join(",") }
    };
    Ok((join(hosts), join(ports)))
}

/// `::1]:5432` as address and port.
fn split_bracketed(text: &str) -> Result<(&str, Option<&str>), ConninfoError> {
    let Some((host, rest)) = text.split_once(']') else {
        return Err(problem("an IPv6 address lacks its \"]\""));
    };
    if host.is_empty() {
        return Err(problem("an IPv6 address is empty"));
    }
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(problem("only \":\" and a port may follow the \"]\" of an IPv6 address")),
    }
}

fn split_at_first<'a>(text: &'a str, mark: &str) -> (&'a str, Option<&'a str>) {
    text.split_once(mark).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// Decodes `%XX`. The result must be UTF-8 without zero bytes.
fn decode(text: &str, what: &str) -> Result<String, ConninfoError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let byte = match after {
            [high, low, ..] => hex(*high).zip(hex(*low)).map(|(high, low)| 16 * high + low),
            _ => None,
        };
        let Some(byte) = byte else {
            return Err(problem(format!(
                "{what}: two hexadecimal digits must follow \"%\" (write %25 for itself)"
            )));
        };
        if byte == 0 {
            return Err(problem(format!("{what}: %00 is not allowed")));
        }
        bytes.push(byte);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| problem(format!("{what}: not UTF-8 once decoded")))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}
