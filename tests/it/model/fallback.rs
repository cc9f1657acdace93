//! The models that are asked in place of one that fails, and what never reaches them.

use crate::harness::services::{Api, Said, reply};
use crate::harness::*;
use serde_json::{Value, json};

const NOTE: &str = "- {name: note, shell: 'echo did >> ../log'}";

/// A world with another server, which is asked when the first fails.
fn with_other(more: &str) -> (World, Server) {
    with_other_and("max_retries: 0", more)
}

fn with_other_and(llm: &str, more: &str) -> (World, Server) {
    let other = Server::start();
    other.may_stay_unasked();
    let entry = format!("{{model: second, base_url: '{}'{more}}}", other.url());
    let world = World::with_tools(NOTE);
    let url = world.server.url();
    let llm = format!("base_url: {url}\n{llm}\nfallback: [{entry}]");
    (world.llm(&llm), other)
}

fn error(status: u16, code: &str) -> Reply {
    let body = json!({"error": {"message": format!("scripted {code}"), "type": "t", "code": code}});
    completion(&body).status(status)
}

fn quota() -> Reply {
    error(429, "insufficient_quota")
}

fn changes(world: &World) -> Vec<Value> {
    world.latest().events("MODEL_CHANGED")
}

fn version(world: &World) -> String {
    world.read("ws/.delta/VERSION")
}

#[test]
fn an_outage_and_a_quota_lead_to_the_next_model_in_the_same_iteration() {
    for (reply, how) in [
        (Reply::error(503, "down"), "unavailable: "),
        (quota(), "quota: "),
    ] {
        let (world, other) = with_other("");
        world.model_says([reply]);
        other.says([call("a", "note", &json!({})), text("done")]);
        world
            .run("go")
            .exits(0)
            .prints("done\n")
            .says("asking second at http://");
        assert_eq!(
            (world.server.requests().len(), other.requests().len()),
            (1, 2)
        );
        assert_eq!(other.requests()[0].json()["model"], "second");
        let changes = changes(&world);
        assert_eq!(changes.len(), 1, "{changes:?}");
        let text = |key: &str| changes[0][key].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("from"), format!("scripted at {}", world.server.url()));
        assert_eq!(text("to"), format!("second at {}", other.url()));
        assert!(text("why").starts_with(how), "{}", text("why"));
        assert_eq!(world.latest().metadata()["iterations"], 2);
        assert_eq!(version(&world), "1.3\n");
        let log = world.delta(["log", "-w", "ws"]).exits(0);
        assert!(String::from_utf8_lossy(&log.stdout).contains("-> second at http://"));
    }
}

#[test]
fn an_entry_inherits_the_time_the_retries_and_the_form_of_answers() {
    let of_the_chain = "max_retries: 1\ntimeout_ms: 4000\nstream: true";
    let (world, other) = with_other_and(of_the_chain, "");
    world.model_says([quota()]);
    // The first answer is not waited for any longer, and is asked for again.
    let done = Said {
        text: "done".to_owned(),
        ..Said::default()
    };
    let streamed = Reply::of(move |received| reply(Api::Chat, received, &done));
    other.says([text("never heard").held(), streamed]);
    world.run("go").exits(0).prints("done\n");
    let asked = other.requests();
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|it| it.json()["stream"] == true));
    // What it says itself counts.
    let (world, other) = with_other_and(of_the_chain, ", max_retries: 0, stream: false");
    world.model_says([quota()]);
    other.says([Reply::error(503, "down")]);
    world.run("go").exits(75);
    let asked = other.requests();
    assert_eq!(asked.len(), 1);
    assert_ne!(asked[0].json()["stream"], true);
}

#[test]
fn a_fork_elsewhere_that_begins_with_a_change_marks_its_workspace() {
    let (world, other) = with_other("");
    world.model_says([Reply::error(503, "down"), text("forked")]);
    other.says([call("a", "note", &json!({})), text("done")]);
    world.run("go").exits(0);
    world
        .delta(["fork", "-w", "ws", "--at", "1", "--to", "new", "LATEST"])
        .exits(0);
    assert_eq!(world.read("new/.delta/VERSION"), "1.3\n");
}

