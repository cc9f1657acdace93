//! Hooks: what they are given, what they may change, what is recorded of them.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";

/// An agent with a tool that echoes, and these hooks.
fn with_hooks(yaml: &str) -> World {
    let world = World::with_tools(ECHO);
    world.write("agent/hooks.yaml", yaml);
    world
}

/// A hook that is a line of shell; `IN` and `OUT` are its directories.
fn hook(name: &str, script: &str) -> String {
    let script = format!("IN=$DELTA_HOOK_IO_PATH/input OUT=$DELTA_HOOK_IO_PATH/output\n{script}");
    format!("{name}: {{command: [sh, -c, {}]}}\n", json!(script))
}

fn name(dir: &Path) -> String {
    dir.file_name().unwrap().to_str().unwrap().to_owned()
}

fn json_in(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// What stands in the journal about hooks: name and status.
fn audits(run: &Run) -> Vec<(String, String)> {
    let word = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
    run.events("HOOK_EXECUTION_AUDIT")
        .iter()
        .map(|event| (word(event, "hook_name"), word(event, "status")))
        .collect()
}

const ALL: [&str; 8] = [
    "pre_llm_request",
    "post_llm_response",
    "pre_tool_execution",
    "post_tool_execution",
    "on_error",
    "on_run_end",
    "on_iteration_start",
    "on_iteration_end",
];

/// A run of three iterations in which every hook keeps its environment and its input: a tool that runs,
/// a tool that there is not, an answer.
fn recorded() -> World {
    let keep = "env > $OUT/env; cat > $OUT/stdin; pwd > $OUT/pwd; echo said; echo noted >&2";
    let world = with_hooks(&ALL.map(|name| hook(name, keep)).concat());
    world.model_says([
        call("call_1", "echo", &json!({"words": "hi"})),
        call("call_2", "nosuch", &json!({})),
        text("done"),
    ]);
    world.run("go").exits(0).prints("done\n");
    world
}

#[test]
fn every_moment_comes_in_its_turn_with_a_directory_and_an_event() {
    let world = recorded();
    let run = world.latest();
    let expected = [
        ("on_iteration_start", 1),
        ("pre_llm_request", 1),
        ("post_llm_response", 1),
        ("pre_tool_execution", 1),
        ("post_tool_execution", 1),
        ("on_iteration_end", 1),
        ("on_iteration_start", 2),
        ("pre_llm_request", 2),
        ("post_llm_response", 2),
        ("on_error", 2),
        ("on_iteration_end", 2),
        ("on_iteration_start", 3),
        ("pre_llm_request", 3),
        ("post_llm_response", 3),
        ("on_iteration_end", 3),
        ("on_run_end", 3),
    ];
    let dirs = run.hooks();
    let events = run.events("HOOK_EXECUTION_AUDIT");
    assert_eq!(dirs.len(), expected.len());
    assert_eq!(events.len(), expected.len());
    for (at, (hook, iteration)) in expected.into_iter().enumerate() {
        let dir = format!("{:03}_{hook}", at + 1);
        assert_eq!(name(&dirs[at]), dir);
        let event = &events[at];
        assert_eq!(event["hook_name"], hook);
        assert_eq!(event["status"], "SUCCESS");
        assert_eq!(event["io_path_ref"], format!("io/hooks/{dir}/"));
        assert_eq!(event["iteration"], iteration);
        let context = json_in(&dirs[at].join("input/context.json"));
        let text = |key: &str| context[key].as_str().unwrap();
        assert_eq!(text("hook_name"), hook);
        assert_eq!(context["step"], at + 1);
        assert_eq!(context["iteration"], iteration);
        assert_eq!(text("run_id"), run.id());
        assert_eq!(text("work_dir"), world.workspace().to_str().unwrap());
        assert_eq!(text("agent_home"), world.path("agent").to_str().unwrap());
        assert!(text("timestamp").ends_with('Z'));
    }
    let types = run.types();
    let tail: Vec<&str> = types.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(tail, ["ENGINE_END", "HOOK_EXECUTION_AUDIT"]);
}

#[test]
fn a_hook_sees_its_variables_and_its_payload_on_stdin() {
    let world = recorded();
    let run = world.latest();
    for dir in run.hooks() {
        let number_and_name = name(&dir);
        let hook = number_and_name.split_once('_').unwrap().1;
        let env = fs::read_to_string(dir.join("output/env")).unwrap();
        let get = |key: &str| {
            let found = env
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{key}=")));
            found.map(str::to_owned)
        };
        let context = json_in(&dir.join("input/context.json"));
        let path = |path: &Path| Some(path.to_str().unwrap().to_owned());
        assert_eq!(get("DELTA_RUN_ID"), Some(run.id()));
        assert_eq!(get("DELTA_HOOK_IO_PATH"), path(&dir));
        assert_eq!(get("RUN_DIR"), path(&run.dir));
        assert_eq!(get("JOURNAL_PATH"), path(&run.path("journal.jsonl")));
        assert_eq!(
            get("ITERATION_COUNT"),
            Some(context["iteration"].to_string())
        );
        let of_tools = hook.contains("tool");
        assert_eq!(get("TOOL_NAME"), of_tools.then(|| "echo".to_owned()));
        let result = (hook == "post_tool_execution").then(|| "hi".to_owned());
        assert_eq!(get("TOOL_RESULT"), result);
        let message = "there is no tool 'nosuch'; the tools are: echo, ask_human".to_owned();
        assert_eq!(
            get("ERROR_MESSAGE"),
            (hook == "on_error").then_some(message)
        );
        let first = match hook {
            "pre_llm_request" => "proposed_payload.json",
            _ => "payload.json",
        };
        assert_eq!(
            fs::read(dir.join("output/stdin")).unwrap(),
            fs::read(dir.join("input").join(first)).unwrap()
        );
        let pwd = fs::read_to_string(dir.join("output/pwd")).unwrap();
        assert_eq!(Path::new(pwd.trim_end()), world.workspace());
    }
}

#[test]
fn a_hooks_execution_is_recorded_like_a_tools() {
    let world = recorded();
    for dir in world.latest().hooks() {
        let read = |name: &str| fs::read_to_string(dir.join("execution_meta").join(name)).unwrap();
        assert_eq!(read("stdout.log"), "said\n");
        assert_eq!(read("stderr.log"), "noted\n");
        assert_eq!(read("exit_code.txt"), "0\n");
        assert!(read("duration_ms.txt").trim_end().parse::<u64>().is_ok());
        assert!(read("command.txt").starts_with("sh -c "));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        assert_eq!(mode(&dir.join("input/context.json")), 0o600);
        assert_eq!(mode(&dir.join("execution_meta/stdout.log")), 0o600);
    }
}

#[test]
fn each_payload_is_what_the_moment_is_about() {
    let world = recorded();
    let run = world.latest();
    let dirs = run.hooks();
    let input = |at: usize, file: &str| fs::read(dirs[at - 1].join("input").join(file)).unwrap();
    let payload = |at: usize| json_in(&dirs[at - 1].join("input/payload.json"));
    let sent = &world.server.requests()[0].body;
    assert_eq!(&input(2, "proposed_payload.json"), sent);
    assert_eq!(&input(2, "payload.dat"), sent);
    let response = fs::read(run.invocations()[0].join("response.json")).unwrap();
    assert_eq!(input(3, "payload.json"), response);
    assert_eq!(
        payload(4),
        json!({"tool_name": "echo", "tool_args": {"words": "hi"}, "resolved_command": "echo hi"})
    );
    let after = payload(5);
    assert_eq!(after["tool_name"], "echo");
    assert_eq!(after["exit_code"], 0);
    assert_eq!(after["observation"], "hi\n");
    let stdout = after["stdout_path"].as_str().unwrap();
    assert_eq!(fs::read_to_string(stdout).unwrap(), "hi\n");
    assert!(Path::new(after["stderr_path"].as_str().unwrap()).is_file());
    assert_eq!(
        payload(10)["error_message"],
        "there is no tool 'nosuch'; the tools are: echo, ask_human"
    );
    let end = payload(16);
    assert_eq!(end["status"], "COMPLETED");
    assert_eq!(end["exit_code"], 0);
    assert_eq!(end["text"], "done");
    assert_eq!(end["iterations"], 3);
}

#[test]
fn a_request_is_replaced_as_a_whole() {
    for output in ["final_payload.json", "payload_override.dat"] {
        let script = format!("sed 's/You are a test/Nobody/' $IN/payload.dat > $OUT/{output}");
        let world = with_hooks(&hook("pre_llm_request", &script));
        world.model_says([text("done")]);
        world.run("go").exits(0);
        let run = world.latest();
        let sent = &world.server.last().body;
        assert_eq!(
            &fs::read(run.hooks()[0].join("output").join(output)).unwrap(),
            sent
        );
        assert_eq!(
            &fs::read(run.invocations()[0].join("request.json")).unwrap(),
            sent
        );
        let system = &world.server.last().messages()[0]["content"];
        assert_eq!(system, "# Context Block: system_prompt\n\nNobody.\n");
        assert_eq!(run.events("USER_MESSAGE")[0]["content"], "go");
    }
}

#[test]
fn each_hook_of_a_list_sees_what_the_one_before_it_changed() {
    let step = |from: &str, to: &str| {
        let script = format!(
            "sed 's/{from}/{to}/' \"$DELTA_HOOK_IO_PATH/input/payload.dat\" > \"$DELTA_HOOK_IO_PATH/output/final_payload.json\""
        );
        format!("  - {{command: [sh, -c, {}]}}\n", json!(script))
    };
    let broken = "  - {command: [sh, -c, 'echo nonsense > $DELTA_HOOK_IO_PATH/output/final_payload.json']}\n";
    let list = [step("a test", "one"), broken.to_owned(), step("one", "two")].concat();
    let world = with_hooks(&format!("pre_llm_request:\n{list}"));
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let system = &world.server.last().messages()[0]["content"];
    assert_eq!(system, "# Context Block: system_prompt\n\nYou are two.\n");
    let statuses: Vec<String> = audits(&world.latest()).into_iter().map(|a| a.1).collect();
    assert_eq!(statuses, ["SUCCESS", "FAILED", "SUCCESS"]);
}

/// Ways in which a hook fails, and what is said of it.
const FAILURES: [(&str, &str); 6] = [
    (
        "{command: [sh, -c, 'echo {} > $DELTA_HOOK_IO_PATH/output/final_payload.json; echo oh no >&2; exit 3']}",
        "exit code 3: oh no",
    ),
    ("{command: [sh, -c, 'kill -KILL $$']}", "exit code 137"),
    (
        "{command: [sh, -c, 'echo {} > $DELTA_HOOK_IO_PATH/output/final_payload.json; sleep 600'], timeout_ms: 100}",
        "timed out after",
    ),
    (
        "{command: [sh, -c, 'echo nonsense > $DELTA_HOOK_IO_PATH/output/final_payload.json']}",
        "output/final_payload.json: expected",
    ),
    (
        "{command: [sh, -c, 'mkfifo $DELTA_HOOK_IO_PATH/output/final_payload.json']}",
        "not a regular file",
    ),
    (
        "{command: [no-such-program-at-all]}",
        "no-such-program-at-all: not found",
    ),
];

#[test]
fn a_hook_that_fails_leaves_everything_as_it_is_and_a_warning() {
    for event in [
        "pre_llm_request",
        "post_llm_response",
        "post_tool_execution",
        "on_iteration_start",
    ] {
        for (command, said) in FAILURES {
            if event == "on_iteration_start" && said.contains("output/") | said.contains("regular")
            {
                // It may write nothing, and what it writes is not looked at.
                continue;
            }
            let world = with_hooks(&format!("{event}: {command}\n"));
            world.model_says([call("a", "echo", &json!({"words": "hi"})), text("done")]);
            world.run("go").exits(0).prints("done\n").says(said);
            assert_eq!(world.server.last().observation("a"), "hi\n");
            let run = world.latest();
            assert!(audits(&run).iter().all(|(_, status)| status == "FAILED"));
            let warnings = run.events("SYSTEM_MESSAGE");
            assert!(!warnings.is_empty(), "{event}: {command}");
            for warning in warnings {
                let content = warning["content"].as_str().unwrap();
                assert_eq!(warning["level"], "WARN");
                assert!(
                    content.contains(event) && content.contains(said),
                    "{content}"
                );
            }
        }
    }
}

#[test]
fn the_right_json_of_the_wrong_form_is_a_failure() {
    for (event, output) in [
        ("pre_llm_request", "[]"),
        ("post_llm_response", "{}"),
        ("post_tool_execution", "{\"observation\":7}"),
    ] {
        let world = with_hooks(&hook(
            event,
            &format!("echo '{output}' > $OUT/final_payload.json"),
        ));
        world.model_says([call("a", "echo", &json!({"words": "hi"})), text("done")]);
        world
            .run("go")
            .exits(0)
            .prints("done\n")
            .says("final_payload.json");
        assert_eq!(world.server.last().observation("a"), "hi\n");
        assert!(
            audits(&world.latest())
                .iter()
                .all(|(_, status)| status == "FAILED")
        );
    }
}

#[test]
fn a_hook_that_is_no_guard_cannot_deny() {
    let deny = "echo '{\"action\":\"deny\"}' > $OUT/control.json";
    let world = with_hooks(&hook("pre_llm_request", deny));
    world.model_says([text("done")]);
    world
        .run("go")
        .exits(0)
        .says("only pre_tool_execution can deny");
}

#[test]
fn an_answer_is_replaced_and_the_raw_one_kept() {
    let script = "sed 's/secret plan/[removed]/' $IN/payload.json > $OUT/final_payload.json";
    let world = with_hooks(&hook("post_llm_response", script));
    world.model_says([text("the secret plan")]);
    world.run("go").exits(0).prints("the [removed]\n");
    let run = world.latest();
    assert_eq!(run.events("THOUGHT")[0]["content"], "the [removed]");
    let raw = fs::read_to_string(run.invocations()[0].join("response.json")).unwrap();
    assert!(raw.contains("the secret plan"), "{raw}");
}

#[test]
fn what_an_answer_cost_is_counted_whatever_a_hook_leaves_of_it() {
    let answer = json!({"choices": [{"message": {"role": "assistant", "content": "short"}}]});
    let script = format!("echo '{answer}' > $OUT/final_payload.json");
    let world = with_hooks(&hook("post_llm_response", &script));
    world.model_says([text("long")]);
    world.run("go").exits(0).prints("short\n");
    assert_eq!(world.latest().metadata()["usage"]["total_tokens"], 110);
}

#[test]
fn a_hook_can_count_the_tokens_of_a_service_that_does_not() {
    let answer = json!({
        "choices": [{"message": {"role": "assistant", "content": "done"}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
    });
    let script = format!("echo '{answer}' > $OUT/final_payload.json");
    let world = with_hooks(&hook("post_llm_response", &script));
    world.model_says([raw(
        r#"{"choices":[{"message":{"role":"assistant","content":"done"}}]}"#,
    )]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.latest().metadata()["usage"]["total_tokens"], 9);
}

#[test]
fn what_was_spent_is_known_though_a_line_of_the_ledger_is_torn_at_the_end() {
    let world = World::new();
    let script = format!(
        "for file in '{}'/.delta/*/spending.jsonl; do printf '{{\"timestamp\":\"2' >> \"$file\"; done",
        world.workspace().display()
    );
    world.write("agent/hooks.yaml", hook("on_run_end", &script));
    world.model_says([text("done")]);
    world.run("go").exits(0).says(", 110 tokens");
    // What was torn off never happened, for the next start as well.
    world.model_says([text("more")]);
    let resumed = world.go_on().args(["-m", "again"]).exits(0);
    resumed.says(", 220 tokens");
}

const REDACT: &str = "sed 's/hunter2/[redacted]/g' $IN/payload.json > $OUT/final_payload.json";

#[test]
fn an_observation_is_redacted_in_the_journal_and_in_the_request() {
    let world = with_hooks(&hook("post_tool_execution", REDACT));
    world.model_says([
        call("a", "echo", &json!({"words": "it is hunter"})),
        text("done"),
    ]);
    let world = world.tools("- {name: echo, exec: 'echo ${words}2'}");
    world.run("go").exits(0);
    let run = world.latest();
    assert_eq!(world.server.last().observation("a"), "it is [redacted]\n");
    assert_eq!(run.result(1)["observation_content"], "it is [redacted]\n");
    assert_eq!(
        fs::read_to_string(run.execution(1).join("stdout.log")).unwrap(),
        "it is hunter2\n"
    );
    assert!(!String::from_utf8_lossy(&world.server.last().body).contains("hunter2"));
}

#[test]
fn the_next_hook_of_a_list_is_not_shown_what_was_redacted() {
    let redact =
        r#"printf '{"observation":"[redacted]"}' > $DELTA_HOOK_IO_PATH/output/final_payload.json"#;
    let notify = "{ cat; echo; printf %s \"$TOOL_RESULT\"; } > ../seen";
    let world = with_hooks(&format!(
        "post_tool_execution:\n  - {{command: [sh, -c, {}]}}\n  - {{command: [sh, -c, {}]}}\n",
        json!(redact),
        json!(notify)
    ));
    world.observe("echo", &json!({"words": "secret"}));
    let seen = world.lines("seen");
    let payload: Value = serde_json::from_str(&seen[0]).unwrap();
    assert_eq!(payload["observation"], "[redacted]");
    assert_eq!(seen[1..], ["[redacted]"]);
}

#[test]
fn what_a_killed_engine_left_of_a_tool_is_redacted_too() {
    let world = with_hooks(&hook("post_tool_execution", REDACT))
        .tools("- {name: hang, shell: 'echo it is hunter2; echo > ../ready; sleep 600'}");
    let mut ready = world.fifo("ready");
    world.model_says([call("a", "hang", &json!({}))]);
    let delta = world.run("go").spawn();
    ready.line();
    delta.kill();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let told = world.server.last().observation("a");
    assert!(told.starts_with("it is [redacted]\n"), "{told}");
    assert_eq!(world.latest().result(1)["observation_content"], told);
}

#[test]
fn the_result_in_the_environment_is_cut_between_two_characters() {
    let world = with_hooks(&hook(
        "post_tool_execution",
        "printf %s \"$TOOL_RESULT\" > $OUT/result",
    ))
    .top("max_output_bytes: 200000")
    .tools("- {name: long, shell: 'printf x; yes é | head -n 30000 | tr -d \"\\n\"'}");
    world.observe("long", &json!({}));
    let run = world.latest();
    let hook = &run.hooks()[0];
    let result = fs::read(hook.join("output/result")).unwrap();
    assert_eq!(result.len(), (32 << 10) - 1);
    let result = String::from_utf8(result).unwrap();
    let whole = json_in(&hook.join("input/payload.json"));
    let whole = whole["observation"].as_str().unwrap();
    assert_eq!(whole.len(), 60_001);
    assert!(whole.starts_with(&result));
}

#[test]
fn a_hook_out_of_time_takes_its_whole_group_along() {
    let script = "sleep 600 & setsid sleep 600 & trap '' TERM; echo $$ > ../pid; sleep 600";
    let (world, pid) = with_time(300, |ms| {
        let command = json!(script);
        let yaml =
            format!("on_iteration_start: {{command: [sh, -c, {command}], timeout_ms: {ms}}}\n");
        let world = with_hooks(&yaml);
        world.model_says([text("done")]);
        world.run("go").exits(0).prints("done\n").says("timed out");
        let pid: u32 = world.lines("pid").first()?.parse().ok()?;
        Some((world, pid))
    });
    assert!(!alive(pid));
    eventually("no process is left", || world.processes().is_empty());
    let meta = world.latest().hooks()[0].join("execution_meta/exit_code.txt");
    assert_eq!(fs::read_to_string(meta).unwrap(), "124\n");
}

#[test]
fn old_names_and_places_work_and_say_what_they_are_called_now() {
    let names = [
        ("pre_llm_req", "pre_llm_request"),
        ("post_llm_resp", "post_llm_response"),
        ("pre_tool_exec", "pre_tool_execution"),
        ("post_tool_exec", "post_tool_execution"),
    ];
    let old = names.map(|(old, _)| hook(old, "true")).concat();
    let in_file = with_hooks(&old);
    let indented: String = old.lines().map(|line| format!("  {line}\n")).collect();
    let in_agent = World::with_tools(ECHO).top(&format!("lifecycle_hooks:\n{indented}"));
    for world in [in_file, in_agent] {
        world.model_says([call("a", "echo", &json!({"words": "hi"})), text("done")]);
        let mut outcome = world.run("go").exits(0).says("[DEPRECATION WARNING]");
        for (old, new) in names {
            outcome = outcome.says(&format!("{old} is called {new} now"));
        }
        let run = audits(&world.latest());
        let ran: Vec<&str> = run.iter().map(|(name, _)| name.as_str()).collect();
        let (ask, act) = (
            ["pre_llm_request", "post_llm_response"],
            ["pre_tool_execution", "post_tool_execution"],
        );
        assert_eq!(ran, [ask, act, ask].concat());
    }
}

#[test]
fn numbers_go_on_when_a_run_is_resumed_and_no_output_is_read_again() {
    let script = "[ -e ../once ] || sed 's/a test/one/' $IN/payload.dat > $OUT/final_payload.json; touch ../once";
    let world = with_hooks(&hook("pre_llm_request", script));
    world.model_says([call("a", "echo", &json!({"words": "hi"}))]);
    world.run("go").arg("--max-iterations=1").exits(4);
    world.model_says([text("done")]);
    world.go_on().exits(0);
    let names: Vec<String> = world.latest().hooks().iter().map(|dir| name(dir)).collect();
    assert_eq!(names, ["001_pre_llm_request", "002_pre_llm_request"]);
    let system = |at: usize| world.server.requests()[at].messages()[0]["content"].to_string();
    assert!(system(0).contains("You are one."));
    assert!(system(1).contains("You are a test."));
}

#[test]
fn a_hooks_program_is_found_in_the_agents_home_and_the_workspace() {
    let world = with_hooks(
        "on_iteration_start: {command: ['${AGENT_HOME}/tools/h.sh', '${CWD}']}\non_iteration_end: {command: [./w.sh]}\n",
    );
    world.script("agent/tools/h.sh", "#!/bin/sh\necho \"$1\" > ../told\n");
    world.script("ws/w.sh", "#!/bin/sh\necho here > ../here\n");
    world.model_says([text("done")]);
    world.run("go").exits(0).does_not_say("failed");
    assert_eq!(world.lines("told"), [world.workspace().to_str().unwrap()]);
    assert_eq!(world.lines("here"), ["here"]);
}

#[test]
fn a_number_that_no_run_makes_does_not_count() {
    let world = with_hooks(&hook("on_run_end", "true"));
    world.model_says([text("one"), text("two")]);
    world.run("go").exits(0);
    let hooks = world.latest().path("io/hooks");
    fs::create_dir(hooks.join("18446744073709551615_x")).unwrap();
    world.go_on().args(["-m", "more"]).exits(0).prints("two\n");
    assert!(hooks.join("002_on_run_end").is_dir());
}
