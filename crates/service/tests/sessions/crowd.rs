//! Sessions under load: many waiters, many names, time-outs without end, tasks that are dropped,
//! wakers that misbehave. What must stay flat is counted from outside.

use std::collections::BTreeSet;
use std::future::{Future, IntoFuture};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use farlock::{
    AcquireError, DEFAULT_REGION, Guard, Lock, LostReason, Mode, ReleaseError, Session, session,
};
use farlock_fabric::shm::{Options, Region};
use rustix::process::Signal;

use crate::stage::{self, Stage, kill, pid};

const LIMIT: Duration = Duration::from_secs(30);

/// How many places of the stage's region are taken.
fn places(stage: &Stage) -> usize {
    let options = Options::new(stage.dir(), stage.state_dir(), DEFAULT_REGION);
    Region::open(&options).unwrap().peers().len()
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn handles_and_futures_go_from_thread_to_thread() {
    fn send<T: Send + 'static>() {}
    fn sync<T: Sync>() {}
    send::<Session>();
    sync::<Session>();
    send::<Lock>();
    sync::<Lock>();
    send::<session::Request>();
    sync::<session::Request>();
    send::<session::Acquire>();
    send::<Guard>();
    sync::<Guard>();
    send::<session::Release>();
    send::<session::Open>();
    send::<AcquireError>();
    sync::<AcquireError>();
    send::<ReleaseError>();
}

#[test]
fn threads_and_processes_exclude_each_other() {
    let stage = Stage::new();
    std::fs::write(stage.file("counter"), "0").unwrap();
    let mut actors: Vec<Child> =
        (0..3).map(|_| stage.actor("crowd::counting_actor").spawn().unwrap()).collect();
    let session = stage.session();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| count(&session, &stage.file("counter")));
        }
    });
    for actor in &mut actors {
        assert!(actor.wait().unwrap().success());
    }
    let counted = std::fs::read_to_string(stage.file("counter")).unwrap();
    assert_eq!(counted.parse::<u64>().unwrap(), 6 * COUNTS);
}

const COUNTS: u64 = 300;

/// Increments a number in a file under the lock, by plain reads and writes.
fn count(session: &Session, file: &std::path::Path) {
    for _ in 0..COUNTS {
        let guard = session.lock("t").exclusive().blocking().unwrap();
        let before: u64 = std::fs::read_to_string(file).unwrap().parse().unwrap();
        std::fs::write(file, (before + 1).to_string()).unwrap();
        guard.release().blocking().unwrap();
    }
}

#[test]
fn counting_actor() {
    if stage::is_actor() {
        let options = stage::options_from_environment();
        count(&Session::open(&options).unwrap(), &options.state_dir.join("counter"));
    }
}

#[test]
fn time_outs_without_end_leave_nothing() {
    let stage = Stage::new();
    let (holder, session) = (stage.session(), stage.session());
    let _held = holder.lock("t").exclusive().blocking().unwrap();
    let lock = session.lock("t");
    // At night twenty times as many, of a millisecond each.
    let more = std::env::var("FARLOCK_MORE_TIME_OUTS").ok().map(|more| more.parse().unwrap());
    let limit = Duration::from_micros(more.map_or(100, |_: u32| 1_000));
    let time_out = |lock: &Lock| {
        let refused = lock.exclusive().within(limit).blocking();
        assert!(matches!(refused, Err(AcquireError::TimedOut { .. })), "{refused:?}");
    };
    (0..500).for_each(|_| time_out(&lock));
    let before = (places(&stage), status("Threads:"), status("VmRSS:"));
    // With the lock at hand, by its name alone, and as tasks.
    (0..5_000 * more.unwrap_or(1)).for_each(|_| time_out(&lock));
    (0..1_000).for_each(|_| time_out(&session.lock("t")));
    for _ in 0..5_000 {
        let mut acquire = pin!(lock.exclusive().acquire());
        assert!(poll(acquire.as_mut()).is_pending());
    }
    thread::sleep(Duration::from_millis(100));
    let after = (places(&stage), status("Threads:"), status("VmRSS:"));
    // Other tests of this process have threads too.
    assert!(after.0 <= before.0 + 2, "{before:?} {after:?}");
    assert!(after.2 < before.2 + (16 << 10), "{before:?} {after:?}");
}

