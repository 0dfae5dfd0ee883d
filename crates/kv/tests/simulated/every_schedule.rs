//! Specification: whatever a few operations on one key do, in whichever order their verbs take
//! effect, the key is one that does one thing after the other, and no memory is lost. Here every
//! order is tried, where other tests draw some.
//!
//! Where two clients insert one key into slots that keys share, each may take the other off its
//! slot and begin again, as often as the schedule likes: there is no end of schedules. So those are
//! tried in which no client begins anew more often than a bound says, which is printed.

use crate::scene::small::{self, Deed, Explored, Mishap, Small};
use crate::scene::{
    Absorbing, Apart, ArrayCider, ArrayOptimistic, Kit, RaceCider, RaceSmall, Remembering,
    TreeTight,
};
use farlock_kv::Index;
use farlock_sim::schedule::{Consistent, Director};

/// The most runs of one exploration: one that needs more has changed.
const SCHEDULES_MAX: u64 = 4_000_000;

/// What is tried of each group of deeds.
#[derive(Clone, Copy, Debug)]
struct Plan {
    mishap: Mishap,
    /// A client learns of its verb's end later than it took effect.
    slow: bool,
    overtaken: bool,
    /// How often a client may begin anew where two insert one key.
    anew_max: u64,
    /// All memory has been used, for shorter values than those that clients put.
    scarce: bool,
}

const CALM: Plan =
    Plan { mishap: Mishap::Nothing, slow: false, overtaken: false, anew_max: 1, scarce: false };
const DEADLY: Plan = Plan { mishap: Mishap::Dies, ..CALM };
const HALTING: Plan = Plan { mishap: Mishap::Stops, ..CALM };

/// Whether at night more is tried.
fn has_more() -> bool {
    std::env::var("FARLOCK_MORE_SCHEDULES").is_ok()
}

/// Every group of so many deeds, each once, whatever the order of the clients.
fn groups(clients: usize) -> Vec<Vec<Deed>> {
    let mut groups = vec![Vec::new()];
    for _ in 0..clients {
        let longer = |group: Vec<Deed>| {
            let last = group.last().copied();
            let not_before = move |deed: &Deed| last.is_none_or(|last| *deed >= last);
            let more = Deed::ALL.into_iter().filter(not_before);
            more.map(move |deed| [&group[..], &[deed]].concat()).collect::<Vec<_>>()
        };
        groups = groups.into_iter().flat_map(longer).collect();
    }
    groups
}

/// Whether two clients may insert the key at once, into slots that are not its alone.
fn is_contest<K: Kit>(small: &Small) -> bool {
    let deeds = || small.acts.iter().flatten().map(|act| act.deed);
    let inserters = deeds().filter(|deed| deed.inserts()).count();
    let may_be_absent = !small.exists || deeds().any(|deed| deed == Deed::Delete);
    !K::I::OWN_SLOTS && !K::I::TREE && inserters > 1 && may_be_absent
}

/// Every schedule of each of these, with the key there and not.
fn every<K: Kit>(what: &str, clients: &[Vec<Vec<Deed>>], plan: Plan) -> Explored {
    let (mut cases, mut contests) = (0, 0);
    let mut sum = Explored::default();
    for deeds in clients {
        for exists in [true, false] {
            let Plan { mishap, slow, overtaken, anew_max, scarce } = plan;
            let small = Small { exists, mishap, slow, overtaken, scarce, ..Small::new(deeds) };
            let is_contest = is_contest::<K>(&small);
            let small = if is_contest { Small { anew_max, ..small } } else { small };
            let explored = small::explore::<K>(&small, SCHEDULES_MAX);
            let explored =
                explored.unwrap_or_else(|wrong| panic!("{what}: {wrong:?} of {small:?}"));
            assert!(is_contest || explored.cut == 0, "{what}: {explored:?} of {small:?}");
            cases += 1;
            contests += u32::from(is_contest);
            sum.plus(&explored);
        }
    }
    println!("{what}, {plan:?}: {} of {cases} cases complete", cases - contests);
    println!("{what}: {contests} within the bound of {}: {sum:?}", plan.anew_max);
    assert!(sum.ends > 0 && (sum.befallen > 0) == (plan.mishap != Mishap::Nothing), "{sum:?}");
    sum
}

/// One deed each.
fn singles(clients: usize) -> Vec<Vec<Vec<Deed>>> {
    let alone = |group: Vec<Deed>| group.into_iter().map(|deed| vec![deed]).collect();
    groups(clients).into_iter().map(alone).collect()
}

/// One client overwrites twice, in a store where the block that it freed is the next that it uses;
/// the other one does anything meanwhile, and then reads.
fn recycling() -> Vec<Vec<Vec<Deed>>> {
    let twice = || vec![Deed::Update, Deed::Update];
    Deed::ALL.into_iter().map(|deed| vec![twice(), vec![deed, Deed::Get]]).collect()
}

#[test]
fn two_clients_of_a_pointer_array() {
    for plan in [CALM, DEADLY, HALTING] {
        every::<ArrayOptimistic>("pointer array", &singles(2), plan);
        every::<ArrayOptimistic>("pointer array, recycling", &recycling(), plan);
    }
}

