//! What shells offer at the Tab key: the scripts in `completions/`, in the shells themselves.

use crate::harness::*;
use delta_engine::cli::args::COMMANDS;
use delta_engine::text::manual::PAGES;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub fn script(shell: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("completions/delta.{shell}"))
}

/// Runs with the programs that are tested before everything else in PATH.
pub fn shell(world: &World, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", path())
        .env("HOME", world.home())
        .env("TERM", "dumb")
        .current_dir(world.home());
    command
}

/// Whether a shell is there; who reads the test's output is told if it is not.
pub fn has(shell: &str) -> bool {
    let there = Command::new(shell).arg("--version").output().is_ok();
    if !there {
        eprintln!("skipped: {shell} is not installed");
    }
    there
}

/// Two runs in `ws`, a directory with a space in its name, and an agent with two workspaces.
fn prepared() -> World {
    let world = World::unasked();
    world.model_says([text("one"), text("two"), text("three")]);
    for id in ["alpha", "beta"] {
        let run = world.run("first words").args(["--run-id", id]);
        run.exits(0);
    }
    let own = world.delta(["run", "-y", "-a", "agent", "-m", "hello"]);
    own.exits(0);
    fs::create_dir_all(world.path("agent/workspaces/W002")).unwrap();
    fs::create_dir(world.path("a b")).unwrap();
    world
}

/// What `delta complete` says: what a shell adds, and the words.
fn offered(world: &World, words: &[&str]) -> (String, Vec<String>) {
    let args = ["complete", "--"].iter().chain(words).copied();
    let outcome = world.delta(args).exits(0);
    let said = String::from_utf8(outcome.stdout).unwrap();
    let mut lines = said.lines();
    let own = lines.next().unwrap().to_owned();
    let first = |line: &str| line.split('\t').next().unwrap().to_owned();
    (own, lines.map(first).collect())
}

#[test]
fn commands_and_options_are_those_of_the_short_help() {
    let world = World::unasked();
    assert_eq!(offered(&world, &[""]).1, COMMANDS);
    for command in COMMANDS {
        let help = world.delta([command, "-h"]).exits(0);
        let help = String::from_utf8(help.stdout).unwrap();
        let lines = help.lines().map(str::trim_start);
        let heads = lines
            .filter(|line| line.starts_with('-'))
            .map(|line| line.split("  ").next().unwrap());
        let words = heads.flat_map(|head| head.split([' ', ',']));
        let listed: BTreeSet<&str> = words.filter(|word| word.starts_with('-')).collect();
        let (own, words) = offered(&world, &[command, "-"]);
        let words: BTreeSet<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(words, listed, "{command}");
        assert_eq!(own, "", "{command}");
    }
}

