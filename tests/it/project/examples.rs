//! The examples run as they are shown, offline; and with their scripts behind a server, where their pages
//! show how a real model is asked.

use crate::harness::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn every_agent_passes_check_without_a_warning() {
    for agent in agents() {
        let world = World::unasked();
        let outcome = world
            .delta(["check"])
            .arg(&agent)
            .env("PATH", path())
            .exits(0);
        let about_programs = |line: &&str| !line.contains("there is no program");
        let warnings: Vec<_> = outcome.stderr.lines().filter(about_programs).collect();
        assert!(warnings.is_empty(), "{warnings:#?}");
    }
}

#[test]
fn every_file_of_an_agent_is_as_its_schema_says() {
    let world = World::unasked();
    for name in ["agent", "context", "hooks"] {
        let schema = world.delta(["schema", name]).exits(0).object();
        for agent in agents() {
            let Ok(text) = fs::read_to_string(agent.join(format!("{name}.yaml"))) else {
                assert_eq!(name, "hooks", "{} is not there", agent.display());
                continue;
            };
            let wrong = violations(&schema, &delta_engine::text::yaml::parse(&text).unwrap());
            assert!(
                wrong.is_empty(),
                "{}/{name}.yaml: {wrong:#?}",
                agent.display()
            );
        }
    }
}

#[test]
fn every_script_is_clean() {
    let is_script =
        |file: &PathBuf| fs::read(file).is_ok_and(|bytes| bytes.starts_with(b"#!/bin/sh"));
    let scripts: Vec<_> = files_below(&source())
        .into_iter()
        .filter(is_script)
        .collect();
    assert!(!scripts.is_empty());
    for script in &scripts {
        let text = fs::read_to_string(script).unwrap();
        let name = script.display();
        assert!(
            text.lines().any(|line| line.starts_with("set -e")),
            "{name} goes on after errors"
        );
    }
    if installed(&["shellcheck"]) {
        let output = Command::new("shellcheck").args(&scripts).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}

/// Examples whose commands are not given twice: without namespaces nothing of the sandbox's page works, and the
/// checks of the coder's tasks take seconds.
const GIVEN_ONCE: [&str; 2] = ["sandbox", "coder-tasks"];

/// The text of all tests.
fn tests() -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    files_below(&tests)
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

/// The directories of the examples that have a page.
fn with_a_page() -> Vec<String> {
    let files = files_below(&source()).into_iter();
    let pages = files.filter(|file| file.ends_with("README.md"));
    let dir = |page: PathBuf| {
        let dir = page.parent().unwrap().strip_prefix(source()).unwrap();
        dir.to_str().unwrap().to_owned()
    };
    pages.map(dir).filter(|dir| !dir.is_empty()).collect()
}

#[test]
fn every_example_is_in_the_table_and_has_a_page_that_is_run() {
    let table = fs::read_to_string(source().join("README.md")).unwrap();
    let tests = tests();
    for dir in with_a_page() {
        assert!(
            table.contains(&format!("({dir}/)")),
            "examples/README.md does not name {dir}"
        );
        assert!(
            !GIVEN_ONCE.contains(&dir.as_str()) || tests.contains(&format!("as_shown(\"{dir}\"")),
            "no test runs the page of {dir}"
        );
    }
}

/// Pages that have a test of their own are run twice there.
#[test]
fn every_command_of_a_page_can_be_given_twice() {
    let needs: [(&str, &[&str]); 4] = [
        ("calculator", &["bc"]),
        ("drivers", &["jq"]),
        ("hooks", &["python3", "git"]),
        ("orchestration/approval", &["python3"]),
    ];
    let tests = tests();
    let mut bad = Vec::new();
    for dir in with_a_page() {
        let dir = dir.as_str();
        let has_a_test = tests.contains(&format!("given_again(&world, \"{dir}\")"));
        let is_flow = dir.starts_with("flow-") && !cfg!(feature = "flow");
        if has_a_test || is_flow || GIVEN_ONCE.contains(&dir) {
            continue;
        }
        let of_page = needs.iter().find(|(name, _)| *name == dir);
        let twice = || {
            if let Some(world) = as_shown(dir, of_page.map_or(&[], |(_, needs)| needs)) {
                given_again(&world, dir);
            }
        };
        // All that is wrong is told.
        if std::panic::catch_unwind(twice).is_err() {
            bad.push(dir.to_owned());
        }
    }
    assert_eq!(bad, [""; 0]);
}

#[test]
fn the_scripted_model_answers_turn_by_turn() {
    let world = World::unasked();
    let script = world.write(
        "script.txt",
        "# a comment\nsay He said \"go\".\ncall first {\"a\":\"x\\ny\"}\ncall second {\"task\":\"@task@\"}\n\n\nanswer Got @result@\n",
    );
    let first = r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"say \"hi\" & go\\"}]}"#;
    let answer: serde_json::Value =
        serde_json::from_slice(&play(&script, first.as_bytes()).unwrap()).unwrap();
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["content"], "He said \"go\".");
    let arguments = |n: usize| -> serde_json::Value {
        let text = message["tool_calls"][n]["function"]["arguments"]
            .as_str()
            .unwrap();
        serde_json::from_str(text).unwrap()
    };
    assert_eq!(arguments(0), serde_json::json!({"a": "x\ny"}));
    assert_eq!(
        arguments(1),
        serde_json::json!({"task": "say \"hi\" & go\\"})
    );
    // Old answers may have been left out: the newest id tells how many there were.
    let second = r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"call_0_2"}]},{"role":"tool","tool_call_id":"call_0_2","content":"one\ntwo"}]}"#;
    let answer: serde_json::Value =
        serde_json::from_slice(&play(&script, second.as_bytes()).unwrap()).unwrap();
    assert_eq!(answer["choices"][0]["message"]["content"], "Got one\ntwo");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[test]
