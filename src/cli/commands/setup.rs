//! `delta setup`: chooses endpoint, key and model, tries them with one request, and only then writes them to the
//! person's own settings.

use super::models::{LIST_TIME, error_of, table, warn_of_left_out};
use crate::cli::agent_names::find_agent;
use crate::cli::message::GivenAgent;
use crate::config::agent::Llm;
use crate::config::api::{API, Api, without_slash};
use crate::config::environment::{
    Endpoint, Environment, MODEL, Secret, find_proxy, is_loopback, key_names, key_objection,
    url_objection, without_secrets,
};
use crate::config::person;
use crate::config::settings_file::{Setting, save};
use crate::engine::question::ask_person;
use crate::error::{Error, Exit, Result, reason};
use crate::model::listing::{Listing, Unanswered, list_models, try_model};
use crate::record::event::InputType;
use crate::runs::preflight::{install_signals, load_agent, read_variables};
use crate::text::amounts::counted;
use crate::text::disguise::is_unseen;
use crate::text::json::LONGEST_EXCERPT;
use crate::text::options::parse::ParsedCommand;
use crate::text::shorten::MOST_LISTED;
use crate::text::suggestion::nearest;
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, Tone};
use serde_json::Map;
use std::io::{self, IsTerminal, Read};
use std::sync::Arc;
use std::time::Duration;

/// Services by the names that people call them.
const SERVICES: [(&str, &str); 8] = [
    ("openai", "https://api.openai.com/v1"),
    ("anthropic", "https://api.anthropic.com/v1"),
    (
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
    ),
    ("mistral", "https://api.mistral.ai/v1"),
    ("deepseek", "https://api.deepseek.com/v1"),
    ("groq", "https://api.groq.com/openai/v1"),
    ("xai", "https://api.x.ai/v1"),
    ("openrouter", "https://openrouter.ai/api/v1"),
];

/// Ports at which servers on this machine usually listen: llama.cpp, with its router, Ollama, vLLM, LM Studio.
const PORTS: [u16; 5] = [8080, 9931, 11434, 8000, 1234];

/// The time that a server on this machine may take to list its models.
const NEARBY_TIME: Duration = Duration::from_secs(1);

// The variables that decide where requests go, and with which key.
const URL: &str = "DELTA_BASE_URL";
const KEY: &str = "DELTA_API_KEY";

struct Setup<'a> {
    given: &'a ParsedCommand,
    /// Settings of the model of `DELTA_AGENT` or `@coder`, whose requests the settings are for.
    llm: Llm,
    environment: Environment,
    signals: Arc<Signals>,
    screen: Screen,
    /// A person answers what the command line leaves open.
    asks: bool,
}

pub(crate) fn set_up(given: &ParsedCommand) -> Result<Exit> {
    let asks = !given.has("--yes") && io::stdin().is_terminal() && io::stderr().is_terminal();
    if !asks && !given.has("--base-url") {
        return Err(Error::usage(
            "setup asks its questions at a terminal; without one, or with -y: \
             delta setup --base-url URL --model NAME [--key-stdin]",
        ));
    }
    let signals = install_signals()?;
    let screen = Screen::new(false, false);
    let quiet = Screen::new(true, false);
    let home = find_agent(&GivenAgent::Usual)?.home;
    let mut agent = load_agent(&home, &Map::new(), quiet)?;
    let mut setup = Setup {
        given,
        environment: read_variables(&mut agent, None, quiet)?,
        llm: agent.llm,
        signals,
        screen,
        asks,
    };
    setup.run().map_err(|error| Error {
        message: format!("{}; nothing was written", error.message),
        ..error
    })
}

