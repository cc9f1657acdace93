//! A budget holds over all starts of a run, whatever happens between them, and over the runs below it.

use crate::harness::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

pub const NOTE: &str = "- {name: note, shell: 'echo did >> ../log'}";

/// What the scripted server says that each answer took.
pub const ANSWER: u64 = 110;

/// A model that never comes to an end.
pub fn restless(world: World) -> World {
    world.server.answers(|request| {
        let n = request.number;
        call(&format!("call_{n}"), "note", &json!({}))
    });
    world
}

pub fn ledger(run: &Run) -> Vec<Value> {
    let text = run.text("spending.jsonl");
    let line = |line| serde_json::from_str(line).expect("a line of JSON");
    text.lines().map(line).collect()
}

/// Tokens and cost of the lines of a kind.
pub fn sum(lines: &[Value], kind: &str) -> (u64, f64) {
    let of_kind = lines.iter().filter(|line| line["kind"] == kind);
    of_kind.fold((0, 0.0), |(tokens, cost), line| {
        let more = line["tokens"].as_u64().expect("tokens");
        (tokens + more, cost + line["cost"].as_f64().unwrap_or(0.0))
    })
}

/// Waits until so many more requests have come, or the process has ended.
pub fn await_requests(world: &World, pid: u32, more: usize) {
    let goal = world.server.requests().len() + more;
    eventually("requests come or the process ends", || {
        world.server.requests().len() >= goal || !alive(pid)
    });
}

/// The reservations without a settlement.
pub fn unsettled(lines: &[Value]) -> Vec<Value> {
    let mut open: HashMap<String, Vec<Value>> = HashMap::new();
    for line in lines {
        let key = format!(
            "{}/{}/{}",
            line["run_id"], line["invocation"], line["attempt"]
        );
        let of_key = open.entry(key).or_default();
        match line["kind"].as_str() {
            Some("reserve") => of_key.push(line.clone()),
            _ => drop(of_key.pop().expect("a reservation before the settlement")),
        }
    }
    open.into_values().flatten().collect()
}

#[test]
fn a_run_is_as_usual_under_valgrind_which_hides_the_clock_of_the_kernel() {
    if !installed(&["valgrind"]) {
        return;
    }
    let world = World::new();
    world.server.says([text("done")]);
    let valgrind = ["valgrind", "-q", "--tool=none"];
    world.run("go").under(&valgrind).exits(0).prints("done\n");
}

#[test]
fn five_starts_of_a_named_run_never_exceed_the_budget() {
    let world = restless(World::with_tools(NOTE).top("budget: {tokens: 1500}\nmax_iterations: 4"));
    let start = || world.run("go").args(["--run-id", "job"]).exits(4);
    for _ in 0..5 {
        start();
    }
    // 14 answers are 1540 tokens, 13 are 1430.
    assert_eq!(world.server.requests().len(), 14);
    let outcome = start().says("the budget is used up: 1540 of 1500 tokens; raise it");
    outcome
        .says("or for one start with --budget tokens=N\n")
        .says("after that the same command resumes it, and so does: delta continue -w ");
    assert_eq!(world.server.requests().len(), 14, "a request was sent");
    let run = world.latest();
    assert_eq!(run.ending().1.as_deref(), Some("budget"));
    let lines = ledger(&run);
    assert_eq!(sum(&lines, "settle").0, 14 * ANSWER);
    assert!(unsettled(&lines).is_empty());
}

#[test]
fn the_option_replaces_the_budget_for_one_start_only() {
    let world = restless(World::with_tools(NOTE).top("budget: {tokens: 200}"));
    world.run("go").exits(4);
    assert_eq!(world.server.requests().len(), 2);
    let budget = ["--budget", "tokens=500"];
    world.run("go").args(budget).exits(4).says("550 of 500");
    assert_eq!(world.server.requests().len(), 5);
    world.run("go").exits(4).says("550 of 200");
    world.go_on().exits(4).says("550 of 200");
    world.go_on().args(["--budget", "tokens=600"]).exits(4);
    assert_eq!(world.server.requests().len(), 6);
    let starts = world.latest().events("ENGINE_START");
    let limits: Vec<_> = starts
        .iter()
        .map(|it| &it["config"]["budget"]["tokens"])
        .collect();
    assert_eq!(limits, [200, 500, 200, 200, 600]);
}

