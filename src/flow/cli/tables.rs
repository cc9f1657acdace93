//! The command line of `delta-flow`: a row for each option, from which come parsing, `-h` and
//! completion.
//!
//! Data only. A new option is a row here, and is read where its command begins, or in `args`.

use super::args::RunFormat;
use super::templates;
use crate::flow::eval::format::EvalFormat;
use crate::flow::manifest::KeptRecords;
use crate::flow::view::draw::Language;
use crate::text::options::completion;
use crate::text::options::table::ValueKind::{
    Bytes, Directory, File, Number, Other, Pair, Run, RunId, Text, Words, Workspace,
};
use crate::text::options::table::{
    CommandTable, FORMATS, HELP, OperandRow, OptionRow, ProgramTable, TABLE_FORMATS, VERSION,
    command, flag, names, operand, valued, words,
};

pub(crate) static FLOW: ProgramTable = ProgramTable {
    name: "delta flow",
    commands: &COMMAND_TABLES,
    hidden: &[completion::COMMAND],
    options: &[HELP, VERSION],
};

/// The commands, in the order in which help lists them.
pub const COMMANDS: [&str; 16] = names(&COMMAND_TABLES);

const LANGUAGES: [&str; 3] = words(&Language::ALL);

const RUN_FORMATS: [&str; 3] = words(&RunFormat::ALL);

const KEPT_RECORDS: [&str; 2] = words(&KeptRecords::ALL);

const EVAL_FORMATS: [&str; 5] = words(&EvalFormat::ALL);

const WORK_DIR: OptionRow = valued(
    "-w",
    "--work-dir",
    "DIR",
    Workspace,
    "the workspace (default: the current directory)",
);
const WORK_IN: OptionRow = valued(
    "-w",
    "--work-dir",
    "DIR",
    Workspace,
    "work in DIR (default: the current directory)",
);
const JOBS: OptionRow = valued(
    "-j",
    "--jobs",
    "N",
    Number(1),
    "run at most N programs at once (default: processors)",
);
const DEADLINE: OptionRow = valued(
    "",
    "--deadline",
    "TIME",
    Other,
    "end before TIME: RFC 3339, epoch seconds, or +90m",
);
const ADOPT: OptionRow = flag(
    "",
    "--adopt",
    "trust the records of a copied or cloned workspace",
);
const QUIET: OptionRow = flag("-q", "--quiet", "print nothing but results and errors");
const DIR: OperandRow = operand("DIR", Directory).optional();
const RUN: OperandRow = operand("RUN", Run).optional();
const DIR_OR_RUN: OperandRow = operand("DIR|RUN", Run).optional();
const RUN_IN: OptionRow = valued(
    "-w",
    "--work-dir",
    "DIR",
    Workspace,
    "look for the run in the workspace DIR",
);

/// `delta eval`, which is `delta flow eval`, too.
#[rustfmt::skip]
pub(crate) const EVAL: CommandTable = CommandTable {
    text: "Measure the flow, the agents or the commands of evaluations.yaml in DIR (default: \
           the current directory), or agents (-a) by a file of cases (--cases): run the trials \
           that are missing, judge them, and print the rates, with what can be said of them.\n\n\
           report [DIR]: print the results that are kept in DIR as one page of HTML.",
    operands: &[DIR, DIR],
    options: &[&[
        valued("-a", "--agent", "AGENT", Directory, "measure @NAME, the agent in a directory, a NAME.md, or DIR@REVISION").repeatable(),
        valued("", "--cases", "FILE", File, "with -a: the cases, as CSV, JSON or JSON lines"),
        valued("", "--grade", "COMMAND", Text, "with -a: judge answers by COMMAND, given the trial on stdin"),
        valued("-w", "--work-dir", "DIR", Workspace, "keep everything in DIR (default: the current directory)"),
        valued("", "--suite", "NAME", Text, "only this suite; may be repeated, as the next three").repeatable(),
        valued("", "--tag", "TAG", Text, "only suites and cases with this tag").repeatable(),
        valued("", "--case", "ID", Text, "only this case").repeatable(),
        valued("", "--setting", "NAME", Text, "only this setting").repeatable(),
        valued("", "--trials", "N", Number(1), "try each case N times (default: as the suite says)"),
        valued("-j", "--jobs", "N", Number(1), "run at most N trials at once (default: processors)"),
        valued("", "--format", "", Words(&EVAL_FORMATS), "print a table (default), or for programs"),
        valued("", "--split", "SIDE", Text, "only one side of the cases: train or held, as in held:0.3"),
        valued("", "--sample", "N", Number(1), "only N cases of each suite, the same ones each time"),
        valued("", "--against", "WHAT", File, "compare with a result of --format json, an agent, or a revision"),
        valued("", "--require", "", Words(&["higher"]), "exit with 0 only if every comparison shows higher"),
        valued("-o", "--output", "PATH", File, "of report: write a file, or PATH/index.html and pages of trials"),
        flag("", "--regrade", "judge all recorded trials again, and run nothing"),
        flag("", "--dry-run", "run nothing; print how many trials there would be, or with -a the file"),
        valued("", "--budget", "KEY=N", Other, "limit what all trials spend: cost=3,tokens=500000"),
        DEADLINE,
        ADOPT,
        QUIET,
    ]],
    ..command("eval", "measure flows, agents and commands by suites of cases")
};

