//! The word of a claim lock, and what stands in it: places in line, ranks, grants.

use farlock_fabric::{EndpointId, Mailbox, MaskedCas, Nanos, Patience, WideAtomics, word};

use crate::site::{NUMBER_BITS, Outcome, Site};
use crate::want::Mode;
use crate::width;

word! {
    /// The word of a claim lock. Zero is free.
    pub struct ClaimWord: u128 {
        /// Readers that hold the lock.
        READERS readers: 12 => width::CLAIM_READERS,
        /// The writer that holds the lock: the index of its endpoint, and above that the low bits
        /// of the endpoint's incarnation. Zero is nobody.
        HOLDER holder: 22,
        /// Which of the times that it stood in line this is of the tail's; wraps.
        TURN turn: 6 => width::LINES,
        /// The last in line: a packed mailbox, or nobody. A writer that found the lock free is the
        /// first and last in line while it holds, or stands outside of it.
        TAIL tail: 40,
        /// Releases, of readers and writers.
        COUNT count: 48 => width::COUNT,
    }
}

impl ClaimWord {
    /// Whether the lock can be claimed in this mode, whatever waiters are in line.
    #[inline(always)]
    pub(super) const fn is_free_for(self, mode: Mode) -> bool {
        self.holder() == 0
            && match mode {
                Mode::Shared => self.readers() < Self::READERS.max(),
                Mode::Exclusive => self.readers() == 0,
            }
    }

    /// Whether the tail is this one.
    #[inline(always)]
    pub(super) const fn ends_with(self, me: Place) -> bool {
        self.tail() == me.mailbox.bits() && self.turn() == me.turn
    }

    /// The half that waiters watch: the holders.
    #[inline]
    pub(super) const fn watched(self) -> u64 {
        self.0 as u64
    }
}

/// The tail, with which of its acquisitions it is.
pub(super) const LINE_MASK: u128 = ClaimWord::TAIL.mask() | ClaimWord::TURN.mask();

/// The holders.
pub(super) const HELD_MASK: u128 = ClaimWord::READERS.mask() | ClaimWord::HOLDER.mask();

/// One hold of a writer, that no other hold looks like.
pub(super) const HOLD_MASK: u128 = ClaimWord::HOLDER.mask() | ClaimWord::COUNT.mask();

/// A place in a line: a slot, and which of its acquisitions it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) mailbox: Mailbox,
    pub(super) turn: u64,
}

impl Place {
    /// The place in line that a slot has or would have now.
    #[inline(always)]
    pub(super) fn of<E>(site: &Site<'_, E>) -> Self {
        Self { mailbox: site.me, turn: turn_of(site.acquisition()) }
    }

    /// The last in line of a word that has one.
    #[inline]
    pub(super) fn tail_of(word: ClaimWord) -> Self {
        Self { mailbox: Mailbox::from_bits(word.tail()), turn: word.turn() }
    }

    /// The bits of a word that name it as the tail.
    #[inline(always)]
    pub(super) const fn as_tail(self) -> u128 {
        ClaimWord::TAIL.place(self.mailbox.bits()) | ClaimWord::TURN.place(self.turn)
    }
}

/// As much as a word holds of how often the slot of an acquisition has stood in line.
///
/// Others in line may look late whom they stand behind. Until then nobody gets in front of them but
/// those that pass, who stand in no line: so a slot stands in line once more at most, behind them,
/// and its turn is another one, however often it has passed.
#[inline(always)]
pub(super) const fn turn_of(acquisition: u32) -> u64 {
    (acquisition >> NUMBER_BITS) as u64 & ClaimWord::TURN.max()
}

/// What the word calls an endpoint that holds the lock alone.
#[inline(always)]
pub(super) const fn name_of(id: EndpointId) -> u64 {
    (id.index as u64 | (id.incarnation as u64) << 16) & ClaimWord::HOLDER.max()
}

/// How a grant came about, and so how it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rank {
    /// A writer that is the first in line while it holds.
    Head,
    /// A writer that is not in line.
    Passer,
    /// A reader, which is not in line.
    Reader,
}

/// What a holder remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The count when the lock was claimed.
    pub(super) count: u64,
    /// Which of its slot's acquisitions this is.
    pub(super) acquisition: u32,
    pub(super) rank: Rank,
}

/// The pause between two reads of a word that is waited for, in nanoseconds.
const POLL_NS: Nanos = 1_862;

/// A reader-writer lock: waiters are granted first come, first served, but for a bounded number
/// that need not wait.
#[derive(Clone, Debug)]
pub struct Claim {
    /// How many newcomers may pass between two of the line. All clients of a lock must agree on it.
    pub bypass: u8,
    /// How often a newcomer gives its processor up before it gets in line. `None`: 5 times where
    /// every verb completes at once, else never.
    pub newcomer_yields: Option<u8>,
    /// Of the endpoints those whose index is a multiple of this, if it is not 0, claim a lock that
    /// they find free outside of its line. Then their release is one verb, whatever it finds, and
    /// a newcomer meanwhile is the first in line and watches the word.
    pub outside: u16,
    /// The pause between two reads where a wait cannot watch memory, in nanoseconds.
    pub poll_ns: Nanos,
    /// How waits spend their time where the back end has a choice.
    pub patience: Patience,
}

impl Default for Claim {
    fn default() -> Self {
        Self {
            bypass: 0,
            newcomer_yields: None,
            outside: 0,
            poll_ns: POLL_NS,
            patience: Patience::DEFAULT,
        }
    }
}

/// The count after one release more; it wraps within its field.
#[inline(always)]
pub(super) const fn next(count: u64) -> u64 {
    (count + 1) & ClaimWord::COUNT.max()
}

/// The bits of a word that this writer holds.
#[inline(always)]
pub(super) fn held_by<E>(site: &Site<'_, E>, grant: Grant) -> u128 {
    ClaimWord::HOLDER.place(name_of(site.me.endpoint)) | ClaimWord::COUNT.place(grant.count)
}

/// What the word is after a verb that found `old` and whose comparison held.
#[inline(always)]
pub(super) const fn swapped(op: &MaskedCas<u128>, old: u128) -> u128 {
    old & !op.swap_mask | op.swap & op.swap_mask
}

/// Whether a verb's comparison held for this word.
#[inline(always)]
pub(super) const fn matched(op: &MaskedCas<u128>, old: u128) -> bool {
    (old ^ op.compare) & op.compare_mask == 0
}

/// How often a waiter that could have the lock looks whether those before it take it, in
/// nanoseconds. After two of these without a sign of life it passes over the one before. Should it
/// die then, the next one begins anew: so they are short enough for that to happen too.
pub(super) const LOOK_NS: Nanos = 20_000_000;

/// The word now. Its halves may be of different moments.
pub(super) async fn read_word<E: WideAtomics>(site: &Site<'_, E>) -> Outcome<ClaimWord> {
    Ok(ClaimWord(site.read128().await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_verb_leaves_has_the_swapped_bits_and_the_others_as_they_were() {
        let op =
            MaskedCas { compare: 0b0100, compare_mask: 0b0110, swap: 0b1011, swap_mask: 0b0011 };
        assert!(matched(&op, 0b1101) && !matched(&op, 0b1111));
        assert_eq!(swapped(&op, 0b1101), 0b1111);
        assert_eq!(swapped(&op, 0b0100), 0b0111);
        assert_eq!(swapped(&MaskedCas::default(), 0b0101), 0b0101);
    }
}
