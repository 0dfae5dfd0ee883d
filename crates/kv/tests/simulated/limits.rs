//! Specification: what a store refuses, and that it is as before then.

use std::cell::RefCell;
use std::rc::Rc;

use crate::scene::any::AnyScheme;
use crate::scene::tree::HEADER_BYTES;
use crate::scene::{name, polled};
use farlock_fabric::{Addr, Endpoint};
use farlock_kv::index::{PointerArray, Race};
use farlock_kv::sync::{Backoff, Optimistic};
use farlock_kv::{
    ChunkWord, Index, KEY_BYTES_MAX, OpenError, ReadError, Scheme, Shape, Store, VALUE_BYTES_MAX,
    WriteError,
};
use farlock_locks::local::together;
use farlock_sim::{Config, Outcome, Ratio, SimEndpoint, Weakness, World};

type Plain<I> = Store<AnyScheme, I>;

fn built<I: Index>(index: I, chunks: u32, chunk_bytes: u64) -> (World, Shape, Plain<I>) {
    let weakness = Weakness { torn_gap_ns_max: 100, ..Weakness::NONE };
    let world = World::new(Config { weakness, ..Config::default() });
    let (index_bytes, index_tag) = (index.bytes(), index.tag());
    let base = Addr::from_bits(0);
    let mut shape = Shape { base, chunks, chunk_bytes, index_bytes, index_tag };
    shape.base = world.region(world.node(), shape.bytes());
    let endpoint = world.endpoint();
    world.block_on(shape.create(&endpoint)).unwrap();
    let scheme = AnyScheme::from(Optimistic::new(endpoint, Backoff::NONE));
    let store = world.block_on(Store::open(scheme, index, shape)).unwrap();
    (world, shape, store)
}

#[test]
fn values_of_every_length_come_back() {
    let (world, _, store) = built(Race::new(4), 12, 2 << 20);
    for (at, length) in
        [0, 1, 7, 8, 64, 4_000, 4_096, 130_000, VALUE_BYTES_MAX].into_iter().enumerate()
    {
        let key = vec![at as u8 + 1; [1, 8, 100, KEY_BYTES_MAX][at % 4]];
        let value: Vec<u8> = (0..length).map(|byte| (byte * 7 + at) as u8).collect();
        world.block_on(store.insert(&key, &value)).unwrap();
        assert_eq!(world.block_on(store.get(&key)), Ok(Some(value)), "{length} bytes");
    }
}

#[test]
fn what_is_invalid_is_refused() {
    let (world, _, store) = built(PointerArray::new(4), 4, 256);
    let long = vec![0; VALUE_BYTES_MAX + 1];
    let run = |ended: Result<(), WriteError>| ended;
    assert_eq!(world.block_on(store.get(b"")), Err(ReadError::BadKey));
    assert_eq!(world.block_on(store.get(&name(4))), Err(ReadError::BadKey));
    assert_eq!(run(world.block_on(store.upsert(&name(4), b"x"))), Err(WriteError::BadKey));
    assert_eq!(world.block_on(store.upsert(&vec![1; 1025], b"x")), Err(WriteError::BadKey));
    assert_eq!(world.block_on(store.upsert(&name(1), &long)), Err(WriteError::TooLong));
    assert_eq!(world.block_on(store.upsert(&name(1), &[0; 240])), Err(WriteError::TooLong));
    assert_eq!(world.block_on(store.update(&name(1), b"x")), Err(WriteError::NotFound));
    assert_eq!(world.block_on(store.delete(&name(1))), Err(WriteError::NotFound));
    world.block_on(store.insert(&name(1), b"one")).unwrap();
    assert_eq!(world.block_on(store.insert(&name(1), b"x")), Err(WriteError::Exists));
    assert_eq!(world.block_on(store.increment(&name(1), 1)), Err(WriteError::NotANumber));
    let set = world.block_on(store.compare_and_set(&name(1), b"two", b"x"));
    assert_eq!(set, Err(WriteError::Mismatch));
    assert_eq!(world.block_on(store.get(&name(1))), Ok(Some(b"one".to_vec())));
    assert_eq!(world.block_on(store.increment(&name(2), 7)), Ok(7));
    assert_eq!(world.block_on(store.increment(&name(2), u64::MAX)), Ok(6));
}

