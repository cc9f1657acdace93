//! Looking at runs: lists, timelines, requests. Nothing is sent, nothing is changed.

use crate::harness::*;
use crate::runs::subagents::{family, model};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";

fn printed(outcome: &Outcome) -> String {
    String::from_utf8(outcome.stdout.clone()).expect("text")
}

/// A run of one tool call and an answer.
fn one_call(world: &World, words: &str) {
    let first = call("call_1", "echo", &json!({"words": words}));
    world.model_says([first, text("done")]);
    world.run("say it").exits(0);
}

/// A run whose first answer does not come before it is released.
fn held() -> (World, Running) {
    let world = World::new();
    world.model_says([text("done").held()]);
    let delta = world.run("wait").spawn();
    world.server.wait_for(1);
    (world, delta)
}

/// Every file below a directory with its bytes.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = files_below(dir).into_iter();
    files
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

#[test]
fn runs_are_listed_newest_first() {
    let world = World::new();
    for message in ["first task", "second\ntask"] {
        world.model_says([text("done")]);
        world.run(message).exits(0);
    }
    let list = printed(&world.delta(["list-runs", "-w", "ws"]).exits(0));
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 3, "{list}");
    let runs = world.runs();
    for (line, run, message) in [
        (lines[1], &runs[1], "second task"),
        (lines[2], &runs[0], "first task"),
    ] {
        // Two runs of one second are told apart by what was said first.
        let id = if line.starts_with(&run.id()) {
            run.id()
        } else {
            line[..22].to_owned()
        };
        assert!(line.starts_with(&id) && line.ends_with(message), "{list}");
        assert!(
            line.contains("COMPLETED") && line.contains(" 110 "),
            "{list}"
        );
    }
}

#[test]
fn a_list_fits_the_terminal_whose_columns_wide_characters_take_twice() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run(&"漢字".repeat(40)).exits(0);
    let list = || world.delta(["list-runs", "-w", "ws"]);
    let row = |list: &str| list.lines().nth(1).unwrap().trim_end().to_owned();
    let columns_of = |line: &str| line.chars().count() + line.matches(['漢', '字']).count();
    for columns in [60, 70, 80, 120] {
        let mut terminal = Terminal::new();
        terminal.resize(24, columns);
        let delta = list().all_at(&terminal).env("NO_COLOR", "1");
        delta.exits(0);
        let line = row(&terminal.rest());
        assert!(line.contains("  漢字") && line.ends_with('…'), "{line}");
        let taken = columns_of(&line);
        let most = usize::from(columns);
        assert!(
            (most - 1..=most).contains(&taken),
            "{taken} of {most}: {line}"
        );
    }
    let piped = row(&printed(&list().exits(0)));
    assert_eq!(piped.matches(['漢', '字']).count(), 29);
}

#[test]
fn only_a_run_that_somebody_works_on_is_running() {
    let (world, delta) = held();
    let status = || {
        let list = world.delta(["list-runs", "-w", "ws"]).json().exits(0);
        let list: Value = serde_json::from_slice(&list.stdout).unwrap();
        list[0]["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status(), "RUNNING");
    delta.kill();
    assert_eq!(status(), "INTERRUPTED");
    let resumable = world.delta(["list-runs", "-w", "ws", "--resumable", "--first"]);
    resumable
        .exits(0)
        .prints(&format!("{}\n", world.latest().id()));
}

#[test]
fn the_first_of_a_list_is_an_id_alone_and_none_is_an_error() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let id = format!("{}\n", world.latest().id());
    let first =
        |status: &str| world.delta(["list-runs", "-w", "ws", "--first", "--status", status]);
    first("completed").exits(0).prints(&id);
    first("waiting-for-input").refuses(1, "no run");
    fs::create_dir(world.path("empty")).unwrap();
    world
        .delta(["list-runs", "-w", "empty"])
        .refuses(0, "no run");
    world
        .delta(["list-runs", "-w", "empty", "--first"])
        .exits(1)
        .says("no run");
    world
        .delta(["list-runs", "-w", "nowhere"])
        .exits(1)
        .says("nowhere");
}

#[test]
fn a_status_that_is_none_is_refused_with_the_nearest() {
    let world = World::new();
    let refused = world.delta(["list-runs", "--status", "COMPLETD"]).exits(2);
    refused.prints("").says_one_line().says("COMPLETED");
    world
        .delta(["list-runs", "--frist"])
        .exits(2)
        .says("--first");
}

#[test]
fn the_list_as_json_has_the_metadata_and_the_workspace() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let list = world.delta(["list-runs", "-w", "ws"]).json().exits(0);
    let mut list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let run = list[0].as_object_mut().unwrap();
    let path = run.remove("workspace_path").unwrap();
    assert_eq!(path, world.workspace().to_str().unwrap());
    assert_eq!(Value::Object(run.clone()), world.latest().metadata());
    assert_eq!(list.as_array().unwrap().len(), 1);
}

