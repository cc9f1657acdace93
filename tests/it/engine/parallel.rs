//! Calls of one message that run at once.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Waits until as many calls have begun as the number says.
const MEET: &str = "\
- {name: meet, parallel: 8, shell: 'echo ${n} >> ../log; while [ $(wc -l < ../log) -lt ${of} ]; do sleep 0.02; done; echo met ${n}'}";

fn meeting(count: usize, of: usize) -> Reply {
    let wanted: Vec<(String, Value)> = (1..=count)
        .map(|n| {
            (
                format!("c{n}"),
                json!({"n": n.to_string(), "of": of.to_string()}),
            )
        })
        .collect();
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(id, it)| (&**id, "meet", it.clone()))
        .collect();
    calls(&wanted)
}

fn kinds(world: &World) -> Vec<String> {
    let of_calls = ["ACTION_REQUEST", "ACTION_RESULT"];
    let types = world.latest().types().into_iter();
    types.filter(|kind| of_calls.contains(&&**kind)).collect()
}

#[test]
fn consecutive_calls_run_at_once_and_go_back_in_order() {
    let world = World::with_tools(MEET);
    world.model_says([meeting(5, 5), text("done")]);
    world.run("go").exits(0).prints("done\n");
    let sent = world.server.last().messages();
    let results: Vec<&Value> = sent.iter().filter(|it| it["role"] == "tool").collect();
    let ids: Vec<&str> = results
        .iter()
        .map(|it| it["tool_call_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["c1", "c2", "c3", "c4", "c5"]);
    for (n, result) in results.iter().enumerate() {
        assert_eq!(result["content"], format!("met {}\n", n + 1));
    }
    // All are recorded before the first ends.
    let kinds = kinds(&world);
    assert!(
        kinds[..5].iter().all(|kind| kind == "ACTION_REQUEST"),
        "{kinds:?}"
    );
}

#[test]
fn at_most_the_smallest_number_runs_at_once() {
    let tool = |name: &str, most: u32| {
        format!(
            "- {{name: {name}, parallel: {most}, shell: 'mkdir -p ../busy; touch ../busy/$$; ls ../busy | wc -l >> ../log; sleep 0.1; rm ../busy/$$'}}\n"
        )
    };
    let world = World::with_tools(&(tool("two", 2) + &tool("many", 9)));
    let one = json!({});
    let wanted = [
        ("a", "many"),
        ("b", "two"),
        ("c", "many"),
        ("d", "two"),
        ("e", "many"),
    ];
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(id, tool)| (*id, *tool, one.clone()))
        .collect();
    world.model_says([calls(&wanted), text("done")]);
    world.run("go").exits(0);
    let log = world.lines("log");
    assert_eq!(log.len(), 5);
    assert!(
        log.iter()
            .all(|line| line.trim().parse::<u32>().unwrap() <= 2),
        "{log:?}"
    );
}

#[test]
fn a_tool_without_the_key_runs_alone_between_them() {
    let world = World::with_tools(
        "- {name: meet, parallel: 8, shell: 'echo ${n} >> ../log; while [ $(wc -l < ../log) -lt ${of} ]; do sleep 0.02; done'}\n\
         - {name: alone, shell: 'echo alone >> ../log'}",
    );
    let meet = |n: &str, of: &str| json!({"n": n, "of": of});
    let wanted = [
        ("a", "meet", meet("1", "2")),
        ("b", "meet", meet("2", "2")),
        ("c", "alone", json!({})),
        ("d", "meet", meet("4", "5")),
        ("e", "meet", meet("5", "5")),
    ];
    world.model_says([calls(&wanted), text("done")]);
    world.run("go").exits(0);
    let log = world.lines("log");
    assert_eq!((log.len(), log[2].as_str()), (5, "alone"));
    let expected = "RRrrRrRRrr".chars().map(|it| {
        if it == 'R' {
            "ACTION_REQUEST"
        } else {
            "ACTION_RESULT"
        }
    });
    assert_eq!(kinds(&world), expected.collect::<Vec<_>>());
}

#[test]
fn guards_look_at_all_before_the_first_starts_and_later_hooks_run_in_order() {
    let world = World::with_tools(MEET);
    world.script(
        "agent/guard.sh",
        "#!/bin/sh\nls ../log 2>/dev/null >> ../seen\nif grep -q '\"n\":\"2\"' input/payload.json \"$DELTA_HOOK_IO_PATH/input/payload.json\" 2>/dev/null; then\n\
         echo '{\"action\":\"deny\",\"message\":\"no\"}' > \"$DELTA_HOOK_IO_PATH/output/control.json\"; fi\n",
    );
    world.script(
        "agent/after.sh",
        "#!/bin/sh\ngrep -o 'met [0-9]' \"$DELTA_HOOK_IO_PATH/input/payload.json\" | head -1 >> ../after\n",
    );
    world.write(
        "agent/hooks.yaml",
        "pre_tool_execution: {command: ['${AGENT_HOME}/guard.sh']}\npost_tool_execution: {command: ['${AGENT_HOME}/after.sh']}\n",
    );
    world.model_says([meeting(4, 3), text("done")]);
    world.run("go").exits(0);
    assert_eq!(world.lines("seen"), [""; 0], "a call ran before a guard");
    assert_eq!(world.lines("after"), ["met 1", "met 3", "met 4"]);
    assert_eq!(world.server.last().observation("c2"), "denied: no");
}

#[test]
fn a_call_that_needs_a_person_ends_the_group() {
    let world = World::with_tools(&format!(
        "{MEET}\n- {{name: ask, parallel: 8, confirm: true, shell: 'echo asked >> ../log'}}"
    ));
    let meet = |n: &str, of: &str| json!({"n": n, "of": of});
    let wanted = [
        ("a", "meet", meet("1", "2")),
        ("b", "meet", meet("2", "2")),
        ("c", "ask", json!({})),
        ("d", "meet", meet("4", "1")),
    ];
    world.model_says([calls(&wanted)]);
    world.run("go").exits(101);
    assert_eq!(world.latest().events("ACTION_RESULT").len(), 2);
    world.model_says([text("done")]);
    world.go_on().args(["-m", "yes"]).exits(0).prints("done\n");
    assert_eq!(world.lines("log")[2..], ["asked", "4"]);
}

/// A parallel call that is alone, with this guard, and the end of its run. The call is not started.
#[track_caller]
fn lone_call_is_not_started(guard: &str, more: &str, reason: &str) {
    let world =
        World::with_tools("- {name: note, parallel: 8, shell: 'echo did >> ../log'}").top(more);
    let guard = json!(guard);
    world.write(
        "agent/hooks.yaml",
        format!("pre_tool_execution: {{command: [sh, -c, {guard}]}}\n"),
    );
    world.model_says([call("a", "note", &json!({}))]);
    world.run("go").exits(4);
    assert_eq!(world.latest().ending().1.as_deref(), Some(reason));
    assert!(kinds(&world).is_empty() && !world.exists("log"));
}

#[test]
fn a_call_that_is_alone_is_not_started_if_its_guard_ends_the_run() {
    let stop = "echo '{\"action\":\"stop\"}' > $DELTA_HOOK_IO_PATH/output/control.json";
    lone_call_is_not_started(stop, "", "hook");
}

#[test]
fn a_call_that_is_alone_is_not_started_if_its_guard_outlasts_the_run_s_time() {
    lone_call_is_not_started("sleep 4", "limits: {seconds: 2}", "seconds");
}

#[test]
fn a_signal_ends_all_and_each_has_its_result() {
    let world =
        World::with_tools("- {name: wait, parallel: 3, shell: 'echo begun >> ../log; sleep 60'}");
    let one = json!({});
    let wanted = ["a", "b", "c", "d"].map(|id| (id, "wait", one.clone()));
    world.model_says([calls(&wanted)]);
    let running = world.run("go").spawn();
    eventually("three have begun", || world.lines("log").len() == 3);
    running.signal(Signal::TERM);
    running.wait().exits(143);
    let results = world.latest().events("ACTION_RESULT");
    assert_eq!(results.len(), 3, "{results:?}");
    for result in &results {
        let told = result["observation_content"].as_str().unwrap();
        assert!(told.contains("[interrupted]"), "{told}");
    }
    assert_eq!(world.processes(), [0; 0]);
    world.model_says([text("done")]);
    world.script("agent/quick", "#!/bin/sh\n");
    let quick = world.run("go").args(["--set", "tool_timeout_ms=200"]);
    quick.exits(0).prints("done\n");
    assert_eq!(world.lines("log").len(), 4, "only the fourth had not begun");
}

#[test]
fn a_program_that_cannot_be_started_does_not_stop_the_others() {
    let world = World::with_tools(&format!(
        "{MEET}\n- {{name: gone, parallel: 2, exec: no-such-program}}"
    ));
    let meet = |n: &str| json!({"n": n, "of": "2"});
    let wanted = [
        ("a", "meet", meet("1")),
        ("b", "gone", json!({})),
        ("c", "meet", meet("2")),
    ];
    world.model_says([calls(&wanted), text("done")]);
    world.run("go").exits(0);
    assert!(
        world
            .server
            .last()
            .observation("b")
            .contains("[exit code: 127]")
    );
    assert_eq!(world.server.last().observation("c"), "met 2\n");
}

#[test]
fn a_kill_at_any_line_leaves_one_result_for_each_call() {
    // The engine is killed when its journal has so many lines; calls count what they do.
    const TOOLS: &str =
        "- {name: work, parallel: 5, shell: 'echo ${n} >> ../log; echo did ${n}', effect: none}";
    let wanted: Vec<(String, Value)> = (1..=5)
        .map(|n| (format!("c{n}"), json!({"n": n.to_string()})))
        .collect();
    let message = || {
        let wanted: Vec<_> = wanted
            .iter()
            .map(|(id, it)| (&**id, "work", it.clone()))
            .collect();
        calls(&wanted)
    };
    for lines in 4..=13 {
        let world = World::with_tools(TOOLS);
        world.server.may_stay_unasked();
        world.server.answers({
            let first = std::cell::Cell::new(true);
            let message = message();
            let body = message.body().to_vec();
            move |_| {
                if first.replace(false) {
                    raw(body.clone())
                } else {
                    text("done")
                }
            }
        });
        let start = || world.run("go").args(["--run-id", "job"]);
        let running = start().spawn();
        let journal = || {
            let text = std::fs::read_to_string(world.path("ws/.delta/job/journal.jsonl"));
            text.map_or(0, |text| text.lines().count())
        };
        while journal() < lines && alive(running.pid()) {
            std::thread::yield_now();
        }
        running.kill();
        start().exits(0).prints("done\n");
        let results = world.latest().events("ACTION_RESULT");
        let mut ids: Vec<&str> = results
            .iter()
            .map(|it| it["action_id"].as_str().unwrap())
            .collect();
        ids.sort_unstable();
        assert_eq!(
            ids,
            ["c1", "c2", "c3", "c4", "c5"],
            "killed at line {lines}"
        );
        let last = world.server.last();
        if roles(&last.messages()).contains(&"tool") {
            for n in 1..=5 {
                assert_eq!(last.observation(&format!("c{n}")), format!("did {n}\n"));
            }
        }
    }
}

/// An agent with five sub-agents at most, each in a directory of its own. A sub-agent works once, and then says so.
fn with_subagents(child: &str) -> World {
    let program = env!("CARGO_BIN_EXE_delta");
    let world = World::with_tools(&format!(
        "- {{name: ask, exec: '{program} run -q -a ${{AGENT_HOME}}/../child -w child-${{n}} -m ${{n}}', subagent: true, parallel: 5, timeout_ms: 0}}"
    ));
    let url = world.server.url();
    let agent = format!(
        "name: child\nllm: {{model: scripted, base_url: '{url}', max_retries: 0}}\n{child}tools:\n\
         - {{name: work, shell: 'echo ${{n}} >> \"$HOME/log\"'}}\n"
    );
    world.write("child/agent.yaml", agent);
    let context = world.read("agent/context.yaml");
    world.write("child/context.yaml", context);
    world.write("child/system_prompt.md", "I am a child.");
    world
}

fn is_child(request: &Received) -> bool {
    request.messages()[0]["content"]
        .to_string()
        .contains("child")
}

/// The message with which a run began.
fn task(request: &Received) -> String {
    request.messages()[1]["content"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn asks(numbers: &[&str]) -> Reply {
    let wanted: Vec<_> = numbers
        .iter()
        .map(|n| (*n, "ask", json!({"n": n})))
        .collect();
    calls(&wanted)
}

/// The sub-agents' model, and that of the run that asks them.
fn working(request: &Received, numbers: &[&str]) -> Reply {
    let has_begun = roles(&request.messages()).contains(&"assistant");
    match (is_child(request), has_begun) {
        (false, false) => asks(numbers),
        (false, true) => text("done"),
        (true, false) => call("w", "work", &json!({"n": task(request)})),
        (true, true) => text(&format!("worked {}", task(request))),
    }
}

#[test]
fn five_sub_agents_at_once_survive_a_kill_at_any_line_with_each_effect_once() {
    const ALL: [&str; 5] = ["1", "2", "3", "4", "5"];
    // So many lines of the parent's journal, or a number of the log's.
    for (lines, logged) in [
        (3, 0),
        (4, 0),
        (8, 0),
        (8, 2),
        (8, 4),
        (9, 0),
        (10, 0),
        (12, 0),
        (13, 0),
        (14, 0),
    ] {
        let world = with_subagents("");
        world.server.answers(|request| working(request, &ALL));
        let start = || world.run("go").args(["--run-id", "job"]);
        let running = start().spawn();
        let journal = || {
            let text = std::fs::read_to_string(world.path("ws/.delta/job/journal.jsonl"));
            text.map_or(0, |text| text.lines().count())
        };
        eventually("so much is recorded", || {
            let is_far = journal() >= lines && world.lines("log").len() >= logged;
            is_far || !alive(running.pid())
        });
        running.kill();
        // A child that is still ending keeps its run.
        let mut ended = start().end();
        for _ in 0..20 {
            if ended.code() != Some(75) && ended.code() != Some(143) {
                break;
            }
            ended = start().end();
        }
        ended.exits(0).prints("done\n");
        let mut log = world.lines("log");
        log.sort_unstable();
        let mut once = log.clone();
        once.dedup();
        assert_eq!(log, once, "killed at line {lines}, {logged} logged");
        let results = world.latest().events("ACTION_RESULT");
        assert_eq!(results.len(), 5);
        for result in results {
            let told = result["observation_content"].as_str().unwrap();
            let id = result["action_id"].as_str().unwrap();
            assert_eq!(told, format!("worked {id}\n"));
        }
    }
}

#[test]
fn five_sub_agents_at_once_survive_a_kill_at_any_system_call_with_each_effect_once() {
    if !installed(&["strace"]) {
        return;
    }
    const ALL: [&str; 5] = ["1", "2", "3", "4", "5"];
    let begin = || {
        let world = with_subagents("");
        world.server.answers(|request| working(request, &ALL));
        world
    };
    let world = begin();
    let trace = ["strace", "-qq", "-o", "trace", "-e", "trace=all"];
    world.run("go").under(&trace).exits(0);
    // Many take minutes.
    let all = kills(&world.lines("trace"), given_or("DELTA_KILLS", 3));
    let mut killed = 0;
    for (at, inject) in all.iter().enumerate() {
        let world = begin();
        let start = || world.run("go").args(["--run-id", "job"]);
        // The engine alone, or every process that comes so far.
        let follow: &[&str] = if at % 2 == 0 { &[] } else { &["-f"] };
        let args = ["-qq", "-o", "/dev/null", "-e", "trace=all", "-e", inject];
        let strace = [&["strace"], follow, &args].concat();
        let mut ended = start().under(&strace).end();
        killed += usize::from(ended.code() != Some(0));
        for _ in 0..20 {
            if ended.code() == Some(0) {
                break;
            }
            // A child that is still ending keeps its run.
            ended = start().end();
        }
        ended.exits(0).prints("done\n");
        let mut log = world.lines("log");
        log.sort_unstable();
        let mut once = log.clone();
        once.dedup();
        assert_eq!(log, once, "{inject}");
        let messages = world.server.last().messages();
        let results = messages.iter().filter(|it| it["role"] == "tool");
        let ids: Vec<&Value> = results.clone().map(|it| &it["tool_call_id"]).collect();
        assert_eq!(ids, ALL, "{inject}");
        let mut each = ALL.iter().zip(results);
        let has_worked = each.all(|(n, it)| it["content"] == format!("worked {n}\n"));
        assert!(has_worked || !follow.is_empty(), "{inject}");
    }
    assert!(killed * 2 > all.len(), "{killed} of {} hit", all.len());
}

#[test]
fn of_several_suspended_sub_agents_the_most_demanding_decides() {
    let world = with_subagents("max_iterations: 2\n");
    world.server.answers(|request| {
        if is_child(request) {
            let turns = roles(&request.messages())
                .iter()
                .filter(|role| **role == "assistant")
                .count();
            return match (&*task(request), turns) {
                ("1", 0) => call("q", "ask_human", &json!({"prompt": "May I?"})),
                ("2", 0) => call("w", "work", &json!({"n": "2"})),
                ("3", n) if n < 2 => call(&format!("w{n}"), "work", &json!({"n": "3"})),
                ("4", 0) => Reply::error(503, "down"),
                _ => text(&format!("worked {}", task(request))),
            };
        }
        working(request, &["1", "2", "3", "4"])
    });
    let outcome = world.run("go").exits(4).says("INTERRUPTED (subagent)");
    let outcome = outcome
        .says("May I?")
        .says("no final answer within 2 iterations");
    outcome.says("says 503");
    let results = world.latest().events("ACTION_RESULT");
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!(results[0]["action_id"], "2");
}
