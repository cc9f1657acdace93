//! `prompt_cache_key`: the hint for `OpenAI` that requests begin in the same way.
//!
//! Unaware of endpoints: whether a request has one is decided elsewhere.

use super::{Api, Neutral, next_message};
use crate::text::digest::PartsDigest;
use std::borrow::Cow;

/// The source of the key of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum PromptCacheKey {
    /// No key.
    #[default]
    Absent,
    /// The key of this agent.
    OfAgent(String),
    /// The request that is replayed has it.
    Recorded(String),
}

impl PromptCacheKey {
    /// The key for requests with these tools and system blocks.
    pub(super) fn of<'b>(
        &self,
        tools: &[u8],
        system: impl Iterator<Item = &'b [u8]>,
    ) -> Option<String> {
        let name = match self {
            Self::Absent => return None,
            Self::Recorded(key) => return Some(key.clone()),
            Self::OfAgent(name) => name,
        };
        let mut digest = PartsDigest::default();
        digest.add(name.as_bytes());
        digest.add(tools);
        system.for_each(|block| digest.add(block));
        let mut key = digest.sum();
        key.truncate(32);
        Some(key)
    }

    /// The key for a chat completion, which may have its own.
    pub(super) fn of_chat(&self, request: &Neutral) -> Option<String> {
        if *self == Self::Absent {
            return None;
        }
        let read;
        let request = match request.messages {
            // A hook wrote it.
            0 => {
                read = Neutral::changed(Api::Responses, request.bytes.clone()).ok()?;
                &read
            }
            _ => request,
        };
        let head = request.head().ok()?;
        if head.get("prompt_cache_key").is_some() {
            return None;
        }
        let (mut blocks, mut at) = (Vec::new(), request.messages);
        while let Ok((message, length)) = next_message(&request.bytes[at..])
            && message.role == "system"
        {
            blocks.extend(message.texts().into_iter().map(Cow::into_owned));
            at += length;
            at += usize::from(request.bytes.get(at) == Some(&b','));
        }
        let tools = head.get("tools").unwrap_or_default();
        self.of(tools.as_bytes(), blocks.iter().map(String::as_bytes))
    }
}
