//! Servers in the files of other programs: `.mcp.json`, `.vscode/mcp.json`, `.cursor/mcp.json`,
//! `claude_desktop_config.json`.
//!
//! Pure, but for asking which paths exist. Such a file may come with a cloned repository: nothing of it is run here, no
//! variable is read, and no key is taken over.

use super::servers::{Given, Reach, Server, header_objection, is_name};
use crate::text::json;
use serde_json::{Map, Value};
use std::path::Path;

/// A server of another program's file.
#[derive(Debug)]
pub(crate) struct ForeignServer {
    pub server: Server,
    /// What has become of its settings, a line each.
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
    let servers = ["mcpServers", "servers"]
        .iter()
        .find_map(|key| document.get(key)?.as_object());
    let servers = servers.ok_or("it has neither mcpServers nor servers")?;
    let read = |(name, entry): (&String, &Value)| {
        let read = Reader::begin(name, root).and_then(|reader| reader.read(entry));
        (name.clone(), read)
    };
    Ok(servers.iter().map(read).collect())
}

/// A piece of a value.
#[derive(Debug, PartialEq)]
enum Piece {
    Text(String),
    Variable(String),
}

struct Reader<'r> {
    /// Its name here.
    name: String,
    root: &'r Path,
    env: Vec<(String, Given)>,
    notes: Vec<String>,
}

impl<'r> Reader<'r> {
    fn begin(name: &str, root: &'r Path) -> Result<Self, String> {
        let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let own = name.replace(|c| !is_good(c), "_");
        is_name(&own)
            .then_some(())
            .ok_or("its name cannot be one here")?;
        let notes = (own != name).then(|| format!("its name here is {own}"));
        Ok(Self {
            name: own,
            root,
            env: Vec::new(),
            notes: notes.into_iter().collect(),
        })
    }

    fn read(mut self, entry: &Value) -> Result<ForeignServer, String> {
        let entry = entry.as_object().ok_or("it is not an object")?;
        if entry.get("type") == Some(&"sse".into()) {
            return Err("the transport HTTP+SSE is not supported".to_owned());
        }
        let mut server = Server {
            name: self.name.clone(),
            reach: Reach::Command(Vec::new()),
            env: Vec::new(),
            headers: Vec::new(),
            cwd: None,
            revision: None,
            bearer_env: None,
            tasks: false,
        };
        if let Some(url) = entry.get("url") {
            let url = url.as_str().ok_or("its url is not a text")?;
            let pieces = self.pieces(url)?;
            let [Piece::Text(text)] = &pieces[..] else {
                return Err("its url needs a variable".to_owned());
            };
            let parts = text.split(['/', '?', '&', '#']).skip(3);
            let mut pairs = parts.map(|pair| pair.split_once('=').unwrap_or(("", pair)));
            if looks_like_key("", text) || pairs.any(|(name, it)| looks_like_key(name, it)) {
                return Err("its url seems to hold a key".to_owned());
            }
            server.reach = Reach::Url(text.clone());
            self.read_headers(entry, &mut server)?;
        } else {
            server.reach = Reach::Command(self.command(entry)?);
            server.cwd = self.cwd(entry)?;
        }
        let known = ["type", "url", "headers", "command", "args", "env", "cwd"];
        let others = entry.keys().filter(|key| !known.contains(&key.as_str()));
        self.notes
            .extend(others.map(|key| format!("{key} has no effect here")));
        server.env = self.env;
        Ok(ForeignServer {
            server,
            notes: self.notes,
        })
    }

    fn read_headers(
        &mut self,
        entry: &Map<String, Value>,
        server: &mut Server,
    ) -> Result<(), String> {
        for (name, value) in &texts(entry, "headers")? {
            if header_objection(name) == Some("is set by delta") {
                self.notes
                    .push(format!("the header {name} has no effect here"));
                continue;
            }
            if let Some(why) = header_objection(name) {
                return Err(format!("its header {name:?} {why}"));
            }
            let is_authorization = name.eq_ignore_ascii_case("authorization");
            let token = value.strip_prefix("Bearer ").filter(|_| is_authorization);
            let pieces = self.pieces(token.unwrap_or(value))?;
            let variable = match &pieces[..] {
                [Piece::Variable(variable)] => variable.clone(),
                [Piece::Text(text)] if token.is_none() && !looks_like_key(name, text) => {
                    let given = Given::Text(text.clone());
                    server.headers.push((name.clone(), given));
                    continue;
                }
                _ => {
                    let what = if token.is_some() { "TOKEN" } else { name };
                    self.variable_for(what, "header's value")
                }
            };
            if token.is_some() {
                server.bearer_env = Some(variable);
            } else {
                server
                    .headers
                    .push((name.clone(), Given::Variable(variable)));
            }
        }
        Ok(())
    }

