//! Loading a flow: every error has its code, its ids and its place, and all of them are told at once.

use crate::harness::*;
use delta_engine::flow::manifest::Code;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The acceptance cases: each has config/, input.json and expected.json.
fn cases() -> Vec<(String, PathBuf)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/flow-cases");
    let entries = std::fs::read_dir(&dir).unwrap();
    let mut cases: Vec<(String, PathBuf)> = entries
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .collect();
    cases.sort();
    assert_eq!(cases.len(), 27);
    cases
}

#[test]
fn the_acceptance_cases_load_or_fail_as_they_say() {
    let world = World::new();
    for (name, dir) in cases() {
        let expected = std::fs::read(dir.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let errors = errors_of(&world, dir.join("config"));
        let wanted = &expected["load_error"];
        if wanted.is_null() {
            assert!(errors.is_empty(), "{name}: {errors:#?}");
            continue;
        }
        let ids = |value: &Value| -> BTreeSet<String> {
            let ids = value.as_array().unwrap().iter();
            ids.map(|id| id.as_str().unwrap().to_owned()).collect()
        };
        let found = errors.iter().any(|error| {
            error["code"] == wanted["code"] && ids(&error["ids"]) == ids(&wanted["at"])
        });
        assert!(found, "{name}: {wanted} is not in {errors:#?}");
    }
}

#[test]
fn a_flow_that_can_be_loaded_is_said_to_be_ok() {
    let world = World::new();
    world.write("f/workflow.yaml", flow(&[start(), exit()], "s>x"));
    let check = Delta::flow(world.home()).args(["check", "f"]).end();
    check
        .exits(0)
        .prints("f: ok, 2 nodes, 1 edge, 0 agents, 0 tools, 0 schemas\n");
}

#[test]
fn a_single_start_needs_no_mark() {
    let world = World::new();
    let nodes = [node("s", "start", ""), exit()];
    world.write("f/workflow.yaml", flow(&nodes, "s>x"));
    assert_eq!(errors_of(&world, "f"), Vec::<Value>::new());
    let run = Delta::flow(world.home()).args(["run", "f", "-w", "ws", "-m", "in"]);
    run.exits(0).prints("\"in\"\n");
}

/// A code, its ids, nodes and edges that show it, how many errors there are then, and words of its
/// message.
type Row<'r> = (&'r str, &'r [&'r str], Vec<String>, &'r str, usize, &'r str);

