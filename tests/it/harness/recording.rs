//! Runs that were recorded once and are kept: `tests/it/recordings/NAME/` with `agent/`, `workspace/` (the
//! files as they were before the run) and `run/` (the run's directory). No path of a machine is in them.
//!
//! `survey` is made by a test, from a script. `bookkeeping` was made by hand: a model of 1.5 billion
//! parameters that ran on the same machine; only the paths, the host and the model's name were replaced.

use super::system::files_below;
use super::world::World;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A recording that has been laid out in a world: `agent`, `start`, and the run in the workspace `old`.
pub struct Recorded {
    pub world: World,
    pub id: String,
}

/// Where recordings are kept.
pub fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/recordings")
}

impl Recorded {
    #[track_caller]
    pub fn load(name: &str) -> Self {
        let world = World::new();
        let kept = recordings().join(name);
        fs::remove_dir_all(world.path("agent")).expect("the agent goes");
        copy(&kept.join("agent"), &world.path("agent"));
        copy(&kept.join("workspace"), &world.path("start"));
        let journal = fs::read_to_string(kept.join("run/journal.jsonl")).expect("a journal");
        let first: Value =
            serde_json::from_str(journal.lines().next().expect("a line")).expect("JSON");
        let id = first["run_id"].as_str().expect("a run_id").to_owned();
        copy(&kept.join("run"), &world.path("old/.delta").join(&id));
        world.write("old/.delta/LATEST", format!("{id}\n"));
        world.write("old/.delta/VERSION", "1.2\n");
        world.adopt("old");
        Self { world, id }
    }

    /// The run's directory.
    pub fn dir(&self) -> PathBuf {
        self.world.path("old/.delta").join(&self.id)
    }
}

/// Copies a directory. Files that may be executed stay so.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    // A process of its own, as for `write_program`.
    let status = Command::new("cp")
        .args(["-R", "--preserve=mode"])
        .arg(from.join("."))
        .arg(to)
        .status();
    assert!(status.expect("cp").success());
}

/// The name, content and mode of everything below a directory.
pub fn snapshot(dir: &Path) -> Vec<(PathBuf, Vec<u8>, u32)> {
    use std::os::unix::fs::PermissionsExt;
    let mut files = files_below(dir);
    files.sort();
    let seen = |path: PathBuf| {
        let mode = fs::metadata(&path).expect("metadata").permissions().mode();
        (path.clone(), fs::read(&path).expect("a file"), mode)
    };
    files.into_iter().map(seen).collect()
}
