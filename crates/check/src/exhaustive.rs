//! Every schedule of a small configuration, deaths included where there are any.
//!
//! Where clients may die, every schedule means: each of them at each verb, with each of the ends
//! that a verb can have. A verb in flight takes effect at any time until its owner is known to be
//! dead, or never.

use std::time::Instant;

use farlock_sim::schedule::{Director, Exhaustive};

use crate::hunt::{Budget, Catch};
use crate::line::Line;
use crate::scenario::Scenario;
use crate::trial::Player;
use crate::verdict::{Befell, Finding, Objection, Promise};

/// What an exploration came to.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// Runs, most of them only to reach a state that was not seen.
    pub schedules: u64,
    /// Different states.
    pub states: u64,
    /// Whether there are no others.
    pub complete: bool,
    /// Runs in which a client found another dead, and went on.
    pub recoveries: u64,
    /// How many rounds of readers passed a writer at most.
    pub rounds_max: u32,
    /// What befell the runs.
    pub befell: Befell,
    /// The first thing that was found; nothing is explored after it.
    pub catch: Option<Catch>,
}

/// Explores this scenario until everything was seen, something was found, or the budget is spent.
pub fn explore(
    player: &Player,
    scenario: &Scenario,
    budget: Budget,
    mut tick: impl FnMut(u64),
) -> Explored {
    let (begun, director) = (Instant::now(), Director::new(Exhaustive::new()));
    let mut explored = Explored::default();
    while !budget.is_spent(explored.schedules, begun) {
        let Some(oracle) = director.begin() else {
            explored.complete = true;
            break;
        };
        explored.schedules += 1;
        let verdict = player.play(scenario, oracle);
        explored.recoveries += u64::from(verdict.recovered);
        explored.rounds_max = explored.rounds_max.max(verdict.rounds_max);
        explored.befell.add(verdict.befell);
        if let Some(finding) = verdict.finding {
            let line = Line { scenario: scenario.clone(), trail: director.trail() };
            explored.catch = Some(Catch { line, finding });
            break;
        }
        if verdict.ended {
            director.with(Exhaustive::ended);
        }
        if explored.schedules.is_multiple_of(1024) {
            tick(explored.schedules);
        }
    }
    explored.states = director.with(|schedule| schedule.states());
    if explored.complete {
        explored.catch = circle(player, scenario, director.with(|schedule| schedule.doomed()));
    }
    explored
}

