//! One attempt at a node: its directory of records, the files that its program is given, and what came
//! of it.
//!
//! Unaware of routing and of the journal. Preparing is apart from running, so that the beginning can
//! be journalled when nothing but the program itself can fail any more.

use crate::error::{At, Result, ignore};
use crate::flow::graph::{Failure, FailureCode, Payload};
use crate::flow::manifest::{NamedSchema, PayloadForm, sha256};
use crate::record::execution::{self, ExecutionRecord, LinkedFiles, Stdin};
use crate::text::json;
use crate::unix::files::{self, LARGEST_INPUT};
use crate::unix::process::{Ended, Outcome, SpawnError, Used};
use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The end of the names of directories for looks at what a node has begun.
pub(crate) const LOOK: &str = ".look";

/// Most bytes of a program's stderr that its failure quotes.
const SAID: u64 = 2000;

/// A program that is ready to be started.
pub(crate) struct PreparedAttempt {
    /// The command, with what is put before every program.
    pub argv: Vec<String>,
    /// The directory that it works in.
    pub dir: PathBuf,
    pub record: ExecutionRecord,
    /// The directory of records.
    pub io: PathBuf,
    /// The path of that from the run's directory.
    pub reference: String,
}

pub(crate) struct ProgramInput<'g> {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The directory that it works in.
    pub dir: PathBuf,
    pub input: &'g str,
    /// The assembled context, if it has one.
    pub context: Option<&'g str>,
    /// None: the payload.
    pub stdin: Option<&'g [u8]>,
}

/// The name of a task's or a node's directory: the id, unless the file system has no room for it.
pub(crate) fn dir_name(id: &str) -> String {
    const LONGEST: usize = 200;
    if id.len() <= LONGEST {
        return id.to_owned();
    }
    let sum = sha256(id.as_bytes());
    format!("{}~{}", &id[..LONGEST - 20], &sum[..16])
}

/// The directory of a task of a run: the workspace `root`, or one of its own, which no other task and no other
/// run has.
pub(crate) fn task_path(root: &Path, run: &str, task: Option<&str>) -> PathBuf {
    match task {
        None => root.to_owned(),
        Some(task) => root.join("tasks").join(run).join(dir_name(task)),
    }
}

/// A path in a run's directory, as the journal names it.
pub(crate) fn reference<'p>(run: &Path, path: &'p Path) -> Cow<'p, str> {
    path.strip_prefix(run).unwrap_or(path).to_string_lossy()
}

/// Makes the directory of records of an attempt, with all that is known before it runs.
pub(crate) fn prepare_attempt(
    run: &Path,
    task: &str,
    node: &str,
    given: ProgramInput<'_>,
    linked: &mut LinkedFiles,
) -> Result<PreparedAttempt> {
    let parent = format!("io/nodes/{}", dir_name(task));
    let dir = files::make_dirs_below(run, Path::new(&parent))?;
    let name = files::make_unique_dir(&dir, node)?;
    let reference = format!("{parent}/{name}");
    let io = run.join(&reference);
    if let Some(context) = given.context {
        linked.write(&io.join("context.json"), context)?;
    }
    let input = io.join("input.json");
    linked.write(&input, given.input)?;
    let stdin = match given.stdin {
        None => Stdin::Recorded(input),
        Some(bytes) => Stdin::Bytes(bytes),
    };
    Ok(PreparedAttempt {
        record: execution::begin_record(&io, &given.argv, stdin, Some(linked))?,
        argv: given.argv,
        dir: given.dir,
        io,
        reference,
    })
}

/// Records how a program ended.
pub(crate) fn record_end(
    io: &Path,
    exit_code: i32,
    duration: Duration,
    used: Option<Used>,
    linked: &mut LinkedFiles,
) -> Result<()> {
    execution::end_record(io, exit_code, duration, Some(&mut *linked))?;
    let Some(used) = used else { return Ok(()) };
    let cpu = used.cpu.as_micros() as f64 / 1000.0;
    let text = format!("{{\"cpu_ms\":{cpu},\"memory_bytes\":{}}}\n", used.memory);
    linked.write(&io.join("usage.json"), &text)
}

/// The directories of records that a step with these may have besides: an engine that died before the journal named
/// them has left some with lower numbers. `is_other` is true of the name of another node.
pub(crate) fn lower_records(
    node: &str,
    references: &[String],
    is_other: impl Fn(&str) -> bool,
) -> Vec<String> {
    /// More attempts than any step has.
    const MOST: u32 = 1000;
    let mut lower = Vec::new();
    for reference in references {
        let Some((parent, name)) = reference.rsplit_once('/') else {
            continue;
        };
        let look = format!("{node}{LOOK}");
        let node = if name.starts_with(&look) { &look } else { node };
        let number: u32 = name
            .strip_prefix(node)
            .and_then(|it| it.strip_prefix('_'))
            .and_then(|it| it.parse().ok())
            .unwrap_or(1);
        let first = (number > 1).then(|| node.to_owned()).into_iter();
        let others = (2..number.min(MOST)).map(|number| format!("{node}_{number}"));
        let names = first.chain(others.filter(|name| !is_other(name)));
        lower.extend(names.map(|name| format!("{parent}/{name}")));
    }
    lower
}

