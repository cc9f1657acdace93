//! `agent.yaml` and the files it imports.

use super::agent::{Agent, Context, Hook, Llm, Pricing, Problem, Severity, parse_word};
use super::context::at_least_one;
use super::document::{Document, error_in};
use super::{context, hooks, legacy};
use crate::config::environment::{APPENDED_PATH, has_appended_path};
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::argv_template::is_identifier;
use crate::config::tool::definition::Word;
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;

const KEYS: [&str; 17] = [
    "name",
    "version",
    "description",
    "llm",
    "system_prompt",
    "imports",
    "max_iterations",
    "max_output_bytes",
    "keep_requests",
    "limits",
    "tool_timeout_ms",
    "wrapper",
    "workspace_env",
    "tools",
    "ask_human",
    "sync",
    "pricing",
];

const LLM_KEYS: [&str; 5] = ["model", "base_url", "command", "timeout_ms", "max_retries"];

/// Where everything was that makes an agent, for whoever wants to say more about it.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The agent's directory, with symbolic links resolved.
    pub home: PathBuf,
    /// The same as the person wrote it.
    pub dir: PathBuf,
    /// The name of the main file in it.
    pub main_file: String,
    /// The system prompt's path below it.
    pub prompt: String,
    /// The tools that the model is offered.
    pub tools: Vec<Place>,
}

/// Where a tool is defined.
#[derive(Debug)]
pub(crate) struct Place {
    /// The tool's name.
    pub name: String,
    /// The file, absolute.
    pub file: PathBuf,
    /// How messages call the file.
    pub shown: String,
    /// Which item of its `tools:`, from 0.
    pub index: usize,
}

/// Reads an agent's directory. The agent is there if none of the problems is an error.
pub(crate) fn load(dir: &Path) -> (Option<Agent>, Vec<Problem>) {
    load_with(dir, &Map::new())
}

/// The same as [`load`], with some keys of the main file set otherwise.
pub(crate) fn load_with(dir: &Path, set: &Map<String, Value>) -> (Option<Agent>, Vec<Problem>) {
    let (agent, problems, _) = survey_with(dir, set);
    (agent, problems)
}

/// The same as [`load`], with the places of what was read.
pub(crate) fn survey(dir: &Path) -> (Option<Agent>, Vec<Problem>, Found) {
    survey_with(dir, &Map::new())
}

fn survey_with(dir: &Path, set: &Map<String, Value>) -> (Option<Agent>, Vec<Problem>, Found) {
    let mut problems = Vec::new();
    let mut found = Found::default();
    let mut agent = None;
    if let Some(mut loader) = Loader::new(dir, &mut problems) {
        agent = loader.agent(set);
        found = loader.found;
    }
    super::agent::sort_problems(&mut problems);
    let fatal = problems.iter().any(|p| p.severity == Severity::Error);
    (agent.filter(|_| !fatal), problems, found)
}

pub(super) struct Loader<'p> {
    pub(super) found: Found,
    /// Whether the engine's own tool is there.
    pub(super) has_ask_human: bool,
    pub(super) problems: &'p mut Vec<Problem>,
}

impl Found {
    /// A file of the agent, as the person would name it.
    pub(crate) fn shown(&self, name: &str) -> String {
        if self.dir == Path::new(".") {
            name.to_owned()
        } else {
            self.dir.join(name).display().to_string()
        }
    }
}

impl<'p> Loader<'p> {
    pub(super) fn new(dir: &Path, problems: &'p mut Vec<Problem>) -> Option<Self> {
        let shown = dir.display().to_string();
        let home = match dir.canonicalize() {
            Ok(home) if home.is_dir() => home,
            Ok(_) => {
                problems.push(error_in(&shown, "no agent here: it is not a directory"));
                return None;
            }
            Err(e) => {
                let reason = crate::error::reason(&e);
                problems.push(error_in(&shown, format!("no agent here: {reason}")));
                return None;
            }
        };
        if home.to_str().is_none() {
            problems.push(error_in(&shown, "the agent's path is not UTF-8"));
            return None;
        }
        let found = Found {
            home,
            dir: dir.to_owned(),
            ..Found::default()
        };
        Some(Self {
            found,
            has_ask_human: false,
            problems,
        })
    }

