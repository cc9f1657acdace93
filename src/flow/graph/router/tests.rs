//! The rules one by one, and all of them together on graphs made at random.

use super::*;
use crate::flow::graph::choice::{FailureCode, choose_route};
use crate::flow::graph::topology::tests::graph;
use crate::flow::graph::topology::{Edge, Graph, MergeFailureMode, Node, PayloadRule};
use fastrand::Rng;
use std::collections::{BTreeMap, HashSet};

/// A node's output for its input in a task; none: it fails.
type Operation<'o> = &'o dyn Fn(&str, &str, &str) -> Option<String>;

/// How a step is named in a history.
type Name = (String, NodeIx, Option<EdgeIx>);

fn name_of(step: &StepRef) -> Name {
    (step.task.to_string(), step.node, step.edge)
}

struct Executor<'e> {
    graph: &'e Graph,
    operation: Operation<'e>,
    /// The number of steps at once.
    jobs: usize,
    rng: Rng,
    history: Vec<(Name, StepOutcome)>,
    started: HashSet<Name>,
    cancelled: usize,
    /// The steps that left the notes, and which each step was behind.
    noted: Vec<Name>,
    behind: BTreeMap<Name, Vec<Name>>,
    /// Whether that is looked at, which takes time that grows with the square of a chain.
    is_traced: bool,
    /// Arrivals at merges of other tasks, by their own task.
    merged: BTreeMap<String, Vec<Arrived>>,
}

/// The merge, the status and the output.
type Arrived = (NodeIx, serde_json::Value, serde_json::Value);

impl Executor<'_> {
    fn outcome(&self, router: &Router<'_>, step: &StepRef) -> StepOutcome {
        let ix = step.key.step;
        if let Some(failure) = router.failed_early(ix) {
            return StepOutcome::Failure(failure);
        }
        let id = &self.graph.nodes[step.node].id;
        let input = router.input(ix).unwrap();
        let output = match (self.operation)(&step.task, id, &input) {
            Some(output) if output == "=" => router.identity(ix).unwrap(),
            Some(output) => output.into(),
            None => return StepOutcome::Failure(Failure::new(FailureCode::Operation, id)),
        };
        match choose_route(self.graph, step.node, &output) {
            Ok(choice) => StepOutcome::Success(output, choice),
            Err(failure) => StepOutcome::Failure(failure),
        }
    }

    fn run(&mut self, router: &mut Router<'_>) {
        let (mut ready, mut running) = (VecDeque::new(), Vec::new());
        loop {
            while let Some(effect) = router.next_effect() {
                match effect {
                    Effect::Start(step) => {
                        assert!(self.started.insert(name_of(&step)), "it ran twice");
                        ready.push_back(step);
                    }
                    Effect::Cancel(key) => {
                        self.cancelled += 1;
                        ready.retain(|step: &StepRef| step.key != key);
                        running.retain(|step: &StepRef| step.key != key);
                    }
                    _ => {}
                }
            }
            while running.len() < self.jobs
                && let Some(step) = ready.pop_front()
            {
                running.push(step);
            }
            if running.is_empty() {
                return;
            }
            let step = running.swap_remove(self.rng.usize(..running.len()));
            let outcome = self.outcome(router, &step);
            self.history.push((name_of(&step), outcome.clone()));
            self.end(router, &step, outcome);
        }
    }
}

impl Executor<'_> {
    /// Ends a step with a note of its name, and looks which notes it was behind.
    fn end(&mut self, router: &mut Router<'_>, step: &StepRef, outcome: StepOutcome) {
        let (name, ix) = (name_of(step), step.key.step);
        if !self.is_traced {
            return router.end_step(ix, outcome, None);
        }
        self.note_arrivals(router, step);
        let notes = router.notes(ix).into_iter();
        let behind = notes.map(|note| self.noted[note].clone()).collect();
        self.noted.push(name.clone());
        self.behind.insert(name, behind);
        router.end_step(ix, outcome, Some(self.noted.len() - 1));
    }
}

