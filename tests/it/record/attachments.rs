//! Pictures and documents: what becomes one, where its bytes lie, and what each service gets.

use crate::harness::services::*;
use crate::harness::*;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use std::fs;

/// A PNG of this size; `rest` follows its head and makes it distinct.
pub fn png(width: u32, height: u32, rest: &[u8]) -> Vec<u8> {
    let mut out = b"\x89PNG\r\n\x1a\n\0\0\0\x0DIHDR".to_vec();
    out.extend(width.to_be_bytes());
    out.extend(height.to_be_bytes());
    out.extend([8, 6, 0, 0, 0]);
    out.extend_from_slice(rest);
    out
}

pub const PDF: &[u8] =
    b"%PDF-1.4\n1 0 obj <</Type /Page>> endobj\n2 0 obj <</Type/Page>> endobj\n%%EOF\n";

pub const WEBP: &[u8] = b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x02\0\0\x01\0\0";

/// A tool that copies files into the directory for attachments.
pub const ATTACH: &str = "- {name: attach, shell: 'for f in ${files:raw}; do cp -- \"$f\" \"$DELTA_ATTACH\"; done; echo attached', \
    parameters: [{name: files}]}";

pub fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn data_url(media_type: &str, bytes: &[u8]) -> String {
    format!("data:{media_type};base64,{}", base64(bytes))
}

pub fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn calls_attach(id: &str, files: &str) -> Said {
    Said {
        calls: vec![(id.to_owned(), "attach".to_owned(), json!({"files": files}))],
        ..Said::default()
    }
}

pub fn says(text: &str) -> Said {
    Said {
        text: text.to_owned(),
        ..Said::default()
    }
}

/// Answers with each of these in turn.
pub fn script(world: &World, api: Api, said: Vec<Said>) {
    let mut said = said.into_iter();
    world.server.answers(move |received| {
        let next = said.next().expect("no more requests");
        reply(api, received, &next)
    });
}

/// The bytes that a request has as the service gets it must be those that delta prints of it.
#[track_caller]
pub fn prints_what_was_sent(world: &World) {
    for (at, sent) in world.server.requests().iter().enumerate() {
        let number = (at + 1).to_string();
        let printed = world.delta(["request", "-w", "ws", &number]).exits(0);
        assert!(printed.stdout == sent.body, "request {number}");
    }
}

#[test]
fn a_picture_and_a_document_of_the_command_line_reach_each_service_in_its_form() {
    for api in APIS {
        let world = World::new().llm(&format!("api: {}\nattachments: true", api.name()));
        let picture = png(80, 60, b"abc");
        world.write("a b.png", &picture);
        world.write("doc.bin", PDF);
        script(&world, api, vec![says("seen")]);
        world
            .run("look")
            .args(["-f", "a b.png", "-f", "doc.bin"])
            .exits(0)
            .prints("seen\n");
        let request = world.server.last().json();
        let text = "look\n\n[picture a b.png, 80x60, image/png]\n\n[document doc.bin, 2 pages, application/pdf]";
        let (image, pdf) = (
            data_url("image/png", &picture),
            data_url("application/pdf", PDF),
        );
        let messages = request[api.conversation()].as_array().unwrap();
        let said = messages.iter().find(|it| it["role"] == "user").unwrap();
        let expected = match api {
            Api::Chat => {
                json!([{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": image}},
                {"type": "file", "file": {"filename": "doc.bin", "file_data": pdf}}])
            }
            Api::Responses => json!([{"type": "input_text", "text": text},
                {"type": "input_image", "detail": "auto", "image_url": image},
                {"type": "input_file", "filename": "doc.bin", "file_data": pdf}]),
            Api::Messages => json!([
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64(&picture)}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": base64(PDF)},
                    "title": "doc.bin"},
                {"type": "text", "text": text}]),
        };
        assert_eq!(without_marks(said["content"].clone()), expected, "{api:?}");
        let run = world.latest();
        let event = &run.events("USER_MESSAGE")[0];
        assert_eq!(
            event["attachments"],
            json!([
            {"sha256": sha256(&picture), "media_type": "image/png", "bytes": picture.len(), "name": "a b.png",
                "width": 80, "height": 60},
            {"sha256": sha256(PDF), "media_type": "application/pdf", "bytes": PDF.len(), "name": "doc.bin", "pages": 2}])
        );
        assert_eq!(
            fs::read(run.path(&format!("io/blobs/{}", sha256(PDF)))).unwrap(),
            PDF
        );
        assert_eq!(world.read("ws/.delta/VERSION"), "1.3\n");
        let recorded = fs::read_to_string(run.invocations()[0].join("request.json")).unwrap();
        assert!(
            !recorded.contains(&base64(&picture)) && !recorded.contains("$blob"),
            "{recorded}"
        );
        let places = fs::read(run.invocations()[0].join("request.blobs.json")).unwrap();
        let places: Value = serde_json::from_slice(&places).unwrap();
        assert_eq!(places[0]["sha256"], sha256(&picture));
        let offset = places[0]["offset"].as_u64().unwrap() as usize;
        assert!(world.server.last().body[offset..].starts_with(base64(&picture).as_bytes()));
        prints_what_was_sent(&world);
    }
}

