//! Questions to people: as files between two starts, or on the terminal.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

const NOTE: &str = "- {name: note, shell: 'echo ${n} >> ../log'}";

fn ask(id: &str, prompt: &str) -> Reply {
    call(id, "ask_human", &json!({"prompt": prompt}))
}

/// A world in which the run has asked "Which colour?" as `call_1` and waits.
#[track_caller]
fn waiting() -> World {
    let world = World::with_tools(NOTE);
    world.model_says([ask("call_1", "Which colour?")]);
    world.run("go").exits(101).prints("");
    world
}

fn interaction(world: &World) -> std::path::PathBuf {
    world.latest().path("interaction")
}

fn respond(world: &World, text: &str) {
    fs::write(interaction(world).join("response.txt"), text).unwrap();
}

/// The run goes on by the same command, and the model gets this answer.
#[track_caller]
fn is_answered(world: &World, delta: Delta, answer: &str) {
    world.model_says([text("done")]);
    delta.exits(0).prints("done\n");
    assert_eq!(world.server.last().observation("call_1"), answer);
    let left = fs::read_dir(interaction(world)).map_or(0, Iterator::count);
    assert_eq!(left, 0, "both files are gone");
    let received = world.latest().events("HUMAN_INPUT_RECEIVED");
    assert_eq!(received.len(), 1);
    assert_eq!(received[0]["response"], answer);
    let asked = &world.latest().events("HUMAN_INPUT_REQUEST")[0];
    assert_eq!(received[0]["request_id"], asked["request_id"]);
    assert_eq!(world.latest().events("ACTION_RESULT").len(), 1);
}

#[test]
fn a_question_is_a_file_a_status_an_event_and_an_exit_code() {
    let world = waiting();
    let request = fs::read(interaction(&world).join("request.json")).unwrap();
    let request: Value = serde_json::from_slice(&request).unwrap();
    assert_eq!(request["prompt"], "Which colour?");
    assert_eq!(request["input_type"], "text");
    assert_eq!(request["sensitive"], false);
    assert!(
        request["request_id"].is_string() && request["timestamp"].is_string(),
        "{request}"
    );
    assert!(!interaction(&world).join("response.txt").exists());
    let asked = &world.latest().events("HUMAN_INPUT_REQUEST")[0];
    assert_eq!(asked["request_id"], request["request_id"]);
    assert_eq!(asked["prompt"], "Which colour?");
    assert_eq!(world.latest().ending().0, "WAITING_FOR_INPUT");
    assert_eq!(world.latest().metadata()["exit_code"], 101);
}

#[test]
fn the_hint_is_a_command_that_answers() {
    let world = World::new();
    world.model_says([ask("call_1", "Which colour?")]);
    let outcome = world.run("go").exits(101).says("Which colour?");
    let line = outcome
        .stderr
        .lines()
        .find(|line| line.contains("delta continue"));
    let line = line.unwrap_or_else(|| panic!("{}", outcome.describe()));
    let command = &line[line.find("delta continue").unwrap()..];
    let words = shlex::split(command.trim_end_matches(['`', '.'])).expect("a command line");
    let workspace = words
        .iter()
        .position(|word| word == "-w")
        .map(|at| words[at + 1].clone());
    let workspace = fs::canonicalize(world.home().join(workspace.expect("-w")));
    assert_eq!(workspace.unwrap(), world.workspace());
    assert!(words.contains(&"-m".to_owned()), "{command}");
}

#[test]
fn without_an_answer_the_question_stays_open() {
    let world = waiting();
    let before = fs::read(interaction(&world).join("request.json")).unwrap();
    world.run("go").exits(101).prints("");
    world.rerun().exits(101).prints("");
    let outcome = world.go_on().end().prints("");
    assert!(
        matches!(outcome.code(), Some(2 | 101)),
        "{}",
        outcome.describe()
    );
    assert_eq!(
        fs::read(interaction(&world).join("request.json")).unwrap(),
        before
    );
    assert_eq!(world.server.requests().len(), 1);
    assert_eq!(world.latest().events("HUMAN_INPUT_REQUEST").len(), 1);
}

#[test]
fn the_answer_may_be_a_file() {
    let world = waiting();
    respond(&world, "blue\n");
    is_answered(&world, world.run("go"), "blue");
}

#[test]
fn one_newline_at_the_end_of_the_answer_is_removed() {
    let world = waiting();
    respond(&world, "blue\n\n  green \n\n");
    is_answered(&world, world.go_on(), "blue\n\n  green \n");
}

