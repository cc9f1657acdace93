//! Running a flow: roles, programs, files, and what is told of them.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The directories of the acceptance cases that are run.
fn cases() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/flow-cases");
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut cases: Vec<PathBuf> = entries.collect();
    cases.retain(|case| expected(case)["load_error"].is_null());
    cases.sort();
    cases
}

fn expected(case: &Path) -> Value {
    serde_json::from_slice(&fs::read(case.join("expected.json")).unwrap()).unwrap()
}

/// A flow's result without what differs from run to run.
pub fn result(outcome: &Outcome) -> Value {
    let mut object = outcome.object();
    let keys = object.as_object_mut().unwrap();
    keys.remove("run_id").unwrap();
    keys.remove("metrics").unwrap();
    object
}

/// What a case says of a task and its result does not, or in another form.
const BESIDE: [&str; 7] = [
    "about",
    "alternatives",
    "children",
    "clones",
    "error_code",
    "losers_may_be_cancelled",
    "subtasks",
];

/// Compares a task with what a case expects of it, and its children with theirs.
fn compare(case: &str, expected: &Value, all: &[Value], task: &Value, losers: bool) {
    if losers && task["status"] == "cancelled" {
        return;
    }
    for (key, value) in expected.as_object().unwrap() {
        if !BESIDE.contains(&key.as_str()) {
            assert_eq!(task.get(key), Some(value), "{case}: {key} of {task}");
        }
    }
    let children = all
        .iter()
        .filter(|other| other["parent"] == task["task_id"]);
    let children: Vec<&Value> = children.collect();
    let wanted = expected["children"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    assert_eq!(children.len(), wanted.len(), "{case}: children of {task}");
    for (wanted, child) in wanted.iter().zip(children) {
        compare(case, wanted, all, child, losers);
    }
}

#[test]
fn the_acceptance_cases_hold_one_at_a_time_and_eight_at_once() {
    let cases = cases();
    assert_eq!(cases.len(), 19);
    for case in cases {
        let name = case.file_name().unwrap().to_str().unwrap().to_owned();
        let expected = expected(&case);
        let results = ["1", "8"].map(|jobs| {
            let world = World::new();
            let outcome = Delta::flow(world.home())
                .args(["run", "-j", jobs, "-w", "ws", "-i"])
                .arg(case.join("input.json"))
                .arg(case.join("config"))
                .json()
                .end();
            let code = match expected["status"].as_str() {
                Some("success") => 0,
                Some("partial") => 3,
                _ => 1,
            };
            result(&outcome.exits(code))
        });
        assert_eq!(results[0], results[1], "{name}");
        let all = results[0]["tasks"].as_array().unwrap();
        let losers = expected["losers_may_be_cancelled"] == true;
        compare(&name, &expected, all, &all[0], losers);
        for key in ["status", "exit_node", "output"] {
            assert_eq!(results[0].get(key), expected.get(key), "{name}: {key}");
        }
        for (key, kind) in [("clones", "clone"), ("subtasks", "subtask")] {
            let count = all.iter().filter(|task| task["type"] == kind).count();
            assert_eq!(expected[key], count, "{name}: {key}");
        }
        if let Some(code) = expected.get("error_code") {
            assert_eq!(&results[0]["error"]["code"], code, "{name}");
        }
    }
}

/// A flow of `start`, the node `a`, and `exit`.
pub fn chain(world: &World, a: &str) {
    world.write(
        "f/workflow.yaml",
        format!(
            "nodes:\n\
             - {{id: s, kind: deterministic, role: start, context: none, default_start: true}}\n\
             - {{id: a, kind: deterministic, role: linear, context: none, {a}}}\n\
             - {{id: x, kind: deterministic, role: exit, context: none}}\n\
             edges:\n- {{from: s, to: a}}\n- {{from: a, to: x}}\n"
        ),
    );
}

pub fn run(world: &World) -> Delta {
    Delta::flow(world.home()).args(["run", "f", "-w", "ws"])
}

#[test]
fn a_program_gets_the_payload_and_knows_where_it_is() {
    let world = World::new();
    let script = concat!(
        r#"shell: 'test "$(cat)" = "{\"n\":1}" && test -s "$FLOW_CONTEXT" && "#,
        r#"printf "[\"%s\",\"%s\",\"%s\",\"%s\",\"%s\"]" "$FLOW_TASK_ID" "$FLOW_NODE_ID" "#,
        r#""$FLOW_ATTEMPT" "$FLOW_RUN_ID" "$(basename "$PWD")"'"#
    );
    chain(&world, script);
    run(&world)
        .args(["-i", "-", "--run-id", "r"])
        .stdin("{\"n\":1}")
        .exits(0)
        .prints("[\"T1\",\"a\",\"1\",\"r\",\"ws\"]\n");
    let run = Run::latest(&world.path("ws"));
    let io = |name: &str| run.text(&format!("io/nodes/T1/a/{name}"));
    assert_eq!(io("input.json"), "{\"n\":1}");
    assert_eq!(io("exit_code.txt"), "0\n");
    assert!(
        io("command.txt").starts_with("sh -c "),
        "{}",
        io("command.txt")
    );
    assert!(io("output.json").starts_with("[\"T1\""));
    let usage: Value = serde_json::from_str(&io("usage.json")).unwrap();
    assert!(usage["memory_bytes"].as_u64().unwrap() > 100_000, "{usage}");
    assert!(usage["cpu_ms"].is_number());
    io("duration_ms.txt");
    io("context.json");
    io("stderr.log");
    assert_eq!(run.ending().0, "COMPLETED");
}

#[test]
fn a_node_with_text_as_input_gets_a_string_as_it_is_and_everything_else_as_json() {
    for (input, given) in [
        (r#""two\n\"lines\" \u00e9""#, "two\n\"lines\" é"),
        (r#""""#, ""),
        (r#"{"a": "b"}"#, r#"{"a": "b"}"#),
        ("7", "7"),
    ] {
        let world = World::new();
        // The same command with the same payload, cached as the other node's: it is given something else.
        let both = "cache: true, output: text, shell: 'cat; echo .'";
        let [plain, text] = [both.to_owned(), format!("input: text, {both}")].map(|how| {
            chain(&world, &how);
            let outcome = run(&world).args(["-i", "-", "--start", "s"]).stdin(input);
            let outcome = outcome.args(["--run-id", if how == both { "j" } else { "t" }]);
            outcome.json().exits(0).object()["output"].take()
        });
        assert_eq!(plain, format!("{input}."));
        assert_eq!(text, format!("{given}."));
        let run = Run::latest(&world.path("ws"));
        assert_eq!(run.text("io/nodes/T1/a/input.json"), input);
    }
}

/// The code and the message of the failure of `a`.
#[track_caller]
fn failure(world: &World, jobs: &str) -> (String, String) {
    let outcome = run(world).args(["-j", jobs]).json().exits(1);
    let error = outcome.object()["error"].take();
    assert_eq!(error["node"], "a");
    let text = |key: &str| error[key].as_str().unwrap().to_owned();
    (text("code"), text("message"))
}

#[test]
fn what_is_not_one_json_value_fails_the_node() {
    for (command, words) in [
        ("[echo, hello]", "not one JSON value"),
        ("[echo, '1 2']", "not one JSON value"),
        ("['true']", "printed nothing"),
        ("[printf, '\"\\377\"']", "not UTF-8"),
        (
            "[sh, -c, 'echo no luck >&2; exit 3']",
            "exit code 3: no luck",
        ),
        ("[/no/such/program]", "/no/such/program"),
        ("[sh, -c, 'kill -9 $$']", "exit code 137"),
    ] {
        let world = World::new();
        chain(&world, &format!("command: {command}"));
        let (code, message) = failure(&world, "1");
        assert_eq!(code, "operation");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_program_that_is_not_there_does_not_keep_the_rest_from_running() {
    let world = World::new();
    chain(
        &world,
        "continue_on_failure: true, command: [/no/such/program]",
    );
    world.write("in.jsonl", "1\n2\n3\n");
    let outcome = run(&world).args(["-j", "1", "--inputs", "in.jsonl"]).end();
    outcome.exits(3).prints("1\n2\n3\n");
}

#[test]
fn a_node_with_output_text_may_print_anything() {
    let world = World::new();
    chain(&world, "command: [printf, 'a \"b\"\\n'], output: text");
    run(&world).exits(0).prints("\"a \\\"b\\\"\"\n");
}

#[test]
fn json_over_several_lines_is_one_value() {
    let world = World::new();
    chain(&world, "command: [printf, '{\\n \"a\": [\\r\\n1]\\n}\\n']");
    let printed = run(&world).exits(0).stdout;
    let value: Value = serde_json::from_slice(&printed).unwrap();
    assert_eq!(value, json!({"a": [1]}));
}

#[test]
fn a_node_that_never_ends_is_ended() {
    let world = World::new();
    chain(&world, "command: [sleep, '1000'], timeout_ms: 50");
    let (code, message) = failure(&world, "1");
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("timeout", "it took longer than 50 ms")
    );
}

#[test]
fn a_node_that_prints_too_much_fails() {
    let world = World::new();
    // Sparse: the disk does not notice.
    chain(&world, "shell: 'truncate -s 300000000 /proc/self/fd/1'");
    let (code, message) = failure(&world, "1");
    assert_eq!(code, "operation");
    assert!(message.contains("300000000 bytes"), "{message}");
    let endless = World::new();
    chain(
        &endless,
        "shell: 'truncate -s 300000000 /proc/self/fd/1; sleep 1000'",
    );
    assert!(failure(&endless, "1").1.contains("300000000 bytes"));
}

#[test]
fn a_payload_of_fifty_megabytes_goes_through() {
    let world = World::new();
    chain(&world, "command: [cat]");
    let size = 50 << 20;
    world.write("big.json", format!("\"{}\"", "x".repeat(size)));
    let outcome = run(&world).args(["-i", "big.json"]).exits(0);
    assert_eq!(outcome.stdout.len(), size + 3);
    let run = Run::latest(&world.path("ws"));
    assert!(run.read("journal.jsonl").len() < 20_000);
}

#[test]
fn a_failure_is_tried_again_as_often_as_the_node_says() {
    let world = World::new();
    chain(
        &world,
        "retries: 1, shell: 'echo x >>tries; test \"$(wc -l <tries)\" -eq 2 && echo $FLOW_ATTEMPT'",
    );
    run(&world)
        .exits(0)
        .prints("2\n")
        .says("operation, again in 1 s");
    let run_dir = Run::latest(&world.path("ws"));
    for name in ["a", "a_2"] {
        assert!(run_dir.path("io/nodes/T1").join(name).is_dir(), "{name}");
    }
    // One that cannot be started is a failure, too.
    chain(&world, "retries: 1, command: [./late]");
    run(&world).exits(1);
    let again = Run::latest(&world.path("ws"));
    assert!(again.path("io/nodes/T1/a_2").is_dir());
}

#[test]
fn subtasks_work_in_directories_of_their_own() {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        "nodes:\n\
         - {id: s, kind: deterministic, role: start, context: none, default_start: true}\n\
         - {id: p, kind: deterministic, role: split, context: none}\n\
         - {id: w, kind: deterministic, role: linear, context: none, shell: 'cat >in; printf %s \"\\\"$PWD\\\"\"'}\n\
         - {id: x, kind: deterministic, role: exit, context: none}\n\
         edges:\n- {from: s, to: p}\n- {from: p, to: w}\n- {from: w, to: x}\n",
    );
    let outcome = run(&world).args(["-i", "-"]).stdin("[1,2]").exits(0);
    let ws = fs::canonicalize(world.path("ws")).unwrap();
    let ws = ws.display();
    let tasks = format!("{ws}/tasks/{}", world.latest().id());
    outcome.prints(&format!("[\"{tasks}/T1.s0\",\"{tasks}/T1.s1\"]\n"));
    assert_eq!(world.read(&world.in_task("T1.s1/in")), "2");
}

#[test]
fn a_launcher_stands_before_every_program() {
    let world = World::new();
    chain(&world, "command: [printenv, WHERE]");
    run(&world)
        .args(["--launch", "env WHERE=7"])
        .exits(0)
        .prints("7\n");
}

#[test]
fn a_launcher_is_split_into_words_as_a_shell_does_it() {
    let world = World::new();
    chain(&world, "command: [printenv, A, B, C], output: text");
    run(&world)
        .args(["--launch", "env  A='1  2' B=\"3 '4\" C=5\\ 6"])
        .exits(0)
        .prints("\"1  2\\n3 '4\\n5 6\"\n");
    for wrong in ["env 'A=1", "", "  "] {
        let outcome = run(&world).args(["--launch", wrong]).exits(2);
        outcome.says("--launch").says("is not a command");
    }
}

#[test]
fn a_start_that_is_named_is_where_the_task_begins() {
    let world = World::new();
    let nodes = [
        start(),
        node("t", "start", ""),
        node("a", "linear", ", command: [echo, '1']"),
        node("b", "linear", ", command: [echo, '2']"),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>a t>b a>x b>x"));
    for (start, path, output) in [
        ("t", json!(["t", "b", "x"]), 2),
        ("s", json!(["s", "a", "x"]), 1),
    ] {
        let outcome = run(&world).args(["--start", start]).json().exits(0);
        let object = outcome.object();
        assert_eq!(object["tasks"][0]["path"], path);
        assert_eq!(object["output"], output);
    }
    // Another start makes another run.
    let named = |start: &'static str| run(&world).args(["--run-id", "r", "--start", start]);
    named("t").exits(0).prints("2\n");
    named("s").exits(1).says("another flow or input");
}

#[test]
fn fail_on_failure_says_the_same_as_continue_on_failure() {
    for (says, code) in [
        ("fail_on_failure: false", 3),
        ("continue_on_failure: true", 3),
        ("fail_on_failure: true", 1),
        ("continue_on_failure: false", 1),
    ] {
        let world = World::new();
        chain(&world, &format!("{says}, shell: 'exit 1'"));
        let printed = if code == 3 { "\"one\"\n" } else { "" };
        let outcome = run(&world).args(["-m", "one"]).end();
        outcome.exits(code).prints(printed);
    }
}

#[test]
fn a_program_is_told_the_flow_the_run_and_the_call() {
    let world = World::new();
    let names = "FLOW_HOME CWD DELTA_CALL_ID DELTA_RUN_ID DELTA_RUN_DIR FLOW_CONTEXT";
    let nodes = [
        start(),
        node("p", "split", ""),
        node(
            "a",
            "linear",
            &format!(
                ", output: text, command: [printenv, {}]",
                names.replace(' ', ", ")
            ),
        ),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>p p>a a>x"));
    let outcome = run(&world).args(["-i", "-"]).stdin("[1]").exits(0);
    let printed: [String; 1] = serde_json::from_slice(&outcome.stdout).unwrap();
    let run = Run::latest(&world.path("ws"));
    let started = run.events("NODE_START");
    let started = started
        .iter()
        .find(|start| start["node_id"] == "a")
        .unwrap();
    let home = fs::canonicalize(world.home()).unwrap();
    let run_dir = home.join("ws/.delta").join(run.id());
    let context = run_dir
        .join(started["execution_ref"].as_str().unwrap())
        .join("context.json");
    let path = |path: PathBuf| path.to_str().unwrap().to_owned();
    let expected = [
        path(home.join("f")),
        path(home.join(world.in_task("T1.s0"))),
        started["call_id"].as_str().unwrap().to_owned(),
        run.id(),
        path(run_dir),
        path(context),
    ];
    assert_eq!(printed[0].lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_program_is_one_deeper_than_the_flow_and_the_depth_has_a_limit() {
    let world = World::new();
    chain(&world, "command: [printenv, DELTA_DEPTH]");
    run(&world).exits(0).prints("1\n");
    let nested = |depth: &str| run(&world).env("DELTA_DEPTH", depth);
    nested("3").exits(0).prints("4\n");
    let outcome = nested("3").env("DELTA_MAX_DEPTH", "2").end();
    outcome.refuses(1, "DELTA_MAX_DEPTH");
}

#[test]
fn many_inputs_are_told_in_their_order_and_the_first_failure_ends_the_rest() {
    let world = World::new();
    chain(
        &world,
        "shell: 'read n; echo $n >>$FLOW_WORKSPACE/../seen; test $n != 3 && echo $((n*n))'",
    );
    world.write("in.jsonl", "1\n2\n\n3\n4\n5\n6\n");
    for jobs in ["1", "2", "6"] {
        let outcome = run(&world)
            .args(["--inputs", "in.jsonl", "-j", jobs])
            .exits(1);
        outcome.prints("1\n4\nnull\n").says("T3: a: operation");
    }
    let all = run(&world).args(["--inputs", "in.jsonl", "-k"]).end();
    let all = all.exits(3).prints("1\n4\nnull\n16\n25\n36\n");
    all.says("partial: T3: a: operation");
    world.write("bad.jsonl", "3\n3\n");
    let none = run(&world).args(["--inputs", "bad.jsonl", "-k"]).end();
    none.exits(1).prints("null\nnull\n");
    // With one at a time nothing is begun that is not needed.
    fs::remove_file(world.path("seen")).unwrap();
    run(&world).args(["--inputs", "in.jsonl", "-j", "1"]).end();
    assert_eq!(world.read("seen"), "1\n2\n3\n");
}

#[test]
fn a_line_that_is_no_input_is_named() {
    let world = World::new();
    chain(&world, "command: [cat]");
    world.write("in.jsonl", "1\n{\n");
    run(&world)
        .args(["--inputs", "in.jsonl"])
        .exits(2)
        .says("in.jsonl:2: not JSON");
    world.write("bytes.jsonl", b"1\n\n\"\xff\"\n");
    run(&world)
        .args(["--inputs", "bytes.jsonl"])
        .exits(2)
        .says("bytes.jsonl:3: not UTF-8");
    run(&world)
        .args(["-i", "in.jsonl"])
        .exits(2)
        .says("not one JSON value");
    run(&world)
        .args(["-m", "x", "-i", "-"])
        .exits(2)
        .says("only one of");
}

#[test]
fn half_a_character_is_no_json() {
    let world = World::new();
    chain(&world, r#"shell: 'printf %s "\"\\ud800\""'"#);
    let outcome = run(&world).json().exits(1);
    assert_eq!(outcome.object()["error"]["code"], "operation");
}

#[test]
fn a_signal_before_anything_is_begun_is_no_success() {
    let world = World::new();
    chain(&world, "command: [cat]");
    let mut input = world.fifo("input");
    let running = run(&world).args(["-i", "input", "--run-id", "r"]).spawn();
    let fds = format!("/proc/{}/fd", running.pid());
    eventually("the input is being read", || {
        let fds = fs::read_dir(&fds).into_iter().flatten().flatten();
        let mut files = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
        files.any(|file| file.ends_with("input"))
    });
    running.signal(Signal::INT);
    input.tell("1");
    drop(input);
    running.wait().exits(130).prints("");
    world.write("one", "1");
    run(&world)
        .args(["-i", "one", "--run-id", "r"])
        .exits(0)
        .prints("1\n");
}

#[test]
fn a_failure_that_a_merge_has_gathered_is_what_a_partial_result_tells() {
    let world = World::new();
    let node = |id: &str, role: &str, more: &str| {
        format!("- {{id: {id}, kind: deterministic, role: {role}, context: none{more}}}\n")
    };
    world.write(
        "f/workflow.yaml",
        [
            "nodes:\n".to_owned(),
            node("s", "start", ", default_start: true"),
            node("p", "split", ""),
            node("w", "linear", ", shell: 'read n; test $n != 2 && echo $n'"),
            node("m", "merge", ", merge_failure_mode: partial"),
            node("x", "exit", ""),
            "edges:\n- {from: s, to: p}\n- {from: p, to: w}\n- {from: w, to: m}\n- {from: m, to: x}\n"
                .to_owned(),
        ]
        .concat(),
    );
    let outcome = run(&world).args(["-i", "-"]).stdin("[1,2,3]").json().end();
    let outcome = outcome.exits(3).says("partial: T1: w: operation");
    assert_eq!(outcome.object()["error"]["node"], "w");
}

#[test]
fn a_program_cannot_change_what_another_one_is_given() {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        "nodes:\n\
         - {id: s, kind: deterministic, role: start, context: none, default_start: true}\n\
         - {id: a, kind: deterministic, role: linear, context: none, shell: 'chmod u+w \"$FLOW_CONTEXT\"; echo 1 >>\"$FLOW_CONTEXT\"; cat'}\n\
         - {id: b, kind: deterministic, role: linear, context: none, shell: 'cat \"$FLOW_CONTEXT\"'}\n\
         - {id: x, kind: deterministic, role: exit, context: none}\n\
         edges:\n- {from: s, to: a}\n- {from: a, to: b}\n- {from: b, to: x}\n",
    );
    let outcome = run(&world).json().exits(0);
    assert_eq!(outcome.object()["output"]["items"], json!([]));
    let io = Run::latest(&world.path("ws")).path("io/nodes/T1/b/context.json");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(io).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o400);
}

#[test]
fn a_start_and_a_node_that_are_not_there_are_named() {
    let world = World::new();
    chain(&world, "command: [cat]");
    run(&world)
        .args(["--start", "a"])
        .exits(2)
        .says("--start: there is no 'a'");
    run(&world)
        .args(["--pause-before", "b"])
        .exits(2)
        .says("--pause-before: there is no 'b'");
}

#[test]
fn a_dry_run_runs_and_writes_nothing() {
    let world = World::new();
    chain(&world, "command: [touch, made]");
    let outcome = run(&world).args(["--dry-run"]).exits(0);
    let text = String::from_utf8(outcome.stdout).unwrap();
    assert!(text.contains("linear    a  > x  touch made"), "{text}");
    assert!(!world.path("ws").exists());
    let object = run(&world).args(["--dry-run"]).json().exits(0).object();
    assert_eq!(
        object["nodes"][1],
        json!({"node_id": "a", "role": "linear", "targets": ["x"], "command": ["touch", "made"]})
    );
    world.write("f/inner/workflow.yaml", world.read("f/workflow.yaml"));
    chain(&world, "flow: ./inner");
    let outcome = run(&world).args(["--dry-run"]).end().exits(0);
    let text = String::from_utf8(outcome.stdout).unwrap();
    assert!(text.contains("linear    a  > x  flow inner\n"), "{text}");
}

#[test]
fn a_flow_that_cannot_be_loaded_creates_nothing() {
    let world = World::new();
    chain(&world, "schema_out: none_such");
    let outcome = run(&world).json().exits(78);
    assert_eq!(outcome.object()["errors"][0]["code"], "unknown_schema");
    assert!(!world.path("ws").exists());
}

#[test]
fn ten_thousand_subtasks_are_merged() {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        "nodes:\n\
         - {id: s, kind: deterministic, role: start, context: none, default_start: true}\n\
         - {id: p, kind: deterministic, role: split, context: none}\n\
         - {id: w, kind: deterministic, role: linear, context: none}\n\
         - {id: m, kind: deterministic, role: merge, context: none}\n\
         - {id: x, kind: deterministic, role: exit, context: none}\n\
         edges:\n- {from: s, to: p}\n- {from: p, to: w}\n- {from: w, to: m}\n- {from: m, to: x}\n",
    );
    let items: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    let list = format!("[{}]", items.join(","));
    run(&world)
        .args(["-q", "-i", "-"])
        .stdin(list.clone())
        .exits(0)
        .prints(&format!("{list}\n"));
}

#[test]
fn tasks_of_many_inputs_and_of_two_runs_at_once_never_see_each_others_files() {
    for jobs in ["1", "8"] {
        let world = World::new();
        // Whoever shares a directory finds a letter there.
        let work = "read n; test ! -e letter || exit 9; echo $n >letter; cat letter";
        let nodes = [
            start(),
            node("a", "linear", &format!(", shell: '{work}'")),
            node("b", "branch", ", shell: 'cat letter'"),
            node("c", "linear", &format!(", shell: '{work}'")),
            node("d", "linear", &format!(", shell: '{work}'")),
            node(
                "m",
                "merge",
                ", shell: 'printf \"[%s,\" $(cat letter); cat; echo ]'",
            ),
            exit(),
        ];
        let edges = "s>a a>b b>c b>d c>m d>m m>x";
        world.write("f/workflow.yaml", flow(&nodes, edges));
        let numbers =
            |from: usize| -> String { (from..from + 8).map(|n| format!("{n}\n")).collect() };
        world.write("one.jsonl", numbers(1));
        world.write("two.jsonl", numbers(101));
        let begin = |id: &'static str, file: &'static str| {
            let run = run(&world).args(["--run-id", id, "-j", jobs]);
            run.args(["--inputs", file]).spawn()
        };
        let both = [
            (1, begin("one", "one.jsonl")),
            (101, begin("two", "two.jsonl")),
        ];
        for (first, running) in both {
            let outcome = running.wait().exits(0);
            let printed = String::from_utf8(outcome.stdout).unwrap();
            let lines: Vec<Value> = printed
                .lines()
                .map(|it| serde_json::from_str(it).unwrap())
                .collect();
            let own: Vec<&Value> = lines.iter().map(|line| &line[0]).collect();
            let wanted: Vec<Value> = (first..first + 8).map(|n| json!(n)).collect();
            assert_eq!(own, wanted.iter().collect::<Vec<_>>());
            for (line, n) in lines.iter().zip(&wanted) {
                let inputs = line[1]["merge_inputs"].as_array().unwrap();
                let outputs: Vec<&Value> = inputs.iter().map(|it| &it["output"]).collect();
                assert_eq!(outputs, [n, n]);
            }
        }
        assert_eq!(world.read("ws/tasks/two/T8/letter"), "108\n");
        assert_eq!(world.read("ws/tasks/one/T1.c1/letter"), "1\n");
        assert!(!world.exists("ws/letter"));
    }
}

#[test]
fn a_single_task_holds_the_workspace_and_a_flow_within_it_works_there_too() {
    let world = World::new();
    let inner = [
        start(),
        node("a", "linear", ", shell: 'cat ours; echo 1 >theirs'"),
        exit(),
    ];
    world.write("inner/workflow.yaml", flow(&inner, "s>a a>x"));
    let nested = format!(
        "{} run ${{FLOW_HOME}}/../inner -q -w \"$FLOW_WORKSPACE\"",
        env!("CARGO_BIN_EXE_delta-flow")
    );
    let waits = "echo 7 >ours; echo up >../ready; read go <../go";
    let script = format!(", output: text, shell: '{waits}; {nested} && cat theirs'");
    let nodes = [start(), node("a", "linear", &script), exit()];
    world.write("f/workflow.yaml", flow(&nodes, "s>a a>x"));
    let (mut ready, mut go) = (world.fifo("ready"), world.fifo("go"));
    let running = run(&world).args(["--run-id", "first"]).spawn();
    assert_eq!(ready.line(), "up");
    let other = || Delta::flow(world.home()).args(["run", "inner", "--run-id", "second"]);
    let refused = other().args(["-w", "ws"]).exits(75).prints("");
    refused.says("run first works in").says("-w");
    assert!(!world.exists("ws/.delta/second"));
    // Inputs have directories of their own, and so does another workspace.
    world.write("in.jsonl", "1\n");
    let apart = other().args(["-w", "ws", "--inputs", "in.jsonl"]).end();
    apart.exits(1).says("printed nothing");
    other().args(["-w", "elsewhere"]).exits(1);
    go.tell("on");
    running.wait().exits(0).prints("\"7\\n1\"\n");
    // Nobody holds it now.
    let free = Delta::flow(world.home()).args(["run", "inner", "-w", "ws"]);
    free.exits(0).prints("7\n");
}

#[test]
fn losers_of_a_race_are_ended() {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        "nodes:\n\
         - {id: s, kind: deterministic, role: start, context: none, default_start: true}\n\
         - {id: b, kind: deterministic, role: branch, context: none}\n\
         - {id: l, kind: deterministic, role: linear, context: none, shell: 'read go <$FLOW_WORKSPACE/go; echo 1'}\n\
         - {id: k, kind: deterministic, role: linear, context: none, shell: 'echo >$FLOW_WORKSPACE/go; exec sleep 1000'}\n\
         - {id: x, kind: deterministic, role: exit, context: none}\n\
         edges:\n- {from: s, to: b}\n- {from: b, to: l}\n- {from: b, to: k}\n- {from: l, to: x}\n- {from: k, to: x}\n",
    );
    fs::create_dir(world.path("ws")).unwrap();
    let _fifo = Fifo::new(world.path("ws/go"));
    let outcome = run(&world).args(["-j", "2"]).json().exits(0);
    let tasks = outcome.object()["tasks"].take();
    assert_eq!(tasks[2]["status"], "cancelled");
    assert_eq!(outcome.object()["output"], 1);
    let graph = Delta::flow(world.home()).args(["graph", "LATEST", "-w", "ws"]);
    let graph = String::from_utf8(graph.exits(0).stdout).unwrap();
    let line = graph
        .lines()
        .find(|line| line.trim_start().starts_with("\"k\" ["));
    let line = line.expect("the loser's node");
    assert!(!line.contains("color"), "{line}");
    shows_the_loser(&world, "k  cancelled");
}

/// What `show` and the journal say of the second clone, which lost.
#[track_caller]
fn shows_the_loser(world: &World, node: &str) {
    let show = Delta::flow(world.home()).args(["show", "T1.c1", "-w", "ws"]);
    let shown = String::from_utf8(show.exits(0).stdout).unwrap();
    assert!(shown.starts_with("T1.c1  cancelled"), "{shown}");
    assert!(shown.contains(node), "{shown}");
    let ends = Run::latest(&world.path("ws")).events("TASK_END");
    let last = ends.iter().rfind(|end| end["task_id"] == "T1.c1");
    assert_eq!(last.unwrap()["status"], "cancelled");
}

#[test]
fn a_loser_that_was_faster_is_told_like_one_that_was_not() {
    for (script, shown) in [("cat", "l  ok"), ("exit 1", "l  operation")] {
        let world = World::new();
        world.write(
        "f/workflow.yaml",
        "nodes:\n\
         - {id: s, kind: deterministic, role: start, context: none, default_start: true}\n\
         - {id: b, kind: deterministic, role: branch, context: none}\n\
         - {id: l, kind: deterministic, role: linear, context: none, shell: 'SCRIPT'}\n\
         - {id: k, kind: deterministic, role: linear, context: none, shell: 'cat; read go <$FLOW_WORKSPACE/go'}\n\
         - {id: x, kind: deterministic, role: exit, context: none}\n\
         edges:\n- {from: s, to: b}\n- {from: b, to: k}\n- {from: b, to: l}\n- {from: l, to: x}\n- {from: k, to: x}\n"
        .replace("SCRIPT", script),
    );
        fs::create_dir(world.path("ws")).unwrap();
        let mut go = Fifo::new(world.path("ws/go"));
        let running = run(&world).args(["-j", "2"]).spawn();
        eventually("the second clone has come to its end", || {
            // A live journal may have no last line yet.
            let run = world.runs().into_iter().next();
            let journal = run.and_then(|run| fs::read_to_string(run.path("journal.jsonl")).ok());
            journal.is_some_and(|text| text.contains("\"TASK_END\""))
        });
        go.tell("on");
        running.wait().exits(0);
        shows_the_loser(&world, shown);
        let stats = world.delta(["stats", "-w", "ws"]).json().exits(0);
        let stats: Value = serde_json::from_slice(&stats.stdout).unwrap();
        assert_eq!(stats[0]["flow"]["failed_tasks"], 0, "{script}");
    }
}

#[test]
fn a_signal_ends_the_programs_and_the_same_command_goes_on() {
    let world = World::new();
    chain(
        &world,
        "shell: 'if test -e once; then echo 1; else touch once; echo $$ >pid; exec sleep 1000; fi'",
    );
    let running = run(&world).spawn();
    let pid = world.path("ws/pid");
    eventually("the node runs", || {
        fs::read_to_string(&pid).is_ok_and(|it| it.ends_with('\n'))
    });
    running.signal(Signal::INT);
    running.wait().refuses(130, "SIGINT");
    let pid: u32 = world.read("ws/pid").trim().parse().unwrap();
    assert!(!alive(pid));
    assert_eq!(Run::latest(&world.path("ws")).ending().0, "INTERRUPTED");
    run(&world).exits(0).prints("1\n");
    assert_eq!(
        fs::read_dir(world.path("ws/.delta"))
            .unwrap()
            .filter(|it| { it.as_ref().unwrap().path().join("journal.jsonl").exists() })
            .count(),
        1
    );
}

#[test]
fn a_signal_ends_many_programs_that_ignore_it_and_what_they_have_started() {
    let world = World::new();
    let script = "trap \"\" TERM; setsid sleep 1000 & echo >started; while :; do sleep 1000; done";
    let nodes = [
        start(),
        node("p", "split", ""),
        node("w", "linear", &format!(", shell: '{script}'")),
        node("m", "merge", ""),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>p p>w w>m m>x"));
    let items: Vec<usize> = (0..120).collect();
    let running = run(&world)
        .args(["-q", "-j", "120", "--run-id", "r", "-i", "-"])
        .stdin(serde_json::to_vec(&items).unwrap())
        .spawn();
    let tasks = world.path("ws/tasks/r");
    eventually("all have started", || {
        items
            .iter()
            .all(|at| tasks.join(format!("T1.s{at}/started")).exists())
    });
    running.signal(rustix::process::Signal::TERM);
    running.wait().exits(143);
    eventually("nothing is left", || world.processes().is_empty());
    let ends = Run::latest(&world.path("ws")).events("NODE_END");
    assert_eq!(ends.len(), 2, "of start and split alone");
}

#[test]
fn continuing_an_agents_run_is_not_for_a_flow() {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        around("- {id: a, kind: deterministic, role: linear, context: none}\n"),
    );
    world.delta(["flow", "run", "f", "-w", "ws"]).exits(0);
    let before = world.latest().read("journal.jsonl");
    for message in [&[][..], &["-m", "more"]] {
        let outcome = world.delta(["continue", "-w", "ws"]).args(message).end();
        outcome
            .exits(2)
            .says("is a flow's: resume it with the `delta flow run`");
    }
    assert_eq!(world.latest().read("journal.jsonl"), before);
}

/// The journal and the terminal have it three times, and the agent of a decision gets it back.
#[test]
fn a_message_shows_the_beginning_of_an_output_that_selects_no_edge() {
    let world = World::new();
    let nodes = [start(), node("d", "decision", ""), exit()];
    let workflow = flow(&nodes, "s>d d>x:one d>x:two");
    world.write("f/workflow.yaml", workflow);
    let outcome = run(&world).args(["-m", &"long ".repeat(2000)]).json().end();
    let error = &outcome.exits(1).object()["error"];
    let message = error["message"].as_str().unwrap();
    assert!(message.len() < 300, "{message}");
    assert!(message.starts_with("there is no edge \"long long"));
    assert!(
        message.ends_with("…\"; the edges are \"one\", \"two\""),
        "{message}"
    );
}

#[test]
fn an_input_is_given_once_and_one_that_cannot_be_read_is_wrong_usage() {
    let world = World::new();
    chain(&world, "command: [cat]");
    for twice in [["-m", "a", "-m", "b"], ["-i", "a", "-m", "b"]] {
        let outcome = run(&world).args(twice).exits(2);
        outcome.says("only one of -i, -m and --inputs can be given, and only once");
    }
    let fails = |option: &str, path: &str, why: &str| {
        let outcome = run(&world).args([option, path]).exits(2);
        outcome.says(path).says(why);
    };
    for option in ["-i", "--inputs"] {
        fails(option, "f", "is a directory");
        fails(option, "none", "no such file or directory");
    }
    fails(
        "-i",
        "/dev/zero",
        "/dev/zero is longer than 256 MiB; leave the data in a file",
    );
    let budget = run(&world).args(["--budget", "tokens=3,per=run"]).exits(2);
    budget.says("per=run: a flow's budget is that of the whole run");
    assert!(!world.path("ws").exists());
}

#[test]
fn a_decision_that_names_its_edge_twice_is_told_so() {
    let world = World::new();
    let nodes = [start(), node("d", "decision", ""), exit()];
    world.write("f/workflow.yaml", flow(&nodes, "s>d d>x:one d>x:two"));
    let twice = r#"{"selected_edge": "one", "selected_edge": "two"}"#;
    let outcome = run(&world).args(["-i", "-"]).stdin(twice).exits(1);
    outcome.says("the output cannot be read: selected_edge is there twice");
}

#[test]
fn a_command_that_ends_with_its_partial_exit_is_partial_and_its_output_goes_on() {
    let world = World::new();
    let node = |code: u32, more: &str| {
        let script =
            format!("command: [sh, -c, 'echo x >> n; echo 5; exit {code}'], partial_exit: 3");
        chain(&world, &format!("{script}, {more}"));
    };
    let once = |id: &str| run(&world).args(["--run-id", id, "-m", "it"]).json();
    node(3, "retries: 2, cache: true");
    let ended = once("r").exits(3);
    let object = ended.object();
    assert_eq!(
        (&object["status"], &object["output"]),
        (&json!("partial"), &json!(5))
    );
    let dir = world.path("ws/.delta/r");
    assert_eq!(Run { dir }.events("NODE_END")[1]["status"], "partial");
    assert_eq!(world.lines("ws/n").len(), 1);
    // It is read from the journal, and never from the cache.
    assert_eq!(result(&once("r").exits(3)), result(&ended));
    once("again").exits(3);
    assert_eq!(world.lines("ws/n").len(), 2);
    // Another code is a failure, and so is an output that does not fit.
    node(4, "");
    assert_eq!(
        once("other").exits(1).object()["error"]["code"],
        "operation"
    );
    world.write("f/schemas/none.json", "false");
    node(3, "schema_out: none");
    assert_eq!(
        once("misfit").exits(1).object()["error"]["code"],
        "schema_out"
    );
}
