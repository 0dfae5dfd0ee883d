//! Ranges of a table as programs and commands use them: overlaps, units, time-outs, deaths.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use farlock::session::{RangeLock, RangeRequest};
use farlock::{AcquireError, LostReason, Mode};
use rustix::process::Signal;

use crate::stage::{self, Stage, block_on, ended, kill, pid, turns};

const SOON: Duration = Duration::from_millis(30);

fn is_busy(table: &RangeLock, range: std::ops::Range<u64>) -> bool {
    match table.exclusive(range).at_once().blocking() {
        Ok(_) => false,
        Err(AcquireError::Busy { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn ranges_that_overlap_exclude_each_other_and_others_do_not() {
    let stage = Stage::new();
    let table = stage.session().range("t");
    let guard = table.exclusive(100..200).blocking().unwrap();
    assert_eq!((guard.name(), guard.range(), guard.mode()), ("t", 100..200, Mode::Exclusive));
    assert_eq!((guard.remaining(), guard.lost_reason()), (None, None));
    let theirs = stage.session().range("t");
    let refused = theirs.shared(199..300).at_once().blocking().unwrap_err();
    let AcquireError::Busy { name, holders } = &refused else { panic!("{refused}") };
    let holders = holders.list();
    assert_eq!((name.as_str(), holders.len()), ("t", 1));
    assert_eq!((holders[0].pid, holders[0].range.clone()), (std::process::id(), Some(100..200)));
    assert_eq!(holders[0].token, Some(guard.token()));
    assert!(refused.to_string().contains("from 100 to 200"), "{refused}");
    let first = guard.token();
    let beside = theirs.exclusive(200..300).at_once().blocking().unwrap();
    assert!(beside.token() > first);
    let before = theirs.exclusive(..100).at_once().blocking().unwrap();
    assert!(is_busy(&table, 0..1) && is_busy(&table, 99..100) && is_busy(&table, 299..301));
    assert!(theirs.exclusive(..).at_once().blocking().is_err());
    guard.release().blocking().unwrap();
    assert!(!is_busy(&theirs, 100..200));
    drop((beside, before));
    assert_eq!(theirs.exclusive(..).at_once().blocking().unwrap().range(), 0..u64::MAX);
}

#[test]
fn a_table_tells_who_is_in_the_way() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    assert!(theirs.holders(..).unwrap().is_empty());
    let written = ours.exclusive(100..200).blocking().unwrap();
    let read = ours.shared(200..).blocking().unwrap();
    let ranges = |found: Vec<farlock::Participant>| {
        let ranges = found.into_iter().map(|it| (it.range.unwrap(), it.mode, it.token));
        let mut ranges: Vec<_> = ranges.collect();
        ranges.sort_by_key(|(range, ..)| range.start);
        ranges
    };
    let first = (100..200, Mode::Exclusive, Some(written.token()));
    let second = (200..u64::MAX, Mode::Shared, Some(read.token()));
    assert_eq!(ranges(theirs.holders(..).unwrap()), [first.clone(), second.clone()]);
    assert_eq!(ranges(theirs.holders(199..200).unwrap()), [first]);
    assert_eq!(ranges(theirs.holders(1_000_000..).unwrap()), [second]);
    assert!(theirs.holders(..100).unwrap().is_empty());
    assert!(matches!(theirs.holders(5..5), Err(AcquireError::EmptyRange { .. })));
    drop((written, read));
    assert!(theirs.holders(..).unwrap().is_empty());
}

/// However long they are and wherever they begin: what nobody asked for is free.
#[test]
fn ranges_are_had_to_the_unit() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    for (start, end) in [(3, 262_000), (1, 2), (63, 65), (1_000, 70_001), (16_383, 200_000)] {
        for shares in [false, true] {
            let middle = if shares { ours.shared(start..end) } else { ours.exclusive(start..end) };
            let middle = middle.blocking().unwrap();
            let before = theirs.exclusive(..start).at_once().blocking().unwrap();
            let behind = theirs.exclusive(end..).at_once().blocking().unwrap();
            assert!(is_busy(&theirs, start..start + 1) && is_busy(&theirs, end - 1..end));
            let beside = ours.shared(start + 1..end).at_once().blocking();
            assert!(shares || start + 1 == end || beside.is_err(), "{start} {end}");
            drop((middle, before, behind));
        }
    }
}

/// Two sessions that hold some and wait for others, where none overlaps: they wait for nobody.
#[test]
fn disjoint_ranges_that_are_held_and_awaited_are_all_had() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let soon = Duration::from_secs(20);
    for round in 0..200 {
        let at = round * 100;
        let first = ours.exclusive(at..at + 3 * 64).within(soon).blocking().unwrap();
        let reads = theirs.shared(200_000..200_001).within(soon).blocking().unwrap();
        let second = theirs.exclusive(at + 9 * 64..at + 12 * 64).within(soon).blocking().unwrap();
        let third = ours.exclusive(at + 8 * 64..at + 9 * 64).within(soon).blocking().unwrap();
        let fourth = theirs.shared(at + 3 * 64..at + 4 * 64).within(soon).blocking().unwrap();
        let writes = ours.exclusive(200_001..200_002).within(soon).blocking().unwrap();
        drop((first, reads, second, third, fourth, writes));
    }
}

/// Threads of two sessions, each of which holds some of its own ranges while it asks for others,
/// whole or in parts: none overlaps another's, so nobody is refused, and nobody waits in a circle.
#[test]
fn holders_of_disjoint_ranges_ask_for_others_at_once() {
    const THREADS: usize = 4;
    let stage = Stage::new();
    let tables = [stage.session().range("t"), stage.session().range("t")];
    // Of one unit, of some in one leaf, of leaves, and of nodes above, beside each other.
    let lengths = [1, 5, 64, 1, 3, 130, 700, 2, 60, 4096, 9, 20_000];
    let mut from = 0;
    let ranges: Vec<_> = (0..12 * THREADS)
        .map(|number| {
            let start = from;
            from += lengths[(number * 5 + number / 12) % 12];
            start..from
        })
        .collect();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (table, ranges) = (&tables[number % 2], &ranges);
            scope.spawn(move || {
                let mut held = std::collections::VecDeque::new();
                for turn in 0..600 {
                    let at = turn * 5 % 12 * THREADS + number;
                    let range = ranges[at].clone();
                    let request = match turn % 3 {
                        0 => table.shared(range.clone()),
                        _ => table.exclusive(range.clone()),
                    };
                    let request = match turn % 2 {
                        0 => request.at_once(),
                        _ => request.within(Duration::from_secs(20)),
                    };
                    let guard = request.blocking().unwrap();
                    match range.end - range.start {
                        1 => held.push_back(vec![guard]),
                        units => {
                            let (first, rest) = guard.split_at(range.start + units / 2).unwrap();
                            held.push_back(vec![first, rest]);
                        }
                    }
                    if held.len() > 3 {
                        held.pop_front();
                    }
                }
            });
        }
    });
}

