//! `delta flow artifacts` and `delta flow manifest`: what a run brought, and what it was made from.

use crate::flow::run::{chain, run};
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

/// A flow whose nodes bring an output with a schema, a tool's result, a large output and files.
fn ran() -> World {
    let world = World::unasked();
    let flow_program = env!("CARGO_BIN_EXE_delta-flow");
    let nodes = [
        start(),
        node(
            "a",
            "linear",
            ", schema_out: num, shell: 'cat >/dev/null; echo 7'",
        ),
        node(
            "big",
            "linear",
            ", shell: 'head -c 70000 /dev/zero | tr \"\\0\" 1'",
        ),
        node(
            "t",
            "linear",
            &format!(
                ", tools: [say], shell: 'cat >/dev/null; echo \"{{}}\" | {flow_program} tool say'"
            ),
        ),
        node(
            "files",
            "linear",
            ", outputs: ['out/*.txt'], shell: 'cat >/dev/null; mkdir -p out; echo one >out/1.txt; echo 1'",
        ),
        exit(),
    ];
    world.write(
        "f/workflow.yaml",
        flow(&nodes, "s>a a>big big>t t>files files>x"),
    );
    world.write("f/schemas/num.json", r#"{"type":"number"}"#);
    world.write(
        "f/tools.yaml",
        "tools:\n- {id: say, command: [echo, '\"said\"']}\n",
    );
    let outcome = run(&world).args(["--run-id", "r", "-m", "x"]).end();
    outcome.exits(0).prints("1\n");
    world
}

fn artifacts(world: &World, more: &[&str]) -> Delta {
    let command = Delta::flow(world.home()).args(["artifacts", "-w", "ws"]);
    command.args(more)
}

fn listed(world: &World, more: &[&str]) -> Vec<Value> {
    let outcome = artifacts(world, more).arg("--json").end();
    outcome.object()["artifacts"].as_array().unwrap().clone()
}

#[test]
fn all_that_a_run_brought_is_listed_in_order() {
    let world = ran();
    let all = listed(&world, &[]);
    let name =
        |it: &Value| format!("{} {} {}", it["task_id"], it["node_id"], it["kind"]).replace('"', "");
    let names: Vec<String> = all.iter().map(name).collect();
    let expected = [
        "T1 a output",
        "T1 big output",
        "T1 t tool",
        "T1 t output",
        "T1 files output",
        "T1 files file",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        (&all[0]["schema"], &all[0]["output"]),
        (&"num".into(), &7.into())
    );
    let big = all[1]["path"].as_str().unwrap();
    assert_eq!(fs::metadata(big).unwrap().len(), 70_000);
    assert_eq!(all[2]["tool_name"], "say");
    assert_eq!(
        fs::read_to_string(all[2]["path"].as_str().unwrap()).unwrap(),
        "\"said\"\n"
    );
    let file = &all[5];
    assert_eq!(file["path"], world.path("ws/out/1.txt").to_str().unwrap());
    assert_eq!(file["size"], 4);
    assert_eq!(
        file["sha256"],
        "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806"
    );
    assert_eq!(listed(&world, &["--schema", "num"]).len(), 1);
    assert_eq!(listed(&world, &["r", "--node", "files"]).len(), 2);
    let text = artifacts(&world, &["--node", "a"]).exits(0).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with("  T1  a  output  num  7\n"), "{text}");
}

#[test]
fn files_that_are_not_what_they_were_are_found() {
    let world = ran();
    artifacts(&world, &["--verify"]).exits(0);
    world.write("ws/out/1.txt", "two\n");
    let found = artifacts(&world, &["--verify"]).exits(1).stdout;
    let found = String::from_utf8(found).unwrap();
    let marked: Vec<&str> = found
        .lines()
        .filter(|line| line.contains("DIFFERS"))
        .collect();
    assert_eq!(marked.len(), 1, "{found}");
    assert!(marked[0].contains("out/1.txt"), "{found}");
    // A link to what it was is not the file.
    world.write("one", "one\n");
    fs::remove_file(world.path("ws/out/1.txt")).unwrap();
    std::os::unix::fs::symlink(world.path("one"), world.path("ws/out/1.txt")).unwrap();
    artifacts(&world, &["--verify"]).exits(1);
    let all = listed(&world, &[]);
    fs::remove_file(all[1]["path"].as_str().unwrap()).unwrap();
    let differs = listed(&world, &["--verify"]);
    let differs: Vec<bool> = differs
        .iter()
        .map(|it| it.get("differs").is_some())
        .collect();
    assert_eq!(differs, [false, true, false, false, false, true]);
    artifacts(&world, &[]).exits(0);
}

