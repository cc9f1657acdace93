//! Pitfalls of evaluations, each with what must be said instead.

use super::*;
use crate::error::Exit;
use crate::flow::eval::numbers::difference::Method;
use crate::flow::eval::trial::Activity;
use crate::flow::eval::trial::TrialOutcome::{self, Failed, NotMeasured, Passed};
use decision::threshold_warning;
use finding::{Finding, FindingReason};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A suite that is planned, and its trials.
pub(crate) struct Scene {
    settings: Vec<String>,
    cases: Vec<PlannedCase>,
    trials: u32,
    threshold: Option<f64>,
    require_higher: bool,
    look: u32,
    pub recorded: Vec<Trial>,
}

impl Scene {
    /// No trial yet; cases are `c0`, `c1` and so on.
    pub(crate) fn new(settings: &[&str], cases: usize, trials: u32) -> Self {
        let case = |at: usize| PlannedCase {
            id: format!("c{at}"),
            hash: Some(format!("text {at}")),
            graders: Some("graders".to_owned()),
        };
        Self {
            settings: settings.iter().map(|name| (*name).to_owned()).collect(),
            cases: (0..cases).map(case).collect(),
            trials,
            threshold: None,
            require_higher: false,
            look: 1,
            recorded: Vec::new(),
        }
    }

    /// One setting whose cases have these trials: `+` passed, `-` failed, `?` not measured.
    pub(crate) fn of(cases: &[&str]) -> Self {
        let trials = cases.iter().map(|trials| trials.len()).max().unwrap_or(0);
        Self::new(&["base"], cases.len(), trials as u32).with("base", cases)
    }

    /// The trials of a setting, by case.
    pub(crate) fn with(mut self, setting: &str, cases: &[&str]) -> Self {
        for (case, trials) in cases.iter().enumerate() {
            for (number, mark) in trials.chars().enumerate() {
                let outcome = match mark {
                    '+' => Passed,
                    '-' => Failed,
                    _ => NotMeasured,
                };
                self.recorded.push(trial(
                    setting,
                    &format!("c{case}"),
                    number as u32 + 1,
                    outcome,
                ));
            }
        }
        self
    }

    pub(crate) fn threshold(mut self, threshold: f64) -> Self {
        self.threshold = Some(threshold);
        self
    }

    pub(crate) fn require_higher(mut self) -> Self {
        self.require_higher = true;
        self
    }

    /// Gives each measured trial this score, by its place among those of its setting.
    pub(crate) fn scores(mut self, name: &str, of: impl Fn(&str, usize) -> Option<f64>) -> Self {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for trial in &mut self.recorded {
            let place = places.entry(trial.setting.clone()).or_default();
            if let Some(score) = of(&trial.setting, *place) {
                trial.scores.insert(name.to_owned(), score);
            }
            *place += 1;
        }
        self
    }

    pub(crate) fn look(mut self, look: u32) -> Self {
        self.look = look;
        self
    }

    /// Gives a case and its trials another id.
    pub(crate) fn rename_case(&mut self, at: usize, id: &str) {
        let old = std::mem::replace(&mut self.cases[at].id, id.to_owned());
        for trial in self.recorded.iter_mut().filter(|trial| trial.case == old) {
            trial.case = id.to_owned();
        }
    }

    fn plan(&self) -> Plan<'_> {
        Plan {
            suite: "triage",
            target: "flow",
            trials: self.trials,
            settings: &self.settings,
            cases: &self.cases,
            graders: Some("graders"),
            threshold: self.threshold,
            require_higher: self.require_higher,
            look: self.look,
        }
    }

    pub(crate) fn try_against(&self, against: Option<&Baseline>) -> Result<Summary> {
        summarize(&self.plan(), against, self.recorded.iter().cloned())
    }

    pub(crate) fn summary(&self) -> Summary {
        self.try_against(None).expect("a summary")
    }

    /// What `--format json` would print, read again.
    pub(crate) fn baseline(&self) -> Baseline {
        let file = json!({"schema_version": "1.0", "suites": [self.summary()]}).to_string();
        Baseline::parse(file.as_bytes(), "triage").expect("a baseline")
    }
}

pub(crate) fn trial(setting: &str, case: &str, number: u32, outcome: TrialOutcome) -> Trial {
    Trial {
        case: case.to_owned(),
        setting: setting.to_owned(),
        number,
        outcome,
        stop_reason: match outcome {
            Passed => "final_answer",
            Failed => "assertion",
            NotMeasured => "model_unavailable",
        }
        .to_owned(),
        score: match outcome {
            Passed => Some(1.0),
            Failed => Some(0.0),
            NotMeasured => None,
        },
        assertions: None,
        run_id: format!("run-{setting}-{case}-{number}"),
        workspace: format!("eval/triage/{case}-{number}"),
        cost: Some(0.5),
        tokens: Some(100),
        tokens_estimated: None,
        duration_ms: Some(u64::from(number) * 1000),
        retries: 0,
        models: Vec::new(),
        output_hash: Some(format!("{setting}-{case}-{number}")),
        seed: Some(u64::from(number)),
        execution_ref: None,
        scores: BTreeMap::new(),
        reason: None,
        activity: Activity::Run,
    }
}

