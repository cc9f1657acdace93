//! `delta stats`: where the time and the tokens of runs went, one run or several side by side.

mod flow;

use crate::error::{Exit, Result};
use crate::record::invocations::Requests;
use crate::record::metadata::Metadata;
use crate::record::network::HostTraffic;
use crate::record::run_dir::RunDir;
use crate::runs::origin::warn_if_foreign_run;
use crate::runs::{find, inspect};
use crate::text::amounts::{format_millis, grouped};
use crate::text::json;
use crate::text::options::format::TableFormat;
use crate::text::options::parse::ParsedCommand;
use crate::text::table::{Column, Table, csv_line, name_cell};
use crate::unix::terminal::{Screen, columns, print, print_json};
use crate::view::request_diff;
use crate::view::stats::{self, Break, Expenses, Figures, RESUMED, ToolFigures};
use serde::Serialize;
use std::collections::BTreeSet;
use std::iter;
use std::path::{Path, PathBuf};

/// The number of cache losses listed.
const BREAKS_SHOWN: usize = 5;

/// `stats` of `delta` and of `delta flow`.
#[derive(Debug)]
pub(crate) struct StatsArgs {
    pub work_dir: PathBuf,
    /// None: the newest.
    pub runs: Vec<String>,
    pub format: TableFormat,
}

impl StatsArgs {
    pub(crate) fn new(given: &ParsedCommand) -> Self {
        Self {
            work_dir: given.work_dir(),
            runs: given.operand_texts(),
            format: given.table_format(),
        }
    }
}

/// A run with its figures.
#[derive(Serialize)]
struct Counted {
    #[serde(skip)]
    dir: RunDir,
    run_id: String,
    agent_name: String,
    status: &'static str,
    #[serde(flatten)]
    figures: Figures,
}

/// Prints the figures of all runs.
pub(crate) fn print_stats(options: &StatsArgs) -> Result<Exit> {
    let mut runs = Vec::new();
    for run in find::find_runs(&options.work_dir, &options.runs)? {
        warn_if_foreign_run(&run)?;
        let (metadata, _) = inspect::read_summary(&run);
        runs.push(counted(&run, metadata)?);
    }
    let text = match (options.format, runs.as_slice()) {
        (TableFormat::Json, _) => array(&runs),
        (TableFormat::Csv, _) => csv(&runs),
        (TableFormat::Text, [one]) => one_run(one),
        (TableFormat::Text, _) => side_by_side(&runs),
    };
    match options.format {
        TableFormat::Json => print_json(text.as_bytes())?,
        TableFormat::Csv | TableFormat::Text => print(text.as_bytes())?,
    }
    Ok(Exit::Success)
}

fn counted(run: &RunDir, metadata: Metadata) -> Result<Counted> {
    let (figures, damage) = stats::of(run)?;
    if let Some(damage) = damage {
        Screen::new(false, false).warn(&format!(
            "warning: {}:{}: damaged: {}; counted up to here",
            run.journal().display(),
            damage.line,
            damage.message
        ));
    }
    Ok(Counted {
        dir: run.clone(),
        run_id: run.id.to_string(),
        agent_name: metadata.agent_name,
        status: metadata.status.name(),
        figures,
    })
}

fn array(runs: &[Counted]) -> String {
    let objects: Vec<String> = runs.iter().map(json::text).collect();
    format!("[\n{}\n]\n", objects.join(",\n"))
}

