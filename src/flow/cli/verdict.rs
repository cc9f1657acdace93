//! The verdict of `delta-flow eval`: sums up what is recorded, records the look, and prints both.
//!
//! Unaware of how a trial is run.

use crate::error::{At, Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::flow::eval::format::EvalFormat;
use crate::flow::eval::plan::{PlannedSuite, trials_of};
use crate::flow::eval::record::{EvaluationRecord, RecordedLook, add_look, number_look};
use crate::flow::eval::summary::baseline::Baseline;
use crate::flow::eval::summary::decision::Verdict;
use crate::flow::eval::summary::{Plan, PlannedCase, Summary, summarize};
use crate::flow::eval::tables;
use crate::flow::eval::trial::{Trial, TrialOutcome};
use crate::record::journal::Journal;
use crate::text::digest::PartsDigest;
use crate::unix::files;
use crate::unix::terminal::{Screen, columns, print, print_json};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The suites of a start, judged.
pub(super) struct Judged {
    pub summaries: Vec<Summary>,
    /// The trials of each suite.
    trials: Vec<Vec<Trial>>,
    format: EvalFormat,
    notes: Vec<String>,
}

impl Judged {
    /// The exit code: failed if one suite has failed, passed if all have passed.
    pub(super) fn exit(&self) -> Exit {
        let is = |verdict| move |summary: &Summary| summary.verdict == verdict;
        let verdict = if self.summaries.iter().any(is(Verdict::Failed)) {
            Verdict::Failed
        } else if self.summaries.iter().all(is(Verdict::Passed)) {
            Verdict::Passed
        } else {
            Verdict::Undecided
        };
        verdict.exit()
    }

    /// The verdicts in a line.
    pub(super) fn in_words(&self) -> String {
        let each = self.summaries.iter();
        let each = each.map(|summary| format!("{}: {}", summary.suite, summary.verdict.name()));
        each.collect::<Vec<_>>().join(", ")
    }
}

/// The bytes of a result to compare with.
pub(super) fn read_baseline(path: &Path) -> Result<Vec<u8>> {
    // 1 would be a verdict.
    let file = files::open_readable(path);
    let read = file.and_then(|file| files::read_limited(file, files::LARGEST_INPUT));
    read.at("read", path)
        .map_err(|error| Error::usage(format!("--against: {}", error.message)))
}

/// Refuses a result that is about something else, before anything is run.
pub(super) fn check_baseline(
    planned: &PlannedSuite<'_>,
    (path, bytes): (&Path, &[u8]),
) -> Result<()> {
    let parsed = Baseline::parse(bytes, &planned.suite.name);
    let baseline = parsed.map_err(|error| {
        Error::usage(format!("--against: {}: {}", path.display(), error.message))
    })?;
    let parts = PlanParts::of(planned);
    match baseline.refusal(&parts.plan(planned, 1)) {
        None => Ok(()),
        Some(why) => Err(Error::usage(format!("--against: {why}"))),
    }
}

fn baseline_of(planned: &PlannedSuite<'_>, against: Option<&[u8]>) -> Result<Option<Baseline>> {
    let parsed = against.map(|bytes| Baseline::parse(bytes, &planned.suite.name));
    parsed.transpose()
}

/// The input of a suite's summary.
struct PlanParts {
    target: String,
    settings: Vec<String>,
    cases: Vec<PlannedCase>,
    graders: String,
    gradings: BTreeMap<String, String>,
}

impl PlanParts {
    fn of(planned: &PlannedSuite<'_>) -> Self {
        let suite = planned.suite;
        let settings = planned.settings.iter();
        let cases = planned.cases.iter();
        let short = |sum: &str| sum[..sum.len().min(16)].to_owned();
        let gradings: BTreeMap<String, String> = cases
            .clone()
            .map(|ix| (suite.cases[*ix].id.clone(), short(&planned.gradings[*ix])))
            .collect();
        let mut graders = PartsDigest::default();
        for (id, grading) in &gradings {
            graders.add(id.as_bytes());
            graders.add(grading.as_bytes());
        }
        Self {
            target: suite.target.describe(),
            settings: settings
                .map(|ix| suite.settings[*ix].name.clone())
                .collect(),
            cases: cases
                .map(|ix| PlannedCase {
                    id: suite.cases[*ix].id.clone(),
                    hash: Some(planned.digests[*ix].clone()),
                    graders: gradings.get(&suite.cases[*ix].id).cloned(),
                })
                .collect(),
            graders: graders.sum(),
            gradings,
        }
    }

    fn plan<'p>(&'p self, planned: &'p PlannedSuite<'_>, look: u32) -> Plan<'p> {
        Plan {
            suite: &planned.suite.name,
            target: &self.target,
            trials: planned.trials,
            settings: &self.settings,
            cases: &self.cases,
            graders: Some(&self.graders),
            threshold: planned.suite.threshold,
            look,
        }
    }
}

