//! The key `later` of a tool: its call may begin something that ends without it, and a command finds out when.
//!
//! Unaware of how a call is looked at.

use crate::config::keys::KeyValue;
use crate::config::section::Section;
use crate::config::tool::definition::{LONGEST_WAIT, LaterRule};
use crate::config::tool::effect::read_check_words;
use serde_json::{Value, json};
use std::time::Duration;

/// Reads `later`.
pub(crate) fn read_later(section: &Section) -> Option<LaterRule> {
    if section.has("later") && section.map.get("subagent") == Some(&Value::Bool(true)) {
        let message = "later: a sub-agent's run waits by itself; remove later";
        return section.refuse("later", message);
    }
    let section = section.read_section("later")?;
    section.refuse_unknown_keys(&["check", "every_s", "expires_s"]);
    let check = read_check_words(&section, "later");
    let seconds = |key: &str, default: u64| {
        let count = section.at_least_one(key).unwrap_or(default);
        if count > LONGEST_WAIT {
            let message = format!("later: {key}: expected at most {LONGEST_WAIT}, found {count}");
            section.error(key, message);
        }
        Duration::from_secs(count.min(LONGEST_WAIT))
    };
    let (every, expires) = (seconds("every_s", 60), seconds("expires_s", 86_400));
    Some(LaterRule {
        check: check?,
        every,
        expires,
    })
}

/// The value of `later` in a tool's expanded form.
pub(super) fn render_later(later: &LaterRule) -> Value {
    json!({
        "check": later.check.record(),
        "every_s": later.every.as_secs(),
        "expires_s": later.expires.as_secs(),
    })
}
