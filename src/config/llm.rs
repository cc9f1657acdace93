//! `llm` in agent.yaml: which model is asked, and how it is reached.
//!
//! Unaware of API keys and of the environment.

use super::agent::{Fallback, LLM, Llm, ModelFailure, Streaming, TOTAL_TIMEOUT};
use super::context::command;
use crate::config::api::{
    API_WORDS, Api, ApiChoice, CacheTime, Header, HeaderValue, appended_path, foreign_parameters,
};
use crate::config::environment::{Environment, choose_by_host, scheme_objection, without_secrets};
use crate::config::keys::{KeyValue, find, names};
use crate::config::section::{Section, describe_value};
use crate::config::tool::argv_template::is_identifier;
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::Value;
use std::path::Path;

const MOST_RETRIES: u64 = 1000;

/// The reason why delta cannot honour a key that a service takes.
fn objection(api: Api, key: &str, value: &Value) -> Option<&'static str> {
    use Api::{Chat, Messages, Responses};
    let is_one = value.as_f64().is_some_and(|number| number <= 1.0);
    Some(match (api, key) {
        (Chat, "n") if is_one => return None,
        (Chat | Responses, "n") => "one answer is read, and all are paid for",
        (Responses, "previous_response_id" | "conversation") | (Messages, "thread") => {
            "delta sends the whole conversation with each request"
        }
        (Responses | Messages, "context_management") | (Messages, "compaction") => {
            "the service would change what the model reads, and no record would show it"
        }
        (Messages, "fallbacks") => {
            "another model's answer would be recorded and priced as this one's"
        }
        (Messages, "container") => "it has state that no record would show",
        _ => return None,
    })
}

/// `key` is its place in the file.
pub(super) fn read_llm(section: &Section, key: &str, home: &Path) -> Llm {
    let at = vec![Step::Key(key.to_owned())];
    let map = match section.map.get("llm") {
        Some(Value::Object(map)) => map,
        Some(value) => {
            let found = describe_value(value);
            section.error_at(at, format!("{key}: expected a mapping, found {found}"));
            return Llm::default();
        }
        None => {
            let message = "llm: missing; it names the model: llm: {model: …}, or leaves it to DELTA_MODEL: llm: {}";
            section.error("", message);
            return Llm::default();
        }
    };
    let section = section.inner(map, at).within("llm");
    let url = map.get("base_url").and_then(Value::as_str);
    if let Some(path) = url.and_then(appended_path) {
        let message =
            format!("llm: base_url: it ends in {path}, which is appended to it; omit that");
        section.error("base_url", message);
    }
    let mut llm = read_model(&section);
    if llm.api_choice.given.is_none() {
        // A fault of the environment is reported when a run reads it.
        let environment = Environment::read(home, None, None).map(|(environment, _)| environment);
        if environment.unwrap_or_default().choose_api(&mut llm).is_ok() {
            check_api(&section, &llm);
        }
    }
    llm
}

/// The warning about a key under `llm` that probably was meant to be another one: it goes into the requests as it is.
pub(crate) fn misspelt_warning(name: &str) -> Option<String> {
    // The first is OpenRouter's.
    if name == "models" || find(LLM, name).is_some() {
        return None;
    }
    let near = nearest(name, names(LLM).into_iter().chain(["temperature"]));
    // A longer one is another word.
    let meant = near.filter(|near| *near != name && name.len() <= near.len() + 1)?;
    Some(format!(
        "llm: '{name}' goes into each request as it is; did you mean '{meant}'?"
    ))
}

/// The settings of a model, from an agent's file or a flow's.
pub(crate) fn read_model(llm: &Section) -> Llm {
    let map = llm.map;
    let mut read = Llm::default();
    read.read_keys(llm);
    read.max_retries = read.max_retries.min(MOST_RETRIES);
    read.total_timeout = KeyValue::read(llm, &TOTAL_TIMEOUT);
    let is_program = map.contains_key("command");
    if is_program {
        read.command = command(llm);
    }
    let model = read.model.as_deref();
    if model.is_some_and(|model| model.trim().is_empty()) {
        llm.error("model", "llm: model: it is empty; name one");
    }
    if let Some(url) = &read.base_url
        && let Some(why) = scheme_objection(url)
    {
        let message = format!("llm: base_url: '{}': {why}", without_secrets(url));
        llm.error("base_url", message);
    }
    let reserved = [
        (
            "api_key",
            "keys belong in the environment, as DELTA_API_KEY",
        ),
        ("messages", "context.yaml defines what the model sees"),
        ("tools", "tools belong at the top of the file"),
    ];
    for (key, reason) in reserved {
        if map.contains_key(key) {
            llm.error(key, format!("llm: {key}: {reason}"));
        }
    }
    let given = read_api(llm);
    let stream = read_streaming(llm);
    if stream == Streaming::Always && is_program {
        let message = "llm: stream: a program's answer is read whole; leave it out";
        llm.error("stream", message);
    }
    let parameters = map.iter().filter(|(key, _)| find(LLM, key).is_none());
    let read = Llm {
        parameters: parameters
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        api: given.unwrap_or_default(),
        api_choice: ApiChoice {
            given,
            ..ApiChoice::default()
        },
        headers: headers(llm),
        stream: if is_program { Streaming::Never } else { stream },
        cache: llm
            .read_choice("cache", &CacheTime::ALL)
            .unwrap_or_default(),
        fallback: read_fallback(llm),
        ..read
    };
    if given.is_some() {
        check_api(llm, &read);
    }
    read
}

