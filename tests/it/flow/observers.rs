//! Observers: `delta flow observe`, and those of `plugins.yaml`.

use crate::flow::run::{chain, run};
use crate::harness::*;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;

/// Keeps each event, and ends with the first end of an engine.
const KEEPER: &str = r#"
while read -r event; do
    printf '%s\n' "$event" >>"$FLOW_WORKSPACE/seen"
    case $event in *ENGINE_END*) echo heard; exit 0;; esac
done
"#;

fn observed(world: &World, plugins: &str) {
    chain(world, "shell: 'echo 1'");
    world.write("f/keep.sh", KEEPER);
    world.write("f/plugins.yaml", format!("plugins:\n{plugins}\n"));
}

fn flow(world: &World, more: &[&str]) -> Outcome {
    let command = run(world).args(["--run-id", "r", "-m", "x"]);
    command.args(more).end()
}

fn observe(world: &World, program: &[&str]) -> Delta {
    let words = ["observe", "r", "-w", "ws", "--id", "mine", "--"];
    Delta::flow(world.home()).args(words).args(program)
}

fn seen(world: &World) -> Vec<Value> {
    let lines = world.lines("ws/seen").into_iter();
    lines
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect()
}

fn types(events: &[Value]) -> Vec<&str> {
    let types = events.iter().map(|event| event["type"].as_str().unwrap());
    types.collect()
}

#[test]
fn an_observer_of_the_flow_gets_its_events_and_goes_on_where_it_was() {
    let world = World::unasked();
    observed(
        &world,
        "- {id: log, events: ['NODE_*', ENGINE_END], command: [sh, '${FLOW_HOME}/keep.sh']}",
    );
    flow(&world, &["--pause-before", "a"]).exits(4);
    let first = ["NODE_START", "NODE_END", "ENGINE_END"];
    eventually("the end is seen", || types(&seen(&world)) == first);
    let dir = world.path("ws/.delta/r/io/observers/log");
    // The program has ended, and with it its observer.
    eventually("nobody is left", || world.processes().is_empty());
    assert_eq!(
        fs::read_to_string(dir.join("stdout.log")).unwrap(),
        "heard\n"
    );
    flow(&world, &["--pause-before", "a"]).exits(0);
    let rest = [
        "NODE_START",
        "NODE_END",
        "NODE_START",
        "NODE_END",
        "ENGINE_END",
    ];
    let all = [&first[..], &rest].concat();
    eventually("the rest is seen", || types(&seen(&world)) == all);
    eventually("nobody is left", || world.processes().is_empty());
    let run = Run {
        dir: world.path("ws/.delta/r"),
    };
    let is_wanted = |event: &Value| all.contains(&event["type"].as_str().unwrap());
    let lines = fs::read_to_string(run.dir.join("journal.jsonl")).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let told: Vec<Value> = lines.filter(is_wanted).collect();
    assert_eq!(seen(&world), told);
    let offset = fs::read_to_string(dir.join("offset")).unwrap();
    let length = fs::metadata(run.dir.join("journal.jsonl")).unwrap().len();
    assert_eq!(offset, format!("{length}\n"));
}

#[test]
fn events_that_a_program_has_not_read_are_given_to_the_next_one() {
    let world = World::unasked();
    observed(&world, "");
    flow(&world, &[]).exits(0);
    // The shell reads one line, and leaves the others in the pipe.
    let one = "read -r event; printf '%s\\n' \"$event\" >>seen; exit 3";
    observe(&world, &["sh", "-c", one]).exits(1);
    observe(&world, &["sh", "-c", one]).exits(1);
    assert_eq!(types(&seen(&world)), ["ENGINE_START", "ENGINE_START"]);
    fs::remove_file(world.path("ws/seen")).unwrap();
    observe(&world, &["sh", "-c", KEEPER]).exits(0);
    let all = seen(&world);
    let all = types(&all);
    assert_eq!((all[0], all[all.len() - 1]), ("ENGINE_START", "ENGINE_END"));
}

