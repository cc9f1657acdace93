//! From a message to an answer: what reaches stdout and stderr, and the exit code.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

const LIST: &str = "- {name: list_files, exec: 'ls -F ${directory}'}";

#[test]
fn an_answer_is_all_that_stdout_carries() {
    let world = World::new();
    world.model_says([text("Hello.")]);
    world.run("Say hello").exits(0).prints("Hello.\n");
}

#[test]
fn the_model_and_an_endpoint_that_is_not_the_public_one_are_named_at_the_start() {
    let world = World::new();
    world.model_says([text("Hello.")]);
    let outcome = world.run("Say hello").exits(0);
    outcome.says("scripted").says(&world.server.url());
}

#[test]
fn an_answer_is_printed_as_it_is() {
    let world = World::new();
    let answer = "# Title\n\n  – «one»\t\"two\" \\n \u{1f980}\nlast";
    world.model_says([text(answer)]);
    world.run("go").exits(0).prints(&format!("{answer}\n"));
}

#[test]
fn what_a_tool_prints_reaches_the_model_and_not_stdout() {
    let world = World::with_tools(LIST);
    world.write("ws/notes.txt", "");
    world.model_says([
        call("call_1", "list_files", &json!({"directory": "."})),
        text("One file."),
    ]);
    world.run("What is here?").exits(0).prints("One file.\n");
    assert_eq!(
        world.server.last().observation("call_1").trim_end(),
        "notes.txt"
    );
}

#[test]
fn progress_shows_the_words_the_command_its_outcome_and_the_iteration() {
    let world =
        World::with_tools("- {name: fail, shell: 'exit 3'}\n- {name: greet, exec: 'echo ${name}'}");
    let words = json!({"role": "assistant", "content": "I will greet Ada.", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "greet", "arguments": "{\"name\":\"Ada\"}"}},
        {"id": "b", "type": "function", "function": {"name": "fail", "arguments": "{}"}}]});
    world.model_says([message(&words), text("Done.")]);
    let outcome = world.run("go").exits(0).prints("Done.\n");
    outcome
        .says("I will greet Ada.")
        .says("echo Ada")
        .says("3")
        .does_not_say("\u{1b}");
}