impl Counted {
    /// The rows of a run without its tools: names and values. `has_deferred`: with those of calls that end later.
    fn rows(&self, has_deferred: bool) -> Vec<(&'static str, String)> {
        let Figures {
            times_ms: times,
            tokens,
            ..
        } = self.figures;
        let figures = &self.figures;
        let of = |part: u64| match part.saturating_mul(100).checked_div(times.total) {
            Some(percent) => format!("{} ({percent} %)", format_millis(part)),
            None => format_millis(part),
        };
        let mut rows = vec![
            ("status", self.status.to_owned()),
            ("starts", figures.starts.to_string()),
            ("iterations", figures.iterations.to_string()),
            ("time", format_millis(times.total)),
            ("  model", of(times.model)),
            ("  waits", of(times.waits)),
            ("  tools", of(times.tools)),
            ("  hooks", of(times.hooks)),
            ("  people", of(times.people)),
            ("  delta", of(times.delta)),
            ("model calls", figures.model_calls.to_string()),
            ("  failed", figures.model_failures.to_string()),
            ("  retries", figures.retries.to_string()),
            ("tokens in", tokens.prompt_tokens.to_string()),
            ("  cached", figures.cached_tokens.to_string()),
            ("tokens out", tokens.completion_tokens.to_string()),
        ];
        if has_deferred {
            let at = rows.len() - 7;
            rows.insert(at, ("  later", of(times.later)));
            let all = format_millis(figures.deferred_ms);
            rows.insert(at + 2, ("deferred", all));
        }
        let cost = figures
            .cost
            .map_or_else(|| "-".to_owned(), |cost| format!("{cost:.6}"));
        rows.push(("cost", cost));
        rows.push(("spent", in_words(figures.spent)));
        rows.push(("  left", in_words(figures.left)));
        rows.push(("compactions", figures.compactions.to_string()));
        rows.push(("  tokens", figures.compaction_tokens.to_string()));
        rows.push(("file states", figures.file_states.to_string()));
        rows.push(("cache losses", figures.prefix_breaks.len().to_string()));
        let (calls, failures, bytes) = figures.all_tools();
        rows.push(("tool calls", calls.to_string()));
        rows.push(("  failed", failures.to_string()));
        rows.push(("  bytes", bytes.to_string()));
        rows
    }
}

/// Tokens, money and time on one line.
fn in_words(expenses: Option<Expenses>) -> String {
    let Some(Expenses {
        tokens,
        cost,
        seconds,
    }) = expenses
    else {
        return "-".to_owned();
    };
    let parts = [
        tokens.map(|tokens| format!("{tokens} tokens")),
        cost.map(|cost| format!("cost {cost:.6}")),
        seconds.map(|seconds| format!("{seconds:.1} s")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        "-".to_owned()
    } else {
        parts.join(", ")
    }
}

/// One run, with its tools and the requests that lost the provider's cache.
fn one_run(run: &Counted) -> String {
    let mut out = format!("{:14}{}\n", "run", run.run_id);
    let has_deferred = run.figures.deferred_ms > 0;
    let rows = match &run.figures.flow {
        Some(flow) => flow::of_one(run.rows(has_deferred), flow),
        None => run.rows(has_deferred),
    };
    for (name, value) in rows {
        out.push_str(&format!("{name:14}{value}\n"));
    }
    let breaks = &run.figures.prefix_breaks;
    let estimated = run.figures.estimated;
    if !breaks.is_empty() || estimated > 0 {
        out.push('\n');
    }
    if estimated > 0 {
        out.push_str(&format!(
            "spent includes {} tokens estimated for requests whose answer or usage was not recorded\n",
            grouped(estimated)
        ));
    }
    for broken in breaks.iter().take(BREAKS_SHOWN) {
        let invocations = run.dir.io("invocations");
        let mut causes: Vec<&str> = broken.cause.into_iter().collect();
        if matches!(broken.cause, None | Some(RESUMED)) {
            causes.extend(difference(&invocations, broken));
        }
        let sign = if causes.is_empty() { "" } else { ": " };
        out.push_str(&format!(
            "request {} lost the provider's cache (it repeats {} of the {} bytes before it){sign}{}\n",
            broken.request,
            grouped(broken.shared_bytes as u64),
            grouped(broken.previous_bytes as u64),
            causes.join(", and ")
        ));
    }
    if breaks.len() > BREAKS_SHOWN {
        out.push_str(&format!("and {} more\n", breaks.len() - BREAKS_SHOWN));
    }
    if let Some(flow) = &run.figures.flow {
        out.push('\n');
        out.push_str(&flow::table(flow).lines(columns()));
    }
    out.push_str(&hosts(&run.figures.hosts));
    if run.figures.tools.is_empty() {
        return out;
    }
    let header = ["tool", "calls", "failed", "median", "longest", "bytes"];
    let mut table = figures_below(&header);
    for (name, tool) in &run.figures.tools {
        table.rows.push(vec![
            name_cell(name),
            tool.calls.to_string(),
            tool.failures.to_string(),
            format_millis(tool.median_ms),
            format_millis(tool.longest_ms),
            tool.bytes.to_string(),
        ]);
    }
    out + "\n" + &table.lines(columns())
}

/// The part of a request that differs from the one before; none if they cannot be read.
fn difference(dir: &Path, broken: &Break) -> Option<&'static str> {
    let mut requests = Requests::of(dir);
    let [before, this] = &broken.invocations;
    let before = requests.read(before).ok()?.to_vec();
    let place = request_diff::first(&before, requests.read(this).ok()?)?.place;
    Some(match &*place {
        "tools" => "the tools changed",
        "system" | "instructions" => "the system prompt changed",
        _ if place.contains("(system)") => "the system prompt changed",
        _ if place.starts_with("byte ") => return None,
        _ if place.contains('[') => "an earlier message changed",
        _ => "the settings of the request changed",
    })
}

