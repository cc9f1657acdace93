//! Going on with a flow: after any kill, after a pause, with changed files.

use crate::flow::run::{chain, result, run};
use crate::harness::*;
use fastrand::Rng;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Splits, decides, merges, branches; each program notes that it ran.
const FLOW: &str = r#"
nodes:
- {id: s, kind: deterministic, role: start, context: none, default_start: true}
- {id: p, kind: deterministic, role: split, context: none, shell: 'NOTE; echo "[1,2,3,4]"'}
- {id: d, kind: deterministic, role: decision, context: none, shell: 'NOTE; read n; echo "\"$([ $((n % 2)) = 0 ] && echo even || echo odd)\""'}
- {id: e, kind: deterministic, role: linear, context: none, shell: 'NOTE; echo "\"$FLOW_TASK_ID\""'}
- {id: o, kind: deterministic, role: linear, context: none, retries: 1, shell: 'NOTE; test $FLOW_ATTEMPT != 1 -o $FLOW_TASK_ID = T1.s0 && echo 1'}
- {id: q, kind: deterministic, role: merge, context: none}
- {id: m, kind: deterministic, role: merge, context: none, shell: 'NOTE; cat'}
- {id: b, kind: deterministic, role: branch, context: none}
- {id: u, kind: deterministic, role: linear, context: none, shell: 'NOTE; exit 1'}
- {id: v, kind: deterministic, role: linear, context: none, shell: 'NOTE; cat'}
- {id: x, kind: deterministic, role: exit, context: none}
edges:
- {from: s, to: p}
- {from: p, to: d}
- {from: d, to: e, label: even}
- {from: d, to: o, label: odd}
- {from: e, to: q}
- {from: o, to: q}
- {from: q, to: m}
- {from: m, to: b}
- {from: b, to: u}
- {from: b, to: v}
- {from: u, to: x}
- {from: v, to: x}
"#;

fn world() -> World {
    let world = World::new();
    let note = r#"echo "$FLOW_TASK_ID $FLOW_NODE_ID" >>"$NOTES""#;
    world.write("f/workflow.yaml", FLOW.replace("NOTE", note));
    world
}

fn command(world: &World) -> Delta {
    run(world)
        .args(["--run-id", "r", "-q", "-j", "3"])
        .env("NOTES", world.path("notes"))
        .json()
}

/// How often each step ran.
fn notes(world: &World) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    let text = fs::read_to_string(world.path("notes")).unwrap_or_default();
    for line in text.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// The steps whose end is in a journal.
fn ended(journal: &str) -> Vec<String> {
    let ends = journal.lines().filter(|line| line.contains("\"NODE_END\""));
    let name = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        format!(
            "{} {}",
            line["task_id"].as_str().unwrap(),
            line["node_id"].as_str().unwrap()
        )
    };
    ends.map(name).collect()
}

#[test]
fn from_every_prefix_of_the_journal_the_same_result_comes_and_nothing_that_ended_runs_again() {
    let whole = world();
    let expected = result(&command(&whole).exits(0));
    let journal = Run::latest(&whole.path("ws")).text("journal.jsonl");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    assert!(lines.len() > 50, "{journal}");
    // A retry waits for a second; the waits of several prefixes overlap.
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (whole, lines, expected) = (whole.home(), &lines, &expected);
            scope.spawn(move || {
                for kept in (2..lines.len()).filter(|kept| kept % 4 == part) {
                    resume_from(whole, lines, kept, expected);
                }
            });
        }
    });
}

