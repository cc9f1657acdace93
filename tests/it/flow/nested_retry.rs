//! A flow within a flow that failed: what a retry does again, and what ends the outer one.

use crate::engine::budget::{ANSWER, NOTE, ledger, restless, sum, unsettled};
use crate::flow::run::{chain, run};
use crate::harness::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;

/// Fails until there is a file `fixed` in the workspace.
const NEEDS_FIX: &str = r#"test -e "$FLOW_WORKSPACE/fixed" && cat"#;

/// A node that notes that it ran.
fn noting(id: &str, more: &str, shell: &str) -> String {
    let note = r#"echo "$FLOW_NODE_ID" >>"$FLOW_WORKSPACE/notes""#;
    node(id, "linear", &format!(", shell: '{note}; {shell}'{more}"))
}

/// What has run since the last call.
fn notes(world: &World) -> Vec<String> {
    let lines = world.lines("ws/notes");
    fs::write(world.path("ws/notes"), "").unwrap();
    lines
}

fn write_inner(world: &World, nodes: &[String], edges: &str) {
    let all = [&[start()], nodes, &[exit()]].concat();
    world.write("f/inner/workflow.yaml", flow(&all, edges));
}

/// The node `a` is a flow of `i`, which succeeds, and `j`, which needs the fix.
fn world() -> World {
    let world = World::new();
    chain(&world, "flow: ./inner");
    let nodes = [noting("i", "", "cat"), noting("j", "", NEEDS_FIX)];
    write_inner(&world, &nodes, "s>i i>j j>x");
    world
}

fn command(world: &World) -> Delta {
    run(world).args(["--run-id", "r", "-q", "-m", "z"]).json()
}

fn retry(world: &World) -> Delta {
    command(world).arg("--retry")
}

/// The runs that the node `a` was.
fn inner_runs(world: &World) -> Vec<Run> {
    let mut runs = world.runs();
    runs.retain(|run| run.id().starts_with("node-a-"));
    runs
}

#[test]
fn retries_of_a_node_go_on_inside_the_flow_that_it_is() {
    let world = World::new();
    chain(&world, "retries: 2, flow: ./inner");
    let third =
        r#"tries="$FLOW_WORKSPACE/tries"; echo x >>"$tries"; test $(wc -l <"$tries") = 3 && cat"#;
    let nodes = [noting("i", "", "cat"), noting("j", "", third)];
    write_inner(&world, &nodes, "s>i i>j j>x");
    let ended = command(&world).end().exits(0);
    assert_eq!(notes(&world), ["i", "j", "j", "j"]);
    let runs = inner_runs(&world);
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].events("RETRY").len(), 2);
    // Cut off where the second or the third attempt had begun: what that came to is not done again.
    let journal = world.path("ws/.delta/r/journal.jsonl");
    let whole = fs::read_to_string(&journal).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let is_start = |line: &&&str| line.contains("NODE_START") && line.contains("\"a\"");
    let ends = (1..=lines.len()).filter(|end| is_start(&&lines[end - 1]));
    for end in ends.skip(1) {
        fs::write(&journal, lines[..end].join("\n") + "\n").unwrap();
        let again = command(&world).end().exits(0);
        assert_eq!(again.object()["output"], ended.object()["output"]);
        assert_eq!(notes(&world), [""; 0]);
    }
}