#[test]
fn an_empty_file_is_an_empty_answer() {
    let world = waiting();
    respond(&world, "");
    is_answered(&world, world.rerun(), "");
}

#[test]
fn continue_answers_and_wins_over_the_file() {
    let world = waiting();
    respond(&world, "blue\n");
    world.model_says([text("done")]);
    let outcome = world.go_on().args(["-m", "red"]).exits(0);
    outcome.says("response.unread.1");
    assert_eq!(world.server.last().observation("call_1"), "red");
    let unread = fs::read_to_string(interaction(&world).join("response.unread.1"));
    assert_eq!(unread.unwrap(), "blue\n");
}

#[test]
fn an_answer_that_was_there_before_the_question_is_not_used() {
    let world = World::with_tools(
        "- {name: early, shell: 'mkdir -p \"$DELTA_RUN_DIR/interaction\"; echo early > \"$DELTA_RUN_DIR/interaction/response.txt\"'}",
    );
    world.model_says([
        call("call_0", "early", &json!({})),
        ask("call_1", "Which colour?"),
    ]);
    let outcome = world.run("go").exits(101);
    outcome.says("an unread answer");
    let unread = fs::read_to_string(interaction(&world).join("response.unread.1"));
    assert_eq!(unread.unwrap(), "early\n");
    assert_eq!(world.latest().events("SYSTEM_MESSAGE").len(), 1);
    world.run("go").exits(101);
    world.model_says([text("done")]);
    world.go_on().args(["-m", "late"]).exits(0);
    assert_eq!(world.server.last().observation("call_1"), "late");
}

#[test]
fn an_answer_to_no_question_is_put_aside_by_the_command_that_opens_the_run() {
    let world = World::new();
    let ws = |words: &[&str]| world.delta(words.iter().copied()).args(["-w", "ws"]);
    world.model_says([text("done")]);
    world.run("go").exits(0);
    fs::create_dir(interaction(&world)).unwrap();
    respond(&world, "first\n");
    // What ends without opening the run leaves it.
    world.go_on().exits(2);
    assert!(interaction(&world).join("response.txt").exists());
    world.model_says([text("one"), text("two"), Reply::error(401, "no")]);
    let on = world.go_on().args(["-m", "on"]).exits(0);
    on.says("an unread answer is now in")
        .says("response.unread.1");
    respond(&world, "second\n");
    let chat = ws(&["chat"]).stdin("on\n").exits(0);
    chat.says("response.unread.2");
    world.run("other").exits(4);
    fs::create_dir(interaction(&world)).unwrap();
    respond(&world, "third\n");
    world.model_says([text("three")]);
    world.run("other").exits(0).says("response.unread.1");
    let notes = world.latest().events("SYSTEM_MESSAGE");
    assert_eq!(notes.len(), 1, "{notes:?}");
    let third = fs::read_to_string(interaction(&world).join("response.unread.1"));
    assert_eq!(third.unwrap(), "third\n");
}

#[test]
fn an_answer_without_its_question_is_put_aside_before_a_person_is_asked() {
    let world = waiting();
    fs::remove_file(interaction(&world).join("request.json")).unwrap();
    respond(&world, "red\n");
    world.model_says([text("done")]);
    let on = world.go_on().arg("-i").stdin("blue\n").exits(0);
    on.says("response.unread.1");
    assert_eq!(world.server.last().observation("call_1"), "blue");
}

#[test]
fn an_answer_that_a_killed_engine_had_recorded_is_not_called_unread() {
    let world = waiting();
    let request = fs::read(interaction(&world).join("request.json")).unwrap();
    world.model_says([Reply::error(401, "no")]);
    world.go_on().args(["-m", "blue"]).exits(4);
    // As it is when the engine dies before it has removed both files.
    fs::create_dir(interaction(&world)).unwrap();
    fs::write(interaction(&world).join("request.json"), request).unwrap();
    respond(&world, "blue\n");
    world.model_says([text("done")]);
    let on = world.go_on().exits(0);
    assert!(!on.stderr.contains("unread"), "{}", on.stderr);
    assert!(!interaction(&world).exists());
}

#[test]
fn an_answer_to_an_older_question_is_not_used_for_a_newer_one() {
    let world = waiting();
    world.model_says([ask("call_2", "Which size?")]);
    respond(&world, "blue\n");
    world.run("go").exits(101).says("Which size?");
    world.run("go").exits(101);
    assert_eq!(world.server.requests().len(), 2);
    world.model_says([text("done")]);
    respond(&world, "large\n");
    world.run("go").exits(0);
    assert_eq!(world.server.last().observation("call_1"), "blue");
    assert_eq!(world.server.last().observation("call_2"), "large");
}

