//! `delta sandbox`, by itself and as a wrapper; bubblewrap as a wrapper.

use crate::harness::*;
use serde_json::json;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

const DELTA: &str = env!("CARGO_BIN_EXE_delta");

/// Whether this kernel can do all that `delta sandbox` asks of it; says so if it cannot.
fn has_landlock() -> bool {
    let world = World::new();
    let outcome = world
        .delta(["sandbox", "--strict", "--no-network", "--", "true"])
        .end();
    if outcome.code() != Some(0) {
        eprintln!("skipped: {}", outcome.stderr.trim_end());
    }
    outcome.code() == Some(0)
}

/// A world with a directory `box` and a file `secret.txt` beside it, and `delta sandbox` in it.
struct Box {
    world: World,
}

impl Box {
    fn new() -> Self {
        let world = World::on_disk();
        world.write("secret.txt", "secret\n");
        world.write("box/mine.txt", "mine\n");
        Self { world }
    }

    fn sandbox(&self, options: &[&str], script: &str) -> Outcome {
        self.world
            .delta(["sandbox"])
            .args(options)
            .args(["--", "sh", "-c", script])
            .cwd(self.world.path("box"))
            .end()
    }
}

#[test]
fn a_command_runs_with_its_arguments_input_and_exit_code() {
    let inside = Box::new();
    let delta = || inside.world.delta(["sandbox", "--rw", "box"]);
    delta()
        .args(["--", "cat"])
        .stdin("in")
        .exits(0)
        .prints("in");
    delta()
        .args(["--", "echo", "--rw", "--", "-x"])
        .exits(0)
        .prints("--rw -- -x\n");
    delta()
        .args(["echo", "--ro", "x"])
        .exits(0)
        .prints("--ro x\n");
    delta().args(["--", "sh", "-c", "exit 7"]).exits(7);
    let killed = delta().args(["--", "sh", "-c", "kill -TERM $$"]).end();
    assert_eq!(killed.killed_by(), Some(15));
}

#[test]
fn what_cannot_be_run_ends_as_in_a_shell() {
    let inside = Box::new();
    let end = |command: &str| {
        inside
            .world
            .delta(["sandbox", "--rw", "box", "--", command])
            .end()
    };
    end("no-such-program")
        .exits(127)
        .says_one_line()
        .says("no-such-program: no such file");
    end("./box/nothing").exits(127).says_one_line();
    end("./box/mine.txt")
        .exits(126)
        .says_one_line()
        .says("permission denied");
    if has_landlock() {
        inside.world.script("outside.sh", "#!/bin/sh\necho ran\n");
        end("./outside.sh")
            .exits(126)
            .prints("")
            .says_one_line()
            .says("--ro");
    }
}

#[test]
fn wrong_usage_and_missing_directories_run_nothing() {
    let inside = Box::new();
    let end = |args: &[&str]| {
        let args = ["sandbox"].iter().chain(args).copied();
        inside.world.delta(args).end().prints("").says_one_line()
    };
    end(&[]).exits(2).says("sandbox needs COMMAND");
    end(&["--rw", "box"]).exits(2).says("sandbox needs COMMAND");
    end(&["--rw", "box", "--"])
        .exits(2)
        .says("sandbox needs COMMAND");
    end(&["--no-netwrok", "--", "true"])
        .exits(2)
        .says("--no-network");
    end(&["--rw"]).exits(2);
    end(&["--rw", "nosuch", "--", "echo", "ran"])
        .exits(125)
        .says("nosuch: no such file");
    end(&["--ro", "nosuch", "--", "echo", "ran"])
        .exits(125)
        .says("nosuch: no such file");
    inside.world.write("taken/.tmp", "");
    end(&["--rw", "taken", "--", "echo", "ran"])
        .exits(125)
        .says("taken/.tmp");
}

