//! The memory that one answer takes, however large it is and whatever it is made of.

use crate::harness::services::{Api, Said, reply, streamed};
use crate::harness::*;
use serde_json::json;

const TOOLS: &str = "- {name: peak, shell: 'grep VmHWM /proc/$PPID/status > ../peak'}
- {name: echo, exec: 'echo ${words}'}";

/// The most memory beyond its own size that an answer may take.
const MOST: usize = 64_000_000;

/// The size up to which a message keeps to [`MOST`], but for what is around it.
const LARGE: usize = (3 << 20) - 1000;

fn long(piece: &str, length: usize) -> String {
    piece.repeat(length / piece.len())
}

fn completion_of(message: &str) -> String {
    format!(r#"{{"choices":[{{"message":{message},"finish_reason":"tool_calls"}}]}}"#)
}

fn call_of(id: &str, name: &str, arguments: &str) -> String {
    format!(r#"{{"id":"{id}","function":{{"name":"{name}","arguments":"{arguments}"}}}}"#)
}

/// An answer with one call, beside a text.
fn calling(text: &str, id: &str, name: &str, arguments: &str) -> String {
    let call = call_of(id, name, arguments);
    completion_of(&format!(r#"{{"content":"{text}","tool_calls":[{call}]}}"#))
}

fn response_of(items: &str) -> String {
    format!(r#"{{"status":"completed","output":[{items}]}}"#)
}

fn message_of(blocks: &str) -> String {
    format!(r#"{{"content":[{blocks}],"stop_reason":"tool_use"}}"#)
}

fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

fn chunk_of(delta: &str) -> String {
    event(&format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#))
}

fn numbered(count: usize, of: impl Fn(usize) -> String) -> String {
    (0..count).map(of).collect()
}

/// The most memory that the engine has had until it runs a call after this answer.
fn peak(api: Api, stream: bool, answer: &str) -> usize {
    let world = World::with_tools(TOOLS)
        .llm(&format!("api: {}\nstream: {stream}", api.name()))
        .llm("max_retries: 1");
    world.server.accepts_anything();
    let first = if stream {
        streamed(answer)
    } else {
        raw(answer)
    };
    let said = |text: &str, calls| Said {
        text: text.to_owned(),
        calls,
        ..Said::default()
    };
    let look = said(
        "I look.",
        vec![("p".to_owned(), "peak".to_owned(), json!({}))],
    );
    let done = said("done", Vec::new());
    world.model_says([
        first,
        Reply::of(move |received| reply(api, received, &look)),
        Reply::of(move |received| reply(api, received, &done)),
    ]);
    world.run("go").exits(0);
    let line = world.read("peak");
    let kib = line.split_whitespace().nth(1).expect("a number");
    kib.parse::<usize>().expect("KiB") * 1024
}

fn assert_all_fit(api: Api, stream: bool, answers: &[(&str, String)]) {
    let small = match api {
        Api::Chat => calling("a", "a", "echo", r#"{\"words\":\"x\"}"#),
        Api::Responses | Api::Messages => "{}".to_owned(),
    };
    let usual = peak(api, false, &small);
    for (what, answer) in answers {
        let more = peak(api, stream, answer).saturating_sub(usual);
        let most = MOST + answer.len();
        assert!(
            more <= most,
            "{api:?}, {what}: {more} bytes, at most {most}"
        );
    }
}

#[test]
fn no_whole_answer_takes_more_than_64_mb_beyond_its_size() {
    let zeros = long("0,", LARGE) + "0";
    let words = format!(r#"{{\"words\":\"{}\"}}"#, long("x", LARGE));
    let dense = format!(r#"{{\"words\":[{zeros}]}}"#);
    let (x, larger) = (long("x", LARGE), long("x", 15_000_000));
    let none = r#"{\"words\":\"x\"}"#;
    assert_all_fit(
        Api::Chat,
        false,
        &[
            ("a long id", calling("a", &x, "echo", none)),
            ("a longer id", calling("a", &larger, "echo", none)),
            (
                "an id of 20 MB",
                calling("a", &long("x", 20_000_000), "echo", none),
            ),
            ("a long name", calling("a", "a", &x, none)),
            ("long arguments", calling("a", "a", "echo", &words)),
            (
                "arguments of many values",
                calling("a", "a", "echo", &dense),
            ),
            ("a long text", calling(&x, "a", "echo", none)),
            ("a longer text", calling(&larger, "a", "echo", none)),
            (
                "many calls",
                completion_of(&format!(
                    r#"{{"tool_calls":[{}]}}"#,
                    long("{},", LARGE) + "{}"
                )),
            ),
            (
                "many members",
                completion_of(&format!("{{{}\"z\":1}}", long("\"k\":0,", LARGE))),
            ),
            (
                "many parts",
                completion_of(&format!(r#"{{"content":[{zeros}]}}"#)),
            ),
            (
                "many choices",
                format!(
                    r#"{{"choices":[{}],"x":"{}"}}"#,
                    long("{},", 7_500_000) + "{}",
                    long("x", 7_500_000)
                ),
            ),
            (
                "an error of many values",
                format!(
                    r#"{{"error":[{zeros},{}"{}"]}}"#,
                    long("0,", 4_000_000),
                    long("x", 8_000_000)
                ),
            ),
            (
                "deep nesting",
                format!("{}{}", long("[", 3_500_000), long("]", 3_500_000)),
            ),
            (
                "half characters",
                calling(&long(r"\ud83e", LARGE), "a", "echo", none),
            ),
        ],
    );
    let call = |id: &str, arguments: &str| {
        response_of(&format!(
            r#"{{"type":"function_call","call_id":"{id}","name":"echo","arguments":"{arguments}"}}"#
        ))
    };
    assert_all_fit(
        Api::Responses,
        false,
        &[
            ("a long id", call(&x, none)),
            ("long arguments", call("a", &words)),
            ("arguments of many values", call("a", &dense)),
            ("many items", response_of(&(long("{},", LARGE) + "{}"))),
            (
                "many parts",
                response_of(&format!(
                    r#"{{"type":"message","content":[{}]}}"#,
                    long("{},", LARGE) + "{}"
                )),
            ),
        ],
    );
    let call = |id: &str, input: &str| {
        message_of(&format!(
            r#"{{"type":"tool_use","id":"{id}","name":"echo","input":{input}}}"#
        ))
    };
    assert_all_fit(
        Api::Messages,
        false,
        &[
            ("a long id", call(&x, r#"{"words":"x"}"#)),
            ("long arguments", call("a", &words.replace('\\', ""))),
            (
                "arguments of many values",
                call("a", &dense.replace('\\', "")),
            ),
            ("many blocks", message_of(&(long("{},", LARGE) + "{}"))),
        ],
    );
}

#[test]
fn no_stream_takes_more_than_64_mb_beyond_its_size() {
    let zeros = long("0,", LARGE) + "0";
    let id = format!(
        r#"{{"tool_calls":[{}]}}"#,
        call_of(&long("x", 20_000_000), "echo", "{}")
    );
    assert_all_fit(
        Api::Chat,
        true,
        &[
            ("an id of 20 MB", chunk_of(&id)),
            ("many values", chunk_of(&format!(r#"{{"x":[{zeros}]}}"#))),
            (
                "a line without an end",
                format!("data: {}", long("x", 20_000_000)),
            ),
            (
                "a comment without an end",
                format!(": {}", long("x", 20_000_000)),
            ),
            (
                "many members",
                numbered(100_000, |n| chunk_of(&format!(r#"{{"k{n}":0}}"#))),
            ),
            (
                "many calls",
                numbered(100_000, |n| {
                    chunk_of(&format!(r#"{{"tool_calls":[{{"index":{n}}}]}}"#))
                }),
            ),
            (
                "many parts",
                long(
                    &chunk_of(&format!(
                        r#"{{"reasoning_details":[{}{{}}]}}"#,
                        "{},".repeat(30)
                    )),
                    8_000_000,
                ),
            ),
            (
                "a long text",
                long(
                    &chunk_of(&format!(r#"{{"content":"{}"}}"#, "x".repeat(1000))),
                    12_000_000,
                ),
            ),
        ],
    );
    assert_all_fit(
        Api::Messages,
        true,
        &[(
            "many blocks",
            event(r#"{"type":"message_start","message":{}}"#)
                + &numbered(100_000, |n| {
                    event(&format!(
                        r#"{{"type":"content_block_start","index":{n},"content_block":{{}}}}"#
                    ))
                }),
        )],
    );
    assert_all_fit(
        Api::Responses,
        true,
        &[
            (
                "many items",
                long(
                    &event(r#"{"type":"response.output_item.done","item":{}}"#),
                    8_000_000,
                ),
            ),
            (
                "a list for a text",
                event(&format!(
                    r#"{{"type":"response.output_text.delta","delta":[{zeros}]}}"#
                )),
            ),
        ],
    );
}
