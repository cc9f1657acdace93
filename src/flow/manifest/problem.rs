//! Faults of a flow's files: a stable code, the ids concerned, and a place.
//!
//! Unaware of what the files mean.

use crate::config::section::{Section, describe_value};
use crate::error::{At, reason};
pub(crate) use crate::text::digest::sha256;
use crate::text::names::named_enum;
use crate::text::order;
use crate::text::yaml::{self, REREAD_BYTES, Step, SyntaxError};
use crate::unix::files;
use serde_json::{Map, Value, json};
use std::fmt::{self, Display};
use std::path::Path;

named_enum! {
    /// The reason why a flow cannot be loaded. Programs rely on the names.
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
#[derive(Debug, Default)]
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
    /// The fault and the way out; lower case, no full stop.
    pub message: String,
}

impl FlowProblem {
    /// A problem without a place.
    pub(crate) fn new(code: Option<Code>, ids: &[&str], message: impl Into<String>) -> Self {
        Self {
            code,
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// The object that `--format json` prints.
    pub(crate) fn object(&self) -> Value {
        json!({
            "code": self.code.map(Code::name),
            "ids": self.ids,
            "file": self.file,
            "message": format!("{}{}", self.place(), self.message),
        })
    }

    /// The file and what is known of the place in it, with a colon and a space after it.
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

/// A file of a directory, as messages name it.
pub(crate) fn shown_in(dir: &Path, file: &str) -> String {
    if dir == Path::new(".") {
        file.to_owned()
    } else {
        dir.join(file).display().to_string()
    }
}

/// Puts problems in the order in which a person works through them: by file and line.
pub(crate) fn sort_problems(problems: &mut Vec<FlowProblem>) {
    let line = |problem: &FlowProblem| problem.line.unwrap_or(usize::MAX);
    order::sort_by(problems, |a, b| (&a.file, line(a)).cmp(&(&b.file, line(b))));
}

/// A manifest that has been read and parsed, and what was found wrong in it.
#[derive(Debug, Default)]
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
    pub has_items_on_lines: bool,
}

impl Manifest {
    /// Reads a YAML file below `home`. A missing file reads as empty.
    pub(crate) fn read(home: &Path, shown: String, file: &str) -> Self {
        let mut manifest = Self {
            shown,
            file: file.to_owned(),
            ..Self::default()
        };
        if let Err(error) = manifest.load(&home.join(file)) {
            let problem = manifest.whole(Some(Code::ManifestInvalid), &[], error.message);
            manifest.problems.push(FlowProblem {
                line: error.place.map(|place| place.0),
                column: error.place.and_then(|place| place.1),
                ..problem
            });
        }
        manifest
    }

    fn load(&mut self, path: &Path) -> Result<(), SyntaxError> {
        let whole = |message| SyntaxError {
            place: None,
            message,
        };
        let read = files::read_regular_limited(path, yaml::LARGEST).if_there();
        let read = read.map_err(|e| whole(format!("cannot read it: {}", reason(&e))))?;
        let Some(bytes) = read else { return Ok(()) };
        self.sha256 = Some(sha256(&bytes));
        let text = String::from_utf8(bytes);
        self.text = text.map_err(|_| whole("cannot read it: it is not UTF-8".to_owned()))?;
        match yaml::parse(&self.text)? {
            Value::Null => Ok(()),
            Value::Object(root) => {
                self.root = root;
                Ok(())
            }
            other => {
                let found = describe_value(&other);
                let message = format!("expected keys and values at the top, found {found}");
                Err(whole(message))
            }
        }
    }

    /// What a command line says, in place of a file.
    pub(crate) fn of_words(root: Map<String, Value>) -> Self {
        Self {
            root,
            shown: "command line".to_owned(),
            sha256: Some(String::new()),
            ..Self::default()
        }
    }

    /// A file that holds an item on each line.
    pub(crate) fn of_lines(shown: String, file: &str) -> Self {
        Self {
            shown,
            file: file.to_owned(),
            has_items_on_lines: true,
            ..Self::default()
        }
    }

    /// There is such a file.
    pub(crate) fn exists(&self) -> bool {
        self.sha256.is_some()
    }

    /// A problem of the file as a whole.
    fn whole(&self, code: Option<Code>, ids: &[&str], message: impl Into<String>) -> FlowProblem {
        FlowProblem {
            file: self.file.clone(),
            shown: self.shown.clone(),
            ..FlowProblem::new(code, ids, message)
        }
    }

    /// Adds a problem at a place of this document; without a code it is a doubt.
    pub(crate) fn push(
        &mut self,
        code: Option<Code>,
        ids: &[&str],
        at: &[Step],
        message: impl Into<String>,
    ) {
        let problem = FlowProblem {
            line: self.line(at),
            ..self.whole(code, ids, message)
        };
        self.problems.push(problem);
    }

    /// Reads a mapping of this document. Messages begin with `subject`; errors are `manifest_invalid`.
    pub(crate) fn visit<'n, T>(
        &mut self,
        subject: &str,
        ids: &[&str],
        section: &Section<'n>,
        read: impl FnOnce(&Section<'n>) -> T,
    ) -> T {
        self.visit_for(Code::ManifestInvalid, subject, ids, section, read)
    }

    /// Does what [`Self::visit`] does, with this code for errors.
    pub(crate) fn visit_for<'n, T>(
        &mut self,
        code: Code,
        subject: &str,
        ids: &[&str],
        section: &Section<'n>,
        read: impl FnOnce(&Section<'n>) -> T,
    ) -> T {
        let value = read(&section.clone().about(subject));
        for it in section.take_diagnostics() {
            let code = (!it.warning).then_some(code);
            self.push(code, ids, &it.at, it.message);
        }
        value
    }

    fn line(&mut self, at: &[Step]) -> Option<usize> {
        if let (true, Some(Step::Item(index))) = (self.has_items_on_lines, at.first()) {
            return Some(index + 1);
        }
        self.read_again += self.text.len();
        (self.read_again <= REREAD_BYTES)
            .then(|| yaml::locate(&self.text, at))
            .flatten()
    }
}
