//! When states of the files are taken, and what they are called.

use super::*;
use std::os::unix::fs::symlink;

#[test]
fn each_iteration_that_changes_files_is_a_state() {
    let world = world();
    world.write("ws/a", "1\n2\n");
    world.write("ws/d/b", "b\n");
    world.model_says([
        sh("c1", "echo 3 >> a; rm d/b; echo new > e"),
        sh("c2", "true"),
        call("c3", "look", &json!({"command": "echo 4 >> a"})),
        sh("c4", "echo 5 >> a"),
        text("done"),
    ]);
    world.run("go").exits(0).prints("done\n");
    let wanted = [
        state(1, "start", 0, [0, 2, 0]),
        state(2, "iteration", 1, [1, 1, 1]),
        state(3, "iteration", 4, [1, 0, 0]),
    ];
    assert_eq!(states(&world), wanted);
    let events = world.latest().events("FILES");
    let paths = json!([
        {"path": "a", "added": 1, "removed": 0},
        {"path": "d/b", "change": "removed", "added": 0, "removed": 1},
        {"path": "e", "change": "new", "added": 1, "removed": 0},
    ]);
    assert_eq!(events[1]["paths"], paths);
    assert_eq!(names(&world, 1), ["a", "d/b"]);
    assert_eq!(names(&world, 3), ["a", "e"]);
    let log = git(&world, &["log", "--all", "--format=%s"]);
    assert_eq!(log, "[4] sh\n[1] sh\n[0] start\n");
    assert_eq!(world.read("ws/.delta/VERSION"), "1.3\n");
}

#[test]
fn the_first_state_is_taken_while_the_model_answers_and_before_the_first_call() {
    let world = world();
    world.write("ws/a", "1\n");
    let heads = world.path("ws/.delta/files.git/refs/heads");
    let answers = Reply::of(move |_| {
        let is_taken = || fs::read_dir(&heads).is_ok_and(|mut dir| dir.next().is_some());
        eventually("a state beside the request", is_taken);
        sh("c1", "test -e .delta/files.git/refs/heads/* && echo 2 > a")
    });
    world.model_says([answers, text("done")]);
    world.run("go").exits(0);
    assert_eq!(content(&world, 1, "a"), "1\n");
    assert_eq!(content(&world, 2, "a"), "2\n");
    // Its event is placed by its iteration.
    let types = world.latest().types();
    let at = |kind: &str| types.iter().position(|it| it == kind).unwrap();
    assert!(
        at("THOUGHT") < at("FILES") && at("FILES") < at("ACTION_REQUEST"),
        "{types:?}"
    );
}

#[test]
fn an_answer_without_calls_has_the_first_state_too() {
    let world = world();
    world.write("ws/a", "1\n");
    world.model_says([text("done")]);
    world.run("go").exits(0);
    assert_eq!(states(&world), [state(1, "start", 0, [0, 1, 0])]);
}

#[test]
fn what_differs_at_a_later_start_comes_from_outside() {
    let world = world();
    world.write("ws/a", "1\n");
    run_once(&world, "echo 2 >> a");
    world.write("ws/a", "mine\n");
    world.model_says([sh("c2", "echo 3 >> a"), text("done")]);
    world.go_on().args(["-m", "more"]).exits(0);
    let wanted = [
        state(1, "start", 0, [0, 1, 0]),
        state(2, "iteration", 1, [1, 0, 0]),
        state(3, "outside", 2, [1, 0, 0]),
        state(4, "iteration", 3, [1, 0, 0]),
    ];
    assert_eq!(states(&world), wanted);
    assert_eq!(content(&world, 3, "a"), "mine\n");
}

