//! How runs of flows are told by `delta log`, `delta stats` and `delta report`, with the runs that their nodes
//! have started.

use crate::flow::run::{chain, run};
use crate::harness::*;
use crate::view::report::records;
use serde_json::{Value, json};

/// A flow in which two agents, `one` and `two`, get the same input at once. Their models say on `here`
/// that they were asked, and answer when somebody writes to their gates.
pub fn pair() -> (World, Fifo, [Fifo; 2]) {
    let world = World::new();
    let agent = |id: &str| {
        format!("- {{id: {id}, kind: agent, role: linear, context: none, agent_id: {id}}}\n")
    };
    let nodes = [
        start(),
        node("b", "branch", ""),
        agent("one"),
        agent("two"),
        node("m", "merge", ""),
        exit(),
    ];
    let workflow = flow(&nodes, "s>b b>one b>two one>m two>m m>x");
    world.write("f/workflow.yaml", workflow);
    let agent = |id: &str| {
        format!(
            "- {{id: {id}, llm: any/{id}, prompt: 'You are {id}.', \
             config: {{command: ['${{AGENT_HOME}}/../../../../../m', {id}]}}}}\n"
        )
    };
    world.write(
        "f/agents.yaml",
        format!("agents:\n{}{}", agent("one"), agent("two")),
    );
    let script = r#"#!/bin/sh
cat > /dev/null
echo "$1" > "$HOME/here"
read go < "$HOME/gate-$1"
printf '{"choices":[{"message":{"role":"assistant","content":"[\\"from %s\\"]"},"finish_reason":"stop"}],' "$1"
printf '"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110}}'
"#;
    world.script("m", script);
    let gates = [world.fifo("gate-one"), world.fifo("gate-two")];
    let here = world.fifo("here");
    (world, here, gates)
}

/// Runs it with both at once; the first one ends first.
pub fn together(world: &World, here: &mut Fifo, gates: &mut [Fifo; 2]) {
    let delta = run(world)
        .args(["--run-id", "r", "-m", "hello", "-j", "2"])
        .spawn();
    here.line();
    here.line();
    gates[0].tell("go");
    let run = Run {
        dir: world.path("ws/.delta/r"),
    };
    let is_first = |end: &Value| end["node_id"] == "one";
    eventually("the first has ended", || {
        run.events_so_far("NODE_END").iter().any(is_first)
    });
    gates[1].tell("go");
    delta
        .wait()
        .exits(0)
        .prints("[[\"from one\"],[\"from two\"]]\n");
}

fn log(world: &World, args: &[&str]) -> String {
    let outcome = world.delta(["log", "-w", "ws"]).args(args).exits(0);
    String::from_utf8(outcome.stdout).unwrap()
}

/// With the margin of nested runs or without it.
fn lines(log: &str, nested: bool) -> Vec<&str> {
    let is_nested = |line: &&str| line.contains('│') == nested;
    log.lines().filter(is_nested).collect()
}

#[test]
fn the_run_of_an_agent_stands_above_the_end_of_its_node() {
    let (world, mut here, mut gates) = pair();
    together(&world, &mut here, &mut gates);
    let log = log(&world, &["r"]);
    for id in ["one", "two"] {
        let end = log
            .lines()
            .position(|line| line.contains(&format!(" {id} ok, ")));
        let before: Vec<&str> = log.lines().take(end.expect("its end")).collect();
        let own: Vec<&&str> = before
            .iter()
            .rev()
            .take_while(|line| line.contains('│'))
            .collect();
        let said = |words: &str| own.iter().filter(|line| line.contains(words)).count();
        assert_eq!(
            said("COMPLETED"),
            1,
            "{id} has one run, and not the other's\n{log}"
        );
        assert_eq!(said(&format!("[\"from {id}\"]")), 1, "{log}");
    }
}

