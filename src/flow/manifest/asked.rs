//! The models that agents ask: the provider and the model of each, as far as files say it.
//!
//! Unaware of runs.

use super::agent::{AgentBody, FlowAgent};
use super::credential::Credential;
use super::items::key_path;
use super::lookup::agent_of;
use super::node::NodeSettings;
use super::problem::{Code, FlowProblem, Manifest};
use super::providers::{Access, AskedModel, Provider, ProvidersFile};
use crate::config::agent::{Llm, Severity};
use crate::config::environment::without_secrets;
use crate::config::load;
use crate::config::tool::definition::Word;
use crate::text::shell::shell_quoted;
use crate::text::suggestion::nearest;
use serde_json::Value;
use std::path::Path;

impl AskedModel {
    /// By an agent that is a directory.
    pub(super) fn by_directory(llm: &Llm) -> Self {
        let words = |words: &Vec<Word>| {
            let words: Vec<String> = words.iter().map(|word| word.written(|_| "")).collect();
            shell_quoted(&words)
        };
        Self {
            model: llm.model.clone(),
            base_url: llm.base_url.as_deref().map(without_secrets),
            command: llm.command.as_ref().map(words),
            ..Self::default()
        }
    }

    /// By an agent that is not.
    pub(super) fn by(agent: &FlowAgent, providers: &ProvidersFile, file: &mut Manifest) -> Self {
        let llm = match &agent.body {
            AgentBody::Model { llm, .. } => llm,
            AgentBody::Command(command) => {
                let command = Some(command.template.clone());
                return Self {
                    command,
                    ..Self::default()
                };
            }
            AgentBody::Directory(_) => return Self::default(),
        };
        let (provider, model) = match llm.split_once('/') {
            Some((provider, model)) => (Some(provider), model),
            None => (None, &**llm),
        };
        let text = |key: &str| agent.config.get(key).and_then(Value::as_str);
        let model = text("model").unwrap_or(model);
        let asked = Self {
            provider: provider.map(str::to_owned),
            model: Some(model.to_owned()),
            base_url: text("base_url").map(without_secrets),
            command: agent.config.get("command").map(quote_command),
            ..Self::default()
        };
        let mut all = providers.all.iter();
        let Some(index) = all.position(|it| Some(&*it.id) == provider) else {
            let is_wrong = providers.wrong.iter().any(|id| Some(&**id) == provider);
            if let Some(provider) = provider.filter(|_| providers.exists && !is_wrong) {
                let hint = match nearest(provider, providers.all.iter().map(|it| &*it.id)) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => "the environment says where it is asked".to_owned(),
                };
                let message = format!("llm: providers.yaml has no provider \"{provider}\"; {hint}");
                file.add_to(agent.place(), "llm", None, message);
            }
            return asked;
        };
        let provider = &providers.all[index];
        check_provider(agent, provider, model, file);
        let (base_url, command) = match &provider.way {
            Access::Url(url) => (Some(url.clone()), None),
            Access::Command(words) => (None, Some(shell_quoted(words))),
        };
        Self {
            index: Some(index),
            version: provider.version.clone(),
            base_url,
            command,
            ..asked
        }
    }
}

/// Reads an agent's directory: the model that the agent asks, and what is wrong with its files, which is wrong with the flow, too. It is
/// `name` below the flow's directory, and `shown` in messages.
pub(super) fn read_agent_directory(
    id: &str,
    dir: &Path,
    name: &Path,
    shown: &str,
) -> (AskedModel, Vec<FlowProblem>) {
    let (agent, problems) = load::load(dir);
    let of_flow = problems.into_iter().filter_map(|problem| {
        let code = match problem.severity {
            Severity::Error => Some(Code::ManifestInvalid),
            Severity::Warning | Severity::Deprecation => None,
            Severity::Advice => return None,
        };
        let below = problem.file.strip_prefix(&*dir.to_string_lossy());
        let file = below.unwrap_or(&problem.file).trim_start_matches('/');
        let message = format!("agent \"{id}\": {}", problem.message);
        Some(FlowProblem {
            file: name.join(file).display().to_string(),
            shown: Path::new(shown).join(file).display().to_string(),
            line: problem.line,
            column: problem.column,
            ..FlowProblem::new(code, &[id], message)
        })
    });
    let asked = agent.map(|agent| AskedModel::by_directory(&agent.llm));
    (asked.unwrap_or_default(), of_flow.collect())
}

fn quote_command(value: &Value) -> String {
    let items = value.as_array().into_iter().flatten();
    let words = items.filter_map(Value::as_str).map(str::to_owned);
    shell_quoted(&words.collect::<Vec<_>>())
}

/// Adds what contradicts the provider of an agent.
fn check_provider(agent: &FlowAgent, provider: &Provider, model: &str, file: &mut Manifest) {
    let id = &provider.id;
    for key in ["base_url", "command"] {
        if agent.config.contains_key(key) {
            let message = format!(
                "config: {key}: contradicts provider \"{id}\"; remove it, or name another provider"
            );
            file.add_to(
                agent.place(),
                "config",
                Some(Code::ManifestInvalid),
                message,
            );
        }
    }
    let models = provider.models.as_ref();
    if let Some(models) = models.filter(|models| models.iter().all(|known| known != model)) {
        let hint = match nearest(model, models.iter().map(String::as_str)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("it has {}", models.join(", ")),
        };
        let message = format!("provider \"{id}\" has no model \"{model}\"; {hint}");
        file.add_to(agent.place(), "llm", Some(Code::UnknownModel), message);
    }
}

/// Adds credentials that are not there and that nodes need.
pub(super) fn add_missing_credentials(
    providers: &[Provider],
    agents: &[FlowAgent],
    nodes: &[NodeSettings],
    file: &mut Manifest,
) {
    for (index, provider) in providers.iter().enumerate() {
        let asking: Vec<_> = nodes
            .iter()
            .filter_map(|node| {
                let agent = agent_of(node, agents)?;
                (agent.asked.index == Some(index)).then_some((&*node.id, &*agent.id))
            })
            .collect();
        let credential = provider.credential.as_ref().filter(|_| !asking.is_empty());
        let Some(Err(why)) = credential.map(Credential::key) else {
            continue;
        };
        let who: Vec<String> = asking
            .iter()
            .map(|(node, agent)| format!("node \"{node}\" (agent \"{agent}\")"))
            .collect();
        let id = &provider.id;
        let message = format!(
            "provider \"{id}\": credential: {why}; it is needed by {}",
            who.join(", ")
        );
        let mut ids: Vec<&str> = vec![id];
        ids.extend(asking.iter().map(|(node, _)| *node));
        let at = key_path(&provider.at, "credential");
        file.push(Some(Code::CredentialMissing), &ids, &at, message);
    }
}

/// The settings below `llm:` by which an agent that is made reaches its provider.
pub(crate) fn provider_setting(provider: &Provider) -> (&'static str, Value) {
    match &provider.way {
        Access::Url(url) => ("base_url", url.as_str().into()),
        Access::Command(words) => ("command", words.clone().into()),
    }
}
