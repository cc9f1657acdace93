//! One attempt at a node: its directory of records, the files that its program is given, and what came
//! of it.
//!
//! Unaware of routing and of the journal. Preparing is apart from running, so that the beginning can
//! be journalled when nothing but the program itself can fail any more.

use crate::config::tool::bind::shell_quoted;
use crate::engine::hooks::spawn_failure;
use crate::error::{At, Result};
use crate::flow::graph::{Failure, FailureCode, Payload};
use crate::flow::manifest::{NamedSchema, OutputForm};
use crate::text::json;
use crate::unix::files;
use crate::unix::process::{Ended, Outcome, SpawnError, Used};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Bytes that a node may print: more is a failure of the node, not a growth of the engine.
pub(crate) const MOST_OUTPUT: u64 = 256 << 20;

/// As much of what a program said on stderr is told of its failure.
const SAID: u64 = 2000;

/// A program that is ready to be started.
pub(crate) struct PreparedAttempt {
    /// With what is put before every program.
    pub argv: Vec<String>,
    /// Where it works.
    pub dir: PathBuf,
    pub stdin: Option<File>,
    pub stdout: File,
    pub stderr: File,
    /// The directory of records.
    pub io: PathBuf,
    /// The same from the run's directory.
    pub reference: String,
    /// The command on one line.
    pub command: String,
}

pub(crate) struct ProgramInput<'g> {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Where it works.
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
    let sum = crate::flow::manifest::problem::sha256(id.as_bytes());
    format!("{}~{}", &id[..LONGEST - 20], &sum[..16])
}

/// A path in a run's directory, as the journal names it.
pub(crate) fn reference<'p>(run: &Path, path: &'p Path) -> Cow<'p, str> {
    path.strip_prefix(run).unwrap_or(path).to_string_lossy()
}

/// Makes the directory of records of an attempt, with all that is known before it runs.
pub(crate) fn prepare_attempt(
    run: &Path,
    (task, node): (&str, &str),
    given: ProgramInput<'_>,
    alike: &mut LinkedFiles,
) -> Result<PreparedAttempt> {
    let parent = format!("io/nodes/{}", dir_name(task));
    files::make_dirs(&run.join(&parent))?;
    let name = files::make_unique_dir(&run.join(&parent), node)?;
    let reference = format!("{parent}/{name}");
    let io = run.join(&reference);
    let command = shell_quoted(&given.argv);
    alike.write(&io.join("command.txt"), &format!("{command}\n"))?;
    if let Some(context) = given.context {
        alike.write(&io.join("context.json"), context)?;
    }
    let path = io.join("input.json");
    alike.write(&path, given.input)?;
    let stdin = match given.stdin {
        None => path,
        Some(bytes) => {
            let path = io.join("stdin.txt");
            files::write(&path, bytes)?;
            path
        }
    };
    let stdin = File::open(&stdin).at("open", &stdin)?;
    Ok(PreparedAttempt {
        argv: given.argv,
        dir: given.dir,
        stdin: Some(stdin),
        stdout: files::create(&io.join("stdout.log"))?,
        stderr: files::create(&io.join("stderr.log"))?,
        io,
        reference,
        command,
    })
}

/// Small files of records that are alike: written once, and linked from then on, because a new file costs
/// more than what is in it. Programs can read them and not write to them.
#[derive(Debug, Default)]
pub(crate) struct LinkedFiles {
    known: HashMap<String, (PathBuf, SystemTime)>,
}

impl LinkedFiles {
    /// Makes a file with this text.
    pub(crate) fn write(&mut self, path: &Path, text: &str) -> Result<()> {
        /// Longer texts are not remembered, and not more of them than this.
        const LONGEST: usize = 1 << 10;
        const MOST: usize = 1 << 10;
        if let Some((one, at)) = self.known.get(text)
            && modified_time(one) == Some(*at)
            && std::fs::hard_link(one, path).is_ok()
        {
            return Ok(());
        }
        files::write_once(path, text.as_bytes())?;
        if text.len() <= LONGEST
            && let Some(at) = modified_time(path)
        {
            if self.known.len() >= MOST {
                self.known.clear();
            }
            self.known.insert(text.to_owned(), (path.to_owned(), at));
        }
        Ok(())
    }
}

/// When a file was written to. One whom nothing is forbidden may have done so since.
fn modified_time(path: &Path) -> Option<SystemTime> {
    path.symlink_metadata().ok()?.modified().ok()
}

/// Records how a program ended.
pub(crate) fn record_end(
    io: &Path,
    exit_code: i32,
    (duration, used): (Duration, Option<Used>),
    alike: &mut LinkedFiles,
) -> Result<()> {
    let mut line = |name: &str, text: String| alike.write(&io.join(name), &text);
    line("exit_code.txt", format!("{exit_code}\n"))?;
    line("duration_ms.txt", format!("{}\n", duration.as_millis()))?;
    let Some(used) = used else { return Ok(()) };
    let cpu = used.cpu.as_micros() as f64 / 1000.0;
    let text = format!("{{\"cpu_ms\":{cpu},\"memory_bytes\":{}}}\n", used.memory);
    line("usage.json", text)
}

