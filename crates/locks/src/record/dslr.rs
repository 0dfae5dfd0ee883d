//! DSLR: a reader-writer lock by ticket; one fetch-and-add acquires or gets in line (Yoon,
//! Chowdhury, Mozafari: Distributed Lock Management with RDMA, SIGMOD'18).
#![doc = include_str!("../../../../docs/protocols/dslr.md")]

use farlock_fabric::word::Field;
use farlock_fabric::{Addr, MaskedCas, MaskedFaa, Nanos, Verb, WideAtomics, word};

use super::bakery::{
    BACKOFF_TIMES_MAX, Counters, Lease, Place, Tickets, Turn, Waiting, backoff_ns,
};
use crate::lock::{LocalFuture, Update, expected_word};
use crate::prelude::*;
use crate::width;

word! {
    /// The word of a DSLR lock (section 4.4, figure 3, with a generation and a count). Zero is
    /// free.
    pub struct DslrWord: u128 {
        /// Exclusive tickets given back.
        N_X n_x: 16 => width::TICKETS,
        /// Shared tickets given back.
        N_S n_s: 16 => width::TICKETS,
        /// How often the counters were reset.
        GENERATION generation: 16 => width::GENERATION,
        /// Exclusive tickets taken.
        MAX_X max_x: 16 => width::TICKETS,
        /// Shared tickets taken.
        MAX_S max_s: 16 => width::TICKETS,
        /// Tickets ever taken.
        COUNT count: 48 => width::COUNT,
    }
}

const SERVED_MASK: u128 = DslrWord::N_X.mask() | DslrWord::N_S.mask();
const TAKEN_MASK: u128 = DslrWord::MAX_X.mask() | DslrWord::MAX_S.mask();
const GENERATION_MASK: u128 = DslrWord::GENERATION.mask();

impl DslrWord {
    /// What was given back.
    #[inline]
    const fn served(self) -> Tickets {
        Tickets { x: self.n_x() as u16, s: self.n_s() as u16 }
    }

    /// What was taken.
    #[inline]
    const fn taken(self) -> Tickets {
        Tickets { x: self.max_x() as u16, s: self.max_s() as u16 }
    }

    #[inline]
    const fn with_served(self, served: Tickets) -> Self {
        self.with(Self::N_X, served.x as u64).with(Self::N_S, served.s as u64)
    }

    #[inline]
    const fn with_taken(self, taken: Tickets) -> Self {
        self.with(Self::MAX_X, taken.x as u64).with(Self::MAX_S, taken.s as u64)
    }

    /// One ticket, worth so many slots, taken in this mode.
    #[inline]
    const fn taking(mode: Mode, slots: u16) -> Self {
        Self::new().with(Self::COUNT, 1).with_taken(Tickets { x: 0, s: 0 }.plus(mode, slots))
    }
}

impl Counters for DslrWord {
    fn served(word: u64) -> Tickets {
        Self(u128::from(word)).served()
    }

    fn generation(word: u64) -> u64 {
        Self(u128::from(word)).generation()
    }

    fn is_void(word: u64, place: Place) -> bool {
        <Self as Counters>::generation(word) != place.generation
    }

    const FORGETS: bool = false;

    const SERVE_MASK: u64 = (SERVED_MASK | GENERATION_MASK) as u64;

    fn serve(lock: Addr, seen: u64, served: Tickets) -> Verb<'static> {
        let op = MaskedCas {
            compare: u128::from(seen),
            compare_mask: Self::SERVE_MASK.into(),
            swap: Self::new().with_served(served).0,
            swap_mask: SERVED_MASK,
        };
        Verb::MaskedCas128 { addr: lock, op, hint: None }
    }

    /// The next generation begins, with all counters zero but that of tokens.
    fn reset(lock: Addr, seen: u64) -> Verb<'static> {
        let next = Self(u128::from(seen)).generation() + 1;
        let op = MaskedCas {
            compare: u128::from(seen),
            compare_mask: Self::SERVE_MASK.into(),
            swap: Self::new().with(Self::GENERATION, next).0,
            swap_mask: SERVED_MASK | TAKEN_MASK | GENERATION_MASK,
        };
        Verb::MaskedCas128 { addr: lock, op, hint: None }
    }
}

