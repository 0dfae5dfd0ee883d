//! ShiftLock with what the plain one does without: leases, readers' releases that compare, and
//! attempts before a writer gets in line. A type of its own, so that the plain lock's uncontended
//! cycle does not ask for any of it.

use farlock_fabric::word::Field;
use farlock_fabric::{MaskedCas, Nanos, Verb, WideAtomics};

use super::{Grant, RELEASED_MASK, Released, ShiftLock, ShiftWord, add, found_free};
use crate::prelude::*;
use crate::record::queue::next_generation;
use crate::repair;

/// The shortest lease, in nanoseconds: some round trips.
const LEASE_NS_MIN: Nanos = 10_000;
/// The most attempts before a writer gets in line.
const ATTEMPTS_MAX: u8 = 16;
/// The pause after the first of them, in nanoseconds; it doubles with each (the artifact's).
const BACKOFF_NS: Nanos = 1_862;

/// Clocks go apart by at most one part in so many (section 3.6).
const DRIFT_ONE_IN: Nanos = 10_000;

/// A bound on how long anybody holds. All clients of a lock must agree on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Term {
    /// In nanoseconds.
    pub(super) ns: Nanos,
}

impl Term {
    /// When a hold ends that begins now, by its holder's own clock.
    pub(super) fn end(self, now: Nanos) -> Nanos {
        now.saturating_add(self.ns - self.ns / DRIFT_ONE_IN)
    }

    /// How long the count must stand still before nobody holds.
    pub(super) fn stall_ns(self) -> Nanos {
        3 * (self.ns + self.ns / DRIFT_ONE_IN + 1)
    }

    /// How long a waiter looks away.
    pub(super) fn glance_ns(self) -> Nanos {
        self.ns / 2
    }
}

/// ShiftLock with leases, strict releases or attempts.
#[derive(Clone, Debug, Default)]
pub struct Extended {
    /// The lock without them; nobody passes its line.
    pub(super) lock: ShiftLock,
    /// How often a writer tries before it gets in line.
    attempts: u8,
    /// Whether readers release by a compare on the generation.
    strict: bool,
    /// How long anybody may hold.
    pub(super) lease: Option<Term>,
}

/// What a holder remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    pub(super) grant: Grant,
    /// A reader's guess of how many are in the word, itself included.
    pub(super) readers: u16,
    /// When it ends by the holder's clock.
    pub(super) expires: Nanos,
}

impl Extended {
    /// Whether an option asks for what the plain lock does without.
    pub(crate) const fn is_needed(&self) -> bool {
        self.strict || self.attempts > 0 || self.lease.is_some()
    }

    /// This lock with leases of so many nanoseconds, at least 10,000; nobody may pass its line.
    /// Whether readers release by a compare on the generation.
    pub fn leased(lock: ShiftLock, ns: Nanos, strict: bool) -> Self {
        assert!(ns >= LEASE_NS_MIN, "a lease takes some round trips");
        assert!(lock.bypass == 0, "who passes a line is not watched by those who wait in it");
        Self { lock, attempts: 0, strict, lease: Some(Term { ns }) }
    }

    /// A reader less, a release more, if the word's upper half and its readers are these.
    fn leave_if(released: Released, readers: u64) -> MaskedCas<u128> {
        let mask = RELEASED_MASK | ShiftWord::READERS.mask();
        let word = |released: Released, readers| {
            u128::from(released.0) << 64 | ShiftWord::READERS.place(readers)
        };
        MaskedCas {
            compare: word(released, readers),
            compare_mask: mask,
            swap: word(add(released, 1), readers.wrapping_sub(1)),
            swap_mask: mask,
        }
    }
}

