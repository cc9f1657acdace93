//! Every command line that the manual and the README show runs, and prints what they say.

use crate::harness::*;
use delta_engine::text::manual::PAGES;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Commands that do not end with 0, and why.
const OTHER_STATUS: [(&str, &str, i32); 2] = [
    // The requests that are compared differ.
    ("request", "delta request -w work LATEST 6 --diff 7", 1),
    // So do the runs.
    ("diff", "COLUMNS=63 delta diff -w ws one two", 1),
];

/// Programs that cannot do here what they are for. In their place: what reads the same arguments and input.
const STAND_INS: [(&str, &str); 4] = [
    // It would follow a file for ever.
    (
        "tail",
        "#!/bin/sh\n[ \"$1\" = -f ] || exec /usr/bin/tail \"$@\"\nshift\nexec cat \"$@\"\n",
    ),
    // There is nobody to look.
    ("xdg-open", "#!/bin/sh\ngrep -q '</html>' \"$1\"\n"),
    // There is no network. What it would send has to be a request.
    (
        "curl",
        "#!/bin/sh\ngrep -qE '\"(messages|resourceSpans)\"'\n",
    ),
    (
        "python",
        "#!/bin/sh\n[ \"$2\" = harbor.utils.trajectory_validator ] && grep -q ATIF \"$3\"\n",
    ),
];

