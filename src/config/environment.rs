//! The environment: where variables come from, which of them tools see, and which key may be sent
//! where.
//!
//! Unaware of how a model is asked. Variables are looked up in the workspace's `.env`, the agent's,
//! the `.env` beside the nearest `.git` above the agent, the process's environment, and the person's own
//! file; the first that has one wins.
//!
//! Architecture invariant: the API key is only ever inside a [`Secret`], and it is paired with an
//! endpoint here and nowhere else.

mod programs;
mod urls;
mod secret;
mod endpoint;
mod hosts;

pub(crate) use endpoint::{Endpoint, SETUP};
pub(crate) use secret::Secret;
pub(crate) use urls::{is_local, is_loopback, scheme_objection, url_objection, without_secrets};

use crate::config::agent::Agent;
use crate::config::api::Header;
use crate::config::{dotenv, person};
use crate::error::{At, Result};
use crate::text::redaction::{SECRET_NAMES, is_secret};
use crate::unix::files;
use crate::unix::process::Variable;
use programs::decides_what_runs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The largest `.env`.
const LARGEST: u64 = 1 << 20;

/// How deep a process is nested in runs; 0 for one that a person started.
pub(crate) const DEPTH: &str = "DELTA_DEPTH";

/// The key for the endpoint in an agent's files, given by the program that starts a run of it. Read from
/// the process's environment alone, and before all others: those may be for another endpoint.
const GIVEN_KEY: &str = "DELTA_PROVIDER_KEY";

/// The variable that names the model of agents that name none.
pub(crate) const MODEL: &str = "DELTA_MODEL";

/// The variable that lists the hosts that tools may reach without a network, with blanks between. It counts only in the
/// process's environment and the person's own file.
pub(crate) const ALLOW_HOSTS: &str = "DELTA_ALLOW_HOSTS";

/// The variables that can hold the engine's key, for any API. All but the first are vendors'.
pub(crate) const KEY_NAMES: [&str; 3] = ["DELTA_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"];

/// The variables that can hold the engine's endpoint, for any API.
const ENDPOINT_NAMES: [&str; 4] = [
    "DELTA_BASE_URL",
    "OPENAI_BASE_URL",
    "OPENAI_API_URL",
    "ANTHROPIC_BASE_URL",
];

/// Where a value comes from, in order of trust: the agent itself can write the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trust {
    /// The workspace's `.env`.
    Workspace,
    /// The `.env` beside the nearest `.git` above the agent.
    Project,
    /// The agent's files or the process's environment.
    Trusted,
}

