//! The scripted services refuse what the real ones refuse, and whatever a journal holds becomes a request that they
//! take.

use crate::harness::services::*;
use crate::harness::steps::*;
use fastrand::Rng;
use serde_json::{Value, json};
use std::fs;

/// A request of a run, in the middle of it.
fn sample(api: Api) -> Value {
    let world = world(api, false);
    serve(&world, 3);
    world.run("go").exits(0);
    let request = world.server.requests()[2].json();
    assert_eq!(objections(api, request.to_string().as_bytes()), [""; 0]);
    request
}

type Change = fn(&mut Value);

/// Each change, and words of the objection to it.
fn assert_each_is_refused(api: Api, changes: &[(Change, &str)]) {
    let sample = sample(api);
    for (at, (change, words)) in changes.iter().enumerate() {
        let mut request = sample.clone();
        change(&mut request);
        assert_ne!(request, sample, "{api:?}, change {at}");
        let found = objections(api, request.to_string().as_bytes()).join("\n");
        assert!(found.contains(words), "{api:?}, {words}: {found}");
    }
}

fn list<'v>(value: &'v mut Value, key: &str) -> &'v mut Vec<Value> {
    value[key].as_array_mut().unwrap()
}

/// The blocks of a message.
fn blocks(request: &mut Value, message: usize) -> &mut Vec<Value> {
    list(&mut request["messages"][message], "content")
}

/// The messages: a person's, an answer (thinking, text, redacted thinking, three calls), results, and the same again.
#[test]
fn messages_are_refused_as_the_service_refuses_them() {
    const BOUND: &str = "bound to a different conversation";
    assert_each_is_refused(
        Api::Messages,
        &[
            // A result without its call, a call without its result.
            (|it| drop(blocks(it, 1).remove(3)), "need tool_result"),
            (|it| drop(blocks(it, 2).remove(0)), "need tool_result"),
            // Results behind a text, or in two messages.
            (
                |it| blocks(it, 2).insert(0, json!({"type": "text", "text": "t"})),
                "must come first",
            ),
            (
                |it| {
                    let last = blocks(it, 2).pop();
                    let second = json!({"role": "user", "content": [last]});
                    list(it, "messages").insert(3, second);
                },
                "two of one role",
            ),
            // Thinking that is unsigned, edited, moved, of another place, or behind something else.
            (|it| blocks(it, 1)[0]["signature"] = json!(""), BOUND),
            (|it| blocks(it, 1)[0]["thinking"] = json!("other"), BOUND),
            (|it| blocks(it, 1).swap(0, 3), BOUND),
            (
                |it| {
                    let block = blocks(it, 1).remove(0);
                    blocks(it, 3).insert(0, block);
                },
                BOUND,
            ),
            (|it| it["system"][0]["text"] = json!("other"), BOUND),
            (|it| it["tools"][0]["description"] = json!("other"), BOUND),
            (|it| blocks(it, 0)[0]["text"] = json!("other"), BOUND),
            // Blank texts.
            (
                |it| blocks(it, 0)[0]["text"] = json!(" \n"),
                "non-whitespace",
            ),
            (|it| it["system"][0]["text"] = json!(""), "non-empty"),
            (|it| blocks(it, 2)[0]["content"] = json!(""), "no result"),
            // The limit of the answer.
            (
                |it| drop(it.as_object_mut().unwrap().shift_remove("max_tokens")),
                "Field required",
            ),
            (
                |it| it["max_tokens"] = json!(64_001),
                "which is the maximum",
            ),
            // Marks of caches.
            (
                |it| {
                    for block in blocks(it, 2) {
                        block["cache_control"] = json!({"type": "ephemeral"});
                    }
                },
                "maximum of 4",
            ),
            (
                |it| blocks(it, 1)[0]["cache_control"] = json!({"type": "ephemeral"}),
                "cache_control on thinking",
            ),
            // Who speaks.
            (|it| drop(list(it, "messages").pop()), "prefill"),
            (|it| drop(list(it, "messages").remove(0)), "not the user's"),
            (|it| blocks(it, 4).clear(), "content is empty"),
            // Ids, tools, keys.
            (
                |it| {
                    blocks(it, 1)[3]["id"] = json!("functions.echo:0");
                    blocks(it, 2)[0]["tool_use_id"] = json!("functions.echo:0");
                },
                "functions.echo:0",
            ),
            (
                |it| it["tools"][0]["input_schema"]["anyOf"] = json!([{}]),
                "at the top level",
            ),
            (|it| it["tools"][0]["name"] = json!("a.b"), "a.b"),
            (
                |it| it["tool_choice"] = json!({"type": "any"}),
                "tool_choice",
            ),
            (|it| it["temperature"] = json!(0.5), "`temperature`"),
            (
                |it| it["max_output_tokens"] = json!(5),
                "'max_output_tokens'",
            ),
        ],
    );
}

