//! The rows of options that several commands have, one a line.

use crate::text::options::table::ValueKind::{
    Directory, File, Number, Other, Pair, Text, Workspace,
};
use crate::text::options::table::{FEED_FORMATS, OptionRow, flag, valued};

pub(super) const ENGINE: &[OptionRow] = &[
    valued("", "--max-iterations", "N", Number(1), "stop after N iterations"),
    valued("", "--budget", "KEY=N", Other, "replace the budget for this start: cost=3,tokens=500000"),
    valued("", "--deadline", "TIME", Other, "end before TIME: RFC 3339, epoch seconds, or +90m"),
    flag("-i", "--interactive", "ask questions at the terminal (default of a named agent there)"),
    flag("", "--no-input", "ask no question at the terminal"),
    flag("-v", "--verbose", "show what the model and the tools say"),
    flag("-q", "--quiet", "print nothing but the result, warnings and errors"),
];

pub(super) const FEED: &[OptionRow] = &[
    valued("", "--format", "", FEED_FORMATS, "print text (default), one JSON object, or every event as it is recorded"),
    flag("", "--deltas", "with --format jsonl: print the text of answers as it arrives, too"),
];

pub(super) const BELOW: OptionRow = valued("-r", "--recursive", "DIR", Directory, "all runs below DIR, whatever the workspace").repeatable();
pub(super) const SET: OptionRow = valued("", "--set", "KEY=VALUE", Pair, "override a key of agent.yaml for this run").repeatable();
pub(super) const OUTPUT_SCHEMA: OptionRow = valued("", "--output-schema", "FILE", File, "require an answer that fits this JSON Schema");
pub(super) const ACCEPT: OptionRow = valued("", "--accept", "COMMAND", Text, "require that COMMAND, for sh -c, accepts the answer").repeatable();
pub(super) const MODEL: OptionRow = valued("-M", "--model", "NAME", Text, "ask this model: --set llm.model=NAME");
pub(super) const FILE: OptionRow = valued("-f", "--file", "FILE", File, "put FILE into the message: text, a picture or a PDF").repeatable();
pub(super) const ADOPT: OptionRow = flag("", "--adopt", "trust the records of a copied or cloned workspace");
pub(super) const OPEN_HOST: OptionRow = valued("", "--allow-host", "NAME[:PORT]", Other, "open this host to tools that have no network").repeatable();
pub(super) const AGENT_OF_RUN: OptionRow = valued("-a", "--agent", "AGENT", Directory, "run @NAME, or the agent in a directory or a file NAME.md (default: the run's own)");
pub(super) const WORK_DIR: OptionRow = valued("-w", "--work-dir", "DIR", Workspace, "the workspace (default: the current directory)");
