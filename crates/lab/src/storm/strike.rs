//! Strikes: where, at the boundary of a verb, a process is killed or stopped.
//!
//! A strike is data, `kill:after:send:3`, and [`Struck`] is the hook that deals it: it counts what
//! passes through an endpoint and strikes before the third message goes out, or when it has taken
//! effect and its sender does not know. What a strike does is not this module's business.
//!
//! A chain goes out with one doorbell: all its verbs count, and its boundaries are before the first
//! and after the last of them. A death within an instruction of the endpoint is for strikes from
//! outside, at any moment.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::str::FromStr;
use std::task::{Context, Poll};

use anyhow::{Context as _, bail, ensure};
use farlock_fabric::hook::Hook;
use farlock_fabric::verb::Link;
use farlock_fabric::{
    Endpoint, EndpointId, Envelope, Fault, Posted, Slot, Verb, Wait, WaitState, Woken,
};
use rand::{Rng, RngExt};

/// What is done to the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// It is killed.
    Kill,
    /// It is stopped; another process will continue it.
    Stop,
}

/// On which side of the boundary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Nothing of it has happened.
    Before,
    /// It has taken effect, and the client that asked for it has not seen that.
    After,
}

farlock_fabric::listed! {
    /// What a client does at the boundaries.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Moment {
        /// Any of the others.
        Any,
        /// A read.
        Read,
        /// A write.
        Write,
        /// An atomic.
        Atomic,
        /// A message sent.
        Send,
        /// A message taken out of the mailbox; it has no moment before.
        Receive,
        /// A word of the client's own record.
        Publish,
        /// A wait.
        Wait,
        /// Any verb or record between the discovery of a death and the grant.
        Repair,
        /// The time between a grant and its release.
        Hold,
    }
}

impl Moment {
    /// Its name in a strike.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Read => "read",
            Self::Write => "write",
            Self::Atomic => "atomic",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Publish => "publish",
            Self::Wait => "wait",
            Self::Repair => "repair",
            Self::Hold => "hold",
        }
    }

    const fn of(verb: &Verb<'_>) -> Self {
        match verb {
            Verb::Read { .. } => Self::Read,
            Verb::Write { .. } => Self::Write,
            Verb::Send { .. } => Self::Send,
            Verb::Cas64 { .. }
            | Verb::Faa64 { .. }
            | Verb::MaskedCas64 { .. }
            | Verb::MaskedFaa64 { .. }
            | Verb::MaskedCas128 { .. }
            | Verb::MaskedFaa128 { .. } => Self::Atomic,
        }
    }
}

/// A kill or a stop, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Strike {
    /// What is done.
    pub deed: Deed,
    /// On which side.
    pub side: Side,
    /// Of what.
    pub moment: Moment,
    /// Of the how manieth of those, counted from 1 over the life of the process.
    pub nth: u64,
}

impl Strike {
    /// A strike at a moment of chance's choice, its number as likely small as large, up to
    /// 2^`doublings`.
    pub fn draw(deed: Deed, moment: Moment, doublings: u32, chance: &mut impl Rng) -> Self {
        let receives = moment == Moment::Receive;
        let side = if receives || chance.random() { Side::After } else { Side::Before };
        let nth_max = 1 << chance.random_range(0..=doublings);
        let nth = chance.random_range(1..=nth_max);
        Self { deed, side, moment, nth }
    }

    fn is_about(&self, moment: Moment, side: Side, repairing: bool) -> bool {
        self.side == side
            && match self.moment {
                Moment::Any => true,
                Moment::Repair => repairing && moment != Moment::Wait,
                own => own == moment,
            }
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deed = match self.deed {
            Deed::Kill => "kill",
            Deed::Stop => "stop",
        };
        let side = match self.side {
            Side::Before => "before",
            Side::After => "after",
        };
        write!(f, "{deed}:{side}:{}:{}", self.moment.name(), self.nth)
    }
}

impl FromStr for Strike {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = text.split(':').collect();
        let [deed, side, moment, nth] = words[..] else {
            bail!("a strike is DEED:SIDE:MOMENT:NUMBER, not '{text}'");
        };
        let deed = match deed {
            "kill" => Deed::Kill,
            "stop" => Deed::Stop,
            other => bail!("'{other}' is neither kill nor stop"),
        };
        let side = match side {
            "before" => Side::Before,
            "after" => Side::After,
            other => bail!("'{other}' is neither before nor after"),
        };
        let named = Moment::ALL.into_iter().find(|known| known.name() == moment);
        let moment = named.with_context(|| format!("there is no moment called '{moment}'"))?;
        let nth = nth.parse().with_context(|| format!("'{nth}' is no number"))?;
        ensure!(nth >= 1, "moments are counted from 1");
        Ok(Self { deed, side, moment, nth })
    }
}

