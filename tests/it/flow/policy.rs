//! Policies: what nodes may run, which context they may have, which tools they may call.

use crate::flow::run::{chain, result, run};
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

fn rules(world: &World, rules: &[&str]) {
    let rules: Vec<String> = rules
        .iter()
        .map(|rule| format!("  - {{{rule}}}\n"))
        .collect();
    let text = format!("policies:\n- name: house\n  rules:\n{}", rules.concat());
    world.write("f/policy.yaml", text);
}

fn named(world: &World) -> Delta {
    run(world).args(["--run-id", "r", "-m", "hello"])
}

fn record(world: &World) -> Run {
    Run {
        dir: world.path("ws/.delta/r"),
    }
}

fn show(world: &World, names: &[&str]) -> String {
    let outcome = Delta::flow(world.home())
        .args(["show", "-w", "ws", "r"])
        .args(names)
        .end();
    String::from_utf8(outcome.exits(0).stdout).unwrap()
}

#[test]
fn a_denied_node_fails_with_the_reason_and_runs_nothing() {
    let world = World::new();
    chain(&world, "shell: 'echo >ran; cat'");
    rules(
        &world,
        &["target: node, target_id: a, action: deny, reason: not today"],
    );
    let outcome = named(&world).json().exits(1);
    let message = "policy \"house\", rule 1, denies node a: not today";
    assert_eq!(
        outcome.object()["error"],
        json!({"code": "policy_denied", "node": "a", "message": message})
    );
    assert!(!world.exists("ws/ran"));
    let told = &record(&world).events("POLICY")[0];
    for (key, value) in [
        ("task_id", json!("T1")),
        ("node_id", json!("a")),
        ("policy", json!("house")),
        ("rule", json!(1)),
        ("target", json!("node")),
        ("target_id", json!("a")),
        ("action", json!("deny")),
        ("reason", json!("not today")),
    ] {
        assert_eq!(told[key], value, "{key}");
    }
    // Beginning, denial and end stand behind each other.
    let types = record(&world).types();
    let at = types.iter().position(|kind| kind == "POLICY").unwrap();
    assert_eq!(types[at - 1..=at + 1], ["NODE_START", "POLICY", "NODE_END"]);
    assert!(show(&world, &["T1"]).contains(message));
    assert!(show(&world, &["T1", "a"]).contains("--- denied\nnode a\n"));
    world.delta(["log", "-w", "ws"]).exits(0);
}

#[test]
fn a_denial_is_a_failure_as_any_and_changes_no_route() {
    let world = World::new();
    chain(
        &world,
        "retries: 3, continue_on_failure: true, shell: 'echo >ran; cat'",
    );
    rules(&world, &["target: node, target_id: a, action: deny"]);
    let outcome = named(&world).json().exits(3);
    let object = outcome.object();
    assert_eq!(object["output"], "hello");
    assert_eq!(object["tasks"][0]["path"], json!(["s", "a", "x"]));
    assert_eq!(record(&world).events("POLICY").len(), 1);
    assert!(!world.exists("ws/ran"));
}

#[test]
fn the_first_rule_that_fits_decides_and_without_one_everything_is_allowed() {
    let first = "target: node, target_id: a, action: allow";
    let deny = "target: node, target_id: '*', action: deny";
    for (list, code) in [
        (
            &[first, deny, "target: node, target_id: a, action: deny"][..],
            "s",
        ),
        (&[deny, first], "s"),
        (
            &["target: node, target_id: '?', nodes: '[b-r]*', action: deny"],
            "",
        ),
        (
            &["target: node, target_id: '?', nodes: '[a-c]', action: deny"],
            "a",
        ),
        (
            &["target: node, target_id: '[!ax]', nodes: a, action: deny"],
            "",
        ),
        (
            &[first, "target: node, target_id: '[ax]', action: deny"],
            "x",
        ),
        (&["target: tool, target_id: '*', action: deny"], ""),
    ] {
        let world = World::new();
        chain(&world, "exec: cat");
        rules(&world, list);
        let outcome = named(&world).json().end();
        let object = outcome.object();
        if code.is_empty() {
            assert_eq!(object["status"], "success", "{list:?}");
            continue;
        }
        assert_eq!(object["error"]["code"], "policy_denied", "{list:?}");
        assert_eq!(object["error"]["node"], code, "{list:?}");
    }
}

