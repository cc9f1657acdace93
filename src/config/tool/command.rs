//! The three forms of a command, `exec:`, `shell:` and `command:`, each with the parameters that it
//! uses.
//!
//! A template and what is declared about its parameters are checked against each other here. Unaware
//! of the other keys of a tool.

mod settle;

use crate::config::section::{Section, describe_value};
use crate::config::tool::argv_template::{self, is_reserved, parse_word, split_template};
use crate::config::tool::definition::{Inject, Parameter, Word, one_line};
use crate::config::tool::parameters::{DeclaredParameter, check_name};
use crate::config::tool::shell_lexer::{Placeholder, QuoteContext, find_placeholders};
use crate::config::tool::shell_template;
use crate::text::suggestion::nearest;
use serde_json::Value;
pub(crate) use settle::SettledCommand;
use settle::{order_appended, settle_command};

/// The keys of a tool that its command depends on.
struct CommandSource<'g> {
    section: &'g Section<'g>,
    declared: &'g [DeclaredParameter<'g>],
    /// The name of the parameter that goes to stdin.
    stdin: Option<&'g str>,
}

/// Reads the one of `exec:`, `shell:` and `command:` that a tool has, and its `stdin:`.
pub(crate) fn read(section: &Section, declared: &[DeclaredParameter]) -> Option<SettledCommand> {
    let mut forms = vec!["exec", "shell", "command"];
    forms.retain(|form| section.has(form));
    let stdin = section.read_text("stdin");
    let given = CommandSource {
        section,
        declared,
        stdin: stdin.filter(|name| check_name(section, "stdin", name)),
    };
    match forms.as_slice() {
        ["exec"] => exec(&given),
        ["shell"] => shell(&given),
        ["command"] => command(&given),
        [] => {
            let message = "has no command; needs one of exec:, shell: and command:";
            section.refuse("", message)
        }
        [.., last] => {
            let message = format!(
                "exec:, shell: and command: are mutually exclusive, found {}:; keep one",
                forms.join(": and ")
            );
            section.refuse(last, message)
        }
    }
}

/// Reads the command of a tool whose arguments go to stdin as one JSON object: no parameter has a
/// place in it.
pub(crate) fn read_fixed(
    section: &Section,
    declared: &[DeclaredParameter],
) -> Option<SettledCommand> {
    if section.has("stdin") {
        let message = "stdin: cannot be used with input: json, which sends all arguments there";
        return section.refuse("stdin", message);
    }
    for one in declared {
        for key in ["inject_as", "option_name", "position", "raw"] {
            if one.section.has(key) {
                let message = format!("{key}: cannot be used with input: json; remove it");
                one.section.error(key, message);
            }
        }
    }
    let mut usage = read(section, &[])?;
    for parameter in &usage.parameters {
        let message = format!(
            "${{{}}} cannot be used with input: json, which sends all arguments to stdin as one object",
            parameter.name
        );
        section.error("", message);
    }
    let all = declared.iter().map(|one| Parameter {
        inject: Inject::Stdin,
        ..one.parameter.clone()
    });
    usage.parameters = all.collect();
    Some(usage)
}

fn exec(given: &CommandSource) -> Option<SettledCommand> {
    let text = given.template("exec")?;
    let Some(line) = given.accepted("exec", split_template(text)) else {
        given.infer(&argv_template::placeholder_names(text), None);
        return None;
    };
    for name in &line.names {
        given.suspect("exec", name, false);
    }
    let parameters = given.infer(&line.names, None);
    let section = given.section;
    let mut usage = settle_command("exec", line.words, Vec::new(), parameters, section);
    text.trim().clone_into(&mut usage.template);
    Some(usage)
}

fn shell(given: &CommandSource) -> Option<SettledCommand> {
    let text = given.template("shell")?;
    if text.trim().is_empty() {
        let message = "shell: is empty; write a script";
        return given.section.refuse("shell", message);
    }
    let Some(script) = given.accepted("shell", shell_template::expand(text)) else {
        let (names, raw) = shell_template::names(text);
        given.infer(&names, Some(&raw));
        return None;
    };
    for name in &script.names {
        given.suspect("shell", name, assigns(text, name));
    }
    let unseen = |m: &&Placeholder| is_reserved(m.name) && m.place == QuoteContext::Single;
    if let Some(Placeholder { name, .. }) = find_placeholders(text).iter().find(unseen) {
        let message = format!(
            "${{{name}}} in single quotes is left as it is; use double quotes, or write ${name} if \
             that is what you want"
        );
        given.section.warn("shell", message);
    }
    let parameters = given.infer(&script.names, Some(&script.raw));
    Some(SettledCommand {
        template: text.trim().to_owned(),
        command: ["sh", "-c", &script.text, "--"].map(Word::fixed).into(),
        appended: (0..script.names.len()).collect(),
        parameters,
    })
}