/// The items: a person's, reasoning, a message, three calls, three results, and the same again.
#[test]
fn responses_are_refused_as_the_service_refuses_them() {
    const FOLLOWER: &str = "required following item";
    assert_each_is_refused(
        Api::Responses,
        &[
            (|it| drop(list(it, "input").remove(3)), "No tool call found"),
            (
                |it| drop(list(it, "input").remove(6)),
                "No tool output found",
            ),
            (|it| list(it, "input").swap(3, 6), "No tool call found"),
            // Reasoning that nobody can read, without what followed it, or as no more than its id.
            (
                |it| {
                    let reasoning = it["input"][1].as_object_mut().unwrap();
                    reasoning.shift_remove("encrypted_content");
                },
                "not found",
            ),
            (|it| drop(list(it, "input").remove(2)), FOLLOWER),
            (
                |it| it["input"][1]["summary"][0]["text"] = json!("other"),
                FOLLOWER,
            ),
            (
                |it| it["input"][1] = json!({"type": "item_reference", "id": "rs_1"}),
                "item_reference",
            ),
            (
                |it| drop(list(it, "input").remove(1)),
                "required 'reasoning' item",
            ),
            (
                |it| it["input"][0]["content"][0]["text"] = json!(" "),
                "blank",
            ),
            (|it| it["instructions"] = json!(" "), "instructions"),
            (|it| it["input"] = json!([]), "input is empty"),
            (
                |it| it["input"][3]["call_id"] = json!("functions.echo:0"),
                "functions.echo:0",
            ),
            (
                |it| it["input"][2]["id"] = json!("m".repeat(65)),
                "too long",
            ),
            (
                |it| {
                    let tool = it["tools"][0].as_object_mut().unwrap();
                    tool.shift_remove("strict");
                },
                "strict",
            ),
            (|it| it["store"] = json!(true), "store"),
            (|it| it["temperature"] = json!(0.5), "`temperature`"),
            (|it| it["max_tokens"] = json!(5), "'max_tokens'"),
            (|it| it["messages"] = json!([]), "'messages'"),
            (|it| it["max_output_tokens"] = json!(15), "minimum"),
        ],
    );
}