#[test]
fn time_outs_behind_a_hold_of_the_same_session_leave_nothing() {
    let stage = Stage::new();
    let session = stage.session();
    let held = session.lock("t").exclusive().blocking().unwrap();
    let before = places(&stage);
    for _ in 0..2_000 {
        let refused = session.lock("t").shared().within(Duration::from_micros(50)).blocking();
        let Err(error @ AcquireError::TimedOut { .. }) = refused else { panic!("{refused:?}") };
        drop(error);
    }
    assert_eq!(places(&stage), before);
    let refused = session.lock("t").shared().at_once().blocking().unwrap_err();
    assert!(refused.to_string().contains("this very session"), "{refused}");
    held.release().blocking().unwrap();
    assert!(session.lock("t").shared().at_once().blocking().is_ok());
}

/// Waiters give up while others stand behind them: each leaves a place in mid-line for a while.
#[test]
fn who_gives_up_in_mid_line_is_taken_over_or_gone() {
    let stage = Stage::new();
    let sessions: Vec<Session> = (0..4).map(|_| stage.session()).collect();
    let held = sessions[0].lock("t").exclusive().blocking().unwrap();
    thread::scope(|scope| {
        for (number, session) in sessions.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..300_u64 {
                    let lock = session.lock("t");
                    let limit = Duration::from_micros(50 + 37 * (round + number as u64) % 400);
                    let request = if round % 3 == 0 { lock.shared() } else { lock.exclusive() };
                    let refused = request.within(limit).blocking();
                    assert!(matches!(refused, Err(AcquireError::TimedOut { .. })), "{refused:?}");
                }
            });
        }
    });
    let seen = places(&stage);
    assert!(seen <= 4 * 6, "{seen} places");
    held.release().blocking().unwrap();
    for session in &sessions {
        let guard = session.lock("t").exclusive().within(LIMIT).blocking().unwrap();
        guard.release().blocking().unwrap();
    }
}

/// Where a session has no idle place left its thread makes one, and waits by it for who asked: it
/// slept on without listening there.
#[test]
fn who_waits_by_a_place_made_for_it_is_granted_at_once() {
    let stage = Stage::new();
    let (holder, session) = (stage.session(), stage.session());
    let mut kept = Vec::new();
    for round in 0..12 {
        let name = format!("t-{round}");
        let held = holder.lock(&name).exclusive().blocking().unwrap();
        let waiting = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let granted = session.lock(&name).exclusive().blocking().unwrap();
                (Instant::now(), granted)
            });
            thread::sleep(Duration::from_millis(20));
            let released = Instant::now();
            held.release().blocking().unwrap();
            let (granted, guard) = waiter.join().unwrap();
            guard.release().blocking().unwrap();
            granted - released
        });
        assert!(waiting < Duration::from_millis(500), "{waiting:?} in round {round}");
        kept.push(session.lock(format!("kept-{round}")).exclusive().blocking().unwrap());
    }
}

#[test]
fn ten_thousand_tasks_wait_by_one_place() {
    let stage = Stage::new();
    let (holder, session) = (stage.session(), stage.session());
    let held = holder.lock("t").exclusive().blocking().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let last = Arc::new(AtomicU64::new(held.token().get()));
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..10_000)
        .map(|_| {
            let (lock, last, inside) = (session.lock("t"), Arc::clone(&last), Arc::clone(&inside));
            runtime.spawn(async move {
                let guard = lock.exclusive().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                let before = last.swap(guard.token().get(), Ordering::SeqCst);
                assert!(before < guard.token().get(), "tokens increase");
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            })
        })
        .collect();
    let before = places(&stage);
    thread::sleep(Duration::from_millis(200));
    assert!(places(&stage) <= before + 1);
    held.release().blocking().unwrap();
    runtime.block_on(async {
        for task in tasks {
            tokio::time::timeout(LIMIT, task).await.unwrap().unwrap();
        }
    });
}