#[test]
fn every_value_and_operand_is_offered_what_it_can_be() {
    let world = prepared();
    let of = |line: &str| {
        let (own, words) = offered(&world, &line.split(' ').collect::<Vec<_>>());
        format!("{own}: {}", words.join(" ")).trim().to_owned()
    };
    for (line, expected) in [
        ("run -a ", "files: @coder @plain"),
        ("run -a ag", "files:"),
        ("run @", ": @coder @plain"),
        ("run @coder ", ":"),
        ("chat ", ": @coder @plain"),
        ("run -w ", "dirs: ws/"),
        ("run -w none/", "dirs:"),
        ("run -w agent/workspaces/", "dirs: agent/workspaces/W001/"),
        (
            "run -a agent -w ",
            "dirs: agent/workspaces/W002/ agent/workspaces/W001/ ws/",
        ),
        (
            "run --agent=agent --work-dir=",
            "dirs: --work-dir=agent/workspaces/W002/ --work-dir=agent/workspaces/W001/ --work-dir=ws/",
        ),
        ("run -m ", ":"),
        ("run --format ", ": text json jsonl"),
        (
            "run --format=",
            ": --format=text --format=json --format=jsonl",
        ),
        ("run -w ws --run-id ", ": beta alpha"),
        ("continue -w ws --run-id ", ": beta alpha"),
        ("log -w ws ", ": beta alpha LATEST"),
        ("log -wws ", ": beta alpha LATEST"),
        ("log -fn 3 -w ws ", ": beta alpha LATEST"),
        ("log -w 'ws ", ": beta alpha LATEST"),
        ("log ", ":"),
        (
            "log -w ws beta ",
            ": -w --work-dir -f --follow -n --lines -v --verbose --effects --json -h --help",
        ),
        ("stats -w ws alpha ", ": beta alpha LATEST"),
        ("stats --format ", ": text json csv"),
        ("diff -w ws alpha ", ": beta alpha LATEST"),
        ("diff -w ws alpha ws/", "dirs:"),
        ("report -w ws ", ": beta alpha LATEST"),
        (
            "report -w ws beta ",
            ": -w --work-dir -o --output -h --help",
        ),
        ("request -w ws ", ": beta alpha LATEST"),
        ("fork --at 1 -w ws ", ": beta alpha LATEST"),
        ("fork -w ws alpha --to ", "dirs:"),
        ("replay -w ws ", ": beta alpha LATEST"),
        ("replay --tools ", ": run recorded"),
        (
            "list-runs --status ",
            ": RUNNING WAITING_FOR_INPUT COMPLETED FAILED INTERRUPTED",
        ),
        (
            "init -t ",
            ": minimal hello-world file-ops api-tester coder flow eval",
        ),
        ("init ", "dirs:"),
        ("check ", "files:"),
        ("schema ", ": agent context hooks"),
        ("tool ", ": expand"),
        ("tool expand ", "files:"),
        ("model ", ": replay"),
        ("model replay ", "dirs:"),
        ("continue -w ", "dirs: ws/"),
        ("sandbox --rw ", "dirs:"),
        ("sandbox --rw x -- ", "command 4:"),
        ("sandbox ls -", "command 1:"),
        ("nonsense ", ":"),
        ("run --nonsense=", ":"),
    ] {
        assert_eq!(of(line), expected.trim(), "{line:?}");
    }
    let pages = offered(&world, &["help", ""]).1;
    let once: BTreeSet<&String> = pages.iter().collect();
    assert_eq!((pages.len(), once.len()), (PAGES.len(), PAGES.len()));
    for (topic, page) in pages.iter().zip(PAGES) {
        let printed = world.delta(["help", topic]).exits(0);
        printed.prints(page.text());
    }
}

#[test]
fn a_run_is_told_by_its_status_and_its_first_message() {
    let world = prepared();
    let outcome = world.delta(["complete", "--", "log", "-w", "ws", ""]).end();
    outcome.exits(0).prints(
        "\nbeta\tCOMPLETED first words\nalpha\tCOMPLETED first words\nLATEST\tthe newest run\n",
    );
    // Whose engine died, and what cannot be read.
    let file = world.path("ws/.delta/beta/metadata.json");
    let metadata = fs::read_to_string(&file).unwrap();
    fs::write(&file, metadata.replace("\"COMPLETED\"", "\"RUNNING\"")).unwrap();
    fs::write(world.path("ws/.delta/alpha/metadata.json"), "torn").unwrap();
    let outcome = world.delta(["complete", "--", "log", "-w", "ws", ""]).end();
    outcome
        .exits(0)
        .prints("\nbeta\tINTERRUPTED first words\nalpha\t\nLATEST\tthe newest run\n");
}