#[test]
fn a_loop_that_starts_a_run_until_it_is_not_75_ends() {
    let world = World::with_tools(NOTE)
        .top("budget: {tokens: 400}")
        .llm("max_retries: 0");
    world.server.answers(|request| match request.number % 3 {
        0 => call("call", "note", &json!({})),
        _ => Reply::error(500, "oh no"),
    });
    let program = env!("CARGO_BIN_EXE_delta");
    let script = format!(
        "until '{program}' run -q -a agent -w ws -m go; code=$?; [ $code -ne 75 ]; do :; done; exit $code"
    );
    Delta::of("sh", world.home()).args(["-c", &script]).exits(4);
    // Errors of the server settle at nothing.
    assert_eq!(world.server.requests().len(), 12);
    assert_eq!(sum(&ledger(&world.latest()), "settle").0, 4 * ANSWER);
}

#[test]
fn costs_count_cached_tokens_at_their_price() {
    let world = World::with_tools(NOTE)
        .top("pricing: {scripted: {input: 10, output: 100, cached: 1, cache_write: 20}}")
        .top("budget: {cost: 0.0185}");
    world.server.answers(|_| {
        completion(&json!({
            "model": "scripted-1",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message":
                {"role": "assistant", "content": null, "tool_calls": [{"id": "", "type": "function",
                 "function": {"name": "note", "arguments": "{}"}}]}}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010,
                "prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 100}},
        }))
    });
    world.run("go").exits(4).says("cost 0.019800 of 0.0185");
    // 300 at 10, 600 at 1, 100 at 20, 10 at 100: 6600 millionths.
    assert_eq!(world.server.requests().len(), 3);
    let lines = ledger(&world.latest());
    assert!(lines.iter().all(|line| line["model"] == "scripted"));
    let settled: Vec<_> = lines
        .iter()
        .filter(|line| line["kind"] == "settle")
        .collect();
    assert!(
        settled.iter().all(|line| line["cost"] == 0.0066),
        "{settled:?}"
    );
    assert!(settled.iter().all(|line| line["tokens"] == 1010));
}

#[test]
fn a_cost_without_a_price_is_a_configuration_error_and_creates_nothing() {
    let flat = "pricing: {input: 1, output: 2}";
    let world = World::new().top(flat);
    let cost = ["--budget", "cost=1"];
    // The flat form is that of the file's own model.
    let other = ["--set", "llm.model=other"];
    world
        .run("go")
        .args(cost)
        .args(other)
        .exits(78)
        .says("no pricing of other");
    assert!(!world.exists("ws"));
    let world = World::new();
    world
        .run("go")
        .args(cost)
        .exits(78)
        .says("no pricing of scripted");
    assert!(!world.exists("ws"));
    let world = World::new().top("budget: {cost: 1}");
    world.run("go").exits(78).says("agent.yaml");
    world.delta(["check", "agent"]).exits(78);
    assert!(!world.exists("ws"));
}

#[test]
fn what_the_message_about_prices_says_can_be_pasted() {
    // With the model of the file, of the command line, of the environment; with a budget of either.
    for (budget, options, model) in [
        ("", &["--budget", "cost=1"][..], None),
        ("", &["--budget", "cost=1", "-M", "other"], None),
        ("budget: {cost: 1}", &[], None),
        ("budget: {cost: 1}", &["-M", "other"], None),
        ("", &["--budget", "cost=1"], Some("of: 'the' environment")),
    ] {
        let world = World::new().top(budget);
        if model.is_some() {
            let yaml = world.read("agent/agent.yaml");
            world.write("agent/agent.yaml", yaml.replace("  model: scripted\n", ""));
        }
        let run = |more: &str| {
            let under = format!("exec \"$0\" \"$@\" {more}");
            let run = world.run("go").args(options).under(&["sh", "-c", &under]);
            run.env("DELTA_MODEL", model.unwrap_or("unused"))
        };
        let refused = run("").exits(78).says("there is no pricing of");
        let (_, option) = refused.stderr.split_once("for one run with ").unwrap();
        assert!(!world.exists("ws"));
        world.model_says([text("ok")]);
        run(option.trim()).exits(0);
        let start = world.latest().events("ENGINE_START").remove(0);
        assert_eq!(start["config"]["pricing"]["output"], 15.0, "{options:?}");
        if !budget.is_empty() && !options.is_empty() {
            // The line for the file is about the model that the file names.
            continue;
        }
        // So can the line for the file.
        let (_, line) = refused.stderr.split_once("in agent.yaml with ").unwrap();
        let (line, _) = line.split_once(", or for one run").unwrap();
        let yaml = world.read("agent/agent.yaml");
        world.write("agent/agent.yaml", format!("{yaml}{line}\n"));
        world.model_says([text("ok")]);
        run("--new").exits(0);
    }
}

