//! The APIs by which models are asked, and what belongs to each: endpoint, variables, headers.
//!
//! Unaware of what requests look like.

use crate::config::keys::{Key, KeyValue};
use crate::config::section::Section;
use crate::text::names::named_enum;
use serde_json::Value;

/// The variable that names the API of requests where agent.yaml leaves it to the host.
pub(crate) const API: &str = "DELTA_API";

/// The values of `llm.api` and of [`API`]: the host decides, or one of [`Api`].
pub(crate) const API_WORDS: [&str; 4] = ["auto", "chat", "responses", "messages"];

named_enum! {
    /// The form of requests and answers.
    #[derive(Default)]
    pub(crate) enum Api {
        /// `OpenAI`'s chat completions, which most servers speak.
        #[default]
        Chat = "chat",
        /// `OpenAI`'s Responses.
        Responses = "responses",
        /// Anthropic's Messages.
        Messages = "messages",
    }
}

impl Api {
    /// The endpoint if nothing names another.
    pub(crate) fn public_endpoint(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses => "https://api.openai.com/v1",
            Self::Messages => "https://api.anthropic.com/v1",
        }
    }

    /// The key under `llm` that limits the length of an answer.
    pub(crate) fn limit_key(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "max_tokens",
            Self::Responses => "max_output_tokens",
        }
    }

    /// The path of requests below the endpoint.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/chat/completions",
            Self::Responses => "/responses",
            Self::Messages => "/messages",
        }
    }

    /// The URL of requests.
    pub(crate) fn url(self, base_url: &str) -> String {
        with_path(base_url, |base| {
            format!("{}{}", self.version(base), self.path())
        })
    }

    /// The URL at which the models are listed.
    pub(crate) fn list_url(self, base_url: &str) -> String {
        let url = with_path(base_url, |base| format!("{}/models", self.version(base)));
        match self {
            Self::Chat | Self::Responses => url,
            Self::Messages if url.contains('?') => format!("{url}&limit=1000"),
            Self::Messages => format!("{url}?limit=1000"),
        }
    }

    /// The vendor of Messages gives its base URL without `/v1`.
    fn version(self, base_url: &str) -> &'static str {
        match self {
            Self::Messages if !base_url.ends_with("/v1") => "/v1",
            Self::Chat | Self::Responses | Self::Messages => "",
        }
    }

    /// The vendor's variable for the key.
    pub(crate) fn key_name(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses => "OPENAI_API_KEY",
            Self::Messages => "ANTHROPIC_API_KEY",
        }
    }

    /// The variables for the endpoint; only the first is no vendor's.
    pub(crate) fn url_names(self) -> &'static [&'static str] {
        match self {
            Self::Chat | Self::Responses => {
                &["DELTA_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_URL"]
            }
            Self::Messages => &["DELTA_BASE_URL", "ANTHROPIC_BASE_URL"],
        }
    }

    /// The header that carries the key, and its prefix.
    pub(crate) fn key_header(self) -> (&'static str, &'static str) {
        match self {
            Self::Chat | Self::Responses => ("authorization", "Bearer "),
            Self::Messages => ("x-api-key", ""),
        }
    }

    /// Headers that every request has, unless `llm.headers` has them.
    pub(crate) fn fixed_headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Chat | Self::Responses => &[],
            Self::Messages => &[("anthropic-version", "2023-06-01")],
        }
    }
}

/// The choice of a model's API.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiChoice {
    /// The word of agent.yaml or of the command line; None: auto.
    pub given: Option<Api>,
    pub recorded: RecordedApi,
    /// The reason, for people, if no word is given.
    pub reason: String,
    /// The URL that it was chosen for, without secrets.
    pub endpoint: String,
}

/// The API in the record of a run that is resumed.
#[derive(Clone, Debug, Default)]
pub(crate) enum RecordedApi {
    #[default]
    NoRun,
    /// By a version that recorded only what was not chat completions.
    NoWord,
    /// An API, with the URL that was asked.
    Word(Api, String),
}

