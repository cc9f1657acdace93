//! Agent nodes: runs of delta whose answers are JSON; and looking at runs of flows.

use crate::flow::run::{chain, run};
use crate::harness::*;
use serde_json::Value;
use std::fs;
use std::process::Command;

/// A flow whose node `a` is the agent of the world, and the schema `ok` that wants `{"ok": true}`.
pub fn world(more: &str, agent: &str) -> World {
    let world = World::new();
    chain(&world, "");
    let workflow = world.read("f/workflow.yaml").replace(
        "{id: a, kind: deterministic, role: linear, context: none, }",
        &format!("{{id: a, kind: agent, role: linear, context: none, agent_id: ag{more}}}"),
    );
    world.write("f/workflow.yaml", workflow);
    // Most of these agents ask.
    let consent = match agent.starts_with("path") && !agent.contains("ask_human") {
        true => ", ask_human: true",
        false => "",
    };
    let agents = format!("agents:\n- {{id: ag, {agent}{consent}}}\n");
    world.write("f/agents.yaml", agents);
    world.write(
        "f/schemas/ok.json",
        r#"{"type":"object","required":["ok"],"properties":{"ok":{"const":true}}}"#,
    );
    world
}

pub fn command(world: &World) -> Delta {
    run(world).args(["--run-id", "r", "-m", "do it"])
}

/// The n-th request of the agent's run.
pub fn said(world: &World, n: usize) -> String {
    let runs = world.runs().into_iter().filter(|run| run.id() != "r");
    let dirs: Vec<_> = runs.flat_map(|run| run.invocations()).collect();
    fs::read_to_string(dirs[n - 1].join("request.json")).unwrap()
}

#[test]
fn an_answer_in_a_fence_is_the_output() {
    let world = world("", "path: ../agent");
    world.model_says([text("```json\n{\"n\": 1}\n```\n")]);
    command(&world).exits(0).prints("{\"n\": 1}\n");
    assert!(said(&world, 1).contains("do it"));
    // The agent's run is one of its own, in the same workspace.
    assert_eq!(world.runs().len(), 2);
    command(&world).exits(0).prints("{\"n\": 1}\n");
}

/// Nothing asks for JSON, and what stands around the block is part of the answer.
#[test]
fn an_answer_with_a_fence_in_it_is_a_text_unless_json_is_wanted() {
    let answer = "Set this:\n```json\n{\"ok\": true}\n```\nThen restart it.";
    let told = format!("{}\n", serde_json::to_string(answer).unwrap());
    for (schema, printed) in [("", &*told), (", schema_out: ok", "{\"ok\": true}\n")] {
        let world = world(schema, "path: ../agent");
        world.model_says([text(answer)]);
        command(&world).exits(0).prints(printed);
    }
    let two = "```json\n1\n```\nor\n```json\n2\n```";
    let world = world("", "path: ../agent");
    world.model_says([text(two)]);
    let told = format!("{}\n", serde_json::to_string(two).unwrap());
    command(&world).exits(0).prints(&told);
}

#[test]
fn an_answer_that_does_not_fit_is_sent_back_with_what_is_wrong() {
    let world = world(", schema_out: ok", "path: ../agent, repairs: 2");
    world.model_says([
        text("I cannot"),
        text("{\"ok\": false}"),
        text("{\"ok\": true}"),
    ]);
    command(&world)
        .exits(0)
        .prints("{\"ok\": true}\n")
        .says("sent back");
    let last = said(&world, 3);
    assert!(
        last.contains("not one JSON value") && last.contains("does not fit schema ok"),
        "{last}"
    );
}

#[test]
fn an_agent_that_cannot_do_better_fails_the_node() {
    let world = world(", schema_out: ok", "path: ../agent, repairs: 1");
    world.model_says([text("1"), text("2")]);
    let outcome = command(&world).json().exits(1);
    assert_eq!(outcome.object()["error"]["code"], "schema_out");
}

