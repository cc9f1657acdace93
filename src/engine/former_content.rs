//! The former content of a file that a tool of the coder was writing in place when it was killed.
//!
//! Architecture invariant: the tool itself puts it back, in its wrapper, so that the engine writes nothing where a tool chose.

use super::outbox;
use super::run_context::RunContext;
use crate::config::tool::definition::Tool;
use crate::error::ignore;
use crate::text::call_line::OWN_TOOLS;
use crate::unix::files::{in_memory, read_below};
use crate::unix::process::{Command, Ended, run_to_the_end};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// The file that holds it, in the directory for attachments, which takes no name with a dot.
pub(crate) const BEFORE: &str = ".before";

/// The limit of what is put back.
const LIMIT: u64 = 1 << 30;

/// Puts the former content back, if a call left any in the directory of its execution. Returns a line for the model.
pub(crate) fn restore(
    ctx: &RunContext<'_>,
    tool: &Tool,
    argv: &[String],
    dir: &Path,
) -> Option<String> {
    let own = argv
        .windows(OWN_TOOLS.len())
        .position(|words| words == OWN_TOOLS)?;
    let after = own + OWN_TOOLS.len();
    let [name, path, ..] = argv.get(after..)? else {
        return None;
    };
    if !["edit", "write"].contains(&name.as_str()) {
        return None;
    }
    let kept = Path::new(outbox::DIR).join(BEFORE);
    let former = read_below(dir, &kept, LIMIT).ok()?;
    let words = [&argv[..after], &["write".to_owned(), path.clone()]].concat();
    let written = write(ctx, tool, &words, &former);
    Some(match written {
        Some(Ended::Exited(0)) => {
            ignore(std::fs::remove_file(dir.join(&kept)));
            format!("[it was killed while it wrote; {path} has its former content again]")
        }
        _ => {
            let kept = dir.join(kept);
            format!(
                "[it was killed while it wrote; the former content of {path} is in {}]",
                kept.display()
            )
        }
    })
}

fn write(ctx: &RunContext<'_>, tool: &Tool, argv: &[String], bytes: &[u8]) -> Option<Ended> {
    let null = || File::options().write(true).open("/dev/null").ok();
    let command = Command {
        argv,
        dir: &ctx.workspace.root,
        env: &ctx.tool_variables(tool),
        call_id: &RunContext::new_call_id(),
        stdin: Some(in_memory(bytes).ok()?),
        stdout: null()?,
        stderr: null()?,
        timeout: Some(Duration::from_secs(60)),
    };
    let outcome = run_to_the_end(&ctx.signals, command, Duration::ZERO);
    outcome.ok().map(|outcome| outcome.how)
}
