//! A final answer counts when its checks agree: `accept`, `output_schema`, `repairs`.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;

/// An agent whose answers are checked by these scripts.
fn checked_by(scripts: &[&str]) -> World {
    World::new().top(&accept(scripts))
}

fn accept(scripts: &[&str]) -> String {
    let entries = scripts
        .iter()
        .map(|script| json!({"command": ["sh", "-c", script]}));
    format!("accept: {}", entries.collect::<Value>())
}

/// Asks for the word right, and writes down that it has been asked.
const RIGHT: &str = "read answer; echo $answer >> ../asked; [ $answer = right ] || { echo it is $answer; echo hm >&2; exit 3; }";

/// What, exit code and repair of each check, in order.
#[track_caller]
fn checks(run: &Run) -> Vec<(String, i64, u64)> {
    let events = run.events("ACCEPTANCE").into_iter();
    let fields = events.map(|event| {
        let what = event["what"].as_str().expect("what").to_owned();
        let code = event["exit_code"].as_i64().expect("exit_code");
        (what, code, event["repair"].as_u64().expect("repair"))
    });
    fields.collect()
}

fn codes(run: &Run) -> Vec<i64> {
    checks(run).into_iter().map(|(_, code, _)| code).collect()
}

fn ended(run: &Run, status: &str, reason: &str) {
    assert_eq!(run.ending(), (status.to_owned(), Some(reason.to_owned())));
}

#[test]
fn a_refused_answer_is_sent_back_with_what_the_check_said() {
    let second = "cat > ../second; cat \"$DELTA_ANSWER\" > ../named; env > ../env; \
                  echo \"$DELTA_CALL_ID\" | grep -q . || exit 9";
    let world = checked_by(&[RIGHT, second])
        .top("wrapper: [sh, -c, 'echo wrapped >> ../wrapped; exec \"$@\"', sh]");
    world.model_says([text("wrong"), text("right")]);
    let run = world.run("go").env("DELTA_API_KEY", "sk-very-secret-12345");
    run.exits(0).prints("right\n");

    assert_eq!(world.lines("asked"), ["wrong", "right"]);
    assert_eq!(
        (world.read("second"), world.read("named")),
        ("right".into(), "right".into())
    );
    assert_eq!(world.lines("wrapped").len(), 3);
    assert!(!world.read("env").contains("sk-very-secret-12345"));
    let run = world.latest();
    ended(&run, "COMPLETED", "final_answer");
    // The first that refuses ends the series.
    assert_eq!(codes(&run), [3, 0, 0]);
    let repairs: Vec<u64> = checks(&run).iter().map(|(_, _, repair)| *repair).collect();
    assert_eq!(repairs, [0, 1, 1]);
    let journal = run.journal();
    let thoughts = run.events("THOUGHT");
    let refused = run.events("ACCEPTANCE").swap_remove(0);
    assert_eq!(refused["thought_seq"], thoughts[0]["seq"]);
    assert!(
        journal
            .iter()
            .all(|event| event["type"] != "ACTION_REQUEST")
    );
    let place = run.path(refused["execution_ref"].as_str().expect("a place"));
    assert!(place.to_str().expect("a path").ends_with("_accept"));
    let record = |name: &str| fs::read_to_string(place.join(name)).expect("a record");
    assert_eq!(
        (record("stdin.txt"), record("exit_code.txt")),
        ("wrong".into(), "3\n".into())
    );
    assert_eq!(
        (record("stdout.log"), record("stderr.log")),
        ("it is wrong\n".into(), "hm\n".into())
    );

    // The model reads it in a user's message; the journal's messages are those of people.
    let messages = world.server.last().messages();
    let told = messages.last().expect("a message");
    assert_eq!(told["role"], "user");
    let told = told["content"].as_str().expect("a text");
    assert!(
        told.contains("it is wrong\n[stderr]\nhm\n[exit code: 3]"),
        "{told}"
    );
    assert_eq!(messages.len(), 4, "{messages:?}");
    assert_eq!(run.events("USER_MESSAGE").len(), 1);
}

