//! The three APIs: the same run over each, whole or streamed, whatever happens meanwhile.

use crate::harness::services::*;
use crate::harness::steps::*;
use crate::harness::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

/// What a run comes to, whatever the API: its answers, the results of its calls, its tokens.
fn essence(run: &Run) -> Value {
    let keys = [
        "content",
        "tool_calls",
        "reasoning_content",
        "finish_reason",
        "usage",
        "model",
    ];
    let thoughts = run.events("THOUGHT").into_iter();
    let thoughts = thoughts.map(|mut event| {
        // Of the API alone.
        let usage = event["usage"].as_object_mut().expect("a usage");
        usage.remove("request_bytes").expect("a length");
        keys.map(|key| event[key].clone())
    });
    let results = run.events("ACTION_RESULT").into_iter();
    let results = results.map(|event| {
        (
            event["action_id"].clone(),
            event["observation_content"].clone(),
        )
    });
    let usage = run.metadata()["usage"].clone();
    json!([
        thoughts.collect::<Vec<_>>(),
        results.collect::<Vec<_>>(),
        usage
    ])
}

#[test]
fn ten_iterations_are_the_same_over_each_api_whole_and_streamed() {
    let mut first: Option<Value> = None;
    for (api, stream) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let world = world(api, stream);
        serve(&world, 10);
        world.run("go").exits(0).prints("done\n");
        let run = world.latest();
        let essence = essence(&run);
        assert_eq!(
            first.get_or_insert(essence.clone()),
            &essence,
            "{api:?}, {stream}"
        );
        assert_eq!(run.events("THOUGHT").len(), 10);
        let metadata: Value = serde_json::from_slice(
            &std::fs::read(run.invocations()[3].join("metadata.json")).unwrap(),
        )
        .unwrap();
        let mut usage = json!({"prompt": 100, "completion": 10, "total": 110, "cached": 60});
        if api != Api::Chat {
            usage["cache_write"] = json!(10);
        }
        assert_eq!(metadata["token_usage"], usage);
        assert_eq!(run.invocations()[3].join("response.sse").exists(), stream);
        prefixes_repeat(&world, api);
        let last = world.server.last().json();
        let sealed = last.to_string().matches("\"sealed-").count();
        // All the reasoning goes back.
        let expected = match api {
            Api::Chat => 0,
            Api::Responses => 9,
            Api::Messages => 18,
        };
        assert_eq!(sealed, expected);
        assert_eq!(
            last["stream"],
            if stream { json!(true) } else { Value::Null }
        );
        world
            .delta(["replay", "-w", "ws", "LATEST"])
            .exits(0)
            .prints("identical: 10 requests\n");
        let id = run.id();
        let request = std::fs::read(run.invocations()[6].join("request.json")).unwrap();
        let shown = world.delta(["request", "-w", "ws", &id, "7"]).exits(0);
        assert!(shown.stdout == request, "{api:?}");
        let model = world
            .delta(["model", "replay", &format!("ws/.delta/{id}")])
            .stdin(request);
        let response = std::fs::read_to_string(run.invocations()[6].join("response.json")).unwrap();
        model.exits(0).prints(&response);
        // A fork is another conversation from its message on.
        let count = world.server.requests().len();
        world
            .delta(["fork", "-w", "ws", &id, "--at", "8", "-m", "another way"])
            .exits(0)
            .prints("done\n");
        let forked = world.server.requests()[count].json();
        assert_eq!(forked.to_string().matches("another way").count(), 1);
        assert_eq!(answers(api, &forked), 8);
    }
}

/// Each request begins with the one before it, marks of caches aside.
#[track_caller]
fn prefixes_repeat(world: &World, api: Api) {
    let mut before = String::new();
    for received in world.server.requests() {
        let text = String::from_utf8(received.body.clone()).unwrap();
        let text = text.replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "");
        let shared = before.trim_end_matches([']', '}']);
        assert!(text.starts_with(shared), "{api:?}: {shared}\n{text}");
        before = text;
    }
}

