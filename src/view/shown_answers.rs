//! Which answers of people are shown: those to questions that are known not to be secret.
//!
//! Unaware of how they are shown.

use crate::record::event::{InputType, Line};
use std::collections::HashSet;

/// Shown instead of a secret answer.
pub(crate) const NOT_SHOWN: &str = "(an answer that is not shown)";

/// The questions of a run whose answers may be shown.
#[derive(Debug, Default)]
pub(crate) struct ShownAnswers {
    /// By the question's id.
    questions: HashSet<String>,
    /// By the id of the call that asked.
    calls: HashSet<String>,
}

impl ShownAnswers {
    /// Takes note of a question.
    pub(crate) fn note_question(&mut self, line: &Line<'_>) {
        let is_secret =
            line.sensitive != Some(false) || line.input_type == Some(InputType::Password);
        // Older engines record no ids: the newest question counts.
        for (ids, id) in [
            (&mut self.questions, &line.request_id),
            (&mut self.calls, &line.action_id),
        ] {
            let id = id.as_deref().unwrap_or_default();
            if is_secret {
                ids.remove(id);
            } else {
                ids.insert(id.to_owned());
            }
        }
    }

    /// True if an answer may be shown.
    pub(crate) fn has_answer(&self, line: &Line<'_>) -> bool {
        let id = line.request_id.as_deref().unwrap_or_default();
        self.questions.contains(id)
    }

    /// True if the result of a call may be shown: that of the built-in tool is the answer, unless no person was
    /// asked.
    pub(crate) fn has_result(&self, line: &Line<'_>) -> bool {
        let id = line.action_id.as_deref().unwrap_or_default();
        let is_answer = line.tool_name.as_deref() == Some("ask_human") && line.is_success();
        !is_answer || self.calls.contains(id)
    }
}
