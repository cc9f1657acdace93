//! What `-h` and `--help` print.

/// The text about a command, or about all: the options, or the whole manual page.
#[must_use]
pub fn text(topic: Option<&str>, full: bool) -> &'static str {
    let _ = full;
    match topic {
        Some("run") => RUN,
        Some("continue") => CONTINUE,
        Some("check") => CHECK,
        Some("request") => REQUEST,
        Some("tool") => TOOL,
        _ => OVERVIEW,
    }
}

const OVERVIEW: &str = "\
usage: delta COMMAND [OPTIONS]

  run       start a run of an agent, or resume the one this command started
  continue  go on with a run: resume, answer, or say something more
  check     read an agent and tell everything that is wrong with it
  request   print the exact bytes that were sent to the model
  tool      expand: print tools in their full form
  help      show the manual page of a command

  -h, --help     this text, or the manual page
  -V, --version  the version
";

const RUN: &str = "\
usage: delta run [OPTIONS] -m MESSAGE

  -a, --agent DIR         the agent (default: the current directory)
  -m, --message TEXT      what to do; - reads it from stdin
  -w, --work-dir DIR      where to work; created if it is missing
      --run-id ID         name the run: the same command never starts it twice
      --max-iterations N  stop after N iterations
  -i, --interactive       ask questions at the terminal
  -y, --yes               take the next free workspace without asking
  -v, --verbose           show what the model and the tools say
  -q, --quiet             show nothing but the result and errors
      --format text|json  how the result is printed (default: text)
  -h, --help              this text, or the manual page
";

const CONTINUE: &str = "\
usage: delta continue -w DIR [OPTIONS]

  -w, --work-dir DIR      the workspace
      --run-id ID         the run (default: the newest)
  -m, --message TEXT      the answer, or what to do now; - reads it from stdin
      --max-iterations N  stop after N iterations
  -i, --interactive       ask questions at the terminal
  -v, --verbose           show what the model and the tools say
  -q, --quiet             show nothing but the result and errors
      --format text|json  how the result is printed (default: text)
      --force             pass over damaged lines and another host's claim
  -h, --help              this text, or the manual page
";

const CHECK: &str = "\
usage: delta check [AGENT] [--format text|json]

Read an agent and tell everything that is wrong or doubtful with it.
";

const REQUEST: &str = "\
usage: delta request [-w DIR] RUN [N]

Print the exact bytes of the N-th request of a run (default: the last).

  -w, --work-dir DIR  the workspace (default: the current directory)
";

const TOOL: &str = "\
usage: delta tool expand FILE

Print the tools of a file in their full form, as YAML that loads again.
";
