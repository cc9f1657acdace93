//! What ends a run that could go on: the same command resumes it, the reason is in all four places.

use crate::harness::*;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

const NOTE: &str = "- {name: note, shell: 'echo ${n} >> ../log'}";

fn note(n: usize) -> Reply {
    call(&format!("call_{n}"), "note", &json!({"n": n.to_string()}))
}

/// The exit code that belongs to the reason, and the same reason in the journal, in metadata, on stdout and, in words, on stderr.
#[track_caller]
fn stops(world: &World, delta: Delta, reason: &str) {
    let code = match reason {
        "disk_full" | "model_unavailable" => 75,
        _ => 4,
    };
    let outcome = delta.json().exits(code);
    let object = outcome.object();
    assert_eq!(object["status"], "INTERRUPTED", "{object}");
    assert_eq!(object["stop_reason"], reason);
    assert_eq!(object["exit_code"], code);
    let ending = world.latest().ending();
    assert_eq!(ending, ("INTERRUPTED".to_owned(), Some(reason.to_owned())));
    let words = object["error"]["message"].as_str().expect("a message");
    outcome.says(words);
}

#[test]
fn max_iterations_stops_and_the_same_command_has_as_many_again() {
    let world = World::with_tools(NOTE).top("max_iterations: 2");
    world.model_says((1..=4).map(note));
    stops(&world, world.run("go"), "max_iterations");
    assert_eq!(world.server.requests().len(), 2);
    assert_eq!(world.lines("log"), ["1", "2"]);
    stops(&world, world.run("go"), "max_iterations");
    assert_eq!(world.lines("log"), ["1", "2", "3", "4"]);
    assert_eq!(world.latest().metadata()["iterations"], 4);
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.latest().metadata()["iterations"], 5);
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn an_answer_in_the_last_iteration_allowed_is_an_answer() {
    let world = World::with_tools(NOTE).top("max_iterations: 2");
    world.model_says([note(1), text("done")]);
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn the_option_wins_over_the_agents_limit() {
    let world = World::with_tools(NOTE).top("max_iterations: 1");
    world.model_says([note(1), note(2), text("done")]);
    world
        .run("go")
        .args(["--max-iterations", "3"])
        .exits(0)
        .prints("done\n");
}

#[test]
fn tokens_are_counted_for_one_start() {
    let world = World::with_tools(NOTE).top("limits: {tokens: 200}");
    world.model_says((1..=4).map(note));
    stops(&world, world.run("go"), "tokens");
    assert_eq!(world.server.requests().len(), 2);
    stops(&world, world.run("go"), "tokens");
    assert_eq!(world.server.requests().len(), 4);
    assert_eq!(world.latest().metadata()["usage"]["total_tokens"], 440);
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.lines("log"), ["1", "2", "3", "4"]);
}

#[test]
fn seconds_are_counted_for_one_start() {
    let world = World::with_tools("- {name: nap, shell: 'sleep 3.1'}").top("limits: {seconds: 3}");
    world.model_says([call("a", "nap", &json!({}))]);
    stops(&world, world.run("go"), "seconds");
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn retries_used_up_make_the_model_unavailable() {
    let world = World::with_tools(NOTE).llm("max_retries: 1");
    world.model_says([
        note(1),
        Reply::error(500, "oh no"),
        Reply::error(500, "oh no"),
    ]);
    stops(&world, world.run("go"), "model_unavailable");
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.lines("log"), ["1"]);
}

