//! `delta-sessions`: what one command leaves to the next, whatever the command is.

use crate::engine::torture::strace_works;
use crate::harness::sessions::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

// --- what survives

#[test]
fn the_working_directory_and_exported_variables_survive() {
    for shell in ALL_SHELLS {
        let place = Place::new();
        let session = place.start(&[shell]);
        assert_eq!(
            session.says("mkdir -p 'a b/c'; cd 'a b/c'; export X=1 Y='a b'"),
            ""
        );
        let expected = format!("{}/a b/c 1 a b\n", place.dir.display());
        assert_eq!(session.says("echo \"$PWD $X $Y\""), expected, "{shell}");
        assert_eq!(
            session.says("pwd; env | grep '^[XY]=' | sort"),
            format!("{}/a b/c\nX=1\nY=a b\n", place.dir.display())
        );
        assert_eq!(session.says("unset X; cd .."), "");
        assert_eq!(
            session.says("echo ${X-unset}; cd - >/dev/null; pwd"),
            format!("unset\n{}/a b/c\n", place.dir.display())
        );
    }
}

#[test]
fn a_path_through_a_symbolic_link_stays_that_path() {
    for shell in ALL_SHELLS {
        let place = Place::new();
        let session = place.start(&[shell]);
        session.says("mkdir real; ln -s real link; cd link");
        assert_eq!(
            session.says("pwd; pwd -P"),
            format!("{0}/link\n{0}/real\n", place.dir.display())
        );
    }
}

#[test]
fn functions_aliases_options_and_unexported_variables_survive_in_bash() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    session.says(
        "f() { local -r x=\"<$1>\"; echo \"$x\"; }; export -f f; readonly -f f
         g-h.i() { [[ $1 == +(a|b) ]] && cat <<END\n$1 \\$x\nEND\n}
         shopt -s extglob
         k() { case $1 in !(x)) echo no;; esac; }
         alias ll='echo \"aliased $x\"' e=echo
         shopt -u checkwinsize; shopt -s nullglob dotglob; set -o pipefail; set -f; umask 027
         v=local; declare -i n=4+4; declare -u up=abc; declare -n ref=v; declare -x unset_x; declare -A empty",
    );
    assert_eq!(session.says("f 'a b'; bash -c 'f sub'"), "<a b>\n<sub>\n");
    assert_eq!(session.says("g-h.i abba; k y; k x"), "abba $x\nno\n");
    assert_eq!(session.says("ll; e hi"), "aliased \nhi\n");
    assert_eq!(
        session
            .says(
                "shopt checkwinsize nullglob dotglob extglob; echo $-; [[ -o pipefail ]] && umask"
            )
            .replace('\t', " "),
        "checkwinsize    off\nnullglob        on\ndotglob         on\nextglob         on\nfhB\n0027\n"
    );
    assert_eq!(
        session.says("n=n+1; up+=d; ref=through; echo $v $n $up"),
        "through 9 ABCD\n"
    );
    assert_eq!(
        session.says(
            "declare -p unset_x empty; declare -pn ref 2>/dev/null || declare -p ref; declare -F"
        ),
        "declare -x unset_x\ndeclare -A empty\ndeclare -n ref=\"v\"\n\
         declare -frx f\ndeclare -f g-h.i\ndeclare -f k\n"
    );
}

#[test]
fn arrays_survive_with_every_kind_of_key_and_value() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    session.says(
        "a=(1 '2 3' '' $'\\n' '*' \"it's\" 'ü€😀'); a[100]=far; declare -a none=()
         declare -A m=([a b]=x ['\"']=q [']']=r ['[']=s ['$x']=t ['`id`']=u [@]=v ['*']=w [\"'\"]=y [$'\\n']=z ['\\']=b [ü]=ö)",
    );
    assert_eq!(
        session.says("printf '<%s>' \"${a[@]}\"; echo \"${!a[*]}\"; declare -p none"),
        "<1><2 3><><\n><*><it's><ü€😀><far>0 1 2 3 4 5 6 100\ndeclare -a none=()\n"
    );
    assert_eq!(
        session.says("for k in '\"' ']' '[' '$x' '`id`' @ '*' \"'\" $'\\n' '\\' ü 'a b'; do printf '%s' \"${m[$k]}\"; done; echo ${#m[@]}"),
        "qrstuvwyzböx12\n"
    );
}

#[test]
fn every_byte_in_a_value_survives() {
    for (shell, locale) in [
        ("bash", "C"),
        ("bash", "C.UTF-8"),
        ("dash", "C"),
        ("dash", "C.UTF-8"),
        ("sh", "C"),
    ] {
        let place = Place::new();
        let session = place.start_with(&[shell], &[("LC_ALL", locale)]);
        let mut random = fastrand::Rng::with_seed(5);
        let mut values: Vec<Vec<u8>> = vec![
            (1..=255).collect(),
            (1..=255).rev().collect(),
            b"\n\n".to_vec(),
            b"-n".to_vec(),
            Vec::new(),
        ];
        values.extend((1..=255).map(|byte| vec![byte]));
        values.extend((0..40).map(|_| (0..random.usize(1..40)).map(|_| random.u8(1..)).collect()));
        let mut text = Vec::new();
        for (number, value) in values.iter().enumerate() {
            let export: &[u8] = if number % 2 == 0 { b"export " } else { b"" };
            text.extend_from_slice(export);
            text.extend_from_slice(format!("v{number}='").as_bytes());
            for byte in value {
                match byte {
                    b'\'' => text.extend_from_slice(br"'\''"),
                    byte => text.push(*byte),
                }
            }
            text.extend_from_slice(b"'\n");
        }
        let first = json(&session.reads(&text));
        assert_eq!(first["stderr"], "", "{shell} {locale}");
        session.says(":");
        let names: Vec<String> = (0..values.len())
            .map(|n| format!("printf '%s\\0' \"$v{n}\""))
            .collect();
        let result = session.exec(&format!("{{ {}; }} >out", names.join("; ")));
        assert_eq!(result["stderr"], "", "{shell} {locale}");
        let found = fs::read(place.path("out")).unwrap();
        let found: Vec<&[u8]> = found.split(|byte| *byte == 0).collect();
        for (value, found) in values.iter().zip(found) {
            assert_eq!(found, value, "{shell} {locale}");
        }
    }
}

#[test]
fn sh_and_dash_keep_what_posix_can_tell() {
    for shell in ["sh", "dash"] {
        let place = Place::new();
        let session = place.start(&[shell]);
        session.says("v=\"a'b\nc\"; e=; readonly r=7; alias ll=\"echo \\\"it's\naliased\\\"\"; set -f; umask 027; export E");
        assert_eq!(
            session.says("echo \"$v|$e|${e-unset}|$r\"; ll; case $- in *f*) echo f;; esac; umask"),
            "a'b\nc|||7\nit's\naliased\nf\n0027\n",
            "{shell}"
        );
    }
}

#[test]
fn state_survives_a_command_that_fails_or_exits_or_is_cut_off() {
    for shell in ALL_SHELLS {
        for (ending, code) in [
            ("false", 1),
            ("exit 3", 3),
            ("exit 0; echo not reached", 0),
            ("(exit 4)", 4),
            ("set -e; false; x=not-reached", 1),
            (
                "set -u; echo $not_there",
                if shell == "bash" { 1 } else { 2 },
            ),
            ("nosuchcommand 2>/dev/null", 127),
            ("echo \"unterminated", 2),
            ("if true; then )", 2),
            ("g() { exit 6; }; g", 6),
            ("PATH=/nowhere; unset HOME", 0),
            ("exec 2>/dev/null >/dev/null; false", 1),
            ("cat <<END", 0),
        ] {
            let place = Place::new();
            let session = place.start(&[shell]);
            let result = session.exec(&format!("cd /; export x=1\n{ending}"));
            assert_eq!(result["exit_code"], code, "{shell}: {ending}: {result}");
            assert!(result.get("notes").is_none(), "{shell}: {ending}: {result}");
            let next = session.exec("echo \"$PWD $x\"");
            assert_eq!(next["stdout"], "/ 1\n", "{shell}: {ending}: {next}");
            assert_eq!(next["stderr"], "", "{shell}: {ending}");
        }
    }
}

#[test]
fn a_changed_path_and_an_unset_home_stay_as_they_are() {
    for shell in ALL_SHELLS {
        let place = Place::new();
        let session = place.start(&[shell]);
        session.says("PATH=/bin:/nowhere; unset HOME TERM");
        assert_eq!(
            session.says("echo $PATH ${HOME-none} ${TERM-none}"),
            "/bin:/nowhere none none\n",
            "{shell}"
        );
        session.says("unset PATH");
        assert_eq!(session.says("echo ${PATH-none}"), "none\n", "{shell}");
    }
}

#[test]
fn a_killed_or_replaced_shell_keeps_the_state_from_before_and_says_so() {
    for shell in ALL_SHELLS {
        let place = Place::new();
        let session = place.start(&[shell]);
        session.says("x=before");
        for (ending, code) in [
            ("kill -9 $$", 137),
            ("exec true", 0),
            ("exec sh -c 'exit 5'", 5),
        ] {
            let result = session.exec(&format!("x=after; cd /; {ending}"));
            assert_eq!(result["exit_code"], code, "{shell}: {result}");
            assert!(
                result["notes"][0].as_str().unwrap().contains("from before"),
                "{result}"
            );
            assert_eq!(
                session.says("echo $x; pwd"),
                format!("before\n{}\n", place.dir.display())
            );
        }
    }
}

#[test]
fn bash_keeps_its_state_when_a_timeout_or_a_signal_ends_it() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    // Long enough for a shell to start on a machine that has much else to do.
    let result = session.exec_with(&["--timeout-ms", "2000"], "x=1; cd /; sleep 1000");
    assert_eq!(result["exit_code"], 124, "{result}");
    assert_eq!(session.says("echo $x; pwd"), "1\n/\n");
    assert_eq!(session.exec("x=2; kill $$; sleep 1000")["exit_code"], 143);
    assert_eq!(session.says("echo $x"), "2\n");
}

