//! The effective configuration, for the record: tools expanded, and only the names of values that
//! may be secret.

use super::agent::{Agent, ChainSource, HookEvent, Llm, Source};
use super::pricing::Budget;
use crate::config::api::{Api, Header, HeaderValue};
use crate::config::tool::definition::Word;
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
    let hooks: Vec<Value> = agent
        .hooks
        .iter()
        .map(|hook| {
            let event = HookEvent::name(hook.event);
            json!({"event": event, "command": words(&hook.command), "timeout_ms": hook.timeout.as_millis() as u64})
        })
        .collect();
    let mut config = json!({
        "name": agent.name,
        "version": agent.version,
        "description": agent.description,
        "llm": llm(&agent.llm),
    });
    for (key, value) in agent.record_keys() {
        config[key] = value;
    }
    config["max_iterations"] = max_iterations.into();
    let separate = if agent.context.separate {
        "separate"
    } else {
        "merged"
    };
    config["tools"] = tools(agent);
    config["context"] = json!({"sources": sources, "system_messages": separate});
    config["hooks"] = hooks.into();
    let acceptance = &agent.acceptance;
    if let Some(schema) = &acceptance.schema {
        config["output_schema"] = json!(schema.name);
    }
    if !acceptance.commands.is_empty() {
        config["accept"] = acceptance.commands_json();
    }
    if acceptance.has_checks() {
        config["repairs"] = acceptance.repairs.into();
    }
    if let Some(pricing) = agent.prices.of_model(agent.llm.model.as_deref()) {
        config["pricing"] = json!(pricing);
    }
    for (index, entry) in agent.llm.fallback.iter().enumerate() {
        if let Some(pricing) = agent.prices.of_named(entry.llm.model.as_deref()) {
            config["llm"]["fallback"][index]["pricing"] = json!(pricing);
        }
    }
    if let Some(deadline) = deadline {
        config["deadline"] = json!(deadline.to_string());
    }
    if budget.has_limit() {
        config["budget"] = json!(budget);
    }
    json::text(&config).into_bytes()
}

fn llm(from: &Llm) -> Map<String, Value> {
    let mut llm = from.record_keys();
    llm.extend(from.parameters.iter().cloned());
    let api = from.api;
    llm.insert("api".to_owned(), api.name().into());
    if !from.api_choice.endpoint.is_empty() {
        let endpoint = from.api_choice.endpoint.as_str();
        llm.insert("endpoint".to_owned(), endpoint.into());
    }
    if from.streams() {
        let total = from.total_timeout.as_millis() as u64;
        llm.insert("stream".to_owned(), true.into());
        llm.insert("total_timeout_ms".to_owned(), total.into());
    }
    if api == Api::Messages {
        llm.insert("cache".to_owned(), from.cache.name().into());
    }
    if !from.headers.is_empty() {
        llm.insert("headers".to_owned(), headers(&from.headers));
    }
    if let Some(command) = &from.command {
        llm.insert("command".to_owned(), words(command));
    }
    let entries = from.fallback.iter().map(|entry| {
        let mut one = self::llm(&entry.llm);
        one.insert("after".to_owned(), json!(entry.after));
        if let Some(key) = &entry.key {
            one.insert("key".to_owned(), json!(key));
        }
        Value::Object(one)
    });
    match from.chain {
        // Later starts leave them out, too.
        ChainSource::LeftOut => llm.insert("fallback".to_owned(), false.into()),
        _ if from.fallback.is_empty() => None,
        _ => llm.insert("fallback".to_owned(), entries.collect()),
    };
    llm
}

fn tools(agent: &Agent) -> Value {
    let mut rendered = load::render(&agent.tools)["tools"].take();
    for tool in rendered.as_array_mut().into_iter().flatten() {
        if let Some(env) = tool.get_mut("env") {
            let names = env
                .as_object()
                .map(|env| env.keys().cloned().collect::<Vec<_>>());
            *env = json!(names);
        }
    }
    rendered
}

/// Of a value that is a secret, only the variable.
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

fn words(words: &[Word]) -> Value {
    words
        .iter()
        .map(|word| Value::from(word.written(|_| "")))
        .collect()
}

fn source(source: &Source) -> Value {
    let missing = |optional: &bool| if *optional { "skip" } else { "error" };
    match source {
        Source::File { id, path, optional } => {
            json!({"type": "file", "id": id, "path": path.written(|_| ""), "on_missing": missing(optional)})
        }
        Source::Upward {
            id,
            name,
            max_bytes,
            optional,
        } => json!({
            "type": "file",
            "id": id,
            "path": name,
            "search": "up",
            "max_bytes": max_bytes,
            "on_missing": missing(optional),
        }),
        Source::Computed {
            id,
            command,
            timeout,
            output,
            optional,
            once,
        } => json!({
            "type": "computed_file",
            "id": id,
            "generator": {"command": words(command), "timeout_ms": timeout.as_millis() as u64},
            "output_path": output.written(|_| ""),
            "on_missing": missing(optional),
            "refresh": if *once { "once" } else { "every" },
        }),
        Source::Journal { max_iterations } => {
            json!({"type": "journal", "max_iterations": max_iterations})
        }
    }
}
