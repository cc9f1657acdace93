//! The wire: a request in the form of the service that is asked, and its answers in the neutral one.
//!
//! Pure: bytes in, bytes out; unaware of connections, journals and runs. Everything above knows the
//! neutral form alone, which is that of chat completions.
//!
//! Architecture invariant: the same conversation always becomes the same bytes, and each request begins
//! with those of the one before (but for marks of caches), as long as its head does. What has been
//! rendered is kept for the next request, a cache that is compared with the request each time.

mod parts;
mod neutral;
mod ids;
mod cache_key;
mod rendering;
mod messages;
mod pause;
mod responses;
pub(crate) mod sse;
mod stream;
mod pieces;
mod errors;
mod echo;
mod records;

pub(crate) use errors::{error_status, stream_error_status};
pub(crate) use neutral::Neutral;
pub(crate) use parts::cut_marks;
pub(crate) use pieces::is_in_joined_texts;
pub(crate) use stream::{Broken, Heard, Listener, Stream};

use crate::config::agent::{Agent, Llm, Streaming};
use crate::config::api::{Api, CacheTime};
use crate::config::environment::Environment;
use crate::model::attempt::{Remedy, check_size, readable};
use crate::model::calls::{NewCall, calls_json};
use crate::model::reasons::not_of;
use crate::model::response::{self, Answer, NoAnswer};
use crate::record::event::FinishReason;
use crate::record::messages::view;
use crate::text::answers::after_thoughts;
use crate::text::json::{self, Fields, Object};
use cache_key::PromptCacheKey;
use neutral::Message;
use pause::Paused;
use rendering::{Position, Rendering};
use serde_json::Value;
use serde_json::value::RawValue;

/// Rules for requests, beside the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rules {
    api: Api,
    /// The model, as JSON.
    model: Option<String>,
    /// The name of the service and the model, if they are asked in place of the first.
    fallback: Option<String>,
    stream: bool,
    /// Thinking is switched on by hand: such models demand it back, and verify no more than its signature.
    is_manual: bool,
    /// The service has refused the model's reasoning.
    without_reasoning: bool,
    without_include: bool,
    without_stream_options: bool,
    cache_key: PromptCacheKey,
    max_tokens: Option<u64>,
}

/// The rendering of the previous request.
struct Memo {
    /// The part of that request, in the neutral form, that is rendered here.
    neutral: Vec<u8>,
    /// The length of its head.
    head_len: usize,
    rules: Rules,
    head: Head,
    body: Rendering,
}

/// The parts of a request beside the conversation.
#[derive(Default)]
struct Head {
    /// The members before it, not closed.
    members: Vec<u8>,
    /// A JSON array, or nothing.
    tools: Vec<u8>,
    /// Tools whose arguments had to be put into an object of one member.
    wrapped: Vec<String>,
    cache_key: PromptCacheKey,
}

/// A request as it is sent.
#[derive(Debug)]
pub(crate) struct Sent {
    pub bytes: Vec<u8>,
    /// The digest of what the service reads before its answer; empty for chat completions.
    pub prefix: String,
}

/// The wire of one start of the engine.
pub(crate) struct Wire {
    rules: Rules,
    cache: CacheTime,
    /// Streams are asked for only as long as the service does not refuse.
    may_stop_streaming: bool,
    /// Tools whose arguments come in an object around them.
    wrapped: Vec<String>,
    memo: Option<Memo>,
    /// The beginning of the answer that the service is to go on with.
    paused: Option<Paused>,
    /// The newest request holds reasoning.
    sent_reasoning: bool,
}

impl Wire {
    pub(crate) fn new(llm: &Llm) -> Self {
        Self {
            rules: Rules {
                api: llm.api,
                model: llm.model.as_ref().map(json::text),
                stream: llm.streams(),
                ..Rules::default()
            },
            cache: llm.cache,
            may_stop_streaming: llm.stream == Streaming::Auto,
            wrapped: Vec::new(),
            memo: None,
            paused: None,
            sent_reasoning: false,
        }
    }

    /// A wire of an agent that may ask a service at its vendor's own endpoint.
    pub(crate) fn of_agent(agent: &Agent, environment: &Environment) -> Self {
        let mut wire = Self::new(&agent.llm);
        if environment.is_openai(&agent.llm) {
            wire.rules.cache_key = PromptCacheKey::OfAgent(agent.name.clone());
        }
        wire
    }

