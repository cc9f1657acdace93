//! Actions whose end no engine has seen: their checks, and the list of what was done.

use crate::engine::torture::{strace_works, traced};
use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// A tool that writes its call into a ledger outside the workspace, and a check that looks there. It stops at
/// `before` or `after` while there is a file of that name: it says `up` and waits.
const PAY: &str = r#"- name: pay
  shell: |
    stop() { if [ -e "../$1" ]; then echo up > ../ready; read x < ../go; fi; }
    stop before
    echo "$DELTA_CALL_ID ${amount}" >> ../ledger
    stop after
    echo "paid ${amount}"
  on_resume:
    check: [sh, -c, 'cat > ../asked; IFS=" " read id amount < ../ledger; [ "$id" = "$DELTA_CALL_ID" ] || exit 10; echo "paid $amount"']
"#;

/// The engine is killed while `pay` waits at `moment`.
fn killed_at(moment: &str, tools: &str) -> (World, Fifo) {
    let world = World::with_tools(tools);
    world
        .model_says([call("call_1", "pay", &json!({"amount": "5"})), text("done")])
        .may_stay_unasked();
    let (mut ready, go) = (world.fifo("ready"), world.fifo("go"));
    world.write("ledger", "");
    world.write(moment, "");
    let delta = world.run("go").spawn();
    ready.line();
    delta.kill();
    fs::remove_file(world.path(moment)).unwrap();
    // What is left of the tool waits as long as there is the pipe.
    (world, go)
}

