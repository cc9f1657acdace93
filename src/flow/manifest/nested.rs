//! Flows within a flow, and their directories.
//!
//! Unaware of what runs in them.

use super::node::NodeSettings;
use super::problem::{Code, Manifest};
use std::path::{Path, PathBuf};

/// Flows below one another.
const DEEPEST: usize = 16;

/// Finds the flows that nodes name, each with the name of the first. `above` has the directories of the flows around
/// them, the own one last.
pub(super) fn find_inner_flows(
    manifest: &mut Manifest,
    nodes: &mut [NodeSettings],
    above: &[PathBuf],
) -> Vec<(String, PathBuf)> {
    let mut all: Vec<(String, PathBuf)> = Vec::new();
    for node in nodes {
        let Some(text) = node.flow_dir.clone() else {
            continue;
        };
        match find(&text, above) {
            Ok(home) => {
                node.flow = Some(home.clone());
                if all.iter().all(|(_, known)| *known != home) {
                    all.push((text, home));
                }
            }
            Err((code, why)) => {
                manifest.add_to(node.place(), "flow", Some(code), format!("flow: {why}"));
            }
        }
    }
    all
}

/// The directory of a flow that a node of another names.
fn find(text: &str, above: &[PathBuf]) -> Result<PathBuf, (Code, String)> {
    let own = above.last().map_or(Path::new("."), PathBuf::as_path);
    let home = own.join(text);
    let missing = |why: String| (Code::ManifestMissing, why);
    let home = std::fs::canonicalize(&home)
        .map_err(|e| missing(format!("cannot read {text}: {}", crate::error::reason(&e))))?;
    if !home.join("workflow.yaml").is_file() {
        return Err(missing(format!("{text} has no workflow.yaml")));
    }
    if home.to_str().is_none() {
        return Err(missing(format!(
            "the path of {text} is not UTF-8; rename it"
        )));
    }
    if above.contains(&home) {
        let why = format!("{text} is this flow, or one around it; it could go round for ever");
        return Err((Code::Cycle, why));
    }
    if above.len() > DEEPEST {
        return Err((
            Code::ManifestInvalid,
            format!("more than {DEEPEST} flows within one another"),
        ));
    }
    Ok(home)
}
