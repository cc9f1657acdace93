//! `mcp.yaml` beside agent.yaml: the servers of an agent, by name.

use super::protocol::{LEGACY, MODERN, Outgoing, Reply, Revision};
use crate::config::agent::Problem;
use crate::config::document::Document;
use crate::config::environment::Secret;
use crate::config::section::Section;
use crate::error::{At, Error, Result};
use crate::text::json;
use crate::text::yaml::{self, Step};
use crate::unix::files;
use crate::unix::process::Variable;
use crate::unix::signals::Signals;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The file's name.
pub(crate) const FILE: &str = "mcp.yaml";

/// A server and the way to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Matches `[A-Za-z0-9_-]{1,40}`.
    pub name: String,
    pub reach: Reach,
    /// Variables of its own. Those that they come from reach no tool that is not its own.
    pub env: Vec<(String, Given)>,
    /// Headers of each request to a URL.
    pub headers: Vec<(String, Given)>,
    /// The working directory of its program, from the file's directory; the workspace if it is `None`.
    pub cwd: Option<String>,
    /// The revision that it speaks, if a person has pinned it.
    pub revision: Option<Revision>,
    /// The variable that holds its bearer token.
    pub bearer_env: Option<String>,
    /// True if its tasks outlive its process. Those of a server that is reached by a URL do in any case.
    pub tasks: bool,
}

impl Server {
    pub(crate) fn new(name: &str, reach: Reach) -> Self {
        Self {
            name: name.to_owned(),
            reach,
            env: Vec::new(),
            headers: Vec::new(),
            cwd: None,
            revision: None,
            bearer_env: None,
            tasks: false,
        }
    }

    /// True if a task that it makes can be looked at by another process.
    pub(crate) fn keeps_tasks(&self) -> bool {
        self.tasks || matches!(self.reach, Reach::Url(_))
    }

    /// The variables that only its own tools get.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &String> {
        let given = self.env.iter().chain(&self.headers);
        given
            .filter_map(|(_, given)| match given {
                Given::Variable(name) => Some(name),
                Given::Text(_) | Given::Command(_) => None,
            })
            .chain(&self.bearer_env)
    }

    /// The values of its variables: what it sends back of them is taken out.
    pub(crate) fn secrets(&self) -> Secrets {
        let mut secrets = Secrets::default();
        for value in self.variables().flat_map(std::env::var) {
            secrets.add(&value);
        }
        secrets
    }

    /// The variables of its program, in place of those that have these names.
    ///
    /// # Errors
    /// One of them comes from a variable that is not set.
    pub(crate) fn program_variables(&self) -> Result<Vec<Variable>> {
        let value = |(name, given): &(String, Given)| {
            let value = match given {
                Given::Variable(own) if own == name => std::env::var(name).ok(),
                Given::Variable(other) => Some(variable(&self.name, other)?),
                Given::Text(text) => Some(text.clone()),
                Given::Command(_) => None,
            };
            Ok((name.clone(), value))
        };
        self.env.iter().map(value).collect()
    }
}

/// The value of a variable that a server needs.
pub(crate) fn variable(server: &str, name: &str) -> Result<String> {
    match std::env::var(name) {
        Ok(value) if !value.trim().is_empty() => Ok(value),
        _ => Err(Error::config(format!(
            "{server} needs the variable {name}, which is not set"
        ))),
    }
}

/// The source of a variable's or a header's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Text(String),
    /// A variable of this process.
    Variable(String),
    /// A program that prints it on its first line.
    Command(Vec<String>),
}

/// Secrets that only the server may read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets(Vec<Secret>);

impl Secrets {
    /// Adds a value, and its last word, which is the token after a scheme.
    pub(crate) fn add(&mut self, value: &str) {
        let last = value.rsplit(' ').next();
        let both = [Some(value), last].into_iter().flatten();
        self.0.extend(both.filter_map(Secret::of_variable));
    }

    /// Takes them out of what the server sent.
    pub(crate) fn redact(&self, bytes: &mut Vec<u8>) {
        for secret in &self.0 {
            secret.redact(bytes);
        }
    }
}

/// The way to reach a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// A program that speaks on its standard streams.
    Command(Vec<String>),
    Url(String),
}

/// A server, and what it is started with.
#[derive(Clone)]
pub(crate) struct Launch<'s> {
    pub server: Server,
    /// The directory that its program is found from, if that is a path.
    pub home: PathBuf,
    /// The working directory.
    pub dir: PathBuf,
    pub signals: &'s Arc<Signals>,
}