#[test]
fn dash_works_on_after_a_timeout_with_the_state_from_before() {
    for shell in ["dash", "sh"] {
        let place = Place::new();
        let session = place.start(&[shell]);
        session.says("x=1");
        let result = session.exec_with(&["--timeout-ms", "200"], "x=2; sleep 1000");
        assert_eq!(result["exit_code"], 124, "{result}");
        assert_eq!(session.says("echo $x"), "1\n");
    }
}

#[test]
fn exit_traps_run_at_the_end_of_their_command_and_cost_no_state() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    let result = session.exec("x=1; trap 'echo bye $?' EXIT; exit 3");
    assert_eq!(result["stdout"], "bye 3\n");
    assert_eq!(result["exit_code"], 3);
    assert_eq!(
        session.says("echo $x; trap; declare -F"),
        "1\ndeclare -f trap\n"
    );
    let strict = "set -Eeuo pipefail; trap 'echo err' ERR; d=$(mktemp -d); trap 'rm -r \"$d\"' EXIT; x=2\nfalse | true";
    let result = session.exec(strict);
    assert_eq!(
        (&result["stdout"], &result["exit_code"]),
        (&"err\n".into(), &1.into()),
        "{result}"
    );
    assert_eq!(
        session.says("set +Eeu; echo $x; [[ -e $d ]] || echo removed"),
        "2\nremoved\n"
    );
    assert_eq!(
        session.exec("trap 'exit 9' EXIT; x=3; false")["exit_code"],
        9
    );
    assert_eq!(session.says("echo $x; declare -F"), "3\n");
    assert_eq!(
        session.says("trap 'echo a' EXIT; trap -p; trap - EXIT; trap -p; trap : USR1; trap"),
        "trap -- 'echo a' EXIT\ntrap -- ':' SIGUSR1\n"
    );
    assert_eq!(
        session.says("(trap 'echo sub' EXIT; x=4); echo $x"),
        "sub\n3\n"
    );
    let result = session.exec("(trap 'echo sub' EXIT; x=5); kill -9 $$");
    assert!(
        result["notes"].is_array(),
        "a subshell tells no state: {result}"
    );
    assert_eq!(
        session.says("f() { trap 'echo left' RETURN; echo in; }; f"),
        "in\nleft\n"
    );
    assert_eq!(session.says("trap 'echo no' ERR; trap - ERR; false; trap 'echo no' DEBUG >/dev/null; trap - DEBUG >/dev/null; :"), "no\n");
}

#[test]
fn debug_traps_with_functrace_do_not_get_into_the_state() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    session.exec("set -T; trap 'echo x=polluted' DEBUG; trap 'echo x=polluted' ERR; x=1; false");
    assert_eq!(session.says("echo $x"), "1\n");
}

