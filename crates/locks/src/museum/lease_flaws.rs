//! Planted bugs of a ShiftLock with leases: what comes of a lock that is taken away by time, where
//! its paper compares too little or nothing.

use std::cell::Cell;

use farlock_fabric::{MaskedCas, MaskedFaa, Verb};

use super::tampered::Flaw;
use crate::record::shiftlock::{ShiftLock, ShiftWord};

const RELEASED: u128 = ShiftWord::COUNT.mask() | ShiftWord::GENERATION.mask();
/// What a release hands over by changes, of a writer and of a reader.
const HANDS_OVER: u128 = RELEASED | ShiftWord::EPOCH.mask() | ShiftWord::OPEN.mask();
const LEAVES: u128 = RELEASED | ShiftWord::READERS.mask();

/// What the protocol expects a verb to find, where it gets to see that whatever there was.
#[derive(Debug, Default)]
struct Believed(Cell<Option<(u128, u128)>>);

impl Believed {
    /// The verb finds what it compares.
    fn expects(&self, op: &MaskedCas<u128>) {
        self.0.set(Some((op.compare, op.compare_mask)));
    }

    fn finds(&self, old: u128) -> u128 {
        self.0.get().map_or(old, |(compare, mask)| old & !mask | compare)
    }
}

/// A reader's release adds, however late it comes (algorithm 3, line 2): after a reset it takes
/// another reader off, and a writer comes in beside that; or it makes 0 readers 32,767.
#[derive(Debug, Default)]
pub struct LateReader {
    believed: Believed,
}

impl Flaw for LateReader {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        self.believed.0.set(None);
        match verb {
            Verb::MaskedCas128 { addr, op, hint } if op.swap_mask == LEAVES => {
                self.believed.expects(&op);
                Some(Verb::MaskedFaa128 { addr, op: ShiftLock::leave(), hint })
            }
            _ => Some(verb),
        }
    }

    fn finds(&self, old: u128) -> u128 {
        self.believed.finds(old)
    }
}

/// A writer that knows its successor adds to the count and flips the epoch, however late
/// (algorithm 3, lines 16 and 20): after a reset that is what another writer waits for, or readers.
#[derive(Debug, Default)]
pub struct LateWriter {
    believed: Believed,
}

impl Flaw for LateWriter {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        self.believed.0.set(None);
        match verb {
            Verb::MaskedCas128 { addr, op, hint } if op.swap_mask == HANDS_OVER => {
                self.believed.expects(&op);
                let add = ShiftWord::COUNT.place(1) | ShiftWord::EPOCH.place(1);
                let op = MaskedFaa { add, boundary: ShiftWord::BOUNDARY };
                Some(Verb::MaskedFaa128 { addr, op, hint })
            }
            _ => Some(verb),
        }
    }

    fn finds(&self, old: u128) -> u128 {
        self.believed.finds(old)
    }
}

/// A handover that was long on its way is believed. Its receiver renews what it was granted, and
/// does not look whether it could: the lock may have been reset, and be another client's.
#[derive(Debug, Default)]
pub struct RenewalUnread {
    believed: Believed,
}

impl Flaw for RenewalUnread {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        self.believed.0.set(None);
        if let Verb::MaskedCas128 { op, .. } = &verb
            && op.swap_mask == RELEASED
        {
            self.believed.expects(op);
        }
        Some(verb)
    }

    fn finds(&self, old: u128) -> u128 {
        self.believed.finds(old)
    }
}

/// A release that is believed to have come too late, whenever it comes: of those whose verb swaps
/// all of `OF`. What it compared was another hold's, say.
#[derive(Debug, Default)]
pub struct ToldLost<const OF: u128>(Cell<bool>);

/// A reader is told so.
pub type ReaderLost = ToldLost<LEAVES>;
/// A writer that hands over is told so.
pub type WriterLost = ToldLost<HANDS_OVER>;

impl<const OF: u128> Flaw for ToldLost<OF> {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        let is_such = matches!(&verb, Verb::MaskedCas128 { op, .. } if op.swap_mask & OF == OF);
        self.0.set(is_such);
        Some(verb)
    }

    fn finds(&self, old: u128) -> u128 {
        if self.0.get() { old ^ ShiftWord::GENERATION.place(1) } else { old }
    }
}
