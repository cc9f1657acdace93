//! A final answer that ends with a tool call in words: the service has not recognized it as one.
//!
//! Pure. Small models forget the marks that their chat template wants, and some servers know no template.

use crate::config::tool::bind::{BaseDirs, bind_arguments};
use crate::config::tool::definition::{InputForm, Tool};
use crate::text::json;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Marks directly before the name of a tool; a quote and `functions.` may follow them. Bars and blocks of `DeepSeek` are
/// ASCII here.
const BEFORE_NAME: [&str; 15] = [
    "<function=",
    "<function name=",
    "invoke name=",
    "<tool name=",
    "<tool_call name=",
    "<tool_call>",
    "<tool_call>call:",
    "<|tool_call>call:",
    "<function_call>",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "<|tool_call_begin|>",
    "<|tool_call|>",
    "<|tool_sep|>",
    "to=",
];

/// Words between a name and its arguments.
const BETWEEN: [&str; 4] = ["json", "code", "commentary", "analysis"];

/// Members of a call in JSON that hold its arguments.
const ARGUMENTS: [&str; 3] = ["arguments", "parameters", "input"];

const BLANKS: [char; 2] = [' ', '\t'];

const QUOTES: [char; 2] = ['"', '\''];

type Arguments = Map<String, Value>;

/// The tool that a text calls at its end, with arguments that fit it, if it is one of these.
pub(super) fn called_in<'t>(
    text: &str,
    mut tools: impl Iterator<Item = &'t Tool>,
) -> Option<&'t str> {
    let text = if text.contains(['｜', '▁']) {
        Cow::from(text.replace('｜', "|").replace('▁', "_"))
    } else {
        Cow::from(text)
    };
    let begins =
        memchr::memchr2_iter(b'{', b'[', text.as_bytes()).filter(|at| may_begin(&text[..*at]));
    let in_json: Vec<(String, Arguments)> = begins.filter_map(|at| call_in(&text[at..])).collect();
    let is_called = |tool: &&Tool| {
        let of_tool = |(name, arguments): &(String, Arguments)| {
            name.strip_prefix("functions.").unwrap_or(name) == tool.name && fits(tool, arguments)
        };
        in_json.iter().any(of_tool) || is_marked_call(&text, tool)
    };
    tools.find(is_called).map(|tool| tool.name.as_str())
}

/// True if a tool would take arguments.
fn fits(tool: &Tool, arguments: &Arguments) -> bool {
    let InputForm::Schema(schema) = &tool.input else {
        let (home, cwd) = ("", "");
        let text = json::text(arguments);
        return bind_arguments(tool, &text, &BaseDirs { home, cwd }).is_ok();
    };
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let known = schema.get("properties").and_then(Value::as_object);
    required
        .filter_map(Value::as_str)
        .all(|name| arguments.contains_key(name))
        && known.is_none_or(|known| arguments.keys().all(|name| known.contains_key(name)))
}

/// The rest of a text after blanks, fences, tags and what else is skipped.
fn skip<'t>(text: &'t str, other: impl Fn(&'t str) -> Option<&'t str>) -> &'t str {
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        match after_fence(rest)
            .or_else(|| after_tag(rest))
            .or_else(|| other(rest))
        {
            Some(next) => rest = next,
            None => return rest,
        }
    }
}

/// True if only fences and tags follow a call.
fn is_end(rest: &str) -> bool {
    skip(rest, |rest| {
        Some(rest.strip_prefix("[/")?.split_once(']')?.1)
    })
    .is_empty()
}

fn after_fence(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(['`', '~']);
    (text.len() - rest.len() >= 3).then_some(rest)
}

/// The text after a tag or a special token.
fn after_tag(text: &str) -> Option<&str> {
    let (tag, rest) = text.strip_prefix('<')?.split_once('>')?;
    let is_tag = tag.len() < 60 && !tag.contains(|c: char| c.is_whitespace() || c == '<');
    is_tag.then_some(rest)
}

fn last_line(text: &str) -> &str {
    text.rsplit('\n').next().unwrap_or(text)
}

/// True if JSON may begin after a text: at the beginning of a line, or after a mark or another call.
fn may_begin(before: &str) -> bool {
    let line = last_line(before.trim_end_matches(BLANKS));
    let is_tag = |at: usize| after_tag(&line[at..]) == Some("");
    line.is_empty()
        || after_fence(line.trim_start()).is_some()
        || line.ends_with("[TOOL_CALLS]")
        || line.ends_with("};")
        || line.rfind('<').is_some_and(is_tag)
}

/// Name and arguments of the call in JSON, or the last of several, that a text begins and ends with.
fn call_in(text: &str) -> Option<(String, Arguments)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values
        .next()?
        .ok()
        .filter(|_| is_end(&text[values.byte_offset()..]))?;
    let call = match value.get("tool_calls").unwrap_or(&value) {
        Value::Array(list) => list.last()?,
        call => call,
    };
    let function = call
        .get("function")
        .filter(|it| it.is_object())
        .unwrap_or(call);
    let name = function["name"].as_str()?.to_owned();
    let arguments = match ARGUMENTS.iter().find_map(|key| function.get(key))? {
        Value::Object(arguments) => arguments.clone(),
        text => serde_json::from_str(text.as_str()?).ok()?,
    };
    Some((name, arguments))
}