/// The word of `api`; none: auto.
fn read_api(llm: &Section) -> Option<Api> {
    let expected = format!("one of {}", API_WORDS.join(", "));
    let word = |value: &Value| API_WORDS.into_iter().find(|word| value == word);
    Api::parse(llm.read("api", &expected, word)?)
}

fn read_streaming(llm: &Section) -> Streaming {
    let pick = |value: &Value| match value {
        Value::Bool(true) => Some(Streaming::Always),
        Value::Bool(false) => Some(Streaming::Never),
        value => (value == "auto").then_some(Streaming::Auto),
    };
    let read = llm.read("stream", "true, false or auto", pick);
    read.unwrap_or_default()
}

/// The models that are asked in place of this one.
fn read_fallback(llm: &Section) -> Vec<Fallback> {
    const INHERITED: [&str; 3] = ["timeout_ms", "max_retries", "stream"];
    let mut chain: Vec<Fallback> = Vec::new();
    for (index, own) in llm.read_sections("fallback") {
        let own = own.within("llm: fallback");
        let mut map = own.map.clone();
        for key in ["after", "key", "fallback"] {
            map.shift_remove(key);
        }
        let key = own.read_text("key").map(str::to_owned);
        if key.as_deref().is_some_and(|name| !is_identifier(name)) {
            let message =
                "llm: fallback: key: expected the name of a variable, which holds the key";
            own.error("key", message);
        }
        let is_program = map.contains_key("command");
        let inherited = INHERITED.into_iter();
        for key in inherited.filter(|key| !(is_program && *key == "stream")) {
            if let (false, Some(value)) = (map.contains_key(key), llm.map.get(key)) {
                map.insert(key.to_owned(), value.clone());
            }
        }
        if own.has("fallback") {
            let message = "llm: fallback: an entry has none of its own; add another to the list";
            own.error("", message);
        }
        let section = own.inner(&map, own.path_to("")).within("llm: fallback");
        let mut read = read_model(&section);
        if !read.has_model() {
            let message = "llm: fallback: an entry needs model: or command:";
            own.error("", message);
        }
        if read.command.is_none() && read.base_url.is_none() {
            read.base_url = Some(read.api.public_endpoint().to_owned());
        }
        if read.api_choice.given.is_none() {
            choose_by_host(&mut read);
            check_api(&section, &read);
        }
        let after = read_after(&own);
        let is_program = |llm: &Value| llm.get("command").is_some();
        let first_is_program = llm.has("command");
        let programs_before = first_is_program
            && llm.map["fallback"]
                .as_array()
                .is_some_and(|all| all[..index].iter().all(is_program));
        if after.is_empty() || programs_before && after == [ModelFailure::Quota] {
            let message = "llm: fallback: this entry is never asked: no model before it fails in a way that after lists";
            own.warn("", message);
        }
        chain.push(Fallback {
            llm: read,
            key,
            after,
        });
    }
    chain
}

/// The failures after which a model is asked.
fn read_after(entry: &Section) -> Vec<ModelFailure> {
    let words = entry.map.get("after").map(|value| {
        let words = value
            .as_array()?
            .iter()
            .map(|word| ModelFailure::parse(word.as_str()?));
        words.collect::<Option<Vec<_>>>()
    });
    if let Some(Some(words)) = words {
        return words;
    }
    if words.is_some() {
        let known = ModelFailure::ALL.map(|(name, _)| name).join(", ");
        let message = format!("llm: fallback: after: expected a list of these: {known}");
        entry.error("after", message);
    }
    vec![ModelFailure::Unavailable, ModelFailure::Quota]
}

