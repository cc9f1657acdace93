//! `delta flow eval`: trials, their outcomes, and resuming.

use crate::engine::later::{BUILD, let_time_pass};
use crate::flow::eval_load::{suites, upper};
use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// The evaluation in `e`, kept in `w`.
fn eval(world: &World) -> Delta {
    let cache = world.path("cache");
    world
        .delta(["flow", "eval", "e", "-w", "w", "-j", "1"])
        .env("XDG_CACHE_HOME", cache)
}

/// The evaluation's own run.
fn record(world: &World) -> Run {
    let mut dirs = fs::read_dir(world.path("w/.delta")).unwrap();
    let is_eval = |dir: &PathBuf| {
        dir.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("eval-")
    };
    let dir = dirs.find_map(|entry| Some(entry.unwrap().path()).filter(is_eval));
    Run { dir: dir.unwrap() }
}

/// The workspaces of trials, sorted.
fn workspaces(world: &World, suite: &str) -> Vec<String> {
    let dir = world.path(&format!("w/eval/{suite}"));
    let names = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// The outcomes and reasons of trials, as JSONL has them.
fn outcomes(outcome: &Outcome) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let lines = String::from_utf8(outcome.stdout.clone()).unwrap();
    let each = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    each.map(|it: Value| {
        (
            text(&it["case"]),
            text(&it["status"]),
            text(&it["stop_reason"]),
        )
    })
    .collect()
}

#[track_caller]
fn jsonl(world: &World, exit: i32) -> Vec<(String, String, String)> {
    outcomes(&eval(world).args(["--format", "jsonl"]).exits(exit))
}

fn told(all: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    let own = |it: &(&str, &str, &str)| (it.0.to_owned(), it.1.to_owned(), it.2.to_owned());
    all.iter().map(own).collect()
}

/// An agent as the target.
fn agent(world: World, lines: &str) -> World {
    let yaml = format!("suites:\n- name: ag\n  target: {{agent: ../agent}}\n{lines}\n");
    world.write("e/evaluations.yaml", yaml);
    world
}

const ONE: &str = "  cases: [{id: a, input: do it, expected: done}]";

