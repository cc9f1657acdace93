//! context.yaml: what of files, generators and the journal the model gets to see.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};

const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";
const JOURNAL: &str = "{type: journal}";

/// An agent with these sources, and others keys before them.
fn with_sources(sources: &[&str]) -> World {
    let world = World::with_tools(ECHO);
    sources_of(&world, "", sources);
    world
}

fn sources_of(world: &World, top: &str, sources: &[&str]) {
    let items: String = sources.iter().map(|item| format!("  - {item}\n")).collect();
    world.write("agent/context.yaml", format!("{top}sources:\n{items}"));
}

/// A source `sum` that is computed by a line of shell into `ws/sum.md`.
fn computed(script: &str, more: &str) -> String {
    let command = json!(["sh", "-c", script]);
    format!(
        "{{type: computed_file, id: sum, generator: {{command: {command}, timeout_ms: 20000}}, output_path: '${{CWD}}/sum.md'{more}}}"
    )
}

/// Role and content of the messages of the newest request.
fn seen(world: &World) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let messages = world.server.last().messages();
    messages
        .iter()
        .map(|message| (text(&message["role"]), text(&message["content"])))
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(role, content): &(&str, &str)| ((*role).to_owned(), (*content).to_owned());
    expected.iter().map(owned).collect()
}

#[track_caller]
fn answers(world: &World) {
    world.model_says([text("done")]);
    world.run("go").exits(0).prints("done\n");
}

/// The run ends before anything is sent, with these words, and the same command resumes it.
#[track_caller]
fn fails(world: &World, words: &[&str]) {
    let mut outcome = world.run("go").exits(4).prints("");
    for word in words {
        outcome = outcome.says(word);
    }
    assert!(world.server.requests().is_empty());
    let run = world.latest();
    assert_eq!(
        run.ending(),
        ("INTERRUPTED".to_owned(), Some("context".to_owned()))
    );
    let message = run.events("ERROR")[0]["error_message"].to_string();
    assert!(message.contains(words[0]), "{message}");
}

#[test]
fn blocks_before_the_journal_are_one_system_message_and_those_behind_it_one_of_the_user() {
    let world = with_sources(&[
        "{type: file, id: rules, path: '${AGENT_HOME}/rules.md'}",
        "{type: file, path: notes/plan.txt}",
        JOURNAL,
        "{type: file, id: now, path: '${CWD}/now.md'}",
        "{type: file, id: then, path: '${CWD}/then.md'}",
    ]);
    world.write("agent/rules.md", "Be brief.\n");
    world.write("ws/notes/plan.txt", "no newline");
    world.write("ws/now.md", "n\n");
    world.write("ws/then.md", "t\n");
    answers(&world);
    assert_eq!(
        seen(&world),
        pairs(&[
            (
                "system",
                "# Context Block: rules\n\nBe brief.\n\n# Context Block: plan.txt\n\nno newline"
            ),
            ("user", "go"),
            (
                "user",
                "# Context Block: now\n\nn\n\n# Context Block: then\n\nt\n"
            ),
        ])
    );
}

#[test]
fn separate_blocks_are_a_system_message_each() {
    let world = World::new();
    world.server.accepts_anything();
    sources_of(
        &world,
        "system_messages: separate\n",
        &[
            "{type: file, path: '${CWD}/a'}",
            "{type: file, path: '${CWD}/b'}",
            JOURNAL,
        ],
    );
    world.write("ws/a", "A");
    world.write("ws/b", "B");
    answers(&world);
    let expected = [
        ("system", "# Context Block: a\n\nA"),
        ("system", "# Context Block: b\n\nB"),
        ("user", "go"),
    ];
    assert_eq!(seen(&world), pairs(&expected));
}

#[test]
fn the_workspaces_guide_is_seen_where_there_is_one() {
    let world = World::new();
    answers(&world);
    let system = "# Context Block: system_prompt\n\nYou are a test.\n";
    assert_eq!(seen(&world), pairs(&[("system", system), ("user", "go")]));
    world.write("ws/DELTA.md", "Tests run with make.\n");
    world.model_says([text("again")]);
    world.run("more").exits(0);
    let both = format!("{system}\n# Context Block: workspace_guide\n\nTests run with make.\n");
    assert_eq!(seen(&world), pairs(&[("system", &both), ("user", "more")]));
}

