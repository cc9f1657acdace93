//! A recorded run again: identical, or told where it parts.

use crate::harness::services::{streaming, text_stream};
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";

/// A run of three requests.
fn recorded() -> World {
    let world = World::with_tools(ECHO);
    for n in 1..3 {
        let words = json!({"words": format!("number {n} \u{e9}")});
        world.model_says([call(&format!("call_{n}"), "echo", &words)]);
    }
    world.model_says([text("done")]);
    world.run("count").exits(0);
    world
}

fn replay(world: &World) -> Delta {
    let tmp = world.path("tmp");
    fs::create_dir_all(&tmp).unwrap();
    world
        .delta(["replay", "-w", "ws", "LATEST"])
        .env("TMPDIR", tmp)
}

#[test]
fn the_survey_replays_identically_with_its_tools_run_again() {
    let survey = Recorded::load("survey");
    let before = snapshot(&survey.world.path("old"));
    survey
        .world
        .delta([
            "replay", "-w", "old", &survey.id, "-a", "agent", "--from", "start", "--to", "new",
        ])
        .exits(0)
        .prints("identical: 35 requests\n");
    assert!(snapshot(&survey.world.path("old")) == before);
    assert!(
        survey
            .world
            .read("new/report.txt")
            .ends_with("oak closed\n")
    );
}

#[test]
fn the_survey_replays_identically_from_the_record_alone() {
    let survey = Recorded::load("survey");
    for program in ["inventory.sh", "guard.sh"] {
        fs::remove_file(survey.world.path("agent").join(program)).unwrap();
    }
    survey
        .world
        .delta([
            "replay", "-w", "old", "LATEST", "-a", "agent", "--from", "start", "--to", "new",
        ])
        .args(["--tools", "recorded"])
        .exits(0)
        .prints("identical: 35 requests\n");
    assert!(
        !survey.world.exists("new/report.txt"),
        "nothing was executed"
    );
}

/// What a small model of 1.5 billion parameters did on its own: it was recorded once, from a server on the
/// same machine.
#[test]
fn a_real_model_s_run_replays_identically_with_its_tools_run_again() {
    let books = Recorded::load("bookkeeping");
    let before = snapshot(&books.world.path("old"));
    for tools in ["run", "recorded"] {
        books
            .world
            .delta([
                "replay", "-w", "old", &books.id, "-a", "agent", "--from", "start", "--to", tools,
            ])
            .args(["--tools", tools])
            .exits(0)
            .prints("identical: 34 requests\n");
    }
    assert!(snapshot(&books.world.path("old")) == before);
    assert_eq!(books.world.lines("run/ledger.txt").len(), 8);
    assert!(!books.world.exists("recorded/ledger.txt"));
}

#[test]
fn a_real_model_s_answers_drive_its_agent_again() {
    let books = Recorded::load("bookkeeping");
    let yaml = books.world.read("agent/agent.yaml");
    let model = format!(
        "llm:\n  command: ['{}', model, replay, '{}']\n",
        env!("CARGO_BIN_EXE_delta"),
        books.dir().display()
    );
    books
        .world
        .write("agent/agent.yaml", yaml.replacen("llm:\n", &model, 1));
    copy(&books.world.path("start"), &books.world.workspace());
    books
        .world
        .run("Enter all receipts into the ledger.")
        .exits(0)
        .prints("The grand total of all receipts is 318.72.\n");
    assert_eq!(books.world.latest().invocations().len(), 34);
    // Another message is another request: the model says so instead of answering.
    books
        .world
        .run("Enter no receipts.")
        .exits(4)
        .says("recorded");
}

#[test]
fn the_survey_is_a_model_for_its_own_agent() {
    let survey = Recorded::load("survey");
    let yaml = survey.world.read("agent/agent.yaml");
    let model = format!(
        "llm:\n  command: ['{}', model, replay, '{}']\n",
        env!("CARGO_BIN_EXE_delta"),
        survey.dir().display()
    );
    survey
        .world
        .write("agent/agent.yaml", yaml.replacen("llm:\n", &model, 1));
    copy(&survey.world.path("start"), &survey.world.workspace());
    // Calls that came without ids get others than before: only as far as that the requests are the same.
    survey
        .world
        .run("Write a report about the rain.")
        .args(["--max-iterations", "5"])
        .exits(4);
    assert_eq!(survey.world.latest().invocations().len(), 5);
    let request = |dir: &std::path::Path| {
        let id = dir.file_name().unwrap().to_str().unwrap().to_owned();
        let outcome = Delta::new(survey.world.home())
            .args([
                "request",
                "-w",
                dir.parent().unwrap().parent().unwrap().to_str().unwrap(),
                &id,
                "5",
            ])
            .exits(0);
        outcome.stdout
    };
    assert!(request(&survey.dir()) == request(&survey.world.latest().dir));
}

