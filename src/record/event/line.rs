//! A line of the journal as it is read, written by this engine or any other program.

use super::{
    EventKind, FinishReason, ForkedFrom, InputType, REASONING, ReadUsage, compaction_line,
};
use crate::text::amounts::counted;
use crate::text::shorten::in_short;
use crate::text::timestamp::{Timestamp, date_and_time};
use crate::unix::files;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::path::Path;

/// The members of a line that the engine knows: the field and its type, and behind `=` the type that reads it if that
/// is another. (A derived reader moves all fields several times for each line, and a line has more than two kilobytes.)
macro_rules! members {
    ($($(#[$doc:meta])* $field:ident: $type:ty $(= $reader:ident)?,)*) => {
        /// A line as it was read. Every field may be missing; unknown members are ignored.
        #[derive(Debug, Default)]
        pub(crate) struct Line<'a> {
            pub kind: EventKind<'a>,
            /// True if `record::legacy` has lifted the line from another form.
            pub is_old: bool,
            $($(#[$doc])* pub $field: $type,)*
        }

        impl<'a> Line<'a> {
            /// Reads the value of a member.
            fn read_member<M: MapAccess<'a>>(&mut self, name: &str, from: &mut M) -> Result<(), M::Error> {
                match name {
                    "type" if self.kind.name().is_empty() => self.kind = from.next_value()?,
                    "type" => return Err(M::Error::duplicate_field("type")),
                    $(stringify!($field) => {
                        if self.$field.is_some() {
                            return Err(M::Error::duplicate_field(stringify!($field)));
                        }
                        self.$field = members!(@value from $($reader)?);
                    })*
                    _ => drop(from.next_value::<IgnoredAny>()?),
                }
                Ok(())
            }
        }
    };
    (@value $from:ident) => { $from.next_value()? };
    (@value $from:ident $reader:ident) => { $from.next_value::<$reader<'a>>()?.0 };
}

members! {
    seq: Option<u64>,
    timestamp: Option<Cow<'a, str>> = Text,
    iteration: Option<u64>,
    content: Option<&'a RawValue>,
    content_null: Option<bool>,
    tool_calls: Option<&'a RawValue>,
    invalid_arguments: Option<&'a RawValue>,
    reasoning_content: Option<&'a RawValue>,
    reasoning: Option<&'a RawValue>,
    reasoning_details: Option<&'a RawValue>,
    thinking: Option<&'a RawValue>,
    thinking_blocks: Option<&'a RawValue>,
    finish_reason: Option<FinishReason<'a>>,
    usage: Option<ReadUsage>,
    llm_invocation_ref: Option<Cow<'a, str>> = Reference,
    wire: Option<&'a RawValue>,
    remedy: Option<&'a RawValue>,
    pause: Option<&'a RawValue>,
    action_id: Option<Cow<'a, str>> = Text,
    tool_name: Option<Cow<'a, str>> = Text,
    tool_args: Option<&'a RawValue>,
    resolved_command: Option<Cow<'a, str>> = Text,
    call_id: Option<Cow<'a, str>> = Text,
    status: Option<Cow<'a, str>> = Text,
    exit_code: Option<i64>,
    observation_content: Option<&'a RawValue>,
    /// Of this path and of the two like it: none if it leads out of the run's directory.
    execution_ref: Option<Cow<'a, str>> = Reference,
    /// Of a message from the inbox, `"inbox"`, and the name of its file.
    source: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    handle: Option<Cow<'a, str>> = Text,
    due_at: Option<Cow<'a, str>> = Text,
    expires_at: Option<Cow<'a, str>> = Text,
    /// A hook wrote the observation.
    by_hook: Option<bool>,
    by: Option<Cow<'a, str>> = Text,
    reason: Option<Cow<'a, str>> = Text,
    through_seq: Option<u64>,
    through_iteration: Option<u64>,
    summary: Option<Cow<'a, str>> = Text,
    tokens_before: Option<u64>,
    tokens_after: Option<u64>,
    message_bytes: Option<u64>,
    message_times: Option<Vec<String>>,
    window: Option<u64>,
    is_truncated: Option<bool>,
    no_finish_reason: Option<bool>,
    attachments: Option<&'a RawValue>,
    seqs: Option<&'a RawValue>,
    of_last: Option<u64>,
    thought_seq: Option<u64>,
    what: Option<Cow<'a, str>> = Text,
    value: Option<&'a RawValue> = Present,
    request_id: Option<Cow<'a, str>> = Text,
    prompt: Option<Cow<'a, str>> = Text,
    input_type: Option<InputType<'a>>,
    sensitive: Option<bool>,
    response: Option<Cow<'a, str>> = Text,
    fingerprint: Option<Cow<'a, str>> = Text,
    run_id: Option<Cow<'a, str>> = Text,
    parent_run_id: Option<Cow<'a, str>> = Text,
    parent_call_id: Option<Cow<'a, str>> = Text,
    agent_home: Option<Cow<'a, str>> = Text,
    work_dir: Option<Cow<'a, str>> = Text,
    task: Option<&'a RawValue>,
    config: Option<&'a RawValue>,
    hostname: Option<Cow<'a, str>> = Text,
    pid: Option<u64>,
    launcher: Option<Map<String, Value>>,
    delta_version: Option<Cow<'a, str>> = Text,
    traceparent: Option<Cow<'a, str>> = Text,
    forked_from: Option<ForkedFrom>,
    message_parts: Option<Value>,
    set: Option<Map<String, Value>>,
    allow_hosts: Option<Vec<String>>,
    hook_name: Option<Cow<'a, str>> = Text,
    io_path_ref: Option<Cow<'a, str>> = Reference,
    duration_ms: Option<u64>,
    stop_reason: Option<Cow<'a, str>> = Text,
    result: Option<Cow<'a, str>> = Text,
    error: Option<Cow<'a, str>> = Text,
    resumed: Option<bool>,
    level: Option<Cow<'a, str>> = Text,
    from: Option<Cow<'a, str>> = Text,
    why: Option<Cow<'a, str>> = Text,
    until: Option<Cow<'a, str>> = Text,
    error_message: Option<Cow<'a, str>> = Text,
    payload: Option<&'a RawValue>,
    // Of workflows; see `flow::record`.
    task_id: Option<Cow<'a, str>> = Text,
    node_id: Option<Cow<'a, str>> = Text,
    code: Option<Cow<'a, str>> = Text,
    message: Option<Cow<'a, str>> = Text,
    attempt: Option<u64>,
    output: Option<&'a RawValue> = Present,
    input: Option<&'a RawValue> = Present,
    to: Option<&'a RawValue>,
    output_ref: Option<Cow<'a, str>> = Text,
    /// Files that a node made.
    outputs: Option<&'a RawValue>,
    input_ref: Option<Cow<'a, str>> = Text,
    input_error: Option<Cow<'a, str>> = Text,
    parent_id: Option<Cow<'a, str>> = Text,
    edge: Option<Cow<'a, str>> = Text,
    exit_node: Option<Cow<'a, str>> = Text,
    merged_at: Option<Cow<'a, str>> = Text,
    cached: Option<bool>,
    cpu_ms: Option<u64>,
    memory_bytes: Option<u64>,
    context_bytes: Option<u64>,
    records_removed: Option<bool>,
    winner: Option<Cow<'a, str>> = Text,
    steps: Option<&'a RawValue>,
    arrived: Option<u64>,
    failed: Option<u64>,
    index: Option<usize>,
    target: Option<Cow<'a, str>> = Text,
    target_id: Option<Cow<'a, str>> = Text,
    paused: Option<bool>,
    retry_at: Option<Cow<'a, str>> = Text,
    /// The run that a node is, where its name does not follow from the step.
    own_run: Option<Cow<'a, str>> = Text,
    own_retry: Option<u64>,
    item_id: Option<Cow<'a, str>> = Text,
    flow: Option<&'a RawValue>,
    // Of evaluations; see `flow::eval::record`.
    suite: Option<Cow<'a, str>> = Text,
    trial: Option<Cow<'a, str>> = Text,
    verdict: Option<Cow<'a, str>> = Text,
}

/// Reads all members of a line into place.
struct LineVisitor;

impl<'de> Visitor<'de> for LineVisitor {
    type Value = Box<Line<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event (an object)")
    }
    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut line = Box::<Line<'de>>::default();
        while let Some(Text(name)) = map.next_key()? {
            let name = name.unwrap_or_default();
            let read = line.read_member(&name, &mut map);
            read.map_err(|error| in_member(&name, error))?;
        }
        Ok(line)
    }
}

/// An error about a value that does not fit, with the member that it is of.
fn in_member<E: Error>(name: &str, error: E) -> E {
    let text = error.to_string();
    if !text.starts_with("invalid ") {
        return error;
    }
    let is_inside = matches!(name, "usage" | "forked_from") && !text.contains("expected struct");
    let of = if is_inside { "a member of " } else { "" };
    E::custom(format!("{of}{name}: {text}"))
}

/// A string or null, borrowed where it has no escapes. (The derived code would copy every one.)
struct Text<'a>(Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_none<E>(self) -> Result<Self::Value, E> {
                Ok(Text(None))
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Text(None))
            }
            fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
                from.deserialize_str(self)
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Some(Cow::Borrowed(text))))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Some(Cow::Owned(text.to_owned()))))
            }
        }
        from.deserialize_option(Texts)
    }
}

