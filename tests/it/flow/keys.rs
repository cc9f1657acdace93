//! The keys of a flow's files, each by itself.

use crate::harness::*;
use serde_json::json;

/// What `check` says on stderr about a flow that can be loaded, line by line.
#[track_caller]
fn warnings(world: &World) -> Vec<String> {
    let outcome = Delta::flow(world.home()).args(["check", "f"]).end();
    let outcome = outcome.exits(0);
    outcome.stderr.lines().map(str::to_owned).collect()
}

#[test]
fn unknown_keys_are_warnings_with_the_nearest_known_one() {
    let world = World::new();
    let mut middle = node(
        "a",
        "linear",
        ", exec: cat, contineu_on_failure: true, zzz: 1",
    );
    middle += "  # a comment\n";
    world.write("f/workflow.yaml", around(&middle) + "noeds: []\n");
    world.write(
        "f/agents.yaml",
        "agents: [{id: b, command: [cat], modl: m}]\n",
    );
    world.write(
        "f/tools.yaml",
        "tools: [{id: t, exec: cat, permisions: {}}]\n",
    );
    world.write(
        "f/memory.yaml",
        "memory: {task_store: {type: in_memory, maxitems: 3}}\n",
    );
    assert_eq!(
        warnings(&world),
        [
            "delta-flow: warning: f/agents.yaml:1: agent \"b\": unknown key 'modl'",
            "delta-flow: warning: f/memory.yaml:1: task_store: unknown key 'maxitems'; did you mean 'max_items'?",
            "delta-flow: warning: f/tools.yaml:1: tool \"t\": unknown key 'permisions'; did you mean 'permissions'?",
            "delta-flow: warning: f/workflow.yaml:3: node \"a\": unknown key 'contineu_on_failure'; did you mean 'continue_on_failure'?",
            "delta-flow: warning: f/workflow.yaml:3: node \"a\": unknown key 'zzz'",
            "delta-flow: warning: f/workflow.yaml:9: unknown key 'noeds'; did you mean 'nodes'?",
        ]
    );
    // With --format json they stay on stderr.
    let json = Delta::flow(world.home()).args(["check", "f"]).json().end();
    assert_eq!(json.object()["errors"], json!([]));
    assert_eq!(json.exits(0).stderr.lines().count(), 6);
}

#[test]
fn what_has_no_meaning_on_a_node_is_a_warning() {
    let world = World::new();
    let middle = node(
        "a",
        "linear",
        ", agent_id: q, merge_failure_mode: partial, cache_files: [x], payload: keep",
    );
    world.write("f/workflow.yaml", around(&middle));
    world.write("f/agents.yaml", "agents: [{id: q, command: [cat]}]\n");
    let said = warnings(&world).join("\n");
    for message in [
        "agent_id has no meaning with kind: deterministic",
        "merge_failure_mode has no meaning on a node that is not a merge",
        "payload has no meaning on a node that is not a decision",
        "cache_files has no meaning without cache: true",
    ] {
        assert!(
            said.contains(&format!("f/workflow.yaml:3: node \"a\": {message}")),
            "{said}"
        );
    }
}

#[test]
fn what_is_remembered_where_nobody_finds_it_is_warned_of() {
    let world = World::new();
    let middle = node("a", "linear", ", remember: [{store: project}]");
    world.write("f/workflow.yaml", around(&middle));
    let here = "delta-flow: warning: f/workflow.yaml:3: node \"a\": no node can read what the project store remembers";
    let told = warnings(&world);
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with(here), "{told:?}");
    for found in [
        "project_store: {type: jsonl, file_path: p}",
        "context_profiles: [{id: p, sources: [{store: project}]}]",
    ] {
        world.write("f/memory.yaml", found);
        assert!(warnings(&world).is_empty(), "{found}");
    }
    let global = middle.replace("project", "global");
    world.write("f/workflow.yaml", around(&global));
    assert_eq!(warnings(&world).len(), 1);
    let global = global.replace("context: none", "context: global");
    world.write("f/workflow.yaml", around(&global));
    assert!(warnings(&world).is_empty());
}

