//! `records: failed`: nodes that succeed leave no directory.

use crate::flow::run::run;
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// `a` counts, `b` fails once for each input and then passes it on, `c` fails for 2 until there is a file.
fn world(top: &str) -> World {
    let world = World::new();
    let once = "if test -e once; then echo b >>$FLOW_WORKSPACE/b; cat; else touch once; exit 1; fi";
    let c = "echo c $n >>$FLOW_WORKSPACE/seen; test $n != 2 -o -e $FLOW_WORKSPACE/mended && rm once && echo $n";
    world.write(
        "f/workflow.yaml",
        format!(
            "{top}\ndefaults: {{context: none}}\nnodes:\n- id: s\n\
             - {{id: a, shell: 'read n; echo a $n >>$FLOW_WORKSPACE/seen; echo $n'}}\n\
             - {{id: b, retries: 1, shell: '{once}'}}\n- {{id: c, shell: 'read n; {c}'}}\n- id: x\n\
             edges: [[s, a, b, c, x]]\n"
        ),
    );
    world.write("in.jsonl", "1\n2\n3\n");
    world
}

fn command(world: &World) -> Delta {
    run(world).args(["--inputs", "in.jsonl", "-k", "--run-id", "r", "-j", "2"])
}

/// The directories of records that are there, as `T1/a`.
fn records(world: &World) -> Vec<String> {
    let nodes = world.path("ws/.delta/r/io/nodes");
    let mut all = Vec::new();
    for task in fs::read_dir(nodes).unwrap().flatten() {
        let name = task.file_name().into_string().unwrap();
        let steps: Vec<_> = fs::read_dir(task.path()).unwrap().flatten().collect();
        assert!(!steps.is_empty(), "{name} is empty");
        let steps = steps
            .into_iter()
            .map(|it| it.file_name().into_string().unwrap());
        all.extend(steps.map(|step| format!("{name}/{step}")));
    }
    all.sort();
    all
}

fn flow(world: &World, args: &[&str]) -> Outcome {
    let delta = Delta::flow(world.home()).args(args).args(["-w", "ws"]);
    delta.end()
}

#[test]
fn only_nodes_that_failed_leave_records_and_the_result_is_the_same() {
    let all = world("");
    let kept = command(&all).json().exits(3).object();
    let per_task = |task: &str| ["a", "b", "b_2", "c"].map(|node| format!("{task}/{node}"));
    let every: Vec<String> = ["T1", "T2", "T3"]
        .iter()
        .flat_map(|task| per_task(task))
        .collect();
    assert_eq!(records(&all), every);
    for (top, option) in [
        ("records: failed", None),
        ("", Some("failed")),
        ("records: all", Some("failed")),
    ] {
        let world = world(top);
        let options = option.iter().flat_map(|word| ["--records", word]);
        let object = command(&world).args(options).json().exits(3).object();
        assert_eq!(
            (&object["tasks"], &object["output"]),
            (&kept["tasks"], &kept["output"])
        );
        assert_eq!(records(&world), ["T2/c"]);
        // What a task has left in its directory stays there.
        assert!(!world.exists("ws/tasks/r/T1"));
        assert!(world.exists("ws/tasks/r/T2/once"));
        // Told again, it is the same.
        let again = command(&world).args(["--records", "failed"]).json().end();
        assert_eq!(again.exits(3).object()["output"], kept["output"]);
        assert_eq!(records(&world), ["T2/c"]);
    }
    let outcome = command(&world("records: some")).exits(78);
    outcome.says("workflow.yaml:1: manifest_invalid: records: expected one of all, failed");
}