impl<'a, E: WideAtomics> Protocol<'a, E, Extended> {
    /// The protocol of the lock without what is asked for beside it.
    #[inline(always)]
    pub(super) fn plain(self) -> Protocol<'a, E, ShiftLock> {
        self.site.by(&self.rules.lock)
    }

    /// The hold of the client that found `old` when it got in, no sooner than the slot posted its
    /// verb.
    #[inline]
    fn held(self, grant: Grant, old: ShiftWord) -> Held {
        let expires = self.rules.lease.map_or(Nanos::MAX, |term| term.end(self.opened_at()));
        Held { grant, readers: old.readers() as u16 + 1, expires }
    }

    /// Remembers when the verb is posted that may acquire, where a lease counts from there.
    #[inline]
    fn opens(self) {
        if self.rules.lease.is_some() {
            self.opens_at(self.endpoint.now());
        }
    }

    /// The rest of a writer's attempts, and then the line: what it found there.
    async fn get_in_line(self) -> Outcome<ShiftWord> {
        for attempt in 1..=self.rules.attempts {
            self.endpoint.sleep(BACKOFF_NS << (attempt - 1)).await;
            let op = match attempt < self.rules.attempts {
                true => self.plain().enqueue_if_free(),
                false => self.plain().enqueue(),
            };
            self.opens();
            let found = ShiftWord(self.masked_cas128(op, None).await?);
            if attempt == self.rules.attempts || found_free(Mode::Exclusive, found).is_some() {
                return Ok(found);
            }
        }
        unreachable!("who attempts nothing does not come here")
    }

    async fn wait(self, mode: Mode, old: ShiftWord) -> Outcome<Option<Held>> {
        if self.rules.lease.is_some() {
            return match mode {
                Mode::Exclusive => self.wait_exclusive(old).await,
                Mode::Shared => self.wait_shared(old).await,
            };
        }
        let grant = match mode {
            Mode::Exclusive => self.plain().wait_exclusive(old).await?,
            Mode::Shared => self.plain().wait_shared(old).await?,
        };
        Ok(grant.map(|grant| Held { grant, readers: 1, expires: Nanos::MAX }))
    }

    /// A reader that found `old` instead of what it guessed leaves. Each time that it has to try
    /// again, a client has come or left. False if the lock was repaired: then it was taken off.
    pub(super) async fn leave_strictly(self, generation: u64, mut old: ShiftWord) -> Outcome<bool> {
        while old.generation() == generation {
            self.endpoint.checkpoint(&[old.0 as u64, (old.0 >> 64) as u64]);
            let op = Extended::leave_if(old.released(), old.readers());
            let found = ShiftWord(self.masked_cas128(op, Some(old.0)).await?);
            if (found.0 ^ op.compare) & op.compare_mask == 0 {
                return Ok(true);
            }
            old = found;
        }
        Ok(false)
    }

    /// Whether this hold is over by its lease.
    fn is_over(self, held: Held) -> bool {
        self.rules.lease.is_some() && self.endpoint.now() >= held.expires
    }
}

impl LockKind for Extended {
    const BYTES: u64 = 16;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = ShiftWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Word;

    /// Those of [`ShiftLock`], and: `lease=NANOS`: how long a holder may hold before others take
    /// the lock away; `strict`: readers release by a compare on the generation; `attempts=COUNT`:
    /// how often a writer tries before it gets in line.
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "lease" => {
                let lease = self.lease.get_or_insert(Term { ns: 0 });
                Some(Setting::nanos(&mut lease.ns, LEASE_NS_MIN))
            }
            "strict" => Some(Setting::flag(&mut self.strict)),
            "attempts" => Some(Setting::count(&mut self.attempts, 1..=ATTEMPTS_MAX)),
            _ => self.lock.option(name),
        }
    }

    fn conflict(&self) -> Option<(&'static str, &'static str)> {
        let conflicts = self.is_needed() && self.lock.bypass > 0;
        conflicts.then_some(("bypass", "not with lease, strict or attempts"))
    }

    fn promises(&self) -> Promises {
        let plain = self.lock.promises();
        // A client that attempts is in no line, and a lease that ends puts all in line anew.
        let in_order = self.attempts == 0 && self.lease.is_none();
        let order = Order { outlives_pauses: false, ..Order::NONE };
        // A reader's release, without `strict`: what it posts at the end of its lease takes effect
        // before any other client has waited for three.
        let adds = self.lease.filter(|_| !self.strict);
        Promises {
            order: if in_order { plain.order } else { order },
            lease_ns: self.lease.map(|term| term.ns),
            adds_within_ns: adds.map(|term| term.ns),
            acts_on_memory: false,
            ..plain
        }
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        self.lock.near_wrap(steps)
    }
}

impl Granted for Held {
    #[inline(always)]
    fn generation(self) -> u64 {
        self.grant.released.generation()
    }

    #[inline(always)]
    fn expires(self) -> Option<Nanos> {
        (self.expires != Nanos::MAX).then_some(self.expires)
    }

