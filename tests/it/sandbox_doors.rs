//! Ways out of `delta sandbox` that are neither the network nor a directory: Unix sockets.

use crate::harness::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};

const DELTA: &str = env!("CARGO_BIN_EXE_delta");
const KEY: &str = "DELTA_API_KEY=sk-0123456789abcdef\n";

/// A world with a directory `box`, and a person's settings that no other user can read.
fn world() -> World {
    let world = World::new();
    world.write("box/mine.txt", "mine\n");
    let env = world.write(".config/delta/env", KEY);
    fs::set_permissions(env, fs::Permissions::from_mode(0o600)).unwrap();
    world
}

fn sandbox(world: &World, options: &[&str], script: &str) -> Delta {
    let delta = world.delta(["sandbox"]).args(options);
    let delta = delta.args(["--", "sh", "-c", script]);
    delta.cwd(world.path("box"))
}

/// Whether this kernel gives namespaces to everybody, and all that `delta sandbox` asks of it besides.
fn has_namespaces() -> bool {
    let world = world();
    let outcome = sandbox(&world, &["--strict", "--no-network", "--rw", "."], ":").end();
    if outcome.code() != Some(0) {
        eprintln!("skipped: {}", outcome.stderr.trim_end());
    }
    outcome.code() == Some(0)
}

/// A script of perl that prints whether something worked.
fn perl(expression: &str) -> String {
    format!("perl -MSocket -e 'print(({expression}) ? 1 : 0)'")
}

#[test]
fn without_a_network_no_socket_of_the_file_system_is_reached() {
    if !has_namespaces() || !installed(&["perl"]) {
        return;
    }
    let world = world();
    let _daemon = UnixListener::bind(world.path("daemon.sock")).unwrap();
    let stream =
        "socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un(\"../daemon.sock\"))";
    for (options, reached) in [
        (&["--rw", "."][..], "1"),
        (&["--rw", ".", "--no-network", "--allow-unix"], "1"),
        (&["--rw", ".", "--no-network"], "0"),
        (&["--strict", "--rw", ".", "--no-network"], "0"),
    ] {
        let outcome = sandbox(&world, options, &perl(stream)).end();
        outcome.exits(0).prints(reached);
    }
    sandbox(
        &world,
        &["--strict", "--rw", ".", "--no-network", "--allow-unix"],
        &perl(stream),
    )
    .exits(0)
    .prints("1");
}

#[test]
fn a_pair_of_sockets_talks_within_itself_only() {
    if !has_namespaces() || !installed(&["perl"]) {
        return;
    }
    let world = world();
    let log = UnixDatagram::bind(world.path("log.sock")).unwrap();
    log.set_nonblocking(true).unwrap();
    let send = perl(
        "socketpair(A, B, AF_UNIX, SOCK_DGRAM, 0) && send(A, \"x\", 0, sockaddr_un(\"../log.sock\"))",
    );
    let closed = ["--no-network", "--rw", "."];
    sandbox(&world, &["--no-network", "--allow-unix"], &send)
        .exits(0)
        .prints("1");
    assert_eq!(log.recv(&mut [0; 8]).unwrap(), 1);
    sandbox(&world, &closed, &send).exits(0).prints("0");
    assert!(log.recv(&mut [0; 8]).is_err());
    let pair = perl(
        "socketpair(A, B, AF_UNIX, SOCK_STREAM, 0) && syswrite(A, \"x\") && sysread(B, $x, 1) && $x eq \"x\"",
    );
    sandbox(&world, &closed, &pair).exits(0).prints("1");
}

#[test]
fn delta_works_inside_without_sockets_and_settings() {
    if !has_namespaces() {
        return;
    }
    let world = world().program([text("done")]);
    let home = world.home().to_str().unwrap().to_owned();
    let options = ["--no-network", "--rw", ".", "--rw", &*home, "--ro", DELTA];
    let script = format!(
        "{DELTA} sandbox --rw . -- echo inner && echo echo shell | {DELTA} coder-tool bash && \
         {DELTA} run -a ../agent -w ../ws -m go"
    );
    let outcome = sandbox(&world, &options, &script).end();
    outcome.exits(0).prints("inner\nshell\ndone\n");
}
