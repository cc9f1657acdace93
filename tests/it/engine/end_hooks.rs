//! Hooks at the ends of things: `on_error`, `on_run_end`, and hooks that end the run.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::json;

const TOOLS: &str =
    "- {name: echo, exec: 'echo ${words}'}\n- {name: fail, shell: 'echo bad; exit 3'}";

fn with_hooks(hooks: &[(&str, &str)]) -> World {
    let world = World::with_tools(TOOLS);
    let yaml: Vec<String> = hooks
        .iter()
        .map(|(name, script)| {
            format!(
                "{name}: {{command: [sh, -c, {}], timeout_ms: 600000}}\n",
                json!(script)
            )
        })
        .collect();
    world.write("agent/hooks.yaml", yaml.concat());
    world
}

/// Ends the run, until `../calm` is there.
const STOP: &str = "[ -e ../calm ] || echo '{\"action\":\"stop\",\"message\":\"enough\"}' > $DELTA_HOOK_IO_PATH/output/control.json";

#[test]
fn a_hook_can_end_the_run_after_the_current_step() {
    // How many requests are sent and how many tools have run by then.
    for (hook, requests, tools) in [
        ("on_iteration_start", 0, 0),
        ("pre_llm_request", 0, 0),
        ("post_llm_response", 1, 0),
        ("pre_tool_execution", 1, 1),
        ("post_tool_execution", 1, 1),
        ("on_iteration_end", 1, 2),
    ] {
        let world = with_hooks(&[(hook, STOP)]);
        let words = |words: &str| json!({"words": words});
        world.model_says([
            calls(&[("a", "echo", words("one")), ("b", "echo", words("two"))]),
            text("done"),
        ]);
        let says = format!("{hook} ended the run: enough");
        world.run("go").refuses(4, &says);
        let ending = world.latest().ending();
        assert_eq!(
            ending,
            ("INTERRUPTED".to_owned(), Some("hook".to_owned())),
            "{hook}"
        );
        assert_eq!(world.server.requests().len(), requests, "{hook}");
        assert_eq!(
            world.latest().events("ACTION_REQUEST").len(),
            tools,
            "{hook}"
        );
        world.write("calm", "");
        world.run("go").exits(0).prints("done\n");
        assert_eq!(world.runs().len(), 1);
        assert_eq!(world.latest().events("ACTION_REQUEST").len(), 2, "{hook}");
    }
}

#[test]
fn a_hook_that_ends_the_run_at_the_last_answer_keeps_it_from_being_complete() {
    for hook in ["post_llm_response", "on_iteration_end"] {
        let world = with_hooks(&[(hook, STOP)]);
        world.model_says([text("done")]);
        world.run("go").exits(4).prints("");
        assert_eq!(world.latest().ending().1.as_deref(), Some("hook"));
        world.run("go").exits(0).prints("done\n");
        assert_eq!(world.server.requests().len(), 1);
    }
}

#[test]
fn neither_an_error_nor_an_end_can_be_stopped() {
    let world = with_hooks(&[("on_error", STOP), ("on_run_end", STOP)]);
    world.model_says([call("a", "nosuch", &json!({})), text("done")]);
    world.run("go").exits(0).prints("done\n");
}

const TELL_ERROR: &str = "printf '%s\\n' \"$ERROR_MESSAGE\" >> ../errors";

#[test]
fn an_error_is_what_has_no_exit_code() {
    let world = with_hooks(&[("on_error", TELL_ERROR)]);
    world.model_says([
        call("a", "fail", &json!({})),
        call("b", "echo", &json!({})),
        text("done"),
    ]);
    world.run("go").exits(0);
    let errors = world.lines("errors");
    assert_eq!(errors[0], "tool 'echo' was not run:");
    assert_eq!(world.latest().hooks().len(), 1);
}

#[test]
fn a_server_that_says_no_and_a_source_that_is_missing_are_errors() {
    let world = with_hooks(&[("on_error", TELL_ERROR)]);
    world.model_says([Reply::error(400, "no such model")]);
    world.run("go").exits(4);
    let errors = world.lines("errors");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains("no such model"), "{errors:?}");
    assert_eq!(
        world.latest().events("ERROR")[0]["error_message"],
        errors[0].as_str()
    );

    let world = with_hooks(&[("on_error", TELL_ERROR)]);
    world.write(
        "agent/context.yaml",
        "sources:\n  - {type: file, path: '${CWD}/PLAN.md'}\n  - {type: journal}\n",
    );
    world.run("go").exits(4);
    assert!(world.lines("errors")[0].contains("PLAN.md"));
}