#[test]
fn a_request_that_the_disk_has_no_room_for_stops_the_run() {
    let world = World::with_tools(NOTE);
    world.write("agent/system_prompt.md", "x".repeat(60_000));
    // In blocks of 512 or 1024 bytes.
    stops(&world, world.run("go").after("ulimit -f 40"), "disk_full");
    assert!(world.server.requests().is_empty());
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn an_action_whose_request_cannot_be_journalled_does_not_run() {
    let world = World::with_tools("- {name: note, shell: 'echo ${n} >> ../log; : ${padding}'}");
    // The journal holds each argument twice, the request once: the journal is full first.
    let padding = "p".repeat(900);
    world.server.answers(move |request| {
        let n = request
            .messages()
            .iter()
            .filter(|m| m["role"] == "assistant")
            .count();
        if n < 60 {
            call(
                &format!("call_{n}"),
                "note",
                &json!({"n": n.to_string(), "padding": padding}),
            )
        } else {
            text("done")
        }
    });
    let delta = world
        .run("go")
        .args(["--max-iterations", "100"])
        .after("ulimit -f 40")
        .json();
    let outcome = delta.exits(75);
    assert_eq!(outcome.object()["stop_reason"], "disk_full");
    assert_eq!(world.latest().metadata()["stop_reason"], "disk_full");
    let before = world.lines("log").len();
    world
        .run("go")
        .args(["--max-iterations", "100"])
        .exits(0)
        .prints("done\n");
    assert!(
        before > 2 && before < 60,
        "{before} actions ran before the disk was full"
    );
    let mut log = world.lines("log");
    let all = log.len();
    log.dedup();
    assert_eq!(all, log.len(), "an action ran twice");
    let run = world.latest();
    let requested = run.events("ACTION_REQUEST").len();
    assert_eq!(requested, 60);
    // At most the one that was open when the disk was full did not run.
    assert!(all >= 59, "{all} actions ran");
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn a_tool_whose_output_is_too_large_for_the_disk_is_not_the_engines_end() {
    let world =
        World::with_tools("- {name: pour, shell: 'head -c 5000000 /dev/zero | tr \"\\\\000\" x'}");
    world.model_says([call("a", "pour", &json!({})), text("done")]);
    let outcome = world.run("go").after("ulimit -f 200").end();
    assert!(
        matches!(outcome.code(), Some(0 | 75)),
        "{}",
        outcome.describe()
    );
    outcome.does_not_say("panic");
    assert_ne!(world.latest().ending().0, "FAILED");
    world.server.may_stay_unasked();
}

#[test]
fn seconds_cut_an_answer_that_is_awaited() {
    let world = World::new().top("limits: {seconds: 3}");
    world.model_says([text("never").held()]);
    stops(&world, world.run("go"), "seconds");
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.runs().len(), 1);

    let world = World::new().program([text("never"), text("done")]);
    let world = world.top("limits: {seconds: 3}");
    world.write("agent/model/1.sh", "sleep 600\n");
    stops(&world, world.run("go"), "seconds");
    world.run("go").exits(0).prints("done\n");
}

/// Runs it where no file can get a byte. What it prints goes into pipes.
#[track_caller]
fn without_room(world: &World) -> (Option<i32>, Value) {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_delta"));
    command.args(["run", "-a", "agent", "-w", "ws", "-m", "go"]);
    command.args(["--format", "json"]);
    command.current_dir(world.home()).stdin(Stdio::null());
    let output = command.env("HOME", world.home()).output().unwrap();
    let object = serde_json::from_slice(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    (
        output.status.code(),
        object.unwrap_or_else(|_| panic!("{}\n{stderr}", output.status)),
    )
}

#[test]
fn a_disk_that_is_full_at_the_start_is_a_reason_to_come_back() {
    let world = World::new();
    let (code, object) = without_room(&world);
    assert_eq!(code, Some(75), "{object}");
    assert_eq!(object["exit_code"], 75);
    assert_eq!(object["error"]["type"], "disk_full");
    assert!(world.server.requests().is_empty());
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn a_disk_that_is_full_when_a_run_is_taken_up_is_a_reason_to_come_back() {
    let world = World::with_tools(NOTE);
    world.model_says([note(1), text("never").held()]);
    let delta = world.run("go").spawn();
    world.server.wait_for(2);
    delta.kill();
    let before = world.latest().read("journal.jsonl");
    let (code, object) = without_room(&world);
    assert_eq!(code, Some(75), "{object}");
    assert_eq!(object["exit_code"], 75);
    assert_eq!(object["error"]["type"], "disk_full");
    assert_eq!(world.latest().read("journal.jsonl"), before);
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.lines("log"), ["1"]);
    assert_eq!(world.runs().len(), 1);
}
