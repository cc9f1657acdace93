//! Streams: cut at every byte, with everything in them that servers send beside the answer.

use super::*;
use serde_json::{Value, json};

/// What a stream adds up to, and what was heard of it.
fn receive(api: Api, chunks: &[&[u8]], is_clean: bool) -> (Result<Value, Broken>, String) {
    let (mut stream, mut heard) = (Stream::new(api), String::new());
    for chunk in chunks {
        stream.push(chunk, &mut |part| match part {
            Heard::Text(text) => heard.push_str(text),
            Heard::Reasoning(text) => heard.push_str(&text.to_uppercase()),
            Heard::Call(name) => heard.push_str(&format!("[{name}]")),
            Heard::Anew => heard.clear(),
        });
    }
    let response = stream.finish(is_clean);
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
            {"type": "tool_use", "id": "x", "name": "f", "input": {"k": 1e3}},
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
            for cut in 0..=bytes.len() {
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
