//! What `delta flow eval` concludes: named scores, comparisons, and the exit status.

use crate::flow::eval_load::suites;
use crate::harness::*;
use serde_json::{Value, json};

fn eval(world: &World) -> Delta {
    world.delta(["flow", "eval", "e", "-w", "w", "-j", "1"])
}

/// The table has these words.
#[track_caller]
fn table(outcome: Outcome, words: &str) {
    let printed = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(printed.contains(words), "{printed}");
}

/// A command that prints what the setting says, judged by a program that prints this verdict for it.
fn judged(verdict: &str) -> World {
    let world = suites(
        "- name: s\n  target: {command: [sh, -c, 'cat; echo \"$WORD\"']}\n  settings:\n  - {name: base, set: {WORD: no}}\n  - {name: new, set: {WORD: yes}}\n  cases: c.jsonl\n",
    );
    world.script("e/judge", &format!("#!/bin/sh\ninput=$(cat)\n{verdict}"));
    let case = |at: usize| {
        let grader = json!({"type": "exec", "verdict": "json", "value": ["${FLOW_HOME}/judge"]});
        json!({"id": format!("c{at}"), "input": format!("{at} "), "assert": [grader]}).to_string()
    };
    let cases: Vec<String> = (0..8).map(case).collect();
    world.write("e/c.jsonl", cases.join("\n"));
    world
}

/// Passes what says yes, with three stars more.
const YES: &str = "case $input in *yes*) echo '{\"pass\": true, \"scores\": {\"stars\": 4}}' ;; \
    *) echo '{\"pass\": false, \"scores\": {\"stars\": 1}, \"reason\": null}' ;; esac";

#[test]
fn scores_of_a_grader_are_recorded_summed_up_and_compared() {
    let world = judged(YES);
    let suite = eval(&world).json().exits(0).object()["suites"][0].clone();
    let stars = |setting: usize| suite["settings"][setting]["scores"]["stars"].clone();
    assert_eq!(
        (&stars(0)["mean"], &stars(1)["mean"]),
        (&json!(1.0), &json!(4.0))
    );
    // All cases are equal, so nothing is known of others.
    assert_eq!(stars(1)["ci"], Value::Null);
    assert_eq!(suite["comparison"]["scores"]["stars"]["difference"], 3.0);
    assert_eq!(suite["comparison"]["finding"], "higher");
    assert_eq!(suite["verdict"], "passed");
    let printed = eval(&world).args(["--format", "jsonl"]).exits(0).stdout;
    let printed = String::from_utf8(printed).unwrap();
    let first: Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    assert_eq!(first["scores"], json!({"stars": 1.0}));
    assert_eq!(first["reason"], "the grader says no");
    let words = "score stars   +3.00 → higher (exact sign flips, p = 0.0078)\n";
    table(eval(&world).exits(0), words);
}

#[test]
fn a_score_need_not_be_there_and_one_that_is_no_number_of_use_breaks_the_grader() {
    let world = judged(
        "case $input in *'\"0 '*) echo '{\"pass\": true, \"scores\": {\"x\": 1e200}}' ;; \
         *'\"1 '*) echo '{\"pass\": true, \"scores\": null}' ;; \
         *yes*) echo '{\"pass\": true, \"scores\": {\"x\": -7.5}, \"reason\": \"well put\"}' ;; \
         *) echo '{\"pass\": false}' ;; esac",
    );
    let printed = eval(&world)
        .args(["--format", "jsonl", "--setting", "new"])
        .exits(4)
        .stdout;
    let printed = String::from_utf8(printed).unwrap();
    let trials: Vec<Value> = printed
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    assert_eq!(trials[0]["status"], "not_measured");
    assert_eq!(trials[0]["reason"], "the grader's score x is too great");
    assert_eq!(
        (&trials[1]["scores"], &trials[1]["reason"]),
        (&json!({}), &Value::Null)
    );
    assert_eq!(
        (&trials[2]["scores"], &trials[2]["reason"]),
        (&json!({"x": -7.5}), &json!("well put"))
    );
    let suite = eval(&world)
        .args(["--setting", "new"])
        .json()
        .exits(4)
        .object()["suites"][0]
        .clone();
    assert_eq!(suite["settings"][0]["scores"]["x"]["trials"], 6);
}

#[test]
fn the_exit_status_says_whether_a_setting_is_lower_or_as_required_higher() {
    let world = judged(YES);
    // Eight trials fail, and none of them because of the new setting.
    eval(&world).exits(0);
    let required = |world: &World| eval(world).args(["--require", "higher"]);
    table(
        required(&world).exits(0),
        "\n\npassed: shown higher, as required\nnew passes 100 %, base 0 %: better by 100 points\n",
    );
    let yaml = world.read("e/evaluations.yaml");
    let turned = yaml
        .replace("WORD: no", "WORD: other")
        .replace("WORD: yes", "WORD: no");
    let turned = turned.replace("WORD: other", "WORD: yes");
    world.write("e/evaluations.yaml", &turned);
    table(
        eval(&world).exits(1),
        "new passes 0 %, base 100 %: worse by 100 points\n",
    );
    required(&world).exits(1);
    // No case differs.
    world.write(
        "e/evaluations.yaml",
        turned.replace("WORD: no", "WORD: yes"),
    );
    eval(&world).exits(0);
    table(
        required(&world).exits(1),
        "higher was required, and no case of new differs\n",
    );
    // Half of one side was not measured.
    world.script(
        "e/judge",
        "#!/bin/sh\ncase $(cat) in *no*) exit 3 ;; esac\necho '{\"pass\": true}'",
    );
    world.write("e/evaluations.yaml", yaml);
    table(eval(&world).exits(4), "undecided: nothing was measured\n");
}

#[test]
fn higher_is_required_only_of_what_is_compared() {
    let world = judged(YES);
    let alone = eval(&world)
        .args(["--setting", "base", "--require", "higher"])
        .end();
    alone
        .exits(2)
        .says("suite \"s\" has one setting, which is compared with nothing");
    assert!(!world.exists("w"));
    eval(&world).args(["--require", "lower"]).exits(2);
}
