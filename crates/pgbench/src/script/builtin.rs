//! The scripts that pgbench has in itself.

use std::fmt::Write;

use super::error::ScriptError;

/// A script of pgbench's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// What `-b` calls it.
    pub name: &'static str,
    /// What reports call it.
    pub description: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// All of them.
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
    /// The one whose name begins so, if it is the only one. The list of all belongs below the message.
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

    /// What `-b list` prints.
    #[must_use]
    pub fn list() -> String {
        let mut list = "Available builtin scripts:\n".to_owned();
        for builtin in BUILTINS {
            // Writing to a text does not fail.
            let _ = writeln!(list, "  {:>13}: {}", builtin.name, builtin.description);
        }
        list.push('\n');
        list
    }

    /// What `--show-script` prints.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("-- {}: {}\n{}\n", self.name, self.description, self.text)
    }
}
