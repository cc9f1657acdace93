//! The connections of executions to hosts: `network.jsonl` in their directories, which `delta sandbox` writes.
//!
//! Unaware of how they are shown. In a copied run the file may hold anything: other lines are ignored.

use super::execution::NETWORK_LOG;
use crate::error::ignore;
use crate::text::amounts::{counted, grouped};
use crate::unix::files;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// The most bytes of a file that are read.
const LOG_BYTES: u64 = 8 << 20;

/// Further hosts of an execution are left out.
const LISTED_HOSTS: usize = 100;

/// A line of the file: the beginning of a connection, its end, or, of an earlier version, both.
#[derive(Deserialize)]
struct ConnectionLine {
    id: Option<String>,
    host: Option<String>,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    up: u64,
    #[serde(default)]
    down: u64,
    allowed: Option<bool>,
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

/// The connections of an execution, by host, in the order of their beginnings.
pub(crate) fn read_traffic(run: &Path, reference: Option<&str>) -> Vec<HostTraffic> {
    let path = reference.map(|reference| Path::new(reference).join(NETWORK_LOG));
    let file = path.and_then(|path| files::open_below(run, &path).ok());
    let mut bytes = Vec::new();
    if let Some(file) = file {
        ignore(file.take(LOG_BYTES).read_to_end(&mut bytes));
    }
    let mut all = Vec::new();
    for connection in read_connections(&bytes) {
        add_traffic(&mut all, connection);
    }
    all
}

/// The connections of a file, each by itself. One without an end has passed nothing that is known.
fn read_connections(bytes: &[u8]) -> Vec<HostTraffic> {
    let mut all: Vec<HostTraffic> = Vec::new();
    let mut open: HashMap<String, usize> = HashMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(line) = serde_json::from_slice::<ConnectionLine>(line) else {
            continue;
        };
        if let (Some(host), Some(allowed)) = (line.host, line.allowed) {
            open.extend(line.id.map(|id| (id, all.len())));
            all.push(HostTraffic {
                host,
                port: line.port,
                allowed,
                connections: 1,
                up: line.up,
                down: line.down,
            });
        } else if let Some(index) = line.id.and_then(|id| open.remove(&id)) {
            let known = &mut all[index];
            (known.up, known.down) = (line.up, line.down);
            known.allowed &= line.allowed != Some(false);
        }
    }
    all
}

/// The same as lines of text.
pub(crate) fn traffic_in_words(run: &Path, reference: Option<&str>) -> String {
    let lines: Vec<String> = read_traffic(run, reference)
        .iter()
        .map(HostTraffic::in_words)
        .collect();
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
        if self.allowed {
            let (up, down) = (grouped(self.up), grouped(self.down));
            format!("{name}: {many}, {up} bytes up, {down} down")
        } else {
            format!("{name}: {many} refused")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_connection_are_joined_and_those_of_earlier_versions_are_whole() {
        let lines = r#"
            {"event":"open","id":"1","host":"a.test","port":443,"allowed":true}
            {"event":"open","id":"2","host":"b.test","port":443,"allowed":false}
            {"event":"open","id":"3","host":"c.test","port":443,"allowed":true}
            {"event":"close","id":"1","up":5,"down":7,"ms":1}
            {"event":"close","id":"3","up":0,"down":0,"ms":1,"allowed":false}
            {"event":"close","id":"1","up":9,"down":9,"ms":1}
            {"event":"open","id":"4","ho
            {"event":"open","id":"5","host":"d.test","port":80,"allowed":true}
            {"host":"old.test","port":80,"up":1,"down":2,"ms":3,"allowed":true}"#;
        let found = read_connections(lines.as_bytes());
        let shown: Vec<String> = found.iter().map(HostTraffic::in_words).collect();
        assert_eq!(
            shown,
            [
                "a.test:443: 1 connection, 5 bytes up, 7 down",
                "b.test:443: 1 connection refused",
                "c.test:443: 1 connection refused",
                "d.test:80: 1 connection, 0 bytes up, 0 down",
                "old.test:80: 1 connection, 1 bytes up, 2 down",
            ]
        );
    }
}
