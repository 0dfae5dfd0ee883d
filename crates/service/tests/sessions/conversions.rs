//! Ranges that are converted where they stand, and let go of in parts: readers come in, nobody
//! writes in between, and what a process leaves that dies or is stopped in the middle of it.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use farlock::session::{RangeGuard, RangeLock};
use farlock::{LostReason, Mode};
use rustix::process::Signal;

use crate::stage::{self, Stage, kill, now_ns, pid};

fn reads(table: &RangeLock, range: Range<u64>) -> bool {
    table.shared(range).at_once().blocking().is_ok()
}

fn writes(table: &RangeLock, range: Range<u64>) -> bool {
    table.exclusive(range).at_once().blocking().is_ok()
}

/// Units of a leaf, a whole leaf, one node above, and a range of many nodes.
const RANGES: [Range<u64>; 5] = [0..1, 3..9, 64..128, 256..512, 5..70_001];

#[test]
fn a_writer_becomes_a_reader_and_one_again() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    for range in RANGES {
        let inner = range.start..range.start + 1;
        let held = ours.exclusive(range.clone()).blocking().unwrap();
        let first = held.token();
        assert!(!reads(&theirs, inner.clone()));
        let held = held.downgrade();
        assert_eq!((held.mode(), held.range()), (Mode::Shared, range.clone()));
        assert!(held.token() >= first && held.lost_reason().is_none());
        assert!(reads(&theirs, inner.clone()) && !writes(&theirs, inner.clone()));
        assert!(reads(&theirs, 0..u64::MAX) && !writes(&theirs, 0..u64::MAX));
        let second = held.token();
        let held = held.try_upgrade().unwrap();
        assert_eq!(held.mode(), Mode::Exclusive);
        assert!(held.token() > second);
        assert!(!reads(&theirs, inner.clone()) && !reads(&theirs, 0..u64::MAX));
        held.release().blocking().unwrap();
        assert!(writes(&theirs, 0..u64::MAX), "{range:?}");
    }
}

#[test]
fn a_reader_beside_others_stays_one() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    for range in RANGES {
        for other in [range.clone(), range.start..range.start + 1, 0..u64::MAX] {
            let held = ours.shared(range.clone()).blocking().unwrap();
            let beside = theirs.shared(other.clone()).blocking().unwrap();
            let held = held.try_upgrade().unwrap_err();
            let beside = beside.try_upgrade().unwrap_err();
            assert_eq!((held.mode(), beside.mode()), (Mode::Shared, Mode::Shared));
            beside.release().blocking().unwrap();
            let held = held.try_upgrade().unwrap();
            assert!(!reads(&theirs, range.start..range.start + 1));
            held.release().blocking().unwrap();
            assert!(writes(&theirs, 0..u64::MAX), "{range:?} {other:?}");
        }
        // Readers of other units are in nobody's way.
        let held = ours.shared(0..1).blocking().unwrap();
        let beside = theirs.shared(1..5).blocking().unwrap();
        drop((held.try_upgrade().unwrap(), beside.try_upgrade().unwrap()));
    }
}

/// A writer of a larger range waits for the one that becomes a reader, and goes on doing so.
#[test]
fn a_writer_that_waits_is_not_let_in_by_a_downgrade() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    for range in [0..1, 256..512] {
        let held = ours.exclusive(range).blocking().unwrap();
        thread::scope(|threads| {
            let whole = threads.spawn(|| theirs.exclusive(..262_000).blocking().unwrap().token());
            stage.until_waiting(1);
            thread::sleep(Duration::from_millis(20));
            let held = held.downgrade();
            assert_eq!(held.mode(), Mode::Shared);
            let held = held.try_upgrade().unwrap_err();
            thread::sleep(Duration::from_millis(20));
            assert!(!whole.is_finished());
            let token = held.token();
            held.release().blocking().unwrap();
            assert!(whole.join().unwrap() > token);
        });
    }
}

