//! Steps that are not done, because a record says how they ended: for the repetition of a run, or of one of its steps.
//!
//! Unaware of where the record is from.

use super::{RunPlace, StepResult};
use crate::flow::context::select::AssembledContext;
use crate::flow::graph::StepRef;
use crate::flow::record::{RecordedEnds, StepId};
use std::rc::Rc;

/// The steps that are answered from a record.
pub(crate) struct AnsweredSteps {
    pub ends: Rc<RecordedEnds>,
    /// The only step that is done, with the context that it had; none: all but those of agents.
    pub only: Option<(StepId, Option<String>)>,
}

/// The beginning of a step beside a record.
pub(super) enum RecordedAnswer {
    /// The step is done.
    Done,
    Ended(StepResult),
    /// The end was not recorded, as of a task that lost a race.
    Unknown,
}

impl AnsweredSteps {
    pub(super) fn answer(&self, place: &RunPlace<'_>, step: &StepRef) -> RecordedAnswer {
        let id = place.step_id(step);
        let Some(end) = self.ends.by_step.get(&id) else {
            return RecordedAnswer::Unknown;
        };
        let is_done = match &self.only {
            Some((only, _)) => *only == id,
            None => {
                let flow = place.flow;
                flow.agent(step.node).is_none() && flow.nodes[step.node].flow.is_none()
            }
        };
        match end.outcome.clone() {
            _ if is_done => RecordedAnswer::Done,
            // It runs nothing.
            Ok(None) => RecordedAnswer::Done,
            Ok(Some(output)) => RecordedAnswer::Ended(Ok(output)),
            Err(failure) => RecordedAnswer::Ended(Err(failure)),
        }
    }

    /// The context that the record has for a step.
    pub(super) fn context(&self, place: &RunPlace<'_>, step: &StepRef) -> Option<AssembledContext> {
        let (only, recorded) = self.only.as_ref()?;
        let context = recorded.as_ref().filter(|_| *only == place.step_id(step))?;
        Some(AssembledContext::recorded(context.clone()))
    }
}
