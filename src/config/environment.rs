//! The environment: where variables come from, which of them tools see, and which key may be sent
//! where.
//!
//! Unaware of how a model is asked. Variables are looked up in the workspace's `.env`, the agent's,
//! the `.env` beside the nearest `.git` above the agent, the process's environment, and the person's own
//! file; the first that has one wins. What the workspace's sets is for tools alone, unless it is allowed by name.
//!
//! Architecture invariant: the API key is only ever inside a [`Secret`], and it is paired with an
//! endpoint here and nowhere else.

mod programs;
mod urls;
mod files;
mod key_command;
mod api_choice;
mod endpoint;
mod hosts;

use crate::unix::secret::GIVEN_KEY;
pub(crate) use crate::unix::secret::{Secret, key_objection};
pub(crate) use api_choice::choose_by_host;
pub(crate) use endpoint::{Endpoint, SETUP, key_names};
pub(crate) use key_command::run_no_key_command;
pub(crate) use urls::{
    find_proxy, is_local, is_loopback, scheme_objection, url_objection, without_secrets,
};

use crate::config::api::API;
use crate::config::person;
use crate::text::redaction::{KEY_COMMAND, SECRET_NAMES, is_secret};
use crate::unix::process::Variable;
use key_command::key_of_command;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A process's depth of nesting in runs; 0 for one that a person started.
pub(crate) const DEPTH: &str = "DELTA_DEPTH";

/// The variable that names the model of agents that name none.
pub(crate) const MODEL: &str = "DELTA_MODEL";

/// The variable that lists the hosts that tools may reach without a network, with blanks between. It counts only in the
/// process's environment and the person's own file.
pub(crate) const ALLOW_HOSTS: &str = "DELTA_ALLOW_HOSTS";

/// The variables that can hold the engine's key, for any API. All but the first are vendors'.
pub(crate) const KEY_NAMES: [&str; 3] = ["DELTA_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"];

/// The variables that can hold the engine's endpoint, for any API; from [`VENDORS`] on, those of vendors.
const ENDPOINT_NAMES: [&str; 5] = [
    "DELTA_BASE_URL",
    API,
    "OPENAI_BASE_URL",
    "OPENAI_API_URL",
    "ANTHROPIC_BASE_URL",
];
const VENDORS: usize = 2;

/// The variables that begin with `DELTA_` and that `.env` files may set.
const OWN_NAMES: [&str; 3] = [KEY_NAMES[0], ENDPOINT_NAMES[0], ENDPOINT_NAMES[1]];

/// The source of a value, in order of trust: the agent itself can write the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trust {
    /// The workspace's `.env`, for the tools that work there.
    Tools,
    /// The workspace's `.env`, as far as it is allowed by name; or the person's own file, if it lies in the workspace.
    Workspace,
    /// The `.env` beside the nearest `.git` above the agent.
    Project,
    /// The agent's files or the process's environment.
    Trusted,
}

/// The workspace's file as messages call it.
const WORKSPACE_FILE: &str = "the workspace's .env";

/// A variable that is set.
struct Located {
    /// The value, with the blanks around it.
    value: String,
    trust: Trust,
    /// The variable and its place, in words.
    source: String,
}

/// The variables of a run.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// From `.env` files, the nearest first, each name once for each file.
    set: Vec<(String, String, Trust)>,
    /// Settings of servers, proxies and certificates in the workspace's `.env`, which do not count.
    refused: Vec<(String, String)>,
    /// The variables of headers: secrets, as those of keys are.
    header_names: Vec<String>,
    /// The person's own, each name once.
    own: &'static [(String, String)],
    /// Hosts that tools may reach, as the command line has them.
    given_hosts: Option<Vec<String>>,
    /// The person's own file lies in the workspace, so that it is trusted as that is.
    own_is_inside: bool,
    /// Variables that only the tools of one MCP server get: the server, and the name.
    reserved: Vec<(String, String)>,
}

impl Environment {
    /// The first of these variables that is set and not empty; of sources that are trusted at least so much.
    fn locate(&self, names: &[&str], least: Trust) -> Option<Located> {
        let is_found = |it: &Located| !it.value.trim().is_empty() && it.trust >= least;
        names
            .iter()
            .find_map(|name| self.values(name).find(is_found))
    }