#[test]
fn each_event_of_a_flow_is_one_line() {
    let world = World::new();
    world.write("f/tools.yaml", "tools:\n- {id: t, exec: cat}\n");
    let flow = env!("CARGO_BIN_EXE_delta-flow");
    chain(
        &world,
        &format!(
            "retries: 1, tools: [t], shell: 'test \"$FLOW_ATTEMPT\" = 2 || \
             {{ printf \"no\\tway\\nat all\" >&2; exit 1; }}; {flow} tool t <&- >&2; echo \"{{}}\"'"
        ),
    );
    run(&world).args(["-m", "a\nb"]).exits(0);
    let log = log(&world, &[]);
    let told: Vec<String> = log
        .lines()
        .skip(2)
        .map(|line| line[11..].to_owned())
        .collect();
    let expected = [
        "T1     begins with \"a\\nb\"",
        "T1     s ok",
        "T1     s → a",
        "T1     a $ sh -c ",
        "T1     a operation: exit code 1: no way at all, and is retried",
        "T1     a (attempt 2) $ sh -c ",
        "T1     a calls t  ok, ",
        "T1     a ok, ",
        "T1     a → x",
        "T1     x ok",
        "T1     success at x",
        "end    COMPLETED",
    ];
    assert_eq!(told.len(), expected.len(), "{log}");
    for (line, expected) in told.iter().zip(expected) {
        assert!(
            line.starts_with(expected),
            "{line:?} is not {expected:?}\n{log}"
        );
    }
    assert!(
        told[7].ends_with("MiB  {}"),
        "its output is told: {}",
        told[7]
    );
}

#[test]
fn a_followed_log_shows_the_run_of_an_agent_when_its_node_ends() {
    let (world, mut here, mut gates) = pair();
    let delta = run(&world)
        .args(["--run-id", "r", "-m", "hello", "-j", "1"])
        .spawn();
    here.line();
    let log = world.delta(["log", "-w", "ws", "-f"]).spawn();
    eventually("the log has begun", || log.stdout().contains("one $"));
    assert!(!log.stdout().contains('│'));
    gates[0].tell("go");
    here.line();
    eventually("the agent is told", || log.stdout().contains("one ok, "));
    assert_eq!(
        lines(&log.stdout(), true)
            .iter()
            .filter(|l| l.contains("[\"from one\"]"))
            .count(),
        1
    );
    gates[1].tell("go");
    delta.wait().exits(0);
    let log = log.wait().exits(0);
    let log = String::from_utf8_lossy(&log.stdout);
    assert_eq!(log.matches("[1]    [\"from two\"]").count(), 1, "{log}");
    assert!(
        lines(&log, false).last().unwrap().contains("COMPLETED"),
        "{log}"
    );
}

#[test]
fn the_run_of_an_agent_that_was_interrupted_is_told_once_however_often_it_was_taken_up() {
    let (world, mut here, mut gates) = pair();
    let begin = || {
        run(&world)
            .args(["--run-id", "r", "-m", "hello", "-j", "1"])
            .spawn()
    };
    let delta = begin();
    here.line();
    delta.kill();
    let agent = world.path("ws/tasks/r/T1.c0/.delta");
    eventually("the agent has ended", || {
        agent.join("LATEST").is_file()
            && Run::latest(&agent.with_file_name("")).metadata()["status"] == "INTERRUPTED"
    });
    let half = log(&world, &["r"]);
    assert_eq!(
        lines(&half, true)
            .iter()
            .filter(|l| l.contains("INTERRUPTED"))
            .count(),
        1,
        "{half}"
    );
    let delta = begin();
    gates[0].tell("go");
    gates[1].tell("go");
    delta.wait().exits(0);
    // What the attempt that nobody waited for any more has said is told with it.
    let so_far = of_kind(&world, "so far");
    let of: Vec<&Value> = so_far.iter().map(|record| &record["node_id"]).collect();
    assert_eq!(of, ["one", "two"]);
    let whole = log(&world, &["r"]);
    assert_eq!(whole.matches("agent one, model one").count(), 2, "{whole}");
    assert_eq!(
        whole.matches("│    0:0").count(),
        whole.matches("\n          │    0:0").count()
    );
    let starts = lines(&whole, true)
        .iter()
        .filter(|line| line.contains(" starts "))
        .count();
    assert_eq!(starts, 2, "one run of each agent\n{whole}");
}

