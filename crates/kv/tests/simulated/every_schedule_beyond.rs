//! Specification: the same of every order of a few operations where more goes on than changes of
//! one key: the index grows under clients that know of it or do not, keys share slots and nodes,
//! transfers are torn, completions are lost.
//!
//! The index that grows is RACE with buckets of one slot, or one of two slots a group: what moves
//! them is the text that moves a table of millions.

use crate::scene::small::{self, Act, Deed, Explored, Mishap, Small};
use crate::scene::{
    Absorbing, ArrayOptimistic, Kit, NarrowOptimistic, Remembering, ThinCas, ThinCider, ThinMcs,
    ThinOptimistic, TreeTight,
};
use Deed::{Delete, Get, Grow, Increment, Insert, Scan, Update, Watch};

/// The most runs of one exploration: one that needs more has changed.
const SCHEDULES_MAX: u64 = 4_000_000;

/// Chunks for two levels, and for levels that are given back.
const ROOM: u32 = 8;

fn acts(clients: &[&[Act]]) -> Small {
    let acts = clients.iter().map(|acts| acts.to_vec()).collect();
    Small { room: ROOM, anew_max: 1, ..Small::of(acts) }
}

/// All at the first key.
fn deeds(clients: &[&[Deed]]) -> Small {
    let deeds: Vec<Vec<Deed>> = clients.iter().map(|deeds| deeds.to_vec()).collect();
    Small { room: ROOM, anew_max: 1, ..Small::new(&deeds) }
}

/// The last client has made a level, of which the others do not know.
fn unknown(small: Small) -> Small {
    Small { levels: 1, ..small }
}

/// It has, and the others know.
fn known(small: Small) -> Small {
    Small { levels: 1, informed: true, ..small }
}

fn every<K: Kit>(what: &str, cases: &[Small]) -> Explored {
    let mut sum = Explored::default();
    for small in cases {
        let explored = small::explore::<K>(small, SCHEDULES_MAX);
        sum.plus(&explored.unwrap_or_else(|wrong| panic!("{what}: {wrong:?} of {small:?}")));
    }
    println!("{what}: {} cases, {sum:?}", cases.len());
    let mishaps = cases.iter().filter(|small| small.mishap != Mishap::Nothing).count();
    assert!(sum.ends > 0 && (sum.befallen > 0) == (mishaps > 0), "{what}: {sum:?}");
    sum
}

/// Of two clients one does each deed beside each of the other's, the key there or not.
fn pairs(exists: bool) -> impl Iterator<Item = Small> {
    let both = Deed::ALL.into_iter().flat_map(|one| Deed::ALL.map(|other| (one, other)));
    both.map(move |(one, other)| Small { exists, ..deeds(&[&[one], &[other]]) })
}

/// Whether at night more is tried.
fn has_more() -> bool {
    std::env::var("FARLOCK_MORE_SCHEDULES").is_ok()
}

fn befalls(mishap: Mishap, cases: &[Small]) -> Vec<Small> {
    cases.iter().map(|small| Small { mishap, ..small.clone() }).collect()
}

#[test]
fn a_client_that_does_not_know_of_the_next_levels() {
    let one: Vec<Small> = pairs(true).map(unknown).collect();
    every::<NarrowOptimistic>("a level that one does not know", &one);
    let two = |small: &Small| Small { levels: 2, moved: true, ..small.clone() };
    let two: Vec<Small> = one.iter().map(two).collect();
    every::<NarrowOptimistic>("two levels, moved", &two);
}

#[test]
fn one_dies_or_stops_while_slots_move() {
    let cases = [deeds(&[&[Get], &[Update]]), deeds(&[&[Insert], &[Delete]])].map(unknown);
    for mishap in [Mishap::Dies, Mishap::Stops] {
        every::<NarrowOptimistic>(&format!("moving, one {mishap:?}"), &befalls(mishap, &cases));
    }
    let grow = [deeds(&[&[Grow], &[Grow]])];
    for mishap in [Mishap::Dies, Mishap::Stops, Mishap::Loses] {
        every::<NarrowOptimistic>(&format!("making a level, {mishap:?}"), &befalls(mishap, &grow));
    }
}

#[test]
fn overwrites_come_second_while_slots_move() {
    type Narrow = Absorbing<NarrowOptimistic>;
    let overwrites = [
        deeds(&[&[Update], &[Update]]),
        deeds(&[&[Update, Get], &[Update]]),
        deeds(&[&[Update, Update], &[Update]]),
        deeds(&[&[Update], &[Update], &[Get]]),
        deeds(&[&[Update], &[Delete, Insert]]),
    ];
    let cases = overwrites.clone().map(unknown);
    let sum = every::<Narrow>("moving, absorbing", &cases);
    let remembered = every::<Remembering<Narrow>>("moving, absorbing, remembering", &cases);
    assert!(sum.combined > 0 && remembered.combined > 0, "{sum:?}, {remembered:?}");
    every::<Narrow>("making a level, absorbing", &[deeds(&[&[Grow, Update], &[Update]])]);
    let few = [deeds(&[&[Update], &[Update]])];
    for mishap in [Mishap::Dies, Mishap::Stops, Mishap::Loses] {
        let what = format!("moving, absorbing, one {mishap:?}");
        if mishap != Mishap::Loses || has_more() {
            every::<Narrow>(&what, &befalls(mishap, &few.clone().map(unknown)));
        }
        every::<Absorbing<ArrayOptimistic>>(&what, &befalls(mishap, &overwrites[..3]));
    }
}

