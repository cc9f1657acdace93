//! A model that repeats a call without getting anything new ends the run.

use crate::harness::*;
use serde_json::{Value, json};

const TOOLS: &str = "\
- {name: note, shell: 'echo did >> ../log; echo same'}
- {name: stamp, shell: 'wc -l < ../log'}
- {name: missing, exec: 'no-such-program ${n}'}";

fn note(n: usize) -> Reply {
    call(&format!("call_{n}"), "note", &json!({}))
}

fn repeating(limit: u64) -> World {
    World::with_tools(TOOLS).top(&format!("same_call: {limit}"))
}

fn observations(world: &World) -> Vec<String> {
    let results = world.latest().events("ACTION_RESULT").into_iter();
    results
        .map(|event| event["observation_content"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_nth_same_call_ends_the_run_and_so_does_the_same_command() {
    let world = repeating(4);
    world.model_says((1..=4).map(note));
    let end = world.run("go").exits(4).prints("");
    end.says("INTERRUPTED (no_progress): 4 calls in a row had the same arguments and the same result: note {}");
    let ending = (
        String::from("INTERRUPTED"),
        Some(String::from("no_progress")),
    );
    assert_eq!(world.latest().ending(), ending);
    let told = observations(&world);
    assert_eq!(told[..2], ["same\n", "same\n"]);
    for (n, text) in [(3, &told[2]), (4, &told[3])] {
        let note = format!("[call {n} in a row with the same arguments and the same result");
        assert!(text.starts_with("same\n") && text.contains(&note), "{text}");
    }
    assert_eq!(world.server.last().observation("call_3"), told[2]);
    world.run("go").exits(4).says("no_progress");
    world.go_on().exits(4).says("no_progress");
    assert_eq!(world.server.requests().len(), 4, "a request was sent");
    assert_eq!(world.lines("log").len(), 4);
}

#[test]
fn a_message_or_a_higher_limit_goes_on_after_no_progress() {
    let world = repeating(3);
    world.model_says((1..=3).map(note));
    world.run("go").exits(4);
    world.model_says([note(4), note(5), note(6)]);
    world
        .go_on()
        .args(["-m", "again"])
        .exits(4)
        .says("3 calls in a row");
    world.model_says([note(7), text("done")]);
    let higher = world.go_on().args(["--set", "same_call=5"]);
    higher.exits(0).prints("done\n");
    assert!(observations(&world)[6].contains("[call 4 in a row"));
}

#[test]
fn a_lower_limit_goes_on_once_too_and_ends_after_the_next_same_call() {
    let world = repeating(4);
    world.model_says((1..=4).map(note));
    world.run("go").exits(4);
    world.model_says([Reply::error(400, "odd")]);
    let lower = || world.go_on().args(["--set", "same_call=2"]);
    lower().exits(4).says("model_refused");
    // Nothing has been answered since.
    world.model_says([note(5)]);
    lower().exits(4).says("5 calls in a row");
    lower().exits(4).says("no_progress");
    assert_eq!(world.server.requests().len(), 6, "a request was sent");
}

#[test]
fn the_other_calls_of_the_message_have_their_results_first() {
    let world = repeating(2);
    let same = json!({});
    let three = [
        ("a", "note", same.clone()),
        ("b", "note", same.clone()),
        ("c", "stamp", same),
    ];
    world.model_says([calls(&three)]);
    world.run("go").exits(4).says("2 calls in a row");
    assert_eq!(observations(&world), ["same\n", "same\n", "2\n"]);
}

#[test]
fn another_call_between_them_or_another_result_is_progress() {
    let world = repeating(2);
    let stamp = |id: &str| call(id, "stamp", &json!({}));
    let script = [
        note(1),
        stamp("a"),
        note(2),
        stamp("b"),
        note(3),
        text("done"),
    ];
    world.model_says(script);
    world.run("go").exits(0).prints("done\n");
    // The same call with another result each time.
    let world = World::with_tools("- {name: more, shell: 'echo x >> ../log; wc -l < ../log'}");
    let world = world.top("same_call: 2");
    let more = |id: &str| call(id, "more", &json!({}));
    world.model_says([more("a"), more("b"), more("c"), text("done")]);
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn denied_invalid_and_failing_calls_count() {
    let guard = "#!/bin/sh\necho '{\"action\":\"deny\",\"message\":\"no\"}' > \"$DELTA_HOOK_IO_PATH/output/control.json\"\n";
    let same = |name: &'static str, arguments: Value| {
        (1..=3).map(move |n| call(&format!("call_{n}"), name, &arguments))
    };
    let world = repeating(3);
    world.script("agent/guard.sh", guard);
    world.write(
        "agent/hooks.yaml",
        "pre_tool_execution: {command: ['${AGENT_HOME}/guard.sh']}\n",
    );
    world.model_says(same("note", json!({})));
    world.run("go").exits(4).says("no_progress");
    assert!(observations(&world)[2].starts_with("denied: no\n[call 3 in a row"));
    for (name, arguments) in [
        ("unknown", json!({})),
        ("note", json!({"odd": 1})),
        ("missing", json!({"n": "1"})),
    ] {
        let world = repeating(3);
        world.model_says(same(name, arguments));
        world.run("go").exits(4).says("no_progress");
    }
}

#[test]
fn arguments_that_are_the_same_json_are_the_same() {
    let world = World::with_tools("- {name: two, exec: 'echo ${a} ${b}'}").top("same_call: 2");
    let written = |id: &str, arguments: &str| {
        let function = json!({"name": "two", "arguments": arguments});
        let calls = json!([{"id": id, "type": "function", "function": function}]);
        message(&json!({"role": "assistant", "content": null, "tool_calls": calls}))
    };
    let one = written("a", r#"{"a":"1","b":"2"}"#);
    world.model_says([one, written("b", r#"{ "b": "2", "a": "1" }"#)]);
    world.run("go").exits(4).says("no_progress");
}

#[test]
fn calls_of_a_tool_with_later_neither_count_nor_break_the_row() {
    let later = "- {name: build, shell: 'echo built', later: {check: ['true']}}";
    let world = repeating(3).tools(&format!("{TOOLS}\n{later}"));
    let build = |n: usize| call(&format!("build_{n}"), "build", &json!({}));
    let builds = (1..=4).map(build);
    world.model_says(builds.chain([note(1), build(5), note(2), build(6), note(3)]));
    world
        .run("go")
        .exits(4)
        .says("3 calls in a row")
        .says("note {}");
    assert_eq!(world.server.requests().len(), 9);
    world.run("go").exits(4).says("3 calls in a row");
    assert_eq!(world.server.requests().len(), 9);
}

#[test]
fn a_row_is_counted_over_kills_and_starts() {
    let world = World::with_tools(
        "- {name: note, shell: 'echo did >> ../log; test $(wc -l < ../log) != 3 || kill -9 $PPID; echo same', on_resume: retry}",
    )
    .top("same_call: 4");
    world.model_says((1..=4).map(note));
    let killed = world.run("go").end();
    assert_eq!(killed.killed_by(), Some(9), "{}", killed.describe());
    world.run("go").exits(4).says("4 calls in a row");
    assert_eq!(world.server.requests().len(), 4);
    assert!(observations(&world)[2].contains("[call 3 in a row"));
}

#[test]
fn without_a_limit_nothing_is_counted() {
    let world = World::with_tools(TOOLS);
    world.model_says((1..=12).map(note).chain([text("done")]));
    world.run("go").exits(0).prints("done\n");
    assert!(observations(&world).iter().all(|text| text == "same\n"));
}
