//! In which order items are taken: by words, and by several orders at once. Pure.
//!
//! Words: BM25 as in S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and
//! Beyond", Foundations and Trends in Information Retrieval 3 (2009), with the usual `k1` and `b`. One is
//! added inside the logarithm, so that a word that most texts have never counts against them.
//!
//! Several orders: reciprocal rank fusion as in G. Cormack, C. Clarke and S. Büttcher, "Reciprocal Rank
//! Fusion Outperforms Condorcet and Individual Rank Learning Methods", SIGIR 2009, with their `k`.

use crate::text::order;
use std::collections::HashMap;

const K1: f64 = 1.2;
const B: f64 = 0.75;
const K: f64 = 60.0;

/// The words of a text, in lower case: its runs of letters and digits.
pub(crate) fn split_words(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split(|c: char| !c.is_alphanumeric());
    parts.filter(|part| !part.is_empty()).map(str::to_lowercase)
}

/// Scores of texts as answers to a query; 0 if they have no word in common.
pub(crate) fn bm25(query: &str, texts: &[String]) -> Vec<f64> {
    let mut asked: HashMap<String, usize> = HashMap::new();
    for word in split_words(query) {
        let next = asked.len();
        asked.entry(word).or_insert(next);
    }
    // How often each text has each word that is asked for, and how many words it has.
    let mut counts = Vec::with_capacity(texts.len());
    let mut have = vec![0usize; asked.len()];
    let mut total = 0;
    for text in texts {
        let mut of_text = vec![0usize; asked.len()];
        let mut len = 0usize;
        for word in split_words(text) {
            len += 1;
            if let Some(at) = asked.get(&word) {
                of_text[*at] += 1;
            }
        }
        for (have, count) in have.iter_mut().zip(&of_text) {
            *have += usize::from(*count > 0);
        }
        total += len;
        counts.push((of_text, len));
    }
    let count = texts.len() as f64;
    let average = (total as f64 / count).max(1.0);
    let weight = |have: usize| (1.0 + (count - have as f64 + 0.5) / (have as f64 + 0.5)).ln();
    let weights: Vec<f64> = have.into_iter().map(weight).collect();
    let score = |(of_text, len): (Vec<usize>, usize)| {
        let norm = K1 * (1.0 - B + B * len as f64 / average);
        let parts = of_text.iter().zip(&weights).map(|(often, weight)| {
            let often = *often as f64;
            weight * often * (K1 + 1.0) / (often + norm)
        });
        parts.sum()
    };
    counts.into_iter().map(score).collect()
}

/// The sum of the reciprocal ranks that each of `count` things has in some orders, each the best first.
pub(crate) fn fuse_ranks(orders: &[&[usize]], count: usize) -> Vec<f64> {
    let mut scores = vec![0.0; count];
    for order in orders {
        for (rank, at) in order.iter().enumerate() {
            scores[*at] += 1.0 / (K + rank as f64 + 1.0);
        }
    }
    scores
}

/// The indices of scores, the best first. Of those that are alike, the first stays first.
pub(crate) fn best_first(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order::sort_by(&mut order, |a, b| scores[*b].total_cmp(&scores[*a]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: &[f64], expected: &[f64]) {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-6;
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(near), "{found:?}");
    }

    #[test]
    fn words_are_letters_and_digits_in_lower_case() {
        let all: Vec<String> = split_words("Größe_4, don't! {\"K\":[1]}\n").collect();
        assert_eq!(all, ["größe", "4", "don", "t", "k", "1"]);
    }

    #[test]
    fn bm25_counts_words_against_their_frequency_and_the_length_of_the_text() {
        let texts = ["a b", "a a b c", "d e"].map(str::to_owned);
        // Lengths 2, 4, 2; average 8/3. Of 3 texts 2 have "a": ln(1 + 1.5/2.5).
        let weight = 1.6f64.ln();
        let norm = |len: f64| 1.2 * (0.25 + 0.75 * len / (8.0 / 3.0));
        let expected = [
            weight * 2.2 / (1.0 + norm(2.0)),
            weight * 4.4 / (2.0 + norm(4.0)),
            0.0,
        ];
        close(&bm25("A, a?", &texts), &expected);
        close(&expected, &[0.523_548, 0.566_580, 0.0]);
        close(&bm25("", &texts), &[0.0; 3]);
        assert_eq!(bm25("a", &[]), [0.0; 0]);
        // A word that all texts have still counts for them.
        assert!(bm25("a", &texts[..2]).iter().all(|score| *score > 0.0));
    }

    #[test]
    fn fusion_sums_reciprocal_ranks() {
        let scores = fuse_ranks(&[&[0, 1, 2], &[2, 1]], 3);
        close(&scores, &[1.0 / 61.0, 2.0 / 62.0, 1.0 / 63.0 + 1.0 / 61.0]);
        assert_eq!(best_first(&scores), [2, 1, 0]);
        assert_eq!(best_first(&[1.0, 2.0, 1.0]), [1, 0, 2]);
    }
}
