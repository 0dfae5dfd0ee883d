//! Specification: a tree has what a sorted map has, whatever its keys are, in that order; and a
//! scan in the middle of changes tells of every key that was there all the time.

use crate::scene::any::AnyScheme;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use farlock_fabric::{Addr, Endpoint};
use farlock_kv::index::{Ordered, Smart};
use farlock_kv::sync::{Backoff, Optimistic};
use farlock_kv::{Index, Pair, ReadError, Shape, Store, WriteError};
use farlock_sim::{Config, Ended, Weakness, World};

type Kept<I> = Store<AnyScheme, I>;

fn shaped<I: Index>(world: &World, index: I, chunks: u32) -> Shape {
    let (index_bytes, index_tag) = (index.bytes(), index.tag());
    let base = Addr::from_bits(0);
    let mut shape = Shape { base, chunks, chunk_bytes: 1 << 14, index_bytes, index_tag };
    shape.base = world.region(world.node(), shape.bytes());
    world.block_on(shape.create(&world.endpoint())).expect("it is created");
    shape
}

fn opened<I: Index>(world: &World, index: I, shape: Shape) -> Kept<I> {
    let scheme = AnyScheme::from(Optimistic::new(world.endpoint(), Backoff::DEFAULT));
    world.block_on(Store::open(scheme, index, shape)).expect("it is there")
}

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

const ALL: Bounds<'static> = (Bound::Unbounded, Bound::Unbounded);

/// The first pairs within bounds, none of which is damaged here.
async fn in_order<I: Ordered>(
    store: &Kept<I>,
    (from, until): Bounds<'_>,
    most: usize,
) -> Result<Vec<Pair>, ReadError> {
    store.scan_in_order(from, until, most).await?.into_iter().collect()
}

/// The last pairs within bounds, the last one first.
async fn in_reverse<I: Ordered>(
    store: &Kept<I>,
    (from, until): Bounds<'_>,
    most: usize,
) -> Result<Vec<Pair>, ReadError> {
    store.scan_in_reverse(from, until, most).await?.into_iter().collect()
}

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A key of one of some families: with few letters, with long common parts, with any bytes.
    fn key(&mut self) -> Vec<u8> {
        let length = 1 + (self.next() % 9) as usize;
        let letters = match self.next() % 4 {
            0 => &b"ab"[..],
            1 => b"\0\x01\xff",
            2 => b"abcdefghijklmnopqrstuvwxyz0123456789",
            _ => b"a",
        };
        let mut key = if self.next().is_multiple_of(3) { vec![b'p'; 200] } else { Vec::new() };
        key.extend((0..length).map(|_| letters[(self.next() % letters.len() as u64) as usize]));
        if self.next().is_multiple_of(4) {
            key = vec![b'w', self.next() as u8];
        }
        key
    }
}

/// What a store answers, and what a sorted map does.
fn agrees<I: Ordered + Copy>(index: I, seed: u64, steps: u32) {
    let world = World::new(Config::default());
    let shape = shaped(&world, index, 400);
    let stores = [opened(&world, index, shape), opened(&world, index, shape)];
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut numbers = Numbers(seed);
    for step in 0..steps {
        let store = &stores[(numbers.next() % 2) as usize];
        let (key, value) = (numbers.key(), step.to_le_bytes().to_vec());
        match numbers.next() % 8 {
            0..=3 => {
                let ended = world.block_on(store.insert(&key, &value));
                let is_new = !model.contains_key(&key);
                assert_eq!(ended, if is_new { Ok(()) } else { Err(WriteError::Exists) });
                model.entry(key).or_insert(value);
            }
            4 => {
                let ended = world.block_on(store.delete(&key));
                let was = model.remove(&key).is_some();
                assert_eq!(ended, if was { Ok(()) } else { Err(WriteError::NotFound) });
            }
            5 => {
                assert_eq!(world.block_on(store.upsert(&key, &value)), Ok(()));
                model.insert(key, value);
            }
            6 => assert_eq!(world.block_on(store.get(&key)), Ok(model.get(&key).cloned())),
            _ => {
                let (until, most) = (numbers.key(), (numbers.next() % 20) as usize);
                let (from, until) = (key.clone().min(until.clone()), key.max(until));
                let bounds = match numbers.next() % 4 {
                    3 => (Bound::Unbounded, Bound::Excluded(&until[..])),
                    0 => (Bound::Included(&from[..]), Bound::Excluded(&until[..])),
                    1 => (Bound::Excluded(&from[..]), Bound::Included(&until[..])),
                    _ => (Bound::Included(&from[..]), Bound::Unbounded),
                };
                if from == until {
                    continue;
                }
                let found = world.block_on(in_order(store, bounds, most));
                assert_eq!(found, Ok(pairs(model.range::<[u8], _>(bounds), most)), "{bounds:?}");
                let found = world.block_on(in_reverse(store, bounds, most));
                let expected = pairs(model.range::<[u8], _>(bounds).rev(), most);
                assert_eq!(found, Ok(expected), "in reverse: {bounds:?}");
            }
        }
    }
    for store in &stores {
        let all = world.block_on(in_order(store, ALL, usize::MAX));
        assert_eq!(all, Ok(model.clone().into_iter().collect()));
        let all = world.block_on(in_reverse(store, ALL, usize::MAX));
        assert_eq!(all, Ok(model.clone().into_iter().rev().collect()));
        let (all, next) = world.block_on(store.scan(None)).expect("it is scanned");
        assert_eq!((all.len(), next), (model.len(), None));
        model.iter().for_each(|(key, value)| {
            assert_eq!(world.block_on(store.get(key)).as_ref(), Ok(&Some(value.clone())));
        });
    }
    assert!(stores[0].counts().nodes > 5, "{:?}", stores[0].counts());
}

