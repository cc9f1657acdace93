//! Flows that wait: agents for calls that end later, nodes for a time.

use crate::engine::later::{BUILD, let_time_pass};
use crate::flow::agents::{command, world};
use crate::flow::run::chain;
use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const REGISTRY: &str = ".local/state/delta/due";

#[test]
fn a_flow_waits_with_its_agent_and_due_starts_it() {
    let world = world("", "path: ../agent").tools(BUILD);
    world.model_says([
        call("call_1", "build", &json!({"branch": "main"})),
        text("\"done\""),
    ]);
    world.write("said", "all green\n");
    world.write("code", "0");
    command(&world).exits(75).says("waits for build (ci-7)");
    let runs = world.runs();
    let (flow, agent): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| run.id() == "r");
    let due_at = agent[0].metadata()["due_at"].clone();
    assert_eq!(flow[0].metadata()["due_at"], due_at);
    assert_eq!(registered(&world), ["r"]);
    let before = flow[0].text("journal.jsonl");
    command(&world).exits(75).says("waits until 20");
    assert_eq!(flow[0].text("journal.jsonl"), before);
    // The time comes.
    time_comes(&world);
    world.delta(["due", "--run"]).exits(0).prints("\"done\"\n");
    assert_eq!(world.lines("submitted").len(), 1);
    assert_eq!(registered(&world), [] as [&str; 0]);
}

/// The times of waiting runs are in the past.
fn time_comes(world: &World) {
    for run in world.runs() {
        let_time_pass(&run, &["due_at"]);
        past_in(&run.path("metadata.json"));
    }
    for entry in registered(world) {
        past_in(&world.path(REGISTRY).join(entry));
    }
}

fn past_in(file: &Path) {
    let mut value: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    value["due_at"] = json!("2026-01-02T03:04:05.678Z");
    fs::write(file, value.to_string()).unwrap();
}

fn due_at(file: &Path) -> Value {
    let value: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    value["due_at"].clone()
}

fn registered(world: &World) -> Vec<String> {
    let names = fs::read_dir(world.path(REGISTRY)).into_iter().flatten();
    let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
    names.collect()
}

fn starts_of(run: &Run, node: &str) -> Vec<Value> {
    let mut starts = run.events("NODE_START");
    starts.retain(|it| it["node_id"] == node);
    starts
}

#[test]
fn a_wait_ends_the_start_and_no_start_begins_it_anew() {
    let world = World::new();
    chain(&world, "wait: {for: 2h}");
    assert_eq!(errors_of(&world, "f"), [] as [Value; 0]);
    command(&world).exits(75).says("a of T1: waits until 20");
    let run = world.latest();
    let expected = ("INTERRUPTED".to_owned(), Some("deferred".to_owned()));
    assert_eq!(run.ending(), expected);
    let start = starts_of(&run, "a").remove(0);
    let due = start["due_at"].clone();
    assert!(due.is_string() && start.get("call_id").is_none(), "{start}");
    assert_eq!(run.metadata()["due_at"], due);
    assert_eq!(due_at(&world.path(REGISTRY).join("r")), due);
    let shown = Delta::flow(world.home()).args(["show", "r", "T1", "-w", "ws"]);
    let shown = shown.exits(0).describe();
    assert!(shown.contains("a  waits until 20"), "{shown}");
    // Too early: nothing is appended.
    let before = run.text("journal.jsonl");
    command(&world).exits(75).says("waits until 20");
    assert_eq!(run.text("journal.jsonl"), before);
    // What the journal says counts.
    fs::remove_file(run.path("metadata.json")).unwrap();
    command(&world).exits(75);
    assert_eq!(run.metadata()["due_at"], due);
    time_comes(&world);
    world.delta(["due", "--run"]).exits(0).prints("\"do it\"\n");
    assert_eq!(starts_of(&run, "a").len(), 1);
    assert_eq!(registered(&world), [] as [&str; 0]);
    let replay = Delta::flow(world.home()).args(["replay", "r", "-w", "ws"]);
    replay.exits(0);
}

#[test]
fn a_time_in_the_past_is_no_wait() {
    for time in ["2026-01-02T03:04:05+02:00", "'1767323045'"] {
        let world = World::new();
        chain(&world, &format!("wait: {{at: {time}}}"));
        command(&world).exits(0).prints("\"do it\"\n");
        assert!(!world.exists(REGISTRY));
    }
}