#[test]
fn sessions_are_offered_while_they_are_active() {
    let world = World::unasked();
    let sessions = |args: &[&str]| {
        let done = shell(&world, env!("CARGO_BIN_EXE_delta-sessions"))
            .args(args)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let complete = |words: &[&str]| sessions(&[&["complete", "--"], words].concat());
    let id = |said: String| {
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        said["session_id"].as_str().unwrap().to_owned()
    };
    let (one, two) = (
        id(sessions(&["start", "sh"])),
        id(sessions(&["start", "sh"])),
    );
    sessions(&["end", &one]);
    assert_eq!(complete(&["exec", ""]), format!("\n{two}\tsh\n"));
    let elsewhere = format!("--sessions-dir={}/.sessions", world.home().display());
    assert_eq!(complete(&[&elsewhere, "end", ""]), format!("\n{two}\tsh\n"));
    assert_eq!(complete(&["--sessions-dir", ""]), "dirs\n");
    assert_eq!(complete(&["start", "b"]), "command 1\n");
    let words = |said: String| -> Vec<String> {
        let lines = said.lines().skip(1);
        lines
            .map(|line| line.split('\t').next().unwrap().to_owned())
            .collect()
    };
    let commands = ["start", "exec", "end", "list", "cleanup"];
    assert_eq!(words(complete(&[""])), commands);
    let common = [
        "--sessions-dir",
        "--adopt",
        "-V",
        "--version",
        "-h",
        "--help",
    ];
    assert_eq!(words(complete(&["list", "-"])), common);
    let of_exec = ["--timeout-ms", "--max-bytes", "--raw"];
    assert_eq!(words(complete(&["exec", "-"]))[..3], of_exec);
    // What stands behind the id is data.
    assert_eq!(words(complete(&["exec", &two, "-"])).len(), 0);
}

#[test]
fn bash_offers_words_runs_directories_and_values() {
    if !has("bash") {
        return;
    }
    let world = prepared();
    const TRY: &str = r#"
        source "$1"
        shift
        complete -p delta delta-flow delta-sessions > /dev/null || exit
        COMP_WORDS=(); COMPREPLY=()
        for word in "$@"; do COMP_WORDS+=("$word"); done
        COMP_CWORD=$(($# - 1))
        _delta_engine
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let of = |words: &[&str]| -> String {
        let done = shell(&world, "bash")
            .args(["-c", TRY, "bash"])
            .arg(script("bash"))
            .args(words)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stderr), "", "{words:?}");
        let said = String::from_utf8(done.stdout).unwrap();
        said.trim_end().replace('\n', ",")
    };
    assert_eq!(of(&["delta", "ru"]), "run");
    assert_eq!(of(&["delta", "log", "-w", "ws", ""]), "beta,alpha,LATEST");
    assert_eq!(of(&["delta", "log", "-w", "ws", "al"]), "alpha");
    let mut dirs: Vec<String> = of(&["delta", "log", "-w", "a"])
        .split(',')
        .map(str::to_owned)
        .collect();
    dirs.sort();
    assert_eq!(dirs, ["a b", "agent"]);
    // Readline makes three words of --format=t.
    assert_eq!(of(&["delta", "run", "--format", "=", "t"]), "text");
    assert_eq!(of(&["delta", "run", "--format", "="]), "text,json,jsonl");
    assert_eq!(of(&["delta", "log", "--work-dir", "=", "w"]), "ws");
    // Known ones first, and nothing that only leads to them.
    let said = of(&["delta", "run", "--agent", "=", "agent", "-w", ""]);
    let mut said: Vec<&str> = said.split(',').collect();
    said.retain(|word| !word.starts_with(".output"));
    let known = ["agent/workspaces/W002", "agent/workspaces/W001", "ws"];
    assert_eq!(said[..3], known);
    assert_eq!(said[3..], ["a b"]);
    assert_eq!(
        of(&["delta", "tool", "expand", "agent/ag"]),
        "agent/agent.yaml"
    );
    assert_eq!(of(&["delta-sessions", "cl"]), "cleanup");
    // Once for each directory of PATH that has it.
    let programs = of(&["delta", "sandbox", "--", "unshar"]);
    assert_eq!(programs.split(',').next(), Some("unshare"));
    assert_eq!(
        of(&["delta", "sandbox", "--", "cat", "agent/age"]),
        "agent/agent.yaml"
    );
    assert_eq!(of(&["~/none/delta", "ru"]), "");
}

/// The words that fish offers behind a line.
pub fn fish_offers(world: &World, line: &str) -> Vec<String> {
    let done = shell(world, "fish")
        .args(["--no-config", "-c", "source $argv[1]; complete -C $argv[2]"])
        .arg(script("fish"))
        .arg(line)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stderr), "", "{line}");
    let said = String::from_utf8(done.stdout).unwrap();
    let word = |line: &str| line.split('\t').next().unwrap().to_owned();
    said.lines().map(word).collect()
}

