//! Asking a person: at the terminal, or through files, if the answer comes later.
//!
//! Unaware of the journal; the loop records what is asked and answered.

use crate::config::tool::definition::{Inject, Parameter, ParameterType, Tool, Word};
use crate::engine::outbox::Collected;
use crate::error::{At, Error, Result, ignore, reason};
use crate::record::event::InputType;
use crate::record::run_dir::RunDir;
use crate::record::state;
use crate::text::disguise::{indented, printable};
use crate::text::json;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::line_editor::LineEditor;
use crate::unix::signals::Signals;
use crate::unix::typed::{ModesOff, Reply, discard_typed, read_line};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::termios::LocalModes;
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// The engine's one built-in tool.
pub(crate) fn ask_human_tool() -> Tool {
    let parameter =
        |name: &str, kind, description: &str, choices: &[&str], default: Option<Value>| Parameter {
            name: name.to_owned(),
            kind,
            description: Some(description.to_owned()),
            choices: choices.iter().map(|choice| Value::from(*choice)).collect(),
            required: default.is_none(),
            default,
            inject: Inject::Argument,
            extra: serde_json::Map::new(),
        };
    Tool {
        description: Some(
            "Ask the person who is responsible for this task, and wait for the answer.".to_owned(),
        ),
        parameters: vec![
            parameter("prompt", ParameterType::String, "The question.", &[], None),
            parameter(
                "input_type",
                ParameterType::String,
                "What kind of answer is expected.",
                &["text", "password", "confirmation"],
                Some("text".into()),
            ),
            parameter(
                "sensitive",
                ParameterType::Boolean,
                "Whether the answer is not to be shown while it is typed.",
                &[],
                Some(false.into()),
            ),
        ],
        ..Tool::fixed("ask_human", vec![Word::fixed("ask_human")])
    }
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub request_id: String,
    /// The words.
    pub prompt: String,
    pub input_type: InputType<'static>,
    /// The answer is not to be shown.
    pub sensitive: bool,
    /// The call that would run, if it is one that a person must confirm; see
    /// [`confirmation`](crate::engine::confirmation).
    pub fingerprint: Option<String>,
    /// Number of hooks that have been run for it.
    pub announced: usize,
}

/// An answer, and the question that it is for.
#[derive(Clone, Debug)]
pub(crate) struct HumanAnswer {
    pub request_id: String,
    pub text: String,
    /// Attachments of the answer.
    pub handed: Collected,
}

impl Question {
    /// The question that a journal holds.
    pub(crate) fn recorded(asked: &state::RecordedQuestion<'_>) -> Self {
        Self {
            request_id: asked.request_id.to_string(),
            prompt: asked.prompt.to_string(),
            input_type: asked.input_type.clone().into_owned(),
            sensitive: asked.sensitive,
            fingerprint: asked.fingerprint.as_ref().map(ToString::to_string),
            announced: asked.announced,
        }
    }

    pub(crate) fn is_secret(&self) -> bool {
        self.sensitive || self.input_type == InputType::Password
    }
}

/// Asks on stderr and reads the answer from stdin, without an echo if it is secret. What else is typed before the
/// question is shown, or pasted with the answer, answers nothing.
pub(crate) fn ask_here(signals: &Signals, question: &Question) -> io::Result<Reply> {
    let is_short = question.is_secret() || question.input_type == InputType::Confirmation;
    // Started before, so that nothing typed in between is lost. No answer can be recalled.
    let editor = if is_short {
        None
    } else {
        LineEditor::begin(Vec::new(), Vec::new())
    };
    discard_typed(signals);
    let reply = match editor {
        Some(mut editor) => editor.read_line(signals, &format!("{} ", prompt(question))),
        None => ask_until_answered(signals, question),
    };
    discard_typed(signals);
    reply
}

/// Asks a question of a command line, which is recorded nowhere. The answer has no blanks at its ends.
pub(crate) fn ask_person(
    signals: &Signals,
    prompt: &str,
    input_type: InputType<'static>,
    sensitive: bool,
) -> Result<String> {
    let question = Question {
        request_id: String::new(),
        prompt: prompt.to_owned(),
        input_type,
        sensitive,
        fingerprint: None,
        announced: 0,
    };
    let reply = ask_here(signals, &question);
    match reply.map_err(|e| Error::usage(format!("cannot read from stdin: {}", reason(&e))))? {
        Reply::Answer(answer) => Ok(answer.trim().to_owned()),
        ended => {
            ignore(io::stderr().write_all(b"\n"));
            Err(match ended {
                Reply::Stopped(stop) => stop.into(),
                _ => Error::failure("the input has ended"),
            })
        }
    }
}

/// The question at a terminal. A further line must not look like one of ours.
fn prompt(question: &Question) -> String {
    printable(&indented(&question.prompt))
}

