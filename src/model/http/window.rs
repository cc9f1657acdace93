//! The tokens that a model takes, as its server says them.
//!
//! What a model was trained for is never the answer: a server may have been given less room.

use super::Http;
use crate::config::api::Api;
use crate::config::environment::{is_local, is_loopback};
use crate::model::too_long::TOKEN_CEILING;
use crate::text::json::without_mark;
use serde_json::Value;
use std::io::Read;
use std::time::{Duration, Instant};

/// The time for all questions together.
const PATIENCE: Duration = Duration::from_secs(2);

/// The largest list of models that is read, in bytes.
const LIST_BYTES: u64 = 4 << 20;

impl Http {
    /// True if the server is on this machine or has a private address.
    pub(crate) fn is_local(&self) -> bool {
        is_local(&self.endpoint.base_url)
    }

    /// Asks the server how many tokens a model takes. None if it does not say so in time.
    pub(crate) fn look_up_window(&self, model: &str) -> Option<u64> {
        let until = Instant::now() + PATIENCE;
        let (url, query) = self
            .url
            .split_at(self.url.find('?').unwrap_or(self.url.len()));
        let base = url.strip_suffix(self.endpoint.api.path())?;
        if self.endpoint.api == Api::Messages {
            let name = percent_encoded(model);
            let window = self
                .json_at(&format!("{base}/models/{name}{query}"), until)
                .as_ref()
                .and_then(|it| number(it.get("max_input_tokens")));
            if window.is_some() {
                return window;
            }
        }
        let list = self.json_at(&format!("{base}/models{query}"), until);
        let window = list.as_ref().and_then(|list| window_in(list, model));
        if window.is_some() || !is_loopback(base) {
            return window;
        }
        let loaded = self.json_at(&format!("{}/api/ps", root(base)?), until)?;
        let mut models = loaded["models"].as_array()?.iter();
        // A name without a tag means this one.
        let tagged = format!("{model}:latest");
        let is_named = |it: &&Value| {
            let names = ["name", "model"].map(|key| it[key].as_str());
            names.contains(&Some(model)) || names.contains(&Some(&tagged))
        };
        number(models.find(is_named)?.get("context_length"))
    }

    fn json_at(&self, url: &str, until: Instant) -> Option<Value> {
        let left = until
            .checked_duration_since(Instant::now())?
            .max(Duration::from_millis(1));
        let get = self.agent.get(url).header("accept", "application/json");
        let response = self.prepared(get, left, false).call().ok()?;
        if !response.status().is_success() {
            return None;
        }
        let mut body = Vec::new();
        response
            .into_body()
            .into_reader()
            .take(LIST_BYTES + 1)
            .read_to_end(&mut body)
            .ok()?;
        (body.len() as u64 <= LIST_BYTES).then_some(())?;
        serde_json::from_slice(without_mark(&body)).ok()
    }
}

/// The window of the model with this id in a list of models.
fn window_in(list: &Value, model: &str) -> Option<u64> {
    let mut entries = list
        .get("data")
        .or_else(|| list.get("models"))?
        .as_array()?
        .iter();
    served_window(entries.find(|entry| entry.get("id").is_some_and(|id| id == model))?)
}

/// The window of a model in a list of models.
pub(crate) fn served_window(entry: &Value) -> Option<u64> {
    const PLACES: [&str; 5] = [
        "/meta/n_ctx",
        "/max_model_len",
        "/context_window",
        "/max_context_length",
        "/max_input_tokens",
    ];
    let at = |pointer: &str| number(entry.pointer(pointer));
    let routed = || {
        [at("/context_length"), at("/top_provider/context_length")]
            .into_iter()
            .flatten()
            .min()
    };
    PLACES.into_iter().find_map(at).or_else(routed)
}

fn number(value: Option<&Value>) -> Option<u64> {
    let number = value?.as_u64();
    number.filter(|number| (1..=TOKEN_CEILING).contains(number))
}

/// A URL without its path.
fn root(url: &str) -> Option<&str> {
    let host = url.find("://")? + 3;
    let end = url[host..].find('/').map_or(url.len(), |at| host + at);
    Some(&url[..end])
}

fn percent_encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                out.push(char::from(byte));
            }
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_window_is_that_of_the_model_as_it_is_served() {
        for (entry, window) in [
            (
                json!({"meta": {"n_ctx": 8192, "n_ctx_train": 131_072}}),
                Some(8192),
            ),
            (json!({"meta": {"n_ctx_train": 131_072}}), None),
            (json!({"max_model_len": 4096}), Some(4096)),
            (json!({"context_window": 4096}), Some(4096)),
            (json!({"max_context_length": 4096}), Some(4096)),
            (json!({"context_length": 4096}), Some(4096)),
            (
                json!({"context_length": 4096, "top_provider": {"context_length": 2048}}),
                Some(2048),
            ),
            (json!({"max_model_len": "4096"}), None),
            (json!({"max_model_len": -1}), None),
            (json!({}), None),
        ] {
            let mut entry = entry;
            entry["id"] = "m".into();
            let list = json!({"data": [{"id": "other", "max_model_len": 1}, entry]});
            assert_eq!(window_in(&list, "m"), window, "{list}");
        }
        assert_eq!(window_in(&json!({"data": "x"}), "m"), None);
    }
}
