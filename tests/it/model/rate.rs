//! `DELTA_RATE_DIR`: what a server said of "later" holds for all that share a directory.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

fn start(world: &World, workspace: &str) -> Delta {
    let delta = world.delta(["run", "-a", "agent", "-w", workspace, "-m", "go"]);
    delta
        .env("DELTA_RATE_DIR", world.path("rate"))
        .env("DELTA_API_KEY", "sk-first-key")
}

/// The only file that says something.
fn file(world: &World) -> PathBuf {
    let files = fs::read_dir(world.path("rate"))
        .unwrap()
        .map(|it| it.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

fn said(world: &World) -> Value {
    serde_json::from_str(&fs::read_to_string(file(world)).unwrap()).unwrap()
}

fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(now.unwrap().as_millis()).unwrap()
}

#[test]
fn a_quota_that_is_used_up_stops_all_of_the_same_endpoint_model_and_key() {
    let world = World::new();
    let refusal = json!({"error": {"message": "no money \u{1b}[2J left", "type": "t", "code": "insufficient_quota"}});
    world.model_says([raw(refusal.to_string()).status(429)]);
    start(&world, "a").exits(4).says("no money");
    let text = fs::read_to_string(file(&world)).unwrap();
    assert!(!text.contains("sk-first"), "{text}");
    let other = start(&world, "b").json().exits(4).says("no money");
    assert_eq!(other.object()["stop_reason"], "model_refused");
    assert_eq!(world.server.requests().len(), 1);
    // It is that of one key, of one model, and of a directory; and it ends.
    world.model_says([text_of("1"), text_of("2"), text_of("3"), text_of("4")]);
    start(&world, "c")
        .env("DELTA_API_KEY", "sk-other-key")
        .exits(0);
    start(&world, "d")
        .args(["--set", "llm.model=other"])
        .exits(0);
    start(&world, "e").env("DELTA_RATE_DIR", "").exits(0);
    let mut over = said(&world);
    assert_eq!(
        over["until"].as_u64().unwrap() - over["said_at"].as_u64().unwrap(),
        600_000
    );
    for key in ["until", "said_at"] {
        over[key] = (over[key].as_u64().unwrap() - 600_001).into();
    }
    fs::write(file(&world), over.to_string()).unwrap();
    start(&world, "b").exits(0).prints("4\n");
}

fn text_of(content: &str) -> Reply {
    text(content)
}

#[test]
fn a_time_that_one_process_was_told_holds_for_the_others() {
    let world = World::new().llm("max_retries: 2");
    world.model_says([Reply::error(429, "busy").header("retry-after", "4000")]);
    start(&world, "a").exits(75).says("asks to wait until");
    start(&world, "b")
        .exits(75)
        .says("busy")
        .says("asks to wait until");
    assert_eq!(world.server.requests().len(), 1);
    // One that is near is waited for.
    let soon = json!({"said_at": now(), "until": now() + 250_000, "words": "busy"});
    fs::write(file(&world), soon.to_string()).unwrap();
    let waiting = start(&world, "c").spawn();
    eventually("it waits", || {
        waiting
            .stderr()
            .contains("the server asked another process to wait")
    });
    waiting.signal(Signal::TERM);
    waiting.wait().exits(143);
    assert_eq!(world.server.requests().len(), 1);
    // Once it is over, the first answer opens the way.
    let over = json!({"said_at": now() - 2000, "until": now() - 1000, "words": "busy"});
    fs::write(file(&world), over.to_string()).unwrap();
    world.model_says([text("done")]);
    start(&world, "c").exits(0).prints("done\n");
    assert_eq!(said(&world)["until"], 0);
}

#[test]
fn a_server_error_without_a_time_binds_nobody_else() {
    let world = World::new().llm("max_retries: 0");
    world.model_says([
        Reply::error(503, "down"),
        Reply::error(500, "broken").header("retry-after", "4000"),
        text("done"),
    ]);
    start(&world, "a").exits(75);
    start(&world, "b").exits(75);
    start(&world, "c").exits(0);
}

#[test]
fn a_directory_that_cannot_be_used_is_said_once_a_start_and_stops_nothing() {
    let world = World::with_tools("- {name: note, command: [echo, noted]}").llm("max_retries: 1");
    world.write("rate", "a file");
    world.model_says([
        call("c", "note", &json!({})),
        Reply::error(503, "busy").header("retry-after", "0"),
        text("done"),
    ]);
    let said = start(&world, "a").exits(0).prints("done\n").stderr;
    let warnings = said.lines().filter(|line| line.contains("DELTA_RATE_DIR"));
    let warnings: Vec<&str> = warnings.collect();
    assert!(
        matches!(warnings.as_slice(), [one] if one.contains("/rate: file exists; what servers say of waiting is not shared")),
        "{said}"
    );
    assert_eq!(world.read("rate"), "a file");
    world.model_says([text("done")]);
    let usable = start(&world, "b").env("DELTA_RATE_DIR", world.path("other"));
    usable.exits(0).does_not_say("DELTA_RATE_DIR");
}

#[test]
fn whatever_lies_in_the_directory_stops_nobody() {
    let world = World::new();
    world.server.answers(|_| text("done"));
    let asks = |how: &str| {
        start(&world, "ws").arg("--new").exits(0).prints("done\n");
        assert!(world.exists("precious"), "{how}");
        assert_eq!(world.read("precious"), "kept", "{how}");
    };
    world.write("precious", "kept");
    asks("nothing");
    world.model_says([Reply::error(429, "busy").header("retry-after", "4000")]);
    start(&world, "first").exits(75);
    let file = file(&world);
    let contents = [
        "{".repeat(3000),
        format!("{{\"words\":\"{}\"}}", "x".repeat(1 << 20)),
        json!({"said_at": now(), "until": u64::MAX}).to_string(),
        json!({"said_at": now() + 3_600_000, "until": now() + 3_700_000}).to_string(),
        json!({"said_at": "yesterday", "until": -1}).to_string(),
        json!({"said_at": now(), "until": 0, "is_quota": true, "words": "no"}).to_string(),
        // A quota is asked for again after ten minutes.
        json!({"said_at": now(), "until": now() + 86_000_000, "is_quota": true}).to_string(),
        String::new(),
    ];
    for content in contents {
        fs::write(&file, &content).unwrap();
        asks(&content[..content.len().min(80)]);
    }
    fs::remove_file(&file).unwrap();
    symlink(world.path("precious"), &file).unwrap();
    asks("a link");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    asks("a directory");
    fs::remove_dir_all(world.path("rate")).unwrap();
    world.write("rate", "a file");
    asks("no directory");
}
