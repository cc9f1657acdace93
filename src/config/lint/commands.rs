//! Commands that are legal and do not do what their author expects.
//!
//! Words are compared with words. Unaware of quotes and of what a value could do: there is advice only where
//! the first words of a command make the case plain.

use crate::config::tool::argv_template::is_identifier;
use crate::config::tool::definition::{AGENT_HOME, CWD, Inject, KINDS, OnResume, Tool, is_script};
use crate::config::tool::effect::options_of_run;
use crate::config::tool::shell_lexer::find_placeholders;
use crate::text::suggestion::nearest;
use crate::unix::doors::{Door, shared_warning};
use serde_json::Value;

/// The fault of a nested run in the wrapper of a sandbox.
const SANDBOXED: &str = "runs delta behind `delta sandbox`, where it can write neither its own records nor the \
    ledger of this run; say subagent: true, or wrapper: [] and give its own tools a sandbox";

/// Advice about a tool's command: the key that it is about, and the message. `item` is the tool as written,
/// `wrapper` the agent's.
pub(super) fn advise_on(
    tool: &Tool,
    item: &Value,
    wrapper: &[String],
) -> Vec<(&'static str, String)> {
    let form = form_of(item);
    let mut advice = Vec::new();
    advice.extend(contradiction(tool, item).map(|message| ("effect", message.to_owned())));
    if tool.description.is_none() {
        let message = "has no description; the model is shown its command instead";
        advice.push(("description", message.to_owned()));
    }
    advice.extend(about_display(tool));
    let script = item.get("shell").and_then(Value::as_str);
    for name in script.into_iter().flat_map(raw_names) {
        let message = format!(
            "${{{name}:raw}} is split into words and its patterns are expanded, and each word can be an \
             option; write ${{{name}}} unless that is what it is for"
        );
        advice.push(("shell", message));
    }
    if let Some(name) = script.and_then(only_placeholder) {
        let message = format!(
            "the script is only ${{{name}}}, so its value would be the name of a program and not a script; \
             write exec: 'sh -c -- ${{{name}}}'"
        );
        advice.push(("shell", message));
    }
    if let Some((name, word)) = bare_variable(tool) {
        let message = format!("{word}: no shell replaces ${name} here; write ${{{name}}}");
        advice.push((form, message));
    }
    let commands = commands_of(tool, script);
    let is_only = commands
        .iter()
        .filter(|command| !command.is_empty())
        .count()
        == 1;
    for command in commands {
        if let Some(program) = searches_delta(&command) {
            let message = format!(
                "{program} also reads .delta, where its own output is captured, and fails; add \
                 --exclude-dir=.delta"
            );
            advice.push((form, message));
        }
        if !runs_delta(&command) {
            continue;
        }
        let is_old = |word: &String| word == "--task" || word.starts_with("--task=");
        if command.iter().take_while(|it| *it != "--").any(is_old) {
            let message = "runs delta with --task, which is called -m (--message) now";
            advice.push((form, message.to_owned()));
        }
        if item.get("pass_api_key").is_none() {
            let message = "runs delta, which gets no API key; say pass_api_key: true, or false if it needs none";
            advice.push((form, message.to_owned()));
        }
        if tool.subagent.is_some() {
            continue;
        }
        let own = tool
            .wrapper
            .as_ref()
            .map(|words| words.iter().map(|word| word.written(|_| "")).collect());
        if is_sandbox(own.as_ref().map_or(wrapper, |words: &Vec<String>| words)) {
            advice.push((form, SANDBOXED.to_owned()));
        } else if is_only && item.get("subagent").is_none() {
            let message = "runs delta; with exec: or command: and subagent: true its run is named after the \
                 call and resumed with it, and a question or a limit there suspends this run, too, instead \
                 of being read by the model; say subagent: false if that is not what it is for";
            advice.push((form, message.to_owned()));
        }
    }
    advice
}

/// Advice about what programs show of a call.
fn about_display(tool: &Tool) -> Vec<(&'static str, String)> {
    let mut advice = Vec::new();
    let unknown = |it: &&str| !KINDS.contains(it);
    if let Some(kind) = tool.kind.as_deref().filter(unknown) {
        let hint = match nearest(kind, KINDS) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the kinds are {}", KINDS.join(", ")),
        };
        advice.push(("kind", format!("kind: '{kind}' is unknown; {hint}")));
    }
    let is_missing = |it: &&str| tool.parameters.iter().all(|one| one.name != **it);
    if let Some(path) = tool.path.as_deref().filter(is_missing) {
        let message = format!("path: there is no parameter {path}; name one of the tool's");
        advice.push(("path", message));
    }
    advice
}

/// The contradiction between `on_resume` and `effect: none`.
fn contradiction(tool: &Tool, item: &Value) -> Option<&'static str> {
    item.get("on_resume").filter(|_| !tool.has_effect)?;
    match tool.on_resume {
        OnResume::Retry => None,
        OnResume::Report => Some(
            "none says that repeating a call is harmless, and on_resume: report that it is not repeated; \
             remove one",
        ),
        OnResume::Check(_) => Some(
            "none says that repeating a call is harmless, and on_resume has a check whether it has to be \
             repeated; remove one",
        ),
    }
}

/// A directory's variable without braces, and the word that has it. What follows `-c`, or has a blank in it, may be a
/// script, in which the variable is set.
fn bare_variable(tool: &Tool) -> Option<(&'static str, String)> {
    let mut words = tool
        .command
        .iter()
        .map(|word| word.written(|_| ""))
        .take_while(|word| !word.starts_with('-') || !word.ends_with('c'))
        .filter(|word| !word.contains(char::is_whitespace));
    words.find_map(|word| {
        let has = |name: &&str| {
            let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            word.split(&format!("${name}")).skip(1).any(ends)
        };
        Some(([AGENT_HOME, CWD].into_iter().find(has)?, word))
    })
}

