//! The examples of flows run as they are, offline.

use crate::harness::*;
use std::fs;
use std::path::{Path, PathBuf};

/// `delta flow run` of an example in the workspace `ws`.
fn run(world: &World, name: &str) -> Delta {
    world.server.may_stay_unasked();
    let dir = example(name);
    let check = Delta::flow(world.home()).arg("check").arg(&dir).end();
    assert_eq!(check.exits(0).stderr, "");
    let run = Delta::flow(world.home()).arg("run").arg(dir);
    run.args(["-w", "ws"]).env("PATH", path())
}

fn example(name: &str) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    examples.join(format!("flow-{name}"))
}

/// Where `delta` and `delta-flow` are, before everything else.
fn path() -> String {
    let programs = PathBuf::from(env!("CARGO_BIN_EXE_delta"));
    let old = std::env::var("PATH").unwrap_or_default();
    format!("{}:{old}", programs.parent().unwrap().display())
}

#[test]
fn map_reduce_adds_up_the_words_of_all_files() {
    let world = World::new();
    let outcome = run(&world, "map-reduce").end();
    outcome.exits(0).prints("{\"files\":3,\"words\":10}\n");
}

#[test]
fn two_of_three_judges_decide_and_one_is_sent_back_once() {
    let world = World::new();
    let outcome = run(&world, "vote").args(["-m", "Deploy on Fridays."]).end();
    outcome
        .exits(0)
        .prints("{\"selected_edge\":\"yes\",\"yes\":2,\"no\":1}\n")
        .says("hasty  sent back");
    let world = World::new();
    let outcome = run(&world, "vote").json().end();
    let told = outcome.object();
    assert_eq!(told["error"]["code"], "schema_in", "no proposal: {told}");
    outcome.exits(1);
}

#[test]
fn a_vote_without_voters_fails() {
    let world = examples();
    let cut_off = r#"{"choices":[{"message":{"content":"I"},"finish_reason":"length"}]}"#;
    let script = format!("#!/bin/sh\necho '{cut_off}'\n");
    world.script("examples/flow-vote/model.sh", &script);
    let line = "delta flow run examples/flow-vote -w ws -m 'Deploy on Fridays.'";
    let outcome = shell(&world, line).end().exits(1).prints("");
    outcome.says("count").says("operation");
    let said = shell(&world, "cat ws/.delta/*/io/nodes/T1/count/stderr.log");
    said.end().prints("nobody has voted\n");
}

#[test]
fn the_plan_is_executed_and_the_review_approves_it() {
    let world = World::new();
    let outcome = run(&world, "plan").args(["-m", "Write a story."]).end();
    outcome
        .exits(0)
        .prints("{\"selected_edge\":\"approve\",\"reason\":\"All parts are there.\"}\n");
    for (task, part) in ["beginning", "middle", "end"].into_iter().enumerate() {
        let file = world.in_task(&format!("T1.s{task}/{part}.txt"));
        assert_eq!(world.read(&file), format!("This is the {part}.\n"));
    }
}

#[test]
fn a_letter_is_sent_or_dropped_as_a_person_answers_in_the_middle() {
    for (answer, output, file) in [
        ("yes", "\"sent\"\n", "ws/sent.txt"),
        ("no", "\"dropped\"\n", ""),
    ] {
        let world = World::new();
        let flow = || run(&world, "approval").args(["--run-id", "monday", "-m", "We moved."]);
        let asked = flow().end().exits(101).prints("");
        assert!(asked.stderr.contains("May letter.txt be sent?"));
        // The command that answers, as it is told, with the answer in its place.
        let command = asked.stderr.split("answer with: delta ").nth(1).unwrap();
        let command = command.lines().next().unwrap().replace("ANSWER", answer);
        let words = shlex::split(&command).unwrap();
        world.delta(words.iter().map(String::as_str)).end().exits(0);
        let done = flow().end().exits(0).prints(output);
        assert!(!done.stderr.contains("] write"), "{}", done.stderr);
        assert!(!world.path("ws/letter.txt").exists());
        if !file.is_empty() {
            assert_eq!(world.read(file), "Dear all,\nWe moved.\n");
        }
    }
}

#[test]
fn a_flow_runs_as_a_node_of_another_one() {
    let world = World::new();
    let outcome = run(&world, "nested").end();
    outcome.exits(0).prints("[\"a\",\"be\"]\n");
    assert!(
        world
            .path(&world.in_task("T1.s1/.delta/inner/journal.jsonl"))
            .is_file()
    );
}

#[test]
fn every_example_of_a_flow_has_a_readme_that_names_the_command() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in fs::read_dir(examples).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(flow) = name.strip_prefix("flow-") else {
            continue;
        };
        let readme = fs::read_to_string(example(flow).join("README.md")).unwrap();
        assert!(
            readme.contains(&format!("delta flow run examples/{name} -w ")),
            "{name}"
        );
        count += 1;
    }
    assert_eq!(count, 5);
}

#[test]
fn the_pages_of_the_flows_run_as_shown_also_with_a_server_for_a_model() {
    as_shown("flow-map-reduce", &[]);
    as_shown("flow-nested", &[]);
    for (world, ended) in [
        (as_shown("flow-vote", &[]), "tmp/vote-2/.delta"),
        (as_shown("flow-plan", &[]), "tmp/plan-2/tasks"),
        (as_shown("flow-approval", &[]), "tmp/letter-2/letter.txt"),
    ] {
        let world = world.unwrap();
        assert!(world.exists(ended), "{ended}");
        assert!(!world.server.requests().is_empty(), "{ended}");
    }
}