    /// The argv. Variables in arguments are left to a shell.
    fn command(&mut self, entry: &Map<String, Value>) -> Result<Vec<String>, String> {
        let program = entry
            .get("command")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let args = entry.get("args").map_or(Some(Vec::new()), |args| {
            args.as_array()?
                .iter()
                .map(|it| it.as_str().map(str::to_owned))
                .collect()
        });
        let args: Vec<String> = args.ok_or("its args are not a list of texts")?;
        if program.is_empty() {
            return Err("it has neither command nor url".to_owned());
        }
        let mut words = vec![self.pieces(program)?];
        if let [Piece::Text(path)] = &mut words[0][..]
            && path.contains('/')
        {
            *path = self.root.join(&path).display().to_string();
        }
        let mut option = "";
        for word in &args {
            words.push(self.argument(option, word)?);
            option = if word.starts_with('-') { word } else { "" };
        }
        let assignments = self.assignments(entry)?;
        let plain = |word: &Vec<Piece>| match &word[..] {
            [Piece::Text(text)] => Some(text.clone()),
            [] => Some(String::new()),
            _ => None,
        };
        let argv: Option<Vec<String>> = words.iter().map(plain).collect();
        match argv.filter(|_| assignments.is_empty()) {
            Some(argv) => Ok(argv),
            None => {
                let env = (!assignments.is_empty()).then(|| "env".to_owned());
                let words = assignments
                    .iter()
                    .chain(&words)
                    .map(|word| shell_word(word));
                let line: Vec<String> = ["exec".to_owned()]
                    .into_iter()
                    .chain(env)
                    .chain(words)
                    .collect();
                Ok(["sh", "-c", &line.join(" ")].map(str::to_owned).to_vec())
            }
        }
    }

    /// An argument, in which what looks like a key has become a variable.
    fn argument(&mut self, option: &str, word: &str) -> Result<Vec<Piece>, String> {
        let mut pieces = self.pieces(word)?;
        if let [Piece::Text(text)] = &pieces[..] {
            let at = text.find(['=', ':']).map_or(0, |at| at + 1);
            let (before, value) = text.split_at(at);
            let has_name = at > 0 && looks_like_key(before, value);
            let is_key = |name: &str, it: &str| looks_like_key(name, it) && !it.starts_with('-');
            let name = match (has_name, is_key(option, text)) {
                (true, _) => before,
                (false, true) if option.is_empty() => "VALUE",
                (false, true) => option,
                (false, false) => return Ok(pieces),
            };
            let before = if has_name {
                before.to_owned()
            } else {
                String::new()
            };
            let mut variable = self.variable_for(name, "argument's value");
            if self.env.iter().any(|(other, _)| *other == variable) {
                let name = format!("{name}_{}", self.env.len() + 1);
                variable = self.variable_for(&name, "argument's value");
            }
            self.env
                .push((variable.clone(), Given::Variable(variable.clone())));
            pieces = vec![Piece::Text(before), Piece::Variable(variable)];
        } else {
            for piece in &pieces {
                if let Piece::Variable(name) = piece
                    && looks_like_key(name, "")
                {
                    self.env.push((name.clone(), Given::Variable(name.clone())));
                }
            }
        }
        Ok(pieces)
    }

    /// Reads the variables; those that are made of other ones are words for `env`.
    fn assignments(&mut self, entry: &Map<String, Value>) -> Result<Vec<Vec<Piece>>, String> {
        let mut assignments = Vec::new();
        for (name, value) in &texts(entry, "env")? {
            if !is_variable(name) {
                return Err(format!("{name:?} is not a variable's name"));
            }
            let pieces = self.pieces(value)?;
            let given = match &pieces[..] {
                [Piece::Variable(other)]
                    if looks_like_key(name, "") || looks_like_key(other, "") =>
                {
                    Given::Variable(other.clone())
                }
                [Piece::Variable(other)] if other == name => continue,
                [Piece::Text(text)] if !looks_like_key(name, text) => Given::Text(text.clone()),
                [] => Given::Text(String::new()),
                [Piece::Text(_)] => {
                    self.notes
                        .push(format!("{name} looks like a key: set this variable"));
                    Given::Variable(name.clone())
                }
                _ => {
                    assignments.push(vec![Piece::Text(format!("{name}="))]);
                    if let Some(word) = assignments.last_mut() {
                        word.extend(pieces);
                    }
                    continue;
                }
            };
            self.env.retain(|(other, _)| other != name);
            self.env.push((name.clone(), given));
        }
        Ok(assignments)
    }

    /// Where the program works: where the file says, or at the file's place if a word names a file there.
    fn cwd(&mut self, entry: &Map<String, Value>) -> Result<Option<String>, String> {
        let texts = |key: &str| {
            let value = entry.get(key);
            let list = value.and_then(Value::as_array).into_iter().flatten();
            list.chain(value)
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
        };
        if let [cwd] = texts("cwd")[..] {
            return match &self.pieces(cwd)?[..] {
                [Piece::Text(cwd)] => Ok(Some(self.root.join(cwd).display().to_string())),
                _ => Err("its cwd needs a variable".to_owned()),
            };
        }
        let is_there = |word: &&str| {
            let is_path = !word.starts_with(['-', '/']) && word.contains(['/', '.']);
            is_path && self.root.join(word).exists()
        };
        let root = || self.root.display().to_string();
        Ok(texts("args")
            .iter()
            .find(|word| is_there(word))
            .map(|_| root()))
    }

