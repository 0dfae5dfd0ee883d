//! DrTM's lock: compare-and-swap for writers, leases for readers, by clocks that agree within a
//! bound (Wei, Shi, Chen, Chen, Chen: Fast In-memory Transaction Processing using RDMA and HTM,
//! SOSP'15, section 4, as DSLR and ShiftLock measure it).
#![doc = include_str!("../../../../docs/protocols/drtm.md")]

use farlock_fabric::word::Field;
use farlock_fabric::{Nanos, SyncedClock, Verb, Wait, word};

use super::letter::short_name;
use crate::prelude::*;

word! {
    /// The word. It is free if it is zero, or a lease that has ended.
    pub struct DrtmWord: u64 {
        /// When the readers' lease ends, in nanoseconds; or, if locked, the writer: its endpoint's
        /// index, and its slot.
        VALUE value: 63,
        /// Whether a writer holds it.
        LOCKED locked: 1,
    }
}

/// How long a lease lasts at first: 1 ms, as in ShiftLock's artifact.
const LEASE_NS: Nanos = 1_000_000;
/// The shortest lease: some round trips.
const LEASE_NS_MIN: Nanos = 10_000;
/// A reader shares a lease of which at least so large a part is left: a half.
const LEFT_PARTS: Nanos = 2;
/// Leases end at multiples of this: who begins one together with others need not find out when
/// theirs ends.
const GRAIN_NS: Nanos = 1 << 16;

/// A lock with leased readers.
#[derive(Clone, Copy, Debug)]
pub struct DrTm {
    /// How long readers hold, in nanoseconds.
    pub lease_ns: Nanos,
    /// How far clocks may differ, in nanoseconds; `None`: as the fabric says.
    pub clock_error_ns: Option<Nanos>,
    /// How long to wait before trying again after a writer, in nanoseconds.
    pub retry_ns: Nanos,
}

impl Default for DrTm {
    fn default() -> Self {
        Self { lease_ns: LEASE_NS, clock_error_ns: None, retry_ns: 0 }
    }
}

/// When a reader's hold ends by its own clock; `None` for writers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease(Option<Nanos>);

impl DrTm {
    fn clock_error<E: SyncedClock>(&self, endpoint: &E) -> Nanos {
        self.clock_error_ns.unwrap_or_else(|| endpoint.clock_error())
    }
}

impl<E: SyncedClock> Protocol<'_, E, DrTm> {
    /// When a lease ends that begins at this time: late enough for a reader whose clock is ahead.
    fn end(self, begun: Nanos) -> Nanos {
        (begun + self.rules.lease_ns + self.rules.clock_error(self.endpoint))
            .next_multiple_of(GRAIN_NS)
    }

    /// The word when this slot has the lock to write.
    fn locked(self) -> DrtmWord {
        DrtmWord::new().with(DrtmWord::LOCKED, 1).with(DrtmWord::VALUE, short_name(self.me))
    }

    /// The verb that takes the lock if its word is `seen`.
    fn take(self, mode: Mode, seen: DrtmWord) -> Verb<'static> {
        let swap = match mode {
            Mode::Exclusive => self.locked(),
            Mode::Shared => {
                self.opens_at(self.endpoint.now());
                DrtmWord::new().with(DrtmWord::VALUE, self.end(self.opened_at()))
            }
        };
        Verb::Cas64 { addr: self.lock, compare: seen.0, swap: swap.0 }
    }

    /// What a reader has of a lease that ends then, if enough is left of it.
    fn shares(self, end: Nanos) -> Option<Lease> {
        let enough = end > self.endpoint.now() + self.rules.lease_ns / LEFT_PARTS;
        enough.then_some(Lease(Some(end)))
    }

    /// What this slot has after an attempt with `seen` that found `old`.
    fn got(self, mode: Mode, seen: DrtmWord, old: DrtmWord) -> Option<Lease> {
        match mode {
            Mode::Exclusive => (old == seen).then_some(Lease(None)),
            Mode::Shared if old == seen => Some(Lease(Some(self.end(self.opened_at())))),
            Mode::Shared if old.locked() == 0 => self.shares(old.value()),
            Mode::Shared => None,
        }
    }

    /// How long the readers' lease in this word still keeps others out.
    fn ends_in(self, seen: DrtmWord) -> Nanos {
        let end = seen.value() + self.rules.clock_error(self.endpoint) + 1;
        end.saturating_sub(self.endpoint.now())
    }

    /// Waits for the end of the lease, or for the writer.
    async fn pause(self, seen: DrtmWord) {
        if seen.locked() == 0 {
            self.endpoint.sleep(self.ends_in(seen)).await;
            return;
        }
        let interval = (!E::WATCHES_MEMORY).then_some(self.rules.retry_ns);
        let word = Some((self.lock, seen.0));
        self.endpoint.wait(Wait { word, interval, ..Wait::default() }).await;
    }
}

