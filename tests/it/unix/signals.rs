//! INT, TERM and HUP, wherever they find the engine.

use crate::harness::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::time::{Duration, Instant};

const SIGNALS: [(Signal, i32); 3] = [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)];

/// The run ended in good order and goes on by the same command.
#[track_caller]
fn is_interrupted(world: &World, outcome: Outcome, code: i32) {
    outcome.exits(code).prints("");
    assert_eq!(world.latest().ending().0, "INTERRUPTED");
    assert_eq!(world.latest().metadata()["exit_code"], code);
    eventually("no process is left", || world.processes().is_empty());
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn while_the_model_is_waited_for() {
    for (signal, code) in SIGNALS {
        let world = World::new();
        world.model_says([text("never").held()]);
        let delta = world.run("go").spawn();
        world.server.wait_for(1);
        delta.signal(signal);
        is_interrupted(&world, delta.wait(), code);
    }
}

#[test]
fn a_test_whose_signals_are_ignored_passes() {
    let exe = std::env::current_exe().unwrap();
    let mut shell = std::process::Command::new("sh");
    let words = "trap '' HUP INT QUIT TERM; exec \"$0\" --exact unix::signals::while_the_model_is_waited_for";
    let output = shell.args(["-c", words]).arg(exe).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn between_two_attempts() {
    for (signal, code) in SIGNALS {
        let world = World::new();
        world.model_says([Reply::error(503, "Loading model").header("Retry-After", "120")]);
        let delta = world.run("go").spawn();
        eventually("it waits", || delta.stderr().contains("Loading model"));
        delta.signal(signal);
        is_interrupted(&world, delta.wait(), code);
    }
}

#[test]
fn while_a_body_comes_in() {
    let world = World::new();
    world.model_says([text("never whole").claims_length(1_000_000)]);
    let delta = world.run("go").spawn();
    world.server.wait_for(1);
    delta.signal(Signal::INT);
    is_interrupted(&world, delta.wait(), 130);
}

#[test]
fn in_a_tool_that_ends_when_asked() {
    for (signal, code) in SIGNALS {
        let world =
            World::with_tools("- {name: hang, shell: 'echo begun; echo $$ > ../ready; sleep 600'}");
        let mut ready = world.fifo("ready");
        world.model_says([call("a", "hang", &json!({}))]);
        let delta = world.run("go").spawn();
        let tool = ready.pid();
        delta.signal(signal);
        is_interrupted(&world, delta.wait(), code);
        assert!(!alive(tool));
        let result = world.latest().result(1);
        assert_eq!(result["status"], "FAILED");
        let told = world.server.last().observation("a");
        assert!(
            told.starts_with("begun\n") && told.contains("[interrupted]"),
            "{told}"
        );
        assert_eq!(result["observation_content"], told);
    }
}

#[test]
fn a_tool_that_ends_before_delta_knows_of_the_signal_was_interrupted() {
    for at_the_signal in ["kill -9 $$", "exit 1", "exit 0"] {
        let tool = format!(
            "- {{name: hang, shell: 'trap \"{at_the_signal}\" TERM; echo begun; echo $$ > ../ready; \
             while :; do sleep 0.01; done'}}"
        );
        let world = World::with_tools(&tool);
        let mut ready = world.fifo("ready");
        world.model_says([call("a", "hang", &json!({}))]);
        let delta = world.run("go").spawn();
        let tool = ready.pid();
        // As if a whole tree were ended and delta came to it last.
        delta.signal(Signal::STOP);
        delta.signal(Signal::TERM);
        let tool_process = Pid::from_raw(tool.cast_signed()).unwrap();
        kill_process(tool_process, Signal::TERM).unwrap();
        eventually("the tool has ended", || !alive(tool));
        delta.signal(Signal::CONT);
        is_interrupted(&world, delta.wait(), 143);
        assert_eq!(
            world.latest().result(1)["status"],
            "FAILED",
            "{at_the_signal}"
        );
        let told = world.server.last().observation("a");
        assert!(told.contains("[interrupted]"), "{at_the_signal}: {told}");
    }
}

/// Ignores what can be ignored, and so does a child that has left the group.
const STUBBORN: &str = "#!/bin/sh\ntrap '' TERM INT HUP\n\
    setsid sh -c 'echo $$ > ../ready; while :; do sleep 600; done' &\nwhile :; do sleep 600; done\n";

#[test]
fn in_a_tool_that_ignores_them() {
    for (signal, code) in SIGNALS {
        let world = World::with_tools("- {name: hang, exec: 'sh ${AGENT_HOME}/stubborn.sh'}");
        world.write("agent/stubborn.sh", STUBBORN);
        let mut ready = world.fifo("ready");
        world.model_says([call("a", "hang", &json!({}))]);
        let delta = world.run("go").spawn();
        ready.line();
        delta.signal(signal);
        is_interrupted(&world, delta.wait(), code);
    }
}

#[test]
fn calls_that_come_after_the_interrupted_one_are_run_when_it_goes_on() {
    let world = World::with_tools(
        "- {name: hang, shell: 'echo hang >> ../log; echo $$ > ../ready; sleep 600'}\n\
         - {name: note, shell: 'echo ${n} >> ../log'}",
    );
    let mut ready = world.fifo("ready");
    let all = [
        ("a", "note", json!({"n": "1"})),
        ("b", "hang", json!({})),
        ("c", "note", json!({"n": "3"})),
    ];
    world.model_says([calls(&all)]);
    let delta = world.run("go").spawn();
    ready.line();
    delta.signal(Signal::INT);
    is_interrupted(&world, delta.wait(), 130);
    assert_eq!(world.lines("log"), ["1", "hang", "3"]);
    assert_eq!(world.latest().events("ACTION_RESULT").len(), 3);
}

#[test]
fn in_a_program_that_is_the_model() {
    let world = World::new().program([text("never"), text("done")]);
    world.write(
        "agent/model/1.sh",
        "trap '' TERM\necho $$ > ../../ready\nwhile :; do sleep 600; done\n",
    );
    let mut ready = world.fifo("ready");
    let delta = world.run("go").spawn();
    ready.line();
    delta.signal(Signal::INT);
    delta.wait().exits(130).prints("");
    assert_eq!(world.latest().ending().0, "INTERRUPTED");
    eventually("no process is left", || world.processes().is_empty());
    world.run("go").exits(0).prints("done\n");
}

/// In a tool that says when it is asked to end, and does not.
fn asked_to_end() -> (World, Running, Fifo) {
    let world = World::with_tools("- {name: hang, exec: 'sh ${AGENT_HOME}/hang.sh'}");
    let script =
        "trap 'echo asked > ../ready' TERM\necho begun > ../ready\nwhile :; do sleep 0.05; done\n";
    world.write("agent/hang.sh", script);
    let mut ready = world.fifo("ready");
    world.model_says([call("a", "hang", &json!({}))]);
    let delta = world.run("go").spawn();
    assert_eq!(ready.line(), "begun");
    (world, delta, ready)
}

#[test]
fn a_second_interrupt_kills_the_tool_at_once_and_nothing_is_lost() {
    let (world, delta, mut ready) = asked_to_end();
    delta.signal(Signal::INT);
    assert_eq!(ready.line(), "asked");
    delta.signal(Signal::INT);
    delta.wait().exits(130).says("interrupted");
    assert!(world.processes().is_empty(), "the tool has been killed");
    assert_eq!(world.latest().ending().0, "INTERRUPTED");
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.latest().events("ACTION_RESULT").len(), 1);
    eventually("no process is left", || world.processes().is_empty());
}

#[test]
fn a_repeated_term_changes_nothing() {
    let (world, delta, mut ready) = asked_to_end();
    delta.signal(Signal::TERM);
    assert_eq!(ready.line(), "asked");
    delta.signal(Signal::TERM);
    delta.signal(Signal::HUP);
    is_interrupted(&world, delta.wait(), 143);
    assert!(
        world.latest().result(1)["observation_content"]
            .as_str()
            .unwrap()
            .contains("[interrupted]")
    );
}

#[test]
fn the_way_to_go_on_is_told() {
    let world = World::new();
    world.model_says([text("never").held()]);
    let delta = world.run("go").spawn();
    world.server.wait_for(1);
    delta.signal(Signal::INT);
    let id = world.latest().id();
    let hint = format!(
        "resumes it, and so does: delta continue -w {}",
        world.path("ws").display()
    );
    delta
        .wait()
        .exits(130)
        .says(&format!("{hint} --run-id {id}\n"));
    // A person is told no more than is needed here.
    let mut terminal = Terminal::new();
    world.model_says([text("never").held()]);
    let delta = world.run("go").all_at(&terminal).spawn();
    world.server.wait_for(2);
    delta.signal(Signal::INT);
    terminal.shows(&format!("{hint}\r\n"));
    delta.wait().exits(130);
}

#[test]
fn format_json_tells_about_an_interrupted_run() {
    let world = World::new();
    world.model_says([text("never").held()]);
    let delta = world.run("go").json().spawn();
    world.server.wait_for(1);
    delta.signal(Signal::TERM);
    let object = delta.wait().exits(143).object();
    assert_eq!(object["status"], "INTERRUPTED");
    assert_eq!(object["exit_code"], 143);
}

#[test]
fn while_the_message_is_read() {
    for (signal, code) in SIGNALS {
        let world = World::new();
        let mut delta = world.run("-").open_stdin().spawn();
        // More than a pipe holds: when all is written, it reads.
        delta.type_in(&"x".repeat(300_000));
        delta.signal(signal);
        delta.wait().exits(code).prints("");
        assert!(!world.exists("ws"));
    }
}

#[test]
fn in_hooks_that_ignore_them() {
    let world = World::with_tools(
        "- {name: hang, shell: 'echo begun > ../ready; while :; do sleep 600; done'}",
    );
    let stubborn = "command: [sh, '${AGENT_HOME}/stubborn.sh']";
    let hooks = format!(
        "post_tool_execution: {{{stubborn}}}\non_run_end:\n{}",
        format!("- {{{stubborn}}}\n").repeat(8)
    );
    world.write("agent/hooks.yaml", hooks);
    let script = "trap '' TERM INT HUP\nwhile :; do sleep 600; done\n";
    world.write("agent/stubborn.sh", script);
    let mut ready = world.fifo("ready");
    world.model_says([call("a", "hang", &json!({}))]);
    let delta = world.run("go").spawn();
    ready.line();
    let asked = Instant::now();
    delta.signal(Signal::INT);
    delta.wait().exits(130).prints("");
    // Three are promised, to all hooks together.
    assert!(asked.elapsed() < Duration::from_secs(12));
    let run = world.latest();
    assert_eq!(run.ending().0, "INTERRUPTED");
    assert_eq!(run.result(1)["status"], "FAILED");
    let audits = run.events("HOOK_EXECUTION_AUDIT");
    let names: Vec<_> = audits.iter().map(|audit| &audit["hook_name"]).collect();
    let expected = [vec!["post_tool_execution"], vec!["on_run_end"; 8]].concat();
    assert_eq!(names, expected);
    assert!(audits.iter().all(|audit| audit["status"] != "SUCCESS"));
    eventually("no process is left", || world.processes().is_empty());
}

#[test]
fn hooks_at_the_end_that_do_their_work_have_the_time_for_it() {
    let world = World::new();
    let write =
        |name: &str| format!("- {{command: [sh, -c, 'sleep 0.1; echo {name} >> ../ended']}}\n");
    let hooks = format!("on_run_end:\n{}{}", write("one"), write("two"));
    world.write("agent/hooks.yaml", hooks);
    world.model_says([text("never").held()]);
    let delta = world.run("go").spawn();
    world.server.wait_for(1);
    delta.signal(Signal::INT);
    delta.wait().exits(130).prints("");
    assert_eq!(world.lines("ended"), ["one", "two"]);
}
