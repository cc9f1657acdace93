//! Sub-agents whose runs are suspended, and with them the runs whose calls they are.

use crate::engine::torture::{strace_works, traced};
use crate::harness::*;
use crate::runs::subagents::{depth, family, model, run_at, said};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;

const SUBAGENT: &str = ", subagent: true";

/// The third asks a person before it works.
fn asking(request: &Received) -> Reply {
    if depth(request) == 3 {
        match said(request).len() {
            0 => return call("ask", "ask_human", &json!({"prompt": "May I?"})),
            1 => return call("call_1", "work", &json!({})),
            _ => {}
        }
    }
    model(request)
}

/// The runs of the first, the second and the third.
fn runs(world: &World) -> [Run; 3] {
    ["ws", "ws/child", "ws/child/child"].map(|place| run_at(world, place))
}

/// All is done, each step of it once.
#[track_caller]
fn is_done(world: &World, about: &str) {
    assert_eq!(world.lines("log"), ["worked"], "{about}");
    for (place, above) in [
        ("ws", ""),
        ("ws/child", "done by 2\n"),
        ("ws/child/child", "done by 3\n"),
    ] {
        let workspace = world.path(place).join(".delta");
        let entries = fs::read_dir(workspace)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let runs = entries.filter(|path| path.join("journal.jsonl").exists());
        assert_eq!(runs.count(), 1, "{place}, {about}");
        let run = run_at(world, place);
        assert_eq!(run.ending().0, "COMPLETED", "{place}, {about}");
        let results = run.events("ACTION_RESULT");
        let told = &results.last().unwrap()["observation_content"];
        match place {
            "ws" => assert_eq!(*told, "done by 2\n", "{about}"),
            "ws/child" => assert_eq!(*told, "done by 3\n", "{about}"),
            _ => assert!(above.starts_with("done")),
        }
    }
}

#[test]
fn a_question_at_the_bottom_suspends_all_runs_above_it() {
    let world = family(SUBAGENT);
    world.server.answers(asking);
    let object = world.run("go").json().exits(101).object();
    let [one, two, three] = runs(&world);
    let subagent = Some("subagent".to_owned());
    assert_eq!(one.ending(), ("INTERRUPTED".to_owned(), subagent.clone()));
    assert_eq!(two.ending(), ("INTERRUPTED".to_owned(), subagent));
    assert_eq!(three.ending().0, "WAITING_FOR_INPUT");
    // Named after the tool and the call.
    let call = &one.events("ACTION_REQUEST")[0]["call_id"];
    assert_eq!(two.id(), format!("delegate-{}", call.as_str().unwrap()));
    assert_eq!(object["stop_reason"], "subagent");
    assert_eq!(object["exit_code"], 101);
    let awaits = &object["awaits"];
    assert_eq!(awaits["run_id"], three.id());
    assert_eq!(awaits["interaction"]["prompt"], "May I?");

    // Nobody has answered: nothing is asked again.
    let requests = world.server.requests().len();
    let journals = || [&one, &two, &three].map(|run| run.text("journal.jsonl"));
    let before = journals();
    let outcome = world.run("go").exits(101);
    let answer = format!("--run-id {} --question ", three.id());
    let outcome = outcome.says("May I?").says(&answer);
    outcome
        .says("INTERRUPTED (subagent)")
        .does_not_say("interrupted; reporting");
    let again = world.run("go").json().exits(101).object();
    for part in ["status", "stop_reason", "error", "awaits"] {
        assert_eq!(again[part], object[part]);
    }
    world.go_on().exits(101).says(&answer);
    assert_eq!(world.server.requests().len(), requests);
    // Nothing has changed, and nothing is recorded.
    assert_eq!(journals(), before);
    assert!(one.events("ACTION_RESULT").is_empty());

    fs::write(three.path("interaction/response.txt"), "yes\n").unwrap();
    world.run("go").exits(0).prints("done by 1\n");
    is_done(&world, "answered by a file");
    let log = world.delta(["log", "-w", "ws"]).exits(0).describe();
    assert_eq!(log.matches("asks   May I?").count(), 1, "{log}");
    let effects = world
        .delta(["log", "-w", "ws", "--effects", "--json"])
        .end();
    let rows = String::from_utf8(effects.stdout).unwrap();
    assert_eq!(rows.lines().count(), 1, "{rows}");
}

