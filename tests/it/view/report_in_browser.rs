//! The page of `delta report` in a real browser, where there is one.

use crate::harness::*;
use crate::runs::subagents::{family, model};
use crate::view::report::{HOSTILE, page};
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
        "cache losses",
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
fn a_search_finds_the_checks_of_an_answer() {
    let world = World::new().top("accept: [{command: ['true']}]");
    world.model_says([text("Fine.")]);
    world.run("go").exits(0);
    let Some(found) = shown(&world, "ws", "#search=accept") else {
        return;
    };
    // The check, which is called so, and the configuration of the start.
    found.is_well().shows("of 2").shows(">accept</div>");
}

#[test]
fn the_diff_of_an_edit_is_shown() {
    let tools = "
- {name: edit, kind: edit, exec: 'printf %s ${words}'}
- {name: say, exec: 'printf %s ${words}'}
- {name: refuse, kind: edit, shell: 'printf \"@@ -9 +9 @@\\n-no\"; exit 1'}
- {name: flood, kind: edit, shell: 'printf \"@@ -8 +8 @@\\n+\"; yes | tr -d \"\\n\" | head -c 1000000', max_output_bytes: 2000000}";
    let world = World::with_tools(tools).top("wrapper: [env, HIDDEN=1]");
    let edited = "edited a\n@@ -1,2 +1,2 @@\n-old <b>\n+\u{1b}[31mnew\u{202e}\n same";
    let words = json!({"words": edited});
    world.model_says([
        calls(&[
            ("a", "edit", words.clone()),
            ("b", "say", words),
            ("c", "refuse", json!({})),
            ("d", "flood", json!({})),
        ]),
        text("done"),
    ]);
    world.run("go").exits(0);
    let Some(shown) = shown(&world, "ws", "") else {
        return;
    };
    shown.is_well().shows(
        "<pre class=\"diff\"><div class=\"place\">@@ -1,2 +1,2 @@</div>\
         <div class=\"minus\">-old &lt;b&gt;</div>\
         <div class=\"plus\">+\u{fffd}[31mnew\\u{202e}</div><div> same</div></pre>",
    );
    shown
        .shows("<div class=\"place\">@@ -8 +8 @@")
        .shows(" left out");
    shown
        .shows_not("<div class=\"place\">@@ -9")
        .shows_not("HIDDEN");
    assert_eq!(shown.content().matches("<pre").count(), 2);
    assert!(shown.content().len() < 200_000);
}

#[test]
fn answers_have_the_styles_that_they_have_at_a_terminal() {
    let table = include_str!("answers.json");
    let mut table: Vec<(String, String)> = serde_json::from_str(table).unwrap();
    let long = "`**a**` ".repeat(125_000);
    table.push((
        format!("{HOSTILE}\u{1b}[1m\u{202e}**x**{long}"),
        String::new(),
    ));
    let world = World::with_tools(TOOLS);
    let last = table.len() - 1;
    world.model_says(table.iter().enumerate().map(|(at, (answer, _))| {
        if at == last {
            return text(answer);
        }
        let wanted = json!({"name": "echo", "arguments": "{\"words\": \"x\"}"});
        message(&json!({"role": "assistant", "content": answer,
            "tool_calls": [{"id": format!("c{at}"), "type": "function", "function": wanted}]}))
    }));
    world.run("go").exits(0);
    let Some(shown) = shown(&world, "ws", "#search=onerror") else {
        return;
    };
    shown.is_well();
    let answers = shown.content().split("<div class=\"said words\">").skip(2);
    let answers: Vec<&str> = answers
        .map(|rest| rest.split("</div>").next().unwrap())
        .collect();
    for ((answer, expected), found) in table.iter().zip(&answers) {
        let mut found = (*found).to_owned();
        for (html, sign) in [
            ("<span class=\"heading\">", "<H|"),
            ("<span class=\"strong\">", "<S|"),
            ("<span class=\"code\">", "<C|"),
            ("<span class=\"rule\">", "<R|"),
            ("</span>", ">"),
            ("&lt;", "<"),
            ("&gt;", ">"),
            ("&nbsp;", "\u{a0}"),
            ("&amp;", "&"),
        ] {
            found = found.replace(html, sign);
        }
        if expected.is_empty() {
            for words in [HOSTILE, "\u{fffd}[1m\\u{202e}<S|**x**><C|`**a**`> "] {
                assert!(found.contains(words), "{words:?}");
            }
            assert!(found.matches("<C|`**a**`>").count() > 6_000);
        } else {
            assert_eq!(found, *expected, "{answer}");
        }
    }
    assert_eq!(answers.len(), table.len());
}

#[test]
fn a_part_that_the_policy_blocks_is_named() {
    let world = three();
    let page = page(&world, "ws") + "<img src='http://a.test/x.png'>";
    let Some(shown) = open(world.home(), &world.write("page.html", page), "") else {
        return;
    };
    let words = "The page's own security policy blocked a part of it: img-src http://a.test/x.png";
    assert!(shown.dom.contains(words), "{}", shown.dom.len());
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