    /// A variable that a person sets in place of a value.
    fn variable_for(&mut self, what: &str, of: &str) -> String {
        let name = format!("{}_{}", self.name, what.trim_matches(['-', '=', ':', ' ']));
        let name = name
            .replace(|c: char| !c.is_ascii_alphanumeric(), "_")
            .to_uppercase();
        let name = if name.starts_with(|c: char| c.is_ascii_digit()) {
            format!("MCP_{name}")
        } else {
            name
        };
        self.notes
            .push(format!("set {name} to the {of} for {what:?}"));
        name
    }

    /// A value in pieces; neighbouring texts are one.
    fn pieces(&mut self, value: &str) -> Result<Vec<Piece>, String> {
        let mut pieces = Vec::new();
        let mut rest = value;
        let push = |pieces: &mut Vec<Piece>, text: &str| match pieces.last_mut() {
            Some(Piece::Text(before)) => before.push_str(text),
            _ if text.is_empty() => {}
            _ => pieces.push(Piece::Text(text.to_owned())),
        };
        if value.contains('\0') {
            return Err("a value holds a NUL byte".to_owned());
        }
        while let Some((before, (inner, after))) = rest
            .split_once("${")
            .and_then(|(before, it)| Some((before, it.split_once('}')?)))
        {
            push(&mut pieces, before);
            rest = after;
            let name = inner.strip_prefix("env:").unwrap_or(inner);
            if let Some((name, default)) = name.split_once(":-") {
                self.notes.push(format!("{name} is read as its default"));
                push(&mut pieces, default);
            } else if ["workspaceFolder", "workspaceRoot"].contains(&name) {
                push(&mut pieces, &self.root.display().to_string());
            } else if name == "/" || name == "pathSeparator" {
                push(&mut pieces, "/");
            } else if name == "userHome" {
                pieces.push(Piece::Variable("HOME".to_owned()));
            } else if let Some(input) = name.strip_prefix("input:") {
                let variable = self.variable_for(input, "input");
                pieces.push(Piece::Variable(variable));
            } else if is_variable(name) {
                pieces.push(Piece::Variable(name.to_owned()));
            } else {
                return Err(format!("${{{inner}}} is not known here"));
            }
        }
        push(&mut pieces, rest);
        Ok(pieces)
    }
}

/// The texts of a member; numbers and booleans as they are written.
fn texts(entry: &Map<String, Value>, key: &str) -> Result<Vec<(String, String)>, String> {
    let Some(value) = entry.get(key).filter(|value| !value.is_null()) else {
        return Ok(Vec::new());
    };
    let wrong = || format!("its {key} is not an object of texts");
    let pair = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Ok((name.clone(), text.clone())),
        Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
        _ => Err(wrong()),
    };
    value
        .as_object()
        .ok_or_else(wrong)?
        .iter()
        .map(pair)
        .collect()
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A word of a shell's line, in which only the variables are expanded.
fn shell_word(pieces: &[Piece]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,+@%=".contains(c);
    let quoted = |piece: &Piece| match piece {
        Piece::Variable(name) => format!("\"${{{name}}}\""),
        Piece::Text(text) if text.chars().all(is_plain) => text.clone(),
        Piece::Text(text) => format!("'{}'", text.replace('\'', r"'\''")),
    };
    match pieces {
        [] => "''".to_owned(),
        pieces => pieces.iter().map(quoted).collect(),
    }
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
    let has_password = || {
        let authority = value.split_once("://")?.1.split('/').next()?;
        authority
            .rsplit_once('@')?
            .0
            .split_once(':')
            .filter(|(_, it)| !it.is_empty())
    };
    let has = |is: fn(&u8) -> bool| value.bytes().any(|byte| is(&byte));
    let is_token = value
        .bytes()
        .all(|it| it.is_ascii_alphanumeric() || b"_-+=".contains(&it));
    let is_hex = value.len() >= 32 && value.bytes().all(|it| it.is_ascii_hexdigit());
    let is_mixed =
        has(u8::is_ascii_digit) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase);
    KEY_BEGINNINGS
        .iter()
        .any(|begin| value.starts_with(begin) && value.len() > begin.len() + 4)
        || has_password().is_some()
        || is_token && value.len() >= 20 && is_mixed
        || is_hex
}

/// JSON without the comments and the last commas that editors allow.
fn without_comments(text: &str) -> String {
    let text = text.trim_start_matches('\u{feff}');
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
                let before = out.trim_end();
                let kept = before.strip_suffix(',').map_or(out.len(), str::len);
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