    /// A wire of a model of this name that is asked in place of the first.
    pub(crate) fn of_fallback(agent: &Agent, environment: &Environment, name: &str) -> Self {
        let mut wire = Self::of_agent(agent, environment);
        wire.rules.fallback = Some(name.to_owned());
        wire
    }

    pub(crate) fn api(&self) -> Api {
        self.rules.api
    }

    /// True if requests ask for a stream.
    pub(crate) fn streams(&self) -> bool {
        self.rules.stream
    }

    /// Applies a remedy for a refusal of this request from now on. False if it would change nothing.
    pub(crate) fn apply_to(&mut self, request: &Neutral, remedy: Remedy) -> bool {
        if self.rules.api == Api::Chat && remedy == Remedy::WithoutReasoning {
            self.sent_reasoning = echo::without_reasoning(&request.bytes).is_some();
        }
        self.apply(remedy)
    }

    /// Applies a remedy from now on. False if it would change nothing.
    pub(crate) fn apply(&mut self, remedy: Remedy) -> bool {
        let before = self.rules.clone();
        match remedy {
            Remedy::WithoutReasoning => {
                self.rules.without_reasoning |= self.sent_reasoning || self.rules.is_manual;
            }
            Remedy::WithoutInclude => self.rules.without_include = true,
            Remedy::WithoutStreamOptions => {
                self.rules.without_stream_options = self.rules.stream;
            }
            Remedy::WithoutStream => self.rules.stream &= !self.may_stop_streaming,
            Remedy::MaxTokens(most) => {
                // A server that names a larger one each time would be asked forever.
                if before.max_tokens.is_none_or(|before| most < before) {
                    self.rules.max_tokens = Some(most);
                }
            }
        }
        self.rules != before
    }

    /// Limits the answers to the next requests; none: as before. Returns what was in force. Of Messages alone.
    pub(crate) fn limit_answers(&mut self, most: Option<u64>) -> Option<u64> {
        std::mem::replace(&mut self.rules.max_tokens, most)
    }