/// Parameters that only some APIs take, those that mean the same in one row.
const PARAMETERS: &[&[(&str, &[Api])]] = &[
    &[
        ("max_tokens", &[Api::Chat, Api::Messages]),
        ("max_completion_tokens", &[Api::Chat]),
        ("max_output_tokens", &[Api::Responses]),
    ],
    &[
        ("reasoning_effort", &[Api::Chat]),
        ("reasoning.effort", &[Api::Responses]),
        ("output_config.effort", &[Api::Messages]),
    ],
    &[
        ("response_format", &[Api::Chat]),
        ("text.format", &[Api::Responses]),
        ("output_config.format", &[Api::Messages]),
    ],
    &[
        ("verbosity", &[Api::Chat]),
        ("text.verbosity", &[Api::Responses]),
    ],
    &[("stop", &[Api::Chat]), ("stop_sequences", &[Api::Messages])],
    &[("n", &[Api::Chat])],
    &[("seed", &[Api::Chat])],
    &[("frequency_penalty", &[Api::Chat])],
    &[("presence_penalty", &[Api::Chat])],
    &[("logit_bias", &[Api::Chat])],
    &[("logprobs", &[Api::Chat])],
    &[("modalities", &[Api::Chat])],
    &[("prediction", &[Api::Chat])],
    &[("web_search_options", &[Api::Chat])],
];

/// The parameters among those that are given which an API does not take: each with the APIs that do, and the name that it
/// has in this one.
pub(crate) fn foreign_parameters(
    api: Api,
    has: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&'static str, &'static [Api], Option<&'static str>)> {
    PARAMETERS.iter().flat_map(move |row| {
        let own = row.iter().find(|(_, apis)| apis.contains(&api));
        let foreign = row
            .iter()
            .filter(|(key, apis)| !apis.contains(&api) && has(key));
        let found = foreign.map(|(key, apis)| (*key, *apis, own.map(|(key, _)| *key)));
        found.collect::<Vec<_>>()
    })
}

/// A header that `llm.headers` adds to each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// In lower case.
    pub name: String,
    pub value: HeaderValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderValue {
    Text(String),
    /// The variable that holds it. Such a value is a secret.
    Variable(String),
}

impl Header {
    /// The variable that holds the value, if one does.
    pub(crate) fn variable(&self) -> Option<&str> {
        match &self.value {
            HeaderValue::Variable(name) => Some(name),
            HeaderValue::Text(_) => None,
        }
    }

    /// True for a header in which servers expect a key; it replaces the key.
    pub(crate) fn is_key(&self) -> bool {
        matches!(
            self.name.as_str(),
            "authorization" | "x-api-key" | "api-key"
        )
    }
}

/// A URL with more path. Its query stays at the end.
pub(crate) fn with_path(url: &str, path: impl FnOnce(&str) -> String) -> String {
    let (server, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    let base = server.trim_end_matches('/');
    format!("{base}{}{query}", path(base))
}

/// A base URL without slashes at the end of its path.
pub(crate) fn without_slash(url: &str) -> String {
    with_path(url, |_| String::new())
}

/// The path of an API that a base URL ends in by mistake.
pub(crate) fn appended_path(url: &str) -> Option<&'static str> {
    let url = url.split('?').next().unwrap_or(url).trim_end_matches('/');
    let mut apis = Api::ALL.into_iter();
    let found = apis.find(|(_, api)| url.ends_with(api.path()));
    found.map(|(_, api)| api.path())
}

named_enum! {
    /// Time for which a service keeps the beginnings of requests.
    #[derive(Default)]
    pub(crate) enum CacheTime {
        Off = "off",
        #[default]
        FiveMinutes = "5m",
        Hour = "1h",
    }
}

/// The attachments that a model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakenAttachments {
    All,
    Images,
    Nothing,
}

impl KeyValue for Option<TakenAttachments> {
    fn read(section: &Section, key: &Key) -> Self {
        let pick = |value: &Value| match value {
            Value::Bool(true) => Some(TakenAttachments::All),
            Value::Bool(false) => Some(TakenAttachments::Nothing),
            value => (value == "images").then_some(TakenAttachments::Images),
        };
        section.read(key.name, "true, false or images", pick)
    }

    fn record(&self) -> Value {
        match self {
            None => Value::Null,
            Some(TakenAttachments::All) => true.into(),
            Some(TakenAttachments::Nothing) => false.into(),
            Some(TakenAttachments::Images) => "images".into(),
        }
    }
}
