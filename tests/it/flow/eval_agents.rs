//! `delta eval` of agents: without a file, beside one another, and as they were at a revision.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

pub(super) const CASES: &str =
    "id,input,expected,tags\ncrash,It crashes.,bug,\nother,How does it work?,question,easy\n";

/// A world with the agent `a`, which answers with a word of its own for what contains a word, and the cases `cases.csv`.
pub(super) fn world() -> World {
    let world = World::new();
    write_agent(&world, "a", "crashes");
    world.write("cases.csv", CASES);
    world
}

pub(super) fn write_agent(world: &World, dir: &str, word: &str) {
    let yaml = "name: sorter\nllm: {command: ['${AGENT_HOME}/model.sh'], model: scripted}\n";
    world.write(&format!("{dir}/agent.yaml"), yaml);
    world.write(&format!("{dir}/system_prompt.md"), "Sort.\n");
    let sources = "sources:\n- {type: file, path: '${SYSTEM_PROMPT}'}\n- {type: journal}\n";
    world.write(&format!("{dir}/context.yaml"), sources);
    let model = format!(
        "#!/bin/sh\necho asked >>\"$ASKED\"\ncase $(cat) in *{word}*) label=bug ;; *) label=question ;; esac\n\
         printf '{{\"choices\":[{{\"message\":{{\"content\":\"%s\"}}}}]}}' $label\n"
    );
    world.script(&format!("{dir}/model.sh"), &model);
}

/// `delta eval WORDS` with the record in `w`.
pub(super) fn eval(world: &World, words: &[&str]) -> Delta {
    world
        .delta(["eval", "-w", "w", "-j", "1", "-q"])
        .args(words)
        .env("XDG_CACHE_HOME", world.path("cache"))
        .env("ASKED", world.path("asked"))
}

/// The number of questions to the model so far, each of which may cost something.
pub(super) fn asked(world: &World) -> usize {
    match world.exists("asked") {
        true => world.lines("asked").len(),
        false => 0,
    }
}

/// The names and the rates of the settings of the first suite.
pub(super) fn rates(outcome: &Outcome) -> Vec<(String, f64)> {
    let object = outcome.object();
    let settings = object["suites"][0]["settings"].as_array().unwrap();
    let rate = |it: &Value| {
        (
            it["name"].as_str().unwrap().to_owned(),
            it["rate"].as_f64().unwrap(),
        )
    };
    settings.iter().map(rate).collect()
}

pub(super) fn git(world: &World, dir: &str, words: &[&str]) -> String {
    git_fed(world, dir, words, b"")
}

