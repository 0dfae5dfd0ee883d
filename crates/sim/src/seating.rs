//! Endpoints come, are heard of, crash, and are announced dead.

use std::collections::VecDeque;

use farlock_fabric::endpoint::RECORD_WORDS;
use farlock_fabric::{Addr, EndpointId, Nanos, Slot};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::core::Core;
use crate::fault::Outcome;
use crate::flight::Due;
use crate::history::Fate;
use crate::memory::RECORDS;
use crate::oracle::Choice;
use crate::queue::Event;
use crate::seat::{Clock, Life, Seat};

impl Core {
    #[inline]
    pub(crate) fn seat(&self, id: EndpointId) -> &Seat {
        &self.seats[usize::from(id.index)]
    }

    #[inline]
    pub(crate) fn seat_mut(&mut self, id: EndpointId) -> &mut Seat {
        &mut self.seats[usize::from(id.index)]
    }

    /// Where the record of a slot lies.
    #[inline]
    pub(crate) fn record(&self, index: u16, slot: Slot) -> Addr {
        let place = u64::from(index) * u64::from(self.slots) + u64::from(slot.0);
        Addr::new(RECORDS, place * RECORD_WORDS as u64 * 8)
    }

    /// An endpoint stores a word of a slot's record.
    pub(crate) fn publish(&mut self, id: EndpointId, slot: Slot, word: usize, value: u64) {
        let seat = self.seat(id);
        if !seat.is_acting(id) || seat.revoked || self.is_stale(seat) {
            return;
        }
        self.show(id);
        let addr = self.record(id.index, slot).plus(word as u64 * 8);
        let place = self.memory.place(addr, 1, 8).expect("every slot has a record");
        *self.memory.word(place, 0) = value;
        self.history.note(self.now, addr.bits() ^ value);
        self.changed(addr);
    }

    /// A new endpoint in this seat, whose occupant is dead or never was.
    pub(crate) fn seat_endpoint(&mut self, index: u16) -> EndpointId {
        let place = usize::from(index);
        assert!(self.seats[place].life == Life::Dead, "somebody sits there");
        // Messages of the dead that wait for older ones must not wait for ever.
        for flight in std::mem::take(&mut self.seats[place].sends) {
            if matches!(self.flights.cargo(flight).due, Due::Behind(_)) {
                self.flights.cargo_mut(flight).due = Due::Scheduled;
                self.push(self.now, Event::Serve(flight));
            }
        }
        let incarnation = self.seats[place].id.incarnation.checked_add(1);
        let incarnation = incarnation.expect("a seat has at most 65,535 occupants");
        self.stamp += 1;
        let seed = self.seed ^ (u64::from(incarnation) << 16 | u64::from(index)).rotate_left(32);
        self.seats[place] = Seat {
            id: EndpointId { index, incarnation },
            life: Life::Alive,
            stamp: self.stamp,
            knows: self.shown,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            clock: self.new_clock(),
            mailboxes: (0..self.slots).map(|_| VecDeque::new()).collect(),
            ..Seat::vacant(index)
        };
        self.occupied = self.occupied.max(index);
        self.crowding_ns = self.nic.crowding_ns(self.occupied);
        self.seats[place].id
    }

    /// An endpoint is about to change something that others can see.
    #[inline]
    pub(crate) fn show(&mut self, id: EndpointId) {
        let next = self.shown + 1;
        let seat = self.seat_mut(id);
        if seat.shown == 0 && seat.id == id {
            (seat.shown, self.shown) = (next, next);
        }
    }

    /// Whether `observer` has been told that this endpoint came.
    pub(crate) fn knows(&self, observer: EndpointId, newcomer: EndpointId) -> bool {
        let shown = self.seat(newcomer).shown;
        observer == newcomer
            || !self.weakness.arrivals_late
            || (1..=self.seat(observer).knows).contains(&shown)
    }

    fn new_clock(&mut self) -> Clock {
        let drift_ppb = u64::from(self.weakness.drift_ppb);
        if drift_ppb == 0 || self.weakness.clock_error_ns == 0 {
            return Clock::TRUE;
        }
        // Two clocks may go apart with half the drift each.
        let half = drift_ppb.div_ceil(2);
        let turn_ns = (self.weakness.clock_error_ns.saturating_mul(1_000_000_000) / half).max(1);
        let phase = u64::from(self.oracle.pick(Choice::Clock, 1 << 16));
        Clock::drifting(half, turn_ns, ((2 * turn_ns) >> 16) * phase)
    }

    /// The endpoint does nothing from now on. Returns whether it did until now.
    pub(crate) fn crash(&mut self, id: EndpointId, outcome: Option<Outcome>) -> bool {
        if !self.seat(id).is_acting(id) {
            return false;
        }
        self.seat_mut(id).life = Life::Crashed;
        self.unburied.push(id);
        self.disturbed = true;
        self.history.note(self.now, id.bits());
        self.history.tell(id, Fate::Dies);
        let (least, most) = (self.weakness.detection_ns_min, self.weakness.detection_ns_max);
        let more = self.oracle.pick(Choice::Detection, most.saturating_sub(least) + 1);
        let known = self.now + u64::from(least) + u64::from(more);
        for head in self.flights.heads() {
            if self.flights.at(head).owner == id {
                self.strand(head, outcome, known);
            }
        }
        self.push(known, Event::Announce(id.bits() as u32));
        true
    }

    /// Decides what becomes of a chain whose endpoint crashed.
    fn strand(&mut self, head: u32, outcome: Option<Outcome>, known: Nanos) {
        let flight = self.flights.at_mut(head);
        let owner = flight.owner;
        flight.chain.abandoned = true;
        if flight.chain.done {
            self.flights.remove(head);
            return;
        }
        let outcome = outcome
            .unwrap_or_else(|| Outcome::ALL[self.oracle.pick(Choice::CrashOutcome, 3) as usize]);
        self.history.tell(owner, Fate::Strands(outcome));
        match outcome {
            Outcome::Executed => {}
            Outcome::Late => {
                let longest = u32::try_from(known - self.now).unwrap_or(u32::MAX).max(1);
                flight.chain.hold_ns = self.oracle.pick(Choice::CrashOutcome, longest);
            }
            Outcome::Never => self.cancel(head),
        }
    }

    /// The endpoint's death becomes known: from now on none of its verbs takes effect.
    pub(crate) fn announce(&mut self, id: EndpointId) {
        let seat = self.seat_mut(id);
        if seat.id != id || seat.life == Life::Dead {
            return;
        }
        seat.life = Life::Dead;
        seat.mailboxes.iter_mut().for_each(VecDeque::clear);
        self.history.note(self.now, id.bits() << 32);
        self.history.tell(id, Fate::IsKnownDead);
        self.wake_watchers_of(id);
    }
}
