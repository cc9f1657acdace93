//! New agents: what `delta init` writes is an agent that runs.

use crate::harness::*;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

const TEMPLATES: [&str; 5] = ["minimal", "hello-world", "file-ops", "api-tester", "coder"];

/// Makes an agent `mine` of a template.
#[track_caller]
fn made(template: &str) -> World {
    let world = World::new();
    world
        .delta(["init", "mine", "-t", template])
        .exits(0)
        .prints("mine\n");
    world
}

impl World {
    /// `delta run` of a new agent, on the scripted server.
    fn run_mine(&self, message: &str) -> Delta {
        self.delta(["run", "-a", "mine", "-w", "ws", "-m", message])
            .env("DELTA_MODEL", "scripted")
            .env("DELTA_BASE_URL", self.server.url())
    }

    /// What the model is told when it calls a tool of a new agent.
    #[track_caller]
    fn told(&self, tool: &str, arguments: &Value) -> String {
        self.server.says([call("c", tool, arguments), text("done")]);
        self.run_mine("go").exits(0).prints("done\n");
        self.server.last().observation("c")
    }
}

#[test]
fn every_template_passes_check_and_runs_at_once() {
    for template in TEMPLATES {
        let world = made(template);
        let checked = world
            .delta(["check", "mine"])
            .env("DELTA_MODEL", "scripted")
            .exits(0);
        // Whether curl is installed is the machine's affair.
        let about_programs = |line: &&str| !line.contains("there is no program 'curl'");
        let said: Vec<&str> = checked.stderr.lines().filter(about_programs).collect();
        assert_eq!(said, [""; 0], "{template}");
        assert!(checked.stdout.starts_with(b"mine: ok, "), "{template}");
        world.model_says([text("hello")]);
        let outcome = world.run_mine("say hello").exits(0).prints("hello\n");
        outcome.does_not_say("warning");
        let request = world.server.last().json();
        let prompt = world.read("mine/system_prompt.md");
        let system = request["messages"][0]["content"].as_str().unwrap();
        assert!(system.contains(&prompt), "{template}");
        let config = world.latest().events("ENGINE_START")[0]["config"].clone();
        assert!(config["compact"].is_object(), "{template}");
        let same_call = if template == "coder" { 10 } else { 0 };
        assert_eq!(config["same_call"], same_call, "{template}");
    }
}

#[test]
fn the_agent_is_named_after_its_directory() {
    let world = World::new();
    for (dir, name) in [
        ("reviewer", "reviewer"),
        ("deep/er/one", "one"),
        ("true", "true"),
        ("it's: #1", "it's: #1"),
        ("état", "état"),
    ] {
        world
            .delta(["init", "-y", dir])
            .exits(0)
            .prints(&format!("{dir}\n"));
        let checked = world.delta(["check", dir]).exits(0);
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(said.starts_with(&format!("{name}: ok")), "{said}");
    }
    fs::create_dir(world.path("here")).unwrap();
    world
        .delta(["init", "-y"])
        .cwd(world.path("here"))
        .exits(0)
        .prints(".\n");
    assert!(world.read("here/agent.yaml").starts_with("name: here\n"));
}

#[test]
fn the_next_steps_are_told_on_stderr_and_the_command_can_be_pasted() {
    let world = World::new();
    let outcome = world.delta(["init", "a b", "-y"]).exits(0);
    let line = outcome
        .stderr
        .lines()
        .find_map(|line| line.trim().strip_prefix("delta run "));
    let words = shlex::split(line.unwrap()).unwrap();
    assert_eq!(words[..4], ["-a", "a b", "-y", "-m"]);
    world.model_says([text("done")]);
    world
        .delta(["run"])
        .args(&words)
        .env("DELTA_MODEL", "scripted")
        .env("DELTA_BASE_URL", world.server.url())
        .exits(0)
        .prints("done\n");
}

