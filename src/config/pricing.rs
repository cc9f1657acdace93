//! What an agent may spend: prices of models, and budgets.
//!
//! Unaware of what has been spent.

use crate::config::keys::Kind::{Amount, Count, Words};
use crate::config::keys::{Key, key, names};
use crate::config::section::{Diagnostics, Section};
use crate::error::Error;
use crate::text::json;
use crate::text::names::named_enum;
use crate::text::options::table::words;
use crate::text::timestamp::{Timestamp, parse_span};
use crate::text::yaml::Step;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

/// The keys of a model's prices.
#[rustfmt::skip]
pub(crate) static PRICING: &[Key] = &[
    key("input", Amount, "The price of a request's tokens.").required(),
    key("output", Amount, "The price of an answer's tokens.").required(),
    key("cached", Amount, "The price of a request's tokens that came from a cache. Default: the price of other tokens."),
    key("cache_write", Amount, "The price of a request's tokens that were written to a cache. Default: the price of other tokens."),
];

/// The keys of a budget.
#[rustfmt::skip]
pub(crate) static BUDGET: &[Key] = &[
    key("cost", Amount, "In the currency of pricing, which must have a price for the model."),
    key("tokens", Count(0, None), "Tokens, as the server counts them."),
    key("seconds", Count(0, None), "Seconds of the engine, without the time that people took to answer."),
    key("per", Words(&words(&BudgetScope::ALL), Some("run")), "The run's own spending, or that of the run and all runs below it."),
];

/// Prices per million tokens, in any currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Pricing {
    /// Of a request's tokens.
    pub input: f64,
    /// Of an answer's tokens.
    pub output: f64,
    /// Of a request's tokens that came from a cache; none: the same as of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<f64>,
    /// Of a request's tokens that were put into a cache; none: the same as of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

/// The prices of models, by their names. A model without a name is a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PriceList {
    of_models: Vec<(Option<String>, Pricing)>,
    /// Of the model in force, whichever that is.
    of_any: Option<Pricing>,
}

/// Whose prices the flat form of `pricing` gives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlatPrices<'m> {
    /// Those of the model that the same file names; none: of a program.
    OfFile(Option<&'m str>),
    /// Those of the model in force: they come with the command line.
    InForce,
}

impl Pricing {
    /// What a request and its answer cost. `cached` and `cache_written` are parts of `input`.
    pub(crate) fn cost(&self, (input, output): (u64, u64), cached: u64, cache_written: u64) -> f64 {
        let cached = cached.min(input);
        let cache_written = cache_written.min(input - cached);
        let fresh = input - cached - cache_written;
        let sum = fresh as f64 * self.input
            + cached as f64 * self.cached.unwrap_or(self.input)
            + cache_written as f64 * self.cache_write.unwrap_or(self.input)
            + output as f64 * self.output;
        sum / 1e6
    }
}

impl PriceList {
    /// What a model costs; none if nothing says so.
    pub(crate) fn of_model(&self, model: Option<&str>) -> Option<Pricing> {
        self.of_named(model).or(self.of_any)
    }

    /// What a model costs; none if nothing says so by its name.
    pub(crate) fn of_named(&self, model: Option<&str>) -> Option<Pricing> {
        let mut prices = self.of_models.iter();
        let named = prices.find(|(name, _)| name.as_deref() == model);
        named.map(|(_, pricing)| *pricing)
    }

    /// The prices under `pricing:`.
    pub(super) fn read(section: &Section<'_>, flat: FlatPrices<'_>, out: &mut Diagnostics) -> Self {
        let Some(map) = section.read_mapping("pricing", out) else {
            return Self::default();
        };
        let at = vec![Step::Key("pricing".to_owned())];
        let is_nested = !map.is_empty() && map.values().all(Value::is_object);
        if !is_nested {
            let section = Section::new(map, at).within("pricing");
            let pricing = prices(&section, "pricing", out);
            return match flat {
                FlatPrices::OfFile(model) => Self {
                    of_models: vec![(model.map(str::to_owned), pricing)],
                    of_any: None,
                },
                FlatPrices::InForce => Self {
                    of_models: Vec::new(),
                    of_any: Some(pricing),
                },
            };
        }
        let mut list = Vec::with_capacity(map.len());
        for (name, value) in map {
            let Some(prices_of_model) = value.as_object() else {
                continue;
            };
            let at = [at.clone(), vec![Step::Key(name.clone())]].concat();
            let owner = format!("pricing: {name}");
            let section = Section::new(prices_of_model, at).within(&owner);
            list.push((Some(name.clone()), prices(&section, &owner, out)));
        }
        Self {
            of_models: list,
            of_any: None,
        }
    }
}

