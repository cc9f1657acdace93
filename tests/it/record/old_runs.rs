//! Runs that older engines recorded: how they are shown, and how they go on.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

const ID: &str = "20250926_120006_a1b2c3";

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

/// An event as engines up to 1.3 write it.
fn nested(seq: u64, kind: &str, payload: &Value) -> String {
    let at = format!("2025-09-26T12:00:{:02}.000Z", seq % 60);
    let event = json!({"seq": seq, "timestamp": at, "type": kind, "payload": payload});
    format!("{event}\n")
}

impl World {
    /// The first events of an old run of the agent: two iterations, the second with two actions.
    fn old_events(&self) -> String {
        let agent = self.path("agent");
        [
            nested(
                1,
                "RUN_START",
                &json!({"run_id": ID, "task": "list \"it\"", "agent_ref": agent}),
            ),
            nested(
                2,
                "HOOK_EXECUTION_AUDIT",
                &json!({"hook_name": "pre_llm_req", "status": "SUCCESS"}),
            ),
            nested(
                3,
                "THOUGHT",
                &json!({"content": "I look.", "llm_invocation_ref": "u1"}),
            ),
            nested(
                4,
                "ACTION_REQUEST",
                &json!({"action_id": "a-1", "tool_name": "list",
                "tool_args": {"dir": "."}, "resolved_command": "ls ."}),
            ),
            nested(
                5,
                "ACTION_RESULT",
                &json!({"action_id": "a-1", "status": "SUCCESS",
                "observation_content": "x\ny", "execution_ref": "a-1"}),
            ),
            nested(
                6,
                "THOUGHT",
                &json!({"content": "", "llm_invocation_ref": "u2"}),
            ),
            nested(
                7,
                "ACTION_REQUEST",
                &json!({"action_id": "a-2", "tool_name": "list", "tool_args": {}}),
            ),
            nested(
                8,
                "ACTION_RESULT",
                &json!({"action_id": "a-2", "observation_content": "z"}),
            ),
            nested(
                9,
                "ACTION_REQUEST",
                &json!({"action_id": "a-3", "tool_name": "other", "tool_args": {"n": 1}}),
            ),
        ]
        .concat()
    }

    /// Puts a journal of an old engine into the workspace.
    fn old_workspace(&self, journal: &str) {
        let run = format!("ws/.delta/{ID}");
        self.write("ws/.delta/VERSION", "1.2\n");
        self.write("ws/.delta/LATEST", format!("{ID}\n"));
        self.write(&format!("{run}/journal.jsonl"), journal);
        self.write(
            &format!("{run}/io/invocations/u1/request.json"),
            "{\"n\":1}",
        );
        self.write(&format!("{run}/io/tool_executions/a-1/stdout.log"), "x\ny");
        self.adopt("ws");
    }
}

fn messages(request: &Received) -> Vec<Value> {
    request.messages().split_off(1)
}

fn called(id: &str, tool: &str, arguments: &str) -> Value {
    let function = json!({"name": tool, "arguments": arguments});
    json!({"id": id, "type": "function", "function": function})
}

