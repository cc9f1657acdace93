//! `delta list-runs`: the runs of a workspace, of all workspaces of an agent, or of everything below directories.

mod tree;
mod below;

use crate::cli::args::ListRunsArgs;
use crate::error::{Error, Exit, Result};
use crate::record::metadata::{Metadata, Status};
use crate::record::own_workspaces;
use crate::record::run_dir::RunDir;
use crate::record::workspace::Workspace;
use crate::runs::find::{self, no_runs};
use crate::runs::inspect;
use crate::runs::origin::warn_if_foreign;
use crate::text::amounts::age;
use crate::text::json;
use crate::text::options::format::OutputFormat;
use crate::text::order::sort_by;
use crate::text::shorten::{WIDEST, in_short};
use crate::text::table::{Column, Table};
use crate::text::timestamp::{Timestamp, date_and_time};
use crate::unix::procfs::hostname;
use crate::unix::terminal::{Tone, columns, painted_table, print, print_json, warn};
use serde_json::Value;
use std::path::Path;

/// A run in the list.
struct ListedRun {
    run: RunDir,
    metadata: Metadata,
    workspace: Workspace,
    created_at: Option<Timestamp>,
}

/// A line of the table.
struct Row {
    /// The run's id, further to the right the deeper it is nested; or a placeholder for runs that are left out.
    name: String,
    place: String,
    iterations: String,
    tokens: u64,
    run: Option<RunSummary>,
}

/// The part of a run that a line shows, however long its texts are.
struct RunSummary {
    status: Status,
    /// Reason of its end; empty in lists that leave that out.
    reason: String,
    created_at: Option<Timestamp>,
    message: String,
}

impl RunSummary {
    fn of(run: &Metadata) -> Self {
        Self {
            status: run.status,
            reason: pid(run).or_else(|| due(run)).unwrap_or_default(),
            created_at: Timestamp::parse(&run.created_at),
            message: in_short(&run.task_words(), WIDEST),
        }
    }
}

/// The process of a live run, and its host if that is another one.
fn pid(run: &Metadata) -> Option<String> {
    let live = Some(run).filter(|run| run.status == Status::Running)?;
    let (pid, host) = (live.pid, &live.hostname);
    Some(if *host == hostname() {
        format!("pid {pid}")
    } else {
        format!("pid {pid} on {host}")
    })
}

/// The time at which a run that waits for calls looks at them.
fn due(run: &Metadata) -> Option<String> {
    let due_at = run.due_at.as_deref()?;
    Some(format!("due {}", date_and_time(due_at)))
}

pub(crate) fn print_runs(options: &ListRunsArgs) -> Result<Exit> {
    if !options.below.is_empty() {
        return below::print_below(options);
    }
    let workspaces = match &options.agent {
        Some(agent) => workspaces_of(agent)?,
        None => vec![find::open_workspace(
            options.work_dir.as_deref().unwrap_or(Path::new(".")),
        )?],
    };
    let mut entries = Vec::new();
    let mut there = 0;
    for workspace in &workspaces {
        warn_if_foreign(workspace)?;
        for id in workspace.runs()? {
            there += 1;
            let run = RunDir::of(workspace, &id);
            let (metadata, error) = inspect::read_summary(&run);
            if let Some(error) = error {
                warn(&format!("warning: {error}"));
            }
            if options.selects_run(&metadata) {
                entries.push(ListedRun {
                    run,
                    created_at: Timestamp::parse(&metadata.created_at),
                    workspace: workspace.clone(),
                    metadata,
                });
            }
        }
    }
    sort_by(&mut entries, |a, b| {
        let [a, b] = [a, b].map(|it| (it.created_at, &it.metadata.run_id));
        b.cmp(&a)
    });
    if options.first {
        entries.truncate(1);
    }
    match options.format {
        OutputFormat::Json => print_json(array(&entries))?,
        OutputFormat::Text if options.first => {
            for entry in &entries {
                print(format!("{}\n", entry.metadata.run_id))?;
            }
        }
        OutputFormat::Text if entries.is_empty() => {}
        OutputFormat::Text => {
            let rows = tree::rows(&entries, options);
            print(table(&rows, options.agent.is_some()))?;
        }
    }
    if !entries.is_empty() {
        return Ok(Exit::Success);
    }
    let none = match (&options.agent, there) {
        (_, 1..) => Error::failure("no run matches"),
        (Some(agent), _) => Error::failure(format!(
            "no workspace of the agent in {} has a run",
            agent.display()
        )),
        (None, _) => no_runs(&workspaces[0].root),
    };
    if options.first {
        return Err(none);
    }
    // An empty list is an answer; people get the reason on stderr.
    if there == 0 {
        warn(&none.message);
    }
    Ok(Exit::Success)
}