#[test]
fn the_printed_command_answers_and_the_runs_above_go_on() {
    let world = family(SUBAGENT);
    world.server.answers(asking);
    let object = world.run("go").json().exits(101).object();
    let command = object["awaits"]["answer_command"].as_str().unwrap();
    let program = env!("CARGO_BIN_EXE_delta");
    let command = command.replacen("delta", &format!("'{program}'"), 1);
    let command = command.replace(" ANSWER", " yes");
    Delta::of("sh", world.home())
        .args(["-c", &command])
        .exits(0)
        .prints("done by 3\n");
    // A message for the first is not the answer of the third.
    world
        .go_on()
        .args(["-m", "Hurry"])
        .exits(0)
        .prints("done by 1\n");
    is_done(&world, "answered by a command");
    let last = world.server.last();
    assert!(last.messages().iter().any(|it| it["content"] == "Hurry"));
}

#[test]
fn a_call_below_that_a_person_confirms_runs_once() {
    let world = family(SUBAGENT);
    let agent = world.read("agent3/agent.yaml");
    let agent = agent.replace("{name: work, ", "{name: work, confirm: true, ");
    world.write("agent3/agent.yaml", agent);
    world.server.answers(model);
    for _ in 0..2 {
        let object = world.run("go").json().exits(101).object();
        assert_eq!(object["stop_reason"], "subagent");
        assert_eq!(
            object["awaits"]["interaction"]["input_type"],
            "confirmation"
        );
    }
    let outcome = world.run("go").json().exits(101);
    let outcome = outcome.says("to let it run: ").says("Allow this command?");
    let object = outcome.object();
    let command = object["awaits"]["answer_command"].as_str().unwrap();
    assert!(command.ends_with(" -m yes"), "{command}");
    assert!(!world.exists("log"));

    let program = env!("CARGO_BIN_EXE_delta");
    let command = command.replacen("delta", &format!("'{program}'"), 1);
    Delta::of("sh", world.home())
        .args(["-c", &command])
        .exits(0)
        .prints("done by 3\n");
    world.run("go").exits(0).prints("done by 1\n");
    is_done(&world, "confirmed by the printed command");
    let [one, two, three] = runs(&world);
    for (run, asked) in [(one, 0), (two, 0), (three, 1)] {
        assert_eq!(run.events("HUMAN_INPUT_REQUEST").len(), asked);
        assert_eq!(run.events("HUMAN_INPUT_RECEIVED").len(), asked);
    }
}

#[test]
fn a_sub_agent_that_is_suspended_suspends_its_parent_with_the_same_code() {
    let broken = "llm: {";
    for (how, code) in [
        ("unavailable", 75),
        ("limit", 4),
        ("config", 78),
        ("killed", 75),
    ] {
        let world = family(SUBAGENT);
        let agent = world.read("agent3/agent.yaml");
        let agent = agent.replace("model: scripted,", "model: scripted, max_retries: 0,");
        let changed = match how {
            "limit" => agent.clone() + "max_iterations: 1\n",
            "config" => broken.to_owned(),
            _ => agent.clone(),
        };
        world.write("agent3/agent.yaml", changed);
        world.server.answers(move |request| match depth(request) {
            3 if how == "unavailable" => Reply::error(500, "no"),
            3 if how == "killed" => model(request).held(),
            _ => model(request),
        });
        let delta = world.run("go").json().spawn();
        if how == "killed" {
            world.server.wait_for(3);
            let run = run_at(&world, "ws/child/child");
            let pid = run.metadata()["pid"].as_i64().unwrap() as i32;
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        }
        let object = delta.wait().exits(code).object();
        assert_eq!(object["stop_reason"], "subagent", "{how}");
        let one = run_at(&world, "ws");
        assert_eq!(one.ending().0, "INTERRUPTED", "{how}");
        assert!(one.events("ACTION_RESULT").is_empty(), "{how}");
        world.write("agent3/agent.yaml", agent);
        world.server.answers(model);
        world.run("go").exits(0).prints("done by 1\n");
        is_done(&world, how);
    }
}

#[test]
fn a_result_of_a_sub_agent_is_a_result_whatever_it_is() {
    let world = family(SUBAGENT);
    world.server.answers(|request| match depth(request) {
        2 => answer(&json!({"role": "assistant", "content": "I ca"}), "length"),
        _ => model(request),
    });
    world.run("go").exits(0).prints("done by 1\n");
    let result = run_at(&world, "ws").result(1);
    assert_eq!(result["exit_code"], 1);

    let world = family(SUBAGENT);
    world.server.answers(model);
    let delta = world.run("go").env("DELTA_MAX_DEPTH", "1");
    delta.exits(0).prints("done by 1\n");
    let told = run_at(&world, "ws/child").result(1)["observation_content"].to_string();
    assert!(told.contains("DELTA_MAX_DEPTH"), "{told}");
}

