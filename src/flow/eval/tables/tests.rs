//! What is printed, byte for byte, and that nothing which others wrote gets out of its place.

use super::words::CaseNames;
use super::*;
use crate::flow::eval::summary::tests::Scene;
use crate::flow::eval::trial::{Activity, TrialOutcome};
use crate::text::shorten::columns_of;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What nobody should name a case.
const HOSTILE: &str = "a\x1b[2J\r\n<b attr=\"'&]]>\u{202e}\u{fffe}\u{0} # SKIP \\ not ok 7\u{9b}";

/// Two settings of which the second is better.
fn two_settings() -> Scene {
    Scene::new(&["base", "new prompt"], 12, 5)
        .with(
            "base",
            &[
                "-----", "+++++", "++++-", "+++++", "+-+-+", "-----", "+++++", "+++++", "---+-",
                "+++++", "++-++", "+++++",
            ],
        )
        .with(
            "new prompt",
            &[
                "+++++", "+-+++", "+++++", "+++++", "++++-", "-+---", "+++++", "+++++", "+++++",
                "+++++", "+++++", "+++++",
            ],
        )
}

#[test]
fn a_table_has_settings_as_columns_and_cases_that_differ_as_rows() {
    let text = text::text(&two_settings().summary(), &[], &CaseNames::default(), None);
    assert_eq!(
        text,
        "\
triage   12 cases × 5 trials   measured 120 of 120   analysis 1
95 % intervals over similar cases

                         base             new prompt
rate                     70 %  [42, 88]   90 %  [67, 98]
these cases only         [63, 76]         [83, 94]
pass@5 / pass^5          83 % / 50 %      100 % / 75 %
cost, tokens, s / pass   0.71, 143, 4.3   0.56, 111, 3.3
tokens / trial           100              100
time median, p90         3.0 s, 5.0 s     3.0 s, 5.0 s
not measured             0                0

new prompt − base: paired t over 12 cases, p = 0.0745; would have shown 31 points
to show the observed 20 points, if they are real: about 13 more cases

case   base   new prompt   diff
c0     0/5    5/5          +100
c8     1/5    5/5          +80
c4     3/5    4/5          +20
c5     0/5    1/5          +20
c1     5/5    4/5          −20
c2     4/5    5/5          +20
c10    4/5    5/5          +20
…   (5 cases that passed every trial)

new prompt passes 90 %, base 70 %: not clearly better, +20 points [−2, +42]
better: c0, c8, c4, c5, c2, c10; worse: c1; 5 cases alike
"
    );
}

#[test]
fn a_table_of_one_setting_lists_the_cases_that_did_not_pass() {
    let scene = Scene::of(&["++++", "+-+?", "????", "++++"]).threshold(0.9);
    let text = text::text(
        &scene.summary(),
        &scene.recorded,
        &CaseNames::default(),
        None,
    );
    assert_eq!(
        text,
        "\
triage   4 cases × 4 trials   measured 11 of 16   analysis 1
95 % intervals over similar cases

warning: base: the share of measured trials differs between cases by more than 10 points

                         base
rate                     89 %  [24, 99.5]
these cases only         [54, 98]
if missing counted       62 … 94 %
pass@4 / pass^4          100 % / 100 % (2 cases left out)
cost, tokens, s / pass   0.55, 110, 2.6
cost, not measured       2.50
tokens / trial           100
time median, p90         2.0 s, 4.0 s
not measured             5 (model unavailable)

case   base
c1     2/3
c2     –
…   (2 cases that passed every trial)

c1.2: assertion
    eval/triage/c1-2

undecided: base passes 89 % [24, 99.5]:
  unevenly measured; the same command measures 5 missing trials
failed: c1; not measured: c1, c2
"
    );
}

#[test]
fn a_table_is_no_wider_than_the_terminal() {
    let names = ["one", "two", "three", "four", "five", "six"];
    let mut scene = Scene::new(&names, 4, 5);
    for name in names {
        scene = scene.with(name, &["+++++", "+-+++", "-----", "++--+"]);
    }
    let wide = text::text(&scene.summary(), &[], &CaseNames::default(), None);
    let narrow = text::text(&scene.summary(), &[], &CaseNames::default(), Some(80));
    let rows = |text: &str| -> usize {
        text.lines()
            .filter(|line| line.starts_with("rate "))
            .count()
    };
    assert_eq!((rows(&wide), rows(&narrow)), (1, 2));
    for line in narrow
        .lines()
        .filter(|line| line.starts_with("rate ") || line.starts_with("time "))
    {
        assert!(columns_of(line) <= 80, "{line}");
    }
    for name in names {
        assert!(narrow.contains(name), "{name}");
    }
}

