//! A run that was stopped goes on: nothing lost, nothing done twice.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// Each call leaves a line in `log`, says half of what it has to say, and waits for the test.
const WORK: &str = "- {name: work, shell: 'echo \"${n} $DELTA_CALL_ID\" >> ../log; echo half; \
                    echo $$ > ../ready; read go < ../go; echo whole'}";

/// A world whose engine was killed while the tool `work` ran: the run's first call `call_1`.
struct Killed {
    world: World,
    go: Fifo,
    ready: Fifo,
    tool: u32,
}

#[track_caller]
fn killed_in_a_tool(tools: &str, first: Reply) -> Killed {
    let world = World::with_tools(tools);
    let (mut ready, go) = (world.fifo("ready"), world.fifo("go"));
    world.model_says([first]);
    let delta = world.run("go").spawn();
    let tool = ready.pid();
    delta.kill();
    Killed {
        world,
        go,
        ready,
        tool,
    }
}

fn work(n: u32) -> Value {
    json!({"n": n.to_string()})
}

/// The numbers that `work` was called with.
fn worked(world: &World) -> Vec<String> {
    let number = |line: String| line.split(' ').next().unwrap().to_owned();
    world.lines("log").into_iter().map(number).collect()
}

#[test]
fn a_tool_that_was_running_is_reported_and_not_repeated() {
    let Killed {
        world,
        tool,
        go: _go,
        ready: _ready,
    } = killed_in_a_tool(WORK, call("call_1", "work", &work(1)));
    assert_eq!(world.latest().metadata()["status"], "RUNNING");
    world.model_says([text("done")]);
    let resumed = world.run("go").exits(0).prints("done\n");
    resumed
        .says("[1] work was interrupted; reporting that to the model\n")
        .says("[1]   not run again\n");
    assert_eq!(worked(&world), ["1"]);
    let told = world.server.last().observation("call_1");
    assert!(told.contains("half\n") && !told.contains("whole"), "{told}");
    assert!(told.trim() != "half", "the model is told what happened");
    let run = world.latest();
    let results = run.events("ACTION_RESULT");
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["status"], "ERROR");
    assert_eq!(run.events("ACTION_REQUEST").len(), 1);
    let starts = run.events("ENGINE_START");
    assert_eq!(starts.len(), 2);
    assert_eq!(starts[1]["resumed"], true);
    assert_eq!(world.runs().len(), 1);
    assert!(!alive(tool), "what was left of it is ended");
}

/// Runs something that is no tool and waits when it is first run, kills the engine, and goes on.
#[track_caller]
fn ends_what_is_left_of(world: &World, answers: usize) {
    let mut ready = world.fifo("ready");
    world.model_says((0..answers).map(|_| text("done")));
    let delta = world.run("go").spawn();
    let left = ready.pid();
    delta.kill();
    assert!(alive(left));
    world.run("go").exits(0).prints("done\n");
    assert!(!alive(left), "it is ended");
    let run = world.latest();
    let warned = run.events("SYSTEM_MESSAGE");
    let content = "ended 1 process that was left of the engine that died";
    assert!(
        warned.iter().any(|event| event["content"] == content),
        "{warned:?}"
    );
    let calls = run.events("ENGINE_START");
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0]["call_id"], calls[1]["call_id"]);
}

/// Waits if it is the first.
const WAITS_ONCE: &str = "mkdir ../first 2>&- && { echo $$ > ../ready; exec sleep 600; }";

#[test]
fn a_model_program_that_was_left_is_ended() {
    let world = World::new();
    let answer = text("done");
    world.write("agent/answer.json", answer.body());
    world.script(
        "agent/model.sh",
        &format!("#!/bin/sh\n{WAITS_ONCE}\ncat $AGENT_HOME/answer.json\n"),
    );
    let world = world.llm("command: ['${AGENT_HOME}/model.sh']");
    ends_what_is_left_of(&world, 0);
}

#[test]
fn a_hook_that_was_left_is_ended() {
    let script = json!(format!("{WAITS_ONCE}; exit 0"));
    let hooks = format!("lifecycle_hooks:\n  pre_llm_request: {{command: [sh, -c, {script}]}}");
    ends_what_is_left_of(&World::new().top(&hooks), 1);
}