impl Executor<'_> {
    fn note_arrivals(&mut self, router: &Router<'_>, step: &StepRef) {
        if self.graph.nodes[step.node].role != Role::Merge {
            return;
        }
        let input = router.input(step.key.step).unwrap();
        let input: serde_json::Value = serde_json::from_str(&input).unwrap();
        for arrival in input["merge_inputs"].as_array().unwrap() {
            let task = arrival["task_id"].as_str().unwrap();
            if task != &*step.task {
                let arrived = (
                    step.node,
                    arrival["status"].clone(),
                    arrival["output"].clone(),
                );
                self.merged
                    .entry(task.to_owned())
                    .or_default()
                    .push(arrived);
            }
        }
    }

    /// A task whose one way led to a merge of another task is reported as that merge got it,
    /// independent of what its own merges gathered in between. Returns how many such tasks there are.
    fn merged_as_reported(&self, router: &Router<'_>) -> usize {
        let views: Vec<TaskView<'_>> = router
            .tasks()
            .into_iter()
            .map(|ix| router.view(ix))
            .collect();
        let is_merge = |node: &NodeIx| self.graph.nodes[*node].role == Role::Merge;
        let mut count = 0;
        for view in &views {
            let Some([(merge, status, output)]) = self.merged.get(view.id).map(Vec::as_slice)
            else {
                continue;
            };
            let mut children = views.iter().filter(|child| child.parent == Some(view.id));
            let exits = view
                .path
                .iter()
                .any(|node| self.graph.nodes[*node].role == Role::Exit);
            if view.status == TaskStatus::Cancelled
                || exits
                || !view.failed.is_empty()
                || !children.all(|child| child.merged_at.is_some())
            {
                continue;
            }
            assert_eq!(view.merged_at, Some(*merge), "{view:?}");
            assert_eq!(view.status.name(), status, "{view:?}");
            let own: serde_json::Value =
                serde_json::from_str(view.output.as_ref().unwrap()).unwrap();
            assert_eq!(own, *output, "{view:?}");
            count += usize::from(view.path.iter().any(is_merge));
        }
        count
    }
}

/// In any order, what ended in both followed the same steps.
fn is_behind_the_same(first: &BTreeMap<Name, Vec<Name>>, other: &BTreeMap<Name, Vec<Name>>) {
    for (name, behind) in other {
        assert!(
            first.get(name).is_none_or(|same| same == behind),
            "{name:?}"
        );
    }
}

fn executor<'e>(
    graph: &'e Graph,
    operation: Operation<'e>,
    jobs: usize,
    seed: u64,
) -> Executor<'e> {
    Executor {
        graph,
        operation,
        jobs,
        rng: Rng::with_seed(seed),
        history: Vec::new(),
        started: HashSet::new(),
        cancelled: 0,
        noted: Vec::new(),
        behind: BTreeMap::new(),
        is_traced: true,
        merged: BTreeMap::new(),
    }
}

/// The report of a run, a line per task.
fn told(graph: &Graph, router: &Router<'_>) -> String {
    let ids = |nodes: &[NodeIx]| {
        let ids = nodes.iter().map(|node| graph.nodes[*node].id.as_str());
        ids.collect::<Vec<_>>().join(",")
    };
    let mut out = String::new();
    for task in router.tasks() {
        let view = router.view(task);
        assert_ne!(view.status, TaskStatus::Open, "{} has not ended", view.id);
        out.push_str(&format!(
            "{} {} {}",
            view.id,
            view.status.name(),
            ids(&view.path)
        ));
        for (mark, node) in [(" exit ", view.exit), (" merged ", view.merged_at)] {
            if let Some(node) = node {
                out.push_str(&format!("{mark}{}", graph.nodes[node].id));
            }
        }
        if let Some((node, failure)) = &view.error {
            let node = &graph.nodes[*node].id;
            out.push_str(&format!(" {}@{node}", failure.code.name()));
        }
        if let Some(output) = &view.output {
            out.push_str(&format!(" = {output}"));
        }
        out.push('\n');
    }
    out
}

