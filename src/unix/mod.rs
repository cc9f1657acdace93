//! The operating system: files, processes, signals, the terminal, the sandbox.
//!
//! Unaware of runs, agents and models.

pub(crate) mod files;
pub(crate) mod programs;
pub(crate) mod file_or_pipe;
pub(crate) mod writers;
pub(crate) mod replaced;
pub(crate) mod trees;
pub(crate) mod new_files;
pub(crate) mod own_program;
pub(crate) mod origin;
pub(crate) mod git_dir;
pub(crate) mod git_program;
pub(crate) mod executed_files;
pub(crate) mod procfs;
pub(crate) mod session_leader;
pub(crate) mod signals;
pub(crate) mod process;
pub(crate) mod secret;
pub(crate) mod devices;
pub(crate) mod landlock;
pub(crate) mod seccomp;
pub(crate) mod namespaces;
pub(crate) mod left_behind;
pub(crate) mod supervisor;
pub(crate) mod timed_output;
pub(crate) mod terminal;
pub(crate) mod unread_stdin;
pub(crate) mod doors;
pub(crate) mod typed;
pub(crate) mod line_editor;
pub(crate) mod line_history;
pub(crate) mod draft;
pub(crate) mod locks;
pub(crate) mod wait_line;
pub(crate) mod pager;
pub(crate) mod defect;
