//! `delta log`: a run as a timeline, also while it goes on.

use super::select;
use crate::args::Log;
use crate::children::{Children, named_in};
use crate::clock::Timestamp;
use crate::error::{Exit, Result};
use crate::event::Line;
use crate::journal::Journal;
use crate::lines::{Change, Lines, Next};
use crate::pager::Pager;
use crate::rundir::RunDir;
use crate::screen::{Screen, stdout_has_colour};
use crate::state::Damage;
use crate::timeline::Timeline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::path::{Path, PathBuf};

/// How often a run that is followed is looked at again.
const PERIOD: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Runs within runs are shown down to this depth; no engine nests deeper by default.
const DEEPEST: usize = 8;

/// Runs the command.
pub fn run(options: &Log) -> Result<Exit> {
    let run = select::named_or_newest(&options.work_dir, options.run.as_deref())?;
    let path = run.journal();
    let mut lines = match options.last {
        Some(count) => Lines::open_at_last(&path, count)?,
        None => Lines::open(&path)?,
    };
    let zero = match options.last {
        Some(_) => first_time(&path)?,
        None => None,
    };
    let mut log = Teller {
        timeline: Timeline::new(&run.path, zero, stdout_has_colour()),
        pager: if options.follow {
            Pager::Straight
        } else {
            Pager::new()
        },
        raw: options.json,
        root: run.workspace().unwrap_or(&run.path).to_owned(),
        children: None,
        elsewhere: Vec::new(),
        ended: None,
        run,
    };
    let told = log.tell(&mut lines, options.follow);
    let ended = log.pager.end();
    told?;
    ended?;
    Ok(Exit::Success)
}

/// The time of a journal's first event.
fn first_time(path: &Path) -> Result<Option<Timestamp>> {
    Ok(match Lines::open(path)?.read_next()? {
        Next::Event(_, line) => line.timestamp.as_deref().and_then(Timestamp::parse),
        _ => None,
    })
}

/// Tells a run.
struct Teller {
    run: RunDir,
    /// The workspace.
    root: PathBuf,
    timeline: Timeline,
    pager: Pager,
    /// Lines as they are.
    raw: bool,
    /// Runs with parents, once they have been looked for.
    children: Option<Children>,
    /// Where else the action that is running may have started a run.
    elsewhere: Vec<PathBuf>,
    /// Whether the last event is the end of an engine, once one has been told.
    ended: Option<bool>,
}

/// Why the telling of a journal came to a stop.
enum Stopped {
    /// Nothing more is there. Whether a line without an end is.
    AtEnd { torn: bool },
    /// A line cannot be read.
    AtDamage(Damage),
    /// Nobody looks any more.
    Unread,
}

impl Teller {
    fn tell(&mut self, lines: &mut Lines, follow: bool) -> Result<()> {
        loop {
            // Asked before reading: what a writer wrote before it ended is read after this.
            let live = Journal::is_owned(&self.run.journal());
            match self.tell_what_is_there(lines)? {
                Stopped::Unread => return Ok(()),
                Stopped::AtDamage(damage) => {
                    warn_of(&damage, &self.run.journal());
                    return Ok(());
                }
                Stopped::AtEnd { torn } if !live => {
                    self.children_of_open_action()?;
                    self.tell_of_death(torn);
                    return Ok(());
                }
                Stopped::AtEnd { .. } if !follow => return self.children_of_open_action(),
                Stopped::AtEnd { .. } => {}
            }
            if !somebody_reads() {
                return Ok(());
            }
            if lines.catch_up()? == Change::CutBack {
                warn("the journal has been cut back; what follows continues an earlier state");
            }
        }
    }

    fn tell_what_is_there(&mut self, lines: &mut Lines) -> Result<Stopped> {
        loop {
            let line = match lines.read_next()? {
                Next::Event(text, line) if self.raw => {
                    self.ended = Some(line.kind == "ENGINE_END");
                    if !self.pager.show(&format!("{text}\n"))? {
                        return Ok(Stopped::Unread);
                    }
                    continue;
                }
                Next::Event(_, line) => line,
                Next::Damaged(damage) => return Ok(Stopped::AtDamage(damage)),
                Next::End { torn } => return Ok(Stopped::AtEnd { torn }),
            };
            self.ended = Some(line.kind == "ENGINE_END");
            if let Some(places) = places(&line, &self.root) {
                self.elsewhere = places;
            }
            self.children_of(&line)?;
            let text = self.timeline.tell(&line);
            if !text.is_empty() && !self.pager.show(&text)? {
                return Ok(Stopped::Unread);
            }
        }
    }