/// Resumes a copy of a run, of whose journal so many lines are left, and of some the half of another.
fn resume_from(whole: &Path, lines: &[&str], kept: usize, expected: &Value) {
    let world = world();
    copy(&whole.join("ws/.delta"), &world.path("ws/.delta"));
    world.adopt("ws");
    let mut prefix = lines[..kept].concat();
    let whole_lines = prefix.clone();
    if kept.is_multiple_of(3) {
        prefix.push_str(&lines[kept][..lines[kept].len() / 2]);
    }
    // What the journal tells of the place is what resuming trusts; this is another one.
    let prefix = prefix.replace(
        whole.join("f").to_str().unwrap(),
        world.path("f").to_str().unwrap(),
    );
    world.write("ws/.delta/r/journal.jsonl", &prefix);
    let outcome = command(&world).exits(0);
    assert_eq!(result(&outcome), *expected, "from {kept} lines");
    let notes = notes(&world);
    for step in ended(&whole_lines) {
        assert_eq!(
            notes.get(&step),
            None,
            "{step} ran again, from {kept} lines"
        );
    }
    let journal = Run::latest(&world.path("ws")).text("journal.jsonl");
    let mut all = ended(&journal);
    all.sort();
    let count = all.len();
    all.dedup();
    assert_eq!(all.len(), count, "two ends of one step, from {kept} lines");
    // Nothing runs any more, and the same is told.
    assert_eq!(result(&command(&world).exits(0)), *expected);
    assert_eq!(
        Run::latest(&world.path("ws")).text("journal.jsonl"),
        journal
    );
}

#[test]
fn however_often_it_is_killed_the_same_result_comes() {
    let whole = world();
    let expected = result(&command(&whole).exits(0));
    let mut rng = Rng::with_seed(7);
    for _ in 0..5 {
        let world = world();
        let journal = world.path("ws/.delta/r/journal.jsonl");
        let lines = || {
            let text = fs::read_to_string(&journal).unwrap_or_default();
            text.matches('\n').count()
        };
        for _ in 0..6 {
            let goal = lines() + rng.usize(1..12);
            let running = command(&world).spawn();
            eventually("the journal grows or the run ends", || {
                lines() >= goal || !alive(running.pid())
            });
            running.kill();
        }
        assert_eq!(result(&command(&world).exits(0)), expected);
        let text = fs::read_to_string(&journal).unwrap();
        let mut all = ended(&text);
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count, "two ends of one step");
    }
}

#[test]
fn what_a_killed_engine_left_is_ended_first() {
    let world = World::new();
    chain(
        &world,
        "shell: 'if test -e once; then echo 1; else touch once; (trap \"\" TERM; echo $$ >pid; exec sleep 1000); fi'",
    );
    let running = run(&world).spawn();
    let pid = world.path("ws/pid");
    eventually("the node runs", || {
        fs::read_to_string(&pid).is_ok_and(|it| it.ends_with('\n'))
    });
    running.kill();
    let pid: u32 = world.read("ws/pid").trim().parse().unwrap();
    assert!(alive(pid));
    run(&world)
        .exits(0)
        .prints("1\n")
        .says("that an engine that died had left");
    assert!(!alive(pid));
    assert!(
        Run::latest(&world.path("ws"))
            .path("io/nodes/T1/a_2")
            .is_dir()
    );
}

#[test]
fn a_node_that_must_not_run_again_fails() {
    let world = World::new();
    chain(
        &world,
        "on_resume: fail, shell: 'echo >started; exec sleep 1000'",
    );
    let running = run(&world).spawn();
    eventually("the node runs", || world.path("ws/started").exists());
    running.kill();
    let outcome = run(&world).json().exits(1);
    assert_eq!(outcome.object()["error"]["code"], "operation");
    outcome.says("on_resume: fail");
}

#[test]
fn changed_files_are_refused_until_it_is_said_that_this_is_meant() {
    let world = World::new();
    chain(&world, "command: [cat]");
    run(&world)
        .args(["--pause-before", "a"])
        .exits(4)
        .says("paused before a of T1");
    chain(&world, "command: [echo, '2']");
    run(&world)
        .exits(78)
        .says("workflow.yaml")
        .says("--changed ok");
    run(&world).args(["--changed", "ok"]).exits(0).prints("2\n");
    let notes = Run::latest(&world.path("ws")).events("SYSTEM_MESSAGE");
    assert!(
        notes
            .iter()
            .any(|note| note["content"].as_str().unwrap().contains("workflow.yaml"))
    );
}

#[test]
fn what_was_said_of_changed_files_holds_from_then_on() {
    let world = World::new();
    chain(&world, "command: [echo, '1']");
    let pause = |node: &'static str| run(&world).args(["--pause-before", node]);
    pause("a").exits(4);
    chain(&world, "command: [echo, '2']");
    pause("x").args(["--changed", "ok"]).exits(4);
    run(&world).exits(0).prints("2\n");
    let run = Run::latest(&world.path("ws"));
    assert_eq!(run.events("FLOW_START").len(), 2);
}

