//! The verdict of `delta eval`: sums up what is recorded, records the look, and prints both.
//!
//! Unaware of how a trial is run.

use crate::error::{At, Error, Exit, Result};
use crate::flow::eval::format::EvalFormat;
use crate::flow::eval::plan::{PlannedSuite, trials_of};
use crate::flow::eval::record::{EvaluationRecord, RecordedLook, number_look};
use crate::flow::eval::summary::baseline::Baseline;
use crate::flow::eval::summary::decision::Verdict;
use crate::flow::eval::summary::{Plan, PlannedCase, Summary, summarize};
use crate::flow::eval::tables::{self, answer::paid, words::CaseNames};
use crate::flow::eval::trial::{Trial, TrialOutcome};
use crate::record::event::EvaluationEvent;
use crate::record::event::evaluation::RESULTS;
use crate::record::journal::Journal;
use crate::text::digest::PartsDigest;
use crate::unix::terminal::{columns, print, print_json};
use crate::unix::{file_or_pipe, files};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The suites of a start, judged.
pub(super) struct Judged {
    pub summaries: Vec<Summary>,
    /// The trials of each suite.
    trials: Vec<Vec<Trial>>,
    /// Their results as they are kept for pages.
    pages: Vec<String>,
    format: EvalFormat,
    /// Remarks for stderr.
    pub notes: Vec<String>,
}

impl Judged {
    /// The exit code: failed if one suite has failed, passed if all have passed.
    pub(super) fn exit(&self) -> Exit {
        let mut verdicts = self.summaries.iter().map(|summary| summary.verdict);
        if verdicts.clone().any(|it| it == Verdict::Failed) {
            Verdict::Failed.exit()
        } else if verdicts.all(|it| it == Verdict::Passed) {
            Verdict::Passed.exit()
        } else {
            Verdict::Undecided.exit()
        }
    }

    /// The verdicts in a line.
    pub(super) fn in_words(&self) -> String {
        let word = |it: &Summary| format!("{}: {}", it.suite, it.verdict.name());
        self.summaries
            .iter()
            .map(word)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// The bytes of a result to compare with.
pub(super) fn read_baseline(path: &Path) -> Result<Vec<u8>> {
    // 1 would be a verdict.
    let read = file_or_pipe::read_once(path, files::LARGEST_INPUT);
    read.at("read", path)
        .map_err(|error| Error::usage(format!("--against: {}", error.message)))
}

/// Refuses a result that is about something else, before anything is run.
pub(super) fn check_baseline(planned: &PlannedSuite<'_>, path: &Path, bytes: &[u8]) -> Result<()> {
    let parsed = Baseline::parse(bytes, &planned.suite.name);
    let baseline = parsed.map_err(|error| {
        Error::usage(format!("--against: {}: {}", path.display(), error.message))
    })?;
    let parts = PlanParts::of(planned);
    match baseline.refusal(&parts.plan(planned)) {
        None => Ok(()),
        Some(why) => Err(Error::usage(format!("--against: {why}"))),
    }
}

/// The input of a suite's summary.
struct PlanParts {
    target: String,
    settings: Vec<String>,
    cases: Vec<PlannedCase>,
    graders: String,
    gradings: BTreeMap<String, String>,
    /// Their names, each once.
    agents: Vec<String>,
}

impl PlanParts {
    fn of(planned: &PlannedSuite<'_>) -> Self {
        let cases: Vec<PlannedCase> = planned
            .cases
            .iter()
            .map(|chosen| PlannedCase {
                id: chosen.case.id.clone(),
                hash: Some(chosen.digest.clone()),
                graders: Some(chosen.grading[..16].to_owned()),
            })
            .collect();
        let of_case = |case: &PlannedCase| Some((case.id.clone(), case.graders.clone()?));
        let gradings: BTreeMap<String, String> = cases.iter().filter_map(of_case).collect();
        let mut graders = PartsDigest::default();
        for (id, grading) in &gradings {
            graders.add(id.as_bytes());
            graders.add(grading.as_bytes());
        }
        let names = planned
            .planned
            .iter()
            .filter_map(|it| it.target.name.clone());
        let agents: BTreeSet<String> = names.collect();
        let settings = planned.settings.iter();
        Self {
            target: planned.suite.target.describe(),
            settings: settings.map(|it| it.name.clone()).collect(),
            cases,
            graders: graders.sum(),
            gradings,
            agents: agents.into_iter().collect(),
        }
    }

    fn plan<'p>(&'p self, planned: &'p PlannedSuite<'_>) -> Plan<'p> {
        Plan {
            suite: &planned.suite.name,
            target: &self.target,
            trials: planned.trials,
            settings: &self.settings,
            cases: &self.cases,
            graders: Some(&self.graders),
            threshold: planned.suite.threshold,
            require_higher: false,
            look: 1,
        }
    }
}

