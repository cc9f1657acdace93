//! `mcp.yaml` beside agent.yaml: the servers of an agent, by name.

use crate::config::agent::Problem;
use crate::config::document::Document;
use crate::config::environment::Secret;
use crate::config::section::{Diagnostics, Section};
use crate::error::{Error, Result};
use crate::text::yaml::{self, Step};
use crate::unix::files;
use serde_json::{Map, json};
use std::io::ErrorKind;
use std::path::Path;

/// The file's name.
pub(crate) const FILE: &str = "mcp.yaml";

/// A server and the way to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Matches `[A-Za-z0-9_-]{1,40}`.
    pub name: String,
    pub reach: Reach,
    /// Variables that it alone may need. A tool that is not its own does not get them.
    pub env: Vec<String>,
    /// The variable that holds its bearer token.
    pub bearer_env: Option<String>,
    /// Its tasks outlive its process. Those of a server that is reached by a URL do in any case.
    pub tasks: bool,
}

impl Server {
    /// True if a task that it makes can be looked at by another process.
    pub(crate) fn keeps_tasks(&self) -> bool {
        self.tasks || matches!(self.reach, Reach::Url(_))
    }

    /// The values of its variables: what it sends back of them is taken out.
    pub(crate) fn secrets(&self) -> Secrets {
        let names = self.env.iter().chain(&self.bearer_env);
        let values = names.filter_map(|name| std::env::var(name).ok());
        Secrets(
            values
                .filter_map(|value| Secret::of_variable(&value))
                .collect(),
        )
    }
}

/// Secrets that only the server may read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets(Vec<Secret>);

impl Secrets {
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

const KEYS: [&str; 5] = ["command", "url", "env", "bearer_env", "tasks"];

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
    let mut servers = Vec::new();
    for (name, entry) in &document.root {
        let mut out = Diagnostics::about(format!("server \"{name}\""));
        let at = vec![Step::Key(name.clone())];
        match entry.as_object() {
            Some(map) => servers.extend(read_server(name, &Section::new(map, at), &mut out)),
            None => out.error(at, "expected a mapping with command: or url:"),
        }
        document.report_all(&[], out.into_list(), problems);
    }
    servers
}

fn read_server(name: &str, section: &Section, out: &mut Diagnostics) -> Option<Server> {
    // A misspelt key might be the one that keeps a secret.
    section.refuse_unknown_keys(&KEYS, out);
    if !is_name(name) {
        let message = "1 to 40 letters, digits, '_' and '-' make a server's name";
        out.error(section.path_to(""), message);
    }
    let command = section.read_texts("command", out);
    let url = section.read_text("url", out);
    let env = section.read_texts("env", out).unwrap_or_default();
    let bearer_env = section.read_text("bearer_env", out);
    for variable in env.iter().copied().chain(bearer_env) {
        if variable.is_empty() || variable.contains(['=', '\0']) {
            out.error(
                section.path_to("env"),
                format!("{variable:?} is not a variable's name"),
            );
        }
    }
    let reach = match (command, url) {
        (Some(words), None) if !words.is_empty() => {
            Reach::Command(words.into_iter().map(str::to_owned).collect())
        }
        (None, Some(url)) => Reach::Url(url.to_owned()),
        _ => {
            out.error(section.path_to(""), "needs one of command: and url:");
            return None;
        }
    };
    if bearer_env.is_some() && matches!(reach, Reach::Command(_)) {
        out.error(
            section.path_to("bearer_env"),
            "bearer_env: needs url:; use env: with command:",
        );
    }
    Some(Server {
        name: name.to_owned(),
        reach,
        env: env.into_iter().map(str::to_owned).collect(),
        bearer_env: bearer_env.map(str::to_owned),
        tasks: section.read_flag("tasks", out).unwrap_or(false),
    })
}

/// Writes a server's entry into the file, in place of the one that has its name. The comments of the
/// other entries stay.
pub(crate) fn write_server(home: &Path, server: &Server) -> Result<()> {
    let path = home.join(FILE);
    let before = match files::read_text(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
        Err(e) => return Err(Error::io("read", &path, &e)),
    };
    files::replace_shared(&path, with_entry(&before, server).as_bytes())
}

fn with_entry(before: &str, server: &Server) -> String {
    let mut entry = Map::new();
    match &server.reach {
        Reach::Command(words) => entry.insert("command".to_owned(), json!(words)),
        Reach::Url(url) => entry.insert("url".to_owned(), json!(url)),
    };
    if !server.env.is_empty() {
        entry.insert("env".to_owned(), json!(server.env));
    }
    if let Some(name) = &server.bearer_env {
        entry.insert("bearer_env".to_owned(), json!(name));
    }
    if server.tasks {
        entry.insert("tasks".to_owned(), true.into());
    }
    let entry = yaml::render(&json!({&server.name: entry}));
    let own = [
        format!("{}:", server.name),
        format!("\"{}\":", server.name),
        format!("'{}':", server.name),
    ];
    let mut kept = String::new();
    let mut is_own = false;
    for line in before.split_inclusive('\n') {
        let begins_entry = !line.starts_with([' ', '\t', '\n', '\r', '#']);
        if begins_entry {
            is_own = own.iter().any(|own| line.starts_with(own.as_str()));
        }
        if !is_own {
            kept.push_str(line);
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
            name: "b".to_owned(),
            reach: Reach::Command(vec!["z".to_owned()]),
            env: vec!["K".to_owned()],
            bearer_env: None,
            tasks: false,
        };
        let after = with_entry(text, &b);
        assert!(
            after.starts_with("# ours\na:\n  command: [x, y] # why\n"),
            "{after}"
        );
        assert_eq!(parsed(&after).unwrap(), [servers[0].clone(), b]);
    }

    #[test]
    fn whatever_is_wrong_is_an_error() {
        for (text, message) in [
            ("a: {}", "needs one of"),
            ("a: {command: [x], url: u}", "needs one of"),
            ("a: {command: [x], bearer: T}", "bearer"),
            ("a: {command: [x], bearer_env: T}", "needs url:"),
            ("a b: {command: [x]}", "make a server's name"),
            ("a: x", "expected a mapping"),
            ("- a", "keys and values"),
        ] {
            let problems = parsed(text).unwrap_err();
            assert!(problems.contains(message), "{text}: {problems}");
        }
    }
}