#[test]
fn after_all_repairs_the_run_has_failed_and_a_person_starts_the_count_anew() {
    let world = checked_by(&[RIGHT]);
    world.model_says(["bad", "worse", "worst"].map(text));
    let outcome = world.run("go").exits(1).prints("");
    outcome
        .says("not_accepted")
        .says("worst")
        .says("after 2 repairs")
        .says("exit code 3");
    let run = world.latest();
    ended(&run, "FAILED", "not_accepted");
    let error = run.metadata()["error"]
        .as_str()
        .expect("an error")
        .to_owned();
    assert!(error.ends_with("the last answer was:\nworst"), "{error}");
    assert_eq!(codes(&run), [3, 3, 3]);
    world.go_on().exits(2);

    world.model_says(["poor", "right"].map(text));
    world
        .go_on()
        .args(["-m", "again"])
        .exits(0)
        .prints("right\n");
    let repairs: Vec<u64> = checks(&world.latest()).iter().map(|it| it.2).collect();
    assert_eq!(repairs, [0, 1, 2, 0, 1]);

    let object = checked_by(&["exit 1"]).top("repairs: 0");
    object.model_says([text("no")]);
    let printed = object.run("go").json().exits(1).object();
    assert_eq!(
        (&printed["stop_reason"], &printed["status"]),
        (&json!("not_accepted"), &json!("FAILED"))
    );
    assert_eq!(printed["error"]["type"], "not_accepted");
    assert_eq!(object.server.requests().len(), 1);
}

#[test]
fn a_check_that_cannot_be_run_needs_somebody_and_one_that_says_75_is_asked_again() {
    let script = ". ../verdict";
    for (verdict, code) in [("exit 75", 75), ("exit 127", 4), ("exit 126", 4)] {
        let world = checked_by(&["true", script]);
        world.write("verdict", verdict);
        world.model_says([text("done")]);
        for _ in 0..3 {
            world.run("go").refuses(code, "asks");
            ended(&world.latest(), "INTERRUPTED", "accept");
        }
        world.write("verdict", "exit 0");
        world.run("go").exits(0).prints("done\n");
        assert_eq!(world.server.requests().len(), 1, "{verdict}");
        let code: i64 = verdict[5..].parse().expect("a number");
        // What has agreed is not asked again.
        assert_eq!(codes(&world.latest()), [0, code, code, code, 0]);
    }
    for program in ["no-such-program", "./not-executable"] {
        let world = World::new().top(&format!("accept: [{{command: [{program}]}}]"));
        world.write("ws/not-executable", "text");
        world.model_says([text("done")]);
        world.run("go").exits(4).says(program);
        ended(&world.latest(), "INTERRUPTED", "accept");
    }
}

#[test]
fn a_check_that_hangs_or_floods_is_reported_to_the_model() {
    let hangs = "[ $(cat) = right ] || { trap '' TERM; echo waits; sleep 600; }";
    let (_, world, ms, told) = with_time(100, |ms| {
        let world = World::new().top(&format!(
            "accept: [{{command: [sh, -c, {}], timeout_ms: {ms}}}]",
            json!(hangs)
        ));
        world.server.answers(|request| {
            let is_first = request
                .messages()
                .iter()
                .all(|it| it["role"] != "assistant");
            text(if is_first { "wrong" } else { "right" })
        });
        let outcome = world.run("go").end();
        let messages = world.server.requests().get(1)?.messages();
        let told = messages.last().expect("a message")["content"].to_string();
        let is_in_time = told.contains("waits") && codes(&world.latest()) == [124, 0];
        is_in_time.then(|| (outcome.exits(0).prints("right\n"), world, ms, told))
    });
    let told_of_time = format!("[timed out after {ms} ms]");
    assert!(told.contains(&told_of_time), "{told}");
    assert!(world.processes().is_empty());

    let floods = "[ $(cat) = right ] || { yes | head -c 3000000; exit 1; }";
    let world = checked_by(&[floods]).top("max_output_bytes: 1000");
    world.model_says([text("wrong"), text("right")]);
    world.run("go").exits(0);
    let told = world.server.last().messages().pop().expect("a message")["content"].to_string();
    assert!(
        told.contains("2999000 bytes omitted") && told.len() < 2000,
        "{}",
        told.len()
    );
}

