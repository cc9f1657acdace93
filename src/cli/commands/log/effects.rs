//! `delta log --effects`: the actions that have an effect, as a table or as lines of JSON.

use crate::error::Result;
use crate::record::reader::{JournalReader, Stopped};
use crate::record::run_dir::RunDir;
use crate::runs::inspect::is_live;
use crate::text::json;
use crate::text::shorten::{WIDEST, in_short};
use crate::text::table::{Column, Table, name_cell};
use crate::text::timestamp::date_and_time;
use crate::unix::terminal::{Tone, columns, painted_table, print, print_json, warn};
use crate::view::effects::{EffectList, EffectRow, EffectState};

/// Columns of a command where no terminal sets another limit.
const WIDTH: usize = 100;

/// Prints the actions of a run that have an effect.
pub(super) fn print_effects(run: &RunDir, as_json: bool) -> Result<()> {
    // Asked before reading: what a writer wrote before it ended is read after this.
    let live = is_live(run);
    let mut lines = JournalReader::open(&run.journal())?;
    let mut list = EffectList::default();
    let stopped = lines.read_while(|line| {
        list.add(line);
        Ok(true)
    })?;
    if let Stopped::AtDamage(damage) = stopped {
        super::warn_of(&damage, &run.journal(), super::SHOWN_SO_FAR);
    }
    let rows = list.into_rows(live);
    if as_json {
        let lines = rows.iter().map(|row| json::text(row) + "\n");
        return print_json(lines.collect::<String>());
    }
    if rows.is_empty() {
        let id = &run.id;
        warn(&format!("run {id} has no action with an effect"));
        return Ok(());
    }
    print(table(&rows))
}

fn table(rows: &[EffectRow]) -> String {
    const HEAD: [(&str, Column); 5] = [
        ("ITER", Column::Number),
        ("TIME (UTC)", Column::Name),
        ("STATE", Column::Name),
        ("TOOL", Column::Name),
        ("COMMAND", Column::Text),
    ];
    let words = |row: &EffectRow| {
        let always = if row.always { ", always" } else { "" };
        match row.exit_code {
            Some(code) if code != 0 => format!("{}, exit code {code}{always}", row.state.name()),
            _ => format!("{}{always}", row.state.name()),
        }
    };
    let longest = if columns().is_some() { WIDEST } else { WIDTH };
    let mut table = Table::with_head(&HEAD);
    table.rows.extend(rows.iter().map(|row| {
        vec![
            row.iteration.to_string(),
            date_and_time(&row.timestamp),
            words(row),
            name_cell(&row.tool_name),
            in_short(&row.asked, longest),
        ]
    }));
    painted_table(&table, |row, column| match column {
        0 | 1 => Tone::Dim,
        2 => tone_of(&rows[row]),
        3 => Tone::Said,
        _ => Tone::Command,
    })
}

fn tone_of(row: &EffectRow) -> Tone {
    match row.state {
        EffectState::Done if row.exit_code == Some(0) => Tone::Good,
        EffectState::Checked => Tone::Good,
        EffectState::Running | EffectState::Deferred | EffectState::Waiting => Tone::Command,
        EffectState::Done | EffectState::Denied | EffectState::Unknown | EffectState::Open => {
            Tone::Bad
        }
    }
}
