//! The command line of `delta`: a row for each option, used for parsing, `-h` and completion.
//!
//! Data only. A new option is a row here and a field in `args`.

#[rustfmt::skip]
mod rows;
mod waiting;

use super::schemas::SCHEMA_NAMES;
use super::templates;
use crate::coder::tool;
use crate::file_states::snapshot;
#[cfg(feature = "flow")]
use crate::flow::cli::tables::EVAL;
use crate::mcp::stdio::SERVER_COMMAND;
use crate::model::http::RESOLVE_COMMAND;
use crate::record::metadata::{STOP_REASONS, Status};
use crate::text::options::completion;
use crate::text::options::table::ValueKind::{
    Bytes, Command, Directory, File, Number, Other, Run, RunId, Text, Words, Workspace,
};
use crate::text::options::table::{
    CommandTable, FORMATS, HELP, ProgramTable, TABLE_FORMATS, VERSION, command, flag, names,
    operand, renamed, valued,
};
use crate::unix::line_editor;
use rows::{
    ACCEPT, ADOPT, AGENT_OF_RUN, BELOW, ENGINE, FEED, FILE, MODEL, OPEN_HOST, OUTPUT_SCHEMA, SET,
    WORK_DIR,
};
use waiting::WAIT;

pub(crate) static DELTA: ProgramTable = ProgramTable {
    name: "delta",
    commands: &COMMAND_TABLES,
    hidden: &[
        completion::COMMAND,
        RESOLVE_COMMAND,
        line_editor::COMMAND,
        SERVER_COMMAND,
        tool::COMMAND,
        snapshot::COMMAND,
    ],
    options: &[HELP, VERSION],
};

/// The everyday commands in groups, for who gives none.
pub(crate) const EVERYDAY: &[(&str, &[&str])] = &[
    ("work", &["run", "chat", "continue", "undo"]),
    (
        "look",
        &["log", "report", "list-runs", "stats", "diff", "git"],
    ),
    ("set up", &["setup", "models", "init", "check"]),
    ("measure", &["eval", "replay", "fork"]),
    ("connect", &["mcp", "sandbox", "acp", "flow"]),
];

/// The commands, in the order in which help lists them.
pub const COMMANDS: [&str; 33] = names(&COMMAND_TABLES);

const STATUS_NAMES: [&str; 5] = [
    Status::Running.name(),
    Status::WaitingForInput.name(),
    Status::Completed.name(),
    Status::Failed.name(),
    Status::Interrupted.name(),
];

const ENDED_NAMES: [&str; 2] = [Status::Completed.name(), Status::Failed.name()];

#[cfg(not(feature = "flow"))]
const EVAL: CommandTable = CommandTable {
    is_raw: true,
    ..command(
        "eval",
        "measure flows, agents and commands by suites of cases",
    )
};

const EXPORT_FORMS: [&str; 4] = ["atif", "otlp", "chat", "cases"];

