//! Ranges that lie side by side and become one: as a range that was asked for at once is, in
//! shared memory and by a server. What is held is judged by another session's tries.

#![allow(clippy::single_range_in_vec_init, reason = "what is held may be one range")]

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::process::Stdio;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use farlock::session::{MergeError, RangeGuard, RangeLock, RangeRequest};
use farlock::{MergeReason, Mode, Session, Token};
use rustix::process::Signal;

use crate::stage::serving::Serving;
use crate::stage::{self, Stage, block_on, kill, pid};

const S: Mode = Mode::Shared;
const X: Mode = Mode::Exclusive;

/// How long a waiter waits for what it is to have.
const LIMIT: Duration = Duration::from_secs(20);

/// Looks at something in shared memory, and by a server.
fn everywhere(look: impl Fn(&Stage, &dyn Fn() -> Session)) {
    let stage = Stage::new();
    look(&stage, &|| stage.session());
    let (stage, server) = Serving::alone();
    look(&stage, &|| server.session());
}

fn hold(table: &RangeLock, mode: Mode, range: Range<u64>) -> RangeGuard {
    let asked = if mode == X { table.exclusive(range) } else { table.shared(range) };
    asked.within(LIMIT).blocking().unwrap()
}

/// What a rival finds of this: free, read, or written.
fn look(rival: &RangeLock, range: Range<u64>) -> char {
    // It is not let go of by a drop, after which others may find it taken for a moment.
    let has = |asked: RangeRequest| {
        asked.at_once().blocking().is_ok_and(|held| held.release().blocking().is_ok())
    };
    let (writes, reads) = (has(rival.exclusive(range.clone())), has(rival.shared(range)));
    match (writes, reads) {
        (true, _) => '.',
        (false, true) => 'r',
        (false, false) => 'w',
    }
}

/// The same of each of these positions.
fn found(rival: &RangeLock, positions: Range<u64>) -> String {
    positions.map(|at| look(rival, at..at + 1)).collect()
}

fn ranges(guards: &[RangeGuard]) -> Vec<Range<u64>> {
    guards.iter().map(RangeGuard::range).collect()
}

/// Why, and both guards.
fn refused(merged: Result<RangeGuard, MergeError>) -> (MergeReason, RangeGuard, RangeGuard) {
    let MergeError { guard, other, reason, .. } = merged.unwrap_err();
    (reason, *guard.unwrap(), *other.unwrap())
}

#[test]
fn neighbours_are_held_as_one() {
    everywhere(|_, session| {
        let (ours, theirs) = (session().range("t"), session().range("t"));
        for (mode, held) in [(X, ".wwwwwwwww."), (S, ".rrrrrrrrr.")] {
            for turned in [false, true] {
                let [first, rest] = [1..4, 4..10].map(|range| hold(&ours, mode, range));
                let greater = first.token().max(rest.token());
                let (one, other) = if turned { (rest, first) } else { (first, rest) };
                let merged = one.merge(other).unwrap();
                assert_eq!((merged.range(), merged.mode()), (1..10, mode));
                assert_eq!((merged.token(), merged.name()), (greater, "t"));
                assert_eq!(merged.lost_reason(), None);
                assert_eq!(found(&theirs, 0..11), held);
                merged.release().blocking().unwrap();
                assert_eq!(found(&theirs, 0..11), "...........");
            }
        }
    });
}

