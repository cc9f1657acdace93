//! The program `delta-flow` as a whole: from the command line to the exit code.

use super::args::{self, FlowCommand};
use super::{check, complete, graph, memory, run, show, tool};
use crate::cli::commands::stats;
use crate::error::{Error, Exit, Result};
use crate::flow::PROGRAM;
use crate::record::event::VERSION;
use crate::unix::terminal::{print, print_error};
use std::ffi::OsString;
use std::panic::catch_unwind;

/// Runs `delta-flow`. A panic is a defect of ours, and never ends with the exit code of a question.
pub fn main(args: Vec<OsString>) -> u8 {
    let done = catch_unwind(|| execute(args)).unwrap_or_else(|_| {
        let message = "this is a defect in delta-flow; what was recorded is safe";
        Err(Error::new(Exit::Software, message))
    });
    match done {
        Ok(code) => code,
        Err(error) => {
            print_error(PROGRAM, &error);
            error.exit.code()
        }
    }
}

fn execute(args: Vec<OsString>) -> Result<u8> {
    let exit = match args::parse(args)? {
        // A tool's exit code may be any.
        FlowCommand::Tool(wanted) => return tool::run(&wanted),
        FlowCommand::Run(wanted) => run::run(&wanted).map_err(Error::of_run),
        FlowCommand::Show(wanted) => show::run(&wanted),
        FlowCommand::Stats(wanted) => stats::run(&wanted),
        FlowCommand::Check { dir, format } => check::run(&dir, format),
        FlowCommand::Graph(wanted) => graph::run(&wanted),
        FlowCommand::Complete { words } => complete::run(&words),
        FlowCommand::Memory(wanted) => memory::run(&wanted),
        FlowCommand::Version => said(&format!("{PROGRAM} {VERSION}\n")),
        FlowCommand::Help { full: true, .. } => said(manual()),
        FlowCommand::Help { topic, full: false } => said(help(topic)),
    };
    exit.map(Exit::code)
}

fn said(text: &str) -> Result<Exit> {
    print(text.as_bytes())?;
    Ok(Exit::Success)
}

/// The page, which is one for all commands.
fn manual() -> &'static str {
    crate::cli::manual::find(PROGRAM).map_or("", |page| page.text)
}

/// What `-h` prints about a command, or about all.
pub(super) fn help(topic: Option<&str>) -> &'static str {
    match topic {
        Some("run") => RUN,
        Some("show") => SHOW,
        Some("stats") => STATS,
        Some("check") => CHECK,
        Some("graph") => GRAPH,
        Some("tool") => TOOL,
        Some("memory") => MEMORY,
        Some("help") => HELP,
        _ => OVERVIEW,
    }
}

/// What `-h` prints about all commands.
pub(super) const OVERVIEW: &str = "\
usage: delta flow COMMAND [OPTIONS]
  run     run a flow, or go on with one that was interrupted
  show    show a run, one of its tasks, or one node with all that it was given
  check   tell everything that is wrong with a flow
  graph   draw a flow
  stats   tell where time, memory and tokens went, by node and tool
  tool    run a tool of the node that this is called by
  memory  add to what a flow remembers, or list it
  help    print the manual page, or the options of a command
  -h, --help     print this text, or the manual page
  -V, --version  print the version
";

const RUN: &str = "\
usage: delta flow run [DIR] [OPTIONS]
Run a flow (default: the current directory), or go on with a run of it that was
interrupted. The output of its exit is printed as JSON.
  -i, --input FILE        the input: a file with one JSON value, or - for stdin
  -m, --message TEXT      the input: a text
      --inputs FILE       many inputs: one JSON value on each line
      --start NODE        begin at this start
  -w, --work-dir DIR      work in this directory (default: the current one)
  -j, --jobs N            run at most N programs at once (default: processors)
      --run-id ID         name the run; the same command runs it once
      --format text|json  print the output (default), or one object
      --dry-run           print what would run, and run nothing
      --pause-before NODE
                          stop before this node; may be given several times
      --launch 'CMD...'   put CMD before every program, as in 'srun -N1 -n1'
  -k, --keep-going        go on with other inputs after a failure
      --changed ok        go on although files of the flow have changed
  -q, --quiet             say nothing but results and errors
  -h, --help              print this text, or the manual page
";

const SHOW: &str = "\
usage: delta flow show [-w DIR] [RUN] [TASK] [NODE]
Show a run (default: the newest) as a tree of tasks, one task with the nodes
that it was at, or one node: its command, input, context, output.
  -w, --work-dir DIR  the workspace (default: the current directory)
  -h, --help          print this text, or the manual page
";

const STATS: &str = "\
usage: delta flow stats [-w DIR] [--format text|json|csv] [RUN]...
Tell where the time, the memory and the tokens of a run (default: the newest)
or of several went, by node and by tool. It is delta stats.
  -w, --work-dir DIR          the workspace (default: the current directory)
      --format text|json|csv  print a table (default), or for programs
  -h, --help                  print this text, or the manual page
";

const CHECK: &str = "\
usage: delta flow check [DIR] [--format text|json]
Tell everything that is wrong or doubtful with a flow (default: the current
directory).
      --format text|json  print errors as text (default) or as one object
  -h, --help              print this text, or the manual page
";

const GRAPH: &str = "\
usage: delta flow graph [DIR|RUN] [-w DIR] [--format dot|mermaid|svg]
Draw a flow (default: the current directory), or a run of one, its nodes
coloured by what became of them.
  -w, --work-dir DIR     look for the run in the workspace DIR
      --format LANGUAGE  for Graphviz (dot, the default), for Mermaid, or
                         as a picture (svg)
  -h, --help             print this text, or the manual page
";

const TOOL: &str = "\
usage: delta flow tool NAME [-p NAME=VALUE]... [--stdin NAME]
Run a tool that the node allows; to be called by the program of a node. Its
arguments are a JSON object on stdin, or the parameters given here.
  -p, --parameter NAME=VALUE  give a parameter, instead of reading arguments
      --stdin NAME            give stdin, as it is, to this parameter
  -h, --help                  print this text, or the manual page
";

const MEMORY: &str = "\
usage: delta flow memory add STORE [DIR] (-m TEXT | -i FILE) [--tag TAG]...
       delta flow memory list STORE [DIR] [--tag TAG]... [--format text|json]
Add an item to a store of a flow (default: that in the current directory) and
print its id, or list the items, the newest last. STORE is project or global,
or task to list; it must be of type jsonl.
  -m, --message TEXT      add a text
  -i, --input FILE        add one JSON value from a file, or - for stdin
      --tag TAG           give it this tag; list what has one of these tags
  -w, --work-dir DIR      what ${CWD} in file_path stands for (default: .)
      --format text|json  list a line each (default), or one object
  -h, --help              print this text, or the manual page
";

const HELP: &str = "\
usage: delta flow help [COMMAND]
Print the manual page, or the options of a command.
  -h, --help  print this text, or the manual page
";
