//! The skip list against plain maps: alone step by step, and among threads by what they count.
#![cfg(feature = "baseline")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use farlock_local::baseline::{Park, TreeEx};
use farlock_local::skiplist::{
    ByNode, ByRange, Coordination, RangeSkipMap, RangeSkipSet, SkipMap, SkipSet,
};
use farlock_local::{IndexedLock, ListEx};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u32),
    Remove(u64),
    Get(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // The first and the last key there are lie among the others.
    let key = || (0..40_u64).prop_map(|key| if key == 39 { u64::MAX } else { key });
    let step = prop_oneof![
        (key(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        key().prop_map(Step::Remove),
        key().prop_map(Step::Get),
    ];
    proptest::collection::vec(step, 1..300)
}

fn like_a_model<C: Coordination + 'static>(steps: &[Step]) -> Result<(), TestCaseError> {
    let map = SkipMap::<u32, C>::default();
    let mut model = BTreeMap::new();
    for step in steps {
        match *step {
            Step::Insert(key, value) => {
                let new = !model.contains_key(&key);
                model.entry(key).or_insert(value);
                prop_assert_eq!(map.insert(key, value), new);
            }
            Step::Remove(key) => prop_assert_eq!(map.remove(key), model.remove(&key).is_some()),
            Step::Get(key) => {
                let found = map.get(key);
                prop_assert_eq!(found.as_deref(), model.get(&key));
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn it_is_a_map(steps in steps()) {
        like_a_model::<ByRange<ListEx>>(&steps)?;
        like_a_model::<ByRange<IndexedLock>>(&steps)?;
        like_a_model::<ByNode>(&steps)?;
    }
}

/// Each key is in, in the end, exactly if it went in once more than out.
fn among_threads<C: Coordination + 'static>() {
    const KEYS: u64 = 64;
    const ROUNDS: u64 = 8_000;
    let set = SkipSet::<C>::default();
    let balance: Vec<_> = (0..KEYS).map(|_| AtomicI64::new(0)).collect();
    let work = |seed: u64| {
        let mut dice = seed;
        for _ in 0..ROUNDS {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let key = (dice >> 33) % KEYS;
            let change = match (dice >> 50) % 3 {
                0 => i64::from(set.insert(key)),
                1 => -i64::from(set.remove(key)),
                _ => {
                    set.contains(key);
                    0
                }
            };
            balance[key as usize].fetch_add(change, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        (1..=4).for_each(|seed| {
            scope.spawn(move || work(seed));
        });
    });
    for (key, balance) in (0..).zip(balance) {
        assert_eq!(i64::from(set.contains(key)), balance.into_inner(), "key {key}");
    }
}

#[test]
fn no_update_is_lost_or_done_twice() {
    among_threads::<ByRange<ListEx>>();
    among_threads::<ByRange<IndexedLock>>();
    among_threads::<ByRange<TreeEx<Park>>>();
    among_threads::<ByNode>();
}

#[test]
fn a_value_stays_while_it_is_looked_at() {
    let map = RangeSkipMap::<_>::default();
    map.insert(1, String::from("one"));
    let one = map.get(1).unwrap();
    assert!(map.remove(1));
    assert!(!map.contains(1));
    assert_eq!(*one, "one");
}

#[test]
fn a_map_drops_its_values() {
    let value = Arc::new(());
    let map = RangeSkipMap::<_>::default();
    (0..100).for_each(|key| {
        map.insert(key, Arc::clone(&value));
    });
    assert!(!map.insert(7, Arc::clone(&value)), "and what it does not take");
    drop(map);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn a_set_of_ranges_needs_less_memory_than_one_of_mutexes() {
    let saved = SkipSet::<ByNode>::node_bytes(1) - RangeSkipSet::<ListEx>::node_bytes(1);
    assert_eq!(saved, size_of::<std::sync::Mutex<()>>());
}