#[test]
fn quiet_is_silent_when_all_goes_well() {
    let world = World::with_tools(LIST);
    world.model_says([
        call("call_1", "list_files", &json!({"directory": "."})),
        text("Done."),
    ]);
    let outcome = world.run("go").arg("-q").exits(0).prints("Done.\n");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn quiet_still_says_why_a_run_failed() {
    let world = World::new();
    world.model_says([Reply::error(400, "no such model")]);
    world.run("go").arg("-q").refuses(4, "no such model");
}

/// The keys of an object, in order.
fn keys(object: &Value) -> Vec<&str> {
    object
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect()
}

#[track_caller]
fn has_keys(object: &Value, wanted: &[&str]) {
    let there = keys(object);
    let missing: Vec<_> = wanted.iter().filter(|key| !there.contains(key)).collect();
    assert!(missing.is_empty(), "{missing:?} missing in {object}");
}

#[test]
fn format_json_tells_about_a_completed_run() {
    let world = World::with_tools(LIST);
    world.model_says([
        call("call_1", "list_files", &json!({"directory": "."})),
        text("Done."),
    ]);
    let outcome = world.run("go").json().exits(0);
    let object = outcome.object();
    let run = world.latest();
    assert_eq!(object["schema_version"], "2.0");
    assert_eq!(object["run_id"], run.id());
    assert_eq!(object["status"], "COMPLETED");
    assert_eq!(object["exit_code"], 0);
    assert_eq!(object["result"], "Done.");
    assert!(
        object["stop_reason"].is_null() || object["stop_reason"].is_string(),
        "{object}"
    );
    has_keys(
        &object["metrics"],
        &[
            "iterations",
            "duration_ms",
            "start_time",
            "end_time",
            "usage",
        ],
    );
    assert_eq!(object["metrics"]["iterations"], 2);
    assert_eq!(object["metrics"]["usage"]["prompt_tokens"], 200);
    assert_eq!(object["metrics"]["usage"]["completion_tokens"], 20);
    assert_eq!(object["metrics"]["usage"]["total_tokens"], 220);
    assert_eq!(object["metadata"]["agent_name"], "probe");
    let workspace = world.workspace();
    assert_eq!(
        object["metadata"]["workspace_path"].as_str(),
        workspace.to_str()
    );
    assert!(!keys(&object).contains(&"error"), "{object}");
}

#[test]
fn format_json_tells_about_a_refused_run() {
    let world = World::new();
    world.model_says([Reply::error(404, "no such model")]);
    let object = world
        .run("go")
        .json()
        .exits(4)
        .says("no such model")
        .object();
    assert_eq!(object["status"], "INTERRUPTED");
    assert_eq!(object["exit_code"], 4);
    assert!(object["error"]["type"].is_string(), "{object}");
    let message = object["error"]["message"].as_str().expect("a message");
    assert!(message.contains("no such model"), "{message}");
    assert_eq!(world.latest().ending().0, "INTERRUPTED");
    let error = world.latest().metadata()["error"].to_string();
    assert!(error.contains("no such model"), "{error}");
}

#[test]
fn format_json_tells_about_a_run_that_reached_a_limit() {
    let world = World::with_tools(LIST);
    world.model_says([call("call_1", "list_files", &json!({"directory": "."}))]);
    let delta = world.run("go").args(["--max-iterations", "1"]).json();
    let object = delta.exits(4).object();
    assert_eq!(object["status"], "INTERRUPTED");
    assert_eq!(object["stop_reason"], "max_iterations");
    assert_eq!(object["exit_code"], 4);
}

#[test]
fn format_json_tells_about_a_question() {
    let world = World::new();
    world.model_says([call(
        "call_1",
        "ask_human",
        &json!({"prompt": "Which colour?"}),
    )]);
    let object = world.run("go").json().exits(101).object();
    assert_eq!(object["status"], "WAITING_FOR_INPUT");
    assert_eq!(object["interaction"]["prompt"], "Which colour?");
    assert_eq!(object["interaction"]["input_type"], "text");
    assert_eq!(object["interaction"]["sensitive"], false);
}

#[test]
fn format_json_tells_about_an_agent_that_does_not_load() {
    let world = World::new();
    world.write("agent/agent.yaml", "name: [");
    let object = world.run("go").json().exits(78).object();
    assert_eq!(object["exit_code"], 78);
    assert!(
        object["error"]["message"]
            .to_string()
            .contains("agent.yaml"),
        "{object}"
    );
}

#[test]
fn stdout_is_empty_in_text_format_unless_the_run_completed() {
    let refused = World::new();
    refused.server.says([Reply::error(400, "no")]);
    refused.run("go").exits(4).prints("");

    let limited = World::with_tools(LIST);
    limited.model_says([call("call_1", "list_files", &json!({"directory": "."}))]);
    limited
        .run("go")
        .args(["--max-iterations", "1"])
        .exits(4)
        .prints("");

    let asking = World::new();
    asking.model_says([call("call_1", "ask_human", &json!({"prompt": "Which?"}))]);
    asking.run("go").exits(101).prints("");
}

#[test]
fn the_text_that_comes_with_a_tool_call_is_no_result() {
    let world = World::with_tools(LIST);
    let first = json!({"role": "assistant", "content": "Let me look.", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "list_files", "arguments": "{\"directory\":\".\"}"}}]});
    world.model_says([message(&first), text("Done.")]);
    world.run("go").exits(0).prints("Done.\n");
    let assistant = world.server.last().messages()[2].clone();
    assert_eq!(assistant["content"], "Let me look.");
}

#[test]
fn a_program_can_be_the_model() {
    let answers = [
        call("call_1", "list_files", &json!({"directory": "."})),
        text("Done."),
    ];
    let world = World::with_tools(LIST).program(answers);
    world.run("go").exits(0).prints("Done.\n");
    let run = world.latest();
    let invocations = run.invocations();
    assert_eq!(invocations.len(), 2);
    for (at, invocation) in invocations.iter().enumerate() {
        let request = fs::read(invocation.join("request.json")).unwrap();
        assert_valid_for_api(&request);
        let given = fs::read(world.path(&format!("agent/model/request.{}", at + 1))).unwrap();
        assert_eq!(request, given);
        let response = fs::read(invocation.join("response.json")).unwrap();
        let answer = fs::read(world.path(&format!("agent/model/{}.json", at + 1))).unwrap();
        assert_eq!(response, answer);
    }
}

#[test]
fn a_work_directory_that_is_not_there_is_made() {
    let world = World::new();
    world.model_says([text("Done.")]);
    world
        .delta(["run", "-a", "agent", "-w", "deep/er/ws", "-m", "go"])
        .exits(0);
    assert!(world.exists("deep/er/ws/.delta/LATEST"));
}