    /// A request as the service reads it.
    ///
    /// # Errors
    /// It is not in the neutral form.
    pub(crate) fn render(&mut self, request: &Neutral) -> Result<Sent, String> {
        if self.rules.api == Api::Chat {
            let bytes = self.chat(request);
            let prefix = String::new();
            return Ok(Sent { bytes, prefix });
        }
        let mut memo = self.memo(request)?;
        let mut at = memo.neutral.len();
        let end = request.bytes.len() - 2;
        let mut stable: Option<Position> = (at == request.stable).then(|| memo.body.position());
        while at < end {
            if request.bytes[at] == b',' {
                at += 1;
            }
            let (message, length) = next_message(&request.bytes[at..])?;
            let add = |message: &Message<'_>, memo: &mut Memo| match memo.rules.api {
                Api::Messages => {
                    messages::add(&mut memo.body, message, &memo.rules, &memo.head.wrapped);
                }
                Api::Responses | Api::Chat => {
                    responses::add(&mut memo.body, message, &memo.rules);
                }
            };
            match json::without_lone_surrogates(&request.bytes[at..at + length]) {
                Some(paired) => add(&next_message(&paired)?.0, &mut memo),
                None => add(&message, &mut memo),
            }
            at += length;
            if at == request.stable {
                stable = Some(memo.body.position());
            }
        }
        let mut sent = memo.finish(stable.as_ref(), self.cache);
        self.sent_reasoning = memo.body.at.reasoning > 0;
        if let Some(paused) = &mut self.paused {
            if self.rules.without_reasoning {
                paused.drop_thinking();
            }
            paused.follow(&sent.prefix, self.rules.is_manual);
            self.sent_reasoning |= paused.has_thinking();
            if let Some(blocks) = paused.blocks() {
                pause::append_blocks(&mut sent.bytes, &blocks);
            }
        }
        // The rest is of this request alone.
        if let Some(stable) = stable {
            memo.body.back_to(stable);
            let known = memo.neutral.len();
            memo.neutral
                .extend_from_slice(&request.bytes[known..request.stable]);
            self.memo = Some(memo);
        }
        Ok(sent)
    }

    /// The rendering to go on with: that of the request before, if this one begins in the same way.
    fn memo(&mut self, request: &Neutral) -> Result<Memo, String> {
        if let Some(memo) = self.memo.take()
            && request.bytes.starts_with(&memo.neutral)
            && memo.head_len == request.messages
            && memo.neutral.len() <= request.stable
            && memo.rules == self.rules
        {
            return Ok(memo);
        }
        let members = request.head()?;
        self.rules.model = members.get("model").map(str::to_owned);
        self.rules.is_manual = members.get("thinking").is_some_and(|thinking| {
            let thinking: Fields<'_> = json::read_or_default(thinking);
            thinking.word("type").as_deref() == Some("enabled")
        });
        let is_messages = self.rules.api == Api::Messages;
        let head = if is_messages {
            messages::head(&members, &self.rules)
        } else {
            responses::head(&members, &self.rules)
        };
        self.wrapped.clone_from(&head.wrapped);
        Ok(Memo {
            neutral: request.bytes[..request.messages].to_vec(),
            head_len: request.messages,
            rules: self.rules.clone(),
            body: Rendering::new(&head.tools, is_messages),
            head,
        })
    }

    /// Chat completions are the neutral form; what asks for a stream and the key of the cache are put into them.
    fn chat(&self, request: &Neutral) -> Vec<u8> {
        let mut words = String::from("{");
        if self.rules.stream {
            words += "\"stream\":true,";
            if !self.rules.without_stream_options {
                words += "\"stream_options\":{\"include_usage\":true},";
            }
        }
        if let Some(key) = self.rules.cache_key.of_chat(request) {
            words += &format!("\"prompt_cache_key\":{},", json::text(&key));
        }
        let without_reasoning = self.rules.without_reasoning;
        let request = without_reasoning
            .then(|| echo::without_reasoning(&request.bytes))
            .flatten()
            .unwrap_or_else(|| request.bytes.clone());
        if words.len() == 1 {
            return request;
        }
        let start = request.iter().position(|byte| *byte == b'{').unwrap_or(0);
        [words.as_bytes(), &request[start + 1..]].concat()
    }

    /// The pauses of the service within the answer that is not whole yet.
    pub(crate) fn pauses(&self) -> u32 {
        self.paused.as_ref().map_or(0, |paused| paused.count)
    }

    /// Adds what a service said before it paused to the next requests, until the answer is whole. `prefix`: the
    /// digest of what precedes it.
    pub(crate) fn go_on_from(&mut self, part: Answer, prefix: &str) {
        let count = self.pauses() + 1;
        self.paused = Some(Paused {
            answer: self.whole(part),
            prefix: prefix.to_owned(),
            count,
        });
    }

    /// The whole answer whose last part this is.
    pub(crate) fn whole(&mut self, answer: Answer) -> Answer {
        match self.paused.take() {
            Some(paused) => pause::join(paused.answer, answer),
            None => answer,
        }
    }

    /// Reads a response, but for its usage.
    ///
    /// # Errors
    /// The reason to ask again.
    pub(crate) fn parse(&self, body: &[u8]) -> Result<Answer, NoAnswer> {
        if self.rules.api == Api::Chat {
            return response::parse(body);
        }
        let text = readable(body)?;
        let mut answer = read_answer(self.rules.api, text.as_bytes(), &self.wrapped)?;
        let cut_off = answer
            .finish_reason
            .as_ref()
            .is_some_and(FinishReason::is_cut_off);
        let paused = self.paused.as_ref();
        let before = paused.map_or("", |paused| paused.answer.text.as_str());
        let is_silent = after_thoughts(&answer.text).trim().is_empty() && before.trim().is_empty();
        if is_silent && answer.calls.is_empty() && !cut_off && !answer.is_paused {
            return Err(NoAnswer::silent(answer.finish_reason.as_ref()));
        }
        answer.view = Some(view_of(&answer));
        if answer.calls.iter().any(|call| call.invalid.is_some()) {
            // The service would refuse to have them back.
            answer.items = None;
        }
        Ok(answer)
    }
}