/// What a holder remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    ticket: Tickets,
    generation: u16,
    count: u64,
    /// When it ends by the holder's clock.
    expires: Nanos,
}

/// A first-come-first-served reader-writer lock by ticket.
#[derive(Clone, Debug)]
pub struct Dslr {
    /// How waiters spend their time.
    pub waiting: Waiting,
    /// How many slots this client's tickets are worth: how many leases it may hold (section 5.1).
    pub slots: u16,
}

impl Default for Dslr {
    fn default() -> Self {
        Self { waiting: Waiting::default(), slots: 1 }
    }
}

impl Dslr {
    /// Gives a ticket back.
    #[inline(always)]
    pub(crate) const fn serving(&self, mode: Mode) -> MaskedFaa<u128> {
        let add = DslrWord::new().with_served(Tickets { x: 0, s: 0 }.plus(mode, self.slots)).0;
        MaskedFaa { add, boundary: DslrWord::BOUNDARY }
    }

    /// The grant of the client that found `old` when it took its ticket, once it is its turn, which
    /// had not come `since`.
    #[inline(always)]
    fn grant(&self, old: DslrWord, since: Nanos) -> Grant {
        let expires = self.waiting.expires(since, self.slots);
        let generation = old.generation() as u16;
        Grant { ticket: old.taken(), generation, count: old.count(), expires }
    }

    /// The place of the client that found `old` when it took its ticket.
    #[inline(always)]
    fn place(mode: Mode, old: DslrWord) -> Place {
        let generation = old.generation();
        Place { mode, beside_readers: false, ticket: old.taken(), generation }
    }

    /// The same, if it came to update.
    fn place_to_update(&self, old: DslrWord) -> Place {
        Place::to_update(old.taken(), self.slots, old.generation())
    }
}

impl<E: WideAtomics> Protocol<'_, E, Dslr> {
    /// Waits for the turn of a ticket that was taken when the word was `old`, or of a later one;
    /// `place` is that of who found such a word.
    async fn in_line(self, place: impl Fn(DslrWord) -> Place, old: DslrWord) -> Outcome<Grant> {
        let (mut old, mut times) = (old, 0);
        loop {
            let here = place(old);
            let turn =
                self.by(&self.rules.waiting).turn::<DslrWord>(here, self.opened_at()).await?;
            if let Turn::Mine { since, .. } = turn {
                return Ok(self.rules.grant(old, since));
            }
            self.event(Event::Restarted { lock: self.lock });
            self.endpoint.checkpoint(&[times]);
            let pause_ns = backoff_ns(times, self.endpoint.random());
            self.endpoint.sleep(pause_ns).await;
            times = (times + 1).min(BACKOFF_TIMES_MAX);
            self.publish(Phase::Opening, here.mode, 0);
            old = DslrWord(self.verb(self.rules.opening(&self, here.mode)).await?);
            if place(old).is_served(old.served()) {
                return Ok(self.rules.grant(old, self.opened_at()));
            }
        }
    }

    /// Waits for the turn of the same ticket, as one that reads beside nobody.
    async fn await_readers(self, grant: Grant) -> Outcome<Option<Grant>> {
        let (mode, generation) = (Mode::Exclusive, grant.generation.into());
        let place = Place { mode, beside_readers: false, ticket: grant.ticket, generation };
        let turn = self.by(&self.rules.waiting).turn::<DslrWord>(place, 0).await?;
        let Turn::Mine { since, .. } = turn else { return Ok(None) };
        // That a reader has left is progress, after which everybody's patience begins anew.
        let expires = grant.expires.max(self.rules.waiting.expires(since, self.rules.slots));
        Ok(Some(Grant { expires, ..grant }))
    }

    /// Gives a ticket back that may have become void: if the generation is the grant's and `served`
    /// was served.
    fn give_back(self, mode: Mode, grant: Grant, served: Tickets) -> Verb<'static> {
        let generation = DslrWord::new().with(DslrWord::GENERATION, grant.generation.into());
        let field = if mode == Mode::Shared { DslrWord::N_S } else { DslrWord::N_X };
        let op = MaskedCas {
            compare: generation.with_served(served).0,
            compare_mask: field.mask() | GENERATION_MASK,
            swap: DslrWord::new().with_served(served.plus(mode, self.rules.slots)).0,
            swap_mask: field.mask(),
        };
        Verb::MaskedCas128 { addr: self.lock, op, hint: None }
    }
}

