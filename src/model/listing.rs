//! The models that an endpoint lists, and one small request to see whether it answers.
//!
//! Unaware of who chooses. A list is a server's text: a name that could not be shown as it is, or written on a line of
//! its own, is left out.

use super::attempt::{Attempt, check_size, readable};
use super::http::{Http, HttpRequest, served_window};
use super::reasons::words_in_place_of_answer;
use super::wire::Wire;
use crate::config::agent::Llm;
use crate::config::api::Api;
use crate::config::environment::Endpoint;
use crate::record::request_body::Body;
use crate::text::disguise::is_unseen;
use crate::text::order::sort_by;
use crate::unix::signals::{Signals, Stop};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The longest name of a model, in bytes.
const LONGEST_NAME: usize = 200;

/// A model of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListedModel {
    /// Printable, on one line, without blanks at its ends.
    pub name: String,
    /// Tokens.
    pub window: Option<u64>,
    /// Per million tokens of input and of output.
    pub prices: Option<(f64, f64)>,
}

/// A list of models, sorted by name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Listing {
    pub models: Vec<ListedModel>,
    /// The number of those whose names cannot be shown.
    pub left_out: usize,
}

/// The reason why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    Failed(String),
    Stopped(Stop),
}

/// Asks an endpoint for its models.
pub(crate) fn list_models(
    endpoint: &Endpoint,
    llm: &Llm,
    limit: Duration,
    signals: &Arc<Signals>,
) -> Result<Listing, Unanswered> {
    let mut endpoint = endpoint.clone();
    // The vendor of Messages lists its models only for requests with its own headers.
    if endpoint.base_url == Api::Messages.public_endpoint() {
        endpoint.api = Api::Messages;
    }
    read_listing(&exchange(endpoint, llm, HttpRequest::List, limit, signals)?)
        .map_err(Unanswered::Failed)
}

/// Sends one small request to the model that `llm` names. It offers a tool, which some services refuse, and runs none.
pub(crate) fn try_model(
    endpoint: &Endpoint,
    llm: &Llm,
    signals: &Arc<Signals>,
) -> Result<(), Unanswered> {
    let model = llm.model_json().unwrap_or_else(|| "null".to_owned());
    let message = r#"{"role":"user","content":"Reply with the word OK."}"#;
    let tool = r#""name":"look","description":"Shows nothing. There is no need to call it.""#;
    let schema = r#"{"type":"object","properties":{}}"#;
    let rest = match endpoint.api {
        Api::Chat => format!(
            r#""messages":[{message}],"tools":[{{"type":"function","function":{{{tool},"parameters":{schema}}}}}]"#
        ),
        Api::Responses => format!(
            r#""store":false,"input":[{message}],"tools":[{{"type":"function",{tool},"parameters":{schema},"strict":false}}]"#
        ),
        Api::Messages => format!(
            r#""max_tokens":1024,"messages":[{message}],"tools":[{{{tool},"input_schema":{schema}}}]"#
        ),
    };
    let request = format!("{{\"model\":{model},{rest}}}");
    let asked = HttpRequest::Ask {
        request: &Body::of_text(request.as_bytes()),
        streams: false,
    };
    let body = exchange(endpoint.clone(), llm, asked, llm.timeout, signals)?;
    Wire::new(llm)
        .parse(&body)
        .map(|_| ())
        .map_err(|none| Unanswered::Failed(format!("{}: {}", endpoint.shown(), none.why)))
}

/// One attempt. Returns the response, if it is one.
fn exchange(
    endpoint: Endpoint,
    llm: &Llm,
    exchange: HttpRequest<'_>,
    limit: Duration,
    signals: &Arc<Signals>,
) -> Result<Vec<u8>, Unanswered> {
    let received = Http::new(endpoint, llm, signals).attempt(exchange, Some(limit), &mut |_| {});
    match received.attempt {
        Attempt::Body { body, .. } => Ok(body),
        Attempt::Failed(failure) => Err(Unanswered::Failed(failure.why)),
        Attempt::Lost => Err(Unanswered::Failed("the answer got lost".to_owned())),
        Attempt::Stopped { stop, .. } => Err(Unanswered::Stopped(stop)),
    }
}

