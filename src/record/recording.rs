//! A run as it was recorded: the model's requests and answers, the result of every call, and the
//! part of a journal that another run can begin with.
//!
//! Unaware of how a run continues, and of agents. Only reads.

use crate::error::{At, Error, Result};
use crate::record::attachments::{Attachment, blobs, read_list};
use crate::record::event::{
    ActionStatus, CompactionKind, CompactionReason, EventKind, HookStatus, LeftOutReason, Line,
};
use crate::record::reader::{
    Damage, JournalSource, Tail, read_event, read_journal, split_lines, tail,
};
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading, Run, Unreadable, decoded};
use crate::text::ids::RunId;
use crate::unix::files;
use crate::unix::trees;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

/// A run, read from its directory.
#[derive(Debug)]
pub(crate) struct Recording {
    /// Where it is.
    pub run: RunDir,
    pub journal: Vec<u8>,
    /// How many leading bytes of the journal are another run's, of which this one is a fork.
    pub inherited: usize,
    /// The inherited answers.
    pub inherited_steps: Vec<RecordedStep>,
    /// The messages, and how often the model answered each, in order, without the inherited part.
    pub parts: Vec<Exchange>,
    /// The model's answers, in order, without the inherited ones.
    pub steps: Vec<RecordedStep>,
}

/// A message of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedMessage {
    pub content: String,
    pub attachments: Vec<Attachment>,
}

/// Messages of people, and the answers that followed each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub messages: Vec<RecordedMessage>,
    /// How many answers followed.
    pub answers: usize,
}

/// One answer of the model and what came of its calls.
#[derive(Debug, Default)]
pub(crate) struct RecordedStep {
    pub iteration: u64,
    /// The name of its directory among the invocations; `None` if the journal has lost it.
    pub invocation: Option<String>,
    /// The ids of its calls, in order.
    pub ids: Vec<String>,
    /// The results of the calls, by id.
    pub results: HashMap<String, RecordedResult>,
    /// The calls that ended later.
    pub deferred: Vec<String>,
    /// The checks that accepted or refused it, in order.
    pub checks: Vec<RecordedCheck>,
    /// The hooks that ran from the answer before this one to this one and its calls: name and directory
    /// from the run's directory.
    pub hooks: Vec<(String, String)>,
    /// The compactions between the answer before this one and this one.
    pub compactions: Vec<RecordedCompaction>,
    /// The model that gave it in place of the first.
    pub fallback: Option<RecordedFallback>,
    /// The attachments that the service refused in requests before the one that it answered.
    pub refused: Vec<RefusedAttachments>,
}

/// A model that was asked in place of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedFallback {
    pub name: String,
    /// How the model before it failed.
    pub why: String,
}

/// Attachments that requests lack from then on.
#[derive(Clone, Debug)]
pub(crate) struct RefusedAttachments {
    /// The places of their events among all that have attachments.
    pub places: Vec<usize>,
    pub message: String,
}

/// A compaction of the conversation.
#[derive(Clone, Debug)]
pub(crate) struct RecordedCompaction {
    pub by: CompactionKind,
    pub reason: CompactionReason,
    pub through_iteration: u64,
    pub summary: Option<String>,
    pub message_bytes: Option<u64>,
    /// When the messages of people before it were recorded.
    pub message_times: Vec<String>,
    pub run_id: String,
    pub tokens_before: u64,
    pub tokens_after: u64,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub(crate) struct RecordedResult {
    /// How it ended.
    pub status: ActionStatus,
    /// The exit code, if one is known.
    pub exit_code: Option<i32>,
    /// The text that the model received.
    pub observation: String,
    pub attachments: Vec<Attachment>,
    /// The directory of what its program printed, from the run's directory.
    pub execution_ref: Option<String>,
    /// From start to end.
    pub duration_ms: u64,
}

/// A check of a final answer.
#[derive(Clone, Debug)]
pub(crate) struct RecordedCheck {
    pub what: String,
    pub exit_code: i32,
    /// From start to end.
    pub duration_ms: u64,
    /// The message that the model received, if the check refused the answer.
    pub content: Option<String>,
    /// The accepted value: JSON.
    pub value: Option<String>,
}

impl Recording {
    /// Reads a run.
    ///
    /// # Errors
    /// Fails if there is no journal or it is damaged.
    pub(crate) fn read(run: &RunDir) -> Result<Self> {
        let path = run.journal();
        let mut recording = Self {
            run: run.clone(),
            journal: read_journal(&path).at("read", &path)?,
            inherited: 0,
            inherited_steps: Vec::new(),
            parts: Vec::new(),
            steps: Vec::new(),
        };
        match tail(&recording.journal) {
            Tail::Whole => {}
            Tail::Unended => recording.journal.push(b'\n'),
            Tail::Torn(bytes) => {
                let whole = recording.journal.len() - bytes as usize;
                recording.journal.truncate(whole);
            }
        }
        let own_name = recording.state()?.run_id.map(Cow::into_owned);
        recording.gather(own_name.as_deref());
        Ok(recording)
    }

