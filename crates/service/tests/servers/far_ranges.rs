//! Specification of ranges by a server: what was let go of is free once that is said.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use farlock::Session;
use farlock::session::RangeLock;

use crate::stage::serving::Serving;
use crate::stage::{Stage, turns};

const TURNS: usize = 40;

/// More than a session has places by a server.
const GIVEN_UP: usize = 5000;

/// How often another session's try was refused.
fn refused(other: &Session) -> bool {
    let tried = other.range("rows").exclusive(2..3).at_once().blocking();
    tried.map(|held| held.release().blocking().unwrap()).is_err()
}

#[test]
fn a_part_that_was_unlocked_is_free() {
    let (_stage, server) = Serving::alone();
    let (one, other) = (server.session(), server.session());
    let rows = one.range("rows");
    for (start, end) in [(0, 5), (2, 5), (0, 3)] {
        let shared = (0..TURNS).filter(|_| {
            let kept = rows.shared(start..end).blocking().unwrap().unlock(2..3).unwrap();
            let is_refused = refused(&other);
            kept.into_iter().for_each(|part| part.release().blocking().unwrap());
            is_refused
        });
        assert_eq!(shared.count(), 0, "shared, {start}..{end}");
        let exclusive = (0..TURNS).filter(|_| {
            let kept = rows.exclusive(start..end).blocking().unwrap().unlock(2..3).unwrap();
            let is_refused = refused(&other);
            kept.into_iter().for_each(|part| part.release().blocking().unwrap());
            is_refused
        });
        assert_eq!(exclusive.count(), 0, "exclusive, {start}..{end}");
    }
}

#[test]
fn what_was_released_is_free() {
    let (_stage, server) = Serving::alone();
    let (one, other) = (server.session(), server.session());
    let rows = one.range("rows");
    for turn in 0..TURNS {
        rows.shared(0..5).blocking().unwrap().release().blocking().unwrap();
        assert!(!refused(&other), "shared, {turn}");
        assert!(rows.shared(0..5).blocking().unwrap().unlock(..).unwrap().is_empty());
        assert!(!refused(&other), "unlocked, {turn}");
        let (first, rest) = rows.shared(0..5).blocking().unwrap().split_at(3).unwrap();
        first.release().blocking().unwrap();
        assert!(!refused(&other), "split, {turn}");
        rest.release().blocking().unwrap();
    }
}

#[test]
fn requests_that_are_given_up_keep_no_other_out() {
    let (_stage, server) = Serving::alone();
    let (one, other) = (server.session(), server.session());
    let held = other.range("rows").exclusive(0..1).blocking().unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..GIVEN_UP {
        let request = pin!(one.range("rows").exclusive(0..1).acquire());
        assert!(request.poll(&mut cx).is_pending(), "another session holds it");
    }
    let limit = Duration::from_secs(60);
    let elsewhere = one.range("columns").exclusive(0..1).within(limit).blocking().unwrap();
    // Behind those that were given up, but for few none was asked for.
    let behind = one.range("rows").exclusive(1..2).within(limit).blocking().unwrap();
    held.release().blocking().unwrap();
    let same = one.range("rows").exclusive(0..1).within(limit).blocking().unwrap();
    for held in [elsewhere, behind, same] {
        held.release().blocking().unwrap();
    }
}

/// Those beside it hold units of its own: in this region, or by the server as it does.
#[test]
fn a_waiter_is_granted_beside_holders_that_follow_each_other() {
    let (stage, server) = Serving::alone();
    let unit = |table: &RangeLock, number| table.exclusive(3 * number..3 * number + 1);
    let first = |table: &RangeLock, _| table.exclusive(0..1);
    let several = |table: &RangeLock, _| table.exclusive(0..8);
    let sessions = [
        |stage: &Stage, _: &Serving| stage.session(),
        |_: &Stage, server: &Serving| server.session(),
    ];
    for (holders, waiter) in [(0, 1), (1, 0), (1, 1)] {
        let session = || sessions[holders](&stage, &server);
        let waiter = sessions[waiter](&stage, &server);
        turns::is_had_beside_holders(session, &first, &waiter, &first);
        turns::is_had_beside_holders(session, &unit, &waiter, &several);
    }
}

/// It has taken some of what it wants, one by one, and waits for one that holds the rest for long.
#[test]
fn a_waiter_for_several_units_keeps_those_from_others_for_no_longer_than_a_while() {
    let (stage, server) = Serving::alone();
    let long = server.session().range("t").exclusive(3..4).blocking().unwrap();
    let (waiter, one) = (server.session(), server.session());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(one.range("t").exclusive(0..1).blocking().unwrap());
            }
        });
        scope.spawn(|| drop(waiter.range("t").exclusive(0..8).blocking().unwrap()));
        stage.until_waiting(1);
        let other = server.session().range("t");
        let limit = Duration::from_secs(10);
        let granted = (0..20).filter(|_| other.exclusive(0..1).within(limit).blocking().is_ok());
        let granted = granted.count();
        is_over.store(true, Ordering::Relaxed);
        drop(long);
        assert_eq!(granted, 20);
    });
}
