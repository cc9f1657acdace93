//! A chat-completions response as it comes from real servers, understood.
//!
//! The format is that of `POST /chat/completions`; deviations that are in use are accepted: content
//! that is null, missing or a list of parts; calls that are null, without ids, or with arguments as
//! an object.

use crate::model::attempt::{check_size, readable};
use crate::model::calls::{NewCall, calls_json, drop_repeated};
use crate::model::reasons::{not_of, their_words};
use crate::model::usage::{AnswerUsage, ReportedUsage};
use crate::record::event::{FinishReason, REASONING, Terms, Tokens};
use crate::record::messages::is_known_member;
use crate::text::answers::after_thoughts;
use crate::text::json::{self, Fields, Key, Object};
use crate::text::shorten::in_short;
use serde_json::Value;
use serde_json::value::RawValue;

/// The detail of an answer that the service has cut off for want of room, where it says so.
pub(crate) const WINDOW_IS_FULL: &str = "the model's context window is full";

/// The model's answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The text: a JSON string or null.
    pub content_json: Vec<u8>,
    /// The text, if there is any.
    pub text: String,
    /// The calls, with ids as the server gave them; missing ones are empty.
    pub calls: Vec<NewCall>,
    /// Members in which the server sent reasoning: name and JSON.
    pub reasoning: Vec<(&'static str, Vec<u8>)>,
    /// The reason why the model stopped.
    pub finish_reason: Option<FinishReason<'static>>,
    /// The stream of the answer ended without that.
    pub lacks_finish_reason: bool,
    /// Which model answered.
    pub model: Option<String>,
    /// The tokens of the request and the answer.
    pub usage: Option<Tokens>,
    /// Tokens of the request that came from a cache, if the server reports them.
    pub cached_tokens: Option<u64>,
    /// Everything that the service has counted; zeros if it has not.
    pub counted: AnswerUsage,
    /// The terms that decide the price beside the tokens.
    pub terms: Terms,
    /// More about why the model stopped, for a person.
    pub finish_detail: Option<String>,
    /// The answer as it came, in the form of its API: a JSON array of what must be sent back verbatim.
    pub items: Option<Vec<u8>>,
    /// The digest of the text and the calls that were read from the items.
    pub view: Option<String>,
    /// The service has more to say, and waits to have this back.
    pub is_paused: bool,
}

impl Answer {
    pub(super) fn take_usage(&mut self, reported: Option<ReportedUsage>) {
        let Some(reported) = reported else { return };
        self.usage = reported.counted.ok().map(|counted| counted.tokens);
        self.cached_tokens = reported.cached;
        self.counted = reported.counted.unwrap_or_default();
        self.terms = reported.terms;
    }

    /// One of text, reasoning to be shown, and calls.
    pub(super) fn of_parts(
        text: String,
        reasoning: String,
        calls: Vec<NewCall>,
        model: Option<String>,
    ) -> Self {
        let reasoning =
            (!reasoning.is_empty()).then(|| (REASONING[0], json::text(&reasoning).into_bytes()));
        Self {
            content_json: json::text(&(!text.is_empty()).then_some(&text)).into_bytes(),
            text,
            calls,
            reasoning: reasoning.into_iter().collect(),
            model,
            ..Self::default()
        }
    }

    /// The answer as a chat completion: the form that everything above the wire knows.
    pub(crate) fn as_completion(&self) -> Vec<u8> {
        json::object(|object| {
            object
                .put("object", "chat.completion")
                .put("model", &self.model);
            object.objects("choices", [()], |choice, ()| {
                choice.put("index", &0).object("message", |message| {
                    message
                        .put("role", "assistant")
                        .raw("content", &self.content_json);
                    if !self.calls.is_empty() {
                        message.raw("tool_calls", &calls_json(&self.calls));
                    }
                    for (name, value) in &self.reasoning {
                        message.raw(name, value);
                    }
                });
                let reason = self.finish_reason.as_ref().map(FinishReason::name);
                choice.put("finish_reason", &reason);
            });
            object.put("usage", &self.usage);
        })
    }
}