/// The variables of a run.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// From `.env` files, each name once.
    set: Vec<(String, String, Trust)>,
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
    /// The environment of an agent that is loaded, in a workspace.
    pub(crate) fn of_agent(agent: &Agent, workspace: Option<&Path>) -> Result<(Self, Vec<String>)> {
        let workspace_env = agent.workspace_env.as_deref();
        let (mut environment, warnings) = Self::read(&agent.home, workspace, workspace_env)?;
        let others = agent.llm.fallback.iter().map(|entry| &entry.llm);
        let all = [&agent.llm].into_iter().chain(others);
        let variables = all.flat_map(|llm| llm.headers.iter().filter_map(Header::variable));
        environment.header_names = variables.map(str::to_owned).collect();
        Ok((environment, warnings))
    }

    /// Reads the `.env` files, and returns warnings about them. `workspace_env` lists what the workspace's
    /// may set, if the agent says so.
    pub(crate) fn read(
        agent_home: &Path,
        workspace: Option<&Path>,
        workspace_env: Option<&[String]>,
    ) -> Result<(Self, Vec<String>)> {
        let mut environment = Self {
            own: person::variables()?,
            own_is_inside: workspace.is_some_and(person::lies_in),
            ..Self::default()
        };
        let mut warnings = Vec::new();
        let project = agent_home.ancestors().find(|dir| dir.join(".git").exists());
        let files = [
            (workspace, Trust::Workspace),
            (Some(agent_home), Trust::Trusted),
            (project, Trust::Project),
        ];
        let mut seen = Vec::new();
        for (dir, origin) in files {
            let Some(path) = dir.map(|dir| dir.join(".env")) else {
                continue;
            };
            // One directory may be all three. Then the file is what the agent can write.
            if seen.contains(&path) {
                continue;
            }
            seen.push(path.clone());
            let shown = path.display();
            let read = match (origin, workspace) {
                (Trust::Workspace, Some(root)) => files::read_within(root, &path, LARGEST),
                _ => files::read_regular_limited(&path, LARGEST).map(Some),
            };
            let text = match read {
                Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
                Ok(None) => {
                    warnings.push(format!(
                        "{shown} is ignored: it is a link out of the workspace"
                    ));
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(e).at("read", &path),
            };
            let (pairs, bad) = dotenv::parse(&text);
            for line in bad {
                warnings.push(format!("{shown}:{}: not NAME=value, ignored", line.0));
            }
            for (name, value) in pairs {
                if let Some(why) = objection(&name, origin, workspace_env) {
                    warnings.push(format!("{shown}: {name} is ignored: {why}"));
                } else if !value.contains('\0') {
                    environment.add(name, value, origin);
                }
            }
        }
        Ok((environment, warnings))
    }

    fn add(&mut self, name: String, value: String, origin: Trust) {
        match self.set.iter_mut().find(|(known, ..)| *known == name) {
            // Within one file the last one counts; between files the first.
            Some(known) if known.2 == origin => known.1 = value,
            Some(_) => {}
            None => self.set.push((name, value, origin)),
        }
    }

    /// The first of these variables that is set and not empty, and where it comes from; of sources that
    /// are trusted at least so much.
    fn find_trusted(&self, names: &[&str], least: Trust) -> Option<(String, Trust)> {
        names.iter().find_map(|name| {
            let in_files = self.set.iter().filter(|(known, ..)| known == name);
            let in_files = in_files.map(|(_, value, origin)| (value.clone(), *origin));
            let in_process = std::env::var(name)
                .ok()
                .map(|value| (value, Trust::Trusted));
            let own = self.own.iter().find(|(known, _)| known == name);
            let trust = match self.own_is_inside {
                true => Trust::Workspace,
                false => Trust::Trusted,
            };
            let own = own.map(|(_, value)| (value.clone(), trust));
            in_files
                .chain(in_process)
                .chain(own)
                .map(|(value, origin)| (value.trim().to_owned(), origin))
                .find(|(value, origin)| !value.is_empty() && *origin >= least)
        })
    }

    fn find(&self, names: &[&str]) -> Option<(String, Trust)> {
        self.find_trusted(names, Trust::Workspace)
    }

    /// The first of these variables that is set, and where.
    fn source_of(&self, names: &[&'static str]) -> Option<String> {
        let name = names.iter().find(|name| self.find(&[name]).is_some())?;
        let in_file = self
            .set
            .iter()
            .find(|(known, value, _)| known == name && !value.trim().is_empty());
        let place = match in_file.map(|(.., origin)| origin) {
            Some(Trust::Workspace) => "the workspace's .env",
            Some(Trust::Project) => "the project's .env",
            Some(Trust::Trusted) => "the agent's .env",
            None => match std::env::var(name) {
                Ok(value) if !value.trim().is_empty() => "the environment",
                _ => return Some(format!("{name} in {}", person::shown_file())),
            },
        };
        Some(format!("{name} in {place}"))
    }

    /// A variable as programs see it, if it is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.find(&[name]).map(|(value, _)| value)
    }

    /// `PATH` for programs, with the directory of this one at its end: a `delta` in a command is found also
    /// where this one was started by its path.
    pub(crate) fn search_path(&self) -> String {
        static OWN: OnceLock<Option<PathBuf>> = OnceLock::new();
        let path = self.get("PATH").unwrap_or_default();
        // Asked once: every program that is started needs it.
        let own = OWN.get_or_init(|| std::env::current_exe().ok());
        let own = own.as_deref().and_then(Path::parent);
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
        let given = given().map(|(key, _)| key);
        let keys = self.all_keys().into_iter().chain(given);
        keys.filter_map(|key| Secret::new(&key)).collect()
    }

    /// The changes that make our environment a child's: the `.env` files' variables, and, unless the key is
    /// to be passed, no key and no vendor's endpoint.
    pub(crate) fn for_child(&self, pass_key: bool) -> Vec<Variable> {
        self.for_child_of(pass_key, None)
    }

    /// Keeps variables from every child but the tools of their MCP server.
    pub(crate) fn reserve(&mut self, server: &str, name: &str) {
        self.reserved.push((server.to_owned(), name.to_owned()));
    }

    /// The same for a tool of an MCP server, if it is one.
    pub(crate) fn for_child_of(&self, pass_key: bool, server: Option<&str>) -> Vec<Variable> {
        let mut variables = self.variables_of_child(pass_key);
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

    fn variables_of_child(&self, pass_key: bool) -> Vec<Variable> {
        // In a child's environment a value looks trusted. A sub-agent would send its key to an endpoint that
        // is not, or take a key for its own that the agent wrote into the workspace.
        let may_pass = |name: &str, origin: Trust| match origin {
            Trust::Workspace => !SECRET_NAMES.contains(&name) && !ENDPOINT_NAMES.contains(&name),
            Trust::Project => !ENDPOINT_NAMES.contains(&name),
            Trust::Trusted => true,
        };
        let passed = self.set.iter();
        let passed = passed.filter(|(name, _, origin)| may_pass(name, *origin));
        let passed = passed.map(|(name, value, _)| (name, value));
        let own = self.own.iter().filter(|(name, _)| self.is_passed_on(name));
        let own = own.map(|(name, value)| (name, value));
        let mut variables: Vec<Variable> = passed
            .chain(own)
            .map(|(name, value)| (name.clone(), Some(value.clone())))
            .collect();
        if pass_key {
            // The child may have another endpoint, for which another key comes first.
            if let Some((key, _)) = given() {
                variables.push((KEY_NAMES[0].to_owned(), Some(key)));
                variables.push((GIVEN_KEY.to_owned(), None));
            }
            return variables;
        }
        let keys = self.all_keys();
        let is_hidden = |name: &str, value: &str| {
            SECRET_NAMES.contains(&name)
                || self.header_names.iter().any(|header| header == name)
                || ENDPOINT_NAMES[1..].contains(&name)
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
    fn is_passed_on(&self, name: &str) -> bool {
        let is_engines =
            name.starts_with("DELTA_") && ![KEY_NAMES[0], "DELTA_BASE_URL"].contains(&name);
        let is_in_file = self.set.iter().any(|(known, ..)| known == name);
        let in_process = std::env::var(name).unwrap_or_default();
        !is_engines && !is_in_file && in_process.trim().is_empty()
    }

    /// The same for a program that is the model: it gets the keys, and of the endpoints those that its key
    /// may be sent to.
    pub(crate) fn for_model(&self) -> Vec<Variable> {
        let mut variables = self.for_child(true);
        let each = KEY_NAMES.iter();
        let keys = each.filter_map(|name| self.find_trusted(&[name], Trust::Project));
        let Some(key_origin) = keys.chain(given()).map(|(_, origin)| origin).max() else {
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
        let in_files = self.set.iter();
        let header_names = self.header_names.iter().map(String::as_str);
        let names: Vec<&str> = SECRET_NAMES.into_iter().chain(header_names).collect();
        let in_files = in_files.filter(|(name, ..)| names.contains(&name.as_str()));
        let in_process = names.iter().filter_map(|name| std::env::var(name).ok());
        let own = self.own.iter();
        let own = own.filter(|(name, _)| names.contains(&name.as_str()));
        let values = in_files.map(|(_, value, _)| value.clone());
        let values = values
            .chain(in_process)
            .chain(own.map(|(_, value)| value.clone()));
        values.map(|value| value.trim().to_owned()).collect()
    }
}

/// Why a `.env` file's variable does not count; none if it does.
fn objection(name: &str, origin: Trust, workspace_env: Option<&[String]>) -> Option<&'static str> {
    let is_own = [KEY_NAMES[0], ENDPOINT_NAMES[0]].contains(&name);
    if name.starts_with("DELTA_") && !is_own {
        return Some(
            "of the variables that begin with DELTA_ a .env file sets only DELTA_API_KEY and \
             DELTA_BASE_URL",
        );
    }
    if origin != Trust::Workspace {
        return None;
    }
    let is_listed = |entry: &String| match entry.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == entry,
    };
    match workspace_env {
        Some(list) => (!list.iter().any(is_listed)).then_some("workspace_env does not list it"),
        None => decides_what_runs(name)
            .then_some("a workspace must not decide which program runs or whom it trusts"),
    }
}

fn given() -> Option<(String, Trust)> {
    let key = std::env::var(GIVEN_KEY).ok()?;
    let key = key.trim();
    (!key.is_empty()).then(|| (key.to_owned(), Trust::Trusted))
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
