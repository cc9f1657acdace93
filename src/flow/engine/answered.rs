//! Steps that are not done, because a record says how they ended: for the repetition of a run, or of one of its steps.
//!
//! Unaware of where the record is from.

use super::begin::BeginningStep;
use super::finish::AttemptEnd;
use super::{FlowEngine, Need};
use crate::error::Result;
use crate::flow::context::select::AssembledContext;
use crate::flow::graph::StepRef;
use crate::flow::manifest::NodeKind;
use crate::flow::record::{RecordedEnds, StepId, edge_told};
use std::rc::Rc;

/// The steps that are answered from a record.
pub(crate) struct AnsweredSteps {
    pub ends: Rc<RecordedEnds>,
    /// The only step that is done, with the context that it had; none: all but those of agents.
    pub only: Option<(StepId, Option<String>)>,
}

impl FlowEngine<'_> {
    /// Ends a step as the record says, if it is one that is not done. Gives it back if it is.
    pub(super) fn begin_unanswered(
        &mut self,
        beginning: BeginningStep,
    ) -> Result<Option<BeginningStep>> {
        let Some(answered) = &self.options.answered else {
            return Ok(Some(beginning));
        };
        let flow = self.place.flow;
        let id = self.step_id(&beginning.step);
        // What came of it there was not recorded, as of a task that lost a race.
        let Some(end) = answered.ends.by_step.get(&id) else {
            self.suspend(beginning.step, Need::Look, "");
            return Ok(None);
        };
        let is_done = match &answered.only {
            Some((only, _)) => *only == id,
            None => {
                let node = &flow.nodes[beginning.step.node];
                node.kind != NodeKind::Agent && node.flow.is_none()
            }
        };
        let result = match end.outcome.clone() {
            _ if is_done => return Ok(Some(beginning)),
            // It runs nothing.
            Ok(None) => return Ok(Some(beginning)),
            Ok(Some(output)) => Ok(output),
            Err(failure) => Err(failure),
        };
        self.add_plain_start(&beginning);
        self.judge(&beginning.step, result, AttemptEnd::default())?;
        Ok(None)
    }

    /// The context that the record has for a step.
    pub(super) fn recorded_context(&self, step: &StepRef) -> Option<AssembledContext> {
        let (only, context) = self.options.answered.as_ref()?.only.as_ref()?;
        let context = context.as_ref().filter(|_| *only == self.step_id(step))?;
        Some(AssembledContext::recorded(context.clone()))
    }

    /// The name of a step in journals.
    fn step_id(&self, step: &StepRef) -> StepId {
        StepId {
            task: step.task.to_string(),
            node: self.node_id(step).to_owned(),
            edge: edge_told(&self.place.flow.graph, step),
        }
    }
}
