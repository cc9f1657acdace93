//! The context of a node: which items, in which order, until how many tokens.
//!
//! Unaware of where items come from: they come here the newest first. A question to a program that
//! the choice needs is returned; the choice starts again with the answer.

use super::helper::{HelperAnswers, HelperKind, HelperQuestion};
use super::item::{MemoryItem, text_of};
use super::rank::{best_first, bm25, cosine, fuse_ranks};
use crate::flow::manifest::memory::{Profile, Retrieval, StoreName};
use crate::text::json::{self, Object};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// As many bytes of a text count as one token where the flow has no tokenizer.
const BYTES_A_TOKEN: usize = 4;

/// An item that may be taken, and its store.
pub(crate) type Candidate<'i> = (StoreName, &'i MemoryItem);

/// A context that has been assembled.
#[derive(Clone, Debug)]
pub(crate) struct AssembledContext {
    /// All of it: what `context.json` holds.
    pub text: String,
    /// The same without what differs from run to run: times and ids.
    pub essence: String,
    /// The text for an agent; empty if nothing was selected.
    pub prompt: String,
}

/// Why there is no context.
pub(crate) enum NoContext {
    /// A program must be asked first.
    Ask(HelperQuestion),
    Fault(String),
}

/// An item that has been taken.
struct TakenItem<'i> {
    store: StoreName,
    item: &'i MemoryItem,
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
        let recorded: RecordedContext<'_> = serde_json::from_str(&text).unwrap_or_default();
        let items = recorded.items.iter();
        let items = items.map(|it| (it.store.as_str(), &*it.tags, it.content.get()));
        Self {
            essence: text.clone(),
            prompt: prompt_of(items),
            text,
        }
    }

    fn of(profile: &Profile, taken: &[TakenItem<'_>]) -> Self {
        let items = taken.iter();
        let items = items.map(|it| (it.store.name(), &*it.item.tags, &*it.item.content));
        Self {
            text: context_object(profile, taken, true),
            essence: context_object(profile, taken, false),
            prompt: prompt_of(items),
        }
    }
}

/// The text for an agent: the items, each with its store, its tags and its content.
fn prompt_of<'i>(items: impl Iterator<Item = (&'i str, &'i [String], &'i str)>) -> String {
    let mut prompt = String::new();
    for (store, tags, content) in items {
        let mut line = Vec::new();
        let mut object = Object::begin(&mut line);
        object
            .put("store", store)
            .put("tags", tags)
            .raw("content", content.as_bytes());
        object.end();
        prompt.push_str(&String::from_utf8_lossy(&line));
        prompt.push('\n');
    }
    if prompt.is_empty() {
        return prompt;
    }
    format!("\nContext, the most relevant first, one item a line:\n```json\n{prompt}```\n")
}

fn context_object(profile: &Profile, taken: &[TakenItem<'_>], in_full: bool) -> String {
    let mut out = Vec::new();
    let mut object = Object::begin(&mut out);
    let tokens: u64 = taken.iter().map(|it| it.tokens).sum();
    object
        .put("profile", &profile.id)
        .put("retrieval_policy", profile.retrieval.name())
        .put("max_tokens", &profile.max_tokens)
        .put("tokens", &tokens);
    object.objects("items", taken, |entry, it| {
        if in_full {
            it.item.put_origin(entry);
        }
        it.item.put_rest(entry);
        entry
            .put("store", it.store.name())
            .put("tokens", &it.tokens)
            .put("score", &((it.score * 1e6).round() / 1e6));
    });
    object.end();
    String::from_utf8(out).unwrap_or_default()
}

/// Chooses from candidates, which come the newest first.
pub(crate) fn select_items(
    profile: &Profile,
    query: &str,
    candidates: &[Candidate<'_>],
    known: &HelperAnswers<'_>,
) -> Result<AssembledContext, NoContext> {
    let ranked = match profile.retrieval {
        Retrieval::Recency => rank_by_age(candidates.len()),
        Retrieval::Hybrid => rank_by_words_and_age(query, candidates),
        Retrieval::Semantic => rank_by_meaning(query, candidates, known)?,
    };
    let counts = count_tokens(&ranked, candidates, known)?;
    let mut left = profile.max_tokens.unwrap_or(u64::MAX);
    let mut taken = Vec::new();
    for (rank, (at, score)) in ranked.into_iter().enumerate() {
        let (store, item) = candidates[at];
        let tokens = match &counts {
            Some(counts) => counts[rank],
            None => item.text().len().div_ceil(BYTES_A_TOKEN) as u64,
        };
        let Some(rest) = left.checked_sub(tokens) else {
            break;
        };
        left = rest;
        taken.push(TakenItem {
            store,
            item,
            tokens,
            score,
        });
    }
    Ok(AssembledContext::of(profile, &taken))
}

/// Candidates by their indices, with their scores.
type Ranked = Vec<(usize, f64)>;

fn rank_by_age(count: usize) -> Ranked {
    let score = |at: usize| 1.0 / (at as f64 + 1.0);
    (0..count).map(|at| (at, score(at))).collect()
}

fn rank_by_words_and_age(query: &str, candidates: &[Candidate<'_>]) -> Ranked {
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

fn rank_by_meaning(
    query: &str,
    candidates: &[Candidate<'_>],
    known: &HelperAnswers<'_>,
) -> Result<Ranked, NoContext> {
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let query = text_of(query);
    let wanted = known.answer(HelperKind::Embedder, &query);
    let mut missing = Vec::new();
    if wanted.is_none() {
        missing.push(query);
    }
    let wanted = wanted.unwrap_or_default();
    let mut scores = Vec::with_capacity(candidates.len());
    for (_, item) in candidates {
        let text = item.text();
        match known.answer(HelperKind::Embedder, &text) {
            None => missing.push(text),
            Some(vector) if missing.is_empty() && vector.len() != wanted.len() => {
                let (a, b) = (wanted.len(), vector.len());
                return Err(NoContext::Fault(format!(
                    "embedder: its vectors have {a} and {b} numbers; if it has changed, remove .delta/cache"
                )));
            }
            Some(vector) => scores.push(cosine(&wanted, &vector)),
        }
    }
    if !missing.is_empty() {
        return Err(ask_once(HelperKind::Embedder, missing));
    }
    let order = best_first(&scores).into_iter();
    Ok(order.map(|at| (at, scores[at])).collect())
}

/// The tokenizer's counts of the items, in order; none if the flow has none.
fn count_tokens(
    ranked: &Ranked,
    candidates: &[Candidate<'_>],
    known: &HelperAnswers<'_>,
) -> Result<Option<Vec<u64>>, NoContext> {
    if !known.has(HelperKind::Tokenizer) {
        return Ok(None);
    }
    let (mut counts, mut missing) = (Vec::new(), Vec::new());
    for (at, _) in ranked {
        let text = candidates[*at].1.text();
        match known.answer(HelperKind::Tokenizer, &text) {
            Some(answer) => counts.push(answer[0] as u64),
            None => missing.push(text),
        }
    }
    if missing.is_empty() {
        Ok(Some(counts))
    } else {
        Err(ask_once(HelperKind::Tokenizer, missing))
    }
}

/// Each text is asked about once.
fn ask_once(kind: HelperKind, mut texts: Vec<String>) -> NoContext {
    let mut seen = std::collections::HashSet::new();
    texts.retain(|text| seen.insert(text.clone()));
    NoContext::Ask(HelperQuestion { kind, texts })
}