    /// The state that the journal adds up to.
    pub(crate) fn state(&self) -> Result<Run<'_>> {
        state::read(&self.journal, Reading::default())
            .map_err(|error| unreadable(&error, &self.run.journal()))
    }

    /// The journal.
    pub(crate) fn source(&self) -> JournalSource<'_> {
        JournalSource {
            path: self.run.journal(),
            read: Some(&self.journal),
        }
    }

    fn gather(&mut self, own_name: Option<&str>) {
        let (mut parts, mut steps) = (Vec::<Exchange>::new(), Vec::<RecordedStep>::new());
        let (mut inherited, mut hooks, mut compactions) = (Vec::new(), Vec::new(), Vec::new());
        let (mut iteration, mut said_at, mut fallback) = (0, Vec::new(), None);
        let (mut attached, mut refused) = (Vec::new(), Vec::new());
        let mut found_own = false;
        for (start, line) in lines(&self.journal) {
            attached.extend(line.attachments.and(line.seq));
            match line.kind {
                EventKind::EngineStart => {
                    if !found_own && line.run_id.as_deref() == own_name {
                        found_own = true;
                        self.inherited = start;
                        parts.clear();
                        inherited = std::mem::take(&mut steps);
                    }
                    // Hooks of an iteration that did not come about: it has been begun anew.
                    hooks.clear();
                    fallback = None;
                }
                EventKind::UserMessage => {
                    said_at.push(line.timestamp.as_deref().unwrap_or_default().to_owned());
                    let part = last_part(&mut parts, |part| part.answers > 0);
                    part.messages.extend(message(&line));
                }
                EventKind::Thought => {
                    last_part(&mut parts, |_| false).answers += 1;
                    iteration = line.iteration.unwrap_or(iteration + 1).max(iteration);
                    let mut step = step(&line, iteration);
                    step.hooks = std::mem::take(&mut hooks);
                    step.compactions = std::mem::take(&mut compactions);
                    step.fallback.clone_from(&fallback);
                    step.refused = std::mem::take(&mut refused);
                    steps.push(step);
                }
                EventKind::ActionDeferred => {
                    if let Some(step) = steps.last_mut() {
                        step.deferred.extend(line.action_id.map(Cow::into_owned));
                    }
                }
                EventKind::ActionResult => {
                    if let Some(step) = steps.last_mut() {
                        let id = line.action_id.as_deref().unwrap_or_default().to_owned();
                        step.results.entry(id).or_insert_with(|| outcome(&line));
                    }
                }
                EventKind::ModelChanged => {
                    fallback = Some(RecordedFallback {
                        name: line.changed_to().into_owned(),
                        why: line.why.unwrap_or_default().into_owned(),
                    });
                }
                EventKind::AttachmentsLeftOut => refused.extend(refused_in(&line, &attached)),
                EventKind::Compaction => compactions.extend(compaction(&line, &said_at)),
                EventKind::Acceptance => {
                    if let Some(step) = steps.last_mut() {
                        step.checks.extend(check(&line));
                    }
                }
                EventKind::HookAudit
                    if line.status.as_deref() != Some(HookStatus::Skipped.name()) =>
                {
                    let owned = |text: Option<Cow<'_, str>>| text.unwrap_or_default().into_owned();
                    hooks.push((owned(line.hook_name), owned(line.io_path_ref)));
                }
                _ => {}
            }
        }
        (self.parts, self.steps) = (parts, steps);
        self.inherited_steps = inherited;
    }
}

