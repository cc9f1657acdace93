//! The store: what is made sure of before each use, who may read it, and how it becomes smaller.

use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn what_makes_git_execute_or_read_elsewhere_is_taken_away_before_each_use() {
    let world = world();
    world.write("ws/a", "1\n");
    run_once(&world, "echo 2 > a");
    let store = world.path("ws/.delta/files.git");
    let evil = format!("touch {}", world.path("pwned").display());
    let elsewhere = world.path("elsewhere");
    shell(world.home(), "git init -q --bare elsewhere");
    let outside = elsewhere.display().to_string();
    let sabotage = |name: &str, text: &str| {
        let path = store.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::remove_file(&path).ok();
        fs::write(path, text).unwrap();
    };
    let own = fs::read_to_string(store.join("config")).unwrap();
    let config = format!(
        "{own}[core]\n\tfsmonitor = \"{evil}\"\n\tworktree = /\n[filter \"x\"]\n\tclean = \"{evil}\"\n[include]\n\tpath = /dev/zero\n"
    );
    sabotage("config", &config);
    sabotage("HEAD", "ref: refs/heads/../../../x\n");
    sabotage("info/attributes", "* filter=x\n");
    sabotage("info/exclude", "*\n");
    sabotage("info/grafts", "x\n");
    sabotage("objects/info/alternates", &format!("{outside}/objects\n"));
    sabotage("commondir", &format!("{outside}\n"));
    sabotage("config.worktree", &config);
    sabotage("shallow", "x\n");
    for hook in ["post-index-change", "reference-transaction"] {
        let path = store.join("hooks").join(hook);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{evil}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let run = fs::read_dir(store.join("runs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let branch = run.file_name().unwrap().to_str().unwrap().to_owned();
    for name in ["index.lock", "HEAD.lock", "config.worktree"] {
        fs::write(run.join(name), &config).unwrap();
    }
    fs::write(run.join("commondir"), &outside).unwrap();
    fs::write(run.join("HEAD"), "ref: refs/heads/other\n").unwrap();
    fs::write(store.join(format!("refs/heads/{branch}.lock")), "").unwrap();
    world.model_says([sh("c2", "echo 3 > a"), text("done")]);
    world.go_on().args(["-m", "more"]).exits(0);
    assert!(!world.exists("pwned"));
    assert_eq!(warnings(&world), [""; 0]);
    assert_eq!(states(&world).len(), 3);
    assert_eq!(content(&world, 3, "a"), "3\n");
    assert_eq!(fs::read_to_string(store.join("config")).unwrap(), own);
    for gone in [
        "hooks",
        "objects/info/alternates",
        "commondir",
        "config.worktree",
        "shallow",
        "info/grafts",
    ] {
        assert!(!store.join(gone).exists(), "{gone}");
    }
    assert_eq!(
        git(&world, &["log", "--all", "--format=%s"])
            .lines()
            .count(),
        3
    );
}

#[test]
fn links_pipes_and_directories_in_the_place_of_its_files_are_replaced_in_a_start() {
    let world = world();
    world.write("ws/a", "1\n");
    let mine = world.write("mine", "mine\n");
    let script = format!(
        "cd .delta/files.git; rm config HEAD info/attributes; ln -s {} config; mkfifo HEAD; \
         mkdir -p info/attributes/full; ln -s {} hooks; echo 2 > ../../a",
        mine.display(),
        world.home().display()
    );
    run_once(&world, &script);
    let store = world.path("ws/.delta/files.git");
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine\n");
    assert!(store.join("config").symlink_metadata().unwrap().is_file());
    assert_eq!(content(&world, 2, "a"), "2\n");
}

#[test]
fn a_store_that_holds_a_link_or_a_pipe_is_put_aside_and_nothing_follows_it() {
    let link = |name: &str| format!("rm -rf {name}; ln -s $OTHER/{name} {name}");
    let names = [
        "objects",
        "objects/ab",
        "objects/info",
        "objects/pack",
        "refs",
        "refs/heads",
        "info",
        "runs",
    ];
    let pipes = [
        "mkfifo packed-refs",
        "mkfifo refs/heads/x",
        "rm runs/*/index; mkfifo $(echo runs/*)/index",
        "mkdir -p objects/ab; mkfifo objects/ab/$(printf %038d 1)",
    ];
    let plants = names.map(link).into_iter().chain(pipes.map(str::to_owned));
    for plant in plants {
        let world = world();
        world.write("ws/a", "1\n");
        run_once(&world, "echo 2 > a");
        let first = world.latest().id();
        // Objects of another repository to which nothing leads.
        for name in [
            "objects/ab/00000000000000000000000000000000000001",
            "objects/info/alternates",
            "objects/pack/tmp_pack_x",
            "refs/heads/main",
            "info/exclude",
            "runs/616161/index",
        ] {
            world.write(&format!("other/{name}"), "other\n");
        }
        let other = world.path("other");
        let before = files_below(&other);
        let plant = plant.replace("$OTHER", other.to_str().unwrap());
        shell(&world.path("ws/.delta/files.git"), &plant);
        let shown = world.delta(["git", "-w", "ws", "log", "--all"]);
        shown.refuses(1, "it is not used: move it away");
        let pruned = world.delta(["prune", "-w", "ws", &first]).exits(0);
        pruned.says("removed 1 run");
        run_once(&world, "echo 3 > a");
        assert_eq!(content(&world, 2, "a"), "3\n", "{plant}");
        let notes = world.latest().events("SYSTEM_MESSAGE");
        let is_told = notes.iter().any(|note| {
            let text = note["content"].as_str().unwrap();
            text.contains("was renamed to")
        });
        assert!(is_told, "{plant}: {notes:?}");
        assert_eq!(files_below(&other), before, "{plant}");
        for file in before {
            assert_eq!(fs::read_to_string(file).unwrap(), "other\n", "{plant}");
        }
    }
}

#[test]
fn a_damaged_index_is_made_anew_and_what_is_ignored_by_now_stays() {
    let world = world();
    world.write("ws/a", "1\n");
    world.write("ws/b.log", "1\n");
    run_once(&world, "echo 2 > a; echo '*.log' > .gitignore");
    let runs = fs::read_dir(world.path("ws/.delta/files.git/runs")).unwrap();
    let index = runs
        .map(|run| run.unwrap().path().join("index"))
        .next()
        .unwrap();
    for damage in [&b"DIRC nonsense"[..], b""] {
        fs::write(&index, damage).unwrap();
        let number = states(&world).len() + 1;
        world.model_says([sh("c", &format!("echo n{number} > a")), text("done")]);
        world.go_on().args(["-m", "more"]).exits(0);
        assert_eq!(content(&world, number, "a"), format!("n{number}\n"));
        assert_eq!(names(&world, number), [".gitignore", "a", "b.log"]);
    }
    assert_eq!(warnings(&world), [""; 0]);
}

#[test]
fn a_store_that_came_with_the_workspace_is_put_aside_and_never_used() {
    let plants = [
        // As it is cloned: with an origin, or without one.
        "cp -r ws/.delta/files.git copy; rm -r ws/.delta/files.git; mv copy ws/.delta/files.git",
        "rm ws/.delta/files.git/origin",
        "mv ws/.delta/files.git elsewhere; ln -s ../../elsewhere ws/.delta/files.git",
        "rm -r ws/.delta/files.git; echo file > ws/.delta/files.git",
        "rm -r ws/.delta/files.git; mkfifo ws/.delta/files.git",
    ];
    for plant in plants {
        let world = world();
        world.write("ws/a", "1\n");
        run_once(&world, "echo 2 > a");
        shell(world.home(), plant);
        run_once(&world, "echo 3 > a");
        let notes = world.latest().events("SYSTEM_MESSAGE");
        let told = notes.iter().filter(|note| {
            note["content"]
                .as_str()
                .unwrap()
                .contains("came from elsewhere")
        });
        assert_eq!(told.count(), 1, "{plant}: {notes:?}");
        assert_eq!(content(&world, 2, "a"), "3\n", "{plant}");
        // Of the run before, nothing has come over.
        assert_eq!(
            git(&world, &["log", "--all", "--format=%s"])
                .lines()
                .count(),
            2,
            "{plant}"
        );
        let control = fs::read_dir(world.path("ws/.delta")).unwrap();
        let aside = control.filter(|it| {
            it.as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with(".files.git.")
        });
        assert_eq!(aside.count(), 1, "{plant}");
    }
}

#[test]
fn only_its_owner_can_read_the_store() {
    let world = world();
    world.write("ws/a", "1\n");
    world.model_says([sh("c1", "umask 000; echo 2 > a"), text("done")]);
    world.run("go").after("umask 000").exits(0);
    let store = world.path("ws/.delta/files.git");
    for file in files_below(&store).into_iter().chain([store]) {
        let mode = file.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", file.display());
    }
}

#[test]
fn tools_in_the_sandbox_can_neither_read_nor_write_it() {
    for options in [
        "--rw, '${CWD}', --ro, /",
        "--rw, ., --ro, /",
        "--rw, '${CWD}', --ro, '${CWD}', --ro, /",
    ] {
        let tools = format!(
            "- {{name: sh, exec: 'sh -c ${{command}}', wrapper: [delta, sandbox, {options}, --]}}"
        );
        let world = World::on_disk().tools(&tools).top("files: git");
        world.write("ws/a", "1\n");
        let script = "ls -A .delta/files.git | wc -l; cat .delta/files.git/config 2>&1; echo x > .delta/files.git/config; \
                      mv .delta/files.git .delta/other; rm -rf .delta/files.git; echo 2 > a; cd .delta; ls files.git/objects";
        world.model_says([sh("c1", script), text("done")]);
        world.run("go").exits(0);
        let warned = warnings(&world);
        if warned.iter().any(|it| it.contains("no user namespace")) {
            assert_eq!(states(&world), [], "a store that tools can read");
            eprintln!("skipped: {warned:?}");
            return;
        }
        let told = world.latest().result(1)["observation_content"].to_string();
        assert!(
            told.starts_with("\"0\\n") && !told.contains("bare"),
            "{told}"
        );
        assert_eq!(content(&world, 2, "a"), "2\n");
    }
}

#[test]
fn tools_in_the_sandbox_cannot_touch_the_stores_of_workspaces_further_down() {
    let tools = "- {name: sh, exec: 'sh -c ${command}', wrapper: [delta, sandbox, --rw, '${CWD}', --ro, /, --]}";
    let world = World::on_disk().tools(tools).top("files: git");
    let store = world.path("ws/sub/deep/.delta/files.git");
    world.write("ws/sub/deep/.delta/files.git/objects/kept", "1\n");
    let script = "cd sub/deep/.delta; ls -A files.git | wc -l; ln -s / files.git/objects/info; rm -rf files.git/objects; \
                  mv files.git other; echo 2 > ../a";
    run_once(&world, script);
    let warned = warnings(&world);
    if warned.iter().any(|it| it.contains("no user namespace")) {
        eprintln!("skipped: {warned:?}");
        return;
    }
    let told = world.latest().result(1)["observation_content"].to_string();
    assert!(told.starts_with("\"0\\n"), "{told}");
    assert_eq!(files_below(&store), [store.join("objects/kept")]);
    assert_eq!(content(&world, 2, "sub/deep/a"), "2\n");
}

/// The lines that a tool in a sandbox that may write the workspace prints first; none if there can be no such sandbox.
fn seen_in_sandbox(options: &str, script: &str, prepare: impl FnOnce(&World)) -> Option<String> {
    let tools = format!(
        "- {{name: sh, exec: 'sh -c ${{command}}', wrapper: [delta, sandbox, {options}, --]}}"
    );
    let world = World::on_disk().tools(&tools).top("files: git");
    world.write("ws/a", "1\n");
    run_once(&world, "true");
    prepare(&world);
    run_once(&world, script);
    let warned = warnings(&world);
    if warned.iter().any(|it| it.contains("no user namespace")) {
        eprintln!("skipped: {warned:?}");
        return None;
    }
    Some(world.latest().result(1)["observation_content"].to_string())
}

#[test]
fn tools_in_the_sandbox_cannot_read_what_a_killed_undo_has_left() {
    let script = "ls -A .delta/.undo | wc -l; cat .delta/.undo/old 2>&1";
    let prepare = |world: &World| drop(world.write("ws/.delta/.undo/old", "an earlier secret\n"));
    if let Some(seen) = seen_in_sandbox("--rw, '${CWD}', --ro, /", script, prepare) {
        assert!(
            seen.starts_with("\"0\\n") && !seen.contains("secret"),
            "{seen}"
        );
    }
}

#[test]
fn a_store_is_hidden_however_often_its_directory_is_granted_and_however_large_git_is() {
    let script = "ls -A sub/deep/.delta/files.git | wc -l";
    let prepare = |world: &World| {
        world.write("ws/sub/deep/.delta/files.git/objects/kept", "1\n");
        for number in 0..1100 {
            world.write(&format!("ws/.git/{number}"), "");
        }
        for number in 0..600 {
            world.write(&format!("ws/f{number}"), "");
        }
    };
    let options = "--rw, '${CWD}', --ro, '${CWD}', --ro, /";
    if let Some(seen) = seen_in_sandbox(options, script, prepare) {
        assert!(seen.starts_with("\"0\\n"), "{seen}");
    }
}

#[test]
fn two_runs_at_once_in_a_workspace_have_states_of_their_own() {
    let world = world();
    world.write("ws/a", "1\n");
    let replies = |request: &Received| {
        let done = request
            .messages()
            .iter()
            .filter(|it| it["role"] == "tool")
            .count();
        let who = request
            .messages()
            .iter()
            .find(|it| it["role"] == "user")
            .unwrap()["content"]
            .to_string();
        let who = who.trim_matches('"').to_owned();
        if done == 5 {
            return text("done");
        }
        sh(&format!("c{done}"), &format!("echo {done} > {who}"))
    };
    world.server.answers(replies);
    let start = |name: &str| world.run(name).args(["--run-id", name]).spawn();
    let both = ["one", "two"].map(start);
    for run in both {
        run.wait().exits(0);
    }
    for (name, hex) in [("one", "6f6e65"), ("two", "74776f")] {
        let run = world
            .runs()
            .into_iter()
            .find(|run| run.id() == name)
            .unwrap();
        let events = run.events("FILES");
        let numbers: Vec<u64> = events.iter().map(|it| it["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        assert!(numbers.len() >= 6, "{events:?}");
        let log = git(&world, &["log", "--format=%H", hex]);
        let commits: Vec<&str> = log.lines().collect();
        let recorded: Vec<&str> = events
            .iter()
            .rev()
            .map(|it| it["commit"].as_str().unwrap())
            .collect();
        assert_eq!(commits, recorded);
        let last = format!("{}:{name}", commits[0]);
        assert_eq!(git(&world, &["cat-file", "blob", &last]), "4\n");
    }
}

#[test]
fn prune_removes_the_states_of_a_run_and_keeps_those_of_others() {
    let world = world();
    world.write("ws/a", "1\n");
    world.model_says([
        sh("c1", "echo only in the first > b"),
        sh("c2", "rm b"),
        text("done"),
    ]);
    world.run("go").args(["--run-id", "first"]).exits(0);
    let lost = commit(&world, 2);
    world.model_says([sh("c1", "echo 2 > a"), text("done")]);
    world.run("go").args(["--run-id", "second"]).exits(0);
    let pruned = world.delta(["prune", "-w", "ws", "first"]).exits(0);
    pruned.says("removed 1 run");
    let done = Command::new("git")
        .arg("--git-dir")
        .arg(world.path("ws/.delta/files.git"))
        .args(["cat-file", "-e", &lost])
        .output();
    assert!(!done.unwrap().status.success(), "the state is still there");
    assert_eq!(
        git(&world, &["branch", "--format=%(refname:short)"]),
        "7365636f6e64\n"
    );
    assert_eq!(content(&world, 2, "a"), "2\n");
    // The other run goes on from what it has.
    world.model_says([sh("c2", "echo 3 > a"), text("done")]);
    world
        .go_on()
        .args(["--run-id", "second", "-m", "more"])
        .exits(0);
    assert_eq!(states(&world).len(), 3);
    assert_eq!(warnings(&world), [""; 0]);
    assert_eq!(git(&world, &["fsck", "--full", "--strict"]), "");
}

#[test]
fn states_that_stay_where_git_fails_go_with_the_next_prune_though_the_journal_stays() {
    let world = world();
    run_once(&world, "echo 1 > a");
    let id = world.latest().id();
    let path = path_with_git(&world, "echo 'fatal: no room' >&2; exit 128");
    let prune = || world.delta(["prune", "-w", "ws", "--keep-journal", &id]);
    prune()
        .env("PATH", path)
        .exits(0)
        .says("stay until the next prune: git: fatal: no room");
    prune().exits(0).says("all but the journals of 1 run");
    assert_eq!(git(&world, &["for-each-ref"]), "");
    prune().exits(0).says("all but the journals of 0 runs");
}

#[test]
fn prune_keeps_the_index_of_a_run_that_stays() {
    let world = world();
    world.write("ws/b.log", "1\n");
    run_once(&world, "true");
    let first = world.latest().id();
    run_once(&world, "echo '*.log' > .gitignore");
    let store = world.path("ws/.delta/files.git/runs");
    let indexes = || {
        files_below(&store)
            .into_iter()
            .filter(|it| it.ends_with("index"))
    };
    assert_eq!(indexes().count(), 2);
    world.delta(["prune", "-w", "ws", &first]).exits(0);
    assert_eq!(indexes().count(), 1);
    world.model_says([sh("c2", "echo 2 > b.log"), text("done")]);
    world.go_on().args(["-m", "more"]).exits(0);
    assert_eq!(names(&world, 3), [".gitignore", "b.log"]);
    assert_eq!(states(&world)[2], state(3, "iteration", 3, [1, 0, 0]));
}

#[test]
fn what_a_state_has_is_on_the_disk_unless_the_agent_says_otherwise() {
    for (top, synced) in [
        ("files: git", "objects,reference"),
        ("files: git\nsync: false", ""),
    ] {
        let world = World::with_tools(TOOLS).top(top);
        world.write("ws/a", "1\n");
        let log = shell_word(&world.path("git.log"));
        let path = path_with_git(&world, &format!("echo \"$2:$GIT_CONFIG_VALUE_0\" >> {log}"));
        world.model_says([sh("c1", "echo 2 > a"), text("done")]);
        world.run("go").env("PATH", path).exits(0);
        assert_eq!(states(&world).len(), 2);
        let ran = world.lines("git.log");
        for name in ["update-index", "write-tree", "commit-tree", "update-ref"] {
            let of_it = ran.iter().filter_map(|it| it.strip_prefix(name));
            let settings: Vec<&str> = of_it.collect();
            // The first of a store is synced as a whole.
            assert_eq!(settings, [":", &format!(":{synced}")], "{ran:#?}");
        }
    }
}

#[test]
fn prune_waits_for_a_state_that_is_being_taken() {
    let world = world();
    world.write("ws/a", "1\n");
    run_once(&world, "echo 2 > a");
    let first = world.latest().id();
    let mut begun = world.fifo("begun");
    let go = world.path("go");
    let script = format!(
        "case \"$*\" in *write-tree*) if [ ! -e {go} ]; then echo $$ > {begun}; while [ ! -e {go} ]; do sleep 0.01; done; fi;; esac",
        begun = world.path("begun").display(),
        go = go.display()
    );
    let path = path_with_git(&world, &script);
    world.model_says([sh("c1", "echo new > b"), text("done")]);
    let running = world.run("go").args(["--new"]).env("PATH", path).spawn();
    begun.line();
    // What is in no commit yet would be gone.
    let pruning = world.delta(["prune", "-w", "ws", &first]).spawn();
    let removed = world.path("ws/.delta").join(&first);
    eventually("the run is gone", || !removed.exists());
    fs::write(&go, "").unwrap();
    drop(begun);
    running.wait().exits(0);
    pruning.wait().exits(0);
    assert_eq!(states(&world).len(), 2);
    assert_eq!(git(&world, &["fsck", "--full"]), "");
    assert_eq!(content(&world, 2, "b"), "new\n");
}

#[test]
fn no_failure_of_git_makes_a_state_unreachable() {
    for failing in [
        "*",
        "*write-tree*",
        "*diff-tree*",
        "*update-index*",
        "*status*",
        "*cat-file*|*status*",
    ] {
        let world = world();
        world.write("ws/a", "1\n");
        run_once(&world, "echo other > a");
        let other = world.latest().id();
        run_once(&world, "echo 2 > a");
        world.model_says([sh("c2", "echo 3 > a"), text("done")]);
        let script =
            format!("case \"$*\" in {failing}) echo 'fatal: no room' >&2; exit 128;; esac");
        let path = path_with_git(&world, &script);
        world
            .go_on()
            .args(["-m", "more"])
            .env("PATH", path)
            .exits(0);
        assert_eq!(warnings(&world).len(), 1, "{failing}");
        world
            .delta(["prune", "-w", "ws", &other])
            .exits(0)
            .does_not_say("warning");
        let [recorded, reachable] = recorded_and_reachable(&world);
        assert_eq!((recorded.len(), recorded), (2, reachable), "{failing}");
        assert_eq!(content(&world, 1, "a"), "other\n");
        world.model_says([sh("c3", "echo 4 > a"), text("done")]);
        world.go_on().args(["-m", "more"]).exits(0);
        let [recorded, reachable] = recorded_and_reachable(&world);
        assert_eq!((recorded.len(), recorded), (4, reachable), "{failing}");
        assert_eq!(git(&world, &["fsck", "--full", "--strict"]), "");
    }
}

#[test]
fn a_branch_that_git_cannot_read_leads_to_the_last_state_again() {
    let world = world();
    world.write("ws/a", "1\n");
    run_once(&world, "echo 2 > a");
    let name: String = world
        .latest()
        .id()
        .bytes()
        .map(|it| format!("{it:02x}"))
        .collect();
    let branch = format!("ws/.delta/files.git/refs/heads/{name}");
    let damages = [String::new(), "nonsense".to_owned(), "1".repeat(40) + "\n"];
    for (at, damage) in damages.iter().enumerate() {
        world.write(&branch, damage);
        let command = format!("echo again {at} > a");
        world.model_says([sh(&format!("d{at}"), &command), text("done")]);
        world.go_on().args(["-m", "more"]).exits(0);
        let [recorded, reachable] = recorded_and_reachable(&world);
        assert_eq!((recorded.len(), recorded), (3 + at, reachable), "{damage}");
    }
    // If the last state is gone, too, what the branch was stays until the run goes.
    let last = commit(&world, 5);
    let object = format!("ws/.delta/files.git/objects/{}/{}", &last[..2], &last[2..]);
    fs::remove_file(world.path(&object)).unwrap();
    world.write(&branch, "nonsense");
    world.model_says([sh("e", "echo 5 > a"), text("done")]);
    world.go_on().args(["-m", "more"]).exits(0);
    assert_eq!(warnings(&world), [""; 0]);
    assert_eq!(content(&world, 7, "a"), "5\n");
    let damaged = world.path("ws/.delta/files.git/refs/damaged");
    assert_eq!(files_below(&damaged).len(), 1);
    let run = world.latest().id();
    world
        .delta(["prune", "-w", "ws", &run])
        .exits(0)
        .does_not_say("warning");
    assert_eq!(files_below(&damaged), [""; 0].map(std::path::PathBuf::from));
    assert_eq!(git(&world, &["for-each-ref"]), "");
}

#[test]
fn prune_uses_the_store_once_however_many_runs_go_and_removes_locks_of_killed_gits() {
    let world = world();
    world.write("ws/a", "1\n");
    for run in ["r1", "r2", "r3"] {
        world.model_says([sh("c1", &format!("echo {run} > a")), text("done")]);
        world.run("go").args(["--run-id", run]).exits(0);
    }
    world
        .delta(["git", "-w", "ws", "pack-refs", "--all"])
        .exits(0);
    for name in [
        "packed-refs.lock",
        "packed-refs.new",
        "refs/heads/7231.lock",
    ] {
        world.write(&format!("ws/.delta/files.git/{name}"), "");
    }
    let path = path_with_noting_git(&world);
    let pruning = world
        .delta(["prune", "-w", "ws", "r1", "r2"])
        .env("PATH", path);
    pruning
        .exits(0)
        .does_not_say("warning")
        .says("removed 2 runs");
    assert_eq!(
        world.lines("git.log").len(),
        2,
        "{:?}",
        world.lines("git.log")
    );
    assert_eq!(
        git(&world, &["branch", "--format=%(refname:short)"]),
        "7233\n"
    );
    let known = fs::read_dir(world.path("ws/.delta/files.git/runs")).unwrap();
    assert_eq!(known.count(), 1);
    assert_eq!(git(&world, &["fsck", "--full", "--strict"]), "");
}

#[test]
fn prune_removes_the_states_of_a_run_that_a_killed_prune_has_removed() {
    let world = world();
    for run in ["r1", "r2", "r3"] {
        world.model_says([sh("c1", &format!("echo {run} > a")), text("done")]);
        world.run("go").args(["--run-id", run]).exits(0);
    }
    fs::remove_dir_all(world.path("ws/.delta/r1")).unwrap();
    world.delta(["prune", "-w", "ws", "r2"]).exits(0);
    assert_eq!(
        git(&world, &["branch", "--format=%(refname:short)"]),
        "7233\n"
    );
}

#[test]
fn no_run_is_named_like_the_store() {
    let world = World::unasked();
    let named = world.run("go").args(["--run-id", "files.git"]);
    named.refuses(2, "a file of its own with this name");
}