#[test]
fn the_runs_of_an_agent_are_those_of_all_its_workspaces() {
    let world = World::new();
    for message in ["one", "two"] {
        world.model_says([text("done")]);
        world
            .delta(["run", "-a", "agent", "-y", "-m", message])
            .exits(0);
    }
    let list = printed(&world.delta(["list-runs", "--agent", "agent"]).exits(0));
    for (name, message) in [("W001", "one"), ("W002", "two")] {
        let line = list
            .lines()
            .find(|line| line.contains(name))
            .expect("a line");
        assert!(line.ends_with(message), "{list}");
    }
    world
        .delta(["list-runs", "--agent", "agent", "-w", "ws"])
        .exits(2);
    world
        .delta(["list-runs", "--agent", "none"])
        .exits(1)
        .says("none");
}

#[test]
fn a_journal_that_was_edited_is_believed_more_than_the_metadata() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let run = world.latest();
    let journal = run.text("journal.jsonl");
    let start = journal.trim_end().rfind('\n').unwrap() + 1;
    fs::write(run.path("journal.jsonl"), &journal[..start]).unwrap();
    // What the clock makes of two writes in one tick must not matter.
    let older = fs::File::options()
        .write(true)
        .open(run.path("metadata.json"))
        .unwrap();
    older.set_modified(std::time::UNIX_EPOCH).unwrap();
    let list = world.delta(["list-runs", "-w", "ws", "--resumable", "--first"]);
    list.exits(0).prints(&format!("{}\n", run.id()));
}

#[test]
fn the_log_tells_who_said_what_and_how_commands_ended() {
    let world = World::with_tools(&format!(
        "{ECHO}\n- {{name: fail, shell: 'echo bad >&2; exit 3'}}"
    ));
    world.model_says([
        call("call_1", "echo", &json!({"words": "hello there"})),
        call("call_2", "fail", &json!({})),
        text("All is said.\nTwice."),
    ]);
    world.run("Say hello").exits(0);
    let log = world.delta(["log", "-w", "ws"]).exits(0);
    let log_text = printed(&log);
    let wanted = [
        &*world.latest().id(),
        "user   Say hello",
        "[1]    calls echo",
        "100 + 10 tokens",
        "[1]    $ echo 'hello there'",
        "[1]    ok, ",
        "                  hello there\n",
        "exit code 3",
        "                  bad\n",
        "[3]    All is said.\n                  Twice.",
        "end    COMPLETED",
    ];
    let mut rest = log_text.as_str();
    for words in wanted {
        let at = rest
            .find(words)
            .unwrap_or_else(|| panic!("{words:?} is not in\n{log_text}"));
        rest = &rest[at..];
    }
    assert!(log.stderr.is_empty() && !log_text.contains('\x1b'));
}

#[test]
fn nothing_that_a_tool_prints_can_control_the_terminal() {
    let world = World::with_tools(ECHO);
    one_call(&world, "a\u{1b}[2Jb\u{9b}c\rd");
    let log = printed(&world.delta(["log", "-w", "ws"]).exits(0));
    assert!(log.contains("\u{FFFD}[2Jb"), "{log}");
    assert!(log.chars().all(|c| c == '\n' || !c.is_control()), "{log:?}");
}

#[test]
fn nothing_that_a_tool_prints_changes_the_direction_of_text() {
    let marks: String = ('\u{202a}'..='\u{202e}')
        .chain('\u{2066}'..='\u{2069}')
        .chain(['\u{200e}', '\u{200f}', '\u{61c}'])
        .collect();
    let world = World::with_tools(ECHO);
    let words = format!("said {marks} here");
    let first = call("call_1", "echo", &json!({"words": words}));
    world.model_says([first, text("done")]);
    let run = world.run(&words).arg("-v").exits(0);
    let log = world.delta(["log", "-w", "ws"]).exits(0);
    let absent = world.delta(["run", "-a", &words, "-m", "go"]).end();
    let shown: String = marks.chars().flat_map(char::escape_unicode).collect();
    for text in [run.stderr.clone(), printed(&log), absent.stderr.clone()] {
        assert!(text.contains(&format!("said {shown} here")), "{text}");
        assert!(!text.contains(|c| marks.contains(c)), "{text:?}");
    }
}

