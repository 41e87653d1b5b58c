use std::net::IpAddr;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::json;

use super::hex;

use super::super::conninfo::{
    Address, ChannelBinding, Conninfo, ConninfoError, Host, Password, RootCertificates, SslMode,
    TargetSessionAttrs,
};

fn with_environment(text: &str, environment: &[(&str, &str)]) -> Result<Conninfo, ConninfoError> {
    let look_up = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    Conninfo::parse("test", &[], text, &look_up, Some("osuser"))
}

fn parsed(text: &str) -> Conninfo {
    with_environment(text, &[]).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// User, password, database and hosts in one line.
fn shown(conninfo: &Conninfo) -> String {
    let host = |h: &Host| h.address.to_string();
    let hosts: Vec<_> = conninfo.hosts.iter().map(host).collect();
    let password = conninfo.hosts[0].password.as_ref().map_or("-", Password::reveal);
    format!("{} {password} {} {}", conninfo.user, conninfo.dbname, hosts.join(" "))
}

#[test]
fn connection_strings_of_both_forms_are_parsed_as_by_libpq() {
    let socket = "/var/run/postgresql/.s.PGSQL.5432";
    let table = [
        ("", format!("osuser - osuser {socket}")),
        ("dbname=d", format!("osuser - d {socket}")),
        ("user=u", format!("u - u {socket}")),
        (" user = u\tpassword = 'a b'\n dbname=''", format!("u a b u {socket}")),
        (r"password='it\'s \\ it' user=a\ b", format!(r"a b it's \ it a b {socket}")),
        ("user=u user=v", format!("v - v {socket}")),
        ("password=x'y'z", format!("osuser x'y'z osuser {socket}")),
        ("host=h port=6000", "osuser - osuser h:6000".into()),
        ("host=a,b port=1,2", "osuser - osuser a:1 b:2".into()),
        ("host=a,b port=7", "osuser - osuser a:7 b:7".into()),
        ("host=a,,/run port=1,,3", format!("osuser - osuser a:1 {socket} /run/.s.PGSQL.3")),
        ("host=h hostaddr=10.0.0.1", "osuser - osuser 10.0.0.1:5432".into()),
        ("hostaddr=::1", "osuser - osuser [::1]:5432".into()),
        ("host=/tmp", "osuser - osuser /tmp/.s.PGSQL.5432".into()),
        ("postgresql://", format!("osuser - osuser {socket}")),
        ("postgres://h", "osuser - osuser h:5432".into()),
        ("postgresql://h/d", "osuser - d h:5432".into()),
        ("postgresql://u@h:6000/d", "u - d h:6000".into()),
        ("postgresql://u:p@h", "u p u h:5432".into()),
        ("postgresql://u:@h", "u - u h:5432".into()),
        ("postgresql://:p@h", "osuser p osuser h:5432".into()),
        ("postgresql://u%40x:p%3A%2f%25@h/d%20d", "u@x p:/% d d h:5432".into()),
        ("postgresql://u:p?q=r@h/d", "u p?q=r d h:5432".into()),
        ("postgresql://[::1]:6000/d", "osuser - d [::1]:6000".into()),
        ("postgresql://[fe80::1]", "osuser - osuser [fe80::1]:5432".into()),
        ("postgresql://a:1,b:2/d", "osuser - d a:1 b:2".into()),
        ("postgresql://a,b:2/d", "osuser - d a:5432 b:2".into()),
        ("postgresql://%2Frun%2Fpg/d", "osuser - d /run/pg/.s.PGSQL.5432".into()),
        ("postgresql:///d?host=/run&port=7", "osuser - d /run/.s.PGSQL.7".into()),
        ("postgresql://h/d?user=u&password=a%26b", "u a&b d h:5432".into()),
        ("postgresql://h?dbname=x", "osuser - x h:5432".into()),
        ("postgresql://h/?&", "osuser - osuser h:5432".into()),
        ("postgresql://localhost/a/b", "osuser - a/b localhost:5432".into()),
    ];
    for (text, expected) in table {
        assert_eq!(shown(&parsed(text)), expected, "{text}");
    }
}

#[test]
fn an_invalid_connection_string_is_an_error_with_its_reason() {
    let table = [
        ("user", "no \"=\" after the word at character 1"),
        ("user=u  oops", "no \"=\" after the word at character 9"),
        ("user='u", "the quote of user is not closed"),
        ("colour=red", "unknown keyword \"colour\""),
        ("postgresql://h?colour=red", "unknown keyword \"colour\""),
        ("postgresql://h?user", "the parameter \"user\" has no \"=\""),
        ("postgresql://h?user=a=b", "more than one \"=\" in the parameter \"user\""),
        ("postgresql://%zz", "host: two hexadecimal digits must follow"),
        ("postgresql://a%4", "host: two hexadecimal digits must follow"),
        ("postgresql://a%00", "%00 is not allowed"),
        ("postgresql://%ff", "host: not UTF-8"),
        ("postgresql://[::1", "lacks its \"]\""),
        ("postgresql://[]", "an IPv6 address is empty"),
        ("postgresql://[::1]x", "only \":\" and a port may follow"),
        ("postgresql://u:p@q@h", "more than one \"@\""),
        ("port=0", "port: invalid value; expected a number from 1 to 65535"),
        ("port=65536", "port: invalid value"),
        ("port=x", "port: invalid value"),
        ("host=a,b port=1,2,3", "3 ports for 2 hosts"),
        ("host=a hostaddr=1.1.1.1,2.2.2.2", "1 values of host for 2 of hostaddr"),
        ("hostaddr=name", "hostaddr: invalid value; expected an IPv4 or IPv6 address"),
        ("host=@abstract", "abstract sockets are not supported"),
        ("sslmode=yes", "sslmode: invalid value; expected disable, allow, prefer"),
        ("sslmode=''", "sslmode: invalid value"),
        ("sslrootcert=system sslmode=require", "sslrootcert=system needs sslmode=verify-full"),
        ("channel_binding=maybe", "channel_binding: invalid value; expected disable, prefer or require"),
        ("target_session_attrs=replica", "target_session_attrs: invalid value; expected any, read-write"),
        ("connect_timeout=soon", "connect_timeout: invalid value; expected a whole number of seconds"),
        ("client_encoding=auto", "client_encoding: invalid value; expected the name of an encoding"),
        ("service=prod", "service: service files are not read"),
        ("sslcert=me.crt", "sslcert: client certificates are not supported"),
        ("require_auth=scram-sha-256", "require_auth: it is not supported"),
        ("gssencmode=require", "gssencmode: GSSAPI encryption is not supported"),
        ("load_balance_hosts=random", "load_balance_hosts: the hosts are tried in order"),
        ("ssl_min_protocol_version=TLSv1.3", "ssl_min_protocol_version: TLS 1.2 and 1.3 are offered"),
    ];
    for (text, expected) in table {
        let error = with_environment(text, &[]).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn an_environment_variable_sets_a_keyword_that_is_not_given() {
    let environment = [
        ("PGHOST", "envhost"),
        ("PGPORT", "6001"),
        ("PGUSER", "envuser"),
        ("PGPASSWORD", "envpass"),
        ("PGDATABASE", "envdb"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", "/roots"),
        ("PGCHANNELBINDING", "require"),
        ("PGAPPNAME", "envapp"),
        ("PGOPTIONS", "-c jit=off"),
        ("PGCONNECT_TIMEOUT", "9"),
        ("PGTARGETSESSIONATTRS", "primary"),
        ("PGPASSFILE", "/pass"),
        ("HOME", "/home/me"),
    ];
    let conninfo = with_environment("", &environment).unwrap();
    assert_eq!(shown(&conninfo), "envuser envpass envdb envhost:6001");
    assert_eq!(conninfo.sslmode, SslMode::VerifyFull);
    assert_eq!(conninfo.root_certificates, RootCertificates::File(Some("/roots".into())));
    assert_eq!(conninfo.channel_binding, ChannelBinding::Require);
    assert_eq!(conninfo.application_name.as_deref(), Some("envapp"));
    assert_eq!(conninfo.options.as_deref(), Some("-c jit=off"));
    assert_eq!(conninfo.connect_timeout_s, Some(9));
    assert_eq!(conninfo.target_session_attrs, TargetSessionAttrs::Primary);
    assert_eq!(conninfo.passfile.as_deref(), Some(Path::new("/pass")));

    let none = with_environment("options=''", &environment).unwrap();
    assert_eq!(none.options.as_deref().unwrap_or_default(), "", "an empty value is given, too");

    let given = with_environment("postgresql://u:p@h:1/d?sslmode=disable", &environment).unwrap();
    assert_eq!(shown(&given), "u p d h:1");
    assert_eq!(given.sslmode, SslMode::Disable);
}

#[test]
fn an_unsupported_environment_variable_is_an_error_with_its_name() {
    let table = [
        ("PGSERVICE", "prod", Some("PGSERVICE: service files are not read")),
        ("PGREQUIREAUTH", "scram-sha-256", Some("PGREQUIREAUTH: it is not supported")),
        ("PGSSLCRL", "x", Some("PGSSLCRL: lists of revoked certificates")),
        ("PGPORT", "x", Some("PGPORT: invalid value")),
        ("PGSSLMODE", "x", Some("PGSSLMODE: invalid value")),
        ("PGGSSENCMODE", "prefer", None),
        ("PGSERVICE", "", None),
        ("PGSSLMODE", "", None),
    ];
    for (name, value, expected) in table {
        let result = with_environment("", &[(name, value)]);
        match expected {
            None => assert!(result.is_ok(), "{name}={value}"),
            Some(expected) => {
                let error = result.expect_err(name).to_string();
                assert!(error.starts_with(expected), "{error}");
            }
        }
    }
}

#[test]
fn the_defaults_are_those_of_libpq_on_debian() {
    let conninfo = with_environment("", &[("HOME", "/home/me")]).unwrap();
    let path = PathBuf::from("/var/run/postgresql/.s.PGSQL.5432");
    assert_eq!(conninfo.hosts.len(), 1);
    assert_eq!(conninfo.hosts[0].address, Address::Unix(path));
    assert_eq!(conninfo.hosts[0].password, None);
    assert_eq!(conninfo.sslmode, SslMode::Prefer);
    assert_eq!(conninfo.channel_binding, ChannelBinding::Prefer);
    assert_eq!(
        conninfo.root_certificates,
        RootCertificates::File(Some("/home/me/.postgresql/root.crt".into()))
    );
    assert_eq!(conninfo.passfile.as_deref(), Some(Path::new("/home/me/.pgpass")));
    assert_eq!(conninfo.connect_timeout_s, None);
    assert_eq!(conninfo.target_session_attrs, TargetSessionAttrs::Any);
    assert!(Conninfo::parse("test", &[], "", &|_| None, None).unwrap_err().to_string().contains("no user"));
}

#[test]
fn other_keywords_have_libpqs_meaning() {
    assert_eq!(parsed("sslrootcert=system").sslmode, SslMode::VerifyFull);
    assert_eq!(parsed("sslrootcert=system").root_certificates, RootCertificates::System);
    assert_eq!(parsed("postgresql://h?ssl=true").sslmode, SslMode::Require);
    assert_eq!(parsed("connect_timeout=0").connect_timeout_s, None);
    assert_eq!(parsed("connect_timeout=-1").connect_timeout_s, None);
    assert_eq!(parsed("fallback_application_name=f").application_name.as_deref(), Some("test"));
    assert_eq!(parsed("application_name=a").application_name.as_deref(), Some("a"));
    assert_eq!(
        parsed("client_encoding=utf-8 keepalives=1 sslnegotiation=postgres gssencmode=disable").user,
        "osuser"
    );
    let by_name = parsed("host=db.example hostaddr=192.0.2.1");
    let ip: IpAddr = [192, 0, 2, 1].into();
    let address = Address::Tcp { name: "db.example".into(), ip: Some(ip), port: 5432 };
    assert_eq!(
        by_name.hosts[0],
        Host { name: "db.example".into(), address, password: None, is_password_from_file: false }
    );
}

#[test]
fn programs_send_settings_of_the_environment() {
    let environment =
        [("PGCLIENTENCODING", "LATIN1"), ("PGTZ", "CET"), ("PGDATESTYLE", "German"), ("PGGEQO", "DEFAULT")];
    let begins = |text| {
        let parameters = with_environment(text, &environment).unwrap().parameters;
        parameters.iter().fold(String::new(), |text, (name, value)| text + name + "=" + value + " ")
    };
    assert_eq!(begins(""), "client_encoding=LATIN1 datestyle=German timezone=CET ");
    assert_eq!(begins("client_encoding=sjis"), "client_encoding=sjis datestyle=German timezone=CET ");
    assert_eq!(begins("client_encoding=''"), "datestyle=German timezone=CET ");
}

#[test]
fn the_engine_takes_resolved_values_and_reads_neither_environment_nor_files() {
    let read = |values| serde_json::from_value::<Conninfo>(values);
    let values = json!({"host": "a,/run", "port": "1,2", "user": "u", "client_encoding": "unicode",
        "sslmode": "require", "max_protocol_version": "latest", "passwords": ["hunter2", null]});
    let conninfo = read(values).unwrap();
    assert_eq!(shown(&conninfo), "u hunter2 u a:1 /run/.s.PGSQL.2");
    assert_eq!((&conninfo.hosts[1].password, &conninfo.passfile), (&None, &None));
    assert_eq!(conninfo.parameters, [("client_encoding", "UTF8".to_owned())]);
    assert_eq!(conninfo.root_certificates, RootCertificates::File(None));
    assert_eq!((conninfo.sslmode, conninfo.application_name), (SslMode::Require, None));

    let table = [
        (json!({}), "no user name"),
        (json!({"user": "u", "client_encoding": "latin1"}), "client_encoding: invalid value; expected UTF8"),
        (json!({"user": "u", "sslcert": "me.crt"}), "sslcert: client certificates are not supported"),
        (json!({"user": "u", "colour": "red"}), "unknown keyword \"colour\""),
        (json!({"user": "u", "port": "hunter2"}), "port: invalid value"),
        (json!({"user": "u", "max_protocol_version": "2.0"}), "max_protocol_version: protocol 3.0 is spoken"),
        (json!({"user": "u", "passwords": []}), "0 passwords for 1 hosts"),
        (json!({"user": "u", "host": "a", "passwords": ["hunter2", null]}), "2 passwords for 1 hosts"),
        (json!({"user": "u", "password": "hunter2"}), "password: give passwords, a list"),
        (json!({"user": "u", "passfile": "/p"}), "passfile: the engine reads no password file"),
    ];
    for (values, expected) in table {
        let error = read(values).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn options_set_keywords_that_a_string_does_not_set() {
    let read = |options, text| Conninfo::parse("test", options, text, &|_| None, Some("me"));
    let options = [("host", "a"), ("port", "1"), ("dbname", "o")];
    for (text, expected) in
        [("", "o at a:1 by me"), ("postgresql://b/d", "d at b:1 by me"), ("port=2 user=u", "o at a:2 by u")]
    {
        let found = read(&options, text).unwrap();
        assert_eq!(format!("{} at {} by {}", found.dbname, found.hosts[0].address, found.user), expected);
    }
}

#[test]
fn a_password_file_is_used_for_each_host_without_a_password() {
    let file = "a:1:d:u:for a\nlocalhost:5432:d:u:for the socket\n/run:*:*:*:for run\n";
    let mut conninfo = parsed("host=a,b,/var/run/postgresql,/run port=1,2,,3 user=u dbname=d");
    conninfo.use_passfile(file);
    let passwords: Vec<_> =
        conninfo.hosts.iter().map(|h| h.password.as_ref().map(Password::reveal)).collect();
    assert_eq!(passwords, [Some("for a"), None, Some("for the socket"), Some("for run")]);

    let mut given = parsed("host=a port=1 user=u dbname=d password=given");
    given.use_passfile(file);
    assert_eq!(shown(&given), "u given d a:1");
}

#[test]
fn no_debug_output_shows_a_password() {
    let texts = ["password=hunter2 host=h", "postgresql://u:hunter2@h/d"];
    for text in texts {
        assert!(!format!("{:?}", parsed(text)).contains("hunter2"));
    }
}

#[test]
fn no_error_shows_a_password_that_was_not_quoted_or_encoded() {
    let texts = [
        "user=u password=my hunter2",
        "user=u password='hunter2",
        "postgresql://u:x@hunter2@h/d",
        "postgresql://u:hunter2%@h/d",
        "postgresql://u:hunter2/x@h/d",
        "postgresql://u:x@y:hunter2@h/d",
        "postgresql://u:p@h:hunter2/d",
        "postgresql://h?password=a=hunter2",
        "postgresql://h?password=hunter2%zz",
    ];
    for text in texts {
        let error = with_environment(text, &[]).expect_err(text);
        assert!(
            !error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2"),
            "{error}"
        );
    }
}

proptest! {
    #[test]
    fn parsing_any_text_does_not_panic(text in "\\PC{0,60}") {
        let _ = with_environment(&text, &[]);
        let _ = with_environment(&format!("postgresql://{text}"), &[]);
    }

    #[test]
    fn any_value_round_trips_through_quoting(value in "[^\0]{1,20}") {
        let quoted = value.replace('\\', r"\\").replace('\'', r"\'");
        let conninfo = parsed(&format!("user='{quoted}' host=h"));
        prop_assert_eq!(&conninfo.user, &value);
        let encoded = hex(value.as_bytes()).as_bytes().chunks(2).fold(String::new(), |text, digits| {
            text + "%" + std::str::from_utf8(digits).unwrap()
        });
        prop_assert_eq!(parsed(&format!("postgresql://{encoded}@h")).user, value);
    }
}
