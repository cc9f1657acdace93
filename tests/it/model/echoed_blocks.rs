//! What must go back to a service as it came, and what must not.

use crate::harness::services::*;
use crate::harness::steps::*;
use crate::harness::*;
use serde_json::{Value, json};

/// An answer with members that are of one server alone.
fn peculiar(has_call: bool) -> Value {
    let mut message = json!({
        "role": "assistant", "content": "aside", "annotations": [], "audio": null,
        "extra_content": {"google": {"thought_signature": "of the text"}}, "provider_state": "p1 \u{e9}",
        "reasoning_content": "hm",
    });
    if has_call {
        message["tool_calls"] = json!([{
            "id": "call_1", "type": "function", "function": {"name": "echo", "arguments": "{\"words\":\"x\"}"},
            "extra_content": {"google": {"thought_signature": "of the call"}}, "seal": [1.0, "s"],
        }]);
    }
    message
}

/// The same in chunks: texts in pieces, the rest at once.
fn in_chunks(message: &Value) -> Reply {
    let chunk = |delta: Value| {
        let chunk = json!({"model": "scripted-1", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
        format!("data: {chunk}\n\n")
    };
    let mut text = chunk(json!({"role": "assistant", "provider_state": "p1"}));
    text +=
        &chunk(json!({"role": "assistant", "provider_state": " \u{e9}", "reasoning_content": "h"}));
    text += &chunk(
        json!({"reasoning_content": "m", "content": "asi", "extra_content": message["extra_content"]}),
    );
    text += &chunk(json!({"content": "de"}));
    if let Some(call) = message["tool_calls"].get(0) {
        let mut first = call.clone();
        first["index"] = json!(0);
        text += &chunk(json!({"tool_calls": [first]}));
    }
    text += "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    streamed(&text)
}

#[test]
fn members_that_only_the_server_knows_go_back_to_its_model() {
    for stream in [false, true] {
        let world = world(Api::Chat, stream);
        world.server.answers(move |received| {
            let has_call = answers(Api::Chat, &received.json()) == 0;
            let message = peculiar(has_call);
            match stream {
                true => in_chunks(&message),
                false => message_reply(&message),
            }
        });
        world.run("go").exits(0).prints("aside\n");
        let sent = world.server.last().messages();
        let sent = sent.iter().find(|it| it["role"] == "assistant").unwrap();
        for key in ["extra_content", "provider_state", "reasoning_content"] {
            assert_eq!(sent[key], peculiar(true)[key], "{key}: {sent}");
        }
        for key in ["annotations", "audio"] {
            assert!(sent.get(key).is_none(), "{key} says nothing: {sent}");
        }
        assert_eq!(sent["tool_calls"], peculiar(true)["tool_calls"]);
        world
            .delta(["replay", "-w", "ws", "LATEST"])
            .exits(0)
            .prints("identical: 2 requests\n");
        // Another model gets what belongs to the calls alone.
        let other = world
            .go_on()
            .args(["-m", "more", "--set", "llm.model=other"]);
        other.exits(0);
        let sent = world.server.last().messages().swap_remove(2);
        assert_eq!(sent["tool_calls"], peculiar(true)["tool_calls"]);
        for key in ["extra_content", "provider_state", "reasoning_content"] {
            assert!(sent.get(key).is_none(), "{key}: {sent}");
        }
    }
}

fn message_reply(message: &Value) -> Reply {
    crate::harness::message(message)
}

#[test]
fn an_answer_that_was_edited_goes_back_without_what_belonged_to_it() {
    let world = world(Api::Chat, false);
    let mut heard = 0;
    world.server.answers(move |_| {
        heard += 1;
        message_reply(&peculiar(heard == 1))
    });
    world.run("go").exits(0);
    let journal = world.latest().path("journal.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let edited = text.replacen("\"content\":\"aside\"", "\"content\":\"a side\"", 1);
    assert_ne!(text, edited);
    std::fs::write(&journal, edited).unwrap();
    world.go_on().args(["-m", "more"]).exits(0);
    let sent = world.server.last().messages();
    let (edited, untouched) = (&sent[2], &sent[4]);
    assert_eq!(edited["content"], "a side");
    assert_eq!(untouched["content"], "aside");
    for key in ["extra_content", "provider_state", "reasoning_content"] {
        assert!(edited.get(key).is_none(), "{key}: {edited}");
        assert!(untouched.get(key).is_some(), "{key}: {untouched}");
    }
}

/// The blocks of an answer and what the journal says of it must agree.
#[test]
fn an_answer_whose_blocks_were_edited_is_made_anew_from_what_the_journal_says() {
    for api in [Api::Messages, Api::Responses] {
        let world = world(api, false);
        serve(&world, 3);
        world.run("go").exits(0);
        let path = world.latest().path("journal.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        let is_call = |item: &Value| item.get("name").is_some();
        let lines = text.lines().map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            if line["type"] == "THOUGHT" && line["iteration"] == 1 {
                let items = line["wire"]["items"].as_array_mut().unwrap();
                let at = items.iter().position(is_call).unwrap();
                items.remove(at);
            }
            format!("{line}\n")
        });
        std::fs::write(&path, lines.collect::<String>()).unwrap();
        world.go_on().args(["-m", "more"]).exits(0);
        let last = world.server.last().json().to_string();
        assert!(
            !last.contains("about step 1") && last.contains("call_1_0"),
            "{last}"
        );
    }
}

#[test]
fn reasoning_that_nobody_could_read_again_is_left_out() {
    let world = world(Api::Responses, false);
    world.server.answers(|received| {
        let request = received.json();
        let number = answers(Api::Responses, &request) + 1;
        let mut answer = answer_of(Api::Responses, &request, &said(number, 3));
        if number == 1 {
            answer["output"][0]["encrypted_content"] = Value::Null;
        }
        completion(&answer)
    });
    world.run("go").exits(0).prints("done\n");
    let last = world.server.last().json();
    let items = last["input"].as_array().unwrap().iter();
    let reasoning: Vec<&Value> = items.filter(|item| item["type"] == "reasoning").collect();
    assert_eq!(reasoning.len(), 1, "{reasoning:?}");
    assert_eq!(reasoning[0]["summary"][0]["text"], "about step 2");
}

const CHOICE: &str = "- name: look\n  exec: cat\n  input: json\n  input_schema: {type: object, $defs: {t: {type: string}}, \
    properties: {self: {$ref: '#'}}, anyOf: [{required: [id], properties: {id: {$ref: '#/$defs/t'}}}, {required: [name]}]}";

#[test]
fn a_choice_of_schemas_is_offered_in_an_object_and_its_arguments_arrive_as_they_are() {
    for stream in [false, true] {
        let world = World::with_tools(CHOICE).llm(&format!("api: messages\nstream: {stream}"));
        world.server.answers(move |received| {
            let request = received.json();
            let api = api_of(&received.line);
            let is_first = answers(api, &request) == 0;
            // One that is as it should be, and one of a model that has not understood.
            let calls = vec![
                (
                    "call_1".to_owned(),
                    "look".to_owned(),
                    json!({"arguments": {"id": "a b"}}),
                ),
                ("call_2".to_owned(), "look".to_owned(), json!({"name": "n"})),
                (
                    "call_3".to_owned(),
                    "look".to_owned(),
                    json!({"arguments": [1]}),
                ),
            ];
            let (first, last) = (
                Said {
                    calls,
                    ..said(1, 2)
                },
                said(2, 2),
            );
            reply(api, received, if is_first { &first } else { &last })
        });
        world.run("go").exits(0).prints("done\n");
        let requests = world.server.requests();
        let schema = &requests[0].json()["tools"][0]["input_schema"];
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["required"], json!(["arguments"]));
        let inner = &schema["properties"]["arguments"];
        assert_eq!(inner["anyOf"][1], json!({"required": ["name"]}));
        // References find what they name.
        let to = inner["anyOf"][0]["properties"]["id"]["$ref"]
            .as_str()
            .unwrap();
        let found = schema.pointer(to.strip_prefix('#').unwrap());
        assert_eq!(found, Some(&json!({"type": "string"})), "{to}");
        assert_eq!(
            inner["properties"]["self"]["$ref"],
            "#/properties/arguments"
        );
        let run = world.latest();
        let thought = run.events("THOUGHT").swap_remove(0);
        let arguments = |n: usize| thought["tool_calls"][n]["function"]["arguments"].clone();
        assert_eq!(arguments(0), "{\"id\":\"a b\"}");
        assert_eq!(
            run.events("ACTION_REQUEST")[0]["tool_args"],
            json!({"id": "a b"})
        );
        assert_eq!(run.result(1)["observation_content"], "{\"id\":\"a b\"}");
        assert_eq!(run.result(2)["observation_content"], "{\"name\":\"n\"}");
        assert!(
            run.result(3)["observation_content"]
                .to_string()
                .contains("[1]")
        );
        // What the model said goes back in the form in which it was offered, also after a resume.
        world.go_on().args(["-m", "more"]).exits(0);
        for request in [&requests[1], &world.server.last()] {
            let blocks = request.json()["messages"][1]["content"].clone();
            let inputs = blocks.as_array().unwrap().iter();
            let inputs: Vec<&Value> = inputs.filter_map(|block| block.get("input")).collect();
            assert_eq!(inputs[0], &json!({"arguments": {"id": "a b"}}));
        }
        world
            .delta(["replay", "-w", "ws", "LATEST"])
            .exits(0)
            .prints("identical: 3 requests\n");
        // Over another API the schema is offered, and the arguments are, as they stand.
        let other = world
            .go_on()
            .args(["-m", "x", "--set", "llm.api=responses"]);
        other.args(["--set", "llm.stream=false"]).end();
        let last = world.server.last().json();
        assert_eq!(last["tools"][0]["parameters"]["anyOf"], inner_choice());
        let calls = last["input"].as_array().unwrap().iter();
        let call = calls
            .clone()
            .find(|it| it["type"] == "function_call")
            .unwrap();
        assert_eq!(call["arguments"], "{\"id\":\"a b\"}");
    }
}

fn inner_choice() -> Value {
    json!([{"required": ["id"], "properties": {"id": {"$ref": "#/$defs/t"}}}, {"required": ["name"]}])
}
