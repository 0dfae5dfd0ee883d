//! Ranges of which a part is let go while the rest is kept, and of which two parts are held by
//! themselves.

#![allow(clippy::single_range_in_vec_init, reason = "what is held may be one range")]

use std::ops::Range;
use std::thread;
use std::time::Duration;

use farlock::session::{RangeGuard, RangeLock};
use farlock::{DivideReason, LostReason, Mode};

use crate::stage::Stage;

/// The last position of a table that has a unit of its own.
const LAST: u64 = (1 << 28) - (1 << 18);

fn writes(table: &RangeLock, range: Range<u64>) -> bool {
    table.exclusive(range).at_once().blocking().is_ok()
}

fn reads(table: &RangeLock, range: Range<u64>) -> bool {
    table.shared(range).at_once().blocking().is_ok()
}

/// Whether these ranges are held in this mode, and nothing else of `all` is.
fn are_held(table: &RangeLock, mode: Mode, held: &[Range<u64>], all: Range<u64>) {
    let mut free = all.start;
    for part in held {
        assert!(free == part.start || writes(table, free..part.start), "{held:?} of {all:?}");
        for position in [part.start, part.start + (part.end - part.start) / 2, part.end - 1] {
            assert!(!writes(table, position..position + 1), "{position} in {held:?}");
            assert_eq!(reads(table, position..position + 1), mode == Mode::Shared);
        }
        free = part.end;
    }
    assert!(free == all.end || writes(table, free..all.end), "{held:?} of {all:?}");
}

fn ranges(guards: &[RangeGuard]) -> Vec<Range<u64>> {
    guards.iter().map(RangeGuard::range).collect()
}

/// What is held, and which of it is let go: of a leaf, of several, of nodes above, of all.
const UNLOCKED: [(Range<u64>, Range<u64>); 12] = [
    (0..4, 0..1),
    (0..4, 3..4),
    (3..9, 5..6),
    (0..64, 10..20),
    (64..128, 64..65),
    (0..256, 64..128),
    (256..512, 300..301),
    (5..70_001, 6..70_000),
    (5..70_001, 4_096..8_192),
    (0..262_144, 100_000..100_001),
    (0..70_000, 69_999..80_000),
    (1_000..2_000, 0..1_500),
];

#[test]
fn what_is_let_go_is_free_and_the_rest_is_held() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    for mode in [Mode::Exclusive, Mode::Shared] {
        for (range, freed) in UNLOCKED {
            let asked = match mode {
                Mode::Exclusive => ours.exclusive(range.clone()),
                Mode::Shared => ours.shared(range.clone()),
            };
            let whole = asked.blocking().unwrap();
            let token = whole.token();
            let left = whole.unlock(freed.clone()).unwrap();
            let before = range.start..freed.start.max(range.start);
            let kept: Vec<_> = [before, freed.end.min(range.end)..range.end].into();
            let kept: Vec<_> = kept.into_iter().filter(|part| !part.is_empty()).collect();
            assert_eq!(ranges(&left), kept, "{freed:?} of {range:?}");
            are_held(&theirs, mode, &kept, range.clone());
            assert!(!writes(&theirs, 0..u64::MAX));
            for guard in left {
                assert_eq!((guard.token(), guard.mode()), (token, mode));
                assert_eq!(guard.lost_reason(), None);
                guard.release().blocking().unwrap();
            }
            assert!(writes(&theirs, 0..u64::MAX), "{freed:?} of {range:?}");
        }
    }
}