#[test]
fn characters_that_cannot_be_seen_are_escapes_wherever_a_person_looks() {
    let hidden = "a\u{200b}b\u{2060}\u{feff}c\u{3164}\u{115f}d\u{e0041}\u{e007f}e\u{200d}\u{ad}f";
    let escape = |c: char| match c.is_ascii() {
        true => c.to_string(),
        false => c.escape_unicode().to_string(),
    };
    let shown: String = hidden.chars().map(escape).collect();
    let emoji = "👩\u{200d}🚀 ❤\u{fe0f} می\u{200c}خواهم";
    let said = format!("{hidden} {emoji}");
    let world = World::with_tools(ECHO);
    let first = call("call_1", "echo", &json!({"words": said}));
    world.model_says([first, text(&format!("done: {said}"))]);
    let run = world.run(&said).arg("-v").exits(0);
    let run = run.prints(&format!("done: {said}\n"));
    let report = world.delta(["report", "-w", "ws"]).exits(0);
    let texts = [
        run.stderr.clone(),
        printed(&world.delta(["log", "-w", "ws"]).exits(0)),
        printed(&world.delta(["list-runs", "-w", "ws"]).exits(0)),
        world.delta(["run", "-a", &said, "-m", "go"]).end().stderr,
        // JSON in a page.
        printed(&report).replace("\\\\u", "\\u"),
    ];
    for text in texts {
        assert!(text.contains(&shown), "{text}");
        assert!(!text.contains(|c: char| !c.is_ascii() && hidden.contains(c) && c != '\u{200d}'));
        assert!(!text.contains("e\u{200d}"), "{text}");
    }
    assert!(run.stderr.contains(emoji), "{}", run.stderr);
}

#[test]
fn json_on_a_pipe_escapes_what_disguises_and_keeps_its_value() {
    let words = "a\u{9b}2Jb \u{202e}txt \u{e0041}\u{200b}é";
    let escaped = r"a\u009b2Jb \u202etxt \udb40\udc41".to_owned() + "\u{200b}é";
    let world = World::new();
    world.model_says([text(words)]);
    let jsonl = world.run(words).args(["--format", "jsonl"]).exits(0);
    let (feed, id) = (printed(&jsonl), world.latest().id());
    let again = world
        .run(words)
        .args(["--format", "json", "--run-id", &id])
        .exits(0);
    let log = world.delta(["log", "--json", "-w", "ws"]).exits(0);
    let list = world
        .delta(["list-runs", "--format", "json", "-w", "ws"])
        .exits(0);
    for text in [feed.clone(), printed(&again), printed(&log), printed(&list)] {
        assert!(text.contains(&escaped), "{text}");
        assert!(
            !text.contains(['\u{9b}', '\u{202e}', '\u{e0041}']),
            "{text:?}"
        );
    }
    let last: Value = serde_json::from_str(feed.lines().last().unwrap()).unwrap();
    assert_eq!(last["result"], words);
    // What was sent is printed as it was sent.
    let request = world.delta(["request", "-w", "ws", "LATEST", "1"]).exits(0);
    assert!(printed(&request).contains(words), "{}", printed(&request));
}

#[test]
fn json_on_a_terminal_escapes_what_controls_it_and_keeps_its_value() {
    let words = "a\u{9b}2Jb \u{202e}txt\u{2066} \u{7f}c";
    let world = World::new();
    world.model_says([text(words)]);
    world.run("go").exits(0).prints(&format!("{words}\n"));
    let id = world.latest().id();
    for command in [
        &[
            "run", "-a", "agent", "-w", "ws", "-m", "go", "--format", "json", "--run-id", &id,
        ][..],
        &["log", "--json", "-n", "1", "-w", "ws"],
    ] {
        let mut terminal = Terminal::new();
        let delta = world.delta(command.iter().copied()).all_at(&terminal);
        delta.exits(0);
        let shown = terminal.shows("}\r\n");
        let is_plain = |c: char| {
            c == '\n' || !(c.is_control() || words.contains(c)) || c.is_ascii_graphic() || c == ' '
        };
        assert!(shown.chars().all(is_plain), "{shown:?}");
        let value: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(value["result"], words);
    }
}

