//! Whatever a journal holds becomes a request that a strict service takes, and the same one each time.

use super::records::MOST_RECALLED;
use super::*;
use crate::record::messages::{self as record, Form};
use crate::record::state::{self, Reading};
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::HashSet;

pub(super) fn wire(api: Api) -> Wire {
    Wire {
        rules: Rules {
            api,
            ..Rules::default()
        },
        cache: CacheTime::default(),
        wrapped: Vec::new(),
        paused: None,
        memo: None,
        sent_reasoning: false,
        may_stop_streaming: false,
    }
}

/// A request as the engine builds it, from a journal.
fn neutral(journal: &str, system: &str, after: Option<&str>) -> Neutral {
    let mut bytes = br#"{"model":"m","tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}}],"messages":["#.to_vec();
    let messages = bytes.len();
    record::message(&mut bytes, "system", json!(system).to_string().as_bytes());
    let run = state::read(journal.as_bytes(), Reading::default()).unwrap();
    let mut all = Vec::new();
    record::write(&mut all, &run, &Form::neutral());
    record::splice(&mut bytes, &all);
    let stable = bytes.len();
    if let Some(after) = after {
        record::message(&mut bytes, "user", json!(after).to_string().as_bytes());
    }
    bytes.extend_from_slice(b"]}");
    Neutral {
        bytes,
        messages,
        stable,
    }
}

const TEXTS: [&str; 6] = [
    r#""""#,
    r#"" \n""#,
    r#""plain""#,
    r#""\ud83d\ude00 \ud800 lone""#,
    r#""\u00a0""#,
    r#""é \"quoted\" \\ud800""#,
];

/// One step of a conversation: what a person says, or an answer with its results.
fn step(random: &mut Rng, api: Api, number: usize, out: &mut String) {
    let text = |random: &mut Rng| TEXTS[random.usize(0..TEXTS.len())];
    if random.u8(0..4) == 0 {
        let said = text(random);
        *out += &format!("{{\"type\":\"USER_MESSAGE\",\"content\":{said}}}\n");
        return;
    }
    let content = text(random);
    let ids = ["call_a", "functions.f:0", "", &"x".repeat(80)];
    let ids: Vec<String> = (0..random.usize(0..4))
        .map(|at| format!("{}{number}_{at}", ids[random.usize(0..ids.len())]))
        .collect();
    let calls: Vec<Value> = ids
        .iter()
        .map(|id| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"a\":[1,\"b\"]}"}}))
        .collect();
    let calls = if calls.is_empty() {
        String::new()
    } else {
        json!(calls).to_string()
    };
    let content = match content {
        r#""""# => "null",
        content => content,
    };
    let items = items(random, api, content, &ids);
    let view = match random.u8(0..4) {
        0 => "edited since".to_owned(),
        _ => view(content.as_bytes(), calls.as_bytes()),
    };
    let from = ["chat", "responses", "messages"][random.usize(0..3)];
    let from = if random.bool() { from } else { api.name() };
    let model = if random.u8(0..4) == 0 { "other" } else { "m" };
    let wire =
        json!({"api": from, "model": model, "items": items, "prefix": "moved", "view": view});
    let shown = if content == "null" {
        "\"\",\"content_null\":true"
    } else {
        content
    };
    let calls = if calls.is_empty() {
        String::new()
    } else {
        format!(",\"tool_calls\":{calls}")
    };
    *out += &format!("{{\"type\":\"THOUGHT\",\"content\":{shown}{calls},\"wire\":{wire}}}\n");
    for id in &ids {
        if random.u8(0..8) == 0 {
            continue;
        }
        let (id, said) = (json!(id), text(random));
        *out += &format!(
            "{{\"type\":\"ACTION_RESULT\",\"action_id\":{id},\"status\":\"FAILED\",\"observation_content\":{said}}}\n"
        );
    }
}

