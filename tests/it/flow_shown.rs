//! How runs of flows are told by `delta log`, with the runs that their nodes have started.

use crate::flow_run::{chain, run};
use crate::harness::*;
use serde_json::json;

/// A flow in which two agents, `one` and `two`, get the same input at once. Their models say on `here`
/// that they were asked, and answer when somebody writes to `gate`.
pub fn pair() -> (World, Fifo, Fifo) {
    let world = World::new();
    let agent = |id: &str| {
        format!("- {{id: {id}, kind: agent, role: linear, context: none, agent_id: {id}}}\n")
    };
    let nodes = [
        start(),
        node("b", "branch", ""),
        agent("one"),
        agent("two"),
        node("m", "merge", ""),
        exit(),
    ];
    let workflow = flow(&nodes, "s>b b>one b>two one>m two>m m>x");
    world.write("f/workflow.yaml", workflow);
    let agent = |id: &str| {
        format!(
            "- {{id: {id}, llm: any/{id}, prompt: 'You are {id}.', \
             config: {{command: ['${{AGENT_HOME}}/../../../../../m', {id}]}}}}\n"
        )
    };
    world.write(
        "f/agents.yaml",
        format!("agents:\n{}{}", agent("one"), agent("two")),
    );
    let script = r#"#!/bin/sh
cat > /dev/null
echo "$1" > "$HOME/here"
read go < "$HOME/gate"
printf '{"choices":[{"message":{"role":"assistant","content":"[\\"from %s\\"]"},"finish_reason":"stop"}],' "$1"
printf '"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110}}'
"#;
    world.script("m", script);
    let (here, gate) = (world.fifo("here"), world.fifo("gate"));
    (world, here, gate)
}

/// Runs it with both at once.
pub fn together(world: &World, here: &mut Fifo, gate: &mut Fifo) {
    let delta = run(world)
        .args(["--run-id", "r", "-m", "hello", "-j", "2"])
        .spawn();
    here.line();
    here.line();
    gate.tell("go");
    gate.tell("go");
    delta
        .wait()
        .exits(0)
        .prints("[[\"from one\"],[\"from two\"]]\n");
}

fn log(world: &World, args: &[&str]) -> String {
    let outcome = world.delta(["log", "-w", "ws"]).args(args).end().exits(0);
    String::from_utf8(outcome.stdout).unwrap()
}

/// With the margin of nested runs or without it.
fn lines(log: &str, nested: bool) -> Vec<&str> {
    let is_nested = |line: &&str| line.contains('│') == nested;
    log.lines().filter(is_nested).collect()
}

#[test]
fn the_run_of_an_agent_stands_above_the_end_of_its_node() {
    let (world, mut here, mut gate) = pair();
    together(&world, &mut here, &mut gate);
    let log = log(&world, &["r"]);
    for id in ["one", "two"] {
        let end = log
            .lines()
            .position(|line| line.contains(&format!(" {id} ok, ")));
        let before: Vec<&str> = log.lines().take(end.expect("its end")).collect();
        let own: Vec<&&str> = before
            .iter()
            .rev()
            .take_while(|line| line.contains('│'))
            .collect();
        let said = |words: &str| own.iter().filter(|line| line.contains(words)).count();
        assert_eq!(
            said("COMPLETED"),
            1,
            "{id} has one run, and not the other's\n{log}"
        );
        assert_eq!(said(&format!("[\"from {id}\"]")), 1, "{log}");
    }
}

#[test]
fn each_event_of_a_flow_is_one_line() {
    let world = World::new();
    world.write("f/tools.yaml", "tools:\n- {id: t, exec: cat}\n");
    let flow = env!("CARGO_BIN_EXE_delta-flow");
    chain(
        &world,
        &format!(
            "retries: 1, tools: [t], shell: 'test \"$FLOW_ATTEMPT\" = 2 || \
             {{ printf \"no\\tway\\nat all\" >&2; exit 1; }}; {flow} tool t <&- >&2; echo \"{{}}\"'"
        ),
    );
    run(&world).args(["-m", "a\nb"]).end().exits(0);
    let log = log(&world, &[]);
    let told: Vec<String> = log
        .lines()
        .skip(2)
        .map(|line| line[11..].to_owned())
        .collect();
    let expected = [
        "T1     begins with \"a\\nb\"",
        "T1     s ok",
        "T1     s → a",
        "T1     a $ sh -c ",
        "T1     a operation: exit code 1: no way at all, and is tried again",
        "T1     a (attempt 2) $ sh -c ",
        "T1     a calls t  ok, ",
        "T1     a ok, ",
        "T1     a → x",
        "T1     x ok",
        "T1     success at x",
        "end    COMPLETED",
    ];
    assert_eq!(told.len(), expected.len(), "{log}");
    for (line, expected) in told.iter().zip(expected) {
        assert!(
            line.starts_with(expected),
            "{line:?} is not {expected:?}\n{log}"
        );
    }
    assert!(
        told[7].ends_with("MiB  {}"),
        "its output is told: {}",
        told[7]
    );
}

