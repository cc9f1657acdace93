//! The command lines that look at the records of runs: `list-runs`, `prune`, `log`, `export`, `report` and
//! `request`.

use super::running::settings;
use crate::error::{Error, Result};
use crate::record::metadata::Status;
use crate::runs::prune::PruneRules;
use crate::text::options::format::OutputFormat;
use crate::text::options::parse::ParsedCommand;
use crate::text::timestamp::{Timestamp, parse_span};
use std::path::PathBuf;

/// `delta list-runs`.
#[derive(Debug, Default)]
pub(crate) struct ListRunsArgs {
    pub work_dir: Option<PathBuf>,
    /// All workspaces of this agent instead; with `below`, only the runs of this agent.
    pub agent: Option<PathBuf>,
    /// All runs below these directories instead.
    pub below: Vec<PathBuf>,
    pub status: Option<Status>,
    /// Any of these; empty: any reason.
    pub stop_reasons: Vec<String>,
    /// Only runs that have been started since.
    pub since: Option<Timestamp>,
    pub resumable: bool,
    pub retryable: bool,
    pub needs_attention: bool,
    pub first: bool,
    pub format: OutputFormat,
}

/// `delta prune`.
#[derive(Debug)]
pub(crate) struct PruneArgs {
    pub below: Vec<PathBuf>,
    pub rules: PruneRules,
    pub dry_run: bool,
}

/// `delta log`.
#[derive(Debug)]
pub(crate) struct LogArgs {
    pub work_dir: PathBuf,
    /// None: the newest.
    pub run: Option<String>,
    pub follow: bool,
    /// The journal's lines unchanged.
    pub json: bool,
    /// The connections of tools, too.
    pub verbose: bool,
    /// Only this many of the last events.
    pub last: Option<usize>,
    /// The actions with an effect instead of the events.
    pub effects: bool,
}

/// `delta export`.
#[derive(Debug)]
pub(crate) struct ExportArgs {
    pub work_dir: PathBuf,
    /// None: the newest.
    pub runs: Vec<String>,
    pub form: ExportForm,
    /// Of a trace: what was said, too.
    pub has_content: bool,
    /// Of a trace: the names of earlier conventions, too.
    pub has_old_names: bool,
}

/// The form in which runs are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExportForm {
    /// A trajectory of the Agent Trajectory Interchange Format.
    Atif,
    /// Requests of OpenTelemetry's protocol, in JSON.
    Otlp,
    /// The conversation of each run.
    Chat,
}

/// `delta report`.
#[derive(Debug)]
pub(crate) struct ReportArgs {
    pub work_dir: PathBuf,
    /// None: the newest.
    pub run: Option<String>,
    /// The directory for the page and those that it links to; none: stdout.
    pub output: Option<PathBuf>,
}

/// `delta request`.
#[derive(Debug)]
pub(crate) struct RequestArgs {
    pub work_dir: PathBuf,
    /// None: the newest.
    pub run: Option<String>,
    /// None: the last.
    pub number: Option<RequestNumber>,
    /// The one that continuing would send.
    pub next: bool,
    /// None: the run's own.
    pub agent: Option<PathBuf>,
    /// Dotted keys of agent.yaml, and YAML.
    pub set: Vec<(String, String)>,
    pub adopt: bool,
    /// Compare with this one.
    pub diff: Option<usize>,
}

pub(super) fn list_runs_args(given: &ParsedCommand) -> Result<ListRunsArgs> {
    let below = below(given)?;
    if given.has("--work-dir") && !below.is_empty() {
        return Err(Error::usage(
            "-w and -r contradict each other: one workspace, or all below directories",
        ));
    }
    if given.has("--work-dir") && given.has("--agent") {
        return Err(Error::usage(
            "-w and --agent contradict each other: one workspace, or all of an agent",
        ));
    }
    let status = given.text("--status");
    let now = Timestamp::now();
    let since = given.text("--since").map(|text| {
        let ago = parse_span(&text).map(|span| now.minus(span));
        ago.or_else(|| Timestamp::parse_with_offset(&text))
            .ok_or_else(|| {
                Error::usage(format!(
                    "--since: '{text}' is not a time such as 2026-01-02T03:04:05Z or 2h"
                ))
            })
    });
    Ok(ListRunsArgs {
        work_dir: given.path("--work-dir"),
        agent: given.path("--agent"),
        below,
        status: status.and_then(|name| Status::parse(&name)),
        stop_reasons: given.texts("--stop-reason"),
        since: since.transpose()?,
        resumable: given.has("--resumable"),
        retryable: given.has("--retryable"),
        needs_attention: given.has("--needs-attention"),
        first: given.has("--first"),
        format: given.format(),
    })
}