#[test]
fn another_shape_is_another_store() {
    let (world, shape, _) = built(PointerArray::new(4), 4, 256);
    let open = |index: PointerArray, shape: Shape| {
        let scheme = AnyScheme::from(Optimistic::new(world.endpoint(), Backoff::NONE));
        world.block_on(Store::open(scheme, index, shape)).map(|_| ())
    };
    assert_eq!(open(PointerArray::new(4), shape), Ok(()));
    assert_eq!(open(PointerArray::new(5), shape), Err(OpenError::OtherShape));
    let more = Shape { chunks: 5, ..shape };
    assert_eq!(open(PointerArray::new(4), more), Err(OpenError::OtherShape));
    let elsewhere = Shape { base: world.region(farlock_sim::NodeId(0), 4096), ..shape };
    assert_eq!(open(PointerArray::new(4), elsewhere), Err(OpenError::OtherShape));
}

/// Makes zeroed memory a store with this index, unless another client has chosen one: which it has.
async fn made(endpoint: &SimEndpoint, base: Addr, wanted: u64) -> u64 {
    let tag = Shape::tag_at(endpoint, base).await.unwrap().unwrap_or(wanted);
    let shape = Shape { base, chunks: 4, chunk_bytes: 256, index_bytes: 8 * tag, index_tag: tag };
    match shape.create(endpoint).await {
        Ok(()) => tag,
        Err(OpenError::OtherShape) => Shape::tag_at(endpoint, base).await.unwrap().unwrap(),
        Err(error) => panic!("{error}"),
    }
}

/// Whichever client is killed in the middle, and whenever they come: all find the same index.
#[test]
fn clients_that_create_a_store_at_once_agree_on_its_index() {
    let mut firsts = [0; 2];
    for (seed, verb) in (0..200).flat_map(|seed| (0..7).map(move |verb| (seed, verb))) {
        let weakness = Weakness { torn_gap_ns_max: 3_000, ..Weakness::NONE };
        let world = World::new(Config { seed, weakness, ..Config::default() });
        let base = world.region(world.node(), 4096);
        let found: Rc<RefCell<Vec<u64>>> = Rc::default();
        for client in 0..3 {
            let (endpoint, found) = (world.endpoint(), Rc::clone(&found));
            if client == 0 && verb > 0 {
                world.crash_at(endpoint.id(), verb, Outcome::ALL[seed as usize % 3]);
            }
            world.spawn(endpoint.id(), async move {
                let tag = made(&endpoint, base, 2 + client % 2).await;
                found.borrow_mut().push(tag);
            });
        }
        world.run();
        let late = world.block_on(made(&world.endpoint(), base, 9));
        assert!(found.borrow().iter().all(|tag| *tag == late), "{seed} {verb}: {found:?}, {late}");
        firsts[late as usize - 2] += 1;
    }
    assert!(firsts.iter().all(|count| *count > 0), "{firsts:?}");
}

