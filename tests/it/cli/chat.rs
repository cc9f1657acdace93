//! `delta chat`: a run, line by line, at a terminal and from a pipe.

use crate::harness::services::{HERE, streaming, text_stream};
use crate::harness::*;
use rustix::process::Signal;
use serde_json::json;
use std::fs;

/// `delta chat` in `proj`, with the built-in agent.
fn chat<'a>(world: &World, args: impl IntoIterator<Item = &'a str>) -> Delta {
    fs::create_dir_all(world.path("proj")).unwrap();
    let delta = world.delta(["chat"]).args(args).cwd(world.path("proj"));
    delta
        .env("PATH", path())
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
fn what_is_ignored_of_dotenv_is_said_once() {
    let world = World::new();
    world.write("proj/.env", "CDPATH=/x\n");
    world.model_says([text("a"), text("b")]);
    let ended = chat(&world, ["@coder"]).stdin("one\ntwo\n").exits(0);
    assert_eq!(
        ended.stderr.matches("CDPATH is ignored").count(),
        1,
        "{}",
        ended.stderr
    );
}

#[test]
fn a_call_that_is_written_as_text_is_shown_with_a_warning() {
    let world = World::new();
    let call = r#"{"name": "bash", "arguments": {"command": "ls"}}"#;
    world.model_says([text(call), text(call)]);
    let ended = chat(&world, ["@coder"]).stdin("one\ntwo\n").exits(0);
    ended.prints(&format!("{call}\n{call}\n"));
    assert!(newest(&world).events("ACCEPTANCE").is_empty());
    let notes = newest(&world).events("SYSTEM_MESSAGE").into_iter();
    let is_it = |note: &serde_json::Value| note["content"].to_string().contains("written as text");
    assert_eq!(notes.filter(is_it).count(), 2);
}

#[test]
fn each_line_goes_on_with_one_ordinary_run() {
    let world = World::new();
    world.model_says([text("one"), text("two"), text("three")]);
    let input = "first\n\n  \n\"\"\"several\n\nlines\"\"\"\n\"\"\"\n  kept\n\"\"\"\n";
    chat(&world, [])
        .stdin(input)
        .exits(0)
        .prints("one\ntwo\nthree\n");
    let run = newest(&world);
    assert_eq!(said(&run), ["first", "several\n\nlines", "  kept"]);
    assert_eq!(run.ending().0, "COMPLETED");
    let messages = world.server.last().messages();
    assert_eq!(messages.len(), 6, "{messages:?}");

    // It begins a new one, unless -w or --run-id says which.
    world.model_says([text("four"), text("five"), text("six")]);
    chat(&world, ["@coder"])
        .stdin("other")
        .exits(0)
        .prints("four\n");
    assert_ne!(newest(&world), run);
    chat(&world, ["--run-id", &run.id()])
        .stdin("fourth\n")
        .exits(0);
    assert_eq!(said(&run).len(), 4);
    chat(&world, ["-w", "."]).stdin("second\n").exits(0);
    assert_eq!(said(&newest(&world)), ["other", "second"]);
    chat(&world, ["--run-id", "none"])
        .stdin("x")
        .exits(1)
        .says("no run none")
        .says("`delta list-runs` lists");
    chat(&world, ["hello"])
        .stdin("x")
        .exits(2)
        .says("'hello' does not name an agent");
    chat(&world, []).stdin("").exits(0).prints("");
}

#[test]
fn an_open_question_comes_first_and_its_answer_is_no_message() {
    let world = World::new();
    let asks = |id: &str| call(id, "ask_human", &json!({"prompt": "Which?"}));
    world.model_says([asks("c1")]);
    // The input ends at the question.
    chat(&world, [])
        .stdin("paint it\n")
        .exits(101)
        .says("Which?");
    let run = newest(&world);
    assert_eq!(run.ending().0, "WAITING_FOR_INPUT");
    world.model_says([text("blue it is"), text("bye")]);
    let on = chat(&world, ["-w", "."]).stdin("blue\nthank you\n").end();
    on.exits(0).prints("blue it is\nbye\n");
    assert_eq!(said(&run), ["paint it", "thank you"]);
    let answer = run.events("HUMAN_INPUT_RECEIVED").remove(0);
    assert_eq!(answer["response"], "blue");
}

/// A world whose run "job" of the agent "probe", in `proj`, a hook keeps from running its tool, and which asks a person.
fn asking_job() -> World {
    let world = World::with_tools("- {name: touch, exec: 'touch made'}");
    let guard = "#!/bin/sh\ngrep -qr touch \"$DELTA_HOOK_IO_PATH/input\" || exit 0\n\
                 echo '{\"action\": \"deny\", \"message\": \"never\"}' > \"$DELTA_HOOK_IO_PATH/output/control.json\"\n";
    world.script("agent/guard.sh", guard);
    world.write(
        "agent/hooks.yaml",
        "pre_tool_execution: {command: ['${AGENT_HOME}/guard.sh']}\n",
    );
    world.model_says([call("c1", "ask_human", &json!({"prompt": "Which?"}))]);
    let words = [
        "run", "-a", "agent", "-w", "proj", "--run-id", "job", "-m", "one",
    ];
    world.delta(words).exits(101);
    world
}

#[test]
fn a_conversation_goes_on_with_the_runs_own_agent_and_its_guards() {
    for place in [["--run-id", "job"], ["-w", "."]] {
        let world = asking_job();
        world.model_says([
            call("c2", "touch", &json!({})),
            text("so be it"),
            text("bye"),
        ]);
        let on = chat(&world, place).stdin("blue\nthank you\n");
        on.exits(0).prints("so be it\nbye\n").says("Which?");
        let run = newest(&world);
        assert_eq!(said(&run), ["one", "thank you"]);
        assert_eq!(run.metadata()["agent_name"], "probe");
        let last = world.server.last();
        assert!(last.observation("c2").contains("never"));
        assert!(!world.exists("proj/made"));
        let first = world.server.requests().remove(0);
        assert_eq!(last.messages()[0], first.messages()[0]);
        assert_eq!(last.json()["tools"], first.json()["tools"]);
    }
}

#[test]
fn a_run_that_is_named_goes_on_with_no_other_agent() {
    let world = asking_job();
    let home = world.path("agent").canonicalize().unwrap();
    let run = |args: &[&str]| chat(&world, ["@coder", "--run-id", "job"]).args(args);
    let message = format!(
        "run job belongs to the agent probe ({}), not to coder (",
        home.display()
    );
    run(&[]).stdin("x\n").refuses(1, &message);
    assert_eq!(world.server.requests().len(), 1);
    assert_eq!(newest(&world).metadata()["agent_name"], "probe");
    // Where only a directory is named, the newest run there of the agent is meant.
    world.model_says([text("begun"), text("on")]);
    let coder = || chat(&world, ["@coder", "-w", "."]);
    coder().stdin("a\n").exits(0).prints("begun\n");
    coder().stdin("b\n").exits(0).prints("on\n");
    assert_eq!(said(&newest(&world)), ["a", "b"]);
    world.model_says([text("blue"), text("bye")]);
    let own = chat(&world, ["-a", "../agent", "-w", "."]);
    own.stdin("blue\nc\n").exits(0).prints("blue\nbye\n");
}

#[test]
fn a_part_of_another_run_is_not_the_conversation_that_goes_on() {
    let world = World::new();
    world.model_says([text("one"), text("part"), text("two")]);
    chat(&world, []).stdin("first\n").exits(0);
    let whole = newest(&world);
    let words = ["run", "-a", "../agent", "-w", ".", "-m", "a part"];
    let part = world.delta(words).cwd(world.path("proj"));
    part.env("DELTA_RUN_ID", whole.id()).exits(0);
    chat(&world, ["-w", "."]).stdin("second\n").exits(0);
    assert_eq!(said(&whole), ["first", "second"]);
}

#[test]
fn where_nobody_types_an_answer_that_does_not_come_is_the_end() {
    let world = World::new();
    world.model_says([Reply::error(401, "no such key")]);
    chat(&world, [])
        .stdin("one\ntwo\n")
        .exits(4)
        .says("no such key");
    assert_eq!(said(&newest(&world)), ["one"]);
}

#[test]
fn at_a_terminal_ctrl_c_stops_the_answer_and_ctrl_d_ends() {
    let world = World::new();
    let mut terminal = Terminal::new();
    world.model_says([
        text("hello"),
        text("never").held(),
        text("and on"),
        Reply::error(401, "refused"),
    ]);
    let running = chat(&world, []).at(&terminal).spawn();
    let head = terminal.shows("> ");
    assert!(head.contains("coder, chosen; /help"), "{head}");
    terminal.types("hi\n");
    terminal.shows("[1] answers");
    terminal.shows("so far: ");
    terminal.shows("> ");
    terminal.types("wait\n");
    world.server.wait_for(2);
    running.signal(Signal::INT);
    terminal.shows("stopped; the next message goes on from here");
    terminal.shows("> ");
    // At the prompt it clears the line.
    running.signal(Signal::INT);
    terminal.shows("\n> ");
    // Also one of several lines.
    terminal.types("\"\"\"no\n");
    terminal.shows("… ");
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
    world.model_says([call("c1", "ask_human", &json!({"prompt": "Which?"}))]);
    let running = chat(&world, []).at(&terminal).spawn();
    terminal.shows("> ");
    terminal.types("paint it\n");
    terminal.shows("Which? ");
    running.signal(Signal::INT);
    terminal.shows("its question is asked again before the next message");
    terminal.shows("> ");
    world.model_says([text("red it is"), text("bye")]);
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
    world.model_says([text("a"), text("b")]);
    chat(&world, ["-a", "../agent"])
        .stdin("x\ny\n")
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

/// `delta chat` with streams, all of it at a terminal.
fn streamed_chat(world: &World, terminal: &Terminal) -> Delta {
    chat(world, ["--set", "llm.stream=true"])
        .env("TERM", "xterm")
        .all_at(terminal)
}

/// Types a message; returns what is written until the next one can be typed.
fn answer(terminal: &mut Terminal, message: &str) -> String {
    terminal.types(&format!("{message}\r"));
    terminal.shows("\u{1b}[?2004l");
    terminal.shows("\u{1b}[?2004h")
}

#[test]
fn earlier_conversations_are_listed_and_go_on_where_they_ended() {
    let world = World::new();
    let mut terminal = Terminal::new();
    let long = (1..=12)
        .map(|number| format!("line {number}\n"))
        .collect::<String>();
    world.model_says([text(&long), text("second answer"), text("third answer")]);
    chat(&world, ["@coder"]).stdin("one\n").exits(0);
    let first = newest(&world);
    chat(&world, ["@coder"])
        .stdin("exit\n")
        .exits(0)
        .prints("second answer\n");
    // What is no terminal sends every line.
    assert_eq!(said(&newest(&world)), ["exit"]);
    let at_terminal = |args: &[&str], terminal: &Terminal| {
        let chat = chat(&world, args.iter().copied()).env("TERM", "xterm");
        chat.all_at(terminal).spawn()
    };
    let running = at_terminal(&[], &terminal);
    terminal.shows("> ");
    terminal.types("/resume\n");
    terminal.shows(" 1 ");
    terminal.shows("  coder  exit");
    terminal.shows(" 2 ");
    terminal.shows("  coder  one");
    terminal.types("/resume 3\n");
    terminal.shows("/resume takes a number");
    terminal.types("/resume 2\n");
    terminal.shows("> one");
    let shown = terminal.shows("… 3 more lines: /log prints the run");
    assert!(
        shown.starts_with("\nline 1\n") && shown.contains("\nline 9\n… 3 more"),
        "{shown:?}"
    );
    terminal.types("more\n");
    terminal.shows("third answer");
    terminal.types(" exit \n");
    terminal.shows(&format!("to continue: delta chat --run-id {}", first.id()));
    running.wait().exits(0);
    assert_eq!(said(&first), ["one", "more"]);
    // Before anything is said there is nothing to continue; what -w would continue stays.
    let running = at_terminal(&["-w", ".", "--new"], &terminal);
    terminal.shows("Ctrl-D ends");
    terminal.shows("> ");
    terminal.types("quit\n");
    running.wait().exits(0);
    let rest = terminal.rest();
    assert!(
        !rest.contains("line 1") && !rest.contains("to continue"),
        "{rest:?}"
    );
    chat(&world, ["--new", "--run-id", "x"]).refuses(2, "--new and --run-id");
}

#[test]
fn an_answer_has_styles_at_a_terminal_and_loses_no_character() {
    let world = World::new();
    let plain = "# Heading\nsome **strong** and `code`\n---\nend *\n";
    let styled = "\u{1b}[1m# Heading\n\u{1b}[0msome \u{1b}[1m**strong**\u{1b}[0m and \u{1b}[36m`code`\u{1b}[0m\n\
                  \u{1b}[2m---\n\u{1b}[0mend *\n";
    for (term, no_colour, expected) in [
        ("xterm", "", styled),
        ("xterm", "1", plain),
        ("dumb", "", plain),
    ] {
        let mut terminal = Terminal::new();
        world.model_says([text(plain)]);
        let run = world.run("hi").arg("--new");
        let run = run.env("TERM", term).env("NO_COLOR", no_colour);
        run.all_at(&terminal).exits(0);
        let shown = terminal.rest().replace("\r\n", "\n");
        assert!(shown.contains(expected), "{shown:?}");
        assert!(term != "dumb" || !shown.contains('\u{1b}'), "{shown:?}");
    }
    // What is no terminal gets the model's words.
    world.model_says([text(plain)]);
    world.run("hi").arg("--new").exits(0).prints(plain);
    // Markers are held back until their role is known, at the longest to the end of the answer.
    let mut terminal = Terminal::new();
    let pieces = [
        "# He",
        "ading\nsome *",
        "*strong** and `co",
        "de`\n--",
        "-\nend *",
    ];
    world.model_says([streaming(&text_stream(&pieces, None))]);
    let running = streamed_chat(&world, &terminal).env("NO_COLOR", "").spawn();
    terminal.shows("> ");
    terminal.types("hi\n");
    for part in [
        "\u{1b}[1m# He\u{1b}[0m\u{1b}[1mading",
        "some \u{1b}[1m**strong**\u{1b}[0m and \u{1b}[36m`co\u{1b}[0m\u{1b}[36mde`\u{1b}[0m",
        "\u{1b}[2m---",
        "end *",
    ] {
        terminal.shows(part);
    }
    running.kill();
}

/// Returns when another conversation has shown for how long it waits.
fn a_second_of_waiting() {
    let world = World::new();
    let mut terminal = Terminal::new();
    world.model_says([text("never").held()]);
    let running = streamed_chat(&world, &terminal).spawn();
    terminal.shows("> ");
    terminal.types("hi\n");
    terminal.shows("waiting for chosen, ");
    running.kill();
}

#[test]
fn text_is_shown_as_it_arrives_and_only_once() {
    let world = World::new();
    world.write("proj/a.txt", "content\n");
    let mut terminal = Terminal::new();
    let stream = text_stream(&["\n\nHel\u{1b}", "[2Jlo ", "wor", "ld"], None);
    world.model_says([
        streaming(&stream).pauses_behind(HERE),
        streaming(&text_stream(&["I look ", "first."], Some("a.txt"))),
        streaming(&text_stream(&["It says: ", "content\n"], None)),
        text("whole at once"),
    ]);
    let running = streamed_chat(&world, &terminal).spawn();
    terminal.shows("> ");
    terminal.types("hi\n");
    // The rest has not been sent.
    let head = terminal.shows("Hel\u{FFFD}");
    assert!(head.ends_with("\nHel\u{FFFD}"), "{head:?}");
    a_second_of_waiting();
    world.server.release();
    // No line that counts seconds stands in the place of the text.
    let rest = terminal.shows("> ");
    assert!(rest.starts_with("[2Jlo world\n[1] answers ("), "{rest:?}");
    assert!(!rest.contains("Hel"), "{rest:?}");

    let all = answer(&mut terminal, "look");
    assert!(all.contains("I look first.\n[2] $ read a.txt"), "{all:?}");
    assert!(all.contains("\nIt says: content\n[3] answers ("), "{all:?}");
    for words in ["I look", "It says"] {
        assert_eq!(all.matches(words).count(), 1, "{words}: {all:?}");
    }
    // A server that does not stream.
    let all = answer(&mut terminal, "more");
    assert_eq!(all.matches("whole at once\n").count(), 1, "{all:?}");
    terminal.types("\u{4}");
    running.wait().exits(0);
}

#[test]
fn what_is_shown_of_a_failed_attempt_is_not_taken_for_the_answer() {
    let world = World::new();
    let mut terminal = Terminal::new();
    let whole = text_stream(&["the first ", "half"], None);
    let early = &whole[..whole.find(HERE).unwrap()];
    world.model_says([streaming(early), streaming(&whole), text("bye")]);
    let running = streamed_chat(&world, &terminal).spawn();
    terminal.shows("> ");
    let all = answer(&mut terminal, "hi");
    let (failed, again) = all
        .split_once("delta: the answer broke off; it begins once more:\n")
        .unwrap_or_else(|| panic!("{all:?}"));
    assert!(failed.contains("\nthe first \n"), "{failed:?}");
    assert!(
        again.starts_with("the first half\n[1] answers"),
        "{again:?}"
    );
    assert_eq!(again.matches("the first").count(), 1, "{again:?}");
    // It is stopped in the middle.
    world.model_says([streaming(&text_stream(&["never ", "whole"], None)).pauses_behind(HERE)]);
    terminal.types("and\n");
    terminal.shows("bye");
    terminal.shows("> ");
    terminal.types("on\n");
    terminal.shows("never ");
    running.signal(Signal::INT);
    let stopped = terminal.shows("> ");
    assert!(
        stopped.starts_with("\ndelta: stopped; the next message goes on from here"),
        "{stopped:?}"
    );
    terminal.types("\u{4}");
    running.wait().exits(0);
    assert!(!newest(&world).text("journal.jsonl").contains("never"));
}

#[test]
fn text_before_an_event_that_cannot_be_read_is_not_taken_for_the_answer() {
    let world = World::new();
    let mut terminal = Terminal::new();
    let broken = text_stream(&["the first ", "half"], None)
        .replace(HERE, "data: {\"choices\":[{\"delta\":\n\n");
    // A character whose halves come one after the other.
    let whole = text_stream(&["the first ", "<", "> half"], None)
        .replace('<', "\\ud83d")
        .replace('>', "\\ude00");
    world.model_says([streaming(&broken), streaming(&whole)]);
    let running = streamed_chat(&world, &terminal).spawn();
    terminal.shows("> ");
    let all = answer(&mut terminal, "hi");
    let (failed, again) = all
        .split_once("delta: the answer broke off; it begins once more:\n")
        .unwrap_or_else(|| panic!("{all:?}"));
    assert!(failed.contains("\nthe first \n"), "{failed:?}");
    assert!(
        again.starts_with("the first \u{1F600} half\n[1] answers"),
        "{again:?}"
    );
    assert_eq!(again.matches("the first").count(), 1, "{again:?}");
    terminal.types("\u{4}");
    running.wait().exits(0);
}

#[test]
fn text_that_a_hook_may_change_is_not_shown_before() {
    let world = World::new();
    let mut terminal = Terminal::new();
    let hook = "#!/bin/sh\nsed 's/secret/public/' \"$DELTA_HOOK_IO_PATH/input/payload.json\" \
                > \"$DELTA_HOOK_IO_PATH/output/final_payload.json\"\n";
    world.script("agent/hook.sh", hook);
    world.write(
        "agent/hooks.yaml",
        "post_llm_response: {command: ['${AGENT_HOME}/hook.sh']}\n",
    );
    let stream = text_stream(&["a secret ", "word"], None);
    world.model_says([streaming(&stream)]);
    let running = streamed_chat(&world, &terminal).args(["-a", "../agent"]);
    let running = running.spawn();
    terminal.shows("> ");
    terminal.types("hi\n");
    let all = terminal.shows("a public word");
    assert!(!all.contains("secret"), "{all:?}");
    terminal.shows("> ");
    terminal.types("\u{4}");
    running.wait().exits(0);
}

#[test]
fn a_stream_into_a_file_is_the_answer_alone() {
    let world = World::new();
    let stream = text_stream(&["one ", "\u{1b}[1mtwo"], None);
    world.model_says([streaming(&stream)]);
    let mut terminal = Terminal::new();
    let running = chat(&world, ["--set", "llm.stream=true"])
        .at(&terminal)
        .spawn();
    terminal.shows("> ");
    terminal.types("hi\n");
    terminal.shows("[1] answers");
    terminal.shows("> ");
    terminal.types("\u{4}");
    running.wait().exits(0).prints("one \u{1b}[1mtwo\n");
}
