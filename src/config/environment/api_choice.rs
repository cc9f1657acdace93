//! The API by which a model is asked, where no file names one: it follows the host.
//!
//! Unaware of how requests look.

use super::key_command::key_command;
use super::urls::{host_of, without_secrets};
use super::{Environment, KEY_NAMES, Trust};
use crate::config::agent::Llm;
use crate::config::api::{API, API_WORDS, Api, RecordedApi, foreign_parameters};
use crate::error::{Error, Result};

impl Environment {
    /// Chooses the API of an agent's model: the word that is given, else that of [`API`], of the run's record for the same
    /// endpoint, of the host.
    ///
    /// # Errors
    /// [`API`] names no API.
    pub(crate) fn choose_api(&self, llm: &mut Llm) -> Result<()> {
        let is_old = matches!(llm.api_choice.recorded, RecordedApi::NoWord);
        let others = llm.fallback.iter_mut().map(|entry| &mut entry.llm);
        for other in others.filter(|it| is_old && it.api_choice.given.is_none()) {
            other.api = Api::Chat;
        }
        let choice = self.chosen_api(llm)?;
        llm.api = choice.0;
        llm.api_choice.reason = choice.1;
        llm.api_choice.endpoint = self.shown_endpoint(choice.0, llm);
        Ok(())
    }

    fn chosen_api(&self, llm: &Llm) -> Result<(Api, String)> {
        if let Some(api) = llm.api_choice.given {
            return Ok((api, String::new()));
        }
        if llm.command.is_some() {
            return Ok((Api::Chat, "llm.command".to_owned()));
        }
        let named = self
            .locate(&[API], Trust::Workspace)
            .map(|found| (found.value.trim().to_owned(), found.source));
        if let Some((value, source)) = named.filter(|(value, _)| value != API_WORDS[0]) {
            return match Api::parse(&value) {
                Some(api) => Ok((api, source)),
                None => Err(Error::config(format!(
                    "{source}: '{value}' is not one of {}",
                    API_WORDS.join(", ")
                ))),
            };
        }
        let recorded = match &llm.api_choice.recorded {
            RecordedApi::NoWord => Some(Api::Chat),
            RecordedApi::Word(api, at) if self.shown_endpoint(*api, llm) == *at => Some(*api),
            RecordedApi::Word(..) | RecordedApi::NoRun => None,
        };
        if let Some(api) = recorded {
            return Ok((api, "the run's record".to_owned()));
        }
        let (api, reason) = self.api_of_host(llm);
        Ok(match chat_parameter(llm, api) {
            Some(key) => (Api::Chat, format!("llm.{key}")),
            None => (api, reason),
        })
    }

    /// The API of the host, and what says so.
    fn api_of_host(&self, llm: &Llm) -> (Api, String) {
        if let Some(url) = &llm.base_url {
            return of_url(url);
        }
        let names = Api::Chat.url_names();
        if let Some(name) = names.iter().find(|name| self.find(&[name]).is_some()) {
            let url = self.find(&[name]).map(|(url, _)| url);
            let (api, host) = of_url(&url.unwrap_or_default());
            // A variable of OpenAI's names a server of its APIs.
            let is_fit = api.url_names().contains(name);
            return (if is_fit { api } else { Api::Chat }, host);
        }
        let url_names = Api::Messages.url_names();
        if let Some(found) = self.locate(url_names, Trust::Workspace) {
            return (Api::Messages, found.source);
        }
        let is_set = |name: &&&str| self.find(&[**name]).is_some();
        let key_name = Api::Messages.key_name();
        let is_only = KEY_NAMES.iter().filter(is_set).eq([&key_name]);
        if is_only && key_command(self.own_is_inside).is_none() {
            return (Api::Messages, format!("{key_name} is the only key"));
        }
        of_url(Api::Responses.public_endpoint())
    }

    /// The URL of an API as it is recorded; empty without one.
    fn shown_endpoint(&self, api: Api, llm: &Llm) -> String {
        let url = self
            .base_url(api, llm.base_url.as_deref())
            .ok()
            .filter(|_| llm.command.is_none());
        url.map_or_else(String::new, |(url, _)| without_secrets(&url))
    }
}

/// Chooses the API of a model that is asked in place of the first, whose endpoint is in the file.
pub(crate) fn choose_by_host(llm: &mut Llm) {
    let (api, _) = match &llm.base_url {
        Some(url) if llm.command.is_none() => of_url(url),
        _ => return,
    };
    let is_chat = chat_parameter(llm, api).is_some();
    llm.api = if is_chat { Api::Chat } else { api };
}

/// A parameter that chat completions take, and this API does not.
fn chat_parameter(llm: &Llm, api: Api) -> Option<&'static str> {
    let mut foreign = foreign_parameters(api, |key| llm.has_parameter(key));
    let found = foreign.find(|(_, apis, _)| apis.contains(&Api::Chat));
    found.map(|(key, ..)| key)
}

/// The API of a URL's host, and the host.
fn of_url(url: &str) -> (Api, String) {
    let host = host_of(url).trim_end_matches('.').to_ascii_lowercase();
    let api = match host.as_str() {
        "api.anthropic.com" => Api::Messages,
        host if is_openais(host) => Api::Responses,
        _ => Api::Chat,
    };
    (api, host)
}

/// True for a host of `OpenAI`, whose regions have hosts of their own.
fn is_openais(host: &str) -> bool {
    host == "api.openai.com" || host.ends_with(".api.openai.com")
}
