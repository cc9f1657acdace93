//! Lines that a person edits at a terminal: in `delta chat`, its words, and questions.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `delta chat` at a terminal that can redraw lines, with the agent probe, in `ws`.
fn chat(world: &World, terminal: &Terminal) -> Delta {
    let delta = world.delta(["chat", "-a", "agent", "-w", "ws"]);
    delta.env("TERM", "xterm").env("NO_COLOR", "1").at(terminal)
}

/// The same with the terminal as the controlling one, as for a shell.
fn controlled_chat(world: &World, terminal: &Terminal) -> Delta {
    chat(world, terminal).under(&["setsid", "--ctty"])
}

fn said(run: &Run) -> Vec<String> {
    let content = |event: Value| event["content"].as_str().unwrap().to_owned();
    run.events("USER_MESSAGE")
        .into_iter()
        .map(content)
        .collect()
}

/// Types a line, and waits for its answer and the next prompt.
fn say(terminal: &mut Terminal, line: &str, answered: &str) -> String {
    terminal.types(&format!("{line}\r"));
    let shown = terminal.shows(answered);
    terminal.shows("> ");
    shown
}

fn history(world: &World) -> PathBuf {
    world.path(".local/state/delta/chat_history")
}

/// The processes that a process has started.
fn children(pid: u32) -> Vec<String> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    list.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_line_is_edited_and_can_be_recalled_in_the_next_conversation() {
    let world = World::new();
    let mut terminal = Terminal::new();
    world.model_says([text("one"), text("two"), text("three")]);
    let running = chat(&world, &terminal).spawn();
    terminal.shows("> ");
    // Left, left, left.
    say(
        &mut terminal,
        "hllo\u{1b}[D\u{1b}[D\u{1b}[De",
        "[1] answers",
    );
    say(&mut terminal, "\"\"\"two\rlines\"\"\"", "[2] answers");
    terminal.types("\u{4}");
    running.wait().exits(0).prints("one\ntwo\n");
    assert_eq!(said(&world.latest()), ["hello", "two\nlines"]);
    assert_eq!(
        world.read(".local/state/delta/chat_history"),
        "\"hello\"\n\"two\\nlines\"\n"
    );
    let mode = history(&world).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // Up: the newest, its first line, the one before.
    let running = chat(&world, &terminal).spawn();
    terminal.shows("> ");
    say(&mut terminal, "\u{1b}[A\u{1b}[A\u{1b}[A", "[3] answers");
    terminal.types("\u{4}");
    running.wait().exits(0);
    assert_eq!(said(&world.latest()), ["hello", "two\nlines", "hello"]);

    // Elsewhere, and none: nothing is recalled.
    let elsewhere = world.path("state");
    let running = chat(&world, &terminal)
        .env("XDG_STATE_HOME", &elsewhere)
        .spawn();
    terminal.shows("> ");
    terminal.types("\u{1b}[A\r/quit\r");
    running.wait().exits(0);
    assert_eq!(world.read("state/delta/chat_history"), "\"/quit\"\n");
}

#[test]
fn ctrl_c_clears_the_line_and_stops_an_answer() {
    let world = World::new();
    let mut terminal = Terminal::new();
    world.model_says([text("never").held(), text("on")]);
    let running = controlled_chat(&world, &terminal).spawn();
    terminal.shows("> ");
    terminal.types("never sent\u{3}");
    terminal.shows("never sent");
    terminal.shows("\n");
    terminal.shows("> ");
    terminal.types("wait\r");
    world.server.wait_for(1);
    terminal.types("\u{3}");
    terminal.shows("stopped; the next message goes on from here");
    terminal.shows("> ");
    terminal.types("half");
    terminal.shows("half");
    running.signal(Signal::INT);
    terminal.shows("> ");
    say(&mut terminal, "go on", "[1] answers");
    terminal.types("\u{4}");
    running.wait().exits(0).prints("on\n");
    assert_eq!(said(&world.latest()), ["wait", "go on"]);
}

#[test]
fn a_signal_leaves_no_process_and_the_terminal_as_it_was() {
    let world = World::new();
    let mut terminal = Terminal::new();
    let running = controlled_chat(&world, &terminal).spawn();
    terminal.shows("> ");
    assert!(!terminal.has_echo());
    let editors = children(running.pid());
    assert_eq!(editors.len(), 1);
    let is_there = |pid: &String| Path::new(&format!("/proc/{pid}")).exists();
    assert!(editors.iter().all(is_there));
    running.signal(Signal::TERM);
    running.wait().exits(143);
    assert!(terminal.has_echo());
    terminal.shows("\u{1b}[?2004l");
    assert!(!editors.iter().any(is_there));
}

