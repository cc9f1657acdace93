//! Attachments in the commands that preview, repeat, resume and show a run, and in calls that end later.

use crate::engine::attachment_limits::count;
use crate::engine::later::let_time_pass;
use crate::harness::services::{Api, Said};
use crate::harness::*;
use crate::record::attachments::{ATTACH, PDF, base64, png, says, script, sha256};
use serde_json::{Value, json};
use std::fs;

/// The names of the attachments of an event.
fn names(event: &Value) -> Vec<String> {
    let all = event["attachments"].as_array().into_iter().flatten();
    all.map(|it| it["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Six pictures of 4.8 MB as base64 each, as options of a command.
fn six_large(world: &World) -> (Vec<Vec<u8>>, Vec<String>) {
    let picture = |n: u8| png(3, 2, &[&vec![n; 3_600_000][..], b"x"].concat());
    let pictures: Vec<Vec<u8>> = (0..6).map(picture).collect();
    let mut options = Vec::new();
    for (n, picture) in pictures.iter().enumerate() {
        world.write(&format!("{n}.png"), picture);
        options.extend(["-f".to_owned(), format!("{n}.png")]);
    }
    (pictures, options)
}

#[test]
fn one_result_whose_picture_is_gone_leaves_the_others_of_the_answer_whole() {
    let world = World::with_tools(ATTACH);
    let (kept, gone) = (png(3, 2, b""), png(4, 2, b""));
    world.write("ws/p.png", &kept);
    world.write("ws/q.png", &gone);
    let both = [
        ("call_1", "attach", json!({"files": "p.png"})),
        ("call_2", "attach", json!({"files": "q.png"})),
    ];
    world.model_says([calls(&both), text("done"), text("again")]);
    world.run("go").exits(0);
    fs::remove_file(world.latest().path(&format!("io/blobs/{}", sha256(&gone)))).unwrap();
    world.go_on().args(["-m", "more"]).exits(0);
    let messages = world.server.last().messages();
    let mut lists = messages.iter().filter(|it| it["content"].is_array());
    let url = format!("data:image/png;base64,{}", base64(&kept));
    assert_eq!(
        lists.next_back().unwrap()["content"],
        json!([{"type": "text", "text": "Attachments of call call_1 (attach):"},
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": "Attachments of call call_2 (attach):\n[attachment q.png: its file is gone]"}])
    );
}

#[test]
fn a_fork_at_the_beginning_has_the_pictures_of_its_own_message() {
    let world = World::new();
    world.write("p.png", png(3, 2, b""));
    world.write("q.png", png(4, 2, b""));
    world.model_says([text("seen"), text("forked"), text("again")]);
    world
        .run("look")
        .args(["-f", "p.png", "--run-id", "parent"])
        .exits(0);
    for (message, expected) in [
        (&["-m", "other", "-f", "q.png"][..], "q.png"),
        (&[], "p.png"),
    ] {
        let fork = world.delta(["fork", "-w", "ws", "parent", "--at", "0"]);
        fork.args(message).exits(0);
        assert_eq!(names(&world.latest().events("USER_MESSAGE")[0]), [expected]);
        assert_eq!(count(&world.server.last().body), 1);
    }
}

#[test]
fn a_dry_run_prints_the_bytes_of_the_pictures_that_would_be_sent() {
    let world = World::new();
    let (pictures, options) = six_large(&world);
    world.model_says([text("seen")]);
    let preview = world.run("look").args(&options).arg("--dry-run").exits(0);
    world.run("look").args(&options).exits(0);
    let sent: Value = world.server.last().json();
    assert_eq!(count(&world.server.last().body), 2);
    assert!(preview.object()["messages"] == sent["messages"]);
    let page = world.delta(["report", "-w", "ws"]).exits(0);
    let page = String::from_utf8_lossy(&page.stdout).into_owned();
    // A page has 20 MB of them.
    let shown = pictures.iter().filter(|it| page.contains(&base64(it)));
    assert_eq!(shown.count(), 5);
    let linked = format!("/io/blobs/{}", sha256(&pictures[5]));
    assert!(page.contains(&linked) && !page.contains(&sha256(&pictures[4])));
    // A picture of another size than the record says is none of them.
    let journal = world.latest().path("journal.jsonl");
    let mut forged = fs::read_to_string(&journal).unwrap();
    for picture in &pictures {
        forged = forged.replace(&format!("\"bytes\":{}", picture.len()), "\"bytes\":1");
    }
    assert!(forged.contains("\"bytes\":1,") || forged.contains("\"bytes\":1}"));
    fs::write(&journal, forged).unwrap();
    let page = world.delta(["report", "-w", "ws"]).exits(0).stdout;
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}

#[test]
fn the_next_request_is_printed_with_the_limits_of_attachments() {
    let world = World::with_tools(ATTACH).llm("max_retries: 0");
    for n in 0..20 {
        world.write(&format!("ws/{n}.png"), png(2001, 2, &[n]));
        world.write(&format!("{n}.png"), png(2001, 2, &[n]));
    }
    let some = |count: u32| -> Vec<String> {
        (0..count)
            .flat_map(|n| ["-f".to_owned(), format!("{n}.png")])
            .collect()
    };
    let next = |expected: usize| {
        let printed = world.delta(["request", "-w", "ws", "--next"]).exits(0);
        assert_eq!(count(&printed.stdout), expected);
    };
    world.write("small.png", png(3, 2, b""));
    world.model_says([text("seen"), Reply::error(503, "later"), text("seen")]);
    world.run("look").args(some(20)).exits(0);
    next(20);
    world
        .go_on()
        .args(["-m", "more", "-f", "small.png"])
        .exits(75);
    // Those with a long side are lines among so many.
    next(1);
    world.go_on().exits(0);
    assert_eq!(count(&world.server.last().body), 1);

    for n in 0..20 {
        world.write(&format!("ws/{n}.png"), png(3, 2, &[n]));
        world.write(&format!("{n}.png"), png(3, 2, &[n]));
    }
    let files = "0.png 1.png";
    let asks = [
        ("call_1", "attach", json!({"files": files})),
        ("call_2", "ask_human", json!({"prompt": "Which?"})),
    ];
    world.model_says([text("seen"), calls(&asks), text("done")]);
    world.run("again").arg("--new").args(some(20)).exits(0);
    world.go_on().args(["-m", "more"]).args(some(20)).exits(101);
    assert_eq!(count(&world.server.last().body), 40);
    next(20);
    world.go_on().args(["-m", "this"]).exits(0);
    assert_eq!(count(&world.server.last().body), 20);
}

#[test]
fn the_command_that_makes_a_document_smaller_is_one_for_documents() {
    let world = World::unasked();
    world.write("large.pdf", [PDF, &vec![b' '; 3_750_000]].concat());
    let run = world.run("look").args(["-f", "large.pdf"]);
    run.refuses(2, "3,750,000 bytes; qpdf in.pdf --pages");
}

#[test]
fn a_record_that_names_the_same_bytes_again_and_again_is_refused() {
    let world = World::new();
    let picture = png(3, 2, &vec![1; 3_600_000]);
    world.write("p.png", &picture);
    world.model_says([text("seen")]);
    world.run("look").args(["-f", "p.png"]).exits(0);
    let sum = sha256(&picture);
    let place = |n: usize| json!({"offset": n * base64(&picture).len(), "sha256": sum});
    let places: Vec<Value> = (0..30).map(place).collect();
    let path = world.latest().invocations()[0].join("request.blobs.json");
    fs::remove_file(&path).unwrap();
    fs::write(&path, json!(places).to_string()).unwrap();
    let request = world.delta(["request", "-w", "ws"]);
    request.refuses(1, "more than a service would take");
}

#[test]
fn a_look_attaches_to_the_result_of_the_call_that_has_ended() {
    let tool = r#"- name: build
  shell: 'echo ci-7; exit 75'
  later:
    check: [sh, -c, 'cp shot.png "$DELTA_ATTACH"; cp text "$DELTA_ATTACH"; echo green; exit $(cat code)']
    every_s: 3600
"#;
    for (code, api) in [("0", Api::Chat), ("10", Api::Chat), ("10", Api::Messages)] {
        let world = World::with_tools(tool).llm(&format!("api: {}", api.name()));
        let picture = png(3, 2, b"shot");
        world.write("ws/shot.png", &picture);
        world.write("ws/text", "text");
        world.write("ws/code", "75");
        let wants = Said {
            calls: vec![("call_1".to_owned(), "build".to_owned(), json!({}))],
            ..Said::default()
        };
        script(&world, api, vec![wants, says("done")]);
        world.run("go").exits(75);
        let_time_pass(&world.latest(), &["due_at"]);
        world.go_on().exits(75);
        let run = world.latest();
        assert_eq!(run.events("DEFERRED_LOOK").len(), 1);
        assert!(run.events("ACTION_RESULT").is_empty());
        world.write("ws/code", code);
        let_time_pass(&run, &["due_at"]);
        world.go_on().exits(0).prints("done\n");
        let result = &run.events("ACTION_RESULT")[0];
        assert_eq!(names(result), ["shot.png"]);
        assert_eq!(
            result["observation_content"],
            "green\n[picture shot.png, 3x2, image/png]\n[text: not a picture or document]"
        );
        assert_eq!(count(&world.server.last().body), 1);
    }
}

#[test]
fn the_bytes_of_an_attachment_are_those_that_were_judged_whatever_its_writer_does() {
    // It is written over and never cut off: each moment of it is a picture.
    let tool = r#"- {name: attach, shell: 'cd "$DELTA_ATTACH"; cp "$CWD/q.png" a; (trap "" HUP TERM; while :; do cat "$CWD/p.png" 1<> a; cat "$CWD/q.png" 1<> a; done) &'}"#;
    let world = World::with_tools(tool);
    world.write("ws/p.png", png(3, 2, &vec![1; 1_000_000]));
    world.write("ws/q.png", png(4, 2, &vec![2; 1_000_000]));
    world.observe("attach", &json!({}));
    let run = world.latest();
    let attachment = &run.events("ACTION_RESULT")[0]["attachments"][0];
    assert_eq!(attachment["bytes"], 1_000_029);
    let digest = attachment["sha256"].as_str().unwrap();
    let bytes = run.read(&format!("io/blobs/{digest}"));
    assert_eq!(sha256(&bytes), digest);
    assert_eq!(attachment["width"], u64::from(bytes[19]));
}

#[test]
fn a_picture_that_the_disk_has_no_room_for_leaves_neither_an_event_nor_half_a_file() {
    let world = World::with_tools("- {name: shot, shell: 'mv shot.png \"$DELTA_ATTACH\"'}");
    world.write("ws/shot.png", png(3, 2, &[1].repeat(100_000)));
    world.model_says([call("call_1", "shot", &json!({})), text("done")]);
    // In blocks of 512 or 1024 bytes.
    world.run("go").after("ulimit -f 40").exits(75);
    let run = world.latest();
    assert_eq!(run.metadata()["stop_reason"], "disk_full");
    assert!(run.events("ACTION_RESULT").is_empty());
    assert_eq!(fs::read_dir(run.path("io/blobs")).unwrap().count(), 0);
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn pictures_count_by_their_tokens_in_reservations_and_exports_name_their_digests() {
    let picture = png(3, 2, &vec![1; 600_000]);
    let reserved = |with: bool| {
        let world = World::new().top("budget: {tokens: 100000}");
        world.write("p.png", &picture);
        world.model_says([text("seen")]);
        let files: &[&str] = if with { &["-f", "p.png"] } else { &[] };
        world.run("look").args(files).exits(0);
        let export = world.delta(["export", "-w", "ws", "--format", "otlp", "--content"]);
        let export = String::from_utf8_lossy(&export.exits(0).stdout).into_owned();
        let name = format!("sha256:{}", sha256(&picture));
        assert_eq!(export.contains(&name), with);
        assert!(!export.contains(&base64(&picture[..3000])));
        let lines = crate::engine::budget::ledger(&world.latest());
        crate::engine::budget::sum(&lines, "reserve").0
    };
    let more = reserved(true) - reserved(false);
    assert!((1600..1800).contains(&more), "{more}");
}

#[test]
fn files_of_chat_go_with_its_first_message() {
    let world = World::new();
    world.write("ws/p.png", png(3, 2, b""));
    world.model_says([text("one"), text("two")]);
    let chat = |file: &str| {
        let chat = world.delta(["chat", "-a", "../agent", "-w", ".", "-f", file]);
        chat.cwd(world.path("ws")).stdin("look\nagain\n")
    };
    chat("gone.png").refuses(2, "gone.png: cannot read it");
    chat("p.png").exits(0).prints("one\ntwo\n");
    let said = world.latest().events("USER_MESSAGE");
    assert_eq!(names(&said[0]), ["p.png"]);
    assert_eq!(
        (names(&said[1]), &said[1]["content"]),
        (vec![], &json!("again"))
    );
    assert_eq!(count(&world.server.last().body), 1);
}
