//! Attachments that are too many, that a service refuses, or that come by other ways than a tool's own program.

use crate::harness::services::*;
use crate::harness::*;
use crate::record::attachments::{
    ATTACH, PDF, WEBP, base64, png, prints_what_was_sent, says, script, sha256,
};
use serde_json::{Value, json};
use std::fs;
use std::sync::{Arc, Mutex};

/// How many pictures and documents a request has.
pub fn count(body: &[u8]) -> usize {
    let text = String::from_utf8_lossy(body);
    let kinds = [
        "\"type\":\"image_url\"",
        "\"type\":\"input_image\"",
        "\"type\":\"image\"",
        "\"type\":\"file\"",
        "\"type\":\"input_file\"",
        "\"type\":\"document\"",
    ];
    kinds.iter().map(|kind| text.matches(kind).count()).sum()
}

/// Calls `attach` again and again, each time with another picture, then says "done".
fn attaches(world: &World, api: Api, times: usize) {
    let mut made = 0;
    world.server.answers(move |received| {
        made += 1;
        let said = match made > times {
            true => says("done"),
            false => Said {
                calls: vec![(
                    format!("call_{made}"),
                    "shot".to_owned(),
                    json!({"n": made}),
                )],
                ..Said::default()
            },
        };
        reply(api, received, &said)
    });
}

const SHOT: &str = "- {name: shot, shell: '(cat base.png; printf %s ${n}) > \"$DELTA_ATTACH/shot.png\"', parameters: [{name: n, type: integer}]}";

