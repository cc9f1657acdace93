//! The JSON Schemas accept what the loader accepts and refuse what a schema can see.

use crate::harness::*;
use delta_engine::text::yaml;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const FILES: [&str; 3] = ["agent", "context", "hooks"];

/// What `delta schema NAME` prints.
fn schema(name: &str) -> Value {
    World::new().delta(["schema", name]).exits(0).object()
}

/// What a schema has against a text in YAML.
fn objections(name: &str, text: &str) -> Vec<String> {
    let value = yaml::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    violations(&schema(name), &value)
}

/// Every subschema, with its place.
fn walk<'s>(at: &str, schema: &'s Value, visit: &mut impl FnMut(&str, &'s Value)) {
    visit(at, schema);
    let children = match schema {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(i, v)| (i.to_string(), v))
            .collect(),
        _ => Vec::new(),
    };
    for (key, child) in children {
        walk(&format!("{at}/{key}"), child, visit);
    }
}

/// The names of all properties below a part of a schema.
fn properties(schema: &Value, pointer: &str) -> BTreeSet<String> {
    let part = schema.pointer(pointer).expect(pointer);
    let known = part["properties"].as_object().expect("properties");
    known.keys().cloned().collect()
}

#[test]
fn each_schema_is_of_the_draft_it_names_and_describes_every_key() {
    for name in FILES {
        let schema = schema(name);
        assert_eq!(
            schema["$schema"],
            "https://json-schema.org/draft/2020-12/schema"
        );
        assert_eq!(schema["title"], format!("{name}.yaml"));
        walk("", &schema, &mut |at, part| {
            let in_condition =
                at.contains("/else/") || at.contains("/if/") || at.contains("/contains/");
            let is_property = at.rsplit('/').nth(1) == Some("properties");
            if is_property && !in_condition && part != &Value::Bool(false) {
                let described = part["description"]
                    .as_str()
                    .is_some_and(|text| text.len() > 5);
                assert!(described, "{name}.json{at} has no description");
            }
        });
    }
}

#[test]
fn every_template_and_example_is_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = files_below(&root.join("examples"));
    let world = World::new();
    for template in ["minimal", "hello-world", "file-ops", "api-tester", "coder"] {
        world.delta(["init", "-t", template, template]).exits(0);
        files.extend(files_below(&world.path(template)));
    }
    let mut seen = 0;
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        if FILES.contains(&name) && file.extension().is_some_and(|end| end == "yaml") {
            let text = std::fs::read_to_string(&file).unwrap();
            assert_eq!(objections(name, &text), [""; 0], "{}", file.display());
            seen += 1;
        }
    }
    assert!(seen >= 10, "{seen} files");
}

/// Everything that can be said in an agent's files.
const EVERYTHING: [(&str, &str); 3] = [
    (
        "agent",
        "name: all\nversion: 1.5\ndescription: d\nllm:\n  {model: m, window: 8000, attachments: images, base_url: 'http://127.0.0.1:1/v1', \
         command: ['true'], timeout_ms: 1, max_retries: 0, temperature: 0.5, max_tokens: 5, top_p: 1, \
         seed: 1, reasoning_effort: low, stream: false, api: chat, cache: 1h, total_timeout_ms: 1, \
         headers: {X-A: b, api-key: {env: AZURE_KEY}}, response_format: {type: text}, \
         fallback: [{model: n, key: N_KEY, after: [refused]}]}\n\
         system_prompt: system_prompt.md\nimports: [more.yaml]\nmax_iterations: 1\nmax_output_bytes: 1\n\
         keep_requests: 0\nsame_call: 0\nfiles: git\nworkspace_env: [STAGE, APP_*]\nlimits: {tokens: 0, seconds: 0}\n\
         compact: {at: 0.9, to: 0.5, keep: 0.1}\n\
         pricing: {m: {input: 2, output: 8.5, cached: 0.5, cache_write: 3}}\n\
         budget: {cost: 2.5, tokens: 500000, seconds: 3600, per: tree}\n\
         output_schema: more.json\naccept: [{command: ['true'], timeout_ms: 0}]\nrepairs: 3\ntool_timeout_ms: 0\nwrapper: [env]\n\
         ask_human: false\nconfirm: [a]\nsync: false\ntools:\n\
         - {name: a, description: d, exec: 'cat -- ${f}', parameters: [{name: f, type: string, \
           description: d, enum: [a, 1], required: true, default: a, inject_as: argument, position: 0, maxLength: 3}], \
           stdin: text, timeout_ms: 0, max_output_bytes: 0, wrapper: [], env: {A: b, C: 1, D: true}, \
           on_resume: {check: ['true'], timeout_ms: 1}, confirm: Sure?, pass_api_key: true}\n\
         - {name: b, description: d, shell: 'ls ${x:raw}', parameters: [{name: x, raw: true}], on_resume: retry, \
           effect: none, parallel: 2, kind: search, path: x, later: {check: ['true'], every_s: 1, expires_s: 2}}\n\
         - {name: c, description: d, command: [ls], parameters: [{name: x, inject_as: option, option_name: --x}, \
           {name: y, inject_as: stdin}]}\n\
         - {name: d, description: d, exec: 'delta run -m ${t}', subagent: true, pass_api_key: true}\n\
         - {name: e, exec: 'jq .', input: json, input_schema: {type: object, properties: {}}}\n",
    ),
    (
        "context",
        "system_messages: separate\nsources:\n\
         - {type: file, id: a, path: '${AGENT_HOME}/system_prompt.md', on_missing: skip}\n\
         - {type: file, id: u, path: AGENTS.md, search: up, max_bytes: 1, on_missing: skip}\n\
         - {type: computed_file, id: b, generator: {command: ['true'], timeout_ms: 1}, output_path: x, \
           on_missing: skip, refresh: once}\n\
         - {type: journal, id: c, max_iterations: 1}\n",
    ),
    (
        "hooks",
        "compaction: true\npre_llm_request: {command: ['true'], timeout_ms: 1}\npost_llm_response: [{command: ['true']}]\n\
         pre_tool_execution: []\npost_tool_execution: {command: ['true']}\non_error: {command: ['true']}\n\
         on_run_end: {command: ['true']}\non_iteration_start: {command: ['true']}\n\
         on_iteration_end: {command: ['true']}\non_question: {command: ['true']}\n",
    ),
];

