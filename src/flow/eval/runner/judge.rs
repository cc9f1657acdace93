//! The judging of a trial's answer: its assertions in their order, the programs among them, and the grade
//! that they make together.

use super::{Runner, TrialProcess, TrialRef};
use crate::engine::run_context::RunContext;
use crate::error::{At, Error, Result};
use crate::flow::eval::assertion::{AssertionKind, Mark, TargetResult, score_of};
use crate::flow::eval::grader::{GraderVerdict, describe_trial, look_at_file, read_verdict};
use crate::flow::eval::record::Grade;
use crate::flow::eval::trial::{Activity, TrialOutcome};
use crate::flow::manifest::fill;
use crate::record::event::EvaluationEvent;
use crate::record::event::evaluation::result_path;
use crate::record::execution::{self, Stdin};
use crate::text::ids::hex;
use crate::text::json;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::process::{Ended, Outcome};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// An answer that is being judged, with the marks of the assertions that have been.
pub(super) struct Judging<'e> {
    trial: TrialRef<'e>,
    result: Box<TargetResult>,
    marks: Vec<Mark>,
    /// By their names; several graders may give one.
    scores: BTreeMap<String, Vec<f64>>,
    /// What the last grader said that had nothing against the answer.
    remark: Option<String>,
}

impl<'e> Judging<'e> {
    pub(super) fn of(trial: TrialRef<'e>, result: TargetResult) -> Self {
        Self {
            trial,
            result: Box::new(result),
            marks: Vec::new(),
            scores: BTreeMap::new(),
            remark: None,
        }
    }
}

impl<'e> Runner<'e> {
    /// Judges the answer of a trial that ended before.
    pub(super) fn judge_recorded(&mut self, trial: TrialRef<'e>) -> Result<()> {
        let Some(end) = &trial.record(&mut self.record).end else {
            return Ok(());
        };
        // The journal is the engine's own, and yet no path of it leads out of the run.
        let Some(below) = result_path(&end.execution_ref) else {
            let (name, path) = (&trial.plan.name, &end.execution_ref);
            let what = format!("TRIAL_END of {name} leads out of the run: {path}");
            return Err(Error::damaged(self.journal.path(), what));
        };
        let run = &self.start.run.path;
        let path = run.join(&below);
        let read = files::read_below(run, &below, 2 * LARGEST_INPUT).at("read", &path)?;
        let Ok(result) = serde_json::from_slice(&read) else {
            return Err(Error::failure(format!(
                "{} is not the result of a trial",
                path.display()
            )));
        };
        let result = TargetResult {
            duration_ms: end.duration_ms,
            cost: end.cost,
            tokens: end.tokens,
            ..result
        };
        self.judge(Judging::of(trial, result))
    }

    /// Goes on with judging until a program must be waited for, or all is judged.
    pub(super) fn judge(&mut self, mut judging: Judging<'e>) -> Result<()> {
        let dir = self.dir(judging.trial);
        let case = judging.trial.plan.chosen.case;
        while let Some(assertion) = case.assertions.get(judging.marks.len()) {
            let mark = match (&assertion.check, assertion.judge(&judging.result)) {
                (_, Some(mark)) => mark,
                (AssertionKind::File { path, text }, None) => {
                    assertion.mark(look_at_file(&dir, path, text.as_deref()))
                }
                (_, None) if !dir.is_dir() => {
                    Mark::Broken(format!("{} is not there", dir.display()))
                }
                (check, None) => match self.begin_grader(judging, check, &dir)? {
                    None => return Ok(()),
                    Some((unjudged, mark)) => {
                        judging = unjudged;
                        mark
                    }
                },
            };
            judging.marks.push(assertion.turned(mark));
        }
        self.grade(&judging)
    }

