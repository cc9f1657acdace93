//! Runs as cases of an evaluation: what was asked, and the result as what is expected.

use crate::error::{Error, Result};
use crate::record::event::Recorded;
use crate::record::reader::{Damage, JournalReader, Next};
use crate::record::run_dir::RunDir;
use crate::text::json;
use serde_json::{Value, json};

/// The case that a run makes, and what of its journal cannot be read.
///
/// # Errors
/// The run has not completed, or has been given something else than one input that is a text or JSON.
pub(crate) fn case_of(run: &RunDir) -> Result<(Value, Vec<Damage>)> {
    let (mut inputs, mut result, mut is_flow) = (Vec::new(), None, false);
    let (mut has_attachments, mut damaged) = (false, Vec::new());
    let mut lines = JournalReader::open(&run.journal())?;
    loop {
        let line = match lines.read_next()? {
            Next::Event(line) => line,
            Next::Damaged(damage) => {
                damaged.push(damage);
                continue;
            }
            Next::End { .. } => break,
        };
        match &line.event {
            Recorded::EngineStart(_) => result = None,
            Recorded::UserMessage(message) => {
                let attachments: Vec<Value> = message.attachments.read_or_default();
                has_attachments |= !attachments.is_empty();
                inputs.push(Some(message.content.text().into_owned().into()));
            }
            Recorded::TaskCreated(task) if task.parent_id.get().is_none() => {
                is_flow = true;
                // A large one is in a file.
                inputs.push(task.input.read::<Value>());
            }
            Recorded::EngineEnd(end) => result = end.result.owned(),
            _ => {}
        }
    }
    let (id, count) = (&run.id, inputs.len());
    let what = match (inputs.pop(), result) {
        (Some(Some(input)), Some(result)) if count == 1 && !has_attachments => {
            let expected = if is_flow {
                json::read_or_default(&*result)
            } else {
                Value::String(result)
            };
            let case = json!({"id": id.as_str(), "input": input, "expected": expected});
            return Ok((case, damaged));
        }
        (_, None) => "has no result",
        (Some(None), _) => "has an input that is too long for a line",
        _ if has_attachments => "has attachments, which a case cannot have",
        _ => "has several inputs, and a case has one",
    };
    Err(Error::failure(format!("run {id} {what}")))
}
