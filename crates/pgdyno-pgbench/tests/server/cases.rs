//! The list of PostgreSQL's own cases only contains existing tests.

use std::fs;
use std::path::Path;

const CASES: &str = include_str!("cases.md");

/// All code about pgbench.
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
fn each_case_of_postgresql_has_an_existing_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code = ["src", "tests/server", "../pgbench/src"].map(|part| code(&root.join(part))).concat();
    let cases: Vec<_> =
        CASES.lines().filter(|line| line.starts_with("| ") && *line != "| case | test |").collect();
    assert!(cases.len() > 30, "{cases:?}");
    for case in cases {
        let tests: Vec<_> = case.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{case}");
        for name in tests {
            assert!(code.contains(&format!("fn {name}(")), "there is no test {name}: {case}");
        }
    }
}
