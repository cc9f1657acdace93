//! The keys of a tool that decide what happens to a call without a recorded end: `on_resume`, `effect` and
//! `subagent`.
//!
//! Unaware of how a call is made and of how it is asked about.

use crate::config::section::Section;
use crate::config::tool::argv_template::parse_fixed_word;
use crate::config::tool::command::SettledCommand;
use crate::config::tool::definition::{OnResume, Piece, TimedCommand, Tool, Word};
use crate::config::tool::shell_lexer::find_placeholders;
use serde_json::Value;

/// Options that a sub-agent's command cannot have, because its run has a name.
const NAMED_OTHERWISE: [&str; 2] = ["--run-id", "--new"];

/// Reads `on_resume`: a word, or a mapping with a check.
pub(super) fn read_on_resume(section: &Section, has_effect: bool) -> OnResume {
    let value = section.map.get("on_resume");
    if value.is_some() && section.map.get("subagent") == Some(&Value::Bool(true)) {
        let message = "on_resume: a sub-agent's run is resumed with its call; remove on_resume";
        section.error("on_resume", message);
        return OnResume::Report;
    }
    match value {
        None if !has_effect => return OnResume::Retry,
        None => {}
        Some(Value::Object(_)) => {
            let own = section.read_section("on_resume");
            let check = own.and_then(|own| read_check(&own));
            return check.map_or(OnResume::Report, OnResume::Check);
        }
        Some(word) if word == "report" => {}
        Some(word) if word == "retry" => return OnResume::Retry,
        Some(_) => {
            let expected = "one of report, retry, {check: [PROGRAM, …]}";
            section.mismatch("on_resume", expected);
        }
    }
    OnResume::Report
}

fn read_check(section: &Section) -> Option<TimedCommand> {
    section.refuse_unknown_keys(&["check", "timeout_ms"]);
    let timeout_ms = section.read_count("timeout_ms");
    Some(TimedCommand {
        command: read_check_words(section, "on_resume")?,
        timeout_ms,
    })
}

/// Reads the command `check` of a key, which has no parameters.
pub(super) fn read_check_words(section: &Section, key: &str) -> Option<Vec<Word>> {
    if !section.has("check") {
        let message = format!("{key}: has no check; expected {{check: [PROGRAM, …]}}");
        section.error("check", message);
    }
    let texts = section.read_texts("check")?;
    if texts.is_empty() {
        let message = format!("{key}: check: is empty; name a program");
        return section.refuse("check", message);
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
        section.error("check", message);
    }
    Some(command)
}

/// Reads the command of a tool with `subagent: true`: the index of the word before which the run's name goes.
pub(super) fn read_subagent(section: &Section, usage: &SettledCommand) -> Option<usize> {
    let refuse = |key: &str, message: &str| section.refuse(key, format!("subagent: {message}"));
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
    let mut program = usage.command[..place].iter();
    if program.any(|word| word.params().next().is_some()) {
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

/// The place of the options in a command that runs an agent or a flow.
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
        OnResume::Check(check) => Some(check.record("check")),
    }
}
