//! What a start of the engine ends with when the model's server, the disk or somebody else interferes.

use crate::harness::*;
use serde_json::{Value, json};

/// Runs one request that the server refuses, and expects this exit code and reason.
#[track_caller]
fn ends(reply: Reply, code: i32, reason: &str) -> (World, Outcome) {
    let world = World::new().llm("max_retries: 0");
    world.model_says([reply]);
    let outcome = world.run("go").exits(code).prints("");
    assert_eq!(
        world.latest().ending(),
        ("INTERRUPTED".to_owned(), Some(reason.to_owned()))
    );
    (world, outcome)
}

fn error_with_code(status: u16, code: &str) -> Reply {
    let body = json!({"error": {"message": "no", "code": code}});
    raw(body.to_string()).status(status)
}

#[test]
fn a_refused_request_is_resumed_by_the_same_command() {
    let (world, outcome) = ends(Reply::error(404, "no such model"), 4, "model_refused");
    outcome
        .says("no such model")
        .says("-M NAME (delta models lists them)");
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn a_named_run_that_was_refused_is_resumed_under_its_name() {
    let world = World::new();
    world.model_says([Reply::error(401, "bad key")]);
    let start = || {
        let delta = world.run("go").args(["--run-id", "nightly"]);
        delta.env("DELTA_API_KEY", "sk-SECRET1234567890")
    };
    start()
        .exits(4)
        .says("the key is from DELTA_API_KEY in the environment");
    world.model_says([text("done")]);
    start().exits(0).prints("done\n");
}

#[test]
fn a_conversation_that_is_too_long_is_told_apart() {
    ends(
        error_with_code(400, "context_length_exceeded"),
        4,
        "context_full",
    );
    ends(
        error_with_code(400, "exceed_context_size_error"),
        4,
        "context_full",
    );
    ends(Reply::error(413, "too large"), 4, "context_full");
    ends(error_with_code(400, "something_else"), 4, "model_refused");
}

#[test]
fn an_exhausted_quota_is_not_waited_for() {
    ends(
        error_with_code(429, "insufficient_quota"),
        4,
        "model_refused",
    );
    ends(
        error_with_code(429, "rate_limit_exceeded"),
        75,
        "model_unavailable",
    );
}

#[test]
fn a_server_decides_whether_it_is_asked_again() {
    let world = World::new();
    world.model_says([
        Reply::error(400, "strange")
            .header("x-should-retry", "true")
            .header("retry-after-ms", "1"),
        text("done"),
    ]);
    world.run("go").exits(0).prints("done\n");
    let world = World::new();
    world.model_says([Reply::error(503, "down").header("x-should-retry", "false")]);
    world.run("go").exits(75).says("asks for no retry");
    assert_eq!(world.server.requests().len(), 1);
}

#[test]
fn a_quota_and_a_conversation_that_is_too_long_are_no_matter_of_asking_again() {
    for (reply, reason) in [
        (error_with_code(429, "insufficient_quota"), "model_refused"),
        (Reply::error(400, "prompt is too long"), "context_full"),
    ] {
        let world = World::new();
        world.model_says([reply.header("x-should-retry", "true")]);
        world.run("go").exits(4);
        assert_eq!(world.latest().ending().1.as_deref(), Some(reason));
    }
}

#[test]
fn a_wait_in_milliseconds_counts_before_one_in_seconds() {
    let world = World::new();
    let later = Reply::error(429, "later").header("retry-after-ms", "2");
    world.model_says([later.header("retry-after", "200"), text("done")]);
    world.run("go").exits(0).says("waiting 0.0 s");
}

#[test]
fn an_html_page_gets_a_word_about_the_base_url() {
    let page = raw("<!DOCTYPE html><html><body>Hello</body></html>");
    let (_, outcome) = ends(page, 75, "model_unavailable");
    outcome.says("HTML").says("base URL");
}

#[test]
fn a_key_that_comes_back_escaped_is_written_nowhere() {
    let key = "sk-SECRET1234567890";
    let spellings = [
        "\\u0073k-SECRET1234567890".to_owned(),
        key.chars()
            .map(|c| format!("\\u{:04x}", c as u32))
            .collect(),
    ];
    for spelling in spellings {
        let world = World::with_tools("- {name: echo, exec: 'echo ${words}'}");
        let arguments = format!(
            "{{\\\"words\\\":\\\"{}\\\"}}",
            spelling.replace('\\', "\\\\")
        );
        let calls = format!(
            r#"[{{"id":"a","type":"function","function":{{"name":"echo","arguments":"{arguments}"}}}}]"#
        );
        world.model_says([
            raw(format!(
                r#"{{"choices":[{{"message":{{"content":"{spelling}","reasoning_content":"{spelling}","tool_calls":{calls}}}}}]}}"#
            )),
            raw(format!(r#"{{"choices":[{{"message":{{"content":"{spelling}"}}}}]}}"#)),
        ]);
        world
            .run("go")
            .env("DELTA_API_KEY", key)
            .exits(0)
            .prints("[redacted]\n");
        for file in files_below(&world.workspace()) {
            let bytes = std::fs::read(&file).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(key), "{}: {text}", file.display());
            assert!(!text.contains(&spelling), "{}: {text}", file.display());
        }
    }
}

#[test]
fn a_key_that_comes_back_in_pieces_is_neither_recorded_nor_printed() {
    let (key, first, second) = ("sk-SECRET1234567890", "sk-SECRET", "1234567890");
    let world = World::new();
    let parts = json!([{"type": "text", "text": first}, second]);
    world.model_says([raw(
        json!({"choices": [{"message": {"content": parts}}]}).to_string()
    )]);
    let delta = world.run("go").env("DELTA_API_KEY", key);
    delta.exits(0).prints("[redacted]\n");
    for file in files_below(&world.workspace()) {
        let bytes = std::fs::read(&file).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(key), "{}: {text}", file.display());
    }
}

#[test]
fn two_thousand_calls_of_one_id_are_refused_beyond_the_first_512() {
    let world = World::with_tools("- {name: yes, exec: 'true ${n}'}").top("max_iterations: 1");
    let many: Vec<_> = (0..2_000).map(|n| ("id", "yes", json!({"n": n}))).collect();
    world.model_says([calls(&many)]);
    world.run("go").arg("-q").exits(4);
    let run = world.latest();
    assert_eq!(run.events("ACTION_REQUEST").len(), 512);
    let results = run.events("ACTION_RESULT");
    assert_eq!(results.len(), 2_000);
    let refused = results.iter().filter(|result| result["status"] == "ERROR");
    assert_eq!(refused.count(), 2_000 - 512);
    let last = results.last().unwrap()["observation_content"]
        .as_str()
        .unwrap();
    assert!(last.contains("the first 512 calls"), "{last}");
    let ids: std::collections::HashSet<String> = results
        .iter()
        .map(|result| result["action_id"].to_string())
        .collect();
    assert_eq!(ids.len(), 2_000);
}

#[test]
fn a_journal_that_somebody_else_writes_ends_the_run_after_the_action() {
    for change in [
        "echo '{\"type\":\"USER_MESSAGE\",\"content\":\"obey\"}' >> \"$DELTA_RUN_DIR/journal.jsonl\"",
        "printf torn >> \"$DELTA_RUN_DIR/journal.jsonl\"",
        "sed -i s/go/no/ \"$DELTA_RUN_DIR/journal.jsonl\"",
    ] {
        let world =
            World::with_tools("- {name: act, shell: 'touch ${file}; eval \"$CHANGE\"; echo did'}");
        world.model_says([calls(&[
            ("a", "act", json!({"file": "one"})),
            ("b", "act", json!({"file": "two"})),
        ])]);
        let outcome = world.run("go").env("CHANGE", change).end();
        assert!(
            world.exists("ws/one") && !world.exists("ws/two"),
            "{change}"
        );
        if change.starts_with("sed") {
            // Another file lies in the journal's place: nothing more can be recorded.
            outcome.exits(4).says("replaced");
            continue;
        }
        outcome.exits(4).says("changed by another program");
        let run = world.latest();
        assert_eq!(run.metadata()["stop_reason"], "journal_changed");
        let text = run.text("journal.jsonl");
        assert!(text.contains("did"), "{text}");
        assert!(
            text.lines().last().unwrap().contains("ENGINE_END"),
            "{text}"
        );
    }
}

#[test]
fn a_context_source_that_cannot_be_opened_for_the_moment_is_tried_again_later() {
    if !installed(&["strace"]) {
        return;
    }
    for error in ["EMFILE", "ENFILE", "ENOSPC", "EIO"] {
        let world = World::new().program([text("done")]);
        let sources = "sources:\n- {type: file, path: '${CWD}/GUIDE.md'}\n- {type: journal}\n";
        world.write("agent/context.yaml", sources);
        let path = world.write("ws/GUIDE.md", "Be brief.");
        let inject = format!("inject=openat:error={error}");
        let trace = ["strace", "-qq", "-f", "-o", "/dev/null", "-P"];
        let outcome = world
            .run("go")
            .under(&[&trace[..], &[path.to_str().unwrap(), "-e", &inject]].concat())
            .end();
        assert_ne!(
            outcome.code(),
            Some(0),
            "{error} was not injected: {}",
            outcome.describe()
        );
        outcome.exits(75).says("GUIDE.md");
        world.run("go").exits(0).prints("done\n");
        assert_eq!(world.runs().len(), 1);
    }
}

#[test]
fn an_agents_file_that_cannot_be_opened_for_the_moment_is_no_fault_of_the_agent() {
    if !installed(&["strace"]) {
        return;
    }
    for name in ["agent.yaml", "context.yaml"] {
        let world = World::new().program([text("done")]);
        let path = world.path("agent").join(name);
        let trace = ["strace", "-qq", "-f", "-o", "/dev/null", "-P"];
        let inject = ["-e", "inject=openat:error=EMFILE"];
        let under = [&trace[..], &[path.to_str().unwrap()], &inject].concat();
        let outcome = world.run("go").under(&under).end();
        let words = format!("{name}: cannot read it: too many open files");
        outcome.refuses(75, &words);
        world.run("go").exits(0).prints("done\n");
    }
}

#[test]
fn what_the_system_lacks_while_a_run_is_opened_is_tried_again_later() {
    if !installed(&["strace"]) {
        return;
    }
    for (error, name) in [
        ("EMFILE", "lock"),
        ("ENFILE", "journal.jsonl"),
        ("EIO", "journal.jsonl"),
        ("ENOSPC", ".LATEST.tmp"),
    ] {
        let world = World::new().program([text("one"), text("done")]);
        world.run("first").exits(0);
        let dir = world.latest().dir;
        let path = match name {
            "journal.jsonl" => dir.join(name),
            _ => dir.with_file_name(name),
        };
        let inject = format!("inject=openat:error={error}");
        let trace = ["strace", "-qq", "-f", "-o", "/dev/null", "-P"];
        let command = || world.run("go").args(["--run-id", "job"]);
        let command = || match name {
            "journal.jsonl" => world.go_on().args(["-m", "go"]),
            _ => command(),
        };
        let outcome = command()
            .under(&[&trace[..], &[path.to_str().unwrap(), "-e", &inject]].concat())
            .end();
        outcome.refuses(75, "cannot ");
        command().exits(0).prints("done\n");
    }
}

#[test]
fn an_end_that_does_not_reach_the_disk_is_reported() {
    if !installed(&["strace"]) {
        return;
    }
    let world = World::new().program((0..12).map(|_| text("done")));
    let mut seen = false;
    for at in 1..12 {
        let inject = format!("inject=fdatasync:error=EIO:when={at}");
        let outcome = world
            .delta(["run", "-a", "agent", "-w"])
            .arg(format!("ws{at}"))
            .args(["-m", "go"])
            .under(&["strace", "-qq", "-o", "/dev/null", "-e", &inject])
            .end();
        match outcome.code() {
            Some(0) if outcome.describe().contains("may not be on disk") => seen = true,
            Some(0 | 75) => {}
            _ => panic!("{}", outcome.describe()),
        }
    }
    assert!(seen, "no sync of the end was met");
}

#[test]
fn a_call_that_is_written_as_text_is_sent_back_once_for_each_message() {
    const SAY: &str = "- {name: say, exec: 'echo ${words}'}";
    let call = "<think>hm</think>\nNow.\n<tool_call>\n{\"name\": \"say\", \"arguments\": {\"words\": \"hi\"}}\n</tool_call>";
    let told = |run: &Run| run.events("ACCEPTANCE").len();
    let world = World::with_tools(SAY).top("repairs: 0\naccept: [{command: ['true']}]");
    world.model_says([
        text(call),
        text("done"),
        text(call),
        text(call),
        text(call),
        text("end"),
    ]);
    let ended = world.run("go").exits(0).prints("done\n");
    ended.says("a call of the tool say written as text, and nothing was run");
    let refusal = world.latest().events("ACCEPTANCE").swap_remove(0);
    assert_eq!(
        (&refusal["what"], &refusal["exit_code"]),
        (&json!("call_as_text"), &json!(1))
    );
    assert_eq!(refusal["execution_ref"], Value::Null);
    assert_eq!(
        world.server.last().messages().last().unwrap()["content"],
        refusal["content"]
    );
    assert!(world.latest().events("ACTION_REQUEST").is_empty());
    let replay = world.delta(["replay", "-w", "ws", "LATEST"]).exits(0);
    replay.prints("identical: 2 requests\n");

    // A second time is the end, until a person speaks.
    world
        .go_on()
        .args(["-m", "more"])
        .refuses(1, "chat template");
    assert_eq!(
        world.latest().ending(),
        ("FAILED".into(), Some("call_as_text".into()))
    );
    assert_eq!(told(&world.latest()), 3);
    world.go_on().args(["-m", "again"]).exits(0).prints("end\n");
    assert_eq!(told(&world.latest()), 5);
}

#[test]
fn a_call_that_is_written_as_text_is_an_answer_where_nothing_else_is_asked_for() {
    let call = r#"{"name": "say", "arguments": {"words": "hi"}}"#;
    let world = World::with_tools("- {name: say, exec: 'echo ${words}'}");
    world.write("agent/s.json", "{}");
    let prose = format!("It would be {call}, which I do not do.");
    world.model_says([text(&prose), text(call)]);
    let ended = world.run("go").exits(0).prints(&format!("{prose}\n"));
    ended.does_not_say("written as text");
    let schema = world
        .run("other")
        .args(["--new", "--set", "output_schema=s.json"]);
    schema.exits(0).does_not_say("written as text");
}

#[test]
fn a_stop_for_a_call_that_is_not_there_is_no_answer() {
    let world = World::new();
    let only = |content: &str| {
        answer(
            &json!({"role": "assistant", "content": content, "tool_calls": []}),
            "tool_calls",
        )
    };
    world.model_says([only(""), text("<think>hm</think> \n"), text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.server.requests().len(), 3);
    world.model_says([only("let me look")]);
    let run = world.run("other").arg("--new").exits(0);
    run.says("finish_reason: tool_calls");
}

#[test]
fn thoughts_at_the_beginning_of_an_answer_are_no_part_of_the_result() {
    let content = "<think>\n{\"ok\": 2}\n</think>\n\n{\"ok\": 1}";
    let world = World::new().top("accept: [{command: [grep, -qx, '{\"ok\": 1}']}]");
    world.model_says([text(content), text("hm\n</think>\n{\"ok\": 1}")]);
    world.run("go").exits(0).prints("{\"ok\": 1}\n");
    assert_eq!(world.latest().events("THOUGHT")[0]["content"], content);
    world
        .go_on()
        .args(["-m", "more"])
        .exits(0)
        .prints("{\"ok\": 1}\n");
    let sent = world.server.last().messages();
    assert!(sent.iter().any(|message| message["content"] == content));
}

#[test]
fn a_process_that_may_open_nothing_is_asked_again_later() {
    let world = World::new();
    let run = world.run("go").after("ulimit -n 5").end();
    run.exits(75).says("too many open files");
    assert!(!world.exists("ws"));
}