    /// The values of a variable in all places, the one that counts first.
    fn values(&self, name: &str) -> impl Iterator<Item = Located> {
        let in_files = self
            .set
            .iter()
            .filter(move |(known, ..)| known == name)
            .map(|(_, value, trust)| {
                let place = match trust {
                    Trust::Tools | Trust::Workspace => WORKSPACE_FILE,
                    Trust::Project => "the project's .env",
                    Trust::Trusted => "the agent's .env",
                };
                (value.clone(), *trust, place.to_owned())
            });
        let in_process = std::env::var(name).ok();
        let in_process =
            in_process.map(|value| (value, Trust::Trusted, "the environment".to_owned()));
        let given = self.own.iter().find(|(known, _)| known == name);
        let own_trust = if self.own_is_inside {
            Trust::Workspace
        } else {
            Trust::Trusted
        };
        let own = given.map(|(_, value)| (value.clone(), own_trust, person::shown_file()));
        let all = in_files.chain(in_process).chain(own);
        all.map(move |(value, trust, place)| Located {
            value,
            trust,
            source: format!("{name} in {place}"),
        })
    }

    fn find_trusted(&self, names: &[&str], least: Trust) -> Option<(String, Trust)> {
        let found = self.locate(names, least)?;
        Some((found.value.trim().to_owned(), found.trust))
    }

    fn find(&self, names: &[&str]) -> Option<(String, Trust)> {
        self.find_trusted(names, Trust::Workspace)
    }

    /// True if the person's own settings lie in the workspace, where tools can change them.
    pub(crate) fn own_is_inside(&self) -> bool {
        self.own_is_inside
    }

