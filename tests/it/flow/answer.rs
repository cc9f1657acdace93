//! `delta flow answer`: a person's answer to a question of a flow's agent.

use crate::flow::agents::{command, world};
use crate::flow::run::run;
use crate::harness::*;
use serde_json::json;
use std::fs;
use std::path::PathBuf;

fn question(prompt: &str) -> Reply {
    call("q", "ask_human", &json!({"prompt": prompt}))
}

fn answer(world: &World, words: &[&str]) -> Delta {
    let command = Delta::flow(world.home()).args(["answer", "-w", "ws"]);
    command.args(words)
}

/// The directory of the agent's run.
fn asking(world: &World) -> PathBuf {
    let agent = world.runs().into_iter().find(|run| run.id() != "r");
    agent.unwrap().dir
}

fn listed(world: &World) -> String {
    let outcome = answer(world, &[]).exits(0);
    String::from_utf8(outcome.stdout).unwrap()
}

#[test]
fn the_only_open_question_gets_the_answer() {
    let world = world("", "path: ../agent");
    world.model_says([question("Which one?"), text("[1]")]);
    command(&world).exits(101);
    assert_eq!(listed(&world), "r  T1  a  Which one?\n");
    answer(&world, &["the b"]).end().exits(0).says("a of T1");
    answer(&world, &[])
        .end()
        .exits(1)
        .prints("")
        .says("has an answer that has not been read");
    command(&world).end().exits(0).prints("[1]\n");
    let agent = world.runs().into_iter().find(|run| run.id() != "r");
    let received = agent.unwrap().events("HUMAN_INPUT_RECEIVED");
    assert_eq!(received[0]["response"], "the b");
    for words in [&["again"][..], &[]] {
        let none = answer(&world, words).end().exits(1).prints("");
        none.says("no question of a flow is open here");
    }
}

#[test]
fn a_line_of_a_question_does_not_look_like_one_of_deltas() {
    let world = world("", "path: ../agent");
    world.model_says([question("Which?\ndelta-flow: answer with evil")]);
    let outcome = command(&world).exits(101);
    outcome
        .says("a of T1 asks: ")
        .says("Which?")
        .does_not_say("\ndelta-flow: answer with evil");
}

#[test]
fn where_nothing_has_run_no_question_is_open() {
    let world = World::new();
    world.write("ws/file", "");
    for words in [&["yes"][..], &[]] {
        answer(&world, words)
            .end()
            .exits(1)
            .prints("")
            .says("no question of a flow is open here");
    }
}

#[test]
fn a_yes_lets_a_call_run_and_other_words_do_not() {
    for (words, log) in [("yes", &["pushed"][..]), ("not today", &[])] {
        let world = world("", "path: ../agent")
            .tools("- {name: push, confirm: true, shell: 'echo pushed >> ../log'}");
        world.model_says([call("p", "push", &json!({})), text("{}")]);
        command(&world).exits(101);
        assert!(listed(&world).contains("Allow this command?"));
        answer(&world, &[words]).exits(0);
        command(&world).exits(0);
        assert_eq!(world.lines("log"), log, "{words}");
    }
}

#[test]
fn of_several_questions_the_task_says_which_and_no_answer_is_replaced() {
    let world = world("", "path: ../agent");
    world.write("in.jsonl", "1\n2\n");
    world.model_says([question("Which?"), question("Which?")]);
    let both = || run(&world).args(["--run-id", "r", "--inputs", "in.jsonl", "-j", "1"]);
    both().exits(101);
    let unsaid = answer(&world, &["it"]).exits(2);
    let list = "r  T1  a  Which?\nr  T2  a  Which?\n";
    assert_eq!(listed(&world), list);
    unsaid.says(list.trim_end());
    answer(&world, &["T3", "it"]).exits(1).says("r  T2  a");
    answer(&world, &["T2", "-"]).stdin("two\nlines\n").exits(0);
    answer(&world, &["T2", "other"])
        .exits(1)
        .says("has not been read");
    let left = files_below(&world.path("ws/tasks/r/T2/.delta"));
    let left: Vec<_> = left
        .iter()
        .filter(|path| path.ends_with("response.txt"))
        .collect();
    assert_eq!(fs::read_to_string(left[0]).unwrap(), "two\nlines\n");
    // Only one is left.
    answer(&world, &["--run-id", "r", "one"]).exits(0);
    world.model_says([text("1"), text("2")]);
    both().exits(0).prints("1\n2\n");
}

/// An answer on stdin that has not ended, to the question that was open when it began.
fn answer_begun(world: &World) -> Running {
    let mut begun = answer(world, &["-"]).open_stdin().spawn();
    // More than a pipe holds: once it is written, some of it has been read.
    begun.type_in(&"a".repeat(2 << 20));
    begun
}

fn answer_ended(mut begun: Running) -> Outcome {
    begun.end_input();
    begun.wait()
}

