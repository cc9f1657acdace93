//! What root tasks begin with: one input, or a file with one on each line.
//!
//! A file is read as far as it is needed and no further. Unaware of what becomes of the inputs.

use crate::error::{At, Error, Result};
use crate::flow::graph::Payload;
use crate::text::json;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// The inputs that have not been taken.
#[derive(Debug)]
pub(crate) struct Inputs {
    source: InputSource,
    /// The number of the next one, from 1.
    next: usize,
}

#[derive(Debug)]
enum InputSource {
    One(Option<Payload>),
    /// With their numbers.
    Known(std::vec::IntoIter<(usize, Payload)>),
    Lines {
        reader: BufReader<File>,
        path: PathBuf,
        line: usize,
        /// Lines that have been taken may have changed since.
        may_differ: bool,
    },
}

impl Inputs {
    /// One input, or none at all.
    pub(crate) fn one(input: Option<Payload>) -> Self {
        let source = InputSource::One(input);
        Self { source, next: 1 }
    }

    /// Inputs that roots of these numbers had before.
    pub(crate) fn known(inputs: Vec<(usize, Payload)>) -> Self {
        let source = InputSource::Known(inputs.into_iter());
        Self { source, next: 1 }
    }

    /// The lines of a file; empty ones do not count. Those that have been taken may differ from what
    /// they were only if that is said.
    pub(crate) fn lines(path: &Path, may_differ: bool) -> Result<Self> {
        let reader = BufReader::new(File::open(path).at("read", path)?);
        let source = InputSource::Lines {
            reader,
            path: path.to_owned(),
            line: 0,
            may_differ,
        };
        Ok(Self { source, next: 1 })
    }

    /// Passes over so many: they have been taken before. `was` says whether an input is what it was.
    ///
    /// # Errors
    /// A line of the file is not; or those of [`Self::take`].
    pub(crate) fn pass_over(
        &mut self,
        count: usize,
        was: impl Fn(usize, &Payload) -> bool,
    ) -> Result<()> {
        for _ in 0..count {
            let Some((number, input)) = self.take()? else {
                break;
            };
            if let InputSource::Lines {
                path,
                line,
                may_differ: false,
                ..
            } = &self.source
                && !was(number, &input)
            {
                let path = path.display();
                return Err(Error::config(format!(
                    "{path}:{line}: T{number} began with another input; lines can be added, but those \
                     that have been taken must stay as they were (or: --changed ok)"
                )));
            }
        }
        Ok(())
    }

    /// The next input and its number.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is not JSON.
    pub(crate) fn take(&mut self) -> Result<Option<(usize, Payload)>> {
        let input = match &mut self.source {
            InputSource::One(input) => input.take(),
            InputSource::Known(inputs) => return Ok(inputs.next()),
            InputSource::Lines {
                reader, path, line, ..
            } => read_input_line(reader, path, line)?,
        };
        let number = self.next;
        Ok(input.map(|input| {
            self.next += 1;
            (number, input)
        }))
    }
}

fn read_input_line(
    reader: &mut BufReader<File>,
    path: &Path,
    number: &mut usize,
) -> Result<Option<Payload>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        *number += 1;
        let wrong = |what: String| {
            let path = path.display();
            Err(Error::usage(format!(
                "{path}:{number}: {what}; each line is one input"
            )))
        };
        if reader.read_until(b'\n', &mut line).at("read", path)? == 0 {
            return Ok(None);
        }
        let Ok(text) = std::str::from_utf8(&line) else {
            return wrong("not UTF-8".to_owned());
        };
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        return match json::check(text) {
            Ok(()) => Ok(Some(text.into())),
            Err(error) => wrong(format!(
                "not JSON: {}",
                crate::text::json::parser_words(&error)
            )),
        };
    }
}