    fn agent(&mut self, set: &Map<String, Value>) -> Option<Agent> {
        let path = legacy::main_file(&self.found, self.problems);
        if !path.exists() {
            let message = "no agent here: agent.yaml is not there; `delta init` makes one";
            let at = self.found.dir.display().to_string();
            self.problems.push(error_in(&at, message));
            return None;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.found.main_file = name.into_owned();
        let shown = self.found.shown(&self.found.main_file);
        let Some(mut document) = Document::read(&path, shown, self.problems) else {
            // What is wrong with the other files is told all the same.
            self.hooks(None);
            self.context("system_prompt.md");
            return None;
        };
        let llm_key = legacy::rewrite_llm(&mut document, self.problems);
        document.apply_settings(set, self.problems);
        let hooks = self.hooks(Some(&mut document));
        self.has_ask_human = document.root.get("ask_human") != Some(&Value::Bool(false));
        let mut tools = Vec::new();
        self.tools_of(&document, &mut vec![path], &mut tools);
        self.found.prompt = self.prompt(&document);
        let prompt = self.found.prompt.clone();
        let context = self.context(&prompt);

        let mut out = Diagnostics::about("");
        let section = Section::new(&document.root, vec![]);
        section.warn_of_unknown_keys(&KEYS, &mut out);
        let name = required_text(&section, "name", "what the agent is called", &mut out);
        let llm = llm(&section, llm_key, &mut out);
        let limits = Section::new(
            section.read_mapping("limits", &mut out).unwrap_or(&EMPTY),
            vec![Step::Key("limits".to_owned())],
        )
        .within("limits");
        limits.warn_of_unknown_keys(&["tokens", "seconds"], &mut out);
        let version = match document.root.get("version") {
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => section.read_text("version", &mut out).map(str::to_owned),
        };
        let max_iterations = at_least_one(&section, "max_iterations", 30, &mut out);
        let max_output_bytes = at_least_one(&section, "max_output_bytes", 30_000, &mut out);
        let keep_requests = section.read_count("keep_requests", &mut out).unwrap_or(50) as usize;
        let limit_tokens = limits.read_count("tokens", &mut out).unwrap_or(0);
        let limit_seconds = limits.read_count("seconds", &mut out).unwrap_or(0);
        let tool_timeout_ms = section
            .read_count("tool_timeout_ms", &mut out)
            .unwrap_or(600_000);
        let wrapper = words(&section, "wrapper", &mut out);
        let ask_human = section.read_flag("ask_human", &mut out).unwrap_or(true);
        let sync = section.read_flag("sync", &mut out).unwrap_or(true);
        let workspace_env = workspace_env(&section, &mut out);
        let pricing = pricing(&section, &mut out);
        let description = section
            .read_text("description", &mut out)
            .map(str::to_owned);
        document.report_all(&[], out.into_list(), self.problems);
        Some(Agent {
            home: self.found.home.clone(),
            name: name?,
            version,
            description,
            llm: llm?,
            max_iterations,
            max_output_bytes,
            keep_requests,
            limit_tokens,
            limit_seconds,
            tool_timeout: (tool_timeout_ms > 0).then(|| Duration::from_millis(tool_timeout_ms)),
            wrapper,
            tools,
            ask_human,
            sync,
            workspace_env,
            pricing,
            context: context?,
            hooks,
        })
    }

    fn context(&mut self, prompt: &str) -> Option<Context> {
        let shown = self.found.shown("context.yaml");
        context::load(&self.found.home, shown, prompt, self.problems)
    }

    /// The hooks of hooks.yaml, or of a main file that is older.
    fn hooks(&mut self, main: Option<&mut Document>) -> Vec<Hook> {
        let [old_key, _] = legacy::OLD_HOOKS;
        let path = self.found.home.join("hooks.yaml");
        let is_there = path.exists();
        let message = if is_there {
            "lifecycle_hooks are passed over, because hooks.yaml is there; remove them"
        } else {
            "lifecycle_hooks belong into hooks.yaml now, without this key around them"
        };
        let mut all = Vec::new();
        if let Some(main) = main
            && let Some(map) = legacy::take_hooks(main, old_key, message, self.problems)
            && !is_there
        {
            let below = [Step::Key(old_key.to_owned())];
            all = hooks::load(main, &map, &below, self.problems);
        }
        if !is_there {
            return all;
        }
        let shown = self.found.shown("hooks.yaml");
        let Some(mut file) = Document::read(&path, shown, self.problems) else {
            return all;
        };
        for key in legacy::OLD_HOOKS {
            let message = format!("the hooks stand at the top now, without {key} around them");
            if let Some(map) = legacy::take_hooks(&mut file, key, &message, self.problems) {
                let below = [Step::Key(key.to_owned())];
                all.extend(hooks::load(&file, &map, &below, self.problems));
            }
        }
        all.extend(hooks::load(&file, &file.root, &[], self.problems));
        all
    }

    /// The system prompt's path below the agent's directory; it must be there.
    fn prompt(&mut self, document: &Document) -> String {
        const DEFAULT: &str = "system_prompt.md";
        const OLD_DEFAULT: &str = "system_prompt.txt";
        let section = Section::new(&document.root, vec![]);
        let at = section.path_to("system_prompt");
        let given = document.root.get("system_prompt").and_then(Value::as_str);
        let name = match given {
            Some(name) => name,
            None if !self.found.home.join(DEFAULT).exists()
                && self.found.home.join(OLD_DEFAULT).exists() =>
            {
                let message = format!(
                    "the prompt's file is called {DEFAULT} now; rename it, or say system_prompt: {OLD_DEFAULT}"
                );
                self.problems
                    .push(document.problem_at(Severity::Deprecation, &at, message));
                OLD_DEFAULT
            }
            None => DEFAULT,
        };
        let path = self.found.home.join(name);
        let leads_out = super::imports::leads_out(name) || !self.is_inside(&path) && path.exists();
        if given.is_none() && document.root.contains_key("system_prompt") {
            let found = describe_value(&document.root["system_prompt"]);
            let message = format!("system_prompt: expected a string, found {found}");
            self.problems
                .push(document.problem_at(Severity::Error, &at, message));
        } else if leads_out || !path.is_file() {
            let what = match (leads_out, path.exists()) {
                (true, _) => "lies outside the agent's directory; put it inside",
                (_, true) => "is not a file",
                _ => "is not there; create it",
            };
            let message = format!("system_prompt: {name} {what}");
            self.problems
                .push(document.problem_at(Severity::Error, &at, message));
        }
        name.to_owned()
    }

    fn is_inside(&self, path: &Path) -> bool {
        path.canonicalize()
            .is_ok_and(|real| real.starts_with(&self.found.home))
    }
}

static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// `key` is where it stands in the file.
fn llm(section: &Section<'_>, key: &str, out: &mut Diagnostics) -> Option<Llm> {
    let at = vec![Step::Key(key.to_owned())];
    let Some(value) = section.map.get("llm") else {
        out.error(vec![], "llm: missing; it names the model: llm: {model: …}");
        return None;
    };
    let Value::Object(map) = value else {
        let found = describe_value(value);
        out.error(at, format!("{key}: expected a mapping, found {found}"));
        return None;
    };
    let section = Section::new(map, at.clone()).within("llm");
    let url = map.get("base_url").and_then(Value::as_str);
    if url.is_some_and(has_appended_path) {
        out.error(
            section.path_to("base_url"),
            format!("llm: base_url: {APPENDED_PATH}"),
        );
    }
    of_model(&section, at, out)
}

/// The settings of a model, wherever they stand.
pub(crate) fn of_model(llm: &Section<'_>, at: Vec<Step>, out: &mut Diagnostics) -> Option<Llm> {
    let map = llm.map;
    let command = map
        .contains_key("command")
        .then(|| context::command(llm, out));
    let model = llm.read_text("model", out);
    if model.is_some_and(|model| model.trim().is_empty()) {
        out.error(llm.path_to("model"), "llm: model: it is empty; name one");
    }
    if model.is_none() && command.is_none() && !map.contains_key("model") {
        out.error(
            at,
            "llm: model: missing; name one, or make a program the model with command: […]",
        );
    }
    let base_url = llm.read_text("base_url", out);
    if let Some(url) = base_url
        && !url.starts_with("http://")
        && !url.starts_with("https://")
    {
        out.error(
            llm.path_to("base_url"),
            format!("llm: base_url: '{url}' does not begin with http:// or https://"),
        );
    }
    let reserved = [
        (
            "api_key",
            "keys belong into the environment, as DELTA_API_KEY",
        ),
        ("messages", "context.yaml says what the model sees"),
        ("tools", "tools belong at the top of the file"),
    ];
    for (key, reason) in reserved {
        if map.contains_key(key) {
            out.error(llm.path_to(key), format!("llm: {key}: {reason}"));
        }
    }
    if map.get("stream") == Some(&Value::Bool(true)) {
        out.error(
            llm.path_to("stream"),
            "llm: stream: answers are read whole; leave it out",
        );
    }
    let parameters = map
        .iter()
        .filter(|(key, _)| !LLM_KEYS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Some(Llm {
        model: model.map(str::to_owned),
        parameters,
        base_url: base_url.map(str::to_owned),
        command: match command {
            Some(command) => Some(command?),
            None => None,
        },
        timeout: Duration::from_millis(at_least_one(llm, "timeout_ms", 600_000, out)),
        max_retries: llm.read_count("max_retries", out).unwrap_or(8).min(1000) as u32,
    })
}

fn workspace_env(section: &Section<'_>, out: &mut Diagnostics) -> Option<Vec<String>> {
    let entries = section.read_texts("workspace_env", out)?;
    for (index, entry) in entries.iter().enumerate() {
        let name = entry.strip_suffix('*').unwrap_or(entry);
        if !is_identifier(name) {
            let at = [section.path_to("workspace_env"), vec![Step::Item(index)]].concat();
            let message = format!(
                "workspace_env: '{entry}' is neither a variable's name nor a prefix such as APP_*"
            );
            out.error(at, message);
        }
    }
    Some(entries.into_iter().map(str::to_owned).collect())
}

fn pricing(section: &Section<'_>, out: &mut Diagnostics) -> Option<Pricing> {
    let map = section.read_mapping("pricing", out)?;
    let section = Section::new(map, vec![Step::Key("pricing".to_owned())]).of("pricing");
    section.warn_of_unknown_keys(&["input", "output", "cached"], out);
    for key in ["input", "output"] {
        if !map.contains_key(key) {
            let message = format!("pricing: {key} is missing; prices are per million tokens");
            out.error(section.path_to(key), message);
        }
    }
    Some(Pricing {
        input: section.read_amount("input", out).unwrap_or_default(),
        output: section.read_amount("output", out).unwrap_or_default(),
        cached: section.read_amount("cached", out),
    })
}

fn required_text(
    section: &Section<'_>,
    key: &str,
    what: &str,
    out: &mut Diagnostics,
) -> Option<String> {
    if !section.map.contains_key(key) {
        out.error(vec![], format!("{key}: missing; it says {what}"));
    }
    let text = section.read_text(key, out)?;
    if text.trim().is_empty() {
        let message = format!("{key}: it is empty; it says {what}");
        out.error(section.path_to(key), message);
    }
    Some(text.to_owned())
}

fn words(section: &Section<'_>, key: &str, out: &mut Diagnostics) -> Vec<Word> {
    let texts = section.read_texts(key, out).unwrap_or_default();
    texts.into_iter().map(parse_word).collect()
}