#[test]
fn a_followed_log_ends_with_the_run() {
    let (world, delta) = held();
    let log = world.delta(["log", "-w", "ws", "-f"]).spawn();
    eventually("the log has begun", || log.stdout().contains("wait"));
    assert!(!log.stdout().contains("COMPLETED"));
    world.server.release();
    delta.wait().exits(0);
    let log = printed(&log.wait().exits(0));
    assert!(log.contains("end    COMPLETED"), "{log}");
}

#[test]
fn a_followed_log_says_that_the_engine_has_died() {
    let (world, delta) = held();
    let log = world.delta(["log", "-w", "ws", "-f"]).spawn();
    eventually("the log has begun", || log.stdout().contains("wait"));
    delta.kill();
    log.wait().exits(0).says("has died");
}

#[test]
fn a_followed_log_ends_when_nobody_reads_it() {
    let (world, delta) = held();
    let log = world.delta(["log", "-w", "ws", "-f"]);
    let piped = log
        .under(&["sh", "-c", "\"$0\" \"$@\" | head -n 1"])
        .exits(0);
    assert_eq!(printed(&piped).lines().count(), 1);
    delta.kill();
}

#[test]
fn a_followed_log_goes_on_behind_a_journal_that_was_replaced() {
    let (world, delta) = held();
    let log = world.delta(["log", "-w", "ws", "-f", "--json"]).spawn();
    let journal = world.latest().text("journal.jsonl");
    eventually("the log has begun", || log.stdout() == journal);
    // As an editor does it, and with an event more.
    let more = journal.clone() + "{\"seq\":3,\"type\":\"SYSTEM_MESSAGE\",\"content\":\"mine\"}\n";
    let path = world.write("edited", &more);
    fs::rename(path, world.latest().path("journal.jsonl")).unwrap();
    let log = log.wait().exits(0).says("has died");
    assert_eq!(printed(&log), more);
    delta.kill();
}

#[test]
fn the_log_as_json_is_the_journal() {
    let world = World::with_tools(ECHO);
    one_call(&world, "x");
    let journal = world.latest().text("journal.jsonl");
    world
        .delta(["log", "-w", "ws", "--json"])
        .exits(0)
        .prints(&journal);
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    let last = lines[lines.len() - 2..].concat();
    world
        .delta(["log", "-w", "ws", "--json", "-n", "2"])
        .exits(0)
        .prints(&last);
    world
        .delta(["log", "-w", "ws", "-n", "0"])
        .exits(0)
        .prints("");
    world
        .delta(["log", "-w", "ws", "-n", "some"])
        .exits(2)
        .says("some");
}

#[test]
fn a_damaged_journal_is_shown_up_to_the_damage() {
    let world = World::with_tools(ECHO);
    one_call(&world, "x");
    let path = world.latest().path("journal.jsonl");
    let journal = world.latest().text("journal.jsonl");
    let mut lines: Vec<&str> = journal.lines().collect();
    let kept = format!("{}\n{}\n", lines[0], lines[1]);
    lines[2] = "{\"seq\":3,]";
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    let log = world
        .delta(["log", "-w", "ws", "--json"])
        .exits(0)
        .prints(&kept);
    log.says("journal.jsonl:3:10").says("damaged");
    let log = world.delta(["log", "-w", "ws"]).exits(0).says(":3:10");
    assert!(!printed(&log).contains("COMPLETED"));
    world.delta(["stats", "-w", "ws"]).exits(0).says("damaged");
    world.delta(["list-runs", "-w", "ws"]).exits(0);
}

#[test]
fn numbers_beyond_all_reason_are_survived() {
    let world = World::with_tools(ECHO);
    one_call(&world, "x");
    let path = world.latest().path("journal.jsonl");
    let mut journal = world.latest().text("journal.jsonl");
    for seq in [100, 101] {
        journal += &format!(
            "{{\"seq\":{seq},\"type\":\"ACTION_RESULT\",\"action_id\":\"z\",\"tool_name\":\"echo\",\
             \"duration_ms\":{0},\"execution_ref\":\"../..\",\"iteration\":7}}\n",
            u64::MAX
        );
    }
    journal += &format!("{{\"seq\":{},\"type\":\"X\"}}\n", u64::MAX);
    fs::write(&path, &journal).unwrap();
    for command in ["log", "stats", "list-runs"] {
        world.delta([command, "-w", "ws"]).exits(0);
    }
}