#[test]
fn a_file_is_read_again_before_every_request() {
    let world = with_sources(&["{type: file, id: n, path: '${CWD}/n'}", JOURNAL])
        .tools("- {name: set, shell: 'printf two > n'}");
    world.write("ws/n", "one");
    world.observe("set", &json!({}));
    assert_eq!(
        world.server.requests()[0].messages()[0]["content"],
        "# Context Block: n\n\none"
    );
    assert_eq!(seen(&world)[0].1, "# Context Block: n\n\ntwo");
}

#[test]
fn a_missing_file_fails_the_run_unless_it_may_be_missing() {
    let world = with_sources(&["{type: file, id: plan, path: '${CWD}/PLAN.md'}", JOURNAL]);
    fails(
        &world,
        &[
            "context source plan: cannot read",
            "PLAN.md",
            "no such file",
        ],
    );
    let skipped = [
        "{type: file, path: '${CWD}/PLAN.md', on_missing: skip}",
        "{type: file, path: '${CWD}/f/x', on_missing: skip}",
        JOURNAL,
    ];
    let world = with_sources(&skipped);
    world.write("ws/f", "a file, not a directory");
    answers(&world);
    assert_eq!(seen(&world), pairs(&[("user", "go")]));
}

#[test]
fn what_is_no_regular_file_is_not_waited_for() {
    for skip in ["", ", on_missing: skip"] {
        let world = with_sources(&[
            &format!("{{type: file, id: guide, path: '${{CWD}}/DELTA.md'{skip}}}"),
            JOURNAL,
        ]);
        fs::create_dir(world.workspace()).unwrap();
        let _pipe = world.fifo("ws/DELTA.md");
        if skip.is_empty() {
            fails(&world, &["context source guide", "not a regular file"]);
        } else {
            answers(&world);
        }
    }
}

#[test]
fn a_missing_context_yaml_is_an_error_with_a_default_to_paste() {
    let world = World::new();
    let default = world.path("agent/context.yaml");
    fs::remove_file(&default).unwrap();
    let outcome = world.run("go").exits(78).says("context.yaml");
    let at = outcome.stderr.find("sources:\n").unwrap();
    let pasted: Vec<&str> = outcome.stderr[at..]
        .lines()
        .map(|line| line.strip_prefix("delta: ").unwrap_or(line))
        .collect();
    fs::write(&default, pasted.join("\n")).unwrap();
    answers(&world);
    let system = "# Context Block: system_prompt\n\nYou are a test.\n";
    assert_eq!(seen(&world), pairs(&[("system", system), ("user", "go")]));
}

#[test]
fn without_a_journal_the_model_does_not_see_its_task_and_a_person_is_told_once() {
    let world = with_sources(&["{type: file, path: '${AGENT_HOME}/system_prompt.md'}"]);
    world.model_says([call("a", "echo", &json!({"words": "x"})), text("done")]);
    let outcome = world
        .run("go")
        .exits(0)
        .says("the model will not see its task");
    assert_eq!(outcome.stderr.matches("will not see its task").count(), 1);
    assert_eq!(seen(&world).len(), 1);
}

#[test]
fn a_generator_writes_its_file_or_prints_it() {
    for script in ["mkdir deep && echo made > sum.md", "echo made"] {
        let world = with_sources(&[
            &computed(script, "").replace("sum.md", "deep/sum.md"),
            JOURNAL,
        ]);
        answers(&world);
        assert_eq!(seen(&world)[0].1, "# Context Block: sum\n\nmade\n");
        assert_eq!(world.read("ws/deep/sum.md"), "made\n");
    }
}

