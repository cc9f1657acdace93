//! `--set`: an agent with some keys of agent.yaml overridden for one run.

use super::inspect::RecordedSettings;
use super::preflight::{choose_model, load_agent};
use crate::config::agent::{AGENT, Agent, ChainSource, Severity};
use crate::config::api::{Api, RecordedApi};
use crate::config::keys;
use crate::config::llm::misspelt_warning;
use crate::config::load;
use crate::error::{Error, Result};
use crate::record::event::Recorded;
use crate::record::reader::{JournalSource, read_event, split_lines};
use crate::record::state::{self, Reading};
use crate::record::workspace::Workspace;
use crate::text::json;
use crate::text::shell::shell_quoted;
use crate::text::yaml;
use crate::unix::terminal::Screen;
use serde_json::{Map, Value, json};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// True if a record cannot set this key to this value. Of the keys that are not delta's own, it sets small parameters of
/// the model.
fn is_guarded(key: &str, value: &Value) -> bool {
    const LONGEST: usize = 64;
    if let Some(key) = keys::find(AGENT, key) {
        return key.is_guarded;
    }
    let is_small = match value {
        Value::Number(_) | Value::Bool(_) => true,
        Value::String(text) => text.chars().count() <= LONGEST,
        _ => false,
    };
    let parameter = key.strip_prefix("llm.").unwrap_or_default();
    !is_small || parameter.is_empty() || parameter.contains('.')
}

/// The recorded overrides that count only if they are given again.
pub(crate) fn guarded(set: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    set.iter().filter(|(key, value)| is_guarded(key, value))
}

/// True for a key that only `--budget` sets.
pub(crate) fn is_budget(key: &str) -> bool {
    key == "budget" || key.starts_with("budget.")
}

/// The agent of a run that is resumed or repeated: with the overrides that the run was begun with, and
/// those that are given now on top.
///
/// # Errors
/// The run was begun with a guarded override that is not given again.
pub(crate) fn load_recorded(
    home: &Path,
    recorded: RecordedSettings<'_>,
    given: &[(String, String)],
    screen: Screen,
) -> Result<(Agent, Map<String, Value>)> {
    let RecordedSettings { id, set, journal } = recorded;
    let mut kept = set.clone();
    // Versions that let `--set` do so have recorded it.
    kept.retain(|key, _| !is_budget(key));
    if kept.len() < set.len() {
        screen.warn(&format!(
            "run {id} was begun with --set budget, which is not taken from a record: the agent's budget counts, or that \
             of --budget"
        ));
    }
    for (key, value) in guarded(&kept) {
        let now = given
            .iter()
            .rfind(|(name, _)| name == key)
            .and_then(|(_, text)| yaml::parse(text).ok());
        if now.as_ref() != Some(value) {
            let option = match key.as_str() {
                "accept" | "output_schema" => shell_quoted(&option_words(key, value)),
                _ => format!("--set {key}"),
            };
            return Err(Error::config(format!(
                "run {id} was begun with --set {key}=..., which is not taken from a record: give the same {option} again \
                 (its value is in the run's metadata.json)"
            )));
        }
    }
    let (mut agent, set) = load_with_overrides(home, kept, given, screen)?;
    keep_model(&mut agent, &journal);
    keep_api(&mut agent, &journal);
    Ok((agent, set))
}

/// Gives an agent that names no model, where the environment names none either, that of the run's newest start. A
/// name decides neither where a request goes nor which key goes with it, as `llm.model` among the recorded overrides does not.
fn keep_model(agent: &mut Agent, journal: &JournalSource<'_>) {
    if agent.llm.has_model() {
        return;
    }
    // Faults of the journal are reported when the run is resumed.
    if let Ok(journal) = journal.bytes()
        && let Ok(state) = state::read(&journal, Reading::all(true))
    {
        let name = state.asked_model();
        agent.llm.model = name.filter(|name| !name.trim().is_empty());
        agent.llm.leave_out_fallback();
    }
}

/// Gives an agent whose API nothing names that of the run's newest start, which counts for the same endpoint.
pub(crate) fn keep_api(agent: &mut Agent, journal: &JournalSource<'_>) {
    let choice = &mut agent.llm.api_choice;
    if choice.given.is_none()
        && let Ok(journal) = journal.bytes()
    {
        choice.recorded = recorded_api(&journal);
    }
}