fn an_adaptor_makes_a_model_of_a_service_with_an_api_of_its_own() {
    let Some(world) = as_shown("other-model", &["jq"]) else {
        return;
    };
    let run = Run::latest(&world.path("tmp/counted"));
    let thoughts = run.events("THOUGHT");
    assert_eq!(thoughts[0]["usage"]["prompt_tokens"], 9);
    given_again(&world, "other-model");
    // What the service refuses ends the run, with its words; what may pass is asked again.
    for (sends, code, said) in [
        ("echo too large; exit 22", 4, "too large"),
        ("exit 7", 75, "asked again"),
    ] {
        world.script(
            "sends.sh",
            &format!("#!/bin/sh\ncat > \"$HOME/sent\"\n{sends}\n"),
        );
        let line = "delta run -q -a examples/other-model -w tmp/refused -m x --new --set llm.max_retries=0 \
             --set \"llm.command=['$PWD/examples/other-model/adaptor.sh', '$PWD/sends.sh']\"";
        let outcome = shell(&world, line).end();
        assert_eq!(outcome.code(), Some(code), "{}", outcome.stderr);
        assert!(
            code == 75 || outcome.stderr.contains(said),
            "{}",
            outcome.stderr
        );
        let sent: serde_json::Value = serde_json::from_str(&world.read("sent")).unwrap();
        assert_eq!(sent["stream"], false);
        assert_eq!(
            sent["messages"][1],
            serde_json::json!({"role": "user", "content": "x"})
        );
    }
}

#[test]
fn hello_world_writes_a_greeting() {
    let world = as_shown("hello-world", &[]).unwrap();
    assert_eq!(world.read("tmp/greet/greeting.txt"), "Hello, world!\n");
    assert_eq!(world.read("tmp/greet-2/greeting.txt"), "Hello, world!\n");
    given_again(&world, "hello-world");
}

#[test]
fn mcp_asks_a_server() {
    let world = as_shown("mcp", &[]).unwrap();
    nothing_failed(&world, "tmp/dates");
    given_again(&world, "mcp");
}

#[test]
fn file_reader_reads() {
    let world = as_shown("file-reader", &[]).unwrap();
    nothing_failed(&world, "tmp/reader");
    given_again(&world, "file-reader");
}

#[test]
fn interactive_shell_remembers_and_leaves_no_session() {
    let world = as_shown("interactive-shell", &[]).unwrap();
    assert_eq!(
        world.read("tmp/shell/notes/greeting.txt"),
        "hello from notes\n"
    );
    assert_eq!(sessions(&world, "tmp/shell"), 0);
    nothing_failed(&world, "tmp/shell");
    given_again(&world, "interactive-shell");
}

