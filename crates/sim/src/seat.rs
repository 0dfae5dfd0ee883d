//! The endpoints' side of the world: who lives, whose verbs still count, mailboxes, clocks.
//!
//! A seat is a place in the table of endpoints; successive endpoints may occupy it, each with a
//! higher incarnation. A crash has two moments: from the first on the endpoint does nothing more,
//! but its verbs in flight may still take effect; at the second the death is announced, and from
//! then on they may not.

use std::collections::VecDeque;

use farlock_fabric::{EndpointId, Envelope, Fault, LinkDone, Nanos};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::fault::Outcome;
use crate::flight::NONE;
use crate::history::Kind;

/// Where an occupant of a seat stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Alive,
    /// It does nothing more, but nobody knows.
    Crashed,
    /// Its death was announced.
    Dead,
}

/// The verbs an endpoint posted to one node, oldest first: completions come in this order.
#[derive(Clone, Copy)]
pub(crate) struct QueuePair {
    pub(crate) oldest: u32,
    pub(crate) newest: u32,
}

impl QueuePair {
    pub(crate) const EMPTY: Self = Self { oldest: NONE, newest: NONE };
}

/// The queue pairs of an endpoint. Most worlds have one memory node.
pub(crate) struct QueuePairs {
    /// That for messages and that of the first node.
    first: [QueuePair; 2],
    /// Those of the other nodes.
    more: Vec<QueuePair>,
}

impl QueuePairs {
    const NEW: Self = Self { first: [QueuePair::EMPTY; 2], more: Vec::new() };

    /// The queue pair with this number. The first post to it makes it.
    #[inline]
    pub(crate) fn at_mut(&mut self, pair: u16) -> &mut QueuePair {
        let pair = usize::from(pair);
        if pair < self.first.len() { &mut self.first[pair] } else { self.more_mut(pair) }
    }

    /// The oldest chain of each queue pair, or none.
    pub(crate) fn oldest(&self) -> impl Iterator<Item = u32> {
        self.first.iter().chain(&self.more).map(|pair| pair.oldest)
    }

    #[cold]
    fn more_mut(&mut self, pair: usize) -> &mut QueuePair {
        let place = pair - self.first.len();
        if self.more.len() <= place {
            self.more.resize(place + 1, QueuePair::EMPTY);
        }
        &mut self.more[place]
    }
}

/// What the endpoint's last completion brought.
pub(crate) struct Last {
    pub(crate) old: u128,
    first: LastLink,
    /// The links after the first, and after them what earlier chains had more.
    more: Vec<LastLink>,
    /// How many links it had.
    links: usize,
}

/// What the completion brought of one link.
pub(crate) struct LastLink {
    pub(crate) done: LinkDone,
    /// What it read; nothing where it read nothing.
    pub(crate) data: Vec<u64>,
}

impl LastLink {
    const NEW: Self = Self { done: LinkDone { status: Ok(()), old: 0 }, data: Vec::new() };
}

impl Last {
    const NEW: Self = Self { old: 0, first: LastLink::NEW, more: Vec::new(), links: 0 };

    /// What it brought of this link.
    ///
    /// # Panics
    /// If it had fewer.
    pub(crate) fn link(&self, index: usize) -> &LastLink {
        assert!(index < self.links, "the last chain had {} links", self.links);
        if index == 0 { &self.first } else { &self.more[index - 1] }
    }

    /// Where to put what it brings of this link, now its last.
    #[inline]
    pub(crate) fn put(&mut self, index: usize) -> &mut LastLink {
        self.links = index + 1;
        if index == 0 { &mut self.first } else { self.put_more(index - 1) }
    }

    #[cold]
    fn put_more(&mut self, place: usize) -> &mut LastLink {
        if self.more.len() == place {
            self.more.push(LastLink::NEW);
        }
        &mut self.more[place]
    }
}

/// A clock that drifts away and comes back, so that it stays within a bound for ever.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    /// How fast it goes ahead or falls behind, in parts per billion.
    drift_ppb: u64,
    /// After so many nanoseconds it turns.
    turn_ns: u64,
    phase_ns: u64,
    /// How it was set, if it was; then it no longer drifts.
    set: Option<Setting>,
}

/// How a clock goes since it was set, at a rate of its own and maybe after a jump.
#[derive(Clone, Copy)]
struct Setting {
    /// The world's time when it was set.
    since: Nanos,
    /// What it showed from then on, but for `least`.
    shown: Nanos,
    /// It shows no less: after a jump back it stands still for a while.
    least: Nanos,
    /// How much faster it goes than the world's time, in parts per billion; above -1e9.
    rate_ppb: i64,
}

/// Parts per billion of a whole.
const PPB: i64 = 1_000_000_000;

impl Setting {
    fn speed(&self) -> u128 {
        u128::try_from(PPB + self.rate_ppb).expect("a clock goes on")
    }

    fn read(&self, now: Nanos) -> Nanos {
        let passed = u128::from(now - self.since) * self.speed() / PPB as u128;
        self.least.max(self.shown + passed as u64)
    }

    /// The first time of the world not before `now` at which it shows `reading`.
    fn when(&self, now: Nanos, reading: Nanos) -> Nanos {
        if self.read(now) >= reading {
            return now;
        }
        let to_pass = u128::from(reading - self.shown) * PPB as u128;
        self.since + to_pass.div_ceil(self.speed()) as u64
    }
}

impl Clock {
    /// A clock that shows the world's time.
    pub(crate) const TRUE: Self = Self { drift_ppb: 0, turn_ns: 1, phase_ns: 0, set: None };

