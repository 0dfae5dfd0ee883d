//! Verbs as values: everything that can be asked of far memory.
//!
//! A verb says what is to happen, never who makes it happen. Memory is an array of little-endian
//! 64-bit words; a 128-bit word is two of them, the low half first. Multi-word reads and writes
//! may tear at any word boundary (a 16-byte *read* too); atomics never tear.

use crate::addr::{Addr, Mailbox};

/// Words in the largest read or write: 4 KiB.
pub const WORDS_MAX: usize = 512;

/// Verbs in the longest chain.
pub const CHAIN_MAX: usize = 32;

/// A message: 32 bytes whose meaning is the protocol's.
pub type Message = [u64; 4];

/// One thing asked of far memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb<'a> {
    /// Reads `words` 64-bit words from an 8-byte boundary. May tear between words.
    Read {
        /// The first word.
        addr: Addr,
        /// How many words, 1 to [`WORDS_MAX`].
        words: u16,
    },
    /// Writes these 64-bit words to an 8-byte boundary. May tear between words.
    Write {
        /// The first word.
        addr: Addr,
        /// 1 to [`WORDS_MAX`] words.
        data: &'a [u64],
    },
    /// If the word equals `compare`, it becomes `swap`. Completes with the old word.
    Cas64 {
        /// The word.
        addr: Addr,
        /// What the word must be.
        compare: u64,
        /// What it becomes.
        swap: u64,
    },
    /// Adds to the word, wrapping. Completes with the old word.
    Faa64 {
        /// The word.
        addr: Addr,
        /// The addend.
        add: u64,
    },
    /// [`masked_cas64`] on a 64-bit word. Completes with the old word.
    MaskedCas64 {
        /// The word.
        addr: Addr,
        /// Compare, swap and their masks.
        op: MaskedCas<u64>,
    },
    /// [`masked_faa64`] on a 64-bit word. Completes with the old word.
    MaskedFaa64 {
        /// The word.
        addr: Addr,
        /// Addend and field boundaries.
        op: MaskedFaa<u64>,
    },
    /// [`masked_cas128`] on a 128-bit word at a 16-byte boundary. Completes with the old word.
    MaskedCas128 {
        /// The word.
        addr: Addr,
        /// Compare, swap and their masks.
        op: MaskedCas<u128>,
        /// What the whole old word probably is. Never changes the outcome; a good guess saves an
        /// executor on a CPU the load before its compare.
        hint: Option<u128>,
    },
    /// [`masked_faa128`] on a 128-bit word at a 16-byte boundary. Completes with the old word.
    MaskedFaa128 {
        /// The word.
        addr: Addr,
        /// Addend and field boundaries.
        op: MaskedFaa<u128>,
        /// As for [`Verb::MaskedCas128`].
        hint: Option<u128>,
    },
    /// Puts a message into a mailbox. Completes once it is there, or with the reason it is not.
    Send {
        /// The receiver.
        to: Mailbox,
        /// What to deliver.
        message: Message,
    },
}

impl Verb<'_> {
    /// The address this verb touches; a message has none.
    #[inline]
    pub const fn addr(&self) -> Option<Addr> {
        match *self {
            Verb::Read { addr, .. }
            | Verb::Write { addr, .. }
            | Verb::Cas64 { addr, .. }
            | Verb::Faa64 { addr, .. }
            | Verb::MaskedCas64 { addr, .. }
            | Verb::MaskedFaa64 { addr, .. }
            | Verb::MaskedCas128 { addr, .. }
            | Verb::MaskedFaa128 { addr, .. } => Some(addr),
            Verb::Send { .. } => None,
        }
    }
}

/// The operands of a masked compare-and-swap; `T` is `u64` or `u128`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MaskedCas<T> {
    /// Compared under `compare_mask`.
    pub compare: T,
    /// Which bits must be equal. Zero swaps unconditionally.
    pub compare_mask: T,
    /// Stored under `swap_mask`.
    pub swap: T,
    /// Which bits change.
    pub swap_mask: T,
}

/// The operands of a masked fetch-and-add; `T` is `u64` or `u128`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MaskedFaa<T> {
    /// What is added, field by field.
    pub add: T,
    /// A 1 marks the *top* bit of a field; no carry crosses it.
    pub boundary: T,
}

macro_rules! masked_arithmetic {
    ($word:ty, $cas:ident, $faa:ident) => {
        /// The word after this masked compare-and-swap, or `None` where the comparison fails.
        #[inline(always)]
        pub const fn $cas(old: $word, op: &MaskedCas<$word>) -> Option<$word> {
            if (old ^ op.compare) & op.compare_mask == 0 {
                Some((old & !op.swap_mask) | (op.swap & op.swap_mask))
            } else {
                None
            }
        }

        /// The word after this masked fetch-and-add.
        ///
        /// Below each boundary bit plain addition carries as it should; the boundary bit itself is
        /// a sum without carry-out, which is exclusive or.
        #[inline(always)]
        pub const fn $faa(old: $word, op: &MaskedFaa<$word>) -> $word {
            let low = !op.boundary;
            (old & low).wrapping_add(op.add & low) ^ ((old ^ op.add) & op.boundary)
        }
    };
}

masked_arithmetic!(u64, masked_cas64, masked_faa64);
masked_arithmetic!(u128, masked_cas128, masked_faa128);

/// A verb in a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link<'a> {
    /// What to do.
    pub verb: Verb<'a>,
    /// Wait until every earlier *read* of the chain was served (one more round trip on RDMA).
    pub fence: bool,
}

impl<'a> From<Verb<'a>> for Link<'a> {
    fn from(verb: Verb<'a>) -> Self {
        Self { verb, fence: false }
    }
}

impl<'a> Link<'a> {
    /// This verb, served only after every earlier read of the chain.
    pub const fn fenced(verb: Verb<'a>) -> Self {
        Self { verb, fence: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, bit by bit, of an addition whose carries stop at field boundaries.
    fn faa_by_bits(old: u64, op: &MaskedFaa<u64>) -> u64 {
        let (mut sum, mut carry) = (0, 0);
        for bit in 0..64 {
            let total = (old >> bit & 1) + (op.add >> bit & 1) + carry;
            sum |= (total & 1) << bit;
            carry = if op.boundary >> bit & 1 == 1 { 0 } else { total >> 1 };
        }
        sum
    }

    #[test]
    fn masked_addition_matches_its_definition() {
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        };
        for _ in 0..10_000 {
            let (old, add) = (next(), next());
            for boundary in [next(), next() & next(), 0, u64::MAX, 1 << 63, next() | 1] {
                let op = MaskedFaa { add, boundary };
                assert_eq!(masked_faa64(old, &op), faa_by_bits(old, &op));
            }
        }
    }

    #[test]
    fn masked_compare_looks_at_its_mask_alone() {
        let op = MaskedCas { compare: 0xff00, compare_mask: 0xf000, swap: 0xab, swap_mask: 0xff };
        assert_eq!(masked_cas64(0xf0_12, &op), Some(0xf0_ab));
        assert_eq!(masked_cas64(0x70_12, &op), None);
    }
}