#[test]
fn a_torn_last_line_is_told_and_the_engine_counts_as_dead() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let journal = world.latest().text("journal.jsonl");
    fs::write(
        world.latest().path("journal.jsonl"),
        &journal[..journal.len() - 9],
    )
    .unwrap();
    let log = world.delta(["log", "-w", "ws"]).exits(0);
    log.says("has no end and is not shown").says("has died");
}

#[test]
fn runs_of_sub_agents_stand_below_the_action_that_started_them() {
    let world = family("");
    world.server.answers(model);
    world.run("go").exits(0);
    let log = printed(&world.delta(["log", "-w", "ws"]).exits(0));
    let two = Run::latest(&world.path("ws/child")).id();
    let three = Run::latest(&world.path("ws/child/child")).id();
    let place = |words: &str| {
        log.find(words)
            .unwrap_or_else(|| panic!("{words} in\n{log}"))
    };
    let places = [
        place("$ "),
        place(&two),
        place("│           │    0:"),
        place(&three),
        place("done by 3"),
        place("done by 2"),
        place("done by 1"),
    ];
    assert!(places.is_sorted(), "{places:?}\n{log}");
    let count = |id: &str| log.matches(&format!("{id} starts")).count();
    assert_eq!((count(&two), count(&three)), (1, 1), "{log}");
}

#[test]
fn an_answer_that_is_secret_is_not_shown() {
    let world = World::new();
    for (sensitive, answer) in [(true, "hunter2"), (false, "blue")] {
        let question = json!({"prompt": "Which word?", "sensitive": sensitive});
        world.model_says([call("call_1", "ask_human", &question), text("done")]);
        world.run(answer).exits(101);
        world.go_on().args(["-m", answer]).exits(0);
    }
    let log = |args: &[&str]| {
        let log = world.delta(["log", "-w", "ws"]).args(args).exits(0);
        printed(&log).replace("user   ", "user:")
    };
    let runs: Vec<String> = world.runs().iter().map(Run::id).collect();
    let texts: Vec<String> = runs.iter().map(|id| log(&[id])).collect();
    let secret = texts
        .iter()
        .find(|text| text.contains("user:hunter2"))
        .unwrap();
    let open = texts
        .iter()
        .find(|text| text.contains("user:blue"))
        .unwrap();
    assert_eq!(secret.matches("hunter2").count(), 1, "{secret}");
    assert!(secret.contains("Which word?") && secret.contains("not shown"));
    assert!(open.contains("person blue"), "{open}");
    // Cut off from its question an answer is not shown either.
    for id in &runs {
        assert!(!log(&[id, "-n", "6"]).contains("person hunter2"));
    }
}

#[test]
fn on_a_terminal_a_long_log_is_coloured_and_goes_through_the_pager() {
    if std::process::Command::new("script")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("skipped: script(1) is not installed");
        return;
    }
    let world = World::new();
    world.model_says([text("done"), text("done")]);
    world.run(&"line\n".repeat(60)).exits(0);
    let on_terminal = |environment: &str| {
        let line = shlex::try_quote(&format!(
            "TERM=xterm {environment} exec \"{}\" log -w ws",
            env!("CARGO_BIN_EXE_delta")
        ))
        .unwrap()
        .into_owned();
        let script = format!("exec script -qefc {line} typescript");
        world.delta([]).under(&["sh", "-c", &script]).exits(0);
        // Its first line tells the command.
        let typescript = world.read("typescript");
        let (_, shown) = typescript.split_once('\n').expect("lines");
        shown.to_owned()
    };
    let paged = on_terminal("PAGER='sed s/^/PAGED:/'");
    assert!(paged.contains("PAGED:"), "{paged}");
    assert!(paged.contains("\x1b[2m"), "{paged:?}");
    assert!(!on_terminal("NO_COLOR=1 PAGER='sed s/^/PAGED:/'").contains("\x1b[2m"));
    assert!(!on_terminal("PAGER=cat").contains("PAGED"));
    world.run("short").exits(0);
    assert!(!on_terminal("PAGER='sed s/^/PAGED:/'").contains("PAGED"));
}

