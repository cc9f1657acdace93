//! The effect of each line of a journal on the state.

use super::attached::{Attached, LeftOut};
use super::{
    Call, End, NotBefore, RecordedQuestion, RefusedAnswer, Request, Run, Thought, Turn,
    UserMessage, decoded, fallback_model,
};
use crate::record::event::{EventKind, FlowEvent, InputType, Line};
use crate::record::legacy;
use crate::record::reader::{Fault, read_event};
use crate::text::json::parser_words;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The part of a configuration that matters to reading.
#[derive(Deserialize, Default)]
#[serde(default)]
struct RecordedConfig<'j> {
    #[serde(borrow)]
    llm: Option<RecordedLlm<'j>>,
    max_iterations: Option<u64>,
    #[serde(borrow)]
    same_call: Option<&'j RawValue>,
}

#[derive(Deserialize)]
struct RecordedLlm<'j> {
    #[serde(borrow)]
    model: Option<&'j RawValue>,
    #[serde(borrow)]
    fallback: Option<&'j RawValue>,
    #[serde(borrow)]
    window: Option<&'j RawValue>,
}

fn number(json: &RawValue) -> Option<u64> {
    json.get().parse().ok()
}

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
            self.updated_at.clone_from(&line.timestamp);
            if self.created_at.is_none() {
                self.created_at.clone_from(&line.timestamp);
            }
        }
        self.is_old |= line.is_old;
        self.is_of_later_layout |= line.attachments.is_some() || line.kind.is_of_later_layout();
        self.event(line).map_err(|message| (0, message))
    }

    fn event(&mut self, line: Box<Line<'j>>) -> Result<(), String> {
        match line.kind {
            EventKind::EngineStart => {
                self.end = None;
                self.asked_model = self.start(line);
                self.first_model.clone_from(&self.asked_model);
            }
            EventKind::UserMessage => self.user_message(line)?,
            EventKind::Thought => {
                self.end = None;
                self.turns.extend(self.unsaid.take().map(Turn::User));
                let thought = self.thought(&line)?;
                self.counts.add_thought(&line, &thought);
                self.no_progress_at = None;
                self.pauses.clear();
                self.fallback_asked = false;
                self.turns.push(Turn::Thought(thought));
                self.thought_seq = Some(self.seq);
            }
            EventKind::Acceptance => {
                self.end = None;
                self.acceptance(line);
            }
            EventKind::ActionRequest => self.action_request(line),
            EventKind::ActionDeferred | EventKind::DeferredLook => self.deferral(&line),
            EventKind::ActionResult => self.action_result(line),
            EventKind::HumanInputRequest => self.question(line),
            EventKind::HumanInputReceived => self.human_answer(line),
            EventKind::EngineEnd => self.engine_end(line),
            EventKind::Compaction => {
                self.aside(&line);
                self.compaction.add(line, self.seq);
            }
            EventKind::AttachmentsLeftOut => self.left_out.extend(LeftOut::read(&line, self.seq)),
            EventKind::Flow(FlowEvent::FlowStart) => self.is_flow = true,
            EventKind::SystemMessage => self.note(&line),
            EventKind::ModelChanged => {
                let to = line.changed_to();
                self.asked_model = Some(Cow::Owned(fallback_model(&to)));
                self.fallback_asked = true;
                self.counts.begin(None);
                if let (Some(model), Some(until)) = (line.from, line.until) {
                    let why = line.why.unwrap_or_default();
                    self.not_before.push(NotBefore { model, why, until });
                }
            }
            EventKind::HookAudit => self.announcement(&line),
            EventKind::ActionCheck
            | EventKind::Error
            | EventKind::Flow(_)
            | EventKind::Evaluation(_)
            | EventKind::Unknown(_) => {}
        }
        Ok(())
    }

    fn user_message(&mut self, line: Box<Line<'j>>) -> Result<(), String> {
        let content = line.content.ok_or("USER_MESSAGE without content")?.get();
        if self.first_message.is_none() {
            self.first_message = Some(decoded(content));
        }
        self.unsaid = None;
        self.pauses.clear();
        self.no_progress_at = None;
        self.counts.is_full = false;
        self.turns.push(Turn::User(UserMessage {
            content,
            inbox_id: line.inbox_id(),
            at: line.timestamp,
            seq: self.seq,
            attached: Attached::read(line.attachments, self.seq),
        }));
        self.end = None;
        Ok(())
    }

    fn human_answer(&mut self, line: Box<Line<'j>>) {
        let wanted = line.request_id;
        let fingerprint = line.fingerprint;
        let asked = self
            .calls_of_last_thought()
            .filter_map(|call| call.question.as_mut());
        let mut open = asked.filter(|q| q.response.is_none());
        if let Some(question) = open.find(|q| {
            let is_meant = wanted.is_none() || wanted.as_ref() == Some(&q.request_id);
            is_meant && q.fingerprint == fingerprint
        }) {
            question.response = Some(line.response.unwrap_or_default());
        }
    }

    fn note(&mut self, line: &Line<'j>) {
        self.remedies.extend(line.remedy.map(RawValue::get));
        self.pauses.extend(line.pause.map(RawValue::get));
        self.aside(line);
        self.counts.add_note(line, self.asked_model.as_deref());
    }

    /// Counts an answer that is no THOUGHT, if there was one.
    fn aside(&mut self, line: &Line<'j>) {
        self.counts.compacted_to = line.tokens_after.or(self.counts.compacted_to);
        if let Some(usage) = line.usage {
            self.tokens.add(usage.tokens());
            self.llm_calls += 1;
        }
    }

    fn action_result(&mut self, line: Box<Line<'j>>) {
        let content = line.observation_content.map_or("\"\"", RawValue::get);
        let says_how = line.status.is_some() || line.exit_code.is_some();
        let has_failed = says_how && !line.is_success();
        let seq = self.seq;
        if let Some(call) = self.finished(&line) {
            call.has_failed = has_failed;
            call.result = Some(content);
            call.attached = Attached::read(line.attachments, seq);
            let output = line.output_ref.or(line.execution_ref);
            call.output_ref = output.filter(|_| line.by_hook != Some(true));
            if let Some(thought) = self.last_thought_mut() {
                thought.last_seq = seq;
            }
        }
    }

    fn engine_end(&mut self, line: Box<Line<'j>>) {
        match line.stop_reason.as_deref() {
            Some("context_full") => self.counts.is_full = true,
            Some("no_progress") => self.no_progress_at = Some(self.same_call),
            _ => {}
        }
        let open = self.calls_of_last_thought();
        let open = open.filter(|call| call.result.is_none());
        for request in open.filter_map(|call| call.request.as_mut()) {
            request.is_suspended = true;
        }
        let is_completed = line.status.as_deref() == Some("COMPLETED");
        let text = line.result.or(line.error);
        let answer = || self.last_answer().filter(|_| is_completed);
        self.end = Some(End {
            text: text.or_else(answer),
            status: line.status.unwrap_or(Cow::Borrowed("FAILED")),
            stop_reason: line.stop_reason,
            exit_code: line.exit_code,
            at: line.timestamp,
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
    fn start(&mut self, line: Box<Line<'j>>) -> Option<Cow<'j, str>> {
        if self.first_message.is_none() && self.is_whole {
            let task = line.task.map(RawValue::get);
            let task = task.filter(|json| json.starts_with('"'));
            self.first_message = task.map(decoded);
            // Older engines record it nowhere else; of a run that was resumed it has been taken out.
            let is_said = line.call_id.is_some() && line.resumed != Some(true);
            let task = task.filter(|_| !is_said).map(|content| UserMessage {
                content,
                at: line.timestamp.clone(),
                seq: self.seq,
                ..UserMessage::default()
            });
            match task {
                Some(task) if self.turns.is_empty() => self.unsaid = Some(task),
                Some(task) => self.turns.insert(0, Turn::User(task)),
                None => {}
            }
        }
        let is_fork = line.forked_from.is_some() && line.forked_from != self.forked_from;
        if is_fork {
            // What comes before was another run.
            self.created_at.clone_from(&line.timestamp);
        }
        self.forked_from = line.forked_from.or(self.forked_from.take());
        self.message_parts = line.message_parts;
        self.set = line.set.unwrap_or_default();
        self.allow_hosts = line.allow_hosts.unwrap_or_default();
        self.run_id = line.run_id.or(self.run_id.take());
        self.agent_home = line.agent_home.or(self.agent_home.take());
        self.work_dir = line.work_dir.or(self.work_dir.take());
        self.parent_run_id = line.parent_run_id.or(self.parent_run_id.take());
        self.parent_call_id = line.parent_call_id.or(self.parent_call_id.take());
        self.engine_call = line.call_id;
        self.hostname = line.hostname;
        self.pid = line.pid;
        self.launcher = line.launcher.unwrap_or_default();
        self.starts += 1;
        self.started_at = line.timestamp;
        let config: RecordedConfig<'j> = line
            .config
            .and_then(|config| serde_json::from_str(config.get()).ok())
            .unwrap_or_default();
        self.max_iterations = config.max_iterations.or(self.max_iterations);
        self.same_call = config.same_call.and_then(number).unwrap_or_default();
        let llm = config.llm;
        let window = llm.as_ref().and_then(|llm| llm.window);
        self.counts.begin(window.and_then(number));
        let llm = llm?;
        self.fallback_left_out |= llm.fallback.is_some_and(|chain| chain.get() == "false");
        llm.model.map(|model| Cow::Borrowed(model.get()))
    }

    fn thought(&mut self, line: &Line<'j>) -> Result<Thought<'j>, String> {
        let next = line.iteration.unwrap_or(self.iterations + 1);
        self.iterations = next.max(self.iterations);
        self.llm_calls += 1;
        self.tokens.add(line.usage.unwrap_or_default().tokens());
        let tool_calls = line.tool_calls.map(RawValue::get);
        let tool_calls = tool_calls.filter(|raw| *raw != "null");
        let mut invalid: BTreeMap<String, String> = line
            .invalid_arguments
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
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
        let reasoning = line.reasoning_fields().into_iter();
        let wire = line.wire.map(RawValue::get);
        Ok(Thought {
            seq: self.seq,
            last_seq: self.seq,
            iteration: self.iterations,
            content: match line.content {
                // Who edits the text leaves the mark of a null beside it.
                Some(content) if content.get() != "\"\"" || line.content_null != Some(true) => {
                    content.get()
                }
                _ => "null",
            },
            tool_calls: tool_calls.filter(|_| !calls.is_empty()).map(Cow::Borrowed),
            reasoning: reasoning.map(|(name, value)| (name, value.get())).collect(),
            asked_model: self.asked_model.clone(),
            wire: wire.filter(|raw| raw.starts_with('{')),
            finish_reason: line.finish_reason.clone(),
            calls,
            accepted_by: Vec::new(),
            value: None,
            is_old: line.is_old,
        })
    }

    /// A check of the last answer. One that neither accepted nor refused it counts for nothing, and so does
    /// one of an answer that has been taken out.
    fn acceptance(&mut self, line: Box<Line<'j>>) {
        if line.thought_seq.is_none() || line.thought_seq != self.thought_seq {
            return;
        }
        let what = line.what.unwrap_or_default();
        if let Some(content) = line.content {
            self.turns.push(Turn::Refusal(RefusedAnswer {
                seq: self.seq,
                content: content.get(),
                what,
                exit_code: line.exit_code,
                execution_ref: line.execution_ref,
            }));
        } else if line.exit_code == Some(0)
            && let Some(Turn::Thought(thought)) = self.turns.last_mut()
        {
            thought.accepted_by.push(what);
            thought.value = line.value.map(RawValue::get).or(thought.value);
        }
    }

    fn action_request(&mut self, line: Box<Line<'j>>) {
        let id = line.action_id.as_deref();
        if self.call(id, |_| true).is_none() {
            if let Some(call) = self.adopt(&line) {
                call.question = unrecorded_question(call);
            }
            return;
        }
        let is_older = line.call_id.is_none();
        let is_new = self.call(id, |call| call.request.is_none()).is_some();
        let request = Request {
            call_id: line.call_id,
            execution_ref: line.execution_ref,
            arguments: line.tool_args.map(RawValue::get),
            command: line.resolved_command,
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

    fn question(&mut self, line: Box<Line<'j>>) {
        if self.asked(&line).is_none() {
            self.adopt(&line);
        }
        let question = RecordedQuestion {
            request_id: line.request_id.clone().unwrap_or_default(),
            prompt: line.prompt.clone().unwrap_or_default(),
            input_type: line.input_type.clone().unwrap_or_default(),
            sensitive: line.sensitive.unwrap_or(false),
            fingerprint: line.fingerprint.clone(),
            ..RecordedQuestion::default()
        };
        if let Some(call) = self.asked(&line) {
            call.question = Some(question);
        }
    }

    /// The call that a question belongs to.
    fn asked(&mut self, line: &Line<'j>) -> Option<&mut Call<'j>> {
        match &line.action_id {
            Some(id) => self.call(Some(id), |_| true),
            None => self
                .calls_of_last_thought()
                .find(|call| call.name == "ask_human" && call.result.is_none()),
        }
    }

    fn last_thought_mut(&mut self) -> Option<&mut Thought<'j>> {
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
    fn finished(&mut self, line: &Line<'j>) -> Option<&mut Call<'j>> {
        match &line.action_id {
            Some(id) => self.call(Some(id), |call| call.result.is_none()),
            None => self
                .calls_of_last_thought()
                .find(|call| call.result.is_none() && line.tool_name.as_ref() == Some(&call.name)),
        }
    }

    pub(super) fn call(
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