impl Launch<'_> {
    /// A command with the place of its program, if that is a path.
    pub(super) fn argv(&self, words: &[String]) -> Vec<String> {
        let mut argv = words.to_vec();
        if argv[0].contains('/') {
            argv[0] = self.home.join(&argv[0]).display().to_string();
        }
        argv
    }
}

/// A connection to a server.
pub(super) trait Transport {
    /// Sends a request and waits for its answer. Requests of the server are refused.
    fn exchange(
        &mut self,
        id: u64,
        message: &Outgoing,
        revision: Revision,
        patience: Option<Duration>,
    ) -> Result<Reply>;

    /// Sends a message that needs no answer, and does not wait for one for long.
    fn notify(&mut self, message: &Outgoing, revision: Revision) -> Result<()>;

    /// The status of the last answer over HTTP.
    fn status(&self) -> Option<u16>;

    /// Secrets that are taken out of what it says.
    fn secrets(&self) -> &Secrets;

    fn end(self: Box<Self>);
}

const KEYS: [&str; 8] = [
    "command",
    "url",
    "env",
    "bearer_env",
    "tasks",
    "headers",
    "cwd",
    "revision",
];

/// Headers that a request has by itself.
const OWN_HEADERS: [&str; 6] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

/// The objection to a header that cannot be set.
pub(crate) fn header_objection(name: &str) -> Option<&'static str> {
    let lower = name.to_lowercase();
    if ureq::http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        Some("is not a header's name")
    } else if OWN_HEADERS.contains(&&*lower) || lower.starts_with("mcp-") {
        Some("is set by delta")
    } else {
        None
    }
}

/// True if a server can have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    !name.is_empty() && name.len() <= 40 && !name.starts_with('-') && name.chars().all(is_good)
}

/// All servers of an agent; none if it has no such file.
///
/// # Errors
/// Everything that is wrong with the file.
pub(crate) fn read_servers(home: &Path) -> Result<Vec<Server>> {
    let path = home.join(FILE);
    if matches!(path.symlink_metadata(), Err(e) if e.kind() == ErrorKind::NotFound) {
        return Ok(Vec::new());
    }
    let mut problems = Vec::new();
    let shown = path.display().to_string();
    let document = Document::read(&path, shown, &mut problems);
    let servers = document.map(|document| read_all(&document, &mut problems));
    if problems.is_empty() {
        return Ok(servers.unwrap_or_default());
    }
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    Err(Error::config(lines.join("\n")))
}

fn read_all(document: &Document, problems: &mut Vec<Problem>) -> Vec<Server> {
    let nothing = Map::new();
    let mut servers = Vec::new();
    for (name, entry) in &document.root {
        let map = entry.as_object().unwrap_or(&nothing);
        let section =
            Section::new(map, vec![Step::Key(name.clone())]).about(&format!("server \"{name}\""));
        if entry.is_object() {
            servers.extend(read_server(name, &section));
        } else {
            section.error("", "expected a mapping with command: or url:");
        }
        document.report_all(&[], section.take_diagnostics(), problems);
    }
    servers
}

fn read_server(name: &str, section: &Section) -> Option<Server> {
    // A misspelt key might be the one that keeps a secret.
    section.refuse_unknown_keys(&KEYS);
    if !is_name(name) {
        section.error(
            "",
            "1 to 40 letters, digits, '_' and '-' make a server's name",
        );
    }
    let text = |key: &str| section.read_text(key).map(str::to_owned);
    let texts = |key: &str| -> Option<Vec<String>> {
        Some(
            section
                .read_texts(key)?
                .into_iter()
                .map(str::to_owned)
                .collect(),
        )
    };
    let command = texts("command");
    let url = text("url");
    let env = match section.map.get("env") {
        Some(Value::Object(_)) => read_given("env", section),
        _ => texts("env")
            .into_iter()
            .flatten()
            .map(|name| (name.clone(), Given::Variable(name)))
            .collect(),
    };
    let revision = section.read_text("revision").and_then(|name| {
        let known = Revision::parse(name);
        if known.is_none() {
            let known = LEGACY.join(", ");
            section.error(
                "revision",
                format!("revision: {name:?} is none of {MODERN}, {known}; quote it"),
            );
        }
        known
    });
    let reach = match (command, url) {
        (Some(words), None) if !words.is_empty() => Reach::Command(words),
        (None, Some(url)) => Reach::Url(url),
        _ => {
            return section.refuse("", "needs one of command: and url:");
        }
    };
    let server = Server {
        env,
        headers: read_given("headers", section),
        cwd: text("cwd"),
        revision,
        bearer_env: text("bearer_env"),
        tasks: section.read_flag("tasks").unwrap_or(false),
        ..Server::new(name, reach)
    };
    check(&server, section);
    Some(server)
}

