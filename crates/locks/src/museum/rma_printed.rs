//! What RMA-RW's readers do as printed, each as a mistake beside the sound lock's own text (Schmid,
//! Besta, Hoefler: High-Performance Distributed RMA Locks, HPDC'16).

use std::cell::Cell;

use farlock_fabric::{Verb, Wait};

use super::tampered::Flaw;
use crate::record::rma_rw::RmaWord;

/// The reader that finds just T_R begins the readers' turn anew by reading the counts and then
/// subtracting those that have left. Another that does so at the same time, since the first has
/// begun anew and T_R have come again, subtracts the same once more.
#[derive(Debug, Default)]
pub struct ResetBySubtracting {
    /// What the protocol compared the counts with.
    compared: Cell<Option<u64>>,
}

impl Flaw for ResetBySubtracting {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        self.compared.set(None);
        match verb {
            Verb::Cas64 { addr, compare, swap } if takes_off_both(compare, swap) => {
                self.compared.set(Some(compare));
                Some(Verb::Faa64 { addr, add: swap.wrapping_sub(compare) })
            }
            _ => Some(verb),
        }
    }

    fn finds(&self, old: u128) -> u128 {
        self.compared.get().map_or(old, u128::from)
    }
}

/// Whether the same is taken off both counts.
const fn takes_off_both(compare: u64, swap: u64) -> bool {
    let off = compare.wrapping_sub(swap);
    off != 0 && off >> 32 == off & u32::MAX as u64
}

/// A reader that has found T_R readers, or the writers' turn, waits until the counts are reset. A
/// writer has reset them already, but not left when T_R readers had come since: the last of those
/// waits for the next writer to reset them, and there may be none.
#[derive(Debug, Default)]
pub struct WaitsForReset {
    /// Whether the last verb was a look at the whole word.
    looks: Cell<bool>,
    counts: Cell<u64>,
}

impl Flaw for WaitsForReset {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        self.looks.set(matches!(verb, Verb::Read { words: 2, .. }));
        Some(verb)
    }

    /// A writer seems to be in line whether one is or not.
    fn finds(&self, old: u128) -> u128 {
        if !self.looks.get() {
            return old;
        }
        self.counts.set((old >> 64) as u64);
        RmaWord(old).with(RmaWord::TAIL, u64::MAX).0
    }

    /// It waits for the counts alone.
    fn waits<'w>(&self, wait: Wait<'w>) -> Wait<'w> {
        let all = RmaWord::TAIL.max();
        match wait.word {
            Some((lock, low)) if self.looks.get() && low & all == all => {
                Wait { word: Some((lock.plus(8), self.counts.get())), ..wait }
            }
            _ => wait,
        }
    }
}
