//! Text of others that would control a terminal, or pass for another text, wherever people are shown it.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// Sequences of ESC, also of C1, a bell, bidirectional and invisible characters, tags, ends of lines and a tab.
const MARKS: &str = "h\u{1b}[2J\u{1b}[8m\u{1b}]0;t\u{7}\u{9b}31m\u{9d}x\u{9c}\u{202e}\u{2066}\u{200b}\u{e0041}\u{8}\u{7f}\r\
                     delta: forged\r\n\tdelta: forged\ndelta: forged\n\u{2028}";

fn hostile() -> String {
    format!("{MARKS}{}", "x".repeat(10_000))
}

/// Text in which nothing controls the terminal, hides, or passes for a line of delta's.
#[track_caller]
fn is_harmless(display: &str, text: &str) {
    let hides = |c: &char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(
                c,
                '\u{200b}' | '\u{2028}' | '\u{202e}' | '\u{2066}' | '\u{e0041}'
            )
    };
    if let Some(c) = text.chars().find(hides) {
        let at = text.find(c).unwrap();
        let start = (0..=at.saturating_sub(200)).rfind(|at| text.is_char_boundary(*at));
        let before: String = text[start.unwrap()..].chars().take(400).collect();
        panic!("{display} has {c:?}: {before:?}");
    }
    let forged = text.lines().find(|line| line.starts_with("delta: forged"));
    assert_eq!(forged, None, "{display}: {text}");
}

/// The same at a terminal without colours, where delta and its line editor move the cursor, but erase no screen.
#[track_caller]
fn is_harmless_at_terminal(display: &str, text: &str) {
    let mut parts = text.split("\u{1b}[");
    let mut shown = parts.next().unwrap().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| !c.is_ascii_digit() && c != '?')
            .unwrap();
        let (code, rest) = part.split_at(end + 1);
        let is_own = code.ends_with(['A', 'C', 'D', 'K'])
            || code == "J"
            || code.starts_with('?') && code.ends_with(['h', 'l']);
        shown.push_str(if is_own { "" } else { "\u{1b}[" });
        shown.push_str(if is_own { rest } else { part });
    }
    is_harmless(display, &shown.replace('\r', "\n"));
}

#[track_caller]
fn shows(display: &str, outcome: &Outcome) {
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    is_harmless(display, &outcome.stderr);
    is_harmless(display, &stdout);
    let shown = outcome.stderr.len() + stdout.len();
    assert!(shown > 0, "{display} shows nothing");
}

/// The string as a quoted scalar of YAML.
fn quoted(text: &str) -> String {
    // JSON leaves some characters as they are that YAML does not take.
    let escape = |c: char| match c {
        '\u{7f}'..='\u{9f}' => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    let json = serde_json::to_string(text).unwrap();
    json.chars().map(escape).collect()
}

const TOOLS: &str = "- {name: write, kind: edit, path: path, exec: 'delta coder-tool write ${path}', stdin: content}\n\
     - {name: put, kind: edit, path: path, confirm: true, exec: 'delta coder-tool write ${path}', stdin: content}\n\
     - {name: bash, confirm: true, exec: 'delta coder-tool bash --reason=${reason}', stdin: command}\n\
     - {name: cry, exec: 'cat cry'}\n\
     - {name: fail, shell: 'cat cry; exit 3'}\n\
     - {name: linger, shell: 'cat line; read line < ../gate'}";

/// A world whose agent, model and files have hostile names, at this terminal.
fn world() -> World {
    let world = World::new()
        .tools(TOOLS)
        .top("files: git")
        .top(&format!("description: {}", quoted(&hostile())));
    let yaml = world.read("agent/agent.yaml");
    let yaml = yaml.replacen("name: probe", &format!("name: {}", quoted(&hostile())), 1);
    world.write("agent/agent.yaml", yaml);
    world.write("ws/cry", hostile());
    world.write("ws/line", MARKS.replace('\n', " ") + "shown");
    world
}

/// The calls of a run: everything that others say is hostile.
fn replies() -> Vec<Reply> {
    let text_of = hostile();
    let write = |tool: &str, id: &str, content: &str| {
        call(id, tool, &json!({"path": MARKS, "content": content}))
    };
    let asks = json!({"prompt": format!("{}, or not?", hostile())});
    let runs = json!({"command": format!("echo '{MARKS}'"), "reason": hostile()});
    vec![
        write("write", "c1", &text_of),
        write("write", "c2", &format!("{text_of}\nmore")),
        call("c3", "cry", &json!({})),
        call("c4", "fail", &json!({})),
        write("put", "c5", "other"),
        call("c6", "bash", &runs),
        call("c7", "ask_human", &asks),
        // The lines of an answer are its own.
        text(&text_of.replace('\n', " ")),
    ]
}

fn at_work<'a>(world: &World, words: impl IntoIterator<Item = &'a str>) -> Delta {
    let delta = world.delta(words).env("PATH", path()).env("NO_COLOR", "1");
    delta.env("TERM", "xterm").env("PAGER", "cat")
}

