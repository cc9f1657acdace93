//! Doors of runs: who opens them, who cannot, and where their use is shown.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const TOOLS: &str = "- name: sh\n  exec: 'bash -c ${script}'\n  wrapper: [delta, sandbox, --no-network, --allow-hosts-from-env, --rw, '${CWD}', --]\n  \
    env: {DELTA_ALLOW_HOSTS: evil.test}\n- {name: bare, exec: 'bash -c ${script}'}\n";

/// Asks the proxy for two hosts.
const ASKS: &str = "for h in a.test b.test; do exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:}; \
    printf \"GET http://$h:90/ HTTP/1.1\\r\\n\\r\\n\" >&3; head -n 1 <&3; done";

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
fn connections_are_recorded_where_the_tool_cannot_write_and_shown() {
    let Some(world) = world() else { return };
    let script = format!("{ASKS}; echo forged >> $DELTA_EXECUTION_DIR/network.jsonl || echo kept");
    world.model_says([call("c", "sh", &json!({"script": script})), text("done")]);
    let opened = ["--allow-host", "a.test:80", "-v"];
    let outcome = world.run("go").args(opened).exits(0);
    outcome.says(", open: a.test:80");
    let observed = world.server.last().observation("c");
    assert!(
        observed.contains("kept") && observed.contains("a.test:90 is closed"),
        "{observed}"
    );
    let run = world.latest();
    let file = run.execution(1).join("network.jsonl");
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
    let refused = "a.test:90: 1 connection refused";
    let log = |options: &[&str]| {
        let outcome = world.delta(["log", "-w", "ws"]).args(options).exits(0);
        String::from_utf8_lossy(&outcome.stdout).into_owned()
    };
    assert!(log(&["-v"]).contains(refused) && !log(&[]).contains(refused));
    // What a copied run could hold.
    let more = "{\"host\":\"a.test\",\"port\":90,\"up\":18446744073709551615,\"down\":1,\"ms\":1,\"allowed\":true}\n";
    let forged = format!(
        "{more}{more}\u{1b}[2J{{\n{{\"host\":\"\\u001b[31mred\",\"port\":1,\"up\":0,\"down\":0,\"allowed\":false}}\nnull\n"
    );
    fs::write(&file, forged).unwrap();
    let text = log(&["-v"]);
    assert!(
        text.contains("a.test:90: 2 connections, 18,446,744,073,709,551,615 bytes up, 2 down"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text}");
    let stats = world.delta(["stats", "-w", "ws"]).exits(0);
    let stats = String::from_utf8_lossy(&stats.stdout).into_owned();
    assert!(
        stats.contains("a.test:90") && !stats.contains('\u{1b}'),
        "{stats}"
    );
    let stats = world
        .delta(["stats", "-w", "ws", "--format", "json"])
        .exits(0);
    let stats: Value = serde_json::from_slice(&stats.stdout).unwrap();
    assert_eq!(stats[0]["hosts"][0]["connections"], 2);
    let page = world.delta(["report", "-w", "ws"]).exits(0);
    let page = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(
        page.contains("a.test:90: 2 connections"),
        "no connections in the page"
    );
    // A link out of the run is not followed.
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(world.write("elsewhere", more), &file).unwrap();
    assert!(!log(&["-v"]).contains("bytes up"));
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
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let chat = world.delta(["chat", "-a", "agent", "-w", "ws", "--allow-host", "a.test"]);
    let chat = chat.stdin("more\n").under(&none);
    chat.refuses(78, "user.max_user_namespaces is 0");
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

#[test]
fn a_check_warns_of_doors_to_everybody() {
    let wrapper = "wrapper: [delta, sandbox, --allow-host, '*.github.io', --allow-host=*.co.uk, --allow-host, '*.example.org', --allow-host, 'a/b', --]";
    let world = World::with_tools(&format!(
        "- {{name: t, description: d, exec: 'true', {wrapper}}}"
    ));
    let outcome = world.delta(["check", "agent"]).exits(0);
    let outcome = outcome
        .says("'*.github.io' opens every name below github.io")
        .says("'*.co.uk' opens");
    outcome
        .says("'a/b': a host is a name")
        .does_not_say("example.org");
}

#[test]
fn a_run_warns_of_doors_to_everybody() {
    let Some(world) = world() else { return };
    world.model_says([text("done")]);
    let outcome = world.run("go").args(["--allow-host", "*.github.io"]);
    let outcome = outcome.exits(0);
    outcome.says("warning: '*.github.io' opens every name below github.io");
}

#[test]
fn a_dry_run_lists_what_would_be_open() {
    let world = World::with_tools(TOOLS);
    let dry = |delta: Delta| delta.arg("--dry-run").exits(0);
    dry(world.run("go")).does_not_say("open ");
    let given = world
        .run("go")
        .args(["--allow-host", "A.test", "--allow-host", "*.b.test:90"]);
    dry(given).says("a.test '*.b.test:90' (the command line)");
    let listed = world.run("go").env("DELTA_ALLOW_HOSTS", "c.test");
    dry(listed).says("c.test (DELTA_ALLOW_HOSTS)");
}

#[test]
fn of_the_coders_tools_bash_alone_has_doors() {
    let Some(world) = world() else { return };
    world.delta(["init", "-t", "coder", "mine"]).exits(0);
    world.write("ws/a", "text\n");
    let bash = json!({"command": "echo ${http_proxy:+proxy}"});
    world.server.says([
        calls(&[("b", "bash", bash), ("r", "read", json!({"path": "a"}))]),
        text("done"),
    ]);
    let run = world.delta([
        "run",
        "-a",
        "mine",
        "-w",
        "ws",
        "-m",
        "go",
        "--allow-host",
        "a.test",
    ]);
    run.env("DELTA_MODEL", "scripted")
        .env("DELTA_BASE_URL", world.server.url())
        .exits(0);
    let last = world.server.last();
    assert!(last.observation("b").contains("proxy"));
    assert!(last.observation("r").contains("text"));
    let run = world.latest();
    let command = |call| fs::read_to_string(run.execution(call).join("command.txt")).unwrap();
    assert!(
        command(1).contains("--allow-hosts-from-env"),
        "{}",
        command(1)
    );
    assert!(
        !command(2).contains("--allow-hosts-from-env"),
        "{}",
        command(2)
    );
}