#[test]
fn two_parts_are_held_turned_and_released_by_themselves() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    for (range, at) in [(0..4, 2), (3..200, 64), (0..512, 256), (256..512, 300), (0..LAST, 5)] {
        let whole = ours.exclusive(range.clone()).blocking().unwrap();
        let (first, rest) = whole.split_at(at).unwrap();
        assert_eq!((first.range(), rest.range()), (range.start..at, at..range.end));
        assert_eq!(first.token(), rest.token());
        are_held(&theirs, Mode::Exclusive, std::slice::from_ref(&range), range.clone());
        let first = first.downgrade();
        assert_eq!((first.mode(), rest.mode()), (Mode::Shared, Mode::Exclusive));
        assert!(reads(&theirs, range.start..at) && !reads(&theirs, at - 1..at + 1));
        let first = first.try_upgrade().unwrap();
        assert!(first.token() > rest.token());
        rest.release().blocking().unwrap();
        are_held(&theirs, Mode::Exclusive, &[range.start..at], range.clone());
        first.release().blocking().unwrap();
        assert!(writes(&theirs, 0..u64::MAX), "{range:?}");
    }
}

/// A file of which one part after the other is done.
#[test]
fn a_range_is_let_go_bit_by_bit() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let mut guards = vec![ours.exclusive(0..1_000).blocking().unwrap()];
    let mut state = 1_u64;
    while !guards.is_empty() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let guard = guards.swap_remove((state >> 33) as usize % guards.len());
        let Range { start, end } = guard.range();
        let first = start + (state >> 40) % (end - start);
        let left = guard.unlock(first..first + 1 + (state >> 50) % 300).unwrap();
        guards.extend(left);
        let mut held = ranges(&guards);
        held.sort_by_key(|part| part.start);
        are_held(&theirs, Mode::Exclusive, &held, 0..1_000);
    }
    assert!(writes(&theirs, 0..u64::MAX));
}

#[test]
fn units_that_are_kept_in_part_are_kept() {
    let stage = Stage::new();
    let table = || stage.session().range("t").in_units_of(100);
    let (ours, theirs) = (table(), table());
    let hold = |range| ours.exclusive(range).blocking().unwrap();
    let left = hold(50..950).unlock(250..420).unwrap();
    assert_eq!(ranges(&left), [50..300, 400..950]);
    assert!(writes(&theirs, 300..400) && !writes(&theirs, 299..300));
    drop(left);
    let left = hold(50..950).unlock(0..250).unwrap();
    assert_eq!(ranges(&left), [200..950]);
    assert!(writes(&theirs, 0..200) && !writes(&theirs, 200..201));
    drop(left);
    assert_eq!(ranges(&hold(50..950).unlock(210..290).unwrap()), [50..950]);
    assert_eq!(ranges(&hold(50..950).unlock(0..10).unwrap()), [50..950]);
    assert_eq!(ranges(&hold(50..950).unlock(..).unwrap()), []);
    let refused = hold(50..950).split_at(250).unwrap_err();
    assert!(matches!(refused.reason, DivideReason::NotBetween { position: 250, unit: 100 }));
    assert_eq!(refused.code(), "not-between");
    assert_eq!(refused.hint(), "name a multiple of 100 within the range");
    assert_eq!(refused.guard.unwrap().range(), 50..950);
    for at in [0, 50, 950, 1_000] {
        assert!(hold(50..950).split_at(at).is_err());
    }
    // The last unit has all positions behind it.
    let left = hold(0..u64::MAX).unlock(100 * LAST + 500..100 * LAST + 700).unwrap();
    assert_eq!(ranges(&left), [0..u64::MAX]);
    drop(left);
    let left = hold(0..u64::MAX).unlock(100 * LAST + 50..).unwrap();
    assert_eq!(ranges(&left), [0..u64::MAX]);
    drop(left);
    let left = hold(0..u64::MAX).unlock(100 * LAST..).unwrap();
    assert_eq!(ranges(&left), [0..100 * LAST]);
    assert!(writes(&theirs, 100 * LAST + 5..100 * LAST + 6));
}

