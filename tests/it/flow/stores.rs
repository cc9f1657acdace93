//! The files of stores: by hand, hostile, and what of an output comes into them.

use crate::flow::run::{chain, run};
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

pub fn memory(world: &World, args: &[&str]) -> Delta {
    Delta::flow(world.home()).arg("memory").args(args)
}

/// A flow in `f` whose 40 subtasks remember their numbers in `project.jsonl`.
pub fn crowd(max_items: &str) -> World {
    let world = World::new();
    let worker = node(
        "w",
        "linear",
        ", command: [cat], remember: [{store: project, tags: [n]}]",
    );
    let split = node(
        "p",
        "split",
        ", shell: 'read n; seq -s, $n $((n + 39)) | sed \"s/.*/[&]/\"'",
    );
    let nodes = [start(), split, worker, node("m", "merge", ""), exit()];
    world.write("f/workflow.yaml", flow(&nodes, "s>p p>w w>m m>x"));
    world.write(
        "f/memory.yaml",
        format!("project_store: {{type: jsonl, file_path: project.jsonl{max_items}}}\n"),
    );
    world
}

#[test]
fn what_a_pointer_does_not_find_is_a_fault_of_the_output_and_null_is_nothing() {
    for (output, code, remembered) in [
        (r#"{"a":{"b":[1,"x"]}}"#, None, Some(json!("x"))),
        (r#"{"a":{"b":[1,null]}}"#, None, None),
        (
            r#"{"a":0,"a":{"b":{"0":2,"1":[{}]}}}"#,
            None,
            Some(json!([{}])),
        ),
        (
            r#"{"a":{"b":[1,123456789012345678901234567890.10]}}"#,
            None,
            serde_json::from_str("123456789012345678901234567890.10").unwrap(),
        ),
        (r#"{"a":[{"b":[1,2]}]}"#, Some("schema_out"), None),
        (r#"{"a":{"b":[1]}}"#, Some("schema_out"), None),
        ("7", Some("schema_out"), None),
    ] {
        let world = World::new();
        let output = output.replace('"', "\\\"");
        chain(
            &world,
            &format!("remember: [{{store: project, pointer: /a/b/1}}], shell: 'echo \"{output}\"'"),
        );
        world.write(
            "f/memory.yaml",
            "project_store: {type: jsonl, file_path: sub/dir/p.jsonl}\n",
        );
        let outcome = run(&world).json().exits(i32::from(code.is_some()));
        let error = &outcome.object()["error"];
        assert_eq!(error["code"].as_str(), code, "{output}");
        if code.is_some() {
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains("it has no /a/b/1, which the project store is to remember"),
                "{message}"
            );
        }
        let items: Vec<Value> = world
            .lines("f/sub/dir/p.jsonl")
            .iter()
            .map(|it| serde_json::from_str(it).unwrap())
            .collect();
        assert_eq!(items.first().map(|it| it["content"].clone()), remembered);
        // Numbers are kept as they were written.
        let text = world.read("f/sub/dir/p.jsonl");
        assert_eq!(text.contains("7890.10,"), output.contains("7890.10"));
    }
}

#[test]
fn a_store_that_is_damaged_or_no_file_fails_who_needs_it_and_says_where() {
    let line = |id: &str| {
        format!("{{\"id\":\"{id}\",\"timestamp\":\"2026-01-01T00:00:00Z\",\"content\":1}}\n")
            .into_bytes()
    };
    for (what, why) in [
        (
            [line("a"), b"{\"id\":\"\xff\"}\n".to_vec(), line("b")].concat(),
            "p.jsonl:2: it is not UTF-8",
        ),
        (
            [line("a"), b"hello\n".to_vec()].concat(),
            "p.jsonl:2: it is not an item",
        ),
        (b"my notes".to_vec(), "p.jsonl:1: it is not an item"),
        (
            b"[\"x\",\"2026-01-01T00:00:00Z\",[],1]\n".to_vec(),
            "p.jsonl:1: it is not an item",
        ),
        (
            b"{\"id\":\"a\",\"timestamp\":\"today\",\"content\":1}\n".to_vec(),
            "p.jsonl:1: it is not an item: \"today\" is not a time",
        ),
        (
            b"{\"id\":\"a\",\"timestamp\":\"2026-01-01T00:00:00Z\"}\n".to_vec(),
            "p.jsonl:1: it is not an item",
        ),
    ] {
        let world = World::new();
        chain(&world, "command: [cat]");
        let workflow = world
            .read("f/workflow.yaml")
            .replace("linear, context: none", "linear, context: p");
        world.write("f/workflow.yaml", workflow);
        world.write("f/memory.yaml", "project_store: {type: jsonl, file_path: p.jsonl}\ncontext_profiles: [{id: p, sources: [{store: project}]}]\n");
        world.write("f/p.jsonl", &what);
        let outcome = run(&world).json().exits(1);
        let error = &outcome.object()["error"];
        assert_eq!(error["code"], "context");
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
        memory(&world, &["list", "project", "f"]).exits(1).says(why);
        assert_eq!(fs::read(world.path("f/p.jsonl")).unwrap(), what);
        // Neither a pipe nor a directory is waited for.
        fs::remove_file(world.path("f/p.jsonl")).unwrap();
        fs::create_dir(world.path("f/p.jsonl")).unwrap();
        memory(&world, &["list", "project", "f"])
            .exits(1)
            .says("p.jsonl");
        fs::remove_dir(world.path("f/p.jsonl")).unwrap();
        let pipe = world.fifo("f/p.jsonl");
        memory(&world, &["add", "project", "f", "-m", "x"])
            .exits(1)
            .says("it is not a regular file");
        run(&world).exits(1).says("it is not a regular file");
        drop(pipe);
    }
}

#[test]
fn contents_of_any_kind_stay_one_line_each_and_a_torn_end_is_mended() {
    let world = crowd("");
    let huge = "ä\"\\\n".repeat(200_000);
    world.write("huge", serde_json::to_string(&huge).unwrap());
    world.write(
        "f/project.jsonl",
        "{\"id\":\"torn\",\"timestamp\":\"2026-01-01T00:",
    );
    let add = |args: &[&str]| {
        memory(&world, &[&["add", "project", "f"], args].concat())
            .exits(0)
            .stdout
    };
    let first = add(&[
        "-m",
        "two\nlines\r\n\u{2028}\u{7}",
        "--tag",
        "a b",
        "--tag",
        "\n",
    ]);
    add(&["-i", "huge"]);
    add(&["-m", "-1"]);
    let pretty =
        memory(&world, &["add", "project", "f", "-i", "-"]).stdin("{\n  \"a\": [1,\n 2]\n}\n");
    pretty.exits(0);
    // The last line lacks only its end.
    let text = world.read("f/project.jsonl");
    world.write("f/project.jsonl", text.trim_end());
    add(&["-m", "last"]);
    let items: Vec<Value> = world
        .lines("f/project.jsonl")
        .iter()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    assert_eq!(items.len(), 5);
    assert_eq!(items[0]["id"], String::from_utf8_lossy(&first).trim_end());
    assert_eq!(items[0]["content"], "two\nlines\r\n\u{2028}\u{7}");
    assert_eq!(items[0]["tags"], json!(["a b", "\n"]));
    assert_eq!(items[1]["content"], huge);
    assert_eq!(
        (&items[2]["content"], &items[3]["content"]),
        (&json!("-1"), &json!({"a": [1, 2]}))
    );
    assert_eq!(
        (&items[4]["content"], &items[4]["task_id"]),
        (&json!("last"), &Value::Null)
    );
    let listed = memory(&world, &["list", "project", "f"]).exits(0).stdout;
    assert_eq!(String::from_utf8(listed).unwrap().lines().count(), 5);
    let one = memory(
        &world,
        &[
            "list", "project", "f", "--tag", "x", "--tag", "a b", "--format", "json",
        ],
    )
    .exits(0);
    let object = one.object();
    assert_eq!(
        (&object["store"], &object["items"]),
        (&json!("project"), &json!([items[0]]))
    );
}

#[test]
fn the_command_line_of_memory_is_held_to_its_forms() {
    let world = crowd("");
    for (args, code, says) in [
        (&[][..], 2, "memory needs add|list"),
        (&["ad", "project"], 2, "did you mean 'add'?"),
        (&["add"], 2, "memory needs STORE"),
        (&["add", "task", "-m", "x"], 2, "no such store"),
        (&["list", "projekt"], 2, "did you mean 'project'?"),
        (&["add", "project"], 2, "give either -m TEXT or -i FILE"),
        (
            &["add", "project", "-m", "a", "-i", "b"],
            2,
            "give either -m TEXT or -i FILE",
        ),
        (
            &["add", "project", "-m", "a", "--format", "json"],
            2,
            "--format is not allowed",
        ),
        (
            &["list", "project", "-m", "a"],
            2,
            "-m and -i are not allowed",
        ),
        (&["list", "project", "f", "g"], 2, "g"),
        (
            &["list", "global", "f"],
            78,
            "the global store lives in runs only",
        ),
        (
            &["list", "task", "f"],
            78,
            "the task store lives in runs only",
        ),
        (&["list", "project", "none"], 78, "none"),
        (
            &["add", "project", "f", "-i", "f/workflow.yaml"],
            2,
            "is not one JSON value",
        ),
    ] {
        memory(&world, args).refuses(code, says);
    }
    memory(&world, &["list", "project", "f"])
        .exits(0)
        .prints("");
    assert!(!world.exists("f/project.jsonl"));
    // The path may be the workspace's.
    world.write(
        "f/memory.yaml",
        "project_store: {type: jsonl, file_path: '${CWD}/here.jsonl'}\n",
    );
    memory(&world, &["add", "project", "f", "-m", "x", "-w", "ws"]).exits(0);
    memory(&world, &["list", "project", "f", "-w", "ws"])
        .exits(0)
        .says("");
    assert_eq!(world.lines("ws/here.jsonl").len(), 1);
}

#[test]
fn a_link_to_a_store_stays_one_and_its_file_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let world = crowd(", max_items: 1");
    world.write("real.jsonl", "");
    fs::set_permissions(world.path("real.jsonl"), fs::Permissions::from_mode(0o660)).unwrap();
    std::os::unix::fs::symlink("../real.jsonl", world.path("f/project.jsonl")).unwrap();
    for text in ["a", "b"] {
        memory(&world, &["add", "project", "f", "-m", text]).exits(0);
    }
    assert!(
        fs::symlink_metadata(world.path("f/project.jsonl"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(world.lines("real.jsonl").len(), 1);
    let mode = fs::metadata(world.path("real.jsonl"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[test]
fn a_store_that_is_too_large_is_neither_read_nor_appended_to() {
    let world = crowd("");
    let path = world.path("f/project.jsonl");
    let large = |len: u64| {
        let file = fs::File::create(&path).unwrap();
        file.set_len(len).unwrap();
    };
    large(1200 << 20);
    for command in [
        run(&world).args(["--run-id", "r", "-i", "-"]).stdin("1"),
        memory(&world, &["list", "project", "f"]),
    ] {
        let outcome = command.after("ulimit -v 900000").end();
        outcome.says("project.jsonl: it is larger than 512 MiB");
    }
    // What is appended must be readable.
    large(512 << 20);
    std::os::unix::fs::FileExt::write_at(
        &fs::OpenOptions::new().write(true).open(&path).unwrap(),
        b"\n",
        (512 << 20) - 1,
    )
    .unwrap();
    let add = memory(&world, &["add", "project", "f", "-m", "more"]);
    add.after("ulimit -v 300000")
        .end()
        .says("project.jsonl: it is larger than 512 MiB");
    assert_eq!(fs::metadata(&path).unwrap().len(), 512 << 20);
}

#[test]
fn what_a_store_held_is_neither_written_nor_read_through_a_link() {
    let world = World::new();
    let shell = json!("cat \"$FLOW_CONTEXT\" >>../given; test -e fixed && cat");
    let node =
        node("a", "linear", &format!(", shell: {shell}")).replace("context: none", "context: p");
    world.write("f/workflow.yaml", around(&node));
    world.write(
        "f/memory.yaml",
        "project_store: {type: jsonl, file_path: project.jsonl}\n\
         context_profiles:\n- {id: p, sources: [{store: project}]}\n",
    );
    let item = |text: &str| {
        let time = "2026-01-01T00:00:00Z";
        format!(
            "{}\n",
            json!({"id": text, "timestamp": time, "content": text})
        )
    };
    world.write("f/project.jsonl", item("mine"));
    let start = || run(&world).args(["--run-id", "r", "-m", "x"]);
    start().exits(1);
    let memory = world.path("ws/.delta/r/memory");
    assert!(memory.join("project.jsonl").exists());
    world.write("ws/fixed", "");

    fs::create_dir(world.path("elsewhere")).unwrap();
    fs::remove_dir_all(&memory).unwrap();
    symlink(world.path("elsewhere"), &memory).unwrap();
    start().arg("--retry").exits(1).says("is a link");
    assert_eq!(fs::read_dir(world.path("elsewhere")).unwrap().count(), 0);

    world.write("elsewhere/project.jsonl", item("SECRET"));
    start().arg("--retry").exits(1).says("is a link");
    fs::remove_file(&memory).unwrap();
    fs::create_dir(&memory).unwrap();
    symlink(
        world.path("elsewhere/project.jsonl"),
        memory.join("project.jsonl"),
    )
    .unwrap();
    start().arg("--retry").exits(1).says("not a regular file");
    assert!(!world.read("given").contains("SECRET"));

    fs::remove_file(memory.join("project.jsonl")).unwrap();
    start().arg("--retry").exits(0);
}
