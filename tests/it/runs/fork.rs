//! A run from the first iterations of another one.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

const NOTE: &str = "- {name: note, shell: 'echo ${words} | tee -a notes'}";

fn note(n: u32) -> Reply {
    call(
        &format!("call_{n}"),
        "note",
        &json!({"words": format!("note {n}")}),
    )
}

/// A run `parent` of three calls and an answer.
fn parent() -> World {
    let world = World::with_tools(NOTE).llm("temperature: 1");
    world.model_says([note(1), note(2), note(3), text("three notes")]);
    world
        .run("take notes")
        .args(["--run-id", "parent"])
        .exits(0);
    world
}

fn fork(world: &World, args: &[&str]) -> Delta {
    world.delta(["fork", "-w", "ws", "parent"]).args(args)
}

fn run_of(world: &World, id: &str) -> Run {
    Run {
        dir: world.path("ws/.delta").join(id),
    }
}

#[test]
fn a_fork_has_the_first_iterations_whole_and_goes_on_with_another_message() {
    let world = parent();
    let before = snapshot(&world.path("ws/.delta/parent"));
    world.model_says([text("two notes")]);
    fork(&world, &["--at", "2", "-m", "that will do"])
        .exits(0)
        .prints("two notes\n");
    assert!(snapshot(&world.path("ws/.delta/parent")) == before);
    let told: Vec<Value> = world.server.last().messages();
    assert_eq!(
        roles(&told),
        [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
            "tool",
            "user"
        ]
    );
    assert_eq!(told[6]["content"], "that will do");
    let run = world.latest();
    assert_ne!(run.id(), "parent");
    let from = json!({"run_id": "parent", "iteration": 2});
    assert_eq!(run.metadata()["forked_from"], from);
    assert_eq!(run.metadata()["iterations"], 3);
    assert_eq!(run.metadata()["initial_message"], "take notes");
    let starts = run.events("ENGINE_START");
    assert_eq!(starts[1]["forked_from"], from);
    assert_eq!(starts[1]["run_id"], run.id());
    let seqs: Vec<u64> = run
        .journal()
        .iter()
        .map(|e| e["seq"].as_u64().unwrap())
        .collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn the_hint_of_an_interrupted_fork_names_a_command_that_resumes_it() {
    let world = parent();
    let words = [
        "--at",
        "1",
        "-m",
        "more",
        "--run-id",
        "twig",
        "--max-iterations",
        "1",
    ];
    world.model_says([note(4)]);
    let outcome = fork(&world, &words).exits(4);
    let outcome = outcome.does_not_say("the same command");
    let hint = outcome
        .stderr
        .lines()
        .find_map(|line| line.split_once("to resume it: delta "));
    let (_, command) = hint.expect("a hint");
    world.model_says([text("done")]);
    let command = shlex::split(command).unwrap();
    let command = command.iter().map(String::as_str);
    world.delta(command).exits(0).prints("done\n");
}

#[test]
fn every_iteration_of_a_run_can_be_forked() {
    let world = parent();
    for at in 0..4 {
        world.model_says([text("forked")]);
        let id = format!("at-{at}");
        fork(
            &world,
            &["--at", &at.to_string(), "-m", "go on", "--run-id", &id],
        )
        .exits(0);
        let thoughts = run_of(&world, &id).events("THOUGHT").len();
        assert_eq!(thoughts, at + 1);
    }
    assert_eq!(
        run_of(&world, "at-0").metadata()["initial_message"],
        "go on"
    );
    assert_eq!(run_of(&world, "at-0").events("USER_MESSAGE").len(), 1);
}

#[test]
fn a_fork_without_a_message_takes_up_the_thread() {
    let world = parent();
    world.model_says([text("done")]);
    fork(&world, &["--at", "1"]).exits(0);
    assert_eq!(world.server.last().last_observation(), "note 1\n");
    world.model_says([text("done")]);
    fork(&world, &["--at", "0"]).exits(0);
    assert_eq!(world.server.last().messages()[1]["content"], "take notes");
}

#[test]
fn a_fork_has_the_records_of_what_it_begins_with() {
    let world = parent();
    world.model_says([text("done")]);
    fork(&world, &["--at", "2", "--run-id", "child"]).exits(0);
    for n in ["1", "2"] {
        let request = |run: &str| world.delta(["request", "-w", "ws", run, n]).exits(0).stdout;
        assert!(request("parent") == request("child"));
    }
    let child = run_of(&world, "child");
    assert_eq!(child.invocations().len(), 3);
    assert_eq!(child.executions().len(), 2);
    assert_eq!(
        fs::read(child.execution(2).join("stdout.log")).unwrap(),
        b"note 2\n"
    );
}

#[test]
fn a_new_workspace_has_the_files_and_not_the_runs_of_the_old_one() {
    let world = parent();
    let before = snapshot(&world.workspace());
    world.model_says([note(9), text("done")]);
    fork(&world, &["--at", "1", "--to", "new"]).exits(0);
    assert!(snapshot(&world.workspace()) == before);
    assert_eq!(
        world.lines("new/notes"),
        ["note 1", "note 2", "note 3", "note 9"]
    );
    assert!(!world.exists("new/.delta/parent"));
    let metadata = Run::latest(&world.path("new")).metadata();
    assert_eq!(metadata["work_dir"].as_str(), world.path("new").to_str());
}

#[test]
fn a_new_workspace_must_be_new() {
    let world = parent();
    for (to, words) in [
        ("agent", "it is not empty"),
        ("ws/inner", "copied into itself"),
    ] {
        fork(&world, &["--at", "1", "--to", to]).refuses(2, words);
    }
    assert!(!world.exists("ws/inner"));
}

#[test]
fn a_setting_holds_for_the_fork_and_stays_when_it_is_resumed() {
    let world = parent();
    world.model_says([note(7)]);
    fork(
        &world,
        &[
            "--at",
            "1",
            "--set",
            "llm.temperature=0",
            "--set",
            "llm.seed=7",
            "--run-id",
            "child",
        ],
    )
    .args(["--max-iterations", "1"])
    .exits(4);
    let is_set = |world: &World| {
        let request = world.server.last().json();
        assert_eq!(
            (request["temperature"].clone(), request["seed"].clone()),
            (json!(0), json!(7))
        );
    };
    is_set(&world);
    world.model_says([note(8)]);
    world
        .go_on()
        .args(["--run-id", "child", "--max-iterations", "1"])
        .exits(4);
    is_set(&world);
    world.model_says([note(9)]);
    world.rerun().args(["--max-iterations", "1"]).exits(4);
    is_set(&world);
    fs::remove_file(world.path("ws/.delta/child/metadata.json")).unwrap();
    world.model_says([text("done")]);
    world.go_on().args(["--run-id", "child"]).exits(0);
    is_set(&world);
    let metadata = run_of(&world, "child").metadata();
    assert_eq!(
        metadata["set"],
        json!({"llm.temperature": 0, "llm.seed": 7})
    );
    assert_eq!(metadata["forked_from"]["run_id"], "parent");
    let created = run_of(&world, "parent").metadata()["created_at"].clone();
    assert_ne!(metadata["created_at"], created);
    world.model_says([text("done")]);
    world.run("another task").exits(0);
    assert_eq!(
        world.server.last().json()["temperature"],
        1,
        "other runs are as the file says"
    );
}

#[test]
fn an_empty_value_takes_a_key_away() {
    let world = parent();
    world.model_says([text("done")]);
    fork(&world, &["--at", "1", "--set", "llm.temperature="]).exits(0);
    assert!(world.server.last().json().get("temperature").is_none());
}

#[test]
fn a_setting_that_is_wrong_is_refused_with_its_key_and_nothing_is_created() {
    let world = parent();
    for (setting, words) in [
        (
            "max_iterations=many",
            "--set max_iterations: max_iterations: expected a whole number",
        ),
        (
            "max_iteratons=3",
            "--set max_iteratons: unknown key 'max_iteratons'; did you mean 'max_iterations'?",
        ),
        (
            "llm.base_url=here",
            "--set llm.base_url: llm: base_url: 'here': it does not begin",
        ),
        (
            "name.first=x",
            "--set name.first: name: the string \"probe\" cannot have the key 'first'",
        ),
        ("llm.temperature=[", "--set llm.temperature: not valid YAML"),
        ("llm.temperature", "not of the form KEY=VALUE"),
    ] {
        let outcome = fork(&world, &["--at", "1", "--set", setting])
            .exits(2)
            .prints("");
        outcome.says_one_line().says(words);
    }
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn what_cannot_be_forked_is_refused_with_the_reason() {
    let world = parent();
    for (args, words) in [
        (["--at", "9"].as_slice(), "it has 4 iterations"),
        (
            &["--at", "4"],
            "is a final answer; give the next message with -m MESSAGE",
        ),
        (&["--at", "x"], "--at: 'x'"),
        (&[], "--at N"),
    ] {
        fork(&world, args).refuses(2, words);
    }
    assert_eq!(world.runs().len(), 1);
    let world = World::new();
    world.model_says([call("a", "ask_human", &json!({"prompt": "Which?"}))]);
    world.run("go").args(["--run-id", "parent"]).exits(101);
    fork(&world, &["--at", "1"])
        .exits(2)
        .says("iteration 1 is not complete: ask_human has no result yet");
}

#[test]
fn a_live_run_can_be_forked_without_disturbing_it() {
    let world = World::with_tools(NOTE);
    world.model_says([note(1), text("parent").held()]);
    let delta = world.run("go").args(["--run-id", "parent"]).spawn();
    world.server.wait_for(2);
    world.model_says([text("child")]);
    fork(&world, &["--at", "1", "-m", "shorter"])
        .exits(0)
        .prints("child\n");
    world.server.release();
    delta.wait().exits(0).prints("parent\n");
}

#[test]
fn a_fork_of_a_fork_replays_identically() {
    let world = parent();
    world.model_says([note(4), text("done")]);
    fork(
        &world,
        &[
            "--at",
            "2",
            "--set",
            "llm.temperature=0",
            "--run-id",
            "child",
        ],
    )
    .exits(0);
    world.model_says([note(5), text("done")]);
    world
        .delta([
            "fork",
            "-w",
            "ws",
            "child",
            "--at",
            "3",
            "-m",
            "more",
            "--set",
            "llm.seed=1",
            "--run-id",
            "third",
        ])
        .exits(0);
    assert_eq!(
        run_of(&world, "third").metadata()["set"],
        json!({"llm.temperature": 0, "llm.seed": 1})
    );
    for (run, tools) in [("child", "run"), ("third", "recorded")] {
        world
            .delta(["replay", "-w", "ws", run, "--tools", tools])
            .exits(0)
            .prints("identical: 2 requests\n");
    }
}

#[test]
fn format_json_tells_of_a_fork_and_of_what_is_wrong_with_one() {
    let world = parent();
    world.model_says([text("done")]);
    let outcome = fork(&world, &["--at", "1"]).json().exits(0);
    assert_eq!(outcome.object()["result"], "done");
    let outcome = fork(&world, &["--at", "9"]).json().exits(2);
    assert_eq!(outcome.object()["error"]["type"], "usage");
}

#[test]
fn a_run_that_tells_no_agent_is_not_forked() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    fs::write(world.latest().path("journal.jsonl"), "").unwrap();
    let fork = world.delta(["fork", "-w", "ws", "LATEST", "--at", "0"]);
    fork.refuses(1, "name its agent").says_one_line();
}

#[test]
fn a_fork_copies_nothing_from_where_a_link_of_the_parent_leads() {
    let world = parent();
    let kind = "io/tool_executions";
    let (calls, out) = (world.path("ws/.delta/parent").join(kind), world.path("out"));
    fs::rename(&calls, &out).unwrap();
    std::os::unix::fs::symlink(&out, &calls).unwrap();
    world.model_says([text("two notes")]);
    let options = ["--at", "2", "-m", "that will do", "--run-id", "child"];
    fork(&world, &options).exits(0).prints("two notes\n");
    let copied = run_of(&world, "child").path(kind);
    assert!(files_below(&copied).is_empty());
    assert!(!files_below(&out).is_empty());
}
