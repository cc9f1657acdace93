//! The table of what runs, on a terminal.

use crate::flow::run::run;
use crate::harness::*;
use rustix::process::Signal;
use std::fs;

/// A flow that runs `a` for each item of its input, in so many programs at once as there are items. Each
/// says on `here` that it runs, and ends when somebody writes to its gate.
struct Fan {
    world: World,
    terminal: Terminal,
    picture: Picture,
    here: Fifo,
    gates: Vec<Fifo>,
}

impl Fan {
    fn new(items: usize, (lines, columns): (u16, u16), more: &str) -> Self {
        let world = World::new();
        let script = "n=$(cat); echo here > \"$HOME/here\"; read go < \"$HOME/gate-$n\"; \
                      test \"$go\" = go || { printf \"no\\033[2Jway\" >&2; exit 1; }; echo \"$n\"";
        let nodes = [
            start(),
            node("parts", "split", ""),
            node("a", "linear", &format!(", shell: '{script}'{more}")),
            node("m", "merge", ""),
            exit(),
        ];
        world.write("f/workflow.yaml", flow(&nodes, "s>parts parts>a a>m m>x"));
        let list: Vec<usize> = (0..items).collect();
        world.write("in.json", serde_json::to_string(&list).unwrap());
        let terminal = Terminal::new();
        terminal.resize(lines, columns);
        Self {
            picture: Picture::new(lines.into(), columns.into()),
            here: world.fifo("here"),
            gates: (0..items)
                .map(|n| world.fifo(&format!("gate-{n}")))
                .collect(),
            terminal,
            world,
        }
    }

    /// The command, with everything at the terminal.
    fn command(&self) -> Delta {
        let delta = run(&self.world).args(["--run-id", "r", "-i", "in.json", "-j", "40"]);
        delta
            .all_at(&self.terminal)
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
    }

    /// Starts it, and waits until so many programs run.
    fn started(&mut self, programs: usize) -> Running {
        let running = self.command().spawn();
        for _ in 0..programs {
            self.here.line();
        }
        running
    }

    /// Looks at the screen until it has a line like this.
    #[track_caller]
    fn shows(&mut self, words: &str) {
        while !self.has(words) {
            self.picture.take(&self.terminal.more());
        }
    }

    fn has(&self, words: &str) -> bool {
        self.picture.lines().iter().any(|line| line.contains(words))
    }

    /// What the screen has in the end.
    fn finally(&mut self) -> Vec<String> {
        self.picture.take(&self.terminal.rest());
        self.picture
            .lines()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    /// The lines of the table.
    fn table(&self) -> Vec<&str> {
        let lines = self.picture.lines();
        let begin = lines.iter().position(|line| line.starts_with("TASK"));
        lines[begin.expect("a table")..].to_vec()
    }
}

fn has_no_table(lines: &[String]) -> bool {
    let of_table = |line: &&String| line.starts_with("TASK") || line.contains("running");
    !lines.iter().any(|line| of_table(&line))
}

#[test]
fn what_runs_is_a_table_below_the_lines_and_nothing_of_it_stays() {
    let mut fan = Fan::new(3, (24, 80), "");
    let running = fan.started(3);
    fan.shows("2 done, 3 running, 0 waiting, 0 failed");
    let table = fan.table();
    assert_eq!(table[0], "TASK   NODE  ATTEMPT  TIME");
    for (line, task) in table[1..4].iter().zip(["T1.s0", "T1.s1", "T1.s2"]) {
        assert!(
            line.starts_with(&format!("{task}  a     1        ")) && line.ends_with(" s"),
            "{line}"
        );
    }
    assert_eq!(table.len(), 5);
    fan.gates[0].tell("go");
    fan.shows("3 done, 2 running");
    let lines = fan.picture.lines();
    let line = lines
        .iter()
        .position(|line| line.contains("] a  ok"))
        .expect("a line that stays");
    assert!(lines[line + 1].starts_with("TASK"), "{lines:#?}");
    assert_eq!(fan.table().len(), 4);
    fan.gates[1].tell("go");
    fan.gates[2].tell("go");
    running.wait().exits(0);
    let lines = fan.finally();
    assert!(has_no_table(&lines), "{lines:#?}");
    assert_eq!(lines.last().unwrap(), "[0,1,2]", "{lines:#?}");
    assert_eq!(lines.len(), 1 + 2 + 3 + 2 + 1, "{lines:#?}");
    let own = |line: &&String| line.starts_with("[T1.s") && line.contains("] a  ok, ");
    assert_eq!(lines.iter().filter(own).count(), 3);
}

#[test]
fn a_table_fits_on_the_screen_and_says_what_is_missing() {
    let mut fan = Fan::new(30, (9, 24), "");
    let running = fan.started(30);
    fan.shows("30 running");
    let table = fan.table();
    assert_eq!(table.len(), 8, "{table:#?}");
    assert_eq!(table[6], "… and 25 more");
    assert!(
        table.iter().all(|line| line.chars().count() < 24),
        "{table:#?}"
    );
    for gate in &mut fan.gates {
        gate.tell("go");
    }
    running.wait().exits(0);
    let lines = fan.finally();
    assert!(has_no_table(&lines), "{lines:#?}");
    let own = |line: &&String| line.starts_with("[T1.s") && line.contains("] a  ok, ");
    assert_eq!(lines.iter().filter(own).count(), 30, "{lines:#?}");
}

#[test]
fn a_signal_leaves_no_table_behind() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut fan = Fan::new(2, (24, 80), "");
        let running = fan.started(2);
        fan.shows("2 running");
        running.signal(signal);
        let outcome = running.wait();
        assert!(matches!(outcome.code(), Some(130 | 143)));
        let lines = fan.finally();
        assert!(has_no_table(&lines), "{lines:#?}");
        assert!(
            lines
                .iter()
                .any(|line| line.contains("the same command resumes the run"))
        );
    }
}

