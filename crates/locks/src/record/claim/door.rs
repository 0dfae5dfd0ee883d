//! The door: how a newcomer claims a lock without waiting in line, or gets in line.
//!
//! A newcomer claims a free lock that nobody waits for. If somebody is in line it may *pass* the
//! line, as long as the count of releases is not a multiple of `bypass + 1`: every release raises
//! the count, so at most `bypass` pass between two of the line, and no word need say how many have.
//!
//! Where clients outnumber processors, most that wait do not run, and a lock that is kept for the
//! line waits until the first in line does. So a newcomer that cannot claim the lock first
//! *yields* its processor a few times, and gets in line only if that did not help. Then few are in
//! line, and those run. And who acquires again and again without a wait yields when it has *barged*
//! enough, as long as others acquire meanwhile: they may be waiting for its processor.

use farlock_fabric::{Fault, MaskedCas, Nanos, Patience, Posted, Verb, Wait, WideAtomics};

use super::doubt::is_believed;
use super::word::{Claim, ClaimWord, Grant, HELD_MASK, LINE_MASK, Place, Rank, matched, name_of};
use crate::site::{Barging, Site};
use crate::slot::Phase;
use crate::want::Mode;

/// Attempts to claim the lock before a newcomer yields. Each fails because another succeeded.
const ATTEMPTS: u32 = 2;
/// The same of a reader among readers, which fails where another reader came or left meanwhile.
const ATTEMPTS_AMONG_READERS: u32 = 64;

/// How often a newcomer yields where it may have a processor to give. A kernel may take a yield
/// for the rest of a time slice, so that each in vain costs a slice: no more of them than help.
const NEWCOMER_YIELDS: u8 = 5;

/// A turn is over when the count has gone round so often since it began. Measured of 1, 4 and 16: 1
/// costs a quarter of the rate, 16 sometimes a whole time slice of waiting.
const ROUNDS_OF_BARGING: u64 = 4;
/// A turn in which nobody else acquired doubles the next one. After so many of them there are none.
const DOUBLINGS_MAX: u32 = 12;