fn pairs<'m>(found: impl Iterator<Item = (&'m Vec<u8>, &'m Vec<u8>)>, most: usize) -> Vec<Pair> {
    found.take(most).map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[test]
fn a_tree_is_a_sorted_map() {
    for seed in 1..=6 {
        agrees(Smart::new(), seed, 1_500);
        agrees(Smart::with_places(1), seed, 600);
    }
}

#[test]
fn the_longest_keys_and_all_bytes_have_their_places() {
    let world = World::new(Config::default());
    let shape = shaped(&world, Smart::new(), 60);
    let store = opened(&world, Smart::new(), shape);
    let mut keys: Vec<Vec<u8>> = (0..=255).map(|byte| vec![b'k', byte]).collect();
    keys.extend((1000..=1024).map(|length| vec![b'l'; length]));
    keys.extend([b"k".to_vec(), vec![0], vec![255]]);
    for key in &keys {
        assert_eq!(world.block_on(store.insert(key, key)), Ok(()));
    }
    for key in &keys {
        assert_eq!(world.block_on(store.get(key)), Ok(Some(key.clone())));
    }
    keys.sort();
    let all = world.block_on(in_order(&store, ALL, usize::MAX));
    assert_eq!(all.map(|all| all.into_iter().map(|(key, _)| key).collect()), Ok(keys));
    assert_eq!(world.block_on(store.get(&[b'l'; 999])), Ok(None));
    assert_eq!(world.block_on(store.get(&[0; 1025])), Err(ReadError::BadKey));
}

/// A client that knows the nodes reads a line and a block.
#[test]
fn a_read_takes_two_round_trips_where_its_node_is_known() {
    let world = World::new(Config::default());
    let shape = shaped(&world, Smart::new(), 60);
    let store = opened(&world, Smart::new(), shape);
    for number in 0..2_000_u32 {
        let key = number.to_be_bytes();
        assert_eq!(world.block_on(store.insert(&key, b"a value")), Ok(()));
    }
    let id = store.scheme_id();
    for number in 0..2_000_u32 {
        let before = world.posted(id);
        assert!(world.block_on(store.get(&number.to_be_bytes())).is_ok_and(|it| it.is_some()));
        assert_eq!(world.posted(id) - before, 2, "{number}");
    }
}

/// A page from the middle costs its blocks and the way to them, whichever way it is gone through,
/// and nothing of what lies beyond.
#[test]
fn a_scan_costs_the_same_both_ways() {
    let world = World::new(Config::default());
    let shape = shaped(&world, Smart::new(), 60);
    let store = opened(&world, Smart::new(), shape);
    let key = |number: u32| format!("{number:05}").into_bytes();
    for number in 0..2_000 {
        assert_eq!(world.block_on(store.insert(&key(number), b"a value")), Ok(()));
    }
    let cost = |bounds: (u32, u32), most: usize, is_reversed: bool| {
        let (from, until) = (key(bounds.0), key(bounds.1));
        let bounds = (Bound::Included(&from[..]), Bound::Excluded(&until[..]));
        let before = world.posted(store.scheme_id());
        let found = match is_reversed {
            false => world.block_on(in_order(&store, bounds, most)),
            true => world.block_on(in_reverse(&store, bounds, most)),
        };
        (found.expect("it is scanned").len(), world.posted(store.scheme_id()) - before)
    };
    for (bounds, most, pairs) in [((900, 1_100), 50, 50), ((950, 1_000), 500, 50)] {
        for is_reversed in [false, true] {
            let (found, posted) = cost(bounds, most, is_reversed);
            assert_eq!(found, pairs);
            // Beside the blocks: the root, four nodes and a block on the way to each end, of which
            // one may just be missed, and a node for each ten keys.
            assert!(posted <= 50 + 2 * 5 + 5, "{bounds:?}, {is_reversed}: {posted} verbs");
        }
    }
}

trait Known {
    fn scheme_id(&self) -> farlock_fabric::EndpointId;
}

