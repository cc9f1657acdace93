//! Dealing with servers: what is asked again, what is accepted, what ends the run; keys.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::time::Duration;

const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";

/// The outcome of each attempt at the n-th request, from 1.
fn attempts(world: &World, n: usize) -> Vec<Value> {
    let invocation = &world.latest().invocations()[n - 1];
    let metadata = fs::read(invocation.join("metadata.json")).unwrap();
    let metadata: Value = serde_json::from_slice(&metadata).unwrap();
    metadata["attempts"].as_array().expect("attempts").clone()
}

/// One bad reply, then a good one: the same request is sent twice and the run completes.
#[track_caller]
fn is_asked_again(bad: Reply, why: &str) {
    let world = World::new().llm("max_retries: 1");
    world.model_says([bad, text("done")]);
    let outcome = world.run("go").exits(0).prints("done\n");
    outcome.says(why);
    let bodies: Vec<_> = world
        .server
        .requests()
        .iter()
        .map(|r| r.body.clone())
        .collect();
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(attempts(&world, 1).len(), 2);
}

#[test]
fn a_busy_or_broken_server_is_asked_again() {
    for status in [408, 409, 425, 429, 500, 502, 503, 504, 529] {
        is_asked_again(Reply::error(status, "not now"), &status.to_string());
    }
}

#[test]
fn a_connection_that_breaks_is_tried_again() {
    is_asked_again(Reply::drops(Moment::AfterReading), "");
    is_asked_again(Reply::drops(Moment::MidBody), "");
    is_asked_again(text("cut off").claims_length(100_000).then_closes(), "");
}

