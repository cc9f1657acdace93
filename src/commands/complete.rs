//! `delta complete -- WORD...`: what could stand next, for the completion scripts of shells.
//!
//! A helper of these scripts and no command for people. It only reads, and where something cannot be
//! read it has nothing to offer.

use crate::completion::{Choice, Line, Place, Program, Syntax, lines, read, words};
use crate::error::{Exit, Result};
use crate::journal::Journal;
use crate::metadata::{self, Status};
use crate::screen::{in_short, print};
use crate::workspace::{self, Workspace};
use crate::{args, help, manual, templates};
use std::ffi::OsString;
use std::path::Path;

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
pub fn run(raw: &[OsString]) -> Result<Exit> {
    let words = words(raw);
    let line = read(&PROGRAM, &words);
    let said = match &line.place {
        Place::Words(words) => lines("", words),
        Place::Command(at) => lines(&format!("command {at}"), &[]),
        Place::Value { name, option, stem } => {
            let cursor = words.last().map_or("", String::as_str);
            let cursor = cursor.strip_prefix(stem.as_str()).unwrap_or(cursor);
            let (own, mut choices) = values(name, option.as_deref(), &line, cursor);
            for choice in &mut choices {
                choice.word.insert_str(0, stem);
            }
            lines(own, &choices)
        }
    };
    print(said.as_bytes())?;
    Ok(Exit::Success)
}

/// What a shell adds itself, and what we know.
fn values(
    name: &str,
    option: Option<&str>,
    line: &Line,
    cursor: &str,
) -> (&'static str, Vec<Choice>) {
    match name {
        "DIR" if option == Some("--work-dir") => ("dirs", workspaces(line)),
        "DIR" | "AGENT" | "NAME" | "RUN_DIR" => ("dirs", Vec::new()),
        "FILE" => ("files", Vec::new()),
        // Where a run can be the path of its directory, it has a slash.
        "RUN" if cursor.contains('/') => ("dirs", Vec::new()),
        "RUN" | "ID" => ("", runs(line, name == "RUN")),
        "STATUS" => ("", plain(Status::ALL.map(Status::name))),
        "TEMPLATE" => {
            let choice =
                |template: &templates::Template| about(template.name, template.description);
            ("", templates::ALL.into_iter().map(choice).collect())
        }
        "PAGE" => {
            let choice = |page: &manual::Page| about(page.name, &page.about());
            ("", manual::PAGES.iter().map(choice).collect())
        }
        _ => ("", Vec::new()),
    }
}

fn about(word: &str, about: &str) -> Choice {
    Choice {
        word: word.to_owned(),
        about: about.to_owned(),
    }
}

fn plain<const N: usize>(words: [&str; N]) -> Vec<Choice> {
    words.map(|word| about(word, "")).into()
}

/// The agent's own workspaces, the last one first.
fn workspaces(line: &Line) -> Vec<Choice> {
    let agent = Path::new(line.value("--agent").unwrap_or("."));
    let names = workspace::numbered(agent).unwrap_or_default();
    let path = |name: &String| {
        let path = agent.join("workspaces").join(name);
        let path = path.strip_prefix(".").unwrap_or(&path);
        let words = newest(path).map(|(status, message)| format!("{status} {message}"));
        Some(about(path.to_str()?, &words.unwrap_or_default()))
    };
    names.iter().rev().filter_map(path).collect()
}

/// State and beginning of the newest run of a workspace.
fn newest(workspace: &Path) -> Option<(&'static str, String)> {
    let workspace = Workspace::at(workspace).ok()?;
    let id = workspace.newest().ok()??;
    described(&workspace, &id)
}

/// The runs of the workspace, the newest first.
fn runs(line: &Line, with_latest: bool) -> Vec<Choice> {
    let dir = line.value("--work-dir").unwrap_or(".");
    let Ok(workspace) = Workspace::at(Path::new(dir)) else {
        return Vec::new();
    };
    let mut runs = workspace.runs().unwrap_or_default();
    runs.sort_by_cached_key(|id| std::cmp::Reverse(workspace.created_at(id)));
    let latest = (with_latest && !runs.is_empty()).then(|| about("LATEST", "the newest run"));
    let choice = |id: &crate::ids::RunId| {
        let words = described(&workspace, id).map(|(status, text)| format!("{status} {text}"));
        about(id.as_str(), &words.unwrap_or_default())
    };
    runs.iter().map(choice).chain(latest).collect()
}

fn described(workspace: &Workspace, id: &crate::ids::RunId) -> Option<(&'static str, String)> {
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
