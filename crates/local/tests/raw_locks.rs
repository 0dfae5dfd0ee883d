//! What every raw lock does: alone against a plain model, and among threads.
#![cfg(feature = "baseline")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farlock_local::baseline::{Park, Segments, Single, Spin, TreeEx, TreeRw};
use farlock_local::{IndexedLock, Range, RawRangeLock, RawRangeLockTimed, RawRangeRwLock};
use proptest::prelude::*;

/// Positions in these tests.
const SLOTS: usize = 24;

#[derive(Clone, Debug)]
enum Step {
    Take { start: u64, last: u64, shared: bool },
    Release(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = SLOTS as u64 - 1;
    let take = (0..=end, 0..=end, any::<bool>()).prop_map(|(one, other, shared)| Step::Take {
        start: one.min(other),
        last: one.max(other).min(one.min(other) + 6),
        shared,
    });
    let step = prop_oneof![take, (0..32_usize).prop_map(Step::Release)];
    proptest::collection::vec(step, 1..200)
}

/// Runs steps on a lock and on a list of what is held. An exact lock grants whatever may be held
/// together; others may refuse more.
fn like_a_model<L: RawRangeLock>(
    lock: &L,
    take: impl Fn(&L, Range, bool) -> Option<L::Token>,
    exact: bool,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let mut held: Vec<(Range, bool, L::Token)> = Vec::new();
    for step in steps {
        match step {
            Step::Take { start, last, shared } => {
                let range = Range::inclusive(start, last).unwrap();
                let conflict = |other: &(Range, bool, L::Token)| {
                    other.0.overlaps(range) && !(shared && other.1)
                };
                let free = !held.iter().any(conflict);
                let token = take(lock, range, shared);
                prop_assert!(free || token.is_none(), "{range} was granted twice");
                prop_assert!(!exact || !free || token.is_some(), "{range} was refused");
                held.extend(token.map(|token| (range, shared, token)));
            }
            Step::Release(which) if !held.is_empty() => {
                let (_, _, token) = held.swap_remove(which % held.len());
                lock.unlock(token);
            }
            Step::Release(_) => {}
        }
    }
    held.into_iter().for_each(|(_, _, token)| lock.unlock(token));
    let all = take(lock, Range::FULL, false);
    prop_assert!(all.is_some(), "everything is free in the end");
    all.into_iter().for_each(|token| lock.unlock(token));
    Ok(())
}

fn exclusive<L: RawRangeLock>(lock: &L, range: Range, shared: bool) -> Option<L::Token> {
    // Without shared locks a shared request is refused, which a model of both modes allows.
    if shared { None } else { lock.try_lock(range) }
}

fn either<L: RawRangeRwLock>(lock: &L, range: Range, shared: bool) -> Option<L::Token> {
    if shared { lock.try_lock_shared(range) } else { lock.try_lock(range) }
}

/// Only exclusive steps.
fn without_readers(steps: Vec<Step>) -> Vec<Step> {
    let mut steps = steps;
    for step in &mut steps {
        if let Step::Take { shared, .. } = step {
            *shared = false;
        }
    }
    steps
}

proptest! {
    #[test]
    fn the_indexed_list_is_a_range_lock(steps in steps()) {
        like_a_model(&IndexedLock::default(), exclusive, true, without_readers(steps))?;
    }

    #[test]
    fn lustres_tree_is_a_range_lock(steps in steps()) {
        like_a_model(&TreeEx::<Park>::default(), exclusive, true, without_readers(steps))?;
    }

    #[test]
    fn the_kernels_tree_is_a_range_lock(steps in steps()) {
        like_a_model(&TreeRw::<Spin>::default(), either, true, steps)?;
    }

    #[test]
    fn segments_of_one_position_are_a_range_lock(steps in steps()) {
        like_a_model(&Segments::new(SLOTS, 1), either, true, steps)?;
    }

    #[test]
    fn wide_segments_and_a_single_lock_refuse_more(steps in steps()) {
        like_a_model(&Segments::new(3, 5), either, false, steps.clone())?;
        like_a_model(&Single::default(), either, false, steps)?;
    }
}

/// Threads change pairs of numbers that only agree while no thread changes them.
fn among_threads<L: RawRangeLock>(lock: &L, take: impl Fn(&L, Range, bool) -> L::Token + Sync) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 3_000;
    let slots: Vec<_> = (0..SLOTS).map(|_| (AtomicU64::new(0), AtomicU64::new(0))).collect();
    let written = AtomicU64::new(0);
    let work = |seed: u64| {
        let mut dice = seed;
        for _ in 0..ROUNDS {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let start = (dice >> 33) as usize % SLOTS;
            let last = (start + (dice >> 40) as usize % 5).min(SLOTS - 1);
            let shared = (dice >> 50).is_multiple_of(2);
            let token = take(lock, Range::inclusive(start as u64, last as u64).unwrap(), shared);
            for (one, other) in &slots[start..=last] {
                let before = one.load(Ordering::Relaxed);
                assert_eq!(before, other.load(Ordering::Relaxed), "somebody writes here");
                if !shared {
                    one.store(before + 1, Ordering::Relaxed);
                    other.store(before + 1, Ordering::Relaxed);
                    written.fetch_add(1, Ordering::Relaxed);
                }
            }
            lock.unlock(token);
        }
    };
    thread::scope(|scope| {
        (1..=THREADS).for_each(|seed| {
            scope.spawn(move || work(seed));
        });
    });
    let sum: u64 = slots.iter().map(|(one, _)| one.load(Ordering::Relaxed)).sum();
    assert_eq!(sum, written.into_inner(), "no write was lost");
}

