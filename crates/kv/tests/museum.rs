//! Each planted bug is found within a stated number of runs; and in as many runs without one, by
//! the same judges, nothing is.

mod scene;

use farlock_kv::Flaw;
use farlock_sim::Ratio;
use scene::{ArrayOptimistic, Kit, Play, RaceOptimistic, Work};

/// The first run in which something is wrong, of at most so many, and what.
fn found<K: Kit>(flaw: Option<Flaw>, budget: u64, base: Play) -> Option<(u64, String)> {
    (0..budget).find_map(|seed| {
        let play = Play { seed, flaw, ..base };
        scene::play::<K>(play, None).err().map(|wrong| (seed + 1, wrong))
    })
}

/// Found within the budget, and not without the bug.
fn caught<K: Kit>(flaw: Flaw, budget: u64, base: Play) {
    let (runs, wrong) = found::<K>(Some(flaw), budget, base)
        .unwrap_or_else(|| panic!("{flaw:?} is not found in {budget} runs"));
    println!("{flaw:?}: found in run {runs} of {budget}: {}", wrong.lines().next().unwrap_or(""));
    assert_eq!(found::<K>(None, runs.max(20), base), None, "nothing is wrong without {flaw:?}");
}

#[test]
fn a_torn_value_that_is_accepted() {
    caught::<ArrayOptimistic>(
        Flaw::TornValue,
        400,
        Play { work: Work::Hot, keys: 1, ..Play::TIGHT },
    );
}

#[test]
fn a_recycled_block_that_is_accepted() {
    let base = Play { work: Work::Hot, keys: 3, operations: 20, ..Play::TIGHT };
    caught::<ArrayOptimistic>(Flaw::RecycledBlock, 200, base);
}

#[test]
fn a_change_that_is_made_twice() {
    let base = Play { lost: Ratio::one_in(25), work: Work::Numbers, ..Play::CALM };
    caught::<ArrayOptimistic>(Flaw::DoubleExecution, 200, base);
}

#[test]
fn a_version_that_wraps() {
    let base = Play { work: Work::Numbers, keys: 1, ..Play::TIGHT };
    caught::<ArrayOptimistic>(Flaw::VersionWrap, 2_000, base);
}

#[test]
fn a_deletion_that_did_not_happen() {
    caught::<ArrayOptimistic>(Flaw::LostDelete, 200, Play { work: Work::Churn, ..Play::CALM });
}

#[test]
fn a_key_that_is_there_twice() {
    let base = Play { work: Work::Churn, keys: 1, ..Play::CALM };
    caught::<RaceOptimistic>(Flaw::DuplicateKey, 200, base);
}

#[test]
fn a_value_of_the_dead_that_is_freed() {
    let base = Play { work: Work::Values, ..Play::STORMY };
    caught::<RaceOptimistic>(Flaw::LiveBlockFreed, 50, base);
}
