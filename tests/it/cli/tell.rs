//! Messages to a live run, and the hook that reports questions.

use crate::engine::torture::strace_works;
use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

/// A tool that waits until it is told to go on.
const WORK: &str = "- {name: work, shell: 'echo up > ../ready; read x < ../go; echo worked'}\n";

fn tell<'a>(world: &World, words: impl IntoIterator<Item = &'a str>) -> Delta {
    world.delta(["tell", "-w", "ws"]).args(words)
}

fn said(run: &Run) -> Vec<Value> {
    let all = run.events("USER_MESSAGE").into_iter();
    all.map(|event| event["content"].clone()).collect()
}

/// A run that works, with its pipes.
fn working() -> (World, Running, Fifo, Fifo) {
    let world = World::with_tools(WORK);
    world.model_says([call("call_1", "work", &json!({})), text("done")]);
    let (mut ready, go) = (world.fifo("ready"), world.fifo("go"));
    let delta = world.run("go").spawn();
    ready.line();
    (world, delta, ready, go)
}

#[test]
fn a_live_run_reads_messages_before_its_next_request() {
    let (world, delta, _ready, mut go) = working();
    tell(&world, ["use", "the other branch"])
        .exits(0)
        .prints("");
    let id = world.latest().id();
    // A writer that was killed.
    let half = world.latest().path("interaction/inbox/.0_a.7.tmp");
    fs::write(&half, "ha").unwrap();
    tell(&world, ["--run-id", &id, "second"]).exits(0);
    assert!(!half.exists());
    fs::write(&half, "ha").unwrap();
    go.tell("x");
    delta.wait().exits(0).prints("done\n");
    let run = world.latest();
    assert_eq!(said(&run), ["go", "use the other branch", "second"]);
    let event = run.events("USER_MESSAGE").remove(1);
    assert_eq!(event["source"], "inbox");
    assert!(event["id"].as_str().unwrap().contains('_'));
    let messages = world.server.last().messages();
    let last: Vec<&Value> = messages
        .iter()
        .rev()
        .take(3)
        .map(|it| &it["content"])
        .collect();
    assert_eq!(last, ["second", "use the other branch", "worked\n"]);
    assert!(
        fs::read_dir(run.path("interaction/inbox"))
            .unwrap()
            .next()
            .is_none()
    );
}

#[test]
fn a_message_that_comes_before_the_end_goes_to_the_model() {
    // The check of the answer lets the message come when the answer is there.
    let world = World::new()
        .top("accept: [{command: [sh, -c, 'echo up > ../ready; read x < ../go']}]\nrepairs: 0");
    world.model_says([text("first"), text("second")]);
    let (mut ready, mut go) = (world.fifo("ready"), world.fifo("go"));
    let delta = world.run("go").spawn();
    ready.line();
    tell(&world, ["and now the rest"]).exits(0);
    go.tell("x");
    ready.line();
    go.tell("x");
    delta.wait().exits(0).prints("second\n");
    assert_eq!(said(&world.latest()), ["go", "and now the rest"]);
}

#[test]
fn a_run_that_is_not_live_reads_the_message_at_its_next_start() {
    let world = World::new();
    world.model_says([
        call("call_1", "ask_human", &json!({"prompt": "?"})),
        text("done"),
    ]);
    world.run("go").exits(101);
    tell(&world, ["by the way"])
        .exits(0)
        .says("at its next start");
    world.go_on().args(["-m", "yes"]).exits(0);
    assert_eq!(said(&world.latest()), ["go", "by the way"]);
}

#[test]
fn a_message_that_the_run_could_not_read_is_refused() {
    for link in ["interaction", "interaction/inbox"] {
        let world = World::new();
        world.model_says([call("call_1", "ask_human", &json!({"prompt": "?"}))]);
        world.run("go").exits(101);
        let elsewhere = world.path("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let link = world.latest().path(link);
        fs::remove_dir_all(&link).ok();
        symlink(&elsewhere, &link).unwrap();
        let told = tell(&world, ["by the way"]);
        told.refuses(1, "is a link, or is no directory");
        assert_eq!(fs::read_dir(elsewhere).unwrap().count(), 0);
    }
}

#[test]
fn a_run_that_has_ended_takes_no_message() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let ended = tell(&world, ["more"]).exits(1).prints("");
    ended
        .says("has ended")
        .says("delta continue -w")
        .says(" -m MESSAGE");
    let inbox = world.latest().path("interaction/inbox");
    assert_eq!(fs::read_dir(inbox).map_or(0, Iterator::count), 0);
}

