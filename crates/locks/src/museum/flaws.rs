//! Planted bugs: each a mistake that was made in some lock, or could have been.
//!
//! The story of each is its documentation. All are found by the standard mix of schedules within
//! the budget that the museum's test states.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use farlock_fabric::{Fault, MaskedCas, MaskedFaa, Message, Nanos, Slot, Verb, Wait};

use super::tampered::Flaw;
use crate::record::dslr::DslrWord;
use crate::record::dslr_64::Dslr64Word;
use crate::record::mcs::McsWord;
use crate::record::queue::{Head, Kind, Released};
use crate::record::shiftlock::ShiftWord;
use crate::slot::{self, Phase, SlotWord};

/// So many tickets of either kind has a DSLR on 64 bits in an exhibit, until its counters are full.
pub(super) const FEW_TICKETS: u16 = 2;

fn is_note(message: &Message, kind: Kind) -> bool {
    Head(message[0]).kind() == kind as u64
}

/// No mistake.
#[derive(Debug, Default)]
pub struct Sound;

impl Flaw for Sound {}

/// Notes are believed whatever lock and generation they name, as if they named none.
#[derive(Debug, Default)]
pub struct Untagged {
    lock: Cell<u64>,
    generation: Cell<u64>,
}

impl Flaw for Untagged {
    fn publishes(&self, _: Slot, word: usize, value: u64) -> bool {
        match word {
            slot::LOCK => self.lock.set(value),
            slot::STATE => self.generation.set(SlotWord(value).generation()),
            _ => {}
        }
        true
    }

    fn receives(&self, _: Slot, mut message: Message) -> Option<Message> {
        if !is_note(&message, Kind::Reset) {
            let released = Released(message[2]);
            message[1] = self.lock.get();
            message[2] = released.with(Released::GENERATION, self.generation.get()).0;
        }
        Some(message)
    }
}

/// Notes are believed whatever lock they name: a slot that has come to another one takes what is
/// still said of the first for news of that.
#[derive(Debug, Default)]
pub struct OfAnotherLock {
    /// At which lock each slot is.
    at: RefCell<BTreeMap<Slot, u64>>,
}

impl Flaw for OfAnotherLock {
    fn publishes(&self, slot: Slot, word: usize, value: u64) -> bool {
        if word == slot::LOCK {
            self.at.borrow_mut().insert(slot, value);
        }
        true
    }

    fn receives(&self, slot: Slot, mut message: Message) -> Option<Message> {
        message[1] = self.at.borrow().get(&slot).copied().unwrap_or_default();
        Some(message)
    }
}

/// A completion that was lost is taken for one that came: what the verb found is what the one
/// before it did, and its slot goes on.
#[derive(Debug, Default)]
pub struct LostIsDone;

impl Flaw for LostIsDone {
    fn completes(&self, became: Result<(), Fault>) -> Result<(), Fault> {
        if became == Err(Fault::Lost) { Ok(()) } else { became }
    }
}

/// The record of a slot that has released says that it holds, until its next acquisition: a
/// repairer waits for that.
#[derive(Debug, Default)]
pub struct HoldsForever;

impl Flaw for HoldsForever {
    fn publishes(&self, _: Slot, word: usize, value: u64) -> bool {
        word != slot::STATE || SlotWord(value).phase() != Phase::Idle as u64
    }
}

/// A ShiftLock holder releases whatever happened since it was granted: a release after a repair
/// counts like any other, and the repairer, who counts releases, counts one too many.
#[derive(Debug, Default)]
pub struct LateRelease {
    expected: Cell<Option<u128>>,
}

impl LateRelease {
    const RELEASED: u128 = ShiftWord::COUNT.mask() | ShiftWord::GENERATION.mask();
}

impl Flaw for LateRelease {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        self.expected.set(None);
        let tail = ShiftWord::TAIL.mask();
        match verb {
            Verb::MaskedCas128 { addr, op, hint }
                if op.compare_mask & !tail == Self::RELEASED
                    && op.swap_mask & ShiftWord::GENERATION_LOW.mask() == 0 =>
            {
                self.expected.set(Some(op.compare & Self::RELEASED));
                let swap_mask = op.swap_mask & !ShiftWord::GENERATION.mask();
                let op = MaskedCas { compare_mask: op.compare_mask & tail, swap_mask, ..op };
                Some(Verb::MaskedCas128 { addr, op, hint })
            }
            _ => Some(verb),
        }
    }

    fn finds(&self, old: u128) -> u128 {
        self.expected.get().map_or(old, |expected| old & !Self::RELEASED | expected)
    }
}

