//! DSLR on the paper's 64-bit word, with plain verbs that any NIC has. Its counters do not wrap:
//! they are reset before they overflow (Yoon, Chowdhury, Mozafari: DSLR, SIGMOD'18, sections 4.4
//! to 4.9 and A.3).
#![doc = include_str!("../../../../docs/protocols/dslr-64.md")]

pub mod leased;

use farlock_fabric::word::Field;
use farlock_fabric::{Addr, Endpoint, EndpointId, Nanos, Verb, word};

use super::bakery::{
    BACKOFF_TIMES_MAX, Counters, Doubt, Place, Tickets, Turn, Waiting, backoff_ns,
};
use crate::lock::expected_word;
use crate::prelude::*;
use crate::repair::Participant;
use crate::width;

word! {
    /// The word (section 4.4, figure 3). Zero is free.
    pub struct Dslr64Word: u64 {
        /// Shared tickets taken.
        MAX_S max_s: 16 => width::TICKETS,
        /// Exclusive tickets taken.
        MAX_X max_x: 16 => width::TICKETS,
        /// Shared tickets given back.
        N_S n_s: 16 => width::TICKETS,
        /// Exclusive tickets given back.
        N_X n_x: 16 => width::TICKETS,
    }
}

/// No ticket of either kind is given any more when so many were taken, until the counters are reset
/// (section 4.9). The other half of a field is room for those who find that out.
pub const COUNT_MAX: u16 = 1 << (width::TICKETS - 1);

/// What a slot record says as generation: this client has a ticket.
const IN_LINE: u64 = 0;
/// This client found the counters full; it has no ticket.
const STANDS_BACK: u64 = 1;
/// The same, and it put one too many into the word, in order to reset it.
const CLAIMS: u64 = 2;

impl Dslr64Word {
    /// What was given back.
    #[inline]
    pub(crate) const fn served(self) -> Tickets {
        Tickets { x: self.n_x() as u16, s: self.n_s() as u16 }
    }

    /// What was taken.
    #[inline]
    pub(crate) const fn taken(self) -> Tickets {
        Tickets { x: self.max_x() as u16, s: self.max_s() as u16 }
    }

    #[inline]
    pub(crate) const fn with_served(self, served: Tickets) -> Self {
        self.with(Self::N_X, served.x as u64).with(Self::N_S, served.s as u64)
    }

    #[inline]
    const fn with_taken(self, taken: Tickets) -> Self {
        self.with(Self::MAX_X, taken.x as u64).with(Self::MAX_S, taken.s as u64)
    }

    /// One ticket, worth so many slots, taken in this mode.
    #[inline]
    const fn taking(mode: Mode, slots: u16) -> Self {
        Self::new().with_taken(Tickets { x: 0, s: 0 }.plus(mode, slots))
    }

    /// The same ticket given back.
    #[inline]
    const fn giving_back(mode: Mode, slots: u16) -> Self {
        Self::new().with_served(Tickets { x: 0, s: 0 }.plus(mode, slots))
    }
}

impl Counters for Dslr64Word {
    fn served(word: u64) -> Tickets {
        Self(word).served()
    }

    fn generation(_: u64) -> u64 {
        IN_LINE
    }

    /// Exclusive tickets were given back past it, or it was not taken since the counters were
    /// reset.
    fn is_void(word: u64, place: Place) -> bool {
        let (ticket, taken) = (place.ticket, Self(word).taken());
        let is_taken = match place.mode {
            Mode::Exclusive => ticket.x < taken.x && ticket.s <= taken.s,
            Mode::Shared => ticket.s < taken.s && ticket.x <= taken.x,
        };
        Self(word).served().x > ticket.x || !is_taken
    }

    const FORGETS: bool = true;

    const SERVE_MASK: u64 = u64::MAX;

    fn serve(lock: Addr, seen: u64, served: Tickets) -> Verb<'static> {
        Verb::Cas64 { addr: lock, compare: seen, swap: Self(seen).with_served(served).0 }
    }

    /// As if one more exclusive ticket had been taken, and all had been given back.
    fn reset(lock: Addr, seen: u64) -> Verb<'static> {
        let (served, taken) = (Self(seen).served(), Self(seen).taken());
        let most = Tickets { x: taken.x.max(served.x), s: taken.s.max(served.s) };
        let passed = most.plus(Mode::Exclusive, 1);
        let swap = Self::new().with_served(passed).with_taken(passed);
        Verb::Cas64 { addr: lock, compare: seen, swap: swap.0 }
    }
}