#[test]
fn shared_holders_of_one_session_hold_by_one_place() {
    let stage = Stage::new();
    let (writer, session) = (stage.session(), stage.session());
    let before = places(&stage);
    let guards: Vec<Guard> =
        (0..1_000).map(|_| session.lock("t").shared().blocking().unwrap()).collect();
    assert!(places(&stage) <= before + 2);
    // A writer in line is not passed by one more reader.
    let lock = writer.lock("t");
    let waiter = thread::spawn(move || lock.exclusive().within(LIMIT).blocking().map(drop));
    stage.until_waiting(1);
    let late = session.lock("t").shared().within(Duration::from_millis(50)).blocking();
    assert!(matches!(late, Err(AcquireError::TimedOut { .. })), "{late:?}");
    drop(guards);
    waiter.join().unwrap().unwrap();
    assert!(session.lock("t").shared().within(LIMIT).blocking().is_ok());
}

#[test]
fn a_thousand_names_are_held_at_once() {
    let stage = Stage::new();
    let session = stage.session();
    let guards: Vec<Guard> = (0..1_000)
        .map(|number| session.lock(format!("name {number}")).exclusive().blocking().unwrap())
        .collect();
    let tokens: BTreeSet<&str> = guards.iter().map(Guard::name).collect();
    assert_eq!(tokens.len(), 1_000);
    let other = stage.session();
    for number in [0, 500, 999] {
        let refused = other.lock(format!("name {number}")).shared().at_once().blocking();
        assert!(matches!(refused, Err(AcquireError::Busy { .. })), "{refused:?}");
    }
    drop(guards);
    // Most places are given back.
    stage.until(|| places(&stage) < 200);
}

/// An acquisition is dropped after every number of polls, while the lock is held, handed over and
/// free: the next one is granted.
#[test]
fn acquisitions_are_dropped_at_every_point() {
    let stage = Stage::new();
    let (one, two) = (stage.session(), stage.session());
    for polls in 0..40 {
        let holder = if polls % 2 == 0 { &one } else { &two };
        let held = holder.lock("t").exclusive().blocking().unwrap();
        let mut acquires: Vec<_> = [&one, &two, &one, &two]
            .iter()
            .map(|session| Box::pin(session.lock("t").exclusive().into_future()))
            .collect();
        let mut held = Some(held);
        for turn in 0..polls {
            for acquire in &mut acquires {
                if let Poll::Ready(granted) = poll(acquire.as_mut()) {
                    *acquire = Box::pin(one.lock("t").exclusive().into_future());
                    drop(granted.unwrap());
                }
            }
            if turn == polls / 2 {
                held = None;
            }
        }
        drop(acquires);
        drop(held);
        let guard = one.lock("t").exclusive().within(LIMIT).blocking().unwrap();
        guard.release().blocking().unwrap();
    }
}

#[test]
fn a_task_times_out_on_a_runtime() {
    let stage = Stage::new();
    let (one, two) = (stage.session(), stage.session());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let held = one.lock("t").exclusive().blocking().unwrap();
    runtime.block_on(async {
        let begun = Instant::now();
        let limit = Duration::from_millis(100);
        // Behind another session, and behind its own.
        let both = tokio::join!(
            two.lock("t").exclusive().within(limit).acquire(),
            one.lock("t").shared().within(limit).acquire(),
        );
        assert!(matches!(both.0, Err(AcquireError::TimedOut { .. })), "{both:?}");
        assert!(matches!(both.1, Err(AcquireError::TimedOut { .. })), "{both:?}");
        assert!(begun.elapsed() >= limit && begun.elapsed() < 20 * limit, "{:?}", begun.elapsed());
        drop(held);
        let options = stage.options();
        let session = Session::open_async(&options).await.unwrap();
        assert!(session.lock("t").exclusive().within(LIMIT).await.is_ok());
    });
}

