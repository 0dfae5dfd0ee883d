//! Specification: what a watcher is told of a key, in any order of events.

use std::rc::Rc;

use crate::scene::any::AnyScheme;
use crate::scene::name;
use farlock_fabric::{Addr, Endpoint};
use farlock_kv::index::{Race, Smart};
use farlock_kv::sync::{Backoff, Optimistic};
use farlock_kv::{Index, Scheme, Shape, Store};
use farlock_sim::{Config, Ended, Weakness, World};

type Plain<I> = Rc<Store<AnyScheme, I>>;

const CHANGES: u64 = 12;

fn open<I: Index>(world: &World, index: I, shape: Shape) -> Plain<I> {
    let scheme = AnyScheme::from(Optimistic::new(world.endpoint(), Backoff::DEFAULT));
    Rc::new(world.block_on(Store::open(scheme, index, shape)).expect("it is there"))
}

fn set<I: Index>(seed: u64, index: I) -> (World, Shape) {
    let weakness = Weakness { lost: farlock_sim::Ratio::NEVER, ..Weakness::FULL };
    let world = World::new(Config { seed, weakness, ..Config::default() });
    let (index_bytes, index_tag) = (index.bytes(), index.tag());
    let base = Addr::from_bits(0);
    let (chunks, chunk_bytes) = if I::TREE { (40, 4_096) } else { (40, 512) };
    let mut shape = Shape { base, chunks, chunk_bytes, index_bytes, index_tag };
    shape.base = world.region(world.node(), shape.bytes());
    world.block_on(shape.create(&world.endpoint())).expect("verbs do not fail here");
    (world, shape)
}

/// Changes a key so many times, and removes it in between; the index grows meanwhile, or in a tree
/// others come beside and above it, also while it is absent.
async fn changes<I: Index>(store: Plain<I>) {
    for number in 1..=CHANGES {
        if I::TREE {
            for beside in [number + 1, number << 8 | 1, number << (8 * (number % 7)) | 1] {
                store.upsert(&name(beside), b"beside").await.expect("there is room");
            }
        } else if number == CHANGES / 2 {
            store.grow().await.expect("there is room for a level");
        }
        store.upsert(&name(1), &name(number)).await.expect("there is room");
        store.scheme().endpoint().sleep(store.scheme().endpoint().random() % 2_000_000).await;
        if number % 3 == 0 {
            store.delete(&name(1)).await.expect("it is there");
        }
    }
    store.upsert(&name(1), &name(CHANGES + 1)).await.expect("there is room");
}

/// Watches the key until it has its last value. Returns how many changes it was told.
async fn watches<I: Index>(store: Plain<I>) -> u64 {
    let (mut told, mut last, mut seen) = (0, 0, None);
    loop {
        let (sight, value) = store.sight(&name(1)).await.expect("nothing is damaged");
        assert_eq!(sight.version().is_some(), value.is_some());
        if seen != Some(sight.version()) {
            told += 1;
        }
        seen = Some(sight.version());
        if let Some(value) = value {
            let number = u64::from_le_bytes(value.try_into().expect("it is whole"));
            assert!(number >= last, "{number} after {last}");
            last = number;
        }
        if last > CHANGES {
            return told;
        }
        sight.until_changed(store.scheme().endpoint(), None, 100_000_000).await;
    }
}

fn is_told<I: Index + Copy + 'static>(index: I) {
    let mut told = 0;
    for seed in 0..200 {
        let (world, shape) = set(seed, index);
        let (writer, watcher) = (open(&world, index, shape), open(&world, index, shape));
        let (written_by, watched_by) = (Rc::clone(&writer), Rc::clone(&watcher));
        world.spawn(writer.scheme().endpoint().id(), changes(written_by));
        let watch = world.spawn(watcher.scheme().endpoint().id(), watches(watched_by));
        assert_eq!(world.run(), Ended::Finished, "seed {seed}");
        told += watch.take().expect("it has seen the last one");
    }
    assert!(told > 200 * CHANGES / 2, "{told} were told: most come slower than it looks");
}

#[test]
fn a_watcher_is_told_of_changes_in_their_order_and_of_the_last() {
    is_told(Race::new(1));
}

#[test]
fn a_watcher_is_told_in_a_tree_that_changes_its_shape() {
    is_told(Smart::with_places(1));
    is_told(Smart::new());
}
