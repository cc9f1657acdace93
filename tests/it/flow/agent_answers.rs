//! What a flow makes of the answers of its agents, and what they may do to find them.

use crate::flow::agents::{command, said, world};
use crate::harness::*;
use serde_json::json;

#[test]
fn without_a_schema_an_answer_is_json_if_it_can_be_read_and_else_a_string() {
    for (answer, output) in [
        ("{\"n\": 1}", "{\"n\": 1}\n"),
        ("17", "17\n"),
        ("```json\n[1,2]\n```", "[1,2]\n"),
        ("Seventeen.", "\"Seventeen.\"\n"),
        ("{\"n\": 1", "\"{\\\"n\\\": 1\"\n"),
        ("two\nlines", "\"two\\nlines\"\n"),
    ] {
        let world = world("", "path: ../agent");
        world.model_says([text(answer)]);
        command(&world)
            .exits(0)
            .prints(output)
            .does_not_say("sent back");
        assert!(!said(&world, 1).contains("JSON value"));
    }
}

#[test]
fn with_a_schema_an_answer_must_be_json() {
    let world = world(", schema_out: ok", "path: ../agent");
    world.model_says([text("ok"), text("```\n{\"ok\":true}\n```")]);
    let outcome = command(&world).exits(0);
    outcome.prints("{\"ok\":true}\n").says("sent back");
    assert!(said(&world, 1).contains("one JSON value that fits this JSON Schema"));
    assert!(said(&world, 2).contains("with the whole JSON value"));
}

/// The agent decides between the labels `bug`, `7` and a target without a label.
fn deciding(more: &str) -> World {
    let world = world("", "path: ../agent");
    world.write(
        "f/workflow.yaml",
        format!(
            "defaults: {{context: none}}\nnodes:\n- id: s\n- {{id: d, agent_id: ag{more}}}\n- id: fix\n\
             - id: seven\n- id: other\nedges:\n- [s, d]\n- {{from: d, to: fix, label: bug}}\n\
             - {{from: d, to: seven, label: '7'}}\n- [d, other]\n"
        ),
    );
    world
}

#[test]
fn the_agent_of_a_decision_may_answer_with_exactly_a_label() {
    for (answer, output, exit) in [
        ("bug", "\"do it\"\n", "fix"),
        (" bug\n", "\"do it\"\n", "fix"),
        ("\"bug\"", "\"do it\"\n", "fix"),
        ("7", "\"do it\"\n", "seven"),
        ("other", "\"do it\"\n", "other"),
        (
            "{\"selected_edge\":\"bug\"}",
            "{\"selected_edge\":\"bug\"}\n",
            "fix",
        ),
    ] {
        let world = deciding("");
        world.model_says([text(answer)]);
        command(&world).exits(0).prints(output);
        let end = Run {
            dir: world.path("ws/.delta/r"),
        }
        .events("TASK_END");
        assert_eq!(end[0]["exit_node"], exit, "{answer}");
    }
}

#[test]
fn an_answer_that_is_no_label_is_sent_back_and_never_guessed() {
    let world = deciding("");
    world.model_says([text("a bug"), text("It is a bug.")]);
    let outcome = command(&world).json().exits(1).says("sent back");
    assert_eq!(outcome.object()["error"]["code"], "invalid_edge");
}

#[test]
fn a_label_must_fit_the_schema_of_a_decision_too() {
    let world = deciding(", schema_out: ok");
    world.model_says([text("bug"), text("bug")]);
    let outcome = command(&world).json().exits(1);
    assert_eq!(outcome.object()["error"]["code"], "schema_out");
}

#[test]
fn an_agent_may_ask_a_person_only_if_the_flow_says_so() {
    let offered = |agent: &str| {
        let world = world("", agent);
        world.model_says([text("1")]);
        command(&world).exits(0);
        said(&world, 1).contains("\"ask_human\"")
    };
    assert!(offered("path: ../agent, ask_human: true"));
    assert!(!offered("path: ../agent, ask_human: false"));
    let made = |asks: &str| {
        let world = world("", &format!("llm: acme/m, prompt: Be brief.{asks}"));
        let url = world.server.url();
        world.write(
            "f/providers.yaml",
            format!("providers:\n- {{id: acme, base_url: {url}}}\n"),
        );
        world.model_says([text("1")]);
        command(&world).exits(0);
        said(&world, 1).contains("\"ask_human\"")
    };
    assert!(made(", ask_human: true"));
    assert!(!made(""));
    // It has not been offered the tool: a call of it is one of an unknown tool, and asks nobody.
    let world = world("", "path: ../agent, ask_human: false");
    let question = call("q", "ask_human", &json!({"prompt": "Which one?"}));
    world.model_says([question, text("1")]);
    command(&world).exits(0).prints("1\n");
}

#[test]
fn a_program_that_is_an_agent_cannot_be_allowed_to_ask() {
    let world = world("", "command: [cat], ask_human: true");
    let errors = errors_of(&world, "f");
    let message = "agent \"ag\": ask_human: is for a run of delta, and command: is a program";
    has(
        &errors,
        1,
        "manifest_invalid",
        &["ag"],
        "agents.yaml",
        message,
    );
}

/// What goes on from the decision, and what the node's output is in the journal.
#[track_caller]
fn goes_on(world: &World, output: &str, printed: &str) {
    command(world).exits(0).prints(printed);
    let dir = world.path("ws/.delta/r");
    let ends = Run { dir }.events("NODE_END");
    let end = ends.iter().find(|it| it["node_id"] == "d").unwrap();
    assert_eq!(end["output"].to_string(), output);
    // The same from the journal alone.
    command(world).exits(0).prints(printed);
}

#[test]
fn a_bare_label_of_an_agent_keeps_the_payload_and_payload_says_otherwise() {
    for (more, answer, output, printed) in [
        ("", "bug", "\"bug\"", "\"do it\"\n"),
        (", payload: keep", "bug", "\"bug\"", "\"do it\"\n"),
        (", payload: output", "bug", "\"bug\"", "\"bug\"\n"),
        (
            "",
            "{\"selected_edge\":\"bug\"}",
            "{\"selected_edge\":\"bug\"}",
            "{\"selected_edge\":\"bug\"}\n",
        ),
        (
            ", payload: keep",
            "{\"selected_edge\":\"bug\"}",
            "{\"selected_edge\":\"bug\"}",
            "\"do it\"\n",
        ),
        (", schema_out: word", "\"bug\"", "\"bug\"", "\"bug\"\n"),
    ] {
        let world = deciding(more);
        world.write("f/schemas/word.json", "{\"type\": \"string\"}");
        world.model_says([text(answer)]);
        goes_on(&world, output, printed);
    }
}

#[test]
fn a_command_that_decides_gives_its_output_on_unless_the_payload_is_kept() {
    for (more, printed) in [
        ("", "\"bug\"\n"),
        (", payload: output", "\"bug\"\n"),
        (", payload: keep", "\"do it\"\n"),
    ] {
        let world = deciding("");
        let workflow = world.read("f/workflow.yaml");
        let command = format!("command: [echo, '\"bug\"']{more}}}");
        world.write(
            "f/workflow.yaml",
            workflow.replace("agent_id: ag}", &command),
        );
        goes_on(&world, "\"bug\"", printed);
    }
}
