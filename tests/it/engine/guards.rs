//! `pre_tool_execution`: what may run, and with which arguments. What is in doubt does not run.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

const TOUCH: &str = "- {name: touch, exec: 'touch ${file}'}";

/// One guard as an item of a list.
fn guard(script: &str) -> String {
    let script = format!("IN=$DELTA_HOOK_IO_PATH/input OUT=$DELTA_HOOK_IO_PATH/output\n{script}");
    format!(
        "  - {{command: [sh, -c, {}], timeout_ms: 30000}}\n",
        json!(script)
    )
}

fn guarded(guards: &[String]) -> World {
    let world = World::with_tools(TOUCH);
    world.write(
        "agent/hooks.yaml",
        format!("pre_tool_execution:\n{}", guards.concat()),
    );
    world
}

/// Lets the model touch a file; returns what it was told.
#[track_caller]
fn attempt(world: &World) -> String {
    world.model_says([call("a", "touch", &json!({"file": "made"})), text("done")]);
    world.run("go").exits(0).prints("done\n");
    world.server.last().observation("a")
}

/// The tool did not run, and the journal says so.
#[track_caller]
fn nothing_ran(world: &World) {
    let run = world.latest();
    assert!(!world.exists("ws/made"));
    assert!(run.executions().is_empty());
    assert!(run.events("ACTION_REQUEST").is_empty());
    let result = run.result(1);
    assert_eq!(result["status"], "ERROR");
    assert_eq!(result["exit_code"], Value::Null);
}

#[test]
fn a_guard_that_says_nothing_lets_the_tool_run() {
    for script in [
        "true",
        "echo '{}' > $OUT/control.json",
        "echo '{\"action\":\"allow\"}' > $OUT/control.json",
    ] {
        let world = guarded(&[guard(script)]);
        assert_eq!(attempt(&world), "(no output)");
        assert!(world.exists("ws/made"));
    }
}

#[test]
fn a_denied_tool_does_not_run_and_the_model_reads_why() {
    for control in [
        json!({"action": "deny", "message": "not on a Sunday"}),
        json!({"action": "ABORT", "message": "not on a Sunday"}),
        json!({"skip": true, "message": "not on a Sunday"}),
    ] {
        let world = guarded(&[guard(&format!("echo '{control}' > $OUT/control.json"))]);
        assert_eq!(attempt(&world), "denied: not on a Sunday");
        nothing_ran(&world);
        let audit = &world.latest().events("HOOK_EXECUTION_AUDIT")[0];
        assert_eq!(audit["status"], "SUCCESS");
    }
}

#[test]
fn the_first_deny_ends_the_list() {
    let deny = |message: &str| {
        guard(&format!(
            "echo '{{\"action\":\"deny\",\"message\":\"{message}\"}}' > $OUT/control.json"
        ))
    };
    let world = guarded(&[guard("true"), deny("second"), deny("third")]);
    assert_eq!(attempt(&world), "denied: second");
    nothing_ran(&world);
    assert_eq!(world.latest().hooks().len(), 2);
    let audits = world.latest().events("HOOK_EXECUTION_AUDIT");
    assert_eq!(audits.len(), 3);
    assert_eq!(audits[2]["status"], "SKIPPED");
}

