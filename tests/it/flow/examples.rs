//! The examples of flows run as they are, offline.

use crate::harness::*;
use std::fs;
use std::path::{Path, PathBuf};

/// `delta flow run` of an example in the workspace `ws`.
fn run(world: &World, name: &str) -> Delta {
    world.server.may_stay_unasked();
    let dir = example(name);
    let check = Delta::flow(world.home()).arg("check").arg(&dir).end();
    assert_eq!(check.exits(0).stderr, "");
    let run = Delta::flow(world.home()).arg("run").arg(dir);
    run.args(["-w", "ws"]).env("PATH", path())
}

fn example(name: &str) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    examples.join(format!("flow-{name}"))
}

#[test]
fn map_reduce_adds_up_the_words_of_all_files() {
    let world = World::new();
    let outcome = run(&world, "map-reduce").end();
    outcome.exits(0).prints("{\"files\":3,\"words\":10}\n");
}

#[test]
fn two_of_three_judges_decide_and_one_is_sent_back_once() {
    let world = World::new();
    let outcome = run(&world, "vote").args(["-m", "Deploy on Fridays."]).end();
    outcome
        .exits(0)
        .prints("{\"selected_edge\":\"yes\",\"yes\":2,\"no\":1}\n")
        .says("hasty  sent back");
    let world = World::new();
    let outcome = run(&world, "vote").json().end();
    let told = outcome.object();
    assert_eq!(told["error"]["code"], "schema_in", "no proposal: {told}");
    outcome.exits(1);
}

#[test]
fn each_ticket_goes_where_the_model_says() {
    let world = World::new();
    let tickets = example("triage").join("tickets.jsonl");
    let outcome = run(&world, "triage").arg("--inputs").arg(tickets).end();
    outcome.exits(0);
    let mut bugs = world.lines("ws/bugs.txt");
    bugs.sort();
    let expected = [
        "It crashes when the file is empty.",
        "The link in the manual is broken.",
    ];
    assert_eq!(bugs, expected);
    let questions = world.lines("ws/questions.txt");
    assert_eq!(questions, ["How do I change the colour?"]);
}

#[test]
fn a_change_is_approved_unless_a_reviewer_objects() {
    for (change, code, edge) in [("+done", 0, "approve"), ("+TODO", 1, "refuse")] {
        let world = World::new();
        let outcome = run(&world, "review").args(["-m", change]).json().end();
        assert_eq!(outcome.object()["output"]["selected_edge"], edge);
        outcome.exits(code);
    }
}

#[test]
fn every_template_passes_its_check_without_a_warning_and_runs_offline() {
    for (template, input, output) in [
        ("triage", "It crashes.", "\"It crashes.\"\n"),
        ("map-reduce", "", "{\"files\":3,\"words\":10}\n"),
        ("review", "+done", "{\"selected_edge\":\"approve\"}\n"),
    ] {
        let world = World::unasked();
        let init = || Delta::flow(world.home()).args(["init", "f", "-t", template]);
        let made = init().exits(0).prints("f\n");
        made.says("created flow").says("delta flow check -v f");
        let check = Delta::flow(world.home()).args(["check", "f"]).end();
        assert_eq!(check.exits(0).stderr, "", "{template}");
        let run = Delta::flow(world.home()).args(["run", "f", "-w", "ws", "-m", input]);
        run.exits(0).prints(output);
        init()
            .exits(1)
            .says("f already contains a flow; choose another directory");
    }
    let world = World::new();
    let init = |args: &[&str]| {
        Delta::flow(world.home())
            .arg("init")
            .args(args.iter())
            .exits(2)
    };
    init(&["f"]).says("init needs -t triage|map-reduce|review|eval, or -y for triage");
    init(&["f", "-t", "triag"]).says("triage");
    assert!(!world.exists("f"));
    let first = Delta::flow(world.home()).args(["init", "-y", "f"]).end();
    first.exits(0).prints("f\n").says("created flow (triage)");
    world.write("used/notes", "");
    let used = Delta::flow(world.home())
        .args(["init", "used", "-t", "triage"])
        .end();
    used.exits(1).says("used is not empty: there is notes");
}