/// Chunks get another class, while other clients use what they had, or are stopped, or die.
#[test]
fn two_clients_that_are_short_of_memory() {
    for mishap in [Mishap::Nothing, Mishap::Dies, Mishap::Stops] {
        let scarce = Plan { mishap, scarce: true, ..CALM };
        let sum = every::<ArrayOptimistic>("pointer array, scarce", &singles(2), scarce);
        assert!(sum.reclassed > 0, "{sum:?}");
        let sum = every::<RaceSmall>("race, scarce", &singles(2), scarce);
        assert!(sum.reclassed > 0, "{sum:?}");
    }
    let scarce = Plan { scarce: true, ..CALM };
    let sum = every::<ArrayOptimistic>("pointer array, scarce, recycling", &recycling(), scarce);
    assert!(sum.reclassed > 0, "{sum:?}");
}

#[test]
fn two_clients_of_race() {
    for plan in [CALM, DEADLY, HALTING] {
        every::<RaceSmall>("race", &singles(2), plan);
    }
    every::<RaceSmall>("race, recycling", &recycling(), CALM);
    every::<Remembering<RaceSmall>>("race, remembering", &singles(2), CALM);
    every::<Remembering<RaceSmall>>("race, remembering, recycling", &recycling(), CALM);
}

/// A key's buckets are read by one chain, each of them at any time, and in either order.
#[test]
fn two_clients_of_race_whose_buckets_lie_apart() {
    let (overtaken, few) = (Plan { overtaken: true, ..CALM }, &singles(2)[..]);
    let calm = every::<Apart<RaceSmall>>("race, two buckets", few, CALM);
    let either = every::<Apart<RaceSmall>>("race, two buckets", few, overtaken);
    assert!(either.states > calm.states, "one read is overtaken by the other: {either:?}");
    every::<Apart<RaceSmall>>("race, two buckets", few, HALTING);
}

#[test]
fn two_clients_of_a_tree() {
    for plan in [CALM, DEADLY, HALTING] {
        every::<TreeTight>("tree", &singles(2), plan);
    }
}

/// With verbs that end late, so that a client that is granted the lock finds another behind it.
#[test]
fn two_clients_that_are_combined() {
    let slow = Plan { slow: true, ..CALM };
    let sum = every::<ArrayCider>("pointer array, cider", &singles(2), slow);
    assert!(sum.combined > 0, "{sum:?}");
    for plan in [CALM, DEADLY, HALTING] {
        every::<ArrayCider>("pointer array, cider", &singles(2), plan);
        every::<RaceCider>("race, cider", &singles(2), plan);
    }
}

/// Of overwrites that collide one is carried out, and others count as done right before it.
#[test]
fn overwrites_that_come_second() {
    type Array = Absorbing<ArrayOptimistic>;
    type Race = Absorbing<RaceSmall>;
    for plan in [CALM, DEADLY, HALTING] {
        let array = every::<Array>("pointer array, absorbing", &singles(2), plan);
        let race = every::<Remembering<Race>>("race, absorbing", &singles(2), plan);
        assert!(array.combined > 0 && race.combined > 0, "{array:?}, {race:?}");
    }
    every::<Array>("pointer array, absorbing, recycling", &recycling(), CALM);
    every::<Remembering<Race>>("race, absorbing, recycling", &recycling(), CALM);
    every::<Absorbing<TreeTight>>("tree, absorbing", &singles(2), CALM);
    let beside = |deed| vec![vec![Deed::Update], vec![Deed::Update], vec![deed]];
    let three: Vec<_> = Deed::ALL.into_iter().map(beside).collect();
    let sum = every::<Array>("pointer array, absorbing, three", &three, CALM);
    assert!(sum.combined > 0, "{sum:?}");
}

#[test]
fn three_clients() {
    every::<ArrayOptimistic>("pointer array, three", &singles(3), CALM);
    let overwrites = [vec![vec![Deed::Update]; 3]];
    let sum = every::<ArrayCider>("pointer array, cider, three that overwrite", &overwrites, CALM);
    assert!(sum.combined > 0, "{sum:?}");
}

#[test]
fn more_at_night() {
    if !has_more() {
        println!("FARLOCK_MORE_SCHEDULES is not set: nothing more is tried");
        return;
    }
    let few = |group: &Vec<Vec<Deed>>| group.iter().flatten().filter(|d| d.inserts()).count() < 2;
    let some: Vec<_> = singles(3).into_iter().filter(few).collect();
    every::<RaceSmall>("race, three of whom one may insert", &some, CALM);
    let plan = |mishap, anew_max| Plan { mishap, anew_max, ..CALM };
    for mishap in [Mishap::Nothing, Mishap::Dies, Mishap::Stops] {
        every::<RaceSmall>("race", &singles(2), plan(mishap, 3));
        let overtaken = Plan { overtaken: true, ..plan(mishap, 1) };
        every::<Apart<RaceSmall>>("race, two buckets", &singles(2), overtaken);
        every::<Remembering<RaceSmall>>("race, remembering", &singles(2), plan(mishap, 2));
        every::<RaceSmall>("race, recycling", &recycling(), plan(mishap, 1));
        let slow = Plan { slow: true, ..plan(mishap, 1) };
        every::<ArrayCider>("pointer array, cider", &singles(2), slow);
        every::<RaceCider>("race, cider", &singles(2), plan(mishap, 2));
        every::<ArrayOptimistic>("pointer array, three", &singles(3), plan(mishap, 1));
    }
    every::<TreeTight>("tree, three", &singles(3), CALM);
    let sum = every::<ArrayCider>("pointer array, cider, three", &singles(3), CALM);
    assert!(sum.combined > 0, "{sum:?}");
}