#[test]
fn fish_offers_words_runs_directories_and_values() {
    if !has("fish") {
        return;
    }
    let world = prepared();
    let of = |line: &str| fish_offers(&world, line).join(",");
    assert_eq!(of("delta ru"), "run");
    assert_eq!(of("delta log -w ws "), "beta,alpha,LATEST");
    assert_eq!(of("delta log -w ws al"), "alpha");
    assert_eq!(of("delta log -w a"), "a b/,agent/");
    let of_agent = of("delta log -w agent/workspaces/");
    assert_eq!(
        of_agent,
        "agent/workspaces/W001/,agent/workspaces/open/,agent/workspaces/W002/"
    );
    assert_eq!(of("delta run --format=t"), "--format=text");
    assert_eq!(of("delta log --work-dir=w"), "--work-dir=ws/");
    assert_eq!(of("delta log --work-dir=ws "), "beta,alpha,LATEST");
    fs::rename(world.path("ws"), world.path("a b/ws")).unwrap();
    assert_eq!(of("delta log -w a\\ b/ws "), "beta,alpha,LATEST");
    assert_eq!(of("delta log -w ~/'a b'/ws "), "beta,alpha,LATEST");
    assert_eq!(of("delta tool expand agent/ag"), "agent/agent.yaml");
    assert_eq!(of("delta-sessions cl"), "cleanup");
    assert_eq!(of("delta sandbox --rw . -- unshar"), "unshare");
    assert_eq!(of("/none/delta ru"), "");
}

/// Types lines at a shell that tells what became of each.
fn completes(mut command: Command, world: &World, setup: &str, lines: &[(&str, &str)]) {
    let mut told = world.fifo("told");
    let mut terminal = Terminal::new();
    let mut shell = command
        .stdin(terminal.user())
        .stdout(Stdio::from(terminal.user()))
        .stderr(Stdio::from(terminal.user()))
        .spawn()
        .unwrap();
    terminal.types(setup);
    assert_eq!(told.line(), "ready");
    for (typed, completed) in lines {
        terminal.types(&format!("{typed}\t\x14"));
        assert_eq!(told.line(), format!("{completed}|"), "{typed:?}");
    }
    shell.kill().unwrap();
    shell.wait().unwrap();
}

const LINES: [(&str, &str); 11] = [
    ("delta ru", "delta run "),
    ("delta log -w ws al", "delta log -w ws alpha "),
    ("delta run @co", "delta run @coder "),
    ("delta log -w ag", "delta log -w agent/"),
    ("delta log -w w", "delta log -w ws/"),
    ("delta run --format=t", "delta run --format=text "),
    ("delta log --work-dir=w", "delta log --work-dir=ws/"),
    ("delta log -w a\\ ", "delta log -w a\\ b/"),
    (
        "delta tool expand agent/ag",
        "delta tool expand agent/agent.yaml ",
    ),
    ("delta-sessions cl", "delta-sessions cleanup "),
    (
        "delta sandbox --rw . -- unshar",
        "delta sandbox --rw . -- unshare ",
    ),
];

/// Types lines at bash.
pub fn bash_completes(world: &World, lines: &[(&str, &str)]) {
    let setup = format!(
        "source {}; bind -x '\"\\C-t\": tell'; \
         tell() {{ printf '%s|\\n' \"$READLINE_LINE\" > told; READLINE_LINE=; }}; echo ready > told\n",
        shell_word(&script("bash"))
    );
    let mut bash = shell(world, "bash");
    bash.args(["--norc", "--noprofile", "-i"]);
    completes(bash, world, &setup, lines);
}

/// Types lines at zsh, with commands before and behind the start of its completion.
fn zsh_completes_with(world: &World, (before, behind): (&str, &str), lines: &[(&str, &str)]) {
    let setup = format!(
        "{before}autoload -U compinit; compinit -u -D\n\
         tell() {{ print -r -- \"$BUFFER|\" > told; BUFFER= }}\n\
         {behind}zle -N tell; bindkey '^T' tell; print ready > told\n"
    );
    let mut zsh = shell(world, "zsh");
    zsh.args(["-f", "-i"]);
    completes(zsh, world, &setup, lines);
}