#[test]
fn an_agent_that_says_everything_pleases_schema_and_loader_and_uses_every_key() {
    let world = World::new();
    world.write("agent/more.yaml", "tools: []\n");
    world.write("agent/more.json", "{}");
    for (name, text) in EVERYTHING {
        world.write(&format!("agent/{name}.yaml"), text);
        assert_eq!(objections(name, text), [""; 0], "{name}");
        walk("", &schema(name), &mut |at, part| {
            let is_property = at.rsplit('/').nth(1) == Some("properties");
            let key = at.rsplit('/').next().unwrap();
            let allowed = part != &Value::Bool(false) && !at.contains("/else/");
            let used = text.contains(&format!("{key}:"));
            assert!(
                !is_property || !allowed || used,
                "{name}.json{at} is not tried out"
            );
        });
    }
    // These two ways to shorten a conversation exclude each other.
    let agent = EVERYTHING[0]
        .1
        .replace("compact: {at: 0.9, to: 0.5, keep: 0.1}\n", "");
    world.write("agent/agent.yaml", agent);
    // The schema of the answer is validated by another program.
    let checked = world.delta(["check", "agent"]).end();
    let checked = checked.exits(if cfg!(feature = "flow") { 0 } else { 78 });
    checked
        .does_not_say("unknown key")
        .does_not_say("DEPRECATION");
}

#[test]
fn the_schema_of_hooks_knows_every_event() {
    let hooks: BTreeSet<String> = delta_engine::config::agent::HookEvent::ALL
        .map(|(name, _)| name.to_owned())
        .into();
    let mut known = properties(&schema("hooks"), "");
    assert!(known.remove("compaction"));
    assert_eq!(known, hooks);
}

