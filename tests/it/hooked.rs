//! Guards, and what passes them.

use crate::harness::*;
use serde_json::{Value, json};

const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";

/// A tool that may be repeated, and leaves a line each time it starts.
const WORK: &str = "- {name: work, on_resume: retry, shell: 'echo \"${n} $DELTA_CALL_ID\" >> ../log; \
                    echo $$ > ../ready; read go < ../go'}";

/// Shell that gives the call these arguments.
fn gives(arguments: &Value) -> String {
    let payload = json!({"tool_args": arguments}).to_string();
    format!("printf %s '{payload}' > \"$DELTA_HOOK_IO_PATH/output/final_payload.json\"\n")
}

/// The agent's guards, in order.
fn guards(world: &World, scripts: &[&str]) {
    let mut hooks = "pre_tool_execution:\n".to_owned();
    for (at, script) in scripts.iter().enumerate() {
        world.write(&format!("agent/guard{at}.sh"), script);
        hooks += &format!("- {{command: [sh, '${{AGENT_HOME}}/guard{at}.sh']}}\n");
    }
    world.write("agent/hooks.yaml", hooks);
}

/// A world whose engine was killed while `work` ran.
fn killed_at_work(guard: &str) -> (World, Fifo, Fifo) {
    let world = World::with_tools(WORK);
    guards(&world, &[guard]);
    let (mut ready, go) = (world.fifo("ready"), world.fifo("go"));
    world
        .server
        .says([call("call_1", "work", &json!({"n": "1"}))]);
    let delta = world.run("go").spawn();
    ready.line();
    delta.kill();
    (world, ready, go)
}

#[test]
fn a_call_that_is_repeated_gets_the_guards_arguments_again() {
    let (world, mut ready, mut go) = killed_at_work(&gives(&json!({"n": "guarded"})));
    world.server.says([text("done")]);
    let delta = world.run("go").spawn();
    ready.line();
    go.tell("on");
    delta.wait().exits(0).prints("done\n");
    let log = world.lines("log");
    assert!(log[0].starts_with("guarded "), "{log:?}");
    assert_eq!(log, [log[0].clone(), log[0].clone()]);
    assert_eq!(world.latest().events("HOOK_EXECUTION_AUDIT").len(), 2);
}

#[test]
fn a_call_that_is_repeated_can_be_denied() {
    let guard = "test -e ../denied && printf '{\"action\":\"deny\",\"message\":\"not twice\"}' \
                 > \"$DELTA_HOOK_IO_PATH/output/control.json\"; exit 0\n";
    let (world, _ready, _go) = killed_at_work(guard);
    world.write("denied", "");
    world.server.says([text("done")]);
    world.run("go").end().exits(0).prints("done\n");
    assert_eq!(world.lines("log").len(), 1, "it ran once");
    let told = world.server.last().observation("call_1");
    assert!(
        told.contains("denied") && told.contains("not twice"),
        "{told}"
    );
}

#[test]
fn a_second_guard_sees_what_the_first_one_made_of_the_call() {
    let world = World::with_tools(ECHO);
    let first = gives(&json!({"words": "changed by one"}));
    guards(&world, &[&first, "cat > ../seen\n"]);
    let told = world.observe("echo", &json!({"words": "original"}));
    assert_eq!(told, "changed by one\n");
    let seen: Value = serde_json::from_str(&world.read("seen")).unwrap();
    assert_eq!(seen["tool_args"], json!({"words": "changed by one"}));
    assert_eq!(seen["resolved_command"], "echo 'changed by one'");
}

#[test]
fn a_guard_after_one_that_denies_is_recorded_as_skipped() {
    let world = World::with_tools(ECHO);
    let deny = "printf '{\"action\":\"deny\",\"message\":\"no\"}' > \"$DELTA_HOOK_IO_PATH/output/control.json\"\n";
    guards(&world, &[deny, "echo > ../ran\n"]);
    let told = world.observe("echo", &json!({"words": "x"}));
    assert!(told.contains("denied"), "{told}");
    assert!(!world.exists("ran"));
    let audits = world.latest().events("HOOK_EXECUTION_AUDIT");
    let statuses: Vec<_> = audits.iter().map(|audit| &audit["status"]).collect();
    assert_eq!(statuses, ["SUCCESS", "SKIPPED"]);
}

#[test]
fn what_a_guard_makes_of_a_question_must_be_a_question() {
    for arguments in [
        json!({"prompt": "Really?", "input_type": "nonsense"}),
        json!({"input_type": "text"}),
        json!({"prompt": "Really?", "surprise": 1}),
    ] {
        let world = World::new();
        guards(&world, &[&gives(&arguments)]);
        let told = world.observe("ask_human", &json!({"prompt": "Shall I?"}));
        assert!(told.contains("changed the arguments"), "{told}");
        let run = world.latest();
        assert!(run.events("HUMAN_INPUT_REQUEST").is_empty());
        assert!(!run.path("interaction/request.json").exists());
    }
    let world = World::new();
    guards(&world, &[&gives(&json!({"prompt": "Really?"}))]);
    let question = call("a", "ask_human", &json!({"prompt": "Shall I?"}));
    world.server.says([question]);
    world.run("go").end().exits(101).says("Really?");
}
