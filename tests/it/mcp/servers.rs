//! `delta mcp`: servers of the Model Context Protocol, whose tools become commands.

use crate::harness::*;
use rustix::process::Signal;
use serde_json::{Value, json};

/// A server in a shell: `ANSWER`s by method, each with the id of its request.
const SERVER: &str = r#"#!/bin/sh
# $1: a revision. $2: the description of its tool.
answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
while read -r line; do
    id=${line#*'"id":'} id=${id%%[,\}]*}
    printf '%s\n' "$line" >>"$HOME/received"
    case $line in
    *'"server/discover"'*)
        if [ "$1" = 2026-07-28 ]; then
            answer '"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}'
        else
            answer '"error":{"code":-32601,"message":"unknown"}'
        fi ;;
    *'"initialize"'*) answer '"result":{"protocolVersion":"'"$1"'","capabilities":{"tools":{},"resources":{}}}' ;;
    *'"tools/list"'*)
        printf '{"jsonrpc":"2.0","id":"x","method":"roots/list"}\n'
        answer '"result":{"tools":[{"name":"get.time","description":"'"$2"'","inputSchema":{"type":"object","properties":{"zones":{"type":"array"}}},"annotations":{"readOnlyHint":true}}]}' ;;
    *'"tools/call"'*)
        case $line in
        *hang*) exec sleep 1000 ;;
        *end*) echo 'out of order' >&2; exit 3 ;;
        *fail*) answer '"result":{"content":[{"type":"text","text":"no such zone"}],"isError":true}' ;;
        *ask*) answer '"result":{"resultType":"input_required","inputRequests":{"q":{"params":{"message":"Which?"}}}}' ;;
        *image*) answer '"result":{"content":[{"type":"image","mimeType":"image/png","data":"Zm9v"}]}' ;;
        *) answer '"result":{"content":[{"type":"text","text":"noon '"$TOKEN"'"}],"structuredContent":{"t":12}}' ;;
        esac ;;
    esac
done
"#;

fn world_with_server(revision: &str) -> World {
    let world = World::new();
    world.script("server.sh", SERVER);
    let path = world.path("server.sh");
    let path = path.to_str().unwrap();
    let import = [
        "mcp",
        "import",
        "-a",
        "agent",
        "s",
        "--env",
        "TOKEN",
        "--",
        path,
        revision,
        "Tells the time",
    ];
    let outcome = world.delta(import).exits(0);
    outcome.prints(
        "s_get_time  Tells the time\n    parameters: zones\n    claimed by the server: readOnlyHint: true\n",
    );
    world.top("imports: [./tools/mcp-s.yaml]")
}

#[test]
fn an_imported_tool_is_an_ordinary_command_of_either_era() {
    for (revision, offers) in [
        ("2026-07-28", false),
        ("2025-06-18", true),
        ("2024-11-05", true),
    ] {
        let world = world_with_server(revision);
        let module = world.read("agent/tools/mcp-s.yaml");
        assert!(module.contains(&format!("version: {revision}")), "{module}");
        std::fs::remove_file(world.path("received")).unwrap();
        let observation = world.observe("s_get_time", &json!({"zones": ["a", {"b": 1}]}));
        assert!(observation.starts_with("noon"), "{observation}");
        let received: Vec<Value> = world
            .lines("received")
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let call = received.last().unwrap();
        assert_eq!(
            call["params"]["arguments"],
            json!({"zones": ["a", {"b": 1}]})
        );
        assert_eq!(call["params"]["name"], "get.time");
        // A call asks for nothing that is pinned.
        let methods: Vec<&str> = received
            .iter()
            .filter_map(|m| m["method"].as_str())
            .collect();
        let expected: &[&str] = match offers {
            false => &["tools/call"],
            true => &["initialize", "notifications/initialized", "tools/call"],
        };
        assert_eq!(methods, expected);
        world.server.may_stay_unasked();
    }
}

