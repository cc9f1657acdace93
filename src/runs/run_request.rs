//! `run`: chooses the workspace and the run, and begins or resumes it.

use super::allowed_hosts::open_hosts;
use super::decide::{Decision, Naming, Refusal, RunState, Wanted, decide};
use super::find::newest_where;
use super::inspect::{RunSnapshot, inspect_run, is_run_of, of_other_agent};
use super::launch::Launch;
use super::left_behind::left_behind;
use super::open::put_aside;
use super::origin::{require_own, require_own_run};
use super::overrides::{keep_api, load_recorded};
use super::own_search::{OpenMark, find_resumable};
use super::preflight::{add_prices, check_reach, choose_api, read_environment, read_variables};
use super::result::RunResult;
use super::suspended::run_state_of;
use super::task::{GivenMessage, Task};
use super::waiting::{register_again, start_words};
use crate::config::agent::Agent;
use crate::config::environment::Environment;
use crate::engine::account::SpendingRules;
use crate::engine::start_options::{StartOptions, WaitMode};
use crate::error::{Error, Result};
use crate::record::metadata::Metadata;
use crate::record::own_workspaces::{self, workspaces_dir};
use crate::record::reader::JournalSource;
use crate::record::run_dir::RunDir;
use crate::record::workspace::{DecisionLock, Workspace};
use crate::text::ids::RunId;
use crate::text::shorten::in_short;
use crate::text::timestamp::Timestamp;
use crate::unix::signals::Signals;
use crate::unix::terminal::Tone;
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A request to `run`, with the agent loaded.
pub(crate) struct RunRequest<'a> {
    pub agent: &'a Agent,
    /// The command line's overrides of agent.yaml, which the agent already contains.
    pub set: &'a Map<String, Value>,
    pub task: Option<&'a Task>,
    pub work_dir: Option<&'a Path>,
    pub run_id: Option<RunId>,
    pub new: bool,
    pub retry_failed: bool,
    pub adopt: bool,
    /// Take the next workspace without asking.
    pub yes: bool,
    pub options: &'a StartOptions,
    pub signals: Arc<Signals>,
}

/// The place of a run.
pub(crate) enum Site {
    At(Workspace),
    /// In the next free workspace of the agent.
    Next,
}

/// Asks which of the agent's workspaces is meant.
pub(crate) type Choose<'c> = &'c dyn Fn() -> Result<Site>;

/// A run and what is decided about it.
struct Decided {
    found: Option<RunSnapshot>,
    decision: Decision,
}

