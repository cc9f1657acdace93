//! All runs below directories, as one list: a table or a line of JSON for each, and their sums.

use super::{Row, RunSummary, table};
use crate::cli::agent_names::{find_word, is_nested};
use crate::cli::args::ListRunsArgs;
use crate::error::{Error, Exit, Result};
use crate::record::metadata::{Metadata, Status};
use crate::record::run_dir::RunDir;
use crate::record::spending::{self, Amount, read_tally};
use crate::runs::inspect;
use crate::runs::survey::{Found, FoundRun, visit_runs};
use crate::text::amounts::counted;
use crate::text::json;
use crate::text::options::format::OutputFormat;
use crate::text::order::sort_by;
use crate::text::shorten::in_short;
use crate::text::timestamp::Timestamp;
use crate::unix::origin::ForeignReason;
use crate::unix::terminal::{Screen, Tone, print, print_json, warn};
use serde_json::Value;
use std::path::Path;

/// A run in the list. Its longer texts are read again when they are printed.
struct RunBelow {
    run: RunDir,
    created_at: Option<Timestamp>,
    foreign: Option<ForeignReason>,
    /// Takes the place of a table's row if JSON is printed.
    row: Option<Row>,
}

/// Sums over a list.
#[derive(Default)]
struct Totals {
    by_status: [usize; Status::ALL.len()],
    foreign: usize,
    tokens: u64,
    cost: Amount,
    has_cost: bool,
    /// Runs whose ledger cannot be read.
    uncounted: usize,
}

/// JSON is printed in pieces of about this size.
const PIECE: usize = 64 << 10;

pub(super) fn print_below(options: &ListRunsArgs) -> Result<Exit> {
    let (mut entries, mut totals) = (Vec::new(), Totals::default());
    let home = match options.agent.as_deref() {
        Some(agent) => {
            let home = find_word(agent)?.home;
            Some((agent, home.canonicalize().unwrap_or(home)))
        }
        None => None,
    };
    visit_runs(&options.below, &mut |found| {
        let Found::Run(found) = found else {
            return Ok(());
        };
        let (metadata, error) = inspect::read_summary(&found.run);
        let is_wanted = options.selects_run(&metadata)
            && home
                .as_ref()
                .is_none_or(|(name, home)| is_of(&metadata, name, home));
        if is_wanted {
            if let Some(error) = error {
                warn(&format!("warning: {error}"));
            }
            totals.add(&metadata, &found);
            entries.push(RunBelow::new(found, &metadata, options.format));
        }
        Ok(())
    })?;
    sort_by(&mut entries, |a, b| {
        (b.created_at, &b.run.id).cmp(&(a.created_at, &a.run.id))
    });
    let is_empty = entries.is_empty();
    if options.first {
        entries.truncate(1);
    }
    match options.format {
        OutputFormat::Json => print_lines(&entries)?,
        OutputFormat::Text if options.first => {
            for entry in &entries {
                print(format!("{}\n", entry.run.path.display()))?;
            }
        }
        OutputFormat::Text if is_empty => {}
        OutputFormat::Text => {
            let rows: Vec<Row> = entries.into_iter().filter_map(|entry| entry.row).collect();
            print(table(&rows, true))?;
        }
    }
    if is_empty && options.first {
        return Err(Error::failure("no run matches"));
    }
    if !options.first {
        totals.print();
    }
    Ok(Exit::Success)
}

/// True if a run is of the agent of this name, or of this directory.
fn is_of(run: &Metadata, name: &Path, home: &Path) -> bool {
    name.to_str() == Some(run.agent_name.as_str()) || Path::new(&run.agent_home) == home
}