#[test]
fn an_observer_that_sleeps_for_ever_holds_nobody_up_and_ends_after_the_run() {
    let world = World::unasked();
    observed(
        &world,
        "- {id: idle, shell: 'echo $$ >pid; exec sleep 1000'}\n\
         - {id: broken, command: [./not-there]}\n\
         - {id: failing, shell: 'exit 9'}",
    );
    // More than is given at once.
    let workflow = world.read("f/workflow.yaml");
    let long = workflow.replace("echo 1", "head -c 50000 /dev/zero | tr \"\\0\" 1");
    world.write("f/workflow.yaml", long);
    flow(&world, &["-q"]).exits(0);
    eventually("it has begun", || world.exists("ws/pid"));
    let dir = world.path("ws/.delta/r/io/observers");
    let complaint = || fs::read_to_string(dir.join("broken/stderr.log")).unwrap_or_default();
    eventually("it is reported", || complaint().contains("not-there"));
    // One of a name: while it is there, no other begins.
    let words = ["observe", "r", "-w", "ws", "--id", "idle", "--"];
    let other = Delta::flow(world.home()).args(words);
    other.args(["touch", "other"]).exits(0);
    assert!(!world.exists("ws/other"));
    let pid: u32 = world.read("ws/pid").trim().parse().unwrap();
    assert!(alive(pid));
    eventually("it has ended", || world.processes().is_empty());
    assert!(!dir.join("idle/offset").exists());
}

#[test]
fn a_signal_ends_an_observer_and_its_program() {
    let world = World::unasked();
    observed(&world, "");
    flow(&world, &[]).exits(0);
    let running = observe(&world, &["sh", "-c", "touch here; exec sleep 1000"]).spawn();
    eventually("it has begun", || world.exists("ws/here"));
    running.signal(Signal::TERM);
    running.wait().exits(143);
    assert!(world.processes().is_empty());
}

#[test]
fn the_program_ends_also_where_its_records_are_gone() {
    let world = World::new();
    world.server.may_stay_unasked();
    observed(&world, "");
    flow(&world, &[]).exits(0);
    let program = "rm -r .delta/r/io; cat >/dev/null; exec sleep 1000";
    let outcome = observe(&world, &["sh", "-c", program]).end().exits(1);
    outcome.says("offset");
    assert!(world.processes().is_empty());
}

#[test]
fn nothing_is_started_for_records_of_somebody_else_or_without_a_program() {
    let world = World::unasked();
    observed(&world, "");
    flow(&world, &[]).exits(0);
    copy(&world.path("ws"), &world.path("theirs"));
    let command = |words: &[&str]| Delta::flow(world.home()).args(["observe"]).args(words);
    command(&["r", "-w", "theirs", "--", "touch", "begun"])
        .exits(78)
        .says("--adopt");
    command(&["r", "-w", "ws"]).exits(2).says("--");
    command(&["r", "-w", "ws", "--id", "../x", "--", "touch", "begun"]).exits(2);
    command(&["-w", "ws", "--events", "[", "--", "touch", "begun"])
        .exits(2)
        .says("[");
    assert!(
        files_below(world.home())
            .iter()
            .all(|path| !path.ends_with("begun"))
    );
}

#[test]
fn faults_of_plugins_are_errors_of_the_flow() {
    let world = World::unasked();
    observed(
        &world,
        "- {id: a}\n- {id: b, command: ['true'], events: ['[']}\n- {id: b, command: ['true']}",
    );
    let errors = errors_of(&world, "f");
    for (id, words) in [
        ("a", "has no command"),
        ("b", "the pattern"),
        ("b", "is defined twice"),
    ] {
        let is_it = |error: &&Value| error["message"].as_str().unwrap().contains(words);
        let error = errors.iter().find(is_it).unwrap();
        assert_eq!(
            (&error["ids"][0], &error["file"]),
            (&id.into(), &"plugins.yaml".into())
        );
    }
    assert_eq!(errors.len(), 3);
}
