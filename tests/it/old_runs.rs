//! Runs that older engines recorded: how they are shown, and how they go on.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

/// A run called `old` with this journal, as an engine of version 1.9 leaves it beside metadata that name
/// neither their times nor a result.
fn recorded(status: &str, events: &[Value]) -> World {
    let world = World::new();
    world.model_says([text("new")]);
    world.run("go").args(["--run-id", "old"]).exits(0);
    let run = world.latest();
    for name in ["io", "engine.log", "sandbox.txt"] {
        fs::remove_dir_all(run.path(name))
            .or_else(|_| fs::remove_file(run.path(name)))
            .ok();
    }
    let lines: Vec<String> = events.iter().map(|event| format!("{event}\n")).collect();
    fs::write(run.path("journal.jsonl"), lines.concat()).unwrap();
    let agent = world.path("agent").canonicalize().unwrap();
    let metadata = json!({"run_id": "old", "agent_name": "probe", "agent_home": agent, "status": status,
        "initial_message": "go", "work_dir": world.workspace()});
    fs::write(run.path("metadata.json"), metadata.to_string()).unwrap();
    world
}

fn start() -> Value {
    json!({"type": "ENGINE_START", "timestamp": "2025-10-13T14:35:22.123Z", "run_id": "old",
        "config": {"name": "probe"}})
}

fn thought(content: &str) -> Value {
    json!({"type": "THOUGHT", "iteration": 1, "timestamp": "2025-10-13T14:35:23.123Z", "content": content})
}

fn end() -> Value {
    json!({"type": "ENGINE_END", "timestamp": "2025-10-13T14:35:24.123Z", "run_id": "old",
        "status": "COMPLETED", "final_iteration": 1})
}

/// An open call of the built-in tool.
fn asking() -> Value {
    json!({"type": "ACTION_REQUEST", "iteration": 1, "action_id": "a1", "tool_name": "ask_human",
        "tool_args": {"prompt": "Remove it?", "input_type": "confirmation"}})
}

#[test]
fn an_end_without_a_result_means_the_last_thought_without_calls() {
    let world = recorded(
        "COMPLETED",
        &[start(), thought("first"), thought("the answer"), end()],
    );
    let again = world.rerun().args(["--run-id", "old"]);
    again.exits(0).prints("the answer\n");
}

#[test]
fn a_success_without_an_exit_code_is_shown_as_one() {
    let wrapped = |seq: u32, kind: &str, payload: Value| json!({"seq": seq, "timestamp": "2025-09-26T10:35:35.123Z", "type": kind, "payload": payload});
    let action =
        json!({"action_id": "u1", "tool_name": "list", "tool_args": {}, "resolved_command": "ls"});
    let result = json!({"action_id": "u1", "status": "SUCCESS", "observation_content": "a.txt",
        "execution_ref": "u1"});
    let world = recorded(
        "COMPLETED",
        &[
            wrapped(
                1,
                "RUN_START",
                json!({"run_id": "old", "task": "go", "agent_ref": "/a"}),
            ),
            wrapped(2, "THOUGHT", json!({"content": "look"})),
            wrapped(3, "ACTION_REQUEST", action),
            wrapped(4, "ACTION_RESULT", result),
            wrapped(5, "RUN_END", json!({"status": "COMPLETED"})),
        ],
    );
    let log = world.delta(["log", "-w", "ws", "old"]).exits(0);
    let shown = String::from_utf8(log.stdout).unwrap();
    assert!(shown.contains("ok\n") && shown.contains("a.txt"), "{shown}");
    assert!(!shown.contains("interrupted"), "{shown}");
}

#[test]
fn a_result_with_an_exit_code_alone_is_shown() {
    let action =
        json!({"type": "ACTION_REQUEST", "iteration": 1, "tool_name": "list", "tool_args": {}});
    let result = json!({"type": "ACTION_RESULT", "iteration": 1, "tool_name": "list", "exit_code": 0,
        "observation_content": "a.txt"});
    let events = [start(), thought("look"), action, result, end()];
    let world = recorded("COMPLETED", &events);
    let log = world.delta(["log", "-w", "ws", "old"]).exits(0);
    let shown = String::from_utf8(log.stdout).unwrap();
    assert!(shown.contains("ok\n") && shown.contains("a.txt"), "{shown}");
}

#[test]
fn the_list_knows_the_age_of_an_old_run() {
    let world = recorded("COMPLETED", &[start(), thought("done"), end()]);
    let list = world.delta(["list-runs", "-w", "ws"]).exits(0);
    let shown = String::from_utf8(list.stdout).unwrap();
    assert!(
        shown.contains("COMPLETED") && !shown.contains('?'),
        "{shown}"
    );
}

