//! What a person need not look up: which run is meant, and the command that goes on from here.

use crate::harness::*;
use serde_json::json;
use std::fs;

/// A workspace with a run of two requests.
fn worked() -> World {
    let world = World::with_tools("- {name: say, exec: 'echo ${words}'}");
    world.model_says([call("c", "say", &json!({"words": "hi"})), text("done")]);
    world.run("go").exits(0);
    world
}

#[test]
fn the_newest_run_is_meant_where_none_is_named() {
    let world = worked();
    let first = world.latest().id();
    let at = |args: &[&str]| world.delta(args.iter().copied()).args(["-w", "ws"]);
    let last = at(&["request", "LATEST"]).exits(0).stdout;
    assert_eq!(at(&["request"]).exits(0).stdout, last);
    at(&["replay", "-q"])
        .exits(0)
        .prints("identical: 2 requests\n");
    world.model_says([text("forked")]);
    at(&["fork", "--at", "0"]).exits(0).prints("forked\n");
    at(&["diff", &first]).exits(1);
    at(&["diff", "LATEST"]).refuses(2, "diff needs another run");
}

#[test]
fn a_short_number_alone_is_the_number_of_a_request() {
    let world = worked();
    let id = world.latest().id();
    let request = |args: &[&str]| world.delta(["request", "-w", "ws"]).args(args);
    let first = request(&[&id, "1"]).exits(0).stdout;
    assert_eq!(request(&["1"]).exits(0).stdout, first);
    let second = request(&["2"]).exits(0).stdout;
    assert_ne!(first, second);
    // A run's id begins with the eight digits of its date.
    assert_eq!(request(&[&id[..8]]).exits(0).stdout, second);
    request(&["3"]).refuses(1, "has sent 2 requests, not 3");
    request(&["0"]).refuses(2, "not a whole number");
    request(&[&id, "x"]).refuses(2, "not a whole number");
    request(&["2c"]).refuses(2, "no request of this run made a summary");
    request(&[&id[..9], "1"]).exits(0);
}

#[test]
fn a_path_to_latest_is_a_run() {
    let world = worked();
    let same = world.delta(["request", "-w", "ws"]).exits(0).stdout;
    let path = world.delta(["request", "ws/.delta/LATEST"]).exits(0);
    assert_eq!(path.stdout, same);
    world.delta(["log", "ws/.delta/LATEST"]).exits(0);
    // It names a run beside it and nothing else.
    for wrong in ["../../../etc", "", "no_such_run"] {
        world.write("copy/.delta/LATEST", wrong);
        world.delta(["log", "copy/.delta/LATEST"]).exits(1);
    }
}

#[test]
fn below_a_workspace_the_nearest_one_with_runs_is_named_and_not_used() {
    let world = worked();
    fs::create_dir_all(world.path("ws/src/deep")).unwrap();
    let named = format!("-w {}", world.workspace().display());
    for command in ["log", "stats", "continue", "request", "report", "replay"] {
        world
            .delta([command])
            .cwd(world.path("ws/src/deep"))
            .refuses(1, &named);
    }
    let list = world.delta(["list-runs"]).cwd(world.path("ws/src/deep"));
    list.exits(0).prints("").says(&named);
    assert!(!world.exists("ws/src/deep/.delta"));
    world
        .delta(["log"])
        .exits(1)
        .says("`delta run` starts one")
        .does_not_say(&named);
}

#[test]
fn the_first_line_of_a_run_that_is_resumed_says_where() {
    let world = World::with_tools("- {name: say, exec: 'echo ${words}'}");
    world.model_says([call("c", "say", &json!({"words": "hi"})), text("done")]);
    let begun = world.run("go").args(["--max-iterations", "1"]).exits(4);
    begun
        .says("created the workspace")
        .does_not_say("resumes at");
    let resumed = world.run("go").exits(0);
    resumed
        .says(", resumes at [2]\n")
        .does_not_say("created the workspace");
}

#[test]
fn a_start_that_passes_over_an_interrupted_run_names_the_command_that_resumes_it() {
    let world = World::with_tools("- {name: say, exec: 'echo ${words}'}");
    world.model_says([
        call("c", "say", &json!({"words": "hi"})),
        text("other"),
        text("done"),
    ]);
    world.run("go").args(["--max-iterations", "1"]).exits(4);
    let first = world.latest().id();
    let root = world.workspace();
    let command = format!("delta continue -w {} --run-id {first}", root.display());
    world
        .run("other")
        .exits(0)
        .says(&format!(
            "delta: starting a new run; run {first} is INTERRUPTED: go\ndelta: to resume it: {command}\n"
        ));
    // It works as printed.
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    world.delta(words).exits(0).prints("done\n");
}

#[test]
fn the_command_for_a_run_that_is_passed_over_has_what_its_record_cannot_decide() {
    let world = World::with_tools("- {name: say, exec: 'echo ${words}'}");
    world.model_says([
        call("c", "say", &json!({"words": "hi"})),
        text("other"),
        text("done"),
    ]);
    let guarded = ["--max-iterations", "1", "--set", "ask_human=false"];
    world.run("go").args(guarded).exits(4);
    let first = world.latest().id();
    let root = world.workspace();
    let command = format!("delta continue -w {} --run-id {first}", root.display());
    world.run("other").exits(0).says(&format!(
        "to resume it: {command} --set 'ask_human=false'\n"
    ));
    let words = command.split(' ').skip(1);
    let words = words.chain(["--set", "ask_human=false"]);
    world.delta(words).exits(0).prints("done\n");
}

#[test]
fn a_replay_that_parts_over_a_block_names_the_recorded_tools() {
    let world = World::new();
    let context = "sources:\n- {type: computed_file, id: now, generator: {command: [sh, -c, 'cat $HOME/now > out.md']}, \
                   output_path: out.md}\n- {type: journal}\n";
    world.write("agent/context.yaml", context);
    world.write("now", "Monday");
    world.model_says([text("done")]);
    world.run("go").exits(0);
    world.write("now", "Tuesday");
    world
        .delta(["replay", "-w", "ws"])
        .exits(1)
        .says("--tools recorded");
    world
        .delta(["replay", "-w", "ws", "--tools", "recorded"])
        .exits(0);
}
