//! What an agent's content is in `delta eval`, and what a hostile repository around it can do.

use super::eval_agents::*;
use crate::harness::*;
use miniz_oxide::deflate::compress_to_vec_zlib;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

const COMMAND: [&str; 4] = ["-a", "r/a", "--cases", "cases.csv"];

const AGAINST: [&str; 6] = ["-a", "r/a", "--cases", "cases.csv", "--against", "HEAD~1"];

fn make_pipe(world: &World, path: &str) {
    let made = Command::new("mkfifo").arg(world.path(path)).status();
    assert!(made.unwrap().success());
}

#[test]
fn nothing_of_an_export_is_written_through_a_link() {
    let Some(world) = repository() else { return };
    let mine = world.path("mine");
    fs::create_dir(&mine).unwrap();
    world.write("r/a/.env", "DELTA_BASE_URL=http://127.0.0.1:9\n");
    let there = mine.display().to_string();
    for leads in [&*there, "../mine", "b"] {
        fs::rename(world.path("r/a"), world.path("r/b")).unwrap();
        symlink(leads, world.path("r/a")).unwrap();
        commit(&world, "a link");
        fs::remove_file(world.path("r/a")).unwrap();
        fs::rename(world.path("r/b"), world.path("r/a")).unwrap();
        commit(&world, "a directory");
        let refused = eval(&world, &AGAINST).exits(2);
        refused.says("a: it was a link or a file");
        assert_eq!(fs::read_dir(&mine).unwrap().count(), 0, "{leads}");
        let exports = world.path("cache/delta/revisions");
        assert_eq!(fs::read_dir(exports).unwrap().count(), 0, "{leads}");
    }
}

#[test]
fn sizes_of_objects_and_what_git_says_have_limits() {
    let Some(world) = repository() else { return };
    for (at, name) in ["big1", "big2"].iter().enumerate() {
        let id = format!("aa{at}{}", "b".repeat(37));
        let object = compress_to_vec_zlib(b"blob 18446744073709551615\0", 6);
        world.write(&format!("r/.git/objects/aa/{}", &id[2..]), object);
        let entry = format!("100644,{id},{name}");
        git(
            &world,
            "r",
            &["update-index", "--add", "--cacheinfo", &entry],
        );
    }
    git(&world, "r", &["commit", "-q", "-m", "huge"]);
    eval(&world, &["-a", "r/a@HEAD", "--cases", "cases.csv"])
        .exits(2)
        .says("more than 2 GiB");
    let real = Command::new("sh").args(["-c", "command -v git"]).output();
    let real = String::from_utf8(real.unwrap().stdout).unwrap();
    let with = |does: &str| {
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *ls-tree*) {does} ;; *) exec {} \"$@\" ;; esac\n",
            real.trim()
        );
        world.script("bin/git", &script);
        let path = format!("{}:/usr/bin:/bin", world.path("bin").display());
        eval(&world, &AGAINST).env("PATH", path)
    };
    with("exec yes").exits(2).says("its answer is too long");
    let ended = with("kill -TERM $PPID; exec sleep 600").exits(143);
    assert!(!ended.stderr.contains("was not there"), "{}", ended.stderr);
    // What an export has left behind that was killed stays for a day.
    with("echo 'fatal: it is broken' >&2; exit 128")
        .exits(2)
        .says("it is broken");
}

#[test]
fn a_git_in_the_repository_is_not_executed() {
    let Some(world) = repository() else { return };
    let real = std::env::var("PATH").unwrap();
    for dir in ["r", "r/a", "r/bin"] {
        let script = "#!/bin/sh\necho \"$0\" >>\"$ASKED.trap\"\nexit 1\n";
        world.script(&format!("{dir}/git"), script);
    }
    let inside = world.path("r/bin").display().to_string();
    symlink(&inside, world.path("link")).unwrap();
    let link = world.path("link").display().to_string();
    for first in [".", "", "a", &inside, &link] {
        let found = eval(&world, &[&AGAINST[..], &["--dry-run"]].concat());
        found.env("PATH", format!("{first}:{real}")).exits(0);
        assert!(!world.exists("asked.trap"), "{first:?}");
    }
}

