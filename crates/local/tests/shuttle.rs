//! Longer meetings of more threads than loom can search, in random orders that favour rare ones
//! (PCT: priorities with a few changes, which find a bug of that depth with a known probability).
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p farlock-local --release --test shuttle`. There are
//! `FARLOCK_SCHEDULES` schedules, which `FARLOCK_SEED` decides. Shuttle does not model weak memory:
//! that is loom's part.
#![cfg(shuttle)]

mod scenes;
#[path = "scenes/world_shuttle.rs"]
mod world;

use std::sync::Arc;

use farlock_local::{
    ListEx, ListRw, Planted, Preference, Range, RawRangeLock, RawRangeRwLock, Token,
};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicI32, Ordering};
use shuttle::{Config, Runner, thread};

const SLOTS: u64 = 12;
const THREADS: usize = 4;
const VISITS: usize = 4;
/// Changes of priority in a schedule.
const DEPTH: usize = 3;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn explore(body: impl Fn() + Clone + Send + Sync + 'static) {
    play(setting("FARLOCK_SCHEDULES", 20_000), body);
}

/// What is planted here and there needs some tens of thousands of schedules; the first that shows
/// it is the last.
fn hunt(body: impl Fn() + Clone + Send + Sync + 'static) {
    play(setting("FARLOCK_SCHEDULES", 20_000) * 20, body);
}

/// Half of the schedules by PCT, half by tossing a coin at every step.
fn play(schedules: u64, body: impl Fn() + Clone + Send + Sync + 'static) {
    let seed = setting("FARLOCK_SEED", 1);
    let half = usize::try_from(schedules / 2).expect("a number of schedules");
    let by_priorities = PctScheduler::new_from_seed(seed, DEPTH, half);
    Runner::new(by_priorities, Config::default()).run(body.clone());
    Runner::new(RandomScheduler::new_from_seed(seed, half), Config::default()).run(body);
}

/// Readers inside each slot, or -1 for a writer.
struct Room([AtomicI32; SLOTS as usize]);

impl Room {
    fn visit(&self, range: Range, shared: bool) {
        for slot in &self.0[range.start() as usize..=range.last() as usize] {
            let before = slot.fetch_add(if shared { 1 } else { -100 }, Ordering::SeqCst);
            assert!(if shared { before >= 0 } else { before == 0 }, "they met");
        }
        for slot in &self.0[range.start() as usize..=range.last() as usize] {
            slot.fetch_sub(if shared { 1 } else { -100 }, Ordering::SeqCst);
        }
    }
}

fn a_range() -> Range {
    let mut chance = shuttle::rand::thread_rng();
    let start = chance.gen_range(0..SLOTS);
    let last = chance.gen_range(start..SLOTS.min(start + 6));
    Range::inclusive(start, last).unwrap()
}

fn crowd<L: RawRangeLock + 'static>(
    lock: L,
    enter: impl Fn(&L, Range, bool) -> Option<L::Token> + Copy + Send + 'static,
) {
    let world = Arc::new((lock, Room(std::array::from_fn(|_| AtomicI32::new(0)))));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let world = world.clone();
            thread::spawn(move || {
                let (lock, room) = &*world;
                for _ in 0..VISITS {
                    let (range, shared) = (a_range(), shuttle::rand::thread_rng().gen_bool(0.5));
                    if let Some(token) = enter(lock, range, shared) {
                        room.visit(range, shared);
                        lock.unlock(token);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let all = world.0.try_lock(Range::FULL).expect("everybody has left");
    world.0.unlock(all);
}

fn enter_rw(lock: &ListRw, range: Range, shared: bool) -> Option<Token> {
    match (shuttle::rand::thread_rng().gen_ratio(1, 4), shared) {
        (true, true) => lock.try_lock_shared(range),
        (true, false) => lock.try_lock(range),
        (false, true) => Some(lock.lock_shared(range)),
        (false, false) => Some(lock.lock(range)),
    }
}

#[test]
fn exclusive_ranges() {
    explore(|| crowd(ListEx::new(), |lock, range, _| Some(lock.lock(range))));
}

#[test]
fn readers_and_writers_readers_preferred() {
    explore(|| crowd(ListRw::new(Preference::Readers), enter_rw));
}

#[test]
fn readers_and_writers_writers_preferred() {
    explore(|| crowd(ListRw::new(Preference::Writers), enter_rw));
}

#[test]
#[should_panic]
fn no_validation_is_found() {
    let lock = || ListRw::planted(Preference::Readers, Planted::NoValidation);
    hunt(move || crowd(lock(), enter_rw));
}

#[test]
#[should_panic]
fn the_old_entry_inserted_again_is_found() {
    let lock = || ListRw::planted(Preference::Readers, Planted::Reinsert);
    hunt(move || crowd(lock(), enter_rw));
}

#[test]
#[should_panic]
fn an_entry_used_again_unnoticed_is_found() {
    hunt(|| scenes::an_entry_comes_back(Planted::Reuse));
}

#[test]
#[should_panic]
fn an_entry_used_again_unnoticed_by_the_fast_path_is_found() {
    hunt(|| scenes::an_entry_comes_back_alone(Planted::ReuseAlone));
}

#[test]
#[should_panic]
fn a_reader_that_does_not_look_again_is_found() {
    hunt(|| scenes::an_entry_comes_back_behind_a_reader(Planted::NoSecondLook));
}

#[test]
fn what_is_planted_is_what_fails() {
    explore(|| {
        scenes::figure_1(Preference::Readers, Planted::No);
        scenes::writer_gives_way(Planted::No);
        scenes::an_entry_comes_back(Planted::No);
        scenes::an_entry_comes_back_alone(Planted::No);
        scenes::an_entry_comes_back_behind_a_reader(Planted::No);
        scenes::an_entry_comes_back_before_a_writer(Planted::No);
    });
}

#[test]
fn deadlines_and_dropped_tasks_leave_nothing_behind() {
    explore(|| {
        for preference in [Preference::Readers, Preference::Writers] {
            scenes::a_deadline_comes(preference);
            scenes::tasks_of_readers_and_writers_give_up(preference);
        }
        scenes::a_task_waits_and_another_gives_up();
        scenes::parts_are_lent();
    });
}