fn wait_exclusive<L: RawRangeLock>(lock: &L, range: Range, _: bool) -> L::Token {
    lock.lock(range)
}

fn wait_either<L: RawRangeRwLock>(lock: &L, range: Range, shared: bool) -> L::Token {
    if shared { lock.lock_shared(range) } else { lock.lock(range) }
}

#[test]
fn nobody_sees_half_of_what_another_wrote() {
    among_threads(&IndexedLock::default(), wait_exclusive);
    among_threads(&TreeEx::<Park>::default(), wait_exclusive);
    among_threads(&TreeRw::<Park>::default(), wait_either);
    among_threads(&Segments::new(SLOTS, 1), wait_either);
    among_threads(&Segments::new(4, 6), wait_either);
    among_threads(&Single::default(), wait_either);
}

#[test]
fn requests_for_a_tree_are_served_in_their_order() {
    let lock = TreeRw::<Park>::default();
    let first = lock.lock(Range::inclusive(1, 3).unwrap());
    thread::scope(|scope| {
        scope.spawn(|| lock.unlock(lock.lock(Range::inclusive(2, 7).unwrap())));
        // The section 3 example: C overlaps only B, which waits, and so waits too.
        let behind = Range::inclusive(5, 6).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Some(token) = lock.try_lock(behind) {
            lock.unlock(token);
            assert!(Instant::now() < deadline, "the second request is never seen");
        }
        lock.unlock(first);
        lock.unlock(lock.lock(behind));
    });
}

#[test]
fn an_indexed_wait_ends_at_its_deadline_or_with_the_range() {
    let lock = IndexedLock::default();
    let range = Range::new(10, 20).unwrap();
    let held = lock.lock(range);
    let soon = Instant::now() + Duration::from_millis(5);
    assert!(lock.lock_until(Range::FULL, soon).is_none());
    assert!(Instant::now() >= soon);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let later = Instant::now() + Duration::from_secs(60);
            lock.lock_until(Range::one(15), later).map(|token| lock.unlock(token)).is_some()
        });
        thread::sleep(Duration::from_millis(5));
        lock.unlock(held);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn a_token_outlives_its_lock() {
    let lock = IndexedLock::default();
    let token = lock.lock(Range::FULL);
    drop(lock);
    IndexedLock::default().unlock(token);
}