fn command(given: &CommandSource) -> Option<SettledCommand> {
    if let Some(line @ Value::String(_)) = given.section.map.get("command") {
        let found = describe_value(line);
        let message = format!(
            "command: expected a list of strings, found {found}; use exec: for a command line"
        );
        return given.section.refuse("command", message);
    }
    let texts = given.section.read_texts("command")?;
    if texts.is_empty() {
        let message = "command: is empty; name a program";
        return given.section.refuse("command", message);
    }
    let parameters = given.own();
    let names: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
    let is_placeholder = |text: &str| names.iter().any(|name| text == format!("${{{name}}}"));
    let words: Vec<Word> = match texts.as_slice() {
        // Only the shell knows what is quoted in a script.
        ["sh", "-c", script, "--"] if !is_placeholder(script) => {
            texts.iter().map(|text| Word::fixed(text)).collect()
        }
        _ => texts.iter().map(|text| parse_word(text, &names)).collect(),
    };
    let appended = order_appended(given.declared, &parameters, &words);
    let mut usage = settle_command("command", words, appended, parameters, given.section);
    usage.template = one_line(&usage.command, &usage.appended, &usage.parameters);
    Some(usage)
}

impl<'g> CommandSource<'g> {
    fn template(&self, key: &str) -> Option<&'g str> {
        let text = self.section.read_text(key)?;
        if text.contains('\0') {
            let message = format!("{key}: no program argument can hold a NUL byte");
            return self.section.refuse(key, message);
        }
        Some(text)
    }

    fn accepted<T>(&self, key: &str, result: Result<T, Vec<String>>) -> Option<T> {
        let problems = match result {
            Ok(accepted) => return Some(accepted),
            Err(problems) => problems,
        };
        for problem in problems {
            self.section.error(key, problem);
        }
        None
    }

    /// Warns of a placeholder that is probably meant to be a variable.
    fn suspect(&self, key: &str, name: &str, is_assigned: bool) {
        let is_variable = is_assigned || !name.contains(|c: char| c.is_ascii_lowercase());
        if is_variable && self.find(name).is_none() {
            let message = format!(
                "${{{name}}} is a parameter that the model must give; write ${name} in shell: for \
                 a variable, or declare it in parameters:"
            );
            self.section.warn(key, message);
        }
    }

    fn find(&self, name: &str) -> Option<&DeclaredParameter<'g>> {
        self.declared.iter().find(|d| d.parameter.name == name)
    }

    /// The parameters that a template names, with what is declared about them.
    ///
    /// `raw` is missing where the modifier is not allowed.
    fn infer(&self, names: &[String], raw: Option<&[bool]>) -> Vec<Parameter> {
        let mut parameters = Vec::with_capacity(names.len() + 1);
        for (position, name) in names.iter().enumerate() {
            let Some(declared) = self.find(name) else {
                parameters.push(Parameter::new(name, Inject::Argument));
                continue;
            };
            agree(declared, &Inject::Argument, Some(position));
            agree_on_raw(declared, raw.map(|raw| raw[position]));
            parameters.push(Parameter {
                inject: Inject::Argument,
                ..declared.parameter.clone()
            });
        }
        match self.stdin {
            Some(name) if names.iter().any(|n| n == name) => {
                let message = format!(
                    "parameter '{name}' is in the template and in stdin:, and can go one way only; \
                     remove one"
                );
                self.section.error("stdin", message);
            }
            Some(name) => parameters.push(standard_input(name, self.find(name))),
            None => {}
        }
        for declared in self.declared {
            if !parameters.iter().any(|p| p.name == declared.parameter.name) {
                self.not_found(declared, &parameters);
            }
        }
        parameters
    }

    fn not_found(&self, declared: &DeclaredParameter, known: &[Parameter]) {
        let Parameter { name, inject, .. } = &declared.parameter;
        let meant = nearest(name, known.iter().map(|p| p.name.as_str()));
        let way_out = match (inject, self.stdin, meant) {
            (Inject::Stdin, None, _) => format!("write stdin: {name}"),
            (Inject::Stdin, Some(other), _) => {
                format!("only one parameter can go to stdin, and '{other}' does")
            }
            (_, _, Some(meant)) => format!("did you mean '{meant}'?"),
            (_, _, None) => format!("write ${{{name}}} where it goes"),
        };
        let message = format!("Parameter '{name}' not found in template; {way_out}");
        declared.section.error("name", message);
    }

    /// The parameters of a `command:` list, which are the declared ones.
    fn own(&self) -> Vec<Parameter> {
        let mut parameters: Vec<Parameter> = Vec::with_capacity(self.declared.len() + 1);
        for declared in self.declared {
            let name = &declared.parameter.name;
            parameters.push(if self.stdin == Some(name) {
                standard_input(name, Some(declared))
            } else {
                agree_on_raw(declared, None);
                declared.parameter.clone()
            });
        }
        if let Some(name) = self.stdin
            && self.find(name).is_none()
        {
            parameters.push(standard_input(name, None));
        }
        let mut to_stdin = parameters.iter().filter(|p| p.inject == Inject::Stdin);
        if let (Some(first), Some(second)) = (to_stdin.next(), to_stdin.next()) {
            let message = format!(
                "only one parameter can go to stdin, found '{}' and '{}'",
                first.name, second.name
            );
            self.section.error("parameters", message);
        }
        parameters
    }
}

