//! Specification: what an operation costs where each verb takes a round trip, with and without a
//! memory of where keys were; and that what is remembered is never taken for what is there.

use std::cell::Cell;

use crate::scene::name;
use farlock_fabric::hook::Hook;
use farlock_fabric::{Addr, Link, Posted, Verb};
use farlock_kv::index::Race;
use farlock_kv::sync::{Backoff, Optimistic};
use farlock_kv::{Index, ReadError, Scheme, Shape, Store};
use farlock_sim::{Config, SimEndpoint, World};

/// Counts what is waited for: doorbells, but for those of which nobody awaits the end.
struct Trips {
    inner: SimEndpoint,
    trips: Cell<u32>,
}

impl Hook for Trips {
    type Inner = SimEndpoint;

    fn inner(&self) -> &SimEndpoint {
        &self.inner
    }

    fn post(&self, verb: Verb<'_>) -> Posted {
        self.trips.set(self.trips.get() + 1);
        farlock_fabric::Endpoint::post(&self.inner, verb)
    }

    fn post_aside(&self, verb: Verb<'_>) -> Posted {
        farlock_fabric::Endpoint::post(&self.inner, verb)
    }

    fn post_chain(&self, chain: &[Link<'_>]) -> Posted {
        self.trips.set(self.trips.get() + 1);
        farlock_fabric::Endpoint::post_chain(&self.inner, chain)
    }
}

type Counted = Store<Optimistic<Trips>, Race>;

const INDEX: Race = Race::new(16);

struct Scene {
    world: World,
    shape: Shape,
}

impl Scene {
    fn new() -> Self {
        let world = World::new(Config { seed: 7, ..Config::default() });
        let (index_bytes, index_tag) = (INDEX.bytes(), INDEX.tag());
        let base = Addr::from_bits(0);
        let mut shape = Shape { base, chunks: 40, chunk_bytes: 4096, index_bytes, index_tag };
        shape.base = world.region(world.node(), shape.bytes());
        world.block_on(shape.create(&world.endpoint())).expect("verbs do not fail here");
        Self { world, shape }
    }

    fn open(&self) -> Counted {
        let endpoint = Trips { inner: self.world.endpoint(), trips: Cell::new(0) };
        let scheme = Optimistic::new(endpoint, Backoff::NONE);
        self.world.block_on(Store::open(scheme, INDEX, self.shape)).expect("it is there")
    }

