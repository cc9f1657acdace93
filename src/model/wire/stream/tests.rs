//! Streams: cut at every byte, with everything in them that servers send beside the answer.

use super::super::tests::wire;
use super::*;
use serde_json::{Value, json};

/// What a stream adds up to, and what was heard of it.
pub(super) fn receive(
    api: Api,
    chunks: &[&[u8]],
    is_clean: bool,
) -> (Result<Value, Broken>, String) {
    let (mut stream, mut heard) = (Stream::new(api), String::new());
    let mut hear = |part: Heard<'_>| match part {
        Heard::Text(text) => heard.push_str(text),
        Heard::Reasoning(text) => heard.push_str(&text.to_uppercase()),
        Heard::Call(name) => heard.push_str(&format!("[{name}]")),
        Heard::Anew => heard.clear(),
    };
    for chunk in chunks {
        stream.push(chunk, &mut hear);
    }
    let response = stream.finish(is_clean, &mut hear);
    let response = response.map(|bytes| serde_json::from_slice(&bytes).unwrap());
    (response, heard)
}

fn events(named: bool, events: &[Value]) -> String {
    let mut text = String::new();
    for (number, event) in events.iter().enumerate() {
        if number % 2 == 0 {
            text += ": a comment\n\nevent: nobody knows it\ndata: {\"type\":\"novelty\"}\n\n";
        }
        if named {
            text += &format!("event: {}\n", event["type"].as_str().unwrap());
        }
        text += &format!("data: {event}\n\n");
    }
    text
}

fn chat() -> (String, Value) {
    let delta = |delta: Value| json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    let call = |call: Value| delta(json!({"tool_calls": [call]}));
    let mut list = vec![
        delta(json!({"role": "assistant", "content": null, "reasoning_content": "hm"})),
        delta(
            json!({"reasoning_content": "m", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "h"}]}),
        ),
        delta(
            json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "m", "signature": "s"}]}),
        ),
        delta(json!({"content": "a"})),
        delta(json!({"content": "é"})),
        call(
            json!({"index": 0, "id": "x", "type": "function", "function": {"name": "f", "arguments": ""}, "extra_content": {"s": 1}}),
        ),
        call(json!({"index": 0, "function": {"arguments": "{\"k\":"}})),
        call(
            json!({"index": 1, "id": "y", "type": "function", "function": {"name": "g", "arguments": "{}"}}),
        ),
        call(json!({"index": 0, "function": {"arguments": "1}"}})),
    ];
    list.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}));
    list.push(json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}));
    let whole = json!({
        "id": "c", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": {
            "role": "assistant", "reasoning_content": "hmm",
            "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "hm", "signature": "s"}],
            "content": "aé",
            "tool_calls": [
                {"id": "x", "type": "function", "extra_content": {"s": 1}, "function": {"name": "f", "arguments": "{\"k\":1}"}},
                {"id": "y", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ]}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    });
    (events(false, &list) + "data: [DONE]\n\n", whole)
}

fn messages() -> (String, Value) {
    let start = |index: u8, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u8, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u8| json!({"type": "content_block_stop", "index": index});
    let list = [
        json!({"type": "message_start", "message": {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": null, "usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 1}}}),
        start(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "m"})),
        delta(0, json!({"type": "signature_delta", "signature": "sig"})),
        stop(0),
        json!({"type": "ping"}),
        start(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "aé"})),
        stop(1),
        start(
            2,
            json!({"type": "tool_use", "id": "x", "name": "f", "input": {}}),
        ),
        delta(2, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(
            2,
            json!({"type": "input_json_delta", "partial_json": "{\"k\": 1e"}),
        ),
        delta(2, json!({"type": "input_json_delta", "partial_json": "3}"})),
        stop(2),
        start(
            3,
            json!({"type": "tool_use", "id": "y", "name": "g", "input": {}}),
        ),
        stop(3),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ];
    let whole = json!({
        "id": "m1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 9},
        "content": [
            {"type": "thinking", "thinking": "hmm", "signature": "sig"},
            {"type": "text", "text": "aé"},
            {"type": "tool_use", "id": "x", "name": "f", "input": {"k": serde_json::from_str::<Value>("1e3").unwrap()}},
            {"type": "tool_use", "id": "y", "name": "g", "input": {}},
        ],
    });
    (events(true, &list), whole)
}

