//! Attributes of spans, and those that describe a request to a model.

use crate::text::json;
use serde_json::{Map, Value, json};

/// Keys with values, in the encoding of OTLP.
#[derive(Default)]
pub(super) struct Attributes(pub Vec<Value>);

impl Attributes {
    fn put(&mut self, key: &str, value: Value) {
        self.0.push(json!({"key": key, "value": value}));
    }

    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.put(key, json!({"stringValue": text}));
    }

    pub(super) fn maybe_text(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(key, text);
        }
    }

    pub(super) fn texts(&mut self, key: &str, texts: &[&String]) {
        let values: Vec<Value> = texts
            .iter()
            .map(|text| json!({"stringValue": text}))
            .collect();
        self.put(key, json!({"arrayValue": {"values": values}}));
    }

    /// An integer of 64 bits with a sign.
    pub(super) fn number(&mut self, key: &str, number: Option<u64>) {
        if let Some(number) = number {
            let number = number.min(i64::MAX as u64);
            self.put(key, json!({"intValue": number.to_string()}));
        }
    }

    fn real(&mut self, key: &str, number: Option<f64>) {
        if let Some(number) = number {
            self.put(key, json!({"doubleValue": number}));
        }
    }

    /// JSON as a text, as the conventions have it for spans.
    pub(super) fn json(&mut self, key: &str, value: &Value) {
        self.text(key, &json::text(value));
    }
}

/// The attributes of a request to a model that this configuration names.
pub(super) fn request_attributes(llm: &Map<String, Value>) -> Attributes {
    let mut attributes = Attributes::default();
    let get = |key: &str| llm.get(key).unwrap_or(&Value::Null);
    attributes.text("gen_ai.operation.name", "chat");
    attributes.text("gen_ai.provider.name", provider(llm));
    attributes.maybe_text("gen_ai.request.model", get("model").as_str());
    let longest = get("max_tokens")
        .as_u64()
        .or(get("max_completion_tokens").as_u64());
    attributes.number("gen_ai.request.max_tokens", longest);
    attributes.real("gen_ai.request.temperature", get("temperature").as_f64());
    attributes.number("gen_ai.request.seed", get("seed").as_u64());
    if get("stream") == true {
        attributes.put("gen_ai.request.stream", json!({"boolValue": true}));
    }
    if let Some((host, port)) = server(llm) {
        attributes.text("server.address", &host);
        attributes.number("server.port", Some(port));
    }
    attributes
}

/// The host and the port of the endpoint that the configuration names.
fn server(llm: &Map<String, Value>) -> Option<(String, u64)> {
    let (scheme, rest) = llm.get("base_url")?.as_str()?.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?.rsplit('@').next()?;
    let end_of_host = authority.rfind(']').unwrap_or(0);
    let colon = authority[end_of_host..]
        .rfind(':')
        .map(|at| end_of_host + at);
    let (host, port) = match colon {
        Some(at) => (&authority[..at], authority[at + 1..].parse().ok()),
        None => (authority, None),
    };
    let usual = if scheme == "https" { 443 } else { 80 };
    (!host.is_empty()).then(|| (host.to_owned(), port.unwrap_or(usual)))
}

/// The conventions' word for a provider, by the host that is asked.
pub(super) fn provider(llm: &Map<String, Value>) -> &'static str {
    const BY_HOST: [(&str, &str); 9] = [
        ("openai.com", "openai"),
        ("anthropic.com", "anthropic"),
        ("azure.com", "azure.ai.openai"),
        ("googleapis.com", "gcp.gemini"),
        ("mistral.ai", "mistral_ai"),
        ("deepseek.com", "deepseek"),
        ("groq.com", "groq"),
        ("x.ai", "x_ai"),
        ("perplexity.ai", "perplexity"),
    ];
    if llm.get("command").is_some_and(|it| !it.is_null()) {
        return "command";
    }
    match server(llm) {
        Some((host, _)) => {
            let is_of = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
            BY_HOST
                .iter()
                .find(|(domain, _)| is_of(domain))
                .map_or("other", |(_, name)| name)
        }
        None if llm.get("api").is_some_and(|api| api == "messages") => "anthropic",
        None => "openai",
    }
}
