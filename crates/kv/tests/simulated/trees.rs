//! Specification: as for every index, for a tree whose nodes are split and replaced all the time.

use crate::scene::{
    self, Absorbing, Kit, Play, Remembering, Report, TreeAsMeant, TreeCas, TreeChoosing, TreeCider,
    TreeMcs, TreeOptimistic, TreeTight, Work,
};
use farlock_sim::schedule::{Director, Pct, Random, Schedule};
use farlock_sim::{Mode, Oracle, Ratio};

/// Words of three letters, of which many begin with others, come and go.
const TREE: Play = Play { keys: 6, operations: 10, chunks: 80, ..Play::CALM };

/// Plays so many runs, of kinds of work in turn.
fn runs<K: Kit>(what: &str, count: u64, base: Play, oracle: impl Fn() -> Option<Box<dyn Oracle>>) {
    let works: &[Work] = match base.work {
        Work::Crowd => &[Work::Crowd, Work::Hot],
        _ => &[Work::Values, Work::Churn, Work::Numbers, Work::Hot, Work::Churn],
    };
    let mut sum = Report::default();
    for seed in 0..count {
        let work = works[seed as usize % works.len()];
        let clients = base.clients + (seed / 4 % 2) as u16;
        let play = Play { seed, work, clients, ..base };
        let report = scene::play::<K>(play, oracle());
        sum.plus(&report.unwrap_or_else(|wrong| panic!("{what}, seed {seed}, {work:?}: {wrong}")));
    }
    println!("{what}: {count} histories, {sum:?}");
    assert!(sum.combined > 0 || base.work != Work::Crowd, "some are combined: {sum:?}");
    assert!(sum.rereads > 0 || base.chunks > 40, "blocks are recycled: {sum:?}");
    assert!(sum.answered > count * 5, "operations are answered: {sum:?}");
    assert!(sum.nodes * 2 > count, "nodes are made: {sum:?}");
    if base.crashes > 0 {
        assert!(sum.dead > 0 && sum.adoptions > 0, "clients die: {sum:?}");
        assert!(sum.cancelled > 0 && sum.lost > 0, "operations are dropped: {sum:?}");
    }
}

#[test]
fn nodes_are_replaced() {
    runs::<TreeOptimistic>("tree, calm", 200, TREE, || None);
    runs::<TreeOptimistic>("tree, stormy", 400, TREE.in_a_storm(), || None);
    runs::<TreeAsMeant>("tree as meant, stormy", 100, TREE.in_a_storm(), || None);
    let tasks = Play { tasks: 3, clients: 2, operations: 5, ..TREE.in_a_storm() };
    runs::<TreeOptimistic>("tree, 3 tasks", 150, tasks, || None);
    runs::<Absorbing<TreeOptimistic>>("tree, absorbing", 200, TREE.in_a_storm(), || None);
    runs::<Remembering<TreeOptimistic>>("tree, remembering", 200, TREE.in_a_storm(), || None);
}

#[test]
fn blocks_are_recycled() {
    // A chunk has one node or two blocks.
    let tight = Play { weakness: Play::TIGHT.weakness, keys: 3, clients: 4, ..TREE };
    let tight = Play { chunks: 40, chunk_bytes: 64, value_bytes: 24, operations: 16, ..tight };
    runs::<TreeAsMeant>("tree, tight", 150, tight, || None);
    runs::<TreeAsMeant>("tree, tight and stormy", 300, tight.in_a_storm(), || None);
    let wrap = Play { near_wrap: true, keys: 6, chunks: 80, ..tight.in_a_storm() };
    runs::<TreeTight>("tree, near wrap", 100, wrap, || None);
}

#[test]
fn every_scheme() {
    runs::<TreeCas>("tree, cas", 150, TREE.in_a_storm(), || None);
    runs::<TreeMcs>("tree, mcs", 150, TREE.in_a_storm(), || None);
    // A client that has lost a verb of the lock gets in line no more: so few do.
    let crowd = Play { work: Work::Crowd, keys: 2, clients: 4, operations: 6, ..TREE };
    let rough = Play { lost: Ratio::one_in(200), cancel: Ratio::one_in(10), ..crowd.in_a_storm() };
    runs::<TreeCider>("tree, cider", 150, rough, || None);
    runs::<TreeChoosing>("tree, cider that chooses", 150, rough, || None);
}

#[test]
fn any_order() {
    let base = Play { mode: Mode::Explored, operations: 4, keys: 3, ..TREE.in_a_storm() };
    explored("tree, any order", 300, base, Random::new(6));
    for depth in 2..=4 {
        explored(&format!("tree, pct {depth}"), 150, base, Pct::new(u64::from(depth), depth));
    }
}

fn explored<S: Schedule + 'static>(what: &str, count: u64, base: Play, schedule: S) {
    let director = Director::new(schedule);
    runs::<TreeOptimistic>(what, count, base, || director.begin());
}