#[test]
fn no_redefined_builtin_or_keyword_keeps_the_state_from_being_saved() {
    let names = [
        "builtin", "command", "declare", "typeset", "export", "unset", "set", "shopt", "alias",
        "unalias", "eval", "source", ".", "trap", "exit", "return", "cd", "pwd", "umask", "printf",
        "echo", "local", "read", "exec", "test", "[", "true", ":", "readonly", "shift",
    ];
    let place = Place::new();
    let session = place.start(&["bash"]);
    let functions: String = names
        .iter()
        .map(|name| format!("{name}() {{ x=stolen; return 77; }}; "))
        .collect();
    let result = session.exec(&format!(
        "cd /tmp; shopt -s nullglob; x=1; set -o pipefail\n{functions}"
    ));
    assert_eq!(
        (&result["stderr"], &result["exit_code"]),
        (&"".into(), &0.into()),
        "{result}"
    );
    assert!(result.get("notes").is_none(), "{result}");
    let types = session.exec("\\type -t builtin declare echo set");
    assert_eq!(types["stdout"], "function\n".repeat(4), "{types}");
    let checks = "unset() { :; }\nPOSIXLY_CORRECT=1\n\\unset -f builtin declare echo trap\n\\unset POSIXLY_CORRECT\nbuiltin echo $x $PWD; [[ -o pipefail ]] && builtin echo pipefail; [[ $BASHOPTS == *nullglob* ]] && builtin echo nullglob; builtin declare -F | while builtin read -r _ _ name; do builtin printf '%s ' \"$name\"; done";
    let result = session.exec(checks);
    let mut expected: Vec<&str> = names
        .iter()
        .copied()
        .filter(|n| !["builtin", "declare", "echo", "trap"].contains(n))
        .collect();
    expected.sort_unstable();
    let stdout = result["stdout"].as_str().unwrap();
    let (first, functions) = stdout.split_at(stdout.rfind('\n').unwrap() + 1);
    assert_eq!(first, "1 /tmp\npipefail\nnullglob\n", "{result}");
    let mut functions: Vec<&str> = functions.split_whitespace().collect();
    functions.sort_unstable();
    assert_eq!(functions, expected, "{result}");

    let session = place.start(&["bash"]);
    session.exec("e() { echo e; }; export -f e; declare() { :; }");
    assert_eq!(session.says("bash -c e; type -t declare"), "e\nfunction\n");

    let session = place.start(&["dash"]);
    let names = [
        "if", "case", "set", "export", "command", "unset", "readonly", "alias", "{", "[",
    ];
    let aliases: String = names
        .iter()
        .map(|name| format!("\\alias '{name}=echo alias'\n"))
        .collect();
    session.exec(&format!("x=2\n{aliases}"));
    assert_eq!(session.exec("\\echo $x; \\unalias -a")["stdout"], "2\n");
    assert_eq!(session.says("if true; then echo $x; fi"), "2\n");

    let session = place.start(&["bash"]);
    let aliases: String = [
        "if", "case", "while", "fi", "{", "}", "[[", "builtin", "unset", "set", "declare", "shopt",
        "trap", "eval", ".",
    ]
    .iter()
    .map(|name| format!("\\alias -- '{name}=echo alias'\n"))
    .collect();
    session.exec(&format!("x=2\n{aliases}"));
    assert_eq!(session.exec("\\echo $x; \\unalias -a")["stdout"], "2\n");
    assert_eq!(session.says("if true; then echo $x; fi"), "2\n");
}

#[test]
fn local_variables_of_a_function_that_exits_do_not_become_global() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    session.exec(
        "x=global; outer() { local y=1; inner; }; inner() { local x=local z=2; exit 0; }; outer",
    );
    assert_eq!(
        session.says("echo $x ${y-none} ${z-none}"),
        "global none none\n"
    );
    session.exec("t() { exit 0; }; w=old; w=temporary t");
    assert_eq!(session.says("echo $w"), "old\n");
}

#[test]
fn readonly_and_special_variables_make_no_noise() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    session.says("readonly mine=1; declare -r array=(a b); declare -rx PATH");
    for _ in 0..3 {
        assert_eq!(session.says("declare -p mine array; [[ $PPID == $(cut -d ' ' -f 4 /proc/$$/stat) ]] || echo $PPID"), "declare -r mine=\"1\"\ndeclare -ar array=([0]=\"a\" [1]=\"b\")\n");
    }
    assert_eq!(session.exec("mine=2")["exit_code"], 1);
    assert_eq!(
        session.says("echo $mine; [[ $BASH_SUBSHELL$SHLVL == 0* ]] && echo ok"),
        "1\nok\n"
    );
}

#[test]
fn a_command_sees_nothing_of_what_is_around_it() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    session.says(":");
    assert_eq!(
        session
            .says("declare -F; alias; echo $#; echo ${BASH_ENV-none}${BASH_EXECUTION_STRING-none}"),
        "0\nnonenone\n"
    );
    assert_eq!(
        session.says("compgen -v | grep -i '^_*delta'"),
        "DELTA_CALL_ID\nDELTA_SESSION_ID\n"
    );
    assert_eq!(session.says("cat; readlink /proc/self/fd/0"), "/dev/null\n");
    assert_eq!(session.says("echo $-"), "hB\n");
    let bare = Command::new("bash")
        .args(["-c", "echo /proc/self/fd/*; :"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let bare = String::from_utf8(bare.stdout).unwrap();
    // A script is read from descriptor 255.
    assert_eq!(
        session
            .says("echo /proc/self/fd/*")
            .replace(" /proc/self/fd/255", ""),
        bare.replace(" /proc/self/fd/255", "")
    );
}

#[test]
fn the_parent_of_a_shell_is_told_right() {
    for shell in ALL_SHELLS {
        let session_place = Place::new();
        let session = session_place.start(&[shell]);
        for _ in 0..2 {
            let text = "[ $PPID -eq $(cut -d ' ' -f 4 /proc/$$/stat) ] && echo right";
            assert_eq!(session.says(text), "right\n", "{shell}");
        }
    }
}

#[test]
fn traced_commands_show_nothing_of_what_is_around_them() {
    for shell in ALL_SHELLS {
        let place = Place::new();
        let session = place.start(&[shell]);
        assert_eq!(session.exec("set -x")["stderr"], "", "{shell}");
        assert_eq!(session.exec("echo hi")["stderr"], "+ echo hi\n", "{shell}");
    }
}

#[test]
fn a_text_is_read_line_by_line_like_a_script() {
    for shell in ALL_SHELLS {
        let place = Place::new();
        let session = place.start(&[shell]);
        assert_eq!(
            session.says(
                "alias greet='echo hello'\ngreet you\nf() {\n  echo $1\n}\nf x; false; echo $?"
            ),
            "hello you\nx\n1\n"
        );
        let result = session.exec("echo first\nif then\necho never");
        assert_eq!(result["stdout"], "first\n", "{shell}: {result}");
        assert_eq!(result["exit_code"], 2);
        assert!(
            session.exec("\n\nnosuch_thing")["stderr"]
                .as_str()
                .unwrap()
                .contains('3')
        );
    }
}

#[test]
fn a_working_directory_that_is_gone_is_said_and_the_nearest_one_taken() {
    for shell in ALL_SHELLS {
        let place = Place::new();
        let session = place.start(&[shell]);
        session.says("mkdir -p a/b/c; cd a/b/c; x=1; rm -r ../../b");
        let result = session.exec("pwd; echo $x; [ \"$PWD\" = \"$(pwd)\" ] || echo $PWD");
        assert_eq!(
            result["stdout"],
            format!("{}/a\n1\n", place.dir.display()),
            "{shell}"
        );
        let note = result["notes"][0].as_str().unwrap();
        assert!(note.contains("/a/b/c is gone"), "{note}");
        assert_eq!(session.says("pwd"), format!("{}/a\n", place.dir.display()));
    }
}

// --- text is data

#[test]
fn no_text_breaks_out_of_its_file() {
    let texts = [
        "cat <<'EOF'\n$x `id` $(id)\nEOF\n",
        "EOF\n",
        "'",
        "\"",
        "`",
        "$(",
        "${",
        "((",
        "{",
        "}",
        ")",
        "fi",
        "done",
        "esac",
        ";;",
        "&",
        "|",
        "\\",
        "#",
        "!",
        "' ; exit 9 ; '",
        "\"; exit 9; \"",
        "} 2>&1; exit 9",
        "$'\\x00'",
        "-n",
        "--",
        "-e x",
        "\u{feff}echo",
        "echo \u{2028}",
        "\r\n",
        "# end of bash state\n",
        "<<",
        "<<A <<B",
        "case x in",
        "function",
        "coproc",
        "time",
        "[[",
        "\x7f\x01\x02",
        "",
    ];
    for shell in ALL_SHELLS {
        let place = Place::new();
        let session = place.start(&[shell]);
        session.says("x=kept");
        for text in texts {
            let result = session.exec(text);
            assert_ne!(result["exit_code"], 9, "{shell}: {text:?}: {result}");
            let next = session.exec("echo $x");
            assert_eq!(
                (&next["stdout"], &next["stderr"]),
                (&"kept\n".into(), &"".into()),
                "{shell}: {text:?}"
            );
        }
        let fits = "EOF\n'\"`$(\\";
        assert_eq!(session.says(&format!("printf %s {}", quote(fits))), fits);
    }
}

#[test]
fn a_nul_byte_is_refused_and_a_long_text_is_not() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    let refused = session.reads(b"echo a\0b");
    assert_eq!(refused.status.code(), Some(1));
    assert!(json(&refused)["error"].as_str().unwrap().contains("NUL"));
    let long = format!("x={}; echo ${{#x}}", "a".repeat(3 << 20));
    assert_eq!(json(&session.reads(long.as_bytes()))["stdout"], "3145728\n");
    assert_eq!(session.says("echo ${#x}"), "3145728\n");
}

