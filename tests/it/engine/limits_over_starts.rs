//! Limits over all starts of a run: every loop ends, people's time does not count, and flows are bound, too.

use crate::engine::budget::{ANSWER, NOTE, await_requests, ledger, restless, sum, unsettled};
use crate::harness::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[test]
fn a_loop_until_the_code_is_not_75_ends_at_every_limit() {
    for (keys, option, reason) in [
        ("max_iterations: 2", "", "max_iterations"),
        ("limits: {tokens: 300}", "", "tokens"),
        (
            "max_iterations: 100000\nlimits: {seconds: 1}",
            "",
            "seconds",
        ),
        ("budget: {tokens: 300}", "", "budget"),
        ("max_iterations: 100000\nbudget: {seconds: 1}", "", "budget"),
        (
            "budget: {cost: 0.001}\npricing: {input: 5, output: 5}",
            "",
            "budget",
        ),
        ("", "--budget tokens=300", "budget"),
        ("", "--max-iterations 2", "max_iterations"),
        ("", "--deadline 1000000000", ""),
    ] {
        let world = restless(World::with_tools(NOTE).top(keys).llm("max_retries: 0"));
        world.server.answers(|request| match request.number {
            2 => Reply::error(500, "later"),
            n => call(&format!("call_{n}"), "note", &json!({})),
        });
        let program = env!("CARGO_BIN_EXE_delta");
        let script = format!(
            "until '{program}' run -q -a agent -w ws -m go {option}; code=$?; [ $code -ne 75 ]; do :; done; exit $code"
        );
        let delta = Delta::of("sh", world.home()).args(["-c", &script]);
        let outcome = delta.exits(4);
        match reason {
            "" => assert!(outcome.says("has passed").stdout.is_empty()),
            _ => assert_eq!(world.latest().ending().1.as_deref(), Some(reason), "{keys}"),
        }
    }
}

/// When the run's seconds are over, as a tool has seen it, in milliseconds.
fn until(world: &World) -> Vec<u64> {
    let millis = |line: String| {
        let ledgers: Value = serde_json::from_str(&line).unwrap();
        millis(ledgers[0]["until"].as_str().unwrap())
    };
    world.lines("log").into_iter().map(millis).collect()
}

/// The milliseconds of the day in a timestamp.
fn millis(timestamp: &str) -> u64 {
    let clock = &timestamp[11..23];
    let part = |at: usize, end: usize| clock[at..end].parse::<u64>().unwrap();
    ((part(0, 2) * 60 + part(3, 5)) * 60 + part(6, 8)) * 1000 + part(9, 12)
}

#[test]
fn the_time_that_a_person_takes_is_not_the_runs() {
    const HELD: u64 = 200;
    let tool = "- {name: note, shell: 'echo \"$DELTA_LEDGERS\" >> ../log'}";
    let world =
        World::with_tools(tool).top("budget: {seconds: 3600, per: tree}\nmax_iterations: 3");
    let ask = json!({"prompt": "Well?"});
    world.model_says([
        call("a", "note", &json!({})),
        call("b", "ask_human", &ask),
        call("c", "note", &json!({})),
        call("d", "note", &json!({})),
    ]);
    let mut delta = world.run("go").arg("-i").open_stdin().spawn();
    eventually("the question is asked", || delta.stderr().contains("Well?"));
    let asked = Instant::now();
    eventually("a person thinks", || {
        asked.elapsed() >= Duration::from_millis(HELD)
    });
    delta.type_in("yes\n");
    delta.wait().exits(4);
    let run = world.latest();
    let at = |kind: &str| millis(run.events(kind)[0]["timestamp"].as_str().unwrap());
    let waited = at("HUMAN_INPUT_RECEIVED") - at("HUMAN_INPUT_REQUEST");
    let [before, after] = until(&world)[..] else {
        panic!()
    };
    let moved = after - before;
    assert!(
        (HELD..=waited + 2).contains(&moved),
        "{moved} of {waited} ms"
    );

    // The next start knows it from the journal.
    let whole = at("ENGINE_END") - at("ENGINE_START");
    world.run("go").args(["--max-iterations", "1"]).exits(4);
    let last = &run.events("ENGINE_START")[1];
    let began = millis(last["timestamp"].as_str().unwrap());
    // The end of the hour may be after midnight.
    let left = (until(&world)[2] + 86_400_000 - began) % 86_400_000;
    let spent = 3_600_000 - left.min(3_600_000);
    assert!(spent <= whole - HELD, "{spent} of {whole} ms");
}

