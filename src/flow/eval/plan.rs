//! The plan of an evaluation: which trials of which suites are meant, each with its name.
//!
//! Reads templates and agents for their digests, and runs nothing.

use super::load::grader_files;
use super::naming::seed_of;
use super::naming::{
    PlannedTrial, TreeDigests, digest_case, digest_grading, digest_target, name_trial,
};
use super::record::{EvaluationRecord, TrialRecord};
use super::suite::{Case, Evaluations, Setting, Suite, Target};
use super::trial::{Trial, TrialOutcome};
use crate::config::agent::Severity;
use crate::config::load;
use crate::error::{Error, Result};
use crate::flow::manifest::Flow;
use crate::text::suggestion::nearest;
use std::path::{Path, PathBuf};

/// The most tokens and milliseconds that a record may say of a trial, so that sums of them are numbers: a trillion.
const MOST: u64 = 1_000_000_000_000;

/// What a command line chooses of a file; empty lists choose all.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanSelection {
    pub suites: Vec<String>,
    pub tags: Vec<String>,
    pub cases: Vec<String>,
    pub settings: Vec<String>,
    /// In place of the suites' own numbers.
    pub trials: Option<u32>,
}

/// A suite with the trials that are planned.
pub(crate) struct PlannedSuite<'s> {
    pub suite: &'s Suite,
    /// Of each case under each setting.
    pub trials: u32,
    pub planned: Vec<PlannedTrial>,
    /// The indices of the cases and the settings that are chosen.
    pub cases: Vec<usize>,
    pub settings: Vec<usize>,
    /// The digest of what each case gives its trials, by its index; empty if it is not chosen.
    pub digests: Vec<String>,
    /// The digest of what judges each case, by its index.
    pub gradings: Vec<String>,
    /// The agent's directory or name, if the target is one.
    pub agent: Option<String>,
    /// The agent takes a seed.
    pub is_seeded: bool,
}

/// The digests of templates and targets for a plan.
pub(crate) struct PlanBasis<'p> {
    pub evaluations: &'p Evaluations,
    pub flow: Option<&'p Flow>,
    /// Where the evaluation works; nothing in it belongs to a target.
    pub root: &'p Path,
    /// Finds the directory of an agent that is known by a name.
    pub find_agent: &'p dyn Fn(&str) -> Result<PathBuf>,
}

/// Plans the trials of the suites that are chosen.
///
/// # Errors
/// Nothing is chosen, or a name that is nowhere; a directory cannot be read.
pub(crate) fn plan_suites<'p>(
    basis: &PlanBasis<'p>,
    selection: &PlanSelection,
) -> Result<Vec<PlannedSuite<'p>>> {
    let all = &basis.evaluations.suites;
    check_selection(all, selection)?;
    let mut planned = Vec::new();
    let mut trees = TreeDigests::default();
    for suite in all {
        if !is_chosen(&selection.suites, &suite.name) {
            continue;
        }
        let cases: Vec<usize> = (0..suite.cases.len())
            .filter(|ix| is_case_chosen(suite, &suite.cases[*ix], selection))
            .collect();
        let settings: Vec<usize> = (0..suite.settings.len())
            .filter(|ix| is_chosen(&selection.settings, &suite.settings[*ix].name))
            .collect();
        if !cases.is_empty() && !settings.is_empty() {
            let chosen = (cases, settings);
            planned.push(plan_suite(basis, suite, chosen, selection, &mut trees)?);
        }
    }
    match planned.is_empty() {
        true => Err(Error::usage(
            "no case is chosen: no suite has one with all that was asked for",
        )),
        false => Ok(planned),
    }
}

fn is_chosen(wanted: &[String], name: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|it| it == name)
}

fn is_case_chosen(suite: &Suite, case: &Case, selection: &PlanSelection) -> bool {
    let mut tags = suite.tags.iter().chain(&case.tags);
    let has_tag = selection.tags.is_empty() || tags.any(|tag| selection.tags.contains(tag));
    has_tag && is_chosen(&selection.cases, &case.id)
}

/// Refuses names that are nowhere.
fn check_selection(suites: &[Suite], selection: &PlanSelection) -> Result<()> {
    let check = |option: &str, wanted: &[String], known: Vec<&str>| match wanted
        .iter()
        .find(|name| !known.contains(&name.as_str()))
    {
        None => Ok(()),
        Some(name) => {
            let near = nearest(name, known.iter().copied());
            let hint = near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
            Err(Error::usage(format!(
                "{option}: there is no '{name}'{hint}"
            )))
        }
    };
    let cases = || suites.iter().flat_map(|suite| &suite.cases);
    let names = suites.iter().map(|suite| suite.name.as_str()).collect();
    check("--suite", &selection.suites, names)?;
    check(
        "--case",
        &selection.cases,
        cases().map(|case| case.id.as_str()).collect(),
    )?;
    let settings = suites.iter().flat_map(|suite| &suite.settings);
    check(
        "--setting",
        &selection.settings,
        settings.map(|it| it.name.as_str()).collect(),
    )?;
    let of_suites = suites.iter().flat_map(|suite| &suite.tags);
    let tags = of_suites.chain(cases().flat_map(|case| &case.tags));
    check("--tag", &selection.tags, tags.map(String::as_str).collect())
}

