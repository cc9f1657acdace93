//! What shells offer at the Tab key behind `delta flow` and `delta-flow`.

use crate::cli::completion::{bash_completes, fish_offers, has, script, shell, zsh_completes};
use crate::harness::*;
use delta_engine::flow::cli::tables::COMMANDS;
use std::collections::BTreeSet;
use std::fs;

/// A flow, two runs of it in `ws` and, besides, one of an agent.
fn prepared() -> World {
    let world = World::new();
    world.model_says([text("one")]);
    let split = node("parts", "split", ", shell: 'echo [1,2]'");
    let named = split.replace("kind:", "name: In parts, kind:");
    let nodes = [
        start(),
        node("other", "start", ""),
        named,
        node("join", "merge", ""),
        exit(),
    ];
    world.write(
        "pipe line/workflow.yaml",
        flow(&nodes, "s>parts other>x parts>join join>x"),
    );
    world.run("hello").args(["--run-id", "talk"]).exits(0);
    for id in ["alpha", "beta"] {
        let run = ["run", "pipe line", "-q", "-w", "ws", "--run-id", id];
        Delta::flow(world.home()).args(run).exits(0);
    }
    fs::create_dir(world.path("ws/T1")).unwrap();
    world
}

/// What `delta-flow complete` says: what a shell adds, and the words.
fn offered(world: &World, words: &[&str]) -> String {
    let outcome = Delta::flow(world.home())
        .args(["complete", "--"])
        .args(words);
    let said = String::from_utf8(outcome.exits(0).stdout).unwrap();
    let mut lines = said.lines();
    let own = lines.next().unwrap().to_owned();
    let words = lines.map(|line| line.split('\t').next().unwrap());
    let words: Vec<&str> = words.collect();
    format!("{own}: {}", words.join(" ")).trim().to_owned()
}

#[test]
fn every_command_and_option_of_a_flow_is_offered() {
    let world = World::unasked();
    assert_eq!(offered(&world, &[""]), format!(": {}", COMMANDS.join(" ")));
    for command in COMMANDS {
        let help = Delta::flow(world.home()).args([command, "-h"]).end();
        let help = String::from_utf8(help.exits(0).stdout).unwrap();
        let lines = help.lines().map(str::trim_start);
        let heads = lines
            .filter(|line| line.starts_with('-'))
            .map(|line| line.split("  ").next().unwrap());
        let words = heads.flat_map(|head| head.split([' ', ',']));
        let listed: BTreeSet<&str> = words.filter(|word| word.starts_with('-')).collect();
        let said = offered(&world, &[command, "-"]);
        let words = said.strip_prefix(": ").unwrap().split(' ');
        assert_eq!(words.collect::<BTreeSet<_>>(), listed, "{command}");
        // Each with what it is for, and by way of the other program the same.
        let words = ["complete", "--", command, "-"];
        let all = Delta::flow(world.home()).args(words).exits(0);
        let same = world.delta(["complete", "--", "flow", command, "-"]).end();
        assert_eq!(same.exits(0).stdout, all.stdout, "{command}");
        for line in String::from_utf8(all.stdout).unwrap().lines().skip(1) {
            assert!(!line.ends_with('\t'), "{command}: {line}");
        }
    }
}

