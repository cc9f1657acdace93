//! A run as it was recorded: the model's requests and answers, the result of every call, and the
//! part of a journal that another run can begin with.
//!
//! Unaware of how a run continues, and of agents. Only `changes` writes.

pub(crate) mod changes;

use crate::error::{At, Error, Result};
use crate::record::attachments::{self, Attachment};
use crate::record::event::{ActionStatus, EventTrait, HookStatus, Line, Recorded, recorded};
use crate::record::reader::{Damage, JournalSource, Tail, read_journal, readable_lines, tail};
use crate::record::run_dir::RunDir;
use crate::record::state::{self, Reading, Run, Unreadable};
use crate::text::ids::RunId;
use crate::unix::files;
use crate::unix::trees;
use changes::is_change;
use std::collections::HashMap;
use std::path::Path;

/// A run, read from its directory.
#[derive(Debug)]
pub(crate) struct Recording {
    /// Place where it is.
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
    /// Place where it begins in the journal.
    pub at: usize,
    pub iteration: u64,
    /// The name of its directory among the invocations; `None` if the journal has lost it.
    pub invocation: Option<String>,
    /// The ids of its calls and their tools, in order.
    pub calls: Vec<(String, String)>,
    /// The results of the calls, by id.
    pub results: HashMap<String, RecordedResult>,
    /// The calls that ended later, and those about which a person was asked.
    pub not_repeated: Vec<String>,
    /// The hooks that ran from the answer before this one to this one and its calls: name and directory
    /// from the run's directory.
    pub hooks: Vec<(String, String)>,
    /// The model that gave it in place of the first.
    pub fallback: Option<RecordedFallback>,
    /// Places of the changes of requests between the answer before this one and this one.
    pub changes: Vec<usize>,
}

/// A model that was asked in place of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedFallback {
    pub name: String,
    /// The way the model before it failed.
    pub why: String,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub(crate) struct RecordedResult {
    /// The way it ended.
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
        let own_name = recording.state()?.start.run_id.owned();
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
        let mut iteration = 0;
        // Facts that precede the answer to come.
        let mut next = RecordedStep::default();
        let mut found_own = false;
        for (at, line) in readable_lines(&self.journal) {
            match &line.event {
                Recorded::EngineStart(start) => {
                    if !found_own && start.run_id.get() == own_name {
                        found_own = true;
                        self.inherited = at;
                        parts.clear();
                        self.inherited_steps = std::mem::take(&mut steps);
                    }
                    // Hooks of an iteration that did not come about: it has been begun anew.
                    next.hooks.clear();
                    next.fallback = None;
                }
                Recorded::UserMessage(message) => {
                    last_part(&mut parts, |part| part.answers > 0)
                        .messages
                        .push(RecordedMessage {
                            content: message.content.text().into_owned(),
                            attachments: line.attachments(),
                        });
                }
                Recorded::Thought(thought) => {
                    last_part(&mut parts, |_| false).answers += 1;
                    iteration = line.iteration.unwrap_or(iteration + 1).max(iteration);
                    let fallback = next.fallback.clone();
                    steps.push(RecordedStep {
                        at,
                        iteration,
                        ..answered(thought, std::mem::take(&mut next))
                    });
                    next.fallback = fallback;
                }
                Recorded::ActionDeferred(_) | Recorded::HumanInputRequest(_) => {
                    if let Some(step) = steps.last_mut() {
                        step.not_repeated.extend(line.action_id.owned());
                    }
                }
                Recorded::ActionResult(result) => {
                    if let Some(step) = steps.last_mut() {
                        let id = line.action_id.to_string();
                        step.results
                            .entry(id)
                            .or_insert_with(|| outcome(result, &line));
                    }
                }
                Recorded::ModelChanged(change) => {
                    next.fallback = Some(RecordedFallback {
                        name: change.to.to_string(),
                        why: change.why.to_string(),
                    });
                }
                Recorded::HookAudit(hook) if &*hook.status != HookStatus::Skipped.name() => {
                    let (name, place) = (&hook.hook_name, &hook.io_path_ref);
                    next.hooks.push((name.to_string(), place.to_string()));
                }
                event if is_change(event) => next.changes.push(at),
                _ => {}
            }
        }
        (self.parts, self.steps) = (parts, steps);
    }
}

/// The step of an answer, with the facts that precede it.
fn answered(thought: &recorded::Thought<'_>, before: RecordedStep) -> RecordedStep {
    let calls = thought.calls().into_iter();
    let invocation = thought.llm_invocation_ref.rsplit('/').next();
    RecordedStep {
        invocation: invocation
            .filter(|name| !name.is_empty())
            .map(str::to_owned),
        calls: calls
            .map(|call| (call.id.into(), call.function.name.into()))
            .collect(),
        ..before
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

fn outcome(result: &recorded::ActionResult<'_>, line: &Line<'_>) -> RecordedResult {
    let output = line.execution_ref.owned();
    RecordedResult {
        status: ActionStatus::parse(&result.status).unwrap_or(ActionStatus::Error),
        exit_code: result.exit_code.and_then(|code| i32::try_from(code).ok()),
        observation: result.observation_content.text().into_owned(),
        duration_ms: result.duration_ms.unwrap_or(0),
        attachments: line.attachments(),
        execution_ref: output.filter(|_| result.by_hook != Some(true)),
    }
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
        for (start, line) in readable_lines(journal) {
            let belongs = match &line.event {
                Recorded::Thought(_) => {
                    iteration = line.iteration.unwrap_or(iteration + 1).max(iteration);
                    if iteration > wanted {
                        break;
                    }
                    found = iteration;
                    true
                }
                Recorded::HookAudit(hook) => &*hook.hook_name == "on_iteration_end",
                // The state that the iteration has left.
                Recorded::Files(_) => start == end,
                _ => found > 0 && line.kind.is(EventTrait::OfAnswer),
            };
            if belongs {
                end = memchr::memchr(b'\n', &journal[start..])
                    .map_or(journal.len(), |at| start + at + 1);
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
        let open = state
            .last_thought()
            .map(|thought| thought.calls.as_slice())
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
        for (_, line) in readable_lines(self.journal) {
            attachments::copy(from, to, &line.attachments())?;
            copy(&line.execution_ref)?;
            if let Recorded::HookAudit(hook) = &line.event {
                copy(&hook.io_path_ref)?;
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
    let real = path.canonicalize().at("open", path)?;
    if !real.join("journal.jsonl").is_file() {
        let shown = real.display();
        return Err(Error::failure(format!(
            "{shown} is not a run's directory: it has no journal.jsonl"
        )));
    }
    let name = files::name_of(&real);
    let id = RunId::parse(&name).map_err(Error::failure)?;
    Ok(RunDir { id, path: real })
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