#[test]
fn every_error_of_a_workflow_has_its_code_and_its_ids() {
    let (s, x) = (start(), exit());
    let linear = |id: &str| node(id, "linear", "");
    let two = |id: &str, role: &str| node(id, role, "");
    let table: Vec<Row> = vec![
        (
            "duplicate_node_id",
            &["a"],
            vec![s.clone(), linear("a"), linear("a"), x.clone()],
            "s>a a>x",
            1,
            "workflow.yaml:4: a second node has the id \"a\"",
        ),
        (
            "bad_role",
            &["a"],
            vec![s.clone(), node("a", "loop", ""), x.clone()],
            "s>a a>x",
            1,
            "workflow.yaml:3: node \"a\": role cannot be the string \"loop\"; needs one of start, linear",
        ),
        (
            "unknown_context",
            &["a"],
            vec![s.clone(), linear("a").replace("none", "recent"), x.clone()],
            "s>a a>x",
            1,
            "workflow.yaml:3: node \"a\": there is no context profile \"recent\"; define it in memory.yaml",
        ),
        (
            "unknown_tool",
            &["a"],
            vec![s.clone(), node("a", "linear", ", tools: [grep]"), x.clone()],
            "s>a a>x",
            1,
            "there is no tool \"grep\"; define it in tools.yaml",
        ),
        (
            "unknown_schema",
            &["a"],
            vec![
                s.clone(),
                node("a", "linear", ", schema_in: zzz"),
                x.clone(),
            ],
            "s>a a>x",
            1,
            "there is no schema \"zzz\"; define it in schemas/",
        ),
        (
            "unknown_node",
            &["y"],
            vec![s.clone(), linear("aye"), x.clone()],
            "s>aye aye>x aye>y",
            2,
            "workflow.yaml:8: edge: there is no node \"y\"",
        ),
        (
            "duplicate_edge",
            &["b", "x"],
            vec![s.clone(), two("b", "branch"), x.clone()],
            "s>b b>x b>x",
            2,
            "workflow.yaml:8: a second edge goes from \"b\" to \"x\"",
        ),
        (
            "duplicate_label",
            &["d"],
            vec![s.clone(), two("d", "decision"), x.clone(), two("y", "exit")],
            "s>d d>x:go d>y:go",
            1,
            "has the label \"go\"; rename one",
        ),
        (
            "cycle",
            &["a", "b"],
            vec![
                s.clone(),
                two("a", "merge"),
                two("b", "decision"),
                x.clone(),
            ],
            "s>a a>b b>a:again b>x:done",
            1,
            "workflow.yaml:3: a > b > a is a cycle",
        ),
        (
            "no_start",
            &[],
            vec![linear("a"), x.clone()],
            "a>x",
            2,
            "workflow.yaml:1: no node has role: start",
        ),
        (
            "no_default_start",
            &["s", "t"],
            vec![two("s", "start"), two("t", "start"), x.clone()],
            "s>x t>x",
            1,
            "give it to one of \"s\", \"t\"",
        ),
        (
            "multiple_default_start",
            &["s", "t"],
            vec![s.clone(), start().replace("id: s", "id: t"), x.clone()],
            "s>x t>x",
            1,
            "default_start: true on \"s\", \"t\"",
        ),
        (
            "default_start_on_non_start",
            &["a"],
            vec![
                s.clone(),
                node("a", "linear", ", default_start: true"),
                x.clone(),
            ],
            "s>a a>x",
            1,
            "node \"a\": only a start has default_start",
        ),
        (
            "no_exit",
            &[],
            vec![s.clone(), linear("a")],
            "s>a",
            2,
            "no node has role: exit",
        ),
        (
            "unreachable_node",
            &["a", "y"],
            vec![s.clone(), linear("a"), x.clone(), two("y", "exit")],
            "s>x a>y",
            2,
            "no start leads to \"a\", \"y\"",
        ),
        (
            "start_cannot_reach_exit",
            &["t"],
            vec![s.clone(), two("t", "start"), linear("a"), x.clone()],
            "s>x t>a",
            2,
            "no exit can be reached from \"t\"",
        ),
        (
            "start_arity",
            &["s"],
            vec![s.clone(), x.clone(), two("y", "exit")],
            "s>x s>y",
            1,
            "node \"s\" has 0 in and 2 out; role start needs none in and one out",
        ),
        (
            "linear_arity",
            &["a"],
            vec![s.clone(), linear("a"), x.clone(), two("y", "exit")],
            "s>a a>x a>y",
            1,
            "node \"a\" has 1 in and 2 out",
        ),
        (
            "decision_arity",
            &["d"],
            vec![s.clone(), two("d", "decision"), x.clone()],
            "s>d d>x",
            1,
            "one in and two or more out",
        ),
        (
            "branch_arity",
            &["b"],
            vec![s.clone(), two("b", "branch"), x.clone()],
            "s>b b>x",
            1,
            "one in and two or more out",
        ),
        (
            "split_arity",
            &["p"],
            vec![s.clone(), two("t", "start"), two("p", "split"), x.clone()],
            "s>p t>p p>x",
            1,
            "node \"p\" has 2 in and 1 out",
        ),
        (
            "merge_arity",
            &["m"],
            vec![s.clone(), two("m", "merge"), x.clone()],
            "s>m m>x",
            1,
            "two or more in (one, if every way to it leads through a split) and one out",
        ),
        (
            "exit_arity",
            &["x"],
            vec![s.clone(), x.clone(), two("y", "exit")],
            "s>x x>y",
            1,
            "node \"x\" has 1 in and 1 out",
        ),
        (
            "exit_has_tools",
            &["x"],
            vec![s.clone(), node("x", "exit", ", tools: [t]")],
            "s>x",
            2,
            "an exit has no tools",
        ),
        (
            "exit_has_command",
            &["x"],
            vec![s.clone(), node("x", "exit", ", exec: cat")],
            "s>x",
            1,
            "workflow.yaml:3: node \"x\": an exit has no command",
        ),
        (
            "always_fail_on_non_exit",
            &["a"],
            vec![
                s.clone(),
                node("a", "linear", ", always_fail: true"),
                x.clone(),
            ],
            "s>a a>x",
            1,
            "only an exit has always_fail",
        ),
    ];
    for (code, ids, nodes, list, count, message) in table {
        let errors = errors_in(&flow(&nodes, list));
        has(&errors, count, code, ids, "workflow.yaml", message);
    }
}

