//! Services that word, frame or end their answers in ways of their own.

use crate::harness::services::*;
use crate::harness::steps::{ECHO, answers, said, world};
use crate::harness::*;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;

/// A run over an API that ends with an answer, of which the service makes something else first.
fn ends_with(world: &World, reason: &str, words: &str) {
    let outcome = world.run("go").end();
    outcome.says(words);
    assert_eq!(
        world.latest().ending().1.as_deref(),
        Some(reason),
        "{words}"
    );
}

#[test]
fn a_request_that_is_too_long_is_recognized_in_the_words_of_each_service() {
    let rows = include_str!("too_long.jsonl").lines();
    let rows: Vec<Value> = rows.map(|row| serde_json::from_str(row).unwrap()).collect();
    let services: std::collections::BTreeSet<&str> = rows
        .iter()
        .map(|row| row["service"].as_str().unwrap())
        .map(|name| name.split([',', ' ']).next().unwrap())
        .collect();
    assert!(services.len() >= 22, "{services:?}");
    for row in &rows {
        let world = World::new();
        let status = row["status"].as_u64().unwrap() as u16;
        // A limit of the answer with which it fits is tried first.
        let times = 1 + usize::from(row["max_tokens"].is_u64());
        world.model_says((0..times).map(|_| completion(&row["body"]).status(status)));
        ends_with(&world, "context_full", "--compact` shortens");
        let notes = world.latest().events("SYSTEM_MESSAGE");
        if row["window"].is_u64() {
            assert_eq!(notes.last().unwrap()["window"], row["window"], "{row}");
        }
    }
}

#[test]
fn reasoning_that_a_service_refuses_on_chat_is_left_out_for_the_rest_of_the_run() {
    for (words, member) in [
        (
            "property 'reasoning_content' is unsupported",
            "reasoning_content",
        ),
        ("Invalid `signature` in `thinking` block", "thinking_blocks"),
        ("Corrupted thought signature.", "reasoning_details"),
        ("Unknown name \"extra_content\"", "extra_content"),
    ] {
        for stream in [false, true] {
            let world = world(Api::Chat, stream);
            world.server.answers(move |received| {
                let request = received.json();
                if received
                    .messages()
                    .iter()
                    .any(|it| it["role"] == "assistant" && it.get(member).is_some())
                {
                    return Reply::error(422, words);
                }
                let n = answers(Api::Chat, &request) + 1;
                let mut answer = answer_of(Api::Chat, &request, &said(n, 4));
                let message = answer["choices"][0]["message"].as_object_mut().unwrap();
                message.insert(member.to_owned(), json!([{"type": "thinking", "data": n}]));
                match request["stream"] == true {
                    true => streamed(&stream_of(&answer)),
                    false => completion(&answer),
                }
            });
            world.run("go").args(["--max-iterations", "2"]).exits(4);
            world.run("go").exits(0).prints("done\n");
            let requests = world.server.requests();
            assert_eq!(requests.len(), 5, "{words}");
            let notes = world.latest().events("SYSTEM_MESSAGE");
            let notes: Vec<_> = notes
                .iter()
                .filter(|it| it["remedy"]["name"] == "without_reasoning")
                .collect();
            assert_eq!(notes.len(), 1, "{words}");
            world
                .delta(["replay", "-w", "ws", "LATEST"])
                .exits(0)
                .prints("identical: 4 requests\n");
        }
    }
}

/// A whole answer as a stream of one chunk.
fn stream_of(answer: &Value) -> String {
    format!("data: {answer}\n\ndata: [DONE]\n\n")
}

#[test]
fn a_refusal_that_names_reasoning_ends_the_run_if_none_was_sent() {
    let world = World::new();
    world.model_says([Reply::error(400, "Unknown parameter: 'reasoning'")]);
    ends_with(&world, "model_refused", "Unknown parameter: 'reasoning'");
}

#[test]
fn the_reason_of_a_refusal_is_shown_wherever_it_is() {
    let raw_json = json!({"error": {"message": "tools[3] is odd"}}).to_string();
    for (body, words) in [
        (
            json!({"error": {"message": "Provider returned error", "metadata": {"raw": raw_json}}}),
            "says 400: Provider returned error: tools[3] is odd",
        ),
        (
            json!({"error": {"details": "no room"}}),
            "says 400: no room",
        ),
        (
            json!({"detail": "no room", "message": "m"}),
            "says 400: no room",
        ),
        (
            json!([{"error": {"code": 400, "message": "no room"}}]),
            "says 400: no room",
        ),
    ] {
        let world = World::new();
        world.model_says([completion(&body).status(400)]);
        ends_with(&world, "model_refused", words);
    }
    let world = World::new();
    let marked = "\u{feff}{\"error\": {\"message\": \"no room\"}}";
    world.model_says([raw(marked).status(400)]);
    ends_with(&world, "model_refused", "says 400: no room");
    let world = World::new().llm("max_retries: 0");
    let page = "<!DOCTYPE html><html><head><title>Web server is down</title></head>";
    world.model_says([raw(page)
        .status(521)
        .header_instead("Content-Type", "text/html")]);
    ends_with(
        &world,
        "model_unavailable",
        "says 521: an HTML page, Web server is down",
    );
}

#[test]
fn statuses_of_proxies_in_front_of_a_service_are_retried() {
    for status in (520..=529).chain([499]) {
        let world = World::new().llm("max_retries: 1");
        world.model_says([
            Reply::error(status, "later").header("retry-after-ms", "1"),
            text("done"),
        ]);
        world.run("go").exits(0).prints("done\n");
    }
}