/// Why a program could not be started: the exit code that a shell would give, and words.
pub(crate) fn not_started(program: &str, error: &SpawnError) -> (i32, Failure) {
    let code = match error {
        SpawnError::NotFound => 127,
        SpawnError::NotExecutable(_) => 126,
        SpawnError::TooLong | SpawnError::Other(_) => 125,
    };
    let message = spawn_failure(program, error);
    (code, Failure::new(FailureCode::Operation, message))
}

/// The exit code that is recorded of a program that ended like this.
pub(crate) fn exit_code(outcome: &Outcome) -> i32 {
    match outcome.how {
        Ended::Exited(code) | Ended::Interrupted(code) => code,
        Ended::TimedOut => 124,
    }
}

/// Why a program that ended like this has failed, if it has.
pub(crate) fn find_failure(
    io: &Path,
    outcome: &Outcome,
    timeout: Option<Duration>,
) -> Result<Option<Failure>> {
    Ok(match outcome.how {
        Ended::Exited(0) => None,
        Ended::TimedOut => {
            let ms = timeout.unwrap_or_default().as_millis();
            let message = format!("it took longer than {ms} ms");
            Some(Failure::new(FailureCode::Timeout, message))
        }
        Ended::Exited(code) | Ended::Interrupted(code) => {
            let said = last_words(&io.join("stderr.log"))?;
            let message = match said.as_str() {
                "" => format!("exit code {code}"),
                said => format!("exit code {code}: {said}"),
            };
            Some(Failure::new(FailureCode::Operation, message))
        }
    })
}

/// The last lines that a program said.
fn last_words(path: &Path) -> Result<String> {
    let file = File::open(path).at("read", path)?;
    let len = file.metadata().at("read", path)?.len();
    let part = len.min(SAID);
    let mut bytes = vec![0; part as usize];
    file.read_exact_at(&mut bytes, len - part)
        .at("read", path)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.trim().lines().rev().take(3).collect();
    Ok(lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
}

/// The output that a program printed, as JSON on one line.
pub(crate) fn read_output(
    io: &Path,
    form: OutputForm,
) -> Result<std::result::Result<Payload, Failure>> {
    let wrong = |message: String| Ok(Err(Failure::new(FailureCode::Operation, message)));
    let path = io.join("stdout.log");
    let mut file = File::open(&path).at("read", &path)?;
    let len = file.metadata().at("read", &path)?.len();
    if len > MOST_OUTPUT {
        return wrong(too_much(len));
    }
    let mut bytes = Vec::with_capacity(len as usize);
    file.read_to_end(&mut bytes).at("read", &path)?;
    let Ok(text) = String::from_utf8(bytes) else {
        return wrong("its output is not UTF-8".to_owned());
    };
    if form == OutputForm::Text {
        let text = text.strip_suffix('\n').unwrap_or(&text);
        return Ok(Ok(json::text(text).into()));
    }
    Ok(one_value(text).map_err(|why| Failure::new(FailureCode::Operation, why)))
}

/// The message for a program that printed so many bytes.
pub(crate) fn too_much(bytes: u64) -> String {
    format!(
        "it printed {bytes} bytes, and the limit is {MOST_OUTPUT}; write to a file and print its path"
    )
}

/// A text that is one JSON value, on one line.
pub(crate) fn one_value(text: String) -> std::result::Result<Payload, String> {
    let value = text.trim_ascii();
    if value.is_empty() {
        return Err("it printed nothing, and its output must be JSON".to_owned());
    }
    if let Err(error) = json::check(value) {
        return Err(format!(
            "its output is not one JSON value: {error} (a node with output: text may print anything)"
        ));
    }
    // A line break inside JSON stands between two words of it, never in a string.
    Ok(
        if memchr::memchr2(b'\n', b'\r', value.as_bytes()).is_some() {
            value.replace(['\n', '\r'], " ").into()
        } else {
            value.into()
        },
    )
}

/// Why a value does not fit a schema, if it does not.
pub(crate) fn check_schema(
    schema: Option<&NamedSchema>,
    text: &str,
    code: FailureCode,
) -> Option<Failure> {
    let schema = schema?;
    let value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return Some(Failure::new(code, format!("it cannot be read: {error}"))),
    };
    if schema.schema.admits(&value) {
        return None;
    }
    let mismatches = schema.schema.mismatches(&value);
    let all: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
    let message = format!("it does not fit schema {}: {}", schema.id, all.join("; "));
    Some(Failure::new(code, message))
}
