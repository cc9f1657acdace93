//! Calls of MCP tools that become tasks.

use crate::engine::later::let_time_pass;
use crate::harness::*;
use crate::mcp::servers::{error_for, methods_of, result_for};
use serde_json::{Value, json};
use std::fs;

/// A server whose calls become tasks, and answer `tasks/get` with what is in the file `state` of its world.
fn serve_tasks(world: &World) {
    let state = world.path("state");
    world.server.accepts_anything().answers(move |received| {
        let request = received.json();
        let result = match request["method"].as_str().unwrap() {
            "server/discover" => json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
            }),
            "tools/list" => json!({"tools": [{"name": "build", "inputSchema": {"type": "object"}}]}),
            "tools/call" => json!({"resultType": "task", "taskId": "t 1", "status": "working",
                "createdAt": "x", "lastUpdatedAt": "x", "ttlMs": 7_200_000, "pollIntervalMs": 1_800_500}),
            "tasks/cancel" => json!({}),
            _ => match serde_json::from_str::<Value>(&fs::read_to_string(&state).unwrap()).unwrap() {
                Value::Number(code) => return error_for(&request, code.as_i64().unwrap()),
                Value::String(_) => return Reply::error(503, "busy"),
                state => state,
            },
        };
        result_for(&request, &result)
    });
}

/// A world whose agent has the tools of such a server, and that server's.
fn worlds() -> (World, World) {
    let (world, other) = (World::new(), World::new());
    serve_tasks(&other);
    let url = other.server.url();
    let import = ["mcp", "import", "-a", "agent", "h", "--url", &url];
    world.delta(import).exits(0);
    let world = world.top("imports: [./tools/mcp-h.yaml]");
    (world, other)
}

#[test]
fn a_call_that_becomes_a_task_ends_with_it() {
    for (state, status, observation) in [
        (
            json!({"status": "completed", "result": {"content": [{"type": "text", "text": "built"}]}}),
            "SUCCESS",
            "built\n",
        ),
        (
            json!({"status": "completed", "result": {"isError": true, "content": [{"type": "text", "text": "no"}]}}),
            "FAILED",
            "no\n",
        ),
        (
            json!({"status": "failed", "error": {"code": 1, "message": "no room"}}),
            "FAILED",
            "[stderr]\ndelta: no room\n",
        ),
        (
            json!({"status": "cancelled"}),
            "FAILED",
            "[stderr]\ndelta: the task was cancelled\n",
        ),
        (
            json!(-32602),
            "FAILED",
            "[stderr]\ndelta: tasks/get: no (code -32602)\n",
        ),
    ] {
        let (world, other) = worlds();
        world.model_says([call("call_1", "h_build", &json!({})), text("done")]);
        world.run("go").exits(75).says("waits for h_build (t 1)");
        let called = other.server.last();
        let meta = &called.json()["params"]["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/clientCapabilities"],
            json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
        );
        let run = world.latest();
        let event = run.events("ACTION_DEFERRED").remove(0);
        assert_eq!(event["handle"], "t 1");
        let hour = |name: &str| {
            event[name].as_str().unwrap()[11..13]
                .parse::<u32>()
                .unwrap()
        };
        assert_eq!((hour("timestamp") + 2) % 24, hour("expires_at"));
        let_time_pass(&run, &["due_at"]);
        other.write(
            "state",
            json!({"status": "working", "ttlMs": null}).to_string(),
        );
        world.run("go").exits(75);
        let asked = other.server.last();
        for (name, value) in [("mcp-method", "tasks/get"), ("mcp-name", "t 1")] {
            assert_eq!(asked.header(name), Some(value));
        }
        // The server cannot answer for now: nothing is known.
        let_time_pass(&run, &["due_at"]);
        other.write("state", "\"busy\"");
        world.run("go").exits(75);
        assert_eq!(run.events("DEFERRED_LOOK").len(), 2);
        let_time_pass(&run, &["due_at"]);
        other.write("state", state.to_string());
        world.run("go").exits(0).prints("done\n");
        assert_eq!(run.result(1)["status"], status, "{state}");
        assert_eq!(world.server.last().observation("call_1"), observation);
        let calls = methods_of(&other);
        assert_eq!(calls.iter().filter(|it| *it == "tools/call").count(), 1);
    }
}

#[test]
fn a_task_that_asks_or_still_works_at_the_last_look_is_cancelled() {
    let asks = json!({"status": "input_required",
        "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "Name?"}}}});
    for (state, members, told) in [
        (asks, &["due_at"][..], "who: Name?"),
        (
            json!({"status": "working"}),
            &["due_at", "expires_at"],
            "[nothing known after ",
        ),
    ] {
        let (world, other) = worlds();
        world.model_says([call("call_1", "h_build", &json!({})), text("done")]);
        world.run("go").exits(75);
        let_time_pass(&world.latest(), members);
        other.write("state", state.to_string());
        world.run("go").exits(0);
        let observation = world.server.last().observation("call_1");
        assert!(observation.contains(told), "{observation}");
        assert_eq!(methods_of(&other).pop().unwrap(), "tasks/cancel");
    }
}

#[test]
fn tasks_are_declared_only_to_servers_that_offer_and_keep_them() {
    let (world, other) = (World::unasked(), World::new());
    serve_tasks(&other);
    let url = other.server.url();
    world
        .delta(["mcp", "import", "-a", "agent", "h", "--url", &url])
        .exits(0);
    let module = world.read("agent/tools/mcp-h.yaml");
    assert!(
        module.contains("tasks: true") && module.contains("later:"),
        "{module}"
    );
    world.delta(["mcp", "check", "-a", "agent", "h"]).exits(0);
    // Imported before the server offered them: an answer of this kind is an error.
    let without = module.replace("tasks: true", "tasks: false");
    world.write("agent/tools/mcp-h.yaml", without);
    let call = world.delta(["mcp", "call", "-a", "agent", "h", "build"]);
    call.stdin("{}").refuses(1, "result of type \"task\"");
    let called = other.server.last();
    let meta = &called.json()["params"]["_meta"];
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({})
    );
}
