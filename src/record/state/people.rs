//! People and a live run: the messages that they send to it, and the hooks that report its questions.

use super::{Run, Turn};
use crate::record::event::Line;

impl<'j> Run<'j> {
    /// A hook that was run for a question.
    pub(super) fn announcement(&mut self, line: &Line<'j>) {
        let Some(id) = line.request_id.as_ref() else {
            return;
        };
        let calls = self.calls_of_last_thought();
        let mut asked = calls.filter_map(|call| call.question.as_mut());
        if let Some(question) = asked.find(|question| question.request_id == *id) {
            question.announced += 1;
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