// --- exec

#[test]
fn a_command_comes_as_an_argument_or_on_standard_input() {
    let place = Place::new();
    let session = place.start(&[]);
    assert_eq!(session.says("echo argument"), "argument\n");
    let read = session.reads(b"for i in 1 2; do\n  echo $i\ndone\n");
    assert_eq!(json(&read)["stdout"], "1\n2\n");
    let dashed = place.run(&["exec", &session.id, "--raw"]);
    assert_eq!(
        json(&dashed)["exit_code"],
        127,
        "what stands behind the id is a command: {dashed:?}"
    );
}

#[test]
fn the_result_has_the_fields_of_the_contract_and_no_others() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    let keys = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        keys(&session.started),
        ["session_id", "command", "work_dir", "status", "persists"]
    );
    assert_eq!(session.started["command"], "bash");
    assert_eq!(session.started["work_dir"], place.dir.to_str().unwrap());
    assert_eq!(session.started["status"], "active");
    let result = session.exec("echo out; echo err >&2; exit 3");
    assert_eq!(
        keys(&result),
        ["stdout", "stderr", "exit_code", "execution_time_ms"]
    );
    assert_eq!(
        (&result["stdout"], &result["stderr"], &result["exit_code"]),
        (&"out\n".into(), &"err\n".into(), &3.into())
    );
    assert!(result["execution_time_ms"].is_u64());
}

#[test]
fn a_timeout_ends_the_whole_tree() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    let result = session.exec_with(
        &["--timeout-ms", "2000"],
        "echo $$ >pids; sleep 1000 & echo $! >>pids; setsid sleep 1000 & echo $! >>pids; trap '' TERM; (trap '' TERM; echo $BASHPID >>pids; while :; do sleep 1000; done)",
    );
    assert_eq!(
        (&result["exit_code"], &result["timed_out"]),
        (&124.into(), &true.into()),
        "{result}"
    );
    let pids = fs::read_to_string(place.path("pids")).unwrap();
    assert_eq!(pids.lines().count(), 4, "{pids}");
    for pid in pids.lines() {
        assert!(!alive(pid), "{pid} of {pids}");
    }
    assert_eq!(session.says("echo usable"), "usable\n");
}

#[test]
fn a_command_has_a_process_group_of_its_own_and_what_it_leaves_behind_stays() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    assert_eq!(
        session.says("[[ $(cut -d ' ' -f 5 /proc/$$/stat) -eq $$ ]] && echo leader"),
        "leader\n"
    );
    let pid = session.says("sleep 1000 & echo $!");
    assert!(alive(pid.trim()));
    assert!(place.run(&["end", &session.id]).status.success());
    while alive(pid.trim()) {}
}

#[test]
fn a_gibibyte_of_output_takes_no_memory_and_is_kept_whole() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    // As much address space as a small program needs, and a file that has no blocks.
    let script = "ulimit -v 100000; exec \"$0\" exec \"$1\" 'printf begin; truncate -s 1G /proc/self/fd/1; printf end >>/proc/self/fd/1'";
    let output = Command::new("sh")
        .args(["-c", script, BIN, &session.id])
        .current_dir(&place.dir)
        .output()
        .unwrap();
    let result = json(&output);
    let stdout = result["stdout"].as_str().unwrap();
    assert!(
        stdout.starts_with("begin\0") && stdout.ends_with("\0end"),
        "{}",
        stdout.len()
    );
    assert!(
        stdout.contains("\n[… 1073711827 bytes omitted …]\n"),
        "{}",
        stdout.replace('\0', "")
    );
    assert_eq!(
        (&result["stdout_truncated"], &result["stdout_bytes"]),
        (&true.into(), &(1_073_741_827u64).into())
    );
    let file = result["stdout_file"].as_str().unwrap();
    assert_eq!(fs::metadata(file).unwrap().len(), 1_073_741_827);
}

#[test]
fn max_bytes_cuts_each_stream_between_characters_and_says_so() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    let result = session.exec_with(
        &["--max-bytes", "20"],
        "printf 'é%.0s' {1..50}; printf 'short' >&2",
    );
    assert_eq!(result["stdout"], "éééééé\n[… 80 bytes omitted …]\néééé");
    assert_eq!(
        (&result["stdout_bytes"], &result["stderr"]),
        (&100.into(), &"short".into())
    );
    assert!(result.get("stderr_truncated").is_none());
    let whole = session.exec_with(
        &["--max-bytes", "0"],
        "head -c 200000 /dev/zero | tr '\\0' x",
    );
    assert_eq!(whole["stdout"].as_str().unwrap().len(), 200_000);
    assert!(whole.get("stdout_truncated").is_none());
    let by_default = session.exec("head -c 200000 /dev/zero | tr '\\0' x >&2");
    assert_eq!(by_default["stderr_truncated"], true);
    assert_eq!(
        fs::metadata(by_default["stderr_file"].as_str().unwrap())
            .unwrap()
            .len(),
        200_000
    );
}

#[test]
fn invalid_utf8_is_replaced_and_every_byte_kept_in_the_file() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    let result = session.exec("printf 'a\\xffb\\xe2\\x82\\0\\x1b[0m'; printf '\\xc3' >&2");
    assert_eq!(result["stdout"], "a\u{fffd}b\u{fffd}\0\u{1b}[0m");
    assert_eq!(result["stderr"], "\u{fffd}");
    assert_eq!(
        fs::read(session.dir().join("output/000001.stdout")).unwrap(),
        b"a\xffb\xe2\x82\0\x1b[0m"
    );
}