/// Beyond some ranges a session writes down what it holds, and that keeps its mode.
#[test]
fn what_is_written_down_keeps_its_mode() {
    const MANY: u64 = 200;
    let stage = Stage::new();
    let (ours, theirs) = (stage.session().range("t"), stage.session().range("t"));
    let at = |n: u64| 2 * n..2 * n + 1;
    let hold = |n| ours.exclusive(at(n)).blocking().unwrap();
    let held: Vec<RangeGuard> = (0..MANY).map(hold).collect();
    let held: Vec<RangeGuard> = held.into_iter().map(RangeGuard::downgrade).collect();
    let kept = held.iter().filter(|guard| guard.mode() == Mode::Exclusive).count();
    assert!((100..150).contains(&kept), "{kept}");
    for (n, guard) in (0..).zip(&held) {
        assert_eq!(reads(&theirs, at(n)), guard.mode() == Mode::Shared);
        assert!(!writes(&theirs, at(n)));
    }
    drop(held);
    let read: Vec<_> = (0..MANY).map(|n| ours.shared(at(n)).blocking().unwrap()).collect();
    let upgraded: Vec<_> = read.into_iter().map(RangeGuard::try_upgrade).collect();
    assert!(upgraded.iter().any(Result::is_ok) && upgraded.iter().any(Result::is_err));
    drop(upgraded);
    assert!(writes(&theirs, 0..u64::MAX));
}

#[test]
fn a_session_that_has_lost_its_region_converts_nothing() {
    let stage = Stage::new();
    let table = stage.session().range("t");
    let (written, read) = (table.exclusive(0..1).blocking(), table.shared(5..6).blocking());
    assert!(stage.options().remove_region().unwrap());
    let lost = || Some(LostReason::RegionGone);
    let (written, read) = (written.unwrap(), read.unwrap());
    assert_eq!(written.lost_reason(), lost());
    let written = written.downgrade();
    let read = read.try_upgrade().unwrap_err();
    assert_eq!((written.mode(), read.mode()), (Mode::Exclusive, Mode::Shared));
    assert!(written.release().blocking().is_err());
}

/// How long processes convert, and how often one of them is killed or stopped.
const STORM: Duration = Duration::from_secs(3);
const STRIKE: Duration = Duration::from_millis(15);
/// Positions that they want, from one leaf and from nodes above.
const POSITIONS: u64 = 1_100;

/// What a process has from one moment on: how, which positions, and by which token.
#[derive(Clone, Debug)]
struct Has {
    since: u64,
    until: u64,
    mode: Option<Mode>,
    range: Range<u64>,
    token: u64,
}

/// Says from now on how much of a range this process has. It says less before it has less.
fn tell(log: &mut File, mode: Option<Mode>, range: &Range<u64>, token: u64) {
    let mode = mode.map_or(2, |mode| mode as u64);
    let line = format!("{} {mode} {} {} {token}\n", now_ns(), range.start, range.end);
    log.write_all(line.as_bytes()).unwrap();
}

/// Lets go of what it holds at either end, or of one of two parts that it holds by themselves.
/// What is left, if anything.
fn lets_go_of_parts(
    log: &mut File,
    mut held: RangeGuard,
    draw: &mut impl FnMut(u64) -> u64,
) -> Option<RangeGuard> {
    for _ in 0..draw(4) {
        let Range { start, end } = held.range();
        if end - start < 2 {
            break;
        }
        let (mode, token, at) =
            (held.mode(), held.token().get(), start + 1 + draw(end - start - 1));
        let (left, right) = (start..at, at..end);
        let (freed, kept) = if draw(2) == 0 { (left, right) } else { (right, left) };
        let divided = if draw(2) == 0 {
            tell(log, Some(mode), &kept, token);
            held.unlock(freed)
        } else {
            held.split_at(at).map(|(left, right)| {
                tell(log, Some(mode), &kept, token);
                let (rest, gone) = if left.range() == kept { (left, right) } else { (right, left) };
                gone.release().blocking().unwrap();
                vec![rest]
            })
        };
        held = match divided {
            Ok(mut parts) => parts.pop()?,
            // Others may be stopped that were about to ask.
            Err(error) => *error.guard?,
        };
        tell(log, Some(mode), &held.range(), token);
    }
    Some(held)
}

/// Acquires and converts and lets go of parts until it is killed.
#[test]
fn converting_actor() {
    if !stage::is_actor() {
        return;
    }
    let path = std::env::var("FARLOCK_CONVERSIONS").unwrap();
    let mut log = File::options().append(true).create(true).open(path).unwrap();
    let table = farlock::Session::open(&stage::options_from_environment()).unwrap().range("t");
    let mut state = u64::from(std::process::id());
    let draw = &mut |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let end = Instant::now() + 20 * STORM;
    while Instant::now() < end {
        let start = [draw(8), draw(POSITIONS), 64 * draw(17), 0][draw(4) as usize];
        let length = [1 + draw(5), 64, 256, POSITIONS][draw(4) as usize];
        let range = start..start + length;
        let asked = match draw(2) {
            0 => table.exclusive(range.clone()),
            _ => table.shared(range.clone()),
        };
        let mut held = match draw(3) {
            0 => asked.blocking().unwrap(),
            1 => match asked.at_once().blocking() {
                Ok(held) => held,
                Err(_) => continue,
            },
            _ => match asked.within(Duration::from_millis(2)).blocking() {
                Ok(held) => held,
                Err(_) => continue,
            },
        };
        tell(&mut log, Some(held.mode()), &range, held.token().get());
        for _ in 0..draw(5) {
            if held.mode() == Mode::Exclusive {
                // It lets readers in from here on.
                tell(&mut log, Some(Mode::Shared), &range, 0);
                held = held.downgrade();
            } else {
                held = held.try_upgrade().unwrap_or_else(|held| held);
            }
            tell(&mut log, Some(held.mode()), &range, held.token().get());
        }
        if let Some(held) = lets_go_of_parts(&mut log, held, draw) {
            tell(&mut log, None, &held.range(), 0);
            held.release().blocking().unwrap();
        }
    }
}