/// Threads that read ranges of several nodes above a writer's, one after the other without a pause,
/// so that there are always some at each of them. The lock promises how many rounds of readers pass
/// at most. Of one round are all that pass while the writer's thread is not run between two
/// doorbells, so what is counted here is how often all readers were granted while it waited.
#[test]
fn readers_of_ever_larger_ranges_do_not_keep_a_writer_out() {
    const READERS: [u64; 6] = [64, 256, 256, 1024, 1024, 4096];
    /// Twelve levels, less a crown of five.
    const ROUNDS_MAX: u64 = 8 * 7 - 4;
    /// A thread may not be run for as long as so many holds of a reader.
    const HOLDS_A_ROUND: u64 = 200;
    let stage = Stage::new();
    let tables = [stage.session().range("t"), stage.session().range("t")];
    let is_over = AtomicBool::new(false);
    let grants = READERS.map(|_| AtomicU64::new(0));
    let counts = || grants.iter().map(|count| count.load(Ordering::SeqCst)).collect::<Vec<_>>();
    let most = thread::scope(|scope| {
        for (number, units) in READERS.into_iter().enumerate() {
            let (table, is_over, grants) = (&tables[number % 2], &is_over, &grants[number]);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let guard = table.shared(0..units).blocking().unwrap();
                    grants.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_micros(200));
                    guard.release().blocking().unwrap();
                }
            });
        }
        let writer = stage.session().range("t");
        let mut most = (0, 0);
        for unit in 0..40 {
            let before = counts();
            let guard = writer.exclusive(unit..unit + 1).within(Duration::from_secs(20));
            let guard = guard.blocking().unwrap();
            let passed: Vec<_> = counts().iter().zip(before).map(|(now, was)| now - was).collect();
            let rounds = passed.iter().min().copied().unwrap_or(0);
            most = most.max((rounds, passed.iter().sum::<u64>()));
            guard.release().blocking().unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
        most
    });
    let (rounds, passed) = most;
    println!("{passed} readers passed a writer at most, all of them {rounds} times");
    assert!(rounds <= ROUNDS_MAX * HOLDS_A_ROUND, "all readers passed a writer {rounds} times");
}

/// A request that only waits has not got it: a holder of a part gets another part, as with the
/// kernel's locks of byte ranges.
#[test]
fn a_holder_gets_what_another_that_waits_for_it_has_taken_already() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    for (held, wanted) in [(100_000, 5), (70, 1), (5, 100_000), (16_384, 0)] {
        let first = ours.exclusive(held..held + 10).blocking().unwrap();
        thread::scope(|threads| {
            let whole = threads.spawn(|| theirs.exclusive(..262_000).blocking().map(drop));
            thread::sleep(SOON);
            let second = ours.exclusive(wanted..wanted + 1).within(Duration::from_secs(20));
            drop((second.blocking().unwrap(), first));
            whole.join().unwrap().unwrap();
        });
    }
}

