//! Many runs in many workspaces: one list of all of them, and the removal of old ones.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A run in a workspace, whose model gives one answer.
fn run_in(world: &World, workspace: &str, reply: Reply, code: i32) -> Run {
    world.model_says([reply]);
    start(world, workspace).exits(code);
    Run::latest(&world.path(workspace))
}

fn start(world: &World, workspace: &str) -> Delta {
    world.delta(["run", "-a", "agent", "-w", workspace, "-m", "go"])
}

/// A run that waits for its model.
fn held_in(world: &World, workspace: &str) -> Running {
    let asked = world.server.requests().len();
    world.model_says([text("late").held()]);
    let delta = start(world, workspace).spawn();
    world.server.wait_for(asked + 1);
    delta
}

fn question() -> Reply {
    call("c1", "ask_human", &json!({"prompt": "Shall I?"}))
}

/// The list as objects.
fn listed(world: &World, args: &[&str]) -> Vec<Value> {
    let list = world.delta(["list-runs"]).args(args).json().exits(0);
    let text = String::from_utf8(list.stdout).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

/// The workspaces of a list, relative to the world, each with a field.
fn fields(world: &World, args: &[&str], field: &str) -> Vec<(String, String)> {
    let home = world.home().canonicalize().unwrap();
    let list = listed(world, args);
    let rows = list.iter().map(|run| {
        let place = Path::new(run["workspace_path"].as_str().unwrap());
        let place = place.strip_prefix(&home).unwrap().to_str().unwrap();
        (place.to_owned(), run[field].to_string().replace('"', ""))
    });
    rows.collect()
}

fn places(world: &World, args: &[&str]) -> Vec<String> {
    let rows = fields(world, args, "status").into_iter();
    rows.map(|(place, _)| place).collect()
}

/// Changes a run's summary, which is newer than its journal then.
fn amend(run: &Run, change: impl FnOnce(&mut Value)) {
    let mut metadata = run.metadata();
    change(&mut metadata);
    fs::write(run.path("metadata.json"), metadata.to_string()).unwrap();
}

/// Runs of all kinds of ends, in this order.
fn fleet() -> (World, Running) {
    let world = World::new().top("pricing: {input: 1000000, output: 1000000}");
    run_in(&world, "a/done", text("done"), 0);
    run_in(&world, "a/deep/er/refused", Reply::error(400, "no"), 4);
    let signalled = held_in(&world, "b/signalled");
    signalled.signal(Signal::TERM);
    signalled.wait().exits(143);
    held_in(&world, "b/died").kill();
    run_in(&world, "a/asks", question(), 101);
    let live = held_in(&world, "a/live");
    (world, live)
}

#[test]
fn all_runs_below_directories_are_one_list_whatever_the_workspace() {
    let (world, _live) = fleet();
    let all = fields(&world, &["-r", "b", "a", "a/deep"], "status");
    let expected = [
        ("a/live", "RUNNING"),
        ("a/asks", "WAITING_FOR_INPUT"),
        ("b/died", "INTERRUPTED"),
        ("b/signalled", "INTERRUPTED"),
        ("a/deep/er/refused", "INTERRUPTED"),
        ("a/done", "COMPLETED"),
    ];
    let expected = expected.map(|(place, status)| (place.to_owned(), status.to_owned()));
    assert_eq!(all, expected);
    let costs = fields(&world, &["-r", "a/done"], "cost");
    assert_eq!(costs, [("a/done".to_owned(), "110.0".to_owned())]);

    let outcome = world.delta(["list-runs", "-r", "a"]).exits(0);
    let table = String::from_utf8(outcome.stdout.clone()).unwrap();
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(
        table.contains("a/deep/er/refused  INTERRUPTED        model_refused"),
        "{table}"
    );
    // The answer and the question are 110 tokens each.
    outcome
        .says("4 runs: ")
        .says("1 COMPLETED")
        .says("; 220 tokens; cost ");

    let only = |args: &[&str]| {
        let args = [&["-r", "a", "-r", "b"][..], args].concat();
        places(&world, &args)
    };
    assert_eq!(only(&["--retryable"]), ["b/died", "b/signalled"]);
    assert_eq!(
        only(&["--needs-attention"]),
        ["a/asks", "a/deep/er/refused"]
    );
    assert_eq!(
        only(&["--stop-reason", "model_refused"]),
        ["a/deep/er/refused"]
    );
    assert_eq!(only(&["--stop-reason", "sigterm"]), ["b/signalled"]);
    assert_eq!(
        only(&["--status", "completed", "--agent", "probe"]),
        ["a/done"]
    );
    assert_eq!(only(&["--agent", "agent", "--since", "1h"]).len(), 6);
    assert_eq!(only(&["--agent", "other"]).len(), 0);
    assert_eq!(only(&["--since", "2999-01-01T00:00:00Z"]).len(), 0);
    let refused = &newest_dir(&world, "a/deep/er/refused");
    let first = world.delta([
        "list-runs",
        "-r",
        "a",
        "--first",
        "--stop-reason",
        "model_refused",
    ]);
    first.exits(0).prints(&format!("{refused}\n"));
    for (args, words) in [
        (&["--since", "yesterday"][..], "--since: 'yesterday'"),
        (
            &["--stop-reason", "model_refuse"],
            "--stop-reason: unknown value 'model_refuse'; did you mean 'model_refused'?",
        ),
        (
            &["--stop-reason", "whatever"],
            "--stop-reason: unknown value 'whatever'; it is one of final_answer, length, ",
        ),
        (&["-r", "a", "-w", "b"], "-w and -r"),
        (&["a"], "-r a"),
    ] {
        let outcome = world.delta(["list-runs"]).args(args).end();
        outcome.exits(2).says(words).says_one_line();
    }
    // As a workspace or an agent that is not there.
    for place in ["-r", "-w", "-a"] {
        let outcome = world.delta(["list-runs", place, "nowhere"]).exits(1);
        outcome.says("there is no ").says_one_line();
    }
    world
        .delta(["prune", "--older-than", "1d", "-r", "a", "nowhere"])
        .refuses(1, "there is no directory nowhere");
}

/// The directory of the newest run of a workspace.
fn newest_dir(world: &World, workspace: &str) -> String {
    let dir = Run::latest(&world.path(workspace)).dir;
    dir.canonicalize().unwrap().display().to_string()
}

#[test]
fn a_list_shows_foreign_runs_as_such_and_leads_through_no_link() {
    let world = World::new();
    let run = run_in(&world, "in/own", text("done"), 0);
    run_in(&world, "out/ws", text("done"), 0);
    copy(&world.path("in/own"), &world.path("in/copied"));
    copy(&run.dir, &world.path("in/own/.delta/put"));
    symlink(world.path("out"), world.path("in/link")).unwrap();
    fs::create_dir(world.path("in/bare")).unwrap();
    symlink(world.path("out/ws/.delta"), world.path("in/bare/.delta")).unwrap();
    let linked = Run::latest(&world.path("out/ws")).dir;
    symlink(linked, world.path("in/own/.delta/linked")).unwrap();
    world.write("in/old/.delta/schema_version.txt", "1.1");

    let mut rows = fields(&world, &["-r", "in"], "foreign");
    rows.sort();
    let expected = [
        ("in/copied", "true"),
        ("in/own", "false"),
        ("in/own", "true"),
    ];
    let expected = expected.map(|(place, foreign)| (place.to_owned(), foreign.to_owned()));
    assert_eq!(rows, expected);
    let outcome = world.delta(["list-runs", "-r", "in"]).exits(0);
    outcome
        .says("3 runs: 3 COMPLETED")
        .says("2 runs came from elsewhere")
        .says("in/own/.delta/linked is a symbolic link")
        .says("in/bare/.delta is not a directory")
        .says("made by an engine before 1.2; start in a new workspace");
    // What was shown was not made one's own by that.
    world.server.may_stay_unasked();
    start(&world, "in/copied").exits(78);
}

#[test]
fn a_list_marks_runs_whose_agent_a_tool_may_have_made() {
    let world = World::new();
    run_in(&world, "in/ws", text("done"), 0);
    copy(&world.path("agent"), &world.path("in/ws/evil"));
    world.model_says([Reply::error(503, "later"), text("done")]);
    let inner = |agent| {
        let words = ["run", "-a", agent, "-w", "in/ws/x", "-m", agent];
        world.delta(words).args(["--set", "llm.max_retries=0"])
    };
    inner("in/ws/evil").exits(75);
    inner("agent").exits(0);
    let mut rows = fields(&world, &["-r", "in"], "nested");
    rows.sort();
    let expected = [
        ("in/ws", "false"),
        ("in/ws/x", "false"),
        ("in/ws/x", "true"),
    ];
    assert_eq!(
        rows,
        expected.map(|(place, is)| (place.to_owned(), is.to_owned()))
    );
    let list = ["list-runs", "-r", "in", "--retryable"];
    let list = world.delta(list).exits(0).stdout;
    let list = String::from_utf8(list).unwrap();
    assert!(list.contains("model_unavailable, nested  "), "{list}");
}

#[test]
fn the_summary_names_the_job_that_started_the_engine_and_nothing_else_of_the_batch_system() {
    let world = World::new();
    world.model_says([question()]);
    let job = start(&world, "ws")
        .env("SLURM_JOB_ID", "41")
        .env("SLURM_RESTART_COUNT", "2")
        .env("SLURM_ARRAY_TASK_ID", "7")
        .env("SLURM_JWT", "secret")
        .env("PBS_JOBID", "x".repeat(300));
    job.exits(101);
    let launcher =
        json!({"SLURM_ARRAY_TASK_ID": "7", "SLURM_JOB_ID": "41", "SLURM_RESTART_COUNT": "2"});
    assert_eq!(listed(&world, &["-r", "."])[0]["launcher"], launcher);
    world.model_says([text("done")]);
    world.go_on().args(["-m", "yes"]).exits(0);
    assert_eq!(world.latest().metadata().get("launcher"), None);
}

#[test]
fn on_a_file_system_that_is_declared_shared_another_hosts_run_is_left_alone() {
    let world = World::new();
    held_in(&world, "ws").kill();
    let run = world.latest();
    for file in ["journal.jsonl", "metadata.json"] {
        let text = run.text(file);
        let host = run.metadata()["hostname"].to_string();
        let elsewhere = text.replace(&host, "\"n17\"");
        assert_ne!(elsewhere, text);
        // The summary is read for the next one.
        fs::write(run.path(&format!("{file}.new")), elsewhere).unwrap();
    }
    for file in ["journal.jsonl", "metadata.json"] {
        fs::rename(run.path(&format!("{file}.new")), run.path(file)).unwrap();
    }
    let before = snapshot(&run.dir);
    let shared = |value: &str| start(&world, "ws").env("DELTA_SHARED_FS", value);
    shared("1").refuses(75, "host n17");
    assert!(snapshot(&run.dir) == before, "something was changed");
    world.model_says([text("done")]);
    shared("0").exits(0).prints("done\n");
}

/// The directories that a command prints, and what stays of them.
fn prune(world: &World, args: &[&str]) -> Outcome {
    let outcome = world
        .delta(["prune", "--older-than", "0s"])
        .args(args)
        .end();
    outcome.exits(0)
}

#[test]
fn old_runs_that_have_ended_are_removed_and_no_others() {
    let (world, _live) = fleet();
    run_in(&world, "b/died", text("done"), 0);
    let done = Run::latest(&world.path("a/done"));
    copy(&world.path("a/done"), &world.path("a/copied"));
    let kept = Run::latest(&world.path("a/asks"));
    let all = || [snapshot(&world.path("a")), snapshot(&world.path("b"))];
    let before = all();
    for args in [&["--older-than", "1h"][..], &["--status", "failed"]] {
        prune(&world, args).prints("").says("removed 0 runs");
    }
    let line = format!("{}\n", newest_dir(&world, "a/done"));
    prune(&world, &["-r", "a", "--dry-run"])
        .prints(&line)
        .says("would remove 1 run, 0.");
    assert!(all() == before, "something was changed");

    prune(&world, &["-r", "a"])
        .prints(&line)
        .says("removed 1 run")
        .says("kept 3 runs: live or unfinished")
        .says("kept 1 run: from elsewhere");
    assert!(!done.dir.exists() && kept.dir.exists());
    assert!(world.exists("a/copied/.delta") && !world.exists("a/done/.delta/LATEST"));
    assert_eq!(places(&world, &["-r", "a/done"]).len(), 0);

    // Its name is free again.
    run_in(&world, "a/done", text("new"), 0);
    for wrong in ["30", "1y", "-1d", ""] {
        let outcome = world.delta(["prune", "--older-than", wrong]).end();
        outcome.exits(2).says("--older-than");
    }
    world.delta(["prune"]).exits(2).says("--older-than");
}

#[test]
fn a_run_in_which_something_is_mounted_stays_whole() {
    let world = World::new();
    let unshare = |script: &'static str| ["unshare", "-Urm", "sh", "-c", script];
    if world
        .delta(["-V"])
        .under(&unshare("exec \"$0\" \"$@\""))
        .end()
        .code()
        != Some(0)
    {
        eprintln!("skipped: there are no user namespaces");
        return;
    }
    let run = run_in(&world, "ws", text("done"), 0);
    let deep = run.path("io/deep/er");
    fs::create_dir_all(&deep).unwrap();
    fs::write(run.path("io/deep/file"), "").unwrap();
    world.write("data/precious", "data\n");
    symlink(&run.dir, world.path("run")).unwrap();
    let before = snapshot(&world.path("ws"));
    for mount in [
        "mount --bind data run/io/deep/er && exec \"$0\" \"$@\"",
        "mount -t tmpfs none run/io/deep/er && exec \"$0\" \"$@\"",
        "mount --bind data/precious run/io/deep/file && exec \"$0\" \"$@\"",
    ] {
        for more in [&[][..], &["--keep-journal"], &["--dry-run"]] {
            let delta = world.delta(["prune", "--older-than", "0s"]).args(more);
            let outcome = delta.under(&unshare(mount)).end();
            outcome.exits(1).prints("").says("unmount it first");
            assert_eq!(world.read("data/precious"), "data\n");
            assert_eq!(snapshot(&world.path("ws")), before, "{mount} {more:?}");
        }
    }
    fs::remove_file(world.path("run")).unwrap();
    prune(&world, &[]).says("removed 1 run");
    assert!(!run.dir.exists());
}

#[test]
fn a_run_is_unfinished_if_its_journal_says_so_or_nobody_has_been_told_its_end() {
    let world = World::new();
    let forged = run_in(&world, "ws", question(), 101);
    amend(&forged, |metadata| {
        metadata["status"] = "COMPLETED".into();
        metadata["end_time"] = "2020-01-01T00:00:00.000Z".into();
    });
    let untold = run_in(&world, "other", text("done"), 0);
    amend(&untold, |metadata| metadata["status"] = "RUNNING".into());
    prune(&world, &[]).prints("").says("removed 0 runs");
    assert!(forged.path("journal.jsonl").exists() && untold.path("journal.jsonl").exists());
}

#[test]
fn a_run_goes_only_together_with_the_one_that_started_it() {
    let world = World::new();
    let asks = run_in(&world, "asks", question(), 101);
    let done = run_in(&world, "done", text("done"), 0);
    let child_of = |place: &str, parent: &str| {
        let run = run_in(&world, place, text("done"), 0);
        amend(&run, |metadata| metadata["parent_run_id"] = parent.into());
        run
    };
    let needed = child_of("asks/sub", &asks.id());
    let going = child_of("done/sub", &done.id());
    let below = child_of("done/sub/sub", &going.id());
    let orphan = child_of("orphan", "nowhere");
    let circle = child_of("circle", "x");
    amend(&circle, |metadata| {
        metadata["parent_run_id"] = circle.id().into();
    });

    let outcome = prune(&world, &["--status", "completed"])
        .says("removed 3 runs")
        .says("kept 1 run: live or unfinished")
        .says("kept 2 runs: part of a run that is unfinished")
        .says("kept 1 run: part of a run that is not below");
    let printed = String::from_utf8(outcome.stdout).unwrap();
    let removed: Vec<String> = printed
        .lines()
        .map(|line| {
            Path::new(line)
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    // From the inside out, so that a kill leaves no run without its parent.
    assert_eq!(removed, [below.id(), going.id(), done.id()]);
    for run in [needed, orphan, circle, asks] {
        assert!(run.path("journal.jsonl").exists());
    }
}

#[test]
fn a_parent_is_the_run_of_that_name_around_the_workspace_or_else_all_of_that_name() {
    let world = World::new();
    let named = |place: &str, name: &str, reply: Reply, code: i32| {
        world.model_says([reply]);
        start(&world, place).args(["--run-id", name]).exits(code);
        world.path(place).join(".delta").join(name)
    };
    let child_of = |place: &str, parent: &str| {
        let dir = named(place, "sub", text("done"), 0);
        let run = Run { dir };
        amend(&run, |metadata| metadata["parent_run_id"] = parent.into());
        run.dir
    };
    let done = named("one", "job", text("done"), 0);
    let open = named("two", "job", question(), 101);
    let going = child_of("one/deep/sub", "job");
    let inner = child_of("one/deep/sub/sub", "sub");
    let needed = child_of("two/sub", "job");
    let unclear = child_of("three", "job");
    // A chain of one name, each of which any other may have started.
    for at in 0..3 {
        child_of(&format!("chain/{at}"), "sub");
    }
    prune(&world, &[])
        .says("removed 3 runs")
        .says("kept 1 run: live or unfinished")
        .says("kept 5 runs: part of a run that is unfinished");
    assert!(!done.exists() && !going.exists() && !inner.exists());
    assert!(open.exists() && needed.exists() && unclear.exists());
}

#[test]
fn a_named_run_goes_with_those_it_has_started_unless_it_is_live_or_foreign() {
    let world = World::new();
    let asks = run_in(&world, "ws", question(), 101);
    let child = run_in(&world, "ws/sub", question(), 101);
    amend(&child, |metadata| {
        metadata["parent_run_id"] = asks.id().into();
    });
    let other = run_in(&world, "other", text("done"), 0);
    let prune = |args: &[&str]| world.delta(["prune"]).args(args).end();
    // A run that has not ended stays whole, until its engine is gone.
    let journal = fs::File::open(asks.path("journal.jsonl")).unwrap();
    journal.lock().unwrap();
    let before = snapshot(&world.path("ws"));
    let line = format!("run {} is live: nothing was removed", asks.id());
    prune(&["-w", "ws", "LATEST"])
        .exits(1)
        .prints("")
        .says(&line);
    journal.unlock().unwrap();
    // So does one that has started a live one.
    let journal = fs::File::open(child.path("journal.jsonl")).unwrap();
    journal.lock().unwrap();
    let line = format!("run {} is live: nothing was removed", child.id());
    prune(&["-w", "ws", "LATEST"])
        .exits(1)
        .prints("")
        .says(&line);
    journal.unlock().unwrap();
    prune(&["--dry-run", "-w", "ws", "LATEST"])
        .exits(0)
        .says("would remove 2 runs");
    assert!(
        snapshot(&world.path("ws")) == before,
        "something was changed"
    );
    prune(&["-w", "ws", "--keep-journal", "LATEST"])
        .exits(0)
        .says("removed all but the journals of 2 runs");
    assert!(asks.path("journal.jsonl").exists() && !asks.path("io").exists());
    let removed = format!("{}\n{}\n", child.dir.display(), asks.dir.display());
    prune(&["-w", "ws", "--run-id", &asks.id()])
        .exits(0)
        .prints(&removed)
        .says("removed 2 runs");
    assert!(!asks.dir.exists() && !child.dir.exists());
    // By its path, from anywhere; and what is not to be trusted is not removed.
    copy(&world.path("other"), &world.path("copied"));
    let copied = Run::latest(&world.path("copied"));
    prune(&[copied.dir.to_str().unwrap()])
        .exits(1)
        .prints("")
        .says("came from elsewhere");
    assert!(copied.path("journal.jsonl").exists());
    let aside = world.path("aside").join(other.id());
    copy(&other.dir, &aside);
    prune(&[aside.to_str().unwrap()])
        .exits(1)
        .prints("")
        .says("is not in the .delta of a workspace");
    prune(&[other.dir.to_str().unwrap()])
        .exits(0)
        .says("removed 1 run");
    assert!(!other.dir.exists());
    // A kill may have left remains without a name: the same command removes them.
    let remains = other.dir.with_file_name(format!(".pruned.{}", other.id()));
    let child_remains = world.path("ws/sub/.delta/.pruned.child");
    let (id, path) = (other.id(), other.dir.to_str().unwrap());
    for args in [
        &["-w", "other", &id][..],
        &[path],
        &["other/.delta/gone", path],
    ] {
        fs::create_dir_all(remains.join("io")).unwrap();
        let gone = other.dir.with_file_name(".pruned.gone");
        fs::create_dir_all(&gone).unwrap();
        prune(&[&["--dry-run"], args].concat()).exits(0).prints("");
        assert!(remains.exists());
        prune(args).exits(0).prints("");
        assert!(!remains.exists() && !gone.exists(), "{args:?}");
        prune(args).exits(1).prints("");
    }
    let parent = run_in(&world, "ws", text("done"), 0);
    fs::create_dir_all(&child_remains).unwrap();
    prune(&["-w", "ws", &parent.id()]).exits(0);
    assert!(!child_remains.exists());
    for wrong in [&["-r", "ws"][..], &["x", "--status", "failed"], &[]] {
        prune(wrong)
            .exits(2)
            .prints("")
            .says("prune needs RUN, or --older-than SPAN");
    }
    prune(&["-w", "copied", "nothing"])
        .exits(1)
        .says("no run 'nothing' here");
}

#[test]
fn the_journal_can_stay_and_what_a_kill_left_goes_the_next_time() {
    let world = World::with_tools("- {name: echo, exec: 'echo ${words}'}");
    world.observe("echo", &json!({"words": "hello"}));
    let run = world.latest();
    prune(&world, &["--keep-journal"]).says("all but the journals of 1 run");
    let mut names: Vec<_> = fs::read_dir(&run.dir)
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["journal.jsonl", "metadata.json", "origin", "spending.jsonl"]
    );
    prune(&world, &["--keep-journal"])
        .prints("")
        .says("of 0 runs");
    let log = world.delta(["log", "-w", "ws"]).exits(0);
    assert!(String::from_utf8(log.stdout).unwrap().contains("hello"));
    world.model_says([text("more")]);
    world.go_on().args(["-m", "more"]).exits(0).prints("more\n");

    // As a kill leaves them: one run without its records, and the remains of another.
    fs::remove_dir_all(run.path("io")).unwrap();
    world.write("ws/.delta/.pruned.other/metadata.json", "{}");
    symlink(world.path("agent"), world.path("ws/.delta/.pruned.link")).unwrap();
    prune(&world, &[]).says("removed 1 run");
    assert!(!run.dir.exists() && !world.exists("ws/.delta/.pruned.other"));
    assert!(world.exists("agent/agent.yaml"));
}

/// A run whose engine died on another host, `n17`, in a job with this restart count.
fn dead_elsewhere(world: &World) -> Run {
    let asked = world.server.requests().len();
    world.model_says([text("late").held()]);
    let job = start(world, "ws")
        .env("SLURM_JOB_ID", "41")
        .env("SLURM_RESTART_COUNT", "1")
        .spawn();
    world.server.wait_for(asked + 1);
    job.kill();
    let run = world.latest();
    let host = run.metadata()["hostname"].to_string();
    for file in ["journal.jsonl", "metadata.json"] {
        let elsewhere = run.text(file).replace(&host, "\"n17\"");
        fs::remove_file(run.path(file)).unwrap();
        fs::write(run.path(file), elsewhere).unwrap();
    }
    run
}

/// The run's command on a shared file system, with a script that says whether an owner is gone.
fn checked(world: &World, script: &str) -> Delta {
    let check = world.script("check", &format!("#!/bin/sh\n{script}\n"));
    start(world, "ws").env("DELTA_SHARED_FS", "1").env(
        "DELTA_OWNER_CHECK",
        format!("{} --word 'a b'", check.display()),
    )
}

#[test]
fn a_run_of_a_dead_host_is_taken_over_when_the_check_says_that_its_owner_is_gone() {
    let world = World::new();
    let run = dead_elsewhere(&world);
    let pid = run.metadata()["pid"].to_string();
    let before = snapshot(&run.dir);
    for (script, words) in [
        ("exit 0", "is running on host n17, pid"),
        ("exit 1", "ended with 1"),
        ("kill -9 $$", "ended with 137"),
    ] {
        checked(&world, script).refuses(75, words);
        assert!(snapshot(&run.dir) == before, "something was changed");
    }
    let missing = start(&world, "ws").env("DELTA_SHARED_FS", "1");
    let missing = missing.env("DELTA_OWNER_CHECK", "/nowhere/check");
    missing.exits(75).says("/nowhere/check: not found");
    world.model_says([text("done")]);
    let asked = "printf '%s\\n' \"$@\" > \"$HOME/asked\"; env > \"$HOME/env\"; exit 10";
    let job = checked(&world, asked)
        .env("SLURM_JOB_ID", "41")
        .env("SLURM_RESTART_COUNT", "2")
        .env("DELTA_API_KEY", "sk-secret");
    job.exits(0)
        .prints("done\n")
        .says("took the run over from host n17, pid");
    let dir = run.dir.canonicalize().unwrap().display().to_string();
    assert_eq!(world.lines("asked"), ["--word", "a b", "n17", &pid, &dir]);
    let env = world.lines("env");
    for line in [
        "DELTA_OWNER_SLURM_JOB_ID=41",
        "DELTA_OWNER_SLURM_RESTART_COUNT=1",
        "SLURM_RESTART_COUNT=2",
    ] {
        assert!(env.iter().any(|it| it == line), "{line}: {env:?}");
    }
    assert!(!env.iter().any(|it| it.contains("sk-secret")));
    let note = run.events("SYSTEM_MESSAGE");
    assert!(
        note[0]["content"]
            .as_str()
            .unwrap()
            .contains("took the run over"),
        "{note:?}"
    );
    let starts = run.events("ENGINE_START");
    assert_eq!(
        starts[1]["launcher"],
        json!({"SLURM_JOB_ID": "41", "SLURM_RESTART_COUNT": "2"})
    );
    let claim: Value = serde_json::from_str(&run.text("takeover.1/owner.json")).unwrap();
    assert_eq!(
        (&claim["starts"], &claim["launcher"]["SLURM_JOB_ID"]),
        (&json!(1), &json!("41"))
    );
}

#[test]
fn of_several_that_would_take_a_run_over_exactly_one_has_it() {
    let world = World::new();
    let run = dead_elsewhere(&world);
    // Somebody on a third host has claimed it meanwhile: the check is asked for that one.
    let third = json!({"hostname": "n18", "pid": 7, "starts": 1}).to_string();
    let third = third.replace('"', "\\\"");
    let claims = format!(
        "echo \"$3\" >> \"$HOME/asked\"; mkdir \"$5/takeover.1\" && printf \"{third}\" > \"$5/takeover.1/owner.json\"; exit 10"
    );
    checked(&world, &claims)
        .exits(75)
        .says("is being taken over by another process");
    let one = |script: &str| checked(&world, script).end();
    one("echo \"$3\" >> \"$HOME/asked\"; exit 0")
        .exits(75)
        .says("is running on host n18, pid 7");
    assert_eq!(world.lines("asked"), ["n17", "n18"]);
    // That one is gone, too, before it has recorded a start.
    world.model_says([text("done")]);
    one("exit 10")
        .exits(0)
        .says("took the run over from host n18");
    assert_eq!(run.events("ENGINE_START").len(), 2);
    let left = fs::read_dir(&run.dir)
        .unwrap()
        .map(|it| it.unwrap().file_name());
    let mut left: Vec<_> = left.filter_map(|name| name.into_string().ok()).collect();
    left.retain(|name| name.contains("takeover"));
    left.sort();
    assert_eq!(left, ["takeover.1", "takeover.2"]);
}

#[test]
fn a_claim_from_elsewhere_binds_the_host_that_had_the_run_and_a_record_is_no_command() {
    let world = World::new();
    // Here the engine has died; elsewhere somebody has claimed the run, and has not recorded a start yet.
    held_in(&world, "ws").kill();
    let run = world.latest();
    let claim = |host: &str| {
        fs::create_dir_all(run.path("takeover.1")).unwrap();
        let owner = json!({"hostname": host, "pid": 7, "starts": 1});
        fs::write(run.path("takeover.1/owner.json"), owner.to_string()).unwrap();
    };
    claim("n18");
    checked(&world, "exit 0")
        .exits(75)
        .says("is running on host n18");
    start(&world, "ws")
        .env("DELTA_SHARED_FS", "1")
        .exits(75)
        .says("host n18");
    for host in ["--help", "$(touch x)", "a b", "\u{1b}[2J"] {
        claim(host);
        let outcome = checked(&world, "touch \"$HOME/asked\"; exit 10").exits(75);
        let outcome = outcome.says("names no host");
        assert!(!outcome.stderr.contains('\u{1b}'));
    }
    assert!(!world.exists("asked"));
    world.model_says([text("done")]);
    // A lock is proof on a file system that no other host sees.
    start(&world, "ws")
        .env("DELTA_OWNER_CHECK", "false")
        .exits(0);
}

#[test]
fn the_check_for_slurm_tells_an_earlier_life_of_a_job_from_a_live_one() {
    let world = World::new();
    world.script(
        "bin/scontrol",
        "#!/bin/sh\n[ \"$*\" = '--oneliner show job 41' ] || exit 9\ncat \"$HOME/told\"\n[ ! -e \"$HOME/fails\" ]\n",
    );
    let check = source().join("orchestration/batch/slurm-owner");
    let programs = format!(
        "{}:{}",
        world.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let says = |owner: &[(&str, &str)], own: &[(&str, &str)]| {
        let mut command = std::process::Command::new(&check);
        command.args(["n17", "7", "/ws/.delta/r"]).env_clear();
        command.env("PATH", &programs).env("HOME", world.home());
        command.envs(
            owner
                .iter()
                .map(|(name, value)| (format!("DELTA_OWNER_{name}"), value)),
        );
        command.envs(own.iter().copied());
        command.status().unwrap().code().unwrap()
    };
    let job = |restarts: &'static str| [("SLURM_JOB_ID", "41"), ("SLURM_RESTART_COUNT", restarts)];
    let first = [("SLURM_JOB_ID", "41")];
    assert_eq!(says(&first, &job("1")), 10, "a first start has no count");
    assert_eq!(says(&job("1"), &job("2")), 10);
    assert_eq!(says(&job("2"), &job("2")), 0);
    assert_eq!(says(&job("2"), &job("1")), 0);
    assert_eq!(says(&[], &job("1")), 1, "it was no job");
    let other = [("SLURM_JOB_ID", "50")];
    for (state, restarts, code) in [
        ("RUNNING", 0, 0),
        ("RUNNING", 1, 10),
        ("PENDING", 0, 0),
        ("NODE_FAIL", 0, 10),
        ("CANCELLED", 0, 10),
        ("COMPLETED", 0, 10),
        ("NEW_WORD", 0, 1),
    ] {
        let told = format!(
            "JobId=41 ArrayJobId=40 JobName=x Restarts={restarts} JobState={state} Reason=None\n"
        );
        world.write("told", told);
        assert_eq!(says(&first, &other), code, "{state} {restarts}");
    }
    world.write("fails", "");
    world.write("told", "slurm_load_jobs error: Invalid job id specified\n");
    assert_eq!(says(&first, &other), 10, "Slurm has forgotten it");
    world.write(
        "told",
        "slurm_load_jobs error: Unable to contact slurm controller\n",
    );
    assert_eq!(says(&first, &other), 1);
    assert_eq!(says(&[("SLURM_JOB_ID", "41; x")], &other), 1);
}

#[test]
fn stats_of_directories_are_one_table_by_agent_model_and_day() {
    let world = World::new().top("pricing: {input: 1000, output: 0}");
    for place in ["a/one", "a/two", "b"] {
        run_in(&world, place, text("done"), 0);
    }
    let asks = run_in(&world, "a/asks", question(), 101);
    amend(&asks, |metadata| {
        metadata["created_at"] = "2026-01-02T03:04:05.000Z".into();
    });
    let csv = world
        .delta(["stats", "--format", "csv", "-r", "a", "b"])
        .exits(0);
    let csv = String::from_utf8(csv.stdout).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "agent,model,day,runs,completed,tokens,cost,seconds"
    );
    assert!(
        lines[1].starts_with("probe,scripted,2026-01-02,1,0,110,0.100000,"),
        "{csv}"
    );
    assert!(
        lines[2].ends_with(|c: char| c.is_ascii_digit()) && lines[2].contains(",3,3,330,0.300000,"),
        "{csv}"
    );
    assert_eq!(lines.len(), 3);
    let json = world
        .delta(["stats", "--format", "json", "-r", "a"])
        .exits(0);
    let groups: Vec<serde_json::Value> = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((groups.len(), &groups[1]["runs"]), (2, &json!(2)));
    let table = world.delta(["stats", "-r", "b"]).exits(0);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.starts_with("AGENT  MODEL"), "{table}");
    world
        .delta(["stats", "-r", "nowhere"])
        .exits(1)
        .says("there is no directory nowhere");
    let ledger = asks.path("spending.jsonl");
    std::fs::remove_file(&ledger).unwrap();
    std::fs::create_dir(&ledger).unwrap();
    world
        .delta(["stats", "-r", "a"])
        .exits(0)
        .says("spending.jsonl");
}
