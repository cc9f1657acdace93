//! The command line of `delta-sessions`: a row for each option, from which come parsing, `-h` and
//! completion.
//!
//! Data only.

use crate::text::options::completion;
use crate::text::options::table::ValueKind::{Bytes, Command, Directory, Number, Other};
use crate::text::options::table::{
    CommandTable, HELP, OptionRow, ProgramTable, VERSION, command, flag, operand, valued,
};

const SESSIONS_DIR: OptionRow = valued(
    "",
    "--sessions-dir",
    "DIR",
    Directory,
    "the sessions directory (default: .sessions)",
);

const ADOPT: OptionRow = flag(
    "",
    "--adopt",
    "make sessions that came from elsewhere yours",
);

const COMMON: &[OptionRow] = &[SESSIONS_DIR, ADOPT, VERSION];

#[rustfmt::skip]
pub(super) static SESSIONS: ProgramTable = ProgramTable {
    name: "delta-sessions",
    commands: &[
        CommandTable {
            operands: &[
                operand("PROGRAM", Command).optional(),
                operand("ARGUMENT", Bytes).optional().repeatable(),
            ],
            options: &[COMMON],
            options_first: true,
            ..command("start", "start a session (default: of bash) and print its id")
        },
        CommandTable {
            text: "Run TEXT, or standard input, in a session. Options go before ID.",
            operands: &[operand("ID", Other), operand("TEXT", Bytes).optional()],
            options: &[&[
                valued("", "--timeout-ms", "N", Number(0), "end the text after N milliseconds (default: 0, never)"),
                valued("", "--max-bytes", "N", Number(0), "print N bytes of each stream (30000; 0: all)"),
                flag("", "--raw", "pass output and exit code through, without JSON"),
            ], COMMON],
            options_first: true,
            ..command("exec", "run text in a session")
        },
        CommandTable {
            operands: &[operand("ID", Other)],
            options: &[COMMON],
            options_first: true,
            ..command("end", "end a session; its files stay")
        },
        CommandTable {
            options: &[COMMON],
            options_first: true,
            ..command("list", "list all sessions")
        },
        CommandTable {
            options: &[COMMON],
            options_first: true,
            ..command("cleanup", "end and remove all sessions")
        },
    ],
    // Behind the first one, the commands of an older program, which kept a terminal open.
    hidden: &[completion::COMMAND, "write", "read", "attach", "detach", "write-key"],
    options: &[SESSIONS_DIR, ADOPT, HELP, VERSION],
};