#[test]
fn no_template_names_a_model_and_the_next_steps_name_what_is_missing() {
    const SETUP: &str = "  delta setup   # there is ";
    for template in TEMPLATES {
        let world = World::new();
        let init = |dir: &str, variables: &[(&str, &str)]| {
            let init = world.delta(["init", "-t", template, dir]);
            let set = |init: Delta, (name, value): &(&str, &str)| init.env(name, value);
            variables.iter().fold(init, set).exits(0)
        };
        init("a", &[]).says(&format!("{SETUP}no model and no key\n"));
        let yaml = world.read("a/agent.yaml");
        assert!(yaml.contains("\nllm: {}\n"), "{template}");
        init("b", &[("DELTA_MODEL", "m")]).says(&format!("{SETUP}no key\n"));
        let local = ("DELTA_BASE_URL", "http://127.0.0.1:9/v1");
        init("c", &[local]).says(&format!("{SETUP}no model\n"));
        init("d", &[local, ("DELTA_MODEL", "m")]).does_not_say("delta setup");
    }
}

#[test]
fn an_agent_among_the_persons_own_is_run_by_its_name() {
    let world = World::new();
    let made = world
        .delta(["init", "-y", ".config/delta/agents/mine"])
        .exits(0);
    made.says("\n  delta run @mine 'What it should do'\n");
    world.model_says([text("done")]);
    world
        .delta(["run", "@mine", "What it should do"])
        .env("DELTA_MODEL", "scripted")
        .env("DELTA_BASE_URL", world.server.url())
        .exits(0)
        .prints("done\n");
    world
        .delta(["init", "-y", "elsewhere/mine"])
        .exits(0)
        .says("delta run -a elsewhere/mine");
}

#[test]
fn hidden_files_do_not_make_a_directory_full_and_are_left_alone() {
    let world = World::new();
    world.write("mine/.git/HEAD", "ref");
    world.write("mine/.gitignore", "*.o\n");
    world.delta(["init", "mine", "-y"]).exits(0);
    assert_eq!(world.read("mine/.gitignore"), "*.o\n");
    assert_eq!(world.read("mine/.git/HEAD"), "ref");
}

#[test]
fn a_directory_in_use_is_refused_and_left_as_it_is() {
    let world = World::new();
    world.write("mine/README.md", "mine\n");
    world
        .delta(["init", "mine", "-t", "file-ops"])
        .refuses(
            1,
            "mine is not empty: there is README.md; choose a new or an empty directory",
        )
        .says_one_line();
    assert_eq!(fs::read_dir(world.path("mine")).unwrap().count(), 1);
    world
        .delta(["init", "agent", "-y"])
        .exits(1)
        .says("agent already contains an agent; choose another directory")
        .says_one_line();
    world.write("file", "");
    world
        .delta(["init", "file", "-y"])
        .end()
        .exits(2)
        .says("file: not a directory");
    world
        .delta(["init", "file/x", "-y"])
        .end()
        .exits(2)
        .says("file/x: not a directory");
}

#[test]
fn wrong_words_are_refused() {
    let world = World::new();
    for (args, said) in [
        (
            &["init", "-t", "file-op"][..],
            "--template: unknown value 'file-op'; did you mean 'file-ops'?",
        ),
        (
            &["init", "-t", "x"],
            "it is one of minimal, hello-world, file-ops, api-tester",
        ),
        (&["init", "-t"], "-t"),
        (&["init", "a", "b"], "unexpected argument 'b'"),
        (&["init", ""], "an empty path names nothing"),
        (
            &["init", "--tempalte", "minimal"],
            "did you mean --template?",
        ),
    ] {
        world
            .delta(args.iter().copied())
            .exits(2)
            .says(said)
            .says_one_line();
    }
    world
        .delta(["init", "a\nb", "-y"])
        .exits(1)
        .says("'a\\nb' cannot name an agent");
    assert!(!world.exists("a\nb") && !world.exists("agent.yaml"));
}

#[test]
fn a_disk_that_is_full_leaves_nothing_behind() {
    let world = World::new();
    world
        .delta(["init", "mine", "-y"])
        .after("trap '' XFSZ; ulimit -f 0")
        .exits(1);
    assert!(!world.exists("mine"));
}

