//! `delta flow replay`: a node, or a whole run, again, and compared.

use crate::flow::agents;
use crate::flow::run::{chain, run};
use crate::harness::*;
use std::fs;

fn replay(world: &World, words: &[&str]) -> Delta {
    let command = Delta::flow(world.home()).args(["replay", "-q", "-w", "ws"]);
    command.args(words)
}

/// Runs a flow whose node prints what is in a file beside the workspace.
fn ran(a: &str) -> World {
    let world = World::unasked();
    chain(&world, a);
    world.write("n", "1\n");
    run(&world).args(["--run-id", "r", "-m", "x"]).end();
    world
}

/// No copy of a workspace is left.
fn nothing_is_left(world: &World) {
    let entries = fs::read_dir(world.path("tmp")).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [""; 0]);
}

#[test]
fn a_node_is_run_again_with_its_input_and_compared() {
    let world = ran("shell: 'read x; date >>when; cat $HOME/n'");
    fs::create_dir(world.path("tmp")).unwrap();
    let again = || replay(&world, &["r", "a"]).env("TMPDIR", world.path("tmp"));
    let before = snapshot(&world.path("ws"));
    let same = again().exits(0);
    let said = String::from_utf8(same.stdout).unwrap();
    assert!(said.starts_with("T1 a: success, as recorded; "), "{said}");
    nothing_is_left(&world);
    world.write("n", "2\n");
    let other = again().exits(1);
    let said = String::from_utf8(other.stdout).unwrap();
    assert!(
        said.starts_with("T1 a: success, but not as recorded; "),
        "{said}"
    );
    assert!(said.ends_with("\n- 1\n+ 2\n"), "{said}");
    // It worked in a copy, which is kept.
    let kept = fs::read_dir(world.path("tmp"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let lines = fs::read_to_string(kept.path().join("when")).unwrap();
    assert_eq!(lines.lines().count(), 2);
    assert_eq!(snapshot(&world.path("ws")), before);
    world.write("n", "no\n");
    let object = again().json().exits(1).object();
    assert_eq!(object["same"], false);
    assert_eq!(object["recorded"]["output"], 1);
    assert_eq!(object["replayed"]["status"], "failure");
    assert_eq!(object["replayed"]["error"]["code"], "operation");
}

#[test]
fn a_node_that_failed_fails_again() {
    let world = ran("shell: 'exit 7'");
    replay(&world, &["r", "a"]).exits(0);
    replay(&world, &["r"]).exits(0);
    replay(&world, &["r", "s"]).exits(2).says("runs nothing");
    replay(&world, &["r", "b"])
        .exits(2)
        .says("there are s, a, x");
}

#[test]
fn a_run_is_walked_with_the_answers_of_its_agents_and_parts_where_something_differs() {
    let world = agents::world("", "path: ../agent");
    let nodes = [
        start(),
        node("one", "linear", ", shell: 'read x; cat $HOME/n'"),
        node("ask", "linear", ", agent_id: ag").replace("deterministic", "agent"),
        node(
            "two",
            "linear",
            ", shell: 'read n; echo $((n + $(cat $HOME/m)))'",
        ),
        node("three", "linear", ", shell: 'read n; echo $((n + 1))'"),
        exit(),
    ];
    world.write(
        "f/workflow.yaml",
        flow(&nodes, "s>one one>ask ask>two two>three three>x"),
    );
    world.write("n", "1\n");
    world.write("m", "10\n");
    world.model_says([text("5")]);
    let outcome = run(&world).args(["--run-id", "r", "-m", "x"]).end();
    outcome.exits(0).prints("16\n");
    let agents = world.runs().len();
    replay(&world, &["r"])
        .exits(0)
        .prints("6 steps, all as recorded\n");
    world.write("m", "20\n");
    let object = replay(&world, &["r"]).json().exits(1).object();
    let parted = &object["parted_at"];
    assert_eq!(
        (&parted["task_id"], &parted["node_id"]),
        (&"T1".into(), &"two".into())
    );
    assert_eq!(
        (&parted["recorded"]["output"], &parted["replayed"]["output"]),
        (&15.into(), &25.into())
    );
    world.write("m", "1 +\n");
    let parts = replay(&world, &["r"]).exits(1);
    let said = String::from_utf8(parts.stdout).unwrap();
    assert!(
        said.starts_with("parts at T1 two: success, then failure; "),
        "{said}"
    );
    // One node of it: the agent is asked again, and its run is none of the workspace's.
    world.model_says([text("6")]);
    let said = replay(&world, &["r", "ask"]).exits(1).stdout;
    assert!(String::from_utf8(said).unwrap().ends_with("- 5\n+ 6\n"));
    assert_eq!(world.runs().len(), agents);
}

#[test]
fn of_several_tasks_one_is_named_and_has_its_directory() {
    let world = World::unasked();
    chain(&world, "shell: 'read n; echo $n >>made; cat made'");
    world.write("in.jsonl", "1\n2\n");
    let many = run(&world).args(["--run-id", "r", "--inputs", "in.jsonl"]);
    many.exits(0);
    replay(&world, &["r", "a"])
        .exits(2)
        .says("T1, T2")
        .says("--task");
    // The file that the task made is there: `cat` prints two values.
    let second = replay(&world, &["r", "a", "--task", "T2"]).exits(1);
    let said = String::from_utf8(second.stdout).unwrap();
    assert!(said.contains("\n- 2\n+ operation: "), "{said}");
    // The whole run begins with none.
    replay(&world, &["r"]).exits(0);
    assert_eq!(world.read("ws/tasks/r/T2/made"), "2\n");
}

#[test]
fn a_node_has_the_context_that_it_had_and_no_store_is_written() {
    let world = World::unasked();
    let remember = "remember: [{store: project, tags: [t], pointer: ''}], ";
    chain(
        &world,
        &format!("{remember} shell: 'cat >/dev/null; cat \"$FLOW_CONTEXT\"'"),
    );
    let workflow = world.read("f/workflow.yaml");
    let workflow = workflow.replace("role: linear, context: none", "role: linear, context: all");
    world.write("f/workflow.yaml", workflow);
    world.write(
        "f/memory.yaml",
        "project_store: {type: jsonl, file_path: '${FLOW_HOME}/p.jsonl'}\n\
         context_profiles: [{id: all, max_tokens: 1000, sources: [{store: project}, {store: task}]}]\n",
    );
    world.write("f/p.jsonl", "");
    for text in ["first", "second"] {
        let add = ["memory", "add", "project", "f", "-m", text];
        Delta::flow(world.home()).args(add).exits(0);
    }
    run(&world).args(["--run-id", "r", "-m", "x"]).exits(0);
    let stored = world.read("f/p.jsonl");
    assert!(stored.lines().count() == 3, "{stored}");
    replay(&world, &["r", "a"]).exits(0);
    assert_eq!(world.read("f/p.jsonl"), stored);
    let context = Run::latest(&world.path("ws")).path("io/nodes/T1/a/context.json");
    let file = fs::OpenOptions::new().append(true).open(context).unwrap();
    file.set_len(1200 << 20).unwrap();
    let again = replay(&world, &["r", "a"]).after("ulimit -v 900000");
    again.refuses(1, "context.json: it is larger than 512 MiB");
}

#[test]
fn what_a_race_left_behind_does_not_part_a_run() {
    let world = World::unasked();
    let nodes = [
        start(),
        node("b", "branch", ""),
        node("fast", "linear", ", shell: 'cat'"),
        node("slow", "linear", ", shell: 'cat >/dev/null; sleep 1000'"),
        exit(),
    ];
    world.write(
        "f/workflow.yaml",
        flow(&nodes, "s>b b>fast b>slow fast>x slow>x"),
    );
    run(&world).args(["--run-id", "r", "-m", "x"]).exits(0);
    replay(&world, &["r"]).exits(0);
    eventually("nothing is left", || world.processes().is_empty());
}

#[test]
fn nothing_runs_for_changed_files_or_records_of_somebody_else() {
    let world = ran("shell: 'date >>$HOME/log; echo 1'");
    assert_eq!(world.lines("log").len(), 1);
    copy(&world.path("ws"), &world.path("theirs"));
    let theirs = ["replay", "-w", "theirs", "r", "a"];
    let theirs = Delta::flow(world.home()).args(theirs);
    theirs.exits(78).says("--adopt");
    chain(&world, "shell: 'date >>$HOME/log; echo 2'");
    for words in [&["r", "a"][..], &["r"]] {
        let refused = replay(&world, words).exits(78);
        refused.says("workflow.yaml").says("--changed ok");
    }
    assert_eq!(world.lines("log").len(), 1);
    let changed = replay(&world, &["r", "a", "--changed", "ok"]).end();
    assert!(changed.exits(1).stdout.ends_with(b"- 1\n+ 2\n"));
    assert_eq!(world.lines("log").len(), 2);
}

#[test]
fn a_node_that_asks_a_person_says_what_to_do_instead() {
    let world = agents::world("", "path: ../agent");
    let question = || call("q", "ask_human", &serde_json::json!({"prompt": "Which?"}));
    world.model_says([question(), text("1")]);
    run(&world).args(["--run-id", "r", "-m", "x"]).exits(101);
    let answer = Delta::flow(world.home()).args(["answer", "-w", "ws", "this"]);
    answer.exits(0);
    run(&world).args(["--run-id", "r", "-m", "x"]).exits(0);
    world.model_says([question()]);
    let command = Delta::flow(world.home()).args(["replay", "-w", "ws", "r", "a"]);
    command.exits(1).says(
        "T1 a asks a person, and the repetition of a node gets no answers; `delta flow replay r`",
    );
}