#[test]
fn a_node_that_has_come_between_is_run_and_those_before_it_are_not_run_again() {
    let world = World::new();
    let (a, b) = (
        node("a", "linear", ", shell: 'echo a >>ran; echo 1'"),
        node(
            "b",
            "linear",
            ", shell: 'echo b >>ran; read n; echo $((n + 1))'",
        ),
    );
    let nodes = [start(), a.clone(), exit()];
    world.write("f/workflow.yaml", flow(&nodes, "s>a a>x"));
    run(&world).args(["--pause-before", "x"]).exits(4);
    // It stands first, so that places in the manifest are no longer what they were.
    let nodes = [b, start(), a, exit()];
    world.write("f/workflow.yaml", flow(&nodes, "s>a a>b b>x"));
    run(&world).exits(78).says("--changed ok");
    let outcome = run(&world).args(["--changed", "ok"]).json().exits(0);
    let object = outcome.object();
    assert_eq!(object["output"], 2);
    assert_eq!(
        object["tasks"][0]["path"],
        serde_json::json!(["s", "a", "b", "x"])
    );
    assert_eq!(world.read("ws/ran"), "a\nb\n");
}

#[test]
fn large_inputs_and_outputs_are_there_after_a_kill() {
    let world = World::new();
    let a = "echo >>ran; cat; head -c 100000 /dev/zero | tr \"\\0\" y";
    let b = "test -e go || { touch go; kill -9 $PPID; }; cat";
    let nodes = [
        start(),
        node(
            "a",
            "linear",
            &format!(", cache: true, output: text, shell: '{a}'"),
        ),
        node("b", "linear", &format!(", shell: '{b}'")),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>a a>b b>x"));
    let input = format!("[{}0]", "1,".repeat(50_000));
    world.write("input", &input);
    let output = format!("\"{input}{}\"\n", "y".repeat(100_000));
    // The second run knows what a prints, and keeps it elsewhere.
    for id in ["r", "q"] {
        let named = || run(&world).args(["-q", "-i", "input", "--run-id", id]);
        assert_eq!(named().end().killed_by(), Some(9));
        named().exits(0).prints(&output);
        named().exits(0).prints(&output);
        fs::remove_file(world.path("ws/go")).unwrap();
    }
    assert_eq!(world.read("ws/ran"), "\n");
}

#[test]
fn a_pause_holds_once_and_the_same_command_goes_on() {
    let world = World::new();
    chain(&world, "command: [echo, '1']");
    let paused = || run(&world).args(["--pause-before", "a", "--pause-before", "x"]);
    paused()
        .refuses(
            4,
            "delta-flow: paused before a of T1; look at it with `delta flow show`; the same command continues past it\n",
        );
    assert!(
        !Run::latest(&world.path("ws"))
            .path("io/nodes/T1/a")
            .exists()
    );
    paused().exits(4).says("paused before x of T1");
    paused().exits(0).prints("1\n");
}

/// A branch to `a`, which waits until it is let go, and to `b`.
const TWO_WAYS: &str = "nodes:
- {id: s, kind: deterministic, role: start, context: none, default_start: true}
- {id: f, kind: deterministic, role: branch, context: none}
- {id: a, kind: deterministic, role: linear, context: none, shell: 'echo up >$FLOW_WORKSPACE/../ready; read go <$FLOW_WORKSPACE/../go'}
- {id: b, kind: deterministic, role: linear, context: none, command: [echo, '2']}
- {id: x, kind: deterministic, role: exit, context: none}
edges:
- {from: s, to: f}
- {from: f, to: a}
- {from: f, to: b}
- {from: a, to: x}
- {from: b, to: x}
";

#[test]
fn a_pause_in_several_tasks_lets_everything_else_go_on() {
    let world = World::new();
    let waits = "echo up >$FLOW_WORKSPACE/../ready; read go <$FLOW_WORKSPACE/../go";
    let nodes = [
        start(),
        node("p", "split", ""),
        node(
            "a",
            "linear",
            &format!(", shell: 'read n; test $n != 2 || {{ {waits}; }}; echo $n'"),
        ),
        node("b", "linear", ", command: [cat]"),
        exit(),
    ];
    world.write("f/workflow.yaml", flow(&nodes, "s>p p>a a>b b>x"));
    let (mut ready, mut go) = (world.fifo("ready"), world.fifo("go"));
    let paused = || {
        let run = run(&world).args(["--pause-before", "b", "-j", "8", "-i", "-"]);
        run.stdin("[1,2,3]")
    };
    let running = paused().spawn();
    assert_eq!(ready.line(), "up");
    eventually("the others have come to the pause", || {
        Run::latest(&world.path("ws"))
            .events_so_far("NODE_END")
            .iter()
            .filter(|end| end["node_id"] == "a")
            .count()
            == 2
    });
    go.tell("on");
    let outcome = running.wait().exits(4).prints("");
    // In the order of the tasks, and not in that in which they came.
    outcome.says("paused before b of T1.s0, b of T1.s1, b of T1.s2; look");
    let run = Run::latest(&world.path("ws"));
    let begun = run.events("NODE_START");
    assert!(begun.iter().all(|start| start["node_id"] != "b"));
    paused().exits(0).prints("[1,2,3]\n");
}

#[test]
fn a_pause_that_nobody_was_told_of_is_made_again() {
    let world = World::new();
    world.write("f/workflow.yaml", TWO_WAYS);
    let (mut ready, _go) = (world.fifo("ready"), world.fifo("go"));
    let paused = || run(&world).args(["--pause-before", "b", "-j", "2"]);
    for end in [Signal::KILL, Signal::INT] {
        let running = paused().spawn();
        assert_eq!(ready.line(), "up");
        running.signal(end);
        running.wait();
        let run = Run::latest(&world.path("ws"));
        assert!(!run.path("io/nodes/T1.c1").exists());
    }
    // It is told when nothing else is left to do.
    world.write(
        "f/workflow.yaml",
        TWO_WAYS.replace(
            "shell: 'echo up >$FLOW_WORKSPACE/../ready; read go <$FLOW_WORKSPACE/../go'",
            "shell: 'exit 1'",
        ),
    );
    let changed = || paused().args(["--changed", "ok"]);
    changed().exits(4).says("paused before b of T1.c1");
    changed().exits(0).prints("2\n");
}

#[test]
fn a_named_run_that_has_ended_is_not_told_with_other_files() {
    let world = World::new();
    chain(&world, "command: [echo, '1']");
    let named = || run(&world).args(["--run-id", "r"]);
    named().exits(0).prints("1\n");
    let journal = world.read("ws/.delta/r/journal.jsonl");
    chain(&world, "shell: 'echo >ran; echo 2'");
    for more in [&[][..], &["--changed", "ok"]] {
        let told = named().args(more).exits(78);
        told.says("workflow.yaml").says("another --run-id");
    }
    assert_eq!(world.read("ws/.delta/r/journal.jsonl"), journal);
    assert!(!world.path("ws/ran").exists());
}

#[test]
fn a_damaged_line_is_named_and_no_command_that_cannot_help() {
    let world = World::new();
    chain(&world, "command: [cat]");
    run(&world).args(["--pause-before", "a"]).exits(4);
    let run_dir = Run::latest(&world.path("ws"));
    let journal = run_dir.text("journal.jsonl");
    fs::write(
        run_dir.path("journal.jsonl"),
        journal.replacen("TASK_CREATED", "TASK\u{1}", 1),
    )
    .unwrap();
    let told = run(&world).exits(1).says("journal.jsonl:3: damaged");
    told.does_not_say("--force");
}

#[test]
fn a_script_that_a_shell_names_is_one_of_the_files() {
    let world = World::new();
    chain(&world, "shell: 'sh \"${FLOW_HOME}/do.sh\"'");
    world.write("f/do.sh", "echo 1");
    run(&world).args(["--pause-before", "a"]).exits(4);
    world.write("f/do.sh", "echo 2");
    run(&world).exits(78).says("do.sh");
}

#[test]
fn a_named_run_is_run_once_and_told_again() {
    let world = World::new();
    chain(&world, "shell: 'echo x >>ran; cat'");
    let named = |input: &'static str| run(&world).args(["--run-id", "r", "-m", input]);
    named("one").exits(0).prints("\"one\"\n");
    named("one").exits(0).prints("\"one\"\n");
    assert_eq!(world.read("ws/ran"), "x\n");
    named("two").exits(1).says("another flow or input");
}

#[test]
fn a_known_output_is_not_made_again() {
    let world = World::new();
    world.write("f/data", "1");
    chain(
        &world,
        "cache: true, cache_files: ['${FLOW_HOME}/data'], shell: 'echo x >>ran; cat'",
    );
    run(&world).args(["-m", "one"]).exits(0);
    run(&world)
        .args(["-m", "one"])
        .exits(0)
        .prints("\"one\"\n")
        .says("ok, cached");
    assert_eq!(world.read("ws/ran"), "x\n");
    run(&world).args(["-m", "two"]).exits(0).prints("\"two\"\n");
    assert_eq!(world.read("ws/ran"), "x\nx\n");
    world.write("f/data", "2");
    run(&world).args(["-m", "one"]).exits(0);
    assert_eq!(world.read("ws/ran"), "x\nx\nx\n");
}

#[test]
fn an_output_is_known_for_its_command_and_its_schemas() {
    let world = World::new();
    let node = |word: &str| {
        let command = format!("command: [sh, -c, 'echo >>ran; cat', {word}]");
        let more = "cache: true, schema_in: given, schema_out: made";
        chain(&world, &format!("{more}, {command}"));
    };
    let schema = |name: &str, kind: &str| {
        world.write(
            &format!("f/schemas/{name}.json"),
            format!("{{\"type\":{kind}}}"),
        );
    };
    let any = "[\"string\",\"number\"]";
    node("one");
    schema("given", any);
    schema("made", any);
    let times = |count: usize| {
        for _ in 0..2 {
            run(&world).args(["-m", "it"]).exits(0).prints("\"it\"\n");
        }
        assert_eq!(world.lines("ws/ran").len(), count);
    };
    times(1);
    schema("made", "\"string\"");
    times(2);
    schema("given", "\"string\"");
    times(3);
    node("two");
    times(4);
    node("one");
    times(4);
}

#[test]
fn a_file_that_a_cache_needs_and_that_is_not_there_fails_the_node() {
    let world = World::new();
    chain(&world, "cache: true, cache_files: [data], command: [cat]");
    let outcome = run(&world).json().exits(1);
    assert_eq!(outcome.object()["error"]["code"], "operation");
    outcome.says("f/data");
}

#[test]
fn a_file_that_a_cache_needs_and_that_is_a_pipe_fails_the_node() {
    let world = World::new();
    chain(&world, "cache: true, cache_files: [data], command: [cat]");
    drop(world.fifo("f/data"));
    let outcome = run(&world).json().exits(1);
    assert_eq!(outcome.object()["error"]["code"], "operation");
    outcome.says("f/data: it is not a regular file");
}

#[test]
fn an_output_is_known_in_the_form_in_which_it_is_read() {
    let world = World::new();
    for (form, printed) in [("json", "5\n"), ("text", "\"5\"\n"), ("json", "5\n")] {
        chain(
            &world,
            &format!("cache: true, output: {form}, command: [echo, '5']"),
        );
        run(&world).exits(0).prints(printed);
    }
}

#[test]
fn a_file_of_the_task_is_that_of_the_task() {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        "nodes:
- {id: s, kind: deterministic, role: start, context: none, default_start: true}
- {id: p, kind: deterministic, role: split, context: none}
- {id: w, kind: deterministic, role: linear, context: none, shell: 'cat >data; echo 0'}
- {id: c, kind: deterministic, role: linear, context: none, cache: true, cache_files: ['${CWD}/data'], command: [cat, data]}
- {id: x, kind: deterministic, role: exit, context: none}
edges: [{from: s, to: p}, {from: p, to: w}, {from: w, to: c}, {from: c, to: x}]
",
    );
    let outcome = run(&world)
        .args(["-j", "1", "-i", "-"])
        .stdin("[1,2]")
        .end();
    outcome.exits(0).prints("[1,2]\n");
}

