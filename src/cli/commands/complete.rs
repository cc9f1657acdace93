//! `delta complete -- WORD...`: what could stand next, for the completion scripts of shells.
//!
//! A helper of these scripts and no command for people. It only reads, and where something cannot be
//! read it has nothing to offer.

use super::flow;
use crate::cli::completion::{COMMAND, Choice, Known, Line, Program, Syntax, Value, told};
use crate::cli::{args, help, manual, templates};
use crate::error::{Exit, Result};
use crate::record::journal::Journal;
use crate::record::metadata::{self, Status};
use crate::record::workspace::{self, Workspace};
use crate::text::ids::RunId;
use crate::unix::terminal::{in_short, print};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What `delta` is, to somebody who types.
static PROGRAM: Program = Program {
    overview: help::OVERVIEW,
    options: help::OVERVIEW,
    command: |name| {
        let name = args::COMMANDS.into_iter().find(|known| *known == name)?;
        let text = help::text(Some(name), false);
        Some(Syntax {
            usage: usage(text),
            options: text,
            options_first: name == "sandbox",
        })
    },
};

/// The usage from the command's name on.
fn usage(text: &'static str) -> &'static str {
    let text = text.strip_prefix("usage: delta ").unwrap_or(text);
    text.split("\n\n").next().unwrap_or_default()
}

/// Runs the command: the words behind the program's name, the last one under the cursor.
pub(crate) fn run(raw: &[OsString]) -> Result<Exit> {
    let typed = raw.strip_prefix(&["--".into()]).unwrap_or(raw);
    if let [first, rest @ ..] = typed
        && first == "flow"
        && !rest.is_empty()
    {
        // A program of its own, which knows itself what could stand next.
        let before = [COMMAND.into(), "--".into()];
        return flow::run(&[&before, rest].concat());
    }
    print(told(&PROGRAM, raw, known).as_bytes())?;
    Ok(Exit::Success)
}

/// What a value can be.
fn known(value: &Value, line: &Line) -> Known {
    let option = value.option.as_deref();
    match value.name.as_str() {
        "DIR" if option == Some("--work-dir") => ("dirs", workspaces(value, line)),
        "DIR" | "AGENT" | "NAME" | "RUN_DIR" => ("dirs", Vec::new()),
        "FILE" => ("files", Vec::new()),
        // Where a run can be the path of its directory, it has a slash.
        "RUN" if value.typed.contains('/') => ("dirs", Vec::new()),
        "RUN" | "ID" => ("", runs(line, value.name == "RUN", |_| true)),
        "STATUS" => ("", Status::ALL.map(|s| Choice::new(s.name(), "")).into()),
        "TEMPLATE" => {
            let choice =
                |template: &templates::Template| Choice::new(template.name, template.description);
            ("", templates::ALL.into_iter().map(choice).collect())
        }
        "PAGE" => {
            let choice = |page: &manual::Page| Choice::new(&page.topic(), &page.about());
            ("", manual::PAGES.iter().map(choice).collect())
        }
        _ => ("", Vec::new()),
    }
}

/// Workspaces, with a slash behind each: the agent's own, the last one first; then those where the
/// cursor is.
pub(crate) fn workspaces(value: &Value, line: &Line) -> Vec<Choice> {
    let agent = Path::new(line.value("--agent").unwrap_or("."));
    let names = workspace::numbered(agent).unwrap_or_default();
    let own = names
        .iter()
        .rev()
        .map(|name| agent.join("workspaces").join(name));
    let own = own.map(|path| {
        path.strip_prefix(".")
            .map_or(path.clone(), Path::to_path_buf)
    });
    let here = match value.typed.rfind('/') {
        Some(at) => &value.typed[..=at],
        None => "",
    };
    let entries = std::fs::read_dir(if here.is_empty() { "." } else { here });
    let entries = entries.into_iter().flatten().flatten();
    let near = entries.filter(|entry| entry.path().join(".delta").is_dir());
    let mut near: Vec<PathBuf> = near.map(|e| Path::new(here).join(e.file_name())).collect();
    near.sort();
    let mut found: Vec<Choice> = Vec::new();
    for path in own.chain(near) {
        let about = newest(&path).map(|(status, message)| format!("{status} {message}"));
        let word = path.to_str().map(|path| format!("{path}/"));
        if let Some(word) = word.filter(|word| found.iter().all(|other| other.word != *word)) {
            found.push(Choice::new(&word, &about.unwrap_or_default()));
        }
    }
    found
}

/// State and beginning of the newest run of a workspace.
fn newest(workspace: &Path) -> Option<(&'static str, String)> {
    let workspace = Workspace::at(workspace).ok()?;
    let id = workspace.newest().ok()??;
    described(&workspace, &id)
}

/// The runs of the workspace that are wanted, the newest first.
pub(crate) fn runs(
    line: &Line,
    with_latest: bool,
    is_wanted: impl Fn(&Path) -> bool,
) -> Vec<Choice> {
    let dir = line.value("--work-dir").unwrap_or(".");
    let Ok(workspace) = Workspace::at(Path::new(dir)) else {
        return Vec::new();
    };
    let mut runs = workspace.runs().unwrap_or_default();
    runs.retain(|id| is_wanted(&workspace.run_path(id)));
    runs.sort_by_cached_key(|id| std::cmp::Reverse(workspace.created_at(id)));
    let latest = (with_latest && !runs.is_empty()).then(|| Choice::new("LATEST", "the newest run"));
    let choice = |id: &RunId| {
        let words = described(&workspace, id).map(|(status, text)| format!("{status} {text}"));
        Choice::new(id.as_str(), &words.unwrap_or_default())
    };
    runs.iter().map(choice).chain(latest).collect()
}

fn described(workspace: &Workspace, id: &RunId) -> Option<(&'static str, String)> {
    const WIDTH: usize = 50;
    let metadata = metadata::read(&workspace.run_path(id))?;
    let status = match metadata.status {
        Status::Running if !Journal::is_owned(&workspace.run_path(id).join("journal.jsonl")) => {
            Status::Interrupted
        }
        status => status,
    };
    let message = metadata.initial_message.unwrap_or_default();
    Some((status.name(), in_short(&message, WIDTH)))
}