    #[inline(always)]
    fn count(self) -> u64 {
        self.grant.released.count()
    }
}

impl<E: WideAtomics> Lock<E> for Extended {
    type Want = Mode;
    type Grant = Held;

    #[inline]
    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        site.by(self).opens();
        if mode == Mode::Exclusive && self.attempts > 0 {
            let op = site.by(&self.lock).enqueue_if_free();
            return Verb::MaskedCas128 { addr: site.lock, op, hint: site.hint() };
        }
        self.lock.opening(site, mode)
    }

    #[inline]
    fn opened(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Option<Held> {
        let old = ShiftWord(old);
        found_free(mode, old).map(|grant| site.by(self).held(grant, old))
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Held> {
        let mut old = ShiftWord(old);
        loop {
            site.endpoint.checkpoint(&[old.0 as u64, (old.0 >> 64) as u64, site.opened_at()]);
            if mode == Mode::Exclusive && self.attempts > 0 {
                old = site.by(self).get_in_line().await?;
                if let Some(held) = self.opened(site, mode, old.0) {
                    return Ok(held);
                }
            }
            if let Some(held) = site.by(self).wait(mode, old).await? {
                return Ok(held);
            }
            site.event(Event::Restarted { lock: site.lock });
            if self.lease.is_none() && mode == Mode::Exclusive {
                repair::dismiss(site, next_generation(old.generation())).await?;
            }
            site.set_successor(None);
            site.publish(Phase::Opening, mode, 0);
            old = ShiftWord(site.verb(self.opening(site, mode)).await?);
            if let Some(held) = self.opened(site, mode, old.0) {
                return Ok(held);
            }
        }
    }

    #[inline]
    fn closing(&self, site: &Site<'_, E>, mode: Mode, held: Held) -> Option<Verb<'static>> {
        if site.by(self).is_over(held) {
            return None;
        }
        if mode == Mode::Exclusive || !self.strict {
            return self.lock.closing(site, mode, held.grant);
        }
        let (released, readers) = (held.grant.released, held.readers.into());
        let op = Self::leave_if(released, readers);
        let word = ShiftWord(op.compare)
            .with(ShiftWord::EPOCH, u64::from(held.grant.epoch))
            .with(ShiftWord::GENERATION_LOW, released.generation());
        Some(Verb::MaskedCas128 { addr: site.lock, op, hint: Some(word.0) })
    }

    #[inline]
    fn closed(&self, site: &Site<'_, E>, mode: Mode, held: Held, old: u128) -> bool {
        if mode == Mode::Shared && !self.strict && self.lease.is_some() {
            // By a clock that is wrong it may have stayed until the count was taken from it.
            return true;
        }
        if mode == Mode::Exclusive || !self.strict {
            return self.lock.closed(site, mode, held.grant, old);
        }
        let op = Self::leave_if(held.grant.released, held.readers.into());
        (old ^ op.compare) & op.compare_mask == 0
    }

    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        mode: Mode,
        held: Held,
        old: Option<u128>,
    ) -> Outcome<()> {
        if old.is_none() && site.by(self).is_over(held) {
            site.set_successor(None);
            site.event(Event::Expired { lock: site.lock });
            return Ok(());
        }
        let generation = held.grant.released.generation();
        match (mode, old.map(ShiftWord)) {
            (Mode::Shared, Some(old)) => {
                if !site.by(self).leave_strictly(generation, old).await? {
                    site.event(Event::Superseded { lock: site.lock });
                }
                Ok(())
            }
            (Mode::Exclusive, old) if self.lease.is_some() => {
                site.by(self).hand_over(held.grant, old).await
            }
            _ => self.lock.hand_over(site, mode, held.grant, old).await,
        }
    }

    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        site.by(self).opens();
        self.lock.trying(site, mode, seen)
    }

    fn tried(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>, old: u128) -> Tried<Held> {
        match self.lock.tried(site, mode, seen, old) {
            Tried::Granted(grant) => Tried::Granted(site.by(self).held(grant, ShiftWord(old))),
            Tried::Busy => Tried::Busy,
            Tried::Again(word) => Tried::Again(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_early_for_its_holder_and_late_for_others() {
        let term = Term { ns: 10_000 };
        assert_eq!(term.end(7), 7 + 9_999);
        assert_eq!(term.stall_ns(), 30_006);
    }
}