/// The hosts that tools have connected to, in a table of their own.
fn hosts(hosts: &[HostTraffic]) -> String {
    if hosts.is_empty() {
        return String::new();
    }
    let mut table = figures_below(&["host", "connections", "refused", "bytes up", "bytes down"]);
    for host in hosts {
        let (passed, refused) = if host.allowed {
            (host.connections, 0)
        } else {
            (0, host.connections)
        };
        let figures = [passed, refused, host.up, host.down];
        let mut row = vec![name_cell(&host.name())];
        row.extend(figures.map(|figure| figure.to_string()));
        table.rows.push(row);
    }
    format!("\n{}", table.lines(columns()))
}

/// A table of a name and figures in each row, so far its head.
fn figures_below(head: &[&str]) -> Table {
    let columns = [Column::Text]
        .into_iter()
        .chain(iter::repeat(Column::Number));
    let head: Vec<_> = head.iter().copied().zip(columns).collect();
    Table::with_head(&head)
}

/// Several runs, a column for each.
fn side_by_side(runs: &[Counted]) -> String {
    let ids = runs.iter().map(|run| run.run_id.as_str());
    let mut table = figures_below(&["run"].into_iter().chain(ids).collect::<Vec<_>>());
    let has_flow = runs.iter().any(|run| run.figures.flow.is_some());
    let has_deferred = runs.iter().any(|run| run.figures.deferred_ms > 0);
    let rows = |run: &Counted| {
        let mut rows = run.rows(has_deferred);
        if has_flow {
            rows.extend(flow::rows(run.figures.flow.as_ref()));
        }
        rows
    };
    let of_runs: Vec<Vec<(&str, String)>> = runs.iter().map(rows).collect();
    for index in 0..of_runs[0].len() {
        let mut row = vec![of_runs[0][index].0.to_owned()];
        row.extend(of_runs.iter().map(|rows| rows[index].1.clone()));
        table.rows.push(row);
    }
    for id in flow::nodes(runs) {
        let mut row = vec![format!("  {}", name_cell(id))];
        row.extend(runs.iter().map(|run| flow::side_by_side(run, id)));
        table.rows.push(row);
    }
    for name in tools(runs) {
        let mut row = vec![format!("  {}", name_cell(name))];
        row.extend(runs.iter().map(|run| match run.figures.tools.get(name) {
            Some(tool) => format!("{} x {}", tool.calls, format_millis(tool.median_ms)),
            None => "-".to_owned(),
        }));
        table.rows.push(row);
    }
    table.blocks(columns())
}