#[test]
fn raw_passes_output_and_exit_code_through() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    let output = session
        .command(&["--raw"], "printf 'o\\xff'; printf e >&2; exit 7")
        .output()
        .unwrap();
    assert_eq!(
        (&*output.stdout, &*output.stderr, output.status.code()),
        (&b"o\xff"[..], &b"e"[..], Some(7))
    );
    let output = session
        .command(&["--raw", "--timeout-ms", "100"], "sleep 1000")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(124));
    let output = place.run(&["exec", "--raw", "sess_none", "true"]);
    assert_eq!((&*output.stdout, output.status.code()), (&b""[..], Some(1)));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .starts_with("delta-sessions: no session 'sess_none'")
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    for options in ["", "--raw"] {
        let how = if options.is_empty() {
            "--max-bytes 0"
        } else {
            options
        };
        let script = format!(
            "\"$0\" exec {how} \"$1\" 'yes | head -c 5000000' | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
        );
        let output = Command::new("bash")
            .args(["-c", &script, BIN, &session.id])
            .current_dir(&place.dir)
            .output()
            .unwrap();
        assert_eq!(
            (&*output.stdout, &*output.stderr),
            (&b"0\n"[..], &b""[..]),
            "{options}"
        );
    }
}

#[test]
fn a_signal_ends_the_tree_and_is_the_exit_code() {
    for (name, number) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let place = Place::new();
        let session = place.start(&["bash"]);
        let mut started = place.fifo("started");
        let child =
            session.spawn("x=1; echo partial; sleep 1000 & echo $! >pid; echo >started; wait");
        started.line();
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(number));
        assert_eq!(json(&output)["stdout"], "partial\n");
        assert_eq!(json(&output)["interrupted"], format!("SIG{}", &name[1..]));
        assert!(!alive(
            fs::read_to_string(place.path("pid")).unwrap().trim()
        ));
        assert_eq!(session.says("echo $x"), "1\n");
    }
}

// --- other interpreters

#[test]
fn python_gets_the_text_on_stdin_and_keeps_only_files() {
    if !is_installed("python3") {
        return;
    }
    let place = Place::new();
    let session = place.start_with(&["python3"], &[("FROM_START", "it's\nhere")]);
    assert_eq!(session.started["persists"], serde_json::json!(["files"]));
    assert!(
        session.started["note"]
            .as_str()
            .unwrap()
            .contains("variables and imports")
    );
    let text = "import os\nx = 1\nopen('kept', 'w').write('file')\nprint(os.getcwd(), os.environ['FROM_START'])";
    assert_eq!(
        session.says(text),
        format!("{} it's\nhere\n", place.dir.display())
    );
    let result = session.exec("print(open('kept').read())\nprint(x)");
    assert_eq!(
        (&result["stdout"], &result["exit_code"]),
        (&"file\n".into(), &1.into())
    );
    assert!(result["stderr"].as_str().unwrap().contains("NameError"));
    assert_eq!(session.exec("raise SystemExit(5)")["exit_code"], 5);
    let result = session.exec_with(&["--timeout-ms", "300"], "import time\ntime.sleep(1000)");
    assert_eq!(result["exit_code"], 124);
}

#[test]
fn node_and_sqlite_get_the_text_on_stdin() {
    let place = Place::new();
    if is_installed("node") {
        let session = place.start(&["node"]);
        assert_eq!(
            session.says("console.log(process.cwd(), 1 + 1)"),
            format!("{} 2\n", place.dir.display())
        );
    }
    if is_installed("sqlite3") {
        let session = place.start(&["sqlite3", "a b.db"]);
        assert_eq!(session.started["command"], "sqlite3 'a b.db'");
        session.says("create table t (x); insert into t values (42);");
        assert_eq!(session.says("select x from t;"), "42\n");
    }
    let session = place.start(&["cat", "-"]);
    assert_eq!(session.says("any 'text"), "any 'text");
}

// --- several at once, and what is left of the dead

#[test]
fn commands_at_once_wait_for_each_other() {
    for shell in ["bash", "dash"] {
        let place = Place::new();
        let session = place.start(&[shell]);
        session.says("n=0");
        let children: Vec<Child> = (0..12)
            .map(|_| {
                session.spawn(
                    "n=$((n+1)); [ ! -e busy ] || echo overlap; : >busy; sleep 0.01; rm busy",
                )
            })
            .collect();
        for child in children {
            assert_eq!(json(&child.wait_with_output().unwrap())["stdout"], "");
        }
        assert_eq!(session.says("echo $n"), "12\n", "{shell}");
    }
}

#[test]
fn waiting_for_another_command_ends_with_a_signal() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    let (mut started, mut go) = (place.fifo("started"), place.fifo("go"));
    let first = session.spawn("echo >started; read x <go; echo $x");
    started.line();
    let second = session.spawn("echo never >ran");
    // It catches signals from here on.
    let caught = || {
        fs::read_to_string(format!("/proc/{}/status", second.id()))
            .unwrap_or_default()
            .lines()
            .any(|line| {
                line.strip_prefix("SigCgt:")
                    .is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
            })
    };
    while !caught() {}
    signal(&second, "-INT");
    let second = second.wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(130));
    assert_eq!(
        json(&second),
        serde_json::json!({"error": "ended by SIGINT"})
    );
    go.tell("done");
    assert_eq!(json(&first.wait_with_output().unwrap())["stdout"], "done\n");
    assert!(!place.path("ran").exists());
}

#[test]
fn a_killed_exec_leaves_no_process_and_a_usable_session() {
    for shell in ["bash", "dash"] {
        let place = Place::new();
        let session = place.start(&[shell]);
        session.says("x=before");
        let mut started = place.fifo("started");
        let mut child = session
            .command(
                &[],
                "x=after; sleep 1000 & echo $! $$ >pids; echo >started; wait",
            )
            .spawn()
            .unwrap();
        started.line();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        let result = session.exec("echo $x");
        assert_eq!(result["stdout"], "before\n");
        assert!(
            result["notes"][0]
                .as_str()
                .unwrap()
                .contains("has been terminated"),
            "{result}"
        );
        for pid in fs::read_to_string(place.path("pids"))
            .unwrap()
            .split_whitespace()
        {
            assert!(!alive(pid));
        }
        assert!(session.dir().join("output/000003.stdout").exists());
        assert_eq!(session.says("echo again"), "again\n");
    }
}

/// The command under strace with these arguments.
fn under_strace(command: &Command, args: &[&str]) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-o", "trace"]).args(args);
    strace.arg(command.get_program()).args(command.get_args());
    strace.current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    strace.stdin(Stdio::null()).stdout(Stdio::null());
    strace
}

