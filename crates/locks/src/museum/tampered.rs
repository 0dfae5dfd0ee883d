//! An endpoint between a sound protocol and its fabric that makes one mistake.
//!
//! So a planted bug is a few lines beside the protocol's own text, not a copy of it: what a wrong
//! protocol would have posted, published, overlooked or believed.

use std::fmt;
use std::task::{Context, Poll};

use farlock_fabric::hook::Hook;
use farlock_fabric::{
    Endpoint, EndpointId, Envelope, Fault, HoldBack, Link, LinkDone, Message, Nanos, Posted, Slot,
    Ticket, Verb, Wait, WaitState, Woken,
};

/// A mistake. Each method is a place where it can be made; what is not overridden is right.
pub trait Flaw: fmt::Debug {
    /// The verb that is posted instead; `None`: no verb, and the protocol believes that there was.
    fn posts<'v>(&self, verb: Verb<'v>) -> Option<Verb<'v>> {
        Some(verb)
    }

    /// The chain that is posted instead; `None`: the one that it is.
    fn chains<'v>(&self, chain: &[Link<'v>]) -> Option<Vec<Link<'v>>> {
        let _ = chain;
        None
    }

    /// Whether this verb is posted twice, the first time without waiting for it.
    fn doubles(&self, verb: &Verb<'_>) -> bool {
        let _ = verb;
        false
    }

    /// What the protocol believes that the last verb found.
    fn finds(&self, old: u128) -> u128 {
        old
    }

    /// What the protocol believes that a link of the last chain found.
    fn links(&self, index: usize, old: u128) -> u128 {
        let _ = index;
        old
    }

    /// What the protocol believes that a slot record says.
    fn copies(&self, words: &mut [u64]) {
        let _ = words;
    }

    /// What the protocol believes that a message to this slot says; `None`: it overlooks it.
    fn receives(&self, slot: Slot, message: Message) -> Option<Message> {
        let _ = slot;
        Some(message)
    }

    /// Whether this word of a slot's record is published at all.
    fn publishes(&self, slot: Slot, word: usize, value: u64) -> bool {
        let _ = (slot, word, value);
        true
    }

    /// What the protocol believes that became of a verb.
    fn completes(&self, became: Result<(), Fault>) -> Result<(), Fault> {
        became
    }

    /// Whether the protocol believes that a peer lives.
    fn believes_alive(&self, alive: bool) -> bool {
        alive
    }

    /// What the protocol believes that its clock shows.
    fn tells_time(&self, now: Nanos) -> Nanos {
        now
    }

    /// What is waited for instead.
    fn waits<'w>(&self, wait: Wait<'w>) -> Wait<'w> {
        wait
    }
}

/// An endpoint with a flaw. One type for all flaws: a lock is compiled once, not once for each.
#[derive(Debug)]
pub struct Tampered<E> {
    inner: E,
    flaw: Box<dyn Flaw>,
}

impl<E> Tampered<E> {
    /// This endpoint, with a flaw of this kind.
    pub fn with<F: Flaw + Default + 'static>(inner: E) -> Self {
        Self { inner, flaw: Box::new(F::default()) }
    }
}

impl<E: Endpoint> Tampered<E> {
    fn posted(&self, verb: Verb<'_>, post: impl FnOnce(Verb<'_>) -> Posted) -> Posted {
        let Some(verb) = self.flaw.posts(verb) else { return Posted::Done(Ok(())) };
        if self.flaw.doubles(&verb)
            && let Posted::Pending(ticket) = self.inner.post(verb)
        {
            self.inner.abandon(ticket);
        }
        match post(verb) {
            Posted::Done(became) => Posted::Done(self.flaw.completes(became)),
            pending => pending,
        }
    }
}

impl<E: Endpoint> Hook for Tampered<E> {
    type Inner = E;

    fn inner(&self) -> &E {
        &self.inner
    }

    fn post(&self, verb: Verb<'_>) -> Posted {
        self.posted(verb, |verb| self.inner.post(verb))
    }

    fn post_patiently(&self, verb: Verb<'_>, hold: HoldBack) -> Posted {
        self.posted(verb, |verb| self.inner.post_patiently(verb, hold))
    }

    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        let changed = self.flaw.chains(chain);
        let chain = changed.as_deref().unwrap_or(chain);
        for link in chain.iter().filter(|link| self.flaw.doubles(&link.verb)) {
            if let Posted::Pending(ticket) = self.inner.post(link.verb) {
                self.inner.abandon(ticket);
            }
        }
        self.inner.post_chain(chain)
    }

    fn link(&self, index: usize) -> LinkDone {
        let done = self.inner.link(index);
        LinkDone { old: self.flaw.links(index, done.old), ..done }
    }

    fn poll_posted(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.inner.poll_posted(ticket, cx).map(|became| self.flaw.completes(became))
    }

    fn old(&self) -> u128 {
        self.flaw.finds(self.inner.old())
    }

    fn copy_read(&self, index: usize, into: &mut [u64]) -> usize {
        let words = self.inner.copy_read(index, into);
        self.flaw.copies(&mut into[..words]);
        words
    }

    fn receive(&self, slot: Slot) -> Option<Envelope> {
        loop {
            let mut envelope = self.inner.receive(slot)?;
            if let Some(message) = self.flaw.receives(slot, envelope.message) {
                envelope.message = message;
                return Some(envelope);
            }
        }
    }

    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        self.inner.poll_wait(&self.flaw.waits(*wait), state, cx)
    }

    fn now(&self) -> Nanos {
        self.flaw.tells_time(self.inner.now())
    }

    fn publish(&self, slot: Slot, word: usize, value: u64) {
        if self.flaw.publishes(slot, word, value) {
            self.inner.publish(slot, word, value);
        }
    }

    fn is_alive(&self, id: EndpointId) -> bool {
        self.flaw.believes_alive(self.inner.is_alive(id))
    }
}
