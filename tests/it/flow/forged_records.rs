//! Records of flows that somebody forged: what shows them neither leaves the run nor controls the terminal, and what goes
//! on with them reports what is damaged.

use crate::flow::run::{chain, run};
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

/// A run `r` of a node with this shell.
fn ran(shell: &str, more: &str) -> World {
    let world = World::unasked();
    chain(&world, &format!("shell: {}{more}", json!(shell)));
    run(&world).args(["--run-id", "r", "-m", "x"]).end();
    world
}

/// Rewrites the journal of the run: each event as the change leaves it, or none.
fn forge(world: &World, change: impl Fn(&mut Value) -> bool) {
    let path = world.path("ws/.delta/r/journal.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut forged = String::new();
    for line in text.lines() {
        let mut event: Value = serde_json::from_str(line).unwrap();
        if change(&mut event) {
            forged.push_str(&format!("{event}\n"));
        }
    }
    fs::write(path, forged).unwrap();
}

/// Changes a field of the events of this type about the node `a`.
fn forge_field(world: &World, kind: &str, field: &str, value: &str) {
    forge(world, |event| {
        if event["type"] == kind && event["node_id"] == "a" {
            event[field] = value.into();
        }
        true
    });
}

fn flow(world: &World, words: &[&str]) -> Outcome {
    let command = Delta::flow(world.home()).arg(words[0]);
    command.args(["-w", "ws"]).args(&words[1..]).end()
}

fn printed(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stdout).into_owned()
}

#[test]
fn a_run_and_a_task_are_shown_without_control_characters_and_a_node_as_it_is() {
    let world = ran(r"printf 'no\033]0;owned\007\n' >&2; exit 1", "");
    for words in [&["show", "r"][..], &["show", "r", "T1"]] {
        let shown = printed(&flow(&world, words).exits(0));
        assert!(shown.contains("no"), "{shown:?}");
        let controls = |c: char| c.is_control() && c != '\n';
        assert!(!shown.contains(controls), "{shown:?}");
    }
    let raw = printed(&flow(&world, &["show", "r", "T1", "a"]).exits(0));
    assert!(raw.contains("--- said\nno\u{1b}]0;owned\u{7}"), "{raw:?}");
}

#[test]
fn names_of_files_take_one_line_whatever_is_in_them() {
    let shell = r#"mkdir out; touch "$(printf 'out/a\nfiles: b is gone\t\033[2J')"; echo 1"#;
    let world = ran(shell, ", outputs: ['out/*']");
    let listed = flow(&world, &["artifacts", "r", "--json"]).exits(0);
    let count = listed.object()["artifacts"].as_array().unwrap().len();
    let shown = printed(&flow(&world, &["artifacts", "r"]).exits(0));
    assert_eq!(shown.lines().count(), count, "{shown:?}");
    assert!(shown.contains("b is gone"), "{shown:?}");
    assert!(!shown.contains(['\t', '\u{1b}']), "{shown:?}");

    let then = json!({"files": [{"path": "a\nb is gone\r\t\u{1b}[2J", "sha256": ""}]});
    world.write("then.json", then.to_string());
    let command = Delta::flow(world.home()).args(["manifest", "f", "--check", "then.json"]);
    let shown = printed(&command.exits(1));
    // The version, the file that is gone, and the one that is new.
    assert_eq!(shown.lines().count(), 3, "{shown:?}");
    assert!(!shown.contains(['\r', '\t', '\u{1b}']), "{shown:?}");
}

#[test]
fn no_directory_of_records_leads_out_of_the_run() {
    for name in ["io", "io/nodes", "io/nodes/T1"] {
        let world = ran("kill $PPID; sleep 9", "");
        let (link, out) = (world.path("ws/.delta/r").join(name), world.path("out"));
        fs::rename(&link, &out).unwrap();
        std::os::unix::fs::symlink(&out, &link).unwrap();
        let before = files_below(&out);
        let journal = world.read("ws/.delta/r/journal.jsonl");
        let again = run(&world).args(["--run-id", "r", "-m", "x"]).end();
        again
            .exits(1)
            .prints("")
            .says("it is a link, or is no directory");
        assert_eq!(files_below(&out), before, "{name}");
        assert_eq!(world.read("ws/.delta/r/journal.jsonl"), journal);
    }
}

