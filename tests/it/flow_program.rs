//! `delta flow` is another program, which the first one finds and becomes.

use crate::harness::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// `delta` alone in a directory of its own.
fn lonely(world: &World) -> PathBuf {
    let dir = world.path("bin");
    fs::create_dir(&dir).unwrap();
    let path = dir.join("delta");
    // A link would lead to the directory where the other programs are.
    copy_program(env!("CARGO_BIN_EXE_delta"), &path);
    path
}

#[cfg(feature = "flow")]
#[test]
fn delta_flow_becomes_the_program_beside_it() {
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
fn a_program_in_path_gets_every_word_as_it_is() {
    let world = World::new();
    let delta = lonely(&world);
    world.script(
        "path/delta-flow",
        "#!/bin/sh\nprintf '<%s>' \"$@\"\ncat\nexit 3\n",
    );
    let path = format!("{}:/usr/bin:/bin", world.path("path").display());
    let words = ["flow", "run", "a b", "", "--x=1", "-h", "--", "$HOME"];
    let outcome = Delta::of(delta, world.home())
        .args(words)
        .env("PATH", path)
        .stdin("in")
        .end();
    outcome
        .exits(3)
        .prints("<run><a b><><--x=1><-h><--><$HOME>in");
}

#[test]
fn a_program_that_is_not_there_is_missed_like_a_command_of_a_shell() {
    let world = World::new();
    let delta = lonely(&world);
    let flow = || Delta::of(&delta, world.home()).args(["flow", "check"]);
    let missing = flow().env("PATH", world.path("path")).end();
    missing
        .exits(127)
        .prints("")
        .says_one_line()
        .says("flow: delta-flow is neither beside this program nor in PATH; install it, or build");
    let beside = world.script("bin/delta-flow", "#!/bin/sh\n");
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o644)).unwrap();
    let shut = flow().end();
    shut.exits(126).says_one_line().says("permission denied");
}
