//! The answers of the scripted model over each API, whole and as streams, with reasoning where it goes back.

use serde_json::{Value, json};

/// The form in which the model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Responses,
    Messages,
}

pub const APIS: [Api; 3] = [Api::Chat, Api::Responses, Api::Messages];

impl Api {
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }
}

/// A signature, or a text that nobody else can read.
const SEALED: &str = "RXJyb3JzIHNob3VsZCBuZXZlciBwYXNzIHNpbGVudGx5LiBVbmxlc3MgZXhwbGljaXRseSBzaWxlbmNlZC4gTm93IGlzIGJldHRlciB0aGFuIG5ldmVyLg==";

/// The n-th answer: a call with these arguments, JSON in a JSON string; or the last one.
pub fn whole(api: Api, n: usize, call: Option<&str>) -> String {
    match (api, call) {
        (Api::Chat, Some(arguments)) => format!(
            r#"{{"model":"m","choices":[{{"message":{{"role":"assistant","content":null,"tool_calls":[{{"id":"call_{n}","type":"function","function":{{"name":"tool","arguments":{arguments}}}}}]}},"finish_reason":"tool_calls"}}],"usage":{{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}}}"#
        ),
        (Api::Chat, None) => {
            r#"{"model":"m","choices":[{"message":{"role":"assistant","content":"done"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#.to_owned()
        }
        (Api::Responses | Api::Messages, _) => answer(api, n, call).to_string(),
    }
}

fn answer(api: Api, n: usize, call: Option<&str>) -> Value {
    let id = format!("call_{n}");
    let arguments = call.map(|json| serde_json::from_str::<String>(json).expect("JSON"));
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    if api == Api::Responses {
        let last = match arguments {
            Some(arguments) => {
                json!({"type": "function_call", "id": "fc_1", "call_id": id, "name": "tool", "arguments": arguments})
            }
            None => {
                json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]})
            }
        };
        let reasoning =
            json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SEALED});
        return json!({"id": "r", "status": "completed", "model": "m", "output": [reasoning, last], "usage": usage});
    }
    let (last, reason) = match arguments {
        Some(arguments) => {
            let input: Value = serde_json::from_str(&arguments).expect("JSON");
            let call = json!({"type": "tool_use", "id": id, "name": "tool", "input": input});
            (call, "tool_use")
        }
        None => (json!({"type": "text", "text": "done"}), "end_turn"),
    };
    let thinking = json!({"type": "thinking", "thinking": "about this step", "signature": SEALED});
    json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [thinking, last], "stop_reason": reason, "usage": usage})
}

/// The same as a stream.
pub fn stream(api: Api, n: usize, call: Option<&str>) -> String {
    let mut events = Vec::new();
    match api {
        Api::Chat => {
            let mut whole: Value = serde_json::from_str(&whole(api, n, call)).expect("JSON");
            let usage = whole["usage"].take();
            let mut delta = whole["choices"][0]["message"].take();
            if call.is_some() {
                delta["tool_calls"][0]["index"] = json!(0);
            }
            let reason = whole["choices"][0]["finish_reason"].take();
            events.push(json!({"model": "m", "choices": [{"index": 0, "delta": delta}]}));
            events.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}));
            events.push(json!({"choices": [], "usage": usage}));
        }
        Api::Responses => {
            let answer = answer(api, n, call);
            for (index, item) in answer["output"]
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
            {
                events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
            }
            events.push(json!({"type": "response.completed", "response": answer}));
        }
        Api::Messages => {
            let mut answer = answer(api, n, call);
            let blocks = answer["content"].take();
            let reason = answer["stop_reason"].take();
            answer["content"] = json!([]);
            events.push(json!({"type": "message_start", "message": answer}));
            for (index, mut block) in blocks
                .as_array()
                .cloned()
                .unwrap_or_default()
                .into_iter()
                .enumerate()
            {
                let input = block["input"].take().to_string();
                let has_input = block["type"] == "tool_use";
                block["input"] = json!({});
                events.push(
                    json!({"type": "content_block_start", "index": index, "content_block": block}),
                );
                if has_input {
                    let delta = json!({"type": "input_json_delta", "partial_json": input});
                    events.push(
                        json!({"type": "content_block_delta", "index": index, "delta": delta}),
                    );
                }
                events.push(json!({"type": "content_block_stop", "index": index}));
            }
            events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}}));
            events.push(json!({"type": "message_stop"}));
        }
    }
    let mut text = String::new();
    for event in &events {
        text += &format!("data: {event}\n\n");
    }
    if api == Api::Chat {
        text += "data: [DONE]\n\n";
    }
    text
}