/// The last part; a new one if that is over or missing.
fn last_part(parts: &mut Vec<Exchange>, is_over: impl Fn(&Exchange) -> bool) -> &mut Exchange {
    if parts.last().is_none_or(is_over) {
        parts.push(Exchange::default());
    }
    let last = parts.len() - 1;
    &mut parts[last]
}

fn message(line: &Line<'_>) -> Option<RecordedMessage> {
    Some(RecordedMessage {
        content: decoded(line.content?.get()).into_owned(),
        attachments: read_list(line.attachments),
    })
}

fn step(line: &Line<'_>, iteration: u64) -> RecordedStep {
    let reference = line.llm_invocation_ref.as_deref().unwrap_or_default();
    RecordedStep {
        iteration,
        invocation: reference
            .rsplit('/')
            .next()
            .filter(|name| !name.is_empty())
            .map(str::to_owned),
        ids: line
            .calls()
            .into_iter()
            .map(|call| call.id.into())
            .collect(),
        ..RecordedStep::default()
    }
}

fn outcome(line: &Line<'_>) -> RecordedResult {
    let status = line.status.as_deref().and_then(ActionStatus::parse);
    RecordedResult {
        status: status.unwrap_or(ActionStatus::Error),
        exit_code: line.exit_code.and_then(|code| i32::try_from(code).ok()),
        observation: line
            .observation_content
            .map(|raw| decoded(raw.get()).into_owned())
            .unwrap_or_default(),
        duration_ms: line.duration_ms.unwrap_or(0),
        attachments: read_list(line.attachments),
        execution_ref: line
            .execution_ref
            .as_deref()
            .filter(|_| line.by_hook != Some(true))
            .map(str::to_owned),
    }
}

/// The attachments that a service refused, if that is why they were left out. `attached` are the numbers of the events
/// that have some.
fn refused_in(line: &Line<'_>, attached: &[u64]) -> Option<RefusedAttachments> {
    let seqs: Vec<u64> = serde_json::from_str(line.seqs?.get()).ok()?;
    let is_refusal = line.why.as_deref() == Some(LeftOutReason::Refused.name());
    let places = seqs
        .iter()
        .filter_map(|seq| attached.iter().position(|it| it == seq));
    is_refusal.then(|| RefusedAttachments {
        places: places.collect(),
        message: line.message.as_deref().unwrap_or_default().to_owned(),
    })
}

fn compaction(line: &Line<'_>, said_at: &[String]) -> Option<RecordedCompaction> {
    let times = line.message_times.clone();
    Some(RecordedCompaction {
        by: CompactionKind::parse(line.by.as_deref()?)?,
        reason: CompactionReason::parse(line.reason.as_deref()?)?,
        through_iteration: line.through_iteration?,
        summary: line.summary.as_deref().map(str::to_owned),
        message_bytes: line.message_bytes,
        message_times: times.unwrap_or_else(|| said_at.to_vec()),
        run_id: line.run_id.as_deref().unwrap_or_default().to_owned(),
        tokens_before: line.tokens_before.unwrap_or(0),
        tokens_after: line.tokens_after.unwrap_or(0),
    })
}

/// A check; none if it left the answer undecided, so that it was asked again.
fn check(line: &Line<'_>) -> Option<RecordedCheck> {
    let content = line.content.map(|raw| decoded(raw.get()).into_owned());
    (content.is_some() || line.exit_code == Some(0)).then(|| RecordedCheck {
        what: line.what.clone().unwrap_or_default().into_owned(),
        exit_code: line.exit_code.unwrap_or(1).try_into().unwrap_or(1),
        duration_ms: line.duration_ms.unwrap_or(0),
        content,
        value: line.value.map(|value| value.get().to_owned()),
    })
}

