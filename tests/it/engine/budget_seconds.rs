//! The seconds of a budget are those of a clock that cannot be set; and what is reserved by others is waited for.

use crate::engine::budget::{NOTE, ledger, sum, unsettled};
use crate::harness::*;
use rustix::process::Signal;
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
    over.says("the budget is used up: its time is used up (7.")
        .says(" of 3 s); raise it");
}

/// The end of a run whose spending another one shares, and a request of that under way, which has reserved more than is left.
struct Shared {
    world: World,
    other: Running,
    ledgers: String,
}

impl Shared {
    fn new() -> Self {
        let world = World::new();
        world.model_says([text("root"), text("other").held()]);
        world.run("go").exits(0);
        let root = world.latest().path("spending.jsonl");
        let ledgers = json!([{"ledger": root, "tokens": 300}]).to_string();
        let other = world.delta(["run", "-q", "-a", "agent", "-w", "other", "-m", "go"]);
        let other = other.env("DELTA_LEDGERS", &ledgers).spawn();
        world.server.wait_for(2);
        Self {
            world,
            other,
            ledgers,
        }
    }

    fn start(&self, agent: &str) -> Delta {
        let delta = ["run", "-a", agent, "-w", "mine", "-m", "go"];
        self.world.delta(delta).env("DELTA_LEDGERS", &self.ledgers)
    }

    fn spawn_waiting(&self) -> Running {
        let delta = self.start("agent").spawn();
        eventually("the wait is reported", || {
            delta
                .stderr()
                .contains("delta: waiting: other processes have reserved")
        });
        assert_eq!(self.world.server.requests().len(), 2);
        delta
    }
}

#[test]
fn what_a_living_process_has_reserved_is_waited_for() {
    let shared = Shared::new();
    shared.world.model_says([text("mine")]);
    let mine = shared.spawn_waiting();
    shared.world.server.release();
    shared.other.wait().exits(0);
    mine.wait().exits(0).prints("mine\n");
    let lines = ledger(&shared.world.latest());
    assert_eq!(sum(&lines, "settle").0, 330);
    assert!(unsettled(&lines).is_empty());
}

#[test]
fn what_a_process_had_reserved_that_died_is_spent() {
    let shared = Shared::new();
    let mine = shared.spawn_waiting();
    shared.other.kill();
    mine.wait().exits(4).says("is used up");
    assert_eq!(shared.world.server.requests().len(), 2);
}

#[test]
fn limits_deadlines_and_signals_end_the_wait_for_a_settlement() {
    let shared = Shared::new();
    let hurried = shared.world.read("agent/agent.yaml") + "limits: {seconds: 2}\n";
    shared.world.write("hurried/agent.yaml", hurried);
    for name in ["context.yaml", "system_prompt.md"] {
        let file = shared.world.read(&format!("agent/{name}"));
        shared.world.write(&format!("hurried/{name}"), file);
    }
    let object = shared.start("hurried").json().exits(4).object();
    assert_eq!(object["stop_reason"], "seconds", "{object}");
    let near = shared.start("agent").args(["--deadline", "+31s"]).json();
    assert_eq!(near.exits(75).object()["stop_reason"], "deadline");
    let mine = shared.spawn_waiting();
    mine.signal(Signal::TERM);
    mine.wait().exits(143);
    shared.other.kill();
}
