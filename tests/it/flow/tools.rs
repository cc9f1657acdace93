//! Tools of a node: called by its program, and offered to its agent.

use crate::flow::run::chain;
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// A flow whose node `a` allows the tool `t` and runs this script, with `flow` for `delta-flow`.
fn world(tool: &str, script: &str) -> World {
    let world = World::new();
    world.write(
        "f/tools.yaml",
        format!("tools:\n- {{id: t, {tool}}}\n- {{id: other, exec: cat}}\n"),
    );
    runs(&world, script);
    world
}

fn runs(world: &World, script: &str) {
    world.script("node.sh", &format!("#!/bin/sh\nset -e\n{script}\n"));
    chain(
        world,
        "exec: '${FLOW_HOME}/../node.sh', output: text, tools: [t]",
    );
}

fn run(world: &World) -> Delta {
    let programs = PathBuf::from(env!("CARGO_BIN_EXE_delta-flow"));
    let path = format!(
        "{}:{}",
        programs.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    crate::flow::run::run(world)
        .args(["--run-id", "r", "-m", "hello"])
        .env("PATH", path)
}

fn record(world: &World) -> Run {
    Run {
        dir: world.path("ws/.delta/r"),
    }
}

/// The events of calls.
fn calls(world: &World) -> Vec<Value> {
    record(world).events("TOOL")
}

const GREET: &str = "exec: 'printf %s,%s ${greeting} ${name}', parameters: \
                     [{name: greeting, default: hi}, {name: name}]";

#[test]
fn a_program_calls_a_tool_with_json_or_with_parameters() {
    let world = world(
        GREET,
        "echo '{\"name\": \"$x y\"}' | delta-flow tool t; delta-flow tool t -p name=b=c --parameter greeting=",
    );
    run(&world).exits(0).prints("\"hi,$x y,b=c\"\n");
    let calls = calls(&world);
    assert_eq!(calls.len(), 2);
    let dir = record(&world).path("io/nodes/T1/a/tools/001_t");
    for (name, content) in [
        ("command.txt", "printf %s,%s hi '$x y'\n"),
        ("input.json", "{\"name\": \"$x y\"}\n"),
        ("stdout.log", "hi,$x y"),
        ("stderr.log", ""),
        ("exit_code.txt", "0\n"),
    ] {
        assert_eq!(
            fs::read_to_string(dir.join(name)).unwrap(),
            content,
            "{name}"
        );
    }
    assert!(dir.join("duration_ms.txt").is_file());
    for (key, value) in [
        ("task_id", json!("T1")),
        ("node_id", json!("a")),
        ("tool_name", json!("t")),
        ("status", json!("success")),
        ("exit_code", json!(0)),
        ("execution_ref", json!("io/nodes/T1/a/tools/001_t")),
    ] {
        assert_eq!(calls[0][key], value);
    }
    // They are told before the end of their node.
    let types = record(&world).types();
    let last = types.iter().rposition(|kind| kind == "TOOL").unwrap();
    assert_eq!(types[last + 1], "NODE_END");
}

#[test]
fn a_tool_runs_in_the_tasks_directory_without_the_key_and_its_exit_code_is_passed_on() {
    let world = world(
        "shell: 'cat; pwd; echo \"$EXTRA$DELTA_API_KEY$FLOW_NODE_ID\"; echo bad >&2; exit 7', \
         stdin: content, env: {EXTRA: e}",
        "cd /; printf 'a\\nb\\n' | delta-flow tool t --stdin content || echo \"code $?\"",
    );
    let ws = world.home().canonicalize().unwrap().join("ws");
    let expected = format!("a\nb\n{}\nea\ncode 7", ws.display());
    run(&world)
        .env("DELTA_API_KEY", "sk-0123456789abcdef")
        .exits(0)
        .prints(&format!("{}\n", json!(expected)));
    let call = &calls(&world)[0];
    assert_eq!(
        (&call["status"], &call["code"]),
        (&json!("failure"), &json!("operation"))
    );
    assert!(call["message"].as_str().unwrap().contains("bad"), "{call}");
    let said = record(&world).text("io/nodes/T1/a/stderr.log");
    assert_eq!(said, "bad\n");
}

#[test]
fn a_misuse_fails_the_node_unless_its_program_handles_it() {
    for (call, why) in [
        ("echo '{}' | delta-flow tool t", "required parameter 'name'"),
        ("echo '[1]' | delta-flow tool t", "not a JSON object"),
        (
            "delta-flow tool t -p nmae=x -p name=y",
            "did you mean 'name'?",
        ),
        (
            "delta-flow tool other </dev/null",
            "node a does not allow it; it allows t",
        ),
        (
            "delta-flow tool ../../T </dev/null",
            "node a does not allow it",
        ),
    ] {
        let world = world(GREET, &format!("{call} 2>/dev/null"));
        let outcome = run(&world).json().exits(1);
        let error = &outcome.object()["error"];
        assert_eq!(error["code"], "operation");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("exit code 64"), "{message}");
        assert!(message.contains(why), "{call}: {message}");
        let told = &calls(&world)[0];
        assert_eq!(
            (&told["status"], &told["code"]),
            (&json!("failure"), &json!("misuse"))
        );
        assert_eq!(told["exit_code"], 64);

        let handled = self::world(GREET, &format!("{call} || echo $?"));
        run(&handled).exits(0).prints("\"64\"\n");
        assert_eq!(calls(&handled)[0]["code"], "misuse");
    }
}