#[test]
fn what_a_tool_attaches_reaches_each_service_in_its_form() {
    for api in APIS {
        let world = World::with_tools(ATTACH).llm(&format!("api: {}", api.name()));
        let picture = png(3, 2, b"shot");
        world.write("ws/shot.png", &picture);
        script(
            &world,
            api,
            vec![calls_attach("call_1", "shot.png"), says("done")],
        );
        world.run("go").exits(0).prints("done\n");
        let observed = "attached\n[picture shot.png, 3x2, image/png]";
        let image = data_url("image/png", &picture);
        let request = without_marks(world.server.last().json());
        let messages = request[api.conversation()].as_array().unwrap();
        let last = messages.last().unwrap();
        match api {
            Api::Chat => {
                assert_eq!(messages[messages.len() - 2]["content"], observed);
                assert_eq!(
                    *last,
                    json!({"role": "user", "content": [
                    {"type": "text", "text": "Attachments of call call_1 (attach):"},
                    {"type": "image_url", "image_url": {"url": image}}]})
                );
            }
            Api::Responses => assert_eq!(
                *last,
                json!({"type": "function_call_output", "call_id": "call_1",
                "output": [{"type": "input_text", "text": observed},
                    {"type": "input_image", "detail": "auto", "image_url": image}]})
            ),
            Api::Messages => assert_eq!(
                last["content"],
                json!([{"type": "tool_result", "tool_use_id": "call_1",
                "content": [{"type": "text", "text": observed}, {"type": "image", "source":
                    {"type": "base64", "media_type": "image/png", "data": base64(&picture)}}]}])
            ),
        }
        let result = &world.latest().events("ACTION_RESULT")[0];
        assert_eq!(result["attachments"][0]["name"], "shot.png");
        assert_eq!(result["observation_content"], observed);
        prints_what_was_sent(&world);
        // Its bytes lie once.
        assert_eq!(
            fs::read_dir(world.latest().execution(1).join("attach"))
                .unwrap()
                .count(),
            0
        );
    }
}

#[test]
fn messages_takes_no_picture_in_a_failed_result() {
    let world =
        World::with_tools("- {name: attach, shell: 'cp shot.png \"$DELTA_ATTACH\"; exit 3'}")
            .llm("api: messages");
    let picture = png(3, 2, b"shot");
    world.write("ws/shot.png", &picture);
    let call = |id: &str| (id.to_owned(), "attach".to_owned(), json!({}));
    let both = Said {
        calls: vec![call("call_1"), call("call_2")],
        ..Said::default()
    };
    script(&world, Api::Messages, vec![both, says("done")]);
    world.run("go").exits(0);
    let request = without_marks(world.server.last().json());
    let content = request["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    let kinds: Vec<&str> = content
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["tool_result", "tool_result", "image", "image"]);
    assert_eq!(content[0]["is_error"], true);
    assert!(content[0]["content"].is_string());
}

