//! The records of the wire in the journal, and what later starts of the engine and replays take over from them:
//! answers as they came, parts of answers, remedies.
//!
//! Unaware of lines and files.

use super::cache_key::PromptCacheKey;
use super::neutral::{Message, Recorded};
use super::pause;
use super::{Neutral, Rules, Sent, Wire, ids, messages, read_answer, view_of};
use crate::config::api::Api;
use crate::model::attempt::Remedy;
use crate::model::response::Answer;
use crate::record::messages::view;
use crate::text::json::{self, Fields, Object};
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
        Some(self.signed_object(|object| {
            if let Some(items) = &answer.items {
                object.raw("items", items);
            }
            if is_chat {
                object.put("view", &view(&answer.content_json, calls));
            } else if let (Some(_), Some(view)) = (&answer.items, &answer.view) {
                object.put("prefix", prefix).put("view", view);
            }
        }))
    }

    /// The record of a part of an answer, after which the service has paused.
    pub(crate) fn record_pause(&self, answer: &Answer, prefix: &str) -> Vec<u8> {
        let blocks = pause::blocks(answer).unwrap_or_else(|| b"[]".to_vec());
        self.signed_object(|object| {
            object
                .raw("items", &blocks)
                .put("prefix", prefix)
                .put_some("usage", answer.usage.as_ref())
                .put_some("cached_tokens", answer.cached_tokens.as_ref());
        })
    }

    /// The record of a remedy, for later starts of the run.
    pub(crate) fn record_remedy(&self, remedy: Remedy) -> Vec<u8> {
        self.signed_object(|object| {
            object.put("name", remedy.name());
            if let Remedy::MaxTokens(most) = remedy {
                object.put("max_tokens", &most);
            }
        })
    }

    /// An object that says which model is asked, and over which API.
    fn signed_object(&self, write: impl FnOnce(&mut Object<'_>)) -> Vec<u8> {
        let model = self.rules.model.as_deref().unwrap_or("null");
        json::object(|object| {
            object
                .put("api", self.rules.api.name())
                .raw("model", model.as_bytes())
                .put_some("fallback", self.rules.fallback.as_ref());
            write(object);
        })
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
            let answer = messages::parse(&pause::as_response(&recorded), &self.wrapped);
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
        let applied: serde_json::Result<Fields<'_>> = serde_json::from_str(remedy);
        let by: serde_json::Result<Recorded<'_>> = serde_json::from_str(remedy);
        let (Ok(applied), Ok(by)) = (applied, by) else {
            return;
        };
        let name = applied.word("name").unwrap_or_default();
        let max_tokens = applied.read("max_tokens").unwrap_or(0);
        let is_asked = self.rules.is_asked(&by);
        match Remedy::parse(&name, max_tokens) {
            Some(Remedy::WithoutReasoning) => self.rules.without_reasoning |= is_asked,
            Some(remedy) if is_asked => {
                self.apply(remedy);
            }
            _ => {}
        }
    }

    /// A request as it was sent in a recorded run, if that differs only by what was done about refusals and pauses.
    ///
    /// # Errors
    /// It is not in the neutral form.
    pub(crate) fn render_like(
        &mut self,
        request: &Neutral,
        recorded: &[u8],
    ) -> Result<Sent, String> {
        self.adopt(recorded);
        let sent = self.render_paused(request, recorded)?;
        if sent.bytes != recorded && self.apply_to(request, Remedy::WithoutReasoning) {
            let other = self.render_paused(request, recorded)?;
            if other.bytes == recorded {
                return Ok(other);
            }
            self.rules.without_reasoning = false;
        }
        Ok(sent)
    }

    fn render_paused(&mut self, request: &Neutral, recorded: &[u8]) -> Result<Sent, String> {
        let sent = self.render(request)?;
        if self.rules.api != Api::Chat && self.adopt_pause(&sent.bytes, recorded) {
            return self.render(request);
        }
        Ok(sent)
    }

    /// Goes on from what a recorded request has behind the one that is sent. False if that is not all.
    pub(super) fn adopt_pause(&mut self, sent: &[u8], recorded: &[u8]) -> bool {
        let Some(blocks) = pause::blocks_behind(sent, recorded) else {
            return false;
        };
        let Ok(answer) = messages::parse(&[b"{\"content\":", blocks, b"}"].concat(), &self.wrapped)
        else {
            return false;
        };
        self.paused = None;
        self.go_on_from(answer, "");
        true
    }

    /// Takes over the remedies that a recorded request shows, and whether it asks for a stream.
    fn adopt(&mut self, recorded: &[u8]) {
        let shown: Fields<'_> = json::read_or_default(recorded);
        let key = shown.word("prompt_cache_key");
        self.rules.cache_key = key.map_or(PromptCacheKey::Absent, PromptCacheKey::Recorded);
        self.rules.stream = shown.read("stream").unwrap_or(false);
        match self.rules.api {
            Api::Chat => self.rules.without_stream_options = shown.raw("stream_options").is_none(),
            Api::Responses => {
                let include = shown.raw("include").map_or("", RawValue::get);
                self.rules.without_include = !include.contains("reasoning.encrypted_content");
            }
            Api::Messages => self.rules.max_tokens = shown.read("max_tokens").unwrap_or(None),
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
    pub(super) fn recorded<'m>(
        &self,
        message: &Message<'m>,
        wrapped: &[String],
    ) -> Option<Recorded<'m>> {
        let recorded: Recorded<'m> = serde_json::from_str(message.wire?.get()).ok()?;
        let content = message.content.map_or("null", RawValue::get);
        let calls = message.tool_calls.map_or("", RawValue::get);
        let is_same =
            self.is_asked(&recorded) && recorded.view == view(content.as_bytes(), calls.as_bytes());
        let has_usable_ids = || message.calls().iter().all(|call| ids::is_call_id(&call.id));
        // The text and the calls that the journal has are those of the items.
        let is_as_read = || {
            let list = if self.api == Api::Messages {
                "content"
            } else {
                "output"
            };
            let body = format!("{{\"{list}\":[{}]}}", recorded.joined_items());
            let answer = read_answer(self.api, body.as_bytes(), wrapped);
            answer.is_ok_and(|answer| view_of(&answer) == recorded.view)
        };
        let is_usable = is_same && !recorded.items.is_empty() && has_usable_ids() && is_as_read();
        is_usable.then_some(recorded)
    }
}