#[test]
fn the_answer_is_of_lines_of_a_terminal_whatever_is_named_in_it() {
    let names = [
        "/home/ada/agents/my-long-agent@HEAD~1",
        "ein sehr langer Name für eine Einstellung",
    ];
    let mut scene = Scene::new(&names, 40, 1)
        .with(names[0], &["-"; 40])
        .with(names[1], &["+"; 40]);
    for case in 0..40 {
        scene.rename_case(
            case,
            &format!("a case with quite a long name, number {case}"),
        );
    }
    let answer = answer::lines(&scene.summary(), &CaseNames::default());
    assert_eq!(
        answer,
        "ein sehr langer Name fü… passes 100 %, …/my-long-agent@HEAD~1 0 %:\n  better by 100 points\n\
         better: a case with quite a lon…, a case with quite a lon… and 38 more\n"
    );
    let text = text::text(&scene.summary(), &[], &CaseNames::default(), Some(80));
    assert!(text.ends_with(&answer), "{text}");
}

#[test]
fn a_case_without_an_id_is_named_by_the_beginning_of_its_input() {
    let case = |id: &str, input: Value| Case {
        id: id.to_owned(),
        input,
        start: None,
        tags: Vec::new(),
        expected: None,
        assertions: Vec::new(),
        template: None,
    };
    let digest = |input: &Value| crate::text::digest::sha256(json::text(input).as_bytes());
    let (words, other) = (
        json!("It crashes when\na file is empty, always."),
        json!({"a": 1}),
    );
    let ids = [
        format!("{}_2", &digest(&words)[..12]),
        digest(&other)[..12].to_owned(),
    ];
    let cases = [
        case(&ids[0], words),
        case(&ids[1], other),
        case("c2", json!("x")),
    ];
    let names = CaseNames::of(cases.iter());
    let mut scene = Scene::new(&["base", "new"], 3, 1)
        .with("base", &["-", "+", "-"])
        .with("new", &["+", "-", "-"]);
    scene.rename_case(0, &ids[0]);
    scene.rename_case(1, &ids[1]);
    let (summary, trials) = (scene.summary(), scene.recorded);
    let text = text::text(&summary, &trials, &names, None);
    for words in [
        "better: \"It crashes when a file …\"; worse: \"{\"a\":1}\"; 1 case alike\n",
        &format!(
            "\n{} \"It crashes when a file is empty, always.\"   0/1",
            ids[0]
        ),
        &format!("\n{}.1 new \"{{\"a\":1}}\": assertion\n", ids[1]),
    ] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
}

#[test]
fn the_last_line_says_what_ran_and_what_it_cost() {
    let scene = Scene::of(&["++", "+-"]);
    let with = |activities: [Activity; 4]| {
        let mut trials = scene.recorded.clone();
        for (trial, activity) in trials.iter_mut().zip(activities) {
            trial.activity = activity;
        }
        trials
    };
    use Activity::{Judged, None, Run};
    for (activities, line) in [
        ([Run; 4], "4 trials ran, cost 2.00\n"),
        (
            [None, None, Run, Judged],
            "1 trial ran, cost 0.50; recorded: 4 trials, cost 2.00\n",
        ),
        (
            [Judged; 4],
            "no trial ran, 4 answers judged again; recorded: 4 trials, cost 2.00\n",
        ),
        (
            [None; 4],
            "nothing ran, nothing was paid; recorded: 4 trials, cost 2.00\n",
        ),
    ] {
        assert_eq!(answer::paid(&[with(activities)]), line);
    }
    let mut unknown = with([Run; 4]);
    unknown[0].cost = Option::None;
    assert_eq!(answer::paid(&[unknown]), "4 trials ran, 400 tokens\n");
}

