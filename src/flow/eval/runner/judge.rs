//! The judging of a trial's answer: its assertions in their order, the programs among them, and the grade
//! that they make together.

use super::target;
use super::trial_process::{Judging, ProcessRole, TrialProcess};
use super::{Runner, TrialIx};
use crate::error::{At, Error, Result};
use crate::flow::eval::assertion::{AssertionKind, Mark, TargetResult, score_of};
use crate::flow::eval::grader::{describe_trial, look_at_file, read_mark};
use crate::flow::eval::record::{self, Grade, RESULT, TrialResult};
use crate::flow::eval::suite::Case;
use crate::flow::eval::trial::TrialOutcome;
use crate::flow::manifest::fill;
use crate::record::execution::{self, Stdin};
use crate::text::json;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::process::{Command, Ended, Outcome};
use serde_json::Value;
use std::path::Path;

impl Runner<'_> {
    /// Judges the answer of a trial that ended before.
    pub(super) fn judge_recorded(&mut self, trial: TrialIx) -> Result<()> {
        let (suite, name) = self.names(trial);
        let Some(end) = self.record.trial(suite, name).end.clone() else {
            return Ok(());
        };
        // The journal is the engine's own, and yet no path of it leads out of the run.
        let below = Path::new(&end.execution_ref).join(RESULT);
        if !files::is_below(&below) || !below.starts_with("io/trials") {
            let what = format!(
                "TRIAL_END of {name} leads out of the run: {}",
                below.display()
            );
            return Err(Error::damaged(self.journal.path(), what));
        }
        let run = &self.place.run.path;
        let path = run.join(&below);
        let read = files::read_below(run, &below, 2 * LARGEST_INPUT).at("read", &path)?;
        let result: Option<TrialResult> = serde_json::from_slice(&read).ok();
        let Some(result) = result else {
            let shown = path.display();
            return Err(Error::failure(format!(
                "{shown} is not the result of a trial"
            )));
        };
        self.judge_answer(trial, result.with(&end), end.stop_reason)
    }

    /// Judges an answer whose end is recorded.
    pub(super) fn judge_answer(
        &mut self,
        trial: TrialIx,
        result: TargetResult,
        stop_reason: String,
    ) -> Result<()> {
        self.judge(Judging {
            trial,
            result,
            stop_reason,
            workspace: self.workspace_of(trial),
            marks: Vec::new(),
        })
    }

    /// Goes on with judging until a program must be waited for, or all is judged.
    fn judge(&mut self, mut judging: Judging) -> Result<()> {
        let case = self.case(judging.trial);
        while let Some(assertion) = case.assertions.get(judging.marks.len()) {
            let mark = match (&assertion.check, assertion.judge(&judging.result)) {
                (_, Some(mark)) => mark,
                (AssertionKind::File { path, text }, None) => {
                    match look_at_file(&judging.workspace, path, text.as_deref()) {
                        Ok(()) => Mark::Holds(1.0),
                        Err(why) => Mark::Fails(0.0, assertion.reason(why)),
                    }
                }
                (_, None) => return self.begin_grader(judging),
            };
            judging.marks.push(mark);
        }
        self.grade(&judging)
    }

    /// Starts the program of the next assertion.
    fn begin_grader(&mut self, mut judging: Judging) -> Result<()> {
        let (trial, case) = (judging.trial, self.case(judging.trial));
        let Some(AssertionKind::Exec {
            command, timeout, ..
        }) = case.assertions.get(judging.marks.len()).map(|it| &it.check)
        else {
            return Ok(());
        };
        let dir = judging.workspace.clone();
        if !dir.is_dir() {
            let why = format!("{} is not there", dir.display());
            judging.marks.push(Mark::Broken(why));
            return self.judge(judging);
        }
        let home = self.place.home;
        let mut argv = fill(&self.suite(trial).suite.wrapper, home, &dir);
        argv.extend(command.argv(home, &dir));
        let (setting, number) = (&self.setting(trial).name, self.planned(trial).number);
        let about = describe_trial(case, (setting, number), &judging.result, &dir);
        let about = json::text(&about);
        let io = self.make_records(trial, ".grader")?;
        let record = execution::begin_record(&io, &argv, Stdin::Bytes(about.as_bytes()), None)?;
        let call_id = self.new_grader_call(trial);
        let spawned = self.children.spawn(Command {
            argv: &argv,
            dir: &dir,
            env: &target::environment(&self.place, &dir),
            call_id: &call_id,
            stdin: record.stdin,
            stdout: record.stdout,
            stderr: record.stderr,
            timeout: Some(*timeout),
        });
        match spawned {
            Ok(token) => {
                let role = ProcessRole::Grader(Box::new(judging));
                let process = TrialProcess::new(trial, io, call_id, role);
                self.processes.insert(token, process);
                Ok(())
            }
            Err(error) => {
                judging.marks.push(Mark::Broken(error.message(&argv[0])));
                self.judge(judging)
            }
        }
    }

    /// Reads the verdict of a grader that has ended, and goes on with judging.
    pub(super) fn end_grader(
        &mut self,
        mut judging: Judging,
        io: &Path,
        outcome: &Outcome,
    ) -> Result<()> {
        if matches!(outcome.how, Ended::Interrupted(_)) && self.stop.is_some() {
            // The same command judges it again.
            return Ok(());
        }
        let case = self.case(judging.trial);
        if let Some(assertion) = case.assertions.get(judging.marks.len()) {
            judging.marks.push(read_mark(assertion, outcome, io));
        }
        self.judge(judging)
    }

    /// Records what the assertions made of an answer.
    fn grade(&mut self, judging: &Judging) -> Result<()> {
        let trial = judging.trial;
        let grading = &self.suite(trial).gradings[self.planned(trial).case];
        let (grade, why) = grade_of(self.case(trial), judging, grading)?;
        let (suite, name) = self.names(trial);
        record::add_grade(&mut self.journal, (suite, name), &grade);
        self.journal.flush()?;
        self.print_end(trial, grade.outcome.name(), &grade.stop_reason, why);
        self.record.trial(suite, name).grade = Some(grade);
        Ok(())
    }
}

