//! Calls that end later: deferred, looked at when it is time, and given their results once.

use crate::engine::torture::{strace_works, traced};
use crate::harness::*;
use crate::record::attachments::png;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

/// A tool that submits something, and a check that prints `../said` and ends with the code in `../code`.
pub const BUILD: &str = r#"- name: build
  shell: 'echo "${branch} $DELTA_CALL_ID" >> ../submitted; echo queued; echo ci-7; exit 75'
  later:
    check: [sh, -c, 'cat > ../asked; echo "$DELTA_HANDLE $DELTA_CALL_ID ${DELTA_LATER_LAST-}" >> ../looks; cat ../said; echo oops >&2; exit $(cat ../code)']
    every_s: 3600
"#;

/// A run that waits for `build`, with the answer "done" behind it.
pub fn waiting(tools: &str) -> World {
    let world = World::with_tools(tools);
    world
        .model_says([
            call("call_1", "build", &json!({"branch": "main"})),
            text("done"),
        ])
        .may_stay_unasked();
    world.write("said", "all green\n");
    world.write("code", "75");
    world.run("go").exits(75);
    world
}

/// Moves times of the run's record an hour and a half, or more, into the past, so that what was to come has come.
pub fn let_time_pass(run: &Run, members: &[&str]) {
    let mut text = String::new();
    for mut event in run.journal() {
        for member in members {
            if event.get(member).is_some() {
                event[*member] = json!("2026-01-02T03:04:05.678Z");
            }
        }
        text += &format!("{event}\n");
    }
    fs::write(run.path("journal.jsonl"), text).unwrap();
}

fn is_due(world: &World) {
    let_time_pass(&world.latest(), &["due_at"]);
}

#[test]
fn a_call_that_exits_75_with_a_handle_suspends_the_run() {
    let world = World::with_tools(BUILD);
    world.model_says([call("call_1", "build", &json!({"branch": "main"}))]);
    let ended = world.run("go").exits(75).prints("");
    ended.says("INTERRUPTED (deferred): waits for build (ci-7)");
    let run = world.latest();
    let expected = ("INTERRUPTED".to_owned(), Some("deferred".to_owned()));
    assert_eq!(run.ending(), expected);
    let event = run.events("ACTION_DEFERRED").remove(0);
    let members: Vec<&String> = event.as_object().unwrap().keys().collect();
    assert_eq!(
        members,
        [
            "seq",
            "timestamp",
            "type",
            "iteration",
            "action_id",
            "handle",
            "due_at",
            "expires_at",
            "execution_ref"
        ]
    );
    assert_eq!([&event["action_id"], &event["handle"]], ["call_1", "ci-7"]);
    assert!(run.events("ACTION_RESULT").is_empty());
    assert_eq!(run.metadata()["due_at"], event["due_at"]);
    assert_eq!(world.read("ws/.delta/VERSION"), "1.3\n");
    // Six hex digits and a dot, more or less.
    let entry = world.read(&format!(".local/state/delta/due/{}", run.id()));
    let entry: Value = serde_json::from_str(&entry).unwrap();
    assert_eq!(entry["due_at"], event["due_at"]);
    let listed = world.delta(["list-runs", "-w", "ws"]).exits(0);
    assert!(
        listed.describe().contains("due 20"),
        "{}",
        listed.describe()
    );
}

#[test]
fn a_start_before_its_time_appends_nothing() {
    let world = waiting(BUILD);
    let run = world.latest();
    let before = run.text("journal.jsonl");
    let hooks = "on_iteration_start: {command: [touch, ../hooked]}\n";
    world.write("agent/hooks.yaml", hooks);
    for start in [world.run("go"), world.go_on(), world.run("go").arg("-i")] {
        start.exits(75).prints("").says("next look at 20");
    }
    let object = world.run("go").json().exits(75).object();
    assert_eq!(
        [&object["stop_reason"], &object["status"]],
        ["deferred", "INTERRUPTED"]
    );
    assert_eq!(run.text("journal.jsonl"), before);
    assert!(!world.exists("hooked") && !world.exists("looks"));
    // The entry is there again.
    let entry = format!(".local/state/delta/due/{}", run.id());
    fs::remove_file(world.path(&entry)).unwrap();
    world.run("go").exits(75);
    assert!(world.exists(&entry));
}