#[test]
fn intervals_of_several_comparisons_are_called_uncorrected() {
    let scene = |look| {
        Scene::new(&["base", "a"], 3, 2)
            .with("base", &["++", "+-", "--"])
            .with("a", &["++"; 3])
            .look(look)
    };
    let text = |scene: Scene| text::text(&scene.summary(), &[], &CaseNames::default(), None);
    assert!(!text(scene(1)).contains("uncorrected"));
    assert!(text(scene(2)).contains("over similar cases, uncorrected\n"));
    let three = Scene::new(&["base", "a", "b"], 3, 2)
        .with("base", &["++", "+-", "--"])
        .with("a", &["++"; 3])
        .with("b", &["--"; 3]);
    let found = text(three);
    assert_eq!(found.matches("] uncorrected\n").count(), 2, "{found}");
    assert_eq!(found.matches("corrected p = ").count(), 2, "{found}");
}

#[test]
fn what_a_threshold_still_needs_is_said() {
    for (scene, threshold) in [
        (Scene::of(&["++"; 30]), 0.9),
        (Scene::of(&["+", "+", "+", "+", "-"]), 0.79),
    ] {
        let near = scene.threshold(threshold).summary();
        let lines = answer::lines(&near, &CaseNames::default());
        assert!(lines.contains("cannot say: "), "{lines}");
        assert!(lines.contains(" more would be needed"), "{lines}");
    }
}

fn listed(assertions: Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(&assertions).expect("JSON")
}

/// A scene in which everything has a hostile name.
fn hostile() -> (Summary, Vec<Trial>) {
    let mut scene = Scene::new(&[HOSTILE, "new"], 3, 2)
        .with(HOSTILE, &["+-", "??", "--"])
        .with("new", &["--", "??", "++"]);
    scene.rename_case(0, HOSTILE);
    for trial in &mut scene.recorded {
        trial.stop_reason = format!("reason {HOSTILE}");
        trial.run_id = HOSTILE.to_owned();
        trial.workspace = HOSTILE.to_owned();
        trial.assertions = Some(listed(json!([
            {"type": "contains", "passed": trial.outcome == TrialOutcome::Passed, "reason": HOSTILE},
            {"type": HOSTILE, "passed": false},
            7,
        ])));
    }
    (scene.summary(), scene.recorded.clone())
}

#[track_caller]
fn assert_harmless(text: &str) {
    for c in text.chars() {
        let is_harmless = c == '\n' || !(c.is_control() || c == '\u{202e}');
        assert!(is_harmless, "{c:?} in {text}");
    }
}

#[test]
fn hostile_names_control_no_terminal_and_stay_on_their_line() {
    let (summary, trials) = hostile();
    let table = text::text(&summary, &trials, &CaseNames::default(), None);
    assert_harmless(&table);
    let lines = |text: &str| text.lines().count();
    let plain = Scene::new(&["base", "new"], 3, 2)
        .with("base", &["+-", "??", "--"])
        .with("new", &["--", "??", "++"]);
    let plain = text::text(
        &plain.summary(),
        &plain.recorded,
        &CaseNames::default(),
        None,
    );
    assert_eq!(lines(&table), lines(&plain));
    assert_harmless(&junit::junit(&[(&summary, &trials)]));
    assert_harmless(&tap::tap(&[(&summary, &trials)]));
}

#[test]
fn junit_is_escaped_and_counts_failures_and_errors_apart() {
    let (summary, trials) = hostile();
    let xml = junit::junit(&[(&summary, &trials)]);
    assert!(
        xml.contains("tests=\"6\" failures=\"3\" errors=\"2\" skipped=\"0\""),
        "{xml}"
    );
    assert_eq!(xml.matches("<testcase ").count(), 12);
    assert_eq!(xml.matches("<failure ").count(), 5);
    assert_eq!(xml.matches("<error type=\"not_measured\"").count(), 4);
    assert!(!xml.contains("<b attr"), "{xml}");
    assert!(xml.contains("&lt;b attr=&quot;&apos;&amp;]]&gt;"), "{xml}");
    assert!(!xml.contains('\u{fffe}'));
    if let Some(dir) = std::env::var_os("EVAL_TABLES_OUT") {
        let dir = std::path::Path::new(&dir);
        std::fs::write(dir.join("junit.xml"), &xml).unwrap();
        std::fs::write(dir.join("tap.txt"), tap::tap(&[(&summary, &trials)])).unwrap();
    }
}