/// A holder that asks for more beside one that waits for all has stalled for seconds, if that one
/// had waited for long: it looked the seldomer whether others need what it has taken.
#[test]
fn however_long_another_waits_for_all_a_holder_gets_a_part_soon() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let first = ours.exclusive(70..80).blocking().unwrap();
    thread::scope(|threads| {
        let whole = threads.spawn(|| theirs.exclusive(..).blocking().map(drop));
        // Where it looked twice as late each time, it looked after 0.63 s, 1.27 s and 2.55 s.
        thread::sleep(Duration::from_millis(900));
        let second = ours.exclusive(1..2).within(Duration::from_secs(1)).blocking();
        drop((second.unwrap(), first));
        whole.join().unwrap().unwrap();
    });
}

#[test]
fn shared_ranges_share() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let one = ours.shared(0..1000).blocking().unwrap();
    let two = theirs.shared(500..=700).at_once().blocking().unwrap();
    assert_eq!(two.range(), 500..701);
    assert!(is_busy(&ours, 600..601) && is_busy(&theirs, 0..1));
    drop(one);
    assert!(is_busy(&ours, 600..601) && !is_busy(&theirs, 0..64));
    two.release().blocking().unwrap();
    assert!(!is_busy(&ours, 0..1000));
}

#[test]
fn what_is_no_range_is_refused_and_tells_why() {
    let stage = Stage::new();
    let session = stage.session();
    let table = session.range("t").in_units_of(4096);
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    for range in [5..5, 9..2] {
        let refused = table.exclusive(range.clone()).blocking().unwrap_err();
        assert_eq!(refused.code(), "empty-range");
        let text = format!("the range from {} to {} of 't' has", range.start, range.end);
        assert!(refused.to_string().starts_with(&text), "{refused}");
    }
    assert!(session.range("").shared(..).blocking().is_err());
    let guard = table.exclusive(0..1).blocking().unwrap();
    let other = session.range("t").exclusive(0..1).blocking().unwrap_err();
    assert_eq!(other.code(), "other-unit");
    assert!(other.hint().contains("in_units_of(4096)"), "{}", other.hint());
    assert!(is_busy(&table, 4095..4096), "a unit is locked as a whole");
    assert!(!is_busy(&table, 4096..5000));
    drop(guard);
    // A lock of that name is another thing, and the last unit stands for all behind it.
    let lock = session.lock("t").exclusive().at_once().blocking().unwrap();
    let far = table.exclusive(1 << 62..).blocking().unwrap();
    assert!(is_busy(&table, 1 << 50..1 << 51) && !is_busy(&table, 0..1 << 20));
    drop((lock, far));
}

#[test]
fn a_waiter_is_granted_when_the_range_is_free() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let guard = ours.exclusive(10..20).blocking().unwrap();
    let first = guard.token();
    thread::scope(|scope| {
        let blocked = scope.spawn(|| theirs.exclusive(15..16).blocking().unwrap().token());
        let awaited = scope.spawn(|| block_on(theirs.shared(19..30).acquire()).unwrap().token());
        stage.until_waiting(2);
        guard.release().blocking().unwrap();
        assert!(blocked.join().unwrap() > first && awaited.join().unwrap() > first);
    });
}

#[test]
fn a_task_waits_until_its_limit_and_no_shorter() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let held = ours.exclusive(0..10).blocking().unwrap();
    thread::scope(|threads| {
        let task = theirs.exclusive(5..6).within(Duration::from_secs(20)).acquire();
        let task = threads.spawn(|| block_on(task).map(drop));
        thread::sleep(SOON);
        drop(held);
        task.join().unwrap().unwrap();
    });
}

#[test]
fn a_waiter_that_gives_up_is_as_if_it_had_never_asked() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    for _ in 0..20 {
        let guard = ours.shared(0..200).blocking().unwrap();
        let refused = theirs.exclusive(64..300).within(SOON / 10).blocking().unwrap_err();
        assert_eq!(refused.code(), "timed-out");
        let refused = block_on(theirs.exclusive(3..4).within(SOON / 10).acquire()).unwrap_err();
        assert_eq!(refused.code(), "timed-out");
        {
            let mut dropped = pin!(theirs.exclusive(128..256).acquire());
            let polled = dropped.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        }
        let beside = theirs.shared(100..110).within(Duration::from_secs(5)).blocking();
        assert!(beside.is_ok(), "{beside:?}");
        drop((guard, beside));
        let all = theirs.exclusive(..).within(Duration::from_secs(5)).blocking();
        assert!(all.is_ok(), "{all:?}");
    }
}