#[test]
fn hostile_text_controls_no_terminal_wherever_a_run_is_shown() {
    let world = world();
    let model = format!("llm.model={}", quoted(&hostile()));
    let run = || {
        let command = at_work(
            &world,
            ["run", "-a", "agent", "-w", "ws", "--set", &model, "-m"],
        );
        command.arg(hostile())
    };
    // In a pipe, with the answers on the command line.
    world.model_says(replies());
    let first = run().exits(101).says("changed: ");
    shows("progress in a pipe", &first);
    for answer in ["y", "a"] {
        let words = ["continue", "-w", "ws", "-m", answer];
        shows("continue", &at_work(&world, words).exits(101));
    }
    let ended = at_work(&world, ["continue", "-w", "ws", "-m"]).arg(hostile());
    let ended = ended.exits(0);
    is_harmless("the end", &ended.stderr);
    let id = world.latest().id();
    for words in [
        vec!["log", "-w", "ws"],
        vec!["log", "-w", "ws", "-v"],
        vec!["log", "-w", "ws", "-n", "2"],
        vec!["log", "-w", "ws", "--effects"],
        vec!["list-runs", "-w", "ws"],
        vec!["stats", "-w", "ws"],
        vec!["stats", "-r", "."],
        vec!["undo", "-w", "ws", "-n"],
        vec!["check", "agent"],
        vec!["check", "-v", "agent"],
        vec!["run", "-a", "agent", "-w", "other", "--dry-run", "-m", "x"],
        vec!["continue", "-w", "ws", "-m", "x", "--max-iterations", "0"],
    ] {
        shows(&words.join(" "), &at_work(&world, words).end());
    }

    // At a terminal, with the answers there.
    let mut terminal = Terminal::new();
    terminal.resize(40, 80);
    fs::remove_file(world.workspace().join(MARKS)).unwrap();
    let mut gate = world.fifo("gate");
    world.model_says([call("c0", "linger", &json!({}))]);
    world.model_says(replies());
    let running = run().args(["-i", "--new"]).all_at(&terminal).spawn();
    let mut seen = terminal.shows("waiting for linger");
    seen += &terminal.shows("shown");
    gate.tell("go");
    for answer in ["y\n", "y\n"] {
        seen += &terminal.shows("or what to do instead] ");
        terminal.types(answer);
    }
    seen += &terminal.shows(", or not?");
    terminal.types("answer\n");
    seen += &terminal.shows("changed: ");
    running.wait().exits(0);
    seen += &terminal.rest();
    is_harmless_at_terminal("progress at a terminal", &seen);

    // A conversation: the list, the last exchange, and what undo does.
    let chat = at_work(&world, ["chat", "-a", "agent", "-w", "ws", "--run-id", &id]);
    let running = chat.all_at(&terminal).spawn();
    let mut seen = terminal.shows("> ");
    for line in [
        "/resume\n",
        "/resume 2\n",
        "/log\n",
        "/cost\n",
        "/undo\n",
        "/quit\n",
    ] {
        terminal.types(line);
    }
    seen += &terminal.shows("to continue: delta chat");
    running.wait().exits(0);
    seen += &terminal.rest();
    is_harmless_at_terminal("chat", &seen);
}

