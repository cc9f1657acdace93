//! delta runs LLM agents: an agent is a directory, a tool is a command, the memory is a file.
//!
//! The modules are listed from the bottom up, in the order in which they are best read; each uses
//! only those above it.

pub mod error;
pub mod clock;
pub mod ids;
pub mod files;
pub mod sys;
pub mod exec;
pub mod json;
pub mod difference;
pub mod yaml;
pub mod nearest;
pub mod node;
pub mod tool;
pub mod words;
pub mod quoting;
pub mod script;
pub mod declared;
pub mod usage;
pub mod forms;
pub mod expand;
pub mod bind;
pub mod config;
pub mod dotenv;
pub mod environment;
pub mod event;
pub mod journal;
pub mod legacy;
pub mod state;
pub mod metadata;
pub mod conversation;
pub mod workspace;
pub mod rundir;
pub mod migrate;
pub mod observe;
pub mod invocations;
pub mod recording;
pub mod playback;
pub mod llm;
pub mod screen;
pub mod surroundings;
pub mod hooks;
pub mod human;
pub mod context;
pub mod action;
pub mod agent;
pub mod manual;
pub mod templates;
pub mod schemas;
pub mod args;
pub mod report;
pub mod commands;
pub mod help;
pub mod cli;
pub mod sessions;
