//! Claim: a reader-writer lock whose word says who holds it, and whose line only says who is next.
#![doc = include_str!("../../../../docs/protocols/claim.md")]

mod dead;
mod door;
mod doubt;
mod letter;
mod line;
mod pass;
mod word;

use farlock_fabric::word::Field;
use farlock_fabric::{MaskedCas, MaskedFaa, Posted, Verb, WideAtomics};

use crate::lock::{Convert, Renew};
use crate::prelude::*;
use letter::sort_mail;
use word::{HOLD_MASK, LINE_MASK, Place, Rank, held_by, matched, next, swapped};

pub use word::{Claim, ClaimWord, Grant};

impl Claim {
    /// Whether waiters are in line where the word is this, as far as it tells.
    pub fn is_awaited(&self, word: u128) -> bool {
        ClaimWord(word).tail() != 0
    }

    /// Whether a writer holds the lock, or waiters are in line, where the word is this.
    pub fn is_contended(&self, word: u128) -> bool {
        self.is_awaited(word) || ClaimWord(word).holder() != 0
    }

    /// Whether a lock with so many releases is kept for those in line.
    #[inline(always)]
    fn is_closed_at(&self, count: u64) -> bool {
        count.is_multiple_of(u64::from(self.bypass) + 1)
    }
}

// Releasing.

/// The verb by which a writer in line leaves, if nobody is behind it.
#[inline(always)]
fn leave_line<E>(site: &Site<'_, E>, grant: Grant) -> MaskedCas<u128> {
    let mask = HOLD_MASK | LINE_MASK;
    MaskedCas {
        compare: held_by(site, grant) | Place::of(site).as_tail(),
        compare_mask: mask,
        swap: ClaimWord::COUNT.place(next(grant.count)),
        swap_mask: mask,
    }
}

/// The verb by which a writer releases and leaves the line as it is.
#[inline(always)]
fn leave_lock<E>(site: &Site<'_, E>, grant: Grant) -> MaskedCas<u128> {
    MaskedCas {
        compare: held_by(site, grant),
        compare_mask: HOLD_MASK,
        swap: ClaimWord::COUNT.place(next(grant.count)),
        swap_mask: HOLD_MASK,
    }
}

/// A reader less, a release more.
#[inline(always)]
fn leave_readers() -> MaskedFaa<u128> {
    let one_less = ClaimWord::READERS.place(ClaimWord::READERS.max());
    MaskedFaa { add: one_less | ClaimWord::COUNT.place(1), boundary: ClaimWord::BOUNDARY }
}

impl<E: WideAtomics> Protocol<'_, E, Claim> {
    #[inline(always)]
    fn exit(self, grant: Grant) -> Verb<'static> {
        let addr = self.lock;
        match grant.rank {
            Rank::Head => {
                let op = leave_line(&self, grant);
                Verb::MaskedCas128 { addr, op, hint: Some(op.compare) }
            }
            Rank::Passer => {
                let op = leave_lock(&self, grant);
                // It passed a word that it had left or seen.
                let hint = self.hint().map(|seen| seen | op.compare & ClaimWord::HOLDER.mask());
                Verb::MaskedCas128 { addr, op, hint }
            }
            Rank::Reader => {
                let hint = self.hint().map(|seen| seen.wrapping_add(ClaimWord::READERS.place(1)));
                Verb::MaskedFaa128 { addr, op: leave_readers(), hint }
            }
        }
    }

    #[inline(always)]
    fn exited(self, grant: Grant, old: u128) -> bool {
        let has_left = |op: MaskedCas<u128>| {
            let has_left = matched(&op, old);
            if has_left {
                self.left(swapped(&op, old));
            }
            has_left
        };
        match grant.rank {
            Rank::Head => has_left(leave_line(&self, grant)),
            Rank::Passer => has_left(leave_lock(&self, grant)),
            Rank::Reader => {
                self.left(farlock_fabric::verb::masked_faa128(old, &leave_readers()));
                ClaimWord(old).readers() > 0
            }
        }
    }

    /// The verb by which a writer's hold begins anew, where the lock's word was this; `None` if it
    /// is the turn of those in line.
    fn renewal(self, grant: Grant, seen: ClaimWord) -> Option<MaskedCas<u128>> {
        let me = Place::of(&self);
        let count = next(grant.count);
        let others_wait = seen.tail() != 0 && !(grant.rank == Rank::Head && seen.ends_with(me));
        if others_wait && self.rules.is_closed_at(count) {
            return None;
        }
        let line = if others_wait { 0 } else { LINE_MASK };
        Some(MaskedCas {
            compare: held_by(&self, grant) | seen.0 & line,
            compare_mask: HOLD_MASK | line,
            swap: ClaimWord::COUNT.place(count),
            swap_mask: ClaimWord::COUNT.mask(),
        })
    }
}