/// Pages, commands on them by some of their words, what is run after them to see what they did, and what all of this prints
/// if it does what the page says.
const DOES: &[(&str, &str, &str, &str)] = &[
    (
        "log",
        "LATEST --json",
        "",
        "echo 'step 0'\necho 'step 1'\necho 'step 2'\necho 'step 3'\necho 'step 4'\necho 'step 5'\necho 'step 6'\n",
    ),
    ("log", "log -w work -f\n", "", "…\n…first\n…\n…COMPLETED…\n"),
    ("log", "-f --json", "", "step 0\n…\nstep 6\n\n"),
    ("log", "tail -f", "", "step 6\n"),
    (
        "journal",
        "jq -r",
        "",
        "… echo\n… echo\n… echo\n… echo\n… echo\n… echo\n… echo\n",
    ),
    (
        "export",
        "--format atif",
        "grep -q 'step 6' trajectory.json && echo whole",
        "whole\n",
    ),
    (
        "export",
        "--format chat",
        "jq -c '.messages | length' conversations.jsonl",
        "…\n17\n",
    ),
    (
        "list-runs",
        "--needs-attention",
        "",
        "RUN…\n…WAITING_FOR_INPUT…\n…",
    ),
    (
        "list-runs",
        "--since 30d",
        "",
        "RUN…\n…\n3 runs: 2 COMPLETED, 1 WAITING_FOR_INPUT; 0 tokens\n",
    ),
    (
        "list-runs",
        "-m yes",
        "delta list-runs -w work --status waiting-for-input --format json",
        "…\nThank you.\n…\n[]\n",
    ),
    ("list-runs", ".usage.total_tokens", "", "0\n"),
    (
        "request",
        "jq -r '.messages[0].content'",
        "",
        "…\nYou are a test.\n…",
    ),
    ("request", "--diff 7", "", "…\n…step 5…\n"),
    (
        "run",
        "--run-id task-17",
        "delta run -q -a agent -w work/17 --run-id task-17 -m - < tasks/17.txt\ndelta list-runs -w work/17 --format json | jq length",
        "…\nDone.\n…\nDone.\n1\n",
    ),
    ("run", "--format json |", "", "Done.\n"),
    ("continue", "continue -w work\n", "", "…\nDone.\n…"),
    (
        "continue",
        "--run-id 20251013",
        "delta log -w work 20251013 | grep -c 'Now the other file'",
        "…\nDone.\n…\n1\n",
    ),
    (
        "prune",
        "prune 20251013_101500_ab12cd",
        "ls -d .delta/20251013* 2>/dev/null | wc -l",
        "/…/.delta/20251013_101500_ab12cd\nremoved 1 run, …\n0\n",
    ),
    (
        "prune",
        "--dry-run",
        "ls work/.delta | grep -c '^2'",
        "…\n1\n",
    ),
    (
        "report",
        "> report.html",
        "grep -c '</html>' report.html",
        "1\n",
    ),
    (
        "schema",
        "schema agent",
        "jq -r .type ~/.config/delta-agent.json",
        "object\n",
    ),
    ("sandbox", "-- make", "ls built", "…\nbuilt\n"),
    ("help", "help agent", "", "DELTA-AGENT(5)…\n…\n"),
    ("help", "rate limit", "", "delta(1) DELTA_RATE_DIR: …\n…\n"),
    ("help", "stop a run", "", "…\n…stop…\n…\n"),
    ("init", "check", "", "…\nfresh: ok…\n"),
    ("delta", "run 'fix", "", "…\nDone.\n…"),
    (
        "delta",
        "journal.jsonl | jq -r .type",
        "",
        "ENGINE_START\nUSER_MESSAGE\n…\nENGINE_END\n",
    ),
    (
        "delta",
        "sed -i",
        "grep -q '\"iteration\":3,' journal.jsonl || echo gone",
        "gone\n",
    ),
    (
        "delta",
        "continue -w /tmp/hello",
        "jq -rs '[.[] | select(.type == \"THOUGHT\")] | last | .iteration' journal.jsonl",
        "…\n3\n",
    ),
    (
        "delta",
        "run -a examples/hello-world",
        "ls /tmp/hello/.delta/2*/journal.jsonl | wc -l",
        "…\n1\n",
    ),
    ("delta", "until delta run", "", "…\nDone.\n…\n"),
    (
        "delta",
        "select(.type == \"ACTION_REQUEST\")",
        "",
        "tee -- greeting.txt\nwc -- greeting.txt\n",
    ),
    ("delta", "tail -f io/", "", "…"),
    ("delta", "delta setup", "", "…\n…--base-url…\n…\n"),
    (
        "chat",
        "delta chat\n",
        "delta list-runs --format json | jq -c 'map(.status)'",
        "…\nDone.\n…\n[\"COMPLETED\"]\n",
    ),
    (
        "chat",
        "delta chat -w .",
        "delta list-runs -w . --format json | jq length",
        "…\n1\n",
    ),
    (
        "continue",
        "keep a copy",
        "grep -c 'Yes, but keep a copy' work/.delta/2*/journal.jsonl | grep -c ':1$'",
        "…\nDone.\n…\n1\n",
    ),
    ("export", "trajectory_validator", "", ""),
    ("report", "xdg-open", "", ""),
    ("export", "--format otlp", "", ""),
    (
        "flow",
        "--format svg",
        "grep -c '</svg>' pipeline.svg",
        "1\n",
    ),
    (
        "fork",
        "Use awk instead.",
        "grep -c 'Use awk instead.' ws-awk/.delta/2*/journal.jsonl; ls -d ws/.delta/job",
        "…\nDone.\n…\n1\nws/.delta/job\n",
    ),
    (
        "fork",
        "--run-id cold",
        "jq -r 'select(.type == \"ENGINE_START\") | .config.llm.temperature' ws-cold/.delta/cold/journal.jsonl",
        "…\nDone.\n…\n0\n",
    ),
    ("fork", "delta diff", "", "…"),
    ("help", "-k sandbox", "", "…delta-sandbox(1)…\n…"),
    (
        "init",
        "run -a greeter",
        "cat greeter/workspaces/*/a",
        "…\nThere.\n…\nHi",
    ),
    (
        "journal",
        "duration_ms",
        "",
        "… echo\n… echo\n… echo\n… echo\n… echo\n… echo\n… echo\n",
    ),
    (
        "prune",
        "--keep-journal",
        "ls work/.delta/2*/journal.jsonl | wc -l; ls work/.delta/2*/io 2>/dev/null | wc -l",
        "…\n1\n0\n",
    ),
    (
        "replay",
        "--tools recorded",
        "",
        "…\nidentical: 8 requests\n",
    ),
    ("request", "api.openai.com", "", ""),
    ("run", "-m \"$task\" \\\n", "", "…\nDone.\n…\n"),
    (
        "run",
        "while read -r id text",
        "cat out/1 out/2; ls -d work/1/.delta/1 work/2/.delta/2",
        "Done.\nDone.\nwork/1/.delta/1\nwork/2/.delta/2\n",
    ),
    (
        "setup",
        "setup --base-url",
        "grep -E 'MODEL|BASE_URL' ~/.config/delta/env",
        "…\nDELTA_BASE_URL=…\nDELTA_MODEL=qwen3\n",
    ),
    ("stats", "stats -r .", "", "AGENT…\n…\n"),
    (
        "stats",
        "--format csv",
        "wc -l < runs.csv; head -1 runs.csv",
        "2\n…run_id…\n",
    ),
    ("undo", "-w ws -n", "", "put back greeting.txt\n…\n"),
    (
        "undo",
        "delta undo -w ws\n",
        "tail -1 ws/greeting.txt",
        "put back greeting.txt\n…\nstep 5\n",
    ),
    ("undo", "--to 0", "ls ws", "removed greeting.txt\n…\n"),
    (
        "git",
        "log --stat",
        "",
        "commit …\n…\n…[7] echo\n…\n…[0] start\n…",
    ),
    ("git", "diff", "", "…\n+broken\n…\n+step 6\n"),
    (
        "files",
        "show LATEST@2",
        "cat greeting.txt",
        "step 0\nstep 1\n",
    ),
    (
        "files",
        "archive",
        "cat state/greeting.txt",
        "step 0\nstep 1\n",
    ),
    ("files", "delta fork", "", "…\nDone.\n…"),
    ("files", "worktree add", "ls steps", "greeting.txt\n"),
    ("files", "bisect start", "", "…\n"),
    (
        "files",
        "bisect run",
        "",
        "…\n…is the first bad commit\n…\n…[4] echo\n…",
    ),
    (
        "files",
        "worktree remove",
        "ls -d steps 2>/dev/null || echo gone",
        "gone\n",
    ),
];

