//! The plan of an evaluation: which trials of which suites are meant, each with its name.
//!
//! Reads templates and graders for their digests, and starts no trial.

use super::naming::{
    ReadFiles, digest_case, digest_grading, digest_target, digest_tree, name_trial, seed_of,
};
use super::record::{EvaluationRecord, TrialEnd};
use super::selection::PlanSelection;
use super::suite::{Case, Setting, Suite};
use super::target::{PlanBasis, PlannedTarget, TargetReader};
use super::trial::Trial;
use crate::config::agent::Severity;
use crate::config::load;
use crate::error::{Error, Result};
use crate::text::json;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

/// The most tokens and milliseconds that a record may say of a trial, so that sums of them are numbers: a trillion.
const MOST: u64 = 1_000_000_000_000;

/// A case that is chosen.
pub(crate) struct ChosenCase<'s> {
    pub case: &'s Case,
    /// The digest of what it gives its trials.
    pub digest: String,
    /// The digest of what judges it.
    pub grading: String,
}

/// A trial that a suite plans.
pub(crate) struct PlannedTrial<'s> {
    pub chosen: Rc<ChosenCase<'s>>,
    pub setting: &'s Setting,
    pub target: Rc<PlannedTarget>,
    /// From 1, within the case and the setting.
    pub number: u32,
    /// Unique in the suite; the name of its run, and of its workspace's directory.
    pub name: String,
    pub seed: u32,
    /// From the evaluation's workspace.
    pub place: String,
}

/// A suite with the trials that are planned.
pub(crate) struct PlannedSuite<'s> {
    pub suite: &'s Suite,
    /// Of each case under each setting.
    pub trials: u32,
    pub planned: Vec<PlannedTrial<'s>>,
    pub cases: Vec<Rc<ChosenCase<'s>>>,
    pub settings: Vec<&'s Setting>,
}

/// Plans the trials of the suites that are chosen.
///
/// # Errors
/// Nothing is chosen, or a name that is nowhere; a directory cannot be read.
pub(crate) fn plan_suites<'p>(
    basis: &'p PlanBasis<'p>,
    selection: &PlanSelection,
) -> Result<Vec<PlannedSuite<'p>>> {
    let all = &basis.evaluations.suites;
    selection.check(all)?;
    let mut planner = Planner {
        targets: TargetReader::new(basis),
        selection,
        trees: HashMap::new(),
        graders: ReadFiles::default(),
    };
    let mut planned = Vec::new();
    for suite in all.iter().filter(|it| selection.has_suite(it)) {
        let cases = selection.cases_of(suite);
        if !cases.is_empty() && suite.settings.iter().any(|it| selection.has_setting(it)) {
            planned.push(planner.plan(suite, cases)?);
        }
    }
    if planned.is_empty() {
        return Err(Error::usage(
            "no case is chosen: no suite has one with all that was asked for",
        ));
    }
    Ok(planned)
}

/// Plans suites, and keeps what has been read for several of them.
struct Planner<'p, 's> {
    targets: TargetReader<'p>,
    selection: &'s PlanSelection,
    /// The digests of templates.
    trees: HashMap<&'p Path, String>,
    graders: ReadFiles,
}

impl<'p> Planner<'p, '_> {
    fn plan(&mut self, suite: &'p Suite, chosen: Vec<&'p Case>) -> Result<PlannedSuite<'p>> {
        let basis = self.targets.basis;
        let home = &basis.evaluations.home;
        let targets = self.targets.targets(suite, self.selection)?;
        for (setting, target) in &targets {
            if let Some(agent) = &target.agent {
                check_setting(agent, suite, setting)?;
            }
        }
        let mut cases = Vec::new();
        for case in chosen {
            let template = match &case.template {
                None => "",
                Some(dir) => template_digest(case, dir, basis.root, &mut self.trees)?,
            };
            cases.push(Rc::new(ChosenCase {
                case,
                digest: digest_case(case, template),
                grading: digest_grading(suite, case, home, &mut self.graders),
            }));
        }
        let trials = self.selection.trials.unwrap_or(suite.trials);
        let mut planned = Vec::new();
        // An evaluation that is cut short has as many trials of each case under each setting, or one less.
        for number in 1..=trials {
            for chosen in &cases {
                for (setting, target) in &targets {
                    let name = own_name(target, setting, chosen, number);
                    planned.push(PlannedTrial {
                        chosen: chosen.clone(),
                        setting,
                        target: target.clone(),
                        number,
                        seed: seed_of(&suite.name, &chosen.case.id, number),
                        place: format!("eval/{}/{name}", suite.name),
                        name,
                    });
                }
            }
        }
        Ok(PlannedSuite {
            suite,
            trials,
            planned,
            cases,
            settings: targets.into_iter().map(|(setting, _)| setting).collect(),
        })
    }
}