fn as_json(summary: &Summary) -> Value {
    serde_json::to_value(summary).expect("JSON")
}

#[track_caller]
fn assert_verdict(scene: &Scene, verdict: Verdict) {
    let summary = scene.summary();
    assert_eq!(
        summary.verdict, verdict,
        "{:?} {:?}",
        summary.decision, summary.warnings
    );
}

#[test]
fn json_has_the_names_and_the_order_of_the_manual() {
    let scene = Scene::new(&["base", "new"], 2, 5)
        .with("base", &["++--+", "+++++"])
        .with("new", &["+++++", "+++++"]);
    let value = as_json(&scene.summary());
    let keys = |value: &Value| -> Vec<String> {
        value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect()
    };
    let setting = &value["settings"][0];
    assert_eq!(
        keys(&setting["cases"][0]),
        [
            "id",
            "hash",
            "graders",
            "passed",
            "failed",
            "not_measured",
            "rate",
            "ci",
            "score",
            "cost",
            "duration_ms"
        ]
    );
    for key in [
        "name",
        "cases",
        "trials_planned",
        "trials_measured",
        "rate",
        "ci",
        "bounds",
        "pass_at_k",
        "pass_hat_k",
        "cost_per_success",
    ] {
        assert!(setting.get(key).is_some(), "{key}");
    }
    assert_eq!(
        keys(&setting["ci"]),
        ["lower", "upper", "level", "method", "df", "n_eff"]
    );
    assert_eq!(keys(&setting["bounds"]), ["lower", "upper"]);
    for key in ["difference", "ci", "mdd80", "method", "cases"] {
        assert!(value["comparison"].get(key).is_some(), "{key}");
    }
    assert_eq!(value["comparison"]["cases"], 2);
    assert_eq!(
        value["look"],
        json!({"number": 1, "alpha": 0.025, "trials": 20})
    );
    assert_eq!(value["verdict"], "passed");
    assert_eq!(value["suite"], "triage");
    assert_eq!(setting["pass_at_k"]["1"], 0.8);
    assert_eq!(setting["pass_hat_k"]["5"], 0.5);
    assert_eq!(setting["cases"][0]["cost"], 2.5);
    assert_eq!(setting["cases"][0]["duration_ms"], 3000);
}

#[test]
fn one_case_says_something_of_itself_only() {
    let summary = Scene::of(&["++++++++-+"]).summary();
    let ci = summary.settings[0].ci.expect("an interval");
    assert_eq!((ci.method, ci.df, ci.n_eff), ("wilson", None, 10.0));
    let few = Scene::of(&["++-+"]).summary();
    assert_eq!(few.settings[0].ci, None);
    assert_eq!(few.settings[0].rate, Some(0.75));
    assert_verdict(&Scene::of(&["++++"]).threshold(0.1), Verdict::Undecided);
}

#[test]
fn one_trial_a_case_has_no_interval_of_a_case() {
    let summary = Scene::of(&["+", "-", "+", "+", "-", "+"]).summary();
    assert!(
        summary.settings[0]
            .cases
            .iter()
            .all(|case| case.ci.is_none())
    );
    let five = Scene::of(&["++-++"]).summary();
    assert!(five.settings[0].cases[0].ci.is_some());
}

#[test]
fn repeated_passes_of_few_cases_do_not_reach_a_threshold() {
    let many = "+".repeat(50);
    assert_verdict(
        &Scene::of(&vec![many.as_str(); 20]).threshold(0.9),
        Verdict::Undecided,
    );
    assert_verdict(&Scene::of(&["+"; 38]).threshold(0.9), Verdict::Passed);
    assert_verdict(&Scene::of(&["+"; 37]).threshold(0.9), Verdict::Undecided);
}

#[test]
fn none_pass_is_below_a_threshold_once_there_are_enough() {
    assert_verdict(&Scene::of(&["-"; 20]).threshold(0.5), Verdict::Failed);
    assert_verdict(&Scene::of(&["-"; 2]).threshold(0.5), Verdict::Undecided);
    let none = Scene::of(&["--"; 20]).summary();
    assert_eq!(none.settings[0].rate, Some(0.0));
    assert_eq!(none.settings[0].cost_per_success, None);
}

#[test]
fn a_later_look_needs_more() {
    assert_verdict(
        &Scene::of(&["+"; 38]).threshold(0.9).look(2),
        Verdict::Undecided,
    );
    let summary = Scene::of(&["+"; 38]).threshold(0.9).look(2).summary();
    assert!((summary.look.alpha - 0.05 / 6.0).abs() < 1e-12);
}

