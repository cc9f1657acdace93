//! Starting the engine on a run, new or resumed.

use super::inspect::RunSnapshot;
use super::open::{OpenRun, RunStart, first_metadata};
use super::result::RunResult;
use super::task::GivenMessage;
use super::waiting::{registration, resume_words, start_words};
use crate::config::agent::{Agent, Fallback, Llm};
use crate::config::environment::{Endpoint, Environment, without_secrets};
use crate::config::resolved::render_resolved;
use crate::engine::account::SpendingRules;
use crate::engine::due::Registration;
use crate::engine::question::HumanAnswer;
use crate::engine::run_context::{self, NO_FALLBACK, RunContext};
use crate::engine::run_loop::{Chain, Engine, EngineStart, FallbackModel};
use crate::engine::start_options::StartOptions;
use crate::error::{Exit, Result, ignore};
use crate::model::ask::Model;
use crate::model::http::Http;
use crate::model::program::Program;
use crate::record::engine_log::{Level, Log};
use crate::record::event::EndEvent;
use crate::record::journal::Journal;
use crate::record::metadata::{Metadata, Status};
use crate::record::run_dir::RunDir;
use crate::record::workspace::{DecisionLock, Workspace, place_of};
use crate::text::ids::RunId;
use crate::text::shell::shell_quoted;
use crate::unix::signals::Signals;
use crate::unix::terminal::Tone;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// The agent, the run and the settings of an engine's start.
pub(crate) struct Launch<'a> {
    pub agent: &'a Agent,
    pub workspace: &'a Workspace,
    pub environment: &'a Environment,
    pub signals: Arc<Signals>,
    /// Keys of agent.yaml that the run overrides; the agent has them already.
    pub set: &'a Map<String, Value>,
    pub options: &'a StartOptions,
    /// None: nothing is spent.
    pub spending: Option<SpendingRules>,
}

