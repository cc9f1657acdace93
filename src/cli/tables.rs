//! The command line of `delta`: a row for each option, used for parsing, `-h` and completion.
//!
//! Data only. A new option is a row here and a field in `args`.

use super::schemas::SCHEMA_NAMES;
use super::templates::TEMPLATE_NAMES;
use crate::model::http::RESOLVE_COMMAND;
use crate::record::metadata::Status;
use crate::text::options::completion;
use crate::text::options::table::ValueKind::{
    Bytes, Command, Directory, File, Number, Other, Pair, Run, RunId, Text, Words, Workspace,
};
use crate::text::options::table::{
    CommandTable, FORMATS, HELP, OptionRow, ProgramTable, TABLE_FORMATS, VERSION, command, flag,
    names, operand, renamed, valued,
};

pub(crate) static DELTA: ProgramTable = ProgramTable {
    name: "delta",
    commands: &COMMAND_TABLES,
    hidden: &[completion::COMMAND, RESOLVE_COMMAND],
    options: &[HELP, VERSION],
};

/// The commands, in the order in which help lists them.
pub const COMMANDS: [&str; 19] = names(&COMMAND_TABLES);

// One row a line.
#[rustfmt::skip]
const ENGINE: &[OptionRow] = &[
    valued("", "--max-iterations", "N", Number(1), "stop after N iterations"),
    valued("", "--budget", "KEY=N", Other, "replace the budget for this start: cost=3,tokens=500000"),
    valued("", "--deadline", "TIME", Other, "end before TIME: RFC 3339, epoch seconds, or +90m"),
    flag("-i", "--interactive", "ask questions at the terminal"),
    flag("-v", "--verbose", "show what the model and the tools say"),
    flag("-q", "--quiet", "print nothing but the result, warnings and errors"),
    valued("", "--format", "", FORMATS, "print text (default) or one JSON object"),
];

const STATUS_NAMES: [&str; 5] = [
    Status::Running.name(),
    Status::WaitingForInput.name(),
    Status::Completed.name(),
    Status::Failed.name(),
    Status::Interrupted.name(),
];

const SET: OptionRow = valued(
    "",
    "--set",
    "KEY=VALUE",
    Pair,
    "override a key of agent.yaml for this run",
)
.repeatable();

const ADOPT: OptionRow = flag(
    "",
    "--adopt",
    "obey the records of a copied or cloned workspace",
);

const AGENT_OF_RUN: OptionRow = valued(
    "-a",
    "--agent",
    "DIR",
    Directory,
    "run the agent in DIR (default: the run's own)",
);

const WORK_DIR: OptionRow = valued(
    "-w",
    "--work-dir",
    "DIR",
    Workspace,
    "the workspace (default: the current directory)",
);

