//! One line of the journal: how each event is written, and how any line is read.
//!
//! Unaware of the file that the lines are in and of what the events add up to.
//!
//! Architecture invariant: this is the only place that knows the names of the fields. What is
//! sent to the model again is kept as the JSON text that it came in, so that reading costs no
//! decoding and what was recorded is what is sent.

#[macro_use]
mod members;
pub(crate) mod flow;
pub(crate) mod evaluation;
mod line;
mod agent;
mod attachments;
mod compaction;
mod deferral;
mod files;

/// The events of all runs, as they are written and read.
pub(crate) mod recorded {
    pub(crate) use super::{agent::*, attachments::*, compaction::*, deferral::*, files::*};
}

use crate::text::json::Object;
use crate::text::names::named_enum;
use crate::text::timestamp::Timestamp;
pub(crate) use line::{Line, Place, quick_kind};
use members::{Present, Reference};
pub(crate) use members::{Raw, Text, decoded};
pub(crate) use recorded::*;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Makes the types of events from their names and traits.
macro_rules! event_types {
    ($($Event:ident = $name:literal $(is $($trait:ident)+)?,)* + $($OfFlow:ident = $flow_name:literal,)*) => {
        named_enum! {
            /// The type of an event. Unknown and empty if the line has none.
            pub(crate) enum EventKind<'a> {
                $($Event = $name,)*
                + Flow(FlowEvent),
                + Evaluation(EvaluationEvent),
            }
        }

        named_enum! {
            /// The types of events that only runs of flows have.
            pub(crate) enum FlowEvent {
                $($OfFlow = $flow_name,)*
            }
        }

        impl EventKind<'_> {
            pub(crate) fn is(&self, what: EventTrait) -> bool {
                match self {
                    $(Self::$Event => {
                        const TRAITS: &[EventTrait] = &[$($(EventTrait::$trait),+)?];
                        TRAITS.contains(&what)
                    })*
                    Self::Flow(_) | Self::Evaluation(_) | Self::Unknown(_) => false,
                }
            }
        }

        /// An event as it was read.
        #[derive(Debug, Default)]
        #[allow(clippy::large_enum_variant, reason = "one is read at a time, and in a box")]
        pub(crate) enum Recorded<'a> {
            $($Event($Event<'a>),)*
            $($OfFlow(flow::$OfFlow<'a>),)*
            /// Its members are in the text of the line.
            Evaluation(EvaluationEvent),
            /// Of a type that this engine does not know.
            #[default]
            Unknown,
        }

        impl<'a> Recorded<'a> {
            /// The event of this type without any members.
            fn of(kind: &EventKind<'_>) -> Self {
                match kind {
                    $(EventKind::$Event => Self::$Event($Event::default()),)*
                    $(EventKind::Flow(FlowEvent::$OfFlow) => Self::$OfFlow(flow::$OfFlow::default()),)*
                    EventKind::Evaluation(event) => Self::Evaluation(*event),
                    EventKind::Unknown(_) => Self::Unknown,
                }
            }

            fn read_member<M: serde::de::MapAccess<'a>>(
                &mut self,
                name: &str,
                from: &mut M,
            ) -> Result<bool, M::Error> {
                match self {
                    $(Self::$Event(event) => event.read_member(name, from),)*
                    $(Self::$OfFlow(event) => event.read_member(name, from),)*
                    Self::Evaluation(_) | Self::Unknown => Ok(false),
                }
            }
        }
    };
}

/// What all readers must know of an event whose members they do not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventTrait {
    /// It belongs to the answer before it: to one of its calls, or to a check of it.
    OfAnswer,
    /// It concerns a part of the conversation, and nothing once that part is left out.
    Past,
    /// Engines of the first layout misread a run with it.
    NewLayout,
}

event_types! {
    EngineStart = "ENGINE_START",
    UserMessage = "USER_MESSAGE",
    Thought = "THOUGHT" is Past,
    ActionRequest = "ACTION_REQUEST" is OfAnswer,
    ActionCheck = "ACTION_CHECK" is OfAnswer,
    ActionDeferred = "ACTION_DEFERRED" is OfAnswer NewLayout,
    DeferredLook = "DEFERRED_LOOK" is OfAnswer NewLayout,
    ActionResult = "ACTION_RESULT" is OfAnswer,
    Acceptance = "ACCEPTANCE" is OfAnswer,
    HumanInputRequest = "HUMAN_INPUT_REQUEST" is OfAnswer,
    HumanInputReceived = "HUMAN_INPUT_RECEIVED" is OfAnswer,
    Compaction = "COMPACTION" is Past NewLayout,
    AttachmentsLeftOut = "ATTACHMENTS_LEFT_OUT" is NewLayout,
    SystemMessage = "SYSTEM_MESSAGE" is Past,
    ModelChanged = "MODEL_CHANGED" is NewLayout,
    Files = "FILES" is NewLayout,
    HookAudit = "HOOK_EXECUTION_AUDIT" is Past,
    Error = "ERROR",
    EngineEnd = "ENGINE_END",
    +
    FlowStart = "FLOW_START",
    TaskCreated = "TASK_CREATED",
    NodeStart = "NODE_START",
    NodeEnd = "NODE_END",
    Route = "ROUTE",
    Merge = "MERGE",
    Winner = "WINNER",
    Retry = "RETRY",
    TaskEnd = "TASK_END",
    Tool = "TOOL",
    Policy = "POLICY",
    Memory = "MEMORY",
}

