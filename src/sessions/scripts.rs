//! The scripts around a command, and the command lines that run them.
//!
//! Unaware of files, processes and locks. The command itself is never part of a script: it is in a
//! file of its own, and nothing in it can end a quote, a here-document or the script around it.

use crate::sessions::shell::{
    CommandSetup, FOREIGN, POSIX_TRAILER, SH, ShellKind, UNFINISHED, name_of,
};
use crate::text::redaction::SECRET_NAMES;

/// One word of a shell's language that means exactly this text.
pub(crate) fn quote_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The scripts around a command, by name and content.
pub(crate) fn exec_scripts(
    kind: ShellKind,
    setup: CommandSetup<'_>,
) -> Vec<(&'static str, String)> {
    let CommandSetup {
        dir,
        afresh,
        hide_trap,
        aliases,
    } = setup;
    match kind {
        ShellKind::Bash => vec![
            ("boot.sh", bash_boot(dir, afresh, hide_trap)),
            (
                "save.sh",
                save_script(include_str!("bash_save.sh"), dir, hide_trap),
            ),
        ],
        ShellKind::Posix => {
            let (dir_word, aliases) = (quote_word(dir), alias_commands(aliases));
            let trap = if hide_trap {
                posix_trap(dir)
            } else {
                String::new()
            };
            let values = [("DIR", &*dir_word), ("TRAP", &trap), ("ALIASES", &aliases)];
            let boot = fill_script(include_str!("posix_boot.sh"), &values);
            vec![
                ("boot.sh", if afresh { String::new() } else { boot }),
                (
                    "save.sh",
                    save_script(include_str!("posix_save.sh"), dir, false),
                ),
            ]
        }
        ShellKind::Other => Vec::new(),
    }
}

/// The scripts for the first start of a shell, before its kind is known.
pub(crate) fn first_scripts(dir: &str) -> Vec<(&'static str, String)> {
    let (bash, posix) = (
        quote_word(&bash_exit(dir, "save.bash")),
        quote_word(&posix_exit(dir)),
    );
    let values = [("EXIT", &*bash), ("POSIX", &*posix)];
    vec![
        ("start.sh", fill_script(include_str!("start.sh"), &values)),
        (
            "save.bash",
            save_script(include_str!("bash_save.sh"), dir, false),
        ),
        (
            "save.sh",
            save_script(include_str!("posix_save.sh"), dir, false),
        ),
    ]
}

/// The arguments of a shell at its first start, after those of the user.
pub(crate) fn first_arguments(dir: &str) -> [String; 2] {
    [
        "-c".to_owned(),
        format!(". {}", quoted_path(dir, "start.sh")),
    ]
}

/// The command line that saves the environment for an interpreter that is not a shell, with exit code 127 if
/// there is no such program.
pub(crate) fn first_of_other(dir: &str, program: &str) -> Vec<String> {
    let script = format!(
        "trap {} EXIT; command -v \"$1\"",
        quote_word(&posix_exit(dir))
    );
    [SH, "-c", &script, "sh", program]
        .map(str::to_owned)
        .to_vec()
}

/// The command line that runs the text in `command`.
pub(crate) fn command_line(
    kind: ShellKind,
    program: &str,
    argv: &[String],
    setup: CommandSetup<'_>,
) -> Vec<String> {
    let dir = setup.dir;
    let typed = argv.first().map_or("sh", String::as_str);
    match kind {
        ShellKind::Bash if name_of(program) == "bash" => {
            vec![program.to_owned(), format!("{dir}/command")]
        }
        ShellKind::Bash | ShellKind::Posix => {
            let (trap, save) = if kind == ShellKind::Bash {
                (String::new(), String::new())
            } else {
                let save = posix_save(dir);
                (
                    format!("trap {} EXIT; ", quote_word(&posix_exit(dir))),
                    format!("; {{ _delta_status=$? _delta_trap=1; {save}; }} 2>/dev/null"),
                )
            };
            // Options like xtrace come back with boot.sh and must not show what runs the command.
            let script = format!(
                "{trap}{{ . {}; . {} 2>&3 3>&-; }} 3>&2 2>/dev/null{save}",
                quoted_path(dir, "boot.sh"),
                quoted_path(dir, "command")
            );
            [program, "-c", &script, typed].map(str::to_owned).to_vec()
        }
        ShellKind::Other => {
            let script = format!(". {}; exec \"$@\"", quoted_path(dir, "env.sh"));
            let prefix = [SH, "-c", &script, "sh"].map(str::to_owned);
            prefix.into_iter().chain(argv.iter().cloned()).collect()
        }
    }
}

/// True if a text or its functions may set traps: the shell's own `trap` would replace the exit trap that
/// writes the state, and bash's would list it.
///
/// A function of bash cannot remove ERR and DEBUG traps from its caller, and a RETURN trap would run when it
/// returns: where a text may do that, `trap` stays what it is.
pub(crate) fn needs_trap(kind: ShellKind, texts: &[&[u8]]) -> bool {
    let has = |word: &str| {
        let word = word.as_bytes();
        texts
            .iter()
            .any(|text| memchr::memmem::find(text, word).is_some())
    };
    let takes_away =
        has("RETURN") || (has("ERR") || has("DEBUG")) && (has("trap - ") || has("trap -- - "));
    has("trap") && !(kind == ShellKind::Bash && takes_away)
}

