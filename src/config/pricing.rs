//! Limits of an agent's spending: prices of models, and budgets.
//!
//! Unaware of what has been spent.

use crate::config::keys::Kind::{Amount, Count, Words};
use crate::config::keys::{key, keys, names};
use crate::config::section::Section;
use crate::error::Error;
use crate::text::json;
use crate::text::names::named_enum;
use crate::text::options::table::words;
use crate::text::timestamp::{Timestamp, parse_span};
use crate::text::yaml::Step;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::time::Duration;

keys! {
    /// Prices per million tokens, in any currency.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Pricing, PRICING
    fields {}
    keys {
        input: f64 = key("input", Amount, "The price of a request's tokens.").required(),
        output: f64 = key("output", Amount, "The price of an answer's tokens.").required(),
        cached: Option<f64> = key("cached", Amount,
            "The price of a request's tokens that came from a cache. Default: the price of other tokens."),
        cache_write: Option<f64> = key("cache_write", Amount,
            "The price of a request's tokens that were written to a cache. Default: the price of other tokens."),
    }
    read by hand {}
}

impl Pricing {
    /// The higher price of each kind.
    pub(super) fn dearer(self, other: Self) -> Self {
        let of_cache = |a: Option<f64>, b: Option<f64>| {
            let given = a.is_some() || b.is_some();
            given.then(|| a.unwrap_or(self.input).max(b.unwrap_or(other.input)))
        };
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cached: of_cache(self.cached, other.cached),
            cache_write: of_cache(self.cache_write, other.cache_write),
        }
    }
}

/// The prices of models, by their names. A model without a name is a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PriceList {
    of_models: Vec<(Option<String>, Pricing)>,
    /// The price of the model in force, whichever that is.
    of_any: Option<Pricing>,
}

/// Whose prices the flat form of `pricing` gives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlatPrices<'m> {
    /// Prices of the model that the same file names; none: of a program.
    OfFile(Option<&'m str>),
    /// Prices of the model in force: they come with the command line.
    InForce,
}

impl Pricing {
    /// The cost of a request and its answer. `cached` and `cache_written` are parts of `input`.
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
    /// A model's prices, if they are known.
    pub(crate) fn of_model(&self, model: Option<&str>) -> Option<Pricing> {
        self.of_named(model).or(self.of_any)
    }

    /// A model's prices, if they are known by its name.
    pub(crate) fn of_named(&self, model: Option<&str>) -> Option<Pricing> {
        let mut prices = self.of_models.iter();
        let named = prices.find(|(name, _)| name.as_deref() == model);
        named.map(|(_, pricing)| *pricing)
    }

    /// Adds the prices of a model that has none.
    pub(super) fn add_if_missing(&mut self, model: &str, pricing: Pricing) {
        if self.of_model(Some(model)).is_none() {
            self.of_models.push((Some(model.to_owned()), pricing));
        }
    }

    /// The prices under `pricing:`.
    pub(super) fn read(section: &Section, flat: FlatPrices<'_>) -> Self {
        let Some(map) = section.read_mapping("pricing") else {
            return Self::default();
        };
        let at = section.path_to("pricing");
        let is_nested = !map.is_empty() && map.values().all(Value::is_object);
        if !is_nested {
            let pricing = read_prices(section.inner(map, at), "pricing");
            let mut list = Self::default();
            match flat {
                FlatPrices::OfFile(model) => {
                    list.of_models.push((model.map(str::to_owned), pricing));
                }
                FlatPrices::InForce => list.of_any = Some(pricing),
            }
            return list;
        }
        let named = map.iter().filter_map(|(name, value)| {
            let at = [&at[..], &[Step::Key(name.clone())]].concat();
            let pricing = read_prices(
                section.inner(value.as_object()?, at),
                &format!("pricing: {name}"),
            );
            Some((Some(name.clone()), pricing))
        });
        Self {
            of_models: named.collect(),
            of_any: None,
        }
    }
}

