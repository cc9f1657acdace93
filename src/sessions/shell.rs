//! What a session's shell is told: the scripts around a command, and what they keep.
//!
//! Unaware of processes and locks. The command itself is never part of a script: it stands in a
//! file of its own, and nothing in it can end a quote, a here-document or the script around it.

use serde::{Deserialize, Serialize};
use std::env;
use std::path::Path;

/// How an interpreter is run, and what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// bash 4.4 or newer, under whatever name.
    Bash,
    /// Any other shell that reads POSIX scripts.
    Posix,
    /// Not a shell: it gets the text on its standard input.
    Other,
}

/// A change to the environment, as `exec::Command` takes it.
type Variable = crate::unix::process::Variable;

/// Programs that are run as POSIX shells, or as bash if they turn out to be one.
const SHELLS: [&str; 8] = ["bash", "sh", "dash", "ash", "yash", "ksh", "ksh93", "mksh"];

/// The variables that hold the engine's API key: no session ever sees them.
const KEYS: [&str; 2] = ["DELTA_API_KEY", "OPENAI_API_KEY"];

/// Tells a command which session it runs in, and `end` which processes are of a session.
pub(crate) const SESSION_ID: &str = "DELTA_SESSION_ID";

/// What belongs to one call of `delta-sessions` and not to the session.
const FOREIGN: [&str; 5] = [
    SESSION_ID,
    crate::unix::procfs::CALL_ID,
    "DELTA_DEPTH",
    "DELTA_RUN_DIR",
    "DELTA_RUN_ID",
];

/// A shell that any Unix has, to prepare the way for interpreters that are none.
pub(crate) const SH: &str = "/bin/sh";

/// The last line of a state that was written to its end, by the kind of shell that wrote it.
const TRAILERS: [(&str, Kind); 2] = [
    ("# end of bash state\n", Kind::Bash),
    ("# end of sh state\n", Kind::Posix),
];

/// The last line of a whole `functions.sh`.
pub(crate) const FUNCTIONS_END: &[u8] = b"# end of functions\n";

/// The longest of them.
pub(crate) const TRAILER_LEN: u64 = 20;

/// All files that a shell may write its state into.
pub(crate) const ANY_STATE: [&str; 5] = [
    "env.sh",
    "work_dir.txt",
    "functions.sh",
    "options.sh",
    "aliases.txt",
];

impl Kind {
    /// The files that hold the state.
    pub(crate) fn state(self) -> &'static [&'static str] {
        match self {
            Self::Bash => &["env.sh", "work_dir.txt", "functions.sh"],
            Self::Posix => &["env.sh", "work_dir.txt", "options.sh", "aliases.txt"],
            Self::Other => &["env.sh", "work_dir.txt"],
        }
    }

    /// What one command leaves to the next, in words.
    pub(crate) fn persists(self) -> &'static [&'static str] {
        match self {
            Self::Bash => &[
                "files",
                "working directory",
                "exported variables",
                "shell variables and arrays",
                "functions",
                "aliases",
                "shell options",
                "umask",
            ],
            Self::Posix => &[
                "files",
                "working directory",
                "exported variables",
                "shell variables",
                "aliases",
                "shell options",
                "umask",
            ],
            Self::Other => &["files"],
        }
    }
}

/// Whether a program, by its name, is a shell.
pub(crate) fn is_shell(program: &str) -> bool {
    SHELLS.contains(&name_of(program))
}

fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// The kind of shell whose state ends in these bytes; `None` if it is not whole.
pub(crate) fn kind_of_state(tail: &[u8]) -> Option<Kind> {
    let found = TRAILERS
        .iter()
        .find(|(line, _)| tail.ends_with(line.as_bytes()));
    found.map(|(_, kind)| *kind)
}

/// One word of a shell's language that means exactly this text.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What a command begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning<'s> {
    /// The session's directory.
    pub dir: &'s str,
    /// The state of the session is damaged, and left aside.
    pub afresh: bool,
    /// `trap` is a function of ours: see [`needs_trap`].
    pub hide_trap: bool,
    /// What `alias` printed, in a POSIX shell.
    pub aliases: &'s [u8],
}

