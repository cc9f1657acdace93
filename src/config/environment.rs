//! The environment: where variables come from, which of them tools see, and which key may be sent
//! where.
//!
//! Unaware of how a model is asked. Variables are looked up in the workspace's `.env`, the agent's,
//! the `.env` beside the nearest `.git` above the agent, and the process's environment; the first
//! that has one wins.
//!
//! Architecture invariant: the API key is only ever inside a [`Secret`], and it is paired with an
//! endpoint here and nowhere else.

mod programs;

use crate::config::dotenv;
use crate::error::{Error, Result};
use crate::text::redaction::{self, SECRET_NAMES, is_secret};
use crate::unix::files;
use crate::unix::process::Variable;
use programs::decides_what_runs;
use std::fmt;
use std::path::Path;

/// The endpoint if nothing says another.
pub(crate) const PUBLIC_ENDPOINT: &str = "https://api.openai.com/v1";

/// How deep a process is nested in runs; 0 for one that a person started.
pub(crate) const DEPTH: &str = "DELTA_DEPTH";

/// The key for the endpoint in an agent's files, given by the program that starts a run of it. Read from
/// the process's environment alone, and before all others: those may be for another endpoint.
const GIVEN_KEY: &str = "DELTA_PROVIDER_KEY";

/// The variables that the engine looks for its key in.
const KEY_NAMES: [&str; 2] = ["DELTA_API_KEY", "OPENAI_API_KEY"];

/// The variables that the engine looks for its endpoint in. Only the first is no vendor's.
const URL_NAMES: [&str; 3] = ["DELTA_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_URL"];

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

/// An API key. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// A key from somewhere else than the variables that hold one; none if it is empty, or has characters
    /// that no key can have.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_key = !text.is_empty() && ureq::http::HeaderValue::from_str(text).is_ok();
        is_key.then(|| Self(text.to_owned()))
    }

    /// The variable with which a run of an agent gets it for the endpoint in the agent's files.
    pub(crate) fn given(&self) -> Variable {
        (GIVEN_KEY.to_owned(), Some(self.0.clone()))
    }

    /// The key itself, for the header in which it is sent.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Takes the key out of something that came from outside.
    pub(crate) fn redact(&self, bytes: &mut Vec<u8>) {
        if is_secret(&self.0)
            && let Some(clean) = redaction::redact(bytes, &self.0)
        {
            *bytes = clean;
        }
    }

    /// The same for a text.
    pub(crate) fn redact_text(&self, text: &mut String) {
        let mut bytes = std::mem::take(text).into_bytes();
        self.redact(&mut bytes);
        *text = String::from_utf8_lossy(&bytes).into_owned();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Where requests go, and with which key.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// Without a slash at its end.
    pub base_url: String,
    /// The key to send, if there is one.
    pub key: Option<Secret>,
    /// The variable that holds the key, and where it is set, for messages.
    pub key_source: Option<String>,
}

/// The variables of a run.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// From `.env` files, each name once.
    set: Vec<(String, String, Trust)>,
}