#[test]
fn a_replay_needs_neither_the_server_nor_a_key_and_leaves_the_run_as_it_is() {
    let world = recorded();
    let before = snapshot(&world.workspace());
    let asked = world.server.requests().len();
    for tools in ["run", "recorded"] {
        replay(&world)
            .args(["--tools", tools])
            .exits(0)
            .prints("identical: 3 requests\n");
    }
    assert!(snapshot(&world.workspace()) == before);
    assert_eq!(world.server.requests().len(), asked);
    assert_eq!(
        fs::read_dir(world.path("tmp")).unwrap().count(),
        0,
        "nothing is left"
    );
}

#[test]
fn shortened_requests_are_compared_whole() {
    let world = World::with_tools(ECHO).top("keep_requests: 1");
    for n in 1..12 {
        let words = json!({"words": "x".repeat(200)});
        world.model_says([call(&format!("call_{n}"), "echo", &words)]);
    }
    world.model_says([text("done")]);
    world.run("go").exits(0);
    replay(&world).exits(0).prints("identical: 12 requests\n");
}

#[test]
fn the_first_divergence_is_shown_with_both_texts() {
    let world = recorded();
    let world =
        world.tools("- {name: echo, description: 'echo ${words}', exec: 'echo not ${words}'}");
    let outcome = replay(&world).exits(1).prints(
        "diverged at iteration 2, messages[3] (tool)\n  recorded: number 1 é\\n\n  replayed: not number 1 é\\n\n",
    );
    outcome.says("kept in");
    assert_eq!(
        fs::read_dir(world.path("tmp")).unwrap().count(),
        1,
        "it is left to be looked at"
    );
}

#[test]
fn tools_that_miss_their_files_get_advice_that_works() {
    let world = World::with_tools("- {name: show, exec: 'cat ${path}'}");
    world.write("ws/a.txt", "text\n");
    world.model_says([call("c", "show", &json!({"path": "a.txt"})), text("done")]);
    world.run("go").exits(0);
    let diverged = replay(&world).exits(1);
    diverged.says("--from DIR").says("--tools recorded");
    for advice in [["--from", "ws"], ["--tools", "recorded"]] {
        replay(&world).args(advice).exits(0).does_not_say("--tools");
    }
    // Where the files have changed since, the first advice has been followed.
    world.write("ws/a.txt", "changed\n");
    let changed = replay(&world).args(["--from", "ws"]).exits(1);
    changed.says("--tools recorded").does_not_say("--from DIR");
    replay(&world).arg("-q").exits(1).does_not_say("--tools");
}

#[test]
fn advice_is_given_where_it_can_help() {
    // A file of the workspace in the context: a copy has it, and there is no program to leave out.
    let world = World::new();
    let context =
        "sources:\n- {type: file, path: '${CWD}/DELTA.md', on_missing: skip}\n- {type: journal}\n";
    world.write("agent/context.yaml", context);
    world.write("ws/DELTA.md", "Notes.\n");
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let diverged = replay(&world).exits(1);
    diverged.says("--from DIR").does_not_say("--tools");
    replay(&world).args(["--from", "ws"]).exits(0);
    // Another description of a tool: neither helps.
    let world = recorded();
    let world = world.tools("- {name: echo, description: other, exec: 'echo ${words}'}");
    let diverged = replay(&world).exits(1);
    diverged.does_not_say("--from").does_not_say("--tools");
}

#[test]
fn another_prompt_diverges_at_the_first_request() {
    let world = recorded();
    copy(&world.path("agent"), &world.path("other"));
    world.write("other/system_prompt.md", "You are another.\n");
    let outcome = replay(&world)
        .args(["-a", "other", "--tools", "recorded"])
        .exits(1);
    let printed = String::from_utf8(outcome.stdout).unwrap();
    assert!(
        printed.starts_with("diverged at iteration 1, messages[0] (system)\n"),
        "{printed}"
    );
    assert!(printed.contains("You are a test.") && printed.contains("You are another."));
    assert!(!printed.contains("only difference"));
}