/// What a verdict is asked to be.
pub(super) struct VerdictOrder<'v> {
    /// The reason of trials that have not begun.
    pub missing: &'v str,
    pub format: EvalFormat,
    /// A result to compare with.
    pub against: Option<&'v [u8]>,
    /// Only settings that are shown higher pass.
    pub require_higher: bool,
}

/// Sums up the trials of suites, and records that their verdicts are looked at.
pub(super) fn judge(
    suites: &[PlannedSuite<'_>],
    journal: &mut Journal,
    record: &mut EvaluationRecord,
    order: &VerdictOrder<'_>,
) -> Result<Judged> {
    let mut judged = Judged {
        summaries: Vec::new(),
        trials: Vec::new(),
        pages: Vec::new(),
        format: order.format,
        notes: Vec::new(),
    };
    for planned in suites {
        let trials = trials_of(planned, record, order.missing);
        let name = &planned.suite.name;
        let parts = PlanParts::of(planned);
        let measured = digest_measured(&trials);
        let looks = &record.suite(name).looks;
        let numbered = number_look(looks, &measured, &parts.gradings, &parts.agents);
        if numbered.assertions_changed {
            judged.notes.push(format!(
                "suite {name}: the assertions have changed since the last verdict; this is a new evaluation, and \
                 its looks begin at 1"
            ));
        }
        let baseline = order
            .against
            .map(|bytes| Baseline::parse(bytes, name))
            .transpose()?;
        let plan = Plan {
            look: numbered.number,
            require_higher: order.require_higher,
            ..parts.plan(planned)
        };
        let summary = summarize(&plan, baseline.as_ref(), trials.iter().cloned())?;
        let cases = || planned.cases.iter().map(|it| it.case);
        let names = CaseNames::of(cases());
        let page = tables::page::lines(&summary, &trials, &names, cases());
        judged.pages.push(page);
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
                agents: parts.agents.clone(),
                rates: rates_of(&json_summary),
            };
            journal.add_line(EvaluationEvent::Look, |line| {
                line.members(&look);
            });
        }
        judged.summaries.push(summary);
    }
    journal.sync()?;
    Ok(judged)
}

/// The digest of the names of the trials that were measured.
fn digest_measured(trials: &[Trial]) -> String {
    let is_measured = |it: &&Trial| it.outcome != TrialOutcome::NotMeasured;
    let measured = trials.iter().filter(is_measured);
    let names: BTreeSet<&str> = measured.map(|it| it.run_id.as_str()).collect();
    let mut digest = PartsDigest::default();
    for name in names {
        digest.add(name.as_bytes());
    }
    digest.sum()
}

/// The numbers of each setting, without those of its cases.
fn rates_of(summary: &Value) -> Vec<Value> {
    let mut settings = summary["settings"].as_array().cloned().unwrap_or_default();
    for setting in settings.iter_mut().filter_map(Value::as_object_mut) {
        setting.remove("cases");
    }
    settings
}

/// Keeps the results in the run's directory, from where `delta eval report` makes its page.
pub(super) fn keep_results(judged: &Judged, run: &Path) -> Result<()> {
    let dir = files::make_dirs_below(run, Path::new(RESULTS))?;
    for (summary, page) in judged.summaries.iter().zip(&judged.pages) {
        files::replace(
            &dir.join(format!("{}.jsonl", summary.suite)),
            page.as_bytes(),
        )?;
    }
    Ok(())
}

/// Prints the results on stdout. `run` is the directory of the evaluation's run.
pub(super) fn print_results(
    judged: &Judged,
    suites: &[PlannedSuite<'_>],
    run: &Path,
) -> Result<()> {
    let trials = judged.trials.iter().map(Vec::as_slice);
    let pairs: Vec<(&Summary, &[Trial])> = judged.summaries.iter().zip(trials).collect();
    match judged.format {
        EvalFormat::Text => {
            let tables = pairs
                .into_iter()
                .zip(suites)
                .map(|((summary, trials), suite)| {
                    let names = CaseNames::of(suite.cases.iter().map(|it| it.case));
                    tables::text::text(summary, trials, &names, columns())
                });
            let tables = tables.collect::<Vec<_>>().join("\n");
            print((tables + &paid(&judged.trials)).as_bytes())
        }
        EvalFormat::Json => print_json(tables::json(&judged.summaries).as_bytes()),
        EvalFormat::Jsonl => {
            for ((summary, trials), planned) in pairs.into_iter().zip(suites) {
                for (trial, plan) in trials.iter().zip(&planned.planned) {
                    let line = tables::jsonl(&summary.suite, trial, plan.chosen.case, run);
                    print_json(line.as_bytes())?;
                }
            }
            Ok(())
        }
        EvalFormat::Junit => print(tables::junit::junit(&pairs).as_bytes()),
        EvalFormat::Tap => print(tables::tap::tap(&pairs).as_bytes()),
    }
}
