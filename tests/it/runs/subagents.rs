//! `delta run` as a tool of `delta run`.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Three agents, `agent`, `agent2` and `agent3`: each calls the next in a directory of its own,
/// the last does the work. The server tells them apart by their prompts.
pub fn family(options: &str) -> World {
    let program = env!("CARGO_BIN_EXE_delta");
    let world = World::new();
    for (own, next, name) in [
        ("one", "agent2", "agent"),
        ("two", "agent3", "agent2"),
        ("three", "", "agent3"),
    ] {
        let url = world.server.url();
        let tool = if next.is_empty() {
            "- {name: work, shell: 'echo worked >> \"$HOME/log\"; env > \"$HOME/env\"'}".to_owned()
        } else {
            format!(
                "- {{name: delegate, command: ['{program}', run, -q, -a, '${{AGENT_HOME}}/../{next}', \
                 -w, child, -m], parameters: [{{name: task}}]{options}}}"
            )
        };
        let agent =
            format!("name: {own}\nllm: {{model: scripted, base_url: '{url}'}}\ntools:\n  {tool}\n");
        world.write(&format!("{name}/agent.yaml"), agent);
        let context = world.read("agent/context.yaml");
        world.write(&format!("{name}/context.yaml"), context);
        world.write(&format!("{name}/system_prompt.md"), format!("I am {own}."));
    }
    world
}

pub fn depth(request: &Received) -> usize {
    let system = request.messages()[0]["content"].to_string();
    ["I am one.", "I am two.", "I am three."]
        .iter()
        .position(|who| system.contains(who))
        .expect("a prompt")
        + 1
}

pub fn said(request: &Received) -> Vec<Value> {
    request
        .messages()
        .into_iter()
        .filter(|m| m["role"] == "assistant")
        .collect()
}

/// Delegates down to the third, which works once; every result is handed up.
pub fn model(request: &Received) -> Reply {
    let depth = depth(request);
    if said(request).is_empty() {
        let (tool, arguments) = if depth == 3 {
            ("work", json!({}))
        } else {
            ("delegate", json!({"task": "Do it"}))
        };
        call("call_1", tool, &arguments)
    } else {
        text(&format!("done by {depth}"))
    }
}

pub fn run_at(world: &World, workspace: &str) -> Run {
    Run::latest(&world.path(workspace))
}

#[test]
fn results_are_handed_up_and_parents_are_recorded() {
    let world = family("");
    world.server.answers(model);
    world.run("go").exits(0).prints("done by 1\n");
    assert_eq!(world.lines("log"), ["worked"]);
    let one = run_at(&world, "ws");
    let two = run_at(&world, "ws/child");
    let three = run_at(&world, "ws/child/child");
    assert_eq!(
        one.result(1)["observation_content"]
            .as_str()
            .unwrap()
            .trim_end(),
        "done by 2"
    );
    assert_eq!(one.metadata()["parent_run_id"], Value::Null);
    assert_eq!(two.metadata()["parent_run_id"], one.id());
    assert_eq!(three.metadata()["parent_run_id"], two.id());
    let env = world.read("env");
    assert!(env.lines().any(|line| line == "DELTA_DEPTH=3"), "{env}");
}

#[test]
fn a_key_goes_to_a_sub_agent_only_if_the_tool_says_so() {
    let world = family("");
    world.server.answers(model);
    world.run("go").env("DELTA_API_KEY", "sk-1").exits(0);
    for request in world.server.requests() {
        let expected = (depth(&request) == 1).then_some("Bearer sk-1");
        assert_eq!(request.header("authorization"), expected);
    }

    let world = family(", pass_api_key: true");
    world.server.answers(model);
    world.run("go").env("DELTA_API_KEY", "sk-1").exits(0);
    assert!(
        world
            .server
            .requests()
            .iter()
            .all(|r| r.header("authorization") == Some("Bearer sk-1"))
    );
    assert!(
        !world.read("env").contains("sk-1"),
        "the last tool is no sub-agent"
    );
}

/// The third agent's first answer does not come.
fn held_at_the_bottom() -> (World, Running) {
    let world = family("");
    world.server.answers(|request| {
        if depth(request) == 3 {
            model(request).held()
        } else {
            model(request)
        }
    });
    let delta = world.run("go").spawn();
    world.server.wait_for(3);
    (world, delta)
}

#[test]
fn when_the_parent_is_killed_its_descendants_end_and_all_resume() {
    let (world, delta) = held_at_the_bottom();
    delta.kill();
    eventually("the whole family has ended", || {
        world.processes().is_empty()
    });
    let (two, three) = (run_at(&world, "ws/child"), run_at(&world, "ws/child/child"));
    assert_eq!(two.ending().0, "INTERRUPTED");
    assert_eq!(three.ending().0, "INTERRUPTED");

    // What was interrupted is asked for again, in the same words.
    world.server.answers(|request| {
        let calls = said(request);
        let last = request.messages().pop().unwrap();
        let again = depth(request) < 3
            && calls.len() == 1
            && !last["content"].to_string().contains("done by");
        if again {
            call("call_2", "delegate", &json!({"task": "Do it"}))
        } else {
            model(request)
        }
    });
    world.run("go").exits(0).prints("done by 1\n");
    assert_eq!(world.lines("log"), ["worked"]);
    for (workspace, run) in [("ws/child", &two), ("ws/child/child", &three)] {
        assert_eq!(&run_at(&world, workspace), run, "the same run went on");
        assert_eq!(run.events("ENGINE_START").len(), 2);
        assert_eq!(run.ending().0, "COMPLETED");
    }
}