#[test]
fn a_single_case_needs_as_many_trials_as_an_interval_does() {
    let summary = Scene::of(&["-"]).threshold(0.9).summary();
    let VerdictReason::NearThreshold { trials_needed, .. } = summary.decision else {
        panic!("{:?}", summary.decision);
    };
    assert_eq!(trials_needed, Some(4));
    assert_verdict(
        &Scene::of(&["----"]).threshold(0.9).look(2),
        Verdict::Undecided,
    );
    assert_verdict(
        &Scene::of(&["-----"]).threshold(0.9).look(2),
        Verdict::Failed,
    );
}

#[test]
fn the_plan_for_more_trials_is_enough_at_the_next_look() {
    let summary = Scene::of(&["++"; 30]).threshold(0.9).summary();
    let VerdictReason::NearThreshold {
        trials_needed: Some(trials),
        cases_needed: Some(cases),
        ..
    } = summary.decision
    else {
        panic!("{:?}", summary.decision);
    };
    assert_eq!(trials, cases * 2);
    let planned = vec!["++"; 30 + cases as usize];
    assert_verdict(&Scene::of(&planned).threshold(0.9).look(2), Verdict::Passed);
    assert_verdict(
        &Scene::of(&planned[1..]).threshold(0.9).look(2),
        Verdict::Undecided,
    );
}

#[test]
fn unequal_numbers_of_trials_keep_the_weight_of_cases() {
    let summary = Scene::of(&["-", "++++++++++"]).summary();
    assert_eq!(summary.settings[0].rate, Some(0.5));
    assert_eq!(
        (
            summary.settings[0].trials_planned,
            summary.settings[0].trials_measured
        ),
        (20, 11)
    );
}

#[test]
fn a_case_without_a_measured_trial_is_listed_and_not_in_the_rate() {
    let summary = Scene::of(&["++", "??", "+-"]).summary();
    let setting = &summary.settings[0];
    assert_eq!(setting.rate, Some(0.75));
    assert_eq!(
        (setting.cases[1].rate, setting.cases[1].not_measured),
        (None, 2)
    );
    let bounds = setting.bounds.expect("bounds");
    assert_eq!((bounds.lower, bounds.upper), (0.5, 5.0 / 6.0));
    assert_eq!(setting.not_measured["model_unavailable"], 2);
    assert_eq!(Some(setting.cost_not_measured), Some(1.0));
    assert_eq!(setting.cost, Some(2.0));
    assert_eq!(setting.pass_k_intervals[1].cases_left_out, 1);
    let nothing = Scene::of(&["??"; 3]).threshold(0.5).summary();
    assert_eq!(
        (nothing.settings[0].rate, nothing.verdict),
        (None, Verdict::Undecided)
    );
}

#[test]
fn trials_that_never_came_are_missing_and_not_failed() {
    let mut scene = Scene::of(&["++++"; 4]);
    scene.recorded.truncate(13);
    let summary = scene.summary();
    assert_eq!(summary.settings[0].not_measured["not_started"], 3);
    assert_eq!(summary.decision, VerdictReason::TrialsMissing { trials: 3 });
    assert_eq!(summary.verdict.exit(), Exit::Undecided);
}

#[test]
fn without_a_threshold_one_failure_decides_and_only_all_passes_pass() {
    assert_verdict(&Scene::of(&["++", "++"]), Verdict::Passed);
    assert_verdict(&Scene::of(&["++", "+-"]), Verdict::Failed);
    assert_verdict(&Scene::of(&["+?", "+-"]), Verdict::Failed);
    assert_verdict(&Scene::of(&["+?", "++"]), Verdict::Undecided);
    assert_verdict(&Scene::of(&[]), Verdict::Undecided);
}

#[test]
fn coverage_that_differs_is_a_warning_and_no_verdict() {
    // 38 cases would pass; of one of them half is missing.
    let mut cases = vec!["++"; 60];
    assert_verdict(&Scene::of(&cases).threshold(0.8), Verdict::Passed);
    cases[7] = "+?";
    let summary = Scene::of(&cases).threshold(0.8).summary();
    assert_eq!(summary.verdict, Verdict::Undecided);
    assert_eq!(
        summary.decision,
        VerdictReason::CoverageDiffers { missing: 1 }
    );
    assert!(
        summary.warnings[0].contains("between cases"),
        "{:?}",
        summary.warnings
    );
    // 10 points are not more than 10.
    let ten = "++++++++++";
    let mut cases = vec![ten; 60];
    cases[7] = "+++++++++?";
    assert_verdict(&Scene::of(&cases).threshold(0.8), Verdict::Passed);
    cases[7] = "++++++++??";
    assert_verdict(&Scene::of(&cases).threshold(0.8), Verdict::Undecided);
    // The same of a verdict that would be a failure.
    assert_verdict(&Scene::of(&["--"; 20]).threshold(0.8), Verdict::Failed);
    let mut cases = vec!["--"; 20];
    cases[3] = "-?";
    assert_verdict(&Scene::of(&cases).threshold(0.8), Verdict::Undecided);
}