#[test]
fn state_is_all_old_or_all_new_wherever_a_kill_falls() {
    if !strace_works() {
        eprintln!("skipped: strace is not installed or may not trace");
        return;
    }
    let names = "write,rename,renameat,renameat2,unlink,unlinkat,link,linkat,mkdir,ftruncate,\
                 fdatasync,fsync,flock,poll,ppoll,waitid,wait4";
    let place = Place::new();
    let session = place.start(&["bash"]);
    session.says("mkdir 0 1 2 3 4 5 6 7 8 9; n=0; cd 0");
    let step = session.command(&[], "n=$(((n+1)%10)); cd ../$n; f() { :; }");
    let mut kills = 0;
    // The program alone, and then its shells, too.
    for follow in [&[][..], &["-f"]] {
        let trace = format!("trace={names}");
        let mut whole = under_strace(&step, &[follow, &["-e", &trace]].concat());
        assert!(whole.status().unwrap().success());
        // So often, at most, a process uses each of them.
        let mut calls: BTreeMap<String, usize> = BTreeMap::new();
        let mut of_process: BTreeMap<(String, String), usize> = BTreeMap::new();
        for line in fs::read_to_string(place.path("trace")).unwrap().lines() {
            let Some((call, _)) = line.split_once('(') else {
                continue;
            };
            let (pid, name) = call.rsplit_once(' ').unwrap_or(("", call));
            if !names.split(',').any(|one| one == name) {
                continue;
            }
            let count = of_process
                .entry((pid.to_owned(), name.to_owned()))
                .or_default();
            *count += 1;
            let most = calls.entry(name.to_owned()).or_default();
            *most = (*most).max(*count);
        }
        for (name, most) in calls {
            for n in 1..=most {
                let (trace, kill) = (
                    format!("trace={name}"),
                    format!("inject={name}:signal=KILL:when={n}"),
                );
                let args = [follow, &["-e", &trace, "-e", &kill]].concat();
                let ended = under_strace(&step, &args).status().unwrap();
                kills += usize::from(!ended.success());
                let result = session.exec("echo $n ${PWD##*/}");
                let stdout = result["stdout"].as_str().unwrap();
                let (number, dir) = stdout.trim().split_once(' ').unwrap();
                assert_eq!(number, dir, "{follow:?} {name} {n}: {result}");
            }
        }
    }
    assert!(kills > 20, "{kills}");
}

#[test]
fn a_half_done_commit_is_finished_and_an_unfinished_state_thrown_away() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    session.says("x=1");
    let next = session.dir().join("next");
    fs::write(next.join("env.sh"), "x=never\n").unwrap();
    fs::write(next.join("work_dir.txt"), "/never\n").unwrap();
    assert_eq!(
        session.says("echo $x; pwd"),
        format!("1\n{}\n", place.dir.display())
    );
    let env = fs::read_to_string(session.dir().join("env.sh")).unwrap();
    fs::write(next.join("env.sh"), env.replace("x=\"1\"", "x=\"2\"")).unwrap();
    fs::rename(
        session.dir().join("metadata.json"),
        next.join("metadata.json"),
    )
    .unwrap();
    fs::write(next.join("commit"), "").unwrap();
    assert!(json(&place.run(&["list"]))[0]["command"] == "bash");
    assert_eq!(session.says("echo $x"), "2\n");
    assert_eq!(fs::read_dir(&next).unwrap().count(), 0);
}

#[test]
fn a_damaged_state_is_said_and_begun_afresh() {
    for shell in ALL_SHELLS {
        let place = Place::new();
        let session = place.start(&[shell]);
        session.says("x=1; cd /");
        fs::write(session.dir().join("env.sh"), "x=2\necho noise (").unwrap();
        let output = session
            .command(&[], "echo ${x-none} $BROUGHT; pwd; y=1")
            .env("BROUGHT", "along")
            .output()
            .unwrap();
        let result = json(&output);
        assert_eq!(result["stdout"], "none along\n/\n", "{shell}: {result}");
        let note = result["notes"][0].as_str().unwrap();
        assert!(note.contains("damaged"), "{note}");
        assert_eq!(session.says("echo $y"), "1\n", "{shell}");
    }
}

#[test]
fn a_session_whose_directory_goes_while_it_runs_is_an_error() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    let output = session.command(&[], "rm -r .sessions/*").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(json(&output)["error"].is_string(), "{output:?}");
    let output = session.command(&[], "echo").output().unwrap();
    assert!(
        json(&output)["error"]
            .as_str()
            .unwrap()
            .starts_with("no session")
    );
}

#[test]
fn a_disk_without_room_keeps_the_state_from_before() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    session.says("x=1");
    let result = session.exec("x=2; y=$(head -c 100000 /dev/zero | tr '\\0' y); ulimit -f 10");
    assert!(
        result["notes"][0].as_str().unwrap().contains("from before"),
        "{result}"
    );
    assert_eq!(session.says("echo $x${y-}"), "1\n");
}

// --- the folder

#[test]
fn no_id_leads_out_of_the_folder() {
    let place = Place::new();
    let session = place.start(&[]);
    fs::create_dir(place.path("sess_outside")).unwrap();
    fs::copy(
        session.dir().join("metadata.json"),
        place.path("sess_outside/metadata.json"),
    )
    .unwrap();
    std::os::unix::fs::symlink(
        place.path("sess_outside"),
        place.path(".sessions/sess_link"),
    )
    .unwrap();
    for id in [
        "../sess_outside",
        "sess_/../../sess_outside",
        "/sess_x",
        "",
        ".",
        "..",
        "sess_link",
        "sess_none",
        "sess_é",
        "SESS_A",
        "sess_\n",
        ".gitignore",
    ] {
        for args in [&["exec", id, "true"][..], &["end", id]] {
            let output = place.run(args);
            assert_eq!(output.status.code(), Some(1), "{args:?}");
            assert!(
                json(&output)["error"]
                    .as_str()
                    .unwrap()
                    .starts_with("no session '"),
                "{args:?}"
            );
        }
    }
    assert!(place.run(&["cleanup"]).status.success());
    assert!(place.path("sess_outside/metadata.json").exists());
}

#[test]
fn files_are_for_their_owner_only_whatever_the_umask() {
    let place = Place::new();
    let output = Command::new("sh")
        .args(["-c", "umask 0; \"$0\" start"])
        .arg(BIN)
        .current_dir(&place.dir)
        .output()
        .unwrap();
    let id = json(&output)["session_id"].as_str().unwrap().to_owned();
    place.run(&["exec", &id, "umask 0; f() { :; }; x=1; echo out"]);
    place.run(&["exec", &id, "umask 777"]);
    let mut dirs = vec![place.path(".sessions")];
    let mut seen = 0;
    while let Some(dir) = dirs.pop() {
        assert_eq!(mode(&dir), 0o700, "{}", dir.display());
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            seen += 1;
            if path.is_dir() {
                dirs.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
            }
        }
    }
    assert!(seen > 12);
    assert_eq!(
        fs::read_to_string(place.path(".sessions/.gitignore")).unwrap(),
        "*\n"
    );
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn no_session_sees_or_writes_an_api_key() {
    let keys = [
        ("DELTA_API_KEY", "key-one-kqzx"),
        ("OPENAI_API_KEY", "key-two-kqzx"),
    ];
    let place = Place::new();
    fs::write(place.path(".bash_profile"), "env >seen").unwrap();
    let home = ("HOME", place.dir.to_str().unwrap());
    place.start_with(&["bash", "-l"], &[keys[0], keys[1], home]);
    let seen = fs::read_to_string(place.path("seen")).unwrap();
    assert!(seen.contains("HOME=") && !seen.contains("kqzx"), "{seen}");
    for program in ["bash", "dash", "sh", "python3"] {
        if !is_installed(program) {
            continue;
        }
        let place = Place::new();
        let session = place.start_with(&[program], &keys);
        let text = if program == "python3" {
            "import os; print([k for k in os.environ if k.endswith('API_KEY')])"
        } else {
            "env | grep API_KEY; set | grep -a kqzx; :"
        };
        let output = session.command(&[], text).envs(keys).output().unwrap();
        assert!(
            ["", "[]\n"].contains(&json(&output)["stdout"].as_str().unwrap()),
            "{output:?}"
        );
        if program != "python3" {
            let set = "a=key-one; export OPENAI_API_KEY=$a-kqzx; DELTA_API_KEY=$a-kqzx; b=1";
            assert_eq!(session.says(set), "");
            assert_eq!(
                session.says("echo $b ${OPENAI_API_KEY-none} ${DELTA_API_KEY-none}"),
                "1 none none\n",
                "{program}"
            );
        }
        let grep = Command::new("grep")
            .args(["-r", "key-[a-z]*-kqzx"])
            .arg(place.path(".sessions"))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(grep.stdout).unwrap(), "", "{program}");
    }
}

