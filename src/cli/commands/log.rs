//! `delta log`: a run as a timeline, also while it is live.

mod effects;

use crate::cli::args::LogArgs;
use crate::error::{Exit, Result};
use crate::record::event::Recorded;
use crate::record::reader::{Change, Damage, JournalReader, Next, Stopped};
use crate::record::run_dir::RunDir;
use crate::record::subruns::{OpenActions, RunTree, StartedRun};
use crate::runs::find;
use crate::runs::inspect::is_live;
use crate::runs::origin::warn_if_foreign_run;
use crate::text::disguise::printable_json;
use crate::unix::pager::Pager;
use crate::unix::terminal::{stdout_has_colour, warn};
use crate::view::timeline::Timeline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::Path;

/// The time between two looks at a run that is followed.
const PERIOD: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

pub(crate) fn print_log(options: &LogArgs) -> Result<Exit> {
    let run = find::find_run_or_newest(&options.work_dir, options.run.as_deref())?;
    warn_if_foreign_run(&run)?;
    if options.effects {
        effects::print_effects(&run, options.json)?;
        return Ok(Exit::Success);
    }
    let path = run.journal();
    let mut lines = match options.last {
        Some(count) => JournalReader::open_at_last(&path, count)?,
        None => JournalReader::open(&path)?,
    };
    let mut log = LogPrinter {
        timeline: Timeline::new(&run.path, None, stdout_has_colour()).with_details(options.verbose),
        pager: if options.follow {
            Pager::Straight
        } else {
            Pager::new()
        },
        raw: options.json,
        family: RunTree::around(&run),
        underway: OpenActions::default(),
        ended: None,
        run,
    };
    if let Some(count) = options.last.filter(|_| !options.json) {
        log.pass_over(&path, count)?;
    }
    let printed = log.print_events(&mut lines, options.follow);
    let ended = log.pager.end();
    printed?;
    ended?;
    Ok(Exit::Success)
}

/// Prints a run.
struct LogPrinter {
    run: RunDir,
    timeline: Timeline,
    pager: Pager,
    /// Lines as they are.
    raw: bool,
    family: RunTree,
    underway: OpenActions,
    /// True if the last event shown is the end of an engine; none before the first.
    ended: Option<bool>,
}

impl LogPrinter {
    /// Reads what precedes the last events without showing it: they are shown as in the whole log.
    fn pass_over(&mut self, path: &Path, count: usize) -> Result<()> {
        let first = match JournalReader::open_at_last(path, count)?.read_next()? {
            Next::Event(line) => line.seq,
            _ => return Ok(()),
        };
        let mut before = JournalReader::open(path)?;
        loop {
            match before.read_next()? {
                Next::Event(line) if line.seq < first => {
                    self.family.of_event(&mut self.underway, &self.run, &line);
                    self.timeline.format_event(&line);
                }
                Next::Damaged(_) => {}
                Next::Event(..) | Next::End { .. } => return Ok(()),
            }
        }
    }

    fn print_events(&mut self, lines: &mut JournalReader, follow: bool) -> Result<()> {
        loop {
            // Asked before reading: what a writer wrote before it ended is read after this.
            let live = is_live(&self.run);
            match self.tell_what_is_there(lines)? {
                Stopped::Enough => return Ok(()),
                Stopped::AtDamage(damage) => {
                    warn_of(&damage, &self.run.journal(), SHOWN_SO_FAR);
                    return Ok(());
                }
                Stopped::AtEnd { torn } if !live => {
                    self.open_children()?;
                    self.tell_of_death(torn);
                    return Ok(());
                }
                Stopped::AtEnd { .. } if !follow => return self.open_children(),
                Stopped::AtEnd { .. } => {}
            }
            if !somebody_reads() {
                return Ok(());
            }
            if lines.catch_up()? == Change::CutBack {
                warn(
                    "the journal has been truncated; the following events continue an earlier state",
                );
            }
        }
    }

    fn tell_what_is_there(&mut self, lines: &mut JournalReader) -> Result<Stopped> {
        lines.read_while(|line| {
            // Files are put back after the end of a run, too.
            if !matches!(line.event, Recorded::Files(_)) {
                self.ended = Some(matches!(line.event, Recorded::EngineEnd(_)));
            }
            if self.raw {
                return self.pager.show(&(printable_json(line.text) + "\n"));
            }
            let runs = self.family.of_event(&mut self.underway, &self.run, line);
            self.children(&runs)?;
            let text = self.timeline.format_event(line);
            Ok(text.is_empty() || self.pager.show(&text)?)
        })
    }

    /// Shows runs that others have started, before the end of what started them.
    fn children(&mut self, runs: &[StartedRun]) -> Result<()> {
        print_nested(runs, &mut self.family, &self.timeline, &mut self.pager)
    }

    /// Shows the runs that have been started by what has not ended.
    fn open_children(&mut self) -> Result<()> {
        if self.raw {
            return Ok(());
        }
        let runs = self.family.of_open(&mut self.underway, &self.run);
        self.children(&runs)
    }

    /// Says what is missing at the end of a journal without a writer.
    fn tell_of_death(&self, torn: bool) {
        let path = self.run.journal();
        if torn {
            let path = path.display();
            warn(&format!(
                "warning: {path}: the last line has no end and is not shown"
            ));
        }
        // Another process may have resumed it meanwhile.
        if self.ended == Some(false) && !is_live(&self.run) {
            let id = &self.run.id;
            warn(&format!(
                "run {id} has no end: the engine that worked on it has died; the same command resumes it"
            ));
        }
    }
}

/// Shows runs that another one has started, and those that they have started themselves.
fn print_nested(
    runs: &[StartedRun],
    family: &mut RunTree,
    timeline: &Timeline,
    pager: &mut Pager,
) -> Result<()> {
    for StartedRun { run, .. } in runs {
        let path = run.journal();
        let Ok(mut lines) = JournalReader::open(&path) else {
            continue;
        };
        if !family.enter(run) {
            continue;
        }
        let mut timeline = timeline.nested(&run.path);
        let mut underway = OpenActions::default();
        let stopped = lines.read_while(|line| {
            let runs = family.of_event(&mut underway, run, line);
            print_nested(&runs, family, &timeline, pager)?;
            pager.show(&timeline.format_event(line))?;
            Ok(true)
        })?;
        match stopped {
            Stopped::AtDamage(damage) => warn_of(&damage, &path, SHOWN_SO_FAR),
            Stopped::AtEnd { .. } | Stopped::Enough => {
                let runs = family.of_open(&mut underway, run);
                print_nested(&runs, family, &timeline, pager)?;
            }
        }
        family.leave();
    }
    Ok(())
}

/// Waits a little. Whether anybody still reads stdout: `tail -f` into `head` must end.
fn somebody_reads() -> bool {
    let stdout = std::io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    match poll(&mut polled, Some(&PERIOD)) {
        Ok(_) => !polled[0]
            .revents()
            .intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
        Err(_) => true,
    }
}

/// The consequence of a line that cannot be read for the rest of a journal.
pub(super) const SHOWN_SO_FAR: &str = "shown up to here";

/// Says that a line of a journal cannot be read, and what becomes of it.
pub(super) fn warn_of(damage: &Damage, path: &Path, effect: &str) {
    let place = match damage.column {
        0 => damage.line.to_string(),
        column => format!("{}:{column}", damage.line),
    };
    warn(&format!(
        "warning: {}:{place}: damaged: {}; {effect}",
        path.display(),
        damage.message
    ));
}