#[test]
fn an_interrupted_run_resumes_its_sub_agents_with_itself() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let world = family(SUBAGENT);
        world.server.answers(|request| match depth(request) {
            3 => model(request).held(),
            _ => model(request),
        });
        let delta = world.run("go").spawn();
        world.server.wait_for(3);
        delta.signal(signal);
        delta.wait();
        let one = run_at(&world, "ws");
        assert!(one.events("ACTION_RESULT").is_empty());
        if signal == Signal::INT {
            assert_eq!(one.ending().1.as_deref(), Some("SIGINT"));
        }
        world.server.answers(model);
        world.run("go").exits(0).prints("done by 1\n");
        is_done(&world, &format!("{signal:?}"));
    }
}

#[test]
fn what_a_suspended_sub_agent_left_running_stays() {
    for confirm in [false, true] {
        let options = if confirm { ", confirm: true" } else { "" };
        let world = family(&format!("{SUBAGENT}{options}"));
        let agent = world.read("agent3/agent.yaml");
        let server =
            "- {name: serve, shell: 'sleep 600 > /dev/null 2>&1 & echo $! > \"$HOME/pid\"'}\n";
        world.write("agent3/agent.yaml", agent + "  " + server);
        world
            .server
            .answers(|request| match (depth(request), said(request).len()) {
                (3, 0) => call("s", "serve", &json!({})),
                (3, 1) => call("ask", "ask_human", &json!({"prompt": "May I?"})),
                (3, 2) => call("call_1", "work", &json!({})),
                _ => model(request),
            });
        let places = ["ws", "ws/child", "ws/child/child"];
        // Whether the sub-agents may begin, from above, and then the question of the last.
        for place in &places[if confirm { 0 } else { 2 }..] {
            world.run("go").exits(101);
            let asking = run_at(&world, place);
            fs::write(asking.path("interaction/response.txt"), "yes\n").unwrap();
        }
        let pid: u32 = world.read("pid").trim().parse().unwrap();
        world.run("go").exits(0);
        assert!(alive(pid), "confirm: {confirm}");
        is_done(&world, "a server was left");
        assert_eq!(
            run_at(&world, "ws").events("HUMAN_INPUT_REQUEST").len(),
            usize::from(confirm)
        );
    }
}

#[test]
fn a_sub_agent_runs_without_the_wrapper_and_its_siblings_with_it() {
    let world = family(SUBAGENT);
    let agent = world.read("agent/agent.yaml");
    let agent = format!("{agent}  - {{name: show, exec: env}}\nwrapper: [env, WRAPPED=1]\n");
    world.write("agent/agent.yaml", agent);
    world
        .server
        .answers(|request| match (depth(request), said(request).len()) {
            (1, 1) => call("call_2", "show", &json!({})),
            _ => model(request),
        });
    world.run("go").exits(0);
    assert!(!world.read("env").contains("WRAPPED"));
    let shown = run_at(&world, "ws").result(2)["observation_content"].to_string();
    assert!(shown.contains("WRAPPED=1"), "{shown}");
}

#[test]
fn a_sub_agent_has_the_engines_name_and_no_other() {
    for (tool, says) in [
        (
            "exec: 'delta run --run-id x -m ${t}'",
            "named after the call; remove --run-id",
        ),
        (
            "exec: 'delta run --run-id=${t} -m x'",
            "named after the call; remove --run-id=",
        ),
        ("command: [delta, flow, run, --new]", "remove --new"),
        (
            "exec: 'delta run -m ${t}', wrapper: [env]",
            "it runs without a wrapper",
        ),
        (
            "exec: 'delta run -m ${t}', on_resume: retry",
            "remove on_resume",
        ),
        ("shell: 'delta run -m ${t}'", "needs exec: or command:"),
        ("exec: 'delta log ${t}'", "needs exec: or command:"),
        (
            "exec: '${t}/delta run -m x'",
            "the program is a value of the model's",
        ),
    ] {
        let world = World::with_tools(&format!("- {{name: sub, {tool}, subagent: true}}"));
        world.run("go").exits(78).says("tool \"sub\"").says(says);
    }
    for tool in [
        "exec: 'delta run -m ${t} -- --run-id x', wrapper: []",
        "exec: '/usr/bin/delta flow run -f x', on_resume: null",
        "command: ['${AGENT_HOME}/../bin/delta-flow', run]",
    ] {
        let tool = tool.replace(", on_resume: null", "");
        let world = World::with_tools(&format!("- {{name: sub, {tool}, subagent: true}}"));
        world.delta(["check", "agent"]).exits(0);
    }
}

