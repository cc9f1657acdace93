//! The record of an evaluation: the events of its trials and of the verdicts that were printed, written
//! into its journal, and what they add up to.
//!
//! Architecture invariant: a trial's result is recorded here, in the evaluation's own run, and not in
//! the trial's workspace, which the trial can write to. `TRIAL_END` is durable before a trial is judged,
//! and `LOOK` before a verdict is printed.

use super::assertion::TargetResult;
use super::trial::TrialOutcome;
use crate::error::Result;
use crate::record::event::{EvaluationEvent, EventKind};
use crate::record::journal::Journal;
use crate::record::reader::events;
use crate::record::recording::unreadable;
use crate::record::state::Unreadable;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The beginning of a trial, or of another attempt at it.
#[derive(Serialize)]
pub(crate) struct TrialStart<'e> {
    pub suite: &'e str,
    pub trial: &'e str,
    pub case: &'e str,
    pub setting: &'e str,
    pub number: u32,
    /// From 1.
    pub attempt: u32,
    pub seed: u32,
    /// From the evaluation's workspace.
    pub workspace: &'e str,
    pub call_id: &'e str,
    pub resolved_command: &'e str,
    /// The directory of records, from the run's directory.
    pub execution_ref: &'e str,
}

/// The end of a target's program, before anything is judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TrialEnd {
    /// `answered`, `failed` or `not_measured`.
    pub status: String,
    pub stop_reason: String,
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
    pub cost: Option<f64>,
    pub tokens: Option<u64>,
    /// Repeated attempts to reach the model.
    pub retries: u32,
    /// Those that have answered.
    pub models: Vec<String>,
    pub output_sha256: Option<String>,
    /// The directory of records, from the run's directory. The result is in it.
    pub execution_ref: String,
}

/// The status of an end that is judged.
pub(crate) const ANSWERED: &str = "answered";

/// What assertions made of an answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Grade {
    #[serde(rename = "status")]
    pub outcome: TrialOutcome,
    #[serde(default)]
    pub stop_reason: String,
    pub score: Option<f64>,
    /// The digest of all that judged it.
    #[serde(default)]
    pub grading: String,
    /// The assertions with their results: a JSON list.
    pub assertions: Box<RawValue>,
}

/// What is known of a trial.
#[derive(Debug, Default)]
pub(crate) struct TrialRecord {
    /// How often it was begun.
    pub starts: u32,
    /// `DELTA_CALL_ID` of the last attempt; those of its graders begin with it.
    pub last_call: Option<String>,
    pub end: Option<TrialEnd>,
    pub grade: Option<Grade>,
}

/// A verdict that was printed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RecordedLook {
    pub suite: String,
    /// From 1, since the assertions changed last.
    pub number: u32,
    pub alpha: f64,
    /// `passed`, `failed` or `undecided`.
    pub verdict: String,
    /// The digest of the names of the trials that were measured.
    pub trials: String,
    /// The digest of what judges each case, by its id.
    pub gradings: BTreeMap<String, String>,
    /// The numbers of each setting, for display.
    pub rates: Vec<Value>,
}

/// All trials of a suite by their names, and its looks in order.
#[derive(Debug, Default)]
pub(crate) struct SuiteRecord {
    pub trials: HashMap<String, TrialRecord>,
    pub looks: Vec<RecordedLook>,
}

/// The record of an evaluation, by the names of suites.
#[derive(Debug, Default)]
pub(crate) struct EvaluationRecord(HashMap<String, SuiteRecord>);

impl EvaluationRecord {
    pub(crate) fn suite(&mut self, name: &str) -> &mut SuiteRecord {
        self.0.entry(name.to_owned()).or_default()
    }

    pub(crate) fn trial(&mut self, suite: &str, name: &str) -> &mut TrialRecord {
        self.suite(suite).trials.entry(name.to_owned()).or_default()
    }

    /// The calls by which processes that the last engine may have left are found.
    pub(crate) fn last_calls(&self) -> Vec<&str> {
        let trials = self.0.values().flat_map(|suite| suite.trials.values());
        trials.filter_map(|it| it.last_call.as_deref()).collect()
    }

    /// Reads the record in a journal.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is damaged.
    pub(crate) fn read(journal: &[u8], path: &Path) -> Result<Self> {
        let mut record = Self::default();
        for event in events(journal) {
            match event {
                Ok((text, line)) => record.add(&line.kind, text),
                Err(damage) => return Err(unreadable(&Unreadable::Damaged(damage), path)),
            }
        }
        Ok(record)
    }

    fn add(&mut self, kind: &EventKind<'_>, text: &str) {
        let EventKind::Evaluation(event) = kind else {
            return;
        };
        if *event == EvaluationEvent::Look {
            if let Ok(look) = serde_json::from_str::<RecordedLook>(text) {
                self.suite(&look.suite.clone()).looks.push(look);
            }
            return;
        }
        let Ok(line) = serde_json::from_str::<TrialLine>(text) else {
            return;
        };
        let trial = self.trial(&line.suite, &line.trial);
        match event {
            EvaluationEvent::TrialStart => trial.begin(line.call_id.unwrap_or_default()),
            EvaluationEvent::TrialEnd => {
                if let Ok(end) = serde_json::from_str(text) {
                    trial.end(end);
                }
            }
            EvaluationEvent::Grade => trial.grade = Grade::read(text),
            EvaluationEvent::Look => {}
        }
    }
}

impl Grade {
    /// The grade in a line; none if that names no outcome or no assertions.
    fn read(line: &str) -> Option<Self> {
        let mut grade: Self = serde_json::from_str(line).ok()?;
        grade.score = grade.score.filter(|score| (0.0..=1.0).contains(score));
        Some(grade)
    }
}

