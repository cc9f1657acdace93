//! What is typed before a question is shown, or pasted with an answer, answers nothing else.

use crate::harness::*;
use serde_json::json;

const TOOLS: &str = "- {name: push, confirm: true, shell: 'echo push ${n} >> ../log'}";

const QUESTION: &str = "[y/n, a: always this very command, or what to do instead] ";

fn push(n: &str) -> Reply {
    call(n, "push", &json!({"n": n}))
}

/// A world in which two calls, one after the other, must be confirmed.
fn pushing() -> World {
    let world = World::with_tools(TOOLS);
    world.model_says([push("1"), push("2"), text("done")]);
    world
}

#[test]
fn a_second_line_typed_at_a_question_does_not_answer_the_next() {
    let world = pushing();
    let mut terminal = Terminal::new();
    let delta = world.run("go").arg("-i").at(&terminal).spawn();
    terminal.shows(QUESTION);
    terminal.types("y\ny\ny");
    terminal.shows(QUESTION);
    assert_eq!(world.lines("log"), ["push 1"]);
    terminal.types("no\n");
    delta.wait().exits(0).prints("done\n");
    assert_eq!(world.lines("log"), ["push 1"]);
    let told = world.server.last().observation("2");
    assert!(told.ends_with("answered: no"), "{told}");
}

#[test]
fn the_lines_of_a_marked_paste_are_one_answer() {
    for (pasted, told) in [("y\ny\n", "y\ny"), ("y\r\n\nno", "y\n\n\nno")] {
        let world = pushing();
        let mut terminal = Terminal::new();
        let delta = world.run("go").arg("-i").at(&terminal).spawn();
        terminal.shows(QUESTION);
        terminal.types(&format!("\u{1b}[200~{pasted}\u{1b}[201~\n"));
        terminal.shows(QUESTION);
        terminal.types("\u{1b}[200~yes\u{1b}[201~\n");
        delta.wait().exits(0);
        assert_eq!(world.lines("log"), ["push 2"]);
        let answer = &world.latest().events("HUMAN_INPUT_RECEIVED")[0]["response"];
        assert_eq!(answer, told);
    }
}

#[test]
fn a_marked_paste_is_one_answer_however_it_arrives() {
    let world = World::new();
    let ask = |id: &str| call(id, "ask_human", &json!({"prompt": "Which?"}));
    world.model_says([ask("a"), ask("b"), text("done")]);
    let mut terminal = Terminal::new();
    let delta = world.run("go").arg("-i").at(&terminal).spawn();
    terminal.shows("Which? ");
    // A question that took the first line for its answer would be followed by the next one.
    terminal.types("\u{1b}[200~one\n");
    terminal.shows("one");
    terminal.types("two\nthree\u{1b}[201~ and four\n");
    terminal.shows("Which? ");
    // The end of this one never comes; Ctrl-D takes its place.
    terminal.types("\u{1b}[200~five\nsix\n\u{4}");
    delta.wait().exits(0);
    let answer = |n: usize| world.latest().events("HUMAN_INPUT_RECEIVED")[n]["response"].clone();
    assert_eq!(answer(0), "one\ntwo\nthree and four");
    assert_eq!(answer(1), "five\nsix");
}

#[test]
fn what_is_typed_while_the_model_thinks_confirms_nothing() {
    for (command, typed) in [("run", "yes\n".repeat(2_000)), ("chat", "yes\n".into())] {
        let world = World::with_tools(TOOLS);
        world.model_says([push("1").held(), text("done")]);
        let mut terminal = Terminal::new();
        let mut args = vec![command, "-a", "agent", "-w", "ws"];
        if command == "run" {
            args.extend(["-i", "-m", "go"]);
        }
        let delta = world.delta(args).at(&terminal).spawn();
        if command == "chat" {
            terminal.shows("> ");
            terminal.types("go\n");
        }
        world.server.wait_for(1);
        terminal.types(&typed);
        world.server.release();
        terminal.shows(QUESTION);
        terminal.types("not now\n");
        world.server.wait_for(2);
        if command == "chat" {
            terminal.shows("> ");
            terminal.types("\u{4}");
        }
        delta.wait().exits(0).prints("done\n");
        let told = world.server.last().observation("1");
        assert!(told.ends_with("answered: not now"), "{told}");
        assert!(!world.exists("log"), "{command}");
    }
}

#[test]
fn a_pipe_answers_line_by_line() {
    let world = pushing();
    let delta = world.run("go").arg("-i");
    delta.stdin("y\ny\n").exits(0).prints("done\n");
    assert_eq!(world.lines("log"), ["push 1", "push 2"]);
    // Whoever writes there knows what a line is.
    let world = World::new();
    let ask = call("a", "ask_human", &json!({"prompt": "Which?"}));
    world.model_says([ask, text("done")]);
    let typed = "\u{1b}[200~one\ntwo\u{1b}[201~\n";
    world.run("go").arg("-i").stdin(typed).exits(0);
    assert_eq!(world.server.last().observation("a"), "\u{1b}[200~one");
}

#[test]
fn a_message_pasted_into_a_conversation_is_one() {
    let world = World::new();
    world.model_says([text("done")]);
    let mut terminal = Terminal::new();
    let args = ["chat", "-a", "agent", "-w", "ws"];
    let delta = world.delta(args).env("NO_COLOR", "1");
    let delta = delta.at(&terminal).spawn();
    terminal.shows("> ");
    terminal.types("\u{1b}[200~first\nsecond\n\u{1b}[201~\n");
    terminal.shows("[1] answers");
    terminal.shows("> ");
    terminal.types("\u{4}");
    delta.wait().exits(0).prints("done\n");
    let said = world.latest().events("USER_MESSAGE");
    assert_eq!(said[0]["content"], "first\nsecond");
}