#[test]
fn what_a_person_changes_before_answering_comes_from_outside() {
    let tools = format!("{TOOLS}\n- {{name: risky, confirm: true, exec: 'sh -c ${{command}}'}}");
    let world = World::with_tools(&tools).top("files: git");
    let risky = json!({"command": "echo risky > b"});
    let both = [
        ("c1", "sh", json!({"command": "echo 1 > a"})),
        ("c2", "risky", risky),
    ];
    world.model_says([calls(&both)]);
    world.run("go").exits(101);
    // What the tools have done before the question is in a state before the person is asked.
    let before = [
        state(1, "start", 0, [0, 0, 0]),
        state(2, "iteration", 1, [0, 1, 0]),
    ];
    assert_eq!(states(&world), before);
    world.write("ws/person", "p\n");
    world.model_says([call("c3", "ask_human", &json!({"prompt": "Go on?"}))]);
    world.go_on().args(["-m", "yes"]).exits(101);
    world.write("ws/person", "again\n");
    world.model_says([sh("c4", "echo 4 > a"), text("done")]);
    world.go_on().args(["-m", "yes"]).exits(0);
    let wanted = [
        state(3, "outside", 1, [0, 1, 0]),
        state(4, "iteration", 1, [0, 1, 0]),
        state(5, "outside", 2, [1, 0, 0]),
        state(6, "iteration", 3, [1, 0, 0]),
    ];
    assert_eq!(states(&world)[2..], wanted);
}

#[test]
fn what_a_stopped_tool_has_done_is_in_a_state_of_its_iteration() {
    let world = world();
    world.write("ws/a", "1\n");
    let mut begun = world.fifo("begun");
    let script = format!(
        "echo 2 > a; echo $$ > {}; exec sleep 60",
        shell_word(&world.path("begun"))
    );
    world.model_says([sh("c1", &script)]);
    let running = world.run("go").spawn();
    begun.line();
    running.signal(rustix::process::Signal::INT);
    running.wait().exits(130);
    let wanted = [
        state(1, "start", 0, [0, 1, 0]),
        state(2, "iteration", 1, [1, 0, 0]),
    ];
    assert_eq!(states(&world), wanted);
    assert_eq!(content(&world, 2, "a"), "2\n");
}

#[test]
fn log_stats_and_the_feed_show_the_states() {
    let world = world();
    world.write("ws/a", "1\n");
    world.write("ws/b\u{1b}[1m\n", "1\n");
    let script = "echo 2 >> a; rm b*; echo new > 'e f'; printf '\\0' > bin";
    world.model_says([sh("c1", script), text("done")]);
    let fed = world.run("go").args(["--format", "jsonl"]).exits(0);
    let printed = |outcome: Outcome| String::from_utf8(outcome.stdout).unwrap();
    let fed = printed(fed);
    assert_eq!(fed.matches("\"type\":\"FILES\"").count(), 2, "{fed}");
    let log = printed(world.delta(["log", "-w", "ws"]).exits(0));
    let lines = log.lines().filter_map(|line| line.split_once("files  "));
    let lines: Vec<&str> = lines.map(|it| it.1).collect();
    let shown = "a +1 -0, b\u{fffd}[1m\u{fffd} removed, bin new, e f new";
    assert_eq!(
        lines,
        ["s1, at the start: 2 files", &format!("s2: {shown}")],
        "{log}"
    );
    let stats = printed(
        world
            .delta(["stats", "-w", "ws", "--format", "json"])
            .exits(0),
    );
    assert!(stats.contains("\"file_states\":2"), "{stats}");
}

#[test]
fn log_says_that_a_first_state_has_no_files() {
    let world = world();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let shown = printed(&world.delta(["log", "-w", "ws"]).exits(0));
    let line = shown.lines().find(|line| line.contains("files"));
    assert!(
        line.is_some_and(|line| line.ends_with("files  s1, at the start: none")),
        "{shown}"
    );
}

