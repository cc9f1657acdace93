//! A run as one page of HTML that needs nothing beside itself: no network, no other file.
//!
//! Unaware of where the page goes. It is written as the journal is read, so that a run of any length
//! costs no more memory than its longest event.
//!
//! Architecture invariant: nothing that came from a model, a tool or a person becomes markup. It all
//! is in one block of data, one JSON object a line with every `<` escaped, that no browser runs,
//! and the page's script puts it into text nodes only. The policy at the top of the page forbids every
//! other script, every style but ours, and every connection.

mod changes;
mod files;
pub(super) mod writer;
mod events;
mod rows;

use crate::VERSION;
use crate::error::Result;
use crate::record::metadata::Metadata;
use crate::record::reader::Damage;
use crate::record::run_dir::RunDir;
use crate::text::packed::{packed, unpacked};
use rows::Renderer;
use std::path::PathBuf;
use std::sync::LazyLock;
use writer::Writer;

/// A text of more bytes is shown by its beginning and its end.
pub(crate) const LONGEST_TEXT: usize = 64 << 10;

/// Bytes of text in a page after which further texts are shortened to [`LATER_TEXT`].
pub(crate) const MOST_TEXT: usize = 24 << 20;

/// See [`MOST_TEXT`].
pub(crate) const LATER_TEXT: usize = 2 << 10;

static STYLE: LazyLock<String> = LazyLock::new(|| unpacked(packed!("report.css")));

/// The scripts beside it, joined by `build.rs`.
static SCRIPT: LazyLock<String> = LazyLock::new(|| unpacked(packed!("report.js")));

/// The hashes of [`STYLE`] and [`SCRIPT`] in the policy: SHA-256 in base64, checked by a test.
const STYLE_HASH: &str = include_str!("report/report.css.sha256");
const SCRIPT_HASH: &str = include_str!("report/report.js.sha256");

/// Takes a piece of the page. False: the reader is gone.
pub(crate) type Sink<'s> = dyn FnMut(&[u8]) -> Result<bool> + 's;

/// A journal that is shown up to a line that cannot be read.
#[derive(Debug)]
pub(crate) struct Damaged {
    /// The journal.
    pub path: PathBuf,
    /// The line.
    pub damage: Damage,
}

/// Writes the page about a run. Returns which journals are damaged.
pub(crate) fn write(run: &RunDir, summary: &Metadata, sink: &mut Sink<'_>) -> Result<Vec<Damaged>> {
    let mut renderer = Renderer::new(Writer::new(sink), run);
    // What is wrong with the run is known before anything has been printed.
    let (lines, rendered) = Renderer::open(run)?;
    renderer.writer.raw(&head(run.id.as_str(), SCRIPT_HASH))?;
    renderer.run(lines, rendered, summary)?;
    renderer.writer.raw(&tail(&SCRIPT))?;
    renderer.writer.end()?;
    Ok(renderer.damaged)
}

/// The beginning of a page, up to its data. `title` is a name without markup, and `script_hash` that of the page's script.
pub(super) fn head(title: &str, script_hash: &str) -> String {
    let (style_hash, script_hash) = (STYLE_HASH.trim_end(), script_hash.trim_end());
    let style = &*STYLE;
    format!(
        r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-{script_hash}'; style-src 'sha256-{style_hash}'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="delta {VERSION}">
<link rel="icon" href="data:,">
<title>{title} – delta report</title>
<style>{style}</style>
</head>
<body>
<noscript>This page needs its own script. <code>delta log</code> shows a run as text.</noscript>
<script type="application/json" id="data">
"#
    )
}

/// The end of a page, after its data.
pub(super) fn tail(script: &str) -> String {
    format!("</script>\n<script>{script}</script>\n</body>\n</html>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// By the system's own program; none if it has none.
    fn hash(text: &str) -> Option<String> {
        let mut child = Command::new("sha256sum")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        child.stdin.take()?.write_all(text.as_bytes()).ok()?;
        let printed = child.wait_with_output().ok()?.stdout;
        let hex = std::str::from_utf8(printed.get(..64)?).ok()?;
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).ok();
        Some(base64(
            &(0..64).step_by(2).map(byte).collect::<Option<Vec<u8>>>()?,
        ))
    }

    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut out = String::new();
        for group in bytes.chunks(3) {
            let bits = group
                .iter()
                .fold(0, |bits: u32, byte| bits << 8 | u32::from(*byte))
                << (8 * (3 - group.len()));
            for digit in 0..4 {
                let shown = digit <= group.len();
                let index = bits >> (18 - 6 * digit) & 63;
                out.push(if shown {
                    char::from(DIGITS[index as usize])
                } else {
                    '='
                });
            }
        }
        out
    }

    #[test]
    fn the_policy_allows_the_style_and_the_script_of_the_page() {
        for (name, text, hash_told) in [
            ("report.css", &STYLE, STYLE_HASH),
            ("report.js", &SCRIPT, SCRIPT_HASH),
            (
                "evaluation.js",
                &super::super::evaluation_page::SCRIPT,
                super::super::evaluation_page::SCRIPT_HASH,
            ),
        ] {
            let Some(right) = hash(text) else {
                return;
            };
            assert_eq!(hash_told.trim_end(), right, "src/page/{name}.sha256");
        }
    }

    #[test]
    fn the_assets_cannot_end_their_own_elements() {
        for asset in [&STYLE, &SCRIPT, &super::super::evaluation_page::SCRIPT] {
            assert!(!asset.contains("</") && !asset.contains("<!--") && !asset.contains('\r'));
        }
    }
}
