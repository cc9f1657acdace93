//! Files that are torn, lost, contradictory or edited by hand.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";

/// The journal of a run that was killed while it waited for its second answer:
/// `ENGINE_START`, `USER_MESSAGE`, `THOUGHT`, `ACTION_REQUEST`, `ACTION_RESULT`.
struct Broken {
    world: World,
    run: Run,
    journal: String,
}

impl Broken {
    fn new() -> Self {
        let world = World::with_tools(ECHO);
        let hi = json!({"words": "hi é"});
        world.model_says([call("call_1", "echo", &hi), text("never").held()]);
        let delta = world.run("go").spawn();
        world.server.wait_for(2);
        delta.kill();
        let run = world.latest();
        let journal = run.text("journal.jsonl");
        assert_eq!(run.types().last().unwrap(), "ACTION_RESULT");
        Self {
            world,
            run,
            journal,
        }
    }

    fn path(&self) -> PathBuf {
        self.run.path("journal.jsonl")
    }

    fn lines(&self) -> Vec<String> {
        self.journal.lines().map(str::to_owned).collect()
    }

    /// Puts the journal into this state.
    fn journal_is(&self, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(), bytes).unwrap();
    }

    /// The same command goes on and completes.
    #[track_caller]
    fn goes_on(&self) -> Vec<Value> {
        self.world.model_says([text("done")]);
        self.world.run("go").exits(0).prints("done\n");
        assert_eq!(self.world.latest(), self.run);
        assert_eq!(self.run.ending().0, "COMPLETED");
        let journal = self.run.journal();
        let seqs: Vec<_> = journal
            .iter()
            .filter_map(|event| event["seq"].as_u64())
            .collect();
        assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
        journal
    }

    /// The same command and `continue` end with exit code 1 and these words; nothing is changed.
    #[track_caller]
    fn is_refused(&self, words: &[&str]) {
        let before = fs::read(self.path()).unwrap();
        for delta in [self.world.run("go"), self.world.go_on()] {
            let mut outcome = delta.exits(1).prints("");
            for word in words {
                outcome = outcome.says(word);
            }
        }
        assert_eq!(fs::read(self.path()).unwrap(), before);
        assert_eq!(self.world.runs().len(), 1);
        assert_eq!(self.world.server.requests().len(), 2);
    }
}

fn warnings(journal: &[Value]) -> usize {
    journal
        .iter()
        .filter(|event| event["type"] == "SYSTEM_MESSAGE")
        .count()
}

#[test]
fn a_last_line_torn_at_any_byte_is_cut_off_and_reported() {
    let broken = Broken::new();
    let body = broken.journal.trim_end().len();
    let start = broken.journal.trim_end().rfind('\n').unwrap() + 1;
    // At any byte of its beginning and of its end, and at every third between them.
    let is_near_an_end = |at: usize| at < start + 40 || at > body - 40;
    for end in (start + 1..body).filter(|at| is_near_an_end(*at) || at % 3 == 0) {
        broken.journal_is(&broken.journal.as_bytes()[..end]);
        // Otherwise each round reads what all before it have spent.
        fs::remove_file(broken.run.path("spending.jsonl")).unwrap();
        let journal = broken.goes_on();
        assert_eq!(warnings(&journal), 1, "torn after {} bytes", end - start);
        let results: Vec<_> = journal
            .iter()
            .filter(|e| e["type"] == "ACTION_RESULT")
            .collect();
        assert_eq!(results.len(), 1);
        assert_eq!(
            results[0]["status"],
            "ERROR",
            "torn after {} bytes",
            end - start
        );
    }
}

#[test]
fn a_last_line_that_lacks_only_its_newline_is_kept() {
    let broken = Broken::new();
    broken.journal_is(broken.journal.trim_end());
    let journal = broken.goes_on();
    assert_eq!(warnings(&journal), 0);
    let text = broken.run.text("journal.jsonl");
    assert!(
        text.starts_with(&broken.journal),
        "the line is still there, and ends"
    );
}