#[test]
fn what_a_generator_prints_beside_its_file_is_not_the_file() {
    let world = with_sources(&[&computed("echo made > sum.md; echo progress", ""), JOURNAL]);
    answers(&world);
    assert_eq!(seen(&world)[0].1, "# Context Block: sum\n\nmade\n");
}

#[test]
fn a_file_that_is_still_right_is_left() {
    let world = with_sources(&[
        &computed("[ -e sum.md ] || echo made $ITERATION_COUNT > sum.md", ""),
        JOURNAL,
    ]);
    world.observe("echo", &json!({"words": "x"}));
    for request in world.server.requests() {
        assert_eq!(
            request.messages()[0]["content"],
            "# Context Block: sum\n\nmade 1\n"
        );
    }
}

#[test]
fn a_generator_sees_where_it_is_and_what_has_happened() {
    let script =
        "env > ../env; pwd > ../pwd; grep -c '\"type\":\"USER_MESSAGE\"' $JOURNAL_PATH; cat";
    let world = with_sources(&[&computed(script, ""), JOURNAL]);
    world.model_says([text("done")]);
    world
        .run("go")
        .env("DELTA_API_KEY", "sk-abcdefghijklmnop")
        .exits(0);
    let run = world.latest();
    let env = world.lines("env");
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    for (name, value) in [
        ("DELTA_RUN_ID", run.id()),
        ("DELTA_RUN_DIR", path(&run.dir)),
        ("RUN_DIR", path(&run.dir)),
        ("DELTA_AGENT_HOME", path(&world.path("agent"))),
        ("AGENT_HOME", path(&world.path("agent"))),
        ("DELTA_CWD", path(&world.workspace())),
        ("JOURNAL_PATH", path(&run.path("journal.jsonl"))),
        ("ITERATION_COUNT", "1".to_owned()),
    ] {
        assert!(env.contains(&format!("{name}={value}")), "{name}");
    }
    assert!(!env.iter().any(|line| line.contains("sk-abcdef")));
    assert_eq!(world.lines("pwd"), [path(&world.workspace())]);
    assert_eq!(seen(&world)[0].1, "# Context Block: sum\n\n1\n");
}

#[test]
fn a_generator_that_fails_fails_the_run_whatever_file_an_earlier_one_left() {
    for (script, ms, words) in [
        (
            "echo oh no >&2; exit 4",
            "20000",
            ["exit code 4: oh no", "context source sum"],
        ),
        (
            "echo half; kill -KILL $$",
            "20000",
            ["exit code 137", "context source sum"],
        ),
        (
            "echo stuck >&2; sleep 600",
            "1500",
            ["timed out after 1500 ms: stuck", "context source sum"],
        ),
    ] {
        let source = computed(script, "").replace("20000", ms);
        let world = with_sources(&[&source, JOURNAL]);
        world.write("ws/sum.md", "of an earlier run\n");
        fails(&world, &words);
        assert_eq!(world.read("ws/sum.md"), "of an earlier run\n");

        let world = with_sources(&[
            &source.replace("sum.md'", "sum.md', on_missing: skip"),
            JOURNAL,
        ]);
        world.write("ws/sum.md", "of an earlier run\n");
        answers(&world);
        assert_eq!(seen(&world), pairs(&[("user", "go")]));
        assert!(world.latest().text("engine.log").contains(words[0]));
    }
}

#[test]
fn a_generator_that_fails_later_fails_the_run_then() {
    let world = with_sources(&[
        &computed("[ $ITERATION_COUNT = 1 ] && echo first", ""),
        JOURNAL,
    ]);
    world.model_says([call("a", "echo", &json!({"words": "x"}))]);
    world.run("go").exits(4).says("exit code 1");
    assert_eq!(world.read("ws/sum.md"), "first\n");
    assert_eq!(world.server.requests().len(), 1);
}

#[test]
fn a_generator_that_makes_nothing_fails_the_run_with_its_words() {
    let world = with_sources(&[&computed("echo nothing to say >&2", ""), JOURNAL]);
    fails(&world, &["wrote no ", "sum.md: nothing to say"]);
    let world = with_sources(&[&computed("true", ", on_missing: skip"), JOURNAL]);
    answers(&world);
    assert_eq!(seen(&world), pairs(&[("user", "go")]));
}