#[test]
fn a_node_with_a_wrong_role_or_kind_or_none_that_can_be_derived_is_told_so() {
    let nodes = "nodes:\n- id: a\n- {id: b, role: 3, kind: robot, context: null}\n";
    let errors = errors_in(nodes);
    for (code, message) in [
        ("bad_role", "workflow.yaml:2: node \"a\": has no role"),
        (
            "context_missing",
            "workflow.yaml:2: node \"a\": has no context; needs none, global, or",
        ),
    ] {
        has(&errors, 7, code, &["a"], "workflow.yaml", message);
    }
    for (code, message) in [
        (
            "bad_role",
            "workflow.yaml:3: node \"b\": role cannot be the number 3",
        ),
        (
            "bad_kind",
            "workflow.yaml:3: node \"b\": kind cannot be the string \"robot\"",
        ),
        ("context_missing", "node \"b\": has no context"),
    ] {
        has(&errors, 7, code, &["b"], "workflow.yaml", message);
    }
}

#[test]
fn an_unknown_agent_is_reported_beside_a_missing_context() {
    let errors = errors_in("nodes:\n- {id: a, role: start, agent_id: nobody}\n");
    let mut codes: Vec<&str> = errors.iter().filter_map(|it| it["code"].as_str()).collect();
    codes.retain(|code| ["context_missing", "unknown_agent"].contains(code));
    codes.sort_unstable();
    assert_eq!(codes, ["context_missing", "unknown_agent"], "{errors:#?}");
}

#[test]
fn a_flow_without_a_workflow_is_missing_it() {
    let world = World::new();
    let missing = |dir: &str, message: &str| {
        let errors = errors_of(&world, dir);
        has(
            &errors,
            1,
            "manifest_missing",
            &[],
            "workflow.yaml",
            message,
        );
    };
    missing("nowhere", "cannot read nowhere: no such file or directory");
    world.write("empty/README", "");
    missing("empty", "empty/workflow.yaml: there is no such file");
    missing("empty/README", "empty/README is not a directory");
}

#[test]
fn an_agent_and_an_exit_or_a_start_do_not_go_together() {
    let agent =
        |id: &str, role: &str, more: &str| node(id, role, more).replace("deterministic", "agent");
    let nodes = [
        agent("s", "start", ", agent_id: nobody, default_start: true"),
        agent("a", "linear", ""),
        agent("b", "linear", ", agent_id: nobody, exec: cat"),
        agent("x", "exit", ", agent_id: nobody"),
    ];
    let errors = errors_in(&flow(&nodes, "s>a a>b b>x"));
    let expect = |code: &str, id: &str, message: &str| {
        has(&errors, 7, code, &[id], "workflow.yaml", message);
    };
    expect(
        "start_not_deterministic",
        "s",
        "workflow.yaml:2: node \"s\": a start is deterministic",
    );
    expect("exit_not_deterministic", "x", "an exit is deterministic");
    expect("agent_id_missing", "a", "an agent needs agent_id");
    expect(
        "manifest_invalid",
        "b",
        "an agent has no command of its own",
    );
    for id in ["s", "b", "x"] {
        expect(
            "unknown_agent",
            id,
            "there is no agent \"nobody\"; define it in agents.yaml",
        );
    }
}

#[test]
fn every_code_is_tested_here_or_beside() {
    let tests = concat!(
        include_str!("load.rs"),
        include_str!("eval_load.rs"),
        include_str!("hostile_files.rs"),
        include_str!("providers.rs")
    );
    for (name, _) in Code::ALL {
        let quoted = format!("{name:?}");
        assert!(tests.contains(&quoted), "{quoted}");
    }
}

#[test]
fn a_merge_may_have_one_way_in_if_it_leads_through_a_split() {
    let nodes = [
        start(),
        node("p", "split", ""),
        node("w", "linear", ""),
        node("m", "merge", ""),
        exit(),
    ];
    assert!(errors_in(&flow(&nodes, "s>p p>w w>m m>x")).is_empty());
    let around = [
        start(),
        node("d", "decision", ""),
        node("p", "split", ""),
        node("m", "merge", ""),
        node("n", "merge", ""),
        exit(),
    ];
    // From d there is a second way to n, past the split.
    let yaml = flow(&around, "s>d d>p:a d>m:b p>m m>n n>x");
    has_only(
        &yaml,
        "merge_arity",
        &["n"],
        "node \"n\" has 1 in and 1 out",
    );
}