#[test]
fn nothing_in_a_repository_keeps_git_waiting() {
    let Some(world) = repository() else { return };
    world.write("r/a/sub/x", "x");
    for path in [
        "r/a/.gitignore",
        "r/a/sub/.gitignore",
        "r/.gitignore",
        "pipe",
    ] {
        make_pipe(&world, path);
    }
    let pipe = world.path("pipe").display().to_string();
    git(&world, "r", &["config", "core.excludesFile", &pipe]);
    eval(&world, &COMMAND).exits(1);
    eval(&world, &[&COMMAND[..], &["--dry-run"]].concat()).exits(0);
}

#[test]
fn what_links_lead_to_in_the_repository_is_content() {
    let Some(world) = repository() else { return };
    let good = world.read("r/a/model.sh").replace("nothing", "crashes");
    let bad = world.read("r/a/model.sh");
    fs::remove_file(world.path("r/a/model.sh")).unwrap();
    symlink("../shared/model.sh", world.path("r/a/model.sh")).unwrap();
    world.write("r/.gitignore", "*.log\n");
    for (text, message) in [(&good, "good"), (&bad, "bad"), (&good, "good again")] {
        world.script("r/shared/model.sh", text);
        commit(&world, message);
        let found = eval(&world, &AGAINST).json().end();
        if message != "good" {
            let name = |rate: f64| if rate > 0.9 { "good" } else { "bad" };
            let rates: Vec<_> = rates(&found).iter().map(|it| name(it.1)).collect();
            let wanted = match message {
                "bad" => ["good", "bad"],
                _ => ["bad", "good"],
            };
            assert_eq!(rates, wanted, "{message}");
        }
    }
    // The third commit is the first again.
    let before = asked(&world);
    eval(&world, &COMMAND).exits(0);
    world.write("r/shared/noise.log", "ignored");
    eval(&world, &COMMAND).exits(0);
    assert_eq!(asked(&world), before);
    // A directory, and what it leads to.
    symlink("../more", world.path("r/a/more")).unwrap();
    symlink("../deep", world.path("r/more")).ok();
    fs::remove_file(world.path("r/more")).unwrap();
    world.write("r/more/here", "1");
    world.write("r/deep/there", "1");
    symlink("../deep", world.path("r/more/deep")).unwrap();
    let mut before = before;
    for (path, is_content) in [
        ("r/more/here", true),
        ("r/deep/there", true),
        ("r/more/noise.log", false),
        ("r/other", false),
    ] {
        eval(&world, &COMMAND).exits(0);
        before = asked(&world).max(before);
        world.write(path, "2");
        eval(&world, &COMMAND).exits(0);
        assert_eq!(asked(&world) > before, is_content, "{path}");
    }
}

#[test]
fn what_an_agent_names_beside_its_directory_is_content() {
    let world = world();
    let good = world.read("a/model.sh");
    fs::remove_file(world.path("a/model.sh")).unwrap();
    world.script("lib/model.sh", &good);
    let yaml = world.read("a/agent.yaml");
    world.write(
        "a/agent.yaml",
        yaml.replace("/model.sh", "/../lib/model.sh"),
    );
    let command = ["-a", "a", "--cases", "cases.csv"];
    eval(&world, &command).exits(0);
    assert_eq!(asked(&world), 2);
    world.write("lib/other.sh", "x");
    eval(&world, &command).exits(0);
    assert_eq!(asked(&world), 2);
    world.script("lib/model.sh", &good.replace("crashes", "nothing"));
    eval(&world, &command).exits(1);
    assert_eq!(asked(&world), 4);
}