/// Runs a graph in short; nodes whose ids are in `bad` fail.
fn run(text: &str, input: &str, bad: &str) -> String {
    let graph = graph(text);
    let operation = |_: &str, node: &str, input: &str| {
        let item = format!("{node}{input}");
        let fails = bad.split(' ').any(|bad| bad == node || bad == item);
        (!fails).then(|| "=".to_owned())
    };
    let mut results = HashSet::new();
    for seed in 0..20 {
        let plan = RoutePlan::new(&graph, 0);
        let mut router = Router::new(&plan, 1, input.into());
        executor(&graph, &operation, 1 + seed as usize % 4, seed).run(&mut router);
        assert!(router.is_over());
        results.insert(told(&graph, &router));
    }
    assert_eq!(results.len(), 1, "it depends on the order: {results:#?}");
    results.into_iter().next().unwrap()
}

#[test]
fn a_chain_goes_from_start_to_exit() {
    assert_eq!(
        run("s:start>a a>b b>x x:exit", "1", ""),
        "T1 success s,a,b,x exit x = 1\n"
    );
}

#[test]
fn a_failure_stops_the_task_or_makes_it_partial() {
    let fails = run("s:start>a a>b b>x x:exit", "1", "a");
    assert_eq!(fails, "T1 failure s,a operation@a\n");
    let goes_on = run("s:start>a a:linear!>b b>x x:exit", "1", "a");
    assert_eq!(goes_on, "T1 partial s,a,b,x exit x operation@a = 1\n");
    let error = run("s:start>a a>x x:exit-", "1", "");
    assert_eq!(error, "T1 failure s,a,x exit x = 1\n");
    // Nothing saves what has no way on.
    let split = run("s:start>p p:split!>a a>x x:exit", "[]", "");
    assert_eq!(split, "T1 failure s,p invalid_split@p\n");
}

#[test]
fn the_first_clone_in_order_that_succeeds_decides_and_the_rest_is_cancelled() {
    let flow = "s:start>b b:branch>l,k,j l>x k>x j>x x:exit";
    assert_eq!(
        run(flow, "1", "l"),
        "T1 success s,b exit x = 1\nT1.c0 failure l operation@l\n\
         T1.c1 success k,x exit x = 1\nT1.c2 cancelled \n"
    );
    let none = run(flow, "1", "l k j");
    assert!(
        none.starts_with("T1 failure s,b upstream_failure@b\n"),
        "{none}"
    );
}

/// The report of the clones' tasks when their steps end in this order; `-` before a name: it fails.
fn race(order: &[&str]) -> String {
    let graph = graph("s:start>b b:branch^>l,k,j l>x k>x j>x x:exit");
    let plan = RoutePlan::new(&graph, 0);
    let mut router = Router::new(&plan, 1, "1".into());
    let mut open: BTreeMap<Name, StepRef> = BTreeMap::new();
    let quick = |name: &Name| ["s", "b", "x"].contains(&graph.nodes[name.1].id.as_str());
    let mut order = order.iter();
    loop {
        learn(&mut router, &mut open);
        open.retain(|_, step| router.is_wanted(step.key.step));
        let next = open.keys().find(|name| quick(name)).cloned();
        let (name, fails) = match next {
            Some(name) => (name, false),
            None => {
                let Some(id) = order.next() else {
                    return told(&graph, &router);
                };
                let node = graph.find(id.trim_start_matches('-')).unwrap();
                let is_it = |name: &&Name| name.1 == node;
                let Some(name) = open.keys().find(is_it).cloned() else {
                    // It was cancelled.
                    continue;
                };
                (name, id.starts_with('-'))
            }
        };
        let step = open.remove(&name).unwrap();
        let outcome = match fails {
            true => StepOutcome::Failure(Failure::new(FailureCode::Operation, "no")),
            false => {
                StepOutcome::Success("1".into(), choose_route(&graph, step.node, "1").unwrap())
            }
        };
        router.end_step(step.key.step, outcome, None);
    }
}

#[test]
fn with_winner_first_time_decides_and_a_clone_that_had_failed_stays_so() {
    assert_eq!(
        race(&["-j", "k", "l"]),
        "T1 success s,b exit x = 1\nT1.c0 cancelled \n\
         T1.c1 success k,x exit x = 1\nT1.c2 failure j operation@j\n"
    );
    assert_eq!(
        race(&["l", "k", "j"]),
        "T1 success s,b exit x = 1\nT1.c0 success l,x exit x = 1\n\
         T1.c1 cancelled \nT1.c2 cancelled \n"
    );
    let none = race(&["-j", "-k", "-l"]);
    assert!(
        none.starts_with("T1 failure s,b upstream_failure@b\n"),
        "{none}"
    );
}

