//! `delta git`, and what is made from states: replays, reports, the line at the end.

use super::*;
use std::fs;

fn git_of(world: &World, words: &[&str]) -> Delta {
    world.delta(["git", "-w", "ws"]).args(words)
}

fn three() -> World {
    let world = world();
    world.write("ws/a", "1\n");
    let commands = [
        "echo 2 >> a",
        "echo x > src.c",
        "echo 3 >> a; echo broken > src.c",
    ];
    let calls = commands
        .iter()
        .enumerate()
        .map(|(at, command)| sh(&format!("c{at}"), command));
    world.model_says(calls.chain([text("done")]).collect::<Vec<_>>());
    world
        .run("go")
        .args(["--run-id", "20251013_101500_ab12cd"])
        .exits(0);
    world
}

#[test]
fn words_of_git_name_runs_and_their_states() {
    let world = three();
    let commit = |n: usize| {
        world.latest().events("FILES")[n]["commit"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let id = "20251013_101500_ab12cd";
    for (word, wanted) in [
        (id.to_owned(), commit(3)),
        ("LATEST".to_owned(), commit(3)),
        ("20251013_1".to_owned(), commit(3)),
        ("2@1".to_owned(), commit(1)),
        (format!("{id}@0"), commit(0)),
        (format!("^{id}@2"), format!("^{}", commit(2))),
        (format!("{id}~2"), commit(1)),
        ("2@3^".to_owned(), commit(2)),
        ("2@9".to_owned(), commit(3)),
    ] {
        git_of(&world, &["rev-parse", &word])
            .exits(0)
            .prints(&format!("{wanted}\n"));
    }
    git_of(&world, &["show", "2@2:src.c"])
        .exits(0)
        .prints("x\n");
    git_of(&world, &["diff", "--name-only", "2@1..LATEST"])
        .exits(0)
        .prints("a\nsrc.c\n");
    git_of(&world, &["log", "--format=%s", "2@1...2@2"])
        .exits(0)
        .prints("[2] sh\n");
    // Neither an option nor a path nor a number is one.
    git_of(
        &world,
        &["log", "--format=%s", "-n", "2", "LATEST", "--", "src.c"],
    )
    .exits(0)
    .prints("[3] sh\n[2] sh\n");
    git_of(&world, &["log", "--format=%s", "LATEST", "--", "LATEST"])
        .exits(0)
        .prints("");
    git_of(&world, &["rev-parse", "2025"]).exits(128);
    git_of(&world, &["rev-parse", "none@3"]).exits(128);
    world.delta(["git", "-w", "ws"]).refuses(2, "ARG");
    let none = World::unasked();
    fs::create_dir_all(none.path("ws")).unwrap();
    git_of(&none, &["log"]).refuses(1, "no run has kept its files");
}

#[test]
fn a_git_that_is_too_old_is_named() {
    let world = three();
    let script = "echo 'unknown option: --attr-source=x' >&2; exit 129";
    let path = path_with_git(&world, script);
    for words in [&["git", "-w", "ws", "log"][..], &["undo", "-w", "ws"]] {
        world
            .delta(words.iter().copied())
            .env("PATH", &path)
            .exits(1)
            .says("/bin/git is too old; install git 2.41 or later")
            .does_not_say("files: off");
    }
}

#[test]
fn git_changes_no_file_of_the_workspace_and_heeds_no_settings() {
    let world = three();
    world.write(
        "home/.gitconfig",
        "[alias]\nx = !echo mine\n[core]\npager = cat\n",
    );
    world.write("ws/.gitattributes", "*.c diff=evil export-ignore\n");
    for words in [
        &["checkout", "-f", "LATEST@1"][..],
        &["clean", "-fdx"],
        &["reset", "--hard", "LATEST@1"],
        &["restore", "-s", "LATEST@1", "a"],
        &["rm", "-r", "."],
        &["read-tree", "-u", "--reset", "LATEST@1"],
    ] {
        git_of(&world, words).refuses(128, "must be run in a work tree");
    }
    assert_eq!(world.read("ws/a"), "1\n2\n3\n");
    git_of(&world, &["x"])
        .env("HOME", world.path("home"))
        .exits(1)
        .does_not_say("mine");
    world.write(
        "ws/.delta/files.git/hooks/post-checkout",
        "#!/bin/sh\ntouch ../hooked\n",
    );
    git_of(
        &world,
        &["archive", "--format=tar", "-o", "../out.tar", "LATEST"],
    )
    .exits(0);
    let listed = Command::new("tar")
        .arg("tf")
        .arg(world.path("out.tar"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "a\nsrc.c\n");
    assert!(!world.exists("ws/.delta/files.git/hooks"));
    git_of(&world, &["gc", "-q"]).exits(0);
    git_of(&world, &["show", "LATEST@3:a"])
        .exits(0)
        .prints("1\n2\n3\n");
}

#[test]
fn an_option_before_the_command_is_refused() {
    let world = three();
    for words in [
        &["--", "-c", "gc.auto=1", "gc"][..],
        &["--", "--no-pager", "log"],
    ] {
        git_of(&world, words).refuses(2, "a command of git comes first");
    }
}

#[test]
fn bisect_finds_the_step_that_broke_it() {
    let world = three();
    git_of(
        &world,
        &["worktree", "add", "-q", "-d", "../steps", "LATEST"],
    )
    .exits(0);
    let states = git_of(&world, &["rev-parse", "LATEST", "LATEST@0"]).exits(0);
    let script = format!(
        "cd steps; git bisect start {}; git bisect run sh -c '! grep -q broken src.c'",
        printed(&states).replace('\n', " ")
    );
    let home = world.home();
    let done = Delta::of("sh", home)
        .args(["-c", &script])
        .cwd(home)
        .exits(0);
    let said = printed(&done);
    assert!(
        said.contains("is the first bad commit") && said.contains("[3] sh"),
        "{said}"
    );
    git_of(&world, &["worktree", "remove", "-f", "../steps"]).exits(0);
}

#[test]
fn completion_offers_runs_after_the_name_of_a_git_command() {
    let world = three();
    let offered = world
        .delta(["complete", "--", "git", "-w", "ws", "log", ""])
        .exits(0);
    let offered = printed(&offered);
    assert!(offered.contains("20251013_101500_ab12cd"), "{offered}");
}

#[test]
fn a_fork_reproduces_a_failure_at_the_step_before_it() {
    let world = three();
    let test = "! grep -q broken src.c";
    world.model_says([sh("again", test), text("it works")]);
    world
        .delta([
            "fork", "-w", "ws", "--at", "2", "-m", "test it", "--to", "fork",
        ])
        .exits(0);
    assert_eq!(Run::latest(&world.path("fork")).result(3)["exit_code"], 0);
    world.model_says([sh("again", test), text("it does not")]);
    let words = [
        "fork", "-w", "ws", "--at", "2", "-m", "test it", "--to", "now", "--files", "now",
    ];
    world
        .delta(["fork", "-w", "ws", "--at", "2", "--files", "now"])
        .refuses(2, "add --to DIR");
    world.delta(words).exits(0);
    assert_eq!(Run::latest(&world.path("now")).result(3)["exit_code"], 1);
    world.model_says([text("here")]);
    world
        .delta([
            "fork",
            "-w",
            "ws",
            "--at",
            "2",
            "-m",
            "test it",
            "20251013_101500_ab12cd",
        ])
        .exits(0)
        .says("--to DIR");
}

#[test]
fn a_replay_begins_with_the_files_of_the_run() {
    let world = three();
    world.write("ws/a", "mine\n");
    for tools in ["run", "recorded"] {
        let words = ["replay", "-w", "ws", "--to", tools, "--tools", tools];
        world
            .delta(words)
            .exits(0)
            .prints("identical: 4 requests\n");
    }
    assert_eq!(world.read("run/a"), "1\n2\n3\n");
    assert_eq!(world.read("recorded/a"), "1\n");
}

#[test]
fn the_end_lists_what_differs_from_the_beginning() {
    let world = world();
    world.write("ws/a", "1\n2\n3\n");
    world.write("ws/b", "x\n");
    let commands = [
        "sed -i 's/1/one/' a; echo n > new; rm b",
        "sed -i 's/one/eins/' a; echo m >> new; echo x > b; echo > tmp",
        "rm tmp; echo y > b",
        "echo x > b",
    ];
    let calls = commands.map(|command| sh(command, command));
    world.model_says(calls.into_iter().chain([text("done")]));
    world.run("go").exits(0).says("changed: a +1 -1, new new\n");
    // Of each start.
    world.model_says([sh("more", "echo 4 >> a"), text("done")]);
    let more = world.go_on().args(["-m", "more"]).exits(0);
    more.says("changed: a +1 -0\n");
    // Back to what it was: nothing.
    let calls = ["echo 5 >> a", "sed -i /5/d a"].map(|command| sh(command, command));
    world.model_says(calls.into_iter().chain([text("done")]));
    let back = world.go_on().args(["-m", "back"]).exits(0);
    back.does_not_say("changed: ");
}

#[test]
fn the_report_has_the_difference_of_each_step_without_keys_and_without_markup() {
    const KEY: &str = "sk-0123456789abcdefghij";
    let world = world();
    world.write("ws/a", "1\n");
    let hostile = format!(
        "printf '</script><script>alert(1)</script>\\n\\033[31m{KEY}\\n' > 'x<b>.html'; echo 2 > a"
    );
    world.model_says([sh("c1", &hostile), text("done")]);
    world
        .run("go")
        .env("OPENAI_API_KEY", KEY)
        .exits(0)
        .says("changed: a +1 -1, x<b>.html new");
    let shown = world
        .delta(["report", "-w", "ws"])
        .env("OPENAI_API_KEY", KEY)
        .exits(0);
    let shown = printed(&shown);
    let line = shown
        .lines()
        .find(|line| line.contains("\"type\":\"FILES\"") && line.contains("\"diff\""));
    let line = line.expect("a difference");
    assert!(line.contains("-1\\n+2"), "{line}");
    assert!(line.contains("[redacted]") && !line.contains(KEY), "{line}");
    assert!(!line.contains('<') && !line.contains('\u{1b}'), "{line}");
    let Some(opened) = open(world.home(), &world.write("report.html", &shown), "") else {
        return;
    };
    assert!(opened.console.is_empty(), "{:?}", opened.console);
    assert!(!opened.dom.contains("<script>alert"));
}

#[test]
fn no_difference_is_shown_where_the_keys_in_it_cannot_be_read() {
    let world = world();
    world.write("ws/a", "1\n");
    world.model_says([sh("c1", "echo 2 > a"), text("done")]);
    world.run("go").exits(0);
    // Neither the page nor what else is in it needs them.
    fs::create_dir(world.path(".env")).unwrap();
    fs::create_dir(world.path("agent/.env")).unwrap();
    let shown = printed(&world.delta(["report", "-w", "ws"]).exits(0));
    let is_state = |line: &&str| line.contains("\"type\":\"FILES\"") && line.contains("\"diff\"");
    let line = shown.lines().find(is_state).expect("a state");
    assert!(line.contains("\"diff\":\"not shown: "), "{line}");
    assert!(!shown.contains("+2"), "{line}");
    assert!(shown.contains("\"type\":\"ENGINE_END\""));
}

#[test]
fn a_run_that_has_ended_has_ended_also_when_its_files_were_put_back() {
    let world = three();
    world.delta(["undo", "-w", "ws"]).exits(0);
    let log = world.delta(["log", "-w", "ws"]).exits(0);
    assert!(printed(&log).contains("src.c"), "{}", printed(&log));
    log.does_not_say("has no end");
}