#[test]
fn of_a_flow_within_only_what_failed_inside_is_done_again() {
    let world = world();
    command(&world).exits(1);
    assert_eq!(notes(&world), ["i", "j"]);
    retry(&world).exits(1);
    assert_eq!(notes(&world), ["j"]);
    world.write("ws/fixed", "");
    let outcome = retry(&world).exits(0);
    assert_eq!(outcome.object()["output"], "z");
    assert_eq!(notes(&world), ["j"]);
    let runs = inner_runs(&world);
    assert_eq!(runs.len(), 1);
    let retries = runs[0].events("RETRY");
    assert_eq!(retries.len(), 2);
    assert_eq!(retries[0]["steps"][0]["node_id"], "j");
    // Which run it is, and which of its retries, was on disk before it began.
    let outer = Run {
        dir: world.path("ws/.delta/r"),
    };
    let starts = outer.events("NODE_START");
    let own: Vec<_> = starts.iter().filter(|it| it["node_id"] == "a").collect();
    assert_eq!(own[0].get("own_run"), None);
    for (start, retry) in own[1..].iter().zip(1..) {
        assert_eq!(start["own_run"], json!(runs[0].id()));
        assert_eq!(start["own_retry"], json!(retry));
    }
    // Nothing failed any more.
    retry(&world).exits(0);
    assert!(notes(&world).is_empty());
}

#[test]
fn two_floors_down_only_what_failed_is_done_again() {
    let world = world();
    let deep = node("d", "linear", ", flow: ./deep");
    write_inner(&world, &[noting("i", "", "cat"), deep], "s>i i>d d>x");
    let nodes = [
        start(),
        noting("k", "", "cat"),
        noting("l", "", NEEDS_FIX),
        exit(),
    ];
    world.write("f/inner/deep/workflow.yaml", flow(&nodes, "s>k k>l l>x"));
    let failed = command(&world).exits(1);
    assert!(
        failed.object()["error"]["message"]
            .as_str()
            .unwrap()
            .contains("l: operation")
    );
    assert_eq!(notes(&world), ["i", "k", "l"]);
    world.write("ws/fixed", "");
    retry(&world).exits(0);
    assert_eq!(notes(&world), ["l"]);
}

#[test]
fn a_retry_whose_end_was_not_recorded_is_not_made_twice() {
    let world = world();
    command(&world).exits(1);
    retry(&world).exits(1);
    notes(&world);
    // As if the outer engine had died while the inner one ended.
    let path = world.path("ws/.delta/r/journal.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let at = text.rfind("\"own_retry\":1").expect("a start that goes on");
    let end = at + text[at..].find('\n').unwrap() + 1;
    fs::write(&path, &text[..end]).unwrap();
    retry(&world).exits(1);
    assert!(notes(&world).is_empty(), "a second retry for one");
    assert_eq!(inner_runs(&world)[0].events("RETRY").len(), 1);
    // This one is a retry of its own.
    world.write("ws/fixed", "");
    retry(&world).exits(0);
    assert_eq!(notes(&world), ["j"]);
    assert_eq!(inner_runs(&world)[0].events("RETRY").len(), 2);
}

