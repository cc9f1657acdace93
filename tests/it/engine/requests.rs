//! What the model is sent, and what of it is on disk.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";

/// A conversation of ten requests: nine tool calls and an answer.
fn ten_requests() -> World {
    let world = World::with_tools(ECHO);
    talk(&world, 10);
    world
}

fn talk(world: &World, requests: usize) {
    for n in 1..requests {
        let words = json!({"words": format!("number {n} \"quoted\" \u{e9}")});
        world.model_says([call(&format!("call_{n}"), "echo", &words)]);
    }
    world.model_says([text("done")]);
    world.run("count").exits(0).prints("done\n");
}

#[test]
fn what_the_server_received_is_what_is_on_disk() {
    let world = ten_requests();
    let received = world.server.requests();
    let invocations = world.latest().invocations();
    assert_eq!(received.len(), 10);
    assert_eq!(invocations.len(), 10);
    for (request, invocation) in received.iter().zip(invocations) {
        let on_disk = fs::read(invocation.join("request.json")).unwrap();
        assert_eq!(
            String::from_utf8(on_disk),
            String::from_utf8(request.body.clone())
        );
    }
}

#[test]
fn each_request_begins_with_the_one_before() {
    let received = ten_requests().server.requests();
    for pair in received.windows(2) {
        let (before, after) = (&pair[0].body, &pair[1].body);
        // Without the end of the list of messages and of the object.
        let prefix = before.strip_suffix(b"]}").expect("messages come last");
        assert!(
            after.starts_with(prefix),
            "request {} does not repeat its predecessor",
            pair[1].number
        );
        assert_eq!(after[prefix.len()], b',');
    }
}

#[test]
fn all_requests_of_a_run_use_one_connection() {
    let world = ten_requests();
    assert_eq!(world.server.connections(), 1);
    assert!(
        world
            .server
            .requests()
            .iter()
            .all(|request| request.connection == 1)
    );
}

#[test]
fn a_request_is_on_disk_before_it_is_sent() {
    let world = World::new();
    let workspace = world.workspace();
    world.model_says([Reply::of(move |request| {
        let invocation = Run::latest(&workspace).invocations().remove(0);
        let on_disk = fs::read(invocation.join("request.json")).unwrap();
        text(if on_disk == request.body {
            "the same"
        } else {
            "another"
        })
    })]);
    world.run("go").exits(0).prints("the same\n");
}

#[test]
fn a_response_is_kept_as_it_came() {
    let world = World::new();
    let body = "{ \"extra\" : 1.50,\n\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"h\\u0069\"}}] }\n";
    world.model_says([raw(body)]);
    world.run("go").exits(0).prints("hi\n");
    let invocation = world.latest().invocations().remove(0);
    assert_eq!(
        fs::read_to_string(invocation.join("response.json")).unwrap(),
        body
    );
}

#[test]
fn a_response_that_is_no_text_at_all_is_kept_as_it_came() {
    let world = World::new().llm("max_retries: 0");
    world.model_says([raw(b"\xff\x00<html>".as_slice())]);
    world.run("go").exits(75);
    let invocation = world.latest().invocations().remove(0);
    assert_eq!(
        fs::read(invocation.join("response.json")).unwrap(),
        b"\xff\x00<html>"
    );
}

#[test]
fn an_invocation_tells_its_status_tokens_and_attempts() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let invocation = world.latest().invocations().remove(0);
    let name = invocation.file_name().unwrap().to_str().unwrap().to_owned();
    let (time, iteration) = name.split_once('_').unwrap();
    assert_eq!(
        (time.len(), iteration),
        ("20260102T030405.678Z".len(), "1"),
        "{name}"
    );
    let metadata = fs::read(invocation.join("metadata.json")).unwrap();
    let metadata: Value = serde_json::from_slice(&metadata).unwrap();
    assert!(metadata["model_id"].is_string(), "{metadata}");
    assert_eq!(metadata["status"], "SUCCESS");
    assert_eq!(metadata["http_status"], 200);
    assert!(metadata["duration_ms"].is_u64(), "{metadata}");
    assert_eq!(metadata["token_usage"]["prompt"], 100);
    assert_eq!(metadata["token_usage"]["completion"], 10);
    assert_eq!(metadata["token_usage"]["total"], 110);
    let attempts = metadata["attempts"].as_array().expect("attempts");
    assert_eq!(attempts.len(), 1);
    for key in ["started_at", "duration_ms", "outcome"] {
        assert!(!attempts[0][key].is_null(), "{key} in {metadata}");
    }
}

