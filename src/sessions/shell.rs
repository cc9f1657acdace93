//! What a session's shell is told: the scripts around a command, and what they keep.
//!
//! Unaware of processes and locks. The command itself is never part of a script: it stands in a
//! file of its own, and nothing in it can end a quote, a here-document or the script around it.

use crate::sessions::secrets::{ApiKeys, KEY_NAMES};
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
    ("# end of bash state", Kind::Bash),
    ("# end of sh state", Kind::Posix),
];

/// The last line of a whole `functions.sh`.
pub(crate) const FUNCTIONS_END: &[u8] = b"# end of functions\n";

/// Stands at the end of a state's last line if an exit trap of the command had yet to run to its end.
const UNFINISHED: &str = " before the EXIT trap";

/// At least the length of the longest last line.
pub(crate) const TRAILER_LEN: u64 = 64;

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

/// A state that was written to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeState {
    /// The kind of the shell that wrote it.
    pub(crate) kind: Kind,
    /// What the exit trap of the command changed is missing.
    pub(crate) is_before_trap: bool,
}

impl WholeState {
    /// Judges a state by its last bytes.
    pub(crate) fn from_tail(tail: &[u8]) -> Option<Self> {
        let tail = tail.strip_suffix(b"\n")?;
        let before_trap = tail.strip_suffix(UNFINISHED.as_bytes());
        let tail = before_trap.unwrap_or(tail);
        let mut trailers = TRAILERS.iter();
        let (_, kind) = trailers.find(|(line, _)| tail.ends_with(line.as_bytes()))?;
        Some(Self {
            kind: *kind,
            is_before_trap: before_trap.is_some(),
        })
    }
}

/// One word of a shell's language that means exactly this text.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What a command begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning<'s> {
    /// The session's directory.
    pub(crate) dir: &'s str,
    /// The state of the session is damaged, and left aside.
    pub(crate) afresh: bool,
    /// `trap` is a function of ours: see [`needs_trap`].
    pub(crate) hide_trap: bool,
    /// What `alias` printed, in a POSIX shell.
    pub(crate) aliases: &'s [u8],
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
            let trap = if hide_trap {
                posix_trap(dir)
            } else {
                String::new()
            };
            let values = [("DIR", &*dir_word), ("TRAP", &trap), ("ALIASES", &aliases)];
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
pub(crate) fn command_line(
    kind: Kind,
    program: &str,
    argv: &[String],
    beginning: Beginning<'_>,
) -> Vec<String> {
    let dir = beginning.dir;
    let typed = argv.first().map_or("sh", String::as_str);
    match kind {
        Kind::Bash if name_of(program) == "bash" => {
            vec![program.to_owned(), format!("{dir}/command")]
        }
        Kind::Bash | Kind::Posix => {
            let save = posix_save(dir);
            let (trap, save) = match kind {
                Kind::Bash => (String::new(), String::new()),
                // The last of two saves counts; the first is for a trap that is not replaced by ours.
                _ if beginning.hide_trap => (
                    format!("trap {} EXIT; ", quote(&posix_after_trap(dir))),
                    format!("; {{ _delta_status=$? _delta_trap=1; {save}; }} 2>/dev/null"),
                ),
                _ => (
                    format!("trap {} EXIT; ", quote(&posix_exit(dir))),
                    format!("; {{ {save}; }} 2>/dev/null"),
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
    let names = ApiKeys::from_environment().variable_names();
    let mut changes: Vec<Variable> = names.into_iter().map(|name| (name, None)).collect();
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
    let (trap, posix_trap) = if hide_trap {
        (&*trap, BASH_POSIX_TRAP)
    } else {
        ("", "")
    };
    let values = [
        ("DIR", &*quote(dir)),
        ("TRAP", trap),
        ("POSIX_TRAP", posix_trap),
        ("EXIT", &exit),
    ];
    let script = if afresh {
        include_str!("bash_afresh.sh")
    } else {
        include_str!("bash_boot.sh")
    };
    fill(script, &values)
}

fn save(script: &str, dir: &str, hide_trap: bool) -> String {
    let ours = if hide_trap { BASH_OURS } else { "" };
    let (foreign, keys) = (FOREIGN.join(" "), KEY_NAMES.join(" "));
    let set_keys = KEY_NAMES.map(|name| format!("${{{name}+x}}")).concat();
    let values = [
        ("DIR", &*quote(dir)),
        ("OURS", ours),
        ("FOREIGN", &foreign),
        ("KEYS", &keys),
        ("SET_KEYS", &set_keys),
        ("UNFINISHED", UNFINISHED),
    ];
    fill(script, &values)
}

/// In POSIX mode a function called `trap` is passed by, an alias is not.
const BASH_POSIX_TRAP: &str = "{ [[ ! -o posix ]] || builtin alias trap || {
    builtin eval \"_delta_$(builtin declare -f trap)\"
    builtin alias trap=_delta_trap
}; } >/dev/null 2>&1";

/// Takes our own functions out of those that are kept, unless the command has made others.
const BASH_OURS: &str = "for _delta_name in trap _delta_trap exit; do
    [[ $(builtin declare -f $_delta_name) == */save.sh* ]] && builtin unset -f $_delta_name
done
[[ $(builtin alias trap) == *=\\'_delta_trap\\' ]] && builtin unalias trap
builtin unset -v _delta_name";

/// What a bash does when it ends, however that comes about.
fn bash_exit(dir: &str, script: &str) -> String {
    let save = quote(&format!("\\. {}", in_dir(dir, script)));
    let values = [("DIR", &*quote(dir)), ("SAVE", &save)];
    let exit = fill(include_str!("bash_exit.sh"), &values);
    exit.trim_end().to_owned()
}

/// What another shell does when it ends, unless its state has been written already.
fn posix_exit(dir: &str) -> String {
    let (state, save) = (in_dir(dir, "next/env.sh"), posix_save(dir));
    format!("{{ [ -s {state} ] || {save}; }} 2>/dev/null")
}

fn posix_save(dir: &str) -> String {
    format!("( \\. {} )", in_dir(dir, "save.sh"))
}

/// The last that another shell does when the command may have an exit trap.
fn posix_after_trap(dir: &str) -> String {
    format!("{{ _delta_trap=; {} || :; }} 2>/dev/null", posix_save(dir))
}

/// The `trap` that saves the state before and after an exit trap's action, which gets the exit status.
fn posix_trap(dir: &str) -> String {
    let before = format!(
        "{{ _delta_status=$? _delta_trap=1; {} || :; }} 2>/dev/null; ( \\exit \"$_delta_status\" ) && :",
        posix_save(dir)
    );
    let (before, after) = (quote(&before), quote(&posix_after_trap(dir)));
    let values = [("BEFORE", &*before), ("AFTER", &after)];
    fill(include_str!("posix_trap.sh"), &values)
}

/// Stands in `posix_trap.sh`.
const POSIX_TRAP_ALIAS: &str = "trap=_delta_exit_trap";

/// The output of `alias`, `name='value'` by lines, as commands.
fn alias_commands(listed: &[u8]) -> String {
    let words = shlex::bytes::split(listed).unwrap_or_default();
    let commands = words.iter().filter_map(|word| {
        let word = str::from_utf8(word).ok()?;
        if word == POSIX_TRAP_ALIAS {
            return None;
        }
        // There may be an alias for `alias` among them.
        Some(format!("\\alias {}", quote(word)))
    });
    commands.collect::<Vec<_>>().join("\n")
}
