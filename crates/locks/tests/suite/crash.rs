//! Clients die at any verb, in any of the ways a verb can end with its client; every survivor is
//! granted, alone where it must be, with a higher token.

use crate::room;
use std::cell::Cell;
use std::rc::Rc;

use farlock_fabric::{Endpoint, EndpointId, Nanos};
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{Client, Lock, Mode, Options};
use farlock_sim::{Config, Ended, Outcome, Ratio, SimEndpoint, Weakness, World};

use crate::ledger::Ledger;
use crate::specs;

const CLIENTS: u64 = 5;
const ROUNDS: u64 = 6;
/// Enough for every repair, and far more than a healthy run takes, in virtual nanoseconds.
const TIME_NS_MAX: Nanos = 2_000_000_000;

struct Trial {
    seed: u64,
    /// Who dies at which of its verbs, and how.
    deaths: Vec<(u64, u64, Outcome)>,
    context: String,
    /// Deaths found and repairs made, as the living say.
    noticed: Rc<Cell<u64>>,
}

impl Visitor<SimEndpoint> for Trial {
    /// How many of the clients that should die did not get that far.
    type Output = usize;

    fn visit<L: Lock<SimEndpoint>>(self, lock: L) -> usize {
        let weakness = Weakness { lost: Ratio::NEVER, ..Weakness::FULL };
        let world =
            World::new(Config { seed: self.seed, weakness, endpoints: 8, ..Config::default() });
        let (word, ledger) = (world.region(world.node(), room::<L>()), Ledger::default());
        let endpoints: Vec<SimEndpoint> = (0..CLIENTS).map(|_| world.endpoint()).collect();
        let ids: Rc<[EndpointId]> = endpoints.iter().map(Endpoint::id).collect();
        for &(who, verb, outcome) in &self.deaths {
            world.crash_at(ids[who as usize], verb, outcome);
        }
        let mut tasks = Vec::new();
        for (endpoint, who) in endpoints.into_iter().zip(0..) {
            let client = Client::new(endpoint, lock.clone(), Options::new(1));
            let (ledger, ids) = (ledger.clone(), Rc::clone(&ids));
            let noticed = Rc::clone(&self.noticed);
            tasks.push(world.spawn(ids[who as usize], async move {
                for _ in 0..ROUNDS {
                    let chance = client.endpoint().random();
                    let mode = if chance & 1 == 0 { Mode::Shared } else { Mode::Exclusive };
                    let guard = client.acquire(word, mode).await.expect("the living are granted");
                    ledger.bury(word, |who| !client.endpoint().is_alive(ids[who as usize]));
                    let judged = if L::SHARES { mode } else { Mode::Exclusive };
                    ledger.enter(word, who, judged, guard.token());
                    client.endpoint().sleep(chance >> 8 & 2047).await;
                    ledger.leave(word, who);
                    guard.release().await.expect("the living release");
                    client.endpoint().sleep(chance >> 20 & 2047).await;
                }
                let events = client.events();
                noticed.set(noticed.get() + events.peers_died + events.repaired);
            }));
        }
        let ended = world.run_until(TIME_NS_MAX);
        let context = &self.context;
        ledger.assert_clean(context);
        assert_eq!(ended, Ended::Finished, "{context}: somebody living waits for ever");
        let finished = |who: &u64| tasks[*who as usize].take().is_some();
        let dying: Vec<u64> = self.deaths.iter().map(|death| death.0).collect();
        let survivors = (0..CLIENTS).filter(|who| !dying.contains(who));
        assert!(survivors.into_iter().all(|who| finished(&who)), "{context}");
        dying.iter().filter(|who| finished(who)).count()
    }
}

/// The ways a verb can end with its client.
const OUTCOMES: [Outcome; 3] = [Outcome::Never, Outcome::Executed, Outcome::Late];

impl Trial {
    fn new(
        spec: &str,
        seed: u64,
        deaths: Vec<(u64, u64, Outcome)>,
        noticed: &Rc<Cell<u64>>,
    ) -> Self {
        let context = format!("{spec}, seed {seed}, deaths {deaths:?}");
        Self { seed, deaths, context, noticed: Rc::clone(noticed) }
    }
}

fn trial(
    spec: &str,
    seed: u64,
    deaths: Vec<(u64, u64, Outcome)>,
    noticed: &Rc<Cell<u64>>,
) -> usize {
    let trial = Trial::new(spec, seed, deaths, noticed);
    registry::visit(spec, trial).expect("the lock is registered")
}

/// This lock, but waiters look rarely: some of the default spend nearly all of a trial on looking
/// at a word that a dead client keeps as it is.
fn looking_rarely(spec: &str) -> String {
    let hurried = registry::promises(spec).expect("it is registered").proof.hurried;
    if hurried.is_empty() || spec.contains(hurried) {
        return spec.to_owned();
    }
    format!("{spec}:{hurried}")
}

/// Whether this lock excludes, and outlives clients that die.
fn outlives_clients(spec: &str) -> bool {
    let promises = registry::promises(spec).expect("it is registered");
    promises.excludes && promises.outlives_clients
}

/// About as many verbs as the shortest run of a client has.
const VERBS: u64 = 24;

/// How often a death is tried. One trial of them looks as often as the lock does by default.
const SEEDS: u64 = 8;

/// One client dies at each of its first verbs, in each of the three ways: `trial` plays that, by a
/// seed and with the death, and counts what is noticed of it.
fn one_death(spec: &str, trial: impl Fn(u64, (u64, u64, Outcome), &Rc<Cell<u64>>) -> usize) {
    let (mut survived, noticed) = (0, Rc::default());
    for verb in 0..VERBS {
        for outcome in OUTCOMES {
            for seed in 0..SEEDS {
                survived += trial(seed, (seed % CLIENTS, verb, outcome), &noticed);
            }
        }
    }
    let trials = VERBS * OUTCOMES.len() as u64 * SEEDS;
    let noticed = noticed.get();
    assert!(noticed > trials / 8, "{spec}: {noticed} events in {trials} trials");
    assert!(survived < trials as usize / 2, "{spec}: most deaths happen");
}

#[test]
fn one_death_at_any_verb() {
    for spec in specs().filter(|spec| outlives_clients(spec)) {
        let rarely = looking_rarely(spec);
        one_death(spec, |seed, death, noticed| {
            let spec = if seed == death.1 % SEEDS { spec } else { &rarely };
            trial(spec, seed, vec![death], noticed)
        });
    }
}

/// The same of a lock that no list has.
pub(crate) fn one_dies<L: Lock<SimEndpoint>>(lock: &L) {
    one_death("unlisted", |seed, death, noticed| {
        Trial::new("unlisted", seed, vec![death], noticed).visit(lock.clone())
    });
}

/// Two clients die, the second often while it repairs what the first left behind.
#[test]
fn two_deaths() {
    for spec in specs().filter(|spec| outlives_clients(spec)) {
        let rarely = looking_rarely(spec);
        for seed in 0..600 {
            let spec = if seed % 8 == 0 { spec } else { &rarely };
            let outcome = |n: u64| OUTCOMES[(seed / n % 3) as usize];
            let deaths = vec![(0, seed * 7 % 31, outcome(1)), (1, 8 + seed * 11 % 37, outcome(3))];
            trial(spec, seed, deaths, &Rc::default());
        }
    }
}
