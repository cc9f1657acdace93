//! The plan of an evaluation: which trials of which suites are meant, each with its name.
//!
//! Reads templates and agents for their digests, and runs nothing.

use super::load::grader_files;
use super::naming::{
    AgentDir, digest_agent, digest_case, digest_grading, digest_target, digest_tree, name_trial,
    named_beside, seed_of,
};
use super::record::{EvaluationRecord, TrialEnd, TrialRecord};
use super::repository::Git;
use super::suite::{AgentWord, Case, Evaluations, Setting, Suite, Target};
use super::trial::Trial;
use crate::config::agent::{Agent, Severity};
use crate::config::load;
use crate::error::{Error, Exit, Result};
use crate::flow::manifest::Flow;
use crate::runs::preflight::choose_model;
use crate::text::digest::sha256;
use crate::text::json;
use crate::text::order;
use crate::text::suggestion::nearest;
use crate::unix::signals::Signals;
use crate::unix::terminal::warn;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The most tokens and milliseconds that a record may say of a trial, so that sums of them are numbers: a trillion.
const MOST: u64 = 1_000_000_000_000;

/// The choice of a command line; empty lists choose all.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanSelection {
    pub suites: Vec<String>,
    pub tags: Vec<String>,
    pub cases: Vec<String>,
    pub settings: Vec<String>,
    /// In place of the suites' own numbers.
    pub trials: Option<u32>,
    /// Only one side of the cases.
    pub split: Option<Split>,
    /// The most cases of each suite.
    pub sample: Option<usize>,
}

/// A side of the cases, which are divided by the digests of their inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    pub is_held: bool,
    /// The share that is held back, 0..1.
    pub share: f64,
}

impl Split {
    /// Reads `train` or `held`, perhaps with `:` and the share that is held back.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let (side, share) = word.split_once(':').unwrap_or((word, "0.3"));
        let share: f64 = share.parse().ok()?;
        let is_held = side == "held";
        let is_good = (is_held || side == "train") && share > 0.0 && share < 1.0;
        is_good.then_some(Self { is_held, share })
    }

    fn has(&self, case: &Case) -> bool {
        let digits = sha256(json::text(&("split", &case.input)).as_bytes());
        let place = u32::from_str_radix(&digits[..8], 16).unwrap_or(0);
        (f64::from(place) / 2_f64.powi(32) < self.share) == self.is_held
    }
}

/// As many of these cases, the same ones each time, in their order.
fn sampled(cases: Vec<&Case>, count: usize) -> Vec<&Case> {
    let key = |case: &Case| sha256(json::text(&("sample", &case.input, &case.id)).as_bytes());
    let mut keyed: Vec<_> = (0..)
        .zip(&cases)
        .map(|(at, case)| (key(case), at))
        .collect();
    order::sort(&mut keyed);
    keyed.truncate(count);
    let mut places: Vec<usize> = keyed.into_iter().map(|(_, at)| at).collect();
    order::sort(&mut places);
    places.into_iter().map(|at| cases[at]).collect()
}

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

/// What is tried under a setting.
#[derive(Clone, Default)]
pub(crate) struct PlannedTarget {
    /// An agent's directory.
    pub agent: Option<PathBuf>,
    /// The name in agent.yaml.
    pub name: Option<String>,
    /// The agent takes a seed.
    pub is_seeded: bool,
    content: Option<Rc<AgentContent>>,
    /// The model that the person has chosen, where the agent names none.
    model: Option<String>,
    digest: String,
    /// From 1, among settings that try the same with the same `set`.
    occurrence: u32,
}

/// An agent's files, as they were when they were digested.
struct AgentContent {
    agent: AgentDir,
    /// Files of the evaluation.
    own: Vec<PathBuf>,
    /// What git ignored.
    ignored: Vec<PathBuf>,
    digest: String,
}

