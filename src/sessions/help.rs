//! What `-h` and `--help` print.

/// What `-h` prints.
pub(crate) const HELP: &str = "\
usage: delta-sessions [--sessions-dir DIR] COMMAND

  start [PROGRAM [ARGUMENT...]]  begin a session (default: bash), print its id
  exec [OPTION...] ID [TEXT]     run TEXT, or standard input, in a session
  end ID                         end a session; its files stay
  list                           show all sessions
  cleanup                        end and remove all sessions

options of exec, before ID:
  --timeout-ms N   end the text after N milliseconds (0: never, the default)
  --max-bytes N    show at most N bytes of each stream (30000; 0: all)
  --raw            pass output and exit code through instead of JSON

options:
  --sessions-dir DIR   the folder of the sessions (default: .sessions)
  -h, --help           show this, or the manual
  -V, --version        show the version
";

/// The manual page as text.
pub(crate) const MANUAL: &str = include_str!("../../man/text/delta-sessions.txt");
