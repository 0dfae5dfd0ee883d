//! The door: how a newcomer claims a lock without waiting in line, or gets in line.
//!
//! A newcomer claims a free lock that nobody waits for. If waiters are in line it may *pass* the
//! line, as long as the count of releases is not a multiple of `bypass + 1`: every release raises
//! the count, so at most `bypass` newcomers pass between two waiters, and no word need say how many
//! have.

use farlock_fabric::{HoldBack, MaskedCas, Nanos, Posted, Verb, Wait, WideAtomics};

use super::doubt::is_believed;
use super::word::{Claim, ClaimWord, Grant, HELD_MASK, LINE_MASK, Place, Rank, matched, name_of};
use crate::prelude::*;
use crate::record::barging::{self, ATTEMPTS, has_barged_enough, yield_and_read};

/// Attempts of a reader among readers before it yields: one fails where another reader came or left
/// meanwhile.
const ATTEMPTS_AMONG_READERS: u32 = 64;

/// How long a newcomer waits for a message that is still being written, in nanoseconds.
const HALF_WRITTEN_NS: Nanos = 1_000_000;

/// What came of an attempt to get in.
pub(super) enum Came {
    /// The lock is held.
    Granted(Grant),
    /// It withdrew before it was in line.
    Left,
    /// It is in line.
    InLine,
}

/// The verb that claims a lock that nobody holds or awaits; for a reader, where so many readers
/// hold it as in `seen`.
#[inline(always)]
pub(super) fn enter_free<E: WideAtomics>(
    site: &Site<'_, E>,
    mode: Mode,
    seen: ClaimWord,
) -> MaskedCas<u128> {
    let compare_mask = HELD_MASK | ClaimWord::TAIL.mask();
    match mode {
        Mode::Exclusive => MaskedCas {
            compare: 0,
            compare_mask,
            swap: ClaimWord::HOLDER.place(name_of(site.me.endpoint)) | Place::of(site).as_tail(),
            swap_mask: ClaimWord::HOLDER.mask() | LINE_MASK,
        },
        Mode::Shared => {
            // A full count lets nobody in: then the comparison fails.
            let readers = seen.readers().min(ClaimWord::READERS.max() - 1);
            MaskedCas {
                compare: ClaimWord::READERS.place(readers),
                compare_mask,
                swap: ClaimWord::READERS.place(readers + 1),
                swap_mask: ClaimWord::READERS.mask(),
            }
        }
    }
}

/// The verb by which a writer claims a lock that nobody holds or awaits, and gets in no line.
fn enter_outside<E: WideAtomics>(site: &Site<'_, E>) -> MaskedCas<u128> {
    MaskedCas {
        compare: 0,
        compare_mask: HELD_MASK | ClaimWord::TAIL.mask(),
        swap: ClaimWord::HOLDER.place(name_of(site.me.endpoint)),
        swap_mask: ClaimWord::HOLDER.mask(),
    }
}

/// The verb that claims a lock that nobody holds, past those in line, where its count is as seen.
#[inline(always)]
pub(super) fn pass<E: WideAtomics>(
    site: &Site<'_, E>,
    mode: Mode,
    seen: ClaimWord,
) -> MaskedCas<u128> {
    let (swap, swap_mask) = match mode {
        Mode::Exclusive => {
            (ClaimWord::HOLDER.place(name_of(site.me.endpoint)), ClaimWord::HOLDER.mask())
        }
        Mode::Shared => (ClaimWord::READERS.place(1), ClaimWord::READERS.mask()),
    };
    MaskedCas {
        compare: seen.0 & ClaimWord::COUNT.mask(),
        compare_mask: HELD_MASK | ClaimWord::COUNT.mask(),
        swap,
        swap_mask,
    }
}

