//! One line of the journal: how each event is written, and how any line is read.
//!
//! Unaware of the file that the lines are in and of what the events add up to.
//!
//! Architecture invariant: this is the only place that knows the names of the fields. Whatever is
//! sent to the model again is kept as the JSON text that it came in, so that reading costs no
//! decoding and what was recorded is what is sent.

mod words;
mod line;

pub(crate) use line::{Line, quick_kind};
pub(crate) use words::{EvaluationEvent, EventKind, FlowEvent};
pub use words::{FinishReason, InputType};

use crate::VERSION;
use crate::text::json::Object;
use crate::text::timestamp::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The members of an assistant message in which servers send the model's reasoning. Some servers
/// insist on having them back.
pub(crate) const REASONING: [&str; 5] = [
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "thinking",
    "thinking_blocks",
];

/// Tokens of one answer or of a whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// The sum as the server counts it.
    pub total_tokens: u64,
}

impl Tokens {
    /// Adds another count to this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self
            .completion_tokens
            .saturating_add(other.completion_tokens);
        self.total_tokens = self.total_tokens.saturating_add(other.total_tokens);
    }
}

/// The run that a run was forked from, and after which of its iterations.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, Deserialize)]
pub struct ForkedFrom {
    /// The run's name.
    pub run_id: String,
    /// The last iteration that the two share; 0: none.
    pub iteration: u64,
}

/// How an action ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActionStatus {
    /// Exit code 0.
    Success,
    /// Another exit code, a signal, a timeout, a program that cannot be run.
    Failed,
    /// No exit code is known: nothing was run, or the engine died meanwhile.
    Error,
}

impl ActionStatus {
    /// As it stands in the journal.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Failed => "FAILED",
            Self::Error => "ERROR",
        }
    }

    /// Reads what [`Self::name`] writes.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let all = [Self::Success, Self::Failed, Self::Error];
        all.into_iter().find(|status| status.name() == name)
    }
}

/// How the result of a call begins that a guard or a person has refused.
pub(crate) const DENIED: &str = "denied: ";

/// The answer of a tool's check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckFinding {
    /// The call has happened.
    Happened,
    /// It has not, and may be made.
    Absent,
    /// The check cannot say.
    Unknown,
}