#[test]
fn a_full_pool_refuses_and_keeps_what_it_has() {
    let (world, _, store) = built(PointerArray::new(64), 3, 256);
    let mut kept = 0;
    let refused = loop {
        match world.block_on(store.insert(&name(kept), &kept.to_le_bytes())) {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((refused, kept), (WriteError::PoolFull, 3 * 6), "blocks of 32 bytes and 8 beside");
    for key in 0..kept {
        assert_eq!(world.block_on(store.get(&name(key))), Ok(Some(name(key))), "key {key}");
    }
    assert_eq!(world.block_on(store.update(&name(0), b"new")), Err(WriteError::PoolFull));
    world.block_on(store.delete(&name(1))).unwrap();
    world.block_on(store.update(&name(0), b"new")).unwrap();
    world.block_on(store.update(&name(0), b"newer")).unwrap();
    assert_eq!(world.block_on(store.get(&name(0))), Ok(Some(b"newer".to_vec())));
    assert_eq!(world.block_on(store.get(&name(1))), Ok(None));
}

#[test]
fn a_full_table_refuses_and_keeps_what_it_has() {
    // Of nine chunks, values of a full table take eight; the next level would take three.
    let (world, _, store) = built(Race::new(3), 9, 512);
    let key = |number: u64| format!("key number {number}").into_bytes();
    let mut kept = Vec::new();
    for number in 0..200 {
        match world.block_on(store.insert(&key(number), &name(number))) {
            Ok(()) => kept.push(number),
            Err(error) => assert_eq!(error, WriteError::IndexFull),
        }
    }
    // Three groups have 72 slots.
    assert_eq!(store.counts().growths, 0);
    assert!((55..=72).contains(&kept.len()), "{} keys", kept.len());
    for &number in &kept {
        assert_eq!(world.block_on(store.get(&key(number))), Ok(Some(name(number))));
    }
    for &number in &kept {
        world.block_on(store.delete(&key(number))).unwrap();
        assert_eq!(world.block_on(store.get(&key(number))), Ok(None));
    }
    world.block_on(store.settle());
    assert_eq!(store.census().published + store.census().in_hand, 0);
}

#[test]
fn a_table_for_so_many_keys_has_room_for_them() {
    const KEYS: u64 = 4_000;
    let (world, _, store) = built(Race::for_keys(KEYS), 40, 1 << 14);
    for key in 0..KEYS {
        world.block_on(store.insert(&name(key), &key.to_le_bytes())).unwrap();
    }
    for key in 0..KEYS {
        assert_eq!(world.block_on(store.get(&name(key))), Ok(Some(name(key))), "key {key}");
    }
}

#[test]
fn a_table_grows_from_one_group_to_thousands() {
    const KEYS: u64 = 30_000;
    let (world, shape, store) = built(Race::new(1), 1_000, 4_096);
    // It knows of no growth until it reads.
    let scheme = AnyScheme::from(Optimistic::new(world.endpoint(), Backoff::NONE));
    let late = world.block_on(Store::open(scheme, Race::new(1), shape)).unwrap();
    let id = store.scheme().endpoint().id();
    let (mut posted, mut most, mut levels) = (world.posted(id), 0, 0);
    for key in 0..KEYS {
        world.block_on(store.insert(&name(key), &key.to_le_bytes())).unwrap();
        let verbs = world.posted(id) - std::mem::replace(&mut posted, world.posted(id));
        most = most.max(verbs);
        if store.counts().growths > levels {
            levels = store.counts().growths;
            println!("{levels} levels above the first at {key} keys, {verbs} verbs");
        }
        let before = key * 7 / 11;
        assert_eq!(world.block_on(store.get(&name(before))), Ok(Some(name(before))));
        posted = world.posted(id);
    }
    println!("at most {most} verbs, {} slots moved, {levels} levels", store.counts().moves);
    assert!((10..=11).contains(&levels), "{levels}");
    for key in 0..KEYS {
        assert_eq!(world.block_on(late.get(&name(key))), Ok(Some(name(key))), "key {key}");
    }
    for key in 0..KEYS {
        world.block_on(late.delete(&name(key))).unwrap();
    }
    assert_eq!(world.block_on(store.get(&name(1))), Ok(None));
}

#[test]
fn a_table_that_has_grown_costs_no_verb_more() {
    const GROUPS: u64 = 32;
    let (world, shape, store) = built(Race::new(GROUPS), 100, 1_024);
    let cost = |store: &Plain<Race>| {
        let id = store.scheme().endpoint().id();
        let verbs = |operation: &dyn Fn()| {
            let before = world.posted(id);
            operation();
            world.posted(id) - before
        };
        let get = verbs(&|| assert!(world.block_on(store.get(&name(1))).is_ok()));
        let absent = verbs(&|| assert!(world.block_on(store.get(&name(2))).is_ok()));
        let update = verbs(&|| world.block_on(store.update(&name(1), b"new")).unwrap());
        (get, absent, update)
    };
    world.block_on(store.insert(&name(1), b"value")).unwrap();
    // Two buckets and a block; to update it, that is written, the slot compared, the old one freed.
    assert_eq!(cost(&store), (3, 2, 6));
    for level in 0..3 {
        world.block_on(store.grow()).unwrap();
        // Each moves a group, or counts up to 16 that have moved.
        for _ in 0..(GROUPS << level) * 17 / 16 + 2 {
            world.block_on(store.update(&name(1), b"helps")).unwrap();
        }
        assert_eq!(cost(&store), (3, 2, 6), "at level {}", level + 1);
    }
    let scheme = AnyScheme::from(Optimistic::new(world.endpoint(), Backoff::NONE));
    let next = world.block_on(Store::open(scheme, Race::new(GROUPS), shape)).unwrap();
    let (get, absent, _) = cost(&next);
    assert_eq!((get, absent), (3, 2), "a client that comes later");
}

#[test]
fn an_index_without_a_run_of_chunks_keeps_its_size() {
    let (world, _, store) = built(Race::new(1), 2, 256);
    // 384 bytes are two chunks, and one has a value.
    world.block_on(store.insert(&name(1), b"value")).unwrap();
    assert_eq!(world.block_on(store.grow()), Err(WriteError::IndexFull));
    let (world, _, store) = built(PointerArray::new(4), 8, 256);
    assert_eq!(world.block_on(store.grow()), Err(WriteError::IndexFull));
}

#[test]
fn damaged_memory_is_an_error_and_no_value() {
    let (world, shape, store) = built(PointerArray::new(4), 1, 256);
    world.block_on(store.insert(&name(1), b"a value")).unwrap();
    let first = shape.base.plus(shape.bytes() - 256);
    let value = (0..32)
        .map(|word| first.plus(word * 8))
        .find(|&addr| world.peek(addr) == u64::from_le_bytes(*b"a value\0"));
    let value = value.expect("it lies in the only chunk");
    world.poke(value, world.peek(value) ^ 1);
    assert_eq!(world.block_on(store.get(&name(1))), Err(ReadError::Corrupt));
    world.poke(value, world.peek(value) ^ 1);
    assert_eq!(world.block_on(store.get(&name(1))), Ok(Some(b"a value".to_vec())));
}

/// Two tasks of one client made the same level of two runs that had chunks in common, and gave back
/// those of the run that had become the level, since another client gave chunks back in between.
#[test]
fn tasks_that_grow_at_once_give_no_chunk_of_a_level_back() {
    for seed in 0..500 {
        let weakness = Weakness { late_ns_max: 20_000, late: Ratio::one_in(3), ..Weakness::FULL };
        let world = World::new(Config { seed, weakness, endpoints: 8, ..Config::default() });
        let index = Race::new(1);
        let (index_bytes, index_tag) = (index.bytes(), index.tag());
        let base = Addr::from_bits(0);
        let mut shape = Shape { base, chunks: 40, chunk_bytes: 64, index_bytes, index_tag };
        shape.base = world.region(world.node(), shape.bytes());
        world.block_on(shape.create(&world.endpoint())).unwrap();
        let open = |endpoint: SimEndpoint| {
            let scheme = AnyScheme::from(Optimistic::new(endpoint, Backoff::NONE));
            Rc::new(world.block_on(Store::open(scheme, index, shape)).unwrap())
        };
        // It dies as it makes its run a level.
        let dead = world.endpoint();
        let store = open(dead.clone());
        world.crash_at(dead.id(), world.posted(dead.id()) + 8, Outcome::Never);
        world.spawn(dead.id(), async move { store.grow().await.is_ok() });
        world.run();
        let [growing, rival, other] = std::array::from_fn(|_| open(world.endpoint()));
        let tasks = [(&growing, false), (&growing, false), (&rival, false), (&other, true)];
        for (store, recovers) in tasks {
            let (store, endpoint) = (Rc::clone(store), store.scheme().endpoint().clone());
            world.spawn(endpoint.id(), async move {
                endpoint.sleep(endpoint.random() % 20_000).await;
                match recovers {
                    true => store.recover().await.is_ok(),
                    false => store.grow().await.is_ok(),
                }
            });
        }
        world.run();
        let word = |at: u64| world.peek(shape.base.plus(at));
        let classes = (0..40).map(|chunk| ChunkWord(word(HEADER_BYTES + chunk * 8)).class());
        let claimed = classes.filter(|class| *class == ChunkWord::TABLE).count();
        let levels = (1..28).take_while(|level| word(64 + level * 8) != 0);
        let needed: u64 = levels.map(|level| (192 << level) / 64).sum();
        assert!(needed > 0, "seed {seed}: there are chunks for a level");
        assert_eq!(claimed as u64, needed, "seed {seed}: chunks of levels");
    }
}

/// Each of them claimed one for itself: of 32 operations under way together 31 were too many.
#[test]
fn tasks_that_find_no_block_at_once_claim_one_chunk() {
    let (world, _, store) = built(PointerArray::new(64), 40, 64 << 10);
    let put = async |key| store.upsert(&name(key), b"value").await;
    let puts = (0..32).map(put);
    let ended = world.block_on(together(puts));
    assert!(ended.iter().all(Result::is_ok));
    assert_eq!(store.counts().claims, 1);
}

/// One that has claimed nothing for long would else search once for each chunk that others took.
#[test]
fn a_client_passes_by_the_chunks_that_others_have_claimed() {
    let (world, shape, store) = built(PointerArray::new(4096), 64, 256);
    store.has_chunks(20);
    for key in 0..40 {
        assert_eq!(world.block_on(store.upsert(&name(key), &[7; 64])), Ok(()));
    }
    let scheme = AnyScheme::from(Optimistic::new(world.endpoint(), Backoff::NONE));
    let late = world.block_on(Store::open(scheme, PointerArray::new(4096), shape)).unwrap();
    late.has_chunks(1);
    let of = |chunks| world.block_on(late.chunks_claimed(chunks)).unwrap();
    assert_eq!(store.counts().claims, 20);
    assert_eq!((of(1), of(3), of(64)), (1, 3, 20));
    late.has_chunks(30);
    assert_eq!((of(20), of(64)), (30, 30), "it knows what it knew");
}

/// It may hold what one task has at a time when its executor turns to others.
#[test]
fn a_task_that_is_polled_no_more_keeps_no_other_from_a_block() {
    for polls in 1..40 {
        let (world, _, store) = built(PointerArray::new(64), 40, 64 << 10);
        let key = name(1);
        let mut first = Box::pin(store.upsert(&key, b"value"));
        if world.block_on(polled(&mut first, polls)).is_some() {
            assert!(polls > 4, "an operation has several round trips");
            return;
        }
        assert_eq!(world.block_on(store.upsert(&name(2), b"value")), Ok(()), "{polls} polls");
        assert_eq!(world.block_on(first), Ok(()), "{polls} polls");
    }
    panic!("it never ends");
}

/// So many keys as a group has slots, which all find one.
const FULL: std::ops::Range<u64> = 0..24;

/// A client found no run of chunks, since another one had claimed the last, and refused the key
/// though that level came a moment later.
#[test]
fn a_level_that_another_client_is_making_is_waited_for() {
    for seed in 0..200 {
        let weakness = Weakness { late_ns_max: 20_000, late: Ratio::one_in(3), ..Weakness::FULL };
        let world = World::new(Config { seed, weakness, endpoints: 8, ..Config::default() });
        let index = Race::new(1);
        let (index_bytes, index_tag) = (index.bytes(), index.tag());
        let base = Addr::from_bits(0);
        let mut shape = Shape { base, chunks: 60, chunk_bytes: 64, index_bytes, index_tag };
        shape.base = world.region(world.node(), shape.bytes());
        world.block_on(shape.create(&world.endpoint())).unwrap();
        let [one, two, three] = std::array::from_fn(|_| {
            let scheme = AnyScheme::from(Optimistic::new(world.endpoint(), Backoff::DEFAULT));
            Rc::new(world.block_on(Store::open(scheme, index, shape)).unwrap())
        });
        for key in FULL {
            world.block_on(one.insert(&name(key), b"filler")).unwrap();
        }
        assert_eq!(one.counts().growths, 0, "these keys all find a slot");
        // All that is left but a run of six, and a chunk for each new value, is another client's.
        let other = world.endpoint().id().bits();
        let word = |chunk: u64| shape.base.plus(512 + chunk * 8);
        let blank: Vec<u64> = (0..54).filter(|&chunk| world.peek(word(chunk)) == 0).collect();
        for &chunk in &blank[3..] {
            let theirs = ChunkWord::new().with(ChunkWord::OWNER, other).with(ChunkWord::CLASS, 60);
            world.poke(word(chunk), theirs.0);
        }
        let inserted = [one, two, three].map(|store| {
            let id = store.scheme().endpoint().id();
            let key = name(1_000 + id.bits());
            world.spawn(id, async move { store.insert(&key, b"new").await })
        });
        world.run();
        for (client, task) in inserted.iter().enumerate() {
            assert_eq!(task.take(), Some(Ok(())), "seed {seed}, client {client}");
        }
    }
}

#[test]
fn a_level_outlives_the_client_that_made_it() {
    let (world, shape, store) = built(Race::new(1), 12, 256);
    let maker = world.endpoint();
    let scheme = AnyScheme::from(Optimistic::new(maker.clone(), Backoff::NONE));
    let made = world.block_on(Store::open(scheme, Race::new(1), shape)).unwrap();
    world.block_on(store.insert(&name(1), b"value")).unwrap();
    world.block_on(made.grow()).unwrap();
    world.block_on(made.update(&name(1), b"moved")).unwrap();
    world.kill(maker.id());
    world.run();
    // This client knows of no level when it looks for chunks of the dead.
    world.block_on(store.recover()).unwrap();
    let mut kept = 2;
    while world.block_on(store.insert(&name(kept), &name(kept))).is_ok() {
        kept += 1;
    }
    assert_eq!(world.block_on(store.get(&name(1))), Ok(Some(b"moved".to_vec())));
    for key in 2..kept {
        assert_eq!(world.block_on(store.get(&name(key))), Ok(Some(name(key))), "{key} of {kept}");
    }
    assert!(kept > 24, "{kept}");
}

#[test]
fn a_damaged_block_stays_an_error_where_the_index_grows() {
    let (world, shape, store) = built(Race::new(1), 40, 256);
    for key in 0..12 {
        world.block_on(store.insert(&name(key), &[key as u8 + 1; 9])).unwrap();
    }
    let first = shape.base.plus(shape.bytes() - 40 * 256);
    let mut words = (0..40 * 32).map(|word| first.plus(word * 8));
    let damaged = words.find(|&addr| world.peek(addr) == u64::from_le_bytes([8; 8]));
    world.poke(damaged.expect("it lies in a chunk"), 0);
    for _ in 0..2 {
        world.block_on(store.grow()).unwrap();
        assert_eq!(world.block_on(store.get(&name(7))), Err(ReadError::Corrupt));
        for key in (0..12).filter(|key| *key != 7) {
            let value = vec![key as u8 + 1; 9];
            assert_eq!(world.block_on(store.get(&name(key))), Ok(Some(value.clone())));
            world.block_on(store.update(&name(key), &value)).unwrap();
        }
        assert_eq!(world.block_on(store.get(&name(7))), Err(ReadError::Corrupt));
        assert_eq!(world.block_on(store.delete(&name(7))), Err(WriteError::Corrupt));
    }
    world.block_on(store.insert(&name(20), b"new")).unwrap();
}

#[test]
fn chunks_of_those_who_leave_are_taken_over_with_what_lies_in_them() {
    let (world, shape, store) = built(PointerArray::new(64), 2, 256);
    for key in 0..4 {
        world.block_on(store.insert(&name(key), &name(key))).unwrap();
    }
    world.block_on(store.delete(&name(3))).unwrap();
    world.block_on(store.close()).unwrap();
    assert_eq!(store.census(), farlock_kv::Census::default());
    let scheme = AnyScheme::from(Optimistic::new(world.endpoint(), Backoff::NONE));
    let next = world.block_on(Store::open(scheme, PointerArray::new(64), shape)).unwrap();
    let mut more = 0;
    while world.block_on(next.insert(&name(10 + more), b"another")).is_ok() {
        more += 1;
    }
    assert_eq!(more, 2 * 6 - 3, "all that is not in use");
    for key in 0..3 {
        assert_eq!(world.block_on(next.get(&name(key))), Ok(Some(name(key))));
    }
}

#[test]
fn a_chunk_whose_claim_was_dropped_is_not_lost_to_its_client() {
    let mut dropped = 0;
    for polls in 1..20 {
        let (world, _, store) = built(PointerArray::new(4), 1, 256);
        let ended = world.block_on(polled(store.insert(&name(1), b"dropped"), polls));
        dropped += u64::from(ended.is_none());
        world.block_on(store.settle());
        world.block_on(store.insert(&name(2), b"another")).unwrap();
        let census = store.census();
        assert_eq!((census.in_hand, census.published + census.free), (0, 6), "{polls} polls");
    }
    assert!(dropped >= 4, "an insertion waits several times: {dropped}");
}

/// All pairs, in the order of their keys. Between two steps of a scan something is done.
fn scanned(
    world: &World,
    store: &Plain<Race>,
    mut meanwhile: impl FnMut(),
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut pairs, mut cursor) = (Vec::new(), None);
    loop {
        let (found, next) = world.block_on(store.scan(cursor)).unwrap();
        pairs.extend(found.into_iter().map(Result::unwrap));
        meanwhile();
        if next.is_none() {
            pairs.sort();
            return pairs;
        }
        cursor = next;
    }
}

#[test]
fn a_scan_meets_each_key_once_also_while_the_index_grows() {
    const KEYS: u64 = 600;
    for grows in [false, true] {
        let (world, _, store) = built(Race::new(64), 1_000, 1_024);
        for key in 0..KEYS {
            world.block_on(store.insert(&name(key), &key.to_le_bytes())).unwrap();
        }
        let mut next = KEYS;
        let pairs = scanned(&world, &store, || {
            if grows {
                for _ in 0..500 {
                    world.block_on(store.insert(&name(next), b"later")).unwrap();
                    next += 1;
                }
            }
        });
        assert_eq!(store.counts().growths > 0, grows);
        let early: Vec<_> = pairs.iter().filter(|(_, value)| value != b"later").collect();
        assert_eq!(early.len() as u64, KEYS, "grows {grows}");
        let keys: std::collections::BTreeSet<_> = pairs.iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), pairs.len(), "no key twice");
        assert!(early.iter().all(|(key, value)| key == value));
        // A client that comes later sees all of them, wherever they are.
        assert_eq!(scanned(&world, &store, || {}).len() as u64, next);
    }
}

