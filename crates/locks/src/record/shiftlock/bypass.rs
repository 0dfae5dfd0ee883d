//! Bounded bypass: who runs may pass those who sleep in line, but not for ever.
//!
//! A writer that would hand the lock to its successor *opens* it instead, and tells the successor
//! that it is the first in line. An open lock is taken by the first in line or by a newcomer, which
//! *passes* the line without getting into it and opens the lock again when it has done. Every
//! release raises the count, and at each multiple of `bypass + 1` the lock is closed to newcomers:
//! then it waits for the first in line. So at most `bypass` of them pass between two writers of the
//! line, and no word need say how many have.

use farlock_fabric::{EndpointId, MaskedCas, Verb, WideAtomics};

use super::{
    End, Grant, RELEASED_MASK, Released, ShiftLock, ShiftWord, UPPER_HALF, add, found_free,
};
use crate::prelude::*;
use crate::record::bakery::Doubt;
use crate::record::barging::{self, ATTEMPTS, has_barged_enough, patience_in_line, yield_and_read};
use crate::repair::Participant;
use crate::token::Token;

/// What the verb of an attempt compares of the word.
const FREE_MASK: u128 = ShiftWord::TAIL.mask() | ShiftWord::READERS.mask();
const PASS_MASK: u128 = ShiftWord::OPEN.mask() | RELEASED_MASK;

impl ShiftLock {
    /// Whether a lock with so many releases waits for the first in line alone.
    #[inline(always)]
    pub(super) fn is_closed_at(&self, released: Released) -> bool {
        released.count().is_multiple_of(u64::from(self.bypass) + 1)
    }

    fn newcomer_yields<E: WideAtomics>(&self) -> u8 {
        barging::newcomer_yields::<E>(self.bypass, self.newcomer_yields)
    }
}