/// What a holder remembers: its ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant(Tickets);

/// A reader-writer lock by ticket on 64 bits.
#[derive(Clone, Debug)]
pub struct Dslr64 {
    /// How waiters spend their time.
    pub waiting: Waiting,
    /// How many tickets of either kind there are between two resets: 2 to [`COUNT_MAX`].
    pub count_max: u16,
}

impl Default for Dslr64 {
    fn default() -> Self {
        Self { waiting: Waiting::default(), count_max: COUNT_MAX }
    }
}

impl Dslr64 {
    /// Whether no more tickets are given until the counters are reset.
    #[inline(always)]
    const fn is_full(&self, word: Dslr64Word) -> bool {
        let taken = word.taken();
        taken.x >= self.count_max || taken.s >= self.count_max
    }

    /// Whether it is full and all tickets were given back, and nobody took one too many: nobody
    /// holds or waits, and a client that sees that may reset the counters.
    #[inline(always)]
    const fn is_spent(&self, word: Dslr64Word) -> bool {
        let (taken, served) = (word.taken(), word.served());
        self.is_full(word) && taken.x == served.x && taken.s == served.s
    }

    /// The grant of the client that found `old` when it took its ticket, once it is its turn.
    #[inline(always)]
    pub(crate) const fn grant(old: Dslr64Word) -> Grant {
        Grant(old.taken())
    }

    /// The word after a release that found it so.
    #[inline(always)]
    const fn left(mode: Mode, old: u128) -> Dslr64Word {
        Dslr64Word(old as u64 + Dslr64Word::giving_back(mode, 1).0)
    }

    #[inline(always)]
    const fn place(mode: Mode, old: Dslr64Word) -> Place {
        Place { mode, beside_readers: false, ticket: old.taken(), generation: IN_LINE }
    }
}

// Counters that are full (section 4.9).

