//! Counting verbs: what an acquisition costs, in verbs.
//!
//! Only cells of the endpoint's own thread; a post of a verb whose kind is known to the compiler
//! folds to one increment beside the inner post.

use std::cell::Cell;
use std::ops::{Add, AddAssign, Sub};
use std::task::{Context, Poll};

use super::delegate::Hook;
use crate::addr::Slot;
use crate::endpoint::{Endpoint, Envelope, Posted, Wait, WaitState, Woken};
use crate::verb::{Link, Verb};

/// How many verbs of each kind were posted, whatever became of them. A chain counts as one chain
/// and as each of its verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts<N = u64> {
    /// Compare-and-swaps and fetch-and-adds, masked or not, of 64 and 128 bits.
    pub atomics: N,
    /// Reads of any length.
    pub reads: N,
    /// Writes of any length.
    pub writes: N,
    /// Messages, delivered or not.
    pub sends: N,
    /// Chains.
    pub chains: N,
    /// Doorbells: single verbs and chains. What an operation costs in round trips where it awaits
    /// each.
    pub doorbells: N,
    /// Waits begun.
    pub waits: N,
    /// Messages received.
    pub receipts: N,
}

impl Counts {
    /// All verbs of all kinds.
    pub const fn verbs(&self) -> u64 {
        self.atomics + self.reads + self.writes + self.sends
    }
}

impl<N> Counts<N> {
    fn zip<M>(&self, other: &Self, f: impl Fn(&N, &N) -> M) -> Counts<M> {
        Counts {
            atomics: f(&self.atomics, &other.atomics),
            reads: f(&self.reads, &other.reads),
            writes: f(&self.writes, &other.writes),
            sends: f(&self.sends, &other.sends),
            chains: f(&self.chains, &other.chains),
            doorbells: f(&self.doorbells, &other.doorbells),
            waits: f(&self.waits, &other.waits),
            receipts: f(&self.receipts, &other.receipts),
        }
    }
}

impl Sub for Counts {
    type Output = Self;

    /// What was added since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        self.zip(&earlier, |now, then| now.wrapping_sub(*then))
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(&other, |one, other| one.wrapping_add(*other))
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// An endpoint that counts what is asked of it.
#[derive(Debug, Default)]
pub struct Counted<E> {
    inner: E,
    counts: Counts<Cell<u64>>,
}

impl<E: Endpoint> Counted<E> {
    /// Counts from zero.
    pub fn new(inner: E) -> Self {
        Self { inner, counts: Counts::default() }
    }

    /// The counts so far. Subtract an earlier snapshot for the cost of what lies between.
    #[inline]
    pub fn counts(&self) -> Counts {
        self.counts.zip(&self.counts, |count, _| count.get())
    }

    /// Gives the endpoint inside back.
    pub fn into_inner(self) -> E {
        self.inner
    }

    #[inline(always)]
    fn count(&self, verb: &Verb<'_>) {
        bump(match verb {
            Verb::Read { .. } => &self.counts.reads,
            Verb::Write { .. } => &self.counts.writes,
            Verb::Send { .. } => &self.counts.sends,
            Verb::Cas64 { .. }
            | Verb::Faa64 { .. }
            | Verb::MaskedCas64 { .. }
            | Verb::MaskedFaa64 { .. }
            | Verb::MaskedCas128 { .. }
            | Verb::MaskedFaa128 { .. } => &self.counts.atomics,
        });
    }
}

#[inline(always)]
fn bump(cell: &Cell<u64>) {
    cell.set(cell.get().wrapping_add(1));
}

impl<E: Endpoint> Hook for Counted<E> {
    type Inner = E;

    #[inline(always)]
    fn inner(&self) -> &E {
        &self.inner
    }

    #[inline(always)]
    fn post(&self, verb: Verb<'_>) -> Posted {
        self.count(&verb);
        bump(&self.counts.doorbells);
        self.inner.post(verb)
    }

    #[inline]
    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        for link in chain {
            self.count(&link.verb);
        }
        bump(&self.counts.chains);
        bump(&self.counts.doorbells);
        self.inner.post_chain(chain)
    }

    #[inline(always)]
    fn receive(&self, slot: Slot) -> Option<Envelope> {
        let received = self.inner.receive(slot);
        if received.is_some() {
            bump(&self.counts.receipts);
        }
        received
    }

    #[inline(always)]
    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        if !state.begun {
            bump(&self.counts.waits);
        }
        self.inner.poll_wait(wait, state, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, Counts};
    use crate::addr::{Mailbox, Slot};
    use crate::endpoint::{Endpoint, block_on};
    use crate::model::World;
    use crate::verb::Verb;

    #[test]
    fn every_kind_of_verb_is_counted_in_its_place() {
        let world = World::new();
        let e = Counted::new(world.endpoint());
        let word = world.scratch(64);
        let to = Mailbox { endpoint: e.id(), slot: Slot(0) };
        block_on(&e, async {
            let before = e.counts();
            e.faa64(word, 1).await.unwrap();
            e.cas64(word, 1, 2).await.unwrap();
            e.read64(word).await.unwrap();
            e.send(to, [0; 4]).await.unwrap();
            assert!(e.receive(Slot(0)).is_some() && e.receive(Slot(0)).is_none());
            e.sleep(5).await;
            let spent = e.counts() - before;
            let expected = Counts {
                atomics: 2,
                reads: 1,
                sends: 1,
                doorbells: 4,
                waits: 1,
                receipts: 1,
                ..Counts::default()
            };
            assert_eq!(spent, expected);
            assert_eq!(spent.verbs(), 4);
        });
    }

    #[test]
    fn a_chain_counts_once_and_as_each_of_its_verbs() {
        let world = World::new();
        let e = Counted::new(world.endpoint());
        let addr = world.scratch(64);
        let chain = [Verb::Write { addr, data: &[1] }.into(), Verb::Read { addr, words: 1 }.into()];
        block_on(&e, async { e.chain(&chain).await.unwrap() });
        let expected = Counts { writes: 1, reads: 1, chains: 1, doorbells: 1, ..Counts::default() };
        assert_eq!(e.counts(), expected);
    }
}