#[test]
fn policies_are_asked_in_order_and_those_that_are_off_are_not() {
    let world = World::new();
    chain(&world, "exec: cat");
    let policy = |name: &str, more: &str, action: &str| {
        format!(
            "- {{name: {name}{more}, rules: [{{target: node, target_id: a, action: {action}}}]}}\n"
        )
    };
    let write = |list: [String; 2]| {
        world.write("f/policy.yaml", format!("policies:\n{}", list.concat()));
    };
    write([policy("one", "", "allow"), policy("two", "", "deny")]);
    run(&world).exits(0);
    write([
        policy("one", ", enabled: false", "allow"),
        policy("two", "", "deny"),
    ]);
    run(&world)
        .exits(1)
        .says("policy \"two\", rule 1, denies node a");
    write([
        policy("two", ", enabled: false", "deny"),
        policy("one", "", "allow"),
    ]);
    run(&world).exits(0);
}

#[test]
fn a_context_is_denied_by_its_profile_and_a_node_without_one_asks_for_none() {
    for (context, fails) in [
        ("recent", true),
        ("global", true),
        ("old", false),
        ("none", false),
    ] {
        let world = World::new();
        chain(&world, "exec: cat");
        let workflow = world.read("f/workflow.yaml");
        let workflow = workflow.replace(
            "role: linear, context: none",
            &format!("role: linear, context: {context}"),
        );
        world.write("f/workflow.yaml", workflow);
        world.write(
            "f/memory.yaml",
            "context_profiles: [{id: recent}, {id: old}]\n",
        );
        rules(
            &world,
            &[
                "target: context, target_id: old, action: allow",
                "target: context, target_id: '*', nodes: a, action: deny, reason: private",
            ],
        );
        let outcome = named(&world).json().exits(i32::from(fails));
        if fails {
            let message = outcome.object()["error"]["message"].clone();
            let wanted = format!("policy \"house\", rule 2, denies context {context}: private");
            assert_eq!(message, wanted);
            assert_eq!(record(&world).events("POLICY")[0]["target"], "context");
        }
    }
}

/// A node that calls the tool `t` with this script.
fn calling(script: &str) -> World {
    let world = World::new();
    world.write(
        "f/tools.yaml",
        "tools:\n- {id: t, exec: 'touch called'}\n- {id: u, exec: 'echo u'}\n",
    );
    world.script("node.sh", &format!("#!/bin/sh\n{script}\n"));
    chain(
        &world,
        "exec: '${FLOW_HOME}/../node.sh', output: text, tools: [t, u]",
    );
    rules(
        &world,
        &["target: tool, target_id: t, nodes: a, action: deny, reason: no touching"],
    );
    world
}

fn with_path(world: &World) -> Delta {
    let programs = PathBuf::from(env!("CARGO_BIN_EXE_delta-flow"));
    let path = format!(
        "{}:{}",
        programs.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    named(world).env("PATH", path)
}

#[test]
fn a_denied_tool_is_refused_at_the_call_and_recorded() {
    let world = calling("delta-flow tool t </dev/null; echo $?; delta-flow tool u </dev/null");
    let outcome = with_path(&world).exits(0).prints("\"64\\nu\"\n");
    drop(outcome);
    assert!(!world.exists("ws/called"));
    let reason = "policy \"house\", rule 1, denies tool t: no touching";
    let said = record(&world).text("io/nodes/T1/a/stderr.log");
    assert!(said.contains(reason), "{said}");
    let calls = record(&world).events("TOOL");
    assert_eq!(calls[0]["code"], "policy_denied");
    assert_eq!(calls[0]["message"], format!("tool t: {reason}"));
    assert_eq!(calls[1]["status"], "success");
    let told = record(&world).events("POLICY");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["target_id"], "t");
    assert_eq!(told[0]["execution_ref"], calls[0]["execution_ref"]);
    assert!(show(&world, &["T1", "a"]).contains("001_t  policy_denied: tool t: policy"));
    let stats = world.delta(["stats", "-w", "ws"]).json().exits(0);
    let stats: Value = serde_json::from_slice(&stats.stdout).unwrap();
    let tool = &stats[0]["tools"]["t"];
    assert_eq!(
        (&tool["calls"], &tool["bytes"]),
        (&json!(1), &json!(0)),
        "{tool}"
    );
}

#[test]
fn a_denied_call_fails_a_node_that_does_not_handle_it() {
    let world = calling("exec delta-flow tool t </dev/null");
    let outcome = with_path(&world).json().exits(1);
    let error = &outcome.object()["error"];
    assert_eq!(error["code"], "operation");
    assert!(error["message"].as_str().unwrap().contains("no touching"));
}

