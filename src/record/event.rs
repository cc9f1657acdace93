//! One line of the journal: how each event is written, and how any line is read.
//!
//! Unaware of the file that the lines are in and of what the events add up to.
//!
//! Architecture invariant: this is the only place that knows the names of the fields. What is
//! sent to the model again is kept as the JSON text that it came in, so that reading costs no
//! decoding and what was recorded is what is sent.

mod words;
mod line;
mod recorded_calls;
mod deferral;
mod write;

use crate::record::attachments::Attachment;
use crate::record::engine_log::Level;
use crate::text::amounts::grouped;
use crate::text::names::named_enum;
pub(crate) use deferral::{DeferralEvent, InboxEvent, LookEvent};
pub(crate) use line::{Line, quick_kind};
pub(crate) use recorded_calls::RecordedCall;
pub(crate) use words::{
    CompactionKind, CompactionReason, EvaluationEvent, EventKind, FlowEvent, LeftOutReason,
};
pub use words::{FinishReason, InputType};
pub(crate) use write::write_line;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use write::{raw, raw_members, texts};

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokens {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// The sum as the server counts it.
    pub total_tokens: u64,
}

/// The tokens of an answer as the journal has them, and how long its request was.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename = "Tokens")]
pub(crate) struct ReadUsage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    /// Bytes.
    pub request_bytes: Option<u64>,
    /// By estimate.
    pub attachment_tokens: Option<u64>,
}

impl ReadUsage {
    pub(crate) fn tokens(self) -> Tokens {
        Tokens {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            total_tokens: self.total_tokens,
        }
    }
}

/// What a service says of the terms of an answer, which decide its price.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Terms {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inference_geo: Option<String>,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    /// The run's name.
    pub run_id: String,
    /// The last iteration that the two share; 0: none.
    pub iteration: u64,
}

named_enum! {
    /// How an action ended.
    pub(crate) enum ActionStatus {
        /// Exit code 0.
        Success = "SUCCESS",
        /// Another exit code, a signal, a timeout, a program that cannot be run.
        Failed = "FAILED",
        /// No exit code is known: nothing was run, or the engine died meanwhile.
        Error = "ERROR",
    }
}

impl ActionStatus {
    /// That of an action whose exit code is known.
    pub(crate) fn of(is_good: bool) -> Self {
        if is_good { Self::Success } else { Self::Failed }
    }
}

named_enum! {
    /// How a hook ended.
    pub(crate) enum HookStatus {
        Success = "SUCCESS",
        Failed = "FAILED",
        /// The engine is ending, or a hook before it decided.
        Skipped = "SKIPPED",
    }
}

/// How the result of a call begins that a guard or a person has refused.
pub(crate) const DENIED: &str = "denied: ";

named_enum! {
    /// The answer of a tool's check.
    pub(crate) enum CheckFinding {
        /// The call has happened.
        Happened = "HAPPENED",
        /// It has not, and may be made.
        Absent = "ABSENT",
        /// The check cannot say.
        Unknown = "UNKNOWN",
    }
}