#[test]
fn a_flow_within_a_flow_is_told_at_the_node_that_ran_it_though_both_have_one_name() {
    let world = World::new();
    chain(&world, "shell: 'read n; echo \"[$n]\"'");
    std::fs::rename(world.path("f"), world.path("inner")).unwrap();
    let program = env!("CARGO_BIN_EXE_delta-flow");
    let nodes = [
        start(),
        node("parts", "split", ""),
        node(
            "a",
            "linear",
            &format!(
                ", command: ['{program}', run, '${{FLOW_HOME}}/../inner', -i, '-', --run-id, same]"
            ),
        ),
        node("m", "merge", ""),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>parts parts>a a>m m>x"));
    run(&world)
        .args(["-i", "-", "-j", "2"])
        .stdin("[\"first\", \"second\"]")
        .exits(0)
        .prints("[[\"first\"],[\"second\"]]\n");
    let log = log(&world, &[]);
    for (task, input) in [("T1.s0", "first"), ("T1.s1", "second")] {
        let end = log
            .find(&format!("{task}  a ok, "))
            .unwrap_or_else(|| panic!("{log}"));
        let begin = log[..end].rfind("begins with").expect("the inner run");
        assert!(
            log[begin..end].starts_with(&format!("begins with \"{input}\"")),
            "{log}"
        );
    }
    // One of the two has started a run itself: the list has it there, and not below the other, too.
    let inner = world.path(&world.in_task("T1.s0/.delta"));
    copy(&inner.join("same"), &inner.join("deep"));
    let metadata = world.read(&world.in_task("T1.s0/.delta/deep/metadata.json"));
    let metadata = metadata.replace(&Run::latest(&world.path("ws")).id(), "same");
    let metadata = metadata.replace("\"run_id\": \"same\"", "\"run_id\": \"deep\"");
    world.write(&world.in_task("T1.s0/.delta/deep/metadata.json"), metadata);
    let list = list(&world, &[]);
    assert_eq!(list.matches("\n  same").count(), 2, "{list}");
    assert_eq!(list.matches("\n    deep").count(), 1, "{list}");
    std::fs::remove_dir_all(inner.join("deep")).unwrap();
    let parent = Run::latest(&world.path("ws")).id();
    for n in 0..2 {
        let run = Run {
            dir: world.path(&world.in_task(&format!("T1.s{n}/.delta/same"))),
        };
        let metadata = run.metadata();
        assert_eq!(metadata["parent_run_id"], json!(parent));
        let call = &Run::latest(&world.path("ws")).events("NODE_START");
        let call = call
            .iter()
            .find(|event| event["task_id"] == format!("T1.s{n}") && event["node_id"] == "a");
        assert_eq!(
            metadata["parent_call_id"],
            call.expect("a start")["call_id"]
        );
        assert_eq!(
            run.events("ENGINE_START")[0]["parent_call_id"],
            metadata["parent_call_id"]
        );
    }
}

/// The figures of the newest run.
fn figures(world: &World) -> Value {
    let outcome = world.delta(["stats", "-w", "ws"]).json().exits(0);
    let all: Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
    all[0].clone()
}

#[test]
fn the_figures_of_a_flow_have_its_nodes_and_the_tokens_of_its_agents() {
    let (world, mut here, mut gates) = pair();
    together(&world, &mut here, &mut gates);
    let figures = figures(&world);
    assert_eq!(figures["model_calls"], 2);
    assert_eq!(figures["tokens"]["prompt_tokens"], 200, "{figures}");
    assert_eq!(figures["tokens"]["completion_tokens"], 20);
    let flow = &figures["flow"];
    assert_eq!(
        (&flow["tasks"], &flow["failed_tasks"]),
        (&json!(3), &json!(0))
    );
    let nodes = flow["nodes"].as_object().unwrap();
    let ids: Vec<&String> = nodes.keys().collect();
    assert_eq!(ids, ["b", "m", "one", "s", "two", "x"]);
    for id in ["one", "two"] {
        let node = &nodes[id];
        assert_eq!((&node["count"], &node["failures"]), (&json!(1), &json!(0)));
        assert_eq!(node["tokens"]["total_tokens"], 110, "{node}");
        let number = |key: &str| node[key].as_u64().expect("a number");
        assert!(
            number("memory_bytes") > 1 << 20 && number("context_bytes") > 10,
            "{node}"
        );
        let run = Run {
            dir: world.path("ws/.delta/r"),
        };
        let ends = run.events("NODE_END");
        let end = ends.iter().find(|end| end["node_id"] == id).unwrap();
        assert_eq!(node["longest_ms"], end["duration_ms"]);
        assert_eq!(node["cpu_ms"], end["cpu_ms"]);
    }
    let times = &figures["times_ms"];
    let of = |key: &str| times[key].as_u64().expect("a time");
    let longest = nodes["one"]["longest_ms"].as_u64().unwrap();
    assert!(
        of("tools") >= longest && of("tools") <= of("total"),
        "{times}"
    );
    assert_eq!(of("delta"), of("total") - of("tools"));
    // An agent's run that is looked at by itself is what it was.
    let outcome = world
        .delta(["stats", "-w", &world.in_task("T1.c0")])
        .json()
        .exits(0);
    let own: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(own[0]["tokens"]["prompt_tokens"], 100);
    assert_eq!(own[0].get("flow"), None);
}

#[test]
fn attempts_failures_known_outputs_and_calls_of_tools_are_counted() {
    let world = World::new();
    world.write("f/tools.yaml", "tools:\n- {id: t, shell: 'echo four'}\n");
    let program = env!("CARGO_BIN_EXE_delta-flow");
    let nodes = [
        start(),
        node("parts", "split", ""),
        node(
            "a",
            "linear",
            &format!(
                ", retries: 1, continue_on_failure: true, tools: [t], shell: 'read n; {program} tool t <&- >&2; \
                 {program} tool no 2>&-; test \"$n\" != 2 && test \"$FLOW_ATTEMPT\" != 1; echo \"[]\"; exit $((n == 2 || FLOW_ATTEMPT == 1))'"
            ),
        ),
        node("m", "merge", ""),
        node("k", "linear", ", cache: true, shell: 'cat'"),
        exit(),
    ];
    world.write(
        "f/workflow.yaml",
        flow(&nodes, "s>parts parts>a a>m m>k k>x"),
    );
    let again = |id: &str| {
        let delta = run(&world).args(["-i", "-", "-j", "2", "--run-id", id]);
        delta.stdin("[1, 2]").end()
    };
    again("first").exits(3);
    again("second").exits(3);
    let figures = figures(&world);
    let nodes = &figures["flow"]["nodes"];
    for (id, key, number) in [
        ("a", "count", 2),
        ("a", "failures", 1),
        ("a", "retries", 2),
        ("a", "cached", 0),
        ("k", "cached", 1),
        ("k", "count", 1),
        ("k", "longest_ms", 0),
        ("s", "memory_bytes", 0),
    ] {
        assert_eq!(nodes[id][key], number, "{key} of {id}: {nodes}");
    }
    let tool = |name: &str, key: &str| figures["tools"][name][key].as_u64();
    assert_eq!(tool("t", "calls"), Some(4), "{figures}");
    assert_eq!(
        (tool("t", "failures"), tool("t", "bytes")),
        (Some(0), Some(20))
    );
    let show = |args: &[&str]| {
        let outcome = world.delta(["stats", "-w", "ws"]).args(args).end();
        String::from_utf8(outcome.exits(0).stdout).unwrap()
    };
    let text = show(&[]);
    let row = |text: &str, name: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name:?} in {text}"));
        line[name.len()..]
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(row(&text, "nodes  "), ["7"]);
    assert_eq!(row(&text, "  retried"), ["2"]);
    assert_eq!(row(&text, "  cached"), ["1"]);
    assert_eq!(row(&text, "a  ")[..2], ["2", "1"]);
    assert_eq!(row(&text, "t  ")[..2], ["4", "0"]);
    let both = show(&["first", "second"]);
    assert_eq!(row(&both, "  cached"), ["0", "0"], "of tokens");
    assert_eq!(row(&both, "  retried"), ["2", "2"]);
    assert_eq!(row(&both, "  a")[..2], ["2", "x"]);
    let csv = show(&["first", "second", "--format", "csv"]);
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| lines[0].iter().position(|it| *it == name).unwrap();
    assert_eq!(lines[1][column("node.k.cached")], "0");
    assert_eq!(lines[2][column("node.k.cached")], "1");
    assert_eq!(lines[2][column("nodes")], "7");
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    // The same by its other name.
    let other = Delta::flow(world.home())
        .args(["stats", "-w", "ws", "first", "second"])
        .end();
    other.exits(0).prints(&both);
}

