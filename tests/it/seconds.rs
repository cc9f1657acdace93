//! The seconds of a budget are those of a clock that cannot be set.

use crate::budget::NOTE;
use crate::harness::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

/// A wall clock that is set once a file is there. The monotonic clock stays as it is.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, id, time);
    const char *set = getenv("CLOCK_SET"), *by = getenv("CLOCK_BY");
    if (!failed && id == CLOCK_REALTIME && set && by && access(set, F_OK) == 0) time->tv_sec += atol(by);
    return failed;
}
"#;

/// The library with that clock; none where none can be made or put before the system's.
fn clock(world: &World) -> Option<PathBuf> {
    if cfg!(target_feature = "crt-static") || !installed(&["cc"]) {
        return None;
    }
    let (source, library) = (world.write("clock.c", CLOCK), world.path("clock.so"));
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    built.expect("cc starts").success().then_some(library)
}

#[test]
fn setting_the_clock_changes_no_budget_of_time() {
    for by in ["100000000", "-100000000"] {
        // The nested run begins after the clock was set, with an end of its time that was written down before.
        let tool = "touch ../set; delta run -q -a \"$AGENT_HOME\" -w nested -m inner";
        let world = World::with_tools(&format!("- {{name: note, shell: '{tool}'}}"))
            .top("budget: {seconds: 3600, per: tree}");
        let Some(clock) = clock(&world) else { return };
        let start = || {
            let delta = world.run("go").env("LD_PRELOAD", &clock);
            let delta = delta.env("CLOCK_SET", world.path("set"));
            delta.env("CLOCK_BY", by)
        };
        world.model_says([call("c", "note", &json!({})), text("inner")]);
        start().args(["--max-iterations", "1"]).exits(4);
        let run = world.latest();
        let nested = Run::latest(&world.path("ws/nested"));
        assert_eq!(nested.ending().0, "COMPLETED", "{by}");
        let end = &run.events("ENGINE_END")[0];
        let ms = end["engine_ms"].as_u64().expect("a number");
        assert!(ms < 600_000, "{end}");
        world.model_says([text("done")]);
        // The next start counts on.
        let outcome = start().exits(0).prints("done\n").describe();
        let last = outcome.lines().rfind(|line| line.contains(" tokens"));
        let last = last.expect("the last line");
        assert!(!last.contains(" min "), "{last}");
        let ends = run.events("ENGINE_END");
        assert!(ends[1]["engine_ms"].as_u64() >= Some(ms), "{ends:?}");
    }
}

#[test]
fn what_is_spent_of_seconds_is_shown_like_tokens_and_cost() {
    let world = World::with_tools(NOTE).top("budget: {seconds: 3}\nmax_iterations: 1");
    world.model_says([call("c", "note", &json!({}))]);
    world.run("go").exits(4);
    // It took two seconds, says the end of its start.
    let run = world.latest();
    let mut lines = run.journal();
    lines.last_mut().unwrap()["engine_ms"] = json!(2_000);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(run.path("journal.jsonl"), &text).unwrap();
    let stats = world.delta(["stats", "-w", "ws"]).exits(0).describe();
    assert!(
        stats.contains("spent         110 tokens, 2.0 s\n"),
        "{stats}"
    );
    assert!(stats.contains("  left        1.0 s\n"), "{stats}");
    let stats = world.delta(["stats", "-w", "ws", "--format", "json"]);
    let runs: Value = serde_json::from_slice(&stats.exits(0).stdout).expect("JSON");
    assert_eq!(runs[0]["spent"]["seconds"], 2.0);
    assert_eq!(runs[0]["left"]["seconds"], 1.0);
    let text = text.replace("\"engine_ms\":2000", "\"engine_ms\":7300");
    std::fs::write(run.path("journal.jsonl"), text).unwrap();
    let over = world.run("go").exits(4);
    over.says("the budget is spent: its seconds are over (7.3 of 3 s); raise it");
}
