//! Lines that were typed, in a file: a JSON string on each line, so that any number of processes can add to it.
//!
//! Unaware of what the lines mean. Nothing depends on them.

use super::files;
use crate::error::{At, Result, ignore};
use crate::text::json;
use std::io::Write;
use std::path::PathBuf;

/// A larger file is cut to its newest lines.
const LARGEST: u64 = 1 << 20;

pub(crate) struct LineHistory {
    pub path: PathBuf,
}

impl LineHistory {
    /// The newest lines, oldest first; none without the file.
    ///
    /// # Errors
    /// It cannot be read, or is no file.
    pub(crate) fn newest(&self, most: usize) -> Result<Vec<String>> {
        let opened = files::open_unlinked(&self.path).if_there();
        let Some(file) = opened.at("read", &self.path)? else {
            return Ok(Vec::new());
        };
        let length = file.metadata().at("read", &self.path)?.len();
        let start = length.saturating_sub(LARGEST);
        let part = files::read_part(&file, start, LARGEST as usize).at("read", &self.path)?;
        let text = String::from_utf8_lossy(&part);
        let mut lines: Vec<String> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        lines.drain(..lines.len().saturating_sub(most));
        if start > 0 {
            let kept: String = lines.iter().map(|line| json_line(line)).collect();
            ignore(files::replace_shared(&self.path, kept.as_bytes()));
        }
        Ok(lines)
    }

    /// Adds a line, in a file that only this user can read.
    pub(crate) fn add(&self, line: &str) {
        let made = self.path.parent().map_or(Ok(()), files::make_dirs);
        let file = made.and_then(|()| files::append(&self.path));
        let line = json_line(line);
        ignore(file.and_then(|mut file| file.write_all(line.as_bytes()).at("write", &self.path)));
    }
}

fn json_line(line: &str) -> String {
    format!("{}\n", json::text(line))
}
