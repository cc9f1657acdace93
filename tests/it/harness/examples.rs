//! The examples in worlds of their own, with their scripts as models.

use super::delta::{Delta, system_path};
use super::recording::copy;
use super::server::{Reply, raw};
use super::shown::{Shown, in_markdown, path, run_shown};
use super::system::files_below;
use super::world::World;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Options with which a run asks the server, and gives up at once.
pub const ASKS_SERVER: &str = "--set llm.command= --set llm.max_retries=0";

/// Where the examples are.
pub fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// A world with a copy of all examples: what is in the source tree stays as it is. The server, too, plays
/// the model from the script of the example that asks. `mail` and Slurm's commands are played by scripts.
pub fn examples() -> World {
    let world = World::new();
    copy(&source(), &world.path("examples"));
    world.server.may_stay_unasked();
    world.server.answers(|request| answer_to(&request.body));
    world.script(
        "bin/mail",
        "#!/bin/sh\n{ printf '%s\\n' \"$@\"; cat; } >> \"$HOME/mail\"\n",
    );
    world.script(
        "bin/scontrol",
        "#!/bin/sh\necho \"$@\" >> \"$HOME/scontrol\"\n",
    );
    world.script("bin/sbatch", SBATCH);
    // So that a real cluster is not asked.
    world.script("bin/squeue", "#!/bin/sh\nexit 1\n");
    world
}

/// Runs the tasks of an array one after the other, from a copy of the script, as Slurm does.
const SBATCH: &str = r#"#!/bin/sh
set -eu
cp "$1" "$HOME/spooled"
range=$(sed -n 's/^#SBATCH --array=\([0-9]*\)-\([0-9]*\).*/\1 \2/p' "$1")
export SLURM_ARRAY_JOB_ID=100
# shellcheck disable=SC2086
for n in $(seq $range); do SLURM_ARRAY_TASK_ID=$n sh "$HOME/spooled"; done
"#;

/// A command line of the shell in such a world.
pub fn shell(world: &World, line: &str) -> Delta {
    shell_of("sh", world, line)
}

fn shell_of(program: &str, world: &World, line: &str) -> Delta {
    let programs = format!("{}:{}", world.path("bin").display(), path());
    let shell = world.delta([]).under(&[program, "-c", line]);
    shell
        .env("PATH", programs)
        .env("DELTA_BASE_URL", world.server.url())
}

/// What the scripted model of the example that asks says to a request.
pub fn answer_to(request: &[u8]) -> Reply {
    let body = String::from_utf8_lossy(request);
    let is_in = |prompt: &str| {
        let first = prompt.lines().next().unwrap_or_default();
        body.contains(json!(first).to_string().trim_matches('"'))
    };
    let asks = |agent: &&PathBuf| is_in(&text_of(&agent.join("system_prompt.md")));
    let agents = agents();
    let agent = agents.iter().find(asks);
    let of_flow = || flow_agents().into_iter().find(|(prompt, _)| is_in(prompt));
    let played = match agent {
        Some(agent) => Some(play(&agent.join("script.txt"), request)),
        None => of_flow().map(|(_, command)| plays(&command, request)),
    };
    match played {
        Some(Ok(answer)) => raw(answer),
        Some(Err(why)) => Reply::error(400, &why),
        None => Reply::error(400, "no example has this prompt"),
    }
}

/// What a script says to a request; if it is not there, what the program beside it says.
pub fn play(script: &Path, request: &[u8]) -> Result<Vec<u8>, String> {
    let scripted = [source().join("scripted-model"), script.to_owned()];
    let program = [script.with_file_name("model.sh")];
    let command = if script.exists() {
        &scripted[..]
    } else {
        &program
    };
    plays(command, request)
}

