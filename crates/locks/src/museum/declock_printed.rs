//! DecLock's holes (arXiv 2505.17641), and one of this text's own first version: each as a mistake
//! beside the sound lock.

use std::cell::Cell;

use farlock_fabric::{Addr, Slot, Verb, Wait};

use super::tampered::Flaw;
use crate::record::declock::Header;
use crate::slot::{self, Phase, SlotWord};

/// As printed: every client acknowledges a reset, also one that holds the lock. So the repairer
/// does not wait for holders, and their releases are taken off the new header.
#[derive(Debug, Default)]
pub struct HolderAcknowledges;

impl Flaw for HolderAcknowledges {
    fn copies(&self, words: &mut [u64]) {
        // Of a record three words are read; of entries another number, or none that holds.
        if words.len() == 3 && SlotWord(words[slot::STATE]).phase() == Phase::Held as u64 {
            words.fill(0);
        }
    }
}

/// As printed: a waiter waits for a note alone. One that was lost with its sender leaves all in
/// line for ever.
#[derive(Debug, Default)]
pub struct WaitsForNote;

impl Flaw for WaitsForNote {
    fn waits<'w>(&self, wait: Wait<'w>) -> Wait<'w> {
        if wait.mail.is_some() { Wait { peers: &[], interval: None, ..wait } } else { wait }
    }
}

/// A reader takes it for its turn when exactly those before it have left. Others that came later,
/// and knew of their turn earlier, may have left as well: then it waits for ever.
#[derive(Debug, Default)]
pub struct ExactTurn {
    lock: Cell<u64>,
    state: Cell<u64>,
    looks: Cell<bool>,
}

impl Flaw for ExactTurn {
    fn publishes(&self, _: Slot, word: usize, value: u64) -> bool {
        match word {
            slot::LOCK => self.lock.set(value),
            slot::STATE => self.state.set(value),
            _ => {}
        }
        true
    }

    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        let lock = Addr::from_bits(self.lock.get());
        self.looks.set(matches!(verb, Verb::Read { addr, .. } if addr == lock));
        Some(verb)
    }

    fn finds(&self, old: u128) -> u128 {
        let state = SlotWord(self.state.get());
        let (header, position) = (Header(old as u64), state.ticket() & Header::HEAD.max());
        let waits = state.phase() == Phase::Waiting as u64 && state.mode() == 0;
        if !(waits && self.looks.get()) || header.head() == position {
            return old;
        }
        let before = position.wrapping_sub(1) & Header::HEAD.max();
        header.with(Header::HEAD, before).0.into()
    }
}
