//! Answers that a service makes in the background: each is paid for once, whatever happens meanwhile.

use crate::engine::budget::{ledger, sum, unsettled};
use crate::harness::services::*;
use crate::harness::*;
use rustix::fs::inotify;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::mem::MaybeUninit;
use std::sync::mpsc;

/// An agent whose answers are made in the background.
fn world() -> World {
    World::new().llm("api: responses\nbackground: true\nstore: true")
}

/// A response of the service, as it is now.
fn response(id: &str, status: &str) -> Value {
    let said = Said {
        text: "done".to_owned(),
        ..Said::default()
    };
    let mut response = answer_of(Api::Responses, &json!({}), &said);
    (response["id"], response["status"]) = (json!(id), json!(status));
    if status != "completed" {
        (response["output"], response["usage"]) = (json!([]), Value::Null);
    }
    response
}

fn is(id: &str, status: &str) -> Reply {
    completion(&response(id, status))
}

/// The requests as they came: method and path.
fn asked(world: &World) -> Vec<String> {
    let requests = world.server.requests();
    let lines = requests
        .iter()
        .map(|it| it.line.rsplit_once(' ').unwrap().0);
    lines.map(str::to_owned).collect()
}

const ASK: &str = "POST /v1/responses";
const LOOK: &str = "GET /v1/responses/resp_1";

/// Everything that was reserved is settled, and came to this.
#[track_caller]
fn spent(world: &World, tokens: u64) {
    let lines = ledger(&world.latest());
    assert_eq!(unsettled(&lines), Vec::<Value>::new());
    assert_eq!(sum(&lines, "settle").0, tokens);
}

