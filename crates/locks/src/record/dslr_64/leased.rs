//! DSLR on 64 bits with leases, on which all clients of a lock must agree. A type of its own, so
//! that the plain lock asks for none of it.
//!
//! The word has no room for a generation. Of the counters between two resets the one of exclusive
//! tickets given back is as good: it only grows, and a client whose ticket it is past has lost that
//! ticket. So tickets become void when a client gives back, in one compare-and-swap, every ticket
//! that was taken, and one exclusive ticket more. What a generation could do besides is left to the
//! clock: counters go back to zero only when they have stood still for two leases, and nobody
//! believes for that long what it has read, nor posts after one lease what it meant to do.

use farlock_fabric::word::Field;
use farlock_fabric::{Endpoint, Nanos, Verb, Wait, Woken};

use super::{Dslr64, Dslr64Word, IN_LINE, STANDS_BACK};
use crate::lock::expected_word;
use crate::prelude::*;
use crate::record::bakery::{
    BACKOFF_TIMES_MAX, Counters, Lease, Place, Stall, Tickets, Turn, backoff_ns,
};

/// DSLR on 64 bits whose holders hold until a time.
#[derive(Clone, Debug)]
pub struct Leased {
    /// The lock without leases.
    lock: Dslr64,
    /// How many slots this client's tickets are worth: how many leases it may hold (section 5.1).
    slots: u16,
}

/// What a holder remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    ticket: Tickets,
    /// The word as it was last seen, with this ticket in it.
    seen: Dslr64Word,
    /// When it ends by the holder's clock.
    expires: Nanos,
}

impl Default for Leased {
    fn default() -> Self {
        Self { lock: Dslr64::default(), slots: 1 }
    }
}

impl Leased {
    /// Whether an option asks for leases.
    pub(crate) const fn is_needed(&self) -> bool {
        self.lock.waiting.lease.is_some()
    }

    fn lease(&self) -> Lease {
        self.lock.waiting.lease.expect("the plain lock has none")
    }

    /// The hold of the client that took this ticket and saw that it is its turn, which had not come
    /// `since`.
    fn held(&self, ticket: Tickets, seen: Dslr64Word, since: Nanos) -> Held {
        Held { ticket, seen, expires: self.lock.waiting.expires(since, self.slots) }
    }

    /// The word with this ticket given back.
    fn without(&self, mode: Mode, word: Dslr64Word) -> Dslr64Word {
        let back = word.served().plus(mode, self.slots);
        word.with_served(back)
    }

    /// Whether this ticket was the last.
    fn resets(&self, mode: Mode, held: Held) -> bool {
        let taken = held.ticket.plus(mode, self.slots);
        self.lock.is_full(Dslr64Word::new().with_taken(taken))
    }

    /// How long full counters must have stood still before anything is done about them.
    fn quiet_ns_min(&self, seen: Dslr64Word) -> Nanos {
        match are_back(seen) {
            true => self.lease().memory_ns(),
            false => {
                let (served, taken) = (seen.served(), seen.taken());
                let left = |taken: u16, served| u32::from(taken.saturating_sub(served));
                self.lease().stall_ns(left(taken.x, served.x) + left(taken.s, served.s))
            }
        }
    }
}

impl<E: Endpoint> Protocol<'_, E, Leased> {
    fn opening_verb(self, mode: Mode) -> Verb<'static> {
        self.opens_at(self.endpoint.now());
        Verb::Faa64 { addr: self.lock, add: Dslr64Word::taking(mode, self.rules.slots).0 }
    }

    /// The hold, if the opening verb that found `old` acquired the lock.
    fn at_once(self, mode: Mode, old: Dslr64Word) -> Option<Held> {
        let is_sound = !self.rules.lock.is_full(old) && !is_spoiled(old);
        let holds = is_sound && Dslr64::place(mode, old).is_served(old.served());
        let with_ticket =
            Dslr64Word(old.0.wrapping_add(Dslr64Word::taking(mode, self.rules.slots).0));
        holds.then(|| self.rules.held(old.taken(), with_ticket, self.opened_at()))
    }

    /// Waits for the turn of a ticket; `None` if it became void.
    async fn wait(self, mode: Mode, old: Dslr64Word) -> Outcome<Option<Held>> {
        let (waiting, place) = (&self.rules.lock.waiting, Dslr64::place(mode, old));
        let turn = self.by(waiting).turn::<Dslr64Word>(place, self.opened_at()).await?;
        let Turn::Mine { since, seen } = turn else { return Ok(None) };
        Ok(Some(self.rules.held(place.ticket, Dslr64Word(seen), since)))
    }

    /// Waits until full counters were reset, by itself if need be. Who has released with the last
    /// ticket does so (section 4.9), but it may have overstayed: so do all who stand back.
    async fn await_reset(self) -> Outcome<()> {
        let mut stall = Stall::default();
        loop {
            let seen = Dslr64Word(self.read().await?);
            if !self.rules.lock.is_full(seen) {
                return Ok(());
            }
            let left_ns = stall.left_ns(seen.served(), self.rules.quiet_ns_min(seen));
            if left_ns == 0 {
                self.begin_anew(seen).await?;
                continue;
            }
            self.endpoint.checkpoint(&[seen.0, stall.quiet_ns]);
            let interval = left_ns.min(self.rules.lease().ns);
            let (word, patience) = (Some((self.lock, seen.0)), self.rules.lock.waiting.patience);
            let wait = Wait { word, interval: Some(interval), patience, ..Wait::default() };
            if self.endpoint.wait(wait).await == Woken::Elapsed {
                stall.quiet_ns += interval;
            }
        }
    }

    /// Full counters have stood still: makes the tickets void of those who keep them, or, when
    /// there are none, begins at zero.
    async fn begin_anew(self, seen: Dslr64Word) -> Outcome<()> {
        if are_back(seen) {
            return self.endpoint.cas64(self.lock, seen.0, 0).await;
        }
        self.by(&self.rules.lock.waiting).resets::<Dslr64Word>(seen.0).await?;
        Ok(())
    }
}

