//! A text that a person writes in an editor: `$VISUAL`, `$EDITOR`, else `vi`.
//!
//! Unaware of what the text is for.

use super::files;
use super::process;
use crate::error::{At, Error, Result, reason};
use std::path::Path;

/// The longest draft, in bytes.
const LONGEST: u64 = 1 << 20;

/// Opens an editor on a file of its own at `path`, which begins with `text`. Returns what was written; None if that is
/// empty.
pub(crate) fn edit_draft(path: &Path, text: &str) -> Result<Option<String>> {
    let names = ["VISUAL", "EDITOR"].into_iter();
    let mut editors = names.filter_map(|name| std::env::var(name).ok());
    let editor = editors
        .find(|words| !words.trim().is_empty())
        .unwrap_or_else(|| "vi".to_owned());
    files::remove(path)?;
    files::write(path, text.as_bytes())?;
    let words = shlex::split(&editor).filter(|words| !words.is_empty());
    let mut argv = words.ok_or_else(|| Error::usage(format!("'{editor}' is not a command")))?;
    argv.push(path.to_string_lossy().into_owned());
    let ended = process::run_in_foreground(&argv)
        .map_err(|e| Error::failure(format!("cannot start {}: {}", argv[0], reason(&e))))?;
    let file = files::open_readable(path).at("read", path)?;
    let bytes = files::read_limited(file, LONGEST).at("read", path)?;
    files::remove(path)?;
    let text = String::from_utf8(bytes).map_err(|_| Error::usage("the draft is not UTF-8"))?;
    if !ended.success() {
        return Err(Error::failure(format!(
            "{} failed; nothing was sent",
            argv[0]
        )));
    }
    let text = text.trim_end_matches('\n').to_owned();
    Ok((!text.trim().is_empty()).then_some(text))
}
