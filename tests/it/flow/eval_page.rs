//! `delta eval report`, the lines of trials, and runs as cases.

use crate::flow::eval_load::{suites, upper};
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

fn eval(world: &World) -> Delta {
    world.delta(["eval", "e", "-w", "w", "-j", "1"])
}

fn lines(outcome: &Outcome) -> Vec<Value> {
    let printed = String::from_utf8(outcome.stdout.clone()).unwrap();
    let lines = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// Two settings; the second one prints in capitals what is expected so.
fn two() -> World {
    let world = suites(
        "- name: two\n  target: {shell: 'tr a-z \"$TO\"'}\n  settings: [{name: base, set: {TO: a-z}}, {name: new, set: {TO: A-Z}}]\n  cases: c.jsonl\n",
    );
    world.write(
        "e/c.jsonl",
        "{\"id\":\"words\",\"input\":\"the same words\",\"expected\":\"THE SAME words\"}\n\
         {\"id\":\"loud\",\"input\":\"x\",\"expected\":\"X\"}\n\
         {\"id\":\"1\",\"input\":1,\"expected\":1}\n",
    );
    world
}

#[test]
fn the_line_of_a_trial_has_what_was_asked_expected_and_answered() {
    let world = two();
    let found = lines(&eval(&world).args(["--format", "jsonl"]).exits(0));
    let texts =
        |at: usize| ["input", "expected", "output", "reason"].map(|key| found[at][key].clone());
    let [input, expected, output, reason] = texts(0);
    assert_eq!(
        (input, expected, output),
        (
            json!("the same words"),
            json!("THE SAME words"),
            json!("the same words")
        )
    );
    assert_eq!(reason, "\"the same words\" is not \"THE SAME words\"");
    assert_eq!(texts(3), [json!("x"), json!("X"), json!("X"), Value::Null]);
    assert_eq!(texts(4)[..3], [json!(1), json!(1), json!("1")]);
}

#[test]
fn a_long_output_is_cut_in_the_line_and_whole_in_the_record() {
    let world = suites(
        "- name: l\n  target: {command: [sh, -c, 'head -c 70000 /dev/zero | tr \"\\0\" é; kill -9 $$']}\n  cases: [{id: no, input: a}]\n\
         - name: long\n  target: {command: [sh, -c, 'head -c 70000 /dev/zero | tr \"\\0\" e']}\n  cases: [{id: a, input: a, assert: [{type: contains, value: e}]}]\n",
    );
    let found = lines(&eval(&world).args(["--format", "jsonl"]).exits(4));
    assert_eq!(found[0]["output"], Value::Null);
    assert_eq!(found[1]["output"].as_str().unwrap().len(), 64 << 10);
}

#[test]
fn the_page_shows_the_verdict_the_cases_and_outputs_beside_what_was_expected() {
    let world = two();
    eval(&world).exits(0);
    let page = world
        .delta(["eval", "report", "w", "-o", "page.html"])
        .exits(0)
        .prints("");
    drop(page);
    let Some(shown) = open(world.home(), &world.path("page.html"), "#case=words") else {
        return;
    };
    shown
        .is_well()
        .shows("new passes 67 %, base 33 %: too few cases differ, +33 points")
        .shows("better: loud; 2 cases alike")
        .shows("95 % intervals over similar cases")
        .shows("failed 2")
        .shows("differing 1")
        .shows("not measured 0")
        .shows("<ins class=\"plus\">THE</ins> <ins class=\"plus\">SAME</ins> words")
        .shows("<del class=\"minus\">the</del> <del class=\"minus\">same</del> words")
        .shows("<a class=\"link\" href=\"#case=words\">");
    // Cases that differ come first.
    let at = |words: &str| shown.content().find(words).unwrap();
    assert!(at("loud</button>") < at("words</button>") && at("words</button>") < at(">1</button>"));
    // What has passed can be unfolded, and a link to a case shows it whatever the filter.
    let passed = open(
        world.home(),
        &world.path("page.html"),
        "#filter=failed&case=1",
    )
    .unwrap();
    passed.is_well().shows("3 of 3 cases");
    passed.shows("<details class=\"fold\"><summary class=\"title\">output</summary>");
    let failed = open(world.home(), &world.path("page.html"), "#filter=failed").unwrap();
    failed.is_well().shows("2 of 3 cases").shows(
        "<tr class=\"case\" hidden=\"\"><th scope=\"row\"><button aria-expanded=\"false\">1<",
    );
}

#[test]
fn a_case_without_an_id_is_named_by_its_input() {
    let world = upper("  cases: c.csv");
    world.write("e/c.csv", "input,expected\nmy words,MY WORDS\nx,no\n");
    let table = String::from_utf8(eval(&world).exits(1).stdout).unwrap();
    assert!(
        table.ends_with("\nfailed: \"x\"\n2 trials ran\n"),
        "{table}"
    );
    let again = String::from_utf8(eval(&world).exits(1).stdout).unwrap();
    let paid = "\nnothing ran, nothing was paid; recorded: 2 trials\n";
    assert!(again.ends_with(paid), "{again}");
    let page = world.delta(["eval", "report", "w", "-o", "page.html"]);
    drop(page.exits(0));
    if let Some(shown) = open(world.home(), &world.path("page.html"), "") {
        shown.is_well().shows(">my words</button>");
    }
}

#[test]
fn everything_on_the_page_is_text() {
    const HOSTILE: &str =
        "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\u{202e}";
    let long = &format!("{HOSTILE}\u{1b}[2J\n</pre>");
    let grader =
        json!({"type": "exec", "verdict": "json", "value": ["cat", "${FLOW_HOME}/verdict"]});
    let case = json!({"id": HOSTILE, "input": long, "expected": long, "assert": [grader]});
    let world = suites(&format!(
        "- name: h\n  target: {{command: [cat]}}\n  settings: [{{name: {0}}}, {{name: b}}]\n  cases: c.jsonl\n",
        json!(HOSTILE)
    ));
    world.write("e/c.jsonl", case.to_string());
    let verdict = json!({"pass": false, "reason": long, "scores": {HOSTILE: 1, "__proto__": 2, "constructor": 3}});
    world.write("e/verdict", verdict.to_string());
    eval(&world).exits(0);
    world
        .delta(["eval", "report", "w", "-o", "page.html"])
        .exits(0);
    let page = world.read("page.html");
    assert_eq!(page.matches("<script").count(), 2, "{page}");
    assert!(!page.contains("<img") && !page.contains('\u{1b}') && !page.contains('\u{202e}'));
    let fragment = "#filter=failed";
    let Some(shown) = open(world.home(), &world.path("page.html"), fragment) else {
        return;
    };
    shown.is_well().shows_not("<img").shows_not("<script");
    shown.shows("&lt;img src=x onerror=alert(1)&gt;");
    assert!(!shown.dom.contains("<title>owned"), "it ran");
}

#[test]
fn known_keys_are_replaced_on_the_page() {
    let world = suites(
        "- name: k\n  target: {command: [sh, -c, 'echo sk-0123456789abcdef01']}\n  cases: [{id: a, input: a, expected: b}]\n",
    );
    eval(&world).exits(1);
    let report = |key: &str| {
        let page = world
            .delta(["eval", "report", "w"])
            .env("DELTA_API_KEY", key)
            .exits(0);
        String::from_utf8(page.stdout).unwrap()
    };
    let page = report("sk-0123456789abcdef01");
    assert!(
        !page.contains("sk-0123456789") && page.contains("[redacted]"),
        "{page}"
    );
    assert!(report("sk-another-key-0123").contains("sk-0123456789abcdef01"));
}

#[test]
fn a_page_goes_to_a_file_or_a_directory_and_needs_a_result() {
    let world = two();
    let report = |args: &[&str]| world.delta(["eval", "report"]).args(args).end();
    fs::create_dir(world.path("empty")).unwrap();
    report(&["empty"]).refuses(1, "there is no result of an evaluation in");
    eval(&world).exits(0);
    report(&["w", "--trials", "2"]).refuses(2, "report takes no --trials");
    world.delta(["eval", "e", "-o", "x"]).exits(2);
    report(&["w", "-o", "new/page.html"]).exits(0);
    report(&["w", "-o", "dir/"]).exits(0);
    report(&["w", "-o", "dir"]).exits(0);
    assert_eq!(world.read("new/page.html"), world.read("dir/index.html"));
    // What is in the place of the results is not followed.
    let run = fs::read_dir(world.path("w/.delta")).unwrap();
    let mut dirs = run.map(|it| it.unwrap().path().join("results"));
    let results = dirs.find(|dir| dir.is_dir()).unwrap();
    world.write("secret", "{\"type\":\"suite\",\"suite\":\"secret\"}");
    fs::remove_file(results.join("two.jsonl")).unwrap();
    std::os::unix::fs::symlink(world.path("secret"), results.join("two.jsonl")).unwrap();
    report(&["w"]).refuses(1, "two.jsonl");
}

#[test]
fn the_page_shows_the_trials_of_the_last_verdict_only() {
    let world = upper("  cases: [{id: old, input: a, expected: A}]");
    eval(&world).exits(0);
    let yaml = world.read("e/evaluations.yaml");
    world.write("e/evaluations.yaml", yaml.replace("old", "young"));
    eval(&world).exits(0);
    let page = world.delta(["eval", "report", "w"]).exits(0);
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(
        page.contains("\"id\":\"young\"") && !page.contains("\"id\":\"old\""),
        "{page}"
    );
}

#[test]
fn a_run_that_has_completed_becomes_a_case() {
    let world = World::new();
    world.model_says([text("the answer")]);
    world.run("a question\nof two lines").exits(0);
    let found = lines(
        &world
            .delta(["export", "-w", "ws", "--format", "cases"])
            .exits(0),
    );
    assert_eq!(found[0]["input"], "a question\nof two lines");
    assert_eq!(found[0]["expected"], "the answer");
    let keys: Vec<&String> = found[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["id", "input", "expected"]);
    // It is one that an evaluation reads.
    world.write(
        "e/evaluations.yaml",
        "suites: [{name: s, target: {command: [echo, the answer]}, cases: c.jsonl}]",
    );
    world.write("e/c.jsonl", found[0].to_string());
    eval(&world).exits(0);
    // What cannot be read may have been another question.
    let journal = Run::latest(&world.path("ws")).dir.join("journal.jsonl");
    let whole = fs::read_to_string(&journal).unwrap();
    let (start, rest) = whole.split_once('\n').unwrap();
    fs::write(&journal, format!("{start}\n{{\n{rest}")).unwrap();
    world
        .delta(["export", "-w", "ws", "--format", "cases"])
        .exits(1)
        .says("1 run could not be exported as a whole")
        .says("journal.jsonl:2");
    world.model_says([Reply::error(400, "no")]);
    world
        .delta(["run", "-w", "other", "-a", "agent", "again"])
        .end();
    let none = world
        .delta(["export", "-w", "other", "--format", "cases"])
        .end();
    none.refuses(1, "has no result");
}
