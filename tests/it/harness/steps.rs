//! A scripted run of some steps over any API.

use super::World;
use super::server::{Reply, completion};
use super::services::{Api, Said, api_of, reply};
use serde_json::{Value, json};

/// The tool of the run.
pub const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";

/// The n-th answer of a run of so many iterations.
pub fn said(n: usize, of: usize) -> Said {
    let call = |at: usize| {
        let words = json!({"words": format!("{n}.{at} \u{e9}")});
        (format!("call_{n}_{at}"), "echo".to_owned(), words)
    };
    Said {
        thinking: format!("about step {n}"),
        text: if n >= of {
            "done".to_owned()
        } else {
            format!("step {n}\n\u{1F600}")
        },
        calls: if n >= of {
            Vec::new()
        } else {
            (0..3).map(call).collect()
        },
    }
}

/// How many answers of the model a request holds.
pub fn answers(api: Api, request: &Value) -> usize {
    let list = request[api.conversation()]
        .as_array()
        .expect("a conversation");
    let is_answer = |item: &Value| {
        let kinds = ["function_call", "reasoning"];
        item["role"] == "assistant" || kinds.iter().any(|kind| item["type"] == *kind)
    };
    let begins = |at: &usize| is_answer(&list[*at]) && (*at == 0 || !is_answer(&list[*at - 1]));
    (0..list.len()).filter(begins).count()
}

/// The service answers each request by its place in the conversation.
pub fn serve(world: &World, of: usize) {
    world.server.answers(move |received| {
        let api = api_of(&received.line);
        let request = received.json();
        reply(api, received, &said(answers(api, &request) + 1, of))
    });
}

/// An agent with the tool that is asked over an API.
pub fn world(api: Api, stream: bool) -> World {
    let world = World::with_tools(ECHO);
    world.llm(&format!("api: {}\nstream: {stream}", api.name()))
}

/// A service's refusal.
pub fn refusal(words: &str, code: &str) -> Reply {
    let body = json!({"type": "error", "error": {"type": "invalid_request_error", "code": code, "message": words}});
    completion(&body).status(400)
}