#[test]
fn a_trial_passes_if_every_assertion_holds() {
    let world = upper(
        "  trials: 2\n  cases:\n  - {id: a, input: hello, expected: HELLO}\n  - {id: b, input: hello, expected: no}",
    );
    let first = eval(&world).json().exits(1).object();
    let suite = &first["suites"][0];
    assert_eq!(suite["verdict"], "failed");
    let cases = &suite["settings"][0]["cases"];
    assert_eq!(
        (&cases[0]["passed"], &cases[1]["failed"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(suite["look"]["number"], 1);
    // The same command has nothing left to do, and looks at the same again.
    let before = record(&world).events("TRIAL_START").len();
    let again = eval(&world).json().exits(1).object();
    assert_eq!(again["suites"][0]["look"]["number"], 1);
    assert_eq!(record(&world).events("TRIAL_START").len(), before);
    assert_eq!(record(&world).events("LOOK").len(), 1);
    assert_eq!(before, 4);
}

#[test]
fn the_short_name_is_the_same_command() {
    let world = upper("  cases: [{id: a, input: hello, expected: HELLO}]");
    eval(&world).exits(0);
    let short = world
        .delta(["eval", "e", "-w", "w", "-j", "1"])
        .json()
        .exits(0);
    assert_eq!(short.object()["suites"][0]["look"]["number"], 1);
    assert_eq!(record(&world).events("TRIAL_START").len(), 1);
    let help = world.delta(["eval", "-h"]).exits(0);
    assert!(String::from_utf8_lossy(&help.stdout).starts_with("usage: delta eval [OPTIONS] [DIR]"));
    world.delta(["eval", "e", "--no-such"]).exits(2);
}

#[test]
fn more_trials_are_added_to_those_that_are_there() {
    let world = upper("  cases: [{id: a, input: hello, expected: HELLO}]");
    eval(&world).exits(0);
    let first = workspaces(&world, "up");
    let more = eval(&world)
        .args(["--trials", "3"])
        .json()
        .exits(0)
        .object();
    assert_eq!(more["suites"][0]["settings"][0]["trials_measured"], 3);
    assert_eq!(more["suites"][0]["look"]["number"], 2);
    let all = workspaces(&world, "up");
    assert!(all.len() == 3 && all.contains(&first[0]), "{all:?}");
    // Each has a seed of its own.
    let starts = record(&world).events("TRIAL_START");
    let mut seeds: Vec<u64> = starts
        .iter()
        .map(|it| it["seed"].as_u64().unwrap())
        .collect();
    seeds.dedup();
    assert_eq!(seeds.len(), 3, "{starts:?}");
}

#[test]
fn nothing_that_ended_runs_again_after_a_kill() {
    let world = suites(
        "- name: k\n  target: {shell: 'read x; echo $x >>\"$NOTES\"; case $x in c) cat \"$GATE\";; esac; echo $x'}\n  cases:\n  - {id: a, input: a, expected: a}\n  - {id: b, input: b, expected: b}\n  - {id: c, input: c, expected: c}\n  - {id: d, input: d, expected: d}\n",
    );
    let gate = world.fifo("gate");
    let command = || {
        eval(&world)
            .env("NOTES", world.path("notes"))
            .env("GATE", world.path("gate"))
    };
    let running = command().spawn();
    eventually("three trials begin", || world.lines("notes").len() == 3);
    running.kill();
    // What hangs there is ended before it is begun again.
    drop(gate);
    fs::remove_file(world.path("gate")).unwrap();
    world.write("gate", "");
    command().exits(0);
    assert_eq!(world.lines("notes"), ["a", "b", "c", "c", "d"]);
    let starts = record(&world).events("TRIAL_START");
    assert_eq!(starts[3]["attempt"], 2, "{starts:?}");
    assert_eq!(record(&world).events("TRIAL_END").len(), 4);
}

#[test]
fn a_signal_ends_an_evaluation_and_the_same_command_goes_on() {
    let world = suites(
        "- name: k\n  target: {shell: 'echo x >>\"$NOTES\"; cat \"$GATE\"'}\n  cases: [{id: a, input: a}]\n",
    );
    let gate = world.fifo("gate");
    let command = || {
        eval(&world)
            .env("NOTES", world.path("notes"))
            .env("GATE", world.path("gate"))
    };
    let running = command().spawn();
    eventually("a trial begins", || world.lines("notes").len() == 1);
    running.signal(Signal::INT);
    running.wait().refuses(130, "the same command");
    assert!(record(&world).events("TRIAL_END").is_empty());
    drop(gate);
    fs::remove_file(world.path("gate")).unwrap();
    world.write("gate", "");
    command().exits(0);
}

#[test]
fn limits_of_its_own_are_failures_of_an_agent() {
    let world = agent(World::new().top("max_iterations: 1"), ONE);
    world.write(
        "agent/agent.yaml",
        world.read("agent/agent.yaml") + "tools: [{name: t, exec: 'true'}]\n",
    );
    world.model_says([call("c", "t", &json!({}))]);
    assert_eq!(jsonl(&world, 1), told(&[("a", "failed", "max_iterations")]));
    // It has ended, and is not tried again.
    assert_eq!(jsonl(&world, 1), told(&[("a", "failed", "max_iterations")]));
    assert_eq!(record(&world).events("TRIAL_START").len(), 1);
}

#[test]
fn a_trial_that_goes_on_has_what_its_limits_have_left() {
    for (limit, reason) in [
        ("max_iterations: 2", "max_iterations"),
        ("limits: {tokens: 150}", "tokens"),
    ] {
        let world = agent(World::new().top(limit).llm("max_retries: 0"), ONE);
        world.write(
            "agent/agent.yaml",
            world.read("agent/agent.yaml") + "tools: [{name: t, exec: 'true'}]\n",
        );
        // An answer is 110 tokens.
        world
            .server
            .says([call("c", "t", &json!({})), Reply::error(503, "later")]);
        let later = told(&[("a", "not_measured", "model_unavailable")]);
        assert_eq!(jsonl(&world, 4), later);
        world.server.says([call("d", "t", &json!({}))]);
        assert_eq!(jsonl(&world, 1), told(&[("a", "failed", reason)]));
    }
}

#[test]
fn the_seconds_of_a_budget_end_a_command_that_runs() {
    let world = suites(
        "- {name: t, target: {command: [sleep, '1000']}, cases: [{id: a, input: x}, {id: b, input: x}]}\n",
    );
    let outcome = eval(&world)
        .args(["--budget", "seconds=1", "--format", "jsonl"])
        .end()
        .exits(4);
    let none = ["a", "b"].map(|case| (case, "not_measured", "evaluation_budget"));
    assert_eq!(outcomes(&outcome), told(&none));
    assert_eq!(record(&world).events("TRIAL_START").len(), 1);
    assert!(world.processes().is_empty());
}

#[test]
fn a_question_is_a_failure() {
    let world = agent(World::new(), ONE);
    world.model_says([call("c", "ask_human", &json!({"prompt": "Which?"}))]);
    assert_eq!(jsonl(&world, 1), told(&[("a", "failed", "asked")]));
}

#[test]
fn an_outage_is_not_measured_and_measured_by_the_same_command() {
    let world = agent(World::new().llm("max_retries: 0"), ONE);
    world.model_says([Reply::error(503, "later")]);
    assert_eq!(
        jsonl(&world, 4),
        told(&[("a", "not_measured", "model_unavailable")])
    );
    world.model_says([text("done")]);
    assert_eq!(jsonl(&world, 0), told(&[("a", "passed", "final_answer")]));
    let log = world.delta(["log", "-w", "w"]).end().exits(0);
    let log = String::from_utf8(log.stdout).unwrap();
    assert!(log.contains("evaluation e: ag, in "), "{log}");
    // The run of the trial is a run of delta, which was resumed.
    let trial = &workspaces(&world, "ag")[0];
    let run = Run {
        dir: world.path(&format!("w/eval/ag/{trial}/.delta/{trial}")),
    };
    assert_eq!(run.ending().0, "COMPLETED");
    assert_eq!(run.events("ENGINE_START").len(), 2);
}

#[test]
fn the_log_shows_what_there_is_of_a_trial_s_events() {
    let world = agent(World::new(), ONE);
    world.model_says([text("done")]);
    assert_eq!(jsonl(&world, 0), told(&[("a", "passed", "final_answer")]));
    let path = record(&world).path("journal.jsonl");
    let mut damaged = String::new();
    for mut event in record(&world).journal() {
        if event["type"] == "TRIAL_START" {
            (event["suite"], event["trial"]) = (Value::Null, Value::Null);
        } else if event["type"] == "GRADE" {
            event.as_object_mut().unwrap().remove("assertions");
        }
        damaged.push_str(&format!("{event}\n"));
    }
    fs::write(path, damaged).unwrap();
    let log = world.delta(["log", "-w", "w"]).end().exits(0);
    let log = String::from_utf8(log.stdout).unwrap();
    assert!(log.contains(" / $ "), "{log}");
    assert!(log.contains(" passed\n"), "{log}");
}

#[test]
fn a_deferred_trial_is_not_measured_and_looked_at_by_the_same_command() {
    let world = agent(World::with_tools(BUILD), ONE);
    world.model_says([
        call("call_1", "build", &json!({"branch": "main"})),
        text("done"),
    ]);
    let deferred = told(&[("a", "not_measured", "deferred")]);
    assert_eq!(jsonl(&world, 4), deferred);
    // Trials are the evaluation's own: none is registered.
    assert!(!world.exists(".local/state/delta/due"));
    assert_eq!(jsonl(&world, 4), deferred);
    let trial = &workspaces(&world, "ag")[0];
    let run = Run {
        dir: world.path(&format!("w/eval/ag/{trial}/.delta/{trial}")),
    };
    let place = run.dir.parent().unwrap().parent().unwrap();
    fs::write(place.join("../said"), "all green\n").unwrap();
    fs::write(place.join("../code"), "0").unwrap();
    let_time_pass(&run, &["due_at"]);
    assert_eq!(jsonl(&world, 0), told(&[("a", "passed", "final_answer")]));
    let submitted = fs::read_to_string(place.join("../submitted")).unwrap();
    assert_eq!(submitted.lines().count(), 1);
}

#[test]
fn a_flow_that_waits_is_not_measured() {
    let world = World::new();
    let yaml = "suites:\n- name: fl\n  target: flow\n  cases: [{id: a, input: 1, expected: 1}]\n";
    world.write("e/evaluations.yaml", yaml);
    let wait = around(&node("a", "linear", ", wait: {for: 2h}"));
    world.write("e/workflow.yaml", wait);
    let deferred = told(&[("a", "not_measured", "deferred")]);
    assert_eq!(jsonl(&world, 4), deferred);
}

#[test]
fn three_refusals_in_a_row_stop_an_evaluation() {
    let world = agent(
        World::new(),
        "  trials: 9\n  cases: [{id: a, input: x, expected: y}]",
    );
    world.model_says([
        Reply::error(401, "no such key"),
        Reply::error(401, "no such key"),
        Reply::error(401, "no such key"),
    ]);
    let stopped = eval(&world).exits(4).prints("");
    stopped.says("three trials in a row").says("no such key");
    assert_eq!(record(&world).events("TRIAL_START").len(), 3);
    assert!(record(&world).events("LOOK").is_empty());
}

#[test]
fn a_trial_that_takes_too_long_has_failed() {
    let world = suites(
        "- {name: t, target: {command: [sleep, '100']}, timeout_ms: 50, cases: [{id: a, input: x}]}\n",
    );
    assert_eq!(jsonl(&world, 1), told(&[("a", "failed", "timeout")]));
}

#[test]
fn a_command_is_measured_by_any_exit_code_but_75_and_signals() {
    let world = suites(
        "- name: c\n  target: {shell: 'read c; [ $c = kill ] && kill -9 $$; exit $c'}\n  cases:\n  - {id: a, input: 3}\n  - {id: b, input: 3, assert: [{type: status, value: 3}]}\n  - {id: c, input: 3, assert: [{type: status, value: failure}]}\n  - {id: d, input: 75}\n  - {id: e, input: kill}\n",
    );
    let found = jsonl(&world, 1);
    let wanted = told(&[
        ("a", "failed", "assertion"),
        ("b", "passed", "failure"),
        ("c", "passed", "failure"),
        ("d", "not_measured", "later"),
        ("e", "not_measured", "signal"),
    ]);
    assert_eq!(found, wanted);
}

#[test]
fn graders_judge_by_exit_code_and_score() {
    let world = upper(
        "  cases:\n  - {id: yes, input: a, assert: [{type: exec, value: [sh, -c, 'echo 0.5']}, {type: contains, value: A, weight: 3}]}\n  - {id: no, input: a, assert: [{type: exec, value: [sh, -c, 'echo bad >&2; exit 1']}]}\n  - {id: broken, input: a, assert: [{type: exec, value: [sh, -c, 'exit 2']}]}\n  - {id: nowhere, input: a, assert: [{type: exec, value: [no-such-program]}]}\n  - {id: much, input: a, assert: [{type: exec, value: [sh, -c, 'echo 2']}]}",
    );
    let outcome = eval(&world).args(["--format", "jsonl"]).exits(1);
    let found = outcomes(&outcome);
    let wanted = told(&[
        ("yes", "passed", "success"),
        ("no", "failed", "assertion"),
        ("broken", "not_measured", "grader"),
        ("nowhere", "not_measured", "grader"),
        ("much", "not_measured", "grader"),
    ]);
    assert_eq!(found, wanted);
    let first: Value =
        serde_json::from_slice(outcome.stdout.split(|b| *b == b'\n').next().unwrap()).unwrap();
    assert_eq!(first["score"], 0.875);
}

#[test]
fn an_assertion_may_be_negated_ignore_case_and_know_several_answers() {
    let cases = [
        ("{type: equals, value: HELLO, not: true}", "failed"),
        ("{type: equals, value: hello, not: true}", "passed"),
        ("{type: equals, value: hElLo, ignore_case: true}", "passed"),
        (
            "{type: equals, value: hElLo, ignore_case: true, not: true}",
            "failed",
        ),
        ("{type: equals, value: hElLo}", "failed"),
        ("{type: equals, value_in: [BYE, HELLO]}", "passed"),
        (
            "{type: equals, value_in: [bye, hello], ignore_case: true}",
            "passed",
        ),
        ("{type: equals, value_in: [BYE, HI]}", "failed"),
        ("{type: equals, value_in: [BYE, HI], not: true}", "passed"),
        ("{type: contains, value: ell}", "failed"),
        ("{type: contains, value: ell, ignore_case: true}", "passed"),
        ("{type: contains, value_in: [XY, ELL]}", "passed"),
        (
            "{type: regex, value: '^h.*o$', ignore_case: true}",
            "passed",
        ),
        ("{type: regex, value: '^h.*o$'}", "failed"),
        ("{type: regex, value_in: [x, '^H']}", "passed"),
        ("{type: regex, value: '^H', not: true}", "failed"),
        (
            "{type: exec, value: [sh, -c, 'exit 1'], not: true}",
            "passed",
        ),
        (
            "{type: exec, value: [sh, -c, 'exit 0'], not: true}",
            "failed",
        ),
        (
            "{type: exec, value: [sh, -c, 'exit 2'], not: true}",
            "not_measured",
        ),
        ("{type: file, path: x, not: true}", "passed"),
        ("{type: status, value: success, not: true}", "failed"),
        ("{type: latency, value: 600000, not: true}", "failed"),
    ];
    let lines = cases.iter().enumerate().map(|(id, (assertion, _))| {
        format!("  - {{id: c{id}, input: hello, assert: [{assertion}]}}\n")
    });
    let world = upper(&format!("  cases:\n{}", lines.collect::<String>()));
    let outcome = eval(&world).args(["--format", "jsonl"]).exits(1);
    for ((_, status, _), (assertion, wanted)) in outcomes(&outcome).iter().zip(cases) {
        assert_eq!(status, wanted, "{assertion}");
    }
    let first: Value =
        serde_json::from_slice(outcome.stdout.split(|b| *b == b'\n').next().unwrap()).unwrap();
    let judged = &first["assertions"][1];
    assert_eq!(
        (&judged["not"], &judged["passed"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(judged["reason"], "equals holds, and must not");
    // A structure is compared text by text, names of members as they are.
    let world = suites(
        "- name: j\n  target: {command: [cat]}\n  cases:\n  - {id: a, input: {a: [X]}, assert: [{type: equals, value: {a: [x]}, ignore_case: true}]}\n  - {id: b, input: {A: [X]}, assert: [{type: equals, value: {a: [x]}, ignore_case: true}]}\n",
    );
    let judged = outcomes(&eval(&world).args(["--format", "jsonl"]).exits(1));
    assert_eq!((&*judged[0].1, &*judged[1].1), ("passed", "failed"));
}

#[test]
fn a_grader_with_a_json_verdict_must_print_one_and_nothing_else() {
    let cases = [
        ("yes", r#"{"pass": true}"#, 1, "passed", 1.0, ""),
        (
            "no",
            r#"{"pass": false, "reason": "too\nlate"}"#,
            0,
            "failed",
            0.0,
            "too late",
        ),
        (
            "part",
            r#"{"pass": false, "score": 0.25, "scores": {"style": 3}}"#,
            1,
            "failed",
            0.25,
            "says no",
        ),
        (
            "code",
            r#"{"pass": true}"#,
            2,
            "not_measured",
            0.0,
            "ended with 2",
        ),
        (
            "words",
            r#"ok {"pass": true}"#,
            0,
            "not_measured",
            0.0,
            "verdict: expected",
        ),
        (
            "much",
            r#"{"pass": true, "score": 2}"#,
            0,
            "not_measured",
            0.0,
            "score 2",
        ),
        (
            "kind",
            r#"{"pass": 1}"#,
            0,
            "not_measured",
            0.0,
            "verdict: ",
        ),
        (
            "scores",
            r#"{"pass": true, "scores": {"a": "b"}}"#,
            0,
            "not_measured",
            0.0,
            "verdict: ",
        ),
        (
            "array",
            r#" [true, 1, {}, "r"]"#,
            0,
            "not_measured",
            0.0,
            "verdict: expected an object, found an array",
        ),
        ("none", "0.5", 0, "not_measured", 0.0, "verdict: "),
        ("mark", "\u{feff}{\"pass\": true}", 0, "passed", 1.0, ""),
    ];
    let mut yaml = "  cases:\n".to_owned();
    for (id, printed, code, ..) in cases {
        let program = json!(["sh", "-c", format!("printf '%s' '{printed}'; exit {code}")]);
        yaml += &format!(
            "  - {{id: {id}, input: a, assert: [{{type: exec, verdict: json, value: {program}}}]}}\n"
        );
    }
    let outcome = eval(&upper(&yaml)).args(["--format", "jsonl"]).end();
    let lines = String::from_utf8(outcome.exits(1).stdout.clone()).unwrap();
    assert_eq!(lines.lines().count(), cases.len());
    for (line, (id, _, _, status, score, why)) in lines.lines().zip(cases) {
        let trial: Value = serde_json::from_str(line).unwrap();
        let grade = &trial["assertions"][1];
        assert_eq!(trial["status"], status, "{id}: {line}");
        let graded = grade["score"].as_f64().unwrap_or_default();
        assert!((graded - score).abs() < 1e-9, "{id}: {graded}");
        let reason = grade["reason"].as_str().unwrap_or_default();
        assert!(reason.contains(why), "{id}: {reason}");
    }
}

#[test]
fn without_a_json_verdict_the_exit_code_counts_and_another_printed_one_is_mentioned() {
    let cases = [
        (r#"{"pass": false}"#, 0, "passed", true),
        (r#"{"pass": true, "own": 1}"#, 1, "failed", true),
        (r#"{"pass": false}"#, 1, "failed", false),
        (r#"{"pass": true}"#, 0, "passed", false),
        (r#"{"pass": false}"#, 2, "not_measured", false),
        (r#"{"pass": "no"}"#, 0, "passed", false),
        (r#"ok {"pass": false}"#, 0, "passed", false),
    ];
    for (printed, code, status, is_mentioned) in cases {
        let program = json!(["sh", "-c", format!("printf '%s' '{printed}'; exit {code}")]);
        let of = |id: &str| {
            format!("  - {{id: {id}, input: a, assert: [{{type: exec, value: {program}}}]}}\n")
        };
        let world = upper(&format!("  cases:\n{}{}", of("a"), of("b")));
        let outcome = eval(&world).args(["--format", "jsonl"]).end();
        for line in String::from_utf8(outcome.stdout).unwrap().lines() {
            let trial: Value = serde_json::from_str(line).unwrap();
            assert_eq!(trial["status"], status, "{printed}: {line}");
        }
        let mentions = outcome.stderr.matches("another verdict than its exit code");
        assert_eq!(mentions.count(), usize::from(is_mentioned), "{printed}");
    }
}

#[test]
fn expected_null_means_null_and_numbers_are_compared_digit_by_digit() {
    let world = suites("- {name: s, target: {command: [cat]}, cases: c.jsonl}\n");
    let cases = [
        (r#"{"input": "x", "expected": null}"#, false),
        (r#"{"input": null, "expected": null}"#, true),
        (r#"{"input": "x", "target": null, "expected": "x"}"#, true),
        (r#"{"input": "x", "expected": ""}"#, false),
        (
            r#"{"input": "x", "expected": null, "assert": [{"type": "equals", "value": "x"}]}"#,
            true,
        ),
        (
            r#"{"input": {"n": 1790123456789012345}, "expected": {"n": 1790123456789012346}}"#,
            false,
        ),
        (
            r#"{"input": [25000000000000000000001], "expected": [25000000000000000000001.0]}"#,
            true,
        ),
        (
            r#"{"input": [25000000000000000000001], "assert": [{"type": "schema", "value": {"items": {"maximum": 25000000000000000000000}}}]}"#,
            false,
        ),
        (
            r#"{"input": [25000000000000000000001], "assert": [{"type": "schema", "value": {"items": {"const": 25000000000000000000002}}}]}"#,
            false,
        ),
        (
            r#"{"input": [0.10000000000000000001], "assert": [{"type": "schema", "value": {"items": {"enum": [1, 0.1]}}}]}"#,
            false,
        ),
        (
            r#"{"input": [0.10000000000000000001, 1.0], "assert": [{"type": "schema", "value": {"items": {"exclusiveMinimum": 0.1, "enum": [1, 0.10000000000000000001]}}}]}"#,
            true,
        ),
    ];
    world.write("e/c.jsonl", cases.map(|(case, _)| case).join("\n"));
    let found = jsonl(&world, 1);
    for ((case, passes), (_, status, _)) in cases.iter().zip(&found) {
        assert_eq!(status == "passed", *passes, "{case}");
    }
    let expected = Value::Null;
    let world = upper("  cases:\n  - id: empty\n    input: x\n    expected:\n");
    let trial = eval(&world).args(["--format", "jsonl"]).exits(1).object();
    assert_eq!(trial["assertions"][1]["value"], expected);
}

#[test]
fn of_what_a_grader_prints_the_last_line_counts_and_a_score_stands_alone() {
    let world = upper(
        "  cases:\n  - {id: log, input: a, assert: [{type: exec, value: [sh, -c, 'yes working | head -n 2000; echo two tests fail; exit 1']}]}\n  - {id: score, input: a, assert: [{type: exec, value: [sh, -c, 'echo 0.5; yes \"\" | head -n 9000; echo more']}]}\n  - {id: bare, input: a, assert: [{type: exec, value: [sh, -c, 'echo 0.2; exit 1']}]}",
    );
    let outcome = eval(&world).args(["--format", "jsonl"]).end().exits(1);
    let lines = String::from_utf8(outcome.stdout.clone()).unwrap();
    let graded = lines.lines().map(|line| {
        let trial: Value = serde_json::from_str(line).unwrap();
        let grade = &trial["assertions"][1];
        (grade["score"].clone(), grade["reason"].clone())
    });
    let wanted = [
        (json!(0.0), json!("two tests fail")),
        (json!(1.0), Value::Null),
        (json!(0.2), json!("the grader says no")),
    ];
    assert_eq!(graded.collect::<Vec<_>>(), wanted);
}

#[test]
fn a_grader_gets_the_result_and_runs_behind_the_wrapper_in_the_workspace() {
    let world = upper(
        "  workspace: t\n  wrapper: [env, WRAPPED=1]\n  cases: [{id: a, input: x, expected: X, assert: [{type: exec, value: ['${FLOW_HOME}/judge.sh']}]}]",
    );
    world.write("e/t/file", "content");
    world.script("e/judge.sh", "#!/bin/sh\n[ \"$WRAPPED\" = 1 ] && [ \"$(cat file)\" = content ] || exit 1\ncat >\"$FLOW_HOME/../given\"\n");
    eval(&world).exits(0);
    let given: Value = serde_json::from_str(&world.read("given")).unwrap();
    assert_eq!(
        (&given["output"], &given["expected"]),
        (&json!("X"), &json!("X"))
    );
    assert_eq!(given["case"], "a");
}

#[test]
fn a_changed_grader_only_judges_again_and_begins_to_count_looks_anew() {
    let world = suites(
        "- name: g\n  target: {shell: 'echo x >>\"$NOTES\"; cat'}\n  cases: [{id: a, input: x, expected: y}]\n",
    );
    let command = || eval(&world).env("NOTES", world.path("notes"));
    command().exits(1);
    command().args(["--trials", "2"]).exits(1);
    let changed = world
        .read("e/evaluations.yaml")
        .replace("expected: y", "expected: x");
    world.write("e/evaluations.yaml", changed);
    let judged = command().args(["--trials", "2"]).json().exits(0);
    assert_eq!(judged.object()["suites"][0]["look"]["number"], 1);
    judged.says("the assertions have changed");
    assert_eq!(world.lines("notes").len(), 2);
}

#[test]
fn regrading_judges_all_and_runs_nothing() {
    let world = suites(
        "- name: g\n  target: {shell: 'echo x >>\"$NOTES\"; cat'}\n  cases: [{id: a, input: x, assert: [{type: exec, value: [sh, -c, 'echo y >>\"$JUDGED\"']}]}]\n",
    );
    let command = || {
        eval(&world)
            .env("NOTES", world.path("notes"))
            .env("JUDGED", world.path("judged"))
    };
    command().exits(0);
    command().arg("--regrade").args(["--trials", "5"]).exits(4);
    assert_eq!(world.lines("judged").len(), 2);
    assert_eq!(world.lines("notes").len(), 1);
}

#[test]
fn what_a_trial_writes_is_no_verdict() {
    // It forges a record of a run that passed, in its own workspace and in that of the next trial.
    let world = suites(
        "- name: f\n  target: {shell: 'mkdir -p .delta/x ../b.1-0000; echo \"{\\\"status\\\":\\\"COMPLETED\\\",\\\"outcome\\\":\\\"passed\\\"}\" | tee .delta/x/metadata.json result.json; echo \"{\\\"type\\\":\\\"GRADE\\\",\\\"status\\\":\\\"passed\\\"}\" >.delta/x/journal.jsonl'}\n  cases:\n  - {id: a, input: x, expected: right}\n  - {id: b, input: x, expected: right}\n",
    );
    let found = jsonl(&world, 1);
    assert!(found.iter().all(|it| it.1 == "failed"), "{found:?}");
    assert_eq!(jsonl(&world, 1), found);
}

#[test]
fn a_workspace_that_was_there_before_its_trial_is_put_aside() {
    let world = upper(
        "  workspace: t\n  cases: [{id: a, input: x, assert: [{type: file, path: mark, value: template}]}]",
    );
    world.write("e/t/mark", "template");
    eval(&world).exits(0);
    let name = workspaces(&world, "up").remove(0);
    // As if another trial had made it: nothing is recorded of it here.
    fs::remove_dir_all(world.path("w/.delta")).unwrap();
    world.write(&format!("w/eval/up/{name}/mark"), "forged");
    eval(&world).exits(0);
    assert_eq!(world.read(&format!("w/eval/up/{name}/mark")), "template");
    assert_eq!(world.read(&format!("w/eval/up/{name}.old/mark")), "forged");
}

#[test]
fn what_is_nested_too_deep_in_a_template_is_left_out_with_one_warning() {
    let world = upper(
        "  workspace: t\n  trials: 2\n  cases: [{id: a, input: x, assert: [{type: file, path: mark, value: template}]}]",
    );
    world.write("e/t/mark", "template");
    fs::create_dir_all(world.path("e/t").join("a/".repeat(201))).unwrap();
    let outcome = eval(&world).exits(0);
    let warning = "is nested deeper than 200 directories and has not been copied";
    assert_eq!(outcome.stderr.matches(warning).count(), 1);
    let copy = world
        .path("w/eval/up")
        .join(workspaces(&world, "up").remove(0));
    assert!(copy.join("a/".repeat(200)).is_dir() && !copy.join("a/".repeat(201)).exists());
    let _pipe = world.fifo("e/t/pipe");
    eval(&world).exits(78).says("cannot be copied for a trial");
}

#[test]
fn trials_are_not_made_through_a_link() {
    let world = upper("  cases: [{id: a, input: x}]");
    world.write("elsewhere/precious", "kept");
    world.write("w/README", "a workspace");
    for link in ["w/eval", "w/eval/up"] {
        fs::create_dir_all(world.path(link).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(world.path("elsewhere"), world.path(link)).unwrap();
        eval(&world).exits(78).says("is a link");
        assert_eq!(fs::read_dir(world.path("elsewhere")).unwrap().count(), 1);
        fs::remove_file(world.path(link)).unwrap();
    }
}

#[test]
fn what_lies_in_the_place_of_a_workspace_that_is_being_made_is_removed() {
    let world = upper("  cases: [{id: a, input: x, expected: X}]");
    eval(&world).exits(0);
    let name = workspaces(&world, "up").remove(0);
    world.write("precious/file", "kept");
    let making = world.path(&format!("w/eval/up/.making-{name}"));
    let pipe = || {
        let mut pipe = std::process::Command::new("mkfifo");
        assert!(pipe.arg(&making).status().unwrap().success());
    };
    let places: [&dyn Fn(); 3] = [&pipe, &|| fs::write(&making, "a file").unwrap(), &|| {
        std::os::unix::fs::symlink(world.path("precious"), &making).unwrap();
    }];
    for place in places {
        fs::remove_dir_all(world.path("w")).unwrap();
        world.write("w/eval/up/README", "");
        place();
        eval(&world).exits(0);
        assert!(making.symlink_metadata().is_err());
    }
    assert_eq!(world.read("precious/file"), "kept");
}

#[test]
fn a_result_is_read_from_the_record_of_its_trial_only() {
    let world = upper("  cases: [{id: a, input: x, expected: y}]");
    eval(&world).exits(1);
    let run = record(&world).dir;
    let journal = fs::read_to_string(run.join("journal.jsonl")).unwrap();
    let good = json!({"output": "y", "status": "success", "exit_code": 0});
    world.write("secret/result.json", good.to_string());
    let elsewhere = world.path("secret");
    for place in [
        "../../../secret",
        "io/trials/../../secret",
        elsewhere.to_str().unwrap(),
    ] {
        let change = |line: &str| {
            let mut event: Value = serde_json::from_str(line).unwrap();
            if event["type"] == "TRIAL_END" {
                event["execution_ref"] = place.into();
            }
            format!("{event}\n")
        };
        let forged: String = journal.lines().map(change).collect();
        fs::write(run.join("journal.jsonl"), forged).unwrap();
        let outcome = eval(&world).arg("--regrade").exits(1);
        outcome.says("TRIAL_END").says("leads out of the run");
    }
}

#[test]
fn an_asserted_file_is_no_link() {
    let world = suites(
        "- name: l\n  target: {shell: 'ln -s \"$SECRET\" answer; mkdir d; ln -s \"${SECRET%/*}\" d/e; echo right >own'}\n  cases:\n  - {id: link, input: 1, assert: [{type: file, path: answer, value: right}]}\n  - {id: dir, input: 1, assert: [{type: file, path: d/e/secret, value: right}]}\n  - {id: own, input: 1, assert: [{type: file, path: own, value: right}]}\n",
    );
    world.write("secret", "right");
    let outcome = eval(&world)
        .env("SECRET", world.path("secret"))
        .args(["--format", "jsonl"])
        .end();
    let found = outcomes(&outcome.exits(1));
    let statuses: Vec<&str> = found.iter().map(|it| it.1.as_str()).collect();
    assert_eq!(statuses, ["failed", "failed", "passed"]);
}

#[test]
fn each_trial_has_a_copy_of_the_template_of_its_own() {
    let world = suites(
        "- name: t\n  target: {shell: 'cat n; echo more >>n; ls -A'}\n  workspace: t\n  trials: 2\n  cases: [{id: a, input: 1, expected: \"one\\nn\"}]\n",
    );
    world.write("e/t/n", "one\n");
    world.write("e/t/.delta/x", "records stay behind");
    eval(&world).exits(0);
    assert_eq!(world.read("e/t/n"), "one\n");
    // Another template is another trial.
    world.write("e/t/n", "two\n");
    eval(&world).exits(1);
    assert_eq!(workspaces(&world, "t").len(), 4);
}

#[test]
fn settings_stand_side_by_side() {
    let world = agent(
        World::new(),
        "  settings:\n  - {name: base}\n  - {name: other, set: {llm.model: better, llm.temperature: 0}}\n  cases: [{id: a, input: x, expected: done}]",
    );
    world.model_says([text("no"), text("done")]);
    let summed = eval(&world).json().exits(0).object();
    let settings = &summed["suites"][0]["settings"];
    assert_eq!(
        (&settings[0]["name"], &settings[0]["rate"]),
        (&json!("base"), &json!(0.0))
    );
    assert_eq!(
        (&settings[1]["name"], &settings[1]["rate"]),
        (&json!("other"), &json!(1.0))
    );
    let asked: Vec<Value> = world.server.requests().iter().map(|it| it.json()).collect();
    assert_eq!(
        (&asked[0]["model"], &asked[1]["model"]),
        (&json!("scripted"), &json!("better"))
    );
}

#[test]
fn an_agent_with_a_seed_gets_another_one_for_each_trial() {
    let world = agent(World::new().llm("seed: 7"), &format!("  trials: 2\n{ONE}"));
    world.model_says([text("done"), text("done")]);
    eval(&world).exits(0);
    let seeds: Vec<Value> = world
        .server
        .requests()
        .iter()
        .map(|it| it.json()["seed"].clone())
        .collect();
    let starts = record(&world).events("TRIAL_START");
    assert_eq!(
        seeds,
        [starts[0]["seed"].clone(), starts[1]["seed"].clone()]
    );
    assert_ne!(seeds[0], seeds[1]);
}

#[test]
fn a_flow_is_judged_by_its_output_its_exit_and_its_status() {
    let world = suites(
        "- name: f\n  cases:\n  - {id: ok, input: {n: 1}, assert: [{type: equals, path: /n, value: 1}, {type: exit_node, value: x}]}\n  - {id: bad, input: fail, assert: [{type: status, value: failure}]}\n",
    );
    world.write(
        "e/workflow.yaml",
        around("- {id: a, kind: deterministic, role: linear, context: none, shell: 'read i; [ \"$i\" != \"\\\"fail\\\"\" ] || exit 1; echo \"$i\"'}\n"),
    );
    assert_eq!(
        jsonl(&world, 0),
        told(&[("ok", "passed", "success"), ("bad", "passed", "failure")])
    );
}

#[test]
fn an_outage_inside_a_flow_is_not_measured_and_a_limit_is_a_failure() {
    let world = World::new().llm("max_retries: 0").top("max_iterations: 1");
    world.write(
        "agent/agent.yaml",
        world.read("agent/agent.yaml") + "tools: [{name: t, exec: 'true'}]\n",
    );
    world.write(
        "e/evaluations.yaml",
        "suites: [{name: f, cases: [{id: a, input: x}, {id: b, input: y}]}]",
    );
    world.write(
        "e/workflow.yaml",
        around("- {id: a, kind: agent, role: linear, context: none, agent_id: ag}\n"),
    );
    world.write("e/agents.yaml", "agents: [{id: ag, path: ../agent}]");
    world.model_says([Reply::error(503, "later"), call("c", "t", &json!({}))]);
    assert_eq!(
        jsonl(&world, 1),
        told(&[
            ("a", "not_measured", "model_unavailable"),
            ("b", "failed", "max_iterations")
        ])
    );
}

#[test]
fn the_budget_of_the_evaluation_leaves_trials_unmeasured_and_that_of_an_agent_fails_them() {
    let own = agent(
        World::new().top("budget: {tokens: 1}"),
        "  cases: [{id: a, input: x, expected: y}]",
    );
    own.write(
        "agent/agent.yaml",
        own.read("agent/agent.yaml") + "tools: [{name: t, exec: 'true'}]\n",
    );
    own.model_says([call("c", "t", &json!({}))]);
    assert_eq!(jsonl(&own, 1), told(&[("a", "failed", "budget")]));
    let world = agent(World::new(), &format!("  trials: 3\n{ONE}"));
    world.model_says([text("done")]);
    let outcome = eval(&world)
        .args(["--budget", "tokens=1", "--format", "jsonl"])
        .exits(4);
    let found = outcomes(&outcome);
    assert_eq!(
        found,
        told(&[
            ("a", "passed", "final_answer"),
            ("a", "not_measured", "evaluation_budget"),
            ("a", "not_measured", "evaluation_budget"),
        ])
    );
    assert_eq!(record(&world).events("TRIAL_START").len(), 1);
}

#[test]
fn a_trial_that_the_deadline_of_the_evaluation_does_not_let_begin_says_so() {
    let world = agent(World::new(), ONE);
    world.server.says([text("done")]);
    // A trial's own deadline is earlier, and already too near for it.
    let outcome = eval(&world)
        .args(["--deadline", "+38s", "--format", "jsonl"])
        .end()
        .exits(4);
    assert_eq!(
        outcomes(&outcome),
        told(&[("a", "not_measured", "evaluation_deadline")])
    );
    assert_eq!(jsonl(&world, 0), told(&[("a", "passed", "final_answer")]));
}

#[test]
fn a_number_of_trials_that_is_too_great_is_refused() {
    let world = upper("  cases: [{id: a, input: x, expected: X}]");
    for number in ["100001", "99999999999"] {
        let refused = eval(&world).args(["--trials", number]).end();
        refused.exits(2).says("more than 100000").prints("");
    }
    assert!(!world.path("w").exists());
}

#[test]
fn an_earlier_result_that_cannot_be_read_is_no_verdict() {
    let world = upper("  cases: [{id: a, input: x, expected: X}]");
    world.write("base.json", "{}");
    for file in ["nowhere.json", "base.json"] {
        let refused = eval(&world).args(["--against", file]).end();
        refused.exits(2).says(file).prints("");
    }
    assert!(!world.path("w").exists());
}

#[test]
fn a_result_is_compared_only_with_one_about_the_same_cases() {
    let world =
        upper("  cases: [{id: a, input: hello, expected: HELLO}, {id: b, input: x, expected: X}]");
    let result = eval(&world).json().exits(0);
    world.write("base.json", &result.stdout);
    let compared = eval(&world)
        .args(["--against", "base.json"])
        .json()
        .exits(0);
    assert_eq!(
        compared.object()["suites"][0]["comparison"]["difference"],
        0.0
    );
    let starts = record(&world).events("TRIAL_START").len();
    let suites = world.read("e/evaluations.yaml");
    for (from, to, difference) in [
        (
            "input: x",
            "input: y",
            "cases with another input, start or workspace: \"b\"",
        ),
        (
            "expected: X",
            "expected: Y",
            "cases with other assertions or graders: \"b\"",
        ),
        (
            "id: b, input: x, expected: X",
            "id: c, input: x, expected: Y",
            "cases that are only here: \"c\"; cases that are only there: \"b\"",
        ),
    ] {
        world.write("e/evaluations.yaml", suites.replace(from, to));
        let refused = eval(&world).args(["--against", "base.json"]).exits(2);
        refused.says(&format!(
            "--against: suite \"up\" cannot be compared: {difference}\n"
        ));
    }
    assert_eq!(record(&world).events("TRIAL_START").len(), starts);
}

#[test]
fn a_table_says_why_cases_failed_and_where_to_look() {
    let world = upper(
        "  trials: 2\n  cases: [{id: a, input: x, expected: X}, {id: b, input: y, expected: no}, \
         {id: c, input: z, assert: [{type: exec, value: [/nowhere/judge]}]}]",
    );
    let table = eval(&world).exits(1).stdout;
    let table = String::from_utf8(table).unwrap();
    let (_, rest) = table.split_once("\n\nb.1: ").unwrap();
    let (failures, answer) = rest.split_once("\n\n").unwrap();
    let lines: Vec<&str> = failures.lines().collect();
    let [why, place, other, other_place] = lines.as_slice() else {
        panic!("{table}");
    };
    assert_eq!(*why, "assertion: equals: \"Y\" is not \"no\"");
    assert!(other.starts_with("c.1: not measured: grader: exec: "));
    for place in [place, other_place] {
        assert!(world.exists(&format!("w/{}", place.trim_start())));
    }
    assert_eq!(
        answer,
        "failed: default passes 50 % [0.2, 99.8]:\n  2 trials failed, and there is no threshold\n\
         failed: b; not measured: c\n6 trials ran\n"
    );
}

#[test]
fn a_file_of_cases_may_begin_with_a_byte_order_mark() {
    let world = upper("  cases: c.jsonl");
    world.write(
        "e/c.jsonl",
        "\u{feff}{\"id\":\"a\",\"input\":\"x\",\"expected\":\"X\"}\r\n",
    );
    let outcome = eval(&world).args(["--format", "jsonl"]).end().exits(0);
    assert_eq!(outcomes(&outcome), told(&[("a", "passed", "success")]));
}

#[test]
fn cases_of_other_tools_are_read() {
    let world = upper("  cases: c.jsonl");
    world.write(
        "e/c.jsonl",
        "{\"input\":\"a\",\"target\":\"A\",\"metadata\":{}}\n{\"id\":7,\"input\":\"b\",\"expected_output\":\"B\"}\n{\"id\":\"off\",\"input\":\"c\",\"enabled\":false}\n",
    );
    let outcome = eval(&world).args(["--format", "jsonl"]).exits(0);
    assert_eq!(
        outcomes(&outcome),
        told(&[("1", "passed", "success"), ("7", "passed", "success")])
    );
    outcome.says("keys that are not read: metadata");
}

#[test]
fn the_report_of_an_evaluation_links_to_the_page_of_each_trial() {
    let world = agent(
        World::new(),
        "  trials: 2\n  settings: [{name: base}, {name: <b>}]\n  cases: [{id: \"<a>&\", input: x, expected: done}]",
    );
    world.model_says([text("done"), text("no"), text("done"), text("done")]);
    eval(&world).exits(0);
    world
        .delta(["report", "-w", "w", "-o", "html"])
        .exits(0)
        .prints("");
    let page = world.read("html/index.html");
    assert!(!page.contains("<a>") && !page.contains("<b>"), "{page}");
    let links: Vec<&str> = page.split("\"page\":\"ag/").skip(1).collect();
    assert_eq!(links.len(), 4, "{page}");
    for link in links {
        let file = link.split('"').next().unwrap();
        assert!(
            world
                .read(&format!("html/ag/{file}"))
                .contains("delta report")
        );
    }
    let plain = world.delta(["report", "-w", "w"]).exits(0);
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(
        plain.contains("\"settings\":[\"base\"") && !plain.contains("\"page\":\""),
        "{plain}"
    );
}

#[test]
fn a_choice_that_is_nowhere_is_refused() {
    let world = upper("  cases: [{id: apple, input: a, tags: [t]}]");
    eval(&world)
        .args(["--case", "appel"])
        .exits(2)
        .says("did you mean 'apple'?");
    eval(&world)
        .args(["--tag", "t", "--dry-run"])
        .exits(0)
        .prints("up: command tr a-z A-Z, 1 case, 1 setting, 1 trial: 0 recorded, 1 to run\n");
    assert!(!world.exists("w"));
}

#[test]
fn a_copied_record_is_not_obeyed() {
    let world = upper("  cases: [{id: a, input: a, expected: b}]");
    eval(&world).exits(1);
    let run = record(&world).dir;
    let journal = fs::read_to_string(run.join("journal.jsonl")).unwrap();
    fs::write(
        run.join("journal.jsonl"),
        journal.replace("\"failed\"", "\"passed\""),
    )
    .unwrap();
    copy(&world.path("w"), &world.path("w2"));
    let copied = world.delta(["flow", "eval", "e", "-w", "w2"]).end();
    copied.exits(78).says("--adopt");
}

#[test]
fn what_a_killed_evaluation_left_running_is_ended_and_its_workspace_goes() {
    let world = suites(
        "- name: k\n  target: {shell: 'echo $$ >>\"$PIDS\"; [ -e \"$GO\" ] || sleep 600; cat'}\n  cases: [{id: a, input: a}]\n",
    );
    let command = || {
        eval(&world)
            .env("PIDS", world.path("pids"))
            .env("GO", world.path("go"))
    };
    let running = command().spawn();
    eventually("the trial begins", || world.lines("pids").len() == 1);
    running.kill();
    let left: u32 = world.lines("pids")[0].parse().unwrap();
    assert!(alive(left));
    world.write("go", "");
    command().exits(0);
    assert!(!alive(left));
    assert_eq!(workspaces(&world, "k").len(), 1);
}

#[test]
fn nothing_that_a_trial_or_a_grader_leaves_running_stays() {
    let world = suites(
        "- name: k\n  target: {shell: 'sleep 600 & echo $! >>\"$PIDS\"; cat'}\n  cases: [{id: a, input: a, assert: [{type: exec, value: [sh, -c, 'sleep 600 & echo $! >>\"$PIDS\"']}]}]\n",
    );
    eval(&world).env("PIDS", world.path("pids")).exits(0);
    let left = world.lines("pids");
    assert_eq!(left.len(), 2);
    for pid in left {
        assert!(!alive(pid.parse().unwrap()), "{pid}");
    }
}

#[test]
fn a_grader_that_a_killed_evaluation_left_is_ended_before_another_judges() {
    let world = suites(
        "- name: k\n  target: {shell: cat}\n  cases: [{id: a, input: a, assert: [{type: exec, value: [sh, -c, 'echo $$ >>\"$PIDS\"; [ -e \"$GO\" ] || exec sleep 600']}]}]\n",
    );
    let command = || {
        eval(&world)
            .env("PIDS", world.path("pids"))
            .env("GO", world.path("go"))
    };
    let running = command().spawn();
    eventually("a grader begins", || world.lines("pids").len() == 1);
    running.kill();
    let left: u32 = world.lines("pids")[0].parse().unwrap();
    assert!(alive(left));
    world.write("go", "");
    command().exits(0);
    assert!(!alive(left));
    assert_eq!(record(&world).events("TRIAL_START").len(), 1);
}

#[test]
fn a_signal_while_a_grader_judges_leaves_the_judgement_to_the_next_start() {
    let world = suites(
        "- name: k\n  target: {shell: 'echo x >>\"$NOTES\"; cat'}\n  cases: [{id: a, input: a, assert: [{type: exec, value: [sh, -c, 'echo y >>\"$JUDGED\"; [ -e \"$GO\" ] || sleep 600']}]}]\n",
    );
    let command = || {
        let vars = ["NOTES", "JUDGED", "GO"];
        vars.into_iter().fold(eval(&world), |command, name| {
            command.env(name, world.path(&name.to_lowercase()))
        })
    };
    let running = command().spawn();
    eventually("a grader begins", || world.exists("judged"));
    running.signal(Signal::TERM);
    running.wait().exits(143);
    assert!(record(&world).events("GRADE").is_empty());
    world.write("go", "");
    command().exits(0);
    assert_eq!(world.lines("notes").len(), 1);
}

#[test]
fn models_of_fallback_are_asked_only_where_the_suite_says_so_and_the_trial_lists_them() {
    for (says_so, status, models) in [
        ("", "not_measured", json!([])),
        ("fallback: true, ", "passed", json!(["second"])),
    ] {
        let other = Server::start();
        other.may_stay_unasked();
        let world = World::new();
        let url = world.server.url();
        let entry = format!("{{model: second, base_url: '{}'}}", other.url());
        let world = world.llm(&format!(
            "base_url: {url}\nmax_retries: 0\nfallback: [{entry}]"
        ));
        world
            .server
            .answers(|_| Reply::error(429, "pay").status(402));
        other.says([text("yes")]);
        let suite = format!(
            "suites: [{{name: s, target: {{agent: ../agent}}, {says_so}cases: [{{input: hi, expected: yes}}]}}]"
        );
        world.write("e/evaluations.yaml", suite);
        let outcome = eval(&world).args(["--format", "jsonl"]).end();
        let line: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        assert_eq!(
            (&line["status"], &line["models"]),
            (&json!(status), &models)
        );
        assert_eq!(record(&world).events("TRIAL_END")[0]["models"], models);
    }
}

#[test]
fn a_setting_whose_prompt_the_model_would_not_see_is_refused_before_any_trial() {
    let suite = "  settings:\n  - {name: base}\n  - {name: terse, set: {system_prompt: terse.md}}\n  cases: [{id: a, input: x, expected: done}]";
    let world = agent(World::new(), suite);
    world.write("agent/terse.md", "be terse");
    eval(&world).refuses(78, "shows terse.md, so the model does not see it");
    assert_eq!(world.server.requests().len(), 0);
    let context = world.read("agent/context.yaml");
    let shown = context.replace("${AGENT_HOME}/system_prompt.md", "${SYSTEM_PROMPT}");
    world.write("agent/context.yaml", shown);
    world.model_says([text("no"), text("done")]);
    eval(&world).exits(0);
    let asked = world.server.requests();
    assert!(!asked[0].messages()[0].to_string().contains("be terse"));
    assert!(asked[1].messages()[0].to_string().contains("be terse"));
}

#[test]
fn a_setting_whose_prompt_a_generator_shows_is_measured() {
    let suite = "  settings:\n  - {name: terse, set: {system_prompt: terse.md}}\n  cases: [{id: a, input: x, expected: done}]";
    let world = agent(World::new(), suite);
    world.write("agent/terse.md", "be terse");
    world.write(
        "agent/context.yaml",
        "sources:\n  - {type: computed_file, id: p, generator: {command: [cat, '${SYSTEM_PROMPT}']}, output_path: p.md}\n  \
         - {type: journal}\n",
    );
    world.model_says([text("done")]);
    eval(&world).exits(0);
    let asked = world.server.last();
    assert!(asked.messages()[0].to_string().contains("be terse"));
}