#[test]
fn a_program_that_serves_as_the_model_gets_the_form_of_chat_with_all_bytes() {
    let world = World::unasked().program([text("seen")]);
    let picture = png(80, 60, b"abc");
    world.write("p.png", &picture);
    world
        .run("look")
        .args(["-f", "p.png"])
        .exits(0)
        .prints("seen\n");
    let request: Value = serde_json::from_str(&world.read("agent/model/request.1")).unwrap();
    let said = request["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(
        said["content"][1]["image_url"]["url"],
        data_url("image/png", &picture)
    );
}

#[test]
fn only_pictures_and_documents_become_attachments_whatever_they_are_called() {
    let tool = "- {name: attach, shell: 'cd \"$DELTA_ATTACH\" && sh \"$AGENT_HOME/fill.sh\"'}";
    let world = World::with_tools(tool);
    world.write("ws/shot.png", png(3, 2, b"\0\0rubbish\xFF"));
    world.write("agent/fill.sh", "\
        W=\"$CWD\"
        cp \"$W/shot.png\" ok.txt
        echo text > lie.png
        ln -s \"$W/shot.png\" link.png
        cp \"$W/shot.png\" \"$W/hard\"; ln \"$W/hard\" hard.png
        mkfifo fifo.png
        mknod dev.png c 1 5 || mkfifo dev.png # Only root makes devices.
        mkdir dir.png
        truncate -s 4G sparse.bin
        (cat \"$W/shot.png\"; head -c 4000000 /dev/zero) > large.png
        (head -c 16 \"$W/shot.png\"; printf '\\0\\0\\037\\101\\0\\0\\0\\001\\010\\006\\0\\0\\0') > wide.png
        cp \"$W/shot.png\" .hidden.png
        cp \"$W/shot.png\" \"$(printf 'new\\nline.png')\"
        touch 'empty.png'\n");
    let observed = world.observe("attach", &json!({}));
    let lines: Vec<&str> = observed.lines().collect();
    let none = |name: &str| format!("[{name}: not a picture or document]");
    let smaller = "convert in.png -resize 1568x1568 out.jpg";
    assert_eq!(
        lines,
        [
            "(no output)".to_owned(),
            none("dev.png"),
            none("dir.png"),
            none("empty.png"),
            none("fifo.png"),
            none("hard.png"),
            format!("[large.png: more than 3,750,000 bytes; {smaller}]"),
            none("lie.png"),
            none("link.png"),
            "[picture new\u{FFFD}line.png, 3x2, image/png]".to_owned(),
            "[picture ok.txt, 3x2, image/png]".to_owned(),
            none("sparse.bin"),
            format!("[wide.png: more than 8,000 pixels a side; {smaller}]"),
        ]
    );
    assert_eq!(
        world.latest().events("ACTION_RESULT")[0]["attachments"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        fs::read_dir(world.latest().path("io/blobs"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn of_two_hundred_files_the_first_twenty_are_attached_and_sixty_four_are_read() {
    let tool = "- {name: attach, shell: 'cd \"$DELTA_ATTACH\" && for i in $(seq 1000 1199); do cp \"$CWD/shot.png\" $i; done'}";
    let world = World::with_tools(tool);
    world.write("ws/shot.png", png(3, 2, b""));
    let observed = world.observe("attach", &json!({}));
    assert!(observed.contains("[picture 1019, 3x2, image/png]\n[1020: more than 20 attachments]"));
    assert!(observed.ends_with(
        "[1063: more than 20 attachments]\n[136 more entries: only the first 64 are read]"
    ));
    assert_eq!(
        world.latest().events("ACTION_RESULT")[0]["attachments"]
            .as_array()
            .unwrap()
            .len(),
        20
    );
}

#[test]
fn a_file_of_the_command_line_that_is_too_large_is_wrong_usage() {
    let world = World::unasked();
    let large = png(3, 2, &vec![0; 3_750_000]);
    world.write("large.png", large);
    world.write("wide.png", png(8001, 2, b""));
    world.write("secret.pdf", b"%PDF-1.4\ntrailer <</Encrypt 7 0 R>>\xFF");
    world.write("p.png", png(3, 2, b""));
    let run = |file: &str| world.run("look").args(["-f", file]);
    run("large.png").refuses(
        2,
        "3,750,000 bytes; convert in.png -resize 1568x1568 out.jpg",
    );
    run("wide.png").refuses(2, "8,000 pixels a side; convert in.png");
    run("secret.pdf").refuses(2, "a PDF without a password");
    let many = ["-f", "p.png"].repeat(21);
    world.run("look").args(many).refuses(2, "at most 20");
    assert!(!world.exists("ws"));
}

#[test]
fn a_changed_picture_is_mentioned_and_the_recorded_one_is_sent() {
    let world = World::new().llm("max_retries: 0");
    world.write("p.png", png(3, 2, b"old"));
    world.model_says([Reply::error(503, "later"), text("seen")]);
    let run = || world.run("look").args(["-f", "p.png"]);
    run().exits(75);
    world.write("p.png", png(3, 2, b"new"));
    run()
        .exits(0)
        .says("it read then (--new starts over): p.png");
    let sent = String::from_utf8(world.server.last().body.clone()).unwrap();
    assert!(sent.contains(&base64(&png(3, 2, b"old"))));
}

#[test]
fn a_blob_that_is_gone_or_changed_becomes_a_line() {
    for harm in ["rm", "echo x >>", "ln -sf /etc/passwd"] {
        let world = World::new().llm("max_retries: 0");
        world.write("p.png", png(3, 2, b""));
        world.model_says([Reply::error(503, "later"), text("seen")]);
        world.run("look").args(["-f", "p.png"]).exits(75);
        let blob = world
            .latest()
            .path(&format!("io/blobs/{}", sha256(&png(3, 2, b""))));
        world
            .go_on()
            .after(&format!("{harm} {}", shell_word(&blob)))
            .exits(0)
            .says("attachment p.png is left out");
        let messages = world.server.last().messages();
        let said = messages.last().unwrap()["content"].as_str().unwrap();
        assert!(
            said.ends_with("[picture p.png, 3x2, image/png]\n[attachment p.png: its file is gone]"),
            "{said}"
        );
    }
}

#[test]
fn an_answer_to_a_question_has_attachments_unless_it_is_secret() {
    for (input_type, is_secret) in [("text", false), ("password", true)] {
        let world = World::new();
        world.write("p.png", png(3, 2, b""));
        let asks = call(
            "call_1",
            "ask_human",
            &json!({"prompt": "which?", "input_type": input_type}),
        );
        world.model_says([asks, text("seen")]).may_stay_unasked();
        world.run("go").exits(101);
        let answer = world.go_on().args(["-m", "this", "-f", "p.png"]);
        if is_secret {
            answer.refuses(2, "secret");
            continue;
        }
        answer.exits(0);
        let result = &world.latest().events("ACTION_RESULT")[0];
        assert_eq!(result["attachments"][0]["name"], "p.png");
        let last = world.server.last().messages().pop().unwrap();
        assert_eq!(last["content"][1]["type"], "image_url");
    }
}

#[test]
fn no_text_of_a_model_or_a_tool_stands_for_the_bytes_of_a_picture() {
    for api in APIS {
        let world = World::with_tools(ATTACH).llm(&format!("api: {}", api.name()));
        let picture = png(3, 2, b"shot");
        world.write("ws/shot.png", &picture);
        let mark = format!("$blob:{}", sha256(&picture));
        let url = format!("data:image/png;base64,{mark}");
        let said = Said {
            text: mark.clone(),
            calls: vec![(
                "call_1".to_owned(),
                "attach".to_owned(),
                json!({"files": "shot.png",
                "data": mark, "image_url": {"url": url}, "source": {"data": mark}}),
            )],
            ..Said::default()
        };
        script(
            &world,
            api,
            vec![said, calls_attach("call_2", "shot.png"), says("done")],
        );
        world.run(&url).exits(0);
        let sent = String::from_utf8(world.server.last().body.clone()).unwrap();
        assert_eq!(sent.matches(&base64(&picture)).count(), 1, "{api:?}");
        prints_what_was_sent(&world);
    }
}