#[test]
fn nothing_outside_can_be_changed_or_read() {
    if !has_landlock() {
        return;
    }
    for script in [
        "echo x > ../secret.txt",
        "echo x >> ../secret.txt",
        "echo x > ../new",
        "truncate -s 0 ../secret.txt",
        "rm ../secret.txt",
        "mv ../secret.txt ../moved",
        "mv ../secret.txt here",
        "mv mine.txt ../new",
        "mkdir ../new",
        "rmdir ../empty",
        "mkfifo ../new",
        "ln -s mine.txt ../new",
        "ln mine.txt ../new",
        "ln ../secret.txt here",
        "ln -s ../secret.txt link; echo x > link",
        "cat ../secret.txt",
        "ls ..",
        // Children inherit it, also those that leave their session.
        "sh -c 'sh -c \"echo x > ../new\"'",
        "setsid -w sh -c 'echo x > ../new'",
        "env -i /bin/sh -c 'echo x > ../new'",
        // Nobody gets out by a sandbox of their own.
        &format!("{DELTA} sandbox --rw .. -- sh -c 'echo x > ../new'"),
    ] {
        let inside = Box::new();
        fs::create_dir(inside.world.path("empty")).unwrap();
        let delta = Path::new(DELTA).to_str().unwrap();
        let outcome = inside.sandbox(&["--rw", ".", "--ro", delta], script);
        assert!(
            outcome.code().is_some_and(|code| code != 0),
            "{script}\n{}",
            outcome.describe()
        );
        let refused = ["denied", "cross-device"]
            .iter()
            .any(|word| outcome.stderr.to_lowercase().contains(word));
        assert!(
            refused && outcome.stdout.is_empty(),
            "{}",
            outcome.describe()
        );
        assert_eq!(inside.world.read("secret.txt"), "secret\n", "{script}");
        assert_eq!(inside.world.read("box/mine.txt"), "mine\n", "{script}");
        assert!(
            inside.world.exists("empty") && !inside.world.exists("new"),
            "{script}"
        );
    }
}