#[test]
fn each_exec_brings_the_call_it_belongs_to() {
    let place = Place::new();
    for shell in ALL_SHELLS {
        let names = [
            "AGENT_HOME",
            "CWD",
            "DEADLINE",
            "DEPTH",
            "ENGINE_PID",
            "HOOK_IO_PATH",
            "RUN_DIR",
            "RUN_ID",
        ];
        let names = names.map(|name| format!("DELTA_{name}"));
        let of_start = names.each_ref().map(|name| (name.as_str(), "start"));
        let session = place.start_with(&[shell], &of_start);
        let shown = session.says("env | grep '=start$'; env | grep '=exec$'; :");
        assert_eq!(shown, "", "{shell}");
        let mut command = session.command(&[], "env | grep -c '=exec$'");
        let output = command
            .envs(names.iter().map(|name| (name, "exec")))
            .output();
        assert_eq!(
            json(&output.unwrap())["stdout"],
            format!("{}\n", names.len())
        );
        assert_eq!(session.says("env | grep '=exec$'; :"), "", "{shell}");
    }
    let session = place.start(&["bash"]);
    let run = |call: &str| {
        let output = session
            .command(&[], "echo $DELTA_CALL_ID $DELTA_RUN_ID $DELTA_SESSION_ID")
            .env("DELTA_CALL_ID", call)
            .env("DELTA_RUN_ID", call)
            .output()
            .unwrap();
        json(&output)["stdout"].as_str().unwrap().to_owned()
    };
    for call in ["outer1", "outer2"] {
        let said = run(call);
        assert!(
            said.starts_with(&format!("{call}.{}-", session.id)),
            "{said}"
        );
        assert!(
            said.ends_with(&format!(" {call} {}\n", session.id)),
            "{said}"
        );
    }
}

#[test]
fn an_ended_session_takes_no_command_and_keeps_its_files_until_cleanup() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    session.says("echo output");
    for _ in 0..2 {
        let output = place.run(&["end", &session.id]);
        assert_eq!(
            json(&output),
            serde_json::json!({"status": "terminated", "session_id": session.id})
        );
        assert!(output.status.success());
    }
    let refused = place.run(&["exec", &session.id, "echo no"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        json(&refused)["error"]
            .as_str()
            .unwrap()
            .contains("has been ended")
    );
    assert_eq!(json(&place.run(&["list"]))[0]["status"], "terminated");
    assert_eq!(
        fs::read_to_string(session.dir().join("output/000001.stdout")).unwrap(),
        "output\n"
    );
    assert_eq!(
        json(&place.run(&["cleanup"])),
        serde_json::json!({"removed": [session.id]})
    );
    assert!(!session.dir().exists());
    assert_eq!(json(&place.run(&["list"])), serde_json::json!([]));
}

#[test]
fn end_and_cleanup_end_what_runs() {
    for how in ["end", "cleanup"] {
        let place = Place::new();
        let session = place.start(&["bash"]);
        let mut started = place.fifo("started");
        let child =
            session.spawn("trap '' HUP; echo $$ >pid; echo >started; sleep 1000; echo survived");
        started.line();
        let args = if how == "end" {
            vec!["end", &*session.id]
        } else {
            vec!["cleanup"]
        };
        assert!(place.run(&args).status.success());
        assert!(!alive(
            fs::read_to_string(place.path("pid")).unwrap().trim()
        ));
        let output = child.wait_with_output().unwrap();
        if how == "end" {
            // A signal that meets bash between fork and exec is lost on the new program; KILL is not.
            let code = &json(&output)["exit_code"];
            assert!(code == 143 || code == 137, "{output:?}");
        }
    }
}

#[test]
fn cleanup_removes_all_sessions_and_nothing_else() {
    let place = Place::new();
    let (one, two) = (place.start(&["bash"]), place.start(&["dash"]));
    fs::create_dir(place.path(".sessions/sess_halfmade")).unwrap();
    fs::create_dir(place.path(".sessions/notes")).unwrap();
    let removed = json(&place.run(&["cleanup"]));
    assert_eq!(removed["removed"].as_array().unwrap().len(), 3);
    assert!(!one.dir().exists() && !two.dir().exists());
    assert!(place.path(".sessions/notes").exists());
    assert_eq!(
        json(&place.run(&["--sessions-dir", "nowhere", "cleanup"])),
        serde_json::json!({"removed": []})
    );
    assert!(!place.path("nowhere").exists());
}

#[test]
fn list_shows_sessions_in_the_order_of_their_start() {
    let place = Place::new();
    let sessions = [
        place.start(&["bash"]),
        place.start(&["dash"]),
        place.start(&["cat"]),
    ];
    sessions[0].says("cd /");
    let listed = json(&place.run(&["list"]));
    let ids: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["session_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, sessions.iter().map(|s| &*s.id).collect::<Vec<_>>());
    assert_eq!(
        (&listed[0]["work_dir"], &listed[0]["execution_count"]),
        (&"/".into(), &1.into())
    );
    assert!(listed[0]["created_at"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn sessions_can_live_in_another_folder() {
    let place = Place::new();
    let hostile = "a b/$(touch x)'`\"@EXIT@\n";
    fs::create_dir_all(place.path(hostile)).unwrap();
    for (number, shell) in ["bash", "dash", "cat"].iter().enumerate() {
        let folder = format!("{hostile}/deep/er");
        let started = json(&place.run(&["--sessions-dir", &folder, "start", shell]));
        let id = started["session_id"].as_str().unwrap();
        let run = |text: &str| json(&place.run(&["exec", "--sessions-dir", &folder, id, text]));
        assert_eq!(run("x=1; f() { :; }")["exit_code"], 0);
        let expected = if number == 2 { "echo $x" } else { "1\n" };
        assert_eq!(run("echo $x")["stdout"], expected);
    }
    assert!(!place.path("x").exists() && !place.path(".sessions").exists());
}

#[test]
fn the_history_has_a_line_for_each_command() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    session.says("echo a\necho b");
    session.exec("exit 3");
    let history = fs::read_to_string(session.dir().join("history.log")).unwrap();
    let lines: Vec<Value> = history
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&lines[0]["n"], &lines[0]["command"], &lines[0]["exit_code"]),
        (&1.into(), &"echo a\necho b".into(), &0.into())
    );
    assert_eq!(
        (&lines[1]["n"], &lines[1]["exit_code"], lines.len()),
        (&2.into(), &3.into(), 2)
    );
}

#[test]
fn two_hundred_commands_cost_no_more_than_ten() {
    let place = Place::new();
    let session = place.start(&["bash"]);
    let sizes = || {
        let sized = |path: PathBuf| path.is_file().then(|| fs::metadata(&path).unwrap().len());
        let mut found: Vec<(String, u64)> = fs::read_dir(session.dir())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), sized(path)?)))
            .filter(|(name, _)| name != "history.log")
            .collect();
        found.sort();
        found
    };
    session.says("n=1000000");
    for _ in 0..9 {
        session.says("n=$((n+1))");
    }
    let after_ten = sizes();
    for _ in 0..190 {
        session.says("n=$((n+1))");
    }
    assert_eq!(session.says("echo $n"), "1000199\n");
    session.says("n=$((n+1))");
    for ((name, before), (_, after)) in after_ten.iter().zip(sizes()) {
        // The number of the command has got longer.
        assert!(after <= before + 4, "{name}: {before} {after}");
    }
}

