//! Sessions as programs use them: blocking and async, timeouts, deaths, the end of a region.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::pin::pin;
use std::process::{Child, Stdio};
use std::task::Context;
use std::thread;
use std::time::{Duration, Instant};

use farlock::{AcquireError, LostReason, Mode, RegionOptions, Session};
use rustix::process::Signal;

use crate::stage::serving::Serving;
use crate::stage::{self, Stage, block_on, kill, now_ns, pid};

#[test]
fn a_lock_is_held_until_its_guard_goes() {
    let stage = Stage::new();
    let session = stage.session();
    let lock = session.lock("t");
    let guard = lock.exclusive().blocking().unwrap();
    assert_eq!((guard.name(), guard.mode()), ("t", Mode::Exclusive));
    assert_eq!((guard.remaining(), guard.lost_reason()), (None, None));
    let refused = stage.session().lock("t").shared().at_once().blocking().unwrap_err();
    let AcquireError::Busy { name, holders } = &refused else { panic!("{refused}") };
    let holders = holders.list();
    assert_eq!((name.as_str(), holders.len()), ("t", 1));
    assert_eq!((holders[0].pid, holders[0].token), (std::process::id(), Some(guard.token())));
    assert_eq!(refused.code(), "busy");
    let first = guard.token();
    guard.release().blocking().unwrap();
    let guard = lock.exclusive().at_once().blocking().unwrap();
    assert!(guard.token() > first);
    drop(guard);
    assert!(lock.exclusive().blocking().is_ok(), "a dropped guard was released");
}

#[test]
fn a_shared_hold_is_made_one_alone_where_nobody_is_beside_it() {
    let stage = Stage::new();
    let (one, two) = (stage.session().lock("t"), stage.session().lock("t"));
    let held = one.shared().blocking().unwrap();
    let beside = two.shared().blocking().unwrap();
    let held = held.try_upgrade().unwrap_err();
    assert_eq!(held.mode(), Mode::Shared);
    beside.release().blocking().unwrap();
    let (held, before) = (held.try_upgrade().unwrap(), two.shared().at_once().blocking());
    assert!(held.mode() == Mode::Exclusive && before.is_err(), "nobody is beside it");
    let held = held.try_upgrade().unwrap();
    held.release().blocking().unwrap();
    assert!(two.exclusive().at_once().blocking().is_ok());
}

/// A hold reads no clock. The time that is noted of a wait is that of the wait alone.
#[test]
fn a_holder_that_had_to_wait_is_shown_without_a_time() {
    let stage = Stage::new();
    let held = stage.session().lock("t").exclusive().blocking().unwrap();
    let lock = stage.session().lock("t");
    let waiter = thread::spawn(move || lock.exclusive().blocking().unwrap());
    stage.until_waiting(1);
    let look = || stage.session().lock("t").shared().at_once().blocking().unwrap_err();
    let AcquireError::Busy { holders, .. } = look() else { panic!("it is held") };
    assert_eq!(holders.list()[0].elapsed, None);
    held.release().blocking().unwrap();
    let held = waiter.join().unwrap();
    let AcquireError::Busy { holders, .. } = look() else { panic!("it is held") };
    assert_eq!(holders.list()[0].elapsed, None);
    drop(held);
}

#[test]
fn readers_share_across_sessions() {
    let stage = Stage::new();
    let (one, two) = (stage.session(), stage.session());
    let first = one.lock("t").shared().blocking().unwrap();
    let second = two.lock("t").shared().blocking().unwrap();
    let third = two.lock("t").shared().blocking().unwrap();
    let refused = one.lock("t").exclusive().at_once().blocking();
    // Shared holders of one session hold by one place.
    assert!(
        matches!(refused, Err(AcquireError::Busy { holders, .. }) if holders.list().len() == 2)
    );
    drop((first, second, third));
    let limit = Duration::from_secs(10);
    assert!(one.lock("t").exclusive().within(limit).blocking().is_ok());
}