impl RunBelow {
    fn new(found: FoundRun, metadata: &Metadata, format: OutputFormat) -> Self {
        let FoundRun {
            run,
            place,
            foreign,
        } = found;
        let row = || {
            let ended = metadata.status != Status::Running;
            let due = super::due(metadata);
            let pid = super::pid(metadata);
            let marks = [
                pid.as_deref(),
                metadata.stop_reason.as_deref().filter(|_| ended),
                due.as_deref().filter(|_| ended),
                foreign.map(|_| "foreign"),
                has_nested_agent(&run, metadata).then_some("nested"),
            ];
            let reason = marks.into_iter().flatten().collect::<Vec<_>>().join(", ");
            Row {
                name: run.id.to_string(),
                // One line for any name of a directory.
                place: in_short(&place, usize::MAX),
                iterations: match metadata.flow {
                    Some(_) => "-".to_owned(),
                    None => metadata.iterations.to_string(),
                },
                tokens: metadata.usage.total_tokens,
                run: Some(RunSummary {
                    reason: in_short(&reason, 40),
                    ..RunSummary::of(metadata)
                }),
            }
        };
        Self {
            row: (format == OutputFormat::Text).then(row),
            created_at: Timestamp::parse(&metadata.created_at),
            run,
            foreign,
        }
    }

    /// The run as an object; none if it has been removed in the meantime.
    fn object(&self) -> Option<Value> {
        self.run.path.is_dir().then_some(())?;
        let (metadata, _) = inspect::read_summary(&self.run);
        let mut object = serde_json::to_value(&metadata).ok()?;
        let root = self.run.workspace().unwrap_or(&self.run.path);
        object["workspace_path"] = Value::from(root.to_string_lossy());
        object["foreign"] = self.foreign.is_some().into();
        object["nested"] = has_nested_agent(&self.run, &metadata).into();
        if let Ok(Some(cost)) = cost_of(&self.run) {
            object["cost"] = cost.cost().into();
        }
        Some(object)
    }
}

/// True if going on with a run needs its agent named. A flow's is never taken from a record.
fn has_nested_agent(run: &RunDir, metadata: &Metadata) -> bool {
    let root = run.workspace().filter(|_| metadata.flow.is_none());
    root.is_some_and(|root| is_nested(Path::new(&metadata.agent_home), root))
}

/// The cost of a run itself, without those that it has started; none if it has no ledger.
fn cost_of(run: &RunDir) -> Result<Option<Amount>> {
    let tally = read_tally(&run.path.join(spending::FILE))?;
    Ok(tally.map(|tally| tally.own()))
}

fn print_lines(entries: &[RunBelow]) -> Result<()> {
    let mut out = Vec::new();
    for object in entries.iter().filter_map(RunBelow::object) {
        json::push(&mut out, &object);
        out.push(b'\n');
        if out.len() >= PIECE {
            print_json(std::mem::take(&mut out))?;
        }
    }
    print_json(&out)
}

impl Totals {
    fn add(&mut self, metadata: &Metadata, found: &FoundRun) {
        let status = Status::ALL
            .iter()
            .position(|(_, it)| *it == metadata.status);
        self.by_status[status.unwrap_or(0)] += 1;
        self.foreign += usize::from(found.foreign.is_some());
        let tokens = metadata.usage.total_tokens;
        self.tokens = self.tokens.saturating_add(tokens);
        match cost_of(&found.run) {
            Ok(cost) => {
                let cost = cost.unwrap_or_default();
                self.has_cost |= cost.cost() > 0.0;
                self.cost.add(cost);
            }
            Err(_) => self.uncounted += 1,
        }
    }

    fn print(&self) {
        let all = self.by_status.iter().sum();
        let mut counts: Vec<_> = Status::ALL
            .iter()
            .zip(self.by_status)
            .filter(|(_, count)| *count > 0)
            .collect();
        sort_by(&mut counts, |(_, a), (_, b)| b.cmp(a));
        let counts: Vec<String> = counts
            .into_iter()
            .map(|((name, _), count)| format!("{count} {name}"))
            .collect();
        let mut line = counted(all, "run");
        if all > 0 {
            line += &format!(": {}; {} tokens", counts.join(", "), self.tokens);
        }
        if self.has_cost {
            line += &format!("; cost {:.6}", self.cost.cost());
        }
        Screen::new(false, false).progress(&[(Tone::Dim, &line)]);
        if self.uncounted > 0 {
            let runs = counted(self.uncounted, "run");
            warn(&format!(
                "warning: the ledger of {runs} cannot be read, and their cost is not counted"
            ));
        }
        if self.foreign > 0 {
            let runs = counted(self.foreign, "run");
            warn(&format!(
                "warning: {runs} came from elsewhere: anything in them may be forged, and no command obeys them without --adopt"
            ));
        }
    }
}
