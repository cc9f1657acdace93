//! An answer that comes as it is made: events in, and at the end the response that the service would
//! have sent whole.
//!
//! Pure; unaware of connections.

mod chat;
mod messages;
mod responses;

use super::sse::Events;
use crate::config::api::Api;
use crate::model::attempt::{LARGEST_MESSAGE, MOST_VALUES};
use crate::text::json;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

/// A part of an answer, as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard<'h> {
    Text(&'h str),
    Reasoning(&'h str),
    /// A call of this tool begins.
    Call(&'h str),
    /// The answer so far counts for nothing: another attempt begins.
    Anew,
}

/// Who listens to an answer as it arrives.
pub(crate) type Listener<'l> = dyn FnMut(Heard<'_>) + 'l;

/// The reason why there is no response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The stream ended before the answer did.
    Early,
    /// The service reported an error: JSON as of a failed request.
    Error(Vec<u8>),
    /// An event cannot be read as one of the API, for this reason.
    Unreadable(String),
}

impl From<serde_json::Error> for Broken {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable(json::parser_message(&error).chars().take(200).collect())
    }
}

enum Assembly {
    Chat(Box<chat::Chunks>),
    Responses(responses::Items),
    Messages(messages::Blocks),
}

/// A response that is being received.
pub(crate) struct Stream {
    events: Events,
    assembly: Assembly,
    broken: Option<Broken>,
    /// The end of the text so far, if it is half of a character.
    half: String,
    /// The number of bytes since the response was last weighed.
    unweighed: usize,
}

/// Bytes between two checks of the size of the response.
const WEIGHED_EACH: usize = 256 << 10;

impl Stream {
    pub(crate) fn new(api: Api) -> Self {
        Self {
            events: Events::default(),
            assembly: match api {
                Api::Chat => Assembly::Chat(Box::default()),
                Api::Responses => Assembly::Responses(responses::Items::default()),
                Api::Messages => Assembly::Messages(messages::Blocks::default()),
            },
            broken: None,
            half: String::new(),
            unweighed: 0,
        }
    }

    /// Takes more of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8], listener: &mut Listener<'_>) {
        let Self {
            events,
            assembly,
            broken,
            half,
            unweighed,
        } = self;
        events.push(bytes, &mut |name, data| {
            if broken.is_none() && !assembly.has_ended() {
                let mut listener = |heard: Heard<'_>| pass_on(heard, half, listener);
                *broken = assembly.add(name, data, &mut listener).err();
            }
        });
        *unweighed += bytes.len();
        let is_due = *unweighed > WEIGHED_EACH;
        if is_due {
            *unweighed = 0;
        }
        let is_too_heavy = is_due && assembly.weight() > 2 * LARGEST_MESSAGE;
        if events.held() > LARGEST_MESSAGE || is_too_heavy {
            *broken = Some(Broken::Unreadable("it is too large".to_owned()));
        }
    }

    /// True if no response can follow.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// True once nothing more is to come.
    pub(crate) fn has_ended(&self) -> bool {
        self.assembly.has_ended()
    }

    /// The response, if all of it came. `is_clean`: the connection ended as it should.
    ///
    /// # Errors
    /// The response is incomplete or broken.
    pub(crate) fn finish(
        mut self,
        is_clean: bool,
        listener: &mut Listener<'_>,
    ) -> Result<Vec<u8>, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        if !self.assembly.has_ended()
            && let Some((name, data)) = self.events.unended()
            && (name == b"error" || matches!(self.assembly, Assembly::Chat(_)))
            && (data == DONE || serde_json::from_slice::<IgnoredAny>(&data).is_ok())
        {
            let mut listener = |heard: Heard<'_>| pass_on(heard, &mut self.half, listener);
            self.assembly.add(&name, &data, &mut listener)?;
        }
        if !self.half.is_empty() {
            listener(Heard::Text("\u{FFFD}"));
        }
        let response = match self.assembly {
            Assembly::Chat(chunks) => chunks.finish(is_clean)?,
            Assembly::Responses(items) => items.finish().ok_or(Broken::Early)?,
            Assembly::Messages(blocks) => blocks.finish().ok_or(Broken::Early)?,
        };
        Ok(json::unmarked(response))
    }
}

