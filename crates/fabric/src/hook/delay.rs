//! Delaying verbs: each waits a while before it is posted.
//!
//! A delayed verb lies here with a copy of its data until its time has come, so a delayed endpoint
//! is never "now", whatever the one inside is. Time passes only through waits of the endpoint
//! inside. Verbs are posted in the order in which the protocol posted them: a long delay holds up
//! what comes after it, as a slow link does. Every poll of a completion or of a wait posts what is
//! due; a completion that is abandoned is posted at once, for its verb takes effect all the same.
//!
//! Verbs that are still delayed when the endpoint is dropped are never posted, like those of a
//! client that dies.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Poll};

use super::owned::OwnedPost;
use super::{Hook, Stream};
use crate::endpoint::{
    Endpoint, LinkDone, Nanos, Patience, Posted, Ticket, Wait, WaitState, Woken,
};
use crate::error::Fault;
use crate::verb::{Link, Verb};

/// How long a verb waits before it is posted. A chain waits as one, for its longest verb.
pub enum Delay {
    /// Every verb waits so many nanoseconds.
    Fixed(Nanos),
    /// Uniformly between `least` and `most` nanoseconds, both possible, from a stream of its own.
    Uniform {
        /// The shortest delay.
        least: Nanos,
        /// The longest delay, at least `least`.
        most: Nanos,
        /// Where the stream begins.
        seed: u64,
    },
    /// What this rule says, in nanoseconds; 0 posts at once.
    Rule(Box<dyn FnMut(&Verb<'_>) -> Nanos>),
}

impl fmt::Debug for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(delay) => write!(f, "{delay} ns"),
            Self::Uniform { least, most, seed } => {
                write!(f, "{least} to {most} ns, seed {seed:#x}")
            }
            Self::Rule(_) => f.write_str("by a rule"),
        }
    }
}

/// An endpoint whose verbs are posted late.
#[derive(Debug)]
pub struct Delayed<E: Endpoint> {
    inner: E,
    delay: RefCell<(Delay, Stream)>,
    queue: RefCell<VecDeque<Entry>>,
    /// The wait for the first entry that is not posted yet.
    head: Cell<WaitState>,
    tickets: Cell<u64>,
    /// What the last completion left behind, where the endpoint inside has moved on since.
    last: RefCell<Option<Kept>>,
}

#[derive(Debug)]
struct Entry {
    ticket: Ticket,
    /// When it is to be posted, by the inner clock.
    due: Nanos,
    post: OwnedPost,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Its delay is not over.
    Held,
    /// On its way inside.
    Flying(Ticket),
    /// Completed inside before it was asked for.
    Done(Kept),
}

/// A completion whose poll comes after others have completed.
#[derive(Debug)]
struct Kept {
    result: Result<(), Fault>,
    old: u128,
    links: Vec<LinkDone>,
    reads: Vec<Vec<u64>>,
}

impl Kept {
    /// Copies what the last completion of `inner` left, which was `post`'s.
    fn new<E: Endpoint>(inner: &E, post: &OwnedPost, result: Result<(), Fault>) -> Self {
        let reads = (0..post.readers()).map(|index| {
            let mut words = vec![0; post.read_words(index)];
            let copied = inner.copy_read(index, &mut words);
            words.truncate(copied);
            words
        });
        Self {
            result,
            old: inner.old(),
            links: (0..post.links()).map(|index| inner.link(index)).collect(),
            reads: reads.collect(),
        }
    }
}

impl<E: Endpoint> Delayed<E> {
    /// Delays every verb of `inner`.
    ///
    /// # Panics
    /// If the longest delay is shorter than the shortest.
    pub fn new(inner: E, delay: Delay) -> Self {
        let seed = match &delay {
            Delay::Uniform { least, most, seed } => {
                assert!(least <= most, "a range of delays begins with its least");
                *seed
            }
            Delay::Fixed(_) | Delay::Rule(_) => 0,
        };
        Self {
            inner,
            delay: RefCell::new((delay, Stream(seed))),
            queue: RefCell::default(),
            head: Cell::default(),
            tickets: Cell::new(0),
            last: RefCell::new(None),
        }
    }