#[test]
fn a_generator_that_was_left_is_ended() {
    let world = World::new();
    let script = json!(format!("{WAITS_ONCE}; echo made"));
    world.write(
        "agent/context.yaml",
        format!(
            "sources:\n- type: computed_file\n  id: sum\n  output_path: '${{CWD}}/sum.md'\n  \
             generator: {{command: [sh, -c, {script}], timeout_ms: 60000}}\n- type: journal\n"
        ),
    );
    ends_what_is_left_of(&world, 1);
}

#[test]
fn seq_goes_on_where_it_was() {
    let Killed {
        world,
        go: _go,
        ready: _ready,
        ..
    } = killed_in_a_tool(WORK, call("call_1", "work", &work(1)));
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let seqs: Vec<_> = world
        .latest()
        .journal()
        .iter()
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    let wanted: Vec<u64> = (1..=seqs.len() as u64).collect();
    assert_eq!(seqs, wanted);
}

#[test]
fn what_is_left_of_a_tool_is_ended_also_what_left_its_group() {
    let tool = "- {name: work, shell: 'setsid sh -c \"trap : TERM; while :; do sleep 600; done\" & \
                echo $$ > ../ready; sleep 600'}";
    let Killed {
        world,
        go: _go,
        ready: _ready,
        ..
    } = killed_in_a_tool(tool, call("call_1", "work", &json!({})));
    assert!(world.processes().len() >= 2);
    world.model_says([text("done")]);
    world.run("go").exits(0);
    eventually("nothing of the tool is left", || {
        world.processes().is_empty()
    });
}

#[test]
fn a_tool_that_may_be_repeated_is_repeated_under_the_same_id() {
    let tool = WORK.replace("- {", "- {on_resume: retry, ");
    let Killed {
        world,
        mut go,
        mut ready,
        ..
    } = killed_in_a_tool(&tool, call("call_1", "work", &work(1)));
    world.model_says([text("done")]);
    let delta = world.run("go").spawn();
    ready.line();
    go.tell("on");
    delta.wait().exits(0).prints("done\n");
    let log = world.lines("log");
    assert_eq!(log.len(), 2);
    assert_eq!(log[0], log[1]);
    assert_eq!(
        world.server.last().observation("call_1").trim_end(),
        "half\nwhole"
    );
    let results = world.latest().events("ACTION_RESULT");
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["status"], "SUCCESS");
}

#[test]
fn calls_that_were_never_started_are_run_and_each_has_one_result() {
    let tools = format!(
        "{WORK}\n- {{name: note, shell: 'echo \"${{n}} $DELTA_CALL_ID\" >> ../log; echo noted ${{n}}'}}"
    );
    let all = [
        ("a", "note", work(1)),
        ("b", "work", work(2)),
        ("c", "note", work(3)),
        ("d", "note", work(4)),
    ];
    let Killed {
        world,
        go: _go,
        ready: _ready,
        ..
    } = killed_in_a_tool(&tools, calls(&all));
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(worked(&world), ["1", "2", "3", "4"]);
    let request = world.server.last();
    assert_eq!(request.observation("a").trim_end(), "noted 1");
    assert!(request.observation("b").contains("half"));
    assert_eq!(request.observation("c").trim_end(), "noted 3");
    assert_eq!(request.observation("d").trim_end(), "noted 4");
    let order: Vec<_> = request.messages()[3..]
        .iter()
        .map(|m| m["tool_call_id"].clone())
        .collect();
    assert_eq!(order, ["a", "b", "c", "d"]);
    assert_eq!(world.latest().events("ACTION_RESULT").len(), 4);
}

#[test]
fn a_message_sent_with_continue_comes_after_the_open_results() {
    let all = [("a", "work", work(1)), ("b", "note", work(2))];
    let tools = format!("{WORK}\n- {{name: note, exec: 'echo ${{n}}'}}");
    let Killed {
        world,
        go: _go,
        ready: _ready,
        ..
    } = killed_in_a_tool(&tools, calls(&all));
    world.model_says([text("done")]);
    world.go_on().args(["-m", "Leave that"]).exits(0);
    let messages = world.server.last().messages();
    assert_eq!(
        roles(&messages),
        ["system", "user", "assistant", "tool", "tool", "user"]
    );
    assert_eq!(messages[5]["content"], "Leave that");
}