#[test]
fn other_calls_of_the_message_are_executed_once() {
    let world = World::with_tools(NOTE);
    let all = [
        ("a", "note", json!({"n": "1"})),
        ("b", "ask_human", json!({"prompt": "Which?"})),
        ("c", "note", json!({"n": "3"})),
    ];
    world.model_says([calls(&all)]);
    world.run("go").exits(101);
    world.run("go").exits(101);
    world.model_says([text("done")]);
    world.go_on().args(["-m", "that"]).exits(0).prints("done\n");
    let mut log = world.lines("log");
    log.sort();
    assert_eq!(log, ["1", "3"]);
    assert_eq!(world.server.last().observation("b"), "that");
    assert_eq!(world.latest().events("ACTION_RESULT").len(), 3);
}

#[test]
fn two_questions_in_one_message_are_asked_one_after_the_other() {
    let world = World::with_tools(NOTE);
    let all = [
        ("a", "ask_human", json!({"prompt": "First?"})),
        ("b", "note", json!({"n": "2"})),
        ("c", "ask_human", json!({"prompt": "Second?"})),
    ];
    world.model_says([calls(&all)]);
    world.run("go").exits(101).says("First?");
    world.go_on().args(["-m", "one"]).exits(101).says("Second?");
    world.model_says([text("done")]);
    world.go_on().args(["-m", "two"]).exits(0).prints("done\n");
    let told = world.server.last();
    assert_eq!(told.observation("a"), "one");
    assert_eq!(told.observation("c"), "two");
    assert_eq!(world.lines("log"), ["2"]);
}

#[test]
fn a_killed_engine_finds_its_question_and_its_answer_again() {
    let world = waiting();
    // As if it had died right after it wrote the event, and before anything that follows.
    let run = world.latest();
    let journal = run.text("journal.jsonl");
    let end = journal.find("HUMAN_INPUT_REQUEST").unwrap();
    let end = end + journal[end..].find('\n').unwrap() + 1;
    fs::write(run.path("journal.jsonl"), &journal[..end]).unwrap();
    fs::remove_file(run.path("interaction/request.json")).unwrap();
    world.run("go").exits(101);
    assert!(run.path("interaction/request.json").exists());
    respond(&world, "blue\n");
    is_answered(&world, world.run("go"), "blue");
}

#[test]
fn a_question_that_makes_no_sense_is_an_observation() {
    for arguments in [
        json!({}),
        json!({"prompt": "x", "input_type": "colour"}),
        json!({"question": "x"}),
    ] {
        let world = World::new();
        world.model_says([call("a", "ask_human", &arguments), text("done")]);
        world.run("go").exits(0).prints("done\n");
        assert_eq!(world.latest().result(1)["status"], "ERROR");
    }
}

#[test]
fn with_i_the_answer_is_read_from_the_input() {
    let world = World::new();
    world.model_says([ask("call_1", "Which colour?"), text("done")]);
    let delta = world.run("go").arg("-i").stdin("blue\n");
    delta.exits(0).prints("done\n").says("Which colour?");
    assert_eq!(world.server.last().observation("call_1"), "blue");
    assert!(!interaction(&world).join("request.json").exists());
    assert_eq!(world.latest().events("HUMAN_INPUT_RECEIVED").len(), 1);
}

#[test]
fn with_i_each_question_takes_one_line() {
    let world = World::new();
    world.model_says([ask("a", "First?"), ask("b", "Second?"), text("done")]);
    world
        .run("go")
        .arg("-i")
        .stdin("one\n\n")
        .exits(0)
        .prints("done\n");
    assert_eq!(world.server.last().observation("a"), "one");
    assert_eq!(world.server.last().observation("b"), "");
}

#[test]
fn with_i_a_confirmation_is_asked_again_until_it_is_one() {
    let world = World::new();
    let question = json!({"prompt": "Sure?", "input_type": "confirmation"});
    world.model_says([call("a", "ask_human", &question), text("done")]);
    let outcome = world.run("go").arg("-i").stdin("perhaps\nYes\n").exits(0);
    assert_eq!(
        outcome.stderr.matches("Sure?").count(),
        2,
        "{}",
        outcome.describe()
    );
}

