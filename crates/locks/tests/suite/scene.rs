//! Clients of one lock in a small world, in every schedule it has, before a judge.

use std::cell::RefCell;
use std::fmt::Debug;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, EndpointId};
use farlock_locks::{Client, Lock, Options};
use farlock_sim::check::Ledger;
use farlock_sim::schedule::{Director, Exhaustive};
use farlock_sim::{Config, Ended, Handle, Oracle, Ratio, SimEndpoint, Weakness, World};

/// Runs that have more events go round in circles.
const EVENTS_MAX: u64 = 5_000;
/// Where what a lock protects lies, in bytes after its word.
const PROTECTED: u64 = 64;

/// Who knows who is inside, and who must not be.
pub(crate) trait Judge: Default + 'static {
    /// This client is not inside any more.
    fn leave(&mut self, who: u16);

    /// What it knows of the past, as a part of the state.
    fn ghost(&self) -> u64;

    /// What it saw that must not be, if it has not panicked at once.
    fn violation(&self) -> Option<String>;
}

impl Judge for Ledger {
    fn leave(&mut self, who: u16) {
        self.leave(who);
    }

    fn ghost(&self) -> u64 {
        self.ghost()
    }

    fn violation(&self) -> Option<String> {
        self.violation().map(str::to_owned)
    }
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    /// What a failure is called.
    pub(crate) title: &'a dyn Debug,
    /// How many clients there are.
    pub(crate) clients: u16,
    /// So many of them may die, each at any of its verbs.
    pub(crate) deaths: u32,
    /// The word of the lock when they begin.
    pub(crate) word: u128,
}

impl Scene<'_> {
    /// Plays every schedule: each client has the lock that `lock` gives it, and lives as `live`
    /// says. Fails if the judge objects, or if there is a state from which no schedule ends.
    pub(crate) fn explore<L, J, F>(self, lock: impl Fn(u16) -> L, live: impl Fn(Member<L, J>) -> F)
    where
        L: Lock<SimEndpoint>,
        J: Judge,
        F: Future<Output = ()> + 'static,
    {
        let director = Director::new(Exhaustive::new());
        while let Some(oracle) = director.begin() {
            if self.play(oracle, &lock, &live) == Ended::Finished {
                director.with(Exhaustive::ended);
            }
        }
        let doomed = director.with(|schedule| schedule.doomed());
        assert!(doomed.is_empty(), "{:?}: in {} states no schedule ends", self.title, doomed.len());
    }

    fn play<L, J, F>(
        self,
        oracle: Box<dyn Oracle>,
        lock: &impl Fn(u16) -> L,
        live: &impl Fn(Member<L, J>) -> F,
    ) -> Ended
    where
        L: Lock<SimEndpoint>,
        J: Judge,
        F: Future<Output = ()> + 'static,
    {
        let config = Config {
            mode: farlock_sim::Mode::Explored,
            weakness: Weakness { detection_ns_min: 1, detection_ns_max: 1, ..Weakness::NONE },
            endpoints: self.clients,
            slots_per_endpoint: 1,
            events_max: Some(EVENTS_MAX),
            ..Config::default()
        };
        let world = World::with_oracle(config, oracle);
        let word = world.region(world.node(), 128);
        world.poke(word, self.word as u64);
        world.poke(word.plus(8), (self.word >> 64) as u64);
        let endpoints: Vec<_> = (0..self.clients).map(|_| world.endpoint()).collect();
        let ids: Rc<[EndpointId]> = endpoints.iter().map(Endpoint::id).collect();
        let judge = Rc::new(RefCell::new(J::default()));
        world.crash_anywhere(self.deaths, Ratio::one_in(16));
        for (endpoint, who) in endpoints.into_iter().zip(0..) {
            let id = endpoint.id();
            let client = Client::new(endpoint, lock(who), Options::new(1));
            let (ids, judge, handle) = (Rc::clone(&ids), Rc::clone(&judge), world.handle());
            world.spawn(id, live(Member { client, who, word, ids, judge, handle }));
        }
        let ended = world.run();
        assert_eq!(judge.borrow().violation(), None, "{:?}", self.title);
        let as_it_should = matches!(ended, Ended::Finished | Ended::Abandoned);
        assert!(as_it_should, "{:?}: {ended:?}", self.title);
        ended
    }
}

/// A client in a scene.
pub(crate) struct Member<L: Lock<SimEndpoint>, J> {
    pub(crate) client: Client<SimEndpoint, L>,
    pub(crate) who: u16,
    /// The lock.
    pub(crate) word: Addr,
    ids: Rc<[EndpointId]>,
    judge: Rc<RefCell<J>>,
    handle: Handle,
}

impl<L: Lock<SimEndpoint>, J: Judge> Member<L, J> {
    /// It begins this round: states in which it has come as far are one.
    pub(crate) fn begins(&self, round: u16) {
        let survivors = [u64::from(round), self.client.memory()];
        self.client.endpoint().checkpoint(&survivors);
    }

    /// Tells the judge, who knows already that the dead hold nothing.
    pub(crate) fn tells(&self, what: impl FnOnce(&mut J)) {
        let judge = &mut *self.judge.borrow_mut();
        for (other, &id) in (0..).zip(self.ids.iter()) {
            if !self.client.endpoint().is_alive(id) {
                judge.leave(other);
            }
        }
        what(judge);
        self.handle.ghost().set(judge.ghost());
    }

    /// Looks at what the lock protects. Meanwhile others may come in.
    pub(crate) async fn uses(&self) {
        self.client.endpoint().read64(self.word.plus(PROTECTED)).await.expect("the living read");
    }

    /// Tells the judge that it is inside no more.
    pub(crate) fn leaves(&self) {
        self.tells(|judge| judge.leave(self.who));
    }
}