pub(super) fn git_fed(world: &World, dir: &str, words: &[&str], stdin: &[u8]) -> String {
    let input = world.write("git-input", stdin);
    let done = Command::new("git")
        .args([
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.org",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(words)
        .current_dir(world.path(dir))
        .env("HOME", world.home())
        .stdin(Stdio::from(fs::File::open(input).unwrap()))
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// A repository `r` with the agent `r/a`, which sorts one case wrongly since the second commit.
pub(super) fn repository() -> Option<World> {
    if !installed(&["git"]) {
        return None;
    }
    let world = World::new();
    world.write("cases.csv", CASES);
    write_agent(&world, "r/a", "crashes");
    git(&world, "r", &["init", "-q"]);
    commit(&world, "one");
    write_agent(&world, "r/a", "nothing");
    commit(&world, "two");
    Some(world)
}

pub(super) fn commit(world: &World, message: &str) -> String {
    git(world, "r", &["add", "-A", "-f"]);
    git(world, "r", &["commit", "-q", "-m", message]);
    git(world, "r", &["rev-parse", "HEAD"])
}

#[test]
fn an_agent_is_measured_by_a_table_and_the_same_command_costs_nothing() {
    let world = world();
    let command = ["-a", "a", "--cases", "cases.csv"];
    let first = eval(&world, &command).json().exits(0);
    assert_eq!(rates(&first), [("a".to_owned(), 1.0)]);
    assert_eq!(first.object()["suites"][0]["suite"], "eval");
    assert_eq!(asked(&world), 2);
    eval(&world, &command).exits(0);
    assert_eq!(asked(&world), 2);
    let more = [&command[..], &["--trials", "2"]].concat();
    let more = eval(&world, &more).json().exits(0).object();
    assert_eq!(more["suites"][0]["settings"][0]["trials_measured"], 4);
    assert_eq!(asked(&world), 4);
    // A table that grows adds to it, wherever the rows are; a corrected answer is only judged again.
    let grown = "id,input,expected,tags\nnew,Why?,question\ncrash,It crashes.,question\nother,How does it work?,question\n";
    world.write("cases.csv", grown);
    let grown = eval(&world, &command).json().exits(1);
    assert!((rates(&grown)[0].1 - 2.0 / 3.0).abs() < 0.01);
    assert_eq!(asked(&world), 5);
    eval(
        &world,
        &["-a", "a", "--cases", "cases.csv", "--tag", "easy"],
    )
    .exits(2);
}

#[test]
fn agents_beside_one_another_are_known_by_their_content() {
    let world = world();
    write_agent(&world, "b", "nothing");
    let both = eval(&world, &["-a", "a", "-a", "b", "--cases", "cases.csv"]).json();
    assert_eq!(
        rates(&both.exits(0)),
        [("a".to_owned(), 1.0), ("b".to_owned(), 0.5)]
    );
    assert_eq!(asked(&world), 4);
    // Neither the name of a directory nor what programs leave there is content.
    fs::rename(world.path("a"), world.path("c")).unwrap();
    world.write("c/tools/__pycache__/x.pyc", "compiled");
    world.write("c/.env", "DELTA_API_KEY=x\n");
    let renamed = eval(&world, &["-a", "c", "--cases", "cases.csv"]).json();
    assert_eq!(rates(&renamed.exits(0)), [("c".to_owned(), 1.0)]);
    assert_eq!(asked(&world), 4);
    // Equal agents are tried each by itself.
    let copied = Command::new("cp")
        .arg("-r")
        .args([world.path("c"), world.path("d")])
        .status();
    assert!(copied.unwrap().success());
    eval(&world, &["-a", "c", "-a", "d", "--cases", "cases.csv"]).exits(0);
    assert_eq!(asked(&world), 6);
    eval(&world, &["-a", "d", "-a", "c", "--cases", "cases.csv"]).exits(0);
    assert_eq!(asked(&world), 6);
    world.write("c/system_prompt.md", "Sort well.\n");
    eval(&world, &["-a", "c", "--cases", "cases.csv"]).exits(0);
    assert_eq!(asked(&world), 8);
    eval(&world, &["-a", "c", "-a", "c", "--cases", "cases.csv"])
        .exits(2)
        .says("is defined twice");
}

#[test]
fn a_setting_names_an_agent_in_place_of_the_targets() {
    let world = world();
    write_agent(&world, "b", "nothing");
    let suite = |target: &str, settings: &str| {
        format!("suites:\n- name: s\n{target}  cases: ../cases.csv\n  settings: {settings}\n")
    };
    let file = |text: String| {
        world.write("e/evaluations.yaml", text);
    };
    file(suite(
        "",
        "[{name: x, agent: ../a}, {name: y, agent: ../b}, {name: z, agent: ../a, set: {llm.temperature: 0}}]",
    ));
    let found = eval(&world, &["e"]).json().exits(0);
    let names = [
        ("x".to_owned(), 1.0),
        ("y".to_owned(), 0.5),
        ("z".to_owned(), 1.0),
    ];
    assert_eq!(rates(&found), names);
    assert_eq!(asked(&world), 6);
    // Neither the order nor the names of settings say anything, nor whether the target is the agent.
    file(suite(
        "  target: {agent: ../b}\n",
        "[{name: other}, {name: x2, agent: ../a}]",
    ));
    eval(&world, &["e"]).exits(0);
    assert_eq!(asked(&world), 6);
    for (target, settings, words) in [
        (
            "  target: {command: [cat]}\n",
            "[{name: x, agent: ../a}]",
            "the target is no agent",
        ),
        (
            "",
            "[{name: x, agent: ../a}, {name: y}]",
            "there is no such file",
        ),
        ("", "[{name: x, agent: ../nowhere}]", "nowhere"),
    ] {
        file(suite(target, settings));
        eval(&world, &["e"]).exits(78).says(words);
    }
}

#[test]
fn the_dry_run_prints_the_file_that_says_the_same() {
    let world = world();
    let grade = "sh grade.sh 'a b'";
    world.script(
        "grade.sh",
        "#!/bin/sh\nread line\necho \"$line\" >>\"$ASKED.graded\"\nexit 1\n",
    );
    let words = [
        "-a",
        "a",
        "--cases",
        "cases.csv",
        "--grade",
        grade,
        "--trials",
        "2",
    ];
    let printed = eval(&world, &[&words[..], &["--dry-run"]].concat()).exits(0);
    assert!(!world.exists("w"));
    let yaml = String::from_utf8(printed.stdout).unwrap();
    let path = |name: &str| {
        world
            .path(name)
            .canonicalize()
            .unwrap()
            .display()
            .to_string()
    };
    for part in [
        "name: eval",
        "trials: 2",
        &path("a"),
        &path("cases.csv"),
        &path("grade.sh"),
        "- a b",
    ] {
        assert!(yaml.contains(part), "{yaml}");
    }
    assert!(!yaml.contains("--sample"), "{yaml}");
    let sampled = [&words[..], &["--sample", "1", "--dry-run"]].concat();
    let with_options = "# The file names all 2 cases: give the same --sample, --split, --case and --tag with it.\n";
    let text = String::from_utf8(eval(&world, &sampled).exits(0).stdout).unwrap();
    assert!(text.contains(with_options), "{text}");
    world.write("e/evaluations.yaml", &yaml);
    world.delta(["flow", "check", "e"]).exits(0);
    let from_file = eval(&world, &["e"]).json().exits(1).object();
    let from_words = eval(&world, &words).json().exits(1).object();
    let cases = |object: &Value| object["suites"][0]["settings"][0]["cases"].clone();
    let counts = |object: &Value| {
        let all = cases(object).as_array().unwrap().clone();
        all.iter()
            .map(|it| (it["id"].clone(), it["failed"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(counts(&from_file), counts(&from_words));
    assert_eq!(counts(&from_file)[0], (json!("crash"), json!(2)));
    // What is expected is the grader's to compare.
    assert!(world.read("asked.graded").contains("\"expected\":\"bug\""));
}

#[test]
fn cases_are_read_as_lines_as_a_list_and_as_a_table() {
    let world = world();
    world.write("lines.jsonl", "{\"id\": \"crash\", \"input\": \"It crashes.\", \"expected\": \"bug\"}\n\n{\"id\": \"other\", \"input\": \"How does it work?\", \"expected\": \"question\"}\n");
    world.write("list.json", "\u{feff}[\n{\"id\": \"crash\", \"input\": \"It crashes.\", \"expected\": \"bug\"},\n{\"id\": \"other\", \"input\": \"How does it work?\", \"expected\": \"question\"}]");
    world.write("table", "\u{feff}id,expected,input\r\ncrash,bug,It crashes.\r\nother,question,\"How does it work?\"\r\n");
    for file in ["cases.csv", "lines.jsonl", "list.json", "table"] {
        let found = eval(&world, &["-a", "a", "--cases", file]).json().exits(0);
        assert_eq!(rates(&found), [("a".to_owned(), 1.0)], "{file}");
        assert_eq!(asked(&world), 2, "{file}");
    }
}

#[test]
fn what_is_wrong_with_cases_is_said_with_its_line_before_any_trial() {
    let world = world();
    for (name, text, line, words) in [
        (
            "c.csv",
            "id,input\na,x\nb,y,z\n",
            3,
            "3 cells, and only 2 columns",
        ),
        ("c.csv", "id,input,id\na,x,b\n", 1, "two columns \"id\""),
        (
            "c.csv",
            "id,input\na,x\nb,\"y\n\nz\n",
            3,
            "a quote is not closed",
        ),
        (
            "c.csv",
            "id,input\na,x\nb,y\nc,z\nb,z\n",
            5,
            "case \"b\" is defined twice",
        ),
        ("c.csv", "id,input\na,x\nb,\n", 3, "has no input"),
        ("c.jsonl", "{\"input\": 1}\nnonsense\n", 2, "not valid JSON"),
        (
            "c.jsonl",
            "{\"id\": \"a\", \"input\": 1}\n{\"id\": \"a\", \"input\": 2}\n",
            2,
            "defined twice",
        ),
        (
            "c.json",
            "[\n{\"input\": 1},\n{\"inputs\": 2}\n]",
            3,
            "has no input",
        ),
        ("c.json", "[\n{\"input\": 1},\n", 3, "not valid JSON"),
        ("c.csv", "", 0, "cases: there are none"),
    ] {
        world.write(name, text);
        let said = eval(&world, &["-a", "a", "--cases", name]).exits(2);
        assert!(said.stderr.contains(words), "{text:?}: {}", said.stderr);
        if line > 0 {
            said.says(&format!("{name}:{line}: "));
        }
        assert!(!world.exists("w/.delta"), "{text:?}");
    }
    world.write("c.csv", b"id,input\na,x\nb,\xff\n");
    eval(&world, &["-a", "a", "--cases", "c.csv"])
        .exits(2)
        .says("c.csv:3: ")
        .says("UTF-8");
    drop(world.fifo("pipe"));
    for (words, said) in [
        (&["-a", "a"][..], "(--cases) are needed"),
        (&["--cases", "cases.csv"], "(--cases) are needed"),
        (&["-a", "a", "--cases", "nowhere.csv"], "cannot read"),
        (&["-a", "a", "--cases", "pipe"], "cannot read"),
        (
            &["-a", "a", "--cases", "cases.csv", "e"],
            "remove the directory",
        ),
        (&["-a", "nowhere", "--cases", "cases.csv"], "nowhere"),
        (
            &["-a", "@nowhere", "--cases", "cases.csv"],
            "delta: no agent is named @nowhere",
        ),
        (
            &["-a", "a", "--cases", "cases.csv", "--grade", "'"],
            "is not a command",
        ),
        (
            &["-a", "a", "--cases", "cases.csv", "--split", "test"],
            "is not train or held",
        ),
        (
            &["-a", "a", "--cases", "cases.csv", "--split", "held:1"],
            "is not train or held",
        ),
    ] {
        eval(&world, words).exits(2).says(said);
        assert!(!world.exists("w/.delta"), "{words:?}");
    }
    assert_eq!(asked(&world), 0);
}

#[test]
fn an_agent_that_is_one_file_is_measured() {
    let world = World::new();
    world.write("sorter.md", "---\nname: sorter\n---\nSort.\n");
    world.write("not.txt", "Sort.\n");
    world.write("cases.csv", "id,input,expected\none,x,bug\n");
    let words = |agent| ["-a", agent, "--cases", "cases.csv", "--format", "json"];
    world.model_says([text("bug")]);
    for _ in 0..2 {
        let outcome = eval(&world, &words("sorter.md"))
            .env("DELTA_BASE_URL", world.server.url())
            .env("DELTA_MODEL", "m")
            .exits(0);
        assert_eq!(rates(&outcome).len(), 1);
        assert_eq!(outcome.object()["suites"][0]["settings"][0]["rate"], 1.0);
    }
    assert_eq!(world.server.requests().len(), 1);
    eval(&world, &words("not.txt")[..4])
        .exits(2)
        .says("it is not a directory");
}

#[test]
fn sides_and_samples_of_cases_are_the_same_ones_each_time() {
    let world = world();
    let rows = |count: usize| -> String {
        let row = |at: usize| format!("c{at},text {at},question\n");
        "id,input,expected\n".to_owned() + &(0..count).map(row).collect::<String>()
    };
    world.write("cases.csv", rows(60));
    let chosen = |words: &[&str]| -> Vec<String> {
        let words = [
            &["-a", "a", "--cases", "cases.csv", "--format", "jsonl"],
            words,
        ]
        .concat();
        let outcome = eval(&world, &words).exits(0);
        let lines = String::from_utf8(outcome.stdout).unwrap();
        let case = |line: &str| {
            serde_json::from_str::<Value>(line).unwrap()["case"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        lines.lines().map(case).collect()
    };
    let (train, held) = (chosen(&["--split", "train"]), chosen(&["--split", "held"]));
    assert_eq!(train.len() + held.len(), 60);
    assert!((10..=26).contains(&held.len()), "{held:?}");
    assert!(held.iter().all(|id| !train.contains(id)));
    let half = chosen(&["--split", "held:0.5"]);
    assert!(held.iter().all(|id| half.contains(id)) && half.len() > held.len());
    assert_eq!(chosen(&["--split", "train:0.3"]), train);
    let sample = chosen(&["--sample", "5"]);
    assert_eq!(sample.len(), 5);
    let asked_before = asked(&world);
    assert_eq!(chosen(&["--sample", "5"]), sample);
    let of_held = chosen(&["--split", "held", "--sample", "3"]);
    assert!(of_held.len() == 3 && of_held.iter().all(|id| held.contains(id)));
    // Cases that are added leave the others on their side.
    world.write("cases.csv", rows(80));
    let more = chosen(&["--split", "held"]);
    assert!(held.iter().all(|id| more.contains(id)) && more.iter().all(|id| !train.contains(id)));
    assert!(asked(&world) < asked_before + 20);
}

#[test]
fn trials_that_an_earlier_version_recorded_count() {
    let world = World::new();
    let kept = recordings().join("earlier-evaluation");
    for name in [
        "evaluations.yaml",
        "agent/agent.yaml",
        "agent/context.yaml",
        "agent/system_prompt.md",
    ] {
        world.write(&format!("e/{name}"), fs::read(kept.join(name)).unwrap());
    }
    let model = fs::read_to_string(kept.join("agent/model.sh")).unwrap();
    world.script("e/agent/model.sh", &model);
    // The record of a start of this version, and then that of the earlier one in its place.
    eval(&world, &["e", "--suite", "up", "--setting", "one"]).exits(0);
    let id = fs::read_dir(world.path("w/.delta")).unwrap();
    let id = id.map(|it| it.unwrap().file_name().into_string().unwrap());
    let id = id
        .into_iter()
        .find(|name| name.starts_with("eval-"))
        .unwrap();
    let journal = fs::read_to_string(kept.join("journal.jsonl")).unwrap();
    let old_id = journal
        .split("\"run_id\":\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let run = Run {
        dir: world.path(&format!("w/.delta/{id}")),
    };
    world.write(
        &format!("w/.delta/{id}/journal.jsonl"),
        journal.replace(old_id, &id),
    );
    let before = run.events("TRIAL_START").len();
    assert_eq!(before, 10);
    let now = eval(&world, &["e"]).json().exits(0).object();
    assert_eq!(run.events("TRIAL_START").len(), before);
    let then: Value = serde_json::from_slice(&fs::read(kept.join("result.json")).unwrap()).unwrap();
    for (now, then) in now["suites"]
        .as_array()
        .unwrap()
        .iter()
        .zip(then["suites"].as_array().unwrap())
    {
        assert_eq!(
            (&now["look"], &now["graders"]),
            (&then["look"], &then["graders"])
        );
        let settings = then["settings"].as_array().unwrap().iter();
        for (then, now) in settings.zip(now["settings"].as_array().unwrap()) {
            for (figure, value) in then.as_object().unwrap() {
                assert_eq!(now[figure], *value, "{figure}");
            }
        }
    }
    // What is added is known by its content from then on, beside what there was.
    eval(&world, &["e", "--trials", "3"]).exits(0);
    assert_eq!(run.events("TRIAL_START").len(), before + 8);
    eval(&world, &["e", "--trials", "3"]).exits(0);
    assert_eq!(run.events("TRIAL_START").len(), before + 8);
}

#[test]
fn an_agent_is_compared_with_what_it_was_and_tomorrow_adds_to_it() {
    let Some(world) = repository() else { return };
    let command = ["-a", "r/a", "--cases", "cases.csv", "--against", "HEAD~1"];
    let found = eval(&world, &command).json().exits(0);
    assert_eq!(
        rates(&found),
        [("HEAD~1".to_owned(), 1.0), ("r/a".to_owned(), 0.5)]
    );
    assert_eq!(asked(&world), 4);
    eval(&world, &command).exits(0);
    assert_eq!(asked(&world), 4);
    // What was measured in the work tree is what the commit of it has.
    world.write("r/.gitignore", "*.log\n__pycache__/\n");
    world.write("r/a/noise.log", "ignored");
    write_agent(&world, "r/a", "crash");
    commit(&world, "three");
    git(&world, "r", &["rm", "-q", "--cached", "a/noise.log"]);
    git(&world, "r", &["commit", "-q", "-m", "four"]);
    world.write("r/a/noise.log", "ignored, and changed");
    let next = eval(&world, &command).json().end();
    assert_eq!(rates(&next).len(), 2);
    let asked_before = asked(&world);
    let against = ["-a", "r/a", "--cases", "cases.csv", "--against", "HEAD~2"];
    assert_eq!(
        rates(&eval(&world, &against).json().end())[0],
        ("HEAD~2".to_owned(), 0.5)
    );
    assert_eq!(asked(&world), asked_before);
    // A directory is a baseline, too; a suite of a file has one by the same option.
    let against = ["-a", "r/a", "--cases", "cases.csv", "--against", "r/a/../a"];
    eval(&world, &against).exits(0);
    let suite = "suites:\n- {name: s, target: {agent: ../r/a}, cases: ../cases.csv}\n";
    world.write("e/evaluations.yaml", suite);
    let of_file = eval(&world, &["e", "--against", "HEAD~3"]).json().end();
    assert_eq!(rates(&of_file)[0], ("HEAD~3".to_owned(), 1.0));
    assert_eq!(
        of_file.object()["suites"][0]["comparison"]["against"],
        "HEAD~3"
    );
    world.write("e/evaluations.yaml", suite.replace("r/a", "r/a@HEAD~3"));
    eval(&world, &["e"]).exits(0);
}

#[test]
fn an_agent_that_is_one_file_is_compared_with_what_it_was() {
    let Some(world) = repository() else { return };
    let asks = |sort: &str| format!("---\nname: sorter\ntools: Read\n---\nSort by {sort}.\n");
    world.write("r/sorter.md", asks("guess"));
    world.write("r/tool.txt", "no agent\n");
    commit(&world, "a guess");
    world.write("r/sorter.md", asks("reading"));
    world.write("one.csv", "id,input,expected\none,x,bug\n");
    let measured = |words: &[&str]| {
        let delta = eval(&world, words).json();
        delta
            .env("DELTA_BASE_URL", world.server.url())
            .env("DELTA_MODEL", "m")
    };
    let command = [
        "-a",
        "r/sorter.md",
        "--cases",
        "one.csv",
        "--against",
        "HEAD",
    ];
    world.model_says([text("other"), text("bug")]);
    let found = measured(&command).exits(0);
    assert_eq!(
        rates(&found),
        [("HEAD".to_owned(), 0.0), ("r/sorter.md".to_owned(), 1.0)]
    );
    let asked = world.server.requests();
    assert!(String::from_utf8_lossy(&asked[0].body).contains("Sort by guess."));
    // The same content is the same agent, at a revision or not.
    commit(&world, "reading");
    measured(&["-a", "r/sorter.md@HEAD", "--cases", "one.csv"]).exits(0);
    assert_eq!(world.server.requests().len(), 2);
    eval(&world, &["-a", "r/tool.txt@HEAD", "--cases", "one.csv"])
        .exits(2)
        .says("neither a directory nor a Markdown file");
}

#[test]
fn what_cannot_be_resolved_is_refused_before_any_trial() {
    let Some(world) = repository() else { return };
    for (agent, against, words) in [
        ("r/a", "no-such-revision", "no such revision"),
        ("r/a", "--output=x", "no such revision"),
        ("r/a", "HEAD:a", "no such revision"),
        (
            "r/a@nowhere",
            "HEAD",
            "a@nowhere: there is no such revision",
        ),
        ("r/b@HEAD", "HEAD", "b: it was not there"),
        ("r/a", "git-input", ""),
    ] {
        let against = format!("--against={against}");
        let refused = eval(&world, &["-a", agent, "--cases", "cases.csv", &against]).exits(2);
        assert!(
            refused.stderr.contains(words),
            "{agent}: {}",
            refused.stderr
        );
        assert!(!world.exists("w/.delta"), "{agent}");
    }
    write_agent(&world, "elsewhere", "x");
    let outside = eval(
        &world,
        &[
            "-a",
            "elsewhere",
            "--cases",
            "cases.csv",
            "--against",
            "HEAD",
        ],
    );
    outside.exits(2).says("in no git repository");
    let suite = "suites:\n- {name: s, target: {agent: '../r/a@nowhere'}, cases: ../cases.csv}\n";
    world.write("e/evaluations.yaml", suite);
    eval(&world, &["e"]).exits(78).says("no such revision");
    world.write(
        "e/evaluations.yaml",
        "suites:\n- {name: s, target: {command: [cat]}, cases: ../cases.csv}\n",
    );
    eval(&world, &["e", "--against", "HEAD"])
        .exits(2)
        .says("is no agent");
    // An existing path wins.
    write_agent(&world, "x@HEAD", "crashes");
    eval(&world, &["-a", "x@HEAD", "--cases", "cases.csv"]).exits(0);
    assert_eq!(asked(&world), 2);
}

#[test]
fn an_export_has_the_bytes_of_the_revision_and_runs_nothing_of_the_repository() {
    let Some(world) = repository() else { return };
    let trap = world.script(
        "trap",
        "#!/bin/sh\necho \"$0 $*\" >>\"$ASKED.trap\"\ncat\nexit 0\n",
    );
    let trap = trap.display().to_string();
    world.write("r/a/data.txt", "$Id$ keep\r\n");
    world.write("r/a/left-out.txt", "here");
    world.script("r/a/tool", "#!/bin/sh\n");
    world.write(
        "r/.gitattributes",
        "* text eol=lf ident filter=trap export-subst\na/left-out.txt export-ignore\n",
    );
    git(&world, "r", &["add", "-A"]);
    let blob = git_fed(
        &world,
        "r",
        &["hash-object", "-w", "--no-filters", "--stdin"],
        b"$Id$ keep\r\n",
    );
    git(
        &world,
        "r",
        &[
            "update-index",
            "--cacheinfo",
            &format!("100644,{blob},a/data.txt"),
        ],
    );
    git(&world, "r", &["commit", "-q", "-m", "bytes"]);
    // After it was committed, so that nothing but an export could run any of it.
    for key in [
        "filter.trap.smudge",
        "filter.trap.clean",
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "diff.external",
    ] {
        git(&world, "r", &["config", key, &trap]);
    }
    for hook in [
        "post-checkout",
        "post-index-change",
        "reference-transaction",
    ] {
        world.script(
            &format!("r/.git/hooks/{hook}"),
            &fs::read_to_string(&trap).unwrap(),
        );
    }
    let other = git(&world, "r", &["rev-parse", "HEAD~1"]);
    let head = git(&world, "r", &["rev-parse", "HEAD"]);
    git(&world, "r", &["replace", "-f", &head, &other]);
    if world.exists("asked.trap") {
        fs::remove_file(world.path("asked.trap")).unwrap();
    }
    let command = ["-a", "r/a@HEAD", "--cases", "cases.csv"];
    let odd = |delta: Delta| {
        delta
            .env("GIT_DIR", world.path("elsewhere"))
            .env("GIT_EXTERNAL_DIFF", &trap)
    };
    odd(eval(&world, &command)).exits(1);
    assert!(!world.exists("asked.trap"), "{}", world.read("asked.trap"));
    let exports = world.path("cache/delta/revisions");
    let names: Vec<_> = fs::read_dir(&exports)
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    let [export] = &names[..] else {
        panic!("{names:?}")
    };
    let bytes = |name: &str| fs::read(export.join(name)).unwrap();
    assert_eq!(bytes("a/data.txt"), b"$Id$ keep\r\n");
    assert_eq!(bytes("a/left-out.txt"), b"here");
    let mode = |name: &str| {
        fs::metadata(export.join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        (
            mode("a/data.txt") & 0o333,
            mode("a/tool") & 0o222,
            mode("a") & 0o222
        ),
        (0, 0, 0)
    );
    assert_ne!(mode("a/tool") & 0o100, 0);
    // One that was written to is made again, and counts as what it was.
    let before = asked(&world);
    fs::set_permissions(export.join("a/data.txt"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(export.join("a/data.txt"), "forged").unwrap();
    odd(eval(&world, &command)).exits(1);
    assert_eq!(asked(&world), before);
    assert_eq!(bytes("a/data.txt"), b"$Id$ keep\r\n");
    assert_eq!(fs::read_dir(&exports).unwrap().count(), 1);
}

#[test]
fn keys_are_those_of_today() {
    let Some(world) = repository() else { return };
    // Its model fails without the variable.
    let model = "#!/bin/sh\ncat >/dev/null\nprintf '{\"choices\":[{\"message\":{\"content\":\"%s\"}}]}' \"$WORD\"\n";
    world.script("r/a/model.sh", model);
    world.write("r/a/.env", "WORD=old\n");
    commit(&world, "with a key");
    world.write("r/a/.env", "WORD=bug\n");
    let found = eval(&world, &["-a", "r/a@HEAD", "--cases", "cases.csv"])
        .json()
        .end();
    assert_eq!(rates(&found), [("r/a@HEAD".to_owned(), 0.5)]);
    // And of the project.
    fs::remove_file(world.path("r/a/.env")).unwrap();
    world.write("r/.env", "WORD=question\n");
    let found = eval(
        &world,
        &["-a", "r/a@HEAD", "--cases", "cases.csv", "--trials", "2"],
    )
    .json()
    .end();
    assert_eq!(
        found.object()["suites"][0]["settings"][0]["cases"][0]["passed"],
        1
    );
}

/// A commit in `r` whose tree has these entries at its top, beside the agent `a`: mode, kind, name and content or id.
fn commit_of(world: &World, entries: &[(&str, &[u8], &[u8])]) -> String {
    let agent = git(world, "r", &["rev-parse", "HEAD~1:a"]);
    let mut tree = Vec::new();
    let mut add = |mode: &str, name: &[u8], id: &str| {
        tree.extend([mode.as_bytes(), b" ", name, b"\0"].concat());
        let digit = |at: usize| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap();
        tree.extend((0..20).map(digit));
    };
    add("40000", b"a", &agent);
    for (mode, name, content) in entries {
        let id = match *mode {
            "40000" | "160000" => String::from_utf8(content.to_vec()).unwrap(),
            _ => git_fed(world, "r", &["hash-object", "-w", "--stdin"], content),
        };
        add(mode, name, &id);
    }
    let tree = git_fed(
        world,
        "r",
        &["hash-object", "-t", "tree", "--literally", "-w", "--stdin"],
        &tree,
    );
    git(world, "r", &["commit-tree", "-m", "hostile", &tree])
}

#[test]
fn hostile_trees_are_refused_and_write_nothing_elsewhere() {
    let Some(world) = repository() else { return };
    let blob = |content: &[u8]| git_fed(&world, "r", &["hash-object", "-w", "--stdin"], content);
    let evil = blob(b"evil");
    let raw = |mode: &str, name: &[u8], id: &str| {
        let digit = |at: usize| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap();
        let bytes = [
            mode.as_bytes(),
            b" ",
            name,
            b"\0",
            &(0..20).map(digit).collect::<Vec<u8>>(),
        ]
        .concat();
        git_fed(
            &world,
            "r",
            &["hash-object", "-t", "tree", "--literally", "-w", "--stdin"],
            &bytes,
        )
    };
    let file = raw("100644", b"owned", &evil);
    let target = world.path("target-of-link").display().to_string();
    fs::create_dir(&target).unwrap();
    let commits = [
        (
            commit_of(&world, &[("40000", b"..", file.as_bytes())]),
            "odd entry",
        ),
        (
            commit_of(&world, &[("40000", b".git", file.as_bytes())]),
            "odd entry",
        ),
        (
            commit_of(&world, &[("40000", b".GIT", file.as_bytes())]),
            "odd entry",
        ),
        (
            commit_of(&world, &[("100644", b"../owned", b"evil")]),
            "odd entry",
        ),
        (
            commit_of(&world, &[("100644", b"/tmp/owned", b"evil")]),
            "odd entry",
        ),
        // A link, and a file below it.
        (
            commit_of(
                &world,
                &[
                    ("120000", b"l", target.as_bytes()),
                    ("40000", b"l", file.as_bytes()),
                ],
            ),
            "",
        ),
        (
            commit_of(&world, &[("100644", b"l", b"x"), ("100644", b"l", b"y")]),
            "l",
        ),
    ];
    for (commit, words) in &commits {
        let agent = format!("r/a@{commit}");
        let refused = eval(&world, &["-a", &agent, "--cases", "cases.csv"]).end();
        assert!(
            refused.stderr.contains(words),
            "{words}: {}",
            refused.stderr
        );
        assert_eq!(refused.code(), Some(2), "{words}: {}", refused.stderr);
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        assert!(
            files_below(world.home())
                .iter()
                .all(|path| !path.ends_with("owned"))
        );
    }
    assert!(!Path::new("/tmp/owned").exists());
    // Elsewhere in the repository links and submodules may be what they like; names may be anything but a path.
    let id = git(&world, "r", &["rev-parse", "HEAD"]);
    let harmless = commit_of(
        &world,
        &[
            ("120000", b"l", b"/etc/passwd"),
            ("160000", b"module", id.as_bytes()),
            ("100644", b"\x1b[31m\n\xff", b"x"),
        ],
    );
    eval(
        &world,
        &["-a", &format!("r/a@{harmless}"), "--cases", "cases.csv"],
    )
    .exits(0);
    // Not so below the agent.
    git(&world, "r", &["checkout", "-q", "HEAD~1"]);
    for (link, leads) in [
        ("abs", "/etc/passwd"),
        ("up", "../../x"),
        ("away", "nowhere"),
    ] {
        symlink(leads, world.path(&format!("r/a/{link}"))).unwrap();
        let commit = commit(&world, link);
        let refused = eval(
            &world,
            &["-a", &format!("r/a@{commit}"), "--cases", "cases.csv"],
        );
        refused
            .exits(2)
            .says(&format!("a/{link} leads to nothing in the repository"));
        fs::remove_file(world.path(&format!("r/a/{link}"))).unwrap();
    }
    symlink("../cases", world.path("r/a/inside")).unwrap();
    world.write("r/cases", "x");
    let commit = commit(&world, "inside");
    eval(
        &world,
        &["-a", &format!("r/a@{commit}"), "--cases", "cases.csv"],
    )
    .exits(0);
    let entry = format!("160000,{id},a/module");
    git(
        &world,
        "r",
        &["update-index", "--add", "--cacheinfo", &entry],
    );
    git(&world, "r", &["commit", "-q", "-m", "module"]);
    eval(&world, &["-a", "r/a@HEAD", "--cases", "cases.csv"])
        .exits(2)
        .says("a/module: a submodule");
}

#[test]
fn an_object_that_is_missing_is_not_fetched() {
    let Some(world) = repository() else { return };
    let trap = world.script(
        "trap",
        "#!/bin/sh\necho fetched >>\"$ASKED.trap\"\nexit 1\n",
    );
    for (key, value) in [
        ("remote.origin.url", format!("ext::{}", trap.display())),
        ("remote.origin.promisor", "true".to_owned()),
        ("protocol.ext.allow", "always".to_owned()),
        ("extensions.partialClone", "origin".to_owned()),
        ("core.repositoryFormatVersion", "1".to_owned()),
    ] {
        git(&world, "r", &["config", key, &value]);
    }
    let blob = git(&world, "r", &["rev-parse", "HEAD~1:a/model.sh"]);
    fs::remove_file(world.path(&format!("r/.git/objects/{}/{}", &blob[..2], &blob[2..]))).unwrap();
    let refused = eval(&world, &["-a", "r/a@HEAD~1", "--cases", "cases.csv"]).end();
    refused.exits(2);
    assert!(!world.exists("asked.trap"));
    assert_eq!(
        fs::read_dir(world.path("cache/delta/revisions"))
            .unwrap()
            .count(),
        0
    );
}
