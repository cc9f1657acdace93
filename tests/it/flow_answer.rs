//! `delta flow answer`: a person's answer to a question of a flow's agent.

use crate::flow_agents::{command, world};
use crate::flow_run::run;
use crate::harness::*;
use serde_json::json;
use std::fs;

fn question(prompt: &str) -> Reply {
    call("q", "ask_human", &json!({"prompt": prompt}))
}

fn answer(world: &World, words: &[&str]) -> Delta {
    let command = Delta::flow(world.home()).args(["answer", "-w", "ws"]);
    command.args(words)
}

fn listed(world: &World) -> String {
    let outcome = answer(world, &[]).end().exits(0);
    String::from_utf8(outcome.stdout).unwrap()
}

#[test]
fn the_only_open_question_gets_the_answer() {
    let world = world("", "path: ../agent");
    world.server.says([question("Which one?"), text("[1]")]);
    command(&world).end().exits(101);
    assert_eq!(listed(&world), "r  T1  a  Which one?\n");
    answer(&world, &["the b"]).end().exits(0).says("a of T1");
    assert_eq!(listed(&world), "");
    command(&world).end().exits(0).prints("[1]\n");
    let agent = world.runs().into_iter().find(|run| run.id() != "r");
    let received = agent.unwrap().events("HUMAN_INPUT_RECEIVED");
    assert_eq!(received[0]["response"], "the b");
    answer(&world, &["again"])
        .end()
        .exits(1)
        .says("no question");
}

#[test]
fn a_yes_lets_a_call_run_and_other_words_do_not() {
    for (words, log) in [("yes", &["pushed"][..]), ("not today", &[])] {
        let world = world("", "path: ../agent")
            .tools("- {name: push, confirm: true, shell: 'echo pushed >> ../log'}");
        world
            .server
            .says([call("p", "push", &json!({})), text("{}")]);
        command(&world).end().exits(101);
        assert!(listed(&world).contains("Run this call of push?"));
        answer(&world, &[words]).end().exits(0);
        command(&world).end().exits(0);
        assert_eq!(world.lines("log"), log, "{words}");
    }
}

#[test]
fn of_several_questions_the_task_says_which_and_no_answer_is_replaced() {
    let world = world("", "path: ../agent");
    world.write("in.jsonl", "1\n2\n");
    world.server.says([question("Which?"), question("Which?")]);
    let both = || run(&world).args(["--run-id", "r", "--inputs", "in.jsonl", "-j", "1"]);
    both().end().exits(101);
    let unsaid = answer(&world, &["it"]).end().exits(2);
    let list = "r  T1  a  Which?\nr  T2  a  Which?\n";
    assert_eq!(listed(&world), list);
    unsaid.says(list.trim_end());
    answer(&world, &["T3", "it"])
        .end()
        .exits(1)
        .says("r  T2  a");
    answer(&world, &["T2", "-"])
        .stdin("two\nlines\n")
        .end()
        .exits(0);
    answer(&world, &["T2", "other"])
        .end()
        .exits(1)
        .says("has not been read");
    let left = files_below(&world.path("ws/tasks/r/T2/.delta"));
    let left: Vec<_> = left
        .iter()
        .filter(|path| path.ends_with("response.txt"))
        .collect();
    assert_eq!(fs::read_to_string(left[0]).unwrap(), "two\nlines\n");
    // Only one is left.
    answer(&world, &["--run-id", "r", "one"]).end().exits(0);
    world.server.says([text("1"), text("2")]);
    both().end().exits(0).prints("1\n2\n");
}

#[test]
fn a_question_below_the_agent_of_a_node_is_answered_where_it_was_asked() {
    let delta = env!("CARGO_BIN_EXE_delta");
    let below = format!("[{delta}, run, -a, '${{AGENT_HOME}}/../below', -w, below, -m, ask]");
    let world = world("", "path: ../agent").tools(&format!(
        "- {{name: sub, subagent: true, command: {below}}}"
    ));
    for file in ["agent.yaml", "system_prompt.md", "context.yaml"] {
        world.write(
            &format!("below/{file}"),
            world.read(&format!("agent/{file}")),
        );
    }
    world
        .server
        .says([call("s", "sub", &json!({})), question("Deep?")]);
    command(&world).end().exits(101);
    assert_eq!(listed(&world), "r  T1  a  Deep?\n");
    answer(&world, &["T1", "yes"]).end().exits(0);
    world.server.says([text("asked"), text("[2]")]);
    command(&world).end().exits(0).prints("[2]\n");
}

#[test]
fn records_of_somebody_else_are_not_answered() {
    let world = world("", "path: ../agent");
    world.server.says([question("Which one?")]);
    command(&world).end().exits(101);
    copy(&world.path("ws"), &world.path("theirs"));
    let theirs = Delta::flow(world.home()).args(["answer", "-w", "theirs", "b"]);
    theirs.end().exits(78).says("--adopt");
    let files = files_below(&world.path("theirs/.delta"));
    assert!(!files.iter().any(|path| path.ends_with("response.txt")));
}