#[test]
fn a_limit_and_a_question_are_no_errors() {
    let world = with_hooks(&[("on_error", TELL_ERROR)]);
    world.model_says([call("a", "fail", &json!({}))]);
    world.run("go").arg("--max-iterations=1").exits(4);
    world.model_says([call("b", "ask_human", &json!({"prompt": "?"}))]);
    world.go_on().exits(101);
    assert_eq!(world.lines("errors"), [""; 0]);
}

/// Tells the status, and whether the journal says already that the run has ended.
const TELL_END: &str = "grep -o '\"status\":\"[A-Z]*\"' >> ../ends; grep -c '\"type\":\"ENGINE_END\"' $JOURNAL_PATH >> ../ends";

#[test]
fn every_end_but_a_question_runs_the_hook_before_it_is_recorded() {
    let world = with_hooks(&[("on_run_end", TELL_END)]);
    world.model_says([call("a", "ask_human", &json!({"prompt": "?"}))]);
    world.run("go").exits(101);
    assert_eq!(world.lines("ends"), [""; 0]);

    let world = with_hooks(&[("on_run_end", TELL_END)]);
    let mut told: Vec<String> = Vec::new();
    let mut ends = |status: &str, before: usize| {
        told.extend([format!("\"status\":\"{status}\""), before.to_string()]);
        assert_eq!(world.lines("ends"), told);
    };
    world.model_says([call("a", "echo", &json!({"words": "hi"}))]);
    world.run("go").arg("--max-iterations=1").exits(4);
    ends("INTERRUPTED", 0);
    world.model_says([Reply::error(400, "no")]);
    world.go_on().exits(4);
    ends("INTERRUPTED", 1);
    world.model_says([text("never").held()]);
    let delta = world.go_on().args(["-m", "again"]).spawn();
    world.server.wait_for(3);
    delta.signal(Signal::INT);
    delta.wait().exits(130);
    ends("INTERRUPTED", 2);
    world.model_says([text("done")]);
    world.go_on().exits(0);
    ends("COMPLETED", 3);
}

#[test]
fn the_end_comes_though_its_hook_hangs_and_heeds_no_signal() {
    let hang = "trap '' TERM; echo $$ > ../ready; sleep 600";
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let world = with_hooks(&[("on_run_end", hang)]);
        let mut ready = world.fifo("ready");
        world.model_says([text("never").held()]);
        let delta = world.run("go").spawn();
        world.server.wait_for(1);
        delta.signal(signal);
        let hook = ready.pid();
        delta
            .wait()
            .exits(code)
            .says("on_run_end failed: timed out");
        assert!(!alive(hook));
        assert_eq!(world.latest().ending().0, "INTERRUPTED");
        eventually("no process is left", || world.processes().is_empty());
    }
}

#[test]
fn the_end_comes_though_everything_hangs() {
    let hang = "trap '' TERM; echo $0 $$ >> ../hung; sleep 600";
    let names = ["post_tool_execution", "on_iteration_end", "on_run_end"];
    let world = with_hooks(&names.map(|name| (name, hang)));
    let world = world.tools("- {name: hang, shell: 'trap \"\" TERM; echo > ../ready; sleep 600'}");
    let mut ready = world.fifo("ready");
    world.model_says([call("a", "hang", &json!({}))]);
    let delta = world.run("go").spawn();
    ready.line();
    delta.signal(Signal::INT);
    delta.wait().exits(130);
    assert_eq!(world.latest().hooks().len(), 3);
    assert_eq!(world.latest().ending().0, "INTERRUPTED");
    eventually("no process is left", || world.processes().is_empty());
}

#[test]
fn nothing_new_begins_once_the_engine_is_to_end() {
    let world = World::with_tools(TOOLS);
    let hang = json!("echo $$ > ../ready; sleep 600");
    let next = json!("touch ../begun");
    world.write(
        "agent/hooks.yaml",
        format!(
            "on_iteration_start:\n  - {{command: [sh, -c, {hang}]}}\n  - {{command: [sh, -c, {next}]}}\n"
        ),
    );
    let mut ready = world.fifo("ready");
    let delta = world.run("go").spawn();
    ready.line();
    delta.signal(Signal::INT);
    delta.wait().exits(130);
    assert!(!world.exists("begun"));
    assert_eq!(world.latest().hooks().len(), 1);
    let audits = world.latest().events("HOOK_EXECUTION_AUDIT");
    let statuses: Vec<&str> = audits
        .iter()
        .map(|a| a["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["FAILED", "SKIPPED"]);
}
