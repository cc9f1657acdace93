//! The word that was probably meant. Unaware of what the words are for.

/// The candidate that `word` is most likely a misspelling of; none if nothing is close.
///
/// Close means one typing error for every three characters (an insertion, a deletion, a
/// substitution, two neighbours swapped), or that one is the beginning of the other. Case, and
/// `-` against `_`, make no difference.
pub(crate) fn nearest<'c>(
    word: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    let word = folded(word);
    let allowed = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let other = folded(candidate);
            let begins = word.len().min(other.len()) >= 3
                && (word.starts_with(&other) || other.starts_with(&word));
            if !begins && word.len().abs_diff(other.len()) > allowed {
                return None;
            }
            let errors = distance(&word, &other);
            if errors <= allowed && errors < other.len() {
                Some((errors, candidate))
            } else if begins {
                Some((allowed + errors, candidate))
            } else {
                None
            }
        })
        .min_by_key(|(errors, _)| *errors)
        .map(|(_, candidate)| candidate)
}

fn folded(word: &str) -> Vec<char> {
    word.chars()
        .flat_map(char::to_lowercase)
        .map(|c| if c == '-' { '_' } else { c })
        .collect()
}

/// Optimal string alignment distance.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let substituted = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = substituted.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_finds_the_word_that_was_meant() {
        let keys = [
            "description",
            "parameters",
            "timeout_ms",
            "env",
            "exec",
            "shell",
        ];
        for (word, meant) in [
            ("descripton", Some("description")),
            ("paramaters", Some("parameters")),
            ("timeout-ms", Some("timeout_ms")),
            ("timeout", Some("timeout_ms")),
            ("SHELL", Some("shell")),
            ("exce", Some("exec")),
            ("envs", Some("env")),
            ("colour", None),
            ("", None),
            ("xy", None),
        ] {
            assert_eq!(nearest(word, keys), meant, "{word}");
        }
    }

    #[test]
    fn the_closest_of_several_wins() {
        assert_eq!(nearest("fil", ["file", "fill", "fil"]), Some("fil"));
        assert_eq!(nearest("max", ["max_output_bytes", "mix"]), Some("mix"));
    }

    #[test]
    fn nothing_is_near_where_there_is_nothing() {
        assert_eq!(nearest("a", []), None);
        assert_eq!(nearest("a", [""]), None);
        assert_eq!(nearest("a", ["b"]), None);
    }
}
