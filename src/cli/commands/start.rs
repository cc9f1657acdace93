//! Starting the engine on a run, new or taken up, and telling how it ended.

use super::wrapper;
use crate::cli::args::{Common, Format};
use crate::cli::result;
use crate::config::agent::{Agent, Problem, Severity};
use crate::config::environment::{Environment, PUBLIC_ENDPOINT};
use crate::config::{load, resolved};
use crate::engine::run_context::{self, RunContext};
use crate::engine::run_loop::{Ending, Engine, Options};
use crate::error::{At, Error, Exit, Result};
use crate::model::ask::Model;
use crate::model::http::Http;
use crate::model::program::Program;
use crate::record::engine_log::{Level, Log};
use crate::record::event::{Event, VERSION};
use crate::record::journal::Journal;
use crate::record::metadata::{Metadata, Status};
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading};
use crate::record::workspace::{DecisionLock, Workspace};
use crate::text::ids::RunId;
use crate::text::timestamp::Timestamp;
use crate::unix::procfs::{self, CALL_ID, Signals};
use crate::unix::terminal::{Screen, Tone};
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;

/// What is needed to run an agent in a workspace.
pub(crate) struct Stage<'a> {
    /// The agent.
    pub agent: &'a Agent,
    /// Where it works.
    pub workspace: &'a Workspace,
    /// The variables.
    pub environment: &'a Environment,
    /// The process's signals.
    pub signals: Arc<Signals>,
    /// What was asked for.
    pub common: &'a Common,
    /// Where progress is told.
    pub screen: Screen,
    /// Keys of agent.yaml that the run sets otherwise; the agent has them already.
    pub set: &'a Map<String, Value>,
    /// Pass over damage, and over a lock that another host may hold.
    pub force: bool,
}

/// Installs the signal handlers. A run that is another run's tool ends when that run's engine does.
pub(crate) fn signals() -> Result<Arc<Signals>> {
    let mut signals = Signals::install().map_err(|e| {
        Error::failure(format!(
            "cannot catch signals: {}",
            crate::error::reason(&e)
        ))
    })?;
    let parent = std::env::var(run_context::ENGINE_PID).ok();
    if let Some(pid) = parent.and_then(|pid| pid.parse().ok())
        && !signals.end_with(pid)
        && let Some(run) = std::env::var_os("DELTA_RUN_DIR")
        && !Journal::is_owned(&Path::new(&run).join("journal.jsonl"))
    {
        // Its number may mean nothing here, in another pid namespace; that nobody owns its run does.
        return Err(Error::new(
            Exit::Terminate,
            format!(
                "the engine that started this one (pid {pid}) is gone; to start a run of its own from here, \
             unset {}",
                run_context::ENGINE_PID
            ),
        ));
    }
    Ok(Arc::new(signals))
}

/// Passes on what came of a command. An error is told as an object, if one was asked for.
pub(crate) fn told(done: Result<Exit>, common: &Common) -> Result<Exit> {
    let done = done.map_err(Error::of_run);
    if let Err(error) = &done
        && common.format == Format::Json
    {
        result::error(error)?;
    }
    done
}

/// The run whose tool this process is.
pub(crate) fn parent_run() -> Option<String> {
    let id = std::env::var("DELTA_RUN_ID").ok();
    id.filter(|id| RunId::parse(id).is_ok())
}

/// The call of that run that this process belongs to.
pub(crate) fn parent_call() -> Option<String> {
    parent_run().and_then(|_| std::env::var(CALL_ID).ok())
}

/// Refuses to nest too deep.
pub(crate) fn check_depth() -> Result<()> {
    let (depth, max) = run_context::depth();
    if depth > max {
        return Err(Error::failure(format!(
            "this run would be nested {depth} deep, and the limit is {max} (DELTA_MAX_DEPTH); \
             do the work here instead of starting another agent"
        )));
    }
    Ok(())
}

/// Reads an agent with the keys of agent.yaml that a run overrides, prints its warnings, and fails with
/// all its errors.
pub(crate) fn agent_with(dir: &Path, set: &Map<String, Value>, screen: Screen) -> Result<Agent> {
    let (agent, problems) = load::load_with(dir, set);
    for problem in &problems {
        if matches!(problem.severity, Severity::Warning | Severity::Deprecation) && !screen.quiet {
            screen.warn(&problem.to_string());
        }
    }
    agent.ok_or_else(|| {
        let errors = problems.iter().filter(|p| p.severity == Severity::Error);
        let lines: Vec<String> = errors.map(Problem::to_string).collect();
        Error::config(lines.join("\n"))
    })
}

