//! Specification: whatever befalls its clients, each key is one that does one thing after the
//! other; nothing acknowledged is lost, and no memory.

use std::cell::Cell;

use crate::scene::{
    self, Absorbing, ArrayCas, ArrayCider, ArrayLocal, ArrayOptimistic, Delegating, Kit, Play,
    RaceChoosing, RaceCider, RaceGrowing, RaceLocal, RaceMcs, RaceOptimistic, RaceReadingBefore,
    RaceTurns, Remembering, Report, TreeAsMeant, Work,
};
use farlock_sim::schedule::{Director, Pct, Random, Schedule};
use farlock_sim::{Mode, Oracle, Ratio};

/// Plays so many runs, of kinds of work in turn.
fn runs<K: Kit>(
    what: &str,
    count: u64,
    base: Play,
    oracle: impl Fn() -> Option<Box<dyn Oracle>>,
) -> Report {
    let works = [Work::Values, Work::Hot, Work::Numbers, Work::Churn];
    let mut sum = Report::default();
    for seed in 0..count {
        let work = works[seed as usize % works.len()];
        let keys = if work == Work::Hot && !base.fills() { 1 } else { base.keys };
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
    if base.grow.is_possible() || base.fills() {
        assert!(sum.levels * 4 > count * 3, "the index grows: {sum:?}");
    }
    sum
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
fn clients_that_remember_where_keys_were() {
    timed::<Remembering<ArrayOptimistic>>("pointer array, remembering", 300);
    timed::<Remembering<RaceOptimistic>>("race, remembering", 600);
    let tasks = Play { tasks: 3, clients: 2, operations: 4, ..Play::STORMY };
    runs::<Remembering<RaceOptimistic>>("race, remembering, 3 tasks", 200, tasks, || None);
    let growing = Play { keys: 3, ..GROWING };
    runs::<Remembering<RaceGrowing>>("growing, remembering", 200, growing, || None);
    let stormy = growing.in_a_storm();
    runs::<Remembering<RaceGrowing>>("growing, remembering, stormy", 400, stormy, || None);
    explored::<Remembering<RaceOptimistic>, _>("race, remembering, any order", 300, Random::new(5));
    for depth in 2..=4 {
        let what = format!("race, remembering, pct {depth}");
        explored::<Remembering<RaceOptimistic>, _>(&what, 100, Pct::new(u64::from(depth), depth));
    }
}

#[test]
fn a_pointer_array_with_spin_locks() {
    timed::<ArrayCas>("pointer array, cas", 300);
}

#[test]
fn race_with_queues() {
    timed::<RaceMcs>("race, mcs", 300);
    timed::<RaceReadingBefore>("race, mcs, that reads before", 50);
    timed::<RaceTurns>("race, cider that combines nothing", 50);
}

/// Plays so many runs at one to three keys.
fn crowds<K: Kit>(what: &str, count: u64, base: Play) {
    crowds_by::<K>(what, count, base, || None);
}

fn crowds_by<K: Kit>(
    what: &str,
    count: u64,
    base: Play,
    oracle: impl Fn() -> Option<Box<dyn Oracle>>,
) {
    let mut sum = Report::default();
    // What is never answered may have been done at any later time, which the judge tries.
    let more = if base.tasks > 1 {
        2
    } else if base.crashes > 0 {
        3
    } else {
        5
    };
    for seed in 0..count {
        let (clients, keys) = (base.clients + seed as u16 % more, 1 + seed % 3);
        let work = if seed % 4 == 3 { Work::Hot } else { Work::Crowd };
        let play = Play { seed, work, keys, clients, ..base };
        let report = scene::play::<K>(play, oracle());
        sum.plus(&report.unwrap_or_else(|wrong| panic!("{what}, seed {seed}, {work:?}: {wrong}")));
    }
    println!("{what}: {count} histories, {sum:?}");
    // Where patience may end at once nearly none is left to be combined.
    let patient = base.mode == Mode::Timed || !base.hasty;
    assert!(sum.combined > 0 || !patient, "some are combined: {sum:?}");
}

/// Of which a client has so many operations under way at once.
const fn crowd(clients: u16, tasks: u32) -> Play {
    Play { clients, tasks, operations: 8 - 2 * tasks, chunks: 64, ..Play::CALM }
}

#[test]
fn writes_that_are_combined() {
    // A client that has lost a verb of the lock gets in line no more: so few do.
    let storm = Play { cancel: Ratio::one_in(10), ..crowd(4, 1).in_a_storm() };
    let rough = Play { lost: Ratio::one_in(200), ..storm };
    let mortal = Play { lost: Ratio::NEVER, crash: Ratio::one_in(100), ..rough };
    crowds::<ArrayCider>("array, cider, calm", 60, crowd(4, 1));
    crowds::<RaceCider>("race, cider, calm", 60, crowd(4, 1));
    crowds::<ArrayCider>("array, cider, deaths and cancellations", 400, mortal);
    crowds::<RaceCider>("race, cider, deaths and cancellations", 400, mortal);
    let halting = Play { stops: 3, crashes: 1, ..mortal };
    crowds::<ArrayCider>("array, cider, stops and a death", 300, halting);
    crowds::<RaceCider>("race, cider, stops and a death", 300, halting);
    crowds::<ArrayCider>("array, cider, stormy", 300, rough);
    crowds::<RaceCider>("race, cider, stormy", 300, rough);
    crowds::<RaceChoosing>("race, cider that chooses, stormy", 300, rough);
}

/// Of those that collide, and by clients that remember where keys were, and while they move.
#[test]
fn writes_that_come_second() {
    type Array = Absorbing<ArrayOptimistic>;
    type Race = Absorbing<RaceOptimistic>;
    let storm = Play { cancel: Ratio::one_in(10), ..crowd(4, 1).in_a_storm() };
    crowds::<Array>("array, absorbing, calm", 60, crowd(4, 1));
    crowds::<Race>("race, absorbing, calm", 60, crowd(4, 1));
    crowds::<Array>("array, absorbing, stormy", 300, storm);
    crowds::<Remembering<Race>>("race, absorbing, remembering, stormy", 400, storm);
    crowds::<Absorbing<RaceChoosing>>("race, cider that chooses, absorbing", 200, storm);
    crowds::<Remembering<Race>>("race, absorbing, 3 tasks", 100, crowd(2, 3).in_a_storm());
    timed::<Remembering<Race>>("race, absorbing, remembering", 300);
    type Growing = Remembering<Absorbing<RaceGrowing>>;
    let growing = Play { keys: 2, clients: 4, ..GROWING };
    runs::<Growing>("growing, absorbing", 200, growing, || None);
    runs::<Growing>("growing, absorbing, stormy", 400, growing.in_a_storm(), || None);
    let base = Play { mode: Mode::Explored, together: true, operations: 4, ..crowd(3, 1) };
    let any = Director::new(Random::new(6));
    crowds_by::<Remembering<Race>>("race, absorbing, any order", 300, base, || any.begin());
    let few = Director::new(Pct::new(7, 4));
    crowds_by::<Array>("array, absorbing, pct", 300, base, || few.begin());
}

/// The same in any order, and then where a wait may end at any time, patience as well.
#[test]
fn writes_that_are_combined_in_any_order() {
    let crowd = Play { together: true, operations: 4, ..crowd(3, 1) };
    let base = Play { mode: Mode::Explored, hasty: false, ..crowd };
    let mortal = Play { crashes: 1, crash: Ratio::one_in(100), ..base };
    let director = Director::new(Random::new(4));
    let random = || director.begin();
    crowds_by::<ArrayCider>("array, cider, any order", 200, base, random);
    crowds_by::<RaceCider>("race, cider, any order, deaths", 200, mortal, random);
    let director = Director::new(Pct::new(5, 4));
    crowds_by::<RaceCider>("race, cider, pct", 200, mortal, || director.begin());
    let hasty = Play { hasty: true, ..mortal };
    crowds_by::<RaceCider>("race, cider, hasty", 100, hasty, || director.begin());
}

#[test]
fn writes_of_one_client_that_are_combined() {
    let base = Play { together: true, ..crowd(2, 3) };
    crowds::<ArrayLocal>("array, locally", 100, base);
    crowds::<RaceLocal>("race, locally and by cider", 100, base);
    crowds::<ArrayLocal>("array, locally, stormy", 200, base.in_a_storm());
    crowds::<RaceLocal>("race, locally and by cider, stormy", 200, base.in_a_storm());
    // Each task goes on by itself when its patience ends.
    crowds::<RaceLocal>("race, locally, unwoken", 100, crowd(2, 3).in_a_storm());
}

/// Of one key, by tasks of one client; some of them are dropped while they wait or lead, and all
/// end where those that lead die, or nothing wakes the others.
#[test]
fn reads_of_several_tasks_at_once() {
    let base = Play { together: true, ..crowd(2, 3) };
    let storm = Play { cancel: Ratio::one_in(10), ..base.in_a_storm() };
    let mortal = Play { crash: Ratio::one_in(100), ..storm };
    let unwoken = Play { together: false, ..storm };
    let mut delegated = 0;
    for (number, play) in [base, storm, mortal, unwoken].into_iter().enumerate() {
        delegated += reads_together::<ArrayOptimistic>(200, play);
        delegated += reads_together::<Remembering<RaceOptimistic>>(200, play);
        assert!(delegated > 100 * number, "{number}: {delegated} reads are delegated");
    }
}

/// Plays so many runs at one or two keys; how many reads were answered by another task's.
fn reads_together<K: Kit>(count: u64, base: Play) -> usize {
    let mut sum = Report::default();
    for seed in 0..count {
        let work = if seed % 4 == 3 { Work::Values } else { Work::Reads };
        let play = Play { seed, work, keys: 1 + seed % 2, ..base };
        let report = scene::play::<Delegating<K>>(play, None);
        sum.plus(&report.unwrap_or_else(|wrong| panic!("seed {seed}, {work:?}: {wrong}")));
    }
    println!("{count} histories, {sum:?}");
    sum.delegated as usize
}

#[test]
fn several_operations_of_each_client_at_once() {
    let base = Play { tasks: 3, clients: 2, operations: 4, ..Play::STORMY };
    let tight = Play { chunks: 64, ..Play { tasks: 2, operations: 6, ..Play::TIGHT }.in_a_storm() };
    runs::<ArrayOptimistic>("pointer array, 3 tasks", 300, base, || None);
    runs::<RaceOptimistic>("race, 3 tasks", 300, base, || None);
    runs::<RaceOptimistic>("race, 2 tasks, tight", 400, tight, || None);
}

/// Clients make the index larger now and then, and their changes move it: up to three levels at
/// once are met by clients that know of one.
const GROWING: Play =
    Play { grow: Ratio::one_in(6), operations: 12, chunks: 160, clients: 3, ..Play::CALM };

#[test]
fn a_table_that_grows() {
    let calm = Play { keys: 3, ..GROWING };
    let tight = Play { chunk_bytes: 64, chunks: 300, ..GROWING };
    let tight = Play { weakness: Play::TIGHT.weakness, value_bytes: 24, ..tight };
    runs::<RaceGrowing>("growing, calm", 200, calm, || None);
    runs::<RaceGrowing>("growing, stormy", 600, calm.in_a_storm(), || None);
    runs::<RaceGrowing>("growing, tight", 200, tight, || None);
    runs::<RaceGrowing>("growing, tight and stormy", 400, tight.in_a_storm(), || None);
    // Chunks are short, so that what the dead have claimed is needed.
    let poor = Play { chunks: 30, ..calm.in_a_storm() };
    runs::<RaceGrowing>("growing, few chunks", 400, poor, || None);
    let tasks = Play { tasks: 3, clients: 2, operations: 5, ..calm.in_a_storm() };
    runs::<RaceGrowing>("growing, 3 tasks", 200, tasks, || None);
    let wrap = Play { near_wrap: true, ..tight.in_a_storm() };
    runs::<RaceGrowing>("growing, near wrap", 100, wrap, || None);
}

#[test]
fn a_table_that_grows_since_it_is_full() {
    let base = Play { keys: 200, operations: 80, chunks: 300, ..Play::CALM };
    assert!(base.fills());
    runs::<RaceGrowing>("filling", 24, base, || None);
    runs::<RaceGrowing>("filling, stormy", 80, base.in_a_storm(), || None);
}

/// There are few chunks, each of one block, and values of three lengths: memory that one has left
/// another one needs.
const SCARCE: Play = Play { chunks: 4, operations: 16, clients: 3, ..Play::TIGHT };

#[test]
fn chunks_that_get_another_class() {
    fn scarce<K: Kit>(what: &str, count: u64, base: Play) {
        let sum = runs::<K>(&format!("{what}, scarce"), count, base, || None);
        assert!(sum.reclassed > count, "chunks get other classes: {sum:?}");
        let stormy = Play { operations: 10, ..base.in_a_storm() };
        let sum = runs::<K>(&format!("{what}, scarce, stormy"), 2 * count, stormy, || None);
        assert!(8 * sum.reclassed > count, "chunks get other classes: {sum:?}");
    }
    scarce::<ArrayOptimistic>("pointer array", 200, SCARCE);
    scarce::<RaceOptimistic>("race", 200, SCARCE);
    scarce::<Remembering<RaceOptimistic>>("race, remembering", 200, SCARCE);
    scarce::<RaceCider>("race, cider", 100, SCARCE);
    // Of several blocks, and counts of the smallest class are in the way of the largest.
    let large = Play { chunk_bytes: 256, value_bytes: 120, chunks: 5, ..SCARCE };
    scarce::<RaceOptimistic>("race, large", 200, large);
    // Nodes need chunks of their own, and stay.
    scarce::<TreeAsMeant>("tree", 100, Play { chunks: 6, keys: 3, ..SCARCE });
    let tasks = Play { tasks: 2, clients: 2, operations: 6, ..SCARCE };
    scarce::<ArrayOptimistic>("pointer array, 2 tasks", 100, tasks);
    scarce::<RaceOptimistic>("race, near wrap", 100, Play { near_wrap: true, ..SCARCE });
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
    explored::<ArrayCider, _>("pointer array, cider, any order", 300, Random::new(3));
}

#[test]
fn few_preemptions_at_random_places() {
    for depth in 2..=5 {
        let seed = u64::from(depth);
        let what = format!("pct, depth {depth}");
        explored::<ArrayOptimistic, _>(&what, 200, Pct::new(seed, depth));
        explored::<RaceOptimistic, _>(&what, 200, Pct::new(seed, depth));
        explored::<RaceCider, _>(&what, 100, Pct::new(seed, depth));
    }
}

#[test]
fn a_table_that_grows_in_any_order() {
    let base = Play { mode: Mode::Explored, operations: 4, ..GROWING };
    let base = Play { grow: Ratio::one_in(3), keys: 2, ..base.in_a_storm() };
    let any = Director::new(Random::new(3));
    runs::<RaceGrowing>("growing, any order", 400, base, || any.begin());
    for depth in 2..=4 {
        let few = Director::new(Pct::new(u64::from(depth), depth));
        runs::<RaceGrowing>(&format!("growing, pct {depth}"), 300, base, || few.begin());
    }
}
