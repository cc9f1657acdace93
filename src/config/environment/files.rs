//! The `.env` files: which of them are read, and which of their variables count.
//!
//! Unaware of keys and endpoints but by the names of their variables. A tool can write the workspace's file, a clone
//! brings one, and other users can put one beside a `.git` of theirs.

use super::programs::{chooses_peers, decides_what_runs};
use super::urls::proxy_warning;
use super::{ENDPOINT_NAMES, Environment, KEY_NAMES, OWN_NAMES, Trust};
use crate::config::agent::Agent;
use crate::config::api::{Api, Header};
use crate::config::{dotenv, person};
use crate::error::{At, Error, Result, is_passing, reason};
use crate::unix::{file_or_pipe, files, writers};
use std::io;
use std::path::Path;

/// The largest `.env`.
const LARGEST: u64 = 1 << 20;

/// The variable with which a person allows what a workspace's `.env` sets: names, with blanks between. It counts only in the
/// process's environment and the person's own file.
const WORKSPACE_ENV: &str = "DELTA_WORKSPACE_ENV";

/// The names that a workspace's file may set for more than tools.
struct Allowed<'a> {
    /// `workspace_env` of the agent.
    by_agent: Option<&'a [String]>,
    /// The agent's files lie outside the workspace, so that its tools cannot have written that list.
    is_outside: bool,
    by_person: Vec<String>,
}

impl Environment {
    /// The environment of an agent that is loaded, in a workspace.
    pub(crate) fn of_agent(agent: &Agent, workspace: Option<&Path>) -> Result<(Self, Vec<String>)> {
        let workspace_env = agent.workspace_env.as_deref();
        let (mut environment, mut warnings) = Self::read(&agent.home, workspace, workspace_env)?;
        let llm = &agent.llm;
        let others = llm.fallback.iter().map(|entry| &entry.llm);
        let all = [llm].into_iter().chain(others);
        let headers = all.clone().flat_map(|llm| &llm.headers);
        let variables = headers.filter_map(Header::variable);
        let keys = llm.fallback.iter().filter_map(|entry| entry.key.as_deref());
        environment.header_names = variables.chain(keys).map(str::to_owned).collect();
        let names: Vec<&str> = environment.refused.iter().map(|it| it.0.as_str()).collect();
        let is_chosen = llm.base_url.is_some() || llm.command.is_some();
        let is_fatal = !is_chosen && environment.refused_server(llm.api).is_some();
        if !names.is_empty() && !is_fatal {
            let shown = workspace.unwrap_or(&agent.home).join(".env");
            let verb = if names.len() == 1 { "is" } else { "are" };
            let (shown, names) = (shown.display(), names.join(", "));
            warnings.push(format!("{shown}: {names} {verb} ignored: {PEERS}"));
        }
        for llm in all.filter(|llm| llm.command.is_none()) {
            let base_url = environment.base_url(llm.api, llm.base_url.as_deref());
            let warning = base_url.ok().and_then(|(url, _)| proxy_warning(&url));
            warnings.extend(warning.filter(|it| !warnings.contains(it)));
        }
        Ok((environment, warnings))
    }

    /// The server that the workspace's `.env` names, and its variable, if nothing that counts names one.
    pub(super) fn refused_server(&self, api: Api) -> Option<&(String, String)> {
        let names = api.url_names();
        let mut refused = self.refused.iter();
        let found = refused.find(|(name, _)| names.contains(&name.as_str()));
        found.filter(|_| self.find(names).is_none())
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
        let by_person = environment
            .find_trusted(&[WORKSPACE_ENV], Trust::Trusted)
            .map(|(names, _)| names)
            .unwrap_or_default();
        let allowed = Allowed {
            by_agent: workspace_env,
            is_outside: workspace.is_some_and(|root| !agent_home.starts_with(root)),
            by_person: by_person.split_whitespace().map(str::to_owned).collect(),
        };
        let mut warnings = Vec::new();
        // An agent that is one file has none.
        let own = Some(agent_home).filter(|home| person::visible_home(home) == *home);
        let mut above = own.into_iter().flat_map(Path::ancestors);
        let project = above.find(|dir| dir.join(".git").exists());
        let of_project = match (project, workspace) {
            // Tools can write there.
            (Some(dir), Some(root)) if dir.starts_with(root) => Trust::Workspace,
            _ => Trust::Project,
        };
        let files = [
            (workspace, Trust::Workspace),
            (own, Trust::Trusted),
            (project, of_project),
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
            match read_file(&path, origin, agent_home, workspace)? {
                Ok(Some(text)) => {
                    environment.add_file(&path, &text, origin, &allowed, &mut warnings);
                }
                Ok(None) => {}
                Err(why) => warnings.push(format!("{} is ignored: {why}", path.display())),
            }
        }
        Ok((environment, warnings))
    }