impl Environment {
    /// Reads the `.env` files, and returns warnings about them. `workspace_env` lists what the workspace's
    /// may set, if the agent says so.
    pub(crate) fn read(
        agent_home: &Path,
        workspace: Option<&Path>,
        workspace_env: Option<&[String]>,
    ) -> Result<(Self, Vec<String>)> {
        let mut environment = Self::default();
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
            let Some(text) = files::read_lossy(&path)? else {
                continue;
            };
            let shown = path.display();
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
            in_files
                .chain(in_process)
                .map(|(value, origin)| (value.trim().to_owned(), origin))
                .find(|(value, origin)| !value.is_empty() && *origin >= least)
        })
    }

    fn find(&self, names: &[&str]) -> Option<(String, Trust)> {
        self.find_trusted(names, Trust::Workspace)
    }

    /// The key and where it comes from.
    fn find_key(&self) -> Option<(String, Trust)> {
        given().or_else(|| self.find(&KEY_NAMES))
    }

    /// The variable that the key comes from, and where it is set.
    fn key_source(&self) -> String {
        if given().is_some() {
            return "the key of the flow's provider".to_owned();
        }
        let name = KEY_NAMES
            .into_iter()
            .find(|name| self.find(&[name]).is_some());
        let name = name.unwrap_or(KEY_NAMES[0]);
        let in_file = self.set.iter().find(|(known, ..)| known == name);
        let place = match in_file.map(|(.., origin)| origin) {
            Some(Trust::Workspace) => "the workspace's .env",
            Some(Trust::Project) => "the project's .env",
            Some(Trust::Trusted) => "the agent's .env",
            None => "the environment",
        };
        format!("{name} in {place}")
    }

    /// A variable as programs see it, if it is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.find(&[name]).map(|(value, _)| value)
    }

    /// The API key, if there is one, for callers that must remove it from texts.
    pub(crate) fn key(&self) -> Option<Secret> {
        self.find_key().map(|(key, _)| Secret(key))
    }

    /// The endpoint, and the key if it may be sent there.
    ///
    /// # Errors
    /// There is no key for an endpoint that is not on this machine; or the endpoint comes from a
    /// source that is trusted less than the key's.
    pub(crate) fn endpoint(&self, from_agent: Option<&str>) -> Result<Endpoint> {
        let (base_url, url_origin) = match from_agent {
            Some(url) => (url.to_owned(), Trust::Trusted),
            None => self
                .find(&URL_NAMES)
                .unwrap_or_else(|| (PUBLIC_ENDPOINT.to_owned(), Trust::Trusted)),
        };
        let base_url = base_url.trim_end_matches('/').to_owned();
        if let Some(why) = url_objection(&base_url) {
            let shown = without_secrets(&base_url);
            return Err(Error::config(format!(
                "the base URL '{shown}' cannot be used: {why}"
            )));
        }
        let key = self.find_key();
        let key_origin = key.as_ref().map(|key| key.1);
        if url_origin == Trust::Workspace && key_origin != Some(Trust::Workspace)
            || key_origin.is_some_and(|key_origin| url_origin < key_origin)
        {
            let whose = if url_origin == Trust::Workspace {
                "the workspace's .env"
            } else {
                "the project's .env"
            };
            return Err(Error::config(format!(
                "{whose} sends requests to {base_url} without a key of its own; a key from elsewhere \
                 is not sent there: put the key beside it, or the base URL into agent.yaml or the environment"
            )));
        }
        if key.is_none() && !is_loopback(&base_url) {
            let way_out = if is_nested() {
                "say pass_api_key: true of the tool that starts this run, so that it gets the key"
            } else {
                "set DELTA_API_KEY, or DELTA_BASE_URL for a local server, or llm.command"
            };
            return Err(Error::config(format!("no key for {base_url}; {way_out}")));
        }
        let header = |key: &(String, Trust)| ureq::http::HeaderValue::from_str(&key.0).is_ok();
        if key.as_ref().is_some_and(|key| !header(key)) {
            return Err(Error::config(
                "the API key has characters that no key can have",
            ));
        }
        Ok(Endpoint {
            base_url,
            key_source: key.is_some().then(|| self.key_source()),
            key: key.map(|key| Secret(key.0)),
        })
    }

    /// The changes that make our environment a child's: the `.env` files' variables, and, unless the key is
    /// to be passed, no key and no vendor's endpoint.
    pub(crate) fn for_child(&self, pass_key: bool) -> Vec<Variable> {
        // In a child's environment a value looks trusted. A sub-agent would send its key to an endpoint that
        // is not, or take a key for its own that the agent wrote into the workspace.
        let may_pass = |name: &str, origin: Trust| match origin {
            Trust::Workspace => !SECRET_NAMES.contains(&name) && !ENDPOINT_NAMES.contains(&name),
            Trust::Project => !ENDPOINT_NAMES.contains(&name),
            Trust::Trusted => true,
        };
        let passed = self.set.iter();
        let passed = passed.filter(|(name, _, origin)| may_pass(name, *origin));
        let mut variables: Vec<Variable> = passed
            .map(|(name, value, _)| (name.clone(), Some(value.clone())))
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

    /// The same for a program that is the model: it gets the keys, and of the endpoints those that its key
    /// may be sent to.
    pub(crate) fn for_model(&self) -> Vec<Variable> {
        let mut variables = self.for_child(true);
        let key = given().or_else(|| self.find_trusted(&KEY_NAMES, Trust::Project));
        let Some((_, key_origin)) = key else {
            return variables;
        };
        for name in URL_NAMES {
            if let Some((url, _)) = self.find_trusted(&[name], key_origin) {
                variables.push((name.to_owned(), Some(url)));
            }
        }
        variables
    }

    /// The values of all variables that hold a key, wherever they are set.
    fn all_keys(&self) -> Vec<String> {
        let in_files = self.set.iter();
        let in_files = in_files.filter(|(name, ..)| SECRET_NAMES.contains(&name.as_str()));
        let in_process = SECRET_NAMES
            .iter()
            .filter_map(|name| std::env::var(name).ok());
        let values = in_files.map(|(_, value, _)| value.clone());
        let values = values.chain(in_process);
        values.map(|value| value.trim().to_owned()).collect()
    }
}

/// Why a `.env` file's variable does not count; none if it does.
fn objection(name: &str, origin: Trust, workspace_env: Option<&[String]>) -> Option<&'static str> {
    let is_own = [KEY_NAMES[0], URL_NAMES[0]].contains(&name);
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

/// True in a process that a tool of another run started.
fn is_nested() -> bool {
    let depth = std::env::var(DEPTH).ok();
    depth.is_some_and(|depth| depth.trim().parse::<u32>().is_ok_and(|depth| depth > 0))
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

/// Why a base URL with the path of requests in it cannot be used.
pub(crate) const APPENDED_PATH: &str =
    "it ends in /chat/completions, which is appended to it; omit that";

pub(crate) fn has_appended_path(url: &str) -> bool {
    url.trim_end_matches('/').ends_with("/chat/completions")
}

/// Why a base URL cannot be used, if it cannot.
pub(crate) fn url_objection(url: &str) -> Option<&'static str> {
    let uri: ureq::http::Uri = match url.parse() {
        Ok(uri) => uri,
        Err(_) => return Some("it is not a URL"),
    };
    let authority = uri.authority().map(ureq::http::uri::Authority::as_str);
    match (uri.scheme_str(), authority) {
        (Some("http" | "https"), Some(authority)) if authority.contains('@') => {
            Some("it holds credentials; put the key into DELTA_API_KEY")
        }
        (Some("http" | "https"), Some(_)) if uri.query().is_some() => Some("it has a query"),
        (Some("http" | "https"), Some(_)) if has_appended_path(url) => Some(APPENDED_PATH),
        (Some("http" | "https"), Some(_)) => None,
        _ => Some("it does not begin with http:// or https://"),
    }
}

/// A URL without its credentials and its query, either of which may hold a key.
pub(crate) fn without_secrets(url: &str) -> String {
    let url = url.split_once('?').map_or(url, |(before, _)| before);
    let scheme = url.find("://").map_or("", |at| &url[..at + 3]);
    match url.rsplit_once('@') {
        Some((_, rest)) => format!("{scheme}…@{rest}"),
        None => url.to_owned(),
    }
}

/// True if a URL's host is this machine.
pub(crate) fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    let host = authority.rsplit('@').next().unwrap_or("");
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests;