#[test]
fn a_killed_chat_leaves_the_terminal_as_it_was() {
    let world = World::new();
    let mut terminal = Terminal::new();
    let running = chat(&world, &terminal).spawn();
    terminal.shows("> ");
    terminal.types("half a line");
    terminal.shows("half a line");
    let editors = children(running.pid());
    let waits = |pid: &String| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") S "))
    };
    eventually("the editor waits for keys", || editors.iter().all(waits));
    running.signal(Signal::KILL);
    running.wait();
    let is_there = |pid: &String| Path::new(&format!("/proc/{pid}/fd/0")).exists();
    eventually("the editor ends", || !editors.iter().any(is_there));
    assert!(terminal.has_echo());
    terminal.shows("\u{1b}[?2004l");
}

#[test]
fn an_editor_whose_chat_is_gone_before_it_begins_ends_by_itself() {
    let world = World::unasked();
    let mut terminal = Terminal::new();
    let (mut chat, editors) = UnixStream::pair().unwrap();
    let request = b"{\"prompt\": \"> \", \"completion\": [], \"history\": []}\n";
    chat.write_all(request).unwrap();
    drop(chat);
    let mut editor = Command::new(env!("CARGO_BIN_EXE_delta"))
        .arg("edit-lines")
        .env("HOME", world.home())
        .env("TERM", "xterm")
        .stdin(terminal.user())
        .stdout(terminal.user())
        .stderr(OwnedFd::from(editors))
        .spawn()
        .unwrap();
    terminal.shows("\u{1b}[?2004h");
    eventually("the editor ends", || editor.try_wait().unwrap().is_some());
    assert!(terminal.has_echo());
}

#[test]
fn ctrl_c_while_no_line_is_edited_ends_no_editor() {
    let world = World::new();
    let mut terminal = Terminal::new();
    world.model_says([text("one").held(), text("two")]);
    let running = controlled_chat(&world, &terminal).spawn();
    terminal.shows("> ");
    terminal.types("a\r");
    world.server.wait_for(1);
    let editors = children(running.pid());
    terminal.types("\u{3}");
    terminal.shows("> ");
    say(&mut terminal, "b", "[1] answers");
    assert_eq!(children(running.pid()), editors);
    terminal.types("\u{4}");
    running.wait().exits(0);
}

#[test]
fn a_closed_terminal_ends_a_chat() {
    let world = World::new();
    let mut terminal = Terminal::new();
    let running = controlled_chat(&world, &terminal).spawn();
    terminal.shows("> ");
    terminal.types("never sent");
    terminal.shows("never sent");
    let editors = children(running.pid());
    drop(terminal);
    running.wait().exits(129);
    let is_there = |pid: &String| Path::new(&format!("/proc/{pid}/fd/0")).exists();
    eventually("the editor ends", || !editors.iter().any(is_there));
    assert!(world.server.requests().is_empty());
}

#[test]
fn a_paste_of_several_lines_is_one_message() {
    let world = World::new();
    let mut terminal = Terminal::new();
    world.model_says([text("one"), text("two"), text("three")]);
    let running = chat(&world, &terminal).spawn();
    terminal.shows("\u{1b}[?2004h");
    terminal.shows("> ");
    say(
        &mut terminal,
        "\u{1b}[200~one\r/two\rthree\u{1b}[201~!",
        "[1] answers",
    );
    // What is typed ahead in one piece is not lost.
    terminal.types("four\rfive\r");
    terminal.shows("[2] answers");
    terminal.shows("[3] answers");
    terminal.shows("> ");
    terminal.types("\u{4}");
    running.wait().exits(0);
    assert_eq!(said(&world.latest()), ["one\n/two\nthree!", "four", "five"]);
}

#[test]
fn a_line_goes_on_when_the_terminal_gets_another_size() {
    let world = World::new();
    let mut terminal = Terminal::new();
    terminal.resize(24, 80);
    world.model_says([text("one")]);
    let running = controlled_chat(&world, &terminal).spawn();
    terminal.shows("> ");
    terminal.types("abcdefghij");
    terminal.shows("abcdefghij");
    terminal.resize(24, 40);
    say(&mut terminal, "k", "[1] answers");
    terminal.types("\u{4}");
    running.wait().exits(0);
    assert_eq!(said(&world.latest()), ["abcdefghijk"]);
}

#[test]
fn the_answer_to_a_question_is_edited_and_no_answer_is_remembered() {
    let world = World::new();
    let mut terminal = Terminal::new();
    let ask = |id: &str, sensitive: bool| {
        call(
            id,
            "ask_human",
            &json!({"prompt": "First line\nWhich?", "sensitive": sensitive}),
        )
    };
    world.model_says([
        ask("a", false),
        ask("b", false),
        ask("c", true),
        text("done"),
    ]);
    let running = chat(&world, &terminal).spawn();
    terminal.shows("> ");
    terminal.types("begin\r");
    terminal.shows("First line");
    terminal.shows("  Which? ");
    // Up: there is nothing to be recalled.
    terminal.types("\u{1b}[Abue\u{1b}[D\u{1b}[Dl\r");
    terminal.shows("First line");
    terminal.shows("  Which? ");
    terminal.types("\u{1b}[200~one\rtwo\rthree\u{1b}[201~\r");
    terminal.shows("First line");
    terminal.shows("  Which? ");
    terminal.types("hush\n");
    terminal.shows("> ");
    terminal.types("\u{4}");
    running.wait().exits(0).prints("done\n");
    let answers = world.latest().events("HUMAN_INPUT_RECEIVED");
    let answers: Vec<_> = answers.iter().map(|event| &event["response"]).collect();
    assert_eq!(answers, ["blue", "one\ntwo\nthree", "hush"]);
    assert_eq!(world.read(".local/state/delta/chat_history"), "\"begin\"\n");
    assert!(!terminal.rest().contains("hush"));
}