    /// Adds what a file sets. Within one file the last of a name counts.
    fn add_file(
        &mut self,
        path: &Path,
        text: &str,
        origin: Trust,
        allowed: &Allowed<'_>,
        warnings: &mut Vec<String>,
    ) {
        let (pairs, bad) = dotenv::parse(text);
        let shown = path.display();
        for line in bad {
            warnings.push(format!("{shown}:{}: not NAME=value, ignored", line.0));
        }
        let start = self.set.len();
        for (name, value) in pairs.into_iter().filter(|(_, value)| !value.contains('\0')) {
            let trust = match allowed.trust(&name, origin) {
                Ok(trust) => trust,
                Err(PEERS) => {
                    self.refused.retain(|(known, _)| *known != name);
                    self.refused.push((name, value));
                    continue;
                }
                Err(why) => {
                    warnings.push(format!("{shown}: {name} is ignored: {why}"));
                    continue;
                }
            };
            let mut of_file = self.set[start..].iter_mut();
            match of_file.find(|(known, ..)| *known == name) {
                Some(known) => known.1 = value,
                None => self.set.push((name, value, trust)),
            }
        }
    }
}

const OWN: &str = "of the variables that begin with DELTA_ a .env file sets only DELTA_API_KEY, DELTA_BASE_URL and \
                   DELTA_API";

const PEERS: &str = "a workspace must not decide whom delta and its programs talk to; DELTA_WORKSPACE_ENV, or workspace_env of \
                     an agent outside of it, can allow it";

const UNLISTED: &str = "workspace_env does not list it";

const PROGRAMS: &str = "a workspace must not decide which program runs or whom it trusts";

impl Allowed<'_> {
    /// The trust in a variable of a file, or the reason why it does not count.
    fn trust(&self, name: &str, origin: Trust) -> std::result::Result<Trust, &'static str> {
        if name.starts_with("DELTA_") && !OWN_NAMES.contains(&name) {
            return Err(OWN);
        }
        let is_peer = ENDPOINT_NAMES.contains(&name) || chooses_peers(name);
        let needs_outside = is_peer || KEY_NAMES.contains(&name);
        let is_listed = |list: &[String]| list.iter().any(|entry| is_named(entry, name));
        let by_agent = self.by_agent.map(is_listed);
        let is_allowed = by_agent == Some(true) && (self.is_outside || !needs_outside);
        if origin != Trust::Workspace || is_allowed || is_listed(&self.by_person) {
            Ok(origin)
        } else if is_peer {
            Err(PEERS)
        } else if by_agent == Some(false) {
            Err(UNLISTED)
        } else if decides_what_runs(name) {
            Err(PROGRAMS)
        } else {
            Ok(Trust::Tools)
        }
    }
}

/// True if an entry of a list, a name or a prefix with `*`, names a variable.
fn is_named(entry: &str, name: &str) -> bool {
    match entry.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == entry,
    }
}

/// The text of a `.env`, none if it is not there; or the reason why it is ignored.
fn read_file(
    path: &Path,
    origin: Trust,
    agent_home: &Path,
    workspace: Option<&Path>,
) -> Result<std::result::Result<Option<String>, String>> {
    if origin == Trust::Project
        && let Some(why) = objection(path, agent_home, workspace)
    {
        return Ok(Err(why));
    }
    let read = match (origin, workspace) {
        (Trust::Workspace, Some(root)) => {
            files::read_within(root, path, LARGEST).and_then(|read| {
                read.ok_or_else(|| io::Error::other("it is a link out of the workspace"))
            })
        }
        _ => file_or_pipe::read_once(path, LARGEST),
    };
    match read.if_there() {
        Ok(bytes) => Ok(Ok(
            bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        )),
        Err(e) if is_passing(&e) => Err(e).at("read", path),
        Err(e) if origin != Trust::Trusted => Ok(Err(reason(&e))),
        Err(e) => Err(Error::config(Error::io("read", path, &e).message)),
    }
}

/// The reason why a project's file does not count: others could have written it, or put it there. None without a file.
fn objection(path: &Path, agent_home: &Path, workspace: Option<&Path>) -> Option<String> {
    let trusted = writers::trusted_users(workspace);
    let dir = path.parent()?;
    let git = dir.join(".git");
    let on_way = agent_home.ancestors().take_while(|at| at.starts_with(dir));
    let all = [path, &git].into_iter().chain(on_way);
    let found = writers::objection(all, &trusted).if_there();
    found.map_or_else(|e| Some(reason(&e)), Option::flatten)
}