#[test]
fn a_connection_that_is_reset_is_tried_again() {
    let world = World::new().llm("max_retries: 1");
    world.model_says([Reply::drops(Moment::BeforeReading), text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(attempts(&world, 1).len(), 2);
}

#[test]
fn a_body_that_is_no_json_is_asked_for_again() {
    is_asked_again(raw("<html>Bad gateway</html>"), "json");
    is_asked_again(raw(""), "");
    is_asked_again(raw("{\"choices\":[{\"message\":{\"content\":\"cut"), "");
}

#[test]
fn a_message_with_neither_text_nor_calls_is_asked_for_again() {
    is_asked_again(message(&json!({"role": "assistant", "content": ""})), "");
    is_asked_again(message(&json!({"role": "assistant", "content": null})), "");
    is_asked_again(
        message(&json!({"role": "assistant", "content": null, "tool_calls": []})),
        "",
    );
    is_asked_again(completion(&json!({"choices": []})), "");
}

#[test]
fn a_length_that_is_too_short_is_not_taken_for_an_answer() {
    let world = World::new().llm("max_retries: 1");
    let answer = text("done");
    let half = answer.body().len() / 2;
    world.model_says([text("done").claims_length(half).then_closes(), answer]);
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn waiting_is_announced_with_its_reason_and_length() {
    let world = World::new().llm("max_retries: 1");
    world.model_says([Reply::error(503, "Loading model"), text("done")]);
    let outcome = world.run("go").exits(0);
    outcome.says("503").says("Loading model").says("wait");
}

#[test]
fn when_all_retries_are_used_up_the_same_command_goes_on_later() {
    let world = World::new().llm("max_retries: 1");
    world.model_says([
        Reply::error(503, "Loading model"),
        Reply::error(503, "Loading model"),
    ]);
    let object = world
        .run("go")
        .json()
        .exits(75)
        .says("Loading model")
        .object();
    assert_eq!(object["status"], "INTERRUPTED");
    assert_eq!(object["stop_reason"], "model_unavailable");
    let ending = (
        "INTERRUPTED".to_owned(),
        Some("model_unavailable".to_owned()),
    );
    assert_eq!(world.latest().ending(), ending);
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn a_server_that_is_not_there_makes_the_model_unavailable() {
    let world = World::new().llm("base_url: http://127.0.0.1:9/v1\nmax_retries: 1");
    world.run("go").refuses(75, "127.0.0.1:9");
    assert_eq!(
        world.latest().ending().1.as_deref(),
        Some("model_unavailable")
    );
}

/// How long after a refusal with this header the server was asked again.
#[track_caller]
fn pause(retry_after: &str) -> Duration {
    let world = World::new().llm("max_retries: 1");
    let busy = Reply::error(429, "slow down").header("Retry-After", retry_after);
    world.model_says([busy, text("done")]);
    world.run("go").exits(0);
    let requests = world.server.requests();
    requests[1].at - requests[0].at
}

#[test]
fn retry_after_is_obeyed_in_seconds() {
    assert!(pause("2") >= Duration::from_secs(2));
}

#[test]
fn retry_after_is_obeyed_as_a_date() {
    let format = "+%a, %d %b %Y %H:%M:%S GMT";
    let date = Command::new("date")
        .args(["-u", "-d", "+6 seconds", format])
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let date = String::from_utf8(date.stdout).unwrap();
    // The date is a whole second, and the program took a moment to start.
    assert!(pause(date.trim()) >= Duration::from_secs(2));
}

#[test]
fn a_retry_after_of_more_than_five_minutes_ends_the_run_at_once() {
    let world = World::new();
    world.model_says([Reply::error(429, "quota used up").header("Retry-After", "7200")]);
    let object = world
        .run("go")
        .json()
        .exits(75)
        .says("quota used up")
        .object();
    assert_eq!(object["stop_reason"], "model_unavailable");
    assert_eq!(
        world.latest().ending().1.as_deref(),
        Some("model_unavailable")
    );
    assert_eq!(world.server.requests().len(), 1);
}

#[test]
fn a_refusal_is_not_asked_again_and_shows_the_servers_words() {
    for status in [400, 401, 402, 403, 404, 413, 422] {
        let world = World::new();
        world.model_says([Reply::error(status, "model `scripted` is not for you")]);
        let outcome = world.run("go").exits(4).prints("");
        outcome
            .says("model `scripted` is not for you")
            .says(&status.to_string());
        assert_eq!(world.server.requests().len(), 1);
        assert_eq!(world.latest().ending().0, "INTERRUPTED");
        assert_eq!(world.latest().events("ERROR").len(), 1);
    }
}

#[test]
fn a_refusal_in_any_shape_shows_the_servers_words() {
    let shapes = [
        json!({"error": "plain words"}).to_string(),
        json!({"message": "plain words"}).to_string(),
        json!({"detail": "plain words"}).to_string(),
        json!({"error": {"code": 400, "message": "plain words"}}).to_string(),
        "plain words".to_owned(),
    ];
    for shape in shapes {
        let world = World::new();
        world.model_says([raw(shape).status(400)]);
        world.run("go").exits(4).says("plain words");
    }
}

#[test]
fn an_answer_that_was_cut_off_is_no_success() {
    let world = World::new();
    world.model_says([answer(
        &json!({"role": "assistant", "content": "It is"}),
        "length",
    )]);
    world.run("go").refuses(1, "length");
    assert_eq!(world.latest().ending().0, "FAILED");
}

#[test]
fn a_message_with_calls_that_was_cut_off_runs_none_of_them() {
    let world = World::with_tools("- {name: mark, exec: 'touch ${file}'}");
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "mark", "arguments": arguments}});
    let calls = [call("a", "{\"file\":\"one\"}"), call("b", "{\"file\":\"tw")];
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    world.model_says([answer(&message, "length")]);
    world.run("go").refuses(1, "length");
    assert!(!world.exists("ws/one"));
    assert!(world.latest().events("ACTION_REQUEST").is_empty());
}

#[test]
fn a_filtered_answer_is_a_failure() {
    let world = World::new();
    world.model_says([answer(
        &json!({"role": "assistant", "content": "I"}),
        "content_filter",
    )]);
    world.run("go").refuses(1, "content_filter");
    assert_eq!(world.latest().ending().0, "FAILED");
}

/// The answer to this message is taken for a call of `echo` with the words "hi".
#[track_caller]
fn is_taken_for_a_call(message: &Value) -> World {
    let world = World::with_tools(ECHO);
    world.model_says([
        completion(&json!({"choices": [{"message": message}]})),
        text("done"),
    ]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.server.last().last_observation().trim_end(), "hi");
    world
}

fn echo_call() -> Value {
    json!({"id": "c", "type": "function", "function": {"name": "echo", "arguments": "{\"words\":\"hi\"}"}})
}

#[test]
fn content_may_be_null_missing_empty_or_a_list_of_parts_beside_calls() {
    let calls = json!([echo_call()]);
    for (said, back) in [
        (
            json!({"role": "assistant", "content": null, "tool_calls": calls}),
            Value::Null,
        ),
        (
            json!({"role": "assistant", "content": "", "tool_calls": calls}),
            json!(""),
        ),
        (
            json!({"role": "assistant", "tool_calls": calls}),
            Value::Null,
        ),
        (json!({"tool_calls": calls}), Value::Null),
    ] {
        let world = is_taken_for_a_call(&said);
        assert_eq!(world.latest().events("THOUGHT")[0]["content"], "");
        let sent = world.server.requests()[1].messages();
        let answer = sent.iter().find(|message| message["role"] == "assistant");
        // Some servers refuse an empty text, some have templates that cannot take null.
        assert_eq!(answer.expect("the answer goes back")["content"], back);
    }
    let parts = json!([{"type": "text", "text": "I "}, {"type": "text", "text": "look."}]);
    let world =
        is_taken_for_a_call(&json!({"role": "assistant", "content": parts, "tool_calls": calls}));
    assert_eq!(world.latest().events("THOUGHT")[0]["content"], "I look.");
}

#[test]
fn an_answer_may_be_a_list_of_parts() {
    let world = World::new();
    let parts = json!([{"type": "text", "text": "do"}, {"type": "text", "text": "ne"}]);
    world.model_says([message(
        &json!({"role": "assistant", "content": parts, "tool_calls": null}),
    )]);
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn a_finish_reason_or_usage_may_be_missing() {
    let world = World::new();
    let message =
        json!({"role": "assistant", "content": "done", "tool_calls": null, "refusal": null});
    world.model_says([completion(
        &json!({"choices": [{"message": message}], "x": {"y": []}}),
    )]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.latest().metadata()["usage"]["llm_calls"], 1);
}

#[test]
fn an_answer_may_come_in_chunks() {
    let world = World::new();
    world.model_says([text("done").chunked()]);
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn calls_may_lack_a_type() {
    let mut call = echo_call();
    call.as_object_mut().unwrap().remove("type");
    is_taken_for_a_call(&json!({"role": "assistant", "content": null, "tool_calls": [call]}));
}

#[test]
fn arguments_may_be_an_object_and_are_sent_back_as_text() {
    let mut call = echo_call();
    call["function"]["arguments"] = json!({"words": "hi"});
    let world =
        is_taken_for_a_call(&json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    let sent = &world.server.last().messages()[2]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(sent, r#"{"words":"hi"}"#);
}

#[test]
fn missing_and_duplicate_ids_are_made_unique_before_they_are_recorded() {
    let call = |id: Value| {
        let mut call = echo_call();
        if id == "none" {
            call.as_object_mut().unwrap().remove("id");
        } else {
            call["id"] = id;
        }
        call
    };
    let mut all: Vec<Value> = [
        json!("x"),
        json!("x"),
        json!("none"),
        json!(""),
        Value::Null,
    ]
    .map(call)
    .into();
    // The very same call would be one.
    all[1]["function"]["arguments"] = json!("{\"words\":\"other\"}");
    let world = World::with_tools(ECHO);
    let message = json!({"role": "assistant", "content": null, "tool_calls": all});
    world.model_says([
        completion(&json!({"choices": [{"message": message}]})),
        text("done"),
    ]);
    world.run("go").exits(0);
    let messages = world.server.last().messages();
    let sent: Vec<_> = messages[2]["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["id"].clone())
        .collect();
    let answered: Vec<_> = messages[3..]
        .iter()
        .map(|m| m["tool_call_id"].clone())
        .collect();
    assert_eq!(sent.len(), 5);
    assert_eq!(sent, answered);
    let recorded = world.latest().events("THOUGHT")[0]["tool_calls"].clone();
    let recorded: Vec<_> = recorded
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["id"].clone())
        .collect();
    assert_eq!(recorded, sent);
}

#[test]
fn arguments_that_are_no_json_are_sent_back_as_an_empty_object_and_quoted() {
    for bad in ["{\"words\": \"hi", "[1]", "words=hi", "\"hi\""] {
        let mut call = echo_call();
        call["function"]["arguments"] = json!(bad);
        let world = World::with_tools(ECHO);
        let broken = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        world.model_says([message(&broken), text("done")]);
        world.run("go").exits(0);
        let request = world.server.last();
        assert_eq!(
            request.messages()[2]["tool_calls"][0]["function"]["arguments"],
            "{}"
        );
        let told = request.last_observation();
        assert!(told.contains(bad), "{bad:?} is not quoted in {told:?}");
    }
}

#[test]
fn reasoning_is_recorded_and_sent_back() {
    let world = World::with_tools(ECHO);
    let first = json!({"role": "assistant", "content": null, "reasoning_content": "Let me think.\n\"So.\"",
        "tool_calls": [echo_call()]});
    world.model_says([message(&first), text("done")]);
    world.run("go").exits(0);
    let thought = world.latest().events("THOUGHT").remove(0);
    assert_eq!(thought["reasoning_content"], "Let me think.\n\"So.\"");
    assert_eq!(
        world.server.last().messages()[2]["reasoning_content"],
        "Let me think.\n\"So.\""
    );
}

#[test]
fn a_stale_connection_is_reopened_and_does_not_count() {
    let world = World::with_tools(ECHO).llm("max_retries: 0");
    let hi = json!({"words": "hi"});
    world.model_says([
        call("a", "echo", &hi).then_closes(),
        call("b", "echo", &hi),
        Reply::drops(Moment::BeforeReading),
        text("done"),
    ]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(world.server.connections(), 3);
    assert_eq!(attempts(&world, 2).len(), 1);
}

#[test]
fn a_redirect_tells_no_key() {
    let key = "ab-of-the-redirect";
    let place = "http://127.0.0.1:1/login?token=";
    let redacted = format!("{place}[redacted]&then=%2");
    let redacted_code = format!("{place}%[redacted]&then=%2");
    for (told, shown) in [
        (key, &*redacted),
        ("%ab-of-the-redirect", &redacted_code),
        (
            "%61b%2dof-the%2Dredir%65ct%0Adelta:",
            &*format!("{place}[redacted]%0Adelta:&then=%2"),
        ),
    ] {
        let world = World::new();
        let place = format!("{place}{told}&then=%2");
        world.model_says([Reply::error(302, "elsewhere").header("Location", &place)]);
        let outcome = world.run("go").env("DELTA_API_KEY", key).exits(4);
        outcome.says(&format!("redirects to {shown}, which"));
        for file in files_below(&world.workspace()) {
            let bytes = fs::read(&file).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(
                !text.contains(told) && !text.contains(key),
                "{}",
                file.display()
            );
        }
    }
}

#[test]
fn a_slow_answer_is_given_up_after_the_timeout() {
    let world = World::new().llm("timeout_ms: 1500\nmax_retries: 1");
    world.model_says([text("too late").held(), text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(attempts(&world, 1).len(), 2);
}

#[test]
fn an_answer_that_never_ends_is_given_up_after_the_timeout() {
    let world = World::new().llm("timeout_ms: 300\nmax_retries: 0");
    // The head and a part of the body come; the connection stays open.
    let stuck = text("never whole").claims_length(1_000_000);
    world.model_says([stuck]);
    world.run("go").exits(75).prints("");
    let metadata = fs::read(world.latest().invocations()[0].join("metadata.json")).unwrap();
    let metadata: Value = serde_json::from_slice(&metadata).unwrap();
    assert_eq!(metadata["status"], "TIMEOUT");
}

/// Below the home are all files and what was printed.
#[track_caller]
fn key_is_nowhere(world: &World, key: &str) {
    for file in files_below(world.home()) {
        let bytes = fs::read(&file).unwrap();
        let there = bytes
            .windows(key.len())
            .any(|window| window == key.as_bytes());
        assert!(!there, "the key is in {}", file.display());
    }
}

#[test]
fn the_key_is_sent_and_written_nowhere() {
    let key = "sk-very-secret-0123456789";
    let world = World::with_tools("- {name: env, exec: env}");
    world.model_says([call("a", "env", &json!({})), text("done")]);
    let delta = world
        .run("go")
        .arg("-v")
        .env("DELTA_API_KEY", key)
        .env("DELTA_LOG", "debug");
    delta.exits(0);
    assert_eq!(
        world.server.last().header("authorization"),
        Some("Bearer sk-very-secret-0123456789")
    );
    key_is_nowhere(&world, key);
}

#[test]
fn the_key_is_written_nowhere_when_the_server_echoes_it() {
    let key = "sk-very-secret-0123456789";
    let world = World::new();
    world.model_says([Reply::error(
        401,
        &format!("Incorrect API key provided: {key}"),
    )]);
    world
        .run("go")
        .env("OPENAI_API_KEY", key)
        .exits(4)
        .says("Incorrect API key provided");
    key_is_nowhere(&world, key);

    let world = World::with_tools(ECHO);
    let words = format!("your key is {key}, is it not?");
    world.model_says([call("a", "echo", &json!({"words": words})), text(&words)]);
    world.run("go").env("OPENAI_API_KEY", key).json().exits(0);
    key_is_nowhere(&world, key);
}

#[test]
fn without_a_key_no_authorization_is_sent() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    assert_eq!(world.server.last().header("authorization"), None);
}

#[test]
fn deltas_own_variables_come_before_openais() {
    let world = World::new();
    world.write("agent/agent.yaml", "name: probe\nllm: {model: scripted}\n");
    world.model_says([text("done")]);
    let delta = world
        .run("go")
        .env("DELTA_BASE_URL", world.server.url())
        .env("DELTA_API_KEY", "sk-delta");
    let delta = delta
        .env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        .env("OPENAI_API_KEY", "sk-openai");
    delta.exits(0).prints("done\n");
    assert_eq!(
        world.server.last().header("authorization"),
        Some("Bearer sk-delta")
    );
}

#[test]
fn openais_variables_will_do() {
    for variable in ["OPENAI_BASE_URL", "OPENAI_API_URL"] {
        let world = World::new();
        world.write("agent/agent.yaml", "name: probe\nllm: {model: scripted}\n");
        world.model_says([text("done")]);
        let delta = world
            .run("go")
            .env(variable, world.server.url())
            .env("OPENAI_API_KEY", "sk-openai");
        delta.exits(0).prints("done\n");
        assert_eq!(
            world.server.last().header("authorization"),
            Some("Bearer sk-openai")
        );
    }
}

#[test]
fn an_endpoint_may_end_in_a_slash() {
    let world = World::new();
    world.write("agent/agent.yaml", "name: probe\nllm: {model: scripted}\n");
    world.model_says([text("done")]);
    world
        .run("go")
        .env("DELTA_BASE_URL", world.server.url() + "/")
        .exits(0);
    assert_eq!(
        world.server.last().line,
        "POST /v1/chat/completions HTTP/1.1"
    );
}

#[test]
fn no_key_for_a_remote_endpoint_is_a_configuration_error_with_three_ways_out() {
    let world = World::new();
    world.write("agent/agent.yaml", "name: probe\nllm: {model: gpt-4o}\n");
    let outcome = world.run("go").exits(78).prints("");
    outcome
        .says("DELTA_API_KEY")
        .says("base_url")
        .says("command");
    assert!(!world.exists("ws"));
}

#[test]
fn a_program_that_exits_75_or_is_asked_to_end_is_started_again() {
    for end in ["exit 75", "kill -TERM $$"] {
        let world = World::new()
            .program([text("not heard"), text("done")])
            .llm("max_retries: 1");
        world.write("agent/model/1.sh", format!("{end}\n"));
        world.run("go").exits(0).prints("done\n");
        assert_eq!(attempts(&world, 1).len(), 2, "{end}");
    }
}

#[test]
fn a_program_that_fails_ends_the_run_with_its_words() {
    let world = World::new().program([text("not heard")]);
    world.write(
        "agent/model/1.sh",
        "echo 'the weights are gone' >&2; exit 3\n",
    );
    world.run("go").refuses(4, "the weights are gone");
    assert_eq!(world.latest().ending().0, "INTERRUPTED");
    assert_eq!(world.read("agent/model/count"), "1\n");
}

#[test]
fn what_a_program_says_on_stderr_goes_to_the_engines_log() {
    let world = World::new().program([text("done")]);
    world.write("agent/model/1.sh", "echo 'loading weights' >&2\n");
    world.run("go").exits(0).prints("done\n");
    let log = world.latest().text("engine.log");
    assert!(log.contains("loading weights"), "{log}");
}

#[test]
fn a_program_that_does_not_exist_fails_with_its_name() {
    let world = World::new().llm("command: [no-such-model-program]");
    world.run("go").refuses(4, "no-such-model-program");
}

#[test]
fn a_program_gets_the_key_and_no_tool_does() {
    let world = World::with_tools("- {name: look, shell: 'echo \"<$DELTA_API_KEY>\"'}");
    let world = world.program([call("a", "look", &json!({})), text("done")]);
    world.write(
        "agent/model/1.sh",
        "echo \"$DELTA_API_KEY\" | cksum > key\n",
    );
    world
        .run("go")
        .env("DELTA_API_KEY", "sk-very-secret")
        .exits(0);
    let sum = Command::new("sh")
        .args(["-c", "echo sk-very-secret | cksum"])
        .output()
        .unwrap();
    assert_eq!(world.read("agent/model/key").into_bytes(), sum.stdout);
    assert_eq!(
        world.latest().result(1)["observation_content"]
            .as_str()
            .unwrap()
            .trim_end(),
        "<>"
    );
}

#[test]
fn the_key_is_in_nothing_that_is_kept_of_what_a_program_prints() {
    let key = "sk-very-secret-0";
    let spellings = [
        "$DELTA_API_KEY",
        "%73k-very%2Dsecret-0",
        "%2573k-very-secret-0",
        "$(printf %s \"$DELTA_API_KEY\" | base64)",
    ];
    let told = spellings.join(" ");
    let leaks = |world: &World, outcome: &Outcome| {
        let mut texts = vec![outcome.stderr.clone(), outcome.describe()];
        for file in files_below(&world.workspace()) {
            texts.push(String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned());
        }
        let words = [key, "very-secret", "very%2Dsecret", "c2stdmVyeS1zZWNyZXQtM"];
        let has_key = |text: &&String| words.iter().any(|word| text.contains(word));
        texts.iter().filter(has_key).count()
    };
    let world = World::new().program([text("not heard"), text("not heard"), text("not heard")]);
    world.write("agent/model/1.sh", format!("echo \"{told}\" >&2; exit 3\n"));
    let outcome = world.run("go").env("DELTA_API_KEY", key).exits(4);
    let outcome = outcome.says("exit code 3: [redacted] [redacted] [redacted] [redacted]");
    assert_eq!(leaks(&world, &outcome), 0);
    let log = world.latest().text("engine.log");
    assert!(log.contains("\n[redacted] [redacted] "), "{log}");
    // An answer: whole, and in the parts of a text.
    let whole =
        format!("{{\\\"choices\\\":[{{\\\"message\\\":{{\\\"content\\\":\\\"{told}\\\"}}}}]}}");
    let parts = "{\"choices\":[{\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"sk-very-\"},\
        {\"type\":\"text\",\"text\":\"secret-0\"}]}}]}";
    world.write("agent/model/2.sh", format!("echo \"{whole}\"; exit 0\n"));
    world.write("agent/model/3.sh", format!("echo '{parts}'; exit 0\n"));
    for _ in 0..2 {
        let outcome = world
            .run("go")
            .args(["--new"])
            .env("DELTA_API_KEY", key)
            .exits(0);
        let printed = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert!(printed.contains("[redacted]"), "{printed}");
        assert_eq!(leaks(&world, &outcome), 0);
    }
}

#[test]
fn a_program_that_does_not_answer_in_time_is_ended() {
    let world = World::new()
        .program([text("late")])
        .llm("timeout_ms: 300\nmax_retries: 0");
    world.write("agent/model/1.sh", "sleep 600\n");
    world.run("go").exits(75).prints("");
    eventually("the program is gone", || world.processes().is_empty());
}

#[test]
fn a_program_needs_no_model_name() {
    let world = World::new().program([text("done")]);
    world.write(
        "agent/agent.yaml",
        "name: probe\nllm: {command: ['${AGENT_HOME}/model.sh']}\n",
    );
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn a_server_that_goes_away_after_an_answer_is_tried_again_with_a_pause() {
    let world = World::with_tools(
        "- {name: wait, shell: 'echo up > ../ready; read go < ../go; echo waited'}",
    )
    .llm("max_retries: 1");
    let (mut ready, mut go) = (world.fifo("ready"), world.fifo("go"));
    world.model_says([call("a", "wait", &json!({}))]);
    let delta = world.run("go").spawn();
    ready.line();
    world.server.goes_away();
    go.tell("on");
    delta.wait().refuses(75, "wait");
    let ending = world.latest().ending();
    let reason = Some("model_unavailable".to_owned());
    assert_eq!(ending, ("INTERRUPTED".to_owned(), reason));
    assert_eq!(attempts(&world, 2).len(), 2);
}

/// Asks for the tool by this name; returns the next request and what it says about the call.
#[track_caller]
fn called(name: &str) -> (Value, String) {
    let world = World::with_tools(ECHO);
    let first = call("a", name, &json!({"words": "x"}));
    world.model_says([first, text("done")]);
    world.run("go").exits(0).prints("done\n");
    let request = world.server.last();
    assert_valid_for_api(&request.body);
    let call = request.messages()[2]["tool_calls"][0].clone();
    (call, request.observation("a"))
}

#[test]
fn a_name_that_servers_refuse_goes_back_as_one_that_they_take() {
    let long = "x".repeat(65);
    for name in [
        "../../x",
        "",
        "functions.sh",
        "echo ",
        "naïve",
        "a\nb",
        &long,
    ] {
        let (call, told) = called(name);
        assert_ne!(call["function"]["name"], name);
        assert!(told.contains(&format!("{name:?}")), "{told}");
        assert!(told.contains("echo"), "the tools are named: {told}");
    }
    let (call, told) = called("no_such_tool");
    assert_eq!(call["function"]["name"], "no_such_tool");
    assert!(told.contains("no_such_tool"), "{told}");
}

/// A completion whose JSON is written by hand.
fn written(message: &str, usage: &str) -> Reply {
    raw(format!(
        r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":"stop"}}],"usage":{usage}}}"#
    ))
}

#[test]
fn half_a_character_does_not_lose_an_answer() {
    let world = World::with_tools(ECHO);
    let call = r#"{"role":"assistant","content":"half \ud83e","tool_calls":[{"id":"a","type":"function",
        "function":{"name":"echo","arguments":"{\"words\": \"\udd80 \ud83e\udd80\"}"}}]}"#;
    let answer = r#"{"role":"assistant","content":"a \uDC00 b \ud83e\udd80 c \\ud800"}"#;
    world.model_says([written(call, "null"), written(answer, "null")]);
    let outcome = world.run("go").exits(0);
    outcome.prints("a \u{FFFD} b \u{1F980} c \\ud800\n");
    let told = world.server.last().observation("a");
    assert_eq!(told.trim_end(), "\u{FFFD} \u{1F980}");
    let kept = fs::read(world.latest().invocations()[0].join("response.json")).unwrap();
    assert_eq!(
        kept,
        written(call, "null").body(),
        "the response is kept as it came"
    );
}

#[test]
fn bytes_that_are_not_utf_8_do_not_lose_an_answer() {
    let world = World::with_tools(ECHO);
    let call = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",
        "function":{"name":"echo","arguments":"{\"words\": \"a~\\ud83e\"}"}}]}"#;
    let with_bytes = |message: &str| {
        let body = written(message, "null").body().to_vec();
        raw(body
            .into_iter()
            .map(|byte| if byte == b'~' { 0xFF } else { byte })
            .collect::<Vec<u8>>())
    };
    let answer = r#"{"role":"assistant","content":"a ~ b"}"#;
    world.model_says([with_bytes(call), with_bytes(answer)]);
    world.run("go").exits(0).prints("a \u{FFFD} b\n");
    let told = world.server.last().observation("a");
    assert_eq!(told.trim_end(), "a\u{FFFD}\u{FFFD}");
}

#[test]
fn token_counts_that_are_too_large_are_not_recorded() {
    let huge = r#"{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615,"total_tokens":18446744073709551615}"#;
    let call = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"echo","arguments":"{\"words\":\"x\"}"}}]}"#;
    let world = World::with_tools(ECHO);
    world.model_says([written(call, huge), text("done")]);
    world.run("go").exits(0).prints("done\n");
    let run = world.latest();
    assert_eq!(run.events("THOUGHT")[0]["usage"], Value::Null);
    assert_eq!(run.metadata()["usage"]["total_tokens"], 110);
}

