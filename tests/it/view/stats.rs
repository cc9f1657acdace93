//! Where the time and the tokens of a run went.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};

/// The figures of all runs that are named.
fn figures(world: &World, runs: &[&str]) -> Value {
    let outcome = world
        .delta(["stats", "-w", "ws"])
        .args(runs)
        .json()
        .exits(0);
    serde_json::from_slice(&outcome.stdout).expect("JSON")
}

/// A number below a million with a comma.
fn grouped(number: usize) -> String {
    match number {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", number / 1000, number % 1000),
    }
}

fn with_cache(message: &Value, cached: u64) -> Reply {
    completion(&json!({
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }))
}

const TOOLS: &str = "\
- {name: say, exec: 'printf %s ${words}'}
- {name: fail, shell: 'echo bad >&2; exit 1'}";

#[test]
fn calls_tokens_and_bytes_are_counted() {
    let world = World::with_tools(TOOLS);
    world.model_says([
        call("call_1", "say", &json!({"words": "four"})),
        calls(&[
            ("call_2", "fail", json!({})),
            ("call_3", "say", json!({"words": "12345"})),
            ("call_4", "unknown", json!({})),
        ]),
        Reply::error(500, "not now"),
        with_cache(&json!({"role": "assistant", "content": "done"}), 700),
    ]);
    world.run("go").exits(0);
    let found = figures(&world, &[]);
    let run = &found[0];
    assert_eq!(run["run_id"], world.latest().id());
    assert_eq!(run["status"], "COMPLETED");
    for (key, value) in [
        ("starts", 1),
        ("iterations", 3),
        ("model_calls", 3),
        ("model_failures", 0),
        ("retries", 1),
        ("cached_tokens", 700),
    ] {
        assert_eq!(run[key], value, "{key} of {run}");
    }
    assert_eq!(run["tokens"]["prompt_tokens"], 1200);
    assert_eq!(run["tokens"]["completion_tokens"], 30);
    assert_eq!(run["cost"], Value::Null);
    assert_eq!(run["prefix_breaks"], json!([]));
    let tools = &run["tools"];
    for (name, numbers) in [
        ("say", [2, 0, 9]),
        ("fail", [1, 1, 4]),
        ("unknown", [1, 1, 0]),
    ] {
        let keys = ["calls", "failures", "bytes"];
        assert_eq!(
            keys.map(|key| tools[name][key].as_u64().unwrap()),
            numbers,
            "{tools}"
        );
    }
    let times = &run["times_ms"];
    let of = |key: &str| times[key].as_u64().expect("a time");
    let parts = ["model", "waits", "tools", "hooks", "people", "delta"].map(of);
    assert!(parts.iter().sum::<u64>() >= of("total"), "{times}");
    // The wait before another attempt, not the attempts.
    let invocation = world.latest().invocations().remove(2);
    let record = std::fs::read(invocation.join("metadata.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    let took = |of: &Value| of["duration_ms"].as_u64().unwrap();
    let attempts: u64 = record["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(took)
        .sum();
    assert_eq!(of("waits"), took(&record) - attempts, "{times}");
    assert!(of("waits") > 0, "{times}");
    let table = world.delta(["stats", "-w", "ws"]).exits(0);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("\n  waits "), "{table}");
}

#[test]
fn prices_make_costs_and_are_recorded_with_the_run() {
    let world = World::new().top("pricing: {input: 2, output: 8.5, cached: 0.5}");
    world.model_says([with_cache(
        &json!({"role": "assistant", "content": "done"}),
        400,
    )]);
    world.run("go").exits(0);
    let start = &world.latest().events("ENGINE_START")[0];
    let recorded = json!({"input": 2.0, "output": 8.5, "cached": 0.5});
    assert_eq!(start["config"]["pricing"], recorded);
    // The agent may change its prices, or go: a run keeps its own.
    std::fs::remove_dir_all(world.path("agent")).unwrap();
    let cost = figures(&world, &[])[0]["cost"].as_f64().unwrap();
    let expected = (600.0 * 2.0 + 400.0 * 0.5 + 10.0 * 8.5) / 1e6;
    assert!((cost - expected).abs() < 1e-12, "{cost} is not {expected}");
}

#[test]
fn prices_that_are_none_are_refused() {
    for (pricing, words) in [
        ("pricing: {input: -1, output: 2}", "input"),
        ("pricing: {input: cheap, output: 2}", "a number"),
        ("pricing: {input: 1}", "output is missing"),
        ("pricing: 3", "a mapping"),
    ] {
        let world = World::new().top(pricing);
        world
            .delta(["check", "agent"])
            .exits(78)
            .says("pricing")
            .says(words);
    }
    let world = World::new().top("pricing: {input: 1, output: 2, cache: 1}");
    world
        .delta(["check", "agent"])
        .exits(0)
        .says("did you mean 'cached'");
}

#[test]
fn a_prefix_that_broke_is_found() {
    let world = World::with_tools(
        "- {name: rewrite, shell: 'echo Another prompt altogether. > \"$AGENT_HOME/system_prompt.md\"'}",
    );
    let long = "Remember all of this. ".repeat(100);
    world.write("agent/system_prompt.md", &long);
    world.model_says([
        call("call_1", "rewrite", &json!({})),
        call("call_2", "rewrite", &json!({})),
        text("done"),
    ]);
    world.run("go").exits(0);
    let breaks = figures(&world, &[])[0]["prefix_breaks"].clone();
    assert_eq!(breaks.as_array().unwrap().len(), 1, "{breaks}");
    let broken = &breaks[0];
    assert_eq!(
        (&broken["request"], &broken["iteration"]),
        (&json!(2), &json!(2))
    );
    let first = world.server.requests()[0].body.clone();
    assert_eq!(broken["previous_bytes"], first.len());
    let shared = broken["shared_bytes"].as_u64().unwrap() as usize;
    assert!(shared < 1000);
    assert_eq!(&first[..shared], &world.server.requests()[1].body[..shared]);
    let run = world.latest();
    let is_shown = |cause: &str| {
        let line = format!(
            "request 2 lost the provider's cache (it repeats {shared} of the {} bytes before it): {cause}\n",
            grouped(first.len())
        );
        let shown = world.delta(["stats", "-w", "ws"]).exits(0).describe();
        assert!(shown.contains(&line), "{line}{shown}");
    };
    is_shown("the system prompt changed");
    let shown = world.delta(["stats", "-w", "ws"]).exits(0).describe();
    assert!(shown.contains("\ncache losses  1\n"), "{shown}");
    // What differs, if no event tells.
    let [before, this] = [0, 1].map(|at| run.invocations()[at].join("request.json"));
    let sent = std::fs::read_to_string(&before).unwrap();
    for (from, to, cause) in [
        ("\"go\"", r#""\u001b[1m""#, "an earlier message changed"),
        ("rewrite", "other", "the tools changed"),
        ("\"model\"", "\"x\"", "the settings of the request changed"),
    ] {
        let forged = sent.replacen(from, to, 1);
        assert_ne!(forged, sent, "{from}");
        std::fs::write(&this, forged).unwrap();
        is_shown(cause);
    }
    // The event between the two requests.
    let journal = run.text("journal.jsonl");
    let result = journal
        .lines()
        .find(|line| line.contains("ACTION_RESULT"))
        .unwrap();
    let time = &run.events("ACTION_RESULT")[0]["timestamp"];
    for (kind, cause) in [
        ("COMPACTION", "the conversation was shortened"),
        ("ATTACHMENTS_LEFT_OUT", "attachments were left out"),
        ("MODEL_CHANGED", "another model was asked"),
        (
            "ENGINE_START",
            "the run was resumed, and the settings of the request changed",
        ),
    ] {
        let event = json!({"timestamp": time, "type": kind});
        let forged = journal.replacen(result, &format!("{result}\n{event}"), 1);
        std::fs::write(run.path("journal.jsonl"), forged).unwrap();
        is_shown(cause);
    }
    // What is known stays known when the run is resumed behind it.
    let events = ["COMPACTION", "ENGINE_START"];
    let events = events.map(|kind| json!({"timestamp": time, "type": kind}).to_string());
    let forged = journal.replacen(result, &format!("{result}\n{}", events.join("\n")), 1);
    std::fs::write(run.path("journal.jsonl"), forged).unwrap();
    is_shown("the conversation was shortened");
    let resumed = journal.replacen(result, &format!("{result}\n{}", events[1]), 1);
    std::fs::write(run.path("journal.jsonl"), resumed).unwrap();
    std::fs::remove_file(&this).unwrap();
    let shown = world.delta(["stats", "-w", "ws"]).exits(0).describe();
    assert!(
        shown.contains("bytes before it): the run was resumed\n"),
        "{shown}"
    );
}

#[test]
fn the_estimate_for_an_answer_that_was_stopped_is_named() {
    let world = World::new();
    world.model_says([text("never").held()]);
    let delta = world.run("go").spawn();
    world.server.wait_for(1);
    delta.signal(Signal::INT);
    delta.wait().exits(130);
    let spent = figures(&world, &[])[0]["spent"]["tokens"].as_u64();
    let spent = grouped(spent.unwrap() as usize);
    let words = format!(
        "\nspent includes {spent} tokens estimated for requests whose answer or usage was not recorded\n"
    );
    let shown = world.delta(["stats", "-w", "ws"]).exits(0).describe();
    assert!(shown.contains(&words), "{words}{shown}");
    world.model_says([text("done")]);
    world.run("again").exits(0);
    let shown = world.delta(["stats", "-w", "ws"]).exits(0).describe();
    assert!(!shown.contains("estimated"), "{shown}");
    // Answers behind damage are recorded, too.
    let journal = world.latest().path("journal.jsonl");
    let lines = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, lines.replacen("\n{", "\n<", 1)).unwrap();
    let shown = world.delta(["stats", "-w", "ws"]).exits(0).describe();
    assert!(
        shown.contains("damaged") && shown.contains("spent"),
        "{shown}"
    );
    assert!(!shown.contains("estimated"), "{shown}");
}

#[test]
fn hooks_and_people_have_their_own_time() {
    let world = World::new();
    world.write(
        "agent/hooks.yaml",
        "on_iteration_start: {command: [sh, -c, 'sleep 0.02']}\n",
    );
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let times = figures(&world, &[])[0]["times_ms"].clone();
    assert!(times["hooks"].as_u64().unwrap() >= 20, "{times}");
    assert!(times["delta"].as_u64() <= times["total"].as_u64());
}

#[test]
fn checks_of_the_answer_count_among_the_time_of_tools() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let path = world.latest().path("journal.jsonl");
    let check = json!({"type": "ACCEPTANCE", "what": "check", "exit_code": 0, "duration_ms": 5000});
    let mut lines = world.latest().text("journal.jsonl");
    let end = lines.trim_end().rfind('\n').expect("more than a line") + 1;
    lines.insert_str(end, &format!("{check}\n"));
    std::fs::write(path, lines).expect("a journal");
    let times = figures(&world, &[])[0]["times_ms"].clone();
    assert_eq!(times["tools"], 5000, "{times}");
}

#[test]
fn names_of_any_length_fit_into_every_table() {
    let tools = "- {name: first, exec: 'true'}\n- {name: second, exec: 'true'}";
    let world = World::with_tools(tools);
    let calls = calls(&[("a", "first", json!({})), ("b", "second", json!({}))]);
    world.model_says([calls, text("done")]);
    world.run("go").args(["--run-id", "r"]).exits(0);
    let run = world.latest();
    let forge = |file: &str, words: &str, forged: &str| {
        let text = run.text(file).replace(words, forged);
        std::fs::write(run.path(file), text).unwrap();
    };
    // One name in letters, one in characters that take no columns.
    forge(
        "journal.jsonl",
        "\"first\"",
        &json!("x".repeat(70_000)).to_string(),
    );
    let combining = json!("e\u{301}".to_owned() + &"\u{301}".repeat(70_000));
    forge("journal.jsonl", "\"second\"", &combining.to_string());
    forge("metadata.json", "\"final_answer\"", &combining.to_string());
    let cut = format!("{}…", "x".repeat(99));
    for args in [
        &["stats", "-w", "ws"][..],
        &["stats", "-w", "ws", "r", "r"],
        &["log", "-w", "ws", "--effects"],
    ] {
        let shown = world.delta(args.to_vec()).exits(0).stdout;
        let shown = String::from_utf8(shown).unwrap();
        assert!(
            shown.contains(&cut) && shown.contains("e\u{301}"),
            "{args:?}"
        );
        assert!(shown.lines().all(|line| line.chars().count() < 2_000));
    }
    let listed = world.delta(["list-runs", "-r", "ws"]).exits(0);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("e\u{301}"), "{}", listed.len());
}

