//! The result of a call, as it goes to stdout.

use super::servers::Secrets;
use crate::error::{Error, Result};
use crate::record::attachments::LARGEST;
use crate::record::attachments::head::recognize;
use crate::text::ids::hex;
use crate::unix::files;
use crate::unix::procfs::CALL_ID;
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// The output of a call.
#[derive(Debug)]
pub(crate) struct CallOutput {
    /// Without the last newline.
    pub text: String,
    /// The tool itself reports an error.
    pub is_error: bool,
}

/// Makes the text of a result: its blocks, one below the other. What is no text goes into files.
///
/// # Errors
/// The server wants an answer of a person first, or the result has no form that is known.
pub(crate) fn read_result(
    result: &Map<String, Value>,
    structured_only: bool,
    secrets: Secrets,
) -> Result<CallOutput> {
    match result.get("resultType").and_then(Value::as_str) {
        None | Some("complete") => {}
        Some("input_required") => return Err(input_required(result)),
        Some(other) => {
            return Err(Error::failure(format!(
                "the server answered with a result of type {other:?}"
            )));
        }
    }
    let is_error = result.get("isError") == Some(&Value::Bool(true));
    let structured = result
        .get("structuredContent")
        .filter(|value| !value.is_null());
    if let Some(value) = structured.filter(|_| structured_only) {
        return Ok(CallOutput {
            text: value.to_string(),
            is_error,
        });
    }
    let blocks = result.get("content").and_then(Value::as_array);
    let mut files = BlobFiles {
        secrets,
        ..BlobFiles::default()
    };
    let blocks = blocks.into_iter().flatten();
    let texts: Vec<String> = blocks
        .map(|block| files.show(block))
        .collect::<Result<_>>()?;
    let text = match structured {
        Some(value) if texts.is_empty() => value.to_string(),
        _ => texts.join("\n"),
    };
    Ok(CallOutput { text, is_error })
}

fn input_required(result: &Map<String, Value>) -> Error {
    let prompts = prompts_of(result);
    Error::failure(format!(
        "the tool needs input of a person, which cannot be given here; it asks:{prompts}"
    ))
}

/// What a server asks of a person, a line each, each after a newline.
pub(crate) fn prompts_of(result: &Map<String, Value>) -> String {
    let requests = result.get("inputRequests").and_then(Value::as_object);
    let prompts = requests.into_iter().flatten().map(|(key, request)| {
        let message = request.pointer("/params/message").and_then(Value::as_str);
        format!("\n{key}: {}", message.unwrap_or("no message"))
    });
    prompts.collect()
}

/// The directory of a call's blobs, made with the first one.
#[derive(Default)]
struct BlobFiles {
    dir: Option<PathBuf>,
    count: usize,
    /// Base64 hides them.
    secrets: Secrets,
}

impl BlobFiles {
    fn show(&mut self, block: &Value) -> Result<String> {
        let text = |pointer: &str| block.pointer(pointer).and_then(Value::as_str);
        match text("/type") {
            Some("text") => Ok(text("/text").unwrap_or_default().to_owned()),
            Some("image" | "audio") => self.save(text("/mimeType"), text("/data")),
            Some("resource_link") => {
                let uri = text("/uri").unwrap_or_default();
                Ok(format!("[{}: {uri}]", text("/name").unwrap_or("resource")))
            }
            Some("resource") => match text("/resource/text") {
                Some(text) => Ok(text.to_owned()),
                None => self.save(text("/resource/mimeType"), text("/resource/blob")),
            },
            _ => Ok(block.to_string()),
        }
    }

    /// Puts a picture or a document into the directory for attachments, if there is one. Returns its name.
    fn attach(&mut self, bytes: &[u8]) -> Option<String> {
        let dir = PathBuf::from(std::env::var_os("DELTA_ATTACH")?);
        let facts = recognize(bytes).filter(|_| bytes.len() as u64 <= LARGEST)?;
        let (_, extension) = facts.media_type.name().split_once('/')?;
        // A tool may make several calls, each a process of its own.
        let (name, mut file) = loop {
            self.count += 1;
            let name = format!("{}.{extension}", self.count);
            match File::create_new(dir.join(&name)) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                file => break (name, file.ok()?),
            }
        };
        file.write_all(bytes).ok()?;
        Some(name)
    }

    fn save(&mut self, mime: Option<&str>, data: Option<&str>) -> Result<String> {
        let mime = mime.unwrap_or("application/octet-stream");
        let Some(mut bytes) = data.and_then(|data| STANDARD.decode(data.trim()).ok()) else {
            return Ok(format!("[{mime}: not valid base64]"));
        };
        if let Some(name) = self.attach(&bytes) {
            return Ok(format!(
                "[{mime}, {} bytes: attached as {name}]",
                with_commas(bytes.len())
            ));
        }
        self.secrets.redact(&mut bytes);
        let dir = match &self.dir {
            Some(dir) => dir.clone(),
            None => {
                let call = std::env::var(CALL_ID).ok().filter(|id| is_file_name(id));
                let name = format!("mcp-{}", call.unwrap_or_else(|| hex(12)));
                let parent = std::env::temp_dir();
                let dir = parent.join(files::make_unique_dir(&parent, &name)?);
                self.dir.insert(dir).clone()
            }
        };
        self.count += 1;
        let extension: String = mime
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        let path = dir.join(format!("{}.{extension}", self.count));
        files::write(&path, &bytes)?;
        Ok(format!(
            "[{mime}, {} bytes: {}]",
            with_commas(bytes.len()),
            path.display()
        ))
    }
}

fn is_file_name(id: &str) -> bool {
    !id.is_empty() && id.len() < 200 && !id.starts_with('.') && !id.contains(['/', '\0'])
}

fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn blocks_become_lines_and_structure_is_shown_where_there_is_no_text() {
        let read = |result: Value, structured| {
            let output =
                read_result(result.as_object().unwrap(), structured, Secrets::default()).unwrap();
            (output.text, output.is_error)
        };
        let both = json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b\n"},
            {"type": "resource_link", "name": "n", "uri": "file:///x"}],
            "structuredContent": {"k": [1]}});
        assert_eq!(
            read(both.clone(), false),
            ("a\nb\n\n[n: file:///x]".to_owned(), false)
        );
        assert_eq!(read(both, true), (r#"{"k":[1]}"#.to_owned(), false));
        let only = json!({"content": [], "structuredContent": {"k": 1}, "isError": true});
        assert_eq!(read(only, false), (r#"{"k":1}"#.to_owned(), true));
        let asks = json!({"resultType": "input_required",
            "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "Name?"}}}});
        let error = read_result(asks.as_object().unwrap(), false, Secrets::default()).unwrap_err();
        assert!(error.message.contains("who: Name?"), "{error}");
    }
}
