//! Endpoints of a simulated world: the fabric's contract, and no more than the contract.

use std::rc::Rc;
use std::task::{Context, Poll};

use farlock_fabric::endpoint::RECORD_WORDS;
use farlock_fabric::{
    Addr, Endpoint, EndpointId, Envelope, Fault, HoldBack, Link, LinkDone, MaskedAtomics, Nanos,
    Posted, Revoke, Slot, SyncedClock, Ticket, Verb, Wait, WaitState, WideAtomics, Woken,
};
use rand_xoshiro::rand_core::Rng;

use crate::history::mix;
use crate::seat::Life;
use crate::shared::Shared;

/// An endpoint of a [`World`](crate::World). Clones are the same endpoint: tasks may share it.
///
/// Dropping it changes nothing; an endpoint dies when it is killed. From that moment nothing it
/// posts is executed, completes or ends.
#[derive(Clone)]
pub struct SimEndpoint {
    shared: Rc<Shared>,
    id: EndpointId,
}

impl SimEndpoint {
    pub(crate) fn new(shared: Rc<Shared>, id: EndpointId) -> Self {
        Self { shared, id }
    }

    /// Whether it has crashed, known or not.
    pub fn has_crashed(&self) -> bool {
        !self.shared.core.borrow().seat(self.id).is_acting(self.id)
    }
}

impl std::fmt::Debug for SimEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimEndpoint({:?})", self.id)
    }
}

impl Endpoint for SimEndpoint {
    const COMPLETES_IN_POST: bool = false;
    const WATCHES_MEMORY: bool = false;
    const LOOKS_AROUND_CHEAPLY: bool = false;
    const SHARES_PROCESSORS: bool = false;

    #[inline]
    fn id(&self) -> EndpointId {
        self.id
    }

    fn slots(&self) -> u8 {
        self.shared.core.borrow().slots
    }

    #[inline]
    fn post(&self, verb: Verb<'_>) -> Posted {
        self.shared.core.borrow_mut().post(self.id, &verb)
    }

    #[inline]
    fn post_patiently(&self, verb: Verb<'_>, hold: HoldBack) -> Posted {
        self.shared.core.borrow_mut().post_patiently(self.id, &verb, hold.otherwise)
    }

    #[inline]
    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        self.shared.core.borrow_mut().post_chain(self.id, chain)
    }

    #[inline]
    fn poll_posted(&self, ticket: Ticket, _: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        match self.shared.core.borrow_mut().outcome(self.id, ticket) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }

    fn abandon(&self, ticket: Ticket) {
        self.shared.core.borrow_mut().abandon(self.id, ticket);
    }

    #[inline]
    fn old(&self) -> u128 {
        self.shared.core.borrow().seat(self.id).last.old
    }

    fn link(&self, index: usize) -> LinkDone {
        self.shared.core.borrow().seat(self.id).last.link(index).done
    }

    fn copy_read(&self, index: usize, into: &mut [u64]) -> usize {
        let core = self.shared.core.borrow();
        let data = &core.seat(self.id).last.link(index).data;
        let words = data.len().min(into.len());
        into[..words].copy_from_slice(&data[..words]);
        words
    }

    #[inline]
    fn receive(&self, slot: Slot) -> Option<Envelope> {
        let mut core = self.shared.core.borrow_mut();
        let seat = core.seat_mut(self.id);
        if !seat.is_acting(self.id) {
            return None;
        }
        let envelope = seat.mailboxes[usize::from(slot.0)].pop_front();
        core.told(envelope.map_or(0, |envelope| {
            let from = envelope.from.bits();
            envelope.message.iter().fold(from, |told, &word| mix(told, word))
        }));
        envelope
    }

    #[inline]
    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        _: &mut Context<'_>,
    ) -> Poll<Woken> {
        match self.shared.core.borrow_mut().poll_wait(self.id, wait, state) {
            Some(woken) => Poll::Ready(woken),
            None => Poll::Pending,
        }
    }

    fn end_wait(&self, state: &mut WaitState) {
        self.shared.core.borrow_mut().end_wait(state);
    }

    #[inline]
    fn now(&self) -> Nanos {
        let mut core = self.shared.core.borrow_mut();
        let reading = core.seat(self.id).clock.read(core.now);
        if core.clocks_decide {
            core.told(reading);
        }
        reading
    }

    #[inline]
    fn random(&self) -> u64 {
        let mut core = self.shared.core.borrow_mut();
        let drawn = core.seat_mut(self.id).rng.next_u64();
        // How long a random wait is may decide something where clocks do.
        if core.clocks_decide {
            core.told(drawn);
        }
        drawn
    }

    #[inline]
    fn publish(&self, slot: Slot, word: usize, value: u64) {
        assert!(word < RECORD_WORDS, "a record has {RECORD_WORDS} words");
        self.shared.core.borrow_mut().publish(self.id, slot, word, value);
    }

    fn record(&self, index: u16, slot: Slot) -> Addr {
        self.shared.core.borrow().record(index, slot)
    }

    fn endpoints(&self) -> u16 {
        (self.shared.core.borrow().seats.len() - 1) as u16
    }

    fn occupant(&self, index: u16) -> Option<EndpointId> {
        let mut core = self.shared.core.borrow_mut();
        let seat = core.seats.get(usize::from(index))?;
        let sits = seat.life != Life::Dead && !core.is_stale(seat);
        let occupant = (sits && core.knows(self.id, seat.id)).then_some(seat.id);
        core.told(occupant.map_or(0, EndpointId::bits));
        occupant
    }

    fn is_alive(&self, id: EndpointId) -> bool {
        let mut core = self.shared.core.borrow_mut();
        let alive = core.is_alive(id) && core.knows(self.id, id);
        core.told(u64::from(alive));
        alive
    }

    #[track_caller]
    fn checkpoint(&self, survivors: &[u64]) {
        self.shared.core.borrow_mut().checkpoint(std::panic::Location::caller(), survivors);
    }
}

impl Revoke for SimEndpoint {
    fn revoke(&self, peer: EndpointId) -> Result<(), Fault> {
        let mut core = self.shared.core.borrow_mut();
        if core.is_alive(peer) {
            core.seat_mut(peer).revoked = true;
            let now = core.now;
            core.history.note(now, peer.bits() << 16);
        }
        Ok(())
    }
}

impl MaskedAtomics for SimEndpoint {}

impl WideAtomics for SimEndpoint {}

impl SyncedClock for SimEndpoint {
    fn clock_error(&self) -> Nanos {
        self.shared.core.borrow().weakness.clock_error_ns
    }
}