/// The records of a kind in the page about the flow's run.
fn of_kind(world: &World, kind: &str) -> Vec<Value> {
    let outcome = world.delta(["report", "-w", "ws", "r"]).exits(0);
    let page = String::from_utf8(outcome.stdout).unwrap();
    let records = records(&page).into_iter();
    records.filter(|record| record["type"] == kind).collect()
}

/// The page about the flow's run in a browser; none if there is no browser.
#[track_caller]
fn shown(world: &World, fragment: &str) -> Option<Opened> {
    let outcome = world.delta(["report", "-w", "ws", "r"]).exits(0);
    let file = world.write("report.html", &outcome.stdout);
    open(world.home(), &file, fragment)
}

#[test]
fn a_page_has_what_each_node_was_given_and_made_of_it() {
    let world = World::new();
    world.write(
        "f/tools.yaml",
        "tools:\n- {id: t, exec: 'echo from the tool'}\n",
    );
    let program = env!("CARGO_BIN_EXE_delta-flow");
    chain(
        &world,
        &format!(
            "retries: 1, tools: [t], shell: 'cat >&2; test \"$FLOW_ATTEMPT\" = 2 || exit 4; {program} tool t <&- >&2; echo \"[1]\"'"
        ),
    );
    run(&world)
        .args(["--run-id", "r", "-m", "the input"])
        .exits(0);
    assert_eq!(of_kind(&world, "TASK_CREATED")[0]["input"], "\"the input\"");
    let nodes = of_kind(&world, "NODE_START");
    let own: Vec<&Value> = nodes.iter().filter(|node| node["node_id"] == "a").collect();
    assert_eq!(
        (&own[0]["attempt"], &own[1]["attempt"]),
        (&json!(1), &json!(2))
    );
    for attempt in own {
        assert_eq!(attempt["input"], "\"the input\"");
        assert!(
            attempt["resolved_command"]
                .as_str()
                .unwrap()
                .starts_with("sh -c")
        );
        assert!(attempt["context"].as_str().unwrap().contains("profile"));
    }
    let retry = &of_kind(&world, "ERROR")[0];
    assert_eq!(
        (&retry["node_id"], &retry["code"]),
        (&json!("a"), &json!("operation"))
    );
    assert_eq!(retry["stderr"], "\"the input\"");
    let call = &of_kind(&world, "TOOL")[0];
    assert_eq!(
        (&call["tool_name"], &call["status"]),
        (&json!("t"), &json!("success"))
    );
    assert_eq!(call["stdout"], "from the tool\n");
    let ends = of_kind(&world, "NODE_END");
    let end = ends.iter().find(|end| end["node_id"] == "a").unwrap();
    assert_eq!(
        (&end["output"], &end["status"]),
        (&json!("[1]"), &json!("success"))
    );
    assert_eq!(end["stderr"], "\"the input\"from the tool\n");
    assert!(end["memory_bytes"].is_u64() && end["cpu_ms"].is_u64() && end["duration_ms"].is_u64());
    assert_eq!(of_kind(&world, "ROUTE").len(), 2);
    assert_eq!(of_kind(&world, "TASK_END")[0]["exit_node"], "x");
    let Some(folded) = shown(&world, "") else {
        return;
    };
    folded.is_well();
    for text in [
        "flow f",
        "T1",
        "operation, and is retried",
        "attempt 2",
        "→ x",
        "success",
        "calls",
    ] {
        folded.shows(text);
    }
    folded.shows_not("<pre");
    let open = shown(&world, "#open=T1").unwrap();
    open.is_well()
        .shows("from the tool")
        .shows("what it was given, as it is");
    let found = shown(&world, "#search=from%20the%20tool").unwrap();
    assert_eq!(found.is_well().attribute("data-hits"), Some("2"));
}