#[test]
fn a_wrong_value_of_each_key_of_a_node_is_told() {
    for (key, message) in [
        ("name: 3", "name: expected a string, found the number 3"),
        ("tools: grep", "tools: expected a list of strings"),
        (
            "continue_on_failure: 1",
            "continue_on_failure: expected true or false",
        ),
        (
            "continue_on_failure: true, fail_on_failure: true",
            "contradict each other; remove one",
        ),
        (
            "timeout_ms: -1",
            "timeout_ms: expected a whole number, 0 or more",
        ),
        (
            "retries: many",
            "retries: expected a whole number, 0 or more",
        ),
        ("cache: maybe", "cache: expected true or false"),
        (
            "cache: true, cache_files: [3]",
            "cache_files: expected a list of strings",
        ),
        (
            "cache: true, cache_files: ['${CWD}/a', b/../../c]",
            "cache_files: \"b/../../c\" leads elsewhere; name files below the flow's directory",
        ),
        (
            "cache: true, cache_files: [/etc/x]",
            "\"/etc/x\" leads elsewhere",
        ),
        (
            "on_resume: report",
            "on_resume: expected one of retry, fail",
        ),
        ("output: xml", "output: expected one of json, text"),
        (
            "merge_failure_mode: never",
            "expected one of fail_on_any, ignore_failures, partial",
        ),
        (
            "remember: [{tags: [a]}]",
            "remember: has no store; needs project or global",
        ),
        (
            "remember: [{store: task}]",
            "remember: store: expected one of project, global",
        ),
        (
            "remember: [{store: global, pointer: /~2}]",
            "remember: pointer \"/~2\" is not a JSON pointer",
        ),
        (
            "remember: [{store: global, pointer: a}]",
            "remember: pointer \"a\" is not a JSON pointer",
        ),
        (
            "default_start: 'yes'",
            "default_start: expected true or false",
        ),
        ("always_fail: 0", "always_fail: expected true or false"),
        (
            "schema_in: {type: string}",
            "schema_in: expected a string, found a mapping",
        ),
        (
            "agent_id: 7",
            "agent_id: expected a string, found the number 7",
        ),
    ] {
        let yaml = around(&node("a", "linear", &format!(", {key}")));
        let message = format!("workflow.yaml:3: node \"a\": {message}");
        let errors = errors_in(&yaml);
        let found = errors.iter().any(|error| {
            let said = error["message"].as_str().unwrap();
            error["ids"] == json!(["a"]) && said.contains(message.rsplit(": ").next().unwrap())
        });
        assert!(found, "{key}: {errors:#?}");
        assert_eq!(errors.len(), 1, "{errors:#?}");
        assert_eq!(errors[0]["code"], "manifest_invalid");
    }
}

#[test]
fn commands_have_the_three_forms_of_a_tool_and_no_parameters() {
    for (form, message) in [
        (
            "command: cat",
            "command: expected a list of strings, found the string \"cat\"; use exec:",
        ),
        ("command: []", "command: is empty; name a program"),
        ("exec: a | b", "'|'"),
        ("exec: ''", "exec: is empty"),
        ("shell: ''", "shell: is empty; write a script"),
        (
            "exec: cat, shell: cat",
            "mutually exclusive, found exec: and shell:; keep one",
        ),
        (
            "exec: '${AGENT_HOME}/x'",
            "${AGENT_HOME} is an agent's; write ${FLOW_HOME}",
        ),
        (
            "exec: 'cat ${file}'",
            "${file} has no meaning here: the payload comes on standard input",
        ),
        (
            "shell: 'echo ${HOME}'",
            "in shell: write $HOME for a variable",
        ),
    ] {
        let yaml = around(&node("a", "linear", &format!(", {form}")));
        has_only(&yaml, "manifest_invalid", &["a"], message);
    }
    for good in [
        "command: ['${FLOW_HOME}/bin/x', '${CWD}', '$HOME', '${other}']",
        "exec: '${FLOW_HOME}/bin/x --to=${CWD}'",
        "shell: 'cd ${FLOW_HOME} && echo $HOME \"$DELTA_AGENT_HOME\" | cat'",
    ] {
        let errors = errors_in(&around(&node("a", "linear", &format!(", {good}"))));
        assert!(errors.is_empty(), "{errors:#?}");
    }
}