#[test]
fn a_word_that_stands_in_for_a_key_is_left_in_answers() {
    for (key, is_secret) in [
        ("ollama", false),
        ("sk-0123456789abcdef", true),
        ("abcdefghijklmnopqrst", true),
    ] {
        let world = World::new();
        let words = format!("this is {key}, is it not?");
        world.model_says([text(&words)]);
        let outcome = world.run("go").env("DELTA_API_KEY", key).exits(0);
        assert_eq!(
            world.server.last().header("authorization"),
            Some(&*format!("Bearer {key}"))
        );
        let kept = fs::read(world.latest().invocations()[0].join("response.json")).unwrap();
        if is_secret {
            outcome.prints("this is [redacted], is it not?\n");
            key_is_nowhere(&world, key);
        } else {
            outcome.prints(&format!("{words}\n"));
            assert_eq!(kept, text(&words).body());
        }
    }
}

#[test]
fn an_endpoint_that_cannot_be_one_is_a_configuration_error_and_nothing_is_created() {
    for (url, words) in [
        ("http://user:pass@127.0.0.1:9/v1", "credentials"),
        ("http://sk-12345678@127.0.0.1:9/v1", "credentials"),
        ("sk-12345678@127.0.0.1:9/v1", "127.0.0.1:9/v1"),
        ("http://127.0.0.1:9/v1#sk-12345678", "fragment"),
        ("http://127.0.0.1:9/v1 x", "URL"),
        ("127.0.0.1:9/v1", "127.0.0.1:9/v1"),
        ("ftp://127.0.0.1/v1", "http"),
        ("http://", ""),
    ] {
        let world = World::new();
        world.write("agent/agent.yaml", "name: probe\nllm: {model: scripted}\n");
        let delta = world.run("go").env("DELTA_BASE_URL", url);
        let outcome = delta.refuses(78, words);
        outcome.does_not_say("pass@").does_not_say("sk-12345678");
        assert!(!world.exists("ws"), "{url}");

        let world = World::new().llm(&format!("base_url: '{url}'"));
        world.run("go").refuses(78, words);
        assert!(!world.exists("ws"), "{url}");
    }
}