#[test]
fn a_random_race_replayed_in_its_own_order_has_the_same_winner() {
    let mut differ = 0;
    for seed in 0..300 {
        let mut graph = random_graph(&mut Rng::with_seed(seed));
        for node in &mut graph.nodes {
            node.winner = WinnerRule::First;
        }
        let plan = RoutePlan::new(&graph, 0);
        let operation = |task: &str, node: &str, _: &str| by_place(&graph, seed, task, node);
        let mut results = HashSet::new();
        for order in 0..4 {
            let mut router = Router::new(&plan, 1, "0".into());
            let mut executor = executor(&graph, &operation, 8, order);
            executor.run(&mut router);
            assert!(router.is_over(), "seed {seed} has not ended: {graph:#?}");
            let mut again = Router::new(&plan, 1, "0".into());
            let mut open: BTreeMap<Name, StepRef> = BTreeMap::new();
            for (name, outcome) in &executor.history {
                learn(&mut again, &mut open);
                let step = open.remove(name).expect("what ended had been started");
                again.end_step(step.key.step, outcome.clone(), None);
            }
            let told_first = told(&graph, &router);
            assert_eq!(told_first, told(&graph, &again), "seed {seed}");
            results.insert(told_first);
        }
        differ += usize::from(results.len() > 1);
    }
    // Time decides something.
    assert!(differ > 10, "{differ}");
}

#[test]
fn subtasks_without_a_merge_make_a_list() {
    let flow = "s:start>p p:split>w w>x x:exit";
    assert_eq!(
        run(flow, "[7,8]", ""),
        "T1 success s,p = [7,8]\nT1.s0 success w,x exit x = 7\nT1.s1 success w,x exit x = 8\n"
    );
    let first = |text: String| text.lines().next().unwrap().to_owned();
    assert_eq!(
        first(run(flow, "[7,8]", "w7")),
        "T1 failure s,p upstream_failure@p"
    );
    let continues = flow.replace("split", "split!");
    let some = first(run(&continues, "[7,8]", "w7"));
    assert_eq!(some, "T1 partial s,p upstream_failure@p = [8]");
    let none = first(run(&continues, "[7,8]", "w"));
    assert_eq!(none, "T1 failure s,p upstream_failure@p");
}

/// The steps that each step is behind, the last first: `node:task/node,...`.
fn pasts(text: &str, input: &str, bad: &str) -> Vec<String> {
    let graph = graph(text);
    let operation = |_: &str, node: &str, _: &str| (node != bad).then(|| "=".to_owned());
    let plan = RoutePlan::new(&graph, 0);
    let mut router = Router::new(&plan, 1, input.into());
    let mut executor = executor(&graph, &operation, 9, 1);
    executor.run(&mut router);
    let named = |(task, node, _): &Name| format!("{}/{}", &task[1..], graph.nodes[*node].id);
    let all = executor.behind.iter();
    let all = all.map(|(name, behind)| {
        let behind: Vec<String> = behind.iter().map(named).collect();
        format!("{}:{}", named(name), behind.join(","))
    });
    all.collect()
}

#[test]
fn a_step_is_behind_its_task_its_forebears_and_who_arrived_and_nobody_else() {
    let merged = pasts(
        "s:start>b b:branch>u,v u>w w>m v>m m:merge>x x:exit",
        "1",
        "",
    );
    assert_eq!(
        merged,
        [
            "1/s:",
            "1/b:1/s",
            "1/m:1.c1/v,1.c0/w,1.c0/u,1/b,1/s",
            "1/x:1/m,1.c1/v,1.c0/w,1.c0/u,1/b,1/s",
            "1.c0/u:1/b,1/s",
            "1.c0/w:1.c0/u,1/b,1/s",
            "1.c1/v:1/b,1/s",
        ]
    );
    // Who failed on the way did not arrive.
    let failed = pasts(
        "s:start>b b:branch>u,v u>w w>m v>m m:merge?>x x:exit",
        "1",
        "w",
    );
    assert_eq!(failed[2], "1/m:1.c1/v,1/b,1/s");
    // Subtasks of subtasks, in order of place.
    let nested = pasts(
        "s:start>p p:split>q q:split>w w>m m:merge>n n:merge>x x:exit",
        "[[1,2],[3,4]]",
        "",
    );
    let exit = nested.iter().find(|line| line.starts_with("1/x:")).unwrap();
    let inner = |n: usize| format!("1.s{n}/m,1.s{n}.s1/w,1.s{n}.s0/w,1.s{n}/q");
    assert_eq!(*exit, format!("1/x:1/n,{},{},1/p,1/s", inner(1), inner(0)));
}