impl RunRequest<'_> {
    /// Begins or resumes the run that is meant, and works on it until it ends.
    pub(crate) fn execute(&self, choose: Choose<'_>) -> Result<RunResult> {
        for workspace in self.resumable()? {
            if let Some(result) = self.resume_in(&workspace)? {
                return Ok(result);
            }
        }
        let (site, claim) = self.site(choose)?;
        let workspace = match &site {
            Site::At(workspace) => {
                workspace.check_layout()?;
                workspace.check_writable()?;
                require_own(workspace, self.adopt)?;
                if !workspace.control.exists() {
                    self.check_task()?;
                }
                Some(workspace)
            }
            Site::Next => {
                self.check_task()?;
                Workspace::at(&workspaces_dir(&self.agent.home))?.check_writable()?;
                None
            }
        };
        let environment = self.environment(workspace)?;
        let workspace = match site {
            Site::At(workspace) => workspace,
            Site::Next => Workspace::at(&own_workspaces::claim_next(&self.agent.home)?)?,
        };
        self.decide_in(&workspace, &environment, claim)
    }

    /// The decision, the workspace and the run that the command would use. Nothing is created,
    /// asked or locked.
    pub(crate) fn decide_only(&self) -> Result<(Workspace, Option<RunSnapshot>, Decision)> {
        let workspace = match self.resumable()?.into_iter().next() {
            Some(workspace) => workspace,
            None => match self.site_by_name()? {
                Some(workspace) => workspace,
                None => match self.own_site(&|| Ok(Site::Next))? {
                    Site::At(workspace) => workspace,
                    Site::Next => Workspace::at(&own_workspaces::next(&self.agent.home)?)?,
                },
            },
        };
        workspace.check_layout()?;
        require_own(&workspace, false)?;
        let Decided { found, decision } = self.decide(&workspace, false)?;
        match (decision, &found) {
            (Decision::Refuse(Refusal::Failed), _) => Ok((workspace, found, Decision::Reprint)),
            (Decision::Refuse(refusal), found) => {
                Err(self.refusal(refusal, &workspace, found.as_ref()))
            }
            _ => Ok((workspace, found, decision)),
        }
    }

    /// The agent with the overrides that a run was begun with.
    pub(crate) fn agent_of(&self, found: &RunSnapshot) -> Result<(Agent, Map<String, Value>)> {
        let recorded = found.recorded();
        let (mut agent, set) = load_recorded(
            &self.agent.home,
            recorded,
            &self.options.set,
            self.options.screen,
        )?;
        agent.show_text(self.options.has_deltas());
        Ok((agent, set))
    }

    /// The agent's own workspaces that hold what this command was interrupted in.
    fn resumable(&self) -> Result<Vec<Workspace>> {
        match self.task {
            Some(task) if self.work_dir.is_none() && self.run_id.is_none() && !self.new => {
                find_resumable(self.agent, task, self.adopt, self.options.screen)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Resumes the run in a workspace of the agent, unless another process has been faster.
    fn resume_in(&self, workspace: &Workspace) -> Result<Option<RunResult>> {
        workspace.check_writable()?;
        require_own(workspace, self.adopt)?;
        let lock = workspace.lock(&self.signals, self.time_limit())?;
        match self.decide(workspace, self.adopt)? {
            Decided {
                found: Some(found),
                decision: decision @ (Decision::Resume | Decision::Reprint),
            } => {
                let environment = self.environment(Some(workspace))?;
                own_workspaces::remember(&self.agent.home, workspace)?;
                let found = Some(found);
                self.carry_out(Decided { found, decision }, workspace, &environment, lock)
                    .map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Fails if a run cannot begin with the task, before anything is created for it.
    fn check_task(&self) -> Result<()> {
        self.task.map_or(Ok(()), |task| task.text().map(|_| ()))
    }

    /// The environment that the run will have. A model that nothing names may be in the record of a run that is
    /// there: it is looked for once that run is known.
    fn environment(&self, workspace: Option<&Workspace>) -> Result<Environment> {
        let mut agent = self.agent.clone();
        let mut environment = match workspace {
            Some(workspace) if !agent.llm.has_model() && workspace.control.exists() => {
                read_variables(&mut agent, Some(workspace), self.options.screen)?
            }
            _ => read_environment(&mut agent, workspace, self.options.screen)?,
        };
        open_hosts(
            self.agent,
            &mut environment,
            &self.options.doors,
            self.options.screen,
        )?;
        Ok(environment)
    }

    /// The workspace to work in; and, for a run that is named, the lock under which it is looked for.
    fn site(&self, choose: Choose<'_>) -> Result<(Site, Option<DecisionLock>)> {
        let claim = match (self.work_dir, &self.run_id) {
            // The name makes the command idempotent: the workspace that has the run is meant, and no
            // other process may look for it until it is there.
            (None, Some(_)) => {
                own_workspaces::lock_all(&self.agent.home, &self.signals, self.time_limit())?
            }
            _ => None,
        };
        if let Some(workspace) = self.site_by_name()? {
            return Ok((Site::At(workspace), claim));
        }
        Ok((self.own_site(choose)?, claim))
    }

    /// The workspace that is named, or that has the run that is named.
    fn site_by_name(&self) -> Result<Option<Workspace>> {
        if let Some(dir) = self.work_dir {
            return Workspace::at(dir).map(Some);
        }
        let Some(id) = &self.run_id else {
            return Ok(None);
        };
        for name in own_workspaces::numbered(&self.agent.home)? {
            let root = workspaces_dir(&self.agent.home).join(&name);
            if root.join(".delta").join(id.as_str()).is_dir() {
                return Workspace::at(&root).map(Some);
            }
        }
        Ok(None)
    }

    /// One of the agent's own workspaces.
    fn own_site(&self, choose: Choose<'_>) -> Result<Site> {
        let home = &self.agent.home;
        match (self.task, own_workspaces::last_used(home)) {
            (None, Some(name)) => Workspace::at(&workspaces_dir(home).join(name)).map(Site::At),
            (None, None) => Err(Error::usage(
                "nothing to resume: no workspace has been used yet; say what to do with -m MESSAGE",
            )),
            (Some(_), _) if self.yes || self.run_id.is_some() => Ok(Site::Next),
            (Some(_), _) => choose(),
        }
    }

    /// End of the wait for a lock, by the agent's limit of time.
    fn time_limit(&self) -> Option<Instant> {
        self.agent.longest_start().map(|time| Instant::now() + time)
    }

    /// Decides, under the workspace's lock, and does it.
    fn decide_in(
        &self,
        workspace: &Workspace,
        environment: &Environment,
        claim: Option<DecisionLock>,
    ) -> Result<RunResult> {
        if self.task.is_none() && !workspace.control.exists() {
            return Err(self.refusal(Refusal::NoRun, workspace, None));
        }
        let is_new = self.work_dir.is_some() && !workspace.root.exists();
        workspace.create()?;
        if is_new {
            let made = format!("created the workspace {}", workspace.root.display());
            self.options.screen.progress(&[(Tone::Dim, &made)]);
        }
        require_own(workspace, self.adopt)?;
        if self.work_dir.is_none() {
            own_workspaces::remember(&self.agent.home, workspace)?;
        }
        let lock = workspace.lock(&self.signals, self.time_limit())?.and(claim);
        workspace.clear_unborn()?;
        if self.run_id.is_none()
            && let Some(newest) = workspace.newest()?
        {
            workspace.mend_latest(&newest)?;
        }
        let decided = self.decide(workspace, self.adopt)?;
        self.carry_out(decided, workspace, environment, lock)
    }

    fn decide(&self, workspace: &Workspace, adopt: bool) -> Result<Decided> {
        let is_meant = |_: &RunDir, _: JournalSource<'_>, metadata: &Metadata| {
            Ok(is_run_of(metadata, self.agent, self.task))
        };
        let (naming, found) = match &self.run_id {
            Some(id) if !workspace.run_path(id).is_dir() => (Naming::ById, None),
            Some(id) => {
                let found = inspect_run(&RunDir::of(workspace, id))?;
                (Naming::ById, Some(found))
            }
            None if self.new => (Naming::ByText, None),
            None => (Naming::ByText, newest_where(workspace, is_meant)?),
        };
        if let Some(found) = &found {
            require_own_run(&found.run, adopt)?;
        }
        let wanted = Wanted {
            naming,
            has_text: self.task.is_some(),
            new: self.new,
            retry_failed: self.retry_failed,
            interactive: self.options.interactive,
            attends_calls: self.options.patience != WaitMode::End,
        };
        let state = found.as_ref().map(|found| self.state(found));
        Ok(Decided {
            decision: decide(wanted, state),
            found,
        })
    }

    fn state(&self, found: &RunSnapshot) -> RunState {
        run_state_of(found, is_run_of(&found.metadata, self.agent, self.task))
    }

    fn carry_out(
        &self,
        decided: Decided,
        workspace: &Workspace,
        environment: &Environment,
        lock: DecisionLock,
    ) -> Result<RunResult> {
        let begins = matches!(decided.decision, Decision::Begin | Decision::BeginInPlace);
        if begins && !self.agent.llm.has_model() {
            check_reach(
                self.agent,
                environment,
                Some(workspace),
                self.options.screen,
            )?;
        }
        match (decided.decision, decided.found) {
            (Decision::Begin, _) => self.begin(None, workspace, environment, lock),
            (Decision::BeginInPlace, Some(found)) => {
                self.begin(Some(found), workspace, environment, lock)
            }
            (Decision::Resume, Some(found)) => self.resume(found, workspace, environment, lock),
            (Decision::Reprint, Some(found)) => {
                drop(lock);
                let words = start_words(self.options);
                register_again(&found, &self.agent.home, workspace, words);
                found.mend_metadata()?;
                Ok(RunResult::recorded(found))
            }
            (Decision::Refuse(Refusal::Failed), Some(found)) => {
                drop(lock);
                let id = found.run.id.clone();
                let mut result = RunResult::recorded(found);
                result.ending.text = format!(
                    "run {id} has failed before, and its name is taken (--retry-failed renames it): {}",
                    result.ending.text
                );
                Ok(result)
            }
            (Decision::Refuse(refusal), found) => {
                Err(self.refusal(refusal, workspace, found.as_ref()))
            }
            (_, Some(found)) => Err(found.busy()),
            (_, None) => Err(self.refusal(Refusal::NoRun, workspace, None)),
        }
    }

    /// Begins a new run. One in place of a failed run, which is renamed, has its name and message.
    fn begin(
        &self,
        failed: Option<RunSnapshot>,
        workspace: &Workspace,
        environment: &Environment,
        lock: DecisionLock,
    ) -> Result<RunResult> {
        let (id, (message, parts)) = if let Some(failed) = failed {
            let text = failed.metadata.initial_message.clone().unwrap_or_default();
            let parts = failed.metadata.message_parts.clone();
            let message = (GivenMessage::first_of(&failed.run, text), parts);
            let id = failed.run.id.clone();
            let aside = put_aside(workspace, failed)?;
            self.options
                .screen
                .warn(&format!("failed run {id} has been renamed to {aside}"));
            (id, message)
        } else {
            if !self.options.screen.quiet {
                for note in left_behind(workspace)? {
                    self.options.screen.warn(&note);
                }
            }
            let generated = || RunId::generate(Timestamp::now());
            let message = match self.task {
                Some(task) => (task.message()?, task.parts()),
                None => (GivenMessage::default(), None),
            };
            (self.run_id.clone().unwrap_or_else(generated), message)
        };
        let mark = self.mark(workspace)?;
        let mut agent = self.agent.clone();
        environment.choose_api(&mut agent.llm)?;
        add_prices(&mut agent, environment, self.options.screen)?;
        let launch = self.launch(&agent, self.set, workspace, environment)?;
        Ok(launch
            .begin(&id, message, parts, lock)?
            .in_own_workspace(mark))
    }

    fn resume(
        &self,
        found: RunSnapshot,
        workspace: &Workspace,
        environment: &Environment,
        lock: DecisionLock,
    ) -> Result<RunResult> {
        self.mention_changed_files(&found);
        let mark = self.mark(workspace)?;
        let is_same = found.metadata.set == *self.set && self.agent.llm.has_model();
        let (mut agent, set) = if is_same {
            (self.agent.clone(), self.set.clone())
        } else {
            // A run keeps its first model and overrides, and new overrides are added to them.
            self.agent_of(&found)?
        };
        keep_api(&mut agent, &found.source());
        choose_api(&mut agent, environment, self.options.screen)?;
        add_prices(&mut agent, environment, self.options.screen)?;
        if !is_same {
            check_reach(&agent, environment, Some(workspace), self.options.screen)?;
        }
        let launch = self.launch(&agent, &set, workspace, environment)?;
        let result = launch.resume(found, None, None, lock)?;
        Ok(result.in_own_workspace(mark))
    }

    /// Marks a workspace of the agent's own as one in which a run is open.
    fn mark(&self, workspace: &Workspace) -> Result<Option<OpenMark>> {
        match self.work_dir {
            None => OpenMark::set(self.agent, workspace).map(Some),
            Some(_) => Ok(None),
        }
    }

    /// A run goes on with what it began with, also if a file of its message is another one by now.
    fn mention_changed_files(&self, found: &RunSnapshot) {
        let recorded = found.metadata.initial_message.as_deref();
        let changed = |task: &Task| {
            let changed = task.changed_since(recorded.unwrap_or_default(), &found.run.path);
            changed.join(", ")
        };
        let changed = self.task.map(changed).unwrap_or_default();
        if !changed.is_empty() {
            self.options.screen.warn(&format!(
                "changed since run {} began, which goes on with what it read then (--new starts over): {changed}",
                found.run.id
            ));
        }
    }

    fn launch<'l>(
        &'l self,
        agent: &'l Agent,
        set: &'l Map<String, Value>,
        workspace: &'l Workspace,
        environment: &'l Environment,
    ) -> Result<Launch<'l>> {
        Ok(Launch {
            agent,
            workspace,
            environment,
            signals: Arc::clone(&self.signals),
            set,
            options: self.options,
            spending: Some(SpendingRules::of(agent, self.options.budget)?),
        })
    }

    fn refusal(
        &self,
        refusal: Refusal,
        workspace: &Workspace,
        found: Option<&RunSnapshot>,
    ) -> Error {
        let root = workspace.root.display();
        match (refusal, &self.run_id, found) {
            (Refusal::OtherRun, _, Some(found))
                if !is_run_of(&found.metadata, self.agent, None) =>
            {
                of_other_agent(found, self.agent)
            }
            (Refusal::OtherRun, Some(id), Some(found)) => {
                let first = found.metadata.task_words();
                Error::failure(format!(
                    "run {id} exists with another message ('{}'); choose another --run-id, or use `delta continue`",
                    in_short(&first, 60)
                ))
            }
            (Refusal::Ended, _, Some(found)) => Error::usage(format!(
                "nothing to resume: run {} is {}; say what to do with -m MESSAGE",
                found.run.id,
                found.metadata.status.name()
            )),
            (_, Some(id), _) => Error::usage(format!(
                "there is no run {id} here; say what to do with -m MESSAGE"
            )),
            (_, None, _) => Error::usage(format!(
                "nothing to resume in {root}; say what to do with -m MESSAGE"
            )),
        }
    }
}
