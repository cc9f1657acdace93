//! A recording in place of a model.
//!
//! Unaware of the loop that asks it. It compares every request with the recorded one, byte for byte,
//! and gives no more answers after the first that differs.

use crate::error::{At, Result};
use crate::model::response::Answer;
use crate::model::wire::{Neutral, Sent, Wire};
use crate::record::invocations::{Requests, read_file};
use crate::record::recording::Recording;
use crate::unix::files;
use std::rc::Rc;

/// A recording that is being played back.
#[derive(Debug)]
pub(crate) struct Playback {
    recording: Rc<Recording>,
    requests: Requests,
    /// How many requests were the recorded ones.
    pub given: usize,
    /// Where the run went another way.
    pub divergence: Option<Divergence>,
}

/// A request that is not the recorded one.
#[derive(Debug)]
pub(crate) struct Divergence {
    /// The iteration of the recorded one.
    pub iteration: u64,
    /// The recorded one.
    pub recorded: Vec<u8>,
    /// The one that was sent.
    pub rebuilt: Vec<u8>,
}

impl Playback {
    /// From the first answer on.
    pub(crate) fn new(recording: Rc<Recording>) -> Self {
        Self {
            requests: Requests::of(&recording.run.io("invocations")),
            recording,
            given: 0,
            divergence: None,
        }
    }

    /// Compares a request with the next recorded one. Returns the name of its invocation, or the reason why the recording
    /// has no answer.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(crate) fn compare(
        &mut self,
        request: &[u8],
    ) -> Result<std::result::Result<String, String>> {
        let Some(step) = self.recording.steps.get(self.given) else {
            return Ok(Err("the recording is at its end".to_owned()));
        };
        let Some(name) = &step.invocation else {
            let iteration = step.iteration;
            return Ok(Err(format!(
                "iteration {iteration} has no recorded request"
            )));
        };
        let recorded = self.requests.read(name)?;
        if recorded != request {
            self.divergence = Some(Divergence {
                iteration: step.iteration,
                recorded: recorded.to_vec(),
                rebuilt: request.to_vec(),
            });
            return Ok(Err("the request is not the recorded one".to_owned()));
        }
        Ok(Ok(name.clone()))
    }

    /// The recorded answer to a request, as it came from the model.
    pub(super) fn answer(
        &mut self,
        request: &[u8],
    ) -> Result<std::result::Result<Vec<u8>, String>> {
        let name = match self.compare(request)? {
            Ok(name) => name,
            Err(why) => return Ok(Err(why)),
        };
        let dir = self.recording.run.io("invocations").join(name);
        let body = read_file(&dir, "response.json", files::LARGEST_INPUT)
            .at("read", &dir.join("response.json"))?;
        self.given += 1;
        Ok(Ok(body))
    }

    /// Gives calls of the newest answer that came without ids those under which they were recorded.
    pub(super) fn name_calls(&self, answer: &mut Answer) {
        let steps = &self.recording.steps[..self.given];
        let recorded = steps
            .iter()
            .next_back()
            .into_iter()
            .flat_map(|step| &step.calls);
        for (call, (id, _)) in answer.calls.iter_mut().zip(recorded) {
            if call.id.is_empty() {
                call.id.clone_from(id);
            }
        }
    }

    /// The next recorded request.
    pub(crate) fn next_request(&mut self) -> Result<Option<&[u8]>> {
        let step = self.recording.steps.get(self.given);
        let name = step.and_then(|step| step.invocation.as_deref());
        name.map(|name| self.requests.read(name)).transpose()
    }

    /// A request as the service of the recorded run would have read it.
    pub(crate) fn render(
        &mut self,
        wire: &mut Wire,
        request: &Neutral,
    ) -> Result<std::result::Result<Sent, String>> {
        Ok(match self.next_request()? {
            Some(recorded) => wire.render_like(request, recorded),
            None => wire.render(request),
        })
    }
}
