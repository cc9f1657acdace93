//! `delta model replay`: a recorded run as a model. A request on stdin, the recorded answer on stdout.

use crate::error::{At, Error, Exit, Result};
use crate::record::invocations::Requests;
use crate::record::recording::{Recording, at_path};
use crate::unix::terminal::print;
use crate::view::request_diff::{answers_in, first};
use std::io::Read;
use std::path::Path;

pub(crate) fn serve_answer(run_dir: &Path, lenient: bool) -> Result<Exit> {
    let recording = Recording::read(&at_path(run_dir)?)?;
    let mut request = Vec::new();
    std::io::stdin().read_to_end(&mut request).map_err(|e| {
        let reason = crate::error::reason(&e);
        Error::failure(format!("cannot read the request from stdin: {reason}"))
    })?;
    let wanted = WantedAnswer {
        names: invocations(&recording)?,
        requests: Requests::of(&recording.run.io("invocations")),
        request,
    };
    let name = wanted.find(lenient)?;
    let path = recording
        .run
        .io("invocations")
        .join(name)
        .join("response.json");
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
    names: Vec<String>,
    requests: Requests,
    request: Vec<u8>,
}

impl WantedAnswer {
    /// The recorded request that is this one. Where it should stand is looked at first.
    fn find(mut self, lenient: bool) -> Result<String> {
        let place = answers_in(&self.request).map_err(Error::failure)?;
        let total = self.names.len();
        if lenient {
            return self.names.get(place).cloned().ok_or_else(|| {
                let before = if place == 1 { "answer" } else { "answers" };
                Error::failure(format!(
                    "the request holds {place} {before}, and the recording ends after {total}"
                ))
            });
        }
        if let Some(name) = self.names.get(place)
            && self.requests.read(name)? == self.request
        {
            return Ok(name.clone());
        }
        for name in &self.names {
            if self.requests.read(name)? == self.request {
                return Ok(name.clone());
            }
        }
        let nearest = place.min(total - 1);
        let recorded = self.requests.read(&self.names[nearest])?;
        let what = first(recorded, &self.request).map_or_else(String::new, |found| {
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
}
