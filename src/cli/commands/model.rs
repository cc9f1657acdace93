//! `delta model replay`: a recorded run as a model. A request on stdin, the recorded answer on stdout.

use crate::error::{At, Error, Exit, Result};
use crate::record::invocations::{InvocationStatus, Requests, metadata};
use crate::record::recording::{Recording, at_path};
use crate::runs::preflight::install_signals;
use crate::runs::task::read_stdin;
use crate::text::options::parse::ParsedCommand;
use crate::unix::files;
use crate::unix::terminal::print;
use crate::view::request_diff::{answers_in, first, unended_blocks};
use std::path::PathBuf;

pub(crate) fn serve_answer(given: &ParsedCommand) -> Result<Exit> {
    let recording = Recording::read(&at_path(&given.operand_dir(1))?)?;
    let request = read_stdin("request", &*install_signals()?)?;
    let dir = recording.run.io("invocations");
    let wanted = WantedAnswer {
        names: invocations(&recording)?,
        requests: Requests::of(&dir),
        dir: dir.clone(),
        request,
    };
    let name = wanted.find(given.has("--lenient"))?;
    let path = dir.join(name).join("response.json");
    print(&std::fs::read(&path).at("read", &path)?)?;
    Ok(Exit::Success)
}

/// The invocations that were answered, in order; a fork's also those that it began with.
fn invocations(recording: &Recording) -> Result<Vec<String>> {
    let steps = recording.inherited_steps.iter().chain(&recording.steps);
    let names: Vec<String> = steps.filter_map(|step| step.invocation.clone()).collect();
    if names.is_empty() {
        let dir = recording.run.path.display();
        return Err(Error::failure(format!("no answer is recorded in {dir}")));
    }
    Ok(names)
}

struct WantedAnswer {
    /// The invocations whose answers are in the journal.
    names: Vec<String>,
    dir: PathBuf,
    requests: Requests,
    request: Vec<u8>,
}

impl WantedAnswer {
    /// The recorded request that is this one. Its expected place is tried first.
    fn find(mut self, lenient: bool) -> Result<String> {
        let unended = unended_blocks(&self.request);
        let answers = answers_in(&self.request).map_err(Error::failure)?;
        // An answer that is not whole is the one that is wanted.
        let place = answers - usize::from(unended > 0);
        let total = self.names.len();
        if lenient {
            let Some(last) = self.names.get(place).cloned() else {
                let before = if place == 1 { "answer" } else { "answers" };
                return Err(Error::failure(format!(
                    "the request holds {place} {before}, and the recording ends after {total}"
                )));
            };
            return self.part_of(last, unended);
        }
        if let Some(name) = self.names.get(place)
            && *self.requests.sent(name)? == *self.request
        {
            return Ok(name.clone());
        }
        for name in self.names.clone().into_iter().chain(self.answered()?) {
            if *self.requests.sent(&name)? == *self.request {
                return Ok(name);
            }
        }
        let nearest = place.min(total - 1);
        let recorded = self.requests.sent(&self.names[nearest])?;
        let what = first(&recorded, &self.request).map_or_else(String::new, |found| {
            format!(
                ", which differs at {}: recorded {}, requested {}",
                found.place, found.left, found.right
            )
        });
        Err(Error::failure(format!(
            "the request matches none of the {total} recorded ones; the nearest is number {}{what}",
            nearest + 1
        )))
    }

    /// All invocations that were answered, those among them after whose answer the service paused.
    fn answered(&self) -> Result<Vec<String>> {
        let mut names = files::names(&self.dir)?;
        names.retain(|name| {
            let metadata = metadata(&self.dir.join(name));
            metadata.is_some_and(|it| it.has(InvocationStatus::Success))
        });
        Ok(names)
    }

    /// The invocation whose request had this many blocks of an incomplete answer: this one, or one of
    /// those before it in the same iteration.
    fn part_of(&mut self, last: String, unended: usize) -> Result<String> {
        let iteration = |name: &str| name.split('_').nth(1).map(str::to_owned);
        let mut parts = self.answered()?;
        parts.retain(|name| iteration(name) == iteration(&last) && *name <= last);
        for name in parts.into_iter().rev() {
            if unended_blocks(self.requests.read(&name)?) == unended {
                return Ok(name);
            }
        }
        Ok(last)
    }
}