/// Those behind their own session's hold have no records: the hold says how many there are, and
/// for what.
#[test]
fn waiters_behind_a_hold_of_the_same_session_are_listed_in_their_modes() {
    let stage = Stage::new();
    let session = stage.session();
    let held = session.lock("t").exclusive().blocking().unwrap();
    thread::scope(|scope| {
        for shares in [true, false, false, true, true] {
            let lock = session.lock("t");
            scope.spawn(move || match shares {
                true => drop(lock.shared().within(LIMIT).blocking().unwrap()),
                false => drop(lock.exclusive().within(LIMIT).blocking().unwrap()),
            });
        }
        stage.until_waiting(5);
        let listed = stage.ls();
        let waiters = listed.split_once("\"waiters\":").unwrap().1;
        let count = |mode: &str| waiters.matches(&format!("\"mode\":\"{mode}\"")).count();
        assert_eq!((count("shared"), count("exclusive")), (3, 2), "{listed}");
        drop(held);
    });
}

#[test]
fn a_waker_that_panics_harms_nobody_else() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker of a test panics");
        }
    }
    let stage = Stage::new();
    let (holder, session) = (stage.session(), stage.session());
    for held_by in [&holder, &session] {
        let held = held_by.lock("t").exclusive().blocking().unwrap();
        let mut acquire = pin!(session.lock("t").exclusive().acquire());
        let waker = Arc::new(Panics).into();
        assert!(acquire.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let theirs = session.clone();
        let other = thread::spawn(move || {
            let guard = theirs.lock("u").exclusive().within(LIMIT).blocking().unwrap();
            guard.release().blocking().unwrap();
        });
        let released = catch_unwind(AssertUnwindSafe(|| held.release().blocking()));
        assert!(matches!(released, Ok(Ok(()))));
        other.join().unwrap();
        let begun = Instant::now();
        let guard = loop {
            if let Poll::Ready(granted) = poll(acquire.as_mut()) {
                break granted.unwrap();
            }
            assert!(begun.elapsed() < LIMIT);
            thread::sleep(Duration::from_millis(1));
        };
        guard.release().blocking().unwrap();
    }
}

#[test]
fn who_waits_in_a_removed_region_is_told() {
    let stage = Stage::new();
    let (holder, session) = (stage.session(), stage.session());
    let held = holder.lock("t").exclusive().blocking().unwrap();
    let own = session.lock("u").exclusive().blocking().unwrap();
    let wait = |session: &Session, name: &str| {
        let lock = session.lock(name);
        thread::spawn(move || lock.exclusive().blocking().map(drop))
    };
    // In line, behind that one, behind a hold of the same session; and tasks there.
    let threads =
        [wait(&session, "t"), wait(&session, "t"), wait(&session, "u"), wait(&holder, "t")];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let tasks = ["t", "u"].map(|name| {
        let lock = session.lock(name);
        runtime.spawn(async move { lock.shared().await.map(drop) })
    });
    stage.until_waiting(2);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(stage.run(&["region", "remove", "--force", "default"]).0, 0);
    for waiter in threads {
        let told = waiter.join().unwrap();
        let Err(AcquireError::Lost { reason, .. }) = told else { panic!("{told:?}") };
        assert_eq!(reason, LostReason::RegionGone);
    }
    for task in tasks {
        let told = runtime.block_on(task).unwrap();
        assert!(matches!(told, Err(AcquireError::Lost { .. })), "{told:?}");
    }
    runtime.block_on(async { assert_eq!(own.lost().await, LostReason::RegionGone) });
    assert!(held.release().blocking().is_err());
}

/// Who comes next finds another file, and has the lock there.
#[test]
fn a_release_that_is_awaited_tells_of_the_loss_too() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let stage = Stage::new();
        let lock = stage.session().lock("t");
        let held = match mode {
            Mode::Exclusive => lock.exclusive().blocking(),
            Mode::Shared => lock.shared().blocking(),
        };
        // A look at the file holds for a tick of a coarse clock.
        thread::sleep(Duration::from_millis(20));
        std::fs::remove_file(stage.dir().join("default")).unwrap();
        let released = stage::block_on(held.unwrap().release());
        let Err(ReleaseError::Lost { reason, .. }) = released else { panic!("{mode:?}") };
        assert_eq!(reason, LostReason::RegionGone);
    }
}

