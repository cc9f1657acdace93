//! Doors of runs: who opens them, who cannot, and where their use is shown.

use crate::harness::*;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const TOOLS: &str = "- name: sh\n  exec: 'bash -c ${script}'\n  wrapper: [delta, sandbox, --no-network, --allow-hosts-from-env, --rw, '${CWD}', --]\n  \
    env: {DELTA_ALLOW_HOSTS: evil.test}\n- {name: bare, exec: 'bash -c ${script}'}\n";

/// An agent whose tool opens what it is given. None if this kernel gives no namespaces.
fn world() -> Option<World> {
    let world = World::with_tools(TOOLS);
    let probe = world
        .delta(["sandbox", "--allow-host", "a.test", "--", "true"])
        .end();
    if probe.code() != Some(0) {
        eprintln!("skipped: {}", probe.stderr.trim_end());
        return None;
    }
    Some(world)
}

fn hosts_of(world: &World, delta: Delta) -> String {
    let script = json!({"script": "echo ${DELTA_ALLOW_HOSTS-none} ${http_proxy:+proxy}"});
    world.model_says([call("c", "sh", &script), text("done")]);
    delta.exits(0);
    world.server.last().observation("c")
}

#[test]
fn a_run_opens_what_its_person_names_and_nothing_else() {
    let Some(world) = world() else { return };
    assert_eq!(hosts_of(&world, world.run("1")), "none\n");
    let given = world
        .run("2")
        .args(["--allow-host", "A.test", "--allow-host", "*.b.test:90"]);
    let given = given.env("DELTA_ALLOW_HOSTS", "env.test");
    assert_eq!(hosts_of(&world, given), "a.test *.b.test:90 proxy\n");
    let in_environment = world.run("3").env("DELTA_ALLOW_HOSTS", " env.test  x.test");
    assert_eq!(hosts_of(&world, in_environment), "env.test x.test proxy\n");
    let own = world.write(".config/delta/env", "DELTA_ALLOW_HOSTS=own.test\n");
    fs::set_permissions(own, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(hosts_of(&world, world.run("4")), "own.test proxy\n");
    fs::remove_file(world.path(".config/delta/env")).unwrap();
    // No file of an agent or of a workspace is asked.
    for file in ["agent/.env", "ws/.env", ".env"] {
        world.write(file, "DELTA_ALLOW_HOSTS=evil.test\n");
    }
    assert_eq!(hosts_of(&world, world.run("5")), "none\n");
}

#[test]
fn settings_in_the_workspace_open_nothing() {
    let Some(world) = world() else { return };
    let own = world.write("ws/.config/delta/env", "DELTA_ALLOW_HOSTS=evil.test\n");
    fs::set_permissions(own, fs::Permissions::from_mode(0o600)).unwrap();
    let delta = world
        .run("go")
        .env("XDG_CONFIG_HOME", world.path("ws/.config"));
    assert_eq!(hosts_of(&world, delta), "none\n");
}

#[test]
fn a_record_opens_no_door() {
    let Some(world) = world() else { return };
    world.model_says([call(
        "c",
        "bare",
        &json!({"script": "kill -9 $DELTA_ENGINE_PID; sleep 60"}),
    )]);
    let begun = world.run("go").args(["--allow-host", "a.test"]).end();
    assert_eq!(begun.killed_by(), Some(9), "{}", begun.describe());
    let start = &world.latest().events("ENGINE_START")[0];
    assert_eq!(start["allow_hosts"], json!(["a.test"]));
    assert_eq!(world.read("ws/.delta/VERSION"), "1.3\n");
    let script = json!({"script": "echo ${DELTA_ALLOW_HOSTS-none}"});
    world.model_says([call("d", "sh", &script), text("done")]);
    let outcome = world.run("go").exits(0);
    let first = outcome
        .stderr
        .lines()
        .find(|line| line.contains("resumes at"))
        .unwrap_or_default();
    assert!(
        first.contains("no longer open (--allow-host): a.test"),
        "{}",
        outcome.stderr
    );
    assert_eq!(world.server.last().observation("d"), "none\n");
    assert!(world.latest().metadata().get("allow_hosts").is_none());
    // continue opens them again.
    world.model_says([call("e", "sh", &script), text("done")]);
    let again = world
        .delta([
            "continue",
            "-w",
            "ws",
            "-m",
            "more",
            "--allow-host",
            "a.test",
        ])
        .exits(0);
    again.does_not_say("no longer open").says(", open: a.test");
    assert_eq!(world.server.last().observation("e"), "a.test\n");
}

#[test]
fn without_namespaces_a_run_with_doors_does_not_begin() {
    let none = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let none = ["unshare", "-Ur", "sh", "-c", none];
    let Some(world) = world() else { return };
    if world.delta(["-V"]).under(&none).end().code() != Some(0) {
        eprintln!("skipped: there is nothing to take namespaces away from");
        return;
    }
    let delta = world
        .run("go")
        .args(["--allow-host", "a.test"])
        .under(&none);
    delta.refuses(78, "user.max_user_namespaces is 0");
    assert!(!world.exists("ws"));
    let listed = world
        .run("go")
        .env("DELTA_ALLOW_HOSTS", "a.test")
        .under(&none);
    listed.refuses(78, "--allow-host needs a network namespace");
    let wrong = world.run("go").env("DELTA_ALLOW_HOSTS", "http://a.test");
    wrong.refuses(78, "DELTA_ALLOW_HOSTS: 'http://a.test'");
    world
        .run("go")
        .args(["--allow-host", "*"])
        .refuses(2, "--allow-host '*'");
    assert!(!world.exists("ws"));
}

#[test]
fn a_door_that_no_tool_has_is_warned_of() {
    let world = World::with_tools("- {name: bare, exec: 'env'}");
    world.model_says([text("done")]);
    let outcome = world.run("go").args(["--allow-host", "a.test"]).exits(0);
    outcome.says("--allow-host opens nothing");
}

#[test]
fn a_conversation_has_the_doors_that_it_was_begun_with() {
    let Some(world) = world() else { return };
    let script = json!({"script": "echo ${DELTA_ALLOW_HOSTS-none}"});
    world.model_says([
        call("c", "sh", &script),
        text("one"),
        call("d", "sh", &script),
        text("two"),
    ]);
    let chat = world.delta(["chat", "-a", "agent", "-w", "ws", "--allow-host", "a.test"]);
    chat.stdin("first\nsecond\n").exits(0);
    assert_eq!(world.server.last().observation("d"), "a.test\n");
    world.model_says([text("three"), text("four")]);
    let chat = world.delta(["chat", "-a", "agent", "-w", "ws"]);
    let outcome = chat.stdin("third\nfourth\n").exits(0);
    assert_eq!(
        outcome
            .stderr
            .matches("no longer open (--allow-host): a.test")
            .count(),
        1,
        "{}",
        outcome.stderr
    );
}
