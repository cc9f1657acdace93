//! Where the key of a provider is.
//!
//! Unaware of who needs it. Architecture invariant: a key is read into a [`Secret`], and nothing that is
//! written down or shown is made of it.

use super::command::FLOW_HOME;
use crate::config::environment::Secret;
use crate::config::section::{Diagnostics, Section};
use crate::config::tool::argv_template::has_operator;
use crate::error::reason;
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Where a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// In a variable of the environment.
    Env(String),
    /// In a file.
    File(PathBuf),
    /// A program prints it.
    Command(Vec<String>),
}

impl Credential {
    /// The key, where no program need be asked for it.
    ///
    /// # Errors
    /// Why it is missing.
    pub(crate) fn key(&self) -> Result<Option<Secret>, String> {
        let (text, what) = match self {
            Self::Env(name) => match std::env::var(name) {
                Ok(text) => (text, format!("the variable {name}")),
                Err(std::env::VarError::NotPresent) => {
                    return Err(format!("there is no variable {name}"));
                }
                Err(_) => return Err(format!("the variable {name} holds no text")),
            },
            Self::File(path) => {
                let shown = path.display();
                let bytes = crate::unix::files::read_regular(path);
                let bytes = bytes.map_err(|e| format!("cannot read {shown}: {}", reason(&e)))?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                (text, format!("the file {shown}"))
            }
            Self::Command(words) => {
                let program = words.first().map_or("", |program| program);
                if program.contains('/') && !Path::new(program).is_file() {
                    return Err(format!("there is no program {program}"));
                }
                return Ok(None);
            }
        };
        parse_key(&text, &what).map(Some)
    }
}

/// The key in a text, which came from something that is called `what`.
///
/// # Errors
/// It has none.
pub(crate) fn parse_key(text: &str, what: &str) -> Result<Secret, String> {
    match (text.trim().is_empty(), Secret::new(text)) {
        (true, _) => Err(format!("{what} is empty")),
        (_, None) => Err(format!("{what} holds what can be no key")),
        (_, Some(key)) => Ok(key),
    }
}

/// Reads the mapping.
pub(super) fn read_credential(
    home: &Path,
    map: &Map<String, Value>,
    at: Vec<Step>,
    out: &mut Diagnostics,
) -> Option<Credential> {
    let node = Section::new(map, at).within("credential");
    node.warn_of_unknown_keys(&["source", "name"], out);
    for (key, wanted) in [
        ("source", "env, file or command"),
        (
            "name",
            "a variable, a file, or a program with its arguments",
        ),
    ] {
        if !map.contains_key(key) {
            let message = format!("credential: has no {key}; needs {wanted}");
            out.error(node.path_to(key), message);
        }
    }
    let sources = [("env", 0), ("file", 1), ("command", 2)];
    let source = node.read_choice("source", &sources, out);
    let name = node.read_text("name", out)?;
    // Never shown: it may be the key itself, by mistake.
    let wrong = |why: &str, out: &mut Diagnostics| {
        out.error(node.path_to("name"), format!("credential: name: {why}"));
        None
    };
    if name.trim().is_empty() || name.contains('\0') {
        return wrong("is empty", out);
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match source? {
        0 if !name.chars().all(is_name) => wrong("is not a name of a variable", out),
        0 => Some(Credential::Env(name.to_owned())),
        1 => Some(Credential::File(home.join(fill_home(name, home)))),
        _ if has_operator(name) => wrong(
            "it contains a shell operator, but no shell reads it; quote the operator, or write sh -c '…'",
            out,
        ),
        _ => match shlex::split(name).filter(|words| !words.is_empty()) {
            Some(words) => {
                let words = words.iter().map(|word| fill_home(word, home));
                let mut words: Vec<String> = words.collect();
                if words[0].contains('/') {
                    words[0] = home.join(&words[0]).to_string_lossy().into_owned();
                }
                Some(Credential::Command(words))
            }
            None => wrong("a quote has no end", out),
        },
    }
}

/// A text with the flow's directory in its place.
pub(super) fn fill_home(text: &str, home: &Path) -> String {
    text.replace(&format!("${{{FLOW_HOME}}}"), &home.to_string_lossy())
}
