//! The slot record: a line of far memory in which each client says what it is doing.
//!
//! The owner keeps it current with plain stores; nobody else writes it. It serves listing, deadlock
//! detection and repair, and repair relies on its order: a client publishes that it *opens* a lock
//! before its first verb there, and that it is *idle* after its last one has completed.

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

/// The word of a record that holds the [`SlotWord`].
pub const STATE: usize = 0;
/// The word that holds the lock's address.
pub const LOCK: usize = 1;
/// The word that holds the token of the grant.
pub const TOKEN: usize = 2;
/// The word in which a service may note since when, in nanoseconds of the endpoint's clock.
pub const SINCE: usize = 3;

/// The word in which a waiter says who is before it in line, where the protocol has it so.
pub const QUEUE: usize = 5;
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

/// A slot record as somebody else reads it. Words are read one by one; see the module on why that
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
            lock: Addr::from_bits(*words.get(LOCK)?),
            token: words.get(TOKEN).copied().unwrap_or(0),
            since: words.get(SINCE).copied().unwrap_or(0),
        })
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

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(SlotRecord::decode(&[99, 0]), None);
        assert_eq!(SlotRecord::decode(&[]), None);
    }
}