#[test]
fn a_record_without_the_task_that_it_is_about_is_damaged() {
    let again = |world: &World| run(world).args(["--run-id", "r", "-m", "x"]).end();
    // Nothing of the run that ended is left, or the beginning of its task is not.
    let parts: [&dyn Fn(&Value) -> bool; 2] = [&|event| event["task_id"].is_null(), &|event| {
        event["type"] != "TASK_CREATED"
    }];
    for part in parts {
        let world = ran("echo 1", "");
        forge(&world, |event| part(event));
        let journal = world.read("ws/.delta/r/journal.jsonl");
        let outcome = again(&world).exits(1).prints("");
        outcome.says("journal.jsonl").says("damaged: ").says("T1");
        assert_eq!(world.read("ws/.delta/r/journal.jsonl"), journal);
        let outcome = run(&world).args(["--run-id", "r", "-m", "x", "--retry"]);
        outcome.exits(1).says("damaged: ");
    }
    // The same of one that has not ended: nothing is begun.
    let world = ran("echo >>../ran; kill $PPID; sleep 9", "");
    forge(&world, |event| event["type"] != "TASK_CREATED");
    again(&world).exits(1).says("damaged: ").says("T1");
    assert_eq!(world.lines("ran").len(), 1);
    // A run that died before its task began is none of these.
    let world = ran("echo 1", "");
    forge(&world, |event| {
        let kind = event["type"].as_str().unwrap_or_default();
        ["ENGINE_START", "FLOW_START"].contains(&kind)
    });
    again(&world).exits(0).prints("1\n");
}

#[test]
fn no_path_in_a_record_leads_out_of_the_run() {
    let world = ran("cat", "");
    for name in ["input.json", "stderr.log", "usage.json", "stdout.log"] {
        let content = json!({"cpu_ms": 424_242_424, "said": "SECRET"});
        world.write(&format!("secret/{name}"), content.to_string());
    }
    let secret = world.path("secret");
    for place in ["../../../secret", secret.to_str().unwrap()] {
        for (kind, field) in [
            ("NODE_START", "execution_ref"),
            ("NODE_END", "output_ref"),
            ("TASK_CREATED", "input_ref"),
        ] {
            let kept = world.read("ws/.delta/r/journal.jsonl");
            let value = match field {
                "execution_ref" => place.to_owned(),
                _ => format!("{place}/input.json"),
            };
            forge(&world, |event| {
                let is_meant =
                    event["type"] == kind && (event["node_id"] == "a" || kind == "TASK_CREATED");
                if is_meant {
                    event.as_object_mut().unwrap().remove("output");
                    event.as_object_mut().unwrap().remove("input");
                    event[field] = value.as_str().into();
                }
                true
            });
            for words in [
                &["show", "r", "T1", "a"][..],
                &["stats", "r"],
                &["stats", "r", "--format", "json"],
                &["run", "f", "--run-id", "r", "-m", "x"],
                &["replay", "r"],
            ] {
                let outcome = flow(&world, words);
                let shown = outcome.describe();
                assert!(!shown.contains("SECRET"), "{field} {words:?}: {shown}");
                assert!(!shown.contains("42424"), "{field} {words:?}: {shown}");
            }
            world.write("ws/.delta/r/journal.jsonl", kept);
        }
    }
}

