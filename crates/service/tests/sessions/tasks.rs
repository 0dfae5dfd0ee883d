//! Specification: by a server, the verbs of tasks do not block their executor, travel together, and
//! leave nothing behind where their futures are dropped.

use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use farlock::session::{RangeLock, RangeRequest};
use farlock::{AcquireError, Lock, Mode, RegionOptions, Session};
use rustix::process::Signal;

use crate::stage::serving::Serving;
use crate::stage::{self, Stage, block_on, kill, pid};

/// Longer than anything takes that is not stopped.
const SOON: Duration = Duration::from_secs(10);

/// Polls a future so often, or until it has ended.
fn poll_times<F: Future>(mut future: Pin<&mut F>, times: usize) -> Option<F::Output> {
    let mut cx = Context::from_waker(Waker::noop());
    (0..times).find_map(|_| match future.as_mut().poll(&mut cx) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

/// A session by a server that has had this lock once, so that it knows where it lies.
fn acquainted(server: &Serving, name: &str) -> (Session, Lock) {
    let session = server.session();
    let lock = session.lock(name);
    lock.exclusive().blocking().unwrap().release().blocking().unwrap();
    (session, lock)
}

/// Runs futures to their ends, as one task.
async fn together(futures: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut left: Vec<_> = futures.map(Box::pin).collect();
    poll_fn(|cx| {
        left.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn is_free(stage: &Stage, name: &str) {
    drop(stage.session().lock(name).exclusive().within(SOON).blocking().unwrap());
}

/// Its thread runs on while the server stands still, where a verb that it waited for would block it
/// until the server goes on.
#[test]
fn a_task_does_not_wait_for_its_server_by_its_thread() {
    let (stage, server) = Serving::alone();
    let (_session, lock) = acquainted(&server, "a");
    let (_other, beside) = acquainted(&server, "b");
    let held = beside.exclusive().blocking().unwrap();
    stage.stop(pid(&server.child));
    let (mut acquire, mut release) = (pin!(lock.exclusive().acquire()), pin!(held.release()));
    assert!(poll_times(acquire.as_mut(), 100).is_none());
    assert!(poll_times(release.as_mut(), 100).is_none());
    kill(pid(&server.child), Signal::CONT);
    drop(block_on(acquire).unwrap());
    block_on(release).unwrap();
    is_free(&stage, "a");
    is_free(&stage, "b");
}

#[test]
fn a_limit_is_kept_where_the_server_stands_still() {
    let (stage, server) = Serving::alone();
    let (_session, lock) = acquainted(&server, "a");
    stage.stop(pid(&server.child));
    let begun = Instant::now();
    let limited = block_on(lock.exclusive().within(Duration::from_millis(50)).acquire());
    assert!(matches!(limited, Err(AcquireError::TimedOut { .. })), "{limited:?}");
    let spent = begun.elapsed();
    assert!(spent >= Duration::from_millis(50) && spent < SOON / 2, "{spent:?}");
    kill(pid(&server.child), Signal::CONT);
    // What it asked for is given back when the server answers.
    is_free(&stage, "a");
    drop(lock.exclusive().within(SOON).blocking().unwrap());
}

/// Passes on what comes, counts it, and waits for the gate first.
fn relay(mut from: TcpStream, mut to: TcpStream, count: &AtomicUsize, gate: &Mutex<()>) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        count.fetch_add(1, Ordering::SeqCst);
        drop(gate.lock().unwrap());
        to.write_all(&bytes[..read]).unwrap();
    }
}

/// A client that gives answers up after ten milliseconds says anew what it kept back for them.
const WITHIN: Duration = Duration::from_millis(5);

/// How many sends it takes where each of these locks is asked for at a time of its own and no
/// answer comes; none if this machine stood still meanwhile.
fn sends_unanswered(locks: &[Lock], sends: &AtomicUsize, answers: &Mutex<()>) -> Option<usize> {
    let held_back = answers.lock().unwrap();
    let mut asked: Vec<_> = locks.iter().map(|lock| Box::pin(lock.exclusive().acquire())).collect();
    let (before, begun) = (sends.load(Ordering::SeqCst), Instant::now());
    for acquire in &mut asked {
        assert!(poll_times(acquire.as_mut(), 4).is_none());
        std::thread::sleep(Duration::from_micros(100));
    }
    let took = begun.elapsed();
    // The first is sent by itself, and what lay at the latest when it is given up.
    let count = || sends.load(Ordering::SeqCst) - before;
    while count() < 2 && begun.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    let sent = count();
    drop(held_back);
    for acquire in asked {
        block_on(block_on(acquire).unwrap().release()).unwrap();
    }
    (took < WITHIN).then_some(sent)
}

/// Tasks ask at times of their own. What is asked while a verb is on its way waits for its answer,
/// or a moment, so that it is sent in one go.
#[test]
fn what_tasks_ask_while_a_verb_is_on_its_way_travels_together() {
    static OPEN: Mutex<()> = Mutex::new(());
    static ANSWERS: Mutex<()> = Mutex::new(());
    static SENDS: AtomicUsize = AtomicUsize::new(0);
    static ANSWERED: AtomicUsize = AtomicUsize::new(0);
    let (_stage, server) = Serving::alone();
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = RegionOptions::of_server(between.local_addr().unwrap().to_string());
    let address = server.address.clone();
    std::thread::spawn(move || {
        let (client, server) = (between.accept().unwrap().0, TcpStream::connect(address).unwrap());
        let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        std::thread::spawn(move || relay(client, server, &SENDS, &OPEN));
        relay(back.0, back.1, &ANSWERED, &ANSWERS);
    });
    let session = Session::open(&options).unwrap();
    let locks: Vec<Lock> = (0..16).map(|number| session.lock(format!("task-{number}"))).collect();
    for lock in &locks {
        lock.exclusive().blocking().unwrap().release().blocking().unwrap();
    }
    let mut rounds = (0..200).map(|_| sends_unanswered(&locks, &SENDS, &ANSWERS));
    let sends = rounds.find_map(|sends| sends).expect("this machine stands still less often");
    assert!((2..=8).contains(&sends), "{sends} sends for 16 verbs");
}

/// Futures are dropped after every number of polls: with the verb unsent, on its way, and done.
#[test]
fn what_is_dropped_under_way_holds_nothing() {
    let (stage, server) = Serving::alone();
    let (_session, lock) = acquainted(&server, "a");
    let here = stage.session();
    for polls in 0..60 {
        {
            let mut acquire = pin!(lock.exclusive().acquire());
            drop(poll_times(acquire.as_mut(), polls));
        }
        let guard = lock.exclusive().within(SOON).blocking().unwrap();
        {
            let mut release = pin!(guard.release());
            let _ = poll_times(release.as_mut(), polls);
        }
        drop(here.lock("a").exclusive().within(SOON).blocking().unwrap());
    }
}

/// The same where others hold the lock: what is dropped leaves the line.
#[test]
fn what_is_dropped_in_line_leaves_it() {
    let (stage, server) = Serving::alone();
    let (_session, lock) = acquainted(&server, "a");
    let here = stage.session();
    for polls in 0..20 {
        let held = here.lock("a").exclusive().within(SOON).blocking().unwrap();
        for mode in [lock.exclusive(), lock.shared()] {
            let mut acquire = pin!(mode.acquire());
            assert!(poll_times(acquire.as_mut(), polls).is_none());
        }
        held.release().blocking().unwrap();
        drop(lock.shared().within(SOON).blocking().unwrap());
    }
    is_free(&stage, "a");
}

/// Tasks add to numbers that a lock each protects, beside threads of their session and others'.
#[test]
fn tasks_and_threads_of_both_sides_exclude_each_other() {
    const TASKS: u64 = 16;
    const EACH: u64 = 100;
    let (stage, server) = Serving::alone();
    let (there, here) = (server.session(), stage.session());
    let sums: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    let add = |number: u64| stage::add_one(&sums[number as usize % sums.len()]);
    let name = |number: u64| format!("sum {}", number % 4);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (session, add) = (if number % 2 == 0 { &there } else { &here }, &add);
            scope.spawn(move || {
                for _ in 0..EACH {
                    let guard = session.lock(name(number)).exclusive().blocking().unwrap();
                    add(number);
                    drop(guard);
                }
            });
        }
        let tasks = (0..TASKS).map(|number| {
            let (there, add) = (&there, &add);
            async move {
                for turn in 0..EACH {
                    let guard = there.lock(name(number)).exclusive().await.unwrap();
                    add(number);
                    match turn % 2 {
                        0 => drop(guard),
                        _ => guard.release().await.unwrap(),
                    }
                    tokio::task::yield_now().await;
                }
            }
        });
        runtime.block_on(together(tasks));
    });
    let total: u64 = sums.iter().map(|sum| sum.load(Ordering::Relaxed)).sum();
    assert_eq!(total, (TASKS + 4) * EACH);
}