#[test]
fn an_agent_is_a_directory_a_model_or_a_program() {
    let world = World::new();
    world.write("f/workflow.yaml", flow(&[start(), exit()], "s>x"));
    world.write("f/prompts/p.md", "Judge.\n");
    world.write("f/prompts/raw", b"\xff");
    for name in ["agent.yaml", "context.yaml", "system_prompt.md"] {
        let from = world.path("agent").join(name);
        world.write(&format!("f/ag/{name}"), std::fs::read(from).unwrap());
    }
    world.write("f/broken/agent.yaml", "name: x\nllm: {}\ntemprature: 1\n");
    for good in [
        "path: ./ag",
        "path: '${FLOW_HOME}/ag', repairs: 0",
        "llm: local/m, prompt: 'Judge.', config: {temperature: 0}",
        "llm: local/m, prompt: ./prompts/p.md, context: none, tools: []",
        "command: [cat], kind: agent, name: A, description: d",
        "shell: cat",
    ] {
        world.write("f/agents.yaml", format!("agents: [{{id: q, {good}}}]\n"));
        let errors = errors_of(&world, "f");
        assert!(errors.is_empty(), "{good}: {errors:#?}");
    }
    for (wrong, message) in [
        (
            "name: n",
            "needs one of path: (an agent's directory), llm: and command:",
        ),
        (
            "llm: local/m, prompt: p, config: {api_key: sk-secret}",
            "llm: api_key: keys belong in the environment",
        ),
        (
            "llm: local/m, prompt: p, config: {base_url: 'http://me:sk-secret@host/v1'}",
            "config: base_url cannot be used: ",
        ),
        (
            "path: ./ag, llm: m",
            "path: and llm: are mutually exclusive; keep one",
        ),
        ("path: ./none", "path: ./none: there is no such directory"),
        (
            "llm: m",
            "has no prompt; write prompt: TEXT or prompt: ./FILE",
        ),
        ("llm: '', prompt: x", "llm: is empty; name a model"),
        (
            "llm: p/, prompt: x",
            "llm: p/ has no model behind the slash",
        ),
        (
            "llm: m, prompt: ./none.md",
            "prompt: cannot read ./none.md: no such file or directory",
        ),
        (
            "llm: m, prompt: ./prompts/raw",
            "prompt: ./prompts/raw: it is not UTF-8",
        ),
        (
            "llm: m, prompt: ./prompts",
            "prompt: cannot read ./prompts: it is not a regular file",
        ),
        (
            "command: [cat], kind: deterministic",
            "kind: expected agent",
        ),
        ("command: [cat], config: []", "config: expected a mapping"),
        (
            "command: [cat], repairs: -1",
            "repairs: expected a whole number",
        ),
    ] {
        world.write("f/agents.yaml", format!("agents: [{{id: q, {wrong}}}]\n"));
        let message = format!("f/agents.yaml:1: agent \"q\": {message}");
        let errors = errors_of(&world, "f");
        has(
            &errors,
            1,
            "manifest_invalid",
            &["q"],
            "agents.yaml",
            &message,
        );
    }
    for (wrong, code) in [
        ("schema_out: s", "unknown_schema"),
        ("context: c", "unknown_context"),
        ("tools: [t]", "unknown_tool"),
    ] {
        world.write(
            "f/agents.yaml",
            format!("agents: [{{id: q, shell: cat, {wrong}}}]\n"),
        );
        let errors = errors_of(&world, "f");
        has(
            &errors,
            1,
            code,
            &["q"],
            "agents.yaml",
            "f/agents.yaml:1: agent \"q\": there is no",
        );
    }
    world.write(
        "f/agents.yaml",
        "agents:\n- {id: q, shell: cat}\n- {id: q, shell: cat}\n",
    );
    let errors = errors_of(&world, "f");
    let message = "f/agents.yaml:3: agent \"q\": is defined twice";
    has(
        &errors,
        1,
        "manifest_invalid",
        &["q"],
        "agents.yaml",
        message,
    );
}

