//! The page of `delta report` in a real browser, where there is one.

use crate::harness::*;
use crate::report::{HOSTILE, page};
use crate::subagents::{family, model};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;

const TOOLS: &str = "
- {name: echo, exec: 'echo ${words}'}
- {name: fail, shell: 'printf nee%s dle >&2; exit 3'}
";

/// A page in a browser; none if there is no browser.
#[track_caller]
fn shown(world: &World, workspace: &str, fragment: &str) -> Option<Opened> {
    let file = world.write("report.html", page(world, workspace));
    open(world.home(), &file, fragment)
}

/// A run of three iterations; the tool of the second fails.
fn three() -> World {
    let world = World::with_tools(TOOLS);
    world.model_says([
        call(
            "call_1",
            "echo",
            &json!({"words": "first words\nand others"}),
        ),
        call("call_2", "fail", &json!({})),
        text("The end."),
    ]);
    world.run("Say something.").exits(0);
    world
}

#[test]
fn a_page_that_complains_or_asks_for_something_is_noticed() {
    let world = World::unasked();
    let page = "<!doctype html><html><img src='http://a.test/x.png'><img src='http://127.0.0.1:4999/y.png'>\
        <script>console.log('a word'); setTimeout(() => late(), 50);\
        document.documentElement.dataset.ready = ''; let unknown = there;</script></html>";
    let Some(shown) = open(world.home(), &world.write("page.html", page), "") else {
        return;
    };
    for place in ["http://a.test/x.png", "http://127.0.0.1:4999/y.png"] {
        let is_asked = shown.requests.iter().any(|line| line.contains(place));
        assert!(is_asked, "{:?}", shown.requests);
    }
    for words in ["a word", "there is not defined", "late is not defined"] {
        let is_said = shown.console.iter().any(|line| line.contains(words));
        assert!(is_said, "{:?}", shown.console);
    }
}

#[test]
fn a_page_opens_without_error_and_asks_for_nothing() {
    let world = three();
    let Some(shown) = shown(&world, "ws", "") else {
        return;
    };
    shown.is_well();
    for text in [
        "Say something.",
        "The end.",
        "COMPLETED",
        "exit code 3",
        "calls echo",
    ] {
        shown.shows(text);
    }
    // An output is behind a fold, and not there before that is opened.
    shown.shows_not("and others\n</pre>");
}

#[test]
fn a_script_in_an_output_is_text() {
    let world = World::with_tools(TOOLS);
    let url = world.server.url();
    let hostile = format!("{HOSTILE}<img src='{url}/x'><link rel=stylesheet href='{url}/y'>");
    let first = call("call_1", "echo", &json!({"words": hostile}));
    world.model_says([first, text(&hostile)]);
    world.run(&hostile).exits(0);
    let Some(shown) = shown(&world, "ws", "#open=all") else {
        return;
    };
    shown.is_well();
    shown.shows("&lt;script&gt;document.title='owned'&lt;/script&gt;");
    shown
        .shows_not("<script")
        .shows_not("<img")
        .shows_not("<link");
    assert!(!shown.dom.contains("<title>owned"), "it ran");
}

#[test]
fn an_iteration_is_unfolded_by_the_address() {
    let world = three();
    let Some(one) = shown(&world, "ws", "#open=1") else {
        return;
    };
    one.is_well()
        .shows("first words\nand others")
        .shows_not("[stderr]\nneedle");
    let all = shown(&world, "ws", "#open=all").unwrap();
    all.is_well()
        .shows("first words\nand others")
        .shows("[stderr]\nneedle");
}

#[test]
fn a_search_finds_what_is_folded_and_unfolds_it() {
    let world = three();
    let Some(found) = shown(&world, "ws", "#search=NEEDLE") else {
        return;
    };
    found.is_well().shows("[stderr]\nneedle").shows("1 of 1");
    assert_eq!(found.attribute("data-hits"), Some("1"));
    // Signs that mean something to a pattern are looked for as they are.
    let none = shown(&world, "ws", "#search=%28.%2B").unwrap();
    none.is_well().shows("not found");
    assert_eq!(none.attribute("data-hits"), Some("0"));
}

#[test]
fn light_and_dark_can_be_asked_for() {
    let world = three();
    let Some(dark) = shown(&world, "ws", "#theme=dark") else {
        return;
    };
    assert_eq!(dark.is_well().attribute("data-theme"), Some("dark"));
}