/// What a process had, by what it told. Nobody knows what it had after the last line.
fn told(path: &Path) -> Vec<Has> {
    let text = fs::read_to_string(path).unwrap();
    let whole = text.lines().take(text.matches('\n').count());
    let mut had: Vec<Has> = Vec::new();
    for line in whole {
        let fields: Vec<u64> = line.split(' ').map(|field| field.parse().unwrap()).collect();
        let [since, mode, start, end, token] = fields[..] else { panic!("{line}") };
        if let Some(last) = had.last_mut() {
            last.until = since;
        }
        let mode = [Some(Mode::Shared), Some(Mode::Exclusive), None][mode as usize];
        had.push(Has { since, until: since, mode, range: start..end, token });
    }
    had.retain(|has| has.mode.is_some());
    had
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Objects to two that had some position at one time, one of them alone, and to a token of such a
/// one that is no higher than those before.
fn judge(mut all: Vec<(usize, Has)>) -> usize {
    all.sort_by_key(|(_, has)| has.since);
    let mut present: Vec<&(usize, Has)> = Vec::new();
    let mut tokens = vec![0; POSITIONS as usize * 2];
    for entry in &all {
        let (who, has) = entry;
        present.retain(|(_, other)| other.until > has.since);
        for (other, beside) in &present {
            let alone = [has.mode, beside.mode].contains(&Some(Mode::Exclusive));
            let clash = alone && other != who && meet(&has.range, &beside.range);
            assert!(!clash, "{who} {has:?} beside {other} {beside:?}");
        }
        let places = &mut tokens[has.range.start as usize..has.range.end as usize];
        if has.mode == Some(Mode::Exclusive) {
            let highest = places.iter().max().unwrap();
            // A downgrade that failed leaves the token as it was.
            assert!(has.token >= *highest, "{who} {has:?} after {highest}");
        }
        places.iter_mut().for_each(|token| *token = has.token.max(*token));
        present.push(entry);
    }
    all.len()
}

#[test]
fn holds_are_converted_and_divided_while_processes_are_killed_and_stopped() {
    let stage = Stage::new();
    let logs = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    let mut spawn = || {
        paths.push(logs.path().join(paths.len().to_string()));
        let log = paths.last().unwrap();
        stage
            .actor("conversions::converting_actor")
            .env("FARLOCK_CONVERSIONS", log)
            .spawn()
            .unwrap()
    };
    let mut crew: Vec<Child> = (0..4).map(|_| spawn()).collect();
    let (begun, mut state) = (Instant::now(), 1_u64);
    while begun.elapsed() < STORM {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let victim = &mut crew[(state >> 33) as usize % 4];
        thread::sleep(STRIKE);
        if (state >> 40).is_multiple_of(3) {
            kill(pid(victim), Signal::KILL);
            victim.wait().unwrap();
            *victim = spawn();
        } else {
            kill(pid(victim), Signal::STOP);
            thread::sleep(STRIKE);
            kill(pid(victim), Signal::CONT);
        }
    }
    for mut actor in crew {
        kill(pid(&actor), Signal::KILL);
        actor.wait().unwrap();
    }
    let all = stage.session().range("t").exclusive(..).within(Duration::from_secs(20)).blocking();
    assert!(all.is_ok(), "nothing is left of the dead: {all:?}");
    let logged = (0..).zip(&paths).filter(|(_, path)| path.exists());
    let all = logged.flat_map(|(who, path)| told(path).into_iter().map(move |has| (who, has)));
    let judged = judge(all.collect());
    assert!(judged > 1_000, "{judged} by {} processes", paths.len());
    println!("{judged} states by {} processes", paths.len());
}
