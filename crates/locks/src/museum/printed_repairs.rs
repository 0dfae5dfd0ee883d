//! What ShiftLock's and DSLR's papers do to repair a word or to keep its counts from overflowing,
//! and what comes of it: each as a mistake beside the sound lock's own text.

use std::cell::Cell;

use farlock_fabric::{Addr, MaskedCas, Slot, Verb};

use super::tampered::Flaw;
use crate::record::dslr_64::Dslr64Word;
use crate::record::shiftlock::ShiftWord;
use crate::slot;

/// ShiftLock's repair sets the epoch to zero with the rest of the word (section 3.6), and a waiting
/// reader looks at the epoch before it looks whether the lock was repaired, as the artifact's does.
/// A reader that came at epoch 1 takes the repair for its turn, beside a writer that still holds.
#[derive(Debug, Default)]
pub struct EpochZeroed {
    lock: Cell<u64>,
    verb: Cell<Seen>,
    /// What the last reader's opening verb found.
    came: Cell<u128>,
}

/// What the last verb was for.
#[derive(Clone, Copy, Debug, Default)]
enum Seen {
    #[default]
    Nothing,
    /// A reader came.
    Came,
    /// It looked at the word.
    Looked,
    /// Somebody stole the lock.
    Stolen,
}

impl Flaw for EpochZeroed {
    fn publishes(&self, _: Slot, word: usize, value: u64) -> bool {
        if word == slot::LOCK {
            self.lock.set(value);
        }
        true
    }

    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        let (seen, verb) = match verb {
            Verb::MaskedFaa128 { op, .. } if op.add == ShiftWord::READERS.place(1) => {
                (Seen::Came, verb)
            }
            Verb::Read { addr, .. } if addr == Addr::from_bits(self.lock.get()) => {
                (Seen::Looked, verb)
            }
            Verb::MaskedCas128 { addr, op, hint }
                if op.swap_mask & ShiftWord::GENERATION_LOW.mask() != 0 =>
            {
                let op = MaskedCas { swap_mask: op.swap_mask | ShiftWord::EPOCH.mask(), ..op };
                (Seen::Stolen, Verb::MaskedCas128 { addr, op, hint })
            }
            _ => (Seen::Nothing, verb),
        };
        self.verb.set(seen);
        Some(verb)
    }

    fn finds(&self, old: u128) -> u128 {
        let (epoch, low) = (ShiftWord::EPOCH.mask(), ShiftWord::GENERATION_LOW.mask());
        match self.verb.get() {
            Seen::Came => self.came.set(old),
            Seen::Looked if (old ^ self.came.get()) & epoch != 0 => {
                return old & !low | self.came.get() & low;
            }
            Seen::Stolen => return old & !epoch,
            Seen::Looked | Seen::Nothing => {}
        }
        old
    }
}

/// Who finds DSLR's counters full takes its ticket off again by adding -1, whatever has become of
/// them (section 4.9), and who has the last ticket resets them from what it sees. If one more
/// ticket is just being taken off, the reset has taken it off already: then the word borrows, and
/// every counter is full for ever.
#[derive(Debug, Default)]
pub struct UndoneByAdding {
    seen: Cell<u64>,
    /// What the protocol compares with, and with what the last verb did.
    compared: Cell<Option<(u64, u64)>>,
}

impl Flaw for UndoneByAdding {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        self.compared.set(None);
        let Verb::Cas64 { addr, compare, swap } = verb else { return Some(verb) };
        let one_less = compare.wrapping_sub(swap);
        if one_less == 1 || u128::from(one_less) == Dslr64Word::MAX_X.place(1) {
            self.compared.set(Some((compare, u64::MAX)));
            return Some(Verb::Faa64 { addr, add: one_less.wrapping_neg() });
        }
        let seen = self.seen.get();
        if swap == 0 && Dslr64Word(seen).served() == Dslr64Word(compare).served() {
            self.compared.set(Some((compare, seen)));
            return Some(Verb::Cas64 { addr, compare: seen, swap });
        }
        Some(verb)
    }

    fn finds(&self, old: u128) -> u128 {
        let found = old as u64;
        self.seen.set(found);
        match self.compared.get() {
            Some((compare, seen)) if seen == u64::MAX || seen == found => compare.into(),
            // It was compared with something else, and is not reset.
            Some((compare, seen)) if compare == found => seen.into(),
            _ => old,
        }
    }
}