/// A session that ends, or whose server does, tells those whose verbs are under way.
#[test]
fn the_end_of_a_server_ends_what_is_under_way() {
    let stage = Stage::new();
    let mut server = Serving::listening(&stage, "127.0.0.1:0", &["--lease", "1"]);
    let (_session, lock) = acquainted(&server, "a");
    stage.stop(pid(&server.child));
    let mut acquire = pin!(lock.exclusive().acquire());
    assert!(poll_times(acquire.as_mut(), 5).is_none());
    server.kill();
    let ended = block_on(acquire);
    assert!(matches!(ended, Err(AcquireError::Lost { .. })), "{ended:?}");
}

/// Hundredths of a second for which a process has had a processor.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// A holder that would be told of its loss, a waiter in line, and commands that do either.
#[test]
fn what_waits_by_a_server_takes_it_no_time() {
    let (stage, server) = Serving::alone();
    let (_session, lock) = acquainted(&server, "a");
    let held = lock.exclusive().blocking().unwrap();
    let (_other, same) = (server.session(), server.session().lock("a"));
    let (mut lost, mut waits) = (pin!(held.lost()), pin!(same.exclusive().acquire()));
    assert!(poll_times(lost.as_mut(), 2).is_none());
    assert!(poll_times(waits.as_mut(), 50).is_none());
    let at = ["--server", &server.address];
    let begin = |name: &str| stage.farlock(&["lock", at[0], at[1], name, "--", "sleep", "60"]);
    let mut commands: Vec<_> =
        ["a", "b", "b"].iter().map(|name| begin(name).spawn().unwrap()).collect();
    std::thread::sleep(Duration::from_millis(500));
    let all = |commands: &[std::process::Child]| {
        ticks(server.child.id()) + commands.iter().map(|child| ticks(child.id())).sum::<u64>()
    };
    let before = all(&commands);
    std::thread::sleep(Duration::from_secs(1));
    let taken = all(&commands) - before;
    for child in &mut commands {
        kill(pid(child), Signal::KILL);
        child.wait().unwrap();
    }
    assert!(taken <= 10, "{taken} of 100 ticks");
}

