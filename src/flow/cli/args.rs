//! The command lines of `run` and `eval` as plain data; the other commands read theirs where they begin. Nothing is
//! looked up or resolved here.

use super::words::{Against, suite_of};
use crate::config::pricing::{GivenBudget, read_budget, read_deadline};
use crate::error::{Error, Result};
use crate::flow::eval::format::EvalFormat;
use crate::flow::eval::selection::{PlanSelection, Split};
use crate::flow::eval::suite::MOST_TRIALS;
use crate::flow::manifest::{Flow, KeptRecords};
use crate::text::ids::RunId;
use crate::text::names::named_enum;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::text::timestamp::Timestamp;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The default number of programs at once.
pub(super) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

named_enum! {
    /// The form in which `run` prints a result.
    #[derive(Default)]
    pub(crate) enum RunFormat {
        /// The outputs, when all have ended.
        #[default]
        Text = "text",
        /// One object.
        Json = "json",
        /// An object for each root task, when it ends.
        Jsonl = "jsonl",
    }
}

impl RunFormat {
    /// The form of errors that keep the run from beginning.
    pub(crate) fn of_errors(self) -> OutputFormat {
        match self {
            Self::Json => OutputFormat::Json,
            Self::Text | Self::Jsonl => OutputFormat::Text,
        }
    }
}

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
    pub work_dir: PathBuf,
    /// The number of programs at once; None: the flow's, else one per processor.
    pub jobs: Option<usize>,
    pub run_id: Option<RunId>,
    pub format: RunFormat,
    pub dry_run: bool,
    pub pause_before: Vec<String>,
    /// Words that are put before every program; none: those that the flow says.
    pub launch: Option<Vec<String>>,
    pub keep_going: bool,
    /// None: as the flow says.
    pub records: Option<KeptRecords>,
    /// The budget of the whole tree, for this start.
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
    /// Adds what the flow says where the command line says nothing.
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

    pub(crate) fn read(given: &ParsedCommand) -> Result<Self> {
        let inputs = ["--input", "--message", "--inputs"].map(|option| given.texts(option).len());
        if inputs.iter().sum::<usize>() > 1 {
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
        let launch = given.text("--launch").map(|it| command_words(&it));
        Ok(Self {
            dir: given.operand_dir(0),
            input: given.text("--input"),
            message: given.text("--message"),
            inputs: given.path("--inputs"),
            start: given.text("--start"),
            work_dir: given.work_dir(),
            jobs: given.number("--jobs"),
            run_id: named_run_id(given)?,
            format: given.choice("--format", RunFormat::parse),
            dry_run: given.has("--dry-run"),
            pause_before: given.texts("--pause-before"),
            launch: launch.transpose()?,
            keep_going: given.has("--keep-going"),
            records: given
                .text("--records")
                .and_then(|it| KeptRecords::parse(&it)),
            budget,
            deadline: read_deadline(given.text("--deadline"))?,
            adopt: given.has("--adopt"),
            changed_ok: given.has("--changed"),
            retry: given.has("--retry"),
            repeat: given.texts("--repeat"),
            quiet: given.has("--quiet"),
        })
    }
}

/// The name that a command line gives a run.
pub(crate) fn named_run_id(given: &ParsedCommand) -> Result<Option<RunId>> {
    let id = given.text("--run-id").map(|id| RunId::parse(&id));
    id.transpose().map_err(Error::usage)
}

/// The words of a command, as a shell splits them.
fn command_words(text: &str) -> Result<Vec<String>> {
    let words = shlex::split(text).filter(|words| !words.is_empty());
    words.ok_or_else(|| Error::usage(format!("--launch: '{text}' is not a command")))
}

/// `eval`.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Each is a switch of the command line.
pub(crate) struct FlowEvalArgs {
    /// The name in messages.
    pub program: &'static str,
    pub dir: PathBuf,
    /// The suite that the command line describes, in place of a file.
    pub words: Option<Map<String, Value>>,
    pub work_dir: PathBuf,
    pub selection: PlanSelection,
    /// The number of trials at once.
    pub jobs: usize,
    pub format: EvalFormat,
    pub against: Option<Against>,
    /// Only settings that are shown higher than what they are compared with pass.
    pub require_higher: bool,
    /// Judge what is recorded again, and run nothing.
    pub regrade: bool,
    pub dry_run: bool,
    /// The budget of the whole tree, for this start.
    pub budget: Option<GivenBudget>,
    pub deadline: Option<Timestamp>,
    pub adopt: bool,
    pub quiet: bool,
}

impl FlowEvalArgs {
    pub(crate) fn read(given: &ParsedCommand, program: &'static str) -> Result<Self> {
        if given.operand_text(1).is_some() || given.has("--output") {
            return Err(Error::usage(
                "one directory, or: delta eval report [DIR] [-o PATH]",
            ));
        }
        for option in ["--against", "--cases", "--grade"] {
            if given.texts(option).len() > 1 {
                let message = format!("{option} is given twice; give one");
                return Err(Error::usage(message));
            }
        }
        let against = given.text("--against").map(Against::read).transpose()?;
        let trials: Option<u64> = given.number("--trials");
        if let Some(trials) = trials.filter(|it| *it > MOST_TRIALS.into()) {
            let message = format!("--trials: {trials} is more than {MOST_TRIALS}");
            return Err(Error::usage(message));
        }
        let split = given.text("--split").map(|word| {
            let wrong = || {
                Error::usage(format!(
                    "--split: '{word}' is not train or held, or one with :0.3 after it"
                ))
            };
            Split::parse(&word).ok_or_else(wrong)
        });
        Ok(Self {
            program,
            dir: given.operand_dir(0),
            words: suite_of(given, against.as_ref())?,
            work_dir: given.work_dir(),
            selection: PlanSelection {
                suites: given.texts("--suite"),
                tags: given.texts("--tag"),
                cases: given.texts("--case"),
                settings: given.texts("--setting"),
                trials: trials.map(|it| it as u32),
                split: split.transpose()?,
                sample: given.number("--sample"),
            },
            jobs: given.number("--jobs").unwrap_or_else(processors),
            format: given.choice("--format", EvalFormat::parse),
            against,
            require_higher: given.has("--require"),
            regrade: given.has("--regrade"),
            dry_run: given.has("--dry-run"),
            budget: read_budget(given.text("--budget"))?,
            deadline: read_deadline(given.text("--deadline"))?,
            adopt: given.has("--adopt"),
            quiet: given.has("--quiet"),
        })
    }
}