#[test]
fn at_a_terminal_there_is_a_menu() {
    for (typed, template) in [
        ("\n", "minimal"),
        ("3\n", "file-ops"),
        ("api-tester\n", "api-tester"),
        ("9\nnothing\n 2 \n", "hello-world"),
    ] {
        let world = World::new();
        let mut terminal = Terminal::new();
        let running = world.delta(["init", "mine"]).at(&terminal).spawn();
        let menu = terminal.shows("which one? [minimal] ");
        assert!(
            menu.contains("  4 api-tester   tests HTTP APIs with curl\n"),
            "{menu}"
        );
        terminal.types(typed);
        running.wait().exits(0).prints("mine\n");
        terminal.shows(&format!("agent mine ({template})"));
    }
}

#[test]
fn nothing_chosen_at_the_menu_makes_nothing() {
    let world = World::new();
    let mut terminal = Terminal::new();
    let running = world.delta(["init", "mine"]).at(&terminal).spawn();
    terminal.shows("which one?");
    terminal.types("\u{4}");
    running.wait().exits(2);
    terminal.shows("no template chosen; give one with -t NAME, or -y for minimal");
    assert!(!world.exists("mine"));
}

#[test]
fn no_menu_where_it_is_not_needed_or_nobody_could_answer() {
    let world = World::new();
    world
        .delta(["init", "a"])
        .open_stdin()
        .exits(0)
        .says("(minimal)");
    for args in [["init", "b", "-y"], ["init", "c", "-tminimal"]] {
        let mut terminal = Terminal::new();
        world.delta(args).at(&terminal).exits(0);
        let shown = terminal.shows("What it should do");
        assert!(!shown.contains("which one?"), "{shown}");
    }
    // A directory in use is refused before anybody is asked.
    let mut terminal = Terminal::new();
    world.delta(["init", "a"]).at(&terminal).exits(1);
    let shown = terminal.shows("already");
    assert!(!shown.contains("which one?"), "{shown}");
}

#[test]
fn the_file_tools_of_the_templates_work_on_names_that_look_like_options() {
    let world = made("file-ops");
    let name = "-rf x";
    let steps = [
        (
            "write_file",
            json!({"path": name, "content": "one\ntwo\n"}),
            "(no output)",
        ),
        (
            "append_to_file",
            json!({"path": name, "content": "three\n"}),
            "(no output)",
        ),
        ("read_file", json!({"path": name}), "one\ntwo\nthree\n"),
        (
            "read_lines",
            json!({"path": name, "first": 2, "count": 1}),
            "two\n",
        ),
        (
            "search_text",
            json!({"pattern": "-*tw", "path": name}),
            "-rf x:2:two\n",
        ),
        ("find_files", json!({"pattern": "-r*"}), "./-rf x\n"),
        ("make_directory", json!({"path": "-d/e"}), "(no output)"),
        (
            "copy",
            json!({"from": name, "to": "-d/copy"}),
            "(no output)",
        ),
        (
            "move",
            json!({"from": name, "to": "-d/e/moved"}),
            "(no output)",
        ),
        (
            "read_file",
            json!({"path": "-d/e/moved"}),
            "one\ntwo\nthree\n",
        ),
        ("delete_file", json!({"path": "-d/copy"}), "(no output)"),
        ("delete_file", json!({"path": "-d/e/moved"}), "(no output)"),
        (
            "delete_empty_directory",
            json!({"path": "-d/e"}),
            "(no output)",
        ),
    ];
    for (tool, arguments, expected) in steps {
        assert_eq!(
            world.told(tool, &arguments).trim_end(),
            expected.trim_end(),
            "{tool}"
        );
    }
    assert!(world.told("list_files", &json!({})).contains(" -d\n"));
}

#[test]
fn the_other_templates_tools_work() {
    let world = made("minimal");
    assert_eq!(
        world.told("print", &json!({"text": "-n %s \\n"})),
        "-n %s \\n\n"
    );
    world.told("write_file", &json!({"path": "-x", "content": "a"}));
    assert_eq!(world.read("ws/-x"), "a");
    let world = made("hello-world");
    world.told("write_file", &json!({"path": "-x", "content": "a b\n"}));
    assert_eq!(world.told("read_file", &json!({"path": "-x"})), "a b\n");
    assert!(
        world
            .told("count_words", &json!({"path": "-x"}))
            .contains('2')
    );
    assert!(world.told("list_files", &json!({})).contains(" -x\n"));
    assert!(world.told("date", &json!({})).contains(':'));
}

