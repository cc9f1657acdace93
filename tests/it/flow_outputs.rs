//! The files that nodes make: `outputs` names them, the end of the node has their sizes and SHA-256.

use crate::flow_run::{chain, run};
use crate::harness::*;
use crate::torture::strace_works;
use serde_json::json;

#[test]
fn files_that_fit_are_recorded_with_size_and_hash_and_links_lead_nowhere() {
    let world = World::new();
    let shell = "mkdir -p out/deep && printf abc >out/a.csv && printf abc >out/deep/b.csv && \
                 printf x >out/c.txt && ln -s /etc/passwd out/link.csv && ln -s /etc out/etc && \
                 mkfifo out/pipe.csv && echo 1";
    chain(
        &world,
        &format!("shell: '{shell}', outputs: ['out/**/*.csv', 'none/*', 'out/a.csv']"),
    );
    run(&world).exits(0).prints("1\n");
    let ends = Run::latest(&world.path("ws")).events("NODE_END");
    let end = ends.iter().find(|it| it["node_id"] == "a").unwrap();
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(
        end["outputs"],
        json!([
            {"path": "out/a.csv", "size": 3, "sha256": abc},
            {"path": "out/deep/b.csv", "size": 3, "sha256": abc},
        ])
    );
    let start = ends.iter().find(|it| it["node_id"] == "s").unwrap();
    assert!(start.get("outputs").is_none());
}

#[test]
fn a_file_that_cannot_be_read_fails_the_node() {
    let world = World::new();
    // As root everything can be read.
    let shell = "mkdir d && printf x >d/f && chmod 0 d/f && echo 1";
    chain(&world, &format!("shell: '{shell}', outputs: ['d/*']"));
    let is_root = rustix::process::geteuid().is_root();
    let outcome = run(&world).json().exits(i32::from(!is_root));
    if !is_root {
        outcome.says("cannot read \"d/f\"");
    }
}

#[test]
fn patterns_that_leave_the_directory_are_errors() {
    for (pattern, why) in [
        ("/etc/*", "absolute"),
        ("../x", ".."),
        ("a//b", "empty name"),
    ] {
        let middle = node(
            "a",
            "linear",
            &format!(", command: [cat], outputs: ['{pattern}']"),
        );
        has(
            &errors_in(&around(&middle)),
            1,
            "manifest_invalid",
            &["a"],
            "workflow.yaml",
            why,
        );
    }
}

#[test]
fn a_failed_node_and_a_cached_one_record_no_files() {
    let world = World::new();
    chain(&world, "shell: 'touch f; exit 1', outputs: ['f']");
    run(&world).exits(1);
    let ends = Run::latest(&world.path("ws")).events("NODE_END");
    assert!(ends.iter().all(|end| end.get("outputs").is_none()));
    chain(
        &world,
        "shell: 'touch f; echo 1', outputs: ['f'], cache: true",
    );
    for (id, made) in [("one", true), ("two", false)] {
        run(&world).args(["--run-id", id]).exits(0);
        let ends = Run::latest(&world.path("ws")).events("NODE_END");
        let end = ends.iter().find(|it| it["node_id"] == "a").unwrap();
        assert_eq!(end.get("outputs").is_some(), made, "{id}");
    }
    let first = world.read("ws/.delta/one/journal.jsonl");
    assert!(first.contains("\"outputs\""));
}

/// It takes no room, and longer than anybody waits to be read.
const SPARSE: &str = "truncate -s 7E big; echo 1";

#[test]
fn a_file_that_takes_too_long_to_read_is_a_timeout_of_the_node() {
    let world = World::new();
    chain(
        &world,
        &format!("shell: '{SPARSE}', outputs: [big], timeout_ms: 3000"),
    );
    let object = run(&world).json().exits(1).object();
    let error = &object["error"];
    assert_eq!(error["code"], "timeout", "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("outputs: "), "{message}");
}

#[test]
fn the_program_and_the_reading_of_its_files_share_the_time_of_the_node() {
    if !strace_works() {
        eprintln!("skipped: strace is not installed or may not trace");
        return;
    }
    let world = World::new();
    chain(
        &world,
        "shell: 'sleep 1.5; echo 1 >made; echo 1', outputs: [made], timeout_ms: 3000",
    );
    // The engine alone is slow to open the file: neither of the two takes too long by itself.
    let slowly = "inject=openat:delay_enter=2500000";
    let strace = [
        "strace",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        "made",
        "-e",
        slowly,
    ];
    let outcome = run(&world).json().under(&strace).exits(1);
    let error = &outcome.object()["error"];
    assert_eq!(error["code"], "timeout", "{error}");
}

#[test]
fn a_signal_ends_the_reading_of_a_file_and_the_node_is_begun_again() {
    let world = World::new();
    chain(&world, &format!("shell: '{SPARSE}', outputs: [big]"));
    let running = run(&world).args(["--run-id", "r"]).spawn();
    let code = world.path("ws/.delta/r/io/nodes/T1/a/exit_code.txt");
    eventually("the program has ended", || code.exists());
    running.signal(rustix::process::Signal::TERM);
    running.wait().exits(143);
    let ends = Run::latest(&world.path("ws")).events("NODE_END");
    assert!(ends.iter().all(|end| end["node_id"] != "a"), "{ends:?}");
}

#[test]
fn too_many_files_fail_the_node() {
    for (count, exit) in [(10_000, 0), (10_001, 1)] {
        let world = World::new();
        let shell = format!("mkdir d; cd d; seq {count} | xargs touch; echo 1");
        chain(&world, &format!("shell: '{shell}', outputs: ['d/*']"));
        let outcome = run(&world).exits(exit);
        if exit == 1 {
            outcome.says("there are more than 10000 files");
        }
    }
}