/// Reports keys that do not fit together, and names that cannot be used.
fn check(server: &Server, section: &Section) {
    let wrong = |key: &str, message: String| section.error(key, message);
    let mut seen = BTreeSet::new();
    for (name, _) in &server.headers {
        let twice = !seen.insert(name.to_lowercase());
        if let Some(why) = header_objection(name).or(twice.then_some("is there twice")) {
            wrong("headers", format!("headers: {name:?} {why}"));
        }
    }
    let has_token = server.bearer_env.is_some();
    if has_token && seen.contains("authorization") {
        wrong(
            "headers",
            "headers: bearer_env sets Authorization, too".to_owned(),
        );
    }
    let is_program = matches!(server.reach, Reach::Command(_));
    for (key, needed, is_wrong) in [
        ("headers", "url:", is_program && !seen.is_empty()),
        ("cwd", "command:", !is_program && server.cwd.is_some()),
        (
            "bearer_env",
            "url:; use env: with command:",
            is_program && has_token,
        ),
    ] {
        if is_wrong {
            wrong(key, format!("{key}: needs {needed}"));
        }
    }
    let own = server.env.iter().map(|(name, _)| name);
    for variable in server.variables().chain(own) {
        if variable.is_empty() || variable.contains(['=', '\0']) {
            wrong("env", format!("{variable:?} is not a variable's name"));
        }
    }
}

/// Values by name: a text, the name of a variable or, for headers, a program.
fn read_given(key: &str, section: &Section) -> Vec<(String, Given)> {
    let may_run = key == "headers";
    let read = |value: &Value| {
        if let Some(text) = value.as_str() {
            return (!text.contains('\0')).then(|| Given::Text(text.to_owned()));
        }
        let map = value.as_object().filter(|map| map.len() == 1)?;
        if let Some(name) = map.get("env") {
            return Some(Given::Variable(name.as_str()?.to_owned()));
        }
        let words: Option<Vec<String>> = map
            .get("command")
            .filter(|_| may_run)?
            .as_array()?
            .iter()
            .map(|it| it.as_str().map(str::to_owned))
            .collect();
        words.filter(|words| !words.is_empty()).map(Given::Command)
    };
    let mut all = Vec::new();
    for (name, value) in section.read_mapping(key).into_iter().flatten() {
        if let Some(given) = read(value) {
            all.push((name.clone(), given));
            continue;
        }
        let command = if may_run {
            " or {command: [program, …]}"
        } else {
            ""
        };
        section.error(
            key,
            format!("{key}: {name}: expected a text (quoted), {{env: NAME}}{command}"),
        );
    }
    all
}

/// Writes a server's entry into the file, in place of the one that has its name. The comments of the
/// other entries stay.
pub(crate) fn write_server(home: &Path, server: &Server) -> Result<()> {
    let path = home.join(FILE);
    let before = files::read_text(&path).if_there().at("read", &path)?;
    let entry = with_entry(&before.unwrap_or_default(), server);
    files::replace_shared(&path, entry.as_bytes())
}

fn write_given(all: &[(String, Given)]) -> Option<Map<String, Value>> {
    let value = |(name, given): &(String, Given)| {
        let value = match given {
            Given::Text(text) => json!(text),
            Given::Variable(name) => json!({"env": name}),
            Given::Command(words) => json!({"command": words}),
        };
        (name.clone(), value)
    };
    (!all.is_empty()).then(|| all.iter().map(value).collect())
}

