//! `evaluations.yaml`: what is read, and what is refused.

use crate::harness::*;
use serde_json::Value;

/// A world with the suites of an evaluation in `e`.
pub fn suites(yaml: &str) -> World {
    let world = World::new();
    world.write("e/evaluations.yaml", format!("suites:\n{yaml}"));
    world
}

/// A suite that prints its input in capitals, with these lines.
pub fn upper(lines: &str) -> World {
    suites(&format!(
        "- name: up\n  target: {{command: [tr, a-z, A-Z]}}\n{lines}\n"
    ))
}

/// The errors of `delta flow check`: code, ids and message.
fn errors(world: &World) -> Vec<(String, String, String)> {
    let checked = world.delta(["flow", "check", "e"]).json().exits(78);
    let errors = checked.object()["errors"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let ids = |value: &Value| {
        let ids: Vec<String> = value.as_array().unwrap().iter().map(text).collect();
        ids.join(" ")
    };
    let told = errors.iter();
    told.map(|it| (text(&it["code"]), ids(&it["ids"]), text(&it["message"])))
        .collect()
}

/// There is this error, and no other.
#[track_caller]
fn has_only(world: &World, code: &str, ids: &str, words: &str) {
    let found = errors(world);
    assert_eq!(found.len(), 1, "{found:?}");
    let (found_code, found_ids, message) = &found[0];
    assert_eq!(
        (found_code.as_str(), found_ids.as_str()),
        (code, ids),
        "{message}"
    );
    assert!(message.contains(words), "{message}");
}

#[test]
fn a_directory_needs_no_flow_for_suites_of_commands() {
    let world = upper("  cases: [{input: a, expected: A}]");
    let checked = world.delta(["flow", "check", "e"]).end();
    checked.exits(0).prints("e: ok, 1 suite\n");
}

#[test]
fn a_case_cannot_be_there_twice() {
    let world = upper("  cases:\n  - {id: a, input: x}\n  - {id: a, input: y}");
    has_only(
        &world,
        "duplicate_case",
        "up a",
        "as number 1 and as number 2",
    );
    let world = upper("  cases: c.jsonl");
    world.write(
        "e/c.jsonl",
        "{\"id\":\"a\",\"input\":1}\n\n{\"id\":\"a\",\"input\":2}\n",
    );
    has_only(&world, "duplicate_case", "up a", "e/c.jsonl:3: ");
}

#[test]
fn every_error_of_a_file_is_reported_with_its_line() {
    let world = suites(
        "- {name: a, target: nowhere, cases: [{input: 1}]}\n\
         - {name: b, target: {agent: none}, cases: [{input: 1}]}\n\
         - {name: b, target: {command: ['true']}, cases: [{input: 1}]}\n\
         - name: c\n  target: {command: ['true']}\n  trials: 0\n  threshold: 2\n  cases:\n\
         \x20 - {id: x, assert: [{type: equal, value: 1}]}\n\
         \x20 - {id: y, input: 1, assert: [{type: regex, value: '('}]}\n\
         \x20 - {id: z, input: 1, assert: [{type: contains, value: a, weight: 0}]}\n\
         \x20 settings: [{name: s}, {name: s}]\n",
    );
    let found = errors(&world);
    let codes: Vec<&str> = found.iter().map(|it| it.0.as_str()).collect();
    for (code, count) in [
        ("bad_target", 2),
        ("duplicate_suite", 1),
        ("duplicate_setting", 1),
        ("manifest_invalid", 3),
        ("bad_assertion", 3),
    ] {
        let there = codes.iter().filter(|it| **it == code).count();
        assert_eq!(there, count, "{code}: {found:?}");
    }
    assert!(
        found.iter().any(|it| it.2.contains("did you mean equals?")),
        "{found:?}"
    );
    assert!(
        found.iter().any(|it| it.2.contains("weights sum to 0")),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .all(|it| it.2.starts_with("e/evaluations.yaml:")),
        "{found:?}"
    );
}

#[test]
fn a_grader_is_never_a_file_of_the_trial() {
    let case = |value: &str| {
        upper(&format!(
            "  cases: [{{id: a, input: x, assert: [{{type: exec, value: {value}}}]}}]"
        ))
    };
    has_only(
        &case("[./judge.sh]"),
        "bad_assertion",
        "up a",
        "would be a file of the trial itself",
    );
    case("['${FLOW_HOME}/judge.sh']")
        .delta(["flow", "check", "e"])
        .exits(0);
    let world = upper(
        "  workspace: t\n  cases: [{id: a, input: x, assert: [{type: exec, value: ['${FLOW_HOME}/t/judge.sh']}]}]",
    );
    world.script("e/t/judge.sh", "#!/bin/sh\n");
    has_only(
        &world,
        "grader_in_workspace",
        "up",
        "must not see what it is graded by",
    );
}

#[test]
fn names_of_nodes_are_looked_up_in_the_flow() {
    let world = suites(
        "- {name: f, cases: [{id: a, input: 1, start: b, assert: [{type: exit_node, value: y}]}]}\n",
    );
    world.write("e/workflow.yaml", flow(&[start(), exit()], "s>x"));
    let found = errors(&world);
    let messages: Vec<&str> = found.iter().map(|it| it.2.as_str()).collect();
    assert!(
        messages.iter().any(|it| it.contains("no start \"b\"")),
        "{messages:?}"
    );
    assert!(
        messages.iter().any(|it| it.contains("no exit \"y\"")),
        "{messages:?}"
    );
}

#[test]
fn a_threshold_that_cannot_be_reached_is_warned_of() {
    let world = upper("  threshold: 0.9\n  cases: [{id: a, input: a}, {id: b, input: b}]");
    let checked = world.delta(["flow", "check", "e"]).exits(0);
    checked.says("warning: ").says("cannot be reached");
}

#[test]
fn a_setting_cannot_set_what_delta_sets_itself() {
    let world = upper("  settings: [{name: s, set: {DELTA_RUN_ID: x}}]\n  cases: [{input: 1}]");
    has_only(
        &world,
        "manifest_invalid",
        "up",
        "DELTA_RUN_ID is set by delta itself",
    );
}

#[test]
fn keys_of_assertions_that_mean_nothing_are_refused() {
    for (assertion, words) in [
        (
            "{type: exec, value: 'true', ignore_case: true}",
            "ignore_case is for the types equals",
        ),
        (
            "{type: schema, value_in: [a]}",
            "value_in is for the types equals",
        ),
        (
            "{type: equals, value: a, value_in: [b]}",
            "both value and value_in",
        ),
        ("{type: equals, value_in: []}", "value_in: there is none"),
        ("{type: equals, value_in: a}", "expected a list"),
        (
            "{type: equals, value: a, not: perhaps}",
            "not: expected true or false",
        ),
        ("{type: regex, value_in: ['(']}", "assert: value: "),
        ("{type: regex, value: 1}", "a pattern"),
    ] {
        let world = upper(&format!(
            "  cases: [{{id: a, input: x, assert: [{assertion}]}}]"
        ));
        let found = errors(&world);
        let is_said = found
            .iter()
            .any(|it| it.0 == "bad_assertion" && it.2.contains(words));
        assert!(is_said, "{assertion}: {found:?}");
    }
}
