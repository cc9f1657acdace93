//! The effect of each line of a journal on the state.

use super::attached::{Attached, LeftOut};
use super::{
    Call, Deferred, End, NotBefore, RefusedAnswer, Run, Thought, Turn, UserMessage, fallback_model,
};
use crate::record::event::{EventTrait, Line, ReadUsage, Recorded, decoded, recorded};
use crate::record::reader::{Fault, read_event};
use crate::text::json::parser_words;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct RawCall<'j> {
    #[serde(borrow)]
    id: Cow<'j, str>,
    #[serde(borrow)]
    function: RawFunction<'j>,
}

#[derive(Deserialize)]
struct RawFunction<'j> {
    #[serde(borrow)]
    name: Cow<'j, str>,
    #[serde(borrow)]
    arguments: &'j RawValue,
}

impl<'j> Run<'j> {
    /// Adds a line.
    pub(super) fn add_line(&mut self, bytes: &'j [u8]) -> Result<(), Fault> {
        let line = read_event(bytes, self.numbered)?;
        self.seq = line.seq.unwrap_or(self.seq + 1);
        self.numbered = line.seq.unwrap_or(self.numbered);
        if line.timestamp.is_some() {
            self.updated_at.clone_from(&line.timestamp.0);
            if self.created_at.is_none() {
                self.created_at.clone_from(&line.timestamp.0);
            }
        }
        self.is_old |= line.is_old;
        let has_attachments = line.raw_attachments().is_some();
        self.is_of_later_layout |= has_attachments || line.kind.is(EventTrait::NewLayout);
        self.event(line).map_err(|message| (0, message))
    }

    fn event(&mut self, mut line: Box<Line<'j>>) -> Result<(), String> {
        let event = std::mem::take(&mut line.event);
        match event {
            Recorded::EngineStart(start) => {
                self.end = None;
                self.asked_model = self.start(start, line.place.timestamp.0);
                self.first_model.clone_from(&self.asked_model);
            }
            Recorded::UserMessage(message) => self.user_message(message, line.place.timestamp.0)?,
            Recorded::Thought(thought) => self.add_thought(thought, &line)?,
            Recorded::Acceptance(check) => {
                self.end = None;
                self.acceptance(check, line.place.execution_ref.0.0);
            }
            Recorded::ActionRequest(_) => {
                self.file_states.unstated = Some(self.iterations);
                line.event = event;
                self.action_request(*line);
            }
            Recorded::ActionDeferred(deferral) => {
                if let Some(call) = self.started_call(&line.action_id) {
                    call.deferred = Some(Deferred::of(&deferral, line.time()));
                }
            }
            Recorded::DeferredLook(look) => {
                let call = self.started_call(&line.action_id);
                if let Some(deferred) = call.and_then(|call| call.deferred.as_mut()) {
                    deferred.add_look(&look, line.time());
                }
            }
            Recorded::ActionResult(result) => self.action_result(result, line.place),
            Recorded::HumanInputRequest(_) => {
                line.event = event;
                self.question(*line);
            }
            Recorded::HumanInputReceived(answer) => self.human_answer(answer),
            Recorded::EngineEnd(end) => self.engine_end(end, line.place.timestamp.0),
            Recorded::Compaction(compaction) => {
                self.aside(compaction.usage);
                self.counts.compacted_to = compaction.tokens_after.or(self.counts.compacted_to);
                self.compaction.add(compaction, self.seq);
            }
            Recorded::AttachmentsLeftOut(left_out) => {
                self.left_out.extend(LeftOut::read(&left_out, self.seq));
            }
            Recorded::Files(files) => {
                let iteration = line.iteration.unwrap_or(self.iterations);
                self.file_states.add(&files, iteration, line.time());
            }
            Recorded::FlowStart(_) => self.is_flow = true,
            Recorded::SystemMessage(note) => {
                self.remedies.extend(note.remedy.get());
                self.pauses.extend(note.pause.get());
                self.aside(note.usage);
                self.counts.add_note(&note, self.asked_model.as_deref());
                self.file_states.is_lack_known |= note.files_left_out == Some(true);
            }
            Recorded::ModelChanged(change) => {
                self.asked_model = Some(Cow::Owned(fallback_model(&change.to)));
                self.fallback_asked = true;
                self.counts.begin(None);
                if let (Some(model), Some(until)) = (change.from.0, change.until.0) {
                    let why = change.why.0.unwrap_or_default();
                    self.not_before.push(NotBefore { model, why, until });
                }
            }
            Recorded::HookAudit(hook) => self.announcement(&hook),
            _ => {}
        }
        Ok(())
    }

