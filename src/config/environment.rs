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
use crate::unix::files;
use crate::unix::process::Variable;
use programs::decides_what_runs;
use std::fmt;
use std::path::Path;

/// The endpoint if nothing says another.
pub(crate) const PUBLIC_ENDPOINT: &str = "https://api.openai.com/v1";

const KEY_NAMES: [&str; 2] = ["DELTA_API_KEY", "OPENAI_API_KEY"];
/// The key for the endpoint in an agent's files, given by whoever starts a run of it. It is looked for in
/// the process's environment alone, and before all others: those may be for another endpoint.
const GIVEN_KEY: &str = "DELTA_PROVIDER_KEY";

const URL_NAMES: [&str; 3] = ["DELTA_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_URL"];

/// Where a value comes from, in order of trust: the agent itself can write the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
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
        let needle = self.0.as_bytes();
        if !is_secret(&self.0) {
            return;
        }
        if memchr::memmem::find(bytes, needle).is_none() {
            return;
        }
        let mut clean = Vec::with_capacity(bytes.len());
        let mut from = 0;
        for at in memchr::memmem::find_iter(bytes, needle) {
            clean.extend_from_slice(&bytes[from..at]);
            clean.extend_from_slice(b"[redacted]");
            from = at + needle.len();
        }
        clean.extend_from_slice(&bytes[from..]);
        *bytes = clean;
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
}

/// The variables of a run.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// From `.env` files, each name once.
    set: Vec<(String, String, Origin)>,
}

impl Environment {
    /// Reads the `.env` files. Returns warnings about them too.
    pub(crate) fn read(agent_home: &Path, workspace: Option<&Path>) -> Result<(Self, Vec<String>)> {
        let mut environment = Self::default();
        let mut warnings = Vec::new();
        let project = agent_home.ancestors().find(|dir| dir.join(".git").exists());
        let files = [
            (workspace, Origin::Workspace),
            (Some(agent_home), Origin::Trusted),
            (project, Origin::Project),
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
            let (pairs, bad) = dotenv::parse(&text);
            for line in bad {
                warnings.push(format!(
                    "{}:{}: not NAME=value, passed over",
                    path.display(),
                    line.0
                ));
            }
            for (name, value) in pairs {
                if origin == Origin::Workspace && decides_what_runs(&name) {
                    let path = path.display();
                    warnings.push(format!(
                        "{path}: {name} is passed over: a workspace does not decide which program runs, \
                         or whom it trusts"
                    ));
                } else if !value.contains('\0') {
                    environment.add(name, value, origin);
                }
            }
        }
        Ok((environment, warnings))
    }

    fn add(&mut self, name: String, value: String, origin: Origin) {
        match self.set.iter_mut().find(|(known, ..)| *known == name) {
            // Within one file the last one counts; between files the first.
            Some(known) if known.2 == origin => known.1 = value,
            Some(_) => {}
            None => self.set.push((name, value, origin)),
        }
    }

    /// The first of these variables that is set and not empty, and where it comes from.
    fn find(&self, names: &[&str]) -> Option<(String, Origin)> {
        names.iter().find_map(|name| {
            let in_files = self.set.iter().filter(|(known, ..)| known == name);
            let in_files = in_files.map(|(_, value, origin)| (value.clone(), *origin));
            let in_process = std::env::var(name)
                .ok()
                .map(|value| (value, Origin::Trusted));
            in_files
                .chain(in_process)
                .map(|(value, origin)| (value.trim().to_owned(), origin))
                .find(|(value, _)| !value.is_empty())
        })
    }

    /// The key and where it comes from.
    fn find_key(&self) -> Option<(String, Origin)> {
        given().or_else(|| self.find(&KEY_NAMES))
    }

