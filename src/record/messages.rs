//! A run's state as messages, in the form of chat completions.
//!
//! Pure; unaware of files and servers. The journal's text is spliced verbatim, so that the
//! same conversation always becomes the same bytes and each request begins with the one before it.
//!
//! Architecture invariant: every tool call has exactly one tool message right after the assistant
//! message it is in, for any journal. Lost results are filled in here, never there.

pub(crate) mod shortened;
pub(crate) mod attached;

use crate::record::event::REASONING;
use crate::record::state::{Call, Compaction, RecordedQuestion, Run, Thought, Turn};
use crate::text::digest::PartsDigest;
use crate::text::json::{self, Members, Object, string};
use attached::ShownAttachments;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;

/// Replaces a result that was removed from the journal.
const RESULT_REMOVED: &str = "(the result of this call is no longer in the journal)";

/// The form of the messages.
#[derive(Clone, Debug)]
pub struct Form {
    kind: FormKind,
    pub(crate) shown: ShownAttachments,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FormKind {
    /// That of chat completions. Reasoning goes back only to the model that it came from, and this one, as
    /// JSON, is asked.
    Chat(Option<String>),
    /// The neutral one, which is put into that of another API: with answers as they came.
    Neutral,
}

impl Form {
    /// That of chat completions, for this model, as JSON.
    pub fn chat(model: Option<String>) -> Self {
        Self {
            kind: FormKind::Chat(model),
            shown: ShownAttachments::default(),
        }
    }