#[test]
fn without_a_failure_nothing_changes() {
    let (world, other) = with_other("");
    world.model_says([text("done")]);
    world.run("go").exits(0);
    assert_eq!(other.requests().len(), 0);
    assert_eq!(
        (changes(&world).len(), version(&world)),
        (0, "1.2\n".to_owned())
    );
}

#[test]
fn a_refusal_leads_on_only_where_after_lists_it() {
    let (world, other) = with_other("");
    world.model_says([error(400, "odd")]);
    world.run("go").exits(4).says("scripted odd");
    assert_eq!((other.requests().len(), changes(&world).len()), (0, 0));
    let (world, other) = with_other(", after: [refused]");
    world.model_says([error(400, "odd")]);
    other.says([text("done")]);
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn if_none_answers_an_outage_of_any_decides() {
    let (world, other) = with_other("");
    world.model_says([quota()]);
    other.says([Reply::error(503, "down")]);
    let end = world
        .run("go")
        .exits(75)
        .says("scripted insufficient_quota");
    end.says("down");
    assert_eq!(
        world.latest().ending().1.as_deref(),
        Some("model_unavailable")
    );
    let (world, other) = with_other("");
    world.model_says([quota()]);
    other.says([error(400, "odd")]);
    world.run("go").exits(4).says("scripted insufficient_quota");
    assert_eq!(world.latest().ending().1.as_deref(), Some("model_refused"));
}

#[test]
fn the_next_start_asks_the_first_again_but_not_before_its_time() {
    let (world, other) = with_other("");
    let world = world.top("max_iterations: 1");
    let note = |id: &str| call(id, "note", &json!({}));
    world.model_says([Reply::error(503, "down")]);
    other.says([note("a")]);
    world.run("go").exits(4);
    // Nothing was said of a time.
    world.model_says([Reply::error(503, "full").header("Retry-After", "86400")]);
    other.says([note("b")]);
    world.run("go").exits(4);
    let until = changes(&world)[1]["until"]
        .as_str()
        .expect("a time")
        .to_owned();
    other.says([note("c")]);
    world
        .run("go")
        .exits(4)
        .says(&format!("is not asked before {until}"));
    assert_eq!(world.server.requests().len(), 2);
    assert_eq!(changes(&world)[2]["until"], until.as_str());
    // The next day.
    let journal = world.latest().path("journal.jsonl");
    let text_of = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(
        &journal,
        text_of.replace(&until, "2020-01-01T00:00:00.000Z"),
    )
    .unwrap();
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
    assert_eq!(
        (world.server.requests().len(), other.requests().len()),
        (3, 3)
    );
}

#[test]
fn within_a_start_the_model_that_answered_is_asked_on() {
    let (world, other) = with_other("");
    world.model_says([Reply::error(503, "down")]);
    let note = |n: usize| call(&format!("c{n}"), "note", &json!({}));
    other.says((1..=4).map(note).chain([text("done")]));
    world.run("go").exits(0);
    assert_eq!(
        (world.server.requests().len(), other.requests().len()),
        (1, 5)
    );
}

#[test]
fn a_key_that_an_entry_does_not_name_goes_to_no_other_endpoint() {
    const MAIN: &str = "sk-main-0123456789abcdef";
    const OWN: &str = "sk-own-0123456789abcdef";
    for (key, sent) in [
        ("", None),
        (", key: OWN_KEY", Some(OWN)),
        (", key: UNSET", None),
    ] {
        let (world, other) = with_other(key);
        world.model_says([Reply::error(503, "down")]);
        other.says([call("a", "note", &json!({})), text("done")]);
        let run = world
            .run("go")
            .env("OWN_KEY", OWN)
            .env("DELTA_API_KEY", MAIN);
        run.env("OPENAI_API_KEY", MAIN).exits(0).prints("done\n");
        for request in other.requests() {
            let sent = sent.map(|key| format!("Bearer {key}"));
            assert_eq!(request.header("authorization"), sent.as_deref(), "{key}");
        }
    }
    // At the endpoint of the first it is the key of the first.
    let (world, _) = with_other("");
    let yaml = world.read("agent/agent.yaml");
    let entry = format!(
        "fallback: [{{model: second, base_url: '{}/'}}]",
        world.server.url()
    );
    let at = yaml.find("fallback:").unwrap();
    let end = at + yaml[at..].find('\n').unwrap();
    world.write(
        "agent/agent.yaml",
        format!("{}{entry}{}", &yaml[..at], &yaml[end..]),
    );
    world.model_says([Reply::error(503, "down"), text("done")]);
    world.run("go").env("DELTA_API_KEY", MAIN).exits(0);
    let header = format!("Bearer {MAIN}");
    assert_eq!(world.server.last().json()["model"], "second");
    assert_eq!(world.server.last().header("authorization"), Some(&*header));
    // Elsewhere there is none, and a vendor's own is for the vendor alone.
    let entries = "{model: a, base_url: 'http://192.0.2.1/v1'}, {model: b, base_url: 'https://api.openai.com:x@192.0.2.1/v1'}, \
                   {model: c, api: messages}, {model: d, base_url: 'https://eu.api.openai.com/v1'}, {model: e, base_url: \
                   'https://api.openai.com.evil.example/v1'}, {model: f, base_url: 'http://192.0.2.1/v1', key: NOT_SET}";
    world.write(
        "agent/agent.yaml",
        format!("{}fallback: [{entries}]{}", &yaml[..at], &yaml[end..]),
    );
    let shown = world.run("go").arg("--dry-run").env("OPENAI_API_KEY", MAIN);
    let shown = shown.env("DELTA_API_KEY", OWN).exits(0);
    let shown = shown.stderr;
    let lines: Vec<&str> = shown
        .lines()
        .filter(|line| line.starts_with("fallback"))
        .collect();
    for (line, said) in lines.iter().zip([
        "skipped: no key for http://192.0.2.1/v1; name its variable (key: NAME)",
        "skipped: the base URL 'https://…@192.0.2.1/v1' cannot be used",
        "skipped: no key for https://api.anthropic.com/v1; set ANTHROPIC_API_KEY",
        "OPENAI_API_KEY in the environment",
        "skipped: no key for https://api.openai.com.evil.example/v1",
        "skipped: no key for http://192.0.2.1/v1; set NOT_SET",
    ]) {
        assert!(line.contains(said), "{line}");
    }
    assert_eq!(lines.len(), 6);
    let (world, _) = with_other(", key: 'sk-12345'");
    let said = "llm: fallback: key: expected the name of a variable, which holds the key";
    world.delta(["check", "agent"]).exits(78).says(said);
}

#[test]
fn no_key_and_no_reasoning_of_one_reaches_the_other() {
    const FIRST: &str = "sk-first-0123456789abcdef";
    const SECOND: &str = "sk-second-0123456789abcdef";
    for second_api in ["chat", "messages"] {
        let is_chat = second_api == "chat";
        let name = if is_chat {
            "OPENAI_API_KEY"
        } else {
            "ANTHROPIC_API_KEY"
        };
        let (world, other) =
            with_other(&format!(", api: {second_api}, stream: false, key: {name}"));
        // Of the same name, so that only the service tells them apart.
        let world = world.llm("headers: {authorization: {env: FIRST_KEY}}");
        let yaml = world.read("agent/agent.yaml");
        world.write(
            "agent/agent.yaml",
            yaml.replace("model: second", "model: scripted"),
        );
        let thought = json!({"role": "assistant", "content": "t", "reasoning_content": "secret-thoughts",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "note", "arguments": "{}"}}]});
        world.server.accepts_anything();
        other.accepts_anything();
        world.model_says([message(&thought), Reply::error(503, "down")]);
        if is_chat {
            other.says([text(&format!("done {FIRST}"))]);
        } else {
            let said = json!({"id": "m", "type": "message", "role": "assistant", "model": "scripted",
                "content": [{"type": "text", "text": format!("done {FIRST}")}], "stop_reason": "end_turn",
                "usage": {"input_tokens": 5, "output_tokens": 5}});
            other.says([completion(&said)]);
        }
        let run = world.run("go").env("FIRST_KEY", FIRST).env(name, SECOND);
        run.exits(0).prints("done [redacted]\n");
        let first = world.server.requests();
        assert_eq!(first[0].header("authorization"), Some(FIRST));
        assert!(String::from_utf8_lossy(&first[1].body).contains("secret-thoughts"));
        for received in other.requests() {
            let all = format!(
                "{:?}{}",
                received.headers,
                String::from_utf8_lossy(&received.body)
            );
            assert!(all.contains(SECOND), "{all}");
            for leak in [FIRST, "secret-thoughts"] {
                assert!(!all.contains(leak), "{leak} in {all}");
            }
        }
        for received in first {
            let all = format!(
                "{:?}{}",
                received.headers,
                String::from_utf8_lossy(&received.body)
            );
            assert!(!all.contains(SECOND), "{all}");
        }
    }
}

