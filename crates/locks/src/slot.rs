//! The slot record: a line of far memory in which each client says what it is doing.
//!
//! The owner keeps it current with plain stores; nobody else writes it. It serves listing, deadlock
//! detection and repair, and repair relies on its order: a client publishes that it *opens* a lock
//! before its first verb there, and that it is *idle* after its last one has completed.

use std::cmp::Ordering;

use farlock_fabric::{Addr, word};

use crate::want::Mode;

word! {
    /// The first word of a slot record.
    pub struct SlotWord: u64 {
        /// A [`Phase`].
        PHASE phase: 8,
        /// 0 shared, 1 exclusive.
        MODE mode: 8,
        /// The lock's generation in which this client waits or holds; meaningless while opening.
        GENERATION generation: 16,
        /// The ticket with which it waits or holds, where the protocol gives tickets.
        TICKET ticket: 32,
    }
}

word! {
    /// The part of a lock over many words that a client wants: words of 16 bytes, one after the
    /// other from the lock's address, which it acquires in this order.
    pub struct PartWord: u64 {
        /// The first.
        FIRST first: 32,
        /// How many.
        COUNT count: 16,
        /// How many of them it has; it is at the next one.
        HAS has: 16,
    }
}

impl PartWord {
    /// From one word of a lock to the next, in bytes.
    pub const STRIDE: u64 = 16;

    /// So many words, of which it has none.
    pub const fn of(first: u32, count: u16) -> Self {
        Self::new().with(Self::FIRST, first as u64).with(Self::COUNT, count as u64)
    }
}

/// What marks an address of a lock that is had in parts. Addresses of locks are even.
pub const IN_PARTS: u64 = 1;

/// Whether this word of a record names a lock that is had in parts.
pub const fn is_in_parts(word: u64) -> bool {
    word & IN_PARTS != 0
}

/// The address in a record's word, whether the lock is had in parts or not.
pub const fn lock_of(word: u64) -> Addr {
    Addr::from_bits(word & !IN_PARTS)
}

/// The word of a record that holds the [`SlotWord`].
pub const STATE: usize = 0;
/// The word that holds the lock's address, and in its lowest bit whether there is a [`PART`].
pub const LOCK: usize = 1;
/// The word that holds the token of the grant.
pub const TOKEN: usize = 2;
/// The word in which a service may note since when, in nanoseconds of the endpoint's clock.
pub const SINCE: usize = 3;

/// The word in which a waiter says who is before it in line, where the protocol has it so.
pub const QUEUE: usize = 5;
/// The same word, of a lock that is had in parts: a [`PartWord`].
pub const PART: usize = QUEUE;
/// How many words of a record say all that repair must know.
pub const WORDS: usize = PART + 1;
/// The word that changes whenever a waiter gives a sign of life.
pub const SIGN: usize = 6;

/// What a slot is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// Nothing.
    Idle = 0,
    /// Its first verb may or may not have taken effect.
    Opening = 1,
    /// In line.
    Waiting = 2,
    /// Holding.
    Held = 3,
    /// At the head of a line that it began anew, and waiting for those of the old one.
    Repairing = 4,
    /// First in line: the verb by which it claims the lock may or may not have taken effect.
    Claiming = 5,
    /// Leaves the line, or the lock with others behind it in line.
    Leaving = 6,
    /// In line, but wants the lock no more.
    Withdrawn = 7,
    /// Attempts to acquire, in no line.
    Trying = 8,
    /// Was not let in at once, and tries again or gets in line. It holds nothing.
    Coming = 9,
}

impl Phase {
    /// The phase a record names; what it cannot name is `None`.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match bits {
            0 => Some(Self::Idle),
            1 => Some(Self::Opening),
            2 => Some(Self::Waiting),
            3 => Some(Self::Held),
            4 => Some(Self::Repairing),
            5 => Some(Self::Claiming),
            6 => Some(Self::Leaving),
            7 => Some(Self::Withdrawn),
            8 => Some(Self::Trying),
            9 => Some(Self::Coming),
            _ => None,
        }
    }
}

impl SlotWord {
    /// The word for this state.
    #[inline]
    pub const fn of(phase: Phase, mode: Mode, generation: u64, ticket: u32) -> Self {
        let state = phase as u64 | (mode as u64) << 8 | (generation & 0xffff) << 16;
        Self(state | (ticket as u64) << 32)
    }
}