/// Reads the environment of a workspace, tells its warnings, and fails if it lacks what the agent needs.
pub(crate) fn environment(
    agent: &Agent,
    workspace: Option<&Workspace>,
    screen: Screen,
) -> Result<Environment> {
    let (environment, warnings) = Environment::read(
        &agent.home,
        workspace.map(|workspace| workspace.root.as_path()),
    )?;
    for warning in warnings {
        screen.warn(&format!("warning: {warning}"));
    }
    // Before anything is created.
    check_reach(agent, &environment, workspace)?;
    Ok(environment)
}

/// Fails if the model or a wrapper cannot be had.
pub(crate) fn check_reach(
    agent: &Agent,
    environment: &Environment,
    workspace: Option<&Workspace>,
) -> Result<()> {
    if agent.llm.command.is_none() {
        environment.endpoint(agent.llm.base_url.as_deref())?;
    }
    wrapper::check(agent, environment, workspace)
}

/// The message, read from stdin if it is `-`.
pub(crate) fn message(common: &Common, signals: &Signals) -> Result<Option<String>> {
    if common.message.as_deref() != Some("-") {
        return Ok(common.message.clone());
    }
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = signals.read(std::io::stdin(), &mut buffer).map_err(|e| {
            let reason = crate::error::reason(&e);
            Error::usage(format!("cannot read the message from stdin: {reason}"))
        })?;
        match (read, signals.stop()) {
            (Some(0), _) => break,
            (Some(read), _) => bytes.extend_from_slice(&buffer[..read]),
            (None, Some(stop)) => {
                let message = format!("{} while reading the message", stop.name());
                return Err(Error::new(stop.into(), message));
            }
            (None, None) => {}
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| Error::usage("the message is not UTF-8"))?;
    let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
    if text.is_empty() {
        return Err(Error::usage("the message given with -m - is empty"));
    }
    Ok(Some(text))
}