#[test]
fn the_reasoning_of_the_other_does_not_go_back_to_the_first() {
    let (world, other) = with_other("");
    let world = world.top("max_iterations: 1");
    let yaml = world.read("agent/agent.yaml");
    world.write(
        "agent/agent.yaml",
        yaml.replace("model: second", "model: scripted"),
    );
    let thought = json!({"role": "assistant", "content": "t", "reasoning_content": "secret-thoughts",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "note", "arguments": "{}"}}]});
    world.model_says([Reply::error(503, "down"), text("done")]);
    other.says([message(&thought)]);
    world.run("go").exits(4);
    world.run("go").exits(0).prints("done\n");
    let last = world.server.last();
    assert!(!String::from_utf8_lossy(&last.body).contains("secret-thoughts"));
}

#[test]
fn a_model_chosen_elsewhere_leaves_the_chain_out_at_later_starts_too() {
    // The endpoint, by the environment of the first start only.
    let other = Server::start();
    other.may_stay_unasked();
    let world = World::unasked().llm(&format!(
        "base_url: http://127.0.0.1:9/v1\nmax_retries: 0\nfallback: [{{model: second, base_url: '{}'}}]",
        other.url()
    ));
    let yaml = world.read("agent/agent.yaml");
    world.write(
        "agent/agent.yaml",
        yaml.replace("  base_url: http://127.0.0.1:9/v1\n", ""),
    );
    let local = Server::start();
    local.says([Reply::error(503, "down")]);
    let first = world.run("go").env("DELTA_BASE_URL", local.url());
    first.exits(75).says("down");
    world.write("agent/agent.yaml", &yaml);
    world.run("go").exits(75);
    world.go_on().args(["-m", "more"]).exits(75);
    assert_eq!(
        other.requests().len(),
        0,
        "a task for a local server was sent elsewhere"
    );
    other.says([text("done")]);
    let chain = format!(
        "llm.fallback=[{{model: third, base_url: '{}'}}]",
        other.url()
    );
    world
        .go_on()
        .args(["--set", &chain])
        .exits(0)
        .prints("done\n");

    // By the command line, and then by the run's record.
    for key in ["-M", "--set"] {
        let (world, other) = with_other("");
        let value = if key == "-M" {
            "named"
        } else {
            "llm.model=named"
        };
        world.model_says([Reply::error(503, "down"), Reply::error(503, "down")]);
        world.run("go").args([key, value]).exits(75);
        world.go_on().exits(75);
        assert_eq!(other.requests().len(), 0);
    }
    let (world, other) = with_other("");
    world.model_says([Reply::error(503, "down")]);
    other.says([text("done")]);
    world
        .run("go")
        .args(["--set", "llm.temperature=0"])
        .exits(0);
}

