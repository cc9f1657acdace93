//! An agent's files, loaded and checked: `agent.yaml`, `context.yaml`, `hooks.yaml`, their imports and tools,
//! and the environment that goes with them.
//!
//! Unaware of runs.

pub(crate) mod section;
pub(crate) mod keys;
pub(crate) mod api;
pub(crate) mod pricing;
pub(crate) mod tool;
pub(crate) mod acceptance;
pub(crate) mod compact;
pub mod agent;
pub(crate) mod document;
pub(crate) mod skill;
pub(crate) mod context;
pub(crate) mod resolved;
pub(crate) mod dotenv;
pub(crate) mod person;
pub(crate) mod settings_file;
pub(crate) mod environment;
pub(crate) mod prices;
pub(crate) mod sources;
pub(crate) mod legacy;
pub(crate) mod hooks;
pub(crate) mod llm;
pub(crate) mod imports;
pub(crate) mod load;
pub(crate) mod lint;