impl Launch<'_> {
    /// The limit of iterations of this start.
    fn max_iterations(&self) -> u64 {
        self.options
            .max_iterations
            .unwrap_or(self.agent.max_iterations)
    }

    /// The configuration of this start, for the record.
    fn config(&self) -> Vec<u8> {
        let budget = self
            .spending
            .as_ref()
            .map_or(self.agent.budget, |rules| rules.budget);
        let deadline = self.signals.deadline();
        let mut agent = Cow::Borrowed(self.agent);
        if leaves_out_fallback(&agent, self.environment) {
            agent.to_mut().llm.leave_out_fallback();
        }
        render_resolved(&agent, self.max_iterations(), &budget, deadline)
    }

    /// Begins a new run.
    pub(crate) fn begin(
        &self,
        id: &RunId,
        message: GivenMessage,
        parts: Option<Value>,
        lock: DecisionLock,
    ) -> Result<RunResult> {
        let metadata = Metadata {
            message_parts: parts,
            ..first_metadata(id, self.workspace, &message.text)
        };
        let open = self.start().begin(id, metadata, None, |journal| {
            let staging = self.workspace.staging_dir();
            message.record(self.workspace, &staging, journal, 0)
        })?;
        drop(lock);
        self.run_engine(open, None, None)
    }

    /// Resumes a run. `message` goes to the model, `answer` answers a question.
    pub(crate) fn resume(
        &self,
        found: RunSnapshot,
        message: Option<GivenMessage>,
        answer: Option<HumanAnswer>,
        lock: DecisionLock,
    ) -> Result<RunResult> {
        let task = found.metadata.initial_message.clone().unwrap_or_default();
        let (mut resumes_at, mut was_open) = (0, Vec::new());
        let run = found.run.path.clone();
        let open = self.start().resume(found, Vec::new(), |journal, state| {
            // The last iteration, if a call of it is open, else the next.
            let thought = state.last_thought();
            let is_open =
                thought.is_some_and(|it| it.calls.iter().any(|call| call.result.is_none()));
            resumes_at = state.iterations + u64::from(!is_open);
            was_open = state.start.allow_hosts();
            // The engine may have died before the first message was in the journal.
            let is_unsaid = state.turns.is_empty() && !task.is_empty();
            let unsaid = is_unsaid.then(|| GivenMessage::of_text(&task));
            let mut said = unsaid.into_iter().chain(message);
            said.try_for_each(|message| {
                message.record(self.workspace, &run, journal, state.iterations)
            })
        })?;
        drop(lock);
        self.run_engine(open, answer, Some((resumes_at, was_open)))
    }

    /// This start, for the record.
    pub(crate) fn start(&self) -> RunStart<'_> {
        RunStart {
            workspace: self.workspace,
            signals: &self.signals,
            screen: self.options.screen,
            program: "delta",
            name: self.agent.name.clone(),
            home: &self.agent.home,
            task: None,
            config: self.config(),
            force: self.options.force,
            describe: Box::new(|metadata| {
                metadata.max_iterations = self.max_iterations();
                metadata.set.clone_from(self.set);
                metadata.allow_hosts = self.environment.allowed_hosts();
            }),
        }
    }

    /// Lets the engine work on a run until it ends.
    pub(crate) fn run_engine(
        &self,
        open: OpenRun,
        answer: Option<HumanAnswer>,
        resumed: Option<(u64, Vec<String>)>,
    ) -> Result<RunResult> {
        let OpenRun {
            run,
            mut journal,
            metadata,
            record,
            is_ours,
        } = open;
        let ctx = self.context(&run);
        if let Some(feed) = &self.options.feed {
            feed.note_in(&ctx.log);
            feed.begin(Some((run.id.as_str(), &metadata.work_dir)));
            journal.feed(Rc::clone(feed), &record);
        }
        let agents = with_fallbacks(self.agent);
        let (mut model, name) = self.first_model(&ctx)?;
        let closed = self.closed_hosts(resumed.as_ref());
        if !self.options.is_chat {
            let place = place_of(&self.workspace.root);
            let at = resumed
                .as_ref()
                .map_or_else(String::new, |(at, _)| format!(", resumes at [{at}]"));
            let open = match &*self.environment.allowed_hosts() {
                [] => String::new(),
                open => format!(", open: {}", shell_quoted(open)),
            };
            let head = format!("run {}{place}, model {name}{at}{open}{closed}", run.id);
            self.options.screen.progress(&[(Tone::Dim, &head)]);
        } else if let Some(note) = closed.strip_prefix(", ") {
            self.options.screen.progress(&[(Tone::Dim, note)]);
        }
        let start = EngineStart {
            options: self.options,
            answer,
            is_ours,
            spending: self.spending.clone(),
            resume_words: resume_words(self.set, &self.agent.home, self.workspace),
            registration: self.registration(&metadata),
            known_calls: Rc::default(),
        };
        let mut others = self.candidates(&ctx, &agents);
        if !others.is_empty() {
            // None may print what another was given.
            let models = others.iter_mut().filter_map(|it| it.model.as_mut());
            for model in models.chain([&mut model]) {
                if let Model::Http(http) = model {
                    http.redact_also(self.environment.secrets());
                }
            }
        }
        let chain = Chain::new(name, others);
        if let Some(registration) = &start.registration {
            registration.note_start();
        }
        let engine = Engine::new(&ctx, journal, record, metadata, start, model, chain)?;
        RunResult::of_engine(engine.run())
    }

    /// The hosts that a resumed run had open and this start has not, in words: a record opens none.
    fn closed_hosts(&self, resumed: Option<&(u64, Vec<String>)>) -> String {
        let open = self.environment.allowed_hosts();
        let before = resumed.into_iter().flat_map(|(_, before)| before);
        let closed: Vec<String> = before.filter(|it| !open.contains(it)).cloned().collect();
        match &*closed {
            [] => String::new(),
            closed => format!(", no longer open (--allow-host): {}", shell_quoted(closed)),
        }
    }

    fn registration(&self, metadata: &Metadata) -> Option<Registration> {
        registration(
            metadata,
            &self.agent.home,
            self.workspace,
            start_words(self.options),
        )
    }

    /// The context of a run's programs.
    pub(crate) fn context(&self, run: &RunDir) -> RunContext<'_> {
        RunContext {
            signals: Arc::clone(&self.signals),
            agent: self.agent,
            workspace: self.workspace,
            run: run.clone(),
            environment: self.environment,
            depth: run_context::depth().0,
            log: Rc::new(self.log(run)),
            ledgers: RefCell::default(),
        }
    }

    fn log(&self, run: &RunDir) -> Log {
        let level = match self.environment.get("DELTA_LOG") {
            Some(name) => Level::from_name(&name).unwrap_or_else(|| {
                self.options.screen.warn(&format!(
                    "warning: DELTA_LOG={name} is not one of debug, info, warn, error; using info"
                ));
                Level::default()
            }),
            None => Level::default(),
        };
        Log::new(run.log(), level, self.environment.secrets())
    }

    /// A model that an agent of this start names, and its name with that of its service.
    fn model<'m>(
        &'m self,
        ctx: &RunContext<'_>,
        llm: &Llm,
        endpoint: impl FnOnce() -> Result<Endpoint>,
    ) -> Result<(Model<'m>, String)> {
        if let Some(command) = &llm.command {
            let argv = ctx.argv(command);
            let name = argv[0].clone();
            let program = Program {
                dir: &self.workspace.root,
                env: ctx.model_variables(),
                timeout: llm.timeout,
                engine_call: RunContext::engine_call(),
                log: ctx.run.log(),
                secrets: self.environment.secrets(),
                grace: ctx.grace(),
                argv,
            };
            return Ok((Model::Command(program), name));
        }
        let endpoint = endpoint()?;
        let name = service_name(llm, Some(&endpoint.base_url));
        Ok((Model::Http(Http::new(endpoint, llm, &self.signals)), name))
    }

    /// The first model of this start.
    fn first_model<'m>(&'m self, ctx: &RunContext<'_>) -> Result<(Model<'m>, String)> {
        let llm = &self.agent.llm;
        let (model, name) = self.model(ctx, llm, || {
            self.environment
                .endpoint(llm.api, llm.base_url.as_deref(), &llm.headers)
        })?;
        if let Model::Http(http) = &model
            && let Some(why) = http.rate().and_then(|rate| rate.objection.as_deref())
        {
            self.options.screen.warn(why);
        }
        Ok((model, name))
    }

    /// The models that are asked in place of the first, of [`with_fallbacks`].
    pub(crate) fn candidates<'m>(
        &'m self,
        ctx: &RunContext<'_>,
        agents: &'m [Agent],
    ) -> VecDeque<FallbackModel<'m>> {
        let chain = agents.iter().zip(&self.agent.llm.fallback);
        chain
            .map(|(agent, entry)| self.candidate(ctx, agent, entry))
            .collect()
    }

    /// A model that is asked in place of the first: that of this agent.
    fn candidate<'m>(
        &'m self,
        ctx: &RunContext<'_>,
        agent: &'m Agent,
        entry: &'m Fallback,
    ) -> FallbackModel<'m> {
        let llm = &agent.llm;
        let main = &self.agent.llm;
        let found = self.model(ctx, llm, || self.environment.fallback_endpoint(entry, main));
        let rules = self.spending.as_ref().map(|rules| rules.of_fallback(agent));
        let spending = rules.transpose();
        let name = match &found {
            Ok((_, name)) => name.clone(),
            Err(_) => service_name(llm, llm.base_url.as_deref()),
        };
        let obstacle = found.as_ref().err().map(|error| error.message.clone());
        FallbackModel {
            agent,
            name,
            after: &entry.after,
            obstacle: obstacle.or_else(|| spending.clone().err()),
            model: found.ok().map(|(model, _)| model),
            spending: spending.unwrap_or_default(),
        }
    }
}