/// Removes the directory of records of an attempt, and its task's if nothing else is in that. What is not named
/// like one, or is reached through a link, is left alone.
pub(crate) fn remove_records(run: &Path, task: &str, node: &str, reference: &str) -> Result<()> {
    let parent = format!("io/nodes/{}", dir_name(task));
    let again = reference
        .strip_prefix(&parent)
        .and_then(|it| it.strip_prefix('/')?.strip_prefix(node))
        .map(|again| again.strip_prefix(LOOK).unwrap_or(again));
    let is_own = again.is_some_and(|again| match again.strip_prefix('_') {
        Some(number) => !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit()),
        None => again.is_empty(),
    });
    let is_dir = |name: &str| {
        let about = run.join(name).symlink_metadata();
        about.is_ok_and(|it| it.is_dir())
    };
    if is_own && ["io", "io/nodes", &parent].into_iter().all(is_dir) {
        if is_dir(reference) {
            let path = run.join(reference);
            std::fs::remove_dir_all(&path).at("remove", &path)?;
        }
        // Also that of records which a killed engine has removed.
        ignore(std::fs::remove_dir(run.join(parent)));
    }
    Ok(())
}

/// The failure of a program that could not be started.
pub(crate) fn not_started(program: &str, error: &SpawnError) -> Failure {
    Failure::operation(error.message(program))
}

/// True for a program that has ended with the exit code which says that its output counts in part.
pub(crate) fn is_partial(outcome: &Outcome, partial_exit: Option<i32>) -> bool {
    matches!(outcome.how, Ended::Exited(code) if partial_exit == Some(code))
}

/// The failure of a program that ended like this, if it has failed.
pub(crate) fn find_failure(
    io: &Path,
    outcome: &Outcome,
    timeout: Option<Duration>,
) -> Result<Option<Failure>> {
    Ok(match outcome.how {
        Ended::Exited(0) => None,
        Ended::TimedOut => {
            let ms = timeout.map_or(0, |timeout| timeout.as_millis());
            let message = format!("it took longer than {ms} ms");
            Some(Failure::new(FailureCode::Timeout, message))
        }
        Ended::Exited(code) | Ended::Interrupted(code) => {
            let said = last_words(&io.join("stderr.log"))?;
            let message = match said.as_str() {
                "" => format!("exit code {code}"),
                said => format!("exit code {code}: {said}"),
            };
            Some(Failure::operation(message))
        }
    })
}

/// The last lines that a program said.
fn last_words(path: &Path) -> Result<String> {
    let file = File::open(path).at("read", path)?;
    let len = file.metadata().at("read", path)?.len();
    let last = files::read_part(&file, len.saturating_sub(SAID), SAID as usize);
    let bytes = last.at("read", path)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.trim().lines().collect();
    Ok(lines[lines.len().saturating_sub(3)..].join("\n"))
}

/// The hint about the output of a node that is not JSON.
pub(crate) const TEXT_HINT: &str = " (a node with output: text may print anything)";

/// The output of a program, as far as its node may print.
pub(crate) struct PrintedOutput {
    /// Empty if it is longer than that.
    bytes: Vec<u8>,
    len: u64,
}

impl PrintedOutput {
    pub(crate) fn read(io: &Path) -> Result<Self> {
        let path = io.join("stdout.log");
        let file = File::open(&path).at("read", &path)?;
        let len = file.metadata().at("read", &path)?.len();
        let room = if len > LARGEST_INPUT { 0 } else { len };
        let bytes = files::read_part(&file, 0, room as usize).at("read", &path)?;
        Ok(Self { bytes, len })
    }

    /// The output as JSON on one line; the message about one that is not JSON ends with the hint.
    pub(crate) fn payload(
        self,
        form: PayloadForm,
        hint: &str,
    ) -> std::result::Result<Payload, Failure> {
        let wrong = |message: String| Failure::operation(message);
        if self.len > LARGEST_INPUT {
            return Err(wrong(too_much(self.len)));
        }
        let text = String::from_utf8(self.bytes)
            .map_err(|_| wrong("its output is not UTF-8".to_owned()))?;
        if form == PayloadForm::Text {
            return Ok(json::text(text.strip_suffix('\n').unwrap_or(&text)).into());
        }
        one_value(text).map_err(|why| wrong(why + hint))
    }
}

/// The message for a program that printed too many bytes.
pub(crate) fn too_much(bytes: u64) -> String {
    format!(
        "it printed {bytes} bytes, and the limit is {LARGEST_INPUT}; write to a file and print its path"
    )
}

/// A text that is one JSON value, on one line.
pub(crate) fn one_value(text: String) -> std::result::Result<Payload, String> {
    let value = json::after_mark(&text).trim_ascii();
    if value.is_empty() {
        return Err("it printed nothing, and its output must be JSON".to_owned());
    }
    if let Err(error) = json::check(value) {
        let why = json::parser_message(&error);
        return Err(format!("its output is not one JSON value: {why}"));
    }
    // A raw line break in JSON is between tokens, never in a string.
    let has_breaks = memchr::memchr2(b'\n', b'\r', value.as_bytes()).is_some();
    Ok(if has_breaks {
        value.replace(['\n', '\r'], " ").into()
    } else {
        value.into()
    })
}

/// The failure of a value that does not fit a schema.
pub(crate) fn check_schema(
    schema: Option<&NamedSchema>,
    text: &str,
    code: FailureCode,
) -> Option<Failure> {
    let NamedSchema { id, schema } = schema?;
    let message = match serde_json::from_str(json::after_mark(text)) {
        Ok(value) if schema.admits(&value) => return None,
        Ok(value) => {
            let mismatches = schema.mismatches(&value);
            let all: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
            format!("it does not fit schema {id}: {}", all.join("; "))
        }
        Err(error) => format!("it cannot be read: {}", json::parser_message(&error)),
    };
    Some(Failure::new(code, message))
}
