//! An agent's files, understood: `agent.yaml`, `context.yaml`, `hooks.yaml`, their imports and tools,
//! and the environment that goes with them.
//!
//! Unaware of runs.

pub mod section;
pub mod tool;
pub mod agent;
pub mod document;
pub mod context;
pub mod resolved;
pub mod dotenv;
pub mod environment;
pub mod legacy;
pub mod hooks;
pub mod load;
pub mod imports;
pub mod lint;
