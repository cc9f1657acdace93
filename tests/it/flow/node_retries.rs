//! Retries of a node: they wait, nothing waits for them, and no kill begins them anew.

use crate::flow::run::{chain, run};
use crate::harness::*;
use rustix::process::Signal;
use serde_json::Value;

fn of_node<'e>(events: &'e [Value], node: &str) -> Vec<&'e Value> {
    events.iter().filter(|it| it["node_id"] == node).collect()
}

/// The second attempt at `a` needs what `c` makes, which becomes ready only after the first has failed: if
/// anything waited for the retry, it would fail.
#[test]
fn a_retry_waits_a_second_while_others_go_on() {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        "defaults: {context: none}\nnodes:\n- id: s\n- {id: fan, role: branch}\n\
         - {id: a, retries: 1, shell: 'test -e $FLOW_WORKSPACE/made && echo $FLOW_ATTEMPT'}\n\
         - {id: b, exec: echo 0}\n- {id: c, shell: 'echo >$FLOW_WORKSPACE/made; echo 0'}\n- {id: m}\n\
         - id: x\nedges: [[s, fan, a, m, x], [fan, b, c, m]]\n",
    );
    let outcome = run(&world).args(["-j", "1"]).exits(0);
    outcome.prints("[2,0]\n").says("a  operation, again in 1 s");
    let run = Run::latest(&world.path("ws"));
    let failures = run.events("ERROR");
    let [failure] = of_node(&failures, "a")[..] else {
        panic!("{failures:#?}");
    };
    let time = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
    let due = time(failure, "retry_at");
    assert!(due > time(failure, "timestamp"));
    let starts = run.events("NODE_START");
    let starts = of_node(&starts, "a");
    assert_eq!(starts.len(), 2);
    assert!(time(starts[1], "timestamp") >= due, "{starts:#?}, {due}");
}

#[test]
fn a_kill_while_a_retry_waits_neither_shortens_the_wait_nor_adds_an_attempt() {
    let world = World::new();
    chain(&world, "retries: 1, shell: 'echo x >>tries; exit 1'");
    let running = run(&world).args(["--run-id", "r"]).spawn();
    let journal = world.path("ws/.delta/r/journal.jsonl");
    let has = |words: &str| {
        std::fs::read_to_string(&journal).is_ok_and(|journal| journal.contains(words))
    };
    eventually("the first failure is recorded", || has("retry_at"));
    running.kill();
    run(&world).args(["--run-id", "r"]).exits(1);
    assert_eq!(world.read("ws/tries"), "x\nx\n");
    let run = Run::latest(&world.path("ws"));
    let failures = run.events("ERROR");
    assert_eq!(failures.len(), 1);
    let starts = run.events("NODE_START");
    let starts = of_node(&starts, "a");
    let again = starts[1]["timestamp"].as_str().unwrap();
    assert!(again >= failures[0]["retry_at"].as_str().unwrap());
}

#[test]
fn a_signal_ends_the_wait_for_a_retry() {
    let world = World::new();
    chain(&world, "retries: 30, shell: 'exit 1'");
    let running = run(&world).spawn();
    eventually("it waits", || running.stderr().contains("again in"));
    running.signal(Signal::INT);
    running.wait().exits(130);
}

#[test]
fn a_record_cannot_make_a_retry_wait_longer_than_it_would() {
    let world = World::new();
    chain(&world, "retries: 1, shell: 'echo x >>tries; exit 1'");
    let running = run(&world).args(["--run-id", "r"]).spawn();
    let journal = world.path("ws/.delta/r/journal.jsonl");
    let text = || std::fs::read_to_string(&journal).unwrap_or_default();
    eventually("the first failure is recorded", || {
        text().contains("retry_at")
    });
    running.kill();
    let (head, tail) = text().split_once("\"retry_at\":\"").map_or_else(
        || panic!("no retry_at"),
        |(head, tail)| (head.to_owned(), tail.to_owned()),
    );
    let far = tail.replacen("20", "90", 1);
    world.write(
        "ws/.delta/r/journal.jsonl",
        format!("{head}\"retry_at\":\"{far}"),
    );
    run(&world).args(["--run-id", "r"]).exits(1);
    assert_eq!(world.read("ws/tries"), "x\nx\n");
}

/// The other clone succeeds and ends the race while the failed one waits: nobody waits for it.
#[test]
fn a_step_that_nobody_wants_any_more_is_not_waited_for() {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        "defaults: {context: none}\nnodes:\n- id: s\n- {id: fan, role: branch}\n\
         - {id: b, shell: 'until test -e $FLOW_WORKSPACE/failed; do sleep 0.01; done; echo 1'}\n\
         - {id: a, retries: 30, shell: 'echo >$FLOW_WORKSPACE/failed; exit 1'}\n- id: x\n- id: y\n\
         edges: [[s, fan, b, x], [fan, a, y]]\n",
    );
    run(&world).args(["-j", "2"]).exits(0).prints("1\n");
}