#[test]
fn of_two_answers_at_once_the_first_stays() {
    let world = world("", "path: ../agent");
    world.model_says([question("Which one?")]);
    command(&world).exits(101);
    let (mut first, second) = (answer_begun(&world), answer_begun(&world));
    first.type_in("first");
    answer_ended(first).exits(0);
    answer_ended(second).refuses(1, "has an answer that has not been read");
    let left = asking(&world).join("interaction");
    let names: Vec<_> = fs::read_dir(&left)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name != "request.json")
        .collect();
    assert_eq!(names, ["response.txt"]);
    let kept = fs::read_to_string(left.join("response.txt")).unwrap();
    assert!(kept.ends_with("first\n"));
}

#[test]
fn an_answer_does_not_meet_a_later_question() {
    let world = world("", "path: ../agent");
    world.model_says([question("First?"), question("Next?")]);
    command(&world).exits(101);
    let late = answer_begun(&world);
    answer(&world, &["yes"]).exits(0);
    command(&world).exits(101);
    answer_ended(late).refuses(1, "a of T1 no longer asks this; nothing has been answered");
    assert_eq!(listed(&world), "r  T1  a  Next?\n");
    assert!(!asking(&world).join("interaction/response.txt").exists());
}

#[test]
fn a_question_below_the_agent_of_a_node_is_answered_where_it_was_asked() {
    let delta = env!("CARGO_BIN_EXE_delta");
    let below = format!("[{delta}, run, -a, '${{AGENT_HOME}}/../below', -w, below, -m, ask]");
    let world = world("", "path: ../agent").tools(&format!(
        "- {{name: sub, subagent: true, command: {below}}}"
    ));
    for file in ["agent.yaml", "system_prompt.md", "context.yaml"] {
        world.write(
            &format!("below/{file}"),
            world.read(&format!("agent/{file}")),
        );
    }
    world.model_says([call("s", "sub", &json!({})), question("Deep?")]);
    command(&world).exits(101);
    assert_eq!(listed(&world), "r  T1  a  Deep?\n");
    answer(&world, &["T1", "yes"]).exits(0);
    world.model_says([text("asked"), text("[2]")]);
    command(&world).exits(0).prints("[2]\n");
}

#[test]
fn records_of_somebody_else_are_not_answered() {
    let world = world("", "path: ../agent");
    world.model_says([question("Which one?")]);
    command(&world).exits(101);
    copy(&world.path("ws"), &world.path("theirs"));
    let theirs = Delta::flow(world.home()).args(["answer", "-w", "theirs", "b"]);
    theirs.exits(78).says("--adopt");
    let files = files_below(&world.path("theirs/.delta"));
    assert!(!files.iter().any(|path| path.ends_with("response.txt")));
}

/// The letters of a run that were sent, or are still there, each with what is in it; by its task.
fn letters(world: &World, run: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for task in 1..=3 {
        for name in ["letter.txt", "sent.txt"] {
            let path = format!("ws/tasks/{run}/T{task}/{name}");
            if world.exists(&path) {
                let text = world.read(&path);
                let body = text.lines().nth(1).unwrap_or_default().to_owned();
                found.push((format!("T{task} {name}"), body));
            }
        }
    }
    found
}

#[test]
fn a_letter_is_sent_when_it_is_approved_itself_however_many_wait() {
    for jobs in ["1", "8"] {
        let world = examples();
        let texts = |run: &str| ["one", "two", "three"].map(|text| format!("{run} {text}"));
        for run in ["monday", "tuesday"] {
            let lines: String = texts(run).iter().map(|it| format!("\"{it}\"\n")).collect();
            world.write(&format!("{run}.jsonl"), lines);
        }
        let begin = |run: &str| {
            let words = [
                "run",
                "examples/flow-approval",
                "-w",
                "ws",
                "-j",
                jobs,
                "--run-id",
                run,
            ];
            let inputs = format!("{run}.jsonl");
            Delta::flow(world.home())
                .args(words)
                .args(["--inputs", &inputs])
        };
        let say = |run: &str, task: &str, text: &str| {
            answer(&world, &["--run-id", run, task, text]).exits(0);
        };
        let is = |run: &str, expected: [&str; 3]| {
            let names = ["T1", "T2", "T3"].iter().zip(expected).zip(texts(run));
            let named = names.filter(|((_, file), _)| !file.is_empty());
            let expected = named.map(|((task, file), text)| (format!("{task} {file}"), text));
            assert_eq!(
                letters(&world, run),
                expected.collect::<Vec<_>>(),
                "{run} -j {jobs}"
            );
        };
        // Both at once, in one workspace.
        let both = ["monday", "tuesday"].map(|run| begin(run).spawn());
        for running in both {
            running.wait().exits(101);
        }
        let open = ["letter.txt"; 3];
        is("monday", open);
        is("tuesday", open);
        say("monday", "T1", "yes");
        begin("monday").exits(101);
        is("monday", ["sent.txt", "letter.txt", "letter.txt"]);
        is("tuesday", open);
        say("monday", "T3", "no");
        say("monday", "T2", "yes");
        for task in ["T1", "T2", "T3"] {
            say("tuesday", task, if task == "T2" { "no" } else { "yes" });
        }
        let both = ["monday", "tuesday"].map(|run| begin(run).spawn());
        let printed = [
            "\"sent\"\n\"sent\"\n\"dropped\"\n",
            "\"sent\"\n\"dropped\"\n\"sent\"\n",
        ];
        for (running, printed) in both.into_iter().zip(printed) {
            running.wait().exits(0).prints(printed);
        }
        is("monday", ["sent.txt", "sent.txt", ""]);
        is("tuesday", ["sent.txt", "", "sent.txt"]);
    }
}

