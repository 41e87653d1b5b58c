//! pgbench's built-in scripts.

use std::fmt::Write;

use super::error::ScriptError;

/// A built-in script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// Name for `-b`.
    pub name: &'static str,
    /// Description in reports.
    pub description: &'static str,
    /// Text.
    pub text: &'static str,
}

/// All built-in scripts.
pub const BUILTINS: [Builtin; 3] = [
    Builtin {
        name: "tpcb-like",
        description: "<builtin: TPC-B (sort of)>",
        text: include_str!("builtin/tpcb_like.sql"),
    },
    Builtin {
        name: "simple-update",
        description: "<builtin: simple update>",
        text: include_str!("builtin/simple_update.sql"),
    },
    Builtin {
        name: "select-only",
        description: "<builtin: select only>",
        text: include_str!("builtin/select_only.sql"),
    },
];

impl Builtin {
    /// Finds the script by a unique prefix of its name. The caller appends the list of all to an error.
    pub fn find(prefix: &str) -> Result<Self, ScriptError> {
        let found: Vec<_> = BUILTINS.into_iter().filter(|builtin| builtin.name.starts_with(prefix)).collect();
        match found.as_slice() {
            [builtin] => Ok(*builtin),
            [] => Err(format!("no builtin script found for name \"{prefix}\"").into()),
            several => Err(format!(
                "ambiguous builtin name: {} builtin scripts found for prefix \"{prefix}\"",
                several.len()
            )
            .into()),
        }
    }

    /// Output of `-b list`.
    #[must_use]
    pub fn list() -> String {
        let mut list = "Available builtin scripts:\n".to_owned();
        for builtin in BUILTINS {
            // Writing to a String cannot fail.
            let _ = writeln!(list, "  {:>13}: {}", builtin.name, builtin.description);
        }
        list.push('\n');
        list
    }

    /// Output of `--show-script`.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("-- {}: {}\n{}\n", self.name, self.description, self.text)
    }
}
