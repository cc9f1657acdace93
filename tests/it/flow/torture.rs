//! A flow with agents, with flows within it, a race and a retry, of which any process is killed at any time: it
//! always goes on, and comes to the same end.

use crate::engine::budget::{ANSWER, NOTE, await_requests, ledger, restless, sum, unsettled};
use crate::engine::torture::strace_works;
use crate::flow::run::run;
use crate::harness::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Three agents at once; a flow with an agent, a race that nothing depends on and a flow of its own; a race in
/// which the first one wins.
const OUTER: &str = r#"
defaults: {context: none}
nodes:
- {id: s}
- {id: p, role: split, shell: 'echo "[1,2,3]"'}
- {id: w, agent_id: ag}
- {id: m, role: merge, shell: 'NOTE; cat >/dev/null; echo 3'}
- {id: n, flow: ./inner}
- {id: b, role: branch, winner: first}
- {id: l, agent_id: ag}
- {id: k, shell: 'NOTE; sleep 0.1; echo 7'}
- {id: x}
edges: [[s, p, w, m, n, b, l, x], [b, k, x]]
"#;

const INNER: &str = r#"
defaults: {context: none}
nodes:
- {id: s}
- {id: c, role: branch}
- {id: e, on_resume: fail, shell: 'NOTE; echo effect >>"$FLOW_WORKSPACE/effects"; sleep 0.05; echo 1'}
- {id: j, agent_id: ag}
- {id: d, role: merge, merge_failure_mode: ignore_failures, shell: 'NOTE; cat >/dev/null; echo 5'}
- {id: q, flow: ./deep}
- {id: g, shell: 'NOTE; test -e "$FLOW_WORKSPACE/fixed" && cat'}
- {id: x}
edges: [[s, c, e, d, q, g, x], [c, j, d]]
"#;

const DEEP: &str = r"
defaults: {context: none}
nodes: [{id: s}, {id: y, shell: 'NOTE; cat'}, {id: z, agent_id: ag}, {id: x}]
edges: [[s, y, z, x]]
";

/// So many calls of a tool before an agent answers.
const CALLS: usize = 2;

fn world() -> World {
    let note = r#"echo "$DELTA_RUN_ID $FLOW_TASK_ID $FLOW_NODE_ID" >>"$FLOW_WORKSPACE/notes""#;
    let tool =
        "- {name: effect, shell: 'echo \"$DELTA_RUN_ID ${mark}\" >>\"$FLOW_WORKSPACE/effects\"'}";
    let world = World::with_tools(tool).llm("max_tokens: 10");
    world.server.answers(|request| {
        let messages = request.messages();
        let done = messages.iter().filter(|it| it["role"] == "assistant");
        match done.count() {
            CALLS => text("7"),
            n => call("c", "effect", &json!({"mark": n.to_string()})),
        }
    });
    for (home, workflow, agent) in [
        ("f", OUTER, "../agent"),
        ("f/inner", INNER, "../../agent"),
        ("f/inner/deep", DEEP, "../../../agent"),
    ] {
        world.write(
            &format!("{home}/workflow.yaml"),
            workflow.replace("NOTE", note),
        );
        world.write(
            &format!("{home}/agents.yaml"),
            format!("agents: [{{id: ag, path: {agent}}}]\n"),
        );
    }
    world
}

fn command(world: &World, retry: bool) -> Delta {
    let run = run(world).args(["--run-id", "r", "-q", "-m", "go", "-j", "8"]);
    let run = if retry { run.arg("--retry") } else { run };
    run.json()
}

/// What may be killed without a change of the outcome: engines, and tools of agents. The program of a node fails with
/// it.
fn may_be_killed(pid: u32) -> bool {
    let read = |pid: u32, name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let parent = || {
        let stat = String::from_utf8_lossy(&read(pid, "stat")).into_owned();
        let (_, rest) = stat.rsplit_once(") ")?;
        rest.split(' ').nth(1)?.parse::<u32>().ok()
    };
    if read(pid, "comm").starts_with(b"delta") {
        // One that looks like its parent is about to become another program.
        return parent().is_some_and(|parent| read(parent, "cmdline") != read(pid, "cmdline"));
    }
    let environ = read(pid, "environ");
    let mut variables = environ.split(|byte| *byte == 0);
    let run = variables.find_map(|it| it.strip_prefix(b"DELTA_RUN_ID="));
    let agents: [&[u8]; 4] = [b"node-w-", b"node-l-", b"node-j-", b"node-z-"];
    run.is_some_and(|run| agents.iter().any(|agent| run.starts_with(agent)))
}