/// The scripts around a command: name and content.
pub(crate) fn scripts(kind: Kind, beginning: Beginning<'_>) -> Vec<(&'static str, String)> {
    let Beginning {
        dir,
        afresh,
        hide_trap,
        aliases,
    } = beginning;
    match kind {
        Kind::Bash => vec![
            ("boot.sh", bash_boot(dir, afresh, hide_trap)),
            (
                "save.sh",
                save(include_str!("bash_save.sh"), dir, hide_trap),
            ),
        ],
        Kind::Posix => {
            let (dir_word, aliases) = (quote(dir), alias_commands(aliases));
            let values = [("DIR", &*dir_word), ("ALIASES", &aliases)];
            let boot = fill(include_str!("posix_boot.sh"), &values);
            vec![
                ("boot.sh", if afresh { String::new() } else { boot }),
                ("save.sh", save(include_str!("posix_save.sh"), dir, false)),
            ]
        }
        Kind::Other => Vec::new(),
    }
}

/// The scripts for the first start of a shell in `dir`, when it is not known yet which one it is.
pub(crate) fn first_scripts(dir: &str) -> Vec<(&'static str, String)> {
    let (bash, posix) = (quote(&bash_exit(dir, "save.bash")), quote(&posix_exit(dir)));
    let values = [("EXIT", &*bash), ("POSIX", &*posix)];
    vec![
        ("start.sh", fill(include_str!("start.sh"), &values)),
        ("save.bash", save(include_str!("bash_save.sh"), dir, false)),
        ("save.sh", save(include_str!("posix_save.sh"), dir, false)),
    ]
}

/// The words behind a shell's own for its first start.
pub(crate) fn first_arguments(dir: &str) -> [String; 2] {
    ["-c".to_owned(), format!(". {}", in_dir(dir, "start.sh"))]
}

/// The command line that writes the environment of an interpreter that is no shell, and ends with
/// 127 if there is no such program.
pub(crate) fn first_of_other(dir: &str, program: &str) -> Vec<String> {
    let script = format!("trap {} EXIT; command -v \"$1\"", quote(&posix_exit(dir)));
    [SH, "-c", &script, "sh", program]
        .map(str::to_owned)
        .to_vec()
}

/// The command line that runs the text in `command`.
pub(crate) fn command_line(kind: Kind, dir: &str, program: &str, argv: &[String]) -> Vec<String> {
    let typed = argv.first().map_or("sh", String::as_str);
    match kind {
        Kind::Bash if name_of(program) == "bash" => {
            vec![program.to_owned(), format!("{dir}/command")]
        }
        Kind::Bash | Kind::Posix => {
            let (trap, save) = match kind {
                Kind::Bash => (String::new(), String::new()),
                _ => (
                    format!("trap {} EXIT; ", quote(&posix_exit(dir))),
                    format!("; {{ ( \\. {} ); }} 2>/dev/null", in_dir(dir, "save.sh")),
                ),
            };
            // Options like xtrace come back with boot.sh and must not show what runs the command.
            let script = format!(
                "{trap}{{ . {}; . {} 2>&3 3>&-; }} 3>&2 2>/dev/null{save}",
                in_dir(dir, "boot.sh"),
                in_dir(dir, "command")
            );
            [program, "-c", &script, typed].map(str::to_owned).to_vec()
        }
        Kind::Other => {
            let script = format!(". {}; exec \"$@\"", in_dir(dir, "env.sh"));
            let prefix = [SH, "-c", &script, "sh"].map(str::to_owned);
            prefix.into_iter().chain(argv.iter().cloned()).collect()
        }
    }
}

/// The environment of a session's first process: all of ours but the keys.
pub(crate) fn first_environment(session: &str) -> Vec<Variable> {
    let mut changes: Vec<Variable> = KEYS.map(|key| (key.to_owned(), None)).to_vec();
    changes.push((SESSION_ID.to_owned(), Some(session.to_owned())));
    changes
}

/// The environment of a command: nothing of ours but what tells whose call this is. The rest comes
/// out of the session's files; if they are damaged, all of ours but the keys.
pub(crate) fn environment(
    kind: Kind,
    session: &str,
    work_dir: &Path,
    beginning: Beginning<'_>,
) -> Vec<Variable> {
    let mut changes = if beginning.afresh {
        first_environment(session)
    } else {
        let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let own = names.filter(|name| !FOREIGN.contains(&name.as_str()));
        own.map(|name| (name, None)).collect()
    };
    let mut set = |name: &str, value: &str| changes.push((name.to_owned(), Some(value.to_owned())));
    set(SESSION_ID, session);
    if let Some(work_dir) = work_dir.to_str() {
        // A shell believes PWD if it is right, and so keeps the way through symbolic links.
        set("PWD", work_dir);
    }
    if kind == Kind::Bash {
        // bash expands BASH_ENV, but not what it expands to.
        set("BASH_ENV", "${DELTA_SESSION_BOOT}");
        set("DELTA_SESSION_BOOT", &format!("{}/boot.sh", beginning.dir));
        if !beginning.afresh {
            // Without them bash reads the list of users. boot.sh forgets them.
            set("HOME", "/");
            set("SHELL", SH);
        }
    }
    changes
}

