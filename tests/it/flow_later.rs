//! Flows whose agents wait for calls that end later.

use crate::flow_agents::{command, world};
use crate::harness::*;
use crate::later::{BUILD, let_time_pass};
use serde_json::{Value, json};
use std::fs;

#[test]
fn a_flow_waits_with_its_agent_and_due_starts_it() {
    let world = world("", "path: ../agent").tools(BUILD);
    world.model_says([
        call("call_1", "build", &json!({"branch": "main"})),
        text("\"done\""),
    ]);
    world.write("said", "all green\n");
    world.write("code", "0");
    command(&world).exits(75).says("waits for build (ci-7)");
    let runs = world.runs();
    let (flow, agent): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| run.id() == "r");
    let due_at = agent[0].metadata()["due_at"].clone();
    assert_eq!(flow[0].metadata()["due_at"], due_at);
    let registry = world.path(".local/state/delta/due");
    let entries: Vec<_> = fs::read_dir(&registry)
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(entries, ["r"]);
    let before = flow[0].text("journal.jsonl");
    command(&world).exits(75).says("waits until 20");
    assert_eq!(flow[0].text("journal.jsonl"), before);
    // The time comes.
    let_time_pass(&agent[0], &["due_at"]);
    let past = "2026-01-02T03:04:05.678Z";
    for path in [registry.join("r"), flow[0].path("metadata.json")] {
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        value["due_at"] = json!(past);
        fs::write(&path, value.to_string()).unwrap();
    }
    world.delta(["due", "--run"]).exits(0).prints("\"done\"\n");
    assert_eq!(world.lines("submitted").len(), 1);
    assert_eq!(fs::read_dir(&registry).unwrap().count(), 0);
}