#[test]
fn words_with_a_slash_are_obeyed_and_others_are_not_sent() {
    let world = World::new();
    world.write("a b.txt", "content\n");
    world.script("editor.sh", "#!/bin/sh\nprintf ', and more\\n' >> \"$1\"\n");
    let mut terminal = Terminal::new();
    world.model_says([
        text("one"),
        text("two"),
        text("three"),
        text("more"),
        text("four"),
    ]);
    let editor = world.path("editor.sh");
    let running = chat(&world, &terminal).env("EDITOR", editor);
    let running = running.env("PAGER", "cat").all_at(&terminal).spawn();
    terminal.shows("probe, ");
    terminal.shows("/help lists commands, Ctrl-D ends");
    terminal.shows("> ");
    let help = say(
        &mut terminal,
        "/help",
        "begin and end a message of several lines",
    );
    for word in [
        "/help",
        "/file PATH",
        "/edit [TEXT]",
        "/model [NAME]",
        "/new",
        "/log",
        "/cost",
        "/compact",
        "/quit",
        "//…",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    say(
        &mut terminal,
        "/cost",
        "there is no run before the first message",
    );
    say(
        &mut terminal,
        "/modl x",
        "/modl is not a command of chat, and nothing was sent: did you mean /model",
    );
    say(
        &mut terminal,
        "/etc/hosts is odd",
        "nothing was sent: /help lists the commands",
    );
    say(&mut terminal, "/quit now", "/quit takes nothing after it");
    say(&mut terminal, "/file none.txt", "none.txt: cannot read it");
    assert!(world.server.requests().is_empty());

    say(&mut terminal, "//etc/hosts is odd", "[1] answers");
    say(
        &mut terminal,
        "/file a b.txt",
        "a b.txt goes with the next message",
    );
    say(&mut terminal, "/model other", "model other");
    say(&mut terminal, "/edit read it", "[2] answers");
    say(&mut terminal, "/log", "read it, and more");
    say(&mut terminal, "/cost", "tokens");
    let first = world.latest();
    assert_eq!(
        said(&first),
        [
            "/etc/hosts is odd",
            "# File: a b.txt\n\ncontent\n\nread it, and more"
        ]
    );
    assert_eq!(first.metadata()["set"]["llm.model"], "other");
    assert_eq!(world.server.last().json()["model"], "other");

    say(&mut terminal, "/new", "the next message begins a new run");
    say(&mut terminal, "again", "[1] answers");
    assert_ne!(world.latest(), first);
    assert_eq!(said(&world.latest()), ["again"]);
    assert_eq!(world.server.last().json()["model"], "other");
    say(
        &mut terminal,
        "/compact",
        "is shortened before the next request",
    );
    say(&mut terminal, "and now", "[2] answers");
    let notes = world.latest().events("SYSTEM_MESSAGE");
    let mut notes = notes.iter().map(|note| note["content"].to_string());
    assert!(notes.any(|note| note.contains("can be shortened")));
    terminal.types("/quit\r");
    running.wait().exits(0);

    // A pipe has messages alone.
    let piped = world
        .delta(["chat", "-a", "agent", "-w", "ws"])
        .stdin("/quit\n");
    piped.exits(0).prints("four\n");
    assert_eq!(said(&world.latest()).last().unwrap(), "/quit");
}

#[test]
fn tab_completes_words_and_the_names_of_files() {
    let world = World::new();
    world.write("notes.txt", "content\n");
    world.write("dir/inner.txt", "inside\n");
    world.write("dir/\u{1b}[2Jevil.txt", "evil\n");
    world.write("dir/.hidden", "hidden\n");
    let mut terminal = Terminal::new();
    let running = chat(&world, &terminal).spawn();
    terminal.shows("> ");
    terminal.types("/f\t no\t\r");
    terminal.shows("notes.txt goes with the next message");
    terminal.shows("> ");
    terminal.types("/file di\t\t\r");
    let all = terminal.shows("dir/inner.txt goes with the next message");
    assert!(
        !all.contains("\u{1b}[2J") && !all.contains("hidden"),
        "{all:?}"
    );
    terminal.shows("> ");
    terminal.types("\u{4}");
    running.wait().exits(0);
}