#[test]
fn an_entry_without_a_key_or_a_price_is_passed_over_with_a_warning() {
    let other = Server::start();
    let world = World::new();
    let chain = format!(
        "base_url: {}\nmax_retries: 0\nfallback: [{{model: keyless, api: messages}}, {{model: second, base_url: '{}'}}]",
        world.server.url(),
        other.url()
    );
    let world = world.llm(&chain);
    world.model_says([quota()]);
    other.says([text("done")]);
    world
        .run("go")
        .exits(0)
        .says("keyless is skipped: no key for https://");
    let (world, other) = with_other("");
    let world = world.top("budget: {cost: 1}\npricing: {input: 1, output: 1}");
    world.model_says([quota()]);
    world
        .run("go")
        .exits(4)
        .says("is skipped: the budget limits the cost");
    assert_eq!(other.requests().len(), 0);
}

#[test]
fn a_budget_counts_all_models_at_their_own_prices() {
    let (world, other) = with_other("");
    let prices = "pricing: {scripted: {input: 1, output: 1}, second: {input: 1000, output: 1000}}";
    let world = world.top(&format!("budget: {{cost: 0.2}}\n{prices}"));
    let note = |n: usize| call(&format!("c{n}"), "note", &json!({}));
    world.model_says([note(1), quota()]);
    // Each is 0.11.
    other.says([note(2), note(3)]);
    world.run("go").exits(4).says("the budget is used up");
    let ledger = world.latest().text("spending.jsonl");
    for model in ["scripted", "second"] {
        assert!(
            ledger.contains(&format!("\"model\":\"{model}\"")),
            "{ledger}"
        );
    }
}

