//! Any process can lock a file that it can open, if only for reading: what a run does about that.

use crate::harness::*;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::json;
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// A tool that leaves a process in the background. That keeps the ledger locked by a descriptor for reading, until it is
/// told to let go.
fn holds_the_ledger() -> Option<World> {
    let hold = "sh -c \"echo >../ready; read _ <../release\" </dev/null >/dev/null 2>&1";
    let tool = format!("flock \"$DELTA_RUN_DIR/spending.jsonl\" {hold} & read _ <../ready");
    let tool = format!("- {{name: hold, shell: '{tool}'}}");
    installed(&["flock"]).then(|| World::with_tools(&tool))
}

#[test]
fn a_foreign_lock_on_the_ledger_is_reported_and_waited_for() {
    let Some(world) = holds_the_ledger() else {
        return;
    };
    let (_ready, mut release) = (world.fifo("ready"), world.fifo("release"));
    world.model_says([call("c", "hold", &json!({})), text("done")]);
    let delta = world.run("go").spawn();
    eventually("the wait is reported", || {
        delta.stderr().contains("delta: waiting: ")
    });
    assert_eq!(world.server.requests().len(), 1);
    release.tell("");
    let outcome = delta.wait().exits(0).prints("done\n");
    outcome.says("delta: waiting: another process (pid ");
}

#[test]
fn a_foreign_lock_on_the_ledger_is_not_waited_for_beyond_the_limits() {
    for limit in ["limits", "budget"] {
        let ended = with_time(2000, |ms| {
            let seconds = ms / 1000;
            let world = holds_the_ledger()?.top(&format!("{limit}: {{seconds: {seconds}}}"));
            let (_ready, mut release) = (world.fifo("ready"), world.fifo("release"));
            world.model_says([call("c", "hold", &json!({}))]);
            world.server.may_stay_unasked();
            let outcome = world.run("go").json().end();
            let object = outcome.object();
            if object["exit_code"] == 4 {
                return None;
            }
            assert_eq!(object["stop_reason"], "io_error", "{object}");
            outcome.exits(75).says(", 110 tokens");
            release.tell("");
            let message = object["error"]["message"].as_str().unwrap().to_owned();
            Some((message, world))
        });
        let (message, world) = ended;
        assert!(message.starts_with("another process (pid "), "{message}");
        let ledger = world.latest().path("spending.jsonl");
        let hint = format!("`fuser {}`", shell_word(&ledger));
        assert!(message.contains(&hint), "{message}");
        if limit == "limits" {
            world.model_says([text("done")]);
            world.run("go").exits(0).prints("done\n");
        }
    }
}

#[test]
fn signals_and_deadlines_end_the_wait_for_a_ledger() {
    let Some(world) = holds_the_ledger() else {
        return;
    };
    let _fifos = (world.fifo("ready"), world.fifo("release"));
    world.model_says([call("c", "hold", &json!({}))]);
    world.server.may_stay_unasked();
    let delta = world.run("go").args(["--deadline", "+32s"]).json();
    let object = delta.exits(75).object();
    assert_eq!(object["stop_reason"], "deadline", "{object}");
    let delta = world.run("go").spawn();
    eventually("the wait is reported", || {
        delta.stderr().contains("delta: waiting: ")
    });
    delta.signal(Signal::TERM);
    delta.wait().exits(143);
    assert_eq!(world.latest().ending().1.as_deref(), Some("SIGTERM"));
}

#[test]
fn a_foreign_lock_on_the_workspace_is_waited_for_within_the_limits() {
    let world = World::new().top("limits: {seconds: 2}");
    world.model_says([text("done"), text("done")]);
    world.run("go").exits(0);
    let path = world.path("ws/.delta/lock");
    let file = File::open(&path).unwrap();
    flock(&file, FlockOperation::LockShared).unwrap();
    let outcome = world.run("again").json().exits(75);
    let error = &outcome.object()["error"];
    assert_eq!(error["type"], "io_error", "{error}");
    assert!(is_held(error["message"].as_str().unwrap(), "", &path));
    let stderr = outcome.stderr.as_str();
    let mut lines = stderr.lines();
    assert!(
        lines.any(|line| is_held(line, "delta: waiting: ", &path)),
        "{stderr}"
    );
    let near = world.run("again").args(["--deadline", "+31s"]).exits(75);
    near.says("deadline while waiting for ");
    let delta = world.go_on().args(["-m", "again"]).spawn();
    eventually("the wait is reported", || {
        let stderr = delta.stderr();
        let mut lines = stderr.lines();
        lines.any(|line| is_held(line, "delta: waiting: ", &path))
    });
    flock(&file, FlockOperation::Unlock).unwrap();
    delta.wait().exits(0).prints("done\n");
}

