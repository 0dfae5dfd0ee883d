//! What is known of each position of a lock: a map of intervals, in which neighbours of which the
//! same is known are one.

use std::collections::BTreeMap;
use std::ops::Range;

/// A value for each position. What begins somewhere ends where the next one begins.
#[derive(Clone, Debug)]
pub struct Spans<T> {
    begins: BTreeMap<u64, T>,
}

impl<T: Copy + PartialEq> Spans<T> {
    /// This value everywhere.
    pub fn of(value: T) -> Self {
        Self { begins: BTreeMap::from([(0, value)]) }
    }

    /// The values in a range, each as often as it has intervals there.
    pub fn values(&self, range: Range<u64>) -> impl Iterator<Item = T> + '_ {
        let first = self.begins.range(..=range.start).next_back();
        let next = range.start.saturating_add(1);
        let others = self.begins.range(next..range.end.max(next));
        first.into_iter().chain(others).map(|(_, value)| *value)
    }

    /// Makes something else of each value in a range.
    pub fn change(&mut self, range: Range<u64>, new: impl Fn(T) -> T) {
        if range.is_empty() {
            return;
        }
        self.cut(range.start);
        if range.end < u64::MAX {
            self.cut(range.end);
        }
        for (_, value) in self.begins.range_mut(range.clone()) {
            *value = new(*value);
        }
        self.unite(range);
    }

    /// An interval begins here.
    fn cut(&mut self, at: u64) {
        let (_, &value) = self.begins.range(..=at).next_back().expect("0 has a value");
        self.begins.entry(at).or_insert(value);
    }

    /// Makes one of neighbours that are the same, where something has changed.
    fn unite(&mut self, range: Range<u64>) {
        let mut before = self.begins.range(..range.start).next_back().map(|(_, &value)| value);
        let mut same = Vec::new();
        for (&at, &value) in self.begins.range(range.start..=range.end) {
            if before == Some(value) {
                same.push(at);
            }
            before = Some(value);
        }
        for at in same {
            self.begins.remove(&at);
        }
    }

    /// How many intervals there are.
    pub fn count(&self) -> usize {
        self.begins.len()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn values(spans: &Spans<u64>, range: Range<u64>) -> Vec<u64> {
        spans.values(range).collect()
    }

    #[test]
    fn what_is_changed_is_found_there_and_nowhere_else() {
        let mut spans = Spans::of(0);
        spans.change(10..20, |_| 1);
        spans.change(15..u64::MAX, |value| value + 2);
        assert_eq!(values(&spans, 0..10), [0]);
        assert_eq!(values(&spans, 0..11), [0, 1]);
        assert_eq!(values(&spans, 14..16), [1, 3]);
        assert_eq!(values(&spans, 20..21), [2]);
        assert_eq!(values(&spans, 0..u64::MAX), [0, 1, 3, 2]);
        spans.change(5..5, |_| 9);
        assert_eq!(spans.count(), 4);
        spans.change(0..u64::MAX, |_| 7);
        assert_eq!((spans.count(), values(&spans, 3..9)), (1, vec![7]));
    }

    /// Beside one value for each of few positions.
    #[test]
    fn it_says_what_an_array_says() {
        const POSITIONS: u64 = 40;
        let chance = &mut Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut spans, mut array) = (Spans::of(0_u64), [0_u64; POSITIONS as usize]);
        for step in 1..2_000 {
            let start = chance.random_range(0..POSITIONS);
            let range = start..chance.random_range(start..=POSITIONS);
            let add = chance.random_range(0..3) % 2 * step;
            spans.change(range.clone(), |value| value.max(add));
            for value in &mut array[range.start as usize..range.end as usize] {
                *value = add.max(*value);
            }
            let mut said = array[start as usize..].to_vec();
            said.dedup();
            assert_eq!(values(&spans, start..POSITIONS), said, "step {step}");
        }
    }
}