/// True if the environment keeps an agent from asking other models in place of the first.
pub(crate) fn leaves_out_fallback(agent: &Agent, environment: &Environment) -> bool {
    environment.chooses_endpoint(&agent.llm) || std::env::var_os(NO_FALLBACK).is_some()
}

/// The agent with each of the models that are asked in place of the first.
pub(crate) fn with_fallbacks(agent: &Agent) -> Vec<Agent> {
    let each = agent.llm.fallback.iter();
    let with = |entry: &Fallback| Agent {
        llm: entry.llm.clone(),
        ..agent.clone()
    };
    each.map(with).collect()
}

/// A model's name, with its endpoint unless that is the vendor's own.
pub(crate) fn service_name(llm: &Llm, base_url: Option<&str>) -> String {
    let model = llm.model.as_deref().unwrap_or_default();
    match base_url {
        Some(url) if url != llm.api.public_endpoint() => {
            format!("{model} at {}", without_secrets(url))
        }
        _ => model.to_owned(),
    }
}

/// The end of a start of a flow's engine or of an evaluation.
pub(crate) struct EngineOutcome<'a> {
    pub status: Status,
    pub reason: &'a str,
    pub exit: Exit,
    pub text: String,
}

/// Records how a start of a flow's engine or of an evaluation ended. A disk without room must not keep the rest
/// from being recorded.
pub(crate) fn record_end(
    journal: &mut Journal,
    metadata: &mut Metadata,
    outcome: EngineOutcome<'_>,
) {
    let EngineOutcome {
        status,
        reason,
        exit,
        text,
    } = outcome;
    let (result, error) = status.result_or_error(&*text);
    journal.add(
        0,
        &EndEvent {
            run_id: &metadata.run_id,
            status: status.name(),
            stop_reason: reason,
            exit_code: exit.code(),
            final_iteration: 0,
            engine_ms: None,
            result,
            error,
        },
    );
    ignore(journal.sync());
    metadata.end(status, reason, exit, text);
}