#[test]
fn a_misspelt_limit_is_an_error() {
    let world = World::new().top("budget: {token: 5}");
    world.run("go").exits(78).says("token");
    for wrong in ["tokens", "token=5", "tokens=-1", "cost=inf", "per=tree", ""] {
        let world = World::new();
        world
            .run("go")
            .args(["--budget", wrong])
            .exits(2)
            .says("--budget");
    }
}

#[test]
fn a_budget_is_no_override() {
    let world = World::unasked().top("budget: {tokens: 200}");
    for set in ["budget.tokens=300", "budget={tokens: 300}"] {
        let [run, chat] = ["run", "chat"].map(|command| world.delta([command, "-a", "agent"]));
        for command in [run.args(["-w", "ws", "-m", "go"]), chat, world.go_on()] {
            let outcome = command.args(["--set", set]);
            outcome.refuses(2, "--budget cost=3,tokens=500000");
        }
    }
    assert!(!world.exists("ws"));
}

/// An answer with this usage: a call, so that the run goes on.
fn counted_as(usage: &str) -> Reply {
    raw(format!(
        r#"{{"choices":[{{"message":{{"tool_calls":[{{"function":{{"name":"note","arguments":"{{}}"}}}}]}},"finish_reason":"tool_calls"}}],"usage":{usage}}}"#
    ))
}

