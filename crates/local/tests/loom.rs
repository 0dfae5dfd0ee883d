//! Every order in which two or three threads can meet in a list, up to a bound on preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p farlock-local --release --test loom`. What a lock protects
//! is a cell that loom watches: two accesses that nothing orders are an error, so the tests judge
//! memory orderings as well as exclusion. A thread that is never woken is an error, too.
#![cfg(loom)]

mod scenes;
#[path = "scenes/world_loom.rs"]
mod world;

use farlock_local::{ListEx, ListRw, Planted, Preference, Range, RawRangeLock, RawRangeRwLock};
use loom::sync::Arc;
use scenes::{an_entry_comes_back, an_entry_comes_back_alone, figure_1, writer_gives_way};
use world::{Place, thread};

use Preemptions::{All, AtMost};

/// Switches between threads that nothing forced.
#[derive(Clone, Copy)]
enum Preemptions {
    /// As many as there can be: every order.
    All,
    /// At most so many, and as many more as the environment says.
    AtMost(usize),
}

fn every_order(preemptions: Preemptions, body: impl Fn() + Send + Sync + 'static) {
    let more = std::env::var("FARLOCK_MORE_PREEMPTIONS").unwrap_or_else(|_| "0".to_owned());
    let more: usize = more.parse().expect("a number of preemptions");
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = match preemptions {
        Preemptions::All => None,
        Preemptions::AtMost(bound) => Some(bound + more),
    };
    builder.max_branches = 20_000;
    let orders = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = orders.clone();
    builder.check(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        body();
    });
    println!("{} orders", orders.load(std::sync::atomic::Ordering::Relaxed));
}

/// Each thread takes its ranges in turn and visits the place in them.
fn crowd<L: RawRangeLock + 'static>(
    make: impl Fn() -> L,
    visits: &'static [&'static [(Range, Visit)]],
    enter: impl Fn(&L, Range, Visit) -> Option<L::Token> + Copy + Send + 'static,
) {
    let lock = Arc::new(make());
    let place = Arc::new(Place::new());
    let run = move |lock: &L, place: &Place, visits: &[(Range, Visit)]| {
        for &(range, visit) in visits {
            let Some(token) = enter(lock, range, visit) else { continue };
            match visit {
                Visit::Write | Visit::TryWrite => place.write(),
                Visit::Read => place.read(),
                Visit::Elsewhere => {}
            }
            lock.unlock(token);
        }
    };
    let threads: Vec<_> = visits[1..]
        .iter()
        .map(|&visits| {
            let (lock, place) = (lock.clone(), place.clone());
            thread::spawn(move || run(&lock, &place, visits))
        })
        .collect();
    run(&lock, &place, visits[0]);
    for thread in threads {
        thread.join().unwrap();
    }
    let all = lock.try_lock(Range::FULL).expect("everybody has left");
    place.write();
    lock.unlock(all);
}

#[derive(Clone, Copy)]
enum Visit {
    Write,
    TryWrite,
    Read,
    Elsewhere,
}

fn enter_ex(lock: &ListEx, range: Range, visit: Visit) -> Option<farlock_local::Token> {
    match visit {
        Visit::TryWrite => lock.try_lock(range),
        _ => Some(lock.lock(range)),
    }
}

fn enter_rw(lock: &ListRw, range: Range, visit: Visit) -> Option<farlock_local::Token> {
    match visit {
        Visit::Read => Some(lock.lock_shared(range)),
        Visit::TryWrite => lock.try_lock(range),
        _ => Some(lock.lock(range)),
    }
}

macro_rules! visits {
    ($([$($start:literal .. $end:literal $visit:ident),* $(,)?]),* $(,)?) => {{
        const VISITS: &[&[(Range, Visit)]] =
            &[$(&[$((constant($start, $end), Visit::$visit)),*]),*];
        VISITS
    }};
}

const fn constant(start: u64, end: u64) -> Range {
    match Range::new(start, end) {
        Ok(range) => range,
        Err(_) => panic!("a range"),
    }
}

#[test]
fn two_writers_of_overlapping_ranges() {
    every_order(All, || {
        crowd(ListEx::new, visits![[0..10 Write], [5..15 Write]], enter_ex);
    });
}

#[test]
fn the_fast_path_and_a_newcomer_twice() {
    every_order(AtMost(5), || {
        crowd(ListEx::new, visits![[0..10 Write, 0..10 Write], [5..15 Write]], enter_ex);
    });
}

