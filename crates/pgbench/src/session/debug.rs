//! Debug output of a client, with pgbench's messages.

use super::{Part, Program, ScriptRunner};
use crate::run::{Client, Protocol};
use crate::script::command::{Action, Command};
use crate::script::sql::Sql;

impl ScriptRunner {
    /// Number of the last statement in a combined command whose response was read, from 0. In a pipeline each
    /// statement is a command.
    #[must_use]
    pub fn query(&self) -> usize {
        let script = self.program.scripts.scripts().get(self.script);
        let command = script.and_then(|script| script.commands.get(self.part.client.command()));
        let is_pipeline = command.is_some_and(|command| command.action == Action::EndPipeline);
        if is_pipeline { 0 } else { self.part.query }
    }

    /// The last statement sent; in a pipeline, the last one whose response was read. `None` without one.
    #[must_use]
    pub fn statement(&self) -> Option<String> {
        let client = &self.part.client;
        let commands = &self.program.scripts.scripts().get(self.script)?.commands;
        let sql = match &commands.get(client.command())?.action {
            Action::Sql(sql) => sql,
            Action::EndPipeline => {
                let before = &commands[..client.command()];
                let start = before.iter().rposition(|command| command.action == Action::StartPipeline)?;
                self.program.scripts.in_pipeline(self.script, start).nth(self.part.query)?
            }
            _ => return None,
        };
        Some(text(&self.program, client, sql))
    }
}

impl Part {
    /// Reports the next command.
    #[cold]
    pub(super) fn report_next(&self, program: &Program, tell: &dyn Fn(String)) {
        let client = &self.client;
        let Some((index, command)) = client.upcoming(&program.scripts) else { return };
        let id = client.id;
        let Action::Sql(sql) = &command.action else {
            tell(format!("client {id} executing \\{}", words(command, program)));
            match command.action {
                Action::StartPipeline => {
                    let inside = program.scripts.in_pipeline(client.script(), index);
                    inside.for_each(|sql| self.report_preparing(program, sql, tell));
                }
                Action::EndPipeline => tell(format!("client {id} receiving")),
                _ => {}
            }
            return;
        };
        self.report_preparing(program, sql, tell);
        if program.protocol == Protocol::Prepared {
            tell(format!("client {id} sending {}", program.statements[sql.number].name));
        } else {
            tell(format!("client {id} sending {}", text(program, client, sql)));
        }
        if !client.in_pipeline() {
            tell(format!("client {id} receiving"));
        }
    }

    fn report_preparing(&self, program: &Program, sql: &Sql, tell: &dyn Fn(String)) {
        if program.protocol == Protocol::Prepared && !self.prepared[sql.number] {
            tell(format!("client {} preparing {}", self.client.id, program.statements[sql.number].name));
        }
    }

    /// Reports the Syncs of a completed pipeline.
    #[cold]
    pub(super) fn report_syncs(&self, tell: &dyn Fn(String)) {
        for left in (1..=self.syncs).rev() {
            tell(format!("client {} pipeline ending, ongoing syncs: {left}", self.client.id));
        }
    }
}

/// Text of an SQL command as sent.
fn text(program: &Program, client: &Client, sql: &Sql) -> String {
    if let Some(statement) = program.statements.get(sql.number) {
        return String::from_utf8_lossy(&statement.text).into_owned();
    }
    let mut text = Vec::new();
    sql.write_simple(&client.variables, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Words of a backslash command. Expressions do not count as words.
fn words(command: &Command, program: &Program) -> String {
    match &command.action {
        Action::Set { word, variable, .. } => format!("{word} {}", program.scripts.names.text(*variable)),
        Action::If { word, .. } => word.clone(),
        _ => {
            // A backslash at the end of a line continues the command.
            let line = command.line.replace("\\\r\n", " ").replace("\\\n", " ");
            let line = line.trim_start_matches('\\');
            line.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
        }
    }
}