impl AgentContent {
    fn read(agent: AgentDir, own: Vec<PathBuf>, signals: &Signals) -> Result<Self> {
        let mut content = Self {
            agent,
            own,
            ignored: Vec::new(),
            digest: String::new(),
        };
        let (is_of_today, dir) = (content.agent.dir == content.agent.today, &content.agent.dir);
        let mut all = Vec::new();
        let mut ignored = |paths: &[PathBuf]| {
            if !is_of_today {
                return Ok(Vec::new());
            }
            let git = Git { signals, dir };
            let found = git.ignored_paths(paths).or_else(|error| match error.exit {
                Exit::Config => {
                    let (shown, why) = (dir.display(), error.message);
                    warn(&format!(
                        "warning: {shown}: files that git ignores count as files of the agent: {why}"
                    ));
                    Ok(Vec::new())
                }
                _ => Err(error),
            })?;
            all.extend(found.iter().cloned());
            Ok(found)
        };
        content.digest = content.digest(&mut ignored)?;
        content.ignored = all;
        Ok(content)
    }

    fn digest(
        &self,
        ignored: &mut dyn FnMut(&[PathBuf]) -> Result<Vec<PathBuf>>,
    ) -> Result<String> {
        let dir = &self.agent.dir;
        let mut named = named_beside(dir);
        let (_, _, sources) = load::survey(dir);
        let tools = sources.tools.into_iter().map(|tool| tool.file);
        named.extend(tools.filter(|file| !file.starts_with(&sources.home)));
        digest_agent(&self.agent, &self.own, named, ignored)
    }

    fn is_unchanged(&self, signals: &Signals) -> Result<bool> {
        let before = self.digest(&mut |_| Ok(self.ignored.clone()))?;
        // Something that git ignores may have come.
        let is_same = |now: Self| now.digest == self.digest;
        Ok(before == self.digest
            || Self::read(self.agent.clone(), self.own.clone(), signals).is_ok_and(is_same))
    }
}

impl PlannedTarget {
    /// The person's model, unless the setting names another one.
    fn model_under(&self, setting: &Setting) -> Option<&String> {
        let model = self.model.as_ref();
        model.filter(|_| !setting.set.contains_key("llm.model"))
    }

    /// False if the files of its agent are no longer those that were planned.
    pub(crate) fn is_unchanged(&self, signals: &Signals) -> bool {
        let content = self.content.as_ref();
        content.is_none_or(|it| it.is_unchanged(signals).unwrap_or(false))
    }
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

/// The digests of templates and targets for a plan.
pub(crate) struct PlanBasis<'p> {
    pub evaluations: &'p Evaluations,
    pub flow: Option<&'p Flow>,
    /// The workspace of the evaluation; nothing in it belongs to a target.
    pub root: &'p Path,
    pub signals: &'p Signals,
    /// Finds the directory of an agent.
    pub find_agent: &'p dyn Fn(&AgentWord) -> Result<AgentDir>,
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
    let mut trees = HashMap::new();
    for suite in all
        .iter()
        .filter(|it| is_chosen(&selection.suites, &it.name))
    {
        let is_meant = |case: &&Case| {
            let mut tags = suite.tags.iter().chain(&case.tags);
            let has_tag = selection.tags.is_empty() || tags.any(|it| selection.tags.contains(it));
            let is_on_side = selection.split.is_none_or(|split| split.has(case));
            has_tag && is_on_side && is_chosen(&selection.cases, &case.id)
        };
        let meant = suite.cases.iter().filter(is_meant).collect();
        let cases = match selection.sample {
            Some(count) => sampled(meant, count),
            None => meant,
        };
        let is_meant = |setting: &&Setting| is_chosen(&selection.settings, &setting.name);
        let settings: Vec<&Setting> = suite.settings.iter().filter(is_meant).collect();
        if !cases.is_empty() && !settings.is_empty() {
            let trials = selection.trials.unwrap_or(suite.trials);
            planned.push(plan_suite(
                basis, suite, cases, settings, trials, &mut trees,
            )?);
        }
    }
    if planned.is_empty() {
        return Err(Error::usage(
            "no case is chosen: no suite has one with all that was asked for",
        ));
    }
    Ok(planned)
}

/// True if a list of a command line names something, or nothing at all.
pub(crate) fn is_chosen(wanted: &[String], name: &String) -> bool {
    wanted.is_empty() || wanted.contains(name)
}

