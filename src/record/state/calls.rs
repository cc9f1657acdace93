//! The effect of the events of calls: requests, questions, results.

use super::attached::Attached;
use super::{Call, RecordedQuestion, Request, Run, Thought, Turn};
use crate::record::event::{InputType, Line, Place, Recorded, Text, recorded};
use crate::record::legacy;
use std::borrow::Cow;

impl<'j> Run<'j> {
    pub(super) fn action_result(&mut self, result: recorded::ActionResult<'j>, place: Place<'j>) {
        let says_how = result.status.is_some() || result.exit_code.is_some();
        let has_failed = says_how && !result.is_success();
        let seq = self.seq;
        if let Some(call) = self.finished(&place.action_id, &result.tool_name) {
            call.has_failed = has_failed;
            call.result = Some(result.observation_content.get().unwrap_or("\"\""));
            call.attached = Attached::read(result.attachments, seq);
            call.output_ref = result
                .output_ref
                .0
                .or(place.execution_ref.0.0)
                .filter(|_| result.by_hook != Some(true));
            if let Some(thought) = self.last_thought_mut() {
                thought.last_seq = seq;
            }
        }
    }

    pub(super) fn action_request(&mut self, line: Line<'j>) {
        let id = line.place.action_id.get();
        if self.call(id, |_| true).is_none() {
            if let Some(call) = self.adopt(&line) {
                call.question = unrecorded_question(call);
            }
            return;
        }
        let Recorded::ActionRequest(started) = line.event else {
            return;
        };
        let is_older = !started.call_id.is_some();
        let is_new = self.call(id, |call| call.request.is_none()).is_some();
        let request = Request {
            call_id: started.call_id.0,
            execution_ref: line.place.execution_ref.0.0,
            arguments: started.tool_args.get(),
            command: started.resolved_command.0,
            ..Request::default()
        };
        if let Some(call) = self.call(id, |call| !is_new || call.request.is_none()) {
            call.request = Some(request);
            if is_older {
                call.question = call.question.take().or_else(|| unrecorded_question(call));
            }
        }
    }

    /// Adds a call that an old thought did not record. Returns it if it is one.
    fn adopt(&mut self, line: &Line<'j>) -> Option<&mut Call<'j>> {
        let mut call = legacy::call(line, self.seq)?;
        self.is_old = true;
        self.turns.extend(self.unsaid.take().map(Turn::User));
        if !matches!(self.turns.last(), Some(Turn::Thought(_))) {
            self.iterations += 1;
            let thought = Thought {
                seq: self.seq,
                last_seq: self.seq,
                iteration: self.iterations,
                content: "null",
                ..Thought::default()
            };
            self.turns.push(Turn::Thought(thought));
        }
        let Some(Turn::Thought(thought)) = self.turns.last_mut() else {
            return None;
        };
        if matches!(thought.tool_calls, Some(Cow::Borrowed(_))) {
            // It recorded its calls, and this is not one of them.
            return None;
        }
        let tool_calls = legacy::with_call(thought.tool_calls.as_deref(), &call);
        thought.tool_calls = Some(Cow::Owned(tool_calls));
        thought.calls.push(Call {
            request: Some(Request {
                execution_ref: call.execution_ref.take().map(Cow::Owned),
                ..Request::default()
            }),
            id: call.id,
            name: call.name,
            arguments: call.arguments,
            ..Call::default()
        });
        thought.calls.last_mut()
    }

    pub(super) fn question(&mut self, line: Line<'j>) {
        let id = line.place.action_id.get();
        if self.asked(id).is_none() {
            self.adopt(&line);
        }
        if let Recorded::HumanInputRequest(question) = line.event
            && let Some(call) = self.asked(id)
        {
            call.question = Some(RecordedQuestion {
                request_id: question.request_id.0.unwrap_or_default(),
                prompt: question.prompt.0.unwrap_or_default(),
                input_type: question.input_type.unwrap_or_default(),
                sensitive: question.sensitive.unwrap_or(false),
                fingerprint: question.fingerprint.0,
                ..RecordedQuestion::default()
            });
        }
    }

    /// The call that a question belongs to.
    fn asked(&mut self, id: Option<&str>) -> Option<&mut Call<'j>> {
        match id {
            Some(_) => self.call(id, |_| true),
            None => self
                .calls_of_last_thought()
                .find(|call| call.name == "ask_human" && call.result.is_none()),
        }
    }

    pub(super) fn last_thought_mut(&mut self) -> Option<&mut Thought<'j>> {
        self.turns.iter_mut().rev().find_map(|turn| match turn {
            Turn::Thought(thought) => Some(thought),
            Turn::User(_) | Turn::Refusal(_) => None,
        })
    }

    pub(super) fn calls_of_last_thought(&mut self) -> impl Iterator<Item = &mut Call<'j>> {
        self.last_thought_mut()
            .into_iter()
            .flat_map(|thought| thought.calls.iter_mut())
    }

    /// The call that a result belongs to. Old results have no id, and belong to the first call of
    /// their tool.
    fn finished(&mut self, id: &Text<'j>, tool: &Text<'j>) -> Option<&mut Call<'j>> {
        match id.get() {
            None => self
                .calls_of_last_thought()
                .find(|call| call.result.is_none() && tool.get() == Some(&*call.name)),
            id => self.call(id, |call| call.result.is_none()),
        }
    }

    /// The call with this id that was started and has no result.
    pub(super) fn started_call(&mut self, id: &Text<'j>) -> Option<&mut Call<'j>> {
        self.call(id.get(), |call| {
            call.request.is_some() && call.result.is_none()
        })
    }

    fn call(
        &mut self,
        id: Option<&str>,
        suits: impl Fn(&Call<'j>) -> bool,
    ) -> Option<&mut Call<'j>> {
        self.calls_of_last_thought()
            .find(|call| Some(&*call.id) == id && suits(call))
    }
}

/// The question of a call that has none of its own, because its request is of an old form.
fn unrecorded_question<'j>(call: &Call<'j>) -> Option<RecordedQuestion<'j>> {
    let asked = legacy::question(&call.name, &call.arguments)?;
    Some(RecordedQuestion {
        prompt: Cow::Owned(asked.prompt),
        input_type: asked.input_type.map(InputType::of).unwrap_or_default(),
        sensitive: asked.sensitive,
        ..RecordedQuestion::default()
    })
}
