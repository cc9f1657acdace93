//! `delta-sessions complete -- WORD...`: what could stand next, for the completion scripts of shells.

use super::help::HELP;
use super::store::{Session, Status, Store};
use crate::cli::completion::{Choice, Program, Syntax, told};
use crate::error::Result;
use crate::unix::terminal::print;
use std::ffi::OsString;
use std::path::Path;

/// The options that every command takes.
fn common() -> &'static str {
    HELP.split_once("\noptions:\n")
        .map_or(HELP, |(_, options)| options)
}

fn syntax(name: &str) -> Option<Syntax> {
    let mut lines = HELP.lines().filter_map(|line| line.strip_prefix("  "));
    let line = lines.find(|line| line.split(' ').next() == Some(name))?;
    Some(Syntax {
        usage: line.split("  ").next().unwrap_or_default(),
        options: if name == "exec" { HELP } else { common() },
        options_first: true,
    })
}

/// Runs the command.
pub(crate) fn run(raw: &[OsString]) -> Result<()> {
    let program = Program {
        overview: HELP,
        options: common(),
        command: syntax,
    };
    let said = told(&program, raw, |value, line| match value.name.as_str() {
        "DIR" => ("dirs", Vec::new()),
        "ID" => {
            let dir = line.value("--sessions-dir").unwrap_or(".sessions");
            ("", sessions(Path::new(dir)))
        }
        _ => ("", Vec::new()),
    });
    print(said.as_bytes())
}

/// The sessions that have not been ended.
fn sessions(dir: &Path) -> Vec<Choice> {
    let all = Store::new(dir).and_then(|store| store.all());
    let choice = |session: &Session| {
        let metadata = session.metadata().ok()?;
        (metadata.status == Status::Active).then_some(Choice {
            word: metadata.session_id,
            about: metadata.command,
        })
    };
    all.unwrap_or_default().iter().filter_map(choice).collect()
}
