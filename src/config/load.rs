//! `agent.yaml` and the files it imports.

use super::acceptance::{Acceptance, OutputSchema, read_schema};
use super::agent::{AGENT, Agent, Context, Hook, Problem, Severity, Source};
#[cfg(feature = "flow")]
use super::agent::{LIMITS_KEY, StartLimits};
use super::document::{Document, error_in};
use super::imports::{leads_out, read_tools};
use super::llm::read_llm;
use super::pricing::{Budget, FlatPrices, PriceList, check_prices, model_of_file};
use super::sources::AgentSources;
use super::{context, hooks, legacy};
#[cfg(feature = "flow")]
use crate::config::keys::KeyValue;
use crate::config::keys::names;
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::config::tool::argv_template::is_identifier;
use crate::config::tool::definition::{Confirm, Tool};
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

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
pub(crate) fn survey(dir: &Path) -> (Option<Agent>, Vec<Problem>, AgentSources) {
    survey_with(dir, &Map::new())
}

fn survey_with(
    dir: &Path,
    set: &Map<String, Value>,
) -> (Option<Agent>, Vec<Problem>, AgentSources) {
    let mut problems = Vec::new();
    let mut sources = AgentSources::default();
    let mut agent = None;
    if let Some(found) = AgentSources::open(dir, &mut problems) {
        let mut loader = Loader {
            sources: found,
            problems: &mut problems,
        };
        agent = loader.agent(set);
        sources = loader.sources;
    }
    super::agent::sort_problems(&mut problems);
    let is_fatal = problems.iter().any(|p| p.severity == Severity::Error);
    (agent.filter(|_| !is_fatal), problems, sources)
}

struct Loader<'p> {
    sources: AgentSources,
    problems: &'p mut Vec<Problem>,
}

/// The parts of an agent that are read before the keys of the main file.
struct Parts {
    home: PathBuf,
    /// The key that `llm` is written under.
    llm_key: &'static str,
    /// The model that the file names, and whether that is the one that is asked.
    model: (Option<String>, bool),
    /// The prices come with the command line.
    has_given_prices: bool,
    tools: Vec<Tool>,
    context: Context,
    hooks: Vec<Hook>,
    schema: Option<OutputSchema>,
}