#[test]
fn a_request_has_at_most_forty_and_its_beginning_changes_every_twenty_pictures() {
    for (api, pictures) in APIS.into_iter().zip([90, 50, 50]) {
        let world = World::with_tools(SHOT)
            .llm(&format!("api: {}", api.name()))
            .top("max_iterations: 200");
        world.write("ws/base.png", png(30, 20, b""));
        attaches(&world, api, pictures);
        let too_many = (pictures - 21) / 20;
        world.run("go").exits(0).prints("done\n");
        let requests = world.server.requests();
        let most = requests.iter().map(|it| count(&it.body)).max();
        assert_eq!(most, Some(40), "{api:?}");
        let conversation = |it: &Received| {
            let text = without_marks(it.json())[api.conversation()].to_string();
            text[..text.len() - 1]
                .trim_end_matches(['}', ']'])
                .to_owned()
        };
        let conversations: Vec<String> = requests.iter().map(|it| conversation(it)).collect();
        let pairs = conversations.windows(2);
        let changes = pairs.filter(|pair| !pair[1].starts_with(&pair[0]));
        let left_out = world.latest().events("ATTACHMENTS_LEFT_OUT");
        assert_eq!(left_out.len(), too_many, "{api:?}");
        assert_eq!(changes.count(), too_many, "{api:?}");
        assert_eq!(left_out[0]["seqs"].as_array().unwrap().len(), 21);
        assert_eq!(left_out[0]["why"], "limit");
        // Each lies once, and nowhere else.
        assert_eq!(
            fs::read_dir(world.latest().path("io/blobs"))
                .unwrap()
                .count(),
            pictures
        );
        let run = world.latest().dir;
        let holds = |path: &std::path::Path| {
            let bytes = fs::read(path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.contains("iVBORw0KGgo") || bytes.windows(4).any(|it| it == b"IHDR")
        };
        let elsewhere = files_below(&run)
            .into_iter()
            .filter(|it| !it.starts_with(run.join("io/blobs")));
        assert_eq!(elsewhere.filter(|it| holds(it)).count(), 0);
    }
}

#[test]
fn large_attachments_of_one_message_are_left_out_down_to_twelve_megabytes() {
    let world = World::new();
    let mut all = Vec::new();
    for n in 0..6 {
        let name = format!("{n}.png");
        world.write(&name, png(3, 2, &[&vec![n; 3_600_000][..], b"x"].concat()));
        all.extend(["-f".to_owned(), name]);
    }
    world.model_says([text("seen")]);
    world.run("look").args(all).exits(0);
    let event = &world.latest().events("ATTACHMENTS_LEFT_OUT")[0];
    assert_eq!(event["of_last"], 4);
    assert_eq!(count(&world.server.last().body), 2);
    prints_what_was_sent(&world);
}

#[test]
fn pictures_with_a_long_side_become_lines_among_many_and_llm_attachments_chooses() {
    let world = World::new();
    world.write("wide.png", png(2001, 2, b""));
    world.write("p.png", png(3, 2, b""));
    let ten = |name: &'static str| ["-f", name].repeat(10);
    world.model_says([text("seen"), text("seen")]);
    world.run("look").args(ten("wide.png")).exits(0);
    assert_eq!(count(&world.server.last().body), 10);
    let more = [ten("p.png"), vec!["-f", "p.png"]].concat();
    world.go_on().args(["-m", "more"]).args(more).exits(0);
    assert_eq!(count(&world.server.last().body), 11);
    for (attachments, expected) in [("true", 3), ("images", 2), ("false", 0)] {
        let world = World::new().llm(&format!("attachments: {attachments}"));
        world.write("p.png", png(3, 2, b""));
        world.write("p.webp", WEBP);
        world.write("p.pdf", PDF);
        world.model_says([text("seen")]);
        world
            .run("look")
            .args(["-f", "p.png", "-f", "p.webp", "-f", "p.pdf"])
            .exits(0);
        assert_eq!(count(&world.server.last().body), expected, "{attachments}");
    }
    World::unasked()
        .llm("attachments: some")
        .run("look")
        .refuses(78, "true, false or images");
}

#[test]
fn a_server_on_this_machine_gets_nothing_that_it_would_drop_without_a_word() {
    for (api, expected) in [(Api::Chat, 2), (Api::Responses, 3), (Api::Messages, 2)] {
        let world = World::new().llm(&format!("api: {}", api.name()));
        world.write("p.png", png(3, 2, b""));
        world.write("p.webp", WEBP);
        world.write("p.pdf", PDF);
        script(&world, api, vec![says("seen")]);
        world
            .run("look")
            .args(["-f", "p.png", "-f", "p.webp", "-f", "p.pdf"])
            .exits(0);
        assert_eq!(count(&world.server.last().body), expected, "{api:?}");
    }
}

/// Refuses with these words what has more attachments than `most`.
fn refuses(
    world: &World,
    api: Api,
    most: usize,
    status: u16,
    words: &'static str,
    said: Vec<Said>,
) -> Arc<Mutex<usize>> {
    let mut said = said.into_iter();
    let refused = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&refused);
    world.server.answers(move |received| {
        if count(&received.body) > most {
            *counted.lock().unwrap() += 1;
            return Reply::error(status, words);
        }
        reply(api, received, &said.next().expect("no more requests"))
    });
    refused
}

#[test]
fn a_refused_attachment_becomes_a_line_before_any_retry_and_ends_no_run() {
    for (status, words) in [
        (
            500,
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        ),
        (400, "unsupported content[].type"),
        (
            400,
            "'input_file' is not supported by llamacpp at this moment",
        ),
        (400, "Unsupported chat content part type: 'file'"),
        (
            400,
            "messages.1.content.0.image.source.base64: Could not process image",
        ),
        (404, "No endpoints found that support image input"),
        (413, "image exceeds the maximum"),
        (429, "At most 0 image(s) may be provided in one prompt."),
        (
            400,
            "prompt is too long: the document has 900000 tokens > 1000 maximum",
        ),
    ] {
        for api in APIS {
            let world = World::with_tools(ATTACH).llm(&format!("api: {}", api.name()));
            world.write("p.png", png(3, 2, b""));
            world.write("ws/q.png", png(4, 2, b""));
            let calls = Said {
                calls: vec![(
                    "call_1".to_owned(),
                    "attach".to_owned(),
                    json!({"files": "q.png"}),
                )],
                ..Said::default()
            };
            let refused = refuses(
                &world,
                api,
                0,
                status,
                words,
                vec![calls, says("done"), says("again")],
            );
            let outcome = world
                .run("look")
                .args(["-f", "p.png"])
                .exits(0)
                .prints("done\n");
            outcome.says("llm.attachments: true|images|false");
            let left_out = world.latest().events("ATTACHMENTS_LEFT_OUT");
            // Each message is tried once: a picture of a later one is sent.
            assert_eq!(
                (*refused.lock().unwrap(), left_out.len()),
                (2, 2),
                "{words}"
            );
            assert_eq!(left_out[0]["why"], "refused");
            assert!(left_out[0]["message"].as_str().unwrap().contains(words));
            world
                .go_on()
                .args(["-m", "more"])
                .exits(0)
                .prints("again\n");
            assert_eq!(*refused.lock().unwrap(), 2);
            prints_what_was_sent(&world);
            world
                .delta(["replay", "-w", "ws", "--tools", "recorded"])
                .exits(0);
        }
    }
}