/// The grade of an answer, and why it did not pass. `grading` is the digest of what judged it.
fn grade_of<'j>(
    case: &Case,
    judging: &'j Judging,
    grading: &str,
) -> Result<(Grade, Option<&'j str>)> {
    let broken = judging.marks.iter().find_map(|mark| match mark {
        Mark::Broken(why) => Some(why.as_str()),
        _ => None,
    });
    let failed = judging.marks.iter().find_map(|mark| match mark {
        Mark::Fails(_, why) => Some(why.as_str()),
        _ => None,
    });
    let (outcome, stop_reason) = match (broken, failed) {
        (Some(_), _) => (TrialOutcome::NotMeasured, "grader"),
        (None, Some(_)) => (TrialOutcome::Failed, "assertion"),
        (None, None) => (TrialOutcome::Passed, judging.stop_reason.as_str()),
    };
    let marks = case.assertions.iter().zip(&judging.marks);
    let described: Vec<Value> = marks.clone().map(|(it, mark)| it.describe(mark)).collect();
    let scores = marks.filter_map(|(assertion, mark)| match mark {
        Mark::Holds(score) | Mark::Fails(score, _) => Some((assertion.weight, *score)),
        Mark::Broken(_) => None,
    });
    let scores: Vec<(f64, f64)> = scores.collect();
    let passed = f64::from(u8::from(outcome == TrialOutcome::Passed));
    let measured = outcome != TrialOutcome::NotMeasured;
    let grade = Grade {
        outcome,
        stop_reason: stop_reason.to_owned(),
        score: measured.then(|| score_of(&scores).unwrap_or(passed)),
        grading: grading.to_owned(),
        assertions: serde_json::value::to_raw_value(&described)
            .map_err(|e| Error::failure(format!("cannot record a grade: {e}")))?,
    };
    Ok((grade, broken.or(failed)))
}