/// The API of a journal's newest start.
fn recorded_api(journal: &[u8]) -> RecordedApi {
    let words: Vec<usize> = memchr::memmem::find_iter(journal, "ENGINE_START").collect();
    let mut rest = journal;
    let mut starts = words.into_iter().rev().filter_map(|at| {
        // A line with several of them is read once.
        let before = rest.get(..at)?;
        let begin = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
        let (earlier, line) = rest.split_at(begin);
        rest = earlier;
        split_lines(line).next()
    });
    let found = starts.find_map(|(_, line)| match read_event(line, 0).ok()?.event {
        Recorded::EngineStart(start) if start.config.is_some() => Some(start.config().llm()),
        _ => None,
    });
    let Some(llm) = found else {
        return RecordedApi::NoRun;
    };
    match Api::parse(&llm.get("api").text()) {
        Some(api) => RecordedApi::Word(api, llm.get("endpoint").read_or_default()),
        None => RecordedApi::NoWord,
    }
}

/// Leaves out the models that agent.yaml asks in place of the first if these overrides choose that one.
fn choose_chain(agent: &mut Agent, set: &Map<String, Value>) {
    const CHOOSE: [&str; 5] = ["llm", "llm.model", "llm.api", "llm.base_url", "llm.command"];
    let of_all = set
        .get("llm")
        .is_some_and(|llm| llm.get("fallback").is_some());
    if of_all || set.contains_key("llm.fallback") {
        agent.llm.chain = ChainSource::CommandLine;
    } else if CHOOSE.iter().any(|key| set.contains_key(*key)) {
        agent.llm.leave_out_fallback();
    }
}

/// The words of a command line that set a key to this value.
pub(crate) fn option_words(key: &str, value: &Value) -> Vec<String> {
    let script = |entry: &Value| {
        let script = entry.pointer("/command/2")?.as_str()?;
        (*entry == json!({"command": ["sh", "-c", script]})).then(|| script.to_owned())
    };
    let scripts: Option<Vec<String>> = match value {
        Value::Array(entries) if key == "accept" => entries.iter().map(script).collect(),
        _ => None,
    };
    match (scripts, value) {
        (Some(scripts), _) if !scripts.is_empty() => {
            let option = |script| ["--accept".to_owned(), script];
            scripts.into_iter().flat_map(option).collect()
        }
        (_, Value::String(path)) if key == "output_schema" && path.starts_with('/') => {
            vec!["--output-schema".to_owned(), path.clone()]
        }
        _ => vec!["--set".to_owned(), format!("{key}={}", json::text(value))],
    }
}

/// The directory in which tools may have made an agent: the run's workspace, or one above it that has a `.delta`, even a
/// foreign one. Directories are known by their inodes, because a mount can give one several paths.
pub(crate) fn around(home: &Path, workspace: &Workspace) -> Option<PathBuf> {
    let identity = |dir: &Path| dir.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let resolved = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let above_home: Vec<_> = resolved.ancestors().map(identity).collect();
    let is_workspace = |dir: &Path| dir == workspace.root || has_control(dir);
    let mut dirs = workspace.root.ancestors();
    dirs.find(|dir| is_workspace(dir) && above_home.contains(&identity(dir)))
        .map(Path::to_owned)
}

/// The nearest directory above a workspace that has a `.delta`, even a foreign one.
pub(crate) fn workspace_around(workspace: &Workspace) -> Option<PathBuf> {
    let mut above = workspace.root.ancestors().skip(1);
    above.find(|dir| has_control(dir)).map(Path::to_owned)
}