#[test]
fn the_run_of_an_agent_is_in_the_page_within_its_node() {
    let (world, mut here, mut gates) = pair();
    together(&world, &mut here, &mut gates);
    let outcome = world.delta(["report", "-w", "ws", "r"]).exits(0);
    let all = records(&String::from_utf8(outcome.stdout).unwrap());
    let mut whose = None;
    for record in &all {
        match record["type"].as_str().unwrap() {
            "run" if record["parent"] == "r" => whose = Some(record.clone()),
            "NODE_END" if ["one", "two"].iter().any(|id| record["node_id"] == *id) => {
                let run = whose.take().expect("a run before the end of its node");
                assert_eq!(run["agent"], record["node_id"]);
                let starts = all.iter().filter(|it| it["type"] == "NODE_START");
                let mut of_node = starts.filter(|it| it["node_id"] == record["node_id"]);
                assert_eq!(of_node.next().expect("its start")["call_id"], run["call"]);
            }
            _ => {}
        }
    }
    let own = |key: &str| all[0]["figures"]["tokens"][key].as_u64();
    assert_eq!(own("prompt_tokens"), Some(200));
    let Some(folded) = shown(&world, "") else {
        return;
    };
    folded.is_well().shows("run of one").shows("run of two");
    // Each stands in the task of its own node.
    let place = |text: &str| {
        folded
            .content()
            .find(text)
            .unwrap_or_else(|| panic!("{text}"))
    };
    assert!(place(">T1.c0<") < place("run of one") && place("run of one") < place(">T1.c1<"));
    assert!(place(">T1.c1<") < place("run of two"));
    folded.shows_not("You are two.");
    let found = shown(&world, "#search=You%20are%20two.").unwrap();
    found.is_well().shows("You are two.");
    let all = shown(&world, "#open=all").unwrap();
    all.is_well().shows("You are one.").shows("You are two.");
}