impl Loader<'_> {
    fn agent(&mut self, set: &Map<String, Value>) -> Option<Agent> {
        let path = legacy::main_file(&self.sources, self.problems);
        if !path.exists() {
            let message = "no agent here: agent.yaml does not exist; `delta init` makes one";
            let at = self.sources.dir.display().to_string();
            self.problems.push(error_in(&at, message));
            return None;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.sources.main_file = name.into_owned();
        let shown = self.sources.shown_path(&self.sources.main_file);
        let Some(mut document) = Document::read(&path, shown, self.problems) else {
            // The other files are checked all the same.
            self.hooks(None);
            self.context("system_prompt.md");
            return None;
        };
        let llm_key = legacy::rewrite_llm(&mut document, self.problems);
        let model = model_of_file(&document.root);
        document.apply_settings(set, self.problems);
        let hooks = self.hooks(Some(&mut document));
        let has_ask_human = document.root.get("ask_human") != Some(&Value::Bool(false));
        let tools = read_tools(&document, &mut self.sources, has_ask_human, self.problems);
        let found = self.problems.len();
        let prompt = self.prompt(&document);
        let is_prompt_usable = self.problems.len() == found;
        self.sources.prompt.clone_from(&prompt);
        // Without one there is no agent.
        let context = self.context(&prompt).unwrap_or_default();
        if is_prompt_usable && document.root.contains_key("system_prompt") {
            self.check_prompt_is_shown(&document, &context);
        }
        let schema = self.output_schema(&document, set);
        self.sources.schema.clone_from(&schema);
        let parts = Parts {
            home: self.sources.home.clone(),
            llm_key,
            model: (model, set.is_empty()),
            has_given_prices: set.contains_key("pricing"),
            tools,
            context,
            hooks,
            schema,
        };
        let mut out = Diagnostics::about("");
        let agent = read_agent(&Section::new(&document.root, vec![]), parts, &mut out);
        document.report_all(&[], out.into_list(), self.problems);
        Some(agent)
    }

    fn context(&mut self, prompt: &str) -> Option<Context> {
        let shown = self.sources.shown_path("context.yaml");
        context::load(&self.sources.home, shown, prompt, self.problems)
    }

    /// The hooks of hooks.yaml, or of a main file that is older.
    fn hooks(&mut self, main: Option<&mut Document>) -> Vec<Hook> {
        let [old_key, _] = legacy::OLD_HOOKS;
        let path = self.sources.home.join("hooks.yaml");
        let is_there = path.exists();
        let message = if is_there {
            "lifecycle_hooks are ignored, because hooks.yaml exists; remove them"
        } else {
            "lifecycle_hooks belong in hooks.yaml now, without this key around them"
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
        let shown = self.sources.shown_path("hooks.yaml");
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
        if hooks::sees_compactions(&file) {
            for hook in &mut all {
                hook.sees_compactions = true;
            }
        }
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
            None if !self.sources.home.join(DEFAULT).exists()
                && self.sources.home.join(OLD_DEFAULT).exists() =>
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
        let path = self.sources.home.join(name);
        let leads_out = leads_out(name) || !self.is_inside(&path) && path.exists();
        if given.is_none() && document.root.contains_key("system_prompt") {
            let found = describe_value(&document.root["system_prompt"]);
            let message = format!("system_prompt: expected a string, found {found}");
            self.problems
                .push(document.problem_at(Severity::Error, &at, message));
        } else if leads_out || !path.is_file() {
            let what = match (leads_out, path.exists()) {
                (true, _) => "is outside the agent's directory; put it inside",
                (_, true) => "is not a file",
                _ => "does not exist; create it",
            };
            let message = format!("system_prompt: {name} {what}");
            self.problems
                .push(document.problem_at(Severity::Error, &at, message));
        }
        name.to_owned()
    }

    /// A prompt that is chosen must be in the model's sight; generated blocks may hold it.
    fn check_prompt_is_shown(&mut self, document: &Document, context: &Context) {
        const KEY: &str = "system_prompt";
        let (home, name) = (&self.sources.home, &self.sources.prompt);
        let is_shown = |source: &Source| match source {
            Source::File { path, .. } => context::is_same_file(path, home, name),
            _ => false,
        };
        let sources = &context.sources;
        if sources.is_empty() || sources.iter().any(is_shown) {
            return;
        }
        let is_generated = |source: &Source| matches!(source, Source::Computed { .. });
        let (severity, may) = if sources.iter().any(is_generated) {
            (Severity::Warning, "may not see")
        } else {
            (Severity::Error, "does not see")
        };
        let message = format!(
            "{KEY}: no file source of context.yaml shows {name}, so the model {may} it; give one the path \
             '${{{}}}'",
            context::SYSTEM_PROMPT
        );
        let at = Section::new(&document.root, vec![]).path_to(KEY);
        self.problems
            .push(document.problem_at(severity, &at, message));
    }

    /// The schema of the answer: a file below the agent's directory; one that overrides it may be any.
    fn output_schema(
        &mut self,
        document: &Document,
        set: &Map<String, Value>,
    ) -> Option<OutputSchema> {
        const KEY: &str = "output_schema";
        let section = Section::new(&document.root, vec![]);
        let mut out = Diagnostics::about("");
        let name = section.read_text(KEY, &mut out);
        document.report_all(&[], out.into_list(), self.problems);
        let name = name?;
        let path = self.sources.home.join(name);
        let is_any = set.contains_key(KEY) && Path::new(name).is_absolute();
        let leads_out = leads_out(name) || !self.is_inside(&path) && path.exists();
        let read = match leads_out && !is_any {
            true => Err(format!(
                "{name} is outside the agent's directory; put it inside, or name it with --output-schema"
            )),
            false => read_schema(&path, name),
        };
        let at = section.path_to(KEY);
        let problem =
            |why: &str| document.problem_at(Severity::Error, &at, format!("output_schema: {why}"));
        match read {
            Ok(text) => {
                let Problem { file, line, .. } = problem("");
                Some(OutputSchema {
                    name: name.to_owned(),
                    text,
                    place: (file, line.filter(|_| !set.contains_key(KEY))),
                })
            }
            Err(why) => {
                self.problems.push(problem(&why));
                None
            }
        }
    }

    fn is_inside(&self, path: &Path) -> bool {
        path.canonicalize()
            .is_ok_and(|real| real.starts_with(&self.sources.home))
    }
}

/// Reads the keys of the main file.
fn read_agent(section: &Section<'_>, mut parts: Parts, out: &mut Diagnostics) -> Agent {
    section.warn_of_unknown_keys(&names(AGENT), out);
    let name = required_text(section, "name", "the agent's name", out);
    let llm = read_llm(section, parts.llm_key, &parts.home, out);
    let (model, is_asked) = parts.model;
    let flat = match parts.has_given_prices {
        true => FlatPrices::InForce,
        false => FlatPrices::OfFile(model.as_deref()),
    };
    let prices = PriceList::read(section, flat, out);
    let budget = Budget::read(section, out);
    // Another model is checked when it is started, with the budget that holds then.
    if is_asked && llm.has_model() {
        check_prices(&budget, &prices, model.as_deref(), out);
    }
    override_confirm(section, &mut parts.tools, out);
    let mut agent = Agent {
        home: parts.home,
        name: name.unwrap_or_default(),
        llm,
        tools: parts.tools,
        prices,
        budget,
        acceptance: Acceptance::read(section, parts.schema, out),
        context: parts.context,
        hooks: parts.hooks,
        ..Agent::default()
    };
    agent.read_keys(section, out);
    if agent.compact.is_some() && agent.context.window().is_some() {
        let message = "compact: context.yaml shortens the conversation, too, with max_iterations of its journal; omit one";
        out.error(section.path_to("compact"), message);
    }
    check_workspace_env(section, &agent, out);
    agent
}

/// Says what is wrong with the keys that bind a run of an agent, in another file. `model` is
/// the model of that file, if it names one.
#[cfg(feature = "flow")]
pub(crate) fn check_limits(section: &Section<'_>, model: Option<&str>, out: &mut Diagnostics) {
    StartLimits::read(section, &LIMITS_KEY, out);
    section.at_least_one("max_iterations", out);
    let prices = PriceList::read(section, FlatPrices::OfFile(model), out);
    let budget = Budget::read(section, out);
    if model.is_some() {
        check_prices(&budget, &prices, model, out);
    }
    Acceptance::read(section, None, out);
}

/// Applies the key `confirm`, which decides for all tools whether a person is asked.
fn override_confirm(section: &Section<'_>, tools: &mut [Tool], out: &mut Diagnostics) {
    let named = match section.map.get("confirm") {
        None => return,
        Some(Value::String(word)) if word == "all" => None,
        Some(Value::String(word)) if word == "none" => Some(Vec::new()),
        Some(Value::Array(_)) => match section.read_texts("confirm", out) {
            Some(names) => Some(names),
            None => return,
        },
        Some(other) => {
            let found = describe_value(other);
            let message = format!("confirm: expected all, none or a list of tools, found {found}");
            return out.error(section.path_to("confirm"), message);
        }
    };
    for (index, name) in named.iter().flatten().enumerate() {
        if tools.iter().any(|tool| tool.name == *name) {
            continue;
        }
        let meant = nearest(name, tools.iter().map(|tool| tool.name.as_str()));
        let hint = meant.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
        let at = [section.path_to("confirm"), vec![Step::Item(index)]].concat();
        out.error(at, format!("confirm: there is no tool '{name}'{hint}"));
    }
    for tool in tools {
        let is_named = named
            .as_ref()
            .is_none_or(|names| names.contains(&tool.name.as_str()));
        match (is_named, &tool.confirm) {
            (false, _) => tool.confirm = Confirm::No,
            (true, Confirm::No) => tool.confirm = Confirm::Yes,
            (true, Confirm::Yes | Confirm::Sentence(_)) => {}
        }
    }
}

fn check_workspace_env(section: &Section<'_>, agent: &Agent, out: &mut Diagnostics) {
    for (index, entry) in agent.workspace_env.iter().flatten().enumerate() {
        let name = entry.strip_suffix('*').unwrap_or(entry);
        if !is_identifier(name) {
            let at = [section.path_to("workspace_env"), vec![Step::Item(index)]].concat();
            let message = format!(
                "workspace_env: '{entry}' is neither a variable's name nor a prefix such as APP_*"
            );
            out.error(at, message);
        }
    }
}

fn required_text(
    section: &Section<'_>,
    key: &str,
    what: &str,
    out: &mut Diagnostics,
) -> Option<String> {
    if !section.map.contains_key(key) {
        out.error(vec![], format!("{key}: missing; it is {what}"));
    }
    let text = section.read_text(key, out)?;
    if text.trim().is_empty() {
        let message = format!("{key}: it is empty; it should be {what}");
        out.error(section.path_to(key), message);
    }
    Some(text.to_owned())
}
