//! ArrBench: threads read or change slots of an array under a range lock.
//!
//! Kogan, Dice, Issa, *Scalable Range Locks* (EuroSys'20), section 7.1. Between two operations a
//! thread does up to 2,048 steps of nothing. What the slots hold tells whether the lock excluded:
//! a writer changes two words of each slot, a reader finds them equal; what was in the first slot
//! when a thread came is there when it goes; and no change is lost in the end.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use farlock_local::Range;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use super::subject::Subject;
use super::threads::at_once;
use crate::latency::Latency;

/// Slots of the array, a cache line each.
pub(super) const SLOTS: usize = 256;
/// The most steps of nothing between operations.
const PAUSE_STEPS_MAX: u32 = 2_048;
/// One acquisition in so many is timed: reading a clock costs as much as an acquisition.
const SAMPLE: u64 = 8;

/// Which slots a thread asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Variant {
    /// All of them.
    Full,
    /// Its own part, and walks over it as often as there are threads.
    Disjoint,
    /// Those between two random ones.
    Random,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) variant: Variant,
    pub(super) threads: u16,
    /// Operations in a hundred that read.
    pub(super) reads: u8,
    /// Equal parts of the array, for the lock that has one for each.
    pub(super) segments: u16,
    pub(super) seconds: f64,
    pub(super) seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Operations of all threads.
    pub(super) operations: u64,
    pub(super) seconds: f64,
    /// How long acquisitions took.
    pub(super) acquire: Latency,
    /// Traces of threads that met.
    pub(super) violations: u64,
}

#[derive(Default)]
#[repr(align(64))]
struct Slot {
    value: AtomicU64,
    copy: AtomicU64,
}

impl Slot {
    fn read(&self) -> bool {
        self.value.load(Ordering::Relaxed) == self.copy.load(Ordering::Relaxed)
    }

    /// Not one atomic step: a thread that meets another here loses a change.
    fn change(&self) {
        let changed = self.value.load(Ordering::Relaxed) + 1;
        self.value.store(changed, Ordering::Relaxed);
        self.copy.store(changed, Ordering::Relaxed);
    }
}

/// What a thread did.
#[derive(Default)]
struct Tally {
    operations: u64,
    changes: u64,
    violations: u64,
    acquire: Latency,
}

/// Measures a lock.
pub(super) fn measure<S: Subject>(lock: &S, course: &Course) -> Outcome {
    let slots: Vec<Slot> = (0..SLOTS).map(|_| Slot::default()).collect();
    let time = Duration::from_secs_f64(course.seconds);
    let (tallies, elapsed) = at_once(course.threads, time, |index, start, stop| {
        start.wait();
        Thread::new(index.into(), course).run(lock, &slots, stop)
    });
    let mut outcome = Outcome { seconds: elapsed.as_secs_f64(), ..Outcome::default() };
    for tally in &tallies {
        outcome.operations += tally.operations;
        outcome.violations += tally.violations;
        outcome.acquire.add(&tally.acquire);
    }
    let changes: u64 = tallies.iter().map(|tally| tally.changes).sum();
    let kept: u64 = slots.iter().map(|slot| slot.value.load(Ordering::Relaxed)).sum();
    outcome.violations += changes.abs_diff(kept);
    outcome
}

struct Thread<'a> {
    index: usize,
    course: &'a Course,
    rng: Xoshiro256PlusPlus,
}

impl<'a> Thread<'a> {
    fn new(index: usize, course: &'a Course) -> Self {
        let seed = course.seed.wrapping_mul(1_000_003).wrapping_add(index as u64);
        Self { index, course, rng: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    fn run<S: Subject>(mut self, lock: &S, slots: &[Slot], stop: &AtomicBool) -> Tally {
        let mut tally = Tally::default();
        let walks = match self.course.variant {
            Variant::Disjoint => u64::from(self.course.threads),
            Variant::Full | Variant::Random => 1,
        };
        while !stop.load(Ordering::Relaxed) {
            let (first, last) = self.slots();
            let shared = self.rng.random_range(0..100) < self.course.reads;
            let range = Range::inclusive(first as u64, last as u64).expect("in this order");
            let token = if tally.operations.is_multiple_of(SAMPLE) {
                let began = Instant::now();
                let token = lock.take(range, shared);
                tally.acquire.record(began.elapsed().as_nanos() as u64);
                token
            } else {
                lock.take(range, shared)
            };
            operate(&slots[first..=last], shared, walks, &mut tally);
            lock.give(token);
            tally.operations += 1;
            let steps = self.rng.random_range(0..=PAUSE_STEPS_MAX);
            (0..steps).for_each(|_| black_box(()));
        }
        tally
    }

    /// The first and the last slot of an operation.
    fn slots(&mut self) -> (usize, usize) {
        match self.course.variant {
            Variant::Full => (0, SLOTS - 1),
            Variant::Disjoint => {
                let at = |index| index * SLOTS / usize::from(self.course.threads);
                (at(self.index), at(self.index + 1) - 1)
            }
            Variant::Random => {
                let mut slot = || self.rng.random_range(0..SLOTS);
                let (one, other) = (slot(), slot());
                (one.min(other), one.max(other))
            }
        }
    }
}

fn operate(slots: &[Slot], shared: bool, walks: u64, tally: &mut Tally) {
    let found = slots[0].value.load(Ordering::Relaxed);
    for _ in 0..walks {
        if shared {
            tally.violations += slots.iter().filter(|slot| !black_box(slot.read())).count() as u64;
        } else {
            slots.iter().for_each(Slot::change);
            tally.changes += slots.len() as u64;
        }
    }
    let expected = if shared { found } else { found + walks };
    tally.violations += u64::from(slots[0].value.load(Ordering::Relaxed) != expected);
}

#[cfg(test)]
mod tests {
    use farlock_local::RawRangeLock;
    use farlock_local::baseline::{Park, TreeEx};

    use super::super::subject::Exclusive;
    use super::super::table::LOCKS;
    use super::*;

    fn course(variant: Variant) -> Course {
        Course { variant, threads: 3, reads: 40, segments: 16, seconds: 0.02, seed: 1 }
    }

    #[test]
    fn every_lock_excludes_in_every_variant() {
        for lock in LOCKS.iter().filter(|lock| !["tree-ex", "tree-rw"].contains(&lock.name)) {
            for variant in [Variant::Full, Variant::Disjoint, Variant::Random] {
                let outcome = (lock.measure)(&course(variant));
                assert_eq!(outcome.violations, 0, "{} {variant}", lock.name);
                assert!(outcome.operations > 0, "{} {variant}", lock.name);
            }
        }
    }

    /// Excludes nobody from the second half.
    #[derive(Default)]
    struct Broken(Exclusive<TreeEx<Park>>);

    impl Subject for Broken {
        type Token<'a> = <TreeEx<Park> as RawRangeLock>::Token;

        fn take(&self, range: Range, shared: bool) -> Self::Token<'_> {
            let half = Range::inclusive(range.start(), range.start()).unwrap();
            self.0.take(half, shared)
        }

        fn give<'a>(&'a self, token: Self::Token<'a>) {
            self.0.give(token);
        }
    }

    #[test]
    fn a_lock_that_does_not_exclude_is_found_out() {
        let course = Course { reads: 50, seconds: 0.3, ..course(Variant::Random) };
        let outcome = measure(&Broken::default(), &course);
        assert!(outcome.violations > 0, "in {} operations", outcome.operations);
    }
}