#[test]
fn the_last_invocation_is_the_one_that_the_thought_refers_to() {
    let world = ten_requests();
    let run = world.latest();
    let thoughts = run.events("THOUGHT");
    for (thought, invocation) in thoughts.iter().zip(run.invocations()) {
        let reference = thought["llm_invocation_ref"].as_str().expect("a reference");
        let name = invocation.file_name().unwrap().to_str().unwrap();
        assert!(
            reference.trim_end_matches('/').ends_with(name),
            "{reference} is not {name}"
        );
    }
}

#[test]
fn keys_of_llm_go_into_the_request_as_they_are_in_their_order() {
    let world = World::new().llm(
        "top_p: 0.95\ntemperature: 0.2\nseed: 7\nmax_tokens: 4096\nreasoning_effort: low\n\
         response_format: {type: text}\nstop: [a, b]\nlogprobs: false\ntimeout_ms: 5000\nmax_retries: 1",
    );
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let body = String::from_utf8(world.server.last().body.clone()).unwrap();
    let wanted = r#""top_p":0.95,"temperature":0.2,"seed":7,"max_tokens":4096,"reasoning_effort":"low","response_format":{"type":"text"},"stop":["a","b"],"logprobs":false"#;
    assert!(body.contains(wanted), "{body}");
    for own in ["timeout_ms", "max_retries", "base_url", "command"] {
        assert!(!body.contains(own), "{own} in {body}");
    }
}

#[test]
fn a_request_names_the_model_and_ends_with_the_messages() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("What now?").exits(0);
    let request = world.server.last();
    assert_eq!(request.line, "POST /v1/chat/completions HTTP/1.1");
    assert!(
        request
            .header("content-type")
            .unwrap()
            .starts_with("application/json")
    );
    assert_eq!(request.json()["model"], "scripted");
    let expected = json!([
        {"role": "system", "content": request.messages()[0]["content"]},
        {"role": "user", "content": "What now?"},
    ]);
    assert_eq!(Value::Array(request.messages()), expected);
}

#[test]
fn blocks_before_the_conversation_are_one_system_message() {
    let world = World::new();
    world.write("agent/system_prompt.md", "You are a test.");
    world.write("ws/DELTA.md", "Mind the gap.\n\nAlways.");
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let system = &world.server.last().messages()[0];
    let wanted = "# Context Block: system_prompt\n\nYou are a test.\n\n\
                  # Context Block: workspace_guide\n\nMind the gap.\n\nAlways.";
    assert_eq!(system["content"].as_str().unwrap().trim_end(), wanted);
}

#[test]
fn blocks_are_system_messages_of_their_own_when_told_so() {
    let world = World::new();
    let context = world.read("agent/context.yaml");
    world.write(
        "agent/context.yaml",
        format!("system_messages: separate\n{context}"),
    );
    world.write("ws/DELTA.md", "Mind the gap.");
    world.server.accepts_anything().says([text("done")]);
    world.run("go").exits(0);
    let messages = world.server.last().messages();
    assert_eq!(roles(&messages), ["system", "system", "user"]);
    assert_eq!(
        messages[1]["content"].as_str().unwrap().trim_end(),
        "# Context Block: workspace_guide\n\nMind the gap."
    );
}

#[test]
fn a_block_without_an_id_is_named_after_its_file() {
    let world = World::new();
    let sources =
        "sources:\n  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}\n  - {type: journal}\n";
    world.write("agent/context.yaml", sources);
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let system = world.server.last().messages()[0]["content"].to_string();
    assert!(
        system.contains("# Context Block: system_prompt.md"),
        "{system}"
    );
}

#[test]
fn blocks_after_the_conversation_are_one_user_message_at_the_end() {
    let world = World::with_tools(ECHO);
    let sources = "sources:\n  - {type: journal}\n  \
                   - {type: file, id: state, path: '${CWD}/state.md'}\n  \
                   - {type: file, id: rules, path: '${AGENT_HOME}/system_prompt.md'}\n";
    world.write("agent/context.yaml", sources);
    world.write("ws/state.md", "Nothing yet.");
    world.model_says([call("call_1", "echo", &json!({"words": "x"})), text("done")]);
    world.run("go").exits(0);
    let messages = world.server.last().messages();
    assert_eq!(roles(&messages), ["user", "assistant", "tool", "user"]);
    let last = messages[3]["content"].as_str().unwrap();
    assert!(
        last.starts_with("# Context Block: state\n\nNothing yet.\n\n# Context Block: rules\n\n"),
        "{last}"
    );
}

