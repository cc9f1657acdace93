//! The result of a call, as it goes to stdout.

use super::protocol::{member, parsed};
use super::servers::Secrets;
use crate::error::{Error, Result};
use crate::record::attachments::head::recognize;
use crate::record::blobs::LARGEST;
use crate::text::amounts::grouped;
use crate::text::disguise::indented;
use crate::text::ids::hex;
use crate::text::json::{self, Members};
use crate::unix::files;
use crate::unix::procfs::CALL_ID;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use serde_json::value::RawValue;
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
    result: &Members,
    structured_only: bool,
    secrets: Secrets,
) -> Result<CallOutput> {
    match member(result, "resultType").as_str() {
        None | Some("complete") => {}
        Some("input_required") => return Err(Error::failure(indented(&input_wanted(result)))),
        Some(other) => {
            return Err(Error::failure(format!(
                "the server answered with a result of type {other:?}"
            )));
        }
    }
    let is_error = member(result, "isError") == true;
    let some = |key| result.get(key).filter(|json| *json != "null");
    let structured = some("structuredContent").map(json::minified);
    let output = |text| Ok(CallOutput { text, is_error });
    if let Some(text) = structured.clone().filter(|_| structured_only) {
        return output(text);
    }
    let mut files = BlobFiles {
        dir: None,
        count: 0,
        secrets,
    };
    // The name of the revision 2024-10-07.
    let content = some("content").or_else(|| some("toolResult"));
    let texts = content.map_or(Ok(Vec::new()), |json| files.show_all(json))?;
    if texts.iter().any(|text| !text.trim().is_empty()) {
        return output(texts.join("\n"));
    }
    // Not nothing where the server has put its answer somewhere else.
    let others = || {
        let known = ["content", "isError", "resultType", "_meta"];
        String::from_utf8(result.only(|name| !known.contains(&name)))
            .ok()
            .filter(|text| text != "{}")
            .map(|text| json::minified(&text))
    };
    let error = || is_error.then(|| "the tool reports an error without a message".to_owned());
    let text = structured.or_else(others).or_else(error);
    output(text.unwrap_or_else(|| texts.join("\n")))
}

/// The error about input that a server asks of a person, with its questions, a line each.
pub(crate) fn input_wanted(result: &Members) -> String {
    let requests = member(result, "inputRequests");
    let prompts = requests
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, request)| {
            let message = request["params"]["message"].as_str();
            format!("\n{key}: {}", message.unwrap_or("no message"))
        });
    let prompts: String = prompts.collect();
    format!("the tool needs input of a person, which cannot be given here; it asks:{prompts}")
}

/// The directory of a call's blobs, made with the first one.
struct BlobFiles {
    dir: Option<PathBuf>,
    count: usize,
    /// Base64 hides them.
    secrets: Secrets,
}

impl BlobFiles {
    /// Content as JSON: a list of blocks, or one.
    fn show_all(&mut self, json: &str) -> Result<Vec<String>> {
        match serde_json::from_str::<Vec<&RawValue>>(json) {
            Ok(blocks) => blocks.iter().map(|block| self.show(block.get())).collect(),
            Err(_) => Ok(vec![self.show(json)?]),
        }
    }

    /// One block. What is not known is shown as it was written.
    fn show(&mut self, json: &str) -> Result<String> {
        let block = parsed(json);
        let text = |pointer: &str| block.pointer(pointer).and_then(Value::as_str);
        let (shown, mime, data) = match text("/type") {
            Some("text") => (text("/text"), None, None),
            Some("image" | "audio") => (None, text("/mimeType"), text("/data")),
            Some("resource_link") => {
                let name = text("/name").unwrap_or("resource");
                let link = |uri: &str| format!("[{name}: {uri}]");
                return Ok(text("/uri").map_or_else(|| json::minified(json), link));
            }
            Some("resource") => {
                let blob = (text("/resource/mimeType"), text("/resource/blob"));
                (text("/resource/text"), blob.0, blob.1)
            }
            _ => (block.as_str(), None, None),
        };
        match (shown, data) {
            (Some(text), _) => Ok(text.to_owned()),
            (None, Some(data)) => self.save(mime, data),
            (None, None) => Ok(json::minified(json)),
        }
    }