#[test]
fn what_is_wrong_in_an_agents_directory_is_wrong_with_the_flow() {
    let world = World::new();
    world.write("f/workflow.yaml", flow(&[start(), exit()], "s>x"));
    world.write("f/agents.yaml", "agents: [{id: q, path: ag}]\n");
    world.write("f/ag/agent.yaml", "name: x\nllm: {model: 3}\n");
    world.write("f/ag/system_prompt.md", "x");
    world.write("f/ag/context.yaml", "sources: []\n");
    let errors = errors_of(&world, "f");
    assert_eq!(errors[0]["file"], "ag/agent.yaml", "{errors:#?}");
    assert_eq!(errors[0]["ids"], json!(["q"]));
    let message = errors[0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("f/ag/agent.yaml:2: agent \"q\": "),
        "{message}"
    );
}

#[test]
fn tools_are_those_of_an_agent_with_schemas_and_permissions() {
    let world = World::new();
    let middle = node("a", "linear", ", tools: [t]");
    world.write("f/workflow.yaml", around(&middle));
    world.write("f/schemas/s.json", "{}");
    let tools = |tool: &str| {
        world.write("f/tools.yaml", format!("tools: [{{id: t, {tool}}}]\n"));
        errors_of(&world, "f")
    };
    for good in [
        "exec: 'grep -n -- ${pattern} ${FLOW_HOME}/words'",
        "exec: 'tee ${name}', stdin: content, schema_in: s, schema_out: s",
        "command: [cat], env: {A: b}, timeout_ms: 3, max_output_bytes: 9, description: d",
        "exec: cat, permissions: {root: '${CWD}/out', allow_network: true}",
        "exec: cat, permissions: {read: ['~/x', /opt, '${FLOW_HOME}/../x']}, partial_exit: 255",
        "shell: 'cat ${f}', permissions: {allow_shell: true}",
        "shell: 'cat ${f}'",
    ] {
        let errors = tools(good);
        assert!(errors.is_empty(), "{good}: {errors:#?}");
    }
    for (wrong, message) in [
        (
            "description: d",
            "tool \"t\": has no command; needs one of exec:, shell: and command:",
        ),
        (
            "exec: 'a | b'",
            "tool \"t\": Shell metacharacter '|' not allowed in exec: mode",
        ),
        (
            "exec: cat, parameters: [{name: q}]",
            "Parameter 'q' not found in template",
        ),
        (
            "exec: '${AGENT_HOME}/x'",
            "${AGENT_HOME} is an agent's; write ${FLOW_HOME}",
        ),
        (
            "exec: cat, permissions: {allow_network: 1}",
            "permissions: allow_network: expected true",
        ),
        (
            "exec: cat, permissions: {read: [/opt, out]}",
            "permissions: read: \"out\" must begin with /, ~/ or ${FLOW_HOME}",
        ),
        (
            "exec: cat, permissions: {read: ['~root/x']}",
            "permissions: read: \"~root/x\" must begin with",
        ),
        (
            "exec: cat, partial_exit: 0",
            "partial_exit: expected an exit code from 1 to 255",
        ),
        (
            "shell: cat, permissions: {}",
            "shell: needs permissions: allow_shell: true",
        ),
    ] {
        let errors = tools(wrong);
        has(
            &errors,
            1,
            "manifest_invalid",
            &["t"],
            "tools.yaml",
            message,
        );
    }
    let errors = tools("exec: cat, schema_in: s, schema_out: q");
    has(
        &errors,
        1,
        "unknown_schema",
        &["t"],
        "tools.yaml",
        "tool \"t\": there is no schema \"q\"",
    );
}