#[test]
fn init_of_delta_makes_flows_and_evaluations_too() {
    let world = World::unasked();
    let flow = world
        .delta(["init", "-t", "flow", "f"])
        .exits(0)
        .prints("f\n");
    flow.says("  delta flow run f -w ");
    world.delta(["flow", "check", "f"]).exits(0);
    let evaluation = world
        .delta(["init", "-t", "eval", "e"])
        .exits(0)
        .prints("e\n");
    evaluation.says("  delta eval e -w ");
    world.delta(["eval", "e", "-w", "w", "--dry-run"]).exits(0);
    world.delta(["init", "-t", "eval", "e"]).exits(1);
}

#[test]
fn the_evaluation_is_checked_without_a_warning_and_measures_offline() {
    let world = World::unasked();
    let flow = |args: &[&str]| Delta::flow(world.home()).args(args).end();
    let made = flow(&["init", "e", "-t", "eval"]).exits(0).prints("e\n");
    made.says("created evaluation (eval) in e")
        .says("delta eval e -w ");
    assert_eq!(flow(&["check", "e"]).exits(0).stderr, "");
    let eval = ["eval", "e", "-w", "ws", "--format", "json"];
    let object = flow(&eval).exits(0).object();
    let planned =
        [0, 1].map(|suite| object["suites"][suite]["settings"][0]["trials_measured"].clone());
    assert_eq!(planned, [6, 1]);
    // An agent that answers with more than a word does not pass.
    let script = world
        .read("e/agent/model.sh")
        .replace("label=bug", "label='a bug'");
    world.script("e/agent/model.sh", &script);
    let object = flow(&eval).exits(1).object();
    let rate = |suite: usize| {
        object["suites"][suite]["settings"][0]["rate"]
            .as_f64()
            .unwrap()
    };
    assert!((rate(0) - 1.0 / 3.0).abs() < 0.01, "{}", rate(0));
    assert!(rate(1) < 0.01);
    let again = flow(&["init", "e", "-t", "eval"]).exits(1);
    again.says("e already contains an evaluation; choose another directory");
}

/// The table of sizes has the sizes of the files, and no flow is longer than six tenths of what it was.
#[test]
fn the_comparison_has_the_sizes_of_its_files() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/comparison");
    let page = fs::read_to_string(dir.join("sizes.md")).unwrap();
    let size = |path: PathBuf| fs::metadata(path).unwrap().len();
    for name in ["triage", "map-reduce", "approval"] {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| [{name}]")));
        let row: Vec<u64> = row
            .unwrap()
            .split('|')
            .filter_map(|cell| cell.trim().parse().ok())
            .collect();
        let flow = size(example(name).join("workflow.yaml"));
        let other = |ending: &str| size(dir.join(format!("{name}.{ending}")));
        assert_eq!(row, [flow, row[1], other("mk"), other("smk"), other("yml")]);
        assert!(flow * 10 <= row[1] * 6, "{name}: {flow} of {}", row[1]);
    }
}

#[test]
fn the_makefiles_of_the_comparison_do_the_same() {
    if !installed(&["make"]) {
        return;
    }
    let world = examples();
    let make = |name: &str, more: &str| {
        shell(
            &world,
            &format!("make -s -f examples/comparison/{name}.mk {more}"),
        )
        .end()
    };
    shell(&world, "cp -R examples/flow-map-reduce/texts .").exits(0);
    make("map-reduce", "").exits(0);
    assert_eq!(world.read("total"), "{\"files\":3,\"words\":10}\n");
    world.write("tickets/a.txt", "It crashes.\n");
    world.write("tickets/b.txt", "How?\n");
    world.script(
        "classify",
        "#!/bin/sh\ngrep -q crash && echo bug || echo question\n",
    );
    make("triage", "CLASSIFY=./classify").exits(0);
    assert_eq!(
        world.read("bugs.txt") + &world.read("questions.txt"),
        "It crashes.\nHow?\n"
    );
    world.write("message.txt", "We moved.\n");
    make("approval", "")
        .exits(2)
        .says("May letter.txt be sent?");
    world.write("approved.txt", "yes\n");
    make("approval", "").exits(0);
    assert_eq!(world.read("sent.txt"), "Dear all,\nWe moved.\n");
}

