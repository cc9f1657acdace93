//! The table of the programs that run, below the lines of progress, on a terminal.
//!
//! Unaware of why anything runs. Lines stay and scroll; the table is erased and drawn again. On anything
//! but a terminal, or one that cannot do this, there are the lines alone.
//!
//! Architecture invariant: between two calls the cursor is at the beginning of the line below the
//! table. What is written at once is one write, so that a signal finds either the old or the new.

use crate::error::ignore;
use crate::text::amounts::whole_seconds;
use crate::text::order;
use crate::text::shorten::{cut_to_columns, in_short};
use crate::text::table::{Column, Table};
use crate::unix::terminal::{Screen, Tone, can_redraw, is_in_foreground, stderr_size};
use std::io::Write;
use std::time::Instant;

/// Lines below which the names of the columns are left out.
const LOW: usize = 6;

/// A program that runs.
#[derive(Clone, Debug)]
pub(crate) struct RunningProgram {
    pub task: String,
    pub node: String,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// Since when.
    pub since: Instant,
}

/// The numbers of steps by their state.
#[derive(Clone, Copy, Debug, Default)]
struct StepCounts {
    done: usize,
    running: usize,
    waiting: usize,
    failed: usize,
}

/// Progress as a person sees it.
#[derive(Debug)]
pub(crate) struct ProgressTable {
    screen: Screen,
    is_on: bool,
    /// Lines that have not been written.
    pending: String,
    /// The table that is on the terminal.
    drawn: Vec<String>,
    counts: StepCounts,
}