#[test]
fn what_has_happened_is_not_repeated_and_the_check_says_what_came_of_it() {
    let (world, _go) = killed_at("after", PAY);
    world.run("go").exits(0).prints("done\n");
    let run = world.latest();
    assert_eq!(world.lines("ledger").len(), 1);
    assert_eq!(world.server.last().observation("call_1"), "paid 5\n");
    assert_eq!(world.read("asked"), r#"{"amount":"5"}"#);
    let check = run.events("ACTION_CHECK").remove(0);
    assert_eq!(check["status"], "HAPPENED");
    let result = run.result(1);
    assert_eq!(
        [
            &result["status"],
            &result["exit_code"],
            &result["execution_ref"]
        ],
        [&json!("SUCCESS"), &json!(0), &check["execution_ref"]]
    );
    let shown = world.delta(["log", "-w", "ws"]).exits(0).describe();
    assert!(
        shown.contains("pay has happened, its check says"),
        "{shown}"
    );
}

#[test]
fn what_has_not_happened_is_run_under_the_same_call_id() {
    let (world, _go) = killed_at("before", PAY);
    world.run("go").exits(0).prints("done\n");
    let run = world.latest();
    let requests = run.events("ACTION_REQUEST");
    let ids: Vec<_> = requests
        .iter()
        .map(|it| it["call_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1]);
    assert_eq!(world.lines("ledger"), [format!("{} 5", ids[0])]);
    assert_eq!(run.events("ACTION_CHECK")[0]["status"], "ABSENT");
    assert_eq!(world.server.last().observation("call_1"), "paid 5\n");
}

#[test]
fn a_check_that_does_not_know_leaves_it_to_the_model() {
    for (check, says) in [
        ("[sh, -c, 'echo no idea >&2; exit 1']", "exit code: 1"),
        ("[sh, -c, 'exit 11']", "exit code: 11"),
        ("[sh, -c, 'kill -9 $$']", "exit code: 137"),
        ("[sleep, '600'], timeout_ms: 1", "timed out after 1 ms"),
        ("[./is-not-there]", "exit code: 127"),
    ] {
        let start = PAY.find("    check:").unwrap();
        let tools = format!("{}    {{check: {check}}}\n", &PAY[..start]);
        let (world, _go) = killed_at("after", &tools);
        world.run("go").exits(0);
        let told = world.server.last().observation("call_1");
        assert!(told.contains("it has not been run again]"), "{told}");
        let could_not = "[a check whether this call has happened could not say: ";
        assert!(told.contains(could_not) && told.contains(says), "{told}");
        assert_eq!(world.lines("ledger").len(), 1);
        let run = world.latest();
        assert_eq!(run.events("ACTION_CHECK")[0]["status"], "UNKNOWN");
        assert_eq!(run.result(1)["status"], "ERROR");
    }
}

#[test]
fn a_check_that_was_cut_short_is_asked_again() {
    let tools = PAY.replace(
        "cat > ../asked;",
        "[ -e ../free ] || { echo $$ > ../ready; read x < ../go; };",
    );
    let (world, _go) = killed_at("after", &tools);
    fs::remove_file(world.path("ready")).unwrap();
    let mut ready = world.fifo("ready");
    for signal in [Signal::KILL, Signal::TERM] {
        let delta = world.run("go").spawn();
        let check = ready.pid();
        delta.signal(signal);
        delta.wait();
        assert_eq!(world.latest().events("ACTION_CHECK").len(), 0);
        assert_eq!(world.latest().events("ACTION_RESULT").len(), 0);
        assert!(signal == Signal::KILL || !alive(check));
    }
    world.write("free", "");
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.latest().events("ACTION_CHECK").len(), 1);
    assert_eq!(world.lines("ledger").len(), 1);
    assert!(world.processes().is_empty());
}

#[test]
fn a_check_gets_the_arguments_that_a_guard_let_through() {
    let guard = "#!/bin/sh\nprintf '{\"tool_args\": {\"amount\": \"7\"}}' > \"$DELTA_HOOK_IO_PATH/output/final_payload.json\"\n";
    let world = World::with_tools(PAY);
    let guard = world.script("agent/guard", guard);
    let hooks = format!("pre_tool_execution: {{command: ['{}']}}\n", guard.display());
    world.write("agent/hooks.yaml", hooks);
    world.write("ledger", "");
    world.write("after", "");
    world.model_says([call("call_1", "pay", &json!({"amount": "5"})), text("done")]);
    let (mut ready, _go) = (world.fifo("ready"), world.fifo("go"));
    let delta = world.run("go").spawn();
    ready.line();
    delta.kill();
    world.run("go").exits(0);
    assert_eq!(world.read("asked"), r#"{"amount":"7"}"#);
    assert_eq!(world.server.last().observation("call_1"), "paid 7\n");
}

#[test]
fn the_wrapper_of_a_tool_stands_before_its_check() {
    let (world, _go) = killed_at("after", PAY);
    let agent = world.read("agent/agent.yaml");
    world.write(
        "agent/agent.yaml",
        format!("wrapper: [sh, -c, 'echo wrapped; exec \"$@\"', --]\n{agent}"),
    );
    world.run("go").exits(0);
    assert_eq!(
        world.server.last().observation("call_1"),
        "wrapped\npaid 5\n"
    );
}

#[test]
fn a_mistaken_check_is_a_configuration_error() {
    for (keys, says) in [
        (
            "on_resume: ask",
            "expected one of report, retry, {check: [PROGRAM, …]}, found the string",
        ),
        ("on_resume: {chek: [x]}", "did you mean 'check'?"),
        ("on_resume: {timeout_ms: 5}", "has no check"),
        ("on_resume: {check: []}", "is empty; name a program"),
        ("on_resume: {check: 'a b'}", "expected a list of strings"),
        (
            "on_resume: {check: [grep, '${a}', x]}",
            "${a} has no value here",
        ),
        ("effect: some", "expected none"),
        ("subagent: maybe", "expected true or false"),
        (
            "subagent: true",
            "needs exec: or command: with `delta run …`",
        ),
    ] {
        let world = World::with_tools(&format!("- {{name: t, exec: 'true ${{a}}', {keys}}}"));
        world.run("go").exits(78).says("tool \"t\"").says(says);
        assert!(!world.exists("ws"));
    }
}

#[test]
fn an_agent_is_expanded_to_what_does_the_same() {
    let tools = "\
        - {name: a, exec: a, on_resume: {check: ['${AGENT_HOME}/c', x], timeout_ms: 5}}\n\
        - {name: b, exec: b, effect: none}\n\
        - {name: c, exec: c, effect: none, on_resume: report}\n\
        - {name: d, exec: 'delta run -w d -m ${task}', subagent: true, pass_api_key: true}\n";
    let world = World::new();
    world.write("tools.yaml", format!("tools:\n{tools}"));
    let expand = |file: &str| {
        let outcome = world.delta(["tool", "expand", file]).exits(0);
        String::from_utf8(outcome.stdout).unwrap()
    };
    let once = expand("tools.yaml");
    world.write("once.yaml", &once);
    assert_eq!(expand("once.yaml"), once);
    for part in [
        "check:",
        "timeout_ms: 5",
        "effect: none",
        "on_resume: report",
        "subagent: true",
    ] {
        assert!(once.contains(part), "{part}: {once}");
    }
    assert!(!once.contains("retry"), "{once}");
}

#[test]
fn what_has_no_effect_is_repeated() {
    let tools = PAY[..PAY.find("  on_resume").unwrap()].to_owned() + "  effect: none\n";
    let (world, _go) = killed_at("after", &tools);
    world.run("go").exits(0).prints("done\n");
    let ledger = world.lines("ledger");
    assert_eq!(ledger.len(), 2);
    assert_eq!(ledger[0], ledger[1]);
}

#[test]
fn check_advises_on_effects_and_sub_agents() {
    let sandbox = "wrapper: [delta, sandbox, --]";
    for (keys, says) in [
        (
            "exec: x, effect: none, on_resume: report",
            "effect: none|on_resume: report that it is not",
        ),
        (
            "exec: x, effect: none, on_resume: {check: [ls]}",
            "has a check",
        ),
        (
            "exec: 'delta run -m x', pass_api_key: true",
            "say subagent: false if",
        ),
        (
            "shell: 'delta run -m x', pass_api_key: true",
            "say subagent: false if",
        ),
        (
            &format!("exec: 'delta flow run -f x', pass_api_key: true, {sandbox}"),
            "can write neither its own records nor the ledger",
        ),
    ] {
        let world = World::with_tools(&format!("- {{name: t, description: d, {keys}}}"));
        let outcome = world.delta(["check", "agent"]).exits(0);
        outcome.says(says.rsplit('|').next().unwrap());
    }
    for keys in [
        "exec: 'delta run -m x', subagent: true, pass_api_key: true",
        "exec: 'delta run -m x', subagent: false, pass_api_key: true",
        "exec: ls, effect: none",
        "exec: ls, effect: none, on_resume: retry",
    ] {
        let world = World::with_tools(&format!("- {{name: t, description: d, {keys}}}"));
        let outcome = world.delta(["check", "agent"]).exits(0);
        outcome
            .does_not_say("tool \"t\": runs delta")
            .does_not_say("effect");
    }
}

/// State, tool, exit code and command of each row.
fn effects(world: &World) -> Vec<Value> {
    let log = world.delta(["log", "-w", "ws", "--effects", "--json"]);
    let outcome = log.exits(0);
    let text = String::from_utf8(outcome.stdout).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    rows.map(|row: Value| json!([row["tool_name"], row["state"], row["exit_code"]]))
        .collect()
}

#[test]
fn the_log_lists_each_action_with_an_effect_and_its_state() {
    let more = "- {name: look, exec: 'true', effect: none}\n\
                - {name: fail, shell: 'exit 3'}\n\
                - {name: forbidden, exec: 'touch ../forbidden'}\n\
                - {name: hold, shell: 'echo up > ../ready; read x < ../go'}\n";
    let world = World::with_tools(&format!("{PAY}{more}"));
    let guard = "#!/bin/sh\n[ \"$TOOL_NAME\" = forbidden ] || exit 0\n\
        echo '{\"action\": \"deny\", \"message\": \"no\"}' > \"$DELTA_HOOK_IO_PATH/output/control.json\"\n";
    let guard = world.script("agent/guard", guard);
    let hooks = format!("pre_tool_execution: {{command: ['{}']}}\n", guard.display());
    world.write("agent/hooks.yaml", hooks);
    let (mut ready, mut go) = (world.fifo("ready"), world.fifo("go"));
    world.write("ledger", "");
    world.write("after", "");
    world.model_says([
        calls(&[
            ("a", "look", json!({})),
            ("b", "fail", json!({})),
            ("c", "forbidden", json!({})),
            ("d", "nothing", json!({})),
            ("e", "pay", json!({"amount": "5"})),
            ("f", "hold", json!({})),
        ]),
        call("a", "hold", &json!({})),
        text("done"),
    ]);
    let delta = world.run("go").spawn();
    ready.line();
    let before = [
        json!(["fail", "done", 3]),
        json!(["forbidden", "denied", null]),
    ];
    let rows = |more: &[Value]| [&before, more].concat();
    assert_eq!(effects(&world), rows(&[json!(["pay", "running", null])]));
    delta.kill();
    assert_eq!(effects(&world), rows(&[json!(["pay", "open", null])]));
    let delta = world.run("go").spawn();
    ready.line();
    delta.kill();
    let delta = world.run("go").spawn();
    ready.line();
    go.tell("on");
    delta.wait().exits(0);
    assert_eq!(
        effects(&world),
        rows(&[
            json!(["pay", "checked", 0]),
            json!(["hold", "unknown", null]),
            json!(["hold", "done", 0]),
        ])
    );
    let shown = world.delta(["log", "-w", "ws", "--effects"]).exits(0);
    let shown = String::from_utf8(shown.stdout).unwrap();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].contains("STATE") && lines.len() == 6, "{shown}");
    assert!(lines[1].contains("done, exit code 3  fail"), "{shown}");
    for wrong in [["--effects", "-f"], ["--effects", "-n1"]] {
        world.delta(["log", "-w", "ws"]).args(wrong).exits(2);
    }
}

#[test]
fn a_replay_says_what_it_does_once_more() {
    let world = World::with_tools(
        "- {name: look, exec: 'true', effect: none}\n- {name: send, exec: 'true'}\n",
    );
    let both = [("a", "look", json!({})), ("b", "send", json!({}))];
    world.model_says([calls(&both), text("done")]);
    world.run("go").exits(0);
    let replay = |args: &[&str]| {
        world
            .delta(["replay", "-w", "ws", "LATEST"])
            .args(args)
            .end()
    };
    let outcome = replay(&["--tools", "run"]).exits(0);
    let outcome = outcome.says("tools with an effect run again: send\n");
    outcome.does_not_say("effect: look");
    replay(&["--tools", "recorded"])
        .exits(0)
        .does_not_say("effect");
}

/// Payments, two in each of three iterations; then the end.
fn payments(world: &World) {
    world.write("ledger", "");
    world.server.answers(|request| {
        let said = request.messages();
        let n = said.iter().filter(|it| it["role"] == "assistant").count();
        let ids = [format!("{n}-0"), format!("{n}-1")];
        let pay = |id| json!({"amount": id});
        match n {
            3 => text("done"),
            _ => calls(&[
                (&ids[0], "pay", pay(&ids[0])),
                (&ids[1], "pay", pay(&ids[1])),
            ]),
        }
    });
}

/// Each payment is in the ledger once, and the model was never asked about one.
#[track_caller]
fn is_paid(world: &World, killed: &str) {
    let mut ledger: BTreeMap<String, usize> = BTreeMap::new();
    for line in world.lines("ledger") {
        let (_, amount) = line.split_once(' ').unwrap();
        *ledger.entry(amount.to_owned()).or_default() += 1;
    }
    let last = world.server.last();
    for n in 0..6 {
        let id = format!("{}-{}", n / 2, n % 2);
        assert_eq!(ledger.remove(&id), Some(1), "{id}, {killed}");
        assert_eq!(last.observation(&id), format!("paid {id}\n"), "{killed}");
    }
    assert!(ledger.is_empty(), "{ledger:?}, {killed}");
}

/// A check that finds the call anywhere in the ledger.
fn payer() -> World {
    let start = PAY.find("    check:").unwrap();
    let world = World::with_tools(&format!(
        "{}    check: ['${{AGENT_HOME}}/paid']\n",
        &PAY[..start]
    ));
    world.script(
        "agent/paid",
        "#!/bin/sh\nwhile read -r id amount; do\n\
         [ \"$id\" = \"$DELTA_CALL_ID\" ] && echo \"paid $amount\" && exit 0\n\
         done < ../ledger\nexit 10\n",
    );
    payments(&world);
    world
}

#[test]
fn killed_at_any_write_nothing_is_paid_twice_and_nothing_is_lost() {
    if !strace_works() {
        return;
    }
    let rounds = given_or("DELTA_TEST_EFFECT_KILLS", 40);
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let names = "write,writev,pwrite64,rename,renameat,renameat2,mkdir,mkdirat,fdatasync,fsync,\
                 ftruncate,unlink,unlinkat,flock,sendto,clone,clone3,vfork,execve,wait4,waitid,poll,ppoll";
    let world = payer();
    traced(&world, &["-e", &format!("trace={names}"), "-o", "trace"]).exits(0);
    is_paid(&world, "never killed");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in world.lines("trace") {
        if let Some((name, _)) = line.split_once('(') {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    let moments: Vec<_> = counts
        .iter()
        .flat_map(|(name, count)| (1..=*count).map(move |n| (name, n)))
        .collect();
    let mut kills = 0;
    while kills < rounds {
        let world = payer();
        let mut killed = format!("DELTA_TEST_SEED={seed}, killed before");
        loop {
            // Later starts have less to do, and not each has such a moment.
            let (name, n) = moments[random.usize(..moments.len())];
            let inject = format!("inject={name}:signal=KILL:when={n}");
            let trace = format!("trace={name}");
            let outcome = traced(&world, &["-o", "/dev/null", "-e", &trace, "-e", &inject]);
            if outcome.killed_by().is_none() || !outcome.stdout.is_empty() {
                outcome.prints("done\n");
                break;
            }
            killed += &format!(" {name} {n}");
            kills += 1;
            if random.u8(..) < 100 {
                world.run("go").arg("-q").exits(0).prints("done\n");
                break;
            }
        }
        is_paid(&world, &killed);
    }
}

#[test]
fn killed_while_it_pays_nothing_is_paid_twice_and_nothing_is_lost() {
    let mut random = fastrand::Rng::new();
    for _ in 0..3 {
        let world = payer();
        let mut kills = 0;
        loop {
            let delta = world.run("go").arg("-q").spawn();
            let moment = Duration::from_micros(random.u64(2_000..60_000));
            let outcome = match kills {
                0..10 => delta.signal_after(moment, Signal::KILL),
                _ => delta.wait(),
            };
            // A run that has printed its answer is over: the next start may begin another.
            if outcome.killed_by().is_none() || !outcome.stdout.is_empty() {
                outcome.prints("done\n");
                break;
            }
            kills += 1;
        }
        is_paid(&world, "at random moments");
    }
}