#[test]
fn lines_that_have_been_taken_must_stay_as_they_were() {
    let world = World::new();
    chain(
        &world,
        "shell: 'read n; go=$FLOW_WORKSPACE/go; test $n != 2 -o -e $go || { touch $go; kill -9 $PPID; }; echo $n'",
    );
    world.write("in.jsonl", "1\n2\n3\n");
    let all = || run(&world).args(["--inputs", "in.jsonl", "-j", "1"]);
    assert_eq!(all().end().killed_by(), Some(9));
    world.write("in.jsonl", "1\n7\n3\n4\n");
    all().exits(78).says("in.jsonl:2: T2").says("--changed ok");
    world.write("in.jsonl", "1\n2\n3\n4\n");
    all().exits(0).prints("1\n2\n3\n4\n");
}

#[test]
fn without_an_input_a_run_goes_on_with_its_own() {
    let world = World::new();
    let once = "test -e $go || { touch $go; kill -9 $PPID; }";
    chain(
        &world,
        &format!("shell: 'go=$FLOW_WORKSPACE/go; read n; {once}; echo $n'"),
    );
    world.write("in.jsonl", "1\n2\n3\n");
    let lines = run(&world)
        .args(["--inputs", "in.jsonl", "-j", "1", "--run-id", "r"])
        .end();
    assert_eq!(lines.killed_by(), Some(9));
    let bare = || run(&world).args(["--run-id", "r"]);
    bare().exits(0).prints("1\n2\n3\n");
    let told = bare().json().exits(0);
    assert_eq!(told.object()["output"], serde_json::json!([1, 2, 3]));
}