#[test]
fn memory_has_stores_and_profiles_at_the_top_or_below_its_own_key() {
    let world = World::new();
    let middle = node("a", "linear", "").replace("context: none", "context: recent");
    world.write("f/workflow.yaml", around(&middle));
    let memory = |yaml: &str| {
        world.write("f/memory.yaml", yaml);
        errors_of(&world, "f")
    };
    let good = "
task_store: {type: in_memory}
project_store: {type: jsonl, file_path: ./memory/project.jsonl, max_items: 100}
global_store:
context_profiles:
- id: recent
  max_tokens: 1000
  retrieval_policy: hybrid
  sources:
  - {store: task}
  - {store: project, tags: [a, b]}
";
    assert!(memory(good).is_empty());
    let below: String = good.lines().map(|line| format!("  {line}\n")).collect();
    assert!(memory(&format!("memory:\n{below}")).is_empty());
    for (wrong, message) in [
        (
            "task_store: {}",
            "task_store: has no type; needs jsonl or in_memory",
        ),
        (
            "task_store: {type: sql}",
            "task_store: type: expected one of jsonl, in_memory",
        ),
        (
            "project_store: {type: jsonl}",
            "project_store: type: jsonl needs file_path",
        ),
        (
            "global_store: 3",
            "global_store: expected a mapping, found the number 3",
        ),
        (
            "task_store: {type: in_memory, max_items: x}",
            "max_items: expected a whole number",
        ),
        (
            "context_profiles: {}",
            "context_profiles: expected a list, found a mapping",
        ),
        (
            "context_profiles: [3]",
            "context_profiles: expected a mapping, found the number 3",
        ),
        (
            "context_profiles: [{}]",
            "this profile has no id; give it one",
        ),
        (
            "context_profiles: [{id: none}]",
            "'none' means something else; rename it",
        ),
        (
            "context_profiles: [{id: a}, {id: a}]",
            "context profile 'a' is defined twice",
        ),
        (
            "context_profiles: [{id: a, max_tokens: -1}]",
            "max_tokens of context profile 'a': expected",
        ),
        (
            "context_profiles: [{id: a, retrieval_policy: best}]",
            "one of recency, hybrid",
        ),
        (
            "context_profiles: [{id: a, sources: [{}]}]",
            "a source has no store; needs task, project",
        ),
        (
            "context_profiles: [{id: a, sources: [{store: x}]}]",
            "expected one of task, project, global",
        ),
        (
            "context_profiles: [{id: a, retrieval_policy: semantic}]",
            "context profile 'a': semantic is gone: use retrieval_policy: hybrid",
        ),
        (
            "embedder: {command: [embed]}",
            "embedder: is gone: use retrieval_policy: hybrid",
        ),
        (
            "tokenizer: {command: [wc]}",
            "tokenizer: is gone: 4 bytes count as a token; remove it",
        ),
    ] {
        let errors = memory(wrong);
        let found = errors.iter().any(|error| {
            error["code"] == "manifest_invalid"
                && error["file"] == "memory.yaml"
                && error["message"].as_str().unwrap().contains(message)
        });
        assert!(found, "{wrong}: {errors:#?}");
    }
}

#[test]
fn the_only_key_of_a_file_is_named_instead_of_one_that_there_is_not() {
    let world = World::new();
    world.write("f/workflow.yaml", around(&node("a", "linear", "")));
    world.write("f/policy.yaml", "policy: []\n");
    assert!(
        warnings(&world).contains(
            &"delta-flow: warning: f/policy.yaml:1: unknown key 'policy'; the only key here is 'policies'"
                .to_owned()
        )
    );
}

#[test]
fn what_is_never_cached_is_warned_of() {
    let world = World::new();
    let middle = node("a", "linear", ", agent_id: q, cache: true");
    let middle = middle.replace("deterministic", "agent");
    world.write("f/workflow.yaml", around(&middle));
    for (agent, is_never) in [("llm: p/m, prompt: x", true), ("command: [cat]", false)] {
        world.write("f/agents.yaml", format!("agents: [{{id: q, {agent}}}]\n"));
        let told = warnings(&world).join("\n");
        let words = "f/workflow.yaml:3: node \"a\": cache has no meaning here";
        assert_eq!(told.contains(words), is_never, "{agent}: {told}");
    }
}

#[test]
fn a_schema_of_a_draft_that_nobody_knows_says_which_draft_to_write() {
    let world = World::new();
    world.write("f/workflow.yaml", around(&node("a", "linear", "")));
    world.write(
        "f/schemas/a.json",
        r#"{"$schema": "https://example.org/x"}"#,
    );
    let check = Delta::flow(world.home()).args(["check", "f"]).exits(78);
    check.says("$schema: the draft https://example.org/x is not known; remove it, or write https://json-schema.org/draft/2020-12/schema");
}

