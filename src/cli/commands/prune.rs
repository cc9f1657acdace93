//! `delta prune`: removes runs that ended long ago.

use crate::cli::args::PruneArgs;
use crate::error::{Error, Exit, Result};
use crate::runs::preflight::install_signals;
use crate::runs::prune::{KeptRuns, plan};
use crate::text::amounts::counted;
use crate::unix::terminal::{Screen, Tone, print};
use crate::unix::trees::check_removable;

pub(crate) fn prune_runs(options: &PruneArgs) -> Result<Exit> {
    let signals = install_signals()?;
    let plan = plan(&options.below, &options.rules)?;
    let screen = Screen::new(false, false);
    let (mut runs, mut bytes, mut failures) = (0, 0, 0);
    if !options.dry_run {
        plan.remove_remains();
    }
    for run in &plan.runs {
        if let Some(stop) = signals.stop() {
            let message = format!("{}; the same command removes the rest", stop.name());
            return Err(Error::new(stop.into(), message));
        }
        let room = options.rules.room(run);
        // With the journal kept, a run is left from which nothing can be removed any more.
        if options.rules.keep_journal && room == 0 {
            continue;
        }
        let removed = match options.dry_run {
            true => check_removable(&run.path).map(|()| true),
            false => options.rules.remove(run, &signals),
        };
        match removed {
            Ok(true) => {
                (runs, bytes) = (runs + 1, bytes + room);
                print(format!("{}\n", run.path.display()).as_bytes())?;
            }
            // It lives again, or is gone.
            Ok(false) => {}
            Err(error) => {
                screen.warn(&format!("warning: {error}"));
                failures += 1;
            }
        }
    }
    let verb = match (options.dry_run, options.rules.keep_journal) {
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
