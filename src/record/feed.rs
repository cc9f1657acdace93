//! What a start appends to the journal, line for line on stdout, for a program that follows it.
//!
//! Unaware of what the lines say. A reader that leaves or stalls does not affect the run; it gets nothing more.

use crate::record::engine_log::{Level, Log};
use crate::record::event::EventKind;
use crate::text::disguise::printable_json;
use crate::text::json;
use crate::unix::terminal::end_text;
use crate::unix::timed_output::write_in_time;
use serde_json::json;
use std::cell::{Cell, OnceCell};
use std::io::{self, IsTerminal};
use std::rc::Rc;
use std::time::Duration;

/// The version of the first and the last line.
pub(crate) const SCHEMA_VERSION: &str = "2.0";

/// How long the reader has for a line.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lines of one start.
#[derive(Debug)]
pub(crate) struct Feed {
    /// The text of answers is in it as it arrives.
    pub has_deltas: bool,
    has_begun: Cell<bool>,
    /// The reader is gone.
    is_over: Cell<bool>,
    log: OnceCell<Rc<Log>>,
}

impl Feed {
    pub(crate) fn new(has_deltas: bool) -> Rc<Self> {
        Rc::new(Self {
            has_deltas,
            has_begun: Cell::new(false),
            is_over: Cell::new(false),
            log: OnceCell::new(),
        })
    }

    /// Notes in this log when the reader is gone.
    pub(crate) fn note_in(&self, log: &Rc<Log>) {
        // A feed has one run.
        crate::error::ignore(self.log.set(Rc::clone(log)));
    }

    /// Writes the first line, unless it has been written: the run and its workspace, if there are any.
    pub(crate) fn begin(&self, run: Option<(&str, &str)>) {
        if self.has_begun.replace(true) {
            return;
        }
        let first = json!({
            "type": "delta",
            "schema_version": SCHEMA_VERSION,
            "events": EventKind::NAMES,
            "run_id": run.map(|(id, _)| id),
            "workspace": run.map(|(_, workspace)| workspace),
        });
        self.add(format!("{}\n", json::text(&first)).as_bytes());
    }

    /// Writes whole lines.
    pub(crate) fn add(&self, lines: &[u8]) {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if self.is_over.get() {
                return;
            }
            if let Err(error) = write_line(line) {
                self.is_over.set(true);
                if let Some(log) = self.log.get() {
                    let why = match error.kind() {
                        io::ErrorKind::TimedOut => "it has read nothing for 10 s".to_owned(),
                        _ => crate::error::reason(&error),
                    };
                    let text = format!("the reader of --format jsonl gets nothing more: {why}");
                    log.line(Level::Warn, &text);
                }
            }
        }
    }

    /// Writes a piece of an answer's text.
    pub(crate) fn add_text(&self, iteration: u64, attempt: u64, text: &str) {
        let line = json::line(|object| {
            object
                .put("type", "TEXT_DELTA")
                .put("iteration", &iteration)
                .put("attempt", &attempt)
                .put("text", text);
        });
        self.add(&line);
    }
}

/// Writes a line, as [`print_json`](crate::unix::terminal::print_json) does.
fn write_line(line: &[u8]) -> io::Result<()> {
    if io::stdout().is_terminal() {
        end_text();
    }
    let text = String::from_utf8_lossy(line);
    write_in_time(printable_json(&text).as_bytes(), PATIENCE)
}
