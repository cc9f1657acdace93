//! Tools, and the files that they are imported from.

use super::agent::{Problem, Severity};
use super::document::{Document, error_in};
use super::person;
use super::sources::{AgentSources, ToolSource};
use crate::config::section::{Section, describe_value};
use crate::config::tool::definition::Tool;
use crate::config::tool::load;
use crate::text::yaml::Step;
use crate::unix::writers;
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Reads only the tools of a file with a top-level `tools:` and, perhaps, `imports:`. What it imports
/// lies below the agent that it is part of, or else below its own directory.
pub(crate) fn load_tools(file: &Path) -> (Vec<Tool>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut tools = Vec::new();
    let shown = file.display().to_string();
    if !file.is_file() {
        let message = if file.is_dir() {
            "it is a directory; name a file in it, such as agent.yaml"
        } else {
            "no such file"
        };
        problems.push(error_in(&shown, message));
        return (tools, problems);
    }
    let dir = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let path = real.join(file.file_name().unwrap_or_default());
    if let Some(mut sources) = AgentSources::open(&agent_around(dir, &real), &mut problems)
        && let Some(document) = Document::read(&path, shown, &mut problems)
    {
        tools = read_tools(&document, &mut sources, false, &mut problems);
    }
    (tools, problems)
}

/// The nearest directory with an agent that is `dir` or above it, or `dir`; `real` is its real path.
fn agent_around(dir: &Path, real: &Path) -> PathBuf {
    let is_agent = |dir: &&Path| {
        let has = |name: &str| dir.join(name).is_file();
        has("agent.yaml") || has("config.yaml") && has("context.yaml")
    };
    match real.ancestors().find(is_agent) {
        Some(agent) if agent != real => agent.to_owned(),
        _ => dir.to_owned(),
    }
}

/// The tools of a file and of those that it imports, and where they are, for `sources`.
/// `has_ask_human`: the engine's own tool of that name is there.
pub(super) fn read_tools(
    document: &Document,
    sources: &mut AgentSources,
    has_ask_human: bool,
    problems: &mut Vec<Problem>,
) -> Vec<Tool> {
    let mut reader = ToolReader {
        root: sources.home.clone(),
        sources,
        has_ask_human,
        problems,
        chain: vec![document.path.clone()],
        tools: Vec::new(),
        names: HashSet::new(),
    };
    reader.read_file(document);
    reader.tools
}

struct ToolReader<'r> {
    sources: &'r mut AgentSources,
    has_ask_human: bool,
    problems: &'r mut Vec<Problem>,
    /// The directory that imports must not lead out of: the agent's, or that of shared tools.
    root: PathBuf,
    /// The files on the way to the one that is being read, and itself.
    chain: Vec<PathBuf>,
    tools: Vec<Tool>,
    /// The names of these tools.
    names: HashSet<String>,
}

