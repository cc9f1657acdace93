//! Lists of mappings with ids, which the manifests have in common.

use super::problem::{Code, Manifest};
use crate::config::section::Section;
use crate::text::yaml::Step;
use std::collections::HashSet;
use std::fmt::Display;

/// An id of a node, an agent or a profile.
pub(crate) fn is_id(id: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (1..=64).contains(&id.len()) && id.chars().all(is_good)
}

/// The id of an item of a list; none if it has none that can be used.
pub(super) fn read_id(node: &Section, what: &str) -> Option<String> {
    if !node.has("id") {
        return node.refuse("id", format!("this {what} has no id; give it one"));
    }
    let id = node.read_text("id")?;
    if !is_id(id) {
        let message =
            format!("invalid id {id:?}: 1 to 64 letters, digits, '_', '.' and '-' make an id");
        return node.refuse("id", message);
    }
    Some(id.to_owned())
}

/// Reads the one list that a manifest has, with `read` for each item that has an id.
pub(super) fn read_items<T>(
    manifest: &mut Manifest,
    key: &str,
    kind: &str,
    mut read: impl FnMut(String, &Section) -> T,
) -> Vec<T> {
    let mut known = HashSet::new();
    let mut all = Vec::new();
    each_item(manifest, key, |manifest, section| {
        all.extend(read_item(manifest, kind, section, |id, node| {
            if !known.insert(id.clone()) {
                node.error("id", "is defined twice; remove one");
            }
            read(id, node)
        }));
    });
    all
}

/// Goes through the one list that a manifest has.
pub(super) fn each_item(
    manifest: &mut Manifest,
    key: &str,
    mut read: impl FnMut(&mut Manifest, &Section),
) {
    let root = std::mem::take(&mut manifest.root);
    let top = Section::new(&root, Vec::new());
    let sections = manifest.visit("", &[], &top, |node| {
        node.warn_of_unknown_keys(&[key]);
        node.mappings(key)
    });
    for section in &sections {
        read(manifest, section);
    }
}

/// Reads an item; none if it has no id.
pub(super) fn read_item<T>(
    manifest: &mut Manifest,
    kind: &str,
    section: &Section,
    read: impl FnOnce(String, &Section) -> T,
) -> Option<T> {
    let id = manifest.visit("", &[], section, |node| read_id(node, kind))?;
    let subject = format!("{kind} \"{id}\"");
    Some(manifest.visit(&subject, &[&id], section, |node| read(id.clone(), node)))
}

/// The path of a key of the mapping at a path.
pub(super) fn key_path(at: &[Step], key: &str) -> Vec<Step> {
    [at, &[Step::Key(key.to_owned())]].concat()
}

/// An item of a manifest, as messages name it.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    pub kind: &'static str,
    pub id: &'p str,
    pub at: &'p [Step],
}

impl Manifest {
    /// Adds what is wrong with a key of an item; without a code it is doubtful.
    pub(super) fn add_to(
        &mut self,
        item: Place<'_>,
        key: &str,
        code: Option<Code>,
        message: impl Display,
    ) {
        let Place { kind, id, at } = item;
        let message = format!("{kind} \"{id}\": {message}");
        self.push(code, &[id], &key_path(at, key), message);
    }
}