/// How the commands begin that only prepare what the next ones show.
const PREPARES: [&str; 9] = [
    "cat >",
    "cat t.yaml",
    "cd ",
    "chmod ",
    "cp ",
    "export ",
    "id=$(",
    "mkdir ",
    "rm ",
];

/// What is there before the commands of any page: an agent that takes seven steps, or asks first if its
/// task begins with "ask".
const STAGE: &str = r#"
set -e
mkdir -p agent tasks .config .cargo
echo 'Do the task.' > tasks/17.txt
echo 'You are a test.' > agent/system_prompt.md
cat > agent/context.yaml <<'END'
sources:
  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}
  - {type: journal}
END
cat > agent/agent.yaml <<'END'
name: agent
llm: {model: scripted, command: ["${AGENT_HOME}/model.sh"]}
tools:
  - {name: echo, exec: 'echo ${words}'}
END
cat > agent/model.sh <<'END'
#!/bin/sh
exec awk '
function call(name, arguments) {
    printf "{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"c%s\",\"type\":\"function\",", n
    printf "\"function\":{\"name\":\"%s\",\"arguments\":\"%s\"}}]}}]}", name, arguments
}
function answer(text) { printf "{\"choices\":[{\"message\":{\"content\":\"%s\"}}]}", text }
{ request = request $0 }
END {
    n = gsub(/"role":"tool"/, "&", request)
    asks = request ~ /"content":"ask/
    if (asks && n == 0) call("ask_human", "{\\\"prompt\\\":\\\"Shall I?\\\"}")
    else if (asks) answer("Thank you.")
    else if (n < 7) call("echo", "{\\\"words\\\":\\\"step " n "\\\"}")
    else answer("Done.")
}'
END
chmod +x agent/model.sh
"#;

/// A run of the agent in `work`, for pages that name it.
const RUN: &str = "delta run -q -a agent -w work -m first";