#[test]
fn a_release_after_the_regions_file_was_deleted_is_not_ok() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let stage = Stage::new();
        let (session, other) = (stage.session(), stage.session());
        let lock = session.lock("t");
        let guard = || match mode {
            Mode::Exclusive => lock.exclusive().blocking(),
            Mode::Shared => lock.shared().blocking(),
        };
        guard().unwrap().release().blocking().unwrap();
        // A look at the file holds for a tick of a coarse clock.
        thread::sleep(Duration::from_millis(20));
        let held = guard().unwrap();
        let waits = {
            let lock = other.lock("t");
            thread::spawn(move || {
                lock.exclusive().blocking().map(|guard| guard.release().blocking())
            })
        };
        stage.until_waiting(1);
        std::fs::remove_file(stage.dir().join("default")).unwrap();
        let successor = stage.session().lock("t").exclusive().blocking().unwrap();
        let Err(ReleaseError::Lost { reason, .. }) = held.release().blocking() else {
            panic!("{mode:?}: two had the lock");
        };
        assert_eq!(reason, LostReason::RegionGone);
        let Err(AcquireError::Lost { reason, .. }) = guard() else { panic!("it has ended") };
        assert_eq!(reason, LostReason::RegionGone);
        // The waiter was granted a lock that nobody new knows.
        assert!(!matches!(waits.join().unwrap(), Ok(Ok(()))), "it is told as well");
        successor.release().blocking().unwrap();
    }
}

/// What lies in a region of which the file is gone is granted to nobody: others may have it by
/// another one.
#[test]
fn nobody_is_granted_anything_of_a_region_that_was_deleted() {
    let stage = Stage::new();
    let (old, idle) = (stage.session(), stage.session());
    let held = (old.lock("t").exclusive().blocking(), old.range("t").exclusive(0..5).blocking());
    for lock in [idle.lock("u"), idle.lock("v")] {
        drop(lock.exclusive().blocking().unwrap());
    }
    drop(idle.range("u").exclusive(0..5).blocking().unwrap());
    let waits: Vec<_> = (0..4)
        .map(|kind| {
            let waiter = stage.session();
            let waits = move || match kind {
                0 => waiter.lock("t").exclusive().blocking().err(),
                1 => stage::block_on(waiter.lock("t").shared().acquire()).err(),
                2 => waiter.range("t").exclusive(0..5).blocking().err(),
                _ => stage::block_on(waiter.range("t").shared(0..5).acquire()).err(),
            };
            thread::spawn(waits)
        })
        .collect();
    stage.until_waiting(4);
    std::fs::remove_file(stage.dir().join("default")).unwrap();
    let new = stage.session();
    let successors =
        (new.lock("t").exclusive().blocking(), new.range("t").exclusive(0..5).blocking());
    let is_told = |error: Option<AcquireError>| match error.expect("others have it") {
        AcquireError::Lost { reason, .. } => assert_eq!(reason, LostReason::RegionGone),
        error => panic!("{error}"),
    };
    // The holder has let go of nothing.
    waits.into_iter().for_each(|waits| is_told(waits.join().unwrap()));
    // A look at the file holds for a tick of a coarse clock.
    thread::sleep(Duration::from_millis(20));
    is_told(idle.lock("u").exclusive().blocking().err());
    is_told(idle.lock("v").shared().at_once().blocking().err());
    is_told(idle.range("u").exclusive(0..5).blocking().err());
    drop((held, successors));
}

/// A session that has told one holder of its end grants nothing more, neither by the places that
/// its names keep nor by a new one.
#[test]
fn a_session_that_told_of_a_deleted_region_grants_nothing_more() {
    let stage = Stage::new();
    let session = stage.session();
    let (held, kept, new) = (session.lock("held"), session.lock("kept"), session.lock("new"));
    kept.exclusive().blocking().unwrap().release().blocking().unwrap();
    let late = session.lock("late").exclusive().blocking().unwrap();
    let guard = held.exclusive().blocking().unwrap();
    std::fs::remove_file(stage.dir().join("default")).unwrap();
    assert_eq!(guard.lost_reason(), Some(LostReason::RegionGone));
    // Its place would be kept for the next acquisition.
    assert!(late.release().blocking().is_err());
    for lock in [&kept, &new, &session.lock("late")] {
        for request in [lock.exclusive().at_once(), lock.shared().at_once(), lock.shared()] {
            let Err(AcquireError::Lost { reason, .. }) = request.clone().blocking() else {
                panic!("{request:?} was granted");
            };
            assert_eq!(reason, LostReason::RegionGone);
        }
    }
    assert!(guard.release().blocking().is_err());
}

