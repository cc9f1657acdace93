//! What strict servers demand of a chat-completions request.

use serde_json::Value;
use std::collections::HashSet;

/// Fails unless a strict server would accept this request.
#[track_caller]
pub fn assert_valid_for_api(body: &[u8]) {
    let objections = objections(body);
    assert!(
        objections.is_empty(),
        "a strict server refuses this request:\n  {}\n{}",
        objections.join("\n  "),
        String::from_utf8_lossy(body)
    );
}

/// Everything that a strict server could have against a request.
pub fn objections(body: &[u8]) -> Vec<String> {
    let request: Value = match serde_json::from_slice(body) {
        Ok(request) => request,
        Err(error) => return vec![format!("not JSON: {error}")],
    };
    let Some(messages) = request["messages"].as_array() else {
        return vec!["no messages".into()];
    };
    let mut found = Vec::new();
    if !request["model"].is_string() {
        found.push("model is no string".into());
    }
    if !body.ends_with(b"]}") {
        found.push("messages are not the last field".into());
    }
    let has_tools = request["tools"].as_array().is_some_and(|it| !it.is_empty());
    let effort = request["reasoning_effort"].as_str().unwrap_or("none");
    let is_newest = request["model"]
        .as_str()
        .is_some_and(|it| it.starts_with("gpt-5"));
    if is_newest && has_tools && effort != "none" {
        found.push(
            "Function tools with reasoning_effort are not supported. Please use /v1/responses, or set reasoning_effort to 'none'"
                .into(),
        );
    }
    if request["tools"].as_array().is_some_and(Vec::is_empty) {
        found.push("an empty list of tools".into());
    }
    for tool in request["tools"].as_array().into_iter().flatten() {
        if tool["type"] != "function" || !tool["function"]["parameters"].is_object() {
            found.push(format!(
                "a tool that is no function with parameters: {tool}"
            ));
        }
    }
    found.extend(conversation(messages));
    found
}

fn conversation(messages: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: HashSet<&str> = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            found.push(format!(
                "message {at}: calls {open:?} have no result before it"
            ));
            open.clear();
        }
        match role {
            "system" if at > 0 => found.push(format!("message {at}: a second system message")),
            "system" | "user" if message["content"].is_string() => {}
            "user" if message["content"].is_array() => {
                for part in message["content"].as_array().into_iter().flatten() {
                    if !is_part(part) {
                        found.push(format!("message {at}: a part that is none: {part}"));
                    }
                }
            }
            "assistant" => match &message["tool_calls"] {
                Value::Null if message["content"].is_string() => {}
                Value::Array(calls) if !calls.is_empty() => {
                    for call in calls {
                        found.extend(
                            objection_to_call(call).map(|why| format!("message {at}: {why}")),
                        );
                        if !open.insert(call["id"].as_str().unwrap_or_default()) {
                            found.push(format!(
                                "message {at}: two calls have the id {}",
                                call["id"]
                            ));
                        }
                    }
                }
                _ => found.push(format!("message {at}: neither text nor calls")),
            },
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                if !open.remove(id) {
                    found.push(format!(
                        "message {at}: a result for {id:?}, which is not open"
                    ));
                }
                if !message["content"].is_string() {
                    found.push(format!("message {at}: a result without text"));
                }
            }
            _ => found.push(format!("message {at}: {message}")),
        }
    }
    if !open.is_empty() {
        found.push(format!("calls {open:?} have no result at the end"));
    }
    found
}

fn is_part(part: &Value) -> bool {
    let keys: Vec<&str> = part
        .as_object()
        .map_or_else(Vec::new, |it| it.keys().map(String::as_str).collect());
    match keys[..] {
        ["type", "text"] => part["text"]
            .as_str()
            .is_some_and(|it| !it.trim().is_empty()),
        ["type", "image_url"] => is_data_url(&part["image_url"]["url"], "image/"),
        ["type", "file"] => {
            let file = &part["file"];
            file["filename"].is_string() && is_data_url(&file["file_data"], "application/pdf")
        }
        _ => false,
    }
}

/// True for bytes of such a type as base64.
pub fn is_data_url(url: &Value, media_type: &str) -> bool {
    let url = url.as_str().and_then(|url| url.strip_prefix("data:"));
    let parts = url.and_then(|url| url.split_once(";base64,"));
    parts.is_some_and(|(kind, data)| kind.starts_with(media_type) && is_base64(data))
}

pub fn is_base64(data: &str) -> bool {
    use base64::Engine;
    let decoded = base64::prelude::BASE64_STANDARD.decode(data);
    decoded.is_ok_and(|bytes| !bytes.is_empty())
}

fn objection_to_call(call: &Value) -> Option<String> {
    let arguments = call["function"]["arguments"].as_str();
    let object = arguments.and_then(|text| serde_json::from_str::<Value>(text).ok());
    if call["id"].as_str().is_none_or(str::is_empty) {
        Some(format!("a call without an id: {call}"))
    } else if call["type"] != "function" || !call["function"]["name"].is_string() {
        Some(format!("a call that is no function: {call}"))
    } else if !is_name(call["function"]["name"].as_str().unwrap_or_default()) {
        Some(format!("a name that is none: {call}"))
    } else if !object.is_some_and(|object| object.is_object()) {
        Some(format!("arguments that are no object in a string: {call}"))
    } else {
        None
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=64).contains(&name.len()) && name.chars().all(allowed)
}

#[test]
fn an_orphan_a_gap_and_a_second_system_message_are_objected_to() {
    let request = |messages: &str| {
        objections(format!(r#"{{"model":"m","messages":[{messages}]}}"#).as_bytes())
    };
    let user = r#"{"role":"user","content":"u"}"#;
    let calls = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let result = r#"{"role":"tool","tool_call_id":"a","content":"r"}"#;
    let system = r#"{"role":"system","content":"s"}"#;
    assert_eq!(
        request(&format!("{system},{user},{calls},{result},{user}")),
        [""; 0]
    );
    assert_eq!(request(&format!("{user},{calls},{user}")).len(), 1);
    assert_eq!(request(&format!("{user},{result}")).len(), 1);
    assert_eq!(request(&format!("{calls},{result},{result}")).len(), 1);
    assert_eq!(request(&format!("{user},{system}")).len(), 1);
    assert_eq!(
        request(&format!("{user},{}", calls.replace("{}", "[]"))).len(),
        2
    );
}
