//! Which API is asked where agent.yaml does not say: that of the host.

use crate::harness::*;
use serde_json::Value;
use std::fs;

const OPENAI: &str = "https://api.openai.com/v1";
const ANTHROPIC: &str = "https://api.anthropic.com/v1";
const LOCAL: &str = "http://127.0.0.1:1/v1";

/// An agent with these keys under `llm`, and no other.
fn world(llm: &str) -> World {
    let world = World::unasked();
    world.write(
        "agent/agent.yaml",
        format!("name: probe\nllm: {{model: m, {llm}}}\n"),
    );
    world
}

/// What `--dry-run` says of the API: the word and its reason.
fn chosen(world: &World, variables: &[(&str, &str)], args: &[&str]) -> String {
    let mut run = world.run("go").args(["--dry-run", "--new"]).args(args);
    for (name, value) in variables {
        run = run.env(name, value);
    }
    let outcome = run.exits(0);
    let line = outcome
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("api "));
    line.expect("a line about the API").trim().to_owned()
}

#[test]
fn the_api_follows_the_host() {
    for (variables, expected) in [
        (&[][..], "responses (api.openai.com)"),
        (&[("DELTA_BASE_URL", OPENAI)], "responses (api.openai.com)"),
        (
            &[("OPENAI_BASE_URL", "https://eu.API.openai.com/v1")],
            "responses (eu.api.openai.com)",
        ),
        (
            &[("DELTA_BASE_URL", "https://api.anthropic.com")],
            "messages (api.anthropic.com)",
        ),
        (
            &[("OPENAI_BASE_URL", ANTHROPIC)],
            "chat (api.anthropic.com)",
        ),
        (&[("OPENAI_BASE_URL", LOCAL)], "chat (127.0.0.1)"),
        (
            &[("OPENAI_API_URL", "https://openrouter.ai/api/v1")],
            "chat (openrouter.ai)",
        ),
        (
            &[("DELTA_BASE_URL", "https://api.openai.com.example/v1")],
            "chat (api.openai.com.example)",
        ),
        (
            &[("DELTA_BASE_URL", "https://example.org/api.openai.com")],
            "chat (example.org)",
        ),
        (
            &[("ANTHROPIC_API_KEY", "k")],
            "messages (ANTHROPIC_API_KEY is the only key)",
        ),
        (
            &[("ANTHROPIC_API_KEY", "k"), ("OPENAI_API_KEY", "k")],
            "responses (api.openai.com)",
        ),
        (
            &[("ANTHROPIC_API_KEY", "k"), ("DELTA_API_KEY", "k")],
            "responses (api.openai.com)",
        ),
        (
            &[("ANTHROPIC_BASE_URL", LOCAL), ("OPENAI_API_KEY", "k")],
            "messages (ANTHROPIC_BASE_URL in the environment)",
        ),
        (
            &[("ANTHROPIC_BASE_URL", LOCAL), ("OPENAI_BASE_URL", LOCAL)],
            "chat (127.0.0.1)",
        ),
    ] {
        assert_eq!(
            chosen(&world(""), variables, &[]),
            expected,
            "{variables:?}"
        );
    }
    let local = format!("base_url: '{LOCAL}', api: auto");
    assert_eq!(chosen(&world(&local), &[], &[]), "chat (127.0.0.1)");
}

#[test]
fn a_parameter_that_only_chat_takes_keeps_chat() {
    for (llm, expected) in [
        ("seed: 1", "chat (llm.seed)"),
        ("max_tokens: 9", "chat (llm.max_tokens)"),
        ("max_output_tokens: 99", "responses (api.openai.com)"),
        ("temperature: 0", "responses (api.openai.com)"),
        ("reasoning: {effort: low}", "responses (api.openai.com)"),
        (
            "max_tokens: 9, base_url: 'https://api.anthropic.com'",
            "messages (api.anthropic.com)",
        ),
        (
            "max_completion_tokens: 9, base_url: 'https://api.anthropic.com'",
            "chat (llm.max_completion_tokens)",
        ),
        ("seed: 1, api: responses", "responses (agent.yaml)"),
    ] {
        assert_eq!(chosen(&world(llm), &[], &[]), expected, "{llm}");
    }
    assert_eq!(
        chosen(&world(""), &[], &["--set", "llm.stop=x"]),
        "chat (llm.stop)"
    );
}

