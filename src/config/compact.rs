//! `compact` in agent.yaml: when a conversation is shortened, and by how much.

use crate::config::keys::Kind::Own;
use crate::config::keys::{Key, KeyValue, key};
use crate::config::section::Section;
use serde::Serialize;
use serde_json::{Value, json};

#[rustfmt::skip]
pub(super) const COMPACT_KEY: Key = key("compact", Own,
    "Shorten a conversation to fit into the model's window: shares of llm.window. Without it, or with false, only \
     `delta continue --compact` does so.");

/// Shares of the model's window: 0 < keep < to < at <= 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct CompactShares {
    /// The estimate of a request at which it is too long.
    pub at: f64,
    /// The estimate to which it is shortened.
    pub to: f64,
    /// The newest part of the conversation, which stays as it is.
    pub keep: f64,
}

impl Default for CompactShares {
    fn default() -> Self {
        Self {
            at: 0.8,
            to: 0.5,
            keep: 0.2,
        }
    }
}

/// None: only if a person asks for it.
impl KeyValue for Option<CompactShares> {
    fn read(section: &Section, key: &Key) -> Self {
        if matches!(
            section.map.get(key.name),
            Some(Value::Bool(false) | Value::Null)
        ) {
            return None;
        }
        let own = section.read_section(key.name)?;
        own.refuse_unknown_keys(&["at", "to", "keep"]);
        let CompactShares { at, to, keep } = CompactShares::default();
        let share = |name, usual| own.read_amount(name).unwrap_or(usual);
        let shares = CompactShares {
            at: share("at", at),
            to: share("to", to),
            keep: share("keep", keep),
        };
        let CompactShares { at, to, keep } = shares;
        if !(0.0 < keep && keep < to && to < at && at <= 1.0) {
            let message = format!(
                "{}: at is {at}, to is {to}, keep is {keep}; 0 < keep < to < at <= 1 must hold",
                key.name
            );
            section.error(key.name, message);
        }
        Some(shares)
    }

    fn record(&self) -> Value {
        self.map_or(Value::Null, |shares| json!(shares))
    }
}