fn responses() -> (String, Value) {
    let output = json!([
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "aé"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "x", "name": "f", "arguments": "{}"},
    ]);
    let whole = json!({"id": "r", "status": "completed", "model": "m", "usage": {"input_tokens": 1}, "output": output});
    let done = |index: usize| json!({"type": "response.output_item.done", "output_index": index, "item": output[index]});
    let mut last = whole.clone();
    // Some servers leave them out here.
    last["output"] = json!([]);
    let list = [
        json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "encrypted_content": "half"}}),
        json!({"type": "response.reasoning_summary_text.delta", "delta": "hmm"}),
        done(0),
        json!({"type": "response.output_text.delta", "delta": "aé"}),
        json!({"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call", "name": "f"}}),
        done(2),
        done(1),
        json!({"type": "response.completed", "response": last}),
    ];
    (events(true, &list), whole)
}

/// A stream, and the response that it adds up to.
type Sample = (String, Value);

type Case = (Api, fn() -> Sample, &'static str);

const ALL: [Case; 3] = [
    (Api::Chat, chat, "HMMaé[f][g]"),
    (Api::Messages, messages, "HMMaé[f][g]"),
    (Api::Responses, responses, "HMMaé[f]"),
];

#[test]
fn a_stream_adds_up_to_the_response_wherever_it_is_cut_into_pieces() {
    for (api, stream, said) in ALL {
        let (text, whole) = stream();
        for text in [
            text.clone(),
            text.replace('\n', "\r\n"),
            text.replace('\n', "\r"),
        ] {
            let bytes = text.as_bytes();
            // Within a line the ends of lines are all the same.
            let is_end =
                |at: usize| bytes[at.saturating_sub(2)..bytes.len().min(at + 2)].contains(&b'\r');
            for cut in (0..=bytes.len()).filter(|at| !text.contains('\r') || is_end(*at)) {
                let (response, heard) = receive(api, &[&bytes[..cut], &bytes[cut..]], true);
                assert_eq!(response.as_ref(), Ok(&whole), "{api:?} cut at {cut}");
                assert_eq!(heard, said);
            }
        }
    }
}

#[test]
fn a_stream_that_ends_early_is_no_answer() {
    for (api, stream, _) in ALL {
        let (text, whole) = stream();
        let bytes = text.as_bytes();
        for end in 0..bytes.len() {
            let (response, _) = receive(api, &[&bytes[..end]], false);
            match response {
                Ok(response) => {
                    assert_eq!(response, whole, "{api:?} to {end}");
                    let rest = text[end..].trim();
                    assert!(api == Api::Chat && rest.is_empty(), "{rest}");
                }
                Err(broken) => assert_eq!(broken, Broken::Early),
            }
        }
    }
    // Servers that send no mark end the connection as it should end.
    let (text, whole) = chat();
    let text = text.replace("data: [DONE]\n\n", "");
    assert_eq!(receive(Api::Chat, &[text.as_bytes()], true).0, Ok(whole));
    assert_eq!(
        receive(Api::Chat, &[text.as_bytes()], false).0,
        Err(Broken::Early)
    );
}

#[test]
fn an_error_in_the_middle_is_the_outcome() {
    let error = json!({"message": "too busy", "type": "overloaded_error", "code": null});
    for (api, stream, _) in ALL {
        let (text, _) = stream();
        let event = match api {
            Api::Chat => json!({"error": error}),
            Api::Messages => json!({"type": "error", "error": error}),
            Api::Responses => json!({"type": "error", "error": error, "sequence_number": 3}),
        };
        let middle = text[..text.len() / 2].rfind("\n\n").unwrap() + 2;
        let text = format!(
            "{}event: error\ndata: {event}\n\n{}",
            &text[..middle],
            &text[middle..]
        );
        let Err(Broken::Error(body)) = receive(api, &[text.as_bytes()], true).0 else {
            panic!("{api:?}: no error");
        };
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"], error, "{api:?}");
    }
}

/// The data of the known events of a sample, and where they are.
fn known_events(text: &str) -> Vec<std::ops::Range<usize>> {
    let starts = text.match_indices("data: {").map(|(at, _)| at + 6);
    let ends = starts.map(|start| start..start + text[start..].find('\n').unwrap());
    ends.filter(|it| !text[it.clone()].contains("novelty"))
        .collect()
}

#[test]
fn an_event_that_cannot_be_read_breaks_the_stream_wherever_it_is() {
    for (api, stream, _) in ALL {
        let (text, _) = stream();
        for event in known_events(&text) {
            let data = &text[event.clone()];
            for bad in [
                &data[..data.len() - 1],
                "no JSON",
                "[]",
                "7",
                "null",
                "\"\"",
            ] {
                let text = [&text[..event.start], bad, &text[event.end..]].concat();
                let (response, _) = receive(api, &[text.as_bytes()], true);
                let is_unreadable = matches!(response, Err(Broken::Unreadable(_)));
                assert!(is_unreadable, "{api:?}: {bad} for {data}: {response:?}");
            }
        }
    }
}

#[test]
fn a_member_of_another_type_breaks_the_stream() {
    let chat = [
        r#"{"choices":{}}"#,
        r#"{"choices":[null]}"#,
        r#"{"choices":[{"index":"0"}]}"#,
        r#"{"choices":[{"delta":[]}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":1}]}"#,
        r#"{"choices":[{"delta":{"role":1}}]}"#,
        r#"{"choices":[{"delta":{"content":1}}]}"#,
        r#"{"choices":[{"delta":{"content":{"text":"a"}}}]}"#,
        r#"{"choices":[{"delta":{"content":[1]}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"text":1}]}}]}"#,
        r#"{"choices":[{"delta":{"refusal":true}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":1}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":{}}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[1]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":-1}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"id":[]}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":"f"}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":1}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":1}}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":["a"]}}]}}]}"#,
        r#"{"choices":[],"usage":7}"#,
    ];
    let messages = [
        r#"{"type":1}"#,
        r#"{"type":"message_start","message":"m"}"#,
        r#"{"type":"content_block_start","index":0.5,"content_block":{}}"#,
        r#"{"type":"content_block_start","index":9,"content_block":[]}"#,
        r#"{"type":"content_block_delta","index":1,"delta":"a"}"#,
        r#"{"type":"content_block_delta","index":9,"delta":{"type":"text_delta","text":"a"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":1}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":1}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":1}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":{}}}"#,
        r#"{"type":"message_delta","delta":7}"#,
        r#"{"type":"message_delta","delta":{},"usage":7}"#,
    ];
    let responses = [
        r#"{"type":1}"#,
        r#"{"type":"response.output_text.delta","delta":1}"#,
        r#"{"type":"response.reasoning_text.delta","delta":{}}"#,
        r#"{"type":"response.output_item.added","item":1}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":"i"}"#,
        r#"{"type":"response.output_item.done","output_index":"0","item":{}}"#,
        r#"{"type":"response.completed","response":[]}"#,
    ];
    let all: [&[&str]; 3] = [&chat, &messages, &responses];
    for ((api, stream, _), bad) in ALL.into_iter().zip(all) {
        let (text, _) = stream();
        let last = known_events(&text).pop().unwrap().start - "data: ".len();
        for bad in bad {
            let text = [&text[..last], "data: ", bad, "\n\n", &text[last..]].concat();
            let (response, _) = receive(api, &[text.as_bytes()], true);
            let is_unreadable = matches!(response, Err(Broken::Unreadable(_)));
            assert!(is_unreadable, "{api:?}: {bad}: {response:?}");
        }
    }
}

/// A stream of chat in these deltas, and its end.
fn deltas(deltas: &[Value], end: &str) -> String {
    let chunk = |delta: &Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let chunks: Vec<Value> = deltas.iter().map(chunk).collect();
    events(false, &chunks) + end
}

#[test]
fn thinking_in_fragments_is_merged_before_it_is_kept() {
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    let block = |thinking: &str, signature: Value| json!([{"type": "thinking", "thinking": thinking, "signature": signature}]);
    let hidden = json!([{"type": "redacted_thinking", "data": "r"}]);
    let detail = |index: u64, text: &str, signature: Value| json!([{"type": "reasoning.text", "index": index, "text": text, "signature": signature}]);
    let encrypted =
        |id: &str| json!([{"type": "reasoning.encrypted", "index": 1, "id": id, "data": id}]);
    let list = |name: &str, parts: &[Value]| {
        let parts: Vec<Value> = parts.iter().map(|part| json!({name: part})).collect();
        let text = deltas(&[&[json!({"content": "a"})], &parts[..]].concat(), end);
        let whole = receive(Api::Chat, &[text.as_bytes()], true).0.unwrap();
        for cut in 0..text.len() {
            let (first, rest) = text.as_bytes().split_at(cut);
            assert_eq!(
                receive(Api::Chat, &[first, rest], true).0.as_ref(),
                Ok(&whole)
            );
        }
        whole["choices"][0]["message"][name].clone()
    };
    let parts = [
        block("a", json!("")),
        block("b", json!(null)),
        block("", json!("S")),
        block("", json!("")),
        hidden.clone(),
        hidden.clone(),
        json!([block("c", json!("T"))[0], block("d", json!("U"))[0]]),
    ];
    let merged = list("thinking_blocks", &parts);
    let joined = [
        block("ab", json!("S")),
        block("", json!("")),
        hidden.clone(),
        hidden,
    ];
    let joined = joined
        .iter()
        .chain(&parts[6..])
        .flat_map(|it| it.as_array().unwrap().clone());
    assert_eq!(merged, Value::Array(joined.collect()));
    let parts = [
        detail(0, "a", json!("S")),
        detail(1, "x", json!(null)),
        detail(0, "b", json!("")),
        encrypted("e"),
        encrypted("f"),
    ];
    let joined = [
        detail(0, "ab", json!("S")),
        parts[1].clone(),
        encrypted("e"),
        encrypted("f"),
    ];
    let joined: Vec<Value> = joined.iter().map(|it| it[0].clone()).collect();
    assert_eq!(list("reasoning_details", &parts), json!(joined));
}

#[test]
fn the_mark_at_the_end_ends_an_answer_that_is_complete() {
    let call = |arguments: &str| json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}]});
    let done = "data: [DONE]\n\n";
    for (delta, reason) in [
        (json!({"content": "a"}), Some("stop")),
        (call("{\"k\":1}"), Some("tool_calls")),
        (call(""), Some("tool_calls")),
        (call("{\"k\":"), None),
        (json!({"content": ""}), None),
        (json!({"reasoning_content": "a"}), None),
    ] {
        let text = deltas(std::slice::from_ref(&delta), done);
        let answer = receive(Api::Chat, &[text.as_bytes()], true).0;
        let choice = answer.map(|it| it["choices"][0].clone());
        match reason {
            Some(reason) => {
                let choice = choice.unwrap();
                assert_eq!(choice["finish_reason"], reason, "{delta}");
                assert_eq!(choice["no_finish_reason"], true, "{delta}");
            }
            None => assert_eq!(choice, Err(Broken::Early), "{delta}"),
        }
        let text = deltas(&[delta], "");
        assert_eq!(
            receive(Api::Chat, &[text.as_bytes()], true).0,
            Err(Broken::Early)
        );
    }
}

