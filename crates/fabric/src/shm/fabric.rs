//! The contract, kept by an endpoint of shared memory.

use std::task::{Context, Poll};

use super::endpoint::Shm;
use super::keeper::PlaceKeeper;
use super::primitive::{Ordering, boot_time};
use super::region::REGION;
use super::table::Vital;
use crate::addr::{Addr, EndpointId, Slot};
use crate::endpoint::{
    Endpoint, Envelope, LinkDone, MaskedAtomics, Nanos, Posted, SyncedClock, Ticket, Wait,
    WaitState, WideAtomics, Woken,
};
use crate::error::Fault;
use crate::verb::{CHAIN_MAX, Link, Verb};

impl<K: PlaceKeeper> Endpoint for Shm<K> {
    const COMPLETES_IN_POST: bool = true;
    const WATCHES_MEMORY: bool = true;
    const LOOKS_AROUND_CHEAPLY: bool = true;
    const SHARES_PROCESSORS: bool = true;

    #[inline(always)]
    fn id(&self) -> EndpointId {
        self.identity()
    }

    #[inline]
    fn slots(&self) -> u8 {
        self.slots.len() as u8
    }

    #[inline(always)]
    fn post(&self, verb: Verb<'_>) -> Posted {
        Posted::Done(self.execute(verb))
    }

    /// Executes the verbs one after the other: stronger than the contract asks for.
    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        if chain.is_empty() || chain.len() > CHAIN_MAX {
            return Posted::Done(Err(Fault::Unsupported));
        }
        self.results.begin_chain();
        let mut first_fault = Ok(());
        for link in chain {
            let ended = self.execute(link.verb);
            self.results.end_link(ended);
            first_fault = first_fault.and(ended);
        }
        self.results.end_chain();
        Posted::Done(first_fault)
    }

    fn poll_posted(&self, ticket: Ticket, _cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        unreachable!("{ticket:?}: every verb completes within its post");
    }

    fn abandon(&self, ticket: Ticket) {
        unreachable!("{ticket:?}: every verb completes within its post");
    }

    #[inline(always)]
    fn old(&self) -> u128 {
        self.results.old()
    }

    fn link(&self, index: usize) -> LinkDone {
        self.results.link(index)
    }

    fn copy_read(&self, index: usize, into: &mut [u64]) -> usize {
        self.results.copy(index, into)
    }

    #[inline(always)]
    fn has_unread(&self, slot: Slot) -> bool {
        !self.is_mailbox_empty(slot)
    }

    #[inline(always)]
    fn receive(&self, slot: Slot) -> Option<Envelope> {
        if !self.has_mail(slot) {
            return None;
        }
        let (cells, position) = self.mailbox(slot);
        let envelope = cells.take(self.identity().incarnation, position);
        self.advance(slot);
        Some(envelope)
    }

    #[inline]
    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        self.wait_on(wait, state, cx)
    }

    fn end_wait(&self, state: &mut WaitState) {
        self.forget_wait(state);
    }

    #[inline]
    fn now(&self) -> Nanos {
        boot_time()
    }

    /// SplitMix64: small, seeded, good enough for jitter and sampling.
    #[inline]
    fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A plain store: no verb, so no end of a lane waits for it. It changes nothing but this
    /// endpoint's own record. A processor may keep it back until its next locked instruction.
    #[inline(always)]
    fn publish(&self, slot: Slot, word: usize, value: u64) {
        self.own_record(slot)[word].store(value, Ordering::Release);
        self.has_published.set(true);
    }

    #[inline(always)]
    fn show(&self) {
        self.show_before_loads();
    }

    /// # Panics
    /// If there is no such index or slot.
    fn record(&self, index: u16, slot: Slot) -> Addr {
        let offset = self.region.mapping().record_offset(index, slot);
        Addr::new(REGION, offset.expect("an endpoint's index and slot") as u64)
    }

    fn endpoints(&self) -> u16 {
        self.region.mapping().layout().capacity.places()
    }

    fn occupied_from(&self, index: u16) -> Option<u16> {
        self.region.mapping().taken().first_from(index, self.endpoints())
    }

    fn occupant(&self, index: u16) -> Option<EndpointId> {
        self.region.mapping().occupant(index)
    }

    #[inline]
    fn is_alive(&self, id: EndpointId) -> bool {
        self.region.mapping().vital(id) != Vital::Dead
    }
}

impl<K: PlaceKeeper> MaskedAtomics for Shm<K> {}

impl<K: PlaceKeeper> WideAtomics for Shm<K> {}

/// How far the clocks of two processors may lie apart: the kernel uses none that are further.
const CLOCK_ERROR_NS: Nanos = 1_000;

/// All read the boot-time clock of one kernel. In another time namespace it is another clock: there
/// a region must not be opened by users of this ability.
impl<K: PlaceKeeper> SyncedClock for Shm<K> {
    fn clock_error(&self) -> Nanos {
        CLOCK_ERROR_NS
    }
}