/// True for a wrapper with `delta sandbox` in it.
pub(crate) fn is_sandbox(wrapper: &[String]) -> bool {
    let mut pairs = wrapper.windows(2);
    pairs.any(|pair| base_name(&pair[0]) == "delta" && pair[1] == "sandbox")
}

/// The values of an option in a wrapper, each a word of its own or after an equals sign.
pub(crate) fn values_of<'w>(
    wrapper: &'w [String],
    option: &'w str,
) -> impl Iterator<Item = &'w str> {
    let words = wrapper.iter().enumerate();
    words.filter_map(move |(at, word)| match word.strip_prefix(option)? {
        "" => wrapper.get(at + 1).map(String::as_str),
        more => more.strip_prefix('='),
    })
}

/// Advice about the hosts that a wrapper opens.
pub(super) fn advise_on_doors(wrapper: &[String]) -> Vec<String> {
    let values = values_of(wrapper, "--allow-host").filter(|_| is_sandbox(wrapper));
    let advice = values.filter_map(|text| match Door::parse(text) {
        Ok(door) => shared_warning(&door),
        Err(why) => Some(format!("--allow-host '{text}': {why}")),
    });
    advice.collect()
}

/// The key of a tool's command.
pub(super) fn form_of(item: &Value) -> &'static str {
    let mut forms = ["exec", "shell", "command"].into_iter();
    let form = forms.find(|form| item.get(*form).is_some());
    form.unwrap_or("command")
}

/// The placeholders of a script that have the modifier, each once.
fn raw_names(script: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for placeholder in find_placeholders(script) {
        if placeholder.raw && !names.contains(&placeholder.name) {
            names.push(placeholder.name);
        }
    }
    names
}

/// The commands of a tool as words, `script` being what it has for a shell.
fn commands_of(tool: &Tool, script: Option<&str>) -> Vec<Vec<String>> {
    let in_argv = || is_script(&tool.command).then(|| tool.command[2].as_fixed())?;
    match script.or_else(in_argv) {
        Some(script) => script
            .split(['\n', ';', '&', '|', '(', ')', '`'])
            .map(words_of)
            .collect(),
        None => {
            let name = |index: usize| tool.parameters[index].name.as_str();
            let mut words: Vec<String> = tool.command.iter().map(|w| w.written(name)).collect();
            let appended = tool.appended.iter();
            words.extend(appended.map(|index| format!("${{{}}}", name(*index))));
            let options = tool.parameters.iter().map(|it| &it.inject);
            words.extend(options.filter_map(|inject| match inject {
                Inject::Option(name) => Some(name.clone()),
                _ => None,
            }));
            vec![words]
        }
    }
}

/// The words of a command in a script from the program's name on.
fn words_of(command: &str) -> Vec<String> {
    const RESERVED: [&str; 9] = [
        "if", "then", "else", "elif", "while", "until", "do", "!", "exec",
    ];
    let is_before = |word: &&str| {
        let name = word.split_once('=').map(|(name, _)| name);
        RESERVED.contains(word) || name.is_some_and(is_identifier)
    };
    let words = command.split_whitespace().skip_while(is_before);
    words.map(|word| word.replace(['"', '\''], "")).collect()
}

/// True for a run of an agent or a flow that does more than show what would be run.
fn runs_delta(command: &[String]) -> bool {
    options_of_run(command).is_some() && !command.iter().any(|word| word == "--dry-run")
}

/// The program's name, if a command searches directories below it and reads `.delta`, too.
fn searches_delta(command: &[String]) -> Option<&str> {
    let (program, arguments) = command.split_first()?;
    let program = base_name(program);
    if !matches!(program, "grep" | "egrep" | "fgrep" | "rgrep") {
        return None;
    }
    let mut is_recursive = program == "rgrep";
    let mut has_pattern = false;
    let mut operands = Vec::new();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word == "--" {
            operands.extend(words.by_ref());
        } else if word.starts_with("--exclude-dir") {
            return None;
        } else if let Some(option) = word.strip_prefix("--") {
            is_recursive |= matches!(option, "recursive" | "dereference-recursive");
            has_pattern |= option.starts_with("regexp") || option.starts_with("file=");
        } else if let Some(flags) = word.strip_prefix('-').filter(|flags| !flags.is_empty()) {
            let takes_value = |c: char| matches!(c, 'e' | 'f' | 'm' | 'A' | 'B' | 'C' | 'd' | 'D');
            let end = flags.find(takes_value);
            is_recursive |= flags[..end.unwrap_or(flags.len())].contains(['r', 'R']);
            has_pattern |= end.is_some_and(|at| flags[at..].starts_with(['e', 'f']));
            if end.is_some_and(|at| at + 1 == flags.len()) {
                words.next();
            }
        } else {
            operands.push(word);
        }
    }
    let paths = &operands[usize::from(!has_pattern).min(operands.len())..];
    let reads_delta = |path: &&str| path.contains('$') || path.ends_with(['.', '/']);
    (is_recursive && (paths.is_empty() || paths.iter().any(reads_delta))).then_some(program)
}

/// The placeholder, if a script is nothing else.
fn only_placeholder(script: &str) -> Option<&str> {
    let script = script.trim().trim_matches('"');
    match find_placeholders(script).as_slice() {
        [only] if only.range == (0..script.len()) && !only.raw => Some(only.name),
        _ => None,
    }
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}
