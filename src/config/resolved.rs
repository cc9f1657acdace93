//! The effective configuration, for the record: tools expanded, and only the names of values that
//! may be secret.

use super::agent::{Agent, ChainSource, Hook, Llm, Source};
use super::pricing::Budget;
use crate::config::api::{Api, Header, HeaderValue};
use crate::config::keys::KeyValue;
use crate::config::tool::load;
use crate::text::json;
use crate::text::timestamp::Timestamp;
use serde_json::{Map, Value, json};

/// An agent as JSON, with the limits of one start of the engine.
pub(crate) fn render_resolved(
    agent: &Agent,
    max_iterations: u64,
    budget: &Budget,
    deadline: Option<Timestamp>,
) -> Vec<u8> {
    let sources: Vec<Value> = agent.context.sources.iter().map(source).collect();
    let hook = |hook: &Hook| {
        json!({
            "event": hook.event.name(),
            "command": hook.command.record(),
            "timeout_ms": hook.timeout.record(),
        })
    };
    let hooks: Vec<Value> = agent.hooks.iter().map(hook).collect();
    let messages = if agent.context.separate {
        "separate"
    } else {
        "merged"
    };
    let mut config = Map::new();
    let mut put = |key: &str, value: Value| config.insert(key.to_owned(), value);
    put("name", json!(agent.name));
    put("version", json!(agent.version));
    put("description", json!(agent.description));
    put("llm", llm(&agent.llm).into());
    for (key, value) in agent.record_keys() {
        put(&key, value);
    }
    put("max_iterations", max_iterations.into());
    put("tools", tools(agent));
    put(
        "context",
        json!({"sources": sources, "system_messages": messages}),
    );
    put("hooks", hooks.into());
    let acceptance = &agent.acceptance;
    let has_commands = !acceptance.commands.is_empty();
    let pricing = agent.prices.of_model(agent.llm.model.as_deref());
    config.extend(json::without_nulls(json!({
        "output_schema": acceptance.schema.as_ref().map(|schema| &schema.name),
        "accept": has_commands.then(|| acceptance.commands_json()),
        "repairs": acceptance.has_checks().then_some(acceptance.repairs),
        "pricing": pricing.map(|it| it.record_keys()),
        "deadline": deadline.map(|deadline| deadline.to_string()),
        "budget": budget.has_limit().then(|| budget.record_keys()),
    })));
    for (index, entry) in agent.llm.fallback.iter().enumerate() {
        if let Some(pricing) = agent.prices.of_named(entry.llm.model.as_deref()) {
            config["llm"]["fallback"][index]["pricing"] = pricing.record_keys().into();
        }
    }
    json::text(&config).into_bytes()
}

fn llm(from: &Llm) -> Map<String, Value> {
    let mut llm = from.record_keys();
    llm.extend(from.parameters.iter().cloned());
    let endpoint = &from.api_choice.endpoint;
    let entries = from.fallback.iter().map(|entry| {
        let mut one = self::llm(&entry.llm);
        one.extend(json::without_nulls(
            json!({"after": entry.after, "key": entry.key}),
        ));
        Value::Object(one)
    });
    let fallback = match from.chain {
        // Later starts leave them out, too.
        ChainSource::LeftOut => false.into(),
        _ if from.fallback.is_empty() => Value::Null,
        _ => entries.collect(),
    };
    llm.extend(json::without_nulls(json!({
        "api": from.api.name(),
        "endpoint": Some(endpoint).filter(|endpoint| !endpoint.is_empty()),
        "stream": from.streams().then_some(true),
        "total_timeout_ms": from.streams().then(|| from.total_timeout.record()),
        "cache": (from.api == Api::Messages).then(|| from.cache.name()),
        "headers": (!from.headers.is_empty()).then(|| headers(&from.headers)),
        "command": from.command.as_ref().map(KeyValue::record),
        "fallback": fallback,
    })));
    llm
}

fn tools(agent: &Agent) -> Value {
    let mut rendered = load::render(&agent.tools)["tools"].take();
    for tool in rendered.as_array_mut().into_iter().flatten() {
        if let Some(env) = tool.get_mut("env") {
            let names = env.as_object().map(|env| env.keys().collect::<Vec<_>>());
            *env = json!(names);
        }
    }
    rendered
}

/// Headers; of a value that is a secret, only the variable.
fn headers(headers: &[Header]) -> Value {
    let headers = headers.iter().map(|header| {
        let value = match &header.value {
            HeaderValue::Text(text) => json!(text),
            HeaderValue::Variable(name) => json!({"env": name}),
        };
        (header.name.clone(), value)
    });
    Value::Object(headers.collect())
}

fn source(source: &Source) -> Value {
    let missing = |optional: &bool| if *optional { "skip" } else { "error" };
    match source {
        Source::File { id, path, optional } => {
            json!({"type": "file", "id": id, "path": path.written(|_| ""), "on_missing": missing(optional)})
        }
        Source::Upward(source) => json!({
            "type": "file",
            "id": source.id,
            "path": source.name,
            "search": "up",
            "max_bytes": source.max_bytes,
            "on_missing": missing(&source.optional),
        }),
        Source::Computed(source) => json!({
            "type": "computed_file",
            "id": source.id,
            "generator": {
                "command": source.command.record(),
                "timeout_ms": source.timeout.record(),
            },
            "output_path": source.output.written(|_| ""),
            "on_missing": missing(&source.optional),
            "refresh": if source.once { "once" } else { "every" },
        }),
        Source::Journal { max_iterations } => {
            json!({"type": "journal", "max_iterations": max_iterations})
        }
    }
}