/// A slot record as another client reads it. Words are read one by one; see the module on why that
/// is enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotRecord {
    /// What the slot is doing.
    pub phase: Phase,
    /// In which mode.
    pub mode: Mode,
    /// In which generation of the lock.
    pub generation: u64,
    /// With which ticket, where the protocol gives tickets; else 0.
    pub ticket: u32,
    /// With which lock.
    pub lock: Addr,
    /// With which token, while held.
    pub token: u64,
    /// Since when, where a service noted it; else 0.
    pub since: u64,
    /// Which part of it, if it is had in parts.
    pub part: Option<PartWord>,
}

impl SlotRecord {
    /// Reads a record from its words. A record that makes no sense is `None`.
    pub fn decode(words: &[u64]) -> Option<Self> {
        let state = SlotWord(*words.get(STATE)?);
        Some(Self {
            phase: Phase::from_bits(state.phase())?,
            mode: if state.mode() == 0 { Mode::Shared } else { Mode::Exclusive },
            generation: state.generation(),
            ticket: state.ticket() as u32,
            lock: lock_of(*words.get(LOCK)?),
            token: words.get(TOKEN).copied().unwrap_or(0),
            since: words.get(SINCE).copied().unwrap_or(0),
            part: words.get(PART).filter(|_| is_in_parts(words[LOCK])).copied().map(PartWord),
        })
    }

    /// What the slot is doing at the word of a lock there; `None` if nothing. Of a part it holds
    /// the words that it has, and is at the next one as its record says.
    pub fn at(&self, word: Addr) -> Option<Self> {
        if self.phase == Phase::Idle {
            return None;
        }
        let Some(part) = self.part else { return (self.lock == word).then_some(*self) };
        let bytes = word.bits().checked_sub(self.lock.bits())?;
        let number = (bytes / PartWord::STRIDE).checked_sub(part.first())?;
        if !bytes.is_multiple_of(PartWord::STRIDE) || number >= part.count() {
            return None;
        }
        match number.cmp(&part.has()) {
            Ordering::Less => Some(Self { phase: Phase::Held, ..*self }),
            Ordering::Equal => Some(Self { part: None, ..*self }),
            Ordering::Greater => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_round_trip() {
        let state = SlotWord::of(Phase::Waiting, Mode::Exclusive, 0x1_2345, u32::MAX - 1);
        assert_eq!(state.generation(), 0x2345);
        let record = SlotRecord::decode(&[state.0, 64, 7, 9]).unwrap();
        assert_eq!((record.phase, record.mode), (Phase::Waiting, Mode::Exclusive));
        assert_eq!(record.ticket, u32::MAX - 1);
        assert_eq!((record.lock.offset(), record.token, record.since), (64, 7, 9));
    }

    /// A client that wants four words from the third on, has two of them and waits at the next.
    #[test]
    fn of_a_part_a_client_holds_what_it_has_and_is_at_the_next_word() {
        let state = SlotWord::of(Phase::Waiting, Mode::Exclusive, 0, 7);
        let part = PartWord::of(2, 4).with(PartWord::HAS, 2);
        let record = SlotRecord::decode(&[state.0, 64 | IN_PARTS, 0, 0, 0, part.0]).unwrap();
        let lock = Addr::from_bits(64);
        let at = |word: u64| record.at(lock.plus(word * PartWord::STRIDE)).map(|r| r.phase);
        let (held, waits) = (Some(Phase::Held), Some(Phase::Waiting));
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(at), [None, None, held, held, waits, None, None]);
        let idle = SlotRecord { phase: Phase::Idle, ..record };
        assert_eq!(idle.at(lock.plus(2 * PartWord::STRIDE)), None, "it has left");
        assert_eq!(record.at(lock.plus(40)), None, "between two words");
        assert_eq!(record.at(Addr::from_bits(0)), None, "before the lock");
    }

    #[test]
    fn a_record_names_every_phase() {
        let phases = (0..10).map(|bits| Phase::from_bits(bits).map(|phase| phase as u64));
        assert!(phases.eq((0..10).map(Some)));
        assert_eq!(Phase::from_bits(10), None);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(SlotRecord::decode(&[99, 0]), None);
        assert_eq!(SlotRecord::decode(&[]), None);
    }
}