fn items(random: &mut Rng, api: Api, content: &str, ids: &[String]) -> Vec<Value> {
    let text: String = String::from_utf8(
        json::without_lone_surrogates(content.as_bytes()).unwrap_or(content.into()),
    )
    .map(|text| {
        serde_json::from_str::<Option<String>>(&text)
            .unwrap()
            .unwrap_or_default()
    })
    .unwrap();
    let mut items = Vec::new();
    match api {
        Api::Messages | Api::Chat => {
            let signature = if random.bool() { "s" } else { "" };
            items.push(json!({"type": "thinking", "thinking": "t", "signature": signature}));
            items.push(json!({"type": "text", "text": text}));
            items.push(json!({"type": "redacted_thinking", "data": "d"}));
            items.extend(ids.iter().map(
                |id| json!({"type": "tool_use", "id": id, "name": "f", "input": {"a": [1, "b"]}}),
            ));
        }
        Api::Responses => {
            items.push(json!({"type": "reasoning", "id": "rs_0", "summary": []}));
            items.push(
                json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"}),
            );
            items.push(json!({"type": "message", "id": "m".repeat(70), "role": "assistant", "content": [{"type": "output_text", "text": text}]}));
            items.extend(ids.iter().map(
                |id| json!({"type": "function_call", "id": "fc_1", "call_id": id, "name": "f", "arguments": "{\"a\":[1,\"b\"]}"}),
            ));
            items.push(
                json!({"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "e"}),
            );
        }
    }
    items
}

fn is_id(id: &Value) -> bool {
    ids::is_call_id(id.as_str().unwrap_or_default())
}

fn check_messages(request: &Value) {
    assert!(request["max_tokens"].is_u64());
    let marks = request.to_string().matches("cache_control").count();
    assert!((1..=4).contains(&marks), "{marks} breakpoints");
    let messages = request["messages"].as_array().unwrap();
    assert_eq!(messages[0]["role"], "user");
    assert_eq!(messages.last().unwrap()["role"], "user");
    let mut open: Vec<&Value> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        assert!(
            at == 0 || messages[at - 1]["role"] != message["role"],
            "two in a row"
        );
        let blocks = message["content"].as_array().unwrap();
        assert!(!blocks.is_empty());
        let (mut results, mut is_behind_text) = (Vec::new(), false);
        for block in blocks {
            match block["type"].as_str().unwrap() {
                "text" => {
                    assert!(!block["text"].as_str().unwrap().trim().is_empty(), "blank");
                    is_behind_text = true;
                }
                "tool_result" => {
                    assert!(!is_behind_text, "a result behind a text");
                    assert!(!block["content"].as_str().unwrap().trim().is_empty());
                    results.push(&block["tool_use_id"]);
                }
                "tool_use" => {
                    assert!(is_id(&block["id"]) && block["input"].is_object(), "{block}");
                }
                other => panic!("{other} where its prefix has moved"),
            }
        }
        if message["role"] == "user" {
            assert_eq!(results, open, "results are not those of the calls");
        }
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        open = calls.map(|block| &block["id"]).collect();
    }
}

fn check_responses(request: &Value) {
    assert_eq!(request["store"], false);
    assert_eq!(request["include"][0], "reasoning.encrypted_content");
    assert_eq!(request["tools"][0]["strict"], false);
    let items = request["input"].as_array().unwrap();
    assert!(!items.is_empty());
    let (mut calls, mut results) = (HashSet::new(), HashSet::new());
    for item in items {
        assert!(item["id"].as_str().is_none_or(|id| id.len() <= 64));
        match item["type"].as_str().unwrap() {
            "message" => {
                let text = item["content"][0]["text"].as_str().unwrap();
                assert!(!text.trim().is_empty());
            }
            "function_call" => {
                assert!(is_id(&item["call_id"]) && item["arguments"].is_string());
                assert!(calls.insert(item["call_id"].to_string()));
            }
            "function_call_output" => {
                let id = item["call_id"].to_string();
                assert!(calls.contains(&id), "a result before its call");
                assert!(results.insert(id));
            }
            other => panic!("{other} where its prefix has moved"),
        }
    }
    assert_eq!(calls, results);
}

fn without_marks(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.remove("cache_control");
            for inner in map.values_mut() {
                *inner = without_marks(inner.take());
            }
        }
        Value::Array(list) => {
            for inner in list {
                *inner = without_marks(inner.take());
            }
        }
        _ => {}
    }
    value
}

