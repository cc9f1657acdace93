//! What `delta sandbox` starts has a session of its own, and ends, stops and goes on with the process that was started.

use crate::harness::*;
use rustix::process::Signal;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// A world with a directory `box`, in which everything happens.
fn world() -> World {
    let world = World::new();
    fs::create_dir(world.path("box")).unwrap();
    world
}

/// `delta sandbox` around a script.
fn sandbox(world: &World, script: &str) -> Delta {
    let delta = world.delta(["sandbox", "--rw", ".", "--", "sh", "-c", script]);
    delta.cwd(world.path("box"))
}

/// With a terminal that controls it, as a shell's commands have.
fn controlled(delta: Delta, terminal: &Terminal) -> Delta {
    delta.at(terminal).under(&["setsid", "-c"])
}

#[test]
fn a_command_leads_a_session_without_a_controlling_terminal() {
    if !installed(&["setsid"]) {
        return;
    }
    let world = world();
    let script = "read -r pid name state ppid group session tty rest < /proc/$$/stat
        [ $pid = $group ] && [ $pid = $session ] && echo leads; echo terminal $tty
        [ -t 0 ] && echo can be used; echo shown >&2; : < /dev/tty";
    let mut terminal = Terminal::new();
    let outcome = controlled(sandbox(&world, script), &terminal).end();
    terminal.shows("shown");
    terminal.shows("/dev/tty");
    outcome.prints("leads\nterminal 0\ncan be used\n");
}

#[test]
fn a_command_cannot_type_into_the_terminal_that_it_was_given() {
    if !installed(&["setsid", "perl"]) {
        return;
    }
    let world = world();
    // TIOCSTI, and TIOCLINUX with 2, which pastes.
    let script = r#"perl -e 'for (0x5412, 0x541C) { my $byte = "\2"; ioctl(STDIN, $_, $byte) ? print "typed\n" : print 0 + $!, "\n"; }'"#;
    let terminal = Terminal::new();
    let outcome = controlled(sandbox(&world, script), &terminal).end();
    let refused = format!("{0}\n{0}\n", rustix::io::Errno::PERM.raw_os_error());
    outcome.exits(0).prints(&refused);
}

#[test]
fn a_command_cannot_limit_other_processes() {
    if !installed(&["prlimit"]) {
        return;
    }
    let world = world();
    let limit = |pid: &str| sandbox(&world, &format!("prlimit --core=0 --pid {pid}")).end();
    let other = std::process::id().to_string();
    limit(&other).exits(1).says("not permitted");
    // Of itself it can.
    sandbox(&world, "ulimit -c 0").exits(0);
}

#[test]
fn a_command_opens_no_terminal_and_uses_those_that_it_inherits() {
    let world = world();
    let (mut own, other) = (Terminal::new(), Terminal::new());
    let name = |terminal: &Terminal| {
        let user = terminal.user();
        let name = fs::read_link(format!("/proc/self/fd/{}", user.as_raw_fd())).unwrap();
        name.to_str().unwrap().to_owned()
    };
    let script = "for name in \"$@\"; do true < $name && echo read; true > $name && echo written; done; echo own >&2";
    for options in [
        &["--rw", "."][..],
        &["--ro", "/"],
        &["--rw", ".", "--rw", "/dev"],
        &["--rw", ".", "--rw", "/"],
    ] {
        let delta = world.delta(["sandbox"]).args(options);
        let delta = delta.args(["--", "sh", "-c", script, "sh", "/dev/stdin", "/dev/stderr"]);
        let delta = delta.args([name(&own), name(&other)]);
        let delta = delta.args(["/dev/ptmx", "/proc/self/fd/2", "/dev/pts/ptmx"]);
        delta.cwd(world.path("box")).at(&own).exits(0).prints("");
        own.shows("own");
    }
    for named in [name(&own), "/dev/ptmx".to_owned()] {
        let delta = world.delta(["sandbox", "--rw", &named, "--", "true"]);
        delta.refuses(125, "terminal");
    }
}

#[test]
fn what_a_command_leaves_at_the_terminal_is_ended_and_nothing_else() {
    if !installed(&["setsid"]) {
        return;
    }
    let world = world();
    let mut ready = world.fifo("box/ready");
    // The last one has let go of the terminal.
    let script = "sleep 600 & echo $! > ready
        setsid sh -c 'trap \"\" HUP TERM; echo $$ > ready; while :; do sleep 600; done' &
        setsid sh -c 'echo $$ > ready; exec sleep 600' < /dev/null > /dev/null 2>&1 & wait";
    let mut terminal = Terminal::new();
    let delta = controlled(sandbox(&world, script), &terminal).spawn();
    let mut pids = [ready.pid(), ready.pid(), ready.pid()];
    delta.signal(Signal::TERM);
    delta.wait();
    terminal.shows("held the terminal");
    pids.sort_by_key(|pid| alive(*pid));
    assert_eq!(pids.map(alive), [false, false, true]);
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pids[2].cast_signed()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
}