#[test]
fn the_command_line_agent_yaml_and_the_variable_come_before_the_host() {
    let messages = [("DELTA_API", "messages")];
    let set = ["--set", "llm.api=responses"];
    let of_variable = "messages (DELTA_API in the environment)";
    assert_eq!(chosen(&world(""), &messages, &[]), of_variable);
    assert_eq!(chosen(&world("seed: 1"), &messages, &[]), of_variable);
    assert_eq!(chosen(&world("api: auto"), &messages, &[]), of_variable);
    assert_eq!(
        chosen(&world("api: chat"), &messages, &[]),
        "chat (agent.yaml)"
    );
    assert_eq!(
        chosen(&world("api: chat"), &messages, &set),
        "responses (the command line)"
    );
    let auto = ["--set", "llm.api=auto"];
    assert_eq!(chosen(&world("api: chat"), &messages, &auto), of_variable);
    // An unknown word counts where it would decide.
    let wrong = |world: &World| world.run("go").env("DELTA_API", "completions");
    let words = "DELTA_API in the environment: 'completions' is not one of auto, chat";
    wrong(&world("")).refuses(78, words);
    wrong(&world(""))
        .arg("--dry-run")
        .refuses(78, words)
        .does_not_say("chat ()");
    let stated = world("api: chat");
    wrong(&stated).arg("--dry-run").exits(0);
    world("api: completions")
        .delta(["check", "agent"])
        .refuses(78, "one of auto, chat, responses, messages");
}

#[test]
fn a_workspace_names_no_api_unless_its_agent_allows_it() {
    let world = world("");
    world.write("ws/.env", "DELTA_API=chat\n");
    assert_eq!(chosen(&world, &[], &[]), "responses (api.openai.com)");
    let yaml = "name: probe\nworkspace_env: [DELTA_API]\nllm: {model: m}\n";
    world.write("agent/agent.yaml", yaml);
    assert_eq!(
        chosen(&world, &[], &[]),
        "chat (DELTA_API in the workspace's .env)"
    );
    world.write("agent/.env", "DELTA_API=messages\n");
    world.write("agent/agent.yaml", "name: probe\nllm: {model: m}\n");
    assert_eq!(
        chosen(&world, &[], &[]),
        "messages (DELTA_API in the agent's .env)"
    );
}

#[test]
fn a_program_is_asked_in_chat_completions() {
    let world = World::new().program([text("done")]);
    let run = || world.run("go").env("DELTA_API", "messages");
    run().exits(0).prints("done\n");
}

/// What a start records of the API.
fn recorded(run: &Run) -> (Value, Value) {
    let start = run.events("ENGINE_START").pop().unwrap();
    let llm = &start["config"]["llm"];
    (llm["api"].clone(), llm["endpoint"].clone())
}

#[test]
fn a_run_keeps_its_api_while_it_asks_the_same_endpoint() {
    let world = World::new();
    world.server.accepts_anything();
    let answer = services::answer_of(
        services::Api::Responses,
        &Value::Null,
        &services::Said {
            text: "one".to_owned(),
            ..Default::default()
        },
    );
    world.model_says([completion(&answer), completion(&answer), text("two")]);
    world
        .run("go")
        .env("DELTA_API", "responses")
        .exits(0)
        .prints("one\n");
    let here = world.server.url();
    assert_eq!(
        recorded(&world.latest()),
        ("responses".into(), here.clone().into())
    );
    let go_on = || world.go_on().args(["-m", "on"]);
    go_on().exits(0).prints("one\n");
    // Another spelling of the address is another endpoint.
    let other = here.replace("127.0.0.1", "localhost");
    let yaml = format!("name: probe\nllm: {{model: scripted, base_url: '{other}'}}\n");
    world.write("agent/agent.yaml", yaml);
    go_on().exits(0).prints("two\n");
    assert_eq!(recorded(&world.latest()), ("chat".into(), other.into()));
    let requests = world.server.requests();
    let paths = requests
        .iter()
        .map(|it| it.line.split(' ').nth(1).unwrap().to_owned());
    assert_eq!(
        paths.collect::<Vec<_>>(),
        ["/v1/responses", "/v1/responses", "/v1/chat/completions"]
    );
}

#[test]
fn a_run_without_a_recorded_api_goes_on_with_chat() {
    let world = World::new();
    world.model_says([text("one")]);
    world.run("go").exits(0);
    let path = world.latest().path("journal.jsonl");
    let journal = fs::read_to_string(&path).unwrap();
    let here = world.server.url();
    let old = journal
        .replace(r#","api":"chat""#, "")
        .replace(&format!(r#","endpoint":"{here}""#), "");
    assert_ne!(journal, old);
    fs::write(&path, old).unwrap();
    world.write("agent/agent.yaml", "name: probe\nllm: {model: scripted}\n");
    let again = || world.go_on().args(["-m", "on"]);
    again()
        .env("DELTA_API", "completions")
        .refuses(78, "DELTA_API");
    let request = world
        .delta(["request", "-w", "ws", "--next"])
        .exits(0)
        .stdout;
    let request: Value = serde_json::from_slice(&request).unwrap();
    assert!(request["messages"].is_array(), "{request}");
    let yaml = "name: probe\nllm: {model: scripted, api: responses}\n";
    world.write("agent/agent.yaml", yaml);
    let request = world
        .delta(["request", "-w", "ws", "--next"])
        .exits(0)
        .stdout;
    let request: Value = serde_json::from_slice(&request).unwrap();
    assert!(request["input"].is_array(), "{request}");
}