impl Memo {
    /// The request, closed as the service wants it. The rendering is left closed, too.
    fn finish(&mut self, stable: Option<&Position>, cache: CacheTime) -> Sent {
        let at = stable.unwrap_or(&self.body.at);
        let marks = [at.before_answer, at.last];
        let is_messages = self.rules.api == Api::Messages;
        if is_messages {
            messages::close(&mut self.body);
        } else {
            responses::close(&mut self.body);
        }
        Sent {
            prefix: self.body.prefix(),
            bytes: if is_messages {
                messages::request(&self.head, &self.body, marks, cache)
            } else {
                responses::request(&self.head, &self.body)
            },
        }
    }
}

/// The tools of a request as a JSON array, or nothing; `write` has the form of the service.
fn write_tools(given: Option<&str>, mut write: impl FnMut(&mut Object<'_>, &Value)) -> Vec<u8> {
    let tools: Vec<Value> = json::read_or_default(given.unwrap_or("[]"));
    let write_tool = |tool: &Value| match tool.get("function") {
        Some(function) => json::object(|object| write(object, function)),
        // One of the service's own.
        None => json::text(tool).into_bytes(),
    };
    if tools.is_empty() {
        Vec::new()
    } else {
        json::list(tools.iter().map(write_tool))
    }
}

/// The message that a list goes on with, and its length.
fn next_message(rest: &[u8]) -> Result<(Message<'_>, usize), String> {
    let mut messages = serde_json::Deserializer::from_slice(rest).into_iter::<Message<'_>>();
    let message = messages
        .next()
        .unwrap_or_else(|| Ok(Message::default()))
        .map_err(|e| format!("a message of the request: {}", json::parser_message(&e)))?;
    let length = messages.byte_offset();
    if length == 0 {
        return Err("a message of the request is missing".to_owned());
    }
    Ok((message, length))
}

/// The digest of an answer's text and calls.
fn view_of(answer: &Answer) -> String {
    if answer.calls.is_empty() {
        return view(&answer.content_json, b"");
    }
    view(&answer.content_json, &calls_json(&answer.calls))
}

/// Reads a response, but for its usage.
///
/// # Errors
/// The reason to ask again.
fn read_answer(api: Api, body: &[u8], wrapped: &[String]) -> Result<Answer, String> {
    match api {
        Api::Chat | Api::Responses => responses::parse(body),
        Api::Messages => messages::parse(body, wrapped),
    }
}

/// A response, and its items, which are in this list.
///
/// # Errors
/// It has no such list, so that it is not what it should be, or it is too large.
fn items<'b>(
    body: &'b [u8],
    list: &str,
    what: &str,
) -> Result<(Fields<'b>, Vec<&'b RawValue>), String> {
    let odd = || not_of(body, what);
    let response: Fields<'_> = serde_json::from_slice(body).map_err(|_| odd())?;
    let list = response.raw(list).ok_or_else(odd)?;
    check_size(list.get())?;
    let items = serde_json::from_str(list.get()).map_err(|_| odd())?;
    Ok((response, items))
}

/// Reads each item. `what` is what one is called.
fn each(
    items: &[&RawValue],
    what: &str,
    mut read: impl FnMut(&Fields<'_>) -> serde_json::Result<()>,
) -> Result<(), String> {
    items
        .iter()
        .try_for_each(|item| read(&serde_json::from_str(item.get())?))
        .map_err(|e| format!("{what} of the answer: {}", json::parser_message(&e)))
}

/// The content of an answer's items.
#[derive(Default)]
struct Said {
    text: String,
    thinking: String,
    calls: Vec<NewCall>,
}

impl Said {
    fn into_answer(self, response: &Fields<'_>, items: &[&RawValue], finish: &str) -> Answer {
        let model = response.word("model");
        let answer = Answer::of_parts(self.text, self.thinking, self.calls, model);
        Answer {
            finish_reason: Some(FinishReason::of(finish.to_owned())),
            items: array(items),
            ..answer
        }
    }
}

/// Items as a JSON array of one line; `None` without any.
fn array(items: &[&RawValue]) -> Option<Vec<u8>> {
    let lines = items
        .iter()
        .map(|item| json::one_line(item.get()).into_bytes());
    (!items.is_empty()).then(|| json::list(lines))
}

#[cfg(test)]
mod tests;
