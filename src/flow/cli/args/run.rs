//! The command line of `delta-flow run`.

use super::processors;
use crate::config::pricing::{GivenBudget, read_budget, read_deadline};
use crate::error::{Error, Result};
use crate::flow::cli::run_format::RunFormat;
use crate::flow::manifest::{Flow, KeptRecords};
use crate::text::options::parse::ParsedCommand;
use crate::text::timestamp::Timestamp;
use std::path::PathBuf;

/// `run`.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // Each is a switch of the command line.
pub(crate) struct FlowRunArgs {
    pub dir: PathBuf,
    /// A file with the input, or `-`.
    pub input: Option<String>,
    /// The input as a text.
    pub message: Option<String>,
    /// A file with an input on each line, or `-`.
    pub inputs: Option<PathBuf>,
    pub start: Option<String>,
    pub work_dir: Option<PathBuf>,
    /// The number of programs at once; None: the flow's, else one per processor.
    pub jobs: Option<usize>,
    pub run_id: Option<String>,
    pub format: RunFormat,
    pub dry_run: bool,
    pub pause_before: Vec<String>,
    /// Words that are put before every program; none: those that the flow says.
    pub launch: Option<Vec<String>>,
    pub keep_going: bool,
    /// None: as the flow says.
    pub records: Option<KeptRecords>,
    /// Of the whole tree, for this start.
    pub budget: Option<GivenBudget>,
    pub deadline: Option<Timestamp>,
    pub adopt: bool,
    /// Resume although files of the flow have changed.
    pub changed_ok: bool,
    /// Go on with a run that ended without success.
    pub retry: bool,
    /// Nodes that may be repeated although they say `on_resume: fail`.
    pub repeat: Vec<String>,
    pub quiet: bool,
}

impl FlowRunArgs {
    /// The same, with what the flow says where the command line says nothing.
    pub(crate) fn with_defaults(&self, flow: &Flow) -> Self {
        let scheduling = &flow.scheduling;
        let launch = self.launch.as_ref().or(scheduling.launch.as_ref());
        Self {
            jobs: self.jobs.or(scheduling.jobs),
            launch: launch.cloned(),
            records: self.records.or(flow.records),
            ..self.clone()
        }
    }

    /// Words that are put before every program.
    pub(crate) fn launch(&self) -> &[String] {
        self.launch.as_deref().unwrap_or_default()
    }

    /// The number of programs at once.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.unwrap_or_else(processors)
    }
}

pub(super) fn run_args(given: &ParsedCommand) -> Result<FlowRunArgs> {
    let inputs = ["--input", "--message", "--inputs"];
    let inputs = inputs.iter().map(|option| given.texts(option).len());
    if inputs.sum::<usize>() > 1 {
        let message = "only one of -i, -m and --inputs can be given, and only once";
        return Err(Error::usage(message));
    }
    if given.has("--repeat") && !given.has("--retry") {
        return Err(Error::usage("--repeat needs --retry"));
    }
    let budget = read_budget(given.text("--budget"))?;
    if budget.is_some_and(GivenBudget::is_per_run) {
        let message = "--budget: per=run: a flow's budget is that of the whole run; remove it";
        return Err(Error::usage(message));
    }
    let launch = match given.text("--launch") {
        Some(command) => Some(command_words(&command)?),
        None => None,
    };
    Ok(FlowRunArgs {
        dir: given.operand_dir(0),
        input: given.text("--input"),
        message: given.text("--message"),
        inputs: given.path("--inputs"),
        start: given.text("--start"),
        work_dir: given.path("--work-dir"),
        jobs: given.number("--jobs"),
        run_id: given.text("--run-id"),
        format: RunFormat::of_word(given.text("--format").as_deref()),
        dry_run: given.has("--dry-run"),
        pause_before: given.texts("--pause-before"),
        launch,
        keep_going: given.has("--keep-going"),
        records: kept_records(given),
        budget,
        deadline: read_deadline(given.text("--deadline"))?,
        adopt: given.has("--adopt"),
        changed_ok: given.has("--changed"),
        retry: given.has("--retry"),
        repeat: given.texts("--repeat"),
        quiet: given.has("--quiet"),
    })
}

fn kept_records(given: &ParsedCommand) -> Option<KeptRecords> {
    KeptRecords::parse(&given.text("--records")?)
}

/// The words of a command, as a shell splits them.
fn command_words(text: &str) -> Result<Vec<String>> {
    let words = shlex::split(text).filter(|words| !words.is_empty());
    words.ok_or_else(|| Error::usage(format!("--launch: '{text}' is not a command")))
}