/// What a program says to a request.
fn plays(words: &[PathBuf], request: &[u8]) -> Result<Vec<u8>, String> {
    let mut command = Command::new(&words[0]);
    let pipes = command.args(&words[1..]).stdin(Stdio::piped());
    let pipes = pipes.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = pipes.spawn();
    let mut child = child.map_err(|error| format!("{}: {error}", words[0].display()))?;
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(request).expect("it reads all of it");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Runs every command that the README of an example shows, unless a program that it needs is not there.
#[track_caller]
pub fn as_shown(name: &str, needs: &[&str]) -> Option<World> {
    if !installed(needs) {
        return None;
    }
    let world = examples();
    let shown = commands_of(name);
    assert!(!shown.is_empty(), "{name} shows no command");
    let page = format!("examples/{name}/README.md");
    run_shown(&page, &shown, &world, |script| shell(&world, script));
    Some(world)
}

/// Runs all commands of an example that have run in this world once more, in zsh if it is there: none fails, and
/// no file lies elsewhere than before. The engine's own files do not count, nor do repositories.
#[track_caller]
pub fn given_again(world: &World, name: &str) {
    let mut shown = commands_of(name);
    for command in &mut shown {
        // What is over already may end in another way.
        command.output = None;
    }
    let page = format!("examples/{name}/README.md");
    let before = files_made(world);
    let other = if installed(&["zsh"]) { "zsh" } else { "sh" };
    run_shown(&page, &shown, world, |script| {
        shell_of(other, world, script)
    });
    let after = files_made(world);
    assert_eq!(after, before, "{page}: the commands were given twice");
}

fn commands_of(name: &str) -> Vec<Shown> {
    in_markdown(&text_of(&source().join(name).join("README.md")))
}

/// The files that the commands of an example have made.
fn files_made(world: &World) -> BTreeSet<String> {
    let tmp = world.path("tmp");
    let files = files_below(&tmp).into_iter();
    let names = files.map(|file| {
        let name = file.strip_prefix(&tmp).expect("a file below");
        name.to_str().expect("UTF-8").to_owned()
    });
    // What a flow's tasks make is kept for each run.
    let own = [".delta/", ".git/", ".sessions/", "/tasks/"];
    names
        .filter(|name| own.iter().all(|own| !name.contains(own)))
        .collect()
}

/// Whether these programs are there; says so if one is not.
pub fn installed(needs: &[&str]) -> bool {
    let path = system_path();
    let is_there = |name: &&&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let missing = needs.iter().find(|name| !is_there(name));
    if let Some(name) = missing {
        eprintln!("skipped: {name} is not installed");
    }
    missing.is_none()
}

fn text_of(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The agents that flows make from a prompt: that, and the words of the program that plays their model.
fn flow_agents() -> Vec<(String, Vec<PathBuf>)> {
    let mut found = Vec::new();
    let files = files_below(&source()).into_iter();
    for file in files.filter(|file| file.ends_with("agents.yaml")) {
        let flow = file.with_file_name("");
        let yaml = delta_engine::text::yaml::parse(&text_of(&file)).expect("YAML");
        for agent in yaml["agents"].as_array().expect("a list") {
            let (Some(prompt), Some(words)) = (
                agent["prompt"].as_str(),
                agent["config"]["command"].as_array(),
            ) else {
                continue;
            };
            let prompt = match prompt.strip_prefix("./") {
                Some(path) => text_of(&flow.join(path)),
                None => prompt.to_owned(),
            };
            let word = |word: &serde_json::Value| {
                let word = word.as_str().expect("a word");
                let below = word.strip_prefix("${FLOW_HOME}/");
                below.map_or(PathBuf::from(word), |path| flow.join(path))
            };
            found.push((prompt, words.iter().map(word).collect()));
        }
    }
    found
}

/// The directories that hold an agent, below the examples.
pub fn agents() -> Vec<PathBuf> {
    let files = files_below(&source()).into_iter();
    let agents = files.filter(|file| file.ends_with("agent.yaml"));
    agents.map(|file| file.with_file_name("")).collect()
}
