//! Which clone of a branch without a merge wins: the first in order, or the first in time.

use crate::flow::run::{result, run};
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

/// A branch with this rule, whose clones run these.
fn race(world: &World, winner: &str, clones: [&str; 3]) {
    let linear = |id: &str, shell: &str| node(id, "linear", &format!(", shell: '{shell}'"));
    let nodes = [
        start(),
        node("b", "branch", winner),
        linear("l", clones[0]),
        linear("k", clones[1]),
        linear("j", clones[2]),
        exit(),
    ];
    let edges = "s>b b>l b>k b>j l>x k>x j>x";
    world.write("f/workflow.yaml", flow(&nodes, edges));
}

fn status_of(outcome: &Value, task: &str) -> Value {
    let tasks = outcome["tasks"].as_array().unwrap();
    let task = tasks.iter().find(|it| it["task_id"] == task);
    task.unwrap()["status"].clone()
}

/// Waits for a file in the workspace.
fn wait_for(file: &str) -> String {
    format!("until test -e \"$FLOW_WORKSPACE/{file}\"; do sleep 0.02; done")
}

#[test]
fn by_order_the_first_that_succeeds_wins_although_another_was_faster() {
    for jobs in ["1", "8"] {
        let world = World::new();
        // One at a time nobody is faster.
        let late = match jobs {
            "1" => "echo 1".to_owned(),
            _ => format!("{}; echo 1", wait_for("fast")),
        };
        race(
            &world,
            "",
            ["exit 1", &late, "touch \"$FLOW_WORKSPACE/fast\"; echo 2"],
        );
        let outcome = run(&world).args(["-j", jobs]).json().exits(0);
        let object = outcome.object();
        assert_eq!(object["output"], 1, "-j {jobs}");
        assert_eq!(status_of(&object, "T1.c0"), "failure");
        assert_eq!(status_of(&object, "T1.c2"), "cancelled");
        assert!(Run::latest(&world.path("ws")).events("WINNER").is_empty());
    }
}

#[test]
fn by_time_the_first_that_succeeds_wins_and_is_recorded_before_others_are_cancelled() {
    let world = World::new();
    let stuck = "cd \"$FLOW_WORKSPACE\"; echo $$ >p; mv p pid; exec sleep 1000";
    let fast = format!("{}; echo 2", wait_for("pid"));
    race(&world, ", winner: first", [stuck, "exit 1", &fast]);
    let object = run(&world).args(["-j", "8"]).json().exits(0).object();
    assert_eq!(object["output"], 2);
    assert_eq!(status_of(&object, "T1.c0"), "cancelled");
    assert_eq!(status_of(&object, "T1.c2"), "success");
    let pid: u32 = world.read("ws/pid").trim().parse().unwrap();
    assert!(!alive(pid));
    let run = Run::latest(&world.path("ws"));
    let [winner] = &run.events("WINNER")[..] else {
        panic!("one event: {:?}", run.types());
    };
    assert_eq!(winner["task_id"], "T1");
    assert_eq!(winner["node_id"], "b");
    assert_eq!(winner["winner"], "T1.c2");
    let journal = run.journal();
    let place = |is: &dyn Fn(&Value) -> bool| journal.iter().position(is).unwrap();
    let cancelled = place(&|it| it["type"] == "TASK_END" && it["status"] == "cancelled");
    assert!(place(&|it| it["type"] == "WINNER") < cancelled);
    let log = Delta::new(world.home()).args(["log", "-w", "ws"]).exits(0);
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    assert!(log.contains("won by T1.c2"), "{log}");
    let page = Delta::new(world.home()).args(["report", "-w", "ws"]);
    page.exits(0);
}

#[test]
fn by_time_with_no_success_the_branch_has_failed() {
    let world = World::new();
    race(&world, ", winner: first", ["exit 1", "exit 2", "exit 3"]);
    let object = run(&world).json().exits(1).object();
    assert_eq!(object["error"]["code"], "upstream_failure");
    assert!(Run::latest(&world.path("ws")).events("WINNER").is_empty());
}

#[test]
fn a_winner_is_said_only_where_one_is_chosen() {
    let world = World::new();
    race(&world, ", winner: last", ["true", "true", "true"]);
    has(
        &errors_of(&world, "f"),
        1,
        "manifest_invalid",
        &["b"],
        "workflow.yaml",
        "winner",
    );
    world.write(
        "f/workflow.yaml",
        around(&node("a", "linear", ", winner: first")),
    );
    let check = |world: &World| Delta::flow(world.home()).args(["check", "f"]).exits(0);
    check(&world).says("winner has no meaning on a node that is not a branch");
    let nodes = [
        start(),
        node("b", "branch", ", winner: first"),
        node("l", "linear", ", command: [cat]"),
        node("k", "linear", ", command: [cat]"),
        node("m", "merge", ""),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>b b>l b>k l>m k>m m>x"));
    check(&world).says("whose clones come to a merge");
}

#[test]
fn from_every_prefix_of_the_journal_a_recorded_winner_wins_again() {
    let clones = ["echo 0", "echo 1", "exit 1"];
    let whole = World::new();
    let command = |world: &World| run(world).args(["--run-id", "r", "-q", "-j", "8"]).json();
    race(&whole, ", winner: first", clones);
    command(&whole).exits(0);
    let journal = Run::latest(&whole.path("ws")).text("journal.jsonl");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    for kept in 2..lines.len() {
        let world = World::new();
        race(&world, ", winner: first", clones);
        copy(&whole.path("ws/.delta"), &world.path("ws/.delta"));
        world.adopt("ws");
        let prefix = lines[..kept].concat().replace(
            whole.path("f").to_str().unwrap(),
            world.path("f").to_str().unwrap(),
        );
        world.write("ws/.delta/r/journal.jsonl", &prefix);
        let object = result(&command(&world).exits(0));
        let events = Run::latest(&world.path("ws")).events("WINNER");
        let [winner] = &events[..] else {
            panic!("from {kept} lines {} winners", events.len());
        };
        let recorded = prefix.lines().find(|line| line.contains("\"WINNER\""));
        if let Some(line) = recorded {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["winner"], winner["winner"], "from {kept} lines");
        }
        let index = usize::from(winner["winner"] != json!("T1.c0"));
        assert_eq!(object["output"], json!(index), "from {kept} lines");
        let other = format!("T1.c{}", 1 - index);
        assert_eq!(status_of(&object, &other), "cancelled", "from {kept} lines");
        let again = fs::read_to_string(world.path("ws/.delta/r/journal.jsonl")).unwrap();
        assert_eq!(result(&command(&world).exits(0)), object);
        assert_eq!(world.read("ws/.delta/r/journal.jsonl"), again);
    }
}