#[test]
fn nothing_is_written_into_the_agent_when_a_work_directory_is_given() {
    let world = World::with_tools(LIST);
    let listing = || {
        let entries = fs::read_dir(world.path("agent")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = listing();
    world.model_says([
        call("call_1", "list_files", &json!({"directory": "."})),
        text("Done."),
    ]);
    world.run("go").exits(0);
    assert_eq!(listing(), before);
}

#[test]
fn the_agent_is_the_current_directory_unless_said_otherwise() {
    let world = World::new();
    world.model_says([text("Done.")]);
    let delta = world
        .delta(["run", "-y", "-m", "go"])
        .cwd(world.path("agent"));
    delta.exits(0).prints("Done.\n");
    assert!(world.exists("agent/workspaces/W001/.delta/LATEST"));
}

#[test]
fn a_workspace_may_hold_spaces_quotes_and_unicode_in_its_path() {
    let world = World::with_tools("- {name: where, shell: 'pwd; printf %s \"$CWD\"'}");
    world.model_says([call("call_1", "where", &json!({})), text("Done.")]);
    let name = "a 'b' \"c\" $d ü";
    world
        .delta(["run", "-a", "agent", "-w", name, "-m", "go"])
        .exits(0);
    let path = world.path(name).display().to_string();
    assert_eq!(
        world.server.last().observation("call_1"),
        format!("{path}\n{path}")
    );
}

#[test]
fn a_setting_holds_for_the_run_and_stays_when_it_is_resumed() {
    let world = World::with_tools("- {name: note, exec: 'true'}").llm("temperature: 1");
    let tool = || call("call_1", "note", &json!({}));
    let seen = |world: &World| {
        let request = world.server.last().json();
        (request["temperature"].clone(), request["seed"].clone())
    };
    let stop = ["--max-iterations", "1"];
    let set = ["--set", "llm.temperature=0"];
    world.model_says([tool(), tool(), tool(), text("done")]);
    world.run("go").args(set).args(stop).exits(4);
    assert_eq!(seen(&world), (json!(0), Value::Null));
    world.run("go").args(stop).exits(4);
    assert_eq!(seen(&world), (json!(0), Value::Null));
    // Given later, on top.
    let more = ["--set", "llm.seed=7"];
    world.rerun().args(more).args(stop).exits(4);
    assert_eq!(seen(&world), (json!(0), json!(7)));
    world.go_on().exits(0);
    assert_eq!(seen(&world), (json!(0), json!(7)));
    let metadata = world.latest().metadata();
    assert_eq!(
        metadata["set"],
        json!({"llm.temperature": 0, "llm.seed": 7})
    );

    world.model_says([text("done")]);
    world.run("another").exits(0);
    assert_eq!(
        seen(&world),
        (json!(1), Value::Null),
        "other runs are as the file says"
    );
}

#[test]
fn a_setting_decides_between_a_program_and_a_server() {
    let world = World::new().program([text("a program")]);
    let server = world.server.url();
    world.run("go").exits(0).prints("a program\n");
    world.model_says([text("a server")]);
    world
        .run("go on")
        .args(["--set", "llm.command="])
        .env("DELTA_BASE_URL", &server)
        .exits(0)
        .prints("a server\n");
    // Without a server and a key it is refused as if the file said so.
    world
        .delta([
            "run",
            "-a",
            "agent",
            "-w",
            "none",
            "-m",
            "go",
            "--set",
            "llm.command=",
        ])
        .exits(78)
        .says("no key for https:");
    assert!(!world.exists("none"));
}

#[test]
fn a_setting_that_is_wrong_is_refused_and_nothing_is_created() {
    let world = World::unasked();
    for (setting, words) in [
        (
            "max_iteratons=3",
            "--set max_iteratons: unknown key 'max_iteratons'; did you mean 'max_iterations'?",
        ),
        ("llm.temperature", "not of the form KEY=VALUE"),
    ] {
        let outcome = world.run("go").args(["--set", setting]).exits(2).prints("");
        outcome.says_one_line().says(words);
        assert!(!world.exists("ws"));
    }
}

#[test]
fn a_dry_run_sees_settings() {
    let world = World::unasked();
    let outcome = world
        .run("go")
        .args(["--dry-run", "--set", "llm.top_p=0.5"])
        .exits(0);
    assert_eq!(outcome.object()["top_p"], 0.5);
}

#[test]
fn the_end_says_how_much_of_the_window_is_used_if_that_is_known() {
    let world = World::new();
    world.model_says([text("done"), text("done"), text("done")]);
    let run = |set: &str| world.run("go").args(["--new", "--set", set]).exits(0);
    run("llm.window=1000").says(", 110 tokens, window 11 %\n");
    run("llm.window=0").does_not_say("window");
    run("sync=true").does_not_say("window");
}