/// Passes on a part without marks. Half of a character at the end of a text waits for the next piece.
fn pass_on(heard: Heard<'_>, half: &mut String, listener: &mut Listener<'_>) {
    if !matches!(heard, Heard::Text(_)) && !std::mem::take(half).is_empty() {
        listener(Heard::Text("\u{FFFD}"));
    }
    match heard {
        Heard::Text(words) => {
            let mut words = std::mem::take(half) + words;
            *half = json::split_half(&mut words);
            listener(Heard::Text(&json::unmarked_text(&words)));
        }
        Heard::Reasoning(words) => listener(Heard::Reasoning(&json::unmarked_text(words))),
        Heard::Call(name) => listener(Heard::Call(&json::unmarked_text(name))),
        Heard::Anew => listener(heard),
    }
}

/// Ends a chat completion. Some servers send it with the other APIs, too.
const DONE: &[u8] = b"[DONE]";

/// Takes a member out of an object; none if it is missing or null.
///
/// # Errors
/// It is of another type.
fn take<T: DeserializeOwned>(
    members: &mut Map<String, Value>,
    key: &str,
) -> serde_json::Result<Option<T>> {
    serde_json::from_value(members.shift_remove(key).unwrap_or_default())
}

impl Assembly {
    /// Adds an event.
    ///
    /// # Errors
    /// It reports one, or cannot be read. Only what is of an unknown type is passed over.
    fn add(&mut self, name: &[u8], data: &[u8], listener: &mut Listener<'_>) -> Result<(), Broken> {
        // Small ones are not worth counting.
        if data.len() > MOST_VALUES / 2
            && !matches!(self, Self::Responses(_))
            && json::count_values(&String::from_utf8_lossy(data)) > MOST_VALUES
        {
            return Err(Broken::Unreadable("it has too many values".to_owned()));
        }
        match (self, data.trim_ascii()) {
            (_, b"") => Ok(()),
            (Self::Chat(chunks), DONE) => {
                chunks.is_done = true;
                Ok(())
            }
            (_, DONE) => Ok(()),
            (assembly, [first, ..])
                if name == b"error" && (*first != b'{' || matches!(assembly, Self::Chat(_))) =>
            {
                let error = json::marked(data).into_owned();
                Err(Broken::Error(json::unmarked(error.into_bytes())))
            }
            (_, [first, ..]) if *first != b'{' => {
                Err(Broken::Unreadable("expected an object".to_owned()))
            }
            (Self::Chat(chunks), _) => chunks.add(&json::marked(data), listener),
            (Self::Responses(items), _) => items.add(name, &json::marked(data), listener),
            (Self::Messages(blocks), _) => blocks.add(name, &json::marked(data), listener),
        }
    }

    /// About how many bytes of memory it takes.
    fn weight(&self) -> usize {
        match self {
            Self::Chat(chunks) => chunks.weight(),
            Self::Responses(items) => items.weight(),
            Self::Messages(blocks) => blocks.weight(),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::Chat(chunks) => chunks.is_done,
            Self::Responses(items) => items.is_whole(),
            Self::Messages(blocks) => blocks.is_whole,
        }
    }
}

/// Appends a text to a member, which is made if it is not there. One that began as a list goes on as one.
///
/// # Errors
/// The member is of another type.
fn append(map: &mut Map<String, Value>, key: &str, text: &str) -> Result<(), Broken> {
    match map.entry(key).or_insert(Value::Null) {
        Value::String(whole) => whole.push_str(text),
        Value::Array(list) => match list.last_mut() {
            Some(Value::String(last)) => last.push_str(text),
            _ => list.push(text.into()),
        },
        none @ Value::Null => *none = text.into(),
        _ => return Err(Broken::Unreadable(format!("{key} is not a text"))),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