#[test]
fn a_check_that_kills_the_engine_is_ended_and_asked_again() {
    let kills = "[ -e ../calm ] && exit; touch ../calm; echo $$ > ../pid; kill -9 $DELTA_ENGINE_PID; exec sleep 600";
    let world = checked_by(&["echo a >> ../first", kills]);
    world.model_says([text("done")]);
    assert!(world.run("go").end().killed_by().is_some());
    eventually("the check sleeps", || world.processes().len() == 1);
    world
        .run("go")
        .exits(0)
        .prints("done\n")
        .says("ended 1 process");
    assert!(world.processes().is_empty());
    assert_eq!(world.lines("first"), ["a"]);
    assert_eq!(codes(&world.latest()), [0, 0]);
    assert_eq!(world.server.requests().len(), 1);
}

#[test]
fn a_signal_ends_a_check_without_a_verdict() {
    // It ends well although it was told to end.
    let script = "trap 'exit 0' TERM; echo > ../started; while :; do read line < ../never; done";
    let world = checked_by(&["[ -e ../calm ] || exec sh ../check"]);
    world.write("check", script);
    let mut started = world.fifo("started");
    let _never = world.fifo("never");
    world.model_says([text("done")]);
    let delta = world.run("go").spawn();
    started.line();
    delta.signal(Signal::INT);
    delta.wait().exits(130);
    assert_eq!(codes(&world.latest()), [0; 0]);
    world.write("calm", "");
    world.run("go").exits(0).prints("done\n");
    assert_eq!(codes(&world.latest()), [0]);
}

#[test]
fn a_check_that_writes_the_journal_ends_the_run() {
    let forged =
        r#"{"seq":9,"type":"ACCEPTANCE","thought_seq":3,"what":"sh -c 'exit 1'","exit_code":0}"#;
    let script = format!(
        "[ -e ../calm ] || echo '{}' >> $DELTA_RUN_DIR/journal.jsonl",
        forged.replace('\'', "'\\''")
    );
    let world = checked_by(&[&script, "exit 1"]).top("repairs: 0");
    world.model_says([text("done")]);
    world.run("go").exits(4).prints("");
    ended(&world.latest(), "INTERRUPTED", "journal_changed");
}

#[test]
fn a_recorded_verdict_counts_only_for_its_answer() {
    let world = checked_by(&["exit 1"]).top("repairs: 0");
    let wait = "INTERRUPTED";
    world.model_says([text("done")]);
    world.write("agent/hooks.yaml", "on_iteration_end: {command: [sh, -c, '[ -e ../calm ] || echo \"{\\\"action\\\":\\\"stop\\\"}\" > $DELTA_HOOK_IO_PATH/output/control.json']}\n");
    world.run("go").exits(4);
    ended(&world.latest(), wait, "hook");
    let run = world.latest();
    let seq = run.events("THOUGHT")[0]["seq"].as_u64().expect("seq");
    let mut journal = run.text("journal.jsonl");
    let what = "sh -c 'exit 1'";
    for (n, thought) in [seq - 1, seq + 1].into_iter().enumerate() {
        let line = json!({"seq": 100 + n, "type": "ACCEPTANCE", "thought_seq": thought, "what": what, "exit_code": 0});
        journal += &format!("{line}\n");
    }
    fs::write(run.path("journal.jsonl"), journal).expect("the journal");
    world.run("go").exits(1);
    ended(&world.latest(), "FAILED", "not_accepted");
}

