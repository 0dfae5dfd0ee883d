//! What a slot's record says of a request.
//!
//! The record's sixth word names the units that are wanted: which nodes those are every client of
//! the lock works out for itself. Its first word says how many of these nodes the client has, the
//! ticket by which it is in line at the next one or occupies it, and whether it may have taken or
//! counted anything else there.

use std::ops::Range;

use farlock_fabric::word;

use super::tree::Tree;
use crate::slot::SlotWord;

word! {
    /// The units that are wanted, in a slot's record.
    pub struct UnitsWord: u64 {
        /// The first.
        START start: 28,
        /// Of a lock whose parameters may change: one less than the m by which it notifies.
        DISTANCE distance: 2,
        /// And by which change, among so many.
        CHANGE change: 2,
        /// The one behind the last.
        END end: 31,
        /// Whether they are a part of what the client had before, or it has others beside: their
        /// nodes have no other units, and all nodes above count it.
        PART part: 1,
    }
}

word! {
    /// How far a client has come, where other locks count repairs in a slot's record.
    pub struct ReachWord: u64 {
        /// How many nodes it has, from the left on.
        HAS has: 8,
        /// Whether it may have bits of the next one, or be counted for it.
        CLAIMS claims: 1,
        /// Whether it only clears bits of the dead below the next one.
        CLEANS cleans: 1,
        /// Whether it tries, and waits for nobody but others that try.
        TRIES tries: 1,
        /// Whether it may ask newcomers at a node above its next one to wait.
        CALLS calls: 1,
        /// Whether it may be both, a reader and a writer of what it has, while it becomes the other
        /// one; of a reader, whether nodes above count it as a writer as well.
        BOTH both: 1,
        /// Whether its client has units to the left of these, by other requests, until it has
        /// these as well.
        BEHIND behind: 1,
        /// Whether it asks for bits of the next one that others had: it has these if they have left
        /// since.
        ASKS asks: 1,
        /// Whether it may ask newcomers at the node above its next one to wait, those that want the
        /// unit of that for which it waits.
        CALLS_UNIT calls_unit: 1,
        /// Nothing.
        SPARE spare: 48,
    }
}

word! {
    /// How far it has come at its next node, where other locks have a ticket in a slot's record.
    pub struct NextWord: u64 {
        /// One more than its ticket there, or than the one that it is about to have.
        TICKET ticket: 16,
        /// How many units it has, from the left on, if that is a leaf.
        PART part: 6,
        /// Whether it takes its units one by one, by their bits, readers too.
        SINGLE single: 1,
        /// Of its nodes whose children are all leaves, from the left on, those of which it has
        /// all bits of these leaves as well.
        LEAVES_OF leaves_of: 6,
        /// Whether it may have all bits of some of the leaves below its next one.
        LEAVES leaves: 1,
        /// Nothing.
        SPARE spare: 34,
    }
}

const _: () = {
    let (reach, next) = (!ReachWord::SPARE.mask() as u64, !NextWord::SPARE.mask() as u64);
    let state = SlotWord::new().with(SlotWord::GENERATION, reach).with(SlotWord::TICKET, next);
    assert!(state.generation() == reach && state.ticket() == next, "a slot's record has both");
};

const _: () = assert!(Tree::LARGEST.last_unit() <= UnitsWord::START.max(), "all units have room");

/// The word of a record that names these units.
pub(super) const fn units_word(units: &Range<u64>, is_part: bool) -> UnitsWord {
    let word = UnitsWord::new().with(UnitsWord::START, units.start);
    word.with(UnitsWord::END, units.end).with(UnitsWord::PART, is_part as u64)
}
