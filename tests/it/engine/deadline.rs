//! A run ends before its deadline, whatever it is doing.

use crate::flow::run::{chain, run as flow_run};
use crate::harness::*;
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a time after 1970").as_secs()
}

/// A deadline before which things may begin for so many seconds.
fn in_seconds(seconds: u64) -> String {
    (now() + 30 + seconds).to_string()
}

#[test]
fn a_deadline_that_has_passed_ends_the_command_and_nothing_is_appended() {
    let world = World::new();
    for passed in ["2001-02-03T04:05:06Z", "1000000000", "+0m"] {
        let outcome = world.run("go").args(["--deadline", passed]).json().end();
        outcome.exits(4).says("has passed");
    }
    assert!(!world.exists("ws"));
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let before = world.latest().journal();
    let late = ["--deadline", "2001-02-03T04:05:06+01:00", "-m", "more"];
    world.go_on().args(late).exits(4).says("has passed");
    world
        .run("go")
        .env("DELTA_DEADLINE", "2001-02-03T04:05:06Z")
        .exits(4);
    assert_eq!(world.latest().journal(), before);
}

#[test]
fn half_a_minute_before_the_deadline_nothing_is_begun() {
    let world = World::new();
    let near = ["--deadline", "+29s"];
    let outcome = world.run("go").args(near).json().exits(75);
    let object = outcome.object();
    assert_eq!(object["stop_reason"], "deadline");
    assert_eq!(object["status"], "INTERRUPTED");
    // With the same TIME, the same command may be refused.
    outcome
        .says("delta: given more time, the same command resumes it, and so does: delta continue");
    assert!(world.server.requests().is_empty());
    let (status, reason) = world.latest().ending();
    assert_eq!(
        (status.as_str(), reason.as_deref()),
        ("INTERRUPTED", Some("deadline"))
    );
    let start = &world.latest().events("ENGINE_START")[0];
    assert!(start["config"]["deadline"].is_string(), "{start}");
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn a_flow_that_its_deadline_ends_goes_on_when_it_has_more_time() {
    let world = World::new();
    chain(&world, "exec: cat");
    let near = flow_run(&world).args(["-m", "x", "--run-id", "r", "--deadline", "+29s"]);
    near.exits(75)
        .says("delta-flow: given more time, the same command resumes the run");
    flow_run(&world)
        .args(["-m", "x", "--run-id", "r"])
        .exits(0)
        .prints("\"x\"\n");
}

#[test]
fn a_tool_gets_sigterm_when_the_deadline_comes() {
    let tool = "- {name: nap, shell: 'trap \"echo told; exit 3\" TERM; sleep 100 & wait'}";
    let world = World::with_tools(tool);
    world.model_says([call("a", "nap", &json!({}))]);
    let delta = world.run("go").args(["--deadline", &in_seconds(6)]);
    delta.exits(75).says("the deadline is near");
    let run = world.latest();
    assert_eq!(run.ending().1.as_deref(), Some("deadline"));
    let observation = run.result(1)["observation_content"].clone();
    let observation = observation.as_str().expect("text");
    assert!(
        observation.contains("told") && observation.contains("[interrupted]"),
        "{observation}"
    );
    world.model_says([text("done")]);
    world.run("go").exits(0);
}

#[test]
fn a_wait_for_the_model_ends_when_the_deadline_comes() {
    let world = World::new();
    world.model_says([text("late").held()]);
    let delta = world.run("go").args(["--deadline", &in_seconds(6)]);
    delta.exits(75).says("the deadline is near");
    assert_eq!(world.latest().ending().1.as_deref(), Some("deadline"));
    world.model_says([text("done")]);
    world.run("go").exits(0);
}

#[test]
fn a_wait_that_the_server_asks_for_beyond_the_deadline_ends_the_run_at_once() {
    let world = World::new();
    let busy = || Reply::error(429, "later").header("Retry-After", "200");
    world.model_says([busy()]);
    let delta = world.run("go").args(["--deadline", &in_seconds(100)]);
    delta.json().exits(75);
    assert_eq!(world.latest().ending().1.as_deref(), Some("deadline"));
    assert_eq!(world.server.requests().len(), 1);
}

#[test]
fn programs_of_a_run_find_a_deadline_ten_seconds_earlier_for_each_depth() {
    let program = env!("CARGO_BIN_EXE_delta");
    let nested = format!("{program} run -q -a ${{AGENT_HOME}}/../leaf -w below -m go");
    let world = World::with_tools(&format!(
        "- {{name: note, shell: 'echo $DELTA_DEADLINE >> \"$HOME/deadlines\"; {nested}'}}"
    ));
    let leaf = world.read("agent/agent.yaml");
    world.write("leaf/agent.yaml", leaf.replace(&nested, "true"));
    world.write("leaf/context.yaml", world.read("agent/context.yaml"));
    world.write("leaf/system_prompt.md", "I am a leaf.");
    world
        .server
        .answers(|request| match request.messages().len() {
            2 => call("a", "note", &json!({})),
            _ => text("done"),
        });
    let delta = world.run("go").args(["--deadline", "2100-01-01T00:00:00Z"]);
    delta.exits(0);
    let expected = ["2099-12-31T23:59:50.000Z", "2099-12-31T23:59:40.000Z"];
    assert_eq!(world.lines("deadlines"), expected);
}

#[test]
fn the_earlier_of_two_deadlines_counts() {
    let world = World::new();
    for (variable, option) in [
        ("2001-01-01T00:00:00Z", "+9d"),
        ("2100-01-01T00:00:00Z", "+0s"),
    ] {
        let delta = world.run("go").env("DELTA_DEADLINE", variable);
        delta.args(["--deadline", option]).exits(4);
    }
    let delta = world.run("go").env("DELTA_DEADLINE", "soon");
    delta.exits(78).says("DELTA_DEADLINE");
    let delta = world.run("go").args(["--deadline", "soon"]);
    delta.exits(2).says("--deadline");
    assert!(!world.exists("ws"));
}
