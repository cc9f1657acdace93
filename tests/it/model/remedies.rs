//! What a service refuses in one way is sent in another, once, and a run that is resumed knows it.

use crate::harness::services::*;
use crate::harness::steps::*;
use serde_json::{Value, json};

const WRONG_REASONING: [(Api, &str, &str); 2] = [
    (
        Api::Messages,
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "",
    ),
    (
        Api::Responses,
        "The encrypted content could not be verified.",
        "invalid_encrypted_content",
    ),
];

const TOO_MANY: &str =
    "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for scripted";

#[test]
fn a_refusal_over_reasoning_is_met_by_one_request_without_it() {
    for (api, words, code) in WRONG_REASONING {
        let world = world(api, true);
        let mut heard = 0;
        world.server.answers(move |received| {
            heard += 1;
            let request = received.json();
            match heard {
                3 => refusal(words, code),
                _ => reply(api, received, &said(answers(api, &request) + 1, 5)),
            }
        });
        world.run("go").exits(0).prints("done\n");
        let requests = world.server.requests();
        let sealed = |n: usize| requests[n].json().to_string().contains("sealed-");
        assert!(sealed(2) && !sealed(3), "{api:?}");
        assert_eq!(requests.len(), 6);
        let run = world.latest();
        let notes = run.events("SYSTEM_MESSAGE");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert_eq!(run.invocations().len(), 6);
        world
            .delta(["replay", "-w", "ws", "LATEST"])
            .exits(0)
            .prints("identical: 5 requests\n");
    }
}

#[test]
fn reasoning_that_was_refused_stays_out_for_the_rest_of_the_run() {
    for (api, words, code) in WRONG_REASONING {
        let world = world(api, false);
        let mut heard = 0;
        world.server.answers(move |received| {
            heard += 1;
            let request = received.json();
            match heard {
                3 => refusal(words, code),
                _ => reply(api, received, &said(answers(api, &request) + 1, 8)),
            }
        });
        world.run("go").args(["--max-iterations", "2"]).exits(4);
        world.run("go").args(["--max-iterations", "2"]).exits(4);
        world.run("go").exits(0).prints("done\n");
        let requests = world.server.requests();
        let kept: Vec<Vec<String>> = requests
            .iter()
            .map(|it| {
                let text = it.json().to_string();
                let steps = (1..8).map(|n| format!("about step {n}"));
                steps.filter(|step| text.contains(step)).collect()
            })
            .collect();
        let steps = |from: usize, to: usize| -> Vec<String> {
            (from..=to).map(|n| format!("about step {n}")).collect()
        };
        assert_eq!(kept[2], steps(1, 2), "{api:?}");
        for kept in &kept[3..] {
            assert_eq!(kept, &[""; 0], "{api:?}");
        }
        assert_eq!(requests.len(), 9);
        world
            .delta(["replay", "-w", "ws", "LATEST"])
            .exits(0)
            .prints("identical: 8 requests\n");
    }
}

#[test]
fn a_limit_and_a_parameter_that_the_service_refuses_are_corrected_once_in_a_run() {
    let world = world(Api::Messages, false);
    world.model_says([refusal(TOO_MANY, "")]);
    serve(&world, 4);
    world.run("go").args(["--max-iterations", "2"]).exits(4);
    // Another start knows the limit; another model may have another.
    let id = world.latest().id();
    let next = world.delta(["request", "-w", "ws", &id, "--next"]).end();
    let next: Value = serde_json::from_slice(&next.exits(0).stdout).unwrap();
    assert_eq!(next["max_tokens"], 8192);
    let go_on = || world.go_on().args(["--max-iterations", "1"]);
    go_on().exits(4);
    let less = go_on().args(["--set", "llm.max_tokens=100"]);
    less.exits(0);
    let other = world
        .go_on()
        .args(["-m", "more", "--set", "llm.model=other"]);
    other.args(["--set", "llm.max_tokens="]).exits(0);
    let limits: Vec<Value> = world
        .server
        .requests()
        .iter()
        .map(|it| it.json()["max_tokens"].clone())
        .collect();
    assert_eq!(limits, [32000, 8192, 8192, 8192, 100, 32000]);

    for (api, words, key) in [
        (
            Api::Responses,
            "Encrypted content is not supported with this model.",
            "include",
        ),
        (
            Api::Chat,
            "Unrecognized request argument: stream_options",
            "stream_options",
        ),
    ] {
        let world = self::world(api, true);
        world.model_says([refusal(words, "")]);
        serve(&world, 4);
        world.run("go").args(["--max-iterations", "2"]).exits(4);
        world.run("go").exits(0);
        let requests = world.server.requests();
        let sent = requests.iter().map(|it| it.json().get(key).is_some());
        let sent: Vec<bool> = sent.collect();
        assert_eq!(sent, [true, false, false, false, false], "{api:?}");
        // A fork of the run goes on with what it knows.
        let id = world.latest().id();
        let fork = world.delta(["fork", "-w", "ws", &id, "--at", "2", "-m", "x"]);
        fork.exits(0);
        let requests = world.server.requests();
        assert!(requests[5..].iter().all(|it| it.json().get(key).is_none()));
    }

    // A refusal that comes again ends the run.
    let world = self::world(Api::Responses, false);
    world.model_says([1, 2].map(|_| refusal("Unknown parameter: 'include'.", "")));
    world.run("go").exits(4);
}

#[test]
fn a_model_that_thinks_when_told_to_is_not_told_to_any_more() {
    let world = world(Api::Messages, false)
        .llm("max_tokens: 20000\nthinking: {type: enabled, budget_tokens: 1024}");
    let mut heard = 0;
    world.server.answers(move |received| {
        heard += 1;
        let request = received.json();
        match heard {
            2 => refusal(
                "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`",
                "",
            ),
            _ => reply(Api::Messages, received, &said(answers(Api::Messages, &request) + 1, 3)),
        }
    });
    world.run("go").exits(0);
    let requests = world.server.requests();
    let told = requests
        .iter()
        .map(|it| it.json().get("thinking").is_some());
    assert_eq!(told.collect::<Vec<_>>(), [true, true, false, false]);
    assert_eq!(
        requests[3].json()["thinking"],
        json!(null),
        "for the rest of the run"
    );
}