#[test]
fn coverage_that_differs_between_settings_forbids_a_comparison() {
    let scene = Scene::new(&["base", "new"], 12, 8)
        .with("base", &["--------"; 12])
        .with("new", &["+++++++?"; 12]);
    let summary = scene.summary();
    assert_eq!(
        summary.comparison.expect("a comparison").why,
        Some(FindingReason::CoverageDiffers)
    );
    assert!(
        summary.warnings[0].contains("between settings"),
        "{:?}",
        summary.warnings
    );
}

#[test]
fn two_cases_with_one_id_are_an_error() {
    let mut scene = Scene::of(&["+", "+"]);
    scene.cases[1].id = "c0".to_owned();
    let error = scene.try_against(None).expect_err("an error");
    assert!(
        error.message.contains("two cases have the id \"c0\""),
        "{}",
        error.message
    );
}

#[test]
fn a_trial_that_comes_twice_and_a_score_outside_its_range_are_errors() {
    let mut scene = Scene::of(&["+"]);
    scene.recorded.push(scene.recorded[0].clone());
    let error = scene.try_against(None).expect_err("an error");
    assert!(
        error.message.contains("recorded twice"),
        "{}",
        error.message
    );
    for score in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let mut scene = Scene::of(&["+"]);
        scene.recorded[0].score = Some(score);
        let error = scene.try_against(None).expect_err("an error");
        assert!(
            error.message.contains("outside 0 to 1"),
            "{}",
            error.message
        );
    }
}

#[test]
fn trials_that_were_not_planned_are_passed_over() {
    let mut scene = Scene::of(&["+", "+"]);
    for (setting, case, number) in [
        ("other", "c0", 1),
        ("base", "gone", 1),
        ("base", "c0", 2),
        ("base", "c0", 0),
    ] {
        scene.recorded.push(trial(setting, case, number, Failed));
    }
    assert_verdict(&scene, Verdict::Passed);
}

#[test]
fn identical_trials_and_one_seed_are_warned_of() {
    let mut scene = Scene::of(&["+-", "++", "+"]);
    assert!(
        scene
            .summary()
            .warnings
            .iter()
            .all(|warning| warning.contains("share"))
    );
    for trial in &mut scene.recorded {
        trial.output_hash = Some(trial.case.clone());
    }
    let warnings = scene.summary().warnings;
    assert!(
        warnings.contains(&"base: trials are identical; repeated trials may be cached".to_owned()),
        "{warnings:?}"
    );
    for trial in &mut scene.recorded {
        trial.output_hash = None;
        trial.seed = Some(7);
    }
    let warnings = scene.summary().warnings;
    assert!(
        warnings
            .iter()
            .any(|warning| warning.contains("the same seed")),
        "{warnings:?}"
    );
    assert!(
        !warnings.iter().any(|warning| warning.contains("identical")),
        "{warnings:?}"
    );
    // One trial a case repeats nothing.
    let mut single = Scene::of(&["+", "+"]);
    for trial in &mut single.recorded {
        trial.output_hash = Some("same".to_owned());
    }
    assert!(single.summary().warnings.is_empty());
}

#[test]
fn what_one_trial_did_not_say_is_not_taken_for_zero() {
    let mut scene = Scene::of(&["++", "+-"]);
    assert_eq!(
        scene.summary().settings[0].cost_per_success,
        Some(2.0 / 3.0)
    );
    scene.recorded[0].cost = None;
    let setting = &scene.summary().settings[0];
    assert_eq!((setting.cost, setting.cost_per_success), (None, None));
    assert_eq!(setting.tokens, Some(400));
}

#[test]
fn times_are_those_of_measured_trials_by_nearest_rank() {
    let summary = Scene::of(&["+++++++++?"]).summary();
    let times = summary.settings[0].duration_ms.expect("times");
    assert_eq!((times.median, times.p90), (5000, 9000));
}