#[test]
fn a_generator_that_is_not_installed_fails_the_run() {
    let source = "{type: computed_file, id: sum, generator: {command: [no-such-generator]}, output_path: sum.md}";
    let world = with_sources(&[source, JOURNAL]);
    fails(&world, &["no-such-generator: not found"]);
    assert!(!world.latest().path("generator.out").exists());
}

#[test]
fn the_cause_is_told_that_a_generator_names_at_the_end_of_much() {
    let world = with_sources(&[
        &computed(
            "yes noise | head -n 5000 >&2; echo the cause >&2; exit 1",
            "",
        ),
        JOURNAL,
    ]);
    fails(&world, &["noise the cause"]);
}

#[test]
fn a_generator_runs_before_every_request_or_once_for_each_start() {
    for (refresh, first, second) in [
        ("", 3, 4),
        (", refresh: every", 3, 4),
        (", refresh: once", 1, 2),
    ] {
        let world = with_sources(&[
            &computed("echo x >> ../runs; wc -l < ../runs", refresh),
            JOURNAL,
        ]);
        let say = |words: &str| call(words, "echo", &json!({"words": words}));
        world.model_says([say("a"), say("b"), say("c")]);
        world.run("go").arg("--max-iterations=3").exits(4);
        assert_eq!(world.lines("runs").len(), first, "{refresh}");
        world.model_says([text("done")]);
        world.go_on().exits(0);
        assert_eq!(world.lines("runs").len(), second, "{refresh}");
    }
}

#[test]
fn a_generator_that_runs_once_and_fails_is_not_tried_again_in_this_start() {
    let world = with_sources(&[
        &computed(
            "echo x >> ../runs; exit 1",
            ", refresh: once, on_missing: skip",
        ),
        JOURNAL,
    ]);
    world.observe("echo", &json!({"words": "x"}));
    assert_eq!(world.lines("runs").len(), 1);
}

/// A conversation of `calls` tool calls that is interrupted and goes on with another message in the middle.
fn long_talk(world: &World, half: usize) {
    let say = |n: usize| {
        let two = [
            (format!("a{n}"), json!({"words": format!("a{n}")})),
            (format!("b{n}"), json!({"words": format!("b{n}")})),
        ];
        calls(&[
            (&two[0].0, "echo", two[0].1.clone()),
            (&two[1].0, "echo", two[1].1.clone()),
        ])
    };
    world.model_says((1..=half).map(say));
    world
        .run("go")
        .args(["--max-iterations", &half.to_string()])
        .exits(4);
    world
        .model_says((half + 1..=2 * half).map(say))
        .says([text("done")]);
    world
        .go_on()
        .args(["-m", "and now?"])
        .exits(0)
        .prints("done\n");
}

#[test]
fn a_window_keeps_whole_iterations_and_every_word_of_the_user() {
    let world = with_sources(&[
        "{type: file, path: '${AGENT_HOME}/system_prompt.md'}",
        "{type: journal, max_iterations: 2}",
    ]);
    long_talk(&world, 3);
    let last = seen(&world);
    let said_by: Vec<&str> = last.iter().map(|(role, _)| role.as_str()).collect();
    let iteration = ["assistant", "tool", "tool"];
    assert_eq!(
        said_by,
        [&["system", "user", "user"][..], &iteration, &iteration].concat()
    );
    let contents: Vec<&str> = last.iter().map(|(_, content)| content.as_str()).collect();
    assert_eq!(contents[1..3], ["go", "and now?"]);
    assert_eq!(
        [contents[4], contents[5], contents[7], contents[8]],
        ["a5\n", "b5\n", "a6\n", "b6\n"]
    );
    // In between, the second message stands where it was said.
    let middle = world.server.requests()[4].messages();
    assert_eq!(
        roles(&middle),
        [&["system", "user"][..], &iteration, &["user"], &iteration].concat()
    );
}