impl<E: Endpoint> Protocol<'_, E, Dslr64> {
    /// Gives a ticket that is none back, and waits until the counters were reset.
    async fn stand_back(self, mode: Mode, old: Dslr64Word) -> Outcome<()> {
        // It is still there, since nobody resets counters in which a living client counts.
        self.undo(Dslr64Word::taking(mode, 1), old, Nanos::MAX).await?;
        self.publish(Phase::Waiting, mode, STANDS_BACK);
        let (mut doubt, mut times) = (Doubt::new::<E>(), 0);
        loop {
            let seen = Dslr64Word(self.read().await?);
            doubt.sees(seen.0);
            if !self.rules.is_full(seen)
                || self.rules.is_spent(seen) && self.begin_at_zero(seen).await?
                || self.reset_after_the_dead(mode, &mut doubt, seen).await?
            {
                return Ok(());
            }
            self.endpoint.checkpoint(&[seen.0, times, doubt.hash()]);
            let pause_ns = (!E::WATCHES_MEMORY).then(|| backoff_ns(times, self.endpoint.random()));
            doubt.wait(&self, seen.0, pause_ns, self.rules.waiting.patience).await;
            times = (times + 1).min(BACKOFF_TIMES_MAX);
        }
    }

    /// Takes off again what was taken when the counters were full and the word `old`, unless they
    /// were reset meanwhile: it is not taken off later counters. Tries no longer than `until`.
    async fn undo(self, taken: Dslr64Word, old: Dslr64Word, until: Nanos) -> Outcome<()> {
        let mut seen = Dslr64Word(old.0.wrapping_add(taken.0));
        while self.rules.is_full(seen) && self.endpoint.now() < until {
            let found = Dslr64Word(self.cas64(seen.0, seen.0.wrapping_sub(taken.0)).await?);
            if found == seen {
                return Ok(());
            }
            seen = found;
            self.endpoint.checkpoint(&[seen.0]);
        }
        Ok(())
    }

    /// If it is time to doubt, and nobody living has a ticket or takes one, all that counts in
    /// `seen` is of the dead: resets it. True if the counters are no more full.
    async fn reset_after_the_dead(
        self,
        mode: Mode,
        doubt: &mut Doubt,
        seen: Dslr64Word,
    ) -> Outcome<bool> {
        if !doubt.is_due() {
            return Ok(false);
        }
        self.publish(Phase::Repairing, mode, STANDS_BACK);
        let is_reset = self.reset_without_the_living(mode, doubt, seen).await?;
        self.publish(Phase::Waiting, mode, STANDS_BACK);
        Ok(is_reset)
    }

    async fn reset_without_the_living(
        self,
        mode: Mode,
        doubt: &mut Doubt,
        seen: Dslr64Word,
    ) -> Outcome<bool> {
        match doubt.look_around(&self, counts).await? {
            Some(present) if !present.iter().any(counts) => {
                self.claim_and_reset(mode, doubt, seen).await
            }
            Some(_) => {
                doubt.trust_for_a_while();
                Ok(false)
            }
            None => Ok(false),
        }
    }

    /// Nobody living counted in `seen`. But meanwhile others may have reset the counters, which may
    /// have come round to the same values: so who has no ticket puts one too many into the word,
    /// which nobody resets while its owner lives, and looks again.
    async fn claim_and_reset(
        self,
        mode: Mode,
        doubt: &mut Doubt,
        seen: Dslr64Word,
    ) -> Outcome<bool> {
        let claim = Dslr64Word::taking(mode, 1);
        self.publish(Phase::Repairing, mode, CLAIMS);
        let mut claimed = Dslr64Word(seen.0.wrapping_add(claim.0));
        let found = Dslr64Word(self.cas64(seen.0, claimed.0).await?);
        if found != seen {
            doubt.trust_again();
            return Ok(!self.rules.is_full(found));
        }
        loop {
            let Some(present) = doubt.look_around(&self, counts).await? else { break };
            let mut others = present.iter().filter(|p| counts(p));
            if others.clone().next().is_none() {
                if self.begin_at_zero(claimed).await? {
                    self.peer_died(EndpointId::NOBODY);
                    self.event(Event::Repaired { lock: self.lock, generation: 0, dead_readers: 0 });
                    return Ok(true);
                }
                break;
            }
            // Of two that claim, one yields, and the other waits for that.
            let me = (self.endpoint.id(), self.slot());
            if !others.all(|p| p.record.generation == CLAIMS && me < (p.endpoint, p.slot)) {
                break;
            }
            self.endpoint.checkpoint(&[claimed.0, doubt.hash()]);
            let pause_ns = (!E::WATCHES_MEMORY).then_some(self.rules.waiting.omega_ns);
            doubt.wait(&self, claimed.0, pause_ns, self.rules.waiting.patience).await;
            claimed = Dslr64Word(self.read().await?);
        }
        let before = Dslr64Word(claimed.0.wrapping_sub(claim.0));
        self.undo(claim, before, Nanos::MAX).await?;
        doubt.trust_for_a_while();
        Ok(false)
    }

    /// Sets the counters to zero if they are as `seen`, in which nobody living counts but, for
    /// certain, this client.
    async fn begin_at_zero(self, seen: Dslr64Word) -> Outcome<bool> {
        Ok(self.cas64(seen.0, 0).await? == seen.0)
    }
}

/// Whether this client has a ticket, or one too many in a full word.
fn counts(participant: &Participant) -> bool {
    participant.record.generation != STANDS_BACK
}

impl LockKind for Dslr64 {
    const BYTES: u64 = 8;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = Dslr64Word::FIELDS;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    /// `max=COUNT`: tickets of either kind between two resets; and the options of [`Waiting`].
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "max" => Some(Setting::count(&mut self.count_max, 2..=COUNT_MAX)),
            _ => self.waiting.option(name),
        }
    }

    fn promises(&self) -> Promises {
        // A reader waits for all writers that are in line when it comes, whatever comes later.
        let writers_before_reader = Some(COUNT_MAX);
        Promises {
            order: Order { writers_before_reader, outlives_counts: false, ..Order::NONE },
            proof: Proof {
                variants: &["max=3"],
                larger: &["max=4", "lease=4000000:max=12"],
                leased: &[""],
                patient: "omega=2500000",
                hurried: "omega=50000",
                waits_for_void: true,
                ..Proof::SLEEPER
            },
            ..Promises::EXCLUSION
        }
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        let before = self.count_max.saturating_sub(steps);
        let tickets = Tickets { x: before, s: before };
        Dslr64Word::new().with_served(tickets).with_taken(tickets).0.into()
    }
}