#[test]
fn whatever_a_journal_holds_is_taken_and_is_the_same_each_time() {
    for (seed, api) in (0..80).flat_map(|seed| [(seed, Api::Messages), (seed, Api::Responses)]) {
        let mut random = Rng::with_seed(seed);
        let mut kept = wire(api);
        let mut journal = String::new();
        let mut before: Option<Value> = None;
        for number in 0..12 {
            step(&mut random, api, number, &mut journal);
            let after = (random.u8(0..4) == 0).then_some("now");
            let request = neutral(&journal, "sys", after);
            let sent = kept.render(&request).unwrap();
            let anew = wire(api).render(&request).unwrap();
            let text = String::from_utf8(sent.bytes.clone()).unwrap();
            assert_eq!(text, String::from_utf8(anew.bytes).unwrap(), "seed {seed}");
            assert_eq!(sent.prefix, anew.prefix);
            let value: Value = serde_json::from_str(&text).unwrap();
            match api {
                Api::Messages => check_messages(&value),
                Api::Responses | Api::Chat => check_responses(&value),
            }
            let plain = without_marks(value);
            let key = if api == Api::Messages {
                "messages"
            } else {
                "input"
            };
            if let Some(before) = &before {
                let (old, new) = (
                    before[key].as_array().unwrap(),
                    plain[key].as_array().unwrap(),
                );
                let shared = old.len().saturating_sub(2);
                assert_eq!(
                    old[..shared],
                    new[..shared],
                    "seed {seed}: the beginning has changed"
                );
            }
            before = Some(plain);
        }
    }
}

