//! The compare-and-swap spin lock, with and without backoff: the baseline of every paper.
#![doc = include_str!("../../../../docs/protocols/cas.md")]

use std::cell::Cell;

use farlock_fabric::{Endpoint, Mailbox, Nanos, Verb, Wait};

use crate::prelude::*;

/// The first backoff: 1,862 ns, which is 4,096 cycles at 2.2 GHz (SMART, OSDI'23, section 4.3, as
/// ShiftLock's artifact has it).
pub const BACKOFF_NS: Nanos = 1_862;
/// The longest backoff is the first one doubled so many times.
pub const BACKOFF_DOUBLINGS_MAX: u32 = 10;
/// Acquisitions between two looks at the retry rate.
const ADAPT_BATCH: u64 = 64;
/// The ceiling adapts at most once in so many nanoseconds.
const ADAPT_NS: Nanos = 1_000_000;

/// A word that is zero or names its holder.
#[derive(Clone, Debug, Default)]
pub struct Cas {
    backoff: Option<Backoff>,
}

impl Cas {
    /// Waits between attempts, twice as long each time, up to a ceiling that adapts to the share of
    /// attempts that fail.
    pub fn with_backoff() -> Self {
        Self { backoff: Some(Backoff::default()) }
    }

    /// Tries again at once. On shared memory, where trying costs the holder its cache line and
    /// maybe its processor, it waits for the word to change instead.
    pub fn without_backoff() -> Self {
        Self { backoff: None }
    }
}

impl<E: Endpoint> Protocol<'_, E, Cas> {
    fn attempt(self, compare: u64) -> Verb<'static> {
        Verb::Cas64 { addr: self.lock, compare, swap: self.me.bits() }
    }

    /// Waits before attempt number `attempt` on a word that was `seen` with its holder.
    async fn pause(self, seen: u64, attempt: u32) {
        let interval = match &self.rules.backoff {
            Some(backoff) => Some(backoff.wait_ns(attempt, self.endpoint.random())),
            None => (!E::WATCHES_MEMORY).then_some(0),
        };
        let peers = [Mailbox::from_bits(seen).endpoint];
        let word = Some((self.lock, seen));
        self.endpoint.wait(Wait { word, peers: &peers, interval, ..Wait::default() }).await;
    }
}

impl LockKind for Cas {
    const BYTES: u64 = 8;
    const SHARES: bool = false;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    fn promises(&self) -> Promises {
        // It waits ever longer.
        let pause_ns = if self.backoff.is_some() { 100_000 } else { Proof::PLAIN.pause_ns };
        Promises { proof: Proof { pause_ns, ..Proof::PLAIN }, ..Promises::EXCLUSION }
    }
}

impl<E: Endpoint> Lock<E> for Cas {
    type Want = Mode;
    type Grant = ();