impl<I: Index> Known for Kept<I> {
    fn scheme_id(&self) -> farlock_fabric::EndpointId {
        farlock_kv::Scheme::endpoint(self.scheme()).id()
    }
}

/// Keys that stay, whose values change, among others that come and go, while nodes are split and
/// replaced.
#[test]
fn a_scan_tells_of_every_key_that_stays() {
    let mut met = 0;
    for seed in 0..60 {
        let world = World::new(Config { seed, weakness: Weakness::FULL, ..Config::default() });
        let shape = shaped(&world, Smart::with_places(2), 200);
        let mut numbers = Numbers(seed + 1);
        let stay: BTreeMap<Vec<u8>, u64> = (0..25).map(|_| (numbers.key(), 0)).collect();
        let stay = Rc::new(stay);
        let first = opened(&world, Smart::with_places(2), shape);
        for key in stay.keys() {
            assert_eq!(world.block_on(first.insert(key, b"first")), Ok(()));
        }
        let left = Rc::new(Cell::new(3));
        for client in 0..3 {
            let store = opened(&world, Smart::with_places(2), shape);
            let (stay, left) = (Rc::clone(&stay), Rc::clone(&left));
            let mut numbers = Numbers(seed * 3 + client + 1_000);
            world.spawn(store.scheme_id(), async move {
                for _ in 0..40 {
                    let key = numbers.key();
                    let stays = stay.contains_key(&key);
                    match numbers.next() % 3 {
                        0 if !stays => drop(store.delete(&key).await),
                        1 => {
                            let at = (numbers.next() % stay.len() as u64) as usize;
                            let key = stay.keys().nth(at).expect("there are so many");
                            store.update(key, &numbers.next().to_le_bytes()).await.expect("it is");
                        }
                        _ => drop(store.upsert(&key, b"comes").await),
                    }
                }
                left.set(left.get() - 1);
            });
        }
        let (scans, reader) =
            (Rc::new(RefCell::new(Vec::new())), opened(&world, Smart::with_places(2), shape));
        let told = Rc::clone(&scans);
        world.spawn(reader.scheme_id(), async move {
            while left.get() > 0 {
                let all = in_order(&reader, ALL, usize::MAX).await.expect("it is scanned");
                let mut back = in_reverse(&reader, ALL, usize::MAX).await.expect("it is scanned");
                back.reverse();
                told.borrow_mut().extend([all, back]);
            }
        });
        assert_eq!(world.run(), Ended::Finished);
        for pairs in scans.borrow().iter() {
            assert!(pairs.is_sorted_by(|one, other| one.0 < other.0), "in order, each once");
            let found = pairs.iter().filter(|(key, _)| stay.contains_key(key)).count();
            assert_eq!(found, stay.len(), "seed {seed}");
        }
        met += scans.borrow().len();
    }
    assert!(met > 200, "{met} scans");
}

/// What is damaged is told where its keys would be, and the rest is there, in order.
#[test]
fn a_scan_passes_over_what_is_damaged() {
    let world = World::new(Config::default());
    let shape = shaped(&world, Smart::new(), 60);
    let store = opened(&world, Smart::new(), shape);
    let key = |number: u32| format!("k{number:03}").into_bytes();
    for number in 0..400 {
        world.block_on(store.insert(&key(number), &[number as u8; 32])).expect("there is room");
    }
    let is_damaged = |number: u32| number.is_multiple_of(7) || (100..110).contains(&number);
    let words: Vec<Addr> = (0..shape.bytes() / 8).map(|word| shape.base.plus(word * 8)).collect();
    for number in (0..400).filter(|number| is_damaged(*number)) {
        // The key, which the value follows.
        let name = u64::from_le_bytes([&key(number)[..], &[0; 4]].concat().try_into().expect("8"));
        let at = words.iter().position(|&addr| world.peek(addr) & 0xffff_ffff == name);
        world.poke(words[at.expect("it is in a block")], 0);
    }
    let (mut whole, mut damaged, mut last) = (Vec::new(), 0, None::<Vec<u8>>);
    loop {
        let from = last.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
        let found = world.block_on(store.scan_in_order(from, Bound::Unbounded, 50));
        let found = found.expect("it is scanned");
        damaged += found.iter().filter(|pair| pair.is_err()).count();
        let before = whole.len();
        whole.extend(found.into_iter().flatten().map(|(key, _)| key));
        last = whole.last().cloned();
        if whole.len() < before + 50 {
            break;
        }
    }
    let expected: Vec<Vec<u8>> = (0..400).filter(|number| !is_damaged(*number)).map(key).collect();
    let back = world.block_on(store.scan_in_reverse(ALL.0, ALL.1, usize::MAX));
    let back = back.expect("it is scanned");
    assert_eq!(back.len(), 400);
    let back = back.into_iter().rev().flatten().map(|(key, _)| key);
    assert_eq!(back.collect::<Vec<_>>(), expected);
    assert_eq!((whole.len() + damaged, whole), (400, expected));
}
