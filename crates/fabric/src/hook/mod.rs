//! Hooks wrap any endpoint: they see its verbs and never change a protocol.
//!
//! A hook implements [`Hook`] and overrides what it cares for; everything else goes on to the
//! endpoint inside. The blanket implementations below make every hook an endpoint with the
//! abilities of the one inside, so hooks nest.
//!
//! A hook keeps the contract of the seam, except for the faults it is there to cause. It never
//! reads a clock, draws chance from elsewhere or blocks. Counting is the one that many need; what a
//! judge watches and what a storm strikes they wrap themselves.
//!
//! ```
//! use farlock_fabric::hook::{Counted, Hook};
//! use farlock_fabric::{Addr, Endpoint};
//!
//! /// How many atomics an increment costs.
//! async fn cost<E: Endpoint>(endpoint: &Counted<E>, word: Addr) -> u64 {
//!     let before = endpoint.counts();
//!     let _ = endpoint.faa64(word, 1).await;
//!     (endpoint.counts() - before).atomics
//! }
//! # fn main() {}
//! ```

mod count;

pub use count::{Counted, Counts};

use std::task::{Context, Poll};

use crate::addr::{Addr, EndpointId, Slot};
use crate::endpoint::{
    Endpoint, Envelope, LinkDone, MaskedAtomics, Nanos, Park, Posted, SyncedClock, Ticket, Wait,
    WaitState, WideAtomics, Woken,
};
use crate::error::Fault;
use crate::verb::{Link, Verb};

/// An endpoint around another one. Every method but [`Hook::inner`] goes on to the endpoint inside
/// unless it is overridden; each stands for the method of [`Endpoint`] with its name.
///
/// Import this trait where a hook is written, [`Endpoint`] where one is used: their methods share
/// their names.
#[expect(missing_docs, reason = "each method is documented under its name in Endpoint")]
pub trait Hook: 'static {
    /// The kind of endpoint inside.
    type Inner: Endpoint;

    const COMPLETES_IN_POST: bool = <Self::Inner as Endpoint>::COMPLETES_IN_POST;

    /// The endpoint inside.
    fn inner(&self) -> &Self::Inner;

    #[inline(always)]
    fn post(&self, verb: Verb<'_>) -> Posted {
        self.inner().post(verb)
    }

    #[inline(always)]
    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        self.inner().post_chain(chain)
    }

    #[inline(always)]
    fn poll_posted(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.inner().poll_posted(ticket, cx)
    }

    #[inline(always)]
    fn abandon(&self, ticket: Ticket) {
        self.inner().abandon(ticket);
    }

    #[inline(always)]
    fn old(&self) -> u128 {
        self.inner().old()
    }

    #[inline(always)]
    fn link(&self, index: usize) -> LinkDone {
        self.inner().link(index)
    }

    #[inline(always)]
    fn copy_read(&self, index: usize, into: &mut [u64]) -> usize {
        self.inner().copy_read(index, into)
    }

    #[inline(always)]
    fn receive(&self, slot: Slot) -> Option<Envelope> {
        self.inner().receive(slot)
    }

    #[inline(always)]
    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        self.inner().poll_wait(wait, state, cx)
    }

    #[inline(always)]
    fn end_wait(&self, state: &mut WaitState) {
        self.inner().end_wait(state);
    }

    #[inline(always)]
    fn publish(&self, slot: Slot, word: usize, value: u64) {
        self.inner().publish(slot, word, value);
    }

    #[inline(always)]
    fn is_alive(&self, id: EndpointId) -> bool {
        self.inner().is_alive(id)
    }

    #[inline(always)]
    fn revoke(&self, peer: EndpointId) -> Result<(), Fault> {
        self.inner().revoke(peer)
    }

    #[inline(always)]
    #[track_caller]
    fn checkpoint(&self, survivors: &[u64]) {
        self.inner().checkpoint(survivors);
    }
}

impl<H: Hook> Endpoint for H {
    const COMPLETES_IN_POST: bool = <H as Hook>::COMPLETES_IN_POST;
    const WATCHES_MEMORY: bool = H::Inner::WATCHES_MEMORY;
    const LOOKS_AROUND_CHEAPLY: bool = H::Inner::LOOKS_AROUND_CHEAPLY;
    const SHARES_PROCESSORS: bool = H::Inner::SHARES_PROCESSORS;

    #[inline(always)]
    fn id(&self) -> EndpointId {
        self.inner().id()
    }

    #[inline(always)]
    fn slots(&self) -> u8 {
        self.inner().slots()
    }

    #[inline(always)]
    fn post(&self, verb: Verb<'_>) -> Posted {
        Hook::post(self, verb)
    }

    #[inline(always)]
    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        Hook::post_chain(self, chain)
    }

    #[inline(always)]
    fn poll_posted(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Hook::poll_posted(self, ticket, cx)
    }

    #[inline(always)]
    fn abandon(&self, ticket: Ticket) {
        Hook::abandon(self, ticket);
    }

    #[inline(always)]
    fn old(&self) -> u128 {
        Hook::old(self)
    }

    #[inline(always)]
    fn link(&self, index: usize) -> LinkDone {
        Hook::link(self, index)
    }

    #[inline(always)]
    fn copy_read(&self, index: usize, into: &mut [u64]) -> usize {
        Hook::copy_read(self, index, into)
    }

    #[inline(always)]
    fn has_unread(&self, slot: Slot) -> bool {
        self.inner().has_unread(slot)
    }

    fn receive(&self, slot: Slot) -> Option<Envelope> {
        Hook::receive(self, slot)
    }

    #[inline(always)]
    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        Hook::poll_wait(self, wait, state, cx)
    }

    #[inline(always)]
    fn end_wait(&self, state: &mut WaitState) {
        Hook::end_wait(self, state);
    }

    #[inline(always)]
    fn now(&self) -> Nanos {
        self.inner().now()
    }

    #[inline(always)]
    fn random(&self) -> u64 {
        self.inner().random()
    }

    #[inline(always)]
    fn publish(&self, slot: Slot, word: usize, value: u64) {
        Hook::publish(self, slot, word, value);
    }

    #[inline(always)]
    fn record(&self, index: u16, slot: Slot) -> Addr {
        self.inner().record(index, slot)
    }

    #[inline(always)]
    fn endpoints(&self) -> u16 {
        self.inner().endpoints()
    }

    #[inline(always)]
    fn occupied_from(&self, index: u16) -> Option<u16> {
        self.inner().occupied_from(index)
    }

    #[inline(always)]
    fn occupant(&self, index: u16) -> Option<EndpointId> {
        self.inner().occupant(index)
    }

    #[inline(always)]
    fn is_alive(&self, id: EndpointId) -> bool {
        Hook::is_alive(self, id)
    }

    #[inline(always)]
    fn revoke(&self, peer: EndpointId) -> Result<(), Fault> {
        Hook::revoke(self, peer)
    }

    #[inline(always)]
    #[track_caller]
    fn checkpoint(&self, survivors: &[u64]) {
        Hook::checkpoint(self, survivors);
    }
}

impl<H: Hook<Inner: MaskedAtomics>> MaskedAtomics for H {}

impl<H: Hook<Inner: WideAtomics>> WideAtomics for H {}

impl<H: Hook<Inner: SyncedClock>> SyncedClock for H {
    #[inline(always)]
    fn clock_error(&self) -> Nanos {
        self.inner().clock_error()
    }
}

impl<H: Hook<Inner: Park>> Park for H {
    #[inline(always)]
    fn park(&self) {
        self.inner().park();
    }
}