#[test]
fn nothing_changed_takes_one_process_of_git() {
    let world = world();
    world.write("ws/a", "1\n");
    let path = path_with_noting_git(&world);
    world.model_says([
        sh("c1", "true"),
        sh("c2", "true"),
        sh("c3", "touch a"),
        text("done"),
    ]);
    world.run("go").env("PATH", path).exits(0);
    let ran = world.lines("git.log");
    let after_first = ran
        .iter()
        .rposition(|line| line.contains("update-ref"))
        .unwrap();
    let words: Vec<&str> = ran[after_first + 1..]
        .iter()
        .map(|line| line.split(' ').nth(1).unwrap())
        .collect();
    assert_eq!(words, ["status"; 3], "{ran:#?}");
    assert_eq!(states(&world).len(), 1);
}

#[test]
fn lines_are_counted_of_a_difference_that_is_recorded_and_not_of_a_first_state() {
    let world = world();
    world.write("ws/a", "1\n");
    let path = path_with_noting_git(&world);
    world.model_says([sh("c1", "echo 2 > a"), text("done")]);
    world.run("go").env("PATH", path).exits(0);
    assert_eq!(states(&world).len(), 2);
    let ran = world.lines("git.log");
    let counts = ran.iter().filter(|it| it.contains("--numstat"));
    assert_eq!(counts.count(), 1, "{ran:#?}");
}

/// None are taken, without a word.
#[test]
fn none_are_taken_without_the_key_and_in_steps_of_flows_and_trials() {
    let without = World::with_tools(TOOLS);
    run_once(&without, "echo 1 > a");
    for world in [&without, &world()] {
        for name in ["FLOW_RUN_ID", "DELTA_LASTING_LIMITS"] {
            world.model_says([sh("c1", "echo 1 > a"), text("done")]);
            world.run("go").args(["--new"]).env(name, "1").exits(0);
        }
        assert!(!world.exists("ws/.delta/files.git"));
        assert_eq!(states(world), []);
        assert_eq!(warnings(world), [""; 0]);
    }
}

/// Runs two calls in a world with files, and checks that one warning has these words and no state was taken.
#[track_caller]
fn takes_none(world: &World, run: Delta, why: &str) {
    world.model_says([sh("c1", "echo 1 > a"), sh("c2", "echo 2 > a"), text("done")]);
    run.exits(0).prints("done\n");
    let warned = warnings(world);
    assert!(warned.len() == 1 && warned[0].contains(why), "{warned:?}");
    assert_eq!(states(world), []);
}

#[test]
fn none_are_taken_where_they_cannot_be_and_one_warning_says_why() {
    let (no_git, old_git) = (world(), world());
    no_git.script("bin/sh", "#!/bin/sh\nexec /bin/sh \"$@\"\n");
    let run = no_git.run("go").env("PATH", no_git.path("bin"));
    takes_none(
        &no_git,
        run,
        "git is not installed; install git 2.41 or later; `files: off` in agent.yaml turns them off",
    );
    let path = path_with_git(
        &old_git,
        "echo 'unknown option: --attr-source=x' >&2; exit 129",
    );
    let run = old_git.run("go").env("PATH", path);
    takes_none(
        &old_git,
        run,
        "/bin/git is too old; install git 2.41 or later; `files: off` in agent.yaml turns them off",
    );
    for dir in ["ws", "ws/home"] {
        let home = world();
        let run = home.run("go").env("HOME", home.path(dir));
        takes_none(&home, run, "the workspace is / or a home directory");
    }
}

#[test]
fn none_are_taken_of_the_whole_system() {
    let world = world();
    let script = "mkdir root; for dir in /*; do if [ -d $dir ]; then mkdir root$dir; mount --rbind $dir root$dir; fi; done; \
                  exec chroot root \"$0\" \"$@\"";
    let words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-ec",
        script,
    ];
    let tried = Delta::of("true", world.home()).under(&words).end();
    fs::rename(world.path("root"), world.path("tried")).ok();
    if tried.code() != Some(0) {
        eprintln!("skipped: there can be no other root: {}", tried.stderr);
        return;
    }
    world.model_says([sh("c1", "echo 1 > a"), text("done")]);
    let agent = world.path("agent");
    let run = world.delta(["run", "-w", "/", "-m", "go", "-a"]).arg(agent);
    run.under(&words).exits(0);
    let run = Run::latest(&world.path("root"));
    let notes = run.events("SYSTEM_MESSAGE");
    let why = "the workspace is / or a home directory";
    let is_said = notes
        .iter()
        .any(|it| it["content"].as_str().unwrap().contains(why));
    assert!(is_said, "{notes:?}");
    assert!(run.events("FILES").is_empty() && world.exists("root/a"));
}