#[test]
fn a_look_that_finds_the_end_gives_the_call_its_result() {
    let world = waiting(BUILD);
    is_due(&world);
    world.write("code", "0");
    world.run("go").exits(0).prints("done\n");
    let run = world.latest();
    assert_eq!(world.server.last().observation("call_1"), "all green\n");
    let id = run.events("ACTION_REQUEST")[0]["call_id"].clone();
    let id = id.as_str().unwrap();
    assert_eq!(world.lines("looks"), [format!("ci-7 {id} ")]);
    assert_eq!(world.lines("submitted"), [format!("main {id}")]);
    assert_eq!(world.read("asked"), r#"{"branch":"main"}"#);
    let result = run.result(1);
    assert_eq!(
        [&result["status"], &result["exit_code"]],
        [&json!("SUCCESS"), &json!(0)]
    );
    assert!(run.execution(1).to_str().unwrap().ends_with("build_look"));
    assert!(run.metadata().get("due_at").is_none());
    assert!(!world.exists(&format!(".local/state/delta/due/{}", run.id())));
    let shown = world.delta(["log", "-w", "ws"]).exits(0).describe();
    assert!(shown.contains("ends later (ci-7)"), "{shown}");
    let stats = world.delta(["stats", "-w", "ws", "--format", "json"]);
    let stats = String::from_utf8(stats.exits(0).stdout).unwrap();
    assert!(stats.contains("\"deferred_ms\""), "{stats}");
    // Nothing is executed again, and the result is the recorded one.
    world.write("said", "other\n");
    for tools in ["run", "recorded"] {
        world
            .delta(["replay", "-w", "ws", "--tools", tools])
            .exits(0);
    }
    assert_eq!(world.lines("submitted").len(), 1);
}

#[test]
fn what_a_look_attaches_belongs_to_the_result() {
    let attach = "cp ../q.png \"$DELTA_ATTACH\"; cat ../said;";
    let world = waiting(&BUILD.replace("cat ../said;", attach));
    world.write("q.png", png(4, 2, b""));
    is_due(&world);
    world.write("code", "0");
    world.run("go").exits(0);
    let result = world.latest().result(1);
    assert_eq!(result["attachments"].as_array().unwrap().len(), 1);
    let observation = result["observation_content"].as_str().unwrap();
    assert_eq!(observation, "all green\n[picture q.png, 4x2, image/png]");
}

#[test]
fn exit_code_10_of_a_look_is_an_end_that_failed() {
    let world = waiting(BUILD);
    is_due(&world);
    world.write("code", "10");
    world.run("go").exits(0).prints("done\n");
    let shown = world.server.last().observation("call_1");
    assert_eq!(shown, "all green\n[stderr]\noops\n");
    let result = world.latest().result(1);
    assert_eq!(
        [&result["status"], &result["exit_code"]],
        [&json!("FAILED"), &json!(10)]
    );
}

#[test]
fn looks_that_find_no_end_come_at_doubled_times_and_warn_once() {
    let world = waiting(BUILD);
    let wait = |event: &Value| {
        let at = |name: &str| {
            let text = event[name].as_str().unwrap();
            let clock = &text[11..19];
            let parts: Vec<i64> = clock.split(':').map(|it| it.parse().unwrap()).collect();
            let day: i64 = text[8..10].parse().unwrap();
            ((day * 24 + parts[0]) * 60 + parts[1]) * 60 + parts[2]
        };
        at("due_at") - at("timestamp")
    };
    let run = world.latest();
    let mut waits = vec![wait(&run.events("ACTION_DEFERRED")[0])];
    for code in ["75", "3", "143", "75"] {
        world.write("code", code);
        // The wait itself must stay as it was: only the clock moves.
        move_clock(&run);
        world.run("go").exits(75).says("deferred");
        let look = run.events("DEFERRED_LOOK").pop().unwrap();
        assert_eq!(look["exit_code"], code.parse::<i64>().unwrap());
        let members: Vec<&String> = look.as_object().unwrap().keys().skip(4).collect();
        assert_eq!(members, ["action_id", "exit_code", "due_at", "expires_at"]);
        waits.push(wait(&look));
    }
    let hours: Vec<i64> = waits.iter().map(|wait| (wait + 30) / 3600).collect();
    assert_eq!(hours, [1, 2, 4, 8, 10]);
    let warned = run.events("SYSTEM_MESSAGE");
    let warned = warned.iter().filter(|it| it["level"] == "WARN");
    assert_eq!(warned.count(), 1);
    assert_eq!(world.lines("looks").len(), 4);
}

/// Moves all times of the run's record 20 hours back, which keeps the time from an event to its `due_at`.
fn move_clock(run: &Run) {
    let mut text = String::new();
    for mut event in run.journal() {
        for member in ["timestamp", "due_at"] {
            if let Some(at) = event.get(member).and_then(Value::as_str) {
                let day: u32 = at[8..10].parse().unwrap();
                let (month, day) = match day {
                    1 => ("01", 27),
                    day => (&at[5..7], day - 1),
                };
                event[member] = json!(format!("{}{month}-{day:02}{}", &at[..5], &at[10..]));
            }
        }
        text += &format!("{event}\n");
    }
    fs::write(run.path("journal.jsonl"), text).unwrap();
}

#[test]
fn times_that_a_program_writes_replace_those_of_the_agent() {
    let tools = BUILD
        .replace(
            "echo queued",
            r#"echo "{\"every_s\": 7200, \"expires_s\": 172800}" > "$DELTA_LATER""#,
        )
        .replace("cat ../said;", r#"cat ../said > "$DELTA_LATER";"#);
    let world = waiting(&tools);
    let run = world.latest();
    let event = run.events("ACTION_DEFERRED").remove(0);
    let hour = |event: &Value, name: &str| event[name].as_str().unwrap()[11..13].to_owned();
    let day = |event: &Value, name: &str| event[name].as_str().unwrap()[8..10].to_owned();
    assert_ne!(hour(&event, "due_at"), hour(&event, "timestamp"));
    assert_ne!(day(&event, "expires_at"), day(&event, "timestamp"));
    assert!(run.executions()[0].join("attach/.later.json").exists());
    // What is no pair of times is warned of and changes nothing.
    for (said, is_warned) in [
        ("{\"every_s\": 1}", false),
        ("{\"every_s\": 0}", true),
        ("{\"every\": 5}", true),
        ("no JSON", true),
    ] {
        world.write("said", said);
        let before = run.events("SYSTEM_MESSAGE").len();
        is_due(&world);
        world.run("go").exits(75);
        let warned = run.events("SYSTEM_MESSAGE").len() > before;
        assert_eq!(warned, is_warned, "{said}");
        let look = run.events("DEFERRED_LOOK").pop().unwrap();
        assert_eq!(look["expires_at"], event["expires_at"]);
    }
}

#[test]
fn after_its_last_look_a_call_has_failed() {
    let world = waiting(BUILD);
    let_time_pass(&world.latest(), &["due_at", "expires_at"]);
    world.run("go").exits(0).prints("done\n");
    let looks = world.lines("looks");
    assert!(looks.len() == 1 && looks[0].ends_with(" 1"), "{looks:?}");
    let shown = world.server.last().observation("call_1");
    assert!(
        shown.starts_with("[nothing known after ") && shown.ends_with(" s]"),
        "{shown}"
    );
    assert_eq!(world.latest().result(1)["status"], "FAILED");
    // The last look may still find the end.
    let world = waiting(BUILD);
    let_time_pass(&world.latest(), &["due_at", "expires_at"]);
    world.write("code", "0");
    world.run("go").exits(0);
    assert_eq!(world.server.last().observation("call_1"), "all green\n");
}

#[test]
fn what_is_no_handle_is_a_failure_with_the_output() {
    for (print, why) in [
        ("true", "it printed no handle"),
        ("printf '\\n  \\n'", "it printed no handle"),
        ("printf '\\377\\n'", "not text in UTF-8"),
        (
            "head -c 1025 /dev/zero | tr '\\0' x",
            "more than 1024 bytes",
        ),
        ("printf 'a\\0b\\n'", "not text in UTF-8"),
    ] {
        let tools = format!(
            "- name: build\n  shell: \"{}; exit 75\"\n  later: {{check: ['true']}}\n",
            print.replace('\\', "\\\\")
        );
        let world = World::with_tools(&tools);
        let told = world.observe("build", &json!({}));
        assert!(
            told.contains("[exit code: 75]") && told.contains(why),
            "{print}: {told}"
        );
        assert_eq!(world.latest().result(1)["status"], "FAILED", "{print}");
    }
}

#[test]
fn the_longest_handle_arrives_as_it_is_and_empty_lines_behind_it_do_not_count() {
    let tools = "- name: build\n  shell: 'yes | head -c 300000; printf \"\\n%01024d\\n\\n\\n\" 7; exit 75'\n  \
                 later: {check: [sh, -c, 'printf %s \"$DELTA_HANDLE\"']}\n";
    let world = World::with_tools(tools);
    world.model_says([call("call_1", "build", &json!({})), text("done")]);
    world.run("go").exits(75);
    is_due(&world);
    world.run("go").exits(0);
    let handle = world.server.last().observation("call_1");
    assert_eq!(handle, format!("{:01024}", 7));
}

#[test]
fn a_tool_without_later_has_failed_with_75() {
    let world = World::with_tools("- {name: t, shell: 'echo x; exit 75'}\n");
    assert_eq!(world.observe("t", &json!({})), "x\n[exit code: 75]");
}

#[test]
fn later_and_subagent_exclude_each_other() {
    let world = World::with_tools(
        "- {name: t, exec: 'delta run -a x', subagent: true, later: {check: [x]}}\n",
    );
    world.server.may_stay_unasked();
    world
        .run("go")
        .refuses(78, "later: a sub-agent's run waits by itself");
    for (later, why) in [
        ("{}", "later: has no check"),
        ("{check: []}", "later: check: is empty"),
        ("{check: [x], every_s: 0}", "expected at least 1, found 0"),
        ("{check: [x], every: 1}", "unknown key 'every'"),
        ("{check: ['${a}']}", "${a} has no value here"),
    ] {
        let world = world_with(later);
        world.run("go").refuses(78, why);
    }
}

fn world_with(later: &str) -> World {
    let world = World::unasked();
    world.tools(&format!(
        "- {{name: t, exec: 'x ${{a}}', later: {later}}}\n"
    ))
}

#[test]
fn a_message_is_recorded_at_once_and_stands_behind_the_result() {
    let world = waiting(BUILD);
    world.go_on().args(["-m", "hurry up"]).exits(75);
    let run = world.latest();
    assert_eq!(run.events("USER_MESSAGE").len(), 2);
    assert!(world.lines("looks").is_empty());
    is_due(&world);
    world.write("code", "0");
    world.run("go").exits(0);
    let roles: Vec<String> = world.server.last().messages()[1..]
        .iter()
        .map(|message| message["role"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"]);
}

#[test]
fn give_up_fails_every_waiting_call() {
    let world = World::with_tools(BUILD);
    let two = [
        ("a", "build", json!({"branch": "one"})),
        ("b", "build", json!({"branch": "two"})),
    ];
    world.model_says([calls(&two), text("done")]);
    world.write("code", "75");
    world.write("said", "");
    world.run("go").exits(75);
    world.go_on().arg("--give-up").exits(0).prints("done\n");
    let run = world.latest();
    for n in [1, 2] {
        let result = run.result(n);
        assert_eq!(result["observation_content"], "[given up by a person]");
        assert_eq!(result["status"], "FAILED");
    }
    assert!(world.lines("looks").is_empty());
    world
        .go_on()
        .arg("--give-up")
        .refuses(2, "waits for no call");
}

#[test]
fn the_other_calls_of_a_message_run_and_all_that_are_due_are_looked_at() {
    let tools = format!("{BUILD}- {{name: note, shell: 'echo ${{text}} >> ../notes'}}\n");
    let world = World::with_tools(&tools);
    let three = [
        ("a", "build", json!({"branch": "one"})),
        ("b", "note", json!({"text": "x"})),
        ("c", "build", json!({"branch": "two"})),
    ];
    world.model_says([calls(&three), text("done")]);
    world.write("code", "75");
    world.write("said", "");
    world.run("go").exits(75);
    assert_eq!(world.lines("notes"), ["x"]);
    assert_eq!(world.lines("submitted").len(), 2);
    is_due(&world);
    world.run("go").exits(75);
    assert_eq!(world.lines("looks").len(), 2);
    is_due(&world);
    world.write("code", "0");
    world.run("go").exits(0);
    assert_eq!(world.lines("looks").len(), 4);
    assert_eq!(world.lines("notes").len(), 1);
}

#[test]
fn an_open_question_comes_before_the_wait() {
    let world = World::with_tools(BUILD);
    let two = [
        ("a", "build", json!({"branch": "one"})),
        ("b", "ask_human", json!({"prompt": "really?"})),
    ];
    world.model_says([calls(&two), text("done")]);
    world.write("code", "0");
    world.write("said", "");
    world.run("go").exits(101);
    world.go_on().args(["-m", "yes"]).exits(75).says("deferred");
    is_due(&world);
    world.run("go").exits(0);
}

#[test]
fn wait_stays_until_the_call_has_ended() {
    let tools = BUILD.replace("every_s: 3600", "every_s: 1");
    let world = World::with_tools(&tools);
    world.model_says([
        call("call_1", "build", &json!({"branch": "main"})),
        text("done"),
    ]);
    world.write("code", "0");
    world.write("said", "all green\n");
    world.run("go").arg("--wait").exits(0).prints("done\n");
    assert_eq!(world.lines("looks").len(), 1);
    let run = world.latest();
    assert_eq!(run.events("ENGINE_START").len(), 1);
}

#[test]
fn a_wait_counts_for_no_limit_of_time() {
    let tools = BUILD.replace("every_s: 3600", "every_s: 5");
    let world = World::with_tools(&tools).top("limits: {seconds: 4}\nbudget: {seconds: 3600}");
    world.model_says([
        call("call_1", "build", &json!({"branch": "main"})),
        text("done"),
    ]);
    world.write("code", "0");
    world.write("said", "");
    world.run("go").arg("--wait").exits(0).prints("done\n");
    let run = world.latest();
    let time = |kind: &str| {
        let event = run.events(kind).remove(0);
        let time = event["timestamp"].as_str().unwrap().to_owned();
        let seconds = time[11..23].split(':').map(|it| it.parse::<f64>().unwrap());
        seconds.fold(0.0, |sum, part| sum * 60.0 + part)
    };
    let took = (time("ENGINE_END") - time("ENGINE_START")).rem_euclid(86_400.0);
    let worked = run.events("ENGINE_END")[0]["engine_ms"].as_f64().unwrap();
    assert!(took - worked / 1000.0 > 4.5, "{took} s, {worked} ms");
}

#[test]
fn a_record_without_a_time_makes_no_look_follow_another_at_once() {
    let world = waiting(BUILD);
    let run = world.latest();
    // As the clock leaves it that was set forward before the event was written.
    let_time_pass(&run, &["due_at"]);
    world.run("go").exits(75);
    let look = run.events("DEFERRED_LOOK").remove(0);
    assert!(
        look["due_at"].as_str() > look["timestamp"].as_str(),
        "{look}"
    );
}

#[test]
fn an_iteration_that_waits_is_not_forked_and_the_report_shows_its_events() {
    let world = waiting(BUILD);
    let fork = world.delta(["fork", "-w", "ws", "--at", "1", "-m", "on"]);
    fork.refuses(2, "build has no result yet");
    is_due(&world);
    world.run("go").exits(75);
    let report = world.delta(["report", "-w", "ws"]).exits(0).describe();
    assert!(report.contains("ends later (ci-7); look at 20"));
    assert!(report.contains("has not ended; look again at 20"));
}

#[test]
fn a_wait_ends_with_a_signal_and_at_the_deadline() {
    let world = waiting(BUILD);
    let ended = world.run("go").arg("--wait").spawn();
    while !ended.stderr().contains("waiting until") {
        std::thread::yield_now();
    }
    ended.signal(Signal::TERM);
    ended.wait().exits(143);
    world.run("go").exits(75).says("deferred");
    let soon = world.run("go").args(["--wait", "--deadline", "+31s"]);
    soon.exits(75).says("INTERRUPTED (deadline)");
    assert!(world.lines("looks").is_empty());
}

#[test]
fn nothing_of_a_deferred_call_lives_on() {
    let tools = BUILD.replace("echo queued", "(sleep 600 & )");
    let world = waiting(&tools);
    assert!(world.processes().is_empty());
    let tools = BUILD.replace("cat ../said;", "(sleep 600 & ) ;");
    let world = waiting(&tools);
    is_due(&world);
    world.run("go").exits(75);
    assert!(world.processes().is_empty());
}

#[test]
fn calls_that_run_at_once_are_deferred_too() {
    let tools = BUILD.replace("  later:", "  parallel: 4\n  later:");
    for hooks in ["", "post_tool_execution: {command: ['true']}\n"] {
        let world = World::with_tools(&tools);
        world.write("agent/hooks.yaml", hooks);
        let two = [
            ("a", "build", json!({"branch": "one"})),
            ("b", "build", json!({"branch": "two"})),
        ];
        world.model_says([calls(&two), text("done")]);
        world.write("code", "0");
        world.write("said", "green");
        world.run("go").exits(75);
        assert_eq!(world.latest().events("ACTION_DEFERRED").len(), 2);
        is_due(&world);
        world.run("go").exits(0);
        assert_eq!(world.lines("submitted").len(), 2);
    }
}

#[test]
fn a_kill_at_any_event_begins_nothing_twice_and_loses_no_handle() {
    // Each length of the journal is a moment at which the engine may have died.
    let whole = {
        let world = waiting(BUILD);
        is_due(&world);
        world.run("go").exits(75);
        is_due(&world);
        world.write("code", "0");
        world.run("go").exits(0);
        world.latest().journal()
    };
    let deferred = whole.iter().position(|it| it["type"] == "ACTION_DEFERRED");
    let result = whole.iter().position(|it| it["type"] == "ACTION_RESULT");
    for length in deferred.unwrap() + 1..=result.unwrap() + 1 {
        let world = waiting(BUILD);
        world.write("code", "0");
        let run = world.latest();
        let id = run.id();
        let lines = whole[..length].iter().map(|event| {
            let mut event = event.clone();
            if event.get("run_id").is_some() {
                event["run_id"] = json!(id);
            }
            for (name, path) in [("work_dir", "ws"), ("agent_home", "agent")] {
                if event.get(name).is_some() {
                    event[name] = json!(world.path(path));
                }
            }
            format!("{event}\n")
        });
        fs::write(run.path("journal.jsonl"), lines.collect::<String>()).unwrap();
        let mut metadata = run.metadata();
        metadata["status"] = json!("RUNNING");
        fs::write(run.path("metadata.json"), metadata.to_string()).unwrap();
        is_due(&world);
        world.run("go").exits(0).prints("done\n");
        assert_eq!(world.lines("submitted").len(), 1, "{length}");
        let looks = usize::from(length <= result.unwrap());
        assert_eq!(world.lines("looks").len(), looks, "{length}");
        assert_eq!(run.events("ACTION_RESULT").len(), 1, "{length}");
    }
}

#[test]
fn killed_at_any_call_of_the_system_it_begins_nothing_twice_and_loses_no_handle() {
    if !strace_works() {
        return;
    }
    let names = "write,rename,renameat2,mkdir,fdatasync,fsync,unlink,flock,sendto,clone3,vfork,\
                 wait4,poll,openat,read,statx";
    let trace = format!("trace={names}");
    let moments = {
        let world = submitting();
        traced(&world, &["-e", &trace, "-o", "trace"]).exits(75);
        let lines = world.lines("trace").into_iter();
        let names = lines.filter_map(|line| Some(line.split_once('(')?.0.to_owned()));
        names.fold(BTreeMap::new(), |mut counts, name| {
            *counts.entry(name).or_insert(0) += 1;
            counts
        })
    };
    let moments: Vec<(String, usize)> = moments.into_iter().collect();
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut kills = 0;
    while kills < given_or("DELTA_TEST_LATER_KILLS", 8) {
        let world = submitting();
        let mut killed = format!("DELTA_TEST_SEED={seed}, killed before");
        let mut outcome;
        loop {
            let (name, count) = &moments[random.usize(..moments.len())];
            let n = random.usize(1..=*count);
            outcome = match random.u8(..4) {
                0 => world.run("go").arg("-q").end(),
                _ => {
                    let inject = format!("inject={name}:signal=KILL:when={n}");
                    traced(&world, &["-o", "/dev/null", "-e", &trace, "-e", &inject])
                }
            };
            if outcome.code() == Some(0) {
                break;
            }
            if outcome.killed_by().is_some() {
                killed += &format!(" {name} {n}");
                kills += 1;
            } else {
                assert_eq!(outcome.code(), Some(75), "{killed}: {}", outcome.describe());
            }
            // A directory that was being made when its process was killed is no run yet.
            for run in world.runs().iter().filter(|run| !run.id().starts_with('.')) {
                let_time_pass(run, &["due_at"]);
            }
        }
        let run = world.latest();
        assert_eq!(world.runs().len(), 1, "{killed}");
        assert_eq!(world.lines("submitted").len(), 1, "{killed}");
        assert_eq!(run.events("ACTION_DEFERRED").len(), 1, "{killed}");
        let results = run.events("ACTION_RESULT");
        let observed = results.iter().map(|it| &it["observation_content"]);
        assert_eq!(observed.collect::<Vec<_>>(), ["built ci-7\n"], "{killed}");
        let registered = world.delta(["due", "--all"]).end();
        assert!(registered.printed(""), "{killed}");
    }
}

/// A call that is found again after a kill, and that the second look finds ended.
fn submitting() -> World {
    let world = World::with_tools(
        r#"- name: build
  shell: 'echo "$DELTA_CALL_ID" >> ../submitted; echo ci-7; exit 75'
  on_resume: {check: [sh, -c, 'grep -qs "$DELTA_CALL_ID" ../submitted || exit 10; echo ci-7; exit 75']}
  later: {check: [sh, -c, 'echo >> ../looks; [ $(wc -l < ../looks) -gt 1 ] || exit 75; echo "built $DELTA_HANDLE"'], every_s: 3600}
"#,
    );
    world.server.answers(|request: &Received| {
        match request.messages().iter().any(|it| it["role"] == "tool") {
            true => text("done"),
            false => call("call_1", "build", &json!({})),
        }
    });
    world
}

#[test]
fn a_killed_look_is_made_again() {
    let tools = BUILD.replace("cat ../said;", "echo up > ../ready; read x < ../go;");
    let world = waiting(&tools);
    world.write("code", "0");
    let (mut ready, mut go) = (world.fifo("ready"), world.fifo("go"));
    for signal in [Signal::KILL, Signal::TERM] {
        is_due(&world);
        let delta = world.run("go").spawn();
        ready.line();
        delta.signal(signal);
        delta.wait();
        assert!(world.latest().events("ACTION_RESULT").is_empty());
        assert!(world.latest().events("DEFERRED_LOOK").is_empty());
    }
    is_due(&world);
    let delta = world.run("go").spawn();
    ready.line();
    go.tell("x");
    delta.wait().exits(0);
    assert_eq!(world.lines("submitted").len(), 1);
}

#[test]
fn a_check_of_on_resume_may_find_the_handle_of_a_killed_call() {
    let tools = BUILD.replace(
        "exit 75'",
        "echo up > ../ready; read x < ../go; exit 75'\n  on_resume: {check: [sh, -c, 'echo \"${DELTA_HANDLE-none}\" > ../seen; echo ci-7; exit 75']}",
    );
    let world = World::with_tools(&tools);
    world
        .model_says([
            call("call_1", "build", &json!({"branch": "main"})),
            text("done"),
        ])
        .may_stay_unasked();
    world.write("code", "0");
    world.write("said", "all green\n");
    let (mut ready, _go) = (world.fifo("ready"), world.fifo("go"));
    let delta = world.run("go").spawn();
    ready.line();
    delta.kill();
    world.run("go").exits(75).says("deferred");
    assert_eq!(world.read("seen"), "none\n");
    is_due(&world);
    world.run("go").exits(0);
    assert_eq!(world.server.last().observation("call_1"), "all green\n");
    assert_eq!(world.lines("submitted").len(), 1);
}

#[test]
fn a_clock_that_is_set_back_puts_no_look_off() {
    let world = waiting(BUILD);
    world.write("code", "0");
    // As if the record came from tomorrow.
    let run = world.latest();
    let text = run.text("journal.jsonl");
    let journal = run.journal();
    let year = &journal[0]["timestamp"].as_str().unwrap()[..4];
    let next: u32 = year.parse::<u32>().unwrap() + 1;
    fs::write(
        run.path("journal.jsonl"),
        text.replace(&format!("\"{year}-"), &format!("\"{next}-")),
    )
    .unwrap();
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn a_clock_that_falls_behind_makes_no_wait_longer() {
    if !installed(&["faketime"]) {
        return;
    }
    let world = World::with_tools(&BUILD.replace("3600", "1"));
    world.model_says([
        call("call_1", "build", &json!({"branch": "main"})),
        text("done"),
    ]);
    world.write("said", "all green\n");
    world.write("code", "0");
    let behind = ["faketime", "--exclude-monotonic", "-f", "+0 x0.001"];
    let run = world.run("go").arg("--wait").under(&behind);
    run.exits(0).prints("done\n");
}

#[test]
fn a_check_that_hangs_floods_or_is_gone_says_nothing() {
    for check in [
        "[sleep, '600']",
        "[sh, -c, 'yes | head -c 3000000']",
        "[./is-not-there]",
        "[sh, -c, 'kill -9 $$']",
    ] {
        let tools = format!(
            "- name: build\n  shell: 'echo ci-7; exit 75'\n  timeout_ms: 700\n  later: {{check: {check}}}\n"
        );
        let world = World::with_tools(&tools);
        world
            .model_says([call("call_1", "build", &json!({})), text("done")])
            .may_stay_unasked();
        world.run("go").exits(75);
        is_due(&world);
        let floods = check.contains("yes");
        world.run("go").exits(if floods { 0 } else { 75 });
        let looks = world.latest().events("DEFERRED_LOOK");
        assert_eq!(looks.len(), usize::from(!floods), "{check}");
        assert!(world.processes().is_empty());
    }
}

#[test]
fn a_deferred_sub_agent_suspends_its_parent_until_it_is_due() {
    let world = World::with_tools(BUILD);
    world.write("ws/said", "all green\n");
    world.write("ws/code", "75");
    world.write("inner/system_prompt.md", "You are a test.\n");
    world.write("inner/context.yaml", world.read("agent/context.yaml"));
    world.write("inner/agent.yaml", world.read("agent/agent.yaml"));
    let inner = world.path("inner").display().to_string();
    let world = world.tools(&format!(
        "- {{name: ask, exec: \"delta run -a {inner} -w sub -m go\", subagent: true}}\n"
    ));
    world.server.answers(|request: &Received| {
        let has_result = request.messages().iter().any(|it| it["role"] == "tool");
        let is_inner = request.json().to_string().contains("\"build\"");
        match (has_result, is_inner) {
            (true, _) => text("done"),
            (false, true) => call("call_1", "build", &json!({"branch": "x"})),
            (false, false) => call("call_1", "ask", &json!({})),
        }
    });
    world.run("ask it").exits(75).says("waits for build (ci-7)");
    let run = world.latest();
    let before = run.text("journal.jsonl");
    world.run("ask it").exits(75);
    assert_eq!(run.text("journal.jsonl"), before);
    let entry = world.read(&format!(".local/state/delta/due/{}", run.id()));
    let below = Run::latest(&world.path("ws/sub"));
    let entry: Value = serde_json::from_str(&entry).unwrap();
    assert_eq!(entry["due_at"], below.metadata()["due_at"]);
    let own = format!(".local/state/delta/due/{}", below.id());
    assert!(!world.exists(&own), "a child is registered");
    let_time_pass(&below, &["due_at"]);
    world.write("ws/code", "0");
    world.run("ask it").exits(0).prints("done\n");
}