/// An exploration turns back where a state's hash was met before. That is right only if equal
/// hashes have equal futures.
#[test]
fn what_follows_a_state_follows_it_every_time() {
    use Deed::{Delete, Increment, Insert, Update};
    let deeds = [[Update, Update], [Insert, Increment], [Increment, Delete]];
    for mishap in [Mishap::Nothing, Mishap::Dies, Mishap::Stops] {
        for deeds in deeds.map(|group| group.map(|deed| vec![deed])) {
            for exists in [true, false] {
                let small = Small { exists, mishap, overtaken: true, ..Small::new(&deeds) };
                is_consistent::<Apart<RaceSmall>>(&small);
                is_consistent::<ArrayCider>(&Small { slow: true, ..small });
            }
        }
    }
}

fn is_consistent<K: Kit>(small: &Small) {
    let director = Director::new(Consistent::new(1));
    for _ in 0..300 {
        let oracle = director.begin().expect("there is always another random schedule");
        assert_eq!(small::run::<K>(small, oracle).err(), None, "{small:?}");
    }
    let (conflicts, repeats) = director.with(|c| (c.conflicts(), c.repeats()));
    assert_eq!(conflicts, 0, "{small:?}");
    assert!(repeats > 100, "{small:?}: only {repeats} steps were seen twice");
}

/// Of each planted bug a schedule is found, which shows it again; without it there is none.
#[cfg(feature = "museum")]
mod planted {
    use super::*;
    use farlock_kv::Flaw;

    fn caught<K: Kit>(flaw: Flaw, small: Small) {
        small::find::<K>(flaw, &small, SCHEDULES_MAX);
        let explored = small::explore::<K>(&small, SCHEDULES_MAX);
        assert!(explored.is_ok(), "nothing is wrong without {flaw:?}: {explored:?}");
    }

    fn small(deeds: &[&[Deed]]) -> Small {
        Small::new(&deeds.iter().map(|deeds| deeds.to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn a_deletion_that_did_not_happen() {
        caught::<ArrayOptimistic>(Flaw::LostDelete, small(&[&[Deed::Update], &[Deed::Delete]]));
    }

    #[test]
    fn a_key_that_is_there_twice() {
        let small = small(&[&[Deed::Insert], &[Deed::Insert]]);
        caught::<RaceSmall>(Flaw::DuplicateKey, Small { exists: false, anew_max: 1, ..small });
    }

    #[test]
    fn a_recycled_block_that_is_accepted() {
        let small = small(&[&[Deed::Update, Deed::Update], &[Deed::Get, Deed::Get]]);
        caught::<ArrayOptimistic>(Flaw::RecycledBlock, small);
    }

    #[test]
    fn counts_that_begin_anew() {
        let small = small(&[&[Deed::Update; 4], &[Deed::Update]]);
        caught::<ArrayOptimistic>(Flaw::CountsBeginAnew, Small { scarce: true, ..small });
    }

    #[test]
    fn counts_that_land_late() {
        let small = small(&[&[Deed::Update, Deed::Update, Deed::Update], &[Deed::Get]]);
        let small = Small { scarce: true, mishap: Mishap::Loses, ..small };
        caught::<ArrayOptimistic>(Flaw::CountsWrittenAgain, small);
    }

    #[test]
    fn a_success_that_is_said_of_a_failure() {
        let small = small(&[&[Deed::Update], &[Deed::Delete]]);
        caught::<ArrayCider>(Flaw::FalseSuccess, Small { slow: true, exists: false, ..small });
    }

    #[test]
    fn an_overwrite_that_counts_as_done_before_an_increment() {
        let small = small(&[&[Deed::Update], &[Deed::Increment]]);
        caught::<Absorbing<ArrayOptimistic>>(Flaw::AbsorbedByAny, small);
    }

    #[test]
    fn an_overwrite_that_counts_as_done_before_one_that_was_answered() {
        let small = small(&[&[Deed::Update, Deed::Update], &[Deed::Update]]);
        caught::<Remembering<Absorbing<RaceSmall>>>(Flaw::AbsorbedByEarlier, small);
    }

    #[test]
    fn an_increment_that_is_combined() {
        let small = small(&[&[Deed::Increment], &[Deed::Increment]]);
        caught::<ArrayCider>(Flaw::CombinesIncrements, Small { slow: true, ..small });
    }
}
