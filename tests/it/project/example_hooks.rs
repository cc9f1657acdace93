//! examples/hooks: each of its hooks does what it is there for.

use crate::harness::*;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether what the example needs is there; says so if it is not.
fn has_all() -> bool {
    let missing = ["python3", "git"].into_iter().find(|program| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null());
        command.status().is_err()
    });
    if let Some(program) = missing {
        eprintln!("skipped: there is no {program}");
    }
    missing.is_none()
}

/// A run of the example, with a program that is told about errors.
fn example() -> World {
    let world = World::new();
    let notify = world.script(
        "notify.sh",
        "#!/bin/sh\nprintf '%s\\n' \"$1\" >> \"$HOME/notified\"\n",
    );
    world
        .delta(["run", "-w", "ws", "-m", "Count some numbers.", "-a"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/hooks"))
        .env("NOTIFY", notify)
        .exits(0)
        .prints("There are 1000 numbers; count.txt says so.\n");
    world
}

#[test]
fn every_hook_of_the_example_has_its_effect() {
    if !has_all() {
        return;
    }
    let world = example();
    let run = world.latest();
    for event in run.events("HOOK_EXECUTION_AUDIT") {
        assert_eq!(event["status"], "SUCCESS", "{event}");
    }

    // Trimming: the last request is short where the journal is not.
    let numbers = run.result(1)["observation_content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(numbers.len() > 3000 && numbers.contains("\n500\n"));
    let requests = run.invocations();
    let seen = |at: usize| -> Value {
        let request: Value =
            serde_json::from_slice(&fs::read(requests[at].join("request.json")).unwrap()).unwrap();
        let messages = request["messages"].as_array().unwrap();
        messages
            .iter()
            .find(|m| m["tool_call_id"] == "call_0_1")
            .unwrap()["content"]
            .clone()
    };
    assert_eq!(seen(1), numbers.as_str());
    let short = seen(4).as_str().unwrap().to_owned();
    assert!(
        short.contains("[... shortened ...]") && short.len() < 1100,
        "{short}"
    );
    assert!(short.starts_with("1\n2\n") && short.ends_with("999\n1000\n"));

    // Redaction: neither the journal nor any request has the password; the workspace has.
    assert_eq!(
        run.result(2)["observation_content"],
        "password=[redacted]\n"
    );
    assert_eq!(world.read("ws/settings.ini"), "password=hunter2\n");
    for request in &requests {
        let body = fs::read_to_string(request.join("request.json")).unwrap();
        assert!(!body.contains("password=hunter2\\n\""), "{body}");
    }

    // The guard: denied, and told why.
    let denied = run.result(3);
    assert_eq!(denied["status"], "ERROR");
    let why = "denied: hooks/deny.txt forbids this command; find another way";
    assert_eq!(denied["observation_content"], why);
    assert_eq!(run.executions().len(), 3);

    // Notification.
    assert_eq!(run.text("errors.txt"), format!("{why}\n"));
    assert_eq!(world.read("notified"), format!("delta: {why}\n"));

    // Snapshots: one for each iteration, without the engine's own files, in a repository of the run's own.
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command
            .arg("--git-dir")
            .arg(run.path("snapshots.git"))
            .args(args);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!(
        git(&["log", "--reverse", "--format=%s"]),
        "iteration 1\niteration 2\niteration 3\niteration 4\niteration 5\n"
    );
    assert_eq!(
        git(&["ls-tree", "-r", "--name-only", "HEAD~4"]),
        "scratch/numbers.txt\n"
    );
    assert_eq!(git(&["show", "HEAD:count.txt"]), "1000\n");
    assert!(!world.exists("ws/.git"));

    // Cleanup, and nothing but it.
    assert!(!world.exists("ws/scratch"));
    assert_eq!(world.read("ws/count.txt"), "1000\n");
}
