//! `delta flow run --retry`: what failed, and all behind it, is done again; the rest is kept.

use crate::flow::run::{chain, result, run};
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

/// A node that notes in which task it ran.
fn noting(id: &str, role: &str, more: &str, shell: &str) -> String {
    let note = r#"echo "$FLOW_TASK_ID $FLOW_NODE_ID" >>"$FLOW_WORKSPACE/notes""#;
    node(id, role, &format!(", shell: '{note}; {shell}'{more}"))
}

/// Fails until there is a file `fixed` in the workspace.
const NEEDS_FIX: &str = r#"test -e "$FLOW_WORKSPACE/fixed" && cat"#;

/// What has run since the last call, sorted.
fn notes(world: &World) -> Vec<String> {
    let path = world.path("ws/notes");
    let text = fs::read_to_string(&path).unwrap_or_default();
    fs::write(&path, "").unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn write_flow(world: &World, nodes: &[String], edges: &str) {
    world.write("f/workflow.yaml", flow(nodes, edges));
}

fn command(world: &World) -> Delta {
    run(world).args(["--run-id", "r", "-q"]).json()
}

fn retry(world: &World) -> Delta {
    command(world).arg("--retry")
}

fn journal(world: &World) -> String {
    world.read("ws/.delta/r/journal.jsonl")
}

fn chain_of_three(world: &World) {
    let nodes = [
        start(),
        noting("a", "linear", "", "cat"),
        noting("b", "linear", "", NEEDS_FIX),
        noting("c", "linear", "", "cat"),
        exit(),
    ];
    write_flow(world, &nodes, "s>a a>b b>c c>x");
}

#[test]
fn what_failed_is_done_again_and_what_was_before_it_is_kept_with_the_input() {
    let world = World::new();
    chain_of_three(&world);
    command(&world).args(["-m", "hello"]).exits(1);
    assert_eq!(notes(&world), ["T1 a", "T1 b"]);
    world.write("ws/fixed", "");
    // The input need not be given again, nor the name of the newest run.
    let again = run(&world).args(["--retry", "-q"]).json().exits(0);
    assert_eq!(again.object()["output"], "hello");
    assert_eq!(again.object()["run_id"], "r");
    assert_eq!(notes(&world), ["T1 b", "T1 c"]);
    let run = Run::latest(&world.path("ws"));
    let [line] = &run.events("RETRY")[..] else {
        panic!("one event: {:?}", run.types());
    };
    assert_eq!(line["steps"], json!([{"task_id": "T1", "node_id": "b"}]));
    let log = Delta::new(world.home()).args(["log", "-w", "ws"]).exits(0);
    assert!(String::from_utf8_lossy(&log.stdout).contains("b of T1"));
    Delta::flow(world.home())
        .args(["show", "-w", "ws"])
        .exits(0);
    for reader in ["report", "stats"] {
        Delta::new(world.home()).args([reader, "-w", "ws"]).exits(0);
    }
    // Nothing failed any more: the result is told again.
    let before = journal(&world);
    assert_eq!(result(&retry(&world).exits(0)), result(&again));
    assert_eq!(journal(&world), before);
    assert!(notes(&world).is_empty());
}

#[test]
fn a_retry_that_fails_again_can_be_retried_again() {
    let world = World::new();
    chain_of_three(&world);
    command(&world).exits(1);
    retry(&world).exits(1);
    assert_eq!(notes(&world), ["T1 a", "T1 b", "T1 b"]);
    world.write("ws/fixed", "");
    retry(&world).exits(0);
    assert_eq!(notes(&world), ["T1 b", "T1 c"]);
    assert_eq!(Run::latest(&world.path("ws")).events("RETRY").len(), 2);
}

#[test]
fn without_a_run_there_is_nothing_to_retry() {
    let world = World::new();
    chain_of_three(&world);
    run(&world)
        .arg("--retry")
        .exits(2)
        .says("there is no run of this flow");
    run(&world)
        .args(["--repeat", "a"])
        .exits(2)
        .says("--repeat needs --retry");
    command(&world).exits(1);
    retry(&world)
        .args(["--repeat", "bb"])
        .exits(2)
        .says("there is no 'bb'");
    retry(&world)
        .args(["-m", "other"])
        .exits(1)
        .says("another flow or input");
}

/// A failure that the task survives, and two nodes behind it.
fn goes_on(world: &World, more: &str) {
    let nodes = [
        start(),
        noting("a", "linear", ", continue_on_failure: true", NEEDS_FIX),
        noting("b", "linear", more, "cat"),
        node("c", "linear", ""),
        exit(),
    ];
    write_flow(world, &nodes, "s>a a>b b>c c>x");
}

#[test]
fn what_had_succeeded_behind_a_failure_is_listed_and_done_again() {
    let world = World::new();
    goes_on(&world, "");
    command(&world).exits(3);
    notes(&world);
    world.write("ws/fixed", "");
    let again = run(&world).args(["--retry"]).json().exits(0);
    assert_eq!(again.object()["status"], "success");
    again.says("had succeeded behind what failed, and are done again: b of T1");
    assert_eq!(notes(&world), ["T1 a", "T1 b"]);
}

#[test]
fn a_partial_run_is_shown_as_one_until_a_retry_has_mended_it() {
    let world = World::new();
    goes_on(&world, "");
    command(&world).args(["-m", "hello"]).exits(3);
    let flow = |words: &[&str]| {
        let shown = Delta::flow(world.home()).args(words).args(["-w", "ws"]);
        String::from_utf8(shown.exits(0).stdout).unwrap()
    };
    assert!(flow(&["show"]).starts_with("run r  COMPLETED, partial\n"));
    world.write("ws/fixed", "");
    retry(&world).exits(0);
    assert!(flow(&["show"]).starts_with("run r  COMPLETED\n"));
    let picture = flow(&["graph", "r"]);
    let is_good = |line: &&str| line.contains("fillcolor=\"#b7e4c7\"");
    let nodes: Vec<&str> = picture
        .lines()
        .filter(|line| line.contains("label="))
        .collect();
    assert!(nodes.len() > 2 && nodes.iter().all(is_good), "{picture}");
}

#[test]
fn a_node_that_must_not_be_repeated_is_repeated_only_when_it_is_named() {
    let world = World::new();
    goes_on(&world, ", on_resume: fail");
    command(&world).exits(3);
    notes(&world);
    world.write("ws/fixed", "");
    let before = journal(&world);
    retry(&world).exits(4).says("--repeat b");
    assert_eq!(journal(&world), before);
    assert!(notes(&world).is_empty());
    retry(&world).args(["--repeat", "b"]).exits(0);
    assert_eq!(notes(&world), ["T1 a", "T1 b"]);
}

#[test]
fn of_subtasks_only_those_that_failed_are_done_again_and_their_merge() {
    for (mode, code) in [("fail_on_any", 1), ("partial", 3)] {
        let world = World::new();
        let second = r#"if test "$FLOW_TASK_ID" = T1.s1; then test -e "$FLOW_WORKSPACE/fixed" && cat; else cat; fi"#;
        let nodes = [
            start(),
            noting("p", "split", "", "cat"),
            noting("w", "linear", "", second),
            noting(
                "m",
                "merge",
                &format!(", merge_failure_mode: {mode}"),
                "cat >/dev/null; echo 1",
            ),
            exit(),
        ];
        write_flow(&world, &nodes, "s>p p>w w>m m>x");
        world.write("in.json", "[1,2,3]");
        command(&world).args(["-i", "in.json"]).exits(code);
        notes(&world);
        world.write("ws/fixed", "");
        let again = retry(&world).exits(0);
        assert_eq!(again.object()["status"], "success", "{mode}");
        assert_eq!(notes(&world), ["T1 m", "T1.s1 w"], "{mode}");
    }
}

#[test]
fn what_a_merge_ignores_and_what_lost_beside_a_winner_is_kept() {
    let world = World::new();
    let nodes = [
        start(),
        node("b", "branch", ""),
        noting("l", "linear", "", "exit 1"),
        noting("k", "linear", "", "cat"),
        node("m", "merge", ", merge_failure_mode: ignore_failures"),
        noting("z", "linear", "", NEEDS_FIX),
        exit(),
    ];
    write_flow(&world, &nodes, "s>b b>l b>k l>m k>m m>z z>x");
    command(&world).exits(1);
    notes(&world);
    world.write("ws/fixed", "");
    retry(&world).exits(0);
    assert_eq!(notes(&world), ["T1 z"]);
}

#[test]
fn of_many_inputs_only_those_that_failed_are_done_again() {
    let world = World::new();
    let second = r#"read n; test "$n" != 2 -o -e "$FLOW_WORKSPACE/fixed" && echo "$n""#;
    let nodes = [start(), noting("a", "linear", "", second), exit()];
    write_flow(&world, &nodes, "s>a a>x");
    world.write("in.jsonl", "1\n2\n3\n");
    let command = |world: &World| {
        run(world).args([
            "--run-id", "r", "-q", "-k", "-j", "2", "--inputs", "in.jsonl",
        ])
    };
    let failed = command(&world).end();
    failed.exits(3);
    assert_eq!(notes(&world), ["T1 a", "T2 a", "T3 a"]);
    world.write("ws/fixed", "");
    command(&world).arg("--retry").exits(0).prints("1\n2\n3\n");
    assert_eq!(notes(&world), ["T2 a"]);
}

#[test]
fn after_a_repair_of_the_flow_the_retry_uses_the_changed_files() {
    let world = World::new();
    let with = |b: &str| {
        let nodes = [
            start(),
            noting("a", "linear", "", "cat"),
            noting("b", "linear", "", b),
            exit(),
        ];
        write_flow(&world, &nodes, "s>a a>b b>x");
    };
    with("exit 1");
    command(&world).args(["-m", "x"]).exits(1);
    notes(&world);
    with("cat");
    retry(&world).exits(78).says("--changed ok");
    assert!(notes(&world).is_empty());
    let again = retry(&world).args(["--changed", "ok"]).exits(0);
    assert_eq!(again.object()["output"], "x");
    assert_eq!(notes(&world), ["T1 b"]);
}

#[test]
fn killed_anywhere_in_a_retry_the_same_command_goes_on_with_it() {
    let flow_of = |world: &World| {
        let second = r#"if test "$FLOW_TASK_ID" = T1.s1; then test -e "$FLOW_WORKSPACE/fixed" && cat; else cat; fi"#;
        let nodes = [
            start(),
            node("p", "split", ""),
            noting("w", "linear", "", second),
            noting("m", "merge", "", "cat >/dev/null; echo 1"),
            node("b", "branch", ", winner: first"),
            noting("l", "linear", "", "echo 1"),
            noting("k", "linear", "", "echo 1"),
            exit(),
        ];
        write_flow(world, &nodes, "s>p p>w w>m m>b b>l b>k l>x k>x");
    };
    let whole = World::new();
    flow_of(&whole);
    whole.write("in.json", "[1,2,3]");
    command(&whole).args(["-i", "in.json", "-j", "1"]).exits(1);
    whole.write("ws/fixed", "");
    let expected = result(&retry(&whole).args(["-j", "1"]).exits(0));
    let text = journal(&whole);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let retried = lines
        .iter()
        .position(|line| line.contains("\"RETRY\""))
        .unwrap();
    for kept in retried - 1..lines.len() {
        let world = World::new();
        flow_of(&world);
        copy(&whole.path("ws/.delta"), &world.path("ws/.delta"));
        world.adopt("ws");
        world.write("ws/fixed", "");
        let prefix = lines[..kept].concat().replace(
            whole.path("f").to_str().unwrap(),
            world.path("f").to_str().unwrap(),
        );
        world.write("ws/.delta/r/journal.jsonl", &prefix);
        let outcome = retry(&world).args(["-j", "1"]).exits(0);
        assert_eq!(result(&outcome), expected, "from {kept} lines");
        let run = Run::latest(&world.path("ws"));
        assert_eq!(run.events("RETRY").len(), 1, "from {kept} lines");
        let mut ran = notes(&world);
        let all = ran.len();
        ran.dedup();
        assert_eq!(ran.len(), all, "twice, from {kept} lines: {ran:?}");
        assert!(!ran.contains(&"T1.s0 w".to_owned()), "from {kept} lines");
    }
}

#[test]
fn agents_behind_a_failure_are_asked_anew_and_their_old_runs_stay() {
    let world = World::new();
    let nodes = [
        start(),
        noting("a", "linear", ", continue_on_failure: true", NEEDS_FIX),
        "- {id: b, kind: agent, role: linear, context: none, agent_id: writer}\n".to_owned(),
        exit(),
    ];
    write_flow(&world, &nodes, "s>a a>b b>x");
    world.write("f/agents.yaml", "agents:\n- {id: writer, path: ../agent}\n");
    world.model_says([text("\"first\""), text("\"second\"")]);
    let first = command(&world).exits(3);
    assert_eq!(first.object()["output"], "first");
    world.write("ws/fixed", "");
    let again = retry(&world).exits(0);
    assert_eq!(again.object()["output"], "second");
    let runs = fs::read_dir(world.path("ws/.delta")).unwrap();
    let names = runs.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let agents = names.filter(|name| name.starts_with("node-b-")).count();
    assert_eq!(agents, 2);
    let object: Value = retry(&world).exits(0).object();
    assert_eq!(object["output"], "second");
}

#[test]
fn a_retry_is_recorded_once_and_what_it_does_again_is_open_until_then() {
    let world = World::new();
    // It fails, is killed with its engine in the retry, and comes to its end in the next start.
    let shell = "echo x >>\"$FLOW_WORKSPACE/n\"; case $(wc -l <\"$FLOW_WORKSPACE/n\") in \
                 1) exit 1;; 2) kill -9 $PPID; sleep 600;; *) echo 1;; esac";
    chain(&world, &format!("shell: {}", json!(shell)));
    command(&world).exits(1);
    assert_eq!(retry(&world).end().killed_by(), Some(9));
    let show = Delta::flow(world.home()).args(["show", "-w", "ws", "r"]);
    let shown = show.exits(0);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("T1  open"), "{shown}");
    retry(&world).exits(0);
    let run = Run::latest(&world.path("ws"));
    assert_eq!(run.events("RETRY").len(), 1);
    assert_eq!(run.types().last().unwrap(), "ENGINE_END");
    assert_eq!(world.lines("ws/n").len(), 3);
}