impl LockKind for Dslr {
    const BYTES: u64 = 16;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = DslrWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Word;

    /// The options of [`Waiting`], and those of leases: `lease`, `slots-max`, `slots`.
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "lease" | "slots-max" | "slots" => {
                Lease::option(&mut self.waiting.lease, &mut self.slots, name)
            }
            _ => self.waiting.option(name),
        }
    }

    fn conflict(&self) -> Option<(&'static str, &'static str)> {
        Lease::conflict(self.waiting.lease, self.slots)
    }

    fn promises(&self) -> Promises {
        // A reader waits for all writers that are in line when it comes, whatever comes later.
        let order = Order { writers_before_reader: Some(u16::MAX), ..Order::FIFO };
        Promises {
            order,
            lease_ns: self.waiting.lease.map(|lease| lease.ns * Nanos::from(self.slots)),
            proof: Proof {
                handed_on: &["lease=10000000"],
                leased: &[""],
                patient: "omega=2500000",
                hurried: "omega=50000",
                ..Proof::SLEEPER
            },
            ..Promises::EXCLUSION
        }
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        let before = steps.wrapping_neg();
        let tickets = Tickets { x: before, s: before };
        DslrWord::new()
            .with(DslrWord::GENERATION, u64::MAX)
            .with_served(tickets)
            .with_taken(tickets)
            .with(DslrWord::COUNT, u64::from(steps).wrapping_neg())
            .0
    }
}

impl Granted for Grant {
    #[inline(always)]
    fn generation(self) -> u64 {
        self.generation.into()
    }

    #[inline(always)]
    fn expires(self) -> Option<Nanos> {
        (self.expires != Nanos::MAX).then_some(self.expires)
    }

    #[inline(always)]
    fn ticket(self) -> u32 {
        self.ticket.bits()
    }

    #[inline(always)]
    fn count(self) -> u64 {
        self.count
    }
}

impl<E: WideAtomics> Lock<E> for Dslr {
    type Want = Mode;
    type Grant = Grant;

    fn updates(&self) -> Option<&dyn Update<E, Grant>> {
        Some(self)
    }