    /// A variable as hooks see it, if it is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.find(&[name]).map(|(value, _)| value)
    }

    /// `PATH` for programs, with the directory of this one at its end: a `delta` in a command is found also
    /// where this one was started by its path.
    pub(crate) fn search_path(&self) -> String {
        static OWN: OnceLock<Option<PathBuf>> = OnceLock::new();
        let path = self.get("PATH").unwrap_or_default();
        // Asked once: every program that is started needs it.
        let own = OWN
            .get_or_init(|| std::env::current_exe().ok())
            .as_deref()
            .and_then(Path::parent);
        match own.and_then(Path::to_str) {
            Some(own) if !own.contains(':') && !path.split(':').any(|dir| dir == own) => {
                let colon = if path.is_empty() { "" } else { ":" };
                format!("{path}{colon}{own}")
            }
            _ => path,
        }
    }

    /// Everything that must be removed from texts: the keys and the headers' secrets.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        let printed = key_command::printed_key().map(str::to_owned);
        let keys = self.all_keys().into_iter().chain(given()).chain(printed);
        keys.filter_map(|key| Secret::new(&key)).collect()
    }

    /// The changes that make our environment a child's: the `.env` files' variables, and, unless the key is
    /// to be passed, no key and no vendor's endpoint.
    pub(crate) fn for_child(&self, pass_key: bool) -> Vec<Variable> {
        self.without_reserved(self.variables_of_child(pass_key, Trust::Workspace), None)
    }

    /// Keeps variables from every child but the tools of their MCP server.
    pub(crate) fn reserve(&mut self, server: &str, name: &str) {
        self.reserved.push((server.to_owned(), name.to_owned()));
    }

    /// Changes for a tool, with the workspace's variables; it may be one of an MCP server.
    pub(crate) fn for_tool(&self, pass_key: bool, server: Option<&str>) -> Vec<Variable> {
        self.without_reserved(self.variables_of_child(pass_key, Trust::Tools), server)
    }

    fn without_reserved(
        &self,
        mut variables: Vec<Variable>,
        server: Option<&str>,
    ) -> Vec<Variable> {
        let own = |name: &str| {
            let mut reserved = self.reserved.iter();
            reserved.any(|(of, reserved)| reserved == name && server == Some(of))
        };
        for (_, name) in self.reserved.iter().filter(|(_, name)| !own(name)) {
            variables.retain(|(other, _)| other != name);
            variables.push((name.clone(), None));
        }
        variables
    }

    fn variables_of_child(&self, pass_key: bool, least: Trust) -> Vec<Variable> {
        // In a child's environment a value looks trusted. A sub-agent would send its key to an endpoint that
        // is not, or take a key for its own that the agent wrote into the workspace.
        let may_pass = |name: &str, origin: Trust| match origin {
            Trust::Tools | Trust::Workspace => {
                !SECRET_NAMES.contains(&name) && !ENDPOINT_NAMES.contains(&name)
            }
            Trust::Project => !ENDPOINT_NAMES.contains(&name),
            Trust::Trusted => true,
        };
        let may_pass = |(name, _, origin): &&(String, String, Trust)| {
            *origin >= least && may_pass(name, *origin)
        };
        let passed = self
            .set
            .iter()
            .rev()
            .filter(may_pass)
            .map(|(name, value, _)| (name, value));
        let own = self
            .own
            .iter()
            .map(|(name, value)| (name, value))
            .filter(|(name, _)| self.is_passed_on(name, least));
        // Of one name the last counts: that of the nearest file.
        let mut variables: Vec<Variable> = own
            .chain(passed)
            .map(|(name, value)| (name.clone(), Some(value.clone())))
            .collect();
        if pass_key {
            if given().is_none()
                && self.find(&KEY_NAMES).is_none()
                && let Ok(Some((key, _))) = key_of_command(self.own_is_inside)
            {
                variables.push((KEY_NAMES[0].to_owned(), Some(key)));
            }
            variables.push((KEY_COMMAND.to_owned(), None));
            // The child may have another endpoint, for which another key comes first.
            if let Some(key) = given() {
                variables.push((KEY_NAMES[0].to_owned(), Some(key)));
                variables.push((GIVEN_KEY.to_owned(), None));
            }
            return variables;
        }
        let keys = self.all_keys();
        let is_hidden = |name: &str, value: &str| {
            SECRET_NAMES.contains(&name)
                || self.header_names.iter().any(|header| header == name)
                || ENDPOINT_NAMES[VENDORS..].contains(&name)
                || is_secret(value) && keys.iter().any(|key| key == value)
        };
        variables.retain(|(name, value)| !is_hidden(name, value.as_deref().unwrap_or("")));
        let inherited = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            is_hidden(&name, value.to_str().unwrap_or("")).then_some((name, None))
        });
        variables.extend(inherited);
        variables
    }

    /// True if a variable of the person's file goes into a child's environment: nothing else sets it, and a
    /// `delta` in the child does not read it there itself.
    fn is_passed_on(&self, name: &str, least: Trust) -> bool {
        let is_engines = name.starts_with("DELTA_") && !OWN_NAMES.contains(&name);
        let mut set = self.set.iter();
        let is_in_file = set.any(|(known, _, trust)| known == name && *trust >= least);
        let in_process = std::env::var(name).unwrap_or_default();
        !is_engines && !is_in_file && in_process.trim().is_empty()
    }

    /// Changes for a program that is the model: it gets the keys, and of the endpoints those that its key
    /// may be sent to.
    pub(crate) fn for_model(&self) -> Vec<Variable> {
        let mut variables = self.for_child(true);
        let each = KEY_NAMES.iter();
        let keys = each.filter_map(|name| self.find_trusted(&[name], Trust::Project));
        let given = given().map(|_| Trust::Trusted);
        let Some(key_origin) = keys.map(|(_, origin)| origin).chain(given).max() else {
            return variables;
        };
        for name in ENDPOINT_NAMES {
            if let Some((url, _)) = self.find_trusted(&[name], key_origin) {
                variables.push((name.to_owned(), Some(url)));
            }
        }
        variables
    }

    /// The values of all variables that hold a key, wherever they are set.
    fn all_keys(&self) -> Vec<String> {
        let header_names = self.header_names.iter().map(String::as_str);
        let names = SECRET_NAMES.into_iter().chain(header_names);
        let found = names.flat_map(|name| self.values(name));
        found.map(|found| found.value.trim().to_owned()).collect()
    }
}

fn given() -> Option<String> {
    let key = std::env::var(GIVEN_KEY).ok()?;
    Some(key.trim().to_owned()).filter(|key| !key.is_empty())
}

/// Takes variables that hold keys out of what a child inherits: those of these names, and those that
/// hold the same. `except_own`: a run of an agent keeps the variables that it looks for its key in.
pub(crate) fn without(names: &[&str], except_own: bool) -> Vec<Variable> {
    let values: Vec<String> = names
        .iter()
        .filter_map(|it| std::env::var(it).ok())
        .collect();
    let hides = |name: &str, value: &str| {
        names.contains(&name) || is_secret(value) && values.iter().any(|it| it == value)
    };
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let is_own = except_own && KEY_NAMES.contains(&&*name);
        (!is_own && hides(&name, value.to_str().unwrap_or(""))).then_some((name, None))
    });
    variables.collect()
}

#[cfg(test)]
mod tests;