/// The names of all tools that some run has called.
fn tools(runs: &[Counted]) -> BTreeSet<&str> {
    runs.iter()
        .flat_map(|run| run.figures.tools.keys())
        .map(String::as_str)
        .collect()
}

/// One line for each run. The columns of flows and of tools follow those that every run has.
fn csv(runs: &[Counted]) -> String {
    const COLUMNS: [&str; 28] = [
        "run_id",
        "agent_name",
        "status",
        "starts",
        "iterations",
        "total_ms",
        "model_ms",
        "waits_ms",
        "tools_ms",
        "hooks_ms",
        "people_ms",
        "delta_ms",
        "model_calls",
        "model_failures",
        "retries",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "cost",
        "prefix_breaks",
        "tool_calls",
        "tool_failures",
        "tool_bytes",
        "compactions",
        "compaction_tokens",
        "later_ms",
        "deferred_ms",
        "file_states",
    ];
    const OF_TOOL: [&str; 5] = ["calls", "failures", "median_ms", "longest_ms", "bytes"];
    let tools = tools(runs);
    let nodes = flow::nodes(runs);
    let has_flow = runs.iter().any(|run| run.figures.flow.is_some());
    let mut header: Vec<String> = COLUMNS.map(str::to_owned).to_vec();
    if has_flow {
        header.extend(flow::csv_header(&nodes));
    }
    for name in &tools {
        header.extend(OF_TOOL.map(|column| format!("{name}.{column}")));
    }
    let mut out = csv_line(&header);
    for run in runs {
        let mut cells = run.csv_cells();
        if has_flow {
            cells.extend(flow::csv_cells(run, &nodes));
        }
        for name in &tools {
            match run.figures.tools.get(*name) {
                Some(tool) => cells.extend(csv_cells_of(tool)),
                None => cells.extend(OF_TOOL.map(|_| String::new())),
            }
        }
        out.push_str(&csv_line(&cells));
    }
    out
}

impl Counted {
    fn csv_cells(&self) -> Vec<String> {
        let figures = &self.figures;
        let (times, tokens) = (figures.times_ms, figures.tokens);
        let (tool_calls, failures, bytes) = figures.all_tools();
        let cost = figures
            .cost
            .map_or_else(String::new, |cost| format!("{cost:.6}"));
        let mut cells = vec![
            self.run_id.clone(),
            self.agent_name.clone(),
            self.status.to_owned(),
        ];
        let before = [
            figures.starts,
            figures.iterations,
            times.total,
            times.model,
            times.waits,
            times.tools,
            times.hooks,
            times.people,
            times.delta,
            figures.model_calls,
            figures.model_failures,
            figures.retries,
            tokens.prompt_tokens,
            tokens.completion_tokens,
            figures.cached_tokens,
        ];
        cells.extend(before.map(|number| number.to_string()));
        cells.push(cost);
        let after = [
            figures.prefix_breaks.len() as u64,
            tool_calls,
            failures,
            bytes,
            figures.compactions,
            figures.compaction_tokens,
            times.later,
            figures.deferred_ms,
            figures.file_states,
        ];
        cells.extend(after.map(|number| number.to_string()));
        cells
    }
}

fn csv_cells_of(tool: &ToolFigures) -> [String; 5] {
    [
        tool.calls,
        tool.failures,
        tool.median_ms,
        tool.longest_ms,
        tool.bytes,
    ]
    .map(|number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_with_a_comma_or_a_quote_is_quoted() {
        let cells = ["a", "b,c", "d\"e", "f\ng"].map(str::to_owned);
        assert_eq!(csv_line(&cells), "a,\"b,c\",\"d\"\"e\",\"f\ng\"\n");
    }
}
