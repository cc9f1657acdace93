//! How much of a flow runs at once: limits of nodes and providers, and `scheduling:`.

use crate::flow::run::run;
use crate::harness::*;
use serde_json::Value;

/// A flow that splits into six subtasks, each through `a` and `b`.
fn world(top: &str, a: &str) -> World {
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        format!(
            "{top}\ndefaults: {{context: none}}\nnodes:\n- id: s\n\
             - {{id: p, role: split, shell: 'echo \"[1,2,3,4,5,6]\"'}}\n- {{id: a, {a}}}\n\
             - {{id: b, exec: cat}}\n- {{id: m, role: merge}}\n- id: x\nedges: [[s, p, a, b, m, x]]\n"
        ),
    );
    world
}

/// How many steps at a node were under way at once, at most: from its beginning in the journal, which comes before
/// the program, to its end.
fn most_at_once(run: &Run, node: &str) -> usize {
    let (mut open, mut most) = (0, 0);
    for event in run.journal() {
        if event["node_id"] == node && event["type"] == "NODE_START" {
            open += 1;
        }
        if event["node_id"] == node && event["type"] == "NODE_END" {
            open -= 1;
        }
        most = most.max(open);
    }
    most
}

fn latest(world: &World) -> Run {
    Run::latest(&world.path("ws"))
}

#[test]
fn no_more_programs_of_a_node_run_at_once_than_its_limit() {
    for (limit, jobs, expected) in [
        ("", "6", 6),
        (", limit: 1", "6", 1),
        (", limit: 2", "6", 2),
        (", limit: 4", "2", 4),
    ] {
        let world = world("", &format!("exec: cat{limit}"));
        let outcome = run(&world).args(["-j", jobs]).end();
        outcome.exits(0).prints("[1,2,3,4,5,6]\n");
        let most = most_at_once(&latest(&world), "a");
        match jobs {
            // Some more are recorded than may run.
            "2" => assert!(most <= expected, "{most}"),
            _ => assert_eq!(most, expected, "{limit}"),
        }
    }
}

#[test]
fn steps_that_a_limit_holds_keep_no_others_from_running() {
    // The first `a` ends when a `c` has run, and the others must not begin before.
    let world = World::new();
    world.write(
        "f/workflow.yaml",
        "defaults: {context: none}\nnodes:\n- id: s\n- {id: p, role: split, shell: 'echo \"[1,2,3,4,5,6]\"'}\n\
         - {id: a, limit: 1, shell: 'mkdir $FLOW_WORKSPACE/alone && until test -e $FLOW_WORKSPACE/c; do sleep 0.01; done; \
         rmdir $FLOW_WORKSPACE/alone; cat'}\n- {id: c, shell: 'echo >$FLOW_WORKSPACE/c; cat'}\n\
         - id: m\n- id: x\nedges: [[s, p, a, m, x], [p, c, m]]\n",
    );
    let outcome = run(&world).args(["-j", "2"]).end();
    outcome.exits(0).prints("[1,2,3,4,5,6]\n");
    assert_eq!(most_at_once(&latest(&world), "a"), 1);
}

/// Two nodes whose agents ask one provider, behind a split.
fn asking(provider: &str, top: &str) -> World {
    let world = World::new();
    let one = "{role: split, shell: 'echo \"[1,2]\"'";
    world.write(
        "f/workflow.yaml",
        format!(
            "{top}\ndefaults: {{context: none}}\nnodes:\n- id: s\n- {one}, id: p}}\n\
             - {{id: a, agent_id: ag}}\n- {{id: b, agent_id: ag}}\n- id: m\n- id: x\n\
             edges: [[s, p, a, m, x], [p, b, m]]\n"
        ),
    );
    world.write(
        "f/agents.yaml",
        "agents:\n- {id: ag, llm: acme/m, prompt: Be brief.}\n",
    );
    let url = world.server.url();
    world.write(
        "f/providers.yaml",
        format!("providers:\n- {{id: acme, base_url: {url}{provider}}}\n"),
    );
    world.model_says([text("1"), text("1")]);
    world
}

/// What was under way at once of both nodes together.
fn most_of_both(run: &Run) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    let agents = ["a", "b"];
    for event in run.journal() {
        let is_one = agents.iter().any(|node| event["node_id"] == *node);
        match event["type"].as_str() {
            Some("NODE_START") if is_one => open += 1,
            Some("NODE_END") if is_one => open -= 1,
            _ => {}
        }
        most = most.max(open);
    }
    most
}

#[test]
fn the_limit_of_a_provider_counts_for_all_nodes_that_ask_it() {
    for (provider, top, expected) in [
        ("", "", 2),
        (", limit: 1", "", 1),
        ("", "scheduling: {limits: {acme: 1}}", 1),
        (", limit: 2", "scheduling: {limits: {acme: 1}}", 2),
    ] {
        let world = asking(provider, top);
        run(&world).args(["-j", "4"]).exits(0).prints("[1,1]\n");
        assert_eq!(most_of_both(&latest(&world)), expected, "{provider} {top}");
    }
}