#[test]
fn a_wait_goes_on_in_the_start_in_which_its_time_comes() {
    let world = World::new();
    let nodes = [
        start(),
        node("b", "branch", ""),
        node("w", "linear", ", wait: {for: 1s}"),
        node("c", "linear", ", shell: 'touch ../../../../made; cat'"),
        node(
            "d",
            "linear",
            ", shell: 'until test -e ../../../../made; do sleep 0.05; done; cat'",
        ),
        node("m", "merge", ""),
        exit(),
    ];
    let flow = flow(&nodes, "s>b b>w w>c c>m b>d d>m m>x");
    world.write("f/workflow.yaml", flow);
    command(&world).exits(0).prints("[\"do it\",\"do it\"]\n");
    assert_eq!(world.latest().events("ENGINE_START").len(), 1);
}

#[test]
fn a_wait_is_of_a_linear_node_that_runs_nothing() {
    let linear = |more: &str| around(&node("a", "linear", &format!(", {more}")));
    for (more, message) in [
        ("wait: {for: 2h}, exec: cat", "keep one of the two"),
        ("wait: {}", "wait: needs for"),
        (
            "wait: {for: 2h, at: 2026-01-02T03:04:05Z}",
            "wait: needs for",
        ),
        ("wait: {for: soon}", "'soon' is not a time such as 90m"),
        ("wait: {for: 99999999d}", "'99999999d' is not a time"),
        ("wait: {at: +90m}", "write for:"),
        ("wait: {at: noon}", "'noon' is not a time such as 2026"),
        (
            "wait: {at: 2027-02-30T00:00:00Z}",
            "'2027-02-30T00:00:00Z' is not a time",
        ),
        ("wait: {at: 1.5}", "'1.5' is not a time"),
        ("wait: 2h", "expected a mapping"),
    ] {
        has_only(&linear(more), "manifest_invalid", &["a"], message);
    }
    for past in ["1767323045", "'1767323045'", "2024-02-29T00:00:00Z"] {
        let world = World::new();
        world.write("f/workflow.yaml", linear(&format!("wait: {{at: {past}}}")));
        command(&world).exits(0);
    }
    let nodes = [start().replace('}', ", wait: {for: 2h}}"), exit()];
    let message = "only a linear node waits";
    has_only(&flow(&nodes, "s>x"), "manifest_invalid", &["s"], message);
}

#[test]
fn a_flow_is_registered_for_the_wait_of_a_flow_within_it() {
    let world = World::new();
    chain(&world, "flow: ./inner");
    let inner = around(&node("a", "linear", ", wait: {for: 2h}"));
    world.write("f/inner/workflow.yaml", inner);
    let words = ["--start", "s", "--keep-going"];
    command(&world).args(words).exits(75);
    let inner = world.runs().into_iter().find(|run| run.id() != "r");
    let inner = inner.unwrap();
    assert_eq!(registered(&world), ["r"]);
    let entry = world.read(&format!("{REGISTRY}/r"));
    let entry: Value = serde_json::from_str(&entry).unwrap();
    assert_eq!(entry["options"], json!(words));
    let due = due_at(&world.path(REGISTRY).join("r"));
    assert_eq!(due, starts_of(&inner, "a")[0]["due_at"]);
    time_comes(&world);
    world.delta(["due", "--run"]).exits(0).prints("\"do it\"\n");
    assert_eq!(starts_of(&inner, "a").len(), 1);
}

/// Resumes a copy of a run from each prefix of its journal until it ends, and gives the copies to `check`.
fn from_each_prefix(build: impl Fn() -> World, printed: &str, check: impl Fn(&World, &str)) {
    let whole = build();
    while command(&whole).end().code() == Some(75) {
        time_comes(&whole);
    }
    let journal = whole.latest().text("journal.jsonl");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    for kept in 2..lines.len() {
        let world = build();
        copy(&whole.path("ws/.delta"), &world.path("ws/.delta"));
        world.adopt("ws");
        let prefix = lines[..kept].concat();
        let place = |world: &World| world.path("f").to_str().unwrap().to_owned();
        let prefix = prefix.replace(&place(&whole), &place(&world));
        world.write("ws/.delta/r/journal.jsonl", &prefix);
        let mut starts = 0;
        let outcome = loop {
            let outcome = command(&world).end();
            starts += 1;
            if outcome.code() != Some(75) || starts > 5 {
                break outcome;
            }
            time_comes(&world);
        };
        outcome.exits(0).prints(printed);
        check(&world, &prefix);
        assert_eq!(registered(&world), [] as [&str; 0], "from {kept} lines");
    }
}