#[test]
fn errors_of_all_files_are_told_at_once() {
    let world = World::new();
    let node =
        node("a", "linear", ", schema_out: bad, tools: [wrong, none]").replace("none,", "who,");
    world.write("f/workflow.yaml", around(&node));
    world.write("f/agents.yaml", "agents:\n- {id: ag}\n- 3\n");
    world.write("f/tools.yaml", "tools:\n- {id: wrong, exec: 'a | b'}\n");
    world.write("f/memory.yaml", "task_store: {type: disk}\n");
    world.write("f/schemas/bad.json", "{}}");
    let errors = errors_of(&world, "f");
    let all: Vec<(&str, &str)> = errors
        .iter()
        .map(|error| {
            (
                error["file"].as_str().unwrap(),
                error["code"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        all,
        [
            ("agents.yaml", "manifest_invalid"),
            ("agents.yaml", "manifest_invalid"),
            ("memory.yaml", "manifest_invalid"),
            ("schemas/bad.json", "invalid_schema"),
            ("tools.yaml", "manifest_invalid"),
            ("workflow.yaml", "unknown_context"),
            // The tool that is there and wrong is not unknown as well, and neither is the schema.
            ("workflow.yaml", "unknown_tool"),
        ]
    );
    // In text: the same, each on a line of stderr that begins with the program's name.
    let text = Delta::flow(world.home())
        .args(["check", "f"])
        .exits(78)
        .prints("");
    let is_error = |line: &&str| !line.starts_with("delta-flow: warning: ");
    let lines: Vec<&str> = text.stderr.lines().filter(is_error).collect();
    assert_eq!(lines.len(), all.len());
    for (line, (file, code)) in lines.into_iter().zip(all) {
        let start = format!("delta-flow: f/{file}:");
        assert!(
            line.starts_with(&start) && line.contains(&format!(" {code}: ")),
            "{line}"
        );
    }
}

#[test]
fn the_same_flow_is_found_through_a_link_and_in_the_current_directory() {
    let world = World::new();
    world.write("f/workflow.yaml", flow(&[start(), exit()], "s>x"));
    std::os::unix::fs::symlink("f", world.path("link")).unwrap();
    let check = Delta::flow(world.home()).args(["check", "link"]).end();
    check.exits(0);
    let here = Delta::flow(world.home())
        .args(["check"])
        .cwd(world.path("f"))
        .end();
    let real = world.path("f").canonicalize().unwrap();
    let said = format!(
        "{}: ok, 2 nodes, 1 edge, 0 agents, 0 tools, 0 schemas\n",
        real.display()
    );
    here.exits(0).prints(&said);
    world.write("f/workflow.yaml", "nodes: 3\n");
    let here = Delta::flow(world.home())
        .args(["check"])
        .cwd(world.path("f"))
        .end();
    here.exits(78)
        .says("delta-flow: workflow.yaml:1: manifest_invalid: nodes: expected a list");
}

/// Editors lock a file by a link to nothing beside it, and keep copies.
#[test]
fn hidden_files_are_no_schemas() {
    let world = World::new();
    world.write("f/workflow.yaml", flow(&[start(), exit()], "s>x"));
    world.write("f/schemas/a.json", "{}");
    world.write("f/schemas/.b.json", "{");
    std::os::unix::fs::symlink("me@host.1", world.path("f/schemas/.#a.json")).unwrap();
    let check = Delta::flow(world.home()).args(["check", "f"]).exits(0);
    check.prints("f: ok, 2 nodes, 1 edge, 0 agents, 0 tools, 1 schema\n");
}

#[test]
fn an_item_is_defined_twice_even_if_the_first_one_is_wrong() {
    let world = World::new();
    world.write("f/workflow.yaml", flow(&[start(), exit()], "s>x"));
    for (file, list) in [
        ("tools", "tools: [{id: a, exec: ''}, {id: a, exec: cat}]\n"),
        ("plugins", "plugins: [{id: a}, {id: a, command: [cat]}]\n"),
        (
            "providers",
            "providers: [{id: a}, {id: a, command: [cat]}]\n",
        ),
    ] {
        world.write(&format!("f/{file}.yaml"), list);
    }
    let mut check = Delta::flow(world.home()).args(["check", "f"]).exits(78);
    for item in ["tool", "plugin", "provider"] {
        check = check.says(&format!("{item} \"a\": is defined twice; remove one"));
    }
}