impl LockKind for DrTm {
    const BYTES: u64 = 8;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = DrtmWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    /// `lease=NANOS`: how long readers hold; `delta=NANOS`: how far clocks may differ;
    /// `retry=NANOS`: how long to wait before trying again after a writer.
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "lease" => Some(Setting::nanos(&mut self.lease_ns, LEASE_NS_MIN)),
            "delta" => Some(Setting::nanos(self.clock_error_ns.get_or_insert(0), 0)),
            "retry" => Some(Setting::nanos(&mut self.retry_ns, 0)),
            _ => None,
        }
    }

    fn promises(&self) -> Promises {
        let lingers_ns = self.lease_ns + GRAIN_NS + 3 * self.clock_error_ns.unwrap_or(0);
        Promises {
            outlives_clients: false,
            lease_ns: Some(self.lease_ns),
            lingers_ns,
            proof: Proof {
                // It is told how far clocks may lie apart that the checker lets drift.
                patient: "retry=500000:delta=100000",
                word_tells_time: true,
                ..Proof::PLAIN
            },
            ..Promises::EXCLUSION
        }
    }
}

impl Granted for Lease {
    #[inline(always)]
    fn expires(self) -> Option<Nanos> {
        self.0
    }
}

impl<E: SyncedClock> Lock<E> for DrTm {
    type Want = Mode;
    type Grant = Lease;

    fn opening(&self, site: &Site<'_, E>, mode: Mode) -> Verb<'static> {
        site.by(self).take(mode, DrtmWord::new())
    }

    fn opened(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Option<Lease> {
        site.by(self).got(mode, DrtmWord::new(), DrtmWord(old as u64))
    }

    /// Tries again: with the lease that it found when that has ended, with a free word after a
    /// writer.
    async fn wait_in_line(&self, site: &Site<'_, E>, mode: Mode, old: u128) -> Outcome<Lease> {
        let mut old = DrtmWord(old as u64);
        loop {
            site.endpoint.checkpoint(&[old.0]);
            let leased = old.locked() == 0;
            if !leased || site.by(self).ends_in(old) > 0 {
                site.by(self).pause(old).await;
            }
            let seen = if leased { old } else { DrtmWord::new() };
            site.event(Event::Retried { lock: site.lock });
            old = DrtmWord(site.verb(site.by(self).take(mode, seen)).await? as u64);
            if let Some(lease) = site.by(self).got(mode, seen, old) {
                return Ok(lease);
            }
        }
    }

    /// A reader posts nothing: its lease ends by itself.
    fn closing(&self, site: &Site<'_, E>, mode: Mode, _: Lease) -> Option<Verb<'static>> {
        let free = Verb::Cas64 { addr: site.lock, compare: site.by(self).locked().0, swap: 0 };
        (mode == Mode::Exclusive).then_some(free)
    }

    fn closed(&self, _: &Site<'_, E>, _: Mode, _: Lease, _: u128) -> bool {
        true
    }

    fn trying(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>) -> Option<Verb<'static>> {
        Some(site.by(self).take(mode, DrtmWord(seen.unwrap_or(0) as u64)))
    }

    fn tried(&self, site: &Site<'_, E>, mode: Mode, seen: Option<u128>, old: u128) -> Tried<Lease> {
        let word = DrtmWord(old as u64);
        match site.by(self).got(mode, DrtmWord(seen.unwrap_or(0) as u64), word) {
            Some(lease) => Tried::Granted(lease),
            None if word.locked() == 0 && site.by(self).ends_in(word) == 0 => Tried::Again(old),
            None => Tried::Busy,
        }
    }
}