/// Answers wrongly as long as nobody has objected.
fn learns(request: &Received) -> Reply {
    let messages = request.messages();
    let objected = messages
        .iter()
        .filter(|m| m.to_string().contains("not accepted"));
    let answers = messages.iter().filter(|m| m["role"] == "assistant");
    assert_eq!(objected.clone().count(), answers.count(), "{messages:?}");
    text(if objected.count() == 0 {
        "wrong"
    } else {
        "right"
    })
}

#[test]
fn killed_before_each_single_change_of_a_file_nothing_is_lost_or_doubled() {
    if !installed(&["strace"]) {
        return;
    }
    let world = || {
        let world = checked_by(&["echo a >> ../first", RIGHT]).top("repairs: 1");
        world.server.answers(learns);
        world
    };
    let run = |world: &World, arguments: &[&str]| {
        let strace = [&["strace", "-qq"], arguments].concat();
        world.run("go").arg("-q").under(&strace).end()
    };
    let names = "write,rename,renameat2,mkdir";
    let whole = world();
    run(&whole, &["-e", &format!("trace={names}"), "-o", "trace"]).exits(0);
    let mut counts: Vec<(String, usize)> = Vec::new();
    for line in whole.lines("trace") {
        let name = line.split('(').next().unwrap_or_default().to_owned();
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    for (name, count) in counts.iter().filter(|(name, _)| names.contains(&**name)) {
        for n in 1..=*count {
            let world = world();
            let inject = format!("inject={name}:signal=KILL:when={n}");
            let killed = run(
                &world,
                &[
                    "-o",
                    "/dev/null",
                    "-e",
                    &format!("trace={name}"),
                    "-e",
                    &inject,
                ],
            );
            assert_eq!(killed.code(), None, "{name} {n}: {}", killed.describe());
            world.run("go").arg("-q").exits(0).prints("right\n");
            assert_eq!(world.runs().len(), 1, "{name} {n}");
            let run = world.latest();
            ended(&run, "COMPLETED", "final_answer");
            let mut seen: Vec<(u64, String)> = Vec::new();
            for event in run.events("ACCEPTANCE") {
                let thought = event["thought_seq"].as_u64().expect("a number");
                let check = (thought, event["what"].to_string());
                assert!(!seen.contains(&check), "{name} {n}: {check:?} twice");
                seen.push(check);
            }
            assert_eq!(codes(&run), [0, 3, 0, 0], "{name} {n}");
            let repairs: Vec<u64> = checks(&run).iter().map(|it| it.2).collect();
            assert_eq!(repairs, [0, 0, 1, 1], "{name} {n}");
            assert_eq!(run.events("USER_MESSAGE").len(), 1, "{name} {n}");
            // A check is asked again only if its verdict was not recorded.
            assert!(world.lines("first").len() <= 3, "{name} {n}");
            assert!(world.lines("asked").len() <= 3, "{name} {n}");
        }
    }
}

#[test]
fn an_agent_that_is_wrong_twice_and_then_right_passes_its_tests() {
    if !installed(&["make"]) {
        return;
    }
    let tools = "- {name: write, shell: 'cat > ${file}', stdin: text}";
    let world = World::with_tools(tools).top("accept: [{command: [make, -s, test]}]");
    world.write("ws/add.sh", "echo $(($1 - $2))\n");
    let makefile = "test:\n\t@[ \"$$(sh add.sh 2 3)\" = 5 ] || { echo '2 + 3 is not 5'; exit 1; }\n\
                    \t@[ \"$$(sh add.sh 0 0)\" = 0 ] || { echo '0 + 0 is not 0'; exit 1; }\n";
    world.write("ws/Makefile", makefile);
    let write = |id: &str, body: &str| call(id, "write", &json!({"file": "add.sh", "text": body}));
    world.model_says([
        write("a", "echo $(($1 * $2))\n"),
        text("fixed"),
        write("b", "echo 5\n"),
        text("fixed now"),
        write("c", "echo $(($1 + $2))\n"),
        text("really fixed"),
    ]);
    world.run("mend add.sh").exits(0).prints("really fixed\n");
    let requests = world.server.requests();
    let told = |n: usize| requests[n].messages().pop().expect("a message")["content"].to_string();
    assert!(told(2).contains("2 + 3 is not 5"), "{}", told(2));
    assert!(told(4).contains("0 + 0 is not 0"), "{}", told(4));
    assert_eq!(codes(&world.latest()), [2, 2, 0]);
}

#[test]
fn the_command_line_gives_checks_and_every_hint_prints_them() {
    let world = World::new();
    world.model_says([text("done")]);
    let accept = ["--accept", "true", "--accept", "exec sh ../check 'a b'"];
    world.write("check", "exit 75");
    let given = world.run("go").args(accept).exits(75);
    let hint = given.stderr.clone();
    let hint = hint
        .split("and so does: ")
        .nth(1)
        .expect("a hint")
        .lines()
        .next()
        .expect("a line");
    assert!(hint.contains("--accept true --accept "), "{hint}");

    // Without them it is another run's checks that would be dropped.
    let refused = world.run("go").exits(78);
    refused
        .says("--accept true")
        .says("is not taken from a record");
    world.go_on().exits(78).says("--accept");
    world.write("check", "exit 0");
    let words = shlex::split(hint).expect("words");
    let outcome = world.delta(words[1..].iter().map(String::as_str)).end();
    outcome.exits(0).prints("done\n");
    assert_eq!(codes(&world.latest()), [0, 75, 0]);

    // They replace those of the agent.
    let world = checked_by(&["exit 1"]);
    world.model_says([text("done")]);
    world.run("go").args(["--accept", "exit 0"]).exits(0);
    world
        .run("go")
        .args(["--accept", " "])
        .exits(2)
        .says("--accept: the command is empty");
}

#[test]
fn what_is_wrong_with_accept_is_reported_with_file_line_and_key() {
    for (yaml, says) in [
        (
            "accept: make test",
            "agent.yaml:2: accept: expected a list such as [{command: [make, test]}], found the string \"make test\"",
        ),
        (
            "accept: [make]",
            "agent.yaml:2: accept: expected a list such as [{command: [make, test]}], found the string \"make\" in it",
        ),
        (
            "accept: {command: [make]}",
            "agent.yaml:2: accept: expected a list such as [{command: [make, test]}], found a mapping",
        ),
        ("accept: [{}]", "agent.yaml:2: accept: needs a command"),
        ("accept: [{command: []}]", "needs a command"),
        ("accept: [{command: make}]", "make each word an item"),
        ("accept: [{comand: [make]}]", "'comand'"),
        (
            "accept: [{command: [make], timeout_ms: -1}]",
            "timeout_ms: expected a whole number",
        ),
        (
            "repairs: -1",
            "agent.yaml:2: repairs: expected a whole number",
        ),
        (
            "output_schema: 5",
            "agent.yaml:2: output_schema: expected a string",
        ),
        ("output_schema: none.json", "none.json does not exist"),
        ("output_schema: ../x.json", "outside the agent's directory"),
        ("output_schema: link.json", "outside the agent's directory"),
    ] {
        let world = World::new().top(yaml);
        world.write("x.json", "{}");
        std::os::unix::fs::symlink("../x.json", world.path("agent/link.json")).expect("a link");
        world.run("go").exits(78).says(says);
        world.delta(["check", "agent"]).exits(78).says(says);
        assert!(!world.exists("ws"), "{yaml}");
    }
}

#[test]
fn a_dry_run_shows_what_binds_the_run() {
    let world = checked_by(&["test -s result"])
        .top("repairs: 4")
        .top("budget: {tokens: 7000, seconds: 60}");
    let shown = world
        .run("go")
        .args(["--dry-run", "--deadline", "+2h"])
        .exits(0);
    shown
        .says("accept: sh -c 'test -s result'\n")
        .says("repairs: 4\n")
        .says("budget: {\"tokens\":7000,\"seconds\":60,\"per\":\"run\"}\n")
        .says("deadline: 20");
    let other = world
        .run("go")
        .args(["--dry-run", "--budget", "tokens=5"])
        .exits(0);
    other.says("budget: {\"tokens\":5,\"per\":\"run\"}\n");
    world
        .run("go")
        .args(["--dry-run", "-q"])
        .exits(0)
        .does_not_say("accept");
    assert!(!world.exists("ws"));
}

#[test]
fn log_report_stats_and_diff_show_the_checks() {
    let world = checked_by(&[RIGHT]);
    world.model_says([text("wrong"), text("right")]);
    world.run("go").exits(0);
    let show = |args: &[&str]| {
        world
            .delta(args.iter().copied())
            .args(["-w", "ws"])
            .exits(0)
            .stdout
    };
    let shown = |args: &[&str]| String::from_utf8(show(args)).expect("text");
    let log = shown(&["log"]);
    assert!(
        log.contains("refused, exit code 3") && log.contains("accepted, "),
        "{log}"
    );
    assert!(log.contains("it is wrong"), "{log}");
    let page = shown(&["report"]);
    assert!(page.contains("it is wrong"), "no refusal in the page");
    let stats = shown(&["stats", "--format", "json"]);
    assert!(stats.contains("accept: sh -c"), "{stats}");
    let id = world.latest().id();
    let diff = shown(&["diff", &id, &id]);
    assert!(
        diff.contains("2 iterations") || diff.contains("same"),
        "{diff}"
    );
}

#[test]
fn a_replay_takes_the_verdicts_from_the_record_or_asks_again() {
    let world = checked_by(&[RIGHT]);
    world.model_says([text("wrong"), text("right")]);
    world.run("go").exits(0);
    let id = world.latest().id();
    let replay = |rest: &[&str]| world.delta(["replay", "-w", "ws", &id]).args(rest).end();
    replay(&["--tools", "recorded", "--to", "again"])
        .exits(0)
        .prints("identical: 2 requests\n");
    assert_eq!(world.lines("asked"), ["wrong", "right"]);
    assert_eq!(codes(&Run::latest(&world.path("again"))), [3, 0]);
    replay(&["--to", "twice"])
        .exits(0)
        .prints("identical: 2 requests\n");
    assert_eq!(world.lines("asked"), ["wrong", "right", "wrong", "right"]);

    // One that was refused for good has ended there.
    let world = checked_by(&[RIGHT]).top("repairs: 1");
    world.model_says([text("wrong"), text("worse")]);
    world.run("go").exits(1);
    let id = world.latest().id();
    let replay = world.delta(["replay", "-w", "ws", &id, "--tools", "recorded"]);
    replay.exits(0).prints("identical: 2 requests\n");
}

#[test]
fn a_fork_begins_with_the_verdicts_of_what_it_shares() {
    let world = checked_by(&[RIGHT]);
    world.model_says([text("wrong"), text("right")]);
    world.run("go").exits(0);
    let id = world.latest().id();
    world.model_says([text("right")]);
    let fork = ["fork", "-w", "ws", &id, "--at", "1"];
    world.delta(fork).exits(0).prints("right\n");
    let fork = world.latest();
    assert_eq!(codes(&fork), [3, 0]);
    assert_eq!(world.lines("asked"), ["wrong", "right", "right"]);
    let place = fork.events("ACCEPTANCE")[0]["execution_ref"]
        .as_str()
        .expect("a place")
        .to_owned();
    assert!(fork.path(&place).join("stdout.log").exists());
    // The accepted answer is an end, which needs a message.
    let done = ["fork", "-w", "ws", &id, "--at", "2"];
    world.delta(done).exits(2).says("final answer");
}

#[test]
fn a_window_leaves_refusals_behind_with_their_answers() {
    let world = checked_by(&[RIGHT]).top("repairs: 9");
    let context = "sources:\n- {type: journal, max_iterations: 1}\n";
    world.write("agent/context.yaml", context);
    world.model_says(["one", "two", "three", "right"].map(text));
    world.run("go").exits(0);
    let messages = world.server.last().messages();
    let all = Value::from(messages.clone()).to_string();
    assert!(
        all.contains("it is three") && !all.contains("it is two"),
        "{all}"
    );
    assert_eq!(messages.len(), 3, "{all}");
}

#[cfg(feature = "flow")]
mod schema {
    use super::*;

    const VERDICT: &str = r#"{"type": "object", "required": ["ok"], "additionalProperties": false,
        "properties": {"ok": {"type": "boolean"}, "n": {"type": "number"}}}"#;

    fn world() -> World {
        let world = World::new().top("output_schema: schemas/verdict.json");
        world.write("agent/schemas/verdict.json", VERDICT);
        world
    }

    #[test]
    fn an_answer_must_fit_and_is_printed_as_one_compact_value() {
        let world = world().top(&accept(&["cat >> ../got"]));
        let fenced = "Here it is:\n```json\n{ \"ok\": true,\n  \"n\": 1.50 }\n```\nBye.";
        world.model_says([text("yes"), text(r#"{"ok": 1, "why": 2}"#), text(fenced)]);
        world
            .run("go")
            .exits(0)
            .prints("{\"ok\":true,\"n\":1.50}\n");
        // The schema comes first; the commands get the value.
        assert_eq!(world.read("got"), "{\"ok\":true,\"n\":1.50}");
        let requests = world.server.requests();
        let told =
            |n: usize| requests[n].messages().pop().expect("a message")["content"].to_string();
        assert!(told(1).contains("not one JSON value"), "{}", told(1));
        assert!(told(2).contains("/ok: "), "{}", told(2));
        assert!(
            told(2).contains("'why'") && !told(2).contains("exit code"),
            "{}",
            told(2)
        );
        let run = world.latest();
        let names: Vec<String> = checks(&run).into_iter().map(|it| it.0).collect();
        assert_eq!(names[..3], ["output_schema"; 3]);
        assert_eq!(codes(&run), [1, 1, 0, 0]);
        assert_eq!(run.metadata()["result"], "{\"ok\":true,\"n\":1.50}");
        let again = world.delta(["replay", "-w", "ws", &run.id(), "--tools", "recorded"]);
        again.exits(0);
    }

    #[test]
    fn the_last_fenced_block_that_fits_is_the_result_and_is_recorded() {
        let fence = "```";
        let draft = format!("{fence}json\n{{\"ok\": false}}\n{fence}\n");
        let ok = r#"{"ok":true,"n":12345678901234567890}"#;
        let taken = format!("{fence}json\n{ok}\n{fence}\n");
        let unfit = format!("{fence}sh\nmake\n{fence}\n~~~\n{{\"x\": 0}}\n~~~\n");
        for (answer, is_recorded) in [
            (format!(" {ok}\n"), false),
            (format!("{draft}then\n{taken}and\n{unfit}"), true),
            (format!("<think>{taken}</think>\n{ok}"), true),
            (format!("{fence}json {ok} {fence}"), true),
        ] {
            let world = world().top(&accept(&["cat >> ../got"]));
            world.model_says([text(&answer)]);
            world.run("go").exits(0).prints(&format!("{ok}\n"));
            assert_eq!(world.read("got"), ok);
            let journal = std::fs::read_to_string(world.latest().path("journal.jsonl")).unwrap();
            let recorded = journal.contains(&format!("\"value\":{ok}"));
            assert_eq!(recorded, is_recorded, "{answer}");
            let again = world.delta(["replay", "-w", "ws", "LATEST", "--tools", "recorded"]);
            again.exits(0);
        }
        // A draft among the thoughts is no answer.
        let world = world().top("repairs: 0");
        world.model_says([text(&format!("<think>{taken}</think>\nno"))]);
        world.run("go").refuses(1, "not_accepted");
    }

    #[test]
    fn a_bad_schema_is_reported_before_anything_is_created() {
        let bomb: Vec<String> = (0..30)
            .map(|n| format!(r##""d{n}": {{"allOf": [{{"$ref": "#/$defs/d{0}"}}, {{"$ref": "#/$defs/d{0}"}}]}}"##, n + 1))
            .collect();
        let bomb = format!(
            r##"{{"$ref": "#/$defs/d0", "$defs": {{{}, "d30": true}}}}"##,
            bomb.join(",")
        );
        for (schema, says) in [
            ("{\n  \"type\": }", "verdict.json:2:11: not valid JSON"),
            (r#"{"type": "objekt"}"#, "verdict.json: /type: "),
            (
                r#"{"$ref": "http://127.0.0.1:9/x.json"}"#,
                "nothing is fetched",
            ),
            (&bomb, "references"),
            (&"[1]".repeat(400_000), "the limit is 1048576"),
        ] {
            let world = world();
            world.write("agent/schemas/verdict.json", schema);
            world
                .run("go")
                .exits(78)
                .says("agent.yaml:2: output_schema: ")
                .says(says);
            world.delta(["check", "agent"]).exits(78).says(says);
            assert!(!world.exists("ws"), "{says}");
        }
    }

    #[test]
    fn the_schema_is_read_at_the_start() {
        let tools = "- {name: weaken, shell: 'echo true > ../any.json'}";
        let world = World::with_tools(tools);
        let any = world.write("any.json", VERDICT);
        world.model_says([
            call("a", "weaken", &json!({})),
            text("weak"),
            text("{\"ok\":false}"),
        ]);
        let given = world.run("go").args(["--output-schema", "any.json"]);
        given.exits(0).prints("{\"ok\":false}\n");
        let set = world.latest().metadata()["set"]["output_schema"].clone();
        assert_eq!(set, any.to_str().expect("a path"));
        // A record does not decide which schema it is.
        world
            .go_on()
            .args(["-m", "more"])
            .exits(78)
            .says("--output-schema");
    }

    #[test]
    fn a_schema_of_the_command_line_has_no_line_of_the_agent_s_file() {
        let world = world();
        world.write("bad.json", "{");
        world
            .run("go")
            .args(["--output-schema", "bad.json"])
            .exits(78)
            .says("output_schema: ")
            .does_not_say("agent.yaml:2");
    }

    #[test]
    fn a_flood_of_faults_is_bounded() {
        let world = world();
        let many: Vec<String> = (0..5000)
            .map(|n| format!("\"k{n}\":[{}]", "1,".repeat(50) + "1"))
            .collect();
        let wrong = format!("{{{}}}", many.join(","));
        world.model_says([text(&wrong), text("{\"ok\":true}")]);
        world.run("go").exits(0);
        let told = world.server.last().messages().pop().expect("a message")["content"].to_string();
        assert!(told.len() < 40_000, "{}", told.len());
    }

    #[test]
    fn each_fault_is_a_line_with_its_place() {
        let world = World::new().top("output_schema: s.json");
        world.write("agent/s.json", r#"{"items": {"type": "string"}}"#);
        world.model_says([text("[1, \"a\", 2]"), text("[\"b\"]")]);
        world.run("go").exits(0).prints("[\"b\"]\n");
        let refused = world.latest().events("ACCEPTANCE")[0].clone();
        let content = refused["content"].as_str().expect("a text");
        let places: Vec<&str> = content
            .lines()
            .filter_map(|line| line.strip_prefix('/')?.split(':').next())
            .collect();
        assert_eq!(places, ["0", "2"], "{content}");
        // Nothing was executed.
        assert_eq!(refused["execution_ref"], Value::Null);
        assert_eq!(refused["exit_code"], 1);
    }
}