#[test]
fn only_the_newest_are_left_out_where_that_is_enough() {
    let world = World::with_tools(ATTACH);
    world.write("p.png", png(3, 2, b""));
    world.write("ws/q.png", png(4, 2, b""));
    let calls = Said {
        calls: vec![(
            "call_1".to_owned(),
            "attach".to_owned(),
            json!({"files": "q.png"}),
        )],
        ..Said::default()
    };
    let refused = refuses(
        &world,
        Api::Chat,
        1,
        400,
        "too many images",
        vec![calls, says("done")],
    );
    world.run("look").args(["-f", "p.png"]).exits(0);
    assert_eq!(*refused.lock().unwrap(), 1);
    let result = &world.latest().events("ACTION_RESULT")[0];
    let left_out = world.latest().events("ATTACHMENTS_LEFT_OUT");
    assert_eq!(left_out[0]["seqs"], json!([result["seq"]]));
    let sent = String::from_utf8(world.server.last().body.clone()).unwrap();
    assert!(sent.contains(&base64(&png(3, 2, b""))));
}

#[test]
fn an_error_that_does_not_speak_of_attachments_is_what_it_is() {
    let world = World::new().llm("max_retries: 0");
    world.write("p.png", png(3, 2, b""));
    world.model_says([Reply::error(
        503,
        "retry immediately, see the documentation",
    )]);
    world.run("look").args(["-f", "p.png"]).exits(75);
    assert!(world.latest().events("ATTACHMENTS_LEFT_OUT").is_empty());
    assert_eq!(world.server.requests().len(), 1);
}

#[test]
fn a_service_that_wants_an_answer_between_results_and_pictures_gets_one() {
    let world = World::with_tools(ATTACH);
    world.write("ws/q.png", png(4, 2, b""));
    world.model_says([
        call("call_1", "attach", &json!({"files": "q.png"})),
        Reply::error(400, "Unexpected role 'user' after role 'tool'"),
        text("done"),
    ]);
    world.run("look").exits(0);
    let messages = world.server.last().messages();
    assert_eq!(roles(&messages)[3..], ["tool", "assistant", "user"]);
    assert_eq!(messages[4]["content"], "(see the attachments)");
    assert!(world.latest().events("ATTACHMENTS_LEFT_OUT").is_empty());
}

#[test]
fn a_hook_sees_marks_takes_pictures_away_and_attaches_its_own() {
    let world = World::with_tools(ATTACH);
    let picture = png(4, 2, b"tool");
    world.write("ws/q.png", &picture);
    world.write("ws/own.png", png(5, 2, b"hook"));
    world.write("agent/hooks.yaml", "pre_llm_request: {command: [sh, -c, 'cp \"$DELTA_HOOK_IO_PATH/input/proposed_payload.json\" seen.json; \
            cat seen.json > \"$DELTA_HOOK_IO_PATH/output/final_payload.json\"']}\n\
        post_tool_execution: {command: [sh, -c, 'cp own.png \"$DELTA_ATTACH\"; \
            echo \"{\\\"attachments\\\":[]}\" > \"$DELTA_HOOK_IO_PATH/output/final_payload.json\"']}\n");
    world.model_says([
        call("call_1", "attach", &json!({"files": "q.png"})),
        text("done"),
    ]);
    world.run("look").exits(0);
    let result = &world.latest().events("ACTION_RESULT")[0];
    assert_eq!(result["attachments"].as_array().unwrap().len(), 1);
    assert_eq!(result["attachments"][0]["name"], "own.png");
    assert_eq!(
        result["observation_content"],
        "attached\n[picture own.png, 5x2, image/png]"
    );
    let own = png(5, 2, b"hook");
    let seen = world.read("ws/seen.json");
    assert!(
        seen.contains(&format!("data:image/png;base64,$blob:{}", sha256(&own))),
        "{seen}"
    );
    let sent = String::from_utf8(world.server.last().body.clone()).unwrap();
    assert!(sent.contains(&base64(&own)) && !sent.contains(&base64(&picture)));
    prints_what_was_sent(&world);
}

