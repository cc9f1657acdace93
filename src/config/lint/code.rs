//! Values of the model that would be part of code.
//!
//! A guess, since every program has its own way of being given code. A value that is all of the code is
//! what the tool is for; and that a shell in an `exec:` or `command:` would run one is an error, which is
//! told where tools are loaded.

use super::simple::around;
use crate::config::tool::argv_template::is_shell;
use crate::config::tool::definition::{Piece, Tool, is_script};
use crate::config::tool::shell_lexer::mentions;

/// Programs, and the letters of the options that take code.
const INTERPRETERS: [(&str, &str); 8] = [
    ("python", "c"),
    ("python3", "c"),
    ("perl", "eE"),
    ("ruby", "e"),
    ("node", "ep"),
    ("php", "r"),
    ("lua", "e"),
    ("Rscript", "e"),
];

/// Messages about the parameters of an `exec:` or `command:`.
pub(super) fn in_argv(tool: &Tool) -> Vec<String> {
    let mut messages = Vec::new();
    if is_script(&tool.command) {
        return messages;
    }
    let name = |index: usize| tool.parameters[index].name.as_str();
    let mut words: Vec<String> = Vec::new();
    for word in &tool.command {
        let alone = matches!(word.0.as_slice(), [Piece::Param(_)]);
        for index in word.params() {
            tell(tool, index, &words, alone, &mut messages);
        }
        words.push(word.written(name));
    }
    messages
}

/// Messages about the parameters of a `shell:`.
pub(super) fn in_script(tool: &Tool, script: &str) -> Vec<String> {
    let mut messages = Vec::new();
    for mention in mentions(script) {
        let known = tool.parameters.iter().position(|p| p.name == mention.name);
        if let Some(index) = known {
            let place = around(script, mention.range.start, mention.range.end);
            tell(tool, index, &place.words, place.alone, &mut messages);
        }
    }
    messages
}

fn tell(tool: &Tool, index: usize, words: &[String], alone: bool, messages: &mut Vec<String>) {
    let parameter = &tool.parameters[index];
    // One of a few that the author has written is no code of the model's.
    if !parameter.choices.is_empty() {
        return;
    }
    // The program may be started by another one, such as env, find or xargs, but not by what only prints.
    let name = &parameter.name;
    let prints = words
        .first()
        .is_some_and(|word| matches!(word.as_str(), "echo" | "printf"));
    let found = (0..if prints { 1 } else { words.len() })
        .filter(|&at| at == 0 || !is_builtin(&words[at]))
        .find_map(|at| Some((&words[at], way_out(&words[at..], alone, name)?)));
    let Some((program, way_out)) = found else {
        return;
    };
    let message =
        format!("the value of '{name}' would be part of the code that {program} runs; {way_out}");
    if !messages.contains(&message) {
        messages.push(message);
    }
}

fn is_builtin(program: &str) -> bool {
    matches!(program, "eval" | "trap")
}

/// What to write instead, if the word behind these is code.
fn way_out(words: &[String], alone: bool, name: &str) -> Option<String> {
    let (program, arguments) = words.split_first()?;
    let program = program.rsplit('/').next().unwrap_or(program);
    let operands = arguments.iter().filter(|word| !word.starts_with('-'));
    let last = arguments.iter().rev().find(|word| *word != "--");
    let last = last.map_or("", String::as_str);
    let has = |option: &str| arguments.iter().any(|word| word.starts_with(option));
    match program {
        "eval" => Some("without eval it is one word".to_owned()),
        "trap" if arguments.is_empty() => {
            Some("assign it to a variable, and use that in single quotes".to_owned())
        }
        _ if alone => None,
        "awk" | "gawk" | "mawk" | "nawk" => {
            let takes_a_value = |word: &str| matches!(word, "-v" | "-F");
            let values = arguments.iter().filter(|word| takes_a_value(word));
            let is_code = !has("-f") && !takes_a_value(last) && operands.count() == values.count();
            is_code.then(|| format!("write -v {name}=${{{name}}} before the code"))
        }
        "sed" => {
            let is_code = match last {
                "-e" | "--expression" => true,
                _ => !has("-e") && !has("-f") && operands.count() == 0,
            };
            is_code.then(|| {
                "sed takes no value as data; use another program, or list the values in enum:"
                    .to_owned()
            })
        }
        _ if operands.count() > 0 => None,
        _ if is_shell(program) && takes_code(last, "c") => Some(format!(
            "write \"$1\" there, and -- ${{{name}}} behind the script"
        )),
        _ => {
            let (_, letters) = INTERPRETERS.iter().find(|(known, _)| *known == program)?;
            let is_code = takes_code(last, letters) || program == "node" && last == "--eval";
            is_code.then(|| "write it behind the code, as an argument of its own".to_owned())
        }
    }
}

/// Whether the letter at the end of a word with options is one of these.
fn takes_code(word: &str, letters: &str) -> bool {
    let flags = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    flags.is_some_and(|flags| flags.ends_with(|c| letters.contains(c)))
}
