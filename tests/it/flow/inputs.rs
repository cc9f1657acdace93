//! Many inputs of a flow: through a pipe, printed as they end, and those that are not JSON.

use crate::flow::run::{chain, run};
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;

/// A node that notes its input, and kills the engine once, at this one.
fn killed_once_at(world: &World, input: &str) {
    let once =
        format!("if test $n = {input} -a ! -e $go; then touch $go; kill -9 $PPID; sleep 99; fi");
    let note = "read n; echo $n >>$FLOW_WORKSPACE/seen";
    chain(
        world,
        &format!("shell: 'go=$FLOW_WORKSPACE/go; {note}; {once}; echo $n'"),
    );
}

fn piped(world: &World) -> Delta {
    run(world).args(["--inputs", "-", "--run-id", "r", "-j", "1"])
}

/// The objects of `--format jsonl`.
fn lines_of(stdout: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(stdout);
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn tasks_of(stdout: &[u8]) -> Vec<String> {
    let lines = lines_of(stdout).into_iter();
    let id = |line: Value| line["task_id"].as_str().unwrap().to_owned();
    lines.map(id).collect()
}

#[test]
fn inputs_come_through_the_standard_input_or_a_named_pipe() {
    for jobs in ["1", "8"] {
        let world = World::new();
        chain(&world, "exec: cat");
        let outcome = run(&world).args(["--inputs", "-", "-j", jobs]);
        let outcome = outcome.stdin("1\n\n {\"b\": 2}\n\"c\"").end();
        outcome.exits(0).prints("1\n{\"b\": 2}\n\"c\"\n");
        assert!(world.exists("ws/tasks"));
        run(&world)
            .args(["--inputs", "/dev/stdin", "-j", jobs])
            .stdin("4\n5\n")
            .exits(0)
            .prints("4\n5\n");
    }
    let world = World::new();
    chain(&world, "exec: cat");
    run(&world).args(["--inputs", "-"]).exits(0).prints("");
    run(&world).args(["--inputs", "."]).exits(2);
}

#[test]
fn an_input_is_worked_on_and_told_while_the_pipe_is_open() {
    for jobs in ["1", "8"] {
        let world = World::new();
        chain(&world, "exec: cat");
        let command = piped(&world).args(["--format", "jsonl", "-j", jobs]);
        let mut running = command.open_stdin().spawn();
        for number in 1..=3 {
            running.type_in(&format!("{number}\n"));
            eventually("the line of the input", || {
                running.stdout().lines().count() == number
            });
        }
        // Half a line is none.
        running.type_in("4");
        running.signal(rustix::process::Signal::TERM);
        let outcome = running.wait().exits(143);
        let line = |n: usize| {
            json!({"run_id": "r", "task_id": format!("T{n}"), "status": "success", "exit_node": "x",
                   "output": n, "error": null})
        };
        assert_eq!(lines_of(&outcome.stdout), [line(1), line(2), line(3)]);
    }
}

#[test]
fn a_run_goes_on_with_the_inputs_that_had_come_and_needs_no_pipe() {
    // The rest of the pipe is told on the second command line: nothing, the same again, or no pipe at all.
    for again in [Some(""), Some("1\n2\n3\n4\n"), None] {
        let world = World::new();
        killed_once_at(&world, "2");
        let killed = piped(&world).stdin("1\n2\n3\n4\n").end();
        assert_eq!(killed.killed_by(), Some(9));
        // The pipe was read to its end, or was not: a reader may have been killed at any time.
        let io = world.path("ws/.delta/r/io");
        if io.join("inputs.part").exists() {
            fs::write(io.join("inputs.part"), "1\n2\n3\n4\n").unwrap();
        }
        let next = match again {
            Some(text) => piped(&world).stdin(text),
            None => run(&world).args(["--run-id", "r", "-j", "1"]),
        };
        next.exits(0).prints("1\n2\n3\n4\n");
        assert_eq!(world.read("ws/seen"), "1\n2\n2\n3\n4\n", "{again:?}");
        // It has ended: nothing of it is done again, and nobody reads the pipe.
        piped(&world).stdin("9\n").exits(0).prints("1\n2\n3\n4\n");
    }
}

/// A run that was killed when the pipe had given this much.
fn killed_with(world: &World, came: &str) {
    killed_once_at(world, "2");
    let mut running = piped(world).open_stdin().spawn();
    running.type_in(came);
    let outcome = running.wait();
    assert_eq!(outcome.killed_by(), Some(9));
    fs::write(world.path("ws/.delta/r/io/inputs.part"), came).unwrap();
}

#[test]
fn what_a_killed_run_had_not_read_comes_through_the_same_pipe_again() {
    let world = World::new();
    killed_with(&world, "1\n2\n3");
    let outcome = piped(&world).stdin("1\n2\n33\n4\n").end();
    outcome.exits(0).prints("1\n2\n33\n4\n");
    assert_eq!(world.read("ws/seen"), "1\n2\n2\n33\n4\n");
    let whole = world.read("ws/.delta/r/io/inputs.jsonl");
    assert_eq!(whole, "1\n2\n33\n4\n");
    assert!(!world.exists("ws/.delta/r/io/inputs.part"));
}

#[test]
fn half_a_line_of_a_pipe_that_is_gone_is_no_input() {
    for again in [Some(""), None] {
        let world = World::new();
        killed_with(&world, "1\n2\n3");
        let next = match again {
            Some(text) => piped(&world).stdin(text),
            None => run(&world).args(["--run-id", "r", "-j", "1"]),
        };
        let outcome = next.exits(0).prints("1\n2\n");
        outcome.says("the run goes on with th");
    }
}

#[test]
fn another_pipe_is_not_taken_for_the_same() {
    let world = World::new();
    killed_with(&world, "1\n2\n");
    let outcome = piped(&world).stdin("1\n3\n").exits(78);
    outcome.says("standard input differs from what the run was given before");
    run(&world)
        .args(["--run-id", "r"])
        .exits(0)
        .prints("1\n2\n");
    let seen = world.lines("ws/seen");
    assert_eq!(seen.iter().filter(|line| *line == "1").count(), 1);
    assert!(!seen.contains(&"3".to_owned()));
}

#[test]
fn with_a_queue_a_pipe_is_read_no_further_than_inputs_are_taken() {
    // With room for another input, too: what has come is taken before more is read.
    for queue in [1, 2] {
        let world = World::new();
        killed_once_at(&world, "2");
        let flow = world.read("f/workflow.yaml");
        world.write(
            "f/workflow.yaml",
            format!("scheduling: {{queue: {queue}}}\n{flow}"),
        );
        let all = "1\n2\n".to_owned() + &format!("\"{}\"\n", "x".repeat(1000)).repeat(1000);
        let killed = piped(&world).stdin(all).end();
        assert_eq!(killed.killed_by(), Some(9));
        let read = fs::metadata(world.path("ws/.delta/r/io/inputs.part")).unwrap();
        assert!(read.len() <= 64 << 10, "{queue}: {}", read.len());
    }
}

#[test]
fn a_line_without_an_end_is_refused_before_it_fills_the_memory() {
    let world = World::new();
    chain(&world, "exec: cat");
    let sparse = fs::File::create(world.path("in.jsonl")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    for source in ["/dev/zero", "in.jsonl"] {
        let outcome = run(&world).args(["-k", "--inputs", source]).end();
        outcome.refuses(2, &format!("{source}:1 is longer than 256 MiB; "));
    }
}

#[test]
fn a_line_that_is_not_json_is_a_failed_input_with_keep_going() {
    for source in ["-", "in.jsonl"] {
        for jobs in ["1", "8"] {
            let world = World::new();
            killed_once_at(&world, "3");
            let lines = b"1\noops\n3\n\xff\n5\n";
            world.write("in.jsonl", lines);
            let command = || {
                let args = ["--inputs", source, "--run-id", "r", "-j", jobs];
                run(&world).args(args).stdin(*lines)
            };
            let refused = command().exits(2);
            refused
                .says(":2: not JSON")
                .says("each line is one input (to go on with the others: -k)");
            let killed = command().args(["-k"]).end();
            assert_eq!(killed.killed_by(), Some(9));
            let ended = command().args(["-k"]).json().exits(3);
            let object = ended.object();
            assert_eq!(object["status"], "partial");
            assert_eq!(object["output"], json!([1, null, 3, null, 5]));
            let task = |n: usize| object["tasks"][n].clone();
            assert_eq!(task(1)["error"]["code"], "schema_in");
            assert_eq!(task(1)["error"]["node"], "s");
            assert_eq!(task(3)["error"]["code"], "schema_in");
            let why = task(3)["error"]["message"].as_str().unwrap().to_owned();
            assert!(why.ends_with(":4: not UTF-8"), "{why}");
            // What was no input when it came stays none, and what ended is not done again.
            let before = world.lines("ws/seen");
            let retried = command().args(["-k", "--retry"]).exits(3);
            retried.prints("1\nnull\n3\nnull\n5\n");
            assert_eq!(world.lines("ws/seen"), before);
            let mut seen = before;
            seen.sort();
            seen.dedup();
            assert_eq!(seen, ["1", "3", "5"]);
        }
    }
}

#[test]
fn a_bad_line_fails_wherever_the_engine_is_killed() {
    let world = World::new();
    chain(&world, "exec: cat");
    world.write("in.jsonl", "oops\n2\n");
    let command = || run(&world).args(["--inputs", "in.jsonl", "-k", "--run-id", "r", "-j", "1"]);
    command().exits(3);
    let journal = world.path("ws/.delta/r/journal.jsonl");
    let whole = fs::read_to_string(&journal).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    for kept in 2..lines.len() {
        fs::write(&journal, lines[..kept].join("\n") + "\n").unwrap();
        command().exits(3).prints("null\n2\n");
    }
}

#[test]
fn each_root_is_one_line_when_it_ends_and_each_start_tells_all() {
    let world = World::new();
    killed_once_at(&world, "3");
    world.write("in.jsonl", "1\n2\n3\n4\n");
    let command = || {
        let args = [
            "--inputs", "in.jsonl", "-j", "1", "--run-id", "r", "--format", "jsonl",
        ];
        run(&world).args(args)
    };
    let killed = command().end();
    assert_eq!(killed.killed_by(), Some(9));
    // The third is begun when the journal has the end of the second, whose line may not have come by then.
    let told = tasks_of(&killed.stdout);
    assert!(told == ["T1"] || told == ["T1", "T2"], "{told:?}");
    for _ in 0..2 {
        let ended = command().exits(0);
        assert_eq!(tasks_of(&ended.stdout), ["T1", "T2", "T3", "T4"]);
    }
    assert_eq!(world.read("ws/seen"), "1\n2\n3\n3\n4\n");
    // A single input is a line, too.
    let one = run(&world).args(["-m", "7", "--format", "jsonl"]).end();
    let line = &lines_of(&one.exits(0).stdout)[0];
    assert_eq!(
        (&line["task_id"], &line["output"]),
        (&json!("T1"), &json!("7"))
    );
}

#[test]
fn the_line_of_a_root_that_failed_says_why() {
    for (options, code, tasks) in [
        (&["-k"][..], 3, &["T1", "T2", "T3"][..]),
        (&[], 1, &["T1", "T2"]),
    ] {
        let world = World::new();
        chain(&world, "shell: 'read n; test $n != 2 && echo $n'");
        world.write("in.jsonl", "1\n2\n3\n");
        let args = ["--inputs", "in.jsonl", "-j", "1", "--format", "jsonl"];
        let ended = run(&world).args(args).args(options).exits(code);
        assert_eq!(tasks_of(&ended.stdout), tasks);
        let line = &lines_of(&ended.stdout)[1];
        assert_eq!(line["status"], "failure");
        assert_eq!(line["output"], Value::Null);
        assert_eq!(line["error"]["code"], "operation");
        assert_eq!(line["error"]["node"], "a");
        ended.says("T2: a: operation: exit code 1");
        let (status, _) = Run::latest(&world.path("ws")).ending();
        assert_eq!(status, if code == 1 { "FAILED" } else { "COMPLETED" });
    }
}

#[test]
fn roots_behind_the_first_failure_do_not_count_although_they_were_told() {
    let world = World::new();
    // The third ends first, then the second fails, then the first ends.
    let wait = "while ! test -e $FLOW_WORKSPACE/$1; do sleep 0.01; done";
    chain(
        &world,
        &format!(
            "shell: 'read n; w() {{ {wait}; }}; d=$FLOW_WORKSPACE; case $n in \
             3) touch $d/3;; 2) w 3; touch $d/2; exit 1;; 1) w 2;; esac; echo $n'"
        ),
    );
    world.write("in.jsonl", "1\n2\n3\n");
    let args = ["--inputs", "in.jsonl", "-j", "3", "--run-id", "r"];
    let jsonl = || run(&world).args(args).args(["--format", "jsonl"]);
    let ended = jsonl().exits(1);
    ended.says("T2: a: operation");
    // The same result, whatever its form.
    let object = run(&world).args(args).json().exits(1).object();
    assert_eq!(object["metrics"]["roots"], 2);
    assert_eq!(object["output"], json!([1, null]));
    assert_eq!(jsonl().exits(1).code(), Some(1));
}
