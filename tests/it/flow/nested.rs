//! A flow as a node of another: its output, its status, and what suspends it.

use crate::flow::run::{chain, run};
use crate::harness::*;
use serde_json::json;
use std::fs;

/// An outer flow whose node `a` is the flow `inner`, which has these nodes between start and exit.
fn nested(world: &World, more: &str, inner: &[String], edges: &str) {
    chain(world, &format!("flow: ./inner{more}"));
    let nodes = [&[start()], inner, &[exit()]].concat();
    world.write("f/inner/workflow.yaml", flow(&nodes, edges));
}

fn linear(id: &str, more: &str) -> String {
    node(id, "linear", &format!(", {more}"))
}

fn command(world: &World) -> Delta {
    run(world).args(["--run-id", "r", "-q"]).json()
}

#[test]
fn its_output_is_the_nodes_and_it_works_where_the_task_does() {
    for jobs in ["1", "8"] {
        let world = World::new();
        let shell = r#"shell: 'pwd >where; test "$(cat)" = "{\"n\":1}" && echo 2'"#;
        nested(&world, "", &[linear("i", shell)], "s>i i>x");
        world.write("in.json", r#"{"n":1}"#);
        let outcome = command(&world).args(["-i", "in.json", "-j", jobs]).exits(0);
        assert_eq!(outcome.object()["output"], 2);
        assert_eq!(outcome.object()["run_id"], "r");
        let place = world.read("ws/where");
        assert_eq!(
            place.trim(),
            fs::canonicalize(world.path("ws"))
                .unwrap()
                .to_str()
                .unwrap()
        );
        let shown = Delta::flow(world.home())
            .args(["show", "r", "-w", "ws"])
            .exits(0);
        assert!(String::from_utf8_lossy(&shown.stdout).contains("success"));
        for reader in ["log", "report", "stats"] {
            Delta::new(world.home())
                .args([reader, "r", "-w", "ws"])
                .exits(0);
        }
    }
}

#[test]
fn its_status_is_the_nodes() {
    let world = World::new();
    nested(&world, "", &[linear("i", "shell: 'exit 7'")], "s>i i>x");
    let failed = command(&world).exits(1).object();
    assert_eq!(failed["error"]["code"], "operation");
    assert_eq!(failed["error"]["message"], "i: operation: exit code 7");
    let world = World::new();
    let goes_on = linear("i", "shell: 'exit 7', continue_on_failure: true");
    nested(&world, "", &[goes_on], "s>i i>x");
    let partial = command(&world).args(["-m", "y"]).exits(3).object();
    assert_eq!(partial["status"], "partial");
    assert_eq!(partial["output"], "y");
    let journal = world.read("ws/.delta/r/journal.jsonl");
    let ends = journal.lines().filter(|line| line.contains("NODE_END"));
    let end = ends
        .into_iter()
        .find(|line| line.contains("\"node_id\":\"a\""));
    assert!(end.unwrap().contains("\"status\":\"partial\""), "{journal}");
    // Told again, it is the same.
    assert_eq!(command(&world).exits(3).object()["status"], "partial");
}

#[test]
fn a_flow_that_is_wrong_inside_is_not_run_at_all() {
    let world = World::new();
    nested(
        &world,
        "",
        &[node("i", "linear", ", bogus_role: x, schema_in: none")],
        "s>i i>x",
    );
    let errors = errors_of(&world, "f");
    has(
        &errors,
        1,
        "unknown_schema",
        &["i"],
        "./inner/workflow.yaml",
        "none",
    );
    chain(&world, "flow: ./nowhere");
    has(
        &errors_of(&world, "f"),
        1,
        "manifest_missing",
        &["a"],
        "workflow.yaml",
        "nowhere",
    );
    chain(&world, "flow: .");
    has(
        &errors_of(&world, "f"),
        1,
        "cycle",
        &["a"],
        "workflow.yaml",
        "round for ever",
    );
    chain(&world, "flow: ./inner, command: [cat]");
    let errors = errors_of(&world, "f");
    assert!(
        errors
            .iter()
            .any(|it| it["message"].as_str().unwrap().contains("keep one"))
    );
}

#[test]
fn a_changed_file_of_it_is_a_change_of_the_flow() {
    let world = World::new();
    nested(&world, "", &[linear("i", "shell: 'exit 1'")], "s>i i>x");
    command(&world).exits(1);
    nested(&world, "", &[linear("i", "shell: 'echo 5'")], "s>i i>x");
    let retry = |world: &World| command(world).arg("--retry");
    retry(&world).exits(78).says("inner/workflow.yaml");
    let again = retry(&world).args(["--changed", "ok"]).exits(0);
    assert_eq!(again.object()["output"], 5);
}

#[test]
fn a_pause_inside_it_suspends_the_node_and_the_same_command_goes_on() {
    let world = World::new();
    nested(
        &world,
        "",
        &["- {id: i, kind: agent, role: linear, context: none, agent_id: asker}\n".to_owned()],
        "s>i i>x",
    );
    world.write(
        "f/inner/agents.yaml",
        "agents:\n- {id: asker, path: ../../agent, ask_human: true}\n",
    );
    let question = json!({"prompt": "Which colour?"});
    world.model_says([call("c1", "ask_human", &question)]);
    let waiting = command(&world).end();
    let waiting = waiting.exits(101).says("Which colour?");
    assert_eq!(waiting.object()["status"], "waiting_for_input");
    // Nothing has changed, and it waits on.
    command(&world).exits(101).says("Which colour?");
}

#[test]
fn killed_at_any_time_it_goes_on_and_nothing_inside_runs_twice() {
    let note = |id: &str| {
        let shell = format!(r#"shell: 'echo {id} >>"$FLOW_WORKSPACE/notes"; cat'"#);
        linear(id, &shell)
    };
    let mut killed = 0;
    for kills in 1..=6_usize {
        let world = World::new();
        nested(&world, "", &[note("i"), note("j")], "s>i i>j j>x");
        let journals = || {
            let runs = fs::read_dir(world.path("ws/.delta")).into_iter().flatten();
            let texts = runs.flatten().map(|run| {
                fs::read_to_string(run.path().join("journal.jsonl")).unwrap_or_default()
            });
            texts.map(|text| text.matches('\n').count()).sum::<usize>()
        };
        let goal = journals() + kills * 4;
        let running = command(&world).args(["-m", "z"]).spawn();
        eventually("the journals grow or the run ends", || {
            journals() >= goal || !alive(running.pid())
        });
        running.kill();
        killed += 1;
        let outcome = command(&world).args(["-m", "z"]).exits(0);
        assert_eq!(outcome.object()["output"], "z", "killed after {goal} lines");
        let run = Run::latest(&world.path("ws"));
        assert!(run.path("journal.jsonl").exists());
    }
    assert_eq!(killed, 6);
}

#[test]
fn it_does_not_take_the_directory_for_itself_when_the_outer_flow_has_just_died() {
    let world = World::new();
    chain(&world, r#"shell: 'env >"$HOME/env"; cat'"#);
    let inner = flow(&[start(), linear("i", "shell: cat"), exit()], "s>i i>x");
    world.write("f/inner/workflow.yaml", inner);
    command(&world).args(["-m", "z"]).exits(0);
    let begin = ["run", "f/inner", "-w", "ws", "--run-id", "in", "-m", "z"];
    let mut within = Delta::flow(world.home()).args(begin);
    let variables = world.lines("env").into_iter();
    for line in variables.filter(|line| line.starts_with("DELTA_")) {
        let (name, value) = line.split_once('=').unwrap();
        within = within.env(name, value);
    }
    // For the kernel, a process that has let go of its locks has not ended yet.
    let engine = std::process::id().to_string();
    within.env("DELTA_ENGINE_PID", engine).exits(0);
    assert_eq!(world.read("ws/.delta/ROOT"), "r\n");
}

#[test]
fn a_run_of_it_that_has_not_ended_goes_on_with_changed_files_if_that_is_meant() {
    let world = World::new();
    let shell = "[ -e \"$FLOW_WORKSPACE/go\" ] || kill -9 $PPID; echo 5";
    let inner = |more: &str| [linear("i", &format!("shell: {}{more}", json!(shell)))];
    nested(&world, "", &inner(""), "s>i i>x");
    command(&world).exits(75);
    world.write("ws/go", "");
    nested(&world, "", &inner(", timeout_ms: 60000"), "s>i i>x");
    command(&world).exits(78).says("inner/workflow.yaml");
    let again = command(&world).args(["--changed", "ok"]).exits(0);
    assert_eq!(again.object()["output"], 5);
}