/// The prices of a model.
pub(super) fn read_prices(section: Section<'_>, owner: &str) -> Pricing {
    let section = section.within(owner);
    section.warn_of_unknown_keys(&names(PRICING));
    let required = PRICING.iter().filter(|key| key.is_required);
    for key in required.filter(|key| !section.has(key.name)) {
        let message = format!(
            "{owner}: {} is missing; prices are per million tokens",
            key.name
        );
        section.error(key.name, message);
    }
    let mut pricing = Pricing::default();
    pricing.read_keys(&section);
    pricing
}

named_enum! {
    /// Whose spending a budget limits.
    #[derive(Default)]
    pub(crate) enum BudgetScope {
        /// The run's own.
        #[default]
        Run = "run",
        /// The spending of the run and of all runs below it.
        Tree = "tree",
    }
}

const SCOPES: [&str; 2] = words(&BudgetScope::ALL);

keys! {
    /// The limits of a run's whole life; none of them: no budget.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Budget, BUDGET
    fields {}
    keys {
        cost: Option<f64> = key("cost", Amount, "In the currency of pricing, which must have a price for the model."),
        tokens: Option<u64> = key("tokens", Count(0, None), "Tokens, as the server counts them."),
        seconds: Option<u64> = key("seconds", Count(0, None), "Seconds of the engine, without the time that people took to answer."),
        per: BudgetScope = key("per", Words(&SCOPES, Some("run")),
            "The run's own spending, or that of the run and all runs below it."),
    }
    read by hand {}
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
    pub(super) fn read(section: &Section) -> Self {
        let Some(section) = section.read_section("budget") else {
            return Self::default();
        };
        // A misspelt limit would be none.
        section.refuse_unknown_keys(&names(BUDGET));
        let mut budget = Self::default();
        budget.read_keys(&section);
        if !section.has_errors() && !budget.has_limit() {
            let message = "budget: it limits nothing; give cost, tokens or seconds";
            section.warn("", message);
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
            let count = || {
                let count = value.parse::<u64>();
                count.map_err(|_| number("a whole number, 0 or more"))
            };
            match key {
                "cost" => {
                    let cost = value
                        .parse()
                        .ok()
                        .filter(|n: &f64| n.is_finite())
                        .filter(|n| *n >= 0.0 && !value.starts_with('+'));
                    given.limits.cost = Some(cost.ok_or_else(|| number("a number, 0 or more"))?);
                }
                "tokens" => given.limits.tokens = Some(count()?),
                "seconds" => given.limits.seconds = Some(count()?),
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

    /// True if it asks for the scope that a flow's budget cannot have.
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
        let bare = from_now
            .parse()
            .ok()
            .map(Duration::from_secs)
            .filter(|_| from_now.bytes().all(|byte| byte.is_ascii_digit()));
        let time = parse_span(from_now).or(bare.filter(|it| it.as_secs() < 1 << 40));
        return time.map(|time| now.plus(time)).ok_or_else(wrong);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let millis = text
            .parse::<u64>()
            .ok()
            .and_then(|seconds| seconds.checked_mul(1000));
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
    let deadline = text
        .map(|text| parse_deadline(&text, Timestamp::now()))
        .transpose();
    deadline.map_err(|why| Error::usage(format!("--deadline: {why}")))
}

/// The model that a file names before anything of it is overridden.
pub(super) fn model_of_file(root: &Map<String, Value>) -> Option<String> {
    let model = root.get("llm")?.get("model")?.as_str()?;
    Some(model.to_owned())
}

/// Reports a cost budget for a model without prices.
pub(super) fn check_prices(
    section: &Section,
    budget: &Budget,
    prices: &PriceList,
    model: Option<&str>,
) {
    if budget.cost.is_some() && prices.of_model(model).is_none() {
        let at = vec![Step::Key("budget".to_owned())];
        section.error_at(at, unpriced("budget: cost", model));
    }
}

/// The reason why a limit of the cost cannot be kept.
pub(crate) fn unpriced(what: &str, model: Option<&str>) -> String {
    // Numbers, so that each can be pasted.
    const PRICES: &str = "{input: 3, output: 15}";
    let in_file = match model {
        Some(model) => format!("{{{}: {PRICES}}}", json::text(model)),
        None => PRICES.to_owned(),
    };
    let asked = model.unwrap_or("the program that is the model");
    format!(
        "{what}: there is no pricing of {asked}; give its prices per million tokens, as in agent.yaml with \
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
