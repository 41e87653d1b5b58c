//! Progress messages of `-i`, from events of the loader.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Instant;

use serde_json::Value;

use super::options::Initialisation;
use reactor::tell;

/// Rows per line.
const LINE_ROWS: u64 = 100_000;
/// Seconds per line with `--quiet`.
const LINE_S: f64 = 5.0;

/// Reporter of progress on standard error.
pub struct ProgressReporter {
    partitions: u32,
    /// Whether the current step reports progress.
    is_filling: bool,
    began: Instant,
    tables: Vec<Table>,
    lines: Lines,
}

/// Progress of a table.
struct Table {
    name: String,
    total: u64,
    done: u64,
}

/// Progress lines; on a terminal, a line overwrites the one before.
struct Lines {
    quiet: bool,
    end: char,
    due_s: f64,
    width: usize,
}

impl ProgressReporter {
    /// Creates a reporter.
    pub fn new(initialisation: &Initialisation) -> Self {
        let end = if std::io::stderr().is_terminal() { '\r' } else { '\n' };
        let lines = Lines { quiet: initialisation.quiet, end, due_s: LINE_S, width: 0 };
        Self {
            partitions: initialisation.initialise.partitions,
            is_filling: false,
            began: Instant::now(),
            tables: Vec::new(),
            lines,
        }
    }

    /// Handles an event of the loader.
    pub fn hear(&mut self, event: &Value) {
        match event["event"].as_str() {
            Some("started") => self.tables = tables(&event["tables"]),
            Some("step") => self.step(event["step"].as_str().unwrap_or_default()),
            Some("progress") => self.progress(&event["rows_of"]),
            Some("result") => {
                self.end();
                tell(done(&event["steps"]));
            }
            _ => {}
        }
    }

    /// Ends the current line before other output.
    pub fn end(&mut self) {
        tell(self.lines.erased());
    }

    fn progress(&mut self, rows: &Value) {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        for table in &mut self.tables {
            let done = rows[&table.name].as_u64().unwrap_or(0);
            if self.is_filling {
                tell(self.lines.of(table, done, elapsed_s));
            } else {
                table.done = done;
            }
        }
    }

    fn step(&mut self, letter: &str) {
        self.end();
        tell(format_args!("{}\n", texts_of(Some(letter)).0));
        if letter == "t" && self.partitions > 0 {
            tell(format_args!("creating {} partitions...\n", self.partitions));
        }
        self.began = Instant::now();
        self.is_filling = letter == "g";
        self.lines.due_s = LINE_S;
    }
}

/// The tables to fill, from the `started` event.
fn tables(event: &Value) -> Vec<Table> {
    let of = |(name, table): (&String, &Value)| Table {
        name: name.clone(),
        total: table["rows"].as_u64().unwrap_or(0),
        done: 0,
    };
    event.as_object().into_iter().flatten().map(of).collect()
}

impl Lines {
    /// The due lines for a table with `done` rows after this number of seconds.
    fn of(&mut self, table: &mut Table, done: u64, elapsed_s: f64) -> String {
        let mut out = String::new();
        let before = std::mem::replace(&mut table.done, done);
        if !self.quiet {
            for line in before / LINE_ROWS + 1..=done / LINE_ROWS {
                self.line(&mut out, table, line * LINE_ROWS, elapsed_s);
            }
        } else if done > before && (done == table.total && done % 100 == 0 || elapsed_s >= self.due_s) {
            self.line(&mut out, table, done, elapsed_s);
            self.due_s = (elapsed_s / LINE_S).ceil() * LINE_S;
        }
        out
    }

    fn line(&mut self, out: &mut String, table: &Table, done: u64, elapsed_s: f64) {
        let (name, total) = (&table.name, table.total);
        let remaining_s = total.saturating_sub(done) as f64 * elapsed_s / done as f64;
        let share = done * 100 / total.max(1);
        let line = format!(
            "{done} of {total} tuples ({share}%) of {name} done (elapsed {elapsed_s:.2} s, remaining {remaining_s:.2} s)"
        );
        // Clear the rest of a longer line.
        let width = if self.end == '\r' { self.width } else { 0 };
        self.width = line.len();
        let _ = write!(out, "{line:width$}{}", self.end);
    }