#[rustfmt::skip]
const COMMAND_TABLES: [CommandTable; 19] = [
    CommandTable {
        options: &[&[
            valued("-a", "--agent", "DIR", Directory, "run the agent in DIR (default: the current directory)"),
            valued("-m", "--message", "TEXT", Text, "give the agent this task; - reads it from stdin"),
            valued("-w", "--work-dir", "DIR", Workspace, "work in DIR, which is created if it is missing"),
            valued("", "--run-id", "ID", RunId, "name the run; the same command never starts it twice"),
            flag("-y", "--yes", "use the next free workspace without asking"),
            flag("", "--new", "start a new run, even if this command was interrupted"),
            flag("", "--retry-failed", "put the run of that name aside if it has failed"),
            ADOPT,
            flag("", "--dry-run", "print the first request instead of sending it"),
            SET,
            renamed("--task", "-m (--message)"),
        ], ENGINE],
        ..command("run", "start a run of an agent, or resume it")
    },
    CommandTable {
        options: &[&[
            WORK_DIR,
            AGENT_OF_RUN,
            valued("", "--run-id", "ID", RunId, "continue this run (default: the newest)"),
            valued("-m", "--message", "TEXT", Text, "the answer or the next message; - reads it from stdin"),
            SET,
            ADOPT,
            flag("", "--force", "skip damaged lines, and ignore another host's claim"),
        ], ENGINE],
        ..command("continue", "resume a run, answer its question, or send another message")
    },
    CommandTable {
        text: "Create an agent in the directory NAME (default: the current directory), which \
               must be new or empty, and print its name.",
        operands: &[operand("NAME", Directory).optional()],
        options: &[&[
            valued("-t", "--template", "", Words(&TEMPLATE_NAMES), "start from this template"),
            flag("-y", "--yes", "use minimal without asking"),
        ]],
        ..command("init", "create an agent from a template")
    },
    CommandTable {
        text: "List runs, the newest first.",
        options: &[&[
            WORK_DIR,
            valued("-a", "--agent", "DIR", Directory, "list the runs in all workspaces of this agent"),
            valued("", "--status", "STATUS", Words(&STATUS_NAMES), "only RUNNING, WAITING_FOR_INPUT, COMPLETED, FAILED or INTERRUPTED"),
            flag("", "--resumable", "only runs that the same command would resume"),
            flag("", "--first", "only the newest; as text, only its id"),
            valued("", "--format", "", FORMATS, "print a table (default) or a JSON array"),
        ]],
        ..command("list-runs", "list the runs of a workspace or an agent")
    },
    CommandTable {
        text: "Show a run (default: the newest) as a timeline.",
        operands: &[operand("RUN", Run).optional()],
        options: &[&[
            WORK_DIR,
            flag("-f", "--follow", "keep printing until the run ends"),
            valued("-n", "--lines", "N", Number(0), "show only the last N events"),
            flag("", "--json", "print the journal's lines unchanged"),
        ]],
        ..command("log", "show a run as a timeline")
    },
    CommandTable {
        text: "Report where the time and tokens of runs (default: the newest) went.",
        operands: &[operand("RUN", Run).optional().repeatable()],
        options: &[&[
            WORK_DIR,
            valued("", "--format", "", TABLE_FORMATS, "print for people (default) or for programs"),
        ]],
        ..command("stats", "report where the time and tokens of runs went")
    },
    CommandTable {
        text: "Print a run (default: the newest) as one page of HTML that needs nothing else.\n\n\
               RUN is an id, the beginning of one, LATEST, or the path of a run's directory.",
        operands: &[operand("RUN", Run).optional()],
        options: &[&[WORK_DIR]],
        ..command("report", "show a run as one page of HTML")
    },
    CommandTable {
        text: "Print the exact bytes of the N-th request of a run (default: the last).",
        operands: &[operand("RUN", Run), operand("N", Number(1)).optional()],
        options: &[&[
            WORK_DIR,
            flag("", "--next", "print the request that continuing would send"),
            AGENT_OF_RUN,
            SET,
            ADOPT,
            valued("", "--diff", "M", Number(1), "show where the request first differs from the M-th"),
        ]],
        ..command("request", "print the exact bytes that were sent to the model")
    },
    CommandTable {
        text: "Start a run that begins with the first N iterations of another.",
        operands: &[operand("RUN", Run)],
        options: &[&[
            valued("", "--at", "N", Number(0), "begin with N iterations; 0: with the message alone").required(),
            WORK_DIR,
            AGENT_OF_RUN,
            ADOPT,
            valued("-m", "--message", "TEXT", Text, "the next message; - reads it from stdin"),
            valued("", "--to", "DIR", Directory, "copy the workspace's files to DIR, and work there"),
            SET,
            valued("", "--run-id", "ID", RunId, "name the new run"),
        ], ENGINE],
        ..command("fork", "start a run from the first iterations of another")
    },
    CommandTable {
        text: "Repeat a run with the model's recorded answers and compare every request. Exit \
               with 0 if all are identical, with 1 if one differs.\n\n\
               RUN is an id, the beginning of one, LATEST, or the path of a run's directory.",
        operands: &[operand("RUN", Run)],
        options: &[&[
            WORK_DIR,
            AGENT_OF_RUN,
            SET,
            ADOPT,
            valued("", "--tools", "", Words(&["run", "recorded"]), "execute tools, hooks and generators (default), or take their results from the record"),
            valued("", "--from", "DIR", Directory, "start with a copy of the files in DIR"),
            valued("", "--to", "DIR", Directory, "work in DIR (default: a temporary directory)"),
            flag("-v", "--verbose", "show what the model and the tools say"),
            flag("-q", "--quiet", "print nothing but the result, warnings and errors"),
        ]],
        ..command("replay", "repeat a recorded run and compare every request")
    },
    CommandTable {
        text: "Show where two runs diverge: what they share in a line, then side by side. Exit \
               with 0 if the conversations are the same, with 1 if they are not.\n\n\
               RUN is an id, the beginning of one, LATEST, or the path of a run's directory.",
        operands: &[operand("RUN_A", Run), operand("RUN_B", Run)],
        options: &[&[WORK_DIR]],
        ..command("diff", "show where two runs diverge")
    },
    CommandTable {
        text: "Check an agent (default: the one in the current directory) and report all \
               problems.",
        operands: &[operand("AGENT", Directory).optional()],
        options: &[&[valued("", "--format", "", FORMATS, "print text (default) or one JSON object")]],
        ..command("check", "check an agent and report all problems")
    },
    CommandTable {
        text: "Print the JSON Schema of agent.yaml, context.yaml or hooks.yaml, for editors.",
        operands: &[operand("", Words(&SCHEMA_NAMES))],
        ..command("schema", "print the JSON Schema of an agent's file")
    },
    CommandTable {
        text: "Print the tools of a file in their full form, as YAML that loads again.",
        operands: &[operand("", Words(&["expand"])), operand("FILE", File)],
        ..command("tool", "print tools in their full form")
    },
    CommandTable {
        text: "Run a command that reads the system and the given directories, and writes only \
               below --rw, but not .delta, .git/config and .git/hooks there. The command cannot undo \
               that. Made to be the wrapper of an agent.",
        operands: &[operand("COMMAND", Command), operand("ARGUMENT", Bytes).optional().repeatable()],
        options: &[&[
            valued("", "--rw", "DIR", Directory, "allow reading, writing and running below DIR").repeatable(),
            valued("", "--ro", "DIR", Directory, "allow reading and running below DIR").repeatable(),
            valued("", "--protect", "PATH", File, "keep PATH read-only, too").repeatable(),
            flag("", "--no-network", "deny access to the network"),
            flag("", "--strict", "fail if the kernel cannot enforce all of this"),
        ]],
        options_first: true,
        ..command("sandbox", "run a command that cannot write outside some directories")
    },
    CommandTable {
        text: "Migrate a workspace of an older engine to the current layout. Nothing is lost; \
               after an interruption the same command finishes the job.",
        options: &[&[valued("-w", "--work-dir", "DIR", Workspace, "the workspace").required(), ADOPT]],
        ..command("migrate", "migrate an older engine's workspace to the current layout")
    },
    CommandTable {
        text: "Serve a recorded run as a model: the request on stdin, the recorded response on \
               stdout. For llm.command in agent.yaml.",
        operands: &[operand("", Words(&["replay"])), operand("RUN_DIR", Directory)],
        options: &[&[flag("", "--lenient", "match by the number of answers in the request alone")]],
        ..command("model", "serve a recorded run as a model")
    },
    CommandTable {
        is_raw: true,
        ..command("flow", "run a graph of commands and agents: delta flow -h")
    },
    CommandTable {
        text: "List the pages of the manual, or print one: flow is the command, flow.5 the files \
               of a flow.",
        operands: &[operand("PAGE", Other).optional()],
        ..command("help", "print a page of the manual")
    },
];