#[test]
fn a_request_begins_like_the_one_before_until_the_window_moves() {
    let world = with_sources(&[
        "{type: file, path: '${AGENT_HOME}/system_prompt.md'}",
        &computed("echo the same", ""),
        "{type: journal, max_iterations: 3}",
    ]);
    let words = json!({"words": "x"});
    world
        .model_says((1..=6).map(|n| call(&format!("c{n}"), "echo", &words)))
        .says([text("done")]);
    world.run("go").exits(0);
    let requests = world.server.requests();
    let task = b"{\"role\":\"user\",\"content\":\"go\"}";
    for pair in requests.windows(2) {
        let (before, after) = (&pair[0].body, &pair[1].body);
        let whole = before.strip_suffix(b"]}").unwrap();
        let up_to_task = before
            .windows(task.len())
            .position(|part| part == task)
            .unwrap()
            + task.len();
        let stable = if pair[1].number <= 4 {
            whole.len()
        } else {
            up_to_task
        };
        assert_eq!(
            before[..stable],
            after[..stable],
            "request {}",
            pair[1].number
        );
    }
}

/// Whether a program is there; says so if it is not.
fn have(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        eprintln!("skipped: there is no {program}");
    }
    found
}

/// Lists what was decided, as a user would write it.
const SUMMARY: &str = r###"#!/usr/bin/env python3
import json
import os

with open(os.environ["JOURNAL_PATH"]) as journal:
    events = [json.loads(line) for line in journal]

decided = [
    event["content"]
    for event in events
    if event["type"] == "THOUGHT" and "decided" in event["content"].lower()
]

target = os.path.join(".delta", "context_artifacts", "summary.md")
os.makedirs(os.path.dirname(target), exist_ok=True)
with open(target, "w") as out:
    out.write("## So far\n\n")
    for number, text in enumerate(decided, 1):
        out.write(f"{number}. {text}\n")
"###;

/// Counts the tools that ran and repeats what was decided; to stdout.
const FOLD: &str = r#"#!/bin/sh
echo '## Tools'
grep '"type":"ACTION_RESULT"' "$JOURNAL_PATH" | jq -r .tool_name | sort | uniq -c | sed 's/^ *//'
echo '## Decisions'
jq -r 'select(.type == "THOUGHT") | .content' "$JOURNAL_PATH" | grep -i decided | head -n 10
exit 0
"#;

/// A thought that says why, and calls a tool.
fn decides(id: &str, why: &str) -> Reply {
    let function = json!({"name": "echo", "arguments": "{\"words\":\"x\"}"});
    message(&json!({
        "role": "assistant",
        "content": why,
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }))
}

#[test]
fn a_generator_in_python_folds_the_journal_into_a_file() {
    if !have("python3") {
        return;
    }
    let world = with_sources(&[
        "{type: computed_file, id: memory, generator: {command: [python3, '${AGENT_HOME}/tools/summary.py']}, output_path: '${CWD}/.delta/context_artifacts/summary.md'}",
        "{type: journal, max_iterations: 1}",
    ]);
    world.write("agent/tools/summary.py", SUMMARY);
    world.model_says([
        decides("a", "I decided on A."),
        call("c", "echo", &json!({"words": "without a word"})),
        decides("b", "Decided: then B."),
        text("done"),
    ]);
    world.run("go").exits(0);
    assert_eq!(
        seen(&world)[0].1,
        "# Context Block: memory\n\n## So far\n\n1. I decided on A.\n2. Decided: then B.\n"
    );
}

#[test]
fn a_generator_in_shell_prints_what_it_finds_with_jq() {
    if !have("jq") {
        return;
    }
    let world = with_sources(&[
        "{type: computed_file, generator: {command: ['${AGENT_HOME}/tools/fold.sh']}, output_path: '${CWD}/.delta/context_artifacts/summary.md'}",
        "{type: journal, max_iterations: 1}",
    ]);
    world.script("agent/tools/fold.sh", FOLD);
    world.model_says([
        decides("a", "I decided on A."),
        decides("b", "Then B."),
        text("done"),
    ]);
    world.run("go").exits(0);
    assert_eq!(
        seen(&world)[0].1,
        "# Context Block: summary.md\n\n## Tools\n2 echo\n## Decisions\nI decided on A.\n"
    );
}

