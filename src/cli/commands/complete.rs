//! `delta complete -- WORD...`: candidates for the next word, for the completion scripts of shells.
//!
//! A helper of these scripts and no command for people. Only reads; what cannot be read is not offered.

use crate::cli::agent_names;
use crate::cli::tables::DELTA;
use crate::cli::templates::{self, Template};
use crate::error::{Exit, Result};
#[cfg(feature = "flow")]
use crate::flow;
use crate::sessions;
use crate::text::manual::{self, Page};
use crate::text::options::completion::{Candidate, Offer, TypedLine, TypedValue, complete_line};
use crate::text::options::table::ValueKind;
use crate::unix::terminal::print;
use crate::view::run_candidates::{run_candidates, workspace_candidates};
use std::env;
use std::ffi::OsString;

/// Prints the offer for the words behind the program's name, the last one under the cursor.
pub(crate) fn print_candidates(raw: &[OsString]) -> Result<Exit> {
    let typed = raw.strip_prefix(&["--".into()]).unwrap_or(raw);
    let after = |part: &str| match typed {
        [first, rest @ ..] => (first == part && !rest.is_empty()).then_some(rest),
        [] => None,
    };
    #[cfg(feature = "flow")]
    if let Some(rest) = after("flow") {
        return flow::cli::complete::print_candidates(rest);
    }
    if let Some(rest) = after("sessions") {
        sessions::complete::print_candidates(rest)?;
        return Ok(Exit::Success);
    }
    let home = env::var("HOME").ok();
    print(complete_line(&DELTA, raw, home.as_deref(), offer))?;
    Ok(Exit::Success)
}

/// The agents that have names, for a word that may become one.
fn agent_candidates(value: &TypedValue) -> Vec<Candidate> {
    if !value.typed.is_empty() && !value.typed.starts_with('@') {
        return Vec::new();
    }
    agent_names::list_names()
        .iter()
        .map(|(name, about)| Candidate::new(&format!("@{name}"), about))
        .collect()
}

fn offer(value: &TypedValue, line: &TypedLine) -> Option<Offer> {
    let offer = match (value.value.kind, value.value.name, value.option) {
        (ValueKind::Workspace, ..) => ("dirs", workspace_candidates(value, line)),
        (ValueKind::Run, ..) if !value.typed.contains('/') => {
            ("", run_candidates(line, true, |_| true))
        }
        (_, "ARG", _) if !line.operands.is_empty() => {
            ("files", run_candidates(line, true, |_| true))
        }
        (ValueKind::RunId, ..) => ("", run_candidates(line, false, |_| true)),
        // Of a command that runs it, it may be a Markdown file.
        (_, "AGENT", Some("--agent")) => ("files", agent_candidates(value)),
        (_, _, Some("--agent")) => ("dirs", agent_candidates(value)),
        (_, "AGENT", None) => ("files", Vec::new()),
        (_, "@NAME", _) => ("", agent_candidates(value)),
        (_, _, Some("--template")) => {
            let candidate = |it: &Template| Candidate::new(it.name, it.description);
            let others = templates::OTHERS.map(|(name, about)| Candidate::new(name, about));
            let all = templates::ALL.into_iter().map(candidate);
            ("", all.chain(others).collect())
        }
        (_, "PAGE", _) => {
            let candidate = |page: &Page| Candidate::new(&page.topic(), &page.about());
            ("", manual::PAGES.iter().map(candidate).collect())
        }
        _ => return None,
    };
    Some(offer)
}
