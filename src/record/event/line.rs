//! A line of the journal as it is read, written by this engine or any other program.

use super::{EventKind, FinishReason, ForkedFrom, InputType, REASONING, Tokens};
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::path::Path;

/// A line as it was read. Every field may be missing; unknown fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Line<'a> {
    #[serde(rename = "type", borrow)]
    pub kind: EventKind<'a>,
    pub seq: Option<u64>,
    #[serde(borrow, deserialize_with = "text")]
    pub timestamp: Option<Cow<'a, str>>,
    pub iteration: Option<u64>,
    #[serde(borrow)]
    pub content: Option<&'a RawValue>,
    pub content_null: Option<bool>,
    #[serde(borrow)]
    pub tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    pub invalid_arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    pub reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    pub thinking_blocks: Option<&'a RawValue>,
    #[serde(borrow)]
    pub finish_reason: Option<FinishReason<'a>>,
    pub usage: Option<Tokens>,
    #[serde(borrow, deserialize_with = "reference")]
    pub llm_invocation_ref: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub wire: Option<&'a RawValue>,
    #[serde(borrow)]
    pub remedy: Option<&'a RawValue>,
    #[serde(borrow)]
    pub pause: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "text")]
    pub action_id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub tool_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub tool_args: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "text")]
    pub resolved_command: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub call_id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub status: Option<Cow<'a, str>>,
    pub exit_code: Option<i64>,
    #[serde(borrow)]
    pub observation_content: Option<&'a RawValue>,
    /// Of this path and of the two like it: none if it leads out of the run's directory.
    #[serde(borrow, deserialize_with = "reference")]
    pub execution_ref: Option<Cow<'a, str>>,
    pub thought_seq: Option<u64>,
    #[serde(borrow, deserialize_with = "text")]
    pub what: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub request_id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub prompt: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub input_type: Option<InputType<'a>>,
    pub sensitive: Option<bool>,
    #[serde(borrow, deserialize_with = "text")]
    pub response: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub fingerprint: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub run_id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub parent_run_id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub parent_call_id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub agent_home: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub work_dir: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub task: Option<&'a RawValue>,
    #[serde(borrow)]
    pub config: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "text")]
    pub hostname: Option<Cow<'a, str>>,
    pub pid: Option<u64>,
    pub launcher: Option<Map<String, Value>>,
    #[serde(borrow, deserialize_with = "text")]
    pub delta_version: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub traceparent: Option<Cow<'a, str>>,
    pub forked_from: Option<ForkedFrom>,
    pub message_parts: Option<Value>,
    pub set: Option<Map<String, Value>>,
    #[serde(borrow, deserialize_with = "text")]
    pub hook_name: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "reference")]
    pub io_path_ref: Option<Cow<'a, str>>,
    pub duration_ms: Option<u64>,
    #[serde(borrow, deserialize_with = "text")]
    pub stop_reason: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub result: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub error: Option<Cow<'a, str>>,
    pub resumed: Option<bool>,
    #[serde(borrow, deserialize_with = "text")]
    pub level: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub error_message: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub payload: Option<&'a RawValue>,
    // Of workflows; see `flow::record`.
    #[serde(borrow, deserialize_with = "text")]
    pub task_id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub node_id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub code: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub message: Option<Cow<'a, str>>,
    pub attempt: Option<u64>,
    #[serde(borrow, deserialize_with = "present")]
    pub output: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    pub input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub to: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "text")]
    pub output_ref: Option<Cow<'a, str>>,
    /// Files that a node made.
    #[serde(borrow)]
    pub outputs: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "text")]
    pub input_ref: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub input_error: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub parent_id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub edge: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub exit_node: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub merged_at: Option<Cow<'a, str>>,
    pub cached: Option<bool>,
    pub cpu_ms: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub context_bytes: Option<u64>,
    pub records_removed: Option<bool>,
    #[serde(borrow, deserialize_with = "text")]
    pub winner: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub steps: Option<&'a RawValue>,
    pub arrived: Option<u64>,
    pub failed: Option<u64>,
    pub index: Option<usize>,
    #[serde(borrow, deserialize_with = "text")]
    pub target: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub target_id: Option<Cow<'a, str>>,
    pub paused: Option<bool>,
    #[serde(borrow, deserialize_with = "text")]
    pub retry_at: Option<Cow<'a, str>>,
    /// The run that a node is, where its name does not follow from the step.
    #[serde(borrow, deserialize_with = "text")]
    pub own_run: Option<Cow<'a, str>>,
    pub own_retry: Option<u64>,
    #[serde(borrow, deserialize_with = "text")]
    pub item_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub flow: Option<&'a RawValue>,
    // Of evaluations; see `flow::eval::record`.
    #[serde(borrow, deserialize_with = "text")]
    pub suite: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub trial: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "text")]
    pub verdict: Option<Cow<'a, str>>,
    /// True if the line was read from an older form.
    #[serde(skip)]
    pub is_old: bool,
}