/// A holder whose closing verb finds a waiter in line thinks that it has released: the lock is
/// never handed over, unless the successor had reported before.
#[derive(Debug, Default)]
pub struct ForgottenHandover {
    closing: Cell<bool>,
}

impl Flaw for ForgottenHandover {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        match verb {
            Verb::MaskedCas128 { op, .. } => {
                let leaves = op.swap_mask & McsWord::TAIL.mask() != 0;
                self.closing.set(leaves && McsWord(op.swap).tail() == 0);
            }
            Verb::Send { message, .. }
                if self.closing.get() && is_note(&message, Kind::Handover) =>
            {
                return None;
            }
            _ => {}
        }
        Some(verb)
    }
}

/// A repairer begins no new generation.
#[derive(Debug, Default)]
pub struct UnbumpedGeneration;

impl Flaw for UnbumpedGeneration {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        let mask = McsWord::GENERATION.mask();
        match verb {
            Verb::MaskedCas128 { addr, op, hint }
                if op.compare_mask == mask && op.swap_mask & mask != 0 =>
            {
                let op = MaskedCas { swap: op.swap & !mask | op.compare & mask, ..op };
                Some(Verb::MaskedCas128 { addr, op, hint })
            }
            _ => Some(verb),
        }
    }
}

/// Of two generations the larger number is the newer: a repair that goes on at zero is old news.
#[derive(Debug, Default)]
pub struct GenerationBySize {
    generation: Cell<u64>,
}

impl Flaw for GenerationBySize {
    fn publishes(&self, _: Slot, word: usize, value: u64) -> bool {
        if word == slot::STATE {
            self.generation.set(SlotWord(value).generation());
        }
        true
    }

    fn receives(&self, _: Slot, message: Message) -> Option<Message> {
        let newer = Released(message[2]).generation() > self.generation.get();
        (newer || !is_note(&message, Kind::Reset)).then_some(message)
    }
}

/// A DSLR holder does not look at the clock when it releases, nor compare the generation: a release
/// after the end of its lease counts like any other.
#[derive(Debug, Default)]
pub struct LeaseOverlooked {
    holds: Cell<bool>,
}

impl Flaw for LeaseOverlooked {
    fn publishes(&self, _: Slot, word: usize, value: u64) -> bool {
        if word == slot::STATE {
            self.holds.set(SlotWord(value).phase() == Phase::Held as u64);
        }
        true
    }

    fn tells_time(&self, now: Nanos) -> Nanos {
        if self.holds.get() { 0 } else { now }
    }

    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        match verb {
            Verb::MaskedCas128 { addr, op, hint } if self.holds.get() => {
                let compare_mask = op.compare_mask & !DslrWord::GENERATION.mask();
                let op = MaskedCas { compare_mask, ..op };
                Some(Verb::MaskedCas128 { addr, op, hint })
            }
            _ => Some(verb),
        }
    }
}

/// The count of readers has one bit: two readers are none.
#[derive(Debug, Default)]
pub struct WrappedCounter;

impl Flaw for WrappedCounter {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        match verb {
            Verb::MaskedFaa128 { addr, op, hint } => {
                let one = ShiftWord::READERS.place(1);
                let op = MaskedFaa {
                    add: op.add & !ShiftWord::READERS.mask() | one,
                    boundary: op.boundary | one,
                };
                Some(Verb::MaskedFaa128 { addr, op, hint })
            }
            _ => Some(verb),
        }
    }
}

/// A release whose completion is slow is sent once more, by plain writes. One of them lands when
/// the lock is another client's.
#[derive(Debug, Default)]
pub struct ZombieWrite;