#[test]
fn a_client_that_comes_to_a_full_store_does_not_look_through_it_all() {
    const KEYS: u64 = 600;
    let (world, shape, store) = built(Race::new(64), 400, 1_024);
    for key in 0..KEYS {
        world.block_on(store.insert(&name(key), b"a value")).unwrap();
    }
    world.block_on(store.close()).unwrap();
    let scheme = AnyScheme::from(Optimistic::new(world.endpoint(), Backoff::NONE));
    let next = world.block_on(Store::open(scheme, Race::new(64), shape)).unwrap();
    let id = next.scheme().endpoint().id();
    let before = world.posted(id);
    world.block_on(next.insert(&name(KEYS), b"a value")).unwrap();
    let posted = world.posted(id) - before;
    println!("{posted} verbs");
    // Two chunks of 25 blocks, of each of which the count, the block and its key's slots are read.
    assert!(posted < 400, "{posted}");
    // Where no chunk is left that was never used all of them are.
    next.has_chunks(30);
    for key in (0..KEYS).step_by(2) {
        world.block_on(next.delete(&name(key))).unwrap();
    }
    for key in (0..KEYS).step_by(2) {
        world.block_on(next.insert(&name(key), b"another")).unwrap();
    }
}

/// As many blocks as a chunk has would keep one operation for as long as it takes to look at all.
#[test]
fn a_client_looks_at_a_part_of_a_chunk_that_it_takes_over() {
    const KEYS: u64 = 1_500;
    let (world, shape, store) = built(Race::new(160), 4, 1 << 16);
    for key in 0..KEYS {
        world.block_on(store.insert(&name(key), &name(key))).unwrap();
    }
    world.block_on(store.close()).unwrap();
    let scheme = AnyScheme::from(Optimistic::new(world.endpoint(), Backoff::NONE));
    let next = world.block_on(Store::open(scheme, Race::new(160), shape)).unwrap();
    next.has_chunks(3);
    let id = next.scheme().endpoint().id();
    let mut most = 0;
    // Blocks come free that it has looked at, and such that it has not.
    for round in 0..3 {
        for key in (round..KEYS).step_by(3) {
            let before = world.posted(id);
            if key % 2 == 0 {
                world.block_on(next.update(&name(key), b"another")).unwrap();
            } else {
                world.block_on(next.delete(&name(key))).unwrap();
                world.block_on(next.insert(&name(key), b"another")).unwrap();
            }
            most = most.max(world.posted(id) - before);
        }
        for key in 0..KEYS {
            let found = world.block_on(next.get(&name(key))).unwrap().unwrap();
            let expected = if key % 3 > round { name(key) } else { b"another".to_vec() };
            assert_eq!(found, expected, "{key} in round {round}");
        }
    }
    println!("{most} verbs at most");
    assert!(most < 3_000, "{most}");
    world.block_on(next.recover()).unwrap();
    world.block_on(next.audit()).unwrap();
    assert_eq!(next.census().published, KEYS);
}