#[test]
fn a_file_source_is_read_afresh_for_each_request() {
    let world =
        World::with_tools("- {name: note, shell: 'printf %s ${words} > \"$CWD/DELTA.md\"'}");
    world.model_says([
        call("call_1", "note", &json!({"words": "fresh"})),
        text("done"),
    ]);
    world.run("go").exits(0);
    let system = world.server.last().messages()[0]["content"].to_string();
    assert!(system.contains("workspace_guide\\n\\nfresh"), "{system}");
}

#[test]
fn the_last_iterations_are_kept_with_every_user_message() {
    let world = World::with_tools(ECHO);
    let sources = "sources:\n  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}\n  \
                   - {type: journal, max_iterations: 2}\n";
    world.write("agent/context.yaml", sources);
    talk(&world, 6);
    let messages = world.server.last().messages();
    assert_eq!(
        roles(&messages),
        ["system", "user", "assistant", "tool", "assistant", "tool"]
    );
    assert_eq!(messages[1]["content"], "count");
    assert_eq!(messages[3]["tool_call_id"], "call_4");
    assert_eq!(messages[5]["tool_call_id"], "call_5");
}

#[test]
fn without_a_journal_source_the_user_is_warned_once() {
    let world = World::with_tools(ECHO);
    let sources = "sources:\n  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}\n";
    world.write("agent/context.yaml", sources);
    world.model_says([call("call_1", "echo", &json!({"words": "x"})), text("done")]);
    let outcome = world.run("go").exits(0);
    let warning = "the model will not see its task";
    assert_eq!(
        outcome.stderr.matches(warning).count(),
        1,
        "{}",
        outcome.describe()
    );
}

#[test]
fn a_tool_is_offered_with_all_that_its_parameters_say() {
    let world = World::with_tools(
        "- name: search\n  description: Look for it\n  exec: 'grep ${mode} -- ${pattern} ${file} ${depth}'\n  \
         parameters:\n  - {name: pattern, description: What}\n  \
         - {name: file, default: notes.txt}\n  \
         - {name: mode, enum: ['-i', '-v'], required: false}\n  \
         - {name: depth, type: integer, default: 3, minimum: 1}",
    );
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let request = world.server.last().json();
    let tools = request["tools"].as_array().expect("tools");
    let search = &tools
        .iter()
        .find(|t| t["function"]["name"] == "search")
        .unwrap()["function"];
    assert_eq!(search["description"], "Look for it");
    let schema = &search["parameters"];
    assert_eq!(schema["type"], "object");
    let properties = &schema["properties"];
    assert_eq!(properties["pattern"]["type"], "string");
    assert_eq!(properties["pattern"]["description"], "What");
    assert_eq!(properties["file"]["default"], "notes.txt");
    assert_eq!(properties["mode"]["enum"], json!(["-i", "-v"]));
    assert_eq!(properties["depth"]["type"], "integer");
    assert_eq!(properties["depth"]["default"], 3);
    assert_eq!(properties["depth"]["minimum"], 1);
    assert_eq!(schema["required"], json!(["pattern"]));
}

#[test]
fn a_tool_without_a_description_is_described_by_its_template() {
    let world = World::with_tools(ECHO);
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let tools = world.server.last().json()["tools"].to_string();
    assert!(tools.contains("echo ${words}"), "{tools}");
}

#[test]
fn ask_human_is_offered_unless_the_agent_says_no() {
    let offered = |world: World| {
        world.model_says([text("done")]);
        world.run("go").exits(0);
        world.server.last().json()["tools"]
            .to_string()
            .contains("ask_human")
    };
    assert!(offered(World::with_tools(ECHO)));
    assert!(!offered(World::with_tools(ECHO).top("ask_human: false")));
}

#[test]
fn an_agent_without_any_tool_sends_no_list_of_tools() {
    let world = World::new().top("ask_human: false");
    world.model_says([text("done")]);
    world.run("go").exits(0);
    assert!(world.server.last().json().get("tools").is_none());
}

/// `delta request RUN [N]`.
fn request(world: &World, number: Option<usize>) -> Vec<u8> {
    let id = world.latest().id();
    let number = number.map(|n| n.to_string());
    let delta = world.delta(["request", "-w", "ws", &id]).args(number);
    delta.exits(0).stdout
}

