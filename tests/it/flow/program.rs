//! `delta flow` and `delta sessions` are parts of one program, which looks at the name by which it was called.

use crate::harness::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

#[cfg(feature = "flow")]
#[test]
fn delta_flow_needs_no_other_program() {
    let world = World::new();
    let version = world.delta(["flow", "-V"]).env("PATH", "/nowhere").end();
    let expected = format!("delta-flow {}\n", env!("CARGO_PKG_VERSION"));
    version.exits(0).prints(&expected);
    world
        .delta(["flow", "check", "--format", "json", "none"])
        .exits(78);
    world
        .delta(["flow", "chekc"])
        .exits(2)
        .says("delta-flow: unknown command 'chekc'; did you mean 'check'?");
}

#[cfg(feature = "flow")]
#[test]
fn no_command_and_help_say_what_there_is() {
    let world = World::new();
    let none = Delta::flow(world.home()).end();
    none.refuses(2, "the commands are run, show, init, check");
    let short = Delta::flow(world.home()).args(["help", "check"]).end();
    let same = Delta::flow(world.home()).args(["check", "-h"]).end();
    assert_eq!(short.stdout, same.exits(0).stdout);
    let page = world.delta(["help", "flow"]).exits(0).stdout;
    for args in [&["help"][..], &["--help"], &["graph", "--help"]] {
        let full = Delta::flow(world.home()).args(args).exits(0);
        assert_eq!(full.stdout, page, "{args:?}");
    }
}

#[test]
fn a_link_is_the_part_that_its_name_ends_with() {
    let world = World::new();
    let version = env!("CARGO_PKG_VERSION");
    for (name, part) in [
        ("delta-flow", "delta-flow"),
        ("agents-flow", "delta-flow"),
        ("agents-sessions", "delta-sessions"),
        ("agents", "delta"),
        ("flow", "delta"),
    ] {
        let link = world.path(name);
        symlink(env!("CARGO_BIN_EXE_delta"), &link).unwrap();
        let printed = Delta::of(&link, world.home()).args(["-V"]).exits(0);
        assert_eq!(printed.stdout, format!("{part} {version}\n").as_bytes());
    }
    world.delta(["sessions", "list"]).exits(0).prints("[]\n");
}

/// The programs of `cargo install` that are not `delta`, each alone in a directory.
fn lonely(world: &World) -> Vec<(&'static str, PathBuf)> {
    let programs = [
        ("flow", env!("CARGO_BIN_EXE_delta-flow")),
        ("sessions", env!("CARGO_BIN_EXE_delta-sessions")),
    ];
    let copy = |(part, program)| {
        let path = world.path(&format!("{part}/delta-{part}"));
        fs::create_dir(path.parent().unwrap()).unwrap();
        copy_program(program, &path);
        (part, path)
    };
    programs.map(copy).to_vec()
}

#[test]
fn the_delta_beside_it_or_in_path_gets_every_word_as_it_is() {
    let world = World::new();
    const SCRIPT: &str = "#!/bin/sh\nprintf '<%s>' \"$@\"\ncat\nexit 3\n";
    world.script("path/delta", SCRIPT);
    let path = format!("{}:/usr/bin:/bin", world.path("path").display());
    for (part, program) in lonely(&world) {
        let words = ["run", "a b", "", "--x=1", "-h", "--", "$HOME"];
        let run = || {
            let run = Delta::of(&program, world.home()).args(words);
            run.env("PATH", &path).stdin("in").exits(3)
        };
        run().prints(&format!("<{part}><run><a b><><--x=1><-h><--><$HOME>in"));
        world.script(&format!("{part}/delta"), "#!/bin/sh\nexit 3\n");
        run().prints("");
    }
}

#[test]
fn a_delta_that_is_not_there_is_missed_like_a_command_of_a_shell() {
    let world = World::new();
    for (part, program) in lonely(&world) {
        let run = || Delta::of(&program, world.home()).env("PATH", world.path("none"));
        run().refuses(127, &format!("delta-{part}: delta: "));
        let beside = world.script(&format!("{part}/delta"), "#!/bin/sh\n");
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o644)).unwrap();
        run().refuses(126, "permission denied");
    }
}