/// Waits until the journals have grown by so many lines, or the process has ended.
fn await_lines(world: &World, pid: u32, more: usize) {
    let lines = || {
        let runs = all_runs(world).into_iter();
        let texts =
            runs.map(|run| fs::read_to_string(run.path("journal.jsonl")).unwrap_or_default());
        texts.map(|text| text.matches('\n').count()).sum::<usize>()
    };
    let goal = lines() + more;
    eventually("the journals grow or the process ends", || {
        lines() >= goal || !alive(pid)
    });
}

/// Gives the command until it ends with this code, killing something now and then. Returns its last outcome.
fn torture(
    world: &World,
    retry: bool,
    code: i32,
    (random, kills, about): (&mut fastrand::Rng, &mut usize, &str),
) -> Outcome {
    let mut bad = 0;
    loop {
        let running = command(world, retry).spawn();
        let mut patience = random.usize(1..6);
        // An engine that is never left alone comes to no end.
        while bad <= 25 && patience > 0 && alive(running.pid()) {
            await_lines(world, running.pid(), random.usize(1..12));
            let mut processes = world.processes();
            processes.retain(|pid| may_be_killed(*pid));
            if let Some(pid) = random.choice(&processes)
                && let Some(pid) = Pid::from_raw(pid.cast_signed())
                && kill_process(pid, Signal::KILL).is_ok()
            {
                *kills += 1;
                patience -= 1;
            }
        }
        let outcome = running.wait();
        match outcome.code() {
            Some(ended) if ended == code => return outcome,
            None | Some(75) => bad += 1,
            Some(_) => panic!("{about}: {}", outcome.describe()),
        }
        assert!(bad < 60, "{about}: it never ends: {}", outcome.describe());
    }
}

/// All runs of the world.
fn all_runs(world: &World) -> Vec<Run> {
    let mut dirs: Vec<PathBuf> = vec![world.path("ws")];
    dirs.extend(subdirectories(&world.path("ws/tasks/r")));
    let runs = dirs
        .iter()
        .flat_map(|dir| subdirectories(&dir.join(".delta")));
    let runs = runs.filter(|dir| dir.join("journal.jsonl").exists());
    runs.map(|dir| Run { dir }).collect()
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

/// No step of a flow begins behind its end, but those that a retry takes back.
#[track_caller]
fn nothing_completed_ran_again(run: &Run, about: &str) {
    let mut ended = HashSet::new();
    for event in run.journal() {
        let name = |event: &Value| {
            let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
            (text("task_id"), text("node_id"), text("edge"))
        };
        match event["type"].as_str().unwrap() {
            "NODE_START" => assert!(!ended.contains(&name(&event)), "{about}: {event}"),
            "NODE_END" => assert!(ended.insert(name(&event)), "{about}: two ends: {event}"),
            "RETRY" => {
                let steps = event["steps"].as_array().unwrap();
                assert!(!steps.is_empty(), "{about}: {event}");
                for step in steps {
                    assert!(ended.remove(&name(step)), "{about}: {event}");
                }
            }
            _ => {}
        }
    }
}

/// What must hold when all is done, however often something was killed.
#[track_caller]
fn holds(world: &World, last: &Outcome, killed: usize, about: &str) {
    let object = last.object();
    assert_eq!(object["status"], "success", "{about}");
    assert_eq!(object["output"], 7, "{about}");
    eventually("no process is left", || world.processes().is_empty());
    let runs = all_runs(world);
    let flows = runs
        .iter()
        .filter(|run| !run.events("FLOW_START").is_empty());
    let flows: Vec<&Run> = flows.collect();
    // One of each: a retry goes on with the runs that failed.
    let kind = |run: &&Run| run.id().chars().take(6).collect::<String>();
    let kinds: HashSet<String> = flows.iter().map(kind).collect();
    assert_eq!((kinds.len(), flows.len()), (3, 3), "{about}: {kinds:?}");
    let mut retries = 0;
    for run in &flows {
        nothing_completed_ran_again(run, about);
        retries += run.events("RETRY").len();
    }
    // Of the outer flow and of the one within it that failed.
    assert_eq!(retries, 2, "{about}");
    let outer = flows.iter().find(|run| run.id() == "r").unwrap();
    let winners = outer.events("WINNER");
    assert_eq!(winners.len(), 1, "{about}");
    let tasks = object["tasks"].as_array().unwrap();
    for task in tasks
        .iter()
        .filter(|task| task["task_id"].as_str().unwrap().starts_with("T1.c"))
    {
        let won = task["task_id"] == winners[0]["winner"];
        let status = if won { "success" } else { "cancelled" };
        assert_eq!(task["status"], status, "{about}: {task}");
    }
    let mut effects: HashMap<String, usize> = HashMap::new();
    for line in world.lines("ws/effects") {
        *effects.entry(line).or_default() += 1;
    }
    let twice: Vec<_> = effects.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{about}: {twice:?}");
    counts_each_request(world, outer, killed, about);
}

/// What the ledger of the outer run has is what the server counted, but for requests whose process was killed.
#[track_caller]
fn counts_each_request(world: &World, outer: &Run, killed: usize, about: &str) {
    let requests = world.server.requests().len();
    let lines = ledger(outer);
    let settled = lines.iter().filter(|line| line["kind"] == "settle");
    let (exact, estimated): (Vec<_>, Vec<_>) = settled.partition(|line| line["tokens"] == ANSWER);
    let open = unsettled(&lines);
    let unknown = estimated.len() + open.len();
    let (counted, about) = (exact.len(), format!("{about}: {requests} requests"));
    let range = counted..=counted + unknown;
    assert!(range.contains(&requests), "{range:?}, {about}");
    // Each process has one request in flight; a kill of an engine ends all that it has started, and a lost race one.
    let most = killed.saturating_mul(8).saturating_add(1);
    assert!(unknown <= most, "{unknown} of {killed} kills, {about}");
    if unknown == 0 {
        let settled = sum(&lines, "settle").0;
        assert_eq!(settled, requests as u64 * ANSWER, "{about}");
    }
    let above: HashSet<String> = lines.iter().map(|it| it["run_id"].to_string()).collect();
    // A directory that was being made when its process was killed is no run yet.
    for run in all_runs(world)
        .iter()
        .filter(|run| !run.id().starts_with('.') && run.events("FLOW_START").is_empty())
    {
        // Each line of an agent's own ledger is in that of the whole tree. Without one nothing was asked yet.
        let has_asked = run.path("spending.jsonl").exists() && !ledger(run).is_empty();
        assert!(
            !has_asked || above.contains(&format!("{:?}", run.id())),
            "{about}"
        );
    }
}

/// Once to the failure and once, when it is mended, to the end.
fn round(random: &mut fastrand::Rng, about: &str, is_killed: bool) -> usize {
    let world = world();
    let mut kills = 0;
    let mut end = |retry, code| match is_killed {
        true => torture(&world, retry, code, (random, &mut kills, about)),
        false => command(&world, retry).exits(code),
    };
    let failed = end(false, 1).object();
    assert_eq!(failed["error"]["node"], "n", "{about}: {failed}");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("g: operation: exit code 1"),
        "{about}: {message}"
    );
    world.write("ws/fixed", "");
    let last = end(true, 0);
    holds(&world, &last, kills, about);
    kills
}

