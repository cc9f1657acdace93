//! A hook's change: the payload that it received and the one that it wrote, compared line by line.
//!
//! Unaware of the effect. JSON is compared in a form in which each line of a text has a line of
//! its own.

use crate::unix::files::{open_below, read_limited};
use serde_json::Value;
use std::fs::File;
use std::path::Path;

/// Larger payloads are not compared.
const COMPARED_BYTES: u64 = 8 << 20;

/// Lines of context around a change.
const AROUND: usize = 3;

/// Longer stretches of changed lines are shown as removed and added, without a search for common lines.
const COMPARED_STEPS: usize = 4 << 20;

/// The result of the comparison.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PayloadChange {
    /// The hook wrote nothing, or what it was given.
    None,
    /// The differences: lines that begin with ` `, `-` or `+`, and `@` between the places.
    Lines(String),
    /// The payload is too large to be compared.
    TooLarge,
}

/// The change made by the execution in a directory.
pub(super) fn of(dir: &Path, event: &str) -> PayloadChange {
    let open = |name: &str| open_below(dir, Path::new(name)).ok();
    let mut outputs = ["output/final_payload.json", "output/payload_override.dat"].into_iter();
    let input = match event {
        "pre_llm_request" => "input/proposed_payload.json",
        _ => "input/payload.json",
    };
    let (Some(output), Some(input)) = (outputs.find_map(open), open(input)) else {
        return PayloadChange::None;
    };
    let is_large = |file: &File| {
        file.metadata()
            .is_ok_and(|meta| meta.len() > COMPARED_BYTES)
    };
    if is_large(&input) || is_large(&output) {
        return PayloadChange::TooLarge;
    }
    let read = |file: File| -> Option<Value> {
        let bytes = read_limited(file, COMPARED_BYTES).ok()?;
        let value: Value = serde_json::from_slice(&bytes).ok()?;
        // Of these two, only this part counts.
        match event {
            "pre_tool_execution" => value.get("tool_args").cloned(),
            "post_tool_execution" => value.get("observation").cloned(),
            _ => Some(value),
        }
    };
    let (Some(before), Some(after)) = (read(input), read(output)) else {
        return PayloadChange::None;
    };
    if before == after {
        return PayloadChange::None;
    }
    PayloadChange::Lines(render_lines(&lines(&before), &lines(&after)))
}

/// A value as lines.
fn lines(value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    write(value, "", "", &mut out);
    out
}