impl Flaw for ZombieWrite {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        match verb {
            Verb::Cas64 { addr, swap: 0, .. } => Some(Verb::Write { addr, data: &[0] }),
            _ => Some(verb),
        }
    }

    fn doubles(&self, verb: &Verb<'_>) -> bool {
        matches!(verb, Verb::Write { .. })
    }
}

/// A holder that was looked at three times in vain is taken for dead, without a revocation.
#[derive(Debug, Default)]
pub struct SuspectedIsNotDead {
    looks: Cell<u32>,
}

impl Flaw for SuspectedIsNotDead {
    fn believes_alive(&self, alive: bool) -> bool {
        self.looks.set(self.looks.get() + 1);
        alive && !self.looks.get().is_multiple_of(3)
    }
}

/// A repairer does not wait until the old generation has left.
#[derive(Debug, Default)]
pub struct RepairWithoutDrain;

impl Flaw for RepairWithoutDrain {
    fn copies(&self, words: &mut [u64]) {
        words.fill(0);
    }
}

/// A waiter does not watch the one before it.
#[derive(Debug, Default)]
pub struct DeathUnwatched;

impl Flaw for DeathUnwatched {
    fn waits<'w>(&self, wait: Wait<'w>) -> Wait<'w> {
        let ends_otherwise = wait.mail.is_some() || wait.word.is_some() || wait.interval.is_some();
        if ends_otherwise { Wait { peers: &[], ..wait } } else { wait }
    }
}

/// A client opens a lock before its record says so, and a repairer does not see it.
#[derive(Debug, Default)]
pub struct OpeningUnpublished;

impl Flaw for OpeningUnpublished {
    fn publishes(&self, _: Slot, word: usize, value: u64) -> bool {
        word != slot::STATE || SlotWord(value).phase() != Phase::Opening as u64
    }
}

/// A writer that is to wait for the readers before it begins at once.
#[derive(Debug, Default)]
pub struct ReadersNotAwaited;

impl Flaw for ReadersNotAwaited {
    fn receives(&self, _: Slot, mut message: Message) -> Option<Message> {
        if is_note(&message, Kind::ModeChanged) {
            message[0] = Head(message[0]).with(Head::KIND, Kind::Handover as u64).0;
        }
        Some(message)
    }
}

/// A waiter does not listen to who repairs.
#[derive(Debug, Default)]
pub struct ResetOverlooked;

impl Flaw for ResetOverlooked {
    fn receives(&self, _: Slot, message: Message) -> Option<Message> {
        (!is_note(&message, Kind::Reset)).then_some(message)
    }
}

/// A client that looks around for the dead does not count the others that do the same. It gives
/// their tickets back with those of the dead, and a client behind them comes in first; when their
/// own turn comes round, their tokens are older than one that was used.
#[derive(Debug, Default)]
pub struct RepairerOverlooked;

impl Flaw for RepairerOverlooked {
    fn copies(&self, words: &mut [u64]) {
        if let Some(state) = words.first_mut()
            && SlotWord(*state).phase() == Phase::Repairing as u64
        {
            *state = 0;
        }
    }
}

/// Who finds DSLR's counters full, and that nobody living counts in them, sets the word to zero if
/// it is still the same. But meanwhile others may have set it to zero, and counted up to the same
/// values: it has to claim the word first, and look again.
#[derive(Debug, Default)]
pub struct ResetUnclaimed {
    compared: Cell<Option<u64>>,
}

impl Flaw for ResetUnclaimed {
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        self.compared.set(None);
        let Verb::Cas64 { addr, compare, swap } = verb else { return Some(verb) };
        let one_more = u128::from(swap.wrapping_sub(compare));
        let tickets = [Dslr64Word::MAX_S, Dslr64Word::MAX_X];
        // Where the counters are not full, that is a try.
        let is_full = tickets.iter().any(|field| field.of(compare.into()) >= FEW_TICKETS.into());
        if !is_full || tickets.iter().all(|field| field.place(1) != one_more) {
            return Some(verb);
        }
        self.compared.set(Some(compare));
        Some(Verb::Cas64 { addr, compare, swap: 0 })
    }

    fn finds(&self, old: u128) -> u128 {
        match self.compared.get() {
            // It has reset the counters, and claims nothing any more.
            Some(compare) if old == compare.into() => 0,
            _ => old,
        }
    }
}
