//! Surroundings of every program that the engine starts for a run: where it runs, which
//! variables it sees, how its processes are named.

use crate::config::agent::Agent;
use crate::config::environment::{DEPTH, Environment};
use crate::config::tool::bind::{BaseDirs, fill_words};
use crate::config::tool::definition::{Tool, Word};
use crate::engine::outbox;
use crate::error::Result;
use crate::mcp::servers::read_servers;
use crate::record::engine_log::Log;
use crate::record::execution::EXECUTION_DIR;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::text::ids::hex;
use crate::text::timestamp::Timestamp;
use crate::unix::process::{GRACE, Variable};
use crate::unix::procfs::{self, CALL_ID};
use crate::unix::signals::Signals;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Limit of the nesting of runs unless `DELTA_MAX_DEPTH` says otherwise.
const DEFAULT_MAX_DEPTH: u32 = 8;

/// Within this time after it was asked to end, the engine has run its last hooks.
const LAST_HOOKS: Duration = Duration::from_millis(2600);

/// The variable that names the process of the engine that started a program.
pub(crate) const ENGINE_PID: &str = "DELTA_ENGINE_PID";

/// The variable that says when a run that another started is to have ended.
pub(crate) const DEADLINE: &str = "DELTA_DEADLINE";

/// The variable by which a run finds the ledgers of the runs around it, the outermost first.
pub(crate) const LEDGERS: &str = "DELTA_LEDGERS";

/// Set in trials of evaluations: the limits of an agent count over all starts of a run.
pub(crate) const LASTING_LIMITS: &str = "DELTA_LASTING_LIMITS";

/// Set in trials of evaluations that measure the first model alone.
pub(crate) const NO_FALLBACK: &str = "DELTA_NO_FALLBACK";

/// A run's surroundings.
pub(crate) struct RunContext<'a> {
    /// The process's signals.
    pub signals: Arc<Signals>,
    /// The agent.
    pub agent: &'a Agent,
    /// The directory of programs.
    pub workspace: &'a Workspace,
    /// The run.
    pub run: RunDir,
    /// The variables of `.env` files, and the key.
    pub environment: &'a Environment,
    /// Depth of this run; 0 for one that a person started.
    pub depth: u32,
    /// The run's engine.log.
    pub log: Rc<Log>,
    /// The value of [`LEDGERS`] for the run's programs. None if nothing is spent here.
    pub ledgers: RefCell<Option<String>>,
}

