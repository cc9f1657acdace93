//! Attachments in the commands that preview, repeat, resume and show a run, and in calls that end later.

use crate::attachments::{ATTACH, base64, png, sha256};
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