#[test]
fn an_error_on_a_line_of_its_own_is_the_outcome() {
    let error = json!({"error": {"message": "out of memory"}}).to_string();
    let expected = |api, text: &str| match receive(api, &[text.as_bytes()], true).0 {
        Err(Broken::Error(found)) => assert_eq!(found, error.as_bytes(), "{text}"),
        other => panic!("{other:?}: {text}"),
    };
    for (api, stream, _) in ALL {
        let (text, _) = stream();
        let at = text.find("data: ").unwrap();
        expected(api, &error);
        expected(api, &format!("{error}\n"));
        expected(api, &format!("{}{error}\n\n{}", &text[..at], &text[at..]));
        let other = format!("{{\"note\":1}}\n{{\"error\":null}}\n{text}");
        assert!(receive(api, &[other.as_bytes()], true).0.is_ok());
    }
}

#[test]
fn usage_is_taken_from_wherever_chunks_have_it() {
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 4});
    for last in [
        json!({"choices": [], "usage": usage}),
        json!({"choices": [{"index": 0, "delta": {}, "usage": usage}]}),
        json!({"choices": [{"index": 0, "delta": {}}], "x_groq": {"id": "r", "usage": usage}}),
        json!({"x_groq": {"id": "r", "usage": usage}}),
    ] {
        let first = json!({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}], "x_groq": {"id": "r"}});
        let text = events(false, &[first, last]) + "data: [DONE]\n\n";
        assert_eq!(
            receive(Api::Chat, &[text.as_bytes()], true).0.unwrap()["usage"],
            usage
        );
    }
}

