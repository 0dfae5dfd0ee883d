//! Which places may be occupied: a bit each, so that a look around need not visit all of them.
//!
//! A set bit may be stale; a clear bit is not. An attacher that has the place's latch
//! ([`latch`](super::latch)) sets its bit before it moves in, and only an attacher that has the
//! latch clears it, after it has seen the place vacant. So a bit is clear only while nobody is in
//! the place, and a process that has learnt of an endpoint in any way sees its bit.
//!
//! A place that its owner left, or died in, keeps its bit until the 64 places that share a word
//! are all taken: then an attacher looks which of them are vacant. So a place rests a while before
//! it is used again, what a dead client left in its record can be looked at for a while, and an
//! attacher looks at 64 places at most, unless the table is full.

use super::latch::Latch;
use super::primitive::{AtomicU64, Ordering};

/// Places that a region's table can have at most.
pub(super) const PLACES_MAX: u16 = 16 << 10;

const WORD_BITS: u16 = 64;
const WORDS: usize = (PLACES_MAX / WORD_BITS) as usize;
const _: () = assert!(PLACES_MAX.is_multiple_of(WORD_BITS), "whole words");

/// The bits of all places a region can have; a region of fewer uses the first.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Taken {
    words: [AtomicU64; WORDS],
}

/// The word and the bit of a place, whose index is 1 at least.
fn bit_of(index: u16) -> (usize, u64) {
    let number = index - 1;
    (usize::from(number / WORD_BITS), 1 << (number % WORD_BITS))
}

/// The word in which the bit of this place is.
pub(super) fn word_of(index: u16) -> usize {
    bit_of(index).0
}

/// How many words a table of so many places has.
pub(super) fn words_of(endpoints: u16) -> usize {
    usize::from(endpoints.div_ceil(WORD_BITS))
}

/// The places whose bits are in this word.
pub(super) fn places_of(word: usize, endpoints: u16) -> std::ops::RangeInclusive<u16> {
    let first = word as u16 * WORD_BITS + 1;
    first..=endpoints.min(first + (WORD_BITS - 1))
}

impl Taken {
    /// The lowest index from this one on whose bit is set.
    pub(super) fn first_from(&self, index: u16, endpoints: u16) -> Option<u16> {
        if index > endpoints {
            return None;
        }
        let (first, bit) = bit_of(index.max(1));
        // Of the first word only this bit and those above.
        let mut shown = !(bit - 1);
        for word in first..words_of(endpoints) {
            let bits = self.words[word].load(Ordering::SeqCst) & shown;
            if bits != 0 {
                let found = *places_of(word, endpoints).start() + bits.trailing_zeros() as u16;
                // Bits behind the last place are nobody's.
                return (found <= endpoints).then_some(found);
            }
            shown = u64::MAX;
        }
        None
    }

    /// The lowest index from this one on, 1 at least, whose bit is clear.
    pub(super) fn first_clear_from(&self, index: u16, endpoints: u16) -> Option<u16> {
        let (first, bit) = bit_of(index);
        // Of the first word only this bit and those above.
        let mut hidden = bit - 1;
        (first..words_of(endpoints)).find_map(|word| {
            let bits = self.words[word].load(Ordering::SeqCst) | std::mem::take(&mut hidden);
            let places = places_of(word, endpoints);
            let found = places.start() + bits.trailing_ones() as u16;
            places.contains(&found).then_some(found)
        })
    }

    /// Whether all bits of this word are set.
    pub(super) fn is_full(&self, word: usize, endpoints: u16) -> bool {
        let places = places_of(word, endpoints).count() as u32;
        self.words[word].load(Ordering::SeqCst).trailing_ones() >= places
    }

    /// Who has this latch is about to move in.
    pub(super) fn set(&self, latch: &Latch<'_>) {
        self.set_bit(latch.index());
    }

    /// Who has this latch has seen the place vacant since.
    pub(super) fn clear(&self, latch: &Latch<'_>) {
        self.clear_bit(latch.index());
    }

    fn set_bit(&self, index: u16) {
        let (word, bit) = bit_of(index);
        self.words[word].fetch_or(bit, Ordering::SeqCst);
    }

    fn clear_bit(&self, index: u16) {
        let (word, bit) = bit_of(index);
        self.words[word].fetch_and(!bit, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Taken {
        Taken { words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    #[test]
    fn set_bits_are_found_in_order() {
        let taken = none();
        let all = [1, 2, 64, 65, 128, 200, PLACES_MAX];
        all.into_iter().for_each(|index| taken.set_bit(index));
        let next = |last: &u16| taken.first_from(last + 1, PLACES_MAX);
        let found: Vec<u16> =
            std::iter::successors(taken.first_from(0, PLACES_MAX), next).collect();
        assert_eq!(found, all);
        assert_eq!(taken.first_from(129, 199), None, "behind the last place is nobody");
        assert_eq!(taken.first_from(129, 200), Some(200));
        taken.clear_bit(200);
        assert_eq!(taken.first_from(129, 200), None);
        assert_eq!(taken.first_from(u16::MAX, PLACES_MAX), None);
    }

    #[test]
    fn the_lowest_clear_bit_is_that_of_a_place() {
        let taken = none();
        for endpoints in [1, 63, 64, 65, 100, 128] {
            for expected in 1..=endpoints {
                let lowest = taken.first_clear_from(1, endpoints);
                assert!(lowest.is_none_or(|index| index >= expected));
                taken.set_bit(expected);
            }
            assert_eq!(taken.first_clear_from(1, endpoints), None);
            assert!((0..words_of(endpoints)).all(|word| taken.is_full(word, endpoints)));
        }
        taken.clear_bit(66);
        for (from, found) in [(1, Some(66)), (66, Some(66)), (67, None)] {
            assert_eq!(taken.first_clear_from(from, 128), found);
        }
        assert!(taken.is_full(0, 128) && !taken.is_full(1, 128) && taken.is_full(1, 65));
    }
}