#[test]
fn an_answer_that_has_not_ended_is_polled_and_its_id_recorded_before() {
    let world = world();
    let records = world.path("ws/.delta");
    let recorded = move |_: &Received| {
        let open = files_below(&records).into_iter();
        let mut open = open.filter(|it| {
            it.ends_with("metadata.json") && it.to_string_lossy().contains("invocations")
        });
        let text = fs::read_to_string(open.next().expect("a record")).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(record["status"], "PENDING");
        assert_eq!(record["open"]["response_id"], "resp_1");
        is("resp_1", "in_progress")
    };
    world.server.says([
        is("resp_1", "queued"),
        Reply::of(recorded),
        is("resp_1", "completed"),
    ]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(asked(&world), [ASK, LOOK, LOOK]);
    let first = world.server.requests()[0].json();
    assert_eq!(first["background"], true);
    assert_eq!(first["store"], true);
    assert!(first.get("stream").is_none());
    spent(&world, 110);
    let run = world.latest();
    assert_eq!(run.events("THOUGHT")[0]["usage"]["total_tokens"], 110);
    let invocation = &run.invocations()[0];
    let record = fs::read_to_string(invocation.join("metadata.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["status"], "SUCCESS");
    assert_eq!(record["attempts"].as_array().unwrap().len(), 1);
    // It is used if a kill comes before the answer is in the journal.
    assert_eq!(record["open"]["response_id"], "resp_1");
    world
        .delta(["replay", "-w", "ws", "LATEST"])
        .exits(0)
        .prints("identical: 1 request\n");
}

#[test]
fn a_start_after_a_kill_polls_the_same_answer_and_nothing_is_paid_twice() {
    // The reservation alone is more than the budget.
    let world = world().top("budget: {tokens: 100}");
    world.server.says([
        Reply::error(500, "not now"),
        is("resp_1", "queued"),
        is("resp_1", "in_progress").held(),
    ]);
    let running = world.run("go").spawn();
    world.server.wait_for(3);
    running.kill();
    let open = unsettled(&ledger(&world.latest()));
    assert_eq!(open.len(), 1);
    // The request would be another one now, and the conversation is the same.
    world.write("ws/DELTA.md", "news\n");
    world.server.says([is("resp_1", "completed")]);
    world.run("go").exits(0).prints("done\n").says("110 tokens");
    assert_eq!(asked(&world), [ASK, ASK, LOOK, LOOK]);
    spent(&world, 110);
    let run = world.latest();
    assert_eq!(run.invocations().len(), 1);
    let record = fs::read_to_string(run.invocations()[0].join("metadata.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["attempts"].as_array().unwrap().len(), 2);
    world.go_on().args(["-m", "more"]).exits(4).says("110 of");
}

#[test]
fn a_kill_before_the_answer_is_in_the_journal_pays_for_no_other_one() {
    let world = world();
    let kill = "[ -e killed ] || { : >killed; kill -KILL $PPID; }";
    let hook = format!(
        "post_llm_response: {{command: [sh, -c, {}]}}\n",
        json!(kill)
    );
    world.write("agent/hooks.yaml", hook);
    world
        .server
        .says([is("resp_1", "queued"), is("resp_1", "completed")]);
    assert_eq!(world.run("go").spawn().wait().killed_by(), Some(9));
    world.server.says([is("resp_1", "completed")]);
    world.run("go").exits(0).prints("done\n").says("110 tokens");
    assert_eq!(asked(&world), [ASK, LOOK, LOOK]);
    spent(&world, 110);
    // An answer that is in the journal is not asked for again.
    world.server.says([is("resp_2", "completed")]);
    world.go_on().args(["-m", "more"]).exits(0);
    assert_eq!(asked(&world)[3..], [ASK]);
}

#[test]
fn the_id_of_an_open_answer_is_on_disk_at_every_moment() {
    let world = world();
    let records = world.path("ws/.delta");
    let (sender, receiver) = mpsc::channel();
    let watch = move |_: &Received| {
        let open = files_below(&records).into_iter();
        let mut open = open.filter(|it| it.ends_with("metadata.json"));
        let open = open.find(|it| it.to_string_lossy().contains("invocations"));
        let dir = open.expect("a record").parent().unwrap().to_owned();
        let events = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&events, &dir, inotify::WatchFlags::DELETE).unwrap();
        sender.send(events).unwrap();
        is("resp_1", "completed")
    };
    world
        .server
        .says([is("resp_1", "queued"), Reply::of(watch)]);
    world.run("go").exits(0);
    let mut buffer = [const { MaybeUninit::uninit() }; 4096];
    let mut events = inotify::Reader::new(receiver.recv().unwrap(), &mut buffer);
    while let Ok(event) = events.next() {
        assert_ne!(event.file_name(), Some(c"metadata.json"));
    }
}

#[test]
fn a_run_that_is_resumed_below_another_settles_nothing_there() {
    let world = world();
    let begun = [is("resp_1", "queued"), is("resp_1", "in_progress").held()];
    world.server.says(begun);
    let running = world.run("go").spawn();
    world.server.wait_for(2);
    running.kill();
    let other = world.write("other/.delta/20260101_000000_000000/spending.jsonl", "");
    let outer = json!([{"ledger": other, "tokens": 1000}]).to_string();
    world.server.says([is("resp_1", "completed")]);
    let resumed = world.run("go").env("DELTA_LEDGERS", outer);
    resumed.exits(0).prints("done\n");
    spent(&world, 110);
    assert_eq!(fs::read_to_string(other).unwrap(), "");
}

#[test]
fn what_a_person_says_meanwhile_is_another_request() {
    let world = world();
    world
        .server
        .says([is("resp_1", "queued"), is("resp_1", "in_progress").held()]);
    let running = world.run("go").spawn();
    world.server.wait_for(2);
    running.kill();
    world.server.says([is("resp_2", "completed")]);
    world.go_on().args(["-m", "rather this"]).exits(0);
    assert_eq!(asked(&world), [ASK, LOOK, ASK]);
    let lines = ledger(&world.latest());
    assert_eq!(unsettled(&lines).len(), 1);
    assert_eq!(sum(&lines, "settle").0, 110);
}

#[test]
fn a_signal_or_a_limit_of_time_ends_the_wait_and_the_answer_stays() {
    let cases = [
        (None, 130),
        (Some("limits.seconds=4"), 75),
        (Some("llm.total_timeout_ms=4000"), 75),
    ];
    std::thread::scope(|scope| {
        for (limit, code) in cases {
            scope.spawn(move || ends_the_wait(limit, code));
        }
    });
}

/// A signal, if there is no limit.
fn ends_the_wait(limit: Option<&str>, code: i32) {
    let set = || limit.map(|limit| ["--set", limit]).into_iter().flatten();
    let world = world();
    world.server.says([is("resp_1", "queued")]);
    world.server.answers(|_| is("resp_1", "in_progress"));
    let running = world.run("go").args(set()).spawn();
    world.server.wait_for(2);
    if limit.is_none() {
        running.signal(Signal::INT);
    }
    let ended = running.wait().exits(code);
    if let Some(limit) = limit {
        let (_, reason) = world.latest().ending();
        assert_eq!(reason.as_deref(), Some("background"), "{limit}");
        ended.says("the next start looks for it again");
        assert!(world.latest().metadata()["due_at"].is_string());
        let listed = world.delta(["due", "--all"]).end();
        let id = world.latest().id();
        let all = format!(
            "{}{}",
            String::from_utf8_lossy(&listed.stdout),
            listed.stderr
        );
        assert!(all.contains(&id), "{all}");
    }
    assert_eq!(unsettled(&ledger(&world.latest())).len(), 1);
    world.server.says([is("resp_1", "completed")]);
    world.go_on().args(set()).exits(0).prints("done\n");
    let asked = asked(&world);
    assert_eq!(asked[0], ASK);
    assert!(asked[1..].iter().all(|it| it == LOOK), "{asked:?}");
    spent(&world, 110);
}

#[test]
fn a_look_that_fails_is_repeated_and_asks_for_no_other_answer() {
    let world = world().llm("max_retries: 0");
    world.server.says([
        is("resp_1", "queued"),
        Reply::error(503, "not now"),
        // A word of a gateway is not one of the service.
        completion(&json!({"message": "try later"})),
        completion(&json!("<html>")),
        is("resp_1", "completed"),
    ]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(asked(&world), [ASK, LOOK, LOOK, LOOK, LOOK]);
    spent(&world, 110);
    // With another key it can be had again.
    world.server.says([
        is("resp_1", "queued"),
        Reply::error(401, "who are you"),
        is("resp_1", "completed"),
    ]);
    world
        .go_on()
        .args(["-m", "more"])
        .exits(4)
        .says("who are you");
    world.go_on().exits(0).prints("done\n");
    assert_eq!(asked(&world)[5..], [ASK, LOOK, LOOK]);
    spent(&world, 220);
}

#[test]
fn an_answer_that_fails_or_is_lost_is_a_failed_attempt() {
    let failed = |code: &str| {
        let mut response = response("resp_1", "failed");
        response["error"] = json!({"code": code, "message": "broke"});
        completion(&response)
    };
    let begun = || is("resp_1", "queued");
    let done = || is("resp_1", "completed");
    let lost = || Reply::error(404, "Response with id 'resp_1' not found.");
    for (replies, code, words) in [
        (vec![begun(), is("resp_1", "cancelled"), done()], 0, ""),
        (vec![begun(), failed("server_error"), done()], 0, "broke"),
        (vec![begun(), failed("invalid_prompt")], 4, "broke"),
        (vec![begun(), lost(), done()], 0, "does not know the answer"),
        // What is lost twice would be lost, and paid for, nine times.
        (
            vec![begun(), lost(), begun(), lost()],
            4,
            "does not know the answer",
        ),
        // Nothing but an id can be asked for.
        (
            vec![is("../models", "queued"), is("", "in_progress")],
            4,
            "does not know the answer",
        ),
    ] {
        let world = world();
        let count = replies.len();
        world.server.says(replies);
        world.run("go").exits(code).says(words);
        assert_eq!(asked(&world).len(), count, "{words}");
        assert_eq!(unsettled(&ledger(&world.latest())), Vec::<Value>::new());
    }
}