#[test]
fn a_wait_begins_once_whatever_line_of_the_journal_is_the_last() {
    let build = || {
        let world = World::new();
        chain(&world, "wait: {for: 2h}");
        world
    };
    from_each_prefix(build, "\"do it\"\n", |world, _| {
        assert_eq!(starts_of(&world.latest(), "a").len(), 1);
    });
}

/// A node that submits something; its check prints `said` and ends with the code in `code`.
const SUBMIT: &str = r#"shell: 'printf "%s %s\n" "$(cat)" "$DELTA_CALL_ID" >> ../submitted; echo queued; echo ci-7; exit 75',
  later: {check: [sh, -c, 'echo "$DELTA_HANDLE $DELTA_CALL_ID ${DELTA_LATER_LAST-} $(cat)" >> ../looks; cat ../said; echo oops >&2; exit $(cat ../code)'],
  every_s: 3600}"#;

fn submitting(code: &str, more: &str) -> World {
    let world = World::new();
    chain(&world, &format!("{SUBMIT}{more}"));
    world.write("said", "{\"built\": true}\n");
    world.write("code", code);
    world
}

#[test]
fn a_command_with_a_handle_ends_later_and_its_check_prints_the_output() {
    let world = submitting("75", "");
    assert_eq!(errors_of(&world, "f"), [] as [Value; 0]);
    let waits = "a of T1: waits for ci-7; next look at 20";
    command(&world).exits(75).says(waits);
    let run = world.latest();
    let expected = ("INTERRUPTED".to_owned(), Some("deferred".to_owned()));
    assert_eq!(run.ending(), expected);
    let event = run.events("ACTION_DEFERRED").remove(0);
    assert_eq!([&event["task_id"], &event["node_id"]], ["T1", "a"]);
    assert_eq!(event["handle"], "ci-7");
    assert_eq!(due_at(&world.path(REGISTRY).join("r")), event["due_at"]);
    assert_eq!(world.read("ws/.delta/VERSION"), "1.3\n");
    let show = |words: &[&str]| {
        let show = Delta::flow(world.home()).args(["show", "r", "T1"]);
        show.args(words).args(["-w", "ws"]).exits(0).describe()
    };
    assert!(
        show(&[]).contains("waits for ci-7; next look"),
        "{}",
        show(&[])
    );
    command(&world).exits(75);
    assert!(!world.exists("looks"));
    // Not yet, then unknown, with one warning.
    time_comes(&world);
    command(&world).exits(75).says(waits);
    world.write("code", "3");
    for warns in [true, false] {
        time_comes(&world);
        let outcome = command(&world).exits(75);
        let warned = outcome
            .stderr
            .contains("could not say whether it has ended: exit code 3");
        assert_eq!(warned, warns, "{}", outcome.stderr);
    }
    let codes: Vec<Value> = run.events("DEFERRED_LOOK").into_iter().collect();
    let codes: Vec<&Value> = codes.iter().map(|it| &it["exit_code"]).collect();
    assert_eq!(codes, [75, 3, 3]);
    world.write("code", "0");
    time_comes(&world);
    world
        .delta(["due", "--run"])
        .exits(0)
        .prints("{\"built\": true}\n");
    let id = starts_of(&run, "a").remove(0)["call_id"].clone();
    let id = id.as_str().unwrap();
    assert_eq!(world.lines("submitted"), [format!("\"do it\" {id}")]);
    let look = format!("ci-7 {id}  \"do it\"");
    assert_eq!(world.lines("looks"), vec![look; 4]);
    assert_eq!(registered(&world), [] as [&str; 0]);
    let shown = show(&["a"]);
    assert!(shown.contains("--- output\n{\"built\": true}"), "{shown}");
    let log = world.delta(["log", "r", "-w", "ws"]).exits(0).describe();
    assert!(log.contains("T1 a: ends later (ci-7)"), "{log}");
    for reader in ["stats", "report"] {
        world.delta([reader, "r", "-w", "ws"]).exits(0);
    }
}

#[test]
fn a_clock_that_is_set_back_puts_no_look_off() {
    let world = submitting("0", "");
    command(&world).exits(75);
    // As if the record came from next year.
    let run = world.latest();
    let year: u32 = run.journal()[0]["timestamp"].as_str().unwrap()[..4]
        .parse()
        .unwrap();
    for name in ["journal.jsonl", "metadata.json"] {
        let later = format!("\"{}-", year + 1);
        let text = run.text(name).replace(&format!("\"{year}-"), &later);
        fs::write(run.path(name), text).unwrap();
    }
    command(&world).exits(0).prints("{\"built\": true}\n");
}