#[test]
fn a_level_is_made_beside_changes() {
    let cases = [
        deeds(&[&[Grow], &[Grow]]),
        deeds(&[&[Grow, Update], &[Update]]),
        deeds(&[&[Grow], &[Delete, Insert]]),
    ];
    every::<NarrowOptimistic>("making a level", &cases);
}

#[test]
fn two_clients_move_the_same_slots() {
    // What an increment finds tells whether the one before was lost.
    let cases = [known(deeds(&[&[Increment], &[Increment]]))];
    every::<ThinOptimistic>("two that move", &cases);
}

#[test]
fn slots_move_under_every_scheme() {
    let cases = [
        unknown(deeds(&[&[Update, Get], &[Update]])),
        unknown(deeds(&[&[Increment], &[Increment]])),
        known(deeds(&[&[Update], &[Get]])),
    ];
    every::<ThinCas>("moving, cas", &cases);
    every::<ThinMcs>("moving, mcs", &cases);
    every::<ThinCider>("moving, cider", &cases);
    every::<Remembering<NarrowOptimistic>>("moving, remembering", &cases);
}

#[test]
fn a_watcher_is_told_while_slots_move() {
    let of = |exists, deeds| Small { exists, ..deeds };
    let cases = [
        of(true, unknown(deeds(&[&[Watch], &[Update]]))),
        of(true, unknown(deeds(&[&[Watch], &[Delete, Insert]]))),
        of(false, unknown(deeds(&[&[Watch], &[Insert]]))),
        of(false, deeds(&[&[Watch], &[Grow, Insert]])),
        Small { beside: vec![1], ..of(false, deeds(&[&[Watch], &[Insert]])) },
    ];
    every::<NarrowOptimistic>("watching", &cases);
}

#[test]
fn a_scan_beside_changes() {
    let cases = [
        unknown(deeds(&[&[Scan], &[Update]])),
        unknown(deeds(&[&[Scan], &[Delete, Insert]])),
        deeds(&[&[Scan], &[Grow, Update]]),
    ];
    every::<NarrowOptimistic>("scanning", &cases);
    let tree = [Small { beside: vec![1], ..acts(&[&[Scan.at(0)], &[Insert.at(3)]]) }];
    every::<TreeTight>("scanning a tree", &tree);
}

/// Keys that begin with each other, whose nodes are made and replaced.
#[test]
fn keys_of_one_tree() {
    let beside = |clients| Small { beside: vec![1], ..acts(clients) };
    let cases = [
        beside(&[&[Insert.at(2)], &[Insert.at(3)]]),
        beside(&[&[Update.at(0)], &[Insert.at(3)]]),
        beside(&[&[Delete.at(0)], &[Insert.at(3)]]),
    ];
    every::<TreeTight>("a tree", &cases);
}

#[test]
fn transfers_that_are_torn() {
    let torn = |clients| Small { torn_words_max: 4, ..deeds(clients) };
    every::<ArrayOptimistic>("torn", &[torn(&[&[Update, Update], &[Get]])]);
    let moving = Small { torn_words_max: 3, ..unknown(deeds(&[&[Get], &[Update]])) };
    every::<NarrowOptimistic>("torn, moving", &[moving]);
}

#[test]
fn completions_that_are_lost() {
    let cases = [deeds(&[&[Increment], &[Delete]])];
    every::<ArrayOptimistic>("lost", &befalls(Mishap::Loses, &cases));
}