fn plan_suite<'p>(
    basis: &PlanBasis<'p>,
    suite: &'p Suite,
    (cases, settings): (Vec<usize>, Vec<usize>),
    selection: &PlanSelection,
    trees: &mut TreeDigests,
) -> Result<PlannedSuite<'p>> {
    let home = &basis.evaluations.home;
    let trials = selection.trials.unwrap_or(suite.trials);
    let agent = match &suite.target {
        Target::Agent { word, .. } => Some((basis.find_agent)(word)?),
        Target::Flow | Target::Command(_) => None,
    };
    if let Some(agent) = &agent {
        let chosen = settings.iter().map(|ix| &suite.settings[*ix]);
        chosen
            .into_iter()
            .try_for_each(|setting| check_setting(agent, suite, setting))?;
    }
    let mut without = grader_files(home, suite);
    without.extend([basis.root.join("eval"), basis.root.join(".delta")]);
    let target = digest_target(suite, home, basis.flow, agent.as_deref(), &without)?;
    let mut digests = vec![String::new(); suite.cases.len()];
    for ix in &cases {
        let case = &suite.cases[*ix];
        let template = match &case.template {
            None => "",
            Some(dir) if basis.root.starts_with(dir) => {
                return Err(Error::config(format!(
                    "case \"{}\": its workspace {} contains {}, where this evaluation works; choose another \
                     one with -w",
                    case.id,
                    dir.display(),
                    basis.root.display()
                )));
            }
            Some(dir) => trees.of(dir, &[])?,
        };
        digests[*ix] = digest_case(case, template);
    }
    let mut planned = Vec::with_capacity(cases.len() * settings.len() * trials as usize);
    // An evaluation that is cut short has as many trials of each case under each setting, or one less.
    for number in 1..=trials {
        for case in &cases {
            for setting in &settings {
                let identity = (&suite.cases[*case], digests[*case].as_str());
                planned.push(PlannedTrial {
                    case: *case,
                    setting: *setting,
                    number,
                    name: name_trial(&target, identity, &suite.settings[*setting], number),
                });
            }
        }
    }
    let gradings = suite.cases.iter();
    let gradings = gradings.map(|case| digest_grading(suite, case, home));
    Ok(PlannedSuite {
        suite,
        trials,
        planned,
        gradings: gradings.collect(),
        digests,
        is_seeded: agent.as_deref().is_some_and(takes_seed),
        agent: agent.map(|dir| dir.to_string_lossy().into_owned()),
        cases,
        settings,
    })
}

/// Refuses a setting with which the agent cannot be loaded.
fn check_setting(agent: &Path, suite: &Suite, setting: &Setting) -> Result<()> {
    let (_, problems) = load::load_with(agent, &setting.set);
    let fault = problems.iter().find(|it| it.severity == Severity::Error);
    fault.map_or(Ok(()), |fault| {
        Err(Error::config(format!(
            "suite \"{}\", setting \"{}\": {fault}",
            suite.name, setting.name
        )))
    })
}

/// An agent whose file has a seed for its model.
fn takes_seed(agent: &Path) -> bool {
    let (agent, _) = load::load(agent);
    agent.is_some_and(|agent| agent.llm.parameters.iter().any(|(name, _)| name == "seed"))
}

/// All trials that a suite plans, as they are recorded. One that has not ended was not measured: `missing`
/// says why.
pub(crate) fn trials_of(
    planned: &PlannedSuite<'_>,
    record: &mut EvaluationRecord,
    missing: &str,
    with_assertions: bool,
) -> Vec<Trial> {
    let suite = planned.suite;
    let mut trials = Vec::with_capacity(planned.planned.len());
    for plan in &planned.planned {
        let found = record.trial(&suite.name, &plan.name);
        let (outcome, stop_reason, score) = outcome_of(found, missing);
        let end = found.end.as_ref();
        let case = &suite.cases[plan.case].id;
        let grade = found.grade.as_ref().filter(|_| with_assertions);
        let assertions = grade.map(|grade| grade.assertions.clone());
        trials.push(Trial {
            case: case.clone(),
            setting: suite.settings[plan.setting].name.clone(),
            number: plan.number,
            outcome,
            stop_reason,
            score,
            assertions,
            run_id: plan.name.clone(),
            workspace: format!("eval/{}/{}", suite.name, plan.name),
            cost: end.and_then(|end| end.cost),
            tokens: end
                .and_then(|end| end.tokens)
                .map(|tokens| tokens.min(MOST)),
            duration_ms: end.map(|end| end.duration_ms.min(MOST)),
            retries: end.map_or(0, |end| end.retries),
            models: end.map_or_else(Vec::new, |end| end.models.clone()),
            output_hash: end.and_then(|end| end.output_sha256.clone()),
            seed: Some(seed_of(&suite.name, case, plan.number).into()),
        });
    }
    trials
}

fn outcome_of(found: &TrialRecord, missing: &str) -> (TrialOutcome, String, Option<f64>) {
    let not_measured = |why: &str| (TrialOutcome::NotMeasured, why.to_owned(), None);
    match (&found.end, &found.grade) {
        (None, _) => not_measured(missing),
        (Some(end), _) if end.status == TrialOutcome::Failed.name() => {
            (TrialOutcome::Failed, end.stop_reason.clone(), Some(0.0))
        }
        (Some(end), _) if end.status == TrialOutcome::NotMeasured.name() => {
            not_measured(&end.stop_reason)
        }
        (Some(_), Some(grade)) => (grade.outcome, grade.stop_reason.clone(), grade.score),
        (Some(_), None) => not_measured("grader"),
    }
}