impl Setup<'_> {
    fn run(&mut self) -> Result<Exit> {
        let base_url = self.choose_url()?;
        let is_same = self.file_endpoint(KEY)? == base_url;
        let in_force = self
            .environment
            .endpoint(self.llm.api, None, &[])
            .ok()
            .filter(|now| now.base_url == base_url);
        self.llm.base_url = Some(base_url.clone());
        // The file's word is for the file's endpoint.
        if is_same {
            self.environment.choose_api(&mut self.llm)?;
        } else {
            Environment::default().choose_api(&mut self.llm)?;
        }
        let set = self.set_key(&base_url, in_force)?;
        let typed = self.choose_key(&base_url, set.as_ref().map(|(_, source)| source))?;
        if let (None, Some((_, source))) = (&typed, &set) {
            self.remark(&format!("the key is {source}"));
        }
        let key = typed.clone().or(set.map(|(key, _)| key));
        if key.is_none() && !is_loopback(&base_url) {
            let message = format!("no key for {base_url}: give it with --key-stdin");
            return Err(Error::usage(message));
        }
        let endpoint = Endpoint {
            api: self.llm.api,
            base_url: base_url.clone(),
            secrets: key.iter().cloned().collect(),
            is_workspaces_key: false,
            key_source: None,
            headers: Vec::new(),
            proxy: find_proxy(&base_url)?.map(Box::new),
            key,
        };
        let model = self.choose_model(&endpoint)?;
        let llm = Llm {
            model: Some(model.clone()),
            ..self.llm.clone()
        };
        self.remark(&format!("asking {model} at {base_url} …"));
        try_model(&endpoint, &llm, &self.signals).map_err(error_of)?;
        self.write(&base_url, &model, typed.as_ref())
    }

    fn choose_url(&self) -> Result<String> {
        if let Some(url) = self.given.text("--base-url") {
            return url_of(&url).map_err(Error::usage);
        }
        let mut choices: Vec<(String, String)> = Vec::new();
        for port in PORTS {
            let url = format!("http://127.0.0.1:{port}/v1");
            if let Some(count) = self.nearby(&url)? {
                choices.push((url, format!("on this machine, {}", counted(count, "model"))));
            }
        }
        let known = SERVICES.iter();
        choices.extend(known.map(|(name, url)| ((*url).to_owned(), (*name).to_owned())));
        for (at, (url, what)) in choices.iter().enumerate() {
            self.remark(&format!("{:>3}  {what:<26} {url}", at + 1));
        }
        loop {
            let answer = self.ask("which endpoint: number, name or URL?", false)?;
            let chosen = numbered(&answer, &choices);
            let url = chosen.map_or_else(|| url_of(&answer), |(url, _)| Ok(url.clone()));
            match url {
                Ok(url) => return Ok(url),
                Err(why) => self.screen.warn(&why),
            }
        }
    }

    /// The number of models that a server on this machine lists, without a key; absent if there is no such server.
    fn nearby(&self, base_url: &str) -> Result<Option<usize>> {
        let endpoint = Endpoint {
            api: self.llm.api,
            base_url: base_url.to_owned(),
            key: None,
            headers: Vec::new(),
            secrets: Vec::new(),
            is_workspaces_key: false,
            key_source: None,
            proxy: None,
        };
        match list_models(&endpoint, &self.llm, NEARBY_TIME, &self.signals) {
            Ok(listing) => Ok(Some(listing.models.len())),
            Err(Unanswered::Failed(_)) => Ok(None),
            Err(stopped) => Err(error_of(stopped)),
        }
    }

    /// The endpoint that a key of the person's file is for.
    fn file_endpoint(&self, key: &str) -> Result<String> {
        let of_key = Api::ALL.into_iter().find(|(_, api)| api.key_name() == key);
        let api = of_key.map_or(Api::Chat, |(_, api)| api);
        let variables = person::variables()?;
        let mut names = api.url_names().iter();
        let url = names
            .find_map(|name| value_of(variables, name))
            .unwrap_or_else(|| api.public_endpoint());
        Ok(without_slash(url))
    }

    /// The key that a run would send to an endpoint without a new one, and where it is set.
    fn set_key(
        &self,
        base_url: &str,
        in_force: Option<Endpoint>,
    ) -> Result<Option<(Secret, String)>> {
        let names = key_names(self.llm.api, base_url);
        for name in names {
            let source = format!("{name} in the environment");
            let value = std::env::var(name).unwrap_or_default();
            if let Some(why) = key_objection(&value).filter(|_| !value.trim().is_empty()) {
                return Err(Error::config(format!("{source}: {why}")));
            }
            if let Some(key) = Secret::new(&value) {
                return Ok(Some((key, source)));
            }
        }
        if let Some(now) = in_force
            && let (Some(key), Some(source)) = (now.key, now.key_source)
        {
            return Ok(Some((key, source)));
        }
        let vendors = names[0] != KEY;
        let own = value_of(person::variables()?, names[0]).filter(|_| vendors);
        let key = own.and_then(Secret::new);
        Ok(key.map(|key| (key, format!("{} in {}", names[0], person::shown_file()))))
    }

    /// The keys in the file that runs would send to an endpoint, and that belong to another one, with that.
    fn foreign_keys(&self, base_url: &str, is_typed: bool) -> Result<Vec<(&'static str, String)>> {
        let names = key_names(self.llm.api, base_url);
        let mut foreign = Vec::new();
        for name in names {
            let of = self.file_endpoint(name)?;
            let is_vendors = name != KEY && name == names[0];
            // Another one of the same endpoint would override it.
            let is_replaced = is_typed && name == KEY && names[0] != KEY;
            if !is_vendors
                && (of != base_url || is_replaced)
                && value_of(person::variables()?, name).is_some()
            {
                foreign.push((name, without_secrets(&of)));
            }
        }
        Ok(foreign)
    }

    /// A new key; none: the one that is in force, or no key at all.
    fn choose_key(&self, base_url: &str, source: Option<&String>) -> Result<Option<Secret>> {
        let text = if self.given.has("--key-stdin") {
            let mut text = String::new();
            let stdin = io::stdin().lock();
            let read = stdin.take(LONGEST_EXCERPT as u64).read_to_string(&mut text);
            read.map_err(|e| Error::usage(format!("cannot read the key: {}", reason(&e))))?;
            if text.trim().is_empty() {
                return Err(Error::usage("--key-stdin: the standard input is empty"));
            }
            text
        } else if self.asks {
            let empty = match (source, is_loopback(base_url)) {
                (Some(source), _) => format!("; empty: {source}"),
                (None, true) => "; empty: none".to_owned(),
                (None, false) => String::new(),
            };
            self.ask(&format!("key (not shown{empty})?"), true)?
        } else {
            String::new()
        };
        let text = text.trim();
        match key_objection(text) {
            Some(why) => Err(Error::usage(format!("the key cannot be sent: {why}"))),
            None => Ok(Secret::new(text)),
        }
    }

    fn choose_model(&self, endpoint: &Endpoint) -> Result<String> {
        let given = self.given.text("--model");
        if given.as_deref().is_some_and(|model| !is_model(model)) {
            return Err(Error::usage("--model: that is no name of a model"));
        }
        let limit = self.llm.timeout.min(LIST_TIME);
        let listing = match list_models(endpoint, &self.llm, limit, &self.signals) {
            Ok(listing) => listing,
            // What the request says counts.
            Err(Unanswered::Failed(_)) if given.is_some() => Listing::default(),
            Err(Unanswered::Failed(why)) if self.asks => {
                let why = error_of(Unanswered::Failed(why)).message;
                self.screen.warn(&format!("no list of models: {why}"));
                Listing::default()
            }
            Err(unanswered) => return Err(error_of(unanswered)),
        };
        if let Some(model) = given {
            self.mention_unlisted(&model, &listing);
            return Ok(model);
        }
        warn_of_left_out(&listing, self.screen);
        match (self.asks, listing.models.as_slice()) {
            (true, _) => self.ask_model(&listing),
            (false, [only]) => Ok(only.name.clone()),
            (false, all) => {
                let count = counted(all.len(), "model");
                let message = format!("the endpoint lists {count}: choose one with --model NAME");
                Err(Error::usage(message))
            }
        }
    }

    /// Lets a person choose a model by number or name; a part of a name shows those that have it.
    fn ask_model(&self, listing: &Listing) -> Result<String> {
        let mut part = String::new();
        let has = |part: &str| {
            let part = part.to_lowercase();
            let all = listing.models.iter();
            all.filter(move |it| it.name.to_lowercase().contains(&part))
        };
        loop {
            let shown: Vec<_> = has(&part).collect();
            let table = table(shown.iter().take(MOST_LISTED).copied());
            for (at, line) in table.lines(None).lines().enumerate() {
                self.remark(&format!("{:>3}  {line}", at + 1));
            }
            if shown.len() > MOST_LISTED {
                let more = shown.len() - MOST_LISTED;
                self.remark(&format!(
                    "     and {more} more; type a part of the name to see fewer"
                ));
            }
            let answer = self.ask("which model: number or name?", false)?;
            let by_number = numbered(&answer, &shown[..shown.len().min(MOST_LISTED)]);
            let is_listed = listing.models.iter().any(|it| it.name == answer);
            if let Some(model) = by_number {
                return Ok(model.name.clone());
            }
            if is_listed {
                return Ok(answer);
            }
            if answer.is_empty() || has(&answer).next().is_some() {
                part = answer;
            } else if is_model(&answer) {
                self.mention_unlisted(&answer, listing);
                return Ok(answer);
            } else {
                self.screen.warn("that is no name of a model");
            }
        }
    }

    /// Warns of a model that is not in the endpoint's list.
    fn mention_unlisted(&self, model: &str, listing: &Listing) {
        let names = || listing.models.iter().map(|it| it.name.as_str());
        if names().next().is_some() && !names().any(|name| name == model) {
            let near = nearest(model, names())
                .map_or_else(String::new, |it| format!("; did you mean '{it}'?"));
            let text = format!("warning: the endpoint lists no model '{model}'{near}");
            self.screen.warn(&text);
        }
    }

    /// Writes what was tried. A key that came from elsewhere stays where it is.
    fn write(&self, base_url: &str, model: &str, typed: Option<&Secret>) -> Result<Exit> {
        let in_variable = self.llm.api_choice.reason.starts_with(API);
        let api = in_variable.then(|| self.llm.api.name());
        let mut settings: Vec<Setting<'_>> =
            vec![(URL, Some(base_url)), (MODEL, Some(model)), (API, api)];
        let [first, _] = key_names(self.llm.api, base_url);
        // At a vendor's own endpoint the vendor's variable wins.
        if let Some(key) = typed {
            settings.push((first, Some(key.expose())));
        }
        let foreign = self.foreign_keys(base_url, typed.is_some())?;
        let (path, aside) = save(&settings, &foreign, &self.signals)?;
        let mut done = format!("wrote {}", path.display());
        if let Some(aside) = aside {
            done.push_str(&format!("; its old text is in {}", aside.display()));
        }
        self.remark(&done);
        for (name, value) in settings {
            let set = std::env::var(name).unwrap_or_default();
            if !set.trim().is_empty() && value != Some(set.trim()) {
                self.screen.warn(&format!(
                    "warning: {name} in the environment overrides the file"
                ));
            }
        }
        self.remark("next: delta run 'what to do'");
        Ok(Exit::Success)
    }

    fn remark(&self, text: &str) {
        self.screen.progress(&[(Tone::Dim, text)]);
    }

    /// Asks a question. The answer has no blanks at its ends.
    fn ask(&self, prompt: &str, is_secret: bool) -> Result<String> {
        ask_person(&self.signals, prompt, InputType::Text, is_secret)
    }
}

/// The endpoint of a service's name, or of a URL.
fn url_of(text: &str) -> std::result::Result<String, String> {
    let known = SERVICES
        .iter()
        .find(|(name, _)| *name == text.to_lowercase());
    let url = without_slash(known.map_or(text, |(_, url)| url));
    match url_objection(&url) {
        None => Ok(url),
        Some(why) => {
            let shown = without_secrets(&url);
            Err(format!("the base URL '{shown}' cannot be used: {why}"))
        }
    }
}

/// The item that an answer names by its number, from 1.
fn numbered<'i, T>(answer: &str, items: &'i [T]) -> Option<&'i T> {
    let number: usize = answer.parse().ok()?;
    items.get(number.checked_sub(1)?)
}

/// A variable among these, if it is not empty.
fn value_of<'v>(variables: &'v [(String, String)], name: &str) -> Option<&'v str> {
    let found = variables.iter().find(|(known, _)| known == name);
    found
        .map(|(_, value)| value.trim())
        .filter(|value| !value.is_empty())
}

fn is_model(name: &str) -> bool {
    !name.trim().is_empty() && name.trim() == name && !name.contains(is_unseen)
}