/// One that waits for what is let go has it; one that waits for what is kept does not, nor one that
/// waits for all.
#[test]
fn those_that_wait_have_what_is_let_go_and_nothing_else() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    for mode in [Mode::Exclusive, Mode::Shared] {
        for (range, freed) in [(0..4, 0..2), (0..256, 64..128), (256..512, 256..300)] {
            let kept = range.end - 1..range.end;
            for other in [kept, 0..262_000] {
                let asked = match mode {
                    Mode::Exclusive => ours.exclusive(range.clone()),
                    Mode::Shared => ours.shared(range.clone()),
                };
                let held = asked.blocking().unwrap();
                let within = Duration::from_secs(20);
                let ask = |range: Range<u64>| theirs.exclusive(range).within(within).blocking();
                let is_above = other.end > range.end;
                let (left, other_ended, free) = thread::scope(|threads| {
                    let other = threads.spawn(|| ask(other.clone()).is_ok());
                    stage.until_waiting(1);
                    // One that comes after a waiter for all waits for that one.
                    let free = (!is_above).then(|| threads.spawn(|| ask(freed.clone()).is_ok()));
                    stage.until_waiting(if is_above { 1 } else { 2 });
                    thread::sleep(Duration::from_millis(20));
                    let left = held.unlock(freed.clone());
                    let free = free.is_none_or(|free| free.join().unwrap());
                    thread::sleep(Duration::from_millis(30));
                    let ended_early = other.is_finished();
                    let left = left.map(drop);
                    (left, (ended_early, other.join().unwrap()), free)
                });
                assert!(left.is_ok() && free, "{mode:?} {freed:?} of {range:?}: {left:?}");
                assert_eq!(other_ended, (false, true), "{other:?} beside {range:?}");
            }
        }
    }
}

/// Beyond some ranges a session writes down what it holds, which is divided as well.
#[test]
fn what_is_written_down_is_divided() {
    const MANY: u64 = 100;
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let at = |n: u64| 200 * n..200 * n + 100;
    let held: Vec<_> = (0..MANY).map(|n| ours.exclusive(at(n)).blocking().unwrap()).collect();
    let mut left = Vec::new();
    for (n, guard) in (0..).zip(held) {
        let parts = guard.unlock(200 * n + 30..200 * n + 60).unwrap();
        let kept = [200 * n..200 * n + 30, 200 * n + 60..200 * n + 100];
        assert_eq!(ranges(&parts), kept);
        are_held(&theirs, Mode::Exclusive, &kept, at(n));
        left.extend(parts);
    }
    assert_eq!(left.len() as u64, 2 * MANY);
    for guard in left {
        let end = guard.range().end;
        let rest = guard.unlock(end - 5..).unwrap();
        assert!(writes(&theirs, end - 5..end) && !writes(&theirs, end - 6..end - 5));
        drop(rest);
    }
    assert!(writes(&theirs, 0..u64::MAX));
}

/// No positions at all are let go of; what ends before it begins is a mistake.
#[test]
fn what_ends_before_it_begins_is_refused() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let held = ours.exclusive(0..10).blocking().unwrap();
    let held = held.unlock(5..5).unwrap().pop().unwrap();
    let (start, end) = (9, 3);
    let refused = held.unlock(start..end).unwrap_err();
    assert!(matches!(refused.reason, DivideReason::Backwards { start: 9, end: 3 }), "{refused:?}");
    assert_eq!(refused.code(), "backwards");
    assert!(refused.hint().contains("the position behind its last one"), "{}", refused.hint());
    assert_eq!(refused.guard.unwrap().range(), 0..10);
    assert!(writes(&theirs, 0..10));
}

#[test]
fn a_session_that_has_lost_its_region_divides_nothing() {
    let stage = Stage::new();
    let table = stage.session().range("t");
    let held = table.exclusive(0..10).blocking().unwrap();
    assert!(stage.options().remove_region().unwrap());
    assert_eq!(held.lost_reason(), Some(LostReason::RegionGone));
    let error = held.unlock(0..5).unwrap_err();
    assert!(matches!(error.reason, DivideReason::Lost(LostReason::RegionGone)), "{error:?}");
    assert_eq!(error.guard.as_ref().map(|guard| guard.range()), Some(0..10));
    assert!(error.guard.unwrap().split_at(5).is_err());
}
