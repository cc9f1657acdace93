//! `delta report`: what is in the page. How a browser shows it is in `report_in_browser`.

use crate::harness::*;
use crate::runs::subagents::{family, model};
use crate::view::log_and_lists::scattered;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

const ECHO: &str = "- {name: echo, exec: 'echo ${words}'}";

/// Ends the page's own elements, in every way that a browser knows, and would run.
pub const HOSTILE: &str = "</script><script>document.title='owned'</script><!--<script>\
    <img src=x onerror=\"document.title='owned'\"></pre></div>";

/// The page about the newest run of a workspace.
#[track_caller]
pub fn page(world: &World, workspace: &str) -> String {
    let outcome = world
        .delta(["report", "-w", workspace])
        .exits(0)
        .says_nothing();
    String::from_utf8(outcome.stdout).unwrap()
}

trait Silent {
    fn says_nothing(self) -> Self;
}

impl Silent for Outcome {
    #[track_caller]
    fn says_nothing(self) -> Self {
        assert_eq!(self.stderr, "");
        self
    }
}

/// The records of a page.
#[track_caller]
pub fn records(page: &str) -> Vec<Value> {
    let data = page
        .split_once("id=\"data\">\n")
        .expect("a block of data")
        .1
        .split_once("</script>")
        .expect("its end")
        .0;
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    data.lines().map(parse).collect()
}

fn of_kind<'r>(records: &'r [Value], kind: &str) -> Vec<&'r Value> {
    records
        .iter()
        .filter(|record| record["type"] == kind)
        .collect()
}

fn kinds(records: &[Value]) -> Vec<&str> {
    records
        .iter()
        .map(|r| r["type"].as_str().unwrap())
        .collect()
}

/// A run of one tool call and an answer.
fn one_call(world: &World, words: &str) {
    let first = call("call_1", "echo", &json!({"words": words}));
    world.model_says([first, text("done")]);
    world.run("say it").exits(0);
}

#[test]
fn a_page_tells_every_event_in_order() {
    let world = World::with_tools(ECHO);
    one_call(&world, "a few words");
    let records = records(&page(&world, "ws"));
    assert_eq!(
        kinds(&records),
        [
            "run",
            "ENGINE_START",
            "USER_MESSAGE",
            "context",
            "THOUGHT",
            "ACTION_REQUEST",
            "ACTION_RESULT",
            "THOUGHT",
            "ENGINE_END",
            "end of run"
        ]
    );
    let id = world.latest().id();
    assert_eq!(
        (&records[0]["id"], &records[0]["status"]),
        (&json!(id), &json!("COMPLETED"))
    );
    assert_eq!(records[0]["figures"]["iterations"], 2);
    assert_eq!(records[2]["content"], "say it");
    assert!(
        records[3]["text"]
            .as_str()
            .unwrap()
            .contains("You are a test.")
    );
    assert_eq!(records[4]["calls"], json!(["echo"]));
    assert_eq!(records[4]["usage"]["prompt_tokens"], 100);
    assert_eq!(records[5]["resolved_command"], "echo 'a few words'");
    assert_eq!(records[6]["observation_content"], "a few words\n");
    assert_eq!(records[6]["exit_code"], 0);
    assert_eq!(records[7]["content"], "done");
    // The model was at work from here to there.
    let (began, lasted) = (&records[4]["began"], &records[4]["took"]);
    assert!(began.is_u64() && lasted.is_u64(), "{began} {lasted}");
}

#[test]
fn nothing_of_a_run_can_become_markup() {
    let world = World::with_tools(ECHO);
    let hostile = call("call_1", "echo", &json!({"words": HOSTILE}));
    world.model_says([hostile, text(HOSTILE)]);
    world.run(HOSTILE).exits(0);
    let page = page(&world, "ws");
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script").count(), 2);
    assert!(!page.contains("<img") && !page.contains("<!--"));
    let records = records(&page);
    assert_eq!(of_kind(&records, "USER_MESSAGE")[0]["content"], HOSTILE);
    assert_eq!(
        of_kind(&records, "ACTION_RESULT")[0]["observation_content"],
        format!("{HOSTILE}\n")
    );
}