impl ToolReader<'_> {
    /// Adds the tools of a file: first those it imports, then its own.
    fn read_file(&mut self, document: &Document) {
        let section = Section::new(&document.root, vec![]);
        if self.chain.len() > 1 {
            section.warn_of_unknown_keys(&["tools", "imports", "mcp"]);
        }
        let imports = section.read_texts("imports").unwrap_or_default();
        let own = section.read_list("tools");
        document.report_all(&[], section.take_diagnostics(), self.problems);
        for (index, import) in imports.into_iter().enumerate() {
            let at = section.path_to_item("imports", index);
            match self.resolve(document, import) {
                Ok((real, root)) => {
                    let above = std::mem::replace(&mut self.root, root);
                    self.import(real);
                    self.root = above;
                }
                Err(why) => self.refuse(document, &at, format!("imports: {why}")),
            }
        }
        let mut names = HashSet::new();
        for (index, item) in own.into_iter().flatten().enumerate() {
            if let Some(name) = item.get("name").and_then(Value::as_str)
                && !names.insert(name)
            {
                let at = section.path_to_item("tools", index);
                let message = format!(
                    "tool \"{name}\": there are two tools of this name in this file; rename one"
                );
                self.refuse(document, &at, message);
            }
            self.add_tool(document, index, item);
        }
    }

    fn refuse(&mut self, document: &Document, at: &[Step], message: impl Into<String>) {
        let problem = document.problem_at(Severity::Error, at, message);
        self.problems.push(problem);
    }

    fn add_tool(&mut self, document: &Document, index: usize, item: &Value) {
        let at = [Step::Key("tools".to_owned()), Step::Item(index)];
        if !item.is_object() {
            let found = describe_value(item);
            let message = format!("tools: expected a mapping, found {found}");
            return self.refuse(document, &at, message);
        }
        let tool = match load::load(item) {
            Ok((tool, warnings)) => {
                document.report_all(&at, warnings, self.problems);
                tool
            }
            Err(diagnostics) => return document.report_all(&at, diagnostics, self.problems),
        };
        if tool.name == "ask_human" && self.has_ask_human {
            let message = "tool \"ask_human\": the engine has a tool of this name; rename it, or say \
                           ask_human: false";
            self.refuse(document, &at, message);
        }
        let places = &mut self.sources.tools;
        if !self.names.insert(tool.name.clone()) {
            self.tools.retain(|earlier| earlier.name != tool.name);
            places.retain(|earlier| earlier.name != tool.name);
        }
        places.push(ToolSource {
            name: tool.name.clone(),
            file: document.path.clone(),
            shown: document.shown.clone(),
            index,
        });
        self.tools.push(tool);
    }

    fn import(&mut self, real: PathBuf) {
        let shown = self.sources.shown_path(&self.name_of(&real));
        let Some(module) = Document::read(&real, shown, self.problems) else {
            return;
        };
        if !module.root.contains_key("tools") && !module.root.contains_key("imports") {
            let message = "a module has tools: or imports: at the top, and this one has neither";
            self.refuse(&module, &[], message);
        }
        self.chain.push(real);
        self.read_file(&module);
        self.chain.pop();
    }

    /// The real path of an imported file and the directory that it must not lead out of, or why it cannot be imported.
    fn resolve(&mut self, document: &Document, import: &str) -> Result<(PathBuf, PathBuf), String> {
        if import.is_empty() {
            return Err("it is empty; name a file".to_owned());
        }
        if Path::new(import).is_absolute() {
            return Err(format!(
                "{import} is an absolute path; a module lies below the agent's directory, and is named \
                 from the file that imports it"
            ));
        }
        let (root, beside) = match import.strip_prefix('@') {
            Some(name) => {
                let root = self.find_shared(name)?;
                let beside = root.join(name);
                (root, beside)
            }
            None => {
                let dir = document.path.parent().unwrap_or(&self.root);
                (self.root.clone(), dir.join(import))
            }
        };
        let outside = || match root == self.sources.home {
            true => Err(format!(
                "{import} is outside the agent's directory; copy it into it"
            )),
            false => Err(format!("{import} is outside {}", root.display())),
        };
        match beside.canonicalize() {
            Ok(real) if !real.starts_with(&root) => outside(),
            Ok(real) if !real.is_file() => Err(format!("{import} is not a file")),
            Ok(real) if self.chain.contains(&real) => {
                let names: Vec<String> = self
                    .chain
                    .iter()
                    .chain([&real])
                    .map(|path| self.name_of(path))
                    .collect();
                Err(format!("cycle: {}", names.join(" -> ")))
            }
            Ok(real) => match self.objection(&root, &real) {
                Some(why) => Err(why),
                None => Ok((real, root)),
            },
            Err(_) if leads_out_of(&root, &beside) => outside(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(format!(
                "{import} does not exist; create it, or remove the import"
            )),
            Err(e) => Err(format!("{import}: {}", crate::error::reason(&e))),
        }
    }

    /// The real path of the first directory of shared tools that has the first part of a path. Those are the person's
    /// choice and never the agent's; what lies in one stays in that one.
    fn find_shared(&mut self, path: &str) -> Result<PathBuf, String> {
        let (name, file) = path.split_once('/').unwrap_or((path, ""));
        if !person::is_name(name) || file.is_empty() || file.split('/').any(|part| part == "..") {
            return Err(format!("@{path} is not @NAME/FILE"));
        }
        if self.root != self.sources.home {
            return Ok(self.root.clone());
        }
        let dirs = person::search_dirs("DELTA_TOOLS", "tools").map_err(|error| error.message)?;
        let named = dirs.iter().filter(|(dir, _)| dir.join(name).is_dir());
        let mut real = named.filter_map(|(dir, _)| dir.canonicalize().ok());
        let found = real.find(|dir| {
            let why = self.objection(dir, &dir.join(name));
            self.problems.extend(why.iter().map(|why| Problem {
                severity: Severity::Warning,
                ..error_in(&dir.display().to_string(), format!("is ignored: {why}"))
            }));
            why.is_none()
        });
        found.ok_or_else(|| {
            let places: Vec<&str> = dirs.iter().map(|(_, place)| &**place).collect();
            let listed = places.join(", ");
            format!("there is no @{name} in {listed}; put it there, or set DELTA_TOOLS")
        })
    }

    /// The reason why something in a directory of shared tools does not count: others can write there.
    fn objection(&self, dir: &Path, path: &Path) -> Option<String> {
        let home = self.sources.home.as_path();
        let why = writers::objection_below(dir, path, &writers::trusted_users([home]));
        why.filter(|_| dir != home)
    }

    fn name_of(&self, path: &Path) -> String {
        path.strip_prefix(&self.sources.home)
            .unwrap_or(path)
            .display()
            .to_string()
    }
}

/// True if a path that is not there leads out of a directory.
fn leads_out_of(dir: &Path, path: &Path) -> bool {
    let below = path.strip_prefix(dir).ok().and_then(Path::to_str);
    below.is_some_and(leads_out)
}

/// True if a path goes further up than it has come down. Symbolic links are not looked at.
pub(super) fn leads_out(path: &str) -> bool {
    use std::path::Component;
    let mut depth = 0;
    Path::new(path).components().any(|component| {
        depth += match component {
            Component::ParentDir => -1,
            Component::Normal(_) => 1,
            _ => 0,
        };
        depth < 0
    })
}