    /// Shows the runs that an action has started, before its result.
    fn children_of(&mut self, line: &Line<'_>) -> Result<()> {
        let Some(from) = self
            .timeline
            .began(line)
            .filter(|_| line.execution_ref.is_some())
        else {
            return Ok(());
        };
        let to = line.timestamp.as_deref().and_then(Timestamp::parse);
        self.children_between(from, to.unwrap_or(from))
    }

    /// Shows the runs that an action without a result has started.
    fn children_of_open_action(&mut self) -> Result<()> {
        match self.timeline.running_since() {
            Some(from) if !self.raw => self.children_between(from, Timestamp::now()),
            _ => Ok(()),
        }
    }

    fn children_between(&mut self, from: Timestamp, to: Timestamp) -> Result<()> {
        let mut children = match self.children.take() {
            Some(children) if to < children.looked_at => children,
            _ => Children::below(&self.root),
        };
        for place in &self.elsewhere {
            children.add(place);
        }
        for run in children.of(&self.run, from, to) {
            let mut timeline = self.timeline.nested(&run.path);
            nested(&run, &mut children, &mut timeline, &mut self.pager, 1)?;
        }
        self.children = Some(children);
        Ok(())
    }

    /// Says what is missing at the end of a journal that nobody writes to.
    fn tell_of_death(&self, torn: bool) {
        let path = self.run.journal();
        if torn {
            let path = path.display();
            warn(&format!(
                "warning: {path}: the last line has no end and is not shown"
            ));
        }
        // Somebody may have taken it up meanwhile.
        if self.ended == Some(false) && !Journal::is_owned(&path) {
            let id = &self.run.id;
            warn(&format!(
                "run {id} has no end: the engine that worked on it has died; the same command resumes it"
            ));
        }
    }
}

/// Where the command of an action may have started a run, if the event is the beginning of one.
fn places(line: &Line<'_>, root: &Path) -> Option<Vec<PathBuf>> {
    let command = line.resolved_command.as_deref().unwrap_or_default();
    (line.kind == "ACTION_REQUEST").then(|| named_in(command, root))
}

/// Shows a run that a tool of another one has started, and those that its own tools have started.
fn nested(
    run: &RunDir,
    children: &mut Children,
    timeline: &mut Timeline,
    pager: &mut Pager,
    depth: usize,
) -> Result<()> {
    let path = run.journal();
    let Ok(mut lines) = Lines::open(&path) else {
        return Ok(());
    };
    let root = run.workspace().unwrap_or(&run.path);
    let mut elsewhere = Vec::new();
    loop {
        let line = match lines.read_next()? {
            Next::Event(_, line) => line,
            Next::End { .. } => return Ok(()),
            Next::Damaged(damage) => {
                warn_of(&damage, &path);
                return Ok(());
            }
        };
        if let Some(places) = places(&line, root) {
            elsewhere = places;
        }
        if let Some(from) = timeline.began(&line)
            && depth < DEEPEST
        {
            let to = line.timestamp.as_deref().and_then(Timestamp::parse);
            for place in &elsewhere {
                children.add(place);
            }
            for child in children.of(run, from, to.unwrap_or(from)) {
                let mut below = timeline.nested(&child.path);
                nested(&child, children, &mut below, pager, depth + 1)?;
            }
        }
        pager.show(&timeline.tell(&line))?;
    }
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

/// Says that a journal is shown up to a line that cannot be read.
pub(super) fn warn_of(damage: &Damage, path: &Path) {
    let place = match damage.column {
        0 => damage.line.to_string(),
        column => format!("{}:{column}", damage.line),
    };
    warn(&format!(
        "warning: {}:{place}: damaged: {}; shown up to here",
        path.display(),
        damage.message
    ));
}

fn warn(text: &str) {
    Screen::new(false, false).warn(text);
}