/// The reason why a response holds no answer.
#[derive(Debug, Default)]
pub(crate) struct NoAnswer {
    pub why: String,
    /// The service will hardly say anything else if it is asked again.
    pub is_lasting: bool,
    /// The model has answered, with neither text nor calls.
    pub is_silent: bool,
}

impl From<String> for NoAnswer {
    fn from(why: String) -> Self {
        Self {
            why,
            ..Self::default()
        }
    }
}

impl NoAnswer {
    /// Neither text nor calls, and the reason for which the model stopped, in the neutral form's words.
    pub(super) fn silent(reason: Option<&FinishReason<'_>>) -> Self {
        let why = "the answer has neither text nor tool calls".to_owned();
        let known = ["", "stop", "tool_calls", "function_call"];
        match reason.map_or("", FinishReason::name) {
            known_reason if known.contains(&known_reason) => Self {
                is_silent: true,
                ..why.into()
            },
            unknown => Self {
                why: format!("{why}, for an unknown reason: {}", in_short(unknown, 60)),
                is_lasting: true,
                is_silent: true,
            },
        }
    }
}

/// Reads a response.
///
/// # Errors
/// The reason to ask again: the body is not JSON, has no message, or one with neither text nor
/// calls.
pub(crate) fn parse(body: &[u8]) -> Result<Answer, NoAnswer> {
    let text = readable(body)?;
    let body = text.as_bytes();
    let not_chat = || not_of(body, "a chat completion");
    let response: Fields<'_> = serde_json::from_slice(body).map_err(|_| not_chat())?;
    let choices = response
        .raw("choices")
        .map_or("[]", RawValue::get)
        .strip_prefix('[')
        .ok_or_else(not_chat)?;
    if choices.trim_start() == "]" {
        return Err(format!("the answer has no choices: {}", their_words(body)).into());
    }
    // The others, however many there are, are not read.
    let mut choices = serde_json::Deserializer::from_str(choices).into_iter::<Fields<'_>>();
    let choice = choices.next().and_then(Result::ok).ok_or_else(not_chat)?;
    check_size(choice.raw("message").map_or("null", RawValue::get))?;
    read_choice(&choice, response.word("model")).unwrap_or_else(|_| Err(not_chat().into()))
}

/// The answer in a choice, if it has text or calls or was cut off; otherwise the inner error says what is missing.
///
/// # Errors
/// The message has another form.
fn read_choice(
    choice: &Fields<'_>,
    model: Option<String>,
) -> serde_json::Result<Result<Answer, NoAnswer>> {
    if let Some(error) = choice.raw("error").filter(|it| it.get() != "null") {
        let said = their_words(error.get().as_bytes());
        return Ok(Err(format!("the answer is an error: {said}").into()));
    }
    let message: Fields<'_> = choice.read("message")?;
    let refused: Value = message.read("refusal")?;
    let refusal = refused.as_str().filter(|words| !words.trim().is_empty());
    let finish_reason = match refusal {
        Some(_) => Some(FinishReason::ContentFilter),
        None => choice.word("finish_reason").map(FinishReason::of),
    };
    let content: Value = message.read("content")?;
    let mut text = text_of(&content);
    if text.is_empty() {
        refusal.unwrap_or("").clone_into(&mut text);
    }
    let calls: Vec<&RawValue> = message.read("tool_calls")?;
    let mut calls: Vec<NewCall> = calls
        .into_iter()
        .map(read_call)
        .collect::<serde_json::Result<_>>()?;
    drop_repeated(&mut calls);
    let cut_off = finish_reason.as_ref().is_some_and(FinishReason::is_cut_off);
    if after_thoughts(&text).trim().is_empty() && calls.is_empty() && !cut_off {
        return Ok(Err(NoAnswer::silent(finish_reason.as_ref())));
    }
    let has_text = !text.is_empty() || content.is_string();
    let reasoning = |name| Some((name, json::one_line(message.raw(name)?.get()).into_bytes()));
    Ok(Ok(Answer {
        content_json: json::text(&has_text.then_some(&text)).into_bytes(),
        text,
        calls,
        reasoning: REASONING.into_iter().filter_map(reasoning).collect(),
        finish_reason,
        finish_detail: refusal.map(str::to_owned),
        lacks_finish_reason: choice.read("no_finish_reason")?,
        model,
        items: as_items(&other_members(&message, is_known_member)),
        ..Answer::default()
    }))
}