#[test]
fn every_value_and_operand_of_a_flow_is_offered_what_it_can_be() {
    let world = prepared();

    for (line, expected) in [
        ("run ", "dirs:"),
        ("run -i ", "files:"),
        ("run --inputs=", "files:"),
        ("run -m ", ":"),
        ("run 'pipe line' --start ", ": s other"),
        ("run pipe\\ line --start=", ": --start=s --start=other"),
        (
            "run 'pipe line' -j 2 --pause-before ",
            ": s other parts join x",
        ),
        ("run none --start ", ":"),
        ("run -w ", "dirs: ws/"),
        ("run -w ws --run-id ", ": beta alpha"),
        ("run --format ", ": text json jsonl"),
        ("run --records ", ": all failed"),
        ("run --changed ", ": ok"),
        ("run --launch ", ":"),
        ("check ", "dirs:"),
        ("check --format=", ": --format=text --format=json"),
        ("graph ", "dirs:"),
        ("graph -w ws ", "dirs: beta alpha LATEST"),
        ("graph -w ws ws/.delta/", "dirs:"),
        ("graph --format ", ": dot mermaid svg"),
        ("show -w ws ", ": beta alpha LATEST T1 T1.s0 T1.s1"),
        ("show -w ws alpha ", ": T1 T1.s0 T1.s1"),
        ("show -w ws ws/.delta/", "dirs:"),
        ("show -w ws alpha T1 ", ": s parts join x"),
        ("show -w ws T1 ", ": s parts join x"),
        ("show -w ws T1 parts ", ":"),
        ("show -w ws alpha T1 parts ", ": -w --work-dir -h --help"),
        ("show ", ":"),
        ("memory ", ": add list"),
        ("memory list ", ": task project global"),
        ("memory add ", ": project global"),
        ("memory add project ", "dirs:"),
        ("tool ", ":"),
        ("answer -w ws ", ": T1 T1.s0 T1.s1"),
        ("answer -w ws --run-id ", ": beta alpha"),
        ("answer T1 ", ":"),
        ("replay -w ws ", ": beta alpha LATEST"),
        ("replay -w ws alpha ", ": s parts join x"),
        ("replay -w ws alpha parts --task ", ": T1 T1.s0 T1.s1"),
        ("eval ", "dirs:"),
        ("eval --format ", ": text json jsonl junit tap"),
        ("artifacts -w ws ", ": beta alpha LATEST"),
        ("artifacts -w ws alpha --node ", ": s parts join x"),
        ("artifacts -w ws alpha --schema ", ":"),
        ("manifest -w ws ", "dirs: beta alpha LATEST"),
        ("manifest --check ", "files:"),
        ("repl ", "dirs:"),
        ("repl 'pipe line' --profile ", ":"),
        ("repl --run-id ", ":"),
        ("observe -w ws ", ": beta alpha LATEST"),
        (
            "help ",
            ": run show init check graph answer observe replay artifacts manifest repl stats tool memory eval help",
        ),
        ("nonsense ", ":"),
    ] {
        let mut words = shlex::split(line).unwrap();
        if line.ends_with(' ') {
            words.push(String::new());
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let quoted: Vec<String> = words
            .iter()
            .map(|word| shlex::try_quote(word).unwrap().into_owned())
            .map(|word| if word == "''" { String::new() } else { word })
            .collect();
        let quoted: Vec<&str> = quoted.iter().map(String::as_str).collect();
        assert_eq!(offered(&world, &quoted), expected, "{line:?}");
    }
}

#[test]
fn what_is_offered_of_a_flow_is_told() {
    let world = prepared();
    let told = |words: &[&str]| {
        let outcome = Delta::flow(world.home())
            .args(["complete", "--"])
            .args(words);
        String::from_utf8(outcome.exits(0).stdout).unwrap()
    };
    assert_eq!(
        told(&["run", "pipe\\ line", "--pause-before", ""]),
        "\ns\tstart\nother\tstart\nparts\tsplit: In parts\njoin\tmerge\nx\texit\n"
    );
    assert_eq!(
        told(&["show", "-w", "ws", "beta", ""]),
        "\nT1\tsuccess\nT1.s0\tsuccess\nT1.s1\tsuccess\n"
    );
    let runs = told(&["run", "-w", "ws", "--run-id", ""]);
    assert!(runs.starts_with("\nbeta\tCOMPLETED"), "{runs}");
}

const LINES: [(&str, &str); 9] = [
    ("delta flow ru", "delta flow run "),
    ("delta flow run pi", "delta flow run pipe\\ line/"),
    ("delta flow run --keep", "delta flow run --keep-going "),
    (
        "delta flow run pipe\\ line --start o",
        "delta flow run pipe\\ line --start other ",
    ),
    (
        "delta-flow run 'pipe line' --pause-before=j",
        "delta-flow run 'pipe line' --pause-before=join ",
    ),
    ("delta-flow sh", "delta-flow show "),
    ("delta-flow show -w ws al", "delta-flow show -w ws alpha "),
    (
        "delta flow show -w ws alpha T1 p",
        "delta flow show -w ws alpha T1 parts ",
    ),
    (
        "delta-flow graph --format=m",
        "delta-flow graph --format=mermaid ",
    ),
];

#[test]
fn bash_completes_a_flow() {
    if has("bash") {
        bash_completes(&prepared(), &LINES);
    }
}

#[test]
fn zsh_completes_a_flow() {
    if has("zsh") {
        zsh_completes(&prepared(), &LINES);
    }
}

#[test]
fn fish_completes_a_flow() {
    if !has("fish") {
        return;
    }
    let world = prepared();
    for (typed, completed) in LINES {
        let last = shlex::split(completed.trim_end()).unwrap().pop().unwrap();
        assert_eq!(fish_offers(&world, typed), [last], "{typed}");
    }
}

#[test]
fn delta_alone_completes_its_parts() {
    if !has("bash") {
        return;
    }
    let world = World::unasked();
    fs::create_dir(world.path("bin")).unwrap();
    copy_program(env!("CARGO_BIN_EXE_delta"), &world.path("bin/delta"));
    const TRY: &str = r#"
        source "$1"
        for line in "flow ru" "sessions ex"; do
            COMP_WORDS=("$PWD/bin/delta" $line) COMP_CWORD=2
            _delta_engine
            printf '%s\n' "${COMPREPLY[@]}"
        done
    "#;
    let done = shell(&world, "bash")
        .args(["-c", TRY, "bash"])
        .arg(script("bash"))
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "run\nexec\n");
}