/// The second asked while a writer of another session was in line, so it has a place of its own.
#[test]
fn shared_holders_of_one_session_are_counted_however_they_came() {
    let stage = Stage::new();
    let (ours, theirs) = (stage.session(), stage.session());
    let (lock, other) = (ours.lock("t"), theirs.lock("t"));
    let soon = Duration::from_millis(30);
    let first = lock.shared().blocking().unwrap();
    let second = thread::scope(|threads| {
        let writer = threads.spawn(|| other.exclusive().within(10 * soon).blocking());
        thread::sleep(soon);
        let second = lock.shared().within(Duration::from_secs(20)).blocking().unwrap();
        assert!(matches!(writer.join().unwrap(), Err(AcquireError::TimedOut { .. })));
        second
    });
    first.release().blocking().unwrap();
    let refused = other.exclusive().at_once().blocking().unwrap_err();
    assert!(matches!(refused, AcquireError::Busy { .. }), "{refused}");
    assert!(!refused.to_string().contains("this very session"), "{refused}");
    let own = lock.exclusive().at_once().blocking().unwrap_err();
    assert!(own.to_string().contains("this very session"), "{own}");
    second.release().blocking().unwrap();
    assert!(other.exclusive().within(Duration::from_secs(20)).blocking().is_ok());
}

#[test]
fn the_async_face_waits_and_wakes_on_any_executor() {
    let stage = Stage::new();
    let session = stage.session();
    let guard = session.lock("t").exclusive().blocking().unwrap();
    let waiter = thread::spawn(move || {
        block_on(async {
            let guard = session.lock("t").exclusive().await.unwrap();
            let token = guard.token();
            guard.release().await.unwrap();
            token
        })
    });
    stage.until_waiting(1);
    let token = guard.token();
    block_on(guard.release()).unwrap();
    assert!(waiter.join().unwrap() > token);
}

#[test]
fn a_dropped_acquisition_stands_in_nobodys_way() {
    let stage = Stage::new();
    let (one, two) = (stage.session(), stage.session());
    let guard = one.lock("t").exclusive().blocking().unwrap();
    {
        let mut acquire = pin!(two.lock("t").exclusive().into_future());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(acquire.as_mut().poll(&mut cx).is_pending());
        stage.until_waiting(1);
    }
    guard.release().blocking().unwrap();
    let limit = Duration::from_secs(10);
    assert!(one.lock("t").exclusive().within(limit).blocking().is_ok());
}

#[test]
fn many_threads_of_one_process_exclude_each_other() {
    let stage = Stage::new();
    let session = stage.session();
    let counter = std::sync::Mutex::new((0, None));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let guard = session.lock("t").exclusive().blocking().unwrap();
                    let mut seen = counter.try_lock().expect("the lock excludes");
                    assert!(seen.1 < Some(guard.token()), "tokens increase");
                    *seen = (seen.0 + 1, Some(guard.token()));
                    drop(seen);
                }
            });
        }
    });
    assert_eq!(counter.into_inner().unwrap().0, 800);
}

#[test]
fn a_region_has_so_many_places_and_says_so() {
    let stage = Stage::new();
    let places = 24;
    let session = Session::open(&stage.options().with_places(places)).unwrap();
    let acquire = |number: u16| session.lock(number.to_string()).exclusive().blocking();
    let mut guards = Vec::new();
    let refused = loop {
        match acquire(guards.len() as u16) {
            Ok(guard) => guards.push(guard),
            Err(error) => break error,
        }
    };
    // One place is the session's own.
    assert_eq!(guards.len(), usize::from(places) - 1);
    assert!(matches!(refused, AcquireError::TooMany { places: 24, .. }), "{refused}");
    assert!(refused.to_string().contains("24"), "{refused}");
    let tried = session.lock("another").exclusive().at_once().blocking();
    assert!(matches!(tried, Err(AcquireError::TooMany { .. })), "{tried:?}");
    drop(guards);
    assert!(session.lock("0").exclusive().blocking().is_ok());
}