/// Types lines at a zsh that finds the functions in a directory of its own.
pub fn zsh_completes(world: &World, lines: &[(&str, &str)]) {
    let functions = world.path("functions");
    fs::create_dir(&functions).unwrap();
    fs::copy(script("zsh"), functions.join("_delta")).unwrap();
    zsh_completes_with(world, ("fpath=(~/functions $fpath); ", ""), lines);
}

#[test]
fn bash_completes_what_is_typed() {
    if has("bash") {
        bash_completes(&prepared(), &LINES);
    }
}

#[test]
fn zsh_completes_what_is_typed() {
    if !has("zsh") {
        return;
    }
    let world = prepared();
    zsh_completes(&world, &LINES);
    // As it is read by `source`.
    fs::remove_file(world.path("told")).unwrap();
    let source = format!("source {}; ", shell_word(&script("zsh")));
    zsh_completes_with(&world, ("", &source), &LINES[..2]);
}

#[test]
fn the_scripts_are_good_grammar() {
    for name in ["bash", "zsh", "fish"] {
        if has(name) {
            let done = Command::new(name).arg("-n").arg(script(name)).output();
            let done = done.unwrap();
            assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
        }
    }
}

/// Lets bash complete the last of some words, and prints what it would insert.
fn bash_inserts(world: &World, words: &[&str], dir: &str, more: &str) -> String {
    let words: Vec<String> = words.iter().map(|it| format!("'{it}'")).collect();
    let text = format!(
        "source {}; {more} cd {dir}; COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _delta_engine; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script("bash").display(),
        words.join(" ")
    );
    let output = shell(world, "bash").args(["--norc", "-c", &text]).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

#[test]
fn bash_inserts_a_candidate_as_one_word() {
    if !has("bash") {
        return;
    }
    let world = World::unasked();
    let fake = world.script(
        "fake/delta",
        "#!/bin/sh\nprintf '\\nT1;id>PWNED;\\tx\\nplain\\t\\na $(id) b\\t\\n'\n",
    );
    let program = fake.to_str().unwrap();
    let inserted = bash_inserts(&world, &[program, "show", ""], ".", "");
    assert_eq!(inserted, "T1\\;id\\>PWNED\\;\nplain\na\\ \\$\\(id\\)\\ b\n");
    let known = bash_inserts(&world, &["delta", "ru"], ".", "");
    assert_eq!(known, "run\n");
}

#[test]
fn no_shell_completes_with_a_program_of_the_current_directory() {
    let world = World::unasked();
    for place in ["clone/delta", "clone/sub/delta"] {
        world.script(place, "#!/bin/sh\necho >> \"$HOME/PWNED\"\n");
    }
    let clone = world.path("clone").display().to_string();
    let absolute = format!("{clone}/delta");
    let words = ["./delta", "sub/delta", "delta", &absolute];
    let paths = [
        "",
        "PATH=.:$PATH;",
        "PATH=:$PATH;",
        &format!("PATH={clone}:$PATH;"),
    ];
    if has("bash") {
        for (word, path) in words.iter().flat_map(|it| paths.map(|path| (it, path))) {
            bash_inserts(&world, &[word, "ru"], "clone", path);
            assert!(!world.exists("PWNED"), "{word} {path}");
        }
        // One that is installed elsewhere completes in its place.
        assert_eq!(
            bash_inserts(&world, &["./delta", "ru"], "clone", ""),
            "run\n"
        );
    }
    if has("fish") {
        for word in words {
            let text = format!(
                "source {}; cd clone; complete -C '{word} ru'",
                script("fish").display()
            );
            shell(&world, "fish")
                .args(["--no-config", "-c", &text])
                .output()
                .unwrap();
            assert!(!world.exists("PWNED"), "{word}");
        }
    }
}
