//! Providers: where models are asked, which key they get, who sees it, and what is recorded of them.

use crate::flow::run::run;
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const KEY: &str = "sk-0123456789-provider";

/// A flow whose node `a` is an agent that asks the model `m-1` of this provider, and whose node `b` is a
/// program.
fn world(provider: &str) -> World {
    let world = World::new();
    let nodes = [
        start(),
        node("a", "linear", ", agent_id: ag, tools: [spy]").replace("deterministic", "agent"),
        node("b", "linear", ", output: text, shell: 'cat; env'"),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>a a>b b>x"));
    world.write(
        "f/agents.yaml",
        "agents:\n- {id: ag, llm: acme/m-1, prompt: Be brief.}\n",
    );
    world.write("f/tools.yaml", "tools:\n- {id: spy, shell: env}\n");
    let provider = provider.replace("SERVER", &world.server.url());
    world.write(
        "f/providers.yaml",
        format!("providers:\n- {{id: acme, {provider}}}\n"),
    );
    world
}

fn command(world: &World) -> Delta {
    run(world).args(["--run-id", "r", "-m", "hello"])
}

const FROM_ENV: &str = "base_url: SERVER, credential: {source: env, name: ACME_KEY}";

fn asked(world: &World) -> Value {
    let metadata = fs::read(world.path("ws/.delta/r/metadata.json")).unwrap();
    let metadata: Value = serde_json::from_slice(&metadata).unwrap();
    metadata["flow"]["agents"].clone()
}

/// The files below a directory that hold a text.
fn holding(dir: &Path, text: &str) -> Vec<String> {
    let holds = |path: &&std::path::PathBuf| {
        let bytes = fs::read(path).unwrap();
        String::from_utf8_lossy(&bytes).contains(text)
    };
    let files = files_below(dir);
    let found = files.iter().filter(holds);
    found.map(|path| path.display().to_string()).collect()
}

#[test]
fn a_key_goes_to_its_provider_and_nobody_else_sees_it() {
    let world = world(FROM_ENV);
    world.model_says([call("c", "spy", &json!({})), text("1")]);
    // Keys for other endpoints, and a copy under another name.
    world.write(
        "ws/.env",
        "DELTA_API_KEY=sk-of-the-workspace-1\nDELTA_PROVIDER_KEY=sk-wrong-123456\n",
    );
    let outcome = command(&world)
        .env("ACME_KEY", KEY)
        .env("COPY", KEY)
        .env("OPENAI_API_KEY", "sk-of-another-endpoint")
        .exits(0);
    for request in world.server.requests() {
        let header = request.header("authorization");
        assert_eq!(header, Some(&*format!("Bearer {KEY}")));
        assert_eq!(request.json()["model"], "m-1");
    }
    // The tool of the agent, which has the environment.
    let seen = world.server.last().observation("c");
    assert!(seen.contains("FLOW_NODE_ID=a"), "{seen}");
    for word in [
        KEY,
        "sk-of-the-workspace-1",
        "sk-wrong-123456",
        "ACME_KEY",
        "COPY",
    ] {
        assert!(!seen.contains(word), "{word} in {seen}");
    }
    // The program of the other node.
    let printed = String::from_utf8(outcome.stdout).unwrap();
    assert!(printed.contains("FLOW_NODE_ID=b"), "{printed}");
    for word in [KEY, "ACME_KEY", "COPY", "DELTA_PROVIDER_KEY"] {
        assert!(!printed.contains(word), "{word} in {printed}");
    }
    for dir in ["ws", "f"] {
        assert_eq!(holding(&world.path(dir), KEY), [""; 0]);
    }
    assert!(!outcome.stderr.contains(KEY));
}

#[test]
fn a_run_with_a_key_of_its_own_does_not_see_the_one_of_another_provider() {
    let world = world("base_url: SERVER, credential: {source: file, name: ../key}");
    let both = world.read("f/providers.yaml")
        + "- {id: other, base_url: 'http://127.0.0.1:1', credential: {source: env, name: OPENAI_API_KEY}}\n";
    world.write("f/providers.yaml", both);
    world.write("key", KEY);
    world.model_says([call("c", "spy", &json!({})), text("1")]);
    let command = command(&world).env("OPENAI_API_KEY", "sk-of-another-endpoint");
    command.exits(0);
    let seen = world.server.last().observation("c");
    assert!(!seen.contains("sk-of-another-endpoint"), "{seen}");
}

#[test]
fn a_key_may_be_in_a_file_or_come_from_a_program() {
    let file = "base_url: SERVER, credential: {source: file, name: ../key}";
    let program =
        "base_url: SERVER, credential: {source: command, name: '${FLOW_HOME}/../k.sh \"a b\"'}";
    for provider in [file, program] {
        let world = world(provider);
        world.write("key", format!("{KEY}\n"));
        world.script(
            "k.sh",
            "#!/bin/sh\ntest \"$1\" = 'a b' && echo >>calls && cat ../key\n",
        );
        world.model_says([text("1")]);
        command(&world).exits(0);
        let request = world.server.last();
        assert_eq!(
            request.header("authorization"),
            Some(&*format!("Bearer {KEY}"))
        );
        for dir in ["ws", "f"] {
            assert_eq!(holding(&world.path(dir), KEY), [""; 0]);
        }
    }
}

#[test]
fn a_program_is_asked_once_for_many_agents_and_its_failure_lets_the_flow_go_on_later() {
    let world = world("base_url: SERVER, credential: {source: command, name: ../k.sh}");
    let nodes = ["a", "b", "c"].map(|id| {
        let one = node(id, "linear", ", agent_id: ag");
        one.replace("deterministic", "agent")
    });
    let [a, b, c] = nodes;
    let nodes = [start(), a, b, c, exit()];
    world.write("f/workflow.yaml", flow(&nodes, "s>a a>b b>c c>x"));
    let script = format!(
        "#!/bin/sh\necho >>calls\nif test -e ../open; then echo {KEY}; else echo locked >&2; exit 3; fi\n"
    );
    world.script("k.sh", &script);
    command(&world)
        .exits(75)
        .says("a of T1: provider acme: credential: ")
        .says("k.sh: exit code 3")
        .says("locked");
    assert!(world.server.requests().is_empty());
    world.write("open", "");
    world.model_says([text("1"), text("2"), text("3")]);
    command(&world).exits(0).prints("3\n");
    assert_eq!(world.read("f/calls"), "\n\n");
    assert_eq!(holding(&world.path("ws"), KEY), [""; 0]);
}

#[test]
fn a_program_that_fails_is_not_asked_for_each_agent_again() {
    let world = world("base_url: SERVER, credential: {source: command, name: ../k.sh}");
    let agent = node("a", "linear", ", agent_id: ag").replace("deterministic", "agent");
    let nodes = [start(), node("p", "split", ""), agent, exit()];
    world.write("f/workflow.yaml", flow(&nodes, "s>p p>a a>x"));
    world.script("k.sh", "#!/bin/sh\necho >>calls; exit 3\n");
    let split = run(&world).args(["-j", "2", "-i", "-"]).stdin("[1,2,3]");
    split.exits(75).says("k.sh: exit code 3");
    assert_eq!(world.read("f/calls"), "\n");
}

#[test]
fn a_provider_may_be_a_program_which_gets_the_key() {
    let world =
        world("command: ['${FLOW_HOME}/m.sh', x], credential: {source: env, name: ACME_KEY}");
    let script = r#"#!/bin/sh
cat >/dev/null
printf '%s' "{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"\\\"$1 $DELTA_API_KEY$DELTA_PROVIDER_KEY$ACME_KEY\\\"\"},\"finish_reason\":\"stop\"}]}" | tr 0-9 a-j
"#;
    world.script("f/m.sh", script);
    let disguised = KEY.replace("0123456789", "abcdefghij");
    let outcome = command(&world).env("ACME_KEY", KEY).exits(0);
    let printed = String::from_utf8(outcome.stdout).unwrap();
    assert!(
        printed.starts_with(&format!("\"\\\"x {disguised}\\\"")),
        "{printed}"
    );
    let metadata = fs::read_to_string(world.path("ws/.delta/r/metadata.json")).unwrap();
    assert!(metadata.contains("\"path\": \"m.sh\""), "{metadata}");
}

#[test]
fn a_missing_credential_is_an_error_that_says_who_needs_it() {
    let program = "base_url: SERVER, credential: {source: command, name: ./none}";
    for (provider, env, why) in [
        (FROM_ENV, None, "there is no variable ACME_KEY"),
        (FROM_ENV, Some(" "), "the variable ACME_KEY is empty"),
        (
            FROM_ENV,
            Some("a\nb"),
            "the variable ACME_KEY is not a key: it has quotes, blanks or characters that no header can carry",
        ),
        (
            "base_url: SERVER, credential: {source: file, name: key}",
            None,
            "f/key: no such file or directory",
        ),
        (program, None, "f/./none"),
    ] {
        let world = world(provider);
        let check = |command: &str| {
            let mut delta = Delta::flow(world.home()).args([command, "f", "-w", "ws"]);
            if command == "check" {
                delta = Delta::flow(world.home()).args(["check", "f"]);
            }
            if let Some(value) = env {
                delta = delta.env("ACME_KEY", value);
            }
            delta.json().exits(78).object()["errors"].clone()
        };
        for command in ["check", "run"] {
            let errors = check(command);
            let errors = errors.as_array().unwrap();
            let words = format!("{why}; it is needed by node \"a\" (agent \"ag\")");
            let ids = ["acme", "a"];
            has(
                errors,
                1,
                "credential_missing",
                &ids,
                "providers.yaml",
                &words,
            );
            let message = errors[0]["message"].as_str().unwrap();
            assert!(
                message.starts_with("f/providers.yaml:2: provider \"acme\": "),
                "{message}"
            );
        }
        assert!(!world.exists("ws/.delta"));
        // Whoever runs nothing needs no key.
        Delta::flow(world.home()).args(["graph", "f"]).exits(0);
    }
    // Nobody needs it.
    let world = world(FROM_ENV);
    let plain = node("a", "linear", "");
    world.write("f/workflow.yaml", around(&plain));
    Delta::flow(world.home()).args(["check", "f"]).exits(0);
}

#[test]
fn a_node_calls_its_tools_although_it_does_not_see_the_key() {
    let world = world(FROM_ENV);
    let program = env!("CARGO_BIN_EXE_delta-flow");
    let agent = node("a", "linear", ", agent_id: ag").replace("deterministic", "agent");
    let calls = format!(", tools: [spy], output: text, command: ['{program}', tool, spy]");
    let nodes = [start(), agent, node("b", "linear", &calls), exit()];
    world.write("f/workflow.yaml", flow(&nodes, "s>a a>b b>x"));
    world.model_says([text("{}")]);
    let outcome = command(&world).env("ACME_KEY", KEY).exits(0);
    let printed = String::from_utf8(outcome.stdout).unwrap();
    assert!(
        printed.contains("FLOW_NODE_ID=b") && !printed.contains(KEY),
        "{printed}"
    );
}

#[test]
fn a_provider_that_is_not_in_the_file_is_what_the_environment_says() {
    let world = world(FROM_ENV);
    world.write(
        "f/agents.yaml",
        "agents:\n- {id: ag, llm: acmee/m-2, prompt: Be brief.}\n",
    );
    world.model_says([text("1")]);
    command(&world)
        .env("DELTA_BASE_URL", world.server.url())
        .env("DELTA_API_KEY", "sk-everyday-12345678")
        .exits(0)
        .says(
            "agent \"ag\": llm: providers.yaml has no provider \"acmee\"; did you mean \"acme\"?",
        );
    let request = world.server.last();
    assert_eq!(
        request.header("authorization"),
        Some("Bearer sk-everyday-12345678")
    );
    assert_eq!(request.json()["model"], "m-2");
}

#[test]
fn metadata_names_providers_and_models_and_no_credentials() {
    let world = world("base_url: SERVER/, version: '7', models: [m-1, m-2]");
    world.write(
        "f/agents.yaml",
        "agents:
- {id: ag, llm: acme/m-1, prompt: Be brief.}
- {id: own, path: ../agent}
- {id: program, exec: cat -n}
- {id: plain, llm: any/org/m-3, prompt: x, config: {base_url: 'http://127.0.0.1/v1'}}
- {id: open, path: ../open}
",
    );
    world.write(
        "open/agent.yaml",
        "name: open\nllm: {model: m-4, base_url: 'http://u:secret@127.0.0.1/v1?k=secret'}\n",
    );
    world.write("open/context.yaml", "sources: [{type: journal, id: j}]\n");
    world.write("open/system_prompt.md", "x\n");
    world.model_says([text("1")]);
    command(&world).exits(0);
    let url = world.server.url();
    assert_eq!(
        asked(&world),
        json!([
            {"id": "ag", "provider": "acme", "version": "7", "model": "m-1", "base_url": url},
            {"id": "own", "model": "scripted", "base_url": url},
            {"id": "program", "command": "cat -n"},
            {"id": "plain", "provider": "any", "model": "org/m-3", "base_url": "http://127.0.0.1/v1"},
            {"id": "open", "model": "m-4", "base_url": "http://…@127.0.0.1/v1"},
        ])
    );
    assert_eq!(holding(&world.path("ws"), "secret"), [""; 0]);
}

#[test]
fn changed_providers_are_a_changed_flow() {
    let world = world("base_url: SERVER");
    command(&world).args(["--pause-before", "a"]).exits(4);
    world.write(
        "f/providers.yaml",
        "providers: [{id: acme, base_url: 'http://127.0.0.1:1'}]",
    );
    command(&world).exits(78).says("providers.yaml");
}

#[test]
fn everything_that_is_wrong_with_providers_is_told_at_once() {
    let world = world("base_url: SERVER, models: [m-10, other]");
    world.write(
        "f/agents.yaml",
        "agents:
- {id: ag, llm: acme/m-1, prompt: x}
- {id: both, llm: acme/other, prompt: x, config: {base_url: 'http://127.0.0.1', command: [m]}}
- {id: wrong, llm: neither/m, prompt: x}
- {id: set, llm: acme/m-1, prompt: x, config: {model: other}}
",
    );
    let text = world.read("f/providers.yaml")
        + "- {id: acme, command: [m]}
- {id: neither}
- {id: two, base_url: 'http://127.0.0.1', command: [m]}
- {id: url, base_url: 'http://u:secret@example.com'}
- {id: empty, command: [], models: []}
- {id: home, command: ['${AGENT_HOME}/m'], credentials: 3}
- {id: a, base_url: 'http://127.0.0.1', credential: {source: env}}
- {id: b, base_url: 'http://127.0.0.1', credential: {source: vault, name: x}}
- {id: c, base_url: 'http://127.0.0.1', credential: {source: env, name: sk-secret}}
- {id: d, base_url: 'http://127.0.0.1', credential: {source: command, name: \"a 'b\"}}
- {id: e, base_url: 'http://127.0.0.1', credential: sk-secret}
- {id: '/'}
- 3
- {id: f, base_url: 'http://127.0.0.1', credential: {source: command, name: 'pass show x | head -1'}}
- {id: g, base_url: 'http://127.0.0.1', credential: {source: command, name: \"pass 'a|b'\"}}
";
    world.write("f/providers.yaml", text);
    let errors = errors_of(&world, "f");
    let one = |code: &str, place: &str, message: &str| {
        let found = errors.iter().find(|error| {
            let said = error["message"].as_str().unwrap();
            said.starts_with(&format!("f/{place}: ")) && said.contains(message)
        });
        let found = found.unwrap_or_else(|| panic!("{message} is not in {errors:#?}"));
        assert_eq!(found["code"], code);
    };
    one(
        "unknown_model",
        "agents.yaml:2",
        "provider \"acme\" has no model \"m-1\"; did you mean \"m-10\"?",
    );
    for key in ["base_url", "command"] {
        let message = format!("agent \"both\": config: {key}: contradicts provider \"acme\"");
        one("manifest_invalid", "agents.yaml:3", &message);
    }
    for (line, message) in [
        (3, "provider \"acme\": is defined twice"),
        (4, "provider \"neither\": needs base_url: or command:"),
        (5, "base_url: and command: are mutually exclusive"),
        (6, "provider \"url\": base_url: it holds credentials"),
        (7, "provider \"empty\": command: has no program"),
        (7, "provider \"empty\": models: is empty"),
        (
            8,
            "command: ${AGENT_HOME} is an agent's; write ${FLOW_HOME}",
        ),
        (
            9,
            "provider \"a\": credential: has no name; needs a variable, a file",
        ),
        (10, "credential: source: expected one of env, file, command"),
        (11, "credential: name: is not a name of a variable"),
        (12, "credential: name: a quote has no end"),
        (13, "credential: expected a mapping of source and name"),
        (14, "invalid id \"/\""),
        (15, "providers: expected a mapping, found the number 3"),
        (16, "credential: name: it contains a shell operator"),
    ] {
        one(
            "manifest_invalid",
            &format!("providers.yaml:{line}"),
            message,
        );
    }
    assert_eq!(errors.len(), 18, "{errors:#?}");
    assert!(!format!("{errors:?}").contains("secret"));
    let check = Delta::flow(world.home()).args(["check", "f"]).exits(78);
    check.says("provider \"home\": unknown key 'credentials'; did you mean 'credential'?");
}