#[test]
fn a_run_that_is_killed_in_every_iteration_comes_to_the_same() {
    for api in APIS {
        let whole = world(api, api != Api::Chat);
        serve(&whole, 5);
        whole.run("go").exits(0);
        let world = world(api, api != Api::Chat);
        let mut heard = 0;
        world.server.answers(move |received| {
            let request = received.json();
            heard += 1;
            let reply = reply(api, received, &said(answers(api, &request) + 1, 5));
            // Every other request finds its engine killed.
            if heard % 2 == 1 { reply.held() } else { reply }
        });
        for start in 0..5 {
            let running = world.run("go").spawn();
            world.server.wait_for(2 * start + 1);
            running.kill();
        }
        world.run("go").exits(0).prints("done\n");
        assert_eq!(
            essence(&world.latest()),
            essence(&whole.latest()),
            "{api:?}"
        );
        assert_eq!(world.latest().events("THOUGHT").len(), 5);
    }
}

#[test]
fn a_conversation_goes_on_over_another_api() {
    let pairs = APIS.into_iter().flat_map(|from| APIS.map(|to| (from, to)));
    for (from, to) in pairs.filter(|(from, to)| from != to) {
        let world = world(from, from != Api::Chat);
        serve(&world, 3);
        world.run("go").exits(0);
        let api = format!("llm.api={}", to.name());
        for _ in 0..2 {
            let go_on = world.go_on().args(["-m", "more", "--set", &api]);
            go_on.exits(0);
            let last = world.server.last();
            assert_eq!(api_of(&last.line), to);
            let text = last.json().to_string();
            assert!(text.contains("step 2") && text.contains("call_2_2"));
            let lost = "about step 2";
            assert!(
                !text.contains(lost),
                "{from:?} to {to:?}: reasoning of another API"
            );
            let notes = world.latest().events("SYSTEM_MESSAGE");
            assert_eq!(notes.len(), 1, "{notes:?}");
            assert!(
                notes[0]["content"]
                    .to_string()
                    .contains("came over the API")
            );
        }
    }
}

#[test]
fn a_page_in_place_of_a_stream_is_called_one() {
    for api in APIS {
        let world = world(api, true).llm("max_retries: 0");
        let page =
            raw("<html>Log in</html>").header_instead("Content-Type", "text/html; charset=utf-8");
        world.server.says([page]);
        let ended = world.run("go").end().exits(75);
        ended.says("an HTML page; is the base URL right?");
    }
}

#[test]
fn a_stream_that_ends_early_is_a_failed_attempt() {
    for api in APIS {
        let world = world(api, true).llm("max_retries: 2");
        world.server.accepts_anything();
        let request = json!({"messages": [{"role": "user", "content": "x"}]});
        let whole = stream(api, &answer_of(api, &request, &said(3, 3)));
        let middle = whole.len() / 2;
        let early = streamed(&whole[..whole[..middle].rfind("\n\n").unwrap() + 2]);
        let error = match api {
            Api::Responses => {
                "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"too busy\"}\n\n"
            }
            Api::Messages => {
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"too busy\"}}\n\n"
            }
            Api::Chat => {
                "data: {\"error\":{\"type\":\"server_error\",\"message\":\"too busy\"}}\n\n"
            }
        };
        let broken = streamed(&format!(
            "{}{error}",
            &whole[..whole[..middle].rfind("\n\n").unwrap() + 2]
        ))
        .header("retry-after-ms", "1");
        world.model_says([early, broken, streamed(&whole.replace('\n', "\r\n"))]);
        let ended = world.run("go").exits(0).prints("done\n");
        assert!(
            ended.stderr.contains("ended before the answer did"),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains("too busy"), "{}", ended.stderr);
        let run = world.latest();
        assert_eq!(run.events("THOUGHT").len(), 1);
        assert_eq!(run.events("THOUGHT")[0]["content"], "done");
        let kept = std::fs::read_to_string(run.invocations()[0].join("response.sse")).unwrap();
        assert_eq!(kept, whole.replace('\n', "\r\n"));
        // What is not asked again.
        let error = error
            .replace("server_error", "invalid_request_error")
            .replace("overloaded_error", "invalid_request_error");
        world.model_says([streamed(&error)]);
        world.go_on().args(["-m", "more"]).exits(4);
        // One JSON value in answer to a request for a stream.
        world.model_says([completion(&answer_of(api, &request, &said(3, 3)))]);
        world.go_on().exits(0).prints("done\n");
    }
}

