//! An agent that is one Markdown file, as other programs have them: front matter and a prompt. It becomes the files of an
//! agent's directory: those of `@coder`, but for what it says.
//!
//! Unaware of where files are unpacked and of who may write them. Source of the keys and the tools' names: the
//! documentation of subagents of Claude Code; of `tools` as a mapping, that of `OpenCode`.
//!
//! Architecture invariant: what a key that limits the agent says is read or an error, never left out. A key that has no
//! meaning here is in the warning.

use super::templates;
use crate::config::person::is_name;
use crate::config::skill::{FrontMatter, front_matter, key_by_key};
use crate::error::{Error, Result, reason};
use crate::text::digest::sha256;
use crate::text::disguise::{disguises, printable_line};
use crate::text::json;
use crate::unix::files;
use crate::unix::new_files::NewFile;
use crate::unix::terminal::warn;
use serde_json::{Map, Value};
use std::path::Path;

/// The largest such file.
const LARGEST: u64 = 1 << 20;

/// Keys without which the agent could do more.
const LIMITS: [&str; 4] = ["tools", "disallowedTools", "permissionMode", "maxTurns"];

/// Words for a model that leave the choice to the person, perhaps with a window in brackets.
const ANY_MODEL: &str =
    " inherit default auto best fast opus opusplan sonnet haiku fable pro flash flash-lite ";

/// The tools of `@coder`.
const ALL_TOOLS: [&str; 5] = ["bash", "read", "write", "edit", "bash_net"];

/// Those that write files.
const WRITING: [&str; 2] = ["write", "edit"];

/// An agent that was one file.
#[derive(Debug)]
pub(crate) struct AgentFile {
    pub name: String,
    /// A name for it, with the digest of the file. It has the agent's name, which the file need not have.
    pub place: String,
    /// The files of the agent's directory.
    pub files: Vec<NewFile>,
}

type Read<T> = std::result::Result<T, String>;

/// True for a path that names such a file.
pub(crate) fn is_agent_file(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "md") && !path.is_dir()
}

impl AgentFile {
    /// Reads a file, whose name counts if there is none in it, and warns of what has no effect.
    ///
    /// # Errors
    /// It is no such file, or what limits the agent cannot be read.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let written = path.file_stem().and_then(|stem| stem.to_str());
        let stem = written.filter(|stem| is_name(stem)).unwrap_or("agent");
        let text = files::read_text_limited(path, LARGEST).map_err(|e| reason(&e));
        let (agent, notes) = text
            .and_then(|text| Self::parse(&text, stem))
            .map_err(|why| Error::config(format!("{shown}: {why}")))?;
        if !notes.is_empty() {
            warn(&format!(
                "warning: {shown}: {}",
                printable_line(&notes.join("; "))
            ));
        }
        Ok(agent)
    }

    fn parse(text: &str, stem: &str) -> Read<(Self, Vec<String>)> {
        let front = front_matter(text)?;
        check_limits(&front)?;
        let keys = &front.keys;
        let plan = match keys.get("permissionMode") {
            None => false,
            Some(Value::String(mode)) => mode.eq_ignore_ascii_case("plan"),
            Some(_) => return Err("permissionMode: expected a word".to_owned()),
        };
        let mut unknown = Vec::new();
        let mut tools = read_tools(keys, &mut unknown)?;
        tools.retain(|tool| !plan || !WRITING.contains(tool));
        let has_effect = |key: &str| match key {
            "name" | "description" | "model" => word(keys, key).is_some(),
            "permissionMode" => plan,
            _ => LIMITS.contains(&key),
        };
        let mut notes: Vec<String> = front.fault.iter().cloned().collect();
        let idle = keys.keys().filter(|key| !has_effect(key)).cloned();
        for (what, names) in [("effect", idle.collect()), ("such tool", unknown)] {
            if !names.is_empty() {
                let shown: Vec<String> = names.iter().map(|name| visible_name(name)).collect();
                notes.push(format!("no {what} here: {}", shown.join(", ")));
            }
        }
        let name = word(keys, "name").unwrap_or_else(|| stem.to_owned());
        let mut files = templates::CODER.files(&name);
        for file in &mut files {
            match &*file.path {
                "system_prompt.md" => front.body.trim_start().clone_into(&mut file.text),
                "agent.yaml" => file.text = agent_yaml(&file.text, &tools, keys)?,
                _ => {}
            }
        }
        let plain = if is_name(&name) { &name } else { "agent" };
        let agent = Self {
            place: format!("{}-{plain}", sha256(text.as_bytes())),
            name,
            files,
        };
        Ok((agent, notes))
    }
}

/// A name as it is, or in quotes if it would not show as what it is.
fn visible_name(name: &str) -> String {
    if is_name(name) {
        return name.to_owned();
    }
    format!("'{}'", name.escape_default())
}

/// Refuses a front matter with a fault unless what limits the agent is read as it is written.
fn check_limits(front: &FrontMatter<'_>) -> Read<()> {
    let Some(fault) = &front.fault else {
        return Ok(());
    };
    let alone = key_by_key(front.lines, false);
    for key in LIMITS {
        let names_it = |line: &&str| {
            let mut words = line.split(|c: char| !c.is_alphanumeric());
            !line.starts_with("description:") && words.any(|word| word == key)
        };
        // YAML breaks lines at more than \n.
        let lines = front.lines.split(disguises).filter(names_it).count();
        let value = front.keys.get(key).filter(|it| alone.get(key) == Some(it));
        // A second line of a list may have been left out.
        let is_whole = value.is_some() && !(front.is_partial && key == LIMITS[1]);
        if lines != usize::from(is_whole) {
            return Err(format!("{key}: it cannot be read for certain: {fault}"));
        }
    }
    Ok(())
}