/// What is there besides for the commands of one page, and where they are given.
fn stage_of(page: &str) -> (&'static str, &'static str) {
    let more = match page {
        "delta" | "chat" => {
            "mkdir -p .config/delta/agents && cp -R agent .config/delta/agents/coder"
        }
        "run" => {
            "mkdir -p out .config/delta/agents && cp -R agent .config/delta/agents/coder
             printf '1 one\\n2 two\\n' > tasks.txt"
        }
        "continue" => {
            "delta run -q -a agent -w work --run-id 20251013_101500_ab12cd -m second
             delta run -q -a agent -w work -m third --max-iterations 2 || [ $? = 4 ]"
        }
        "list-runs" => {
            "cp -R agent my-agent
             delta run -q -a my-agent -y -m first
             delta run -q -a agent -w work -m ask || [ $? = 101 ]"
        }
        "prune" => {
            r#"delta run -q -a agent -w . --run-id 20251013_101500_ab12cd -m ask || [ $? = 101 ]
             cd work/.delta/2* && sed -i -E 's/": ?"20[0-9][0-9]-/":"2025-/g' metadata.json journal.jsonl"#
        }
        "sandbox" => "printf 'all:\\n\\t: > built\\n' > Makefile",
        "undo" | "git" | "files" => {
            r#"sed -i "s/^tools:/files: git\n&/; s/exec:.*/shell: 'echo \${words} | sed s,.*3,broken, >> greeting.txt'}/" agent/agent.yaml
             delta run -q -a agent -w ws -m first"#
        }
        "fork" => "delta run -q -a agent -w ws --run-id job -m first",
        "replay" => "delta run -q -a agent -w ws -m first",
        "diff" => {
            r#"cat > agent/model.sh <<'END'
#!/bin/sh
n=$(grep -o '"role":"tool"' | wc -l)
case $n in
0 | 1) words=$n ;;
2) words=$SIDE ;;
*) printf '{"choices":[{"message":{"content":"done"}}]}' && exit ;;
esac
printf '{"choices":[{"message":{"tool_calls":[{"id":"c%s","type":"function",' "$n"
printf '"function":{"name":"echo","arguments":"{\\"words\\":\\"%s\\"}"}}]}}]}' "$words"
END
             SIDE=left delta run -q -a agent -w ws --run-id one -m go
             SIDE=right delta run -q -a agent -w ws --run-id two -m go"#
        }
        "tool" => {
            "printf '%s\\n' 'tools:' \"- {name: count, shell: 'grep -c -- \\${pattern} \\${file} | sort'}\" > t.yaml"
        }
        "flow" => {
            r"mkdir pipeline
             cat > pipeline/workflow.yaml <<'END'
nodes:
- {id: in, kind: deterministic, role: start, context: none, default_start: true}
- {id: out, kind: deterministic, role: exit, context: none}
edges:
- {from: in, to: out}
END"
        }
        _ => "",
    };
    let place = match page {
        "journal" => "work/.delta/2*",
        _ => ".",
    };
    (more, place)
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The commands of a page of the manual: what stands behind `$ ` at the margin of a block, with all lines
/// that a shell needs to make sense of it. What is below, up to an empty line, it prints.
fn in_page(text: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((line, first)) = lines.next() {
        let indent = first.len() - first.trim_start().len();
        let Some(command) = first.trim_start().strip_prefix("$ ") else {
            continue;
        };
        let of_block = |line: &str| -> Option<String> {
            let inside = line
                .get(..indent)
                .is_some_and(|margin| margin.trim().is_empty());
            (inside && line.len() > indent).then(|| line[indent..].to_owned())
        };
        let mut command = format!("{command}\n");
        while !is_whole(&command) {
            let more = lines.next().and_then(|(_, line)| of_block(line));
            let more = more.unwrap_or_else(|| panic!("{line}: {command} has no end"));
            command.push_str(&more);
            command.push('\n');
        }
        let mut output = String::new();
        while let Some(more) = lines.peek().and_then(|(_, line)| of_block(line)) {
            if more.starts_with("$ ") {
                break;
            }
            output.push_str(&more);
            output.push('\n');
            lines.next();
        }
        let output = (!output.is_empty()).then_some(output);
        found.push(Shown {
            line,
            command,
            output,
        });
    }
    found
}

