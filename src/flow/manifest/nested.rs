//! Flows within a flow: where they are, that they can be loaded, and their files.
//!
//! Unaware of what runs in them.

use super::items::key_path;
use super::node::NodeDraft;
use super::problem::{Code, FlowProblem, Manifest};
use std::path::{Path, PathBuf};

/// Flows below one another.
const DEEPEST: usize = 16;

/// What the flows within a flow bring.
#[derive(Debug, Default)]
pub(super) struct NestedFlows {
    /// By node; none where none is said, or it is wrong.
    pub homes: Vec<Option<PathBuf>>,
    /// Their files, by absolute path.
    pub files: Vec<PathBuf>,
    /// What is wrong in them.
    pub problems: Vec<FlowProblem>,
}

/// Finds the flows that nodes name. `above` has the directories of the flows around them, the own one last. `load` loads
/// one, and says which files it has and what is wrong in it.
pub(super) fn load_inner_flows(
    manifest: &mut Manifest,
    drafts: &[NodeDraft],
    above: &[PathBuf],
    mut load: impl FnMut(&str, &Path) -> (Vec<PathBuf>, Vec<FlowProblem>),
) -> NestedFlows {
    let mut nested = NestedFlows::default();
    for draft in drafts {
        let mut home = None;
        if let Some(text) = draft.flow.as_deref() {
            match find(text, above) {
                Ok(found) => home = Some((text, found)),
                Err((code, why)) => {
                    let message = format!("node \"{}\": flow: {why}", draft.id);
                    let at = key_path(&draft.at, "flow");
                    manifest.add(code, vec![draft.id.clone()], &at, message);
                }
            }
        }
        let is_known = |home: &PathBuf| nested.homes.iter().flatten().any(|known| known == home);
        if let Some((text, home)) = home.as_ref().filter(|(_, home)| !is_known(home)) {
            let (files, problems) = load(text, home);
            nested.files.extend(files);
            nested.problems.extend(problems);
        }
        nested.homes.push(home.map(|(_, home)| home));
    }
    nested
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