#[test]
fn a_difference_that_is_only_the_workspace_s_path_is_named_as_such() {
    let world = World::with_tools("- {name: where, exec: pwd}");
    world.model_says([call("a", "where", &json!({})), text("done")]);
    world.run("go").exits(0);
    let outcome = replay(&world).args(["--to", "new"]).exits(1);
    let printed = String::from_utf8(outcome.stdout).unwrap();
    assert!(
        printed.contains("the only difference is in paths"),
        "{printed}"
    );
    assert!(printed.contains(world.workspace().to_str().unwrap()));
    replay(&world).args(["--tools", "recorded"]).exits(0);
}

#[test]
fn it_makes_no_difference_whether_an_answer_was_streamed() {
    for (recorded, repeated) in [("true", "false"), ("false", "true")] {
        let world = World::new();
        world.model_says([match recorded {
            "true" => streaming(&text_stream(&["do", "ne"], None)),
            _ => text("done"),
        }]);
        let stream = |value: &str| ["--set".to_owned(), format!("llm.stream={value}")];
        world.run("go").args(stream(recorded)).exits(0);
        let request = world.server.last().json();
        assert_eq!(request["stream"] == true, recorded == "true");
        let outcome = replay(&world).args(stream(repeated)).exits(0);
        let printed = String::from_utf8(outcome.stdout).unwrap();
        assert!(printed.contains("identical: 1 request"), "{printed}");
    }
}

#[test]
fn calls_without_ids_get_those_that_were_recorded() {
    let world = World::with_tools(ECHO);
    let function = json!({"name": "echo", "arguments": "{\"words\":\"x\"}"});
    world.model_says([
        message(&json!({"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": function}]})),
        text("done"),
    ]);
    world.run("go").exits(0);
    replay(&world).exits(0);
}

#[test]
fn hooks_are_run_again_or_answered_from_the_record() {
    let world = World::with_tools(ECHO);
    // Adds a word to each request that depends on how often it has run here.
    world.script(
        "agent/hook.sh",
        "#!/bin/sh\necho x >> hooked\nn=$(wc -l < hooked | tr -d ' ')\n\
         sed \"s/You are a test/& number $n/\" > \"$DELTA_HOOK_IO_PATH/output/final_payload.json\"\n",
    );
    world.script(
        "agent/answer.sh",
        "#!/bin/sh\nsed s/teh/the/ > \"$DELTA_HOOK_IO_PATH/output/final_payload.json\"\n",
    );
    world.write(
        "agent/hooks.yaml",
        "pre_llm_request: {command: ['${AGENT_HOME}/hook.sh']}\n\
         post_llm_response: {command: ['${AGENT_HOME}/answer.sh']}\n",
    );
    world.model_says([call("a", "echo", &json!({"words": "teh"})), text("teh end")]);
    world.run("go").exits(0).prints("the end\n");
    replay(&world).exits(0);
    fs::remove_file(world.path("agent/hook.sh")).unwrap();
    fs::remove_file(world.path("agent/answer.sh")).unwrap();
    replay(&world).args(["--tools", "recorded"]).exits(0);
    replay(&world).exits(1);
}

#[test]
fn a_person_is_not_asked_again() {
    let world = World::new();
    world.model_says([
        call("a", "ask_human", &json!({"prompt": "Which?"})),
        text("done"),
    ]);
    world.run("go").exits(101);
    world.go_on().args(["-m", "this one"]).exits(0);
    replay(&world).exits(0).prints("identical: 2 requests\n");
}

#[test]
fn a_call_that_only_a_guard_of_today_asks_about_keeps_its_recorded_result() {
    let world = recorded();
    world.script(
        "agent/guard.sh",
        "#!/bin/sh\necho '{\"action\":\"ask\"}' > \"$DELTA_HOOK_IO_PATH/output/control.json\"\n",
    );
    world.write(
        "agent/hooks.yaml",
        "pre_tool_execution: {command: ['${AGENT_HOME}/guard.sh']}\n",
    );
    replay(&world).exits(0).prints("identical: 3 requests\n");
}

#[test]
fn a_run_that_was_stopped_and_spoken_to_replays_as_one() {
    let world = World::with_tools(ECHO);
    let say = |n: u32| call(&format!("call_{n}"), "echo", &json!({"words": n}));
    world.model_says([say(1), say(2)]);
    world.run("go").args(["--max-iterations", "2"]).exits(4);
    world.model_says([say(3), text("done")]);
    world.go_on().args(["-m", "hurry"]).exits(0);
    world.model_says([text("you are welcome")]);
    world.go_on().args(["-m", "thanks"]).exits(0);
    for tools in ["run", "recorded"] {
        replay(&world)
            .args(["--tools", tools])
            .exits(0)
            .prints("identical: 5 requests\n");
    }
}