#[test]
fn an_integer_of_more_than_64_bits_is_told_with_its_key() {
    let errors = errors_in(&around(&node(
        "a",
        "linear",
        ", retries: 18446744073709551616",
    )));
    assert_eq!(
        errors[0]["message"],
        "f/workflow.yaml:3:70: nodes[1].retries: the integer 18446744073709551616 has more than 64 bits"
    );
}

#[test]
fn partial_exit_has_no_meaning_where_the_node_runs_no_program() {
    let world = World::new();
    world.write(
        "f/agents.yaml",
        "agents: [{id: asks, path: ../agent}, {id: cats, command: [cat]}]\n",
    );
    for (runs, is_warned) in [
        ("exec: cat", false),
        ("agent_id: cats", false),
        ("agent_id: asks", true),
        ("schema_in: s", true),
    ] {
        let middle = format!("- {{id: a, {runs}, partial_exit: 3}}");
        let nodes = ["- {id: s}".to_owned(), middle, "- {id: x}".to_owned()].join("\n");
        world.write("f/schemas/s.json", "true");
        world.write(
            "f/workflow.yaml",
            format!("defaults: {{context: none}}\nnodes:\n{nodes}\nedges:\n- [s, a, x]\n"),
        );
        let said = warnings(&world).join("\n");
        let is_said = said.contains("partial_exit has no meaning here");
        assert_eq!(is_said, is_warned, "{runs}: {said}");
    }
}

#[test]
fn a_program_that_a_tools_sandbox_cannot_read_is_warned_of() {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        around(&node("a", "linear", ", exec: cat, tools: [t]")),
    );
    let own = world.script("bin/own", "#!/bin/sh\n");
    world.script("bin/shown", &format!("#!{}\n", own.display()));
    world.script("bin/by-env", "#!/usr/bin/env -S own -u\n");
    world.script(
        "bin/shim",
        &format!(
            "#!/bin/sh\nset -e\nexec \"{}\" exec \"$0\"\n",
            own.display()
        ),
    );
    world.script("f/inside", &format!("#!{}\n", own.display()));
    world.script("f/plain", "#!/bin/sh\n");
    std::os::unix::fs::symlink(&own, world.path("f/link")).unwrap();
    std::os::unix::fs::symlink("/bin/sh", world.path("bin/system")).unwrap();
    let path = format!(
        "{}:{}",
        world.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let told = |tool: &str| {
        world.write("f/tools.yaml", format!("tools: [{{id: t, {tool}}}]\n"));
        let check = Delta::flow(world.home())
            .args(["check", "f"])
            .env("PATH", &path);
        check.env("HOME", world.home()).exits(0).stderr
    };
    let outside = |name: &str| {
        let path = world.path("bin").canonicalize().unwrap().join(name);
        format!(
            "delta-flow: warning: f/tools.yaml:1: tool \"t\": permissions: its sandbox cannot read {}, unless \
             the workspace holds it; add it to read\n",
            path.display()
        )
    };
    for (program, name) in [
        ("own", "own"),
        ("'${FLOW_HOME}/../bin/own'", "own"),
        ("by-env", "by-env"),
        ("'${FLOW_HOME}/link'", "own"),
        ("'${FLOW_HOME}/inside'", "own"),
    ] {
        assert_eq!(
            told(&format!("command: [{program}], permissions: {{}}")),
            outside(name),
            "{program}"
        );
        assert_eq!(told(&format!("command: [{program}]")), "", "{program}");
        for root in ["read: ['~/bin']", "root: '${FLOW_HOME}/../bin'"] {
            let tool = format!("command: [{program}], permissions: {{{root}}}");
            assert_eq!(told(&tool), "", "{tool}");
        }
    }
    for program in ["shown", "shim", "by-env"] {
        let tool = format!("command: [{program}], permissions: {{read: ['~/bin/{program}']}}");
        assert_eq!(told(&tool), outside("own"), "{program}");
    }
    for program in [
        "cat",
        "system",
        "'${FLOW_HOME}/plain'",
        "./own",
        "'${CWD}/own'",
        "no-such-program",
    ] {
        assert_eq!(
            told(&format!("command: [{program}], permissions: {{}}")),
            "",
            "{program}"
        );
    }
}