/// Holds a range, and is killed.
#[test]
fn holding_actor() {
    if !stage::is_actor() {
        return;
    }
    let session = farlock::Session::open(&stage::options_from_environment()).unwrap();
    let table = session.range("t");
    let held = [table.exclusive(100..200).blocking(), table.exclusive(5..9).blocking()];
    let shared = table.shared(300..400).blocking();
    // It ends when the test does, if that does not kill it before.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    drop((held, shared));
}

#[test]
fn what_a_dead_process_held_is_taken_over() {
    let stage = Stage::new();
    let table = stage.session().range("t");
    drop(table.exclusive(..).blocking().unwrap());
    for round in 0..3 {
        let mut holder =
            stage.actor("ranges::holding_actor").stdin(Stdio::piped()).spawn().unwrap();
        stage.until(|| is_busy(&table, 310..311));
        assert!(is_busy(&table, 150..151) && is_busy(&table, 8..9), "round {round}");
        kill(pid(&holder), Signal::KILL);
        holder.wait().unwrap();
        for range in [150..151, 8..9, 390..500, 0..1000] {
            let limit = Duration::from_secs(10);
            let taken = table.exclusive(range.clone()).within(limit).blocking();
            assert!(taken.is_ok(), "round {round}, {range:?}: {taken:?}");
        }
        assert!(!is_busy(&table, 0..100_000), "nothing is left of the dead");
    }
}

/// Others in this process hold what these say: what else is wanted is granted before long.
fn is_had_beside_holders(
    hold: impl Fn(&RangeLock, u64) -> RangeRequest + Sync,
    want: impl Fn(&RangeLock, u64) -> RangeRequest + Sync,
) {
    let stage = Stage::new();
    let [hold, want] = [&hold as &turns::Ask<'_>, &want];
    turns::is_had_beside_holders(|| stage.session(), hold, &stage.session(), want);
}

#[test]
fn a_writer_of_a_part_is_granted_beside_readers_of_the_whole() {
    is_had_beside_holders(|table, _| table.shared(..), |table, n| table.exclusive(n..n + 1));
}

#[test]
fn a_writer_of_a_part_is_granted_beside_writers_of_the_whole() {
    is_had_beside_holders(|table, _| table.exclusive(..), |table, n| table.exclusive(n..n + 1));
}

#[test]
fn several_units_are_granted_beside_holders_of_one_that_follow_each_other() {
    let hold = |table: &RangeLock, number| table.exclusive(3 * number..3 * number + 1);
    is_had_beside_holders(hold, |table, _| table.exclusive(0..8));
    is_had_beside_holders(hold, |table, _| table.shared(0..8));
    is_had_beside_holders(hold, |table, _| table.exclusive(0..200));
}

/// Readers of a unit come and go all the time: nobody waits for those of others.
#[test]
fn a_writer_is_granted_beside_readers_of_other_units() {
    for unit in [1, 40] {
        is_had_beside_holders(
            |table, _| table.shared(0..1),
            |table, _| table.exclusive(unit..unit + 1),
        );
    }
}

/// A writer of the unit beside them is granted within this, or told that it was not.
#[test]
fn a_time_out_is_kept_beside_readers_that_hurry() {
    let stage = Stage::new();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (table, is_over) = (stage.session().range("t"), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    drop(table.shared(0..1).blocking().unwrap());
                }
            });
        }
        let table = stage.session().range("t");
        let begun = Instant::now();
        let granted = (0..200)
            .filter(|_| table.exclusive(1..2).within(Duration::from_millis(20)).blocking().is_ok());
        let (granted, passed) = (granted.count(), begun.elapsed());
        is_over.store(true, Ordering::Relaxed);
        assert!(passed < Duration::from_secs(40), "{granted} of 200 in {passed:?}");
        assert!(granted > 100, "{granted} of 200 in {passed:?}");
    });
}

/// Waits for a part, and is stopped.
#[test]
fn waiting_actor() {
    if !stage::is_actor() {
        return;
    }
    let session = farlock::Session::open(&stage::options_from_environment()).unwrap();
    drop(session.range("t").exclusive(5..6).blocking());
}

#[test]
fn a_waiter_for_a_part_that_is_stopped_keeps_nobody_out_for_long() {
    let stage = Stage::new();
    let table = stage.session().range("t");
    for shares in [true, false] {
        let whole = || if shares { table.shared(..) } else { table.exclusive(..) };
        let held = whole().blocking().unwrap();
        let mut waiter = stage.actor("ranges::waiting_actor").spawn().unwrap();
        stage.until_waiting(1);
        stage.stop(pid(&waiter));
        drop(held);
        let next = whole().within(Duration::from_secs(2)).blocking();
        assert!(next.is_ok(), "{shares}: {next:?}");
        drop(next);
        kill(pid(&waiter), Signal::CONT);
        assert!(waiter.wait().unwrap().success());
    }
}

/// Ranges of which a session has places for few.
const MANY: u64 = 3_000;

