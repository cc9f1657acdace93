//! The command of a node or an agent: `command:`, `exec:` or `shell:`, as a tool of an agent writes
//! it, without parameters.
//!
//! The modules that read templates know the flow's directory by the name that it has for an agent,
//! `AGENT_HOME`. Here it is called `FLOW_HOME`; the names are exchanged on the way in and out.
//! Unaware of processes.

use crate::config::section::{Diagnostics, Section};
use crate::config::tool::bind::{BaseDirs, fill_words};
use crate::config::tool::command;
use crate::config::tool::definition::{AGENT_HOME, Piece, Word};
use crate::text::yaml::Step;
use crate::unix::files;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The engine's variable for the flow's directory.
pub(crate) const FLOW_HOME: &str = "FLOW_HOME";

/// The three forms.
pub(crate) const FORMS: [&str; 3] = ["command", "exec", "shell"];

/// A program with its arguments. The caller also sets `FLOW_HOME` and `CWD` in its environment,
/// because a script of `shell:` leaves these to the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeCommand {
    /// How it was written, in a line.
    pub template: String,
    /// The program and its arguments, without parameters. Not empty.
    pub words: Vec<Word>,
}

impl NodeCommand {
    /// The argv, with the flow's directory and the task's.
    pub(crate) fn argv(&self, home: &Path, cwd: &Path) -> Vec<String> {
        fill(&self.words, home, cwd)
    }

    /// The files below the flow's directory that the command names.
    pub(crate) fn files(&self, home: &Path) -> Vec<PathBuf> {
        files_of(&self.words, home)
    }

    /// The files below the flow's directory that the command names in any way, as a program that `PATH` leads to, too.
    pub(crate) fn programs(&self, home: &Path, cwd: &Path) -> Vec<PathBuf> {
        let argv = self.argv(home, cwd);
        let is_end = |c: char| c.is_whitespace() || ENDS.contains(&c);
        let whole = argv.iter().flat_map(|it| it.split(is_end).chain([&**it]));
        let words = whole.flat_map(|it| it.split(['=', ':']).chain([it]));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = argv.first().and_then(|it| files::find_program(it, &path));
        let mut all = self.files(home);
        all.extend(words.map(|word| cwd.join(word)).chain(found));
        all.retain(|path| {
            let is_below = |real: PathBuf| path.starts_with(home) || real.starts_with(home);
            path.is_file() && path.canonicalize().is_ok_and(is_below)
        });
        all.sort();
        all.dedup();
        all
    }
}

/// Words with the flow's directory and the task's in their places.
pub(crate) fn fill(words: &[Word], home: &Path, cwd: &Path) -> Vec<String> {
    let dirs = BaseDirs {
        home: &home.to_string_lossy(),
        cwd: &cwd.to_string_lossy(),
    };
    fill_words(words, &dirs)
}

/// Paths with these directories in their places, and the person's home in that of `~`.
pub(crate) fn fill_paths(paths: &[Word], home: &Path, cwd: &Path) -> impl Iterator<Item = String> {
    let paths = fill(paths, home, cwd).into_iter();
    paths.map(
        |path| match (path.strip_prefix("~/"), std::env::var("HOME")) {
            (Some(rest), Ok(own)) if own.starts_with('/') => format!("{own}/{rest}"),
            _ => path,
        },
    )
}

/// The files below the flow's directory that words name: a word that begins with it, and what a script
/// has behind its variable.
pub(crate) fn files_of(words: &[Word], home: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for word in words {
        match word.0.as_slice() {
            [Piece::Home, Piece::Text(rest)] => {
                files.extend(rest.strip_prefix('/').map(|rest| home.join(rest)));
            }
            pieces => {
                for piece in pieces {
                    if let Piece::Text(script) = piece {
                        files.extend(named_in(script).map(|rest| home.join(rest)));
                    }
                }
            }
        }
    }
    files
}

/// The characters with which a shell ends a word.
const ENDS: &[char] = &[
    '\'', '"', '`', '$', ';', '&', '|', '<', '>', '(', ')', '*', '?',
];

/// The paths behind `$FLOW_HOME/` and `${FLOW_HOME}/` in a script, up to where a shell ends the word.
fn named_in(script: &str) -> impl Iterator<Item = &str> {
    script.split(FLOW_HOME).skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix('}').unwrap_or(rest);
        let rest = rest.strip_prefix('"').unwrap_or(rest);
        let rest = rest.strip_prefix('/')?;
        let end = rest.find(|c: char| c.is_whitespace() || ENDS.contains(&c));
        let name = &rest[..end.unwrap_or(rest.len())];
        (!name.is_empty()).then_some(name)
    })
}

