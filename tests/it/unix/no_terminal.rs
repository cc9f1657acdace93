//! What a run starts leads a session of its own, without a terminal, and is ended and waited for all the same.

use crate::harness::*;
use serde_json::json;
use std::process::Command;

/// Notes who leads a session, and who can open the terminal.
fn probe(world: &World) -> String {
    let asked = shell_word(&world.path("asked"));
    format!(
        "read -r pid name state ppid group session rest < /proc/$$/stat; does=follows\n\
         [ $session = $pid ] && does=leads; (: < /dev/tty) 2> /dev/null && does=asks\n\
         echo $who $does >> {asked}\n"
    )
}

#[test]
fn whatever_a_run_starts_leads_a_session_without_a_terminal() {
    if !installed(&["setsid"]) {
        return;
    }
    let replies = [call("c", "tool", &json!({})), text("done")];
    let world = World::with_tools("- {name: tool, exec: '${AGENT_HOME}/probe.sh tool'}");
    let world = world.program(replies);
    let (probe, file) = (probe(&world), world.path("agent/probe.sh"));
    world.script("agent/probe.sh", &format!("#!/bin/sh\nwho=$1\n{probe}"));
    world.write("agent/model/1.sh", format!("who=model; {probe}"));
    let run = |who: &str| json!({"command": [file, who]});
    let hooks = [
        ("on_iteration_start", "hook"),
        ("pre_tool_execution", "guard"),
    ];
    let hooks = hooks.map(|(name, who)| format!("{name}: {}\n", run(who)));
    world.write("agent/hooks.yaml", hooks.concat());
    let generator = run("generator");
    let source = format!(
        "sources:\n  - {{type: file, path: '${{AGENT_HOME}}/system_prompt.md'}}\n  - {{type: computed_file, \
         on_missing: skip, output_path: '${{CWD}}/out', generator: {generator}}}\n  - {{type: journal}}\n"
    );
    world.write("agent/context.yaml", source);
    let world = world.top(&format!("accept: [{}]", run("check")));
    let terminal = Terminal::new();
    let delta = world.run("go").at(&terminal).under(&["setsid", "-c"]);
    delta.exits(0).prints("done\n");
    let mut asked = world.lines("asked");
    asked.sort_unstable();
    asked.dedup();
    let all = ["check", "generator", "guard", "hook", "model", "tool"];
    assert_eq!(asked, all.map(|who| format!("{who} leads")));
}

#[test]
fn an_interrupt_typed_at_the_terminal_ends_the_whole_tree_of_a_tool() {
    if !installed(&["setsid"]) {
        return;
    }
    let script = "trap 'echo ended > ../ended; exit 0' TERM; setsid sleep 600 & echo up > ../ready; wait; sleep 600";
    let world = World::with_tools(&format!("- {{name: work, shell: {}}}", json!(script)));
    let mut ready = world.fifo("ready");
    world.model_says([call("a", "work", &json!({}))]);
    let mut terminal = Terminal::new();
    let delta = world.run("go").at(&terminal).under(&["setsid", "-c"]);
    let delta = delta.spawn();
    ready.line();
    terminal.types("\u{3}");
    delta.wait().exits(130);
    assert_eq!(world.read("ended"), "ended\n");
    eventually("the tool's processes are gone", || {
        world.processes().is_empty()
    });
}

#[test]
fn the_first_process_of_a_container_waits_for_what_tools_leave() {
    const FIRST: [&str; 3] = ["unshare", "-Urpf", "--mount-proc"];
    let tried = Command::new(FIRST[0])
        .args(&FIRST[1..])
        .arg("true")
        .output();
    if !tried.is_ok_and(|it| it.status.success()) {
        eprintln!("skipped: no namespace can be made");
        return;
    }
    let leave = "sh -c 'sleep 0 & sleep 0.1 &'; setsid sleep 0 & setsid sleep 0.1 & exit 0";
    // A call's own processes come and go while they are counted.
    let count = "for i in $(seq 200); do set -- $(grep -l '^State:.Z' /proc/[0-9]*/status); [ $# = 0 ] && break; \
                 sleep 0.05; done; echo $# are left";
    let world = World::with_tools(&format!(
        "- {{name: leave, shell: {}}}\n- {{name: count, shell: {}}}",
        json!(leave),
        json!(count)
    ));
    let called = |name: &str| call("c", name, &json!({}));
    world.model_says([called("leave"), called("count"), text("done")]);
    world.run("go").under(&FIRST).exits(0).prints("done\n");
    let told = world.server.last().json()["messages"].to_string();
    assert!(told.contains("0 are left"), "{told}");
}
