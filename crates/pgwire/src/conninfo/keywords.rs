//! libpq's keywords: supported ones, and unsupported ones that are rejected.

use super::error::ConninfoError;

/// Supported keywords, and their environment variables.
pub(super) const KEYWORDS: [(&str, Option<&str>); 16] = [
    ("host", Some("PGHOST")),
    ("hostaddr", Some("PGHOSTADDR")),
    ("port", Some("PGPORT")),
    ("user", Some("PGUSER")),
    ("password", Some("PGPASSWORD")),
    ("dbname", Some("PGDATABASE")),
    ("passfile", Some("PGPASSFILE")),
    ("sslmode", Some("PGSSLMODE")),
    ("sslrootcert", Some("PGSSLROOTCERT")),
    ("channel_binding", Some("PGCHANNELBINDING")),
    ("application_name", Some("PGAPPNAME")),
    ("fallback_application_name", None),
    ("options", Some("PGOPTIONS")),
    ("connect_timeout", Some("PGCONNECT_TIMEOUT")),
    ("target_session_attrs", Some("PGTARGETSESSIONATTRS")),
    ("client_encoding", Some("PGCLIENTENCODING")),
];

/// Unsupported keywords of libpq: the variable, the values without effect, and the error for other values.
///
/// Ignoring other values would silently change the meaning of the connection string.
pub(super) const REFUSED: [(&str, Option<&str>, &[&str], &str); 28] = [
    (
        "service",
        Some("PGSERVICE"),
        &[],
        "service files are not read; give the connection's parameters themselves",
    ),
    ("servicefile", Some("PGSERVICEFILE"), &[], "service files are not read"),
    ("sslcert", Some("PGSSLCERT"), &[], "client certificates are not supported; use a password"),
    ("sslkey", Some("PGSSLKEY"), &[], "client certificates are not supported; use a password"),
    ("sslpassword", None, &[], "client certificates are not supported; use a password"),
    ("sslcertmode", Some("PGSSLCERTMODE"), &["disable", "allow"], "client certificates are not supported"),
    ("sslcrl", Some("PGSSLCRL"), &[], "lists of revoked certificates are not supported"),
    ("sslcrldir", Some("PGSSLCRLDIR"), &[], "lists of revoked certificates are not supported"),
    ("sslnegotiation", Some("PGSSLNEGOTIATION"), &["postgres"], "only \"postgres\" is supported"),
    ("sslcompression", Some("PGSSLCOMPRESSION"), &["0"], "TLS compression is not supported"),
    ("sslsni", Some("PGSSLSNI"), &["1"], "the server's name is always sent"),
    (
        "ssl_min_protocol_version",
        Some("PGSSLMINPROTOCOLVERSION"),
        &["TLSv1", "TLSv1.1", "TLSv1.2"],
        "TLS 1.2 and 1.3 are offered",
    ),
    (
        "ssl_max_protocol_version",
        Some("PGSSLMAXPROTOCOLVERSION"),
        &["TLSv1.3"],
        "TLS 1.2 and 1.3 are offered",
    ),
    ("requiressl", Some("PGREQUIRESSL"), &["0"], "it is obsolete; write sslmode=require"),
    ("require_auth", Some("PGREQUIREAUTH"), &[], "it is not supported; channel_binding=require is"),
    ("requirepeer", Some("PGREQUIREPEER"), &[], "the owner of a socket is not checked"),
    ("krbsrvname", Some("PGKRBSRVNAME"), &["postgres"], "Kerberos is not supported"),
    ("gsslib", Some("PGGSSLIB"), &[], "GSSAPI is not supported"),
    ("gssencmode", Some("PGGSSENCMODE"), &["disable", "prefer"], "GSSAPI encryption is not supported"),
    ("gssdelegation", Some("PGGSSDELEGATION"), &["0"], "GSSAPI is not supported"),
    ("replication", None, &["false", "off", "no", "0"], "replication connections are not supported"),
    ("keepalives", None, &["1"], "the operating system's keepalives are used"),
    ("keepalives_idle", None, &["0"], "the operating system's keepalives are used"),
    ("keepalives_interval", None, &["0"], "the operating system's keepalives are used"),
    ("keepalives_count", None, &["0"], "the operating system's keepalives are used"),
    ("tcp_user_timeout", None, &["0"], "it is not supported"),
    ("load_balance_hosts", Some("PGLOADBALANCEHOSTS"), &["disable"], "the hosts are tried in order"),
    ("min_protocol_version", Some("PGMINPROTOCOLVERSION"), &["3.0"], "protocol 3.0 is spoken"),
];

/// Rejects an unknown keyword, and an unsupported value.
pub(super) fn check_keyword(keyword: &str, value: &str) -> Result<(), ConninfoError> {
    if KEYWORDS.iter().any(|(known, _)| *known == keyword) {
        return Ok(());
    }
    let Some((.., harmless, why)) = REFUSED.iter().find(|(known, ..)| *known == keyword) else {
        return Err(ConninfoError::UnknownKeyword { keyword: keyword.to_owned() });
    };
    if value.is_empty() || harmless.contains(&value) {
        return Ok(());
    }
    Err(ConninfoError::Unsupported { setting: keyword.to_owned(), why })
}