/// A string or null, borrowed where it has no escapes. (The derived code would copy every one.)
fn text<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<Cow<'a, str>>, D::Error> {
    struct Texts;
    impl<'de> Visitor<'de> for Texts {
        type Value = Option<Cow<'de, str>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }
        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
            from.deserialize_str(self)
        }
        fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
            Ok(Some(Cow::Borrowed(text)))
        }
        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(Cow::Owned(text.to_owned())))
        }
    }
    from.deserialize_option(Texts)
}

/// A path from the run's directory, unless it leads out of that.
fn reference<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<Cow<'a, str>>, D::Error> {
    let path: Option<Cow<'a, str>> = text(from)?;
    Ok(path.filter(|path| files::is_below(Path::new(&**path))))
}

/// A value that is there, even if it is null.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

impl<'a> Line<'a> {
    /// Reads one line. In a box, because a line has more than a kilobyte to be moved.
    ///
    /// # Errors
    /// The parser's, with the column: not JSON, not an object, or a field of the wrong type.
    pub(crate) fn parse(text: &'a str) -> Result<Box<Self>, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// When it was written, if it says so.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        self.timestamp.as_deref().and_then(Timestamp::parse)
    }

    /// True if an action succeeded. Older engines record only its exit code, or only its status.
    pub(crate) fn is_success(&self) -> bool {
        match self.status.as_deref() {
            Some(status) => status.eq_ignore_ascii_case("success"),
            None => self.exit_code == Some(0),
        }
    }

    /// The task and the node of a flow's event.
    pub(crate) fn step(&self) -> Option<(String, String)> {
        let (task, node) = (self.task_id.as_deref()?, self.node_id.as_deref()?);
        Some((task.to_owned(), node.to_owned()))
    }

    /// The members in which the server sent reasoning, in a fixed order.
    pub(crate) fn reasoning_fields(&self) -> Vec<(&'static str, &'a RawValue)> {
        let values = [
            self.reasoning_content,
            self.reasoning,
            self.reasoning_details,
            self.thinking,
            self.thinking_blocks,
        ];
        let pairs = REASONING.into_iter().zip(values);
        pairs
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

/// The type of a line as this engine writes it, without parsing the line; `None` if it is written
/// differently, or is of a type that this engine does not know.
pub(crate) fn quick_kind(line: &[u8]) -> Option<EventKind<'static>> {
    let rest = line.strip_prefix(br#"{"seq":"#)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // `,"timestamp":"` and a timestamp of 24 characters.
    let rest = rest[digits..].strip_prefix(br#","timestamp":""#)?;
    let rest = rest.get(24..)?.strip_prefix(br#"","type":""#)?;
    let end = memchr::memchr(b'"', rest)?;
    EventKind::known(std::str::from_utf8(&rest[..end]).ok()?)
}
