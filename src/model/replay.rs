//! A recording in place of a model and, if wanted, of everything else that a run executes.
//!
//! Unaware of the loop that asks it. It compares every request with the recorded one, byte for byte,
//! and gives no more answers after the first that differs.

use crate::error::{At, Result};
use crate::record::invocations::{LARGEST_REQUEST, Requests, read_file};
use crate::record::recording::{
    RecordedCheck, RecordedCompaction, RecordedFallback, RecordedResult, Recording,
    RefusedAttachments,
};
use std::path::PathBuf;

/// A recording that is being played back.
#[derive(Debug)]
pub(crate) struct Playback {
    recording: Recording,
    requests: Requests,
    /// Nothing is executed: tools, hooks and generators come from the record, too.
    executes_nothing: bool,
    /// How many answers have been given.
    given: usize,
    /// Where the run went another way.
    pub divergence: Option<Divergence>,
}

/// The answer that a recording has to a request.
#[derive(Debug)]
pub(crate) enum PlayedAnswer {
    /// As it came from the model.
    Recorded(Vec<u8>),
    /// The reason why the recording has no answer.
    Missing(String),
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
    pub(crate) fn new(recording: Recording, executes_nothing: bool) -> Self {
        let requests = Requests::of(&recording.run.io("invocations"));
        Self {
            recording,
            requests,
            executes_nothing,
            given: 0,
            divergence: None,
        }
    }

    pub(crate) fn recording(&self) -> &Recording {
        &self.recording
    }

    /// How many answers have been given.
    pub(crate) fn given(&self) -> usize {
        self.given
    }

    /// The compactions that came before the next answer; once.
    pub(crate) fn compactions(&mut self) -> Vec<RecordedCompaction> {
        let step = self.recording.steps.get_mut(self.given);
        step.map_or_else(Vec::new, |step| std::mem::take(&mut step.compactions))
    }

    /// The model that gave the next answer in place of the first.
    pub(crate) fn fallback(&self) -> Option<RecordedFallback> {
        self.recording.steps.get(self.given)?.fallback.clone()
    }

    /// How many answers were given before the first model was asked again in place of another; none: until the end.
    pub(crate) fn next_return(&self) -> Option<usize> {
        let steps = &self.recording.steps;
        let is_return =
            |at: &usize| steps[at - 1].fallback.is_some() && steps[*at].fallback.is_none();
        (self.given + 1..steps.len()).find(is_return)
    }

    /// The attachments that the service refused before the next answer; once.
    pub(crate) fn refused(&mut self) -> Vec<RefusedAttachments> {
        let step = self.recording.steps.get_mut(self.given);
        step.map_or_else(Vec::new, |step| std::mem::take(&mut step.refused))
    }

    /// The recorded answer to a request.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(crate) fn answer(&mut self, request: &[u8]) -> Result<PlayedAnswer> {
        let missing = |why: &str| Ok(PlayedAnswer::Missing(why.to_owned()));
        let Some(step) = self.recording.steps.get(self.given) else {
            return missing("the recording is at its end");
        };
        let Some(name) = &step.invocation else {
            let iteration = step.iteration;
            return missing(&format!("iteration {iteration} has no recorded request"));
        };
        let recorded = self.requests.read(name)?;
        if recorded != request {
            self.divergence = Some(Divergence {
                iteration: step.iteration,
                recorded: recorded.to_vec(),
                rebuilt: request.to_vec(),
            });
            return missing("the request is not the recorded one");
        }
        let dir = self.recording.run.io("invocations").join(name);
        let body = read_file(&dir, "response.json", LARGEST_REQUEST);
        let body = body.at("read", &dir.join("response.json"))?;
        self.given += 1;
        Ok(PlayedAnswer::Recorded(body))
    }

    /// The ids under which the calls of the newest answer were recorded.
    pub(crate) fn ids(&self) -> &[String] {
        let step = self
            .given
            .checked_sub(1)
            .and_then(|last| self.recording.steps.get(last));
        step.map_or(&[], |step| &step.ids)
    }

    /// The recorded result of a call of the newest answer, unless calls are executed. A person is never asked
    /// again, and nothing that ended later is begun again.
    pub(crate) fn result(&self, id: &str, asks_a_person: bool) -> Option<RecordedResult> {
        let step = self
            .given
            .checked_sub(1)
            .and_then(|last| self.recording.steps.get(last));
        let is_deferred = step.is_some_and(|step| step.deferred.iter().any(|it| it == id));
        if !self.executes_nothing && !asks_a_person && !is_deferred {
            return None;
        }
        Some(
            step.and_then(|step| step.results.get(id))
                .cloned()
                .unwrap_or_else(|| RecordedResult {
                    status: crate::record::event::ActionStatus::Error,
                    exit_code: None,
                    observation: "(the recorded run has no result of this call)".to_owned(),
                    attachments: Vec::new(),
                    duration_ms: 0,
                    execution_ref: None,
                }),
        )
    }

    /// Where the recorded run has the whole output of a call of the newest answer, from its directory.
    pub(crate) fn output_ref(&self, id: &str) -> Option<String> {
        let step = self.recording.steps.get(self.given.checked_sub(1)?)?;
        step.results.get(id)?.execution_ref.clone()
    }

    /// The recorded checks of the newest answer, unless checks are executed.
    pub(crate) fn checks(&self) -> Option<Vec<RecordedCheck>> {
        if !self.executes_nothing {
            return None;
        }
        let step = self
            .given
            .checked_sub(1)
            .and_then(|last| self.recording.steps.get(last));
        Some(step.map(|step| step.checks.clone()).unwrap_or_default())
    }

    /// The next recorded request.
    pub(crate) fn next_request(&mut self) -> Result<Option<&[u8]>> {
        let step = self.recording.steps.get(self.given);
        match step.and_then(|step| step.invocation.as_deref()) {
            Some(name) => self.requests.read(name).map(Some),
            None => Ok(None),
        }
    }

    /// The next recorded request, if no generators run and their output is taken from it.
    pub(crate) fn upcoming(&mut self) -> Result<Option<&[u8]>> {
        if !self.executes_nothing {
            return Ok(None);
        }
        self.next_request()
    }

    /// The recorded outcome of the hook that would run now, unless hooks are executed. Some(None): the recorded run
    /// ended before it.
    pub(crate) fn hook(&mut self, event: &str, follows_answer: bool) -> Option<Option<PathBuf>> {
        if !self.executes_nothing {
            return None;
        }
        let at = if follows_answer {
            self.given.checked_sub(1)
        } else {
            Some(self.given)
        };
        let step = at.and_then(|at| self.recording.steps.get_mut(at));
        Some(step.and_then(|step| {
            let at = step.hooks.iter().position(|(name, _)| name == event)?;
            let (_, reference) = step.hooks.remove(at);
            Some(self.recording.run.path.join(reference))
        }))
    }
}
