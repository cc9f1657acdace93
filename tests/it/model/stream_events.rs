//! Events of a stream that cannot be read: the attempt has failed, and no call is run with a part of its arguments.

use crate::harness::services::*;
use crate::harness::steps::*;
use crate::harness::*;
use serde_json::json;
use std::fs;

/// A stream whose answer is a call of `echo` with these words.
fn calling(api: Api, words: &str) -> String {
    let request = json!({"messages": [{"role": "user", "content": "x"}]});
    let said = Said {
        thinking: "hm".to_owned(),
        text: "I look.".to_owned(),
        calls: vec![("c1".to_owned(), "echo".to_owned(), json!({"words": words}))],
    };
    stream(api, &answer_of(api, &request, &said))
}

/// The stream with another event in place of one in the middle of the arguments.
fn with_bad_event(stream: &str, bad: &str) -> String {
    let lines: Vec<&str> = stream.lines().collect();
    let has_arguments = |at: &usize| {
        let line = lines[*at];
        line.starts_with("data: ") && (line.contains("arguments") || line.contains("partial_json"))
    };
    let events: Vec<usize> = (0..lines.len()).filter(has_arguments).collect();
    let mut lines = lines.clone();
    lines[events[events.len() / 2]] = bad;
    lines.join("\n") + "\n"
}

#[test]
fn arguments_of_which_a_piece_is_lost_are_never_run() {
    for api in APIS {
        let whole = calling(api, "data/cache/old");
        for bad in ["data: {\"type\":", "data: lost", "data: 7"] {
            let again = world(api, true).llm("max_retries: 0");
            let world = world(api, true).llm("max_retries: 1");
            world.server.accepts_anything();
            let done = Said {
                text: "done".to_owned(),
                ..Said::default()
            };
            world.model_says([
                streamed(&with_bad_event(&whole, bad)),
                streamed(&whole),
                Reply::of(move |received| reply(api, received, &done)),
            ]);
            let ended = world.run("go").exits(0).prints("done\n");
            ended.says("an event of the stream cannot be read: ");
            let run = world.latest();
            assert_eq!(run.events("ACTION_REQUEST").len(), 1, "{api:?}: {bad}");
            let printed = fs::read_to_string(run.execution(1).join("stdout.log")).unwrap();
            assert_eq!(printed, "data/cache/old\n", "{api:?}: {bad}");
            // Without another attempt, nothing of it is in the journal.
            again.model_says([streamed(&with_bad_event(&whole, bad))]);
            again.run("go").exits(75);
            assert!(
                again.latest().events("THOUGHT").is_empty(),
                "{api:?}: {bad}"
            );
        }
    }
}

#[test]
fn half_a_character_does_not_lose_a_piece_of_a_stream() {
    let delta =
        |delta: &str| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n");
    let end = |reason: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"{reason}\"}}]}}\n\ndata: [DONE]\n\n"
        )
    };
    let arguments = |piece: &str| {
        delta(&format!(
            r#"{{"tool_calls":[{{"index":0,"id":"c1","function":{{"name":"echo","arguments":"{piece}"}}}}]}}"#
        ))
    };
    let pieces = [
        r#"{\"words\":\"data"#,
        r"/cache \ud83e",
        r"/old \ud83e",
        r"\udd80",
        r#"\"}"#,
    ];
    let call = pieces.map(arguments).concat() + &end("tool_calls");
    let text = [
        delta(r#"{"content":"Never do that \ud83e"}"#),
        delta(r#"{"content":" Do that."}"#),
        end("stop"),
    ];
    let world = world(Api::Chat, true);
    world.model_says([streamed(&call), streamed(&text.concat())]);
    let ended = world.run("go").exits(0);
    ended.prints("Never do that \u{FFFD} Do that.\n");
    let told = world.server.last().observation("c1");
    assert_eq!(told.trim_end(), "data/cache \u{FFFD}/old \u{1F980}");
}