/// Where newcomers yield few are in line: they spin briefly and then sleep, since whoever yields
/// in line holds up all behind.
const IN_A_SHORT_LINE: Patience = Patience { spins: Patience::BRIEF, yields: 0 };

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
    /// The verb by which a newcomer claims a lock whose word is `seen`, if it need not get in line.
    #[inline(always)]
    fn way_in<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        seen: ClaimWord,
    ) -> Option<MaskedCas<u128>> {
        if seen.tail() == 0 {
            return seen.is_free_for(mode).then(|| enter_free(site, mode, seen));
        }
        let may_pass = seen.0 & HELD_MASK == 0 && !self.is_closed_at(seen.count());
        may_pass.then(|| pass(site, mode, seen))
    }

    /// How waits in line spend their time, unless the lock was told how.
    #[inline]
    pub(super) fn patience_in_line(&self) -> Patience {
        let is_given = self.bypass == 0 || self.patience != Patience::DEFAULT;
        if is_given { self.patience } else { IN_A_SHORT_LINE }
    }

    /// Whether this slot yields before it acquires again.
    #[inline(always)]
    fn has_barged_enough<E: WideAtomics>(&self, site: &Site<'_, E>) -> bool {
        let turn = site.barging();
        turn.length != u64::MAX && site.hint().is_some_and(|left| has_ended(turn, ClaimWord(left)))
    }

    /// What the first attempt expects: the word as this slot left it, or a free one; and whether it
    /// passes a line.
    #[inline(always)]
    fn expects<E: WideAtomics>(&self, site: &Site<'_, E>, mode: Mode) -> (ClaimWord, bool) {
        let seen = ClaimWord(site.hint().unwrap_or(0));
        let passes =
            seen.tail() != 0 && seen.0 & HELD_MASK == 0 && !self.is_closed_at(seen.count());
        let can_be = passes || seen.tail() == 0 && seen.is_free_for(mode);
        (if can_be { seen } else { ClaimWord(0) }, passes)
    }

    /// The first attempt, or a look at the word if the turn is over.
    #[inline(always)]
    pub(super) fn attempt<E: WideAtomics>(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        let (addr, hint) = (site.lock, site.hint());
        if self.has_barged_enough(site) {
            return Verb::Read { addr, words: 2 };
        }
        let op = match self.expects(site, mode) {
            (seen, true) => pass(site, mode, seen),
            (seen, false) => enter_free(site, mode, seen),
        };
        Verb::MaskedCas128 { addr, op, hint }
    }

    /// The same, posted: each of its verbs in a place of its own, where its masks are constants.
    #[inline(always)]
    pub(super) fn post_attempt<E: WideAtomics>(&self, site: &Site<'_, E>, mode: Mode) -> Posted {
        let (addr, hint) = (site.lock, site.hint());
        if self.has_barged_enough(site) {
            return site.endpoint.post(Verb::Read { addr, words: 2 });
        }
        match self.expects(site, mode) {
            (seen, true) => {
                let op = pass(site, mode, seen);
                site.endpoint.post(Verb::MaskedCas128 { addr, op, hint })
            }
            (seen, false) => {
                let op = enter_free(site, mode, seen);
                site.endpoint.post(Verb::MaskedCas128 { addr, op, hint })
            }
        }
    }

    /// The grant, if that attempt found the word as it wanted it.
    #[inline(always)]
    pub(super) fn attempted<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        found: u128,
    ) -> Option<Grant> {
        if self.has_barged_enough(site) {
            return None;
        }
        match self.expects(site, mode) {
            (seen, true) => {
                let op = pass(site, mode, seen);
                matched(&op, found).then(|| granted(site, mode, &op, found))
            }
            (seen, false) => {
                let op = enter_free(site, mode, seen);
                matched(&op, found).then(|| granted(site, mode, &op, found))
            }
        }
    }

    /// Claims a lock whose word was found to be this without getting in line, or gets in line.
    pub(super) async fn get_in_line<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        mut seen: ClaimWord,
    ) -> Result<Came, Fault> {
        let mut is_alone = false;
        if self.has_barged_enough(site) {
            let left = seen.count();
            seen = self.yield_and_read(site).await?;
            is_alone = seen.count() == left;
        }
        for yields_left in (0..=self.newcomer_yields::<E>()).rev() {
            match self.barge(site, mode, seen).await? {
                Ok(grant) => {
                    self.begin_barging(site, grant, is_alone);
                    return Ok(Came::Granted(grant));
                }
                Err(found) if yields_left == 0 => seen = found,
                Err(_) => seen = self.yield_and_read(site).await?,
            }
            is_alone = false;
        }
        if site.is_withdrawn() {
            site.stood_in_no_line();
            return Ok(Came::Left);
        }
        if !is_believed(site) {
            // What it had in line it would leave behind.
            site.begin_acquisition();
            site.publish_ticket(Phase::Coming, mode, 0, site.acquisition());
        }
        self.enqueue(site, mode, seen).await?;
        Ok(Came::InLine)
    }

    /// How often a newcomer yields before it gets in line.
    fn newcomer_yields<E: WideAtomics>(&self) -> u8 {
        let default = if E::SHARES_PROCESSORS && self.bypass > 0 { NEWCOMER_YIELDS } else { 0 };
        self.newcomer_yields.unwrap_or(default)
    }

    /// The turn of a slot that has just acquired begins, after it had to wait or after it yielded.
    /// A yield that finds nobody may have been too short for others, hence the longer turns.
    pub(super) fn begin_barging<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        grant: Grant,
        is_alone: bool,
    ) {
        let first = ROUNDS_OF_BARGING * (u64::from(self.bypass) + 1);
        let length = if is_alone { site.barging().length.saturating_mul(2) } else { first };
        let is_wanted = self.newcomer_yields::<E>() > 0 && length <= first << DOUBLINGS_MAX;
        let turn = Barging { began: grant.count, length };
        site.set_barging(if is_wanted { turn } else { Barging::ENDLESS });
    }

    /// Claims a lock whose word was found to be this without getting in line, or returns what it
    /// found instead. Only meanwhile its record says that it may be inside.
    async fn barge<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        mut seen: ClaimWord,
    ) -> Result<Result<Grant, ClaimWord>, Fault> {
        let mut attempts = 0;
        while let Some(op) = self.way_in(site, mode, seen) {
            site.begin_anew_if_doubted();
            site.publish_ticket(Phase::Opening, mode, 0, site.acquisition());
            site.endpoint.masked_cas128(site.lock, op, Some(seen.0)).await?;
            let found = site.endpoint.old();
            if matched(&op, found) {
                site.left(found);
                return Ok(Ok(granted(site, mode, &op, found)));
            }
            seen = ClaimWord(found);
            attempts += 1;
            let among_readers = mode == Mode::Shared && seen.readers() > 0;
            if attempts >= if among_readers { ATTEMPTS_AMONG_READERS } else { ATTEMPTS } {
                break;
            }
            site.endpoint.checkpoint(&[found as u64, (found >> 64) as u64, attempts.into()]);
        }
        if attempts > 0 {
            site.publish_ticket(Phase::Coming, mode, 0, site.acquisition());
        }
        Ok(Err(seen))
    }

    /// Lets others run, and looks at the word again.
    async fn yield_and_read<E: WideAtomics>(&self, site: &Site<'_, E>) -> Result<ClaimWord, Fault> {
        const NO_LONGER: Option<Nanos> = Some(0);
        let patience = Patience { spins: 0, yields: 1 };
        site.endpoint.wait(Wait { interval: NO_LONGER, patience, ..Wait::default() }).await;
        site.endpoint.verb(Verb::Read { addr: site.lock, words: 2 }).await?;
        Ok(ClaimWord(site.endpoint.old()))
    }
}

/// Whether a turn was over when the lock's word was left so.
#[inline(always)]
fn has_ended(turn: Barging, left: ClaimWord) -> bool {
    left.count().wrapping_sub(turn.began) & ClaimWord::COUNT.max() >= turn.length
}