    #[inline(always)]
    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        if self.waiting.lease.is_some() {
            site.opens_at(site.endpoint.now());
        }
        let add = DslrWord::taking(mode, self.slots).0;
        let op = MaskedFaa { add, boundary: DslrWord::BOUNDARY };
        Verb::MaskedFaa128 { addr: site.lock, op, hint: site.hint() }
    }

    #[inline(always)]
    fn opened(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Option<Grant> {
        let old = DslrWord(old);
        let holds = Self::place(mode, old).is_served(old.served());
        holds.then(|| self.grant(old, site.opened_at()))
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Grant> {
        site.by(self).in_line(|old| Self::place(mode, old), DslrWord(old)).await
    }

    #[inline(always)]
    fn closing(&self, site: &Site<'_, E>, mode: Mode, grant: Grant) -> Option<Verb<'static>> {
        if self.waiting.lease.is_some() {
            let in_time = site.endpoint.now() < grant.expires;
            return in_time.then(|| site.by(self).give_back(mode, grant, grant.ticket));
        }
        let op = self.serving(mode);
        // Nobody else may have come since the ticket was taken.
        let hint = DslrWord::new()
            .with_served(grant.ticket)
            .with_taken(grant.ticket.plus(mode, self.slots))
            .with(DslrWord::GENERATION, grant.generation.into())
            .with(DslrWord::COUNT, grant.count + 1);
        Some(Verb::MaskedFaa128 { addr: site.lock, op, hint: Some(hint.0) })
    }

    #[inline(always)]
    fn closed(&self, site: &Site<'_, E>, mode: Mode, grant: Grant, old: u128) -> bool {
        let old = DslrWord(old);
        if self.waiting.lease.is_some() {
            let served = match mode {
                Mode::Shared => old.served().s == grant.ticket.s,
                Mode::Exclusive => old.served().x == grant.ticket.x,
            };
            return served && old.generation() == grant.generation.into();
        }
        debug_assert!(
            mode == Mode::Shared || old.served().x == grant.ticket.x,
            "exclusive tickets are given back in turn, and this was not"
        );
        site.left(old.with_served(old.served().plus(mode, self.slots)).0);
        true
    }

    /// With leases: a release that came too late leaves the word alone, and one of several readers
    /// tries again until none was faster.
    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        grant: Grant,
        old: Option<u128>,
    ) -> Outcome<()> {
        let Some(mut old) = old.map(DslrWord) else {
            site.event(Event::Expired { lock: site.lock });
            return Ok(());
        };
        while mode == Mode::Shared && old.generation() == grant.generation.into() {
            let served = old.served();
            site.endpoint.checkpoint(&[u64::from(served.bits())]);
            let found = DslrWord(site.verb(site.by(self).give_back(mode, grant, served)).await?);
            if found.generation() == old.generation() && found.served().s == served.s {
                return Ok(());
            }
            old = found;
        }
        site.event(Event::Superseded { lock: site.lock });
        Ok(())
    }

    /// Takes a ticket if the word is as expected.
    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        if self.waiting.lease.is_some() {
            site.opens_at(site.endpoint.now());
        }
        let seen = DslrWord(expected_word(self, site, mode, seen));
        let op = MaskedCas {
            compare: seen.0,
            compare_mask: u128::MAX,
            swap: seen
                .with_taken(seen.taken().plus(mode, self.slots))
                .with(DslrWord::COUNT, seen.count() + 1)
                .0,
            swap_mask: u128::MAX,
        };
        Some(Verb::MaskedCas128 { addr: site.lock, op, hint: Some(seen.0) })
    }
}

/// By an exclusive ticket whose turn comes early (section 5.2).
impl<E: WideAtomics> Update<E, Grant> for Dslr {
    fn acquire_to_update<'a>(&'a self, site: Site<'a, E>) -> LocalFuture<'a, Outcome<Grant>> {
        Box::pin(async move {
            let old = DslrWord(site.verb(self.opening(&site, Mode::Exclusive)).await?);
            if self.place_to_update(old).is_served(old.served()) {
                return Ok(self.grant(old, site.opened_at()));
            }
            site.by(self).in_line(|old| self.place_to_update(old), old).await
        })
    }

    fn upgrade<'a>(
        &'a self,
        site: Site<'a, E>,
        grant: Grant,
    ) -> LocalFuture<'a, Outcome<Option<Grant>>> {
        Box::pin(async move { site.by(self).await_readers(grant).await })
    }
}

#[cfg(test)]
mod tests {
    use farlock_fabric::{RegionId, verb};

    use super::*;

    /// All tickets are void then, and tokens go on.
    #[test]
    fn a_reset_begins_the_next_generation_with_nobody_in_it() {
        let lock = Addr::new(RegionId(1), 64);
        for (generation, next) in [(0, 1), (7, 8), (DslrWord::GENERATION.max(), 0)] {
            let word = DslrWord::new()
                .with(DslrWord::GENERATION, generation)
                .with(DslrWord::COUNT, 5)
                .with_served(Tickets { x: 3, s: 1 })
                .with_taken(Tickets { x: 4, s: 1 });
            let Verb::MaskedCas128 { op, .. } = DslrWord::reset(lock, word.0 as u64) else {
                panic!("one compare resets the lock")
            };
            let reset = DslrWord::new().with(DslrWord::GENERATION, next).with(DslrWord::COUNT, 5);
            assert_eq!(verb::masked_cas128(word.0, &op), Some(reset.0), "{generation}");
        }
    }
}
