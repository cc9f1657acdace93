//! The command of a node or an agent: `command:`, `exec:` or `shell:`, as a tool of an agent writes
//! it, without parameters.
//!
//! The modules that read templates know the flow's directory by the name that it has for an agent,
//! `AGENT_HOME`. Here it is called `FLOW_HOME`; the names are exchanged on the way in and out.
//! Unaware of processes.

use super::fields::FromKey;
use crate::config::keys::Key;
use crate::config::section::{Diagnostic, Section};
use crate::config::tool::bind::{BaseDirs, fill_words};
use crate::config::tool::command;
use crate::config::tool::definition::{AGENT_HOME, Parameter, Piece, Word};
use crate::text::order;
use crate::unix::programs::{find_program, search_path};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The engine's variable for the flow's directory.
pub(crate) const FLOW_HOME: &str = "FLOW_HOME";

/// The flow's directory in texts, and the agent's.
pub(super) const FLOW_DIR: &str = "${FLOW_HOME}";
pub(super) const AGENT_DIR: &str = "${AGENT_HOME}";

/// The three forms.
pub(crate) const FORMS: [&str; 3] = ["command", "exec", "shell"];

/// A program with its arguments. The caller also sets `FLOW_HOME` and `CWD` in its environment,
/// because a script of `shell:` leaves these to the shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeCommand {
    /// The command as it was written, in a line.
    pub template: String,
    /// The program and its arguments, without parameters. Not empty, unless something is wrong with it.
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
        let path = search_path();
        let found = argv.first().and_then(|it| find_program(it, &path));
        let mut all = self.files(home);
        all.extend(words.map(|word| cwd.join(word)).chain(found));
        all.retain(|path| {
            let is_below = |real: PathBuf| path.starts_with(home) || real.starts_with(home);
            path.is_file() && path.canonicalize().is_ok_and(is_below)
        });
        order::sort(&mut all);
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
/// has after its variable.
pub(crate) fn files_of(words: &[Word], home: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for word in words {
        if let [Piece::Home, Piece::Text(rest)] = word.0.as_slice() {
            files.extend(rest.strip_prefix('/').map(|rest| home.join(rest)));
            continue;
        }
        for piece in &word.0 {
            if let Piece::Text(script) = piece {
                files.extend(named_in(script).map(|rest| home.join(rest)));
            }
        }
    }
    files
}

/// The characters with which a shell ends a word.
const ENDS: &[char] = &[
    '\'', '"', '`', '$', ';', '&', '|', '<', '>', '(', ')', '*', '?',
];

/// The paths after `$FLOW_HOME/` and `${FLOW_HOME}/` in a script, up to where a shell ends the word.
fn named_in(script: &str) -> impl Iterator<Item = &str> {
    script.split(FLOW_HOME).skip(1).filter_map(|rest| {
        let unbraced = rest.strip_prefix('}').unwrap_or(rest);
        let unquoted = unbraced.strip_prefix('"').unwrap_or(unbraced);
        let is_end = |c: char| c.is_whitespace() || ENDS.contains(&c);
        let name = unquoted.strip_prefix('/')?.split(is_end).next();
        name.filter(|name| !name.is_empty())
    })
}

/// Reads the form that a mapping has, if it has one.
pub(crate) fn read_command(node: &Section) -> Option<NodeCommand> {
    let form = FORMS.into_iter().find(|form| node.has(form))?;
    let mut given = inward(node);
    given.retain(|key, _| FORMS.contains(&key.as_str()));
    let own = Section::new(&given, node.path_to(""));
    let usage = command::read(&own, &[]);
    // The reader's warnings about a model's parameters are reported as errors below.
    for complaint in own.take_diagnostics() {
        let message = complaint.message.replace(AGENT_HOME, FLOW_HOME);
        if !complaint.warning || !message.contains(" is a parameter that the model must give") {
            node.push(Diagnostic {
                message,
                ..complaint
            });
        }
    }
    let mut settled = usage?;
    settled.command.iter_mut().for_each(outward_word);
    if let Some(Parameter { name, .. }) = settled.parameters.first() {
        let message = format!(
            "${{{name}}} has no meaning here: the payload comes on standard input; in shell: write \
             ${name} for a variable"
        );
        return node.refuse(form, message);
    }
    Some(NodeCommand {
        template: outward(&settled.template),
        words: settled.command,
    })
}

/// The command of something that cannot do without one; `whose` begins the message about one that is missing.
/// One that is wrong is empty.
pub(super) fn read_needed_command(node: &Section, whose: &str) -> NodeCommand {
    if !FORMS.iter().any(|form| node.has(form)) {
        let message = format!("{whose}has no command; needs command: [PROGRAM, …]");
        node.error("", message);
    }
    read_command(node).unwrap_or_default()
}

impl FromKey for Option<NodeCommand> {
    fn from_key(node: &Section, _: &Key) -> Self {
        read_command(node)
    }
}

impl FromKey for NodeCommand {
    fn from_key(node: &Section, _: &Key) -> Self {
        read_needed_command(node, &node.name(""))
    }
}

/// A path or a word in which the flow's directory is replaced.
impl FromKey for Option<Word> {
    fn from_key(node: &Section, key: &Key) -> Self {
        node.read_text(key.name).map(parse_word)
    }
}

/// A copy of a mapping with the flow's directory under the name that templates know.
pub(super) fn inward(node: &Section) -> Map<String, Value> {
    let mut given = node.map.clone();
    for form in FORMS {
        let Some(value) = given.get_mut(form) else {
            continue;
        };
        if !value.is_object() && value.to_string().contains(AGENT_DIR) {
            node.error(form, format!("{AGENT_DIR} is an agent's; write {FLOW_DIR}"));
        }
        replace_texts(value, FLOW_DIR, AGENT_DIR);
    }
    given
}

/// A word of a template, with the name that the flow's directory has here in what is left to a shell.
pub(super) fn outward_word(word: &mut Word) {
    for piece in &mut word.0 {
        if let Piece::Text(text) = piece {
            *text = outward(text);
        }
    }
}

/// A text of the modules that read templates, with the name that the flow's directory has here.
pub(super) fn outward(text: &str) -> String {
    text.replace(AGENT_DIR, FLOW_DIR)
}

/// A text with `${FLOW_HOME}` and `${CWD}` in it, as a word.
pub(crate) fn parse_word(text: &str) -> Word {
    crate::config::tool::argv_template::parse_fixed_word(&text.replace(FLOW_DIR, AGENT_DIR))
}

/// A text with the flow's directory in its place.
pub(super) fn fill_home(text: &str, home: &Path) -> String {
    text.replace(FLOW_DIR, &home.to_string_lossy())
}

/// Replaces a part of every text of a value.
pub(super) fn replace_texts(value: &mut Value, part: &str, by: &str) {
    match value {
        Value::String(text) => *text = text.replace(part, by),
        Value::Array(items) => items.iter_mut().for_each(|it| replace_texts(it, part, by)),
        Value::Object(map) => map.values_mut().for_each(|it| replace_texts(it, part, by)),
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
