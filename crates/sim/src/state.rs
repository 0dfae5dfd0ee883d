//! The state of an explored world as a number: what an explorer must have seen to turn back.
//!
//! A task's future cannot be looked into. But its code is deterministic, so it is where its answers
//! have led it: what its verbs found, what woke it, which messages it took. Those are hashed as
//! they come. At a checkpoint a loop says what it carries over into its next turn, and what its
//! earlier turns were told is forgotten. This assumes that between two turns of an outer loop each
//! inner loop is entered once, or that the task says in between that it came to another part; a
//! task that has finished has no memory at all.

use std::panic::Location;

use farlock_fabric::{Nanos, Publication};

use crate::config::Mode;
use crate::core::Core;
use crate::flight::{Action, Cargo, Flight, NONE, Tear};
use crate::history::{Kind, mix};
use crate::memory::Memory;
use crate::oracle::Hashed;
use crate::queue::Event;

impl Core {
    /// The task that is being polled is told this.
    #[inline]
    pub(crate) fn told(&mut self, what: u64) {
        if self.mode == Mode::Explored
            && let Some(memory) = self.memories.get_mut(self.current as usize)
        {
            memory.hash = mix(memory.hash, what);
        }
    }

    /// The task that is being polled begins another turn of a loop.
    pub(crate) fn checkpoint(&mut self, place: &'static Location<'static>, survivors: &[u64]) {
        if self.mode == Mode::Explored
            && let Some(memory) = self.memories.get_mut(self.current as usize)
        {
            memory.checkpoint(place, survivors);
        }
    }

    /// The task that is being polled has come to another part of its outermost loop's turn.
    pub(crate) fn another_part(&mut self) {
        if self.mode == Mode::Explored
            && let Some(memory) = self.memories.get_mut(self.current as usize)
        {
            memory.goes_on();
        }
    }

    pub(crate) fn state_hash(&self) -> u64 {
        let world = u64::from(self.crashes_left) << 1 | u64::from(self.disturbed);
        let mut hash = self.memory.hash(mix(self.ghost.get(), world));
        for (task, memory) in self.tasks.iter().zip(&self.memories) {
            hash = mix(hash, if task.live { memory.hash } else { u64::MAX });
        }
        hash = self.nodes.iter().fold(hash, |hash, node| mix(hash, node.incarnation.into()));
        for seat in &self.seats {
            let crash = seat.crash_at.map_or(0, |_| seat.posted + 1);
            let paused = u64::from(seat.paused_until > 0);
            let stale = u64::from(self.is_stale(seat)) << 2;
            let life = (seat.life as u64) << 3 | stale | paused << 1 | u64::from(seat.revoked);
            hash = mix(hash, mix(seat.id.bits(), life ^ crash << 8));
            for (slot, mailbox) in seat.mailboxes.iter().enumerate() {
                for envelope in mailbox {
                    hash = mix(hash, envelope.from.bits() ^ (slot as u64) << 40);
                    hash = envelope.message.iter().fold(hash, |hash, &word| mix(hash, word));
                }
            }
            for &send in &seat.sends {
                hash = mix(hash, self.flight_hash(send));
            }
            for oldest in seat.pairs.oldest() {
                hash = self.held_back_hash(oldest, hash);
            }
        }
        // In which order events became possible decides nothing: a sum does not depend on it.
        let pending = self.pending.iter().chain(&self.later);
        let pending = pending.map(|&(_, event)| self.event_hash(event));
        hash = mix(hash, pending.fold(0, u64::wrapping_add));
        if self.seats.iter().any(|seat| seat.paused_until > 0) {
            hash = mix(hash, self.unasked_hash());
        }
        if self.weakness.arrivals_late {
            hash = mix(hash, self.strangers_hash());
        }
        if self.clocks_decide { mix(hash, self.time_hash()) } else { hash }
    }

    /// Who has not been told of whom. In which order others came decides nothing.
    fn strangers_hash(&self) -> u64 {
        let ids = || self.seats[1..=usize::from(self.occupied)].iter().map(|seat| seat.id);
        let pairs = ids().flat_map(|observer| ids().map(move |newcomer| (observer, newcomer)));
        let strange = pairs.filter(|&(observer, newcomer)| !self.knows(observer, newcomer));
        strange.fold(0, |sum, (observer, newcomer)| {
            sum.wrapping_add(mix(observer.bits(), newcomer.bits()))
        })
    }

    /// What those will be told when they go on who are paused.
    fn unasked_hash(&self) -> u64 {
        let heads = self.flights.heads().into_iter();
        let done = heads.filter(|&head| self.flights.at(head).chain.done);
        let done = done.map(|head| self.found_hash(head));
        let over = self.watches.over().map(|(owner, changed)| mix(owner.bits(), changed.into()));
        done.chain(over).fold(0, u64::wrapping_add)
    }

    /// The time, until when who waits or is paused, and since when additions are on their way.
    fn time_hash(&self) -> u64 {
        // The timer of a wait that has ended is none, and its place may be another wait's.
        let is_timer = |(_, event): &&(Nanos, Event)| match *event {
            Event::Timer(index, generation) => self.is_current(index, generation),
            Event::Elapse(_) => true,
            _ => false,
        };
        let additions = self.pending.iter().filter_map(|&(_, event)| {
            Some(mix(self.event_hash(event), self.addition_posted(event)?))
        });
        let timers = self.pending.iter().chain(&self.later).chain(&self.timers);
        let timers = timers.filter(is_timer).copied();
        let ends = timers.chain(self.watches.patient());
        let ends = ends.map(|(time, event)| mix(self.event_hash(event), time));
        let pauses = self.seats.iter().map(|seat| seat.paused_until);
        let ends = ends.chain(additions).fold(0, u64::wrapping_add);
        pauses.fold(mix(self.now, ends), mix)
    }

