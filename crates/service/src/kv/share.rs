//! Which part of a store lies in a region, where a store has several.
//!
//! It stands in the store's header beside the tag of its index, in the word that the maker of a
//! store decides by one compare: so there is never a store that is none, or another one. Of a store
//! that is whole in itself these bits are zero; versions before this one refuse all others.

use std::fmt;

use farlock_fabric::word;
use farlock_kv::Shape;

word! {
    /// What is chosen for a store when it is made, for good.
    pub(super) struct ChoiceWord: u64 {
        /// The tag of its index.
        INDEX index: Shape::TAG_BITS,
        /// Which part it is, counted from 0.
        PART part: 8,
        /// Of how many; 0: it is whole in itself.
        PARTS parts: 8,
        /// What all parts of the store have alike, and those of other stores have not: it is drawn.
        WHOLE whole: 32,
    }
}

/// A store has at most so many parts.
pub const PARTS_MAX: usize = 255;

/// Which part of a store it is, and of how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartOf {
    /// Counted from 1, in the order in which the memory nodes are named.
    pub part: u8,
    /// How many the store has.
    pub parts: u8,
}

impl PartOf {
    /// The `index`-th of so many.
    pub(super) fn at(index: usize, parts: usize) -> Self {
        let number = |number| u8::try_from(number).expect("a store has at most 255 parts");
        Self { part: number(index + 1), parts: number(parts) }
    }
}

impl fmt::Display for PartOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {} of {}", self.part, self.parts)
    }
}

/// What a store is that may be a part, for people.
pub(super) fn said(of: Option<PartOf>) -> String {
    of.map_or_else(|| "a store by itself".to_owned(), |of| of.to_string())
}

/// A part, and of which store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    pub(super) of: PartOf,
    /// The store's number, which was drawn when it was made.
    pub(super) whole: u32,
}

impl ChoiceWord {
    pub(super) fn of(index_tag: u64, share: Option<Share>) -> Self {
        let word = Self::new().with(Self::INDEX, index_tag);
        share.map_or(word, |Share { of, whole }| {
            word.with(Self::PART, u64::from(of.part) - 1)
                .with(Self::PARTS, of.parts.into())
                .with(Self::WHOLE, whole.into())
        })
    }

    /// Which part it says; `None` if it says what none does.
    pub(super) fn share(self) -> Option<Option<Share>> {
        if self.parts() == 0 {
            return (self.part() == 0 && self.whole() == 0).then_some(None);
        }
        let (part, parts) = (self.part() as u8, self.parts() as u8);
        let of = (part < parts).then(|| PartOf { part: part + 1, parts })?;
        Some(Some(Share { of, whole: self.whole() as u32 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_which_part_it_is_of() {
        let (index, whole) = (1795, u32::MAX);
        let of = [(1, 1), (2, 3), (255, 255)].map(|(part, parts)| PartOf { part, parts });
        let shares = of.map(|of| Some(Share { of, whole }));
        for share in shares.into_iter().chain([None]) {
            let word = ChoiceWord::of(index, share);
            assert_eq!((word.index(), word.share()), (index, Some(share)));
        }
        assert_eq!(ChoiceWord::of(index, None).0, index, "as stores have it that are no parts");
        let wrong = [1 << 16, 1 << 32, 3 << 16 | 2 << 24];
        assert!(wrong.into_iter().all(|word| ChoiceWord(word).share().is_none()));
    }
}