/// The data of a note for later starts of the engine: JSON objects.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Fact<'a> {
    /// How requests are changed because the service refused one.
    Remedy(#[serde(serialize_with = "raw")] &'a [u8]),
    /// A part of an answer, after which the service has paused.
    Pause(#[serde(serialize_with = "raw")] &'a [u8]),
    #[serde(untagged)]
    Other(NotedFact<'a>),
}

/// A note for later starts of several members. Each may be missing.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct NotedFact<'a> {
    /// The tokens that the model takes, as a refusal has shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The estimate of a request that could not be shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_before: Option<u64>,
    /// The server counts fewer tokens than it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_truncated: Option<bool>,
    /// The server ends streams without saying why the model stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_finish_reason: Option<bool>,
    /// Of answers that were not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<RecordedUsage<'a>>,
}

/// An event to be recorded: its fields, in the order in which they are written.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Event<'a> {
    /// An engine begins to work on the run.
    EngineStart {
        run_id: &'a str,
        agent_home: &'a str,
        work_dir: &'a str,
        /// The run's first message.
        task: &'a str,
        /// The configuration as it was understood: JSON.
        #[serde(serialize_with = "raw")]
        config: &'a [u8],
        pid: u32,
        /// The host that `pid` is on.
        hostname: &'a str,
        /// The beginning of `DELTA_CALL_ID` for its hooks, generators and model programs.
        call_id: &'a str,
        delta_version: &'a str,
        /// True if the run had been started before.
        resumed: bool,
        /// The texts and the names of the files that the message was made from, if there are files.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_parts: Option<&'a Value>,
        /// The run whose tool this run is, if it is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_run_id: Option<&'a str>,
        /// `DELTA_CALL_ID` of what started it there.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_call_id: Option<&'a str>,
        /// The run that this one began as a part of.
        #[serde(skip_serializing_if = "Option::is_none")]
        forked_from: Option<&'a ForkedFrom>,
        /// Keys of agent.yaml that this run overrides, with their values.
        #[serde(skip_serializing_if = "Map::is_empty")]
        set: &'a Map<String, Value>,
        /// The hosts that tools may reach without a network.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        allow_hosts: &'a [String],
        /// Variables of the batch system that started the engine.
        #[serde(skip_serializing_if = "Map::is_empty")]
        launcher: &'a Map<String, Value>,
        /// The span of another program that the run is a part of: `TRACEPARENT`.
        #[serde(skip_serializing_if = "Option::is_none")]
        traceparent: Option<&'a str>,
    },
    /// A message of a person.
    UserMessage {
        content: &'a str,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        attachments: &'a [Attachment],
    },
    /// A message of a person from the inbox.
    InboxMessage(InboxEvent<'a>),
    /// The model answered.
    Thought(ThoughtEvent<'a>),
    /// A tool is about to run.
    ActionRequest {
        action_id: &'a str,
        tool_name: &'a str,
        /// A JSON object.
        #[serde(serialize_with = "raw")]
        tool_args: &'a [u8],
        /// One line that can be pasted into a shell.
        resolved_command: &'a str,
        /// `DELTA_CALL_ID` of the tool's processes.
        call_id: &'a str,
        /// The execution's directory, from the run's directory; None if nothing runs.
        execution_ref: Option<&'a str>,
    },
    /// A tool's check has been asked whether a call has happened.
    ActionCheck {
        action_id: &'a str,
        tool_name: &'a str,
        status: CheckFinding,
        /// The exit code, if one is known.
        exit_code: Option<i32>,
        /// From start to end.
        duration_ms: u64,
        /// The directory of its execution, from the run's directory.
        execution_ref: &'a str,
    },
    /// A call has begun something that ends without it.
    ActionDeferred(DeferralEvent<'a>),
    /// A call that ends later has been looked at, and has not ended.
    DeferredLook(LookEvent<'a>),
    /// A call has its result.
    ActionResult {
        action_id: &'a str,
        tool_name: &'a str,
        status: ActionStatus,
        /// The exit code, if one is known.
        exit_code: Option<i32>,
        /// The text that the model receives.
        observation_content: &'a str,
        /// From start to end.
        duration_ms: u64,
        /// The execution's directory, from the run's directory.
        execution_ref: Option<&'a str>,
        /// A hook wrote the text.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        by_hook: bool,
        /// In a replay: the recorded execution's directory, from the recorded run's directory.
        #[serde(skip_serializing_if = "Option::is_none")]
        output_ref: Option<&'a str>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        attachments: &'a [Attachment],
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
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<&'a str>,
        /// The JSON value that a schema has accepted, if it is not the whole text.
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<RawJson<'a>>,
    },
    /// A person is asked.
    HumanInputRequest {
        action_id: &'a str,
        request_id: &'a str,
        prompt: &'a str,
        input_type: &'a InputType<'a>,
        /// True if the answer must not be shown.
        sensitive: bool,
        /// The call that would run, if it is one that a person must confirm.
        #[serde(skip_serializing_if = "Option::is_none")]
        fingerprint: Option<&'a str>,
    },
    /// A person answered.
    HumanInputReceived {
        action_id: &'a str,
        request_id: &'a str,
        response: &'a str,
        /// That of the question.
        #[serde(skip_serializing_if = "Option::is_none")]
        fingerprint: Option<&'a str>,
    },
    /// From now on requests have the conversation in a shorter form.
    Compaction(CompactionEvent<'a>),
    /// From now on requests have lines in place of some attachments.
    AttachmentsLeftOut {
        /// The numbers of the events that they are of.
        seqs: &'a [u64],
        why: LeftOutReason,
        /// How many of the last of these events are left out, the first ones; none: all.
        #[serde(skip_serializing_if = "Option::is_none")]
        of_last: Option<u64>,
        /// The service's words.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
    },
    /// The engine notes something about the run.
    SystemMessage {
        level: Level,
        content: &'a str,
        /// For later starts.
        #[serde(flatten)]
        fact: Option<Fact<'a>>,
    },
    /// Another model is asked from now on, in this start.
    ModelChanged {
        /// The models' names, with their endpoints unless these are the vendors' own.
        from: &'a str,
        to: &'a str,
        why: &'a str,
        /// When `from` can be asked again, if its service named a time.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<&'a str>,
    },
    /// A hook has been run.
    HookAudit {
        hook_name: &'a str,
        status: HookStatus,
        /// The execution's directory, from the run's directory.
        io_path_ref: &'a str,
        /// The question that it was run for.
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<&'a str>,
    },
    /// Something failed.
    Error {
        error_message: &'a str,
        /// JSON.
        #[serde(serialize_with = "raw")]
        error_details: &'a [u8],
    },
    /// The engine stops working on the run.
    EngineEnd {
        run_id: &'a str,
        /// The run's state from now on.
        status: &'a str,
        stop_reason: &'a str,
        /// With which the engine ends.
        exit_code: u8,
        /// How many iterations the run has had.
        final_iteration: u64,
        /// The working time of all starts, if that is limited.
        #[serde(skip_serializing_if = "Option::is_none")]
        engine_ms: Option<u64>,
        /// Of a completed run; of any other, `error`.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
    },
}

/// An answer of the model, to be recorded.
#[derive(Serialize)]
pub(crate) struct ThoughtEvent<'a> {
    /// The text: a JSON string, also where the server sent null, so that readers always find a text.
    #[serde(serialize_with = "raw")]
    pub content: &'a [u8],
    /// The server sent null.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub content_null: bool,
    /// The calls as they are sent back to the model: a JSON array, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<RawJson<'a>>,
    /// The text in place of a JSON object, by the call's id.
    #[serde(serialize_with = "texts", skip_serializing_if = "<[_]>::is_empty")]
    pub invalid_arguments: &'a [(String, String)],
    /// Members of the message in which the server sent reasoning.
    #[serde(flatten, serialize_with = "raw_members")]
    pub reasoning: &'a [(&'static str, &'a [u8])],
    pub finish_reason: Option<&'a FinishReason<'a>>,
    /// Which model says that it answered.
    pub model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<RecordedUsage<'a>>,
    /// The invocation's directory, from the run's directory.
    pub llm_invocation_ref: &'a str,
    /// The answer as it came over another API than chat completions: a JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<RawJson<'a>>,
}

/// A compaction, to be recorded.
#[derive(Serialize)]
pub(crate) struct CompactionEvent<'a> {
    pub by: CompactionKind,
    pub reason: CompactionReason,
    /// The number of the last line that it concerns, and the iteration that it is of.
    pub through_seq: u64,
    pub through_iteration: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<&'a str>,
    /// Limit of the bytes of people's messages beside the summary, except the first; none: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_bytes: Option<u64>,
    /// In a replay: when the messages of people were recorded.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub message_times: &'a [String],
    /// The run whose files the model is referred to.
    pub run_id: &'a str,
    /// Estimates of the request.
    pub tokens_before: u64,
    pub tokens_after: u64,
    /// The directory of the invocation that wrote the summary, from the run's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_invocation_ref: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<RecordedUsage<'a>>,
}

/// A compaction on one line: estimates of the request before and after it, and the last iteration that it concerns.
pub(crate) fn compaction_line(before: u64, after: u64, iteration: u64) -> String {
    let (before, after) = (grouped(before), grouped(after));
    format!("compacted: {before} -> {after} tokens, iterations 1 to {iteration}")
}

/// A value that is JSON already.
#[derive(Serialize)]
pub(crate) struct RawJson<'a>(#[serde(serialize_with = "raw")] pub &'a [u8]);

/// The tokens of an answer, and the terms on which they are priced.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct RecordedUsage<'a> {
    #[serde(flatten)]
    pub tokens: Tokens,
    #[serde(flatten)]
    pub terms: &'a Terms,
    /// How long the request was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u64>,
    /// The tokens of its attachments, by estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment_tokens: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::timestamp::Timestamp;

    fn written(event: &Event<'_>) -> String {
        let mut out = Vec::new();
        event.write(&mut out, 7, Timestamp::from_millis(1_760_366_122_123), 3);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_event_is_one_flat_line() {
        let line = written(&Event::UserMessage {
            content: "a\n\"b\"",
            attachments: &[],
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
        let terms = Terms {
            speed: Some("fast".to_owned()),
            ..Terms::default()
        };
        let line = written(&Event::Thought(ThoughtEvent {
            content: b"\"\"",
            content_null: true,
            tool_calls: Some(RawJson(b"[]")),
            invalid_arguments: &[],
            reasoning: &[("reasoning", b"\"r\"")],
            finish_reason: Some(&FinishReason::of("stop")),
            model: None,
            usage: Some(RecordedUsage {
                tokens: Tokens {
                    prompt_tokens: 1,
                    completion_tokens: 2,
                    total_tokens: 3,
                },
                terms: &terms,
                request_bytes: Some(9),
                attachment_tokens: None,
            }),
            llm_invocation_ref: "io/invocations/x",
            wire: Some(RawJson(b"{}")),
        }));
        let read = Line::parse(&line).unwrap();
        assert_eq!(read.kind, EventKind::Thought);
        assert_eq!(read.seq, Some(7));
        assert_eq!(read.tool_calls.unwrap().get(), "[]");
        assert_eq!(read.reasoning_fields()[0].0, "reasoning");
        assert_eq!(read.usage.unwrap().total_tokens, 3);
        let (_, fields) = line.split_once("\"iteration\":3,").unwrap();
        assert_eq!(
            fields,
            "\"content\":\"\",\"content_null\":true,\"tool_calls\":[],\"reasoning\":\"r\",\
             \"finish_reason\":\"stop\",\"model\":null,\"usage\":{\"prompt_tokens\":1,\
             \"completion_tokens\":2,\"total_tokens\":3,\"speed\":\"fast\",\"request_bytes\":9},\
             \"llm_invocation_ref\":\"io/invocations/x\",\"wire\":{}}\n"
        );
        assert_eq!(read.wire.unwrap().get(), "{}");
    }
}
