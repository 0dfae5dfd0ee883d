//! Causing faults: verbs that are lost, before or after they take effect, or refused.
//!
//! What goes wrong is data: a list of [`Rule`]s, the first that applies to a verb decides. Chance
//! is drawn from a stream of the hook's own, so the same seed and the same verbs meet the same
//! faults. A fault hits one verb of a chain; those before and after it go on.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::task::{Context, Poll};

use super::owned::OwnedPost;
use super::{Hook, Stream};
use crate::addr::Addr;
use crate::endpoint::{Endpoint, LinkDone, Posted, Ticket};
use crate::error::Fault;
use crate::verb::{CHAIN_MAX, Link, Verb};

/// Which verbs, when among them, and what befalls them.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Which verbs the rule is about.
    pub on: Kind,
    /// Which of those it strikes.
    pub when: When,
    /// What befalls those.
    pub effect: Effect,
}

/// A set of verbs.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// All verbs.
    Any,
    /// The six atomics.
    Atomics,
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Messages.
    Sends,
    /// Verbs whose address lies within `bytes` of `start`.
    Within {
        /// The first address.
        start: Addr,
        /// How far it reaches, in bytes.
        bytes: u64,
    },
    /// Verbs of which this holds.
    Matching(fn(&Verb<'_>) -> bool),
}

impl Kind {
    fn holds(&self, verb: &Verb<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::Atomics => verb.is_atomic(),
            Self::Reads => matches!(verb, Verb::Read { .. }),
            Self::Writes => matches!(verb, Verb::Write { .. }),
            Self::Sends => matches!(verb, Verb::Send { .. }),
            Self::Within { start, bytes } => verb.addr().is_some_and(|addr| {
                addr.region() == start.region()
                    && addr.offset().checked_sub(start.offset()).is_some_and(|far| far < *bytes)
            }),
            Self::Matching(predicate) => predicate(verb),
        }
    }
}

/// Which of a rule's verbs it strikes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Each of them.
    Always,
    /// The n-th alone, counted from 1.
    Nth(u64),
    /// Every n-th; n is at least 1.
    Every(u64),
    /// Each with this probability.
    Chance(Ratio),
}

/// A probability as a ratio of whole numbers, so that it is the same on every machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// So many of ...
    pub of: u32,
    /// ... so many; at least 1.
    pub out_of: u32,
}

impl fmt::Debug for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.of, self.out_of)
    }
}

/// What befalls a verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It never takes effect and ends with [`Fault::Lost`].
    Vanishes,
    /// It takes effect and ends with [`Fault::Lost`].
    Unheard,
    /// It ends with [`Fault::Lost`] and takes effect just before the n-th later post of this
    /// endpoint, n being at least 1; never, where no such post comes.
    Late(u64),
    /// It never takes effect and ends with this fault.
    Refused(Fault),
}

/// An endpoint whose verbs go wrong by rule.
#[derive(Debug)]
pub struct Faulty<E> {
    inner: E,
    rules: Vec<Rule>,
    /// How many verbs each rule was about so far.
    seen: RefCell<Vec<u64>>,
    stream: RefCell<Stream>,
    struck: Cell<u64>,
    late: RefCell<Vec<(u64, OwnedPost)>>,
    flying: RefCell<Vec<(Ticket, Fates)>>,
    last: RefCell<Vec<Fate>>,
}

/// What became of one verb of the protocol's post.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// It went on, as this verb of the inner post.
    Sent(usize),
    /// So it did, but nobody will hear.
    Unheard,
    /// It did not.
    Stopped(Fault),
}

/// What became of what the protocol posted.
#[derive(Debug)]
struct Fates {
    of: Vec<Fate>,
    /// Whether it was a chain.
    chain: bool,
}

impl<E: Endpoint> Faulty<E> {
    /// Applies `rules` to every verb; `seed` begins the stream of chance.
    ///
    /// # Panics
    /// If a rule counts in steps of 0 or divides by 0.
    pub fn new(inner: E, rules: &[Rule], seed: u64) -> Self {
        for rule in rules {
            match rule.when {
                When::Every(n) | When::Nth(n) => assert!(n >= 1, "verbs are counted from 1"),
                When::Chance(ratio) => assert!(ratio.out_of >= 1, "a chance is out of at least 1"),
                When::Always => {}
            }
        }
        Self {
            inner,
            rules: rules.to_vec(),
            seen: RefCell::new(vec![0; rules.len()]),
            stream: RefCell::new(Stream(seed)),
            struck: Cell::new(0),
            late: RefCell::default(),
            flying: RefCell::default(),
            last: RefCell::default(),
        }
    }

    /// How many verbs something befell so far.
    pub fn struck(&self) -> u64 {
        self.struck.get()
    }