    #[inline]
    fn opening(&self, site: &Site<'_, E>, _: Mode) -> Verb<'static> {
        site.by(self).attempt(0)
    }

    #[inline]
    fn opened(&self, _: &Site<'_, E>, _: Mode, old: u128) -> Option<()> {
        (old as u64 == 0).then_some(())
    }

    /// Retries until a compare-and-swap finds the word free. A holder that is dead is replaced in
    /// one such step: its identity never returns, so nobody else's lock can be taken by mistake.
    async fn wait_in_line(&self, site: &Site<'_, E>, _: Mode, old: u128) -> Outcome<()> {
        let mut seen = old as u64;
        let mut attempt = 0;
        loop {
            // Backoffs are alike from then on, and how long they are decides nothing.
            let backoff = attempt.min(BACKOFF_DOUBLINGS_MAX);
            site.endpoint.checkpoint(&[seen, u64::from(backoff)]);
            let holder = Mailbox::from_bits(seen).endpoint;
            let dead = seen != 0 && !site.endpoint.is_alive(holder);
            if seen != 0 && !dead {
                site.by(self).pause(seen, attempt).await;
                attempt = attempt.saturating_add(1);
            }
            let compare = if dead { seen } else { 0 };
            site.event(Event::Retried { lock: site.lock });
            seen = site.verb(site.by(self).attempt(compare)).await? as u64;
            if seen == compare {
                if dead {
                    site.peer_died(holder);
                }
                if let Some(backoff) = &self.backoff {
                    backoff.granted(u64::from(attempt), || site.endpoint.now());
                }
                return Ok(());
            }
        }
    }

    #[inline]
    fn closing(&self, site: &Site<'_, E>, _: Mode, (): ()) -> Option<Verb<'static>> {
        Some(Verb::Cas64 { addr: site.lock, compare: site.me.bits(), swap: 0 })
    }

    #[inline]
    fn closed(&self, site: &Site<'_, E>, _: Mode, (): (), old: u128) -> bool {
        if let Some(backoff) = &self.backoff {
            backoff.completed();
        }
        if old as u64 != site.me.bits() {
            site.event(Event::Superseded { lock: site.lock });
        }
        true
    }

    fn trying(&self, site: &Site<'_, E>, _: Mode, _: Option<u128>) -> Option<Verb<'static>> {
        Some(site.by(self).attempt(0))
    }
}

/// Truncated exponential backoff whose ceiling adapts.
#[derive(Clone, Debug)]
struct Backoff {
    ceiling_ns: Cell<Nanos>,
    completions: Cell<u64>,
    retries: Cell<u64>,
    adapted_at: Cell<Nanos>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            ceiling_ns: Cell::new(BACKOFF_NS),
            completions: Cell::new(0),
            retries: Cell::new(0),
            adapted_at: Cell::new(0),
        }
    }
}

impl Backoff {
    /// How long to wait before the attempt with this number, from 0.
    fn wait_ns(&self, attempt: u32, random: u64) -> Nanos {
        let doubled = BACKOFF_NS << attempt.min(BACKOFF_DOUBLINGS_MAX);
        doubled.min(self.ceiling_ns.get()) + random % BACKOFF_NS
    }

    fn completed(&self) {
        self.completions.set(self.completions.get() + 1);
    }

    /// A contended acquisition ended after so many retries. The ceiling halves while fewer than a
    /// tenth of all attempts fail and doubles while more than half do.
    fn granted(&self, retries: u64, now: impl FnOnce() -> Nanos) {
        self.retries.set(self.retries.get() + retries);
        let (retries, completions) = (self.retries.get(), self.completions.get());
        if completions < ADAPT_BATCH {
            return;
        }
        let now = now();
        if now < self.adapted_at.get() + ADAPT_NS {
            return;
        }
        let ceiling = self.ceiling_ns.get();
        let attempts = retries + completions;
        if retries * 10 < attempts {
            self.ceiling_ns.set((ceiling / 2).max(BACKOFF_NS));
        } else if retries * 2 > attempts {
            self.ceiling_ns.set((ceiling * 2).min(BACKOFF_NS << BACKOFF_DOUBLINGS_MAX));
        }
        self.retries.set(0);
        self.completions.set(0);
        self.adapted_at.set(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_follows_the_retry_rate() {
        let backoff = Backoff::default();
        let mut now = ADAPT_NS;
        for doublings in 1..=BACKOFF_DOUBLINGS_MAX + 3 {
            (0..ADAPT_BATCH).for_each(|_| backoff.completed());
            backoff.granted(1_000, || now);
            now += ADAPT_NS;
            let expected = BACKOFF_NS << doublings.min(BACKOFF_DOUBLINGS_MAX);
            assert_eq!(backoff.ceiling_ns.get(), expected);
        }
        (0..ADAPT_BATCH).for_each(|_| backoff.completed());
        backoff.granted(1, || now);
        assert_eq!(backoff.ceiling_ns.get(), BACKOFF_NS << (BACKOFF_DOUBLINGS_MAX - 1));
    }

    #[test]
    fn the_ceiling_waits_for_its_batch_and_its_millisecond() {
        let backoff = Backoff::default();
        backoff.granted(1_000, || panic!("the clock is read once a batch"));
        (0..ADAPT_BATCH).for_each(|_| backoff.completed());
        backoff.granted(1_000, || 1);
        assert_eq!(backoff.ceiling_ns.get(), BACKOFF_NS);
    }

    #[test]
    fn waits_are_bounded_by_ceiling_and_jitter() {
        let backoff = Backoff::default();
        backoff.ceiling_ns.set(4 * BACKOFF_NS);
        assert_eq!(backoff.wait_ns(0, 0), BACKOFF_NS);
        assert_eq!(backoff.wait_ns(1, 5), 2 * BACKOFF_NS + 5);
        assert!(backoff.wait_ns(60, u64::MAX) < 5 * BACKOFF_NS);
    }
}