#[test]
fn a_silence_ends_a_stream_and_slow_bytes_do_not() {
    // Each reply of the harness comes at once; one that claims more than it has falls silent.
    for api in [Api::Responses, Api::Messages] {
        let world = world(api, true).llm("timeout_ms: 1500\nmax_retries: 0");
        let request = json!({"messages": [{"role": "user", "content": "x"}]});
        let whole = stream(api, &answer_of(api, &request, &said(3, 3)));
        let half = &whole[..whole.len() / 2];
        let silent = raw(half)
            .claims_length(whole.len())
            .header_instead("Content-Type", "text/event-stream");
        world.model_says([silent]);
        let ended = world.run("go").exits(75);
        assert!(ended.stderr.contains("fell silent"), "{}", ended.stderr);
        assert_eq!(world.latest().events("THOUGHT").len(), 0);
    }
}

#[test]
fn an_answer_that_comes_byte_by_byte_is_waited_for_and_a_longer_silence_is_none() {
    const BYTES: usize = 40;
    let slow = |api: Api, pause: u64| {
        let request = json!({"messages": [{"role": "user", "content": "x"}]});
        let answer = stream(api, &answer_of(api, &request, &said(3, 3)));
        // The first bytes are of a comment, which says nothing.
        streamed(answer.strip_prefix(": hello\n\n").unwrap())
            .in_single_bytes(BYTES, Duration::from_millis(pause))
    };
    let limits = |timeout: u64| format!("timeout_ms: {timeout}\nmax_retries: 0");
    let runs = APIS.map(|api| {
        // No pause is as long as the limit of the patient; each is longer than that of the hasty.
        let (patient, hasty) = (
            world(api, true).llm(&limits(3000)),
            world(api, true).llm(&limits(600)),
        );
        patient.server.says([slow(api, 100)]);
        hasty.server.says([slow(api, 6000)]);
        let running = (patient.run("go").spawn(), hasty.run("go").spawn());
        (patient, hasty, running)
    });
    for (patient, hasty, (waits, gives_up)) in runs {
        waits.wait().exits(0).prints("done\n");
        let metadata = patient.latest().invocations()[0].join("metadata.json");
        let metadata: Value = serde_json::from_slice(&std::fs::read(metadata).unwrap()).unwrap();
        let took = metadata["duration_ms"].as_u64().unwrap();
        assert!(took >= BYTES as u64 * 100, "{took} ms");
        gives_up.wait().exits(75);
        let metadata = hasty.latest().invocations()[0].join("metadata.json");
        let metadata: Value = serde_json::from_slice(&std::fs::read(metadata).unwrap()).unwrap();
        assert_eq!(metadata["status"], "TIMEOUT");
        assert_eq!(hasty.latest().events("THOUGHT").len(), 0);
    }
}

#[test]
fn pings_break_a_silence_and_do_not_prolong_the_whole() {
    std::thread::scope(|scope| {
        for api in APIS {
            scope.spawn(move || pings_break_a_silence_over(api));
        }
    });
}

fn pings_break_a_silence_over(api: Api) {
    let (silence, whole) = (1500, 2200);
    let world = world(api, true).llm(&format!(
        "timeout_ms: {silence}\ntotal_timeout_ms: {whole}\nmax_retries: 0"
    ));
    let request = json!({"messages": [{"role": "user", "content": "x"}]});
    let answer = stream(api, &answer_of(api, &request, &said(3, 3)));
    world.model_says([streamed(&answer).pings_before(100_000)]);
    let ended = world.run("go").exits(75);
    assert!(
        ended.stderr.contains("was not at its end in time"),
        "{}",
        ended.stderr
    );
    let metadata = world.latest().invocations()[0].join("metadata.json");
    let metadata: Value = serde_json::from_slice(&std::fs::read(metadata).unwrap()).unwrap();
    assert_eq!(metadata["status"], "TIMEOUT");
    // The pings had broken the silence: it went on until the whole was over.
    let took = metadata["attempts"][0]["duration_ms"].as_u64().unwrap();
    assert!(took >= whole, "{took} ms");
    // Of no limit that is longer than its pings.
    let pings = silence * 5 / 4 / PING.as_millis() as u64;
    let alive = streamed(&answer).pings_before(pings as usize);
    world.model_says([alive]);
    let go_on = world.go_on().args(["--set", "llm.total_timeout_ms=600000"]);
    go_on.exits(0).prints("done\n");
}