#[test]
fn an_answer_goes_through_no_link_and_a_file_elsewhere_is_none() {
    let world = world("", "path: ../agent");
    world.model_says([question("Which?")]);
    command(&world).exits(101);
    let dir = asking(&world).join("interaction");
    world.write("elsewhere/secret", "SECRET");
    // What lies elsewhere is no answer, and is not sent to a model.
    std::os::unix::fs::symlink(world.path("elsewhere/secret"), dir.join("response.txt")).unwrap();
    let again = command(&world).end();
    assert_eq!(world.server.requests().len(), 1);
    assert_ne!(again.code(), Some(0));
    fs::remove_file(dir.join("response.txt")).unwrap();
    // Nor does an answer go there.
    fs::rename(&dir, world.path("moved")).unwrap();
    std::os::unix::fs::symlink(world.path("moved"), &dir).unwrap();
    answer(&world, &["yes"]).exits(1);
    let names = fs::read_dir(world.path("moved")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["request.json"]);
}

#[test]
fn a_forged_question_takes_one_line_of_the_list() {
    let world = world("", "path: ../agent");
    world.model_says([question("Which?")]);
    command(&world).exits(101);
    let asking = asking(&world).join("journal.jsonl");
    let flows = world.path("ws/.delta/r/journal.jsonl");
    for (path, was, is) in [
        (
            &asking,
            "Which?",
            "Which?\\n20200101_000000_000000  T9  a  forged\\u001b[2J",
        ),
        (&flows, "\"task_id\":\"T1\"", "\"task_id\":\"T1\\nforged\""),
    ] {
        let journal = fs::read_to_string(path).unwrap();
        assert!(journal.contains(was), "{journal}");
        fs::write(path, journal.replace(was, is)).unwrap();
        let listed = listed(&world);
        assert_eq!(listed.lines().count(), 1, "{listed:?}");
        assert!(listed.contains("forged"), "{listed:?}");
        assert!(!listed.contains('\u{1b}'), "{listed:?}");
    }
}

#[test]
fn a_question_names_the_command_that_answers_it() {
    for (call, end) in [
        (question("Which one?"), " ANSWER"),
        (call("p", "push", &json!({})), " yes"),
    ] {
        let world =
            world("", "path: ../agent").tools("- {name: push, confirm: true, exec: 'true'}");
        world.model_says([call, text("[1]")]);
        let waiting = command(&world).exits(101);
        let line = waiting
            .stderr
            .lines()
            .find_map(|line| line.trim_start().strip_prefix("or: delta flow "));
        let line = line.unwrap_or_else(|| panic!("{}", waiting.describe()));
        let words = shlex::split(line.strip_suffix(end).unwrap()).unwrap();
        let elsewhere = Delta::flow(world.home()).cwd("/").args(words).arg("yes");
        elsewhere.exits(0).says("answered a of T1 in run r");
        command(&world).exits(0).prints("[1]\n");
    }
}

#[test]
fn continue_in_a_flows_workspace_says_that_the_run_belongs_to_a_flow() {
    let world = world("", "path: ../agent");
    world.model_says([question("Which one?")]);
    command(&world).exits(101);
    let before = files_below(&world.path("ws")).len();
    for words in [&[][..], &["-m", "the b"]] {
        let continued = world.delta(["continue", "-w", "ws"]).args(words).exits(2);
        continued
            .says_one_line()
            .says("belongs to flow run r: `delta flow answer -w ")
            .says("the `delta flow run` that started it resumes it")
            .says("--run-id node-a-");
    }
    assert_eq!(files_below(&world.path("ws")).len(), before);
    let id = asking(&world)
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    world.model_says([text("[1]")]);
    let own = world.delta(["continue", "-w", "ws", "--run-id", &id, "-m", "the b"]);
    own.exits(0).prints("[1]\n").does_not_say("belongs to");
    command(&world).exits(0).prints("[1]\n");
}

#[test]
fn continue_in_a_tasks_directory_goes_on_and_says_the_same() {
    let world = world("", "path: ../agent");
    world.write("in.jsonl", "1\n");
    let inputs = || run(&world).args(["--run-id", "i", "--inputs", "in.jsonl"]);
    world.model_says([question("Which one?")]);
    inputs().exits(101);
    world.model_says([text("[1]")]);
    let own = world
        .delta(["continue", "-w", "ws/tasks/i/T1", "-m", "the b"])
        .exits(0);
    own.prints("[1]\n")
        .says("belongs to flow run i: `delta flow answer -w ");
    inputs().exits(0).prints("[1]\n");
}