#[test]
fn a_hold_goes_from_mode_to_mode() {
    let stage = Stage::new();
    let (one, two) = (stage.session(), stage.session());
    let guard = one.lock("t").exclusive().blocking().unwrap();
    let first = guard.token();
    let waiting = {
        let lock = one.lock("t");
        thread::spawn(move || lock.shared().blocking().unwrap())
    };
    stage.until_waiting(1);
    let guard = guard.downgrade();
    assert_eq!(guard.mode(), Mode::Shared);
    assert!(guard.token() >= first);
    let beside = waiting.join().unwrap();
    let third = two.lock("t").shared().at_once().blocking().unwrap();
    let guard = guard.try_upgrade().unwrap_err();
    beside.release().blocking().unwrap();
    let guard = guard.try_upgrade().unwrap_err();
    third.release().blocking().unwrap();
    let before = guard.token();
    let guard = guard.try_upgrade().unwrap();
    assert_eq!(guard.mode(), Mode::Exclusive);
    assert!(guard.token() > before);
    assert!(two.lock("t").shared().at_once().blocking().is_err());
    guard.release().blocking().unwrap();
    let next = two.lock("t").exclusive().at_once().blocking().unwrap();
    assert!(next.token() > before);
}

#[test]
fn losses_that_nobody_awaits_any_more_are_forgotten() {
    let stage = Stage::new();
    let session = stage.session();
    let guard = session.lock("t").exclusive().blocking().unwrap();
    struct Counts;
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {}
    }
    let counts = Arc::new(Counts);
    let waker: Waker = Arc::clone(&counts).into();
    for _ in 0..20_000 {
        let mut lost = pin!(guard.lost());
        assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(waker);
    assert_eq!(Arc::strong_count(&counts), 1);
}

#[test]
fn many_names_leave_nothing_in_the_session() {
    let stage = Stage::new();
    let session = stage.session();
    let lock = |number: u32| session.lock(format!("name {number}"));
    (0..1_000).for_each(|number| drop(lock(number)));
    let before = status("VmRSS:");
    (0..1_000_000).for_each(|number| drop(lock(number)));
    let after = status("VmRSS:");
    assert!(after < before + (16 << 10), "{before} {after}");
}

/// Shared by readers and writers of several sessions, and judged by what they see.
#[test]
fn readers_and_writers_of_several_sessions_mix() {
    let stage = Stage::new();
    let sessions = [stage.session(), stage.session()];
    let seen = Mutex::new((0_u32, 0_u32, 0_u64));
    let begun = Instant::now();
    thread::scope(|scope| {
        for number in 0..6 {
            let (session, seen) = (&sessions[number % 2], &seen);
            scope.spawn(move || {
                let lock = session.lock("t");
                while begun.elapsed() < Duration::from_secs(1) {
                    if number < 3 {
                        let guard = lock.exclusive().within(LIMIT).blocking().unwrap();
                        let mut there = seen.lock().unwrap();
                        assert_eq!((there.0, there.1), (0, 0), "alone");
                        assert!(there.2 < guard.token().get(), "tokens increase");
                        (there.1, there.2) = (1, guard.token().get());
                        drop(there);
                        thread::yield_now();
                        seen.lock().unwrap().1 = 0;
                        guard.release().blocking().unwrap();
                    } else {
                        let guard = lock.shared().within(LIMIT).blocking().unwrap();
                        let mut there = seen.lock().unwrap();
                        assert_eq!(there.1, 0, "no writer");
                        there.0 += 1;
                        drop(there);
                        thread::yield_now();
                        seen.lock().unwrap().0 -= 1;
                        drop(guard);
                    }
                }
            });
        }
    });
}

// What others leave behind.

#[test]
fn holding_actor() {
    if stage::is_actor() {
        let session = Session::open(&stage::options_from_environment()).unwrap();
        let _guard = session.lock("t").exclusive().blocking().unwrap();
        println!("holds");
        thread::sleep(Duration::from_secs(60));
    }
}

