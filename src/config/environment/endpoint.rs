//! The endpoint of requests, and the key that may be sent there.

use super::key_command::key_of_command;
use super::urls::{find_proxy, host_of, is_loopback, url_objection, without_secrets};
use super::{DEPTH, Environment, KEY_NAMES, Located, Trust, WORKSPACE_FILE, given};
use super::{Secret, key_objection};
use crate::config::agent::{Fallback, Llm};
use crate::config::api::{Api, Header, HeaderValue, without_slash};
use crate::config::person;
use crate::error::{Error, Result};
use crate::unix::doors::Upstream;

/// An endpoint and its key.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub api: Api,
    /// Without a slash at its end.
    pub base_url: String,
    /// The key to send, if there is one.
    pub key: Option<Secret>,
    /// Headers beside that of the key.
    pub headers: Vec<(String, Secret)>,
    /// The key and the secrets among the headers.
    pub secrets: Vec<Secret>,
    /// The variable that holds the key, and where it is set, for messages.
    pub key_source: Option<String>,
    /// The key is one that the workspace's `.env` has and nothing else.
    pub is_workspaces_key: bool,
    /// The proxy on the way.
    pub proxy: Option<Box<Upstream>>,
}

impl Endpoint {
    /// The base URL for messages, without its query.
    pub(crate) fn shown(&self) -> String {
        without_secrets(&self.base_url)
    }
}

impl Environment {
    /// The endpoint, and the key if it may be sent there.
    ///
    /// # Errors
    /// There is no key for an endpoint that is not on this machine; or the endpoint comes from a
    /// source that is trusted less than the key's.
    pub(crate) fn endpoint(
        &self,
        api: Api,
        from_agent: Option<&str>,
        headers: &[Header],
    ) -> Result<Endpoint> {
        let place = self.base_url(api, from_agent)?;
        let mut key = self.find_key(api, &place);
        // What is trusted less gets no key of the person, who comes before the workspace.
        let is_open = key.as_ref().is_none_or(|key| key.trust == Trust::Tools);
        if is_open && place.1 == Trust::Trusted && !headers.iter().any(Header::is_key) {
            let printed = key_of_command(self.own_is_inside)?.map(|(value, source)| Located {
                value,
                trust: Trust::Trusted,
                source,
            });
            key = printed.or(key);
        }
        self.endpoint_with(api, place.0, place.1, from_agent.is_some(), key, headers)
    }

    /// An endpoint of a model asked in place of the first, `main`. It gets the key that it names, that of the first at
    /// the first's endpoint, and a vendor's key at the vendor's.
    pub(crate) fn fallback_endpoint(&self, entry: &Fallback, main: &Llm) -> Result<Endpoint> {
        let llm = &entry.llm;
        let place = self.base_url(llm.api, llm.base_url.as_deref())?;
        let of_main = self.base_url(main.api, main.base_url.as_deref());
        let is_mains = main.command.is_none() && of_main.is_ok_and(|(url, _)| url == place.0);
        let key = match (&entry.key, vendors_key(&place.0)) {
            (Some(name), _) => self.locate(&[name], Trust::Workspace),
            (None, _) if is_mains => self.find_key(main.api, &place),
            (None, vendors) => vendors.and_then(|name| self.locate(&[name], Trust::Workspace)),
        };
        if key.is_none() && !llm.headers.iter().any(Header::is_key) && !is_loopback(&place.0) {
            let name = entry.key.as_deref().or(vendors_key(&place.0));
            let way_out = match name {
                Some(name) => format!("set {name}"),
                None => "name its variable (key: NAME)".to_owned(),
            };
            let url = without_secrets(&place.0);
            return Err(Error::config(format!("no key for {url}; {way_out}")));
        }
        self.endpoint_with(llm.api, place.0, place.1, true, key, &llm.headers)
    }

    /// The host of a model's endpoint, in lower case; none for a program, and for a URL that cannot be used.
    pub(crate) fn host_of(&self, llm: &Llm) -> Option<String> {
        let open = Some(llm).filter(|llm| llm.command.is_none())?;
        let (url, _) = self.base_url(open.api, open.base_url.as_deref()).ok()?;
        Some(host_of(&url).to_ascii_lowercase())
    }

    /// True if the environment chooses where the model is asked.
    pub(crate) fn chooses_endpoint(&self, llm: &Llm) -> bool {
        let is_open = llm.base_url.is_none() && llm.command.is_none();
        is_open && self.find(llm.api.url_names()).is_some()
    }

