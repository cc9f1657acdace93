//! The command line: what is understood, what is refused, what is printed where.

use crate::harness::*;
use serde_json::json;
use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};

/// Wrong usage: one line, exit code 2, nothing done.
#[track_caller]
fn refuses(args: &[&str], words: &[&str]) {
    let world = World::new();
    let mut outcome = world
        .delta(args.iter().copied())
        .exits(2)
        .prints("")
        .says_one_line();
    for word in words {
        outcome = outcome.says(word);
    }
    assert!(!world.exists("ws") && !world.exists("agent/workspaces"));
    assert!(world.server.requests().is_empty());
}

#[test]
fn an_unknown_option_is_refused_with_the_nearest() {
    refuses(&["run", "--mesage", "go"], &["--mesage", "--message"]);
    refuses(
        &["run", "-a", "agent", "-w", "ws", "-m", "go", "--work-dri=x"],
        &["--work-dri", "--work-dir"],
    );
    refuses(
        &["run", "-a", "agent", "-w", "ws", "-m", "go", "-Z"],
        &["-Z"],
    );
    refuses(&["run", "--formt=json"], &["--formt", "--format"]);
}

#[test]
fn an_unknown_command_is_refused_with_the_nearest() {
    refuses(&["rnu"], &["rnu", "run"]);
    refuses(&["chekc"], &["chekc", "check"]);
}

#[test]
fn no_command_at_all_is_wrong_usage() {
    let world = World::new();
    world.delta([]).refuses(2, "run");
}

#[test]
fn a_missing_value_is_refused() {
    refuses(&["run", "-a", "agent", "-w", "ws", "-m"], &["-m"]);
    refuses(
        &["run", "-a", "agent", "-m", "go", "--work-dir"],
        &["--work-dir"],
    );
}

#[test]
fn a_number_that_is_none_is_refused() {
    for number in ["many", "-1", "1.5", "", "99999999999999999999"] {
        refuses(
            &[
                "run",
                "-a",
                "agent",
                "-w",
                "ws",
                "-m",
                "go",
                "--max-iterations",
                number,
            ],
            &["--max-iterations", number],
        );
    }
}

#[test]
fn a_format_that_is_none_is_refused() {
    refuses(
        &[
            "run", "-a", "agent", "-w", "ws", "-m", "go", "--format", "xml",
        ],
        &["xml", "json"],
    );
}

#[test]
fn a_wrong_word_is_answered_with_the_right_ones_once() {
    refuses(
        &["run", "-m", "go", "--format", "yaml"],
        &["--format: unknown value 'yaml'; it is one of text, json, jsonl\n"],
    );
    refuses(
        &["run", "-m", "go", "--format", "jsno"],
        &["unknown value 'jsno'; did you mean 'json'?\n"],
    );
}

#[test]
fn the_format_raw_of_older_scripts_is_text() {
    let world = World::new();
    world.model_says([text("done")]);
    let run = world.run("go").args(["--format", "raw"]);
    run.exits(0).prints("done\n");
}

#[test]
fn every_command_shows_its_operands_and_required_options_in_the_usage() {
    let world = World::unasked();
    for (args, usage) in [
        (
            &["fork", "-h"][..],
            "usage: delta fork [OPTIONS] --at N [RUN]\n",
        ),
        (&["stats", "-h"], "usage: delta stats [OPTIONS] [RUN...]\n"),
        (
            &["schema", "-h"],
            "usage: delta schema agent|context|hooks\n",
        ),
        (
            &["run", "-qh"],
            "usage: delta run [OPTIONS] [@NAME] [TASK...]\n",
        ),
    ] {
        let help = world.delta(args.iter().copied()).exits(0);
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(help.starts_with(usage), "{help}");
        assert!(!help.contains("--task"), "{help}");
    }
}

#[test]
fn a_value_for_an_option_that_takes_none_is_refused() {
    refuses(
        &["run", "-a", "agent", "-w", "ws", "-m", "go", "--quiet=yes"],
        &["--quiet"],
    );
}

#[test]
fn a_word_too_many_is_refused() {
    refuses(&["continue", "-w", "ws", "-m", "say", "hello"], &["hello"]);
}

#[test]
fn the_old_task_option_names_its_successor() {
    refuses(
        &["run", "-a", "agent", "-w", "ws", "--task", "go"],
        &["--task", "-m"],
    );
    refuses(
        &["run", "-a", "agent", "-w", "ws", "--task=go"],
        &["--task", "-m"],
    );
}