#[test]
fn other_cases_texts_graders_or_settings_are_not_compared() {
    let scene = Scene::of(&["++", "+-", "--"]);
    let baseline = scene.baseline();
    assert!(scene.try_against(Some(&baseline)).is_ok());
    let refused = |change: fn(&mut Scene), words: &str| {
        let mut scene = Scene::of(&["++", "+-", "--"]);
        change(&mut scene);
        let error = scene.try_against(Some(&baseline)).expect_err("a refusal");
        assert!(error.message.contains(words), "{}", error.message);
    };
    refused(
        |scene| scene.cases[1].hash = Some("new".to_owned()),
        "cases with another input, start or workspace: \"c1\"",
    );
    refused(
        |scene| scene.cases[1].hash = None,
        "another input, start or workspace: \"c1\"",
    );
    refused(
        |scene| scene.cases[2].graders = Some("other".to_owned()),
        "compared: cases with other assertions or graders: \"c2\"",
    );
    refused(
        |scene| scene.cases[2].id = "x\u{1b}[2J".to_owned(),
        "only here: \"x\\u{1b}[2J\"",
    );
    refused(|scene| drop(scene.cases.pop()), "only there: \"c2\"");
    // All that differs is named, ids first.
    refused(
        |scene| {
            scene.cases[0].graders = Some("other".to_owned());
            scene.cases[1].hash = None;
            scene.cases[2].id = "new".to_owned();
        },
        "compared: cases that are only here: \"new\"; cases that are only there: \"c2\"; cases with another \
         input, start or workspace: \"c1\"; cases with other assertions or graders: \"c0\"",
    );
    let mut two = Scene::new(&["a", "b"], 3, 2)
        .with("a", &["++"; 3])
        .with("b", &["++"; 3]);
    let baseline = two.baseline();
    two.settings = vec!["c".to_owned()];
    let error = two.try_against(Some(&baseline)).expect_err("a refusal");
    assert!(
        error
            .message
            .contains("no setting \"c\" there, only \"a\", \"b\""),
        "{}",
        error.message
    );
    let scene = Scene::of(&["+"]);
    let baseline = scene.baseline();
    let graders = Plan {
        graders: Some("others"),
        ..scene.plan()
    };
    assert!(
        baseline
            .refusal(&graders)
            .expect("a refusal")
            .contains("other assertions or graders")
    );
}

