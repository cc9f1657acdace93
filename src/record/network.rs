//! The connections of executions to hosts: `network.jsonl` in their directories, which `delta sandbox` writes.
//!
//! Unaware of how they are shown. In a copied run the file may hold anything: other lines are ignored.

use super::execution::NETWORK_LOG;
use crate::text::amounts::{counted, grouped};
use crate::unix::files;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;

/// The most bytes of a file that are read.
const LOG_BYTES: u64 = 8 << 20;

/// Further hosts of an execution are left out.
const LISTED_HOSTS: usize = 100;

/// A line of the file.
#[derive(Deserialize)]
struct ConnectionLine {
    host: String,
    port: u16,
    up: u64,
    down: u64,
    allowed: bool,
}

/// The connections to a host.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HostTraffic {
    pub host: String,
    pub port: u16,
    /// False: they were refused.
    pub allowed: bool,
    pub connections: u64,
    /// Bytes to the host, and from it.
    pub up: u64,
    pub down: u64,
}

/// The connections of an execution, by host, in the order of their ends.
pub(crate) fn read_traffic(run: &Path, reference: Option<&str>) -> Vec<HostTraffic> {
    let mut all = Vec::new();
    let path = reference.map(|reference| Path::new(reference).join(NETWORK_LOG));
    let file = path.and_then(|path| files::open_below(run, &path).ok());
    let mut bytes = Vec::new();
    if let Some(file) = file
        && file.take(LOG_BYTES).read_to_end(&mut bytes).is_ok()
    {
        for line in bytes.split(|byte| *byte == b'\n') {
            let Ok(line) = serde_json::from_slice::<ConnectionLine>(line) else {
                continue;
            };
            let traffic = HostTraffic {
                host: line.host,
                port: line.port,
                allowed: line.allowed,
                connections: 1,
                up: line.up,
                down: line.down,
            };
            add_traffic(&mut all, traffic);
        }
    }
    all
}

/// The same as lines of text.
pub(crate) fn traffic_in_words(run: &Path, reference: Option<&str>) -> String {
    let all = read_traffic(run, reference);
    let lines: Vec<String> = all.iter().map(HostTraffic::in_words).collect();
    lines.join("\n")
}

/// Adds connections to those of the same host.
pub(crate) fn add_traffic(all: &mut Vec<HostTraffic>, more: HostTraffic) {
    let is_same =
        |it: &HostTraffic| (&it.host, it.port, it.allowed) == (&more.host, more.port, more.allowed);
    match all.iter().position(is_same) {
        Some(index) => {
            let known = &mut all[index];
            known.connections = known.connections.saturating_add(more.connections);
            known.up = known.up.saturating_add(more.up);
            known.down = known.down.saturating_add(more.down);
        }
        None if all.len() < LISTED_HOSTS => all.push(more),
        None => {}
    }
}

impl HostTraffic {
    /// The host and its port, or what there was in place of a request.
    pub(crate) fn name(&self) -> String {
        match self.host.as_str() {
            "" => "no valid request".to_owned(),
            host => format!("{host}:{}", self.port),
        }
    }

    /// On one line.
    pub(crate) fn in_words(&self) -> String {
        let name = self.name();
        let many = counted(self.connections as usize, "connection");
        match self.allowed {
            true => {
                let (up, down) = (grouped(self.up), grouped(self.down));
                format!("{name}: {many}, {up} bytes up, {down} down")
            }
            false => format!("{name}: {many} refused"),
        }
    }
}