#[test]
fn a_question_ends_the_flow_and_an_answer_lets_it_go_on() {
    let world = world("", "path: ../agent");
    let question = call(
        "q",
        "ask_human",
        &serde_json::json!({"prompt": "Which one?"}),
    );
    world.model_says([question, text("{\"chosen\": \"b\"}")]);
    let waiting = command(&world).refuses(101, "Which one?");
    let line = waiting
        .stderr
        .lines()
        .find_map(|line| line.split_once("answer with: "));
    let (_, line) = line.expect("a way to answer");
    let words: Vec<String> = line.split(' ').skip(1).map(str::to_owned).collect();
    assert_eq!(
        Run {
            dir: world.path("ws/.delta/r")
        }
        .ending()
        .0,
        "WAITING_FOR_INPUT"
    );
    // Nobody has answered yet.
    command(&world).exits(101).says("Which one?");
    let words = words
        .iter()
        .map(|word| if word == "ANSWER" { "b" } else { word.as_str() });
    Delta::new(world.home())
        .args(words)
        .env("DELTA_API_KEY", "")
        .exits(0);
    command(&world).exits(0).prints("{\"chosen\": \"b\"}\n");
}

#[test]
fn a_call_that_a_person_must_confirm_ends_the_flow_and_a_yes_lets_it_go_on() {
    let world = world("", "path: ../agent")
        .tools("- {name: push, confirm: true, shell: 'echo pushed >> ../log'}");
    let push = call("p", "push", &serde_json::json!({}));
    world.model_says([push, text("{}")]);
    let waiting = command(&world).exits(101).says("Allow this command?");
    let mut lines = waiting.stderr.lines();
    let line = lines.find_map(|line| line.split_once("to say yes: "));
    let words = shlex::split(line.expect("a way to answer").1).unwrap();
    assert!(words.contains(&"--question".to_owned()), "{words:?}");
    assert_eq!(words[words.len() - 2..], ["-m", "yes"]);
    let no = lines.find_map(|line| line.split_once("to say no: "));
    assert!(no.expect("a way to refuse").1.ends_with(" -m no"));
    assert!(world.lines("log").is_empty());
    Delta::new(world.home()).args(&words[1..]).exits(0);
    assert_eq!(world.lines("log"), ["pushed"]);
    command(&world).exits(0).prints("{}\n");
    assert_eq!(world.lines("log"), ["pushed"]);
}

#[test]
fn the_run_of_an_agent_does_not_hide_the_flow_that_it_is_a_part_of() {
    let world = world("", "path: ../agent");
    let question = call(
        "q",
        "ask_human",
        &serde_json::json!({"prompt": "Which one?"}),
    );
    world.model_says([question]);
    for _ in 0..2 {
        run(&world).args(["-m", "it"]).exits(101);
    }
    // The flow's and the agent's.
    assert_eq!(world.runs().len(), 2);
    let shown = Delta::flow(world.home()).args(["show", "-w", "ws"]).end();
    let shown = shown.exits(0);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("T1"));
}

#[test]
fn a_program_that_is_an_agent_is_as_any_other() {
    let world = world(
        ", output: text, on_resume: fail",
        "command: [sh, -c, 'echo said; test -e go || { touch go; kill -9 $PPID; }']",
    );
    let outcome = command(&world).end();
    assert_eq!(outcome.killed_by(), Some(9));
    command(&world).exits(1).says("on_resume: fail");
    run(&world)
        .args(["-m", "again"])
        .exits(0)
        .prints("\"said\"\n");
}