/// A run of a flow that a clone brought, whose tasks have these names.
fn foreign(names: &[&str]) -> World {
    let world = World::unasked();
    let metadata = r#"{"run_id":"fr","workspace_id":"c","agent_name":"m","status":"COMPLETED","created_at":"2026-11-28T14:52:58.390Z","agent_home":"/x","work_dir":"/x","flow":{"home":"/x"}}"#;
    world.write("c/.delta/VERSION", "1.2");
    world.write("c/.delta/fr/metadata.json", metadata);
    let mut journal = r#"{"seq":1,"timestamp":"2026-11-28T14:52:58.393Z","type":"ENGINE_START","iteration":0,"run_id":"fr","agent_home":"/x","work_dir":"/x","task":"x","config":{"name":"m","start":"begin","launch":[],"jobs":2,"records":"all"},"resumed":false}
{"seq":2,"timestamp":"2026-11-28T14:52:58.393Z","type":"FLOW_START","iteration":0,"flow":{"home":"/x","files":[],"agents":[],"start":"begin"},"input":"x"}
"#
    .to_owned();
    for (at, name) in names.iter().enumerate() {
        journal += &format!(
            "{}\n",
            serde_json::json!({"seq": at + 3, "timestamp": "2026-11-28T14:52:58.403Z", "type": "TASK_CREATED",
                "iteration": 0, "task_id": name, "parent_id": null, "kind": "root", "index": at, "input": "x"})
        );
    }
    world.write("c/.delta/fr/journal.jsonl", journal);
    world
}

#[test]
fn names_in_foreign_records_that_mean_something_to_a_shell_are_not_offered() {
    let world = foreign(&["T1;id>PWNED;", "T2", "T3$(id)", "T4 x", "a_.:@%+/-b", "T5*"]);
    let line = ["complete", "--", "show", "-w", "c", "fr", ""];
    let ended = Delta::flow(world.home()).args(line).exits(0);
    let printed = String::from_utf8(ended.stdout).unwrap();
    let words: Vec<&str> = printed.lines().skip(1).collect();
    let words: Vec<&str> = words.iter().map(|it| it.trim_end()).collect();
    assert_eq!(words, ["T2", "a_.:@%+/-b"]);
}