#[test]
fn the_next_request_is_the_one_that_going_on_sends() {
    let world = World::with_tools(ECHO);
    world.model_says([call("call_1", "echo", &json!({"words": "x"}))]);
    world.run("go").args(["--max-iterations", "1"]).exits(4);
    let before = snapshot(world.home());
    let next = world
        .delta(["request", "-w", "ws", "LATEST", "--next"])
        .exits(0);
    assert_eq!(world.server.requests().len(), 1);
    let after = snapshot(&world.workspace());
    assert!(
        after
            .iter()
            .all(|(path, bytes)| before.get(path) == Some(bytes))
    );
    world.model_says([text("done")]);
    world.go_on().exits(0);
    assert_eq!(
        printed(&next),
        String::from_utf8_lossy(&world.server.last().body)
    );
    let next = world
        .delta(["request", "-w", "ws", "LATEST", "--next"])
        .exits(0);
    next.says("needs a message");
}

#[test]
fn no_program_is_run_for_the_next_request() {
    let world = World::new();
    world.write(
        "agent/context.yaml",
        "sources:\n  - {type: computed_file, id: sum, output_path: '${CWD}/sum.md', \
         generator: {shell: 'echo x'}}\n  - {type: journal}\n"
            .replace(
                "{shell: 'echo x'}",
                "{command: [sh, -c, 'echo ran >> $HOME/log; echo sum > sum.md']}",
            ),
    );
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let next = world
        .delta(["request", "-w", "ws", "LATEST", "--next"])
        .exits(0);
    assert!(
        printed(&next.says("sum: its program is not run; using the existing file")).contains("sum")
    );
    let dry = world.delta(["run", "-a", "agent", "-w", "new", "--dry-run", "-m", "go"]);
    dry.exits(0).says("it is left out");
    assert_eq!(world.lines("log"), ["ran"]);
}

#[test]
fn the_first_difference_of_two_requests_is_shown() {
    let world = World::with_tools(ECHO);
    one_call(&world, "x");
    let diff = |a: &str, b: &str| {
        world
            .delta(["request", "-w", "ws", "LATEST", a, "--diff", b])
            .end()
    };
    diff("2", "2").exits(0).prints("");
    let differs = printed(&diff("1", "2").exits(1));
    assert!(differs.contains("in messages[2] (assistant)"), "{differs}");
    assert!(
        differs.contains("1: (nothing)")
            && differs.contains("call_1")
            && differs.lines().count() == 3,
        "{differs}"
    );
    diff("1", "7").exits(1).says("2 requests, not 7");
    let next = world.delta(["request", "-w", "ws", "LATEST", "--next", "--diff", "2"]);
    assert!(printed(&next.exits(1)).contains("requests the next and 2 differ"));
    world.delta(["request", "LATEST", "2", "--next"]).exits(2);
}

#[test]
fn a_run_that_is_not_there_names_those_that_are() {
    let world = World::new();
    for id in ["job-1", "job-2"] {
        world.model_says([text("done")]);
        world.run(id).args(["--run-id", id]).exits(0);
    }
    for command in ["log", "stats", "request"] {
        let look = |run: &str| world.delta([command, "-w", "ws", run]).end();
        look("nix").refuses(1, "job-1").says("job-2");
        look("job").refuses(1, "several").says("job-1");
        look("job-2").exits(0);
        look("LATEST").exits(0);
    }
}

#[test]
fn a_run_that_is_live_can_be_looked_at() {
    let (world, delta) = held();
    let log = printed(&world.delta(["log", "-w", "ws"]).exits(0));
    assert!(log.contains("wait") && !log.contains("end "), "{log}");
    world.delta(["stats", "-w", "ws"]).exits(0);
    for place in [["-w", "ws"], ["-r", "ws"]] {
        let list = printed(&world.delta(["list-runs"]).args(place).exits(0));
        assert!(list.contains(&format!("pid {}", delta.pid())), "{list}");
    }
    world.delta(["request", "-w", "ws", "LATEST"]).exits(0);
    world
        .delta(["request", "-w", "ws", "LATEST", "--next"])
        .exits(0);
    world.server.release();
    delta.wait().exits(0).prints("done\n");
}