fn hold_many(table: &RangeLock) -> Vec<farlock::session::RangeGuard> {
    (0..MANY).map(|n| table.exclusive(2 * n..2 * n + 1).blocking().unwrap()).collect()
}

#[test]
fn a_session_holds_thousands_of_ranges() {
    let stage = Stage::new();
    let session = stage.session();
    let (ours, theirs) = (session.range("many"), stage.session().range("many"));
    let mut held = hold_many(&ours);
    let seen = theirs.holders(..).unwrap();
    assert_eq!(seen.len(), held.len());
    let pid = std::process::id();
    let is_listed = |guard: &farlock::session::RangeGuard| {
        let of = |it: &farlock::Participant| it.pid == pid && it.token == Some(guard.token());
        seen.iter().any(|it| it.range == Some(guard.range()) && of(it))
    };
    assert!(held.iter().step_by(61).all(is_listed));
    assert!(held.iter().all(|guard| guard.lost_reason().is_none()));
    // Room for other tables is not made at this one's expense.
    for name in 0..60 {
        drop(session.range(name.to_string()).exclusive(0..9).blocking().unwrap());
    }
    for n in (0..MANY).step_by(37) {
        assert!(is_busy(&theirs, 2 * n..2 * n + 1) && !is_busy(&theirs, 2 * n + 1..2 * n + 2));
    }
    let (last, waited) = (2 * MANY - 2, Duration::from_secs(10));
    let waiter = thread::scope(|scope| {
        let waiter = scope.spawn(|| theirs.shared(last - 6..last + 2).within(waited).blocking());
        thread::sleep(SOON);
        for guard in held.drain(held.len() - 4..) {
            assert!(!waiter.is_finished(), "{:?} is held", guard.range());
            guard.release().blocking().unwrap();
        }
        waiter.join().unwrap()
    });
    assert_eq!(waiter.unwrap().range(), last - 6..last + 2);
    drop(held);
    assert!(!is_busy(&theirs, 0..2 * MANY) && theirs.holders(..).unwrap().is_empty());
}

/// Below the node of the whole table, and below each of two that have nearly all of them.
#[test]
fn fifty_thousand_disjoint_ranges_are_held_at_once() {
    const HELD: u64 = 50_000;
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let mut held: Vec<_> =
        (0..HELD).map(|n| ours.exclusive(2 * n..2 * n + 1).blocking().unwrap()).collect();
    let is_held = || is_busy(&theirs, 0..131_072) && is_busy(&theirs, 0..u64::MAX);
    assert!(is_held() && is_busy(&theirs, 0..1) && is_busy(&theirs, 2 * HELD - 2..2 * HELD - 1));
    assert!(!is_busy(&theirs, 1..2) && !is_busy(&theirs, 2 * HELD - 1..262_143));
    held.truncate(1 << 15);
    assert!(is_held());
    held.truncate(1);
    assert!(is_held());
    drop(held);
    assert!(!is_busy(&theirs, 0..u64::MAX) && theirs.holders(..).unwrap().is_empty());
}

/// Holds many ranges, and is killed.
#[test]
fn many_holds_actor() {
    if !stage::is_actor() {
        return;
    }
    let session = farlock::Session::open(&stage::options_from_environment()).unwrap();
    let held = hold_many(&session.range("t"));
    std::io::stdin().read_line(&mut String::new()).unwrap();
    drop(held);
}

#[test]
fn thousands_of_ranges_of_a_dead_process_are_taken_over() {
    let stage = Stage::new();
    let table = stage.session().range("t");
    drop(table.exclusive(..).blocking().unwrap());
    for round in 0..2 {
        let mut holder =
            stage.actor("ranges::many_holds_actor").stdin(Stdio::piped()).spawn().unwrap();
        let last = 2 * MANY - 2;
        stage.until(|| is_busy(&table, last..last + 1));
        kill(pid(&holder), Signal::KILL);
        holder.wait().unwrap();
        for n in (0..MANY).step_by(97) {
            let limit = Duration::from_secs(10);
            let taken = table.exclusive(2 * n..2 * n + 1).within(limit).blocking();
            assert!(taken.is_ok(), "round {round}, {n}: {taken:?}");
        }
        // What the next one writes down lies where the dead one's holds were.
        let own = hold_many(&table);
        assert_eq!(table.holders(..).unwrap().len(), own.len(), "round {round}");
    }
    assert!(!is_busy(&table, 0..100_000), "nothing is left of the dead");
}