    /// One that drifts to and fro: so fast, turning after so many nanoseconds, and so far into
    /// that.
    pub(crate) const fn drifting(drift_ppb: u64, turn_ns: u64, phase_ns: u64) -> Self {
        Self { drift_ppb, turn_ns, phase_ns, set: None }
    }

    /// From now on it goes at this rate, ahead of what it showed or behind by so much. What it
    /// shows never goes back.
    pub(crate) fn set(&mut self, now: Nanos, rate_ppb: Option<i64>, jump_ns: i64) {
        let least = self.read(now);
        let rate_ppb = rate_ppb.or(self.set.map(|set| set.rate_ppb)).unwrap_or(0);
        assert!(rate_ppb > -PPB, "a clock goes on");
        let shown = least.saturating_add_signed(jump_ns);
        self.set = Some(Setting { since: now, shown, least, rate_ppb });
    }

    /// The endpoint's time at this time of the world. Never goes back.
    #[inline]
    pub(crate) fn read(&self, now: Nanos) -> Nanos {
        if let Some(set) = &self.set {
            return set.read(now);
        }
        if self.drift_ppb == 0 {
            return now;
        }
        let phase = (now + self.phase_ns) % (2 * self.turn_ns);
        let away = phase.min(2 * self.turn_ns - phase);
        // It turns before the product exceeds 64 bits.
        now + away * self.drift_ppb / 1_000_000_000
    }

    /// The first time of the world not before `now` at which this clock shows `reading`.
    #[inline]
    pub(crate) fn when(&self, now: Nanos, reading: Nanos) -> Nanos {
        if let Some(set) = &self.set {
            return set.when(now, reading);
        }
        if self.drift_ppb == 0 {
            return now.max(reading);
        }
        let mut time = now;
        // Each step closes all but a drift's share of the gap: three steps at most.
        while self.read(time) < reading {
            let gap = reading - self.read(time);
            time += (gap - gap / 4096).max(1);
        }
        time
    }
}

/// A line of the processor's cache holds what every verb needs.
#[repr(C, align(64))]
pub(crate) struct Seat {
    pub(crate) id: EndpointId,
    pub(crate) life: Life,
    pub(crate) revoked: bool,
    /// The world's stamp when this endpoint came: nodes that were reset later refuse it.
    pub(crate) stamp: u32,
    /// As which of all endpoints it first had an effect that others can see; 0: it had none.
    pub(crate) shown: u32,
    /// So many of those it has been told of.
    pub(crate) knows: u32,
    /// Its tasks are not polled before this time; in explored mode, where any later time may be
    /// next, not before the event of that.
    pub(crate) paused_until: Nanos,
    /// Verbs it has posted.
    pub(crate) posted: u64,
    /// It crashes when it posts the verb with this number, counted from zero.
    pub(crate) crash_at: Option<(u64, Outcome)>,
    /// The completion of the next chain that it posts is lost; what then becomes of it, or `None`
    /// where that is for the oracle to decide.
    pub(crate) loses: Option<Option<Outcome>>,
    /// One per memory node, and the first for messages.
    pub(crate) pairs: QueuePairs,
    pub(crate) last: Last,
    pub(crate) rng: Xoshiro256PlusPlus,
    pub(crate) clock: Clock,
    pub(crate) mailboxes: Vec<VecDeque<Envelope>>,
    /// Its waits in progress that a message may end.
    pub(crate) waits: Vec<u32>,
    /// Its messages on their way, oldest first.
    pub(crate) sends: Vec<u32>,
    /// What kind of verb it crashed with, once it has.
    pub(crate) crashed_at: Option<Kind>,
}

impl Seat {
    pub(crate) fn vacant(index: u16) -> Self {
        Self {
            id: EndpointId { index, incarnation: 0 },
            life: Life::Dead,
            revoked: false,
            stamp: 0,
            shown: 0,
            knows: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(0),
            clock: Clock::TRUE,
            mailboxes: Vec::new(),
            waits: Vec::new(),
            sends: Vec::new(),
            pairs: QueuePairs::NEW,
            last: Last::NEW,
            paused_until: 0,
            posted: 0,
            crash_at: None,
            loses: None,
            crashed_at: None,
        }
    }

    /// Whether this endpoint sits here and has not crashed.
    #[inline]
    pub(crate) fn is_acting(&self, id: EndpointId) -> bool {
        self.id == id && self.life == Life::Alive
    }

    /// Whether verbs of this endpoint still take effect, as far as it depends on the endpoint.
    #[inline]
    pub(crate) fn may_take_effect(&self, id: EndpointId) -> Result<(), Fault> {
        if self.id == id && self.life != Life::Dead && !self.revoked {
            Ok(())
        } else {
            Err(Fault::Revoked)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_goes_at_its_rate_and_never_back() {
        let mut clock = Clock::TRUE;
        clock.set(100, Some(PPB), 0);
        assert_eq!((clock.read(100), clock.read(150)), (100, 200));
        clock.set(150, None, -80);
        assert_eq!((clock.read(150), clock.read(190), clock.read(191)), (200, 200, 202));
        clock.set(200, Some(-PPB / 2), 30);
        assert_eq!((clock.read(200), clock.read(210)), (250, 255));
    }

    #[test]
    fn a_deadline_is_the_first_moment_at_which_the_clock_shows_it() {
        for rate in [-PPB + 1_000_000, -PPB / 2, -50_000, 0, 50_000, 3 * PPB] {
            let mut clock = Clock::TRUE;
            clock.set(7, Some(rate), -5);
            for reading in [0, 7, 8, 1_000, 12_345] {
                let when = clock.when(9, reading);
                assert!(clock.read(when) >= reading);
                assert!(when == 9 || clock.read(when - 1) < reading, "{rate} {reading}");
            }
        }
    }
}