#[test]
fn a_file_that_is_inherited_for_writing_cannot_be_read_or_emptied_by_its_path() {
    let world = world();
    world.write("log", "old\n");
    let under = ["sh", "-c", "exec \"$0\" \"$@\" >> log 2> new < input"];
    world.write("input", "given\n");
    let script = "cat < /dev/stdout; true > /dev/stdout; cat 0<&1; cat < /proc/self/fd/1
        true > /dev/stdin; cat < /dev/stdin; echo more >> /dev/stdout; echo noted > /dev/stderr";
    let outcome = world
        .delta(["sandbox", "--", "sh", "-c", script])
        .under(&under)
        .end();
    outcome.exits(0);
    assert_eq!(world.read("log"), "old\ngiven\nmore\n");
    assert_eq!(world.read("input"), "given\n");
    assert!(world.read("new").starts_with("noted\n"));
}

#[test]
fn of_devices_a_command_has_those_of_every_program_and_those_that_are_named() {
    let world = world();
    let (ran, options) = (
        "echo x > /dev/null; head -c 1 /dev/zero /dev/urandom > /dev/null && cat 3< /dev/null < /dev/fd/3 && echo ran",
        ["--rw", "."],
    );
    sandbox(&world, ran).exits(0).prints("ran\n");
    for path in [
        "/dev/kmsg",
        "/dev/tty0",
        "/dev/vcs",
        "/dev/net/tun",
        "/dev/fuse",
        "/dev/vda",
        "/dev/shm/../kmsg",
    ] {
        let script = format!("head -c 0 {path} && echo opened");
        for more in [&["--ro", "/etc"][..], &["--ro", "/"]] {
            let delta = world.delta(["sandbox"]).args(options).args(more);
            delta.args(["--", "sh", "-c", &script]).end().prints("");
        }
    }
    let named = world.delta([
        "sandbox",
        "--rw",
        "/dev/fuse",
        "--",
        "sh",
        "-c",
        "true < /dev/fuse && echo opened",
    ]);
    if std::path::Path::new("/dev/fuse").exists() && fs::File::open("/dev/fuse").is_ok() {
        named.exits(0).prints("opened\n");
    }
}

#[test]
fn shared_memory_is_private_and_that_of_the_system_only_if_it_is_named() {
    let strict = World::new()
        .delta(["sandbox", "--strict", "--", "true"])
        .end();
    if strict.code() != Some(0) || !std::path::Path::new("/dev/shm").is_dir() {
        eprintln!("skipped: {}", strict.stderr.trim_end());
        return;
    }
    let world = World::on_disk();
    let shared = format!("/dev/shm/delta-it-{}", std::process::id());
    fs::write(&shared, "shared\n").unwrap();
    let script = format!("ls /dev/shm; echo x > /dev/shm/new && ls /dev/shm; cat {shared}");
    let in_it = |options: &[&str]| {
        let delta = world.delta(["sandbox", "--strict"]).args(options);
        delta
            .args(["--", "sh", "-c", &script])
            .cwd(world.path("."))
            .end()
    };
    let (private, named) = (in_it(&[]), in_it(&["--ro", &shared]));
    fs::remove_file(&shared).unwrap();
    private.prints("new\n");
    named.prints("shared\n");
    assert!(!std::path::Path::new("/dev/shm/new").exists());
}

#[test]
fn temporary_files_have_a_place_beside_devices() {
    let world = World::on_disk();
    fs::create_dir(world.path("dev")).unwrap();
    let mounted = [
        "unshare",
        "-Urm",
        "sh",
        "-c",
        "mount --rbind /dev dev && exec \"$0\" \"$@\"",
    ];
    let mut probe = std::process::Command::new(mounted[0]);
    let probe = probe
        .args(&mounted[1..])
        .arg("true")
        .current_dir(world.path("."));
    if !probe.status().is_ok_and(|it| it.success()) {
        eprintln!("skipped: no mounts");
        return;
    }
    let script = "echo x > \"$TMPDIR/x\" && cat .tmp/x";
    let delta = world.delta(["sandbox", "--rw", ".", "--", "sh", "-c", script]);
    delta.under(&mounted).exits(0).prints("x\n");
}

#[test]
fn the_standard_streams_are_the_same_files() {
    let world = world();
    world.write("input", "");
    let script = "for n in 0 1; do stat -L -c %i /proc/self/fd/$n; done";
    let outcome = world
        .delta(["sandbox", "--", "sh", "-c", script])
        .under(&["sh", "-c", "exec \"$0\" \"$@\" < input > output"])
        .end();
    outcome.exits(0);
    let inode = |name: &str| fs::metadata(world.path(name)).unwrap().ino();
    assert_eq!(
        world.read("output"),
        format!("{}\n{}\n", inode("input"), inode("output"))
    );
}