/// Reads the form that a mapping has, if it has one.
pub(crate) fn read_command(
    map: &Map<String, Value>,
    at: &[Step],
    out: &mut Diagnostics,
) -> Option<NodeCommand> {
    let mut given = map.clone();
    given.retain(|key, _| FORMS.contains(&key.as_str()));
    if given.is_empty() {
        return None;
    }
    let given = inward(&given, at, out);
    let mut own = Diagnostics::about("");
    let usage = command::read(&Section::new(&given, at.to_vec()), &[], &mut own);
    // The reader's warnings about a model's parameters are reported as errors below.
    for complaint in own.into_list() {
        let message = complaint.message.replace(AGENT_HOME, FLOW_HOME);
        if !complaint.warning {
            out.error(complaint.at, message);
        } else if !message.contains(" is a parameter that the model must give") {
            out.warn(complaint.at, message);
        }
    }
    let usage = usage?;
    if let Some(parameter) = usage.parameters.first() {
        let name = &parameter.name;
        let message = format!(
            "${{{name}}} has no meaning here: the payload comes on standard input; in shell: write \
             ${name} for a variable"
        );
        let form = FORMS.into_iter().find(|form| given.contains_key(*form));
        let mut at = at.to_vec();
        at.extend(form.map(|form| Step::Key(form.to_owned())));
        out.error(at, message);
        return None;
    }
    Some(NodeCommand {
        template: outward(&usage.template),
        words: usage.command.into_iter().map(outward_word).collect(),
    })
}

/// The command of something that cannot do without one; `whose` begins the message about one that is missing.
pub(super) fn read_needed_command(
    map: &Map<String, Value>,
    at: &[Step],
    whose: &str,
    out: &mut Diagnostics,
) -> Option<NodeCommand> {
    if !FORMS.iter().any(|form| map.contains_key(*form)) {
        let message = format!("{whose}has no command; needs command: [PROGRAM, …]");
        out.error(at.to_vec(), message);
        return None;
    }
    read_command(map, at, out)
}

/// The same mapping with the flow's directory under the name that templates know.
pub(crate) fn inward(
    map: &Map<String, Value>,
    at: &[Step],
    out: &mut Diagnostics,
) -> Map<String, Value> {
    let mut given = map.clone();
    let agents = format!("${{{AGENT_HOME}}}");
    for form in FORMS {
        let Some(value) = given.get_mut(form) else {
            continue;
        };
        if mentions(value, &agents) {
            let mut at = at.to_vec();
            at.push(Step::Key(form.to_owned()));
            out.error(
                at,
                format!("{agents} is an agent's; write ${{{FLOW_HOME}}}"),
            );
        }
        inward_names(value);
    }
    given
}

/// A word of a template, with the name that the flow's directory has here in what is left to a shell.
pub(crate) fn outward_word(mut word: Word) -> Word {
    for piece in &mut word.0 {
        if let Piece::Text(text) = piece {
            *text = outward(text);
        }
    }
    word
}

/// A text of the modules that read templates, with the name that the flow's directory has here.
pub(crate) fn outward(text: &str) -> String {
    text.replace(&format!("${{{AGENT_HOME}}}"), &format!("${{{FLOW_HOME}}}"))
}

/// A text with `${FLOW_HOME}` and `${CWD}` in it, as a word.
pub(crate) fn parse_word(text: &str) -> Word {
    let known = text.replace(&format!("${{{FLOW_HOME}}}"), &format!("${{{AGENT_HOME}}}"));
    crate::config::tool::argv_template::parse_fixed_word(&known)
}

fn mentions(value: &Value, name: &str) -> bool {
    match value {
        Value::String(text) => text.contains(name),
        Value::Array(items) => items.iter().any(|item| mentions(item, name)),
        _ => false,
    }
}

/// Gives the flow's directory the name that templates know.
pub(super) fn inward_names(value: &mut Value) {
    match value {
        Value::String(text) => {
            *text = text.replace(&format!("${{{FLOW_HOME}}}"), &format!("${{{AGENT_HOME}}}"));
        }
        Value::Array(items) => items.iter_mut().for_each(inward_names),
        Value::Object(members) => members.values_mut().for_each(inward_names),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::named_in;

    #[test]
    fn a_script_names_files_behind_the_variable() {
        let script = "$FLOW_HOME/a.sh; sh \"${FLOW_HOME}/b/c.py\" x\ncat \"$FLOW_HOME\"/d|wc; ls $FLOW_HOME/";
        let found: Vec<&str> = named_in(script).collect();
        assert_eq!(found, ["a.sh", "b/c.py", "d"]);
        assert_eq!(named_in("$FLOW_HOMES/x FLOW_HOME").count(), 0);
    }
}