/// Tasks that await what they merge and its release.
#[test]
fn tasks_merge_as_threads_do() {
    everywhere(|_, session| {
        let (ours, theirs) = (session().range("t"), session().range("t"));
        block_on(async {
            let (first, next) = (ours.exclusive(0..4).await.unwrap(), ours.exclusive(4..6).await);
            let merged = first.merge(next.unwrap()).unwrap();
            let mut lost = pin!(merged.lost());
            assert!(lost.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(theirs.shared(3..5).at_once().await.is_err());
            let (first, rest) = merged.split_at(2).unwrap();
            first.release().await.unwrap();
            drop(theirs.exclusive(0..2).at_once().await.unwrap());
            assert!(theirs.shared(3..5).at_once().await.is_err());
            rest.release().await.unwrap();
            theirs.exclusive(2..6).at_once().await.unwrap().release().await.unwrap();
        });
    });
}

/// Drops, releases that are awaited, and those that are not.
#[test]
fn whatever_ends_it_ends_all_of_it() {
    everywhere(|_, session| {
        let (own, theirs) = (session(), session().range("t"));
        let ours = own.range("t");
        let merged = || {
            let parts = [4..6, 2..4, 6..9, 0..2].map(|range| hold(&ours, X, range));
            let [a, b, c, d] = parts;
            let both = a.merge(b).unwrap();
            c.merge(both).unwrap().merge(d).unwrap()
        };
        drop(merged());
        // What this session asks for next does not find it taken; nor do others, soon.
        drop(ours.exclusive(0..9).at_once().blocking().unwrap());
        drop(hold(&theirs, X, 0..9));
        block_on(merged().release()).unwrap();
        assert_eq!(found(&theirs, 0..9), ".........");
        drop(merged().release());
        drop(hold(&theirs, X, 0..9));
        assert_eq!(merged().unlock(..).unwrap().len(), 0);
        assert_eq!(found(&theirs, 0..9), ".........");
    });
}

#[test]
fn it_is_split_at_its_seam_and_on_either_side() {
    everywhere(|_, session| {
        let (ours, theirs) = (session().range("t"), session().range("t"));
        for at in 1..10 {
            let parts = [0..3, 3..7, 7..10].map(|range| hold(&ours, X, range));
            let token = parts[2].token();
            let merged = parts.into_iter().reduce(|one, other| one.merge(other).unwrap()).unwrap();
            let (first, rest) = merged.split_at(at).unwrap();
            assert_eq!((first.range(), rest.range()), (0..at, at..10));
            // A part of which others have seen the greater token shows no lower one.
            assert_eq!((first.token(), rest.token()), (token, token));
            assert_eq!(found(&theirs, 0..10), "wwwwwwwwww");
            first.release().blocking().unwrap();
            let freed = usize::try_from(at).unwrap();
            assert_eq!(found(&theirs, 0..10), ".".repeat(freed) + &"w".repeat(10 - freed));
            rest.release().blocking().unwrap();
        }
        let merged = hold(&ours, X, 0..3).merge(hold(&ours, X, 3..7)).unwrap();
        for at in [0, 7, 9] {
            assert!(hold(&ours, X, 20..23).split_at(at).is_err());
        }
        let error = merged.split_at(7).unwrap_err();
        assert_eq!(error.guard.unwrap().range(), 0..7);
    });
}

#[test]
fn what_lies_over_a_seam_is_let_go() {
    everywhere(|_, session| {
        let (ours, theirs) = (session().range("t"), session().range("t"));
        let freed = [2..5, 3..4, 0..3, 3..7, 0..5, 2..10, 1..9, 5..6, 0..10];
        for (mode, freed) in [S, X].into_iter().flat_map(|mode| freed.clone().map(|f| (mode, f))) {
            let parts = [0..3, 3..7, 7..10].map(|range| hold(&ours, mode, range));
            let merged = parts.into_iter().reduce(|one, other| one.merge(other).unwrap()).unwrap();
            let token = merged.token();
            let left = merged.unlock(freed.clone()).unwrap();
            let kept: Vec<_> = [0..freed.start, freed.end..10].into();
            let kept: Vec<_> = kept.into_iter().filter(|part| !part.is_empty()).collect();
            assert_eq!(ranges(&left), kept, "{freed:?}");
            let held = if mode == X { "w" } else { "r" };
            let look = |at: u64| if freed.contains(&at) { "." } else { held };
            assert_eq!(found(&theirs, 0..10), (0..10).map(look).collect::<String>());
            assert!(left.iter().all(|part| part.token() == token && part.mode() == mode));
            for part in left {
                part.release().blocking().unwrap();
            }
            assert_eq!(found(&theirs, 0..10), "..........", "{freed:?}");
        }
    });
}

/// A waiter for what lies over a seam has it when it is let go of, and one for all does not.
#[test]
fn those_that_wait_over_a_seam_have_what_is_let_go() {
    everywhere(|stage, session| {
        let (ours, theirs, others) = (session(), session().range("t"), session().range("t"));
        let ours = ours.range("t");
        let merged = hold(&ours, X, 0..5).merge(hold(&ours, X, 5..9)).unwrap();
        let token = merged.token();
        thread::scope(|threads| {
            let over = threads.spawn(|| hold(&theirs, X, 4..6).token());
            stage.until_waiting(1);
            let behind = threads.spawn(|| hold(&others, X, 8..9).token());
            stage.until_waiting(2);
            let left = merged.unlock(4..6).unwrap();
            assert!(over.join().unwrap() > token);
            assert!(!behind.is_finished());
            drop(left);
            assert!(behind.join().unwrap() > token);
        });
    });
}

#[test]
fn all_of_it_is_turned_or_nothing() {
    everywhere(|_, session| {
        let (ours, theirs) = (session().range("t"), session().range("t"));
        let merged = [2..4, 4..6, 6..8].map(|range| hold(&ours, X, range));
        let merged = merged.into_iter().reduce(|one, other| one.merge(other).unwrap()).unwrap();
        let written = merged.token();
        let merged = merged.downgrade();
        assert_eq!((merged.mode(), merged.range()), (S, 2..8));
        let read = merged.token();
        assert!(read >= written);
        assert_eq!(found(&theirs, 1..9), ".rrrrrr.");
        let merged = [1..3, 3..5, 5..6, 0..20].into_iter().fold(merged, |merged, beside| {
            let _rival = hold(&theirs, S, beside);
            merged.try_upgrade().unwrap_err()
        });
        let rival = hold(&theirs, S, 7..9);
        let merged = merged.try_upgrade().unwrap_err();
        assert_eq!((merged.mode(), merged.token()), (S, read));
        // What was turned before the rival was met is turned back.
        assert_eq!(found(&theirs, 1..10), ".rrrrrrr.");
        rival.release().blocking().unwrap();
        let merged = merged.try_upgrade().unwrap();
        assert_eq!(merged.mode(), X);
        assert!(merged.token() > read);
        assert_eq!(found(&theirs, 1..9), ".wwwwww.");
        merged.release().blocking().unwrap();
        assert_eq!(found(&theirs, 1..9), "........");
    });
}

#[test]
fn what_cannot_be_one_stays_two() {
    everywhere(|_, session| {
        let (own, theirs) = (session(), session().range("t"));
        let ours = own.range("t");
        let one = hold(&ours, X, 0..2);

        let (reason, one, other) = refused(one.merge(hold(&session().range("t"), X, 2..4)));
        assert!(matches!(reason, MergeReason::OtherSession), "{reason:?}");
        assert_eq!((one.range(), other.range()), (0..2, 2..4));
        assert_eq!(found(&theirs, 0..5), "wwww.");
        other.release().blocking().unwrap();

        let (reason, one, other) = refused(one.merge(hold(&own.range("u"), X, 2..4)));
        assert!(matches!(&reason, MergeReason::OtherTable { other } if other == "u"), "{reason:?}");
        assert_eq!((one.name(), other.name()), ("t", "u"));
        other.release().blocking().unwrap();

        let (reason, one, other) = refused(one.merge(hold(&ours, S, 2..4)));
        assert!(matches!(reason, MergeReason::OtherMode), "{reason:?}");
        assert_eq!((one.mode(), other.mode()), (X, S));
        assert_eq!(found(&theirs, 0..5), "wwrr.");
        other.release().blocking().unwrap();

        // Whichever lies before the other.
        let (reason, other, one) = refused(hold(&ours, X, 3..4).merge(one));
        assert!(matches!(reason, MergeReason::Apart { start: 2, end: 3 }), "{reason:?}");
        assert_eq!((one.range(), other.range()), (0..2, 3..4));
        assert_eq!(found(&theirs, 0..5), "ww.w.");
        one.release().blocking().unwrap();
        assert_eq!(found(&theirs, 0..5), "...w.");

        // Another handle of the same table, in the same session, is no other table.
        let other = other.merge(hold(&own.range("t"), X, 4..5)).unwrap();
        assert_eq!(other.range(), 3..5);
        let refused = other.merge(hold(&ours, X, 0..1)).unwrap_err();
        assert_eq!(refused.code(), "apart");
        assert_eq!(refused.reason.to_string(), "1..3 lies between them");
        assert_eq!(refused.hint(), "acquire 1..3 too, and merge it with one of them");
    });
}

/// Two shared ranges of a session may overlap: what both have is one of theirs then, so no hold of
/// the guard's own is in the way of its upgrade.
#[test]
fn what_both_have_is_had_once() {
    everywhere(|_, session| {
        let (ours, theirs) = (session().range("t"), session().range("t"));
        for (one, other) in [(1..6, 4..9), (4..9, 1..6), (1..9, 3..5), (3..5, 1..9), (1..9, 1..9)] {
            let merged = hold(&ours, S, one).merge(hold(&ours, S, other)).unwrap();
            assert_eq!(merged.range(), 1..9);
            assert_eq!(found(&theirs, 0..10), ".rrrrrrrr.");
            let merged = merged.try_upgrade().unwrap();
            assert_eq!(found(&theirs, 0..10), ".wwwwwwww.");
            let left = merged.unlock(3..6).unwrap();
            assert_eq!(ranges(&left), [1..3, 6..9]);
            assert_eq!(found(&theirs, 0..10), ".ww...www.");
        }
        // Both are seams of what is taken in.
        let merged = hold(&ours, S, 2..4).merge(hold(&ours, S, 4..6)).unwrap();
        let merged = merged.merge(hold(&ours, S, 5..8)).unwrap().merge(hold(&ours, S, 0..9));
        assert_eq!(merged.unwrap().try_upgrade().unwrap().range(), 0..9);
    });
}

#[test]
fn units_that_both_asked_for_in_part_are_one() {
    let stage = Stage::new();
    let table = || stage.session().range("t").in_units_of(100);
    let (ours, theirs) = (table(), table());
    let merge = |mode, one, other| hold(&ours, mode, one).merge(hold(&ours, mode, other));
    // No unit lies between them, and what they held of those beside the seam is held still.
    let merged = merge(X, 50..150, 250..350).unwrap();
    assert_eq!(merged.range(), 50..350);
    let (first, rest) = merged.split_at(200).unwrap();
    assert_eq!((first.range(), rest.range()), (50..200, 200..350));
    drop((first, rest));
    let merged = merge(S, 250..350, 50..230).unwrap();
    assert_eq!(ranges(&merged.unlock(200..300).unwrap()), [50..200, 300..350]);
    let merged = merge(S, 50..120, 110..190).unwrap();
    assert_eq!(merged.try_upgrade().unwrap().range(), 50..190);
    let (reason, ..) = refused(merge(X, 50..150, 320..350));
    assert!(matches!(reason, MergeReason::Apart { start: 200, end: 300 }), "{reason:?}");
    // The last unit has all positions behind it.
    let last = 100 * ((1 << 28) - (1 << 18));
    let merged = merge(S, last - 50..last + 500, last + 300..last + 900).unwrap();
    assert_eq!(merged.range(), last - 50..last + 900);
    assert_eq!(ranges(&merged.unlock(last + 200..).unwrap()), [last - 50..last + 900]);
    let merged = merge(X, 0..last, last + 700..u64::MAX).unwrap();
    assert_eq!(merged.range(), 0..u64::MAX);
    drop(merged);
    assert!(theirs.exclusive(..).within(LIMIT).blocking().is_ok());
}

/// Each is listed by itself: a hold remains what it was to those that look. By a server they see
/// it a little later.
#[test]
fn each_is_listed() {
    everywhere(|stage, session| {
        let (ours, theirs) = (session().range("t"), session().range("t"));
        let merged = hold(&ours, X, 0..5).merge(hold(&ours, X, 5..9)).unwrap();
        let seen = || {
            let seen = theirs.holders(4..6).unwrap();
            let mut seen: Vec<_> = seen.into_iter().filter_map(|holder| holder.range).collect();
            seen.sort_by_key(|range| range.start);
            seen
        };
        stage.until(|| seen() == [0..5, 5..9]);
        drop(merged);
    });
}

/// Beyond some ranges a session writes down what it holds, which is merged as well.
#[test]
fn what_is_written_down_is_merged() {
    const MANY: u64 = 150;
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let parts = (0..MANY).map(|n| hold(&ours, X, 10 * n..10 * n + 10));
    let merged = parts.reduce(|one, other| one.merge(other).unwrap()).unwrap();
    assert_eq!(merged.range(), 0..10 * MANY);
    // A hold that was written down keeps its mode, so all do.
    let merged = merged.downgrade();
    assert_eq!((merged.mode(), found(&theirs, 0..3)), (X, "www".to_owned()));
    let left = merged.unlock(15..10 * MANY - 25).unwrap();
    assert_eq!(ranges(&left), [0..15, 10 * MANY - 25..10 * MANY]);
    assert_eq!(found(&theirs, 13..17), "ww..");
    assert_eq!(found(&theirs, 10 * MANY - 27..10 * MANY - 23), "..ww");
    assert!(theirs.exclusive(15..10 * MANY - 25).at_once().blocking().is_ok());
    drop(left);
    assert!(theirs.exclusive(..).at_once().blocking().is_ok());
}

#[test]
fn merging_actor() {
    if !stage::is_actor() {
        return;
    }
    let session = Session::open(&stage::options_from_environment()).unwrap();
    let table = session.range("t");
    let merged = hold(&table, X, 0..70).merge(hold(&table, X, 70..200)).unwrap();
    let left = merged.unlock(60..80).unwrap();
    let more = hold(&table, S, 60..80);
    // It ends when the test does, if that does not kill it before.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    drop((left, more));
}

#[test]
fn what_a_dead_process_had_merged_is_taken_over() {
    let stage = Stage::new();
    let table = stage.session().range("t");
    drop(hold(&table, X, 0..300));
    let mut holder = stage.actor("merges::merging_actor").stdin(Stdio::piped()).spawn().unwrap();
    stage.until(|| found(&table, 58..82) == "wwrrrrrrrrrrrrrrrrrrrrww");
    kill(pid(&holder), Signal::KILL);
    holder.wait().unwrap();
    for range in [199..200, 65..75, 50..100, 0..300] {
        drop(hold(&table, X, range));
    }
}

#[test]
fn what_is_lost_is_lost_as_a_whole() {
    let stage = Stage::new();
    let table = stage.session().range("t");
    let merged = hold(&table, S, 0..5).merge(hold(&table, S, 5..9)).unwrap();
    let beside = hold(&table, S, 2..20);
    assert!(stage.options().remove_region().unwrap());
    assert!(merged.lost_reason().is_some());
    let merged = merged.try_upgrade().unwrap_err();
    let error = merged.unlock(4..6).unwrap_err();
    let (reason, merged, _) = refused(error.guard.unwrap().merge(beside));
    assert!(matches!(reason, MergeReason::Overlap(_)), "{reason:?}");
    assert_eq!(merged.range(), 0..9);
    assert!(block_on(merged.release()).is_err());
}

/// How many places the model has, in each of which lie as many positions as it is told.
const PLACES: u64 = 14;

/// What a guard should have: whose, which places, how.
#[derive(Clone, PartialEq, Debug)]
struct Has {
    session: usize,
    places: Range<u64>,
    mode: Mode,
}

impl Has {
    fn meets(&self, other: &Self) -> bool {
        self.places.start < other.places.end && other.places.start < self.places.end
    }

    fn is_mergeable(&self, other: &Self) -> bool {
        let touch = self.places.start <= other.places.end && other.places.start <= self.places.end;
        touch && self.session == other.session && self.mode == other.mode
    }
}

/// Two sessions that ask, merge, split, unlock, turn and release at random, and what a third one
/// should find.
struct Model {
    tables: [RangeLock; 2],
    guards: Vec<(Has, RangeGuard)>,
    /// How many positions a place has.
    scale: u64,
    /// The greatest token that was shown of each place.
    shown: [Option<Token>; PLACES as usize],
    chance: u64,
    /// How often each was done.
    merged: usize,
    turned: usize,
    refused: usize,
}

impl Model {
    fn new(tables: [RangeLock; 2], scale: u64, chance: u64) -> Self {
        let (guards, shown) = (Vec::new(), [None; PLACES as usize]);
        let (merged, turned, refused) = (0, 0, 0);
        Self { tables, guards, scale, shown, chance, merged, turned, refused }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.chance >> 33) % below
    }

    fn places(&mut self) -> Range<u64> {
        let start = self.draw(PLACES);
        start..(start + 1 + self.draw(5)).min(PLACES)
    }

    fn take(&mut self) -> Option<(Has, RangeGuard)> {
        if self.guards.is_empty() {
            return None;
        }
        let at = self.draw(self.guards.len() as u64);
        Some(self.guards.swap_remove(usize::try_from(at).unwrap()))
    }

    fn positions(&self, places: &Range<u64>) -> Range<u64> {
        places.start * self.scale..places.end * self.scale
    }

    /// A guard has this, and shows its token; a writer shows none below another that was shown
    /// there, and none that others have shown if it is new.
    fn put(&mut self, has: Has, guard: RangeGuard, is_new: bool) {
        assert_eq!((guard.range(), guard.mode()), (self.positions(&has.places), has.mode));
        assert_eq!(guard.lost_reason(), None);
        for place in has.places.clone() {
            let shown = &mut self.shown[usize::try_from(place).unwrap()];
            let token = Some(guard.token());
            assert!(has.mode == S || token >= *shown, "{has:?}: {token:?} behind {shown:?}");
            assert!(has.mode == S || !is_new || token > *shown, "{has:?}: {token:?} again");
            *shown = token.max(*shown);
        }
        self.guards.push((has, guard));
    }

    fn acquire(&mut self) {
        let session = usize::try_from(self.draw(2)).unwrap();
        let mode = if self.draw(2) == 0 { S } else { X };
        let has = Has { session, places: self.places(), mode };
        let (table, range) = (&self.tables[session], self.positions(&has.places));
        let asked = if mode == X { table.exclusive(range) } else { table.shared(range) };
        let is_free = |(other, _): &(Has, _)| !has.meets(other) || (has.mode, other.mode) == (S, S);
        let should = self.guards.iter().all(is_free);
        let granted = asked.at_once().blocking();
        assert_eq!(granted.is_ok(), should, "{has:?} beside {:?}", self.guards);
        granted.into_iter().for_each(|guard| self.put(has.clone(), guard, true));
    }

    fn merge(&mut self) {
        let Some((one, its)) = self.take() else { return };
        // Of two that are taken at random few lie side by side.
        let beside = self.guards.iter().position(|(other, _)| one.is_mergeable(other));
        let beside = beside.filter(|_| self.draw(2) == 0);
        let other = beside.map(|at| self.guards.swap_remove(at)).or_else(|| self.take());
        let Some((other, others)) = other else { return self.put(one, its, false) };
        let token = its.token().max(others.token());
        match its.merge(others) {
            Ok(guard) => {
                assert!(one.is_mergeable(&other), "{one:?} {other:?}");
                assert_eq!(guard.token(), token);
                let start = one.places.start.min(other.places.start);
                let places = start..one.places.end.max(other.places.end);
                self.put(Has { places, ..one }, guard, false);
                self.merged += 1;
            }
            refused => {
                assert!(!one.is_mergeable(&other), "{one:?} {other:?}: {refused:?}");
                let (_, its, others) = self::refused(refused);
                self.put(one, its, false);
                self.put(other, others, false);
                self.refused += 1;
            }
        }
    }

    fn split(&mut self) {
        let Some((has, guard)) = self.take() else { return };
        let at = self.draw(PLACES + 1);
        let is_between = has.places.start < at && at < has.places.end;
        match guard.split_at(at * self.scale) {
            Ok((first, rest)) => {
                assert!(is_between, "{has:?} at {at}");
                let Has { session, places: Range { start, end }, mode } = has;
                self.put(Has { session, places: start..at, mode }, first, false);
                self.put(Has { session, places: at..end, mode }, rest, false);
            }
            Err(error) => {
                assert!(!is_between, "{has:?} at {at}: {error}");
                self.put(has, *error.guard.unwrap(), false);
            }
        }
    }

    fn unlock(&mut self) {
        let Some((has, guard)) = self.take() else { return };
        let freed = self.places();
        let Range { start, end } = has.places;
        let kept: Vec<_> = match freed.start < end && start < freed.end {
            true => [start..freed.start, freed.end..end].into(),
            false => [start..end].into(),
        };
        let kept: Vec<_> = kept.into_iter().filter(|part| !part.is_empty()).collect();
        let left = guard.unlock(self.positions(&freed)).unwrap();
        assert_eq!(left.len(), kept.len(), "{freed:?} of {has:?}: {left:?}");
        for (places, guard) in kept.into_iter().zip(left) {
            self.put(Has { places, ..has.clone() }, guard, false);
        }
    }

    fn turn(&mut self) {
        let Some((has, guard)) = self.take() else { return };
        if has.mode == X {
            self.put(Has { mode: S, ..has }, guard.downgrade(), false);
            return;
        }
        let should = self.guards.iter().all(|(other, _)| !has.meets(other));
        match guard.try_upgrade() {
            Ok(guard) => {
                assert!(should, "{has:?} beside {:?}", self.guards);
                self.put(Has { mode: X, ..has }, guard, true);
                self.turned += 1;
            }
            Err(guard) => {
                assert!(!should, "{has:?} beside {:?}", self.guards);
                self.put(has, guard, false);
            }
        }
    }

    fn release(&mut self) {
        let Some((_, guard)) = self.take() else { return };
        guard.release().blocking().unwrap();
    }

    fn step(&mut self) {
        match self.draw(16) {
            0..5 => self.acquire(),
            5..9 => self.merge(),
            9..11 => self.split(),
            11..13 => self.unlock(),
            13..15 => self.turn(),
            _ => self.release(),
        }
    }

    /// A third session finds what should be held, and nothing else.
    fn check(&self, rival: &RangeLock) {
        let should = |place: u64| {
            let has = |(has, _): &&(Has, RangeGuard)| has.places.contains(&place);
            match self.guards.iter().find(has) {
                Some((has, _)) if has.mode == X => 'w',
                Some(_) => 'r',
                None => '.',
            }
        };
        let found = (0..PLACES).map(|at| look(rival, self.positions(&(at..at + 1))));
        let should: String = (0..PLACES).map(should).collect();
        assert_eq!(found.collect::<String>(), should, "{:?}", self.guards);
    }
}

/// Does so much, in places of so many positions.
fn play(session: &dyn Fn() -> Session, steps: usize, scales: &[u64]) {
    for (chance, scale) in (1..).zip(scales) {
        let tables = [session().range("t"), session().range("t")];
        let (rival, mut model) = (session().range("t"), Model::new(tables, *scale, chance));
        for _ in 0..steps {
            model.step();
            model.check(&rival);
        }
        let Model { guards, merged, turned, refused, .. } = model;
        let are_many = merged > steps / 25 && turned > steps / 250 && refused > steps / 25;
        assert!(are_many, "{merged} {turned} {refused}");
        drop(guards);
        drop(hold(&rival, X, 0..u64::MAX));
    }
}

#[test]
fn whatever_is_done_others_find_what_is_held() {
    let stage = Stage::new();
    play(&|| stage.session(), 1_000, &[1, 7, 64, 100, 1_000]);
}

#[test]
fn whatever_is_done_by_a_server_others_find_what_is_held() {
    let (_stage, server) = Serving::alone();
    play(&|| server.session(), 300, &[1, 100]);
}