#[test]
fn a_dry_run_prints_what_a_run_would_send_and_leaves_nothing() {
    let world = World::with_tools(ECHO);
    let before = snapshot(world.home());
    let dry = world.run("Say\nit").args(["--dry-run"]).exits(0);
    let elsewhere = world
        .delta(["run", "-a", "agent", "--dry-run", "-m", "Say\nit"])
        .exits(0);
    assert!(!world.exists("ws") && !world.exists("agent/workspaces"));
    assert!(
        before
            .iter()
            .all(|(path, bytes)| &fs::read(path).unwrap() == bytes)
    );
    assert!(world.server.requests().is_empty());
    world.model_says([text("done")]);
    world.run("Say\nit").exits(0);
    let sent = String::from_utf8(world.server.last().body.clone()).unwrap();
    assert_eq!((printed(&dry), printed(&elsewhere)), (sent.clone(), sent));
    world
        .delta(["run", "-a", "agent", "-w", "no", "--dry-run"])
        .exits(2)
        .says("-m");
    assert!(!world.exists("no"));
}

#[test]
fn a_dry_run_needs_no_key() {
    let world = World::new().llm("base_url: https://models.example/v1");
    let dry = world.run("go").args(["--dry-run"]).exits(0);
    assert!(printed(&dry.says("key")).contains("\"go\""));
}

#[test]
fn a_dry_run_of_what_would_be_resumed_is_its_next_request() {
    let world = World::with_tools(ECHO);
    world.model_says([call("call_1", "echo", &json!({"words": "x"}))]);
    world.run("go").args(["--max-iterations", "1"]).exits(4);
    let next = world
        .delta(["request", "-w", "ws", "LATEST", "--next"])
        .exits(0);
    let dry = world
        .run("go")
        .args(["--dry-run"])
        .exits(0)
        .says("would be resumed");
    assert_eq!(printed(&dry), printed(&next));
    let other = printed(&world.run("other").args(["--dry-run"]).exits(0));
    assert!(!other.contains("call_1") && other.contains("other"));
}