/// Reads `{"data": [{"id": …}]}`, which most servers send, or the same list under `models`.
fn read_listing(body: &[u8]) -> Result<Listing, String> {
    let no_list = || {
        format!(
            "that is no list of models: {}",
            words_in_place_of_answer(body)
        )
    };
    let text = readable(body)?;
    check_size(&text)?;
    let json: Value = serde_json::from_str(&text).map_err(|_| no_list())?;
    let list = [json.get("data"), json.get("models"), Some(&json)]
        .into_iter()
        .flatten()
        .find_map(Value::as_array);
    let mut listing = Listing::default();
    for item in list.ok_or_else(no_list)? {
        let Some(name) = ["id", "name", "model"]
            .into_iter()
            .find_map(|key| item.get(key)?.as_str())
        else {
            continue;
        };
        let is_shown = !name.is_empty()
            && name.len() <= LONGEST_NAME
            && name.trim() == name
            && !name.contains(is_unseen);
        if is_shown {
            listing.models.push(ListedModel {
                name: name.to_owned(),
                window: served_window(item),
                prices: prices(item),
            });
        } else {
            listing.left_out += 1;
        }
    }
    sort_by(&mut listing.models, |a, b| a.name.cmp(&b.name));
    listing.models.dedup_by(|a, b| a.name == b.name);
    Ok(listing)
}

/// `pricing: {prompt, completion}` is per token, in strings; `{input, output}` is per million.
fn prices(item: &Value) -> Option<(f64, f64)> {
    let pricing = item.get("pricing")?;
    let amount = |key: &str, factor: f64| {
        let value = pricing.get(key)?;
        let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
        // Without the last digits, which are those of the conversion.
        let amount = (number * factor * 1e6).round() / 1e6;
        (amount.is_finite() && amount >= 0.0).then_some(amount)
    };
    amount("prompt", 1e6)
        .zip(amount("completion", 1e6))
        .or_else(|| amount("input", 1.0).zip(amount("output", 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Listing {
        read_listing(body.as_bytes()).unwrap()
    }

    #[test]
    fn windows_and_prices_are_read_where_a_server_gives_them() {
        let listing = read(
            r#"{"data": [
                {"id": "b", "context_length": 128000, "pricing": {"prompt": "0.0000025", "completion": "0.00001"}},
                {"id": "a", "max_model_len": 4096},
                {"id": "c", "meta": {"n_ctx": 8192, "n_ctx_train": 131072}, "pricing": {"input": 1, "output": 2.5}},
                {"id": "d", "pricing": {"prompt": "-1", "completion": "-1"}},
                {"object": "nothing"}, 7
            ]}"#,
        );
        let model = |name: &str, window, prices| ListedModel {
            name: name.to_owned(),
            window,
            prices,
        };
        assert_eq!(
            listing.models,
            [
                model("a", Some(4096), None),
                model("b", Some(128_000), Some((2.5, 10.0))),
                model("c", Some(8192), Some((1.0, 2.5))),
                model("d", None, None),
            ]
        );
    }

    #[test]
    fn a_name_that_cannot_be_shown_is_left_out() {
        let names = [
            "a\nDELTA_BASE_URL=http://evil",
            "b\u{1b}[2J",
            "c\u{202e}",
            "",
            " d",
            "e\u{0}",
        ];
        let items: Vec<Value> = names
            .iter()
            .map(|it| serde_json::json!({"id": it}))
            .collect();
        let long = "x".repeat(LONGEST_NAME + 1);
        let others = [
            serde_json::json!({"id": long}),
            serde_json::json!({"name": "good one"}),
        ];
        let items = [items, others.to_vec()].concat();
        let body = serde_json::json!({"models": items});
        let listing = read(&body.to_string());
        assert_eq!(listing.left_out, 7);
        assert_eq!(listing.models.len(), 1);
        assert_eq!(listing.models[0].name, "good one");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for body in ["", "{", "{}", "\"x\"", "{\"data\": {}}", "<html>"] {
            read_listing(body.as_bytes()).unwrap_err();
        }
        let many = format!("[{}1]", "1,".repeat(1 << 18));
        read_listing(many.as_bytes()).unwrap_err();
    }
}