impl CheckFinding {
    /// As it stands in the journal.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Happened => "HAPPENED",
            Self::Absent => "ABSENT",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// What a note tells later starts of the engine: JSON objects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fact<'a> {
    /// How requests are changed because the service refused one.
    Remedy(&'a [u8]),
    /// A part of an answer, after which the service has paused.
    Pause(&'a [u8]),
}

/// An event to be recorded. Fields named `…_json` hold JSON text.
pub(crate) enum Event<'a> {
    /// An engine begins to work on the run.
    EngineStart {
        /// The run's name.
        run_id: &'a str,
        /// The agent's directory.
        agent_home: &'a str,
        /// The workspace.
        work_dir: &'a str,
        /// The run's first message.
        task: &'a str,
        /// The texts and the names of the files that the message was made from, if there are files.
        message_parts: Option<&'a Value>,
        /// The configuration as it was understood.
        config_json: &'a [u8],
        /// The host that `pid` is on.
        hostname: &'a str,
        /// The beginning of `DELTA_CALL_ID` for its hooks, generators and model programs.
        call_id: &'a str,
        /// True if the run had been started before.
        resumed: bool,
        /// The run whose tool this run is, if it is one.
        parent_run_id: Option<&'a str>,
        /// `DELTA_CALL_ID` of what started it there.
        parent_call_id: Option<&'a str>,
        /// The run that this one began as a part of.
        forked_from: Option<&'a ForkedFrom>,
        /// Keys of agent.yaml that this run sets otherwise, and to what.
        set: &'a Map<String, Value>,
        /// Variables of the batch system that started the engine.
        launcher: &'a Map<String, Value>,
        /// The span of another program that the run is a part of: `TRACEPARENT`.
        traceparent: Option<&'a str>,
    },
    /// Somebody spoke to the model.
    UserMessage { content: &'a str },
    /// The model answered.
    Thought {
        /// The text as a JSON string, or null.
        content_json: &'a [u8],
        /// The calls as they are sent back to the model: a JSON array, if there are any.
        tool_calls_json: Option<&'a [u8]>,
        /// The text in place of a JSON object, by the call's id.
        invalid_arguments: &'a [(String, String)],
        /// Members of the message in which the server sent reasoning.
        reasoning: &'a [(&'static str, &'a [u8])],
        /// Why the model stopped.
        finish_reason: Option<&'a FinishReason<'a>>,
        /// Which model says that it answered.
        model: Option<&'a str>,
        /// Tokens used for the answer.
        usage: Option<Tokens>,
        /// The invocation's directory, from the run's directory.
        llm_invocation_ref: &'a str,
        /// The answer as it came over another API than chat completions: a JSON object.
        wire_json: Option<&'a [u8]>,
    },
    /// A tool is about to run.
    ActionRequest {
        /// The call's id.
        action_id: &'a str,
        /// Which tool.
        tool_name: &'a str,
        /// The arguments: a JSON object.
        tool_args_json: &'a [u8],
        /// One line that can be pasted into a shell.
        resolved_command: &'a str,
        /// `DELTA_CALL_ID` of the tool's processes.
        call_id: &'a str,
        /// The execution's directory, from the run's directory; none if nothing is to be run.
        execution_ref: Option<&'a str>,
    },
    /// A tool's check has been asked whether a call has happened.
    ActionCheck {
        /// The call's id.
        action_id: &'a str,
        /// Which tool.
        tool_name: &'a str,
        /// What it found out.
        finding: CheckFinding,
        /// The exit code, if one is known.
        exit_code: Option<i32>,
        /// From start to end.
        duration_ms: u64,
        /// The directory of its execution, from the run's directory.
        execution_ref: &'a str,
    },
    /// A call has its result.
    ActionResult {
        /// The call's id.
        action_id: &'a str,
        /// Which tool.
        tool_name: &'a str,
        /// How it ended.
        status: ActionStatus,
        /// The exit code, if one is known.
        exit_code: Option<i32>,
        /// The text that the model receives.
        observation_content: &'a str,
        /// From start to end.
        duration_ms: u64,
        /// The execution's directory, from the run's directory.
        execution_ref: Option<&'a str>,
    },
    /// A check of a final answer has ended.
    Acceptance {
        /// The number of the answer's THOUGHT.
        thought_seq: u64,
        /// The check: its command on one line, or `output_schema`.
        what: &'a str,
        exit_code: i32,
        /// From start to end.
        duration_ms: u64,
        /// The execution's directory, from the run's directory; none if nothing was run.
        execution_ref: Option<&'a str>,
        /// How many answers had been refused before since a person spoke.
        repair: u64,
        /// The message to the model, if the check refuses the answer.
        content: Option<&'a str>,
    },
    /// A person is asked.
    HumanInputRequest {
        /// The call's id.
        action_id: &'a str,
        /// The question's id.
        request_id: &'a str,
        /// The question.
        prompt: &'a str,
        input_type: &'a InputType<'a>,
        /// True if the answer must not be shown.
        sensitive: bool,
        /// The call that would run, if it is one that a person must confirm.
        fingerprint: Option<&'a str>,
    },
    /// A person answered.
    HumanInputReceived {
        /// The call's id.
        action_id: &'a str,
        /// The question's id.
        request_id: &'a str,
        /// The answer.
        response: &'a str,
        /// That of the question.
        fingerprint: Option<&'a str>,
    },
    /// The engine notes something about the run.
    SystemMessage {
        /// `INFO`, `WARN` or `ERROR`.
        level: &'a str,
        /// The note.
        content: &'a str,
        /// What later starts need to know of it.
        fact: Option<Fact<'a>>,
    },
    /// A hook has been run.
    HookAudit {
        /// Which.
        hook_name: &'a str,
        /// `SUCCESS`, `FAILED` or `SKIPPED`.
        status: &'a str,
        /// The execution's directory, from the run's directory.
        io_path_ref: &'a str,
    },
    /// Something failed.
    Error {
        /// In one line.
        error_message: &'a str,
        /// More about it: JSON.
        error_details_json: &'a [u8],
    },
    /// The engine stops working on the run.
    EngineEnd {
        /// The run's name.
        run_id: &'a str,
        /// The run's state from now on.
        status: &'a str,
        /// Why.
        stop_reason: &'a str,
        /// With which the engine ends.
        exit_code: u8,
        /// How many iterations the run has had.
        final_iteration: u64,
        /// The result, or what went wrong.
        text: &'a str,
    },
}

impl Event<'_> {
    /// Appends the event as a line, with its newline.
    pub(crate) fn write(&self, out: &mut Vec<u8>, seq: u64, at: Timestamp, iteration: u64) {
        write_line(out, (seq, at), &self.kind(), iteration, |line| {
            self.write_fields(line);
        });
    }

    fn kind(&self) -> EventKind<'static> {
        match self {
            Self::EngineStart { .. } => EventKind::EngineStart,
            Self::UserMessage { .. } => EventKind::UserMessage,
            Self::Thought { .. } => EventKind::Thought,
            Self::ActionRequest { .. } => EventKind::ActionRequest,
            Self::ActionCheck { .. } => EventKind::ActionCheck,
            Self::ActionResult { .. } => EventKind::ActionResult,
            Self::Acceptance { .. } => EventKind::Acceptance,
            Self::HumanInputRequest { .. } => EventKind::HumanInputRequest,
            Self::HumanInputReceived { .. } => EventKind::HumanInputReceived,
            Self::SystemMessage { .. } => EventKind::SystemMessage,
            Self::HookAudit { .. } => EventKind::HookAudit,
            Self::Error { .. } => EventKind::Error,
            Self::EngineEnd { .. } => EventKind::EngineEnd,
        }
    }