#[test]
fn a_file_that_is_no_result_is_refused() {
    let refused = |text: &str, words: &str| {
        let error = Baseline::parse(text.as_bytes(), "triage").expect_err("an error");
        assert!(error.message.contains(words), "{text}: {}", error.message);
    };
    refused("", "not a result");
    refused("[]", "not a result");
    refused(
        "{\"suites\": [{\"suite\": \"a\", \"settings\": []}]}",
        "has no suite \"triage\"; it has: \"a\"",
    );
    refused(
        "{\"suites\": [{\"suite\": \"triage\", \"settings\": []}]}",
        "no settings",
    );
    let case = |text: &str| {
        format!(
            "{{\"suites\":[{{\"suite\":\"triage\",\"settings\":[{{\"name\":\"a\",\"cases\":[{text}]}}]}}]}}"
        )
    };
    let one = r#"{"id":"c","passed":1,"failed":0,"not_measured":0}"#;
    assert!(Baseline::parse(case(one).as_bytes(), "triage").is_ok());
    refused(&case(&format!("{one},{one}")), "two cases");
    refused(
        &case(r#"{"id":"c","passed":4294967295,"failed":1,"not_measured":0}"#),
        "too many",
    );
    refused(
        &case(r#"{"id":"c","passed":-1,"failed":1,"not_measured":0}"#),
        "not a result",
    );
}

#[test]
fn a_difference_is_shown_or_what_would_show_one_is_said() {
    let scene = Scene::new(&["base", "new"], 12, 4)
        .with(
            "base",
            &[
                "----", "+---", "--+-", "----", "-+--", "----", "++--", "----", "---+", "----",
                "----", "+---",
            ],
        )
        .with(
            "new",
            &[
                "++++", "+++-", "++++", "-+++", "++++", "+-++", "++++", "+++-", "++++", "++-+",
                "++++", "++++",
            ],
        );
    let comparison = scene.summary().comparison.expect("a comparison");
    assert_eq!(
        (comparison.finding, comparison.method),
        (Finding::Higher, Method::PairedT)
    );
    let scene = Scene::new(&["base", "new"], 12, 4)
        .with(
            "base",
            &[
                "----", "+---", "++++", "-+-+", "----", "++--", "++++", "----", "--++", "++++",
                "++--", "+---",
            ],
        )
        .with(
            "new",
            &[
                "--+-", "++--", "++++", "-+--", "+---", "++--", "+++-", "----", "++++", "++++",
                "+---", "++--",
            ],
        );
    let comparison = scene.summary().comparison.expect("a comparison");
    assert_eq!(comparison.finding, Finding::Undecided);
    // So many more that the number says nothing.
    assert!(comparison.difference > 0.0 && comparison.more.is_none());
}

#[test]
fn several_settings_are_corrected_for_by_holm() {
    // Each alone is at p = 0.03125, as six of six pairs go one way.
    let new = ["+", "+", "+", "+", "+", "+", "-", "-"];
    let two = Scene::new(&["base", "a"], 8, 1)
        .with("base", &["-"; 8])
        .with("a", &new);
    assert_eq!(
        two.summary().comparison.expect("a comparison").finding,
        Finding::Higher
    );
    let three = Scene::new(&["base", "a", "b"], 8, 1)
        .with("base", &["-"; 8])
        .with("a", &new)
        .with("b", &new);
    let comparisons = three.summary().comparisons;
    assert_eq!(comparisons.len(), 2);
    for comparison in comparisons {
        assert_eq!(comparison.finding, Finding::Undecided);
        assert!((comparison.p_corrected - 0.0625).abs() < 1e-12);
    }
}

#[test]
fn too_few_pairs_and_no_difference_are_said_as_such() {
    let few = Scene::new(&["base", "new"], 10, 1)
        .with("base", &["-", "-", "-", "+", "+", "+", "+", "+", "+", "+"])
        .with("new", &["+"; 10]);
    let comparison = few.summary().comparison.expect("a comparison");
    assert_eq!(
        (comparison.finding, comparison.why, comparison.discordant),
        (
            Finding::Undecided,
            Some(FindingReason::TooFewPairs),
            Some((0, 3))
        )
    );
    let same = Scene::new(&["base", "new"], 10, 1)
        .with("base", &["+"; 10])
        .with("new", &["+"; 10]);
    let comparison = same.summary().comparison.expect("a comparison");
    assert_eq!(
        (comparison.finding, comparison.why, comparison.ci),
        (Finding::Same, Some(FindingReason::NoDifference), None)
    );
}

#[test]
fn a_case_is_flagged_by_fisher_with_holm_and_from_five_trials_on() {
    let scene = |trials: usize| {
        let (bad, good) = ("-".repeat(trials), "+".repeat(trials));
        let mut new = vec![bad.as_str(); 12];
        new[4] = &good;
        Scene::new(&["base", "new"], 12, trials as u32)
            .with("base", &[bad.as_str(); 12])
            .with("new", &new)
    };
    let flagged = |trials: usize| -> Vec<String> {
        let comparison = scene(trials).summary().comparison.expect("a comparison");
        let cases = comparison
            .case_differences
            .into_iter()
            .filter(|case| case.flagged);
        cases.map(|case| case.id).collect()
    };
    assert!(flagged(4).is_empty());
    // p = 0.0079 of one case; times twelve it is not enough.
    assert!(flagged(5).is_empty());
    assert_eq!(flagged(10), ["c4"]);
}

#[test]
fn a_threshold_out_of_reach_is_warned_of() {
    assert_eq!(
        threshold_warning(0.9, 20, 1).as_deref(),
        Some(
            "threshold 0.9 cannot be reached with 20 cases of 1 trial, even if all pass (38 cases needed)"
        )
    );
    assert_eq!(threshold_warning(0.9, 38, 1), None);
    assert!(threshold_warning(0.9, 1, 10).is_some());
    assert_eq!(threshold_warning(0.9, 1, 35), None);
    assert!(
        threshold_warning(1.0, 1000, 10)
            .expect("a warning")
            .contains("no number")
    );
}

#[test]
fn an_earlier_result_is_compared_by_case_whatever_their_order() {
    let before = Scene::of(&["----------", "++++++++++", "-+-+-+-+-+"]);
    let baseline = before.baseline();
    let mut now = Scene::of(&["++++++++++", "++++++++++", "-+-+-+-+-+"]);
    now.cases.rotate_left(1);
    let summary = now.try_against(Some(&baseline)).expect("a summary");
    let comparison = summary.comparison.expect("a comparison");
    assert!(comparison.is_earlier);
    let first = comparison
        .case_differences
        .iter()
        .find(|case| case.id == "c0")
        .expect("the case");
    assert_eq!(first.difference, Some(1.0));
    let others = comparison
        .case_differences
        .iter()
        .filter(|case| case.id != "c0");
    assert!(
        others
            .map(|case| case.difference)
            .all(|difference| difference == Some(0.0))
    );
}

/// Random trials, all of them, and then without a fifth.
#[test]
fn a_random_loss_of_trials_moves_no_verdict_across() {
    let mut random = fastrand::Rng::with_seed(22);
    for _ in 0..300 {
        let rate = random.f64();
        let marks: Vec<String> = (0..12)
            .map(|_| {
                (0..5)
                    .map(|_| if random.f64() < rate { '+' } else { '-' })
                    .collect()
            })
            .collect();
        let cases: Vec<&str> = marks.iter().map(String::as_str).collect();
        let mut scene = Scene::of(&cases).threshold(0.7);
        let full = scene.summary().verdict;
        for trial in &mut scene.recorded {
            if random.f64() < 0.2 {
                trial.outcome = NotMeasured;
                trial.score = None;
            }
        }
        let thinned = scene.summary();
        assert!(thinned.verdict == full || thinned.verdict == Verdict::Undecided);
        let bounds = thinned.settings[0].bounds.expect("bounds");
        let rate = thinned.settings[0].rate.expect("a rate");
        assert!(bounds.lower <= rate + 1e-12 && rate <= bounds.upper + 1e-12);
    }
}

#[test]
fn ten_thousand_trials_are_counted_once_each() {
    let marks = "+-+++".repeat(4);
    let scene = Scene::new(&["base"], 500, 20).with("base", &vec![marks.as_str(); 500]);
    let summary = scene.summary();
    assert_eq!(summary.look.trials, 10_000);
    assert_eq!(summary.settings[0].rate, Some(0.8));
}

/// Two settings of twelve cases; of the second ones `better` pass all trials, and of the first none.
fn pair(better: usize) -> Scene {
    let new: Vec<&str> = (0..12)
        .map(|at| if at < better { "++" } else { "--" })
        .collect();
    Scene::new(&["base", "new"], 12, 2)
        .with("base", &["--"; 12])
        .with("new", &new)
}

/// The other way round.
fn reversed(scene: &Scene) -> Scene {
    let mut turned = Scene::new(&["new", "base"], 12, 2);
    turned.require_higher = scene.require_higher;
    turned.recorded.clone_from(&scene.recorded);
    turned
}

#[test]
fn without_a_threshold_a_comparison_decides() {
    let reason = |scene: &Scene| scene.summary().decision;
    let settings = vec!["base".to_owned()];
    // Trials that failed on both sides are no verdict.
    assert_eq!(reason(&pair(8)), VerdictReason::NotShownLower);
    assert_eq!(reason(&pair(1)), VerdictReason::NotShownLower);
    assert_eq!(reason(&pair(0)), VerdictReason::NotShownLower);
    let lower = VerdictReason::ShownLower { settings };
    assert_eq!(reason(&reversed(&pair(8))), lower);
    assert_eq!(lower.verdict().exit(), Exit::Failure);
    // A setting of which nothing was measured, or less than of the other one.
    let mut none = pair(8);
    none.recorded.retain(|it| it.setting == "base");
    assert_verdict(&none, Verdict::Undecided);
    let mut less = pair(8);
    less.recorded
        .retain(|it| it.setting == "base" || it.number == 1);
    assert_eq!(
        reason(&less),
        VerdictReason::CoverageDiffers { missing: 12 }
    );
    // A threshold decides alone.
    let mut some = vec!["++"; 8];
    some.extend(["--"; 4]);
    let worse = Scene::new(&["base", "new"], 12, 2)
        .with("base", &["++"; 12])
        .with("new", &some);
    assert_eq!(
        reason(&worse),
        VerdictReason::ShownLower {
            settings: vec!["new".to_owned()]
        }
    );
    assert_verdict(&worse.threshold(0.3), Verdict::Passed);
}

#[test]
fn higher_can_be_required() {
    let decision = |scene: Scene| scene.require_higher().summary().decision;
    let settings = vec!["new".to_owned()];
    assert_eq!(decision(pair(8)), VerdictReason::ShownHigher);
    let undecided = VerdictReason::NotShownHigher {
        settings: settings.clone(),
    };
    assert_eq!(decision(pair(2)), undecided);
    assert_eq!(undecided.verdict().exit(), Exit::Undecided);
    let same = VerdictReason::NotHigher { settings };
    assert_eq!(decision(pair(0)), same);
    assert_eq!(same.verdict().exit(), Exit::Failure);
    assert_verdict(&reversed(&pair(8)).require_higher(), Verdict::Failed);
    // Beside a threshold both must hold.
    assert_verdict(&pair(8).require_higher().threshold(0.99), Verdict::Failed);
    let good = || {
        Scene::new(&["base", "new"], 12, 2)
            .with("base", &["++"; 12])
            .with("new", &["++"; 12])
            .threshold(0.3)
    };
    assert_verdict(&good(), Verdict::Passed);
    assert_verdict(&good().require_higher(), Verdict::Failed);
}

#[test]
fn a_difference_must_be_clearer_at_a_later_look() {
    // p is between 0.0167 and 0.05.
    let scene = |look| {
        pair(4)
            .look(look)
            .summary()
            .comparison
            .expect("a comparison")
    };
    let (first, second) = (scene(1), scene(2));
    assert!((0.0167..0.05).contains(&first.p_corrected), "{first:?}");
    assert_eq!(first.p_corrected.to_bits(), second.p_corrected.to_bits());
    assert_eq!(
        (first.finding, second.finding),
        (Finding::Higher, Finding::Undecided)
    );
}

#[test]
fn a_score_of_shares_has_the_interval_of_a_rate_and_another_one_that_of_t() {
    let cases = ["+-", "++", "--", "+-"];
    let scene = Scene::of(&cases)
        .scores("share", |_, at| Some([0.5, 1.0, 0.25, 0.75][at / 2]))
        .scores("stars", |_, at| Some([1.0, 5.0, 3.0, 3.0][at / 2]))
        .scores("equal", |_, _| Some(3.0))
        .scores("all", |_, _| Some(1.0));
    let scores = &scene.summary().settings[0].scores;
    let ends = |name: &str| scores[name].ci.map(|ci| (ci.lower, ci.upper));
    let near = |found: Option<(f64, f64)>, lower: f64, upper: f64| {
        let (low, high) = found.expect("an interval");
        assert!(
            (low - lower).abs() < 1e-9 && (high - upper).abs() < 1e-9,
            "{low} {high}"
        );
    };
    assert!((scores["share"].mean - 0.625).abs() < 1e-12);
    assert_eq!((scores["share"].cases, scores["share"].trials), (4, 8));
    // Wilson with eight trials and t(0.975, 3) = 3.182446; 3 ± 3.182446 · sqrt(8/3 / 4).
    near(ends("share"), 0.186_624_664_724, 0.923_702_118_051);
    near(ends("stars"), 0.401_543_472_749, 5.598_456_527_251);
    assert_eq!(ends("equal"), None);
    near(ends("all"), 0.283_126_419_518, 1.0);
}

#[test]
fn a_score_is_one_of_shares_only_if_it_is_so_under_every_setting() {
    let scene = pair(0).scores("stars", |setting, at| {
        Some(if setting == "base" {
            (at % 2) as f64
        } else {
            4.0
        })
    });
    let summary = scene.summary();
    let ci = summary.settings[0].scores["stars"].ci;
    assert_eq!(
        ci.map(|ci| ci.upper),
        None,
        "all cases have 0.5, so t says nothing"
    );
    let difference = &summary.comparisons[0].scores["stars"];
    assert!((difference.difference - 3.5).abs() < 1e-12);
    assert_eq!(difference.finding, Finding::Higher);
}

#[test]
fn scores_are_compared_by_case_and_with_an_earlier_result() {
    // No trial passes, and the score differs.
    let scored = |scene: Scene, more: f64| {
        scene.scores("style", move |setting, at| {
            let case = at / 2;
            let more = if setting == "base" { 0.0 } else { more };
            Some(2.0 + (case % 3) as f64 + more * (1.0 + 0.1 * (case % 2) as f64))
        })
    };
    let summary = scored(pair(0), 1.0).summary();
    let [comparison] = summary.comparisons.as_slice() else {
        panic!("{:?}", summary.comparisons);
    };
    assert_eq!(comparison.finding, Finding::Same);
    let style = &comparison.scores["style"];
    assert!((style.difference - 1.05).abs() < 1e-9, "{style:?}");
    assert_eq!((style.finding, style.cases), (Finding::Higher, 12));
    let ci = style.ci.expect("an interval");
    assert!(1.0 < ci.lower && ci.upper < 1.1, "{ci:?}");
    // The verdict is about the rate.
    assert_eq!(summary.decision, VerdictReason::NotShownLower);
    let earlier = scored(Scene::new(&["base"], 12, 2).with("base", &["--"; 12]), 1.0);
    let now = scored(Scene::new(&["new"], 12, 2).with("new", &["--"; 12]), -1.0);
    let summary = now
        .try_against(Some(&earlier.baseline()))
        .expect("a summary");
    let style = &summary.comparisons[0].scores["style"];
    assert_eq!(style.finding, Finding::Lower);
}

#[test]
fn a_score_that_trials_lack_is_not_measured() {
    let scene = pair(0).scores("style", |setting, at| {
        // The graders of the second setting give it to every other trial only.
        (setting == "base" || at % 2 == 0).then_some(3.0 + (at / 2 % 3) as f64)
    });
    let summary = scene.summary();
    assert_eq!(summary.settings[1].scores["style"].trials, 12);
    let style = &summary.comparisons[0].scores["style"];
    assert_eq!(style.why, Some(FindingReason::CoverageDiffers));
    assert_eq!(style.finding, Finding::Undecided);
    // And it is no zero: the means of the cases are the same.
    assert!(style.difference.abs() < 1e-12);
}

#[test]
fn scores_are_corrected_for_each_other() {
    // Of six cases the signs of all six differ: p = 1/32, which is not enough for two scores.
    let scene = || {
        Scene::new(&["base", "new"], 6, 1)
            .with("base", &["-"; 6])
            .with("new", &["-"; 6])
            .scores("a", |setting, at| {
                Some(if setting == "base" {
                    0.0
                } else {
                    2.0 + at as f64
                })
            })
    };
    let finding = |scene: Scene| scene.summary().comparisons[0].scores["a"].finding;
    assert_eq!(finding(scene()), Finding::Higher);
    let two = scene().scores("b", |setting, at| {
        Some(if setting == "base" {
            0.0
        } else {
            2.0 + at as f64
        })
    });
    assert_eq!(finding(two), Finding::Undecided);
}

#[test]
fn what_a_passed_trial_costs_counts_those_that_failed() {
    let summary = Scene::of(&["+-", "--", "++"]).summary();
    let setting = &summary.settings[0];
    assert_eq!(setting.cost_per_success, Some(1.0));
    assert_eq!(setting.tokens_per_success, Some(200.0));
    assert_eq!(setting.seconds_per_success, Some(3.0));
    let none = Scene::of(&["--"]).summary();
    assert_eq!(none.settings[0].tokens_per_success, None);
}