/// Refuses parameters that delta cannot honour with the API of a model, and warns of those that another API has.
fn check_api(llm: &Section, read: &Llm) {
    for (is_error, key, message) in misfits(read) {
        if is_error {
            llm.error(&key, message);
        } else {
            llm.warn(&key, message);
        }
    }
}

/// The parameters of a model that do not fit its API: true for an error, the key, and the message.
pub(crate) fn misfits(llm: &Llm) -> Vec<(bool, String, String)> {
    let api = llm.api;
    let mut found = Vec::new();
    let mut add = |is_error, key: &str, why: String| {
        found.push((is_error, key.to_owned(), format!("llm: {why}")));
    };
    for (key, apis, own) in foreign_parameters(api, |key| llm.has_parameter(key)) {
        // Other servers have keys of such names.
        let is_shared = own.is_none() || key == "reasoning.effort" && api == Api::Chat;
        let is_theirs = is_shared && llm.base_url.is_some();
        if is_theirs || objection(api, key, &Value::Null).is_some() {
            continue;
        }
        let (of, name) = (apis[0].name(), api.name());
        let instead = own.map_or_else(String::new, |own| format!("; for api: {name} it is {own}"));
        let first = key.split('.').next().unwrap_or(key);
        let why = format!("{key}: it belongs to api: {of}{instead}");
        add(false, first, why);
    }
    let number = |key: &str| llm.parameter(key).and_then(Value::as_u64);
    if api == Api::Messages
        && let Some(budget) = number("thinking.budget_tokens")
    {
        let most = number("max_tokens").unwrap_or(MESSAGES_MAX_TOKENS);
        if budget < 1024 || budget >= most {
            let why = format!(
                "thinking: budget_tokens is {budget}, and must be at least 1024 and less than max_tokens, {most}"
            );
            add(false, "thinking", why);
        }
    }
    if api == Api::Responses && number("max_output_tokens").is_some_and(|tokens| tokens < 16) {
        let why = "max_output_tokens: the service takes no less than 16";
        add(false, "max_output_tokens", why.to_owned());
    }
    for (key, value) in llm.parameters.iter().filter(|(_, value)| !value.is_null()) {
        if let Some(why) = objection(api, key, value) {
            add(true, key, format!("{key}: {why}; leave it out"));
        }
    }
    if llm.is_background() && llm.parameter("store") != Some(&Value::Bool(true)) {
        let why = "background: the service loses such an answer without store: true; \
                   add that, or leave background out";
        add(true, "background", why.to_owned());
    }
    if llm.is_background() && llm.stream == Streaming::Always {
        let why = "stream: an answer in the background is polled; leave it out";
        add(true, "stream", why.to_owned());
    }
    found
}

fn headers(llm: &Section) -> Vec<Header> {
    const OURS: [&str; 5] = [
        "content-length",
        "content-type",
        "transfer-encoding",
        "host",
        "connection",
    ];
    let mut headers = Vec::new();
    for (name, value) in llm.read_mapping("headers").into_iter().flatten() {
        let at = [llm.path_to("headers"), vec![Step::Key(name.clone())]].concat();
        let lower = name.to_ascii_lowercase();
        let value = match value {
            Value::String(text) if is_header_value(text) => Ok(HeaderValue::Text(text.clone())),
            Value::Number(number) => Ok(HeaderValue::Text(number.to_string())),
            Value::Object(from) => match (from.len(), from.get("env").and_then(Value::as_str)) {
                (1, Some(variable)) if is_identifier(variable) => {
                    Ok(HeaderValue::Variable(variable.to_owned()))
                }
                _ => Err(String::new()),
            },
            other => Err(format!(", found {}", describe_value(other))),
        };
        let value = match value {
            Err(found) => Err(format!("{name}: expected a text or {{env: NAME}}{found}")),
            Ok(_) if ureq::http::HeaderName::from_bytes(lower.as_bytes()).is_err() => {
                Err(format!("'{name}' is not the name of a header"))
            }
            Ok(_) if OURS.contains(&lower.as_str()) => Err(format!("{name}: delta sets it itself")),
            value => value,
        };
        match value {
            Ok(value) => headers.push(Header { name: lower, value }),
            Err(why) => llm.error_at(at, format!("llm: headers: {why}")),
        }
    }
    headers
}

fn is_header_value(text: &str) -> bool {
    ureq::http::HeaderValue::from_str(text).is_ok()
}

/// The default limit of Messages, which demands one.
pub(crate) const MESSAGES_MAX_TOKENS: u64 = 32_000;
