//! The keys of a tool that decide what happens to a call without a recorded end: `on_resume`, `effect` and
//! `subagent`.
//!
//! Unaware of how a call is made and of how it is asked about.

use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::argv_template::parse_fixed_word;
use crate::config::tool::command::SettledCommand;
use crate::config::tool::definition::{EffectCheck, OnResume, Piece, Tool, Word};
use crate::config::tool::shell_lexer::find_placeholders;
use serde_json::{Map, Value};

/// Options that a sub-agent's command cannot have, because its run has a name.
const NAMED_OTHERWISE: [&str; 2] = ["--run-id", "--new"];

/// Reads `effect`: false for `none`.
pub(super) fn read_effect(section: &Section, out: &mut Diagnostics) -> bool {
    section
        .read_choice("effect", &[("none", false)], out)
        .unwrap_or(true)
}

/// Reads `on_resume`: a word, or a mapping with a check.
pub(super) fn read_on_resume(
    section: &Section,
    has_effect: bool,
    out: &mut Diagnostics,
) -> OnResume {
    let value = section.map.get("on_resume");
    if value.is_some() && section.map.get("subagent") == Some(&Value::Bool(true)) {
        let message = "on_resume: a sub-agent's run is resumed with its call; remove on_resume";
        out.error(section.path_to("on_resume"), message);
        return OnResume::Report;
    }
    let word = match value {
        None if has_effect => return OnResume::Report,
        None => return OnResume::Retry,
        Some(Value::Object(_)) => {
            let check = section
                .read_section("on_resume", out)
                .and_then(|section| read_check(&section, out));
            return check.map_or(OnResume::Report, OnResume::Check);
        }
        Some(word) => word.as_str(),
    };
    match word {
        Some("report") => OnResume::Report,
        Some("retry") => OnResume::Retry,
        _ => {
            let found = value.map_or_else(String::new, describe_value);
            let message = format!(
                "on_resume: expected one of report, retry, {{check: [PROGRAM, …]}}, found {found}"
            );
            out.error(section.path_to("on_resume"), message);
            OnResume::Report
        }
    }
}

fn read_check(section: &Section, out: &mut Diagnostics) -> Option<EffectCheck> {
    section.refuse_unknown_keys(&["check", "timeout_ms"], out);
    let timeout_ms = section.read_count("timeout_ms", out);
    Some(EffectCheck {
        command: read_check_words(section, "on_resume", out)?,
        timeout_ms,
    })
}

/// Reads the command `check` of a key, which has no parameters.
pub(super) fn read_check_words(
    section: &Section,
    key: &str,
    out: &mut Diagnostics,
) -> Option<Vec<Word>> {
    if !section.map.contains_key("check") {
        let message = format!("{key}: has no check; expected {{check: [PROGRAM, …]}}");
        out.error(section.path_to("check"), message);
    }
    let texts = section.read_texts("check", out)?;
    if texts.is_empty() {
        let message = format!("{key}: check: is empty; name a program");
        out.error(section.path_to("check"), message);
        return None;
    }
    let command: Vec<Word> = texts.iter().map(|text| parse_fixed_word(text)).collect();
    let left = command.iter().flat_map(|word| &word.0);
    let names = left.filter_map(|piece| match piece {
        Piece::Text(text) => Some(find_placeholders(text)),
        _ => None,
    });
    if let Some(placeholder) = names.flatten().next() {
        let name = placeholder.name;
        let message = format!(
            "{key}: check: ${{{name}}} has no value here; the arguments are on the check's standard \
             input, as a JSON object"
        );
        out.error(section.path_to("check"), message);
    }
    Some(command)
}

/// Reads the command of a tool with `subagent: true`: the index of the word before which the run's name goes.
pub(super) fn read_subagent(
    section: &Section,
    usage: &SettledCommand,
    out: &mut Diagnostics,
) -> Option<usize> {
    let mut refuse = |key: &str, message: &str| {
        out.error(section.path_to(key), format!("subagent: {message}"));
        None
    };
    let wrapper = section.map.get("wrapper").and_then(Value::as_array);
    if wrapper.is_some_and(|words| !words.is_empty()) {
        return refuse(
            "wrapper",
            "it runs without a wrapper, because behind one it could not write its records; give its own \
             tools a wrapper in its agent.yaml, and remove this one",
        );
    }
    let name = |index: usize| usage.parameters[index].name.as_str();
    let words: Vec<String> = usage
        .command
        .iter()
        .map(|word| word.written(name))
        .collect();
    let Some(place) = options_of_run(&words) else {
        return refuse(
            "subagent",
            "needs exec: or command: with `delta run …` or `delta flow run …`",
        );
    };
    let is_fixed = usage.command[..place]
        .iter()
        .all(|word| word.params().next().is_none());
    if !is_fixed {
        return refuse(
            "subagent",
            "the program is a value of the model's; write its name",
        );
    }
    let options = words[place..].iter().take_while(|word| *word != "--");
    let mut named = options.filter(|word| {
        let option = word.split('=').next().unwrap_or_default();
        NAMED_OTHERWISE.contains(&option)
    });
    match named.next() {
        Some(option) => {
            let message = format!("the run is named after the call; remove {option}");
            refuse("subagent", &message)
        }
        None => Some(place),
    }
}

/// Where the options begin in a command that runs an agent or a flow.
pub(crate) fn options_of_run(command: &[String]) -> Option<usize> {
    let (program, words) = command.split_first()?;
    let name = program.rsplit('/').next().unwrap_or(program);
    let words: Vec<&str> = words.iter().take(2).map(String::as_str).collect();
    match (name, words.as_slice()) {
        ("delta" | "delta-flow", ["run", ..]) => Some(2),
        ("delta", ["flow", "run"]) => Some(3),
        _ => None,
    }
}

/// The value of `on_resume` in a tool's expanded form, unless it follows from the other keys.
pub(super) fn render_on_resume(tool: &Tool) -> Option<Value> {
    match &tool.on_resume {
        OnResume::Report => (!tool.has_effect && tool.subagent.is_none()).then(|| "report".into()),
        OnResume::Retry => tool.has_effect.then(|| "retry".into()),
        OnResume::Check(check) => {
            let words = check.command.iter().map(|word| word.written(|_| ""));
            let mut map = Map::new();
            map.insert("check".to_owned(), words.collect::<Vec<_>>().into());
            if let Some(ms) = check.timeout_ms {
                map.insert("timeout_ms".to_owned(), ms.into());
            }
            Some(map.into())
        }
    }
}