/// Threads of two sessions and random ranges, judged by a count for each position.
#[test]
fn many_threads_never_overlap() {
    const POSITIONS: usize = 512;
    let stage = Stage::new();
    let tables = [stage.session().range("t"), stage.session().range("t")];
    let inside: Vec<AtomicI32> = (0..POSITIONS).map(|_| AtomicI32::new(0)).collect();
    let highest = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..6_u64 {
            let (table, inside, highest) = (&tables[number as usize % 2], &inside, &highest);
            scope.spawn(move || {
                let mut state = number + 1;
                let mut draw = |below: u64| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) % below
                };
                for _ in 0..300 {
                    let start = draw(POSITIONS as u64 - 1);
                    let end = start + 1 + draw(100.min(POSITIONS as u64 - start));
                    let alone = draw(3) > 0;
                    let request =
                        if alone { table.exclusive(start..end) } else { table.shared(start..end) };
                    let granted = match draw(4) {
                        0 => request.at_once().blocking(),
                        1 => request.within(Duration::from_micros(200)).blocking(),
                        2 => block_on(request.acquire()),
                        _ => request.blocking(),
                    };
                    let guard = match granted {
                        Ok(guard) => guard,
                        Err(AcquireError::Busy { .. } | AcquireError::TimedOut { .. }) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let own = &inside[start as usize..end as usize];
                    if alone {
                        highest.fetch_max(guard.token().get(), Ordering::SeqCst);
                        let free = |count: &AtomicI32| count.fetch_sub(1000, Ordering::SeqCst) == 0;
                        assert!(own.iter().all(free), "{start}..{end} is held by others");
                        own.iter().for_each(|count| {
                            count.fetch_add(1000, Ordering::SeqCst);
                        });
                    } else {
                        let open = |count: &AtomicI32| count.fetch_add(1, Ordering::SeqCst) >= 0;
                        assert!(own.iter().all(open), "{start}..{end} is held alone");
                        own.iter().for_each(|count| {
                            count.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                    guard.release().blocking().unwrap();
                }
            });
        }
    });
    let last = tables[0].exclusive(..).blocking().unwrap().token().get();
    assert!(last > highest.into_inner(), "tokens increase");
}

#[test]
fn a_table_that_nobody_uses_is_forgotten_when_its_room_is_needed() {
    let stage = Stage::new();
    let session = stage.session();
    let kept = session.range("kept").exclusive(..).blocking().unwrap();
    let first = session.range("0").exclusive(0..9).blocking().unwrap().token();
    for number in 1..150 {
        let guard = session.range(number.to_string()).exclusive(0..9).blocking();
        assert!(guard.is_ok(), "{number}: {guard:?}");
    }
    let again = session.range("0").exclusive(..).at_once().blocking().unwrap();
    assert!(again.token() > first, "tokens increase when a name comes back");
    assert!(is_busy(&session.range("kept"), 0..1));
    drop(kept);
}

#[test]
fn holders_are_told_when_their_region_is_removed() {
    let stage = Stage::new();
    let session = stage.session();
    let table = session.range("t");
    let guard = table.exclusive(0..10).blocking().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| table.exclusive(5..15).blocking());
        stage.until_waiting(1);
        assert!(stage.options().remove_region().unwrap());
        let refused = waiter.join().unwrap().unwrap_err();
        assert_eq!(refused.code(), "lost", "{refused}");
    });
    assert_eq!(guard.lost_reason(), Some(LostReason::RegionGone));
    assert!(guard.release().blocking().is_err());
}

#[test]
fn commands_lock_ranges() {
    let stage = Stage::new();
    let hold = ["lock", "-r", "10:10", "t", "--", "sleep", "20"];
    let mut holder = stage.farlock(&hold).spawn().unwrap();
    stage.until(|| stage.ls().contains("\"range\":[10,20]"));
    let run = |range, how| stage.run(&["lock", "-r", range, how, "t", "--", "echo", "ran"]);
    assert_eq!(run("20:5", "-n").0, 0);
    assert_eq!(run("0:10", "-x").1, "ran\n");
    let (status, _, said) = run("19:1", "-n");
    assert_eq!(status, 1);
    assert!(said.contains("from 10 to 20"), "{said}");
    assert_eq!(run("0:0", "-w0.05").0, 1);
    assert_eq!(stage.run(&["lock", "-n", "t", "true"]).0, 0, "a lock of that name is another");
    let table = stage.run(&["ls"]).1;
    assert!(table.contains("RANGE") && table.contains("10..20"), "{table}");
    for (range, unit) in [("5", "1"), ("a:b", "1"), ("1:-1", "1"), ("2:18446744073709551615", "1")]
    {
        let refused = stage.run(&["lock", "-r", range, "--unit", unit, "t", "--", "true"]);
        assert_eq!(refused.0, 64, "{range}: {}", refused.2);
    }
    let refused = stage.run(&["lock", "-r", "0:1", "--unit", "8", "t", "--", "true"]);
    assert!(refused.0 != 0 && refused.2.contains("in units of 1, not of 8"), "{}", refused.2);
    kill(pid(&holder), Signal::KILL);
    holder.wait().unwrap();
    let waited = stage.farlock(&["lock", "-r", "0:0", "-w", "10", "t", "--", "echo", "after"]);
    let (status, said, why) = ended({ waited }.output().unwrap());
    assert_eq!((status, said.as_str()), (0, "after\n"), "{why}");
}