/// A journal whose answers are recorded as the engine records them, with what was made behind what.
#[test]
fn thinking_is_sent_back_as_long_as_what_stands_before_it_does() {
    for (api, thinking, first, second) in [
        (
            Api::Messages,
            "thinking",
            json!({"content": [{"type": "thinking", "thinking": "1", "signature": "s"}, {"type": "text", "text": "a"}], "stop_reason": "end_turn"}),
            json!({"content": [{"type": "thinking", "thinking": "2", "signature": "s"}, {"type": "text", "text": "b"}], "stop_reason": "end_turn"}),
        ),
        (
            Api::Responses,
            "reasoning",
            json!({"status": "completed", "output": [{"type": "reasoning", "summary": [], "encrypted_content": "1"}, {"type": "message", "content": [{"type": "output_text", "text": "a"}]}]}),
            json!({"status": "completed", "output": [{"type": "reasoning", "summary": [], "encrypted_content": "2"}, {"type": "message", "content": [{"type": "output_text", "text": "b"}]}]}),
        ),
    ] {
        let mut wire = wire(api);
        let mut journal = String::from("{\"type\":\"USER_MESSAGE\",\"content\":\"go\"}\n");
        let mut answer = |journal: &mut String, system: &str, body: &Value| {
            let sent = wire.render(&neutral(journal, system, None)).unwrap();
            let answer = wire.parse(body.to_string().as_bytes()).unwrap();
            let recorded = wire.record(&answer, b"", &sent.prefix);
            let (content, recorded) = (
                String::from_utf8(answer.content_json).unwrap(),
                String::from_utf8(recorded.unwrap()).unwrap(),
            );
            *journal +=
                &format!("{{\"type\":\"THOUGHT\",\"content\":{content},\"wire\":{recorded}}}\n");
            *journal += "{\"type\":\"USER_MESSAGE\",\"content\":\"more\"}\n";
            let next = wire.render(&neutral(journal, system, None)).unwrap();
            String::from_utf8(next.bytes).unwrap()
        };
        let thoughts = |request: &str| request.matches(&format!("\"type\":\"{thinking}\"")).count();
        let request = answer(&mut journal, "one", &first);
        assert_eq!(thoughts(&request), 1, "{request}");
        // The system has changed: the first is bound to the old one, the second is made behind the new one.
        let request = answer(&mut journal, "two", &second);
        assert_eq!(thoughts(&request), 1, "{request}");
        assert!(request.contains('2'));
        let other_model = neutral(&journal, "two", None);
        let text = String::from_utf8(other_model.bytes).unwrap();
        let other = Neutral::changed(api, text.replacen("\"m\"", "\"n\"", 1).into_bytes()).unwrap();
        let request = String::from_utf8(wire.render(&other).unwrap().bytes).unwrap();
        assert_eq!(thoughts(&request), 0, "{request}");
        let edited = journal.replacen("\"content\":\"b\"", "\"content\":\"c\"", 1);
        let request = wire.render(&neutral(&edited, "two", None)).unwrap().bytes;
        let request = String::from_utf8(request).unwrap();
        assert_eq!(thoughts(&request), 0, "{request}");
        assert!(request.contains("\"c\"") && !request.contains("\"b\""));
        assert!(!wire.apply(Remedy::WithoutReasoning), "there was none");
        let request = |wire: &mut Wire, journal: &str| {
            let sent = wire.render(&neutral(journal, "two", None)).unwrap();
            (String::from_utf8(sent.bytes).unwrap(), sent.prefix)
        };
        assert_eq!(thoughts(&request(&mut wire, &journal).0), 1);
        assert!(wire.apply(Remedy::WithoutReasoning) && !wire.apply(Remedy::WithoutReasoning));
        let (text, prefix) = request(&mut wire, &journal);
        assert_eq!(thoughts(&text), 0);
        // What is made from then on does not go back either.
        let third = wire.parse(first.to_string().as_bytes()).unwrap();
        let recorded = String::from_utf8(wire.record(&third, b"", &prefix).unwrap()).unwrap();
        journal += &format!("{{\"type\":\"THOUGHT\",\"content\":\"a\",\"wire\":{recorded}}}\n");
        assert_eq!(thoughts(&request(&mut wire, &journal).0), 0);
        // Another start knows it from the journal.
        let mut later = self::wire(api);
        let remedy = String::from_utf8(wire.record_remedy(Remedy::WithoutReasoning)).unwrap();
        request(&mut later, &journal);
        later.recall(&[&remedy], &[]);
        assert_eq!(
            request(&mut later, &journal),
            request(&mut wire, &journal),
            "{api:?}"
        );
        // It is of this model alone.
        let mut unaware = self::wire(api);
        unaware.recall(&[&remedy.replace("\"m\"", "\"n\"")], &[]);
        assert!(thoughts(&request(&mut unaware, &journal).0) > 0);
    }
}

/// A conversation of one answer, made behind a system message, and a word of the person after it.
fn answered(api: Api, system: &str, body: &Value) -> String {
    let mut wire = wire(api);
    let said = "{\"type\":\"USER_MESSAGE\",\"content\":\"go\"}\n";
    let sent = wire.render(&neutral(said, system, None)).unwrap();
    let answer = wire.parse(body.to_string().as_bytes()).unwrap();
    let recorded = wire.record(&answer, b"", &sent.prefix).unwrap();
    let (content, recorded) = (
        String::from_utf8(answer.content_json).unwrap(),
        String::from_utf8(recorded).unwrap(),
    );
    format!("{said}{{\"type\":\"THOUGHT\",\"content\":{content},\"wire\":{recorded}}}\n{said}")
}