#[test]
fn what_a_server_changes_is_reported_and_an_import_pins_it() {
    let world = world_with_server("2026-07-28");
    world
        .delta(["mcp", "check", "-a", "agent"])
        .exits(0)
        .prints("");
    let servers = world
        .read("agent/mcp.yaml")
        .replace("Tells the time", "Sends your files");
    world.write("agent/mcp.yaml", servers);
    let check = || world.delta(["mcp", "check", "-a", "agent", "s"]).end();
    check()
        .exits(1)
        .prints("changed: s_get_time (description)\n");
    world.delta(["mcp", "import", "-a", "agent", "s"]).exits(0);
    check().exits(0).prints("");
    // Nothing was compared.
    world
        .delta(["mcp", "check"])
        .exits(78)
        .says("no agent.yaml");
    std::fs::remove_file(world.path("agent/mcp.yaml")).unwrap();
    world
        .delta(["mcp", "check", "-a", "agent"])
        .exits(0)
        .says("the agent has no servers");
    world.server.may_stay_unasked();
}

#[test]
fn the_ways_in_which_a_call_can_fail_are_told_apart() {
    let world = world_with_server("2026-07-28");
    let call = |arguments: &str| {
        let words = ["mcp", "call", "-a", "agent", "s", "get.time"];
        world
            .delta(words)
            .stdin(arguments)
            .env("TMPDIR", world.home())
            .end()
    };
    call("{}").exits(0).prints("noon \n");
    call(r#"{"z":"fail"}"#).exits(1).prints("no such zone\n");
    call(r#"{"z":"ask"}"#).refuses(1, "q: Which?");
    call(r#"{"z":"end"}"#)
        .refuses(1, "ended with exit code 3")
        .says("out of order");
    call("[1]").exits(2).says("not a JSON object");
    call("{").exits(2).says("not JSON");
    let shown = call(r#"{"z":"image"}"#).exits(0).stdout;
    let shown = String::from_utf8(shown).unwrap();
    let file = shown
        .strip_prefix("[image/png, 3 bytes: ")
        .and_then(|rest| rest.strip_suffix("]\n"));
    assert_eq!(std::fs::read(file.unwrap()).unwrap(), b"foo");
    let json = world
        .delta(["mcp", "call", "-a", "agent", "s", "get.time", "--json"])
        .stdin("{}");
    json.exits(0).prints("{\"t\":12}\n");
    world
        .delta(["mcp", "call", "-a", "agent", "t", "x"])
        .stdin("{}")
        .exits(78)
        .says("no server \"t\"");
    world
        .delta(["mcp", "call", "-a", "agent", "s", "x"])
        .stdin("{}")
        .exits(78)
        .says("no tool \"x\"");
    world.server.may_stay_unasked();
}

#[test]
fn nothing_is_left_of_a_server_that_hangs_whatever_is_killed() {
    let world = world_with_server("2026-07-28");
    for signal in [Signal::TERM, Signal::KILL] {
        let call = world
            .delta(["mcp", "call", "-a", "agent", "s", "get.time"])
            .stdin(r#"{"z":"hang"}"#);
        std::fs::remove_file(world.path("received")).unwrap();
        let call = call.spawn();
        eventually("the call arrives", || {
            world.exists("received") && world.read("received").contains("hang")
        });
        call.signal(signal);
        let outcome = call.wait();
        if signal == Signal::TERM {
            outcome.exits(143);
        }
        eventually("no process is left", || world.processes().is_empty());
    }
    world.server.may_stay_unasked();
}

#[test]
fn a_server_that_never_ends_is_ended_when_it_has_answered() {
    let world = world_with_server("2026-07-28");
    let script = world.read("server.sh");
    // Deaf to the end of its input and to SIGTERM, and so is a process that has left its group.
    let deaf = script.replacen("answer()", "trap '' TERM\nanswer()", 1);
    let deaf = deaf + "setsid sleep 1000 &\nwhile :; do sleep 1000; done\n";
    world.script("server.sh", &deaf);
    let call = world
        .delta(["mcp", "call", "-a", "agent", "s", "get.time"])
        .stdin("{}");
    call.exits(0).prints("noon \n");
    eventually("no process is left", || world.processes().is_empty());
    world.server.may_stay_unasked();
}

#[test]
fn noise_on_the_streams_is_no_message() {
    let world = World::new();
    world.script("server.sh", SERVER);
    world.script(
        "noisy.sh",
        "#!/bin/sh\necho 'Server ready.'\nyes noise | head -c 3000000 >&2\nexec \"$HOME/server.sh\" \"$@\"\n",
    );
    let path = world.path("noisy.sh");
    let words = [
        "mcp",
        "list",
        "--",
        path.to_str().unwrap(),
        "2026-07-28",
        "Tells the time",
    ];
    let outcome = world
        .delta(words)
        .exits(0)
        .prints("get.time  Tells the time\n");
    outcome
        .says("printed something other than a message on stdout: Server ready.")
        .does_not_say("noise");
    world.server.may_stay_unasked();
}

#[test]
fn a_servers_variables_reach_its_own_tools_only() {
    let world =
        world_with_server("2026-07-28").tools("- {name: other, shell: 'echo \"[$TOKEN]\"'}");
    world.model_says([
        calls(&[("a", "s_get_time", json!({})), ("b", "other", json!({}))]),
        text("Done."),
    ]);
    world.run("go").env("TOKEN", "sesame").exits(0);
    let last = world.server.last();
    assert_eq!(last.observation("a"), "noon sesame\n");
    assert_eq!(last.observation("b"), "[]\n");
}

#[test]
fn a_secret_that_a_server_sends_back_is_redacted_wherever_it_is() {
    const SECRET: &str = "tk-0123456789abcdef";
    const ESCAPED: &str = r"tk-\u0030123456789abcdef";
    let call = |world: &World, tool: &str, arguments: &str| {
        let words = ["mcp", "call", "-a", "agent", "s", tool];
        let call = world.delta(words).stdin(arguments).env("TOKEN", SECRET);
        let outcome = call.env("TMPDIR", world.home()).end();
        assert!(!outcome.stderr.contains(SECRET), "{}", outcome.stderr);
        outcome
    };
    // A program that prints what it gets: in a result, as its last words, and where no message is expected.
    let world = world_with_server("2026-07-28");
    call(&world, "get.time", "{}")
        .exits(0)
        .prints("noon [redacted]\n");
    let script = world.read("server.sh");
    let script = script.replace("out of order", "no: $TOKEN");
    world.script(
        "server.sh",
        &script.replace("'no: $TOKEN'", "\"no: $TOKEN\""),
    );
    call(&world, "get.time", r#"{"z":"end"}"#)
        .exits(1)
        .says("no: [redacted]");
    world.script(
        "server.sh",
        &script.replacen("answer()", "echo \"$TOKEN\"; answer()", 1),
    );
    call(&world, "get.time", "{}").says("a message on stdout: [redacted]");
    world.server.may_stay_unasked();

    let (world, other) = (World::new(), World::new());
    let server = &other.server;
    server.accepts_anything().answers(|received| {
        let request = received.json();
        let sent = received.header("authorization").unwrap_or_default();
        assert!(sent.ends_with(SECRET));
        let result = |result: Value| json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        let blob = base64_of(&format!("blob {SECRET}"));
        match request["method"].as_str().unwrap() {
            "server/discover" => completion(&result(json!({"supportedVersions": ["2026-07-28"], "capabilities": {}}))),
            "tools/list" => completion(&result(json!({"tools": [
                {"name": "q", "description": format!("Knows {SECRET}"), "inputSchema": {"type": "object"}}]}))),
            _ => match request["params"]["arguments"]["as"].as_str().unwrap() {
                "blob" => completion(&result(json!({"content": [{"type": "resource", "resource": {"blob": blob}}]}))),
                "error" => completion(&json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -1, "message": SECRET}})),
                "status" => raw(SECRET).status(500),
                "stream" => {
                    let answer = result(json!({"content": [{"type": "text", "text": "a \u{1}"}]}));
                    let answer = answer.to_string().replace("\\u0001", ESCAPED);
                    raw(format!("data: {answer}\n\n")).header_instead("Content-Type", "text/event-stream")
                }
                _ => completion(&result(json!({"content": [], "structuredContent": {"k": SECRET}}))),
            },
        }
    });
    let url = server.url();
    let import = [
        "mcp",
        "import",
        "-a",
        "agent",
        "s",
        "--bearer-env",
        "TOKEN",
        "--url",
        &url,
    ];
    let import = world.delta(import).env("TOKEN", SECRET).exits(0);
    import.prints("s_q  Knows [redacted]\n");
    for (form, code, printed, said) in [
        ("stream", 0, "a [redacted]\n", ""),
        ("structured", 0, "{\"k\":\"[redacted]\"}\n", ""),
        ("error", 1, "", "[redacted]"),
        ("status", 1, "", "[redacted]"),
    ] {
        let outcome = call(&world, "q", &json!({"as": form}).to_string());
        outcome.exits(code).prints(printed).says(said);
    }
    let shown = call(&world, "q", r#"{"as":"blob"}"#).exits(0).stdout;
    let shown = String::from_utf8(shown).unwrap();
    let (_, file) = shown.trim_end_matches("]\n").split_once("bytes: ").unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap(), "blob [redacted]");
    for path in files_below(world.home()) {
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        assert!(!text.contains(SECRET), "{}", path.display());
    }
    world.server.may_stay_unasked();
}

fn base64_of(text: &str) -> String {
    use base64::Engine;
    base64::prelude::BASE64_STANDARD.encode(text)
}

#[test]
fn over_http_the_headers_are_those_of_the_specification_and_nothing_is_sent_twice() {
    let world = World::new();
    let other = World::new();
    let server = &other.server;
    server.accepts_anything().answers(|received| {
        let request = received.json();
        let result = |result: Value| json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        match request["method"].as_str().unwrap() {
            "server/discover" => completion(&result(json!({"supportedVersions": ["2026-07-28"], "capabilities": {}}))),
            "tools/list" => completion(&result(json!({"tools": [{"name": "q", "inputSchema": {
                "type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}}]}))),
            _ if request["params"]["arguments"]["region"] == "cut" => {
                raw("data: {\"jsonrpc\":\"2.0\",").header_instead("Content-Type", "text/event-stream")
            }
            _ => {
                let answer = result(json!({"content": [{"type": "text", "text": "one"}]}));
                let body = format!(": hello\r\n\r\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}}\r\n\r\ndata: {answer}\r\n\r\n");
                raw(body).header_instead("Content-Type", "text/event-stream")
            }
        }
    });
    let url = format!("{}/mcp", server.url());
    let import = [
        "mcp",
        "import",
        "-a",
        "agent",
        "h",
        "--bearer-env",
        "TOKEN",
        "--url",
        &url,
    ];
    world
        .delta(import)
        .exits(78)
        .says("needs the variable TOKEN");
    world.delta(import).env("TOKEN", "sesame").exits(0);
    let call = |region: &str| {
        let words = ["mcp", "call", "-a", "agent", "h", "q"];
        let arguments = json!({"region": region}).to_string();
        world
            .delta(words)
            .stdin(arguments)
            .env("TOKEN", "sesame")
            .end()
    };
    call("süd").exits(0).prints("one\n");
    let request = server.last();
    for (name, value) in [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "q"),
        ("mcp-param-region", "=?base64?c8O8ZA==?="),
        ("authorization", "Bearer sesame"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    let before = server.requests().len();
    call("cut").refuses(1, "ended before its answer");
    assert_eq!(server.requests().len(), before + 1);
    server.answers(|_| Reply::drops(Moment::AfterReading));
    call("süd").refuses(1, "; the call may have had an effect");
    // Nor is an answer that cannot be unpacked.
    server.answers(|_| raw("no gzip").header("Content-Encoding", "gzip"));
    call("süd").refuses(1, "; the call may have had an effect");
    assert_eq!(server.requests().len(), before + 3);
    world.server.may_stay_unasked();
}

/// The answer to a request of the protocol over HTTP.
pub fn result_for(request: &Value, result: &Value) -> Reply {
    completion(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

pub fn error_for(request: &Value, code: i64) -> Reply {
    completion(
        &json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": "no"}}),
    )
}

/// A server of the revision without sessions that has these tools, and says "done" to each call.
fn serve_tools(world: &World, tools: Value) {
    world.server.accepts_anything().answers(move |received| {
        let request = received.json();
        let result = match request["method"].as_str().unwrap() {
            "server/discover" => json!({"supportedVersions": ["2026-07-28"], "capabilities": {}}),
            "tools/list" => json!({"tools": tools}),
            _ => json!({"content": [{"type": "text", "text": "done"}]}),
        };
        result_for(&request, &result)
    });
}

/// The methods that a server was asked for.
pub fn methods_of(world: &World) -> Vec<String> {
    let requests = world.server.requests();
    let requests = requests.iter().filter(|it| !it.body.is_empty());
    requests
        .map(|it| it.json()["method"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn annotated_arguments_are_headers_at_any_depth_and_invalid_annotations_exclude_a_tool() {
    let (world, other) = (World::new(), World::new());
    let of = |kind: &str, name: &str| json!({"type": kind, "x-mcp-header": name});
    let place = json!({"type": "object", "properties": {
        "where": {"type": "object", "properties": {"region": of("string", "Region")}},
        "row": of("integer", "Row"), "dry": of("boolean", "Dry")}});
    let tool = |name: &str, property: &Value| json!({"name": name, "inputSchema": {"type": "object", "properties": {"in": property}}});
    let in_any_of = json!({"anyOf": [of("string", "N"), {"type": "null"}]});
    serve_tools(
        &other,
        json!([
            tool("q", &place),
            tool("rate", &of("number", "N")),
            tool("some", &in_any_of)
        ]),
    );
    let url = other.server.url();
    world
        .delta(["mcp", "list", "--url", &url])
        .exits(0)
        .prints("q\n")
        .says(
            "\"rate\" is left out: x-mcp-header: \"N\" is not on a string, a boolean or an integer",
        )
        .says("\"some\" is left out: x-mcp-header: \"N\" is not on a parameter");
    world
        .delta(["mcp", "import", "-a", "agent", "h", "--url", &url])
        .exits(0)
        .prints("h_q\n    parameters: in\n")
        .says("\"rate\" is left out");
    let call = |arguments: &str| {
        let words = ["mcp", "call", "-a", "agent", "h", "q"];
        world.delta(words).stdin(arguments).end()
    };
    call(r#"{"in":{"where":{"region":"a\tb"},"row":9007199254740991,"dry":null}}"#)
        .exits(0)
        .prints("done\n");
    let request = other.server.last();
    for (name, value) in [
        ("mcp-param-region", Some("=?base64?YQli?=")),
        ("mcp-param-row", Some("9007199254740991")),
        ("mcp-param-dry", None),
    ] {
        assert_eq!(request.header(name), value, "{name}");
    }
    let asked = other.server.requests().len();
    call(r#"{"in":{"row":9007199254740992}}"#).refuses(2, "argument in.row: 9007199254740992");
    assert_eq!(other.server.requests().len(), asked);
    world.server.may_stay_unasked();
}

#[test]
fn a_tool_may_have_any_name() {
    let (world, other) = (World::new(), World::new());
    let tools = ["get time,now", "日付", "${CWD}", "a\u{1b}b"];
    let tools = tools.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
    serve_tools(&other, tools.into_iter().collect());
    let url = other.server.url();
    world
        .delta(["mcp", "import", "-a", "agent", "h", "--url", &url])
        .exits(0)
        .prints("h_get_time_now\nh___\n")
        .says("\"${CWD}\" is left out: its name is not 1 to 128 characters")
        .says("\"a\\u001bb\" is left out");
    let world = world.top("imports: [./tools/mcp-h.yaml]");
    assert_eq!(world.observe("h___", &json!({})), "done\n");
    let request = other.server.last();
    assert_eq!(request.header("mcp-name"), Some("=?base64?5pel5LuY?="));
    assert_eq!(request.json()["params"]["name"], "日付");
}

#[test]
fn over_http_a_server_without_discovery_is_modern_if_it_says_so_with_404() {
    for (status, modern) in [(404, true), (200, false)] {
        let (world, other) = (World::new(), World::new());
        other.server.accepts_anything().answers(move |received| {
            if received.body.is_empty() {
                return text("");
            }
            let request = received.json();
            match request["method"].as_str().unwrap() {
                "initialize" if !modern => {
                    let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
                    result_for(&request, &result)
                }
                "tools/list" => result_for(&request, &json!({"tools": []})),
                _ => error_for(&request, -32601).status(status),
            }
        });
        let url = other.server.url();
        let spoken = if modern { "2026-07-28" } else { "2025-11-25" };
        let listed = world.delta(["mcp", "list", "--url", &url]);
        listed.exits(0).says(&format!("0 tools, revision {spoken}"));
        let is_asked = methods_of(&other).contains(&"initialize".to_owned());
        assert_eq!(is_asked, !modern);
        world.server.may_stay_unasked();
    }
}

#[test]
fn a_program_that_refuses_the_revision_of_a_call_is_asked_for_its_own_and_called_once() {
    for (code, older) in [(-32602, true), (-32600, true), (-32602, false)] {
        let world = world_with_server("2026-07-28");
        // Until initialize it knows no method; or it does not know the tool.
        let refusal =
            format!(r#"answer '"error":{{"code":{code},"message":"no such thing"}}'; continue"#);
        let begins = r#"    case $line in
    *'"server"#;
        let until_begun = format!(
            r#"    case $begun$line in
    '{{'*'"initialize"'*) begun=1 ;;
    '{{'*) {refusal} ;;
    esac
{begins}"#
        );
        let script = match older {
            true => SERVER.replace(begins, &until_begun),
            false => SERVER.replace("*hang*)", &format!("*) {refusal} ;;\n        *hang*)")),
        };
        if older {
            let servers = world.read("agent/mcp.yaml");
            world.write(
                "agent/mcp.yaml",
                servers.replace("2026-07-28", "2025-06-18"),
            );
        }
        world.script("server.sh", &script);
        std::fs::remove_file(world.path("received")).unwrap();
        let words = ["mcp", "call", "-a", "agent", "s", "get.time"];
        let outcome = world.delta(words).stdin("{}").end();
        match older {
            true => outcome
                .exits(0)
                .prints("noon \n")
                .says("the server no longer speaks revision 2026-07-28; see delta mcp check s"),
            false => outcome
                .refuses(1, "no such thing (code -32602)")
                .does_not_say("mcp check"),
        };
        let received = world.lines("received");
        let calls = received.iter().filter(|line| line.contains("tools/call"));
        assert_eq!(calls.count(), if older { 2 } else { 1 }, "{received:?}");
        world.server.may_stay_unasked();
    }
}

#[test]
fn over_http_a_missing_session_is_a_refusal_and_another_error_is_not() {
    for (status, code, expected) in [
        (400, -32000, 0),
        (400, -32600, 0),
        (200, -32000, 1),
        (500, -32000, 1),
    ] {
        let (world, other) = (World::new(), World::new());
        let tools = json!([{"name": "q", "inputSchema": {"type": "object"}}]);
        serve_tools(&other, tools);
        let url = other.server.url();
        let import = ["mcp", "import", "-a", "agent", "h", "--url", &url];
        world.delta(import).exits(0);
        let before = other.server.requests().len();
        other.server.answers(move |received| {
            if received.body.is_empty() {
                return text("");
            }
            let request = received.json();
            match request["method"].as_str().unwrap() {
                "initialize" if received.header("mcp-session-id").is_none() => {
                    let result = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
                    result_for(&request, &result).header("Mcp-Session-Id", "s1")
                }
                "notifications/initialized" => raw("").status(202),
                "tools/call" if received.header("mcp-session-id") == Some("s1") => {
                    let text = json!({"type": "text", "text": "older"});
                    result_for(&request, &json!({"content": [text]}))
                }
                // As some servers do, it names a session that it has not begun.
                _ => error_for(&request, code)
                    .status(status)
                    .header("Mcp-Session-Id", "s0"),
            }
        });
        let words = ["mcp", "call", "-a", "agent", "h", "q"];
        let outcome = world.delta(words).stdin("{}").exits(expected);
        let asked = methods_of(&other).split_off(before);
        if expected == 0 {
            outcome.prints("older\n").says("see delta mcp check h");
            let steps = ["tools/call", "server/discover", "initialize"];
            assert_eq!(asked[..3], steps);
            assert_eq!(asked[3..], ["notifications/initialized", "tools/call"]);
        } else {
            assert_eq!(asked, ["tools/call"]);
        }
        world.server.may_stay_unasked();
    }
}

#[test]
fn a_call_is_part_of_the_trace_of_its_run() {
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (revision, parent, expected) in [
        ("2026-07-28", PARENT, true),
        ("2026-07-28", "", false),
        ("2025-06-18", PARENT, false),
    ] {
        let world = world_with_server(revision);
        let words = ["mcp", "call", "-a", "agent", "s", "get.time"];
        let call = world.delta(words).stdin("{}").env("TRACEPARENT", parent);
        call.env("TRACESTATE", "a=1").exits(0);
        let lines = world.lines("received");
        let call: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        let meta = &call["params"]["_meta"];
        let trace = [&meta["traceparent"], &meta["tracestate"]];
        match expected {
            true => assert_eq!(trace, [PARENT, "a=1"]),
            false => assert_eq!(trace, [&Value::Null; 2]),
        }
        world.server.may_stay_unasked();
    }
}

#[test]
fn a_server_that_is_not_there_is_said_in_the_words_of_the_system() {
    let world = World::new();
    // Nobody listens at the first port.
    let listed = world.delta(["mcp", "list", "--url", "http://127.0.0.1:1/mcp"]);
    let said = listed.end().exits(1).stderr;
    assert_eq!(said, "delta: http://127.0.0.1:1/mcp: connection refused\n");
    world.server.may_stay_unasked();
}

#[test]
fn over_http_a_legacy_server_has_a_session() {
    let world = World::new();
    let other = World::new();
    let server = &other.server;
    server.accepts_anything().answers(|received| {
        if received.body.is_empty() {
            return text("");
        }
        let request = received.json();
        let result = |result: Value| {
            completion(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
        };
        match request["method"].as_str().unwrap() {
            "server/discover" => Reply::error(400, "no session"),
            "initialize" => result(json!({"protocolVersion": "2025-06-18", "capabilities": {}}))
                .header("Mcp-Session-Id", "s1"),
            "tools/list" => {
                result(json!({"tools": [{"name": "q", "inputSchema": {"type": "object"}}]}))
            }
            _ => raw("").status(202),
        }
    });
    let url = server.url();
    world
        .delta(["mcp", "list", "--url", &url])
        .exits(0)
        .prints("q\n")
        .says("2025-06-18");
    let requests = server.requests();
    let listed = requests
        .iter()
        .find(|r| !r.body.is_empty() && r.json()["method"] == "tools/list")
        .unwrap();
    assert_eq!(listed.header("mcp-session-id"), Some("s1"));
    assert_eq!(listed.header("mcp-protocol-version"), Some("2025-06-18"));
    assert!(
        requests.last().unwrap().body.is_empty(),
        "the session is ended"
    );
    world.server.may_stay_unasked();
}