    /// Puts a picture or a document into the directory for attachments, if there is one. Returns its name.
    fn attach(&mut self, bytes: &[u8]) -> Option<String> {
        let dir = PathBuf::from(std::env::var_os("DELTA_ATTACH")?);
        let facts = recognize(bytes).filter(|_| bytes.len() as u64 <= LARGEST)?;
        let (_, extension) = facts.media_type.name().split_once('/')?;
        // A tool may make several calls, each a process of its own.
        loop {
            self.count += 1;
            let name = format!("{}.{extension}", self.count);
            match File::create_new(dir.join(&name)) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                file => return file.ok()?.write_all(bytes).ok().map(|()| name),
            }
        }
    }

    fn save(&mut self, mime: Option<&str>, data: &str) -> Result<String> {
        let url = data
            .strip_prefix("data:")
            .and_then(|rest| rest.split_once(";base64,"));
        let (named, encoded) = url.map_or((None, data), |(mime, data)| (Some(mime), data));
        let mime = mime.or(named).unwrap_or("application/octet-stream");
        let Some(mut bytes) = decoded(encoded) else {
            return Ok(format!("[{mime}: not valid base64]"));
        };
        let size = grouped(bytes.len() as u64);
        if let Some(name) = self.attach(&bytes) {
            return Ok(format!("[{mime}, {size} bytes: attached as {name}]"));
        }
        self.secrets.redact(&mut bytes);
        let dir = match &self.dir {
            Some(dir) => dir,
            None => {
                let call = std::env::var(CALL_ID).ok().filter(|id| is_file_name(id));
                let name = format!("mcp-{}", call.unwrap_or_else(|| hex(12)));
                let parent = std::env::temp_dir();
                let dir = parent.join(files::make_unique_dir(&parent, &name)?);
                &*self.dir.insert(dir)
            }
        };
        self.count += 1;
        let kind = mime.rsplit('/').next().unwrap_or("");
        let end = kind
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(kind.len());
        let path = dir.join(format!("{}.{}", self.count, &kind[..end]));
        files::write(&path, &bytes)?;
        Ok(format!("[{mime}, {size} bytes: {}]", path.display()))
    }
}

/// Base64 in either alphabet, over any number of lines, padded or not.
fn decoded(data: &str) -> Option<Vec<u8>> {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true);
    let plain = data.replace('-', "+").replace('_', "/");
    let is_data = |c: &char| !c.is_ascii_whitespace() && *c != '=';
    GeneralPurpose::new(&STANDARD, config)
        .decode(plain.chars().filter(is_data).collect::<String>())
        .ok()
}

fn is_file_name(id: &str) -> bool {
    !id.is_empty() && id.len() < 200 && !id.starts_with('.') && !id.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(result: &str, structured: bool) -> (String, bool) {
        let result = serde_json::from_str(result).unwrap();
        let output = read_result(&result, structured, Secrets::default()).unwrap();
        (output.text, output.is_error)
    }

    #[test]
    fn blocks_become_lines_and_structure_is_shown_where_there_is_no_text() {
        let both = r#"{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b\n"},
            {"type": "resource_link", "name": "n", "uri": "file:///x"}],
            "structuredContent": {"k": [1.0, 1e999, 25000000000000000000001]}}"#;
        let structure = r#"{"k":[1.0,1e999,25000000000000000000001]}"#;
        assert_eq!(read(both, false).0, "a\nb\n\n[n: file:///x]");
        assert_eq!(read(both, true).0, structure);
        for (result, text) in [
            (
                r#"{"content": [], "structuredContent": {"k": 1}}"#,
                r#"{"k":1}"#,
            ),
            (
                r#"{"content": [{"type": "text", "text": ""}, "\n"], "structuredContent": [1.10]}"#,
                "[1.10]",
            ),
            (r#"{"content": "a"}"#, "a"),
            (
                r#"{"content": ["a", {"type": "text", "text": "b"}]}"#,
                "a\nb",
            ),
            (r#"{"content": {"type": "text", "text": "a"}}"#, "a"),
            (
                r#"{"content": [{"type": "new", "n": 1e999}]}"#,
                r#"{"type":"new","n":1e999}"#,
            ),
            (
                r#"{"content": [{"type": "text", "text": 5}]}"#,
                r#"{"type":"text","text":5}"#,
            ),
            (
                r#"{"content": [{"type": "image", "url": "u"}]}"#,
                r#"{"type":"image","url":"u"}"#,
            ),
            (r#"{"toolResult": "a"}"#, "a"),
            (r#"{"toolResult": {"n": 1.0}}"#, r#"{"n":1.0}"#),
            (
                r#"{"output": {"n": 1.0}, "_meta": {}}"#,
                r#"{"output":{"n":1.0}}"#,
            ),
            (r#"{"content": []}"#, ""),
            ("{}", ""),
        ] {
            assert_eq!(read(result, false), (text.to_owned(), false), "{result}");
        }
        let silent = "the tool reports an error without a message".to_owned();
        for result in [
            r#"{"isError": true}"#,
            r#"{"content": [], "isError": true}"#,
        ] {
            assert_eq!(read(result, false), (silent.clone(), true));
        }
        let asks = r#"{"resultType": "input_required",
            "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "Name?"}}}}"#;
        let asks = serde_json::from_str(asks).unwrap();
        let error = read_result(&asks, false, Secrets::default()).unwrap_err();
        assert!(error.message.contains("who: Name?"), "{error}");
    }

    #[test]
    fn base64_is_read_as_programs_write_it() {
        for data in ["+/9h", "-_9h", "+/\n9h\r\n", " +/9h ", "-_9h="] {
            assert_eq!(decoded(data).as_deref(), Some(&b"\xfb\xffa"[..]), "{data}");
        }
        for data in ["Zm8=", "Zm8", "Zm9"] {
            assert_eq!(decoded(data).as_deref(), Some(&b"fo"[..]), "{data}");
        }
        assert_eq!(decoded("a b c!"), None);
    }
}