#[test]
fn a_key_with_control_characters_is_a_configuration_error_and_nothing_is_created() {
    for key in [
        "sk-0123\n4567",
        "sk-0123\u{1b}[31m4567",
        "sk-0123\r\nX: 4567",
    ] {
        let world = World::new();
        let outcome = world.run("go").env("DELTA_API_KEY", key).end();
        let outcome = outcome.refuses(78, "key");
        outcome.does_not_say("sk-0123").does_not_say("4567");
        assert!(!world.exists("ws"));
    }
    let world = World::new();
    let outcome = world.run("go").env("DELTA_API_KEY", " sk-01234567\n").end();
    let outcome = outcome.refuses(78, "blanks or line breaks around it");
    outcome.does_not_say("sk-0123");
}

#[test]
fn the_query_of_a_base_url_is_not_shown() {
    let world = World::new();
    let url = format!("{}?key=sk-12345678", world.server.url());
    world.write(
        "agent/agent.yaml",
        "name: probe\nllm: {model: scripted, max_retries: 0}\n",
    );
    world.model_says([Reply::error(500, "broken")]);
    let outcome = world.run("go").env("DELTA_BASE_URL", &url).end();
    outcome
        .exits(75)
        .says("says 500")
        .does_not_say("sk-12345678");
    let path = world.server.last().line.clone();
    assert!(path.contains("?key=sk-12345678 "), "{path}");
    let shown = world.run("go").arg("--dry-run").env("DELTA_BASE_URL", &url);
    let shown = String::from_utf8(shown.exits(0).stdout).unwrap();
    assert!(!shown.contains("sk-12345678"), "{shown}");
}

#[test]
fn an_answer_of_nothing_is_called_empty() {
    for api in ["chat", "messages"] {
        let llm = format!("command: [\"true\"]\napi: {api}\nmax_retries: 0");
        let world = World::new().llm(&llm);
        world
            .run("go")
            .exits(75)
            .says(": the answer is empty; the response is kept in");
    }
}
