//! A service that pauses in the middle of an answer: the answer is one in the end, whatever happens meanwhile.

use crate::engine::torture::{strace_works, traced};
use crate::harness::services::*;
use crate::harness::steps::*;
use crate::harness::*;
use serde_json::{Value, json};

fn search() -> Value {
    json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}})
}

fn found() -> Value {
    json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []})
}

/// How many blocks of an answer that is not whole a request ends with.
fn unended(request: &Value) -> usize {
    let last = request["messages"].as_array().unwrap().last().unwrap();
    match last["role"] == "assistant" {
        true => last["content"].as_array().unwrap().len(),
        false => 0,
    }
}

/// The parts of an answer: two that end in a pause, and the last one.
fn part(request: &Value) -> Value {
    let mut answer = answer_of(Api::Messages, request, &said(1, 1));
    let (thinking, redacted) = (answer["content"][0].take(), answer["content"][2].take());
    let (content, is_last) = match unended(request) {
        0 => {
            let text = json!({"type": "text", "text": "I search. "});
            (json!([thinking, text, search()]), false)
        }
        // Nothing but what the service does itself.
        3 => (json!([found(), search()]), false),
        _ => {
            let text = json!({"type": "text", "text": "Found."});
            (json!([found(), redacted, text]), true)
        }
    };
    answer["content"] = content;
    if !is_last {
        answer["stop_reason"] = json!("pause_turn");
    }
    answer
}

fn replied(received: &Received) -> Reply {
    let request = received.json();
    let answer = part(&request);
    match request["stream"] == true {
        true => streamed(&stream(Api::Messages, &answer)),
        false => completion(&answer),
    }
}

/// A service that pauses twice within its answer.
fn pausing(stream: bool) -> World {
    let world = world(Api::Messages, stream);
    world.server.answers(replied);
    world
}

fn kinds(blocks: &Value) -> Vec<String> {
    let blocks = blocks.as_array().unwrap().iter();
    blocks
        .map(|it| it["type"].as_str().unwrap().to_owned())
        .collect()
}

const PARTS: [&str; 5] = [
    "thinking",
    "text",
    "server_tool_use",
    "web_search_tool_result",
    "server_tool_use",
];

#[test]
fn a_paused_answer_goes_back_and_is_one_answer_when_it_is_whole() {
    for stream in [false, true] {
        let world = pausing(stream);
        world.run("go").exits(0).prints("I search. Found.\n");
        let run = world.latest();
        let requests = world.server.requests();
        assert_eq!(requests.len(), 3);
        let (first, last) = (requests[0].json(), requests[2].json());
        assert_eq!(first["tools"], last["tools"]);
        assert_eq!(last["messages"][0], first["messages"][0]);
        assert_eq!(kinds(&last["messages"][1]["content"]), PARTS);
        let thoughts = run.events("THOUGHT");
        assert_eq!(thoughts.len(), 1);
        assert_eq!(thoughts[0]["content"], "I search. Found.");
        assert_eq!(thoughts[0]["usage"]["total_tokens"], 330);
        assert_eq!(run.metadata()["usage"]["total_tokens"], 330);
        assert_eq!(kinds(&thoughts[0]["wire"]["items"]).len(), 8);
        world
            .delta(["replay", "-w", "ws", "LATEST"])
            .exits(0)
            .prints("identical: 1 request\n");
        // All of it goes back in later requests, with its thinking.
        world.go_on().args(["-m", "more"]).exits(0);
        let later = world.server.requests()[3].json();
        assert_eq!(kinds(&later["messages"][1]["content"]).len(), 8);
    }
}

#[test]
fn each_part_of_a_recorded_answer_has_its_request() {
    let world = pausing(false);
    world.run("go").exits(0);
    let run = world.latest();
    let dir = run.dir.to_str().unwrap();
    for lenient in [false, true] {
        for (received, invocation) in world.server.requests().iter().zip(run.invocations()) {
            let option = lenient.then_some("--lenient");
            let model = world
                .delta(["model", "replay", dir])
                .args(option)
                .stdin(received.body.clone());
            let recorded = std::fs::read_to_string(invocation.join("response.json")).unwrap();
            model.exits(0).prints(&recorded);
        }
    }
    // The recording is a service that pauses as the one did that was recorded.
    let asked = world.server.requests().len();
    let program = env!("CARGO_BIN_EXE_delta");
    let other = world.llm(&format!("command: ['{program}', model, replay, '{dir}']"));
    let run = other.delta(["run", "-a", "agent", "-w", "other", "-m", "go"]);
    run.exits(0).prints("I search. Found.\n");
    assert_eq!(other.server.requests().len(), asked);
}

#[test]
fn a_part_is_durable_before_the_next_is_asked_for() {
    if !strace_works() {
        return;
    }
    let world = pausing(false);
    let options = ["-y", "-e", "trace=write,fdatasync,sendto", "-o", "trace"];
    traced(&world, &options).exits(0);
    let mut is_durable = false;
    let mut asked = Vec::new();
    for line in world.lines("trace") {
        match line.split_once('(') {
            Some(("write", rest)) if rest.contains("/journal.jsonl>") => is_durable = false,
            Some(("fdatasync", rest)) if rest.contains("/journal.jsonl>") => is_durable = true,
            Some(("sendto", rest)) if rest.contains("\"POST ") => asked.push(is_durable),
            _ => {}
        }
    }
    assert_eq!(asked[1..], [true, true], "{asked:?}");
}

