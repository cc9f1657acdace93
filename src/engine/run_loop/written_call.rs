//! A final answer that ends with a tool call in words: the service has not recognized it as one.
//!
//! Pure. Small models forget the marks that their chat template wants, and some servers know no template.

use crate::config::tool::bind::{BaseDirs, bind_arguments};
use crate::config::tool::definition::{InputForm, Tool};
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

/// The tool that a text calls at its end, with arguments that fit it, if it is one of these.
pub(super) fn called_in<'t>(
    text: &str,
    mut tools: impl Iterator<Item = &'t Tool>,
) -> Option<&'t str> {
    let mut text = Cow::Borrowed(text);
    if text.contains(['｜', '▁']) {
        text = text.replace('｜', "|").replace('▁', "_").into();
    }
    let in_json = calls_in_json(&text);
    let is_called = |tool: &&Tool| {
        let of_tool = |(name, arguments): &(String, Map<String, Value>)| {
            name.strip_prefix("functions.").unwrap_or(name) == tool.name && fits(tool, arguments)
        };
        in_json.iter().any(of_tool) || is_marked_call(&text, tool)
    };
    tools.find(is_called).map(|tool| tool.name.as_str())
}

/// True if a tool would take arguments.
fn fits(tool: &Tool, arguments: &Map<String, Value>) -> bool {
    let InputForm::Schema(schema) = &tool.input else {
        let (home, cwd) = ("", "");
        let text = Value::Object(arguments.clone()).to_string();
        return bind_arguments(tool, &text, &BaseDirs { home, cwd }).is_ok();
    };
    let required = schema.get("required").and_then(Value::as_array);
    let mut required = required.into_iter().flatten().filter_map(Value::as_str);
    let known = schema.get("properties").and_then(Value::as_object);
    required.all(|name| arguments.contains_key(name))
        && known.is_none_or(|known| arguments.keys().all(|name| known.contains_key(name)))
}

