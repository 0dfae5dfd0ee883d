//! What a range that is held for long keeps others from, and what it does not.

use std::cell::Cell;
use std::rc::Rc;

use farlock_fabric::{Endpoint, Nanos};
use farlock_locks::record::citron::{Exclusive, Shared};
use farlock_locks::record::segments::Segments;
use farlock_locks::{Client, Extent, Lock, LockKind as _, Mode, Options};
use farlock_sim::{Config, Ended, SimEndpoint, Weakness, World};

/// For how long the range is held: a waiter looks around for the dead many times.
const HELD_NS: Nanos = 200_000_000;
/// What is long for a range that is free.
const SOON_NS: Nanos = 1_000_000;

/// One holds a unit for long, another waits for it, and a third acquires one beside it meanwhile,
/// of another leaf below the same node.
fn one_waits_and_another_does_not<L: Lock<SimEndpoint, Want = Extent>>(lock: L) {
    let config = Config { endpoints: 3, weakness: Weakness::NONE, ..Config::default() };
    let world = World::new(config);
    let word = world.region(world.node(), lock.bytes());
    let clients: Vec<_> = (0..3)
        .map(|_| Rc::new(Client::new(world.endpoint(), lock.clone(), Options::default())))
        .collect();
    let waited = Rc::new(Cell::new([None; 3]));
    let plans = [(0, 0, HELD_NS), (HELD_NS / 20, 0, 0), (HELD_NS / 2, 64, 0)];
    for (number, (client, (begins, unit, held))) in clients.iter().zip(plans).enumerate() {
        let (client, waited) = (Rc::clone(client), Rc::clone(&waited));
        let id = client.endpoint().id();
        world.spawn(id, async move {
            client.endpoint().sleep(begins).await;
            let asked = client.endpoint().now();
            let want = Extent::new(Mode::Exclusive, unit..unit + 1);
            let guard = client.acquire(word, want).await.expect("it is granted at last");
            let mut all = waited.get();
            all[number] = Some(client.endpoint().now() - asked);
            waited.set(all);
            client.endpoint().sleep(held).await;
            guard.release().await.expect("it is held");
        });
    }
    assert_eq!(world.run(), Ended::Finished);
    let [holder, waiter, other] = waited.get().map(|waited| waited.expect("all are granted"));
    assert!(holder < SOON_NS && other < SOON_NS, "{holder} and {other} ns for what was free");
    assert!(waiter > HELD_NS / 2, "{waiter} ns: it waits until the holder is gone");
    for client in clients {
        assert_eq!(client.events().repaired, 0, "nobody died");
    }
}

#[test]
fn a_long_hold_is_not_taken_for_that_of_a_dead_client() {
    one_waits_and_another_does_not(Exclusive::default());
    one_waits_and_another_does_not(Shared::default());
}

/// Two have a unit each again and again, so that one of the two is held all the time; a third wants
/// both. When others have come before it some times it takes what it finds free.
fn who_wants_several_units_has_them<L: Lock<SimEndpoint, Want = Extent>>(lock: L) {
    const TURN_NS: Nanos = 20_000_000;
    const TURNS: u64 = 60;
    let config = Config { endpoints: 3, weakness: Weakness::NONE, ..Config::default() };
    let world = World::new(config);
    let word = world.region(world.node(), lock.bytes());
    for unit in 0..2_u32 {
        let client = Client::new(world.endpoint(), lock.clone(), Options::default());
        world.spawn(client.endpoint().id(), async move {
            client.endpoint().sleep(u64::from(unit) * TURN_NS / 2).await;
            for _ in 0..TURNS {
                let want = Extent::new(Mode::Exclusive, unit..unit + 1);
                let guard = client.acquire(word, want).await.expect("it is granted at last");
                client.endpoint().sleep(TURN_NS * 3 / 4).await;
                guard.release().await.expect("it is held");
                client.endpoint().sleep(TURN_NS / 4).await;
            }
        });
    }
    let client = Client::new(world.endpoint(), lock, Options::default());
    let waited = Rc::new(Cell::new(None));
    let told = Rc::clone(&waited);
    world.spawn(client.endpoint().id(), async move {
        client.endpoint().sleep(TURN_NS).await;
        let asked = client.endpoint().now();
        let want = Extent::new(Mode::Exclusive, 0..2);
        let guard = client.acquire(word, want).await.expect("it is granted at last");
        told.set(Some(client.endpoint().now() - asked));
        guard.release().await.expect("it is held");
    });
    assert_eq!(world.run(), Ended::Finished);
    let waited = waited.get().expect("it is granted");
    assert!(waited < 10 * TURN_NS, "{waited} ns");
}

#[test]
fn others_do_not_come_before_a_request_again_and_again() {
    who_wants_several_units_has_them(Exclusive::default());
    who_wants_several_units_has_them(Shared::default());
}

/// A release of more segments than one doorbell sends gives each back once.
#[test]
fn as_many_segments_as_there_are_go_round() {
    let world = World::new(Config { endpoints: 2, ..Config::default() });
    let lock = Segments { count: 100, ..Segments::default() };
    let word = world.region(world.node(), lock.bytes());
    for _ in 0..2 {
        let client = Client::new(world.endpoint(), lock.clone(), Options::default());
        world.spawn(client.endpoint().id(), async move {
            for units in [0..100, 3..97, 0..33, 60..61, 0..100] {
                let want = Extent::new(Mode::Exclusive, units);
                let guard = client.acquire(word, want).await.expect("it is granted at last");
                guard.release().await.expect("it is held");
            }
            let tried = client.try_acquire(word, Extent::new(Mode::Shared, 0..1)).await;
            drop(tried.expect("no verb fails"));
            client.settle().await;
        });
    }
    assert_eq!(world.run(), Ended::Finished);
}
