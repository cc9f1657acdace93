//! The record of connections: two lines of JSON for each, before anything passes and when it has ended.
//!
//! Unaware of requests.

use crate::text::{ids, json};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};

/// The record of connections, if there is one.
#[derive(Default)]
pub(super) struct ConnectionLog {
    file: Option<File>,
    /// True if the last line is not whole.
    is_torn: bool,
}

/// The beginning of a connection.
#[derive(Serialize)]
struct OpenLine<'r> {
    event: &'static str,
    id: &'r str,
    /// Empty for what was no request.
    host: &'r str,
    port: u16,
    allowed: bool,
}

/// The end of a connection that was allowed.
#[derive(Serialize)]
pub(super) struct CloseLine {
    pub event: &'static str,
    pub id: String,
    /// Bytes to the server, and from it.
    pub up: u64,
    pub down: u64,
    pub ms: u64,
    /// False: it led to an address that no door opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<bool>,
}

impl ConnectionLog {
    pub(super) fn new(file: Option<File>) -> Self {
        Self {
            file,
            is_torn: false,
        }
    }

    /// Records a connection, and returns the name by which its end refers to it.
    pub(super) fn open(&mut self, host: &str, port: u16, allowed: bool) -> io::Result<String> {
        let id = ids::hex(16);
        self.write(&OpenLine {
            event: "open",
            id: &id,
            host,
            port,
            allowed,
        })?;
        Ok(id)
    }

    pub(super) fn close(&mut self, line: &CloseLine) -> io::Result<()> {
        self.write(line)
    }

    fn write(&mut self, line: &impl Serialize) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let start = if self.is_torn { "\n" } else { "" };
        let text = format!("{start}{}\n", json::text(line));
        let written = file.write(text.as_bytes())?;
        self.is_torn = written < text.len();
        if self.is_torn {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}