#[test]
fn nobody_but_the_command_holds_its_streams() {
    let world = world();
    let (mut ended, mut go) = (world.fifo("ended"), world.fifo("box/go"));
    let script = "exec >&-; read -r line < go";
    let delta = sandbox(&world, script)
        .under(&["sh", "-c", "\"$0\" \"$@\" | { cat; echo end > ../ended; }"])
        .spawn();
    assert_eq!(ended.line(), "end");
    go.tell("");
    delta.wait().exits(0);
}

#[test]
fn every_exit_code_is_passed_on() {
    let world = world();
    for code in [0, 1, 2, 70, 101, 125, 127, 128, 143, 255] {
        sandbox(&world, &format!("exit {code}")).exits(code);
    }
}

#[test]
fn a_command_that_a_signal_ends_ends_the_sandbox_by_the_same_signal() {
    let world = world();
    for (name, signal) in [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("ILL", Signal::ILL),
        ("ABRT", Signal::ABORT),
        ("BUS", Signal::BUS),
        ("FPE", Signal::FPE),
        ("KILL", Signal::KILL),
        ("USR1", Signal::USR1),
        ("SEGV", Signal::SEGV),
        ("USR2", Signal::USR2),
        ("PIPE", Signal::PIPE),
        ("ALRM", Signal::ALARM),
        ("TERM", Signal::TERM),
        ("XCPU", Signal::XCPU),
        ("XFSZ", Signal::XFSZ),
        ("SYS", Signal::SYS),
    ] {
        let script = format!("ulimit -c 0; kill -{name} $$");
        let outcome = sandbox(&world, &script).end();
        assert_eq!(outcome.killed_by(), Some(signal.as_raw()), "{name}");
    }
}

#[test]
fn signals_reach_the_command() {
    let world = world();
    let (mut ready, mut got) = (world.fifo("box/ready"), world.fifo("box/got"));
    let script =
        "for name in HUP INT QUIT TERM USR1 USR2 WINCH; do trap \"echo $name > got\" $name; done
        echo > ready; while :; do sleep 60 & wait; done";
    let delta = sandbox(&world, script).spawn();
    ready.line();
    for (name, signal) in [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("TERM", Signal::TERM),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("WINCH", Signal::WINCH),
    ] {
        delta.signal(signal);
        assert_eq!(got.line(), name);
    }
    delta.kill();
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let world = world();
    let (mut ready, mut got) = (world.fifo("box/ready"), world.fifo("box/got"));
    let script = "trap 'echo HUP > got' HUP; trap 'echo INT > got' INT; echo > ready; while :; do sleep 60 & wait; done";
    let delta = sandbox(&world, script).after("trap '' HUP").spawn();
    ready.line();
    delta.signal(Signal::HUP);
    delta.signal(Signal::INT);
    assert_eq!(got.line(), "INT");
    delta.kill();
}

#[test]
fn a_command_stops_and_goes_on_with_the_process_that_was_started() {
    let world = world();
    let mut ready = world.fifo("box/ready");
    let delta = sandbox(&world, "sleep 600 & echo $$ > ready; echo $! > ready; wait").spawn();
    let pids = [delta.pid(), ready.pid(), ready.pid()];
    let state = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next()
    };
    delta.signal(Signal::TSTP);
    eventually("all stop", || {
        pids.iter().all(|pid| state(*pid) == Some('T'))
    });
    delta.signal(Signal::CONT);
    eventually("all go on", || {
        pids.iter().all(|pid| state(*pid) == Some('S'))
    });
    delta.kill();
}

#[test]
fn a_sandbox_that_is_killed_leaves_nothing_of_its_commands_group_behind() {
    let world = world();
    let mut ready = world.fifo("box/ready");
    // What follows neither reads its signals nor carries anything by which it could be found.
    let script = "env -i sh -c 'trap \"\" HUP INT TERM; echo $$ > ready; sleep 600; echo' & echo $$ > ready; wait";
    let delta = sandbox(&world, script).spawn();
    let pids = [ready.pid(), ready.pid()];
    let outcome = delta.kill();
    assert_eq!(outcome.killed_by(), Some(9));
    eventually("all end", || !pids.iter().any(|pid| alive(*pid)));
}

#[test]
fn a_tool_ends_with_its_time_even_if_it_ignores_sigterm_and_hides_its_environment() {
    let delta = env!("CARGO_BIN_EXE_delta");
    let inner = "trap \"\" TERM; echo $$ > pid; while :; do sleep 600; done";
    let script = format!("trap '' TERM; env -i sh -c '{inner}'; :");
    let script = serde_json::json!({"script": script});
    let pid: u32 = with_time(500, |ms| {
        let tool = format!("- {{name: sh, exec: 'sh -c ${{script}}', timeout_ms: {ms}}}");
        let wrapper = format!("wrapper: ['{delta}', sandbox, --rw, '${{CWD}}', '--']");
        let world = World::with_tools(&tool).top(&wrapper);
        let told = world.observe("sh", &script);
        assert!(told.contains("timed out"), "{told}");
        world.lines("ws/pid").first()?.parse().ok()
    });
    assert!(!alive(pid));
}