#[test]
fn a_new_run_needs_a_message() {
    let world = World::new();
    world.rerun().refuses(2, "-m");
    assert!(!world.exists("ws/.delta/LATEST"));
}

#[test]
fn an_empty_message_is_refused() {
    refuses(&["run", "-a", "agent", "-w", "ws", "-m", ""], &["-m"]);
}

#[test]
fn a_run_id_that_is_none_is_refused() {
    let long = "a".repeat(65);
    for id in [
        "",
        ".hidden",
        "..",
        "a/b",
        "a b",
        "VERSION",
        "LATEST",
        "lock",
        "ü",
        long.as_str(),
    ] {
        refuses(
            &["run", "-a", "agent", "-w", "ws", "-m", "go", "--run-id", id],
            &["--run-id"],
        );
    }
}

#[test]
fn short_help_fits_on_a_screen() {
    let world = World::new();
    for args in [&["-h"][..], &["run", "-h"]] {
        let outcome = world.delta(args.iter().copied()).exits(0);
        let help = String::from_utf8(outcome.stdout).unwrap();
        assert_eq!(outcome.stderr, "");
        assert!(help.lines().count() <= 50, "{help}");
        assert!(
            help.lines().all(|line| line.chars().count() <= 80),
            "{help}"
        );
        assert!(help.contains("run"), "{help}");
    }
}

#[test]
fn long_help_is_the_manual() {
    let world = World::new();
    let long = world.delta(["--help"]).exits(0);
    assert_eq!(long.stderr, "");
    let long = String::from_utf8(long.stdout).unwrap();
    for word in [
        "--message",
        "--work-dir",
        "--run-id",
        "--max-iterations",
        "--format",
        "DELTA_API_KEY",
        "75",
        "101",
    ] {
        assert!(long.contains(word), "{word} missing in\n{long}");
    }
    world.delta(["run", "--help"]).exits(0);
}

#[test]
fn the_version_is_one_line() {
    let world = World::new();
    let version = concat!("delta ", env!("CARGO_PKG_VERSION"), "\n");
    world.delta(["-V"]).exits(0).prints(version);
    world.delta(["--version"]).exits(0).prints(version);
}

#[test]
fn options_may_be_joined_attached_and_repeated_words_ended() {
    let answered = |args: &[&str]| {
        let world = World::new();
        world.model_says([text("done")]);
        let outcome = world.delta(args.iter().copied()).exits(0).prints("done\n");
        assert!(world.exists("ws/.delta/LATEST"), "{}", outcome.describe());
        assert_eq!(world.server.last().messages()[1]["content"], "go");
        outcome
    };
    answered(&["run", "--agent=agent", "--work-dir=ws", "--message=go"]);
    answered(&["run", "-aagent", "-wws", "-mgo"]);
    answered(&[
        "run",
        "--agent",
        "agent",
        "--work-dir",
        "ws",
        "--message",
        "go",
        "--format=text",
    ]);
    answered(&["run", "-a", "agent", "-w", "ws", "-m", "go", "--"]);
    assert_eq!(answered(&["run", "-yqaagent", "-wws", "-mgo"]).stderr, "");
}

#[test]
fn a_message_may_look_like_an_option() {
    let world = World::new();
    world.model_says([text("done")]);
    world
        .delta(["run", "-a", "agent", "-w", "ws", "--message=--help"])
        .exits(0);
    assert_eq!(world.server.last().messages()[1]["content"], "--help");
}

#[test]
fn a_message_may_come_from_stdin() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("-").stdin("Read all of\nthis: é\n").exits(0);
    let said = world.server.last().messages()[1]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(said.trim_end(), "Read all of\nthis: é");
}

#[test]
fn a_message_from_stdin_may_be_empty_no_more_than_any_other() {
    let world = World::new();
    world.run("-").stdin("").refuses(2, "message");
    assert!(!world.exists("ws/.delta/LATEST"));
}

#[test]
fn an_open_pipe_on_stdin_that_nobody_writes_to_is_not_waited_for() {
    let world = World::with_tools("- {name: cat, exec: cat}");
    world.model_says([call("a", "cat", &json!({})), text("done")]);
    world.run("go").open_stdin().exits(0).prints("done\n");

    world.model_says([text("done")]);
    let delta = world.delta(["run", "-a", "agent", "-m", "go"]).open_stdin();
    delta.exits(0).prints("done\n");
    assert!(world.exists("agent/workspaces/W001"));
}

