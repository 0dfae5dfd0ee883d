//! The words of the store in far memory, each declared once.

use farlock_fabric::word;

word! {
    /// What stands in a slot of an index: which block a key's value lies in, if in any.
    ///
    /// A word that names a block stands in a slot once, and never comes back there until that block
    /// has been recycled 65,536 times: `version` is the low half of the block's generation, which
    /// grows with each use. A slot whose key is gone keeps its last word with the class cleared, so
    /// the words of empty slots do not come back either. So a compare that is served late, by a
    /// client that was stopped, meets another word and fails. Where the index grows, a word is
    /// copied from its slot to the one that takes its place, and its slot is [`SlotWord::MOVED`]
    /// from then on.
    pub struct SlotWord: u64 {
        /// The block's generation, as far as it fits.
        VERSION version: 16,
        /// Whether an insertion has put this word here and has not yet made sure that it is the
        /// only one of its key. Nobody takes a pending word for a value. In a tree, whose
        /// insertions are never pending: whether the slot is frozen, for its node is being
        /// replaced.
        PENDING pending: 1,
        /// How large the block is: a [`Class`](crate::Class), 0 where nothing is, or 63 where the
        /// slot has moved to the next level. In a tree 62: what it names is a node.
        CLASS class: 6,
        /// Some bits of the key's hash.
        FINGERPRINT fingerprint: 8,
        /// Where the block lies, in units of 8 bytes from the start of the store: up to 64 GiB.
        BLOCK block: 33,
    }
}

word! {
    /// The header of a chunk: who may hand out its blocks.
    pub struct ChunkWord: u64 {
        /// The endpoint that owns it, index and incarnation; 0 is nobody.
        OWNER owner: 32,
        /// The class of its blocks, once it has one. 0 was never written, and 62 is, or is to be,
        /// part of a table of the index.
        CLASS class: 6,
        /// The smallest class that it ever had: so many counts of frees it keeps for good.
        LEAST least: 6,
        /// How often it changed hands or class, so that a claim that is served late fails.
        TURN turn: 20,
    }
}

word! {
    /// The first word of a block.
    pub struct Header: u64 {
        /// How often the block has been handed out, this time included.
        GENERATION generation: 32,
        /// Bytes of the key, which begins in the third word.
        KEY_BYTES key_bytes: 11,
        /// Bytes of the value, right after the key.
        VALUE_BYTES value_bytes: 21,
    }
}

impl SlotWord {
    /// What a slot says for good once its key has moved to the next level, or it has none.
    pub const MOVED: Self = Self::new().with(Self::CLASS, Self::CLASS.max());

    /// The class of a word that names a node of a tree.
    pub(crate) const NODE: u64 = 62;

    /// Whether it names a node of a tree, frozen or not.
    #[inline]
    pub(crate) fn is_node(self) -> bool {
        self.class() == Self::NODE
    }

    /// Whether the slot of a tree says this for good, since its node is being replaced.
    #[inline]
    pub(crate) fn is_frozen(self) -> bool {
        self.pending() == 1 && !self.is_moved()
    }

    /// What the slot of a tree says when it is frozen.
    #[inline]
    pub(crate) fn frozen(self) -> Self {
        self.with(Self::PENDING, 1)
    }

    /// What it said before.
    #[inline]
    pub(crate) fn thawed(self) -> Self {
        self.with(Self::PENDING, 0)
    }

    /// Whether the slot has moved to the next level.
    #[inline]
    pub(crate) fn is_moved(self) -> bool {
        self == Self::MOVED
    }

    /// Whether a value lies behind it, pending or not.
    #[inline]
    pub(crate) fn is_taken(self) -> bool {
        self.class() != 0 && !self.is_moved() && !self.is_node()
    }

    /// Whether it is a key's value.
    #[inline]
    pub(crate) fn is_committed(self) -> bool {
        self.is_taken() && self.pending() == 0
    }

    /// The word that a slot keeps when what it named is gone.
    #[inline]
    pub(crate) fn emptied(self) -> Self {
        self.with(Self::CLASS, 0)
    }

    /// The word of a slot whose key has moved to the slot beside it. No client ever puts it into a
    /// slot for another reason, since a block has one fingerprint in one use.
    #[inline]
    pub(crate) fn passed_by(self) -> Self {
        self.emptied().with(Self::FINGERPRINT, !self.fingerprint())
    }

    /// The word of an insertion that has not made sure that it is alone.
    #[inline]
    pub(crate) fn announced(self) -> Self {
        self.with(Self::PENDING, 1)
    }

    /// The word once it has.
    #[inline]
    pub(crate) fn committed(self) -> Self {
        self.with(Self::PENDING, 0)
    }
}

impl ChunkWord {
    /// The class of a chunk that is part of a table of the index, or claimed to be.
    pub const TABLE: u64 = 62;

    /// Whether nobody has it and it was never written: it may become anything.
    #[inline]
    pub(crate) fn is_blank(self) -> bool {
        self.owner() == 0 && self.class() == 0
    }

    /// The next word of the chunk, with this owner and class.
    #[inline]
    pub(crate) fn given(self, owner: u64, class: u64) -> Self {
        let least = match self.least() {
            _ if class == Self::TABLE => 0,
            least if (1..=class).contains(&least) => least,
            _ => class,
        };
        Self::new()
            .with(Self::OWNER, owner)
            .with(Self::CLASS, class)
            .with(Self::LEAST, least)
            .with(Self::TURN, self.turn() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_slot_as_it_is() {
        let page = include_str!("../../../docs/kv.md");
        for row in SlotWord::table().lines().skip(2) {
            assert!(page.contains(row), "the page lacks {row}");
        }
    }

    #[test]
    fn an_emptied_word_differs_from_every_other_state_of_the_same_block() {
        let word = SlotWord::new()
            .with(SlotWord::VERSION, 7)
            .with(SlotWord::CLASS, 6)
            .with(SlotWord::FINGERPRINT, 0xab)
            .with(SlotWord::BLOCK, (1 << 33) - 1);
        let states = [
            word,
            word.announced(),
            word.emptied(),
            word.announced().emptied(),
            word.passed_by(),
            SlotWord::MOVED,
            SlotWord(0),
        ];
        for (at, one) in states.iter().enumerate() {
            assert!(states.iter().skip(at + 1).all(|other| other != one), "{one:?}");
        }
        assert_eq!(word.announced().committed(), word);
        assert!(word.is_committed() && !word.announced().is_committed());
        assert!(word.announced().is_taken() && !word.emptied().is_taken());
        assert!(!word.passed_by().is_taken() && !SlotWord::MOVED.is_taken());
    }

    #[test]
    fn a_chunk_remembers_the_smallest_class_that_it_had() {
        let mut word = ChunkWord(0);
        for (class, least) in [(ChunkWord::TABLE, 0), (0, 0), (7, 7), (9, 7), (3, 3), (7, 3)] {
            let next = word.given(5, class);
            assert_eq!((next.owner(), next.class(), next.least()), (5, class, least));
            assert_eq!(next.turn(), word.turn() + 1);
            word = next;
        }
    }
}