// Ranges.

/// A session by a server that has had a range of this table once, so that it knows where it lies.
fn acquainted_with_ranges(server: &Serving, name: &str) -> (Session, RangeLock) {
    let session = server.session();
    let table = session.range(name);
    table.exclusive(..).blocking().unwrap().release().blocking().unwrap();
    (session, table)
}

/// The same, which does so after a moment each.
fn poll_slowly<F: Future>(mut future: Pin<&mut F>, times: usize) -> Option<F::Output> {
    (0..times).find_map(|time| {
        std::thread::sleep(Duration::from_micros(10 * (time as u64 % 4)));
        poll_times(future.as_mut(), 1)
    })
}

fn is_free_all_over(stage: &Stage, name: &str) {
    drop(stage.session().range(name).exclusive(..).within(SOON).blocking().unwrap());
}

/// One thread, on which a task ticks while another acquires ranges, and lets go of them in each
/// way. Where that waited for verbs by its thread, nothing ticked while the server stood still.
#[test]
fn tasks_of_a_thread_go_on_while_a_range_is_asked_for() {
    const STOPPED: Duration = Duration::from_millis(300);
    let (stage, server) = Serving::alone();
    let (_session, table) = acquainted_with_ranges(&server, "t");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (begun, longest) = (Instant::now(), std::cell::Cell::new(Duration::ZERO));
    let is_over = std::cell::Cell::new(false);
    let ticks = async {
        let mut last = Instant::now();
        while !is_over.get() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            longest.set(longest.get().max(last.elapsed()));
            last = Instant::now();
        }
    };
    let ranges = async {
        let mut turns = 0_u64;
        while begun.elapsed() < 4 * STOPPED {
            let guard = table.exclusive(turns % 7..turns % 7 + 3).await.unwrap();
            match turns % 3 {
                0 => drop(guard),
                1 => guard.release().await.unwrap(),
                _ => {
                    drop(guard);
                    let wanted = [(Mode::Shared, 0..2), (Mode::Exclusive, 5..9)];
                    table.together(wanted).await.unwrap().release().await.unwrap();
                    drop(table.shared(0..4).at_once().await);
                }
            }
            turns += 1;
        }
        is_over.set(true);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(STOPPED);
            stage.stop(pid(&server.child));
            std::thread::sleep(STOPPED);
            kill(pid(&server.child), Signal::CONT);
        });
        runtime.block_on(async { tokio::join!(ticks, ranges) });
    });
    let longest = longest.get();
    assert!(longest < STOPPED / 2, "nothing ran for {longest:?}");
    is_free_all_over(&stage, "t");
}