#[test]
fn an_agent_that_is_edited_meanwhile_is_not_measured() {
    let world = world();
    let model = world.read("a/model.sh");
    let edit = "[ -e \"$ASKED.edited\" ] || { : >\"$ASKED.edited\"; echo Guess. >\"${0%/*}/system_prompt.md\"; }\n";
    world.script(
        "a/model.sh",
        &model.replace("case ", &format!("{edit}case ")),
    );
    let command = ["-a", "a", "--cases", "cases.csv"];
    let edited = eval(&world, &command).exits(4);
    let table = String::from_utf8(edited.stdout).unwrap();
    assert!(table.contains("agent changed"), "{table}");
    let before = asked(&world);
    assert_eq!(before, 1);
    // As it was: nothing of what was measured then counts, and no answer of that run does.
    world.write("a/system_prompt.md", "Sort.\n");
    let again = eval(&world, &command).json().exits(0);
    assert_eq!(rates(&again), [("a".to_owned(), 1.0)]);
    assert_eq!(asked(&world), 3);
    eval(&world, &command).exits(0);
    assert_eq!(asked(&world), 3);
}

#[test]
fn the_persons_model_is_a_part_of_a_trial_where_the_agent_names_none() {
    let world = world();
    world.server.answers(|_| text("bug"));
    let command = ["-a", "a", "--cases", "cases.csv", "--case", "crash"];
    let with = |model: &str, more: &[&str]| {
        eval(&world, &[&command[..], more].concat())
            .env("DELTA_BASE_URL", world.server.url())
            .env("DELTA_MODEL", model)
            .exits(0);
        world.server.requests().len()
    };
    world.write("a/agent.yaml", "name: sorter\nllm: {}\n");
    assert_eq!(with("m1", &[]), 1);
    assert_eq!(with("m2", &[]), 2);
    assert_eq!(with("m1", &[]), 2);
    world.write("a/agent.yaml", "name: sorter\nllm: {model: m3}\n");
    assert_eq!(with("m1", &[]), 3);
    assert_eq!(with("m2", &[]), 3);
}

#[test]
fn without_git_what_is_ignored_counts_and_this_is_said() {
    let Some(world) = repository() else { return };
    fs::create_dir(world.path("bin")).unwrap();
    for program in ["sh", "cat"] {
        symlink(
            format!("/bin/{program}"),
            world.path(&format!("bin/{program}")),
        )
        .unwrap();
    }
    let without = || eval(&world, &COMMAND).env("PATH", world.path("bin"));
    without()
        .exits(1)
        .says("git: it is not installed outside of the repository");
    eval(&world, &COMMAND).exits(1);
    assert_eq!(asked(&world), 2);
    // No repository, nothing to ignore.
    fs::remove_dir_all(world.path("r/.git")).unwrap();
    let quiet = without().exits(1);
    assert!(!quiet.stderr.contains("ignore"), "{}", quiet.stderr);
    let mode = fs::metadata(world.path("r/a"))
        .unwrap()
        .permissions()
        .mode();
    assert_ne!(mode & 0o200, 0);
}

#[test]
fn what_is_compared_with_is_read_or_refused() {
    let Some(world) = repository() else { return };
    let good = eval(&world, &["-a", "r/a@HEAD~1", "--cases", "cases.csv"]);
    world.write("good.json", good.json().exits(0).stdout);
    let renamed = world.read("good.json").replace("r/a@HEAD~1", "r/a");
    world.write("good.json", renamed);
    let against = |what: &str| {
        let command = [&COMMAND[..], &["--against", what]].concat();
        eval(&world, &command)
    };
    assert_ne!(against("good.json").end().code(), Some(2));
    let line = "exec \"$0\" \"$@\" --against <(cat good.json)";
    let before = asked(&world);
    let piped = eval(&world, &COMMAND).under(&["bash", "-c", line]);
    let piped = piped.json().end().object();
    assert_eq!(piped["suites"][0]["comparison"]["against"], "r/a");
    assert_eq!(asked(&world), before);
    make_pipe(&world, "pipe");
    for (what, words) in [
        ("/dev/null", "/dev/null"),
        ("pipe", "no program has written"),
    ] {
        against(what).exits(2).says(words);
    }
}

#[test]
fn a_revision_is_of_the_agent_whatever_revision_that_is() {
    let Some(world) = repository() else { return };
    let command = ["-a", "r/a@HEAD", "--cases", "cases.csv", "--against"];
    for revision in ["HEAD~1", "HEAD@{1}", "@{1}", "@~1"] {
        let found = eval(&world, &[&command[..], &[revision]].concat())
            .json()
            .end();
        let wanted = [(revision.to_owned(), 1.0), ("r/a@HEAD".to_owned(), 0.5)];
        assert_eq!(rates(&found), wanted);
    }
    assert_eq!(asked(&world), 4);
}

