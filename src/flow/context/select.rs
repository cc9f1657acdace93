//! The context of a node: which items, in which order, until how many tokens.
//!
//! Unaware of where items come from: they come here the newest first.

use super::item::Kept;
use super::rank::{best_first, bm25, fuse_ranks};
use crate::flow::manifest::memory::{Profile, Retrieval};
use crate::text::json;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The bytes of a text that count as one token.
const BYTES_A_TOKEN: usize = 4;

/// A context that has been assembled.
#[derive(Clone, Debug)]
pub(crate) struct AssembledContext {
    /// All of it: what `context.json` holds.
    pub text: String,
    /// The text without what differs from run to run: times and ids.
    pub essence: String,
    /// The text for an agent; empty if nothing was selected.
    pub prompt: String,
}

/// An item that has been taken.
struct TakenItem<'i> {
    kept: &'i Kept,
    tokens: u64,
    score: f64,
}

impl AssembledContext {
    /// For a node that asks for none.
    pub(crate) fn none() -> Self {
        let text = "{\"profile\":\"none\",\"items\":[]}".to_owned();
        Self {
            essence: text.clone(),
            text,
            prompt: String::new(),
        }
    }

    /// The one that a step was given before, as it was recorded.
    pub(crate) fn recorded(text: String) -> Self {
        #[derive(Deserialize, Default)]
        struct RecordedContext<'r> {
            #[serde(borrow, default)]
            items: Vec<RecordedItem<'r>>,
        }
        #[derive(Deserialize)]
        struct RecordedItem<'r> {
            store: String,
            tags: Vec<String>,
            #[serde(borrow)]
            content: &'r RawValue,
        }
        let recorded: RecordedContext<'_> = json::read_or_default(&text);
        let item = |it: &RecordedItem<'_>| prompt_line(&it.store, &it.tags, it.content.get());
        Self {
            essence: text.clone(),
            prompt: prompt_of(recorded.items.iter().map(item)),
            text,
        }
    }

    fn of(profile: &Profile, taken: &[TakenItem<'_>]) -> Self {
        let item = |it: &TakenItem<'_>| {
            let (store, item) = it.kept;
            prompt_line(store.name(), &item.tags, &item.content)
        };
        Self {
            text: context_object(profile, taken, true),
            essence: context_object(profile, taken, false),
            prompt: prompt_of(taken.iter().map(item)),
        }
    }
}

/// The text for an agent with these lines.
fn prompt_of(lines: impl Iterator<Item = String>) -> String {
    let all: String = lines.collect();
    if all.is_empty() {
        return all;
    }
    format!("\nContext, the most relevant first, one item a line:\n```json\n{all}```\n")
}

/// The line of an item.
fn prompt_line(store: &str, tags: &[String], content: &str) -> String {
    let (store, tags) = (json::text(store), json::text(tags));
    format!("{{\"store\":{store},\"tags\":{tags},\"content\":{content}}}\n")
}

fn context_object(profile: &Profile, taken: &[TakenItem<'_>], in_full: bool) -> String {
    let out = json::object(|object| {
        let tokens: u64 = taken.iter().map(|it| it.tokens).sum();
        object
            .put("profile", &profile.id)
            .put("retrieval_policy", profile.retrieval.name())
            .put("max_tokens", &profile.max_tokens)
            .put("tokens", &tokens);
        object.objects("items", taken, |entry, it| {
            let (store, item) = it.kept;
            if in_full {
                item.put_origin(entry);
            }
            item.put_rest(entry);
            entry
                .put("store", store.name())
                .put("tokens", &it.tokens)
                .put("score", &((it.score * 1e6).round() / 1e6));
        });
    });
    String::from_utf8(out).unwrap_or_default()
}

/// Chooses from candidates, which come the newest first.
pub(crate) fn select_items(
    profile: &Profile,
    query: &str,
    candidates: &[&Kept],
) -> AssembledContext {
    let ranked = match profile.retrieval {
        Retrieval::Recency => rank_by_age(candidates.len()),
        Retrieval::Hybrid => rank_by_words_and_age(query, candidates),
    };
    let mut left = profile.max_tokens.unwrap_or(u64::MAX);
    let mut taken = Vec::new();
    for (at, score) in ranked {
        let kept = candidates[at];
        let tokens = kept.1.text().len().div_ceil(BYTES_A_TOKEN) as u64;
        let Some(rest) = left.checked_sub(tokens) else {
            break;
        };
        left = rest;
        taken.push(TakenItem {
            kept,
            tokens,
            score,
        });
    }
    AssembledContext::of(profile, &taken)
}

/// Candidates by their indices, with their scores.
type Ranked = Vec<(usize, f64)>;

fn rank_by_age(count: usize) -> Ranked {
    let score = |at: usize| 1.0 / (at as f64 + 1.0);
    (0..count).map(|at| (at, score(at))).collect()
}

fn rank_by_words_and_age(query: &str, candidates: &[&Kept]) -> Ranked {
    let texts: Vec<String> = candidates
        .iter()
        .map(|(_, item)| plain_text(&item.content))
        .collect();
    let scores = bm25(&plain_text(query), &texts);
    let mut by_words = best_first(&scores);
    // What has no word of the query has no place among what has.
    by_words.retain(|at| scores[*at] > 0.0);
    let by_age: Vec<usize> = (0..candidates.len()).collect();
    let scores = fuse_ranks(&[&by_words, &by_age], candidates.len());
    let order = best_first(&scores).into_iter();
    order.map(|at| (at, scores[at])).collect()
}

/// All that a JSON value says, without the marks that JSON makes.
fn plain_text(json: &str) -> String {
    fn collect(value: &Value, out: &mut String) {
        match value {
            Value::String(text) => out.push_str(text),
            Value::Array(items) => items.iter().for_each(|item| collect(item, out)),
            Value::Object(members) => {
                for (key, value) in members {
                    out.push_str(key);
                    out.push(' ');
                    collect(value, out);
                }
            }
            Value::Null => {}
            other => out.push_str(&json::text(other)),
        }
        out.push(' ');
    }
    let mut out = String::new();
    match serde_json::from_str(json) {
        Ok(value) => collect(&value, &mut out),
        // Nested too deeply.
        Err(_) => out.push_str(json),
    }
    out
}
