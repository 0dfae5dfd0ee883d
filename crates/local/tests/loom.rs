//! Every order in which two or three threads can meet in a list, up to a bound on preemptions.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p farlock-local --release --test loom`. What a lock protects
//! is a cell that loom watches: two accesses that nothing orders are an error, so the tests judge
//! memory orderings as well as exclusion. A thread that is never woken is an error, too.
#![cfg(loom)]

use farlock_local::{ListEx, ListRw, Planted, Preference, Range, RawRangeLock, RawRangeRwLock};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// Runs `body` in every order with at most `preemptions` switches that nothing forced.
fn every_order(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    let orders = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = orders.clone();
    builder.check(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        body();
    });
    println!("{} orders", orders.load(std::sync::atomic::Ordering::Relaxed));
}

fn range(start: u64, end: u64) -> Range {
    Range::new(start, end).unwrap()
}

/// A place that only holders of ranges over it may visit.
struct Place(UnsafeCell<u32>);

// SAFETY: the locks under test order the accesses; loom fails the test where they do not.
unsafe impl Sync for Place {}
// SAFETY: an integer may be sent.
unsafe impl Send for Place {}

impl Place {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn write(&self) {
        // SAFETY: loom checks that nobody else is here.
        self.0.with_mut(|place| unsafe { *place += 1 });
    }

    fn read(&self) {
        // SAFETY: loom checks that nobody writes.
        self.0.with(|place| unsafe { assert!(*place <= 8) });
    }
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
    every_order(3, || {
        crowd(ListEx::new, visits![[0..10 Write], [5..15 Write]], enter_ex);
    });
}

#[test]
fn the_fast_path_and_a_newcomer_twice() {
    every_order(5, || {
        crowd(ListEx::new, visits![[0..10 Write, 0..10 Write], [5..15 Write]], enter_ex);
    });
}

#[test]
fn two_writers_beside_a_range_that_comes_and_goes() {
    every_order(5, || {
        crowd(ListEx::new, visits![[0..1 Elsewhere, 6..9 Write], [6..8 Write]], enter_ex);
    });
}

#[test]
fn three_writers() {
    every_order(3, || {
        crowd(ListEx::new, visits![[0..10 Write], [5..15 Write], [8..20 Write]], enter_ex);
    });
}

#[test]
fn one_who_only_tries() {
    every_order(5, || {
        crowd(ListEx::new, visits![[0..10 Write], [5..15 TryWrite, 5..15 TryWrite]], enter_ex);
    });
}

#[test]
fn a_reader_and_a_writer() {
    for preference in [Preference::Readers, Preference::Writers] {
        every_order(5, move || {
            crowd(|| ListRw::new(preference), visits![[0..10 Read], [5..15 Write]], enter_rw);
        });
    }
}

/// The race of the paper's figure 1: a reader inserts before an entry, a writer behind it, and
/// neither notices the other on its way.
fn figure_1(preference: Preference, planted: Planted) {
    let lock = Arc::new(ListRw::planted(preference, planted));
    let place = Arc::new(Place::new());
    let (first, second) = (lock.lock_shared(range(1, 10)), lock.lock_shared(range(20, 25)));
    let writer = thread::spawn({
        let (lock, place) = (lock.clone(), place.clone());
        move || {
            let token = lock.lock(range(30, 35));
            place.write();
            lock.unlock(token);
        }
    });
    let token = lock.lock_shared(range(15, 45));
    place.read();
    lock.unlock(token);
    lock.unlock(first);
    lock.unlock(second);
    writer.join().unwrap();
    let all = lock.try_lock(Range::FULL).expect("everybody has left");
    lock.unlock(all);
}

#[test]
fn the_race_of_figure_1_is_won_by_one() {
    for preference in [Preference::Readers, Preference::Writers] {
        every_order(5, move || figure_1(preference, Planted::No));
    }
}

#[test]
#[should_panic]
fn without_validation_the_race_of_figure_1_is_found() {
    every_order(3, || figure_1(Preference::Readers, Planted::NoValidation));
}

/// A writer gives way while a third thread unlinks what it left.
fn writer_gives_way(planted: Planted) {
    let lock = Arc::new(ListRw::planted(Preference::Readers, planted));
    let held = lock.lock_shared(range(20, 25));
    let place = Arc::new(Place::new());
    let writer = thread::spawn({
        let (lock, place) = (lock.clone(), place.clone());
        move || {
            let first = lock.lock(range(30, 35));
            let second = lock.lock(range(60, 70));
            place.write();
            lock.unlock(second);
            lock.unlock(first);
        }
    });
    let reader = lock.lock_shared(range(15, 45));
    place.read();
    lock.unlock(reader);
    lock.unlock(held);
    writer.join().unwrap();
    let all = lock.try_lock(Range::FULL).expect("everybody has left");
    lock.unlock(all);
}

#[test]
fn a_writer_that_gives_way_comes_back() {
    every_order(4, || writer_gives_way(Planted::No));
}

/// What fails here is a deadlock, after which loom cannot unwind: a process of its own has to die,
/// this same test with a mark in its environment.
#[test]
fn a_writer_that_comes_back_in_its_old_entry_is_found() {
    const MARK: &str = "FARLOCK_LOCAL_TEST_DIES";
    if std::env::var_os(MARK).is_some() {
        return every_order(3, || writer_gives_way(Planted::Reinsert));
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

/// One thread looks at a link; meanwhile what it leads to is released, and the same entry comes
/// back for another range.
fn an_entry_comes_back(planted: Planted) {
    let lock = Arc::new(ListEx::planted(planted));
    let held = lock.lock(range(0, 1));
    let place = Arc::new(Place::new());
    let late = thread::spawn({
        let (lock, place) = (lock.clone(), place.clone());
        move || {
            let token = lock.lock(range(6, 8));
            place.write();
            lock.unlock(token);
        }
    });
    lock.unlock(lock.lock(range(10, 20)));
    lock.unlock(lock.lock(range(50, 60)));
    let token = lock.lock(range(6, 9));
    place.write();
    lock.unlock(token);
    late.join().unwrap();
    lock.unlock(held);
}

#[test]
fn a_late_thread_finds_out_that_an_entry_was_used_again() {
    every_order(4, || an_entry_comes_back(Planted::No));
}

#[test]
#[should_panic]
fn a_late_thread_that_does_not_find_out_is_found() {
    every_order(4, || an_entry_comes_back(Planted::Reuse));
}
