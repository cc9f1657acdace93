//! Modules: their order, what overrides what, and what cannot be imported.

use crate::harness::*;
use std::fs;
use std::os::unix::fs::symlink;

/// Tools that print where they were defined: `a=1` is a tool `a` that prints 1.
fn tools(list: &str) -> String {
    let items = list.split_whitespace().map(|tool| {
        let (name, says) = tool.split_once('=').unwrap_or((tool, tool));
        format!("  - {{name: {name}, exec: 'echo {says}'}}\n")
    });
    format!("tools:\n{}", items.collect::<String>())
}

/// A module: files it imports, and tools.
fn module(imports: &str, list: &str) -> String {
    let imports: Vec<&str> = imports.split_whitespace().collect();
    let imports = if imports.is_empty() {
        String::new()
    } else {
        format!("imports: [{}]\n", imports.join(", "))
    };
    imports
        + &if list.is_empty() {
            String::new()
        } else {
            tools(list)
        }
}

/// An agent that imports these and has these tools of its own.
fn agent(imports: &str, list: &str) -> World {
    World::new().top(&module(imports, list))
}

/// The tools that the model is offered, in order, with what each prints.
#[track_caller]
fn offered(world: &World) -> Vec<String> {
    world.model_says([text("done")]);
    world.run("go").exits(0);
    let request = world.server.last().json();
    let tools = request["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| &tool["function"])
        .filter(|function| function["name"] != "ask_human")
        .map(|function| {
            let says = function["description"]
                .as_str()
                .unwrap()
                .replace("echo ", "");
            format!("{}={says}", function["name"].as_str().unwrap())
        })
        .collect()
}

#[track_caller]
fn refused(world: &World, said: &str) {
    let outcome = world.run("go").exits(78).prints("");
    assert_eq!(outcome.stderr, format!("delta: agent/{said}\n"));
    assert!(!world.exists("ws"));
}

#[test]
fn imports_come_first_in_their_order_and_local_tools_last() {
    let world = agent("one.yaml two.yaml", "l=0");
    world.write("agent/one.yaml", tools("a=1 b=1"));
    world.write("agent/two.yaml", tools("c=2"));
    assert_eq!(offered(&world), ["a=1", "b=1", "c=2", "l=0"]);
}

#[test]
fn a_later_definition_replaces_an_earlier_one_and_keeps_its_own_place() {
    let world = agent("one.yaml two.yaml", "x=local b=local");
    world.write("agent/one.yaml", tools("a=1 b=1 c=1"));
    world.write("agent/two.yaml", tools("c=2 d=2 a=2"));
    assert_eq!(offered(&world), ["c=2", "d=2", "a=2", "x=local", "b=local"]);
}

#[test]
fn nested_imports_come_depth_first_and_are_found_from_the_file_that_names_them() {
    let world = agent("tools/one.yaml top.yaml", "l=0");
    world.write(
        "agent/tools/one.yaml",
        module("deep/two.yaml ../top.yaml", "b=one c=one"),
    );
    world.write(
        "agent/tools/deep/two.yaml",
        module("./three.yaml", "a=two b=two"),
    );
    world.write("agent/tools/deep/three.yaml", tools("a=three z=three"));
    world.write("agent/top.yaml", tools("t=top"));
    assert_eq!(
        offered(&world),
        ["z=three", "a=two", "b=one", "c=one", "t=top", "l=0"]
    );
}

#[test]
fn a_file_that_is_imported_twice_is_no_cycle() {
    let world = agent("one.yaml two.yaml common.yaml", "");
    world.write("agent/one.yaml", module("common.yaml", "a=1"));
    world.write("agent/two.yaml", module("common.yaml", "b=2"));
    world.write("agent/common.yaml", tools("c=c"));
    assert_eq!(offered(&world), ["a=1", "b=2", "c=c"]);
}

#[test]
fn a_module_of_imports_alone_is_one() {
    let world = agent("all.yaml", "");
    world.write("agent/all.yaml", module("one.yaml", ""));
    world.write("agent/one.yaml", tools("a=1"));
    assert_eq!(offered(&world), ["a=1"]);
}

#[test]
fn an_overridden_tool_that_is_broken_is_still_an_error() {
    let world = agent("one.yaml", "a=0");
    world.write("agent/one.yaml", "tools:\n  - {name: a, exec: 'x | y'}\n");
    let outcome = world.run("go").exits(78);
    outcome.says("agent/one.yaml:2: tool \"a\": ");
}

#[test]
fn a_cycle_is_told_with_its_chain() {
    let world = agent("a.yaml", "");
    world.write("agent/a.yaml", module("sub/b.yaml", "x"));
    world.write("agent/sub/b.yaml", module("../c.yaml", "y"));
    world.write("agent/c.yaml", "tools: []\nimports:\n  - sub/b.yaml\n");
    let chain = "agent.yaml -> a.yaml -> sub/b.yaml -> c.yaml -> sub/b.yaml";
    refused(&world, &format!("c.yaml:3: imports: cycle: {chain}"));
    let world = agent("a.yaml", "");
    world.write("agent/a.yaml", module("./a.yaml", "x"));
    refused(
        &world,
        "a.yaml:1: imports: cycle: agent.yaml -> a.yaml -> a.yaml",
    );
    let world = agent("agent.yaml", "");
    refused(
        &world,
        "agent.yaml:2: imports: cycle: agent.yaml -> agent.yaml",
    );
    // By another name.
    let world = agent("a.yaml", "");
    world.write("agent/a.yaml", module("b.yaml", "x"));
    symlink("a.yaml", world.path("agent/b.yaml")).unwrap();
    refused(
        &world,
        "a.yaml:1: imports: cycle: agent.yaml -> a.yaml -> a.yaml",
    );
}

#[test]
fn nothing_outside_the_agents_directory_is_imported() {
    let outside = "is outside the agent's directory; copy it into it";
    for (import, name) in [
        ("../shared/a.yaml", "../shared/a.yaml"),
        ("tools/../../shared/a.yaml", "tools/../../shared/a.yaml"),
        ("../agentbeside/a.yaml", "../agentbeside/a.yaml"),
        ("../nowhere/a.yaml", "../nowhere/a.yaml"),
        ("link.yaml", "link.yaml"),
        ("linked/a.yaml", "linked/a.yaml"),
        ("chain.yaml", "chain.yaml"),
    ] {
        let world = agent(import, "");
        for dir in ["shared", "agentbeside"] {
            world.write(&format!("{dir}/a.yaml"), tools("a"));
        }
        fs::create_dir(world.path("agent/tools")).unwrap();
        symlink("../shared/a.yaml", world.path("agent/link.yaml")).unwrap();
        symlink("../shared", world.path("agent/linked")).unwrap();
        symlink("link.yaml", world.path("agent/chain.yaml")).unwrap();
        refused(&world, &format!("agent.yaml:2: imports: {name} {outside}"));
    }
    let world = agent("sub/a.yaml", "");
    world.write("agent/sub/a.yaml", module("../../b.yaml", "x"));
    world.write("b.yaml", tools("b"));
    refused(
        &world,
        &format!("sub/a.yaml:1: imports: ../../b.yaml {outside}"),
    );
}

#[test]
fn an_absolute_path_is_refused_even_inside() {
    let world = World::new();
    let inside = world.write("agent/a.yaml", tools("a"));
    let world = world.top(&format!("imports: ['{}']", inside.display()));
    refused(
        &world,
        &format!(
            "agent.yaml:2: imports: {} is an absolute path; a module lies below the agent's \
             directory, and is named from the file that imports it",
            inside.display()
        ),
    );
}

#[test]
fn a_link_that_stays_inside_is_followed() {
    let world = agent("tools/link.yaml ./tools/../tools/./b.yaml", "");
    world.write("agent/real/a.yaml", module("beside.yaml", "a=real"));
    world.write("agent/real/beside.yaml", tools("n=beside"));
    world.write("agent/tools/b.yaml", tools("b=b"));
    symlink("../real/a.yaml", world.path("agent/tools/link.yaml")).unwrap();
    assert_eq!(offered(&world), ["n=beside", "a=real", "b=b"]);
    // The agent's own directory may be a link.
    symlink("agent", world.path("alias")).unwrap();
    let outcome = world.delta(["check", "alias"]).exits(0);
    assert!(outcome.stdout.starts_with(b"probe: ok, 3 tools"));
}

#[test]
fn what_is_wrong_in_a_module_is_told_with_its_file() {
    let world = agent("tools/a.yaml", "");
    world.write(
        "agent/tools/a.yaml",
        "tools:\n  - name: x\n    exec: ls\n    tiemout_ms: 3\n",
    );
    world.model_says([text("done")]);
    let outcome = world.run("go").exits(0);
    outcome.says("warning: agent/tools/a.yaml:4: tool \"x\": unknown key 'tiemout_ms'; did you mean 'timeout_ms'?");
    let world = agent("tools/a.yaml", "");
    world.write(
        "agent/tools/a.yaml",
        "tools:\n  - {name: ask_human, exec: ls}\n",
    );
    refused(
        &world,
        "tools/a.yaml:2: tool \"ask_human\": the engine has a tool of this name; rename it, or say ask_human: false",
    );
}

/// Runs with two directories of shared tools, `one` and `two`, behind a relative one.
fn with_shared(world: &World) -> Delta {
    let list = format!(
        "agent:{}:{}",
        world.path("one").display(),
        world.path("two").display()
    );
    world.run("go").env("DELTA_TOOLS", list)
}

#[track_caller]
fn refused_shared(world: &World, said: &str) {
    let outcome = with_shared(world).exits(78).prints("");
    outcome.says(&format!("imports: {said}"));
    assert!(!world.exists("ws"));
}

#[test]
fn shared_tools_are_looked_up_where_the_person_says_in_order() {
    let world = agent("'@git/log.yaml' own.yaml", "l=0");
    world.write("agent/own.yaml", module("'@text/sub/t.yaml'", "o=own"));
    world.write("agent/git/log.yaml", tools("g=agent"));
    world.write(
        "one/git/log.yaml",
        module("../text/base.yaml deep/d.yaml", "g=one"),
    );
    world.write("one/text/base.yaml", tools("b=one"));
    world.write("one/git/deep/d.yaml", module("'@text/base.yaml'", "d=one"));
    world.write("two/git/log.yaml", tools("g=two"));
    world.write(".config/delta/tools/text/sub/t.yaml", tools("t=config"));
    world.model_says([text("done")]);
    with_shared(&world)
        .exits(78)
        .says("imports: @text/sub/t.yaml does not exist");
    fs::rename(world.path("one/text"), world.path("one/base")).unwrap();
    world.write(
        "one/git/log.yaml",
        module("../base/base.yaml deep/d.yaml", "g=one"),
    );
    world.write("one/git/deep/d.yaml", module("'@base/base.yaml'", "d=one"));
    with_shared(&world).exits(0);
    let request = world.server.last().json();
    let names: Vec<_> = request["tools"].as_array().unwrap().iter().collect();
    let names = names
        .iter()
        .map(|tool| tool["function"]["description"].as_str().unwrap());
    let names: Vec<&str> = names.filter_map(|it| it.strip_prefix("echo ")).collect();
    assert_eq!(names, ["one", "one", "one", "config", "own", "0"]);
    let check = world
        .delta(["check", "agent"])
        .env("DELTA_TOOLS", world.path("two"))
        .exits(0);
    assert!(
        check.stdout.starts_with(b"probe: ok, 4 tools"),
        "{}",
        check.describe()
    );
}

#[test]
fn nothing_leads_out_of_a_directory_of_shared_tools() {
    let outside =
        |world: &World, name: &str| format!("{name} is outside {}", world.path("one").display());
    let world = |import: &str| {
        let world = agent(import, "");
        world.write("agent/own.yaml", tools("own"));
        world.write("secret/x.yaml", tools("x"));
        world.write("two/other/x.yaml", tools("x"));
        world.write("one/git/up.yaml", module("../../secret/x.yaml", "u"));
        world.write("one/git/gone.yaml", module("../../nowhere/x.yaml", "u"));
        world.write("one/git/other.yaml", module("'@other/x.yaml'", "u"));
        let home = world.path("agent/own.yaml");
        world.write("one/git/home.yaml", module(home.to_str().unwrap(), "u"));
        symlink("../../secret/x.yaml", world.path("one/git/link.yaml")).unwrap();
        symlink("../secret", world.path("one/linked")).unwrap();
        world
    };
    for (import, name) in [
        ("@git/up.yaml", "../../secret/x.yaml"),
        ("@git/gone.yaml", "../../nowhere/x.yaml"),
        ("@git/link.yaml", "@git/link.yaml"),
        ("@linked/x.yaml", "@linked/x.yaml"),
    ] {
        let world = world(&format!("'{import}'"));
        refused_shared(&world, &outside(&world, name));
    }
    let home = world("'@git/home.yaml'");
    let absolute = home.path("agent/own.yaml").display().to_string();
    refused_shared(&home, &format!("{absolute} is an absolute path"));
    let other = world("'@git/other.yaml'");
    refused_shared(&other, "@other/x.yaml does not exist");
    for name in [
        "@",
        "@git",
        "@git/",
        "@../one/git/up.yaml",
        "@git/../git/up.yaml",
        "@/etc/passwd",
        "@.git/x",
    ] {
        refused_shared(
            &world(&format!("'{name}'")),
            &format!("{name} is not @NAME/FILE"),
        );
    }
    let nowhere = world("'@gti/up.yaml'");
    refused_shared(&nowhere, "there is no @gti in ");
}

#[test]
fn shared_tools_that_others_can_write_do_not_count() {
    for place in ["one", "one/git", "one/git/x.yaml"] {
        let world = agent("'@git/x.yaml'", "");
        world.write("one/git/x.yaml", tools("x"));
        let mode = |mode| {
            let at = world.path(place);
            fs::set_permissions(at, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        let check = || {
            world
                .delta(["check", "agent"])
                .env("DELTA_TOOLS", world.path("one"))
        };
        check().exits(0);
        mode(0o777);
        check().exits(78).says("can be written by everybody");
        if place == "one" {
            // The next directory is used.
            world.write("two/git/x.yaml", tools("x"));
            let list = std::env::join_paths([world.path("one"), world.path("two")]).unwrap();
            let next = world
                .delta(["check", "agent"])
                .env("DELTA_TOOLS", list)
                .exits(0);
            next.says("one: is ignored: ");
        }
    }
}

#[test]
fn neither_the_workspace_nor_the_agent_chooses_the_shared_tools() {
    let world = agent("'@git/x.yaml'", "");
    world.write("evil/git/x.yaml", tools("x"));
    let line = format!("DELTA_TOOLS={}\n", world.path("evil").display());
    world.write("agent/.env", &line);
    world.write("ws/.env", &line);
    world.write("ws/git/x.yaml", tools("x"));
    for list in ["", ".", "git:.:../evil"] {
        let home = world.path("agent").display().to_string();
        let run = world.delta(["run", "-a", &home, "-w", ".", "-m", "go"]);
        let run = run.cwd(world.path("ws")).env("DELTA_TOOLS", list);
        run.exits(78).says("there is no @git in ");
    }
}