// --- the start and the command line

#[test]
fn start_takes_a_shell_with_its_arguments_and_reads_its_profile_once() {
    let place = Place::new();
    fs::write(
        place.path(".bash_profile"),
        "echo read >>times; from_profile=1",
    )
    .unwrap();
    let session = place.start_with(
        &["bash", "-l", "-u", "-o", "pipefail"],
        &[("HOME", place.dir.to_str().unwrap())],
    );
    assert_eq!(session.started["command"], "bash -l -u -o pipefail");
    assert_eq!(session.says("echo $from_profile; [[ -o nounset && -o pipefail ]] && shopt -q expand_aliases && cat times"), "1\nread\n");
}

#[test]
fn a_shell_by_another_name_is_known_by_what_it_says() {
    let place = Place::new();
    let bash = String::from_utf8(
        Command::new("sh")
            .args(["-c", "command -v bash"])
            .output()
            .unwrap()
            .stdout,
    )
    .unwrap();
    std::os::unix::fs::symlink(bash.trim(), place.path("sh")).unwrap();
    let session = place.start(&["./sh"]);
    session.says("a=(1 2); f() { echo f; }; alias e=echo; cd /; [[ -o posix ]] && set -x");
    let result = session.exec("f; e ${a[1]}");
    assert_eq!(result["stdout"], "f\n2\n", "{result}");
    assert!(
        !result["stderr"].as_str().unwrap().contains(".sessions"),
        "{result}"
    );
}

#[test]
fn what_cannot_be_started_leaves_nothing() {
    let place = Place::new();
    for (argv, words) in [
        (&["nosuchprogram"][..], "no such program"),
        (&["./missing"], "no such program"),
        (&[""], "no such program"),
        (
            &["bash", "missing-script"],
            "ended before it saved its state",
        ),
        (
            &["bash", "--no-such-option"],
            "ended before it saved its state",
        ),
    ] {
        let args: Vec<&str> = ["start"].iter().chain(argv).copied().collect();
        let output = place.run(&args);
        assert_eq!(output.status.code(), Some(1), "{argv:?}");
        assert!(
            json(&output)["error"].as_str().unwrap().contains(words),
            "{argv:?}: {output:?}"
        );
    }
    assert_eq!(json(&place.run(&["list"])), serde_json::json!([]));
}

#[test]
fn wrong_usage_is_one_line_with_the_right_word_and_exit_code_2() {
    let place = Place::new();
    for (args, words) in [
        (&[][..], "start, exec, end, list, cleanup"),
        (&["exce"], "did you mean 'exec'"),
        (&["--session-dir", "x"], "did you mean --sessions-dir"),
        (
            &["exec", "--timeout=5", "sess_a"],
            "did you mean --timeout-ms",
        ),
        (&["exec", "--max-bytes", "many", "sess_a"], "whole number"),
        (
            &["exec", "--raw", "--max-bytes", "1", "sess_a"],
            "--max-bytes",
        ),
        (
            &["exec"],
            "exec needs ID: delta-sessions exec [OPTIONS] ID [TEXT]",
        ),
        (&["exec", "sess_a", "ls", "-l"], "in quotes"),
        (&["end"], "end needs ID"),
        (&["end", "sess_a", "b"], "unexpected argument 'b'"),
        (&["list", "x"], "unexpected argument 'x'"),
        (&["cleanup", "--all"], "unknown option --all"),
        (&["end", "--raw", "sess_a"], "unknown option --raw"),
        (&["-x"], "unknown option -x"),
        (&["--sessions-dir", ""], "an empty path names nothing"),
    ] {
        let output = place.run(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), stderr.lines().count()),
            (Some(2), 1),
            "{args:?}: {stderr}"
        );
        assert!(
            stderr.starts_with("delta-sessions: ") && stderr.contains(words),
            "{args:?}: {stderr}"
        );
        assert!(output.stdout.is_empty());
    }
    assert!(!place.path(".sessions").exists());
}

#[test]
fn help_the_manual_and_the_program_agree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manual = fs::read_to_string(root.join("man/delta-sessions.1")).unwrap();
    let place = Place::new();
    let printed = |args: &[&str]| String::from_utf8(place.run(args).stdout).unwrap();
    let help = |option: &str| printed(&[option]);
    for option in [
        "sessions-dir",
        "timeout-ms",
        "max-bytes",
        "raw",
        "help",
        "version",
    ] {
        assert!(manual.contains(&format!("Fl -{option}")), "{option}");
        let short = help("-h") + &printed(&["exec", "-h"]);
        assert!(short.contains(&format!("--{option}")), "{option}");
        assert!(help("--help").contains(&format!("--{option}")), "{option}");
    }
    for command in ["start", "exec", "end", "list", "cleanup"] {
        assert!(manual.contains(&format!("Cm {command}")) && help("-h").contains(command));
    }
    for field in [
        "stdout",
        "exit_code",
        "execution_time_ms",
        "timed_out",
        "interrupted",
        "stdout_truncated",
        "stdout_bytes",
        "stdout_file",
        "notes",
        "persists",
        "note",
        "removed",
        "error",
    ] {
        assert!(manual.contains(field), "{field}");
    }
    assert!(help("-h").lines().all(|line| line.len() < 80));
    assert_eq!(
        help("-V"),
        format!("delta-sessions {}\n", env!("CARGO_PKG_VERSION"))
    );
    // man/check.sh holds the rendering to the page.
    let rendering = fs::read_to_string(root.join("man/text/delta-sessions.txt")).unwrap();
    assert_eq!(help("--help"), rendering);
}

#[test]
fn a_number_at_the_limit_is_followed_by_one() {
    let place = Place::new();
    let session = place.start(&[]);
    let path = session.dir().join("metadata.json");
    let text = fs::read_to_string(&path).unwrap();
    let forged = text.replace(
        "\"execution_count\":0",
        "\"execution_count\":18446744073709551615",
    );
    assert_ne!(forged, text);
    fs::write(&path, forged).unwrap();
    assert_eq!(session.says("echo said"), "said\n");
    assert_eq!(json(&place.run(&["list"]))[0]["execution_count"], 1);
}
