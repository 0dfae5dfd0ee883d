//! A lock by deadline: its word says until when it is held, by clocks that agree within a bound,
//! and how often it changed hands. Nobody asks who lives: what is past its deadline is free.
//!
//! No user can name it. It is here as what a stranger writes: a file that says all there is to say
//! of a lock that leases and counts, with what this crate makes public alone. The suite and the
//! checker take it as it is, so that neither knows anything of a lock that its file does not say.

use farlock_fabric::word::Field;
use farlock_fabric::{Fault, MaskedCas, Nanos, SyncedClock, Verb, Wait, WideAtomics, word};
use farlock_locks::event::Event;
use farlock_locks::site::Site;
use farlock_locks::slot::Phase;
use farlock_locks::{Granted, Lock, LockKind, Mode, Promises, Proof, Token, TokenSource, Tried};

word! {
    /// The word. Zero is free, and so is a deadline that is past.
    pub struct LapseWord: u128 {
        /// When the hold ends, in nanoseconds; zero: nobody holds.
        DEADLINE deadline: 64,
        /// Releases, and holds that were taken over.
        COUNT count: 48 => Token::COUNT_BITS,
        /// Unused.
        SPARE spare: 16,
    }
}

impl LapseWord {
    /// All that is used.
    const WHOLE: u128 = Self::DEADLINE.mask() | Self::COUNT.mask();
}

/// A lock whose holds end at a time. All clients of a lock must agree on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lapse {
    /// How long a hold lasts, in nanoseconds.
    pub(crate) lease_ns: Nanos,
    /// How far clocks may differ, in nanoseconds.
    pub(crate) clock_error_ns: Nanos,
    /// How often a waiter looks, in nanoseconds.
    pub(crate) poll_ns: Nanos,
}

/// What a holder remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    deadline: Nanos,
    count: u64,
}

impl Held {
    /// The word while this lasts.
    fn word(self) -> LapseWord {
        let timed = LapseWord::new().with(LapseWord::DEADLINE, self.deadline);
        timed.with(LapseWord::COUNT, self.count)
    }
}

impl Lapse {
    /// The verb that takes the lock if its word is `seen`: free, or past its deadline. Of a free
    /// word it need not know the count.
    fn take<E: WideAtomics>(self, site: &Site<'_, E>, seen: LapseWord) -> Verb<'static> {
        site.opens_at(site.endpoint.now());
        let is_free = seen.deadline() == 0;
        let mask = if is_free { LapseWord::DEADLINE.mask() } else { LapseWord::WHOLE };
        let swap = self.held(site, seen).word().0 & mask;
        let op = MaskedCas { compare: seen.0 & mask, compare_mask: mask, swap, swap_mask: mask };
        Verb::MaskedCas128 { addr: site.lock, op, hint: Some(seen.0) }
    }

    /// The hold of this slot if the verb that it posted found `seen`.
    fn held<E: WideAtomics>(self, site: &Site<'_, E>, seen: LapseWord) -> Held {
        let count = seen.count() + u64::from(seen.deadline() != 0);
        let deadline = site.opened_at() + self.lease_ns;
        Held { deadline, count: count & LapseWord::COUNT.max() }
    }

    /// What this slot has after an attempt with `seen` that found `old`.
    fn got<E: WideAtomics>(
        self,
        site: &Site<'_, E>,
        seen: LapseWord,
        old: LapseWord,
    ) -> Option<Held> {
        let mask = if seen.deadline() == 0 { LapseWord::DEADLINE.mask() } else { LapseWord::WHOLE };
        ((old.0 ^ seen.0) & mask == 0).then(|| self.held(site, old))
    }

    /// How long the hold in this word still keeps others out.
    fn ends_in<E: WideAtomics>(self, site: &Site<'_, E>, seen: LapseWord) -> Nanos {
        let end = seen.deadline() + self.clock_error_ns + 1;
        if seen.deadline() == 0 { 0 } else { end.saturating_sub(site.endpoint.now()) }
    }

    /// Waits until the word may be taken, as far as one look tells.
    async fn pause<E: WideAtomics>(
        self,
        site: &Site<'_, E>,
        seen: LapseWord,
    ) -> Result<LapseWord, Fault> {
        let interval = Some(self.ends_in(site, seen).min(self.poll_ns));
        let word = Some((site.lock, seen.deadline()));
        site.endpoint.wait(Wait { word, interval, ..Wait::default() }).await;
        site.endpoint.read64(site.lock).await?;
        Ok(seen.with(LapseWord::DEADLINE, site.endpoint.old() as u64))
    }
}

impl LockKind for Lapse {
    const BYTES: u64 = 16;
    const SHARES: bool = false;
    const FIELDS: &'static [Field] = LapseWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Word;

