//! Asking a person: at the terminal, or through files for somebody who answers later.
//!
//! Unaware of the journal; the loop records what is asked and answered.

use crate::config::tool::definition::{Inject, OnResume, Parameter, ParameterType, Tool, Word};
use crate::error::{At, Result, may_fail};
use crate::record::run_dir::RunDir;
use crate::text::json::Object;
use crate::text::timestamp::Timestamp;
use crate::unix::files;
use crate::unix::procfs::{Signals, Stop};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::io::{self, IsTerminal, Write};

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
        name: "ask_human".to_owned(),
        description: Some(
            "Ask the person who is responsible for this task, and wait for the answer.".to_owned(),
        ),
        template: "ask_human".to_owned(),
        command: vec![Word::fixed("ask_human")],
        appended: Vec::new(),
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
        timeout_ms: None,
        max_output_bytes: None,
        wrapper: None,
        env: Vec::new(),
        on_resume: OnResume::Report,
        pass_api_key: false,
    }
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub request_id: String,
    /// The words.
    pub prompt: String,
    /// `text`, `password` or `confirmation`.
    pub input_type: String,
    /// The answer is not to be shown.
    pub sensitive: bool,
}

impl Question {
    fn is_secret(&self) -> bool {
        self.sensitive || self.input_type == "password"
    }
}

/// The outcome of asking at the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The answer, without its newline.
    Answer(String),
    /// Nobody is there: the input has ended.
    NobodyThere,
    /// A signal asks the engine to end.
    Stopped(Stop),
}

/// Asks on stderr and reads the answer from stdin, without an echo if it is secret.
pub(crate) fn ask_here(signals: &Signals, question: &Question) -> io::Result<Reply> {
    let mut hint = match question.input_type.as_str() {
        "confirmation" => " [y/n] ",
        _ => " ",
    };
    loop {
        let prompt = crate::unix::terminal::printable(&question.prompt);
        may_fail(io::stderr().write_all(format!("{prompt}{hint}").as_bytes()));
        let reply = {
            let _quiet = question.is_secret().then(NoEcho::begin).flatten();
            read_line(signals)?
        };
        if question.is_secret() && io::stdin().is_terminal() {
            may_fail(io::stderr().write_all(b"\n"));
        }
        let Reply::Answer(answer) = reply else {
            return Ok(reply);
        };
        if question.input_type != "confirmation" {
            return Ok(Reply::Answer(answer));
        }
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(Reply::Answer("yes".to_owned())),
            "n" | "no" => return Ok(Reply::Answer("no".to_owned())),
            _ => hint = " (please answer y or n) ",
        }
    }
}

/// Turns the terminal's echo off until it is dropped.
struct NoEcho(Termios);

impl NoEcho {
    fn begin() -> Option<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin).ok()?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        // Keys that would stop or kill us here would leave the terminal without an echo.
        quiet.special_codes[SpecialCodeIndex::VQUIT] = 0;
        quiet.special_codes[SpecialCodeIndex::VSUSP] = 0;
        tcsetattr(&stdin, OptionalActions::Flush, &quiet).ok()?;
        Some(Self(before))
    }
}

impl Drop for NoEcho {
    fn drop(&mut self) {
        may_fail(tcsetattr(io::stdin(), OptionalActions::Now, &self.0));
    }
}

/// Reads one line, byte by byte: what follows it belongs to the next question.
pub(crate) fn read_line(signals: &Signals) -> io::Result<Reply> {
    let stdin = io::stdin();
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        match (signals.read(&stdin, &mut byte)?, signals.stop()) {
            (None, Some(stop)) => return Ok(Reply::Stopped(stop)),
            (None, None) => {}
            (Some(0), _) if line.is_empty() => return Ok(Reply::NobodyThere),
            (Some(1), _) if byte[0] != b'\n' => line.push(byte[0]),
            (Some(_), _) => {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(Reply::Answer(String::from_utf8_lossy(&line).into_owned()));
            }
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RequestFile {
    request_id: String,
}

/// Leaves a question for somebody who answers later. An answer that lies there has been put aside.
pub(crate) fn leave_question(run: &RunDir, question: &Question) -> Result<()> {
    let dir = run.interaction();
    files::make_dirs(&dir)?;
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    object
        .put("request_id", &question.request_id)
        .put("timestamp", &Timestamp::now().to_string())
        .put("prompt", &question.prompt)
        .put("input_type", &question.input_type)
        .put("sensitive", &question.sensitive);
    object.end();
    out.push(b'\n');
    files::replace(&dir.join("request.json"), &out)
}

/// Puts an answer that fits no open question where no question finds it. Returns its new name.
pub(crate) fn put_answer_aside(run: &RunDir) -> Result<Option<String>> {
    let dir = run.interaction();
    let answer = dir.join("response.txt");
    if answer.symlink_metadata().is_err() {
        return Ok(None);
    }
    for n in 1u32.. {
        let name = format!("response.unread.{n}");
        let path = dir.join(&name);
        match renameat_with(CWD, &answer, CWD, &path, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            Err(error) => return Err(io::Error::from(error)).at("rename", &answer),
            Ok(()) => return Ok(Some(name)),
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
    match files::read_regular(&path) {
        Ok(bytes) => {
            let mut answer = String::from_utf8_lossy(&bytes).into_owned();
            if answer.ends_with('\n') {
                answer.pop();
                if answer.ends_with('\r') {
                    answer.pop();
                }
            }
            Ok(Some(answer))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).at("read", &path),
    }
}

/// True if the question is in its file, so that it need not be written again. The question of an older engine that
/// recorded no id matches, too.
pub(crate) fn is_left(run: &RunDir, request_id: &str) -> bool {
    let asked = files::read_regular(&run.interaction().join("request.json")).unwrap_or_default();
    serde_json::from_slice::<RequestFile>(&asked)
        .is_ok_and(|asked| request_id.is_empty() || asked.request_id == request_id)
}

/// Removes a question and the answer that has been read. The answer goes first: alone it could be taken for
/// another's.
pub(crate) fn clear(run: &RunDir) -> Result<()> {
    let dir = run.interaction();
    if !dir.exists() {
        return Ok(());
    }
    files::remove(&dir.join("response.txt"))?;
    files::remove(&dir.join("request.json"))?;
    // Somebody may have put something else there.
    may_fail(fs::remove_dir(&dir));
    Ok(())
}