#[test]
fn a_node_that_names_no_tools_has_none_of_those_that_others_have() {
    let world = world("shell: 'touch ../ran'", "delta-flow tool t </dev/null");
    let allows = node("b", "linear", ", tools: [t], command: [cat]");
    let a = node("a", "linear", ", exec: '${FLOW_HOME}/../node.sh'");
    let nodes = [start(), allows, a, exit()];
    world.write("f/workflow.yaml", flow(&nodes, "s>b b>a a>x"));
    let outcome = run(&world).json().exits(1);
    let error = outcome.object()["error"].take();
    let message = error["message"].as_str().unwrap();
    assert_eq!(error["node"], "a");
    assert!(
        message.contains("node a does not allow it; it allows none"),
        "{message}"
    );
    let told = &calls(&world)[0];
    assert_eq!(
        (&told["node_id"], &told["code"]),
        (&json!("a"), &json!("misuse"))
    );
    assert!(!world.exists("ran"));
}

#[test]
fn arguments_and_output_must_fit_the_tools_schemas() {
    let tool = "exec: 'echo ${n}', parameters: [{name: n, type: integer}], schema_in: small, schema_out: even";
    let world = world(
        tool,
        "for n in 12 3 4; do delta-flow tool t -p n=$n || echo $?; done",
    );
    world.write(
        "f/schemas/small.json",
        r#"{"properties": {"n": {"type": "integer", "maximum": 9}}}"#,
    );
    world.write("f/schemas/even.json", r#"{"multipleOf": 2}"#);
    run(&world).exits(0).prints("\"64\\n1\\n4\"\n");
    let codes: Vec<Value> = calls(&world)
        .iter()
        .map(|call| call["code"].clone())
        .collect();
    assert_eq!(codes, [json!("misuse"), json!("schema_out"), Value::Null]);
    let said = record(&world).text("io/nodes/T1/a/stderr.log");
    assert!(said.contains("does not fit schema small: /n"), "{said}");
    assert!(said.contains("does not fit schema even"), "{said}");
}

#[test]
fn a_tool_that_takes_too_long_or_cannot_be_started_is_told_to_the_caller() {
    let slow = world(
        "exec: 'sleep 1000', timeout_ms: 50",
        "delta-flow tool t </dev/null || echo $?",
    );
    run(&slow).exits(0).prints("\"124\"\n");
    assert_eq!(calls(&slow)[0]["code"], "timeout");
    let none = world(
        "exec: no-such-program",
        "delta-flow tool t </dev/null || echo $?",
    );
    run(&none).exits(0).prints("\"127\"\n");
    let said = record(&none).text("io/nodes/T1/a/stderr.log");
    assert!(said.contains("no-such-program: not found"), "{said}");
}

#[test]
fn a_tool_writes_only_below_its_root_and_has_no_network() {
    let strict = World::new()
        .delta(["sandbox", "--strict", "--no-network", "--", "true"])
        .end();
    if strict.code() != Some(0) {
        eprintln!("skipped: {}", strict.stderr.trim_end());
        return;
    }
    let write = "command: [sh, -c, 'echo x >\"$1\" && cat \"$1\"', sh, '${file}'], parameters: [{name: file}]";
    let script = "for f in out/a b; do delta-flow tool t -p file=$f 2>/dev/null || echo no; done";
    for (permissions, printed) in [
        ("", "\"x\\nx\"\n"),
        (", permissions: {root: out}", "\"x\\nno\"\n"),
        (", permissions: {root: '${CWD}/out'}", "\"x\\nno\"\n"),
    ] {
        let world = world(
            &format!("{write}{permissions}"),
            &format!("mkdir -p out; {script}"),
        );
        run(&world).exits(0).prints(printed);
    }
    // The task's directory is what a tool may write to if it does not say, and not that of others.
    let own = world(
        &format!("{write}, permissions: {{}}"),
        "for f in a ../b; do delta-flow tool t -p file=$f 2>/dev/null || echo no; done",
    );
    run(&own).exits(0).prints("\"x\\nno\"\n");
    for (allowed, options) in [("false", " --no-network --"), ("true", " --")] {
        let world = world(
            &format!("exec: 'true', permissions: {{allow_network: {allowed}}}"),
            "delta-flow tool t </dev/null",
        );
        run(&world).exits(0);
        let command = record(&world).text("io/nodes/T1/a/tools/001_t/command.txt");
        assert!(
            command.trim_end().ends_with(&format!("{options} true")),
            "{command}"
        );
        assert_eq!(command.contains("--no-network"), allowed == "false");
    }
}

#[test]
fn calls_at_once_have_numbers_of_their_own_and_leave_nothing_half_done() {
    let world = world(
        GREET,
        "for i in 1 2 3 4 5 6 7 8; do delta-flow tool t -p name=$i >/dev/null & done; wait",
    );
    run(&world).exits(0);
    let names = |of: fn(&Value) -> &Value| -> Vec<String> {
        calls(&world)
            .iter()
            .map(|call| of(call).to_string())
            .collect()
    };
    let expected: Vec<String> = (1..=8)
        .map(|n| format!("\"io/nodes/T1/a/tools/{n:03}_t\""))
        .collect();
    assert_eq!(names(|call| &call["execution_ref"]), expected);
    let dir = record(&world).path("io/nodes/T1/a/tools");
    assert_eq!(fs::read_dir(dir).unwrap().count(), 8);
}

#[test]
fn calls_of_each_attempt_are_told_once_also_if_the_engine_died() {
    for told_before in [false, true] {
        let world = world(
            GREET,
            "delta-flow tool t -p name=x; test -e p || { mkfifo p; kill -9 $DELTA_ENGINE_PID; cat p; }",
        );
        assert_eq!(run(&world).end().killed_by(), Some(9));
        assert!(calls(&world).is_empty());
        let first = "io/nodes/T1/a/tools/001_t";
        if told_before {
            // It died between this line and the end of the node.
            let mut line = record(&world).journal().pop().unwrap();
            line["seq"] = json!(line["seq"].as_u64().unwrap() + 1);
            line["type"] = json!("TOOL");
            line["execution_ref"] = json!(first);
            let journal = record(&world).text("journal.jsonl");
            world.write("ws/.delta/r/journal.jsonl", format!("{journal}{line}\n"));
        }
        run(&world).exits(0);
        let refs = calls(&world);
        let refs: Vec<&Value> = refs.iter().map(|call| &call["execution_ref"]).collect();
        assert_eq!(refs, [first, "io/nodes/T1/a_2/tools/001_t"]);
        run(&world).exits(0);
        assert_eq!(calls(&world).len(), 2);
    }
}

#[test]
fn only_the_program_of_a_node_calls_tools() {
    let world = world(GREET, "true");
    let tool = || Delta::flow(world.home()).args(["tool", "t"]);
    tool().exits(2).says("FLOW_CONTEXT is not set");
    tool()
        .env("FLOW_CONTEXT", world.path("f/tools.yaml"))
        .env("FLOW_RUN_ID", "r")
        .exits(2)
        .says("is not in run r");
    let end = |args: &[&str]| Delta::flow(world.home()).arg("tool").args(args).end();
    end(&[]).exits(2).says("tool needs NAME");
    end(&["t", "-p", "name"]).exits(2).says("KEY=VALUE");
}

#[test]
fn calls_are_shown_and_logged() {
    let world = world(
        GREET,
        "delta-flow tool t -p name=x; delta-flow tool other </dev/null || true",
    );
    run(&world).exits(0);
    let shown = Delta::flow(world.home())
        .args(["show", "-w", "ws", "r", "T1", "a"])
        .end();
    let shown = String::from_utf8(shown.exits(0).stdout).unwrap();
    assert!(
        shown.contains("--- tools\n001_t  ok, ")
            && shown.contains("\n002_other  misuse: tool other: "),
        "{shown}"
    );
    let log = world.delta(["log", "-w", "ws", "r"]).exits(0).stdout;
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("a calls t  ok, "), "{log}");
    assert!(log.contains("a calls other  misuse: "), "{log}");
}

