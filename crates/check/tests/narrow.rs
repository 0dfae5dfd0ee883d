//! Locks whose counts come all the way round.
//!
//! With `--cfg=farlock_narrow` (see `farlock_locks::width`) they do within ten acquisitions, and
//! four repairs or eight tickets are half a count's values, or all of them. Every lock has a limit
//! there. Below it nothing may go wrong; at it something does, or these tests would show nothing.
//! In an ordinary build the same runs find nothing, also where counts begin near their wrap.

use farlock_check::exhaustive::explore;
use farlock_check::hunt::{self, Budget, DEPTHS};
use farlock_check::line::Line;
use farlock_check::scenario::{Death, Scenario};
use farlock_check::subjects;
use farlock_check::verdict::Objection;
use farlock_fabric::Nanos;
use farlock_locks::width;
use farlock_sim::schedule::{Director, Pct};
use farlock_sim::{Candidate, Candidates, Choice, Oracle, Outcome, Ratio, StepKind};

/// Whether this build's counts are narrow.
const NARROW: bool = cfg!(farlock_narrow);
/// Schedules tried of each depth.
const SCHEDULES: u64 = 4_000;
/// In a narrow build: half of what a count of repairs tells apart, all of what one of tickets or
/// readers does.
const REPAIRS: u16 = 4;
const TICKETS: u16 = 8;
const READERS: u16 = 8;

/// Whether a judge objects to a run of this scenario, in schedules with few preemptions. Counts
/// begin at zero, or shortly before they wrap.
fn goes_wrong(scenario: &Scenario) -> bool {
    let player = subjects::player(&scenario.subject).expect("a registered lock");
    let director = Director::new(Pct::new(1, *DEPTHS.start()));
    DEPTHS.into_iter().any(|depth| {
        director.with(|schedule| schedule.set_depth(depth));
        (0..SCHEDULES).any(|run| {
            let near_wrap = (run % 2) as u16;
            let oracle = director.begin().expect("there is always another random schedule");
            let scenario = Scenario { near_wrap, ..scenario.clone() };
            player.play(&scenario, oracle).finding.is_some()
        })
    })
}

/// A waiter looks at the one before it when that one has left the line, has passed, and is in line
/// again, behind the waiter. Turns that counted acquisitions had come round to the same: each
/// waited for the other.
#[test]
fn who_has_passed_and_waits_again_is_not_the_one_before() {
    let subject = "claim:bypass=1";
    let player = subjects::player(subject).expect("a registered lock");
    let line: Line = format!("{subject}/2x3/1.w-1.g-1.w-1.g").parse().expect("a line");
    assert_eq!(hunt::replay(&player, &line).0.finding, None);
    let scenario = Scenario::plain(subject, 2, if NARROW { 3 } else { 2 });
    let explored = explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {});
    assert!(explored.catch.is_none() && explored.complete, "{explored:?}");
}

#[test]
fn every_schedule_in_which_counts_come_all_the_way_round() {
    // The 2 x 6 acquisitions of two clients are more than a narrow count tells apart.
    for (subject, crashes) in [
        ("mcs", 1),
        ("shiftlock", 1),
        ("shiftlock:n=1", 0),
        ("shiftlock:bypass=1", 0),
        ("dslr", 1),
        ("dslr-64", 0),
    ] {
        let player = subjects::player(subject).expect("a registered lock");
        let base = Scenario::plain(subject, 2, 6).mixed();
        let scenario = Scenario { anywhere: if NARROW { crashes } else { 0 }, ..base };
        let explored = explore(&player, &scenario, Budget::Schedules(u64::MAX), |_| {});
        assert!(explored.catch.is_none() && explored.complete, "{subject}: {explored:?}");
        assert_eq!(explored.befell.wraps > 0, NARROW, "{subject}: {explored:?}");
    }
}

/// Client 0 holds. Behind it one dies in line, and `repairs` others take the broken lock over, one
/// after the other: all but the last die before they have looked who is there. If the generation
/// seems to be older than the holder's by then, it is not waited for.
fn repairs_in_a_row(subject: &str, repairs: u16) -> Scenario {
    let in_line = Death { who: 1, verb: 0, outcome: Outcome::Executed };
    let stolen = (2..=repairs).map(|who| Death { who, verb: 2, outcome: Outcome::Executed });
    let deaths = std::iter::once(in_line).chain(stolen).collect();
    Scenario { deaths, ..Scenario::plain(subject, repairs + 2, 1) }
}

/// One client after the other does all that it can, but the holder goes on when nobody else can,
/// and time passes last.
#[derive(Default)]
struct InTurn {
    holder: Option<u16>,
}

impl Oracle for InTurn {
    fn next(&mut self, candidates: &Candidates<'_>) -> Option<u32> {
        let rank = |candidate: &Candidate| match candidate.kind {
            StepKind::Timer => u16::MAX,
            _ if self.holder == Some(candidate.owner) => u16::MAX - 1,
            _ => candidate.owner,
        };
        let events = (0..).zip(candidates.list());
        let (number, event) = events.min_by_key(|(_, candidate)| rank(candidate))?;
        self.holder.get_or_insert(event.owner);
        Some(number)
    }

    fn pick(&mut self, _: Choice, _: u32) -> u32 {
        0
    }

    fn chance(&mut self, _: Choice, _: Ratio) -> bool {
        false
    }

    fn jitter(&mut self, _: u32) -> Nanos {
        0
    }
}

#[test]
fn as_many_repairs_during_one_hold_as_half_of_what_a_generation_tells() {
    for subject in ["mcs", "shiftlock"] {
        let player = subjects::player(subject).expect("a registered lock");
        let in_turn = |repairs| {
            let verdict =
                player.play(&repairs_in_a_row(subject, repairs), Box::<InTurn>::default());
            assert!(verdict.recovered, "{subject}: the others are found dead");
            verdict.finding.map(|finding| finding.objection)
        };
        assert_eq!(in_turn(REPAIRS - 1), None, "{subject}");
        assert!(!goes_wrong(&repairs_in_a_row(subject, REPAIRS - 1)), "{subject}");
        assert_eq!(in_turn(REPAIRS), NARROW.then_some(Objection::Violation), "{subject}");
    }
}

#[test]
fn more_clients_in_line_than_there_are_tickets() {
    assert!(!goes_wrong(&Scenario::plain("dslr", TICKETS, 1)));
    assert_eq!(goes_wrong(&Scenario::plain("dslr", TICKETS + 1, 1)), NARROW);
}

#[test]
fn more_readers_than_their_number_tells() {
    // All but one of them die while they hold, and are counted until a writer misses them.
    let readers = |count: u16| {
        let dies = |who| Death { who, verb: 1, outcome: Outcome::Never };
        let (shared, deaths) = ((1 << count) - 1, (1..count).map(dies).collect());
        Scenario { shared, deaths, ..Scenario::plain("shiftlock", count + 1, 1) }
    };
    assert!(!goes_wrong(&readers(READERS - 1)));
    assert_eq!(goes_wrong(&readers(READERS)), NARROW);
}

#[test]
fn a_narrow_build_has_the_widths_that_these_tests_are_about() {
    let told = [width::GENERATION - 1, width::TICKETS, width::READERS].map(|bits| 1u64 << bits);
    let here = [REPAIRS, TICKETS, READERS].map(u64::from);
    assert_eq!(told == here, NARROW);
}