    /// How many verbs and chains have not been posted yet.
    pub fn held(&self) -> usize {
        self.queue.borrow().iter().filter(|entry| matches!(entry.phase, Phase::Held)).count()
    }

    fn draw(&self, verb: &Verb<'_>) -> Nanos {
        let (delay, stream) = &mut *self.delay.borrow_mut();
        match delay {
            Delay::Fixed(delay) => *delay,
            Delay::Uniform { least, most, .. } => {
                *least + stream.below((*most - *least).saturating_add(1))
            }
            Delay::Rule(rule) => rule(verb),
        }
    }

    fn hold(&self, delay: Nanos, post: impl FnOnce() -> OwnedPost) -> Posted {
        let mut queue = self.queue.borrow_mut();
        let ticket = Ticket(self.tickets.replace(self.tickets.get() + 1));
        let due = self.inner.now().saturating_add(delay);
        queue.push_back(Entry { ticket, due, post: post(), phase: Phase::Held });
        Posted::Pending(ticket)
    }

    /// Posts what is due, in order, and waits for what is next.
    fn advance(&self, cx: &mut Context<'_>) {
        let mut queue = self.queue.borrow_mut();
        for entry in queue.iter_mut().filter(|entry| matches!(entry.phase, Phase::Held)) {
            while entry.due > self.inner.now() {
                let wait = Wait {
                    interval: Some(entry.due - self.inner.now()),
                    patience: Patience::PARK,
                    ..Wait::default()
                };
                let mut state = self.head.get();
                let polled = self.inner.poll_wait(&wait, &mut state, cx);
                self.head.set(if polled.is_ready() { WaitState::default() } else { state });
                if polled.is_pending() {
                    return;
                }
            }
            self.end_head();
            self.post_entry(entry);
        }
    }

    /// Nobody waits for the first held entry any more.
    fn end_head(&self) {
        let mut state = self.head.take();
        if state.begun {
            self.inner.end_wait(&mut state);
        }
    }

    fn post_entry(&self, entry: &mut Entry) {
        entry.phase = match entry.post.post_to(&self.inner) {
            Posted::Pending(ticket) => Phase::Flying(ticket),
            Posted::Done(result) => Phase::Done(Kept::new(&self.inner, &entry.post, result)),
        };
    }
}

impl<E: Endpoint> Hook for Delayed<E> {
    type Inner = E;

    const NOW: bool = false;

    fn inner(&self) -> &E {
        &self.inner
    }

