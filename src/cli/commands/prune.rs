//! `delta prune`: removes runs that ended long ago.

use crate::cli::args::below;
use crate::error::{Error, Exit, Result};
use crate::file_states::store::has_states;
use crate::record::metadata::Status;
use crate::runs::find::find_run;
use crate::runs::preflight::install_signals;
use crate::runs::prune::{KeptRuns, PruneRules, plan, sweep_states, workspace_of_remains};
use crate::text::amounts::counted;
use crate::text::ids::RunId;
use crate::text::options::parse::ParsedCommand;
use crate::text::timestamp::{Timestamp, parse_span};
use crate::unix::terminal::{Screen, Tone, print};
use crate::unix::trees::check_removable;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) fn prune_runs(given: &ParsedCommand) -> Result<Exit> {
    let is_dry = given.has("--dry-run");
    let signals = install_signals()?;
    let (dirs, rules) = rules(given)?;
    let plan = plan(&dirs, &rules)?;
    let screen = Screen::new(false, false);
    let (mut runs, mut bytes, mut failures) = (0, 0, 0);
    let mut swept = BTreeMap::<_, Vec<RunId>>::new();
    if !is_dry {
        plan.remove_remains();
    }
    for run in &plan.runs {
        if let Some(stop) = signals.stop() {
            let message = format!("{}; the same command removes the rest", stop.name());
            return Err(Error::new(stop.into(), message));
        }
        let room = rules.room(run);
        // With the journal kept, a run is left from which nothing can be removed any more.
        if rules.keep_journal && room == 0 && !has_states(run) {
            continue;
        }
        let removed = if is_dry {
            check_removable(&run.path).map(|()| true)
        } else {
            rules.remove(run, &signals)
        };
        match removed {
            Ok(true) => {
                (runs, bytes) = (runs + 1, bytes + room);
                if let Some(root) = run.workspace().filter(|_| !is_dry) {
                    swept.entry(root).or_default().push(run.id.clone());
                }
                print(format!("{}\n", run.path.display()))?;
            }
            Ok(false) if !rules.named.is_empty() => {
                screen.warn(&format!("warning: run {} is live: it stays", run.id));
                failures += 1;
            }
            // It lives again, or is gone.
            Ok(false) => {}
            Err(error) => {
                screen.warn(&format!("warning: {error}"));
                failures += 1;
            }
        }
    }
    for (root, runs) in swept {
        match sweep_states(root, &runs) {
            Ok(room) => bytes += room,
            Err(error) => screen.warn(&format!(
                "warning: the files of the steps of removed runs stay until the next prune: {error}"
            )),
        }
    }
    let verb = match (is_dry, rules.keep_journal) {
        (true, false) => "would remove",
        (true, true) => "would remove all but the journals of",
        (false, false) => "removed",
        (false, true) => "removed all but the journals of",
    };
    let room = bytes as f64 / f64::from(1 << 20);
    let line = format!("{verb} {}, {room:.1} MiB", counted(runs, "run"));
    screen.progress(&[(Tone::Dim, &line)]);
    print_kept(screen, &plan.kept);
    match failures {
        0 => Ok(Exit::Success),
        _ => Err(Error::failure(format!(
            "{} could not be removed",
            counted(failures, "run")
        ))),
    }
}

/// The directories to search, and the rules.
fn rules(given: &ParsedCommand) -> Result<(Vec<PathBuf>, PruneRules)> {
    let rules = PruneRules {
        ended_before: None,
        statuses: Vec::new(),
        named: Vec::new(),
        keep_journal: given.has("--keep-journal"),
    };
    let Some(age) = given.text("--older-than") else {
        let names = given.operand_texts();
        if names.is_empty() || given.has("--recursive") || given.has("--status") {
            return Err(Error::usage(
                "prune needs RUN, or --older-than SPAN: delta prune RUN..., delta prune -r DIR --older-than SPAN",
            ));
        }
        let (mut named, mut dirs) = (Vec::new(), Vec::new());
        for name in &names {
            match find_run(&given.work_dir(), name) {
                Ok(run) => {
                    dirs.extend(run.workspace().map(Path::to_owned));
                    named.push(run);
                }
                Err(error) => {
                    let remains = workspace_of_remains(&given.work_dir(), name);
                    dirs.push(remains.ok_or(error)?);
                }
            }
        }
        return Ok((dirs, PruneRules { named, ..rules }));
    };
    let age = parse_span(&age).ok_or_else(|| {
        Error::usage(format!(
            "--older-than: '{age}' is not a span of time such as 30d or 12h"
        ))
    })?;
    let mut dirs = below(given)?;
    if dirs.is_empty() {
        dirs.push(given.work_dir());
    }
    let statuses = given.texts("--status");
    let rules = PruneRules {
        ended_before: Some(Timestamp::now().minus(age)),
        statuses: statuses.iter().filter_map(|it| Status::parse(it)).collect(),
        ..rules
    };
    Ok((dirs, rules))
}

fn print_kept(screen: Screen, kept: &KeptRuns) {
    let reasons = [
        (kept.unfinished, "live or unfinished"),
        (kept.foreign, "from elsewhere"),
        (kept.needed, "part of a run that is unfinished"),
        (
            kept.parentless,
            "part of a run that is not below these directories; name its directory, too",
        ),
    ];
    for (count, reason) in reasons.into_iter().filter(|(count, _)| *count > 0) {
        let line = format!("kept {}: {reason}", counted(count, "run"));
        screen.progress(&[(Tone::Dim, &line)]);
    }
}
