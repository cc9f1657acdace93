//! The record of a run: what is written, in which order, and who may read it.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

const GREET: &str = "- {name: greet, exec: 'echo ${name}'}";

/// Two calls in one message, then an answer.
fn two_greetings() -> World {
    let world = World::with_tools(GREET);
    let wanted = [
        ("call_a", "greet", json!({"name": "Ada"})),
        ("call_b", "greet", json!({"name": "Bob"})),
    ];
    world.model_says([calls(&wanted), text("Greeted.")]);
    world.run("Greet them").exits(0);
    world
}

#[test]
fn events_come_in_the_order_in_which_things_happened() {
    let types = two_greetings().latest().types();
    let wanted = [
        "ENGINE_START",
        "USER_MESSAGE",
        "THOUGHT",
        "ACTION_REQUEST",
        "ACTION_RESULT",
        "ACTION_REQUEST",
        "ACTION_RESULT",
        "THOUGHT",
        "ENGINE_END",
    ];
    assert_eq!(types, wanted);
}

#[test]
fn every_event_begins_with_its_number_time_type_and_iteration() {
    let world = two_greetings();
    let run = world.latest();
    let mut times = Vec::new();
    for (at, event) in run.journal().iter().enumerate() {
        let keys: Vec<_> = event.as_object().unwrap().keys().take(4).cloned().collect();
        assert_eq!(keys, ["seq", "timestamp", "type", "iteration"], "{event}");
        assert_eq!(event["seq"], at + 1);
        assert!(event["iteration"].is_u64(), "{event}");
        let time = event["timestamp"].as_str().unwrap().to_owned();
        assert_rfc3339(&time);
        times.push(time);
    }
    assert!(times.is_sorted(), "{times:?}");
}

/// UTC with milliseconds.
#[track_caller]
fn assert_rfc3339(time: &str) {
    let shape: String = time
        .chars()
        .map(|c| if c.is_ascii_digit() { '9' } else { c })
        .collect();
    assert_eq!(shape, "9999-99-99T99:99:99.999Z", "{time}");
}

#[track_caller]
fn has_fields(event: &Value, names: &[&str]) {
    for name in names {
        assert!(event.get(name).is_some(), "{name} missing in {event}");
    }
}

#[test]
fn the_start_says_what_is_run_where_and_how() {
    let world = two_greetings();
    let run = world.latest();
    let start = &run.events("ENGINE_START")[0];
    assert_eq!(start["run_id"], run.id());
    assert_eq!(start["agent_home"].as_str(), world.path("agent").to_str());
    assert_eq!(start["work_dir"].as_str(), world.workspace().to_str());
    assert_eq!(start["task"], "Greet them");
    assert_eq!(start["resumed"], false);
    assert!(start["pid"].is_u64(), "{start}");
    has_fields(start, &["hostname", "delta_version"]);
    let config = start["config"].to_string();
    for word in ["greet", "scripted", "max_iterations"] {
        assert!(config.contains(word), "{word} missing in {config}");
    }
}