impl ListRunsArgs {
    fn selects_run(&self, run: &Metadata) -> bool {
        let resumable = matches!(run.status, Status::Interrupted | Status::WaitingForInput);
        let reason = run.stop_reason.as_deref().unwrap_or_default();
        self.status.is_none_or(|status| run.status == status)
            && (resumable || !self.resumable)
            && (run.is_retryable() || !self.retryable)
            && (run.needs_attention() || !self.needs_attention)
            && (self.stop_reasons.is_empty() || self.stop_reasons.iter().any(|it| it == reason))
            && self
                .since
                .is_none_or(|since| Timestamp::parse(&run.created_at) >= Some(since))
    }
}

fn workspaces_of(agent: &Path) -> Result<Vec<Workspace>> {
    if !agent.is_dir() {
        let agent = agent.display();
        return Err(Error::failure(format!("there is no agent {agent}")));
    }
    own_workspaces::numbered(agent)?
        .into_iter()
        .map(|name| find::open_workspace(&agent.join("workspaces").join(name)))
        .collect()
}

fn array(entries: &[ListedRun]) -> Vec<u8> {
    let mut out = b"[".to_vec();
    for (index, entry) in entries.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"\n" } else { b",\n" });
        let mut object = serde_json::to_value(&entry.metadata).unwrap_or_default();
        object["workspace_path"] = Value::from(entry.workspace.root.to_string_lossy());
        json::push(&mut out, &object);
    }
    out.extend_from_slice(if entries.is_empty() { b"]\n" } else { b"\n]\n" });
    out
}

fn table(rows: &[Row], with_workspace: bool) -> String {
    /// Columns of the message where no terminal sets another limit.
    const WIDTH: usize = 60;
    const HEAD: [(&str, Column); 8] = [
        ("RUN", Column::Name),
        ("WORKSPACE", Column::Name),
        ("STATUS", Column::Name),
        ("REASON", Column::Text),
        ("AGE", Column::Number),
        ("ITER", Column::Number),
        ("TOKENS", Column::Number),
        ("MESSAGE", Column::Text),
    ];
    let now = Timestamp::now();
    let longest = if columns().is_some() { WIDEST } else { WIDTH };
    let cells = |row: &Row| match &row.run {
        None => vec![row.name.clone()],
        Some(run) => vec![
            row.name.clone(),
            row.place.clone(),
            run.status.name().to_owned(),
            run.reason.clone(),
            run.created_at
                .map_or_else(|| "?".to_owned(), |at| age(now.since(at))),
            row.iterations.clone(),
            row.tokens.to_string(),
            in_short(&run.message, longest),
        ],
    };
    let mut table = Table::with_head(&HEAD);
    table.rows.extend(rows.iter().map(cells));
    let has_reason = |row: &Row| row.run.as_ref().is_some_and(|run| !run.reason.is_empty());
    if !rows.iter().any(has_reason) {
        table.remove_column(3);
    }
    if !with_workspace {
        table.remove_column(1);
    }
    for name in ["TOKENS", "ITER"] {
        let is_too_wide = columns().is_some_and(|width| !table.fits(width));
        let at = table.rows[0].iter().position(|it| it == name);
        if let Some(at) = at.filter(|_| is_too_wide) {
            table.remove_column(at);
        }
    }
    painted_table(&table, |row, column| {
        match (&rows[row].run, table.rows[0][column].as_str()) {
            (Some(run), "STATUS") => tone_of(run.status),
            (Some(_), "RUN" | "WORKSPACE" | "MESSAGE") => Tone::Said,
            _ => Tone::Dim,
        }
    })
}

fn tone_of(status: Status) -> Tone {
    match status {
        Status::Completed => Tone::Good,
        Status::Running => Tone::Command,
        _ => Tone::Bad,
    }
}