#[test]
fn ten_thousand_names_are_no_trouble() {
    let stage = Stage::new();
    let session = stage.session();
    let begun = Instant::now();
    for number in 0..10_000 {
        let guard = session.lock(format!("name {number}")).exclusive().blocking().unwrap();
        guard.release().blocking().unwrap();
    }
    println!("10000 new names in {:?}", begun.elapsed());
    assert_eq!(stage.run(&["ls", "--all", "--json"]).1.lines().count(), 10_000);
}

#[test]
fn the_end_of_a_region_is_told_to_everybody() {
    let stage = Stage::new();
    let session = stage.session();
    let guard = session.lock("t").exclusive().blocking().unwrap();
    let theirs = session.clone();
    let waiter = thread::spawn(move || theirs.lock("t").exclusive().blocking());
    stage.until_waiting(1);
    assert!(stage.options().remove_region().unwrap());
    assert_eq!(block_on(guard.lost()), LostReason::RegionGone);
    assert_eq!(guard.remaining(), Some(Duration::ZERO));
    assert!(matches!(waiter.join().unwrap(), Err(AcquireError::Lost { .. })));
    let later = session.lock("u").exclusive().blocking();
    assert!(matches!(later, Err(AcquireError::Lost { .. })), "{later:?}");
    let token = guard.token();
    assert!(guard.release().blocking().is_err(), "a lost lock is not released without a word");
    let anew = stage.session().lock("t").exclusive().blocking().unwrap();
    assert!(anew.token() > token);
}

#[test]
fn waiting_until_a_limit_takes_as_long() {
    let stage = Stage::new();
    let (one, two) = (stage.session(), stage.session());
    let _guard = one.lock("t").exclusive().blocking().unwrap();
    let begun = Instant::now();
    let limit = Duration::from_millis(200);
    let refused = two.lock("t").exclusive().within(limit).blocking().unwrap_err();
    assert!(matches!(refused, AcquireError::TimedOut { .. }), "{refused}");
    assert!(begun.elapsed() >= limit && begun.elapsed() < 10 * limit, "{:?}", begun.elapsed());
}

// Actors: what other processes do. As tests of their own they do nothing.

fn actor_session() -> Session {
    Session::open(&stage::options_from_environment()).unwrap()
}

/// Holds the lock, says so, and is killed.
#[test]
fn holding_actor() {
    if !stage::is_actor() {
        return;
    }
    let _guard = actor_session().lock("t").exclusive().blocking().unwrap();
    println!("holds");
    thread::sleep(Duration::from_secs(60));
}

/// Gives up waiting, and then computes for a while without a word to the session.
#[test]
fn computing_actor() {
    if !stage::is_actor() {
        return;
    }
    let session = actor_session();
    println!("waits");
    let limit = Duration::from_secs(1);
    let refused = session.lock("t").exclusive().within(limit).blocking();
    assert!(matches!(refused, Err(AcquireError::TimedOut { .. })));
    println!("computes");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        std::hint::black_box(begun);
    }
}

/// A whole program that names no region, no directory and no label, as `examples/hold.rs`.
#[test]
fn default_actor() {
    if !stage::is_actor() {
        return;
    }
    let session = Session::open(&RegionOptions::for_user()).unwrap();
    let guard = session.lock("by default").exclusive().blocking().unwrap();
    println!("holds");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    guard.release().blocking().unwrap();
}

/// An actor, and what it says.
struct Actor {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Actor {
    fn start(stage: &Stage, actor: &str) -> Self {
        let mut actor = stage.actor(actor);
        let mut child = actor.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines: Box::new(lines.map_while(Result::ok)) }
    }

    /// Waits until it has said this.
    fn until(&mut self, says: &str) {
        // The test harness prints its own lines, and may print on the same one.
        assert!(self.lines.any(|line| line.ends_with(says)), "it ended before it said '{says}'");
    }
}