#[test]
fn a_page_is_not_printed_on_a_terminal_and_would_not_control_it() {
    let world = World::with_tools(ECHO);
    let words = "a\u{9b}2Jb \u{202e}txt\u{2066} \u{7f}c";
    let yaml = world.read("agent/agent.yaml");
    let name = "name: \"a\\u009b2Jb \\u202etxt\\u2066 \\u007fc\"";
    world.write("agent/agent.yaml", yaml.replace("name: probe", name));
    one_call(&world, "a few words");
    let written = page(&world, "ws");
    let escape = |c: char| match c.is_ascii_graphic() || c == ' ' {
        true => c.to_string(),
        false => c.escape_unicode().to_string(),
    };
    let escaped: String = words.chars().map(escape).collect();
    let is_plain = |c: char| c == '\n' || !(c.is_control() || matches!(c, '\u{202e}' | '\u{2066}'));
    let odd = written.chars().find(|c| !is_plain(*c));
    assert_eq!(odd, None);
    assert_eq!(records(&written)[0]["agent"], escaped);
    let mut terminal = Terminal::new();
    let report = |args: &[&str]| world.delta(["report", "-w", "ws"]).args(args);
    report(&[]).all_at(&terminal).exits(2);
    assert_eq!(
        terminal.shows("to a file\r\n"),
        "delta: the page is for a browser: give -o, or redirect the output to a file\n"
    );
    report(&["-o", "page"]).all_at(&terminal).exits(0);
    assert_eq!(terminal.rest(), "");
    assert!(world.exists("page/index.html"));
}

#[test]
fn a_page_names_no_other_place_and_forbids_all() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let page = page(&world, "ws");
    let data = page.split_once("id=\"data\">").unwrap().1;
    let data = data.split_once("</script>").unwrap().0;
    let own = page.replace(data, "");
    for word in [
        "http:",
        "https:",
        "//www",
        "url(",
        "@import",
        "fetch(",
        "innerHTML",
        "eval(",
    ] {
        assert!(!own.contains(word), "{word}");
    }
    let policy = own
        .split_once("content=\"default-src 'none';")
        .expect("a policy")
        .1;
    let policy = policy.split('"').next().unwrap();
    assert!(
        !policy.contains("unsafe") && !policy.contains('*'),
        "{policy}"
    );
}

#[test]
fn what_a_hook_changed_is_told_line_by_line() {
    let world = World::with_tools(ECHO);
    world.script(
        "agent/hook.sh",
        r#"#!/bin/sh
cat > /dev/null
printf '{"observation":"one\n2\nthree\n"}' | sed 's/$/\\n/' | tr -d '\n' | sed 's/\\n$//' > "$DELTA_HOOK_IO_PATH/output/final_payload.json"
echo told >&2
"#,
    );
    world.write(
        "agent/hooks.yaml",
        "post_tool_execution: {command: ['${AGENT_HOME}/hook.sh']}\n",
    );
    one_call(&world, "one\ntwo\nthree");
    let records = records(&page(&world, "ws"));
    let hook = of_kind(&records, "HOOK_EXECUTION_AUDIT")[0];
    assert_eq!(hook["diff"], " one\n-two\n+2\n three\n", "{hook}");
    assert_eq!(hook["stderr"], "told\n");
    assert_eq!(
        (&hook["status"], &hook["exit_code"]),
        (&json!("SUCCESS"), &json!(0))
    );
}

#[test]
fn what_a_guard_forbade_is_told() {
    let world = World::with_tools(ECHO);
    world.script(
        "agent/guard.sh",
        "#!/bin/sh\necho '{\"action\":\"deny\",\"message\":\"no\"}' > \"$DELTA_HOOK_IO_PATH/output/control.json\"\n",
    );
    world.write(
        "agent/hooks.yaml",
        "pre_tool_execution: {command: ['${AGENT_HOME}/guard.sh']}\n",
    );
    one_call(&world, "words");
    let records = records(&page(&world, "ws"));
    let control = of_kind(&records, "HOOK_EXECUTION_AUDIT")[0]["control"]
        .as_str()
        .unwrap();
    assert!(control.contains("deny"), "{control}");
    assert_eq!(of_kind(&records, "ACTION_RESULT")[0]["status"], "ERROR");
}