/// True if a text ends with a call of a tool that marks or parentheses show.
fn is_marked_call(text: &str, tool: &Tool) -> bool {
    let is_call = |(at, name): (usize, &str)| {
        let after = &text[at + name.len()..];
        if after.starts_with(is_of_name) {
            return false;
        }
        let before = without(&text[..at], "functions.");
        let lead = before.trim_end().trim_end_matches(QUOTES);
        // Servers take the opening tag for one of theirs.
        let has_keys = after.trim_start().starts_with("<arg_key>") && may_begin(before);
        let is_marked = has_keys || BEFORE_NAME.iter().any(|mark| lead.ends_with(mark));
        let ends = |(arguments, rest): (Arguments, &str)| is_end(rest) && fits(tool, &arguments);
        is_marked && arguments_after(after).is_some_and(ends)
            || (is_marked || begins_expression(before)) && in_parentheses(after).is_some_and(ends)
    };
    text.match_indices(&tool.name).any(is_call)
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

/// A text without this end.
fn without<'t>(text: &'t str, end: &str) -> &'t str {
    text.strip_suffix(end).unwrap_or(text)
}

/// True if a call like one of Python may begin after a text.
fn begins_expression(before: &str) -> bool {
    let before_print = without(without(before, "default_api."), "print(");
    let before_list = without(before_print.trim_end_matches(BLANKS), "[");
    let line = last_line(before_list);
    may_begin(before_list) || line.trim_start().starts_with('[') && line.ends_with("),")
}

/// The arguments after the name of a marked call, and the text after them.
fn arguments_after(after: &str) -> Option<(Arguments, &str)> {
    let named = after.trim_start_matches(QUOTES);
    let mut rest = named.strip_prefix('>').unwrap_or(named);
    let mut arguments = Map::new();
    while let Some((key, value, next)) = parameter(rest) {
        arguments.insert(key.to_owned(), value.trim().into());
        rest = next;
    }
    if !arguments.is_empty() || is_end(rest) && !rest.trim().is_empty() {
        return Some((arguments, rest));
    }
    rest = rest.split_once("[ARGS]").map_or(rest, |(_, rest)| rest);
    let json = skip(rest, |rest| {
        rest.strip_prefix(':')
            .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()))
            .or_else(|| BETWEEN.iter().find_map(|word| rest.strip_prefix(word)))
    });
    let mut values = serde_json::Deserializer::from_str(json).into_iter();
    let arguments = values.next()?.ok()?;
    Some((arguments, &json[values.byte_offset()..]))
}

/// A parameter in tags: its name, its value, and the text after it.
fn parameter(after: &str) -> Option<(&str, &str, &str)> {
    let text = after.trim_start();
    if let Some(rest) = text.strip_prefix("<arg_key>") {
        let (key, rest) = rest.split_once("</arg_key>")?;
        let value = rest.trim_start().strip_prefix("<arg_value>")?;
        let (value, rest) = value.split_once("</arg_value>")?;
        return Some((key.trim(), value, rest));
    }
    let (head, rest) = text.strip_prefix('<')?.split_once('>')?;
    let named = head.split_once("parameter=");
    let (_, key) = named.or_else(|| head.split_once("parameter name="))?;
    let key = key
        .trim_start_matches(QUOTES)
        .split(['"', '\'', ' '])
        .next()?;
    let (value, rest) = rest.split_once("parameter>")?;
    Some((key, &value[..value.rfind("</")?], rest))
}

/// Named arguments of literals in parentheses, and the text after them and what they are in.
fn in_parentheses(after: &str) -> Option<(Arguments, &str)> {
    let mut rest = after
        .strip_prefix(".call")
        .unwrap_or(after)
        .strip_prefix('(')?;
    let mut arguments = Map::new();
    loop {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        if let Some(end) = rest.strip_prefix(')').filter(|_| !arguments.is_empty()) {
            return Some((arguments, end.trim_start_matches([')', ']'])));
        }
        let (before, value) = rest.split_once('=')?;
        let name = before.trim();
        if name.is_empty() || !name.chars().all(is_of_name) {
            return None;
        }
        let end = value_end(value)?;
        arguments.insert(name.to_owned(), literal(value[..end].trim())?);
        rest = &value[end..];
    }
}

/// A literal of Python. Lists and mappings are read as empty ones.
fn literal(text: &str) -> Option<Value> {
    match text.chars().next()? {
        '"' | '\'' => (string_end(text)? == text.len()).then(|| text[1..text.len() - 1].into()),
        '[' => Some(Value::Array(Vec::new())),
        '{' => Some(Value::Object(Map::new())),
        _ => match text.to_ascii_lowercase().as_str() {
            "true" => Some(true.into()),
            "false" => Some(false.into()),
            "none" | "null" => Some(Value::Null),
            number => number.parse::<f64>().ok().map(Value::from),
        },
    }
}

/// The end of a value in parentheses: a comma or a bracket outside of its own.
fn value_end(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_u32, 0);
    loop {
        let next = text[at..].chars().next()?;
        match next {
            ',' | ')' if depth == 0 => return Some(at),
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += match next {
            '"' | '\'' => string_end(&text[at..])?,
            _ => next.len_utf8(),
        };
    }
}

/// The end of a string that begins a text.
fn string_end(text: &str) -> Option<usize> {
    let mut quotes = ["\"\"\"", "'''", "\"", "'"].into_iter();
    let quote = quotes.find(|quote| text.starts_with(quote))?;
    let mut at = quote.len();
    loop {
        if text[at..].starts_with(quote) {
            return Some(at + quote.len());
        }
        let next = text[at..].chars().next()?;
        at += next.len_utf8();
        if next == '\\' {
            at += text[at..].chars().next()?.len_utf8();
        }
    }
}

#[cfg(test)]
mod tests;
