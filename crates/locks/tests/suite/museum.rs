//! The published algorithms that are wrong as printed, each failing as its story says, and the lock
//! of this crate passing the same trial.

use std::rc::Rc;

use farlock_fabric::Endpoint;
use farlock_locks::museum::EpochLost;
use farlock_locks::record::shiftlock::ShiftLock;
use farlock_locks::{Client, Lock, Mode, Options};
use farlock_sim::{Config, Ended, SimEndpoint, World};

/// Schedules tried.
const SEEDS: u64 = 2_000;

/// Far beyond the time that three writers and one reader need, in virtual nanoseconds.
const TIME_NS_MAX: u64 = 5_000_000;

/// Three writers and a reader acquire one lock once each, at random moments. Whether all end.
fn three_writers_and_a_reader<L: Lock<SimEndpoint>>(seed: u64, lock: &L) -> bool {
    let world = World::new(Config { seed, endpoints: 4, ..Config::default() });
    let word = world.region(world.node(), 64);
    for who in 0..4 {
        let endpoint = world.endpoint();
        let id = endpoint.id();
        let client = Rc::new(Client::new(endpoint, lock.clone(), Options::default()));
        world.spawn(id, async move {
            let mode = if who == 0 { Mode::Shared } else { Mode::Exclusive };
            client.endpoint().sleep(client.endpoint().random() % 6_000).await;
            let guard = client.acquire(word, mode).await.expect("acquires");
            guard.release().await.expect("releases");
        });
    }
    world.run_until(TIME_NS_MAX) == Ended::Finished
}

/// The epoch is lost across a handover: with N = 1, three writers and one reader, the algorithm as
/// printed leaves the reader waiting for a flip that never comes.
#[test]
fn shiftlock_as_printed_deadlocks() {
    let lock = EpochLost { sound: ShiftLock { writers_max: 1, ..ShiftLock::default() } };
    let stuck = (0..SEEDS).find(|&seed| !three_writers_and_a_reader(seed, &lock));
    let seed = stuck.expect("some schedule deadlocks");
    println!("deadlock after {} schedules, seed {seed}", seed + 1);
}

#[test]
fn shiftlock_that_carries_the_epoch_does_not() {
    let lock = ShiftLock { writers_max: 1, ..ShiftLock::default() };
    for seed in 0..SEEDS {
        assert!(three_writers_and_a_reader(seed, &lock), "seed {seed} deadlocks");
    }
}