#[test]
fn several_runs_stand_side_by_side() {
    let world = World::with_tools(TOOLS);
    for id in ["job-1", "job-2"] {
        world.model_says([call("call_1", "say", &json!({"words": "x"})), text("done")]);
        world.run(id).args(["--run-id", id]).exits(0);
    }
    let stats = |args: &[&str]| {
        let outcome = world
            .delta(["stats", "-w", "ws", "job-1", "job-2"])
            .args(args)
            .exits(0);
        String::from_utf8(outcome.stdout).unwrap()
    };
    let table = stats(&[]);
    let row = |name: &str| {
        let line = table
            .lines()
            .find(|line| line.starts_with(name))
            .expect("a row");
        line[name.len()..]
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(row("run"), ["job-1", "job-2"]);
    assert_eq!(row("tokens in"), ["200", "200"]);
    assert_eq!(
        figures(&world, &["job-1", "job-2"])
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let csv = stats(&["--format", "csv"]);
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 3, "{csv}");
    assert!(
        lines.iter().all(|line| line.len() == lines[0].len()),
        "{csv}"
    );
    let column = lines[0]
        .iter()
        .position(|name| *name == "say.bytes")
        .expect("a column");
    assert_eq!((lines[1][0], lines[1][column]), ("job-1", "1"));
    world
        .delta(["stats", "--format", "cvs"])
        .exits(2)
        .says("csv");
    // One of them has a call that ended later.
    let run = world.latest();
    let journal = run.text("journal.jsonl");
    let deferred = json!({"timestamp": "2020-01-01T00:00:00.000Z", "type": "ACTION_DEFERRED", "action_id": "call_1"});
    let at = journal.find("{\"seq\":5,").expect("a line");
    let forged = format!("{}{deferred}\n{}", &journal[..at], &journal[at..]);
    std::fs::write(run.path("journal.jsonl"), forged).unwrap();
    for runs in [["job-1", "job-2"], ["job-2", "job-1"]] {
        let outcome = world.delta(["stats", "-w", "ws"]).args(runs).exits(0);
        let table = String::from_utf8(outcome.stdout).unwrap();
        let row = table.lines().find(|line| line.starts_with("tokens in"));
        let cells: Vec<&str> = row.unwrap().split_whitespace().skip(2).collect();
        assert_eq!(cells, ["200", "200"], "{table}");
        assert!(table.contains("\ndeferred "), "{table}");
    }
}