#[test]
fn everything_inside_can_be_done_that_a_tool_does() {
    let script = "set -e
        echo x > new; echo y >> new; mkdir -p d/e; mv new d/e/new; ln d/e/new d/two; ln -s two d/link
        cat d/link; rm d/two; truncate -s 0 d/e/new; mkfifo pipe; chmod +x mine.txt
        echo x > /dev/null; head -c 1 /dev/zero /dev/urandom > /dev/null
        ls /usr/bin > /dev/null; cat /etc/passwd > /dev/null; test -r /proc/self/status
        [ \"$TMPDIR\" = \"$PWD/.tmp\" ]; echo t > \"$(mktemp)\"; ls -A \"$TMPDIR\" | wc -l
        echo noted > /dev/stderr";
    let inside = Box::new();
    inside
        .sandbox(&["--rw", "."], script)
        .exits(0)
        .prints("x\ny\n2\n")
        .says("noted");
}

#[test]
fn a_directory_that_may_be_read_may_be_run_from_and_not_written() {
    let inside = Box::new();
    inside.world.script("tools/t.sh", "#!/bin/sh\necho ran\n");
    inside
        .sandbox(
            &["--rw", ".", "--ro", "../tools"],
            "../tools/t.sh && cat ../tools/t.sh > copy",
        )
        .exits(0)
        .prints("ran\n");
    if has_landlock() {
        inside
            .sandbox(
                &["--rw", ".", "--ro", "../tools"],
                "echo x >> ../tools/t.sh",
            )
            .says("denied");
        assert_eq!(inside.world.read("tools/t.sh"), "#!/bin/sh\necho ran\n");
    }
}

#[test]
fn a_temporary_directory_that_can_be_written_stays() {
    let inside = Box::new();
    fs::create_dir(inside.world.path("box/mine")).unwrap();
    let mine = inside.world.path("box/mine");
    let delta = inside
        .world
        .delta(["sandbox", "--rw", "box", "--", "sh", "-c", "echo $TMPDIR"]);
    delta
        .env("TMPDIR", &mine)
        .exits(0)
        .prints(&format!("{}\n", mine.display()));
    assert!(!inside.world.exists("box/.tmp"));
}

#[test]
fn without_a_directory_nothing_can_be_written() {
    if !has_landlock() {
        return;
    }
    let inside = Box::new();
    let outcome = inside.sandbox(&[], "echo x > new");
    assert_ne!(outcome.code(), Some(0));
    assert!(!inside.world.exists("box/new") && !inside.world.exists("box/.tmp"));
}

/// Whether bash is there, which can open a connection by itself.
fn has_bash() -> bool {
    let found = Command::new("bash").arg("-c").arg(":").status().is_ok();
    if !found {
        eprintln!("skipped: there is no bash");
    }
    found
}

#[test]
fn without_a_network_nothing_connects_and_nothing_listens() {
    if !has_landlock() || !has_bash() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected'");
    let inside = Box::new();
    inside
        .sandbox(&["--rw", "."], &connect)
        .exits(0)
        .prints("connected\n");
    listener.accept().unwrap();
    inside
        .sandbox(&["--rw", ".", "--no-network"], &connect)
        .refuses(1, "denied");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}

/// An agent whose tool is a shell, in `delta sandbox`.
fn wrapped(options: &str) -> World {
    let world = World::on_disk().tools("- {name: sh, exec: 'sh -c ${script}'}");
    world.write("secret.txt", "secret\n");
    world.top(&format!("wrapper: ['{DELTA}', sandbox, {options}, '--']"))
}

#[test]
fn as_a_wrapper_it_keeps_every_tool_in_the_workspace() {
    if !has_landlock() {
        return;
    }
    let world = wrapped("--strict, --no-network, --rw, '${CWD}', --ro, '${AGENT_HOME}'");
    let scripts = [
        "echo x > inside.txt && cat inside.txt",
        "echo x > ../secret.txt",
        "cat ../secret.txt",
        "(setsid sh -c 'echo x > ../new') 2>&1; echo $?",
        "echo x > $AGENT_HOME/new",
        "cat /proc/$DELTA_ENGINE_PID/environ",
        "kill -0 $DELTA_ENGINE_PID",
        "cat $AGENT_HOME/system_prompt.md",
    ];
    let calls: Vec<_> = (0..)
        .zip(scripts)
        .map(|(n, script)| (n.to_string(), script))
        .collect();
    for (id, script) in &calls {
        world.model_says([call(id, "sh", &json!({"script": script}))]);
    }
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let last = world.server.last();
    let told: Vec<String> = calls.iter().map(|(id, _)| last.observation(id)).collect();
    assert_eq!(told[0], "x\n");
    for at in [1, 2, 3, 4, 5] {
        assert!(
            told[at].to_lowercase().contains("permission denied"),
            "{}: {}",
            scripts[at],
            told[at]
        );
    }
    assert!(
        told[6].to_lowercase().contains("not permitted"),
        "{}",
        told[6]
    );
    assert_eq!(told[7], "You are a test.\n");
    assert_eq!(world.read("secret.txt"), "secret\n");
    assert!(!world.exists("new") && !world.exists("agent/new"));
    let note = world.latest().text("sandbox.txt");
    assert!(
        note.contains("mode, owner") && !note.contains("Unix sockets") && !note.contains("UDP"),
        "{note}"
    );
}

#[test]
fn the_runs_records_are_safe_from_a_tool_that_may_write_below_the_workspace_only() {
    if !has_landlock() {
        return;
    }
    let world = wrapped("--ro, '${CWD}', --rw, '${CWD}/work'");
    fs::create_dir_all(world.path("ws/work")).unwrap();
    let script = "echo x > work/x; echo x >> .delta/LATEST; echo x >> $DELTA_RUN_DIR/journal.jsonl";
    let told = world.observe("sh", &json!({"script": script}));
    assert_eq!(told.matches("ermission denied").count(), 2, "{told}");
    assert!(world.exists("ws/work/x"));
}

/// A program that makes the kernel one without Landlock, if it is there.
const OLD_KERNEL: [&str; 7] = [
    "strace",
    "-qq",
    "-f",
    "-o",
    "/dev/null",
    "-e",
    "inject=landlock_create_ruleset:error=ENOSYS",
];

fn has_strace() -> bool {
    let mut strace = Command::new(OLD_KERNEL[0]);
    strace.args(&OLD_KERNEL[1..]).arg("true");
    let found = strace.stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: strace is not installed, or may not trace");
    }
    found
}

