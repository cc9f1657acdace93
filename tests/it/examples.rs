//! The examples run as they are, offline.

use crate::harness::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of an example in a world of its own: what is in the source tree stays as it is.
fn example(name: &str) -> World {
    let world = World::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name);
    let to = world.path("agent");
    fs::remove_dir_all(&to).unwrap();
    fs::create_dir(&to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
    world.server.may_stay_unasked();
    world
}

/// Where `delta` and `delta-sessions` are, before everything else.
fn path() -> String {
    let programs = PathBuf::from(env!("CARGO_BIN_EXE_delta"));
    let old = std::env::var("PATH").unwrap_or_default();
    format!("{}:{old}", programs.parent().unwrap().display())
}

#[test]
fn hello_world_writes_a_greeting() {
    let world = example("hello-world");
    let said = "I wrote a greeting of two words into greeting.txt.\n";
    world.run("Greet the world").end().exits(0).prints(said);
    assert_eq!(world.read("ws/greeting.txt"), "Hello, world!\n");
    world
        .delta(["check", "agent"])
        .end()
        .exits(0)
        .does_not_say("warning");
}

#[test]
fn interactive_shell_remembers_and_leaves_no_session() {
    let world = example("interactive-shell");
    world.run("go").env("PATH", path()).end().exits(0);
    assert_eq!(world.read("ws/notes/greeting.txt"), "hello from notes\n");
    assert_eq!(sessions(&world), 0);
}

#[test]
fn python_repl_keeps_files_and_leaves_no_session() {
    if Command::new("python3").arg("-V").output().is_err() {
        eprintln!("skipped: python3 is not installed");
        return;
    }
    let world = example("python-repl");
    world.run("go").env("PATH", path()).end().exits(0);
    let results = world.latest().events("ACTION_RESULT");
    let third = results[2]["observation_content"].as_str().unwrap();
    assert!(third.contains(r#""stdout":"285\n""#), "{third}");
    assert_eq!(sessions(&world), 0);
}

fn sessions(world: &World) -> usize {
    let entries = fs::read_dir(world.path("ws/.sessions")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("sess_")).count()
}
