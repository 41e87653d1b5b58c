//! Parsing of scripts and its errors.

use std::fs;

use pgbench::random::Prng;
use pgbench::script::Scripts;
use pgbench::script::command::Action;

use super::wording::assert_texts_equivalent;
use super::{Pgbench, words};

#[test]
fn scripts_rejected_by_pgbench_are_rejected_with_equivalent_messages() {
    let Some(pgbench) = Pgbench::find("refusals") else { return };
    let list: Vec<_> =
        "\\set x ¦\\set ¦\\if ¦\\elif ¦\\else¦\\endif\n¦\\sleep ¦\\gset¦\\aset ¦\\shell ¦\\setshell ¦\
        \\startpipeline¦\\¦\\\n¦\\\r\n¦\n¦\n¦\r\n¦ ¦\t¦1¦2.5¦ 3 ¦us¦ ms¦1e¦1.0e309¦\
        9223372036854775808¦-¦+¦(¦)¦,¦ and ¦ or ¦not ¦ is ¦ null¦ isnull¦true¦case ¦ when ¦ then ¦\
        \x20else ¦ end¦abs(¦pi()¦hash(¦permute(¦least(¦random(1,¦:a¦:¦<¦>=¦<>¦!¦;¦select 1;¦select 1 ¦\
        '¦\"¦--¦/*¦*/¦$$¦foo¦é¦#¦~¦%¦\u{b}"
            .split('¦')
            .collect();
    let mut prng = Prng::new(15);
    let path = pgbench.path("refused.sql");
    let mut refused = 0;
    for _ in 0..250 {
        let text = words(&mut prng, &list, 9);
        fs::write(&path, &text).unwrap();
        // No server is running: accepted scripts end with a connection error.
        let real = pgbench.errors(&["-h", "/nowhere", "-M", "prepared", "-f", &path]);
        let ours = Scripts::default().add(&path, text.as_bytes(), 1);
        match ours {
            Err(error) => {
                refused += 1;
                assert_texts_equivalent(&format!("pgbench: error: {error}\n"), &real, &text);
            }
            Ok(()) => assert!(real.contains("could not create connection"), "{text:?}: {real}"),
        }
    }
    assert!((80..245).contains(&refused), "{refused}");
}

#[test]
fn sql_is_split_and_parameterized_as_by_pgbench() {
    let Some(pgbench) = Pgbench::find("sql") else { return };
    let list: Vec<_> =
        "select ¦'¦''¦E'¦e'\\'¦\\;¦\\:¦\"¦$$¦$a$¦$1¦$¦1¦1e5¦1.5¦..¦/*¦*/¦--¦\n¦\r\n¦ ¦(¦)¦;¦;¦;\n¦:a¦\
        ::¦:é¦:1¦:¦:{?a}¦:'a'¦:\"a\"¦create ¦or replace ¦function ¦procedure ¦begin ¦case ¦end¦x¦\
        U&'¦n'¦b'¦+¦-¦<¦é¦_¦\u{b}¦\t"
            .split('¦')
            .collect();
    let mut prng = Prng::new(16);
    let mut statements = 0;
    for _ in 0..150 {
        let body = words(&mut prng, &list, 12);
        // In a pipeline everything is sent before the first error is read.
        let text = format!("\\startpipeline\n{body}");
        let mut scripts = Scripts::default();
        if scripts.add("s", text.as_bytes(), 1).is_err() {
            continue;
        }
        let mut ours = Vec::new();
        for command in &scripts.scripts()[0].commands {
            if let Action::Sql(sql) = &command.action {
                let sent = sql.extended().unwrap().text;
                ours.push(format!("pgbench: client 0 sending {}", String::from_utf8(sent).unwrap()));
            }
        }
        // After a colon at the end of the text, pgbench reads beyond the text.
        if ours.iter().any(|sent| sent.ends_with(':')) {
            continue;
        }
        let path = pgbench.script("split.sql", &text);
        let real = pgbench.errors(&["-t", "1", "-d", "-M", "extended", "-f", &path]);
        statements += ours.len();
        let mut rest = real.split_once("executing \\startpipeline\n").unwrap().1;
        for sent in ours {
            rest = rest.strip_prefix(&*sent).unwrap_or_else(|| panic!("{text:?}:\n{sent}\n{rest}"));
            rest = rest.strip_prefix('\n').unwrap_or(rest);
        }
        assert!(!rest.contains("sending"), "{text:?}: {rest}");
    }
    assert!(statements > 120, "{statements}");
}