/// The same with an agent as the node.
fn of_agent(agent: &str) -> World {
    let tool = "exec: 'tee ${name} ${more}', description: Keep it, stdin: content, parameters: \
                [{name: name, type: integer, description: N, enum: [1, 2]}, {name: more, required: false}]";
    let world = world(tool, "");
    let workflow = world.read("f/workflow.yaml");
    let command = "kind: deterministic, role: linear, context: none, exec: '${FLOW_HOME}/../node.sh', output: text";
    let agent_id = "kind: agent, role: linear, context: none, agent_id: ag";
    let workflow = workflow.replace(command, agent_id);
    world.write("f/workflow.yaml", workflow);
    world.write("f/agents.yaml", format!("agents:\n- {{id: ag, {agent}}}\n"));
    world
}

#[test]
fn an_agent_has_the_tools_of_its_node_beside_its_own() {
    let world = of_agent("path: ../agent")
        .tools("- {name: mine, exec: 'true'}\n- {name: t, exec: 'false'}\n");
    world.model_says([
        call("c1", "t", &json!({"name": 2, "content": "kept $x\n"})),
        call("c2", "t", &json!({"name": 3, "content": "-"})),
        text("1"),
    ]);
    run(&world).exits(0).prints("1\n");
    assert_eq!(world.read("ws/2"), "kept $x\n");
    let requests = world.server.requests();
    let tools = requests[0].json()["tools"].clone();
    let names: Vec<&str> = tools
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    assert_eq!(names[..2], ["mine", "t"]);
    let function = &tools[1]["function"];
    assert_eq!(function["description"], "Keep it");
    assert_eq!(
        function["parameters"]["properties"]["name"]["enum"],
        json!([1, 2])
    );
    assert_eq!(
        function["parameters"]["properties"]["name"]["type"],
        "integer"
    );
    assert_eq!(
        function["parameters"]["required"],
        json!(["name", "content"])
    );
    assert_eq!(requests[1].observation("c1"), "kept $x\n");
    let call = &calls(&world)[0];
    assert_eq!(call["resolved_command"], "tee 2");
    let input = record(&world).text("io/nodes/T1/a/tools/001_t/input.json");
    assert_eq!(input, r#"{"name":2,"content":"kept $x\n"}"#);
}

#[test]
fn an_agent_made_from_a_model_has_the_tools_of_its_node() {
    let world =
        of_agent("llm: any/model-1, prompt: Be brief., config: {command: ['${FLOW_HOME}/../m']}");
    world.script(
        "m",
        r#"#!/bin/sh
if grep -q '"role":"tool"'; then
  printf '%s' '{"choices":[{"message":{"role":"assistant","content":"[1]"},"finish_reason":"stop"}]}'
else
  printf '%s' '{"choices":[{"message":{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"t","arguments":"{\"name\":1,\"content\":\"x\"}"}}]},"finish_reason":"tool_calls"}]}'
fi
"#,
    );
    run(&world).exits(0).prints("[1]\n");
    assert_eq!(world.read("ws/1"), "x");
    assert_eq!(calls(&world)[0]["status"], "success");
}

#[test]
fn a_tool_that_ends_with_its_partial_exit_is_partial_and_its_output_goes_on() {
    let world = world(
        "command: [sh, -c, 'echo half; exit 7'], partial_exit: 7",
        "delta-flow tool t </dev/null && exit 1; echo code $?",
    );
    run(&world).exits(0).prints("\"half\\ncode 7\"\n");
    let call = &calls(&world)[0];
    assert_eq!(
        (&call["status"], &call["exit_code"]),
        (&json!("partial"), &json!(7))
    );
    assert_eq!(call.get("code"), None);
}

#[test]
fn a_sandboxed_tool_reads_what_its_permissions_say_besides() {
    let world = World::new();
    let strict = world.delta(["sandbox", "--strict", "--", "true"]).end();
    if strict.code() != Some(0) {
        eprintln!("skipped: {}", strict.stderr.trim_end());
        return;
    }
    for (more, printed) in [
        ("", "\"no\"\n"),
        ("read: ['~/chain']", "\"word\"\n"),
        ("read: ['${FLOW_HOME}/../chain/word']", "\"word\"\n"),
        ("read: ['~/other']", "\"no\"\n"),
    ] {
        let tool = format!("exec: '${{FLOW_HOME}}/../chain/word', permissions: {{{more}}}");
        let world = self::world(&tool, "delta-flow tool t </dev/null 2>/dev/null || echo no");
        world.script("chain/word", "#!/bin/sh\necho word\n");
        world.write("other/word", "word");
        run(&world)
            .env("HOME", world.home())
            .exits(0)
            .prints(printed);
    }
}

#[test]
fn a_tool_reaches_the_hosts_that_its_permissions_open() {
    let calls_it = "delta-flow tool t </dev/null >/dev/null 2>&1 || :; echo";
    let hosts = world(
        "exec: 'true', permissions: {allow_hosts: [A.test, '*.b.test:90']}",
        calls_it,
    );
    run(&hosts).exits(0);
    let command = record(&hosts).text("io/nodes/T1/a/tools/001_t/command.txt");
    let words = "--no-network --allow-host a.test --allow-host '*.b.test:90' -- true";
    assert!(command.trim_end().ends_with(words), "{command}");
    for (permissions, code, words) in [
        ("{allow_hosts: ['http://a']}", 78, "allow_hosts: 'http://a'"),
        (
            "{allow_hosts: [a.test], allow_network: true}",
            78,
            "contradict",
        ),
        (
            "{allow_hosts: ['*.github.io']}",
            0,
            "every name below github.io",
        ),
    ] {
        let world = world(&format!("exec: 'true', permissions: {permissions}"), "echo");
        world.delta(["flow", "check", "f"]).exits(code).says(words);
    }
}

#[test]
fn a_number_that_no_call_has_does_not_count() {
    let world = world(
        "exec: 'printf hi'",
        r#"mkdir -p "${FLOW_CONTEXT%/*}/tools/4294967295_x"; echo "{}" | delta-flow tool t"#,
    );
    run(&world).exits(0).prints("\"hi\"\n");
    assert!(world.exists("ws/.delta/r/io/nodes/T1/a/tools/001_t"));
}
