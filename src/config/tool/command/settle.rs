//! Commands whose parameters are known, checked as a whole and brought into one form.
//!
//! Unaware of the form in which a command was written.

use crate::config::section::Section;
use crate::config::tool::argv_template::{parse_word, value_in_script};
use crate::config::tool::definition::{Inject, Parameter, Piece, Word, is_script};
use crate::config::tool::parameters::DeclaredParameter;
use crate::config::tool::shell_lexer::find_placeholders;
use crate::text::order;

/// A command and how it uses its parameters; see [`crate::config::tool::definition::Tool`], which has the same fields.
#[derive(Debug)]
pub(crate) struct SettledCommand {
    /// The command as it was written.
    pub template: String,
    /// The program and its first arguments.
    pub command: Vec<Word>,
    /// The parameters that follow them.
    pub appended: Vec<usize>,
    /// All parameters.
    pub parameters: Vec<Parameter>,
}

/// Which of the declared parameters follow the command, and in which order.
///
/// One that has a position takes that place, if the places before it can be filled; the others take
/// what is left, in the order in which they are declared.
pub(super) fn order_appended(
    declared: &[DeclaredParameter],
    parameters: &[Parameter],
    words: &[Word],
) -> Vec<usize> {
    let mut placed: Vec<(usize, usize)> = Vec::new();
    let mut others = Vec::new();
    for (index, one) in declared.iter().enumerate() {
        let name = &one.parameter.name;
        let inject = &parameters[index].inject;
        let in_words = words.iter().flat_map(Word::params).any(|it| it == index);
        if in_words && *inject != Inject::Argument {
            let message = format!(
                "parameter '{name}' has a place in command: and cannot be injected as {}; remove one",
                inject.name()
            );
            one.section.error("inject_as", message);
        }
        let follows = !in_words && *inject != Inject::Stdin;
        match one.position {
            Some(_) if !follows => {
                let message =
                    format!("parameter '{name}' does not follow the command and has no position");
                one.section.error("position", message);
            }
            None if !follows => {}
            Some(position) => {
                if placed.iter().any(|(taken, _)| *taken == position) {
                    let message = format!("position {position} of parameter '{name}' is taken");
                    one.section.error("position", message);
                }
                placed.push((position, index));
            }
            None => others.push(index),
        }
    }
    order::sort(&mut placed);
    let mut order = Vec::with_capacity(placed.len() + others.len());
    let mut others = others.into_iter();
    for (position, index) in placed {
        let before = position.saturating_sub(order.len());
        order.extend(others.by_ref().take(before));
        order.push(index);
    }
    order.extend(others);
    order
}

/// Checks a command as a whole, and brings it into the form that it is printed in: values that
/// follow the command are appended and not in it. There is at least one word.
pub(super) fn settle_command(
    key: &str,
    mut command: Vec<Word>,
    mut appended: Vec<usize>,
    parameters: Vec<Parameter>,
    section: &Section,
) -> SettledCommand {
    let name = |index: usize| parameters[index].name.as_str();
    if let Some(index) = value_in_script(&command) {
        let message = format!(
            "the value of '{0}' would run as code, because it is part of a shell's script; use \
             shell: with ${{{0}}} in the script",
            name(index)
        );
        section.error(key, message);
    }
    if command[0].0.is_empty() {
        let message = format!("{key}: the program's name is empty; name a program");
        section.error(key, message);
    }
    let is_optional = |p: &Parameter| !p.required && p.default.is_none();
    if let Some(index) = command[0]
        .params()
        .find(|&index| is_optional(&parameters[index]))
    {
        let message = format!(
            "parameter '{}' names the program and cannot be optional; give it a default",
            name(index)
        );
        section.error(key, message);
    }
    // The engine's variables in a script are left to the shell, as they are in `shell:`.
    let words = command.iter();
    let written: Vec<Word> = words.map(|word| Word::fixed(&word.written(name))).collect();
    if is_script(&written) && command.iter().flat_map(Word::params).next().is_none() {
        command = written;
    }
    refuse_ambiguous(key, &command, &parameters, section);
    // After a script, a value that is absent would be an empty string, which was not asked for.
    let tail = values_at_the_end(&command);
    let kept = command.len() - tail.len();
    if !is_script(&command[..kept]) {
        command.truncate(kept);
        appended.splice(0..0, tail);
    }
    SettledCommand {
        template: String::new(),
        command,
        appended,
        parameters,
    }
}

/// The parameters that are the last words of a command, each being used nowhere else, without the
/// program.
fn values_at_the_end(command: &[Word]) -> Vec<usize> {
    let uses = |index| {
        let all = command.iter().flat_map(Word::params);
        all.filter(|param| *param == index).count()
    };
    let value = |word: &Word| match word.0.as_slice() {
        &[Piece::Param(index)] if uses(index) == 1 => Some(index),
        _ => None,
    };
    let mut values: Vec<usize> = command[1..].iter().rev().map_while(value).collect();
    values.reverse();
    values
}

/// Complains of text that would be taken for a placeholder when the command is read as a list.
fn refuse_ambiguous(key: &str, command: &[Word], parameters: &[Parameter], section: &Section) {
    let names: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
    if is_script(command) {
        let script = command[2].as_fixed().unwrap_or_default();
        let mut all = find_placeholders(script).into_iter();
        if let Some(placeholder) = all.find(|it| names.contains(&it.name)) {
            let message = format!(
                "${{{0}}} in the script is a variable of the shell and not the parameter; use \
                 shell: for a place, or rename the parameter",
                placeholder.name
            );
            section.error(key, message);
        }
        return;
    }
    for one in command {
        let written = one.written(|index| names[index]);
        if parse_word(&written, &names) != *one {
            let message = format!(
                "text in '{written}' looks like one of the tool's own placeholders; rename the \
                 parameter, or use shell:"
            );
            section.error(key, message);
        }
    }
}