/// Asked for and let go of while the server stands still, by the thread of an executor.
#[test]
fn a_task_does_not_wait_for_its_server_by_its_thread_for_ranges() {
    let (stage, server) = Serving::alone();
    let (_session, table) = acquainted_with_ranges(&server, "t");
    let held = |range: std::ops::Range<u64>| table.exclusive(range).blocking().unwrap();
    let (released, dropped, unasked) = (held(0..1), held(1..2), held(2..3));
    stage.stop(pid(&server.child));
    let begun = Instant::now();
    let waits = |request: RangeRequest| {
        let mut acquire = Box::pin(request.acquire());
        assert!(poll_times(acquire.as_mut(), 100).is_none());
        acquire
    };
    let (exclusive, shared) = (waits(table.exclusive(3..4)), waits(table.shared(10..200)));
    let at_once = waits(table.exclusive(300..301).at_once());
    let mut release = pin!(released.release());
    assert!(poll_times(release.as_mut(), 100).is_none());
    drop(dropped);
    drop(unasked.release());
    let spent = begun.elapsed();
    assert!(spent < SOON / 10, "{spent:?}");
    kill(pid(&server.child), Signal::CONT);
    drop([block_on(exclusive).unwrap(), block_on(shared).unwrap(), block_on(at_once).unwrap()]);
    block_on(release).unwrap();
    is_free_all_over(&stage, "t");
}

#[test]
fn a_limit_of_a_range_is_kept_where_the_server_stands_still() {
    let (stage, server) = Serving::alone();
    let (_session, table) = acquainted_with_ranges(&server, "t");
    stage.stop(pid(&server.child));
    let begun = Instant::now();
    let limited = block_on(table.exclusive(..).within(Duration::from_millis(50)).acquire());
    assert!(matches!(limited, Err(AcquireError::TimedOut { .. })), "{limited:?}");
    let spent = begun.elapsed();
    assert!(spent >= Duration::from_millis(50) && spent < SOON / 2, "{spent:?}");
    kill(pid(&server.child), Signal::CONT);
    is_free_all_over(&stage, "t");
    drop(table.exclusive(..).within(SOON).blocking().unwrap());
}