#[test]
fn what_somebody_took_out_of_a_store_is_not_put_back() {
    let world = World::new();
    let nodes = [
        start(),
        node(
            "a",
            "linear",
            ", command: [cat], remember: [{store: project}]",
        ),
        noting("b", "linear", "", NEEDS_FIX),
        exit(),
    ];
    write_flow(&world, &nodes, "s>a a>b b>x");
    world.write(
        "f/memory.yaml",
        "project_store: {type: jsonl, file_path: project.jsonl}\n",
    );
    command(&world).args(["-m", "hello"]).exits(1);
    assert_eq!(world.lines("f/project.jsonl").len(), 1);
    world.write("f/project.jsonl", "");
    world.write("ws/fixed", "");
    retry(&world).exits(0);
    assert_eq!(world.read("f/project.jsonl"), "");
}

#[test]
fn an_attempt_of_the_highest_number_can_be_followed_by_another() {
    let world = World::new();
    chain_of_three(&world);
    command(&world).args(["-m", "hello"]).exits(1);
    // The engine died when it had begun the attempt.
    let text = journal(&world);
    let begun = text.find("\"NODE_START\"").unwrap();
    let begun = begun + text[begun..].find('\n').unwrap();
    let changed = text[..=begun].replace("\"attempt\":1", "\"attempt\":4294967295");
    assert!(changed.contains("4294967295"));
    world.write("ws/.delta/r/journal.jsonl", changed);
    world.write("ws/fixed", "");
    command(&world).args(["-m", "hello"]).exits(0);
}