/// Whether a shell has all of a command.
fn is_whole(command: &str) -> bool {
    let here = command
        .split_once("<<'")
        .map(|(_, rest)| rest.split_once('\''));
    if let Some(Some((end, rest))) = here
        && !rest.lines().any(|line| line == end)
    {
        return false;
    }
    let checked = Command::new("sh")
        .args(["-n", "-c", command])
        .stderr(Stdio::null())
        .status();
    !command.ends_with("\\\n") && checked.unwrap().success()
}

/// With `…` for what is another each time: ids, dates and how long something took.
fn loosened(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let mut out = String::new();
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let starts = !out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            match changing(&out, rest).filter(|_| starts) {
                Some(length) => {
                    out.truncate(out.trim_end().len());
                    out.push('…');
                    rest = &rest[length..];
                }
                None => {
                    out.push(c);
                    rest = &rest[c.len_utf8()..];
                }
            }
        }
        out + "\n"
    });
    lines.collect()
}

/// How long the thing at the beginning of a text is, if it is another each time; `before` stands before it.
fn changing(before: &str, text: &str) -> Option<usize> {
    let shape: String = text
        .chars()
        .take(22)
        .map(|c| match c {
            '0'..='9' => '0',
            'a'..='f' => 'a',
            c => c,
        })
        .collect();
    for like in ["00000000_000000_", "0000-00-00 00:00:00", "0:00.0"] {
        if shape.starts_with(like) {
            let id = if like.ends_with('_') { 6 } else { 0 };
            return Some(like.len() + id);
        }
    }
    if text.starts_with("sess_") {
        return Some("sess_00000000".len());
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    if digits > 0 && before.ends_with("_ms\":") {
        return Some(digits);
    }
    let unit = [" ms", " s"].into_iter().find(|unit| {
        let after = text[digits..].strip_prefix(unit);
        after.is_some_and(|after| !after.starts_with(char::is_alphanumeric))
    })?;
    (digits > 0).then_some(digits + unit.len())
}

/// A directory in which the commands of a page find what they need.
fn staged(page: &str, commands: &[Shown]) -> World {
    let world = World::unasked();
    for (name, script) in STAND_INS {
        world.script(&format!("bin/{name}"), script);
    }
    fs::create_dir(world.path("stage")).unwrap();
    let (more, place) = stage_of(page);
    let names = |word: &str| {
        let texts = commands.iter().map(|shown| shown.command.as_str());
        [more, place]
            .into_iter()
            .chain(texts)
            .any(|text| text.contains(word))
    };
    if names("examples") {
        copy(&source(), &world.path("stage/examples"));
    }
    let run = if names("work") { RUN } else { "" };
    let script = format!("{STAGE}\n{run}\n{more}\n");
    start(&world, "stage", &script).exits(0);
    world
}

fn start(world: &World, dir: &str, script: &str) -> Delta {
    let file = world.write("script", script);
    let first = world.path("bin");
    let path = format!("{}:{}", first.display(), path());
    Delta::new(world.home())
        .under(&["sh", file.to_str().unwrap()])
        .cwd(world.path(dir))
        .env("PATH", path)
        .env("HOME", world.path("stage"))
        .env("task", "Do it.")
        .env("dir", "fresh")
}

/// Runs the commands of a page and compares.
fn hold(page: &str, commands: Vec<Shown>) {
    for program in ["jq", "make"] {
        let uses = |shown: &Shown| shown.command.split([' ', '\n']).any(|word| word == program);
        if commands.iter().any(uses) && !is_installed(program) {
            eprintln!("skipped: {page}, because {program} is not installed");
            return;
        }
    }
    if commands.is_empty() {
        return;
    }
    let world = staged(page, &commands);
    world.model_says([call(
        "c",
        "write_file",
        &serde_json::json!({"path": "a", "content": "Hi"}),
    )]);
    world.model_says([text("There.")]);
    let server = world.server.url();
    let server = server.trim_end_matches("/v1").trim_start_matches("http://");
    let commands: Vec<Shown> = commands
        .into_iter()
        .map(|shown| {
            let mut command = shown.command.replace("127.0.0.1:8080", server);
            // It asks a person.
            if command == "delta setup\n" {
                command.insert_str("delta setup".len(), " -h");
            }
            let other = OTHER_STATUS
                .iter()
                .find(|(of, line, _)| *of == page && *line == command.trim());
            if let Some((_, line, status)) = other {
                command = format!("{line} || [ $? = {status} ]\n");
            }
            let output = shown.output.map(|output| loosened(&output));
            let does = DOES
                .iter()
                .find(|(of, words, ..)| *of == page && shown.command.contains(words));
            let output = match does {
                Some((_, _, look, prints)) if output.is_none() => {
                    command.push_str(look);
                    command.push('\n');
                    Some((*prints).to_owned())
                }
                _ => output,
            };
            Shown {
                command,
                output,
                ..shown
            }
        })
        .collect();
    for shown in &commands {
        let is_shown = shown.output.is_some()
            || PREPARES
                .iter()
                .any(|start| shown.command.starts_with(start));
        assert!(
            is_shown,
            "what does {page}:{} do? {}",
            shown.line, shown.command
        );
    }
    for (_, words, ..) in DOES.iter().filter(|(of, ..)| *of == page) {
        let is_there = commands.iter().any(|it| it.command.contains(words));
        assert!(is_there, "{page} has no command {words}");
    }
    let (_, place) = stage_of(page);
    let mut dir = PathBuf::from("stage");
    for name in place.split('/').filter(|name| *name != ".") {
        dir = match name.strip_suffix('*') {
            Some(prefix) => Run::latest(&world.path("stage/work"))
                .dir
                .strip_prefix(world.home())
                .map(|path| {
                    assert!(
                        path.file_name()
                            .unwrap()
                            .to_str()
                            .unwrap()
                            .starts_with(prefix)
                    );
                    path.to_owned()
                })
                .unwrap(),
            None => dir.join(name),
        };
    }
    let dir = dir.to_str().unwrap().to_owned();
    run_shown(page, &commands, &world, |script| {
        let shell = start(&world, &dir, script);
        if page == "chat" {
            shell.stdin("What is here?\n")
        } else {
            shell
        }
    });
}

fn hold_pages(wanted: impl Fn(&str, u8) -> bool) {
    let pages = PAGES.iter().filter(|page| wanted(page.name, page.section));
    // What is wrong with one page is told, and then the others are read.
    let bad: Vec<&str> = pages
        .filter(|page| catch_unwind(|| hold(page.name, in_page(page.text()))).is_err())
        .map(|page| page.name)
        .collect();
    assert_eq!(bad, [""; 0]);
}

#[test]
fn every_command_line_on_the_pages_of_commands_runs_as_shown() {
    hold_pages(|_, section| section == 1);
}

#[test]
fn every_command_line_on_the_pages_of_files_runs_as_shown() {
    hold_pages(|_, section| section == 5);
}

#[test]
fn every_command_line_of_the_tutorial_runs_as_shown() {
    hold_pages(|_, section| section == 7);
}

/// Around the part of the README whose commands are given in a directory of the reader's own.
const TASKS: (&str, &str) = ("\n## Set up\n", "\n## Your agent\n");

#[test]
fn every_command_line_about_a_task_runs_as_shown() {
    if !is_installed("git") {
        eprintln!("skipped: git is not installed");
        return;
    }
    let world = World::new();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (_, tasks) = readme.split_once(TASKS.0).unwrap();
    let (tasks, _) = tasks.split_once(TASKS.1).unwrap();
    let mut shown = in_markdown(tasks);
    let setup = shown.iter_mut().find(|it| it.command == "delta setup\n");
    // Without the person.
    setup.unwrap().command =
        "echo ... | delta setup --base-url \"$DELTA_BASE_URL\" -M gpt-4o --key-stdin\n".to_owned();
    let runs = |shown: &&Shown| {
        ["delta run", "delta continue"]
            .iter()
            .any(|it| shown.command.contains(it))
    };
    let answers = shown.iter().filter(runs).map(|_| text("Done."));
    world.model_says([text("OK")]);
    world.model_says(answers);
    world.write("proj/build.log", "it failed\n");
    let stage = "git init -q && git add build.log && echo more >> build.log\n";
    run_shown("README.md", &shown, &world, |script| {
        // Nobody types into the conversation.
        let file = world.write("script", format!("exec </dev/null\n{stage}{script}"));
        Delta::new(world.home())
            .under(&["sh", file.to_str().unwrap()])
            .cwd(world.path("proj"))
            .env("PATH", path())
            .env("DELTA_BASE_URL", world.server.url())
    });
    let requests = world.server.requests();
    let asked: Vec<String> = requests[1..]
        .iter()
        .map(|request| request.messages().last().unwrap().to_string())
        .collect();
    assert_eq!(asked.len(), 5);
    assert!(asked[1].contains("# File: build.log"), "{asked:?}");
    assert!(asked[2].contains("+more"), "{asked:?}");
    assert_eq!(requests[1].json()["model"], "gpt-4o");
    assert_eq!(requests[1].header("authorization"), Some("Bearer ..."));
}

#[test]
fn every_command_line_of_the_readme_runs_as_shown() {
    if !is_installed("make") {
        eprintln!("skipped: make is not installed");
        return;
    }
    let world = World::unasked();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let (before, rest) = readme.split_once(TASKS.0).unwrap();
    let (tasks, after) = rest.split_once(TASKS.1).unwrap();
    let lines = "\n".repeat(tasks.lines().count() + 4);
    let readme = format!("{before}{lines}{after}");
    let bin = Path::new(env!("CARGO_BIN_EXE_delta")).parent().unwrap();
    let mut commands = in_markdown(&readme);
    for shown in &mut commands {
        shown.output = shown.output.as_deref().map(loosened);
    }
    // make does everything but to build.
    let make = format!("-s -- CARGO=true BIN={0} DEMO_BIN={0}", bin.display());
    let start = |script: &str| {
        let file = world.write("script", script);
        Delta::new(world.home())
            .under(&["sh", file.to_str().unwrap()])
            .cwd(root())
            .env("PATH", path())
            .env("MAKEFLAGS", make.as_str())
    };
    run_shown("README.md", &commands, &world, start);
    let page = "docs/installing.md";
    let commands = in_markdown(&fs::read_to_string(root().join(page)).unwrap());
    assert!(!commands.is_empty());
    run_shown(page, &commands, &world, start);
}

#[test]
fn the_commands_of_a_page_are_found_with_their_lines_and_outputs() {
    let page = "TEXT\n     $ one\n     out\n       put\n\n     no\n           $ two |\n               three\n           $ cat <<'E'\n           x\n           E\n           $ for a in b; do\n               c\n             done\n     text $ no\n";
    let found: Vec<(usize, String, Option<String>)> = in_page(page)
        .into_iter()
        .map(|shown| (shown.line, shown.command, shown.output))
        .collect();
    let of = |line, command: &str, output: Option<&str>| {
        (line, command.to_owned(), output.map(str::to_owned))
    };
    assert_eq!(
        found,
        [
            of(2, "one\n", Some("out\n  put\n")),
            of(7, "two |\n    three\n", None),
            of(9, "cat <<'E'\nx\nE\n", None),
            of(12, "for a in b; do\n    c\n  done\n", None),
        ]
    );
}

#[test]
fn what_is_another_each_time_is_not_compared() {
    assert_eq!(
        loosened(
            "run 20261121_135924_4063ff in x (20 ms)\n  0:00.1  end 1.5 s a1 ms 20 msx 2026-11-21 13:59:24 UTC\n"
        ),
        "run… in x (…)\n…  end… a1 ms 20 msx… UTC\n"
    );
}
