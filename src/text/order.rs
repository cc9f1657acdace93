//! Sorting whose algorithm is compiled once: that of the standard library takes six kilobytes for each type and order.

use std::cmp::Ordering;

/// Sorts items; equal ones keep their order.
pub(crate) fn sort_by<T>(items: &mut Vec<T>, compare: impl Fn(&T, &T) -> Ordering) {
    let mut places: Vec<usize> = (0..items.len()).collect();
    sort_places(&mut places, &|a, b| compare(&items[a], &items[b]));
    let mut taken: Vec<Option<T>> = items.drain(..).map(Some).collect();
    items.extend(places.iter().filter_map(|place| taken[*place].take()));
}

fn sort_places(places: &mut [usize], compare: &dyn Fn(usize, usize) -> Ordering) {
    places.sort_by(|a, b| compare(*a, *b));
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
            sort_by(&mut items, |a, b| a.0.cmp(&b.0));
            assert_eq!(items, expected);
        }
    }
}
