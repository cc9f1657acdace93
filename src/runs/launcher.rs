//! The launcher of this process: the variables by which batch systems name a job, and tracers a span.

use crate::text::order;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Variables of Slurm, PBS, LSF, and of Kubernetes as far as a pod gets its own name.
const NAMES: [&str; 9] = [
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_RESTART_COUNT",
    "PBS_JOBID",
    "PBS_ARRAY_INDEX",
    "LSB_JOBID",
    "LSB_JOBINDEX",
    "POD_NAME",
    "POD_NAMESPACE",
];

const PREFIX: &str = "SLURM_ARRAY_";

/// No batch system has longer names.
const LONGEST: usize = 256;

/// The header by which W3C's programs hand on the span that they are in.
static TRACEPARENT: LazyLock<Option<String>> = LazyLock::new(|| {
    let value = std::env::var("TRACEPARENT").ok()?;
    let is_header = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    (!value.is_empty() && value.len() <= LONGEST && value.bytes().all(is_header)).then_some(value)
});

/// The span that this process is a part of, if the variable `TRACEPARENT` may name one.
pub(super) fn traceparent() -> Option<&'static str> {
    TRACEPARENT.as_deref()
}

/// True for a variable that names a job.
pub(super) fn is_launcher_variable(name: &str) -> bool {
    NAMES.contains(&name) || name.starts_with(PREFIX)
}

/// The variables of this process, sorted by name. Others of a batch system may be secrets.
pub(super) fn launcher_variables() -> Map<String, Value> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        (is_launcher_variable(&name) && value.len() <= LONGEST).then_some((name, value))
    });
    let mut sorted: Vec<_> = variables.collect();
    order::sort(&mut sorted);
    sorted
        .into_iter()
        .map(|(name, value)| (name, Value::from(value)))
        .collect()
}