#[test]
fn a_vote_without_voters_fails() {
    let world = examples();
    let cut_off = r#"{"choices":[{"message":{"content":"I"},"finish_reason":"length"}]}"#;
    let script = format!("#!/bin/sh\necho '{cut_off}'\n");
    world.script("examples/flow-vote/model.sh", &script);
    let line = "delta flow run examples/flow-vote -w ws -m 'Deploy on Fridays.'";
    let outcome = shell(&world, line).exits(1).prints("");
    outcome.says("count").says("operation");
    let said = shell(&world, "cat ws/.delta/*/io/nodes/T1/count/stderr.log");
    said.end().prints("nobody has voted\n");
}

#[test]
fn the_plan_is_executed_and_the_review_approves_it() {
    let world = World::new();
    let outcome = run(&world, "plan").args(["-m", "Write a story."]).end();
    outcome
        .exits(0)
        .prints("{\"selected_edge\":\"approve\",\"reason\":\"All parts are there.\"}\n");
    for (task, part) in ["beginning", "middle", "end"].into_iter().enumerate() {
        let file = world.in_task(&format!("T1.s{task}/{part}.txt"));
        assert_eq!(world.read(&file), format!("This is the {part}.\n"));
    }
}

#[test]
fn a_letter_is_sent_or_dropped_as_a_person_answers_in_the_middle() {
    for (answer, output, file) in [
        ("yes", "\"sent\"\n", "ws/sent.txt"),
        ("no", "\"dropped\"\n", ""),
    ] {
        let world = World::new();
        let flow = || run(&world, "approval").args(["--run-id", "monday", "-m", "We moved."]);
        let asked = flow().exits(101).prints("");
        assert!(asked.stderr.contains("May letter.txt be sent?"));
        // The command that answers, as it is told.
        let way = format!("to say {answer}: delta ");
        let command = asked.stderr.split(&way).nth(1).unwrap();
        let words = shlex::split(command.lines().next().unwrap()).unwrap();
        world.delta(words.iter().map(String::as_str)).exits(0);
        let done = flow().exits(0).prints(output);
        assert!(!done.stderr.contains("] write"), "{}", done.stderr);
        assert!(!world.path("ws/letter.txt").exists());
        if !file.is_empty() {
            assert_eq!(world.read(file), "Dear all,\nWe moved.\n");
        }
    }
}

#[test]
fn a_flow_runs_as_a_node_of_another_one() {
    let world = World::new();
    let outcome = run(&world, "nested").end();
    outcome.exits(0).prints("[\"a\",\"be\"]\n");
    assert!(
        world
            .path(&world.in_task("T1.s1/.delta/inner/journal.jsonl"))
            .is_file()
    );
}

#[test]
fn every_example_of_a_flow_has_a_readme_that_names_the_command() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in fs::read_dir(examples).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(flow) = name.strip_prefix("flow-") else {
            continue;
        };
        let readme = fs::read_to_string(example(flow).join("README.md")).unwrap();
        assert!(
            readme.contains(&format!("delta flow run examples/{name} -w ")),
            "{name}"
        );
        count += 1;
    }
    assert_eq!(count, 7);
}

#[test]
fn flows_run_as_shown_with_a_server_for_a_model() {
    for (world, ended) in [
        (as_shown("flow-vote", &[]), "tmp/vote-2/.delta"),
        (as_shown("flow-plan", &[]), "tmp/plan-2/tasks"),
        (as_shown("flow-approval", &[]), "tmp/letter-2/letter.txt"),
    ] {
        let world = world.unwrap();
        assert!(world.exists(ended), "{ended}");
        assert!(!world.server.requests().is_empty(), "{ended}");
    }
}