#[test]
fn old_requests_are_kept_as_tails_and_can_all_be_printed() {
    let world = World::with_tools(ECHO).top("keep_requests: 3");
    talk(&world, 10);
    let received = world.server.requests();
    for (at, sent) in received.iter().enumerate() {
        assert_eq!(
            request(&world, Some(at + 1)),
            sent.body,
            "request {}",
            at + 1
        );
    }
    assert_eq!(request(&world, None), received[9].body);
    let invocations = world.latest().invocations();
    let whole: Vec<bool> = invocations
        .iter()
        .map(|dir| dir.join("request.json").exists())
        .collect();
    assert_eq!(whole[7..], [true; 3], "the newest three are whole");
    assert_eq!(whole[1..7], [false; 6], "older ones are tails");
    for (at, dir) in invocations[1..7].iter().enumerate() {
        let tail = fs::metadata(dir.join("request.tail.json"))
            .expect("a tail")
            .len() as usize;
        assert!(
            tail < received[at + 1].body.len() / 2,
            "tail {} has {tail} bytes",
            at + 2
        );
    }
}

#[test]
fn the_disk_that_a_run_takes_grows_with_the_conversation_and_not_with_its_square() {
    let bytes = |requests: usize, keep: usize| {
        let top = format!("sync: false\nkeep_requests: {keep}\nmax_iterations: 1000");
        let world = World::with_tools(ECHO).top(&top);
        talk(&world, requests);
        let files = files_below(&world.path("ws/.delta"));
        let sizes = files.iter().map(|file| fs::metadata(file).unwrap().len());
        sizes.sum::<u64>() as f64
    };
    let grown = bytes(120, 3) / bytes(60, 3);
    assert!((1.8..2.2).contains(&grown), "{grown}");
    let whole = bytes(120, 0) / bytes(60, 0);
    assert!(whole > 2.5, "all of them whole is the square: {whole}");
}

#[test]
fn all_requests_are_whole_when_told_so() {
    let world = World::with_tools(ECHO).top("keep_requests: 0");
    talk(&world, 8);
    let invocations = world.latest().invocations();
    assert!(
        invocations
            .iter()
            .all(|dir| dir.join("request.json").exists())
    );
    assert_eq!(request(&world, Some(1)), world.server.requests()[0].body);
}

#[test]
fn a_request_that_does_not_extend_its_predecessor_can_be_printed_too() {
    let world = World::with_tools(ECHO).top("keep_requests: 1");
    let sources = "sources:\n  - {type: journal, max_iterations: 2}\n  \
                   - {type: file, id: rules, path: '${AGENT_HOME}/system_prompt.md'}\n";
    world.write("agent/context.yaml", sources);
    talk(&world, 7);
    for (at, sent) in world.server.requests().iter().enumerate() {
        assert_eq!(
            request(&world, Some(at + 1)),
            sent.body,
            "request {}",
            at + 1
        );
    }
}

#[test]
fn a_request_that_was_never_made_is_an_error() {
    let world = World::with_tools(ECHO);
    talk(&world, 2);
    let id = world.latest().id();
    world
        .delta(["request", "-w", "ws", &id, "3"])
        .refuses(1, "3");
    world
        .delta(["request", "-w", "ws", "nowhere"])
        .refuses(1, "nowhere");
}

#[test]
fn requests_are_told_apart_by_their_iteration_even_if_the_clock_went_back() {
    let world = World::with_tools(ECHO);
    talk(&world, 4);
    let sent = world.server.requests();
    let first = world.latest().invocations().remove(0);
    let name = first.file_name().unwrap().to_str().unwrap();
    let (_, iteration) = name.split_once('_').unwrap();
    fs::rename(
        &first,
        first.with_file_name(format!("20990101T000000.000Z_{iteration}")),
    )
    .unwrap();
    for (at, sent) in sent.iter().enumerate() {
        assert_eq!(request(&world, Some(at + 1)), sent.body, "request {at}");
    }
    assert_eq!(request(&world, None), sent[3].body);
}

/// A run whose requests share now much, now little: the window moves, a block before the conversation
/// changes its length, and another engine takes the run up halfway.
fn varied(tool: &str, window: usize) -> World {
    let world = World::with_tools("- {name: echo, exec: '${AGENT_HOME}/echo ${words}'}")
        .top("keep_requests: 2");
    world.script("agent/echo", tool);
    let sources = format!(
        "sources:\n  - {{type: file, id: rules, path: '${{CWD}}/rules'}}\n  \
         - {{type: journal, max_iterations: {window}}}\n"
    );
    world.write("agent/context.yaml", sources);
    world.write("ws/rules", "Be brief.");
    for n in 1..14 {
        let words = json!({"words": format!("number {n} {}", "\u{e9}".repeat(n * 40))});
        world.model_says([call(&format!("call_{n}"), "echo", &words)]);
    }
    world.model_says([text("done")]);
    world.run("go").args(["--max-iterations", "7"]).exits(4);
    world.go_on().exits(0).prints("done\n");
    world
}