impl LockKind for Claim {
    const BYTES: u64 = 16;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = ClaimWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Word;

    /// `bypass=COUNT`: how many newcomers may pass between two of the line;
    /// `newcomer-yields=COUNT`: how often a newcomer yields before it gets in line; `outside=STEP`:
    /// which endpoints claim a free lock outside of its line; `poll=NANOS`: the pause between two
    /// reads where a wait cannot watch memory; `spins=COUNT`, `yields=COUNT`.
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "bypass" => Some(Setting::count(&mut self.bypass, 0..=u8::MAX)),
            "newcomer-yields" => {
                Some(Setting::count(self.newcomer_yields.get_or_insert(0), 0..=u8::MAX))
            }
            "outside" => Some(Setting::count(&mut self.outside, 0..=u16::MAX)),
            "poll" => Some(Setting::nanos(&mut self.poll_ns, 1)),
            _ => Setting::patience(&mut self.patience, name),
        }
    }

    fn promises(&self) -> Promises {
        Promises {
            order: Order {
                bypass_max: Some(self.bypass.into()),
                readers_in_line: true,
                outlives_pauses: false,
                ..Order::NONE
            },
            tries_tell_truth: true,
            withdraws: true,
            passes_over_stopped: true,
            leaves_mail: true,
            acts_on_memory: true,
            proof: Proof {
                variants: &["bypass=1", "bypass=1:outside=2"],
                patient: "poll=15000000",
                has_many_verbs: true,
                ..Proof::SLEEPER
            },
            ..Promises::EXCLUSION
        }
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        ClaimWord::COUNT.place(u64::from(steps).wrapping_neg())
    }
}

impl Granted for Grant {
    #[inline(always)]
    fn ticket(self) -> u32 {
        self.acquisition
    }

    #[inline(always)]
    fn count(self) -> u64 {
        self.count
    }
}

impl<E: WideAtomics> Lock<E> for Claim {
    type Want = Mode;
    type Grant = Grant;

    #[inline(always)]
    fn begin(&self, site: &Site<'_, E>, _: Mode) -> u32 {
        site.begin_acquisition()
    }

    #[inline]
    fn kept_out(&self, site: &Site<'_, E>, mode: Mode) {
        site.publish_ticket(Phase::Coming, mode, 0, site.acquisition());
    }

    #[inline(always)]
    fn is_believed(&self, site: &Site<'_, E>, mode: Mode) -> bool {
        mode == Mode::Exclusive || doubt::is_believed(site)
    }

