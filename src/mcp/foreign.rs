//! Servers in the files of other programs: `.mcp.json`, `.vscode/mcp.json`, `.cursor/mcp.json`,
//! `claude_desktop_config.json`.
//!
//! Pure, but for asking which paths exist. Such a file may come with a cloned repository: nothing of it is run here, no
//! variable but HOME is read, and no key is taken over.

use super::servers::{Given, Reach, Server, header_objection, is_name};
use crate::text::json;
use serde_json::{Map, Value};
use std::path::Path;

/// A server of another program's file.
#[derive(Debug)]
pub(crate) struct ForeignServer {
    pub server: Server,
    /// Notes about its settings, a line each.
    pub notes: Vec<String>,
}

/// A server by its name in the file, or why it cannot be used.
pub(crate) type FoundServer = (String, Result<ForeignServer, String>);

/// The servers of a file by their names there, each with the reason why it cannot be used, if so.
///
/// # Errors
/// The file is not one of servers.
pub(crate) fn read_foreign(text: &str, root: &Path) -> Result<Vec<FoundServer>, String> {
    let document: Value = serde_json::from_str(&without_comments(json::after_mark(text)))
        .map_err(|e| format!("not JSON: {}", json::parser_message(&e)))?;
    Ok(["mcpServers", "servers"]
        .iter()
        .find_map(|key| document[key].as_object())
        .ok_or("it has neither mcpServers nor servers")?
        .iter()
        .map(|(name, entry)| (name.clone(), read_server(name, entry, root)))
        .collect())
}

fn read_server(name: &str, entry: &Value, root: &Path) -> Result<ForeignServer, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let own = name.replace(|c| !is_good(c), "_");
    if !is_name(&own) {
        return Err("its name cannot be one here".to_owned());
    }
    let notes = (own != name).then(|| format!("its name here is {own}"));
    let entry = entry.as_object().ok_or("it is not an object")?;
    if entry.get("type") == Some(&"sse".into()) {
        return Err("the transport HTTP+SSE is not supported".to_owned());
    }
    let mut reader = Reader {
        name: own,
        entry,
        root,
        notes: notes.into_iter().collect(),
    };
    let reach = match entry.get("url") {
        Some(url) => Reach::Url(reader.url(url.as_str().ok_or("its url is not a text")?)?),
        None => Reach::Command(reader.command()?),
    };
    let mut server = Server::new(&reader.name, reach);
    if matches!(server.reach, Reach::Command(_)) {
        server.cwd = reader.cwd()?;
    } else {
        reader.read_headers(&mut server)?;
    }
    server.env = reader.env()?;
    let known = ["type", "url", "headers", "command", "args", "env", "cwd"];
    let others = entry.keys().filter(|key| !known.contains(&key.as_str()));
    let mut notes = reader.notes;
    notes.extend(others.map(|key| format!("{key} has no effect here")));
    Ok(ForeignServer { server, notes })
}

/// Reads a server's entry.
struct Reader<'r> {
    /// The server's name here.
    name: String,
    entry: &'r Map<String, Value>,
    root: &'r Path,
    notes: Vec<String>,
}