/// Futures of ranges are dropped at every point of their way.
#[test]
fn what_is_dropped_of_ranges_holds_nothing() {
    let (stage, server) = Serving::alone();
    let (_session, table) = acquainted_with_ranges(&server, "t");
    let here = stage.session().range("t");
    for polls in 0..60 {
        let requests = [table.exclusive(3..90), table.shared(3..90)];
        for request in requests.into_iter().flat_map(|one| [one.clone(), one.at_once()]) {
            let mut acquire = pin!(request.acquire());
            drop(poll_slowly(acquire.as_mut(), polls));
        }
        let guard = table.exclusive(3..90).within(SOON).blocking().unwrap();
        {
            let mut release = pin!(guard.release());
            let _ = poll_slowly(release.as_mut(), polls);
        }
        drop(here.exclusive(..).within(SOON).blocking().unwrap());
    }
}

/// The same where others hold some of the range: what is dropped leaves no trace.
#[test]
fn what_is_dropped_of_ranges_in_line_leaves_it() {
    let (stage, server) = Serving::alone();
    let (_session, table) = acquainted_with_ranges(&server, "t");
    let here = stage.session().range("t");
    for polls in 0..20 {
        let held = here.exclusive(50..51).within(SOON).blocking().unwrap();
        for request in [table.exclusive(3..90), table.shared(3..90)] {
            let mut acquire = pin!(request.acquire());
            assert!(poll_slowly(acquire.as_mut(), polls).is_none());
        }
        held.release().blocking().unwrap();
        drop(here.exclusive(..).within(SOON).blocking().unwrap());
        drop(table.shared(..).within(SOON).blocking().unwrap());
    }
}

/// What a task, or a thread, has dropped its session finds free at once.
#[test]
fn a_dropped_range_is_free_for_its_own_session() {
    let (_stage, server) = Serving::alone();
    let (_session, table) = acquainted_with_ranges(&server, "t");
    for turn in 0..200 {
        drop(block_on(table.exclusive(turn..turn + 90).at_once().acquire()).unwrap());
        drop(block_on(table.shared(turn..turn + 70).at_once().acquire()).unwrap());
        drop(table.exclusive(turn..turn + 80).at_once().blocking().unwrap());
    }
}

/// So many that some are written down, and have no place.
#[test]
fn many_ranges_of_tasks_are_held_and_let_go_of() {
    const MANY: u64 = 150;
    let (stage, server) = Serving::alone();
    let (_session, table) = acquainted_with_ranges(&server, "t");
    let here = stage.session().range("t");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for _ in 0..2 {
        let mut guards = Vec::new();
        runtime.block_on(async {
            for number in 0..MANY {
                guards.push(table.exclusive(2 * number..2 * number + 1).await.unwrap());
            }
        });
        for number in 0..MANY {
            assert!(here.shared(2 * number..2 * number + 1).at_once().blocking().is_err());
        }
        runtime.block_on(async {
            for (number, guard) in guards.into_iter().enumerate() {
                match number % 2 {
                    0 => guard.release().await.unwrap(),
                    _ => drop(guard),
                }
            }
        });
        drop(here.exclusive(..).within(SOON).blocking().unwrap());
    }
}

/// Tasks add to numbers that a range each protects, beside threads of their session and others'.
#[test]
fn ranges_of_tasks_and_threads_of_both_sides_exclude_each_other() {
    const TASKS: u64 = 12;
    const EACH: u64 = 60;
    let (stage, server) = Serving::alone();
    let (there, here) = (server.session().range("t"), stage.session().range("t"));
    let sums: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    // One range overlaps each of two that do not.
    let units = |number: u64| number % 4 * 2..number % 4 * 2 + 2 + number % 3;
    let add = |number: u64| {
        for unit in units(number).step_by(2).map(|unit| unit / 2 % 4) {
            stage::add_one(&sums[unit as usize]);
        }
    };
    let added = |number: u64| units(number).step_by(2).count() as u64;
    let range = |number: u64| {
        let units = units(number);
        // The last one begins anew.
        if units.end > 8 { 0..10 } else { units }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (table, add) = (if number % 2 == 0 { &there } else { &here }, &add);
            scope.spawn(move || {
                for _ in 0..EACH {
                    let guard = table.exclusive(range(number)).blocking().unwrap();
                    add(number);
                    drop(guard);
                }
            });
        }
        let tasks = (0..TASKS).map(|number| {
            let (there, add) = (&there, &add);
            async move {
                for turn in 0..EACH {
                    let guard = there.exclusive(range(number)).await.unwrap();
                    add(number);
                    match turn % 2 {
                        0 => drop(guard),
                        _ => guard.release().await.unwrap(),
                    }
                    tokio::task::yield_now().await;
                }
            }
        });
        runtime.block_on(together(tasks));
    });
    let total: u64 = sums.iter().map(|sum| sum.load(Ordering::Relaxed)).sum();
    let wanted = (0..TASKS).chain(0..4).map(|number| added(number) * EACH).sum::<u64>();
    assert_eq!(total, wanted);
}

