//! `examples/drivers`: a run as the events of other programs, line by line.

use crate::engine::later::{BUILD, let_time_pass};
use crate::harness::services::{Api, HERE, Said, answer_of, streaming, text_stream};
use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;

const TOOLS: &str = "\
- {name: say, exec: 'echo ${word}'}
- {name: write, exec: 'tee ${path}', stdin: content, confirm: true}
- {name: files_get, command: [delta, mcp, call, files, get], input: json}";

fn source(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("examples/drivers")
        .join(name)
        .display()
        .to_string()
}

impl World {
    fn driven(&self, driver: &str, words: &[&str], prompt: &str) -> Delta {
        std::fs::create_dir_all(self.workspace()).unwrap();
        Delta::of(source(driver), self.home())
            .args(words)
            .cwd(self.workspace())
            .env("PATH", path())
            .env("DELTA_AGENT", self.path("agent"))
            .stdin(prompt)
    }
}

fn lines(outcome: &Outcome) -> Vec<Value> {
    let text = String::from_utf8(outcome.stdout.clone()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn say(reasoning: &str) -> Reply {
    message(&json!({
        "role": "assistant", "content": "I say it", "reasoning_content": reasoning,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "say", "arguments": "{\"word\":\"hi\"}"}}],
    }))
}

fn write(id: &str) -> Reply {
    call(id, "write", &json!({"path": "a", "content": "x"}))
}

#[test]
fn codex_has_a_thread_of_turns_with_the_same_items_each_time() {
    if !installed(&["jq"]) {
        return;
    }
    let world = World::with_tools(TOOLS);
    world.model_says([
        say("hm"),
        text("done"),
        write("c2"),
        text("no more"),
        write("c3"),
        text("written"),
    ]);
    let first = world.driven(
        "codex/codex",
        &[
            "exec",
            "--experimental-json",
            "--model",
            "m",
            "--sandbox",
            "read-only",
        ],
        "go",
    );
    let printed = lines(&first.exits(0));
    let thread = world.latest().id();
    let usage = |turns: u64| {
        json!({
            "input_tokens": 100 * turns, "cached_input_tokens": 0, "cache_write_input_tokens": 0,
            "output_tokens": 10 * turns, "reasoning_output_tokens": 0,
        })
    };
    let item = |item: Value| json!({"type": "item.completed", "item": item});
    let command = json!({"id": "item_2", "type": "command_execution", "command": "echo hi"});
    let with = |more: Value| {
        let mut item = command.clone();
        item.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        item
    };
    assert_eq!(
        printed,
        [
            json!({"type": "thread.started", "thread_id": thread}),
            json!({"type": "turn.started"}),
            item(json!({"id": "item_0", "type": "reasoning", "text": "hm"})),
            item(json!({"id": "item_1", "type": "agent_message", "text": "I say it"})),
            json!({"type": "item.started", "item": with(json!({"aggregated_output": "", "status": "in_progress"}))}),
            item(with(
                json!({"aggregated_output": "hi\n", "exit_code": 0, "status": "completed"})
            )),
            item(json!({"id": "item_3", "type": "agent_message", "text": "done"})),
            json!({"type": "turn.completed", "usage": usage(2)}),
        ]
    );
    assert_eq!(world.server.last().json()["model"], "m");

    let resume = [
        "exec",
        "--json",
        "--cd",
        ".",
        "--skip-git-repo-check",
        "resume",
        &thread,
    ];
    let question = lines(&world.driven("codex/codex", &resume, "more").exits(0));
    assert_eq!(question[2]["item"]["id"], "item_4");
    assert_eq!(question[2]["item"]["type"], "error");
    assert_eq!(question[3]["type"], "turn.failed");
    assert_eq!(question.len(), 4);
    let refused = lines(&world.driven("codex/codex", &resume, "no").exits(0));
    let call = &refused[2]["item"];
    assert_eq!(
        (&call["id"], &call["status"]),
        (&json!("item_5"), &json!("failed"))
    );
    assert_eq!(call.get("exit_code"), None);
    assert_eq!(refused.last().unwrap()["usage"], usage(4));
    world.driven("codex/codex", &resume, "write").exits(0);
    let written = lines(&world.driven("codex/codex", &resume, "yes").exits(0));
    let kinds: Vec<&Value> = written.iter().map(|it| &it["item"]["type"]).collect();
    assert_eq!(
        kinds[2..6],
        [
            "command_execution",
            "command_execution",
            "file_change",
            "agent_message"
        ]
    );
    let change = json!([{"path": "a", "kind": "update"}]);
    assert_eq!(written[4]["item"]["changes"], change);
}