#[test]
fn the_runs_of_sub_agents_stand_within_the_action_that_started_them() {
    let world = family("");
    world.server.answers(model);
    world.run("go").exits(0);
    let records = records(&page(&world, "ws"));
    let kinds: Vec<&str> = kinds(&records)
        .into_iter()
        .filter(|kind| ["run", "ACTION_REQUEST", "ACTION_RESULT", "end of run"].contains(kind))
        .collect();
    assert_eq!(
        kinds,
        [
            "run",
            "ACTION_REQUEST",
            "run",
            "ACTION_REQUEST",
            "run",
            "ACTION_REQUEST",
            "ACTION_RESULT",
            "end of run",
            "ACTION_RESULT",
            "end of run",
            "ACTION_RESULT",
            "end of run"
        ]
    );
    let agents: Vec<&Value> = of_kind(&records, "run")
        .iter()
        .map(|run| &run["agent"])
        .collect();
    assert_eq!(agents, ["one", "two", "three"]);
}

#[test]
fn sub_agents_that_work_elsewhere_are_told_too() {
    let records = records(&page(&scattered("-w, ../far"), "ws"));
    assert_eq!(of_kind(&records, "run").len(), 3);
}

#[test]
fn a_live_run_is_told_as_far_as_it_has_come() {
    let world = World::with_tools("- {name: wait, shell: 'read line < \"$HOME/pipe\"'}");
    let mut pipe = world.fifo("pipe");
    let first = call("call_1", "wait", &json!({}));
    world.model_says([first, text("done")]);
    let delta = world.run("go").spawn();
    eventually("the tool runs", || {
        !world.latest_is_without("ACTION_REQUEST")
    });
    let records = records(&page(&world, "ws"));
    assert_eq!(records[0]["status"], "RUNNING");
    assert_eq!(
        kinds(&records)[records.len() - 3..],
        ["ACTION_REQUEST", "live", "end of run"]
    );
    pipe.tell("go");
    delta.wait().exits(0);
}

trait Look {
    fn latest_is_without(&self, kind: &str) -> bool;
}

impl Look for World {
    fn latest_is_without(&self, kind: &str) -> bool {
        let latest = self.path("ws/.delta/LATEST");
        let Ok(id) = fs::read_to_string(latest) else {
            return true;
        };
        let journal = self.path("ws/.delta").join(id.trim()).join("journal.jsonl");
        !fs::read_to_string(journal).is_ok_and(|text| text.contains(kind))
    }
}

#[test]
fn a_run_whose_engine_died_says_so() {
    let world = World::new();
    world.model_says([text("done").held()]);
    let delta = world.run("go").spawn();
    world.server.wait_for(1);
    delta.kill();
    let records = records(&page(&world, "ws"));
    assert_eq!(records[0]["status"], "INTERRUPTED");
    assert!(kinds(&records).contains(&"dead"));
}

#[test]
fn a_request_without_an_answer_is_told() {
    let world = World::new();
    world.model_says([Reply::error(400, "no such model")]);
    world.run("go").exits(4);
    let records = records(&page(&world, "ws"));
    let asked = of_kind(&records, "asked");
    assert_eq!(asked.len(), 1, "{records:?}");
    assert_eq!(
        (&asked[0]["status"], &asked[0]["attempts"]),
        (&json!("FAILED"), &json!(1))
    );
    assert_eq!(records[0]["figures"]["iterations"], 0);
    assert!(
        kinds(&records).iter().position(|k| *k == "asked")
            < kinds(&records).iter().position(|k| *k == "ERROR")
    );
}