/// Larger ones, for which there is time at night.
#[test]
fn more_at_night() {
    if !has_more() {
        println!("FARLOCK_MORE_SCHEDULES is not set: nothing more is tried");
        return;
    }
    let contest = |small: &Small| small.acts.iter().flatten().all(|act| act.deed.inserts());
    let cases: Vec<Small> = pairs(false).filter(|small| !contest(small)).map(unknown).collect();
    every::<NarrowOptimistic>("a level that one does not know, absent", &cases);
    let two: Vec<Small> = pairs(true).map(|small| Small { levels: 2, ..small }).collect();
    every::<NarrowOptimistic>("two levels", &two);
    let longer: Vec<Small> = Deed::ALL
        .into_iter()
        .map(|deed| unknown(deeds(&[&[Increment, Get], &[deed, Update]])))
        .collect();
    every::<NarrowOptimistic>("a level that one does not know, longer", &longer);
    every::<NarrowOptimistic>("two that move", &[known(deeds(&[&[Increment], &[Increment]]))]);
    let few = [deeds(&[&[Get], &[Update]]), deeds(&[&[Increment], &[Delete]])].map(unknown);
    for mishap in [Mishap::Dies, Mishap::Stops, Mishap::Loses] {
        let what = format!("moving, one {mishap:?}");
        every::<NarrowOptimistic>(&what, &befalls(mishap, &few));
        every::<ThinMcs>(&what, &befalls(mishap, &few));
        every::<ThinCider>(&what, &befalls(mishap, &few));
    }
    let torn = Small { torn_words_max: 4, ..deeds(&[&[Update, Update], &[Get, Get]]) };
    every::<ArrayOptimistic>("torn, recycling", &[torn]);
}

/// Of each planted bug a schedule is found; without it there is none.
#[cfg(feature = "museum")]
mod planted {
    use super::*;
    use crate::scene::small::Wrong;
    use farlock_kv::Flaw;

    /// The most runs after which a planted bug is found.
    const FOUND_WITHIN: u64 = 60_000;

    /// The most runs in which it is looked whether nothing is wrong without it.
    const WITHOUT_MAX: u64 = 2_000;

    fn caught<K: Kit>(flaw: Flaw, small: Small) {
        small::find::<K>(flaw, &small, FOUND_WITHIN);
        let explored = small::explore::<K>(&small, WITHOUT_MAX);
        let is_wrong = matches!(explored, Err(Wrong::Found { .. }));
        assert!(!is_wrong, "nothing is wrong without {flaw:?}: {explored:?}");
    }

    #[test]
    fn slots_that_are_moved_wrongly() {
        let small = unknown(deeds(&[&[Get], &[Update]]));
        caught::<NarrowOptimistic>(Flaw::OldLevelAlone, small.clone());
        caught::<NarrowOptimistic>(Flaw::MovedBeforeCopied, small);
        let small = unknown(deeds(&[&[Delete, Update], &[Update]]));
        caught::<ThinOptimistic>(Flaw::EmptyMovesAlone, small);
        let small = unknown(deeds(&[&[Insert], &[Delete]]));
        caught::<NarrowOptimistic>(Flaw::PendingMoves, Small { exists: false, ..small });
    }

    /// The story of a client that was paused between a slot and its heirs: another one moved the
    /// slot and changed the key in the heir, and the first one put there what the slot had said.
    #[test]
    fn heirs_that_are_read_after_their_slot() {
        if !has_more() {
            return;
        }
        let small = known(deeds(&[&[Increment], &[Increment]]));
        caught::<ThinOptimistic>(Flaw::HeirsReadLate, small);
    }

    /// The story of two that move a slot: the heir has the word that one of them read before a
    /// change, and the other one, which has read the change, marks the slot all the same.
    #[test]
    fn a_copy_that_was_not_made() {
        if !has_more() {
            return;
        }
        let small = unknown(deeds(&[&[Increment, Grow, Increment], &[Increment]]));
        caught::<ThinOptimistic>(Flaw::CopyUnchecked, small);
    }

    #[test]
    fn chunks_of_a_level_that_others_made() {
        caught::<NarrowOptimistic>(Flaw::RunForgotten, deeds(&[&[Grow], &[Grow]]));
    }

    #[test]
    fn what_is_not_met_or_not_waited_for() {
        caught::<NarrowOptimistic>(Flaw::ScanStopsAtMoved, unknown(deeds(&[&[Scan], &[Update]])));
        let small = Small { exists: false, beside: vec![3], ..deeds(&[&[Watch], &[Insert]]) };
        caught::<NarrowOptimistic>(Flaw::WatchesOneSlot, small);
    }

    #[test]
    fn another_key_with_the_same_fingerprint() {
        let small = unknown(acts(&[&[Get.at(0)], &[Insert.at(2)]]));
        caught::<ThinOptimistic>(Flaw::OtherKey, Small { exists: false, ..small });
    }

    #[test]
    fn a_node_that_is_copied_while_it_changes() {
        let small = Small { beside: vec![1], ..acts(&[&[Update.at(0)], &[Insert.at(3)]]) };
        caught::<TreeTight>(Flaw::UnfrozenNode, small);
    }

    #[test]
    fn a_torn_value_that_is_accepted() {
        let small = deeds(&[&[Update, Update], &[Get, Get]]);
        caught::<ArrayOptimistic>(Flaw::TornValue, Small { torn_words_max: 4, ..small });
    }

    #[test]
    fn a_change_whose_completion_was_lost_made_twice() {
        let small = Small { mishap: Mishap::Loses, ..deeds(&[&[Increment], &[Get]]) };
        caught::<ArrayOptimistic>(Flaw::DoubleExecution, small);
    }
}