fn with_entry(before: &str, server: &Server) -> String {
    let (command, url) = match &server.reach {
        Reach::Command(words) => (Some(words), None),
        Reach::Url(url) => (None, Some(url)),
    };
    let is_own = |(name, given): &(String, Given)| *given == Given::Variable(name.clone());
    let env = if !server.env.is_empty() && server.env.iter().all(is_own) {
        server.env.iter().map(|(name, _)| &**name).collect()
    } else {
        json!(write_given(&server.env))
    };
    let entry = json::without_nulls(json!({
        "command": command,
        "url": url,
        "env": env,
        "headers": write_given(&server.headers),
        "cwd": server.cwd,
        "revision": server.revision.map(Revision::name),
        "bearer_env": server.bearer_env,
        "tasks": server.tasks.then_some(true),
    }));
    let entry = yaml::render(&json!({&server.name: entry}));
    let own = ["", "\"", "'"].map(|quote| format!("{quote}{}{quote}:", server.name));
    let mut kept = String::new();
    let mut is_own = false;
    for line in before.split_inclusive('\n') {
        if !line.starts_with([' ', '\t', '\n', '\r', '#']) {
            is_own = own.iter().any(|own| line.starts_with(own));
        }
        if !is_own {
            kept += line;
        }
    }
    if !kept.is_empty() && !kept.ends_with('\n') {
        kept.push('\n');
    }
    kept + &entry
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<Vec<Server>, String> {
        let dir =
            std::env::temp_dir().join(format!("delta-mcp-{}-{}", std::process::id(), text.len()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(FILE), text).unwrap();
        let read = read_servers(&dir).map_err(|error| error.message);
        std::fs::remove_dir_all(&dir).unwrap();
        read
    }

    #[test]
    fn an_entry_is_replaced_and_the_others_stay_as_they_are() {
        let text = "# ours\na:\n  command: [x, y] # why\nb: {url: http://h/mcp, bearer_env: T}\n";
        let servers = parsed(text).unwrap();
        assert_eq!(servers.len(), 2);
        assert_eq!(servers[1].bearer_env.as_deref(), Some("T"));
        let b = Server {
            env: vec![("K".to_owned(), Given::Variable("K".to_owned()))],
            cwd: Some("srv".to_owned()),
            revision: Revision::parse("2025-06-18"),
            ..Server::new("b", Reach::Command(vec!["z".to_owned()]))
        };
        let after = with_entry(text, &b);
        assert!(
            after.starts_with("# ours\na:\n  command: [x, y] # why\n"),
            "{after}"
        );
        assert_eq!(parsed(&after).unwrap(), [servers[0].clone(), b]);
        let given = "c: {url: 'http://h', headers: {A: x, B: {env: Y}, C: {command: [p, q]}}}\n\
            d: {command: [x], env: {A: x, B: {env: Y}}}\n";
        let servers = parsed(given).unwrap();
        let again = servers
            .iter()
            .fold(String::new(), |text, it| with_entry(&text, it));
        assert_eq!(parsed(&again).unwrap(), servers);
        assert_eq!(servers[0].variables().collect::<Vec<_>>(), ["Y"]);
    }

    #[test]
    fn whatever_is_wrong_is_an_error() {
        for (text, message) in [
            ("a: {}", "needs one of"),
            ("a: {command: [x], url: u}", "needs one of"),
            ("a: {command: [x], bearer: T}", "bearer"),
            ("a: {command: [x], bearer_env: T}", "needs url:"),
            ("a: {command: [x], headers: {A: x}}", "needs url:"),
            ("a: {url: 'http://h', cwd: x}", "needs command:"),
            (
                "a: {url: 'http://h', headers: {A: 1}}",
                "headers: A: expected a text",
            ),
            (
                "a: {url: 'http://h', headers: {A: {env: X, command: [x]}}}",
                "expected a text",
            ),
            (
                "a: {url: 'http://h', headers: {'A b': x}}",
                "not a header's name",
            ),
            (
                "a: {url: 'http://h', headers: {Mcp-Session-Id: x}}",
                "set by delta",
            ),
            ("a: {url: 'http://h', headers: {X: x, x: y}}", "twice"),
            (
                "a: {url: 'http://h', bearer_env: T, headers: {authorization: y}}",
                "too",
            ),
            (
                "a: {command: [x], env: {A: {command: [x]}}}",
                "env: A: expected a text",
            ),
            (
                "a: {command: [x], env: {A: {env: 'x=y'}}}",
                "not a variable's name",
            ),
            (
                "a: {command: [x], revision: '2025-01-01'}",
                "none of 2026-07-28",
            ),
            ("a b: {command: [x]}", "make a server's name"),
            ("a: x", "expected a mapping"),
            ("- a", "keys and values"),
        ] {
            let problems = parsed(text).unwrap_err();
            assert!(problems.contains(message), "{text}: {problems}");
        }
    }
}