    /// The characters that clear the last line on a terminal.
    fn erased(&mut self) -> String {
        let width = std::mem::take(&mut self.width);
        if self.end == '\n' || width == 0 { String::new() } else { format!("{:width$}\r", "") }
    }
}

/// Steps: letter, message at the start, and name in the last line.
const STEPS: [(&str, &str, &str); 7] = [
    ("d", "dropping old tables...", "drop tables"),
    ("t", "creating tables...", "create tables"),
    ("g", "generating data (client-side)...", "client-side generate"),
    ("G", "generating data (server-side)...", "server-side generate"),
    ("v", "vacuuming...", "vacuum"),
    ("p", "creating primary keys...", "primary keys"),
    ("f", "creating foreign keys...", "foreign keys"),
];

fn texts_of(letter: Option<&str>) -> (&'static str, &'static str) {
    let step = STEPS.iter().find(|(known, ..)| Some(*known) == letter);
    step.map_or(("", ""), |(_, doing, name)| (doing, name))
}

/// The last line, with the duration of each step.
fn done(steps: &Value) -> String {
    let (mut texts, mut sum_s) = (Vec::new(), 0.0);
    for step in steps.as_array().into_iter().flatten() {
        let (_, name) = texts_of(step["step"].as_str());
        let took_s = step["s"].as_f64().unwrap_or(0.0);
        texts.push(format!("{name} {took_s:.2} s"));
        sum_s += took_s;
    }
    format!("done in {sum_s:.2} s ({}).\n", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(quiet: bool, end: char) -> Lines {
        Lines { quiet, end, due_s: LINE_S, width: 0 }
    }

    fn accounts(total: u64) -> Table {
        Table { name: "pgbench_accounts".to_owned(), total, done: 0 }
    }

    fn told(of: &str, elapsed_s: f64, remaining_s: f64) -> String {
        format!("{of} of pgbench_accounts done (elapsed {elapsed_s:.2} s, remaining {remaining_s:.2} s)")
    }

    #[test]
    fn a_line_is_printed_for_each_hundred_thousand_rows() {
        let (mut lines, mut table) = (lines(false, '\n'), accounts(400_000));
        assert_eq!(lines.of(&mut table, 95_000, 0.1), "");
        let first = told("100000 of 400000 tuples (25%)", 0.3, 0.9);
        let second = told("200000 of 400000 tuples (50%)", 0.3, 0.3);
        assert_eq!(lines.of(&mut table, 205_000, 0.3), format!("{first}\n{second}\n"));
        assert_eq!(lines.of(&mut table, 205_000, 9.9), "");
    }

    #[test]
    fn a_quiet_initialisation_prints_a_line_every_five_seconds_and_at_the_end() {
        let (mut lines, mut table) = (lines(true, '\n'), accounts(400_000));
        assert_eq!(lines.of(&mut table, 105_000, 1.0), "");
        let told_at = |at_s: f64| told("200000 of 400000 tuples (50%)", at_s, at_s) + "\n";
        assert_eq!(lines.of(&mut table, 200_000, 5.25), told_at(5.25));
        assert_eq!(lines.of(&mut table, 200_100, 7.0), "");
        let last = told("400000 of 400000 tuples (100%)", 7.5, 0.0) + "\n";
        assert_eq!(lines.of(&mut table, 400_000, 7.5), last);
        assert_eq!(lines.of(&mut table, 400_000, 12.0), "");
    }

    #[test]
    fn on_a_terminal_a_line_overwrites_the_previous_one() {
        let (mut lines, mut table) = (lines(false, '\r'), accounts(200_000));
        let first = lines.of(&mut table, 100_000, 100.0);
        let second = lines.of(&mut table, 200_000, 200.0);
        assert!(first.ends_with(")\r"), "{first:?}");
        assert!(second.ends_with(") \r"), "the remaining time is shorter: {second:?}");
        assert_eq!(lines.erased(), format!("{:1$}\r", "", second.trim_end().len()));
        assert_eq!(lines.erased(), "");
    }

    #[test]
    fn the_last_line_has_the_steps_and_their_sum() {
        let steps = json!([{"step": "d", "s": 0.001}, {"step": "g", "s": 1.5}, {"step": "p", "s": 0.25}]);
        let expected =
            "done in 1.75 s (drop tables 0.00 s, client-side generate 1.50 s, primary keys 0.25 s).\n";
        assert_eq!(done(&steps), expected);
    }
}
