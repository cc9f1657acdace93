//! Agents that are directories of their own.

use super::asked::AskedModel;
use super::problem::{Code, FlowProblem};
use crate::config::agent::Severity;
use crate::config::load;
use std::path::Path;

/// Reads one: whom it asks, and what is wrong with its files, which is wrong with the flow, too. `shown`
/// says how messages call a file of the flow.
pub(super) fn read_agent_directory(
    id: &str,
    dir: &Path,
    home: &Path,
    shown: impl Fn(&str) -> String,
) -> (AskedModel, Vec<FlowProblem>) {
    let name = dir.strip_prefix(home).unwrap_or(dir);
    let shown = shown(&name.display().to_string());
    let (agent, problems) = load::load(dir);
    let mut all = Vec::new();
    for problem in problems {
        let file = problem.file.strip_prefix(&*dir.to_string_lossy());
        let file = file.unwrap_or(&problem.file).trim_start_matches('/');
        let code = match problem.severity {
            Severity::Error => Some(Code::ManifestInvalid),
            Severity::Warning | Severity::Deprecation => None,
            Severity::Advice => continue,
        };
        all.push(FlowProblem {
            code,
            ids: vec![id.to_owned()],
            file: name.join(file).display().to_string(),
            shown: Path::new(&shown).join(file).display().to_string(),
            line: problem.line,
            column: problem.column,
            message: format!("agent \"{id}\": {}", problem.message),
        });
    }
    let asked = agent.map(|agent| AskedModel::by_directory(&agent.llm));
    (asked.unwrap_or_default(), all)
}