#[test]
fn every_line_but_the_last_may_be_the_last() {
    let broken = Broken::new();
    let lines = broken.lines();
    // With one line, not even the message is there.
    for count in 2..=lines.len() {
        broken.journal_is(lines[..count].join("\n") + "\n");
        let journal = broken.goes_on();
        assert_eq!(warnings(&journal), 0);
    }
}

#[test]
fn zeros_at_the_end_are_a_torn_line() {
    let broken = Broken::new();
    broken.journal_is(broken.journal.clone() + &"\0".repeat(300));
    let journal = broken.goes_on();
    assert_eq!(warnings(&journal), 1);
}

#[test]
fn an_empty_journal_is_a_run_that_never_began() {
    for kept in 0..=1 {
        let broken = Broken::new();
        let lines = broken.lines();
        broken.journal_is(
            lines[..kept]
                .iter()
                .map(|line| format!("{line}\n"))
                .collect::<String>(),
        );
        broken.world.model_says([text("done")]);
        broken.world.run("go").exits(0).prints("done\n");
        let said = broken.world.server.last().messages();
        assert_eq!(said.iter().filter(|m| m["content"] == "go").count(), 1);
    }
}

#[test]
fn damage_in_the_middle_is_named_by_line_and_column_and_nothing_is_changed() {
    let broken = Broken::new();
    let lines = broken.lines();
    let mut torn = lines.clone();
    torn[2].truncate(40);
    broken.journal_is(torn.join("\n") + "\n");
    broken.is_refused(&["journal.jsonl:3:", "--force"]);

    let mut garbage = lines.clone();
    garbage[1] = "not json at all".into();
    broken.journal_is(garbage.join("\n") + "\n");
    broken.is_refused(&["journal.jsonl:2:2", "--force"]);

    let mut number = lines;
    number[3] = "42".into();
    broken.journal_is(number.join("\n") + "\n");
    broken.is_refused(&["journal.jsonl:4:"]);
}

#[test]
fn a_line_of_zeros_in_the_middle_is_damage() {
    let broken = Broken::new();
    let mut lines = broken.lines();
    lines.insert(2, "\0".repeat(512));
    broken.journal_is(lines.join("\n") + "\n");
    broken.is_refused(&["journal.jsonl:3:1"]);
}

#[test]
fn bytes_that_are_no_utf8_are_damage() {
    let broken = Broken::new();
    let mut bytes = broken.journal.clone().into_bytes();
    let at = broken.journal.find("\"go\"").unwrap() + 1;
    bytes[at] = 0xff;
    broken.journal_is(bytes);
    broken.is_refused(&["journal.jsonl:", "--force"]);
}