/// The lines of a journal that can be read, each with the place where it begins.
fn lines(journal: &[u8]) -> impl Iterator<Item = (usize, Box<Line<'_>>)> {
    split_lines(journal).filter_map(|(start, line)| Some((start, read_event(line, 0).ok()?)))
}

/// The error of a journal that cannot be read, for commands that only read.
pub(crate) fn unreadable(error: &Unreadable, path: &Path) -> Error {
    match error {
        Unreadable::Rewritten(form) => form.error(path),
        Unreadable::Damaged(Damage { line, message, .. }) => {
            let place = format!("{}:{line}", path.display());
            Error::damaged(Path::new(&place), message)
        }
    }
}

/// The beginning of a run: its first iterations, whole, with all their results.
#[derive(Debug)]
pub(crate) struct Beginning<'j> {
    /// Lines of the journal.
    pub journal: &'j [u8],
    /// How many iterations.
    pub iterations: u64,
}

impl<'j> Beginning<'j> {
    /// The first `wanted` iterations of a journal.
    ///
    /// # Errors
    /// There are fewer, or the last of them has a call without a result.
    pub(crate) fn of(journal: &'j [u8], wanted: u64) -> std::result::Result<Self, String> {
        let (mut end, mut iteration, mut found) = (0, 0, 0);
        for (start, line) in lines(journal) {
            let belongs = match line.kind {
                EventKind::Thought => {
                    iteration = line.iteration.unwrap_or(iteration + 1).max(iteration);
                    if iteration > wanted {
                        break;
                    }
                    found = iteration;
                    true
                }
                EventKind::ActionRequest
                | EventKind::ActionCheck
                | EventKind::ActionDeferred
                | EventKind::DeferredLook
                | EventKind::ActionResult
                | EventKind::Acceptance
                | EventKind::HumanInputRequest
                | EventKind::HumanInputReceived => found > 0,
                EventKind::HookAudit => line.hook_name.as_deref() == Some("on_iteration_end"),
                _ => false,
            };
            if belongs {
                let rest = memchr::memchr(b'\n', &journal[start..]);
                end = rest.map_or(journal.len(), |at| start + at + 1);
            }
        }
        if found != wanted {
            return Err(match found {
                0 => "it has no iteration".to_owned(),
                1 => "it has one iteration".to_owned(),
                found => format!("it has {found} iterations"),
            });
        }
        let beginning = Self {
            journal: &journal[..end],
            iterations: wanted,
        };
        let state = state::read(beginning.journal, Reading::default())
            .map_err(|error| unreadable(&error, Path::new("its journal")).message)?;
        let calls = state.last_thought().map(|thought| thought.calls.as_slice());
        let open = calls
            .unwrap_or_default()
            .iter()
            .find(|call| call.result.is_none());
        match open {
            Some(call) => Err(format!(
                "iteration {wanted} is not complete: {} has no result yet",
                call.name
            )),
            None => Ok(beginning),
        }
    }

    /// Copies the records that these iterations refer to, from the directory of the run that they are
    /// of to another one.
    pub(crate) fn copy_records(&self, from: &Path, to: &Path) -> Result<()> {
        let copy = |reference: &str| {
            let reference = Path::new(reference.trim_end_matches('/'));
            // Neither a link nor `..` leads out of the run.
            let is_there = reference.starts_with("io") && files::is_dir_below(from, reference);
            let to = to.join(reference);
            if !is_there || to.exists() {
                return Ok(());
            }
            trees::copy_tree(&from.join(reference), &to, &[]).map(|_| ())
        };
        for (_, line) in lines(self.journal) {
            blobs::copy(from, to, read_list(line.attachments).iter())?;
            for reference in [&line.execution_ref, &line.io_path_ref]
                .into_iter()
                .flatten()
            {
                copy(reference)?;
            }
        }
        // A shortened request builds on those before it, whether they were answered or not.
        for name in files::names(&from.join("io/invocations"))? {
            let iteration = name
                .split('_')
                .nth(1)
                .and_then(|number| number.parse().ok());
            if iteration.is_some_and(|number: u64| number <= self.iterations) {
                copy(&format!("io/invocations/{name}"))?;
            }
        }
        Ok(())
    }
}

