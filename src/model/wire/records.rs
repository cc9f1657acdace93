//! The records of the wire in the journal, and what later starts of the engine and replays take over from them:
//! answers as they came, parts of answers, remedies.
//!
//! Unaware of lines and files.

use super::cache_key::PromptCacheKey;
use super::neutral::{Message, Recorded};
use super::pause;
use super::{Rules, Wire, ids, messages};
use crate::config::api::Api;
use crate::model::attempt::Remedy;
use crate::model::response::Answer;
use crate::record::messages::view;
use crate::text::json::Object;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Parts of one answer that are read back from a journal. No engine records as many, and each costs a copy of those
/// before it.
pub(super) const MOST_RECALLED: usize = 1000;

impl Wire {
    /// The record of an answer, whose calls, as JSON, have their final ids: it as it came, what it was made
    /// behind, and what the journal's own fields were read from. None if a chat completion has nothing beside
    /// its text and its calls.
    pub(crate) fn record(&self, answer: &Answer, calls: &[u8], prefix: &str) -> Option<Vec<u8>> {
        let is_chat = self.rules.api == Api::Chat;
        if is_chat && answer.items.is_none() && answer.reasoning.is_empty() {
            return None;
        }
        let mut out = Vec::new();
        let mut object = self.signed_object(&mut out);
        if let Some(items) = &answer.items {
            object.raw("items", items);
        }
        if is_chat {
            object.put("view", &view(&answer.content_json, calls));
        } else if let (Some(_), Some(view)) = (&answer.items, &answer.view) {
            object.put("prefix", prefix).put("view", view);
        }
        object.end();
        Some(out)
    }

    /// The record of a part of an answer, after which the service has paused.
    pub(crate) fn record_pause(&self, answer: &Answer, prefix: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = self.signed_object(&mut out);
        let blocks = pause::blocks(answer).unwrap_or_else(|| b"[]".to_vec());
        object
            .raw("items", &blocks)
            .put("prefix", prefix)
            .put_some("usage", answer.usage.as_ref())
            .put_some("cached_tokens", answer.cached_tokens.as_ref())
            .end();
        out
    }

    /// The record of a remedy, for later starts of the run.
    pub(crate) fn record_remedy(&self, remedy: Remedy) -> Vec<u8> {
        let mut out = Vec::new();
        let mut object = self.signed_object(&mut out);
        object.put("name", remedy.name());
        if let Remedy::MaxTokens(most) = remedy {
            object.put("max_tokens", &most);
        }
        object.end();
        out
    }

    /// An object that says which model is asked, and over which API.
    fn signed_object<'o>(&self, out: &'o mut Vec<u8>) -> Object<'o> {
        let mut object = Object::begin(out);
        let model = self.rules.model.as_deref().unwrap_or("null");
        object
            .put("api", self.rules.api.name())
            .raw("model", model.as_bytes())
            .put_some("fallback", self.rules.fallback.as_ref());
        object
    }

    /// Goes on from what the journal knows of earlier starts: remedies, and the parts of an answer that is not
    /// whole. Those of another model or API do not count.
    pub(crate) fn recall(&mut self, remedies: &[&str], pauses: &[&str]) {
        for remedy in remedies {
            self.recall_remedy(remedy);
        }
        for pause in pauses.iter().take(MOST_RECALLED) {
            let Ok(recorded) = serde_json::from_str::<Recorded<'_>>(pause) else {
                continue;
            };
            let body = pause::as_response(&recorded);
            let answer = messages::parse(&body, &self.wrapped);
            if let Ok(mut answer) = answer
                && self.rules.is_asked(&recorded)
            {
                answer.usage = recorded.usage;
                answer.cached_tokens = recorded.cached_tokens;
                self.go_on_from(answer, &recorded.prefix);
            }
        }
    }

    fn recall_remedy(&mut self, remedy: &str) {
        #[derive(Deserialize)]
        struct Applied {
            name: String,
            #[serde(default)]
            max_tokens: Option<u64>,
        }
        let applied: Result<Applied, _> = serde_json::from_str(remedy);
        let by: Result<Recorded<'_>, _> = serde_json::from_str(remedy);
        let (Ok(applied), Ok(by)) = (applied, by) else {
            return;
        };
        let is_asked = self.rules.is_asked(&by);
        match Remedy::parse(&applied.name, applied.max_tokens) {
            Some(Remedy::WithoutReasoning) => self.rules.without_reasoning |= is_asked,
            Some(remedy) if is_asked => {
                self.apply(remedy);
            }
            _ => {}
        }
    }

    /// Goes on from what a recorded request has behind the one that is sent. False if that is not all.
    pub(crate) fn adopt_pause(&mut self, sent: &[u8], recorded: &[u8]) -> bool {
        let Some(blocks) = pause::blocks_behind(sent, recorded) else {
            return false;
        };
        let body = [b"{\"content\":", blocks, b"}"].concat();
        let Ok(answer) = messages::parse(&body, &self.wrapped) else {
            return false;
        };
        self.paused = None;
        self.go_on_from(answer, "");
        true
    }

    /// Takes over the remedies that a recorded request shows, and whether it asks for a stream.
    pub(crate) fn adopt(&mut self, recorded: &[u8]) {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Shown<'r> {
            #[serde(borrow)]
            include: Option<&'r RawValue>,
            stream: bool,
            #[serde(borrow)]
            stream_options: Option<&'r RawValue>,
            max_tokens: Option<u64>,
            prompt_cache_key: Option<String>,
        }
        let shown: Shown<'_> = serde_json::from_slice(recorded).unwrap_or_default();
        let key = shown.prompt_cache_key;
        self.rules.cache_key = key.map_or(PromptCacheKey::Absent, PromptCacheKey::Recorded);
        self.rules.stream = shown.stream;
        match self.rules.api {
            Api::Chat => self.rules.without_stream_options = shown.stream_options.is_none(),
            Api::Responses => {
                let include = shown.include.map_or("", RawValue::get);
                self.rules.without_include = !include.contains("reasoning.encrypted_content");
            }
            Api::Messages => self.rules.max_tokens = shown.max_tokens,
        }
    }
}

impl Rules {
    /// True for the record of an exchange with the model that is asked, over the same API.
    fn is_asked(&self, recorded: &Recorded<'_>) -> bool {
        recorded.api == self.api.name()
            && recorded.model.map(RawValue::get) == self.model.as_deref()
            && recorded.fallback.as_deref() == self.fallback.as_deref()
    }

    /// The answer as it came, if it is of this API and model and still what the journal says.
    pub(super) fn recorded<'m>(&self, message: &Message<'m>) -> Option<Recorded<'m>> {
        let recorded: Recorded<'m> = serde_json::from_str(message.wire?.get()).ok()?;
        let content = message.content.map_or("null", RawValue::get);
        let calls = message.tool_calls.map_or("", RawValue::get);
        let is_same =
            self.is_asked(&recorded) && recorded.view == view(content.as_bytes(), calls.as_bytes());
        let has_usable_ids = || message.calls().iter().all(|call| ids::is_call_id(&call.id));
        (is_same && !recorded.items.is_empty() && has_usable_ids()).then_some(recorded)
    }
}