#[test]
fn the_prompt_that_is_chosen_is_the_one_that_the_model_sees() {
    let world = World::new();
    world.write("agent/terse.md", "be terse");
    let sources = ["{type: file, path: '${SYSTEM_PROMPT}'}", JOURNAL];
    sources_of(&world, "", &sources);
    world.model_says([text("a"), text("b")]);
    world.run("go").exits(0);
    assert!(!seen(&world)[0].1.contains("be terse"));
    let set = ["--run-id", "b", "--set", "system_prompt=terse.md"];
    world.run("go").args(set).exits(0);
    let (role, content) = &seen(&world)[0];
    assert_eq!(role, "system");
    assert!(content.contains("be terse"), "{content}");
}

#[test]
fn the_path_of_the_prompt_is_an_argument_of_a_generator() {
    let world = World::new();
    let shown = "{type: computed_file, id: p, generator: {command: [cp, '${SYSTEM_PROMPT}', p.md]}, output_path: p.md}";
    sources_of(&world, "", &[shown, JOURNAL]);
    world.model_says([text("a")]);
    world.run("go").exits(0);
    let prompt = world.read("agent/system_prompt.md");
    assert!(seen(&world)[0].1.contains(prompt.trim()));
}

#[test]
fn a_prompt_that_is_chosen_and_not_shown_is_refused() {
    let world = World::new();
    world.write("agent/terse.md", "be terse");
    let fixed = "{type: file, path: '${AGENT_HOME}/system_prompt.md'}";
    sources_of(&world, "", &[fixed, JOURNAL]);
    let words = "system_prompt: no file source of context.yaml shows terse.md, so the model does not see it";
    let set = ["--set", "system_prompt=terse.md"];
    world.run("go").args(set).refuses(2, words);
    assert!(!world.exists("ws/.delta"));
    let agent = world.read("agent/agent.yaml");
    world.write(
        "agent/agent.yaml",
        format!("system_prompt: terse.md\n{agent}"),
    );
    world.run("go").refuses(78, words);
    world.delta(["check", "agent"]).refuses(78, words);
    // The one that is shown may be named in any way.
    world.write(
        "agent/agent.yaml",
        format!("system_prompt: ./system_prompt.md\n{agent}"),
    );
    world.model_says([text("a")]);
    world.run("go").exits(0);
}

#[test]
fn a_generator_may_show_the_prompt_that_is_chosen() {
    let world = World::new();
    world.write("agent/terse.md", "be terse");
    let agent = world.read("agent/agent.yaml");
    world.write(
        "agent/agent.yaml",
        format!("system_prompt: terse.md\n{agent}"),
    );
    sources_of(
        &world,
        "",
        &[&computed("cat ../agent/terse.md >sum.md", ""), JOURNAL],
    );
    world.model_says([text("a")]);
    let outcome = world.run("go").exits(0);
    outcome.says("no file source of context.yaml shows terse.md, so the model may not see it");
    assert!(seen(&world)[0].1.contains("be terse"));
}

#[test]
fn a_generator_may_show_the_prompt_of_the_command_line() {
    let world = World::new();
    world.write("agent/terse.md", "be terse");
    let shown = "{type: computed_file, id: p, generator: {command: [cat, '${SYSTEM_PROMPT}']}, output_path: p.md}";
    sources_of(&world, "", &[shown, JOURNAL]);
    world.model_says([text("a")]);
    let set = ["--set", "system_prompt=terse.md"];
    let outcome = world.run("go").args(set).exits(0);
    outcome.says("no file source of context.yaml shows terse.md, so the model may not see it");
    assert!(seen(&world)[0].1.contains("be terse"));
    let set = ["--new", "--set", "system_prompt=missing.md"];
    world.run("go").args(set).refuses(2, "missing.md");
}
