//! The person's own prices, `prices.yaml` among the settings: by the host of an endpoint, then by model, each as `pricing` of
//! agent.yaml.
//!
//! Unaware of what is spent.

use super::agent::{Llm, Problem, Severity};
use super::document::Document;
use super::environment::Environment;
use super::person::config_dir;
use super::pricing::{PriceList, Pricing, read_prices};
use super::section::Section;
use crate::error::{Error, Result};
use crate::unix::writers;
use std::path::PathBuf;

/// A price that the person has noted.
pub(crate) struct OwnPrice {
    host: String,
    model: String,
    pricing: Pricing,
}

fn file() -> Option<PathBuf> {
    let path = config_dir()?.join("prices.yaml");
    path.symlink_metadata().is_ok().then_some(path)
}

/// All prices of the file.
///
/// # Errors
/// It cannot be read, or something in it is wrong: a misspelt key, too, would be a wrong price.
pub(crate) fn read_own_prices() -> std::result::Result<Vec<OwnPrice>, Vec<Problem>> {
    let Some(path) = file() else {
        return Ok(Vec::new());
    };
    let mut problems = Vec::new();
    let document = Document::read(&path, path.display().to_string(), &mut problems);
    let mut prices = Vec::new();
    if let Some(document) = &document {
        let hosts = Section::new(&document.root, Vec::new());
        for host in document.root.keys() {
            let Some(models) = hosts.read_mapping(host) else {
                continue;
            };
            let of_host = hosts.inner(models, hosts.path_to(host));
            for model in models.keys() {
                let Some(map) = of_host.read_mapping(model) else {
                    continue;
                };
                let owner = format!("{host}: {model}");
                prices.push(OwnPrice {
                    host: host.to_ascii_lowercase(),
                    model: model.clone(),
                    pricing: read_prices(of_host.inner(map, of_host.path_to(model)), &owner),
                });
            }
        }
        document.report_all(&[], hosts.take_diagnostics(), &mut problems);
    }
    for problem in &mut problems {
        problem.severity = Severity::Error;
    }
    if problems.is_empty() {
        Ok(prices)
    } else {
        Err(problems)
    }
}

fn error_of(problems: &[Problem]) -> Error {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    Error {
        is_passing: problems.iter().any(|problem| problem.is_passing),
        ..Error::config(lines.join("\n"))
    }
}

/// True if the person has noted a price of a model, at whatever host. Also if the prices cannot be read: that is the error
/// then, not a price that is missing.
pub(crate) fn has_own_price(model: Option<&str>) -> bool {
    let own = read_own_prices();
    own.map_or(true, |own| {
        own.iter().any(|price| Some(price.model.as_str()) == model)
    })
}

/// A model that is asked, and those in its place if it fails.
fn models_of(llm: &Llm) -> impl Iterator<Item = &Llm> {
    let others = llm.fallback.iter().map(|entry| &entry.llm);
    [llm].into_iter().chain(others)
}

/// True if the person's own prices are looked at for one of the models that are asked.
pub(crate) fn lacks_price(list: &PriceList, llm: &Llm) -> bool {
    models_of(llm).any(|llm| llm.command.is_none() && list.of_named(llm.model.as_deref()).is_none())
}

/// Adds the person's prices of the models that an agent asks, where the agent has none. Returns why the file does not
/// count, if tools or other users could have written it.
///
/// # Errors
/// Those of [`read_own_prices`].
pub(crate) fn add_own_prices(
    list: &mut PriceList,
    llm: &Llm,
    environment: &Environment,
) -> Result<Option<String>> {
    let Some(path) = file().filter(|_| lacks_price(list, llm)) else {
        return Ok(None);
    };
    let dir = path.parent().unwrap_or(&path);
    let objection = if environment.own_is_inside() {
        Some("it lies in the workspace, where tools can change it".to_owned())
    } else {
        writers::objection_below(dir, &path, &writers::trusted_users([]))
    };
    if let Some(why) = objection {
        return Ok(Some(format!("{} is not used: {why}", path.display())));
    }
    let prices = read_own_prices().map_err(|problems| error_of(&problems))?;
    // None: one of the hosts of the model has no price, so that its cost is not known.
    let mut found: Vec<(&str, Option<Pricing>)> = Vec::new();
    for asked in models_of(llm) {
        let Some(model) = asked.model.as_deref() else {
            continue;
        };
        let host = environment.host_of(asked);
        let is_it = |price: &&OwnPrice| Some(&price.host) == host.as_ref() && price.model == model;
        let pricing = prices.iter().find(is_it).map(|price| price.pricing);
        match found.iter_mut().find(|(known, _)| *known == model) {
            // Spending is counted by model: never less than it costs.
            Some((_, known)) => *known = known.zip(pricing).map(|(a, b)| a.dearer(b)),
            None => found.push((model, pricing)),
        }
    }
    for (model, pricing) in found {
        if let Some(pricing) = pricing {
            list.add_if_missing(model, pricing);
        }
    }
    Ok(None)
}
