//! What ShiftLock's and DSLR's papers do to repair a word or to keep its counts from overflowing,
//! and what comes of it: each as a mistake beside the sound lock's own text.

use std::cell::Cell;

use farlock_fabric::{Addr, MaskedCas, Slot, Verb};

use super::flaws::FEW_TICKETS;
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
    /// A repairer stole the lock.
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
/// them (section 4.9), and who gives the last ticket back resets them though one more is just being
/// taken off: the reset has taken it off already. Then the word borrows, and every counter is full
/// for ever.
#[derive(Debug, Default)]
pub struct UndoneByAdding {
    /// What is taken and will be taken off again, in the word that the last verb found.
    too_many: Cell<u64>,
    posted: Cell<Posted>,
}

/// What the last verb was for.
#[derive(Clone, Copy, Debug, Default)]
enum Posted {
    #[default]
    Other,
    /// A ticket is taken off: the protocol compares with this.
    Undo(u64),
    /// The protocol compares with the first, and the verb with the second: they differ in a reset
    /// by the tickets that are just being taken off.
    Compare(u64, u64),
}

impl Flaw for UndoneByAdding {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        let Verb::Cas64 { addr, compare, swap } = verb else {
            self.posted.set(Posted::Other);
            return Some(verb);
        };
        let one_less = compare.wrapping_sub(swap);
        if one_less == 1 || u128::from(one_less) == Dslr64Word::MAX_X.place(1) {
            self.posted.set(Posted::Undo(compare));
            return Some(Verb::Faa64 { addr, add: one_less.wrapping_neg() });
        }
        let word = if swap == 0 { compare + self.too_many.get() } else { compare };
        self.posted.set(Posted::Compare(compare, word));
        Some(Verb::Cas64 { addr, compare: word, swap })
    }

    fn finds(&self, old: u128) -> u128 {
        let found = Dslr64Word(old as u64);
        match self.posted.get() {
            Posted::Undo(compare) => return compare.into(),
            Posted::Compare(compare, word) if word == found.0 => return compare.into(),
            // It was compared with something else, and is not reset.
            Posted::Compare(compare, word) if compare == found.0 => return word.into(),
            Posted::Compare(..) | Posted::Other => {}
        }
        let full = u64::from(FEW_TICKETS);
        let some = found.with(Dslr64Word::MAX_X, found.max_x().min(full));
        let some = some.with(Dslr64Word::MAX_S, found.max_s().min(full));
        self.too_many.set(found.0 - some.0);
        some.0.into()
    }
}