#[test]
fn what_reads_runs_finds_in_the_journal_what_has_no_records() {
    let all = world("");
    command(&all).exits(3);
    let world = world("records: failed");
    command(&world).exits(3);
    let shown = |world: &World, args: &[&str]| {
        let outcome = flow(world, &[&["show", "r"], args].concat()).exits(0);
        String::from_utf8(outcome.stdout).unwrap()
    };
    let text = shown(&world, &["T1", "a"]);
    for part in [
        "--- records\nremoved: the run keeps those of failures only\n",
        "--- command\nsh -c ",
        "--- usage\n{\"cpu_ms\":",
        "--- input\n1\n",
        "--- output\n1\n",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert!(shown(&world, &["T2", "c"]).contains("--- input\n2\n"));
    let figures = |world: &World| {
        let outcome = flow(world, &["stats", "r", "--format", "json"]).exits(0);
        let mut stats: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        let nodes = stats[0]["flow"]["nodes"].take();
        let of = |node: &str, key: &str| nodes[node][key].clone();
        let keys = ["count", "failures", "retries", "context_bytes"];
        let used = ["a", "b", "c"].map(|node| of(node, "memory_bytes").as_u64().unwrap() > 0);
        (
            ["a", "b", "c"].map(|node| keys.map(|key| of(node, key))),
            used,
        )
    };
    assert_eq!(figures(&world), figures(&all));
    assert_ne!(figures(&world).0[0][3], json!(0), "the size of the context");
    flow(&world, &["artifacts", "r", "--verify"]).exits(0);
    for args in [
        &["list-runs"][..],
        &["log", "r"],
        &["export", "r", "--format", "otlp"],
    ] {
        let outcome = world.delta(args.iter().copied()).args(["-w", "ws"]).end();
        outcome.exits(0);
    }
    world
        .delta(["report", "-w", "ws", "-o", "page", "r"])
        .exits(0);
}

#[test]
fn a_retry_does_what_failed_and_then_its_records_go_too() {
    let world = world("records: failed");
    command(&world).exits(3);
    world.write("ws/mended", "");
    command(&world)
        .args(["--retry"])
        .exits(0)
        .prints("1\n2\n3\n");
    let mut seen = world.lines("ws/seen");
    seen.sort();
    assert_eq!(seen, ["a 1", "a 2", "a 3", "c 1", "c 2", "c 2", "c 3"]);
    // What succeeds in the end leaves nothing of its attempts that failed.
    assert_eq!(records(&world), [""; 0]);
}

#[test]
fn from_every_prefix_of_the_journal_the_same_comes_and_no_records_are_left() {
    let world = world("records: failed");
    command(&world).exits(3);
    let run = world.path("ws/.delta/r");
    let journal = fs::read_to_string(run.join("journal.jsonl")).unwrap();
    let lines: Vec<&str> = journal.lines().collect();
    world.write("ws/mended", "");
    for kept in (2..lines.len()).step_by(3) {
        fs::write(run.join("journal.jsonl"), lines[..kept].join("\n") + "\n").unwrap();
        fs::remove_dir_all(run.join("io/nodes")).unwrap();
        fs::create_dir(run.join("io/nodes")).unwrap();
        fs::remove_file(world.path("ws/seen")).ok();
        // Killed before any records were removed, or behind that.
        for line in lines[..kept].iter().filter(|_| kept % 2 == 0) {
            let line: Value = serde_json::from_str(line).unwrap();
            if let Some(dir) = line["execution_ref"].as_str() {
                fs::create_dir_all(run.join(dir)).unwrap();
                fs::write(run.join(dir).join("stdout.log"), "").unwrap();
            }
        }
        for n in 1..=3 {
            world.write(&format!("ws/tasks/r/T{n}/once"), "");
        }
        let done: Vec<String> = lines[..kept]
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|line| line["type"] == "NODE_END" && line["node_id"] == "a")
            .map(|line| format!("a {}", &line["task_id"].as_str().unwrap()[1..]))
            .collect();
        let ended = command(&world).json().end();
        let output = ended.object()["output"].clone();
        let failed = lines[..kept]
            .iter()
            .any(|line| line.contains("\"NODE_END\"") && line.contains("\"failure\""));
        let second = if failed { Value::Null } else { json!(2) };
        assert_eq!(output, json!([1, second, 3]), "{kept}");
        let seen = fs::read_to_string(world.path("ws/seen")).unwrap_or_default();
        for again in done {
            assert!(!seen.contains(&again), "{again} behind {kept} lines");
        }
        let left: Vec<String> = records(&world);
        let allowed = |name: &String| failed && name.starts_with("T2/c");
        assert!(left.iter().all(allowed), "{left:?} behind {kept} lines");
    }
}

#[test]
fn killed_among_many_inputs_each_is_done_and_told_once() {
    for jobs in ["1", "8"] {
        let world = World::new();
        let kills = "if test $((n % 10)) = 0 -a ! -e $d/k$n; then touch $d/k$n; kill -9 $PPID; sleep 99; fi";
        world.write(
            "f/workflow.yaml",
            format!(
                "records: failed\ndefaults: {{context: none}}\nnodes:\n- id: s\n\
                 - {{id: a, shell: 'd=$FLOW_WORKSPACE; read n; {kills}; echo $n'}}\n- id: x\n\
                 edges: [[s, a, x]]\n"
            ),
        );
        let all: String = (1..=40).map(|n| format!("{n}\n")).collect();
        let start = || {
            let args = [
                "--inputs", "-", "--run-id", "r", "-j", jobs, "--format", "jsonl",
            ];
            let ended = run(&world).args(args).stdin(all.clone()).end();
            if ended.killed_by().is_some() {
                // As a kill between the removal of its records and its own leaves it.
                fs::create_dir_all(world.path("ws/.delta/r/io/nodes/T1")).unwrap();
            }
            ended
        };
        let ended = (0..5).map(|_| start()).find(|it| it.killed_by().is_none());
        let ended = ended.expect("four kills").exits(0);
        let lines = String::from_utf8(ended.stdout).unwrap();
        let told = lines.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["output"].as_u64().unwrap()
        });
        let mut told: Vec<u64> = told.collect();
        told.sort_unstable();
        assert_eq!(told, (1..=40).collect::<Vec<u64>>());
        let run = Run::latest(&world.path("ws"));
        let of_a = |event: &&Value| event["node_id"] == "a";
        assert_eq!(run.events("NODE_END").iter().filter(of_a).count(), 40);
        assert_eq!(records(&world), [""; 0]);
        assert_eq!(fs::read_dir(world.path("ws/tasks/r")).unwrap().count(), 0);
    }
}