#[test]
fn a_merge_judges_failures_by_its_mode() {
    let flow = |mode: &str| format!("s:start>p p:split>v,w v>m w>m m:merge{mode}>x x:exit");
    let first = |text: String| text.lines().next().unwrap().to_owned();
    let with = |mode: &str, bad: &str| first(run(&flow(mode), "[1,2,3]", bad));
    assert_eq!(with("", ""), "T1 success s,p,m,x exit x = [1,2,3]");
    assert_eq!(with("", "w"), "T1 failure s,p,m upstream_failure@m");
    assert_eq!(with("?", "w"), "T1 success s,p,m,x exit x = [1,3]");
    assert_eq!(with("?", "v w"), "T1 success s,p,m,x exit x = []");
    assert_eq!(with("~", "w"), "T1 partial s,p,m,x exit x = [1,3]");
    assert_eq!(with("~", "v w"), "T1 failure s,p,m upstream_failure@m");
}

#[test]
fn a_diamond_merges_inside_its_own_task() {
    let flow = "s:start>p p:split>d d:decision>a,c a>m c>m m:merge>n n:merge>x x:exit";
    assert_eq!(
        run(flow, "[\"a\",\"c\"]", ""),
        "T1 success s,p,n,x exit x = [[\"a\"],[\"c\"]]\n\
         T1.s0 success d,a,m merged n = [\"a\"]\nT1.s1 success d,c,m merged n = [\"c\"]\n"
    );
    // A failure in the diamond is that of the subtask, and the gathering merge gets it.
    let fails = run(flow, "[\"a\",\"c\"]", "c");
    assert!(
        fails.starts_with("T1 failure s,p,n upstream_failure@n\n"),
        "{fails}"
    );
    assert!(fails.contains("T1.s1 failure d,c operation@c\n"), "{fails}");
}

#[test]
fn a_task_that_goes_on_behind_an_inner_merge_has_its_own_ending() {
    let flow = "s:start>b b:branch>i,z i:branch>u,v u>m v>m m:merge>w w>n z>n n:merge?>x x:exit";
    let inner = "T1.c0.c0 success u merged m = 1\nT1.c0.c1 success v merged m = 1\n\
                 T1.c1 success z merged n = 1\n";
    assert_eq!(
        run(flow, "1", ""),
        format!(
            "T1 success s,b,n,x exit x = [[1,1],1]\nT1.c0 success i,m,w merged n = [1,1]\n{inner}"
        )
    );
    assert_eq!(
        run(flow, "1", "w"),
        format!("T1 success s,b,n,x exit x = [1]\nT1.c0 failure i,m,w operation@w\n{inner}")
    );
    // The merge belongs to the task that decided, above the branch.
    let decided = "s:start>p p:branch>d,z d:decision>b,m b:branch>u,v u>m v>m m:merge>n z>n \
                   n:merge>x x:exit";
    let text = run(decided, "\"b\"", "");
    let line = "\nT1.c0 success d,b,m merged n = [\"b\",\"b\"]\n";
    assert!(text.contains(line), "{text}");
    // Clones that no merge saves change nothing where the merge itself fails.
    let fails = run(
        "s:start>b b:branch>u,v,y u>m v>m m:merge>x y>x x:exit",
        "1",
        "m y",
    );
    assert!(fails.starts_with("T1 failure s,b,m "), "{fails}");
}