/// Whatever the tasks were at, a kill of their server lets none of them have what another has, and
/// leaves nothing behind.
#[test]
fn ranges_of_tasks_outlive_their_server() {
    const RESTARTS: usize = 8;
    let (stage, mut server) = Serving::alone();
    let (total, added) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let sessions = [server.session(), server.session(), stage.session()];
    std::thread::scope(|scope| {
        for session in &sessions {
            let (total, added, is_over) = (&total, &added, &is_over);
            let table = session.range("t");
            scope.spawn(move || {
                let tasks = (0..4_u64).map(|number| {
                    let table = table.clone();
                    async move {
                        while !is_over.load(Ordering::Relaxed) {
                            let own = table.shared(100 + 9 * number..180).await.unwrap();
                            let guard = table.exclusive(number..9).await.unwrap();
                            stage::add_one(total);
                            match added.fetch_add(1, Ordering::Relaxed) % 2 {
                                0 => drop(guard),
                                _ => guard.release().await.unwrap(),
                            }
                            drop(own);
                        }
                    }
                });
                block_on(together(tasks));
            });
        }
        server.restart_among(&stage, &added, RESTARTS);
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(total.into_inner(), added.into_inner());
    is_free_all_over(&stage, "t");
}

/// A session that ends, or whose server does, tells those whose ranges are asked for or let go of.
#[test]
fn the_end_of_a_server_ends_what_is_asked_of_ranges() {
    let stage = Stage::new();
    let mut server = Serving::listening(&stage, "127.0.0.1:0", &["--lease", "1"]);
    let (_session, table) = acquainted_with_ranges(&server, "t");
    let held = table.exclusive(5..6).blocking().unwrap();
    // It leaves an idle place.
    table.exclusive(7..8).blocking().unwrap().release().blocking().unwrap();
    stage.stop(pid(&server.child));
    let (mut acquire, mut release) = (pin!(table.exclusive(0..3).acquire()), pin!(held.release()));
    assert!(poll_times(acquire.as_mut(), 5).is_none());
    assert!(poll_times(release.as_mut(), 5).is_none());
    server.kill();
    let (ended, lost) = (block_on(acquire), block_on(release));
    assert!(matches!(ended, Err(AcquireError::Lost { .. })), "{ended:?}");
    assert!(lost.is_err(), "{lost:?}");
}

/// The session's thread is still on its way out of the line, for one that gave up there: it asks,
/// and nobody else does meanwhile.
#[test]
fn a_hold_is_released_while_one_that_gave_up_leaves_the_line() {
    let (_stage, server) = Serving::alone();
    let session = server.session();
    let (lock, other) = (session.lock("a"), session.lock("b").exclusive().blocking().unwrap());
    for _ in 0..300 {
        let mut guard = lock.shared().blocking().unwrap();
        let gives_up = lock.exclusive().within(Duration::from_millis(1));
        assert!(matches!(gives_up.blocking(), Err(AcquireError::TimedOut { .. })));
        let begun = Instant::now();
        let guard = loop {
            guard = match guard.try_upgrade() {
                Ok(guard) => break guard,
                Err(guard) => guard,
            };
            assert!(begun.elapsed() < SOON, "who gave up is still in line");
        };
        guard.release().blocking().unwrap();
    }
    assert_eq!(other.lost_reason(), None);
}