#[test]
fn an_agent_that_decides_is_told_the_ways_and_asked_again_if_it_takes_none() {
    let world = world("", "path: ../agent");
    world.write(
        "f/workflow.yaml",
        "nodes:
- {id: s, kind: deterministic, role: start, context: none, default_start: true}
- {id: a, kind: agent, role: decision, context: none, agent_id: ag}
- {id: bug, kind: deterministic, role: exit, context: none}
- {id: x, kind: deterministic, role: exit, context: none}
edges:
- {from: s, to: a}
- {from: a, to: bug}
- {from: a, to: x, label: wish}
",
    );
    world.model_says([text("\"wishes\""), text("\"wish\"")]);
    let outcome = command(&world).json().exits(0);
    assert_eq!(outcome.object()["exit_node"], "x");
    assert!(
        said(&world, 1).contains(r#"\"bug\", \"wish\""#),
        "{}",
        said(&world, 1)
    );
    assert!(said(&world, 2).contains("there is no edge"));
    world.model_says([text("1"), text("2")]);
    let outcome = run(&world).args(["-m", "no"]).json().exits(1);
    assert_eq!(outcome.object()["error"]["code"], "invalid_edge");
}

#[test]
fn while_one_agent_waits_for_a_person_the_rest_goes_on() {
    let world = world("", "path: ../agent");
    let asks = node("b", "linear", "").replace("deterministic", "agent");
    let asks = asks.replace("context: none", "context: none, agent_id: ag");
    let note = ", shell: 'read n; echo $n >>$FLOW_WORKSPACE/ran; echo $n'";
    let nodes = [
        start(),
        node("p", "split", ""),
        asks,
        node("n", "linear", note),
        node("m", "merge", ""),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>p p>b b>n n>m m>x"));
    let question = call("q", "ask_human", &serde_json::json!({"prompt": "Which?"}));
    world.model_says([question, text("8"), text("9")]);
    let split = || {
        let run = run(&world).args(["--run-id", "r", "-j", "1", "-i", "-"]);
        run.stdin("[1,2,3]")
    };
    let waiting = split().json().exits(101).says("b of T1.s0 asks: Which?");
    let object = waiting.object();
    assert_eq!(object["status"], "waiting_for_input");
    let tasks = object["tasks"].as_array().unwrap();
    let paths: Vec<&Value> = tasks.iter().map(|task| &task["path"]).collect();
    let [no, both] = [serde_json::json!([]), serde_json::json!(["b", "n"])];
    assert_eq!(paths[1..], [&no, &both, &both]);
    assert_eq!(world.lines("ws/ran"), ["8", "9"]);
    world.model_says([text("7")]);
    let answer = Delta::new(world.home()).args(["continue", "-w", "ws/tasks/r/T1.s0", "-m", "it"]);
    answer.exits(0);
    split().exits(0).prints("[7,8,9]\n");
    assert_eq!(world.lines("ws/ran"), ["8", "9", "7"]);
}

#[test]
fn an_input_behind_one_that_waits_for_a_person_is_taken() {
    let world = world("", "path: ../agent");
    let question = call("q", "ask_human", &serde_json::json!({"prompt": "Which?"}));
    world.model_says([question, text("8")]);
    world.write("in.jsonl", "1\n2\n");
    let outcome = run(&world)
        .args(["--inputs", "in.jsonl", "-j", "1"])
        .json()
        .exits(101);
    let tasks = outcome.object()["tasks"].take();
    assert_eq!(tasks[0]["status"], "running");
    assert_eq!(
        (&tasks[1]["status"], &tasks[1]["output"]),
        (&"success".into(), &8.into())
    );
}

#[test]
fn an_agent_that_waits_for_a_person_comes_before_a_model_that_is_down() {
    let world = world("", "path: ../agent").llm("max_retries: 0");
    let workflow = world.read("f/workflow.yaml");
    let workflow = workflow.replace("edges:", &format!("{}edges:", node("p", "split", "")));
    let workflow = workflow.replace("{from: s, to: a}", "{from: s, to: p}\n- {from: p, to: a}");
    world.write("f/workflow.yaml", workflow);
    let split = || {
        let run = run(&world).args(["--run-id", "r", "-j", "1", "-i", "-"]);
        run.stdin("[1,2]")
    };
    let question = call("q", "ask_human", &serde_json::json!({"prompt": "Which?"}));
    world.model_says([question, Reply::error(503, "down")]);
    split()
        .exits(101)
        .says("a of T1.s0 asks: Which?")
        .says("a of T1.s1: ")
        .says("down");
    world.model_says([text("2")]);
    split().exits(101).says("a of T1.s0 asks: Which?");
    world.model_says([text("1")]);
    let answer = Delta::new(world.home()).args(["continue", "-w", "ws/tasks/r/T1.s0", "-m", "it"]);
    answer.exits(0);
    split().exits(0).prints("[1,2]\n");
}

#[test]
fn an_agent_that_a_signal_ends_has_not_failed() {
    let world = world("", "path: ../agent");
    world.model_says([text("1").held()]);
    let running = command(&world).spawn();
    world.server.wait_for(1);
    let runs = world.runs();
    let agent = runs.iter().find(|run| run.id() != "r").unwrap();
    let pid = agent.metadata()["pid"].as_u64().unwrap();
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.unwrap().success());
    running.wait().exits(75).says("a of T1: ").says("137");
    world.model_says([text("2")]);
    command(&world).exits(0).prints("2\n");
    assert_eq!(world.runs().len(), 2);
}

#[test]
fn an_agent_whose_files_break_comes_before_a_pause_and_both_are_told() {
    let world = world("", "path: ../agent");
    let file = world.path("agent/agent.yaml").display().to_string();
    let good = world.read("agent/agent.yaml");
    let agent = node("a", "linear", ", agent_id: ag").replace("deterministic", "agent");
    let breaks = format!(", shell: 'echo \"llm: [\" >{file}; echo 1'");
    let nodes = [
        start(),
        node("f", "branch", ""),
        node("b", "linear", &breaks),
        agent,
        node("c", "linear", ", command: [echo, '3']"),
        node("m", "merge", ""),
        exit(),
    ];
    world.write(
        "f/workflow.yaml",
        flow(&nodes, "s>f f>b f>c b>a a>m c>m m>x"),
    );
    let paused = || command(&world).args(["--pause-before", "c"]);
    let outcome = paused().json().exits(78);
    let outcome = outcome.says("a of T1.c0: ");
    let outcome = outcome.says("paused before c of T1.c1");
    assert_eq!(outcome.object()["status"], "interrupted");
    world.write("agent/agent.yaml", good);
    world.model_says([text("2")]);
    paused().exits(0).prints("[2,3]\n");
}

#[test]
fn another_try_is_another_run_of_the_agent() {
    let world =
        world(", schema_out: ok, retries: 2", "path: ../agent, repairs: 0").llm("max_retries: 0");
    world.model_says([
        text("no"),
        Reply::error(400, "not like this"),
        text("{\"ok\": true}"),
    ]);
    // A run that waits for somebody's decision is no failed try.
    command(&world).exits(4).says("not like this");
    command(&world).exits(0).prints("{\"ok\": true}\n");
    let runs = world.runs();
    let tries: Vec<_> = runs.iter().filter(|run| run.id() != "r").collect();
    let endings: Vec<String> = tries.iter().map(|run| run.ending().0).collect();
    assert_eq!(endings, ["COMPLETED", "COMPLETED"]);
    for run in tries {
        assert_eq!(run.events("USER_MESSAGE").len(), 1);
    }
    // Nothing of it is done again.
    command(&world).exits(0);
    assert_eq!(world.runs().len(), 3);
}

#[test]
fn the_run_of_an_agent_is_gone_on_with_after_a_kill() {
    let world = world("", "path: ../agent").tools("- {name: note, shell: 'echo noted >>../log'}");
    world.model_says([call("n", "note", &serde_json::json!({})), text("1").held()]);
    let running = command(&world).spawn();
    world.server.wait_for(2);
    running.kill();
    world.model_says([text("2")]);
    command(&world).exits(0).prints("2\n");
    assert_eq!(world.lines("log"), ["noted"]);
    let runs = world.runs();
    assert_eq!(runs.len(), 2);
    let agent = runs.iter().find(|run| run.id() != "r").unwrap();
    assert_eq!(agent.events("ENGINE_START").len(), 2);
    assert_eq!(agent.events("USER_MESSAGE").len(), 1);
    eventually("no process is left", || world.processes().is_empty());
}

#[test]
fn a_model_that_is_down_leaves_the_flow_to_be_resumed() {
    let world = world("", "path: ../agent").llm("max_retries: 0");
    world.model_says([Reply::error(503, "down"), text("1")]);
    command(&world)
        .exits(75)
        .says("the same command resumes the run");
    command(&world).exits(0).prints("1\n");
}

#[test]
fn an_agent_is_made_from_a_model_and_a_prompt() {
    let world = world(
        "",
        "llm: any/model-1, prompt: Be brief., config: {command: ['${AGENT_HOME}/../../../../../m']}",
    );
    let script = r#"#!/bin/sh
cat >request
printf '%s' '{"choices":[{"message":{"role":"assistant","content":"[1]"},"finish_reason":"stop"}]}'
"#;
    world.script("m", script);
    command(&world).exits(0).prints("[1]\n");
    let request: Value = serde_json::from_str(&world.read("ws/request")).unwrap();
    assert_eq!(request["model"], "model-1");
    let system = request["messages"][0]["content"].as_str().unwrap();
    assert!(system.ends_with("Be brief."), "{system}");
}

#[test]
fn a_flow_is_a_command_and_so_a_node() {
    let world = World::new();
    chain(&world, "shell: 'read n; echo $((n + 1))'");
    fs::rename(world.path("f"), world.path("inner")).unwrap();
    let program = env!("CARGO_BIN_EXE_delta-flow");
    chain(
        &world,
        &format!(
            "command: ['{program}', run, '${{FLOW_HOME}}/../inner', -i, '-', -w, sub, --run-id, one]"
        ),
    );
    run(&world)
        .args(["-i", "-"])
        .stdin("1")
        .exits(0)
        .prints("2\n");
    let metadata = fs::read_to_string(world.path("ws/sub/.delta/one/metadata.json")).unwrap();
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    assert_eq!(
        metadata["parent_run_id"],
        Run::latest(&world.path("ws")).id()
    );
}

#[test]
fn a_flow_within_a_flow_is_taken_up_with_it_and_not_called_left_behind() {
    let world = World::new();
    chain(
        &world,
        "shell: 'echo x >>ran; test -e go || { touch go; kill -9 $OUTER $PPID; }; echo 1'",
    );
    fs::rename(world.path("f"), world.path("inner")).unwrap();
    let program = env!("CARGO_BIN_EXE_delta-flow");
    chain(
        &world,
        &format!(
            "shell: 'OUTER=$PPID; export OUTER; {program} run \"$FLOW_HOME/../inner\" -w . -q'"
        ),
    );
    assert_eq!(run(&world).end().killed_by(), Some(9));
    let outcome = run(&world).exits(0).prints("1\n");
    outcome.does_not_say("starting a new run");
    assert_eq!(world.read("ws/ran"), "x\nx\n");
    assert_eq!(world.runs().len(), 2);
}

#[test]
fn a_run_is_shown_as_a_tree_a_task_and_a_node() {
    let world = World::new();
    chain(&world, "shell: 'echo heard >&2; cat'");
    run(&world).args(["--run-id", "r", "-m", "hello"]).exits(0);
    let show = |names: &[&str]| {
        let outcome = Delta::flow(world.home())
            .args(["show", "-w", "ws"])
            .args(names)
            .end();
        String::from_utf8(outcome.exits(0).stdout).unwrap()
    };
    let tree = show(&[]);
    assert_eq!(tree, "run r  COMPLETED\n  T1  success  s > a > x\n");
    assert!(show(&["r", "T1"]).contains("\n  a  ok, "));
    let node = show(&["T1", "a"]);
    for part in [
        "--- command\nsh -c",
        "--- input\n\"hello\"",
        "--- said\nheard",
        "--- output\n\"hello\"",
    ] {
        assert!(node.contains(part), "{node}");
    }
    assert!(
        show(&["T1", "x"]).contains("--- input\n\"hello\"\n"),
        "{}",
        show(&["T1", "x"])
    );
    let missing = Delta::flow(world.home())
        .args(["show", "-w", "ws", "T1", "b"])
        .end();
    missing.exits(1).says("it was at s, a, x");
}

#[test]
fn the_log_and_the_list_of_runs_show_a_flow() {
    let world = World::new();
    chain(&world, "shell: 'cat; exit 1'");
    run(&world).args(["--run-id", "r", "-m", "hello"]).exits(1);
    let log = world.delta(["log", "-w", "ws"]).exits(0);
    let text = String::from_utf8(log.stdout).unwrap();
    for part in [
        "flow f from s",
        "T1     a $ sh -c",
        "T1     a operation: exit code 1",
        "FAILED",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let list = world.delta(["list-runs", "-w", "ws"]).exits(0);
    let text = String::from_utf8(list.stdout).unwrap();
    assert!(
        text.contains("FAILED") && text.contains("\"hello\""),
        "{text}"
    );
}

/// How often the answers of the agent of node `a` have been sent back.
fn sent_back(world: &World) -> usize {
    let mut runs = world.runs().into_iter().filter(|run| run.id() != "r");
    let messages = runs.next().expect("the agent's run").events("USER_MESSAGE");
    let content = |message: &Value| message["content"].as_str().unwrap().to_owned();
    let sent = |text: &String| text.starts_with("This answer will not do");
    messages.iter().map(content).filter(sent).count()
}

#[test]
fn an_engine_that_is_killed_during_a_repair_does_not_begin_to_count_again() {
    let world = world(", schema_out: ok", "path: ../agent, repairs: 1");
    world.model_says([text("1"), text("2").held()]);
    let running = command(&world).spawn();
    world.server.wait_for(2);
    running.kill();
    assert_eq!(sent_back(&world), 1);
    world.model_says([text("3")]);
    let outcome = command(&world).json().exits(1);
    assert_eq!(outcome.object()["error"]["code"], "schema_out");
    assert_eq!(sent_back(&world), 1);
}

#[test]
fn from_every_prefix_of_the_journal_an_answer_is_sent_back_only_as_often_as_it_may() {
    let whole = world(", schema_out: ok", "path: ../agent, repairs: 2");
    whole.model_says([text("1"), text("2"), text("3")]);
    command(&whole).exits(1);
    let journal = Run {
        dir: whole.path("ws/.delta/r"),
    };
    let journal = journal.text("journal.jsonl");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    for kept in 2..lines.len() {
        let prefix = lines[..kept].concat();
        whole.write("ws/.delta/r/journal.jsonl", prefix);
        let outcome = command(&whole).json().exits(1);
        let error = &outcome.object()["error"];
        assert_eq!(error["code"], "schema_out", "from {kept} lines");
        assert_eq!(sent_back(&whole), 2, "from {kept} lines");
    }
}

/// An agent that is made from a model, at the world's server.
fn model_agent(world: &World, more: &str) {
    let url = world.server.url();
    let agent = format!(
        "agents:\n- {{id: ag, llm: any/m, prompt: be good, config: {{base_url: '{url}'}}, {more}}}\n"
    );
    world.write("f/agents.yaml", agent);
}

#[test]
fn an_agent_that_is_made_from_a_model_and_has_tools_is_sent_its_answer_back_and_answered() {
    let world = world(", schema_out: ok, tools: [t]", "path: ../agent");
    let tools = "tools:\n- {id: t, command: [echo, hi]}\n";
    world.write("f/tools.yaml", tools);
    model_agent(&world, "repairs: 1, ask_human: true");
    let question = call(
        "q",
        "ask_human",
        &serde_json::json!({"prompt": "Which one?"}),
    );
    world.model_says([text("bad"), question, text("{\"ok\": true}")]);
    let waiting = command(&world).exits(101).says("Which one?");
    let line = waiting.stderr.split("answer with: delta ").nth(1).unwrap();
    let line = line.lines().next().unwrap().replace("ANSWER", "b");
    let answered = Delta::new(world.home()).args(shlex::split(&line).unwrap());
    answered.exits(0);
    command(&world).exits(0).prints("{\"ok\": true}\n");
}

#[test]
fn what_an_agent_may_spend_and_what_checks_its_answer_is_passed_on() {
    let limits = "repairs: 1, budget: {tokens: 40}, max_iterations: 7, \
                  accept: [{command: [sh, -c, 'grep -q right || { echo not right; exit 1; }']}]";
    for from_model in [false, true] {
        let world = world("", &format!("path: ../agent, {limits}"));
        if from_model {
            model_agent(&world, limits);
        }
        // A server that counts nothing makes each request cost its estimate, which is more than that.
        world.model_says([text("\"wrong\"")]);
        let ended = command(&world).exits(4);
        ended.says("budget");
        let agent = world
            .runs()
            .into_iter()
            .find(|run| run.id() != "r")
            .unwrap();
        assert_eq!(agent.events("ACCEPTANCE").len(), 1);
        let config = agent.events("ENGINE_START").swap_remove(0)["config"].clone();
        assert_eq!(config["max_iterations"], 7);
        assert_eq!(
            (&config["budget"]["tokens"], &config["repairs"]),
            (&40.into(), &1.into())
        );

        // What is raised binds the run that was begun with less.
        let agents = world
            .read("f/agents.yaml")
            .replace("tokens: 40", "tokens: 900000");
        world.write("f/agents.yaml", agents);
        world.model_says([text("\"right\"")]);
        let more = command(&world).args(["--changed", "ok"]).end();
        more.exits(0).prints("\"right\"\n");
        assert!(said(&world, 2).contains("not right"));
    }
}

#[test]
fn limits_of_an_agent_are_checked_with_the_flow() {
    for (agent, says) in [
        ("path: ../agent, budget: {cots: 3}", "cots"),
        (
            "path: ../agent, max_iterations: 0",
            "max_iterations: expected at least 1",
        ),
        ("path: ../agent, accept: [{}]", "accept: needs a command"),
        (
            "llm: any/m, prompt: x, budget: {cost: 3}",
            "there is no pricing of m",
        ),
        (
            "command: [cat], budget: {tokens: 3}",
            "is for a run of delta",
        ),
    ] {
        let world = world("", agent);
        command(&world).exits(78).says(says);
    }
}
