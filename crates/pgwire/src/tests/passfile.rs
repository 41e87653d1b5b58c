use super::super::conninfo::password_from;

#[test]
fn the_first_matching_line_of_a_password_file_is_used() {
    let file = "# comment:5432:db:al:no\n\
                db.example:5432:shop:al:first\n\
                db.example:5432:*:al:second\n\
                *:6000:*:*:by port\n\
                ::1 is wrong\n\
                \\:\\:1:5432:*:al:six\n\
                local\\host:*:a\\:b:c\\\\d:esc\\:aped\\\\\n\
                h:1:d:u:\n\
                h:1:d:u:tail:ignored\n\
                short:1:d\n\
                crlf:*:*:*:windows\r\n\
                *:*:*:last:ü ß\n";
    let table: [(&str, u16, &str, &str, Option<&str>); 13] = [
        ("db.example", 5432, "shop", "al", Some("first")),
        ("db.example", 5432, "other", "al", Some("second")),
        ("db.example", 5432, "shop", "bo", None),
        ("anything", 6000, "x", "y", Some("by port")),
        ("::1", 5432, "x", "al", Some("six")),
        ("localhost", 1, "a:b", "c\\d", Some("esc:aped\\")),
        ("h", 1, "d", "u", Some("tail")),
        ("short", 1, "d", "u", None),
        ("crlf", 1, "d", "u", Some("windows")),
        ("any", 1, "d", "last", Some("ü ß")),
        ("# comment", 5432, "db", "al", None),
        ("*", 5432, "shop", "al", None),
        ("DB.EXAMPLE", 5432, "shop", "al", None),
    ];
    for (host, port, dbname, user, password) in table {
        let found = password_from(file, host, port, dbname, user);
        assert_eq!(found.as_deref(), password, "{host}:{port}:{dbname}:{user}");
    }
}