#[test]
fn what_is_unknown_or_empty_is_passed_over() {
    let common = [
        "data:\n\n",
        "data: \n\n",
        ": a comment\n\n",
        "event: x\n\n",
        "data: {\"type\":\"novelty\",\"delta\":7,\"message\":[],\"index\":\"x\",\"item\":1}\n\n",
        "event: novelty\ndata: {\"delta\":\"\\ud800\",\"\\udc00\":\"\\uffff\"}\n\n",
    ];
    let chat = [
        r#"{"choices":null,"usage":null}"#,
        r#"{"choices":[],"prompt_filter_results":[{}]}"#,
        r#"{"choices":[{"index":1,"delta":{"content":"of another choice"}}]}"#,
        r#"{"choices":[{"index":0,"delta":null,"finish_reason":null,"logprobs":7}]}"#,
        r#"{"choices":[{"delta":{"role":null,"content":null,"refusal":null,"tool_calls":null}}]}"#,
        r#"{"choices":[{"delta":{"content":"","tool_calls":[]}}],"error":null}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":null,"function":null}]}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"","function":{"name":null,"arguments":null}}]}}]}"#,
    ];
    let messages = [
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"novel_delta","text":7}}"#,
        r#"{"type":"ping","index":[]}"#,
        r"[DONE]",
    ];
    let responses = [
        r#"{"type":"response.novel.delta","delta":{}}"#,
        r#"{"type":"response.output_text.annotation.added","item":7}"#,
    ];
    let all: [&[&str]; 3] = [&chat, &messages, &responses];
    for ((api, stream, said), own) in ALL.into_iter().zip(all) {
        let (text, whole) = stream();
        let last = known_events(&text).pop().unwrap().start - "data: ".len();
        let last = text[..last].rfind("\n\n").unwrap() + 2;
        let own = own.iter().map(|data| format!("data: {data}\n\n"));
        for more in common.map(str::to_owned).into_iter().chain(own) {
            let text = [&text[..last], &more, &text[last..]].concat();
            let (response, heard) = receive(api, &[text.as_bytes()], true);
            let response = response.unwrap();
            for key in ["choices", "content", "output", "usage"] {
                assert_eq!(response.get(key), whole.get(key), "{api:?}: {more}");
            }
            assert_eq!(heard, said, "{api:?}: {more}");
        }
        let text = format!("{text}data: [DONE]\n\ndata: after the end\n\n");
        assert_eq!(receive(api, &[text.as_bytes()], true).0, Ok(whole));
    }
}