    fn write_fields(&self, line: &mut Object<'_>) {
        match *self {
            Self::EngineStart { .. } => self.write_start(line),
            Self::UserMessage { content } => {
                line.put("content", content);
            }
            Self::Thought { .. } => self.write_thought(line),
            Self::ActionRequest {
                action_id,
                tool_name,
                tool_args_json,
                resolved_command,
                call_id,
                execution_ref,
            } => {
                line.put("action_id", action_id)
                    .put("tool_name", tool_name)
                    .raw("tool_args", tool_args_json)
                    .put("resolved_command", resolved_command)
                    .put("call_id", call_id)
                    .put("execution_ref", &execution_ref);
            }
            Self::ActionCheck {
                action_id,
                tool_name,
                finding,
                exit_code,
                duration_ms,
                execution_ref,
            } => {
                line.put("action_id", action_id)
                    .put("tool_name", tool_name)
                    .put("status", finding.name())
                    .put("exit_code", &exit_code)
                    .put("duration_ms", &duration_ms)
                    .put("execution_ref", execution_ref);
            }
            Self::ActionResult {
                action_id,
                tool_name,
                status,
                exit_code,
                observation_content,
                duration_ms,
                execution_ref,
            } => {
                line.put("action_id", action_id)
                    .put("tool_name", tool_name)
                    .put("status", status.name())
                    .put("exit_code", &exit_code)
                    .put("observation_content", observation_content)
                    .put("duration_ms", &duration_ms)
                    .put("execution_ref", &execution_ref);
            }
            Self::Acceptance {
                thought_seq,
                what,
                exit_code,
                duration_ms,
                execution_ref,
                repair,
                content,
            } => {
                line.put("thought_seq", &thought_seq)
                    .put("what", what)
                    .put("exit_code", &exit_code)
                    .put("duration_ms", &duration_ms)
                    .put("execution_ref", &execution_ref)
                    .put("repair", &repair);
                if let Some(content) = content {
                    line.put("content", content);
                }
            }
            Self::HumanInputRequest {
                action_id,
                request_id,
                prompt,
                input_type,
                sensitive,
                fingerprint,
            } => {
                line.put("action_id", action_id)
                    .put("request_id", request_id)
                    .put("prompt", prompt)
                    .put("input_type", input_type.name())
                    .put("sensitive", &sensitive);
                if let Some(fingerprint) = fingerprint {
                    line.put("fingerprint", fingerprint);
                }
            }
            Self::HumanInputReceived {
                action_id,
                request_id,
                response,
                fingerprint,
            } => {
                line.put("action_id", action_id)
                    .put("request_id", request_id)
                    .put("response", response);
                if let Some(fingerprint) = fingerprint {
                    line.put("fingerprint", fingerprint);
                }
            }
            Self::SystemMessage {
                level,
                content,
                fact,
            } => {
                line.put("level", level).put("content", content);
                match fact {
                    Some(Fact::Remedy(json)) => line.raw("remedy", json),
                    Some(Fact::Pause(json)) => line.raw("pause", json),
                    None => line,
                };
            }
            Self::HookAudit {
                hook_name,
                status,
                io_path_ref,
            } => {
                line.put("hook_name", hook_name)
                    .put("status", status)
                    .put("io_path_ref", io_path_ref);
            }
            Self::Error {
                error_message,
                error_details_json,
            } => {
                line.put("error_message", error_message)
                    .raw("error_details", error_details_json);
            }
            Self::EngineEnd {
                run_id,
                status,
                stop_reason,
                exit_code,
                final_iteration,
                text,
            } => {
                line.put("run_id", run_id)
                    .put("status", status)
                    .put("stop_reason", stop_reason)
                    .put("exit_code", &exit_code)
                    .put("final_iteration", &final_iteration)
                    .put(
                        if status == "COMPLETED" {
                            "result"
                        } else {
                            "error"
                        },
                        text,
                    );
            }
        }
    }