#[test]
fn damage_is_reported_in_plain_words() {
    let broken = Broken::new();
    for (line, words) in [
        ("[7]", "a list where an event (an object) belongs"),
        (
            r#""x""#,
            r#"the text "x" where an event (an object) belongs"#,
        ),
        ("null", "null where an event (an object) belongs"),
        (
            r#"{"seq":"a","type":"X"}"#,
            r#"seq is the text "a", not a number"#,
        ),
        (
            r#"{"seq":-1,"type":"X"}"#,
            "seq is the number -1, not a whole number from 0",
        ),
        (
            r#"{"seq":3,"type":"ENGINE_START","pid":1.5}"#,
            "pid is the number 1.5, not a whole number from 0",
        ),
        (
            r#"{"seq":3,"type":"ACTION_REQUEST","call_id":{"a": 1}}"#,
            "call_id is an object, not a text",
        ),
        (
            r#"{"seq":" at line 3, expected ","type":"X"}"#,
            r#"seq is the text " at line 3, expected ", not a number"#,
        ),
        (
            r#"{"seq":3,"type":"ENGINE_START","resumed":"no"}"#,
            r#"resumed is the text "no", not true or false"#,
        ),
        (
            r#"{"seq":3,"type":"THOUGHT","usage":"x"}"#,
            r#"usage is the text "x", not an object"#,
        ),
        (
            r#"{"seq":3,"type":"THOUGHT","usage":{"prompt_tokens":"a"}}"#,
            r#"a member of usage is the text "a", not a number"#,
        ),
        (r#"{"seq":3,"seq":3,"type":"X"}"#, "seq is there twice"),
        (
            r#"{"seq":3,"type":"ENGINE_START","forked_from":{"iteration":1}}"#,
            "run_id is missing",
        ),
    ] {
        let mut lines = broken.lines();
        line.clone_into(&mut lines[2]);
        broken.journal_is(lines.join("\n") + "\n");
        broken.is_refused(&["journal.jsonl:3", &format!(": {words}")]);
    }
}

#[test]
fn force_passes_over_damaged_lines_and_leaves_them_where_they_are() {
    let broken = Broken::new();
    let mut lines = broken.lines();
    lines.insert(2, "{\"seq\": 2, \"type\": \"THOU".into());
    let damaged = lines.join("\n") + "\n";
    broken.journal_is(&damaged);
    broken.is_refused(&["journal.jsonl:3:"]);
    broken.world.model_says([text("done")]);
    broken
        .world
        .go_on()
        .arg("--force")
        .exits(0)
        .prints("done\n");
    let after = broken.run.text("journal.jsonl");
    assert!(after.starts_with(&damaged));
    let added: Vec<Value> = after[damaged.len()..]
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(warnings(&added), 1);
    assert_eq!(
        broken.world.server.last().observation("call_1").trim_end(),
        "hi é"
    );
}

#[test]
fn a_journal_that_an_editor_made_an_array_is_named_as_such() {
    let broken = Broken::new();
    let array = format!("[{}]", broken.lines().join(","));
    broken.journal_is(&array);
    broken.is_refused(&["journal.jsonl", "array"]);
    let value: Value = serde_json::from_str(&array).unwrap();
    broken.journal_is(serde_json::to_string_pretty(&value).unwrap() + "\n");
    broken.is_refused(&["journal.jsonl", "array"]);
}

#[test]
fn a_journal_that_an_editor_pretty_printed_is_named_as_such() {
    let broken = Broken::new();
    let pretty = |line: &String| {
        let event: Value = serde_json::from_str(line).unwrap();
        serde_json::to_string_pretty(&event).unwrap() + "\n"
    };
    broken.journal_is(broken.lines().iter().map(pretty).collect::<String>());
    broken.is_refused(&["journal.jsonl", "pretty-printed"]);
}

#[test]
fn lost_torn_or_empty_metadata_is_rebuilt() {
    let states: [Option<&[u8]>; 5] = [
        None,
        Some(b""),
        Some(b"{\"run_id\": \"2"),
        Some(b"[]"),
        Some(b"\0\0\0\0"),
    ];
    for state in states {
        let broken = Broken::new();
        let path = broken.run.path("metadata.json");
        match state {
            None => fs::remove_file(path).unwrap(),
            Some(bytes) => fs::write(path, bytes).unwrap(),
        }
        broken.goes_on();
        let metadata = broken.run.metadata();
        assert_eq!(metadata["run_id"], broken.run.id());
        assert_eq!(metadata["initial_message"], "go");
        assert_eq!(metadata["agent_name"], "probe");
        assert_eq!(metadata["iterations"], 2);
        assert_eq!(metadata["usage"]["llm_calls"], 2);
        assert_eq!(metadata["usage"]["total_tokens"], 220);
    }
}

#[test]
fn metadata_that_contradicts_the_journal_is_wrong() {
    let broken = Broken::new();
    let mut metadata = broken.run.metadata();
    metadata["status"] = json!("COMPLETED");
    metadata["initial_message"] = json!("something else");
    metadata["iterations"] = json!(99);
    metadata["exit_code"] = json!(0);
    fs::write(broken.run.path("metadata.json"), metadata.to_string()).unwrap();
    broken.goes_on();
    let metadata = broken.run.metadata();
    assert_eq!(metadata["initial_message"], "go");
    assert_eq!(metadata["iterations"], 2);
}

#[test]
fn continue_needs_no_metadata_either() {
    let broken = Broken::new();
    fs::remove_file(broken.run.path("metadata.json")).unwrap();
    broken.world.model_says([text("done")]);
    broken.world.go_on().exits(0).prints("done\n");
}

#[test]
fn a_latest_that_is_lost_or_points_nowhere_does_no_harm() {
    let states: [Option<&str>; 4] = [
        None,
        Some(""),
        Some("20200101_000000_abcdef\n"),
        Some("../../etc\n"),
    ];
    for state in states {
        let broken = Broken::new();
        let path = broken.world.path("ws/.delta/LATEST");
        match state {
            None => fs::remove_file(path).unwrap(),
            Some(text) => fs::write(path, text).unwrap(),
        }
        broken.goes_on();
        assert_eq!(
            broken.world.read("ws/.delta/LATEST"),
            format!("{}\n", broken.run.id())
        );
    }
}

#[test]
fn things_that_are_no_runs_are_passed_over() {
    let broken = Broken::new();
    fs::create_dir(broken.world.path("ws/.delta/29990101_000000_ffffff")).unwrap();
    fs::create_dir(broken.world.path("ws/.delta/context_artifacts")).unwrap();
    broken.world.write("ws/.delta/notes.txt", "");
    fs::remove_file(broken.world.path("ws/.delta/LATEST")).unwrap();
    broken.goes_on();
}

/// Edits the events and lets the run go on.
#[track_caller]
fn edited(edit: impl FnOnce(&mut Vec<Value>)) -> (Broken, std::sync::Arc<Received>) {
    let broken = Broken::new();
    let mut events = broken.run.journal();
    edit(&mut events);
    broken.journal_is(
        events
            .iter()
            .map(|event| format!("{event}\n"))
            .collect::<String>(),
    );
    broken.goes_on();
    let last = broken.world.server.last();
    (broken, last)
}

#[test]
fn an_edited_observation_is_what_the_model_sees() {
    let (_, request) = edited(|events| events[4]["observation_content"] = json!("edited"));
    assert_eq!(request.observation("call_1"), "edited");
}

#[test]
fn an_edited_message_is_what_the_model_sees() {
    let broken = Broken::new();
    broken.journal_is(
        broken
            .journal
            .replacen("\"content\":\"go\"", "\"content\":\"go there\"", 1),
    );
    broken.world.model_says([text("done")]);
    broken.world.go_on().exits(0);
    assert_eq!(
        broken.world.server.last().messages()[1]["content"],
        "go there"
    );
}

#[test]
fn lines_without_a_number_are_numbered_by_their_place() {
    let (broken, request) = edited(|events| {
        for event in events.iter_mut() {
            event.as_object_mut().unwrap().remove("seq");
        }
        events.push(json!({"type": "USER_MESSAGE", "content": "by hand"}));
    });
    let last = request.messages().pop().unwrap();
    assert_eq!(last["content"], "by hand");
    let numbers: Vec<_> = broken.run.journal()[6..]
        .iter()
        .map(|event| event["seq"].clone())
        .collect();
    assert_eq!(numbers[0], 7);
}

#[test]
fn a_line_put_in_without_a_number_takes_none_from_those_behind_it() {
    let by_hand = |content: &str| json!({"type": "SYSTEM_MESSAGE", "content": content});
    let (broken, request) = edited(|events| {
        events.insert(2, by_hand("one"));
        events.insert(3, by_hand("two"));
        events.push(by_hand("three"));
    });
    assert_eq!(request.observation("call_1").trim_end(), "hi é");
    let run = broken.run.id();
    let log = broken.world.delta(["log", "-w", "ws", &run]).exits(0);
    let log = log.does_not_say("damaged");
    for said in ["one", "two", "three", "hi é", "done"] {
        assert!(log.describe().contains(said), "{}", log.describe());
    }
}

#[test]
fn what_is_larger_than_a_journal_can_be_is_not_read() {
    let broken = Broken::new();
    let id = broken.run.id();
    let sparse = |path: &Path, len: u64| {
        let file = fs::OpenOptions::new().append(true).open(path).unwrap();
        file.set_len(len).unwrap();
    };
    // Metadata of that size are not read, but made anew.
    broken.world.model_says([text("done")]);
    sparse(&broken.run.path("metadata.json"), 1 << 40);
    let run = || {
        broken
            .world
            .run("go")
            .args(["--run-id", &id])
            .after("ulimit -v 2000000")
    };
    run().exits(0).prints("done\n");
    let metadata = fs::metadata(broken.run.path("metadata.json")).unwrap();
    assert!(metadata.len() < 1 << 16);
    sparse(&broken.path(), 1 << 40);
    for command in [["log"], ["report"], ["stats"]] {
        let delta = broken.world.delta(command).args([&*id, "-w", "ws"]);
        let outcome = delta.after("ulimit -v 2000000").end();
        outcome.exits(1).says("is longer than 512 MiB");
    }
    for delta in [
        run(),
        broken.world.go_on(),
        broken.world.delta(["diff", "-w", "ws", &id, &id]),
        broken.world.delta(["fork", "-w", "ws", &id, "--at", "1"]),
    ] {
        let outcome = delta.after("ulimit -v 2000000").end();
        outcome.refuses(1, "is larger than 4096 MiB");
    }
}

/// Makes a file as large as it is not meant to be, without taking room.
fn blow_up(path: &Path) {
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    file.unwrap().set_len(1200 << 20).unwrap();
}

#[test]
fn small_files_that_are_too_large_are_not_read() {
    let small = "ulimit -v 600000";
    let run = || {
        let world = World::with_tools(ECHO);
        let sources = "sources:\n- {type: file, path: '${CWD}/RULES.md', on_missing: skip}\n- {type: journal}\n";
        world.write("agent/context.yaml", sources);
        world.model_says([call("c", "echo", &json!({"words": "one"})), text("done")]);
        world.run("go").exits(0);
        world
    };
    let more = |world: &World| world.go_on().args(["-m", "more"]).after(small);

    let world = run();
    blow_up(&world.path("ws/.env"));
    world.model_says([text("done")]);
    let said = "ws/.env is ignored: it is larger than 1 MiB";
    more(&world).exits(0).says(said);

    let world = run();
    blow_up(&world.path("ws/RULES.md"));
    world.model_says([text("done")]);
    let said = "RULES.md: it is larger than 64 MiB";
    more(&world).exits(0).says(said);

    let world = run();
    blow_up(&world.latest().path("executed.json"));
    world.model_says([text("done")]);
    more(&world).exits(0).says("executed.json is damaged");

    let world = run();
    let newest = world.latest().invocations().pop().unwrap();
    let request = newest.join("request.json");
    blow_up(&request);
    let replay = || world.delta(["replay", "-w", "ws", "LATEST"]).after(small);
    replay()
        .end()
        .says("request.json: it is larger than 256 MiB");
    for command in ["report", "stats"] {
        world
            .delta([command, "-w", "ws", "LATEST"])
            .after(small)
            .exits(0);
    }
    // The next request does not build upon it.
    world.model_says([text("done")]);
    more(&world).exits(0);

    let world = run();
    for invocation in world.latest().invocations() {
        blow_up(&invocation.join("metadata.json"));
    }
    for command in ["report", "stats"] {
        world
            .delta([command, "-w", "ws", "LATEST"])
            .after(small)
            .exits(0);
    }
}

#[test]
fn a_ledger_that_no_line_ends_in_is_not_read() {
    let small = "ulimit -v 100000";
    let world = World::new().top("budget: {tokens: 100000}");
    world.model_says([text("done")]);
    world.run("go").exits(0);
    blow_up(&world.latest().path("spending.jsonl"));
    let stats = world.delta(["stats", "-w", "ws", "LATEST"]).after(small);
    stats.end().says("spending.jsonl:3: a line is too long");
    let list = world.delta(["list-runs", "-r", "ws"]).after(small);
    list.exits(0).says("the ledger of 1 run cannot be read");
}

#[test]
fn a_journal_that_is_no_regular_file_is_refused() {
    for target in ["/dev/zero", "/dev/null", "/proc", "../../../mine"] {
        let broken = Broken::new();
        let journal = fs::read(broken.path()).unwrap();
        broken.world.write("mine", journal);
        fs::remove_file(broken.path()).unwrap();
        std::os::unix::fs::symlink(target, broken.path()).unwrap();
        let id = broken.run.id();
        for command in [
            ["log", &id].as_slice(),
            &["log", "--json", &id],
            &["log", "-n", "1", &id],
            &["report", &id],
            &["stats", &id],
            &["diff", &id, &id],
            &["fork", &id, "--at", "1"],
            &["replay", &id],
        ] {
            let delta = broken.world.delta(command.iter().copied());
            delta
                .args(["-w", "ws"])
                .after("ulimit -v 2000000")
                .refuses(1, "journal.jsonl: it is not a regular file");
        }
        for delta in [broken.world.run("go"), broken.world.go_on()] {
            let delta = delta.after("ulimit -v 2000000");
            delta.exits(1).says("it is not a regular file");
        }
    }
}

#[test]
fn gaps_in_the_numbers_are_fine() {
    edited(|events| {
        for (at, event) in events.iter_mut().enumerate() {
            event["seq"] = json!(10 * (at + 1));
        }
    });
}

#[test]
fn numbers_that_do_not_increase_are_damage() {
    let broken = Broken::new();
    let mut lines = broken.lines();
    lines.swap(2, 3);
    broken.journal_is(lines.join("\n") + "\n");
    broken.is_refused(&["journal.jsonl:4:", "seq"]);
}

#[test]
fn a_result_whose_call_is_gone_is_left_out_of_the_request() {
    let (broken, request) = edited(|events| {
        events.remove(2);
    });
    assert_eq!(request.messages().len(), 2);
    assert!(broken.run.text("journal.jsonl").contains("ACTION_RESULT"));
}

#[test]
fn a_call_whose_result_is_gone_gets_one_in_the_request() {
    let world = World::with_tools("- {name: note, shell: 'echo ${n} >> ../log'}");
    let note = |n: u32| call(&format!("call_{n}"), "note", &json!({"n": n.to_string()}));
    world.model_says([note(1), note(2), text("never").held()]);
    let delta = world.run("go").spawn();
    world.server.wait_for(3);
    delta.kill();
    let run = world.latest();
    let journal = run.text("journal.jsonl");
    let mut lines: Vec<_> = journal.lines().collect();
    let first = lines
        .iter()
        .position(|line| line.contains("ACTION_RESULT"))
        .unwrap();
    lines.remove(first);
    fs::write(run.path("journal.jsonl"), lines.join("\n") + "\n").unwrap();
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    // That the request is valid is checked by the server. Nothing was run again.
    assert_eq!(world.lines("log"), ["1", "2"]);
    assert_eq!(world.server.last().messages().len(), 6);
}

#[test]
fn nested_payloads_of_earlier_engines_are_read() {
    edited(|events| {
        for event in events.iter_mut() {
            let all = event.as_object().unwrap().clone();
            let (mut outer, mut payload) = (serde_json::Map::new(), serde_json::Map::new());
            for (key, value) in all {
                let outside = matches!(key.as_str(), "seq" | "timestamp" | "type");
                if outside { &mut outer } else { &mut payload }.insert(key, value);
            }
            outer.insert("payload".into(), Value::Object(payload));
            *event = Value::Object(outer);
        }
    });
}

#[test]
fn blank_lines_are_passed_over() {
    let broken = Broken::new();
    broken.journal_is(broken.lines().join("\n\n") + "\n");
    broken.world.model_says([text("done")]);
    broken.world.run("go").exits(0).prints("done\n");
}

#[test]
fn a_journal_damaged_in_the_middle_and_torn_at_its_end_is_left_as_it_is() {
    let broken = Broken::new();
    let mut lines = broken.lines();
    lines[2].truncate(40);
    let torn = lines.join("\n");
    broken.journal_is(&torn[..torn.len() - 9]);
    broken.is_refused(&["journal.jsonl:3:", "--force"]);
    // What is whole but for its newline gets none either.
    broken.journal_is(&torn);
    broken.is_refused(&["journal.jsonl:3:", "--force"]);
}

#[test]
fn numbers_beyond_what_all_readers_hold_are_damage() {
    let broken = Broken::new();
    for number in [
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
    ] {
        for (line, key) in [(3, "iteration"), (5, "seq")] {
            let mut lines = broken.lines();
            let (before, rest) = lines[line - 1].split_once(&format!("\"{key}\":")).unwrap();
            let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
            lines[line - 1] = format!("{before}\"{key}\":{number}{after}");
            broken.journal_is(lines.join("\n") + "\n");
            broken.is_refused(&[&format!("journal.jsonl:{line}"), "damaged"]);
        }
    }
}

/// JSON as Python's `json.dumps` spaces it.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let pair =
                |(key, value): (&String, &Value)| format!("{}: {}", json!(key), spaced(value));
            let pairs: Vec<_> = map.iter().map(pair).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

#[test]
fn a_journal_in_another_spacing_keeps_the_window() {
    let world = World::with_tools(ECHO);
    let sources = "sources:\n  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}\n  \
                   - {type: journal, max_iterations: 2}\n";
    world.write("agent/context.yaml", sources);
    let words = json!({"words": "x"});
    let ids = ["a", "b", "c", "d", "e"];
    world.model_says(ids.map(|id| call(id, "echo", &words)));
    world.model_says([text("never").held()]);
    let delta = world.run("go").spawn();
    world.server.wait_for(6);
    delta.kill();
    let run = world.latest();
    let lines = run.journal();
    let rewritten: String = lines.iter().map(|line| spaced(line) + "\n").collect();
    assert_ne!(rewritten, run.text("journal.jsonl"));
    fs::write(run.path("journal.jsonl"), rewritten).unwrap();
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    let requests = world.server.requests();
    assert_eq!(requests[6].messages(), requests[5].messages());
    let results = requests[6]
        .messages()
        .into_iter()
        .filter(|m| m["role"] == "tool");
    let ids: Vec<_> = results.map(|m| m["tool_call_id"].clone()).collect();
    assert_eq!(ids, ["d", "e"]);
}

/// Replaces the journal in one way while its run is live.
#[track_caller]
fn is_replaced_by(script: &str) {
    let world = World::with_tools("- {name: edit, exec: 'sh ${AGENT_HOME}/edit.sh'}");
    let script =
        format!("cd \"$DELTA_RUN_DIR\" && {script} && cp journal.jsonl \"$HOME/replaced\"\n");
    world.write("agent/edit.sh", script);
    world.model_says([call("a", "edit", &json!({}))]);
    let outcome = world.run("go").exits(4).prints("");
    outcome.says("journal.jsonl");
    let run = world.latest();
    assert_eq!(run.text("journal.jsonl"), world.read("replaced"));
    assert_eq!(run.types().last().unwrap(), "ACTION_REQUEST");
    // Whoever owns the new file may be at work.
    assert_eq!(run.metadata()["status"], "RUNNING");
    assert_eq!(world.server.requests().len(), 1);

    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.latest(), run);
    assert_eq!(run.result(1)["status"], "ERROR");
    assert_eq!(run.ending().0, "COMPLETED");
}

