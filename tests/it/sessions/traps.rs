//! `delta-sessions`: what the exit trap of a command leaves to the next command.

use crate::harness::sessions::*;
use serde_json::Value;
use std::os::unix::fs::symlink;

const UNFINISHED: &str = "the EXIT trap was ended before its last command";

fn bash_as_sh(place: &Place) -> String {
    symlink("/bin/bash", place.path("sh")).unwrap();
    place.path("sh").into_os_string().into_string().unwrap()
}

/// The shells of a place: those that are installed, and a bash that is called sh.
fn shells(place: &Place) -> Vec<String> {
    let bash_as_sh = bash_as_sh(place);
    let installed = ["bash", "dash", "yash"].into_iter();
    let installed = installed.filter(|shell| is_installed(shell));
    installed.map(str::to_owned).chain([bash_as_sh]).collect()
}

fn note(result: &Value) -> &str {
    let notes = result["notes"]
        .as_array()
        .unwrap_or_else(|| panic!("{result}"));
    assert_eq!(notes.len(), 1, "{result}");
    notes[0].as_str().unwrap()
}

#[test]
fn what_an_exit_trap_sets_survives_however_its_command_ends() {
    let place = Place::new();
    for shell in shells(&place) {
        let session = place.start(&[&shell]);
        for (n, (end, status)) in [
            ("(exit 7)", 7),
            ("exit 4", 4),
            ("f() { exit 5; }; f", 5),
            ("set -e; x=2; false", 1),
            ("set -u; : $none", if shell == "dash" { 2 } else { 127 }),
            (":", 0),
        ]
        .into_iter()
        .enumerate()
        {
            let text = format!(
                "before=b{n}; trap 'export TRAPPED=\"t{n} $?\"; cd /; echo in trap' EXIT\n{end}"
            );
            let result = session.exec(&text);
            let context = format!("{shell}: {end}: {result}");
            assert_eq!(result["stdout"], "in trap\n", "{context}");
            let ended = result["exit_code"].as_i64().unwrap();
            assert!(ended == status || end.contains("set -u"), "{context}");
            assert!(result.get("notes").is_none(), "{context}");
            let shown = session.says("set +eu; sh -c 'echo $TRAPPED'; echo $before $PWD");
            let expected = format!("t{n} {ended}\nb{n} /\n");
            assert!(
                shown == expected || end.contains("set -u") && shown.starts_with(&format!("t{n} ")),
                "{context}: {shown}"
            );
        }
    }
}

#[test]
fn an_exit_in_an_exit_trap_loses_nothing_in_bash_and_is_reported_by_other_shells() {
    let place = Place::new();
    for shell in shells(&place) {
        let session = place.start(&[&shell]);
        let text = "clean() { rc=$?; (exit 8); export X=set; exit $rc; }; a=1; trap clean EXIT; b=2; exit 6";
        let result = session.exec(text);
        assert_eq!(result["exit_code"], 6, "{shell}: {result}");
        let expected = if shell == "bash" {
            assert!(result.get("notes").is_none(), "{result}");
            "1 2 set 6\n"
        } else {
            assert!(note(&result).starts_with(UNFINISHED), "{shell}: {result}");
            "1 2 none none\n"
        };
        let shown = session.says("echo $a $b ${X-none} ${rc-none}");
        assert_eq!(shown, expected, "{shell}");
    }
    let session = place.start(&["bash"]);
    session.exec("trap 'x=1; exit' EXIT; exit 3");
    let result = session.exec("trap 'y=1; (y=2; exit 1); exit' EXIT; exit 3");
    assert_eq!(result["exit_code"], 3, "{result}");
    assert_eq!(session.says("echo $x $y; declare -F"), "1 1\n");
    session.exec("exit() { builtin exit 9; }; trap 'z=1' EXIT");
    assert_eq!(session.says("echo $z; declare -F"), "1\ndeclare -f exit\n");
}

#[test]
fn a_trap_that_fails_halfway_is_reported_and_costs_only_what_it_changed() {
    let place = Place::new();
    for shell in shells(&place) {
        let session = place.start(&[&shell]);
        let result = session.exec("set -e; a=1; trap 'b=1; false; c=1' EXIT; exit 3");
        assert!(note(&result).starts_with(UNFINISHED), "{shell}: {result}");
        let shown = session.says("set +e; echo $a ${b-none} ${c-none}");
        assert_eq!(shown, "1 none none\n", "{shell}");
    }
}

#[test]
fn a_trap_that_is_set_past_the_alias_is_reported() {
    let place = Place::new();
    let session = place.start(&["dash"]);
    std::fs::write(place.path("lib"), "trap 'b=1' EXIT\n").unwrap();
    for (n, set) in ["command trap 'b=1' EXIT", "\\trap 'b=1' EXIT", ". ./lib"]
        .into_iter()
        .enumerate()
    {
        let result = session.exec(&format!("a={n}; {set}"));
        assert!(note(&result).starts_with(UNFINISHED), "{result}");
        assert_eq!(session.says("echo $a ${b-none}"), format!("{n} none\n"));
    }
    session.says("trap 'b=1; : RETURN' EXIT");
    assert_eq!(session.says("echo $b"), "1\n");
}

#[test]
fn traps_that_are_reset_ignored_or_of_a_subshell_cost_no_state() {
    let place = Place::new();
    let shells = shells(&place);
    for shell in &shells {
        let session = place.start(&[shell]);
        for (n, text) in [
            "trap 'echo no' EXIT; trap - EXIT",
            "trap 'echo no' 0; trap 0",
            "trap 'echo no' EXIT; trap '' EXIT; exit",
            "trap -- 'echo no' exit HUP; trap -- - EXIT; trap HUP",
            "(trap 'x=sub' EXIT; x=sub); :",
            "trap : USR1; kill -USR1 $$; exit",
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(
                session.says(&format!("x={n}; {text}")),
                "",
                "{shell}: {text}"
            );
            assert_eq!(session.says("echo $x"), format!("{n}\n"), "{shell}: {text}");
        }
        assert_eq!(session.exec("alias | grep _delta")["stdout"], "", "{shell}");
    }
    for shell in shells
        .iter()
        .filter(|shell| shell.ends_with("bash") || shell.contains('/'))
    {
        let session = place.start(&[shell]);
        let listed = session.says("trap 'echo a' EXIT; trap : INT; trap; trap - EXIT");
        assert_eq!(
            listed.lines().next(),
            Some("trap -- 'echo a' EXIT"),
            "{shell}"
        );
        assert_eq!(listed.lines().count(), 2, "{shell}: {listed}");
    }
}

#[test]
fn an_alias_for_trap_stays_the_users() {
    let place = Place::new();
    for shell in shells(&place) {
        let session = place.start(&[&shell]);
        session.exec("alias trap='echo mine'");
        assert_eq!(session.says("trap x EXIT"), "mine x EXIT\n", "{shell}");
        assert_eq!(session.says("trap y EXIT"), "mine y EXIT\n", "{shell}");
    }
}