/// A text and the arguments of a call, both in pieces: JSON strings without their quotes.
fn in_pieces(api: Api, text: &[&str], arguments: &[&str]) -> String {
    let mut out = String::new();
    let mut event = |data: String| out += &format!("data: {data}\n\n");
    match api {
        Api::Chat => {
            for piece in text {
                event(format!(
                    r#"{{"choices":[{{"delta":{{"content":"{piece}"}}}}]}}"#
                ));
            }
            for piece in arguments {
                event(format!(
                    r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"id":"x","function":{{"name":"f","arguments":"{piece}"}}}}]}}}}]}}"#
                ));
            }
            event(r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#.to_owned());
            event("[DONE]".to_owned());
        }
        Api::Messages => {
            event(r#"{"type":"message_start","message":{}}"#.to_owned());
            event(r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.to_owned());
            for piece in text {
                event(format!(
                    r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{piece}"}}}}"#
                ));
            }
            event(r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"x","name":"f","input":{}}}"#.to_owned());
            for piece in arguments {
                event(format!(
                    r#"{{"type":"content_block_delta","index":1,"delta":{{"type":"input_json_delta","partial_json":"{piece}"}}}}"#
                ));
            }
            event(r#"{"type":"message_stop"}"#.to_owned());
        }
        Api::Responses => {
            for piece in text {
                event(format!(
                    r#"{{"type":"response.output_text.delta","delta":"{piece}"}}"#
                ));
            }
            let (text, arguments) = (text.concat(), arguments.concat());
            event(format!(
                r#"{{"type":"response.completed","response":{{"output":[{{"type":"message","content":[{{"type":"output_text","text":"{text}"}}]}},{{"type":"function_call","call_id":"x","name":"f","arguments":"{arguments}"}}]}}}}"#
            ));
        }
    }
    out
}