#[test]
fn in_the_sub_agents_own_workspaces_the_same_run_is_found_again() {
    let world = family(SUBAGENT);
    for name in ["agent", "agent2"] {
        let agent = world.read(&format!("{name}/agent.yaml"));
        world.write(
            &format!("{name}/agent.yaml"),
            agent.replace("-w, child, ", ""),
        );
    }
    world.server.answers(asking);
    let object = world.run("go").json().exits(101).object();
    let place = object["awaits"]["workspace_path"].as_str().unwrap();
    assert!(place.ends_with("agent3/workspaces/W001"), "{place}");
    let three = run_at(&world, "agent3/workspaces/W001");
    fs::write(three.path("interaction/response.txt"), "yes\n").unwrap();
    world.run("go").exits(0).prints("done by 1\n");
    assert_eq!(world.lines("log"), ["worked"]);
    for name in ["agent2", "agent3"] {
        assert!(!world.exists(&format!("{name}/workspaces/W002")));
    }
}

#[test]
fn a_task_of_several_lines_with_quotes_is_no_obstacle() {
    let world = family(SUBAGENT);
    world.server.answers(|request| {
        if depth(request) < 3 && said(request).is_empty() {
            return call(
                "call_1",
                "delegate",
                &json!({"task": "It's\n\"this\" $that"}),
            );
        }
        asking(request)
    });
    let object = world.run("go").json().exits(101).object();
    let [_, _, three] = runs(&world);
    assert_eq!(object["awaits"]["run_id"], three.id());
}

#[test]
fn the_runs_above_survive_any_kill() {
    if !strace_works() {
        return;
    }
    let rounds = given_or("DELTA_TEST_EFFECT_KILLS", 24);
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let make = || {
        let world = family(SUBAGENT);
        let agent = world.read("agent3/agent.yaml");
        let check =
            "on_resume: {check: [sh, -c, 'cd; if [ -e log ]; then echo; else exit 10; fi']}, ";
        let agent = agent.replace("{name: work, ", &format!("{{name: work, {check}"));
        world.write("agent3/agent.yaml", agent);
        world.server.answers(model);
        world
    };
    let names = [
        "write",
        "fdatasync",
        "mkdir",
        "renameat2",
        "rename",
        "ppoll",
        "poll",
        "flock",
    ];
    let mut kills = 0;
    while kills < rounds {
        let world = make();
        let name = names[random.usize(..names.len())];
        let n = random.usize(1..30);
        // With -f, any engine of the family.
        let follow: &[&str] = if random.bool() { &["-f"] } else { &[] };
        let inject = format!("inject={name}:signal=KILL:when={n}");
        let trace = format!("trace={name}");
        let args = ["-o", "/dev/null", "-e", &trace, "-e", &inject];
        let outcome = traced(&world, &[follow, &args].concat());
        kills += 1;
        let about = format!(
            "DELTA_TEST_SEED={seed}, {name} {n} {follow:?}: {}",
            outcome.describe()
        );
        let mut code = outcome.code();
        for _ in 0..20 {
            if code == Some(0) {
                break;
            }
            code = world.run("go").arg("-q").end().code();
        }
        assert_eq!(code, Some(0), "{about}");
        is_done(&world, &about);
    }
}

#[test]
fn an_agent_of_a_flow_is_suspended_with_its_sub_agent() {
    let world = crate::flow::agents::world("", "path: ../agent");
    let program = env!("CARGO_BIN_EXE_delta");
    let tool = format!(
        "- {{name: delegate, exec: '{program} run -q -a ${{AGENT_HOME}}/../below -w child -m ${{task}}', subagent: true}}"
    );
    let world = world.tools(&tool);
    for file in ["agent.yaml", "context.yaml"] {
        let text = world.read(&format!("agent/{file}"));
        world.write(
            &format!("below/{file}"),
            text.replace(&tool, "").replace("tools:\n", ""),
        );
    }
    world.write("below/system_prompt.md", "I am below.");
    world.server.answers(|request| {
        let below = request.messages()[0]["content"]
            .to_string()
            .contains("below");
        match (below, said(request).len()) {
            (false, 0) => call("call_1", "delegate", &json!({"task": "do it"})),
            (true, 0) => call("ask", "ask_human", &json!({"prompt": "May I?"})),
            _ => text("{\"ok\": true}"),
        }
    });
    let outcome = crate::flow::agents::command(&world).exits(101);
    let below = run_at(&world, "ws/child");
    let answer = format!("--run-id {} --question ", below.id());
    outcome.says("May I?").says(&answer);
    fs::write(below.path("interaction/response.txt"), "yes\n").unwrap();
    let outcome = crate::flow::agents::command(&world).exits(0);
    outcome.prints("{\"ok\": true}\n");
    let metadata: Value = below.metadata();
    assert_eq!(metadata["status"], "COMPLETED");
}
