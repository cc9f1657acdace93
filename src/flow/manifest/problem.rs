//! What can be wrong in a flow's files: a stable code, the ids concerned, and a place.
//!
//! Unaware of what the files mean.

use crate::config::section::Diagnostics;
pub(crate) use crate::text::digest::sha256;
use crate::text::names::named_enum;
use crate::text::yaml::{self, REREAD_BYTES, Step};
use serde_json::{Map, Value, json};
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

named_enum! {
    /// Why a flow cannot be loaded. Programs rely on the names.
    pub enum Code {
        ManifestMissing = "manifest_missing",
        ManifestInvalid = "manifest_invalid",
        DuplicateNodeId = "duplicate_node_id",
        BadRole = "bad_role",
        BadKind = "bad_kind",
        ContextMissing = "context_missing",
        UnknownContext = "unknown_context",
        UnknownAgent = "unknown_agent",
        UnknownTool = "unknown_tool",
        UnknownSchema = "unknown_schema",
        UnknownModel = "unknown_model",
        CredentialMissing = "credential_missing",
        InvalidSchema = "invalid_schema",
        AgentIdMissing = "agent_id_missing",
        UnknownNode = "unknown_node",
        DuplicateEdge = "duplicate_edge",
        DuplicateLabel = "duplicate_label",
        Cycle = "cycle",
        NoStart = "no_start",
        NoDefaultStart = "no_default_start",
        MultipleDefaultStart = "multiple_default_start",
        DefaultStartOnNonStart = "default_start_on_non_start",
        NoExit = "no_exit",
        UnreachableNode = "unreachable_node",
        StartCannotReachExit = "start_cannot_reach_exit",
        StartArity = "start_arity",
        LinearArity = "linear_arity",
        DecisionArity = "decision_arity",
        BranchArity = "branch_arity",
        SplitArity = "split_arity",
        MergeArity = "merge_arity",
        ExitArity = "exit_arity",
        StartNotDeterministic = "start_not_deterministic",
        ExitNotDeterministic = "exit_not_deterministic",
        ExitHasTools = "exit_has_tools",
        ExitHasCommand = "exit_has_command",
        AlwaysFailOnNonExit = "always_fail_on_non_exit",
        DuplicateSuite = "duplicate_suite",
        DuplicateCase = "duplicate_case",
        DuplicateSetting = "duplicate_setting",
        BadTarget = "bad_target",
        BadAssertion = "bad_assertion",
        GraderInWorkspace = "grader_in_workspace",
    }
}

/// Something wrong, or doubtful, in a flow's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlowProblem {
    /// None: the flow can be used all the same, and something was probably not meant.
    pub code: Option<Code>,
    /// The ids concerned: of nodes, of an agent, of a schema.
    pub ids: Vec<String>,
    /// The file, below the flow's directory.
    pub file: String,
    /// The file, relative to the current directory where that is shorter.
    pub shown: String,
    /// Line, from 1, if it is known.
    pub line: Option<usize>,
    /// Column, from 1, if it is known.
    pub column: Option<usize>,
    /// With the way out; lower case, no full stop.
    pub message: String,
}

impl FlowProblem {
    /// The object that `--format json` prints.
    pub(crate) fn object(&self) -> Value {
        json!({
            "code": self.code.map(Code::name),
            "ids": self.ids,
            "file": self.file,
            "message": format!("{}{}", self.place(), self.message),
        })
    }

    /// The file and what is known of the place in it, with a colon and a space behind.
    fn place(&self) -> String {
        let mut place = self.shown.clone();
        for number in [self.line, self.column].into_iter().flatten() {
            place.push_str(&format!(":{number}"));
        }
        place + ": "
    }
}

impl Display for FlowProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.code.map_or("warning", Code::name);
        match self.code {
            Some(_) => write!(f, "{}{kind}: {}", self.place(), self.message),
            None => write!(f, "{kind}: {}{}", self.place(), self.message),
        }
    }
}