/// Replaces each `@NAME@` by its value, in which nothing is replaced.
fn fill_script(script: &str, values: &[(&str, &str)]) -> String {
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

fn quoted_path(dir: &str, name: &str) -> String {
    quote_word(&format!("{dir}/{name}"))
}

fn bash_boot(dir: &str, afresh: bool, hide_trap: bool) -> String {
    let exit = quote_word(&bash_exit(dir, "save.sh"));
    let trap = fill_script(include_str!("bash_trap.sh"), &[("EXIT", &exit)]);
    let (trap, posix_trap) = if hide_trap {
        (&*trap, BASH_POSIX_TRAP)
    } else {
        ("", "")
    };
    let values = [
        ("DIR", &*quote_word(dir)),
        ("TRAP", trap),
        ("POSIX_TRAP", posix_trap),
        ("EXIT", &exit),
    ];
    let script = if afresh {
        include_str!("bash_afresh.sh")
    } else {
        include_str!("bash_boot.sh")
    };
    fill_script(script, &values)
}

/// In POSIX mode bash finds an alias called `trap`, but no function.
const BASH_POSIX_TRAP: &str = "{ [[ ! -o posix ]] || builtin alias trap || {
    builtin eval \"_delta_$(builtin declare -f trap)\"
    builtin alias trap=_delta_trap
}; } >/dev/null 2>&1";

fn save_script(script: &str, dir: &str, hide_trap: bool) -> String {
    let ours = if hide_trap { BASH_OURS } else { "" };
    let (foreign, keys) = (FOREIGN.join(" "), SECRET_NAMES.join(" "));
    let set_keys = SECRET_NAMES.map(|name| format!("${{{name}+x}}")).concat();
    let values = [
        ("DIR", &*quote_word(dir)),
        ("OURS", ours),
        ("FOREIGN", &foreign),
        ("KEYS", &keys),
        ("SET_KEYS", &set_keys),
        ("UNFINISHED", UNFINISHED),
    ];
    fill_script(script, &values)
}

/// Removes the functions of `bash_trap.sh` from those that are saved, but not the user's of the same names.
const BASH_OURS: &str = "for _delta_name in trap _delta_trap exit; do
    [[ $(builtin declare -f $_delta_name) == */save.sh* ]] && builtin unset -f $_delta_name
done
[[ $(builtin alias trap) == *=\\'_delta_trap\\' ]] && builtin unalias trap
builtin unset -v _delta_name";

/// The exit trap of bash.
fn bash_exit(dir: &str, script: &str) -> String {
    let save = quote_word(&format!("\\. {}", quoted_path(dir, script)));
    let values = [("DIR", &*quote_word(dir)), ("SAVE", &save)];
    let exit = fill_script(include_str!("bash_exit.sh"), &values);
    exit.trim_end().to_owned()
}

/// The last that another shell does, in its exit trap. A state that was saved before counts as final now.
fn posix_exit(dir: &str) -> String {
    let (state, save) = (quoted_path(dir, "next/env.sh"), posix_save(dir));
    format!(
        "{{ if [ -s {state} ]; then ( \\command printf '{POSIX_TRAILER}\\n' >>{state} ); else {save}; fi; }} \
         2>/dev/null"
    )
}

fn posix_save(dir: &str) -> String {
    format!("( \\. {} )", quoted_path(dir, "save.sh"))
}

/// The last that another shell does in an exit trap of the command.
fn posix_after_trap(dir: &str) -> String {
    format!("{{ _delta_trap=; {} || :; }} 2>/dev/null", posix_save(dir))
}

/// The `trap` that saves the state before and after an exit trap's action, which gets the exit status.
fn posix_trap(dir: &str) -> String {
    let before = format!(
        "{{ _delta_status=$? _delta_trap=1; {} || :; }} 2>/dev/null; ( \\exit \"$_delta_status\" ) && :",
        posix_save(dir)
    );
    let [before, after, exit] =
        [before, posix_after_trap(dir), posix_exit(dir)].map(|script| quote_word(&script));
    let values = [("BEFORE", &*before), ("AFTER", &after), ("EXIT", &exit)];
    fill_script(include_str!("posix_trap.sh"), &values)
}

/// Used in `posix_trap.sh`.
const POSIX_TRAP_ALIAS: &str = "trap=_delta_exit_trap";

/// Commands that bring back the aliases that `alias` listed, one `name='value'` a line.
fn alias_commands(listed: &[u8]) -> String {
    let words = shlex::bytes::split(listed).unwrap_or_default();
    let commands = words.iter().filter_map(|word| {
        let word = str::from_utf8(word).ok()?;
        if word == POSIX_TRAP_ALIAS {
            return None;
        }
        // One of them may be an alias for `alias`.
        Some(format!("\\alias {}", quote_word(word)))
    });
    commands.collect::<Vec<_>>().join("\n")
}
