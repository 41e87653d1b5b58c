//! The list of PostgreSQL's own cases names tests that there are.

use std::fs;
use std::path::Path;

const CASES: &str = include_str!("cases.md");

/// All of our code about pgbench.
fn code(directory: &Path) -> String {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let texts = entries.map(|path| match path.extension().and_then(|e| e.to_str()) {
        Some("rs") => fs::read_to_string(&path).unwrap(),
        _ if path.is_dir() => code(&path),
        _ => String::new(),
    });
    texts.collect()
}

#[test]
fn each_case_of_postgresql_is_held_by_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code = ["src", "tests/server", "../pgbench/src"].map(|part| code(&root.join(part))).concat();
    let cases: Vec<_> =
        CASES.lines().filter(|line| line.starts_with("| ") && *line != "| case | held by |").collect();
    assert!(cases.len() > 30, "{cases:?}");
    for case in cases {
        let held_by: Vec<_> = case.split('`').skip(1).step_by(2).collect();
        assert!(!held_by.is_empty(), "{case}");
        for name in held_by {
            assert!(code.contains(&format!("fn {name}(")), "there is no test {name}: {case}");
        }
    }
}