#[test]
fn an_interrupt_ends_the_whole_family() {
    let (world, delta) = held_at_the_bottom();
    delta.signal(Signal::INT);
    delta.wait().exits(130);
    eventually("the whole family has ended", || {
        world.processes().is_empty()
    });
    assert_eq!(run_at(&world, "ws").ending().0, "INTERRUPTED");
    assert_eq!(run_at(&world, "ws/child/child").ending().0, "INTERRUPTED");
}

#[test]
fn beyond_the_depth_allowed_no_run_starts() {
    let starts = |depth: &str, limit: Option<&str>| {
        let world = World::new();
        world.model_says([text("done")]).may_stay_unasked();
        let mut delta = world.run("go").env("DELTA_DEPTH", depth);
        if let Some(limit) = limit {
            delta = delta.env("DELTA_MAX_DEPTH", limit);
        }
        let outcome = delta.end();
        if outcome.code() == Some(0) {
            return true;
        }
        outcome.refuses(1, "DELTA_MAX_DEPTH");
        assert!(!world.exists("ws"));
        false
    };
    assert!(starts("8", None));
    assert!(!starts("9", None));
    assert!(starts("2", Some("2")));
    assert!(!starts("3", Some("2")));
}

#[test]
fn a_family_without_end_ends_at_the_depth_allowed() {
    let world = World::with_tools(&format!(
        "- {{name: delegate, command: ['{}', run, -q, -a, '${{AGENT_HOME}}', -w, child, -m], parameters: [{{name: task}}]}}",
        env!("CARGO_BIN_EXE_delta")
    ));
    world.server.answers(|request| {
        let messages = request.messages();
        match messages.last() {
            Some(last) if last["role"] == "tool" => text(last["content"].as_str().unwrap()),
            _ => call("call_1", "delegate", &json!({"task": "Deeper"})),
        }
    });
    let outcome = world.run("go").env("DELTA_MAX_DEPTH", "3").exits(0);
    let result = String::from_utf8(outcome.stdout).unwrap();
    assert!(result.contains("DELTA_MAX_DEPTH"), "{result}");
    assert_eq!(
        world.server.requests().len(),
        8,
        "four runs of two requests"
    );
}

#[test]
fn the_greatest_depth_there_is_is_refused_and_may_be_allowed() {
    let depth = "4294967295";
    let world = World::with_tools("- {name: depth, shell: 'echo $DELTA_DEPTH'}");
    let outcome = world.run("go").env("DELTA_DEPTH", depth).end();
    outcome.refuses(1, "DELTA_MAX_DEPTH");
    assert!(!world.exists("ws"));

    world.model_says([call("a", "depth", &json!({})), text("done")]);
    let delta = world.run("go").env("DELTA_DEPTH", depth);
    delta.env("DELTA_MAX_DEPTH", depth).exits(0);
    assert_eq!(world.server.last().observation("a").trim_end(), depth);
}

#[test]
fn a_sub_agent_whose_parent_has_died_before_it_starts_does_not_begin() {
    let world = family("");
    let script = format!(
        "echo up > \"$HOME/ready\"\nread go < \"$HOME/go\"\n\
         {} run -a \"$HOME/agent2\" -w child -m x\necho $? > \"$HOME/code\"\n",
        env!("CARGO_BIN_EXE_delta")
    );
    world.write("agent/late.sh", script);
    let url = world.server.url();
    let agent = format!(
        "name: one\nllm: {{model: scripted, base_url: '{url}'}}\n\
         tools:\n  - {{name: late, exec: 'sh ${{AGENT_HOME}}/late.sh'}}\n"
    );
    world.write("agent/agent.yaml", agent);
    let (mut ready, mut go, mut code) = (world.fifo("ready"), world.fifo("go"), world.fifo("code"));
    world.model_says([call("a", "late", &json!({}))]);
    let delta = world.run("go").spawn();
    ready.line();
    delta.kill();
    go.tell("on");
    assert_eq!(code.line(), "143");
    assert!(!world.exists("ws/child"));
    assert_eq!(world.server.requests().len(), 1);
}

#[test]
fn an_endpoint_from_the_workspace_gets_no_key_through_a_sub_agent() {
    let world = family(", pass_api_key: true");
    let stranger = World::new();
    stranger.server.answers(|_| text("give me the key"));
    let agent = world.read("agent2/agent.yaml");
    let line = format!(", base_url: '{}'", world.server.url());
    assert!(agent.contains(&line));
    world.write("agent2/agent.yaml", agent.replace(&line, ""));
    let url = stranger.server.url();
    world.write(
        "ws/.env",
        format!("DELTA_BASE_URL={url}\nOPENAI_BASE_URL={url}\n"),
    );
    world.server.answers(model);
    let delta = world.run("go").env("DELTA_API_KEY", "sk-12345678");
    let delta = delta.env("OPENAI_API_URL", world.server.url());
    delta.exits(0).prints("done by 1\n");
    assert!(stranger.server.requests().is_empty());
    let requests = world.server.requests();
    let second = requests.iter().find(|request| depth(request) == 2).unwrap();
    assert_eq!(second.header("authorization"), Some("Bearer sk-12345678"));
}
