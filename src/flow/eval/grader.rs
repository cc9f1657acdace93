//! Grading that takes a look at a trial's workspace: files, and the verdicts of programs.
//!
//! Everything in a workspace was made by what is graded: links are not followed, sizes are bounded, and
//! no program is found there by a relative path.

use super::assertion::{Assertion, AssertionKind, Mark, TargetResult};
use super::suite::Case;
use crate::text::json::{LONGEST_EXCERPT, parser_message};
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
    case: &Case,
    (setting, number): (&str, u32),
    result: &TargetResult,
    workspace: &Path,
) -> Value {
    json!({
        "case": case.id,
        "setting": setting,
        "trial": number,
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

/// The verdict of a grader that has ended; `io` has what it printed.
pub(super) fn read_mark(assertion: &Assertion, outcome: &Outcome, io: &Path) -> Mark {
    let printed = end_of(&io.join("stdout.log"));
    let said = end_of(&io.join("stderr.log"));
    if let (AssertionKind::Exec { is_json: true, .. }, Ended::Exited(0 | 1)) =
        (&assertion.check, outcome.how)
    {
        // The reader would take an array for the members in their order.
        if printed.trim_start().starts_with('[') {
            return Mark::Broken(
                "the grader's verdict: expected an object, found an array".to_owned(),
            );
        }
        return match serde_json::from_str::<JsonVerdict>(&printed) {
            Ok(verdict) => verdict.mark(assertion),
            Err(e) => Mark::Broken(format!("the grader's verdict: {}", parser_message(&e))),
        };
    }
    let score = match score_in(&printed) {
        Ok(score) => score,
        Err(why) => return Mark::Broken(why),
    };
    let remark = match (said.trim(), score) {
        ("", Some(_)) => "",
        ("", None) => printed.trim(),
        (said, _) => said,
    };
    let broken = |why: &str| match remark {
        "" => Mark::Broken(why.to_owned()),
        remark => Mark::Broken(format!("{why}: {}", in_line(remark))),
    };
    match outcome.how {
        Ended::Exited(0) => Mark::Holds(score.unwrap_or(1.0)),
        Ended::Exited(1) => {
            let why = match remark {
                "" => SAYS_NO.to_owned(),
                remark => in_line(remark),
            };
            Mark::Fails(score.unwrap_or(0.0), assertion.reason(why))
        }
        Ended::TimedOut => broken("the grader took too long"),
        Ended::Exited(code) | Ended::Interrupted(code) => broken(&format!(
            "the grader ended with {code}, which is not a verdict"
        )),
    }
}

/// The whole output of a grader with `verdict: json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonVerdict {
    pass: bool,
    score: Option<f64>,
    /// Checked, and not used yet.
    #[serde(default, rename = "scores")]
    _scores: BTreeMap<String, f64>,
    #[serde(default)]
    reason: String,
}

impl JsonVerdict {
    fn mark(self, assertion: &Assertion) -> Mark {
        let score = self.score.unwrap_or(f64::from(u8::from(self.pass)));
        if !(0.0..=1.0).contains(&score) {
            return Mark::Broken(out_of_range(score));
        }
        match (self.pass, self.reason) {
            (true, _) => Mark::Holds(score),
            (false, why) if why.is_empty() => {
                Mark::Fails(score, assertion.reason(SAYS_NO.to_owned()))
            }
            (false, why) => Mark::Fails(score, assertion.reason(in_line(&why))),
        }
    }
}

/// The reason of a grader that gives none.
const SAYS_NO: &str = "the grader says no";

fn out_of_range(score: f64) -> String {
    format!("the grader's score {score} is not from 0 to 1")
}

/// A score that a grader printed, alone on its output.
fn score_in(printed: &str) -> Result<Option<f64>, String> {
    let number = printed.trim().parse::<f64>().ok();
    match number {
        Some(score) if (0.0..=1.0).contains(&score) => Ok(Some(score)),
        Some(score) => Err(out_of_range(score)),
        None => Ok(None),
    }
}

fn in_line(text: &str) -> String {
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    crate::text::shorten::in_short(last.unwrap_or_default().trim(), 300)
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