#[test]
fn each_request_can_be_printed_whatever_it_shares_with_the_others() {
    let world = varied(
        "#!/bin/sh\ncase $1 in *3\\ *|*9\\ *) echo more >>rules;; *5\\ *) echo less >rules;; esac\n",
        6,
    );
    let received = world.server.requests();
    assert_eq!(received.len(), 14);
    for (at, sent) in received.iter().enumerate() {
        let printed = request(&world, Some(at + 1));
        assert!(printed == sent.body, "request {}", at + 1);
    }
    for dir in world.latest().invocations() {
        let mut names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.retain(|name| name.starts_with('.'));
        assert_eq!(names, [""; 0], "{}", dir.display());
    }
}

#[test]
fn a_link_to_an_old_request_keeps_its_bytes() {
    let world = varied(
        "#!/bin/sh\nmkdir -p links\nfor each in .delta/*/io/invocations/*/request.json; do\n\
         name=$(basename \"$(dirname \"$each\")\"); [ -e \"links/$name\" ] || ln \"$each\" \"links/$name\"\ndone\n",
        6,
    );
    let received = world.server.requests();
    let run = world.latest();
    let mut compared = 0;
    for (dir, sent) in run.invocations().iter().zip(&received) {
        let link = world.path("ws/links").join(dir.file_name().unwrap());
        if link.exists() {
            assert!(fs::read(&link).unwrap() == sent.body, "{}", dir.display());
            compared += 1;
        }
    }
    assert_eq!(compared, 13);
}

#[test]
fn an_old_request_that_somebody_changed_spoils_no_other() {
    let world = varied(
        "#!/bin/sh\nfor each in .delta/*/io/invocations/*/request.json; do\n\
         printf X | dd of=\"$each\" conv=notrunc 2>/dev/null; touch -d @1 \"$each\"\ndone\n",
        100,
    );
    let received = world.server.requests();
    let (last, newest) = (received.last().unwrap(), world.latest().invocations());
    let newest = newest.last().unwrap();
    assert!(fs::read(newest.join("request.json")).unwrap() == last.body);
}

#[test]
fn a_request_that_builds_on_one_that_was_cut_is_not_made_up() {
    let world = World::with_tools(ECHO).top("keep_requests: 1");
    talk(&world, 4);
    let first = world.latest().invocations()[0].join("request.json");
    fs::write(&first, "{").expect("a cut request");
    let id = world.latest().id();
    let ended = world.delta(["request", "-w", "ws", &id, "3"]).end();
    let ended = ended.exits(1);
    assert!(
        ended.stderr.contains("has been truncated"),
        "{}",
        ended.stderr
    );
    assert!(ended.stdout.is_empty());
}

#[test]
fn no_link_in_the_place_of_a_request_is_followed() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let dir = world.latest().invocations().remove(0);
    world.write("secret/request.json", "SECRET");
    let refused = |says: &str| {
        for command in ["request", "replay", "report"] {
            let outcome = world.delta([command, "-w", "ws", "LATEST"]).end();
            let shown = outcome.describe();
            assert!(!shown.contains("SECRET"), "{command}: {shown}");
            assert!(command != "request" || shown.contains(says), "{shown}");
        }
        // The answer is in the journal.
        world.delta(["log", "-w", "ws"]).exits(0).says("");
    };
    let (answer, elsewhere) = (
        dir.join("response.json"),
        world.path("secret/response.json"),
    );
    fs::rename(&answer, &elsewhere).unwrap();
    symlink(&elsewhere, &answer).unwrap();
    let replay = world.delta(["replay", "-w", "ws", "LATEST"]).end();
    replay.says("response.json: it is not a regular file");
    fs::rename(&elsewhere, &answer).unwrap();
    fs::remove_file(dir.join("request.json")).unwrap();
    symlink(world.path("secret/request.json"), dir.join("request.json")).unwrap();
    refused("not a regular file");
    fs::remove_dir_all(&dir).unwrap();
    symlink(world.path("secret"), &dir).unwrap();
    refused("is a link");
}

#[test]
fn a_request_that_builds_on_itself_is_refused() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let dir = world.latest().invocations().remove(0);
    let name = dir.file_name().unwrap().to_str().unwrap();
    let tail = json!({"extends": name, "bytes": 0, "tail": ""});
    fs::remove_file(dir.join("request.json")).unwrap();
    fs::write(dir.join("request.tail.json"), tail.to_string()).unwrap();
    let request = world.delta(["request", "-w", "ws", "LATEST"]);
    request.refuses(1, "it builds on itself");
}