#[test]
fn the_sandbox_leaves_exactly_the_directory_for_attachments_writable() {
    let delta = env!("CARGO_BIN_EXE_delta");
    let world = World::on_disk().top(&format!(
        "wrapper: ['{delta}', sandbox, --no-network, --rw, '${{CWD}}', --]"
    ));
    let world = world.tools(
        "- {name: attach, shell: 'cp q.png \"$DELTA_ATTACH\"; echo x > \"$DELTA_ATTACH/../more\"; \
        echo x > .delta/LATEST; mv \"$DELTA_ATTACH\" \"$DELTA_ATTACH.old\"; true'}",
    );
    let picture = png(4, 2, b"");
    world.write("ws/q.png", &picture);
    let id = || world.read("ws/.delta/LATEST");
    let observed = world.observe("attach", &json!({}));
    if observed.contains("no user namespace") {
        eprintln!("skipped: {observed}");
        return;
    }
    assert!(
        observed.contains("[picture q.png, 4x2, image/png]"),
        "{observed}"
    );
    assert_eq!(id().trim_end(), world.latest().id());
    assert!(!world.latest().execution(1).join("more").exists());
    // A directory that is not of an execution, not empty, or a link stays closed.
    for (dir, makes) in [
        ("ws/.delta/attach", "mkdir"),
        ("ws/.delta/r/io/a/b/attach", "ln -s /tmp"),
    ] {
        let path = world.path(dir);
        let parent = path.parent().unwrap();
        let script = format!(
            "mkdir -p {0}; {makes} {1}",
            shell_word(parent),
            shell_word(&path)
        );
        let inside = world.delta([
            "sandbox",
            "--rw",
            ".",
            "--",
            "sh",
            "-c",
            "echo x > \"$DELTA_ATTACH/x\"",
        ]);
        let inside = inside.env("DELTA_ATTACH", &path).cwd(world.path("ws"));
        assert_ne!(inside.after(&script).end().code(), Some(0), "{dir}");
    }
}

#[test]
fn a_run_within_a_tool_does_not_attach_to_the_call_around_it() {
    let world = World::with_tools(
        "- {name: look, shell: 'echo \"[$DELTA_ATTACH]\" | sed s/.*attach/attach/'}",
    );
    let observed = world.observe("look", &json!({}));
    assert_eq!(observed, "attach]\n");
    world.write(
        "agent/hooks.yaml",
        "on_iteration_start: {command: [sh, -c, 'echo \"[$DELTA_ATTACH]\" >> hook.txt']}\n",
    );
    world.model_says([text("done")]);
    world.run("again").env("DELTA_ATTACH", "/tmp").exits(0);
    assert_eq!(world.read("ws/hook.txt"), "[]\n");
}

