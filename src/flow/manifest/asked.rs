//! Whom agents ask: the provider and the model of each, as far as files say it.
//!
//! Unaware of runs.

use super::agent::{AgentBody, AgentDraft};
use super::items::key_path;
use super::problem::{Code, Manifest};
use super::providers::{Access, Provider, ProvidersFile};
use super::{FlowAgent, NodeSettings};
use crate::config::agent::Llm;
use crate::config::environment::without_secrets;
use crate::config::section::Diagnostics;
use crate::config::tool::definition::Word;
use crate::text::shell::shell_quoted;
use crate::text::suggestion::nearest;
use serde::Serialize;
use serde_json::Value;

/// Whom an agent asks, as it is recorded. It holds no key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct AskedModel {
    /// An index in the flow's providers.
    #[serde(skip)]
    pub index: Option<usize>,
    /// The part before the slash in `llm:`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Where it is, if not where the environment says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The program that is the model, or the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

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

    /// By an agent that is not. `there` says whether there is a file of providers.
    pub(super) fn by(
        draft: &AgentDraft,
        providers: &ProvidersFile,
        there: bool,
        file: &mut Manifest,
    ) -> Self {
        let llm = match &draft.body {
            Some(AgentBody::Model { llm, .. }) => llm,
            Some(AgentBody::Command(command)) => {
                return Self {
                    command: Some(command.template.clone()),
                    ..Self::default()
                };
            }
            Some(AgentBody::Directory(_)) | None => return Self::default(),
        };
        let (provider, model) = match llm.split_once('/') {
            Some((provider, model)) => (Some(provider), model),
            None => (None, &**llm),
        };
        let config = |key: &str| draft.config.get(key);
        let model = config("model").and_then(Value::as_str).unwrap_or(model);
        let asked = Self {
            provider: provider.map(str::to_owned),
            model: Some(model.to_owned()),
            base_url: config("base_url")
                .and_then(Value::as_str)
                .map(without_secrets),
            command: config("command").map(quote_command),
            ..Self::default()
        };
        let mut all = providers.all.iter();
        let Some(index) = all.position(|it| Some(&*it.id) == provider) else {
            let is_wrong = providers.wrong.iter().any(|id| Some(&**id) == provider);
            if let Some(provider) = provider.filter(|_| there && !is_wrong) {
                warn_of_unknown(draft, provider, providers, file);
            }
            return asked;
        };
        let provider = &providers.all[index];
        check_provider(draft, provider, model, file);
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

fn quote_command(value: &Value) -> String {
    let words = value.as_array().into_iter().flatten();
    let words = words.filter_map(Value::as_str).map(str::to_owned);
    shell_quoted(&words.collect::<Vec<_>>())
}

fn warn_of_unknown(
    draft: &AgentDraft,
    provider: &str,
    providers: &ProvidersFile,
    file: &mut Manifest,
) {
    let hint = match nearest(provider, providers.all.iter().map(|it| &*it.id)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "the environment says where it is asked".to_owned(),
    };
    let mut out = Diagnostics::about(format!("agent \"{}\"", draft.id));
    let message = format!("llm: providers.yaml has no provider \"{provider}\"; {hint}");
    out.warn(key_path(&draft.at, "llm"), message);
    file.report(std::slice::from_ref(&draft.id), out);
}

/// Adds what contradicts the provider of an agent.
fn check_provider(draft: &AgentDraft, provider: &Provider, model: &str, file: &mut Manifest) {
    let (id, ids) = (&provider.id, std::slice::from_ref(&draft.id));
    let mut out = Diagnostics::about(format!("agent \"{}\"", draft.id));
    for key in ["base_url", "command"] {
        if draft.config.contains_key(key) {
            let message = format!(
                "config: {key}: contradicts provider \"{id}\"; remove it, or name another provider"
            );
            out.error(key_path(&draft.at, "config"), message);
        }
    }
    file.report(ids, out);
    let models = provider.models.as_ref();
    if let Some(models) = models.filter(|models| models.iter().all(|known| known != model)) {
        let hint = match nearest(model, models.iter().map(String::as_str)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("it has {}", models.join(", ")),
        };
        let agent = &draft.id;
        let message =
            format!("agent \"{agent}\": provider \"{id}\" has no model \"{model}\"; {hint}");
        let at = key_path(&draft.at, "llm");
        file.add(Code::UnknownModel, ids.to_vec(), &at, message);
    }
}

/// Adds credentials that are not there and that nodes need.
pub(super) fn add_missing_credentials(
    providers: &[Provider],
    agents: &[Option<FlowAgent>],
    nodes: &[(&str, Option<&NodeSettings>)],
    file: &mut Manifest,
) {
    for (index, provider) in providers.iter().enumerate() {
        let asks = |agent: usize| {
            let agent = agents.get(agent)?.as_ref()?;
            (agent.asked.index == Some(index)).then_some(&*agent.id)
        };
        let needs = nodes
            .iter()
            .filter_map(|(id, node)| Some((*id, asks(node.as_ref()?.agent?)?)));
        let needs: Vec<(&str, &str)> = needs.collect();
        let credential = provider.credential.as_ref().filter(|_| !needs.is_empty());
        let Some(Err(why)) = credential.map(super::credential::Credential::key) else {
            continue;
        };
        let who: Vec<String> = needs
            .iter()
            .map(|(node, agent)| format!("node \"{node}\" (agent \"{agent}\")"))
            .collect();
        let message = format!(
            "provider \"{}\": credential: {why}; it is needed by {}",
            provider.id,
            who.join(", ")
        );
        let mut ids = vec![provider.id.clone()];
        ids.extend(needs.iter().map(|(node, _)| (*node).to_owned()));
        let at = key_path(&provider.at, "credential");
        file.add(Code::CredentialMissing, ids, &at, message);
    }
}

/// The settings below `llm:` by which an agent that is made reaches its provider.
pub(crate) fn provider_setting(provider: &Provider) -> (&'static str, Value) {
    match &provider.way {
        Access::Url(url) => ("base_url", url.as_str().into()),
        Access::Command(words) => ("command", words.clone().into()),
    }
}
