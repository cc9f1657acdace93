//! `edit`: one text in a file becomes another, and nothing else in the file changes.

use super::change::{CR_NOTE, CR_SIGN, diff, has_lone_cr, replaced, shortened};
use super::folded::{Fold, Folded, folded_wanted};
use super::matching::{Matches, Tolerance, occurrences, search};
use super::not_found::lines_for;
use super::target::{self, TargetFile, ToolRefusal};
use crate::text::amounts::counted;
use crate::text::shorten::MOST_LISTED;

/// A file that is larger than this is no text that a person wrote.
pub(super) const LARGEST: u64 = 64 << 20;

/// The number of places whose lines are shown.
const SHOWN_PLACES: usize = 5;

/// An edit as the model asks for it.
#[derive(Debug)]
pub(super) struct Edit<'a> {
    pub path: &'a str,
    pub old: &'a str,
    pub new: &'a str,
    /// Replace `old` wherever it is.
    pub all: bool,
}

/// Changes the file, and returns the answer for the model.
pub(super) fn edit_file(edit: &Edit<'_>) -> Result<String, ToolRefusal> {
    let path = edit.path;
    let target = TargetFile::existing(path, "to make a new file, use write")?;
    if edit.old.is_empty() {
        return Err(ToolRefusal(
            "old is empty; give the text to replace, or use write for the whole file".to_owned(),
        ));
    }
    let text = String::from_utf8(target.read(LARGEST)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        ToolRefusal(format!(
            "{path} is not UTF-8 (byte {at}); nothing was written. Change it with a command in bash"
        ))
    })?;
    let noted = |answer: String| {
        let has_sign = answer.contains(CR_SIGN) || edit.old.contains(CR_SIGN);
        if has_sign && (has_lone_cr(&text) || has_lone_cr(edit.new)) {
            format!("{}\n[{CR_NOTE}]", answer.trim_end_matches('\n'))
        } else {
            answer
        }
    };
    match changed_text(&text, edit).map_err(|refusal| ToolRefusal(noted(refusal.0)))? {
        Changed::Now(new_text, answer) => {
            target.replace(new_text.as_bytes())?;
            Ok(noted(answer))
        }
        Changed::Before(answer) => Ok(answer),
    }
}

/// The diff that an edit would make; none if it would make none.
pub(super) fn preview_edit(edit: &Edit<'_>) -> Option<String> {
    let target = TargetFile::existing(edit.path, "").ok()?;
    let text = String::from_utf8(target.read(LARGEST).ok()?).ok()?;
    match changed_text(&text, edit).ok()? {
        Changed::Now(_, answer) => answer.split_once('\n').map(|(_, diff)| diff.to_owned()),
        Changed::Before(_) => None,
    }
}

#[derive(Debug)]
enum Changed {
    /// The new text, and the answer.
    Now(String, String),
    /// Nothing is left to do.
    Before(String),
}

fn changed_text(text: &str, edit: &Edit<'_>) -> Result<Changed, ToolRefusal> {
    let path = edit.path;
    if edit.old == edit.new {
        return Err(ToolRefusal(format!(
            "old and new are the same; nothing was written to {path}. new is the text that replaces old. {}",
            lines_for(text, edit.old)
        )));
    }
    match search(text, edit.old, edit.new, edit.all) {
        Matches::Found(places, tolerance) => {
            let new_text = replaced(text, &places);
            let line = target::line_at(text, places[0].range.start);
            let count = match places.len() {
                1 => format!("at line {line}"),
                many => format!("{many} places, the first at line {line}"),
            };
            let note = tolerance.described().map_or_else(String::new, |what| {
                format!("; {what} of old did not match the file and were not compared")
            });
            if new_text == text {
                return Err(ToolRefusal(format!(
                    "{path} has new there already, but for line ends; nothing was written"
                )));
            }
            let diff = diff(text, &places);
            Ok(Changed::Now(
                new_text,
                format!("edited {path}, {count}{note}\n{diff}"),
            ))
        }
        Matches::Several(starts, tolerance) => Err(several(text, edit, &starts, tolerance)),
        Matches::Nowhere => nowhere(text, edit),
    }
}

fn several(text: &str, edit: &Edit<'_>, starts: &[usize], tolerance: Tolerance) -> ToolRefusal {
    let numbers: Vec<usize> = starts
        .iter()
        .take(MOST_LISTED)
        .map(|at| target::line_at(text, *at))
        .collect();
    let listed: Vec<String> = numbers.iter().map(usize::to_string).collect();
    let more = if starts.len() > MOST_LISTED {
        ", …"
    } else {
        ""
    };
    let (how, remedy) = match tolerance.described() {
        None => (String::new(), ", or all: true"),
        Some(what) => (format!(" if {what} are not compared"), ""),
    };
    let mut different = numbers.clone();
    different.dedup();
    let shown = different.iter().take(SHOWN_PLACES).map(|number| {
        let line = text.lines().nth(number - 1).unwrap_or_default();
        format!("\n{number}: {}", shortened(line))
    });
    ToolRefusal(format!(
        "old is in {} {} times{how}, at lines {}{more}; nothing was written. Add lines before or after{remedy}:{}",
        edit.path,
        starts.len(),
        listed.join(", "),
        shown.collect::<String>()
    ))
}

fn nowhere(text: &str, edit: &Edit<'_>) -> Result<Changed, ToolRefusal> {
    let path = edit.path;
    let folded = Folded::new(text, Fold::LineEnds);
    let new = folded_wanted(edit.new, Fold::LineEnds);
    // A short text is also where no edit has put it.
    if new.chars().filter(|c| c.is_alphanumeric()).count() >= 16
        && let [at] = occurrences(&folded.text, &new).as_slice()
    {
        let line = target::line_at(&folded.text, *at);
        return Ok(Changed::Before(format!(
            "already done: {path} has new at line {line}, and old is not in it; nothing was written"
        )));
    }
    Err(ToolRefusal(format!(
        "old is not in {path} (of {}); nothing was written. Read the file again, copy, do not retype. {}",
        counted(text.lines().count(), "line"),
        lines_for(text, edit.old)
    )))
}