#[test]
fn a_merge_does_not_wait_for_a_way_that_was_not_taken() {
    let flow = "s:start>d d:decision>a,b a>m b:branch>l,k l>m k>m m:merge>x x:exit";
    let one = run(flow, "\"a\"", "");
    assert_eq!(one, "T1 success s,d,a,m,x exit x = [\"a\"]\n");
    let two = run(flow, "\"b\"", "");
    assert!(
        two.starts_with("T1 success s,d,b,m,x exit x = [\"b\",\"b\"]\n"),
        "{two}"
    );
}

#[test]
fn a_merge_at_which_nobody_can_arrive_never_runs() {
    let flow = "s:start>b b:branch>d,e d:decision>m,y e:decision>m,y m:merge>x x:exit y:exit";
    let away = run(flow, "\"y\"", "");
    assert_eq!(
        away,
        "T1 success s,b exit y = \"y\"\nT1.c0 success d,y exit y = \"y\"\n\
         T1.c1 success e,y exit y = \"y\"\n"
    );
}

#[test]
fn nested_subtasks_merge_where_they_were_split_and_second_forks_have_names_of_their_own() {
    let flow = "s:start>p p:split>q q:split>w w>m m:merge>n n:merge>r r:split>v v>x x:exit";
    let all = run(flow, "[[1,2],[3]]", "");
    let ids: Vec<&str> = all
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(
        ids,
        [
            "T1", "T1.s0", "T1.s0.s0", "T1.s0.s1", "T1.s1", "T1.s1.s0", "T1.s0@r", "T1.s1@r"
        ]
    );
    assert!(
        all.starts_with("T1 success s,p,n,r = [[1,2],[3]]\n"),
        "{all}"
    );
}

#[test]
fn merges_that_do_not_nest_run_in_the_task_that_branched() {
    let flow = "s:start>b b:branch>u,v,z u>m v>m m:merge>n z>n n:merge>x x:exit";
    assert!(
        run(flow, "1", "").starts_with("T1 success s,b,m,n,x exit x = [[1,1],1]\n"),
        "{}",
        run(flow, "1", "")
    );
    let lost = run(&flow.replace("n:merge", "n:merge?"), "1", "u");
    assert!(
        lost.starts_with("T1 success s,b,m,n,x exit x = [1]\n"),
        "{lost}"
    );
}

#[test]
fn ten_thousand_subtasks_and_a_chain_of_ten_thousand_nodes_are_routed() {
    let graph = graph("s:start>p p:split>w w>m m:merge>x x:exit");
    let plan = RoutePlan::new(&graph, 0);
    let items: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    let input = format!("[{}]", items.join(","));
    let mut router = Router::new(&plan, 1, input.as_str().into());
    let same = |_: &str, _: &str, _: &str| Some("=".into());
    let mut long = executor(&graph, &same, 64, 1);
    long.is_traced = false;
    long.run(&mut router);
    assert_eq!(router.view(0).output.as_deref(), Some(input.as_str()));

    let names: Vec<String> = (0..10_000).map(|n| format!("n{n}")).collect();
    let mut text = "s:start>n0".to_owned();
    for pair in names.windows(2) {
        text.push_str(&format!(" {}>{}", pair[0], pair[1]));
    }
    let graph = self::graph(&format!("{text} n9999>x x:exit"));
    let plan = RoutePlan::new(&graph, 0);
    let mut router = Router::new(&plan, 1, "1".into());
    let mut long = executor(&graph, &same, 1, 1);
    long.is_traced = false;
    long.run(&mut router);
    assert_eq!(router.view(0).path.len(), 10_002);
}

