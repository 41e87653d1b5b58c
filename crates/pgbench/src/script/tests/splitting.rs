//! Start and end of SQL commands.

use super::*;

#[test]
fn commands_end_at_the_same_position_as_in_psql() {
    let table: [(&str, &[&str]); 30] = [
        ("select 1", &["select 1"]),
        ("select 1;", &["select 1;"]),
        ("  select 1 ; select\n2;\n", &["select 1 ;", "select\n2;"]),
        (";;", &[";", ";"]),
        ("select ';', 'it''s;' ;x", &["select ';', 'it''s;' ;", "x"]),
        ("select 'a\\';b", &["select 'a\\';", "b"]),
        ("select E'a\\';b' ;c", &["select E'a\\';b' ;", "c"]),
        ("select e'a'\n 'b\\';' ;c", &["select e'a'\n 'b\\';' ;", "c"]),
        ("select 'a' -- ';\n 'b;' ;c", &["select 'a' -- ';\n 'b;' ;", "c"]),
        ("select typee'a\\';b", &["select typee'a\\';", "b"]),
        ("select \"a;\"\"b\";c", &["select \"a;\"\"b\";", "c"]),
        (
            "select U&'a;', u&\"b;\", B'1;', x';', N';';c",
            &["select U&'a;', u&\"b;\", B'1;', x';', N';';", "c"],
        ),
        ("do $$ a; $x$ b; $$ ;c", &["do $$ a; $x$ b; $$ ;", "c"]),
        ("do $x$ a; $$ $y$ ; $x$;c", &["do $x$ a; $$ $y$ ; $x$;", "c"]),
        ("do $ä_1$ ; $ä_1$;c", &["do $ä_1$ ; $ä_1$;", "c"]),
        ("select a$b$;c$b$;", &["select a$b$;", "c$b$;"]),
        ("select $1$;c", &["select $1$;", "c"]),
        ("select 1e5$$;$$;c", &["select 1e5$$;$$;", "c"]),
        ("select 1..2, 1.5e-3 ;c", &["select 1..2, 1.5e-3 ;", "c"]),
        ("/* ; /* ; */ ; */ select 1;c", &["/* ; /* ; */ ; */ select 1;", "c"]),
        ("select 1+/* ; */2;c", &["select 1+/* ; */2;", "c"]),
        ("-- ;\nselect 1 -- ; b\n;c", &["select 1 -- ; b\n;", "c"]),
        ("create rule r as (select 1; select 2); c", &["create rule r as (select 1; select 2);", "c"]),
        ("select 1) ; c", &["select 1) ;", "c"]),
        ("select 1 \\; select 2 \\:a;c", &["select 1 ; select 2 :a;", "c"]),
        ("\\; \\; SELECT 0 \\; \\gset\nc", &["; ; SELECT 0 ; ", "c"]),
        ("select :x$$ ; $$ ;c", &["select :x$$ ; $$ ;", "c"]),
        ("select :e'a\\';c", &["select :e'a\\';", "c"]),
        ("create function :begin ;c", &["create function :begin ;", "c"]),
        ("select :{?x}, :{?, :{x}, a::b, a:::b;", &["select FALSE, :{?, :{x}, a::b, a:::b;"]),
    ];
    for (text, expected) in table {
        assert_eq!(statements(text), expected, "{text:?}");
    }
}

#[test]
fn unclosed_quotes_and_comments_extend_to_the_end() {
    for text in
        ["select 'a; b", "select \"a; b", "select $$a; b$", "select /* a; b", "select (a; b", "select E'a\\"]
    {
        assert_eq!(statements(text), [text]);
    }
}

#[test]
fn routine_bodies_may_contain_semicolons() {
    let table: [(&str, &[&str]); 4] = [
        (
            "create function f() returns int begin atomic select 1; select case when true then 2 end; end; c",
            &[
                "create function f() returns int begin atomic select 1; select case when true then 2 end; end;",
                "c",
            ],
        ),
        (
            "CREATE OR REPLACE PROCEDURE p() BEGIN ATOMIC SELECT 1; END; c",
            &["CREATE OR REPLACE PROCEDURE p() BEGIN ATOMIC SELECT 1; END;", "c"],
        ),
        (
            "begin; select case when true then 1 end; end;",
            &["begin;", "select case when true then 1 end;", "end;"],
        ),
        ("create table begin(a int); c", &["create table begin(a int);", "c"]),
    ];
    for (text, expected) in table {
        assert_eq!(statements(text), expected, "{text:?}");
    }
}

#[test]
fn a_backslash_ends_sql_and_a_newline_ends_the_backslash_command() {
    let commands = read("select 1 \\set x :y \\\n + 1\nselect 2; \\sleep 5 ms\r\n\\\n\\endpipeline");
    let lines: Vec<_> = commands.iter().map(|command| command.line.as_str()).collect();
    assert_eq!(lines, ["select 1 ", "\\set x :y \\\n + 1", "select 2;", "\\sleep 5 ms", "\\endpipeline"]);
}

#[test]
fn parentheses_stay_open_across_a_backslash_command() {
    assert_eq!(statements("select (1 \\set x 1\n ; c) ; d"), ["select (1 ", "; c) ;", "d"]);
}

#[test]
fn reports_show_the_first_line_of_a_command() {
    let long = format!("select {}", "x".repeat(200));
    assert_eq!(read("select\r\n1;")[0].line, "select");
    assert_eq!(read(&long)[0].line, long[..127]);
}