    fn endpoint_with(
        &self,
        api: Api,
        base_url: String,
        url_origin: Trust,
        is_agents: bool,
        key: Option<Located>,
        headers: &[Header],
    ) -> Result<Endpoint> {
        let stands_in = headers.iter().any(Header::is_key);
        let key = key.filter(|_| !stands_in);
        let headers = self.header_values(headers, url_origin)?;
        let key_origin = key.as_ref().map(|key| key.trust);
        let in_headers = headers.iter().filter_map(|(.., origin)| *origin);
        let mut all = in_headers.chain(key_origin);
        let is_workspaces_key = all.clone().any(|origin| origin == Trust::Tools);
        let is_too_far = all.any(|origin| url_origin < origin);
        let has_own = key_origin == Some(Trust::Workspace) || stands_in && key_origin.is_none();
        let names = api.url_names();
        let mut set = self.set.iter();
        let is_in_files = set.any(|(name, ..)| names.contains(&name.as_str()));
        // The person's own file may name a server that takes no key, wherever it lies.
        let needs_own = url_origin == Trust::Workspace && is_in_files;
        if needs_own && !has_own || is_too_far {
            return Err(no_own_key(&base_url, url_origin, is_in_files));
        }
        if key.is_none() && !stands_in && !is_loopback(&base_url) {
            return Err(no_key(api, &base_url, is_agents));
        }
        if let Some(found) = &key
            && let Some(why) = key_objection(&found.value)
        {
            let source = &found.source;
            return Err(Error::config(format!("{source}: {why}")));
        }
        let secret_headers = headers
            .iter()
            .filter(|(.., origin)| origin.is_some())
            .map(|(_, value, _)| value.clone());
        let own_key = key.as_ref().map(|key| Secret::of(key.value.clone()));
        Ok(Endpoint {
            api,
            proxy: find_proxy(&base_url)?.map(Box::new),
            secrets: own_key.clone().into_iter().chain(secret_headers).collect(),
            key_source: key.map(|key| key.source),
            is_workspaces_key,
            key: own_key,
            headers: headers
                .into_iter()
                .map(|(name, value, _)| (name, value))
                .collect(),
            base_url,
        })
    }

    /// True if a model is asked at `OpenAI`'s own endpoint.
    pub(crate) fn is_openai(&self, llm: &Llm) -> bool {
        let url = self.base_url(llm.api, llm.base_url.as_deref());
        let is_own = url.is_ok_and(|(url, _)| is_openais(&url));
        llm.api != Api::Messages && llm.command.is_none() && is_own
    }

    /// The URL that requests go below, without a slash at its end, and where it comes from.
    pub(crate) fn base_url(&self, api: Api, from_agent: Option<&str>) -> Result<(String, Trust)> {
        let (url, origin) = match from_agent {
            Some(url) => (url.to_owned(), Trust::Trusted),
            None => match (self.find(api.url_names()), self.refused_server(api)) {
                (Some(found), _) => found,
                (None, Some((name, url))) => return Err(refused(name, url)),
                (None, None) => (api.public_endpoint().to_owned(), Trust::Trusted),
            },
        };
        let url = without_slash(&url);
        let Some(why) = url_objection(&url) else {
            return Ok((url, origin));
        };
        let source = self
            .endpoint_source(api)
            .filter(|_| from_agent.is_none())
            .map_or_else(String::new, |source| format!(" ({source})"));
        Err(Error::config(format!(
            "the base URL '{}'{source} cannot be used: {why}",
            without_secrets(&url)
        )))
    }

    /// The key for an endpoint of an API. At the vendor's own endpoint the vendor's variable comes first, so that no vendor
    /// gets another's key.
    fn find_key(&self, api: Api, place: &(String, Trust)) -> Option<Located> {
        let given = given().map(|value| Located {
            value,
            trust: Trust::Trusted,
            source: "the key of the flow's provider".to_owned(),
        });
        given.or_else(|| self.find_key_named(&key_names(api, &place.0), place.1))
    }

    /// The first of these variables for an endpoint from this source. What only the workspace's `.env` sets counts if the
    /// endpoint comes from elsewhere.
    fn find_key_named(&self, names: &[&str], of_url: Trust) -> Option<Located> {
        let found = self.locate(names, Trust::Workspace);
        let alone = || self.locate(names, Trust::Tools);
        found.or_else(|| alone().filter(|_| of_url > Trust::Workspace))
    }

    /// The variable that the endpoint comes from, and where it is set.
    pub(crate) fn endpoint_source(&self, api: Api) -> Option<String> {
        let found = self.locate(api.url_names(), Trust::Workspace)?;
        Some(found.source)
    }