#[test]
fn the_api_testers_values_reach_curl_as_a_url_a_body_and_headers() {
    let world = made("api-tester");
    world.script(
        "bin/curl",
        "#!/bin/sh\nfor word; do printf '%s\\n' \"$word\"; done\necho body:\ncat\n",
    );
    let path = format!(
        "{}:{}",
        world.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let told = |tool, arguments: Value| {
        world.model_says([call("c", tool, &arguments), text("done")]);
        world.run_mine("go").env("PATH", &path).exits(0);
        world.server.last().observation("c")
    };
    for url in [
        "--output=/tmp/x",
        "-K/etc/passwd",
        "http://h/?q=[1-9]",
        "@x",
        "a b",
    ] {
        for tool in ["get", "time"] {
            let seen = told(tool, json!({"url": url}));
            assert!(seen.ends_with(&format!("\n--\n{url}\nbody:\n")), "{seen}");
            assert!(!seen.contains("Authorization"), "{seen}");
        }
    }
    let seen = told(
        "send",
        json!({"method": "PUT", "url": "-x", "body": "@/etc/passwd", "authorization": "Bearer t"}),
    );
    assert!(
        seen.contains("\n--request\nPUT\n--data-binary\n@-\n"),
        "{seen}"
    );
    assert!(
        seen.contains("\n-HContent-Type: application/json\n-HAuthorization: Bearer t\n--\n-x\n")
    );
    assert!(seen.ends_with("\nbody:\n@/etc/passwd"), "{seen}");
    let refused = told("send", json!({"method": "-o", "url": "x"}));
    assert!(
        refused.contains("method") && !refused.contains("curl"),
        "{refused}"
    );
}

#[test]
fn the_api_tester_tests_an_api() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("skipped: there is no curl");
        return;
    }
    let world = made("api-tester");
    let api = World::new();
    api.server.accepts_anything().answers(|request| {
        let seen = json!({
            "line": request.line,
            "body": String::from_utf8_lossy(&request.body),
            "authorization": request.header("authorization"),
        });
        completion(&seen).header("X-Api", "yes")
    });
    let url = format!("{}/things?[1-2]", api.server.url());
    let told = world.told("get", &json!({"url": url, "authorization": "Bearer t"}));
    assert!(
        told.contains("X-Api: yes") && told.contains("GET /v1/things?[1-2] HTTP/1.1"),
        "{told}"
    );
    assert!(told.contains("\"authorization\":\"Bearer t\""), "{told}");
    let told = world.told(
        "send",
        &json!({"method": "PATCH", "url": url, "body": "{\"a\": 1}\n"}),
    );
    assert!(
        told.contains("PATCH /v1/things") && told.contains(r#""{\"a\": 1}\n""#),
        "{told}"
    );
    assert!(
        world
            .told("time", &json!({"url": url}))
            .contains("status 200, ")
    );
    world.write("ws/secret", "hidden\n");
    let file = format!("file://{}", world.path("ws/secret").display());
    for url in [file.as_str(), "-o/dev/null", "--config=secret", "@secret"] {
        let told = world.told("get", &json!({"url": url}));
        assert!(told.contains("[exit code: "), "{url}: {told}");
        assert!(!told.contains("hidden"), "{url}: {told}");
    }
}

/// Otherwise grep meets the file that its own output goes to, and fails.
#[test]
fn searches_of_file_ops_leave_the_records_of_runs_out() {
    let world = made("file-ops");
    world.write("ws/a.txt", "heron\n");
    let told = world.told("search_text", &json!({"pattern": "heron"}));
    assert_eq!(told, "./a.txt:1:heron\n");
    let told = world.told("find_files", &json!({"pattern": "*.txt"}));
    assert_eq!(told, "./a.txt\n");
}