#[test]
fn completions_are_refused_as_the_service_refuses_them() {
    assert_each_is_refused(
        Api::Chat,
        &[
            (|it| drop(list(it, "messages").remove(3)), "have no result"),
            (|it| drop(list(it, "messages").remove(2)), "not open"),
            (
                |it| {
                    it["model"] = json!("gpt-5.4");
                    it["reasoning_effort"] = json!("low");
                },
                "/v1/responses",
            ),
            (
                |it| it["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!("[1]"),
                "no object",
            ),
            (
                |it| it["messages"][2]["tool_calls"][0]["id"] = json!(""),
                "without an id",
            ),
            (|it| it["tools"] = json!([]), "empty list"),
        ],
    );
}

/// Something that a person, or another program, does to a line of a journal. None: it is taken out.
fn edited(random: &mut Rng, mut line: Value) -> Option<Value> {
    const TEXTS: [&str; 6] = [
        "",
        " \n",
        "\u{a0}",
        "edited",
        "\u{1F600} \u{2028}",
        "\"quoted\" \\ud800",
    ];
    let text = TEXTS[random.usize(0..TEXTS.len())];
    let kind = line["type"].as_str().unwrap_or_default().to_owned();
    match (random.u8(0..9), kind.as_str()) {
        (0, "THOUGHT" | "ACTION_RESULT" | "ACTION_REQUEST" | "USER_MESSAGE") => return None,
        (1, "THOUGHT" | "USER_MESSAGE") => line["content"] = json!(text),
        (2, "ACTION_RESULT") => line["observation_content"] = json!(text),
        (3, "THOUGHT") => {
            if let Some(calls) = line["tool_calls"].as_array_mut() {
                let ids = ["functions.echo:0", "", "call_1_0", "x".repeat(80).leak()];
                let at = random.usize(0..calls.len());
                calls[at]["id"] = json!(ids[random.usize(0..ids.len())]);
            }
        }
        (4, "THOUGHT") => {
            if let Some(calls) = line["tool_calls"].as_array_mut() {
                calls.remove(random.usize(0..calls.len()));
            }
        }
        (5, "THOUGHT") => {
            // Reasoning that is edited or moved is known to the service alone.
            if let Some(items) = line["wire"]["items"].as_array_mut() {
                let is_plain = |item: &Value| {
                    let kind = item["type"].as_str().unwrap_or_default();
                    matches!(kind, "text" | "message" | "tool_use" | "function_call")
                };
                let plain: Vec<usize> = (0..items.len())
                    .filter(|at| is_plain(&items[*at]))
                    .collect();
                if !plain.is_empty() {
                    items.remove(plain[random.usize(0..plain.len())]);
                }
            }
        }
        (6, "THOUGHT") => line["wire"] = json!({"api": text, "items": [1, {"type": text}]}),
        (7, "THOUGHT") => {
            line["tool_calls"] = Value::Null;
            line["content_null"] = json!(true);
        }
        _ => {}
    }
    Some(line)
}

/// The journal of a run, after some edits.
fn edit(random: &mut Rng, journal: &str) -> String {
    let mut out = String::new();
    for line in journal.lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if random.u8(0..3) == 0 {
            match edited(random, line) {
                Some(other) => line = other,
                None => continue,
            }
        }
        out += &format!("{line}\n");
        if random.u8(0..12) == 0 {
            out += "{\"type\":\"USER_MESSAGE\",\"content\":\"by hand\"}\n";
        }
    }
    out
}

#[test]
fn whatever_a_journal_holds_becomes_a_request_that_each_service_takes() {
    let pairs = APIS.into_iter().flat_map(|from| APIS.map(|to| (from, to)));
    for (from, to) in pairs {
        let world = world(from, false);
        serve(&world, 5);
        world.run("go").exits(0);
        let path = world.latest().path("journal.jsonl");
        let journal = fs::read_to_string(&path).unwrap();
        world
            .server
            .answers(|received| reply(api_of(&received.line), received, &said(9, 9)));
        for seed in 0..12 {
            let mut random = Rng::with_seed(seed);
            fs::write(&path, edit(&mut random, &journal)).unwrap();
            let window = ["", ", max_iterations: 2"][random.usize(0..2)];
            let path_of = "${AGENT_HOME}/system_prompt.md";
            let sources =
                format!("{{type: file, id: s, path: '{path_of}'}}, {{type: journal{window}}}");
            world.write("agent/context.yaml", format!("sources: [{sources}]\n"));
            if random.bool() {
                world.write("agent/system_prompt.md", "Another.");
            }
            let api = format!("llm.api={}", to.name());
            let go_on = world.go_on().args(["-m", "more", "--set", &api]);
            let outcome = go_on.end();
            assert_eq!(
                outcome.code(),
                Some(0),
                "{from:?} to {to:?}, seed {seed}: {}",
                outcome.stderr
            );
            let received = world.server.last();
            let found = objections(to, &received.body);
            assert!(
                found.is_empty(),
                "{from:?} to {to:?}, seed {seed}: {}\n{}",
                found.join("\n"),
                fs::read_to_string(&path).unwrap()
            );
        }
    }
}