fn manifest(world: &World, more: &[&str]) -> Delta {
    Delta::flow(world.home()).args(["manifest"]).args(more)
}

#[test]
fn a_flow_and_its_run_are_made_from_the_same_until_something_changes() {
    let world = ran();
    world.write(
        "f/providers.yaml",
        "providers:\n- {id: p, base_url: 'http://localhost', credential: {source: env, name: P_KEY}}\n",
    );
    let told = manifest(&world, &["f"]).env("P_KEY", "hush").exits(0);
    let object = told.object();
    assert!(!String::from_utf8_lossy(&told.stdout).contains("hush"));
    assert_eq!(
        object["credentials"],
        json!([{"provider": "p", "source": "env", "name": "P_KEY"}])
    );
    let files = object["files"].as_array().unwrap();
    let paths: Vec<&Value> = files.iter().map(|file| &file["path"]).collect();
    assert_eq!(
        paths,
        [
            "providers.yaml",
            "schemas/num.json",
            "tools.yaml",
            "workflow.yaml"
        ]
    );
    assert_eq!(object["schemas"][0]["sha256"], files[1]["sha256"]);
    let programs = object["programs"].as_array().unwrap();
    let echo = programs.iter().find(|it| it["program"] == "echo").unwrap();
    assert_eq!(echo["needed_by"], json!(["tool say"]));
    assert!(
        fs::metadata(echo["path"].as_str().unwrap())
            .unwrap()
            .is_file()
    );
    world.write("then.json", &told.stdout);
    let check = |what: &[&str]| manifest(&world, &[what, &["--check", "then.json"]].concat());
    check(&["f"]).exits(0).prints("");
    // The run began without providers.
    let run = check(&["-w", "ws", "r"]).exits(1);
    run.prints("files: providers.yaml is gone\n")
        .says("have changed since the run");
    world.write("f/schemas/num.json", r#"{"type":"integer"}"#);
    world.write("f/agents.yaml", "agents: []\n");
    check(&["f"]).exits(1).prints(
        "files: agents.yaml is new\nfiles: schemas/num.json differs\nschemas: num differs\n",
    );
    manifest(&world, &["f", "--check", "f/workflow.yaml"]).exits(2);
}

#[test]
fn a_flow_that_was_copied_is_made_from_the_same() {
    let world = World::new();
    world.server.may_stay_unasked();
    world.script("f/bin/own", "#!/bin/sh\ncat\n");
    chain(&world, "exec: '${FLOW_HOME}/bin/own'");
    let command = Delta::flow(world.home()).args(["manifest", "f"]);
    let told = command.end().exits(0).stdout;
    world.write("manifest.json", told);
    copy(&world.path("f"), &world.path("g"));
    let check = ["manifest", "g", "--check", "manifest.json"];
    let check = || Delta::flow(world.home()).args(check).end();
    check().exits(0).prints("");
    world.script("g/bin/own", "#!/bin/sh\nfalse\n");
    check().exits(1);
}

#[test]
fn names_that_the_flow_does_not_have_are_wrong_usage() {
    let world = World::new();
    chain(&world, "command: [cat]");
    let artifacts = || Delta::flow(world.home()).args(["artifacts", "-w", "ws"]);
    std::fs::create_dir_all(world.path("ws")).unwrap();
    artifacts().exits(1).says("or `delta flow run`");
    run(&world).args(["-m", "x"]).exits(0);
    artifacts()
        .args(["--node", "aa"])
        .exits(2)
        .says("--node: there is no 'aa'; there are a, s, x");
    artifacts()
        .args(["--schema", "n"])
        .exits(2)
        .says("--schema: there is no 'n'; the flow has none");
    // Of a flow that has changed, the record has names, too.
    chain(&world, "command: [cat, -u]");
    artifacts().args(["--node", "a"]).exits(0);
    artifacts().args(["--node", "aa"]).exits(2);
}
