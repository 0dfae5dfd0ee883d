//! Every schedule in the small: whoever lives is granted in all of them, alone where it must be,
//! with a higher token. `farlock-lab check` explores more clients, deaths and faults; this is what
//! a change of a lock meets first.

use std::cell::RefCell;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, EndpointId};
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{Client, Mode, Options, RecordLock};
use farlock_sim::check::{Access, Ledger};
use farlock_sim::schedule::{Director, Exhaustive};
use farlock_sim::{Config, Ended, Handle, Oracle, Ratio, SimEndpoint, Weakness, World};

/// Locks to explore. Who waits by the clock looks so seldom that waiting takes few events.
const SPECS: &[&str] = &[
    "cas-nb",
    "retry-on-fail",
    "mcs",
    "shiftlock:poll=15000000",
    "shiftlock:n=1:poll=15000000",
    "shiftlock:bypass=1:poll=15000000",
    "dslr:omega=2500000",
    "dslr-64:max=3:omega=2500000",
];
/// Runs that have more events go round in circles.
const EVENTS_MAX: u64 = 5_000;
/// Where what a lock protects lies, in bytes after its word.
const PROTECTED: u64 = 64;

/// What is explored.
#[derive(Clone, Copy)]
struct Exploration {
    spec: &'static str,
    clients: u16,
    rounds: u16,
    /// So many clients may die, each at any of its verbs.
    deaths: u32,
}

impl Visitor<SimEndpoint> for Exploration {
    type Output = ();

    fn visit<L: RecordLock<SimEndpoint>>(self, lock: L) {
        if self.deaths > 0 && !L::OUTLIVES_CLIENTS {
            return;
        }
        let director = Director::new(Exhaustive::new());
        while let Some(oracle) = director.begin() {
            if self.run(&lock, oracle) == Ended::Finished {
                director.with(Exhaustive::ended);
            }
        }
        let doomed = director.with(|schedule| schedule.doomed());
        assert!(doomed.is_empty(), "{}: in {} states no schedule ends", self.spec, doomed.len());
    }
}

impl Exploration {
    fn run<L: RecordLock<SimEndpoint>>(self, lock: &L, oracle: Box<dyn Oracle>) -> Ended {
        let config = Config {
            mode: farlock_sim::Mode::Explored,
            weakness: Weakness { detection_ns_min: 1, detection_ns_max: 1, ..Weakness::NONE },
            endpoints: self.clients,
            slots_per_endpoint: 1,
            events_max: Some(EVENTS_MAX),
            ..Config::default()
        };
        let world = World::with_oracle(config, oracle);
        let (word, ledger) = (world.region(world.node(), 128), Rc::new(RefCell::default()));
        let endpoints: Vec<_> = (0..self.clients).map(|_| world.endpoint()).collect();
        let ids: Rc<[EndpointId]> = endpoints.iter().map(Endpoint::id).collect();
        world.crash_anywhere(self.deaths, Ratio::one_in(16));
        for (endpoint, who) in endpoints.into_iter().zip(0..) {
            let id = endpoint.id();
            let client = Client::new(endpoint, lock.clone(), Options { incarnation: 1 });
            let member = Member { client, who, ids: Rc::clone(&ids), ledger: Rc::clone(&ledger) };
            world.spawn(id, member.live(word, self.rounds, world.handle()));
        }
        let ended = world.run();
        let violation = ledger.borrow().violation().map(str::to_owned);
        assert_eq!(violation, None, "{}", self.spec);
        assert!(matches!(ended, Ended::Finished | Ended::Abandoned), "{}: {ended:?}", self.spec);
        ended
    }
}

struct Member<L: RecordLock<SimEndpoint>> {
    client: Client<SimEndpoint, L>,
    who: u16,
    ids: Rc<[EndpointId]>,
    ledger: Rc<RefCell<Ledger>>,
}

impl<L: RecordLock<SimEndpoint>> Member<L> {
    /// Acquires and releases so often, in turn shared and exclusively.
    async fn live(self, word: Addr, rounds: u16, handle: Handle) {
        for round in 0..rounds {
            self.client.endpoint().checkpoint(&[u64::from(round)]);
            let shared = L::SHARES && (self.who + round) % 2 == 1;
            let mode = if shared { Mode::Shared } else { Mode::Exclusive };
            let guard = self.client.acquire(word, mode).await.expect("the living are granted");
            let access = if shared { Access::Shared } else { Access::Exclusive };
            self.tell(&handle, |ledger| {
                for (other, &id) in (0..).zip(self.ids.iter()) {
                    if !self.client.endpoint().is_alive(id) {
                        ledger.leave(other);
                    }
                }
                ledger.enter(self.who, access, guard.token().map(|token| token.get()));
            });
            let used = self.client.endpoint().read64(word.plus(PROTECTED)).await;
            used.expect("the living read");
            self.tell(&handle, |ledger| ledger.leave(self.who));
            guard.release().await.expect("the living release");
        }
    }

    /// What the judge knows of the past is a part of the state.
    fn tell(&self, handle: &Handle, what: impl FnOnce(&mut Ledger)) {
        let ledger = &mut *self.ledger.borrow_mut();
        what(ledger);
        handle.ghost().set(ledger.ghost());
    }
}

fn explore(clients: u16, rounds: u16, deaths: u32) {
    for &spec in SPECS {
        let exploration = Exploration { spec, clients, rounds, deaths };
        registry::visit(spec, exploration).expect("a lock of the registry");
    }
}

#[test]
fn two_clients_come_twice() {
    explore(2, 2, 0);
}

#[test]
fn three_clients_come_once() {
    explore(3, 1, 0);
}

#[test]
fn one_of_two_clients_dies() {
    explore(2, 2, 1);
}
