//! `agent.yaml` and the files it imports.

use super::acceptance::{Acceptance, OutputSchema, read_schema};
use super::agent::{AGENT, Agent, Context, Hook, Problem, Severity, Source};
#[cfg(feature = "flow")]
use super::agent::{LIMITS_KEY, StartLimits};
use super::document::{Document, error_in};
use super::imports::{leads_out, read_tools};
use super::llm::read_llm;
use super::prices::has_own_price;
use super::pricing::{Budget, FlatPrices, PriceList, check_prices, model_of_file};
use super::sources::AgentSources;
use super::{context, hooks, legacy, person};
#[cfg(feature = "flow")]
use crate::config::keys::KeyValue;
use crate::config::keys::names;
use crate::config::section::{Section, describe_value};
use crate::config::tool::argv_template::is_identifier;
use crate::config::tool::definition::{Confirm, Tool};
use crate::text::suggestion::nearest;
use crate::text::yaml::Step;
use crate::unix::files;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Reads an agent's directory. The agent is there if none of the problems is an error.
pub(crate) fn load(dir: &Path) -> (Option<Agent>, Vec<Problem>) {
    load_with(dir, &Map::new())
}

/// Does what [`load`] does, with some keys of the main file set otherwise.
pub(crate) fn load_with(dir: &Path, set: &Map<String, Value>) -> (Option<Agent>, Vec<Problem>) {
    let (agent, problems, _) = survey_with(dir, set);
    (agent, problems)
}

/// Does what [`load`] does, and returns the places of what was read.
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
        let name = files::name_of(&path);
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
        let section = Section::new(&document.root, vec![]);
        let agent = read_agent(&section, parts);
        document.report_all(&[], section.take_diagnostics(), self.problems);
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
        let given = document.root.get("system_prompt");
        let home = &self.sources.home;
        let name = match given.and_then(Value::as_str) {
            Some(name) => name,
            None if !home.join(DEFAULT).exists() && home.join(OLD_DEFAULT).exists() => {
                let message = format!(
                    "the prompt's file is called {DEFAULT} now; rename it, or say system_prompt: {OLD_DEFAULT}"
                );
                self.say(document, Severity::Deprecation, message);
                OLD_DEFAULT
            }
            None => DEFAULT,
        };
        let path = self.sources.home.join(name);
        let fault = match given.filter(|given| !given.is_string()) {
            Some(other) => format!("expected a string, found {}", describe_value(other)),
            None if self.leads_out(name) => {
                format!("{name} is outside the agent's directory; put it inside")
            }
            None if path.is_file() => return name.to_owned(),
            None if path.exists() => format!("{name} is not a file"),
            None => format!("{name} does not exist; create it"),
        };
        self.say(document, Severity::Error, format!("system_prompt: {fault}"));
        name.to_owned()
    }

    /// Adds a problem with the key `system_prompt`.
    fn say(&mut self, document: &Document, severity: Severity, message: String) {
        let at = Section::new(&document.root, vec![]).path_to("system_prompt");
        self.problems
            .push(document.problem_at(severity, &at, message));
    }

    /// True if a file below the agent's directory would lie outside of it.
    fn leads_out(&self, name: &str) -> bool {
        let path = self.sources.home.join(name);
        let real = path.canonicalize();
        let is_inside = real.is_ok_and(|real| real.starts_with(&self.sources.home));
        leads_out(name) || !is_inside && path.exists()
    }

    /// A prompt that is chosen must be in the model's sight; generated blocks may hold it.
    fn check_prompt_is_shown(&mut self, document: &Document, context: &Context) {
        let (home, name) = (&self.sources.home, &self.sources.prompt);
        let is_shown = |source: &Source| match source {
            Source::File { path, .. } => context::is_same_file(path, home, name),
            _ => false,
        };
        let sources = &context.sources;
        if sources.is_empty() || sources.iter().any(is_shown) {
            return;
        }
        let is_generated = |source: &Source| matches!(source, Source::Computed(_));
        let (severity, may) = if sources.iter().any(is_generated) {
            (Severity::Warning, "may not see")
        } else {
            (Severity::Error, "does not see")
        };
        let message = format!(
            "system_prompt: no file source of context.yaml shows {name}, so the model {may} it; give one the path \
             '${{{}}}'",
            context::SYSTEM_PROMPT
        );
        self.say(document, severity, message);
    }

    /// The schema of the answer: a file below the agent's directory; one that overrides it may be any.
    fn output_schema(
        &mut self,
        document: &Document,
        set: &Map<String, Value>,
    ) -> Option<OutputSchema> {
        const KEY: &str = "output_schema";
        let section = Section::new(&document.root, vec![]);
        let name = section.read_text(KEY);
        document.report_all(&[], section.take_diagnostics(), self.problems);
        let name = name?;
        let path = self.sources.home.join(name);
        let is_any = set.contains_key(KEY) && Path::new(name).is_absolute();
        let read = if self.leads_out(name) && !is_any {
            Err(format!(
                "{name} is outside the agent's directory; put it inside, or name it with --output-schema"
            ))
        } else {
            read_schema(&path, name)
        };
        let at = section.path_to(KEY);
        match read {
            Ok(schema) => Some(OutputSchema {
                name: name.to_owned(),
                schema,
            }),
            Err(why) => {
                let message = format!("output_schema: {why}");
                let mut problem = document.problem_at(Severity::Error, &at, message);
                // The file was named elsewhere than in agent.yaml.
                problem.line = problem.line.filter(|_| !set.contains_key(KEY));
                self.problems.push(problem);
                None
            }
        }
    }
}

