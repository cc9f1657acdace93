//! Questions of a run as requests to the client, and the client's answers.
//!
//! Pure.

use super::updates::Updates;
use crate::engine::question::Question;
use crate::record::event::InputType;
use serde_json::{Value, json};

/// The client's decision.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientDecision {
    Answer(String),
    /// The question stays open.
    Open,
}

/// True if a client may be asked; `has_forms` if it can ask for more than a yes.
pub(super) fn can_ask(question: &Question, has_forms: bool) -> bool {
    question.fingerprint.is_some() || (has_forms && !is_secret(question))
}

/// True if no form may ask it.
pub(super) fn is_secret(question: &Question) -> bool {
    question.sensitive || question.input_type == InputType::Password
}

/// The method and the parameters of the request.
pub(super) fn request(
    session: &str,
    question: &Question,
    updates: &Updates,
) -> (&'static str, Value) {
    let call = updates.asking_call(&question.request_id, &question.prompt);
    if question.fingerprint.is_some() {
        let option =
            |id: &str, name: &str, kind: &str| json!({"optionId": id, "name": name, "kind": kind});
        let options = [
            option("yes", "Run it", "allow_once"),
            option("no", "Do not run it", "reject_once"),
        ];
        let params = json!({"sessionId": session, "toolCall": call, "options": options});
        return ("session/request_permission", params);
    }
    let answer = match question.input_type {
        InputType::Confirmation => json!({"type": "boolean", "title": "Yes"}),
        _ => json!({"type": "string", "title": "Answer"}),
    };
    let params = json!({
        "sessionId": session,
        "toolCallId": call["toolCallId"],
        "mode": "form",
        "message": question.prompt,
        "requestedSchema": {"type": "object", "properties": {"answer": answer}, "required": ["answer"]},
    });
    ("elicitation/create", params)
}

/// The decision in the answer to the request. Anything but a decision leaves the question open.
pub(super) fn decision(question: &Question, result: Option<&Value>) -> ClientDecision {
    let result = result.unwrap_or(&Value::Null);
    let said = |text: &str| ClientDecision::Answer(text.to_owned());
    if question.fingerprint.is_some() {
        let outcome = &result["outcome"];
        return match (outcome["outcome"].as_str(), outcome["optionId"].as_str()) {
            (Some("selected"), Some(option @ ("yes" | "no"))) => said(option),
            _ => ClientDecision::Open,
        };
    }
    let is_confirmation = question.input_type == InputType::Confirmation;
    match (result["action"].as_str(), &result["content"]["answer"]) {
        (Some("accept"), Value::Bool(true)) => said("yes"),
        (Some("accept"), Value::Bool(false)) => said("no"),
        (Some("accept"), Value::String(text)) if !is_confirmation && !text.is_empty() => said(text),
        (Some("decline"), _) if is_confirmation => said("no"),
        (Some("decline"), _) => said("The user declined to answer."),
        _ => ClientDecision::Open,
    }
}