/// An endpoint at whose verbs its process is struck. Its verbs complete within their post.
pub struct Struck<E> {
    inner: E,
    /// The strikes to come, each with how many of its moments are left.
    strikes: RefCell<Vec<(Strike, u64)>>,
    strike: Box<dyn Fn(Strike)>,
    /// There is a strike to come.
    is_armed: Cell<bool>,
    /// A peer was found dead, and nothing was granted since.
    repairing: Cell<bool>,
}

impl<E: Endpoint> Struck<E> {
    /// `strike` does each strike's deed when its moment has come, once.
    pub fn new(inner: E, strikes: &[Strike], strike: impl Fn(Strike) + 'static) -> Self {
        const { assert!(E::COMPLETES_IN_POST, "the moments of a verb on its way are unknown") };
        let strikes: Vec<_> = strikes.iter().map(|strike| (*strike, strike.nth)).collect();
        let is_armed = Cell::new(!strikes.is_empty());
        let (strikes, strike) = (RefCell::new(strikes), Box::new(strike));
        Self { inner, strikes, strike, is_armed, repairing: Cell::new(false) }
    }

    /// The caller holds a lock while `hold` runs.
    pub fn holding(&self, hold: impl FnOnce()) {
        self.repairing.set(false);
        self.around(Moment::Hold, hold);
    }

    fn around<T>(&self, moment: Moment, act: impl FnOnce() -> T) -> T {
        self.deal(moment, Side::Before);
        let done = act();
        self.deal(moment, Side::After);
        done
    }

    /// Deals the strikes whose time is now.
    fn deal(&self, moment: Moment, side: Side) {
        let repairing = self.repairing.get();
        let mut due = Vec::new();
        self.strikes.borrow_mut().retain_mut(|(strike, left)| {
            *left -= u64::from(strike.is_about(moment, side, repairing));
            if *left == 0 {
                due.push(*strike);
            }
            *left > 0
        });
        self.is_armed.set(!self.strikes.borrow().is_empty());
        due.into_iter().for_each(&self.strike);
    }

    #[cold]
    #[inline(never)]
    fn post_armed(&self, verb: Verb<'_>) -> Posted {
        let posted = self.around(Moment::of(&verb), || self.inner.post(verb));
        self.saw_dead(posted == Posted::Done(Err(Fault::PeerGone)));
        posted
    }

    fn saw_dead(&self, dead: bool) {
        if dead {
            self.repairing.set(true);
        }
    }
}

/// Where no strike is to come nothing is watched, and a verb costs one look more.
impl<E: Endpoint> Hook for Struck<E> {
    type Inner = E;

    fn inner(&self) -> &E {
        &self.inner
    }