/// A path from the run's directory, unless it leads out of that.
struct Reference<'a>(Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Reference<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Text(path) = Text::deserialize(from)?;
        Ok(Self(
            path.filter(|path| files::is_below(Path::new(&**path))),
        ))
    }
}

/// A value that is there, even if it is null.
struct Present<'a>(Option<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Present<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Deserialize::deserialize(from).map(|value| Self(Some(value)))
    }
}

impl<'a> Line<'a> {
    /// Reads one line. In a box, because it is too long to be moved.
    ///
    /// # Errors
    /// The parser's, with the column: not JSON, not an object, or a field of the wrong type.
    pub(crate) fn parse(text: &'a str) -> Result<Box<Self>, serde_json::Error> {
        let mut parser = serde_json::Deserializer::from_str(text);
        let line = parser.deserialize_map(LineVisitor)?;
        parser.end().map(|()| line)
    }

    /// When it was written, if it says so.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        self.timestamp.as_deref().and_then(Timestamp::parse)
    }

    /// A compaction, for people.
    pub(crate) fn compaction(&self) -> String {
        let [before, after, iteration] = [
            self.tokens_before,
            self.tokens_after,
            self.through_iteration,
        ]
        .map(Option::unwrap_or_default);
        compaction_line(before, after, iteration)
    }

    /// The name of the file of a message that lay in the inbox.
    pub(crate) fn inbox_id(&self) -> Option<String> {
        let source = self.source.map(RawValue::get);
        let id = self.id.filter(|_| source == Some("\"inbox\""))?;
        serde_json::from_str(id.get()).ok()
    }

    /// A call that ends later, or a look at one, for people.
    pub(crate) fn deferral(&self) -> String {
        let due = date_and_time(self.due_at.as_deref().unwrap_or("?"));
        let step = self.step();
        let step = step.map_or_else(String::new, |(task, node)| format!("{task} {node}: "));
        let text = match (&self.handle, self.exit_code) {
            (Some(handle), _) => format!("ends later ({}); look at {due}", in_short(handle, 60)),
            (None, Some(75)) => format!("has not ended; look again at {due}"),
            (None, Some(code)) => format!("unknown, exit code {code}; look again at {due}"),
            (None, None) => format!("unknown; look again at {due}"),
        };
        step + &text
    }

    /// Attachments that requests lack from now on, for people.
    pub(crate) fn attachments_left_out(&self) -> String {
        let seqs = self
            .seqs
            .map(|raw| serde_json::from_str::<Vec<u64>>(raw.get()));
        let count = seqs.and_then(Result::ok).map_or(0, |seqs| seqs.len());
        let of = counted(count, "message");
        let why = match &self.message {
            Some(words) => format!("the service refuses them: {words}"),
            None => "there are too many".to_owned(),
        };
        format!("attachments of {of} are lines from now on: {why}")
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

    /// The model that is asked from an event on, if it says that.
    pub(crate) fn changed_to(&self) -> Cow<'a, str> {
        let to = self
            .to
            .map(|raw| serde_json::from_str::<Text<'a>>(raw.get()));
        to.and_then(Result::ok)
            .and_then(|Text(to)| to)
            .unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_known_however_its_name_is_written_and_stands_once() {
        let text = r#"{"\u0073eq":7,"typ\u0065":"THOUGHT","other":{"seq":1},"output":null,"call_id":null}"#;
        let line = Line::parse(text).unwrap();
        assert_eq!((line.seq, line.kind), (Some(7), EventKind::Thought));
        assert!(line.output.is_some() && line.call_id.is_none());
        for (text, message) in [
            (r#"{"seq":1,"seq":2}"#, "duplicate field `seq`"),
            (r#"{"type":"A","type":"B"}"#, "duplicate field `type`"),
            (
                "[7]",
                "invalid type: sequence, expected an event (an object)",
            ),
            (r#"{"seq":1} {}"#, "trailing characters"),
            (
                r#"{"call_id":1}"#,
                "call_id: invalid type: integer `1`, expected a string",
            ),
        ] {
            let error = Line::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
