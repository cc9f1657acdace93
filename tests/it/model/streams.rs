//! `llm.stream: auto`: which requests ask for a stream, what a service that refuses is asked, and where the text shows.

use crate::harness::services::*;
use crate::harness::steps::*;
use crate::harness::*;
use serde_json::{Value, json};

/// An agent that is asked over an API, with streams as they are by default.
fn automatic(api: Api) -> World {
    World::with_tools(ECHO).llm(&format!("api: {}", api.name()))
}

/// What the requests said of streams.
fn asked(world: &World) -> Vec<Value> {
    let requests = world.server.requests();
    requests
        .iter()
        .map(|it| it.json()["stream"].clone())
        .collect()
}

#[test]
fn chat_completions_are_streamed_only_to_a_terminal_and_the_other_apis_always() {
    for api in APIS {
        let world = automatic(api);
        serve(&world, 2);
        world.run("go").exits(0).prints("done\n");
        let whole = if api == Api::Chat {
            Value::Null
        } else {
            json!(true)
        };
        assert_eq!(asked(&world), [whole.clone(), whole], "{api:?}");

        let world = automatic(api);
        serve(&world, 2);
        let terminal = Terminal::new();
        let run = world.run("go").at(&terminal).exits(0);
        run.prints("done\n");
        assert_eq!(asked(&world), [true, true], "{api:?}");
        // A replay asks as the run did, whatever its own terminal.
        world
            .delta(["replay", "-w", "ws", "LATEST"])
            .exits(0)
            .prints("identical: 2 requests\n");

        let world = automatic(api);
        serve(&world, 1);
        let off = world.run("go").args(["--set", "llm.stream=false"]);
        off.at(&Terminal::new()).exits(0);
        assert_eq!(asked(&world), [Value::Null], "{api:?}");
    }
}

#[test]
fn a_service_that_refuses_to_stream_is_asked_without_for_the_rest_of_the_run() {
    const REFUSED: &str = "Your organization must be verified to stream this model.";
    for (api, status) in APIS.into_iter().zip([400, 422, 400]) {
        let world = automatic(api);
        world.server.answers(move |received| {
            let request = received.json();
            match request["stream"] == true {
                true => refusal(REFUSED, "unsupported_value").status(status),
                false => reply(api, received, &said(answers(api, &request) + 1, 4)),
            }
        });
        let start = || {
            world
                .run("go")
                .args(["--max-iterations", "2"])
                .at(&Terminal::new())
                .exits(4)
        };
        start();
        let (yes, no) = (json!(true), Value::Null);
        assert_eq!(asked(&world), [&yes, &no, &no].map(Clone::clone), "{api:?}");
        let remedy = world.latest().events("SYSTEM_MESSAGE").remove(0)["remedy"].clone();
        assert_eq!(remedy["name"], "without_stream", "{api:?}");
        // The next start knows it.
        world
            .run("go")
            .at(&Terminal::new())
            .exits(0)
            .prints("done\n");
        assert_eq!(asked(&world)[3..], [no.clone(), no], "{api:?}");
        world
            .delta(["replay", "-w", "ws", "LATEST"])
            .exits(0)
            .prints("identical: 4 requests\n");

        // Who asks for a stream is told that there is none.
        let refused = world.run("other").args(["--set", "llm.stream=true"]);
        refused.exits(4).says(REFUSED);
    }
}

#[test]
fn the_text_of_a_run_shows_once_as_it_arrives() {
    let answers = || {
        [
            streaming(&text_stream(&["I look ", "first."], Some("a.txt"))),
            streaming(&text_stream(&["It is ", "\u{1b}[1mwhole."], None)),
        ]
    };
    let read = "- {name: read, exec: 'cat ${path}'}";
    let world = World::with_tools(read);
    world.write("ws/a.txt", "content\n");
    let shown = |message: &str| world.run(message).env("NO_COLOR", "1");

    // On a terminal: both the result and the progress.
    let mut terminal = Terminal::new();
    world.model_says(answers());
    shown("go").all_at(&terminal).exits(0);
    let all = terminal.rest().replace("\r\n", "\n");
    assert!(all.contains("I look first.\n[1] $ cat a.txt"), "{all:?}");
    assert!(
        all.contains("\nIt is \u{FFFD}[1mwhole.\n[2] answers ("),
        "{all:?}"
    );
    assert_eq!(all.matches("whole.").count(), 1, "{all:?}");

    // Into a file goes the answer alone; the text is progress.
    let mut terminal = Terminal::new();
    world.model_says(answers());
    let run = shown("to a file").at(&terminal).exits(0);
    run.prints("It is \u{1b}[1mwhole.\n");
    let all = terminal.rest();
    assert_eq!(all.matches("I look first.").count(), 1, "{all:?}");
    assert_eq!(all.matches("It is \u{FFFD}[1mwhole.").count(), 1, "{all:?}");

    // An object, or no progress: nothing but the result.
    for (args, looks) in [(&["--format", "json"][..], 1), (&["-q"], 0)] {
        let mut terminal = Terminal::new();
        world.model_says(answers());
        shown("quietly").args(args).all_at(&terminal).exits(0);
        let all = terminal.rest();
        assert_eq!(all.matches("whole.").count(), 1, "{args:?}: {all:?}");
        // In the line of the call, where there is progress.
        assert_eq!(
            all.matches("I look first. (").count(),
            looks,
            "{args:?}: {all:?}"
        );
        assert_eq!(
            all.matches("I look first.").count(),
            looks,
            "{args:?}: {all:?}"
        );
    }

    // A hook may change it.
    let hook = "#!/bin/sh\nsed 's/whole/public/' \"$DELTA_HOOK_IO_PATH/input/payload.json\" \
                > \"$DELTA_HOOK_IO_PATH/output/final_payload.json\"\n";
    world.script("agent/hook.sh", hook);
    world.write(
        "agent/hooks.yaml",
        "post_llm_response: {command: ['${AGENT_HOME}/hook.sh']}\n",
    );
    let mut terminal = Terminal::new();
    world.model_says(answers());
    shown("with a hook").all_at(&terminal).exits(0);
    let all = terminal.rest();
    assert!(
        all.contains("[1mpublic.") && !all.contains("whole."),
        "{all:?}"
    );
}