#[test]
fn a_journal_that_is_replaced_while_its_run_is_live_ends_the_run() {
    is_replaced_by("cp journal.jsonl new && mv new journal.jsonl");
    is_replaced_by("sed -i 's/go/go/' journal.jsonl");
}

#[test]
fn a_journal_that_is_removed_while_its_run_is_live_ends_the_run() {
    let world = World::with_tools("- {name: lose, shell: 'rm \"$DELTA_RUN_DIR/journal.jsonl\"'}");
    world.model_says([call("a", "lose", &json!({}))]);
    let outcome = world.run("go").exits(4).prints("");
    outcome.says("journal.jsonl");
    assert!(!world.latest().path("journal.jsonl").exists());
}

#[test]
fn lost_metadata_of_a_completed_run_is_written_anew_when_its_result_is_told_again() {
    let world = World::new();
    world.model_says([text("done")]);
    let delta = || world.run("go").args(["--run-id", "nightly"]);
    let parent = "20260102_030405_abcdef";
    let first = delta().env("DELTA_RUN_ID", parent);
    first.exits(0).prints("done\n");
    let run = world.latest();
    let before = run.metadata();
    assert_eq!(before["parent_run_id"], parent);
    fs::remove_file(run.path("metadata.json")).unwrap();
    delta().exits(0).prints("done\n");
    let after = run.metadata();
    for key in [
        "run_id",
        "agent_name",
        "status",
        "stop_reason",
        "exit_code",
        "result",
        "iterations",
        "initial_message",
        "parent_run_id",
        "agent_home",
        "work_dir",
    ] {
        assert_eq!(after[key], before[key], "{key}");
    }
    assert_eq!(run.events("ENGINE_START").len(), 1);
}