#[test]
fn the_message_and_the_thoughts_are_recorded_as_said() {
    let world = two_greetings();
    let run = world.latest();
    assert_eq!(run.events("USER_MESSAGE")[0]["content"], "Greet them");
    let thoughts = run.events("THOUGHT");
    assert_eq!(thoughts[0]["iteration"], 1);
    assert_eq!(thoughts[0]["finish_reason"], "tool_calls");
    assert_eq!(thoughts[0]["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!(thoughts[1]["iteration"], 2);
    assert_eq!(thoughts[1]["content"], "Greeted.");
    assert_eq!(thoughts[1]["finish_reason"], "stop");
    for thought in &thoughts {
        assert_eq!(thought["model"], "scripted-1", "the model that answered");
        has_fields(thought, &["llm_invocation_ref"]);
    }
}

#[test]
fn a_thought_holds_its_calls_as_they_are_sent_back() {
    let world = two_greetings();
    let sent = &world.server.last().messages()[2]["tool_calls"];
    assert_eq!(&world.latest().events("THOUGHT")[0]["tool_calls"], sent);
}

#[test]
fn requests_and_results_belong_together() {
    let world = two_greetings();
    let run = world.latest();
    let requests = run.events("ACTION_REQUEST");
    let results = run.events("ACTION_RESULT");
    for (request, name) in requests.iter().zip(["Ada", "Bob"]) {
        assert_eq!(request["tool_name"], "greet");
        assert_eq!(request["tool_args"], json!({"name": name}));
        assert_eq!(request["resolved_command"], format!("echo {name}"));
        assert_eq!(request["iteration"], 1);
    }
    for ((request, result), name) in requests.iter().zip(&results).zip(["Ada", "Bob"]) {
        assert_eq!(result["action_id"], request["action_id"]);
        assert_eq!(result["tool_name"], "greet");
        assert_eq!(result["status"], "SUCCESS");
        assert_eq!(result["exit_code"], 0);
        assert_eq!(
            result["observation_content"].as_str().unwrap().trim_end(),
            name
        );
        assert!(result["duration_ms"].is_u64(), "{result}");
        has_fields(result, &["execution_ref"]);
    }
    assert_ne!(requests[0]["action_id"], requests[1]["action_id"]);
}

#[test]
fn the_observation_in_the_journal_is_what_the_model_was_told() {
    let world = two_greetings();
    let told = world.server.last();
    let results = world.latest().events("ACTION_RESULT");
    assert_eq!(
        results[0]["observation_content"],
        told.observation("call_a")
    );
    assert_eq!(
        results[1]["observation_content"],
        told.observation("call_b")
    );
}

#[test]
fn the_end_says_how_it_ended() {
    let world = two_greetings();
    let run = world.latest();
    let end = &run.events("ENGINE_END")[0];
    assert_eq!(end["run_id"], run.id());
    assert_eq!(end["status"], "COMPLETED");
    assert_eq!(end["exit_code"], 0);
    assert_eq!(end["final_iteration"], 2);
    has_fields(end, &["stop_reason"]);
}

#[test]
fn the_resolved_command_can_be_pasted_into_a_shell() {
    let world = World::with_tools("- {name: show, exec: 'printf %s,%s, ${a} ${b}'}");
    let told = world.observe(
        "show",
        &json!({"a": "it's \"$HOME\" `id`\\", "b": "two\nlines; é"}),
    );
    let request = world.latest().events("ACTION_REQUEST").remove(0);
    let line = request["resolved_command"].as_str().unwrap().to_owned();
    // One line for a value of two lines takes $'…', which not every sh knows.
    let shell = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert_eq!(String::from_utf8(shell.stdout).unwrap(), told);
    assert!(!line.contains('\n'), "one line: {line:?}");
}

#[test]
fn an_action_is_in_the_journal_before_it_runs() {
    let world = World::with_tools(
        "- {name: look, shell: 'tail -n 1 \"$DELTA_RUN_DIR/journal.jsonl\"; \
         grep -c ''\"type\":\"THOUGHT\"'' \"$DELTA_RUN_DIR/journal.jsonl\"; echo ${nonce} > /dev/null'}",
    );
    let told = world.observe("look", &json!({"nonce": "n-4711"}));
    let (event, thoughts) = told.trim_end().rsplit_once('\n').unwrap();
    let event: Value = serde_json::from_str(event.trim_end()).unwrap();
    assert_eq!(event["type"], "ACTION_REQUEST");
    assert_eq!(event["tool_args"]["nonce"], "n-4711");
    assert_eq!(thoughts, "1");
}

#[test]
fn a_result_is_in_the_journal_before_the_next_action_runs() {
    let world = World::with_tools(
        "- {name: look, shell: 'grep -c ''\"type\":\"ACTION_RESULT\"'' \"$DELTA_RUN_DIR/journal.jsonl\"'}",
    );
    world.model_says([
        calls(&[("a", "look", json!({})), ("b", "look", json!({}))]),
        text("done"),
    ]);
    world.run("go").exits(0);
    let told = world.server.last();
    let first = told.observation("a");
    assert!(first.starts_with("0\n"), "{first}");
    assert_eq!(told.observation("b").trim_end(), "1");
}

#[test]
fn the_control_plane_is_private_and_ignored_by_git() {
    let world = two_greetings();
    let control = world.path("ws/.delta");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&control), 0o700);
    for file in files_below(&control) {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
        let dir = file.parent().unwrap();
        assert_eq!(mode(dir) & 0o077, 0, "{}", dir.display());
    }
    assert_eq!(world.read("ws/.delta/.gitignore").trim_end(), "*");
}