    fn effect(&self, verb: &Verb<'_>) -> Option<Effect> {
        let mut seen = self.seen.borrow_mut();
        let mut chosen = None;
        for (rule, seen) in self.rules.iter().zip(seen.iter_mut()) {
            if !rule.on.holds(verb) {
                continue;
            }
            *seen += 1;
            let strikes = match rule.when {
                When::Always => true,
                When::Nth(n) => *seen == n,
                When::Every(n) => seen.is_multiple_of(n),
                When::Chance(Ratio { of, out_of }) => {
                    self.stream.borrow_mut().below(u64::from(out_of)) < u64::from(of)
                }
            };
            if strikes && chosen.is_none() {
                chosen = Some(rule.effect);
            }
        }
        self.struck.set(self.struck.get() + u64::from(chosen.is_some()));
        chosen
    }

    /// Decides about a verb that would be the `place`-th of the inner post.
    fn fate(&self, verb: &Verb<'_>, place: usize) -> Fate {
        match self.effect(verb) {
            None => Fate::Sent(place),
            Some(Effect::Unheard) => Fate::Unheard,
            Some(Effect::Vanishes) => Fate::Stopped(Fault::Lost),
            Some(Effect::Refused(fault)) => Fate::Stopped(fault),
            Some(Effect::Late(posts)) => {
                self.late.borrow_mut().push((posts.max(1), OwnedPost::verb(*verb)));
                Fate::Stopped(Fault::Lost)
            }
        }
    }

    /// One more post: late verbs whose time has come take effect before it.
    fn post_late(&self) {
        self.late.borrow_mut().retain_mut(|(posts, verb)| {
            *posts -= 1;
            if *posts == 0
                && let Posted::Pending(ticket) = verb.post_to(&self.inner)
            {
                self.inner.abandon(ticket);
            }
            *posts > 0
        });
    }

    /// The inner post has completed with `inside`; what the protocol hears of it.
    fn finish(&self, fates: Fates, inside: Result<(), Fault>) -> Result<(), Fault> {
        let first_fault = fates.of.iter().find_map(|fate| match *fate {
            Fate::Sent(place) if fates.chain => self.inner.link(place).status.err(),
            Fate::Sent(_) => inside.err(),
            Fate::Unheard => Some(Fault::Lost),
            Fate::Stopped(fault) => Some(fault),
        });
        self.last.replace(fates.of);
        first_fault.map_or(Ok(()), Err)
    }

    fn settle(&self, fates: Fates, posted: Posted) -> Posted {
        match posted {
            Posted::Done(inside) => Posted::Done(self.finish(fates, inside)),
            Posted::Pending(ticket) => {
                self.flying.borrow_mut().push((ticket, fates));
                posted
            }
        }
    }

    fn land(&self, ticket: Ticket) -> Option<Fates> {
        let mut flying = self.flying.borrow_mut();
        let at = flying.iter().position(|(flying, _)| *flying == ticket)?;
        Some(flying.swap_remove(at).1)
    }
}

impl<E: Endpoint> Hook for Faulty<E> {
    type Inner = E;

    fn inner(&self) -> &E {
        &self.inner
    }

