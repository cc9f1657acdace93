//! A run's state as the messages of a chat-completions request.
//!
//! Pure; unaware of files and servers. What the journal holds is spliced as it stands, so that the
//! same conversation always becomes the same bytes and each request begins with the one before it.
//!
//! Architecture invariant: every tool call has exactly one tool message right behind the assistant
//! message it is in, whatever the journal holds. Lost results are filled in here, never there.

use crate::record::state::{Run, Thought, Turn};
use crate::text::json::{Object, string};

/// Stands for a result that has been taken out of the journal.
const RESULT_REMOVED: &str = "(the result of this call is no longer in the journal)";

/// Appends the conversation as comma-separated messages. `model` is the model that will be asked, as
/// JSON: reasoning goes back only to the model that it came from.
pub fn write(out: &mut Vec<u8>, run: &Run<'_>, model: Option<&str>) {
    for each in &run.turns {
        turn(out, each, model);
    }
}

/// Appends messages that [`write()`] has made, and a comma before them unless they are the first.
pub(crate) fn splice(out: &mut Vec<u8>, messages: &[u8]) {
    if !messages.is_empty() {
        comma(out);
        out.extend_from_slice(messages);
    }
}

/// Appends one step of the conversation, as [`write()`] does.
pub(crate) fn turn(out: &mut Vec<u8>, turn: &Turn<'_>, model: Option<&str>) {
    match turn {
        Turn::User(content) => message(out, "user", content.as_bytes()),
        Turn::Thought(thought) => answer(out, thought, model),
    }
}

/// Appends a message with its content as JSON, and a comma before it unless it is the first.
pub(crate) fn message(out: &mut Vec<u8>, role: &str, content: &[u8]) {
    comma(out);
    let mut object = Object::begin(out);
    object.put("role", role).raw("content", content);
    object.end();
}

fn answer(out: &mut Vec<u8>, thought: &Thought<'_>, model: Option<&str>) {
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
    if let Some(calls) = calls {
        object.raw("tool_calls", calls.as_bytes());
    }
    if thought.asked_model.as_deref() == model {
        for (name, value) in &thought.reasoning {
            object.raw(name, value.as_bytes());
        }
    }
    object.end();
    for call in &thought.calls {
        comma(out);
        let mut object = Object::begin(out);
        object.put("role", "tool").put("tool_call_id", &*call.id);
        match call.result {
            Some(result) => {
                object.raw("content", result.as_bytes());
            }
            None => {
                let answered = call.question.as_ref().and_then(|q| q.response.as_deref());
                string(object.nest("content"), answered.unwrap_or(RESULT_REMOVED));
            }
        }
        object.end();
    }
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
        write(&mut out, &run, model);
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