/// What the first request of the agent of node `a` offers.
fn offered(world: &World) -> Vec<String> {
    let runs = world.runs().into_iter().filter(|run| run.id() != "r");
    let dirs: Vec<PathBuf> = runs.flat_map(|run| run.invocations()).collect();
    let request = fs::read_to_string(dirs[0].join("request.json")).unwrap();
    let request: Value = serde_json::from_str(&request).unwrap();
    let tools = request["tools"].as_array().unwrap().iter();
    let names = tools.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned());
    names.filter(|name| name != "ask_human").collect()
}

fn agent() -> World {
    let world = calling("");
    let workflow = world.read("f/workflow.yaml").replace(
        "{id: a, kind: deterministic, role: linear, context: none, exec: '${FLOW_HOME}/../node.sh', output: text,",
        "{id: a, kind: agent, role: linear, context: none, agent_id: ag,",
    );
    world.write("f/workflow.yaml", workflow);
    world.write("f/agents.yaml", "agents:\n- {id: ag, path: ../agent}\n");
    world
}

#[test]
fn an_agent_is_not_offered_what_is_denied_and_the_journal_says_so() {
    let world = agent();
    world.model_says([text("1")]);
    named(&world).exits(0).prints("1\n");
    assert_eq!(offered(&world), ["u"]);
    let told = record(&world).events("POLICY");
    assert_eq!(told.len(), 1);
    assert_eq!(
        (&told[0]["target"], &told[0]["target_id"]),
        (&json!("tool"), &json!("t"))
    );
    assert!(show(&world, &["T1", "a"]).contains("--- denied\ntool t\n"));
}

#[test]
fn an_agents_own_tool_does_not_stand_in_for_the_one_that_is_denied() {
    let world = agent().tools("- {name: t, exec: 'touch own'}");
    world.model_says([call("c", "t", &json!({})), text("1")]);
    named(&world).exits(0).prints("1\n");
    assert_eq!(offered(&world), ["t", "u"]);
    assert!(!world.exists("ws/own") && !world.exists("ws/called"));
    let calls = record(&world).events("TOOL");
    assert_eq!(calls[0]["code"], "policy_denied");
}

#[test]
fn from_every_prefix_of_a_journal_with_denials_the_same_result_comes() {
    let make = || {
        let world = calling("delta-flow tool t </dev/null; delta-flow tool u </dev/null");
        let workflow = world.read("f/workflow.yaml").replace(
            "- {id: x,",
            "- {id: b, kind: deterministic, role: linear, context: none, continue_on_failure: true, exec: cat}\n- {id: x,",
        );
        let workflow = workflow.replace("to: x}", "to: b}\n- {from: b, to: x}");
        world.write("f/workflow.yaml", workflow);
        let denied = "target: node, target_id: b, action: deny";
        rules(
            &world,
            &["target: tool, target_id: t, nodes: a, action: deny", denied],
        );
        world
    };
    let command = |world: &World| with_path(world).args(["-q"]).json();
    let whole = make();
    let expected = result(&command(&whole).exits(3));
    let journal = record(&whole).text("journal.jsonl");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    for kept in 2..lines.len() {
        for torn in [false, true] {
            let world = make();
            copy(&whole.path("ws/.delta"), &world.path("ws/.delta"));
            let mut prefix = lines[..kept].concat();
            if torn {
                prefix.push_str(&lines[kept][..lines[kept].len() / 2]);
            }
            let prefix = prefix.replace(
                whole.path("f").to_str().unwrap(),
                world.path("f").to_str().unwrap(),
            );
            world.write("ws/.delta/r/journal.jsonl", &prefix);
            world.adopt("ws");
            let outcome = command(&world).exits(3);
            assert_eq!(result(&outcome), expected, "from {kept} lines");
            let ends = record(&world).events("NODE_END");
            assert_eq!(ends.len(), 4, "from {kept} lines");
            // Each call that is told, and its denial, is told once.
            for kind in ["TOOL", "POLICY"] {
                let told = record(&world).events(kind);
                let mut calls: Vec<String> = told
                    .iter()
                    .filter_map(|event| Some(event["execution_ref"].as_str()?.to_owned()))
                    .collect();
                let count = calls.len();
                calls.sort();
                calls.dedup();
                assert_eq!(calls.len(), count, "{kind} from {kept} lines");
            }
        }
    }
}