#[test]
fn a_followed_log_shows_the_run_of_an_agent_when_its_node_ends() {
    let (world, mut here, mut gate) = pair();
    let delta = run(&world)
        .args(["--run-id", "r", "-m", "hello", "-j", "1"])
        .spawn();
    here.line();
    let log = world.delta(["log", "-w", "ws", "-f"]).spawn();
    eventually("the log has begun", || log.stdout().contains("one $"));
    assert!(!log.stdout().contains('│'));
    gate.tell("go");
    here.line();
    eventually("the agent is told", || log.stdout().contains("one ok, "));
    assert_eq!(
        lines(&log.stdout(), true)
            .iter()
            .filter(|l| l.contains("[\"from one\"]"))
            .count(),
        1
    );
    gate.tell("go");
    delta.wait().exits(0);
    let log = log.wait().exits(0);
    let log = String::from_utf8_lossy(&log.stdout);
    assert_eq!(log.matches("[1]    [\"from two\"]").count(), 1, "{log}");
    assert!(
        lines(&log, false).last().unwrap().contains("COMPLETED"),
        "{log}"
    );
}

#[test]
fn the_run_of_an_agent_that_was_interrupted_is_told_once_however_often_it_was_taken_up() {
    let (world, mut here, mut gate) = pair();
    let begin = || {
        run(&world)
            .args(["--run-id", "r", "-m", "hello", "-j", "1"])
            .spawn()
    };
    let delta = begin();
    here.line();
    delta.kill();
    let agent = world.path("ws/tasks/T1.c0/.delta");
    eventually("the agent has ended", || {
        agent.join("LATEST").is_file()
            && Run::latest(&agent.with_file_name("")).metadata()["status"] == "INTERRUPTED"
    });
    let half = log(&world, &["r"]);
    assert_eq!(
        lines(&half, true)
            .iter()
            .filter(|l| l.contains("INTERRUPTED"))
            .count(),
        1,
        "{half}"
    );
    let delta = begin();
    gate.tell("go");
    gate.tell("go");
    delta.wait().exits(0);
    let whole = log(&world, &["r"]);
    assert_eq!(whole.matches("agent one, model one").count(), 2, "{whole}");
    assert_eq!(
        whole.matches("│    0:0").count(),
        whole.matches("\n          │    0:0").count()
    );
    let starts = lines(&whole, true)
        .iter()
        .filter(|line| line.contains(" starts "))
        .count();
    assert_eq!(starts, 2, "one run of each agent\n{whole}");
}

#[test]
fn a_flow_within_a_flow_is_told_at_the_node_that_ran_it_though_both_have_one_name() {
    let world = World::new();
    chain(&world, "shell: 'read n; echo \"[$n]\"'");
    std::fs::rename(world.path("f"), world.path("inner")).unwrap();
    let program = env!("CARGO_BIN_EXE_delta-flow");
    let nodes = [
        start(),
        node("parts", "split", ""),
        node(
            "a",
            "linear",
            &format!(
                ", command: ['{program}', run, '${{FLOW_HOME}}/../inner', -i, '-', --run-id, same]"
            ),
        ),
        node("m", "merge", ""),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>parts parts>a a>m m>x"));
    run(&world)
        .args(["-i", "-", "-j", "2"])
        .stdin("[\"first\", \"second\"]")
        .end()
        .exits(0)
        .prints("[[\"first\"],[\"second\"]]\n");
    let log = log(&world, &[]);
    for (task, input) in [("T1.s0", "first"), ("T1.s1", "second")] {
        let end = log
            .find(&format!("{task}  a ok, "))
            .unwrap_or_else(|| panic!("{log}"));
        let begin = log[..end].rfind("begins with").expect("the inner run");
        assert!(
            log[begin..end].starts_with(&format!("begins with \"{input}\"")),
            "{log}"
        );
    }
    let parent = Run::latest(&world.path("ws")).id();
    for n in 0..2 {
        let run = Run {
            dir: world.path(&format!("ws/tasks/T1.s{n}/.delta/same")),
        };
        let metadata = run.metadata();
        assert_eq!(metadata["parent_run_id"], json!(parent));
        let call = &Run::latest(&world.path("ws")).events("NODE_START");
        let call = call
            .iter()
            .find(|event| event["task_id"] == format!("T1.s{n}") && event["node_id"] == "a");
        assert_eq!(
            metadata["parent_call_id"],
            call.expect("a start")["call_id"]
        );
        assert_eq!(
            run.events("ENGINE_START")[0]["parent_call_id"],
            metadata["parent_call_id"]
        );
    }
}