/// Whether `trap` is replaced by a function of ours for this text and these functions: bash's own
/// would replace the exit trap that writes the state, and list it.
///
/// A function cannot take ERR and DEBUG traps away from its caller, and a RETURN trap would run
/// when it returns: where a text may do that, `trap` stays what it is.
pub(crate) fn needs_trap(texts: &[&[u8]]) -> bool {
    let has = |word: &str| {
        let word = word.as_bytes();
        texts
            .iter()
            .any(|text| memchr::memmem::find(text, word).is_some())
    };
    let takes_away =
        has("RETURN") || (has("ERR") || has("DEBUG")) && (has("trap - ") || has("trap -- - "));
    has("trap") && !takes_away
}

/// Puts values in the place of `@NAME@`. What is in a value is never looked at again.
fn fill(script: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(script.len() * 2);
    let mut rest = script;
    while let Some(at) = rest.find('@') {
        let (before, from) = rest.split_at(at);
        filled.push_str(before);
        let value = values.iter().find_map(|(name, value)| {
            let after = from[1..].strip_prefix(name)?.strip_prefix('@')?;
            Some((*value, after))
        });
        let (value, after) = value.unwrap_or(("@", &from[1..]));
        filled.push_str(value);
        rest = after;
    }
    filled + rest
}

fn in_dir(dir: &str, name: &str) -> String {
    quote(&format!("{dir}/{name}"))
}

fn bash_boot(dir: &str, afresh: bool, hide_trap: bool) -> String {
    let exit = quote(&bash_exit(dir, "save.sh"));
    let trap = fill(include_str!("bash_trap.sh"), &[("EXIT", &exit)]);
    let trap = if hide_trap { &trap } else { "" };
    let values = [("DIR", &*quote(dir)), ("TRAP", trap), ("EXIT", &exit)];
    let script = if afresh {
        include_str!("bash_afresh.sh")
    } else {
        include_str!("bash_boot.sh")
    };
    fill(script, &values)
}

fn save(script: &str, dir: &str, hide_trap: bool) -> String {
    let ours = if hide_trap { BASH_OURS } else { "" };
    let (foreign, keys) = (FOREIGN.join(" "), KEYS.join(" "));
    let values = [
        ("DIR", &*quote(dir)),
        ("OURS", ours),
        ("FOREIGN", &foreign),
        ("KEYS", &keys),
    ];
    fill(script, &values)
}

/// Takes our own `trap` out of the functions that are kept, unless the command has made another.
const BASH_OURS: &str = "[[ $(builtin declare -f trap) == */save.sh* ]] && builtin unset -f trap";

/// What a bash does when it ends, however that comes about.
fn bash_exit(dir: &str, script: &str) -> String {
    let save = quote(&format!("\\. {}", in_dir(dir, script)));
    let values = [("DIR", &*quote(dir)), ("SAVE", &save)];
    let exit = fill(include_str!("bash_exit.sh"), &values);
    exit.trim_end().to_owned()
}

/// What another shell does when it ends, unless its state has been written already.
fn posix_exit(dir: &str) -> String {
    let (state, save) = (in_dir(dir, "next/env.sh"), in_dir(dir, "save.sh"));
    format!("{{ [ -s {state} ] || ( \\. {save} ); }} 2>/dev/null")
}

/// The output of `alias`, `name='value'` by lines, as commands.
fn alias_commands(listed: &[u8]) -> String {
    let words = shlex::bytes::split(listed).unwrap_or_default();
    let commands = words.iter().filter_map(|word| {
        let word = str::from_utf8(word).ok()?;
        // There may be an alias for `alias` among them.
        Some(format!("\\alias {}", quote(word)))
    });
    commands.collect::<Vec<_>>().join("\n")
}