/// Sums up the trials of suites, and records that their verdicts are looked at. `missing` is the reason of
/// those that have not begun.
pub(super) fn judge(
    suites: &[PlannedSuite<'_>],
    (journal, record): (&mut Journal, &mut EvaluationRecord),
    (missing, format): (&str, EvalFormat),
    against: Option<&[u8]>,
) -> Result<Judged> {
    let mut judged = Judged {
        summaries: Vec::new(),
        trials: Vec::new(),
        format,
        notes: Vec::new(),
    };
    for planned in suites {
        let trials = trials_of(planned, record, missing, !format.is_json());
        let name = &planned.suite.name;
        let parts = PlanParts::of(planned);
        let measured = digest_measured(&trials);
        let looks = &record.suite(name).looks;
        let numbered = number_look(looks, &measured, &parts.gradings);
        if numbered.assertions_changed {
            judged.notes.push(format!(
                "suite {name}: the assertions have changed since the last verdict; this is a new evaluation, and \
                 its looks begin at 1"
            ));
        }
        let baseline = baseline_of(planned, against)?;
        let plan = parts.plan(planned, numbered.number);
        let summary = summarize(&plan, baseline.as_ref(), trials.iter().cloned())?;
        judged.trials.push(trials);
        if numbered.is_new {
            let json_summary = serde_json::to_value(&summary).unwrap_or_default();
            let look = RecordedLook {
                suite: name.clone(),
                number: numbered.number,
                alpha: summary.look.alpha,
                verdict: summary.verdict.name().to_owned(),
                trials: measured,
                gradings: parts.gradings.clone(),
                rates: rates_of(&json_summary),
            };
            add_look(journal, &look);
        }
        judged.summaries.push(summary);
    }
    journal.sync()?;
    Ok(judged)
}

/// The digest of the names of the trials that were measured.
fn digest_measured(trials: &[Trial]) -> String {
    let measured = trials
        .iter()
        .filter(|it| it.outcome != TrialOutcome::NotMeasured);
    let mut names: Vec<&str> = measured.map(|it| it.run_id.as_str()).collect();
    names.sort_unstable();
    let mut digest = PartsDigest::default();
    for name in names {
        digest.add(name.as_bytes());
    }
    digest.sum()
}

/// The numbers of each setting, without those of its cases.
fn rates_of(summary: &Value) -> Vec<Value> {
    let settings = summary.get("settings").and_then(Value::as_array);
    let mut settings = settings.cloned().unwrap_or_default();
    for setting in &mut settings {
        if let Some(setting) = setting.as_object_mut() {
            setting.remove("cases");
        }
    }
    settings
}

/// Prints the results on stdout, and remarks on stderr.
pub(super) fn print_results(judged: &Judged) -> Result<()> {
    let screen = Screen::new(false, false);
    for note in &judged.notes {
        screen.warn_as(PROGRAM, note);
    }
    let pairs = || -> Vec<(&Summary, &[Trial])> {
        let trials = judged.trials.iter().map(Vec::as_slice);
        judged.summaries.iter().zip(trials).collect()
    };
    match judged.format {
        EvalFormat::Text => {
            let tables = pairs().into_iter();
            let tables = tables.map(|suite| tables::text::text(suite, columns()));
            print(tables.collect::<Vec<_>>().join("\n").as_bytes())
        }
        EvalFormat::Json => print_json(tables::json(&judged.summaries).as_bytes()),
        EvalFormat::Jsonl => {
            for (summary, trials) in pairs() {
                for trial in trials {
                    print_json(tables::jsonl(&summary.suite, trial).as_bytes())?;
                }
            }
            Ok(())
        }
        EvalFormat::Junit => print(tables::junit::junit(&pairs()).as_bytes()),
        EvalFormat::Tap => print(tables::tap::tap(&pairs()).as_bytes()),
    }
}