#[test]
fn a_guard_that_fails_lets_nothing_through_and_the_model_reads_why() {
    for (item, why) in [
        (guard("echo oh no >&2; exit 3"), "exit code 3: oh no"),
        (guard("kill -SEGV $$"), "exit code 139"),
        (
            guard("echo '{' > $OUT/control.json"),
            "output/control.json: ",
        ),
        (
            guard("echo '{\"action\":\"dney\"}' > $OUT/control.json"),
            "no action \"dney\"",
        ),
        (
            guard("echo '[]' > $OUT/final_payload.json"),
            "tool_args is not an object",
        ),
        (guard("mkdir $OUT/control.json"), "not a regular file"),
        (
            guard("ln -s gone $OUT/control.json"),
            "output/control.json: no such file",
        ),
        (
            guard("echo '{\"Action\":\"deny\"}' > $OUT/control.json"),
            "output/control.json: it has neither action nor skip",
        ),
        (
            guard("sleep 600").replace("30000", "100"),
            "timed out after",
        ),
        (
            "  - {command: [no-such-guard]}\n".to_owned(),
            "no-such-guard: not found",
        ),
        (
            "  - {command: ['${AGENT_HOME}/agent.yaml']}\n".to_owned(),
            "cannot be executed: permission denied",
        ),
    ] {
        let world = guarded(&[item, guard("true")]);
        let told = attempt(&world);
        assert!(
            told.starts_with("denied: the guard failed (") && told.contains(why),
            "{told}"
        );
        nothing_ran(&world);
        let run = world.latest();
        assert_eq!(run.hooks().len(), 1, "{told}");
        assert_eq!(run.events("HOOK_EXECUTION_AUDIT")[0]["status"], "FAILED");
    }
}

#[test]
fn the_output_of_a_guard_that_fails_does_not_count() {
    let script = "echo '{\"action\":\"deny\",\"message\":\"m\"}' > $OUT/control.json; exit 1";
    let world = guarded(&[guard(script)]);
    assert_eq!(attempt(&world), "denied: the guard failed (exit code 1)");
}

#[test]
fn each_guard_sees_the_arguments_that_the_one_before_it_left() {
    let rename = |from: &str, to: &str| {
        guard(&format!(
            "cat $IN/payload.json >> ../seen; echo >> ../seen; sed 's/{from}/{to}/' $IN/payload.json > $OUT/final_payload.json"
        ))
    };
    let world = guarded(&[rename("made", "one"), rename("one", "two")]);
    assert_eq!(attempt(&world), "(no output)");
    assert!(world.exists("ws/two") && !world.exists("ws/made") && !world.exists("ws/one"));
    let seen: Vec<Value> = world
        .lines("seen")
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let payload = |file: &str| json!({"tool_name": "touch", "tool_args": {"file": file}, "resolved_command": format!("touch {file}")});
    assert_eq!(seen, [payload("made"), payload("one")]);
    let request = &world.latest().events("ACTION_REQUEST")[0];
    assert_eq!(request["tool_args"], json!({"file": "two"}));
    assert_eq!(request["resolved_command"], "touch two");
    // Attention changes, memory does not.
    let messages = world.server.last().messages();
    let called = &messages[messages.len() - 2]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(called, "{\"file\":\"made\"}");
}

#[test]
fn arguments_that_the_tool_does_not_take_are_a_guards_failure() {
    for arguments in [json!({}), json!({"file": "x", "mode": "y"})] {
        let payload = json!({"tool_args": arguments});
        let world = guarded(&[guard(&format!(
            "echo '{payload}' > $OUT/final_payload.json"
        ))]);
        let told = attempt(&world);
        assert!(
            told.starts_with("denied: the guard failed (it changed the arguments: "),
            "{told}"
        );
        nothing_ran(&world);
    }
}

#[test]
fn a_guard_cannot_have_another_tool_run() {
    let said = |tool: &str| {
        let payload =
            json!({"tool_name": tool, "tool_args": {"file": "made"}, "resolved_command": "x"});
        guarded(&[guard(&format!(
            "echo '{payload}' > $OUT/final_payload.json"
        ))])
    };
    let world = said("rm");
    assert_eq!(
        attempt(&world),
        "denied: the guard failed (it named another tool, \"rm\"; only tool_args can be changed)"
    );
    nothing_ran(&world);
    let world = said("touch");
    assert_eq!(attempt(&world), "(no output)");
    assert!(world.exists("ws/made"));
}