#[test]
fn a_fork_a_replay_an_export_and_a_report_have_the_bytes() {
    let world = World::with_tools(ATTACH);
    let (given, shot) = (png(3, 2, b"given"), png(4, 2, b"shot"));
    world.write("p.png", &given);
    world.write("ws/q.png", &shot);
    world.model_says([
        call("call_1", "attach", &json!({"files": "q.png"})),
        text("done"),
        text("forked"),
    ]);
    world
        .run("look")
        .args(["-f", "p.png", "--run-id", "parent"])
        .exits(0);
    for tools in [
        &["--tools", "recorded"][..],
        &["--tools", "run", "--from", "ws"],
    ] {
        let replay = world.delta(["replay", "-w", "ws", "parent"]);
        replay.args(tools.iter().copied()).exits(0);
    }
    let report = world.delta(["report", "-w", "ws", "parent"]).exits(0);
    let page = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(page.contains(&base64(&given)) && page.contains(&base64(&shot)));
    let export = |form: &str| {
        let outcome = world
            .delta(["export", "-w", "ws", "--format", form, "parent"])
            .exits(0);
        String::from_utf8_lossy(&outcome.stdout).into_owned()
    };
    assert!(export("chat").contains(&base64(&shot)));
    let trajectory: Value = serde_json::from_str(export("atif").trim()).unwrap();
    let path = trajectory["steps"][1]["message"][1]["source"]["path"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(fs::read(path).unwrap(), given);
    world
        .delta([
            "fork", "-w", "ws", "parent", "--at", "1", "--run-id", "child",
        ])
        .exits(0)
        .prints("forked\n");
    for bytes in [&given, &shot] {
        assert!(world.exists(&format!("ws/.delta/child/io/blobs/{}", sha256(bytes))));
    }
    assert_eq!(count(&world.server.last().body), 2);
    let log = world.delta(["log", "-w", "ws", "parent"]).exits(0);
    assert!(String::from_utf8_lossy(&log.stdout).contains("[picture q.png, 4x2, image/png]"));
}

#[test]
fn a_shorter_conversation_has_lines_in_place_of_its_attachments() {
    let world = World::with_tools(ATTACH)
        .llm("window: 6000")
        .top("compact: {}");
    world.write("ws/q.png", png(4, 2, b""));
    let mut made = 0;
    world.server.answers(move |received| {
        made += 1;
        match made {
            1..=5 => call(
                &format!("call_{made}"),
                "attach",
                &json!({"files": "q.png"}),
            ),
            _ if String::from_utf8_lossy(&received.body).contains("Write a summary") => {
                text("pictures were seen")
            }
            _ => text("done"),
        }
    });
    world.run("look").exits(0);
    let compactions = world.latest().events("COMPACTION");
    assert!(!compactions.is_empty());
    assert!(
        world
            .server
            .requests()
            .iter()
            .all(|it| count(&it.body) <= 3)
    );
}

#[test]
fn a_run_without_attachments_and_messages_opens_neither_their_directories() {
    if !installed(&["strace"]) {
        return;
    }
    let world = World::with_tools("- {name: noop, command: ['true']}");
    world
        .server
        .says([call("call_1", "noop", &json!({})), text("done")]);
    let trace = ["strace", "-qq", "-o", "trace", "-e", "trace=openat"];
    world.run("go").under(&trace).exits(0).prints("done\n");
    let opened = world.lines("trace");
    assert!(opened.iter().any(|line| line.contains("stdout.log")));
    for name in ["/attach\"", "\"interaction"] {
        let of_it: Vec<_> = opened.iter().filter(|line| line.contains(name)).collect();
        assert!(of_it.is_empty(), "{of_it:#?}");
    }
}

#[test]
fn a_kill_at_any_system_call_leaves_no_event_without_its_bytes() {
    if !installed(&["strace"]) {
        return;
    }
    let begin = || {
        let world = World::with_tools(ATTACH);
        world.write("p.png", png(3, 2, b"given"));
        world.write("ws/q.png", png(4, 2, b"shot"));
        world
            .server
            .answers(|received| match received.messages().len() {
                0..=2 => call("call_1", "attach", &json!({"files": "q.png"})),
                _ => text("done"),
            });
        world
    };
    let run = |world: &World| world.run("look").args(["-f", "p.png"]);
    let world = begin();
    let trace = ["strace", "-qq", "-o", "trace", "-e", "trace=all"];
    run(&world).under(&trace).exits(0);
    // All take minutes.
    let all = kills(&world.lines("trace"), given_or("DELTA_KILLS", 8));
    let mut killed = 0;
    for inject in &all {
        let world = begin();
        let args = ["-qq", "-o", "/dev/null", "-e", "trace=all", "-e", inject];
        let strace = [&["strace"], &args[..]].concat();
        killed += usize::from(run(&world).under(&strace).end().code() != Some(0));
        for run in world.runs() {
            let journal = fs::read_to_string(run.path("journal.jsonl")).unwrap_or_default();
            let lines = journal
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            for event in lines {
                for attachment in event["attachments"].as_array().into_iter().flatten() {
                    let digest = attachment["sha256"].as_str().unwrap();
                    let bytes = fs::read(run.path(&format!("io/blobs/{digest}"))).unwrap();
                    assert_eq!(sha256(&bytes), digest, "{inject}");
                }
            }
        }
        run(&world).exits(0).prints("done\n");
        assert!(count(&world.server.last().body) >= 1);
    }
    assert!(killed * 2 > all.len(), "{killed} of {} hit", all.len());
}

/// A server of the Model Context Protocol whose only tool returns `$1`.
const SERVER: &str = r#"#!/bin/sh
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
    id=${line#*'"id":'} id=${id%%[,\}]*}
    case $line in
    *'"server/discover"'*) answer '{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"shot","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) answer "$1" ;;
    esac
done
"#;

#[test]
fn the_tool_of_an_mcp_server_attaches_its_pictures() {
    let world = World::new();
    let picture = png(3, 2, b"mcp");
    let content = json!({"content": [{"type": "image", "mimeType": "image/png", "data": base64(&picture)},
        {"type": "audio", "mimeType": "audio/wav", "data": "Zm9v"}]});
    let server = world.script("server.sh", SERVER);
    let import = [
        "mcp",
        "import",
        "-a",
        "agent",
        "s",
        "--",
        server.to_str().unwrap(),
        &content.to_string(),
    ];
    world.delta(import).exits(0);
    let world = world.top("imports: [./tools/mcp-s.yaml]");
    let observed = world.observe("s_shot", &json!({}));
    assert!(
        observed.contains("attached as 1.png]\n[audio/wav, 3 bytes: "),
        "{observed}"
    );
    assert!(
        observed.ends_with("[picture 1.png, 3x2, image/png]"),
        "{observed}"
    );
    assert_eq!(count(&world.server.last().body), 1);
    // A program may make several calls.
    let twice = format!(
        "- {{name: twice, shell: 'for i in 1 2; do echo \"{{}}\" | {} mcp call -a \"$AGENT_HOME\" s shot; done'}}",
        env!("CARGO_BIN_EXE_delta")
    );
    let world = world.tools(&twice);
    let observed = world.observe("twice", &json!({}));
    assert!(
        observed.ends_with("[picture 1.png, 3x2, image/png]\n[picture 2.png, 3x2, image/png]"),
        "{observed}"
    );
}

#[test]
fn a_call_that_was_running_when_the_engine_died_attaches_nothing() {
    let tool = "- {name: dies, shell: 'cp q.png \"$DELTA_ATTACH\"; kill -9 $DELTA_ENGINE_PID; sleep 1000'}";
    let world = World::with_tools(tool);
    world.write("ws/q.png", png(4, 2, b""));
    world.model_says([call("call_1", "dies", &json!({})), text("done")]);
    world.run("go").end();
    world.run("go").exits(0).prints("done\n");
    let result = &world.latest().events("ACTION_RESULT")[0];
    assert!(
        result["status"] == "ERROR" && result["attachments"].is_null(),
        "{result}"
    );
    assert_eq!(count(&world.server.last().body), 0);
}

#[test]
fn the_same_call_with_another_picture_is_progress() {
    for (rest, code) in [("echo $$", 0), ("echo", 4)] {
        let tool = format!(
            "- {{name: shot, shell: '(cat base.png; {rest}) > \"$DELTA_ATTACH/shot.png\"'}}"
        );
        let world = World::with_tools(&tool).top("same_call: 3");
        world.write("ws/base.png", png(4, 2, b""));
        let mut made = 0;
        world.server.answers(move |_| {
            made += 1;
            match made {
                1..=4 => call(&format!("call_{made}"), "shot", &json!({})),
                _ => text("done"),
            }
        });
        world.run("go").exits(code);
    }
}
