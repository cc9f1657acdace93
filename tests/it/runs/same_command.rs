//! The same command line again: in every spelling it resumes what it began, and nothing is done twice.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

/// An agent whose tool leaves a line in `charges` beside the workspaces.
fn charging() -> World {
    let world = World::new();
    let file = shell_word(&world.path("charges"));
    world.tools(&format!(
        "- {{name: charge, shell: 'echo charged >> {file}'}}"
    ))
}

fn charge() -> Reply {
    call("a", "charge", &json!({}))
}

/// `delta run` without a workspace, that stops after an iteration.
fn run(world: &World, message: &str) -> Delta {
    world.delta(["run", "-a", "agent", "--max-iterations", "1", "-m", message])
}

fn open_marks(world: &World) -> Vec<String> {
    let entries = fs::read_dir(world.path("agent/workspaces/open"));
    let names = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn workspaces(world: &World) -> usize {
    let entries = fs::read_dir(world.path("agent/workspaces")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('W')).count()
}

#[test]
fn an_interrupted_run_in_an_agents_own_workspace_is_resumed_by_the_same_command() {
    for more in [&[][..], &["-y"], &["-q"], &["--format", "json"]] {
        let world = charging();
        world.model_says([charge(), text("done")]);
        let command = || run(&world, "Charge the customer").args(more);
        let first = command().end();
        assert_ne!(first.code(), Some(0), "{}", first.describe());
        assert_eq!(open_marks(&world), ["W001"]);
        command().exits(0);
        assert_eq!(world.lines("charges"), ["charged"]);
        assert_eq!(workspaces(&world), 1);
        assert_eq!(open_marks(&world), [""; 0]);
    }
}

#[test]
fn a_killed_run_in_an_agents_own_workspace_is_resumed_by_the_same_command() {
    let world = charging();
    world.model_says([charge(), text("done").held()]);
    let running = world
        .delta(["run", "-a", "agent", "-y", "-m", "go"])
        .spawn();
    world.server.wait_for(2);
    running.kill();
    world.server.release();
    world.model_says([text("done")]);
    world
        .delta(["run", "-a", "agent", "-y", "-m", "go"])
        .exits(0)
        .prints("done\n");
    assert_eq!(world.lines("charges"), ["charged"]);
    assert_eq!(workspaces(&world), 1);
}

#[test]
fn an_answer_is_read_by_the_same_command_in_an_agents_own_workspace() {
    let world = charging();
    world.model_says([
        call("a", "ask_human", &json!({"prompt": "Which?"})),
        text("done"),
    ]);
    let command = || world.delta(["run", "-a", "agent", "-y", "-m", "go"]);
    command().exits(101).says("-w");
    command().exits(101).says("Which?");
    let run = Run::latest(&world.path("agent/workspaces/W001"));
    fs::write(run.path("interaction/response.txt"), "this\n").unwrap();
    command().exits(0).prints("done\n");
    assert_eq!(world.server.last().observation("a"), "this");
    assert_eq!(workspaces(&world), 1);
}

#[test]
fn of_several_interrupted_tasks_the_one_with_the_same_text_is_resumed() {
    let world = charging();
    world.model_says([charge(), charge(), text("A done"), text("B done")]);
    run(&world, "A").end();
    run(&world, "B").end();
    assert_eq!(open_marks(&world), ["W001", "W002"]);
    run(&world, "A").exits(0).prints("A done\n");
    run(&world, "B").exits(0).prints("B done\n");
    assert_eq!(world.lines("charges").len(), 2);
    assert_eq!(open_marks(&world), [""; 0]);
}

#[test]
fn in_one_workspace_the_run_with_the_same_text_is_resumed_whatever_came_since() {
    let world = charging();
    let command = |message: &str| world.run(message).args(["--max-iterations", "1"]);
    world.model_says([charge(), charge()]);
    command("A").end();
    command("B").end().says("is INTERRUPTED");
    world.model_says([text("A done"), text("B done"), text("C done")]);
    command("A").exits(0).prints("A done\n");
    command("B").exits(0).prints("B done\n");
    assert_eq!(world.lines("charges").len(), 2);
    assert_eq!(world.runs().len(), 2);
    command("C").exits(0).does_not_say("is INTERRUPTED");
}

#[test]
fn another_agents_run_in_between_changes_nothing() {
    let world = charging();
    copy(&world.path("agent"), &world.path("other"));
    let yaml = world
        .read("agent/agent.yaml")
        .replace("name: probe", "name: other");
    world.write("other/agent.yaml", yaml);
    world.model_says([charge(), text("other done"), text("done")]);
    let command = |agent: &str, message: &str| {
        world.delta([
            "run",
            "-a",
            agent,
            "-w",
            "ws",
            "--max-iterations",
            "1",
            "-m",
            message,
        ])
    };
    command("agent", "go").end();
    command("other", "go").exits(0).prints("other done\n");
    // Without a message, too.
    world.rerun().exits(0).prints("done\n");
    assert_eq!(world.lines("charges"), ["charged"]);
}

#[test]
fn new_begins_anew_and_leaves_what_was_interrupted() {
    let world = charging();
    world.model_says([charge(), charge(), text("done")]);
    run(&world, "go").end();
    run(&world, "go").arg("--new").end();
    assert_eq!(workspaces(&world), 2);
    assert_eq!(open_marks(&world), ["W001", "W002"]);
    // The newer one is resumed first.
    run(&world, "go").exits(0).prints("done\n");
    assert_eq!(open_marks(&world), ["W001"]);
    world.model_says([charge(), charge()]);
    world.run("go").args(["--max-iterations", "1"]).end();
    world
        .run("go")
        .args(["--max-iterations", "1", "--new"])
        .end();
    assert_eq!(world.runs().len(), 2);
}

#[test]
fn new_and_a_name_contradict_each_other() {
    let world = World::new();
    world
        .run("go")
        .args(["--new", "--run-id", "x"])
        .exits(2)
        .says_one_line();
    world
        .run("go")
        .arg("--retry-failed")
        .exits(2)
        .says_one_line()
        .says("--run-id");
    assert!(!world.exists("ws"));
}

#[test]
fn a_live_run_is_passed_over_among_an_agents_own_workspaces() {
    let world = World::new();
    world.model_says([text("first").held()]);
    let command = || world.delta(["run", "-a", "agent", "-m", "go"]);
    let first = command().spawn();
    world.server.wait_for(1);
    world.model_says([text("second")]);
    let second = command().spawn();
    world.server.wait_for(2);
    world.server.release();
    first.wait().exits(0);
    second.wait().exits(0);
    assert_eq!(workspaces(&world), 2);
}

#[test]
fn of_many_starts_at_once_one_resumes_and_the_others_begin() {
    let world = World::new().llm("command: ['${AGENT_HOME}/model.sh']\nmax_retries: 0");
    world.script("agent/model.sh", "#!/bin/sh\nexit 75\n");
    let command = || world.delta(["run", "-a", "agent", "-q", "-m", "go"]);
    command().exits(75);
    world.write("agent/answer.json", text("done").body());
    world.script("agent/model.sh", "#!/bin/sh\ncat \"${0%/*}/answer.json\"\n");
    let all: Vec<Running> = (0..20).map(|_| command().spawn()).collect();
    for delta in all {
        delta.wait().exits(0).prints("done\n");
    }
    assert_eq!(workspaces(&world), 20);
    assert_eq!(open_marks(&world), [""; 0]);
}

#[test]
fn a_mark_that_nothing_stands_behind_is_harmless_and_goes() {
    let world = charging();
    world.model_says([charge(), text("ended elsewhere"), text("done")]);
    run(&world, "go").end();
    world
        .delta(["continue", "-w", "agent/workspaces/W001"])
        .exits(0);
    world.write("agent/workspaces/open/W009", "");
    world.write("agent/workspaces/open/notes", "");
    assert_eq!(open_marks(&world), ["W001", "W009", "notes"]);
    run(&world, "go").exits(0).prints("done\n");
    assert_eq!(workspaces(&world), 2);
    assert_eq!(open_marks(&world), ["notes"]);
}

#[test]
fn a_mark_stays_as_long_as_any_run_of_its_workspace_has_not_ended() {
    let world = charging();
    world.model_says([charge(), text("B done"), text("A done")]);
    run(&world, "A").end();
    let own = "agent/workspaces/W001";
    world
        .delta(["run", "-a", "agent", "-w", own, "-m", "B"])
        .exits(0);
    world
        .delta(["run", "-a", "agent", "-y", "-m", "A"])
        .exits(0)
        .prints("A done\n");
    assert_eq!(world.lines("charges"), ["charged"]);
    assert_eq!(workspaces(&world), 1);
}

#[test]
fn a_dry_run_names_the_run_that_would_be_resumed_and_leaves_no_trace() {
    let world = charging();
    world.model_says([charge()]);
    run(&world, "go").end();
    let before = snapshot(&world.path("agent/workspaces"));
    let dry = run(&world, "go")
        .arg("--dry-run")
        .exits(0)
        .says("would be resumed");
    let request: Value = serde_json::from_slice(&dry.stdout).unwrap();
    assert_eq!(request["messages"].as_array().unwrap().len(), 4);
    let other = run(&world, "other")
        .arg("--dry-run")
        .exits(0)
        .does_not_say("resumed");
    let request: Value = serde_json::from_slice(&other.stdout).unwrap();
    assert_eq!(request["messages"].as_array().unwrap().len(), 2);
    assert_eq!(snapshot(&world.path("agent/workspaces")), before);
}

#[test]
fn a_failed_run_with_a_long_name_gets_one_that_can_still_be_named() {
    let world = World::new();
    let cut = || answer(&json!({"role": "assistant", "content": "half"}), "length");
    world.model_says([cut(), cut(), text("done")]);
    let id = "n".repeat(64);
    let command = || world.run("go").args(["--run-id", &id, "--retry-failed"]);
    command().exits(1);
    command().exits(1);
    command().exits(0).prints("done\n");
    let mut names: Vec<String> = world.runs().iter().map(Run::id).collect();
    names.sort();
    let short = "n".repeat(55);
    let aside = |n: u32| format!("{short}.failed.{n}");
    assert_eq!(names, [aside(1), aside(2), id.clone()]);
    let log = world.delta(["log", "-w", "ws", &aside(1)]).end();
    log.exits(0);
}

#[test]
fn a_failed_run_gives_its_name_free_when_it_is_put_aside() {
    let world = World::new();
    let cut = || {
        answer(
            &json!({"role": "assistant", "content": "half an answ"}),
            "length",
        )
    };
    world.model_says([cut(), cut(), text("done")]);
    let command = || world.run("go").args(["--run-id", "job"]);
    command().exits(1);
    command().exits(1).says("--retry-failed");
    command()
        .arg("--retry-failed")
        .exits(1)
        .says("job.failed.1");
    // The text of the run is known.
    world
        .rerun()
        .args(["--run-id", "job", "--retry-failed"])
        .exits(0)
        .prints("done\n");
    assert_eq!(world.server.last().messages().len(), 2);
    let names: Vec<String> = world.runs().iter().map(Run::id).collect();
    assert_eq!(names, ["job", "job.failed.1", "job.failed.2"]);
    let aside = world
        .delta(["list-runs", "-w", "ws", "--status", "FAILED"])
        .exits(0);
    assert!(String::from_utf8_lossy(&aside.stdout).contains("job.failed.2"));
    // One that has succeeded is not begun again.
    command().arg("--retry-failed").exits(0).prints("done\n");
    assert_eq!(world.server.requests().len(), 3);
}

#[test]
fn an_answer_that_a_new_run_leaves_unread_is_mentioned() {
    let world = World::new();
    world.model_says([
        call("a", "ask_human", &json!({"prompt": "Which?"})),
        text("done"),
    ]);
    world.run("go").exits(101);
    let response = world.latest().path("interaction/response.txt");
    fs::write(&response, "this\n").unwrap();
    world
        .run("something else")
        .exits(0)
        .says("has not been read")
        .says("response.txt");
    assert!(response.exists());
}

#[test]
fn a_run_that_is_named_is_resumed_with_no_other_agent() {
    let world = World::new();
    copy(&world.path("agent"), &world.path("other"));
    let other = world
        .read("other/agent.yaml")
        .replace("name: probe", "name: other");
    world.write("other/agent.yaml", other);
    world.model_says([Reply::error(401, "no such key"), text("done")]);
    let command = |agent| {
        let words = [
            "run", "-a", agent, "-w", "ws", "--run-id", "job", "-m", "go",
        ];
        world.delta(words)
    };
    command("agent").exits(4);
    let [own, given] = ["agent", "other"].map(|name| world.path(name).canonicalize().unwrap());
    let (own, given) = (own.display(), given.display());
    let message = format!("run job belongs to the agent probe ({own}), not to other ({given})");
    command("other").refuses(1, &message);
    command("other").arg("--dry-run").refuses(1, &message);
    assert_eq!(world.server.requests().len(), 1);
    // An agent that has been moved keeps its name.
    fs::rename(world.path("agent"), world.path("moved")).unwrap();
    command("moved").exits(0).prints("done\n");
}

#[test]
fn that_a_run_is_live_is_said_whatever_its_journal_holds() {
    let world = World::new();
    world.model_says([text("done").held()]);
    let running = world.run("go").args(["--run-id", "job"]).spawn();
    world.server.wait_for(1);
    let journal = world.latest().path("journal.jsonl");
    let whole = fs::read(&journal).unwrap();
    fs::write(&journal, "[]").unwrap();
    for command in [
        world.run("go"),
        world.run("go").args(["--run-id", "job"]),
        world.go_on(),
    ] {
        command.exits(75).says("already running, pid");
    }
    fs::write(&journal, whole).unwrap();
    running.kill();
    world.server.release();
}

#[test]
fn every_hint_prints_a_command_that_works_from_anywhere() {
    let world = charging();
    world.model_says([charge(), text("done")]);
    let first = run(&world, "go").end();
    let hint = first
        .stderr
        .lines()
        .find_map(|line| line.split_once("so does: "));
    let words = shlex::split(hint.unwrap().1).unwrap();
    assert_eq!(words[0], "delta");
    Delta::new(world.home())
        .cwd("/")
        .args(&words[1..])
        .exits(0)
        .prints("done\n");
}

#[test]
fn the_hint_of_a_moved_workspace_names_where_it_is_now() {
    let world = World::new();
    world.model_says([call("a", "ask_human", &json!({"prompt": "Which?"}))]);
    world.run("go").exits(101);
    fs::rename(world.path("ws"), world.path("moved")).unwrap();
    let asked = world
        .delta(["run", "-a", "agent", "-w", "moved", "-m", "go"])
        .exits(101);
    asked.says(&format!("-w {} ", world.path("moved").display()));
}

#[test]
fn continue_means_the_current_directory() {
    let world = charging();
    world.model_says([charge(), text("done")]);
    world.run("go").args(["--max-iterations", "1"]).end();
    world
        .delta(["continue"])
        .cwd(world.workspace())
        .exits(0)
        .prints("done\n");
}

#[test]
fn quiet_does_not_hide_how_to_answer() {
    let world = World::new();
    world.model_says([call("a", "ask_human", &json!({"prompt": "Which?"}))]);
    world
        .run("go")
        .arg("-q")
        .exits(101)
        .says("Which?")
        .says("delta continue -w")
        .says("response.txt");
}
