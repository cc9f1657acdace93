//! The key `later` of a tool: its call may begin something that ends without it, and a command finds out when.
//!
//! Unaware of how a call is looked at.

use crate::config::section::{Diagnostics, Section};
use crate::config::tool::definition::{LONGEST_WAIT, LaterRule};
use crate::config::tool::effect::read_check_words;
use serde_json::{Map, Value};
use std::time::Duration;

/// Reads `later`.
pub(crate) fn read_later(section: &Section, out: &mut Diagnostics) -> Option<LaterRule> {
    if section.map.contains_key("later") && section.map.get("subagent") == Some(&Value::Bool(true))
    {
        let message = "later: a sub-agent's run waits by itself; remove later";
        out.error(section.path_to("later"), message);
        return None;
    }
    let section = section.read_section("later", out)?;
    section.refuse_unknown_keys(&["check", "every_s", "expires_s"], out);
    let check = read_check_words(&section, "later", out);
    let mut seconds = |key: &str, default: u64| {
        let count = section.at_least_one(key, out).unwrap_or(default);
        if count > LONGEST_WAIT {
            let message = format!("later: {key}: expected at most {LONGEST_WAIT}, found {count}");
            out.error(section.path_to(key), message);
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
    let words = later.check.iter().map(|word| word.written(|_| ""));
    let mut map = Map::new();
    map.insert("check".to_owned(), words.collect::<Vec<_>>().into());
    map.insert("every_s".to_owned(), later.every.as_secs().into());
    map.insert("expires_s".to_owned(), later.expires.as_secs().into());
    map.into()
}
