//! Grading that takes a look at a trial's workspace: files, and the verdicts of programs.
//!
//! Everything in a workspace was made by what is graded: links are not followed, sizes are bounded, and
//! no program is found there by a relative path.

use super::assertion::{Assertion, AssertionKind, Mark, TargetResult};
use super::plan::PlannedTrial;
use crate::record::event::evaluation::is_score;
use crate::text::json::{LONGEST_EXCERPT, after_mark, parser_message};
use crate::text::shorten::in_short;
use crate::unix::files;
use crate::unix::process::{Ended, Outcome};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Component, Path};

/// Looks whether a file is there and contains a text. `path` has no `..`.
pub(super) fn look_at_file(workspace: &Path, path: &str, text: Option<&str>) -> Result<(), String> {
    let mut at = workspace.to_owned();
    for part in Path::new(path).components() {
        if let Component::Normal(name) = part {
            at.push(name);
            match at.symlink_metadata() {
                Ok(about) if about.is_symlink() => {
                    return Err(format!("{path}: a link is not followed"));
                }
                Ok(_) => {}
                Err(_) => return Err(format!("{path}: there is no such file")),
            }
        }
    }
    let bytes = files::open_unlinked(&at)
        .and_then(|file| files::read_limited(file, files::LARGEST_INPUT))
        .map_err(|e| format!("{path}: {}", crate::error::reason(&e)))?;
    let Some(text) = text else { return Ok(()) };
    match memchr::memmem::find(&bytes, text.as_bytes()) {
        Some(_) => Ok(()),
        None => Err(format!("{path} does not contain {}", json!(text))),
    }
}

/// The object that a grader gets on its standard input.
pub(super) fn describe_trial(
    trial: &PlannedTrial<'_>,
    result: &TargetResult,
    workspace: &Path,
) -> Value {
    let case = trial.chosen.case;
    json!({
        "case": case.id,
        "setting": trial.setting.name,
        "trial": trial.number,
        "input": case.input,
        "expected": case.expected,
        "output": result.output,
        "status": result.status,
        "exit_code": result.exit_code,
        "exit_node": result.exit_node,
        "error": result.error,
        "duration_ms": result.duration_ms,
        "cost": result.cost,
        "tokens": result.tokens,
        "workspace": workspace.to_string_lossy(),
    })
}

/// The verdict of a grader.
pub(super) struct GraderVerdict {
    pub mark: Mark,
    /// By their names.
    pub scores: BTreeMap<String, f64>,
    /// What it said of an answer that passes.
    pub remark: Option<String>,
    /// True if its exit code decided, and it printed `pass` with the other value.
    pub is_contradicted: bool,
}

impl From<Mark> for GraderVerdict {
    fn from(mark: Mark) -> Self {
        Self {
            mark,
            scores: BTreeMap::new(),
            remark: None,
            is_contradicted: false,
        }
    }
}

/// Reads the verdict of a grader that has ended; `io` has what it printed.
pub(super) fn read_verdict(assertion: &Assertion, outcome: &Outcome, io: &Path) -> GraderVerdict {
    let output = end_of(&io.join("stdout.log"));
    let printed = after_mark(&output);
    let said = end_of(&io.join("stderr.log"));
    let is_json = matches!(assertion.check, AssertionKind::Exec { is_json: true, .. });
    if is_json && matches!(outcome.how, Ended::Exited(0 | 1)) {
        // The reader would take an array for the members in their order.
        let read = if printed.trim_start().starts_with('[') {
            Err("expected an object, found an array".to_owned())
        } else {
            serde_json::from_str(printed).map_err(|e| parser_message(&e))
        };
        return match read {
            Ok(verdict) => of_json(assertion, verdict),
            Err(why) => Mark::Broken(format!("the grader's verdict: {why}")).into(),
        };
    }
    let score = match score_in(printed) {
        Ok(score) => score,
        Err(why) => return Mark::Broken(why).into(),
    };
    let remark = match (said.trim(), score) {
        ("", Some(_)) => "",
        ("", None) => printed.trim(),
        (said, _) => said,
    };
    let why = match outcome.how {
        Ended::Exited(code @ 0..=1) => {
            return GraderVerdict {
                is_contradicted: pass_in(printed).is_some_and(|pass| pass != (code == 0)),
                ..verdict(assertion, code == 0, score, in_line(remark))
            };
        }
        Ended::TimedOut => "the grader took too long".to_owned(),
        Ended::Exited(code) | Ended::Interrupted(code) => {
            format!("the grader ended with {code}, which is not a verdict")
        }
    };
    Mark::Broken(match remark {
        "" => why,
        remark => format!("{why}: {}", in_line(remark)),
    })
    .into()
}