#[test]
fn a_key_in_pieces_is_in_no_file_and_not_on_the_screen() {
    const KEY: &str = "sk-0123456789abcdefghij";
    for api in APIS {
        let world = world(api, true);
        let call = Said {
            thinking: format!("thought {KEY}"),
            text: format!("said {KEY}."),
            calls: vec![(
                "call_1".into(),
                "echo".into(),
                json!({"words": format!("x {KEY}")}),
            )],
        };
        let last = Said {
            calls: Vec::new(),
            ..call.clone()
        };
        world.server.accepts_anything();
        world.server.answers(move |received| {
            let is_first = answers(api, &received.json()) == 0;
            reply(api, received, if is_first { &call } else { &last })
        });
        let run = world.run("go").env("DELTA_API_KEY", KEY);
        run.exits(0).prints("said [redacted].\n");
        for path in files_below(&world.path("ws")) {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            // The pieces are of three characters.
            for piece in ["456", "789abc", "hij\""] {
                assert!(
                    !text.contains(piece) || !path.ends_with("response.sse"),
                    "{text}"
                );
            }
            assert!(!text.contains(KEY), "{}", path.display());
        }
        let kept = world.latest().invocations()[0].join("response.sse");
        let kept = std::fs::read_to_string(kept).unwrap();
        assert!(kept.contains("said [redacted]."), "{kept}");
    }
}

#[test]
fn errors_and_reasons_to_stop_are_those_of_the_service() {
    let stopped = |api: Api, reason: Value| {
        let mut answer = answer_of(api, &json!({"messages": []}), &said(3, 3));
        for (key, value) in reason.as_object().unwrap() {
            answer[key] = value.clone();
        }
        completion(&answer)
    };
    for (api, reply, code, words) in [
        (
            Api::Messages,
            stopped(Api::Messages, json!({"stop_reason": "max_tokens"})),
            1,
            "raise max_tokens, or",
        ),
        (
            Api::Messages,
            stopped(
                Api::Messages,
                json!({"stop_reason": "model_context_window_exceeded"}),
            ),
            1,
            "cut off (finish_reason: length): the model's context window is full",
        ),
        (
            Api::Messages,
            stopped(
                Api::Messages,
                json!({"stop_reason": "refusal", "stop_details": {"category": "bio", "explanation": "not this"}}),
            ),
            1,
            "bio: not this",
        ),
        (
            Api::Messages,
            stopped(Api::Messages, json!({"stop_reason": "novelty"})),
            0,
            "",
        ),
        (
            Api::Responses,
            stopped(
                Api::Responses,
                json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
            ),
            1,
            "raise max_output_tokens, or",
        ),
        (
            Api::Responses,
            stopped(
                Api::Responses,
                json!({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "I will not"}]}]}),
            ),
            1,
            "I will not",
        ),
        (
            Api::Responses,
            stopped(
                Api::Responses,
                json!({"status": "failed", "error": {"code": "server_error", "message": "broke"}}),
            ),
            75,
            "broke",
        ),
        (
            Api::Responses,
            stopped(
                Api::Responses,
                json!({"status": "failed", "error": {"code": "invalid_prompt", "message": "no"}}),
            ),
            4,
            "no",
        ),
        (
            Api::Responses,
            stopped(Api::Responses, json!({"status": "cancelled"})),
            75,
            "",
        ),
        (
            Api::Messages,
            refusal("prompt is too long: 250000 tokens > 200000 maximum", ""),
            4,
            "prompt is too long",
        ),
        (
            Api::Messages,
            refusal("`temperature` is deprecated for this model.", ""),
            4,
            "--set llm.temperature=",
        ),
        (
            Api::Chat,
            refusal(
                "Function tools with reasoning_effort are not supported. Please use /v1/responses instead",
                "",
            ),
            4,
            "llm.api: responses",
        ),
        (
            Api::Chat,
            completion(
                &json!({"choices": [{"message": {"role": "assistant", "content": null, "refusal": "I will not"}, "finish_reason": "stop"}]}),
            ),
            1,
            "I will not",
        ),
        (
            Api::Messages,
            Reply::error(529, "Overloaded"),
            75,
            "Overloaded",
        ),
    ] {
        let world = world(api, false).llm("max_retries: 0");
        world.model_says([reply]);
        let ended = world.run("go").exits(code);
        assert!(ended.stderr.contains(words), "{api:?}: {}", ended.stderr);
    }
}

