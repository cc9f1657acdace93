//! Where two runs part.

use crate::harness::*;
use serde_json::json;
use std::fs;

const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";

/// Two runs in one workspace that share two iterations.
fn two_runs() -> World {
    let world = World::with_tools(ECHO);
    let say = |n: u32, words: &str| call(&format!("call_{n}"), "echo", &json!({"words": words}));
    for (id, third) in [("one", "left"), ("two", "right")] {
        world.model_says([say(1, "a"), say(2, "b"), say(3, third), text("done")]);
        world.run("go").args(["--run-id", id]).exits(0);
    }
    world
}

#[test]
fn the_common_beginning_is_a_line_and_the_rest_is_side_by_side() {
    let world = two_runs();
    let diff = world
        .delta(["diff", "-w", "ws", "one", "two"])
        .env("COLUMNS", "63");
    diff.exits(1).prints(
        "iterations 1 to 2 are the same\n\
         one, 4 iterations              | two, 4 iterations\n\
         \x20 3 $ echo {\"words\":\"left\"}    |   3 $ echo {\"words\":\"right\"}\n\
         \x20   = left                     |     = right\n\
         \x20 4 done                           4 done\n",
    );
}

#[test]
fn runs_that_say_the_same_are_the_same() {
    let world = two_runs();
    let path = world.path("ws/.delta/one");
    world
        .delta(["diff", "-w", "ws", "one", path.to_str().unwrap()])
        .exits(0)
        .prints("the same: 4 iterations\n");
}

#[test]
fn runs_are_named_as_everywhere() {
    let world = two_runs();
    world.delta(["diff", "-w", "ws", "o", "LATEST"]).exits(1);
    world
        .delta(["diff", "-w", "ws", "o", "x"])
        .exits(1)
        .says("no run 'x' here; the runs are two, one");
    world
        .delta(["diff", "-w", "ws"])
        .exits(2)
        .says("needs RUN_A");
    let newest = world.latest().id();
    world
        .delta(["diff", "-w", "ws", &newest])
        .exits(2)
        .says("diff needs another run");
}

#[test]
fn runs_with_damaged_lines_are_never_the_same() {
    let world = two_runs();
    for id in ["one", "two"] {
        let path = world.path(&format!("ws/.delta/{id}/journal.jsonl"));
        let journal = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = journal.lines().collect();
        // The last two iterations cannot be read.
        let at = lines
            .iter()
            .position(|line| line.contains("call_3"))
            .unwrap();
        let damaged: Vec<String> = lines
            .iter()
            .enumerate()
            .map(|(n, line)| format!("{}\n", if n < at { line } else { "{" }))
            .collect();
        fs::write(&path, damaged.concat()).unwrap();
    }
    let diff = world.delta(["diff", "-w", "ws", "one", "two"]).end();
    diff.exits(1)
        .says("damaged")
        .prints("the same as far as they can be read: 2 iterations\n");
}

#[test]
fn columns_are_those_of_the_terminal_and_not_characters() {
    let world = World::new();
    for (id, answer) in [("one", "漢字".repeat(9)), ("two", "right".to_owned())] {
        world.model_says([text(&answer)]);
        world.run("go").args(["--run-id", id]).exits(0);
    }
    let diff = world
        .delta(["diff", "-w", "ws", "one", "two"])
        .env("COLUMNS", "45");
    // The two sides have 21 columns each, and what is cut has an ellipsis.
    diff.exits(1).prints(
        "they diverge at the first iteration\n\
         one, 1 iteration      | two, 1 iteration\n\
         \x20 1 > go                  1 > go\n\
         \x20   漢字漢字漢字漢字… |     right\n",
    );
}

#[test]
fn a_secret_answer_is_in_no_column() {
    let world = World::new();
    for (id, answer) in [("one", "hunter2"), ("two", "other")] {
        let asked = json!({"prompt": "What?", "sensitive": true});
        world.model_says([call("call_1", "ask_human", &asked), text(id)]);
        world.run("go").args(["--run-id", id]).exits(101);
        let go_on = world.go_on().args(["--run-id", id, "-m", answer]);
        go_on.exits(0);
    }
    let diff = world.delta(["diff", "-w", "ws", "one", "two"]).exits(1);
    let shown = String::from_utf8(diff.stdout).unwrap();
    assert!(
        !shown.contains("hunter2") && !shown.contains("other"),
        "{shown}"
    );
    assert!(shown.contains("iteration 1 is the same"), "{shown}");
}