named_enum! {
    /// The types of events that only runs of evaluations have.
    pub(crate) enum EvaluationEvent {
        TrialStart = "TRIAL_START",
        TrialEnd = "TRIAL_END",
        Grade = "GRADE",
        Look = "LOOK",
    }
}

impl Default for EventKind<'_> {
    fn default() -> Self {
        Self::Unknown(Cow::Borrowed(""))
    }
}

impl Line<'_> {
    /// The reason why later requests begin otherwise, if the event is one.
    pub(crate) fn changed_requests(&self) -> Option<&'static str> {
        Some(match &self.event {
            Recorded::Compaction(_) => "the conversation was shortened",
            Recorded::AttachmentsLeftOut(_) => "attachments were left out",
            Recorded::ModelChanged(_) => "another model was asked",
            _ => return None,
        })
    }

    /// A change of what requests have, or a call that ends later, on one line for people.
    pub(crate) fn note(&self) -> Option<String> {
        match &self.event {
            Recorded::Compaction(compaction) => Some(compaction.note()),
            Recorded::AttachmentsLeftOut(left_out) => Some(left_out.note()),
            Recorded::ActionDeferred(deferred) => Some(deferred.note(self)),
            Recorded::DeferredLook(look) => Some(look.note(self)),
            Recorded::Files(files) => Some(files.note()),
            _ => None,
        }
    }

    /// The tokens of an answer, if the event is of one and the server has counted them.
    pub(crate) fn usage(&self) -> Option<ReadUsage> {
        match &self.event {
            Recorded::Thought(thought) => thought.usage,
            Recorded::Compaction(compaction) => compaction.usage,
            Recorded::SystemMessage(note) => note.usage,
            _ => None,
        }
    }
}

/// An event to be recorded.
pub(crate) trait Event {
    fn kind(&self) -> EventKind<'static>;

    /// Writes its members.
    fn put(&self, line: &mut Object<'_>);

    /// Appends the event as a line, with its newline.
    fn write(&self, out: &mut Vec<u8>, seq: u64, at: Timestamp, iteration: u64) {
        write_line(out, seq, at, &self.kind(), iteration, |line| self.put(line));
    }
}

/// Appends a line of any type, with the fields that all lines have and those that are put into it.
pub(crate) fn write_line(
    out: &mut Vec<u8>,
    seq: u64,
    at: Timestamp,
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

/// A run's use of its model: tokens and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunUsage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    pub llm_calls: u64,
}

impl RunUsage {
    /// Adds an answer.
    pub(crate) fn add(&mut self, answer: Tokens) {
        let add = |sum: &mut u64, part| *sum = sum.saturating_add(part);
        add(&mut self.prompt_tokens, answer.prompt_tokens);
        add(&mut self.completion_tokens, answer.completion_tokens);
        add(&mut self.total_tokens, answer.total_tokens);
        self.llm_calls += 1;
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

/// A value that is JSON already. Bytes that are not are kept as a text, so that nothing is lost.
pub(crate) struct RawJson<'a>(pub &'a [u8]);

impl Serialize for RawJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_slice::<&RawValue>(self.0) {
            Ok(value) => value.serialize(to),
            Err(_) => String::from_utf8_lossy(self.0).serialize(to),
        }
    }
}

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
    use serde_json::Map;

    fn written(event: &dyn Event) -> String {
        let mut out = Vec::new();
        event.write(&mut out, 7, Timestamp::from_millis(1_760_366_122_123), 3);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_event_is_one_flat_line() {
        let line = written(&MessageEvent {
            content: "a\n\"b\"",
            attachments: &[],
            ..MessageEvent::default()
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
        let line = written(&ThoughtEvent {
            content: RawJson(b"\"\""),
            content_null: true,
            tool_calls: Some(RawJson(b"[]")),
            invalid_arguments: &Map::new(),
            reasoning_members: &[("reasoning", b"\"r\"")],
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
        });
        let read = Line::parse(&line).unwrap();
        assert_eq!(read.kind, EventKind::Thought);
        assert_eq!(read.seq, Some(7));
        let Recorded::Thought(thought) = &read.event else {
            panic!("{read:?}");
        };
        assert_eq!(thought.tool_calls.get(), Some("[]"));
        assert_eq!(thought.reasoning_fields()[0].0, "reasoning");
        assert_eq!(thought.usage.unwrap().total_tokens, 3);
        assert_eq!(thought.wire.get(), Some("{}"));
        let (_, fields) = line.split_once("\"iteration\":3,").unwrap();
        assert_eq!(
            fields,
            "\"content\":\"\",\"content_null\":true,\"tool_calls\":[],\"reasoning\":\"r\",\
             \"finish_reason\":\"stop\",\"model\":null,\"usage\":{\"prompt_tokens\":1,\
             \"completion_tokens\":2,\"total_tokens\":3,\"speed\":\"fast\",\"request_bytes\":9},\
             \"llm_invocation_ref\":\"io/invocations/x\",\"wire\":{}}\n"
        );
    }
}
