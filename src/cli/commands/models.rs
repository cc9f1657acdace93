//! `delta models`: the models of the endpoint in force, one a line.

use crate::cli::agent_names::find_agent;
use crate::cli::args::only_agent;
use crate::cli::message::GivenAgent;
use crate::config::agent::Agent;
use crate::error::{Error, Exit, Result};
use crate::model::listing::{ListedModel, Listing, Unanswered, list_models};
use crate::runs::preflight::{install_signals, load_agent, read_variables};
use crate::text::amounts::counted;
use crate::text::disguise::visible;
use crate::text::options::parse::ParsedCommand;
use crate::text::table::{Column, Table};
use crate::unix::signals::Signals;
use crate::unix::terminal::{Screen, columns, print};
use std::sync::Arc;
use std::time::Duration;

/// The time that an endpoint may take to list its models.
pub(super) const LIST_TIME: Duration = Duration::from_secs(20);

pub(crate) fn print_models(given: &ParsedCommand) -> Result<Exit> {
    let signals = install_signals()?;
    let (_, listing) = list_for(&only_agent(given)?, &signals, LIST_TIME)?;
    print(table(listing.models.iter()).lines(columns()))?;
    warn_of_left_out(&listing, Screen::new(true, false));
    Ok(Exit::Success)
}

/// An agent with the model that it would ask, and the models of its endpoint.
pub(super) fn list_for(
    agent: &GivenAgent,
    signals: &Arc<Signals>,
    limit: Duration,
) -> Result<(Agent, Listing)> {
    let screen = Screen::new(true, false);
    let found = find_agent(agent)?;
    let mut agent = load_agent(&found.home, &serde_json::Map::new(), screen)?;
    if agent.llm.command.is_some() {
        let name = &agent.name;
        let message = format!("the model of agent {name} is a program: there is no list");
        return Err(Error::failure(message));
    }
    let environment = read_variables(&mut agent, None, screen)?;
    let llm = &agent.llm;
    let endpoint = environment.endpoint(llm.api, llm.base_url.as_deref(), &llm.headers)?;
    let limit = llm.timeout.min(limit);
    let listing = list_models(&endpoint, llm, limit, signals).map_err(error_of)?;
    Ok((agent, listing))
}

/// The names of models, and what the endpoint says about each.
pub(super) fn table<'m>(models: impl Iterator<Item = &'m ListedModel>) -> Table {
    let row = |model: &ListedModel| {
        let window = model.window.map(|tokens| format!("window {tokens}"));
        let prices = model
            .prices
            .map(|(input, output)| format!("input {input}, output {output}"));
        let facts: Vec<String> = window.into_iter().chain(prices).collect();
        vec![model.name.clone(), facts.join(", ")]
    };
    Table {
        rows: models.map(row).collect(),
        columns: vec![Column::Name, Column::Text],
        gap: 2,
    }
}

pub(super) fn warn_of_left_out(listing: &Listing, screen: Screen) {
    if listing.left_out > 0 {
        let names = counted(listing.left_out, "name");
        screen.warn(&format!(
            "{names} left out: too long, or with characters that cannot be shown"
        ));
    }
}

/// The error of an endpoint that did not answer. A server's words stay on one line.
pub(super) fn error_of(unanswered: Unanswered) -> Error {
    match unanswered {
        Unanswered::Failed(why) => Error::failure(visible(&why)),
        Unanswered::Stopped(stop) => stop.into(),
    }
}
