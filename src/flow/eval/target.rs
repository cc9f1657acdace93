//! What is tried under each setting of a suite, known by the digest of its content. Everything is read once.
//!
//! Starts no trial; git is asked what it ignores, and for agents of a revision.

use super::load::grader_files;
use super::naming::{AgentDir, digest_agent, digest_target, named_beside};
use super::repository::Git;
use super::selection::PlanSelection;
use super::suite::{AgentWord, Evaluations, Setting, Suite, Target};
use crate::config::agent::Agent;
use crate::config::load;
use crate::error::{Exit, Result};
use crate::flow::manifest::Flow;
use crate::runs::preflight::choose_model;
use crate::text::json;
use crate::unix::signals::Signals;
use crate::unix::terminal::warn;
use rustix::process::geteuid;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A target under a setting.
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
    pub(super) digest: String,
    /// From 1, among settings that try the same with the same `set`.
    pub(super) occurrence: u32,
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

    /// An export that nobody can write to is as it was when it was found.
    fn is_read_only(&self) -> bool {
        let about = self.agent.dir.metadata();
        let is_read_only = about.is_ok_and(|it| it.permissions().readonly());
        self.agent.dir != self.agent.today && is_read_only && !geteuid().is_root()
    }

    fn is_unchanged(&self, signals: &Signals) -> Result<bool> {
        if self.is_read_only() {
            return Ok(true);
        }
        let before = self.digest(&mut |_| Ok(self.ignored.clone()))?;
        // Something that git ignores may have come.
        let is_same = |now: Self| now.digest == self.digest;
        Ok(before == self.digest
            || Self::read(self.agent.clone(), self.own.clone(), signals).is_ok_and(is_same))
    }
}

impl PlannedTarget {
    /// The person's model, unless the setting names another one.
    pub(super) fn model_under(&self, setting: &Setting) -> Option<&String> {
        let model = self.model.as_ref();
        model.filter(|_| !setting.set.contains_key("llm.model"))
    }

    /// False if the files of its agent are no longer those that were planned.
    pub(crate) fn is_unchanged(&self, signals: &Signals) -> bool {
        let content = self.content.as_ref();
        content.is_none_or(|it| it.is_unchanged(signals).unwrap_or(false))
    }
}

/// The basis of a plan.
pub(crate) struct PlanBasis<'p> {
    pub evaluations: &'p Evaluations,
    pub flow: Option<&'p Flow>,
    /// The workspace of the evaluation; nothing in it belongs to a target.
    pub root: &'p Path,
    pub signals: &'p Signals,
    /// Finds the directory of an agent.
    pub find_agent: &'p dyn Fn(&AgentWord) -> Result<AgentDir>,
}

impl PlanBasis<'_> {
    /// The files of an evaluation, none of which belongs to what is tried.
    pub(super) fn own_files(&self, suite: &Suite) -> Vec<PathBuf> {
        let mut own = grader_files(&self.evaluations.home, suite);
        own.extend([self.root.join("eval"), self.root.join(".delta")]);
        own
    }
}

/// Reads the targets of suites.
pub(super) struct TargetReader<'p> {
    pub basis: &'p PlanBasis<'p>,
    /// By their words.
    dirs: HashMap<&'p str, AgentDir>,
    agents: Vec<PlannedTarget>,
}

impl<'p> TargetReader<'p> {
    pub(super) fn new(basis: &'p PlanBasis<'p>) -> Self {
        Self {
            basis,
            dirs: HashMap::new(),
            agents: Vec::new(),
        }
    }

    /// The settings of a suite that are chosen, with what is tried under them.
    pub(super) fn targets(
        &mut self,
        suite: &'p Suite,
        selection: &PlanSelection,
    ) -> Result<Vec<(&'p Setting, Rc<PlannedTarget>)>> {
        let own = self.basis.own_files(suite);
        let mut seen: HashMap<(String, String), u32> = HashMap::new();
        let mut targets = Vec::new();
        for (at, setting) in suite.settings.iter().enumerate() {
            let is_meant = selection.has_setting(setting);
            // One that is not chosen matters only if it may try the same as a later one.
            let may_be_same = |it: &Setting| selection.has_setting(it) && it.set == setting.set;
            if !suite.settings[at..].iter().any(may_be_same) {
                continue;
            }
            let mut target = match self.target(suite, setting, &own) {
                Err(error) if !is_meant && matches!(error.exit, Exit::Config | Exit::Usage) => {
                    continue;
                }
                found => found?,
            };
            let same = (target.digest.clone(), json::text(&setting.set));
            let count = seen.entry(same).or_default();
            *count += 1;
            target.occurrence = *count;
            if is_meant {
                targets.push((setting, Rc::new(target)));
            }
        }
        Ok(targets)
    }

    fn target(
        &mut self,
        suite: &'p Suite,
        setting: &'p Setting,
        own: &[PathBuf],
    ) -> Result<PlannedTarget> {
        let basis = self.basis;
        let word = match (&setting.agent, &suite.target) {
            (Some(agent), _) | (None, Target::Agent(agent)) => agent,
            (None, Target::Flow | Target::Command(_)) => {
                let home = &basis.evaluations.home;
                return Ok(PlannedTarget {
                    digest: digest_target(suite, home, basis.flow, None, own.to_vec())?,
                    ..PlannedTarget::default()
                });
            }
        };
        let found = match self.dirs.get(&*word.word) {
            Some(found) => found.clone(),
            None => {
                let found = (basis.find_agent)(word)?;
                self.dirs.insert(&word.word, found.clone());
                found
            }
        };
        let is_same = |it: &&PlannedTarget| {
            let content = it.content.as_ref();
            content.is_some_and(|it| it.agent.dir == found.dir && it.own == own)
        };
        if let Some(known) = self.agents.iter().find(is_same) {
            return Ok(known.clone());
        }
        let (mut agent, _) = load::load(&found.dir);
        let takes_seed =
            |agent: &Agent| agent.llm.parameters.iter().any(|(name, _)| name == "seed");
        if let Some(agent) = &mut agent {
            choose_model(agent)?;
        }
        let chosen = agent.as_ref().filter(|it| it.llm.is_from_environment);
        let dir = found.dir.clone();
        let content = AgentContent::read(found, own.to_vec(), basis.signals)?;
        let target = PlannedTarget {
            digest: content.digest.clone(),
            content: Some(Rc::new(content)),
            model: chosen.and_then(|it| it.llm.model.clone()),
            is_seeded: agent.as_ref().is_some_and(takes_seed),
            name: agent.map(|agent| agent.name),
            agent: Some(dir),
            occurrence: 0,
        };
        self.agents.push(target.clone());
        Ok(target)
    }
}
