//! The files that nodes make: `outputs` names them, the end of the node has their sizes and SHA-256.

use crate::engine::torture::strace_works;
use crate::flow::run::{chain, run};
use crate::harness::*;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;

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
fn a_failed_node_records_no_files_and_a_cached_one_its_own() {
    let world = World::new();
    chain(&world, "shell: 'touch f; exit 1', outputs: ['f']");
    run(&world).exits(1);
    let ends = Run::latest(&world.path("ws")).events("NODE_END");
    assert!(ends.iter().all(|end| end.get("outputs").is_none()));
    chain(
        &world,
        "shell: 'touch f; echo 1', outputs: ['f'], cache: true",
    );
    for id in ["one", "two"] {
        run(&world).args(["--run-id", id]).exits(0);
        let ends = Run::latest(&world.path("ws")).events("NODE_END");
        let end = ends.iter().find(|it| it["node_id"] == "a").unwrap();
        assert_eq!(end["outputs"][0]["path"], "f", "{id}");
        assert_eq!(end.get("cached").is_some(), id == "two");
    }
}

/// A cached node that makes `d/f`, and notes that it has run.
fn cached(world: &World, command: &str) {
    world.script(
        "f/make.sh",
        "#!/bin/sh\necho run >>\"$FLOW_HOME/runs\"; mkdir -p d; printf made >d/f; chmod 751 d/f; echo 1\n",
    );
    chain(world, &format!("{command}, outputs: ['d/*'], cache: true"));
}

const MAKE: &str = "command: ['${FLOW_HOME}/make.sh']";

#[test]
fn a_cached_output_has_its_files_or_does_not_count() {
    let world = World::new();
    cached(&world, MAKE);
    let (made, kept) = (world.path("ws/d/f"), world.path("ws/.delta/cache/files"));
    let copy = || fs::read_dir(&kept).unwrap().next().unwrap().unwrap().path();
    let mut number = 0;
    let mut runs_after = |change: &dyn Fn()| {
        change();
        number += 1;
        let id = format!("r{number}");
        run(&world).args(["--run-id", &id]).exits(0);
        assert_eq!(world.read("ws/d/f"), "made");
        world.lines("f/runs").len()
    };
    assert_eq!(runs_after(&|| ()), 1);
    assert_eq!(runs_after(&|| ()), 1, "it is there");
    assert_eq!(
        runs_after(&|| fs::remove_file(&made).unwrap()),
        1,
        "put back"
    );
    assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o751);
    assert_eq!(
        runs_after(&|| fs::write(&made, "other").unwrap()),
        1,
        "put back"
    );
    let set_mode = |mode| fs::set_permissions(&made, fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(runs_after(&|| set_mode(0o640)), 1, "another mode");
    assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o751);
    // Without the copy, what is there is enough.
    assert_eq!(runs_after(&|| fs::remove_dir_all(&kept).unwrap()), 1);
    assert_eq!(
        runs_after(&|| fs::remove_file(&made).unwrap()),
        2,
        "no copy"
    );
    let forge = || {
        fs::remove_file(&made).unwrap();
        fs::write(copy(), "forged").unwrap();
    };
    assert_eq!(runs_after(&forge), 3, "another copy");
    let lead_away = || {
        fs::remove_dir_all(world.path("ws/d")).unwrap();
        fs::create_dir(world.path("away")).unwrap();
        std::os::unix::fs::symlink(world.path("away"), world.path("ws/d")).unwrap();
    };
    lead_away();
    run(&world).args(["--run-id", "link"]).exits(0);
    assert_eq!(world.lines("f/runs").len(), 4, "no file through a link");
}

#[test]
fn an_entry_with_a_file_that_no_pattern_fits_does_not_count() {
    let world = World::new();
    cached(&world, MAKE);
    run(&world).args(["--run-id", "one"]).exits(0);
    let dir = fs::read_dir(world.path("ws/.delta/cache")).unwrap();
    let entry = dir.map(|it| it.unwrap().path()).find(|it| it.is_file());
    let entry = entry.unwrap();
    let forged = fs::read_to_string(&entry).unwrap().replace("d/f", "e/f");
    fs::write(&entry, forged).unwrap();
    run(&world).args(["--run-id", "two"]).exits(0);
    assert_eq!(world.lines("f/runs").len(), 2);
    assert!(!world.exists("ws/e"));
}

#[test]
fn each_task_gets_the_files_of_a_cached_node_in_its_directory() {
    for jobs in ["-j1", "-j3"] {
        let world = World::new();
        cached(&world, MAKE);
        let file = world.read("f/workflow.yaml");
        let count = "- {id: c, shell: 'cat d/f; rm d/f', output: text, context: none}\nedges:";
        let file = file.replace("edges:", count);
        let file = file.replace("to: x}", "to: c}\n- {from: c, to: x}");
        world.write("f/workflow.yaml", file);
        world.write("in.jsonl", "1\n1\n1\n");
        let outcome = run(&world).args([jobs, "--inputs", "in.jsonl"]).end();
        outcome.exits(0).prints("\"made\"\n\"made\"\n\"made\"\n");
    }
}

#[test]
fn a_program_below_the_directory_of_the_flow_is_part_of_the_key() {
    for command in [
        MAKE,
        "shell: '\"$FLOW_HOME/make.sh\"'",
        "exec: sh make.sh",
        "shell: 'exec ./make.sh'",
        "command: [env, 'RUN=${FLOW_HOME}/make.sh', sh, -c, 'exec $RUN']",
    ] {
        let world = World::new();
        cached(&world, command);
        let run = |id: &str, count| {
            let args = ["run", "f", "-w", "f", "--run-id", id];
            Delta::flow(world.home()).args(args).exits(0);
            assert_eq!(world.lines("f/runs").len(), count, "{command}: {id}");
        };
        run("one", 1);
        run("two", 1);
        world.write("f/make.sh", world.read("f/make.sh") + "# changed\n");
        run("three", 2);
    }
}

#[test]
fn a_required_file_that_is_missing_fails_the_node() {
    let world = World::new();
    for (shell, exit) in [("echo 1", 1), ("touch b.txt; echo 1", 0)] {
        let outputs = "outputs: ['a*', {path: '*.txt', required: true}, {path: c}]";
        chain(&world, &format!("shell: '{shell}', {outputs}"));
        let outcome = run(&world).exits(exit);
        if exit == 1 {
            outcome.says("outputs: no file fits \"*.txt\"");
        }
    }
    for (entry, why) in [
        ("{required: true}", "expected a pattern or {path: PATTERN"),
        ("7", "expected a pattern or {path: PATTERN"),
        ("{path: a, required: 1}", "required: expected true or false"),
        ("{path: /a}", "absolute"),
    ] {
        let middle = format!(", command: [cat], outputs: [{entry}]");
        let found = errors_in(&around(&node("a", "linear", &middle)));
        has(&found, 1, "manifest_invalid", &["a"], "workflow.yaml", why);
    }
}

/// It takes no room, and longer than anybody waits to be read.
const SPARSE: &str = "truncate -s 7E big; echo 1";

#[test]
fn a_cached_output_without_a_file_that_is_required_now_does_not_count() {
    let world = World::new();
    for (outputs, exit) in [("b", 0), ("{path: b, required: true}", 1)] {
        chain(
            &world,
            &format!("shell: 'echo 1', outputs: [{outputs}], cache: true"),
        );
        run(&world)
            .args(["--run-id", &format!("r{exit}")])
            .exits(exit);
    }
}

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
