//! The parts of a model's answer: the thoughts at its beginning, and the JSON in it.

use super::json;
use std::ops::Range;

/// The tags of thoughts that a server has left in the text.
const THOUGHTS: [[&str; 2]; 3] = [
    ["<think>", "</think>"],
    ["<thinking>", "</thinking>"],
    ["<thought>", "</thought>"],
];

/// An answer without the thoughts at its beginning. Templates may put the opening tag into the prompt: then a closing
/// one is alone on its line.
pub(crate) fn after_thoughts(answer: &str) -> &str {
    let mut rest = answer;
    while let Some(after) = THOUGHTS.iter().find_map(|[open, close]| {
        let thought = rest.trim_start().strip_prefix(open)?;
        Some(thought.split_once(close)?.1)
    }) {
        rest = after.trim_start();
    }
    let closed = || {
        let mut tags = THOUGHTS.iter();
        tags.find_map(|[open, close]| after_closing(answer, open, close))
    };
    if rest.len() == answer.len() {
        closed().unwrap_or(answer)
    } else {
        rest
    }
}

/// The text after the only line that is a closing tag, if there is no opening one before it.
fn after_closing<'t>(answer: &'t str, open: &str, close: &str) -> Option<&'t str> {
    let (before, _) = answer.split_once(close)?;
    let fences = fences(answer);
    let is_outside = |at: &usize| !fences.iter().any(|fence| fence.range.contains(at));
    let mut lines = lines(answer).filter(|(at, line)| line.trim() == close && is_outside(at));
    let (at, line) = lines.next()?;
    let is_only = lines.next().is_none() && !before.contains(open) && !answer[..at].contains(open);
    is_only.then(|| answer[at + line.len()..].trim_start())
}

/// The JSON values that an answer may mean: the whole text, or else its fenced blocks of JSON, the last one first.
pub(crate) fn values_in(answer: &str) -> Vec<&str> {
    let text = json::after_mark(answer.trim());
    if json::check(text).is_ok() {
        return vec![text];
    }
    let blocks = fences(answer)
        .into_iter()
        .rev()
        .filter(|fence| is_json(fence.info));
    let values = blocks.map(|fence| json::after_mark(fence.body.trim()));
    values.filter(|value| json::check(value).is_ok()).collect()
}

/// A fenced block.
struct Fence<'t> {
    info: &'t str,
    body: &'t str,
    /// The bytes of it, with its fences.
    range: Range<usize>,
}

/// True for blocks that may hold JSON.
fn is_json(info: &str) -> bool {
    ["", "json", "jsonc"].contains(&info.to_ascii_lowercase().as_str())
}

/// The fenced blocks of a text. One that is not closed ends with the text.
fn fences(text: &str) -> Vec<Fence<'_>> {
    let mut all: Vec<Fence<'_>> = Vec::new();
    // The opening run of marks of a block that is not closed yet.
    let mut open: Option<&str> = None;
    for (at, line) in lines(text) {
        let words = line.trim();
        if let (Some(run), Some(fence)) = (open, all.last_mut()) {
            let before = words.trim_end_matches(&run[..1]);
            let is_end = words.len() - before.len() >= run.len();
            if is_end && (before.is_empty() || is_json(fence.info)) {
                let end = at + line.len() - line.trim_start().len() + before.len();
                fence.body = &text[text.len() - fence.body.len()..end];
                fence.range.end = at + line.len();
                open = None;
            }
            continue;
        }
        let Some(run) = opening_run(words) else {
            continue;
        };
        let rest = words[run.len()..].trim();
        let (info, body, end) = match rest.strip_suffix(run) {
            Some(inner) => {
                let is_letter = |c: char| c.is_ascii_alphanumeric();
                let body = inner.trim_start_matches(is_letter);
                (&inner[..inner.len() - body.len()], body, at + line.len())
            }
            None if rest.contains('`') => continue,
            None => {
                open = Some(run);
                let info = rest.split_whitespace().next().unwrap_or("");
                (info, &text[at + line.len()..], text.len())
            }
        };
        let range = at..end;
        all.push(Fence { info, body, range });
    }
    all
}

/// Three or more backticks or tildes at the beginning of a line.
fn opening_run(line: &str) -> Option<&str> {
    let runs = ['`', '~'].map(|mark| &line[..line.len() - line.trim_start_matches(mark).len()]);
    runs.into_iter().find(|run| run.len() >= 3)
}

/// The lines of a text with the places where they begin.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.split_inclusive('\n');
    lines.scan(0, |end, line| {
        let at = *end;
        *end += line.len();
        Some((at, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_at_the_beginning_are_no_part_of_an_answer() {
        for (answer, rest) in [
            ("<think>a\n```\n</think>\n\n b\n", "b\n"),
            ("\n <thinking>a</thinking>b", "b"),
            ("<thought>a</thought>\n<think>b</think> c", "c"),
            ("a\n\n</think>\nb", "b"),
            ("```\n</think>\n```\na\n </think> \nb", "b"),
            ("<think>a</think>", ""),
            (
                "<think></think>\nthe tag\n</think>\nends it",
                "the tag\n</think>\nends it",
            ),
        ] {
            assert_eq!(after_thoughts(answer), rest, "{answer}");
        }
        for answer in [
            " a ",
            "<think>a",
            "a <think>b</think> c",
            "<think>a</thought>",
            "a </think>\nb",
            "a\n```\n</think>\n```\nb",
            "a\n<think>\nb\n</think>\nc",
            "a\n</think>\nb\n</think>\nc",
        ] {
            assert_eq!(after_thoughts(answer), answer);
        }
    }

    #[test]
    fn the_last_block_of_json_comes_first() {
        let of = |answer: &'static str| values_in(answer).join("|");
        for (answer, values) in [
            (" {\"a\": \"```\"} ", "{\"a\": \"```\"}"),
            ("no", ""),
            ("Here:\n```json\n[1]\n```\nbye", "[1]"),
            ("```\n7\n```", "7"),
            (
                "```JSON\n[1]\n```\n~~~jsonc\n[2]\n~~~\n```js\n[3]\n```\n",
                "[2]|[1]",
            ),
            ("````json\n{\"m\": \"```\"}\n````", "{\"m\": \"```\"}"),
            (
                "```json\n{\"m\": \"\\n```sh\\nmake\\n```\"}\n```",
                "{\"m\": \"\\n```sh\\nmake\\n```\"}",
            ),
            (
                "```json {\"a\": 1} ```\n~~~{\"b\": 2}~~~",
                "{\"b\": 2}|{\"a\": 1}",
            ),
            ("  ```json\n  {\"a\": 1}```\nok", "{\"a\": 1}"),
            ("```sh\necho ```\n[1]\n```\n```json\n[2]\n```", "[2]"),
            ("```md\n~~~json\n[1]\n~~~\n```", ""),
            ("~~~\n[1]\n```\n~~~~\n", ""),
            ("```json\n[1]", "[1]"),
            ("so ```json\n[1]\n```", ""),
        ] {
            assert_eq!(of(answer), values, "{answer}");
        }
    }
}
