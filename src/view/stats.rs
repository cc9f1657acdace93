//! Place where the time and the tokens of a run went: its journal and the records beside it, added up.
//!
//! Unaware of how figures are shown. Everything is read line by line. A flow's figures include the tokens
//! of the runs that its nodes have started.

mod cache;
pub(crate) mod flow;
mod later;

use crate::config::pricing::{Budget, BudgetScope, Pricing};
use crate::engine::account::{RecordedUsage, engine_time, recorded_usage};
use crate::error::Result;
use crate::record::event::flow::Tool;
use crate::record::event::recorded::{self, ActionResult};
use crate::record::event::{Line, ReadUsage, Recorded, Text, Tokens};
use crate::record::execution::hook_duration;
use crate::record::invocations::{self, InvocationStatus, TokenUsage};
use crate::record::network::{HostTraffic, add_traffic, read_traffic};
use crate::record::reader::{Damage, JournalReader, Stopped, read_journal};
use crate::record::run_dir::RunDir;
use crate::record::spending::{self, read_tally};
use crate::record::subruns::{OpenActions, RunTree, StartedRun};
use crate::text::timestamp::Timestamp;
use cache::note_cause;
pub(crate) use cache::{Break, RESUMED};
use flow::FlowFigures;
use later::Waiting;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// A request that shares less than this part of the one before it has broken its prefix: what a
/// provider had cached of it is lost. (A block behind the conversation changes every time, and is less.)
const SHARED_AT_LEAST: f64 = 0.9;

/// Where time went, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Times {
    /// From the beginning of each start of the engine to its end.
    pub total: u64,
    /// Waiting for the model.
    pub model: u64,
    /// Waiting before a request was sent again.
    pub waits: u64,
    /// Running tools; of a flow, while programs of its nodes ran.
    pub tools: u64,
    /// Running hooks.
    pub hooks: u64,
    /// Waiting for a person at the terminal.
    pub people: u64,
    /// Waiting for calls that end later.
    pub later: u64,
    /// The rest: delta itself, and the programs that compute context files.
    pub delta: u64,
}

/// The calls of a tool in a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ToolFigures {
    /// How often it was called.
    pub calls: u64,
    /// How many of the calls were no success.
    pub failures: u64,
    /// Among the calls that were run.
    pub median_ms: u64,
    /// Among the calls that were run.
    pub longest_ms: u64,
    /// The output of the calls, on both streams.
    pub bytes: u64,
    #[serde(skip)]
    durations: Vec<u64>,
}

/// The figures of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    /// How often an engine was started.
    pub starts: u64,
    /// Iterations.
    pub iterations: u64,
    /// Where time went.
    pub times_ms: Times,
    /// From the deferral of calls that end later to their results, whether an engine ran or not.
    pub deferred_ms: u64,
    /// Requests, each counted once.
    pub model_calls: u64,
    /// The requests among these that never got an answer.
    pub model_failures: u64,
    /// How often a request was sent again.
    pub retries: u64,
    /// Tokens of all answers.
    pub tokens: Tokens,
    /// Tokens of requests that came from a cache, if the server reported them.
    pub cached_tokens: u64,
    /// None if no prices are known.
    pub cost: Option<f64>,
    /// What the ledger says that it and the runs below it have spent; none without a ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spent: Option<Expenses>,
    /// What the budget of its last start leaves of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<Expenses>,
    /// Tokens among those that the run itself has spent that no recorded answer accounts for.
    #[serde(skip)]
    pub estimated: u64,
    /// How often the conversation was shortened.
    pub compactions: u64,
    /// Tokens that this took.
    pub compaction_tokens: u64,
    /// States of the files.
    pub file_states: u64,
    /// Requests that did not begin like the one before.
    pub prefix_breaks: Vec<Break>,
    /// By name.
    pub tools: BTreeMap<String, ToolFigures>,
    /// The connections of tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostTraffic>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<FlowFigures>,
}

