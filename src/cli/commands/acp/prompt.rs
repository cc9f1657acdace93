//! The content of a prompt, as the message of a run.

use super::rpc::Rejection;
use crate::record::metadata::file_head;
use crate::text::ids::hex;
use crate::text::json;
use crate::text::names::last_part;
use crate::unix::files;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::path::PathBuf;

/// A message that a client sends.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    pub text: String,
    /// Pictures and documents, which are removed with this.
    pub files: Vec<PathBuf>,
    dir: Option<PathBuf>,
}

impl Prompt {
    /// The answer to a question.
    pub(super) fn answer(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            files: Vec::new(),
            dir: None,
        }
    }

    /// Reads the blocks of a prompt. Pictures and documents get files in a directory of their own.
    pub(super) fn read(blocks: &Value) -> Result<Self, Rejection> {
        let mut prompt = Self::default();
        let mut texts = Vec::new();
        let all = blocks.as_array();
        for block in all.ok_or_else(|| Rejection::invalid("prompt: expected a list"))? {
            texts.extend(prompt.text_of(block)?);
        }
        prompt.text = texts.join("\n\n");
        if prompt.text.trim().is_empty() && prompt.files.is_empty() {
            Err(Rejection::invalid("the prompt is empty"))
        } else {
            Ok(prompt)
        }
    }

    /// The text of a block. One without text becomes a file.
    fn text_of(&mut self, block: &Value) -> Result<Option<String>, Rejection> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let missing = || Rejection::invalid("prompt: a block lacks what its type needs");
        let kind = json::member_text(block, "type");
        let found = match kind {
            "text" => text(&block["text"]).ok_or_else(missing)?,
            "resource_link" => {
                let uri = text(&block["uri"]).ok_or_else(missing)?;
                let name = text(&block["name"]).unwrap_or_else(|| uri.clone());
                format!("[{name}]({uri})")
            }
            "resource" => {
                let resource = &block["resource"];
                let uri = text(&resource["uri"]).ok_or_else(missing)?;
                match text(&resource["text"]) {
                    Some(content) => file_head(&uri) + &content,
                    None => return self.add_file(&resource["blob"], &uri).map(|()| None),
                }
            }
            "image" => {
                let suffix = last_part(json::member_text(block, "mimeType"), '/');
                let name = format!("picture.{suffix}");
                return self.add_file(&block["data"], &name).map(|()| None);
            }
            _ => {
                let message = format!("prompt: blocks of type '{kind}' are not taken");
                return Err(Rejection::invalid(message));
            }
        };
        Ok(Some(found))
    }

    /// Writes bytes into a file that has the last part of this name, as far as that can be one.
    fn add_file(&mut self, base64: &Value, name: &str) -> Result<(), Rejection> {
        let bytes = base64
            .as_str()
            .and_then(|text| STANDARD.decode(text).ok())
            .ok_or_else(|| Rejection::invalid("prompt: a block is not base64"))?;
        let dir = match &self.dir {
            Some(dir) => dir.clone(),
            None => {
                let dir = std::env::temp_dir().join(format!("delta-{}", hex(12)));
                files::make_dir(&dir)?;
                self.dir.insert(dir).clone()
            }
        };
        let last = last_part(name, '/');
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let kept: String = last.chars().filter(|c| allowed(*c)).take(100).collect();
        let path = dir.join(format!("{}-{kept}", self.files.len() + 1));
        files::write(&path, &bytes)?;
        self.files.push(path);
        Ok(())
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        if let Some(dir) = &self.dir {
            crate::error::ignore(std::fs::remove_dir_all(dir));
        }
    }
}