    fn post(&self, verb: Verb<'_>) -> Posted {
        self.post_late();
        let fates = Fates { of: vec![self.fate(&verb, 0)], chain: false };
        if let Fate::Stopped(_) = fates.of[0] {
            return Posted::Done(self.finish(fates, Ok(())));
        }
        self.settle(fates, self.inner.post(verb))
    }

    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        self.post_late();
        if chain.is_empty() || chain.len() > CHAIN_MAX {
            return self.inner.post_chain(chain); // refused as a whole: no verb for a rule to strike
        }
        let mut fates = Fates { of: Vec::with_capacity(chain.len()), chain: true };
        let mut sent = Vec::with_capacity(chain.len());
        for link in chain {
            let fate = self.fate(&link.verb, sent.len());
            fates.of.push(fate);
            if !matches!(fate, Fate::Stopped(_)) {
                sent.push(*link);
            }
        }
        if sent.is_empty() {
            return Posted::Done(self.finish(fates, Ok(())));
        }
        self.settle(fates, self.inner.post_chain(&sent))
    }

    fn poll_posted(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.inner.poll_posted(ticket, cx).map(|inside| match self.land(ticket) {
            Some(fates) => self.finish(fates, inside),
            None => inside,
        })
    }

    fn abandon(&self, ticket: Ticket) {
        let _ = self.land(ticket);
        self.inner.abandon(ticket);
    }

    fn link(&self, index: usize) -> LinkDone {
        match self.last.borrow()[index] {
            Fate::Sent(place) => self.inner.link(place),
            Fate::Unheard => LinkDone { status: Err(Fault::Lost), old: 0 },
            Fate::Stopped(fault) => LinkDone { status: Err(fault), old: 0 },
        }
    }

    fn copy_read(&self, index: usize, into: &mut [u64]) -> usize {
        match self.last.borrow().get(index) {
            Some(Fate::Sent(place)) => self.inner.copy_read(*place, into),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Effect, Faulty, Kind, Ratio, Rule, When};
    use crate::addr::Addr;
    use crate::endpoint::{Endpoint, block_on};
    use crate::error::Fault;
    use crate::hook::{Delay, Delayed};
    use crate::model::{ModelEndpoint, World};
    use crate::verb::Verb;

    fn one(rule: Rule) -> (World, Addr, Faulty<ModelEndpoint>) {
        let world = World::new();
        let word = world.scratch(64);
        let e = Faulty::new(world.endpoint(), &[rule], 1);
        (world, word, e)
    }

    #[test]
    fn a_verb_that_vanishes_never_takes_effect() {
        let rule = Rule { on: Kind::Atomics, when: When::Nth(2), effect: Effect::Vanishes };
        let (world, word, e) = one(rule);
        block_on(&e, async {
            e.faa64(word, 1).await.unwrap();
            e.read64(word).await.unwrap();
            assert_eq!(e.faa64(word, 1).await, Err(Fault::Lost));
            e.faa64(word, 1).await.unwrap();
        });
        assert_eq!((world.load(word), e.struck()), (2, 1));
    }

    #[test]
    fn an_unheard_verb_took_effect() {
        let rule = Rule { on: Kind::Any, when: When::Always, effect: Effect::Unheard };
        let (world, word, e) = one(rule);
        assert_eq!(block_on(&e, async { e.faa64(word, 1).await }), Err(Fault::Lost));
        assert_eq!(world.load(word), 1);
    }

    #[test]
    fn a_late_verb_takes_effect_before_a_later_one() {
        let rule = Rule { on: Kind::Writes, when: When::Nth(1), effect: Effect::Late(2) };
        let (world, word, e) = one(rule);
        block_on(&e, async {
            let write = Verb::Write { addr: word, data: &[7] };
            assert_eq!(e.verb(write).await, Err(Fault::Lost));
            e.faa64(word, 1).await.unwrap();
            assert_eq!(world.load(word), 1, "one post later it is still on its way");
            e.faa64(word, 1).await.unwrap();
            assert_eq!((e.old(), world.load(word)), (7, 8));
        });
    }

    #[test]
    fn a_fault_hits_one_verb_of_a_chain() {
        let within = |start| Kind::Within { start, bytes: 8 };
        let world = World::new();
        let word = world.scratch(64);
        let far = word.plus(8);
        let effect = Effect::Refused(Fault::NoRight);
        let rules = [
            Rule { on: within(far), when: When::Nth(1), effect },
            Rule { on: Kind::Reads, when: When::Always, effect: Effect::Unheard },
        ];
        let e = Faulty::new(Delayed::new(world.endpoint(), Delay::Fixed(5)), &rules, 1);
        let chain = [
            Verb::Write { addr: word, data: &[1] }.into(),
            Verb::Read { addr: word, words: 1 }.into(),
            Verb::Faa64 { addr: far, add: 1 }.into(),
            Verb::Faa64 { addr: word, add: 1 }.into(),
        ];
        block_on(&e, async {
            assert_eq!(e.chain(&chain).await, Err(Fault::Lost), "the first fault of the chain");
            let ends: Vec<_> = (0..4).map(|index| e.link(index).status).collect();
            assert_eq!(ends, [Ok(()), Err(Fault::Lost), Err(Fault::NoRight), Ok(())]);
            assert_eq!((e.link(3).old, e.copy_read(1, &mut [0])), (1, 0));
        });
        assert_eq!((world.load(word), world.load(far)), (2, 0));
    }

    #[test]
    fn chance_strikes_as_often_as_it_says_and_the_same_way_each_time() {
        let strikes = |seed| {
            let world = World::new();
            let word = world.scratch(64);
            let when = When::Chance(Ratio { of: 1, out_of: 4 });
            let rule = Rule { on: Kind::Any, when, effect: Effect::Vanishes };
            let e = Faulty::new(world.endpoint(), &[rule], seed);
            block_on(&e, async {
                let mut lost = Vec::new();
                for n in 0..4000 {
                    if e.faa64(word, 1).await.is_err() {
                        lost.push(n);
                    }
                }
                lost
            })
        };
        assert_eq!(strikes(1), strikes(1));
        assert_ne!(strikes(1), strikes(2));
        assert!((900..1100).contains(&strikes(3).len()));
    }
}
