//! Names of pgbench's options and of additional ones.

use super::getopt::Spelling;

const fn spelling(short: u8, long: &'static str, takes: bool) -> Spelling {
    Spelling { short, long, takes, abbreviates: true }
}

/// An additional option. It cannot be abbreviated, so that abbreviations accepted by pgbench are unchanged.
const fn own(long: &'static str, takes: bool) -> Spelling {
    Spelling { short: 0, long, takes, abbreviates: false }
}

/// All options, including unsupported ones.
pub const SPELLINGS: [Spelling; 52] = [
    spelling(b'b', "builtin", true),
    spelling(b'c', "client", true),
    spelling(b'C', "connect", false),
    spelling(b'd', "dbname", true),
    spelling(b'D', "define", true),
    spelling(b'f', "file", true),
    spelling(b'F', "fillfactor", true),
    spelling(b'h', "host", true),
    spelling(b'i', "initialize", false),
    spelling(b'I', "init-steps", true),
    spelling(b'j', "jobs", true),
    spelling(b'l', "log", false),
    spelling(b'L', "latency-limit", true),
    spelling(b'n', "no-vacuum", false),
    spelling(b'p', "port", true),
    spelling(b'P', "progress", true),
    spelling(b'M', "protocol", true),
    spelling(b'q', "quiet", false),
    spelling(b'r', "report-per-command", false),
    spelling(b'R', "rate", true),
    spelling(b's', "scale", true),
    spelling(b'S', "select-only", false),
    spelling(b'N', "skip-some-updates", false),
    spelling(b'T', "time", true),
    spelling(b't', "transactions", true),
    spelling(b'U', "username", true),
    spelling(b'v', "vacuum-all", false),
    spelling(0, "unlogged-tables", false),
    spelling(0, "tablespace", true),
    spelling(0, "index-tablespace", true),
    spelling(0, "sampling-rate", true),
    spelling(0, "aggregate-interval", true),
    spelling(0, "progress-timestamp", false),
    spelling(0, "log-prefix", true),
    spelling(0, "foreign-keys", false),
    spelling(0, "random-seed", true),
    spelling(0, "show-script", true),
    spelling(0, "partitions", true),
    spelling(0, "partition-method", true),
    spelling(0, "failures-detailed", false),
    spelling(0, "max-tries", true),
    spelling(0, "verbose-errors", false),
    spelling(0, "exit-on-abort", false),
    spelling(0, "continue-on-error", false),
    spelling(0, "debug", false),
    own("pgdyno", false),
    own("json", false),
    own("hdr-file", true),
    own("hdr-log", true),
    own("checkpoint", true),
    own("checkpoint-interval", true),
    own("resume", true),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HELP;

    /// The option at the start of a help line: short name, long name, whether it takes a value.
    fn helped(line: &str) -> Option<(u8, &str, bool)> {
        let line = line.trim_start();
        let (short, rest) = match line.strip_prefix('-').and_then(|rest| rest.split_once(", --")) {
            Some((letter, rest)) => (letter.as_bytes().first().copied()?, rest),
            None => (0, line.strip_prefix("--")?),
        };
        let name = rest.split(|c: char| c.is_whitespace() || c == '=').next()?;
        Some((short, name, rest[name.len()..].starts_with('=')))
    }

    #[test]
    fn help_contains_exactly_the_accepted_options() {
        let mut helped: Vec<_> = HELP.lines().filter_map(helped).collect();
        helped.retain(|(_, name, _)| !["help", "version"].contains(name));
        helped.sort_unstable();
        // Options of both a run and an initialization.
        helped.dedup();
        let mut known: Vec<_> =
            SPELLINGS.iter().map(|option| (option.short, option.long, option.takes)).collect();
        known.sort_unstable();
        assert_eq!(helped, known);
    }

    #[test]
    fn help_contains_the_contact_for_bugs_and_a_disclaimer() {
        let last = HELP.lines().last().unwrap_or_default();
        assert!(last.starts_with("Report bugs to ") && last.contains("not to PostgreSQL"), "{last}");
    }
}