/// A valid graph of any shape: forks nest, cross, merge with one another and with themselves.
fn random_graph(rng: &mut Rng) -> Graph {
    let mut nodes: Vec<Node> = Vec::new();
    let mut edges: Vec<Edge> = Vec::new();
    // The open ends of the graph, and whether they follow a split.
    let mut ends: Vec<(NodeIx, bool)> = Vec::new();
    let node = |nodes: &mut Vec<Node>, rng: &mut Rng, role: Role| {
        nodes.push(Node {
            id: format!("{}{}", role.name(), nodes.len()),
            role,
            default_start: role == Role::Start,
            always_fail: role == Role::Exit && rng.u8(..6) == 0,
            continue_on_failure: rng.u8(..4) == 0,
            merge_failure_mode: [
                MergeFailureMode::FailOnAny,
                MergeFailureMode::IgnoreFailures,
                MergeFailureMode::Partial,
            ][rng.usize(..3)],
            winner: WinnerRule::Order,
            payload: [None, Some(PayloadRule::Keep), Some(PayloadRule::Output)][rng.usize(..3)],
        });
        nodes.len() - 1
    };
    let link = |edges: &mut Vec<Edge>, from, to| {
        // Only labels distinguish a second edge between two nodes from the first.
        let same = edges.iter().filter(|it| it.from == from && it.to == to);
        let label = same.count().checked_sub(1).map(|n| format!("again{n}"));
        edges.push(Edge { from, to, label });
    };
    let start = node(&mut nodes, rng, Role::Start);
    ends.push((start, false));
    for _ in 0..rng.usize(1..14) {
        let at = rng.usize(..ends.len());
        let (from, split) = ends[at];
        match rng.u8(..7) {
            0 => {
                let to = node(&mut nodes, rng, Role::Linear);
                link(&mut edges, from, to);
                ends[at] = (to, split);
            }
            kind @ 1..=4 => {
                let role =
                    [Role::Decision, Role::Branch, Role::Split, Role::Split][kind as usize - 1];
                let to = node(&mut nodes, rng, role);
                link(&mut edges, from, to);
                ends.swap_remove(at);
                let least = if role == Role::Split { 1 } else { 2 };
                let split = split || role == Role::Split;
                for _ in 0..rng.usize(least..4) {
                    if rng.bool() {
                        // The next node follows the fork itself.
                        ends.push((to, split));
                        continue;
                    }
                    let next = node(&mut nodes, rng, Role::Linear);
                    link(&mut edges, to, next);
                    ends.push((next, split));
                }
            }
            _ => {
                rng.shuffle(&mut ends);
                let ways = rng.usize(1..=ends.len().min(4));
                if ways == 1 && !ends[ends.len() - 1].1 {
                    continue;
                }
                let to = node(&mut nodes, rng, Role::Merge);
                let mut split = true;
                for (from, under) in ends.split_off(ends.len() - ways) {
                    link(&mut edges, from, to);
                    split &= under;
                }
                ends.push((to, split));
            }
        }
    }
    let exits: Vec<NodeIx> = (0..rng.usize(1..3).min(ends.len()))
        .map(|_| node(&mut nodes, rng, Role::Exit))
        .collect();
    for (at, (from, _)) in ends.into_iter().enumerate() {
        link(&mut edges, from, exits[at % exits.len()]);
    }
    Graph::new(nodes, edges)
}

/// An operation that depends on nothing but its place and its seed.
fn by_place(graph: &Graph, seed: u64, task: &str, node: &str) -> Option<String> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (seed, task, node).hash(&mut hasher);
    let mut rng = Rng::with_seed(hasher.finish());
    if rng.u8(..8) == 0 {
        return None;
    }
    let ix = graph.find(node).unwrap();
    Some(match graph.nodes[ix].role {
        Role::Decision => {
            let edges = graph.outgoing(ix);
            let edge = &graph.edges[edges[rng.usize(..edges.len())]];
            let target = &graph.nodes[edge.to].id;
            format!("{:?}", edge.label.as_ref().unwrap_or(target))
        }
        Role::Split => match rng.usize(..5) {
            0 => "[]".to_owned(),
            1 => "\"whole\"".to_owned(),
            n => format!("{:?}", (0..n).collect::<Vec<_>>()),
        },
        Role::Linear if rng.bool() => format!("\"{task} {node}\""),
        _ => "=".to_owned(),
    })
}