    /// The neutral one.
    pub fn neutral() -> Self {
        Self {
            kind: FormKind::Neutral,
            shown: ShownAttachments::default(),
        }
    }
}

/// Appends the conversation as comma-separated messages.
pub fn write(out: &mut Vec<u8>, run: &Run<'_>, form: &Form) {
    write_some(out, run, form, |_| true);
}

/// Appends these turns of the conversation, as [`write()`] does.
pub(crate) fn write_some(
    out: &mut Vec<u8>,
    run: &Run<'_>,
    form: &Form,
    mut has: impl FnMut(&Turn<'_>) -> bool,
) {
    let (summarized, cleared) = (run.summarized_turns(), run.cleared_turns());
    if let Some(text) = shortened::summary(run, summarized).filter(|_| summarized > 0) {
        message(out, "user", json::text(&text).as_bytes());
    }
    for (at, each) in run.turns.iter().enumerate().skip(summarized) {
        if has(each) {
            let compaction = Some(&run.compaction).filter(|_| at < cleared);
            turn(out, each, form, compaction);
        }
    }
}

/// Appends messages that [`write()`] has made, and a comma before them unless they are the first.
pub(crate) fn splice(out: &mut Vec<u8>, messages: &[u8]) {
    if !messages.is_empty() {
        comma(out);
        out.extend_from_slice(messages);
    }
}

/// Appends one step of the conversation, as [`write()`] does; with a compaction, observations in their short form.
pub(crate) fn turn(
    out: &mut Vec<u8>,
    turn: &Turn<'_>,
    form: &Form,
    compaction: Option<&Compaction<'_>>,
) {
    match turn {
        // In a shorter form, attachments are their lines.
        Turn::User(said) if compaction.is_none() && !said.attached.all().is_empty() => {
            attached::said(out, said.content, &said.attached, form);
        }
        Turn::User(said) => message(out, "user", said.content.as_bytes()),
        Turn::Refusal(refusal) => message(out, "user", refusal.content.as_bytes()),
        Turn::Thought(thought) => answer(out, thought, form, compaction),
    }
}

/// Appends a message with its content as JSON, and a comma before it unless it is the first.
pub(crate) fn message(out: &mut Vec<u8>, role: &str, content: &[u8]) {
    comma(out);
    let mut object = Object::begin(out);
    object.put("role", role).raw("content", content);
    object.end();
}

fn answer<'t>(
    out: &mut Vec<u8>,
    thought: &'t Thought<'_>,
    form: &Form,
    compaction: Option<&Compaction<'_>>,
) {
    let says_nothing = matches!(thought.content, "null" | "\"\"");
    let calls = thought
        .tool_calls
        .as_deref()
        .filter(|_| !thought.calls.is_empty());
    if says_nothing && calls.is_none() {
        // Servers refuse an assistant message with neither text nor calls.
        return;
    }
    comma(out);
    let mut object = Object::begin(out);
    object
        .put("role", "assistant")
        .raw("content", thought.content.as_bytes());
    let ids = repaired_ids(&thought.calls);
    match (calls, &ids) {
        (Some(_), Some(ids)) => write_calls(&mut object, &thought.calls, ids),
        (Some(calls), None) => {
            object.raw("tool_calls", calls.as_bytes());
        }
        (None, _) => {}
    }
    match &form.kind {
        FormKind::Chat(model) if thought.asked_model.as_deref() == model.as_deref() => {
            echo(&mut object, thought);
        }
        FormKind::Neutral => {
            if let Some(wire) = thought.wire {
                object.raw("wire", wire.as_bytes());
            }
        }
        FormKind::Chat(_) => {}
    }
    object.end();
    let id = |(number, call): (usize, &'t Call<'_>)| {
        ids.as_ref().map_or(&*call.id, |ids| ids[number].as_str())
    };
    let ids: Vec<&str> = thought.calls.iter().enumerate().map(id).collect();
    for (call, id) in thought.calls.iter().zip(&ids) {
        result(out, call, id, form, compaction);
    }
    if compaction.is_none() {
        attached::behind_results(out, &thought.calls, &ids, form);
    }
}

/// Appends the result of a call.
fn result(
    out: &mut Vec<u8>,
    call: &Call<'_>,
    id: &str,
    form: &Form,
    compaction: Option<&Compaction<'_>>,
) {
    comma(out);
    let mut object = Object::begin(out);
    object.put("role", "tool").put("tool_call_id", id);
    match call.result {
        Some(result) => {
            let short = compaction.map(|it| shortened::observation(call, it));
            match short {
                Some(Some(short)) => string(object.nest("content"), &short),
                Some(None) => drop(object.raw("content", result.as_bytes())),
                None => attached::result(object.nest("content"), result, &call.attached, form),
            }
        }
        None => {
            let asked = call.question.as_ref();
            let answered = asked
                .filter(|q: &&RecordedQuestion<'_>| q.fingerprint.is_none())
                .and_then(|q| q.response.as_deref());
            string(object.nest("content"), answered.unwrap_or(RESULT_REMOVED));
        }
    }
    if call.has_failed && form.kind == FormKind::Neutral {
        object.put("is_error", &true);
    }
    object.end();
}

/// New ids for a message whose calls have missing or equal ones; None if the ids can stay.
fn repaired_ids(calls: &[Call<'_>]) -> Option<Vec<String>> {
    let mut known = HashSet::new();
    let is_good = |call: &Call<'_>| !call.id.is_empty() && known.insert(call.id.to_string());
    let good: Vec<bool> = calls.iter().map(is_good).collect();
    if good.iter().all(|is_good| *is_good) {
        return None;
    }
    Some(
        calls
            .iter()
            .zip(good)
            .enumerate()
            .map(|(at, (call, is_good))| {
                if is_good {
                    call.id.to_string()
                } else {
                    format!("call_{}_{at}", call.id)
                }
            })
            .collect(),
    )
}

fn write_calls(object: &mut Object<'_>, calls: &[Call<'_>], ids: &[String]) {
    object.objects("tool_calls", calls.iter().zip(ids), |out, (call, id)| {
        out.put("id", id).put("type", "function");
        let mut function = Object::begin(out.nest("function"));
        function
            .put("name", &*call.name)
            .put("arguments", &*call.arguments);
        function.end();
    });
}

/// Adds what the server wants back beside the text and the calls: the reasoning, and members that are unknown
/// here. An answer that came over another API has none, nor has one that was edited since.
fn echo(object: &mut Object<'_>, thought: &Thought<'_>) {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct RecordedWire<'w> {
        #[serde(borrow)]
        api: Cow<'w, str>,
        #[serde(borrow)]
        items: Vec<&'w RawValue>,
        #[serde(borrow)]
        view: Cow<'w, str>,
    }
    let mut items = Vec::new();
    if let Some(wire) = thought.wire {
        let wire: RecordedWire<'_> = json::read_or_default(wire);
        let calls = thought.tool_calls.as_deref().unwrap_or_default();
        let is_as_it_came = || wire.view == view(thought.content.as_bytes(), calls.as_bytes());
        if wire.api != "chat" || !is_as_it_came() {
            return;
        }
        items = wire.items;
    }
    for (name, value) in &thought.reasoning {
        object.raw(name, value.as_bytes());
    }
    for item in items {
        let members: Members = json::read_or_default(item.get());
        let others = members.0.iter();
        for (name, value) in others.filter(|(name, _)| !is_known_member(name)) {
            object.raw(name, value.get().as_bytes());
        }
    }
}

/// True for members of an assistant's message that have a place of their own in the journal.
pub(crate) fn is_known_member(name: &str) -> bool {
    ["role", "content", "tool_calls", "refusal"].contains(&name) || REASONING.contains(&name)
}

/// The digest of what the journal keeps of an answer in the neutral form: its text and its calls, as JSON.
pub(crate) fn view(content: &[u8], calls: &[u8]) -> String {
    let mut digest = PartsDigest::default();
    digest.add(content);
    digest.add(calls);
    digest.sum()
}

fn comma(out: &mut Vec<u8>) {
    if out.last().is_some_and(|last| *last != b'[') {
        out.push(b',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::state::{self, Reading};

    fn messages(journal: &str, model: Option<&str>) -> String {
        let run = state::read(journal.as_bytes(), Reading::default()).unwrap();
        let mut out = b"[".to_vec();
        write(&mut out, &run, &Form::chat(model.map(str::to_owned)));
        out.push(b']');
        String::from_utf8(out).unwrap()
    }

    const CALLS: &str = r#"[{"id":"a","type":"function","function":{"name":"x","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"x","arguments":"{}"}}]"#;

    #[test]
    fn results_follow_their_calls_whatever_stands_between_them() {
        let journal = format!(
            "{{\"type\":\"USER_MESSAGE\",\"content\":\"go\"}}\n\
             {{\"type\":\"THOUGHT\",\"content\":\"t\",\"tool_calls\":{CALLS}}}\n\
             {{\"type\":\"USER_MESSAGE\",\"content\":\"and\"}}\n\
             {{\"type\":\"ACTION_RESULT\",\"action_id\":\"b\",\"observation_content\":\"B\"}}\n\
             {{\"type\":\"ACTION_RESULT\",\"action_id\":\"zzz\",\"observation_content\":\"lost\"}}\n"
        );
        let expected = format!(
            "[{{\"role\":\"user\",\"content\":\"go\"}},{{\"role\":\"assistant\",\"content\":\"t\",\"tool_calls\":{CALLS}}},\
             {{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"{RESULT_REMOVED}\"}},\
             {{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"B\"}},{{\"role\":\"user\",\"content\":\"and\"}}]"
        );
        assert_eq!(messages(&journal, None), expected);
    }

    #[test]
    fn reasoning_goes_back_only_to_the_model_it_came_from() {
        let journal = "{\"type\":\"ENGINE_START\",\"config\":{\"llm\":{\"model\":\"m\"}}}\n\
             {\"type\":\"THOUGHT\",\"content\":\"t\",\"reasoning_content\":\"r\"}\n";
        assert!(messages(journal, Some("\"m\"")).contains("\"reasoning_content\":\"r\""));
        assert!(!messages(journal, Some("\"n\"")).contains("reasoning"));
    }

    #[test]
    fn an_answer_with_nothing_in_it_is_left_out() {
        assert_eq!(
            messages("{\"type\":\"THOUGHT\",\"content\":null}\n", None),
            "[]"
        );
    }
}