#[test]
fn a_program_that_says_nothing_of_regions_is_listed_by_the_command() {
    let stage = Stage::new();
    let mut holder = Actor::start(&stage, "session::default_actor");
    holder.until("holds");
    let (status, text, _) = stage.run(&["ls"]);
    let line = text.lines().find(|line| line.contains("by default"));
    let line = line.unwrap_or_else(|| panic!("status {status}, no such lock: {text}"));
    let program = std::env::current_exe().unwrap();
    let program = program.file_name().unwrap().to_str().unwrap();
    let pid = holder.child.id().to_string();
    for said in ["holds", "exclusive", &pid, program] {
        assert!(line.contains(said), "{said} is not in: {line}");
    }
    drop(holder.child.stdin.take());
    assert!(holder.child.wait().unwrap().success(), "its input ended, and it released");
    assert_eq!(stage.run(&["ls"]).1, "no lock is held or awaited\n");
}

#[test]
fn a_killed_process_loses_its_lock_at_once() {
    let stage = Stage::new();
    let session = stage.session();
    let mut took_us: Vec<i64> = (0..9)
        .map(|_| {
            let mut holder = Actor::start(&stage, "session::holding_actor");
            holder.until("holds");
            let theirs = session.clone();
            let waiter = thread::spawn(move || {
                let guard = theirs.lock("t").exclusive().blocking().unwrap();
                (now_ns(), guard)
            });
            stage.until_waiting(1);
            let killed = now_ns();
            kill(pid(&holder.child), Signal::KILL);
            let (granted, guard) = waiter.join().unwrap();
            guard.release().blocking().unwrap();
            holder.child.wait().unwrap();
            (granted - killed) / 1000
        })
        .collect();
    took_us.sort_unstable();
    println!("kill to grant in another process: median {} µs, all {took_us:?}", took_us[4]);
    assert!(took_us[4] < 30_000, "{took_us:?}");
}

#[test]
fn who_gives_up_and_computes_delays_nobody() {
    let stage = Stage::new();
    let (holder, next) = (stage.session(), stage.session());
    let mut delays_us: Vec<i64> = (0..5)
        .map(|_| {
            let guard = holder.lock("t").exclusive().blocking().unwrap();
            let mut computing = Actor::start(&stage, "session::computing_actor");
            computing.until("waits");
            stage.until_waiting(1);
            let theirs = next.clone();
            let waiter = thread::spawn(move || {
                let guard = theirs.lock("t").exclusive().blocking().unwrap();
                (now_ns(), guard)
            });
            // Behind one who then gives up, and whose place in line is not yet reached.
            stage.until_waiting(2);
            computing.until("computes");
            let released = now_ns();
            guard.release().blocking().unwrap();
            let (granted, guard) = waiter.join().unwrap();
            drop(guard);
            assert!(computing.child.try_wait().unwrap().is_none(), "it computes still");
            computing.child.kill().unwrap();
            computing.child.wait().unwrap();
            (granted - released) / 1000
        })
        .collect();
    delays_us.sort_unstable();
    println!("release to grant, past one who gave up and computes: {delays_us:?} µs");
    assert!(delays_us[2] < 5_000, "{delays_us:?}");
}

/// An executor's wake-up may lie with the thread that runs its tasks, as a token of its parking.
/// What a session does on that thread leaves it there.
#[test]
fn a_session_takes_no_wake_up_of_its_thread() {
    let (stage, serving) = Serving::alone();
    for options in [stage.options(), serving.options()] {
        thread::current().unpark();
        let session = Session::open(&options).unwrap();
        // More than it has places for.
        let locks: Vec<_> = (0..40).map(|number| session.lock(format!("lock-{number}"))).collect();
        let _held: Vec<_> = locks.iter().map(|lock| lock.exclusive().blocking().unwrap()).collect();
        let table = session.range("table");
        let unit = |unit: u64| table.exclusive(unit..unit + 1).blocking().unwrap();
        let _ranges: Vec<_> = (0..40).map(unit).collect();
        let begun = Instant::now();
        thread::park_timeout(Duration::from_secs(10));
        assert!(begun.elapsed() < Duration::from_secs(5), "the wake-up was taken");
    }
}