/// A run into one of these states, from which none comes to an end: a client goes round in circles
/// for ever, whatever the schedule.
fn circle(player: &Player, scenario: &Scenario, doomed: Vec<u64>) -> Option<Catch> {
    if doomed.is_empty() {
        return None;
    }
    let count = doomed.len();
    let director = Director::new(Exhaustive::until(doomed));
    let mut trail = director.trail();
    while let Some(oracle) = director.begin() {
        player.play(scenario, oracle);
        trail = director.trail();
    }
    let story = format!("of {count} states, this the first, no schedule leads to an end");
    let line = Line { scenario: scenario.clone(), trail };
    let (objection, promise) = (Objection::Stall, Promise::Progress);
    Some(Catch { line, finding: Finding { objection, promise, story } })
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use farlock_locks::record::citron::Exclusive;
    use farlock_sim::schedule::Consistent;

    use super::*;
    use crate::hunt::{Hunt, Mix};
    use crate::mishap::What;
    use crate::scenario::VISITED_NS;
    use crate::subjects;
    use crate::verdict::Objection;
    use crate::wish::Wish;

    /// A waiter of DSLR counted its pauses without end, where nothing but a lease asks for their
    /// sum. So it never came to a state that it had been in: there was a schedule in which one of
    /// two waiters polls until the run's events are used up, and the visitor that came last had
    /// none left. A wait that polls in vain comes round to where it was.
    #[test]
    fn waiting_by_the_clock_has_few_states() {
        for subject in ["dslr", "dslr-64"] {
            let player = subjects::player(subject).expect("a registered lock");
            let scenario = Scenario { anywhere: 1, ..Scenario::plain(subject, 3, 1).mixed() };
            let explored = explore(&player, &scenario, Budget::Schedules(50_000), |_| {});
            assert!(explored.catch.is_none(), "{:?}", explored.catch);
            assert!(explored.complete && explored.recoveries > 0, "{explored:?}");
            assert!(explored.states < 20_000, "{} states of {subject}", explored.states);
        }
    }

    /// Who does not settle leaks only if it gives up, and every moment at which it may is tried.
    #[test]
    fn a_leak_is_found_where_somebody_gives_up_and_nowhere_else() {
        let player = subjects::player("museum:leak-on-cancel").expect("the museum has it");
        let scenario = Scenario::plain("museum:leak-on-cancel", 2, 1);
        let explored = explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {});
        assert!(explored.complete && explored.catch.is_none());
        let scenario = Scenario { cancel_anywhere: 1, ..scenario };
        let explored = explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {});
        let catch = explored.catch.expect("somebody gives up");
        let (verdict, _) = crate::hunt::replay(&player, &catch.line);
        assert_eq!(verdict.finding, Some(catch.finding));
        assert_eq!(verdict.befell.given_up, 1);
    }

    /// Every order in which writes with tokens arrive outside, of the living and of the dead.
    #[test]
    fn in_every_order_of_arrival_the_fence_holds() {
        for subject in ["cas-nb", "mcs", "shiftlock", "dslr"] {
            let player = subjects::player(subject).expect("a registered lock");
            let base = Scenario::plain(subject, 2, 1);
            let scenario = Scenario { anywhere: 1, fenced: true, ..base };
            let explored = explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {});
            assert!(explored.catch.is_none(), "{:?}", explored.catch);
            let has_tokens = subject != "cas-nb";
            assert_eq!(explored.befell.stale_refused > 0, has_tokens, "{explored:?}");
            assert!(explored.complete, "{explored:?}");
        }
    }

    /// An exploration turns back where a state's hash was met before. That is right only if equal
    /// hashes have equal futures: each choice leads from equal states to equal states.
    #[test]
    fn what_follows_a_state_follows_it_every_time() {
        for (subject, slow) in [
            ("cas-nb", false),
            ("mcs", false),
            ("shiftlock", false),
            ("dslr", false),
            ("dslr-64", false),
            ("mcs", true),
            ("dslr:lease=10000000", false),
            ("shiftlock:lease=10000000", false),
            ("shiftlock:lease=10000000:strict", true),
            ("dslr-64:lease=10000000", false),
            ("local:mcs", false),
        ] {
            let player = subjects::player(subject).expect("a registered lock");
            let base = Scenario::plain(subject, 3, 2).mixed();
            let pause = What::Pause(player.pause_anywhere_ns());
            let mishaps_anywhere = vec![(1, pause)];
            let scenario =
                Scenario { anywhere: 1, cancel_anywhere: 1, mishaps_anywhere, slow, ..base };
            is_consistent(&player, &scenario);
        }
    }

    /// How often each acquires where readers are to pass a writer.
    const ROUNDS: u16 = 8;

    fn is_consistent(player: &Player, scenario: &Scenario) {
        let director = Director::new(Consistent::new(1));
        for _ in 0..4_000 {
            let oracle = director.begin().expect("there is always another random schedule");
            assert_eq!(player.play(scenario, oracle).finding, None);
        }
        let (conflicts, repeats) = director.with(|c| (c.conflicts(), c.repeats()));
        assert_eq!(conflicts, 0, "{scenario:?}");
        assert!(repeats > 10_000, "{scenario:?}: only {repeats} steps were seen twice");
    }

    /// What newcomers do, and what is found out of the stopped, is the same in the same state.
    #[test]
    fn what_follows_a_state_follows_it_where_somebody_is_stopped_or_comes_new() {
        let subject = "claim";
        let player = subjects::player(subject).expect("a registered lock");
        let base = Scenario::plain(subject, 2, 1).mixed();
        let mishaps_anywhere = vec![(2, What::Stop)];
        is_consistent(&player, &Scenario { mishaps_anywhere, ..base.clone() });
        let hold_ns = VISITED_NS;
        let visited = Scenario { visited: true, cancel_anywhere: 2, hold_ns, ..base };
        is_consistent(&player, &visited.clone().trying(false));
        is_consistent(&player, &Scenario { quits: true, cancel_anywhere: 1, ..visited });
    }

    /// A client that waits at several nodes in one turn of its loops remembers all it needs.
    #[test]
    fn what_follows_a_state_follows_it_among_ranges() {
        for (spec, ranges) in [
            ("citron:leaf=1", [2..8, 4..8, 0..16]),
            ("citron:leaf=1", [3..5, 3..8, 0..16]),
            ("citron:leaf=1", [0..4, 0..1, 0..2]),
            ("citron-rw:leaf=1", [2..8, 4..8, 0..16]),
            ("citron-rw:leaf=1", [0..1, 0..1, 0..4]),
        ] {
            let player = subjects::player(spec).expect("a registered lock");
            let scenario = Scenario::of_ranges(spec, 2, &ranges).expect("few parts").mixed();
            let pause = What::Pause(player.pause_anywhere_ns());
            let mishaps_anywhere = vec![(1, pause)];
            is_consistent(
                &player,
                &Scenario { anywhere: 1, cancel_anywhere: 1, mishaps_anywhere, ..scenario },
            );
        }
    }

    /// Clients that look at clocks remember when they did, and nothing else of the time.
    #[test]
    fn what_follows_a_state_follows_it_where_clocks_decide() {
        let spec = "citron:leaf=1:wait=15000";
        for ranges in [[0..16, 2..3, 2..3], [2..8, 4..8, 0..16], [0..4, 0..1, 0..2]] {
            let player = subjects::player(spec).expect("a registered lock");
            let scenario = Scenario::of_ranges(spec, 1, &ranges).expect("few parts");
            is_consistent(&player, &Scenario { hasty: true, cancel_anywhere: 1, ..scenario });
        }
    }

    fn explored_ranges(spec: &str, ranges: &[Range<u32>], anywhere: u32) -> Explored {
        explored_in_modes(spec, ranges, 0, anywhere)
    }

    fn explored_in_modes(
        spec: &str,
        ranges: &[Range<u32>],
        shared: u64,
        anywhere: u32,
    ) -> Explored {
        let player = subjects::player(spec).expect("a registered lock");
        let scenario = Scenario::of_ranges(spec, 1, ranges).expect("few parts");
        let scenario = Scenario { anywhere, shared, ..scenario };
        let explored = explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {});
        assert!(explored.catch.is_none(), "{spec} {ranges:?}: {:?}", explored.catch);
        assert!(explored.complete, "{spec} {ranges:?}");
        explored
    }

    /// On a tree of four levels, with leaves of one unit: a leaf and the root, a range of two of
    /// them and the root. A client that notifies and one that looks meet at any distance.
    #[test]
    fn ranges_above_and_below_each_other_exclude_and_do_not_deadlock() {
        let (root, leaf) = (0..64, 0..1);
        for distance in [1, 2, 4] {
            let spec = format!("citron:levels=4:leaf=1:m={distance}");
            explored_ranges(&spec, &[root.clone(), leaf.clone()], 0);
            explored_ranges(&spec, &[1..3, root.clone()], 0);
        }
    }

    /// With a time that owners wait, where any verb may take longer than that.
    #[test]
    fn who_is_late_for_the_owner_above_gives_way_to_it() {
        let (root, inner, leaf) = (0..16, 0..4, 2..3);
        for distance in [1, 2, 4] {
            for ranges in [[&root, &leaf], [&inner, &leaf], [&root, &inner]] {
                let spec = format!("citron:leaf=1:m={distance}:wait=15000");
                let player = subjects::player(&spec).expect("a registered lock");
                let scenario = Scenario::of_ranges(&spec, 1, &ranges.map(Range::clone));
                let scenario = Scenario { hasty: true, ..scenario.expect("few parts") };
                let explored = explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {});
                assert!(explored.catch.is_none(), "{spec} {ranges:?}: {:?}", explored.catch);
                assert!(explored.complete, "{spec} {ranges:?}");
                assert!(explored.befell.aborts > 0, "{spec} {ranges:?}: {:?}", explored.befell);
            }
        }
    }

    /// Without the wait, or if nobody minds that it is late, two hold. So they do where one that
    /// was given some leaves of its node gives all back, or does not mind that it was late.
    #[test]
    fn without_its_times_a_tree_with_clocks_does_not_exclude() {
        for (name, ranges) in [
            ("looks-at-once", &[0..16, 2..3][..]),
            ("never-late", &[0..16, 2..3]),
            ("frees-all-leaves", &[0..4, 2..3, 2..3]),
            ("fast-though-late", &[0..16, 0..4]),
        ] {
            let spec = format!("{}{name}", subjects::MUSEUM);
            let player = subjects::player(&spec).expect("an exhibit");
            let scenario = Scenario::of_ranges("citron:leaf=1", 1, ranges);
            let scenario = scenario.expect("few parts");
            let scenario = Scenario { subject: spec, hasty: true, ..scenario };
            let explored = explore(&player, &scenario, Budget::Schedules(20_000), |_| {});
            let found = explored.catch.map(|catch| catch.finding.objection);
            assert_eq!(found, Some(Objection::Violation), "{name}");
        }
    }

    /// Where the parameters change under way, and a client or the manager dies at any verb.
    #[test]
    fn the_dead_beside_a_change_are_in_nobodys_way() {
        for (distance, to) in [(2, "1:30000"), (1, "2:5000")] {
            let spec = format!("citron:leaf=1:tokens=no:wait=15000:tuned=yes:m={distance}");
            let player = subjects::player(&spec).expect("a registered lock");
            let scenario = Scenario::of_ranges(&spec, 1, &[0..16, 2..3]).expect("few parts");
            let scenario = scenario.tuning(&[to.parse().expect("m and a time")]);
            let scenario = Scenario { anywhere: 1, ..scenario };
            let explored = explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {});
            assert!(explored.catch.is_none(), "{spec} to {to}: {:?}", explored.catch);
            assert!(explored.complete && explored.recoveries > 0, "{explored:?}");
            assert!(explored.befell.tunes > 0, "{explored:?}");
        }
    }

    /// Whichever of two reads; where one of them dies as well.
    #[test]
    fn readers_of_ranges_exclude_writers_above_and_below() {
        let spec = "citron-rw:leaf=1";
        for ranges in [[0..16, 0..1], [0..1, 0..1], [2..8, 3..4], [4..8, 4..8]] {
            for shared in 0..4 {
                explored_in_modes(spec, &ranges, shared, 0);
                let bereaved = explored_in_modes(spec, &ranges, shared, 1);
                assert!(bereaved.recoveries > 0 || shared == 3, "{ranges:?} {shared:b}");
            }
        }
    }

    /// The first client writes, all others read, of a writer that waits for those above and below.
    fn passed_by_readers<'p>(
        player: &'p Player,
        spec: &str,
        ranges: &[Range<u32>],
        schedules: u64,
    ) -> (Hunt<'p>, Option<Finding>) {
        let scenario = Scenario::of_ranges(spec, ROUNDS, ranges).expect("few parts");
        let scenario = Scenario { shared: u64::MAX << ROUNDS, ..scenario };
        let mut hunt = Hunt::new(player, Mix::Standard, 1);
        let found = (0..schedules).find_map(|_| hunt.run(&scenario).0.finding);
        (hunt, found)
    }

    /// A writer asked newcomers to wait at one node above it at a time. While it waited for the
    /// readers of its parent others came to the root, and while it waited for those others came to
    /// its parent: three clients were enough to keep it out for ever. Also where it stood in line,
    /// or a reader below asked newcomers at its own node to wait, it asked nobody meanwhile.
    #[test]
    fn readers_of_several_nodes_do_not_keep_a_writer_out_in_turn() {
        let deep = "citron-rw:leaf=1:levels=4";
        for (spec, ranges, most) in [
            ("citron-rw:leaf=1", &[0..1, 0..4, 0..16][..], 3),
            ("citron-rw:leaf=1", &[0..1, 0..4, 0..16, 0..4, 0..16], 3),
            ("citron-rw:leaf=1", &[0..4, 0..4, 0..16, 0..1], 4),
            ("citron-rw:leaf=1:levels=2", &[0..1, 0..4, 0..4, 0..1], 3),
            (deep, &[0..1, 0..4, 0..16, 0..64], 4),
        ] {
            let player = subjects::player(spec).expect("a registered lock");
            let (hunt, found) = passed_by_readers(&player, spec, ranges, 2_000);
            assert_eq!(found, None, "{spec} {ranges:?}");
            let rounds = hunt.rounds_max;
            assert!((1..=most).contains(&rounds), "{spec} {ranges:?}: {rounds} rounds");
        }
        for (name, ranges) in
            [("calls-at-one", &[0..1, 0..4, 0..16][..]), ("call-unheard", &[0..1, 0..4, 0..4])]
        {
            let spec = format!("{}{name}", subjects::MUSEUM);
            let player = subjects::player(&spec).expect("an exhibit");
            let (hunt, found) = passed_by_readers(&player, &spec, ranges, 2_000);
            let broken = found.map(|finding| finding.promise);
            assert_eq!(broken, Some(Promise::Order), "{name}: {} rounds", hunt.rounds_max);
        }
    }

    /// Those that come for a unit for which one waits that calls wait for it: what passes it has
    /// looked before, or calls itself. Those that do not hear it pass again and again.
    #[test]
    fn newcomers_do_not_pass_a_waiter_that_calls_for_a_unit() {
        const SPEC: &str = "citron:leaf=16:call=0:poll=2500000";
        let passed = |player: &Player, ranges: &[Range<u32>]| {
            let scenario = Scenario::of_ranges(SPEC, 2 * ROUNDS, ranges).expect("few parts");
            let mut hunt = Hunt::new(player, Mix::Standard, 1);
            let found = (0..1_500).find_map(|_| hunt.run(&scenario).0.finding);
            (hunt.rounds_max, found.map(|finding| finding.promise))
        };
        let calling = || Exclusive { leaf_units: 16, calls_after: Some(0), ..Exclusive::default() };
        let sound = subjects::passed_by_few(Exclusive { poll_ns: 2_500_000, ..calling() });
        let unheard = Exclusive { heeds_calls: false, poll_ns: 2_500_000, ..calling() };
        let flawed = subjects::passed_by_few(unheard);
        for ranges in
            [&[0..1, 0..1, 0..1, 0..1][..], &[0..1, 0..3, 0..1, 0..3], &[0..3, 0..1, 1..2, 2..3]]
        {
            let (rounds, found) = passed(&sound, ranges);
            assert!(rounds > 0 && found.is_none(), "{ranges:?}: {rounds} {found:?}");
            let (rounds, found) = passed(&flawed, ranges);
            assert_eq!(found, Some(Promise::Order), "{ranges:?}: {rounds}");
        }
    }

    /// Every schedule of a writer beside a reader that comes three times: above it, at its own
    /// node, or below.
    #[test]
    fn in_every_schedule_few_rounds_of_readers_pass_a_writer() {
        let spec = "citron-rw:leaf=1:levels=2:tokens=no";
        let player = subjects::player(spec).expect("a registered lock");
        for (ranges, rounds) in [([0..1, 0..4], 2), ([0..4, 0..4], 1), ([0..4, 0..1], 0)] {
            let scenario = Scenario::of_ranges(spec, 3, &ranges).expect("few parts");
            let scenario = Scenario { shared: u64::MAX << 3, ..scenario };
            let explored = explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {});
            assert!(explored.catch.is_none(), "{ranges:?}: {:?}", explored.catch);
            assert!(explored.complete, "{ranges:?}: {explored:?}");
            assert_eq!(explored.rounds_max, rounds, "{ranges:?}");
        }
    }

    /// Ranges that do not overlap may have nodes that do: held while others are awaited, they
    /// deadlock. Those of exact covers do not, nor a reader beside a writer in one leaf, nor one
    /// that holds beside one that only waits.
    #[test]
    fn disjoint_ranges_that_are_held_and_awaited_do_not_deadlock() {
        let explored = |spec: &str, wishes: [&str; 2], shared| {
            let player = subjects::player(spec).expect("a registered lock");
            let wishes = wishes.map(|text| text.parse::<Wish>().expect("ranges"));
            let scenario = Scenario::of_ranges(spec, 1, &wishes).expect("few parts");
            let scenario = Scenario { shared, ..scenario };
            explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {})
        };
        let apart = ["0-3+8-9", "9-12+3-4"];
        for (spec, wishes, shared) in [
            ("citron:leaf=1:exact=yes", apart, 0),
            ("citron-rw:leaf=4:exact=yes", ["0-1+5-6", "4-5+1-2"], 1),
            ("citron-rw:leaf=4:exact=yes", ["0-1+5-6", "4-5+1-2"], 3),
            // What one has and the other waits for, which has parts of it: that one steps back.
            ("citron:leaf=1:exact=yes:back=1", ["4-6+0-1", "0-8"], 0),
            ("citron:leaf=1:exact=yes:back=1", ["4-6+0-1", "0-7"], 0),
            ("citron-rw:leaf=4:exact=yes:back=1", ["4-6+0-1", "0-7"], 1),
        ] {
            let explored = explored(spec, wishes, shared);
            assert!(explored.catch.is_none(), "{spec} {wishes:?}: {:?}", explored.catch);
            assert!(explored.complete, "{spec} {wishes:?}");
        }
        let split = explored("citron:leaf=1", apart, 0);
        assert!(
            split.catch.is_some_and(|it| it.finding.objection == Objection::Stall),
            "by two nodes they meet"
        );
    }

    /// One that holds and asks for more has refined both. It deadlocked with one that holds nothing
    /// and waits with nodes that have more than it wants: claimed above what the other holds, or
    /// taken to the left of that.
    #[test]
    fn who_waits_with_some_of_its_nodes_has_nothing_beside_what_it_wants() {
        let explored = |spec: &str, wishes: [&str; 2]| {
            let player = subjects::player(spec).expect("a registered lock");
            let wishes = wishes.map(|text| text.parse::<Wish>().expect("ranges"));
            let scenario = Scenario::of_ranges(spec, 1, &wishes).expect("few parts");
            let scenario = Scenario { refines: true, ..scenario };
            explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {})
        };
        for wishes in [["0-1+15-16", "1-15"], ["7-8+0-1", "1-7"]] {
            let split = explored("citron:leaf=1:tokens=no", wishes);
            let stalls = |it: &Catch| it.finding.objection == Objection::Stall;
            assert!(split.catch.as_ref().is_some_and(stalls), "{wishes:?} meet by two nodes");
            let refined = explored("citron:leaf=1:tokens=no:refine=yes", wishes);
            assert!(refined.catch.is_none(), "{wishes:?}: {:?}", refined.catch);
            assert!(refined.complete, "{wishes:?}");
        }
    }

    /// The same where one dies at any verb.
    #[test]
    fn the_dead_among_ranges_are_in_nobodys_way() {
        let spec = "citron:leaf=1";
        for ranges in [[0..16, 0..1], [0..1, 0..1], [2..8, 3..4], [2..5, 0..16]] {
            let explored = explored_ranges(spec, &ranges, 1);
            assert!(explored.recoveries > 0, "{ranges:?}");
        }
    }
}