/// The name of a trial.
fn own_name(
    target: &PlannedTarget,
    setting: &Setting,
    chosen: &ChosenCase<'_>,
    number: u32,
) -> String {
    let set = json::text(&setting.set);
    let occurrence = target.occurrence.to_string();
    // The person's choice, where that decides.
    let model = target.model_under(setting);
    let model = model.map_or_else(String::new, |model| format!(" {model}"));
    let digest = format!("{}{model}", target.digest);
    let parts = ["2", &digest, &chosen.digest, &occurrence, &set];
    name_trial(chosen.case, number, parts)
}

/// Takes the names under which earlier versions recorded the planned trials, where there is no record under their own.
pub(crate) fn keep_earlier_names(
    planned: &mut PlannedSuite<'_>,
    basis: &PlanBasis<'_>,
    record: &mut EvaluationRecord,
) -> Result<()> {
    let known = &record.suite(&planned.suite.name).trials;
    let suite = planned.suite;
    let mut of_target = None;
    let is_unknown = |plan: &&mut PlannedTrial<'_>| {
        !known.is_empty() && plan.setting.agent.is_none() && !known.contains_key(&plan.name)
    };
    for plan in planned.planned.iter_mut().filter(is_unknown) {
        let (setting, chosen, target) = (plan.setting, &plan.chosen, &plan.target);
        if of_target.is_none() {
            let (home, own) = (&basis.evaluations.home, basis.own_files(suite));
            let agent = target.agent.as_deref();
            of_target = Some(digest_target(suite, home, basis.flow, agent, own)?);
        }
        let digest = of_target.as_deref().unwrap_or_default();
        let set = json::text(&setting.set);
        let parts = ["1", digest, &chosen.digest, &setting.name, &set];
        let earlier = name_trial(chosen.case, plan.number, parts);
        let Some(found) = known.get(&earlier) else {
            continue;
        };
        // The person's model was no part of these names: the one that answered decides.
        let models = found.end.iter().flat_map(|end| &end.models);
        let is_same =
            |model| models.clone().next().is_none() || models.clone().any(|it| it == model);
        if target.model_under(setting).is_none_or(is_same) {
            plan.place = format!("eval/{}/{earlier}", suite.name);
            plan.name = earlier;
        }
    }
    Ok(())
}

/// The digest of a case's workspace, each of which is read once.
fn template_digest<'t, 'p>(
    case: &Case,
    dir: &'p Path,
    root: &Path,
    trees: &'t mut HashMap<&'p Path, String>,
) -> Result<&'t str> {
    if root.starts_with(dir) {
        return Err(Error::config(format!(
            "case \"{}\": its workspace {} contains {}, where this evaluation works; choose another \
             one with -w",
            case.id,
            dir.display(),
            root.display()
        )));
    }
    if !trees.contains_key(dir) {
        trees.insert(dir, digest_tree(dir, &[])?);
    }
    Ok(&trees[dir])
}

/// Refuses a setting with which the agent cannot be loaded.
fn check_setting(agent: &Path, suite: &Suite, setting: &Setting) -> Result<()> {
    let (_, problems) = load::load_with(agent, &setting.set);
    match problems.iter().find(|it| it.severity == Severity::Error) {
        None => Ok(()),
        Some(fault) => Err(Error::config(format!(
            "suite \"{}\", setting \"{}\": {fault}",
            suite.name, setting.name
        ))),
    }
}

/// All trials that a suite plans, as they are recorded. One that has not ended was not measured: `missing`
/// says why.
pub(crate) fn trials_of(
    planned: &PlannedSuite<'_>,
    record: &mut EvaluationRecord,
    missing: &str,
) -> Vec<Trial> {
    let none = TrialEnd::default();
    let trial = |plan: &PlannedTrial<'_>| {
        let found = record.trial(&planned.suite.name, &plan.name);
        let (outcome, stop_reason, score) = found.outcome(missing);
        let end = found.end.as_ref().unwrap_or(&none);
        let grade = found.grade.as_ref();
        Trial {
            case: plan.chosen.case.id.clone(),
            setting: plan.setting.name.clone(),
            number: plan.number,
            outcome,
            stop_reason: stop_reason.to_owned(),
            score,
            assertions: grade.map(|it| it.assertions.clone()),
            run_id: plan.name.clone(),
            workspace: plan.place.clone(),
            cost: end.cost,
            tokens: end.tokens.map(|tokens| tokens.min(MOST)),
            tokens_estimated: end.tokens_estimated.map(|tokens| tokens.min(MOST)),
            duration_ms: found.end.as_ref().map(|end| end.duration_ms.min(MOST)),
            retries: end.retries,
            models: end.models.clone(),
            output_hash: end.output_sha256.clone(),
            execution_ref: found.is_answered().then(|| end.execution_ref.clone()),
            seed: Some(plan.seed.into()),
            scores: grade.iter().flat_map(|it| it.scores.clone()).collect(),
            reason: grade.and_then(|it| it.reason.clone()),
            activity: found.activity,
        }
    };
    planned.planned.iter().map(trial).collect()
}
