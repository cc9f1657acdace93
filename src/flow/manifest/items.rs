//! What the manifests have in common: lists of mappings with ids, and lists of strings.

use super::problem::Manifest;
use crate::config::section::{Diagnostics, Section, describe_value};
use crate::text::yaml::Step;
use serde_json::{Map, Value};

/// An id of a node, an agent or a profile.
pub(crate) fn is_id(id: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (1..=64).contains(&id.len()) && id.chars().all(is_good)
}

/// The id of an item of a list; complains if it has none that can be used.
pub(crate) fn read_id(node: &Section, what: &str, out: &mut Diagnostics) -> Option<String> {
    if !node.map.contains_key("id") {
        out.error(
            node.path_to("id"),
            format!("this {what} has no id; give it one"),
        );
        return None;
    }
    let id = node.read_text("id", out)?;
    if !is_id(id) {
        let message =
            format!("invalid id {id:?}: 1 to 64 letters, digits, '_', '.' and '-' make an id");
        out.error(node.path_to("id"), message);
        return None;
    }
    Some(id.to_owned())
}

/// A list of strings, with the strings as they are.
pub(crate) fn read_texts(node: &Section, key: &str, out: &mut Diagnostics) -> Option<Vec<String>> {
    let list = node.read_texts(key, out)?;
    Some(list.into_iter().map(str::to_owned).collect())
}

/// A number of things that may be under way at once.
pub(super) fn read_limit(node: &Section, key: &str, out: &mut Diagnostics) -> Option<usize> {
    let count = node.read_count(key, out)?;
    if count == 0 {
        let message = format!(
            "{}: 0 would let nothing run; give 1 or more",
            node.name(key)
        );
        out.error(node.path_to(key), message);
    }
    usize::try_from(count).ok().filter(|count| *count > 0)
}

/// The mappings of a list, each with its place.
pub(crate) fn read_mappings<'n>(
    node: &Section<'n>,
    key: &str,
    out: &mut Diagnostics,
) -> Vec<(&'n Map<String, Value>, Vec<Step>)> {
    let mut maps = Vec::new();
    if node.map.get(key).is_none_or(Value::is_null) {
        return maps;
    }
    for (index, item) in node.read_list(key, out).into_iter().flatten().enumerate() {
        let mut at = node.path_to(key);
        at.push(Step::Item(index));
        match item.as_object() {
            Some(map) => maps.push((map, at)),
            None => out.error(
                at,
                format!("{key}: expected a mapping, found {}", describe_value(item)),
            ),
        }
    }
    maps
}

/// The mappings of the one list that a manifest has, which is emptied by this.
pub(super) fn read_items(
    manifest: &mut Manifest,
    key: &str,
) -> Vec<(Map<String, Value>, Vec<Step>)> {
    let root = std::mem::take(&mut manifest.root);
    let mut out = Diagnostics::about("");
    let node = Section::new(&root, vec![]);
    node.warn_of_unknown_keys(&[key], &mut out);
    let items = read_mappings(&node, key, &mut out);
    manifest.report(&[], out);
    let items = items.into_iter();
    items.map(|(map, at)| (map.clone(), at)).collect()
}

/// The id of an item, and complaints about it; none if it has no id. `known` has the ids before it.
pub(super) fn begin_item<'k>(
    manifest: &mut Manifest,
    what: &str,
    node: &Section,
    mut known: impl Iterator<Item = &'k str>,
) -> Option<(String, Diagnostics)> {
    let mut out = Diagnostics::about("");
    let id = read_id(node, what, &mut out);
    manifest.report(&[], out);
    let id = id?;
    let mut out = Diagnostics::about(format!("{what} \"{id}\""));
    if known.any(|other| other == id) {
        out.error(node.path_to("id"), "is defined twice; remove one");
    }
    Some((id, out))
}

/// The path of a key of the mapping at a path.
pub(super) fn key_path(at: &[Step], key: &str) -> Vec<Step> {
    let mut at = at.to_vec();
    at.push(Step::Key(key.to_owned()));
    at
}