    fn post(&self, verb: Verb<'_>) -> Posted {
        self.hold(self.draw(&verb), || OwnedPost::verb(verb))
    }

    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        let delay = chain.iter().map(|link| self.draw(&link.verb)).max().unwrap_or(0);
        self.hold(delay, || OwnedPost::chain(chain))
    }

    fn poll_posted(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.advance(cx);
        let mut queue = self.queue.borrow_mut();
        let at = queue
            .iter()
            .position(|entry| entry.ticket == ticket)
            .expect("a ticket is in the queue until it is spent or abandoned");
        match queue[at].phase {
            Phase::Held => return Poll::Pending,
            Phase::Flying(inside) => {
                let polled = self.inner.poll_posted(inside, cx);
                if let Poll::Ready(result) = polled {
                    queue.remove(at);
                    self.last.replace(None);
                    return Poll::Ready(result);
                }
                return Poll::Pending;
            }
            Phase::Done(_) => {}
        }
        let Some(Entry { phase: Phase::Done(kept), .. }) = queue.remove(at) else {
            unreachable!("the entry was looked at above");
        };
        let result = kept.result;
        self.last.replace(Some(kept));
        Poll::Ready(result)
    }

    fn abandon(&self, ticket: Ticket) {
        let mut queue = self.queue.borrow_mut();
        let Some(at) = queue.iter().position(|entry| entry.ticket == ticket) else {
            return;
        };
        for entry in queue.range_mut(..=at) {
            if matches!(entry.phase, Phase::Held) {
                self.end_head();
                self.post_entry(entry);
            }
        }
        if let Some(Entry { phase: Phase::Flying(inside), .. }) = queue.remove(at) {
            self.inner.abandon(inside);
        }
    }

    fn old(&self) -> u128 {
        match &*self.last.borrow() {
            Some(kept) => kept.old,
            None => self.inner.old(),
        }
    }

    fn link(&self, index: usize) -> LinkDone {
        match &*self.last.borrow() {
            Some(kept) => kept.links[index],
            None => self.inner.link(index),
        }
    }

    fn copy_read(&self, index: usize, into: &mut [u64]) -> usize {
        match &*self.last.borrow() {
            Some(kept) => {
                let words = &kept.reads[index];
                let copied = words.len().min(into.len());
                into[..copied].copy_from_slice(&words[..copied]);
                copied
            }
            None => self.inner.copy_read(index, into),
        }
    }

    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        self.advance(cx);
        self.inner.poll_wait(wait, state, cx)
    }
}

impl<E: Endpoint> Drop for Delayed<E> {
    fn drop(&mut self) {
        self.end_head();
    }
}

#[cfg(test)]
mod tests {
    use super::{Delay, Delayed};
    use crate::endpoint::{Endpoint, block_on};
    use crate::model::World;
    use crate::verb::Verb;

    #[test]
    fn a_verb_takes_effect_when_its_delay_is_over() {
        let world = World::new();
        let e = Delayed::new(world.endpoint(), Delay::Fixed(100));
        let word = world.scratch(64);
        block_on(&e, async {
            let posted = e.faa64(word, 1);
            assert_eq!((e.held(), world.load(word)), (1, 0));
            let before = e.now();
            posted.await.unwrap();
            assert_eq!((e.now() - before, e.old(), world.load(word)), (100, 0, 1));
        });
    }

    #[test]
    fn verbs_are_posted_in_order_and_each_keeps_its_own_result() {
        let world = World::new();
        let rule = |verb: &Verb<'_>| if verb.is_atomic() { 50 } else { 0 };
        let e = Delayed::new(world.endpoint(), Delay::Rule(Box::new(rule)));
        let word = world.scratch(64);
        block_on(&e, async {
            let first = e.faa64(word, 1);
            let second = e.verb(Verb::Write { addr: word, data: &[9] });
            let third = e.read64(word);
            third.await.unwrap();
            assert_eq!(e.old(), 9, "the read follows the write");
            first.await.unwrap();
            assert_eq!(e.old(), 0, "the atomic came first, though asked for last");
            second.await.unwrap();
        });
    }

    #[test]
    fn an_abandoned_verb_takes_effect_with_all_before_it() {
        let world = World::new();
        let delay = Delay::Uniform { least: 10, most: 1000, seed: 7 };
        let e = Delayed::new(world.endpoint(), delay);
        let word = world.scratch(64);
        let first = e.faa64(word, 1);
        drop(e.faa64(word, 2));
        assert_eq!((world.load(word), e.held()), (3, 0));
        block_on(&e, async { first.await.unwrap() });
    }

    #[test]
    fn the_same_seed_gives_the_same_delays() {
        let times = |seed| {
            let world = World::new();
            let delay = Delay::Uniform { least: 1, most: 1_000_000, seed };
            let e = Delayed::new(world.endpoint(), delay);
            let word = world.scratch(64);
            block_on(&e, async {
                let mut times = Vec::new();
                for _ in 0..8 {
                    e.faa64(word, 1).await.unwrap();
                    times.push(e.now());
                }
                times
            })
        };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }
}