#[test]
fn a_stream_is_read_whatever_its_type_is_and_an_error_on_a_line_of_its_own_is_one() {
    for api in APIS {
        for kind in ["application/json", "text/html", "text/plain"] {
            for streams in [true, false] {
                let world = world(api, streams);
                world.server.answers(move |received| {
                    let answer = answer_of(api, &received.json(), &said(1, 1));
                    let text = format!(": hello\n\n{}", stream(api, &answer));
                    raw(text).header_instead("Content-Type", kind)
                });
                world.run("go").exits(0).prints("done\n");
            }
        }
        let error = json!({"error": {"type": "api_error", "message": "out of memory"}});
        for body in [
            format!("{error}\n"),
            format!(": hello\n\n  {error} \r\n"),
            format!("data: {{}}\n\n[{error}]\n"),
            format!("error: {error}\n\n"),
            "event: error\ndata: {\"type\":\"error\",\"message\":\"out of memory\"}\n\n".to_owned(),
            "event: error\ndata: out of memory\n\n".to_owned(),
        ] {
            let world = world(api, true).llm("max_retries: 0");
            world.server.answers(move |_| streamed(&body));
            let outcome = world.run("go").end();
            outcome.says("out of memory");
        }
    }
}

#[test]
fn a_body_that_is_no_stream_is_read_as_a_whole_whatever_its_type_is() {
    for api in APIS {
        let world = world(api, true);
        world.server.answers(move |received| {
            let answer = answer_of(api, &received.json(), &said(1, 1));
            streamed(&format!("{answer:#}\n"))
        });
        world.run("go").exits(0).prints("done\n");
    }
    let error = json!({"error": {"message": "out of memory"}});
    for body in [
        format!("{error:#}"),
        format!("{:#}", json!([error])),
        "<html><head><title>out of memory</title></head></html>".to_owned(),
        "out of memory".to_owned(),
    ] {
        let world = World::new().llm("stream: true").llm("max_retries: 0");
        world.server.answers(move |_| streamed(&body));
        ends_with(&world, "model_unavailable", "out of memory");
    }
}

#[test]
fn an_error_in_a_choice_is_one() {
    let choice =
        json!({"index": 0, "finish_reason": "error", "error": {"code": 502, "message": "no room"}});
    for member in ["message", "delta"] {
        let mut choice = choice.clone();
        choice[member] = json!({"role": "assistant", "content": "I loo"});
        let body = json!({"choices": [choice]});
        let streams = member == "delta";
        let world = World::new()
            .llm(&format!("stream: {streams}"))
            .llm("max_retries: 0");
        world.server.answers(move |_| match streams {
            true => streamed(&stream_of(&body)),
            false => completion(&body),
        });
        ends_with(&world, "model_unavailable", "no room");
    }
    let error = json!({"message": "prompt is too long"});
    let choice = json!({"message": {"content": ""}, "finish_reason": "error", "error": error});
    let world = World::new();
    world.model_says([completion(&json!({"choices": [choice]}))]);
    ends_with(&world, "context_full", "--compact` shortens");
}

#[test]
fn a_stream_that_ends_without_a_finish_reason_counts_with_one_warning_in_a_run() {
    let world = World::with_tools(ECHO).llm("stream: true");
    world.server.answers(|received| {
        let n = answers(Api::Chat, &received.json()) + 1;
        let delta = match n {
            4 => json!({"content": "done"}),
            _ => json!({"tool_calls": [{"index": 0, "id": format!("c{n}"), "function": {"name": "echo", "arguments": "{\"words\":\"x\"}"}}]}),
        };
        let chunk = json!({"choices": [{"index": 0, "delta": delta}], "x_groq": {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}});
        streamed(&stream_of(&chunk))
    });
    world.run("go").args(["--max-iterations", "2"]).exits(4);
    world.run("go").exits(0).prints("done\n");
    let run = world.latest();
    let notes = run.events("SYSTEM_MESSAGE");
    let notes = notes.iter().filter(|it| it["no_finish_reason"] == true);
    assert_eq!(notes.count(), 1);
    assert_eq!(run.events("THOUGHT")[3]["finish_reason"], "stop");
    assert_eq!(run.events("THOUGHT")[3]["usage"]["total_tokens"], 7);
}

/// A proxy that answers one request to connect, and its address. None: it is not there.
fn proxy(answer: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    if let Some(answer) = answer {
        std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                connection.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            write!(connection, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n").unwrap();
        });
    }
    address
}

#[test]
#[cfg(feature = "tls")]
fn a_proxy_that_does_not_connect_is_named() {
    for (answer, reason, words) in [
        (
            Some("407 Proxy Authentication Required"),
            "model_refused",
            "answers 407",
        ),
        (Some("403 Forbidden"), "model_refused", "answers 403"),
        (Some("502 Bad Gateway"), "model_unavailable", "502"),
        (None, "model_unavailable", "refused"),
    ] {
        let world = World::unasked().llm("max_retries: 0");
        let address = proxy(answer);
        let set = ["--set", "llm.base_url=https://192.0.2.1/v1"];
        let run = world.run("go").args(set).env("DELTA_API_KEY", "sk-x");
        let ended = run.env("HTTPS_PROXY", format!("http://{address}")).end();
        let named = format!("the proxy http://{address} (HTTPS_PROXY)");
        ended.says(&named).says(words);
        assert_eq!(
            world.latest().ending().1.as_deref(),
            Some(reason),
            "{answer:?}"
        );
    }
}