impl TrialRecord {
    pub(crate) fn begin(&mut self, call_id: String) {
        self.starts += 1;
        self.last_call = Some(call_id);
        (self.end, self.grade) = (None, None);
    }

    pub(crate) fn end(&mut self, end: TrialEnd) {
        self.end = Some(end);
    }

    /// The trial needs nothing but perhaps a grade.
    pub(crate) fn is_measured(&self) -> bool {
        let status = self.end.as_ref().map(|end| &*end.status);
        status.is_some_and(|status| status != TrialOutcome::NotMeasured.name())
    }

    /// The end has an answer that the present assertions have not judged.
    pub(crate) fn needs_grade(&self, grading: &str) -> bool {
        let is_answered = self.end.as_ref().is_some_and(|end| end.status == ANSWERED);
        let is_judged = self.grade.as_ref().is_some_and(|grade| {
            grade.grading == grading && grade.outcome != TrialOutcome::NotMeasured
        });
        is_answered && !is_judged
    }
}

/// The trial that an event is about, and the call that began it.
#[derive(Deserialize, Default)]
#[serde(default)]
struct TrialLine {
    suite: String,
    trial: String,
    call_id: Option<String>,
}

pub(crate) fn add_start(journal: &mut Journal, start: &TrialStart<'_>) {
    journal.add_line(EvaluationEvent::TrialStart, |line| {
        line.members(start);
    });
}

pub(crate) fn add_end(journal: &mut Journal, (suite, trial): (&str, &str), end: &TrialEnd) {
    journal.add_line(EvaluationEvent::TrialEnd, |line| {
        line.put("suite", suite).put("trial", trial).members(end);
    });
}

pub(crate) fn add_grade(journal: &mut Journal, (suite, trial): (&str, &str), grade: &Grade) {
    journal.add_line(EvaluationEvent::Grade, |line| {
        line.put("suite", suite).put("trial", trial).members(grade);
    });
}

pub(crate) fn add_look(journal: &mut Journal, look: &RecordedLook) {
    journal.add_line(EvaluationEvent::Look, |line| {
        line.members(look);
    });
}

/// The file in a trial's directory of records that has the result.
pub(crate) const RESULT: &str = "result.json";

/// A result on disk.
#[derive(Serialize, Deserialize)]
pub(crate) struct TrialResult {
    pub output: Value,
    pub status: String,
    pub exit_code: Option<i32>,
    pub exit_node: Option<String>,
    pub error: Option<String>,
}

impl TrialResult {
    pub(crate) fn of(result: &TargetResult) -> Self {
        Self {
            output: result.output.clone(),
            status: result.status.clone(),
            exit_code: result.exit_code,
            exit_node: result.exit_node.clone(),
            error: result.error.clone(),
        }
    }

    /// The result, with the figures of the trial's end.
    pub(crate) fn with(self, end: &TrialEnd) -> TargetResult {
        TargetResult {
            output: self.output,
            status: self.status,
            exit_code: self.exit_code,
            exit_node: self.exit_node,
            error: self.error,
            duration_ms: end.duration_ms,
            cost: end.cost,
            tokens: end.tokens,
        }
    }
}

/// The number of the next look at a suite: the last one's if the same trials were looked at and judged by
/// the same, 1 if what judges one of its cases has changed since. `trials` is the digest of the names of
/// those that were measured.
pub(crate) fn number_look(
    looks: &[RecordedLook],
    trials: &str,
    gradings: &BTreeMap<String, String>,
) -> NumberedLook {
    let is_changed = |look: &RecordedLook| {
        let of_case =
            |(id, grading): (&String, &String)| gradings.get(id).is_some_and(|it| it != grading);
        look.gradings.iter().any(of_case)
    };
    let changed_at = looks.iter().rposition(is_changed);
    let since = &looks[changed_at.map_or(0, |at| at + 1)..];
    if let Some(same) = since
        .iter()
        .find(|look| look.trials == trials && look.gradings == *gradings)
    {
        return NumberedLook {
            number: same.number,
            is_new: false,
            assertions_changed: false,
        };
    }
    NumberedLook {
        number: since
            .iter()
            .map(|look| look.number)
            .max()
            .unwrap_or(0)
            .saturating_add(1),
        is_new: true,
        assertions_changed: changed_at.is_some() && since.is_empty(),
    }
}

/// A look, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumberedLook {
    pub number: u32,
    /// The same trials have not been looked at before.
    pub is_new: bool,
    /// The first one after a change of what judges.
    pub assertions_changed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(number: u32, trials: &str, grading: &str) -> RecordedLook {
        RecordedLook {
            number,
            trials: trials.to_owned(),
            gradings: gradings(grading),
            ..RecordedLook::default()
        }
    }

    fn gradings(grading: &str) -> BTreeMap<String, String> {
        [("a".to_owned(), grading.to_owned())].into()
    }

    fn numbered(looks: &[RecordedLook], trials: &str, grading: &str) -> (u32, bool, bool) {
        let found = number_look(looks, trials, &gradings(grading));
        (found.number, found.is_new, found.assertions_changed)
    }

    #[test]
    fn the_same_trials_are_no_new_look_and_other_graders_begin_anew() {
        let looks = [look(1, "t1", "g"), look(2, "t2", "g")];
        assert_eq!(numbered(&[], "t1", "g"), (1, true, false));
        assert_eq!(numbered(&looks, "t2", "g"), (2, false, false));
        assert_eq!(numbered(&looks, "t1", "g"), (1, false, false));
        assert_eq!(numbered(&looks, "t3", "g"), (3, true, false));
        assert_eq!(numbered(&looks, "t2", "other"), (1, true, true));
        let changed = [look(1, "t1", "g"), look(1, "t1", "other")];
        assert_eq!(numbered(&changed, "t3", "other"), (2, true, false));
    }
}
