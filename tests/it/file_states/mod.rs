mod git;
mod histories;
mod states;
mod left_out;
mod store;
mod kills;
mod undo;

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A tool that may change files, and one that does not.
const TOOLS: &str = "- {name: sh, exec: 'sh -c ${command}'}\n- {name: look, effect: none, exec: 'sh -c ${command}'}";

fn world() -> World {
    World::with_tools(TOOLS).top("files: git")
}

/// A call of the tool that may change files.
fn sh(id: &str, command: &str) -> Reply {
    call(id, "sh", &json!({"command": command}))
}

/// A state: number, reason, iteration, and numbers of files that changed, are new and gone.
type State = (u64, String, u64, [u64; 3]);

/// The states of the newest run.
fn states(world: &World) -> Vec<State> {
    let number = |event: &Value, key: &str| event[key].as_u64().expect("a number");
    let events = world.latest().events("FILES").into_iter();
    let state = |event: Value| {
        let why = event["why"].as_str().expect("a reason").to_owned();
        let counts = ["changed", "added", "removed"].map(|key| number(&event, key));
        (
            number(&event, "n"),
            why,
            number(&event, "iteration"),
            counts,
        )
    };
    events.map(state).collect()
}

fn state(n: u64, why: &str, iteration: u64, counts: [u64; 3]) -> State {
    (n, why.to_owned(), iteration, counts)
}

/// The output of git in the store of the workspace.
#[track_caller]
fn git(world: &World, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command
        .arg("--git-dir")
        .arg(world.path("ws/.delta/files.git"));
    let done = command.args(args).output().expect("git");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn commit(world: &World, n: usize) -> String {
    let event = world.latest().events("FILES").swap_remove(n - 1);
    event["commit"].as_str().expect("a commit").to_owned()
}

/// The names of the files in the state of this number.
#[track_caller]
fn names(world: &World, n: usize) -> Vec<String> {
    let listed = git(world, &["ls-tree", "-r", "--name-only", &commit(world, n)]);
    listed.lines().map(str::to_owned).collect()
}

/// The content of a file in the state of this number.
#[track_caller]
fn content(world: &World, n: usize, name: &str) -> String {
    let what = format!("{}:{name}", commit(world, n));
    git(world, &["cat-file", "blob", &what])
}

/// Runs one call and the answer.
#[track_caller]
fn run_once(world: &World, command: &str) -> Outcome {
    world.model_says([sh("c1", command), text("done")]);
    world.run("go").args(["--new"]).exits(0)
}

/// The notes at WARN of the newest run.
fn warnings(world: &World) -> Vec<String> {
    let notes = world.latest().events("SYSTEM_MESSAGE").into_iter();
    let warned = notes.filter(|note| note["level"] == "WARN");
    let text = |note: Value| note["content"].as_str().expect("a text").to_owned();
    warned
        .map(text)
        .filter(|it| it.contains("of each step"))
        .collect()
}

#[track_caller]
fn shell(dir: &Path, script: &str) {
    let done = Command::new("sh")
        .args(["-ec", script])
        .current_dir(dir)
        .output()
        .expect("sh");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
}

/// What a program has printed.
fn printed(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stdout).into_owned()
}

/// A `PATH` with a git that runs this script first, which can end it.
fn path_with_git(world: &World, script: &str) -> String {
    let path = system_path();
    let script = format!("#!/bin/sh\nPATH='{path}'\n{script}\nexec git \"$@\"\n");
    world.script("bin/git", &script);
    format!("{}:{path}", world.path("bin").display())
}

/// A `PATH` with a git that notes its words in `git.log`.
fn path_with_noting_git(world: &World) -> String {
    let log = shell_word(&world.path("git.log"));
    path_with_git(world, &format!("echo \"$*\" >> {log}"))
}

/// The commits of the newest run's events, the first first, and those that its branch leads to.
fn recorded_and_reachable(world: &World) -> [Vec<String>; 2] {
    let events = world.latest().events("FILES").into_iter();
    let recorded = events.map(|it| it["commit"].as_str().unwrap().to_owned());
    let name: String = world
        .latest()
        .id()
        .bytes()
        .map(|it| format!("{it:02x}"))
        .collect();
    let log = git(world, &["log", "--reverse", "--format=%H", &name]);
    [recorded.collect(), log.lines().map(str::to_owned).collect()]
}