#[test]
fn a_lock_of_a_killed_holder_is_had_at_once() {
    let stage = Stage::new();
    let session = stage.session();
    let mut holder = stage.actor("crowd::holding_actor").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("holds")));
    let refused = session.lock("t").exclusive().at_once().blocking();
    assert!(matches!(refused, Err(AcquireError::Busy { .. })), "{refused:?}");
    kill(pid(&holder), Signal::KILL);
    holder.wait().unwrap();
    let guard = session.lock("t").exclusive().at_once().blocking().unwrap();
    guard.release().blocking().unwrap();
}

#[test]
fn a_writer_that_gave_up_keeps_no_reader_out() {
    let stage = Stage::new();
    let (reader, writer) = (stage.session(), stage.session());
    let held = reader.lock("t").shared().blocking().unwrap();
    let refused = writer.lock("t").exclusive().within(Duration::from_millis(20)).blocking();
    assert!(matches!(refused, Err(AcquireError::TimedOut { .. })), "{refused:?}");
    for session in [&reader, &writer, &stage.session()] {
        session.lock("t").shared().at_once().blocking().unwrap().release().blocking().unwrap();
    }
    held.release().blocking().unwrap();
}

#[test]
fn a_session_that_ended_leaves_no_place() {
    let stage = Stage::new();
    let watching = stage.session();
    let before = places(&stage);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (first, mut refusals) = (descriptors(), Vec::new());
    let _held = watching.lock("t").exclusive().blocking().unwrap();
    for _ in 0..100 {
        let session = stage.session();
        drop(session.lock("u").exclusive().blocking().unwrap());
        refusals.push(session.lock("t").shared().at_once().blocking().unwrap_err());
    }
    assert_eq!(places(&stage), before);
    // Errors keep the region mapped, but neither a session nor a place.
    assert!(refusals[99].to_string().contains("held by"), "{}", refusals[99]);
    refusals.clear();
    // Other tests of this process open files too.
    assert!(descriptors() < first + 60, "{first} {}", descriptors());
}

/// How often the threads of sessions of this process went to sleep.
fn sleeps() -> u64 {
    let mut sleeps = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        if std::fs::read_to_string(path.join("comm")).unwrap().trim() == "farlock" {
            let status = std::fs::read_to_string(path.join("status")).unwrap();
            let field = "voluntary_ctxt_switches:";
            let line = status.lines().find(|line| line.starts_with(field)).unwrap();
            sleeps += line[field.len()..].trim().parse::<u64>().unwrap();
        }
    }
    sleeps
}

#[test]
fn idle_actor() {
    if stage::is_actor() {
        let session = Session::open(&stage::options_from_environment()).unwrap();
        let _guard = session.lock("t").exclusive().blocking().unwrap();
        let refused = session.lock("t").shared().within(Duration::from_millis(10)).blocking();
        assert!(refused.is_err());
        // It looks once more whether the region is there, and then sleeps.
        thread::sleep(Duration::from_secs(3));
        let before = sleeps();
        thread::sleep(Duration::from_secs(3));
        assert_eq!(sleeps(), before);
    }
}

#[test]
fn a_session_that_holds_and_awaits_nothing_never_wakes() {
    let stage = Stage::new();
    let ended = stage.actor("crowd::idle_actor").output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
}

/// It said nothing, and its clients took it for stopped.
#[test]
fn a_server_without_descriptors_for_its_clients_says_so() {
    let stage = Stage::new();
    let line = "ulimit -n 24; exec \"$0\" serve --listen 127.0.0.1:0";
    let mut serve = stage.program("sh");
    serve.args(["-c", line, env!("CARGO_BIN_EXE_farlock")]);
    let mut server = serve.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.next().unwrap().rsplit(' ').next().unwrap().to_owned();
    let clients: Vec<_> = (0..30).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let said = lines.next().unwrap();
    assert!(said.contains("no room for one more client"), "{said}");
    assert!(lines.next().unwrap().contains("ulimit -Hn"));
    drop(clients);
    // Those that waited are served.
    let held = Session::open(&farlock::RegionOptions::of_server(&address)).unwrap();
    drop(held.lock("a").exclusive().blocking().unwrap());
    server.kill().unwrap();
    server.wait().unwrap();
}
