//! The examples in worlds of their own, with their scripts as models.

use super::delta::Delta;
use super::recording::copy;
use super::server::{Reply, raw};
use super::shown::{in_markdown, path, run_shown};
use super::system::files_below;
use super::world::World;
use serde_json::json;
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
    let programs = format!("{}:{}", world.path("bin").display(), path());
    let shell = world.delta([]).under(&["sh", "-c", line]);
    shell
        .env("PATH", programs)
        .env("DELTA_BASE_URL", world.server.url())
}

/// What the scripted model of the example that asks says to a request.
pub fn answer_to(request: &[u8]) -> Reply {
    let body = String::from_utf8_lossy(request);
    let asks = |agent: &&PathBuf| {
        let prompt = text_of(&agent.join("system_prompt.md"));
        let first = prompt.lines().next().unwrap_or_default();
        body.contains(json!(first).to_string().trim_matches('"'))
    };
    let agents = agents();
    let agent = agents.iter().find(asks);
    match agent.map(|agent| play(&agent.join("script.txt"), request)) {
        Some(Ok(answer)) => raw(answer),
        Some(Err(why)) => Reply::error(400, &why),
        None => Reply::error(400, "no example has this prompt"),
    }
}

/// What a script says to a request; if it is not there, what the program beside it says.
pub fn play(script: &Path, request: &[u8]) -> Result<Vec<u8>, String> {
    let mut command = Command::new(source().join("scripted-model"));
    if script.exists() {
        command.arg(script);
    } else {
        command = Command::new(script.with_file_name("model.sh"));
    }
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let child = pipes.stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("{}: {error}", script.display()))?;
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
    let page = source().join(name).join("README.md");
    let shown = in_markdown(&text_of(&page));
    assert!(!shown.is_empty(), "{name} shows no command");
    let name = format!("examples/{name}/README.md");
    run_shown(&name, &shown, &world, |script| shell(&world, script));
    Some(world)
}

/// Whether these programs are there; says so if one is not.
pub fn installed(needs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
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

/// The directories that hold an agent, below the examples.
pub fn agents() -> Vec<PathBuf> {
    let files = files_below(&source()).into_iter();
    let agents = files.filter(|file| file.ends_with("agent.yaml"));
    agents.map(|file| file.with_file_name("")).collect()
}