#[test]
fn no_program_of_a_run_speaks_as_the_user() {
    let world = World::with_tools("- {name: t, exec: delta tell -w . hello}\n");
    let told = world.observe("t", &json!({}));
    assert!(told.contains("cannot send messages as the user"), "{told}");
    assert!(told.contains("[exit code: 1]"), "{told}");
    assert_eq!(said(&world.latest()), ["go"]);
}

#[test]
fn wrong_messages_are_refused() {
    let world = World::unasked();
    tell(&world, ["x"]).refuses(1, "no run");
    tell(&world, []).exits(2);
    tell(&world, [" "]).refuses(2, "empty");
    let long = "x".repeat((64 << 10) + 1);
    tell(&world, [long.as_str()]).refuses(2, "65536 bytes");
}

#[test]
fn only_files_of_the_owner_are_taken_each_once() {
    let (world, delta, _ready, mut go) = working();
    let run = world.latest();
    tell(&world, ["good"]).exits(0);
    let inbox = run.path("interaction/inbox");
    let put = |name: &str, text: &[u8]| fs::write(inbox.join(name), text).unwrap();
    put("a_invalid", b"\xff");
    put("a_long", &vec![b'x'; (64 << 10) + 1]);
    put(".hidden", b"half");
    put("b_two", b"two links");
    fs::hard_link(inbox.join("b_two"), world.path("second")).unwrap();
    symlink(world.path("agent/agent.yaml"), inbox.join("c_link")).unwrap();
    let _pipe = Fifo::new(inbox.join("d_pipe"));
    go.tell("x");
    delta.wait().exits(0);
    assert_eq!(said(&run), ["go", "good"]);
    assert_eq!(fs::read_dir(&inbox).unwrap().count(), 6);
}

#[test]
fn a_message_that_the_journal_has_is_only_removed() {
    let (world, delta, _ready, mut go) = working();
    let run = world.latest();
    tell(&world, ["once"]).exits(0);
    let inbox = run.path("interaction/inbox");
    let name = fs::read_dir(&inbox)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .file_name();
    let kept = fs::read(inbox.join(&name)).unwrap();
    go.tell("x");
    delta.wait().exits(0);
    // As if the engine had died before it took the file away.
    fs::write(inbox.join(&name), kept).unwrap();
    world.model_says([text("done again")]);
    world.go_on().args(["-m", "more"]).exits(0);
    assert_eq!(said(&run), ["go", "once", "more"]);
    assert_eq!(fs::read_dir(&inbox).unwrap().count(), 0);
}

#[test]
fn ten_writers_tell_a_run_that_is_killed_each_message_once() {
    let world = World::with_tools("- {name: work, shell: 'sleep 0.01'}\n");
    let mut n = 0;
    world.server.answers(move |_: &Received| {
        n += 1;
        call(&format!("call_{n}"), "work", &json!({}))
    });
    let writer = |world: &World, n: usize| {
        let text = format!("message {n}");
        let told = tell(world, [text.as_str()]);
        (text.clone(), told.spawn())
    };
    let mut told = Vec::new();
    for round in 0..given_or("DELTA_TEST_TELL_KILLS", 10) {
        let delta = world.run("go").spawn();
        while world.runs().is_empty() {
            std::thread::yield_now();
        }
        let writers: Vec<_> = (0..10).map(|n| writer(&world, 10 * round + n)).collect();
        for (text, writer) in writers {
            // The run may be about to die: then nothing has been written.
            if writer.wait().code() == Some(0) {
                told.push(Value::from(text));
            }
        }
        delta.kill();
    }
    assert!(!told.is_empty());
    world.server.answers(|_: &Received| text("done"));
    world.run("go").exits(0);
    let mut heard = said(&world.latest()).split_off(1);
    let key = |value: &Value| value.to_string();
    heard.sort_by_key(key);
    told.sort_by_key(key);
    assert_eq!(heard, told);
}

