//! What a workflow need not say is derived, and printed by `delta-flow check -v`.

use crate::harness::*;
use serde_json::json;

/// The shortest flow: a chain of three.
const SHORTEST: &str = "\
defaults: {context: none}
nodes:
- id: begin
- {id: up, input: text, output: text, exec: tr a-z A-Z}
- id: done
edges: [[begin, up, done]]
";

#[test]
fn the_shortest_flow_runs() {
    let world = World::new();
    world.write("f/workflow.yaml", SHORTEST);
    let run = Delta::flow(world.home()).args(["run", "f", "-w", "ws", "-m", "in"]);
    run.exits(0).prints("\"IN\"\n");
}

/// Each role and the kind of an agent, from edges and labels alone.
const ALL: &str = "\
defaults: {context: none, timeout_ms: 5000}
nodes:
- id: s
- {id: fan, role: branch, exec: cat}
- {id: left, exec: cat}
- {id: right, exec: cat, timeout_ms: 0}
- id: join
- {id: ask, agent_id: clerk}
- {id: no, always_fail: true}
- {id: yes, context: global}
edges:
- [s, fan, left, join, ask]
- [fan, right, join]
- {from: ask, to: yes, label: good}
- {from: ask, to: no, label: bad}
";

#[test]
fn check_prints_what_was_derived_a_line_for_each_node() {
    let world = World::new();
    world.write("f/workflow.yaml", ALL);
    world.write(
        "f/agents.yaml",
        "agents:\n- {id: clerk, exec: cat, context: recent}\n",
    );
    world.write(
        "f/memory.yaml",
        "context_profiles:\n- {id: recent, max_tokens: 10, retrieval_policy: recency, sources: [{store: task}]}\n",
    );
    let check = |args: &[&str]| {
        Delta::flow(world.home())
            .args(["check", "f"])
            .args(args.iter())
    };
    let plain = "f: ok, 8 nodes, 8 edges, 1 agent, 0 tools, 0 schemas\n";
    check(&[]).exits(0).prints(plain);
    check(&["-v"]).exits(0).prints(&format!(
        "{plain}  \
           s      kind: deterministic, role: start, default_start: true, context: none\n  \
           fan    kind: deterministic, timeout_ms: 5000, context: none\n  \
           left   kind: deterministic, timeout_ms: 5000, role: linear, context: none\n  \
           right  kind: deterministic, role: linear, context: none\n  \
           join   kind: deterministic, role: merge, context: none\n  \
           ask    kind: agent, timeout_ms: 5000, role: decision, context: recent\n  \
           no     kind: deterministic, role: exit, context: none\n  \
           yes    kind: deterministic, role: exit\n"
    ));
    let object = check(&["-v", "--format", "json"]).end().object();
    assert_eq!(
        object["derived"]["left"],
        json!({"kind": "deterministic", "timeout_ms": 5000, "role": "linear", "context": "none"})
    );
    assert_eq!(object["derived"]["s"]["default_start"], true);
    let object = check(&["--format", "json"]).end().object();
    assert_eq!(object.get("derived"), None);
}

#[test]
fn what_is_written_is_not_printed_as_derived() {
    let world = World::new();
    let all = around(&node("a", "linear", ", command: [cat]"));
    assert!(all.contains("default_start: true"));
    world.write("f/workflow.yaml", all);
    let check = Delta::flow(world.home()).args(["check", "f", "-v"]);
    let plain = "f: ok, 3 nodes, 2 edges, 0 agents, 0 tools, 0 schemas\n";
    check.exits(0).prints(plain);
}

#[test]
fn a_default_time_limit_counts_for_nodes_that_say_none() {
    let world = World::new();
    let of = |own: &str| {
        format!(
            "defaults: {{context: none, timeout_ms: 200}}\nnodes:\n- id: s\n\
             - {{id: a, shell: 'sleep 1; cat'{own}}}\n- id: x\nedges: [[s, a, x]]\n"
        )
    };
    world.write("f/workflow.yaml", of(""));
    let run = |id: &str| {
        let delta = Delta::flow(world.home());
        delta.args(["run", "f", "-w", "ws", "-m", "in", "--run-id", id])
    };
    run("short").exits(1).says("it took longer than 200 ms");
    world.write("f/workflow.yaml", of(", timeout_ms: 0"));
    run("long").exits(0).prints("\"in\"\n");
}