#[test]
fn none_are_taken_once_one_takes_longer_than_ten_seconds() {
    let world = world();
    world.write("ws/a", "1\n");
    // It waits until the engine ends it.
    let _never = world.fifo("never");
    let script = format!("read line < {}", shell_word(&world.path("never")));
    let path = path_with_git(&world, &script);
    let run = world.run("go").env("PATH", path);
    takes_none(&world, run, "it takes longer than 10 s");
    assert_eq!(world.read("ws/a"), "2\n");
}

#[test]
fn none_are_taken_into_a_store_above_one_gibibyte() {
    let world = World::on_disk().tools(TOOLS).top("files: git");
    run_once(&world, "echo 1 > a");
    let large = fs::File::create(world.path("ws/.delta/files.git/objects/pack/large")).unwrap();
    let flags = rustix::fs::FallocateFlags::empty();
    if let Err(error) = rustix::fs::fallocate(&large, flags, 0, 1 << 30) {
        eprintln!("skipped: there is no room for a large file: {error}");
        return;
    }
    let run = world.run("go").args(["--new"]);
    takes_none(
        &world,
        run,
        "takes more than 1 GiB; remove old runs with delta prune",
    );
}

#[test]
fn none_are_taken_of_a_workspace_with_more_than_five_hundred_repositories() {
    let world = world();
    for number in 0..500 {
        world.write(&format!("ws/{number}/.git"), "");
    }
    run_once(&world, "echo 1 > a");
    assert_eq!(states(&world).len(), 2);
    world.write("ws/more/.git", "");
    let run = world.run("go").args(["--new"]);
    takes_none(&world, run, "the workspace has more than 500 repositories");
}

#[test]
fn a_git_of_the_workspace_is_not_executed() {
    let world = world();
    world.script("ws/bin/git", "#!/bin/sh\ntouch ../pwned\nexit 1\n");
    world.model_says([sh("c1", "echo 1 > a"), text("done")]);
    fs::create_dir(world.path("linked")).unwrap();
    symlink(world.path("ws/bin"), world.path("alias")).unwrap();
    symlink(world.path("ws/bin/git"), world.path("linked/git")).unwrap();
    let dirs = ["ws/bin", "alias", "linked"].map(|dir| world.path(dir).display().to_string());
    let path = format!("./bin:bin:{}:{}", dirs.join(":"), system_path());
    world.run("go").env("PATH", path).exits(0);
    assert_eq!(states(&world).len(), 2);
    assert!(!world.exists("pwned"));
}

#[test]
fn a_state_that_is_being_taken_is_not_ended_before_a_person_is_asked() {
    let world = World::with_tools("- {name: sh, confirm: true, exec: 'sh -c ${command}'}")
        .top("files: git");
    world.write("ws/a", "1\n");
    let _open = world.fifo("gate");
    let [gone, place] = ["gone", "gate"].map(|name| shell_word(&world.path(name)));
    let wait = format!("[ -e {gone} ] || {{ : > {gone}; read -r line < {place}; }}");
    let path = path_with_git(&world, &wait);
    world.model_says([sh("c1", "echo 2 > a")]);
    // The last that is run before the question.
    world.script("agent/guard.sh", &format!("#!/bin/sh\necho >> {place}\n"));
    world.write(
        "agent/hooks.yaml",
        "pre_tool_execution: {command: ['${AGENT_HOME}/guard.sh']}\n",
    );
    let run = world.run("go").env("PATH", path);
    run.exits(101).does_not_say("not kept");
    assert_eq!(states(&world), [state(1, "start", 0, [0, 1, 0])]);
}