#[test]
fn what_ends_badly_or_never_fails_the_node() {
    let world = submitting("10", "");
    command(&world).exits(75);
    time_comes(&world);
    let failed = command(&world).json().exits(1).object();
    assert_eq!(failed["error"]["message"], "exit code 10: oops");
    // The last look.
    let world = submitting("75", "");
    command(&world).exits(75);
    let_time_pass(&world.latest(), &["due_at", "expires_at"]);
    past_in(&world.latest().path("metadata.json"));
    let failed = command(&world).json().exits(1).object();
    assert_eq!(failed["error"]["code"], "timeout");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("nothing known after "), "{message}");
    assert!(
        world.read("looks").contains(" 1 "),
        "{}",
        world.read("looks")
    );
    // Another attempt submits again.
    let world = submitting("10", ", retries: 1");
    command(&world).exits(75);
    time_comes(&world);
    command(&world).exits(75);
    assert_eq!(world.lines("submitted").len(), 2);
    // No handle.
    let world = World::new();
    chain(&world, "shell: 'exit 75', later: {check: [cat]}");
    let failed = command(&world).json().exits(1).object();
    assert_eq!(
        failed["error"]["message"],
        "exit code 75: it printed no handle"
    );
}

#[test]
fn what_a_node_that_ends_later_leaves_running_is_ended() {
    let world = World::new();
    let shell = "shell: 'sleep 1000 & echo ci-7; exit 75', later: {check: [cat]}";
    chain(&world, shell);
    command(&world).exits(75);
    assert_eq!(world.processes(), [] as [u32; 0]);
}

#[test]
fn records_of_looks_go_with_those_of_a_node_that_succeeds() {
    let world = submitting("75", "");
    let workflow = world.read("f/workflow.yaml");
    world.write("f/workflow.yaml", format!("records: failed\n{workflow}"));
    command(&world).exits(75);
    time_comes(&world);
    command(&world).exits(75);
    world.write("code", "0");
    time_comes(&world);
    command(&world).exits(0);
    assert_eq!(
        fs::read_dir(world.path("ws/.delta/r/io/nodes"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn only_a_command_ends_later() {
    let linear = |more: &str| around(&node("a", "linear", &format!(", {more}")));
    for (more, message) in [
        (
            "later: {check: [cat]}, schema_in: x",
            "only a command ends later",
        ),
        ("exec: cat, later: {}", "later: has no check"),
        (
            "exec: cat, later: {check: ['${x}']}",
            "${x} has no value here",
        ),
        ("exec: cat, later: {check: [cat], every_s: 0}", "every_s"),
    ] {
        let errors = errors_in(&linear(more));
        let all = json!(errors).to_string();
        assert!(all.contains(message), "{all}");
    }
}

#[test]
fn each_line_of_the_journal_may_be_the_last_and_nothing_is_submitted_twice() {
    let build = || submitting("0", "");
    from_each_prefix(build, "{\"built\": true}\n", |world, prefix| {
        let submitted = fs::read_to_string(world.path("submitted")).unwrap_or_default();
        // After ACTION_DEFERRED it is only looked at.
        let is_deferred = prefix.contains("ACTION_DEFERRED");
        assert_eq!(submitted.lines().count(), usize::from(!is_deferred));
        let has_ended = prefix.contains("\"node_id\":\"a\",\"status\"");
        assert_eq!(world.exists("looks"), !has_ended, "{prefix}");
    });
}

#[test]
fn a_tool_of_a_flow_cannot_end_later() {
    let world = World::new();
    let shell = "tools: [t], shell: 'delta-flow tool t </dev/null; code=$?; echo code $code >&2; exit $code', later: {check: [cat]}";
    chain(&world, shell);
    world.write(
        "f/tools.yaml",
        "tools:\n- {id: t, shell: 'echo ci-7; exit 75'}\n",
    );
    let programs = Path::new(env!("CARGO_BIN_EXE_delta-flow"))
        .parent()
        .unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let outcome = command(&world).env("PATH", path).exits(1);
    let stderr = world.latest().path("io/nodes/T1/a/stderr.log");
    let stderr = fs::read_to_string(stderr).unwrap();
    assert!(
        stderr.contains("a tool of a flow cannot end later"),
        "{stderr}"
    );
    assert!(
        stderr.ends_with("code 1\n"),
        "{stderr} {}",
        outcome.describe()
    );
}