#[test]
fn two_writers_beside_a_range_that_comes_and_goes() {
    every_order(AtMost(5), || {
        crowd(ListEx::new, visits![[0..1 Elsewhere, 6..9 Write], [6..8 Write]], enter_ex);
    });
}

#[test]
fn three_writers() {
    every_order(AtMost(3), || {
        crowd(ListEx::new, visits![[0..10 Write], [5..15 Write], [8..20 Write]], enter_ex);
    });
}

#[test]
fn one_who_only_tries() {
    every_order(AtMost(5), || {
        crowd(ListEx::new, visits![[0..10 Write], [5..15 TryWrite, 5..15 TryWrite]], enter_ex);
    });
}

#[test]
fn a_reader_and_a_writer() {
    for preference in [Preference::Readers, Preference::Writers] {
        every_order(All, move || {
            crowd(|| ListRw::new(preference), visits![[0..10 Read], [5..15 Write]], enter_rw);
        });
    }
}

#[test]
fn the_race_of_figure_1_is_won_by_one() {
    for preference in [Preference::Readers, Preference::Writers] {
        every_order(AtMost(5), move || figure_1(preference, Planted::No));
    }
}

#[test]
#[should_panic]
fn without_validation_the_race_of_figure_1_is_found() {
    every_order(AtMost(3), || figure_1(Preference::Readers, Planted::NoValidation));
}

#[test]
fn a_writer_that_gives_way_comes_back() {
    every_order(AtMost(4), || writer_gives_way(Planted::No));
}

/// What fails here is a deadlock, after which loom cannot unwind: a process of its own has to die,
/// this same test with a mark in its environment.
#[test]
fn a_writer_that_comes_back_in_its_old_entry_is_found() {
    const MARK: &str = "FARLOCK_LOCAL_TEST_DIES";
    if std::env::var_os(MARK).is_some() {
        return every_order(AtMost(3), || writer_gives_way(Planted::Reinsert));
    }
    let program = std::env::current_exe().unwrap();
    let died = std::process::Command::new(program)
        .args(["--exact", "--nocapture", "a_writer_that_comes_back_in_its_old_entry_is_found"])
        .env(MARK, "1")
        .output()
        .unwrap();
    assert!(!died.status.success(), "the bug was not found");
    assert!(String::from_utf8_lossy(&died.stderr).contains("deadlock"));
}

#[test]
fn a_late_thread_finds_out_that_an_entry_was_used_again() {
    every_order(AtMost(4), || an_entry_comes_back(Planted::No));
}

#[test]
#[should_panic]
fn a_late_thread_that_does_not_find_out_is_found() {
    every_order(AtMost(4), || an_entry_comes_back(Planted::Reuse));
}

#[test]
fn a_late_thread_finds_out_that_the_fast_path_used_an_entry_again() {
    every_order(AtMost(4), || an_entry_comes_back_alone(Planted::No));
}

#[test]
#[should_panic]
fn a_late_thread_that_does_not_find_out_on_the_fast_path_is_found() {
    every_order(AtMost(4), || an_entry_comes_back_alone(Planted::ReuseAlone));
}

#[test]
fn a_reader_that_validates_finds_out_that_an_entry_was_used_again() {
    every_order(AtMost(3), || scenes::an_entry_comes_back_behind_a_reader(Planted::No));
}

#[test]
#[should_panic]
fn a_reader_that_does_not_look_again_is_found() {
    every_order(AtMost(3), || scenes::an_entry_comes_back_behind_a_reader(Planted::NoSecondLook));
}

#[test]
fn a_writer_that_validates_finds_out_that_an_entry_was_used_again() {
    every_order(AtMost(3), || scenes::an_entry_comes_back_before_a_writer(Planted::No));
}

#[test]
#[should_panic]
fn a_writer_that_does_not_look_again_is_found() {
    every_order(AtMost(3), || scenes::an_entry_comes_back_before_a_writer(Planted::NoSecondLook));
}

#[test]
fn a_deadline_leaves_nothing_behind() {
    for preference in [Preference::Readers, Preference::Writers] {
        every_order(AtMost(3), move || scenes::a_deadline_comes(preference));
    }
}

#[test]
fn a_task_is_woken_and_a_dropped_one_leaves_nothing_behind() {
    every_order(AtMost(3), scenes::a_task_waits_and_another_gives_up);
    for preference in [Preference::Readers, Preference::Writers] {
        every_order(AtMost(3), move || scenes::tasks_of_readers_and_writers_give_up(preference));
    }
}

#[test]
fn parts_of_a_slice_are_lent_to_one_at_a_time() {
    every_order(AtMost(3), scenes::parts_are_lent);
}