#[test]
fn a_suite_without_anything_that_judges_is_refused() {
    let world = world();
    for (name, text, words) in [
        (
            "c.csv",
            "question,answer\nIt crashes.,bug\n",
            "nothing judges the answer",
        ),
        (
            "c.jsonl",
            "{\"input\": \"It crashes.\"}\n",
            "nothing judges the answer to case 1",
        ),
        (
            "c.csv",
            "id,input,expected\nx,one,bug\ny,two,\n",
            "nothing judges the answer to case y",
        ),
        ("c.csv", "id\tinput\texpected\na\tb\tc\n", "divided by tabs"),
        (
            "c.csv",
            "id;input;expected\na;b;c\n",
            "divided by semicolons",
        ),
        ("c.csv", "ID,input,expected\na,b,c\n", "write it as id"),
        ("c.yaml", "- {input: a, expected: b}\n", "not YAML"),
    ] {
        world.write(name, text);
        let refused = eval(&world, &["-a", "a", "--cases", name]).exits(2);
        refused.says(words);
    }
    assert_eq!(asked(&world), 0);
    world.write("c.csv", "question,answer\nIt crashes.,bug\n");
    eval(&world, &["-a", "a", "--cases", "c.csv", "--grade", "true"]).exits(0);
}

#[test]
fn a_directory_that_is_moved_and_the_printed_file_cost_nothing() {
    let world = world();
    let words = ["-a", "a", "--cases", "cases.csv"];
    eval(&world, &words).exits(0);
    let printed = eval(&world, &[&words[..], &["--dry-run"]].concat()).exits(0);
    world.write("e/evaluations.yaml", printed.stdout);
    eval(&world, &["e"]).exits(0);
    fs::rename(world.path("e"), world.path("f")).unwrap();
    eval(&world, &["f"]).exits(0);
    eval(&world, &words).exits(0);
    assert_eq!(asked(&world), 2);
    let places = fs::read_dir(world.path("w/eval/eval")).unwrap();
    assert_eq!(places.count(), 2);
}

#[test]
fn only_what_is_wrong_in_the_word_of_against_is_wrong_usage() {
    let Some(world) = repository() else { return };
    let suite = |settings: &str| {
        let suite = "suites:\n- name: s\n  target: {agent: ../r/a}\n  cases: ../cases.csv\n";
        world.write(
            "e/evaluations.yaml",
            format!("{suite}  settings: [{settings}]\n"),
        );
    };
    let against = |what: &str| eval(&world, &["e", "--against", what]);
    suite("{name: one}");
    against("nowhere").exits(2).says("no such revision");
    suite("{name: one, set: {max_iterations: x}}");
    against("HEAD~1").exits(78).says("suite \"s\", setting ");
    suite("{name: one}, {name: two, agent: '../r/a@nowhere'}");
    against("HEAD~1").exits(78).says("no such revision");
    assert_eq!(asked(&world), 0);
}

#[test]
fn settings_that_are_not_chosen_are_not_exported() {
    let Some(world) = repository() else { return };
    let suite = |settings: &str| {
        let suite = "suites:\n- name: s\n  target: {agent: ../r/a}\n  cases: ../cases.csv\n";
        world.write(
            "e/evaluations.yaml",
            format!("{suite}  settings: [{settings}]\n"),
        );
    };
    let chosen = |name: &str| eval(&world, &["e", "--setting", name]);
    suite("{name: now}, {name: then, agent: '../r/a@HEAD~1'}");
    chosen("now").exits(1);
    assert!(!world.exists("cache/delta/revisions"));
    assert_eq!(asked(&world), 2);
    suite("{name: gone, agent: '../r/a@nowhere'}, {name: now}");
    chosen("now").exits(1);
    chosen("gone").exits(78);
    // Equal settings have trials of their own, whichever are chosen.
    suite("{name: now}, {name: again}");
    chosen("again").exits(1);
    assert_eq!(asked(&world), 4);
    eval(&world, &["e"]).exits(0);
    assert_eq!(asked(&world), 4);
}