/// Fills a store with values of this length, and removes them all. Returns how many there were.
fn fills_and_empties<I: Index>(world: &World, store: &Plain<I>, length: usize) -> u64 {
    let insert = |key| world.block_on(store.insert(&name(key), &vec![length as u8; length]));
    let fits = (0..).find(|&key| insert(key).is_err()).expect("there is an end");
    assert_eq!(insert(fits), Err(WriteError::PoolFull), "{length} bytes");
    for key in 0..fits {
        let found = world.block_on(store.get(&name(key)));
        assert_eq!(found, Ok(Some(vec![length as u8; length])), "key {key}");
        assert_eq!(world.block_on(store.delete(&name(key))), Ok(()), "key {key}");
    }
    fits
}

/// A store that had been full of pairs of one length had no room for others any more.
#[test]
fn memory_of_removed_pairs_is_for_pairs_of_any_length() {
    let (world, shape, store) = built(PointerArray::new(4096), 4, 4096);
    let open = || {
        let scheme = AnyScheme::from(Optimistic::new(world.endpoint(), Backoff::NONE));
        world.block_on(Store::open(scheme, PointerArray::new(4096), shape)).unwrap()
    };
    let empty: Vec<u64> = [8, 72, 500, 3_000, 200]
        .map(|length| {
            let (world, _, store) = built(PointerArray::new(4096), 4, 4096);
            fills_and_empties(&world, &store, length)
        })
        .into();
    assert_eq!(empty, [4 * 102, 4 * 39, 4 * 6, 4, 4 * 17]);
    let mut fits = Vec::new();
    for length in [3_000, 500, 72, 8] {
        fits.push(fills_and_empties(&world, &store, length));
    }
    assert_eq!(fits, [4, 4 * 6, 4 * 39, 4 * 102], "shorter than before: nothing is in the way");
    // Another client, once the first has closed the store; and one, once it is dead.
    world.block_on(store.close()).unwrap();
    let late = open();
    let counts = 102 * 8;
    assert_eq!(fills_and_empties(&world, &late, 72), 4 * ((4096 - counts) / 96));
    world.kill(late.scheme().endpoint().id());
    world.run();
    let heir = open();
    for length in [500, 3_000, 200, 8, 3_000] {
        fits.push(fills_and_empties(&world, &heir, length));
    }
    assert_eq!(fits[4..], [4 * 5, 4, 4 * 14, 4 * 102, 4], "counts of 102 blocks are in the way");
}

/// What is left of a value of one class may look like a block of another that is in use.
#[test]
fn a_chunk_with_what_looks_like_blocks_gets_another_class() {
    // A chunk's blocks have been used once, so that the next ones are in their third use.
    let third = [3_u64; 375].map(u64::to_le_bytes).concat();
    let (world, _, store) = built(PointerArray::new(4096), 4, 4096);
    for key in 0..4 {
        world.block_on(store.insert(&name(key), &third)).unwrap();
    }
    for key in 0..4 {
        world.block_on(store.delete(&name(key))).unwrap();
    }
    world.block_on(store.insert(&name(1), b"short")).unwrap();
    world.block_on(store.delete(&name(1))).unwrap();
    assert_eq!(store.counts().reclassed, 1);
    let counts = 102 * 8;
    assert_eq!(fills_and_empties(&world, &store, 72), 3 * 39 + (4096 - counts) / 96);
}
