//! The command lines that let an agent run: `run`, `chat`, `continue` and `fork`.

use super::given_doors;
use crate::cli::message::{GivenAgent, given_agent, message_parts};
use crate::coder::tool::preview;
use crate::config::pricing::{read_budget, read_deadline};
use crate::engine::start_options::{StartOptions, WaitMode};
use crate::error::{Error, Result};
use crate::record::feed::Feed;
use crate::runs::overrides::is_budget;
use crate::runs::task::GivenPart;
use crate::text::json;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::text::timestamp::Timestamp;
use crate::unix::files::absolute;
use crate::unix::terminal::Screen;
use serde_json::{Value, json};
use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::rc::Rc;

/// Options that the commands share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub work_dir: Option<PathBuf>,
    pub run_id: Option<String>,
    pub message: Vec<GivenPart>,
    pub deadline: Option<Timestamp>,
    pub adopt: bool,
    pub format: OutputFormat,
    /// A named agent may ask the person who is at the terminal.
    pub asks_if_named: bool,
    pub options: StartOptions,
}

/// `delta chat`.
#[derive(Debug)]
pub(crate) struct ChatArgs {
    pub agent: GivenAgent,
    /// Begin a new run, whatever `-w` has.
    pub new: bool,
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
    pub yes: bool,
    pub dry: bool,
    pub common: Common,
}

/// `delta continue`.
#[derive(Debug)]
pub(crate) struct ContinueArgs {
    /// None: the run's own.
    pub agent: Option<PathBuf>,
    /// The question that the message answers, and nothing else.
    pub question: Option<String>,
    pub common: Common,
}

/// `delta fork`.
#[derive(Debug)]
pub(crate) struct ForkArgs {
    /// None: the newest.
    pub run: Option<String>,
    /// Iterations of it that the new run begins with.
    pub at: u64,
    /// A new workspace for the new run; none: the same.
    pub to: Option<PathBuf>,
    /// The files of the new workspace are those of now.
    pub files_of_now: bool,
    /// None: the run's own.
    pub agent: Option<PathBuf>,
    pub common: Common,
}

pub(crate) fn run_args(given: &ParsedCommand) -> Result<RunArgs> {
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
        common.options.patience = WaitMode::Wait;
    }
    Ok(RunArgs {
        agent: match agent {
            GivenAgent::Usual if !has_task => GivenAgent::Here,
            agent => agent,
        },
        new: given.has("--new"),
        retry_failed: given.has("--retry-failed"),
        yes: given.has("--yes"),
        dry: given.has("--dry-run"),
        common,
    })
}

pub(crate) fn chat_args(given: &ParsedCommand) -> Result<ChatArgs> {
    let (agent, has_name) = given_agent(given)?;
    if let (Some(word), false) = (given.operand_text(0), has_name) {
        return Err(Error::usage(format!(
            "chat: '{}' does not name an agent, as @NAME and -a DIR do; the first message is typed at the prompt",
            word.escape_debug()
        )));
    }
    check_verbosity(given)?;
    let options = StartOptions {
        interactive: true,
        is_chat: true,
        shows_text: !given.has("--quiet") || stdout().is_terminal(),
        ..start_options(given, plain_settings(given)?)?
    };
    if given.has("--new") && given.has("--run-id") {
        return Err(Error::usage("--new and --run-id contradict each other"));
    }
    Ok(ChatArgs {
        agent,
        new: given.has("--new"),
        common: Common {
            work_dir: given.path("--work-dir"),
            run_id: given.text("--run-id"),
            message: message_parts(given, 1)?,
            adopt: given.has("--adopt"),
            options,
            ..Common::default()
        },
    })
}

pub(crate) fn continue_args(given: &ParsedCommand) -> Result<ContinueArgs> {
    let (question, mut common) = (given.text("--question"), common(given)?);
    common.options.patience = match (given.has("--wait"), given.has("--give-up")) {
        (true, true) => {
            return Err(Error::usage("--wait and --give-up contradict each other"));
        }
        (true, false) => WaitMode::Wait,
        (false, true) => WaitMode::GiveUp,
        (false, false) => WaitMode::End,
    };
    common.options.force = given.has("--force");
    common.options.compacts = given.has("--compact");
    if question.is_some() && common.message.is_empty() {
        return Err(Error::usage("--question needs its answer: -m ANSWER"));
    }
    Ok(ContinueArgs {
        agent: given.path("--agent"),
        question,
        common,
    })
}

pub(crate) fn fork_args(given: &ParsedCommand) -> Result<ForkArgs> {
    if given.has("--files") && !given.has("--to") {
        let text = "--files is for a fork into another directory: add --to DIR";
        return Err(Error::usage(text));
    }
    Ok(ForkArgs {
        run: given.operand_text(0),
        at: given.number("--at").unwrap_or_default(),
        to: given.path("--to"),
        files_of_now: given.has("--files"),
        agent: given.path("--agent"),
        common: common(given)?,
    })
}

fn common(given: &ParsedCommand) -> Result<Common> {
    check_verbosity(given)?;
    if given.has("--interactive") && given.has("--no-input") {
        return Err(Error::usage("-i and --no-input contradict each other"));
    }
    Ok(Common {
        asks_if_named: given.format() == OutputFormat::Text && !given.has("--no-input"),
        work_dir: given.path("--work-dir"),
        run_id: given.text("--run-id"),
        message: match given.command.name {
            "run" => Vec::new(),
            // Operands are no text there.
            _ => message_parts(given, given.operands.len())?,
        },
        deadline: read_deadline(given.text("--deadline"))?,
        adopt: given.has("--adopt"),
        format: given.format(),
        options: StartOptions {
            interactive: given.has("--interactive"),
            shows_text: given.format() == OutputFormat::Text && !given.has("--quiet"),
            feed: feed(given)?,
            ..start_options(given, settings(given)?)?
        },
    })
}

/// Options that all these commands have.
fn start_options(given: &ParsedCommand, set: Vec<(String, String)>) -> Result<StartOptions> {
    Ok(StartOptions {
        preview: Some(preview),
        screen: Screen::new(given.has("--quiet"), given.has("--verbose")),
        set,
        doors: given_doors(given)?,
        max_iterations: given.number("--max-iterations"),
        budget: read_budget(given.text("--budget"))?,
        ..StartOptions::default()
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

pub(crate) fn check_verbosity(given: &ParsedCommand) -> Result<()> {
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

/// Settings, with those of the options that set a key.
pub(crate) fn settings(given: &ParsedCommand) -> Result<Vec<(String, String)>> {
    let mut pairs = plain_settings(given)?;
    if let Some(schema) = given.path("--output-schema") {
        let path = absolute(&schema)?;
        let path = path.to_str().ok_or_else(|| {
            Error::usage(format!("--output-schema: {} is not UTF-8", path.display()))
        })?;
        pairs.push(("output_schema".to_owned(), json::text(path)));
    }
    let accept = given.texts("--accept");
    if accept.iter().any(|command| command.trim().is_empty()) {
        return Err(Error::usage("--accept: the command is empty"));
    }
    if !accept.is_empty() {
        let commands: Value = accept
            .iter()
            .map(|text| json!({"command": ["sh", "-c", text]}))
            .collect();
        pairs.push(("accept".to_owned(), json::text(&commands)));
    }
    Ok(pairs)
}