#[test]
fn hostile_text_controls_no_terminal_where_agents_and_models_are_listed() {
    let world = World::new();
    let front = format!(
        "---\nname: {0}\ndescription: {0}\ntools: {0}\n{0}: 1\n---\n{1}",
        quoted(&hostile()),
        hostile()
    );
    world.write("one.md", front);
    world.model_says([text("done")]);
    world.write("proj/file", "");
    let run = at_work(&world, ["run", "-a", "../one.md", "task"]).cwd(world.path("proj"));
    let run = run.env("DELTA_BASE_URL", world.server.url());
    shows(
        "an agent that is a file",
        &run.env("DELTA_MODEL", "m").exits(0),
    );
    shows(
        "check of a file",
        &at_work(&world, ["check", "one.md"]).end(),
    );
    let prices = format!(
        "{}: {{{}: {{input: x}}}}\n",
        quoted(&hostile()),
        quoted(MARKS)
    );
    world.write(".config/delta/prices.yaml", prices);
    shows(
        "check of prices",
        &at_work(&world, ["check", "agent"]).end(),
    );
    fs::remove_file(world.path(".config/delta/prices.yaml")).unwrap();
    world
        .server
        .lists(json!({"data": [{"id": hostile(), "owned_by": hostile()}, {"id": "plain"}]}));
    shows("models", &at_work(&world, ["models", "agent"]).end());
    world.model_says([Reply::error(400, &hostile())]);
    shows(
        "an error of the service",
        &at_work(&world, ["run", "-a", "agent", "-w", "ws", "-m", "x"]).end(),
    );
}

#[test]
#[cfg(feature = "flow")]
fn hostile_text_controls_no_terminal_where_an_evaluation_is_shown() {
    let world = World::new();
    let model = format!(
        "#!/bin/sh\ncat >/dev/null\ncat <<'END'\n{}\nEND\n",
        json!({"choices": [{"message": {"content": hostile()}}]})
    );
    world.script("a/model.sh", &model);
    let yaml = format!(
        "name: {}\nllm: {{command: ['${{AGENT_HOME}}/model.sh'], model: m}}\n",
        quoted(MARKS)
    );
    world.write("a/agent.yaml", yaml);
    world.write("a/system_prompt.md", "one\n");
    world.write("a/context.yaml", world.read("agent/context.yaml"));
    world.server.may_stay_unasked();
    let case = |id: &str, expected: &str| {
        let case: Value = json!({"id": id, "input": hostile(), "expected": expected});
        format!("{case}\n")
    };
    let cases = case("plain", &hostile()) + &case("other", "y") + &case(MARKS, MARKS);
    world.write("cases.jsonl", cases);
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        let names = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
        let done = command.args(names).args(words).current_dir(world.path("a"));
        assert!(done.env("HOME", world.home()).status().unwrap().success());
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", MARKS]);
    world.write("a/system_prompt.md", "two\n");
    git(&["commit", "-q", "-a", "-m", "two"]);
    let words = ["eval", "-a", "a", "--cases", "cases.jsonl", "-w", "w"];
    for more in [&["-q"][..], &[], &["--against", "HEAD~1"], &["--dry-run"]] {
        let command = at_work(&world, words).args(more);
        let outcome = command.env("XDG_CACHE_HOME", world.path("cache")).end();
        if more != ["-q"] || !outcome.stdout.is_empty() {
            shows(&format!("eval {more:?}"), &outcome);
        }
        assert!(
            !outcome.describe().contains("defect"),
            "{}",
            outcome.describe()
        );
    }
}