/// The run in a directory that a person names by its path.
pub(crate) fn at_path(path: &Path) -> Result<RunDir> {
    let path = path.canonicalize().at("open", path)?;
    if !path.join("journal.jsonl").is_file() {
        let shown = path.display();
        return Err(Error::failure(format!(
            "{shown} is not a run's directory: it has no journal.jsonl"
        )));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let id = RunId::parse(&name).map_err(Error::failure)?;
    Ok(RunDir { id, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOURNAL: &str = r#"{"seq":1,"type":"ENGINE_START","run_id":"r"}
{"seq":2,"type":"USER_MESSAGE","content":"go"}
{"seq":3,"type":"THOUGHT","iteration":1,"tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{}"}}]}
{"seq":4,"type":"ACTION_REQUEST","iteration":1,"action_id":"a"}
{"seq":5,"type":"ACTION_RESULT","iteration":1,"action_id":"a","observation_content":"A"}
{"seq":6,"type":"HOOK_EXECUTION_AUDIT","iteration":1,"hook_name":"on_iteration_end"}
{"seq":7,"type":"HOOK_EXECUTION_AUDIT","iteration":2,"hook_name":"on_iteration_start"}
{"seq":8,"type":"THOUGHT","iteration":2,"content":"done"}
{"seq":9,"type":"ENGINE_END","iteration":2,"status":"COMPLETED"}
{"seq":10,"type":"ENGINE_START","run_id":"r"}
{"seq":11,"type":"USER_MESSAGE","content":"more"}
{"seq":12,"type":"THOUGHT","iteration":3,"tool_calls":[{"id":"b","type":"function","function":{"name":"x","arguments":"{}"}}]}
"#;

    fn last_line(text: &[u8]) -> &str {
        std::str::from_utf8(text)
            .unwrap()
            .lines()
            .last()
            .unwrap_or("")
    }

    #[test]
    fn a_beginning_ends_with_the_last_result_of_its_last_iteration() {
        let of = |n| Beginning::of(JOURNAL.as_bytes(), n);
        assert!(last_line(of(1).unwrap().journal).contains("on_iteration_end"));
        assert!(last_line(of(2).unwrap().journal).contains("done"));
        assert!(of(0).unwrap().journal.is_empty());
        assert_eq!(
            of(3).unwrap_err(),
            "iteration 3 is not complete: x has no result yet"
        );
        assert_eq!(of(4).unwrap_err(), "it has 3 iterations");
    }

    #[test]
    fn a_recording_is_what_was_said_and_what_was_answered() {
        let mut recording = Recording {
            run: RunDir {
                id: RunId::parse("r").unwrap(),
                path: "/".into(),
            },
            journal: JOURNAL.as_bytes().to_vec(),
            inherited: 0,
            inherited_steps: Vec::new(),
            parts: Vec::new(),
            steps: Vec::new(),
        };
        recording.gather(Some("r"));
        let part = |text: &str, answers| Exchange {
            messages: vec![RecordedMessage {
                content: text.to_owned(),
                attachments: Vec::new(),
            }],
            answers,
        };
        assert_eq!(recording.parts, [part("go", 2), part("more", 1)]);
        assert_eq!(recording.steps[0].results["a"].observation, "A");
        assert_eq!(recording.steps[1].hooks.len(), 2);
        assert!(recording.steps[2].results.is_empty());
    }

    #[test]
    fn what_comes_before_the_run_s_own_name_is_inherited() {
        let own = r#"{"seq":10,"type":"ENGINE_START","run_id":"own"}"#;
        let journal = JOURNAL.replace(r#"{"seq":10,"type":"ENGINE_START","run_id":"r"}"#, own);
        let mut recording = Recording {
            run: RunDir {
                id: RunId::parse("own").unwrap(),
                path: "/".into(),
            },
            journal: journal.into_bytes(),
            inherited: 0,
            inherited_steps: Vec::new(),
            parts: Vec::new(),
            steps: Vec::new(),
        };
        recording.gather(Some("own"));
        assert!(recording.journal[recording.inherited..].starts_with(own.as_bytes()));
        assert_eq!((recording.parts.len(), recording.steps.len()), (1, 1));
    }
}
