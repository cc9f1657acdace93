//! `--format jsonl`: a program follows a run by its events.

use crate::harness::services::{streaming, text_stream};
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

const ECHO: &str = "- {name: say, exec: 'echo ${word}'}";

fn lines(outcome: &Outcome) -> Vec<Value> {
    let text = String::from_utf8(outcome.stdout.clone()).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What stands between the first line and the last one.
#[track_caller]
fn events(lines: &[Value]) -> Vec<Value> {
    assert_eq!(lines[0]["type"], "delta");
    assert_eq!(lines.last().unwrap()["type"], "result");
    lines[1..lines.len() - 1].to_vec()
}

#[test]
fn what_a_start_appends_is_printed_line_for_line() {
    let world = World::with_tools(ECHO);
    world.model_says([call("c1", "say", &json!({"word": "hi"})), text("done")]);
    let first = world.run("go").args(["--format", "jsonl"]).exits(0);
    let printed = lines(&first);
    let run = world.latest();
    assert_eq!(printed[0]["run_id"], run.id());
    assert_eq!(printed[0]["workspace"], world.workspace().to_str().unwrap());
    assert_eq!(printed[0]["schema_version"], "2.0");
    let known = printed[0]["events"].as_array().unwrap();
    for event in run.types() {
        assert!(known.contains(&json!(event)), "{event}");
    }
    assert!(!known.contains(&json!("NODE_START")));
    let journal = run.text("journal.jsonl");
    let stdout = String::from_utf8_lossy(&first.stdout).into_owned();
    assert!(stdout.contains(&journal), "byte for byte");
    assert_eq!(events(&printed), run.journal());
    let mut result = printed.last().unwrap().clone();
    result.as_object_mut().unwrap().shift_remove("type");
    let object = world
        .run("go")
        .args(["--run-id", &run.id(), "--format", "json"])
        .exits(0);
    let mut repeated = object.object();
    for one in [&mut result, &mut repeated] {
        one["metrics"] = Value::Null;
    }
    assert_eq!(result, repeated);

    // A second start prints only its own, and a result that is repeated has none.
    let before = run.journal().len();
    world.model_says([text("again")]);
    let second = world
        .go_on()
        .args(["-m", "more", "--format", "jsonl"])
        .exits(0);
    assert_eq!(events(&lines(&second)), run.journal()[before..]);
    let third = world
        .run("go")
        .args(["--run-id", &run.id(), "--format", "jsonl"]);
    let printed = lines(&third.exits(0));
    assert_eq!(printed.len(), 2);
    assert_eq!(printed[0]["run_id"], run.id());
    assert_eq!(printed[1]["result"], "again");
}

#[test]
fn a_torn_line_is_not_printed_again() {
    let world = World::new();
    world.model_says([text("done"), text("again")]);
    world.run("go").exits(0);
    let run = world.latest();
    let mut journal = run.text("journal.jsonl");
    let before = run.journal().len();
    journal.push_str("{\"seq\":99,\"ty");
    fs::write(run.path("journal.jsonl"), journal).unwrap();
    let second = world
        .go_on()
        .args(["-m", "more", "--format", "jsonl"])
        .exits(0);
    assert_eq!(events(&lines(&second)), run.journal()[before..]);
}

#[test]
fn an_error_before_there_is_a_run_has_both_lines() {
    let world = World::unasked();
    let outcome = world.delta(["run", "-a", "gone", "-m", "x", "--format", "jsonl"]);
    let printed = lines(&outcome.exits(78));
    assert_eq!(printed.len(), 2);
    assert_eq!(printed[0]["run_id"], Value::Null);
    assert_eq!(printed[0]["workspace"], Value::Null);
    assert_eq!(printed[1]["exit_code"], 78);
    assert_eq!(printed[1]["type"], "result");
}

#[test]
fn deltas_need_the_format_and_are_text_as_it_arrives() {
    let world = World::unasked();
    world
        .run("go")
        .arg("--deltas")
        .refuses(2, "--deltas needs --format jsonl");
    let json = world.run("go").args(["--deltas", "--format", "json"]);
    json.end().exits(2).says("--deltas needs");

    let world = World::new();
    let broken = text_stream(&["lost ", "words"], None);
    let broken = broken.split_once("words").unwrap().0.to_owned();
    world.model_says([
        streaming(&broken),
        streaming(&text_stream(&["one ", "two"], None)),
    ]);
    let outcome = world
        .run("go")
        .args(["--format", "jsonl", "--deltas"])
        .exits(0);
    assert_eq!(world.server.last().json()["stream"], true);
    let printed = lines(&outcome);
    let deltas: Vec<&Value> = printed
        .iter()
        .filter(|it| it["type"] == "TEXT_DELTA")
        .collect();
    let expected = [(1, "lost "), (2, "one "), (2, "two")];
    let expected = expected.map(|(attempt, text)| json!({"type": "TEXT_DELTA", "iteration": 1, "attempt": attempt, "text": text}));
    assert_eq!(deltas, expected.iter().collect::<Vec<_>>());
    let at = |kind: &str| printed.iter().position(|it| it["type"] == kind).unwrap();
    assert!(at("TEXT_DELTA") < at("THOUGHT"));
}

#[test]
fn text_that_a_hook_may_change_is_not_printed_before() {
    let world = World::new();
    world.write(
        "agent/hooks.yaml",
        "post_llm_response: {command: ['true']}\n",
    );
    world.model_says([streaming(&text_stream(&["one ", "two"], None))]);
    let outcome = world
        .run("go")
        .args(["--format", "jsonl", "--deltas"])
        .exits(0);
    assert!(lines(&outcome).iter().all(|it| it["type"] != "TEXT_DELTA"));
}

#[test]
fn a_reader_that_goes_away_ends_nothing() {
    // The run goes on only when its reader has gone.
    let until = "until [ -e ../gone ]; do sleep 0.01; done";
    let world = World::with_tools(&format!("- {{name: wait, shell: '{until}'}}"));
    world.model_says([call("c1", "wait", &json!({})), text("done")]);
    let run = world.run("go").args(["--format", "jsonl"]);
    let reader = "{ \"$0\" \"$@\"; echo $? > code; } | { read -r line; exec <&-; : > gone; }";
    run.under(&["sh", "-c", reader]).exits(0);
    assert_eq!(world.read("code"), "0\n");
    let run = world.latest();
    assert_eq!(run.ending().0, "COMPLETED");
    assert!(
        run.text("engine.log")
            .contains("the reader of --format jsonl gets nothing more: broken pipe")
    );
}

#[test]
fn a_reader_that_does_not_read_ends_nothing() {
    let world = World::with_tools("- {name: long, exec: 'seq 100000'}");
    let call = |id| call(id, "long", &json!({}));
    world.model_says([call("c1"), call("c2"), call("c3"), text("done")]);
    let _unread = world.fifo("unread");
    let run = world.run("go").args(["--format", "jsonl"]);
    run.after("exec > unread").exits(0);
    let run = world.latest();
    assert_eq!(run.ending().0, "COMPLETED");
    assert!(
        run.text("engine.log")
            .contains("it has read nothing for 10 s")
    );
}