#[test]
fn an_answer_that_ends_early_does_so_in_a_stream_too() {
    let changed = |api: Api, change: Value| {
        let mut answer = answer_of(api, &json!({"messages": []}), &said(3, 3));
        for (key, value) in change.as_object().unwrap() {
            answer[key] = value.clone();
        }
        streamed(&stream(api, &answer))
    };
    for (api, change, code, words) in [
        (
            Api::Responses,
            json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
            1,
            "cut off",
        ),
        (
            Api::Responses,
            json!({"status": "failed", "error": {"code": "server_error", "message": "broke"}}),
            75,
            "broke",
        ),
        (
            Api::Messages,
            json!({"stop_reason": "max_tokens"}),
            1,
            "cut off",
        ),
    ] {
        let world = world(api, true).llm("max_retries: 0");
        world.model_says([changed(api, change)]);
        world.run("go").exits(code).says(words);
    }
}

#[test]
fn each_service_gets_its_own_key_and_headers_keep_secrets() {
    let show = "- {name: show, exec: 'env'}";
    for (api, base) in [
        (Api::Messages, ""),
        (Api::Messages, "/v1"),
        (Api::Responses, "/v1"),
    ] {
        let world = World::with_tools(show);
        let base = world.server.url().replace("/v1", base);
        let world = world.llm(&format!("api: {}\nbase_url: {base}\nheaders: {{X-Plain: '1', x-secret: {{env: GATEWAY_TOKEN}}}}", api.name()));
        let call = Said {
            calls: vec![("call_1".into(), "show".into(), json!({}))],
            ..said(1, 2)
        };
        world.server.answers(move |received| {
            let is_first = answers(api, &received.json()) == 0;
            let mut last = said(2, 2);
            last.text = "the token is gw-0123456789abcdef".to_owned();
            reply(api, received, if is_first { &call } else { &last })
        });
        let run = world
            .run("go")
            .env("OPENAI_API_KEY", "sk-openai-0123456789")
            .env("ANTHROPIC_API_KEY", "sk-ant-0123456789");
        run.env("GATEWAY_TOKEN", "gw-0123456789abcdef").exits(0);
        let last = world.server.last();
        let (own, other) = match api {
            Api::Messages => ("sk-ant-0123456789", "sk-openai"),
            Api::Chat | Api::Responses => ("Bearer sk-openai-0123456789", "sk-ant"),
        };
        let header = if api == Api::Messages {
            "x-api-key"
        } else {
            "authorization"
        };
        assert_eq!(last.header(header), Some(own));
        assert_eq!(
            last.header("anthropic-version").is_some(),
            api == Api::Messages
        );
        assert_eq!(
            (last.header("x-plain"), last.header("x-secret")),
            (Some("1"), Some("gw-0123456789abcdef"))
        );
        assert!(last.headers.iter().all(|(_, value)| !value.contains(other)));
        assert!(
            last.line.starts_with(&format!("POST /v1/{} ", api.name())),
            "{}",
            last.line
        );
        let shown = world.latest().result(1)["observation_content"].to_string();
        assert!(!shown.contains("sk-") && !shown.contains("gw-"), "{shown}");
        for path in files_below(&world.path("ws")) {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            assert!(!text.contains("gw-0123456789abcdef"), "{}", path.display());
        }
    }
}

#[test]
fn hooks_see_one_form_and_what_they_change_is_sent_and_recorded() {
    for api in [Api::Responses, Api::Messages] {
        let world = world(api, true);
        world.script("agent/before.sh", "#!/bin/sh\nsed 's/go now/go later/' \"$DELTA_HOOK_IO_PATH/input/proposed_payload.json\" > \"$DELTA_HOOK_IO_PATH/output/final_payload.json\"\n");
        world.script("agent/after.sh", "#!/bin/sh\nsed 's/done/all done/' \"$DELTA_HOOK_IO_PATH/input/payload.json\" > \"$DELTA_HOOK_IO_PATH/output/final_payload.json\"\n");
        world.write("agent/hooks.yaml", "pre_llm_request: {command: ['${AGENT_HOME}/before.sh']}\npost_llm_response: {command: ['${AGENT_HOME}/after.sh']}\n");
        serve(&world, 3);
        world.run("go now").exits(0).prints("all done\n");
        let last = world.server.last().json().to_string();
        assert!(
            last.contains("go later") && !last.contains("go now"),
            "{last}"
        );
        assert!(
            last.contains("sealed-"),
            "the reasoning stays where nothing was changed"
        );
        world.go_on().args(["-m", "more"]).exits(0);
        let last = world.server.last().json().to_string();
        assert!(
            last.contains("all done") && !last.contains("\"done\""),
            "{last}"
        );
    }
}