#[rustfmt::skip]
const COMMAND_TABLES: [CommandTable; 33] = [
    CommandTable {
        text: "Give TASK to an agent: to @NAME, to the one in a directory (-a), or to $DELTA_AGENT, else to \
               @coder. A named agent works in the current directory.\n\n\
               The message is TASK and what -m and -f give, in this order of the command line.",
        operands: &[operand("@NAME", Text).optional(), operand("TASK", Text).optional().repeatable()],
        options: &[&[
            valued("-a", "--agent", "AGENT", Directory, "run @NAME, or the agent in a directory or a file NAME.md"),
            valued("-m", "--message", "TEXT", Text, "put TEXT into the message; - reads it from stdin").repeatable(),
            FILE,
            MODEL,
            valued("-w", "--work-dir", "DIR", Workspace, "work in DIR, which is created if it is missing"),
            valued("", "--run-id", "ID", RunId, "name the run; the same command never starts it twice"),
            OPEN_HOST,
            flag("-y", "--yes", "use the next free workspace without asking"),
            flag("", "--new", "start a new run, even if this command was interrupted"),
            flag("", "--retry-failed", "put the run of that name aside if it has failed"),
            ADOPT,
            flag("", "--dry-run", "print the first request instead of sending it"),
            WAIT,
            SET,
            OUTPUT_SCHEMA,
            ACCEPT,
            renamed("--task", "-m (--message)"),
        ], ENGINE, FEED],
        ..command("run", "start a run of an agent, or resume it")
    },
    CommandTable {
        text: "Talk to an agent, line by line: to @NAME, to the one in a directory (-a), or to $DELTA_AGENT, \
               else to @coder. Ctrl-C stops an answer, Ctrl-D ends. A line that begins with \"\"\" begins a \
               message of several lines, up to the next \"\"\".\n\n\
               Start a new run, or go on with --run-id, or with the newest one in -w.",
        operands: &[operand("@NAME", Text).optional()],
        options: &[&[
            valued("-a", "--agent", "AGENT", Directory, "talk to @NAME, or to the agent in a directory or a file NAME.md"),
            FILE,
            MODEL,
            valued("-w", "--work-dir", "DIR", Workspace, "work in DIR, and go on with its newest run"),
            valued("", "--run-id", "ID", RunId, "go on with this run"),
            flag("", "--new", "begin a new run, also with -w"),
            OPEN_HOST,
            SET,
            ADOPT,
            valued("", "--max-iterations", "N", Number(1), "stop an answer after N iterations"),
            valued("", "--budget", "KEY=N", Other, "replace the budget: cost=3,tokens=500000"),
            flag("-v", "--verbose", "show what the model and the tools say"),
            flag("-q", "--quiet", "print nothing but answers, warnings and errors"),
        ]],
        ..command("chat", "talk to an agent, line by line")
    },
    CommandTable {
        options: &[&[
            WORK_DIR,
            AGENT_OF_RUN,
            valued("", "--run-id", "ID", RunId, "continue this run (default: the newest)"),
            OPEN_HOST,
            valued("-m", "--message", "TEXT", Text, "the answer or the next message; - reads it from stdin").repeatable(),
            FILE,
            MODEL,
            valued("", "--question", "ID", Other, "the message answers this question and no other"),
            SET,
            OUTPUT_SCHEMA,
            ACCEPT,
            ADOPT,
            WAIT,
            flag("", "--give-up", "calls that end later have failed: do not wait for them"),
            flag("", "--force", "skip damaged lines, and ignore another host's claim"),
            flag("", "--compact", "shorten the conversation first, however long it is"),
        ], ENGINE, FEED],
        ..command("continue", "resume a run, answer its question, or send another message")
    },
    CommandTable {
        text: "Choose an endpoint, a key and a model. They are tried with one request, and written to \
               ~/.config/delta/env if it is answered.",
        options: &[&[
            valued("", "--base-url", "URL", Text, "the endpoint: a URL, or a name such as openai"),
            valued("-M", "--model", "NAME", Text, "the model"),
            flag("", "--key-stdin", "read the key from the standard input"),
            flag("-y", "--yes", "ask nothing"),
        ]],
        ..command("setup", "choose an endpoint, a key and a model")
    },
    CommandTable {
        text: "List the models of the endpoint that an agent would ask, one a line, with their windows and \
               prices where the endpoint gives them.",
        operands: &[operand("@NAME", Text).optional()],
        options: &[&[valued("-a", "--agent", "AGENT", Directory, "the endpoint of @NAME, or of the agent in a directory or a file NAME.md")]],
        ..command("models", "list the models of the endpoint")
    },
    CommandTable {
        text: "Create an agent in the directory NAME (default: the current directory), which \
               must be new or empty, and print its name; with -t flow a flow, with -t eval an evaluation.",
        operands: &[operand("NAME", Directory).optional()],
        options: &[&[
            valued("-t", "--template", "", Words(&templates::NAMES), "start from this template"),
            valued("", "--from", "FILE.md", File, "start from an agent that is one Markdown file"),
            flag("-y", "--yes", "use minimal without asking"),
        ]],
        ..command("init", "create an agent from a template")
    },
    waiting::TELL,
    waiting::DUE,
    waiting::LATER,
    CommandTable {
        text: "List runs, the newest first.",
        operands: &[operand("DIR", Directory).optional().repeatable()],
        options: &[&[
            WORK_DIR,
            BELOW,
            valued("-a", "--agent", "DIR", Directory, "list the runs in all workspaces of this agent; with -r, only its runs"),
            valued("", "--status", "STATUS", Words(&STATUS_NAMES), "only RUNNING, WAITING_FOR_INPUT, COMPLETED, FAILED or INTERRUPTED"),
            valued("", "--stop-reason", "REASON", Words(&STOP_REASONS), "only runs that ended for this reason").repeatable(),
            valued("", "--since", "TIME", Other, "only runs started since TIME: RFC 3339, or an age such as 2h"),
            flag("", "--resumable", "only runs that the same command would resume"),
            flag("", "--retryable", "only runs to start again: 75, a signal, or the process died"),
            flag("", "--needs-attention", "only runs that need attention: 1, 3, 4, 78 and 101"),
            flag("", "--first", "only the newest; as text, only its id"),
            valued("", "--format", "", FORMATS, "print a table (default) or a JSON array; with -r, a line for each"),
        ]],
        ..command("list-runs", "list the runs of a workspace or an agent")
    },
    CommandTable {
        text: "Remove the named runs, unless they are live; or, with --older-than, those in all workspaces below \
               directories that ended long ago. Print their directories. Foreign runs stay.\n\n\
               RUN is an id, the beginning of one, LATEST, or the path of a run's directory.",
        operands: &[operand("RUN", Run).optional().repeatable()],
        options: &[&[
            WORK_DIR,
            BELOW,
            valued("", "--older-than", "SPAN", Other, "without RUN: only runs that ended before: 30d, 12h"),
            valued("", "--status", "STATUS", Words(&ENDED_NAMES), "only COMPLETED or FAILED").repeatable(),
            flag("", "--keep-journal", "keep the journal, the summary and the ledger"),
            flag("", "--dry-run", "remove nothing"),
        ]],
        ..command("prune", "remove old runs")
    },
    CommandTable {
        text: "Show a run (default: the newest) as a timeline.",
        operands: &[operand("RUN", Run).optional()],
        options: &[&[
            WORK_DIR,
            flag("-f", "--follow", "keep printing until the run ends"),
            valued("-n", "--lines", "N", Number(0), "show only the last N events"),
            flag("-v", "--verbose", "show the connections of tools to hosts, too"),
            flag("", "--effects", "list the actions that have an effect, each with its state"),
            flag("", "--json", "print the journal's lines unchanged; with --effects: a line of JSON for each"),
        ]],
        ..command("log", "show a run as a timeline")
    },
    CommandTable {
        text: "Report where the time and tokens of runs (default: the newest) went; with -r, a line for each agent, \
               model and day.",
        operands: &[operand("RUN", Run).optional().repeatable()],
        options: &[&[
            WORK_DIR,
            BELOW,
            valued("", "--format", "", TABLE_FORMATS, "print for people (default) or for programs"),
        ]],
        ..command("stats", "report where the time and tokens of runs went")
    },
    CommandTable {
        text: "Print a run (default: the newest) as one page of HTML that needs nothing else.\n\n\
               RUN is an id, the beginning of one, LATEST, or the path of a run's directory.",
        operands: &[operand("RUN", Run).optional()],
        options: &[&[
            WORK_DIR,
            valued("-o", "--output", "DIR", Directory, "write DIR/index.html, and the pages of an evaluation's trials"),
        ]],
        ..command("report", "show a run as one page of HTML")
    },
    CommandTable {
        text: "Print runs (default: the newest) in a form that other programs read. Runs that they have \
               started go with them.\n\n\
               RUN is an id, the beginning of one, LATEST, or the path of a run's directory.",
        operands: &[operand("RUN", Run).optional().repeatable()],
        options: &[&[
            WORK_DIR,
            valued("", "--format", "", Words(&EXPORT_FORMS), "a trajectory (ATIF), a trace (OTLP), conversations, or cases of an evaluation").required(),
            flag("", "--content", "of a trace: print what was said, too"),
            flag("", "--compat", "of a trace: print attributes by their earlier names, too"),
        ]],
        ..command("export", "print runs for other programs")
    },
    CommandTable {
        text: "Print the exact bytes of the N-th request (default: the last) of a run (default: the newest).\n\n\
               Alone, a word of at most seven digits is N. RUN is an id, the beginning of one, LATEST, or the path \
               of a run's directory.",
        operands: &[operand("RUN", Run).optional(), operand("N", Other).optional()],
        options: &[&[
            WORK_DIR,
            flag("", "--next", "print the request that continuing would send"),
            AGENT_OF_RUN,
            MODEL,
            SET,
            OUTPUT_SCHEMA,
            ACCEPT,
            ADOPT,
            valued("", "--diff", "M", Number(1), "show where the request first differs from the M-th"),
        ]],
        ..command("request", "print the exact bytes that were sent to the model")
    },
    CommandTable {
        text: "Start a run that begins with the first N iterations of another (default: the newest).",
        operands: &[operand("RUN", Run).optional()],
        options: &[&[
            valued("", "--at", "N", Number(0), "begin with N iterations; 0: with the message alone").required(),
            WORK_DIR,
            AGENT_OF_RUN,
            ADOPT,
            valued("-m", "--message", "TEXT", Text, "the next message; - reads it from stdin").repeatable(),
            FILE,
            MODEL,
            valued("", "--to", "DIR", Directory, "work in DIR, with the files as they were after N iterations, if they are kept"),
            valued("", "--files", "", Words(&["now"]), "with --to: copy the files as they are now"),
            SET,
            OUTPUT_SCHEMA,
            ACCEPT,
            valued("", "--run-id", "ID", RunId, "name the new run"),
            valued("", "--format", "", FORMATS, "print text (default) or one JSON object"),
            OPEN_HOST,
        ], ENGINE],
        ..command("fork", "start a run from the first iterations of another")
    },
    CommandTable {
        text: "Put files back to what they were before the last iteration of a run that changed any (default: of \
               the newest run with such an iteration), and print which. What is there is kept first. The agent needs files: git in agent.yaml.\n\n\
               A file that has changed since is in the way: then nothing is put back. RUN is an id, the beginning of \
               one, LATEST, or the path of a run's directory.",
        operands: &[operand("RUN", Run).optional()],
        options: &[&[
            WORK_DIR,
            valued("", "--to", "N", Text, "to what they were after iteration N; 0: before the first; sN: to the state of number N"),
            flag("-n", "--dry-run", "change nothing; print which files would be put back"),
            flag("", "--force", "overwrite files that have changed since, if they are kept"),
        ]],
        ..command("undo", "put files back to what they were")
    },
    CommandTable {
        text: "Run git in the store of the files of each step. RUN among its words is the last state of a run's files, \
               RUN@N the one after iteration N: delta git diff RUN@3 RUN, delta git show RUN@7:src/a.c.",
        operands: &[operand("ARG", Bytes).repeatable()],
        options: &[&[WORK_DIR]],
        options_first: true,
        ..command("git", "look at the files of each step with git")
    },
    CommandTable {
        text: "Repeat a run (default: the newest) with the model's recorded answers and compare every \
               request. Exit with 0 if all are identical, with 1 if one differs.\n\n\
               RUN is an id, the beginning of one, LATEST, or the path of a run's directory.",
        operands: &[operand("RUN", Run).optional()],
        options: &[&[
            WORK_DIR,
            AGENT_OF_RUN,
            MODEL,
            SET,
            OUTPUT_SCHEMA,
            ACCEPT,
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
        text: "Show where two runs (default of the second: the newest) diverge: what they share in a line, then side by side. Exit \
               with 0 if the conversations are the same, with 1 if they are not.\n\n\
               RUN is an id, the beginning of one, LATEST, or the path of a run's directory.",
        operands: &[operand("RUN_A", Run), operand("RUN_B", Run).optional()],
        options: &[&[WORK_DIR]],
        ..command("diff", "show where two runs diverge")
    },
    EVAL,
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
        text: "Print the catalogue of the skills in directories: name, description and path of each \
               SKILL.md. Made for a computed_file of context.yaml.",
        operands: &[operand("DIR", Directory).repeatable()],
        options: &[&[valued("-o", "--output", "FILE", File, "write to FILE, or remove it if there is no skill")]],
        ..command("skills", "print the catalogue of the skills in directories")
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
            valued("", "--hide", "PATH", File, "let PATH appear empty").repeatable(),
            flag("", "--no-network", "deny access to the network and to Unix sockets"),
            flag("", "--allow-unix", "with --no-network: allow Unix sockets"),
            valued("", "--allow-host", "NAME[:PORT]", Other, "deny the network but for this host (443 and 80 without a port)").repeatable(),
            flag("", "--allow-hosts-from-env", "the same for the hosts in DELTA_ALLOW_HOSTS"),
            valued("", "--log", "FILE", File, "record the connections to hosts in FILE"),
            flag("", "--strict", "fail if the kernel cannot enforce all of this"),
        ]],
        options_first: true,
        ..command("sandbox", "run a command that cannot write outside some directories")
    },
    CommandTable {
        text: "Serve a recorded run as a model: the request on stdin, the recorded response on \
               stdout. For llm.command in agent.yaml.",
        operands: &[operand("", Words(&["replay"])), operand("RUN_DIR", Directory)],
        options: &[&[flag("", "--lenient", "match by the number of answers in the request alone")]],
        ..command("model", "serve a recorded run as a model")
    },
    CommandTable {
        text: "Use the tools of MCP servers as commands. list prints what a server offers; import \
               writes its tools to tools/mcp-NAME.yaml, to review and import; check reports what \
               has changed since; call calls a tool with the JSON object on stdin; task is the check of calls that end later.",
        operands: &[
            operand("", Words(&["list", "import", "check", "call", "task"])),
            operand("NAME", Bytes).optional(),
            operand("ARGUMENT", Bytes).optional().repeatable(),
        ],
        options: &[&[
            valued("-a", "--agent", "DIR", Directory, "the agent whose mcp.yaml is used (default: the calling agent, else the current directory)"),
            valued("", "--url", "URL", Other, "list, import: the server's URL instead of its command"),
            valued("", "--env", "NAME", Other, "import: a variable that only this server gets").repeatable(),
            valued("", "--bearer-env", "NAME", Other, "list, import: the variable that holds the server's bearer token"),
            flag("", "--json", "call: print the structured result, if there is one"),
            valued("", "--only", "TOOL", Other, "import: only this tool of the server").repeatable(),
            valued("", "--from", "FILE", File, "import: servers of another program's file, such as .mcp.json"),
            flag("-y", "--yes", "import --from: start the servers without asking"),
            valued("", "--timeout", "S", Number(0), "call: the longest time in seconds (default 600; 0: no limit)"),
        ]],
        ..command("mcp", "use the tools of MCP servers as commands")
    },
    CommandTable {
        text: "Serve an editor over the Agent Client Protocol, on the standard input and output. A session is a run \
               in the directory that the editor names.",
        operands: &[operand("@NAME", Text).optional()],
        options: &[&[valued("-a", "--agent", "AGENT", Directory, "serve @NAME, or the agent in a directory or a file NAME.md")]],
        ..command("acp", "serve an editor over the Agent Client Protocol")
    },
    CommandTable {
        is_raw: true,
        ..command("flow", "run a graph of commands and agents: delta flow -h")
    },
    CommandTable {
        is_raw: true,
        ..command("sessions", "keep the state of shells between calls: delta sessions -h")
    },
    CommandTable {
        text: "Print a page of the manual: flow is the command, flow.5 the files of a flow. Words that are no page are \
               searched for in all of them. Without a word, list the everyday commands.",
        operands: &[operand("PAGE", Other).optional().repeatable()],
        options: &[&[
            flag("-a", "--all", "list all pages"),
            flag("-k", "--search", "search all pages, also for the name of one"),
        ]],
        ..command("help", "print a page of the manual")
    },
];
