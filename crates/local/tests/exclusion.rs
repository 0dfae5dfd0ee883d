//! Threads that take overlapping ranges never meet inside them.
#![cfg(not(any(loom, shuttle)))]

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farlock_local::{
    ListEx, ListRw, Preference, Range, RawRangeLock, RawRangeLockTimed, RawRangeRwLock,
    RawRangeRwLockTimed,
};

const SLOTS: u64 = 16;
const THREADS: u64 = 8;
const ROUNDS: u64 = 20_000;

/// Counts the holders inside each slot: -1 a writer, n > 0 readers.
struct Room([AtomicI32; SLOTS as usize]);

impl Room {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicI32::new(0)))
    }

    fn slots(&self, range: Range) -> &[AtomicI32] {
        &self.0[range.start() as usize..=range.last() as usize]
    }

    fn visit(&self, range: Range, shared: bool) {
        for slot in self.slots(range) {
            if shared {
                assert!(slot.fetch_add(1, Ordering::Relaxed) >= 0, "a reader met a writer");
            } else {
                assert_eq!(slot.swap(-1, Ordering::Relaxed), 0, "a writer met somebody");
            }
        }
        for slot in self.slots(range) {
            if shared {
                assert!(slot.fetch_sub(1, Ordering::Relaxed) > 0, "a writer met a reader");
            } else {
                assert_eq!(slot.swap(0, Ordering::Relaxed), -1, "somebody met a writer");
            }
        }
    }
}

/// A generator good enough to choose ranges (Marsaglia's xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn range(&mut self) -> Range {
        let start = self.below(SLOTS);
        let last = start + self.below(SLOTS - start).min(self.below(SLOTS));
        Range::inclusive(start, last).expect("a range")
    }
}

fn crowd(visit: impl Fn(&mut Chance) + Sync) {
    std::thread::scope(|scope| {
        for seed in 1..=THREADS {
            let visit = &visit;
            scope.spawn(move || {
                let mut chance = Chance(seed << 32 | 0x9E37_79B9);
                (0..ROUNDS).for_each(|_| visit(&mut chance));
            });
        }
    });
}

#[test]
fn exclusive_ranges_exclude() {
    let (lock, room) = (ListEx::new(), Room::new());
    crowd(|chance| {
        let range = chance.range();
        let token = lock.lock(range);
        room.visit(range, false);
        lock.unlock(token);
    });
}

#[test]
fn readers_and_writers_exclude_whichever_is_preferred() {
    for preference in [Preference::Readers, Preference::Writers] {
        let (lock, room) = (ListRw::new(preference), Room::new());
        crowd(|chance| {
            let (range, shared) = (chance.range(), chance.below(3) > 0);
            let token = if shared { lock.lock_shared(range) } else { lock.lock(range) };
            room.visit(range, shared);
            lock.unlock(token);
        });
    }
}

#[test]
fn tries_and_timeouts_exclude_too_and_leave_nothing_behind() {
    for preference in [Preference::Readers, Preference::Writers] {
        let (lock, room) = (ListRw::new(preference), Room::new());
        let gave_up = AtomicU64::new(0);
        crowd(|chance| {
            let (range, shared) = (chance.range(), chance.below(2) > 0);
            let soon = Instant::now() + Duration::from_micros(chance.below(20));
            let token = match (chance.below(2), shared) {
                (0, true) => lock.try_lock_shared(range),
                (0, false) => lock.try_lock(range),
                (_, true) => lock.lock_shared_until(range, soon),
                (_, false) => lock.lock_until(range, soon),
            };
            let Some(token) = token else {
                gave_up.fetch_add(1, Ordering::Relaxed);
                return;
            };
            room.visit(range, shared);
            lock.unlock(token);
        });
        let all = lock.try_lock(Range::FULL).expect("everybody has left");
        lock.unlock(all);
    }
}

#[test]
fn one_who_wants_everything_gets_it_among_many_who_want_little() {
    let (lock, done) = (ListEx::new(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for slot in 0..4 {
            let (lock, done) = (&lock, &done);
            scope.spawn(move || {
                while done.load(Ordering::Relaxed) < 50 {
                    let token = lock.lock(Range::one(slot));
                    lock.unlock(token);
                }
            });
        }
        for _ in 0..50 {
            let token = lock.lock(Range::FULL);
            lock.unlock(token);
            done.fetch_add(1, Ordering::Relaxed);
        }
    });
}

#[test]
fn a_holder_of_a_range_gets_a_second_one_while_another_is_impatient_for_the_first() {
    let lock = ListEx::new();
    let first = lock.lock(Range::one(1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let all = lock.lock(Range::FULL);
            lock.unlock(all);
        });
        for _ in 0..200 {
            let second = lock.lock(Range::one(2));
            lock.unlock(second);
        }
        lock.unlock(first);
    });
}

#[test]
fn a_lock_may_go_before_its_tokens() {
    let lock = ListEx::new();
    let token = lock.lock(Range::one(1));
    drop(lock);
    let other = ListEx::new();
    other.unlock(token);
    let all = other.try_lock(Range::FULL).expect("nothing is held here");
    other.unlock(all);
}