#[test]
fn tap_has_a_point_for_each_trial_and_skips_what_was_not_measured() {
    let scene = Scene::of(&["+-?"]);
    let (summary, trials) = (scene.summary(), scene.recorded);
    assert_eq!(
        tap::tap(&[(&summary, &trials)]),
        "TAP version 14\n\
         1..3\n\
         ok 1 - triage / base / c0, trial 1\n\
         not ok 2 - triage / base / c0, trial 2\n\
         \x20 ---\n\
         \x20 message: \"assertion\"\n\
         \x20 run_id: \"run-base-c0-2\"\n\
         \x20 workspace: \"eval/triage/c0-2\"\n\
         \x20 ...\n\
         ok 3 - triage / base / c0, trial 3 # SKIP not measured: model_unavailable\n"
    );
    let (summary, trials) = hostile();
    let tap = tap::tap(&[(&summary, &trials)]);
    let points = tap
        .lines()
        .filter(|line| line.starts_with("ok ") || line.starts_with("not ok "));
    assert_eq!(points.clone().count(), 12);
    // A name skips nothing.
    let skipped = points.filter(|line| line.contains(" # SKIP"));
    assert_eq!(skipped.count(), 4);
}

#[test]
fn a_trial_that_a_grader_did_not_judge_says_why_in_every_report() {
    let mut scene = Scene::of(&["?"]);
    let trial = &mut scene.recorded[0];
    trial.stop_reason = "grader".to_owned();
    trial.assertions = Some(listed(json!([
        {"type": "equals", "passed": true},
        {"type": "exec", "passed": null, "reason": "judge.sh: not found"},
    ])));
    let (summary, trials) = (scene.summary(), scene.recorded);
    let why = "not measured: grader: exec: judge.sh: not found";
    let tap = tap::tap(&[(&summary, &trials)]);
    assert!(tap.ends_with(&format!(" # SKIP {why}\n")), "{tap}");
    let xml = junit::junit(&[(&summary, &trials)]);
    let error =
        format!("<error type=\"not_measured\" message=\"{why}\">exec: judge.sh: not found</error>");
    assert!(xml.contains(&error), "{xml}");
}

#[test]
fn a_case_that_fails_alike_or_was_not_measured_on_both_sides_is_listed() {
    let summary = Scene::new(&["base", "new"], 5, 2)
        .with("base", &["++", "--", "--", "+-", "-+"])
        .with("new", &["++", "--", "++", "??", "+-"])
        .summary();
    let text = text::text(&summary, &[], &CaseNames::default(), None);
    let end = "
case   base   new   diff
c2     0/2    2/2   +100
c1     0/2    0/2   0
c3     1/2    –     –
c4     1/2    1/2   0
…   (1 case that passed every trial)
";
    assert!(text.contains(end), "{text}");
}

#[test]
fn json_is_read_again_as_a_baseline() {
    let (summary, _) = hostile();
    let text = json(&[summary]);
    assert!(
        text.starts_with("{\"schema_version\":\"1.0\",\"suites\":[{\"suite\":\"triage\","),
        "{text}"
    );
    crate::flow::eval::summary::baseline::Baseline::parse(text.as_bytes(), "triage")
        .expect("a baseline");
}

#[test]
fn named_scores_are_rows_and_their_differences_are_lines() {
    let scene = two_settings()
        .scores("style", |setting, at| {
            let more = if setting == "base" { 0.0 } else { 1.0 };
            Some(1.0 + (at / 5 % 4) as f64 + more)
        })
        .scores(HOSTILE, |_, at| Some(-0.001 * (at / 5) as f64));
    let table = text::text(&scene.summary(), &[], &CaseNames::default(), None);
    assert_harmless(&table);
    for line in [
        "score style 2.50 [1.76, 3.24] 3.50 [2.76, 4.24]",
        "score style +1.00 → higher (exact sign flips, p = 0.0010)",
    ] {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(table.lines().any(|it| words(it) == line), "{table}");
    }
    let named = table
        .lines()
        .filter(|line| line.starts_with("score a\u{fffd}[2J"));
    assert_eq!(named.count(), 2, "{table}");
}