#[test]
fn behind_a_failure_all_of_it_is_done_again() {
    let world = world();
    let nodes = [
        start(),
        noting("b", ", continue_on_failure: true", NEEDS_FIX),
        node("a", "linear", ", flow: ./inner"),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>b b>a a>x"));
    command(&world).exits(1);
    assert_eq!(notes(&world), ["b", "i", "j"]);
    world.write("ws/fixed", "");
    retry(&world).exits(0);
    assert_eq!(notes(&world), ["b", "i", "j"]);
    assert_eq!(inner_runs(&world).len(), 2);
}

#[test]
fn one_whose_output_did_not_fit_is_begun_anew() {
    let world = world();
    world.write("f/schemas/number.json", r#"{"type": "number"}"#);
    chain(&world, "flow: ./inner, schema_out: number");
    let shell = r#"test -e "$FLOW_WORKSPACE/fixed" && echo 5 || echo true"#;
    write_inner(&world, &[noting("i", "", shell)], "s>i i>x");
    let failed = command(&world).exits(1);
    assert_eq!(failed.object()["error"]["code"], "schema_out");
    world.write("ws/fixed", "");
    let outcome = retry(&world).exits(0);
    assert_eq!(outcome.object()["output"], 5);
    assert_eq!(notes(&world), ["i", "i"]);
    assert_eq!(inner_runs(&world).len(), 2);
}

#[test]
fn one_that_took_too_long_goes_on_where_it_was() {
    let slow = r#"test -e "$FLOW_WORKSPACE/fixed" || exec sleep 1000; cat"#;
    let world = with_time(1000, |ms| {
        let world = world();
        chain(&world, &format!("flow: ./inner, timeout_ms: {ms}"));
        let nodes = [noting("i", "", "cat"), noting("j", "", slow)];
        write_inner(&world, &nodes, "s>i i>j j>x");
        let failed = command(&world).exits(1);
        assert_eq!(failed.object()["error"]["code"], "timeout");
        (world.lines("ws/notes") == ["i", "j"]).then_some(world)
    });
    world.write("ws/fixed", "");
    // It has all the time that it needs to begin.
    chain(&world, "flow: ./inner, timeout_ms: 60000");
    retry(&world).args(["--changed", "ok"]).exits(0);
    assert_eq!(notes(&world), ["i", "j", "j"]);
    assert!(inner_runs(&world)[0].events("RETRY").is_empty());
}

#[test]
fn one_that_lost_a_race_is_begun_anew_behind_what_is_retried() {
    let world = world();
    let nodes = [
        start(),
        node(
            "f",
            "linear",
            &format!(", continue_on_failure: true, shell: '{NEEDS_FIX}'"),
        ),
        node("b", "branch", ""),
        node(
            "k",
            "linear",
            r#", shell: 'read begun <"$HOME/begun"; cat'"#,
        ),
        node("l", "linear", ", flow: ./inner"),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>f f>b b>k b>l k>x l>x"));
    let never = node(
        "i",
        "linear",
        r#", shell: 'echo begun >"$HOME/begun"; exec sleep 1000'"#,
    );
    write_inner(&world, &[never], "s>i i>x");
    // Open as long as this: whoever comes first, neither waits for the other to open it.
    let _begun = world.fifo("begun");
    command(&world).exits(3);
    world.write("ws/fixed", "");
    retry(&world).exits(0);
    let runs = fs::read_dir(world.path("ws/tasks/r/T1.c1/.delta")).unwrap();
    let names = runs.map(|run| run.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("node-l-")).collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(names[1], format!("{}-r1", names[0]));
}

#[test]
fn a_program_inside_that_ends_before_its_engine_knows_of_the_stop_has_not_ended() {
    for at_the_signal in ["kill -9 $$", "exit 1", "echo 5; exit 0"] {
        let world = world();
        let slow = format!(
            "trap \"{at_the_signal}\" TERM; test -e \"$FLOW_WORKSPACE/fixed\" || \
             {{ echo $$ >../ready; while :; do sleep 0.01; done; }}; cat"
        );
        write_inner(
            &world,
            &[noting("i", "", "cat"), noting("j", "", &slow)],
            "s>i i>j j>x",
        );
        let mut ready = world.fifo("ready");
        let running = command(&world).spawn();
        let program = ready.pid();
        let inner = inner_runs(&world)[0].metadata()["pid"].as_i64().unwrap();
        let inner = Pid::from_raw(inner.try_into().unwrap()).unwrap();
        kill_process(inner, Signal::STOP).unwrap();
        // The outer engine ends the whole tree of the node, in which only the program is awake.
        running.signal(Signal::TERM);
        eventually("the program has ended", || !alive(program));
        kill_process(inner, Signal::CONT).unwrap();
        running.wait().exits(143);
        let ends = inner_runs(&world)[0].events("NODE_END");
        let ended: Vec<_> = ends.iter().map(|it| &it["node_id"]).collect();
        assert_eq!(ended, ["s", "i"], "{at_the_signal}");
        world.write("ws/fixed", "");
        let outcome = command(&world).exits(0);
        assert_eq!(outcome.object()["output"], "z", "{at_the_signal}");
        assert_eq!(notes(&world), ["i", "j", "j"], "{at_the_signal}");
    }
}

#[test]
fn one_that_came_to_a_part_is_retried_for_the_rest() {
    let world = world();
    let nodes = [
        noting("i", "", "cat"),
        noting("j", ", continue_on_failure: true", NEEDS_FIX),
        noting("k", "", "cat"),
    ];
    write_inner(&world, &nodes, "s>i i>j j>k k>x");
    let nodes = [
        start(),
        node("a", "linear", ", flow: ./inner"),
        noting("b", "", "cat"),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>a a>b b>x"));
    command(&world).exits(3);
    assert_eq!(notes(&world), ["i", "j", "k", "b"]);
    world.write("ws/fixed", "");
    let outcome = run(&world).args(["--retry", "--run-id", "r"]).json().end();
    let outcome = outcome
        .exits(0)
        .says("had succeeded behind what failed, and are done again: b of T1\n");
    assert_eq!(outcome.object()["status"], "success");
    assert_eq!(notes(&world), ["j", "k", "b"]);
}

#[test]
fn a_node_inside_that_must_not_be_repeated_is_named_with_the_nodes_around_it() {
    let world = world();
    let nodes = [
        noting("i", ", continue_on_failure: true", NEEDS_FIX),
        noting("j", ", on_resume: fail", "cat"),
        noting("k", "", NEEDS_FIX),
    ];
    write_inner(&world, &nodes, "s>i i>j j>k k>x");
    command(&world).exits(1);
    notes(&world);
    world.write("ws/fixed", "");
    let outcome = retry(&world).exits(4);
    outcome
        .says("j of T1 had succeeded behind what failed")
        .says("--repeat a/j");
    assert!(notes(&world).is_empty());
    for (name, says) in [
        ("j", "there is no 'j'"),
        ("a/l", "there is no 'l'"),
        ("s/j", "node s is no flow"),
        ("a/j/k", "node j is no flow"),
    ] {
        let wrong = retry(&world).args(["--repeat", name]).end();
        wrong.exits(2).says(says);
    }
    retry(&world).args(["--repeat", "a/j"]).exits(0);
    assert_eq!(notes(&world), ["i", "j", "k"]);
}

#[test]
fn a_launcher_stands_before_the_programs_inside_and_not_before_the_flow() {
    let world = world();
    let counts = world.script(
        "launcher",
        "#!/bin/sh\necho \"$FLOW_NODE_ID\" >>\"$HOME/launched\"\nWHERE=$1\nexport WHERE\nshift\nexec \"$@\"\n",
    );
    let shell = node("i", "linear", ", command: [printenv, WHERE]");
    write_inner(&world, &[shell], "s>i i>x");
    let words = format!("'{}' 7", counts.display());
    let outcome = command(&world).args(["--launch", &words]).exits(0);
    assert_eq!(outcome.object()["output"], 7);
    assert_eq!(world.lines("launched"), ["i"]);
}

/// The inner flow is the agent of the world.
fn with_agent(world: &World) {
    let agent = "- {id: i, kind: agent, role: linear, context: none, agent_id: ag}\n";
    write_inner(world, &[agent.to_owned()], "s>i i>x");
    let agents = "agents:\n- {id: ag, path: ../../agent, ask_human: true}\n";
    world.write("f/inner/agents.yaml", agents);
}

#[test]
fn what_ends_the_inner_flow_ends_the_outer_one_with_the_same_code() {
    let question = || call("q", "ask_human", &json!({"prompt": "Which?"}));
    let cases: [(i32, &str, &str, Option<Reply>); 4] = [
        (
            4,
            "",
            "not like this",
            Some(Reply::error(400, "not like this")),
        ),
        (
            75,
            "max_retries: 0",
            "down",
            Some(Reply::error(503, "down")),
        ),
        (78, "", "agent.yaml", None),
        (101, "", "Which?", Some(question())),
    ];
    for (code, llm, says, reply) in cases {
        let world = World::new();
        let world = match llm {
            "" => world,
            llm => world.llm(llm),
        };
        chain(&world, "flow: ./inner");
        with_agent(&world);
        let good = world.read("agent/agent.yaml");
        match reply {
            Some(reply) => drop(world.model_says([reply])),
            None => drop(world.write("agent/agent.yaml", "llm: [")),
        }
        if code == 78 {
            // Not while it is loaded, but behind a node that breaks it.
            world.write("agent/agent.yaml", &good);
            let file = world.path("agent/agent.yaml").display().to_string();
            let breaks =
                format!(", shell: 'test -e once || echo \"llm: [\" >{file}; touch once; cat'");
            let agent = "- {id: i, kind: agent, role: linear, context: none, agent_id: ag}\n";
            let nodes = [node("h", "linear", &breaks), agent.to_owned()];
            write_inner(&world, &nodes, "s>h h>i i>x");
        }
        let outcome = command(&world).exits(code).says(says);
        let object = outcome.object();
        let waiting = code == 101;
        let status = if waiting {
            "waiting_for_input"
        } else {
            "interrupted"
        };
        assert_eq!(object["status"], status, "{code}");
        for run in world.runs() {
            let is_flow = !run.events("FLOW_START").is_empty();
            assert!(!is_flow || run.metadata()["exit_code"] == code, "{code}");
        }
        world.write("agent/agent.yaml", &good);
        world.model_says([text("2")]);
        if waiting {
            let answer = Delta::flow(world.home()).args(["answer", "-w", "ws", "it"]);
            answer.exits(0);
        }
        let outcome = command(&world).exits(0);
        assert_eq!(outcome.object()["output"], 2, "{code}");
        assert_eq!(inner_runs(&world).len(), 1);
    }
}

#[test]
fn what_agents_inside_spend_is_in_the_ledger_of_the_outer_flow_and_bound_by_its_budget() {
    let world = World::with_tools(NOTE);
    chain(&world, "flow: ./inner");
    with_agent(&world);
    let world = restless(world);
    let start = |budget: &str| command(&world).args(["--budget", budget]);
    for (budget, requests) in [("tokens=400", 4), ("tokens=400", 4), ("tokens=600", 6)] {
        let outcome = start(budget).exits(4);
        outcome.says("the budget of parent run r is used up");
        assert_eq!(world.server.requests().len(), requests);
        let outer = world.runs().into_iter().find(|run| run.id() == "r");
        for run in [&outer.unwrap(), &inner_runs(&world)[0]] {
            let lines = ledger(run);
            assert!(unsettled(&lines).is_empty());
            let spent = sum(&lines, "settle").0;
            assert_eq!(spent, requests as u64 * ANSWER, "{}", run.id());
            assert_eq!(run.metadata()["exit_code"], 4);
        }
    }
}

#[test]
fn an_inner_flow_that_a_signal_ends_has_not_failed() {
    for signal in [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP] {
        let world = world();
        let once =
            r#"test -e "$FLOW_WORKSPACE/fixed" || { echo $$ >../ready; exec sleep 1000; }; cat"#;
        let nodes = [noting("i", "", "cat"), noting("j", "", once)];
        write_inner(&world, &nodes, "s>i i>j j>x");
        let mut ready = world.fifo("ready");
        let running = command(&world).spawn();
        let program = ready.pid();
        let inner = inner_runs(&world)[0].metadata()["pid"].as_i64().unwrap();
        let pid = Pid::from_raw(inner.try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let outcome = running.wait().exits(75);
        let outcome: Value = outcome.object();
        assert_eq!(outcome["status"], "interrupted", "{signal:?}");
        world.write("ws/fixed", "");
        let outcome = command(&world).exits(0);
        assert_eq!(outcome.object()["output"], "z", "{signal:?}");
        assert!(!alive(program), "{signal:?}");
        assert_eq!(notes(&world), ["i", "j", "j"], "{signal:?}");
        assert_eq!(inner_runs(&world).len(), 1);
    }
}