#[test]
fn a_question_to_a_person_is_guarded_too() {
    let script = "cat $IN/payload.json > ../seen; echo '{\"action\":\"deny\",\"message\":\"nobody is there\"}' > $OUT/control.json";
    let world = guarded(&[guard(script)]);
    world.model_says([
        call("a", "ask_human", &json!({"prompt": "may I?"})),
        text("done"),
    ]);
    world.run("go").exits(0);
    assert_eq!(
        world.server.last().observation("a"),
        "denied: nobody is there"
    );
    let seen: Value = serde_json::from_str(&world.read("seen")).unwrap();
    assert_eq!(seen["tool_name"], "ask_human");
    assert_eq!(seen["tool_args"]["prompt"], "may I?");
    assert!(world.latest().events("HUMAN_INPUT_REQUEST").is_empty());
    assert!(!world.latest().path("interaction/request.json").exists());
}

#[test]
fn what_a_guard_makes_of_a_question_must_be_a_question() {
    for arguments in [
        json!({"prompt": "Really?", "input_type": "nonsense"}),
        json!({"input_type": "text"}),
        json!({"prompt": "Really?", "surprise": 1}),
    ] {
        let payload = json!({"tool_args": arguments});
        let world = guarded(&[guard(&format!(
            "echo '{payload}' > $OUT/final_payload.json"
        ))]);
        let told = world.observe("ask_human", &json!({"prompt": "Shall I?"}));
        let why = "denied: the guard failed (it changed the arguments: ";
        assert!(told.starts_with(why), "{told}");
        let run = world.latest();
        assert!(run.events("HUMAN_INPUT_REQUEST").is_empty());
        assert!(!run.path("interaction/request.json").exists());
    }
}

#[test]
fn a_guard_can_word_a_question_differently() {
    let script = "sed 's/may I/dare I/' $IN/payload.json > $OUT/final_payload.json";
    let world = guarded(&[guard(script)]);
    world.model_says([call("a", "ask_human", &json!({"prompt": "may I?"}))]);
    world.run("go").exits(101).says("dare I?");
    assert_eq!(
        world.latest().events("HUMAN_INPUT_REQUEST")[0]["prompt"],
        "dare I?"
    );
}

#[test]
fn a_tool_that_is_run_again_is_guarded_again() {
    let script = "sed 's/raw/clean/' $IN/payload.json > $OUT/final_payload.json; [ ! -e ../deny ] || echo '{\"action\":\"deny\",\"message\":\"no more\"}' > $OUT/control.json";
    for denies in [false, true] {
        let world = guarded(&[guard(script)]).tools(
            "- {name: hang, exec: 'sh -c \"echo $1 $DELTA_CALL_ID >> ../ran; echo > ../ready; test -e ../go || sleep 600\" -- ${word}', on_resume: retry}",
        );
        let mut ready = world.fifo("ready");
        world.model_says([call("a", "hang", &json!({"word": "raw"}))]);
        let delta = world.run("go").spawn();
        ready.line();
        delta.kill();
        world.write("go", "");
        if denies {
            world.write("deny", "");
        }
        world.model_says([text("done")]);
        world.run("go").exits(0);
        let told = world.server.last().observation("a");
        let ran = world.lines("ran");
        assert!(ran[0].starts_with("clean "), "{ran:?}");
        if denies {
            assert_eq!(told, "denied: no more");
            assert_eq!(ran.len(), 1);
        } else {
            // Under the same DELTA_CALL_ID, with the arguments that the guard made of the model's.
            assert_eq!(ran, [ran[0].clone(), ran[0].clone()]);
        }
    }
}

#[test]
fn a_guard_that_a_signal_keeps_from_its_word_denies_nothing() {
    let script = "[ ! -e ../calm ] || exit 0; echo $$ > ../ready; sleep 600";
    let world = guarded(&[guard(script)]);
    let mut ready = world.fifo("ready");
    world.model_says([call("a", "touch", &json!({"file": "made"}))]);
    let delta = world.run("go").spawn();
    ready.line();
    delta.signal(rustix::process::Signal::INT);
    delta.wait().exits(130);
    assert!(world.latest().events("ACTION_RESULT").is_empty());
    fs::write(world.path("calm"), "").unwrap();
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert!(world.exists("ws/made"));
}

