//! `delta mcp` with servers that do not keep to the letter of the protocol.

use crate::harness::*;
use crate::mcp::servers::{methods_of, result_for};
use serde_json::json;

/// A server of the oldest revision. Each answer is a file named after its method, in which `@` is the id.
const SERVER: &str = r#"#!/bin/sh
cd "$HOME" || exit 9
echo >>starts
while read -r line; do
    id=${line#*'"id":'} id=${id%%[,\}]*}
    method=${line#*'"method":"'} method=${method%%\"*}
    printf '%s\n' "$line" >>received
    [ ! -e "answers/end-on-$method" ] || { echo "expected initialize" >&2; exit 1; }
    [ ! -e "answers/$method" ] || LC_ALL=C sed "s/@/$id/" "answers/$method"
    [ ! -e "answers/end-after-$method" ] || exit 0
done
"#;

fn world_with(answers: &[(&str, &str)]) -> World {
    let world = World::new();
    world.server.may_stay_unasked();
    world.script("server.sh", SERVER);
    let usual = [
        (
            "server/discover",
            r#"{"jsonrpc":"2.0","id":@,"error":{"code":-32601,"message":"no"}}"#,
        ),
        (
            "initialize",
            r#"{"jsonrpc":"2.0","id":@,"result":{"protocolVersion":"2024-11-05","capabilities":{}}}"#,
        ),
        (
            "tools/list",
            r#"{"jsonrpc":"2.0","id":@,"result":{"tools":[{"name":"find","inputSchema":{"type":"object"}}]}}"#,
        ),
    ];
    for (method, answer) in usual.iter().chain(answers) {
        world.write(&format!("answers/{method}"), format!("{answer}\n"));
    }
    world
}

fn import(world: &World) -> Delta {
    let path = world.path("server.sh");
    world.delta([
        "mcp",
        "import",
        "-a",
        "agent",
        "s",
        "--",
        path.to_str().unwrap(),
    ])
}

fn call(world: &World) -> Delta {
    world
        .delta(["mcp", "call", "-a", "agent", "s", "find"])
        .stdin("{}")
}

#[test]
fn an_answer_is_read_as_servers_write_it() {
    let world = world_with(&[]);
    import(&world).exits(0);
    let content = r#""content":[{"type":"text","text":"ok"}]"#;
    let result = format!(r#""result":{{{content}}}"#);
    let rows: &[(&str, &str, &str)] = &[
        ("{\"jsonrpc\":\"2.0\",\"id\":@,RESULT}", "ok\n", ""),
        ("{\"id\":\"@\",RESULT}", "ok\n", ""),
        ("\u{feff}{\"id\":@,RESULT,\"error\":null}", "ok\n", ""),
        ("[1/2] {\"x\"} {\"id\":@,RESULT} done", "ok\n", ""),
        (
            "[{\"method\":\"x\",\"jsonrpc\":\"2.0\"},{\"id\":@,RESULT}]",
            "ok\n",
            "",
        ),
        ("{\"log\":1,\"id\":@}\n{\"id\":@,RESULT}", "ok\n", ""),
        (
            "{\"id\":@,\"result\":{\"content\":\"x\\ud83d\"}}",
            "x\u{fffd}\n",
            "",
        ),
        (
            "{\"id\":@,\"result\":{\"content\":[],\"structuredContent\":{\"a\":NaN}}}",
            "{\"a\":null}\n",
            "NaN",
        ),
        (
            "{\"id\":@,\"result\":{\"content\":[],\"structuredContent\":{\"a\":1e999,\"b\":25000000000000000000001}}}",
            "{\"a\":1e999,\"b\":25000000000000000000001}\n",
            "",
        ),
    ];
    for (answer, stdout, said) in rows {
        world.write(
            "answers/tools/call",
            answer.replace("RESULT", &result) + "\n",
        );
        call(&world).exits(0).prints(stdout).says(said);
    }
    let mut bytes = b"{\"id\":@,\"result\":{\"content\":\"caf\xe9\"}}\n".to_vec();
    world.write("answers/tools/call", &bytes);
    call(&world).exits(0).prints("caf\u{fffd}\n");
    // The last line of a server that ends.
    bytes.pop();
    world.write("answers/tools/call", &bytes);
    world.write("answers/end-after-tools/call", "");
    call(&world).exits(0).prints("caf\u{fffd}\n");
}

#[test]
fn what_a_server_says_looks_like_no_message_of_deltas() {
    let world = world_with(&[]);
    import(&world).exits(0);
    let said = r"bad\ndelta: forged\nwarning: forged";
    let answer = format!(r#"{{"jsonrpc":"2.0","id":@,"error":{{"code":-1,"message":"{said}"}}}}"#);
    world.write("answers/tools/call", answer + "\n");
    let refused = call(&world).exits(1).stderr;
    world.write("answers/end-on-tools/call", "");
    let loud = SERVER.replace("expected initialize", "odd\ndelta: forged");
    world.script("server.sh", &loud);
    let ended = call(&world).exits(1).stderr;
    for text in [refused, ended] {
        assert!(text.contains("\n  delta: forged"), "{text}");
        assert!(
            !text.contains("\ndelta: forged") && !text.contains("\ndelta: warning"),
            "{text}"
        );
    }
}

#[test]
fn what_cannot_be_read_as_the_answer_ends_the_call() {
    let world = world_with(&[]);
    import(&world).exits(0);
    for answer in [
        r#"{"jsonrpc":"2.0","id":@,"result":{"conte"#,
        r#"{"jsonrpc":"2.0","id":@,"result":7}"#,
        "{\n  \"id\": @,\n  \"result\": {}\n}",
    ] {
        world.write("answers/tools/call", format!("{answer}\n"));
        call(&world)
            .refuses(
                1,
                "the answer cannot be read; the call may have had an effect: ",
            )
            .says("\"id\":");
    }
    for (error, said) in [
        (r#""disk full""#, "tools/call: disk full"),
        (
            r#"{"code":-1,"message":"no","data":{"n":1e999}}"#,
            r#"no (code -1): {"n":1e999}"#,
        ),
    ] {
        world.write(
            "answers/tools/call",
            format!("{{\"id\":@,\"error\":{error}}}\n"),
        );
        call(&world).refuses(1, said);
    }
    let long = json!({"id": 2, "error": {"code": 1, "message": "m", "data": "x".repeat(9000)}});
    world.write("answers/tools/call", format!("{long}\n"));
    let said = call(&world).exits(1).stderr;
    assert!((2000..2100).contains(&said.len()), "{}", said.len());
    world.write("answers/end-on-tools/call", "");
    call(&world).refuses(
        1,
        "ended with exit code 1; the call may have had an effect; its last words",
    );
}

#[test]
fn no_call_waits_for_ever() {
    let world = world_with(&[]);
    import(&world).exits(0);
    call(&world).args(["--timeout", "1"]).refuses(
        1,
        "the server does not answer; the call may have had an effect",
    );
    // Nor for a server that reads nothing.
    world.script("server.sh", "#!/bin/sh\nexec sleep 1000\n");
    let servers = world.read("agent/mcp.yaml") + "  revision: 2026-07-28\n";
    world.write("agent/mcp.yaml", servers);
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    call(&world)
        .stdin(long)
        .args(["--timeout", "1"])
        .refuses(1, "does not answer");
    eventually("no process is left", || world.processes().is_empty());
}

#[test]
fn a_program_that_ends_when_it_is_asked_for_its_revision_is_started_again() {
    for (method, answer) in [
        ("end-on-server/discover", ""),
        // It answers, and ends before initialize.
        ("end-after-server/discover", ""),
    ] {
        let world = world_with(&[(method, answer)]);
        import(&world).exits(0).prints("s_find\n");
        assert_eq!(world.lines("starts").len(), 2, "{method}");
        // A call asks nothing that is pinned.
        world.write(
            "answers/tools/call",
            "{\"id\":@,\"result\":{\"content\":\"ok\"}}\n",
        );
        call(&world).exits(0).prints("ok\n");
        assert_eq!(world.lines("starts").len(), 3);
    }
    // Only once.
    let world = world_with(&[("end-on-server/discover", ""), ("end-on-initialize", "")]);
    import(&world).refuses(1, "expected initialize");
    assert_eq!(world.lines("starts").len(), 2);
}

#[test]
fn a_pinned_program_that_does_not_know_initialize_is_asked_for_its_revision() {
    for code in [-32601, -32022] {
        let world = world_with(&[]);
        import(&world).exits(0);
        let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":@,\"error\":{{\"code\":{code}}}}}\n");
        world.write("answers/initialize", answer);
        call(&world).exits(1);
        let discovered =
            r#"{"id":@,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}"#;
        world.write("answers/server/discover", format!("{discovered}\n"));
        world.write(
            "answers/tools/call",
            "{\"id\":@,\"result\":{\"content\":\"ok\"}}\n",
        );
        call(&world)
            .exits(0)
            .prints("ok\n")
            .says("no longer speaks revision 2024-11-05; see delta mcp check s");
    }
}

#[test]
fn a_revision_can_be_pinned_by_hand() {
    let world = world_with(&[("end-on-server/discover", "")]);
    let path = world.path("server.sh");
    let servers = format!(
        "s: {{command: ['{}'], revision: 2024-11-05}}\n",
        path.display()
    );
    world.write("agent/mcp.yaml", servers);
    world.delta(["mcp", "import", "-a", "agent", "s"]).exits(0);
    assert_eq!(world.lines("starts").len(), 1);
    assert!(world.lines("received")[0].contains(r#""protocolVersion":"2024-11-05""#));
}

#[test]
fn over_http_whatever_is_no_answer_to_discovery_is_an_older_server() {
    let page = "<html><title>Not found</title></html>";
    let rows: [(u16, &str, &str); 9] = [
        (202, "", "application/json"),
        (204, "", "application/json"),
        (200, "", "application/json"),
        (200, "", "text/event-stream"),
        (200, page, "text/html"),
        (404, page, "text/html"),
        (407, "", "text/plain"),
        (500, "Internal Server Error", "text/plain"),
        (501, "", "text/plain"),
    ];
    for (status, body, kind) in rows {
        let (world, other) = (World::new(), World::new());
        world.server.may_stay_unasked();
        other.server.accepts_anything().answers(move |received| {
            older(received, || {
                raw(body)
                    .status(status)
                    .header_instead("Content-Type", kind)
            })
        });
        let url = other.server.url();
        let listed = world.delta(["mcp", "list", "--url", &url]);
        listed.exits(0).prints("q\n").says("revision 2025-06-18");
    }
    for status in [401, 403] {
        let (world, other) = (World::new(), World::new());
        world.server.may_stay_unasked();
        let refuses = move |_: &Received| raw("no").status(status);
        other.server.accepts_anything().answers(refuses);
        let url = other.server.url();
        let listed = world.delta(["mcp", "list", "--url", &url]);
        listed.refuses(1, &format!("HTTP status {status}"));
        assert_eq!(methods_of(&other), ["server/discover"]);
    }
}

/// The answer of a server of an older revision with one tool.
fn older(received: &Received, to_discovery: impl Fn() -> Reply) -> Reply {
    if received.body.is_empty() {
        return text("");
    }
    let request = received.json();
    match request["method"].as_str().unwrap() {
        "server/discover" => to_discovery(),
        "initialize" => {
            let result = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
            result_for(&request, &result)
        }
        "tools/list" => {
            let tools = json!([{"name": "q", "inputSchema": {"type": "object"}}]);
            result_for(&request, &json!({"tools": tools}))
        }
        "tools/call" => result_for(&request, &json!({"content": "done"})),
        _ => raw("").status(202),
    }
}

#[test]
fn a_redirect_is_followed_once_and_only_at_its_origin() {
    let redirect = |status: u16, to: String, from: &'static str| {
        move |received: &Received| {
            if received.line.contains(&format!(" {from} ")) {
                raw("").status(status).header("Location", &to)
            } else {
                older(received, || raw("").status(202))
            }
        }
    };
    for status in [307, 308] {
        let (world, other) = (World::new(), World::new());
        world.server.may_stay_unasked();
        let answers = redirect(status, "/mcp/".to_owned(), "/v1/mcp");
        other.server.accepts_anything().answers(answers);
        let url = format!("{}/mcp", other.server.url());
        world
            .delta(["mcp", "import", "-a", "agent", "h", "--url", &url])
            .exits(0);
        let words = ["mcp", "call", "-a", "agent", "h", "q"];
        world
            .delta(words)
            .stdin("{\"a\":1}")
            .exits(0)
            .prints("done\n");
    }
    for (status, to, from) in [
        (307, "http://127.0.0.1:1/v1/mcp", "/v1/mcp"),
        (307, "/v1/mcp", "/v1/mcp"),
        (302, "/mcp/", "/v1/mcp"),
    ] {
        let (world, other) = (World::new(), World::new());
        world.server.may_stay_unasked();
        other
            .server
            .accepts_anything()
            .answers(redirect(status, to.to_owned(), from));
        let url = format!("{}/mcp", other.server.url());
        let listed = world.delta(["mcp", "list", "--url", &url]);
        listed.refuses(1, &format!("HTTP status {status}: it redirects to {to}"));
    }
}

#[test]
fn one_odd_entry_does_not_keep_a_list_from_being_used() {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let data = json!({"type": "object", "properties": {"a": {"default": {"$ref": "x"}}}});
    let lost = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}});
    let tools = json!([tool("good"), tool("a/b"), tool("a.b"), tool("good"), 7, {"name": "bad"},
        {"name": "data"}, {"name": "data", "inputSchema": data}, {"name": "lost", "inputSchema": lost}]);
    let page = format!(r#"{{"id":@,"result":{{"tools":{tools},"nextCursor":""}}}}"#);
    let world = world_with(&[("tools/list", &page)]);
    import(&world)
        .exits(0)
        .prints("s_good\ns_a_b\ns_a_b_2\ns_data\n    parameters: a\n")
        .says("its cursor \"\" repeats")
        .says("7 is left out")
        .says("\"bad\" is left out: it has no inputSchema")
        .says("\"data\" is left out: it has no inputSchema")
        .says("\"lost\" is left out: its inputSchema refers to \"#/$defs/a\", which is not in it")
        .says("\"good\" is left out: a tool of this name is listed before it");
    let received = world.lines("received");
    let lists = received.iter().filter(|line| line.contains("tools/list"));
    let cursors: Vec<bool> = lists.map(|line| line.contains(r#""cursor":"""#)).collect();
    assert_eq!(cursors, [false, true], "{received:?}");
}

#[test]
fn numbers_reach_a_server_as_they_were_written() {
    let world = world_with(&[("tools/call", r#"{"id":@,"result":{"content":"ok"}}"#)]);
    import(&world).exits(0);
    let arguments = "{\"a\": 25000000000000000000001,\n \"b\": [1e999, 1.10, -0]}";
    call(&world).stdin(arguments).exits(0);
    let sent = world.lines("received").pop().unwrap();
    let sent = sent.replace(' ', "");
    assert!(
        sent.contains(r#""arguments":{"a":25000000000000000000001,"b":[1e999,1.10,-0]}"#),
        "{sent}"
    );
    call(&world).stdin("{\"a\":NaN}").refuses(2, "are not JSON");
}

#[test]
fn headers_come_from_texts_variables_and_programs() {
    let (world, other) = (World::new(), World::new());
    world.server.may_stay_unasked();
    other.server.accepts_anything().answers(|received| {
        // The first token is out of date.
        if received.header("x-key") != Some("Token tk-00000000000000002") {
            return raw("").status(401);
        }
        assert_eq!(received.header("x-text"), Some("plain"));
        assert_eq!(received.header("authorization"), Some("from-variable-1234"));
        older(received, || raw("").status(202))
    });
    world.script(
        "agent/bearer",
        "#!/bin/sh\necho >>count\necho \"Token tk-0000000000000000$(wc -l <count | tr -d ' ')\"\necho more\n",
    );
    world.write(
        "agent/mcp.yaml",
        format!(
            "h:\n  url: {}\n  headers:\n    X-Text: plain\n    Authorization: {{env: TOKEN}}\n    \
             X-Key: {{command: [./bearer]}}\n",
            other.server.url()
        ),
    );
    let import = || world.delta(["mcp", "import", "-a", "agent", "h"]);
    import().refuses(78, "h needs the variable TOKEN, which is not set");
    let import = || import().env("TOKEN", "from-variable-1234");
    std::fs::remove_file(world.path("agent/count")).ok();
    import().exits(0).prints("h_q\n");
    assert_eq!(world.lines("agent/count").len(), 2);
    // It refuses the next ones, too: no third try.
    import().refuses(1, "HTTP status 401");
    assert_eq!(world.lines("agent/count").len(), 4);
    world.script("agent/bearer", "#!/bin/sh\necho no login >&2\nexit 3\n");
    import()
        .refuses(1, "header X-Key: ./bearer: exit code 3")
        .says("no login");
    world.script("agent/bearer", "#!/bin/sh\necho\necho x\n");
    import().refuses(1, "its first line is empty");
}

#[test]
fn what_a_header_command_prints_is_secret() {
    const SECRET: &str = "tk-0123456789abcdef";
    let (world, other) = (World::new(), World::new());
    world.server.may_stay_unasked();
    other.server.accepts_anything().answers(|received| {
        let key = received.header("x-key").unwrap().to_owned();
        let request = if received.body.is_empty() {
            json!({})
        } else {
            received.json()
        };
        if request["method"] == "tools/call" {
            let token = key.strip_prefix("Bearer ").unwrap();
            return result_for(&request, &json!({"content": format!("{key}, {token}")}));
        }
        older(received, || raw("").status(202))
    });
    let url = other.server.url();
    world.write(
        "agent/mcp.yaml",
        format!("h: {{url: '{url}', headers: {{X-Key: {{command: [echo, Bearer {SECRET}]}}}}}}\n"),
    );
    world.delta(["mcp", "import", "-a", "agent", "h"]).exits(0);
    let words = ["mcp", "call", "-a", "agent", "h", "q"];
    let printed = world.delta(words).stdin("{}").exits(0);
    printed.prints("[redacted], [redacted]\n");
}

#[test]
fn a_program_gets_its_variables_and_its_directory() {
    let world = world_with(&[]);
    std::fs::create_dir(world.path("agent/srv")).unwrap();
    world.script(
        "server.sh",
        &SERVER.replacen(
            "cd \"$HOME\"",
            "echo \"$PWD [$A] [$B] [$C]\" >>\"$HOME/seen\"; cd \"$HOME\"",
            1,
        ),
    );
    let path = world.path("server.sh");
    let servers = format!(
        "s: {{command: ['{}'], cwd: srv, env: {{A: text, B: {{env: OTHER}}, C: {{env: C}}}}}}\n",
        path.display()
    );
    world.write("agent/mcp.yaml", &servers);
    let import = || world.delta(["mcp", "import", "-a", "agent", "s"]);
    import().refuses(78, "s needs the variable OTHER");
    let other = servers.replace("cwd: srv", "cwd: nowhere");
    world.write("agent/mcp.yaml", other);
    let lost = import().env("OTHER", "other");
    lost.refuses(78, "cwd: no directory ")
        .says("/agent/nowhere");
    world.write("agent/mcp.yaml", &servers);
    import().env("OTHER", "other").exits(0);
    let seen = world.read("seen");
    assert!(seen.ends_with("/agent/srv [text] [other] []\n"), "{seen}");
    // No other tool gets the variables that values come from.
    let world = world
        .top("imports: [./tools/mcp-s.yaml]")
        .tools("- {name: other, shell: 'echo \"[$OTHER]\"'}");
    world.model_says([calls(&[("a", "other", json!({}))]), text("Done.")]);
    world.run("go").env("OTHER", "other").exits(0);
    assert_eq!(world.server.last().observation("a"), "[]\n");
}

#[test]
fn an_import_may_choose_tools_and_keeps_the_choice() {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let page = |tools| format!(r#"{{"id":@,"result":{{"tools":{tools}}}}}"#);
    let world = world_with(&[(
        "tools/list",
        &page(json!([tool("a.b"), tool("a/b"), tool("c")])),
    )]);
    import(&world);
    let path = world.path("server.sh");
    let path = path.to_str().unwrap();
    let chosen = |tool| {
        world.delta([
            "mcp", "import", "-a", "agent", "--only", tool, "s", "--", path,
        ])
    };
    chosen("a/c").refuses(1, "s has no usable tool \"a/c\"; did you mean");
    chosen("a/b").exits(0).prints("s_a_b_2\n");
    world
        .delta(["mcp", "check", "-a", "agent"])
        .exits(0)
        .prints("");
    world
        .delta(["mcp", "import", "-a", "agent", "s"])
        .exits(0)
        .prints("s_a_b_2\n");
    world.write("answers/tools/list", page(json!([tool("c")])) + "\n");
    world
        .delta(["mcp", "check", "-a", "agent"])
        .exits(1)
        .prints("gone: s_a_b_2\n");
    import(&world).exits(0).prints("s_c\n");
}

#[test]
fn servers_of_another_programs_file_are_shown_first_and_started_after_a_yes() {
    let world = world_with(&[]);
    let servers = json!({"mcpServers": {
        "here": {"command": "./server.sh", "args": ["it's", "\u{1b}[2K\u{200b}"],
            "env": {"MODE": "x", "API_KEY": "abc", "COPY": "${OPENAI_API_KEY}", "PATH": "${PATH}", "LIST": "a:${LIST}"}},
        "my server": {"command": "./server.sh", "args": ["--dir=${HOME}/x", "${workspaceFolder}"]},
        "keyed": {"command": "./server.sh", "args": ["--token", "hunter2"]},
        "header": {"command": "./server.sh", "args": ["--header", "Authorization: Bearer hunter2"]},
        "mixed": {"command": "./server.sh", "args": ["--region=${REGION}"]},
        "remote": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer ${T}"}},
        "old": {"type": "sse", "url": "http://127.0.0.1:1/sse"},
        "leak": {"url": "http://127.0.0.1:1/?k=${OPENAI_API_KEY}"},
    }});
    // Editors write comments.
    let text = format!("// ours\n{servers}").replacen("}}", "},/* x */}", 1);
    world.write(
        "project/.vscode/mcp.json",
        text.replace("./server.sh", "../server.sh"),
    );
    let from = |more: &[&'static str]| {
        let words = [
            "mcp",
            "import",
            "-a",
            "agent",
            "--from",
            "project/.vscode/mcp.json",
        ];
        world.delta(words.into_iter().chain(more.iter().copied()))
    };
    let script = world.path("project").join("../server.sh");
    let shown = from(&[])
        .refuses(2, "nothing was started")
        .says(&format!("here: {}", script.display()))
        .says(r"$'\033[2K\342\200\213'")
        .says("variable: API_KEY = the variable API_KEY")
        .says("variable: COPY = the variable OPENAI_API_KEY")
        .says("note: API_KEY looks like a key: set this variable")
        .says("token: the variable T")
        .says("old is left out: the transport HTTP+SSE")
        .says("variable: LIST = the variable MCP_HERE_LIST")
        .says("note: set MCP_HERE_LIST to the value of LIST")
        .says("leak is left out: its url holds a key or a variable")
        .says("keyed is left out: word 3 of its command holds a key or a variable: write it into mcp.yaml by hand")
        .says("header is left out: word 3")
        .says("mixed is left out: word 2");
    shown.does_not_say("abc").does_not_say("hunter2");
    assert!(!world.exists("starts") && !world.exists("agent/mcp.yaml"));
    from(&["herr"]).refuses(78, "did you mean \"here\"?");
    from(&["-y", "here", "my server"])
        .env("OPENAI_API_KEY", "sk-0123456789abcdef")
        .env("MCP_HERE_LIST", "a:b")
        .exits(0)
        .prints("here_find\nmy_server_find\n");
    let written = world.read("agent/mcp.yaml");
    assert!(
        !written.contains("abc") && !written.contains("hunter2"),
        "{written}"
    );
    assert!(
        written.contains(&format!("--dir={}/x", world.path("").display()).replace("//", "/")),
        "{written}"
    );
    assert!(
        world
            .read("agent/tools/mcp-my_server.yaml")
            .contains("my_server_find")
    );
    // Nobody's server is replaced by another one.
    let other = servers.to_string().replace("./server.sh", "./evil.sh");
    world.write("project/.vscode/mcp.json", other);
    from(&["-y", "here"])
        .exits(1)
        .says("here is left out: there is another server here already");
    assert_eq!(world.read("agent/mcp.yaml"), written);
}

#[test]
fn at_a_terminal_each_server_of_a_file_is_asked_for() {
    let world = world_with(&[]);
    let servers =
        json!({"mcpServers": {"a": {"command": "./server.sh"}, "b": {"command": "./server.sh"}}});
    world.write(".mcp.json", servers.to_string());
    let mut terminal = Terminal::new();
    let words = ["mcp", "import", "-a", "agent", "--from", ".mcp.json"];
    let running = world.delta(words).all_at(&terminal).spawn();
    terminal.shows("start it and import its tools? [y/n]");
    terminal.types("n\r");
    terminal.shows("b: ");
    terminal.shows("[y/n]");
    assert!(!world.exists("starts"));
    terminal.types("y\r");
    running.wait().exits(0);
    assert!(world.exists("agent/tools/mcp-b.yaml") && !world.exists("agent/tools/mcp-a.yaml"));
}
