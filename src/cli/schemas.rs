//! JSON Schemas of an agent's files, for editors.
//!
//! Data only. The schemas accept the keys that the loader in `config` accepts; tests keep the two
//! in step.

/// A schema.
#[derive(Debug)]
pub(crate) struct Schema {
    /// The file that it is of, without `.yaml`.
    pub name: &'static str,
    pub text: &'static str,
}

/// All of them.
pub(crate) const ALL: [&Schema; 3] = [
    &Schema {
        name: "agent",
        text: include_str!("schemas/agent.json"),
    },
    &Schema {
        name: "context",
        text: include_str!("schemas/context.json"),
    },
    &Schema {
        name: "hooks",
        text: include_str!("schemas/hooks.json"),
    },
];

pub(crate) const SCHEMA_NAMES: [&str; 3] = [ALL[0].name, ALL[1].name, ALL[2].name];