    fn write_start(&self, line: &mut Object<'_>) {
        let Self::EngineStart {
            run_id,
            agent_home,
            work_dir,
            task,
            message_parts,
            config_json,
            hostname,
            call_id,
            resumed,
            parent_run_id,
            parent_call_id,
            forked_from,
            set,
            launcher,
            traceparent,
        } = *self
        else {
            return;
        };
        line.put("run_id", run_id)
            .put("agent_home", agent_home)
            .put("work_dir", work_dir)
            .put("task", task)
            .raw("config", config_json)
            .put("pid", &std::process::id())
            .put("hostname", hostname)
            .put("call_id", call_id)
            .put("delta_version", VERSION)
            .put("resumed", &resumed);
        if let Some(parts) = message_parts {
            line.put("message_parts", parts);
        }
        if let Some(parent) = parent_run_id {
            line.put("parent_run_id", parent);
        }
        if let Some(call) = parent_call_id {
            line.put("parent_call_id", call);
        }
        if let Some(fork) = forked_from {
            line.put("forked_from", fork);
        }
        if !set.is_empty() {
            line.put("set", set);
        }
        if !launcher.is_empty() {
            line.put("launcher", launcher);
        }
        if let Some(span) = traceparent {
            line.put("traceparent", span);
        }
    }

    fn write_thought(&self, line: &mut Object<'_>) {
        let Self::Thought {
            content_json,
            tool_calls_json,
            invalid_arguments,
            reasoning,
            finish_reason,
            model,
            usage,
            llm_invocation_ref,
            wire_json,
        } = *self
        else {
            return;
        };
        // Who reads the journal always finds a text.
        let is_null = content_json == b"null";
        line.raw("content", if is_null { b"\"\"" } else { content_json });
        if is_null {
            line.put("content_null", &true);
        }
        if let Some(calls) = tool_calls_json {
            line.raw("tool_calls", calls);
        }
        if !invalid_arguments.is_empty() {
            let mut texts = Object::begin(line.nest("invalid_arguments"));
            for (id, text) in invalid_arguments {
                texts.put(id, text);
            }
            texts.end();
        }
        for (name, value) in reasoning {
            line.raw(name, value);
        }
        line.put("finish_reason", &finish_reason.map(FinishReason::name))
            .put("model", &model);
        if let Some(usage) = usage {
            line.put("usage", &usage);
        }
        line.put("llm_invocation_ref", llm_invocation_ref);
        if let Some(wire) = wire_json {
            line.raw("wire", wire);
        }
    }
}

/// Appends a line of any type, with the fields that all lines have and those that are put into it.
pub(crate) fn write_line(
    out: &mut Vec<u8>,
    (seq, at): (u64, Timestamp),
    kind: &EventKind<'_>,
    iteration: u64,
    fields: impl FnOnce(&mut Object<'_>),
) {
    let mut line = Object::begin(out);
    line.put("seq", &seq)
        .put("timestamp", &at.to_string())
        .put("type", kind.name())
        .put("iteration", &iteration);
    fields(&mut line);
    line.end();
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(event: &Event<'_>) -> String {
        let mut out = Vec::new();
        event.write(&mut out, 7, Timestamp::from_millis(1_760_366_122_123), 3);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_event_is_one_flat_line() {
        let line = written(&Event::UserMessage {
            content: "a\n\"b\"",
        });
        assert_eq!(
            line,
            "{\"seq\":7,\"timestamp\":\"2025-10-13T14:35:22.123Z\",\"type\":\"USER_MESSAGE\",\
             \"iteration\":3,\"content\":\"a\\n\\\"b\\\"\"}\n"
        );
        assert_eq!(quick_kind(line.as_bytes()), Some(EventKind::UserMessage));
    }

    #[test]
    fn what_is_written_is_read() {
        let line = written(&Event::Thought {
            content_json: b"null",
            tool_calls_json: Some(b"[]"),
            invalid_arguments: &[],
            reasoning: &[("reasoning", b"\"r\"")],
            finish_reason: Some(&FinishReason::of("stop")),
            model: None,
            usage: Some(Tokens {
                prompt_tokens: 1,
                completion_tokens: 2,
                total_tokens: 3,
            }),
            llm_invocation_ref: "io/invocations/x",
            wire_json: Some(b"{}"),
        });
        let read = Line::parse(&line).unwrap();
        assert_eq!(read.kind, EventKind::Thought);
        assert_eq!(read.seq, Some(7));
        assert_eq!(read.tool_calls.unwrap().get(), "[]");
        assert_eq!(read.reasoning_fields()[0].0, "reasoning");
        assert_eq!(read.usage.unwrap().total_tokens, 3);
        assert_eq!(read.wire.unwrap().get(), "{}");
    }
}