/// Whether nobody has a ticket.
fn are_back(word: Dslr64Word) -> bool {
    let (served, taken) = (word.served(), word.taken());
    served.x >= taken.x && served.s >= taken.s
}

/// Whether a client has given back what was never taken, as only one that overran the clocks can.
/// Every ticket of such a word is void, until as many were taken.
fn is_spoiled(word: Dslr64Word) -> bool {
    word.served().x > word.taken().x
}

impl LockKind for Leased {
    const BYTES: u64 = 8;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = Dslr64Word::FIELDS;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    /// Those of leases, and of [`Dslr64`].
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "lease" | "slots-max" | "slots" => {
                Lease::option(&mut self.lock.waiting.lease, &mut self.slots, name)
            }
            _ => self.lock.option(name),
        }
    }

    fn conflict(&self) -> Option<(&'static str, &'static str)> {
        Lease::conflict(self.lock.waiting.lease, self.slots)
    }

    fn promises(&self) -> Promises {
        let lease_ns = self.lease().ns * Nanos::from(self.slots);
        Promises { lease_ns: Some(lease_ns), ..self.lock.promises() }
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        self.lock.near_wrap(steps)
    }
}

impl Granted for Held {
    #[inline(always)]
    fn generation(self) -> u64 {
        IN_LINE
    }

    #[inline(always)]
    fn expires(self) -> Option<Nanos> {
        Some(self.expires)
    }

    #[inline(always)]
    fn ticket(self) -> u32 {
        self.ticket.bits()
    }
}

impl<E: Endpoint> Lock<E> for Leased {
    type Want = Mode;
    type Grant = Held;

    #[inline(always)]
    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        site.by(self).opening_verb(mode)
    }

    #[inline(always)]
    fn opened(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Option<Held> {
        site.by(self).at_once(mode, Dslr64Word(old as u64))
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Held> {
        let (mut old, mut times) = (Dslr64Word(old as u64), 0);
        loop {
            if self.lock.is_full(old) {
                // For as long as a holder might release. After that it stays, and is given back
                // with the others.
                let until = self.lock.waiting.expires(site.opened_at(), 1);
                let taken = Dslr64Word::taking(mode, self.slots);
                site.by(&self.lock).undo(taken, old, until).await?;
                site.publish(Phase::Waiting, mode, STANDS_BACK);
                site.by(self).await_reset().await?;
            } else if let Some(held) = site.by(self).wait(mode, old).await? {
                return Ok(held);
            } else {
                site.event(Event::Restarted { lock: site.lock });
                site.endpoint.checkpoint(&[times]);
                site.endpoint.sleep(backoff_ns(times, site.endpoint.random())).await;
                times = (times + 1).min(BACKOFF_TIMES_MAX);
            }
            site.publish(Phase::Opening, mode, IN_LINE);
            site.endpoint.checkpoint(&[times]);
            old = Dslr64Word(site.verb(site.by(self).opening_verb(mode)).await? as u64);
            if let Some(held) = site.by(self).at_once(mode, old) {
                return Ok(held);
            }
            if is_spoiled(old) && !self.lock.is_full(old) {
                let seen = old.0.wrapping_add(Dslr64Word::taking(mode, self.slots).0);
                site.by(&self.lock.waiting).resets::<Dslr64Word>(seen).await?;
            }
        }
    }

    /// Compares the whole word: a release that comes too late must not count.
    #[inline(always)]
    fn closing(&self, site: &Site<'_, E>, mode: Mode, held: Held) -> Option<Verb<'static>> {
        let swap = self.without(mode, held.seen).0;
        let verb = Verb::Cas64 { addr: site.lock, compare: held.seen.0, swap };
        (site.endpoint.now() < held.expires).then_some(verb)
    }

    #[inline(always)]
    fn closed(&self, site: &Site<'_, E>, mode: Mode, held: Held, old: u128) -> bool {
        let is_released = old as u64 == held.seen.0;
        if is_released {
            site.left(self.without(mode, held.seen).0.into());
        }
        is_released && !self.resets(mode, held)
    }

    /// Tries again while other clients come or leave between: until the lease ends, or until the
    /// ticket is found to be void. Then resets the counters if it had the last one.
    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        held: Held,
        old: Option<u128>,
    ) -> Outcome<()> {
        if old == Some(held.seen.0.into()) {
            return site.by(self).await_reset().await;
        }
        let mut seen = old.map_or(held.seen, |old| Dslr64Word(old as u64));
        let ticket = held.ticket;
        let place = Place { mode, beside_readers: false, ticket, generation: IN_LINE };
        while !Dslr64Word::is_void(seen.0, place) {
            if site.endpoint.now() >= held.expires {
                site.event(Event::Expired { lock: site.lock });
                return Ok(());
            }
            site.endpoint.checkpoint(&[seen.0]);
            let found = Dslr64Word(site.cas64(seen.0, self.without(mode, seen).0).await?);
            match found == seen {
                true if self.resets(mode, held) => return site.by(self).await_reset().await,
                true => return Ok(()),
                false => seen = found,
            }
        }
        site.event(Event::Superseded { lock: site.lock });
        Ok(())
    }

    /// Takes a ticket if the word is as expected.
    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        site.opens_at(site.endpoint.now());
        let seen = expected_word(self, site, mode, seen) as u64;
        let swap = seen.wrapping_add(Dslr64Word::taking(mode, self.slots).0);
        Some(Verb::Cas64 { addr: site.lock, compare: seen, swap })
    }
}