    fn promises(&self) -> Promises {
        let proof = Proof { leased: &[""], word_tells_time: true, ..Proof::PLAIN };
        Promises { lease_ns: Some(self.lease_ns), proof, ..Promises::EXCLUSION }
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        LapseWord::COUNT.place(u64::from(steps).wrapping_neg())
    }
}

impl Granted for Held {
    fn expires(self) -> Option<Nanos> {
        Some(self.deadline)
    }

    fn count(self) -> u64 {
        self.count
    }
}

impl<E: WideAtomics + SyncedClock> Lock<E> for Lapse {
    type Want = Mode;
    type Grant = Held;

    fn opening(&self, site: &Site<'_, E>, _: Mode) -> Verb<'static> {
        self.take(site, LapseWord::new())
    }

    fn opened(&self, site: &Site<'_, E>, _: Mode, old: u128) -> Option<Held> {
        self.got(site, LapseWord::new(), LapseWord(old))
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, _: Mode, old: u128) -> Result<Held, Fault> {
        let (lock, mut old) = (site.lock, LapseWord(old));
        loop {
            site.publish(Phase::Waiting, Mode::Exclusive, 0);
            site.endpoint.checkpoint(&[old.0 as u64, (old.0 >> 64) as u64]);
            if self.ends_in(site, old) > 0 {
                old = self.pause(site, old).await?;
                continue;
            }
            let repairs = old.deadline() != 0;
            if repairs {
                site.publish(Phase::Repairing, Mode::Exclusive, 0);
            }
            site.event(Event::Retried { lock });
            site.endpoint.verb(self.take(site, old)).await?;
            let found = LapseWord(site.endpoint.old());
            if let Some(held) = self.got(site, old, found) {
                if repairs {
                    site.event(Event::Repaired { lock, generation: held.count, dead_readers: 0 });
                }
                return Ok(held);
            }
            old = found;
        }
    }

    fn closing(&self, site: &Site<'_, E>, _: Mode, held: Held) -> Option<Verb<'static>> {
        let (compare, mask) = (held.word().0, LapseWord::WHOLE);
        let swap = LapseWord::new().with(LapseWord::COUNT, held.count + 1).0;
        let op = MaskedCas { compare, compare_mask: mask, swap, swap_mask: mask };
        let verb = Verb::MaskedCas128 { addr: site.lock, op, hint: Some(compare) };
        (site.endpoint.now() < held.deadline).then_some(verb)
    }

    fn closed(&self, _: &Site<'_, E>, _: Mode, held: Held, old: u128) -> bool {
        (old ^ held.word().0) & LapseWord::WHOLE == 0
    }

    /// It is too late: the lock is free without a release, or another's.
    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        _: Mode,
        _: Held,
        old: Option<u128>,
    ) -> Result<(), Fault> {
        let lock = site.lock;
        site.event(match old {
            None => Event::Expired { lock },
            Some(_) => Event::Superseded { lock },
        });
        Ok(())
    }

    fn trying(&self, site: &Site<'_, E>, _: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        Some(self.take(site, LapseWord(seen.unwrap_or(0))))
    }

    fn tried(&self, site: &Site<'_, E>, _: Mode, seen: Option<u128>, old: u128) -> Tried<Held> {
        match self.got(site, LapseWord(seen.unwrap_or(0)), LapseWord(old)) {
            Some(held) => Tried::Granted(held),
            None if self.ends_in(site, LapseWord(old)) == 0 => Tried::Again(old),
            None => Tried::Busy,
        }
    }
}