#[test]
fn thinking_that_is_switched_on_by_hand_goes_back_behind_whatever_stands_there() {
    let body = json!({"content": [{"type": "thinking", "thinking": "1", "signature": "s"}, {"type": "text", "text": "a"}], "stop_reason": "end_turn"});
    let journal = answered(Api::Messages, "one", &body);
    for (kind, is_sent) in [("enabled", true), ("adaptive", false)] {
        let request = String::from_utf8(neutral(&journal, "two", None).bytes).unwrap();
        let head = format!("\"model\":\"m\",\"thinking\":{{\"type\":\"{kind}\"}}");
        let request = request.replacen("\"model\":\"m\"", &head, 1);
        let request = Neutral::changed(Api::Messages, request.into_bytes()).unwrap();
        let sent = wire(Api::Messages).render(&request).unwrap();
        let text = String::from_utf8(sent.bytes).unwrap();
        assert_eq!(text.contains("\"signature\":\"s\""), is_sent, "{text}");
    }
}

#[test]
fn items_of_responses_go_back_with_what_the_service_takes_of_them() {
    let long = "m".repeat(65);
    let reasoning =
        |id: &str| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": id});
    let message = |id: &str| json!({"type": "message", "id": id, "role": "assistant", "content": [{"type": "output_text", "text": "a"}]});
    for (output, ids) in [
        (json!([reasoning("r1"), message("m1")]), vec!["r1", "m1"]),
        // It takes ids of up to 64 characters.
        (json!([reasoning("r1"), message(&long)]), vec!["r1", ""]),
        // Nothing follows the last: without it, what it is tied to loses its id.
        (json!([message("m1"), reasoning("r1")]), vec![""]),
        (
            json!([reasoning("r1"), message("m1"), reasoning("r2")]),
            vec!["r1", ""],
        ),
    ] {
        let body = json!({"status": "completed", "output": output});
        let journal = answered(Api::Responses, "one", &body);
        let sent = wire(Api::Responses).render(&neutral(&journal, "one", None));
        let request: Value = serde_json::from_slice(&sent.unwrap().bytes).unwrap();
        let input = request["input"].as_array().unwrap();
        let answer = &input[1..input.len() - 1];
        let found: Vec<&str> = answer
            .iter()
            .map(|item| item["id"].as_str().unwrap_or(""))
            .collect();
        assert_eq!(found, ids, "{body}");
    }
}

#[test]
fn reasoning_without_a_summary_is_its_content() {
    let text = |text: &str| json!([{"type": "reasoning_text", "text": text}]);
    for (summary, content, expected) in [
        (json!([]), text("whole"), "whole"),
        (text("short"), text("whole"), "short"),
    ] {
        let output = json!([{"type": "reasoning", "summary": summary, "content": content}, {"type": "message", "content": [{"type": "output_text", "text": "a"}]}]);
        let body = json!({"status": "completed", "output": output}).to_string();
        let answer = wire(Api::Responses).parse(body.as_bytes()).unwrap();
        let (_, reasoning) = &answer.reasoning[0];
        assert_eq!(*reasoning, json!(expected).to_string().into_bytes());
    }
}

#[test]
fn who_said_a_block_is_in_the_digest_of_what_stands_before_an_answer() {
    let prefix = |role| {
        let mut body = Rendering::new(b"", true);
        body.block(role, b"{}", true);
        body.prefix()
    };
    assert_ne!(
        prefix(rendering::MessageRole::User),
        prefix(rendering::MessageRole::Assistant)
    );
}

#[test]
fn a_number_in_an_error_says_more_than_its_type() {
    for (number, status) in [
        (503, 503),
        (529, 529),
        (429, 429),
        (400, 400),
        (7, 500),
        (600, 500),
    ] {
        let error = json!({"error": {"type": "api_error", "code": number}}).to_string();
        let found = stream_error_status(Api::Chat, error.as_bytes());
        assert_eq!(found, status, "{number}");
    }
}