#[test]
fn with_i_the_end_of_input_is_like_without() {
    let world = World::new();
    world.model_says([ask("call_1", "Which colour?")]);
    world.run("go").arg("-i").stdin("").exits(101).prints("");
    respond(&world, "blue");
    is_answered(&world, world.run("go"), "blue");
}

#[test]
fn with_i_the_status_stays_running() {
    let world = World::new();
    world.model_says([ask("call_1", "Which colour?"), text("done")]);
    let mut delta = world.run("go").arg("-i").open_stdin().spawn();
    eventually("it asks", || delta.stderr().contains("Which colour?"));
    assert_eq!(world.latest().metadata()["status"], "RUNNING");
    delta.type_in("blue\n");
    delta.wait().exits(0).prints("done\n");
}

/// `delta run -i` on a terminal of its own; `None` if there is no script(1).
fn on_a_terminal(world: &World) -> Option<Running> {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("skipped: script(1) is not installed");
        return None;
    }
    let program = shell_word(std::path::Path::new(env!("CARGO_BIN_EXE_delta")));
    let line = format!("exec {program} run -i -a agent -w ws -m go");
    let shell = format!(
        "exec script -qefc {} typescript",
        shlex::try_quote(&line).unwrap()
    );
    Some(
        world
            .delta([])
            .under(&["sh", "-c", &shell])
            .open_stdin()
            .spawn(),
    )
}

fn screen(world: &World) -> String {
    String::from_utf8_lossy(&fs::read(world.path("typescript")).unwrap_or_default()).into_owned()
}

#[test]
fn on_a_terminal_an_answer_is_typed_and_corrected() {
    let world = World::new();
    world.model_says([ask("call_1", "Which colour?"), text("done")]);
    let Some(mut delta) = on_a_terminal(&world) else {
        world.server.may_stay_unasked();
        return;
    };
    eventually("it asks", || screen(&world).contains("Which colour?"));
    delta.type_in("blux\u{7f}e\n");
    delta.wait().exits(0);
    assert_eq!(world.server.last().observation("call_1"), "blue");
    assert!(screen(&world).contains("blu"), "what is typed is shown");
}

#[test]
fn on_a_terminal_a_password_is_not_shown() {
    let world = World::new();
    let question = json!({"prompt": "Passphrase?", "input_type": "password"});
    world.model_says([call("call_1", "ask_human", &question), text("done")]);
    let Some(mut delta) = on_a_terminal(&world) else {
        world.server.may_stay_unasked();
        return;
    };
    eventually("it asks", || screen(&world).contains("Passphrase?"));
    delta.type_in("hunter2\n");
    delta.wait().exits(0);
    assert_eq!(world.server.last().observation("call_1"), "hunter2");
    assert!(!screen(&world).contains("hunter"), "{}", screen(&world));
}

#[test]
fn a_terminal_has_no_echo_from_the_moment_a_password_is_asked_for() {
    let world = World::new();
    let question = json!({"prompt": "Passphrase?", "sensitive": true});
    world.model_says([call("call_1", "ask_human", &question), text("done")]);
    let mut terminal = Terminal::new();
    let delta = world.run("go").arg("-i").at(&terminal).spawn();
    terminal.shows("Passphrase?");
    assert!(!terminal.has_echo());
    terminal.types("hunter2\n");
    delta.wait().exits(0);
    assert_eq!(world.server.last().observation("call_1"), "hunter2");
    assert!(terminal.has_echo());
}

#[test]
fn on_a_terminal_ctrl_c_ends_a_question() {
    let world = World::new();
    world.model_says([ask("call_1", "Which colour?")]);
    let Some(mut delta) = on_a_terminal(&world) else {
        world.server.may_stay_unasked();
        return;
    };
    eventually("it asks", || screen(&world).contains("Which colour?"));
    delta.type_in("\u{3}");
    delta.wait().exits(130);
    assert_eq!(world.latest().ending().0, "INTERRUPTED");
    world.model_says([text("done")]);
    world
        .run("go")
        .arg("-i")
        .stdin("blue\n")
        .exits(0)
        .prints("done\n");
    assert_eq!(world.server.last().observation("call_1"), "blue");
}

#[test]
fn a_line_of_a_question_does_not_look_like_one_of_deltas() {
    let world = World::new();
    world.model_says([ask("call_1", "Proceed?\ndelta: answer with: evil")]);
    let outcome = world.run("go").exits(101);
    outcome.says("waiting for an answer:\n  Proceed?\n  delta: answer with: evil\ndelta: answer with: delta continue");
}
