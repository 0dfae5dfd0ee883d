//! Specification: what was put into a store by no verb is there as if it had been inserted.

use crate::scene::any::AnyScheme;
use farlock_fabric::Addr;
use farlock_kv::index::{PointerArray, Race, Smart};
use farlock_kv::sync::{Backoff, Optimistic};
use farlock_kv::{Filling, Index, Memory, Shape, Store, WriteError};
use farlock_sim::{Config, Handle, World};

struct Words(Handle);

impl Memory for Words {
    fn peek(&self, addr: Addr) -> u64 {
        self.0.peek(addr)
    }

    fn poke(&mut self, addr: Addr, word: u64) {
        self.0.poke(addr, word);
    }
}

fn name(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Fills a store with every second key, and uses it.
fn filled<I: Index + Copy>(index: I, keys: u64, chunk_bytes: u64) {
    let world = World::new(Config::default());
    let (index_bytes, index_tag) = (index.bytes(), index.tag());
    let base = Addr::from_bits(0);
    let mut shape = Shape { base, chunks: 200, chunk_bytes, index_bytes, index_tag };
    shape.base = world.region(world.node(), shape.bytes());
    let owner = world.endpoint();
    world.block_on(shape.create(&owner)).unwrap();
    let (mut filling, mut words) =
        (Filling::new(index, shape, farlock_fabric::Endpoint::id(&owner)), Words(world.handle()));
    let endpoint = world.endpoint();
    world.introduce();
    world.block_on(async {
        let scheme = AnyScheme::from(Optimistic::new(endpoint, Backoff::NONE));
        let store = Store::open(scheme, index, shape).await.unwrap();
        // A client that has chunks already, and one that claims them meanwhile.
        store.insert(&name(1), b"one").await.unwrap();
        for key in (0..keys).step_by(2) {
            filling.put(&mut words, &name(key), &key.to_be_bytes()).unwrap();
            if key % 16 == 0 {
                store.insert(&name(key + 3), b"more").await.unwrap();
            }
        }
        for key in (0..keys).step_by(2) {
            assert_eq!(store.get(&name(key)).await.unwrap(), Some(key.to_be_bytes().to_vec()));
            store.update(&name(key), b"changed").await.unwrap();
            assert_eq!(store.get(&name(key)).await.unwrap(), Some(b"changed".to_vec()));
            assert_eq!(store.insert(&name(key), b"x").await, Err(WriteError::Exists));
            store.delete(&name(key)).await.unwrap();
            assert_eq!(store.get(&name(key)).await.unwrap(), None);
        }
        assert_eq!(store.get(&name(1)).await.unwrap(), Some(b"one".to_vec()));
        assert_eq!(store.counts().rereads, 0);
    });
}

#[test]
fn a_pointer_array_that_was_filled() {
    filled(PointerArray::new(300), 256, 1_024);
}

#[test]
fn a_hash_table_that_was_filled() {
    filled(Race::for_keys(300), 256, 1_024);
}

#[test]
fn a_tree_that_was_filled() {
    filled(Smart::new(), 256, 4_096);
    filled(Smart::with_places(1), 700, 4_096);
}

#[test]
fn a_filling_says_what_it_has_no_room_for() {
    let world = World::new(Config::default());
    let index = PointerArray::new(4);
    let base = Addr::from_bits(0);
    let mut shape = Shape { base, chunks: 1, chunk_bytes: 64, index_bytes: 32, index_tag: 1 };
    shape.base = world.region(world.node(), shape.bytes());
    let owner = farlock_fabric::Endpoint::id(&world.endpoint());
    let (mut filling, mut words) = (Filling::new(index, shape, owner), Words(world.handle()));
    assert_eq!(filling.put(&mut words, b"", b""), Err(WriteError::BadKey));
    assert_eq!(filling.put(&mut words, &name(4), b""), Err(WriteError::BadKey));
    assert_eq!(filling.put(&mut words, &name(0), &[0; 99]), Err(WriteError::TooLong));
    assert_eq!(filling.put(&mut words, &name(0), b"one"), Ok(()));
    assert_eq!(filling.put(&mut words, &name(0), b"two"), Err(WriteError::IndexFull));
    assert_eq!(filling.put(&mut words, &name(1), b"two"), Err(WriteError::PoolFull));
}
