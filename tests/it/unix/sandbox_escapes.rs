//! Ways out of `delta sandbox` that are neither the network nor a directory: Unix sockets, and files with keys.

use crate::harness::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};

const DELTA: &str = env!("CARGO_BIN_EXE_delta");
const KEY: &str = "DELTA_API_KEY=sk-0123456789abcdef\n";

/// A world with a directory `box`, and a person's settings that no other user can read.
fn world() -> World {
    let world = World::on_disk();
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

#[test]
fn the_persons_own_keys_are_hidden_and_what_lies_beside_them_is_not() {
    if !has_namespaces() {
        return;
    }
    let world = world();
    world.write(".config/delta/agents/a/agent.yaml", "name: a\n");
    world.write("xdg/delta/env", KEY);
    let files = "cat ../.config/delta/env ../xdg/delta/env ../.config/delta/agents/a/agent.yaml";
    let end = |options: &[&str], script: &str| {
        let delta = sandbox(&world, options, script);
        delta.env("XDG_CONFIG_HOME", world.path("xdg")).end()
    };
    for options in [
        &["--strict", "--ro", "/"][..],
        &["--strict", "--rw", ".."],
        &["--ro", "/", "--no-network"],
    ] {
        end(options, files).exits(0).prints("name: a\n");
    }
    for script in [
        "echo x > ../xdg/delta/env",
        "rm ../xdg/delta/env",
        "mv ../xdg/delta/env new",
        "umount ../xdg/delta/env && grep sk- ../xdg/delta/env",
        "grep sk- /proc/$PPID/root$HOME/xdg/delta/env",
        "mv ../xdg/delta ../xdg/other; grep sk- ../xdg/other/env",
    ] {
        let outcome = end(&["--rw", "..", "--ro", "/"], script);
        assert_ne!(outcome.code(), Some(0), "{script}\n{}", outcome.describe());
        assert_eq!(world.read("xdg/delta/env"), KEY, "{script}");
    }
    // An inner sandbox finds it hidden, and has nothing to report.
    let inner = format!("{DELTA} sandbox --strict --ro / -- {files}");
    end(&["--strict", "--ro", "/"], &inner)
        .exits(0)
        .prints("name: a\n")
        .says("");
}

#[test]
fn what_is_hidden_stays_so_for_the_next_command() {
    if !has_namespaces() {
        return;
    }
    let world = world();
    world.write("dot/netrc", "secret\n");
    symlink("dot/netrc", world.path("netrc")).unwrap();
    world.write("docker/deep/config.json", "secret\n");
    let hide = ["docker/deep/config.json", "netrc", ".config/delta/env"];
    let hide = hide.map(|name| format!("~/{name}"));
    let hide = hide.iter().flat_map(|path| ["--hide", path]);
    let options: Vec<&str> = ["--rw", ".."].into_iter().chain(hide).collect();
    for script in [
        "mv ../docker ../moved",
        "mv ../docker/deep ../docker/moved",
        "mv ../.config ../moved",
        "mv ../.config/delta ../.config/moved",
        "mv ../dot ../moved",
        "mv -T ../docker --exchange ../dot",
    ] {
        let outcome = sandbox(&world, &options, script).end();
        assert_ne!(outcome.code(), Some(0), "{script}\n{}", outcome.describe());
        let next = "grep -r secret .. 2> /dev/null; grep -r sk- .. 2> /dev/null; :";
        sandbox(&world, &options, next).exits(0).prints("");
    }
    // Nothing can keep a link in its place.
    let outcome = sandbox(&world, &options, "echo ran").exits(0);
    outcome
        .prints("ran\n")
        .says("replacing ")
        .says("netrc (a symbolic link)");
    let strict = [&options[..], &["--strict"]].concat();
    let outcome = sandbox(&world, &strict, "echo ran").exits(125);
    outcome.prints("").says("netrc (a symbolic link)");
    let elsewhere = [&["--strict", "--ro", "/"], &options[2..]].concat();
    let read = "cat ../netrc ../dot/netrc";
    sandbox(&world, &elsewhere, read)
        .exits(0)
        .prints("")
        .says("");
}

/// Has the modes of files count for root, too.
fn with_modes(delta: Delta) -> Delta {
    let script = "case $(id -u) in 0) exec setpriv --bounding-set=-dac_override,-dac_read_search \"$0\" \"$@\";; esac; \
        exec \"$0\" \"$@\"";
    delta.under(&["sh", "-c", script])
}

#[test]
fn no_mode_of_a_directory_opens_what_is_hidden_or_protected_in_it() {
    if !has_namespaces() || !installed(&["setpriv"]) {
        return;
    }
    let world = world();
    for (name, content) in [
        ("docker/deep/config.json", "secret\n"),
        ("box/sub/deep/keep", "mine\n"),
        ("box/.git/HEAD", "ref: refs/heads/main\n"),
        ("box/.git/config", "mine\n"),
        ("box/.git/modules/lib/HEAD", "ref: refs/heads/main\n"),
        ("box/.git/modules/lib/objects/a", "a\n"),
        ("box/.git/modules/lib/config", "mine\n"),
    ] {
        world.write(name, content);
    }
    let hidden = "~/docker/deep/config.json";
    let options = [
        "--rw",
        ".",
        "--ro",
        "/",
        "--hide",
        hidden,
        "--protect",
        "sub/deep/keep",
    ];
    let files = [
        "box/sub/deep/keep",
        "box/.git/config",
        "box/.git/modules/lib/config",
    ];
    for dir in [
        "docker",
        "docker/deep",
        ".config",
        ".config/delta",
        "box/sub",
        "box/sub/deep",
        "box/.git",
        "box/.git/modules",
        "box/.git/modules/lib",
    ] {
        for mode in [0o000, 0o300, 0o600] {
            let path = world.path(dir);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let path = path.display();
            let script = format!(
                "chmod 700 {path}; cat ../docker/deep/config.json ../.config/delta/env; \
                 for f in {}; do echo x > ../$f; done; :",
                files.join(" ")
            );
            let outcome = with_modes(sandbox(&world, &options, &script)).end();
            fs::set_permissions(world.path(dir), fs::Permissions::from_mode(0o700)).unwrap();
            let about = format!("{dir} {mode:o}\n{}", outcome.describe());
            assert!(outcome.printed("") && outcome.code() == Some(0), "{about}");
            for file in files {
                assert_eq!(world.read(file), "mine\n", "{file} {about}");
            }
        }
    }
}

#[test]
fn a_path_that_cannot_be_hidden_opens_no_other() {
    if !has_namespaces() {
        return;
    }
    let world = world();
    world.write("home/key", "secret\n");
    // It is covered itself while others are.
    let hide = ["--hide", "/proc/self/environ", "--hide", "../home"];
    let options = [&["--rw", ".", "--ro", "/"][..], &hide].concat();
    let outcome = sandbox(
        &world,
        &options,
        "ls ../home; cat ../.config/delta/env; echo x > .delta/x",
    )
    .end();
    outcome
        .exits(2)
        .prints("")
        .says("environ (nothing can be mounted over it)");
}

#[test]
fn a_home_that_is_unknown_or_of_another_is_not_passed_over() {
    if !has_namespaces() {
        return;
    }
    let world = world();
    let homeless = |options: &[&str]| {
        let delta = sandbox(&world, options, "echo ran");
        delta.under(&["env", "-u", "HOME"]).end()
    };
    let outcome = homeless(&["--rw", ".", "--hide", "~/.ssh"])
        .exits(0)
        .prints("ran\n");
    outcome.says("reading ~/.ssh (HOME is not set)");
    let outcome = homeless(&["--strict", "--rw", ".", "--hide", "~/.ssh"])
        .exits(125)
        .prints("");
    outcome.says("HOME is not set");
    let outcome = sandbox(&world, &["--hide", "~other/.ssh"], "echo ran").end();
    outcome.refuses(2, "--hide ~other/.ssh");
}

#[test]
fn what_is_to_be_hidden_appears_empty_wherever_it_lies() {
    if !has_namespaces() {
        return;
    }
    let world = world();
    for (name, content) in [
        ("home/ssh/id", "secret\n"),
        ("home/netrc", "secret\n"),
        ("box/inside/key", "secret\n"),
    ] {
        world.write(name, content);
    }
    symlink("home/netrc", world.path("link")).unwrap();
    let before = snapshot(&world.path("home"));
    let options = [
        "--strict",
        "--rw",
        ".",
        "--ro",
        "..",
        "--hide",
        "../home/ssh",
        "--hide",
        "../link",
        "--hide",
        "inside",
        "--hide",
        "inside/key",
        "--hide",
        "missing",
        "--hide",
        "/missing",
    ];
    let script = "ls -A ../home/ssh inside/ | grep -c .; cat ../link ../home/netrc; \
        echo x > inside/new; echo x > ../home/netrc; rm -r inside; mv inside other; cat inside/key";
    let outcome = sandbox(&world, &options, script).end();
    let printed = String::from_utf8_lossy(&outcome.stdout).into_owned();
    // The names of the two directories.
    assert_eq!(printed, "2\n", "{}", outcome.describe());
    outcome.exits(1).says("ead-only").says("busy");
    assert_eq!(snapshot(&world.path("home")), before);
    assert_eq!(world.read("box/inside/key"), "secret\n");
    // A sandbox that starts inside it does not see it either.
    let script = "ls -A; cat ./* 2>/dev/null";
    let delta = sandbox(&world, &["--strict", "--ro", "/", "--hide", "."], script);
    delta.exits(1).prints("");
    for place in ["/", "/proc"] {
        let delta = sandbox(
            &world,
            &["--strict", "--ro", "/", "--hide", place],
            "echo ran",
        );
        delta
            .exits(125)
            .prints("")
            .says("nothing can be mounted over");
    }
}

#[test]
fn where_nothing_can_be_hidden_it_is_said_what_can_be_read() {
    let none = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    let none = ["unshare", "-Ur", "sh", "-c", none];
    let world = world();
    if !has_namespaces() || world.delta(["-V"]).under(&none).end().code() != Some(0) {
        eprintln!("skipped: there is nothing to take namespaces away from");
        return;
    }
    let end = |options: &[&str]| sandbox(&world, options, "echo ran").under(&none).end();
    let env = world.path(".config/delta/env");
    let words = format!("reading {}", env.canonicalize().unwrap().display());
    let outcome = end(&["--ro", "/"]).exits(0).prints("ran\n").says_one_line();
    outcome.says(&words).says("user namespace");
    let outcome = end(&["--strict", "--ro", "/"]).exits(125).prints("");
    outcome.says(&words).says("--strict");
    let outcome = end(&["--ro", ".", "--hide", "mine.txt"]).exits(0);
    outcome.says("mine.txt").says("user namespace");
    // What cannot be read is no gap.
    let outcome = end(&["--ro", "."]).exits(0).says("System V IPC");
    outcome.does_not_say("reading");
}