#[test]
fn what_reaches_a_model_by_another_api_is_the_same_conversation() {
    let (world, other) = with_other(", api: messages");
    world.model_says([call("a", "note", &json!({})), Reply::error(503, "down")]);
    other.answers(|received| {
        let said = Said {
            text: "done".to_owned(),
            ..Said::default()
        };
        reply(services::Api::Messages, received, &said)
    });
    world.run("go").exits(0).prints("done\n");
    let sent = other.last();
    assert!(sent.line.contains("/messages"), "{}", sent.line);
    let body = String::from_utf8_lossy(&sent.body).into_owned();
    assert!(
        body.contains("\"tool_use_id\":\"a\"") && body.contains("\"go\""),
        "{body}"
    );
}

#[test]
fn the_chain_is_printed_and_checked() {
    let (world, other) = with_other("");
    world.server.may_stay_unasked();
    let dry = world.run("go").arg("--dry-run").exits(0);
    dry.says(&format!(
        "second at {} (after unavailable, quota)",
        other.url()
    ));
    let wrong = [
        (
            "fallback: [{model: x, after: [never]}]",
            "after: expected a list of these: unavailable, quota, refused",
        ),
        (
            "fallback: [{temperature: 1}]",
            "an entry needs model: or command:",
        ),
        (
            "fallback: [{model: x, fallback: []}]",
            "an entry has none of its own",
        ),
        ("fallback: 5", "fallback"),
    ];
    for (yaml, words) in wrong {
        let world = World::unasked().llm(yaml);
        world.delta(["check", "agent"]).exits(78).says(words);
    }
    let world = World::unasked().llm("fallback: [{model: x, after: []}]");
    world
        .delta(["check", "agent"])
        .exits(0)
        .says("this entry is never asked");
    let world = World::unasked().llm("api: messages\nfallbacks: [x]");
    world.delta(["check", "agent"]).exits(78).says("fallbacks");
}

#[test]
fn a_kill_after_the_change_asks_the_first_again() {
    let (world, other) = with_other("");
    world.model_says([Reply::error(503, "down")]);
    other.says([text("never heard").held()]);
    let running = world.run("go").spawn();
    other.wait_for(1);
    running.kill();
    assert_eq!(changes(&world).len(), 1);
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
}