/// Whether a message says, after its beginning, that this process holds the lock on a file. Others may be named, too:
/// until they have become another program, the processes that other tests start have the same file open.
fn is_held(message: &str, beginning: &str, path: &Path) -> bool {
    let begun = message.strip_prefix(beginning);
    let holders = begun.and_then(|it| it.strip_prefix("another process (pid "));
    holders
        .and_then(|it| it.split_once(')'))
        .is_some_and(|(pids, rest)| {
            let own = std::process::id().to_string();
            let place = format!(" holds the lock on {}", path.display());
            pids.split(", ").any(|pid| pid == own) && rest.starts_with(&place)
        })
}

/// What `list-runs` says of the newest run.
fn listed(world: &World) -> String {
    world.delta(["list-runs", "-w", "ws"]).exits(0).describe()
}

#[test]
fn a_foreign_lock_makes_a_run_that_has_ended_neither_live_nor_busy() {
    let world = World::new();
    world.model_says([text("done")]);
    let named = |message| world.run(message).args(["--run-id", "job"]);
    named("go").exits(0);
    let path = world.latest().path("journal.jsonl");
    let file = File::open(&path).unwrap();
    for lock in [FlockOperation::LockExclusive, FlockOperation::LockShared] {
        flock(&file, lock).unwrap();
        let listed = listed(&world);
        assert!(listed.contains("COMPLETED"), "{listed}");
        world.delta(["log", "-w", "ws", "-f"]).exits(0);
        named("go").exits(0).prints("done\n");
        let outcome = world.go_on().args(["-m", "more"]).json().exits(75);
        let error = &outcome.object()["error"];
        assert_eq!(error["type"], "io_error", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(is_held(message, "run job: ", &path), "{message}");
        assert!(message.contains("; find it with `fuser "), "{message}");
    }
    flock(&file, FlockOperation::Unlock).unwrap();
    world.model_says([text("more")]);
    world.go_on().args(["-m", "more"]).exits(0);
}

#[test]
fn a_run_that_was_killed_is_not_live_because_of_a_foreign_lock() {
    let world = World::new();
    world.model_says([text("late").held()]);
    let delta = world.run("go").spawn();
    world.server.wait_for(1);
    let pid = delta.pid();
    world
        .run("go")
        .refuses(75, &format!("is already running, pid {pid}\n"));
    delta.kill();
    let file = File::open(world.latest().path("journal.jsonl")).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let listed = listed(&world);
    assert!(listed.contains("INTERRUPTED"), "{listed}");
    let refused = world.run("go").refuses(75, "another process (pid ");
    refused.does_not_say("already running");
    flock(&file, FlockOperation::Unlock).unwrap();
    world.model_says([text("done")]);
    world.run("go").exits(0);
}

#[test]
fn a_run_in_another_pid_namespace_is_live_and_its_number_is_not_taken_for_one_of_here() {
    let under = ["unshare", "-Urpf", "--kill-child", "--mount-proc"];
    let tried = Command::new("unshare")
        .args(&under[1..])
        .arg("true")
        .output();
    if !tried.is_ok_and(|it| it.status.success()) {
        eprintln!("skipped: no pid namespace can be made");
        return;
    }
    let world = World::new();
    world.model_says([text("late").held()]).may_stay_unasked();
    let delta = world.run("go").under(&under).spawn();
    world.server.wait_for(1);
    let inside = world.latest().metadata()["pid"].as_u64().unwrap();
    assert!(inside < 10, "{inside}");
    let listed = listed(&world);
    assert!(listed.contains("RUNNING"), "{listed}");
    let refused = world.run("go").refuses(75, "another process (pid ");
    refused.does_not_say(&format!("pid {inside})"));
    delta.kill();
}
