//! An answer that comes as it is made: events in, and at the end the response that the service would
//! have sent whole.
//!
//! Pure; unaware of connections.

mod chat;
mod messages;
mod responses;

use super::sse::Events;
use crate::config::api::Api;

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

/// Why there is no response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The stream ended before the answer did.
    Early,
    /// The service reported an error: JSON as of a failed request.
    Error(Vec<u8>),
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
    error: Option<Vec<u8>>,
}

impl Stream {
    pub(crate) fn new(api: Api) -> Self {
        Self {
            events: Events::default(),
            assembly: match api {
                Api::Chat => Assembly::Chat(Box::default()),
                Api::Responses => Assembly::Responses(responses::Items::default()),
                Api::Messages => Assembly::Messages(messages::Blocks::default()),
            },
            error: None,
        }
    }

    /// Takes more of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8], listener: &mut Listener<'_>) {
        let Self {
            events,
            assembly,
            error,
        } = self;
        events.push(bytes, &mut |name, data| {
            if error.is_none() {
                *error = assembly.add(name, data, listener);
            }
        });
    }

    /// True once nothing more is to come.
    pub(crate) fn has_ended(&self) -> bool {
        self.error.is_some() || self.assembly.has_ended()
    }

    /// The response, if all of it came. `is_clean`: the connection ended as it should.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn finish(mut self, is_clean: bool) -> Result<Vec<u8>, Broken> {
        if let Assembly::Chat(chunks) = &mut self.assembly
            && let Some(data) = self.events.unended()
            && self.error.is_none()
        {
            self.error = chunks.add(&data, &mut |_| {});
        }
        if let Some(error) = self.error {
            return Err(Broken::Error(error));
        }
        let response = match self.assembly {
            Assembly::Chat(chunks) => chunks.finish(is_clean),
            Assembly::Responses(items) => items.finish(),
            Assembly::Messages(blocks) => blocks.finish(),
        };
        response.ok_or(Broken::Early)
    }
}

impl Assembly {
    /// Adds an event. Returns the error that it reports.
    fn add(&mut self, name: &[u8], data: &[u8], listener: &mut Listener<'_>) -> Option<Vec<u8>> {
        match self {
            Self::Chat(chunks) => chunks.add(data, listener),
            Self::Responses(items) => items.add(data, listener),
            Self::Messages(blocks) => blocks.add(name, data, listener),
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

/// Appends a text to a member, which is made if it is not there.
fn append(map: &mut serde_json::Map<String, serde_json::Value>, key: &str, text: &str) {
    match map.get_mut(key) {
        Some(serde_json::Value::String(whole)) => whole.push_str(text),
        _ => {
            map.insert(key.to_owned(), text.into());
        }
    }
}

#[cfg(test)]
mod tests;