impl Reader<'_> {
    fn url(&mut self, url: &str) -> Result<String, String> {
        let has_key = |url: &str| {
            let mut parts = url.split(['/', '?', '&', '#']).skip(3);
            let is_key = |part: &str| {
                let (name, value) = part.split_once('=').unwrap_or(("", part));
                looks_like_key(name, value)
            };
            looks_like_key("", url) || parts.any(is_key)
        };
        let given = self.text(url)?.filter(|url| !has_key(url));
        let message = "its url holds a key or a variable: give it a header in mcp.yaml by hand";
        given.ok_or_else(|| message.to_owned())
    }

    fn read_headers(&mut self, server: &mut Server) -> Result<(), String> {
        for (name, value) in self.texts("headers")? {
            match header_objection(&name) {
                Some("is set by delta") => {
                    self.note(format!("the header {name} has no effect here"));
                    continue;
                }
                Some(why) => return Err(format!("its header {name:?} {why}")),
                None => {}
            }
            let is_authorization = name.eq_ignore_ascii_case("authorization");
            let token = value.strip_prefix("Bearer ").filter(|_| is_authorization);
            let is_key =
                |it: &Given| matches!(it, Given::Text(text) if looks_like_key(&name, text));
            let given = self
                .given(token.unwrap_or(&value))?
                .filter(|given| !is_key(given));
            let what = if token.is_some() { "token" } else { &name };
            let given = given.unwrap_or_else(|| self.variable_for(what));
            match (token, given) {
                (Some(_), Given::Variable(variable)) => server.bearer_env = Some(variable),
                (_, given) => server.headers.push((name, given)),
            }
        }
        Ok(())
    }

    /// The argv. Programs are given no variables in their arguments.
    fn command(&mut self) -> Result<Vec<String>, String> {
        let entry = self.entry;
        let program = entry
            .get("command")
            .and_then(Value::as_str)
            .filter(|it| !it.is_empty())
            .ok_or("it has neither command nor url")?;
        let args: Option<Vec<&str>> = entry.get("args").map_or(Some(Vec::new()), |args| {
            args.as_array()?.iter().map(Value::as_str).collect()
        });
        let mut argv: Vec<String> = Vec::new();
        for word in [program]
            .into_iter()
            .chain(args.ok_or("its args are not a list of texts")?)
        {
            let option = argv
                .last()
                .filter(|before| before.starts_with('-'))
                .map_or("", String::as_str);
            let has_key = |text: &str| {
                let at = text.find(['=', ':']).map_or(0, |at| at + 1);
                at > 0 && looks_like_key(&text[..at], &text[at..])
                    || !text.starts_with('-') && looks_like_key(option, text)
            };
            let given = self.text(word)?.filter(|text| !has_key(text)).ok_or_else(|| {
                format!(
                    "word {} of its command holds a key or a variable: write it into mcp.yaml by hand, as \
                     command: [sh, -c, 'exec PROGRAM \"$NAME\"'] with env: [NAME]",
                    argv.len() + 1
                )
            })?;
            argv.push(given);
        }
        if argv[0].contains('/') {
            argv[0] = self.root.join(&argv[0]).display().to_string();
        }
        Ok(argv)
    }

    fn env(&mut self) -> Result<Vec<(String, Given)>, String> {
        let mut env = Vec::new();
        for (name, value) in self.texts("env")? {
            if !is_variable(&name) {
                return Err(format!("{name:?} is not a variable's name"));
            }
            let given = match self.given(&value)? {
                Some(Given::Variable(own)) if own == name && !looks_like_key(&name, "") => continue,
                Some(Given::Text(text)) if !text.is_empty() && looks_like_key(&name, &text) => {
                    self.note(format!("{name} looks like a key: set this variable"));
                    Given::Variable(name.clone())
                }
                given => given.unwrap_or_else(|| self.variable_for(&name)),
            };
            env.push((name, given));
        }
        Ok(env)
    }

    /// The program's working directory: where the file says, or at the file's place if a word names a file there.
    fn cwd(&mut self) -> Result<Option<String>, String> {
        let root = self.root;
        if let Some(cwd) = self.entry.get("cwd").and_then(Value::as_str) {
            let cwd = self.text(cwd)?.ok_or("its cwd needs a variable")?;
            return Ok(Some(root.join(cwd).display().to_string()));
        }
        let is_there = |word: &str| {
            let is_path = !word.starts_with(['-', '/']) && word.contains(['/', '.']);
            is_path && root.join(word).exists()
        };
        let mut words = self
            .entry
            .get("args")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        Ok(words.any(is_there).then(|| root.display().to_string()))
    }

    /// The texts of a member; numbers and booleans as they are written.
    fn texts(&self, key: &str) -> Result<Vec<(String, String)>, String> {
        let wrong = || format!("its {key} is not an object of texts");
        let pair = |(name, value): (&String, &Value)| match value {
            Value::String(text) => Ok((name.clone(), text.clone())),
            Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
            _ => Err(wrong()),
        };
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Object(members)) => members.iter().map(pair).collect(),
            Some(_) => Err(wrong()),
        }
    }

    fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// A variable that a person sets in place of a value.
    fn variable_for(&mut self, what: &str) -> Given {
        let name = format!("MCP_{}_{what}", self.name)
            .to_uppercase()
            .replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        self.note(format!("set {name} to the value of {what}"));
        Given::Variable(name)
    }

    /// A value that is a text; `None` if it has a variable.
    fn text(&mut self, value: &str) -> Result<Option<String>, String> {
        Ok(match self.given(value)? {
            Some(Given::Text(text)) => Some(text),
            _ => None,
        })
    }

    /// A value with what is known here put in. `None` if it has a variable beside other text.
    fn given(&mut self, value: &str) -> Result<Option<Given>, String> {
        if value.contains('\0') {
            return Err("a value holds a NUL byte".to_owned());
        }
        let (mut text, mut variables, mut rest) = (String::new(), Vec::new(), value);
        while let Some((before, from)) = rest.split_once("${")
            && let Some((inner, after)) = from.split_once('}')
        {
            text += before;
            rest = after;
            let name = inner.strip_prefix("env:").unwrap_or(inner);
            if let Some((name, default)) = name.split_once(":-") {
                self.note(format!("{name} is read as its default"));
                text += default;
            } else if let Some(input) = name.strip_prefix("input:") {
                variables.push(self.variable_for(input));
            } else {
                match name {
                    "workspaceFolder" | "workspaceRoot" => text += &self.root.to_string_lossy(),
                    "/" | "pathSeparator" => text.push('/'),
                    "userHome" | "HOME" => text += &std::env::var("HOME").unwrap_or_default(),
                    name if is_variable(name) => variables.push(Given::Variable(name.to_owned())),
                    _ => return Err(format!("${{{inner}}} is not known here")),
                }
            }
        }
        text += rest;
        Ok(match variables.pop() {
            None => Some(Given::Text(text)),
            one => one.filter(|_| variables.is_empty() && text.is_empty()),
        })
    }
}

