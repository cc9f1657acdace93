//! `delta complete -- WORD...`: candidates for the next word, for the completion scripts of shells.
//!
//! A helper of these scripts and no command for people. Only reads; what cannot be read is not offered.

use super::flow;
use crate::cli::agent_names;
use crate::cli::tables::DELTA;
use crate::cli::templates::{self, Template};
use crate::error::{Exit, Result};
use crate::text::manual::{self, Page};
use crate::text::options::completion::{
    COMMAND, Candidate, Offer, TypedLine, TypedValue, complete_line,
};
use crate::text::options::table::ValueKind;
use crate::unix::terminal::print;
use crate::view::run_candidates::{run_candidates, workspace_candidates};
use std::env;
use std::ffi::OsString;

/// Prints the offer for the words behind the program's name, the last one under the cursor.
pub(crate) fn print_candidates(raw: &[OsString]) -> Result<Exit> {
    let typed = raw.strip_prefix(&["--".into()]).unwrap_or(raw);
    if let [first, rest @ ..] = typed
        && first == "flow"
        && !rest.is_empty()
    {
        // A separate program, which completes for itself.
        let before = [COMMAND.into(), "--".into()];
        return flow::execute_flow(&[&before, rest].concat());
    }
    let home = env::var("HOME").ok();
    print(complete_line(&DELTA, raw, home.as_deref(), offer).as_bytes())?;
    Ok(Exit::Success)
}

/// The agents that have names, for a word that may become one.
fn agent_candidates(value: &TypedValue) -> Vec<Candidate> {
    if !value.typed.is_empty() && !value.typed.starts_with('@') {
        return Vec::new();
    }
    let names = agent_names::list_names();
    let names = names.iter();
    names
        .map(|(name, about)| Candidate::new(&format!("@{name}"), about))
        .collect()
}

fn offer(value: &TypedValue, line: &TypedLine) -> Option<Offer> {
    let offer = match (value.value.kind, value.value.name, value.option) {
        (ValueKind::Workspace, ..) => ("dirs", workspace_candidates(value, line)),
        (ValueKind::Run, ..) if !value.typed.contains('/') => {
            ("", run_candidates(line, true, |_| true))
        }
        (ValueKind::RunId, ..) => ("", run_candidates(line, false, |_| true)),
        (_, _, Some("--agent")) => ("dirs", agent_candidates(value)),
        (_, "@NAME", _) => ("", agent_candidates(value)),
        (_, _, Some("--template")) => {
            let candidate = |it: &Template| Candidate::new(it.name, it.description);
            ("", templates::ALL.into_iter().map(candidate).collect())
        }
        (_, "PAGE", _) => {
            let candidate = |page: &Page| Candidate::new(&page.topic(), &page.about());
            ("", manual::PAGES.iter().map(candidate).collect())
        }
        _ => return None,
    };
    Some(offer)
}
