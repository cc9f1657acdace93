//! The references of a schema, followed before it is compiled: a validator that expands each
//! reference must terminate.
//!
//! Only JSON pointers (`#`, `#/$defs/x`) are followed; any other reference may lead back to where it is.

use serde_json::Value;
use std::collections::HashMap;

/// References in a row, each within what the one before names.
const MOST_DEPTH: usize = 64;

/// References in all, each replaced by what it names.
const MOST_EXPANDED: u64 = 100_000;

/// Follows the references of a schema. Returns whether one may lead back to what is around it, which
/// is not followed again.
///
/// # Errors
/// There are too many.
pub(super) fn follow_references(schema: &Value) -> Result<bool, String> {
    let mut follower = Follower {
        root: schema,
        known: HashMap::new(),
        open: vec![schema],
        is_recursive: false,
    };
    let all = follower.expand(schema)?;
    if all.count > MOST_EXPANDED {
        return Err(format!(
            "its references multiply: they expand to more than {MOST_EXPANDED}; refer to a \
             definition once where it applies"
        ));
    }
    Ok(follower.is_recursive)
}

/// The references that a part of a schema expands to.
#[derive(Clone, Copy, Default)]
struct Expansion {
    count: u64,
    depth: usize,
}

impl Expansion {
    fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.depth = self.depth.max(other.depth);
    }
}

struct Follower<'s> {
    root: &'s Value,
    /// By the address of what is referred to.
    known: HashMap<*const Value, Expansion>,
    /// Parts that are being expanded, from the document inwards.
    open: Vec<&'s Value>,
    is_recursive: bool,
}

impl<'s> Follower<'s> {
    fn expand(&mut self, part: &'s Value) -> Result<Expansion, String> {
        let mut all = Expansion::default();
        match part {
            Value::Array(items) => {
                for item in items {
                    all.add(self.expand(item)?);
                }
            }
            Value::Object(map) => {
                for (key, value) in map {
                    match (&**key, value.as_str()) {
                        // Definitions count where they are referred to.
                        ("$defs" | "definitions", _) => {}
                        ("$ref" | "$dynamicRef" | "$recursiveRef", Some(reference)) => {
                            all.add(self.expand_reference(reference)?);
                        }
                        _ => all.add(self.expand(value)?),
                    }
                }
            }
            _ => {}
        }
        Ok(all)
    }

    fn expand_reference(&mut self, reference: &str) -> Result<Expansion, String> {
        let mut all = Expansion { count: 1, depth: 1 };
        let target = reference.strip_prefix('#');
        let Some(target) = target.and_then(|pointer| self.root.pointer(pointer)) else {
            self.is_recursive = true;
            return Ok(all);
        };
        if self.open.iter().any(|around| std::ptr::eq(*around, target)) {
            self.is_recursive = true;
            return Ok(all);
        }
        let within = match self.known.get(&std::ptr::from_ref(target)) {
            Some(known) => *known,
            None => {
                // The document itself is the first.
                if self.open.len() > MOST_DEPTH {
                    return Err(too_deep());
                }
                self.open.push(target);
                let found = self.expand(target)?;
                self.open.pop();
                self.known.insert(target, found);
                found
            }
        };
        if self.open.len() + within.depth > MOST_DEPTH {
            return Err(too_deep());
        }
        all.add(Expansion {
            depth: within.depth + 1,
            ..within
        });
        Ok(all)
    }
}

fn too_deep() -> String {
    format!("its references lead from one to the next more than {MOST_DEPTH} times")
}
