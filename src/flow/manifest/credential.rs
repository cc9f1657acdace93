//! The place of a provider's key.
//!
//! Unaware of who needs it. Architecture invariant: a key is read into a [`Secret`], and nothing that is
//! written down or shown is made of it.

use super::command::fill_home;
use super::fields::{fields, needed};
use crate::config::environment::Secret;
use crate::config::section::Section;
use crate::config::tool::argv_template::has_operator;
use crate::error::reason;
use crate::text::names::named_enum;
use std::path::{Path, PathBuf};

/// The place of a key.
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
                let read = crate::unix::files::read_regular(path);
                let bytes = read.map_err(|e| format!("cannot read {shown}: {}", reason(&e)))?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                (text, format!("the file {shown}"))
            }
            Self::Command(words) => {
                let is_missing = |it: &&String| it.contains('/') && !Path::new(it).is_file();
                return match words.first().filter(is_missing) {
                    Some(program) => Err(format!("there is no program {program}")),
                    None => Ok(None),
                };
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
        (_, None) => Err(format!(
            "{what} is not a key: it has quotes, blanks or characters that no header can carry"
        )),
        (_, Some(key)) => Ok(key),
    }
}

named_enum! {
    /// The kinds of places of a key.
    pub(crate) enum CredentialSource {
        Env = "env",
        File = "file",
        Command = "command",
    }
}

fields! {
    /// A credential as it is written.
    struct CredentialKeys {
        source: Option<CredentialSource> = needed("source", "env, file or command"),
        name: Option<String> = needed("name", "a variable, a file, or a program with its arguments"),
    }
}

/// Reads the mapping.
pub(super) fn read_credential(home: &Path, node: &Section) -> Option<Credential> {
    let keys = CredentialKeys::read_keys(node);
    let name = keys.name?;
    // Never shown: it may be the key itself, by mistake.
    let wrong = |why: &str| node.refuse("name", format!("credential: name: {why}"));
    if name.trim().is_empty() || name.contains('\0') {
        return wrong("is empty");
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match keys.source? {
        CredentialSource::Env if !name.chars().all(is_name) => wrong("is not a name of a variable"),
        CredentialSource::Env => Some(Credential::Env(name)),
        CredentialSource::File => Some(Credential::File(home.join(fill_home(&name, home)))),
        CredentialSource::Command if has_operator(&name) => wrong(
            "it contains a shell operator, but no shell reads it; quote the operator, or write sh -c '…'",
        ),
        CredentialSource::Command => {
            let Some(words) = shlex::split(&name).filter(|words| !words.is_empty()) else {
                return wrong("a quote has no end");
            };
            let filled = words.iter().map(|word| fill_home(word, home));
            let mut argv: Vec<String> = filled.collect();
            if argv[0].contains('/') {
                argv[0] = home.join(&argv[0]).to_string_lossy().into_owned();
            }
            Some(Credential::Command(argv))
        }
    }
}