    #[inline(always)]
    fn post(&self, verb: Verb<'_>) -> Posted {
        match self.is_armed.get() {
            true => self.post_armed(verb),
            false => self.inner.post(verb),
        }
    }

    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        if !self.is_armed.get() {
            return self.inner.post_chain(chain);
        }
        chain.iter().for_each(|link| self.deal(Moment::of(&link.verb), Side::Before));
        let posted = self.inner.post_chain(chain);
        chain.iter().for_each(|link| self.deal(Moment::of(&link.verb), Side::After));
        posted
    }

    fn receive(&self, slot: Slot) -> Option<Envelope> {
        let received = self.inner.receive(slot);
        if received.is_some() && self.is_armed.get() {
            self.deal(Moment::Receive, Side::After);
        }
        received
    }

    fn poll_wait(
        &self,
        wait: &Wait<'_>,
        state: &mut WaitState,
        cx: &mut Context<'_>,
    ) -> Poll<Woken> {
        if !self.is_armed.get() {
            return self.inner.poll_wait(wait, state, cx);
        }
        if !state.begun {
            self.deal(Moment::Wait, Side::Before);
        }
        let polled = self.inner.poll_wait(wait, state, cx);
        if let Poll::Ready(woken) = polled {
            self.saw_dead(matches!(woken, Woken::PeerGone(_)));
            self.deal(Moment::Wait, Side::After);
        }
        polled
    }

    #[inline(always)]
    fn publish(&self, slot: Slot, word: usize, value: u64) {
        match self.is_armed.get() {
            true => self.around(Moment::Publish, || self.inner.publish(slot, word, value)),
            false => self.inner.publish(slot, word, value),
        }
    }

    fn is_alive(&self, id: EndpointId) -> bool {
        let alive = self.inner.is_alive(id);
        self.saw_dead(!alive);
        alive
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::atomic::Ordering;

    use farlock_fabric::shm::{Options, Region, ShmEndpoint};
    use farlock_fabric::{Addr, Mailbox, Patience, block_on};
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::scratch::Scratch;

    /// An endpoint under these strikes, and each strike that fell with what the first word of the
    /// heap was at that time.
    struct Scene {
        endpoint: Struck<ShmEndpoint>,
        region: Region,
        fell: Rc<RefCell<Vec<(String, u64)>>>,
        _scratch: Scratch,
    }

    impl Scene {
        fn new(strikes: &[&str]) -> Self {
            let scratch = Scratch::new().expect("a test can make a directory");
            let options =
                Options::new(scratch.path().join("region"), scratch.path().join("state"), "strike");
            let region = Region::open(&options).expect("a test can make a region");
            let strikes: Vec<Strike> =
                strikes.iter().map(|strike| strike.parse().expect("a strike")).collect();
            let fell = Rc::new(RefCell::new(Vec::new()));
            let (log, memory) = (Rc::clone(&fell), region.clone());
            let inner = region.endpoint().expect("a place is free");
            let endpoint = Struck::new(inner, &strikes, move |strike| {
                log.borrow_mut()
                    .push((strike.to_string(), memory.words()[0].load(Ordering::SeqCst)));
            });
            Self { endpoint, region, fell, _scratch: scratch }
        }

        fn word(&self) -> Addr {
            self.region.heap().0
        }

        fn count(&self, times: u64) {
            for _ in 0..times {
                block_on(&self.endpoint, self.endpoint.faa64(self.word(), 1)).expect("it is there");
            }
        }

        fn fell(&self) -> Vec<(String, u64)> {
            self.fell.borrow().clone()
        }
    }

    fn fallen(strike: &str, word: u64) -> (String, u64) {
        (strike.to_owned(), word)
    }

    #[test]
    fn a_blow_is_what_its_text_says_and_other_text_is_refused() {
        let chance = &mut Xoshiro256PlusPlus::seed_from_u64(1);
        for moment in Moment::ALL {
            for deed in [Deed::Kill, Deed::Stop] {
                let strike = Strike::draw(deed, moment, 9, chance);
                assert_eq!(strike.to_string().parse::<Strike>().expect("a strike"), strike);
                assert!((1..=512).contains(&strike.nth), "{strike}");
            }
        }
        for wrong in ["", "kill", "kill:before:read", "maim:before:read:1", "kill:at:read:1"] {
            assert!(wrong.parse::<Strike>().is_err(), "{wrong}");
        }
        for wrong in ["kill:after:nap:1", "stop:after:read:0", "stop:after:read:x"] {
            assert!(wrong.parse::<Strike>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_blow_falls_before_a_verb_or_after_its_effect_and_once() {
        let scene =
            Scene::new(&["kill:before:atomic:2", "stop:after:atomic:2", "kill:after:any:7"]);
        scene.count(5);
        let expected = [fallen("kill:before:atomic:2", 1), fallen("stop:after:atomic:2", 2)];
        assert_eq!(scene.fell(), expected);
        scene.count(3);
        assert_eq!(scene.fell()[2..], [fallen("kill:after:any:7", 7)]);
    }

    #[test]
    fn a_chain_has_its_boundaries_at_its_ends() {
        let scene = Scene::new(&["kill:before:atomic:2", "kill:after:atomic:1"]);
        let verb = Verb::Faa64 { addr: scene.word(), add: 1 };
        let chain = [Link::from(verb), Link::from(verb)];
        block_on(&scene.endpoint, scene.endpoint.chain(&chain)).expect("it is there");
        let expected = [fallen("kill:before:atomic:2", 0), fallen("kill:after:atomic:1", 2)];
        assert_eq!(scene.fell(), expected);
    }

    #[test]
    fn a_message_is_received_when_there_is_one() {
        let scene = Scene::new(&["kill:after:receive:1", "stop:after:send:1"]);
        let slot = Slot(0);
        assert!(Endpoint::receive(&scene.endpoint, slot).is_none());
        assert_eq!(scene.fell(), []);
        let to = Mailbox { endpoint: Endpoint::id(&scene.endpoint), slot };
        let sent = scene.endpoint.send(to, [1, 2, 3, 4]);
        block_on(&scene.endpoint, sent).expect("there is room");
        assert!(Endpoint::receive(&scene.endpoint, slot).is_some());
        assert_eq!(
            scene.fell(),
            [fallen("stop:after:send:1", 0), fallen("kill:after:receive:1", 0)]
        );
    }

    #[test]
    fn repair_begins_when_a_death_is_seen_and_ends_with_the_grant() {
        let scene = Scene::new(&["kill:after:repair:2", "stop:before:hold:1", "stop:after:wait:1"]);
        let peer = scene.region.endpoint().expect("a place is free");
        let dead = peer.id();
        scene.count(1);
        drop(peer);
        let peers = [dead];
        let wait = Wait { peers: &peers, patience: Patience::PARK, ..Wait::default() };
        let woken = block_on(&scene.endpoint, scene.endpoint.wait(wait));
        assert_eq!(woken, Woken::PeerGone(dead));
        assert_eq!(scene.fell(), [fallen("stop:after:wait:1", 1)]);
        scene.count(1);
        scene.endpoint.holding(|| {});
        scene.count(1);
        assert_eq!(scene.fell()[1..], [fallen("stop:before:hold:1", 2)]);
        assert!(!Endpoint::is_alive(&scene.endpoint, dead));
        scene.count(1);
        assert_eq!(scene.fell()[2..], [fallen("kill:after:repair:2", 4)]);
    }
}