#[test]
fn a_random_graph_has_one_result_in_any_order_at_any_width_and_from_any_prefix() {
    let mut roles: BTreeMap<String, usize> = BTreeMap::new();
    let (mut ways, mut again) = (BTreeMap::<String, usize>::new(), 0);
    let mut inner = 0;
    let (mut cancelled, mut statuses) = (0, BTreeMap::<String, usize>::new());
    for seed in 0..400 {
        let mut rng = Rng::with_seed(seed);
        let graph = random_graph(&mut rng);
        let plan = RoutePlan::new(&graph, 0);
        let operation = |task: &str, node: &str, _: &str| by_place(&graph, seed, task, node);
        let mut first: Option<String> = None;
        let mut history = Vec::new();
        let mut behind = BTreeMap::new();
        for (order, jobs) in [(1, 1), (2, 8), (3, 3), (4, 1000)] {
            let mut router = Router::new(&plan, 1, "0".into());
            let mut executor = executor(&graph, &operation, jobs, order);
            executor.run(&mut router);
            assert!(router.is_over(), "seed {seed} has not ended: {graph:#?}");
            let told = told(&graph, &router);
            cancelled += executor.cancelled;
            inner += executor.merged_as_reported(&router);
            is_behind_the_same(&behind, &executor.behind);
            behind.extend(executor.behind);
            match &first {
                None => first = Some(told),
                Some(first) => assert_eq!(first, &told, "seed {seed} {graph:#?}"),
            }
            history = executor.history;
        }
        let first = first.unwrap();
        for _ in 0..5 {
            let mut router = Router::new(&plan, 1, "0".into());
            let upto = rng.usize(..=history.len());
            let mut executor = executor(&graph, &operation, rng.usize(1..6), rng.u64(..));
            let mut open: BTreeMap<Name, StepRef> = BTreeMap::new();
            for (name, outcome) in &history[..upto] {
                learn(&mut router, &mut open);
                let step = open.remove(name).expect("what ended had been started");
                executor.end(&mut router, &step, outcome.clone());
            }
            learn(&mut router, &mut open);
            executor.go_on(&mut router, open.into_values().collect());
            is_behind_the_same(&behind, &executor.behind);
            assert_eq!(first, told(&graph, &router), "seed {seed} from {upto}");
        }
        for node in &graph.nodes {
            *roles.entry(format!("{:?}", node.role)).or_default() += 1;
        }
        for edge in &graph.edges {
            let [from, to] = [edge.from, edge.to].map(|ix| graph.nodes[ix].role);
            *ways.entry(format!("{from:?} {to:?}")).or_default() += 1;
            again += usize::from(edge.label.is_some());
        }
        *statuses
            .entry(first.split(' ').nth(1).unwrap().to_owned())
            .or_default() += 1;
    }
    // The graphs are worth something only if everything happens in them.
    assert_eq!(roles.len(), 7);
    assert!(roles.values().all(|count| *count > 80), "{roles:?}");
    for fork in ["Decision", "Branch", "Split"] {
        for next in ["Linear", "Decision", "Branch", "Split", "Merge", "Exit"] {
            let count = ways.get(&format!("{fork} {next}"));
            assert!(
                count.is_some_and(|count| *count > 20),
                "{fork} {next}: {ways:?}"
            );
        }
    }
    assert!(again > 40, "{again}");
    assert_eq!(statuses.len(), 3);
    assert!(statuses.values().all(|count| *count > 12), "{statuses:?}");
    assert!(cancelled > 40, "{cancelled}");
    assert!(inner > 20, "{inner}");
}

fn learn(router: &mut Router<'_>, open: &mut BTreeMap<Name, StepRef>) {
    while let Some(effect) = router.next_effect() {
        if let Effect::Start(step) = effect {
            open.insert(name_of(&step), step);
        }
    }
}

impl Executor<'_> {
    /// Goes on where a history ends, with these steps to be run.
    fn go_on(&mut self, router: &mut Router<'_>, mut steps: Vec<StepRef>) {
        steps.retain(|step| router.is_wanted(step.key.step));
        self.rng.shuffle(&mut steps);
        while let Some(step) = steps.pop() {
            if router.is_wanted(step.key.step) {
                let outcome = self.outcome(router, &step);
                self.end(router, &step, outcome);
            }
            while let Some(effect) = router.next_effect() {
                if let Effect::Start(step) = effect {
                    let at = self.rng.usize(..=steps.len());
                    steps.insert(at, step);
                }
            }
        }
    }
}