#[test]
fn a_live_run_is_not_replayed() {
    let world = World::new();
    world.model_says([text("done").held()]);
    let delta = world.run("go").spawn();
    world.server.wait_for(1);
    replay(&world).refuses(75, "is live");
    world.server.release();
    delta.wait().exits(0);
}

#[test]
fn a_place_that_is_taken_is_refused() {
    let world = recorded();
    world.write("new/file", "");
    replay(&world)
        .args(["--to", "new"])
        .exits(2)
        .says("it is not empty; name");
    replay(&world)
        .args(["--from", "none"])
        .exits(2)
        .says("--from none is not a directory");
}

/// `delta model replay` of the newest run.
fn model(world: &World, request: impl Into<Vec<u8>>) -> Delta {
    let dir = world.latest().dir;
    world
        .delta(["model", "replay", dir.to_str().unwrap()])
        .stdin(request)
}

#[test]
fn a_recorded_request_has_the_recorded_response_to_the_byte() {
    let world = recorded();
    let run = world.latest();
    for (received, invocation) in world.server.requests().iter().zip(run.invocations()) {
        let outcome = model(&world, received.body.clone()).exits(0);
        assert!(outcome.stdout == fs::read(invocation.join("response.json")).unwrap());
    }
}

#[test]
fn a_request_without_an_end_is_refused() {
    let world = recorded();
    let endless = model(&world, "").after("exec </dev/zero").end();
    endless.refuses(2, "the request on stdin is longer than 256 MiB");
}

#[test]
fn another_request_is_a_failure_that_names_the_first_difference() {
    let world = recorded();
    let body = world.server.requests()[1].body.clone();
    let other = String::from_utf8(body)
        .unwrap()
        .replace("number 1 é\\n", "number 7 é\\n");
    model(&world, other.clone())
        .exits(1)
        .prints("")
        .says_one_line()
        .says("none of the 3 recorded ones; the nearest is number 2")
        .says("messages[3] (tool): recorded number 1 é\\n, requested number 7 é\\n");
    let outcome = model(&world, other).arg("--lenient").exits(0);
    let second = world.latest().invocations().remove(1);
    assert!(outcome.stdout == fs::read(second.join("response.json")).unwrap());
}

#[test]
fn nothing_about_a_request_is_normalised() {
    let world = recorded();
    let body = String::from_utf8(world.server.requests()[0].body.clone()).unwrap();
    model(&world, body.replacen(':', ": ", 1))
        .exits(1)
        .says("byte ");
    model(&world, "no request").exits(1).says("not JSON");
}

#[test]
fn a_lenient_model_ends_with_the_recording() {
    let world = recorded();
    let messages: Vec<Value> = (0..3)
        .map(|_| json!({"role": "assistant", "content": "x"}))
        .collect();
    let request = json!({"messages": messages}).to_string();
    model(&world, request)
        .arg("--lenient")
        .exits(1)
        .says("ends after 3");
}

#[test]
fn a_recorded_model_takes_the_place_of_a_server() {
    let world = recorded();
    let dir = world.latest().dir;
    let command = format!(
        "command: ['{}', model, replay, '{}']",
        env!("CARGO_BIN_EXE_delta"),
        dir.display()
    );
    let asked = world.server.requests().len();
    let world = world.llm(&command);
    world
        .delta(["run", "-a", "agent", "-w", "other", "-m", "count"])
        .exits(0)
        .prints("done\n");
    world
        .delta(["run", "-a", "agent", "-w", "third", "-m", "something else"])
        .exits(4)
        .says("messages[1] (user)");
    assert_eq!(world.server.requests().len(), asked);
}

#[test]
fn a_directory_that_is_no_run_is_named() {
    let world = World::new();
    world
        .delta(["model", "replay", "agent"])
        .exits(1)
        .says("is not a run's directory");
    world
        .delta(["model", "replay"])
        .exits(2)
        .says("model needs RUN_DIR: delta model [OPTIONS] replay RUN_DIR");
    world
        .delta(["model", "relpay", "x"])
        .exits(2)
        .says("'replay'");
}
