//! Reading what a run has left on disk.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub dir: PathBuf,
}

impl Run {
    /// The one that LATEST names.
    #[track_caller]
    pub fn latest(workspace: &Path) -> Self {
        let control = workspace.join(".delta");
        let id = fs::read_to_string(control.join("LATEST")).expect("LATEST");
        let id = id.strip_suffix('\n').expect("LATEST is one line");
        Self {
            dir: control.join(id),
        }
    }

    pub fn id(&self) -> String {
        let name = self.dir.file_name().expect("a name");
        name.to_str().expect("a name in ASCII").to_owned()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    #[track_caller]
    pub fn read(&self, name: &str) -> Vec<u8> {
        let path = self.path(name);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).expect("text")
    }

    /// The whole journal. Every line is an object and ends.
    #[track_caller]
    pub fn journal(&self) -> Vec<Value> {
        let text = self.text("journal.jsonl");
        assert!(
            text.is_empty() || text.ends_with('\n'),
            "the last line is torn: {text}"
        );
        Self::parse(&text)
    }

    /// The events of one type in a journal that is being written: half a line at its end does not count.
    #[track_caller]
    pub fn events_so_far(&self, kind: &str) -> Vec<Value> {
        let text = self.text("journal.jsonl");
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let events = Self::parse(whole).into_iter();
        events.filter(|event| event["type"] == kind).collect()
    }

    #[track_caller]
    fn parse(text: &str) -> Vec<Value> {
        let parse = |(at, line)| match serde_json::from_str(line) {
            Ok(event @ Value::Object(_)) => event,
            _ => panic!("line {} of the journal: {line:?}", at + 1),
        };
        text.lines().enumerate().map(parse).collect()
    }

    /// The events of one type.
    #[track_caller]
    pub fn events(&self, kind: &str) -> Vec<Value> {
        self.journal()
            .into_iter()
            .filter(|event| event["type"] == kind)
            .collect()
    }

    /// The types of all events.
    #[track_caller]
    pub fn types(&self) -> Vec<String> {
        let kind = |event: Value| event["type"].as_str().expect("a type").to_owned();
        self.journal().into_iter().map(kind).collect()
    }

    /// The result of the n-th action, from 1.
    #[track_caller]
    pub fn result(&self, n: usize) -> Value {
        self.events("ACTION_RESULT").swap_remove(n - 1)
    }

    /// The directory of the n-th action's command, from 1.
    #[track_caller]
    pub fn execution(&self, n: usize) -> PathBuf {
        let result = self.result(n);
        let reference = result["execution_ref"].as_str().expect("an execution_ref");
        let name = Path::new(reference).file_name().expect("a name");
        self.path("io/tool_executions").join(name)
    }

    #[track_caller]
    pub fn metadata(&self) -> Value {
        serde_json::from_slice(&self.read("metadata.json")).expect("metadata is JSON")
    }

    /// Status and stop reason, the same in metadata and in the journal's last event.
    #[track_caller]
    pub fn ending(&self) -> (String, Option<String>) {
        let metadata = self.metadata();
        let journal = self.journal();
        let end = journal.last().expect("an event");
        assert_eq!(end["type"], "ENGINE_END", "{end}");
        for key in ["status", "stop_reason", "exit_code"] {
            assert_eq!(metadata[key], end[key], "{key} of {metadata} and {end}");
        }
        let word = |key: &str| end[key].as_str().map(str::to_owned);
        (word("status").expect("a status"), word("stop_reason"))
    }

    /// The directories of the requests to the model, in order.
    pub fn invocations(&self) -> Vec<PathBuf> {
        self.in_order("io/invocations")
    }

    /// The directories of the commands, in order.
    pub fn executions(&self) -> Vec<PathBuf> {
        self.in_order("io/tool_executions")
    }

    /// The directories of the hooks, in order.
    pub fn hooks(&self) -> Vec<PathBuf> {
        self.in_order("io/hooks")
    }

    fn in_order(&self, name: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path(name)) else {
            return Vec::new();
        };
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("entry").path()).collect();
        // Of the same millisecond, 20260102T030405.678Z_12 comes after …_9, and …_1_2 after …_1.
        found.sort_by_key(|path| {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let (time, rest) = name.split_once('_').expect("<ts>_<name>");
            let numbers: Vec<u64> = rest.split('_').flat_map(str::parse).collect();
            (time.to_owned(), numbers, rest.to_owned())
        });
        found
    }
}
