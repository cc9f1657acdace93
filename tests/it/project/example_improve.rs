//! examples/improve: a search for a better prompt.

use crate::harness::*;
use std::fs;

/// Cases of which each word that means a bug is in five.
fn few_cases() -> String {
    let words = ["crash", "broken"].into_iter();
    let bugs =
        words.flat_map(|word| (0..5).map(move |at| format!("{word}-{at},A {word} in {at}.,bug\n")));
    "id,input,expected\n".to_owned()
        + &bugs.collect::<String>()
        + "how,How?,question\nwhy,Why?,question\n"
}

/// The search with two rounds, with its results in `DIR`.
fn search(world: &World, proposer: &str, dir: &str) -> Delta {
    shell(
        world,
        &format!(
            "exec examples/improve/improve examples/improve/agent cases.csv {proposer} 2 {dir}"
        ),
    )
}

#[test]
fn the_search_runs_as_shown_and_given_again_it_pays_nothing() {
    let Some(world) = as_shown("improve", &["diff", "seq"]) else {
        return;
    };
    let trials = || {
        fs::read_dir(world.path("tmp/improved/measured/eval/eval"))
            .unwrap()
            .count()
    };
    let before = trials();
    given_again(&world, "improve");
    assert_eq!(trials(), before);
}

#[test]
fn a_search_that_was_killed_goes_on_and_makes_the_same_patch() {
    if !installed(&["diff", "seq"]) {
        return;
    }
    let world = examples();
    world.write("cases.csv", few_cases());
    search(&world, "examples/improve/propose", "whole").end();
    let patch = world.read("whole/best.patch");
    assert!(
        patch.contains("\n+CRASH means bug.\n+BROKEN means bug.\n"),
        "{patch}"
    );
    for there in [
        "killed/0",
        "killed/measured/eval/eval",
        "killed/proposals/1",
        "killed/1",
        "killed/best",
    ] {
        let running = search(&world, "examples/improve/propose", "killed").spawn();
        eventually(there, || world.exists(there));
        running.kill();
        eventually("what it had started ends", || world.processes().is_empty());
    }
    search(&world, "examples/improve/propose", "killed").end();
    assert_eq!(world.read("killed/best.patch"), patch);
    assert_eq!(
        world.read("killed/curve.txt"),
        world.read("whole/curve.txt")
    );
}

#[test]
fn a_round_that_touched_more_than_texts_is_refused() {
    if !installed(&["diff", "seq"]) {
        return;
    }
    let world = examples();
    world.write("cases.csv", few_cases());
    world.script("greedy", "#!/bin/sh\necho 'CRASH means bug.' >>\"$1/system_prompt.md\"\necho '# easier' >>\"$1/model.sh\"\n");
    search(&world, "./greedy", "out").end();
    let curve = world.read("out/curve.txt");
    let refused = curve
        .lines()
        .filter(|line| line.contains("refused: ") && line.contains("model.sh"));
    assert_eq!(refused.count(), 2, "{curve}");
    assert_eq!(world.read("out/best.patch"), "");
}