#[test]
fn nothing_of_a_flow_becomes_markup_and_what_is_no_text_is_said_to_be_none() {
    let world = World::new();
    chain(
        &world,
        "shell: 'cat >&2; printf \"\\\\0\\\\377\" >&2; cat in'",
    );
    let hostile = format!("{}\u{202e}txt\u{0}", crate::view::report::HOSTILE);
    let json = serde_json::to_string(&hostile).unwrap();
    world.write("ws/in", &json);
    world.write("in.json", &json);
    run(&world)
        .args(["--run-id", "r", "-i", "in.json"])
        .exits(0);
    let outcome = world.delta(["report", "-w", "ws", "r"]).exits(0);
    let page = String::from_utf8(outcome.stdout).unwrap();
    assert_eq!(page.matches("<script").count(), 2);
    assert!(!page.contains("<img") && !page.contains("<!--") && !page.contains('\0'));
    let end = of_kind(&world, "NODE_END");
    assert_eq!(end[1]["output"], json.replace('\u{202e}', r"\u{202e}"));
    assert!(
        end[1]["stderr"]
            .as_str()
            .unwrap()
            .starts_with("[binary output")
    );
    let Some(shown) = shown(&world, "#open=all") else {
        return;
    };
    shown
        .is_well()
        .shows("document.title='owned'")
        .shows_not("<img");
    assert!(!shown.dom.contains("<title>owned"), "it ran");
}

#[test]
fn a_large_payload_is_told_by_its_ends_and_other_files_are_not_read() {
    let world = World::new();
    chain(
        &world,
        "output: text, shell: 'cat > /dev/null; head -c 200000 /dev/zero | tr \"\\\\0\" x'",
    );
    run(&world).args(["--run-id", "r"]).exits(0);
    let end = &of_kind(&world, "NODE_END")[1];
    let told = end["output"].as_str().expect("a text");
    assert!(
        told.len() < 70_000 && told.contains("bytes omitted"),
        "{}",
        told.len()
    );
    let journal = world.path("ws/.delta/r/journal.jsonl");
    let text = world.read("ws/.delta/r/journal.jsonl");
    world.write("secret/stderr.log", "the secret");
    world.write("ws/.delta/r/output", "the secret");
    let text = text
        .replace(
            "\"execution_ref\":\"io/nodes/T1/a\"",
            "\"execution_ref\":\"io/../../../../secret\"",
        )
        .replace("\"output_ref\":\"io/", "\"output_ref\":\"output\",\"x\":\"");
    std::fs::write(journal, text).unwrap();
    let outcome = world.delta(["report", "-w", "ws", "r"]).exits(0);
    let page = String::from_utf8(outcome.stdout).unwrap();
    assert!(!page.contains("the secret"));
}