#[test]
fn a_message_that_only_the_metadata_or_the_start_has_comes_first() {
    for has_task in [false, true] {
        let mut first = start();
        if has_task {
            first["task"] = json!("go");
        }
        let events = [
            first,
            thought("look"),
            asking(),
            json!({"type": "ACTION_RESULT", "action_id": "a1",
            "tool_name": "ask_human", "observation_content": "yes", "exit_code": 0}),
        ];
        let world = recorded("INTERRUPTED", &events);
        world.model_says([text("done")]);
        world
            .go_on()
            .args(["--run-id", "old"])
            .exits(0)
            .prints("done\n");
        let messages = world.server.last().messages();
        let roles: Vec<&Value> = messages.iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool"]);
        assert_eq!(messages[1]["content"], "go");
    }
}

#[test]
fn an_answer_to_a_question_without_an_id_is_read() {
    let question =
        json!({"type": "HUMAN_INPUT_REQUEST", "prompt": "Which colour?", "input_type": "text"});
    let world = recorded("WAITING_FOR_INPUT", &[start(), thought("ask"), question]);
    let run = world.latest();
    fs::create_dir(run.path("interaction")).unwrap();
    let asked = json!({"request_id": "5e", "prompt": "Which colour?", "input_type": "text"});
    fs::write(run.path("interaction/request.json"), asked.to_string()).unwrap();
    fs::write(run.path("interaction/response.txt"), "blue\n").unwrap();
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    let told = world.server.last().messages().pop().unwrap();
    assert_eq!(told["content"], "blue");
}

#[test]
fn an_open_action_of_the_built_in_tool_is_a_question() {
    for answer in ["message", "file"] {
        let world = recorded("INTERRUPTED", &[start(), thought("ask"), asking()]);
        let list = world.delta(["list-runs", "-w", "ws", "--resumable"]);
        let list = list.exits(0);
        assert!(
            list.describe().contains("WAITING_FOR_INPUT"),
            "{}",
            list.describe()
        );
        let asked = world.go_on().args(["--run-id", "old"]).end();
        asked.exits(101).says("Remove it?");
        let left = world.latest().path("interaction/request.json");
        let left: Value = serde_json::from_slice(&fs::read(left).unwrap()).unwrap();
        assert_eq!(
            (&left["prompt"], &left["input_type"]),
            (&json!("Remove it?"), &json!("confirmation"))
        );
        world.model_says([text("done")]);
        let go_on = world.go_on().args(["--run-id", "old"]);
        if answer == "file" {
            fs::write(world.latest().path("interaction/response.txt"), "no\n").unwrap();
            go_on.exits(0);
        } else {
            go_on.args(["-m", "no"]).exits(0);
        }
        let told = world.server.last().messages().pop().unwrap();
        assert_eq!(
            (&told["role"], &told["content"]),
            (&json!("tool"), &json!("no"))
        );
    }
}

#[test]
fn commands_that_need_an_agent_that_has_moved_ask_for_its_directory() {
    let world = World::new();
    world.model_says([text("done"), text("more")]);
    world.run("go").args(["--run-id", "first"]).end();
    let agent = world.path("agent").canonicalize().unwrap();
    fs::rename(&agent, world.path("moved")).unwrap();
    let gone = format!(
        "the agent of run first is no longer at {}; give its directory with -a DIR\n",
        agent.display()
    );
    let commands: [&[&str]; 4] = [
        &["continue", "-m", "And now?"],
        &["fork", "LATEST", "--at", "0"],
        &["replay", "LATEST"],
        &["request", "LATEST", "--next"],
    ];
    for command in commands {
        world
            .delta(command.iter().copied())
            .args(["-w", "ws"])
            .exits(78)
            .says(&gone);
    }
    let named = ["continue", "-w", "ws", "-m", "And now?", "-a", "moved"];
    world.delta(named).exits(0).prints("more\n");
}

#[test]
fn a_call_without_a_command_is_logged_with_its_tool_and_arguments() {
    let action = json!({"type": "ACTION_REQUEST", "iteration": 1, "tool_name": "list",
        "tool_args": {"directory": "a b"}});
    let result =
        json!({"type": "ACTION_RESULT", "iteration": 1, "tool_name": "list", "exit_code": 0});
    let world = recorded(
        "COMPLETED",
        &[start(), thought("look"), action, result, end()],
    );
    let log = world.delta(["log", "-w", "ws", "old"]).exits(0);
    let shown = String::from_utf8(log.stdout).unwrap();
    assert!(
        shown.contains("$ list {\"directory\":\"a b\"}\n"),
        "{shown}"
    );
}