impl ProgressTable {
    /// For stderr as it is.
    pub(crate) fn new(screen: Screen) -> Self {
        Self {
            screen,
            is_on: !screen.quiet && can_redraw(),
            pending: String::new(),
            drawn: Vec::new(),
            counts: StepCounts::default(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// A line of progress, which stays.
    fn line(&mut self, pieces: &[(Tone, &str)]) {
        if !self.is_on {
            self.screen.progress(pieces);
            return;
        }
        self.pending.push_str(&self.screen.painted(pieces));
        self.pending.push('\n');
    }

    /// A line about a step: how it ended, and, if that is bad, why.
    pub(crate) fn print_step(&mut self, task: &str, node: &str, how: &str, good: Result<(), &str>) {
        let (tone, why) = match good {
            Ok(()) => (Tone::Good, String::new()),
            Err(why) => (Tone::Bad, format!(": {}", in_short(why, 200))),
        };
        self.line(&[
            (Tone::Dim, &format!("[{task}] ")),
            (Tone::Command, node),
            (Tone::Dim, "  "),
            (tone, how),
            (Tone::Dim, &why),
        ]);
    }

    pub(crate) fn count_end(&mut self, good: bool) {
        if good {
            self.counts.done += 1;
        } else {
            self.counts.failed += 1;
        }
    }

    /// Draws the table as it is now, below the lines printed meanwhile.
    pub(crate) fn draw(&mut self, mut running: Vec<RunningProgram>, waiting: usize) {
        if !self.is_on {
            return;
        }
        if !is_in_foreground() {
            // Another program has the terminal.
            self.erase();
            return;
        }
        order::sort_by(&mut running, |a, b| {
            (a.since, &a.task).cmp(&(b.since, &b.task))
        });
        let counts = StepCounts {
            running: running.len(),
            waiting,
            ..self.counts
        };
        let lines: Vec<String> = table_rows(&running, counts, stderr_size(), Instant::now())
            .iter()
            .map(|(tone, text)| self.screen.painted(&[(*tone, text)]))
            .collect();
        if self.pending.is_empty() && lines == self.drawn {
            return;
        }
        self.write(lines);
    }

    /// Erases the table.
    pub(crate) fn erase(&mut self) {
        self.write(Vec::new());
    }

    /// Erases the table for good: from now on there are lines alone.
    pub(crate) fn close(&mut self) {
        self.erase();
        self.is_on = false;
    }

    fn write(&mut self, lines: Vec<String>) {
        let mut out = String::new();
        if !self.drawn.is_empty() {
            // Up, to the left, and nothing from there on.
            out.push_str(&format!("\x1b[{}A\r\x1b[J", self.drawn.len()));
        }
        out.push_str(&self.pending);
        for line in &lines {
            out.push_str(line);
            out.push('\n');
        }
        self.pending.clear();
        self.drawn = lines;
        if !out.is_empty() {
            ignore(std::io::stderr().write_all(out.as_bytes()));
        }
    }
}

impl Drop for ProgressTable {
    fn drop(&mut self) {
        self.close();
    }
}

const HEAD: [(&str, Column); 4] = [
    ("TASK", Column::Text),
    ("NODE", Column::Text),
    ("ATTEMPT", Column::Name),
    ("TIME", Column::Name),
];

/// The table for a terminal of this size: never more than fits above the cursor.
fn table_rows(
    running: &[RunningProgram],
    counts: StepCounts,
    size: (usize, usize),
    now: Instant,
) -> Vec<(Tone, String)> {
    let (lines, columns) = size;
    let room = lines.saturating_sub(1);
    if running.is_empty() || room == 0 {
        return Vec::new();
    }
    let has_header = room >= LOW;
    let room = room - 1 - usize::from(has_header);
    let shown = if running.len() <= room {
        running.len()
    } else {
        room.saturating_sub(1)
    };
    let some = &running[..shown];
    let mut rows = Table::with_head(&HEAD);
    rows.rows.extend(some.iter().map(|it| {
        let took = whole_seconds(now.saturating_duration_since(it.since));
        vec![
            it.task.clone(),
            it.node.clone(),
            it.attempt.to_string(),
            took,
        ]
    }));
    // The last column stays free: a terminal may wrap after it.
    let width = columns.saturating_sub(1);
    let text = rows.lines(Some(width));
    let tones = std::iter::once(Tone::Dim).chain(std::iter::repeat(Tone::Command));
    let lines = tones.zip(text.lines().map(str::to_owned));
    let mut table: Vec<_> = lines.skip(usize::from(!has_header)).collect();
    let more = running.len() - shown;
    if more > 0 && room > 0 {
        table.push((Tone::Dim, format!("… and {more} more")));
    }
    let StepCounts {
        done,
        running,
        waiting,
        failed,
    } = counts;
    let text = format!("{done} done, {running} running, {waiting} waiting, {failed} failed");
    table.push((Tone::Dim, text));
    for (_, line) in &mut table {
        *line = cut_to_columns(line, width);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(count: usize, now: Instant) -> Vec<RunningProgram> {
        let one = |n| RunningProgram {
            task: format!("T1.s{n}"),
            node: "work".to_owned(),
            attempt: 1,
            since: now,
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn a_table_is_never_higher_or_wider_than_the_terminal() {
        let now = Instant::now();
        for count in [0, 1, 2, 3, 40] {
            let mut running = some(count, now);
            if let Some(first) = running.first_mut() {
                first.task = format!("T1{}", ".s1".repeat(1_000));
            }
            for lines in 0..50 {
                for columns in [0, 1, 2, 10, 80] {
                    let counts = StepCounts::default();
                    let table = table_rows(&running, counts, (lines, columns), now);
                    assert!(table.len() <= lines.saturating_sub(1));
                    let fits = |text: &String| text.chars().count() <= columns.saturating_sub(1);
                    assert!(table.iter().all(|(_, text)| fits(text)), "{table:?}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let now = Instant::now();
        let counts = StepCounts {
            running: 40,
            ..StepCounts::default()
        };
        let table = table_rows(&some(40, now), counts, (10, 80), now);
        let text: Vec<&str> = table.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(text.len(), 9);
        assert_eq!(text[0], "TASK   NODE  ATTEMPT  TIME");
        assert_eq!(text[1], "T1.s0  work  1        0 s");
        assert_eq!(text[7], "… and 34 more");
        assert_eq!(text[8], "0 done, 40 running, 0 waiting, 0 failed");
    }
}
