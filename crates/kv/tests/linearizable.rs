//! Specification: whatever befalls its clients, each key is one that does one thing after the
//! other; nothing acknowledged is lost, and no memory.

mod scene;

use std::cell::Cell;

use farlock_sim::schedule::{Director, Pct, Random, Schedule};
use farlock_sim::{Mode, Oracle};
use scene::{ArrayCas, ArrayOptimistic, Kit, Play, RaceMcs, RaceOptimistic, Report, Work};

/// Plays so many runs, of kinds of work in turn.
fn runs<K: Kit>(what: &str, count: u64, base: Play, oracle: impl Fn() -> Option<Box<dyn Oracle>>) {
    let works = [Work::Values, Work::Hot, Work::Numbers, Work::Churn];
    let mut sum = Report::default();
    for seed in 0..count {
        let work = works[seed as usize % works.len()];
        let keys = if work == Work::Hot { 1 } else { base.keys };
        let clients = base.clients + (seed / 4 % 2) as u16;
        let play = Play { seed, work, keys, clients, ..base };
        let report = scene::play::<K>(play, oracle());
        sum.plus(&report.unwrap_or_else(|wrong| panic!("{what}, seed {seed}, {work:?}: {wrong}")));
    }
    println!("{what}: {count} histories, {sum:?}");
    assert!(sum.answered > count * 5, "operations are answered: {sum:?}");
    if base.crashes > 0 {
        assert!(sum.dead > 0 && sum.adoptions > 0, "clients die: {sum:?}");
    }
    if base.cancel.is_possible() {
        assert!(sum.cancelled > 0 && sum.lost > 0, "operations are dropped: {sum:?}");
    }
}

fn timed<K: Kit>(what: &str, count: u64) {
    runs::<K>(&format!("{what}, calm"), count / 10, Play::CALM, || None);
    runs::<K>(&format!("{what}, tight"), count / 5, Play::TIGHT, || None);
    let both = Play { operations: 8, ..Play { chunks: 64, ..Play::TIGHT }.in_a_storm() };
    runs::<K>(&format!("{what}, tight and stormy"), count, both, || None);
    runs::<K>(&format!("{what}, stormy"), count / 2, Play::STORMY, || None);
}

fn explored<K: Kit, S: Schedule + 'static>(what: &str, count: u64, schedule: S) {
    let director = Director::new(schedule);
    let base = Play { mode: Mode::Explored, operations: 4, ..Play::STORMY };
    let begun = Cell::new(0);
    runs::<K>(what, count, base, || {
        begun.set(begun.get() + 1);
        director.begin()
    });
    assert_eq!(begun.get(), count);
}

#[test]
fn a_pointer_array_without_turns() {
    timed::<ArrayOptimistic>("pointer array, optimistic", 800);
}

#[test]
fn race_without_turns() {
    timed::<RaceOptimistic>("race, optimistic", 800);
}

#[test]
fn a_pointer_array_with_spin_locks() {
    timed::<ArrayCas>("pointer array, cas", 300);
}

#[test]
fn race_with_queues() {
    timed::<RaceMcs>("race, mcs", 300);
}

#[test]
fn several_operations_of_each_client_at_once() {
    let base = Play { tasks: 3, clients: 2, operations: 4, ..Play::STORMY };
    let tight = Play { chunks: 64, ..Play { tasks: 2, operations: 6, ..Play::TIGHT }.in_a_storm() };
    runs::<ArrayOptimistic>("pointer array, 3 tasks", 300, base, || None);
    runs::<RaceOptimistic>("race, 3 tasks", 300, base, || None);
    runs::<RaceOptimistic>("race, 2 tasks, tight", 400, tight, || None);
}

#[test]
fn counts_that_wrap() {
    let base = Play { near_wrap: true, ..Play::TIGHT };
    runs::<ArrayOptimistic>("pointer array, near wrap", 200, base, || None);
    runs::<RaceOptimistic>("race, near wrap, stormy", 400, base.in_a_storm(), || None);
}

#[test]
fn any_order_at_random() {
    explored::<ArrayOptimistic, _>("pointer array, any order", 500, Random::new(1));
    explored::<RaceOptimistic, _>("race, any order", 500, Random::new(2));
}

#[test]
fn few_preemptions_at_random_places() {
    for depth in 2..=5 {
        let seed = u64::from(depth);
        let what = format!("pct, depth {depth}");
        explored::<ArrayOptimistic, _>(&what, 200, Pct::new(seed, depth));
        explored::<RaceOptimistic, _>(&what, 200, Pct::new(seed, depth));
    }
}