#[test]
fn nodes_without_an_end_are_told_as_they_are() {
    let world = World::new();
    let mut gate = world.fifo("gate");
    chain(
        &world,
        "shell: 'echo half a word >&2; echo here > \"$HOME/gate\"; read go < \"$HOME/later\"; cat'",
    );
    let _later = world.fifo("later");
    let delta = run(&world).args(["--run-id", "r"]).spawn();
    assert_eq!(gate.line(), "here");
    let so_far = of_kind(&world, "so far");
    assert_eq!(
        (&so_far[0]["node_id"], &so_far[0]["stderr"]),
        (&json!("a"), &json!("half a word\n"))
    );
    assert_eq!(of_kind(&world, "live").len(), 1);
    let live = shown(&world, "#open=all");
    delta.kill();
    assert_eq!(of_kind(&world, "dead").len(), 1);
    let Some(live) = live else { return };
    live.is_well()
        .shows("is running")
        .shows("half a word")
        .shows(">open<");
    let dead = shown(&world, "#open=all").unwrap();
    dead.is_well().shows("no end").shows("half a word");
}

#[test]
fn three_thousand_tasks_are_a_page_that_a_browser_opens() {
    let world = World::new();
    let nodes = [
        start(),
        node("parts", "split", ""),
        node("a", "linear", ""),
        node("m", "merge", ""),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>parts parts>a a>m m>x"));
    let input: Vec<usize> = (0..3_000).collect();
    world.write("in.json", serde_json::to_string(&input).unwrap());
    run(&world)
        .args(["--run-id", "r", "-q", "-i", "in.json"])
        .exits(0);
    assert_eq!(of_kind(&world, "TASK_CREATED").len(), 3_001);
    let Some(shown) = shown(&world, "#search=T1.s2999") else {
        return;
    };
    shown.is_well();
    assert_eq!(
        shown.content().matches("class=\"group of-task").count(),
        3_001
    );
    // Only the rows of the task that was looked for are there.
    assert!(shown.content().matches("row step").count() < 20);
}

fn list(world: &World, args: &[&str]) -> String {
    let outcome = world.delta(["list-runs", "-w", "ws"]).args(args).end();
    String::from_utf8(outcome.exits(0).stdout).unwrap()
}

#[test]
fn the_runs_of_a_flow_stand_below_it_in_the_list() {
    let (world, mut here, mut gates) = pair();
    together(&world, &mut here, &mut gates);
    world.model_says([text("done")]);
    world.run("later").args(["--run-id", "later"]).exits(0);
    let text = list(&world, &[]);
    let rows: Vec<(&str, Vec<&str>)> = text
        .lines()
        .skip(1)
        .map(|line| {
            let name = line.trim_start();
            (
                &line[..line.len() - name.len()],
                name.split_whitespace().collect(),
            )
        })
        .collect();
    let names: Vec<&str> = rows.iter().map(|(_, cells)| cells[0]).collect();
    assert_eq!(names[..2], ["later", "r"]);
    assert_eq!(names.len(), 4, "{text}");
    assert!(names[2].starts_with("node-") && names[3].starts_with("node-"));
    assert_eq!(
        [rows[0].0, rows[1].0, rows[2].0, rows[3].0],
        ["", "", "  ", "  "]
    );
    // A flow has no iterations, and the tokens of its agents.
    let cells = &rows[1].1;
    let at = cells
        .iter()
        .position(|cell| *cell == "-")
        .expect("no iterations");
    assert_eq!(cells[at + 1], "220", "{text}");
    assert_eq!(list(&world, &["--first"]), "later\n");
    let json: Value = serde_json::from_str(&list(&world, &["--format", "json"])).unwrap();
    let ids: Vec<&Value> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["run_id"])
        .collect();
    assert_eq!(ids, ["later", "r"], "runs of this workspace, flat");
    assert!(!list(&world, &["--resumable"]).contains("node-"));
}

