//! What is told of a run: all of the JSON result, and what the journal has of tasks and their ways.

use crate::flow::run::{chain, run};
use crate::harness::*;
use serde_json::{Value, json};

/// Three subtasks, one of which fails on its way to the merge.
fn three(mode: &str, merge: &str) -> World {
    let world = World::new();
    let nodes = [
        start(),
        node("p", "split", ""),
        node("w", "linear", ", shell: 'read n; test $n != 8 && echo $n'"),
        node(
            "m",
            "merge",
            &format!(", merge_failure_mode: {mode}{merge}"),
        ),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>p p>w w>m m>x"));
    world
}

fn command(world: &World) -> Delta {
    run(world)
        .args(["--run-id", "r", "-i", "-"])
        .stdin("[7,8,9]")
}

/// The events of one type without their envelope.
fn events(world: &World, kind: &str) -> Vec<Value> {
    let mut events = Run::latest(&world.path("ws")).events(kind);
    for event in &mut events {
        let keys = event.as_object_mut().unwrap();
        for key in ["seq", "timestamp", "type", "iteration"] {
            keys.remove(key);
        }
    }
    events
}

#[test]
fn the_result_has_these_keys_and_no_others() {
    let world = three("partial", "");
    let mut object = command(&world).json().exits(3).object();
    let metrics = object["metrics"].as_object_mut().unwrap();
    assert!(metrics.remove("duration_ms").unwrap().is_u64());
    let times = ["start_time", "end_time"].map(|key| metrics.remove(key).unwrap());
    assert!(times[0].as_str().unwrap() <= times[1].as_str().unwrap());
    let failure = json!({"code": "operation", "node": "w", "message": "exit code 1"});
    let subtask = |index: usize, output: u32| {
        json!({
            "task_id": format!("T1.s{index}"), "parent": "T1", "type": "subtask",
            "index": index, "edge": "p>w", "status": "success", "path": ["w"],
            "exit_node": null, "merged_at": "m", "output": output, "failed_nodes": [],
            "error": null,
        })
    };
    let expected = json!({
        "schema_version": "1.0", "run_id": "r", "status": "partial", "exit_node": "x",
        "output": [7, 9], "error": failure,
        "tasks": [
            {
                "task_id": "T1", "parent": null, "type": "root", "index": 0, "edge": null,
                "status": "partial", "path": ["s", "p", "m", "x"], "exit_node": "x",
                "merged_at": null, "output": [7, 9], "failed_nodes": [], "error": null,
            },
            subtask(0, 7),
            {
                "task_id": "T1.s1", "parent": "T1", "type": "subtask", "index": 1,
                "edge": "p>w", "status": "failure", "path": ["w"], "exit_node": null,
                "merged_at": null, "output": null, "failed_nodes": ["w"], "error": failure,
            },
            subtask(2, 9),
        ],
        "stop_reason": "partial", "exit_code": 3,
        "messages": ["T1: w: operation: exit code 1"],
        "metrics": {
            "roots": 1, "tasks": 4, "clones": 0, "subtasks": 3, "nodes": 7, "failed_nodes": 1,
        },
    });
    assert_eq!(object, expected);
}

#[test]
fn of_many_inputs_the_outputs_are_a_list_and_all_is_counted() {
    let world = World::new();
    let nodes = [
        start(),
        node("b", "branch", ""),
        node("l", "linear", ""),
        node("k", "linear", ""),
        node("m", "merge", ""),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>b b>l b>k l>m k>m m>x"));
    world.write("in.jsonl", "1\n2\n");
    let outcome = run(&world).args(["--inputs", "in.jsonl"]).json().end();
    let object = outcome.exits(0).object();
    assert_eq!(object["exit_node"], Value::Null);
    assert_eq!(object["output"], json!([[1, 1], [2, 2]]));
    assert_eq!(object["error"], Value::Null);
    let ids: Vec<&Value> = object["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| &task["task_id"])
        .collect();
    assert_eq!(ids, ["T1", "T1.c0", "T1.c1", "T2", "T2.c0", "T2.c1"]);
    let metrics = &object["metrics"];
    for (key, count) in [
        ("roots", 2),
        ("tasks", 6),
        ("clones", 4),
        ("subtasks", 0),
        ("nodes", 12),
        ("failed_nodes", 0),
    ] {
        assert_eq!(metrics[key], count, "{key}");
    }
}

#[test]
fn a_merge_is_given_what_arrived_and_what_failed_in_the_order_of_their_places() {
    let world = three("ignore_failures", ", command: [cat]");
    let outcome = command(&world).args(["-j", "3"]).exits(0);
    let arrived = |index: usize, output: u32| {
        json!({
            "node_id": "w", "task_id": format!("T1.s{index}"), "index": index,
            "status": "success", "output": output,
        })
    };
    let expected = json!({
        "merge_inputs": [arrived(0, 7), arrived(2, 9)],
        "failures": [{
            "node_id": "w", "task_id": "T1.s1", "index": 1, "status": "failure",
            "error": {"code": "operation", "message": "exit code 1"},
        }],
    });
    let given: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(given, expected);
}

#[test]
fn the_journal_tells_of_tasks_and_of_the_ways_that_they_took() {
    let world = three("partial", "");
    command(&world).args(["-j", "1"]).exits(3);
    let subtask = |index: usize| {
        json!({
            "task_id": format!("T1.s{index}"), "parent_id": "T1", "kind": "subtask",
            "index": index, "edge": "p>w",
        })
    };
    assert_eq!(
        events(&world, "TASK_CREATED"),
        [
            json!({"task_id": "T1", "parent_id": null, "kind": "root", "index": 0, "input": [7, 8, 9]}),
            subtask(0),
            subtask(1),
            subtask(2),
        ]
    );
    assert_eq!(
        events(&world, "ROUTE"),
        [
            json!({"task_id": "T1", "node_id": "s", "to": ["p"]}),
            json!({"task_id": "T1", "node_id": "p", "to": ["w"]}),
            json!({"task_id": "T1.s0", "node_id": "w", "to": ["m"]}),
            json!({"task_id": "T1.s2", "node_id": "w", "to": ["m"]}),
            json!({"task_id": "T1", "node_id": "m", "to": ["x"]}),
        ]
    );
    assert_eq!(
        events(&world, "MERGE"),
        [json!({"task_id": "T1", "node_id": "m", "arrived": 2, "failed": 1})]
    );
    let merged = |id: &str| json!({"task_id": id, "status": "success", "merged_at": "m"});
    assert_eq!(
        events(&world, "TASK_END"),
        [
            merged("T1.s0"),
            json!({
                "task_id": "T1.s1", "status": "failure", "node_id": "w", "code": "operation",
                "message": "exit code 1",
            }),
            merged("T1.s2"),
            json!({"task_id": "T1", "status": "partial", "exit_node": "x"}),
        ]
    );
}

/// A clone that branches, merges and goes on behind that merge to another one. `w` runs `shell`.
fn inner_merge(shell: &str) -> World {
    let world = World::new();
    let nodes = [
        start(),
        node("b", "branch", ""),
        node("i", "branch", ""),
        node("u", "linear", ""),
        node("v", "linear", ""),
        node("m", "merge", ""),
        node("w", "linear", &format!(", shell: '{shell}'")),
        node("z", "linear", ""),
        node("n", "merge", ", merge_failure_mode: partial"),
        exit(),
    ];
    let edges = "s>b b>i b>z i>u i>v u>m v>m m>w w>n z>n n>x";
    world.write("f/workflow.yaml", flow(&nodes, edges));
    world
}

#[test]
fn a_clone_that_goes_on_behind_an_inner_merge_is_reported_with_its_own_end() {
    let failure = json!({"code": "operation", "node": "w", "message": "exit code 1"});
    for (shell, exit, status, merged_at, output, error) in [
        ("echo 3", 0, "success", json!("n"), json!(3), Value::Null),
        ("exit 1", 3, "failure", Value::Null, Value::Null, failure),
    ] {
        let world = inner_merge(shell);
        let object = run(&world).args(["-m", "p"]).json().exits(exit);
        let object = object.object();
        let tasks = object["tasks"].as_array().unwrap();
        let clone = tasks.iter().find(|task| task["task_id"] == "T1.c0");
        let clone = clone.unwrap();
        assert_eq!(clone["path"], json!(["i", "m", "w"]));
        for (key, value) in [
            ("status", &json!(status)),
            ("merged_at", &merged_at),
            ("output", &output),
            ("error", &error),
        ] {
            assert_eq!(clone[key], *value, "{key} with {shell}");
        }
        let ends = events(&world, "TASK_END");
        let end = ends.iter().find(|end| end["task_id"] == "T1.c0").unwrap();
        assert_eq!(end["status"], status);
        assert_eq!(end["merged_at"], merged_at);
        let show = Delta::flow(world.home()).args(["show", "T1.c0", "-w", "ws"]);
        let shown = String::from_utf8(show.exits(0).stdout).unwrap();
        let line = format!("T1.c0  {status}  i > m > w");
        assert!(shown.starts_with(&line), "{shown}");
    }
}

#[test]
fn the_way_of_a_decision_is_told_with_its_label() {
    let world = World::new();
    let nodes = [
        start(),
        node("d", "decision", ""),
        node("l", "linear", ""),
        exit(),
    ];
    let edges = "s>d d>l:long d>x:short l>x";
    world.write("f/workflow.yaml", flow(&nodes, edges));
    run(&world).args(["-m", "short"]).exits(0);
    assert_eq!(
        events(&world, "ROUTE")[1],
        json!({"task_id": "T1", "node_id": "d", "to": ["x"], "label": "short"})
    );
}

#[test]
fn an_end_says_whether_the_output_was_known() {
    let world = World::new();
    chain(&world, "cache: true, command: [cat]");
    for known in [Value::Null, json!(true)] {
        run(&world).args(["-m", "one"]).exits(0);
        let ends = events(&world, "NODE_END");
        let said: Vec<&Value> = ends.iter().map(|end| &end["cached"]).collect();
        assert_eq!(said, [&Value::Null, &known, &Value::Null]);
        assert_eq!(ends[1]["output"], "one");
    }
}
