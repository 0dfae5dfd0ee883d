//! Every schedule in the small: every living client is granted in all of them, alone where it must
//! be, with a higher token. `farlock-lab check` explores more clients, deaths and faults; this is
//! what a change of a lock meets first.

use crate::scene::{Member, Scene};
use farlock_fabric::Endpoint;
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{Client, Lock, Mode, Options};
use farlock_sim::check::{Access, Ledger};
use farlock_sim::{Config, Ended, SimEndpoint, World};

/// Locks to explore. Who waits by the clock looks so seldom that waiting takes few events.
const SPECS: &[&str] = &[
    "cas-nb",
    "retry-on-fail",
    "mcs",
    "shiftlock:poll=15000000",
    "shiftlock:n=1:poll=15000000",
    "shiftlock:bypass=1:poll=15000000",
    "shiftlock:bypass=1:newcomer-yields=1:poll=15000000",
    "dslr:omega=2500000",
    "dslr-64:max=3:omega=2500000",
];

/// What is explored.
struct Exploration {
    spec: &'static str,
    clients: u16,
    rounds: u16,
    deaths: u32,
}

impl Visitor<SimEndpoint> for Exploration {
    type Output = ();

    fn visit<L: Lock<SimEndpoint>>(self, lock: L) {
        let Self { spec, clients, rounds, deaths } = self;
        if deaths == 0 || lock.promises().outlives_clients {
            let scene = Scene { title: &spec, clients, deaths, word: 0 };
            scene.explore(|_| lock.clone(), |member| come_and_go(member, rounds));
        }
    }
}

/// Acquires and releases so often, in turn shared and exclusively.
async fn come_and_go<L: Lock<SimEndpoint>>(member: Member<L, Ledger>, rounds: u16) {
    for round in 0..rounds {
        member.begins(round);
        let shared = L::SHARES && (member.who + round) % 2 == 1;
        let mode = if shared { Mode::Shared } else { Mode::Exclusive };
        let guard = member.client.acquire(member.word, mode).await.expect("the living are granted");
        let access = if shared { Access::Shared } else { Access::Exclusive };
        let token = guard.token().map(|token| token.get());
        member.tells(|ledger| ledger.enter(member.who, access, token));
        member.uses().await;
        member.leaves();
        guard.release().await.expect("the living release");
    }
}

fn explore(clients: u16, rounds: u16, deaths: u32) {
    for &spec in SPECS {
        let exploration = Exploration { spec, clients, rounds, deaths };
        registry::visit(spec, exploration).expect("a lock of the registry");
    }
}

/// A client that has come and gone, and is asked what it remembers of that.
struct Remembering;

impl Visitor<SimEndpoint> for Remembering {
    /// Before and after.
    type Output = [u64; 2];

    fn visit<L: Lock<SimEndpoint>>(self, lock: L) -> [u64; 2] {
        let world = World::new(Config { endpoints: 1, ..Config::default() });
        let word = world.region(world.node(), 64);
        let client = Client::new(world.endpoint(), lock, Options::default());
        let (id, before) = (client.endpoint().id(), client.memory());
        let after = world.spawn(id, async move {
            let guard = client.acquire(word, Mode::Exclusive).await.expect("it is free");
            guard.release().await.expect("it is held");
            client.memory()
        });
        assert_eq!(world.run(), Ended::Finished);
        [before, after.take().expect("it has come and gone")]
    }
}

/// States that differ in what a client does next must not look the same, and others should.
#[test]
fn a_client_is_asked_what_it_remembers_where_its_next_verb_depends_on_that() {
    for (spec, depends) in [("claim:bypass=1", true), ("mcs", false), ("dslr", false)] {
        let [before, after] = registry::visit(spec, Remembering).expect("a lock of the registry");
        assert_eq!(before != after, depends, "{spec}: {before} and {after}");
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

#[test]
#[should_panic(expected = "beside writers")]
fn a_lock_that_excludes_nobody_is_found() {
    let exploration = Exploration { spec: "none", clients: 2, rounds: 1, deaths: 0 };
    registry::visit(exploration.spec, exploration).expect("a lock of the registry");
}