#[test]
fn odd_usage_settles_at_the_estimate_with_one_warning() {
    let odd = [
        "{}",
        "[]",
        "7",
        r#""many""#,
        r#"{"prompt_tokens":100,"total_tokens":100}"#,
        r#"{"prompt_tokens":null,"completion_tokens":10}"#,
        r#"{"prompt_tokens":100,"completion_tokens":10.5}"#,
        r#"{"prompt_tokens":-1,"completion_tokens":10}"#,
        r#"{"prompt_tokens":"100","completion_tokens":10}"#,
        r#"{"prompt_tokens":100,"completion_tokens":1000000001}"#,
        r#"{"prompt_tokens":18446744073709551615,"completion_tokens":10}"#,
    ];
    let believed = [
        (r#"{"prompt_tokens":0,"completion_tokens":0}"#, 0),
        (
            r#"{"prompt_tokens":5,"completion_tokens":1,"total_tokens":null}"#,
            6,
        ),
        (
            r#"{"prompt_tokens":5,"completion_tokens":1,"total_tokens":-8}"#,
            6,
        ),
        (
            r#"{"prompt_tokens":5,"completion_tokens":1,"total_tokens":9}"#,
            9,
        ),
        (
            r#"{"prompt_tokens":1000000000,"completion_tokens":1}"#,
            1_000_000_001,
        ),
    ];
    for budget in ["budget: {tokens: 9000000000}", ""] {
        let world = World::with_tools(NOTE).llm("max_tokens: 50").top(budget);
        let believed_replies = believed.iter().map(|(usage, _)| counted_as(usage));
        let replies = odd.iter().map(|usage| counted_as(usage));
        world
            .model_says(replies.chain(believed_replies))
            .says([text("done")]);
        let outcome = world.run("go").exits(0);
        let warnings = outcome
            .stderr
            .matches("does not say how many tokens")
            .count();
        assert_eq!(warnings, 1, "{}", outcome.stderr);
        let lines = ledger(&world.latest());
        let settled = lines.iter().filter(|line| line["kind"] == "settle");
        let settled: Vec<u64> = settled.map(|it| it["tokens"].as_u64().unwrap()).collect();
        let requests = world.server.requests();
        for (at, usage) in odd.iter().enumerate() {
            let estimate = requests[at].body.len() as u64 / 4 + 1 + 50;
            assert_eq!(settled[at], estimate, "{usage}");
        }
        for (at, (usage, tokens)) in believed.iter().enumerate() {
            assert_eq!(settled[odd.len() + at], *tokens, "{usage}");
        }
    }
}

#[test]
fn what_was_cut_off_counts_as_estimated() {
    let world = World::with_tools(NOTE)
        .top("budget: {tokens: 100000}")
        .llm("max_tokens: 50\nmax_retries: 2");
    let without_usage = json!({"choices": [{"message": {"role": "assistant", "content": "done"}}]});
    world.model_says([
        Reply::drops(Moment::MidBody),
        Reply::drops(Moment::AfterReading),
        completion(&without_usage),
    ]);
    world
        .run("go")
        .exits(0)
        .says("does not say how many tokens");
    let lines = ledger(&world.latest());
    let settled: Vec<_> = lines
        .iter()
        .filter(|line| line["kind"] == "settle")
        .collect();
    assert_eq!(settled.len(), 3);
    let estimate = world.server.last().body.len() as u64 / 4 + 1 + 50;
    assert!(
        settled.iter().all(|line| line["tokens"] == estimate),
        "{lines:?}"
    );
    let attempts: Vec<_> = settled.iter().map(|line| &line["attempt"]).collect();
    assert_eq!(attempts, [1, 2, 3]);
}

#[test]
fn what_was_never_sent_costs_nothing() {
    let world = World::with_tools(NOTE)
        .top("budget: {tokens: 1000}")
        .llm("max_retries: 1\nbase_url: http://127.0.0.1:1/v1");
    world.run("go").exits(75);
    let lines = ledger(&world.latest());
    assert_eq!(lines.len(), 4);
    assert_eq!(sum(&lines, "settle").0, 0);
}

#[test]
fn an_attempt_that_was_killed_counts_as_estimated() {
    let world = World::new().top("budget: {tokens: 4000}");
    world.model_says([text("late").held()]).may_stay_unasked();
    let delta = world.run("go").spawn();
    world.server.wait_for(1);
    delta.kill();
    let lines = ledger(&world.latest());
    assert_eq!(unsettled(&lines).len(), 1);
    assert!(lines[0]["tokens"].as_u64().expect("tokens") > 4096);
    world.run("go").exits(4);
    assert_eq!(world.server.requests().len(), 1);
}

/// A run that has spent something and may go on.
fn spent_once() -> World {
    let world =
        restless(World::with_tools(NOTE).top("budget: {tokens: 100000}\nmax_iterations: 1"));
    world.run("go").exits(4);
    world
}

#[test]
fn lines_that_are_not_the_engines_end_the_run_without_a_request() {
    let whole = spent_once();
    let line = &ledger(&whole.latest())[1];
    let with = |key: &str, value: Value| {
        let mut line = line.clone();
        line[key] = value;
        format!("{line}\n")
    };
    let reserve = |key: &str, value: Value| with(key, value).replace("settle", "reserve");
    for forged in [
        reserve("tokens", json!(-5000)),
        reserve("cost", json!(-1)),
        reserve("tokens", json!("many")),
        reserve("tokens", json!(u64::MAX)),
        reserve("cost", json!(1e300)),
        reserve("cost", json!(0)).replace("\"cost\":0", "\"cost\":1e999"),
        reserve("cost", json!(0)).replace("\"cost\":0", "\"cost\":NaN"),
        reserve("timestamp", json!("yesterday")),
        with("attempt", json!(7)),
        with("kind", json!("refund")),
        "{}\n".to_owned(),
        "garbage\n".to_owned(),
        "garbage without an end".to_owned(),
        "\n".to_owned(),
        "\u{0}\n".to_owned(),
    ] {
        let world = spent_once();
        let path = world.latest().path("spending.jsonl");
        let text = fs::read_to_string(&path).expect("the ledger");
        fs::write(&path, text + &forged).expect("a forged ledger");
        let outcome = world.run("go").json().exits(4);
        let object = outcome.object();
        assert_eq!(object["stop_reason"], "budget", "{forged}");
        outcome.says("spending.jsonl:3");
        assert_eq!(world.server.requests().len(), 1, "{forged}");
    }
}

#[test]
fn a_settlement_that_is_cut_off_while_the_run_is_live_ends_it() {
    let cut = "- {name: note, shell: 'cd .delta/*/ && head -n 1 spending.jsonl > one && cat one > spending.jsonl'}";
    let world = restless(World::with_tools(cut).top("max_iterations: 3"));
    let outcome = world.run("go").exits(4);
    outcome.says("spending.jsonl:1: it was replaced or cut while the run was live");
    assert_eq!(world.server.requests().len(), 1);
}

#[test]
fn usage_of_a_line_with_a_wrong_member_counts() {
    let agent = World::with_tools(NOTE).top("budget: {tokens: 200}\nmax_iterations: 1");
    let world = restless(agent);
    world.run("go").exits(4);
    let run = world.latest();
    let wrong: Vec<String> = run
        .journal()
        .into_iter()
        .map(|mut event| {
            if event["type"] == "THOUGHT" {
                (event["content"], event["iteration"]) = ("".into(), "first".into());
            }
            event.to_string()
        })
        .collect();
    fs::write(run.path("journal.jsonl"), wrong.join("\n") + "\n").expect("the journal");
    fs::remove_file(run.path("spending.jsonl")).expect("the ledger is there");
    let said = world.go_on().arg("--force").end().stderr;
    assert!(said.contains("the ledger lacks 110 tokens"), "{said}");
}

#[test]
fn a_torn_last_line_is_cut_off() {
    let world = spent_once();
    let path = world.latest().path("spending.jsonl");
    let before = fs::read(&path).expect("the ledger");
    for torn in [&b"{\"timestamp\":\"2026"[..], b"{", &[0; 40]] {
        let more = [&fs::read(&path).expect("the ledger"), torn].concat();
        fs::write(&path, more).expect("a torn ledger");
        world.run("go").exits(4).says("iteration");
    }
    // One that lacks only its newline is kept.
    let whole = fs::read(&path).expect("the ledger");
    fs::write(&path, &whole[..whole.len() - 1]).expect("a ledger");
    world.run("go").exits(4).says("iteration");
    let lines = ledger(&world.latest());
    assert!(whole.starts_with(&before));
    assert_eq!(sum(&lines, "settle").0, 5 * ANSWER);
}

#[test]
fn usage_in_the_journal_counts_where_the_ledger_lacks_it() {
    for damage in [
        |path: &Path| fs::remove_file(path).expect("the ledger is there"),
        |path: &Path| fs::write(path, "").expect("an empty ledger"),
    ] {
        let agent = World::with_tools(NOTE).top("budget: {tokens: 200}\nmax_iterations: 1");
        let world = restless(agent);
        let said = world.run("go").exits(4).stderr;
        assert!(!said.contains("the ledger lacks"), "{said}");
        damage(&world.latest().path("spending.jsonl"));
        let said = world.run("go").exits(4).stderr;
        assert!(said.contains("the ledger lacks 110 tokens"), "{said}");
        assert_eq!(world.server.requests().len(), 2);
        let said = world.run("go").exits(4).stderr;
        assert!(
            !said.contains("the ledger lacks") && said.contains("budget is used up"),
            "{said}"
        );
        assert_eq!(world.server.requests().len(), 2);
        // Also where nothing is left of it.
        damage(&world.latest().path("spending.jsonl"));
        let said = world.run("go").exits(4).stderr;
        assert!(
            said.contains("lacks 220 tokens") && said.contains("220 of 200"),
            "{said}"
        );
        assert_eq!(world.server.requests().len(), 2);
    }
}

#[test]
fn a_ledger_that_is_no_file_ends_the_run_for_now() {
    for make in [
        |path: &Path| fs::create_dir(path).expect("a directory"),
        |path: &Path| drop(Fifo::new(path.to_owned())),
        |path: &Path| std::os::unix::fs::symlink("/dev/null", path).expect("a link"),
    ] {
        let world = spent_once();
        let path = world.latest().path("spending.jsonl");
        fs::remove_file(&path).expect("the ledger is there");
        make(&path);
        let object = world.run("go").json().exits(75).object();
        assert_eq!(object["stop_reason"], "io_error");
        assert_eq!(world.server.requests().len(), 1);
    }
}

#[test]
fn a_fork_and_a_run_that_is_retried_begin_at_nothing() {
    let world = restless(World::with_tools(NOTE).top("budget: {tokens: 200}"));
    world.run("go").exits(4);
    world
        .delta(["fork", "-w", "ws", "LATEST", "--at", "1"])
        .exits(4);
    assert_eq!(world.server.requests().len(), 4);
    assert_eq!(sum(&ledger(&world.latest()), "settle").0, 2 * ANSWER);
}

#[test]
fn a_replay_spends_nothing() {
    let world = World::new().top("budget: {tokens: 100}");
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let before = ledger(&world.latest());
    world.delta(["replay", "-w", "ws", "LATEST"]).exits(0);
    assert_eq!(ledger(&world.latest()), before);
}

#[test]
fn seconds_count_over_all_starts() {
    let nap = "- {name: note, shell: 'sleep 1.2'}";
    let world = restless(World::with_tools(nap).top("budget: {seconds: 3}\nmax_iterations: 1"));
    let mut starts = 0;
    loop {
        let outcome = world.run("go").json().exits(4);
        starts += 1;
        match outcome.object()["stop_reason"].as_str() {
            Some("max_iterations") if starts < 4 => {}
            Some("budget") => break,
            other => panic!("{other:?} at start {starts}"),
        }
    }
    let requests = world.server.requests().len();
    assert!((1..=3).contains(&requests), "{requests}");
    world.run("go").exits(4).says("its time is used up");
    assert_eq!(world.server.requests().len(), requests);
}

#[test]
fn the_last_line_says_time_tokens_and_cost() {
    let world = World::new().top("pricing: {input: 10, output: 100}");
    world.model_says([text("done")]);
    let outcome = world.run("go").exits(0);
    let text = outcome.describe();
    assert!(text.contains(", 110 tokens, cost 0.002000"), "{text}");
    assert!(!text.contains("window"), "{text}");
    world.model_says([crate::harness::text("done")]);
    let outcome = world.run("again").arg("-q").exits(0);
    outcome.does_not_say("tokens");
}

#[test]
fn the_last_line_counts_the_run_in_all_its_starts() {
    let world = World::with_tools("- {name: note, exec: 'tee log', stdin: words}");
    world.model_says([call("c", "note", &json!({"words": "x"})), text("done")]);
    world.run("go").args(["--max-iterations", "1"]).exits(4);
    // The engine ran for an hour, and has rested since.
    let run = world.latest();
    let mut lines = run.journal();
    let last = lines.len() - 1;
    for (at, line) in lines.iter_mut().enumerate() {
        let hour = u8::from(at == last);
        line["timestamp"] = json!(format!("2026-01-01T0{hour}:00:00.000Z"));
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(run.path("journal.jsonl"), text).unwrap();
    let outcome = world.run("go").exits(0).describe();
    assert!(outcome.contains("\n60 min "), "{outcome}");
    assert!(outcome.contains(", 220 tokens"), "{outcome}");
}

#[test]
fn two_processes_at_once_share_a_ledger() {
    let world = tree("budget: {tokens: 3000, per: tree}");
    let ledgers = |budget: u64| {
        let run = world.latest().path("spending.jsonl");
        json!([{"ledger": run, "tokens": budget}]).to_string()
    };
    world.run("go").exits(4);
    let before = world.server.requests().len();
    let start = |dir: &str, budget| {
        let delta = world.delta(["run", "-q", "-a", "leaf", "-w", dir, "-m", "go"]);
        delta.env("DELTA_LEDGERS", ledgers(budget)).spawn()
    };
    let both = [start("x", 4000), start("y", 4000)];
    for delta in both {
        delta.wait().exits(4).says("is used up");
    }
    let lines = ledger(&world.latest());
    let settled = sum(&lines, "settle").0;
    assert!((4000..4000 + 2 * ANSWER).contains(&settled), "{settled}");
    let requests = world.server.requests().len();
    assert!(requests > before);
    assert_eq!(settled, requests as u64 * ANSWER);
}

#[test]
fn a_ledger_that_the_environment_names_must_be_one() {
    let world = World::new();
    for named in [
        "x",
        "{}",
        "[{\"ledger\": \"/etc/passwd\"}]",
        "[{\"ledger\": \"spending.jsonl\"}]",
    ] {
        let delta = world.run("go").env("DELTA_LEDGERS", named);
        delta.exits(78).says("DELTA_LEDGERS");
    }
    assert!(!world.exists("ws"));
    // One that is not there any more cannot be read.
    let gone = json!([{"ledger": world.path("gone/.delta/run/spending.jsonl")}]).to_string();
    world.run("go").env("DELTA_LEDGERS", gone).exits(75);
    assert!(world.server.requests().is_empty());
}

#[test]
fn stats_show_what_is_spent_and_what_is_left() {
    let world = World::new()
        .top("pricing: {input: 10, output: 100}")
        .top("budget: {tokens: 1000, cost: 1}");
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let shown = world.delta(["stats", "-w", "ws"]).exits(0).describe();
    assert!(
        shown.contains("spent         110 tokens, cost 0.002000"),
        "{shown}"
    );
    assert!(
        shown.contains("  left        890 tokens, cost 0.998000"),
        "{shown}"
    );
    let stats = world.delta(["stats", "-w", "ws", "--format", "csv"]);
    stats.exits(0);
    let stats = world.delta(["stats", "-w", "ws", "--format", "json"]);
    let text = stats.exits(0).describe();
    let array = text
        .split("stdout\n")
        .nth(1)
        .and_then(|rest| rest.split("\n--- ").next());
    let runs: Value = serde_json::from_str(array.expect("an array")).expect("JSON");
    let run = &runs[0];
    assert_eq!(run["spent"], json!({"tokens": 110, "cost": 0.002}));
    assert_eq!(run["left"]["tokens"], 890);
}

#[cfg(feature = "flow")]
#[test]
fn the_budget_of_a_flow_is_that_of_all_its_agents() {
    let world = crate::flow::agents::world("", "path: ../agent").tools(NOTE);
    let world = restless(world);
    let start = |budget: &str| crate::flow::agents::command(&world).args(["--budget", budget]);
    start("tokens=400").exits(4).says("400 tokens");
    assert_eq!(world.server.requests().len(), 4);
    start("tokens=400").exits(4).says("440 of 400 tokens");
    assert_eq!(world.server.requests().len(), 4, "a request was sent");
    let flow = world
        .runs()
        .into_iter()
        .find(|run| run.id() == "r")
        .expect("the flow's run");
    assert_eq!(sum(&ledger(&flow), "settle").0, 4 * ANSWER);
    assert_eq!(flow.ending().0, "INTERRUPTED");
    start("tokens=600").exits(4).says("660 of 600 tokens");
    let passed = crate::flow::agents::command(&world).args(["--deadline", "1000000000"]);
    passed.exits(4).says("has passed");
    let near = crate::flow::agents::command(&world).args(["--deadline", "+29s"]);
    near.exits(75).says("deadline");
    assert_eq!(world.server.requests().len(), 6);
}

/// The root starts three agents at once, one of which starts one more; none of them ever comes to an end.
fn tree(budget: &str) -> World {
    let program = env!("CARGO_BIN_EXE_delta");
    let child = |agent: &str, dir: &str| {
        format!("{program} run -q -a ${{AGENT_HOME}}/../{agent} -w {dir} -m go & ")
    };
    let fan = [child("leaf", "a"), child("leaf", "b"), child("middle", "c")].concat();
    let world = World::with_tools(&format!("- {{name: note, shell: '{fan} wait'}}"))
        .top(budget)
        .llm("max_tokens: 10");
    let url = world.server.url();
    let nested = child("leaf", "d");
    for (name, script) in [
        ("leaf", "true".to_owned()),
        ("middle", format!("{nested} wait")),
    ] {
        let agent = format!(
            "name: {name}\nllm: {{model: scripted, base_url: '{url}', max_tokens: 10}}\n\
             tools:\n  - {{name: note, shell: '{script}'}}\n"
        );
        world.write(&format!("{name}/agent.yaml"), agent);
        world.write(
            &format!("{name}/context.yaml"),
            world.read("agent/context.yaml"),
        );
        world.write(&format!("{name}/system_prompt.md"), format!("I am {name}."));
    }
    restless(world)
}

/// The root, its three children and the one below.
const PROCESSES: u64 = 5;

#[test]
fn a_budget_per_tree_binds_all_runs_below() {
    let world = tree("budget: {tokens: 4000, per: tree}");
    world.run("go").exits(4).says("of 4000 tokens");
    let requests = world.server.requests().len() as u64;
    let lines = ledger(&world.latest());
    assert!(unsettled(&lines).is_empty());
    let settled = sum(&lines, "settle").0;
    assert_eq!(settled, requests * ANSWER, "each request is counted once");
    assert!(
        (4000..4000 + PROCESSES * ANSWER).contains(&settled),
        "{settled}"
    );
    for below in ["ws/a", "ws/b", "ws/c", "ws/c/d"] {
        let run = Run::latest(&world.path(below));
        assert_eq!(run.ending().1.as_deref(), Some("budget"), "{below}");
        // Outside the tree it has its own budget only, which is none.
        assert!(!ledger(&run).is_empty());
    }
}

#[test]
fn a_budget_per_run_leaves_the_runs_below_alone() {
    let world = tree("budget: {tokens: 220}");
    let options = "max_iterations: 3\n";
    for name in ["leaf", "middle"] {
        let agent = world.read(&format!("{name}/agent.yaml"));
        world.write(&format!("{name}/agent.yaml"), agent + options);
    }
    world.run("go").exits(4).says("220 of 220 tokens");
    let own = world.latest().id();
    let lines = ledger(&world.latest());
    let of_others = lines
        .iter()
        .filter(|line| line["run_id"] != own.as_str())
        .count();
    assert!(of_others > 0, "the ledger has the whole tree");
}

#[test]
fn killed_at_random_the_tree_never_exceeds_its_budget() {
    const BUDGET: u64 = 12_000;
    let kills = given_or("DELTA_TEST_BUDGET_KILLS", 30);
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut killed = 0;
    while killed < kills {
        let world = tree(&format!(
            "budget: {{tokens: {BUDGET}, per: tree}}\nmax_iterations: 1000"
        ));
        let outcome = loop {
            let delta = world.run("go").arg("-q").spawn();
            while alive(delta.pid()) {
                // Whichever process it is that is killed, wherever it is by then.
                await_requests(&world, delta.pid(), random.usize(1..6));
                let processes = world.processes();
                if let Some(pid) = random.choice(&processes)
                    && let Some(pid) = Pid::from_raw(pid.cast_signed())
                    && kill_process(pid, Signal::KILL).is_ok()
                {
                    killed += 1;
                }
            }
            let outcome = delta.wait();
            if outcome.code() == Some(4) {
                break outcome;
            }
        };
        let about = format!("DELTA_TEST_SEED={seed}: {}", outcome.describe());
        let requests = world.server.requests().len() as u64;
        let lines = ledger(&world.latest());
        let open = unsettled(&lines);
        let settled = sum(&lines, "settle").0;
        let spent = settled + sum(&open, "reserve").0;
        // Reservations that were settled after the root had ended took less than they had reserved.
        assert!(spent + PROCESSES * 1000 >= BUDGET, "{about}");
        // What is reserved is more than what an answer takes, so that real spending stays below.
        assert!(requests * ANSWER < BUDGET + PROCESSES * ANSWER, "{about}");
        let of_kind = |exact: bool| {
            let settled = lines.iter().filter(|line| line["kind"] == "settle");
            settled
                .filter(|line| (line["tokens"] == ANSWER) == exact)
                .count() as u64
        };
        let (counted, estimated) = (of_kind(true), of_kind(false) + open.len() as u64);
        assert!(
            (counted..=counted + estimated).contains(&requests),
            "{requests} requests, {counted} counted, {estimated} estimated: {about}"
        );
    }
}