#[test]
fn a_message_to_a_run_that_is_ending_is_heard_or_refused() {
    let world = World::new();
    world.server.answers(|_: &Received| text("done"));
    let (mut heard, mut refused) = (Vec::new(), 0);
    for round in 0..4 {
        let id = format!("r{round}");
        let run = world.run("go").args(["--run-id", &id]).spawn();
        let journal = format!("ws/.delta/{id}/journal.jsonl");
        while !world.exists(&journal) {
            std::thread::yield_now();
        }
        for n in 0..20 {
            let message = format!("{id}.{n}");
            let told = tell(&world, ["--run-id", &id, &message]).end();
            match told.code() {
                Some(0) => heard.push(message),
                Some(1) => {
                    refused += 1;
                    break;
                }
                // It holds the inbox while it ends.
                code => assert_eq!(code, Some(75), "{}", told.describe()),
            }
        }
        run.wait().exits(0);
    }
    let runs = world.runs();
    let said: Vec<String> = runs
        .iter()
        .flat_map(|run| said(run).split_off(1))
        .map(|it| it.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(said, heard, "{refused} refused");
}

#[test]
fn a_message_that_comes_too_late_because_its_sender_was_stopped_is_refused() {
    if !strace_works() {
        return;
    }
    let (world, delta, _ready, mut go) = working();
    // Stopped while it holds the inbox: its file is there, and its message is not.
    let stop = "inject=fsync:signal=STOP:when=1";
    let strace = ["strace", "-D", "-qq", "-o", "/dev/null", "-e", stop];
    let told = tell(&world, ["too late"]).under(&strace).spawn();
    let inbox = world.latest().path("interaction/inbox");
    eventually("a file", || {
        fs::read_dir(&inbox).is_ok_and(|files| files.count() > 0)
    });
    go.tell("x");
    delta.wait().exits(0).prints("done\n");
    told.signal(Signal::CONT);
    told.wait().exits(1).says("has ended");
    assert_eq!(fs::read_dir(&inbox).unwrap().count(), 0);
    assert_eq!(said(&world.latest()), ["go"]);
}

#[test]
fn a_message_resets_no_count_of_the_same_call() {
    let world = World::with_tools(WORK).top("same_call: 2");
    world.model_says([call("a", "work", &json!({})), call("b", "work", &json!({}))]);
    let (mut ready, mut go) = (world.fifo("ready"), world.fifo("go"));
    let delta = world.run("go").spawn();
    ready.line();
    tell(&world, ["well?"]).exits(0);
    go.tell("x");
    ready.line();
    go.tell("x");
    delta.wait().exits(4).says("no_progress");
}

#[test]
fn the_example_passes_a_question_on() {
    let Some(world) = as_shown("orchestration/notify", &["jq"]) else {
        return;
    };
    given_again(&world, "orchestration/notify");
    for program in ["mail", "curl", "notify-send"] {
        let script = "#!/bin/sh\necho \"$0\" | sed 's,.*/,,' > ../sent\nprintf '%s\\n' \"$@\" >> ../sent\n\
                      [ \"${0##*/}\" = notify-send ] || cat >> ../sent\n";
        world.script(
            &format!("bin/{program}"),
            &script.replace("../sent", "\"$HOME/sent\""),
        );
    }
    let notify = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/examples/orchestration/notify/notify.sh"
    );
    let path = std::env::var("PATH").unwrap();
    let question = r#"{"request_id":"q","input_type":"text","prompt":"May I?\n\"$(x)\"","command":"delta continue -m ANSWER"}"#;
    for (words, sent) in [
        (
            &["mail", "me@example.org"][..],
            "mail\n-s\ndelta asks\nme@example.org\n",
        ),
        (
            &["ntfy", "https://ntfy.example/x"],
            "curl\n-fsS\n-m\n20\n-H\nTitle: delta asks\n--data-binary\n@-\nhttps://ntfy.example/x\n",
        ),
        (&["desktop"], "notify-send\ndelta asks\n"),
    ] {
        let notified = Delta::of(notify, world.home())
            .args(words.iter())
            .stdin(question);
        let bin = world.path("bin");
        notified
            .env("PATH", format!("{}:{path}", bin.display()))
            .exits(0);
        let text = "May I?\n\"$(x)\"\n\ndelta continue -m ANSWER\n";
        assert_eq!(world.read("sent"), format!("{sent}{text}"));
    }
    Delta::of(notify, world.home()).stdin(question).exits(2);
}