    #[inline(always)]
    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        site.by(self).attempt(mode)
    }

    #[inline(always)]
    fn open(&self, site: &Site<'_, E>, mode: Mode) -> Posted {
        site.by(self).post_attempt(mode)
    }

    #[inline(always)]
    fn opened(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Option<Grant> {
        site.by(self).attempted(mode, old)
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Grant> {
        let granted = self.wait_or_leave(site, mode, Some(old)).await?;
        Ok(granted.expect("who does not withdraw stays until it is granted"))
    }

    async fn wait_or_leave(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        old: Option<u128>,
    ) -> Outcome<Option<Grant>> {
        if let Some(old) = old {
            site.forget_position();
            match site.by(self).get_in_line(mode, ClaimWord(old)).await? {
                door::Came::Granted(grant) => return Ok(Some(grant)),
                door::Came::Left => return Ok(None),
                door::Came::InLine => {}
            }
        }
        let granted = site.by(self).wait_for_turn(mode).await?;
        if let Some(grant) = granted {
            site.by(self).begin_barging(grant, false);
        }
        Ok(granted)
    }

    #[inline(always)]
    fn closing(&self, site: &Site<'_, E>, mode: Mode, grant: Grant) -> Option<Verb<'static>> {
        // What has come late must not fill the mailbox.
        if mode == Mode::Exclusive && sort_mail(site).is_followed {
            return None;
        }
        Some(site.by(self).exit(grant))
    }

    #[inline(always)]
    fn close(&self, site: &Site<'_, E>, mode: Mode, grant: Grant) -> Option<Posted> {
        if mode == Mode::Exclusive && sort_mail(site).is_followed {
            return None;
        }
        // Each verb in a place of its own, where its masks are constants.
        Some(match grant.rank {
            Rank::Head => {
                site.endpoint.post(site.by(self).exit(Grant { rank: Rank::Head, ..grant }))
            }
            Rank::Passer => {
                site.endpoint.post(site.by(self).exit(Grant { rank: Rank::Passer, ..grant }))
            }
            Rank::Reader => {
                site.endpoint.post(site.by(self).exit(Grant { rank: Rank::Reader, ..grant }))
            }
        })
    }

    /// Nobody stands behind a holder that has passed the line, or found none.
    fn closing_unasked(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        grant: Grant,
    ) -> Option<(Verb<'static>, bool)> {
        if grant.rank != Rank::Passer {
            return None;
        }
        let verb = self.closing(site, mode, grant)?;
        let op = leave_lock(site, grant);
        // What the word was when it was acquired.
        let seen = ClaimWord(site.hint().unwrap_or(op.compare));
        site.left(swapped(&op, seen.0));
        Some((verb, seen.tail() == 0))
    }

    #[inline(always)]
    fn closed(&self, site: &Site<'_, E>, _mode: Mode, grant: Grant, old: u128) -> bool {
        site.by(self).exited(grant, old)
    }

    /// A head of the line that others stand behind: frees the lock, then tells the next in line.
    /// Or a client that was taken for dead.
    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        grant: Grant,
        _old: Option<u128>,
    ) -> Outcome<()> {
        if grant.rank == Rank::Reader {
            // There were no readers to leave: others had been certain that this client was dead.
            let again = MaskedFaa { add: ClaimWord::READERS.place(1), ..leave_readers() };
            site.endpoint.masked_faa128(site.lock, again, None).await?;
            site.event(Event::Superseded { lock: site.lock });
            return Ok(());
        }
        // Published before the verb: a waiter that reports too late to be told looks here then.
        site.publish_ticket(Phase::Leaving, mode, 0, grant.acquisition);
        let op = leave_lock(site, grant);
        let old = match self.outside > 0 {
            true => site.by(self).leave_telling_next(op).await?,
            false => site.masked_cas128(op, site.hint()).await?,
        };
        if !matched(&op, old) {
            // Others were certain that this client had died.
            site.event(Event::Superseded { lock: site.lock });
            return Ok(());
        }
        site.left(swapped(&op, old));
        site.by(self).tell_next().await
    }

    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        let seen = seen.or(site.hint());
        let op = site.by(self).enter(mode, ClaimWord(seen.unwrap_or(0)));
        Some(Verb::MaskedCas128 { addr: site.lock, op, hint: seen })
    }

    fn tried(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>, old: u128) -> Tried<Grant> {
        let op = site.by(self).enter(mode, ClaimWord(seen.or(site.hint()).unwrap_or(0)));
        let found = ClaimWord(old);
        if matched(&op, old) {
            site.left(old);
            return Tried::Granted(door::granted(site, mode, &op, old));
        }
        if found.tail() == 0 && found.is_free_for(mode) {
            return Tried::Again(old);
        }
        site.stood_in_no_line();
        Tried::Busy
    }

    async fn try_beside(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        old: u128,
    ) -> Outcome<Option<Grant>> {
        site.by(self).try_past_the_dead(mode, ClaimWord(old)).await
    }
}

impl<E: WideAtomics> Renew<E> for Claim {
    async fn renew(&self, site: &Site<'_, E>, grant: Grant) -> Outcome<Option<Grant>> {
        if grant.rank == Rank::Reader {
            return Ok(None);
        }
        // A guess of the word: with nobody behind. A wrong one is corrected by what is found.
        let head = if grant.rank == Rank::Head { Place::of(site).as_tail() } else { 0 };
        let mut seen = ClaimWord(held_by(site, grant) | head);
        loop {
            let Some(op) = site.by(self).renewal(grant, seen) else { return Ok(None) };
            let old = site.masked_cas128(op, Some(seen.0)).await?;
            if matched(&op, old) {
                return Ok(Some(Grant { count: next(grant.count), ..grant }));
            }
            if (old ^ op.compare) & HOLD_MASK != 0 {
                site.event(Event::Superseded { lock: site.lock });
                return Ok(None);
            }
            seen = ClaimWord(old);
            site.endpoint.checkpoint(&[seen.watched(), grant.count]);
        }
    }
}

impl<E: WideAtomics> Convert<E> for Claim {
    async fn downgrade(&self, site: &Site<'_, E>, _: Mode, grant: Grant) -> Outcome<Option<Grant>> {
        site.by(self).make_shared(grant).await
    }

    async fn try_upgrade(
        &self,
        site: &Site<'_, E>,
        _: Mode,
        grant: Grant,
    ) -> Outcome<Option<Grant>> {
        site.by(self).make_exclusive(grant).await
    }
}
