//! `llm` in agent.yaml: which model is asked, and how it is reached.
//!
//! Unaware of API keys and of the environment.

use super::agent::{Fallback, LLM, Llm, ModelFailure, Streaming, TOTAL_TIMEOUT};
use super::context::command;
use crate::config::api::{Api, CacheTime, Header, HeaderValue, appended_path};
use crate::config::environment::{scheme_objection, without_secrets};
use crate::config::keys::{KeyValue, find, names};
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::argv_template::is_identifier;
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::Value;

const MOST_RETRIES: u64 = 1000;

/// Keys that mean the same, each with the API that it belongs to.
const SYNONYMS: [&[(&str, &[Api])]; 3] = [
    &[
        ("max_tokens", &[Api::Chat, Api::Messages]),
        ("max_completion_tokens", &[Api::Chat]),
        ("max_output_tokens", &[Api::Responses]),
    ],
    &[
        ("reasoning_effort", &[Api::Chat]),
        ("reasoning.effort", &[Api::Responses]),
        ("output_config.effort", &[Api::Messages]),
    ],
    &[
        ("response_format", &[Api::Chat]),
        ("text.format", &[Api::Responses]),
        ("output_config.format", &[Api::Messages]),
    ],
];

/// Why delta cannot honour a key that a service takes.
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
pub(super) fn read_llm(section: &Section<'_>, key: &str, out: &mut Diagnostics) -> Llm {
    let at = vec![Step::Key(key.to_owned())];
    let Some(value) = section.map.get("llm") else {
        out.error(
            vec![],
            "llm: missing; it names the model: llm: {model: …}, or leaves it to DELTA_MODEL: llm: {}",
        );
        return Llm::default();
    };
    let Value::Object(map) = value else {
        let found = describe_value(value);
        out.error(at, format!("{key}: expected a mapping, found {found}"));
        return Llm::default();
    };
    let section = Section::new(map, at.clone()).within("llm");
    let url = map.get("base_url").and_then(Value::as_str);
    if let Some(path) = url.and_then(appended_path) {
        let message =
            format!("llm: base_url: it ends in {path}, which is appended to it; omit that");
        out.error(section.path_to("base_url"), message);
    }
    read_model(&section, out)
}

/// The key that one under `llm` probably was meant to be, which goes into the requests as it is.
fn misspelt_key(name: &str) -> Option<&'static str> {
    // The first is OpenRouter's.
    if name == "models" || find(LLM, name).is_some() {
        return None;
    }
    let near = nearest(name, names(LLM).into_iter().chain(["temperature"]));
    // A longer one is another word.
    near.filter(|near| *near != name && name.len() <= near.len() + 1)
}

/// The warning about such a key.
pub(crate) fn misspelt_warning(name: &str) -> Option<String> {
    let meant = misspelt_key(name)?;
    Some(format!(
        "llm: '{name}' goes into each request as it is; did you mean '{meant}'?"
    ))
}

/// The settings of a model, from an agent's file or a flow's.
pub(crate) fn read_model(llm: &Section<'_>, out: &mut Diagnostics) -> Llm {
    let map = llm.map;
    let mut read = Llm::default();
    read.read_keys(llm, out);
    read.max_retries = read.max_retries.min(MOST_RETRIES);
    read.total_timeout = KeyValue::read(llm, &TOTAL_TIMEOUT, out);
    let is_program = map.contains_key("command");
    if is_program {
        read.command = command(llm, out);
    }
    if read
        .model
        .as_ref()
        .is_some_and(|model| model.trim().is_empty())
    {
        out.error(llm.path_to("model"), "llm: model: it is empty; name one");
    }
    if let Some(url) = &read.base_url
        && let Some(why) = scheme_objection(url)
    {
        let message = format!("llm: base_url: '{}': {why}", without_secrets(url));
        out.error(llm.path_to("base_url"), message);
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
            out.error(llm.path_to(key), format!("llm: {key}: {reason}"));
        }
    }
    let api = llm.read_choice("api", &Api::ALL, out).unwrap_or_default();
    let stream = read_streaming(llm, out);
    if stream == Streaming::Always && is_program {
        out.error(
            llm.path_to("stream"),
            "llm: stream: a program's answer is read whole; leave it out",
        );
    }
    check_parameters(llm, api, out);
    let is_background = refuse_parameters(llm, api, out);
    if is_background && stream == Streaming::Always {
        out.error(
            llm.path_to("stream"),
            "llm: stream: an answer in the background is polled; leave it out",
        );
    }
    let parameters = map.iter().filter(|(key, _)| find(LLM, key).is_none());
    Llm {
        parameters: parameters
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        api,
        headers: headers(llm, out),
        stream: match is_program || is_background {
            true => Streaming::Never,
            false => stream,
        },
        cache: llm
            .read_choice("cache", &CacheTime::ALL, out)
            .unwrap_or_default(),
        fallback: read_fallback(llm, out),
        ..read
    }
}