#[test]
fn a_failed_run_that_is_begun_anew_has_spent_nothing() {
    let world = World::with_tools(NOTE).top("budget: {tokens: 300}");
    let cut = || answer(&json!({"role": "assistant", "content": "I ca"}), "length");
    world.model_says([call("a", "note", &json!({})), cut(), cut()]);
    let start = || world.run("go").args(["--run-id", "job"]);
    start().exits(1);
    let run = Run {
        dir: world.path("ws/.delta/job"),
    };
    assert_eq!(sum(&ledger(&run), "settle").0, 2 * ANSWER);
    start().arg("--retry-failed").exits(1);
    assert_eq!(sum(&ledger(&run), "settle").0, ANSWER);
}

#[cfg(feature = "flow")]
#[test]
fn killed_at_random_the_agents_of_a_flow_stay_within_its_budget() {
    const BUDGET: u64 = 8_000;
    const AGENTS: u64 = 8;
    let kills = given_or("DELTA_TEST_BUDGET_KILLS", 20);
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut killed = 0;
    while killed < kills {
        let world = crate::flow::agents::world("", "path: ../agent").tools(NOTE);
        let world = restless(world.llm("max_tokens: 10"));
        world.write("in.jsonl", "{}\n".repeat(64));
        let budget = format!("tokens={BUDGET}");
        let flow = || {
            let flow = crate::flow::run::run(&world).args(["--run-id", "r", "-q"]);
            flow.args(["--inputs", "in.jsonl", "-j", "8", "--budget", &budget])
        };
        let most = killed + 10;
        let outcome = loop {
            let delta = flow().spawn();
            while alive(delta.pid()) && killed < most {
                await_requests(&world, delta.pid(), random.usize(1..10));
                // An agent that is killed is resumed by the next start of the flow.
                let processes = match random.u8(..) < 200 {
                    true => vec![delta.pid()],
                    false => world.processes(),
                };
                if let Some(pid) = random.choice(&processes)
                    && let Some(pid) = Pid::from_raw(pid.cast_signed())
                    && kill_process(pid, Signal::KILL).is_ok()
                {
                    killed += 1;
                }
            }
            let outcome = delta.wait();
            if outcome.killed_by().is_none() && outcome.code() != Some(75) {
                break outcome;
            }
        };
        let about = format!("DELTA_TEST_SEED={seed}: {}", outcome.describe());
        // Agents whose engine was killed when the flow ended may still be about to end.
        eventually("all have ended", || world.processes().is_empty());
        let requests = world.server.requests().len() as u64;
        let lines = ledger(&Run {
            dir: world.path("ws/.delta/r"),
        });
        let open = unsettled(&lines);
        assert!(requests * ANSWER < BUDGET + AGENTS * ANSWER, "{about}");
        let settled = lines.iter().filter(|line| line["kind"] == "settle");
        let (exact, others): (Vec<_>, Vec<_>) = settled.partition(|line| line["tokens"] == ANSWER);
        let counted = exact.len() as u64;
        let estimated = (others.len() + open.len()) as u64;
        assert!(
            (counted..=counted + estimated).contains(&requests),
            "{requests} requests, {counted} counted, {estimated} estimated: {about}"
        );
        if outcome.code() == Some(4) {
            let spent = sum(&lines, "settle").0 + sum(&open, "reserve").0;
            assert!(spent + AGENTS * 1000 >= BUDGET, "{about}");
        } else {
            outcome.exits(1);
        }
    }
}