#[test]
fn closed_standard_streams_do_no_harm() {
    let world = World::with_tools("- {name: echo, shell: 'echo out; echo err >&2'}");
    world.model_says([call("a", "echo", &json!({})), text("done")]);
    let shell = "exec \"$0\" \"$@\" <&- >&- 2>&-";
    world.run("go").under(&["sh", "-c", shell]).end();
    let run = world.latest();
    assert_eq!(run.ending().0, "COMPLETED");
    let told = world.server.last().observation("a");
    assert_eq!(told.trim_end(), "out\n[stderr]\nerr");
}

#[test]
fn a_broken_pipe_is_quiet() {
    let world = World::new();
    let mut delta = Command::new(env!("CARGO_BIN_EXE_delta"));
    let mut child = delta
        .arg("--help")
        .current_dir(world.home())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(stderr, "");
    let status = child.wait().unwrap();
    assert!(
        status.code() != Some(101) && status.code() != Some(70),
        "{status}"
    );
}

#[test]
fn a_run_goes_on_when_nobody_reads_its_progress() {
    let world = World::with_tools("- {name: echo, exec: 'echo ${x}'}");
    world.model_says([call("a", "echo", &json!({"x": "y"})), text("done")]);
    // The reader of the pipe is gone before delta starts.
    let shell = "{ read wait < ../go; exec \"$0\" \"$@\"; } 2>&1 >../result | true; echo > ../over";
    fs::create_dir(world.path("in")).unwrap();
    let (mut go, mut over) = (world.fifo("go"), world.fifo("over"));
    let agent = world.path("agent");
    let delta = world
        .delta(["run", "-w", "../ws", "-m", "go", "-a"])
        .arg(agent)
        .cwd(world.path("in"));
    let delta = delta.under(&["sh", "-c", shell]).spawn();
    go.tell("on");
    over.line();
    delta.wait();
    assert_eq!(world.read("result"), "done\n");
    assert_eq!(world.latest().ending().0, "COMPLETED");
}

#[test]
fn a_full_device_for_the_result_is_an_error() {
    let world = World::new();
    world.model_says([text("done")]);
    let delta = world
        .run("go")
        .under(&["sh", "-c", "exec \"$0\" \"$@\" > /dev/full"]);
    let outcome = delta.end();
    assert_ne!(outcome.code(), Some(0), "{}", outcome.describe());
    outcome.does_not_say("panic");
}

#[test]
fn the_result_can_go_straight_into_a_file() {
    let world = World::new();
    world.model_says([text("done")]);
    let file = File::create(world.path("result")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_delta"));
    command
        .args(["run", "-a", "agent", "-w", "ws", "-q", "-m", "go"])
        .current_dir(world.home());
    command
        .env("HOME", world.home())
        .stdin(Stdio::null())
        .stdout(file);
    assert!(command.status().unwrap().success());
    assert_eq!(world.read("result"), "done\n");
}

#[test]
fn a_result_that_nobody_got_is_told_again_without_asking_the_model() {
    let world = World::new();
    world.model_says([text("done")]);
    let into = |file: &str| {
        let shell = format!("exec \"$0\" \"$@\" > {file}");
        world.run("go").under(&["sh", "-c", &shell])
    };
    into("/dev/full").exits(1).does_not_say("panic");
    into("/dev/full").exits(1).does_not_say("panic");
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.server.requests().len(), 1);
    assert_eq!(world.runs().len(), 1);
    assert_eq!(world.latest().ending().0, "COMPLETED");
}

#[test]
fn the_pages_that_are_listed_can_be_asked_for() {
    let world = World::new();
    let refused = world.delta(["help", "xyzzy"]).exits(2).describe();
    let (_, pages) = refused.split_once("it is one of ").unwrap();
    let pages: Vec<&str> = pages.lines().next().unwrap().split(", ").collect();
    let text = |page: &str| world.delta(["help", page]).exits(0).stdout;
    let texts: std::collections::HashSet<_> = pages.iter().map(|page| text(page)).collect();
    assert_eq!(texts.len(), pages.len());
}