#[test]
fn codex_says_what_cannot_start_and_what_ends_early() {
    if !installed(&["jq"]) {
        return;
    }
    let world = World::with_tools(TOOLS).top("max_iterations: 1");
    world.model_says([say("")]);
    let limited = lines(
        &world
            .driven("codex/codex", &["exec", "--json", "go"], "")
            .exits(0),
    );
    assert_eq!(limited.last().unwrap()["type"], "turn.failed");
    let none = world
        .driven("codex/codex", &["exec", "--json", "resume", "none"], "go")
        .exits(1);
    let none = lines(&none);
    assert_eq!(none[0]["type"], "error");
    assert_eq!(none.len(), 1);
    world
        .driven("codex/codex", &["exec", "--nonsense"], "go")
        .refuses(2, "--nonsense");
    world
        .driven("codex/codex", &["login"], "go")
        .refuses(2, "only exec");
}

#[test]
fn claude_has_a_line_for_each_message() {
    if !installed(&["jq"]) {
        return;
    }
    let world = World::with_tools(TOOLS);
    world.model_says([say("hm"), text("done"), write("c2"), text("no more")]);
    let user = |text: &str| json!({"type": "user", "message": {"role": "user", "content": text}});
    let input = format!(
        "{}\n{}\n{}\n{}\n",
        json!({"type": "control_request", "request_id": "r", "request": {"subtype": "initialize"}}),
        user("go"),
        json!({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "write"}]}}),
        user("no"),
    );
    let words = [
        "--output-format",
        "stream-json",
        "--verbose",
        "--input-format",
        "stream-json",
        "--setting-sources=",
    ];
    let printed = lines(&world.driven("claude/claude", &words, &input).exits(0));
    let run = world.latest().id();
    let kinds: Vec<String> = printed
        .iter()
        .map(|it| {
            let word = |name: &str| it[name].as_str().unwrap_or_default().to_owned();
            format!("{} {}", word("type"), word("subtype"))
                .trim_end()
                .to_owned()
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "control_response",
            "system init",
            "assistant",
            "user",
            "assistant",
            "result success",
            "system init",
            "assistant",
            "result error_during_execution",
            "system init",
            "system permission_denied",
            "user",
            "assistant",
            "result success",
        ]
    );
    let mut ids: Vec<&str> = printed[1..]
        .iter()
        .map(|it| it["uuid"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(
        ids.len(),
        printed.len() - 1,
        "each line has an id of its own"
    );
    assert!(printed[1..].iter().all(|it| it["session_id"] == run));
    assert_eq!(printed[1]["tools"], json!(["say", "write", "files_get"]));
    let content = &printed[2]["message"]["content"];
    assert_eq!(
        content[0],
        json!({"type": "text", "text": "I say it", "citations": null})
    );
    assert_eq!(
        content[1],
        json!({"type": "tool_use", "id": "c1", "name": "say", "input": {"word": "hi"}})
    );
    assert_eq!(printed[2]["message"]["stop_reason"], "tool_use");
    let result = &printed[3]["message"]["content"][0];
    assert_eq!(
        *result,
        json!({"type": "tool_result", "tool_use_id": "c1", "content": "hi\n", "is_error": false})
    );
    assert_eq!(printed[5]["result"], "done");
    assert_eq!(printed[5]["num_turns"], 2);
    let usage = printed[5]["usage"].as_object().unwrap();
    let unknown: Vec<&String> = usage.keys().filter(|it| usage[*it].is_null()).collect();
    assert_eq!(unknown, ["fallback_credit"], "the others must have a value");
    assert!(
        printed[8]["errors"][0]
            .as_str()
            .unwrap()
            .contains("'--question'")
    );
    assert_eq!(printed[13]["permission_denials"][0]["tool_use_id"], "c2");
}

#[test]
fn claude_names_the_limit_that_ended_a_turn() {
    if !installed(&["jq"]) {
        return;
    }
    let world = World::with_tools(TOOLS);
    world.model_says([say("")]);
    let words = [
        "-p",
        "go",
        "--output-format",
        "stream-json",
        "--max-turns",
        "1",
        "--model",
        "m",
    ];
    let printed = lines(&world.driven("claude/claude", &words, "").exits(0));
    let last = printed.last().unwrap();
    assert_eq!(last["subtype"], "error_max_turns");
    assert_eq!(last["terminal_reason"], "max_turns");
    assert_eq!(last["is_error"], true);
    assert_eq!(world.server.last().json()["model"], "m");
}

#[test]
fn output_that_looks_like_a_refusal_is_none() {
    if !installed(&["jq"]) {
        return;
    }
    let world = World::with_tools("- {name: ask, exec: 'echo denied: by the server'}");
    world.model_says([call("c1", "ask", &json!({})), text("done")]);
    let printed = lines(&world.driven("claude/claude", &["-p", "go"], "").exits(0));
    assert!(
        printed
            .iter()
            .all(|it| it["subtype"] != "permission_denied")
    );
    assert_eq!(printed.last().unwrap()["permission_denials"], json!([]));
}

#[test]
fn a_signal_ends_claude_with_its_turn_and_leaves_no_file() {
    if !installed(&["jq"]) {
        return;
    }
    let world = World::new();
    world.model_says([streaming(&text_stream(&["one ", "two"], None)).pauses_behind(HERE)]);
    let scratch = world.path("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let words = ["--input-format=stream-json", "--include-partial-messages"];
    let driven = world.driven("claude/claude", &words, "").open_stdin();
    let mut running = driven.env("TMPDIR", &scratch).spawn();
    let user = json!({"type": "user", "message": {"role": "user", "content": "go"}});
    running.type_in(&format!("{user}\n"));
    eventually("text arrives", || running.stdout().contains("stream_event"));
    running.signal(Signal::TERM);
    let printed = lines(&running.wait().exits(0));
    assert_eq!(
        printed.last().unwrap()["errors"],
        json!(["ended by SIGINT"])
    );
    assert!(std::fs::read_dir(&scratch).unwrap().next().is_none());
}

#[test]
fn without_jq_no_run_begins() {
    let world = World::unasked();
    for (driver, words) in [("codex/codex", "exec"), ("claude/claude", "-p")] {
        let driven = world.driven(driver, &[words, "go"], "");
        driven
            .env("PATH", world.home())
            .refuses(127, "jq is missing");
    }
}

#[test]
fn follow_has_the_exit_status_of_the_run_and_fails_without_one() {
    if !installed(&["jq"]) {
        return;
    }
    let world = World::new();
    world.model_says([text("done")]);
    let follow = |word: &str| {
        let words = ["-a", "../agent", "-w", ".", word];
        world.driven("follow.sh", &words, "").end()
    };
    let followed = follow("go").exits(0);
    assert!(followed.stdout.ends_with(b"COMPLETED: final_answer\n"));
    follow("--nonsense").exits(1).says("unknown option");
}

#[test]
fn both_show_a_call_that_ends_later_and_claude_a_word_to_the_run() {
    if !installed(&["jq"]) {
        return;
    }
    let world = World::with_tools(BUILD);
    let build = call("c1", "build", &json!({"branch": "main"}));
    world.model_says([build, text("done")]).may_stay_unasked();
    let printed = lines(
        &world
            .driven("codex/codex", &["exec", "--json", "go"], "")
            .exits(0),
    );
    let [.., later, end] = &printed[..] else {
        panic!("{printed:?}");
    };
    assert_eq!(later["item"]["message"], "ci-7 ends later");
    let why = end["error"]["message"].as_str().unwrap();
    assert!(why.contains("waits for build (ci-7)"), "{end}");

    let (run, id) = (world.latest(), world.latest().id());
    let resume = |message: &str| {
        let words = ["-p", message, "--resume", &id];
        lines(&world.driven("claude/claude", &words, "").exits(0))
    };
    let early = resume("early");
    assert_eq!(early.last().unwrap()["terminal_reason"], "tool_deferred");
    let_time_pass(&run, &["due_at"]);
    world.write("said", "all green\n");
    world.write("code", "0");
    let words = ["tell", "-w", "ws", "--run-id", &id, "a word"];
    world.delta(words).exits(0);
    let printed = resume("and now?");
    let result = &printed[1]["message"]["content"][0];
    assert_eq!(
        (&result["tool_use_id"], &result["content"]),
        (&json!("c1"), &json!("all green\n"))
    );
    let word = printed.iter().find(|it| it["isReplay"] == true).unwrap();
    assert_eq!(word["message"]["content"], "a word");
    assert_eq!(printed.last().unwrap()["result"], "done");
}

#[test]
fn partial_messages_of_claude_say_when_an_attempt_is_repeated() {
    if !installed(&["jq"]) {
        return;
    }
    let world = World::new().llm("max_retries: 3");
    let broken = text_stream(&["lost ", "words"], None);
    let broken = broken.split_once("words").unwrap().0.to_owned();
    let whole = text_stream(&["one ", "two"], None);
    world.model_says([streaming(&broken), streaming(&whole)]);
    let words = ["-p", "go", "--include-partial-messages"];
    let printed = lines(&world.driven("claude/claude", &words, "").exits(0));
    let shown = printed.iter().filter_map(|it| {
        let is_retry = it["subtype"] == "api_retry";
        let text = it["event"]["delta"]["text"].as_str();
        is_retry.then_some("again").or(text)
    });
    assert_eq!(shown.collect::<Vec<_>>(), ["lost ", "again", "one ", "two"]);
    let retry = printed.iter().find(|it| it["subtype"] == "api_retry");
    let retry = retry.unwrap();
    assert_eq!([&retry["attempt"], &retry["max_retries"]], [1, 3]);
}

#[test]
fn costs_and_cached_tokens_are_those_of_the_run() {
    if !installed(&["jq"]) {
        return;
    }
    let world = World::new()
        .llm("window: 1000")
        .top("pricing: {input: 10000, output: 0, cached: 5000}");
    let said = Said {
        text: "done".to_owned(),
        ..Said::default()
    };
    let reply = || completion(&answer_of(Api::Chat, &Value::Null, &said));
    world.model_says([reply(), reply()]);
    let words = ["exec", "--json", "go"];
    let printed = lines(&world.driven("codex/codex", &words, "").exits(0));
    assert_eq!(printed.last().unwrap()["usage"]["cached_input_tokens"], 60);
    let printed = lines(&world.driven("claude/claude", &["-p", "go"], "").exits(0));
    let result = printed.last().unwrap();
    assert_eq!(result["total_cost_usd"], 0.7);
    let models = result["modelUsage"].as_object().unwrap();
    assert_eq!(
        models.values().next().unwrap(),
        &json!({
            "inputTokens": 40, "outputTokens": 10, "cacheReadInputTokens": 60, "cacheCreationInputTokens": 0,
            "webSearchRequests": 0, "costUSD": 0.7, "contextWindow": 1000, "maxOutputTokens": 0,
        })
    );
}
