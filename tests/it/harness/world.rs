//! An agent, a workspace, a model, a home: everything that one test has to itself.

use super::delta::Delta;
use super::run::Run;
use super::server::{Reply, Server};
use super::system::{self, Fifo, TempDir, processes_of, write_program};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What a test's agent is made of. The parts are YAML and go into agent.yaml as they are.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Keys at the top level.
    pub top: String,
    /// Keys of `llm`, besides model and `base_url`.
    pub llm: String,
    /// The items of `tools`.
    pub tools: String,
}

/// The agent is in `agent`, the workspace `ws`, both inside a directory that is also HOME and the
/// working directory. A scripted server is the model.
pub struct World {
    // First, so that its complaints are there when the directory decides whether to stay.
    pub server: Server,
    dir: TempDir,
    setup: Setup,
}

impl World {
    /// With an agent that has no tools.
    pub fn new() -> Self {
        Self::below(&system::base())
    }

    /// With a model that nobody has to ask.
    pub fn unasked() -> Self {
        let world = Self::new();
        world.server.may_stay_unasked();
        world
    }

    /// On a disk: what is in memory lies in /dev, of which `--ro /` grants nothing.
    pub fn on_disk() -> Self {
        Self::below(&std::env::temp_dir())
    }

    fn below(base: &Path) -> Self {
        let world = Self {
            server: Server::start(),
            dir: TempDir::below(base),
            setup: Setup::default(),
        };
        world.write("agent/system_prompt.md", "You are a test.\n");
        world.write("agent/context.yaml", CONTEXT);
        world.write_agent();
        world
    }

    /// With these tools, the items of a YAML list, without indentation.
    pub fn with_tools(tools: &str) -> Self {
        Self::new().tools(tools)
    }

    pub fn tools(mut self, items: &str) -> Self {
        items.clone_into(&mut self.setup.tools);
        self.write_agent();
        self
    }

    /// Adds keys to the top level of agent.yaml.
    pub fn top(mut self, yaml: &str) -> Self {
        self.setup.top += &format!("{yaml}\n");
        self.write_agent();
        self
    }

    /// Adds keys to `llm`.
    pub fn llm(mut self, yaml: &str) -> Self {
        self.setup.llm += &format!("{yaml}\n");
        self.write_agent();
        self
    }

    /// A program answers instead of the server: the n-th start gets the n-th reply's body.
    pub fn program(self, replies: impl IntoIterator<Item = Reply>) -> Self {
        let dir = self.path("agent/model");
        fs::create_dir(&dir).expect("a directory for the model");
        for (at, reply) in replies.into_iter().enumerate() {
            fs::write(dir.join(format!("{}.json", at + 1)), reply.body()).expect("a reply");
        }
        self.script("agent/model.sh", PROGRAM);
        let mut world = self;
        world.setup.llm += "command: ['${AGENT_HOME}/model.sh']\n";
        world.write_agent();
        world
    }

    /// Adds to the model's script.
    pub fn model_says(&self, replies: impl IntoIterator<Item = Reply>) -> &Server {
        self.server.says(replies)
    }

    fn write_agent(&self) {
        let Setup { top, llm, tools } = &self.setup;
        let mut yaml = format!("name: probe\n{top}");
        yaml += "llm:\n  model: scripted\n";
        if !llm.contains("command:") && !llm.contains("base_url:") {
            yaml += &format!("  base_url: {}\n", self.server.url());
        }
        yaml += &indent(llm);
        if !tools.is_empty() {
            yaml += "tools:\n";
            yaml += &indent(tools);
        }
        self.write("agent/agent.yaml", &yaml);
    }

    pub fn home(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home().join(name)
    }