fn read_streaming(llm: &Section<'_>, out: &mut Diagnostics) -> Streaming {
    let pick = |value: &Value| match value {
        Value::Bool(true) => Some(Streaming::Always),
        Value::Bool(false) => Some(Streaming::Never),
        value => (value == "auto").then_some(Streaming::Auto),
    };
    let read = llm.read("stream", "true, false or auto", pick, out);
    read.unwrap_or_default()
}

/// The models that are asked in place of this one.
fn read_fallback(llm: &Section<'_>, out: &mut Diagnostics) -> Vec<Fallback> {
    const INHERITED: [&str; 3] = ["timeout_ms", "max_retries", "stream"];
    let mut chain: Vec<Fallback> = Vec::new();
    let list = llm.read_list("fallback", out).into_iter().flatten();
    for (index, entry) in list.enumerate() {
        let at = [llm.path_to("fallback"), vec![Step::Item(index)]].concat();
        let Value::Object(given) = entry else {
            let found = describe_value(entry);
            out.error(
                at,
                format!("llm: fallback: expected a mapping, found {found}"),
            );
            continue;
        };
        let mut map = given.clone();
        let after = map.shift_remove("after");
        let key = Section::new(given, at.clone())
            .within("llm: fallback")
            .read_text("key", out)
            .map(str::to_owned);
        map.shift_remove("key");
        if key.as_deref().is_some_and(|name| !is_identifier(name)) {
            let message =
                "llm: fallback: key: expected the name of a variable, which holds the key";
            out.error(
                [at.clone(), vec![Step::Key("key".to_owned())]].concat(),
                message,
            );
        }
        let is_program = map.contains_key("command");
        for key in INHERITED
            .into_iter()
            .filter(|key| !(is_program && *key == "stream"))
        {
            if let (false, Some(value)) = (map.contains_key(key), llm.map.get(key)) {
                map.insert(key.to_owned(), value.clone());
            }
        }
        if map.shift_remove("fallback").is_some() {
            let message = "llm: fallback: an entry has none of its own; add another to the list";
            out.error(at.clone(), message);
        }
        let mut read = read_model(&Section::new(&map, at.clone()).within("llm: fallback"), out);
        if !read.has_model() {
            out.error(
                at.clone(),
                "llm: fallback: an entry needs model: or command:",
            );
        }
        if read.command.is_none() && read.base_url.is_none() {
            read.base_url = Some(read.api.public_endpoint().to_owned());
        }
        let after = read_after(after.as_ref(), &at, out);
        let is_program = |llm: &Value| llm.get("command").is_some();
        let first_is_program = llm.map.contains_key("command");
        let programs_before = first_is_program
            && llm.map["fallback"]
                .as_array()
                .is_some_and(|all| all[..index].iter().all(is_program));
        if after.is_empty() || programs_before && after == [ModelFailure::Quota] {
            let message = "llm: fallback: this entry is never asked: no model before it fails in a way that after lists";
            out.warn(at, message);
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
fn read_after(value: Option<&Value>, at: &[Step], out: &mut Diagnostics) -> Vec<ModelFailure> {
    let default = vec![ModelFailure::Unavailable, ModelFailure::Quota];
    let Some(value) = value else { return default };
    let words = value.as_array().and_then(|list| {
        let words = list.iter().map(|word| ModelFailure::parse(word.as_str()?));
        words.collect::<Option<Vec<_>>>()
    });
    words.unwrap_or_else(|| {
        let known = ModelFailure::ALL.map(|(name, _)| name).join(", ");
        let at = [at.to_vec(), vec![Step::Key("after".to_owned())]].concat();
        out.error(
            at,
            format!("llm: fallback: after: expected a list of these: {known}"),
        );
        default
    })
}

/// Refuses parameters that delta cannot honour. True if answers are made in the background.
fn refuse_parameters(llm: &Section<'_>, api: Api, out: &mut Diagnostics) -> bool {
    for (key, value) in llm.map.iter().filter(|(_, value)| !value.is_null()) {
        if let Some(why) = objection(api, key, value) {
            out.error(llm.path_to(key), format!("llm: {key}: {why}; leave it out"));
        }
    }
    let is_true = |key: &str| llm.map.get(key) == Some(&Value::Bool(true));
    let is_background = api == Api::Responses && is_true("background");
    if is_background && !is_true("store") {
        let message = "llm: background: the service loses such an answer without store: true; \
                       add that, or leave background out";
        out.error(llm.path_to("background"), message);
    }
    is_background
}

/// Warns of parameters that belong to another API, and of values that the service refuses.
fn check_parameters(llm: &Section<'_>, api: Api, out: &mut Diagnostics) {
    let has = |key: &str| {
        let mut at = key.split('.');
        let first = at.next().and_then(|first| llm.map.get(first));
        at.try_fold(first, |value, key| Some(value?.get(key)))
            .flatten()
            .is_some()
    };
    for group in SYNONYMS {
        let right = group.iter().find(|(_, apis)| apis.contains(&api));
        let right = right.map_or("", |(key, _)| key);
        for (key, apis) in group {
            // Servers other than OpenAI's have a key of this name for chat.
            let is_their_own =
                *key == "reasoning.effort" && api == Api::Chat && llm.map.contains_key("base_url");
            if !apis.contains(&api) && has(key) && !is_their_own {
                let (of, name) = (apis[0].name(), api.name());
                let message =
                    format!("llm: {key}: it belongs to api: {of}; for api: {name} it is {right}");
                let first = key.split('.').next().unwrap_or(key);
                out.warn(llm.path_to(first), message);
            }
        }
    }
    let number = |at: &str| llm.map.get("thinking")?.get(at)?.as_u64();
    if api == Api::Messages
        && let Some(budget) = number("budget_tokens")
    {
        let most = llm.map.get("max_tokens").and_then(Value::as_u64);
        let most = most.unwrap_or(MESSAGES_MAX_TOKENS);
        if budget < 1024 || budget >= most {
            let message = format!(
                "llm: thinking: budget_tokens is {budget}, and must be at least 1024 and less than max_tokens, {most}"
            );
            out.warn(llm.path_to("thinking"), message);
        }
    }
    let tokens = llm.map.get("max_output_tokens").and_then(Value::as_u64);
    if api == Api::Responses && tokens.is_some_and(|tokens| tokens < 16) {
        let message = "llm: max_output_tokens: the service takes no less than 16";
        out.warn(llm.path_to("max_output_tokens"), message);
    }
}

fn headers(llm: &Section<'_>, out: &mut Diagnostics) -> Vec<Header> {
    let Some(map) = llm.read_mapping("headers", out) else {
        return Vec::new();
    };
    let mut headers = Vec::with_capacity(map.len());
    for (name, value) in map {
        let at = [llm.path_to("headers"), vec![Step::Key(name.clone())]].concat();
        let value = match value {
            Value::String(text) if is_header_value(text) => HeaderValue::Text(text.clone()),
            Value::Number(number) => HeaderValue::Text(number.to_string()),
            Value::Object(from) => match (from.len(), from.get("env").and_then(Value::as_str)) {
                (1, Some(variable)) if is_identifier(variable) => {
                    HeaderValue::Variable(variable.to_owned())
                }
                _ => {
                    out.error(
                        at,
                        format!("llm: headers: {name}: expected a text or {{env: NAME}}"),
                    );
                    continue;
                }
            },
            other => {
                let found = describe_value(other);
                let message = format!(
                    "llm: headers: {name}: expected a text or {{env: NAME}}, found {found}"
                );
                out.error(at, message);
                continue;
            }
        };
        let is_ours = [
            "content-length",
            "content-type",
            "transfer-encoding",
            "host",
            "connection",
        ];
        let lower = name.to_ascii_lowercase();
        if ureq::http::HeaderName::from_bytes(lower.as_bytes()).is_err() {
            out.error(
                at,
                format!("llm: headers: '{name}' is not the name of a header"),
            );
        } else if is_ours.contains(&lower.as_str()) {
            out.error(at, format!("llm: headers: {name}: delta sets it itself"));
        } else {
            headers.push(Header { name: lower, value });
        }
    }
    headers
}

fn is_header_value(text: &str) -> bool {
    ureq::http::HeaderValue::from_str(text).is_ok()
}

/// Of Messages, which demands a limit: the one if none is given.
pub(crate) const MESSAGES_MAX_TOKENS: u64 = 32_000;
