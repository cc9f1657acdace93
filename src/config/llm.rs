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
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::argv_template::is_identifier;
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::Value;
use std::path::Path;

const MOST_RETRIES: u64 = 1000;

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
pub(super) fn read_llm(
    section: &Section<'_>,
    key: &str,
    home: &Path,
    out: &mut Diagnostics,
) -> Llm {
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
    let mut llm = read_model(&section, out);
    if llm.api_choice.given.is_none() {
        // A fault of the environment is reported when a run reads it.
        let environment = Environment::read(home, None, None).map(|(environment, _)| environment);
        if environment.unwrap_or_default().choose_api(&mut llm).is_ok() {
            check_api(&section, &llm, out);
        }
    }
    llm
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
    let given = read_api(llm, out);
    let stream = read_streaming(llm, out);
    if stream == Streaming::Always && is_program {
        out.error(
            llm.path_to("stream"),
            "llm: stream: a program's answer is read whole; leave it out",
        );
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
        headers: headers(llm, out),
        stream: match is_program {
            true => Streaming::Never,
            false => stream,
        },
        cache: llm
            .read_choice("cache", &CacheTime::ALL, out)
            .unwrap_or_default(),
        fallback: read_fallback(llm, out),
        ..read
    };
    if given.is_some() {
        check_api(llm, &read, out);
    }
    read
}

/// The word of `api`; none: auto.
fn read_api(llm: &Section<'_>, out: &mut Diagnostics) -> Option<Api> {
    let expected = format!("one of {}", API_WORDS.join(", "));
    let word = |value: &Value| API_WORDS.into_iter().find(|word| value == word);
    Api::parse(llm.read("api", &expected, word, out)?)
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
        if read.api_choice.given.is_none() {
            choose_by_host(&mut read);
            let section = Section::new(&map, at.clone()).within("llm: fallback");
            check_api(&section, &read, out);
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

/// Refuses parameters that delta cannot honour with the API of a model, and warns of those that another API has.
fn check_api(llm: &Section<'_>, read: &Llm, out: &mut Diagnostics) {
    for (is_error, key, message) in misfits(read) {
        let at = llm.path_to(&key);
        if is_error {
            out.error(at, message);
        } else {
            out.warn(at, message);
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
        add(
            false,
            first,
            format!("{key}: it belongs to api: {of}{instead}"),
        );
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