/// The text of a key on one line; none if there is nothing in it, or what hides or disguises something.
fn word(keys: &Map<String, Value>, key: &str) -> Option<String> {
    let words = keys.get(key)?.as_str()?.split_whitespace();
    let line = words.collect::<Vec<_>>().join(" ");
    (!line.is_empty() && !line.contains(disguises)).then_some(line)
}

/// The tools of `@coder` that the agent has; names of others are added to `unknown`.
fn read_tools(keys: &Map<String, Value>, unknown: &mut Vec<String>) -> Read<Vec<&'static str>> {
    let mut tools = ALL_TOOLS.to_vec();
    let is_none = |name: &str| !ALL_TOOLS.iter().any(|tool| stands_for(name, tool));
    let given = match keys.get("tools") {
        None => Vec::new(),
        // The last one that is about a tool decides.
        Some(Value::Object(switches)) => {
            tools.retain(|tool| {
                let mut about = switches.iter().filter(|it| stands_for(it.0, tool));
                about
                    .next_back()
                    .is_none_or(|it| *it.1 == Value::Bool(true))
            });
            switches.keys().cloned().collect()
        }
        Some(value) => {
            let given = names("tools", value)?;
            tools.retain(|tool| given.iter().any(|name| stands_for(name, tool)));
            given
        }
    };
    unknown.extend(given.into_iter().filter(|name| is_none(name)));
    if let Some(value) = keys.get("disallowedTools") {
        // Of a pattern such as Bash(rm:*) only the whole can be denied.
        for name in names("disallowedTools", value)? {
            let whole = name.split('(').next().unwrap_or_default();
            tools.retain(|tool| !stands_for(whole, tool));
            if is_none(whole) {
                unknown.push(name);
            }
        }
    }
    Ok(tools)
}

/// True if a tool of another program becomes this one of `@coder`.
fn stands_for(name: &str, tool: &str) -> bool {
    let folded = name.to_ascii_lowercase();
    match folded.strip_suffix("(*)").unwrap_or(&folded) {
        "*" => true,
        "read" | "grep" | "glob" | "ls" => tool == "read",
        "edit" | "multiedit" => tool == "edit",
        "bash" => tool.starts_with("bash"),
        name => name == "write" && tool == name,
    }
}

/// The names in a list, or in a text with commas.
fn names(key: &str, value: &Value) -> Read<Vec<String>> {
    let text = |item: &Value| {
        item.as_str()
            .map_or_else(|| json::text(item), str::to_owned)
    };
    let all = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        _ => {
            return Err(format!(
                "{key}: expected a list, or names with commas between"
            ));
        }
    };
    // A comma in parentheses divides arguments, as in Agent(worker, writer).
    let mut depth = 0_usize;
    let names = all.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    let names = names.map(|name| name.trim().to_owned());
    Ok(names.filter(|name| !name.is_empty()).collect())
}

/// The agent.yaml of `@coder` with some of its tools, and with what these keys say. Without a tool that writes files, none
/// can write.
fn agent_yaml(coder: &str, tools: &[&str], keys: &Map<String, Value>) -> Read<String> {
    let mut is_kept = true;
    let kept = coder.split_inclusive('\n').filter(|line| {
        if let Some(name) = line.strip_prefix("  - name: ") {
            is_kept = tools.contains(&name.trim_end());
        }
        is_kept
    });
    let mut text: String = kept.collect();
    // Nothing that the file says begins a line.
    let mut set = |old: &str, new: &str| text = text.replace(old, new);
    if tools.is_empty() {
        set("\ntools:\n", "\ntools: []\n");
    }
    if !tools.iter().any(|tool| WRITING.contains(tool)) {
        set("--rw, '${CWD}'", "--ro, '${CWD}'");
        set(
            "write inside the workspace only, but not to .delta, .git/hooks and .git/config",
            "cannot write",
        );
        set("\nfiles: git\n", "\nfiles: off\n");
    }
    if let Some(about) = word(keys, "description") {
        let usual = "\ndescription: Works on code with a shell, and reads, writes and edits files";
        set(usual, &format!("\ndescription: {}", json::text(&about)));
    }
    if let Some(model) = word(keys, "model") {
        let folded = model.to_ascii_lowercase();
        let short = folded.split('[').next().unwrap_or(&folded);
        if !ANY_MODEL.contains(&format!(" {short} ")) {
            set(
                "\nllm: {}",
                &format!("\nllm: {{model: {}}}", json::text(&model)),
            );
        }
    }
    match keys.get("maxTurns").map(Value::as_u64) {
        None => {}
        Some(Some(turns)) if turns > 0 => {
            set(
                "\nmax_iterations: 100",
                &format!("\nmax_iterations: {turns}"),
            );
        }
        Some(_) => return Err("maxTurns: expected a whole number from 1".to_owned()),
    }
    Ok(text)
}