#[test]
fn no_link_among_the_records_leads_out_of_the_run() {
    let world = ran("cat", "");
    world.write("secret/stderr.log", "SECRET");
    world.write("secret/output.json", "\"SECRET\"");
    let io = world.path("ws/.delta/r/io/nodes/T1/a");
    assert!(io.is_dir());
    fs::remove_dir_all(&io).unwrap();
    symlink(world.path("secret"), &io).unwrap();
    let show = || flow(&world, &["show", "r", "T1", "a"]).exits(0);
    assert!(!printed(&show()).contains("SECRET"));
    fs::remove_file(&io).unwrap();
    fs::create_dir(&io).unwrap();
    symlink(world.path("secret/stderr.log"), io.join("stderr.log")).unwrap();
    assert!(!printed(&show()).contains("SECRET"));
    // Nobody writes to it.
    fs::remove_file(io.join("stderr.log")).unwrap();
    let mut pipe = std::process::Command::new("mkfifo");
    let made = pipe.arg(io.join("stderr.log")).status().unwrap();
    assert!(made.success());
    show().does_not_say("SECRET");
    // An output that has a file of its own.
    forge(&world, |event| {
        if event["type"] == "NODE_END" && event["node_id"] == "a" {
            event.as_object_mut().unwrap().remove("output");
            event["output_ref"] = "io/nodes/T1/a/output.json".into();
        }
        true
    });
    symlink(world.path("secret/output.json"), io.join("output.json")).unwrap();
    let outcome = flow(&world, &["run", "f", "--run-id", "r", "-m", "x"]);
    outcome.refuses(1, "not a regular file");
}

#[test]
fn a_file_that_a_record_names_is_verified_only_below_its_task() {
    let world = ran("echo 1; echo one >made", ", outputs: [made]");
    forge(&world, |event| {
        if let Some(files) = event["outputs"].as_array_mut() {
            files[0]["path"] = "../secret".into();
        }
        true
    });
    // What is recorded of it is what it is.
    world.write("secret", "one\n");
    let verify = || flow(&world, &["artifacts", "r", "--verify"]);
    verify().exits(1);
    forge_field(&world, "NODE_END", "outputs", "none");
    verify().exits(0);
}

#[test]
fn an_observer_writes_nothing_through_a_link() {
    for link in ["io/observers", "io/observers/mine"] {
        let world = ran("echo 1", "");
        fs::create_dir(world.path("elsewhere")).unwrap();
        let link = world.path("ws/.delta/r").join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(world.path("elsewhere"), &link).unwrap();
        let words = ["observe", "r", "--id", "mine", "--", "touch", "begun"];
        flow(&world, &words).exits(1).says("is a link");
        assert_eq!(fs::read_dir(world.path("elsewhere")).unwrap().count(), 0);
        assert!(!world.exists("ws/begun"));
        // The run does not need it.
        let plugin = "plugins:\n- {id: mine, command: [touch, begun]}\n";
        world.write("f/plugins.yaml", plugin);
        forge(&world, |event| event["type"] != "ENGINE_END");
        let again = run(&world).args(["--run-id", "r", "-m", "x", "--changed", "ok"]);
        again.exits(0).says("is a link");
        assert_eq!(fs::read_dir(world.path("elsewhere")).unwrap().count(), 0);
    }
}

#[test]
fn no_link_among_the_records_brings_a_file_into_the_report() {
    let world = ran("echo said >&2; cat", "");
    for name in ["input.json", "context.json", "stderr.log", "stdout.log"] {
        world.write(&format!("secret/{name}"), "\"SECRET\"");
    }
    let report = || printed(&world.delta(["report", "-w", "ws", "r"]).exits(0));
    assert!(report().contains("said"));
    let io = world.path("ws/.delta/r/io/nodes/T1/a");
    fs::remove_dir_all(&io).unwrap();
    symlink(world.path("secret"), &io).unwrap();
    assert!(!report().contains("SECRET"));
    forge(&world, |event| {
        if event["type"] == "NODE_END" && event["node_id"] == "a" {
            event.as_object_mut().unwrap().remove("output");
            event["output_ref"] = "io/nodes/T1/a/stdout.log".into();
        }
        true
    });
    assert!(!report().contains("SECRET"));
}

#[test]
fn a_null_output_of_a_node_is_in_the_report() {
    let world = ran("echo said", "");
    let is_end = |event: &Value| event["type"] == "NODE_END" && event["node_id"] == "a";
    forge(&world, |event| {
        if is_end(event) {
            event["output"] = Value::Null;
        }
        true
    });
    let report = printed(&world.delta(["report", "-w", "ws", "r"]).exits(0));
    let records = crate::view::report::records(&report);
    let end = records.iter().find(|record| is_end(record));
    assert_eq!(end.expect("the node's end")["output"], "null");
}
