//! What decides the price of an answer: tokens that are read from a cache and written to it, terms, the cache's key.

use crate::engine::budget::{ledger, sum};
use crate::harness::services::*;
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

/// What each service counts: 1000 tokens, of which 600 were cached and 100 written, and 10, of which 7 are thinking.
fn counted(api: Api) -> (Value, Value) {
    match api {
        Api::Chat => (
            json!({"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010,
                   "prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 100},
                   "completion_tokens_details": {"reasoning_tokens": 7}}),
            json!({"service_tier": "flex"}),
        ),
        Api::Responses => (
            json!({"input_tokens": 1000, "output_tokens": 10, "total_tokens": 1010,
                   "input_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 100},
                   "output_tokens_details": {"reasoning_tokens": 7}}),
            json!({"service_tier": "flex"}),
        ),
        Api::Messages => (
            json!({"input_tokens": 300, "output_tokens": 10, "cache_read_input_tokens": 600,
                   "cache_creation_input_tokens": 100, "output_tokens_details": {"thinking_tokens": 7},
                   "service_tier": "priority", "speed": "fast", "inference_geo": "us"}),
            json!({}),
        ),
    }
}

#[test]
fn cache_writes_cost_and_terms_are_recorded_over_each_api() {
    for (api, stream) in APIS
        .into_iter()
        .flat_map(|api| [(api, false), (api, api != Api::Chat)])
    {
        let world = World::new()
            .llm(&format!("api: {}\nstream: {stream}", api.name()))
            .top("pricing: {scripted: {input: 10, output: 100, cached: 1, cache_write: 20}}");
        world.server.answers(move |received| {
            let said = Said {
                text: "done".to_owned(),
                ..Said::default()
            };
            let mut answer = answer_of(api, &received.json(), &said);
            let (usage, beside) = counted(api);
            answer["usage"] = usage;
            for (key, value) in beside.as_object().unwrap() {
                answer[key] = value.clone();
            }
            match stream {
                true => streamed(&services::stream(api, &answer)),
                false => completion(&answer),
            }
        });
        world.run("go").exits(0);
        let run = world.latest();
        // 300 at 10, 600 at 1, 100 at 20, 10 at 100: 6600 millionths.
        let is_right = |cost: f64| (cost - 0.0066).abs() < 1e-12;
        let settled = sum(&ledger(&run), "settle").1;
        assert!(is_right(settled), "{api:?}: {settled}");
        let stats = world.delta(["stats", "-w", "ws"]).json().exits(0);
        let stats: Value = serde_json::from_slice(&stats.stdout).unwrap();
        let cost = &stats[0]["cost"];
        assert!(cost.as_f64().is_some_and(is_right), "{api:?}: {cost}");
        let exported = world.delta(["export", "-w", "ws", "--format", "atif"]);
        let exported: Value = serde_json::from_slice(&exported.exits(0).stdout).unwrap();
        let metrics = &exported["steps"][2]["metrics"];
        let cost = &metrics["cost_usd"];
        assert!(cost.as_f64().is_some_and(is_right), "{api:?}: {cost}");
        assert_eq!(metrics["extra"]["reasoning_tokens"], 7, "{api:?}");
        let mut terms = json!({"service_tier": "flex"});
        if api == Api::Messages {
            terms = json!({"service_tier": "priority", "speed": "fast", "inference_geo": "us"});
        }
        let mut usage =
            json!({"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010});
        let mut record = json!({"prompt": 1000, "completion": 10, "total": 1010, "cached": 600,
                                "cache_write": 100, "reasoning": 7});
        for (key, value) in terms.as_object().unwrap() {
            (usage[key], record[key]) = (value.clone(), value.clone());
        }
        let mut recorded = run.events("THOUGHT")[0]["usage"].take();
        let bytes = world.server.requests()[0].body.len();
        assert_eq!(recorded["request_bytes"], bytes);
        recorded.as_object_mut().unwrap().remove("request_bytes");
        assert_eq!(recorded, usage, "{api:?}");
        let metadata = fs::read(run.invocations()[0].join("metadata.json")).unwrap();
        let metadata: Value = serde_json::from_slice(&metadata).unwrap();
        assert_eq!(metadata["token_usage"], record, "{api:?}");
    }
}

/// The request that a new run would send.
fn request(world: &World) -> Value {
    let dry = world.run("go").arg("--dry-run").arg("-q").exits(0);
    serde_json::from_slice(&dry.stdout).unwrap()
}

#[test]
fn requests_to_openai_itself_name_their_cache() {
    let world = |api: &str, base_url: &str, more: &str| {
        World::unasked().llm(&format!("api: {api}\nbase_url: {base_url}\n{more}"))
    };
    for api in ["chat", "responses"] {
        let own = "https://api.openai.com/v1";
        let first = world(api, own, "");
        let key = request(&first)["prompt_cache_key"].clone();
        let digits = key.as_str().unwrap();
        assert!(digits.len() == 32 && digits.bytes().all(|it| it.is_ascii_hexdigit()));
        // It is that of the agent, its tools and its system blocks, whatever is said.
        let dry = first.run("something else").args(["--dry-run", "-q"]);
        let other: Value = serde_json::from_slice(&dry.exits(0).stdout).unwrap();
        assert_eq!(other["prompt_cache_key"], key);
        let region = world(api, "https://eu.api.openai.com/v1/", "temperature: 1");
        assert_eq!(request(&region)["prompt_cache_key"], key);
        first.write("agent/system_prompt.md", "You are another.\n");
        assert_ne!(request(&first)["prompt_cache_key"], key);
        let tools = world(api, own, "").tools("- {name: t, exec: ls}");
        assert_ne!(request(&tools)["prompt_cache_key"], key);
        let set = world(api, own, "prompt_cache_key: mine");
        assert_eq!(request(&set)["prompt_cache_key"], "mine");
        let text = set.run("go").args(["--dry-run", "-q"]).exits(0).stdout;
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.matches("prompt_cache_key").count(), 1);
        for other in [
            "https://api.openai.com.example.org/v1",
            "https://myapi.openai.com.example.org",
            "http://127.0.0.1:9/v1",
            "https://name.openai.azure.com/openai/v1",
        ] {
            let request = request(&world(api, other, ""));
            assert!(request.get("prompt_cache_key").is_none(), "{other}");
        }
    }
    let messages = world("messages", "https://api.openai.com/v1", "");
    assert!(request(&messages).get("prompt_cache_key").is_none());
}

#[test]
fn a_replay_has_the_key_of_the_recorded_request() {
    for api in [Api::Chat, Api::Responses] {
        let world = World::new().llm(&format!("api: {}\nstream: false", api.name()));
        world.server.answers(move |received| {
            let said = Said {
                text: "done".to_owned(),
                ..Said::default()
            };
            reply(api, received, &said)
        });
        world.run("go").exits(0);
        let path = world.latest().invocations()[0].join("request.json");
        let request = fs::read_to_string(&path).unwrap();
        // Where each has it at the vendor's endpoint.
        let recorded = match api {
            Api::Chat => request.replacen('{', "{\"prompt_cache_key\":\"k\",", 1),
            _ => request.replacen(",\"tools\":", ",\"prompt_cache_key\":\"k\",\"tools\":", 1),
        };
        assert_ne!(recorded, request);
        fs::write(&path, recorded).unwrap();
        let replay = world.delta(["replay", "-w", "ws", "LATEST"]);
        replay.exits(0).prints("identical: 1 request\n");
    }
}