/// Tokens, money and time; none where nothing is known of them.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Expenses {
    pub tokens: Option<u64>,
    pub cost: Option<f64>,
    /// None unless they are limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// State from one event to the next.
#[derive(Default)]
struct StartProgress {
    /// The tokens of the invocations that have records, by their names.
    recorded: HashMap<String, Option<TokenUsage>>,
    pricing: Option<Pricing>,
    /// The models that may be asked in place of the first.
    fallback: Vec<Value>,
    budget: Option<Budget>,
    usage: RecordedUsage,
    started_at: Option<Timestamp>,
    asked_at: Option<Timestamp>,
    last_at: Option<Timestamp>,
    waiting: Waiting,
}

/// The prices of a model that is asked in place of the first. `name` begins with the model's own.
fn fallback_pricing(chain: &[Value], name: &str) -> Option<Pricing> {
    let model = name.split(" at ").next();
    let entry = chain
        .iter()
        .find(|entry| entry["model"].as_str() == model)?;
    serde_json::from_value(entry["pricing"].clone()).ok()
}

/// The figures of a run, and where its journal is damaged: they count up to there.
pub(crate) fn of(run: &RunDir) -> Result<(Figures, Option<Damage>)> {
    of_one(run, &mut RunTree::around(run))
}

fn of_one(run: &RunDir, family: &mut RunTree) -> Result<(Figures, Option<Damage>)> {
    let mut figures = Figures::default();
    let mut underway = OpenActions::default();
    let mut lines = JournalReader::open(&run.journal())?;
    let mut reading = StartProgress {
        recorded: figures.invocations(&run.io("invocations"))?,
        ..StartProgress::default()
    };
    let stopped = lines.read_while(|line| {
        reading.usage.add(line, run.id.as_str());
        figures.event(line, run, &mut reading);
        // What sub-agents of a run have used is theirs; what they have used in a node is the node's.
        if figures.flow.is_some() || family.is_nested() {
            let runs = family.of_event(&mut underway, run, line);
            figures.spent_in(&runs, family);
        }
        Ok(true)
    })?;
    if figures.flow.is_some() || family.is_nested() {
        let runs = family.of_open(&mut underway, run);
        figures.spent_in(&runs, family);
    }
    figures.end_of_start(&mut reading);
    let waited = reading.waiting.end(reading.last_at);
    add(&mut figures.deferred_ms, waited);
    if !family.is_nested() {
        let is_damaged = matches!(stopped, Stopped::AtDamage(_));
        figures.expenses(run, &reading, is_damaged)?;
    }
    let times = &mut figures.times_ms;
    times.delta = [
        times.model,
        times.waits,
        times.tools,
        times.hooks,
        times.people,
        times.later,
    ]
    .into_iter()
    .fold(times.total, u64::saturating_sub);
    if let Some(flow) = &mut figures.flow {
        flow.finish();
    }
    for tool in figures.tools.values_mut() {
        tool.durations.sort_unstable();
        tool.median_ms = median(&tool.durations);
        tool.longest_ms = tool.durations.last().copied().unwrap_or(0);
    }
    let damage = match stopped {
        Stopped::AtDamage(damage) => Some(damage),
        Stopped::AtEnd { .. } | Stopped::Enough => None,
    };
    Ok((figures, damage))
}