#[test]
fn a_chain_is_the_edges_that_it_abbreviates() {
    let world = World::new();
    let nodes = "nodes:\n- id: s\n- {id: b, role: branch}\n- {id: one, exec: cat}\n- {id: two, exec: cat}\n- id: m\n- id: x\n";
    let short = "edges: [[s, b, one, m, x], [b, two, m]]\n";
    let long = "edges: [{from: s, to: b}, {from: b, to: one}, {from: one, to: m}, {from: m, to: x}, \
                {from: b, to: two}, {from: two, to: m}]\n";
    let drawn = [("short", short), ("long", long)].map(|(dir, edges)| {
        let file = format!("defaults: {{context: none}}\n{nodes}{edges}");
        world.write(&format!("{dir}/workflow.yaml"), file);
        let graph = Delta::flow(world.home()).args(["graph", dir]).end();
        String::from_utf8(graph.exits(0).stdout).unwrap()
    });
    assert!(drawn[0].contains("two"), "{}", drawn[0]);
    assert_eq!(drawn[0], drawn[1]);
}

#[test]
fn what_cannot_be_derived_is_an_error_with_its_place() {
    let of = |nodes: &str, edges: &str| {
        format!(
            "defaults: {{context: none}}\nnodes:\n- id: s\n{nodes}- id: x\n- id: y\nedges: {edges}\n"
        )
    };
    for (nodes, edges, count, code, ids, message) in [
        (
            "- id: a\n",
            "[[s, a, x], [a, y]]",
            1,
            "bad_role",
            "a",
            "workflow.yaml:4: node \"a\": has no role, and 1 edge in and 2 out can be a branch, a split or a \
             decision; write role:",
        ),
        (
            "- id: a\n",
            "[[s, x], [s, y]]",
            3,
            "bad_role",
            "a",
            "workflow.yaml:4: node \"a\": has no role, and no edge to derive it from",
        ),
        (
            "- {id: a, role: [x]}\n",
            "[[s, a, x], [a, y]]",
            1,
            "bad_role",
            "a",
            "workflow.yaml:4: node \"a\": role cannot be a list",
        ),
        (
            "- {id: a, kind: robot}\n",
            "[[s, a, x], {from: a, to: y, label: q}]",
            1,
            "bad_kind",
            "a",
            "node \"a\": kind cannot be the string \"robot\"",
        ),
        (
            "- {id: a, exec: cat}\n",
            "\n- [s, a, x]\n- - x\n  - zz\n  - y",
            3,
            "unknown_node",
            "zz",
            "workflow.yaml:10: edge: there is no node \"zz\"",
        ),
    ] {
        let errors = errors_in(&of(nodes, edges));
        has(&errors, count, code, &[ids], "workflow.yaml", message);
    }
    for (edges, message) in [
        (
            "[[s, x], [y]]",
            "workflow.yaml:6: edge: a chain of 1 node leads nowhere; it needs two or more",
        ),
        (
            "[[s, x], [s, 3, y]]",
            "edge: a chain is made of ids of nodes, not of the number 3",
        ),
        (
            "[[s, x], yes]",
            "edges: expected a mapping or a chain of nodes, found the string \"yes\"",
        ),
    ] {
        let errors = errors_in(&of("", edges));
        let said = |error: &serde_json::Value| error["message"].as_str().unwrap().contains(message);
        assert!(errors.iter().any(said), "{message}: {errors:#?}");
    }
}

#[test]
fn an_unknown_default_context_is_reported_once() {
    let nodes = "defaults: {context: recnt}\nnodes:\n- id: s\n- {id: a, exec: cat}\n- id: x\nedges: [[s, a, x]]\n";
    let message = "workflow.yaml:1: defaults: there is no context profile \"recnt\"; define it in memory.yaml";
    has_only(nodes, "unknown_context", &[], message);
}

#[test]
fn many_linear_nodes_that_do_nothing_cause_one_warning() {
    let world = World::new();
    let file = "defaults: {context: none}\nnodes: [{id: s}, {id: a}, {id: b}, {id: c}, {id: x}]\nedges: [[s, a, b, c, x]]\n";
    world.write("f/workflow.yaml", file);
    let check = Delta::flow(world.home()).args(["check", "f"]).end();
    assert_eq!(check.stderr.lines().count(), 1, "{}", check.stderr);
    check.exits(0).says("node \"a\" and 2 more: linear");
}

#[test]
fn a_linear_node_that_does_nothing_causes_a_warning() {
    let world = World::new();
    let of = |node: &str| {
        format!(
            "defaults: {{context: none}}\nnodes:\n- id: s\n- {node}\n- id: x\nedges: [[s, a, x]]\n"
        )
    };
    let check = || Delta::flow(world.home()).args(["check", "f"]).end();
    world.write("f/workflow.yaml", of("id: a"));
    check()
        .exits(0)
        .says("f/workflow.yaml:4: node \"a\": linear, without a command or an agent: the payload passes unchanged");
    for good in ["{id: a, exec: cat}", "{id: a, schema_in: any}"] {
        world.write("f/workflow.yaml", of(good));
        world.write("f/schemas/any.json", "true");
        check().exits(0).does_not_say("warning");
    }
}