#[test]
fn a_resumed_flow_counts_what_was_done_before() {
    let mut fan = Fan::new(2, (24, 80), "");
    let running = fan.started(2);
    fan.shows("2 done, 2 running");
    running.kill();
    for gate in &mut fan.gates {
        gate.tell("go");
    }
    eventually("its programs are gone", || fan.world.processes().is_empty());
    fan.picture = Picture::new(24, 80);
    let running = fan.started(2);
    fan.shows("2 done, 2 running");
    for gate in &mut fan.gates {
        gate.tell("go");
    }
    running.wait().exits(0);
}

#[test]
fn a_suspended_flow_leaves_no_table_and_draws_it_again() {
    let mut fan = Fan::new(2, (24, 80), "");
    let running = fan.started(2);
    fan.shows("2 running");
    running.signal(Signal::TSTP);
    let stat = format!("/proc/{}/stat", running.pid());
    eventually("it is stopped", || {
        fs::read_to_string(&stat).unwrap().contains(") T ")
    });
    let lines = fan.finally();
    assert!(has_no_table(&lines), "{lines:#?}");
    running.signal(Signal::CONT);
    fan.shows("2 running");
    fan.gates[0].tell("go");
    fan.gates[1].tell("go");
    running.wait().exits(0);
    assert!(has_no_table(&fan.finally()));
}

#[test]
fn further_attempts_and_failures_are_counted_and_what_they_say_cannot_move_the_cursor() {
    let mut fan = Fan::new(1, (24, 80), ", retries: 1");
    let running = fan.started(1);
    fan.gates[0].tell("stop");
    fan.here.line();
    fan.shows("2 done, 1 running, 0 waiting, 0 failed");
    fan.shows("T1.s0  a     2 ");
    assert!(fan.has("operation, again in 1 s: exit code 1: no\u{FFFD}[2Jway"));
    fan.gates[0].tell("stop");
    running.wait().exits(1);
    assert!(has_no_table(&fan.finally()));
}

#[test]
fn where_it_cannot_be_drawn_again_or_nobody_wants_it_there_is_none() {
    for (name, value, quiet) in [
        ("TERM", "dumb", false),
        ("TERM", "", false),
        ("LINES", "3", true),
    ] {
        let mut fan = Fan::new(2, (24, 80), "");
        let command = fan.command().env(name, value);
        let running = if quiet { command.arg("-q") } else { command }.spawn();
        fan.here.line();
        fan.here.line();
        fan.gates[0].tell("go");
        fan.gates[1].tell("go");
        running.wait().exits(0);
        let text = fan.terminal.rest();
        assert!(
            !text.contains('\x1b') && !text.contains("running"),
            "{text:?}"
        );
        assert!(text.ends_with("[0,1]\r\n"), "{text:?}");
    }
}
