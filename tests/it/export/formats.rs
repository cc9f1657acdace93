//! `delta export`: runs as trajectories, as traces and as conversations.

use crate::harness::*;
use crate::runs::subagents::{family, model};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::symlink;

/// What is printed, a document a line.
#[track_caller]
fn exported(world: &World, args: &[&str]) -> Vec<Value> {
    let printed = world.delta(["export", "-w", "ws", "--format"]).args(args);
    documents(&printed.exits(0))
}

fn documents(outcome: &Outcome) -> Vec<Value> {
    let text = std::str::from_utf8(&outcome.stdout).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

/// All texts of a document with other words in place of some; times and durations are zero.
fn settled(value: Value, words: &[(String, &str)]) -> Value {
    match value {
        Value::String(text) => {
            let replaced = words
                .iter()
                .fold(text, |text, (from, to)| text.replace(from, to));
            replaced.into()
        }
        Value::Array(list) => list.into_iter().map(|it| settled(it, words)).collect(),
        Value::Object(map) => {
            let members = map.into_iter().map(|(key, value)| {
                let value = match key.as_str() {
                    "timestamp" => "T".into(),
                    "duration_ms" => 0.into(),
                    "hostname" => "host".into(),
                    "tool_definitions" => value.as_array().unwrap().len().into(),
                    _ => settled(value, words),
                };
                (key, value)
            });
            Value::Object(members.collect())
        }
        other => other,
    }
}

/// What the validator of Harbor checks, and what it does not.
#[track_caller]
fn is_valid_trajectory(document: &Value) {
    let steps = document["steps"].as_array().unwrap();
    assert!(!steps.is_empty());
    assert_eq!(document["final_metrics"]["total_steps"], steps.len());
    let children = document["subagent_trajectories"].as_array();
    let ids: Vec<&str> = children
        .into_iter()
        .flatten()
        .map(|it| it["trajectory_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    for (at, step) in steps.iter().enumerate() {
        assert_eq!(step["step_id"], at + 1);
        assert!(step["message"].is_string(), "{step}");
        let calls = step["tool_calls"].as_array().into_iter().flatten();
        let calls: Vec<&Value> = calls.map(|call| &call["tool_call_id"]).collect();
        let unique: HashSet<_> = calls.iter().map(ToString::to_string).collect();
        assert_eq!(unique.len(), calls.len(), "{step}");
        for result in step["observation"]["results"]
            .as_array()
            .into_iter()
            .flatten()
        {
            assert!(calls.contains(&&result["source_call_id"]), "{step}");
            for reference in result["subagent_trajectory_ref"]
                .as_array()
                .into_iter()
                .flatten()
            {
                assert!(
                    ids.contains(&reference["trajectory_id"].as_str().unwrap()),
                    "{step}"
                );
            }
        }
        if step["source"] != "agent" {
            for key in ["model_name", "reasoning_content", "tool_calls", "metrics"] {
                assert_eq!(step.get(key), None, "{step}");
            }
        }
        let metrics = &step["metrics"];
        if let Some(cached) = metrics["cached_tokens"].as_u64() {
            assert!(cached <= metrics["prompt_tokens"].as_u64().unwrap());
        }
    }
    for child in children.into_iter().flatten() {
        assert_eq!(child["session_id"], document["session_id"]);
        is_valid_trajectory(child);
    }
}

/// A run that delegates once, to one that does so, too.
fn nested() -> World {
    let world = family("");
    world.server.answers(model);
    world.run("go").exits(0);
    world
}

#[test]
fn a_run_and_its_sub_agents_are_one_trajectory_with_results_in_the_steps_of_their_calls() {
    let world = nested();
    let before = snapshot(&world.workspace());
    let [document] = exported(&world, &["atif"]).try_into().unwrap();
    assert!(
        snapshot(&world.workspace()) == before,
        "exporting changed something"
    );
    is_valid_trajectory(&document);
    let id = |workspace: &str| Run::latest(&world.path(workspace)).id();
    let home = world.home().canonicalize().unwrap().display().to_string();
    let words = [
        (id("ws"), "ONE"),
        (id("ws/child"), "TWO"),
        (id("ws/child/child"), "THREE"),
        (home, "HOME"),
        (env!("CARGO_PKG_VERSION").to_owned(), "0"),
    ];
    let mut document = settled(document, &words);
    let step = |id: u64, source: &str, message: &str| json!({"step_id": id, "source": source, "timestamp": "T", "message": message});
    let mut two = document["subagent_trajectories"][0].take();
    let three = two["subagent_trajectories"][0].take();
    assert_eq!(document["subagent_trajectories"], json!([null]));
    assert_eq!(two["subagent_trajectories"], json!([null]));
    let mut first = json!({"step_id": 1, "source": "system", "message": "# Context Block: system_prompt\n\nI am one."});
    assert_eq!(document["steps"][0], first);
    first["message"] = "# Context Block: system_prompt\n\nI am three.".into();
    assert_eq!(three["steps"][0], first);
    assert_eq!(document["steps"][1], step(2, "user", "go"));
    assert_eq!(two["steps"][1], step(2, "user", "Do it"));
    let mut delegates = step(3, "agent", "");
    let metrics = json!({"prompt_tokens": 100, "completion_tokens": 10});
    let more = json!({
        "model_name": "scripted-1",
        "llm_call_count": 1,
        "tool_calls": [{"tool_call_id": "call_1", "function_name": "delegate", "arguments": {"task": "Do it"}}],
        "observation": {"results": [{
            "source_call_id": "call_1",
            "content": "done by 2\n",
            "subagent_trajectory_ref": [{"trajectory_id": "TWO"}],
            "extra": {"status": "SUCCESS", "exit_code": 0, "duration_ms": 0},
        }]},
        "metrics": metrics,
        "extra": {"finish_reason": "tool_calls"},
    });
    delegates
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    assert_eq!(document["steps"][2], delegates);
    assert_eq!(
        document["agent"],
        json!({"name": "one", "version": "0", "model_name": "scripted", "tool_definitions": 2,
               "extra": {"delta_version": "0", "agent_home": "HOME/agent"}})
    );
    assert_eq!(
        document["final_metrics"],
        json!({"total_prompt_tokens": 600, "total_completion_tokens": 60, "total_cached_tokens": 0, "total_steps": 4,
               "extra": {"status": "COMPLETED", "stop_reason": "final_answer", "exit_code": 0}})
    );
    assert_eq!(two["final_metrics"]["total_prompt_tokens"], 400);
    assert_eq!(three["final_metrics"]["total_prompt_tokens"], 200);
    let named = |it: &Value| [it["session_id"].clone(), it["trajectory_id"].clone()];
    assert_eq!(named(&document), ["ONE", "ONE"]);
    assert_eq!(named(&two), ["ONE", "TWO"]);
    assert_eq!(named(&three), ["ONE", "THREE"]);
    assert_eq!(
        two["extra"],
        json!({"parent_run_id": "ONE", "hostname": "host"})
    );
    // A part of it alone still belongs to the whole.
    let alone = world.delta(["export", "-w", "ws/child/child", "--format", "atif"]);
    let alone = documents(&alone.exits(0)).remove(0);
    assert_eq!(settled(alone, &words), three);
}

#[test]
fn a_step_has_its_cost_its_reasoning_and_arguments_that_were_none_beside_it() {
    let world = World::with_tools("- {name: echo, command: [echo, '${word}']}")
        .top("pricing: {input: 2, output: 4, cached: 1}");
    world.server.accepts_anything();
    let wanted = |arguments: &str| json!({"id": "c", "type": "function", "function": {"name": "echo", "arguments": arguments}});
    let body = json!({
        "id": "answer-1",
        "model": "scripted-2",
        "choices": [{"message": {"role": "assistant", "content": "Hm", "reasoning_content": "why",
                                 "tool_calls": [wanted("no JSON")]}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1_000_000, "completion_tokens": 500_000, "total_tokens": 1_500_000,
                  "prompt_tokens_details": {"cached_tokens": 9_000_000},
                  "completion_tokens_details": {"reasoning_tokens": 7}},
    });
    world.model_says([completion(&body), text("done")]);
    world.run("go").exits(0);
    let document = &exported(&world, &["atif"])[0];
    is_valid_trajectory(document);
    let step = &document["steps"][2];
    assert_eq!(step["reasoning_content"], "why");
    assert_eq!(step["model_name"], "scripted-2");
    assert_eq!(step["tool_calls"][0]["arguments"], json!({}));
    assert_eq!(
        step["tool_calls"][0]["extra"],
        json!({"invalid_arguments": "no JSON"})
    );
    // The server counts more from its cache than it was sent: all of it is taken to be from there.
    let metrics = json!({"prompt_tokens": 1_000_000, "completion_tokens": 500_000, "cached_tokens": 1_000_000,
                         "cost_usd": 3.0, "extra": {"reasoning_tokens": 7}});
    assert_eq!(step["metrics"], metrics);
    let spans = spans(&exported(&world, &["otlp"]));
    let chat = spans
        .iter()
        .find(|span| span["name"] == "chat scripted")
        .unwrap();
    let has = attributes(chat);
    assert_eq!(
        has["gen_ai.response.id"],
        json!({"stringValue": "answer-1"})
    );
    assert_eq!(
        has["gen_ai.response.model"],
        json!({"stringValue": "scripted-2"})
    );
    assert_eq!(
        has["gen_ai.usage.input_tokens"],
        json!({"intValue": "1000000"})
    );
    assert_eq!(
        has["gen_ai.usage.cache_read.input_tokens"],
        json!({"intValue": "1000000"})
    );
    assert_eq!(
        has["gen_ai.usage.reasoning.output_tokens"],
        json!({"intValue": "7"})
    );
    assert_eq!(
        has["gen_ai.response.finish_reasons"],
        json!({"arrayValue": {"values": [{"stringValue": "tool_calls"}]}})
    );
    assert_eq!(has["server.address"], json!({"stringValue": "127.0.0.1"}));
    assert!(has.contains_key("server.port"));
}

/// The spans of all requests, each of which is as long as one may be.
#[track_caller]
fn spans(requests: &[Value]) -> Vec<Value> {
    let mut all = Vec::new();
    for request in requests {
        assert!(request.to_string().len() <= 4_000_000);
        let resources = request["resourceSpans"].as_array().unwrap();
        let scopes = resources
            .iter()
            .flat_map(|it| it["scopeSpans"].as_array().unwrap());
        let spans: Vec<Value> = scopes
            .flat_map(|it| it["spans"].as_array().unwrap().clone())
            .collect();
        assert!((1..=512).contains(&spans.len()));
        all.extend(spans);
    }
    let mut ids = HashSet::new();
    for span in &all {
        let is_id = |key: &str, len| {
            let id = span[key].as_str().unwrap();
            id.len() == len
                && id
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
        };
        assert!(is_id("traceId", 32) && is_id("spanId", 16), "{span}");
        assert!(
            ids.insert(span["spanId"].as_str().unwrap().to_owned()),
            "{span}"
        );
        let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(
            0 < time("startTimeUnixNano") && time("startTimeUnixNano") <= time("endTimeUnixNano")
        );
    }
    all
}

fn attributes(span: &Value) -> BTreeMap<String, Value> {
    let list = span["attributes"].as_array().unwrap().iter();
    let pair = |it: &Value| (it["key"].as_str().unwrap().to_owned(), it["value"].clone());
    list.map(pair).collect()
}

/// The name and the kind of each span below one, with those below it.
fn tree(spans: &[Value], parent: &Value) -> Vec<Value> {
    let below = spans.iter().filter(|span| span["parentSpanId"] == *parent);
    below
        .map(|span| json!([span["name"], span["kind"], tree(spans, &span["spanId"])]))
        .collect()
}

#[test]
fn a_run_and_its_sub_agents_are_one_trace_and_twice_the_same() {
    let world = nested();
    let requests = exported(&world, &["otlp"]);
    assert_eq!(exported(&world, &["otlp"]), requests);
    let all = spans(&requests);
    let expected = json!([[
        "invoke_agent one",
        1,
        [
            ["chat scripted", 3, []],
            [
                "execute_tool delegate",
                1,
                [[
                    "invoke_agent two",
                    1,
                    [
                        ["chat scripted", 3, []],
                        [
                            "execute_tool delegate",
                            1,
                            [[
                                "invoke_agent three",
                                1,
                                [
                                    ["chat scripted", 3, []],
                                    ["execute_tool work", 1, []],
                                    ["chat scripted", 3, []]
                                ]
                            ]]
                        ],
                        ["chat scripted", 3, []]
                    ]
                ]]
            ],
            ["chat scripted", 3, []]
        ]
    ]]);
    assert_eq!(Value::from(tree(&all, &Value::Null)), expected);
    let traces: HashSet<_> = all.iter().map(|span| span["traceId"].to_string()).collect();
    assert_eq!(traces.len(), 1);
    assert!(all.iter().all(|span| span["status"] == json!({"code": 1})));
    let resource = &requests[0]["resourceSpans"][0];
    assert_eq!(
        resource["resource"]["attributes"][0],
        json!({"key": "service.name", "value": {"stringValue": "one"}})
    );
    assert_eq!(resource["scopeSpans"][0]["scope"]["name"], "delta");
    let prompt = "I am one.";
    assert!(
        !requests
            .iter()
            .any(|it| it.to_string().contains(prompt) || it.to_string().contains("done by"))
    );
    let whole = exported(&world, &["otlp", "--content"]);
    let chat = spans(&whole)
        .into_iter()
        .filter(|it| it["kind"] == 3)
        .nth(1)
        .unwrap();
    let has = attributes(&chat);
    let content = |key: &str| -> Value {
        serde_json::from_str(has[key]["stringValue"].as_str().unwrap()).unwrap()
    };
    let system =
        json!([{"type": "text", "content": "# Context Block: system_prompt\n\nI am one."}]);
    assert_eq!(content("gen_ai.system_instructions"), system);
    let call = json!({"type": "tool_call", "id": "call_1", "name": "delegate", "arguments": {"task": "Do it"}});
    let response = json!({"type": "tool_call_response", "id": "call_1", "response": "done by 2\n"});
    assert_eq!(
        content("gen_ai.input.messages"),
        json!([
            {"role": "user", "parts": [{"type": "text", "content": "go"}]},
            {"role": "assistant", "parts": [call]},
            {"role": "tool", "parts": [response]},
        ])
    );
    let answer = json!([{"role": "assistant", "parts": [{"type": "text", "content": "done by 1"}], "finish_reason": "stop"}]);
    assert_eq!(content("gen_ai.output.messages"), answer);
    // A part of it alone gives the same spans.
    let alone = world.delta(["export", "-w", "ws/child", "--format", "otlp"]);
    let alone = spans(&documents(&alone.exits(0)));
    assert_eq!(alone, all[4..]);
}

#[test]
fn a_trace_outside_is_gone_on_with_and_attempts_that_failed_are_events() {
    let world = World::with_tools("- {name: fail, shell: 'exit 3'}").llm("max_retries: 1");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let busy = || Reply::error(503, "busy").header("retry-after", "0");
    world.model_says([busy(), call("c", "fail", &json!({})), busy(), busy()]);
    let run = world
        .run("go")
        .env("TRACEPARENT", format!("00-{trace}-00f067aa0ba902b7-01"));
    run.exits(75);
    let all = spans(&exported(&world, &["otlp"]));
    assert!(all.iter().all(|span| span["traceId"] == trace));
    let [run, failed, answered, tool] = all.try_into().unwrap();
    assert_eq!(run["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(
        attributes(&run)["error.type"],
        json!({"stringValue": "model_unavailable"})
    );
    assert_eq!(run["status"]["code"], 2);
    assert_eq!(failed["events"].as_array().unwrap().len(), 2);
    assert_eq!(
        attributes(&failed)["error.type"],
        json!({"stringValue": "503"})
    );
    assert_eq!(failed["status"]["code"], 2);
    assert_eq!(answered["events"].as_array().unwrap().len(), 1);
    assert_eq!(answered["events"][0]["name"], "attempt_failed");
    assert_eq!(attributes(&tool)["error.type"], json!({"stringValue": "3"}));
    assert_eq!(tool["status"]["code"], 2);
    // A value that names no span is not obeyed.
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").env("TRACEPARENT", "00-0-0-\u{1b}").exits(0);
    let all = spans(&exported(&world, &["otlp"]));
    assert_eq!(all[0].get("parentSpanId"), None);
    assert_eq!(
        world.latest().events("ENGINE_START")[0].get("traceparent"),
        None
    );
}

/// A journal that somebody else has written.
fn forged(world: &World, lines: impl IntoIterator<Item = Value>) -> Run {
    let lines: String = lines.into_iter().map(|line| format!("{line}\n")).collect();
    world.write("ws/.delta/forged/journal.jsonl", lines);
    world.write("ws/.delta/VERSION", "1.2\n");
    let dir = world.path("ws/.delta/forged");
    Run { dir }
}

#[test]
fn spans_have_the_names_of_the_conventions_and_earlier_ones_beside_them_on_demand() {
    const WRITTEN: &str = "gen_ai.usage.cache_write.input_tokens";
    const OLD: [&str; 2] = [
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.workflow.name",
    ];
    let world = World::new();
    let body = json!({
        "choices": [{"message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 5, "cache_creation_input_tokens": 40},
    });
    world.model_says([completion(&body)]);
    world.run("go").exits(0);
    let agent = world.latest().id();
    let start = json!({"type": "ENGINE_START", "run_id": "forged", "task": "go", "call_id": "x", "config": {"name": "f"}});
    let at = "2026-01-02T03:04:05.000Z";
    let begun = json!({"type": "FLOW_START", "timestamp": at, "input": {"a": 1}});
    forged(&world, [start, begun]);
    for compat in [false, true] {
        let option = compat.then_some("--compat");
        let of = |run: &str| {
            let words: Vec<&str> = ["otlp", run].into_iter().chain(option).collect();
            let all = spans(&exported(&world, &words));
            all.iter().map(attributes).collect::<Vec<_>>()
        };
        let text = |value: &str| Some(json!({"stringValue": value}));
        let [run, chat] = of(&agent).try_into().unwrap();
        // The directory of an agent, and so a person's name, is in no span.
        assert_eq!(run.get("gen_ai.agent.id"), None);
        assert!(!json!(run).to_string().contains("/agent"));
        assert_eq!(chat[WRITTEN], json!({"intValue": "40"}));
        assert_eq!(chat.get(OLD[0]), chat.get(WRITTEN).filter(|_| compat));
        let [flow] = of("forged").try_into().unwrap();
        let operation = text("invoke_workflow");
        assert_eq!(flow.get("gen_ai.operation.name").cloned(), operation);
        assert_eq!(flow.get("gen_ai.agent.name").cloned(), text("f"));
        assert_eq!(flow.get(OLD[1]).cloned(), text("f").filter(|_| compat));
    }
    let atif = world.delta(["export", "-w", "ws", "--format", "atif", "--compat"]);
    atif.exits(2).says("--compat is for --format otlp");
}

#[test]
fn a_long_run_is_several_requests_and_content_that_is_too_long_is_left_out() {
    let world = World::new();
    let start = json!({"type": "ENGINE_START", "run_id": "forged", "task": "go", "call_id": "x", "config": {"name": "f"}});
    let thought = |n: u64| {
        let calls =
            json!([{"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}]);
        let at = format!("2026-01-02T03:{:02}:{:02}.000Z", n / 60 % 60, n % 60);
        [
            json!({"type": "THOUGHT", "timestamp": at, "content": "x", "tool_calls": calls}),
            json!({"type": "ACTION_REQUEST", "timestamp": at, "action_id": "c", "call_id": format!("call{n}"), "tool_name": "t"}),
            json!({"type": "ACTION_RESULT", "timestamp": at, "action_id": "c", "status": "SUCCESS",
                   "observation_content": if n == 3 { "y".repeat(5_000_000) } else { "y".into() }}),
        ]
    };
    forged(
        &world,
        [start].into_iter().chain((0..600).flat_map(thought)),
    );
    let requests = exported(&world, &["otlp", "--content", "forged"]);
    let all = spans(&requests);
    assert_eq!((requests.len() > 2, all.len()), (true, 1201));
    let tools: Vec<_> = all
        .iter()
        .filter(|span| span["name"] == "execute_tool t")
        .collect();
    let has_result = |span: &&&Value| attributes(span).contains_key("gen_ai.tool.call.result");
    assert_eq!(tools.iter().filter(has_result).count(), 599);
}

#[test]
fn an_attempt_without_time_and_outcome_is_an_event_all_the_same() {
    let world = World::new().llm("max_retries: 1");
    let busy = Reply::error(503, "busy").header("retry-after", "0");
    world.model_says([busy, text("done")]);
    world.run("go").exits(0);
    let path = world.latest().invocations()[0].join("metadata.json");
    let mut metadata: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for key in ["started_at", "outcome", "duration_ms"] {
        metadata["attempts"][0][key] = Value::Null;
    }
    std::fs::write(path, metadata.to_string()).unwrap();
    let all = spans(&exported(&world, &["otlp"]));
    assert_eq!(all[1]["events"][0]["name"], "attempt_failed", "{all:?}");
}

#[test]
fn a_record_from_elsewhere_is_data_and_names_no_file_outside_its_run() {
    let world = World::new();
    world.write(
        "secret/request.json",
        json!({"messages": [{"role": "system", "content": "TOP SECRET"}]}).to_string(),
    );
    world.write(
        "secret/metadata.json",
        json!({"model_id": "TOP SECRET"}).to_string(),
    );
    world.write("secret/stdout.log", "TOP SECRET");
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "[1]"}});
    let secret = world.path("secret").display().to_string();
    let run = forged(
        &world,
        [
            json!({"type": "ENGINE_START", "run_id": "other", "task": "go", "agent_home": "/", "hostname": "\u{202e}h",
               "config": {"name": "\u{9b}31m", "llm": {"base_url": "http://u:p@h:x/", "command": null}, "pricing": {"input": 1e308, "output": 1e308}}}),
            json!({"type": "THOUGHT", "content": "hm", "llm_invocation_ref": "io/invocations/../../../../../secret",
               "usage": {"prompt_tokens": 4_000_000_000_000u64, "completion_tokens": 9}, "tool_calls": [call("a"), call("a")]}),
            json!({"type": "THOUGHT", "content": "hm", "llm_invocation_ref": "io/invocations/linked"}),
            json!({"type": "HUMAN_INPUT_REQUEST", "request_id": "q", "prompt": "Word?", "sensitive": true}),
            json!({"type": "HUMAN_INPUT_RECEIVED", "request_id": "q", "response": "TOP SECRET"}),
            json!({"type": "FLOW_START", "input_ref": "../../../secret/stdout.log"}),
            json!({"type": "NODE_START", "task_id": "T", "node_id": "n", "call_id": "k"}),
            json!({"type": "TOOL", "task_id": "T", "node_id": "n", "tool_name": "x", "execution_ref": secret}),
            json!({"type": "NODE_END", "task_id": "T", "node_id": "n", "output_ref": "io/out.json"}),
            json!({"type": "ENGINE_END", "status": "COMPLETED\u{1b}[2J"}),
        ],
    );
    fs::create_dir_all(run.path("io/invocations")).unwrap();
    symlink(world.path("secret"), run.path("io/invocations/linked")).unwrap();
    symlink(world.path("secret/stdout.log"), run.path("io/out.json")).unwrap();
    for form in ["atif", "otlp", "chat"] {
        let before = snapshot(&run.dir);
        let outcome = world
            .delta(["export", "-w", "ws", "forged", "--format", form])
            .exits(0);
        assert!(snapshot(&run.dir) == before, "{form} changed something");
        let printed = String::from_utf8(outcome.stdout.clone()).unwrap();
        assert!(!printed.contains("SECRET"), "{printed}");
        assert!(
            !printed.contains(['\u{1b}', '\u{9b}', '\u{202e}']),
            "{printed}"
        );
        if form == "atif" {
            is_valid_trajectory(&documents(&outcome)[0]);
        } else if form == "otlp" {
            assert!(!printed.contains("u:p"), "{printed}");
        }
    }
}

#[test]
fn a_conversation_has_all_messages_and_a_result_for_each_call() {
    let world = nested();
    let lines = exported(&world, &["chat"]);
    let id = |workspace: &str| Run::latest(&world.path(workspace)).id();
    let ids: Vec<_> = lines.iter().map(|it| it["run_id"].clone()).collect();
    assert_eq!(ids, [id("ws"), id("ws/child"), id("ws/child/child")]);
    for (line, workspace) in lines.iter().zip(["ws", "ws/child", "ws/child/child"]) {
        assert_eq!(line["model"], "scripted");
        let keys: Vec<_> = line.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["run_id", "model", "messages", "tools"]);
        let request = world.delta(["request", "-w", workspace, "LATEST"]).exits(0);
        let mut request = request.object();
        let answer = json!({"role": "assistant", "content": line["messages"][4]["content"]});
        request["messages"].as_array_mut().unwrap().push(answer);
        assert_eq!(line["messages"], request["messages"]);
        assert_eq!(line["tools"], request["tools"]);
    }
}

#[test]
fn a_fork_marks_what_it_took_over_and_counts_only_its_own() {
    let world = World::new();
    world.model_says([text("one"), text("two")]);
    world.run("go").exits(0);
    world
        .delta(["fork", "-w", "ws", "LATEST", "--at", "1", "-m", "more"])
        .exits(0);
    let document = &exported(&world, &["atif"])[0];
    is_valid_trajectory(document);
    let copied: Vec<bool> = document["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["is_copied_context"] == true)
        .collect();
    assert_eq!(copied, [false, true, true, false, false]);
    assert_eq!(document["final_metrics"]["total_prompt_tokens"], 100);
    let names = spans(&exported(&world, &["otlp"]));
    assert_eq!(names.iter().filter(|span| span["kind"] == 3).count(), 1);
}

#[test]
fn several_runs_are_exported_and_what_cannot_be_is_said() {
    let world = World::new();
    world.model_says([text("one"), text("two")]);
    world.run("first").exits(0);
    let first = world.latest();
    world.run("second").exits(0);
    let ids = [first.id(), world.latest().id()];
    let both = exported(&world, &["chat", &ids[0], &ids[1]]);
    assert_eq!(
        both.iter()
            .map(|it| it["run_id"].clone())
            .collect::<Vec<_>>(),
        ids
    );
    forged(
        &world,
        [json!({"type": "ENGINE_START", "run_id": "forged"})],
    );
    let export = |args: &[&str]| world.delta(["export", "-w", "ws"]).args(args).end();
    export(&["--format", "chat", "forged"]).refuses(1, "nothing to export");
    let one = export(&["--format", "chat", "forged", &ids[1]])
        .exits(1)
        .says("1 run could not be exported");
    assert_eq!(documents(&one).len(), 1);
    // Behind damage there is more.
    let journal = first.text("journal.jsonl").replacen('\n', "\n{torn\n", 1);
    fs::write(first.path("journal.jsonl"), journal).unwrap();
    let damaged = export(&["--format", "chat", &ids[0]])
        .exits(1)
        .says("journal.jsonl:2:2: damaged: expected a key in double quotes; left out");
    assert_eq!(documents(&damaged)[0]["messages"], both[0]["messages"]);
    export(&[]).exits(2).says("--format");
    export(&["--format", "atif", "--content"])
        .exits(2)
        .says("--content is for --format otlp");
}

#[test]
fn a_live_run_is_exported_as_far_as_it_has_come() {
    let world = World::with_tools("- {name: note, command: [echo, noted]}");
    world.model_says([call("c", "note", &json!({})), text("done").held()]);
    let live = world.run("go").spawn();
    world.server.wait_for(2);
    let document = &exported(&world, &["atif"])[0];
    is_valid_trajectory(document);
    assert_eq!(document["steps"].as_array().unwrap().len(), 3);
    assert_eq!(document["final_metrics"].get("extra"), None);
    let all = spans(&exported(&world, &["otlp"]));
    assert_eq!(all[0].get("status"), None);
    world.server.release();
    live.wait().exits(0).prints("done\n");
}