/// Puts problems in the order in which a person works through them: by file and line.
pub(crate) fn sort_problems(problems: &mut [FlowProblem]) {
    let line = |problem: &FlowProblem| problem.line.unwrap_or(usize::MAX);
    problems.sort_by(|a, b| (&a.file, line(a)).cmp(&(&b.file, line(b))));
}

/// A manifest that has been read and parsed, and what was found wrong in it.
#[derive(Debug)]
pub(crate) struct Manifest {
    /// Below the flow's directory.
    pub file: String,
    /// The SHA-256 of its bytes; none if there is no such file.
    pub sha256: Option<String>,
    pub root: Map<String, Value>,
    /// In the order in which they were found.
    pub problems: Vec<FlowProblem>,
    shown: String,
    text: String,
    read_again: usize,
}

impl Manifest {
    /// Reads a YAML file below `home`. A missing file reads as empty.
    pub(crate) fn read(home: &Path, shown: String, file: &str) -> Self {
        let mut manifest = Self {
            file: file.to_owned(),
            sha256: None,
            root: Map::new(),
            problems: Vec::new(),
            shown,
            text: String::new(),
            read_again: 0,
        };
        let bytes = match crate::unix::files::read_regular_limited(&home.join(file), yaml::LARGEST)
        {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return manifest,
            Err(e) => {
                manifest.add_whole(format!("cannot read it: {}", crate::error::reason(&e)));
                return manifest;
            }
        };
        manifest.sha256 = Some(sha256(&bytes));
        let Ok(text) = String::from_utf8(bytes) else {
            manifest.add_whole("cannot read it: it is not UTF-8");
            return manifest;
        };
        manifest.text = text;
        match yaml::parse(&manifest.text) {
            Ok(Value::Null) => {}
            Ok(Value::Object(root)) => manifest.root = root,
            Ok(other) => {
                let found = crate::config::section::describe_value(&other);
                manifest.add_whole(format!(
                    "expected keys and values at the top, found {found}"
                ));
            }
            Err(error) => {
                let problem = manifest.whole(error.message);
                manifest.problems.push(FlowProblem {
                    line: error.place.map(|place| place.0),
                    column: error.place.and_then(|place| place.1),
                    ..problem
                });
            }
        }
        manifest
    }

    /// There is such a file.
    pub(crate) fn exists(&self) -> bool {
        self.sha256.is_some()
    }

    /// `manifest_invalid`, about the file as a whole.
    fn whole(&self, message: impl Into<String>) -> FlowProblem {
        FlowProblem {
            code: Some(Code::ManifestInvalid),
            ids: Vec::new(),
            file: self.file.clone(),
            shown: self.shown.clone(),
            line: None,
            column: None,
            message: message.into(),
        }
    }

    fn add_whole(&mut self, message: impl Into<String>) {
        let problem = self.whole(message);
        self.problems.push(problem);
    }

    /// Adds a problem at a place of this document.
    pub(crate) fn add(
        &mut self,
        code: Code,
        ids: Vec<String>,
        at: &[Step],
        message: impl Into<String>,
    ) {
        let problem = FlowProblem {
            code: Some(code),
            ids,
            line: self.line(at),
            ..self.whole(message)
        };
        self.problems.push(problem);
    }

    /// Adds the complaints of a reader. Those that are errors are `manifest_invalid`.
    pub(crate) fn report(&mut self, ids: &[String], complaints: Diagnostics) {
        self.report_as(Code::ManifestInvalid, ids, complaints);
    }

    /// The same with another code for errors.
    pub(crate) fn report_as(&mut self, code: Code, ids: &[String], complaints: Diagnostics) {
        for complaint in complaints.into_list() {
            let problem = FlowProblem {
                code: (!complaint.warning).then_some(code),
                ids: ids.to_vec(),
                line: self.line(&complaint.at),
                ..self.whole(complaint.message)
            };
            self.problems.push(problem);
        }
    }

    fn line(&mut self, at: &[Step]) -> Option<usize> {
        self.read_again += self.text.len();
        (self.read_again <= REREAD_BYTES)
            .then(|| yaml::locate(&self.text, at))
            .flatten()
    }
}