    fn user_message(
        &mut self,
        message: recorded::UserMessage<'j>,
        at: Option<Cow<'j, str>>,
    ) -> Result<(), String> {
        let content = (message.content.get()).ok_or("USER_MESSAGE without content")?;
        if self.first_message.is_none() {
            self.first_message = Some(decoded(content));
        }
        self.unsaid = None;
        self.pauses.clear();
        self.no_progress_at = None;
        self.counts.is_full = false;
        self.turns.push(Turn::User(UserMessage {
            content,
            inbox_id: message.inbox_id(),
            at,
            seq: self.seq,
            attached: Attached::read(message.attachments, self.seq),
        }));
        self.end = None;
        Ok(())
    }

    /// Counts an answer that is no THOUGHT, if there was one.
    fn aside(&mut self, usage: Option<ReadUsage>) {
        if let Some(usage) = usage {
            self.usage.add(usage.tokens());
        }
    }

    fn engine_end(&mut self, end: recorded::EngineEnd<'j>, at: Option<Cow<'j, str>>) {
        self.file_states.unstated = None;
        match &*end.stop_reason {
            "context_full" => self.counts.is_full = true,
            "no_progress" => self.no_progress_at = Some(self.same_call),
            _ => {}
        }
        let open = self
            .calls_of_last_thought()
            .filter(|call| call.result.is_none());
        for request in open.filter_map(|call| call.request.as_mut()) {
            request.is_suspended = true;
        }
        let is_completed = &*end.status == "COMPLETED";
        let text = end.result.0.or(end.error.0);
        let answer = || self.last_answer().filter(|_| is_completed);
        self.end = Some(End {
            text: text.or_else(answer),
            status: end.status.0.unwrap_or(Cow::Borrowed("FAILED")),
            stop_reason: end.stop_reason.0,
            exit_code: end.exit_code,
            at,
        });
    }