fn prices(section: &Section<'_>, owner: &str, out: &mut Diagnostics) -> Pricing {
    section.warn_of_unknown_keys(&names(PRICING), out);
    for key in PRICING.iter().filter(|key| key.is_required) {
        let name = key.name;
        if !section.map.contains_key(name) {
            let message = format!("{owner}: {name} is missing; prices are per million tokens");
            out.error(section.path_to(name), message);
        }
    }
    Pricing {
        input: section.read_amount("input", out).unwrap_or_default(),
        output: section.read_amount("output", out).unwrap_or_default(),
        cached: section.read_amount("cached", out),
        cache_write: section.read_amount("cache_write", out),
    }
}

named_enum! {
    /// Whose spending a budget limits.
    #[derive(Default)]
    pub(crate) enum BudgetScope {
        /// The run's own.
        #[default]
        Run = "run",
        /// That of the run and of all runs below it.
        Tree = "tree",
    }
}

/// The limits of a run's whole life; none of them: no budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Budget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    pub per: BudgetScope,
}

impl Budget {
    pub(crate) fn has_limit(&self) -> bool {
        self.cost.is_some() || self.tokens.is_some() || self.seconds.is_some()
    }

    /// The limit of time.
    pub(crate) fn time(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.seconds?.min(1 << 32)))
    }

    /// The budget under `budget:`.
    pub(super) fn read(section: &Section<'_>, out: &mut Diagnostics) -> Self {
        let Some(section) = section.read_section("budget", out) else {
            return Self::default();
        };
        // A misspelt limit would be none.
        section.refuse_unknown_keys(&names(BUDGET), out);
        let budget = Self {
            cost: section.read_amount("cost", out),
            tokens: section.read_count("tokens", out),
            seconds: section.read_count("seconds", out),
            per: section
                .read_choice("per", &BudgetScope::ALL, out)
                .unwrap_or_default(),
        };
        if !out.has_errors() && !budget.has_limit() {
            let message = "budget: it limits nothing; give cost, tokens or seconds";
            out.warn(section.path_to(""), message);
        }
        budget
    }

    /// Reads `cost=3,tokens=500000,per=tree`. Without `per` the scope is that of `before`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<GivenBudget, String> {
        let mut given = GivenBudget::default();
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("'{part}' is not KEY=VALUE, as in cost=3,tokens=500000"))?;
            let number = |what: &str| format!("{key}: expected {what}, found '{value}'");
            let count = || value.parse::<u64>();
            match key {
                "cost" => {
                    let cost = value.parse().ok().filter(|n: &f64| n.is_finite());
                    let cost = cost.filter(|n| *n >= 0.0 && !value.starts_with('+'));
                    given.limits.cost = Some(cost.ok_or_else(|| number("a number, 0 or more"))?);
                }
                "tokens" | "seconds" => {
                    let count = count().map_err(|_| number("a whole number, 0 or more"))?;
                    let limit = match key {
                        "tokens" => &mut given.limits.tokens,
                        _ => &mut given.limits.seconds,
                    };
                    *limit = Some(count);
                }
                "per" => {
                    let scope = BudgetScope::parse(value);
                    given.per = Some(scope.ok_or_else(|| number("run or tree"))?);
                }
                _ => {
                    return Err(format!(
                        "there is no '{key}' in a budget; the keys are cost, tokens, seconds, per"
                    ));
                }
            }
        }
        if !given.limits.has_limit() {
            return Err("it limits nothing; give cost, tokens or seconds".to_owned());
        }
        Ok(given)
    }
}

/// A budget of the command line, which replaces that of agent.yaml for one start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct GivenBudget {
    limits: Budget,
    /// None: the scope of the budget that is replaced.
    per: Option<BudgetScope>,
}

impl GivenBudget {
    /// The budget as it is written on a command line.
    pub(crate) fn text(self) -> String {
        let Budget {
            cost,
            tokens,
            seconds,
            ..
        } = self.limits;
        let parts = [
            cost.map(|cost| format!("cost={cost}")),
            tokens.map(|tokens| format!("tokens={tokens}")),
            seconds.map(|seconds| format!("seconds={seconds}")),
            self.per.map(|per| format!("per={}", per.name())),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(",")
    }

    /// It asks for the scope that a flow's budget cannot have.
    pub(crate) fn is_per_run(self) -> bool {
        self.per == Some(BudgetScope::Run)
    }

    /// The budget of a flow, which is that of all its agents.
    pub(crate) fn of_tree(self) -> Budget {
        Budget {
            per: BudgetScope::Tree,
            ..self.limits
        }
    }

    /// The budget that takes the place of `before`.
    pub(crate) fn in_place_of(self, before: Budget) -> Budget {
        Budget {
            per: self.per.unwrap_or(before.per),
            ..self.limits
        }
    }
}

/// Reads a deadline: RFC 3339, seconds since the epoch, or a time from now as in `+90m`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_deadline(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let wrong =
        || format!("'{text}' is not a time such as 2026-01-02T03:04:05Z, 1767323045 or +90m");
    if let Some(from_now) = text.strip_prefix('+') {
        let bare = from_now.parse().ok().map(Duration::from_secs);
        let bare = bare.filter(|_| from_now.bytes().all(|byte| byte.is_ascii_digit()));
        let time = parse_span(from_now).or(bare.filter(|it| it.as_secs() < 1 << 40));
        return time.map(|time| now.plus(time)).ok_or_else(wrong);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let millis = text.parse::<u64>().ok();
        let millis = millis.and_then(|seconds| seconds.checked_mul(1000));
        return millis.map(Timestamp::from_millis).ok_or_else(wrong);
    }
    Timestamp::parse_with_offset(text).ok_or_else(wrong)
}