/// The whole output of a grader with `verdict: json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonVerdict {
    pass: bool,
    score: Option<f64>,
    scores: Option<BTreeMap<String, f64>>,
    reason: Option<String>,
}

/// `pass` of an object that a grader without `verdict: json` prints.
fn pass_in(printed: &str) -> Option<bool> {
    serde_json::from_str::<Value>(printed)
        .ok()?
        .get("pass")?
        .as_bool()
}

fn of_json(assertion: &Assertion, found: JsonVerdict) -> GraderVerdict {
    let scores = found.scores.unwrap_or_default();
    if let Some((name, _)) = scores.iter().find(|(_, score)| !is_score(**score)) {
        return Mark::Broken(format!("the grader's score {name} is too great")).into();
    }
    let reason = in_short(found.reason.unwrap_or_default().trim(), LONGEST_REASON);
    GraderVerdict {
        scores,
        ..verdict(assertion, found.pass, found.score, reason)
    }
}

/// The verdict with the words of the grader, if it has any.
fn verdict(assertion: &Assertion, pass: bool, score: Option<f64>, why: String) -> GraderVerdict {
    let score = score.unwrap_or(f64::from(u8::from(pass)));
    let (mark, remark) = match why {
        _ if !(0.0..=1.0).contains(&score) => (Mark::Broken(out_of_range(score)), None),
        why if pass => (Mark::Holds(score), Some(why).filter(|it| !it.is_empty())),
        why => {
            let why = match &*why {
                "" => "the grader says no".to_owned(),
                _ => why,
            };
            (Mark::Fails(score, assertion.reason(why)), None)
        }
    };
    GraderVerdict {
        remark,
        ..mark.into()
    }
}

fn out_of_range(score: f64) -> String {
    format!("the grader's score {score} is not from 0 to 1")
}

/// A score that a grader printed, alone on its output.
fn score_in(printed: &str) -> Result<Option<f64>, String> {
    match printed.trim().parse() {
        Ok(score) if (0.0..=1.0).contains(&score) => Ok(Some(score)),
        Ok(score) => Err(out_of_range(score)),
        Err(_) => Ok(None),
    }
}

/// Columns of a grader's reason.
const LONGEST_REASON: usize = 300;

fn in_line(text: &str) -> String {
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    in_short(last.unwrap_or_default().trim(), LONGEST_REASON)
}

/// The end of a file of text. A mark at the beginning replaces what was cut off.
fn end_of(path: &Path) -> String {
    let read = || -> std::io::Result<String> {
        let file = File::open(path)?;
        let start = file
            .metadata()?
            .len()
            .saturating_sub(LONGEST_EXCERPT as u64);
        let bytes = files::read_part(&file, start, LONGEST_EXCERPT)?;
        let mark = if start > 0 { "…" } else { "" };
        Ok(format!("{mark}{}", String::from_utf8_lossy(&bytes)))
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_a_number_from_0_to_1_and_other_words_are_none() {
        assert_eq!(score_in("0.5\n"), Ok(Some(0.5)));
        assert_eq!(score_in("good"), Ok(None));
        assert_eq!(score_in(""), Ok(None));
        assert!(score_in("1.5").is_err());
        assert!(score_in("NaN").is_err());
    }
}