#[test]
fn references_of_a_schema_are_moved_and_values_that_look_like_them_are_not() {
    let schema = json!({"anyOf": [{"$ref": "#/$defs/a"}, {"const": {"$ref": "#/x"}}, {"enum": [{"$ref": "#"}]}]});
    let tools = json!([{"function": {"name": "f", "parameters": schema}}]).to_string();
    let head = format!("{{\"model\":\"m\",\"tools\":{tools}}}");
    let head = messages::head(&serde_json::from_str(&head).unwrap(), &Rules::default());
    let tools: Value = serde_json::from_slice(&head.tools).unwrap();
    let inner = &tools[0]["input_schema"]["properties"]["arguments"]["anyOf"];
    assert_eq!(
        *inner,
        json!([{"$ref": "#/properties/arguments/$defs/a"}, {"const": {"$ref": "#/x"}}, {"enum": [{"$ref": "#"}]}])
    );
}

#[test]
fn the_parts_that_a_recorded_request_shows_stand_for_those_that_were_known() {
    let mut wire = wire(Api::Messages);
    let part = |wire: &Wire, text: &str, stop: &str| {
        let body = json!({"content": [{"type": "text", "text": text}], "stop_reason": stop});
        wire.parse(body.to_string().as_bytes()).unwrap()
    };
    let first = part(&wire, "one, ", "pause_turn");
    wire.go_on_from(first, "");
    let sent = br#"{"messages":[{"role":"user","content":"go"}]}"#;
    let recorded = br#"{"messages":[{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"text","text":"two, "}]}]}"#;
    assert!(wire.adopt_pause(sent, recorded));
    assert_eq!(wire.pauses(), 1);
    let last = part(&wire, "three", "end_turn");
    assert_eq!(wire.whole(last).text, "two, three");
}

#[test]
fn of_a_journal_full_of_pauses_some_are_recalled_and_the_rest_costs_nothing() {
    let item = json!({"type": "text", "text": "part"});
    let pause = json!({"api": "messages", "items": [item], "prefix": "p", "view": "v"}).to_string();
    let pauses = vec![pause.as_str(); 5 * MOST_RECALLED];
    let mut wire = wire(Api::Messages);
    wire.recall(&[], &pauses[..3]);
    assert_eq!(wire.pauses(), 3);
    let mut wire = self::wire(Api::Messages);
    wire.recall(&[], &pauses);
    assert_eq!(wire.pauses() as usize, MOST_RECALLED);
}