fn write(value: &Value, indent: &str, name: &str, out: &mut Vec<String>) {
    let deeper = format!("{indent}  ");
    let inner = if name.is_empty() { indent } else { &deeper };
    match value {
        Value::Object(map) if !map.is_empty() => {
            if !name.is_empty() {
                out.push(format!("{indent}{name}"));
            }
            for (key, value) in map {
                write(value, inner, &format!("{key}:"), out);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            if !name.is_empty() {
                out.push(format!("{indent}{name}"));
            }
            for value in list {
                write(value, inner, "-", out);
            }
        }
        Value::String(text) if text.contains('\n') || name.is_empty() => {
            if !name.is_empty() {
                out.push(format!("{indent}{name}"));
            }
            out.extend(text.lines().map(|line| format!("{inner}{line}")));
        }
        other => {
            let space = if name.is_empty() { "" } else { " " };
            let text = other
                .as_str()
                .map_or_else(|| other.to_string(), str::to_owned);
            out.push(format!("{indent}{name}{space}{text}"));
        }
    }
}

/// Where two lists of lines differ.
fn render_lines(before: &[String], after: &[String]) -> String {
    let shorter = before.len().min(after.len());
    let head = (0..shorter)
        .take_while(|at| before[*at] == after[*at])
        .count();
    let tail = (0..shorter - head)
        .take_while(|at| before[before.len() - 1 - at] == after[after.len() - 1 - at])
        .count();
    let mut steps: Vec<(char, &str)> = Vec::new();
    steps.extend(before[..head].iter().map(|line| (' ', line.as_str())));
    let (old, new) = (
        &before[head..before.len() - tail],
        &after[head..after.len() - tail],
    );
    steps.extend(diff_lines(old, new));
    let end = &before[before.len() - tail..];
    steps.extend(end.iter().map(|line| (' ', line.as_str())));

    let mut out = String::new();
    let mut shown_to = 0;
    for at in 0..steps.len() {
        let near = at.saturating_sub(AROUND)..(at + AROUND + 1).min(steps.len());
        if !steps[near].iter().any(|step| step.0 != ' ') {
            continue;
        }
        if at > shown_to {
            out.push_str(&format!("@ {} lines are the same\n", at - shown_to));
        }
        shown_to = at + 1;
        out.push_str(&format!("{}{}\n", steps[at].0, steps[at].1));
    }
    if shown_to < steps.len() {
        out.push_str(&format!(
            "@ {} lines are the same\n",
            steps.len() - shown_to
        ));
    }
    out
}

/// The shortest way from one list to another, by their longest common subsequence.
fn diff_lines<'l>(old: &'l [String], new: &'l [String]) -> Vec<(char, &'l str)> {
    let width = new.len() + 1;
    let mut steps = Vec::new();
    let (mut i, mut j) = (0, 0);
    if old.len().saturating_mul(new.len()) <= COMPARED_STEPS {
        // How many lines the rests behind each pair of places share.
        let mut shared = vec![0u32; (old.len() + 1) * width];
        for i in (0..old.len()).rev() {
            for j in (0..new.len()).rev() {
                shared[i * width + j] = if old[i] == new[j] {
                    shared[(i + 1) * width + j + 1] + 1
                } else {
                    shared[(i + 1) * width + j].max(shared[i * width + j + 1])
                };
            }
        }
        while i < old.len() && j < new.len() {
            if old[i] == new[j] {
                steps.push((' ', old[i].as_str()));
                (i, j) = (i + 1, j + 1);
            } else if shared[(i + 1) * width + j] >= shared[i * width + j + 1] {
                steps.push(('-', old[i].as_str()));
                i += 1;
            } else {
                steps.push(('+', new[j].as_str()));
                j += 1;
            }
        }
    }
    steps.extend(old[i..].iter().map(|line| ('-', line.as_str())));
    steps.extend(new[j..].iter().map(|line| ('+', line.as_str())));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn compared(before: &Value, after: &Value) -> String {
        render_lines(&lines(before), &lines(after))
    }

    #[test]
    fn lines_of_a_text_are_compared_one_by_one() {
        let long = "a\nb\nc\nd\ne\nf\ng";
        let shown = compared(&json!(long), &json!("a\nb\nc\nd\ne\nF\ng"));
        assert_eq!(shown, "@ 2 lines are the same\n c\n d\n e\n-f\n+F\n g\n");
        assert_eq!(compared(&json!("a"), &json!("")), "-a\n");
    }

    #[test]
    fn a_member_has_its_name_before_it() {
        let before = json!({"n": 1, "list": [{"role": "user", "content": "x\ny"}]});
        let after = json!({"n": 2, "list": [{"role": "user", "content": "x\nz"}]});
        let shown = compared(&before, &after);
        assert_eq!(
            shown,
            "-n: 1\n+n: 2\n list:\n   -\n     role: user\n     content:\n       x\n-      y\n+      z\n"
        );
    }

    #[test]
    fn what_is_too_long_to_be_matched_is_removed_and_added() {
        let many =
            |from: usize| -> Vec<String> { (from..from + 3000).map(|n| n.to_string()).collect() };
        let (a, b) = (many(0), many(1));
        let steps = diff_lines(&a, &b);
        assert_eq!(steps.len(), 6000);
        assert!(steps[..3000].iter().all(|step| step.0 == '-'));
    }
}