/// One of them is another's: none is held, whether it was tried or given up.
#[test]
fn ranges_together_are_had_all_or_none() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let held = ours.exclusive(50..60).blocking().unwrap();
    let wanted = || theirs.together([(Mode::Exclusive, 55..56), (Mode::Shared, 0..10)]);
    let refused = wanted().at_once().blocking().unwrap_err();
    assert!(matches!(refused, AcquireError::Busy { .. }), "{refused}");
    assert!(!is_busy(&ours, 0..10));
    for blocking in [true, false] {
        let request = wanted().within(SOON);
        let late = if blocking { request.blocking() } else { block_on(request.into_future()) };
        let late = late.unwrap_err();
        assert!(matches!(late, AcquireError::TimedOut { limit: SOON, .. }), "{late}");
        assert!(!is_busy(&ours, 0..10));
    }
    let empty = theirs.together([(Mode::Shared, 0..10), (Mode::Shared, 20..20)]).blocking();
    assert!(matches!(empty, Err(AcquireError::EmptyRange { .. })) && !is_busy(&ours, 0..10));
    // Dropped while it waits.
    let mut waits = wanted().into_future();
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(is_busy(&ours, 0..10));
    drop(waits);
    held.release().blocking().unwrap();
    let both = wanted().blocking().unwrap();
    let ranges: Vec<_> = both.ranges().collect();
    assert_eq!(ranges, [(Mode::Shared, 0..10), (Mode::Exclusive, 55..56)]);
    assert!(both.token().is_some() && both.lost_reason().is_none());
    assert!(is_busy(&ours, 9..10) && is_busy(&ours, 55..56) && !is_busy(&ours, 56..57));
    both.release().blocking().unwrap();
    assert!(!is_busy(&ours, 0..u64::MAX));
    assert_eq!(theirs.together::<std::ops::Range<u64>>([]).blocking().unwrap().token(), None);
}

/// Transfers between accounts, named in any order: nobody waits in a circle, and none is lost.
#[test]
fn ranges_together_do_not_deadlock_and_exclude() {
    const ACCOUNTS: u64 = 8;
    let stage = Stage::new();
    let tables = [stage.session().range("t"), stage.session().range("t")];
    let sums: Vec<AtomicU64> = (0..ACCOUNTS).map(|_| AtomicU64::new(1_000)).collect();
    thread::scope(|scope| {
        for number in 0..4_u64 {
            let (table, sums) = (&tables[number as usize % 2], &sums);
            scope.spawn(move || {
                for turn in 0..300 {
                    let from = (turn * 7 + number * 3) % ACCOUNTS;
                    let to = (from + 1 + turn % (ACCOUNTS - 1)) % ACCOUNTS;
                    let wanted = [from, to].map(|at| (Mode::Exclusive, at..at + 1));
                    let held = table.together(wanted).within(Duration::from_secs(60));
                    let held = held.blocking().unwrap();
                    // What is read and written in two steps is lost where another is beside.
                    let [from, to] = [from, to].map(|at| &sums[at as usize]);
                    let (less, more) = (from.load(Ordering::SeqCst), to.load(Ordering::SeqCst));
                    thread::yield_now();
                    from.store(less - 1, Ordering::SeqCst);
                    to.store(more + 1, Ordering::SeqCst);
                    held.release().blocking().unwrap();
                }
            });
        }
    });
    let sum: u64 = sums.iter().map(|sum| sum.load(Ordering::SeqCst)).sum();
    assert_eq!(sum, 1_000 * ACCOUNTS);
}

/// Each subtree of a table's far units lies where there was room when it was first asked for: what
/// one has there others find, of this process and of others, and nobody has what lies beside it.
#[test]
fn far_units_are_had_one_by_one() {
    const NEAR: u64 = 1 << 18;
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let units = [NEAR - 1, NEAR, NEAR + 1, 2 * NEAR, 77 * NEAR + 5, (1 << 28) - NEAR - 1];
    let held: Vec<_> =
        units.iter().map(|&at| ours.exclusive(at..at + 1).blocking().unwrap()).collect();
    for at in units {
        let refused = theirs.shared(at..at + 1).at_once().blocking();
        assert!(matches!(refused, Err(AcquireError::Busy { .. })), "{at}: {refused:?}");
        for beside in [at - 2, at + 2].into_iter().filter(|beside| !units.contains(beside)) {
            let free = theirs.exclusive(beside..beside + 1).at_once().blocking();
            assert!(free.is_ok(), "{beside} beside {at}: {free:?}");
        }
    }
    // Over the end of the near ones, over subtrees without a block, to the end, and all.
    for range in [5..NEAR + 2, NEAR + 2..80 * NEAR, 78 * NEAR + 3..u64::MAX, 0..u64::MAX] {
        let refused = theirs.exclusive(range.clone()).at_once().blocking();
        assert!(matches!(refused, Err(AcquireError::Busy { .. })), "{range:?}: {refused:?}");
    }
    drop(held);
    for range in [5..NEAR + 2, NEAR + 2..80 * NEAR, 78 * NEAR + 3..u64::MAX, 0..u64::MAX] {
        let whole = theirs.exclusive(range.clone()).at_once().blocking().unwrap();
        for at in units {
            let refused = ours.shared(at..at + 1).at_once().blocking();
            assert_eq!(refused.is_err(), range.contains(&at), "{at} beside {range:?}");
        }
        whole.release().blocking().unwrap();
    }
}