/// True if only fences and tags follow a call.
fn is_end(mut rest: &str) -> bool {
    loop {
        rest = rest.trim_start();
        let next = after_fence(rest).or_else(|| after_tag(rest));
        let next = next.or_else(|| Some(rest.strip_prefix("[/")?.split_once(']')?.1));
        match next {
            Some(next) => rest = next,
            None => return rest.is_empty(),
        }
    }
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

/// The calls in JSON that end a text: names and arguments.
fn calls_in_json(text: &str) -> Vec<(String, Map<String, Value>)> {
    let begins = memchr::memchr2_iter(b'{', b'[', text.as_bytes());
    let values = begins
        .filter(|at| may_begin(&text[..*at]))
        .filter_map(|at| {
            let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
            let value = values.next()?.ok()?;
            is_end(&text[at + values.byte_offset()..]).then_some(value)
        });
    values
        .filter_map(|value| match value {
            Value::Array(calls) => call_in(calls.last()?),
            value => match value.get("tool_calls") {
                Some(calls) => call_in(calls.as_array()?.last()?),
                None => call_in(&value),
            },
        })
        .collect()
}

/// True if JSON may begin after a text: at the beginning of a line, or after a mark or another call.
fn may_begin(before: &str) -> bool {
    let before = before.trim_end_matches([' ', '\t']);
    let line = before.rsplit('\n').next().unwrap_or(before);
    let is_tag = |at: usize| after_tag(&line[at..]) == Some("");
    line.is_empty()
        || after_fence(line.trim_start()).is_some()
        || line.ends_with("[TOOL_CALLS]")
        || line.ends_with("};")
        || line.rfind('<').is_some_and(is_tag)
}

/// Name and arguments of a call in JSON.
fn call_in(value: &Value) -> Option<(String, Map<String, Value>)> {
    let call = value.get("function").filter(|it| it.is_object());
    let call = call.unwrap_or(value);
    let name = call.get("name")?.as_str()?.to_owned();
    let arguments = match ARGUMENTS.iter().find_map(|key| call.get(key))? {
        Value::Object(arguments) => arguments.clone(),
        Value::String(text) => serde_json::from_str(text).ok()?,
        _ => return None,
    };
    Some((name, arguments))
}

/// True if a text ends with a call of a tool that marks or parentheses show.
fn is_marked_call(text: &str, tool: &Tool) -> bool {
    let is_call = |(at, name): (usize, &str)| {
        let after = &text[at + name.len()..];
        let is_longer = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if after.starts_with(is_longer) {
            return false;
        }
        let before = &text[..at];
        let before = before.strip_suffix("functions.").unwrap_or(before);
        let lead = before.trim_end().trim_end_matches(['"', '\'']);
        let is_marked = BEFORE_NAME.iter().any(|mark| lead.ends_with(mark));
        let ends =
            |(arguments, rest): (Map<String, Value>, &str)| is_end(rest) && fits(tool, &arguments);
        is_marked && arguments_after(after).is_some_and(ends)
            || (is_marked || begins_expression(before)) && in_parentheses(after).is_some_and(ends)
    };
    text.match_indices(&tool.name).any(is_call)
}

/// True if a call like one of Python may begin after a text.
fn begins_expression(before: &str) -> bool {
    let before = before.strip_suffix("default_api.").unwrap_or(before);
    let before = before.strip_suffix("print(").unwrap_or(before);
    let before = before.trim_end_matches([' ', '\t']);
    let before = before.strip_suffix('[').unwrap_or(before);
    let line = before.rsplit('\n').next().unwrap_or(before);
    may_begin(before) || line.trim_start().starts_with('[') && line.ends_with("),")
}

/// The arguments after the name of a marked call, and the text after them.
fn arguments_after(after: &str) -> Option<(Map<String, Value>, &str)> {
    let mut rest = after.trim_start_matches(['"', '\'']);
    rest = rest.strip_prefix('>').unwrap_or(rest);
    let mut arguments = Map::new();
    while let Some((key, value, next)) = parameter(rest) {
        arguments.insert(key.to_owned(), value.trim().into());
        rest = next;
    }
    if !arguments.is_empty() || is_end(rest) && !rest.trim().is_empty() {
        return Some((arguments, rest));
    }
    rest = rest.split_once("[ARGS]").map_or(rest, |(_, rest)| rest);
    loop {
        rest = rest.trim_start();
        let number = rest.strip_prefix(':');
        let number = number.map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        let word = || BETWEEN.iter().find_map(|word| rest.strip_prefix(word));
        let next = after_fence(rest).or_else(|| after_tag(rest)).or(number);
        match next.or_else(word) {
            Some(next) => rest = next,
            None => break,
        }
    }
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Map<String, Value>>();
    let arguments = values.next()?.ok()?;
    Some((arguments, &rest[values.byte_offset()..]))
}

/// A parameter in tags: its name, its value, and the text after it.
fn parameter(text: &str) -> Option<(&str, &str, &str)> {
    let text = text.trim_start();
    if let Some(rest) = text.strip_prefix("<arg_key>") {
        let (key, rest) = rest.split_once("</arg_key>")?;
        let rest = rest.trim_start().strip_prefix("<arg_value>")?;
        let (value, rest) = rest.split_once("</arg_value>")?;
        return Some((key.trim(), value, rest));
    }
    let (head, rest) = text.strip_prefix('<')?.split_once('>')?;
    let named = head.split_once("parameter=");
    let (_, key) = named.or_else(|| head.split_once("parameter name="))?;
    let key = key.trim_start_matches(['"', '\'']);
    let key = key.split(['"', '\'', ' ']).next().unwrap_or(key);
    let (value, rest) = rest.split_once("parameter>")?;
    Some((key, &value[..value.rfind("</")?], rest))
}

/// Named arguments of literals in parentheses, and the text after them and what they are in.
fn in_parentheses(after: &str) -> Option<(Map<String, Value>, &str)> {
    let after = after.strip_prefix(".call").unwrap_or(after);
    let mut rest = after.strip_prefix('(')?;
    let mut arguments = Map::new();
    loop {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        if let Some(end) = rest.strip_prefix(')').filter(|_| !arguments.is_empty()) {
            return Some((arguments, end.trim_start_matches([')', ']'])));
        }
        let (name, value) = rest.split_once('=')?;
        let name = name.trim();
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(is_name) {
            return None;
        }
        let (value, next) = literal(value.trim_start())?;
        arguments.insert(name.to_owned(), value);
        rest = next;
    }
}

/// A literal of Python, and the text after it. Lists and mappings are read as empty ones.
fn literal(text: &str) -> Option<(Value, &str)> {
    let first = text.chars().next()?;
    if matches!(first, '"' | '\'') {
        let end = string_end(text)?;
        return Some((text[1..end - 1].into(), &text[end..]));
    }
    if matches!(first, '[' | '{') {
        let (mut depth, mut at) = (0_u32, 0);
        loop {
            let next = text[at..].chars().next()?;
            match next {
                '"' | '\'' => at += string_end(&text[at..])?,
                _ => at += next.len_utf8(),
            }
            match next {
                '[' | '{' => depth += 1,
                ']' | '}' => depth = depth.checked_sub(1)?,
                _ => {}
            }
            if depth == 0 {
                let empty = [Value::Object(Map::new()), Value::Array(Vec::new())];
                let [object, array] = empty;
                let value = if first == '[' { array } else { object };
                return Some((value, &text[at..]));
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && !"+-._".contains(c))?;
    let word = &text[..end];
    let value = match word.to_ascii_lowercase().as_str() {
        "true" | "false" => Value::Bool(word.eq_ignore_ascii_case("true")),
        "none" | "null" => Value::Null,
        _ => word.parse::<f64>().ok()?.into(),
    };
    Some((value, &text[end..]))
}

/// The end of a string that begins a text.
fn string_end(text: &str) -> Option<usize> {
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter();
    let quote = quote.into_iter().find(|quote| text.starts_with(quote))?;
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
