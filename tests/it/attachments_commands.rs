//! Attachments in the commands that preview, repeat, resume and show a run, and in calls that end later.

use crate::attachments::{ATTACH, PDF, base64, png, sha256};
use crate::attachments_limits::count;
use crate::harness::*;
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