    /// The text of the last thought without calls.
    fn last_answer(&self) -> Option<Cow<'j, str>> {
        self.turns.iter().rev().find_map(|turn| match turn {
            Turn::Thought(thought) if thought.calls.is_empty() => Some(decoded(thought.content)),
            _ => None,
        })
    }

    /// Returns the model that is asked from now on.
    fn start(
        &mut self,
        mut start: recorded::EngineStart<'j>,
        at: Option<Cow<'j, str>>,
    ) -> Option<Cow<'j, str>> {
        if self.first_message.is_none() && self.is_whole {
            let task = start.task.get().filter(|json| json.starts_with('"'));
            self.first_message = task.map(decoded);
            // Older engines record it nowhere else; of a run that was resumed it has been taken out.
            let is_said = start.call_id.is_some() && start.resumed != Some(true);
            let unsaid = task.filter(|_| !is_said).map(|content| UserMessage {
                content,
                at: at.clone(),
                seq: self.seq,
                ..UserMessage::default()
            });
            match unsaid {
                Some(task) if self.turns.is_empty() => self.unsaid = Some(task),
                Some(task) => self.turns.insert(0, Turn::User(task)),
                None => {}
            }
        }
        let config = start.config();
        let before = std::mem::take(&mut self.start);
        if start.forked_from.is_some() && start.forked_from != before.forked_from {
            // What comes before was another run.
            self.always.clear();
            self.created_at.clone_from(&at);
        }
        start.forked_from = start.forked_from.or(before.forked_from);
        for (text, known) in [
            (&mut start.run_id, before.run_id),
            (&mut start.agent_home, before.agent_home),
            (&mut start.work_dir, before.work_dir),
            (&mut start.parent_run_id, before.parent_run_id),
            (&mut start.parent_call_id, before.parent_call_id),
        ] {
            if !text.is_some() {
                *text = known;
            }
        }
        self.start = start;
        self.starts += 1;
        self.started_at = at;
        let max_iterations = config.get("max_iterations").read();
        self.max_iterations = max_iterations.or(self.max_iterations);
        self.same_call = config.get("same_call").read_or_default();
        let is_kept = config.get("files").get() == Some("\"git\"");
        self.file_states.begin(is_kept, self.iterations);
        let llm = config.llm();
        self.counts.begin(llm.get("window").read());
        self.fallback_left_out |= llm.get("fallback").get() == Some("false");
        llm.get("model").get().map(Cow::Borrowed)
    }

    fn add_thought(
        &mut self,
        recorded: recorded::Thought<'j>,
        line: &Line<'j>,
    ) -> Result<(), String> {
        self.end = None;
        self.turns.extend(self.unsaid.take().map(Turn::User));
        let usage = recorded.usage;
        let thought = self.thought(recorded, line)?;
        self.counts.add_thought(usage, &thought);
        self.no_progress_at = None;
        self.pauses.clear();
        self.fallback_asked = false;
        self.turns.push(Turn::Thought(thought));
        self.thought_seq = Some(self.seq);
        Ok(())
    }

    fn thought(
        &mut self,
        thought: recorded::Thought<'j>,
        line: &Line<'j>,
    ) -> Result<Thought<'j>, String> {
        self.iterations = line
            .iteration
            .unwrap_or(self.iterations + 1)
            .max(self.iterations);
        self.usage.add(thought.usage.unwrap_or_default().tokens());
        let tool_calls = thought.tool_calls.get();
        let mut invalid: BTreeMap<String, String> = thought.invalid_arguments.read_or_default();
        let raw_calls: Vec<RawCall<'j>> = match tool_calls {
            Some(raw) => serde_json::from_str(raw)
                .map_err(|e| format!("tool_calls: {}", parser_words(&e)))?,
            None => Vec::new(),
        };
        let calls: Vec<Call<'j>> = raw_calls
            .into_iter()
            .map(|call| Call {
                invalid_arguments: invalid.remove(&*call.id),
                id: call.id,
                name: call.function.name,
                arguments: decoded(call.function.arguments.get()),
                ..Call::default()
            })
            .collect();
        let reasoning = thought.reasoning_fields().into_iter();
        Ok(Thought {
            seq: self.seq,
            last_seq: self.seq,
            iteration: self.iterations,
            content: match thought.content.get() {
                // Who edits the text leaves the mark of a null beside it.
                Some(content) if content != "\"\"" || thought.content_null != Some(true) => content,
                _ => "null",
            },
            tool_calls: tool_calls.filter(|_| !calls.is_empty()).map(Cow::Borrowed),
            reasoning: reasoning.map(|(name, value)| (name, value.get())).collect(),
            asked_model: self.asked_model.clone(),
            wire: thought.wire.get().filter(|raw| raw.starts_with('{')),
            finish_reason: thought.finish_reason,
            calls,
            accepted_by: Vec::new(),
            value: None,
            is_old: line.is_old,
        })
    }

    /// A check of the last answer. One that neither accepted nor refused it counts for nothing, and so does
    /// one of an answer that has been taken out.
    fn acceptance(&mut self, check: recorded::Acceptance<'j>, execution_ref: Option<Cow<'j, str>>) {
        if check.thought_seq.is_none() || check.thought_seq != self.thought_seq {
            return;
        }
        let what = check.what.0.unwrap_or_default();
        if let Some(content) = check.content.get() {
            self.turns.push(Turn::Refusal(RefusedAnswer {
                seq: self.seq,
                content,
                what,
                exit_code: check.exit_code,
                execution_ref,
            }));
        } else if check.exit_code == Some(0)
            && let Some(Turn::Thought(thought)) = self.turns.last_mut()
        {
            thought.accepted_by.push(what);
            thought.value = check.value.get().or(thought.value);
        }
    }
}