#[test]
fn many_runs_of_one_flow_are_counted_and_not_listed() {
    let world = World::new();
    let program = env!("CARGO_BIN_EXE_delta");
    let nodes = [
        start(),
        node("parts", "split", ""),
        node(
            "a",
            "linear",
            &format!(
                ", output: text, command: ['{program}', run, -q, -a, '${{FLOW_HOME}}/../agent', -w, ., -m, go]"
            ),
        ),
        node("m", "merge", ""),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>parts parts>a a>m m>x"));
    world.server.answers(|_| text("done"));
    let input = serde_json::to_string(&vec![1; 22]).unwrap();
    run(&world)
        .args(["--run-id", "r", "-i", "-", "-j", "2"])
        .stdin(input)
        .env("DELTA_API_KEY", "k")
        .exits(0);
    let text = list(&world, &[]);
    assert_eq!(text.lines().count(), 1 + 1 + 20 + 1, "{text}");
    assert_eq!(text.lines().last(), Some("  … and 2 more"));
    let tokens = figures(&world)["tokens"]["total_tokens"].as_u64().unwrap();
    assert!(
        tokens > 0 && text.contains(&format!(" {tokens}  ")),
        "{tokens}: {text}"
    );
}

#[test]
fn the_newest_run_is_the_flow_and_not_its_agent_that_works_in_the_same_workspace() {
    let world = World::new();
    chain(&world, "");
    let workflow = world.read("f/workflow.yaml").replace(
        "{id: a, kind: deterministic, role: linear, context: none, }",
        "{id: a, kind: agent, role: linear, context: none, agent_id: ag}",
    );
    world.write("f/workflow.yaml", workflow);
    world.write(
        "f/agents.yaml",
        "agents:\n- {id: ag, path: ../agent, ask_human: true}\n",
    );
    let question = call("q", "ask_human", &json!({"prompt": "Which one?"}));
    world.model_says([question, text("{\"chosen\": 1}")]);
    let command = || run(&world).args(["-m", "go"]);
    command().exits(101).says("Which one?");
    let of_flow = |runs: Vec<Run>| -> Vec<String> {
        let flows = runs
            .into_iter()
            .filter(|run| run.metadata()["flow"].is_object());
        flows.map(|run| run.id()).collect()
    };
    let flows = of_flow(world.runs());
    assert!(log(&world, &[]).contains("flow f from s"));
    assert!(figures(&world)["flow"].is_object());
    // The same command goes on, without a name for the run.
    command().exits(101).says("Which one?");
    let agent = Run::latest(&world.workspace()).id();
    assert!(agent.starts_with("node-a"));
    let answer = world.delta(["continue", "-w", "ws", "--run-id", &agent, "-m", "b"]);
    answer.env("DELTA_API_KEY", "k").exits(0);
    command().exits(0).prints("{\"chosen\": 1}\n");
    assert_eq!(of_flow(world.runs()), flows, "there is one run of the flow");
}

#[test]
fn a_node_that_failed_without_a_program_shows_no_output() {
    let world = World::new();
    let nodes = [start(), node("d", "decision", ""), exit()];
    world.write("f/workflow.yaml", flow(&nodes, "s>d d>x:one d>x:two"));
    run(&world).args(["-m", "none"]).exits(1);
    let show = |node: &str| {
        let show = Delta::flow(world.home()).args(["show", "-w", "ws", "T1", node]);
        String::from_utf8(show.exits(0).stdout).unwrap()
    };
    let failed = show("d");
    assert!(failed.ends_with("--- input\n\"none\"\n"), "{failed}");
    let passed = show("s");
    assert!(
        passed.ends_with("--- output\nthe input, as it is\n"),
        "{passed}"
    );
}

#[test]
fn show_prints_no_control_characters_of_a_message() {
    let world = World::new();
    chain(&world, "shell: 'printf \"one\\n\\033[31mtwo\" >&2; exit 1'");
    run(&world).exits(1);
    for names in [&["T1"][..], &["T1", "a"]] {
        let show = Delta::flow(world.home()).args(["show", "-w", "ws"]);
        let shown = show.args(names).exits(0).stdout;
        let shown = String::from_utf8(shown).unwrap();
        let head = shown.split("---").next().unwrap();
        assert!(head.contains("two") && !head.contains('\u{1b}'), "{head:?}");
        assert!(
            head.contains("exit code 1: one \u{fffd}[31mtwo\n"),
            "{head:?}"
        );
    }
}