/// The grant by a verb that found the word as it wanted it.
#[inline(always)]
pub(super) fn granted<E: WideAtomics>(
    site: &Site<'_, E>,
    mode: Mode,
    op: &MaskedCas<u128>,
    found: u128,
) -> Grant {
    let rank = match mode {
        Mode::Shared => Rank::Reader,
        Mode::Exclusive if op.swap_mask & ClaimWord::TAIL.mask() != 0 => Rank::Head,
        Mode::Exclusive => Rank::Passer,
    };
    let acquisition = site.acquisition();
    if rank != Rank::Head {
        site.stood_in_no_line();
    }
    Grant { count: ClaimWord(found).count(), acquisition, rank }
}

impl Claim {
    fn newcomer_yields<E: WideAtomics>(&self) -> u8 {
        barging::newcomer_yields::<E>(self.bypass, self.newcomer_yields)
    }
}

impl<E: WideAtomics> Protocol<'_, E, Claim> {
    /// Whether this endpoint claims a free lock outside of its line.
    #[inline(always)]
    fn is_outside(self) -> bool {
        let step = self.rules.outside;
        step != 0 && self.me.endpoint.index.is_multiple_of(step)
    }

    /// Whether its first attempt is a verb that a server may hold back until the lock is free. That
    /// passes no line: those that stand in it are few then, and their turn is soon.
    #[inline(always)]
    fn is_held_back(self, mode: Mode) -> bool {
        mode == Mode::Exclusive && self.is_outside()
    }

    /// The verb that claims a lock that nobody holds or awaits.
    #[inline(always)]
    pub(super) fn enter(self, mode: Mode, seen: ClaimWord) -> MaskedCas<u128> {
        match mode {
            Mode::Exclusive if self.is_outside() => enter_outside(&self),
            _ => enter_free(&self, mode, seen),
        }
    }

    /// The verb by which a newcomer claims a lock whose word is `seen`, if it need not get in line.
    #[inline(always)]
    fn way_in(self, mode: Mode, seen: ClaimWord) -> Option<MaskedCas<u128>> {
        if seen.tail() == 0 {
            return seen.is_free_for(mode).then(|| self.enter(mode, seen));
        }
        let may_pass = seen.0 & HELD_MASK == 0 && !self.rules.is_closed_at(seen.count());
        may_pass.then(|| pass(&self, mode, seen))
    }

    /// What the first attempt expects: the word as this slot left it, or a free one; and whether it
    /// passes a line.
    #[inline(always)]
    fn expects(self, mode: Mode) -> (ClaimWord, bool) {
        let seen = ClaimWord(self.hint().unwrap_or(0));
        let may_pass = seen.0 & HELD_MASK == 0 && !self.rules.is_closed_at(seen.count());
        let passes = seen.tail() != 0 && may_pass && !self.is_held_back(mode);
        let can_be = passes || seen.tail() == 0 && seen.is_free_for(mode);
        (if can_be { seen } else { ClaimWord(0) }, passes)
    }

    /// The first attempt, or a look at the word if the turn is over.
    #[inline(always)]
    pub(super) fn attempt(self, mode: Mode) -> Verb<'static> {
        let (addr, hint) = (self.lock, self.hint());
        if has_barged_enough(&self, ClaimWord::COUNT) {
            return Verb::Read { addr, words: 2 };
        }
        let op = match self.expects(mode) {
            (seen, true) => pass(&self, mode, seen),
            (seen, false) => self.enter(mode, seen),
        };
        Verb::MaskedCas128 { addr, op, hint }
    }

    /// The same, posted: each of its verbs in a place of its own, where its masks are constants.
    #[inline(always)]
    pub(super) fn post_attempt(self, mode: Mode) -> Posted {
        let (addr, hint) = (self.lock, self.hint());
        if has_barged_enough(&self, ClaimWord::COUNT) {
            return self.endpoint.post(Verb::Read { addr, words: 2 });
        }
        match self.expects(mode) {
            (seen, true) => {
                let op = pass(&self, mode, seen);
                self.endpoint.post(Verb::MaskedCas128 { addr, op, hint })
            }
            (_, false) if self.is_held_back(mode) => {
                let op = enter_outside(&self);
                let verb = Verb::MaskedCas128 { addr, op, hint };
                self.endpoint.post_patiently(verb, HoldBack::default())
            }
            (seen, false) => {
                let op = enter_free(&self, mode, seen);
                self.endpoint.post(Verb::MaskedCas128 { addr, op, hint })
            }
        }
    }

    /// The grant, if that attempt found the word as it wanted it.
    #[inline(always)]
    pub(super) fn attempted(self, mode: Mode, found: u128) -> Option<Grant> {
        if has_barged_enough(&self, ClaimWord::COUNT) {
            return None;
        }
        match self.expects(mode) {
            (seen, true) => {
                let op = pass(&self, mode, seen);
                matched(&op, found).then(|| granted(&self, mode, &op, found))
            }
            (seen, false) if self.is_outside() => {
                let op = self.enter(mode, seen);
                matched(&op, found).then(|| granted(&self, mode, &op, found))
            }
            (seen, false) => {
                let op = enter_free(&self, mode, seen);
                matched(&op, found).then(|| granted(&self, mode, &op, found))
            }
        }
    }

    /// Claims a lock whose word was found to be this without getting in line, or gets in line.
    pub(super) async fn get_in_line(self, mode: Mode, mut seen: ClaimWord) -> Outcome<Came> {
        self.await_mail_in_parts().await;
        let mut is_alone = false;
        if has_barged_enough(&self, ClaimWord::COUNT) {
            let left = seen.count();
            seen = ClaimWord(yield_and_read(&self).await?);
            is_alone = seen.count() == left;
        }
        for yields_left in (0..=self.rules.newcomer_yields::<E>()).rev() {
            match self.barge(mode, seen).await? {
                Ok(grant) => {
                    self.begin_barging(grant, is_alone);
                    return Ok(Came::Granted(grant));
                }
                Err(found) if yields_left == 0 => seen = found,
                Err(_) => seen = ClaimWord(yield_and_read(&self).await?),
            }
            is_alone = false;
        }
        if self.is_withdrawn() {
            self.stood_in_no_line();
            return Ok(Came::Left);
        }
        if !is_believed(&self) {
            // What it had in line it would leave behind.
            self.begin_acquisition();
            self.publish_ticket(Phase::Coming, mode, 0, self.acquisition());
        }
        self.enqueue(mode, seen).await?;
        Ok(Came::InLine)
    }

    /// Gives a message that is still being written a while to be read: until then no reader is
    /// believed, and each that claims the lock leaves something behind.
    async fn await_mail_in_parts(self) {
        if self.endpoint.has_unread(self.slot()) {
            let (mail, interval) = (Some(self.slot()), Some(HALF_WRITTEN_NS));
            self.endpoint.wait(Wait { mail, interval, ..Wait::default() }).await;
        }
    }

    /// The turn of a slot that has just acquired begins.
    pub(super) fn begin_barging(self, grant: Grant, is_alone: bool) {
        let yields = self.rules.newcomer_yields::<E>();
        barging::begin(&self, self.rules.bypass, yields, grant.count, is_alone);
    }

    /// Claims a lock whose word was found to be this without getting in line, or returns what it
    /// found instead. Only meanwhile its record says that it may be inside.
    async fn barge(self, mode: Mode, mut seen: ClaimWord) -> Outcome<Result<Grant, ClaimWord>> {
        let mut attempts = 0;
        while let Some(op) = self.way_in(mode, seen) {
            self.begin_anew_if_doubted();
            self.publish_ticket(Phase::Opening, mode, 0, self.acquisition());
            let found = self.masked_cas128(op, Some(seen.0)).await?;
            if matched(&op, found) {
                self.left(found);
                return Ok(Ok(granted(&self, mode, &op, found)));
            }
            seen = ClaimWord(found);
            attempts += 1;
            let among_readers = mode == Mode::Shared && seen.readers() > 0;
            if attempts >= if among_readers { ATTEMPTS_AMONG_READERS } else { ATTEMPTS } {
                break;
            }
            self.endpoint.checkpoint(&[found as u64, (found >> 64) as u64, attempts.into()]);
        }
        if attempts > 0 {
            self.publish_ticket(Phase::Coming, mode, 0, self.acquisition());
        }
        Ok(Err(seen))
    }
}