/// The value of `--budget`.
///
/// # Errors
/// Wrong usage.
pub(crate) fn read_budget(text: Option<String>) -> crate::error::Result<Option<GivenBudget>> {
    let budget = text.map(|text| Budget::parse(&text)).transpose();
    budget.map_err(|why| Error::usage(format!("--budget: {why}")))
}

/// The value of `--deadline`.
///
/// # Errors
/// Wrong usage.
pub(crate) fn read_deadline(text: Option<String>) -> crate::error::Result<Option<Timestamp>> {
    let deadline = text.map(|text| parse_deadline(&text, Timestamp::now()));
    let deadline = deadline.transpose();
    deadline.map_err(|why| Error::usage(format!("--deadline: {why}")))
}

/// The model that a file names before anything of it is overridden.
pub(super) fn model_of_file(root: &Map<String, Value>) -> Option<String> {
    let model = root.get("llm")?.get("model")?.as_str()?;
    Some(model.to_owned())
}

/// Reports a cost budget for a model without prices.
pub(super) fn check_prices(
    budget: &Budget,
    prices: &PriceList,
    model: Option<&str>,
    out: &mut Diagnostics,
) {
    if budget.cost.is_some() && prices.of_model(model).is_none() {
        out.error(
            vec![Step::Key("budget".to_owned())],
            unpriced("budget: cost", model),
        );
    }
}

/// Why a limit of the cost cannot be kept.
pub(crate) fn unpriced(what: &str, model: Option<&str>) -> String {
    // Numbers, so that each can be pasted.
    const PRICES: &str = "{input: 3, output: 15}";
    let in_file = match model {
        Some(model) => format!("{{{}: {PRICES}}}", json::text(model)),
        None => PRICES.to_owned(),
    };
    let model = model.unwrap_or("the program that is the model");
    format!(
        "{what}: there is no pricing of {model}; give its prices per million tokens, as in agent.yaml with \
         pricing: {in_file}, or for one run with --set 'pricing={PRICES}'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_have_a_price_of_their_own_if_one_is_given() {
        let mut pricing = Pricing {
            input: 2.0,
            output: 8.0,
            cached: Some(0.5),
            cache_write: Some(3.0),
        };
        let cost = |pricing: Pricing| pricing.cost((1_000_000, 500_000), 400_000, 100_000);
        assert!((cost(pricing) - 5.5).abs() < 1e-9);
        (pricing.cached, pricing.cache_write) = (None, None);
        assert!((cost(pricing) - 6.0).abs() < 1e-9);
    }

    #[test]
    fn a_deadline_is_a_time_an_epoch_or_a_time_from_now() {
        let now = Timestamp::parse("2026-01-02T03:04:05Z").unwrap();
        let parsed = |text| parse_deadline(text, now).map(|at| at.to_string()).ok();
        let at = |text: &str| Some(text.to_owned());
        assert_eq!(parsed("+90m"), at("2026-01-02T04:34:05.000Z"));
        assert_eq!(parsed("1767323045"), at("2026-01-02T03:04:05.000Z"));
        assert_eq!(
            parsed("2026-01-02T05:04:05+02:00"),
            at("2026-01-02T03:04:05.000Z")
        );
        assert_eq!(
            parsed("2026-01-02T05:04:05Z"),
            at("2026-01-02T05:04:05.000Z")
        );
        for wrong in [
            "",
            "+",
            "+m",
            "+5y",
            "-5m",
            "tomorrow",
            "+99999999999999999999d",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_given_budget_replaces_the_limits_and_keeps_the_scope() {
        let before = Budget {
            tokens: Some(5),
            per: BudgetScope::Tree,
            ..Budget::default()
        };
        let given = Budget::parse("cost=3,seconds=60").unwrap();
        let after = given.in_place_of(before);
        assert_eq!(
            (after.cost, after.tokens, after.seconds),
            (Some(3.0), None, Some(60))
        );
        assert_eq!(after.per, BudgetScope::Tree);
        for wrong in [
            "",
            "cost",
            "cost=-1",
            "cost=inf",
            "cost=NaN",
            "tokens=1.5",
            "per=tree",
            "euros=3",
        ] {
            Budget::parse(wrong).unwrap_err();
        }
    }
}