fn is_variable(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Parts of the names of keys.
const KEY_PARTS: [&str; 10] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "AUTHORIZATION",
    "BEARER",
    "COOKIE",
];

/// Whole words in the names of keys.
const KEY_WORDS: [&str; 6] = ["AUTH", "DSN", "OAUTH", "PASS", "PAT", "PWD"];

/// Beginnings of keys.
const KEY_BEGINNINGS: [&str; 22] = [
    "sk-",
    "pk-",
    "sk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xox",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
    "ya29.",
    "hf_",
    "npm_",
    "pypi-",
    "SG.",
    "Bearer ",
    "Basic ",
];

/// True if a value may be a key, by its name or its form. An empty value is taken for one that its name decides.
fn looks_like_key(name: &str, value: &str) -> bool {
    let upper = name.to_uppercase();
    let mut words = upper.split(|c: char| !c.is_ascii_alphanumeric());
    let has_name = KEY_PARTS.iter().any(|part| upper.contains(part))
        || words.any(|it| KEY_WORDS.contains(&it));
    let is_setting = value.len() < 7 && value.bytes().all(|it| it.is_ascii_digit())
        || ["true", "false"].contains(&value);
    if has_name && (value.is_empty() || !is_setting) {
        return true;
    }
    let value = value.trim();
    let password = || {
        let authority = value.split_once("://")?.1.split('/').next()?;
        let (_, password) = authority.rsplit_once('@')?.0.split_once(':')?;
        (!password.is_empty()).then_some(())
    };
    let has = |is: fn(&u8) -> bool| value.bytes().any(|byte| is(&byte));
    let is_token = value
        .bytes()
        .all(|it| it.is_ascii_alphanumeric() || b"_-+=".contains(&it));
    let is_hex = value.len() >= 32 && value.bytes().all(|it| it.is_ascii_hexdigit());
    let is_mixed =
        has(u8::is_ascii_digit) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    let begins = |begin: &&str| value.starts_with(begin) && value.len() > begin.len() + 4;
    KEY_BEGINNINGS.iter().any(begins)
        || password().is_some()
        || is_token && value.len() >= 20 && is_mixed
        || is_hex
}

/// JSON without the comments and the last commas that editors allow.
fn without_comments(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['"', '/', ']', '}']) {
        out += &rest[..at];
        rest = &rest[at..];
        let length = match rest.as_bytes()[0] {
            b'"' => json::string_length(rest),
            b'/' if rest.starts_with("//") => {
                rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
                continue;
            }
            b'/' if rest.starts_with("/*") => {
                rest = rest[2..].split_once("*/").map_or("", |(_, after)| after);
                continue;
            }
            b']' | b'}' => {
                let kept = out.trim_end().strip_suffix(',').map_or(out.len(), str::len);
                out.truncate(kept);
                1
            }
            _ => 1,
        };
        out += &rest[..length];
        rest = &rest[length..];
    }
    out + rest
}
