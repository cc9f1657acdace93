//! Advice on things in an agent's files that are legal and yet dangerous or useless.
//!
//! Reported only by a check of the agent: none of it prevents a run. Unaware of
//! anything that [`super::load`] reports.

mod programs;
mod commands;

pub(crate) use commands::{is_sandbox, values_of};

use super::agent::{Problem, Severity};
use super::document::Document;
use super::environment::MODEL;
use super::legacy::OLD_HOOKS;
use super::person;
use super::sources::{AgentSources, ToolSource};
use crate::config::context::{SYSTEM_PROMPT, is_same_file, source_word};
use crate::config::llm::misspelt_warning;
use crate::config::tool::argv_template::parse_fixed_word;
use crate::config::tool::definition::{AGENT_HOME, CWD, Word};
use crate::config::tool::load;
use crate::text::yaml::Step;
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::path::Path;

/// Advice about what was found in an agent's directory. Programs are looked for in the directories
/// of `path`, which is written as the variable `PATH` is.
pub(crate) fn about(sources: &AgentSources, path: &OsStr) -> Vec<Problem> {
    let mut advisor = Advisor {
        sources,
        path,
        wrapper: Vec::new(),
        problems: Vec::new(),
    };
    if let Some(document) = advisor.read(&sources.main_file) {
        if let Some(llm @ Value::Object(keys)) = document.root.get("llm") {
            advisor.command(&document, llm, &[key("llm")], "command");
            advisor.model(&document, keys);
        }
        advisor.wrapper = advisor.command(&document, &document.root.clone().into(), &[], "wrapper");
        let accept = document.root.get("accept").and_then(Value::as_array);
        for (index, entry) in accept.into_iter().flatten().enumerate() {
            let at = [key("accept"), Step::Item(index)];
            advisor.command(&document, entry, &at, "command");
        }
        advisor.old_hooks(&document);
    }
    let mut read: Option<(&Path, Option<Document>)> = None;
    for source in &sources.tools {
        // Many tools of one file are read at once.
        if read.as_ref().is_none_or(|(file, _)| *file != source.file) {
            let document = Document::read(&source.file, source.shown.clone(), &mut Vec::new());
            read = Some((&source.file, document));
        }
        if let Some((_, Some(document))) = &read {
            advisor.tool(source, document);
        }
    }
    if let Some(document) = advisor.read("context.yaml") {
        advisor.context(&document);
    }
    if let Some(document) = advisor.read("hooks.yaml") {
        advisor.old_hooks(&document);
        advisor.hooks(&document, &document.root, &[]);
    }
    advisor.problems
}

/// The first variable in a path that is not the engine's.
fn other_variable(path: &str) -> Option<&str> {
    let mut names = path
        .split("${")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('}')?.0));
    names.find(|name| ![AGENT_HOME, CWD, SYSTEM_PROMPT].contains(name))
}

/// True for a text in which a variable begins and does not end.
fn is_unclosed(text: &str) -> bool {
    let mut pieces = text.split("${").skip(1);
    pieces.any(|piece| !piece.contains('}'))
}

fn unclosed_text(name: &str, text: &str) -> String {
    format!("{name}: {text}: '${{' has no closing '}}', so nothing is replaced there")
}

struct Advisor<'a> {
    sources: &'a AgentSources,
    path: &'a OsStr,
    /// The agent's.
    wrapper: Vec<String>,
    problems: Vec<Problem>,
}

