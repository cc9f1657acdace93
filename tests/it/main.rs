//! Black-box tests of the real binary: what it prints, sends, writes and leaves behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::wildcard_imports,
    reason = "the harness is the vocabulary of the tests"
)]
#![allow(
    clippy::format_push_string,
    clippy::format_collect,
    reason = "short strings"
)]
#![allow(
    clippy::print_stderr,
    reason = "a test that is skipped or fails says so"
)]

mod harness;

mod accept;
mod acp;
mod advice;
mod architecture;
mod api_choice;
mod attachments;
mod attachments_limits;
mod attachments_commands;
mod background_answers;
mod broken_agents;
mod budget;
mod chat;
mod check;
mod cli;
mod coder;
mod coder_edit;
mod compaction;
mod completion;
#[cfg(feature = "flow")]
mod completion_flow;
mod config;
mod confirm;
mod context;
mod damage;
mod deadline;
mod diff;
mod docs;
mod doors;
mod doors_runs;
mod due;
mod environment;
mod everyday;
mod example_approval;
mod example_batch;
mod example_cron;
mod example_hooks;
mod example_sub_agents;
mod examples;
mod expand;
mod export;
#[cfg(feature = "flow")]
mod flow_eval;
#[cfg(feature = "flow")]
mod flow_eval_load;
#[cfg(feature = "flow")]
mod flow_examples;
#[cfg(feature = "flow")]
mod flow_files;
mod feed;
mod flow_forged;
mod drivers;
mod effects;
#[cfg(feature = "flow")]
mod flow_agents;
#[cfg(feature = "flow")]
mod flow_derive;
#[cfg(feature = "flow")]
mod flow_answer;
#[cfg(feature = "flow")]
mod flow_answers;
#[cfg(feature = "flow")]
mod flow_graph;
#[cfg(feature = "flow")]
mod flow_hostile;
#[cfg(feature = "flow")]
mod flow_inputs;
#[cfg(feature = "flow")]
mod flow_inventory;
#[cfg(feature = "flow")]
mod flow_later;
#[cfg(feature = "flow")]
mod flow_load;
#[cfg(feature = "flow")]
mod flow_observe;
#[cfg(feature = "flow")]
mod flow_policy;
#[cfg(feature = "flow")]
mod flow_providers;
#[cfg(feature = "flow")]
mod flow_context;
#[cfg(feature = "flow")]
mod flow_memory;
#[cfg(feature = "flow")]
mod flow_replay;
#[cfg(feature = "flow")]
mod flow_records;
#[cfg(feature = "flow")]
mod flow_repl;
#[cfg(feature = "flow")]
mod flow_resume;
#[cfg(feature = "flow")]
mod flow_retries;
#[cfg(feature = "flow")]
mod flow_run;
#[cfg(feature = "flow")]
mod flow_scheduling;
#[cfg(feature = "flow")]
mod flow_shown;
#[cfg(feature = "flow")]
mod flow_stopped;
#[cfg(feature = "flow")]
mod flow_stores;
#[cfg(feature = "flow")]
mod flow_table;
#[cfg(feature = "flow")]
mod flow_told;
#[cfg(feature = "flow")]
mod flow_tools;
#[cfg(feature = "flow")]
mod flow_nested;
#[cfg(feature = "flow")]
mod flow_nested_retry;
#[cfg(feature = "flow")]
mod flow_torture;
#[cfg(feature = "flow")]
mod flow_outputs;
#[cfg(feature = "flow")]
mod flow_retry;
#[cfg(feature = "flow")]
mod flow_winner;
#[cfg(feature = "flow")]
mod flow_program;
mod fallback;
mod fleet;
mod fork;
mod guards;
mod hooks;
mod human;
mod journal;
mod imports;
mod init;
mod install;
mod install_script;
mod large_answers;
mod later;
mod legacy;
mod less_to_look_up;
mod limits;
mod limits_kept;
mod line_editor;
mod links_in_the_way;
mod locks;
mod look;
mod manual;
mod mcp;
mod mcp_odd;
mod mcp_tasks;
mod model;
mod no_terminal;
mod old_runs;
mod outcomes;
mod pages;
mod proxies;
mod rate;
mod parallel;
mod recorder;
mod release;
mod replay;
mod report;
mod report_shown;
mod requests;
mod resume;
mod run;
mod same_call;
mod same_command;
mod sandbox;
mod sandbox_doors;
mod sandbox_protected;
mod sandbox_session;
mod schema;
mod seconds;
mod sessions;
mod sessions_safety;
mod sessions_traps;
mod setup;
mod shown_files;
mod signals;
mod skills;
mod stats;
mod stops;
mod subagents;
mod suspended;
mod tell;
mod tools;
mod torture;
mod trust;
mod typed_ahead;
mod values;
mod streams;
mod wires;
mod wires_events;
mod wires_kept;
mod wires_odd;
mod wires_pauses;
mod wires_prices;
mod wires_remedies;
mod wires_strict;
mod workspace;
mod workspace_env;
mod wrappers;
