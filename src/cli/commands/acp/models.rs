//! The models that a client can choose for a session: those of `delta models`. Sources: `models` and `session/set_model`
//! of the protocol's schema 0.4.5, and the option of category `model` of 1.15.1, which took their place.

use super::Answer;
use super::rpc::{METHOD_NOT_FOUND, Rejection};
use super::session::EditorSession;
use super::turns::ClientLink;
use crate::cli::commands::models::list_for;
use crate::runs::preflight::choose_model;
use crate::unix::signals::Signals;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The time that the endpoint may take to list them, in which no session is served. A command that prints the key has a
/// limit of its own.
const LIST_TIME: Duration = Duration::from_secs(3);

/// The members of an answer about a session that name its models. A client that has `chosen` one gets an error if the
/// endpoint does not list it.
pub(super) fn describe(
    link: &ClientLink,
    signals: &Arc<Signals>,
    session: &mut EditorSession,
    chosen: Option<&Value>,
) -> Answer {
    let (mut agent, listing) = list_for(&link.agent, signals, LIST_TIME)?;
    choose_model(&mut agent)?;
    let names = listing.models.iter().map(|it| &*it.name);
    if let Some(chosen) = chosen {
        let Some(name) = names.clone().find(|name| chosen == name) else {
            let message = "the endpoint lists no such model: see delta models";
            return Err(Rejection::new(METHOD_NOT_FOUND, message));
        };
        session.model = Some(name.to_owned());
    }
    let Some(current) = session.model.as_ref().or(agent.llm.model.as_ref()) else {
        return Ok(Some(json!({})));
    };
    let all = |key: &str| -> Vec<Value> {
        let names = names.clone();
        names.map(|name| json!({key: name, "name": name})).collect()
    };
    Ok(Some(json!({
        "models": {"currentModelId": current, "availableModels": all("modelId")},
        "configOptions": [{
            "id": "model",
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": current,
            "options": all("value"),
        }],
    })))
}