/// A hook that keeps what it is given.
const REPORT: &str =
    "on_question: {command: [sh, -c, 'cat >> ../reported; echo >> ../reported; (sleep 600 &)']}\n";

#[test]
fn on_question_reports_a_question_once_with_the_command_that_answers() {
    let world = World::new();
    world.write("agent/hooks.yaml", REPORT);
    world.model_says([
        call("call_1", "ask_human", &json!({"prompt": "May I?"})),
        text("done"),
    ]);
    world.run("go").exits(101);
    let run = world.latest();
    let reported = world.lines("reported");
    assert_eq!(reported.len(), 1);
    let payload: Value = serde_json::from_str(&reported[0]).unwrap();
    assert_eq!(
        [&payload["prompt"], &payload["input_type"]],
        ["May I?", "text"]
    );
    let request: Value = serde_json::from_slice(&run.read("interaction/request.json")).unwrap();
    assert_eq!(payload["request_id"], request["request_id"]);
    let audit = run.events("HOOK_EXECUTION_AUDIT").remove(0);
    assert_eq!(audit["request_id"], request["request_id"]);
    assert!(world.processes().is_empty(), "the hook has left something");
    // Nothing is reported again, also if the files of the question are gone.
    fs::remove_file(run.path("interaction/request.json")).unwrap();
    let mut metadata = run.metadata();
    metadata["status"] = json!("RUNNING");
    fs::write(run.path("metadata.json"), metadata.to_string()).unwrap();
    world.run("go").exits(101);
    assert_eq!(world.lines("reported").len(), 1);
    let command = payload["command"].as_str().unwrap();
    let program = env!("CARGO_BIN_EXE_delta");
    let command = command.replacen("delta", &format!("'{program}'"), 1);
    let command = command.replace(" ANSWER", " yes");
    Delta::of("sh", world.home())
        .args(["-c", &command])
        .exits(0)
        .prints("done\n");
}

#[test]
fn on_question_has_no_words_of_a_secret_question_and_does_not_run_at_a_terminal() {
    let world = World::new();
    world.write("agent/hooks.yaml", REPORT);
    let secret = json!({"prompt": "the password of x", "input_type": "password"});
    world.model_says([call("call_1", "ask_human", &secret)]);
    world.run("go").exits(101);
    let reported = world.read("reported");
    assert!(!reported.contains("the password of x"), "{reported}");
    let world = World::new();
    world.write("agent/hooks.yaml", REPORT);
    world.model_says([
        call("call_1", "ask_human", &json!({"prompt": "May I?"})),
        text("done"),
    ]);
    world.run("go").arg("-i").stdin("yes\n").exits(0);
    assert!(!world.exists("reported"));
}

#[test]
fn on_question_reports_a_call_to_confirm() {
    let world = World::with_tools("- {name: t, exec: 'echo hi', confirm: true}\n");
    world.write("agent/hooks.yaml", REPORT);
    world.model_says([call("call_1", "t", &json!({}))]);
    world.run("go").exits(101);
    let payload: Value = serde_json::from_str(&world.lines("reported")[0]).unwrap();
    assert_eq!(payload["input_type"], "confirmation");
    let command = payload["command"].as_str().unwrap();
    assert!(command.ends_with(" -m yes"), "{command}");
}
