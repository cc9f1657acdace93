//! The command lines that let an agent run: `run`, `chat`, `continue` and `fork`.

use super::given_doors;
use crate::cli::message::{GivenAgent, given_agent, message_parts};
use crate::config::pricing::{GivenBudget, read_budget, read_deadline};
use crate::engine::run_loop::DeferralMode;
use crate::error::{Error, Result};
use crate::record::feed::Feed;
use crate::runs::overrides::is_budget;
use crate::runs::task::GivenPart;
use crate::runs::waiting::{WaitPlan, start_words};
use crate::text::json;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::text::timestamp::Timestamp;
use crate::unix::doors::Door;
use crate::unix::files::absolute;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::rc::Rc;

/// Options that `run`, `continue` and `fork` share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub work_dir: Option<PathBuf>,
    pub run_id: Option<String>,
    pub message: Vec<GivenPart>,
    /// Hosts that tools may reach although they have no network.
    pub doors: Vec<Door>,
    pub max_iterations: Option<u64>,
    pub budget: Option<GivenBudget>,
    pub deadline: Option<Timestamp>,
    /// `--wait` and `--give-up`.
    pub patience: DeferralMode,
    pub interactive: bool,
    pub verbose: bool,
    pub quiet: bool,
    pub format: OutputFormat,
    /// Every event is printed as it is recorded.
    pub feed: Option<Rc<Feed>>,
}

impl Common {
    /// The text of answers is printed as it arrives, for a program.
    pub(crate) fn has_deltas(&self) -> bool {
        self.feed.as_ref().is_some_and(|feed| feed.has_deltas)
    }

    /// What is done about calls that end later. `set` are the settings of the command line.
    pub(crate) fn waiting(&self, set: &[(String, String)]) -> WaitPlan {
        WaitPlan {
            mode: self.patience,
            start_words: Some(start_words(
                set,
                &self.doors,
                self.budget,
                self.max_iterations,
            )),
        }
    }

    /// The text of answers is shown as it arrives, where there is a terminal.
    pub(crate) fn shows_text(&self) -> bool {
        self.format == OutputFormat::Text && !self.quiet
    }
}

/// `delta chat`.
#[derive(Debug)]
pub(crate) struct ChatArgs {
    pub agent: GivenAgent,
    pub adopt: bool,
    /// Dotted keys of agent.yaml, and YAML.
    pub set: Vec<(String, String)>,
    pub common: Common,
}

/// `delta run`.
#[derive(Debug)]
pub(crate) struct RunArgs {
    pub agent: GivenAgent,
    /// Begin a new run, even if one was interrupted.
    pub new: bool,
    /// Put a failed run of the same name aside.
    pub retry_failed: bool,
    pub adopt: bool,
    pub yes: bool,
    pub dry: bool,
    /// Dotted keys of agent.yaml, and YAML.
    pub set: Vec<(String, String)>,
    pub common: Common,
}

/// `delta continue`.
#[derive(Debug)]
pub(crate) struct ContinueArgs {
    /// None: the run's own.
    pub agent: Option<PathBuf>,
    /// Dotted keys of agent.yaml, and YAML.
    pub set: Vec<(String, String)>,
    pub adopt: bool,
    /// Skip damage, and ignore a lock that another host may hold.
    pub force: bool,
    /// Shorten the conversation before the next request.
    pub compact: bool,
    /// The question that the message answers, and nothing else.
    pub question: Option<String>,
    pub common: Common,
}

/// `delta fork`.
#[derive(Debug)]
pub(crate) struct ForkArgs {
    /// None: the newest.
    pub run: Option<String>,
    /// How many of its iterations the new run begins with.
    pub at: u64,
    /// A new workspace for the new run; none: the same.
    pub to: Option<PathBuf>,
    /// None: the run's own.
    pub agent: Option<PathBuf>,
    pub adopt: bool,
    /// Dotted keys of agent.yaml, and YAML.
    pub set: Vec<(String, String)>,
    pub common: Common,
}

pub(super) fn run_args(given: &ParsedCommand) -> Result<RunArgs> {
    let is_named = given.has("--run-id");
    if given.has("--new") && is_named {
        return Err(Error::usage(
            "--new and --run-id contradict each other: a name is used once",
        ));
    }
    if given.has("--retry-failed") && !is_named {
        return Err(Error::usage(
            "--retry-failed needs --run-id: without a name, a failed run is never in the way",
        ));
    }
    let (agent, has_name) = given_agent(given)?;
    let has_task = given.operands.len() > usize::from(has_name);
    let mut common = common(given)?;
    common.message = message_parts(given, usize::from(has_name))?;
    if given.has("--wait") {
        common.patience = DeferralMode::Wait;
    }
    Ok(RunArgs {
        agent: match agent {
            GivenAgent::Usual if !has_task => GivenAgent::Here,
            agent => agent,
        },
        new: given.has("--new"),
        retry_failed: given.has("--retry-failed"),
        adopt: given.has("--adopt"),
        yes: given.has("--yes"),
        dry: given.has("--dry-run"),
        set: settings(given)?,
        common,
    })
}