/// Reads the keys of the main file.
fn read_agent(section: &Section, mut parts: Parts) -> Agent {
    section.warn_of_unknown_keys(&names(AGENT));
    let name = read_name(section);
    let llm = read_llm(section, parts.llm_key, &parts.home);
    let (model, is_asked) = parts.model;
    let flat = if parts.has_given_prices {
        FlatPrices::InForce
    } else {
        FlatPrices::OfFile(model.as_deref())
    };
    let prices = PriceList::read(section, flat);
    let budget = Budget::read(section);
    // Another model is checked when it is started, with the budget that holds then.
    // The endpoint is not known yet: a price of the person's at any host may be the one.
    let is_unpriced = || !has_own_price(model.as_deref());
    if is_asked && llm.has_model() && budget.cost.is_some() && is_unpriced() {
        check_prices(section, &budget, &prices, model.as_deref());
    }
    override_confirm(section, &mut parts.tools);
    let mut agent = Agent {
        visible_home: person::visible_home(&parts.home),
        home: parts.home,
        name: name.unwrap_or_default(),
        llm,
        tools: parts.tools,
        prices,
        budget,
        acceptance: Acceptance::read(section, parts.schema),
        context: parts.context,
        hooks: parts.hooks,
        ..Agent::default()
    };
    agent.read_keys(section);
    if agent.compact.is_some() && agent.context.window().is_some() {
        let message = "compact: context.yaml shortens the conversation, too, with max_iterations of its journal; omit one";
        section.error("compact", message);
    }
    check_workspace_env(section, &agent);
    agent
}

/// Says what is wrong with the keys that bind a run of an agent, in another file. `model` is
/// the model of that file, if it names one.
#[cfg(feature = "flow")]
pub(crate) fn check_limits(section: &Section, model: Option<&str>) {
    StartLimits::read(section, &LIMITS_KEY);
    section.at_least_one("max_iterations");
    let prices = PriceList::read(section, FlatPrices::OfFile(model));
    let budget = Budget::read(section);
    if model.is_some() {
        check_prices(section, &budget, &prices, model);
    }
    Acceptance::read(section, None);
}

/// Applies the key `confirm`, which decides for all tools whether a person is asked.
fn override_confirm(section: &Section, tools: &mut [Tool]) {
    let named = match section.map.get("confirm") {
        None => return,
        Some(Value::String(word)) if word == "all" => None,
        Some(Value::String(word)) if word == "none" => Some(Vec::new()),
        Some(Value::Array(_)) => match section.read_texts("confirm") {
            Some(names) => Some(names),
            None => return,
        },
        Some(_) => return section.mismatch("confirm", "all, none or a list of tools"),
    };
    for (index, name) in named.iter().flatten().enumerate() {
        if tools.iter().any(|tool| tool.name == *name) {
            continue;
        }
        let meant = nearest(name, tools.iter().map(|tool| tool.name.as_str()));
        let hint = meant.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
        let at = section.path_to_item("confirm", index);
        section.error_at(at, format!("confirm: there is no tool '{name}'{hint}"));
    }
    for tool in tools {
        let is_named = named
            .as_ref()
            .is_none_or(|names| names.contains(&tool.name.as_str()));
        if !is_named {
            tool.confirm = Confirm::No;
        } else if tool.confirm == Confirm::No {
            tool.confirm = Confirm::Yes;
        }
    }
}

fn check_workspace_env(section: &Section, agent: &Agent) {
    for (index, entry) in agent.workspace_env.iter().flatten().enumerate() {
        let name = entry.strip_suffix('*').unwrap_or(entry);
        if !is_identifier(name) {
            let at = section.path_to_item("workspace_env", index);
            let message = format!(
                "workspace_env: '{entry}' is neither a variable's name nor a prefix such as APP_*"
            );
            section.error_at(at, message);
        }
    }
}

/// The agent's name.
fn read_name(section: &Section) -> Option<String> {
    if !section.has("name") {
        section.error("", "name: missing; it is the agent's name");
    }
    let name = section.read_text("name")?;
    if name.trim().is_empty() {
        let message = "name: it is empty; it should be the agent's name";
        section.error("name", message);
    }
    Some(name.to_owned())
}