#[test]
fn what_a_record_says_of_remedies_that_there_are_not_changes_nothing() {
    for remedy in [
        "null",
        "[]",
        r#"{"name":"max_tokens","max_tokens":0,"api":"messages"}"#,
        r#"{"name":"max_tokens","max_tokens":-1,"api":"messages"}"#,
        r#"{"name":"max_tokens","api":"messages"}"#,
        r#"{"name":"max_tokens","max_tokens":7,"api":"chat"}"#,
        r#"{"name":"max_tokens","max_tokens":7,"api":"messages","model":"another"}"#,
        r#"{"name":"llm.command","value":["sh"],"api":"messages"}"#,
    ] {
        let mut wire = wire(Api::Messages);
        let before = wire.rules.clone();
        wire.recall(&[remedy], &[]);
        assert!(wire.rules == before, "{remedy}");
    }
    // A larger answer than the agent's is never asked for.
    let mut wire = wire(Api::Messages);
    let remedy = r#"{"name":"max_tokens","max_tokens":9000000,"api":"messages"}"#;
    wire.recall(&[remedy], &[]);
    let request = neutral(r#"{"type":"USER_MESSAGE","content":"a"}"#, "s", None);
    let sent = String::from_utf8(wire.render(&request).unwrap().bytes).unwrap();
    assert!(!sent.contains("9000000"), "{sent}");
}

#[test]
fn a_refusal_names_its_remedy() {
    let error = |message: &str, code: &str| {
        json!({"error": {"message": message, "code": code}}).to_string()
    };
    for (api, message, code, remedy) in [
        (
            Api::Messages,
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            "",
            Some(Remedy::WithoutReasoning),
        ),
        (
            Api::Messages,
            "The block is bound to a different conversation",
            "",
            Some(Remedy::WithoutReasoning),
        ),
        (
            Api::Messages,
            "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified",
            "",
            Some(Remedy::WithoutReasoning),
        ),
        (
            Api::Messages,
            "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
            "",
            Some(Remedy::WithoutReasoning),
        ),
        (
            Api::Messages,
            "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens for M-3",
            "",
            Some(Remedy::MaxTokens(32000)),
        ),
        (
            Api::Messages,
            "thinking is not supported by this model",
            "",
            None,
        ),
        (
            Api::Responses,
            "The encrypted content could not be verified",
            "invalid_encrypted_content",
            Some(Remedy::WithoutReasoning),
        ),
        (
            Api::Responses,
            "Encrypted content is not supported with this model",
            "",
            Some(Remedy::WithoutInclude),
        ),
        (
            Api::Responses,
            "Unknown parameter: 'include'",
            "",
            Some(Remedy::WithoutInclude),
        ),
        (Api::Responses, "Unknown parameter: 'max_tokens'", "", None),
        (
            Api::Chat,
            "Unrecognized request argument: stream_options",
            "",
            Some(Remedy::WithoutStreamOptions),
        ),
        (
            Api::Chat,
            "max_tokens: 64000 > 32000, which is the maximum",
            "",
            None,
        ),
    ] {
        assert_eq!(
            Remedy::of(api, error(message, code).as_bytes()),
            remedy,
            "{message}"
        );
    }
}

#[test]
fn breakpoints_stand_where_later_requests_begin_alike() {
    let mut journal = String::from("{\"type\":\"USER_MESSAGE\",\"content\":\"go\"}\n");
    let calls: Vec<Value> = (0..16)
        .map(|n| json!({"id": format!("c{n}"), "type": "function", "function": {"name": "f", "arguments": "{}"}}))
        .collect();
    journal += &format!(
        "{{\"type\":\"THOUGHT\",\"content\":\"\",\"tool_calls\":{}}}\n",
        json!(calls)
    );
    for n in 0..16 {
        journal += &format!(
            "{{\"type\":\"ACTION_RESULT\",\"action_id\":\"c{n}\",\"status\":\"SUCCESS\",\"observation_content\":\"r{n}\"}}\n"
        );
    }
    let sent = wire(Api::Messages)
        .render(&neutral(&journal, "sys", Some("volatile")))
        .unwrap();
    let request: Value = serde_json::from_slice(&sent.bytes).unwrap();
    let marked = |value: &Value| value["cache_control"] == json!({"type": "ephemeral"});
    assert!(marked(&request["system"][0]));
    let messages = &request["messages"];
    assert!(
        marked(&messages[0]["content"][0]),
        "where the request before ended"
    );
    let last = messages[2]["content"].as_array().unwrap();
    assert_eq!(last.len(), 17);
    assert!(marked(&last[15]) && !marked(&last[16]), "{}", last[16]);
    assert_eq!(request.to_string().matches("cache_control").count(), 3);
    for (cache, marks) in [(CacheTime::Off, 0), (CacheTime::Hour, 3)] {
        let mut other = wire(Api::Messages);
        other.cache = cache;
        let sent = other
            .render(&neutral(&journal, "sys", Some("volatile")))
            .unwrap();
        let text = String::from_utf8(sent.bytes).unwrap();
        assert_eq!(text.matches("cache_control").count(), marks);
        assert_eq!(text.matches("\"ttl\":\"1h\"").count(), marks);
    }
}