#[test]
fn an_input_is_kept_from_the_first_moment() {
    for size in [1, 100_000] {
        let world = World::new();
        chain(&world, "command: [cat]");
        let text = "x".repeat(size);
        let input = world.write("input", format!("\"{text}\""));
        let paused = run(&world)
            .args(["--pause-before", "s", "-i"])
            .arg(&input)
            .end();
        paused.exits(4);
        // As a kill behind the first write leaves it.
        let run_dir = Run::latest(&world.path("ws"));
        let journal = run_dir.text("journal.jsonl");
        let start: Vec<&str> = journal.lines().take(2).collect();
        assert!(start[1].contains("FLOW_START"), "{}", start[1]);
        fs::write(run_dir.path("journal.jsonl"), start.join("\n") + "\n").unwrap();
        run(&world).exits(0).prints(&format!("\"{text}\"\n"));
    }
}

#[test]
fn what_is_known_of_tasks_is_told_of_a_run_that_has_not_ended() {
    let world = World::new();
    chain(&world, "command: [cat]");
    let paused = run(&world).args(["--pause-before", "a"]).json().exits(4);
    let tasks = paused.object()["tasks"].take();
    assert_eq!(tasks[0]["status"], "running");
    assert_eq!(tasks[0]["path"], serde_json::json!(["s"]));
    let other = run(&world).args(["-m", "other"]).exits(0);
    other.says("starting a new run; run").says("is INTERRUPTED");
    let text = run(&world).args(["-m", "text", "--pause-before", "a"]);
    text.exits(4);
    let more = run(&world).args(["-m", "more"]).exits(0);
    more.says("is INTERRUPTED: \"text\"");
}

#[test]
fn a_node_that_is_not_there_is_named_before_anything_is_made() {
    let world = World::new();
    chain(&world, "command: [cat]");
    run(&world)
        .args(["--pause-before", "A"])
        .exits(2)
        .says("--pause-before: there is no 'A'");
    assert!(!world.path("ws/.delta").exists());
}

#[test]
fn many_inputs_go_on_where_they_were() {
    let world = World::new();
    chain(
        &world,
        "shell: 'read n; cd $FLOW_WORKSPACE; echo $n >>seen; if test $n = 3 -a ! -e go; then touch go; kill -9 $PPID; fi; echo $n'",
    );
    world.write("in.jsonl", "1\n2\n3\n4\n");
    let all = || run(&world).args(["--inputs", "in.jsonl", "-j", "1"]);
    let killed = all().end();
    assert_eq!(killed.killed_by(), Some(9));
    all().exits(0).prints("1\n2\n3\n4\n");
    assert_eq!(world.read("ws/seen"), "1\n2\n3\n3\n4\n");
}
