//! examples/orchestration/sub-agents: agents as tools of an agent.

use crate::harness::*;
use serde_json::json;
use std::fs;

#[test]
fn sub_agents_work_below_the_workspace() {
    let world = as_shown("orchestration/sub-agents", &[]).unwrap();
    assert!(
        world
            .read("tmp/edit/parts/writer/article.md")
            .contains("at full moon")
    );
    given_again(&world, "orchestration/sub-agents");
}

#[test]
fn a_sub_agent_is_taken_up_when_its_editor_was_killed() {
    let world = examples();
    copy(
        &world.path("examples/research-agent/library"),
        &world.path("ws/library"),
    );
    let line = format!(
        "exec delta run {ASKS_SERVER} -a examples/orchestration/sub-agents -w ws -m article"
    );
    for name in ["researcher", "writer"] {
        let path = format!("examples/orchestration/sub-agents/{name}/agent.yaml");
        let agent = world.read(&path);
        let asks = agent.lines().filter(|line| !line.starts_with("  command:"));
        world.write(
            &path,
            asks.map(|line| format!("{line}\n")).collect::<String>(),
        );
    }
    let start = || shell(&world, &line);
    let ask = json!({"agent": "researcher", "task": "When do spring tides come?"});
    world.model_says([call("call_0_1", "ask", &ask), text("never heard").held()]);
    let running = start().spawn();
    world.server.wait_for(2);
    running.kill();
    let part = world.path("ws/parts/researcher");
    let run = Run::latest(&part);
    eventually("the sub-agent ends with its editor", || {
        !run.events_so_far("ENGINE_END").is_empty()
    });
    start().exits(0);
    assert_eq!(Run::latest(&part), run, "no second run");
    assert_eq!(run.events("ENGINE_START").len(), 2);
    assert_eq!(run.ending().0, "COMPLETED");
}

#[test]
fn an_answer_that_the_editor_has_lost_is_told_again() {
    let world = examples();
    copy(
        &world.path("examples/research-agent/library"),
        &world.path("ws/library"),
    );
    let start = || {
        shell(
            &world,
            "delta run -a examples/orchestration/sub-agents -w ws -m article",
        )
    };
    start().exits(0);
    let editor = Run::latest(&world.workspace());
    let journal = editor.text("journal.jsonl");
    let end = journal.find("\"type\":\"ACTION_RESULT\"").unwrap();
    let end = journal[..end].rfind('\n').unwrap() + 1;
    fs::write(editor.path("journal.jsonl"), &journal[..end]).unwrap();
    fs::remove_file(editor.path("metadata.json")).unwrap();
    start().exits(0);
    assert_eq!(Run::latest(&world.workspace()), editor);
    assert_eq!(editor.ending().0, "COMPLETED");
    let runs = fs::read_dir(world.path("ws/parts/researcher/.delta")).unwrap();
    let runs = runs.filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(runs.count(), 1, "the researcher does not work twice");
}