impl Figures {
    /// Adds what the ledger of a run says, and the time that its engine worked.
    fn expenses(&mut self, run: &RunDir, reading: &StartProgress, is_damaged: bool) -> Result<()> {
        let Some(tally) = read_tally(&run.path.join(spending::FILE))? else {
            return Ok(());
        };
        let (all, own) = (tally.all(), tally.own());
        let journal = || read_journal(&run.journal()).unwrap_or_default();
        if self.flow.is_none() {
            // Also behind damage, and without what a fork began with.
            let recorded = if is_damaged {
                recorded_usage(&journal(), run.id.as_str())
            } else {
                reading.usage.sum
            };
            self.estimated = own.tokens().saturating_sub(recorded.total_tokens);
        }
        let limit = reading.budget.and_then(|budget| budget.seconds);
        let time = limit.map(|_| engine_time(&journal(), &run.id));
        let ms = time.map_or(0, |time| time.as_millis() as u64);
        let seconds = |ms: u64| ms as f64 / 1000.0;
        let has_price = reading.pricing.is_some() || all.cost() > 0.0;
        self.spent = Some(Expenses {
            tokens: Some(all.tokens()),
            cost: has_price.then(|| all.cost()),
            seconds: limit.map(|_| seconds(ms)),
        });
        self.left = reading.budget.map(|budget| {
            let counted = match budget.per {
                BudgetScope::Run => own,
                BudgetScope::Tree => all,
            };
            Expenses {
                tokens: budget.tokens.map(|it| it.saturating_sub(counted.tokens())),
                cost: budget.cost.map(|it| (it - counted.cost()).max(0.0)),
                seconds: limit.map(|it| seconds(it.saturating_mul(1000).saturating_sub(ms))),
            }
        });
        Ok(())
    }

    fn event(&mut self, line: &Line<'_>, run: &RunDir, reading: &mut StartProgress) {
        let at = line.time();
        self.iterations = self.iterations.max(line.iteration.unwrap_or(0));
        note_cause(&mut self.prefix_breaks, line);
        match &line.event {
            Recorded::EngineStart(start) => {
                self.end_of_start(reading);
                self.starts += 1;
                reading.started_at = at;
                let config = start.config();
                reading.pricing = config.get("pricing").read().or(reading.pricing);
                reading.budget = config.get("budget").read();
                reading.fallback = config.llm().get("fallback").read_or_default();
            }
            Recorded::ModelChanged(change) => {
                reading.pricing = fallback_pricing(&reading.fallback, &change.to);
            }
            Recorded::Thought(thought) => {
                let usage = thought.usage.unwrap_or_default();
                let reference = &thought.llm_invocation_ref;
                let is_recorded = self.answer(usage, reference, reading, at);
                self.model_calls += u64::from(!is_recorded);
            }
            Recorded::Compaction(event) => {
                self.compactions += 1;
                self.aside(event.usage, &event.llm_invocation_ref, reading, at);
            }
            Recorded::Files(_) => self.file_states += 1,
            Recorded::SystemMessage(note) => {
                self.aside(note.usage, &Text::default(), reading, at);
            }
            Recorded::ActionResult(result) => self.result(line, result, run),
            Recorded::Acceptance(check) => self.check(line, check, run),
            Recorded::HumanInputRequest(_) => reading.asked_at = at,
            Recorded::HumanInputReceived(_) => {
                if let (Some(asked), Some(at)) = (reading.asked_at.take(), at) {
                    add(
                        &mut self.times_ms.people,
                        at.since(asked).as_millis() as u64,
                    );
                }
            }
            Recorded::HookAudit(hook) => {
                let dir = hook.io_path_ref.get().map(|name| run.path.join(name));
                let took = dir.and_then(|dir| hook_duration(&dir));
                add(&mut self.times_ms.hooks, took.unwrap_or(0));
            }
            Recorded::FlowStart(_) => {
                self.flow.get_or_insert_default();
            }
            Recorded::Tool(call) => self.node_call(line, call, run),
            _ => {}
        }
        if let Some(flow) = &mut self.flow {
            flow.event(line, at, run);
        }
        let waited = reading.waiting.add(line, reading.last_at);
        add(&mut self.times_ms.later, waited.in_start);
        add(&mut self.deferred_ms, waited.in_all);
        reading.last_at = at.or(reading.last_at);
        if matches!(line.event, Recorded::EngineEnd(_)) {
            self.end_of_start(reading);
        }
    }