#[test]
fn a_flow_that_is_never_killed_holds() {
    round(&mut fastrand::Rng::new(), "never killed", false);
}

#[test]
fn whatever_is_killed_the_flow_comes_to_the_same_end() {
    let kills = given_or("DELTA_TEST_FLOW_KILLS", 12);
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut killed, mut rounds) = (0, 0);
    while killed < kills {
        rounds += 1;
        let about = format!("round {rounds} with DELTA_TEST_SEED={seed}");
        killed += round(&mut random, &about, true);
    }
    eprintln!("{killed} kills in {rounds} rounds");
}

/// How often a process of the flow uses each of these system calls, at most. Shells do not use them: the program of a
/// node that is killed has failed.
fn changes() -> Vec<(String, usize)> {
    let names =
        "fdatasync,fsync,rename,renameat,renameat2,mkdir,flock,link,linkat,ftruncate,unlink,sendto";
    let world = world();
    let trace = format!("trace={names}");
    let strace = ["strace", "-qq", "-f", "-o", "trace", "-e", &trace];
    command(&world, false).under(&strace).exits(1);
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for line in world.lines("trace") {
        let call = line
            .split_once('(')
            .and_then(|(call, _)| call.split_once(' '));
        if let Some((pid, name)) = call
            && names.split(',').any(|one| one == name.trim())
        {
            *counts
                .entry((name.trim().to_owned(), pid.to_owned()))
                .or_default() += 1;
        }
    }
    let mut most: BTreeMap<String, usize> = BTreeMap::new();
    for ((name, _), count) in counts {
        let most = most.entry(name).or_default();
        *most = count.max(*most);
    }
    most.into_iter().collect()
}

