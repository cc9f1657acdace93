//! Which directory a run works in.

use crate::engine::torture::strace_works;
use crate::flow::run::chain;
use crate::harness::*;
use std::collections::BTreeSet;
use std::fs;

/// `delta run` in a workspace of the agent's own.
fn run(world: &World) -> Delta {
    world.delta(["run", "-a", "agent", "-y", "-m", "go"])
}

fn names(world: &World) -> BTreeSet<String> {
    let entries = fs::read_dir(world.path("agent/workspaces")).unwrap();
    let names = entries.map(|entry| entry.unwrap());
    // `open` holds marks.
    let dirs =
        names.filter(|entry| entry.file_type().unwrap().is_dir() && entry.file_name() != "open");
    dirs.map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

#[test]
fn workspaces_are_numbered_in_order() {
    let world = World::new();
    for n in 1..=3 {
        world.model_says([text("done")]);
        run(&world).exits(0);
        assert_eq!(
            world.read("agent/workspaces/LAST_USED"),
            format!("W00{n}\n")
        );
    }
    assert_eq!(
        names(&world),
        ["W001", "W002", "W003"].map(String::from).into()
    );
}

#[test]
fn the_next_number_follows_the_highest() {
    let world = World::new();
    fs::create_dir_all(world.path("agent/workspaces/W007")).unwrap();
    fs::create_dir_all(world.path("agent/workspaces/notes")).unwrap();
    world.write("agent/workspaces/W009.bak", "");
    world.model_says([text("done")]);
    run(&world).exits(0);
    assert!(world.exists("agent/workspaces/W008/.delta/LATEST"));
}

#[test]
fn numbers_do_not_end_at_999() {
    let world = World::new();
    fs::create_dir_all(world.path("agent/workspaces/W999")).unwrap();
    for name in ["W1000", "W1001"] {
        world.model_says([text("done")]);
        run(&world).exits(0);
        assert!(world.exists(&format!("agent/workspaces/{name}/.delta/LATEST")));
    }
}

#[test]
fn without_a_terminal_a_new_workspace_is_taken_as_with_y() {
    let world = World::new();
    world.model_says([text("done"), text("done")]);
    for _ in 0..2 {
        world.delta(["run", "-a", "agent", "-m", "go"]).exits(0);
    }
    assert_eq!(names(&world).len(), 2);
}

#[test]
fn the_workspace_is_known_by_its_name() {
    let world = World::new();
    world.model_says([text("done")]);
    run(&world).exits(0);
    let run = Run::latest(&world.path("agent/workspaces/W001"));
    assert_eq!(run.metadata()["workspace_id"], "W001");
}

#[test]
fn without_a_message_the_workspace_used_last_is_taken() {
    let world = World::with_tools("- {name: list, exec: 'ls'}");
    world.model_says([call("a", "list", &serde_json::json!({}))]);
    run(&world).args(["--max-iterations", "1"]).exits(4);
    world.model_says([text("done")]);
    world
        .delta(["run", "-a", "agent"])
        .exits(0)
        .prints("done\n");
    assert_eq!(names(&world).len(), 1);
}

#[test]
fn without_a_message_and_without_a_workspace_there_is_nothing_to_do() {
    let world = World::new();
    world.delta(["run", "-a", "agent"]).refuses(2, "-m");
    assert!(!world.exists("agent/workspaces/W001"));
}

#[test]
fn two_hundred_starts_at_once_get_two_hundred_workspaces() {
    let world = World::new().llm("command: ['${AGENT_HOME}/model.sh']");
    let answer = text("done");
    world.write("agent/answer.json", answer.body());
    world.script("agent/model.sh", "#!/bin/sh\ncat \"${0%/*}/answer.json\"\n");
    let all: Vec<Running> = (0..200).map(|_| run(&world).arg("-q").spawn()).collect();
    for delta in all {
        delta.wait().exits(0).prints("done\n");
    }
    let wanted: BTreeSet<String> = (1..=200).map(|n| format!("W{n:03}")).collect();
    assert_eq!(names(&world), wanted);
    for name in wanted {
        let run = Run::latest(&world.path(&format!("agent/workspaces/{name}")));
        assert_eq!(run.ending().0, "COMPLETED");
    }
    let last = world.read("agent/workspaces/LAST_USED");
    assert!(world.exists(&format!(
        "agent/workspaces/{}/.delta/LATEST",
        last.trim_end()
    )));
}

#[test]
fn a_workspace_that_is_named_leaves_the_agents_directory_alone() {
    let world = World::new();
    world.model_says([text("one"), text("two")]);
    world
        .delta(["run", "-y", "-a", "agent", "-m", "go"])
        .exits(0);
    fs::remove_file(world.path("agent/workspaces/LAST_USED")).unwrap();
    world
        .delta([
            "run",
            "-a",
            "agent",
            "-w",
            "agent/workspaces/W001",
            "-m",
            "again",
        ])
        .exits(0);
    assert!(!world.path("agent/workspaces/LAST_USED").exists());
}

#[test]
fn of_three_starts_of_a_run_id_at_once_one_runs_in_one_workspace() {
    for _ in 0..5 {
        let world = World::new();
        world.server.answers(|_| text("done").held());
        let command = || run(&world).args(["--run-id", "job1"]);
        let all = [(); 3].map(|()| command().spawn());
        world.server.wait_for(1);
        eventually("two have given up", || {
            all.iter().filter(|delta| alive(delta.pid())).count() == 1
        });
        world.server.release();
        let mut codes = all.map(|delta| delta.wait().code());
        codes.sort_unstable();
        assert_eq!(codes, [Some(0), Some(75), Some(75)]);
        command().exits(0).prints("done\n");
        assert_eq!(world.server.requests().len(), 1);
        let has_run = |name: &String| world.exists(&format!("agent/workspaces/{name}/.delta/job1"));
        assert_eq!(names(&world).iter().filter(|name| has_run(name)).count(), 1);
    }
}

#[test]
fn a_workspace_in_a_layout_that_is_not_known_is_refused() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").args(["--run-id", "one"]).exits(0);
    world.write("ws/.delta/VERSION", "9.9\n");
    let before = world.latest().read("journal.jsonl");
    for delta in [
        world.run("go"),
        world.run("go").args(["--run-id", "one"]),
        world.go_on().args(["-m", "more"]),
        world.delta(["request", "-w", "ws", "one"]),
    ] {
        delta.refuses(1, "9.9").says("1.2");
    }
    assert_eq!(world.latest().read("journal.jsonl"), before);
    assert_eq!(world.read("ws/.delta/VERSION"), "9.9\n");
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn a_work_directory_that_cannot_be_made_is_an_error_of_the_configuration() {
    let world = World::new();
    for place in ["/proc/x", "/dev/null/x"] {
        let run = world.delta(["run", "-a", "agent", "-m", "go", "-w", place]);
        run.refuses(78, place);
    }
}

#[test]
fn whatever_the_command_line_names_that_cannot_be_used_is_wrong_usage() {
    let world = World::new();
    world.server.says([text("done")]);
    world.run("go").end().exits(0);
    chain(&world, "exec: cat");
    world.write("file", "");
    for words in [
        "list-runs -r file",
        "replay -w ws LATEST --from file",
        "replay -w ws LATEST --to file",
        "init -y file",
        "flow run f -i none",
        "flow run f --inputs none",
    ] {
        let outcome = world.delta(words.split(' ')).end();
        let named = words.rsplit(' ').next().unwrap();
        outcome.exits(2).prints("").says(named);
    }
}

#[test]
fn a_number_at_the_limit_is_not_followed() {
    let world = World::new();
    for taken in ["W007", "W18446744073709551615"] {
        fs::create_dir_all(world.path(&format!("agent/workspaces/{taken}"))).unwrap();
    }
    world.model_says([text("done")]);
    run(&world).exits(0);
    assert!(world.exists("agent/workspaces/W008/.delta/LATEST"));
}

/// What a traced process has created, removed and written through to the disk.
#[derive(Debug, Default, PartialEq, Eq)]
struct Traced {
    files: usize,
    directories: usize,
    removed: usize,
    synced: usize,
}

#[test]
fn a_run_without_a_tool_creates_few_files_and_removes_none() {
    if !strace_works() {
        eprintln!("skipped: strace is not installed or may not trace");
        return;
    }
    let world = World::new();
    world.model_says([text("done")]);
    let trace = world.path("trace");
    let calls = "trace=open,openat,openat2,creat,mkdir,mkdirat,unlink,unlinkat,rmdir,fsync,fdatasync,syncfs,sync";
    let trace = trace.to_str().expect("UTF-8");
    let strace = ["strace", "-f", "-qq", "-o", trace, "-e", calls];
    let outcome = world.run("go").under(&strace).exits(0);
    outcome.prints("done\n");
    let mut traced = Traced::default();
    let lines = world.read("trace");
    // Not "-1 ENOENT": what has happened.
    let done = lines.lines().filter(|line| !line.contains(" = -1 "));
    for line in done.filter(|line| !line.contains("/dev/null")) {
        if line.contains("sync(") || line.contains("syncfs(") {
            traced.synced += 1;
        } else if line.contains("unlink") || line.contains("rmdir(") {
            traced.removed += 1;
        } else if line.contains("mkdir") {
            traced.directories += 1;
        } else if line.contains("O_CREAT") {
            traced.files += 1;
        }
    }
    let expected = Traced {
        files: 14,
        directories: 6,
        removed: 0,
        synced: 2,
    };
    assert_eq!(traced, expected, "{lines}");
}
