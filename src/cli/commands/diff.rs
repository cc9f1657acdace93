//! `delta diff`: the first difference between two runs, side by side.

use crate::error::{At, Error, Exit, Result};
use crate::record::event::decoded;
use crate::record::history::NOT_SHOWN;
use crate::record::reader::read_journal;
use crate::record::recording::unreadable;
use crate::record::state::{self, Reading, RecordedQuestion, Run, Thought, Turn};
use crate::runs::find::{NEWEST, find_run};
use crate::runs::origin::warn_if_foreign_run;
use crate::text::amounts::counted;
use crate::text::disguise::printable;
use crate::text::options::parse::ParsedCommand;
use crate::text::shorten::{columns_of, in_short};
use crate::unix::terminal::{print, warn};
use std::path::{Path, PathBuf};

/// The narrowest columns that can be read.
const NARROWEST: usize = 20;

/// One iteration: what was said before it, the thought, its calls and their results.
#[derive(Debug, Default, PartialEq, Eq)]
struct Iteration {
    rows: Vec<String>,
}

pub(crate) fn print_diff(given: &ParsedCommand) -> Result<Exit> {
    let [a, b] = [0, 1].map(|at| {
        let name = given.operand_text(at);
        ComparedRun::read(&given.work_dir(), name.as_deref().unwrap_or(NEWEST))
    });
    let (a, b) = (a?, b?);
    if given.operands.len() < 2 && a.path == b.path {
        return Err(Error::usage(
            "diff needs another run to compare the newest one with; delta list-runs prints them",
        ));
    }
    let same = a
        .iterations
        .iter()
        .zip(&b.iterations)
        .take_while(|(a, b)| a == b)
        .count();
    let mut out = String::new();
    if same == a.iterations.len() && same == b.iterations.len() {
        let (what, exit) = if a.is_whole && b.is_whole {
            ("the same", Exit::Success)
        } else {
            ("the same as far as they can be read", Exit::Failure)
        };
        out.push_str(&format!("{what}: {}\n", counted(same, "iteration")));
        print(out)?;
        return Ok(exit);
    }
    out.push_str(&match same {
        0 => "they diverge at the first iteration\n".to_owned(),
        1 => "iteration 1 is the same\n".to_owned(),
        same => format!("iterations 1 to {same} are the same\n"),
    });
    let width = (width().saturating_sub(3) / 2).max(NARROWEST);
    out.push_str(&line(&a.title, '|', &b.title, width));
    let rest = a.iterations.len().max(b.iterations.len());
    let none = Iteration::default();
    for at in same..rest {
        let (a, b) = (
            a.iterations.get(at).unwrap_or(&none),
            b.iterations.get(at).unwrap_or(&none),
        );
        for row in 0..a.rows.len().max(b.rows.len()) {
            let (left, right) = (a.rows.get(row), b.rows.get(row));
            let mark = match (left, right) {
                (Some(left), Some(right)) if left == right => ' ',
                (Some(_), Some(_)) => '|',
                (Some(_), None) => '<',
                (None, _) => '>',
            };
            let number = if row == 0 {
                format!("{:>3} ", at + 1)
            } else {
                "    ".to_owned()
            };
            let shown = |text: Option<&String>| {
                text.map_or_else(String::new, |text| format!("{number}{text}"))
            };
            out.push_str(&line(&shown(left), mark, &shown(right), width));
        }
    }
    print(out)?;
    Ok(Exit::Failure)
}

/// One of the two runs.
struct ComparedRun {
    path: PathBuf,
    title: String,
    iterations: Vec<Iteration>,
    /// True if no line was skipped.
    is_whole: bool,
}