#[test]
fn a_last_event_that_lacks_only_its_newline_is_shown_without_a_warning() {
    let world = World::with_tools(ECHO);
    one_call(&world, "words");
    let journal = world.latest().path("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let whole = printed(&world.delta(["log", "-w", "ws"]).exits(0));
    fs::write(&journal, text.trim_end()).unwrap();
    let log = world.delta(["log", "-w", "ws"]).exits(0);
    assert_eq!((printed(&log), log.stderr.as_str()), (whole, ""));
    let last = world.delta(["log", "-w", "ws", "-n", "1", "--json"]).end();
    let end = format!("{}\n", text.lines().last().unwrap());
    last.exits(0).prints(&end);
    let stats = printed(&world.delta(["stats", "-w", "ws"]).exits(0));
    assert!(stats.contains("COMPLETED"), "{stats}");
}

#[test]
fn a_run_is_named_by_the_path_of_its_directory_too() {
    let world = World::with_tools(ECHO);
    one_call(&world, "words");
    let id = world.latest().id();
    let path = format!("ws/.delta/{id}");
    for command in ["log", "stats", "request"] {
        let by_path = printed(&world.delta([command, &path]).exits(0));
        let by_name = printed(&world.delta([command, "-w", "ws", &id]).exits(0));
        assert!(!by_path.is_empty() && by_path == by_name, "{command}");
        let none = world.delta([command, "ws/.delta/none"]).end();
        none.refuses(1, "ws/.delta/none").says_one_line();
        let other = world.delta([command, "./agent"]).end();
        other.refuses(1, "not a run's directory");
    }
    let next = world.delta(["request", &path, "--next"]).exits(0);
    assert!(!next.stdout.is_empty());
    world.model_says([text("again")]);
    let fork = world.delta(["fork", &path, "--at", "1"]).end();
    fork.exits(0).prints("again\n");
}

#[test]
fn an_empty_name_is_no_run_s() {
    let world = World::with_tools(ECHO);
    one_call(&world, "words");
    let id = world.latest().id();
    for command in ["log", "stats", "request", "report", "replay"] {
        let none = world.delta([command, "-w", "ws", ""]).end();
        none.refuses(1, "no run ''").says(&id);
    }
    let fork = world.delta(["fork", "-w", "ws", "", "--at", "1"]).end();
    fork.refuses(1, "no run ''");
    let diff = world.delta(["diff", "-w", "ws", "", &id]).end();
    diff.refuses(1, "no run ''");
}

#[test]
fn a_run_that_lies_outside_of_a_workspace_is_shown_and_not_gone_on_with() {
    let survey = recordings().join("survey/run");
    let path = survey.to_str().unwrap();
    let world = World::new();
    for command in ["log", "stats", "request"] {
        assert!(!printed(&world.delta([command, path]).exits(0)).is_empty());
    }
    let next = world.delta(["request", path, "--next"]).end();
    next.refuses(1, "no workspace");
    let fork = world.delta(["fork", path, "--at", "1"]).end();
    fork.refuses(1, "no workspace");
}

/// A family whose second generation works where the words say.
pub fn scattered(words: &str) -> World {
    let world = family("");
    let yaml = world.read("agent/agent.yaml");
    world.write("agent/agent.yaml", yaml.replace("-w, child", words));
    world.server.answers(model);
    world.run("go").exits(0);
    world
}

#[test]
fn a_sub_agent_is_found_where_the_command_says_that_it_works() {
    for words in ["-w, ../far", "--work-dir=../far", "-y"] {
        let world = scattered(words);
        let log = printed(&world.delta(["log", "-w", "ws"]).exits(0));
        // Its own sub-agent lies below it.
        for text in ["agent two", "agent three", "done by 3"] {
            assert!(log.contains(text), "{words}: {text} is not in {log}");
        }
    }
}

#[test]
fn a_task_is_listed_by_its_own_words_and_not_by_those_of_its_files() {
    let world = World::new();
    world.write("spec.md", "What to build.\n");
    for message in [
        &["-f", "spec.md", "-m", "Build it,", "-m", "and test it"][..],
        &["-f", "spec.md", "-f", "spec.md"],
        &["-m", "# File: of mine"],
    ] {
        world.model_says([text("done")]);
        let run = world.delta(["run", "-a", "agent", "-w", "ws"]);
        run.args(message).exits(0);
    }
    let list = printed(&world.delta(["list-runs", "-w", "ws"]).exits(0));
    let words: Vec<&str> = list
        .lines()
        .skip(1)
        .map(|line| line.rsplit("  ").next().unwrap())
        .collect();
    assert_eq!(
        words,
        [
            "# File: of mine",
            "What to build. # File: spec.md What to build.",
            "Build it, and test it"
        ],
        "{list}"
    );
}

#[test]
fn a_call_is_shown_as_what_was_asked_for_and_the_wrapper_in_the_details() {
    let tools = "\
- {name: say, exec: 'printf %s ${words}'}
- {name: own, exec: 'printf %s ${words}', wrapper: [env, B=2]}
- {name: bare, exec: 'env ${words}', wrapper: []}";
    let world = World::with_tools(tools).top("wrapper: [env, 'A=${CWD}', --]");
    let words = json!({"words": "it's\na \u{202e}word"});
    world.model_says([
        calls(&[
            ("a", "say", words.clone()),
            ("b", "own", words.clone()),
            ("c", "bare", json!({"words": "A=1"})),
        ]),
        text("done"),
    ]);
    let run = world.run("go").arg("-v").exits(0);
    let said = r"printf %s $'it\'s\na \342\200\256word'";
    let log = printed(&world.delta(["log", "-w", "ws"]).exits(0));
    let effects = printed(&world.delta(["log", "--effects", "-w", "ws"]).exits(0));
    for shown in [&run.stderr, &log] {
        assert_eq!(shown.matches(&format!("$ {said}\n")).count(), 2, "{shown}");
        assert!(shown.contains("$ env 'A=1'\n"), "{shown}");
    }
    assert_eq!(
        effects.matches(&format!("  {said}\n")).count(),
        2,
        "{effects}"
    );
    for last in ["1", "2", "3", "4"] {
        let shown = printed(&world.delta(["log", "-w", "ws", "-n", last]).exits(0));
        assert!(log.ends_with(&shown), "{shown}");
    }
    let events = world.latest().events("ACTION_REQUEST");
    let full = events[0]["resolved_command"].as_str().unwrap();
    assert!(
        full.starts_with("env 'A=") && full.ends_with(said),
        "{full}"
    );
    run.does_not_say(full).does_not_say("in full");
    assert!(!log.contains(full), "{log}");
    let page = crate::view::report::page(&world, "ws");
    let action = crate::view::report::records(&page);
    let action = action
        .iter()
        .find(|record| record["type"] == "ACTION_REQUEST")
        .unwrap();
    assert_eq!(action["asked"], said);
    assert_eq!(action["resolved_command"], full);
}