fn read_call(raw: &RawValue) -> serde_json::Result<NewCall> {
    let call: Fields<'_> = serde_json::from_str(raw.get())?;
    let function: Fields<'_> = call.read("function")?;
    let name: String = function.read("name")?;
    let arguments = match function.read("arguments")? {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    };
    let id = match call.read("id")? {
        Value::String(id) => id,
        Value::Number(id) => id.to_string(),
        _ => String::new(),
    };
    let is_known = |name: &str| ["id", "type", "index", "function"].contains(&name);
    Ok(NewCall {
        extra: other_members(&call, is_known),
        ..NewCall::understand(id, &name, arguments)
    })
}

/// Members beside the known ones, without those that say nothing.
fn other_members(members: &Fields<'_>, is_known: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let is_other = |(name, value): &&(Key<'_>, &RawValue)| {
        let says_nothing = matches!(value.get(), "null" | "\"\"" | "[]" | "{}");
        !says_nothing && !is_known(name)
    };
    let others = members.0.iter().filter(is_other);
    others
        .map(|(name, value)| (name.to_string(), json::one_line(value.get())))
        .collect()
}

/// Members as a list of one object.
fn as_items(members: &[(String, String)]) -> Option<Vec<u8>> {
    let write = |object: &mut Object<'_>| {
        for (name, value) in members {
            object.raw(name, value.as_bytes());
        }
    };
    (!members.is_empty()).then(|| json::list([json::object(write)]))
}

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part.as_str().or_else(|| part["text"].as_str()))
            .collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(message: &str) -> Answer {
        let body =
            format!("{{\"choices\":[{{\"message\":{message},\"finish_reason\":\"stop\"}}]}}");
        parse(body.as_bytes()).unwrap()
    }

    #[test]
    fn every_form_of_content_is_read() {
        assert_eq!(message(r#"{"content":"a"}"#).text, "a");
        assert_eq!(
            message(r#"{"content":[{"type":"text","text":"a"},{"text":"b"}]}"#).text,
            "ab"
        );
        let call = r#""tool_calls":[{"function":{"name":"x","arguments":{"a":1}}}]"#;
        assert_eq!(
            message(&format!("{{\"content\":null,{call}}}")).content_json,
            b"null"
        );
        assert_eq!(
            message(&format!("{{\"content\":\"\",{call}}}")).content_json,
            b"\"\""
        );
        assert_eq!(
            message(&format!("{{{call}}}")).calls[0].arguments,
            "{\"a\":1}"
        );
    }

    #[test]
    fn arguments_that_are_no_object_are_kept_aside() {
        for (given, sent, invalid) in [
            (r#""{\"a\":1}""#, "{\"a\":1}", None),
            (r#""""#, "{}", None),
            ("null", "{}", None),
            (r#""{\"a\":""#, "{}", Some("{\"a\":")),
            (r#""[1]""#, "{}", Some("[1]")),
            ("[1]", "{}", Some("[1]")),
        ] {
            let answer = message(&format!(
                "{{\"tool_calls\":[{{\"id\":\"a\",\"function\":{{\"name\":\"x\",\"arguments\":{given}}}}}]}}"
            ));
            assert_eq!(answer.calls[0].arguments, sent, "{given}");
            assert_eq!(answer.calls[0].invalid.as_deref(), invalid, "{given}");
        }
    }

    #[test]
    fn what_is_no_answer_is_worth_another_try() {
        for body in [
            "",
            "<html>",
            "{}",
            "[]",
            r#"{"choices":[]}"#,
            r#"{"choices":[{"message":{"content":""}}]}"#,
            r#"{"choices":[{"message":{"content":null,"tool_calls":null}}]}"#,
            r#"{"error":{"message":"upstream"}}"#,
        ] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn half_a_character_does_not_lose_the_answer() {
        let answer = message(r#"{"content":"a \ud800 b \ud83e\udd80 \\ud800"}"#);
        assert_eq!(answer.text, "a \u{FFFD} b 🦀 \\ud800");
    }
}
