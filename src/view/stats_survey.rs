//! `delta stats -r`: one table over all runs below directories, by agent, model and day.

use crate::error::{Exit, Result};
use crate::record::event::Recorded;
use crate::record::metadata::{Metadata, Status};
use crate::record::reader::JournalReader;
use crate::record::run_dir::RunDir;
use crate::record::spending::{self, LedgerTally, read_tally};
use crate::runs::inspect::read_summary;
use crate::runs::survey::{Found, visit_runs};
use crate::text::json;
use crate::text::options::format::TableFormat;
use crate::text::table::{Column, Table, csv_line, name_cell};
use crate::unix::terminal::{Tone, painted_table, print, print_json, warn};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The runs of an agent with a model that began on a day (UTC). Tokens and cost are the runs' own.
#[derive(Default, Serialize)]
struct Group {
    agent: String,
    model: String,
    day: String,
    runs: u64,
    completed: u64,
    tokens: u64,
    /// None: no run of the group has a price.
    cost: Option<f64>,
    seconds: f64,
}

/// Prints the groups, by agent, model and day.
pub(crate) fn print_survey(dirs: &[PathBuf], format: TableFormat) -> Result<Exit> {
    let mut groups: BTreeMap<_, Group> = BTreeMap::new();
    visit_runs(dirs, &mut |found| {
        if let Found::Run(found) = found {
            let (metadata, error) = read_summary(&found.run);
            let tally = read_tally(&found.run.path.join(spending::FILE));
            for error in error.iter().chain(tally.as_ref().err()) {
                warn(&format!("warning: {error}"));
            }
            let group = Group::of(&found.run, &metadata, tally.ok().flatten());
            let key = [&group.agent, &group.model, &group.day].map(String::clone);
            groups.entry(key).or_default().add(group);
        }
        Ok(())
    })?;
    let rows: Vec<Vec<String>> = groups.values().map(Group::cells).collect();
    match format {
        TableFormat::Json => {
            let lines: Vec<_> = groups.values().map(json::text).collect();
            print_json(format!("[\n{}\n]\n", lines.join(",\n")))?;
        }
        TableFormat::Csv => {
            let head = HEAD.map(|(name, _)| name.to_lowercase());
            let lines = [head.to_vec()].into_iter().chain(rows);
            print(lines.map(|cells| csv_line(&cells)).collect::<String>())?;
        }
        TableFormat::Text => {
            let mut table = Table::with_head(&HEAD);
            table.rows.extend(rows);
            print(painted_table(&table, |_, _| Tone::Said))?;
        }
    }
    Ok(Exit::Success)
}

const HEAD: [(&str, Column); 8] = [
    ("AGENT", Column::Name),
    ("MODEL", Column::Name),
    ("DAY", Column::Name),
    ("RUNS", Column::Number),
    ("COMPLETED", Column::Number),
    ("TOKENS", Column::Number),
    ("COST", Column::Number),
    ("SECONDS", Column::Number),
];

impl Group {
    fn of(run: &RunDir, metadata: &Metadata, tally: Option<LedgerTally>) -> Self {
        Self {
            agent: metadata.agent_name.clone(),
            model: model_of(run).unwrap_or_else(|| "-".to_owned()),
            day: metadata.created_at.chars().take(10).collect(),
            runs: 1,
            completed: u64::from(metadata.status == Status::Completed),
            tokens: metadata.usage.total_tokens,
            cost: tally
                .map(|tally| tally.own().cost())
                .filter(|cost| *cost > 0.0),
            seconds: metadata.running_time().as_secs_f64(),
        }
    }

    fn add(&mut self, other: Self) {
        let tokens = self.tokens.saturating_add(other.tokens);
        *self = Self {
            runs: self.runs + other.runs,
            completed: self.completed + other.completed,
            tokens,
            cost: match (self.cost, other.cost) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            },
            seconds: self.seconds + other.seconds,
            ..other
        };
    }

    fn cells(&self) -> Vec<String> {
        vec![
            name_cell(&self.agent),
            name_cell(&self.model),
            self.day.clone(),
            self.runs.to_string(),
            self.completed.to_string(),
            self.tokens.to_string(),
            self.cost
                .map_or_else(String::new, |cost| format!("{cost:.6}")),
            format!("{:.1}", self.seconds),
        ]
    }
}

/// The model of a run's first start; none for a flow, and for a program that is the model.
fn model_of(run: &RunDir) -> Option<String> {
    let mut model = None;
    let mut lines = JournalReader::open(&run.journal()).ok()?;
    lines
        .read_while(|line| {
            if let Recorded::EngineStart(start) = &line.event {
                model = start.config().llm().get("model").read();
            }
            Ok(false)
        })
        .ok()?;
    model
}