#[test]
fn the_parent_is_known_when_metadata_is_lost() {
    let world = World::new();
    let parent = "20260102_030405_abcdef";
    world.model_says([text("never").held()]);
    let delta = world.run("go").env("DELTA_RUN_ID", parent).spawn();
    world.server.wait_for(1);
    delta.kill();
    let run = world.latest();
    fs::remove_file(run.path("metadata.json")).unwrap();
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.latest(), run);
    assert_eq!(run.metadata()["parent_run_id"], parent);
}

#[test]
fn a_pipe_in_the_place_of_a_file_keeps_nobody_waiting() {
    const REFUSED: &str = "it is not a regular file";
    for (file, said) in [
        ("ws/.delta/lock", "no such device or address"),
        ("ws/.delta/LATEST", ""),
        ("ws/.delta/VERSION", REFUSED),
        ("RUN/metadata.json", ""),
        ("RUN/engine.log", ""),
        ("RUN/journal.jsonl", REFUSED),
    ] {
        let world = World::new();
        world.model_says([text("one")]);
        world.run("go").exits(0);
        let run = world.latest();
        let path = match file.strip_prefix("RUN/") {
            Some(name) => run.path(name),
            None => world.path(file),
        };
        if path.exists() {
            fs::remove_file(&path).unwrap();
        }
        // Nobody ever opens its other end.
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let id = run.id();
        for args in [
            ["list-runs", "-w", "ws"].as_slice(),
            &["log", "-w", "ws", &id],
        ] {
            world.delta(args.iter().copied()).end();
        }
        if said.is_empty() {
            world.model_says([text("two")]);
            world.run("again").exits(0).prints("two\n");
        } else {
            world.run("again").exits(1).says(said);
        }
    }
}