impl ComparedRun {
    fn read(work_dir: &Path, name: &str) -> Result<Self> {
        let run = find_run(work_dir, name)?;
        warn_if_foreign_run(&run)?;
        let path = run.journal();
        let bytes = read_journal(&path).at("read", &path)?;
        let state = state::read(&bytes, Reading::all(true)).map_err(|e| unreadable(&e, &path))?;
        for damage in &state.damaged {
            let (path, line) = (path.display(), damage.line);
            let message = &damage.message;
            let text = format!("warning: {path}:{line}: damaged and skipped: {message}");
            warn(&text);
        }
        let iterations = iterations(&state);
        let mut title = format!("{}, {}", run.id, counted(iterations.len(), "iteration"));
        if let Some(fork) = &state.start.forked_from {
            let (from, at) = (&fork.run_id, fork.iteration);
            title.push_str(&format!(", forked from {from} after {at}"));
        }
        Ok(Self {
            path: run.path,
            title,
            iterations,
            is_whole: state.damaged.is_empty(),
        })
    }
}

fn iterations(run: &Run<'_>) -> Vec<Iteration> {
    let mut list = Vec::new();
    let mut next = Iteration::default();
    for turn in &run.turns {
        match turn {
            Turn::User(said) => next.rows.push(format!("> {}", decoded(said.content))),
            Turn::Refusal(refusal) => {
                let said = decoded(refusal.content);
                next.rows.push(format!("! {}: {said}", refusal.what));
            }
            Turn::Thought(thought) => {
                add_thought(&mut next, thought);
                list.push(std::mem::take(&mut next));
            }
        }
    }
    if !next.rows.is_empty() {
        list.push(next);
    }
    list
}

fn add_thought(to: &mut Iteration, thought: &Thought<'_>) {
    let text = decoded(thought.content);
    if thought.content != "null" && !text.trim().is_empty() {
        to.rows.push(text.into_owned());
    }
    for call in &thought.calls {
        let arguments = call.invalid_arguments.as_deref().unwrap_or(&call.arguments);
        to.rows.push(format!("$ {} {arguments}", call.name));
        to.rows.push(match call.result {
            Some(_)
                if call
                    .question
                    .as_ref()
                    .is_some_and(RecordedQuestion::is_secret) =>
            {
                format!("= {NOT_SHOWN}")
            }
            Some(result) => format!("= {}", decoded(result)),
            None => "(no result)".to_owned(),
        });
    }
}

/// Two texts beside each other, each cut to its column.
fn line(left: &str, mark: char, right: &str, width: usize) -> String {
    // The spaces before a text are its indentation, which shortening would take away.
    let cell = |text: &str| {
        let bare = text.trim_start();
        let indent = text.len() - bare.len();
        let shortened = in_short(&printable(bare), width.saturating_sub(indent));
        format!("{}{shortened}", " ".repeat(indent))
    };
    let (left, right) = (cell(left), cell(right));
    let padding = " ".repeat(width.saturating_sub(columns_of(&left)));
    let line = format!("{left}{padding} {mark} {right}");
    format!("{}\n", line.trim_end())
}

/// The number of characters that fit on a line.
fn width() -> usize {
    let given = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    let measured = || {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    };
    given.or_else(measured).unwrap_or(80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_said() {
        assert_eq!(line("ab", '|', "cd", 4), "ab   | cd\n");
        assert_eq!(line("abcdef", '<', "", 4), "abc… <\n");
        assert_eq!(line("  1 abcdef", '|', "  1 x", 8), "  1 abc… |   1 x\n");
    }

    #[test]
    fn times_and_ids_make_no_difference() {
        let journal = |id: &str, result: &str| {
            format!(
                r#"{{"type":"USER_MESSAGE","content":"go"}}
{{"type":"THOUGHT","content":"t","tool_calls":[{{"id":"{id}","type":"function","function":{{"name":"x","arguments":"{{}}"}}}}]}}
{{"type":"ACTION_RESULT","action_id":"{id}","observation_content":"{result}"}}
"#
            )
        };
        let of =
            |text: &str| iterations(&state::read(text.as_bytes(), Reading::default()).unwrap());
        assert_eq!(of(&journal("a", "r")), of(&journal("b", "r")));
        assert_ne!(of(&journal("a", "r")), of(&journal("a", "s")));
    }
}