#[test]
fn sub_agents_are_runs_within_the_run() {
    let world = family("");
    // It stands between the action and its result in the journal.
    world.write(
        "agent/hooks.yaml",
        "post_tool_execution: {command: ['true']}\n",
    );
    world.server.answers(model);
    world.run("go").exits(0);
    let Some(folded) = shown(&world, "ws", "") else {
        return;
    };
    folded
        .is_well()
        .shows("run of two")
        .shows_not("run of three");
    let place = |text: &str| folded.content().find(text).unwrap();
    assert!(place("run of two") < place("post_tool_execution"));
    let open = shown(&world, "ws", "#open=all").unwrap();
    open.is_well().shows("run of three").shows("done by 3");
    // What is within a run within a run is found.
    let found = shown(&world, "ws", "#search=done%20by%203").unwrap();
    found.is_well().shows("run of three");
}

#[test]
fn every_kind_of_event_and_of_end_is_shown() {
    for name in ["survey", "bookkeeping"] {
        let recorded = Recorded::load(name);
        let Some(shown) = shown(&recorded.world, "old", "#open=all") else {
            return;
        };
        shown.is_well();
    }
    let world = three();
    let journal = world.latest().path("journal.jsonl");
    let whole = fs::read_to_string(&journal).unwrap();
    for (text, words) in [
        (whole[..whole.len() - 9].to_owned(), "no end"),
        (
            whole.lines().take(4).collect::<Vec<_>>().join("\n"),
            "no end",
        ),
        (whole.lines().take(1).collect(), "no end"),
        (String::new(), "no end"),
        ("{\"type\":\"WEATHER\"}\n".to_owned(), "WEATHER"),
    ] {
        fs::write(&journal, text).unwrap();
        let shown = shown(&world, "ws", "#open=all&search=x").unwrap();
        shown.is_well().shows(words);
    }
    fs::write(&journal, whole.replacen("{\"seq\":5,", "{\"seq\":5,,", 1)).unwrap();
    let outcome = world.delta(["report", "-w", "ws"]).exits(0);
    let file = world.write("report.html", &outcome.stdout);
    let damaged = open(world.home(), &file, "").unwrap();
    damaged.is_well().shows("damaged in line 5");
}

#[test]
fn a_long_run_is_shown_whole() {
    let world = World::new();
    let dir = world.path("ws/.delta/20250101_000000_abcdef");
    fs::create_dir_all(&dir).unwrap();
    let mut journal = String::new();
    let mut seq = 0;
    let mut add = |iteration: usize, kind: &str, rest: &str| {
        seq += 1;
        let (minute, second) = (iteration / 60 % 60, iteration % 60);
        writeln!(
            journal,
            "{{\"seq\":{seq},\"timestamp\":\"2025-01-01T00:{minute:02}:{second:02}.{:03}Z\",\"type\":\"{kind}\",\"iteration\":{iteration},{rest}}}",
            seq % 3 * 300
        )
        .unwrap();
    };
    add(0, "USER_MESSAGE", "\"content\":\"count\"");
    for n in 1..=2000 {
        let call = format!(
            "\"content\":\"Step {n}.\",\"tool_calls\":[{{\"id\":\"c{n}\",\"type\":\"function\",\"function\":{{\"name\":\"x\",\"arguments\":\"{{}}\"}}}}],\"usage\":{{\"prompt_tokens\":{n},\"completion_tokens\":9}}"
        );
        add(n, "THOUGHT", &call);
        let action =
            format!("\"action_id\":\"c{n}\",\"tool_name\":\"x\",\"resolved_command\":\"x {n}\"");
        add(n, "ACTION_REQUEST", &action);
        let result = format!(
            "\"action_id\":\"c{n}\",\"tool_name\":\"x\",\"status\":\"SUCCESS\",\"exit_code\":0,\"duration_ms\":300,\"observation_content\":\"output {n}\""
        );
        add(n, "ACTION_RESULT", &result);
    }
    fs::write(dir.join("journal.jsonl"), journal).unwrap();
    world.adopt("ws");
    let Some(shown) = shown(&world, "ws", "#search=output%201999") else {
        return;
    };
    shown.is_well().shows("1 of 1");
    assert_eq!(shown.content().matches("<section").count(), 2001);
    // Only what was looked for has been unfolded.
    assert_eq!(shown.content().matches("<pre").count(), 1);
}