fn has_control(dir: &Path) -> bool {
    let control = dir.join(".delta").symlink_metadata();
    !control.is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

/// The directory of a run's agent as the record has it.
///
/// # Errors
/// None is recorded, tools may have made it, or it is gone.
pub(crate) fn recorded_agent(id: &str, recorded: &str, workspace: &Workspace) -> Result<PathBuf> {
    if recorded.is_empty() {
        return Err(Error::failure(format!(
            "the record of run {id} does not name its agent: give it with -a DIR"
        )));
    }
    if let Some(dir) = around(Path::new(recorded), workspace) {
        return Err(Error::config(format!(
            "run {id} names an agent inside the workspace {}, {recorded}, which a tool may have put there: if you trust \
             it, name it with -a DIR",
            dir.display()
        )));
    }
    let home = Path::new(recorded).canonicalize();
    home.ok().filter(|home| home.is_dir()).ok_or_else(|| {
        Error::config(format!(
            "the agent of run {id} is no longer at {recorded}; give its directory with -a DIR"
        ))
    })
}

/// The agent with these overrides and those that are given, and all of them together. Every fault of a given one
/// is wrong usage, even if it would be a warning in the file: a mistyped key must not stay
/// in force unnoticed.
pub(crate) fn load_with_overrides(
    home: &Path,
    mut set: Map<String, Value>,
    given: &[(String, String)],
    screen: Screen,
) -> Result<(Agent, Map<String, Value>)> {
    add_missing_prices(home, &mut set, given);
    let mut agent = load_agent(home, &set, screen)?;
    for (key, text) in given {
        let wrong = |why: &str| Error::usage(format!("--set {key}: {why}"));
        let value =
            yaml::parse(text).map_err(|e| wrong(&format!("not valid YAML: {}", e.message)))?;
        let (_, before) = load::load_with(home, &set);
        set.insert(key.clone(), value);
        let (loaded, problems) = load::load_with(home, &set);
        // A file written for one API is no mistake of who asks another, and a generator may show a prompt; the warning is
        // printed.
        let may_warn = ["llm.api", "llm.model", "system_prompt"].contains(&key.as_str());
        let mut new = problems.iter().filter(|problem| {
            let counts = match problem.severity {
                Severity::Error => true,
                Severity::Warning => !may_warn,
                Severity::Deprecation | Severity::Advice => false,
            };
            counts && !before.contains(problem)
        });
        if let Some(problem) = new.next() {
            return Err(match key.as_str() {
                // What is wrong is in the file that it names.
                "output_schema" => Error::config(&problem.message),
                _ => wrong(&problem.message),
            });
        }
        let parameter = key.strip_prefix("llm.").filter(|name| !name.contains('.'));
        if let Some(warning) = parameter.and_then(misspelt_warning) {
            screen.warn(&format!("warning: --set {key}: {warning}"));
        }
        if may_warn && !screen.quiet {
            let warnings = problems
                .iter()
                .filter(|it| it.severity == Severity::Warning);
            for warning in warnings.filter(|warning| !before.contains(warning)) {
                screen.warn(&warning.to_string());
            }
        }
        agent = loaded.ok_or_else(|| wrong("the agent cannot be loaded with it"))?;
    }
    choose_chain(&mut agent, &set);
    choose_model(&mut agent)?;
    Ok((agent, set))
}

/// Adds prices that are given to the overrides if an agent with a budget cannot be loaded without them.
fn add_missing_prices(home: &Path, set: &mut Map<String, Value>, given: &[(String, String)]) {
    let Some((key, text)) = given.iter().rfind(|(key, _)| key == "pricing") else {
        return;
    };
    let is_loaded = |set: &Map<String, Value>| load::load_with(home, set).0.is_some();
    if let Ok(value) = yaml::parse(text)
        && !is_loaded(set)
    {
        let mut with_prices = set.clone();
        with_prices.insert(key.clone(), value);
        if is_loaded(&with_prices) {
            *set = with_prices;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_guarded;
    use serde_json::{Value, json};

    #[test]
    fn a_record_decides_harmless_keys_and_small_parameters_of_the_model() {
        let free = [
            ("llm.model", json!("m")),
            ("llm.stream", json!(true)),
            ("llm.window", json!(8000)),
            ("llm.timeout_ms", json!(1)),
            ("llm.max_retries", json!(0)),
            ("llm.temperature", json!(0.5)),
            ("llm.store", json!(false)),
            ("llm.reasoning_effort", json!("é".repeat(64))),
            ("max_output_bytes", json!(1)),
            ("keep_requests", json!("all")),
            ("name", json!("n")),
            ("version", json!("1")),
            ("description", json!("d")),
        ];
        for (key, value) in free {
            assert!(!is_guarded(key, &value), "{key}: {value}");
        }
    }

    #[test]
    fn every_other_key_is_guarded() {
        let guarded = [
            "llm",
            "llm.",
            "llm.command",
            "llm.command.0",
            "llm.base_url",
            "llm.api",
            "llm.headers",
            "llm.headers.x",
            "llm.cache",
            "llm.total_timeout_ms",
            "llm.model.x",
            "llm.reasoning.effort",
            "llm_config",
            "llm_config.temperature",
            "wrapper",
            "tools.ls.exec",
            "limits",
            "limits.seconds",
            "max_iterations",
            "tool_timeout_ms",
            "ask_human",
            "sync",
            "repairs",
            "output_schema",
            "budget",
            "budget.cost",
            "pricing.input",
            "namespace",
            "",
        ];
        for key in guarded {
            assert!(is_guarded(key, &json!(1)), "{key}");
        }
        let long = "é".repeat(65);
        for value in [json!(long), json!(["x"]), json!({"x": 1}), Value::Null] {
            assert!(is_guarded("llm.provider", &value), "{value}");
        }
    }
}
