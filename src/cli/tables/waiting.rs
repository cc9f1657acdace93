//! The rows of `tell`, `due`, `later` and `--wait`.

use super::rows::WORK_DIR;
use crate::text::options::table::ValueKind::{Number, Other, RunId, Text};
use crate::text::options::table::{
    CommandTable, FORMATS, OptionRow, command, flag, operand, valued,
};

pub(super) const WAIT: OptionRow = flag(
    "",
    "--wait",
    "wait here for calls that end later, instead of exiting with 75",
);

#[rustfmt::skip]
pub(super) const TELL: CommandTable = CommandTable {
    text: "Send TEXT to a run that is live: it reads it before its next request. One that is not live reads it at \
           its next start.",
    operands: &[operand("TEXT", Text).repeatable()],
    options: &[&[
        WORK_DIR,
        valued("", "--run-id", "ID", RunId, "tell this run (default: the newest that is live)"),
    ]],
    ..command("tell", "send a message to a live run")
};

#[rustfmt::skip]
pub(super) const DUE: CommandTable = CommandTable {
    text: "List the runs that wait for calls that end later, and whose time has come; or start each of them.",
    options: &[&[
        flag("", "--all", "list all that wait, due or not"),
        flag("", "--run", "start what is due"),
        valued("-j", "--jobs", "N", Number(1), "with --run: start at most N at once (default: 1)"),
        valued("", "--format", "", FORMATS, "print a table (default) or a JSON array"),
    ]],
    ..command("due", "list the runs that are due, or start them")
};

#[rustfmt::skip]
pub(super) const LATER: CommandTable = CommandTable {
    text: "End a call of a tool at a later time: the program of a tool, and its check, as in\n\n\
           exec: delta later --for 2h\n\
           later: {check: [delta, later, --check]}",
    options: &[&[
        valued("", "--for", "SPAN", Other, "end in SPAN: 90m, 2h, 3d"),
        valued("", "--at", "TIME", Other, "end at TIME: RFC 3339, epoch seconds, or +90m"),
        flag("", "--check", "look whether the time has come"),
    ]],
    ..command("later", "end a call of a tool at a later time")
};