#[test]
fn a_kernel_that_cannot_is_named_and_with_strict_refused() {
    if !has_strace() {
        return;
    }
    let inside = Box::new();
    let end = |options: &[&str]| {
        let delta = inside.world.delta(["sandbox"]).args(options);
        delta.args(["--", "echo", "ran"]).under(&OLD_KERNEL).end()
    };
    end(&[])
        .exits(0)
        .prints("ran\n")
        .says_one_line()
        .says("no Landlock");
    end(&["--strict"])
        .exits(125)
        .prints("")
        .says_one_line()
        .says("Linux 6.12");
}

#[test]
fn in_a_run_the_first_tool_says_what_the_kernel_cannot_and_the_others_do_not() {
    if !has_strace() {
        return;
    }
    let words: String = OLD_KERNEL.map(|word| format!("'{word}', ")).concat();
    let world = World::with_tools("- {name: sh, exec: 'sh -c ${script}'}")
        .top(&format!("wrapper: [{words}'{DELTA}', sandbox, '--']"));
    let script = json!({"script": "echo ran"});
    world.model_says([
        call("a", "sh", &script),
        call("b", "sh", &script),
        text("done"),
    ]);
    let run = world.run("go").exits(0);
    let run = run
        .says("the sandbox does not restrict here: ")
        .says("no Landlock");
    let (before, after) = run.stderr.split_once("no Landlock").expect("the note");
    assert!(
        before.contains("$ sh -c") && !before.contains("ok, "),
        "{before}"
    );
    assert!(after.contains("ok, "), "{after}");
    assert_eq!(
        run.stderr.matches("no Landlock").count(),
        1,
        "{}",
        run.stderr
    );
    let last = world.server.last();
    assert!(last.observation("a").contains("no Landlock"));
    assert_eq!(last.observation("b"), "ran\n");
    let note = world.latest().text("sandbox.txt");
    assert!(note.contains("no Landlock") && note.contains("mode, owner"));
}

#[test]
fn the_example_with_bubblewrap_keeps_its_tools_in() {
    let mut bwrap = Command::new("bwrap");
    bwrap
        .args(["--unshare-all", "--ro-bind", "/", "/", "true"])
        .stderr(Stdio::null());
    if !bwrap.status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: bubblewrap is not installed, or may not make namespaces");
        return;
    }
    let world = World::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/sandbox");
    let latest = |world: &World| world.read("ws/.delta/LATEST");
    world
        .delta(["run", "-w", "ws", "-m", "Try to get out.", "-a"])
        .arg(&example)
        .exits(0)
        .prints("I could write inside the workspace and nowhere else.\n");
    let results = world.latest().events("ACTION_RESULT");
    let told: Vec<&str> = results
        .iter()
        .map(|r| r["observation_content"].as_str().unwrap())
        .collect();
    assert_eq!(told.len(), 5);
    assert_eq!(told[0], "inside\n");
    assert!(told[1].contains("Read-only file system"), "{}", told[1]);
    assert!(told[2].contains("Read-only file system"), "{}", told[2]);
    assert_eq!(told[3], "(no output)", "a route leads out");
    assert!(told[4].contains("No such file or directory"), "{}", told[4]);
    assert_eq!(world.read("ws/inside.txt"), "inside\n");
    assert_eq!(latest(&world), format!("{}\n", world.latest().id()));
    assert!(!example.join("outside.txt").exists());
}