fn ask_until_answered(signals: &Signals, question: &Question) -> io::Result<Reply> {
    let prompt = prompt(question);
    let is_confirmation = question.input_type == InputType::Confirmation;
    let is_about_call = question.fingerprint.is_some();
    let mut hint = match (is_confirmation, is_about_call) {
        (true, true) => " [y/n, a: always this very command, or what to do instead] ",
        (true, false) => " [y/n] ",
        (false, _) => " ",
    };
    loop {
        let reply = {
            // Before the prompt: what is typed as soon as it can be read must be neither shown nor lost.
            let _quiet = question
                .is_secret()
                .then(|| ModesOff::begin(LocalModes::ECHO))
                .flatten();
            ignore(io::stderr().write_all(format!("{prompt}{hint}").as_bytes()));
            read_line(signals)?
        };
        if question.is_secret() && io::stdin().is_terminal() {
            ignore(io::stderr().write_all(b"\n"));
        }
        let Reply::Answer(answer) = reply else {
            if io::stdin().is_terminal() {
                ignore(io::stderr().write_all(b"\n"));
            }
            return Ok(reply);
        };
        if !is_confirmation {
            return Ok(Reply::Answer(answer));
        }
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(Reply::Answer("yes".to_owned())),
            "n" | "no" => return Ok(Reply::Answer("no".to_owned())),
            "a" | "always" if is_about_call => return Ok(Reply::Answer("always".to_owned())),
            words if is_about_call && !words.is_empty() => return Ok(Reply::Answer(answer)),
            _ if is_about_call => {}
            _ => hint = " (please answer y or n) ",
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RequestFile {
    request_id: String,
}

/// The directory of questions and answers, from the run's. Neither it nor what is in it is a link.
const DIR: &str = "interaction";

/// The largest answer that is read, in bytes.
const LONGEST: u64 = 64 << 20;

fn make_dir(run: &RunDir) -> Result<PathBuf> {
    files::make_dirs_below(&run.path, Path::new(DIR))
}

fn has_dir(run: &RunDir) -> bool {
    files::is_dir_below(&run.path, Path::new(DIR))
}

fn read_left(run: &RunDir, name: &str) -> io::Result<Vec<u8>> {
    files::read_below(&run.path, &Path::new(DIR).join(name), LONGEST)
}

/// Writes a question that is answered later. An older answer has been moved away.
pub(crate) fn leave_question(run: &RunDir, question: &Question) -> Result<()> {
    let dir = make_dir(run)?;
    let request = json::line(|object| {
        object
            .put("request_id", &question.request_id)
            .put("timestamp", &Timestamp::now().to_string())
            .put("prompt", &question.prompt)
            .put("input_type", question.input_type.name())
            .put("sensitive", &question.sensitive);
    });
    files::replace(&dir.join("request.json"), &request)
}

/// Leaves an answer where the engine looks for it. Returns whether there was none yet: one that is there has not
/// been read, and stays.
pub(crate) fn leave_answer(run: &RunDir, answer: &str) -> Result<bool> {
    let dir = make_dir(run)?;
    let path = dir.join(format!("response.{}", std::process::id()));
    files::remove(&path)?;
    files::write(&path, format!("{answer}\n").as_bytes())?;
    files::open_regular(&path)?.sync_all().at("sync", &path)?;
    let place = dir.join("response.txt");
    match renameat_with(CWD, &path, CWD, &place, RenameFlags::NOREPLACE) {
        Ok(()) => files::sync_dir(&dir).map(|()| true),
        Err(error) => {
            files::remove(&path)?;
            match error {
                Errno::EXIST => Ok(false),
                error => Err(io::Error::from(error)).at("rename", &place),
            }
        }
    }
}

/// Puts an answer that fits no open question where no question finds it. Returns its new name.
pub(crate) fn put_answer_aside(run: &RunDir) -> Result<Option<String>> {
    let answer = run.interaction().join("response.txt");
    if !has_dir(run) || answer.symlink_metadata().is_err() {
        return Ok(None);
    }
    rename_unread(run, &answer).map(Some)
}

/// The remark on an answer that has been put aside under this name.
pub(crate) fn unread_note(run: &RunDir, name: &str) -> String {
    let path = run.interaction().join(name);
    format!("an unread answer is now in {}", path.display())
}

/// Keeps an answer that came with a command and fits no open question. Returns its name.
pub(crate) fn keep_unread(run: &RunDir, answer: &str) -> Result<String> {
    let dir = make_dir(run)?;
    // Never under the name that a question looks for.
    let path = dir.join("response.unread");
    files::replace(&path, answer.as_bytes())?;
    rename_unread(run, &path)
}

fn rename_unread(run: &RunDir, answer: &Path) -> Result<String> {
    for n in 1u32.. {
        let name = format!("response.unread.{n}");
        let path = run.interaction().join(&name);
        match renameat_with(CWD, answer, CWD, &path, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            Err(error) => return Err(io::Error::from(error)).at("rename", answer),
            Ok(()) => return Ok(name),
        }
    }
    unreachable!("four billion unread answers")
}

/// The answer to a question that was left, if there is one. One trailing newline is not part of it.
pub(crate) fn left_answer(run: &RunDir, request_id: &str) -> Result<Option<String>> {
    if !is_left(run, request_id) {
        return Ok(None);
    }
    let path = run.interaction().join("response.txt");
    let left = read_left(run, "response.txt").if_there();
    Ok(left.at("read", &path)?.map(|bytes| {
        let mut answer = String::from_utf8_lossy(&bytes).into_owned();
        if answer.ends_with('\n') {
            answer.pop();
            if answer.ends_with('\r') {
                answer.pop();
            }
        }
        answer
    }))
}

/// True if the question is in its file, so that it need not be written again. An empty id matches any question.
pub(crate) fn is_left(run: &RunDir, request_id: &str) -> bool {
    let asked = read_left(run, "request.json").unwrap_or_default();
    serde_json::from_slice::<RequestFile>(&asked)
        .is_ok_and(|asked| request_id.is_empty() || asked.request_id == request_id)
}

/// Removes a question and the answer that has been read. The answer goes first: alone it could be taken for
/// another's.
pub(crate) fn clear(run: &RunDir) -> Result<()> {
    let dir = run.interaction();
    if !has_dir(run) {
        return Ok(());
    }
    files::remove(&dir.join("response.txt"))?;
    files::remove(&dir.join("request.json"))?;
    // It is not empty if other programs put files there.
    ignore(fs::remove_dir(&dir));
    Ok(())
}