    /// How many round trips it took, and what came of it.
    fn trips<T>(&self, store: &Counted, operation: impl Future<Output = T>) -> (u32, T) {
        let trips = || store.scheme().endpoint().trips.get();
        let before = trips();
        let ended = self.world.block_on(operation);
        (trips() - before, ended)
    }
}

type Got = Result<Option<Vec<u8>>, ReadError>;

fn got(value: &[u8]) -> Got {
    Ok(Some(value.to_vec()))
}

#[test]
fn a_key_that_is_not_remembered_takes_two_to_get_and_three_to_change() {
    let scene = Scene::new();
    let (one, other) = (scene.open(), scene.open());
    scene.world.block_on(one.insert(&name(1), b"first")).unwrap();
    for remembers in [false, true] {
        let other = if remembers { scene.open().remembering() } else { scene.open() };
        assert_eq!(scene.trips(&other, other.get(&name(1))), (2, got(b"first")));
    }
    // Its chunk is claimed with its first block.
    scene.world.block_on(other.update(&name(1), b"second")).unwrap();
    assert_eq!(scene.trips(&other, other.update(&name(1), b"third")), (3, Ok(())));
    assert_eq!(scene.trips(&other, other.delete(&name(1))), (3, Ok(())));
    assert_eq!(scene.trips(&other, other.insert(&name(1), b"anew")), (4, Ok(())));
}

#[test]
fn a_key_that_is_remembered_takes_one() {
    let scene = Scene::new();
    let store = scene.open().remembering();
    scene.world.block_on(store.insert(&name(1), b"first")).unwrap();
    assert_eq!(scene.trips(&store, store.get(&name(1))), (1, got(b"first")));
    for number in 0..20_u8 {
        assert_eq!(scene.trips(&store, store.update(&name(1), &[number])), (1, Ok(())));
    }
    assert_eq!(scene.trips(&store, store.get(&name(1))), (1, got(&[19])));
    let (key, five) = (name(1), 5_u64.to_le_bytes());
    let exact = store.compare_and_set(&key, &[19], &five);
    assert_eq!(scene.trips(&store, exact), (1, Ok(())));
    assert_eq!(scene.trips(&store, store.increment(&name(1), 2)), (1, Ok(7)));
    assert_eq!(scene.trips(&store, store.delete(&name(1))), (1, Ok(())));
    assert_eq!(scene.trips(&store, store.get(&name(1))).1, Ok(None));
    assert!(store.counts().recalled > 20);
}

#[test]
fn a_value_that_is_long_or_was_read_long_ago_is_read_before_it_is_changed() {
    let scene = Scene::new();
    let store = scene.open().remembering();
    let long = [7; 300];
    scene.world.block_on(store.insert(&name(1), &long)).unwrap();
    assert_eq!(scene.trips(&store, store.get(&name(1))), (1, got(&long)));
    assert_eq!(scene.trips(&store, store.update(&name(1), &long)), (2, Ok(())));
    scene.world.block_on(store.update(&name(1), b"short")).unwrap();
    assert_eq!(scene.trips(&store, store.update(&name(1), b"again")), (1, Ok(())));
    let endpoint = &store.scheme().endpoint().inner;
    scene.world.block_on(farlock_fabric::Endpoint::sleep(endpoint, 2_000_000_000));
    assert_eq!(scene.trips(&store, store.update(&name(1), b"late")), (2, Ok(())));
}

/// What it remembers was changed, and is changed once more while it looks at that.
#[test]
fn an_overwrite_that_comes_second_takes_no_more_than_four() {
    let scene = Scene::new();
    let open = || scene.open().remembering().absorbing();
    let (one, other) = (open(), open());
    scene.world.block_on(one.insert(&name(1), b"first")).unwrap();
    scene.world.block_on(other.upsert(&name(1), b"second")).unwrap();
    // A compare, a look at what is there instead, and one more compare.
    assert_eq!(scene.trips(&one, one.upsert(&name(1), b"third")), (3, Ok(())));
    assert_eq!(scene.trips(&one, one.upsert(&name(1), b"fourth")), (1, Ok(())));
    assert_eq!(one.counts().combined, 0, "the other one was answered before");
    assert_eq!(scene.trips(&other, other.get(&name(1))), (2, got(b"fourth")));
}

#[test]
fn what_others_have_changed_is_seen() {
    let scene = Scene::new();
    let (one, other) = (scene.open().remembering(), scene.open());
    scene.world.block_on(one.insert(&name(1), b"first")).unwrap();
    scene.world.block_on(other.update(&name(1), b"second")).unwrap();
    // Its slot says where.
    assert_eq!(scene.trips(&one, one.get(&name(1))), (2, got(b"second")));
    scene.world.block_on(other.update(&name(1), b"third")).unwrap();
    let key = name(1);
    let exact = one.compare_and_set(&key, b"second", b"wrong");
    assert_eq!(scene.world.block_on(exact), Err(farlock_kv::WriteError::Mismatch));
    assert_eq!(scene.world.block_on(one.get(&name(1))), got(b"third"));
    scene.world.block_on(other.delete(&name(1))).unwrap();
    assert_eq!(scene.world.block_on(one.get(&name(1))), Ok(None));
    scene.world.block_on(other.insert(&name(1), &8_u64.to_le_bytes())).unwrap();
    assert_eq!(scene.world.block_on(one.increment(&name(1), 1)), Ok(9));
    // A key that others change is read before it is changed again.
    scene.world.block_on(one.get(&name(1))).unwrap();
    scene.world.block_on(other.increment(&name(1), 1)).unwrap();
    assert_eq!(scene.world.block_on(one.increment(&name(1), 1)), Ok(11));
    assert_eq!(scene.trips(&one, one.increment(&name(1), 1)), (2, Ok(12)));
    assert_eq!(scene.trips(&one, one.increment(&name(1), 1)), (1, Ok(13)));
}