    /// A variable as programs see it, if it is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.find(&[name]).map(|(value, _)| value)
    }

    /// The API key, if there is one, for whoever must keep it out of something.
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
            Some(url) => (url.to_owned(), Origin::Trusted),
            None => self
                .find(&URL_NAMES)
                .unwrap_or_else(|| (PUBLIC_ENDPOINT.to_owned(), Origin::Trusted)),
        };
        let base_url = base_url.trim_end_matches('/').to_owned();
        if let Some(why) = unusable(&base_url) {
            let shown = without_secrets(&base_url);
            return Err(Error::config(format!(
                "the base URL '{shown}' cannot be used: {why}"
            )));
        }
        let key = self.find_key();
        let key_origin = key.as_ref().map(|key| key.1);
        if url_origin == Origin::Workspace && key_origin != Some(Origin::Workspace)
            || key_origin.is_some_and(|key_origin| url_origin < key_origin)
        {
            let whose = if url_origin == Origin::Workspace {
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
            return Err(Error::config(format!(
                "no key for {base_url}; there are three ways out: set DELTA_API_KEY; name a server on \
                 this machine with DELTA_BASE_URL or llm.base_url; or make a program the model with llm.command"
            )));
        }
        let header = |key: &(String, Origin)| ureq::http::HeaderValue::from_str(&key.0).is_ok();
        if key.as_ref().is_some_and(|key| !header(key)) {
            return Err(Error::config(
                "the API key has characters that no key can have",
            ));
        }
        Ok(Endpoint {
            base_url,
            key: key.map(|key| Secret(key.0)),
        })
    }

    /// What a child's environment differs in from ours: the `.env` files' variables, and no API key
    /// unless it is to be passed.
    pub(crate) fn for_child(&self, pass_key: bool) -> Vec<Variable> {
        // In a child's environment a value looks trusted: an endpoint that is not must not get there,
        // or a sub-agent would send its key to it.
        let may_pass = |name: &str, origin: Origin| {
            name != GIVEN_KEY && (origin == Origin::Trusted || !URL_NAMES.contains(&name))
        };
        let mut variables: Vec<Variable> = self
            .set
            .iter()
            .filter(|(name, _, origin)| may_pass(name, *origin))
            .map(|(name, value, _)| (name.clone(), Some(value.clone())))
            .collect();
        if pass_key {
            // Whoever gets it may have another endpoint, for which another key comes first.
            if let Some((key, _)) = given() {
                variables.push((KEY_NAMES[0].to_owned(), Some(key)));
                variables.push((GIVEN_KEY.to_owned(), None));
            }
        } else {
            let keys = [given(), self.find(&KEY_NAMES)];
            let holds_key = |name: &str, value: &str| {
                KEY_NAMES.contains(&name)
                    || name == GIVEN_KEY
                    || is_secret(value) && keys.iter().flatten().any(|key| key.0 == value)
            };
            variables.retain(|(name, value)| !holds_key(name, value.as_deref().unwrap_or("")));
            for (name, value) in std::env::vars_os() {
                if let Some(name) = name.to_str()
                    && holds_key(name, value.to_str().unwrap_or(""))
                {
                    variables.push((name.to_owned(), None));
                }
            }
        }
        variables
    }

    /// The same for a program that is the model: it gets the key, and of the endpoints those that the
    /// key may be sent to.
    pub(crate) fn for_model(&self) -> Vec<Variable> {
        let mut variables = self.for_child(true);
        let key = self.find_key().map(|(_, origin)| origin);
        for name in URL_NAMES {
            if let Some((url, origin)) = self.find(&[name])
                && key.is_some_and(|key| origin >= key)
            {
                variables.push((name.to_owned(), Some(url)));
            }
        }
        variables
    }
}

fn given() -> Option<(String, Origin)> {
    let key = std::env::var(GIVEN_KEY).ok()?;
    let key = key.trim();
    (!key.is_empty()).then(|| (key.to_owned(), Origin::Trusted))
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

/// Whether a key is one, and not a word that stands in for it where a local server wants any: such a
/// word may occur in every text.
fn is_secret(key: &str) -> bool {
    let looks_random = key.starts_with("sk-") || key.bytes().any(|byte| byte.is_ascii_digit());
    key.len() >= 16 || key.len() >= 8 && looks_random
}

/// Why a base URL cannot be used, if it cannot.
pub(crate) fn unusable(url: &str) -> Option<&'static str> {
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

/// Whether a URL's host is this machine.
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