fn standard_input(name: &str, declared: Option<&DeclaredParameter>) -> Parameter {
    let Some(declared) = declared else {
        return Parameter::new(name, Inject::Stdin);
    };
    agree(declared, &Inject::Stdin, None);
    agree_on_raw(declared, None);
    Parameter {
        inject: Inject::Stdin,
        ..declared.parameter.clone()
    }
}

/// Complains where a declaration contradicts what follows from the template.
fn agree(declared: &DeclaredParameter, inject: &Inject, position: Option<usize>) {
    let name = &declared.parameter.name;
    let explicit = &declared.parameter.inject;
    if declared.injected && explicit != inject {
        let message = format!(
            "Cannot override inject_as for parameter '{name}' (inferred: {}, explicit: {})",
            inject.name(),
            explicit.name()
        );
        declared.section.error("inject_as", message);
    }
    if declared.position.is_some() && declared.position != position {
        let message = format!(
            "Cannot override position for parameter '{name}' (inferred: {}, explicit: {})",
            position.map_or_else(|| "none".to_owned(), |at| at.to_string()),
            declared.position.unwrap_or_default()
        );
        declared.section.error("position", message);
    }
}

fn agree_on_raw(declared: &DeclaredParameter, template: Option<bool>) {
    let name = &declared.parameter.name;
    let message = match (declared.raw, template) {
        (Some(true), None) => {
            format!("parameter '{name}': :raw modifier is only allowed in shell: mode")
        }
        (Some(true), Some(false)) => format!(
            "parameter '{name}': :raw modifier must be specified in template syntax (${{{name}:raw}})"
        ),
        (Some(false), Some(true)) => {
            format!(
                "parameter '{name}' has raw: false and ${{{name}:raw}} in the template; remove one"
            )
        }
        _ => return,
    };
    declared.section.error("raw", message);
}

/// True if a script sets a variable of this name, as far as can be seen without running it. One that
/// gets the value of the placeholder does not count.
fn assigns(script: &str, name: &str) -> bool {
    let begins = |at: usize| !script[..at].ends_with(|c: char| c == '_' || c.is_alphanumeric());
    let assigned = |at: usize| {
        let (before, after) = (&script[..at], &script[at + name.len()..]);
        let from_itself = [format!("=${{{name}}}"), format!("=\"${{{name}}}\"")];
        let set = after.starts_with('=') && !from_itself.iter().any(|set| after.starts_with(set));
        set && !before.ends_with(['-', '{', '$', '&', '?', '/', '.'])
            || after.starts_with(" in ") && before.ends_with("for ")
            || before.ends_with("read ")
            || before.ends_with("read -r ")
    };
    let mut places = script.match_indices(name).map(|(at, _)| at);
    places.any(|at| begins(at) && assigned(at))
}