pub(super) fn prune_args(given: &ParsedCommand) -> Result<PruneArgs> {
    let mut below = below(given)?;
    if below.is_empty() {
        below.push(".".into());
    }
    let age = given.text("--older-than").unwrap_or_default();
    let age = parse_span(&age).ok_or_else(|| {
        Error::usage(format!(
            "--older-than: '{age}' is not a span of time such as 30d or 12h"
        ))
    })?;
    let statuses = given.texts("--status");
    Ok(PruneArgs {
        below,
        rules: PruneRules {
            before: Timestamp::now().minus(age),
            statuses: statuses.iter().filter_map(|it| Status::parse(it)).collect(),
            keep_journal: given.has("--keep-journal"),
        },
        dry_run: given.has("--dry-run"),
    })
}

/// The directories of `-r`, of which a shell may make several words.
fn below(given: &ParsedCommand) -> Result<Vec<PathBuf>> {
    let mut dirs = given.paths("--recursive");
    if let (Some(word), true) = (given.operand_text(0), dirs.is_empty()) {
        let command = given.command.name;
        return Err(Error::usage(format!(
            "{command}: unexpected argument '{word}'; -r {word} takes all runs below it"
        )));
    }
    dirs.extend(given.operand_texts().into_iter().map(PathBuf::from));
    Ok(dirs)
}

pub(super) fn log_args(given: &ParsedCommand) -> Result<LogArgs> {
    let log = LogArgs {
        work_dir: given.work_dir(),
        run: given.operand_text(0),
        follow: given.has("--follow"),
        json: given.has("--json"),
        verbose: given.has("--verbose"),
        last: given.number("--lines"),
        effects: given.has("--effects"),
    };
    if log.effects && (log.follow || log.last.is_some()) {
        return Err(Error::usage(
            "--effects lists all actions at once: leave out -f and -n",
        ));
    }
    Ok(log)
}

pub(super) fn export_args(given: &ParsedCommand) -> Result<ExportArgs> {
    let form = match given.text("--format").as_deref() {
        Some("atif") => ExportForm::Atif,
        Some("otlp") => ExportForm::Otlp,
        _ => ExportForm::Chat,
    };
    for option in ["--content", "--compat"] {
        if given.has(option) && form != ExportForm::Otlp {
            return Err(Error::usage(format!("{option} is for --format otlp")));
        }
    }
    Ok(ExportArgs {
        work_dir: given.work_dir(),
        runs: given.operand_texts(),
        form,
        has_content: given.has("--content"),
        has_old_names: given.has("--compat"),
    })
}

pub(super) fn request_args(given: &ParsedCommand) -> Result<RequestArgs> {
    let (run, number) = match (given.operand_text(0), given.operand_text(1)) {
        (Some(word), None) if is_request_number(&word) => (None, Some(word)),
        words => words,
    };
    if given.has("--next") && number.is_some() {
        return Err(Error::usage(
            "--next is the request after the last one; it has no number",
        ));
    }
    Ok(RequestArgs {
        work_dir: given.work_dir(),
        run,
        number: number.map(|word| request_number(&word)).transpose()?,
        next: given.has("--next"),
        agent: given.path("--agent"),
        set: settings(given)?,
        adopt: given.has("--adopt"),
        diff: given.number("--diff"),
    })
}

/// A request of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestNumber {
    /// From 1.
    pub number: usize,
    /// Not that one, but the one for the summary before it.
    pub is_compaction: bool,
}

/// True for a word that means a request where it could also mean a run: an id begins with the eight digits of a date.
fn is_request_number(word: &str) -> bool {
    let digits = word.strip_suffix('c').unwrap_or(word);
    (1..8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn request_number(word: &str) -> Result<RequestNumber> {
    let digits = word.strip_suffix('c');
    let number = digits.unwrap_or(word).parse().ok();
    let number = number
        .filter(|number| *number > 0)
        .map(|number| RequestNumber {
            number,
            is_compaction: digits.is_some(),
        });
    let wrong = || Error::usage(format!("N: '{word}' is not a whole number, 1 or more"));
    number.ok_or_else(wrong)
}