#[test]
fn keys_in_what_hooks_and_generators_say_are_replaced() {
    let key = "sk-very-secret-0";
    let say = "$(cat ../key)";
    let denied = guard(&format!(
        "printf '{{\"action\":\"deny\",\"message\":\"no %s here\"}}' {say} > $OUT/control.json"
    ));
    let failed = guard(&format!(
        "head -c 9000 /dev/zero | tr '\\0' y >&2; echo >&2; echo bad {say} >&2; exit 3"
    ));
    for (item, said) in [(denied, "no [redacted] here"), (failed, "bad [redacted]")] {
        let world = guarded(&[item]);
        let context = format!(
            "sources:\n  - {{type: computed_file, id: c, output_path: c.md, generator: {{command: [sh, -c, 'echo it is {say}; echo oops {say} >&2']}}}}\n  \
             - {{type: computed_file, id: d, output_path: d.md, on_missing: skip, generator: {{command: [sh, -c, 'echo why {say} >&2; exit 1']}}}}\n  - {{type: journal}}\n"
        );
        world.write("agent/context.yaml", context);
        world.write("key", key);
        world
            .model_says([
                call("call_1", "touch", &json!({"file": "made"})),
                text("done"),
            ])
            .may_stay_unasked();
        let ended = world
            .run("go")
            .env("DELTA_API_KEY", key)
            .env("DELTA_LOG", "debug")
            .end();
        assert!(!ended.stderr.contains(key), "{}", ended.stderr);
        let run = world.latest();
        for name in ["journal.jsonl", "engine.log"] {
            let text = std::fs::read_to_string(run.path(name)).unwrap();
            assert!(!text.contains(key), "{name}: {text}");
        }
        let journal = std::fs::read_to_string(run.path("journal.jsonl")).unwrap();
        assert!(journal.contains(said), "{journal}");
        let log = std::fs::read_to_string(run.path("engine.log")).unwrap();
        assert!(
            log.contains("oops [redacted]") && log.contains("why [redacted]"),
            "{log}"
        );
        for request in world.server.requests() {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            assert!(
                !body.contains(key) && body.contains("it is [redacted]"),
                "{body}"
            );
        }
    }
}

#[test]
fn numbers_keep_their_digits_wherever_they_pass() {
    let digits = r#"{"file":25000000000000000000001,"rate":0.12345678901234567890}"#;
    let world = World::with_tools(
        "- {name: words, exec: 'echo ${file} ${rate}', parameters: [{name: file, type: integer}, {name: rate, type: number}]}\n\
         - {name: json, exec: cat, input: json, parameters: [{name: file}, {name: rate}]}",
    );
    let copy = guard("cp $IN/payload.json $OUT/final_payload.json; cat $IN/payload.json >>../seen");
    world.write("agent/hooks.yaml", format!("pre_tool_execution:\n{copy}"));
    let arguments: Value = serde_json::from_str(digits).unwrap();
    let both = calls(&[("a", "words", arguments.clone()), ("b", "json", arguments)]);
    world.model_says([both, text("done")]);
    world.run("go").exits(0);
    let words = "25000000000000000000001 0.12345678901234567890";
    assert_eq!(world.server.last().observation("a").trim_end(), words);
    assert_eq!(world.server.last().observation("b"), digits);
    let journal = fs::read_to_string(world.latest().dir.join("journal.jsonl")).unwrap();
    for (text, count) in [(world.read("seen"), 2), (journal, 2)] {
        assert_eq!(
            text.matches(&format!("\"tool_args\":{digits}")).count(),
            count,
            "{text}"
        );
    }
    for (format, more) in [("chat", ""), ("atif", ""), ("otlp", "--content")] {
        let args = ["export", "-w", "ws", "--format", format, more];
        let export = world
            .delta(args.into_iter().filter(|arg| !arg.is_empty()))
            .exits(0);
        let export = String::from_utf8(export.stdout).unwrap();
        for word in words.split(' ') {
            assert!(export.contains(word), "{format}: {export}");
        }
    }
}
