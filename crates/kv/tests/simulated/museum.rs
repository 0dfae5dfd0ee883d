//! Each planted bug is found within a stated number of runs; and in as many runs without one, by
//! the same judges, nothing is.

use crate::scene::{
    self, Absorbing, ArrayCider, ArrayOptimistic, Delegating, Kit, Play, RaceCider, RaceGrowing,
    RaceOptimistic, Remembering, TreeOptimistic, Work,
};
use farlock_kv::Flaw;
use farlock_sim::Ratio;

/// The first run in which something is wrong, of at most so many, and what.
fn found<K: Kit>(flaw: Option<Flaw>, budget: u64, base: Play) -> Option<(u64, String)> {
    (0..budget).find_map(|seed| {
        // Whatever the first judge finds, the second finds too.
        let play = Play { seed, flaw, twice: true, ..base };
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

/// A table that grows while few keys change all the time.
const GROWING: Play = Play {
    work: Work::Churn,
    grow: Ratio::one_in(4),
    operations: 12,
    chunks: 160,
    keys: 2,
    ..Play::CALM
};

#[test]
fn a_reader_that_does_not_follow_its_key() {
    caught::<RaceGrowing>(Flaw::OldLevelAlone, 20, GROWING);
}

#[test]
fn a_slot_that_is_marked_before_it_is_copied() {
    caught::<RaceGrowing>(Flaw::MovedBeforeCopied, 100, GROWING);
}

#[test]
fn an_empty_slot_that_leaves_its_heirs_as_they_are() {
    caught::<RaceGrowing>(Flaw::EmptyMovesAlone, 200, GROWING);
}

#[test]
fn a_value_that_moves_past_a_heir_that_does_not_know() {
    let base = Play { keys: 6, operations: 20, clients: 4, ..GROWING };
    let base = Play { weakness: Play::TIGHT.weakness, grow: Ratio::one_in(12), ..base };
    caught::<RaceGrowing>(Flaw::OtherHeirForgotten, 1_000, base);
}

#[test]
fn an_insertion_beside_slots_that_have_not_moved() {
    caught::<RaceGrowing>(Flaw::UnmovedInsertion, 200, GROWING);
}

#[test]
fn a_value_that_is_remembered_and_not_read() {
    let base = Play { work: Work::Churn, keys: 1, ..Play::CALM };
    caught::<Remembering<RaceOptimistic>>(Flaw::TrustsMemory, 100, base);
}

#[test]
fn a_block_that_its_slot_does_not_name_any_more() {
    let base = Play { work: Work::Values, keys: 1, ..Play::CALM };
    caught::<Remembering<RaceOptimistic>>(Flaw::TrustsSlot, 100, base);
}

/// A tree in which nodes are replaced while few keys change all the time.
const TREE: Play =
    Play { work: Work::Churn, operations: 12, keys: 4, clients: 4, chunks: 80, ..Play::CALM };

#[test]
fn a_node_that_is_copied_while_it_changes() {
    caught::<TreeOptimistic>(Flaw::UnfrozenNode, 100, TREE);
}

#[test]
fn a_node_that_is_believed_though_it_was_replaced() {
    caught::<TreeOptimistic>(Flaw::StaleNode, 100, TREE);
}

/// The story of a client that lost the completion of a chain and posted all of it again: the node
/// was in the tree by then, and the slots that others had changed said what they first said.
#[test]
fn a_node_that_is_written_once_more() {
    let base = Play { lost: Ratio::one_in(8), ..TREE };
    caught::<TreeOptimistic>(Flaw::NodeWrittenAgain, 4_000, base);
}

/// Clients that mostly overwrite, at keys that share a line.
const CROWD: Play = Play { work: Work::Crowd, clients: 5, chunks: 64, ..Play::CALM };

#[test]
fn a_success_that_is_said_of_a_failure() {
    let base = Play { work: Work::Hot, keys: 1, ..CROWD };
    caught::<ArrayCider>(Flaw::FalseSuccess, 200, base);
}

#[test]
fn two_keys_that_are_combined() {
    caught::<RaceCider>(Flaw::CombinesAcrossKeys, 50, Play { keys: 3, ..CROWD });
}

/// The story of an executor that finds its lock repaired, begins anew and writes what it has
/// written: others' values in between are gone, and its own is read twice.
#[test]
fn an_executor_that_executes_twice() {
    caught::<RaceCider>(Flaw::ExecutesAgain, 100, CROWD);
}

#[test]
fn an_overwrite_that_is_done_before_one_that_was_answered() {
    let base = Play { keys: 1, ..CROWD };
    caught::<Remembering<Absorbing<RaceOptimistic>>>(Flaw::AbsorbedByEarlier, 200, base);
}

#[test]
fn a_read_that_is_answered_by_an_earlier_one() {
    let base = Play { keys: 1, tasks: 3, clients: 2, together: true, work: Work::Reads, ..CROWD };
    caught::<Delegating<ArrayOptimistic>>(Flaw::DelegatesLate, 400, base);
}

#[test]
fn an_increment_that_is_combined() {
    let base = Play { work: Work::Numbers, ..CROWD };
    caught::<ArrayCider>(Flaw::CombinesIncrements, 50, base);
}