#[test]
fn scheduling_has_defaults_for_the_command_line_and_for_limits() {
    let top = "scheduling: {jobs: 5, launch: env MARK=flow, limits: {a: 2}}";
    let world = world(top, "output: text, shell: 'echo $MARK'");
    let config = || latest(&world).events("ENGINE_START")[0]["config"].clone();
    let of = |args: &[&str]| run(&world).args(args.iter());
    of(&["--run-id", "one"])
        .exits(0)
        .prints("[\"flow\",\"flow\",\"flow\",\"flow\",\"flow\",\"flow\"]\n");
    assert_eq!(
        (&config()["jobs"], &config()["launch"][1]),
        (&5.into(), &"MARK=flow".into())
    );
    assert_eq!(most_at_once(&latest(&world), "a"), 2);
    let said = ["--run-id", "two", "-j", "3", "--launch", "env MARK=said"];
    of(&said)
        .exits(0)
        .prints("[\"said\",\"said\",\"said\",\"said\",\"said\",\"said\"]\n");
    assert_eq!(
        (&config()["jobs"], &config()["launch"][1]),
        (&3.into(), &"MARK=said".into())
    );
    let dry = of(&["--dry-run"]).exits(0);
    let dry = String::from_utf8(dry.stdout).unwrap();
    assert!(dry.contains("env 'MARK=flow' sh -c"), "{dry}");
}

#[test]
fn a_launch_prefix_may_be_a_program_of_the_flow_and_no_record_says_which() {
    let top = "scheduling: {launch: ['${FLOW_HOME}/bin/remote', x y]}";
    let world = world(top, "output: text, shell: 'echo $REMOTE'");
    world.script(
        "f/bin/remote",
        "#!/bin/sh\nexport REMOTE=\"$1\"\nshift\nexec \"$@\"\n",
    );
    run(&world)
        .args(["--run-id", "r"])
        .exits(0)
        .prints("[\"x y\",\"x y\",\"x y\",\"x y\",\"x y\",\"x y\"]\n");
    // It belongs to the flow: another one is another flow.
    world.script("f/bin/remote", "#!/bin/sh\nexec false\n");
    run(&world)
        .args(["--run-id", "r"])
        .exits(78)
        .says("bin/remote");
}

#[test]
fn no_more_inputs_are_under_way_than_the_queue_has_places() {
    for (top, most) in [("scheduling: {queue: 2}", 2), ("scheduling: {queue: 1}", 1)] {
        let world = world(top, "exec: cat");
        let lines: String = (1..=8).map(|n| format!("{n}\n")).collect();
        world.write("in.jsonl", lines);
        run(&world)
            .args(["--inputs", "in.jsonl", "-j", "12"])
            .exits(0);
        let (mut open, mut seen) = (0_usize, 0);
        for event in latest(&world).journal() {
            let is_root = |event: &Value| {
                event["task_id"]
                    .as_str()
                    .is_some_and(|id| !id.contains('.'))
            };
            match event["type"].as_str() {
                Some("TASK_CREATED") if is_root(&event) => open += 1,
                Some("TASK_END") if is_root(&event) => open -= 1,
                _ => {}
            }
            seen = seen.max(open);
        }
        assert_eq!(seen, most);
    }
}

#[test]
fn scheduler_yaml_is_read_as_scheduling_with_a_deprecation_line() {
    let old = world("", "exec: cat");
    old.write("f/scheduler.yaml", "limits: {a: 1}\njobs: 6\n");
    run(&old)
        .exits(0)
        .says("f/scheduler.yaml:1: deprecated; move its keys below scheduling: in workflow.yaml");
    assert_eq!(most_at_once(&latest(&old), "a"), 1);
    let both = world("scheduling: {limits: {a: 2}, jobs: 6}", "exec: cat");
    both.write("f/scheduler.yaml", "limits: {a: 1}\n");
    run(&both)
        .exits(0)
        .says("f/scheduler.yaml:1: deprecated, and not read: workflow.yaml has scheduling:; remove this file");
    assert_eq!(most_at_once(&latest(&both), "a"), 2);
}

#[test]
fn what_is_wrong_with_limits_is_reported_with_its_place() {
    for (top, message) in [
        (
            "scheduling: {jobs: 0}",
            "workflow.yaml:1: scheduling: jobs: 0 would let nothing run; give 1 or more",
        ),
        (
            "scheduling: {queue: -1}",
            "scheduling: queue: expected a whole number, 0 or more",
        ),
        (
            "scheduling: {launch: ''}",
            "scheduling: launch: has no program",
        ),
        (
            "scheduling: {launch: {a: b}}",
            "scheduling: launch: expected a command, found a mapping",
        ),
        (
            "scheduling: {limits: {a: 0}}",
            "limits: a: 0 would let nothing run",
        ),
        (
            "scheduling: {limits: {aa: 1}}",
            "workflow.yaml:1: scheduling: limits: \"aa\" is neither a node nor a provider",
        ),
        (
            "scheduling: {limits: {q: 1}}",
            "scheduling: limits: \"q\" is a node and a provider; write limit:",
        ),
        (
            "scheduling: [1]",
            "scheduling: expected a mapping, found a list",
        ),
    ] {
        let world = world(top, "exec: cat");
        let file = world
            .read("f/workflow.yaml")
            .replace("id: b,", "id: q,")
            .replace("a, b, m", "a, q, m");
        world.write("f/workflow.yaml", file);
        world.write(
            "f/providers.yaml",
            "providers:\n- {id: q, command: [cat]}\n",
        );
        let errors = errors_of(&world, "f");
        let said = |error: &Value| error["message"].as_str().unwrap().contains(message);
        assert!(errors.iter().any(said), "{message}: {errors:#?}");
        assert_eq!(errors.len(), 1, "{errors:#?}");
    }
    let node = world("", "exec: cat, limit: 0");
    has(
        &errors_of(&node, "f"),
        1,
        "manifest_invalid",
        &["a"],
        "workflow.yaml",
        "node \"a\": limit: 0 would let nothing run",
    );
}
