//! `delta log --effects`: the actions that have an effect, as a table or as lines of JSON.

use crate::error::Result;
use crate::record::reader::{JournalReader, Next};
use crate::record::run_dir::RunDir;
use crate::runs::inspect::is_live;
use crate::text::json;
use crate::text::shorten::in_short;
use crate::unix::terminal::{
    Screen, Tone, cell, painted, print, print_json, size, stdout_has_colour,
};
use crate::view::effects::{EffectList, EffectRow, EffectState};

/// Columns of a command where no terminal sets another limit.
const WIDTH: usize = 100;

/// Prints the actions of a run that have an effect.
pub(super) fn print_effects(run: &RunDir, as_json: bool) -> Result<()> {
    // Asked before reading: what a writer wrote before it ended is read after this.
    let live = is_live(run);
    let mut lines = JournalReader::open(&run.journal())?;
    let mut list = EffectList::default();
    loop {
        match lines.read_next()? {
            Next::Event(_, line) => list.add(&line),
            Next::End { .. } => break,
            Next::Damaged(damage) => {
                super::warn_of(&damage, &run.journal(), super::SHOWN_SO_FAR);
                break;
            }
        }
    }
    let rows = list.into_rows(live);
    if as_json {
        let lines = rows.iter().map(|row| json::text(row) + "\n");
        return print_json(lines.collect::<String>().as_bytes());
    }
    if rows.is_empty() {
        let id = &run.id;
        Screen::new(false, false).warn(&format!("run {id} has no action with an effect"));
        return Ok(());
    }
    print(table(&rows).as_bytes())
}

fn table(rows: &[EffectRow]) -> String {
    let colour = stdout_has_colour();
    let words = |row: &EffectRow| match row.exit_code {
        Some(code) if code != 0 => format!("{}, exit code {code}", row.state.name()),
        _ => row.state.name().to_owned(),
    };
    let longest = |of: &dyn Fn(&EffectRow) -> usize, least: usize| {
        rows.iter().map(of).max().unwrap_or(0).max(least)
    };
    let state = longest(&|row| words(row).len(), 5);
    let tool = longest(&|row| cell(&row.tool_name).chars().count(), 4);
    let frame = 4 + 2 + 19 + 2 + state + 2 + tool + 2;
    let width = size().map_or(WIDTH, |(_, columns)| columns.saturating_sub(frame).max(20));
    let head = format!(
        "{:>4}  {:19}  {:state$}  {:tool$}  COMMAND",
        "ITER", "TIME (UTC)", "STATE", "TOOL"
    );
    let mut out = painted(colour, &[(Tone::Dim, &head)]) + "\n";
    for row in rows {
        let at = row.timestamp.get(..19).unwrap_or(&row.timestamp);
        let left = format!("{:>4}  {:19}  ", row.iteration, at.replace('T', " "));
        let tone = match row.state {
            EffectState::Done if row.exit_code == Some(0) => Tone::Good,
            EffectState::Checked => Tone::Good,
            EffectState::Running | EffectState::Waiting => Tone::Command,
            EffectState::Done | EffectState::Denied | EffectState::Unknown | EffectState::Open => {
                Tone::Bad
            }
        };
        let right = format!("  {:tool$}  ", cell(&row.tool_name));
        let pieces = [
            (Tone::Dim, left.as_str()),
            (tone, &format!("{:state$}", words(row))),
            (Tone::Said, &right),
            (Tone::Command, &in_short(&row.command, width)),
        ];
        out.push_str(painted(colour, &pieces).trim_end());
        out.push('\n');
    }
    out
}