    /// What completions will tell that have arrived and wait for earlier ones of their queue pair.
    fn held_back_hash(&self, oldest: u32, mut hash: u64) -> u64 {
        let mut head = oldest;
        while head != NONE {
            let chain = &self.flights.at(head).chain;
            if chain.arrived {
                hash = mix(hash, self.found_hash(head));
            }
            head = chain.behind;
        }
        hash
    }

    fn flight_hash(&self, index: u32) -> u64 {
        flight_hash(self.flights.at(index), self.flights.cargo(index))
    }

    pub(crate) fn event_hash(&self, event: Event) -> u64 {
        let candidate = self.candidate(event);
        let what = u64::from(candidate.owner) << 8 | candidate.kind as u64;
        match event {
            Event::Arrive(flight) => mix(what, 1 ^ self.flight_hash(flight)),
            Event::Turn(flight) => mix(what, 2 ^ self.link_hash(flight)),
            Event::Serve(flight) => mix(what, 3 ^ self.link_hash(flight)),
            Event::Complete(flight) => mix(what, 4 ^ self.found_hash(flight)),
            Event::Timer(watch, _) | Event::Elapse(watch) => {
                mix(what, 5 ^ self.watches.rank(watch) << 8)
            }
            Event::Wake(task) => mix(what, 6 ^ u64::from(task) << 8),
            Event::Reach(packet) => {
                let words = self.outside.packet(packet).words;
                words.into_iter().fold(mix(what, 7), mix)
            }
            Event::Announce(bits) => mix(what, bits.into()),
        }
    }

    /// A link whose turn it is, with what the links of its chain have found so far.
    fn link_hash(&self, index: u32) -> u64 {
        let flight = self.flights.at(index);
        let hash = self.flight_hash(index);
        match flight.head == index && flight.next == NONE {
            true => hash,
            false => mix(hash, self.found_hash(flight.head)),
        }
    }

    /// What the completion of this chain will tell, as far as its links were served.
    fn found_hash(&self, head: u32) -> u64 {
        let (mut index, mut hash) = (head, self.flight_hash(head));
        while index != NONE {
            let flight = self.flights.at(index);
            hash = mix(hash ^ flight.old as u64, (flight.old >> 64) as u64);
            hash = mix(hash, flight.status.is_err().into());
            if matches!(flight.action, Action::Read { .. }) {
                let data = &self.flights.cargo(index).data;
                hash = data.iter().fold(hash, |hash, &word| mix(hash, word));
            }
            index = flight.next;
        }
        hash
    }
}

/// What a verb in flight may still do. Nothing of a verb that no longer takes effect and that
/// nobody waits for.
fn flight_hash(flight: &Flight, cargo: &Cargo) -> u64 {
    let transfers = matches!(flight.kind, Kind::Read | Kind::Write);
    let tear = if transfers { cargo.tear } else { Tear::default() };
    let lost = u64::from(flight.chain.lost) << 2;
    let flags = u64::from(flight.cancelled) | u64::from(flight.chain.abandoned) << 1 | lost;
    // Which words come next, and whether all of them at once.
    let way = u64::from(tear.down) << 1 | u64::from(tear.torn);
    let progress = u64::from(tear.served) << 8 | u64::from(tear.origin) << 24 | way << 62;
    let open = u64::from(flight.chain.unserved) << 40 | u64::from(flight.chain.open_reads) << 52;
    // Whether it has come to its fence, and whether it waits there.
    let fence = u64::from(flight.chain.read) | u64::from(flight.chain.fenced != NONE) << 1;
    let progress = progress ^ open ^ fence << 60;
    let hash = mix(flight.owner.bits() ^ flags << 60, progress ^ flight.kind as u64);
    let hash = mix(hash, flight.addr.bits());
    // What an earlier verb left in the buffer is not this one's.
    let filled = matches!(flight.action, Action::Write) || tear.served > 0;
    let data = if filled { cargo.data.as_slice() } else { &[] };
    let hash = data.iter().fold(hash, |hash, &word| mix(hash, word));
    let otherwise = |said: Publication| mix(hash ^ said.value, u64::from(said.slot.0));
    let hash = flight.otherwise.map_or(hash, otherwise);
    match flight.action {
        Action::Read { words } => mix(hash, u64::from(words)),
        Action::Write => hash,
        Action::Cas64 { compare, swap } => mix(hash ^ compare, swap),
        Action::Faa64 { add } => mix(hash, add),
        Action::MaskedCas64(op) => {
            mix(mix(hash ^ op.compare, op.compare_mask), mix(op.swap, op.swap_mask))
        }
        Action::MaskedFaa64(op) => mix(hash ^ op.add, op.boundary),
        Action::MaskedCas128(op) => [op.compare, op.compare_mask, op.swap, op.swap_mask]
            .iter()
            .fold(hash, |hash, &half| mix(hash ^ half as u64, (half >> 64) as u64)),
        Action::MaskedFaa128(op) => [op.add, op.boundary]
            .iter()
            .fold(hash, |hash, &half| mix(hash ^ half as u64, (half >> 64) as u64)),
        Action::Send { to, message } => {
            message.iter().fold(mix(hash, to.bits()), |hash, &word| mix(hash, word))
        }
    }
}

impl Hashed for Core {
    fn event_hash(&self, index: u32) -> u64 {
        self.event_hash(self.pending[index as usize].1)
    }

    fn state_hash(&self) -> u64 {
        self.state_hash()
    }
}

impl Memory {
    fn hash(&self, seed: u64) -> u64 {
        self.words().fold(seed, mix)
    }
}