#[test]
fn files_do_not_grow_with_the_inputs() {
    let files = |count: usize| {
        let world = World::new();
        crate::flow::run::chain(&world, "exec: cat");
        let all: String = (1..=count).map(|n| format!("{n}\n")).collect();
        let args = ["--inputs", "-", "--records", "failed", "-j", "4"];
        let outcome = run(&world).args(args).stdin(all.clone()).end();
        outcome.exits(0).prints(&all);
        files_below(&world.path("ws")).len()
    };
    assert_eq!(files(3), files(60));
}

#[test]
fn a_large_output_stays_when_its_records_go() {
    let world = World::new();
    crate::flow::run::chain(
        &world,
        "shell: 'printf \\\"; head -c 100000 /dev/zero | tr \"\\0\" y; printf \\\"'",
    );
    let command = || run(&world).args(["--records", "failed", "--run-id", "r"]);
    let first = command().exits(0);
    assert_eq!(first.stdout.len(), 100_003);
    assert_eq!(records(&world), ["T1/a.output.json"]);
    let again = command().exits(0);
    assert_eq!(again.stdout, first.stdout);
    flow(&world, &["artifacts", "r", "--verify"]).exits(0);
}

/// A run whose journal lies about where the records of a step that succeeded are.
fn resumed_with_records_at(world: &World, reference: &str) {
    let world_run = || {
        run(world).args([
            "--inputs",
            "in.jsonl",
            "--records",
            "failed",
            "--run-id",
            "r",
        ])
    };
    world.write("in.jsonl", "1\n2\n");
    crate::flow::run::chain(
        world,
        "shell: 'read n; test $n = 1 || kill -9 $PPID; echo $n'",
    );
    let killed = world_run().args(["-j", "1"]).end();
    assert_eq!(killed.killed_by(), Some(9));
    let path = world.path("ws/.delta/r/journal.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"records_removed\":true"));
    fs::write(&path, text.replacen("io/nodes/T1/a", reference, 1)).unwrap();
    crate::flow::run::chain(world, "exec: cat");
    let args = ["--changed", "ok"];
    world_run().args(args).exits(0).prints("1\n2\n");
}

#[test]
fn nothing_is_removed_but_directories_of_records() {
    let is_there = |world: &World, name: &str| Path::exists(&world.path(name));
    for reference in [
        "../../../victim/a",
        "io/nodes/T1/../../../../../victim/a",
        "io/nodes/T1/b",
        "/VICTIM/a",
        "io/nodes",
        "io/nodes/T1/",
    ] {
        let world = World::new();
        world.write("victim/a/file", "");
        let victim = world.path("victim");
        let reference = reference.replace("/VICTIM", victim.to_str().unwrap());
        resumed_with_records_at(&world, &reference);
        assert!(is_there(&world, "victim/a/file"), "{reference}");
        assert!(is_there(&world, "ws/.delta/r/io/nodes"), "{reference}");
    }
    // A link stands for the directory of the task.
    let world = World::new();
    world.write("victim/a_7/file", "");
    world.write("in.jsonl", "1\n2\n");
    crate::flow::run::chain(
        &world,
        "shell: 'read n; test $n = 1 || kill -9 $PPID; echo $n'",
    );
    let args = [
        "--inputs",
        "in.jsonl",
        "--records",
        "failed",
        "--run-id",
        "r",
        "-j",
        "1",
    ];
    assert_eq!(run(&world).args(args).end().killed_by(), Some(9));
    let nodes = world.path("ws/.delta/r/io/nodes");
    fs::remove_dir_all(nodes.join("T1")).ok();
    std::os::unix::fs::symlink(world.path("victim"), nodes.join("T1")).unwrap();
    let path = world.path("ws/.delta/r/journal.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("io/nodes/T1/a", "io/nodes/T1/a_7", 1)).unwrap();
    crate::flow::run::chain(&world, "exec: cat");
    let again = run(&world).args(args).args(["--changed", "ok"]).end();
    again
        .exits(1)
        .says("io/nodes/T1: it is a link, or is no directory");
    assert!(is_there(&world, "victim/a_7/file"));
    // The next start removes what the run that was killed has left, and no more.
    fs::remove_file(nodes.join("T1")).unwrap();
    run(&world).args(args).args(["--changed", "ok"]).exits(0);
    assert!(is_there(&world, "victim/a_7/file"));
}
