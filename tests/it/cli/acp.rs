//! `delta acp`: an editor holds sessions, each a run in its directory.

use crate::engine::later::{BUILD, let_time_pass};
use crate::harness::services::{HERE, streaming, text_stream};
use crate::harness::*;
use crate::record::attachments::png;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;

const TOOLS: &str = "\
- {name: say, exec: 'echo ${word}', kind: execute}
- {name: put, exec: 'tee ${path}', stdin: content, kind: edit, path: path, confirm: true}";

/// An editor.
struct Client {
    running: Running,
    sent: u64,
}

impl Client {
    fn start(world: &World) -> Self {
        Self::with(world, json!({}))
    }

    fn with(world: &World, capabilities: Value) -> Self {
        fs::create_dir_all(world.workspace()).unwrap();
        let mut client = Self::of(world.delta(["acp", "-a", "agent"]));
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        client.call("initialize", params);
        client
    }

    fn of(delta: Delta) -> Self {
        let running = delta.open_stdin().spawn();
        Self { running, sent: 0 }
    }

    fn send(&mut self, message: &Value) {
        self.running.type_in(&format!("{message}\n"));
    }

    fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    fn request(&mut self, method: &str, params: Value) -> u64 {
        self.sent += 1;
        let id = self.sent;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn lines(&self) -> Vec<Value> {
        let text = self.running.stdout();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[track_caller]
    fn wait(&self, what: &str, is_meant: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        eventually(what, || {
            found = self.lines().into_iter().find(&is_meant);
            found.is_some()
        });
        found.unwrap()
    }

    #[track_caller]
    fn answer(&self, id: u64) -> Value {
        self.wait(&format!("an answer to {id}"), |it| {
            it["id"] == id && it.get("method").is_none()
        })
    }

    #[track_caller]
    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }

    /// A new session in the workspace.
    #[track_caller]
    fn session(&mut self, world: &World) -> String {
        let params = json!({"cwd": world.workspace(), "mcpServers": []});
        let answer = self.call("session/new", params);
        answer["result"]["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    }

    fn begin(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.request(
            "session/prompt",
            json!({"sessionId": session, "prompt": prompt}),
        )
    }

    /// How the turn of a prompt ended.
    #[track_caller]
    fn prompt(&mut self, session: &str, text: &str) -> Value {
        let id = self.begin(session, text);
        self.answer(id)
    }

    fn load(&mut self, world: &World, session: &str) -> Value {
        let params = json!({"sessionId": session, "cwd": world.workspace(), "mcpServers": []});
        self.call("session/load", params)
    }

    /// The n-th request of delta, from 1.
    #[track_caller]
    fn asked(&self, n: u64) -> Value {
        self.wait(&format!("request {n}"), |it| {
            it["id"] == n && it.get("method").is_some()
        })
    }

    fn reply(&mut self, request: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    fn updates(&self, session: &str) -> Vec<Value> {
        let of = |line: &Value| {
            line["params"]["sessionId"] == session && line["method"] == "session/update"
        };
        let lines = self.lines().into_iter().filter(of);
        lines
            .map(|mut line| line["params"]["update"].take())
            .collect()
    }

    /// The updates of a kind.
    fn shown(&self, session: &str, kind: &str) -> Vec<Value> {
        let all = self.updates(session).into_iter();
        all.filter(|it| it["sessionUpdate"] == kind).collect()
    }

    fn texts(&self, session: &str, kind: &str) -> Vec<String> {
        let text = |it: &Value| it["content"]["text"].as_str().unwrap().to_owned();
        self.shown(session, kind).iter().map(text).collect()
    }

    #[track_caller]
    fn end(mut self) -> Outcome {
        self.running.end_input();
        self.running.wait().exits(0)
    }
}

#[track_caller]
fn stops(answer: &Value, reason: &str) {
    assert_eq!(answer["result"], json!({"stopReason": reason}), "{answer}");
}

#[track_caller]
fn fails(answer: &Value, code: i64, words: &str) {
    assert_eq!(answer["error"]["code"], code, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains(words), "{answer}");
}

fn selected(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

fn put() -> Reply {
    call("c1", "put", &json!({"path": "a.txt", "content": "new\n"}))
}

#[test]
fn the_agent_says_what_it_can_and_refuses_what_is_no_request() {
    let world = World::unasked();
    let mut client = Client::of(world.delta(["acp", "-a", "agent"]));
    let answer = client.call("initialize", json!({"protocolVersion": 7}));
    let result = &answer["result"];
    assert_eq!(result["protocolVersion"], 1);
    assert_eq!(result["authMethods"], json!([]));
    assert_eq!(result["agentInfo"]["name"], "delta");
    let capabilities = &result["agentCapabilities"];
    assert_eq!(capabilities["loadSession"], true);
    assert_eq!(
        capabilities["sessionCapabilities"],
        json!({"list": {}, "resume": {}, "close": {}})
    );
    let prompts = &capabilities["promptCapabilities"];
    assert_eq!(
        (&prompts["embeddedContext"], &prompts["image"]),
        (&json!(true), &json!(true))
    );
    fails(
        &client.call("session/set_mode", json!({})),
        -32601,
        "session/set_mode",
    );
    fails(
        &client.call("session/prompt", json!({})),
        -32602,
        "sessionId",
    );
    let unknown = json!({"sessionId": "x", "prompt": []});
    fails(
        &client.call("session/prompt", unknown),
        -32002,
        "x is not open",
    );
    for cwd in [json!("ws"), json!("/no/such"), json!(1), Value::Null] {
        fails(
            &client.call("session/new", json!({"cwd": cwd, "mcpServers": []})),
            -32602,
            "cwd",
        );
    }
    for (line, code, id) in [
        ("{", -32700, json!(null)),
        ("[]", -32600, json!(null)),
        ("{\"id\":1}", -32600, json!(1)),
        ("{\"method\":\"x\",\"id\":{}}", -32600, json!({})),
        ("7", -32600, json!(null)),
        (
            "{\"id\":70,\"method\":\"x\",\"params\":[1]}",
            -32602,
            json!(70),
        ),
        // Whatever is wrong with it, a request is answered under its id.
        (
            "{\"id\":\"a\",\"method\":\"x\",\"params\":{\"id\":1,",
            -32700,
            json!("a"),
        ),
        (
            "{\"params\":{\"id\":1,\"n\":1e999},\"id\":71,\"method\":\"x\"}",
            -32601,
            json!(71),
        ),
        (
            "{\"method\":\"x\",\"params\":{\"t\":\"\\ud83d\",\"n\":NaN},\"id\":72}",
            -32601,
            json!(72),
        ),
        ("\u{feff}[{\"id\":73,\"method\":\"x\"}]", -32601, json!(73)),
    ] {
        let before = client.lines().len();
        client.running.type_in(&format!("{line}\n"));
        eventually("an answer", || client.lines().len() > before);
        let answer = &client.lines()[before];
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(code), &id),
            "{line}"
        );
    }
    // A flood: each line gets its answer, and what asks for none gets none.
    let before = client.lines().len();
    client.running.type_in(&"not json\n".repeat(2000));
    client
        .running
        .type_in(&"{\"jsonrpc\":\"2.0\",\"method\":\"other\"}\n".repeat(2000));
    client
        .running
        .type_in(&"{\"jsonrpc\":\"2.0\",\"id\":999,\"result\":{}}\n".repeat(100));
    client.call("session/list", json!({}));
    assert_eq!(client.lines().len() - before, 2001);
    client.end();
    assert!(!world.exists("ws/.delta"));
}

#[test]
fn a_prompt_is_a_run_in_the_clients_directory_and_the_next_one_continues_it() {
    let world = World::with_tools(TOOLS);
    world.model_says([
        streaming(&text_stream(&["Good ", "morning"], None)),
        message(&json!({
            "role": "assistant", "content": "I say it", "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "say", "arguments": "{\"word\":\"hi\"}"}}],
        })),
        text("done"),
    ]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    assert!(
        !world.exists("ws/.delta"),
        "there is no run before the first prompt"
    );
    stops(&client.prompt(&session, "hello"), "end_turn");
    let run = world.latest();
    assert_eq!(run.id(), session);
    let first = client.shown(&session, "agent_message_chunk");
    assert_eq!(
        client.texts(&session, "agent_message_chunk"),
        ["Good ", "morning"]
    );
    assert_eq!(first[0]["messageId"], first[1]["messageId"]);
    assert_eq!(
        client.shown(&session, "user_message_chunk"),
        [Value::Null; 0]
    );

    stops(&client.prompt(&session, "say hi"), "end_turn");
    assert_eq!(world.runs().len(), 1);
    let messages = run.events("USER_MESSAGE");
    assert_eq!(messages[1]["content"], "say hi");
    assert_eq!(client.texts(&session, "agent_thought_chunk"), ["hm"]);
    assert_eq!(
        client.texts(&session, "agent_message_chunk")[2..],
        ["I say it", "done"]
    );
    let call = &client.shown(&session, "tool_call")[0];
    assert_eq!(call["toolCallId"], "c1");
    assert_eq!(call["title"], "echo hi");
    assert_eq!(call["kind"], "execute");
    assert_eq!(call["status"], "in_progress");
    assert_eq!(call["rawInput"], json!({"word": "hi"}));
    let ended = &client.shown(&session, "tool_call_update")[0];
    assert_eq!(ended["status"], "completed");
    assert_eq!(ended["content"][0]["content"]["text"], "hi\n");
    assert_eq!(ended["rawOutput"]["exit_code"], 0);
    client.end();
}

#[test]
fn a_failed_attempt_is_a_message_of_its_own() {
    let world = World::new();
    let whole = text_stream(&["lost ", "words"], None);
    let broken = whole.split_once("words").unwrap().0;
    world.model_says([
        streaming(broken),
        streaming(&text_stream(&["one ", "two"], None)),
    ]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    stops(&client.prompt(&session, "hello"), "end_turn");
    let shown = client.shown(&session, "agent_message_chunk");
    assert_eq!(
        client.texts(&session, "agent_message_chunk"),
        ["lost ", "one ", "two"]
    );
    assert_ne!(shown[0]["messageId"], shown[1]["messageId"]);
    client.end();
}

#[test]
fn blocks_of_a_prompt_become_one_message() {
    let world = World::new();
    world.model_says([text("done")]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    let prompt = json!([
        {"type": "text", "text": "Look:"},
        {"type": "resource_link", "name": "a.rs", "uri": "file:///a.rs"},
        {"type": "resource", "resource": {"uri": "file:///b.rs", "text": "fn b() {}"}},
    ]);
    let answer = client.call(
        "session/prompt",
        json!({"sessionId": session, "prompt": prompt}),
    );
    stops(&answer, "end_turn");
    let said = world.latest().events("USER_MESSAGE").remove(0);
    assert_eq!(
        said["content"],
        "Look:\n\n[a.rs](file:///a.rs)\n\n# File: file:///b.rs\n\nfn b() {}"
    );
    world.model_says([text("done")]);
    let data = BASE64_STANDARD.encode(png(3, 2, b""));
    let prompt = json!([{"type": "image", "data": data, "mimeType": "image/png"}]);
    let answer = client.call(
        "session/prompt",
        json!({"sessionId": session, "prompt": prompt}),
    );
    stops(&answer, "end_turn");
    let said = world.latest().events("USER_MESSAGE").remove(1);
    assert_eq!(said["content"], "[picture 1-picture.png, 3x2, image/png]");
    assert_eq!(said["attachments"][0]["width"], 3);
    for (prompt, words) in [
        (json!([]), "empty"),
        (json!([{"type": "text", "text": " "}]), "empty"),
        (json!([{"type": "audio", "data": ""}]), "'audio'"),
        (json!([{"type": "text"}]), "lacks"),
        (
            json!([{"type": "image", "data": "?", "mimeType": "image/png"}]),
            "base64",
        ),
        (json!("text"), "list"),
    ] {
        let answer = client.call(
            "session/prompt",
            json!({"sessionId": session, "prompt": prompt}),
        );
        fails(&answer, -32602, words);
    }
    client.end();
}

#[test]
fn a_permission_decides_about_a_call() {
    for (option, status) in [("yes", "completed"), ("no", "failed")] {
        let world = World::with_tools(TOOLS);
        world.model_says([put(), text("done")]);
        let mut client = Client::start(&world);
        let session = client.session(&world);
        world.write("ws/a.txt", "old\n");
        let id = client.begin(&session, "put it");
        let asked = client.asked(1);
        assert_eq!(asked["method"], "session/request_permission");
        let params = &asked["params"];
        assert_eq!(params["toolCall"]["toolCallId"], "c1");
        let kinds: Vec<&Value> = params["options"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["kind"])
            .collect();
        assert_eq!(kinds, ["allow_once", "reject_once"]);
        let diff = json!({
            "type": "diff", "path": world.path("ws/a.txt"), "oldText": "old\n", "newText": "new\n",
        });
        let call = client.shown(&session, "tool_call").remove(0);
        assert_eq!(call["status"], "pending");
        assert_eq!(call["locations"], json!([{"path": world.path("ws/a.txt")}]));
        assert!(
            call["content"].as_array().unwrap().contains(&diff),
            "{call}"
        );
        assert_eq!(world.read("ws/a.txt"), "old\n");
        client.reply(&asked, selected(option));
        stops(&client.answer(id), "end_turn");
        let ended = client.shown(&session, "tool_call_update").pop().unwrap();
        assert_eq!(ended["status"], status);
        assert_eq!(
            world.read("ws/a.txt"),
            if option == "yes" { "new\n" } else { "old\n" }
        );
        client.end();
    }
}

#[test]
fn a_cancelled_permission_leaves_the_question_open_and_the_next_prompt_asks_again() {
    let world = World::with_tools(TOOLS);
    world.model_says([put(), text("first"), text("second")]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    let id = client.begin(&session, "put it");
    let asked = client.asked(1);
    client.reply(&asked, json!({"outcome": {"outcome": "cancelled"}}));
    stops(&client.answer(id), "cancelled");
    assert_eq!(world.latest().ending().0, "WAITING_FOR_INPUT");
    client.end();

    // Another client finds it, and what it says is no answer to the question.
    let mut client = Client::start(&world);
    client.load(&world, &session);
    let id = client.begin(&session, "something else");
    let asked = client.asked(1);
    assert_eq!(asked["params"]["toolCall"]["toolCallId"], "c1");
    client.reply(&asked, selected("yes"));
    stops(&client.answer(id), "end_turn");
    assert_eq!(world.read("ws/a.txt"), "new\n");
    let run = world.latest();
    let said = run.events("USER_MESSAGE");
    assert_eq!(said.last().unwrap()["content"], "something else");
    assert_eq!(
        client.texts(&session, "agent_message_chunk"),
        ["first", "second"]
    );
    client.end();
}

#[test]
fn a_client_that_never_answers_holds_up_nothing_else() {
    let world = World::with_tools(TOOLS);
    world.model_says([put(), text("done")]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    let id = client.begin(&session, "put it");
    client.asked(1);
    fails(&client.prompt(&session, "again"), -32603, "already running");
    let other = client.session(&world);
    stops(&client.prompt(&other, "hello"), "end_turn");
    // An answer that is none leaves the question open.
    client.send(&json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "no"}}));
    stops(&client.answer(id), "cancelled");
    client.send(&json!({"jsonrpc": "2.0", "id": 1, "result": selected("yes")}));
    client.end();
    assert!(!world.exists("ws/a.txt"));
}

#[test]
fn a_form_asks_what_the_model_asks_and_never_a_secret() {
    let ask = |kind: &str| {
        call(
            "c1",
            "ask_human",
            &json!({"prompt": "Which?", "input_type": kind}),
        )
    };
    let forms = json!({"elicitation": {"form": {}}});
    for (kind, content, answer) in [
        ("text", json!({"answer": "blue"}), "blue"),
        ("confirmation", json!({"answer": true}), "yes"),
        ("confirmation", json!({"answer": false}), "no"),
    ] {
        let world = World::new();
        world.model_says([ask(kind), text("done")]);
        let mut client = Client::with(&world, forms.clone());
        let session = client.session(&world);
        let id = client.begin(&session, "go");
        let asked = client.asked(1);
        assert_eq!(asked["method"], "elicitation/create");
        assert_eq!(asked["params"]["message"], "Which?");
        assert_eq!(asked["params"]["mode"], "form");
        client.reply(&asked, json!({"action": "accept", "content": content}));
        stops(&client.answer(id), "end_turn");
        assert_eq!(world.server.last().observation("c1"), answer);
        client.end();
    }

    let world = World::new();
    world.model_says([ask("password"), text("done")]);
    let mut client = Client::with(&world, forms);
    let session = client.session(&world);
    for text in ["go", "hunter2"] {
        stops(&client.prompt(&session, text), "end_turn");
        let said = client.texts(&session, "agent_message_chunk").pop().unwrap();
        assert!(
            said.contains("delta continue") && said.contains("--question"),
            "{said}"
        );
    }
    assert_eq!(
        world.latest().events("HUMAN_INPUT_RECEIVED"),
        [Value::Null; 0]
    );
    world.go_on().args(["-m", "hunter2"]).exits(0);
    client.load(&world, &session);
    assert!(!client.running.stdout().contains("hunter2"));
    client.end();
}

#[test]
fn without_forms_the_next_prompt_is_the_answer() {
    let world = World::new();
    world.model_says([
        call("c1", "ask_human", &json!({"prompt": "Which?"})),
        text("done"),
    ]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    stops(&client.prompt(&session, "go"), "end_turn");
    assert_eq!(
        client.texts(&session, "agent_message_chunk").pop().unwrap(),
        "Which?"
    );
    stops(&client.prompt(&session, "blue"), "end_turn");
    assert_eq!(world.server.last().observation("c1"), "blue");
    client.end();
}

#[test]
fn a_cancelled_turn_ends_as_that_and_the_run_can_go_on() {
    let world = World::new();
    let held = || streaming(&text_stream(&["one ", "two"], None)).pauses_behind(HERE);
    world.model_says([held(), held(), text("done")]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    let arrived = |client: &Client, count: usize| {
        eventually("text arrives", || {
            client.shown(&session, "agent_message_chunk").len() == count
        });
    };
    let id = client.begin(&session, "go");
    arrived(&client, 1);
    client.notify("session/cancel", json!({"sessionId": session}));
    stops(&client.answer(id), "cancelled");
    let run = world.latest();
    assert_eq!(run.ending().1.unwrap(), "SIGINT");
    let id = client.begin(&session, "go on");
    arrived(&client, 2);
    client.notify("$/cancel_request", json!({"requestId": id}));
    stops(&client.answer(id), "cancelled");
    client.notify("session/cancel", json!({"sessionId": session}));
    stops(&client.prompt(&session, "finish"), "end_turn");
    assert_eq!(run.ending().0, "COMPLETED");
    let shown = client.shown(&session, "agent_message_chunk");
    assert_eq!(shown[2]["content"]["text"], "done");
    let ids: BTreeSet<&str> = shown
        .iter()
        .map(|it| it["messageId"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 3, "a cancelled answer is a message of its own");
    client.end();
}

#[test]
fn closing_a_session_cancels_its_turn_first() {
    let world = World::new();
    world.model_says([streaming(&text_stream(&["one ", "two"], None)).pauses_behind(HERE)]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    let prompt = client.begin(&session, "go");
    client.wait("text", |it| it["method"] == "session/update");
    let close = client.call("session/close", json!({"sessionId": session}));
    assert_eq!(close["result"], json!({}));
    stops(&client.answer(prompt), "cancelled");
    let lines = client.lines();
    let at = |id: &Value| lines.iter().position(|it| it["id"] == *id).unwrap();
    assert!(at(&json!(prompt)) < at(&close["id"]));
    fails(&client.prompt(&session, "more"), -32002, "not open");
    client.end();
}

#[test]
fn the_end_of_the_input_ends_what_runs() {
    let world = World::new();
    world.model_says([streaming(&text_stream(&["one ", "two"], None)).pauses_behind(HERE)]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    client.begin(&session, "go");
    client.wait("text", |it| it["method"] == "session/update");
    client.end();
    assert_eq!(world.latest().ending().1.unwrap(), "SIGINT");
}

#[test]
fn a_signal_ends_what_runs_and_answers_its_prompt() {
    let world = World::new();
    world.model_says([streaming(&text_stream(&["one ", "two"], None)).pauses_behind(HERE)]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    let prompt = client.begin(&session, "go");
    client.wait("text", |it| it["method"] == "session/update");
    client.running.signal(Signal::TERM);
    stops(&client.answer(prompt), "cancelled");
    client.running.wait().exits(143);
    assert_eq!(world.latest().ending().1.unwrap(), "SIGINT");
}

#[test]
fn a_call_that_ends_later_is_in_progress_until_a_later_turn() {
    let world = World::with_tools(BUILD);
    let build = call("c1", "build", &json!({"branch": "main"}));
    world.model_says([build, text("done")]).may_stay_unasked();
    let mut client = Client::start(&world);
    let session = client.session(&world);
    let states = |client: &Client| {
        let updates = client.shown(&session, "tool_call_update").into_iter();
        let states = updates.filter(|it| it["toolCallId"] == "c1");
        states.map(|it| it["status"].clone()).collect::<Vec<_>>()
    };
    stops(&client.prompt(&session, "go"), "end_turn");
    assert_eq!(states(&client), ["in_progress"]);
    let said = client.texts(&session, "agent_message_chunk").pop();
    let said = said.unwrap();
    assert!(said.contains("waits for build (ci-7); next look"), "{said}");

    let_time_pass(&world.latest(), &["due_at"]);
    world.write("said", "all green\n");
    world.write("code", "0");
    let words = ["tell", "-w", "ws", "--run-id", &session, "a word"];
    world.delta(words).exits(0);
    stops(&client.prompt(&session, "and now?"), "end_turn");
    assert_eq!(states(&client), ["in_progress", "completed"]);
    assert_eq!(client.texts(&session, "user_message_chunk"), ["a word"]);
    assert_eq!(world.server.last().observation("c1"), "all green\n");
    client.end();
}

#[test]
fn any_run_of_the_directory_can_be_loaded() {
    let world = World::with_tools(TOOLS);
    world.model_says([
        call("c1", "say", &json!({"word": "hi"})),
        text("done"),
        text("more"),
    ]);
    world
        .run("a task\nof two lines")
        .args(["--run-id", "nightly"])
        .exits(0);
    fs::create_dir(world.path("other")).unwrap();
    let mut client = Client::start(&world);
    assert_eq!(client.load(&world, "nightly")["result"], json!({}));
    let kinds: Vec<Value> = client
        .updates("nightly")
        .iter()
        .map(|it| it["sessionUpdate"].clone())
        .collect();
    assert_eq!(
        kinds,
        [
            "user_message_chunk",
            "tool_call",
            "tool_call_update",
            "agent_message_chunk"
        ]
    );
    let last = client.lines().pop().unwrap();
    assert_eq!(last["result"], json!({}), "the answer follows all updates");
    stops(&client.prompt("nightly", "go on"), "end_turn");
    assert_eq!(
        client.texts("nightly", "agent_message_chunk"),
        ["done", "more"]
    );

    let list = client.call("session/list", json!({"cwd": world.workspace()}));
    let sessions = list["result"]["sessions"].as_array().unwrap().clone();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0]["sessionId"], "nightly");
    assert_eq!(sessions[0]["title"], "a task");
    assert_eq!(sessions[0]["cwd"], world.workspace().to_str().unwrap());
    client.end();

    let mut client = Client::start(&world);
    let resume = |session: &str, cwd: &str| json!({"sessionId": session, "cwd": world.path(cwd)});
    assert_eq!(
        client.call("session/resume", resume("nightly", "ws"))["result"],
        json!({})
    );
    assert_eq!(client.updates("nightly"), [Value::Null; 0]);
    fails(
        &client.call("session/resume", resume("nightly", "other")),
        -32602,
        "works in",
    );
    for unknown in ["nightl", "../x", ""] {
        fails(
            &client.call("session/resume", resume(unknown, "ws")),
            -32002,
            "there is no session",
        );
    }
    client.end();
}

/// Puts a copy in place of the workspace, which is then `from`.
fn copy_workspace(world: &World) {
    fs::rename(world.workspace(), world.path("from")).unwrap();
    let mut copy = std::process::Command::new("cp");
    copy.arg("-r").args([world.path("from"), world.workspace()]);
    assert!(copy.status().unwrap().success());
}

#[test]
fn a_list_has_pages() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("task").args(["--run-id", "r"]).exits(0);
    for n in 0..104 {
        let to = world.path(&format!("ws/.delta/r{n:03}"));
        fs::create_dir(&to).unwrap();
        for file in ["journal.jsonl", "metadata.json"] {
            let text = world
                .latest()
                .text(file)
                .replace("\"run_id\":\"r\"", &format!("\"run_id\":\"r{n:03}\""));
            fs::write(
                to.join(file),
                text.replace("\"run_id\": \"r\"", &format!("\"run_id\": \"r{n:03}\"")),
            )
            .unwrap();
        }
    }
    let list = |client: &mut Client, cursor: Value| {
        let params = json!({"cwd": world.workspace(), "cursor": cursor});
        client.call("session/list", params)["result"].take()
    };
    let mut client = Client::start(&world);
    let own = list(&mut client, Value::Null);
    assert_eq!(
        own["sessions"].as_array().unwrap().len(),
        1,
        "copies are foreign"
    );
    // Of a whole copy that is adopted they are not.
    copy_workspace(&world);
    world.adopt("ws");
    let first = list(&mut client, Value::Null);
    let second = list(&mut client, first["nextCursor"].clone());
    assert_eq!(first["sessions"].as_array().unwrap().len(), 100);
    assert_eq!(second["sessions"].as_array().unwrap().len(), 5);
    assert_eq!(second.get("nextCursor"), None);
    let wrong = client.call("session/list", json!({"cursor": "x"}));
    fails(&wrong, -32602, "cursor");
    client.end();
}

#[test]
fn a_foreign_workspace_is_refused_with_the_way_out() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("task").args(["--run-id", "r"]).exits(0);
    copy_workspace(&world);
    let mut client = Client::start(&world);
    let new = client.call(
        "session/new",
        json!({"cwd": world.workspace(), "mcpServers": []}),
    );
    fails(&new, -32603, "--adopt");
    fails(&client.load(&world, "r"), -32603, "--adopt");
    let list = client.call("session/list", json!({"cwd": world.workspace()}));
    assert_eq!(list["result"]["sessions"], json!([]));
    client.end();
    world.delta(["acp", "@nonsuch"]).stdin("").exits(0);
    let mut client = Client::of(world.delta(["acp", "@nonsuch"]));
    let new = client.call(
        "session/new",
        json!({"cwd": world.path("from"), "mcpServers": []}),
    );
    fails(&new, -32603, "no agent is named @nonsuch");
    client.end();
}

#[test]
fn a_killed_translator_loses_nothing() {
    let world = World::with_tools(TOOLS);
    world.model_says([
        streaming(&text_stream(&["one ", "two"], None)).pauses_behind(HERE),
        text("more"),
    ]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    client.begin(&session, "go");
    client.wait("text", |it| it["method"] == "session/update");
    client.running.signal(Signal::KILL);
    client.running.wait();

    // The run goes on; another client sees it, and may not write to it.
    let mut client = Client::start(&world);
    client.load(&world, &session);
    assert_eq!(client.texts(&session, "user_message_chunk"), ["go"]);
    fails(
        &client.prompt(&session, "more"),
        -32603,
        "already running, pid",
    );
    world.server.release();
    let run = world.latest();
    eventually("the run ends", || run.metadata()["status"] == "COMPLETED");
    client.load(&world, &session);
    assert_eq!(client.texts(&session, "agent_message_chunk"), ["one two"]);
    stops(&client.prompt(&session, "more"), "end_turn");
    client.end();
}

#[test]
fn two_clients_take_turns_on_one_session() {
    let world = World::new();
    world.model_says([
        streaming(&text_stream(&["one ", "two"], None)).pauses_behind(HERE),
        text("second"),
    ]);
    let mut first = Client::start(&world);
    let session = first.session(&world);
    let id = first.begin(&session, "go");
    first.wait("text", |it| it["method"] == "session/update");
    fails(&first.prompt(&session, "again"), -32603, "already running");
    let mut second = Client::start(&world);
    second.load(&world, &session);
    fails(
        &second.prompt(&session, "mine"),
        -32603,
        "already running, pid",
    );
    world.server.release();
    stops(&first.answer(id), "end_turn");
    stops(&second.prompt(&session, "mine"), "end_turn");
    first.end();
    second.end();
}

#[test]
fn servers_of_the_client_are_named_once_and_not_started() {
    let world = World::new();
    world.model_says([text("one"), text("two")]);
    let mut client = Client::start(&world);
    let server = json!({"name": "files", "command": "touch", "args": ["started"], "env": []});
    let params = json!({"cwd": world.workspace(), "mcpServers": [server]});
    let session = client.call("session/new", params)["result"]["sessionId"]
        .as_str()
        .unwrap()
        .to_owned();
    for text in ["first", "second"] {
        stops(&client.prompt(&session, text), "end_turn");
    }
    let said = client.texts(&session, "agent_message_chunk");
    assert!(
        said[0].contains("(files)") && said[0].contains("delta mcp import"),
        "{said:?}"
    );
    assert_eq!(said[1..], ["one", "two"]);
    assert!(!world.exists("started") && !world.exists("ws/started"));
    client.end();
}

#[test]
fn the_end_of_a_run_is_the_end_of_a_turn() {
    let limit = World::with_tools(TOOLS).top("max_iterations: 1");
    let mut client = Client::start(&limit);
    limit.model_says([call("c1", "say", &json!({"word": "hi"}))]);
    let session = client.session(&limit);
    stops(&client.prompt(&session, "go"), "max_turn_requests");
    client.end();

    for (reason, stop) in [("length", "max_tokens"), ("content_filter", "end_turn")] {
        let world = World::new();
        world.model_says([answer(
            &json!({"role": "assistant", "content": "half"}),
            reason,
        )]);
        let mut client = Client::start(&world);
        let session = client.session(&world);
        stops(&client.prompt(&session, "go"), stop);
        let said = client.texts(&session, "agent_message_chunk");
        assert!(said[1].contains(reason), "{said:?}");
        client.end();
    }

    let world = World::new();
    world.model_says([Reply::error(400, "no such model")]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    fails(&client.prompt(&session, "go"), -32603, "no such model");
    client.end();
}

#[test]
fn what_a_client_has_not_declared_is_not_sent() {
    let shown = |capabilities: Value| {
        let world = World::new().llm("window: 1000").llm("max_retries: 0");
        world.model_says([text("done")]);
        world.run("task").args(["--run-id", "r"]).exits(0);
        let mut journal = world.latest().text("journal.jsonl");
        let mut forge = |line: Value| journal.push_str(&format!("{line}\n"));
        forge(json!({"seq": 90, "type": "SYSTEM_MESSAGE", "level": "WARN", "content": "careful"}));
        forge(json!({"seq": 91, "type": "COMPACTION", "by": "clear", "through_seq": 1}));
        forge(json!({"seq": 92, "type": "ACTION_DEFERRED", "action_id": "d"}));
        forge(
            json!({"seq": 93, "type": "ACTION_RESULT", "action_id": 7, "observation_content": {}}),
        );
        forge(
            json!({"seq": 94, "type": "THOUGHT", "tool_calls": [{}], "content": [1], "usage": null}),
        );
        fs::write(world.latest().path("journal.jsonl"), journal + "half a li").unwrap();
        let mut client = Client::with(&world, capabilities);
        assert_eq!(client.load(&world, "r")["result"], json!({}));
        let kinds: Vec<Value> = client
            .updates("r")
            .iter()
            .map(|it| it["sessionUpdate"].clone())
            .collect();
        client.end();
        kinds
    };
    let base = ["user_message_chunk", "agent_message_chunk", "usage_update"];
    let plain = shown(json!({"session": {"compaction": null}}));
    assert_eq!(plain[..3], base);
    assert!(!plain.contains(&json!("notice")) && !plain.contains(&json!("compaction_update")));
    let all = shown(json!({"session": {"compaction": {}, "notices": {}}}));
    assert_eq!(all[..3], base);
    assert_eq!(
        all[3..6],
        ["notice", "compaction_update", "tool_call_update"]
    );
}

#[test]
fn a_client_that_does_not_read_ends_no_run_and_can_go() {
    let world = World::with_tools("- {name: long, exec: 'seq 100000'}");
    let call = |id: u32| call(&format!("c{id}"), "long", &json!({}));
    world.model_says((1..6).map(call).chain([text("done")]));
    world.run("task").args(["--run-id", "r"]).exits(0);
    let _unread = world.fifo("unread");
    let mut client = Client::of(world.delta(["acp", "-a", "agent"]).after("exec > unread"));
    let params = json!({"sessionId": "r", "cwd": world.workspace(), "mcpServers": []});
    client.request("session/load", params.clone());
    world.model_says([text("more")]);
    client.begin("r", "go on");
    for _ in 0..40 {
        client.request("session/load", params.clone());
    }
    eventually("the run ends", || {
        world.latest().events_so_far("ENGINE_END").len() == 2
    });
    client.end();
}

#[test]
fn a_prompt_that_is_cut_within_a_character_is_answered() {
    let world = World::with_tools(TOOLS);
    world.model_says([text("Hi.")]);
    let mut client = Client::start(&world);
    let session = client.session(&world);
    client.running.type_in(&format!(
        r#"{{"jsonrpc":"2.0","id":900,"method":"session/prompt","params":{{"sessionId":"{session}","prompt":[{{"type":"text","text":"Launch \ud83d"}}]}}}}"#
    ));
    client.running.type_in("\n");
    assert_eq!(client.answer(900)["result"]["stopReason"], "end_turn");
    let sent = world.server.last().messages();
    let asked = sent.last().unwrap()["content"].to_string();
    assert!(asked.contains("Launch \u{fffd}"), "{asked}");
    client.end();
}

#[test]
fn a_client_chooses_among_the_models_that_the_endpoint_lists() {
    let world = World::new();
    let list = json!({"data": [{"id": "scripted"}, {"id": "other"}]});
    world.server.lists(list);
    let mut client = Client::start(&world);
    let params = json!({"cwd": world.workspace(), "mcpServers": []});
    let new = client.call("session/new", params.clone())["result"].clone();
    let session = new["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(
        new["models"],
        json!({"currentModelId": "scripted", "availableModels": [
            {"modelId": "other", "name": "other"}, {"modelId": "scripted", "name": "scripted"}]})
    );
    assert_eq!(
        new["configOptions"],
        json!([{"id": "model", "name": "Model", "category": "model", "type": "select",
            "currentValue": "scripted", "options": [
                {"value": "other", "name": "other"}, {"value": "scripted", "name": "scripted"}]}])
    );
    let asked = |client: &mut Client, text: &str| {
        world.model_says([crate::harness::text("ok")]);
        stops(&client.prompt(&session, text), "end_turn");
        world.server.last().json()["model"].clone()
    };
    assert_eq!(asked(&mut client, "one"), "scripted");
    let set = json!({"sessionId": session, "modelId": "other"});
    let answer = client.call("session/set_model", set);
    assert_eq!(answer["result"]["models"]["currentModelId"], "other");
    assert_eq!(asked(&mut client, "two"), "other");
    assert_eq!(asked(&mut client, "three"), "other");
    for (method, params, code) in [
        (
            "session/set_model",
            json!({"sessionId": session, "modelId": "evil"}),
            -32601,
        ),
        ("session/set_model", json!({"sessionId": session}), -32601),
        (
            "session/set_model",
            json!({"sessionId": "none", "modelId": "other"}),
            -32002,
        ),
        (
            "session/set_config_option",
            json!({"sessionId": session, "configId": "x", "value": "y"}),
            -32601,
        ),
    ] {
        assert_eq!(
            client.call(method, params.clone())["error"]["code"],
            code,
            "{method} {params}"
        );
    }
    let set = json!({"sessionId": session, "configId": "model", "value": "scripted"});
    let answer = client.call("session/set_config_option", set);
    assert_eq!(
        answer["result"]["configOptions"][0]["currentValue"],
        "scripted"
    );
    assert_eq!(asked(&mut client, "four"), "scripted");
    // Another client finds what was asked last.
    let set = json!({"sessionId": session, "modelId": "other"});
    client.call("session/set_model", set);
    assert_eq!(asked(&mut client, "five"), "other");
    let mut second = Client::start(&world);
    let mut load = params;
    load["sessionId"] = session.as_str().into();
    let loaded = second.call("session/resume", load);
    assert_eq!(loaded["result"]["models"]["currentModelId"], "other");
}