impl Granted for Grant {
    #[inline(always)]
    fn generation(self) -> u64 {
        IN_LINE
    }

    #[inline(always)]
    fn ticket(self) -> u32 {
        self.0.bits()
    }
}

impl<E: Endpoint> Lock<E> for Dslr64 {
    type Want = Mode;
    type Grant = Grant;

    #[inline(always)]
    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        Verb::Faa64 { addr: site.lock, add: Dslr64Word::taking(mode, 1).0 }
    }

    #[inline(always)]
    fn opened(&self, _: &Site<'_, E>, mode: Mode, old: u128) -> Option<Grant> {
        let old = Dslr64Word(old as u64);
        let holds = !self.is_full(old) && Self::place(mode, old).is_served(old.served());
        holds.then(|| Self::grant(old))
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Grant> {
        let mut old = Dslr64Word(old as u64);
        while self.is_full(old) {
            site.by(self).stand_back(mode, old).await?;
            site.publish(Phase::Opening, mode, IN_LINE);
            site.endpoint.checkpoint(&[]);
            let opening = <Self as Lock<E>>::opening(self, site, mode);
            let found = site.verb(opening).await?;
            if let Some(grant) = self.opened(site, mode, found) {
                return Ok(grant);
            }
            old = Dslr64Word(found as u64);
        }
        let place = Self::place(mode, old);
        let turn = site.by(&self.waiting).turn::<Dslr64Word>(place, 0).await?;
        assert!(turn != Turn::Void, "without leases nobody loses its ticket");
        Ok(Self::grant(old))
    }

    #[inline(always)]
    fn closing(&self, site: &Site<'_, E>, mode: Mode, _: Grant) -> Option<Verb<'static>> {
        Some(Verb::Faa64 { addr: site.lock, add: Dslr64Word::giving_back(mode, 1).0 })
    }

    #[inline(always)]
    fn closed(&self, site: &Site<'_, E>, mode: Mode, _: Grant, old: u128) -> bool {
        let left = Self::left(mode, old);
        let (taken, served) = (left.taken(), left.served());
        debug_assert!(served.x <= taken.x && served.s <= taken.s, "a ticket was given back twice");
        site.left(left.0.into());
        !self.is_spent(left)
    }

    /// Resets the counters, which were full and of which this was the last ticket to come back. It
    /// does not wait: a holder of this lock may await another that this client will release next.
    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        _: Grant,
        old: Option<u128>,
    ) -> Outcome<()> {
        let old = old.expect("every release has a verb");
        // If it fails, another client takes a ticket too many, or has reset the counters.
        if site.by(self).begin_at_zero(Self::left(mode, old)).await? {
            site.left(0);
        }
        Ok(())
    }

    /// Takes a ticket if the word is as expected.
    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        let seen = expected_word(self, site, mode, seen) as u64;
        let swap = seen.wrapping_add(Dslr64Word::taking(mode, 1).0);
        Some(Verb::Cas64 { addr: site.lock, compare: seen, swap })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ticket_that_comes_back_last_resets() {
        let lock = Dslr64 { count_max: 3, ..Dslr64::default() };
        let word = |taken, served| Dslr64Word::new().with_taken(taken).with_served(served);
        let tickets = |x, s| Tickets { x, s };
        assert!(lock.is_spent(word(tickets(3, 1), tickets(3, 1))));
        assert!(lock.is_spent(word(tickets(0, 3), tickets(0, 3))));
        assert!(!lock.is_spent(word(tickets(3, 1), tickets(2, 1))), "one is not back");
        assert!(!lock.is_spent(word(tickets(3, 2), tickets(3, 1))), "one is too many");
        assert!(!lock.is_spent(word(tickets(2, 2), tickets(2, 2))), "it is not full");
    }
}
