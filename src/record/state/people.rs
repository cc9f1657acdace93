//! People and a live run: the messages that they send to it, and the hooks that report its questions.

use super::{RecordedQuestion, Run, Turn};
use crate::record::event::recorded::{HookAudit, HumanInputReceived};

impl<'j> Run<'j> {
    /// A hook that was run for a question.
    pub(super) fn announcement(&mut self, hook: &HookAudit<'j>) {
        let Some(id) = hook.request_id.get() else {
            return;
        };
        let mut asked = self
            .calls_of_last_thought()
            .filter_map(|call| call.question.as_mut());
        if let Some(question) = asked.find(|question| question.request_id == id) {
            question.announced += 1;
        }
    }

    pub(super) fn human_answer(&mut self, answer: HumanInputReceived<'j>) {
        let fingerprint = answer.fingerprint.0;
        let is_meant = |q: &&mut RecordedQuestion<'j>| {
            let wanted = answer.request_id.get();
            let is_it = wanted.is_none_or(|wanted| wanted == q.request_id);
            is_it && q.response.is_none() && q.fingerprint == fingerprint
        };
        let mut asked = self
            .calls_of_last_thought()
            .filter_map(|call| call.question.as_mut());
        let found = asked.find(is_meant).map(|question| {
            question.response = Some(answer.response.0.unwrap_or_default());
        });
        drop(asked);
        if found.is_some() && answer.always == Some(true) {
            self.always.extend(fingerprint);
        }
    }

    /// The messages that came from the inbox, by the names of their files.
    pub(crate) fn inbox_ids(&self) -> impl Iterator<Item = &str> {
        self.turns.iter().filter_map(|turn| match turn {
            Turn::User(message) => message.inbox_id.as_deref(),
            Turn::Thought(_) | Turn::Refusal(_) => None,
        })
    }
}