/// What lies behind the last unit is one with it, however far.
#[test]
fn positions_behind_all_units_are_one() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let held = ours.exclusive(1 << 60..(1 << 60) + 1).blocking().unwrap();
    let refused = theirs.exclusive(1 << 40..(1 << 40) + 1).at_once().blocking();
    assert!(matches!(refused, Err(AcquireError::Busy { .. })), "{refused:?}");
    assert!(theirs.exclusive(1 << 27..1 << 28).at_once().blocking().is_err());
    assert!(theirs.exclusive(0..1 << 27).at_once().blocking().is_ok());
    drop(held);
}

/// A part of what is held across the end of the near units, and in other subtrees.
#[test]
fn far_parts_are_let_go_of() {
    const NEAR: u64 = 1 << 18;
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let whole = ours.exclusive(10..9 * NEAR + 10).blocking().unwrap();
    let freed = NEAR - 5..3 * NEAR + 5;
    let parts = whole.unlock(freed.clone()).unwrap();
    assert_eq!(parts.len(), 2);
    for at in [10, NEAR - 6, NEAR - 5, NEAR, 2 * NEAR, 3 * NEAR + 4, 3 * NEAR + 5, 9 * NEAR + 9] {
        let got = theirs.exclusive(at..at + 1).at_once().blocking();
        assert_eq!(got.is_ok(), freed.contains(&at), "{at}: {got:?}");
    }
    drop(parts);
    assert!(theirs.exclusive(..).at_once().blocking().is_ok());
}

/// Writers that wait for readers of a leaf have its bits meanwhile. Where many do so one after the
/// other, who holds some of the leaf and asks for more of it comes in all the same.
#[test]
fn who_holds_some_and_asks_for_more_is_let_through() {
    const LIMIT: Duration = Duration::from_secs(20);
    let asked = [
        "X704-1280 X4992-7360",
        "S960-2880",
        "S512-1920",
        "X6528-6720",
        "X5440-6592",
        "X768-3200",
        "S0-8192",
        "X7232-7488",
        "X6592-9999999",
        "S1088-3008",
        "X1088-1408",
        "S1088-1216",
        "X768-960",
        "X5568-5632",
        "S5504-6912 X6912-7744",
        "X6528-6720",
        "X4352-6016",
        "S448-1216",
        "X7168-7360",
        "X5952-6336",
        "S192-2368",
        "X6080-6336",
        "X512-9999999",
        "X6272-7168",
        "X5888-6912",
        "X5440-5696",
        "X1024-1088",
        "X896-1024",
        "S0-9999999",
    ];
    let parts = |asked: &str| {
        let part = |part: &str| {
            let mode = if part.starts_with('S') { Mode::Shared } else { Mode::Exclusive };
            let (start, end) = part[1..].split_once('-').unwrap();
            (mode, start.parse().unwrap()..end.parse().unwrap())
        };
        asked.split(' ').map(part).collect::<Vec<(Mode, std::ops::Range<u64>)>>()
    };
    let stage = Stage::new();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for asked in asked {
            let (stage, is_over) = (&stage, &is_over);
            scope.spawn(move || {
                let table = stage.session().range("t").in_units_of(64);
                while !is_over.load(Ordering::Relaxed) {
                    let granted = table.together(parts(asked)).within(LIMIT).blocking();
                    let guard = granted.unwrap_or_else(|error| panic!("{asked}: {error}"));
                    thread::sleep(Duration::from_micros(300));
                    guard.release().blocking().unwrap();
                }
            });
        }
        thread::sleep(Duration::from_secs(2));
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A process that may map little does without the memory of far units, and is told so.
#[test]
fn who_has_few_addresses_has_the_near_units() {
    let (stage, farlock) = (Stage::new(), env!("CARGO_BIN_EXE_farlock"));
    let lock = |start: u64| {
        let line = format!("ulimit -v 65536; exec {farlock} lock -n -r {start}:1 t -- true");
        stage.run(&["lock", "outer", "--", "sh", "-c", &line])
    };
    assert_eq!(lock(5).0, 0);
    let (status, _, said) = lock(5_000_000);
    assert_eq!(status, 71, "{said}");
    assert!(said.contains("ulimit -v") && said.contains("hint: choose a larger unit"), "{said}");
}