#[test]
fn a_kill_between_two_parts_loses_none_of_them() {
    let whole = pausing(false);
    whole.run("go").exits(0);
    let whole = whole.latest().events("THOUGHT");
    let world = world(Api::Messages, false);
    let mut heard = 0;
    world.server.answers(move |received| {
        heard += 1;
        match heard {
            2 | 4 => replied(received).held(),
            _ => replied(received),
        }
    });
    for asked in [2, 4] {
        let running = world.run("go").spawn();
        world.server.wait_for(asked);
        running.kill();
    }
    world.run("go").exits(0).prints("I search. Found.\n");
    let requests = world.server.requests();
    let blocks: Vec<usize> = requests.iter().map(|it| unended(&it.json())).collect();
    assert_eq!(blocks, [0, 3, 3, 5, 5]);
    let thoughts = world.latest().events("THOUGHT");
    for key in ["content", "usage", "finish_reason", "wire"] {
        assert_eq!(thoughts[0][key], whole[0][key], "{key}");
    }
    world
        .delta(["replay", "-w", "ws", "LATEST"])
        .exits(0)
        .prints("identical: 1 request\n");
}

#[test]
fn what_would_be_sent_next_holds_the_parts_that_have_come() {
    let world = pausing(false).top("limits: {tokens: 100}");
    world.run("go").exits(4);
    let id = world.latest().id();
    let next = world.delta(["request", "-w", "ws", &id, "--next"]).end();
    let next: Value = serde_json::from_slice(&next.exits(0).stdout).unwrap();
    assert_eq!(unended(&next), 3);
    world.go_on().end();
    assert_eq!(world.server.requests()[1].json(), next);
}

#[test]
fn a_service_that_pauses_forever_ends_the_run_and_every_later_start_of_it() {
    let world = world(Api::Messages, false);
    world.server.answers(|received| {
        let mut answer = answer_of(Api::Messages, &received.json(), &said(1, 1));
        answer["content"] = json!([search(), found()]);
        answer["stop_reason"] = json!("pause_turn");
        completion(&answer)
    });
    world
        .run("go")
        .exits(4)
        .says("paused one answer more than 30 times");
    assert_eq!(world.server.requests().len(), 31);
    // Each start asks once, and no more.
    for start in 1..3 {
        world.run("go").exits(4).says("more than 30 times");
        assert_eq!(world.server.requests().len(), 31 + start);
    }
    assert_eq!(world.latest().events("THOUGHT").len(), 0);
}

#[test]
fn limits_and_budgets_hold_within_an_answer() {
    for (limit, reason) in [
        ("limits: {tokens: 200}", "tokens"),
        ("budget: {tokens: 200}", "budget"),
    ] {
        let world = pausing(true).top(limit);
        world.run("go").exits(4);
        assert_eq!(world.server.requests().len(), 2);
        let run = world.latest();
        assert_eq!(run.ending().1.as_deref(), Some(reason));
        assert_eq!(run.events("THOUGHT").len(), 0);
        if reason == "tokens" {
            // A limit is of one start; nothing of the earlier one is paid again.
            world.go_on().exits(0).prints("I search. Found.\n");
        } else {
            world.go_on().exits(4);
            assert_eq!(world.server.requests().len(), 2);
            let more = world.go_on().args(["--budget", "tokens=400"]);
            more.exits(0).prints("I search. Found.\n");
        }
        assert_eq!(world.server.requests().len(), 3);
        let thought = &world.latest().events("THOUGHT")[0];
        assert_eq!(thought["usage"]["total_tokens"], 330);
    }
}

#[test]
fn what_a_person_says_meanwhile_ends_the_answer_that_was_not_whole() {
    let world = pausing(false).top("limits: {tokens: 100}");
    world.run("go").exits(4);
    world.go_on().args(["-m", "something else"]).end();
    let requests = world.server.requests();
    let last = requests[1].json();
    assert_eq!(unended(&last), 0);
    assert!(!last.to_string().contains("I search."), "{last}");
}

/// The service refuses thinking that was made behind something else.
#[test]
fn parts_that_were_made_behind_something_else_go_back_without_their_thinking() {
    let world = pausing(false).top("limits: {tokens: 200}");
    world.run("go").exits(4);
    world.write("agent/system_prompt.md", "You are another test.\n");
    world.go_on().exits(0).prints("I search. Found.\n");
    let last = world.server.last().json();
    assert_eq!(kinds(&last["messages"][1]["content"]), PARTS[1..]);
    // What came behind them keeps its own.
    world.go_on().args(["-m", "more"]).end();
    let last = world.server.last().json();
    let blocks = kinds(&last["messages"][1]["content"]);
    assert_eq!(
        blocks.iter().filter(|it| it.ends_with("thinking")).count(),
        1
    );
    // Another model is asked for the whole answer.
    let world = pausing(false).top("limits: {tokens: 200}");
    world.run("go").exits(4);
    world.go_on().args(["--set", "llm.model=other"]).end();
    assert_eq!(unended(&world.server.requests()[2].json()), 0);
}
