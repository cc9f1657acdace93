//! Values of the model that a program could take for options.
//!
//! A guess, since every program reads its arguments in its own way: most of them, GNU's in any order
//! of options and operands, end their options at `--` (XBD 12.2, guideline 10).

use super::is_free;
use super::programs::{INTERPRETERS, in_home};
use super::simple::around;
use crate::config::tool::argv_template::is_shell;
use crate::config::tool::definition::{Inject, Piece, Tool, Word, is_script};
use crate::config::tool::shell_lexer::mentions;

/// Options whose value is the next word, whatever it begins with.
const TAKE_A_VALUE: [(&str, &[&str]); 14] = [
    (
        "delta",
        &[
            "-a",
            "--agent",
            "-m",
            "--message",
            "-w",
            "--work-dir",
            "--run-id",
        ],
    ),
    ("grep", &["-e", "-f", "-A", "-B", "-C", "-m"]),
    ("head", &["-n", "-c"]),
    ("tail", &["-n", "-c"]),
    ("sed", &["-e", "-f"]),
    ("cut", &["-d", "-f", "-c", "-b"]),
    (
        "curl",
        &[
            "-X",
            "-H",
            "-d",
            "-o",
            "-u",
            "--request",
            "--header",
            "--data",
            "--data-binary",
            "--url",
        ],
    ),
    ("git", &["-C", "-m"]),
    ("sqlite3", &["-cmd"]),
    ("python", &["-c", "-m"]),
    ("python3", &["-c", "-m"]),
    ("perl", &["-e", "-E"]),
    ("ruby", &["-e"]),
    ("php", &["-r"]),
];

/// Messages about the parameters of an `exec:` or `command:`.
pub(super) fn in_argv(tool: &Tool) -> Vec<String> {
    if is_script(&tool.command) {
        // Where its values go is not to be seen from here.
        return Vec::new();
    }
    let name = |index: usize| tool.parameters[index].name.as_str();
    let mut words: Vec<String> = Vec::new();
    let mut exposed = Vec::new();
    for word in &tool.command {
        if let Some(Piece::Param(index)) = word.0.first()
            && is_free(tool, *index)
            && is_exposed(&words, &tool.command)
        {
            exposed.push((name(*index), words.clone()));
        }
        words.push(word.written(name));
    }
    for &index in &tool.appended {
        match &tool.parameters[index].inject {
            // The value of that option, whatever it begins with.
            Inject::Option(option) => words.push(option.clone()),
            _ if is_free(tool, index) && is_exposed(&words, &tool.command) => {
                exposed.push((name(index), words.clone()));
            }
            _ => {}
        }
        words.push(format!("${{{}}}", name(index)));
    }
    messages(&exposed)
}

/// Messages about the parameters of a `shell:`.
pub(super) fn in_script(tool: &Tool, script: &str) -> Vec<String> {
    let mut exposed = Vec::new();
    for mention in mentions(script) {
        let known = tool.parameters.iter().position(|p| p.name == mention.name);
        if mention.raw || !known.is_some_and(|index| is_free(tool, index)) {
            continue;
        }
        let place = around(script, mention.range.start, mention.range.end);
        if !place.begun && is_exposed(&place.words, &[]) {
            exposed.push((mention.name, place.words));
        }
    }
    messages(&exposed)
}

/// The command that another one starts: of `env A=1 nice -n 5 printf %s` the last two words. The words as
/// they are, if the program is not to be told from options and their values.
fn behind_starters(words: &[String]) -> &[String] {
    const STARTERS: [&str; 9] = [
        "builtin", "command", "env", "exec", "nice", "nohup", "sudo", "time", "xargs",
    ];
    let mut rest = words;
    while let Some((program, behind)) = rest.split_first() {
        if !STARTERS.contains(&program.as_str()) {
            return rest;
        }
        let is_own = |word: &String| word.starts_with('-') || word.contains('=');
        let own = behind.iter().take_while(|word| is_own(word)).count();
        let is_value = |word: &String| word.starts_with(|c: char| c.is_ascii_digit() || c == '{');
        let values = behind[own..]
            .iter()
            .take_while(|word| is_value(word))
            .count();
        rest = &behind[own + values..];
    }
    words
}

/// Whether a word behind these could be taken for an option.
fn is_exposed(words: &[String], command: &[Word]) -> bool {
    let Some((program, arguments)) = behind_starters(words).split_first() else {
        // It names the program.
        return false;
    };
    if command.first().is_some_and(|word| in_home(word).is_some()) || program.contains("${") {
        // The agent's own, whose author knows what it does with its arguments.
        return false;
    }
    let program = program.rsplit('/').next().unwrap_or(program);
    let last = arguments.last().map_or("", String::as_str);
    let takes_it = |(name, options): &(&str, &[&str])| *name == program && options.contains(&last);
    let is_operand = |word: &String| !word.starts_with('-');
    let is_format = |word: &String| is_operand(word) || word.contains(['%', ' ']);
    match program {
        // Conditions and words of the shell's own take no options here.
        "[" | "test" | "case" | "for" | "expr" => false,
        // Behind its format nothing is an option; a format has a blank or a % in it, or is no option.
        "printf" if arguments.iter().any(is_format) => false,
        // Options of echo come before everything else.
        "echo" if arguments.iter().any(is_operand) => false,
        // A primary takes the next word, whatever it is.
        "find" if last.starts_with('-') => false,
        // What follows the script belongs to the script.
        _ if INTERPRETERS.contains(&program) && arguments.iter().any(is_operand) => false,
        _ => {
            !arguments.iter().any(|word| word == "--")
                && !last.ends_with(['<', '>'])
                && !TAKE_A_VALUE.iter().any(takes_it)
        }
    }
}

fn messages(exposed: &[(&str, Vec<String>)]) -> Vec<String> {
    let mut messages = Vec::new();
    for (name, words) in exposed {
        let last = words.last().map_or("", String::as_str);
        let way_out = if words[0] == "echo" {
            format!("echo knows no --; write printf '%s\\n' ${{{name}}}")
        } else if is_shell(&words[0]) {
            // Its -c takes no value: the script is an operand.
            "put -- before it".to_owned()
        } else if last.starts_with("--") && last.len() > 2 {
            format!("put -- before it, or write {last}=${{{name}}} if it belongs to {last}")
        } else if last.starts_with('-') && last.len() == 2 {
            format!("put -- before it, or write {last}${{{name}}} if it belongs to {last}")
        } else {
            "put -- before it".to_owned()
        };
        let message = format!(
            "a value of '{name}' that begins with - would be taken for an option; {way_out}"
        );
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    messages
}
