//! What an uncontended range costs: two round trips to acquire it, one to release it, and the verbs
//! that the pages of the locks say.

use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint, Nanos, Wait};
use farlock_locks::record::citron::{Exclusive, Shared};
use farlock_locks::{Client, Extent, Lock, LockKind, Mode, Options};
use farlock_sim::{Config, Ended, Kind, SimEndpoint, Weakness, World};

/// What a client did: how long each step took, and how many verbs of each kind it posted.
#[derive(Debug)]
struct Cost {
    round_trip: Nanos,
    acquire: Nanos,
    release: Nanos,
    reads: u64,
    compares: u64,
    adds: u64,
}

/// Acquires and releases these units of a free lock.
fn cost<L: Lock<SimEndpoint, Want = Extent>>(lock: L, want: Extent) -> Cost {
    let world = World::new(Config { endpoints: 1, weakness: Weakness::NONE, ..Config::default() });
    let word: Addr = world.region(world.node(), L::BYTES);
    let endpoint = world.endpoint();
    let (id, client) = (endpoint.id(), Rc::new(Client::new(endpoint, lock, Options::default())));
    let times = Rc::new(std::cell::Cell::new([0; 4]));
    let told = Rc::clone(&times);
    world.spawn(id, async move {
        let now = || client.endpoint().now();
        let first = now();
        client.endpoint().faa64(word, 0).await.expect("an atomic of one word");
        let second = now();
        let guard = client.acquire(word, want).await.expect("it is free");
        let third = now();
        guard.release().await.expect("it is held");
        told.set([first, second, third, now()]);
    });
    assert_eq!(world.run(), Ended::Finished);
    let [first, second, third, last] = times.get();
    let posted = |kind: Kind| world.handle().stats().posted[kind as usize];
    Cost {
        round_trip: second - first,
        acquire: third - second,
        release: last - third,
        reads: posted(Kind::Read),
        compares: posted(Kind::MaskedCas64),
        adds: posted(Kind::MaskedFaa64),
    }
}

fn takes_round_trips(cost: &Cost) {
    let trips = |time: Nanos| (time + cost.round_trip / 2) / cost.round_trip;
    assert_eq!((trips(cost.acquire), trips(cost.release)), (2, 1), "{cost:?}");
}

/// In a tree of three levels: three nodes are looked at, then the two above once more. An atomic
/// counts the grant; without tokens there is one less, and of those above only the parent is looked
/// at before.
#[test]
fn a_unit_takes_two_round_trips() {
    for (counts, grants, reads) in [(true, 1, 3 + 2), (false, 0, 2 + 2)] {
        let lock = Exclusive { counts, ..Exclusive::default() };
        let cost = cost(lock, Extent::new(Mode::Exclusive, 70..71));
        takes_round_trips(&cost);
        assert_eq!((cost.reads, cost.compares, cost.adds), (reads, 2, 2 + grants), "{cost:?}");
    }
}

/// Of two leaves below one parent the second one has nobody to tell and nobody to see after its
/// claim: it is exempt from the owner of that parent. Before, it looks at it for a cleaner.
#[test]
fn a_second_leaf_takes_two_reads_and_two_compares() {
    let lock = Exclusive { counts: false, ..Exclusive::default() };
    let cost = cost(lock, Extent::new(Mode::Exclusive, 60..70));
    assert_eq!((cost.reads, cost.compares, cost.adds), (2 + 2 + 2, 4, 2), "{cost:?}");
}

/// The root looks at itself and at the nodes of its window, twice: so it sees whether anybody
/// below has come and gone, who was counted later.
#[test]
fn all_units_take_two_round_trips() {
    let cost = cost(Exclusive::default(), Extent::from(Mode::Exclusive));
    takes_round_trips(&cost);
    assert_eq!((cost.reads, cost.compares, cost.adds), (2 + 2, 2, 1), "{cost:?}");
}

/// The line of a second node is read with the claim of the first, but where grants are counted and
/// it is the last.
#[test]
fn a_second_node_takes_a_round_trip_more() {
    let want = Extent::new(Mode::Exclusive, 256..768);
    for (counts, trips) in [(false, 3), (true, 4)] {
        let cost = cost(Exclusive { counts, ..Exclusive::default() }, want);
        let acquired = (cost.acquire + cost.round_trip / 2) / cost.round_trip;
        assert_eq!(acquired, trips, "{cost:?}");
    }
}

/// A reader counts where a writer compares. A writer looks at the readers of its node, a reader at
/// the bits, by an atomic, and then at the count of grants.
#[test]
fn readers_take_as_many() {
    for (mode, compares, adds) in [(Mode::Exclusive, 2, 3), (Mode::Shared, 0, 5)] {
        let cost = cost(Shared::default(), Extent::new(mode, 70..71));
        takes_round_trips(&cost);
        assert_eq!((cost.reads, cost.compares, cost.adds), (3 + 3, compares, adds), "{cost:?}");
    }
}

/// How long a holder has what another waits for, in nanoseconds: less than a waiter trusts it.
const HOLD_NS: Nanos = 1_000_000;

/// A waiter at a unit, behind an owner above, in line, and for those below reads one word every
/// `poll`, and does nothing else.
#[test]
fn a_waiter_reads_one_word_at_each_poll() {
    let (unit, all) = (70..71, 0..1024);
    for (held, wanted) in
        [(&unit, &unit), (&all, &unit), (&all, &all), (&unit, &all), (&(66..67), &(65..69))]
    {
        let lock = Exclusive::default();
        let polls = HOLD_NS / lock.poll_ns;
        let config = Config { endpoints: 2, weakness: Weakness::NONE, ..Config::default() };
        let world = World::new(config);
        let word: Addr = world.region(world.node(), Exclusive::BYTES);
        for (hold_ns, wait_ns, units) in [(HOLD_NS, 0, held), (0, HOLD_NS / 10, wanted)] {
            let (endpoint, units) = (world.endpoint(), units.clone());
            let client = Rc::new(Client::new(endpoint, lock.clone(), Options::default()));
            world.spawn(client.endpoint().id(), async move {
                let pause = |interval| Wait { interval: Some(interval), ..Wait::default() };
                client.endpoint().wait(pause(wait_ns)).await;
                let want = Extent::new(Mode::Exclusive, units);
                let guard = client.acquire(word, want).await.expect("it is had");
                client.endpoint().wait(pause(hold_ns)).await;
                guard.release().await.expect("it is held");
            });
        }
        assert_eq!(world.run(), Ended::Finished);
        let stats = world.handle().stats();
        let (reads, swaps) =
            (stats.posted[Kind::Read as usize], stats.posted[Kind::MaskedCas64 as usize]);
        assert!((polls / 4..polls).contains(&reads), "{held:?}, {wanted:?}: {reads} of {polls}");
        assert!(swaps < 12, "{held:?}, {wanted:?}: {swaps}");
    }
}