/// Refuses names that are nowhere.
fn check_selection(suites: &[Suite], selection: &PlanSelection) -> Result<()> {
    let cases = || suites.iter().flat_map(|suite| &suite.cases);
    let settings = suites.iter().flat_map(|suite| &suite.settings);
    let tags = suites.iter().flat_map(|suite| &suite.tags);
    check_names(
        "--suite",
        &selection.suites,
        suites.iter().map(|suite| &suite.name),
    )?;
    check_names("--case", &selection.cases, cases().map(|case| &case.id))?;
    check_names(
        "--setting",
        &selection.settings,
        settings.map(|it| &it.name),
    )?;
    check_names(
        "--tag",
        &selection.tags,
        tags.chain(cases().flat_map(|case| &case.tags)),
    )
}

fn check_names<'n>(
    option: &str,
    wanted: &[String],
    known: impl Iterator<Item = &'n String>,
) -> Result<()> {
    let known: Vec<&String> = known.collect();
    let Some(name) = wanted.iter().find(|name| !known.contains(name)) else {
        return Ok(());
    };
    let near = nearest(name, known.into_iter().map(String::as_str));
    let hint = near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
    Err(Error::usage(format!(
        "{option}: there is no '{name}'{hint}"
    )))
}

fn plan_suite<'p>(
    basis: &PlanBasis<'p>,
    suite: &'p Suite,
    chosen: Vec<&'p Case>,
    settings: Vec<&'p Setting>,
    trials: u32,
    trees: &mut HashMap<&'p Path, String>,
) -> Result<PlannedSuite<'p>> {
    let home = &basis.evaluations.home;
    let targets = plan_targets(basis, suite)?;
    for (setting, target) in suite.settings.iter().zip(&targets) {
        if let Some(agent) = &target.agent
            && settings.contains(&setting)
        {
            check_setting(agent, suite, setting)?;
        }
    }
    let mut cases = Vec::new();
    for case in chosen {
        let template = match &case.template {
            None => "",
            Some(dir) => template_digest(case, dir, basis.root, trees)?,
        };
        cases.push(Rc::new(ChosenCase {
            case,
            digest: digest_case(case, template),
            grading: digest_grading(suite, case, home),
        }));
    }
    let mut planned = Vec::new();
    // An evaluation that is cut short has as many trials of each case under each setting, or one less.
    for number in 1..=trials {
        for chosen in &cases {
            for (setting, target) in suite.settings.iter().zip(&targets) {
                if !settings.contains(&setting) {
                    continue;
                }
                let case = chosen.case;
                let model = target.model_under(setting);
                let name = own_name(target, setting, chosen, number, model);
                planned.push(PlannedTrial {
                    chosen: chosen.clone(),
                    setting,
                    target: target.clone(),
                    number,
                    seed: seed_of(&suite.name, &case.id, number),
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
        settings,
    })
}

/// The name of a trial. `model`: the person's choice, where that decides.
fn own_name(
    target: &PlannedTarget,
    setting: &Setting,
    chosen: &ChosenCase<'_>,
    number: u32,
    model: Option<&String>,
) -> String {
    let set = json::text(&setting.set);
    let occurrence = target.occurrence.to_string();
    let model = model.map_or_else(String::new, |model| format!(" {model}"));
    let digest = format!("{}{model}", target.digest);
    let parts = ["2", &digest, &chosen.digest, &occurrence, &set];
    name_trial(chosen.case, number, parts)
}

/// The files of an evaluation, none of which belongs to what is tried.
fn own_files(basis: &PlanBasis<'_>, suite: &Suite) -> Vec<PathBuf> {
    let mut own = grader_files(&basis.evaluations.home, suite);
    own.extend([basis.root.join("eval"), basis.root.join(".delta")]);
    own
}

/// What is tried under each setting of a suite.
fn plan_targets(basis: &PlanBasis<'_>, suite: &Suite) -> Result<Vec<Rc<PlannedTarget>>> {
    let mut known: Vec<(&AgentWord, PlannedTarget)> = Vec::new();
    let mut seen: HashMap<(String, String), u32> = HashMap::new();
    let mut targets = Vec::new();
    for setting in &suite.settings {
        let word = match (&setting.agent, &suite.target) {
            (Some(agent), _) | (None, Target::Agent(agent)) => Some(agent),
            (None, Target::Flow | Target::Command(_)) => None,
        };
        let found = known.iter().find(|(other, _)| Some(*other) == word);
        let mut target = match (word, found) {
            (_, Some((_, target))) => target.clone(),
            (Some(word), None) => {
                let target = plan_agent(basis, suite, word)?;
                known.push((word, target.clone()));
                target
            }
            (None, None) => {
                let (home, own) = (&basis.evaluations.home, own_files(basis, suite));
                PlannedTarget {
                    digest: digest_target(suite, home, basis.flow, None, own)?,
                    ..PlannedTarget::default()
                }
            }
        };
        let same = (target.digest.clone(), json::text(&setting.set));
        let count = seen.entry(same).or_default();
        *count += 1;
        target.occurrence = *count;
        targets.push(Rc::new(target));
    }
    Ok(targets)
}

fn plan_agent(basis: &PlanBasis<'_>, suite: &Suite, word: &AgentWord) -> Result<PlannedTarget> {
    let found = (basis.find_agent)(word)?;
    let (mut agent, _) = load::load(&found.dir);
    let takes_seed = |agent: &Agent| agent.llm.parameters.iter().any(|(name, _)| name == "seed");
    if let Some(agent) = &mut agent {
        choose_model(agent)?;
    }
    let chosen = agent.as_ref().filter(|it| it.llm.is_from_environment);
    let dir = found.dir.clone();
    let content = AgentContent::read(found, own_files(basis, suite), basis.signals)?;
    Ok(PlannedTarget {
        digest: content.digest.clone(),
        content: Some(Rc::new(content)),
        model: chosen.and_then(|it| it.llm.model.clone()),
        is_seeded: agent.as_ref().is_some_and(takes_seed),
        name: agent.map(|agent| agent.name),
        agent: Some(dir),
        occurrence: 0,
    })
}

/// Takes the names under which earlier versions recorded the planned trials, where there is no record under their own.
pub(crate) fn keep_earlier_names(
    planned: &mut PlannedSuite<'_>,
    basis: &PlanBasis<'_>,
    record: &mut EvaluationRecord,
) -> Result<()> {
    let known = &record.suite(&planned.suite.name).trials;
    let suite = planned.suite;
    let is_new = |plan: &&mut PlannedTrial<'_>| !known.contains_key(&plan.name);
    let mut of_target = None;
    let all = planned.planned.iter_mut().filter(|_| !known.is_empty());
    for plan in all.filter(is_new) {
        let (setting, chosen, target) = (plan.setting, &plan.chosen, &plan.target);
        let model = target.model_under(setting);
        let mut earlier = Vec::new();
        if model.is_some() {
            earlier.push(own_name(target, setting, chosen, plan.number, None));
        }
        if setting.agent.is_none() {
            if of_target.is_none() {
                let (home, own) = (&basis.evaluations.home, own_files(basis, suite));
                let agent = target.agent.as_deref();
                of_target = Some(digest_target(suite, home, basis.flow, agent, own)?);
            }
            let digest = of_target.as_deref().unwrap_or_default();
            let set = json::text(&setting.set);
            let parts = ["1", digest, &chosen.digest, &setting.name, &set];
            earlier.push(name_trial(chosen.case, plan.number, parts));
        }
        // The person's model was no part of these names: the one that answered decides.
        let is_same = |name: &String| {
            let models = |it: &TrialRecord| it.end.as_ref().map(|end| end.models.clone());
            known.get(name).is_some_and(|it| {
                let models = models(it).unwrap_or_default();
                models.is_empty() || model.is_none_or(|model| models.contains(model))
            })
        };
        if let Some(earlier) = earlier.into_iter().find(is_same) {
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
            duration_ms: found.end.as_ref().map(|end| end.duration_ms.min(MOST)),
            retries: end.retries,
            models: end.models.clone(),
            output_hash: end.output_sha256.clone(),
            execution_ref: found.is_answered().then(|| end.execution_ref.clone()),
            seed: Some(plan.seed.into()),
            scores: grade.iter().flat_map(|it| it.scores.clone()).collect(),
            reason: grade.and_then(|it| it.reason.clone()),
        }
    };
    planned.planned.iter().map(trial).collect()
}