/// How much of its input a service that caches finds in its cache, over a run.
#[test]
fn a_cache_serves_most_of_a_run() {
    let world = world(Api::Messages, true);
    let rules = "Mind the rules, all of them, in their order.\n".repeat(60);
    world.write("agent/system_prompt.md", rules);
    serve(&world, 10);
    world.run("go").exits(0);
    let mut known: HashMap<String, usize> = HashMap::new();
    let (mut read, mut whole) = (0, 0);
    for received in world.server.requests() {
        let request = received.json();
        let mut blocks = vec![request["tools"].clone()];
        blocks.extend(request["system"].as_array().unwrap().clone());
        for message in request["messages"].as_array().unwrap() {
            blocks.extend(message["content"].as_array().unwrap().clone());
        }
        let mut before = vec![String::new()];
        for block in &blocks {
            let next = before.last().unwrap().clone() + &without_marks(block.clone()).to_string();
            before.push(next);
        }
        let marks: Vec<usize> = (0..blocks.len())
            .filter(|at| blocks[*at].to_string().contains("cache_control"))
            .collect();
        assert!(!marks.is_empty() && marks.len() <= 4);
        // The service looks back over twenty blocks from each mark.
        let found = marks
            .iter()
            .flat_map(|mark| mark.saturating_sub(20)..=*mark);
        read += found
            .filter_map(|at| known.get(&before[at + 1]))
            .max()
            .unwrap_or(&0);
        whole += before.last().unwrap().len();
        for mark in marks {
            known.insert(before[mark + 1].clone(), before[mark + 1].len());
        }
    }
    assert!(read * 10 >= whole * 8, "{read} of {whole}");
}

#[test]
fn a_silent_answer_with_an_unknown_reason_is_asked_for_twice() {
    for (api, change) in [
        (
            Api::Chat,
            json!({"choices": [{"message": {"role": "assistant", "content": null}, "finish_reason": "novelty"}]}),
        ),
        (
            Api::Responses,
            json!({"status": "incomplete", "incomplete_details": {"reason": "novelty"}, "output": []}),
        ),
        (
            Api::Messages,
            json!({"stop_reason": "novelty", "content": []}),
        ),
    ] {
        for stream in [false, true] {
            let world = world(api, stream);
            let change = change.clone();
            world.server.answers(move |received| {
                let mut answer = answer_of(api, &received.json(), &said(1, 1));
                for (key, value) in change.as_object().unwrap() {
                    answer[key] = value.clone();
                }
                match stream {
                    true => streamed(&services::stream(api, &answer)),
                    false => completion(&answer),
                }
            });
            world
                .run("go")
                .exits(4)
                .says("neither text nor tool calls, for an unknown reason: novelty");
            assert_eq!(world.server.requests().len(), 2, "{api:?}, {stream}");
            let run = world.latest();
            assert_eq!(run.ending().1.as_deref(), Some("model_refused"));
            let metadata = std::fs::read_to_string(run.invocations()[0].join("metadata.json"));
            assert_eq!(metadata.unwrap().matches("reason: novelty").count(), 2);
        }
    }
}