impl RunContext<'_> {
    /// The value of `AGENT_HOME`.
    pub(crate) fn home(&self) -> &str {
        text(&self.agent.visible_home)
    }

    /// The workspace.
    pub(crate) fn cwd(&self) -> &str {
        text(&self.workspace.root)
    }

    /// The directories that a tool's words can name.
    pub(crate) fn places(&self) -> BaseDirs<'_> {
        BaseDirs {
            home: self.home(),
            cwd: self.cwd(),
        }
    }

    /// Words without parameters as an argv.
    pub(crate) fn argv(&self, words: &[Word]) -> Vec<String> {
        fill_words(words, &self.places())
    }

    /// A path of context.yaml, which may be that of one of the agent's files.
    pub(crate) fn place(&self, word: &Word) -> String {
        let dirs = BaseDirs {
            home: text(&self.agent.home),
            ..self.places()
        };
        fill_words(std::slice::from_ref(word), &dirs).concat()
    }

    /// The variables that a program sees beside those of this process.
    pub(crate) fn variables(&self, pass_key: bool) -> Vec<Variable> {
        self.with_own(self.environment.for_child(pass_key))
    }

    /// The variables of a tool.
    pub(crate) fn tool_variables(&self, tool: &Tool) -> Vec<Variable> {
        let command: Vec<&str> = tool.command.iter().map_while(Word::as_fixed).collect();
        let server = match command.as_slice() {
            ["delta", "mcp", "call", server, ..] => Some(*server),
            _ => None,
        };
        if tool.is_check {
            return self.variables(false);
        }
        self.with_own(self.environment.for_tool(tool.pass_api_key, server))
    }

    /// The variables of a program that is the model.
    pub(crate) fn model_variables(&self) -> Vec<Variable> {
        self.with_own(self.environment.for_model())
    }

    fn with_own(&self, mut variables: Vec<Variable>) -> Vec<Variable> {
        let run = text(&self.run.path);
        let depth = self.depth.saturating_add(1).to_string();
        let pid = std::process::id().to_string();
        let own = [
            ("AGENT_HOME", self.home()),
            ("CWD", self.cwd()),
            ("DELTA_AGENT_HOME", self.home()),
            ("DELTA_CWD", self.cwd()),
            ("DELTA_RUN_ID", self.run.id.as_str()),
            ("DELTA_RUN_DIR", run),
            (DEPTH, &depth),
            (ENGINE_PID, &pid),
        ];
        let own = own
            .into_iter()
            .map(|(name, value)| (name.to_owned(), Some(value.to_owned())));
        variables.extend(own);
        variables.push(("PATH".to_owned(), Some(self.environment.search_path())));
        variables.push(self.environment.hosts_variable());
        // That of the call that this run is part of; a tool gets its own.
        variables.push((EXECUTION_DIR.to_owned(), None));
        // That of a run around this one is for its own tool alone.
        variables.push((outbox::VARIABLE.to_owned(), None));
        if let Some(ledgers) = &*self.ledgers.borrow() {
            variables.push((LEDGERS.to_owned(), Some(ledgers.clone())));
        }
        if let Some(deadline) = self.signals.deadline() {
            let deadline = earlier_deadline(deadline).to_string();
            variables.push((DEADLINE.to_owned(), Some(deadline)));
        }
        variables
    }

    /// The variables that hooks and generators see too.
    pub(crate) fn run_variables(&self, iteration: u64) -> Vec<Variable> {
        let mut variables = self.variables(false);
        let journal = self.run.journal();
        for (name, value) in [
            ("RUN_DIR", text(&self.run.path).to_owned()),
            ("JOURNAL_PATH", text(&journal).to_owned()),
            ("ITERATION_COUNT", iteration.to_string()),
        ] {
            variables.push((name.to_owned(), Some(value)));
        }
        variables
    }

    /// The common prefix of the ids of all calls of this run: the call that this run is part of.
    pub(crate) fn call_prefix() -> String {
        std::env::var(CALL_ID).map_or_else(|_| String::new(), |parent| format!("{parent}."))
    }

    /// The common part of the ids of all programs that this process starts for itself: hooks, generators,
    /// the model. A tool's id is recorded with its call.
    pub(crate) fn engine_call() -> &'static str {
        static ID: OnceLock<String> = OnceLock::new();
        ID.get_or_init(Self::new_call_id)
    }

    /// An id for the processes of a program that this process starts for itself.
    pub(crate) fn own_call_id() -> String {
        format!("{}.{}", Self::engine_call(), hex(12))
    }

    /// An id for the processes of one call.
    pub(crate) fn new_call_id() -> String {
        procfs::new_call_id()
    }

    /// Time that a program has after SIGTERM when this engine is asked to end. An engine that is nested
    /// gives less than the one around it, which would kill it before it could write its last events.
    pub(crate) fn grace(&self) -> Duration {
        grace(self.depth)
    }

    /// Time that is left for hooks once this engine has been asked to end; never nothing at all,
    /// so that even the last one gets its chance.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let all = LAST_HOOKS / 2u32.pow(self.depth.min(8));
        let left = self.signals.left_to_end(all)?;
        Some(left.max(Duration::from_millis(40)))
    }
}

/// Keeps the variables of an agent's servers from all tools but theirs.
pub(crate) fn reserve_server_variables(home: &Path, environment: &mut Environment) -> Result<()> {
    for server in read_servers(home)? {
        for variable in server.variables() {
            environment.reserve(&server.name, variable);
        }
    }
    Ok(())
}

/// Time of a program between SIGTERM and SIGKILL, at a depth of nested runs.
pub(crate) fn grace(depth: u32) -> Duration {
    (GRACE * 9 / 10) / 2u32.pow(depth.min(8))
}

/// The deadline of the programs of a run that has this one: theirs comes first, so that they have ended when
/// the run is to end.
pub(crate) fn earlier_deadline(deadline: Timestamp) -> Timestamp {
    Timestamp::from_millis(deadline.millis().saturating_sub(10_000))
}

/// Depth of this process, and its limit.
pub(crate) fn depth() -> (u32, u32) {
    let number = |name: &str| std::env::var(name).ok()?.trim().parse().ok();
    (
        number(DEPTH).unwrap_or(0),
        number("DELTA_MAX_DEPTH").unwrap_or(DEFAULT_MAX_DEPTH),
    )
}

/// A path that was found to be UTF-8 when it was taken.
fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
