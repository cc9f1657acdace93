//! What `-h` prints; what `--help` prints is the page in `manual`.

use crate::cli::manual;

/// The text about a command or a page, or about all: the options, or the whole page.
pub(crate) fn text(topic: Option<&str>, full: bool) -> &'static str {
    let page = manual::find(topic.unwrap_or("delta"));
    if full && let Some(page) = page {
        return page.text;
    }
    match topic {
        Some("run") => RUN,
        Some("continue") => CONTINUE,
        Some("init") => INIT,
        Some("check") => CHECK,
        Some("schema") => SCHEMA,
        Some("migrate") => MIGRATE,
        Some("list-runs") => LIST_RUNS,
        Some("log") => LOG,
        Some("request") => REQUEST,
        Some("replay") => REPLAY,
        Some("fork") => FORK,
        Some("diff") => DIFF,
        Some("model") => MODEL,
        Some("stats") => STATS,
        Some("report") => REPORT,
        Some("tool") => TOOL,
        Some("sandbox") => SANDBOX,
        Some("help") => HELP,
        _ => OVERVIEW,
    }
}

/// The commands, one a line.
pub(crate) const OVERVIEW: &str = "\
usage: delta COMMAND [OPTIONS]

  run        start a run of an agent, or resume the one this command started
  continue   go on with a run: resume, answer, or say something more
  init       make a new agent from a template
  list-runs  list the runs of a workspace, or of an agent
  log        show a run as a timeline, and follow it
  stats      tell where a run's time and tokens went
  report     show a run as one page of HTML
  request    print the exact bytes that were sent to the model
  fork       start a run from the first iterations of another one
  replay     run again with the recorded answers, and compare every request
  diff       show where two runs part
  check      tell everything that is wrong with an agent
  schema     print the JSON Schema of an agent's file
  tool       print tools in their full form
  sandbox    run a command that cannot write outside some directories
  migrate    bring an older engine's workspace into today's layout
  model      answer as the model of a recorded run did
  flow       run a graph of commands and agents: delta flow -h
  help       list the pages of the manual, or print one

  -h, --help     print this text, or the manual page
  -V, --version  print the version
";

const RUN: &str = "\
usage: delta run [OPTIONS] -m MESSAGE

  -a, --agent DIR         run the agent in DIR (default: the current directory)
  -m, --message TEXT      say what to do; - reads it from stdin
  -w, --work-dir DIR      work in DIR, which is created if it is missing
      --run-id ID         name the run: the same command never starts it twice
      --max-iterations N  stop after N iterations
  -i, --interactive       ask questions at the terminal
  -y, --yes               take the next free workspace without asking
      --dry-run           print the first request; send and leave nothing
      --set KEY=VALUE     set a key of agent.yaml otherwise: llm.temperature=0
  -v, --verbose           show what the model and the tools say
  -q, --quiet             show nothing but the result, warnings and errors
      --format text|json  print the result as text (default) or as one object
  -h, --help              print this text, or the manual page
";

const CONTINUE: &str = "\
usage: delta continue -w DIR [OPTIONS]

  -w, --work-dir DIR      go on in the workspace DIR
      --run-id ID         go on with this run (default: the newest)
  -m, --message TEXT      answer, or say what to do now; - reads it from stdin
      --max-iterations N  stop after N iterations
  -i, --interactive       ask questions at the terminal
  -v, --verbose           show what the model and the tools say
  -q, --quiet             show nothing but the result, warnings and errors
      --format text|json  print the result as text (default) or as one object
      --force             pass over damaged lines and another host's claim
  -h, --help              print this text, or the manual page
";

const INIT: &str = "\
usage: delta init [OPTIONS] [NAME]

Make a new agent in the directory NAME (default: the current directory), which
must be new or empty, and print its name.

  -t, --template TEMPLATE  take minimal, hello-world, file-ops or api-tester
  -y, --yes                take minimal without asking
  -h, --help               print this text, or the manual page
";

const CHECK: &str = "\
usage: delta check [OPTIONS] [AGENT]

Tell everything that is wrong or doubtful with an agent (default: the current
directory).

      --format text|json  print problems as text (default) or as one object
  -h, --help              print this text, or the manual page
";

const SCHEMA: &str = "\
usage: delta schema agent|context|hooks

Print the JSON Schema of agent.yaml, context.yaml or hooks.yaml, for editors.

  -h, --help  print this text, or the manual page
";

const MIGRATE: &str = "\
usage: delta migrate -w DIR

Bring a workspace of an older engine into today's layout. Nothing is lost, and
the same command goes on where it was interrupted.

  -w, --work-dir DIR  migrate the workspace DIR
  -h, --help          print this text, or the manual page
";

const LIST_RUNS: &str = "\
usage: delta list-runs [-w DIR | --agent DIR] [OPTIONS]