#[test]
fn what_delta_cannot_honour_is_refused_with_the_reason() {
    for (llm, words) in [
        ("n: 2", "llm: n: one answer is read"),
        ("api: responses\nn: 1", "llm: n: one answer is read"),
        (
            "api: responses\nprevious_response_id: resp_1",
            "llm: previous_response_id: delta sends the whole",
        ),
        (
            "api: responses\nconversation: conv_1",
            "llm: conversation: delta sends the whole",
        ),
        (
            "api: responses\ncontext_management: [{type: compaction}]",
            "llm: context_management: the service would change",
        ),
        (
            "api: responses\nbackground: true",
            "llm: background: the service loses such an answer without store: true",
        ),
        (
            "api: responses\nbackground: true\nstore: false",
            "without store: true",
        ),
        (
            "api: responses\nbackground: true\nstore: true\nstream: true",
            "llm: stream: an answer in the background is polled",
        ),
        (
            "api: messages\ncontext_management: {edits: []}",
            "llm: context_management: the service would change",
        ),
        ("api: messages\ncompaction: {}", "llm: compaction: "),
        ("api: messages\nthread: t", "llm: thread: "),
        ("api: messages\nfallbacks: []", "llm: fallbacks: another"),
        ("api: messages\ncontainer: c", "llm: container: "),
    ] {
        let world = World::new().llm(llm);
        world.delta(["check", "agent"]).refuses(78, words);
        world.run("go").refuses(78, words);
        assert_eq!(world.server.requests().len(), 0, "{llm}");
    }
    let set = ["--set", "llm.api=responses", "--set", "llm.background=true"];
    let world = World::new();
    world.run("go").args(set).refuses(2, "store: true");
    for llm in [
        "n: 1",
        "thread: t",
        "api: responses\nbackground: false\nconversation: null",
        "api: messages\nn: 2\nbackground: true",
    ] {
        World::new().llm(llm).delta(["check", "agent"]).exits(0);
    }
}

#[test]
fn check_warns_of_another_apis_words() {
    for (llm, words) in [
        (
            "api: responses\nmax_tokens: 5",
            "max_tokens: it belongs to api: chat; for api: responses it is max_output_tokens",
        ),
        (
            "api: messages\nreasoning_effort: low",
            "for api: messages it is output_config.effort",
        ),
        (
            "api: messages\nreasoning: {effort: low}",
            "for api: messages it is output_config.effort",
        ),
        (
            "output_config: {format: {type: json_schema}}",
            "for api: chat it is response_format",
        ),
        (
            "api: responses\nresponse_format: {type: json_object}",
            "for api: responses it is text.format",
        ),
        (
            "api: messages\nthinking: {type: enabled, budget_tokens: 100}",
            "at least 1024",
        ),
        ("api: responses\nmax_output_tokens: 5", "no less than 16"),
    ] {
        let world = World::new().llm(llm);
        let ended = world.delta(["check", "agent"]).exits(0);
        let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), ended.stderr);
        assert!(said.contains(words), "{llm}: {said}");
    }
    let world = World::new().llm("max_completion_tokens: 9");
    world.server.accepts_anything();
    serve(&world, 1);
    let run = world.run("go").args(["--set", "llm.api=messages"]);
    let ended = run.exits(0);
    assert!(
        ended.stderr.contains("for api: messages it is max_tokens"),
        "{}",
        ended.stderr
    );
    World::new()
        .llm("api: gemini")
        .delta(["check", "agent"])
        .exits(78);
    World::new()
        .llm("headers: {host: x}")
        .delta(["check", "agent"])
        .exits(78);
}

/// Bytes in the gzip format (RFC 1952), in one block that is not compressed.
fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a short text");
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xEDB8_8320 & (sum & 1).wrapping_neg());
        }
    }
    let head = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    let sizes = [length.to_le_bytes(), (!length).to_le_bytes()].concat();
    let tail = [(!sum).to_le_bytes(), u32::from(length).to_le_bytes()].concat();
    [&head[..], &sizes, bytes, &tail].concat()
}

#[test]
fn compressed_answers_are_decoded_whole_and_streamed() {
    for (api, stream) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let world = world(api, stream);
        world.server.answers(move |received| {
            let answer = answer_of(api, &received.json(), &said(1, 1));
            let (body, kind) = match stream {
                true => (self::stream(api, &answer), "text/event-stream"),
                false => (answer.to_string(), "application/json"),
            };
            let reply = raw(gzipped(body.as_bytes())).header("Content-Encoding", "gzip");
            reply.header_instead("Content-Type", kind)
        });
        world.run("go").exits(0).prints("done\n");
        let asked = world.server.last();
        let accepted = asked.header("accept-encoding");
        assert_eq!(accepted, Some(if stream { "identity" } else { "gzip" }));
        let kept = std::fs::read(world.latest().invocations()[0].join("response.json")).unwrap();
        assert!(kept.starts_with(b"{"), "{kept:?}");
    }
}
