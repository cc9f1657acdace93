//! `delta chat`: a run, line by line, at a terminal and from a pipe.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::path::Path;

/// `delta chat` in `proj`, with the built-in agent.
fn chat<'a>(world: &World, args: impl IntoIterator<Item = &'a str>) -> Delta {
    let own = Path::new(env!("CARGO_BIN_EXE_delta")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    fs::create_dir_all(world.path("proj")).unwrap();
    let delta = world.delta(["chat"]).args(args).cwd(world.path("proj"));
    delta
        .env("PATH", format!("{}:{path}", own.display()))
        .env("DELTA_BASE_URL", world.server.url())
        .env("DELTA_MODEL", "chosen")
        .env("NO_COLOR", "1")
}

fn newest(world: &World) -> Run {
    Run::latest(&world.path("proj"))
}

fn said(run: &Run) -> Vec<String> {
    let content = |event: serde_json::Value| event["content"].as_str().unwrap().to_owned();
    run.events("USER_MESSAGE")
        .into_iter()
        .map(content)
        .collect()
}

#[test]
fn each_line_goes_on_with_one_ordinary_run() {
    let world = World::new();
    world.server.says([text("one"), text("two"), text("three")]);
    let input = "first\n\n  \n\"\"\"several\n\nlines\"\"\"\n\"\"\"\n  kept\n\"\"\"\n";
    chat(&world, [])
        .stdin(input)
        .end()
        .exits(0)
        .prints("one\ntwo\nthree\n");
    let run = newest(&world);
    assert_eq!(said(&run), ["first", "several\n\nlines", "  kept"]);
    assert_eq!(run.ending().0, "COMPLETED");
    let messages = world.server.last().messages();
    assert_eq!(messages.len(), 6, "{messages:?}");

    // It begins a new one, unless -w or --run-id says which.
    world.server.says([text("four"), text("five"), text("six")]);
    chat(&world, ["@coder"])
        .stdin("other")
        .end()
        .exits(0)
        .prints("four\n");
    assert_ne!(newest(&world), run);
    chat(&world, ["--run-id", &run.id()])
        .stdin("fourth\n")
        .end()
        .exits(0);
    assert_eq!(said(&run).len(), 4);
    chat(&world, ["-w", "."]).stdin("second\n").end().exits(0);
    assert_eq!(said(&newest(&world)), ["other", "second"]);
    chat(&world, ["--run-id", "none"])
        .stdin("x")
        .end()
        .exits(1)
        .says("no run none");
    chat(&world, ["hello"])
        .stdin("x")
        .end()
        .exits(2)
        .says("'hello' is no agent");
    chat(&world, []).stdin("").end().exits(0).prints("");
}

#[test]
fn an_open_question_comes_first_and_its_answer_is_no_message() {
    let world = World::new();
    let asks = |id: &str| call(id, "ask_human", &json!({"prompt": "Which?"}));
    world.server.says([asks("c1")]);
    // The input ends at the question.
    chat(&world, [])
        .stdin("paint it\n")
        .end()
        .exits(101)
        .says("Which?");
    let run = newest(&world);
    assert_eq!(run.ending().0, "WAITING_FOR_INPUT");
    world.server.says([text("blue it is"), text("bye")]);
    let on = chat(&world, ["-w", "."]).stdin("blue\nthank you\n").end();
    on.exits(0).prints("blue it is\nbye\n");
    assert_eq!(said(&run), ["paint it", "thank you"]);
    let answer = run.events("HUMAN_INPUT_RECEIVED").remove(0);
    assert_eq!(answer["response"], "blue");
}

#[test]
fn where_nobody_types_an_answer_that_does_not_come_is_the_end() {
    let world = World::new();
    world.server.says([Reply::error(401, "no such key")]);
    chat(&world, [])
        .stdin("one\ntwo\n")
        .end()
        .exits(4)
        .says("no such key");
    assert_eq!(said(&newest(&world)), ["one"]);
}

#[test]
fn at_a_terminal_ctrl_c_stops_the_answer_and_ctrl_d_ends() {
    let world = World::new();
    let mut terminal = Terminal::new();
    world.server.says([
        text("hello"),
        text("never").held(),
        text("and on"),
        Reply::error(401, "refused"),
    ]);
    let running = chat(&world, []).at(&terminal).spawn();
    let head = terminal.shows("> ");
    assert!(head.contains("coder, chosen in "), "{head}");
    terminal.types("hi\n");
    terminal.shows("[1] answers");
    terminal.shows("> ");
    terminal.types("wait\n");
    world.server.wait_for(2);
    running.signal(Signal::INT);
    terminal.shows("stopped; the next message goes on from here");
    terminal.shows("> ");
    // At the prompt it clears the line.
    running.signal(Signal::INT);
    terminal.shows("\n> ");
    terminal.types("on\n");
    terminal.shows("[2] answers");
    terminal.shows("> ");
    terminal.types("once more\n");
    terminal.shows("refused");
    terminal.shows("> ");
    terminal.types("\u{4}");
    running.wait().exits(0).prints("hello\nand on\n");
    assert_eq!(said(&newest(&world)), ["hi", "wait", "on", "once more"]);

    let mut terminal = Terminal::new();
    let running = chat(&world, []).at(&terminal).spawn();
    terminal.shows("> ");
    running.signal(Signal::TERM);
    running.wait().exits(143);
}

#[test]
fn a_question_is_asked_again_after_ctrl_c_and_before_the_next_message() {
    let world = World::new();
    let mut terminal = Terminal::new();
    world
        .server
        .says([call("c1", "ask_human", &json!({"prompt": "Which?"}))]);
    let running = chat(&world, []).at(&terminal).spawn();
    terminal.shows("> ");
    terminal.types("paint it\n");
    terminal.shows("Which? ");
    running.signal(Signal::INT);
    terminal.shows("> ");
    world.server.says([text("red it is"), text("bye")]);
    terminal.types("thank you\n");
    terminal.shows("Which? ");
    terminal.types("red\n");
    terminal.shows("[2] answers");
    terminal.shows("[3] answers");
    terminal.types("\u{4}");
    running.wait().exits(0).prints("red it is\nbye\n");
    assert_eq!(said(&newest(&world)), ["paint it", "thank you"]);
}

#[test]
fn an_agent_that_is_given_by_path_has_its_own_workspaces() {
    let world = World::new();
    world.server.says([text("a"), text("b")]);
    chat(&world, ["-a", "../agent"])
        .stdin("x\ny\n")
        .end()
        .exits(0)
        .prints("a\nb\n");
    let run = Run::latest(&world.path("agent/workspaces/W001"));
    assert_eq!(said(&run), ["x", "y"]);
    // `delta run` does not take an ended conversation for an unfinished run.
    assert_eq!(
        fs::read_dir(world.path("agent/workspaces/open"))
            .unwrap()
            .count(),
        0
    );
}
