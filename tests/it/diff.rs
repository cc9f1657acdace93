//! Where two runs part.

use crate::harness::*;
use serde_json::json;

const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";

/// Two runs in one workspace that share two iterations.
fn two_runs() -> World {
    let world = World::with_tools(ECHO);
    let say = |n: u32, words: &str| call(&format!("call_{n}"), "echo", &json!({"words": words}));
    for (id, third) in [("one", "left"), ("two", "right")] {
        world
            .server
            .says([say(1, "a"), say(2, "b"), say(3, third), text("done")]);
        world.run("go").args(["--run-id", id]).end().exits(0);
    }
    world
}

#[test]
fn the_common_beginning_is_a_line_and_the_rest_is_side_by_side() {
    let world = two_runs();
    let diff = world
        .delta(["diff", "-w", "ws", "one", "two"])
        .env("COLUMNS", "63");
    diff.end().exits(1).prints(
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
        .end()
        .exits(0)
        .prints("the same: 4 iterations\n");
}

#[test]
fn runs_are_named_as_everywhere() {
    let world = two_runs();
    world
        .delta(["diff", "-w", "ws", "o", "LATEST"])
        .end()
        .exits(1);
    world
        .delta(["diff", "-w", "ws", "o", "x"])
        .end()
        .exits(1)
        .says("no run 'x' here; there are two, one");
    world
        .delta(["diff", "-w", "ws", "one"])
        .end()
        .exits(2)
        .says("needs two runs");
}