/// Broken files and parts of files, by what they are.
const BROKEN: [(&str, &[&str]); 6] = [
    (
        "agent",
        &[
            "llm: {model: m}\n",
            "name: a\n",
            "name: ''\nllm: {model: m}\n",
            "name: a\nllm: gpt-4o\n",
            "name: a\nllm: {model: m, base_url: localhost}\n",
            "name: a\nllm: {model: m, api_key: k}\n",
            "name: a\nllm: {model: m, stream: yes please}\n",
            "name: a\nllm: {command: sh}\n",
        ],
    ),
    (
        "top",
        &[
            "max_iterations: 0",
            "max_iterations: many",
            "keep_requests: -1",
            "limits: {tokens: 1.5}",
            "limits: {token: 1}",
            "wrapper: bwrap",
            "imports: [1]",
            "ask_human: maybe",
            "confirm: some",
            "confirm: [1]",
            "workspace_env: ['*']",
            "colour: red",
            "lifecycle_hooks: {}",
            "tools: {}",
        ],
    ),
    (
        "tool",
        &[
            "words",
            "{exec: ls}",
            "{name: a b, exec: ls}",
            "{name: a}",
            "{name: a, exec: ls, shell: ls}",
            "{name: a, exec: ''}",
            "{name: a, command: []}",
            "{name: a, exec: ls, env: {A: []}}",
            "{name: a, exec: ls, on_resume: again}",
            "{name: a, exec: ls, confirm: 'Yes'}",
            "{name: a, exec: ls, confirm: []}",
            "{name: a, exec: ls, desciption: d}",
            "{name: a, exec: 'ls ${x}', parameters: [{type: string}]}",
            "{name: a, exec: 'ls ${x}', parameters: [{name: x, type: text}]}",
            "{name: a, exec: 'ls ${x}', parameters: [{name: x, enum: []}]}",
            "{name: a, command: [ls], parameters: [{name: CWD}]}",
            "{name: a, command: [ls], parameters: [{name: x, inject_as: option}]}",
            "{name: a, command: [ls], parameters: [{name: x, option_name: --x}]}",
        ],
    ),
    (
        "context",
        &[
            "{}",
            "sources: 3\n",
            "sources:\n- {type: journal}\n- {type: journal}\n",
            "sources:\n- {type: journal, max_iterations: 0}\n",
        ],
    ),
    (
        "source",
        &[
            "{type: file}",
            "{path: x}",
            "{type: journl}",
            "{type: file, path: x, on_missing: ignore}",
            "{type: file, path: ''}",
            "{type: file, path: x, refresh: once}",
            "{type: computed_file, output_path: x}",
            "{type: computed_file, output_path: x, generator: {command: []}}",
            "{type: computed_file, output_path: x, generator: {command: [a], timeout_ms: 0}}",
        ],
    ),
    (
        "hooks",
        &[
            "on_erorr: {command: [ls]}\n",
            "on_error: 3\n",
            "on_error: {command: ls}\n",
            "on_error: [{}]\n",
            "on_error: {command: [ls], timeout_ms: 0}\n",
            "pre_llm_req: {command: [ls]}\n",
            "lifecycle_hooks: {on_error: {command: [ls]}}\n",
        ],
    ),
];

#[test]
fn what_a_schema_refuses_the_loader_refuses_or_warns_of() {
    for (kind, parts) in BROKEN {
        for part in parts {
            let (name, text) = whole(kind, part);
            let objections = objections(name, &text);
            assert!(!objections.is_empty(), "{name}.json accepts:\n{text}");
            let world = World::new();
            world.write(&format!("agent/{name}.yaml"), &text);
            let checked = world.delta(["check", "agent"]).end();
            let said = checked.stderr.contains(&format!("agent/{name}.yaml"));
            assert!(said, "{text}\n{}", checked.describe());
        }
    }
}

/// The name and the text of a file with this part in it.
fn whole<'k>(kind: &'k str, part: &str) -> (&'k str, String) {
    let agent = |more: &str| format!("name: a\nllm: {{model: m}}\n{more}\n");
    match kind {
        "top" => ("agent", agent(part)),
        "tool" => ("agent", agent(&format!("tools:\n  - {part}"))),
        "source" => (
            "context",
            format!("sources:\n  - {part}\n  - {{type: journal}}\n"),
        ),
        whole => (whole, part.to_owned()),
    }
}

#[test]
fn another_validator_agrees() {
    let program = "import json, sys\n\
                   try: import jsonschema as j\n\
                   except ImportError: sys.exit(77)\n\
                   for schema, value in json.load(open(sys.argv[1])):\n \
                   j.Draft202012Validator.check_schema(schema)\n \
                   print(j.Draft202012Validator(schema).is_valid(value))";
    let world = World::new();
    let (mut cases, mut expected) = (Vec::new(), String::new());
    for (name, text) in EVERYTHING {
        let misspelt = text.replace(": {command", ": {comand");
        for (text, is_valid) in [(text, "True\n"), (&misspelt, "False\n")] {
            cases.push(json!([schema(name), yaml::parse(text).unwrap()]));
            expected += if name == "agent" { "True\n" } else { is_valid };
        }
    }
    let cases = world.write("cases.json", json!(cases).to_string());
    let python = Command::new("python3")
        .args(["-c", program])
        .arg(cases)
        .output();
    match python {
        Ok(output) if output.status.code() != Some(77) => {
            let verdicts = String::from_utf8(output.stdout).unwrap();
            assert_eq!(
                verdicts,
                expected,
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        _ => eprintln!("skipped: there is no python3 with jsonschema"),
    }
}

#[test]
fn wrong_words_are_refused() {
    let world = World::new();
    for (args, said) in [
        (&["schema"][..], "schema needs agent|context|hooks"),
        (
            &["schema", "hook"],
            "schema: unknown word 'hook'; did you mean 'hooks'?",
        ),
        (&["schema", "agent", "hooks"], "unexpected argument 'hooks'"),
    ] {
        let outcome = world.delta(args.iter().copied()).exits(2);
        outcome.says(said).says_one_line();
    }
}
