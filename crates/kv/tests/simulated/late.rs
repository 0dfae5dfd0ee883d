//! Specification: a write whose completion was lost may land at any later time. It must not land in
//! a block that has been used again.

use std::rc::Rc;

use crate::scene::any::AnyScheme;
use crate::scene::{name, polled};
use farlock_fabric::{Addr, Endpoint, EndpointId};
use farlock_kv::index::{PointerArray, Race};
use farlock_kv::sync::{Backoff, Optimistic};
use farlock_kv::{Index, Scheme, Shape, Store};
use farlock_sim::{Config, Ended, Nic, Outcome, Weakness, World};

type Plain<I> = Rc<Store<AnyScheme, I>>;

/// Bytes of a value that takes two chains to write.
const LARGE: usize = 140_000;

/// Verbs that read its block.
const READS: u64 = 163_840 / 4_096;

/// How late a verb may be, in nanoseconds.
const LATE_NS: u32 = 400_000;

const ARRAY: PointerArray = PointerArray::new(4);

fn world<I: Index>(seed: u64, index: I, chunks: u32, chunk_bytes: u64) -> (World, Shape) {
    // The loss is noticed at once, long before the verb lands.
    let weakness = Weakness { late_ns_max: LATE_NS, lost_after_ns: 30_000, ..Weakness::NONE };
    let nic = Nic { jitter_mean_ns: 0, ..Nic::default() };
    let world = World::new(Config { seed, weakness, nic, ..Config::default() });
    let (index_bytes, index_tag) = (index.bytes(), index.tag());
    let base = Addr::from_bits(0);
    let mut shape = Shape { base, chunks, chunk_bytes, index_bytes, index_tag };
    shape.base = world.region(world.node(), shape.bytes());
    world.block_on(shape.create(&world.endpoint())).expect("verbs do not fail here");
    (world, shape)
}

fn open<I: Index>(world: &World, index: I, shape: Shape) -> Plain<I> {
    let scheme = AnyScheme::from(Optimistic::new(world.endpoint(), Backoff::NONE));
    let store = Store::open(scheme, index, shape);
    Rc::new(world.block_on(store).expect("it is there"))
}

/// Updates again and again until what was late has landed, each value in a block that was used
/// before, and reads each back.
async fn updates<I: Index>(store: &Plain<I>, length: usize) {
    let begun = store.scheme().endpoint().now();
    let mut round = 0_u64;
    while store.scheme().endpoint().now() < begun + 2 * u64::from(LATE_NS) {
        round += 1;
        let value = vec![round as u8; length];
        store.upsert(&name(1), &value).await.expect("there is room");
        let found = store.get(&name(1)).await;
        assert!(found == Ok(Some(value)), "round {round}: {:?}", found.map(|v| v.map(|v| v[0])));
    }
    assert!(round > 4, "blocks are used again: {round} rounds");
}

/// Loses the completion of what an endpoint posts after so many verbs, which lands late; then does
/// something else.
fn loses_after(
    world: &World,
    id: EndpointId,
    verbs: u64,
    then: impl Future<Output = ()> + 'static,
) {
    let handle = world.handle();
    let watcher = world.endpoint();
    let before = world.posted(id);
    world.spawn(watcher.id(), async move {
        while handle.posted(id) < before + verbs {
            watcher.sleep(20).await;
        }
        handle.lose_next(id, Some(Outcome::Late));
        while handle.posted(id) == before + verbs {
            watcher.sleep(20).await;
        }
        then.await;
    });
}

fn plays<I: Index + 'static>(world: &World, store: &Plain<I>, length: usize) {
    let store = Rc::clone(store);
    let task = world.spawn(store.scheme().endpoint().id(), async move {
        updates(&store, length).await;
        store.counts()
    });
    assert_eq!(world.run(), Ended::Finished);
    assert!(task.take().is_some(), "it is through");
}

#[test]
fn a_change_that_was_posted_twice_lands_twice_in_the_same_use() {
    let mut tainted = 0;
    for seed in 0..100 {
        let (world, shape) = world(seed, ARRAY, 2, 128);
        let store = open(&world, ARRAY, shape);
        world.block_on(store.insert(&name(1), &[0xff; 8])).expect("there is room");
        // After the reads of the slot and of its block.
        loses_after(&world, store.scheme().endpoint().id(), 2, async {});
        plays(&world, &store, 8);
        assert_eq!(store.counts().lost, 1, "seed {seed}");
        tainted += store.census().tainted;
    }
    // Elsewhere it had landed when the slot was looked at, and was not posted again.
    assert!(tainted > 50, "{tainted} were posted twice");
}

/// A change was posted twice and then dropped; its client saw the value in the slot, replaced it
/// and used the block again, though the change that was left behind had not ended. So the late
/// write met the next value.
#[test]
fn a_change_that_was_left_behind_may_still_be_written() {
    let mut dropped = 0;
    for seed in 0..300 {
        let (world, shape) = world(seed, ARRAY, 2, 128);
        let store = open(&world, ARRAY, shape);
        world.block_on(store.insert(&name(1), &[0xff; 8])).expect("there is room");
        let id = store.scheme().endpoint().id();
        loses_after(&world, id, 2, async {});
        let ended = Rc::clone(&store);
        let task = world.spawn(id, async move {
            polled(ended.upsert(&name(1), &[0xee; 8]), 5 + seed % 2).await.is_none()
        });
        world.run_until(world.now() + 60_000);
        dropped += u64::from(task.take() == Some(true));
        plays(&world, &store, 8);
    }
    assert!(dropped > 50, "{dropped} were dropped");
}

/// A value of two chains loses the first of them; others change the key before its compare.
#[test]
fn a_block_that_was_never_seen_may_still_be_written() {
    for seed in 0..10 {
        let (world, shape) = world(seed, ARRAY, 2, 1 << 20);
        let (store, other) = (open(&world, ARRAY, shape), open(&world, ARRAY, shape));
        world.block_on(store.insert(&name(1), &[0xff; LARGE])).expect("there is room");
        let others = Rc::clone(&other);
        loses_after(&world, store.scheme().endpoint().id(), 1 + READS, async move {
            others.upsert(&name(1), b"others").await.expect("there is room");
        });
        plays(&world, &store, LARGE);
        assert_eq!((store.counts().lost, store.census().tainted), (0, 1), "seed {seed}");
    }
}

/// A copy or a mark of a slot that moves lands after the slot has moved and its key has changed.
#[test]
fn a_copy_of_a_slot_that_lands_late_meets_another_word() {
    let index = Race::new(1);
    let mut runs = 0;
    for (seed, verbs) in (0..20).flat_map(|seed| (2..12).map(move |verbs| (seed, verbs))) {
        let (world, shape) = world(seed, index, 20, 128);
        let (store, other) = (open(&world, index, shape), open(&world, index, shape));
        world.block_on(other.insert(&name(2), b"others")).expect("there is room");
        world.block_on(other.delete(&name(2))).expect("it is there");
        world.block_on(store.insert(&name(1), &[0xff; 8])).expect("there is room");
        world.block_on(store.grow()).expect("there are chunks");
        loses_after(&world, store.scheme().endpoint().id(), verbs, async move {
            other.delete(&name(1)).await.expect("it is there");
        });
        plays(&world, &store, 8);
        world.block_on(store.delete(&name(1))).expect("it is there");
        assert_eq!(world.block_on(store.get(&name(1))), Ok(None), "seed {seed}, verb {verbs}");
        runs += 1;
    }
    println!("{runs} runs");
}