    /// The headers with their values; those from a variable with where that is set.
    fn header_values(
        &self,
        headers: &[Header],
        of_url: Trust,
    ) -> Result<Vec<(String, Secret, Option<Trust>)>> {
        let values = headers.iter().map(|header| {
            let (value, origin) = match &header.value {
                HeaderValue::Text(text) => {
                    let origin = header.is_key().then_some(Trust::Trusted);
                    (text.clone(), origin)
                }
                HeaderValue::Variable(name) => {
                    let found = if header.is_key() {
                        self.find_key_named(&[name], of_url)
                    } else {
                        self.locate(&[name], Trust::Workspace)
                    };
                    let found = found.ok_or_else(|| {
                        let header = &header.name;
                        let why = match self.locate(&[name], Trust::Tools) {
                            Some(found) => format!("{} is for tools alone", found.source),
                            None => format!("the variable {name} is not set"),
                        };
                        Error::config(format!("llm.headers: {header}: {why}"))
                    })?;
                    (found.value.trim().to_owned(), Some(found.trust))
                }
            };
            if ureq::http::HeaderValue::from_str(&value).is_err() {
                let name = &header.name;
                return Err(Error::config(format!(
                    "llm.headers: {name}: its value has characters that no header can have"
                )));
            }
            Ok((header.name.clone(), Secret::of(value), origin))
        });
        values.collect()
    }
}

/// True in a process that a tool of another run started.
fn is_nested() -> bool {
    let depth = std::env::var(DEPTH).unwrap_or_default();
    depth.trim().parse::<u32>().is_ok_and(|depth| depth > 0)
}

/// True for a URL at `OpenAI`, whose regions have hosts of their own.
fn is_openais(url: &str) -> bool {
    vendors_key(url) == Some(Api::Responses.key_name())
}

/// The variable for the key of a vendor, at a public endpoint of it.
fn vendors_key(url: &str) -> Option<&'static str> {
    let host = url
        .strip_prefix("https://")
        .map(host_of)?
        .to_ascii_lowercase();
    let vendors = [Api::Responses, Api::Messages];
    let is_vendors = |api: &Api| {
        let own = host_of(api.public_endpoint());
        host.strip_suffix(own)
            .is_some_and(|region| region.is_empty() || region.ends_with('.'))
    };
    vendors.into_iter().find(is_vendors).map(Api::key_name)
}

/// The variables for the key of an endpoint, the one that wins first.
pub(crate) fn key_names(api: Api, base_url: &str) -> [&'static str; 2] {
    let (own, vendors) = (KEY_NAMES[0], api.key_name());
    if base_url == api.public_endpoint() {
        [vendors, own]
    } else {
        [own, vendors]
    }
}

/// The error of an endpoint that only a key from the same source may be sent to.
fn no_own_key(base_url: &str, url_origin: Trust, is_in_files: bool) -> Error {
    let whose = match url_origin {
        Trust::Workspace if !is_in_files => {
            format!("{}, which is inside the workspace,", person::shown_file())
        }
        Trust::Tools | Trust::Workspace => WORKSPACE_FILE.to_owned(),
        Trust::Project | Trust::Trusted => "the project's .env".to_owned(),
    };
    Error::config(format!(
        "{whose} sends requests to {base_url} without a key of its own; a key from elsewhere \
         is not sent there: put the key beside it, or the base URL into agent.yaml or the environment"
    ))
}

/// The error of a server that only the workspace's `.env` names.
fn refused(name: &str, url: &str) -> Error {
    Error::config(format!(
        "{WORKSPACE_FILE} names the server {} ({name}), but a workspace does not decide where a conversation goes: put the \
         line into {} or the agent's .env, set it in the environment, or allow it with DELTA_WORKSPACE_ENV={name}; or \
         delete it",
        without_secrets(url),
        person::shown_file()
    ))
}

/// The command that chooses endpoint, key and model, on a line of its own, to be pasted.
pub(crate) const SETUP: &str = "delta setup";

fn no_key(api: Api, base_url: &str, is_agents: bool) -> Error {
    let [name, other] = key_names(api, base_url);
    let any = if base_url == api.public_endpoint() {
        ""
    } else {
        " (to any word if the server asks for none)"
    };
    let way_out = if is_nested() {
        "say pass_api_key: true of the tool that starts this run, so that it gets the key"
            .to_owned()
    } else if is_agents {
        format!("agent.yaml names it: set {name}{any}, or {other}")
    } else {
        format!(
            "set {name} or {other}{any}; or name a local server (DELTA_BASE_URL, or base_url under llm) or a program \
             (llm.command); or choose an endpoint, a key and a model with the next line:\n{SETUP}"
        )
    };
    Error::config(format!("no key for {base_url}; {way_out}"))
}