#[test]
fn killed_before_any_change_of_a_file_the_flow_comes_to_the_same_end() {
    if !strace_works() {
        return;
    }
    let rounds = given_or("DELTA_TEST_FLOW_CHANGES", 4);
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let changes = changes();
    let mut hit = 0;
    for round in 1..=rounds {
        let world = world();
        let mut killed_once = |retry: bool, code: i32| {
            let (name, most) = &changes[random.usize(..changes.len())];
            let n = random.usize(1..=*most);
            let (trace, inject) = (
                format!("trace={name}"),
                format!("inject={name}:signal=KILL:when={n}"),
            );
            // In the outer engine alone, or in every process that comes so far.
            let follow: &[&str] = if random.u8(..3) > 0 { &["-f"] } else { &[] };
            let args = ["-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            let strace = [&["strace"], follow, &args].concat();
            let about = format!("round {round} with DELTA_TEST_SEED={seed}: {name} {n} {follow:?}");
            let mut outcome = command(&world, retry).under(&strace).end();
            for _ in 0..30 {
                match outcome.code() {
                    Some(ended) if ended == code => return (outcome, about),
                    None | Some(75) => hit += 1,
                    Some(_) => panic!("{about}: {}", outcome.describe()),
                }
                outcome = command(&world, retry).end();
            }
            panic!("{about}: it never ends: {}", outcome.describe())
        };
        let (failed, about) = killed_once(false, 1);
        let failed = failed.object();
        assert_eq!(failed["error"]["node"], "n", "{about}: {failed}");
        world.write("ws/fixed", "");
        let (last, about) = killed_once(true, 0);
        holds(&world, &last, usize::MAX, &about);
    }
    eprintln!("{hit} starts of {} were killed", 2 * rounds);
}

/// So many agents at once.
const AGENTS: u64 = 8;

#[test]
fn killed_at_random_the_agents_of_a_flow_never_exceed_its_budget() {
    const BUDGET: u64 = 12_000;
    let kills = given_or("DELTA_TEST_BUDGET_KILLS", 20);
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut killed = 0;
    while killed < kills {
        let world = restless(World::with_tools(NOTE).llm("max_tokens: 10"));
        let workflow = "defaults: {context: none}\nnodes: [{id: s}, {id: p, role: split}, {id: w, agent_id: ag}, \
                        {id: m, role: merge}, {id: x}]\nedges: [[s, p, w, m, x]]\n";
        world.write("f/workflow.yaml", workflow);
        world.write(
            "f/agents.yaml",
            "agents: [{id: ag, path: ../agent, max_iterations: 1000}]\n",
        );
        world.write(
            "in.json",
            json!((1..=AGENTS).collect::<Vec<_>>()).to_string(),
        );
        let start = || {
            let run = run(&world).args(["--run-id", "r", "-q", "-i", "in.json", "-j", "8"]);
            run.args(["--budget", &format!("tokens={BUDGET}")])
        };
        let mut here = 0;
        let mut calm = false;
        let outcome = loop {
            let running = start().spawn();
            let before = here;
            while !calm && alive(running.pid()) {
                await_requests(&world, running.pid(), random.usize(1..12));
                if let Some(pid) = random.choice(&world.processes())
                    && let Some(pid) = Pid::from_raw(pid.cast_signed())
                    && kill_process(pid, Signal::KILL).is_ok()
                {
                    here += 1;
                }
            }
            let outcome = running.wait();
            match outcome.code() {
                Some(4) if here == before => break outcome,
                // What was killed comes to its end, too.
                Some(4) => calm = true,
                None | Some(75) => {}
                Some(_) => panic!("DELTA_TEST_SEED={seed}: {}", outcome.describe()),
            }
        };
        killed += here;
        let about = format!(
            "DELTA_TEST_SEED={seed}, {here} kills: {}",
            outcome.describe()
        );
        outcome.says("is used up");
        eventually("no process is left", || world.processes().is_empty());
        let outer = all_runs(&world).into_iter().find(|run| run.id() == "r");
        let lines = ledger(&outer.unwrap());
        let open = unsettled(&lines);
        let spent = sum(&lines, "settle").0 + sum(&open, "reserve").0;
        assert!(spent >= BUDGET, "{spent}, {about}");
        let requests = world.server.requests().len() as u64;
        // What is reserved is more than what an answer takes, so that real spending stays below.
        assert!(
            requests * ANSWER < BUDGET + AGENTS * ANSWER,
            "{requests}, {about}"
        );
        let settled = lines.iter().filter(|line| line["kind"] == "settle");
        let exact = settled.clone().filter(|it| it["tokens"] == ANSWER).count() as u64;
        let unknown = settled.count() as u64 - exact + open.len() as u64;
        assert!(
            (exact..=exact + unknown).contains(&requests),
            "{requests}, {about}"
        );
        // Each run has in its own ledger what the flow's has of it.
        for run in all_runs(&world).iter().filter(|run| run.id() != "r") {
            let id = json!(run.id());
            let of_run: Vec<Value> = lines
                .iter()
                .filter(|it| it["run_id"] == id)
                .cloned()
                .collect();
            // One that was killed before it asked for anything has none.
            let own = match run.path("spending.jsonl").exists() {
                true => sum(&ledger(run), "settle").0,
                false => 0,
            };
            let above = sum(&of_run, "settle").0;
            // A kill between the two lets one lack what the other has: at most a line each time.
            let most = here as u64 * (ANSWER + 1000);
            assert!(above.abs_diff(own) <= most, "{above} and {own}, {about}");
        }
    }
    eprintln!("{killed} kills");
}