impl Advisor<'_> {
    /// A file of the agent. Its errors were reported when it was loaded.
    fn read(&self, name: &str) -> Option<Document> {
        let shown = self.sources.shown_path(name);
        Document::read(&self.sources.home.join(name), shown, &mut Vec::new())
    }

    fn model(&mut self, document: &Document, llm: &Map<String, Value>) {
        for name in llm.keys() {
            if let Some(message) = misspelt_warning(name) {
                self.say(document, &[key("llm"), key(name)], &message);
            }
        }
        let temperature = llm.get("temperature").and_then(Value::as_f64);
        if temperature.is_some_and(|it| !(0.0..=2.0).contains(&it)) {
            let message = "llm: temperature: services refuse what is not between 0 and 2";
            self.say(document, &[key("llm"), key("temperature")], message);
        }
        let is_named = llm.contains_key("model") || llm.contains_key("command");
        if !is_named && !matches!(person::variable(MODEL), Ok(Some(_))) {
            let message = "llm: no model is named, and DELTA_MODEL is not set: `delta setup` chooses one, or each run needs -M NAME";
            self.say(document, &[key("llm")], message);
        }
    }

    fn say(&mut self, document: &Document, at: &[Step], message: &str) {
        let problem = document.problem_at(Severity::Advice, at, message);
        self.problems.push(problem);
    }

    fn tool(&mut self, source: &ToolSource, document: &Document) {
        let Some(item) = document.root.get("tools").and_then(|t| t.get(source.index)) else {
            return;
        };
        let Ok((tool, _)) = load::load(item) else {
            return;
        };
        let mut advice = commands::advise_on(&tool, item, &self.wrapper);
        if item.get("shell").is_none()
            && let Some(message) = self.missing(&tool.command)
        {
            advice.push((commands::form_of(item), message));
        }
        let texts = texts_of(item, "command");
        let unclosed = texts.iter().filter(|it| is_unclosed(it));
        advice.extend(unclosed.map(|it| ("command", unclosed_text("command", it))));
        let about_wrapper = self.about_words("wrapper", &texts_of(item, "wrapper"));
        advice.extend(about_wrapper.into_iter().map(|it| ("wrapper", it)));
        for (name, message) in advice {
            let at = [key("tools"), Step::Item(source.index), key(name)];
            let message = format!("tool \"{}\": {message}", tool.name);
            self.say(document, &at, &message);
        }
    }

    fn context(&mut self, document: &Document) {
        let sources = document.root.get("sources").and_then(Value::as_array);
        let mut shows_prompt = false;
        for (index, source) in sources.into_iter().flatten().enumerate() {
            let at = [key("sources"), Step::Item(index), key("generator")];
            match source.get("generator") {
                Some(generator @ Value::Object(_)) => {
                    let words = self.command(document, generator, &at, "command");
                    shows_prompt |= words.iter().any(|word| {
                        word.contains(&self.sources.prompt) || word.contains(SYSTEM_PROMPT)
                    });
                }
                _ => {
                    let Some(path) = source.get("path").and_then(Value::as_str) else {
                        continue;
                    };
                    let at = [key("sources"), Step::Item(index), key("path")];
                    if is_unclosed(path) {
                        self.say(document, &at, &unclosed_text("path", path));
                    }
                    if let Some(name) = other_variable(path) {
                        let message = format!(
                            "path: {path}: ${{{name}}} is not replaced: only ${{SYSTEM_PROMPT}}, ${{AGENT_HOME}} and ${{CWD}} are"
                        );
                        self.say(document, &at, &message);
                    }
                    let (home, prompt) = (&self.sources.home, &self.sources.prompt);
                    shows_prompt |= is_same_file(&source_word(path, prompt), home, prompt);
                }
            }
        }
        let prompt = &self.sources.prompt;
        if !shows_prompt && !prompt.is_empty() && self.has_own_prompt() {
            let message = format!(
                "sources: none of them shows {prompt}, so the model does not see it; add \
                 {{type: file, path: '${{{SYSTEM_PROMPT}}}'}}"
            );
            self.say(document, &[key("sources")], &message);
        }
    }

    /// The prompt's file lies in the agent's directory; any other is an error, and none to be shown.
    fn has_own_prompt(&self) -> bool {
        let home = &self.sources.home;
        let prompt = home.join(&self.sources.prompt).canonicalize();
        prompt.is_ok_and(|prompt| prompt.starts_with(home))
    }

    fn old_hooks(&mut self, document: &Document) {
        for name in OLD_HOOKS {
            if let Some(Value::Object(hooks)) = document.root.get(name) {
                self.hooks(document, hooks, &[key(name)]);
            }
        }
    }

    fn hooks(&mut self, document: &Document, hooks: &Map<String, Value>, below: &[Step]) {
        for (name, value) in hooks {
            let at = [below, &[key(name)]].concat();
            self.command(document, value, &at, "command");
            for (index, hook) in value.as_array().into_iter().flatten().enumerate() {
                let at = [&at[..], &[Step::Item(index)]].concat();
                self.command(document, hook, &at, "command");
            }
        }
    }

    /// Looks for the program of a command that is the value of `name`. Returns its words.
    fn command(
        &mut self,
        document: &Document,
        value: &Value,
        at: &[Step],
        name: &str,
    ) -> Vec<String> {
        let texts = texts_of(value, name);
        for message in self.about_words(name, &texts) {
            self.say(document, &[at, &[key(name)]].concat(), &message);
        }
        texts
    }

    /// Advice about the words of a command that is the value of `name`.
    fn about_words(&self, name: &str, texts: &[String]) -> Vec<String> {
        let unclosed = texts.iter().filter(|text| is_unclosed(text));
        let mut advice: Vec<_> = unclosed.map(|text| unclosed_text(name, text)).collect();
        let words: Vec<Word> = texts.iter().map(|text| parse_fixed_word(text)).collect();
        let others = commands::advise_on_doors(texts)
            .into_iter()
            .chain(self.missing(&words));
        advice.extend(others.map(|message| format!("{name}: {message}")));
        advice
    }

    fn missing(&self, command: &[Word]) -> Option<String> {
        programs::missing(command, &self.sources.home, self.path)
    }
}

/// The strings in a list of a mapping.
fn texts_of(value: &Value, name: &str) -> Vec<String> {
    let list = value.get(name).and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn key(name: &str) -> Step {
    Step::Key(name.to_owned())
}