#[test]
fn halves_of_characters_in_successive_deltas_are_joined_and_lone_ones_replaced() {
    for (api, _, _) in ALL {
        for (pieces, whole) in [
            (vec![r"a \ud83e", r"\uDD80 b"], "a 🦀 b"),
            (vec![r"a \ud83e", " b"], "a \u{FFFD} b"),
            (vec!["a ", r"\udd80 b"], "a \u{FFFD} b"),
            (vec!["a", r"\ud83e"], "a\u{FFFD}"),
            (vec![r"\ud83e\udd80\ud83e", "", r"\udd80"], "🦀🦀"),
            (vec!["\u{FFFF}", "d83e"], "\u{FFFF}d83e"),
        ] {
            let mut arguments = vec![r#"{\"k\":\""#];
            arguments.extend(&pieces);
            arguments.push(r#"\"}"#);
            let stream = in_pieces(api, &pieces, &arguments);
            for cut in [0, stream.len() / 2, stream.len() - 3] {
                let bytes = stream.as_bytes();
                let (response, heard) = receive(api, &[&bytes[..cut], &bytes[cut..]], true);
                let body = response.unwrap_or_else(|e| panic!("{api:?}: {e:?}"));
                let answer = wire(api).parse(body.to_string().as_bytes());
                let answer = answer.unwrap();
                assert_eq!(answer.text, whole, "{api:?}: {pieces:?}");
                let arguments: Value = serde_json::from_str(&answer.calls[0].arguments).unwrap();
                assert_eq!(arguments, json!({"k": whole}), "{api:?}: {pieces:?}");
                let heard = heard.trim_end_matches("[f]");
                assert_eq!(heard, whole, "{api:?}: {pieces:?}");
            }
        }
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_replaced() {
    for (api, _, _) in ALL {
        let stream = in_pieces(api, &["a ~ b"], &[r#"{\"k\":\"~\"}"#]);
        let bytes = stream.replace('~', "\u{1}").into_bytes();
        let bytes = bytes
            .into_iter()
            .map(|byte| if byte == 1 { 0xFF } else { byte });
        let (response, heard) = receive(api, &[&bytes.collect::<Vec<u8>>()], true);
        let body = response.unwrap().to_string();
        let answer = wire(api).parse(body.as_bytes()).unwrap();
        assert_eq!(answer.text, "a \u{FFFD} b", "{api:?}");
        assert_eq!(answer.calls[0].arguments, "{\"k\":\"\u{FFFD}\"}");
        assert!(heard.starts_with("a \u{FFFD} b"), "{heard}");
    }
}
