//! Tools, and the files that they are imported from.

use super::agent::{Problem, Severity};
use super::document::{Document, error_in};
use super::load::{Loader, Place};
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::definition::Tool;
use crate::config::tool::load;
use crate::text::yaml::Step;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Reads only the tools of a file with a top-level `tools:` and, perhaps, `imports:`. What it imports
/// lies below the agent that it is part of, or else below its own directory.
pub(crate) fn load_tools(file: &Path) -> (Vec<Tool>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut tools = Vec::new();
    let shown = file.display().to_string();
    if file.is_dir() {
        let message = "it is a directory; name a file in it, such as agent.yaml";
        problems.push(error_in(&shown, message));
        return (tools, problems);
    }
    if !file.is_file() {
        problems.push(error_in(&shown, "no such file"));
        return (tools, problems);
    }
    let dir = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    if let Some(mut loader) = Loader::new(&agent_around(dir, &real), &mut problems) {
        let path = real.join(file.file_name().unwrap_or_default());
        if let Some(document) = Document::read(&path, shown, loader.problems) {
            loader.tools_of(&document, &mut vec![path], &mut tools);
        }
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

impl Loader<'_> {
    /// Adds the tools of a file to `tools`: first those it imports, then its own. `chain` holds the
    /// files on the way to it, and itself.
    pub(super) fn tools_of(
        &mut self,
        document: &Document,
        chain: &mut Vec<PathBuf>,
        tools: &mut Vec<Tool>,
    ) {
        let mut out = Diagnostics::about("");
        let section = Section::new(&document.root, vec![]);
        if chain.len() > 1 {
            section.warn_of_unknown_keys(&["tools", "imports"], &mut out);
        }
        let imports = section.read_texts("imports", &mut out).unwrap_or_default();
        let own = section.read_list("tools", &mut out);
        document.report_all(&[], out.into_list(), self.problems);
        for (index, import) in imports.into_iter().enumerate() {
            let at = [Step::Key("imports".to_owned()), Step::Item(index)];
            self.import(document, import, &at, chain, tools);
        }
        let mut names: Vec<&str> = Vec::new();
        for (index, item) in own.into_iter().flatten().enumerate() {
            let at = [Step::Key("tools".to_owned()), Step::Item(index)];
            if !item.is_object() {
                let message = format!("tools: expected a mapping, found {}", describe_value(item));
                self.problems
                    .push(document.problem_at(Severity::Error, &at, message));
                continue;
            }
            if let Some(name) = item.get("name").and_then(Value::as_str) {
                if names.contains(&name) {
                    let message = format!(
                        "tool \"{name}\": there are two tools of this name in this file; rename one"
                    );
                    self.problems
                        .push(document.problem_at(Severity::Error, &at, message));
                }
                names.push(name);
            }
            match load::load(item) {
                Ok((tool, warnings)) => {
                    document.report_all(&at, warnings, self.problems);
                    if tool.name == "ask_human" && self.has_ask_human {
                        let message = "tool \"ask_human\": the engine has a tool of this name; \
                                       rename it, or say ask_human: false";
                        self.problems
                            .push(document.problem_at(Severity::Error, &at, message));
                    }
                    tools.retain(|earlier| earlier.name != tool.name);
                    self.found.tools.retain(|place| place.name != tool.name);
                    self.found.tools.push(Place {
                        name: tool.name.clone(),
                        file: document.path.clone(),
                        shown: document.shown.clone(),
                        index,
                    });
                    tools.push(tool);
                }
                Err(diagnostics) => document.report_all(&at, diagnostics, self.problems),
            }
        }
    }

    fn import(
        &mut self,
        document: &Document,
        import: &str,
        at: &[Step],
        chain: &mut Vec<PathBuf>,
        tools: &mut Vec<Tool>,
    ) {
        let beside = document
            .path
            .parent()
            .unwrap_or(&self.found.home)
            .join(import);
        let real = if import.is_empty() {
            Err("imports: it is empty; name a file".to_owned())
        } else if Path::new(import).is_absolute() {
            Err(format!(
                "imports: {import} is an absolute path; a module lies below the agent's directory, \
                 and is named from the file that imports it"
            ))
        } else {
            match beside.canonicalize() {
                Ok(real) if !real.starts_with(&self.found.home) => Err(format!(
                    "imports: {import} lies outside the agent's directory; copy it into it"
                )),
                Ok(real) if !real.is_file() => Err(format!("imports: {import} is not a file")),
                Ok(real) if chain.contains(&real) => {
                    let names = chain.iter().chain([&real]).map(|path| self.name_of(path));
                    Err(format!(
                        "imports: cycle: {}",
                        names.collect::<Vec<_>>().join(" -> ")
                    ))
                }
                Ok(real) => Ok(real),
                Err(_) if self.leads_out(&beside) => Err(format!(
                    "imports: {import} lies outside the agent's directory; copy it into it"
                )),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(format!(
                    "imports: {import} is not there; create it, or remove the import"
                )),
                Err(e) => Err(format!("imports: {import}: {}", crate::error::reason(&e))),
            }
        };
        let real = match real {
            Ok(real) => real,
            Err(message) => {
                self.problems
                    .push(document.problem_at(Severity::Error, at, message));
                return;
            }
        };
        let shown = self.found.shown(&self.name_of(&real));
        if let Some(module) = Document::read(&real, shown, self.problems) {
            if !module.root.contains_key("tools") && !module.root.contains_key("imports") {
                let message =
                    "a module has tools: or imports: at the top, and this one has neither";
                self.problems
                    .push(module.problem_at(Severity::Error, &[], message));
            }
            chain.push(real);
            self.tools_of(&module, chain, tools);
            chain.pop();
        }
    }

    /// Whether a path that is not there leads out of the agent's directory.
    fn leads_out(&self, path: &Path) -> bool {
        path.strip_prefix(&self.found.home)
            .is_ok_and(|below| below.to_str().is_some_and(leads_out))
    }

    fn name_of(&self, path: &Path) -> String {
        path.strip_prefix(&self.found.home)
            .unwrap_or(path)
            .display()
            .to_string()
    }
}

/// Whether a path goes further up than it has come down. Symbolic links are not looked at.
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