#[test]
fn an_entry_whose_window_is_too_small_is_passed_over_unless_conversations_are_shortened() {
    for (compact, is_asked) in [("", false), ("compact: {}", true)] {
        let (world, other) = with_other(", window: 900");
        let world = world.top(compact);
        let long = json!({"role": "assistant", "content": "x".repeat(9000), "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "note", "arguments": "{}"}}]});
        world.model_says([message(&long), quota()]);
        other.says([text("done"), text("done")]);
        let end = world.run("go");
        match is_asked {
            true => drop(end.exits(0)),
            false => drop(end.exits(4).says("its window of 900 tokens is too small")),
        }
        assert_eq!(!other.requests().is_empty(), is_asked);
    }
}

#[test]
fn what_a_refusal_of_an_entry_has_taught_counts_at_later_starts() {
    let (world, other) = with_other("");
    let world = world.top("max_iterations: 1");
    let long = json!({"role": "assistant", "content": "x".repeat(9000), "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "note", "arguments": "{}"}}]});
    world.model_says([message(&long)]);
    world.run("go").exits(4);
    world.model_says([quota()]);
    let words = "This model's maximum context length is 900 tokens";
    other.says([Reply::error(400, words)]);
    world.run("go").exits(4).says("context_full");
    world.model_says([quota()]);
    let again = world.run("go").exits(4);
    again.says("its window of 900 tokens is too small");
    assert_eq!(other.requests().len(), 1);
}

#[test]
fn without_fallback_in_the_environment_no_other_model_is_asked_at_later_starts_either() {
    let (world, other) = with_other("");
    world.model_says([quota(), quota()]);
    let first = world.run("go").env("DELTA_NO_FALLBACK", "1");
    first.exits(4).says("scripted insufficient_quota");
    world.run("go").exits(4);
    assert_eq!(other.requests().len(), 0);
}

#[test]
fn a_chain_that_was_left_out_is_not_asked_after_an_answer_that_was_still_to_be_judged() {
    let (world, other) = with_other("");
    let world = world.top("accept: [{command: [sh, -c, 'exit $(cat ../verdict)']}]");
    world.write("verdict", "75");
    world.model_says([text("one")]);
    let first = world.run("go").env("DELTA_NO_FALLBACK", "1");
    first.exits(75).says("accept");
    world.write("verdict", "1");
    world.model_says([quota()]);
    world.run("go").exits(4).says("scripted insufficient_quota");
    assert_eq!(other.requests().len(), 0);
}

#[test]
fn a_replay_asks_the_models_that_were_asked() {
    for more in ["", ", api: messages"] {
        let (world, other) = with_other(more);
        let world = world.top("max_iterations: 3");
        let thinks = |id: &str| {
            let call = json!({"id": id, "type": "function", "function": {"name": "note", "arguments": "{}"}});
            message(
                &json!({"role": "assistant", "content": null, "reasoning_content": id, "tool_calls": [call]}),
            )
        };
        world.model_says([thinks("a"), Reply::error(503, "down")]);
        if more.is_empty() {
            other.says([thinks("b"), thinks("c")]);
        } else {
            let mut n = 0;
            other.answers(move |received| {
                n += 1;
                let said = Said {
                    thinking: format!("about {n}"),
                    calls: vec![(format!("m{n}"), "note".to_owned(), json!({}))],
                    ..Said::default()
                };
                reply(services::Api::Messages, received, &said)
            });
        }
        world.run("go").exits(4);
        world.model_says([thinks("d"), text("done")]);
        world.run("go").exits(0);
        assert_eq!(other.requests().len(), 2);
        let replay = || world.delta(["replay", "-w", "ws", "LATEST"]);
        replay().exits(0).prints("identical: 5 requests\n");
        // Whatever the environment says of it now.
        let replayed = replay().env("DELTA_NO_FALLBACK", "1");
        replayed.exits(0).prints("identical: 5 requests\n");
    }
}