    /// Counts a check of an answer as a call of the program that it is.
    fn check(&mut self, line: &Line<'_>, check: &recorded::Acceptance<'_>, run: &RunDir) {
        let name = format!("accept: {}", check.what.get().unwrap_or("?"));
        let is_good = check.exit_code == Some(0);
        let was_run = line.execution_ref.is_some();
        self.call(&name, is_good, was_run, line, check.duration_ms, run);
        add(&mut self.times_ms.tools, check.duration_ms.unwrap_or(0));
    }

    /// Counts a call by the program of a node.
    fn node_call(&mut self, line: &Line<'_>, call: &Tool<'_>, run: &RunDir) {
        let was_run = !matches!(&*call.code, "misuse" | "policy_denied");
        let name = call.tool_name.get().unwrap_or("?");
        let is_good = call.is_success();
        self.call(name, is_good, was_run, line, call.duration_ms, run);
    }

    /// Counts the time of a start that has ended, or whose engine died behind the last event.
    fn end_of_start(&mut self, reading: &mut StartProgress) {
        if let (Some(flow), Some(end)) = (&mut self.flow, reading.last_at) {
            flow.end_of_start(end);
            self.times_ms.tools = flow.busy_ms;
        }
        if let (Some(start), Some(end)) = (reading.started_at.take(), reading.last_at) {
            add(
                &mut self.times_ms.total,
                end.since(start).as_millis() as u64,
            );
        }
        // What is answered to a later start was not waited for.
        reading.asked_at = None;
    }

    /// Counts an answer of the model. Returns whether there are records of its invocation.
    fn answer(
        &mut self,
        usage: ReadUsage,
        reference: &Text<'_>,
        reading: &StartProgress,
        at: Option<Timestamp>,
    ) -> bool {
        let name = reference
            .trim_end_matches('/')
            .strip_prefix("io/invocations/");
        let record = name.and_then(|name| reading.recorded.get(name));
        self.tokens.add(usage.tokens());
        let known = record.and_then(Option::as_ref);
        let cached = known.and_then(|known| known.cached).unwrap_or(0);
        let written = known.map_or(0, |known| known.cache_write);
        add(&mut self.cached_tokens, cached);
        if let Some(pricing) = reading.pricing {
            let tokens = (usage.prompt_tokens, usage.completion_tokens);
            *self.cost.get_or_insert(0.0) += pricing.cost(tokens, cached, written);
        }
        if record.is_none() {
            // Its records are gone: the time since the event before is what is known.
            if let (Some(before), Some(at)) = (reading.last_at, at) {
                let waited = at.since(before).as_millis() as u64;
                add(&mut self.times_ms.model, waited);
            }
        }
        record.is_some()
    }

    /// Counts an answer that is no THOUGHT, if there was one. Its invocation is counted where it is.
    fn aside(
        &mut self,
        usage: Option<ReadUsage>,
        reference: &Text<'_>,
        reading: &StartProgress,
        at: Option<Timestamp>,
    ) {
        if let Some(usage) = usage {
            add(&mut self.compaction_tokens, usage.total_tokens);
            self.answer(usage, reference, reading, at);
        }
    }

    fn result(&mut self, line: &Line<'_>, result: &ActionResult<'_>, run: &RunDir) {
        let name = result.tool_name.get().unwrap_or("?");
        let was_run = line.execution_ref.is_some();
        if name == "ask_human" && !was_run {
            return;
        }
        let is_good = result.is_success();
        self.call(name, is_good, was_run, line, result.duration_ms, run);
        if was_run {
            add(&mut self.times_ms.tools, result.duration_ms.unwrap_or(0));
        }
    }