impl Stage<'_> {
    /// The limit of iterations of this start.
    pub(crate) fn max_iterations(&self) -> u64 {
        self.common
            .max_iterations
            .unwrap_or(self.agent.max_iterations)
    }

    /// Starts a new run.
    pub(crate) fn begin(&self, id: &RunId, message: &str, lock: DecisionLock) -> Result<Exit> {
        let config = resolved::resolved(self.agent, self.max_iterations());
        let now = Timestamp::now().to_string();
        let metadata = Metadata {
            run_id: id.to_string(),
            workspace_id: self.workspace.id(),
            agent_name: self.agent.name.clone(),
            created_at: now,
            initial_message: Some(message.to_owned()),
            parent_run_id: parent_run(),
            parent_call_id: parent_call(),
            ..Metadata::default()
        };
        let metadata = self.started(metadata);
        let (run, journal) = RunDir::create(self.workspace, id, &metadata, |journal| {
            journal.add(0, &start_event(&metadata, message, &config, false));
            journal.add(0, &Event::UserMessage { content: message });
            Ok(())
        })?;
        drop(lock);
        self.engine(run, journal, metadata, (None, true))
    }

    /// Metadata of a run that this process works on from now on.
    pub(crate) fn started(&self, mut metadata: Metadata) -> Metadata {
        let now = Timestamp::now().to_string();
        metadata.status = Status::Running;
        metadata.agent_name.clone_from(&self.agent.name);
        metadata.start_time.clone_from(&now);
        metadata.updated_at = now;
        metadata.end_time = None;
        metadata.max_iterations = self.max_iterations();
        (metadata.error, metadata.result) = (None, None);
        (metadata.stop_reason, metadata.exit_code) = (None, None);
        metadata.agent_home = self.agent.home.to_string_lossy().into_owned();
        metadata.work_dir = self.workspace.root.to_string_lossy().into_owned();
        metadata.pid = std::process::id();
        metadata.hostname = procfs::hostname();
        VERSION.clone_into(&mut metadata.delta_version);
        metadata.set.clone_from(self.set);
        metadata
    }

    /// Lets the engine work on a run, and tells how it ended.
    pub(crate) fn engine(
        &self,
        run: RunDir,
        journal: Journal,
        metadata: Metadata,
        (answer, is_ours): (Option<String>, bool),
    ) -> Result<Exit> {
        let ctx = self.around(&run);
        let (model, described) = self.model(&ctx)?;
        self.screen.progress(&[(
            Tone::Dim,
            &format!(
                "run {} in {}, {described}",
                run.id,
                self.workspace.root.display()
            ),
        )]);
        let options = Options {
            interactive: self.common.interactive,
            max_iterations: self.max_iterations(),
            screen: self.screen,
            lenient: self.force,
            answer,
            is_ours,
        };
        let engine = Engine::new(ctx, journal, metadata, options, model)?;
        let ended = engine.run();
        let question = match ended.ending.status {
            Status::WaitingForInput => question_in(&run)?,
            _ => None,
        };
        let told = self.tell(&ended.ending, &ended.metadata, &run, question.as_ref());
        if told.is_ok() {
            ended.seal();
        }
        told
    }

    /// A run's surroundings.
    pub(crate) fn around(&self, run: &RunDir) -> RunContext<'_> {
        RunContext {
            signals: Arc::clone(&self.signals),
            agent: self.agent,
            workspace: self.workspace,
            run: run.clone(),
            environment: self.environment,
            depth: run_context::depth().0,
            log: self.log(run),
        }
    }

    fn log(&self, run: &RunDir) -> Log {
        let level = match self.environment.get("DELTA_LOG") {
            Some(name) => Level::named(&name).unwrap_or_else(|| {
                self.screen.warn(&format!(
                    "warning: DELTA_LOG={name} is none of debug, info, warn, error; info is meant"
                ));
                Level::default()
            }),
            None => Level::default(),
        };
        Log::new(run.log(), level, self.environment.key())
    }

    /// Tells how a run ended.
    pub(crate) fn tell(
        &self,
        ending: &Ending,
        metadata: &Metadata,
        run: &RunDir,
        question: Option<&crate::engine::question::Question>,
    ) -> Result<Exit> {
        result::explain(self.screen, ending, metadata, run);
        result::ending(self.common.format, ending, metadata, question)?;
        Ok(ending.exit)
    }

    fn model<'m>(&'m self, ctx: &RunContext<'_>) -> Result<(Model<'m>, String)> {
        let llm = &self.agent.llm;
        if let Some(command) = &llm.command {
            let argv = ctx.argv(command);
            let described = format!("model {}", argv[0]);
            let program = Program {
                dir: &self.workspace.root,
                env: ctx.model_variables(),
                timeout: llm.timeout,
                engine_call: RunContext::engine_call(),
                log: ctx.run.log(),
                grace: ctx.grace(),
                argv,
            };
            return Ok((Model::Command(program), described));
        }
        let endpoint = self.environment.endpoint(llm.base_url.as_deref())?;
        let model = llm.model.as_deref().unwrap_or_default();
        let at = match endpoint.base_url.as_str() {
            PUBLIC_ENDPOINT => String::new(),
            url => format!(" at {url}"),
        };
        let http = Http::new(endpoint, llm.timeout, &self.signals);
        Ok((Model::Http(http), format!("model {model}{at}")))
    }
}

/// The event of a start that the metadata tells of.
pub(crate) fn start_event<'e>(
    metadata: &'e Metadata,
    task: &'e str,
    config: &'e [u8],
    resumed: bool,
) -> Event<'e> {
    Event::EngineStart {
        run_id: &metadata.run_id,
        agent_home: &metadata.agent_home,
        work_dir: &metadata.work_dir,
        task,
        config_json: config,
        hostname: &metadata.hostname,
        call_id: RunContext::engine_call(),
        resumed,
        parent_run_id: metadata.parent_run_id.as_deref(),
        parent_call_id: metadata.parent_call_id.as_deref(),
        forked_from: metadata.forked_from.as_ref(),
        set: &metadata.set,
    }
}

fn question_in(run: &RunDir) -> Result<Option<crate::engine::question::Question>> {
    let path = run.journal();
    let bytes = crate::unix::files::read_regular(&path).at("read", &path)?;
    let lenient = Reading {
        lenient: true,
        window: None,
    };
    Ok(state::read(&bytes, lenient)
        .ok()
        .and_then(|state| result::open_question(&state)))
}

/// How a run that has ended is told again.
pub(crate) fn ending_of(metadata: &Metadata) -> Ending {
    let exit = match metadata.status {
        Status::Completed => Exit::Success,
        Status::WaitingForInput => Exit::Waiting,
        Status::Failed => Exit::Failure,
        Status::Interrupted | Status::Running => Exit::TempFail,
    };
    let text = match metadata.status {
        Status::Completed => metadata.result.clone(),
        _ => metadata.error.clone(),
    };
    Ending {
        status: metadata.status,
        stop_reason: metadata.stop_reason.clone().unwrap_or_default(),
        exit,
        text: text.unwrap_or_default(),
    }
}

/// The first line of a text, for messages.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", crate::unix::terminal::in_short(text, 60))
}
