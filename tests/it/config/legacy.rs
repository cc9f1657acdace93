//! Agents written for older engines: they run, and each old form is told in one line.

use crate::harness::*;
use std::fs;

/// The deprecation lines, without what all share.
fn deprecations(outcome: &Outcome) -> Vec<String> {
    let lines = outcome.stderr.lines();
    let lines = lines.filter_map(|line| line.strip_prefix("delta: [DEPRECATION WARNING] "));
    lines.map(str::to_owned).collect()
}

/// Runs the agent to its end, and returns the deprecation lines; `check` tells the same.
#[track_caller]
fn told(world: &World) -> Vec<String> {
    world.model_says([text("done")]);
    let outcome = world.run("go").exits(0).prints("done\n");
    let told = deprecations(&outcome);
    let checked = world.delta(["check", "agent"]).exits(0);
    assert_eq!(deprecations(&checked), told);
    told
}

/// The same agent with another main file.
fn with_main_file(name: &str, yaml: &str) -> World {
    let world = World::new();
    fs::remove_file(world.path("agent/agent.yaml")).unwrap();
    let yaml = yaml.replace("URL", &world.server.url());
    world.write(&format!("agent/{name}"), yaml);
    world
}

#[test]
fn an_agent_in_every_old_form_at_once_runs() {
    let world = with_main_file(
        "config.yaml",
        "name: old\nllm_config:\n  model_name: scripted\n  base_url: URL\n  temperature: 0.2\n\
         lifecycle_hooks:\n  pre_llm_req: {command: [touch, a]}\n  post_llm_resp: {command: [touch, b]}\n  \
         pre_tool_exec: {command: [touch, c]}\n  post_tool_exec: {command: [touch, d]}\n\
         tools: [{name: list, command: [ls, -F], parameters: [{name: directory, default: '.'}]}]\n",
    );
    fs::rename(
        world.path("agent/system_prompt.md"),
        world.path("agent/system_prompt.txt"),
    )
    .unwrap();
    let context = world.read("agent/context.yaml");
    world.write(
        "agent/context.yaml",
        context.replace("prompt.md", "prompt.txt"),
    );
    world.model_says([call("c", "list", &serde_json::json!({}))]);
    let called = |name: &str, now: &str, line| {
        format!("agent/config.yaml:{line}: {name} is called {now} now")
    };
    assert_eq!(
        told(&world),
        [
            "agent/config.yaml: the file is called agent.yaml now; rename it".to_owned(),
            "agent/config.yaml:1: the prompt's file is called system_prompt.md now; rename it, or say \
             system_prompt: system_prompt.txt".to_owned(),
            "agent/config.yaml:2: llm_config is called llm now, and its model_name model".to_owned(),
            "agent/config.yaml:6: lifecycle_hooks belong in hooks.yaml now, without this key around them".to_owned(),
            called("pre_llm_req", "pre_llm_request", 7),
            called("post_llm_resp", "post_llm_response", 8),
            called("pre_tool_exec", "pre_tool_execution", 9),
            called("post_tool_exec", "post_tool_execution", 10),
        ]
    );
    for file in ["a", "b", "c", "d"] {
        assert!(world.exists(&format!("ws/{file}")), "hook {file}");
    }
    let request = world.server.last().json();
    assert_eq!(
        (&request["model"], &request["temperature"]),
        (&"scripted".into(), &0.2.into())
    );
}

#[test]
fn each_old_form_alone_is_one_line() {
    let llm = "llm: {model: scripted, base_url: 'URL'}";
    let old = "llm_config: {model_name: scripted, base_url: 'URL'}";
    for (file, yaml, line) in [
        (
            "config.yaml",
            format!("name: a\n{llm}\n"),
            "agent/config.yaml: the file is called agent.yaml now; rename it",
        ),
        (
            "agent.yaml",
            format!("name: a\n{old}\n"),
            "agent/agent.yaml:2: llm_config is called llm now, and its model_name model",
        ),
        (
            "agent.yaml",
            format!("name: a\n{llm}\n{old}\n"),
            "agent/agent.yaml:3: llm_config is ignored, because llm exists; remove it",
        ),
        (
            "agent.yaml",
            format!("name: a\n{llm}\nlifecycle_hooks: {{on_run_end: {{command: ['true']}}}}\n"),
            "agent/agent.yaml:3: lifecycle_hooks belong in hooks.yaml now, without this key around them",
        ),
    ] {
        assert_eq!(told(&with_main_file(file, &yaml)), [line], "{yaml}");
    }
}

#[test]
fn what_is_new_wins_over_what_is_old() {
    let world = World::new();
    world.write("agent/config.yaml", "name: [\n");
    world.write("agent/system_prompt.txt", "old");
    assert_eq!(
        told(&world),
        ["agent/config.yaml: ignored, because agent.yaml exists; remove it"]
    );
    let world = World::new().top("lifecycle_hooks: {pre_llm_req: {command: ['false']}}");
    world.write("agent/hooks.yaml", "pre_llm_req: {command: [touch, new]}\n");
    assert_eq!(
        told(&world),
        [
            "agent/agent.yaml:2: lifecycle_hooks are ignored, because hooks.yaml exists; remove them",
            "agent/hooks.yaml:1: pre_llm_req is called pre_llm_request now",
        ]
    );
    assert!(world.exists("ws/new"));
}

#[test]
fn hooks_below_a_key_of_that_name_run() {
    let world = World::new();
    world.write(
        "agent/hooks.yaml",
        "hooks:\n  on_run_end: {command: [touch, below]}\n",
    );
    assert_eq!(
        told(&world),
        ["agent/hooks.yaml:1: the hooks stand at the top now, without hooks around them"]
    );
    assert!(world.exists("ws/below"));
}

#[test]
fn hooks_with_the_old_key_around_them_in_their_own_file_are_heard() {
    let world = World::new();
    world.write(
        "agent/hooks.yaml",
        "on_run_end: {command: [touch, new]}\nlifecycle_hooks:\n  pre_llm_req: {command: [touch, old]}\n",
    );
    assert_eq!(
        told(&world),
        [
            "agent/hooks.yaml:2: the hooks stand at the top now, without lifecycle_hooks around them",
            "agent/hooks.yaml:3: pre_llm_req is called pre_llm_request now",
        ]
    );
    assert!(world.exists("ws/old") && world.exists("ws/new"));
}

#[test]
fn an_old_and_a_new_name_of_one_hook_are_both_heard() {
    let world = World::new();
    world.write(
        "agent/hooks.yaml",
        "pre_llm_req: {command: [sh, -c, 'echo old >> ran']}\n\
         pre_llm_request: {command: [sh, -c, 'echo new >> ran']}\n",
    );
    assert_eq!(told(&world).len(), 1);
    assert_eq!(world.lines("ws/ran"), ["old", "new"]);
}

#[test]
fn quiet_keeps_deprecations_to_itself() {
    let world = World::new();
    world.write("agent/config.yaml", "");
    world.model_says([text("done")]);
    let outcome = world.run("go").arg("-q").exits(0);
    assert_eq!(outcome.stderr, "");
}