    pub fn workspace(&self) -> PathBuf {
        self.path("ws")
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, content).expect("a file");
        path
    }

    /// Writes a program.
    pub fn script(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        write_program(content.as_bytes(), &path);
        path
    }

    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// The lines of a file that tools append to; none if no tool did.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub fn fifo(&self, name: &str) -> Fifo {
        Fifo::new(self.path(name))
    }

    /// `delta` with these arguments.
    pub fn delta<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Delta {
        Delta::new(self.home()).args(args)
    }

    /// `delta run` of the agent in the workspace.
    pub fn run(&self, message: &str) -> Delta {
        self.rerun().args(["-m", message])
    }

    /// `delta run` without a message.
    pub fn rerun(&self) -> Delta {
        self.delta(["run", "-a", "agent", "-w", "ws"])
    }

    /// `delta continue` of the newest run in the workspace.
    pub fn go_on(&self) -> Delta {
        self.delta(["continue", "-w", "ws"])
    }

    /// Takes the records of a workspace for one's own, as those that a test has put there.
    #[track_caller]
    pub fn adopt(&self, workspace: &str) {
        let control = self.path(workspace).join(".delta");
        let below = fs::read_dir(&control).expect("a control plane");
        let below = below.map(|entry| entry.expect("an entry").path());
        let runs = below.filter(|dir| dir.join("journal.jsonl").exists());
        for dir in runs.chain([control.clone()]) {
            let metadata = dir.metadata().expect("a directory");
            let born = metadata.created().expect("a birth time");
            let born = born.duration_since(UNIX_EPOCH).expect("a time since 1970");
            let (inode, second) = (metadata.ino(), born.as_secs());
            let stamp = format!("inode {inode}\nborn {second}.{:09}\n", born.subsec_nanos());
            fs::write(dir.join("origin"), stamp).expect("the origin");
        }
    }

    /// The newest run in the workspace.
    #[track_caller]
    pub fn latest(&self) -> Run {
        Run::latest(&self.workspace())
    }

    /// A file in the directory of a task of the only run that has such.
    #[track_caller]
    pub fn in_task(&self, name: &str) -> String {
        let runs: Vec<_> = fs::read_dir(self.path("ws/tasks")).unwrap().collect();
        assert_eq!(runs.len(), 1, "{runs:?}");
        let run = runs[0].as_ref().unwrap().file_name();
        format!("ws/tasks/{}/{name}", run.display())
    }

    /// All runs in the workspace.
    pub fn runs(&self) -> Vec<Run> {
        let Ok(entries) = fs::read_dir(self.path("ws/.delta")) else {
            return Vec::new();
        };
        let dirs = entries.map(|entry| entry.expect("entry").path());
        let mut runs: Vec<Run> = dirs
            .filter(|dir| dir.join("journal.jsonl").exists())
            .map(|dir| Run { dir })
            .collect();
        runs.sort_by_key(Run::id);
        runs
    }

    /// What this test has started and still lives, however it left its group.
    pub fn processes(&self) -> Vec<u32> {
        processes_of(self.home())
    }

    /// Runs a conversation of one tool call and the answer "done"; returns what the model was told.
    #[track_caller]
    pub fn observe(&self, tool: &str, arguments: &Value) -> String {
        let (first, last) = (super::call("call_1", tool, arguments), super::text("done"));
        self.server.says([first, last]);
        self.run("go").exits(0).prints("done\n");
        self.server.last().observation("call_1")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for pid in self.processes() {
            if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                // It may just have ended.
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }
}

fn indent(yaml: &str) -> String {
    yaml.lines().map(|line| format!("  {line}\n")).collect()
}

/// A path as one word of a shell command.
pub fn shell_word(path: &Path) -> String {
    let text = path.to_str().expect("a path in UTF-8");
    shlex::try_quote(text)
        .expect("no NUL in a path")
        .into_owned()
}

const CONTEXT: &str = "\
sources:
  - {type: file, id: system_prompt, path: '${AGENT_HOME}/system_prompt.md'}
  - {type: file, id: workspace_guide, path: '${CWD}/DELTA.md', on_missing: skip}
  - {type: journal, id: conversation}
";

/// Counts its starts, keeps what it was asked, and does what is written in `N.sh`, if there is one.
const PROGRAM: &str = r#"#!/bin/sh
cd "$(dirname "$0")/model" || exit 9
n=$(($(cat count 2>/dev/null || echo 0) + 1))
echo "$n" > count
cat > "request.$n"
if [ -f "$n.sh" ]; then . "./$n.sh"; fi
cat "$n.json"
"#;