#[test]
fn an_option_that_can_be_meant_once_is_not_given_twice() {
    let world = world();
    for option in ["--against", "--cases", "--grade"] {
        let words = ["-a", "a", "--cases", "cases.csv", option, "a", option, "a"];
        let said = format!("{option} is given twice");
        eval(&world, &words).exits(2).says(&said);
    }
    assert_eq!(asked(&world), 0);
}

#[test]
fn the_dry_run_counts_what_is_recorded() {
    let world = world();
    let words = ["-a", "a", "--cases", "cases.csv"];
    let dry = |words: &[&str]| {
        let printed = eval(&world, words).arg("--dry-run").exits(0).stdout;
        String::from_utf8(printed).unwrap()
    };
    let counts = |found: &str| format!("1 setting, 4 trials: {found}\n");
    let four = [&words[..], &["--trials", "2"]].concat();
    let first = dry(&four);
    assert!(first.starts_with("# eval: "), "{first}");
    assert!(first.contains(&counts("0 recorded, 4 to run")), "{first}");
    assert!(!world.exists("w"));
    eval(&world, &words).exits(0);
    let then = dry(&four);
    assert!(then.contains(&counts("2 recorded, 2 to run")), "{then}");
    // The printed file is one, and finds the same trials.
    world.write("e/evaluations.yaml", then);
    let of_file = dry(&["e"]);
    assert!(
        of_file.contains(&counts("2 recorded, 2 to run")),
        "{of_file}"
    );
    assert!(!of_file.starts_with('#'), "{of_file}");
    assert_eq!(asked(&world), 2);
}

#[test]
fn the_dry_run_prints_no_control_characters() {
    let world = world();
    let suite = "suites:\n- name: s\n  target: {command: [cat, \"\\e[31m\"]}\n  cases: [{id: a, input: x}]\n";
    world.write("e/evaluations.yaml", suite);
    let printed = eval(&world, &["e", "--dry-run"]).exits(0).stdout;
    assert!(!printed.contains(&0x1b), "{printed:?}");
}

#[test]
fn tokens_that_no_model_has_counted_are_said_to_be_estimates() {
    let world = world();
    let counted = world.read("a/model.sh").replace(
        "}]}'",
        "}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1,\"total_tokens\":8}}'",
    );
    write_agent(&world, "b", "crashes");
    world.script("b/model.sh", &counted);
    let words = ["-a", "a", "-a", "b", "--cases", "cases.csv"];
    let found = eval(&world, &words).json().exits(0).object();
    let of = |at: usize| &found["suites"][0]["settings"][at];
    assert!(of(0)["tokens"].as_u64() > Some(0), "{found}");
    assert_eq!(of(0)["tokens_estimated"], of(0)["tokens"]);
    assert_eq!(of(1)["tokens"], 16);
    assert_eq!(of(1)["tokens_estimated"], 0);
    let lines = eval(&world, &words)
        .args(["--format", "jsonl"])
        .exits(0)
        .stdout;
    let lines = String::from_utf8(lines).unwrap();
    assert_eq!(lines.matches("\"tokens_estimated\"").count(), 2);
}

#[test]
fn messages_begin_with_the_command_that_was_given() {
    let world = world();
    let suite =
        "suites:\n- {name: s, bogus: 1, target: {command: [cat]}, cases: [{id: a, input: x}]}\n";
    world.write("e/evaluations.yaml", suite);
    let warned = eval(&world, &["e"]).exits(0);
    assert!(
        warned.stderr.starts_with("delta: warning: e/"),
        "{}",
        warned.stderr
    );
    let flow = world.delta(["flow", "eval", "e", "-w", "w", "-q"]).exits(0);
    assert!(
        flow.stderr.starts_with("delta-flow: warning: e/"),
        "{}",
        flow.stderr
    );
    let report = world.delta(["flow", "eval", "report", "w"]).exits(2);
    report.says("delta eval report");
}