#[test]
fn a_changed_policy_is_a_changed_flow() {
    let world = World::new();
    chain(&world, "exec: cat");
    rules(&world, &["target: node, target_id: a, action: allow"]);
    named(&world).args(["--pause-before", "a"]).exits(4);
    let metadata = record(&world).metadata();
    let files = metadata["flow"]["files"].as_array().unwrap();
    assert!(files.iter().any(|file| file["path"] == "policy.yaml"));
    rules(&world, &["target: node, target_id: a, action: deny"]);
    named(&world).exits(78).says("policy.yaml");
    named(&world)
        .args(["--changed", "ok"])
        .exits(1)
        .says("policy_denied");
}

#[test]
fn everything_that_is_wrong_with_policies_is_told_at_once() {
    let world = World::new();
    chain(&world, "exec: cat");
    world.write(
        "f/policy.yaml",
        "policies:
- name: one
  rules:
  - {target: nodes, target_id: a, action: deny}
  - {target_id: a, action: forbid}
  - {target: node, action: deny}
  - {target: node, target_id: '[a', action: deny}
  - {target: node, target_id: a, nodes: '', action: deny}
  - {target: node, target_id: 3, action: deny}
- name: one
  enabled: maybe
  rules: []
- rules: 7
- name: ''
- 3
",
    );
    let errors = errors_of(&world, "f");
    let count = errors.len();
    let one = |ids: &[&str], message: &str| {
        let found = errors.iter().find(|error| {
            let said = error["message"].as_str().unwrap();
            error["ids"] == json!(ids) && said.contains(message)
        });
        let found = found.unwrap_or_else(|| panic!("{message} is not in {errors:#?}"));
        assert_eq!(found["code"], "manifest_invalid");
        assert_eq!(found["file"], "policy.yaml");
    };
    for message in [
        "f/policy.yaml:4: policy \"one\": rule 1: target: expected one of tool, context, node, found the string \"nodes\"",
        "f/policy.yaml:5: policy \"one\": rule 2: has no target; needs tool, context or node",
        "f/policy.yaml:5: policy \"one\": rule 2: action: expected one of allow, deny",
        "f/policy.yaml:6: policy \"one\": rule 3: has no target_id; needs an id, or * for all",
        "f/policy.yaml:7: policy \"one\": rule 4: target_id: the pattern \"[a\" has a [ without a ]",
        "f/policy.yaml:8: policy \"one\": rule 5: nodes: the pattern \"\" is empty",
        "f/policy.yaml:9: policy \"one\": rule 6: target_id: expected a string",
        "f/policy.yaml:11: policy \"one\": enabled: expected true or false",
    ] {
        one(&["one"], message);
    }
    for message in [
        "f/policy.yaml:10: policy \"one\" is defined twice; rename one",
        "f/policy.yaml:13: this policy has no name; give it one",
        "f/policy.yaml:14: name: is empty",
        "f/policy.yaml:15: policies: expected a mapping, found the number 3",
    ] {
        one(&[], message);
    }
    one(&[], "f/policy.yaml:13: policy \"\": rules: expected a list");
    assert_eq!(count, 13, "{errors:#?}");
}

#[test]
fn what_can_never_decide_anything_is_warned_of() {
    let world = World::new();
    chain(&world, "exec: cat");
    world.write("f/tools.yaml", "tools: [{id: t, exec: cat}]\n");
    rules(
        &world,
        &[
            "target: node, target_id: 'b*', action: deny",
            "target: node, target_id: a, nodes: s, action: deny",
            "target: tool, target_id: shell, action: deny",
            "target: context, target_id: none, action: deny",
            "target: tool, target_id: t, nodes: web, action: deny, resaon: x",
            "target: tool, target_id: '*', nodes: a, action: allow",
        ],
    );
    let check = Delta::flow(world.home()).args(["check", "f"]).exits(0);
    for words in [
        "f/policy.yaml:4: policy \"house\": rule 1: target_id: fits no node of workflow.yaml",
        "f/policy.yaml:5: policy \"house\": rule 2: target_id: fits no node",
        "f/policy.yaml:6: policy \"house\": rule 3: target_id: fits no tool of tools.yaml",
        "f/policy.yaml:7: policy \"house\": rule 4: target_id: fits no context profile of memory.yaml",
        "f/policy.yaml:8: policy \"house\": rule 5: nodes: fits no node of workflow.yaml",
        "f/policy.yaml:8: policy \"house\": rule 5: unknown key 'resaon'; did you mean 'reason'?",
    ] {
        assert!(
            check.stderr.contains(words),
            "{words} is not in\n{}",
            check.stderr
        );
    }
    assert_eq!(check.stderr.lines().count(), 6, "{}", check.stderr);
}