#[test]
fn a_loose_umask_changes_nothing_about_that() {
    let world = World::with_tools(GREET);
    world.model_says([call("a", "greet", &json!({"name": "Ada"})), text("done")]);
    world.run("go").after("umask 000").exits(0);
    let mode = |name: &str| fs::metadata(world.path(name)).unwrap().mode() & 0o777;
    assert_eq!(mode("ws/.delta"), 0o700);
    assert_eq!(mode("ws/.delta/LATEST"), 0o600);
    let journal = world.latest().path("journal.jsonl");
    assert_eq!(fs::metadata(journal).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn the_control_plane_names_its_version_and_its_newest_run() {
    let world = two_greetings();
    assert_eq!(world.read("ws/.delta/VERSION").trim_end(), "1.2");
    let latest = world.read("ws/.delta/LATEST");
    let id = latest.strip_suffix('\n').expect("one line");
    let shape: String = id
        .chars()
        .map(|c| if c.is_ascii_hexdigit() { 'x' } else { c })
        .collect();
    assert_eq!(shape, "xxxxxxxx_xxxxxx_xxxxxx", "{id}");
    assert!(
        world
            .path(&format!("ws/.delta/{id}/journal.jsonl"))
            .is_file()
    );
    assert!(
        fs::symlink_metadata(world.path("ws/.delta/LATEST"))
            .unwrap()
            .is_file()
    );
}

#[test]
fn metadata_sums_the_run_up() {
    let world = two_greetings();
    let run = world.latest();
    let metadata = run.metadata();
    assert_eq!(metadata["run_id"], run.id());
    assert_eq!(metadata["agent_name"], "probe");
    assert_eq!(metadata["status"], "COMPLETED");
    assert_eq!(metadata["initial_message"], "Greet them");
    assert_eq!(metadata["iterations"], 2);
    assert_eq!(metadata["max_iterations"], 30);
    assert_eq!(metadata["error"], Value::Null);
    assert_eq!(metadata["exit_code"], 0);
    assert_eq!(
        metadata["agent_home"].as_str(),
        world.path("agent").to_str()
    );
    assert_eq!(metadata["work_dir"].as_str(), world.workspace().to_str());
    assert_eq!(metadata["parent_run_id"], Value::Null);
    assert_eq!(metadata["result"], "Greeted.");
    let usage =
        json!({"prompt_tokens": 200, "completion_tokens": 20, "total_tokens": 220, "llm_calls": 2});
    assert_eq!(metadata["usage"], usage);
    for time in ["created_at", "start_time", "updated_at", "end_time"] {
        assert_rfc3339(metadata[time].as_str().unwrap_or(time));
    }
    has_fields(
        &metadata,
        &[
            "workspace_id",
            "stop_reason",
            "pid",
            "hostname",
            "delta_version",
        ],
    );
    assert_eq!(run.ending().0, "COMPLETED");
}

#[test]
fn metadata_of_a_live_run_says_running() {
    let world = World::with_tools(
        "- {name: look, shell: 'cat \"$DELTA_RUN_DIR/metadata.json\"; echo; echo $PPID'}",
    );
    let told = world.observe("look", &json!({}));
    let (metadata, pid) = told.trim_end().rsplit_once('\n').unwrap();
    let metadata: Value = serde_json::from_str(metadata).unwrap();
    assert_eq!(metadata["status"], "RUNNING");
    assert_eq!(metadata["pid"].to_string(), pid);
    assert_eq!(metadata["end_time"], Value::Null);
}

#[test]
fn a_live_run_is_locked() {
    let world = World::with_tools(
        "- {name: try, shell: 'flock -n \"$DELTA_RUN_DIR/journal.jsonl\" echo free || echo locked'}",
    );
    assert_eq!(world.observe("try", &json!({})).trim_end(), "locked");
    let journal = world.latest().path("journal.jsonl");
    let free = Command::new("flock")
        .arg("-n")
        .arg(journal)
        .arg("true")
        .status()
        .unwrap();
    assert!(free.success(), "free when it is over");
}

#[test]
fn of_the_environment_a_tool_declares_only_names_are_recorded() {
    let world = World::with_tools("- {name: quiet, exec: 'true', env: {PASSPHRASE: hunter2}}");
    world.observe("quiet", &json!({}));
    let journal = world.latest().text("journal.jsonl");
    assert!(journal.contains("PASSPHRASE"), "{journal}");
    assert!(!journal.contains("hunter2"), "{journal}");
}

#[test]
fn a_journal_line_is_one_line_whatever_a_tool_prints() {
    let world = World::with_tools("- {name: show, exec: 'printf %s ${words}'}");
    let words = "a\nb\r\n\u{2028}\u{2029}\u{85}\"\\\t\u{1b}\u{7f}é🦀";
    assert_eq!(world.observe("show", &json!({"words": words})), words);
    assert_eq!(world.latest().result(1)["observation_content"], words);
    assert_eq!(
        world.latest().text("journal.jsonl").split('\n').count(),
        world.latest().journal().len() + 1
    );
}