#[test]
fn python_repl_keeps_files_and_leaves_no_session() {
    let Some(world) = as_shown("python-repl", &["python3"]) else {
        return;
    };
    let result = Run::latest(&world.path("tmp/python")).result(3);
    let seen = result["observation_content"].as_str().unwrap();
    assert!(seen.contains(r#""stdout":"285\n""#), "{seen}");
    assert_eq!(sessions(&world, "tmp/python"), 0);
    given_again(&world, "python-repl");
}

#[test]
fn screenshot_shows_the_model_a_page_as_a_browser_renders_it() {
    let Some(world) = as_shown("screenshot", &["chromium", "python3"]) else {
        return;
    };
    let result = Run::latest(&world.path("tmp/screenshot")).result(1);
    assert_eq!(result["attachments"][0]["width"], 800, "{result}");
    given_again(&world, "screenshot");
}

#[test]
fn terminal_answers_an_installer_and_leaves_no_server() {
    let Some(world) = as_shown("terminal", &["tmux"]) else {
        return;
    };
    let installed = "port=8080\npassword_length=11\n";
    assert_eq!(world.read("tmp/terminal/installed.conf"), installed);
    assert_eq!(world.read("tmp/terminal-2/installed.conf"), installed);
    let run = Run::latest(&world.path("tmp/terminal"));
    let last = run.result(6)["observation_content"].to_string();
    assert!(
        last.contains("Installed.") && !last.contains("sesame"),
        "{last}"
    );
    nothing_failed(&world, "tmp/terminal");
    assert!(
        !world.exists("tmp/terminal/.terminal"),
        "its server has ended"
    );
    given_again(&world, "terminal");
}

#[test]
fn a_terminal_shows_how_its_program_ended_and_takes_no_odd_names() {
    if !installed(&["tmux"]) {
        return;
    }
    let world = examples();
    let terminal = |words: &str| {
        let line = format!("cd \"$HOME\" && examples/terminal/tools/terminal {words}");
        shell(&world, &line).end()
    };
    // Of a program that ends at once, tmux may not have read what it printed.
    terminal("start t 'echo from the program; read -r _; exit 3'").exits(0);
    terminal("read t 'from the program'").exits(0);
    terminal("write t Enter < /dev/null").exits(0);
    let seen = terminal("read t never").exits(0).stdout;
    let seen = String::from_utf8(seen).unwrap();
    assert!(seen.starts_with("from the program\n"), "{seen}");
    assert!(seen.contains("Pane is dead (status 3"), "{seen}");
    terminal("end t").exits(0);
    for words in [
        "read t ''",
        "end t",
        "read 'a:b' ''",
        "start '' true",
        "end ../x",
    ] {
        assert_ne!(terminal(words).code(), Some(0), "{words}");
    }
    terminal("end-all").exits(0);
}

fn sessions(world: &World, workspace: &str) -> usize {
    let entries = fs::read_dir(world.path(workspace).join(".sessions")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("sess_")).count()
}

#[test]
fn sandbox_keeps_its_tools_in() {
    if !installed(&["bwrap"]) {
        return;
    }
    let probe = World::new();
    probe.server.may_stay_unasked();
    let namespaces =
        probe
            .delta([])
            .under(&["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]);
    if namespaces.end().code() != Some(0) {
        eprintln!("skipped: bwrap cannot make namespaces here");
        return;
    }
    let world = as_shown("sandbox", &[]).unwrap();
    for name in ["box", "box-2", "box-3"] {
        assert_eq!(world.read(&format!("tmp/{name}/inside.txt")), "inside\n");
        let latest = world.read(&format!("tmp/{name}/.delta/LATEST"));
        assert!(!latest.contains("forged"), "{name}: {latest}");
    }
    assert!(!world.exists("examples/sandbox/outside.txt"));
}

#[test]
fn memory_folding_keeps_requests_short_and_the_journal_whole() {
    let Some(world) = as_shown("memory-folding", &["python3"]) else {
        return;
    };
    let run = first_run(&world, "tmp/fold");
    assert_eq!(run.events("THOUGHT").len(), 12);
    let sizes = run
        .invocations()
        .into_iter()
        .map(|dir| fs::read(dir.join("request.json")).unwrap().len());
    let sizes: Vec<_> = sizes.collect();
    let journal = run.read("journal.jsonl").len();
    assert!(
        sizes[11] < sizes[4] + 3000 && sizes[11] * 2 < journal,
        "{sizes:?}, {journal}"
    );
    let last: serde_json::Value =
        serde_json::from_slice(&fs::read(run.invocations()[11].join("request.json")).unwrap())
            .unwrap();
    let messages = last["messages"].as_array().unwrap();
    assert_eq!(
        messages
            .iter()
            .filter(|message| message["role"] == "assistant")
            .count(),
        3
    );
    let folded = messages.last().unwrap()["content"].as_str().unwrap();
    assert!(
        folded.contains("8. File 7 is next.; `read_file files/07.txt` → 1 2 3"),
        "{folded}"
    );
    assert!(!folded.contains("\n9. "), "{folded}");
    assert!(folded.contains("10: read"), "the notes: {folded}");
    nothing_failed(&world, "tmp/fold");
    given_again(&world, "memory-folding");
}

#[test]
fn code_reviewer_reads_and_judges() {
    if let Some(world) = as_shown("code-reviewer", &["git"]) {
        nothing_failed(&world, "tmp/change");
        given_again(&world, "code-reviewer");
    }
}

#[test]
fn careful_is_sent_what_its_tests_print() {
    let world = as_shown("careful", &[]).unwrap();
    let checks = first_run(&world, "tmp/careful").events("ACCEPTANCE");
    let codes: Vec<_> = checks
        .iter()
        .map(|check| check["exit_code"].as_i64())
        .collect();
    assert_eq!(codes, [Some(0), Some(1), Some(0), Some(0)]);
    nothing_failed(&world, "tmp/careful");
    given_again(&world, "careful");
}

#[test]
fn careful_publishes_once_whatever_interrupts_it() {
    for (is_published, finding) in [(true, "HAPPENED"), (false, "ABSENT")] {
        let world = as_shown("careful", &[]).unwrap();
        let run = first_run(&world, "tmp/careful");
        // The machine stops while it is being published.
        let journal = run.text("journal.jsonl");
        let is_publishing =
            |line: &&str| line.contains("\"ACTION_REQUEST\"") && line.contains("\"publish\"");
        let begun = journal.lines().find(is_publishing).unwrap();
        let end = journal.find(begun).unwrap() + begun.len() + 1;
        fs::write(run.path("journal.jsonl"), &journal[..end]).unwrap();
        let mut metadata = run.metadata();
        metadata["status"] = "RUNNING".into();
        fs::write(run.path("metadata.json"), metadata.to_string()).unwrap();
        if !is_published {
            fs::remove_file(world.path("tmp/careful/published.sh")).unwrap();
        }
        let again = "delta continue -q -w /tmp/careful --run-id ";
        let again = again.replace("/tmp/", "tmp/") + &run.id();
        shell(&world, &again)
            .exits(0)
            .prints("It subtracted the numbers instead of adding them.\n");
        assert!(world.exists("tmp/careful/published.sh"));
        let found: Vec<_> = run.events("ACTION_CHECK");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["status"], finding);
        assert_eq!(run.events("HUMAN_INPUT_REQUEST").len(), 1);
        let said = &run.events("ACTION_RESULT").pop().unwrap()["observation_content"];
        let said = said.as_str().unwrap();
        assert_eq!(
            said == "add.sh had been published.\n",
            is_published,
            "{said}"
        );
    }
}

#[test]
fn research_agent_leaves_notes_and_a_report() {
    let world = as_shown("research-agent", &[]).unwrap();
    assert!(
        world
            .read("tmp/research/report.md")
            .starts_with("# How often are spring tides?")
    );
    nothing_failed(&world, "tmp/research");
    given_again(&world, "research-agent");
}

#[test]
fn research_agent_fetches_a_page_as_text_and_tells_what_went_wrong() {
    if !installed(&["curl"]) {
        return;
    }
    let world = examples();
    world.server.accepts_anything();
    let page = |name: &str| serde_json::json!({"url": format!("{}/{name}", world.server.url())});
    world.model_says([
        call("c1", "fetch", &page("tides.html")),
        raw("<html><body>\n\n<p>High <b>water</b></p></body></html>\n"),
        call("c2", "fetch", &page("none.html")),
        raw("gone").status(404),
        call(
            "c3",
            "fetch",
            &serde_json::json!({"url": "file:///etc/hostname"}),
        ),
        text("done"),
    ]);
    let line = "delta run --set llm.command= -a examples/research-agent -w ws -m go";
    shell(&world, line).exits(0).prints("done\n");
    let seen = |n: usize| world.latest().result(n)["observation_content"].to_string();
    assert_eq!(seen(1), r#""High water\n""#);
    assert!(
        seen(2).contains("404") && seen(2).contains("[exit code: 22]"),
        "{}",
        seen(2)
    );
    assert!(seen(3).contains("[exit code: 1]"), "{}", seen(3));
}

#[test]
fn delta_agent_generator_writes_an_agent_that_passes() {
    let world = as_shown("delta-agent-generator", &[]).unwrap();
    let run = first_run(&world, "tmp/agents");
    let codes: Vec<_> = run
        .events("ACTION_RESULT")
        .iter()
        .map(|e| e["exit_code"].clone())
        .collect();
    assert_eq!(
        serde_json::json!(codes),
        serde_json::json!([0, 0, 78, 0, 0, 0])
    );
    given_again(&world, "delta-agent-generator");
}

/// Every tool of the newest run of a workspace did what it was called for.
#[track_caller]
fn nothing_failed(world: &World, workspace: &str) {
    for result in Run::latest(&world.path(workspace)).events("ACTION_RESULT") {
        assert_eq!(result["status"], "SUCCESS", "{result}");
    }
}

/// The run of a workspace that was created first.
fn first_run(world: &World, workspace: &str) -> Run {
    let entries = fs::read_dir(world.path(workspace).join(".delta")).unwrap();
    let runs = entries.map(|entry| Run {
        dir: entry.unwrap().path(),
    });
    let runs = runs.filter(|run| run.path("journal.jsonl").exists());
    let created = |run: &Run| run.metadata()["created_at"].as_str().unwrap().to_owned();
    runs.min_by_key(created).unwrap()
}