impl<E: WideAtomics> Protocol<'_, E, ShiftLock> {
    /// The verb by which a newcomer acquires a lock whose word is `seen`, if it need not get in
    /// line.
    #[inline(always)]
    fn way_in(self, seen: ShiftWord) -> Option<MaskedCas<u128>> {
        if seen.0 & FREE_MASK == 0 {
            return Some(self.enqueue_if_free());
        }
        let may_pass = seen.open() != 0 && !self.rules.is_closed_at(seen.released());
        may_pass.then_some(MaskedCas {
            compare: seen.0 & PASS_MASK,
            compare_mask: PASS_MASK,
            swap: 0,
            swap_mask: ShiftWord::OPEN.mask(),
        })
    }

    /// The first attempt: upon the word as this slot left it, or upon a free one.
    #[inline(always)]
    pub(super) fn attempt(self) -> MaskedCas<u128> {
        let seen = ShiftWord(self.hint().unwrap_or(0));
        self.way_in(seen).unwrap_or(self.enqueue_if_free())
    }

    /// The same as a verb, or a look at the word if the turn is over.
    #[inline(always)]
    pub(super) fn attempt_verb(self) -> Verb<'static> {
        if has_barged_enough(&self, ShiftWord::COUNT) {
            return Verb::Read { addr: self.lock, words: 2 };
        }
        Verb::MaskedCas128 { addr: self.lock, op: self.attempt(), hint: self.hint() }
    }

    /// The grant, if that attempt found the word as it wanted it.
    #[inline(always)]
    pub(super) fn attempted(self, found: ShiftWord) -> Option<Grant> {
        if has_barged_enough(&self, ShiftWord::COUNT) {
            return None;
        }
        let op = self.attempt();
        ((found.0 ^ op.compare) & op.compare_mask == 0).then(|| granted(found))
    }

    /// Acquires a lock whose word was found to be this without getting in line, or gets in line:
    /// then returns what it found there.
    pub(super) async fn get_in_line(
        self,
        mut seen: ShiftWord,
    ) -> Outcome<Result<Grant, ShiftWord>> {
        let mut is_alone = false;
        if has_barged_enough(&self, ShiftWord::COUNT) {
            let left = seen.released();
            seen = ShiftWord(yield_and_read(&self).await?);
            is_alone = seen.released() == left;
        }
        for yields_left in (0..=self.rules.newcomer_yields::<E>()).rev() {
            match self.barge(seen).await? {
                Ok(grant) => {
                    self.begin_barging(grant, is_alone);
                    return Ok(Ok(grant));
                }
                Err(found) if yields_left == 0 => seen = found,
                Err(_) => seen = ShiftWord(yield_and_read(&self).await?),
            }
            is_alone = false;
        }
        let found = ShiftWord(self.masked_cas128(self.enqueue(), Some(seen.0)).await?);
        Ok(found_free(Mode::Exclusive, found).ok_or(found))
    }

    /// The turn of a slot that has just acquired begins.
    pub(super) fn begin_barging(self, grant: Grant, is_alone: bool) {
        let (yields, count) = (self.rules.newcomer_yields::<E>(), grant.released.count());
        barging::begin(&self, self.rules.bypass, yields, count, is_alone);
    }

    /// Acquires a lock whose word was found to be this without getting in line, or returns what it
    /// found instead.
    async fn barge(self, mut seen: ShiftWord) -> Outcome<Result<Grant, ShiftWord>> {
        for _ in 0..ATTEMPTS {
            let Some(op) = self.way_in(seen) else { break };
            let found = ShiftWord(self.masked_cas128(op, Some(seen.0)).await?);
            if (found.0 ^ op.compare) & op.compare_mask == 0 {
                if op.compare_mask == PASS_MASK {
                    self.left(found.0);
                }
                return Ok(Ok(granted(found)));
            }
            seen = found;
        }
        Ok(Err(seen))
    }

    /// The first in line takes the lock when it is open.
    pub(super) async fn first_in_line(self, grant: Grant) -> Outcome<End<Grant>> {
        let generation = grant.released.generation();
        let mut doubt = Doubt::new::<E>();
        loop {
            let found = take_if_open(&self, generation).await?;
            if found.generation() != generation {
                return Ok(End::Again);
            }
            if found.open() != 0 {
                return Ok(End::Mine(Grant { streak: grant.streak, ..granted(found) }));
            }
            if doubt.is_due() && is_abandoned(&self, &mut doubt, found).await? {
                self.peer_died(EndpointId::NOBODY);
                return Ok(End::Broken);
            }
            let carried = u64::from(grant.streak) << 16 | generation;
            self.await_opening(&mut doubt, found.0 as u64, carried).await?;
        }
    }

    /// Waits until the lock may be open or repaired, or those who hold it are to be doubted. The
    /// word's low half was `seen`; `carried` is what an explorer has to tell apart besides.
    async fn await_opening(self, doubt: &mut Doubt, seen: u64, carried: u64) -> Outcome<()> {
        let mut word = ShiftWord(seen.into());
        let generation_low = word.generation_low();
        while word.open() == 0 && word.generation_low() == generation_low && !doubt.is_due() {
            let seen = word.0 as u64;
            self.endpoint.checkpoint(&[seen, carried, doubt.hash(), self.successor_bits()]);
            doubt
                .wait(
                    &self,
                    seen,
                    self.rules.poll_interval::<E>(),
                    patience_in_line(self.rules.bypass, self.rules.patience),
                )
                .await;
            word = ShiftWord(u128::from(self.read().await?));
        }
        Ok(())
    }

    /// The verb by which who passed the line opens the lock again.
    #[inline(always)]
    pub(super) fn passed(self, grant: Grant) -> Verb<'static> {
        let open = ShiftWord::OPEN.mask();
        let op = MaskedCas {
            compare: u128::from(grant.released.0) << 64,
            compare_mask: RELEASED_MASK,
            swap: u128::from(add(grant.released, 1).0) << 64 | open,
            swap_mask: ShiftWord::COUNT.mask() | open,
        };
        // It passed a word that it had left or seen, and nobody else has opened it since.
        let hint = self.hint().map(|seen| seen & !open);
        Verb::MaskedCas128 { addr: self.lock, op, hint }
    }
}

/// The grant of a client that acquired by an attempt that found this word.
#[inline(always)]
fn granted(found: ShiftWord) -> Grant {
    let streak = u16::from(found.tail() == 0);
    Grant { released: found.released(), epoch: found.epoch() != 0, streak }
}

/// Whether nobody living has passed the line and holds the lock, whose word was `found` held. A
/// holder that lives is seen, if one hold lasts from before the look until after it; who has
/// released, and was stopped before its record said so, shows the token of an earlier hold.
async fn is_abandoned<E: WideAtomics>(
    site: &Site<'_, E>,
    doubt: &mut Doubt,
    found: ShiftWord,
) -> Outcome<bool> {
    let holds = |p: &Participant| {
        let (record, current) = (&p.record, Token::new(0, found.released().count()));
        let is_current = Token::new(0, record.token) == current;
        record.mode == Mode::Exclusive && record.phase == Phase::Held && is_current
    };
    let Some(present) = doubt.look_around(site, holds).await? else { return Ok(false) };
    let one_hold = site.read_at(site.lock.plus(UPPER_HALF)).await? == found.released().0;
    Ok(one_hold && !present.iter().any(holds))
}

/// Takes the lock for the first in line if it is open in this generation. Returns what was found.
async fn take_if_open<E: WideAtomics>(site: &Site<'_, E>, generation: u64) -> Outcome<ShiftWord> {
    let open = ShiftWord::OPEN.mask();
    let op = MaskedCas {
        compare: open | ShiftWord::GENERATION.place(generation),
        compare_mask: open | ShiftWord::GENERATION.mask(),
        swap: 0,
        swap_mask: open,
    };
    Ok(ShiftWord(site.masked_cas128(op, None).await?))
}