// One row a line.
#[rustfmt::skip]
const COMMAND_TABLES: [CommandTable; 16] = [
    CommandTable {
        text: "Run the flow in DIR (default: the current directory), or resume an interrupted \
               run of it. The output of its exit is printed as JSON.",
        operands: &[DIR],
        options: &[&[
            valued("-i", "--input", "FILE", File, "the input: a file with JSON, or - for stdin"),
            valued("-m", "--message", "TEXT", Text, "the input: a text"),
            valued("", "--inputs", "FILE", File, "many inputs: one JSON value on each line; - for stdin"),
            valued("", "--start", "NODE", Other, "begin at this start node"),
            WORK_IN,
            JOBS,
            valued("", "--run-id", "ID", RunId, "name the run; the same command never starts it twice"),
            valued("", "--format", "", Words(&RUN_FORMATS), "print outputs (default), one object, or one as each input ends"),
            valued("", "--budget", "KEY=N", Other, "limit what all agents spend: cost=3,tokens=500000"),
            DEADLINE,
            flag("", "--dry-run", "print what would run, and run nothing"),
            valued("", "--pause-before", "NODE", Other, "pause before this node; may be repeated").repeatable(),
            valued("", "--launch", "COMMAND", Text, "put COMMAND before every program, as in 'srun -n1'"),
            flag("-k", "--keep-going", "continue with other inputs after a failure"),
            valued("", "--records", "", Words(&KEPT_RECORDS), "keep those of all nodes, or only of those that failed"),
            ADOPT,
            valued("", "--changed", "", Words(&["ok"]), "resume although files of the flow have changed"),
            flag("", "--retry", "repeat what failed in an ended run, and everything after it"),
            valued("", "--repeat", "NODE", Other, "repeat this node in spite of on_resume: fail").repeatable(),
            QUIET,
        ]],
        ..command("run", "run a flow, or resume an interrupted run")
    },
    CommandTable {
        text: "Show a run (default: the newest) as a tree of tasks, one task with the nodes that \
               it visited, or one node with its command, input, context and output.",
        operands: &[
            RUN,
            operand("TASK", Other).optional(),
            operand("NODE", Other).optional(),
        ],
        options: &[&[WORK_DIR]],
        ..command("show", "show a run, one of its tasks, or one of its nodes")
    },
    CommandTable {
        text: "Create a flow, or an evaluation, in DIR (default: the current directory), which must \
               be new or empty, and print its name.",
        operands: &[DIR],
        options: &[&[
            valued("-t", "--template", "", Words(&templates::NAMES), "start from this template"),
            flag("-y", "--yes", "use triage without asking for a template"),
        ]],
        ..command("init", "create a flow from a template")
    },
    CommandTable {
        text: "Check a flow (default: the one in the current directory) and report all problems.",
        operands: &[DIR],
        options: &[&[
            flag("-v", "--verbose", "print what was derived for keys that were not written"),
            valued("", "--format", "", FORMATS, "print text (default) or one JSON object"),
        ]],
        ..command("check", "check a flow and report all problems")
    },
    CommandTable {
        text: "Draw a flow (default: the one in the current directory), or a run of it, its \
               nodes coloured by their results.",
        operands: &[DIR_OR_RUN],
        options: &[&[
            RUN_IN,
            valued("", "--format", "", Words(&LANGUAGES), "for Graphviz (dot, the default), for Mermaid, or as a picture (svg)"),
        ]],
        ..command("graph", "draw a flow")
    },
    CommandTable {
        text: "Answer the question, or confirm the call, that an agent of a flow waits for; the command \
               that began the flow then resumes it. TASK says which question if several are open. \
               Without TEXT, list them.",
        operands: &[operand("TASK", Other).optional(), operand("TEXT", Other).optional()],
        options: &[&[
            WORK_DIR,
            valued("", "--run-id", "ID", Run, "the run of the flow (default: all that have not ended)"),
        ]],
        ..command("answer", "answer the question that an agent of a flow asks")
    },
    CommandTable {
        text: "Give the events of a run (default: the newest) to a program, as JSON lines on its stdin, \
               while the run goes on: each at least once, and in order. Started again, it continues \
               behind the events that were read. It ends ten seconds after the run.",
        operands: &[
            RUN,
            operand("PROGRAM", Other).optional(),
            operand("ARGUMENT", Bytes).optional().repeatable(),
        ],
        options: &[&[
            WORK_DIR,
            valued("", "--events", "GLOB", Text, "only events of these types, as in 'NODE_*'").repeatable(),
            valued("", "--id", "ID", Text, "name the observer: one of a name per run"),
        ]],
        ..command("observe", "give the events of a run to a program")
    },
    CommandTable {
        text: "Run a node of a run again, with the input and the context that it had, or walk the whole \
               run with the recorded answers of its agents, in a copy of the workspace; and compare \
               status, output and time. Exits with 1 if they differ.",
        operands: &[operand("RUN", Run), operand("NODE", Other).optional()],
        options: &[&[
            valued("", "--task", "TASK", Other, "the task that was at the node, if several were"),
            WORK_DIR,
            JOBS,
            valued("", "--format", "", FORMATS, "print for people (default) or one JSON object"),
            ADOPT,
            valued("", "--changed", "", Words(&["ok"]), "replay although files of the flow have changed"),
            flag("-q", "--quiet", "print nothing but the comparison"),
        ]],
        ..command("replay", "run a node, or a whole run, again and compare")
    },
    CommandTable {
        text: "List all that a run (default: the newest) brought: outputs of nodes, results of tools, and \
               the files of outputs with their hashes.",
        operands: &[RUN],
        options: &[&[
            WORK_DIR,
            valued("", "--node", "NODE", Other, "only what this node brought"),
            valued("", "--schema", "SCHEMA", Other, "only what fits this schema"),
            flag("", "--json", "print one JSON object"),
            flag("", "--verify", "compare the files with the record; exit with 1 if one differs"),
        ]],
        ..command("artifacts", "list all that a run brought")
    },
    CommandTable {
        text: "Print what a flow (default: the one in the current directory), or a run of it, was made \
               from, as JSON: delta's version, files with their hashes, schemas, providers, models, \
               where credentials are, and the programs that commands need.",
        operands: &[DIR_OR_RUN],
        options: &[&[
            RUN_IN,
            valued("", "--check", "FILE", File, "compare with what was printed before; exit with 1 if it differs"),
        ]],
        ..command("manifest", "print what a flow or a run was made from")
    },
    CommandTable {
        text: "Give a flow (default: the one in the current directory) one line after the other. Each is \
               an input of one run, whose output is printed. /attach, /edit, /profile, /history, /show, \
               /quit, and the commands of cli_profiles.yaml are obeyed.",
        operands: &[DIR],
        options: &[&[
            valued("", "--profile", "PROFILE", Other, "the profile (default: the first of cli_profiles.yaml)"),
            WORK_IN,
            valued("", "--run-id", "ID", RunId, "name the run, or go on with one that was typed"),
            JOBS,
            QUIET,
        ]],
        ..command("repl", "give a flow one line after the other")
    },
    CommandTable {
        text: "Report where the time, the memory and the tokens of runs (default: the newest) \
               went, by node and by tool. The same as delta stats.",
        operands: &[RUN.repeatable()],
        options: &[&[
            WORK_DIR,
            valued("", "--format", "", TABLE_FORMATS, "print for people (default) or for programs"),
        ]],
        ..command("stats", "report where time, memory and tokens went, by node and tool")
    },
    CommandTable {
        text: "Run a tool that the node allows; to be called by the program of a node. Its \
               arguments are a JSON object on stdin, or the parameters given here.",
        operands: &[operand("NAME", Other)],
        options: &[&[
            valued("-p", "--parameter", "NAME=VALUE", Pair, "give a parameter, instead of reading arguments").repeatable(),
            valued("", "--stdin", "NAME", Text, "pass stdin unchanged to this parameter"),
        ]],
        ..command("tool", "run a tool of the node that calls this")
    },
    CommandTable {
        text: "Add an item to a store of a flow (default: the one in the current directory) and \
               print its id, or list the items, the newest last. STORE is project or global, or \
               task for list; it must be of type jsonl.",
        operands: &[
            operand("", Words(&["add", "list"])),
            operand("STORE", Other),
            DIR,
        ],
        options: &[&[
            valued("-m", "--message", "TEXT", Text, "add a text"),
            valued("-i", "--input", "FILE", File, "add one JSON value from a file, or - for stdin"),
            valued("", "--tag", "TAG", Text, "give the item this tag; list items with any of these").repeatable(),
            valued("-w", "--work-dir", "DIR", Workspace, "the value of ${CWD} in file_path (default: .)"),
            valued("", "--format", "", FORMATS, "list a line each (default), or one JSON object"),
        ]],
        ..command("memory", "add to the memory of a flow, or list it")
    },
    EVAL,
    CommandTable {
        text: "Print the manual page, or the options of a command.",
        operands: &[operand("COMMAND", Other).optional()],
        ..command("help", "print the manual page, or the options of a command")
    },
];