#[test]
fn a_pipe_in_the_place_of_an_agents_file_is_an_error() {
    for file in ["agent.yaml", "context.yaml", "hooks.yaml"] {
        let world = World::new();
        let path = world.path(&format!("agent/{file}"));
        if path.exists() {
            fs::remove_file(&path).unwrap();
        }
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let said = format!("agent/{file}: cannot read it: it is not a regular file");
        world.run("go").exits(78).says(&said);
    }
}

#[test]
fn no_directory_of_records_leads_out_of_its_run() {
    for name in ["io", "io/invocations", "io/tool_executions", "io/hooks"] {
        let broken = Broken::new();
        let (run, out) = (&broken.run, broken.world.path("out"));
        fs::create_dir(&out).unwrap();
        // Made when it is first used.
        fs::create_dir_all(run.path(name)).unwrap();
        fs::remove_dir_all(run.path(name)).unwrap();
        symlink(&out, run.path(name)).unwrap();
        let link = broken.world.go_on().end();
        link.exits(1)
            .prints("")
            .says(name)
            .says("it is a link, or is no directory");
        fs::remove_file(run.path(name)).unwrap();
        fs::write(run.path(name), "").unwrap();
        broken.world.go_on().exits(1);
        assert!(files_below(&out).is_empty());
        assert_eq!(run.text("journal.jsonl"), broken.journal, "{name}");
    }
}