    /// Counts a call: whether it was a success, and whether anything was run.
    fn call(
        &mut self,
        name: &str,
        is_good: bool,
        was_run: bool,
        line: &Line<'_>,
        duration_ms: Option<u64>,
        run: &RunDir,
    ) {
        let counts = self.tools.entry(name.to_owned()).or_default();
        counts.calls += 1;
        counts.failures += u64::from(!is_good);
        let Some(reference) = line.execution_ref.get().filter(|_| was_run) else {
            return;
        };
        counts.durations.push(duration_ms.unwrap_or(0));
        for traffic in read_traffic(&run.path, Some(reference)) {
            add_traffic(&mut self.hosts, traffic);
        }
        for stream in ["stdout.log", "stderr.log"] {
            let path = run.path.join(reference).join(stream);
            add(
                &mut counts.bytes,
                path.metadata().map_or(0, |meta| meta.len()),
            );
        }
    }

    /// Adds what runs have used that this one has started.
    fn spent_in(&mut self, runs: &[StartedRun], family: &mut RunTree) {
        for StartedRun { run, node, .. } in runs {
            if !family.enter(run) {
                continue;
            }
            let spent = of_one(run, family);
            family.leave();
            let Ok((spent, _)) = spent else {
                continue;
            };
            self.model_calls += spent.model_calls;
            self.model_failures += spent.model_failures;
            self.retries += spent.retries;
            self.tokens.add(spent.tokens);
            add(&mut self.cached_tokens, spent.cached_tokens);
            self.compactions += spent.compactions;
            add(&mut self.compaction_tokens, spent.compaction_tokens);
            if let Some(cost) = spent.cost {
                *self.cost.get_or_insert(0.0) += cost;
            }
            if let (Some(flow), Some(node)) = (&mut self.flow, node) {
                flow.spent(node, spent.tokens);
            }
        }
    }

    /// Adds the figures that only the records of the invocations hold. Returns what they say of tokens.
    fn invocations(&mut self, dir: &Path) -> Result<HashMap<String, Option<TokenUsage>>> {
        let mut recorded = HashMap::new();
        let mut previous: Option<(String, Option<usize>)> = None;
        let mut number = 0;
        for name in invocations::in_order(dir)? {
            number += usize::from(!invocations::is_for_summary(&name));
            let path = dir.join(&name);
            let len = invocations::request_len(&path);
            if let Some(record) = invocations::metadata(&path) {
                self.model_calls += 1;
                self.model_failures += u64::from(!record.has(InvocationStatus::Success));
                self.retries += record.attempts.len().saturating_sub(1) as u64;
                let waited = record.waited_ms();
                add(&mut self.times_ms.waits, waited);
                add(&mut self.times_ms.model, record.duration_ms - waited);
                if let (Some(extends), Some((before, Some(previous)))) = (record.extends, previous)
                    && extends.invocation == before
                    && (extends.bytes as f64) < previous as f64 * SHARED_AT_LEAST
                {
                    let iteration = name
                        .split('_')
                        .nth(1)
                        .and_then(|number| number.parse().ok());
                    self.prefix_breaks.push(Break {
                        request: number,
                        iteration,
                        shared_bytes: extends.bytes,
                        previous_bytes: previous,
                        invocations: [before, name.clone()],
                        cause: None,
                    });
                }
                recorded.insert(name.clone(), record.token_usage);
            }
            previous = Some((name, len));
        }
        Ok(recorded)
    }

    /// Calls, failures and bytes of all tools.
    pub(crate) fn all_tools(&self) -> (u64, u64, u64) {
        self.tools.values().fold((0, 0, 0), |sum, tool| {
            (
                sum.0 + tool.calls,
                sum.1 + tool.failures,
                sum.2 + tool.bytes,
            )
        })
    }
}

/// Adds what a file says, which may be any number.
fn add(sum: &mut u64, part: u64) {
    *sum = sum.saturating_add(part);
}

/// Expects sorted values.
fn median(values: &[u64]) -> u64 {
    let middle = values.len() / 2;
    match values.len() {
        0 => 0,
        len if len % 2 == 1 => values[middle],
        _ => u64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(
            [
                median(&[]),
                median(&[3]),
                median(&[1, 3]),
                median(&[1, 2, 9])
            ],
            [0, 3, 2, 2]
        );
    }
}