    /// Starts the program of an assertion. Returns the mark of one that cannot be started.
    fn begin_grader(
        &mut self,
        judging: Judging<'e>,
        check: &AssertionKind,
        dir: &Path,
    ) -> Result<Option<(Judging<'e>, Mark)>> {
        let trial = judging.trial;
        let AssertionKind::Exec {
            command, timeout, ..
        } = check
        else {
            return Ok(None);
        };
        let home = self.start.home;
        let mut argv = fill(&trial.of.suite.wrapper, home, dir);
        argv.extend(command.argv(home, dir));
        let about = json::text(&describe_trial(trial.plan, &judging.result, dir));
        let io = self.make_records(trial, ".grader")?;
        let record = execution::begin_record(&io, &argv, Stdin::Bytes(about.as_bytes()), None)?;
        let process = TrialProcess {
            trial,
            io,
            // A call within that of the trial: with that one, which the journal has, it is found again.
            call_id: match &trial.record(&mut self.record).last_call {
                Some(around) => format!("{around}.{}", hex(12)),
                None => RunContext::new_call_id(),
            },
            judging: Some(judging),
            is_oversized: false,
        };
        Ok(self
            .launch(process, &argv, Vec::new(), record, Some(*timeout))
            .and_then(|(process, error)| {
                Some((process.judging?, Mark::Broken(error.message(&argv[0]))))
            }))
    }

    /// Reads the verdict of a grader that has ended, and goes on with judging.
    pub(super) fn end_grader(
        &mut self,
        mut judging: Judging<'e>,
        io: &Path,
        outcome: &Outcome,
    ) -> Result<()> {
        if matches!(outcome.how, Ended::Interrupted(_)) && self.stop.is_some() {
            // The same command judges it again.
            return Ok(());
        }
        let case = judging.trial.plan.chosen.case;
        if let Some(assertion) = case.assertions.get(judging.marks.len()) {
            let GraderVerdict {
                mark,
                scores,
                remark,
                is_contradicted,
            } = read_verdict(assertion, outcome, io);
            judging.marks.push(assertion.turned(mark));
            judging.remark = remark.or(judging.remark);
            if is_contradicted {
                let text = "a grader printed another verdict than its exit code, which counts; \
                            the printed one counts with verdict: json";
                self.warn_once(text.to_owned());
            }
            for (name, score) in scores {
                judging.scores.entry(name).or_default().push(score);
            }
        }
        self.judge(judging)
    }

    /// Records what the assertions made of an answer.
    fn grade(&mut self, judging: &Judging<'e>) -> Result<()> {
        let Judging { trial, marks, .. } = judging;
        let mean = |scores: &Vec<f64>| scores.iter().sum::<f64>() / scores.len() as f64;
        let (case, record) = (&trial.plan.chosen, trial.record(&mut self.record));
        let broken = marks.iter().find(|mark| matches!(mark, Mark::Broken(_)));
        let against = broken.or(marks.iter().find(|mark| matches!(mark, Mark::Fails(..))));
        let (outcome, stop_reason, why) = match against {
            Some(Mark::Broken(why)) => (TrialOutcome::NotMeasured, "grader", Some(why)),
            Some(Mark::Fails(_, why)) => (TrialOutcome::Failed, "assertion", Some(why)),
            Some(Mark::Holds(_)) | None => {
                let end = record.end.as_ref();
                (
                    TrialOutcome::Passed,
                    end.map_or("", |end| &end.stop_reason),
                    None,
                )
            }
        };
        let pairs = || case.case.assertions.iter().zip(marks);
        let described: Vec<Value> = pairs().map(|(it, mark)| it.describe(mark)).collect();
        let scores: Vec<(f64, f64)> = pairs()
            .filter_map(|(it, mark)| Some((it.weight, mark.score()?)))
            .collect();
        let passed = f64::from(u8::from(against.is_none()));
        let grade = Grade {
            outcome,
            stop_reason: stop_reason.to_owned(),
            score: broken
                .is_none()
                .then(|| score_of(&scores).unwrap_or(passed)),
            grading: case.grading.clone(),
            scores: judging
                .scores
                .iter()
                .filter(|_| broken.is_none())
                .map(|(name, scores)| (name.clone(), mean(scores)))
                .collect(),
            reason: why.or(judging.remark.as_ref()).cloned(),
            assertions: serde_json::value::to_raw_value(&described)
                .map_err(|e| Error::failure(format!("cannot record a grade: {e}")))?,
        };
        self.journal.add_line(EvaluationEvent::Grade, |line| {
            trial.put_names(line).members(&grade);
        });
        self.journal.flush()?;
        let reason = grade.stop_reason.clone();
        record.grade = Some(grade);
        record.activity = record.activity.max(Activity::Judged);
        self.print_end(*trial, outcome.name(), &reason, why.map(String::as_str));
        Ok(())
    }
}