/// A world whose engine was killed while it waited for the model's first word.
fn killed_while_waiting() -> World {
    let world = World::with_tools("- {name: echo, exec: 'echo ${words}'}");
    world.model_says([text("never").held()]);
    let delta = world.run("go").spawn();
    world.server.wait_for(1);
    delta.kill();
    world
}

#[test]
fn the_same_text_resumes() {
    let world = killed_while_waiting();
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    let requests = world.server.requests();
    assert_eq!(requests[0].body, requests[1].body);
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn no_text_resumes() {
    let world = killed_while_waiting();
    world.model_says([text("done")]);
    world.rerun().exits(0).prints("done\n");
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn another_text_starts_anew_and_mentions_the_old_run() {
    let world = killed_while_waiting();
    let old = world.latest();
    world.model_says([text("done")]);
    world
        .run("go elsewhere")
        .exits(0)
        .prints("done\n")
        .says(&old.id());
    assert_eq!(world.runs().len(), 2);
    assert_ne!(world.latest(), old);
    assert_eq!(old.events("ENGINE_START").len(), 1);
}

#[test]
fn a_completed_run_is_not_resumed() {
    let world = World::new();
    world.model_says([text("one"), text("two")]);
    world.run("go").exits(0).prints("one\n");
    world.run("go").exits(0).prints("two\n");
    assert_eq!(world.runs().len(), 2);
    world.rerun().refuses(2, "-m");
}

#[test]
fn a_failed_run_is_not_resumed() {
    let world = World::new();
    world.model_says([cut_off(), text("two")]);
    world.run("go").exits(1);
    world.run("go").exits(0).prints("two\n");
    assert_eq!(world.runs().len(), 2);
}

#[test]
fn the_same_text_while_the_run_is_live_is_told_to_come_back_later() {
    let world = World::new();
    world.model_says([text("done").held()]);
    let live = world.run("go").spawn();
    world.server.wait_for(1);
    let pid = live.pid().to_string();
    world.run("go").refuses(75, "already running").says(&pid);
    world.go_on().refuses(75, "already running").says(&pid);
    world.server.release();
    live.wait().exits(0).prints("done\n");
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn another_text_while_a_run_is_live_is_a_second_run() {
    let world = World::new();
    world.model_says([text("one").held(), text("two")]);
    let live = world.run("go").spawn();
    world.server.wait_for(1);
    world.run("another").exits(0).prints("two\n");
    world.server.release();
    live.wait().exits(0).prints("one\n");
    assert_eq!(world.runs().len(), 2);
}

#[test]
fn two_that_go_on_at_once_are_one_too_many() {
    let world = killed_while_waiting();
    world.model_says([text("done").held()]);
    let both = [world.go_on().spawn(), world.go_on().spawn()];
    world.server.wait_for(2);
    eventually("one has given up", || {
        both.iter().filter(|delta| alive(delta.pid())).count() == 1
    });
    world.server.release();
    let mut codes: Vec<_> = both.into_iter().map(|delta| delta.wait().code()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(75)]);
    assert_eq!(world.latest().events("ENGINE_START").len(), 2);
}

#[test]
fn ten_starts_of_one_command_at_once_are_one_run() {
    let world = World::new();
    world.model_says([text("done").held()]);
    let all: Vec<_> = (0..10).map(|_| world.run("go").spawn()).collect();
    world.server.wait_for(1);
    eventually("nine have given up", || {
        all.iter().filter(|delta| alive(delta.pid())).count() == 1
    });
    world.server.release();
    let codes: Vec<_> = all.into_iter().map(|delta| delta.wait().code()).collect();
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1);
    assert_eq!(codes.iter().filter(|code| **code == Some(75)).count(), 9);
    assert_eq!(world.runs().len(), 1);
}

/// `delta run --run-id nightly`.
/// An answer with which a run fails.
fn cut_off() -> Reply {
    answer(&json!({"role": "assistant", "content": "It is"}), "length")
}

fn nightly(world: &World, message: Option<&str>) -> Delta {
    let delta = world.rerun().args(["--run-id", "nightly"]);
    match message {
        Some(text) => delta.args(["-m", text]),
        None => delta,
    }
}

#[test]
fn a_run_id_names_the_run() {
    let world = World::new();
    world.model_says([text("done")]);
    nightly(&world, Some("go")).exits(0).prints("done\n");
    assert!(world.exists("ws/.delta/nightly/journal.jsonl"));
    assert_eq!(world.latest().id(), "nightly");
}

#[test]
fn a_completed_run_id_prints_its_result_again_and_runs_nothing() {
    let world = World::new();
    world.model_says([text("done")]);
    nightly(&world, Some("go")).exits(0).prints("done\n");
    let before = world.latest().read("journal.jsonl");
    nightly(&world, Some("go")).exits(0).prints("done\n");
    nightly(&world, None).exits(0).prints("done\n");
    let object = nightly(&world, Some("go")).json().exits(0).object();
    assert_eq!(object["result"], "done");
    assert_eq!(object["run_id"], "nightly");
    assert_eq!(world.latest().read("journal.jsonl"), before);
    assert_eq!(world.server.requests().len(), 1);
}

#[test]
fn a_run_id_with_another_message_is_an_error() {
    let world = World::new();
    world.model_says([text("done")]);
    nightly(&world, Some("go")).exits(0);
    nightly(&world, Some("stop"))
        .refuses(1, "nightly")
        .says("message");
}

#[test]
fn a_failed_run_id_is_an_error() {
    let world = World::new();
    world.model_says([cut_off()]);
    nightly(&world, Some("go")).exits(1);
    nightly(&world, Some("go"))
        .refuses(1, "nightly")
        .says("failed");
    assert_eq!(world.server.requests().len(), 1);
}

#[test]
fn an_interrupted_run_id_is_resumed() {
    let world = World::new();
    world.model_says([text("never").held()]);
    let delta = nightly(&world, Some("go")).spawn();
    world.server.wait_for(1);
    nightly(&world, Some("go"))
        .exits(75)
        .says("already running");
    delta.kill();
    world.model_says([text("done")]);
    nightly(&world, Some("go")).exits(0).prints("done\n");
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn a_run_id_that_is_not_there_needs_a_message() {
    let world = World::new();
    nightly(&world, None).refuses(2, "nightly");
    assert!(!world.exists("ws/.delta/nightly"));
}

#[test]
fn of_two_starts_of_a_run_id_at_the_same_instant_one_runs() {
    for _ in 0..5 {
        let world = World::new();
        world.model_says([text("done").held()]);
        let both = [
            nightly(&world, Some("go")).spawn(),
            nightly(&world, Some("go")).spawn(),
        ];
        world.server.wait_for(1);
        eventually("one has given up", || {
            both.iter().filter(|delta| alive(delta.pid())).count() == 1
        });
        world.server.release();
        let mut ends = both.map(Running::wait);
        ends.sort_by_key(Outcome::code);
        let [first, second] = ends;
        first.exits(0);
        second.exits(75).says("already running");
    }
}

/// With a clock that stands still, every start is at the same instant.
#[test]
fn runs_that_begin_at_the_same_instant_have_names_of_their_own() {
    if !installed(&["faketime"]) {
        return;
    }
    let frozen = ["faketime", "-f", "2026-01-01 00:00:00"];
    let [one, other] = [World::new(), World::new()].map(|world| {
        world.model_says([text("done")]);
        world.run("go").under(&frozen).exits(0);
        world.latest().id()
    });
    assert_ne!(one, other);
}

#[test]
fn continue_of_nothing_is_an_error() {
    let world = World::new();
    fs::create_dir(world.workspace()).unwrap();
    world.go_on().refuses(1, "no");
    world
        .delta(["continue", "-w", "nowhere"])
        .refuses(1, "nowhere");
    assert!(!world.exists("nowhere"));
}

#[test]
fn continue_of_an_interrupted_run_needs_no_message() {
    let world = killed_while_waiting();
    world.model_says([text("done")]);
    world.go_on().exits(0).prints("done\n");
}

#[test]
fn continue_of_an_interrupted_run_takes_a_message() {
    let world = killed_while_waiting();
    world.model_says([text("done")]);
    world
        .go_on()
        .args(["-m", "Hurry"])
        .exits(0)
        .prints("done\n");
    let messages = world.server.last().messages();
    let said: Vec<_> = messages
        .iter()
        .filter(|m| m["role"] == "user")
        .map(|m| &m["content"])
        .collect();
    assert_eq!(said, ["go", "Hurry"]);
}

#[test]
fn continue_of_a_completed_run_needs_a_message() {
    let world = World::new();
    world.model_says([text("one")]);
    world.run("go").exits(0);
    let before = world.latest().read("journal.jsonl");
    let outcome = world.go_on().end().prints("").says("completed").says("-m");
    assert!(
        matches!(outcome.code(), Some(1 | 2)),
        "{}",
        outcome.describe()
    );
    assert_eq!(world.latest().read("journal.jsonl"), before);

    world.model_says([text("two")]);
    world
        .go_on()
        .args(["-m", "And now?"])
        .exits(0)
        .prints("two\n");
    let messages = world.server.last().messages();
    let said: Vec<_> = messages[1..]
        .iter()
        .map(|m| m["content"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["go", "one", "And now?"]);
    assert_eq!(world.latest().metadata()["result"], "two");
    assert_eq!(world.latest().metadata()["iterations"], 2);
    assert_eq!(world.latest().metadata()["usage"]["llm_calls"], 2);
}

#[test]
fn continue_of_a_failed_run_needs_a_message() {
    let world = World::new();
    world.model_says([cut_off()]);
    world.run("go").exits(1);
    let outcome = world.go_on().end().prints("").says("failed").says("-m");
    assert!(
        matches!(outcome.code(), Some(1 | 2)),
        "{}",
        outcome.describe()
    );
    world.model_says([text("done")]);
    world
        .go_on()
        .args(["-m", "Again"])
        .exits(0)
        .prints("done\n");
}

#[test]
fn continue_can_name_an_older_run() {
    let world = World::new();
    world.model_says([text("one"), text("two"), text("three")]);
    world.run("first").exits(0);
    let first = world.latest().id();
    world.run("second").exits(0);
    world
        .go_on()
        .args(["--run-id", &first, "-m", "More"])
        .exits(0)
        .prints("three\n");
    assert_eq!(world.server.last().messages()[1]["content"], "first");
    world
        .go_on()
        .args(["--run-id", "nowhere", "-m", "More"])
        .refuses(1, "nowhere");
}

#[test]
fn continue_finds_the_agent_by_itself() {
    let world = killed_while_waiting();
    world.model_says([text("done")]);
    let workspace = world.workspace();
    fs::create_dir(world.path("elsewhere")).unwrap();
    let delta = world
        .delta(["continue", "-w"])
        .arg(workspace)
        .cwd(world.path("elsewhere"));
    delta.exits(0).prints("done\n");
}

/// A model that calls `echo` until the conversation has this many assistant messages.
fn counts_to(last: usize) -> impl FnMut(&Received) -> Reply + Send {
    move |request| {
        let said = request
            .messages()
            .iter()
            .filter(|m| m["role"] == "assistant")
            .count();
        if said == last {
            text("done")
        } else {
            call(
                &format!("call_{said}"),
                "echo",
                &json!({"words": format!("step {said}")}),
            )
        }
    }
}

#[test]
fn a_run_killed_after_each_iteration_ends_with_the_same_request_as_one_that_was_not() {
    let steps = 29;
    let whole = World::with_tools("- {name: echo, exec: 'echo ${words}'}");
    whole.server.answers(counts_to(steps));
    whole.run("go").exits(0).prints("done\n");

    let broken = World::with_tools("- {name: echo, exec: 'echo ${words}'}");
    let mut model = counts_to(steps);
    let mut asked = 0;
    // Every request is left unanswered once.
    broken.server.answers(move |request| {
        asked += 1;
        let reply = model(request);
        if asked % 2 == 1 { reply.held() } else { reply }
    });
    // The second request of each start is the one at which it is killed.
    for start in 0..=steps {
        let delta = broken.run("go").spawn();
        broken.server.wait_for(2 * start + 1);
        delta.kill();
    }
    broken.run("go").exits(0).prints("done\n");
    assert_eq!(
        String::from_utf8_lossy(&broken.server.last().body),
        String::from_utf8_lossy(&whole.server.last().body)
    );
    assert_eq!(broken.runs().len(), 1);
}

#[test]
fn a_kill_between_the_thought_and_its_action_loses_neither() {
    let world = World::with_tools("- {name: note, shell: 'echo ${n} >> ../log'}");
    world.model_says([call("a", "note", &work(1)), text("never").held()]);
    let delta = world.run("go").spawn();
    world.server.wait_for(2);
    delta.kill();
    // As if the engine had died just before the request of the action was written.
    let run = world.latest();
    let journal = run.text("journal.jsonl");
    let kept: Vec<&str> = journal
        .lines()
        .filter(|line| !line.contains("ACTION_RE"))
        .collect();
    fs::write(run.path("journal.jsonl"), kept.join("\n") + "\n").unwrap();
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.lines("log"), ["1", "1"]);
    assert_eq!(world.server.last().messages()[3]["tool_call_id"], "a");
}

/// A world with `work` under way in `ws`, with this beside the tool's other keys, and a copy of `ws` in `copy`.
#[track_caller]
fn copied_while_it_runs(options: &str) -> (World, Running, Fifo, Fifo, u32) {
    let tool = WORK.replacen("work,", &format!("work,{options}"), 1);
    let world = World::with_tools(&tool);
    let (mut ready, go) = (world.fifo("ready"), world.fifo("go"));
    world.model_says([call("call_1", "work", &work(1))]);
    let delta = world.run("go").spawn();
    let tool = ready.pid();
    let (from, to) = (world.workspace(), world.path("copy"));
    let copied = Command::new("cp").arg("-r").args([from, to]).status();
    assert!(copied.unwrap().success());
    (world, delta, ready, go, tool)
}

#[test]
fn a_copy_of_a_live_run_goes_on_and_leaves_the_originals_tool_alone() {
    let (world, delta, _ready, mut go, tool) = copied_while_it_runs("");
    world.model_says([text("copied")]);
    let copy = world.delta(["run", "--adopt", "-a", "agent", "-w", "copy", "-m", "go"]);
    copy.exits(0).prints("copied\n");
    assert!(alive(tool), "the original's tool lives");
    world.model_says([text("done")]);
    go.tell("on");
    delta.wait().exits(0).prints("done\n");
    assert_eq!(world.server.last().observation("call_1"), "half\nwhole\n");
    assert_eq!(worked(&world), ["1"]);
    let copy = Run::latest(&world.path("copy"));
    assert_eq!(copy.result(1)["status"], "ERROR");
}

#[test]
fn a_copy_under_another_name_leaves_the_originals_tool_alone() {
    let (world, delta, _ready, mut go, tool) = copied_while_it_runs("");
    let run = world.latest();
    let copied = Command::new("cp")
        .arg("-r")
        .args([&run.dir, &run.dir.with_file_name("twin")])
        .status();
    assert!(copied.unwrap().success());
    world.model_says([text("copied")]);
    let twin = world.go_on().args(["--run-id", "twin", "--adopt"]);
    twin.exits(0).prints("copied\n");
    assert!(alive(tool), "the original's tool lives");
    world.model_says([text("done")]);
    go.tell("on");
    delta.wait().exits(0).prints("done\n");
}

#[test]
fn a_copy_repeats_a_tool_under_an_id_of_its_own() {
    let (world, delta, mut ready, mut go, tool) = copied_while_it_runs(" on_resume: retry,");
    world.model_says([text("done"), text("done")]);
    let copy = world.delta(["run", "--adopt", "-a", "agent", "-w", "copy", "-m", "go"]);
    let copy = copy.spawn();
    let again = ready.pid();
    assert!(alive(tool) && alive(again));
    go.tell("on");
    go.tell("on");
    delta.wait().exits(0).prints("done\n");
    copy.wait().exits(0).prints("done\n");
    let log = world.lines("log");
    assert_eq!(log.len(), 2);
    assert_ne!(log[0], log[1], "each call has an id of its own");
}

#[test]
fn a_failed_run_id_tells_its_run_and_status_as_an_object() {
    let world = World::new();
    world.model_says([cut_off()]);
    let first = nightly(&world, Some("go")).json().exits(1).object();
    let outcome = nightly(&world, Some("go")).json().exits(1);
    let object = outcome.object();
    for key in ["run_id", "status", "stop_reason", "exit_code"] {
        assert_eq!(object[key], first[key], "{key}");
    }
    assert_eq!(object["run_id"], "nightly");
    assert_eq!(object["status"], "FAILED");
    assert_eq!(object["exit_code"], 1);
    let message = object["error"]["message"].as_str().unwrap();
    assert!(message.contains("cut off"), "{message}");
    assert_eq!(world.server.requests().len(), 1);
}