fn observed(id: &str, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

#[test]
fn an_old_run_is_continued_where_it_was() {
    let world = World::new();
    world.old_workspace(&world.old_events());
    let run = world.latest();
    assert_eq!(run.id(), ID);
    world
        .delta(["request", "-w", "ws", ID])
        .exits(0)
        .prints("{\"n\":1}");

    world.model_says([text("done")]);
    world.go_on().exits(0).prints("done\n");
    let sent = messages(&world.server.last());
    let note = sent[5]["content"].as_str().unwrap();
    assert!(note.contains("has not been run again"), "{note}");
    let first = [called("a-1", "list", "{\"dir\":\".\"}")];
    let both = [
        called("a-2", "list", "{}"),
        called("a-3", "other", "{\"n\":1}"),
    ];
    let expected = [
        json!({"role": "user", "content": "list \"it\""}),
        json!({"role": "assistant", "content": "I look.", "tool_calls": first}),
        observed("a-1", "x\ny"),
        json!({"role": "assistant", "content": "", "tool_calls": both}),
        observed("a-2", "z"),
        observed("a-3", note),
    ];
    assert_eq!(sent, expected);
    assert_eq!(run.ending().0, "COMPLETED");
    assert_eq!(run.metadata()["iterations"], 3);
    // Today's requests stand behind the old ones.
    let newest = world.delta(["request", "-w", "ws", ID]).exits(0);
    assert_eq!(newest.stdout, world.server.last().body);
    let first = world.delta(["request", "-w", "ws", ID, "1"]).end();
    first.exits(0).prints("{\"n\":1}");
    // What was there is still the beginning.
    assert!(run.text("journal.jsonl").starts_with(&world.old_events()));
}

#[test]
fn an_old_run_can_be_continued_from_every_event_on() {
    let world = World::new();
    let events = world.old_events();
    let lines: Vec<&str> = events.split_inclusive('\n').collect();
    for count in 1..=lines.len() {
        let world = World::new();
        // The agent is another world's, and so is named here.
        let journal = lines[..count].concat();
        let journal = journal.replace(
            &*events_home(&events),
            &world.path("agent").to_string_lossy(),
        );
        world.old_workspace(&journal);
        // The server refuses what a strict one would.
        world.model_says([text("done")]);
        world.go_on().exits(0).prints("done\n");
        let said = messages(&world.server.last());
        let task = json!({"role": "user", "content": "list \"it\""});
        assert_eq!(said[0], task, "{count} events");
    }
}

/// The agent's directory that these events name.
fn events_home(events: &str) -> String {
    let first: Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
    first["payload"]["agent_ref"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_that_was_complete_is_continued_with_another_message() {
    let world = World::new();
    let end = [
        nested(
            10,
            "ACTION_RESULT",
            &json!({"action_id": "a-3", "observation_content": "w"}),
        ),
        nested(11, "THOUGHT", &json!({"content": "All listed."})),
        nested(12, "RUN_END", &json!({"status": "COMPLETED"})),
    ];
    world.old_workspace(&(world.old_events() + &end.concat()));
    world.go_on().exits(2).says("COMPLETED");
    world.model_says([text("more")]);
    world.go_on().args(["-m", "and?"]).exits(0).prints("more\n");
    let said = messages(&world.server.last());
    assert_eq!(said.len(), 8);
    assert_eq!(said[6]["content"], "All listed.");
    assert_eq!(said[7], json!({"role": "user", "content": "and?"}));
}

#[test]
fn a_window_over_old_events_keeps_the_task_and_the_newest_iterations() {
    let world = World::new();
    let context = world.read("agent/context.yaml");
    let context = context.replace("{type: journal,", "{type: journal, max_iterations: 1,");
    world.write("agent/context.yaml", context);
    world.old_workspace(&world.old_events());
    world.model_says([text("done")]);
    world.go_on().exits(0);
    let said = messages(&world.server.last());
    assert_eq!(roles(&said), ["user", "assistant", "tool", "tool"]);
    assert_eq!(world.latest().metadata()["iterations"], 3);
}

#[test]
fn flat_events_without_ids_or_calls_are_read_too() {
    let world = World::new();
    let home = world.path("agent");
    let run = "20251013_143522_a1b2c3";
    let at = "2025-10-13T14:35:22.123Z";
    let events = [
        json!({"type": "ENGINE_START", "run_id": run, "timestamp": at, "agent_home": home,
            "work_dir": world.workspace(), "config": {"name": "probe"}}),
        json!({"type": "THOUGHT", "iteration": 1, "timestamp": at, "content": "I look."}),
        json!({"type": "ACTION_REQUEST", "iteration": 1, "timestamp": at, "tool_name": "list",
            "tool_args": {"directory": "."}}),
        json!({"type": "ACTION_RESULT", "iteration": 1, "timestamp": at, "tool_name": "list",
            "observation_content": "a", "exit_code": 0}),
        json!({"type": "ACTION_REQUEST", "iteration": 1, "timestamp": at, "tool_name": "list", "tool_args": {}}),
        json!({"type": "ACTION_RESULT", "iteration": 1, "timestamp": at, "tool_name": "list",
            "observation_content": "b", "exit_code": 0}),
        json!({"type": "THOUGHT", "iteration": 2, "timestamp": at, "content": "I ask."}),
        json!({"type": "HUMAN_INPUT_REQUEST", "timestamp": at, "prompt": "Which?", "input_type": "text"}),
        json!({"type": "HUMAN_INPUT_RECEIVED", "timestamp": at, "response": "this"}),
        json!({"type": "THOUGHT", "iteration": 3, "timestamp": at, "content": "I write."}),
        json!({"type": "ACTION_REQUEST", "iteration": 3, "timestamp": at, "tool_name": "write", "tool_args": {}}),
    ];
    let journal: String = events.iter().map(|event| format!("{event}\n")).collect();
    world.write(&format!("ws/.delta/{run}/journal.jsonl"), journal);
    world.write(
        &format!("ws/.delta/{run}/metadata.json"),
        json!({"run_id": run, "agent_name": "probe", "status": "RUNNING", "initial_message": "go",
            "agent_home": home})
        .to_string(),
    );
    world.write("ws/.delta/LATEST", format!("{run}\n"));
    world.write("ws/.delta/VERSION", "1.2\n");
    world.adopt("ws");
    world.model_says([text("done")]);
    world.go_on().exits(0).prints("done\n");
    let mut said = messages(&world.server.last());
    // Such engines kept the task elsewhere.
    let task = json!({"role": "user", "content": "go"});
    assert_eq!(said.remove(0), task);
    let ids = ["action_3", "action_5", "action_8", "action_11"];
    let two = [
        called(ids[0], "list", "{\"directory\":\".\"}"),
        called(ids[1], "list", "{}"),
    ];
    let one = |id, tool, arguments| [called(id, tool, arguments)];
    assert_eq!(
        said[0],
        json!({"role": "assistant", "content": "I look.", "tool_calls": two})
    );
    assert_eq!(said[1..3], [observed(ids[0], "a"), observed(ids[1], "b")]);
    let question = one(ids[2], "ask_human", "{\"prompt\":\"Which?\"}");
    assert_eq!(said[3]["tool_calls"], json!(question));
    assert_eq!(said[4], observed(ids[2], "this"));
    assert_eq!(said[5]["tool_calls"], json!(one(ids[3], "write", "{}")));
    assert_eq!(said[6]["tool_call_id"], ids[3]);
    assert_eq!(said.len(), 7);
}

#[test]
fn an_action_of_todays_whose_call_was_taken_out_stays_out() {
    let world = World::with_tools("- {name: list, exec: ls}");
    world.model_says([call("c", "list", &json!({})), text("done")]);
    world.run("go").exits(0);
    let run = world.latest();
    let lines = run.journal().into_iter().filter_map(|mut event| {
        if event["type"] == "THOUGHT" && event["iteration"] == 1 {
            event.as_object_mut().unwrap().remove("tool_calls");
            event["content"] = "Nothing to do.".into();
        }
        (event["type"] != "ENGINE_END").then(|| format!("{event}\n"))
    });
    let text_of_journal: String = lines.collect();
    fs::write(run.path("journal.jsonl"), text_of_journal).unwrap();
    world.model_says([text("more")]);
    world.go_on().args(["-m", "on"]).exits(0);
    let said = messages(&world.server.last());
    assert!(
        said.iter()
            .all(|m| m["role"] != "tool" && m["tool_calls"].is_null()),
        "{said:?}"
    );
}
