//! `delta flow repl`: a flow line by line.

use crate::flow::run::chain;
use crate::harness::*;
use rustix::process::Signal;
use std::fs;

/// A flow whose node prints what it got, and how often a task was at it in its directory.
fn echoing() -> World {
    let world = World::unasked();
    world.write(
        "f/echo.sh",
        "cat >x; cat x >>was; grep -q '^\"fail\"$' x && exit 1; cat x; echo\n",
    );
    chain(&world, "command: [sh, '${FLOW_HOME}/echo.sh']");
    world
}

fn repl(world: &World) -> Delta {
    Delta::flow(world.home()).args(["repl", "f", "-w", "ws"])
}

fn only_run(world: &World) -> Run {
    let mut runs = world.runs();
    assert_eq!(runs.len(), 1);
    runs.remove(0)
}

#[test]
fn each_line_is_a_task_of_one_run() {
    let world = echoing();
    let lines = "one\n\n\"\"\"two\nlines\"\"\"\nthree";
    let ended = repl(&world).args(["--run-id", "r"]).stdin(lines).end();
    ended
        .exits(0)
        .prints("\"one\"\n\"two\\nlines\"\n\"three\"\n");
    let run = only_run(&world);
    let created = run.events("TASK_CREATED");
    let ids: Vec<_> = created.iter().map(|event| &event["task_id"]).collect();
    assert_eq!(ids, ["T1", "T2", "T3"]);
    // Each has a directory of its own, and nothing that ended runs again.
    assert_eq!(world.read("ws/tasks/r/T1/was"), "\"one\"");
    // The same name goes on with it.
    let more = repl(&world).args(["--run-id", "r"]).stdin("four\n").end();
    more.exits(0).prints("\"four\"\n");
    assert!(world.exists("ws/tasks/r/T4/was"));
    assert_eq!(only_run(&world).events("TASK_CREATED").len(), 4);
}

#[test]
fn a_failure_ends_it_only_where_nobody_types() {
    let world = echoing();
    let ended = repl(&world).stdin("one\nfail\nthree\n").end();
    ended.exits(1).prints("\"one\"\n").says("T2: a: operation");
    let mut terminal = Terminal::new();
    let running = repl(&world).at(&terminal).spawn();
    terminal.shows("Ctrl-D ends");
    terminal.shows("> ");
    terminal.types("fail\n");
    terminal.shows("operation");
    terminal.shows("> ");
    terminal.types("fine\n");
    terminal.shows("T2");
    terminal.shows("> ");
    terminal.types("/nope\n");
    terminal.shows("there are /attach");
    terminal.types("/quit\n");
    running.wait().exits(0).prints("\"fine\"\n");
}

#[test]
fn profiles_say_what_a_line_is_and_bring_commands() {
    let world = echoing();
    world.write(
        "f/cli_profiles.yaml",
        "profiles:
- {id: words}
- id: data
  mode: json
  start: s
  commands:
  - {name: shout, shell: 'tr a-z A-Z; echo \" in $FLOW_RUN_ID\"'}
",
    );
    let lines = "/profile\nplain\n/profile data\n{\"a\": [1]}\n/shout well done\n";
    let ended = repl(&world).args(["--run-id", "r"]).stdin(lines).end();
    ended
        .exits(0)
        .prints("* words  raw\n  data  json\n\"plain\"\n{\"a\":[1]}\nWELL DONE in r\n");
    let wrong = repl(&world).args(["--profile", "data"]).stdin("no\n").end();
    wrong.exits(2).says("not JSON");
    repl(&world)
        .args(["--profile", "dat"])
        .stdin("1\n")
        .exits(2)
        .says("did you mean 'data'");
}

#[test]
fn files_are_attached_and_lines_are_edited_remembered_and_shown() {
    let world = echoing();
    world.write("note.txt", "in the file\n");
    world.script("editor", "#!/bin/sh\nprintf 'from the editor\\n' >\"$1\"\n");
    let lines = "/attach note.txt\nlook\n/edit\n/show T2\n/history\n";
    let command = repl(&world)
        .args(["--run-id", "r"])
        .env("EDITOR", world.path("editor"));
    let ended = command.stdin(lines).exits(0);
    let said = String::from_utf8(ended.stdout).unwrap();
    let expected = "\"# File: note.txt\\n\\nin the file\\n\\n\\nlook\"\n\"from the editor\"\nT2  success  s > a > x\n";
    assert!(said.starts_with(expected), "{said}");
    assert!(
        said.ends_with("/attach note.txt\nlook\n/edit\n/show T2\n/history\n"),
        "{said}"
    );
    // The next conversation in the workspace knows it, too.
    let again = repl(&world).stdin("/history\n").exits(0);
    assert!(String::from_utf8(again.stdout).unwrap().contains("look\n"));
    repl(&world).stdin("/attach none\n").exits(1).says("none");
}

#[test]
fn a_history_that_is_no_file_is_an_error_and_hangs_nothing() {
    let world = echoing();
    repl(&world).stdin("one\n").exits(0);
    let history = world.path("ws/.delta/.repl/history.jsonl");
    fs::remove_file(&history).unwrap();
    let mut pipe = std::process::Command::new("mkfifo");
    assert!(pipe.arg(&history).status().unwrap().success());
    let ended = repl(&world).stdin("/history\n").end();
    ended.exits(1).says("it is not a regular file");
}

#[test]
fn ctrl_c_stops_a_task_and_the_next_line_takes_it_up() {
    let world = World::unasked();
    chain(
        &world,
        "shell: 'read -r x; test -e $HOME/go || { touch $HOME/here; exec sleep 1000; }; echo \"$x\"'",
    );
    let mut terminal = Terminal::new();
    let running = repl(&world).at(&terminal).spawn();
    terminal.shows("> ");
    terminal.types("one\n");
    eventually("it runs", || world.exists("here"));
    running.signal(Signal::INT);
    terminal.shows("ended by");
    terminal.shows("> ");
    world.write("go", "");
    terminal.types("two\n");
    terminal.shows("> ");
    terminal.types("\u{4}");
    running.wait().exits(0).prints("\"two\"\n");
    let run = only_run(&world);
    let ends = run.events("TASK_END");
    assert!(
        ends.iter().all(|end| end["status"] == "success"),
        "{ends:?}"
    );
    assert_eq!(ends.len(), 2);
}

#[test]
fn faults_of_profiles_are_errors_of_the_flow_and_foreign_records_are_refused() {
    let world = echoing();
    repl(&world).stdin("one\n").exits(0);
    copy(&world.path("ws"), &world.path("theirs"));
    let theirs = Delta::flow(world.home()).args(["repl", "f", "-w", "theirs"]);
    theirs.stdin("one\n").exits(78).says("--adopt");
    let found = fs::read_dir(world.path("theirs/.delta")).unwrap().count();
    assert_eq!(
        found,
        fs::read_dir(world.path("ws/.delta")).unwrap().count()
    );
    world.write(
        "f/cli_profiles.yaml",
        "profiles:
- {id: a, start: x}
- {id: b, mode: loud}
- {id: c, commands: [{name: quit, exec: 'true'}, {name: d}]}
",
    );
    let errors = errors_of(&world, "f");
    for words in [
        "x is not a start node",
        "mode",
        "command /quit already",
        "/d has no command",
    ] {
        let is_it = |error: &&serde_json::Value| error["message"].as_str().unwrap().contains(words);
        let error = errors
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("{words} in {errors:?}"));
        assert_eq!(error["file"], "cli_profiles.yaml");
    }
    assert_eq!(errors.len(), 4);
}