List runs, the newest first.

  -w, --work-dir DIR      the workspace (default: the current directory)
  -a, --agent DIR         all workspaces of this agent
      --status STATUS     only RUNNING, WAITING_FOR_INPUT, COMPLETED, FAILED
                          or INTERRUPTED
      --resumable         only what the same command would resume
      --first             only the newest, and of it only the id
      --format text|json  how they are printed (default: text)
  -h, --help              print this text, or the manual page
";

const LOG: &str = "\
usage: delta log [-w DIR] [RUN] [-f] [-n N] [--json]

Show a run (default: the newest) as a timeline.

  -w, --work-dir DIR  the workspace (default: the current directory)
  -f, --follow        go on until the run ends
  -n, --lines N       only the last N events
      --json          print the journal's lines as they are
  -h, --help          print this text, or the manual page
";

const REQUEST: &str = "\
usage: delta request [-w DIR] [--diff M] RUN [N | --next]

Print the exact bytes of the N-th request of a run (default: the last).

  -w, --work-dir DIR  the workspace (default: the current directory)
      --next          print the request that continuing would send
      --diff M        show where the request first differs from the M-th
  -h, --help          print this text, or the manual page
";

const STATS: &str = "\
usage: delta stats [-w DIR] [RUN...] [--format text|json|csv]

Tell where the time and the tokens of runs (default: the newest) went.

  -w, --work-dir DIR          the workspace (default: the current directory)
      --format text|json|csv  how it is printed (default: text)
  -h, --help                  print this text, or the manual page
";

const REPORT: &str = "\
usage: delta report [-w DIR] [RUN] > report.html

Print a run (default: the newest) as one page of HTML that needs nothing else.

  -w, --work-dir DIR  the workspace (default: the current directory)
  -h, --help          print this text, or the manual page

RUN is an id, the beginning of one, LATEST, or the path of a run's directory.
";

const TOOL: &str = "\
usage: delta tool expand FILE

Print the tools of a file in their full form, as YAML that loads again.

  -h, --help  print this text, or the manual page
";

const HELP: &str = "\
usage: delta help [PAGE]

List the pages of the manual, or print one: flow is the command, flow.5 the
files of a flow.

  -h, --help  print this text, or the manual page
";

const REPLAY: &str = "\
usage: delta replay [-w DIR] RUN [OPTIONS]

Repeat a run with the model's recorded answers and compare every request.
Exit code 0: all are identical; 1: one is not, and the difference is shown.

  -w, --work-dir DIR   look in the workspace DIR (default: the current one)
  -a, --agent DIR      run the agent in DIR (default: the one that the run had)
      --tools run|recorded
                       run: execute tools, hooks and generators (default);
                       recorded: take what came of them from the record
      --from DIR       begin with a copy of the files in DIR (default: none)
      --to DIR         work in DIR (default: a temporary directory)
  -v, --verbose        show what the model and the tools say
  -q, --quiet          show nothing but the result, warnings and errors
  -h, --help           print this text, or the manual page

RUN is an id, the beginning of one, LATEST, or the path of a run's directory.
";

const FORK: &str = "\
usage: delta fork [-w DIR] RUN --at N [-m MESSAGE] [OPTIONS]

Start a run that begins with the first N iterations of another one.

  -w, --work-dir DIR      look in the workspace DIR (default: the current one)
      --at N              begin with N iterations; 0: with the message alone
  -m, --message TEXT      say this then; - reads it from stdin
      --to DIR            copy the workspace's files to DIR, and work there
      --set KEY=VALUE     set a key of agent.yaml otherwise: llm.temperature=0
      --run-id ID         name the new run
      --max-iterations N  stop after N iterations
  -i, --interactive       ask questions at the terminal
  -v, --verbose           show what the model and the tools say
  -q, --quiet             show nothing but the result, warnings and errors
      --format text|json  print the result as text (default) or as one object
  -h, --help              print this text, or the manual page
";

const DIFF: &str = "\
usage: delta diff [-w DIR] RUN RUN

Show where two runs part: what they share in a line, then side by side.
Exit code 0: the conversations are the same; 1: they are not.

  -w, --work-dir DIR  look in the workspace DIR (default: the current one)
  -h, --help          print this text, or the manual page

RUN is an id, the beginning of one, LATEST, or the path of a run's directory.
";

const MODEL: &str = "\
usage: delta model replay RUN_DIR [--lenient]

Answer as the model of a recorded run did: the request on stdin, the recorded
response on stdout. For llm.command in agent.yaml.

      --lenient  go by the number of answers in the request alone
  -h, --help     print this text, or the manual page
";

const SANDBOX: &str = "\
usage: delta sandbox [OPTIONS] -- COMMAND [ARGUMENT…]

Run a command that reads the system and the directories given, writes only
where it may, and cannot undo that. Made to be the wrapper of an agent.

      --rw DIR        let it read, write and run what is below DIR, but not
                      change .delta, .git/config and .git/hooks in it
      --ro DIR        let it read and run what is below DIR
      --protect PATH  also keep PATH read-only
      --no-network    keep it from the network
      --strict        fail where the kernel cannot do all of this
  -h, --help          print this text, or the manual page
";