pub(super) fn chat_args(given: &ParsedCommand) -> Result<ChatArgs> {
    let (agent, has_name) = given_agent(given)?;
    if let (Some(word), false) = (given.operand_text(0), has_name) {
        return Err(Error::usage(format!(
            "chat: '{}' does not name an agent, as @NAME and -a DIR do; the first message is typed at the prompt",
            word.escape_debug()
        )));
    }
    check_verbosity(given)?;
    Ok(ChatArgs {
        agent,
        adopt: given.has("--adopt"),
        set: plain_settings(given)?,
        common: Common {
            work_dir: given.path("--work-dir"),
            run_id: given.text("--run-id"),
            message: message_parts(given, 1)?,
            doors: given_doors(given)?,
            max_iterations: given.number("--max-iterations"),
            budget: read_budget(given.text("--budget"))?,
            interactive: true,
            verbose: given.has("--verbose"),
            quiet: given.has("--quiet"),
            ..Common::default()
        },
    })
}

pub(super) fn continue_args(given: &ParsedCommand) -> Result<ContinueArgs> {
    let (question, mut common) = (given.text("--question"), common(given)?);
    common.patience = match (given.has("--wait"), given.has("--give-up")) {
        (true, true) => {
            return Err(Error::usage("--wait and --give-up contradict each other"));
        }
        (true, false) => DeferralMode::Wait,
        (false, true) => DeferralMode::GiveUp,
        (false, false) => DeferralMode::End,
    };
    if question.is_some() && common.message.is_empty() {
        return Err(Error::usage("--question needs its answer: -m ANSWER"));
    }
    Ok(ContinueArgs {
        agent: given.path("--agent"),
        set: settings(given)?,
        adopt: given.has("--adopt"),
        force: given.has("--force"),
        compact: given.has("--compact"),
        question,
        common,
    })
}

pub(super) fn fork_args(given: &ParsedCommand) -> Result<ForkArgs> {
    Ok(ForkArgs {
        run: given.operand_text(0),
        at: given.number("--at").unwrap_or_default(),
        to: given.path("--to"),
        agent: given.path("--agent"),
        adopt: given.has("--adopt"),
        set: settings(given)?,
        common: common(given)?,
    })
}

fn common(given: &ParsedCommand) -> Result<Common> {
    check_verbosity(given)?;
    Ok(Common {
        patience: DeferralMode::End,
        work_dir: given.path("--work-dir"),
        run_id: given.text("--run-id"),
        message: match given.command.name {
            "run" => Vec::new(),
            // Operands are no text there.
            _ => message_parts(given, given.operands.len())?,
        },
        doors: given_doors(given)?,
        max_iterations: given.number("--max-iterations"),
        budget: read_budget(given.text("--budget"))?,
        deadline: read_deadline(given.text("--deadline"))?,
        interactive: given.has("--interactive"),
        verbose: given.has("--verbose"),
        quiet: given.has("--quiet"),
        format: given.format(),
        feed: feed(given)?,
    })
}

/// The lines that `--format jsonl` prints.
fn feed(given: &ParsedCommand) -> Result<Option<Rc<Feed>>> {
    if given.command.name == "fork" {
        return Ok(None);
    }
    let has_deltas = given.has("--deltas");
    match given.text("--format").as_deref() {
        Some("jsonl") => Ok(Some(Feed::new(has_deltas))),
        _ if has_deltas => Err(Error::usage("--deltas needs --format jsonl")),
        _ => Ok(None),
    }
}

pub(super) fn check_verbosity(given: &ParsedCommand) -> Result<()> {
    if given.has("--quiet") && given.has("--verbose") {
        return Err(Error::usage("-q and -v contradict each other"));
    }
    Ok(())
}

/// The values of `--set`, and of `-M`.
fn plain_settings(given: &ParsedCommand) -> Result<Vec<(String, String)>> {
    let mut pairs = given.pairs("--set");
    if let Some(model) = given.text("--model") {
        if model.trim().is_empty() {
            return Err(Error::usage("-M: the name is empty"));
        }
        pairs.push(("llm.model".to_owned(), json::text(&model)));
    }
    if let Some((key, _)) = pairs.iter().find(|(key, _)| is_budget(key)) {
        return Err(Error::usage(format!(
            "--set {key}: a budget is given with --budget, as in --budget cost=3,tokens=500000"
        )));
    }
    let is_wrong = |(key, _): &&(String, String)| key.split('.').any(str::is_empty);
    match pairs.iter().find(is_wrong) {
        None => Ok(pairs),
        Some((key, _)) => Err(Error::usage(format!(
            "--set: '{key}' is not a key like llm.temperature"
        ))),
    }
}

/// The same, and the options that set a key.
pub(super) fn settings(given: &ParsedCommand) -> Result<Vec<(String, String)>> {
    let mut pairs = plain_settings(given)?;
    if let Some(schema) = given.path("--output-schema") {
        let path = absolute(&schema)?;
        let path = path.to_str().ok_or_else(|| {
            let path = path.display();
            Error::usage(format!("--output-schema: {path} is not UTF-8"))
        })?;
        pairs.push(("output_schema".to_owned(), json::text(path)));
    }
    let accept = given.texts("--accept");
    if accept.iter().any(|command| command.trim().is_empty()) {
        return Err(Error::usage("--accept: the command is empty"));
    }
    if !accept.is_empty() {
        let commands = accept
            .iter()
            .map(|text| json!({"command": ["sh", "-c", text]}));
        let commands: Value = commands.collect();
        pairs.push(("accept".to_owned(), json::text(&commands)));
    }
    Ok(pairs)
}