#[test]
fn a_damaged_journal_is_told_up_to_the_damage() {
    let world = World::with_tools(ECHO);
    one_call(&world, "words");
    let journal = world.latest().path("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, text.replacen("{\"seq\":5,", "{\"seq\":5,,", 1)).unwrap();
    let outcome = world.delta(["report", "-w", "ws"]).exits(0);
    let records = records(std::str::from_utf8(&outcome.stdout).unwrap());
    assert_eq!(
        kinds(&records)[records.len() - 2..],
        ["damage", "end of run"]
    );
    assert_eq!(of_kind(&records, "damage")[0]["line"], 5);
    assert!(of_kind(&records, "ACTION_RESULT").is_empty());
    outcome.says("journal.jsonl:5:");
}

#[test]
fn a_torn_last_line_is_named_and_one_without_its_newline_is_told() {
    let world = World::new();
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let journal = world.latest().path("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, text.trim_end()).unwrap();
    assert_eq!(
        kinds(&records(&page(&world, "ws"))).last(),
        Some(&"end of run")
    );
    assert_eq!(
        of_kind(&records(&page(&world, "ws")), "ENGINE_END").len(),
        1
    );
    fs::write(&journal, &text[..text.len() - 9]).unwrap();
    let records = records(&page(&world, "ws"));
    assert_eq!(of_kind(&records, "dead")[0]["torn"], true);
}

#[test]
fn a_long_output_says_what_is_missing_and_where_it_is() {
    let world = World::with_tools(
        "- {name: flood, shell: 'yes 0123456789 | head -c 300000', max_output_bytes: 400000}",
    );
    let first = call("call_1", "flood", &json!({}));
    world.model_says([first, text("done")]);
    world.run("go").exits(0);
    let page = page(&world, "ws");
    let records = records(&page);
    let cut = &of_kind(&records, "ACTION_RESULT")[0]["observation_content"];
    let (head, tail) = (cut[0].as_str().unwrap(), cut[2].as_str().unwrap());
    assert_eq!(
        head.len() + cut[1].as_u64().unwrap() as usize + tail.len(),
        300_000
    );
    assert!(head.len() + tail.len() <= 64 << 10);
    assert!(
        cut[3].as_str().unwrap().starts_with("journal.jsonl"),
        "{}",
        cut[3]
    );
    assert_eq!(
        of_kind(&records, "ACTION_RESULT")[0]["stdout_bytes"],
        300_000
    );
    assert!(page.len() < 200_000);
}

#[test]
fn a_secret_answer_is_not_in_the_page() {
    let world = World::new();
    for (sensitive, answer) in [(true, "hunter2"), (false, "blue")] {
        let asked = json!({"prompt": "What?", "sensitive": sensitive});
        world.model_says([call("call_1", "ask_human", &asked), text("done")]);
        let message = format!("ask {answer}");
        world.run(&message).exits(101);
        world.go_on().args(["-m", answer]).exits(0);
        let page = page(&world, "ws");
        let answers = records(&page);
        let told = of_kind(&answers, "HUMAN_INPUT_RECEIVED")[0];
        let result = of_kind(&answers, "ACTION_RESULT")[0];
        if sensitive {
            let data = page.split("type=\"application/json\"").nth(1).unwrap();
            let start = data.find("\"type\":\"THOUGHT\"").unwrap();
            assert!(!data[start..].contains(answer), "{}", &data[start..]);
            assert_eq!(result["secret"], true);
            assert_eq!(
                (&told["secret"], &told["response"]),
                (&json!(true), &Value::Null)
            );
        } else {
            assert_eq!(
                (&told["response"], &result["observation_content"]),
                (&json!(answer), &json!(answer))
            );
        }
    }
}

#[test]
fn a_journal_cannot_make_the_page_read_other_files() {
    let world = World::with_tools(ECHO);
    one_call(&world, "words");
    world.write("secret/execution_meta/command.txt", "the secret\n");
    let run = world.latest();
    let path = world.path("secret");
    let mut journal = run.text("journal.jsonl");
    for (seq, place) in [(90, path.to_str().unwrap()), (91, "io/../../../../secret")] {
        journal += &format!(
            "{{\"seq\":{seq},\"type\":\"HOOK_EXECUTION_AUDIT\",\"hook_name\":\"on_run_end\",\"status\":\"SUCCESS\",\"io_path_ref\":\"{place}\"}}\n"
        );
    }
    let name = run.invocations()[0].file_name().unwrap().to_owned();
    let elsewhere = world.path("secret/io/invocations").join(name);
    fs::create_dir_all(&elsewhere).unwrap();
    let metadata = fs::read_to_string(run.invocations()[0].join("metadata.json")).unwrap();
    assert!(metadata.contains("\"duration_ms\":"), "{metadata}");
    fs::write(elsewhere.join("metadata.json"), &metadata).unwrap();
    let journal = journal.replace(
        "\"llm_invocation_ref\":\"io/",
        "\"llm_invocation_ref\":\"io/away/io/",
    );
    symlink(&path, run.path("io/away")).unwrap();
    fs::write(run.path("journal.jsonl"), journal).unwrap();
    let page = page(&world, "ws");
    assert_eq!(of_kind(&records(&page), "HOOK_EXECUTION_AUDIT").len(), 2);
    for thought in of_kind(&records(&page), "THOUGHT") {
        assert_eq!(thought["took"], Value::Null, "{thought}");
    }
    assert!(!page.contains("the secret"));
}

#[test]
fn a_run_is_named_as_everywhere_and_an_unknown_one_prints_nothing() {
    let world = World::with_tools(ECHO);
    one_call(&world, "words");
    let run = world.latest();
    let id = run.id();
    let path = format!("ws/.delta/{id}");
    for name in [&id[..id.len() - 1], "LATEST", path.as_str()] {
        let outcome = world.delta(["report", "-w", "ws", name]).exits(0);
        let page = String::from_utf8(outcome.stdout).unwrap();
        assert_eq!(records(&page)[0]["id"], id);
    }
    let unknown = world.delta(["report", "-w", "ws", "nothing"]).end();
    unknown.refuses(1, &id).says_one_line();
    world.delta(["report", "-w", "none"]).exits(1).prints("");
    world.delta(["report", "-w", "ws", "./ws"]).refuses(1, "ws");
    world
        .delta(["report", "LATEST", "LATEST"])
        .exits(2)
        .prints("");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let world = World::with_tools(ECHO);
    one_call(&world, &"many words ".repeat(20_000));
    let mut child = Command::new(env!("CARGO_BIN_EXE_delta"))
        .args(["report", "-w"])
        .arg(world.workspace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut byte = [0];
    child.stdout.take().unwrap().read_exact(&mut byte).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success());
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}

#[test]
fn a_report_leaves_the_run_as_it_is() {
    let survey = Recorded::load("survey");
    let before = snapshot(&survey.world.path("old"));
    let page = page(&survey.world, "old");
    assert!(snapshot(&survey.world.path("old")) == before);
    let records = records(&page);
    assert_eq!(of_kind(&records, "THOUGHT").len(), 35);
    assert_eq!(of_kind(&records, "ENGINE_START").len(), 3);
    assert_eq!(of_kind(&records, "HUMAN_INPUT_REQUEST").len(), 1);
}

#[test]
fn an_old_journal_and_unknown_events_are_told() {
    let world = World::new();
    let dir = world.path("ws/.delta/20250101_000000_abcdef");
    fs::create_dir_all(&dir).unwrap();
    let journal = "{\"type\":\"RUN_START\",\"payload\":{\"run_id\":\"r\",\"task\":\"go\"}}\n\
        {\"type\":\"USER_MESSAGE\",\"payload\":{\"content\":\"go\"}}\n\
        {\"type\":\"WEATHER\",\"sky\":\"clear\"}\n";
    fs::write(dir.join("journal.jsonl"), journal).unwrap();
    world.adopt("ws");
    let records = records(&page(&world, "ws"));
    assert_eq!(of_kind(&records, "USER_MESSAGE")[0]["content"], "go");
    let other = of_kind(&records, "WEATHER")[0];
    assert_eq!(other["type"], "WEATHER");
    assert!(other["text"].as_str().unwrap().contains("clear"));
}
