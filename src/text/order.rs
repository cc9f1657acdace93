//! Sorting whose algorithm is compiled once: that of the standard library takes six kilobytes for each type and order.
//! Numbers are sorted by the library itself.

use std::cmp::Ordering;

/// Sorts items; equal ones keep their order.
pub(crate) fn sort<T: Ord>(items: &mut Vec<T>) {
    sort_by(items, T::cmp);
}

/// Sorts items by a key that is made of each once; equal ones keep their order.
pub(crate) fn sort_by_key<T, K: Ord>(items: &mut Vec<T>, key: impl FnMut(&T) -> K) {
    let keys: Vec<K> = items.iter().map(key).collect();
    let places = sorted_places(items.len(), &|a, b| keys[a].cmp(&keys[b]));
    rearrange(items, &places);
}

/// Sorts items; equal ones keep their order.
pub(crate) fn sort_by<T>(items: &mut Vec<T>, compare: impl Fn(&T, &T) -> Ordering) {
    let places = sorted_places(items.len(), &|a, b| compare(&items[a], &items[b]));
    rearrange(items, &places);
}

fn sorted_places(len: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..len).collect();
    places.sort_by(|a, b| compare(*a, *b));
    places
}

fn rearrange<T>(items: &mut Vec<T>, places: &[usize]) {
    let mut taken: Vec<Option<T>> = items.drain(..).map(Some).collect();
    items.extend(places.iter().filter_map(|place| taken[*place].take()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_sorted_as_by_the_standard_library() {
        let mut random = fastrand::Rng::with_seed(1);
        for length in [0, 1, 2, 20, 21, 500] {
            let mut items: Vec<(u8, usize)> =
                (0..length).map(|place| (random.u8(..9), place)).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.0);
            let mut by_key = items.clone();
            sort_by(&mut items, |a, b| a.0.cmp(&b.0));
            assert_eq!(items, expected);
            sort_by_key(&mut by_key, |item| item.0);
            assert_eq!(by_key, expected);
            expected.sort_unstable();
            sort(&mut items);
            assert_eq!(items, expected);
        }
    }
}
