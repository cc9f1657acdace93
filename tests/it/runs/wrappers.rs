//! Programs that stand before every tool, and are to be there before anything begins.

use crate::harness::*;
use serde_json::json;
use std::fs;

const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";

#[test]
fn a_wrapper_that_is_not_there_is_an_error_before_anything_is_created() {
    let echo = "- {name: echo, exec: 'echo x', wrapper: [no-such-wrapper, x]}";
    for (world, words) in [
        (
            World::with_tools(ECHO).top("wrapper: [no-such-wrapper, '--']"),
            "wrapper: no-such-wrapper is not installed",
        ),
        (
            World::with_tools(echo),
            "tool \"echo\": wrapper: no-such-wrapper is not installed",
        ),
        (
            World::with_tools(ECHO).top("wrapper: ['${AGENT_HOME}/box.sh']"),
            "agent/box.sh does not exist",
        ),
        (
            World::with_tools(ECHO).top("wrapper: ['${AGENT_HOME}/agent.yaml']"),
            "agent/agent.yaml cannot be executed",
        ),
        (
            World::with_tools(ECHO).top("wrapper: ['${CWD}/box.sh']"),
            "ws/box.sh does not exist",
        ),
        (
            World::with_tools(ECHO).top("wrapper: [./box.sh]"),
            "./box.sh does not exist",
        ),
    ] {
        world.run("go").refuses(78, words);
        assert!(!world.exists("ws") && world.server.requests().is_empty());
        let next = world.delta(["run", "-a", "agent", "-y", "-m", "go"]);
        if !words.contains("box.sh") || words.contains("agent/box.sh") {
            next.exits(78);
            assert!(!world.exists("agent/workspaces"));
        }
    }
}

#[test]
fn a_wrapper_is_looked_for_where_the_tools_would_find_it() {
    let world = World::with_tools(ECHO).top("wrapper: [own-wrapper]");
    world.script("agent/bin/own-wrapper", "#!/bin/sh\necho wrapped; \"$@\"\n");
    let path = std::env::var("PATH").unwrap();
    world.write(
        "agent/.env",
        format!("PATH={}:{path}\n", world.path("agent/bin").display()),
    );
    assert_eq!(
        world.observe("echo", &json!({"words": "x"})),
        "wrapped\nx\n"
    );
}

#[test]
fn a_run_is_not_taken_up_without_its_wrapper() {
    let world = World::with_tools(ECHO).top("wrapper: ['${AGENT_HOME}/box.sh']");
    world.script("agent/box.sh", "#!/bin/sh\nexec \"$@\"\n");
    world.model_says([call("a", "echo", &json!({"words": "x"}))]);
    world.run("go").arg("--max-iterations=1").exits(4);
    fs::remove_file(world.path("agent/box.sh")).unwrap();
    let before = world.latest().journal();
    world.go_on().exits(78).says("agent/box.sh does not exist");
    assert_eq!(world.latest().journal(), before);
}

#[test]
fn a_run_is_not_forked_without_its_wrapper() {
    let world = World::with_tools(ECHO).top("wrapper: ['${AGENT_HOME}/box.sh']");
    world.script("agent/box.sh", "#!/bin/sh\nexec \"$@\"\n");
    let echo = call("a", "echo", &json!({"words": "x"}));
    world.model_says([echo, text("done")]);
    world.run("go").args(["--run-id", "parent"]).exits(0);
    fs::remove_file(world.path("agent/box.sh")).unwrap();
    let fork = ["fork", "-w", "ws", "parent", "--at", "1", "-m", "again"];
    world
        .delta(fork)
        .exits(78)
        .says("agent/box.sh does not exist");
    assert_eq!(world.runs().len(), 1);
}
