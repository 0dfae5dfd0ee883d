//! Specification of watches on keys of a store: nothing that changes between two waits is missed,
//! a wait sleeps, and a watcher that waits, stops or dies is in nobody's way.

use std::future::{Future, IntoFuture};
use std::io::{BufRead, BufReader, Read};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use farlock::kv::{KEY_BYTES_MAX, Watch};
use farlock::{Kv, KvError, Token};
use rustix::process::Signal;

use crate::stage::serving::Serving;
use crate::stage::{self, Stage, kill, pid};

const LONG: Duration = Duration::from_secs(10);

fn store(stage: &Stage) -> Kv {
    Kv::open(&stage.options(), "default").unwrap()
}

fn next(watch: &mut Watch) -> Option<String> {
    let value = watch.next().within(LONG).blocking().unwrap();
    value.map(|value| String::from_utf8(value).unwrap())
}

/// That nothing has happened.
fn rests(watch: &mut Watch) {
    let limit = Duration::from_millis(20);
    let ended = watch.next().within(limit).blocking();
    assert!(matches!(ended, Err(KvError::TimedOut { limit: told }) if told == limit), "{ended:?}");
}

/// Where there is no time to wait it is still a look at the key.
#[test]
fn a_watch_without_time_sees_what_has_changed() {
    let stage = Stage::new();
    let kv = store(&stage);
    let mut watch = kv.watch("k").unwrap();
    assert_eq!(next(&mut watch), None);
    for (number, limit) in (0..20).zip([Duration::ZERO, Duration::from_nanos(1)].repeat(10)) {
        let ended = watch.next().within(limit).blocking();
        assert!(matches!(ended, Err(KvError::TimedOut { .. })), "{ended:?}");
        kv.put("k", number.to_string()).unwrap();
        let seen = match number % 2 {
            0 => watch.next().within(limit).blocking(),
            _ => stage::block_on(watch.next().within(limit).into_future()),
        };
        assert_eq!(seen.unwrap().unwrap(), number.to_string().as_bytes());
    }
}

/// A task whose executor is gone: its waker is all that keeps it, and the store's thread wakes it.
#[test]
fn a_store_may_end_by_a_waker() {
    struct Task(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let panics = Arc::new(AtomicUsize::new(0));
    let (counted, before) = (Arc::clone(&panics), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        let is_of_store = std::thread::current().name() == Some("farlock-kv");
        counted.fetch_add(is_of_store.into(), Ordering::SeqCst);
        before(info);
    }));
    let stage = Stage::new();
    let kv = store(&stage);
    for number in 0..5 {
        let (mut watch, (tells, told)) = (store(&stage).watch("k").unwrap(), channel::<()>());
        let future = async move {
            let _tells = tells;
            while watch.next().await.is_ok() {}
        };
        let task = Arc::new(Task(Mutex::new(Some(Box::pin(future)))));
        let waker = Waker::from(Arc::clone(&task));
        let mut future = task.0.lock().unwrap().take().unwrap();
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        *task.0.lock().unwrap() = Some(future);
        drop((task, waker));
        kv.put("k", number.to_string()).unwrap();
        assert_eq!(told.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
    }
    // What its thread ends of comes right after that.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(panics.load(Ordering::SeqCst), 0, "the store's thread waited for itself");
}

#[test]
fn a_watch_tells_what_a_key_is_and_then_each_change() {
    let stage = Stage::new();
    let kv = store(&stage);
    let mut watch = kv.watch("k").unwrap();
    assert_eq!(next(&mut watch), None, "the first time it returns at once");
    rests(&mut watch);
    kv.put("k", "one").unwrap();
    assert_eq!(next(&mut watch).as_deref(), Some("one"));
    rests(&mut watch);
    kv.put("k", "one").unwrap();
    assert_eq!(next(&mut watch).as_deref(), Some("one"), "it was written again");
    assert!(kv.remove("k").unwrap());
    assert_eq!(next(&mut watch), None);
    rests(&mut watch);
    kv.put("other", "x").unwrap();
    rests(&mut watch);
    // What came and went is nothing, and of several changes the last is told.
    kv.put("k", "came").unwrap();
    kv.remove("k").unwrap();
    rests(&mut watch);
    kv.put("k", "2").unwrap();
    kv.add("k", 5).unwrap();
    assert_eq!(next(&mut watch).as_deref(), Some("7"));
    assert!(matches!(kv.watch(""), Err(KvError::BadKey { bytes: 0 })));
    let long = vec![0; KEY_BYTES_MAX + 1];
    assert!(matches!(kv.watch(long), Err(KvError::BadKey { .. })));
    // A token that a key keeps is no value.
    kv.put_fenced("k", "fenced", Token::from(7)).unwrap();
    assert_eq!(next(&mut watch).as_deref(), Some("fenced"));
    kv.remove_fenced("k", Token::from(8)).unwrap();
    assert_eq!(next(&mut watch), None);
    kv.remove_fenced("k", Token::from(9)).unwrap();
    rests(&mut watch);
}

#[test]
fn a_watch_sees_that_the_time_of_a_value_is_over() {
    let stage = Stage::new();
    let kv = store(&stage);
    kv.put_for("k", "v", Duration::from_millis(200)).unwrap();
    let mut watch = kv.watch("k").unwrap();
    assert_eq!(next(&mut watch).as_deref(), Some("v"));
    let begun = Instant::now();
    assert_eq!(next(&mut watch), None);
    assert!(begun.elapsed() < Duration::from_secs(5), "nobody writes then, and it wakes");
    rests(&mut watch);
    kv.put_for("k", "w", LONG).unwrap();
    assert_eq!(next(&mut watch).as_deref(), Some("w"));
    // A time that is longer is a value anew.
    kv.put_for("k", "w", Duration::from_millis(1)).unwrap();
    stage.until(|| kv.get("k").unwrap().is_none());
    assert_eq!(next(&mut watch), None);
}

/// Every wait between two threads is ended by the other one's change; a wake-up that was lost would
/// take a second or more each.
#[test]
fn no_change_is_missed_by_a_watch_that_waits() {
    const ROUNDS: u32 = 2_000;
    let stage = Stage::new();
    let kv = store(&stage);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (own, others) in [("ping", "pong"), ("pong", "ping")] {
            let kv = kv.another().unwrap();
            scope.spawn(move || {
                let mut watch = kv.watch(others).unwrap();
                for round in 0..ROUNDS {
                    if own == "ping" || round > 0 {
                        kv.put(own, round.to_string()).unwrap();
                    }
                    let wanted = if own == "ping" { round + 1 } else { round };
                    while wanted < ROUNDS
                        && next(&mut watch).is_none_or(|told| told != wanted.to_string())
                    {
                    }
                }
            });
        }
    });
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

#[test]
fn a_watch_goes_on_while_the_index_grows() {
    let stage = Stage::new();
    let kv = store(&stage);
    kv.put("there", "0").unwrap();
    let mut there = kv.watch("there").unwrap();
    assert_eq!(next(&mut there).as_deref(), Some("0"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let filling = kv.another().unwrap();
        let is_over = &is_over;
        scope.spawn(move || {
            // More than one level of the index has slots for.
            for key in 0..250_000_u32 {
                filling.put(key.to_le_bytes(), "v").unwrap();
            }
            is_over.store(true, Ordering::SeqCst);
        });
        let mut turns = 0;
        while !is_over.load(Ordering::SeqCst) || turns < 10 {
            turns += 1;
            kv.put("there", turns.to_string()).unwrap();
            assert_eq!(next(&mut there), Some(turns.to_string()));
            // Into which of its slots it comes differs from key to key.
            let key = format!("absent {turns}");
            let mut absent = kv.watch(&key).unwrap();
            assert_eq!(next(&mut absent), None);
            kv.put(&key, "here").unwrap();
            assert_eq!(next(&mut absent).as_deref(), Some("here"), "turn {turns}");
            kv.remove(&key).unwrap();
            assert_eq!(next(&mut absent), None);
        }
        assert!(turns > 50, "{turns}");
    });
    rests(&mut there);
}

#[test]
fn a_watch_of_a_store_that_is_removed_says_so() {
    let stage = Stage::new();
    let kv = store(&stage);
    let mut watch = kv.watch("k").unwrap();
    assert_eq!(next(&mut watch), None);
    assert!(stage.options().remove_store("default").unwrap());
    let begun = Instant::now();
    assert!(matches!(watch.next().blocking(), Err(KvError::Gone { .. })));
    assert!(begun.elapsed() < Duration::from_secs(5));
    // Also one that waits.
    for _ in 0..10 {
        let mut watch = store(&stage).watch("k").unwrap();
        assert_eq!(next(&mut watch), None);
        let waits = std::thread::spawn(move || watch.next().blocking());
        std::thread::sleep(Duration::from_millis(20));
        assert!(stage.options().remove_store("default").unwrap());
        let ended = waits.join().unwrap();
        assert!(matches!(ended, Err(KvError::Gone { .. })), "{ended:?}");
    }
}

/// What a process has had of a processor, in ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// The store's thread waits for it, and has only had its own answers meanwhile.
#[test]
fn a_task_that_watches_by_a_server_takes_no_processor() {
    let (_stage, server) = Serving::alone();
    let kv = Kv::open(&server.options(), "default").unwrap();
    let mut watch = kv.watch("k").unwrap();
    assert_eq!(next(&mut watch), None);
    let mut waits = Box::pin(watch.next().into_future());
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    std::thread::sleep(Duration::from_millis(300));
    // Of this process other tests take as well.
    let before = ticks(server.child.id());
    std::thread::sleep(Duration::from_secs(2));
    let took = ticks(server.child.id()) - before;
    assert!(took < 8, "{took} ticks");
    kv.put("k", "v").unwrap();
    let begun = Instant::now();
    while waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        assert!(begun.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Others change all other keys, so that it is woken for nothing too; some of them share a line, or
/// a bell, with the slots of the key that is absent.
#[test]
fn a_watch_that_waits_takes_no_processor() {
    let stage = Stage::new();
    let kv = store(&stage);
    let mut child =
        stage.farlock(&["kv", "watch", "absent"]).stdout(Stdio::null()).spawn().unwrap();
    stage.until(|| stage.options().store_names().unwrap() == ["default"]);
    std::thread::sleep(Duration::from_millis(100));
    let before = ticks(child.id());
    let begun = Instant::now();
    let mut number = 0_u32;
    while begun.elapsed() < Duration::from_secs(1) {
        kv.put((number % 50_000).to_le_bytes(), "v").unwrap();
        number += 1;
    }
    let taken = ticks(child.id()) - before;
    kill(pid(&child), Signal::KILL);
    child.wait().unwrap();
    assert!(taken <= 20, "{taken} of 100 ticks while {number} keys changed");
}

#[test]
fn watches_that_are_killed_or_stopped_delay_nobody() {
    let stage = Stage::new();
    let kv = store(&stage);
    let mut watchers = Vec::new();
    for _ in 0..20 {
        let mut child =
            stage.farlock(&["kv", "watch", "k"]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        watchers.push((child, lines));
    }
    let mut line = String::new();
    kv.put("k", "first").unwrap();
    for (_, lines) in &mut watchers {
        line.clear();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "k\tfirst\n");
    }
    for (child, _) in &watchers[..10] {
        stage.stop(pid(child));
    }
    for (child, _) in &mut watchers[10..15] {
        kill(pid(child), Signal::KILL);
        child.wait().unwrap();
    }
    let begun = Instant::now();
    for number in 0..1_000 {
        kv.put("k", number.to_string()).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // Those that live see the last value, and so do those that go on.
    for (child, _) in &watchers[..10] {
        kill(pid(child), Signal::CONT);
    }
    for (child, lines) in watchers
        .iter_mut()
        .filter(|(child, _)| stage::is_running(pid(child).as_raw_nonzero().get()))
    {
        while line != "k\t999\n" {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0);
        }
        line.clear();
        kill(pid(child), Signal::INT);
        child.wait().unwrap();
    }
}

#[test]
fn the_command_prints_a_line_for_each_change() {
    let stage = Stage::new();
    let watch = |words: &[&str]| {
        let mut command = stage.farlock(&[&["kv", "watch"], words].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let ended = |child: std::process::Child| stage::ended(child.wait_with_output().unwrap());
    // It may be there before its store is, which it does not make. What is absent at first is no
    // line.
    let child = watch(&["--count", "1", "k"]);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(stage.options().store_names().unwrap(), [""; 0]);
    let kv = store(&stage);
    kv.put("k", "a\tb").unwrap();
    assert_eq!(ended(child), (0, "k\ta\\tb\n".into(), String::new()));
    let (status, out, said) = stage.run(&["kv", "watch", "-w", "0.05", "k"]);
    assert_eq!((status, out.as_str()), (1, "k\ta\\tb\n"));
    assert!(said.contains("has not changed within 0.05 s [timed-out]"), "{said}");
    assert_eq!(stage.run(&["kv", "watch", "--count", "0", "k"]), (0, String::new(), String::new()));
    assert_eq!(stage.run(&["kv", "watch", "--count", "1", ""]).0, 64);
    // Each change that is waited for is a line of its own.
    let mut child = watch(&["--count", "3", "k"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut heard = || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(heard(), "k\ta\\tb\n");
    kv.remove("k").unwrap();
    assert_eq!(heard(), "k\t\tgone\n");
    kv.put("k", "").unwrap();
    assert_eq!(heard(), "k\t\n");
    assert_eq!(ended(child).0, 0);
}

#[test]
fn the_command_ends_when_nobody_reads_it_or_it_cannot_write() {
    let stage = Stage::new();
    store(&stage).put("k", "v").unwrap();
    let mut child = stage.farlock(&["kv", "watch", "k"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 4];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    // Its reader has gone, and nothing changes any more.
    let begun = Instant::now();
    assert!(child.wait().unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(5));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let full = stage.farlock(&["kv", "watch", "k"]).stdout(full).output().unwrap();
    assert_eq!(full.status.code(), Some(71));
    let closed = stage
        .program("sh")
        .args(["-c", "exec \"$0\" kv watch k >&-", env!("CARGO_BIN_EXE_farlock")])
        .output()
        .unwrap();
    assert_eq!(closed.status.code(), Some(71));
    // Ctrl-C ends it as it ends any command.
    use std::os::unix::process::ExitStatusExt;
    let mut child = stage.farlock(&["kv", "watch", "k"]).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    kill(pid(&child), Signal::INT);
    assert_eq!(child.wait().unwrap().signal(), Some(2));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

async fn awaited(watch: &mut Watch) -> Option<String> {
    let value = watch.next().within(LONG).await.unwrap();
    value.map(|value| String::from_utf8(value).unwrap())
}

/// As between threads: a wake-up that was lost would take a second each.
#[test]
fn no_change_is_missed_by_a_watch_that_is_awaited() {
    const ROUNDS: u32 = 1_000;
    let stage = Stage::new();
    let kv = store(&stage);
    let begun = Instant::now();
    runtime().block_on(async {
        let tasks = [("ping", "pong"), ("pong", "ping")].map(|(own, others)| {
            let kv = kv.another().unwrap();
            let mut watch = kv.watch(others).unwrap();
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    if own == "ping" || round > 0 {
                        kv.put(own, round.to_string()).unwrap();
                    }
                    let wanted = if own == "ping" { round + 1 } else { round };
                    while wanted < ROUNDS
                        && awaited(&mut watch).await.is_none_or(|told| told != wanted.to_string())
                    {
                    }
                }
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

#[test]
fn hundreds_of_tasks_watch_by_one_thread() {
    let stage = Stage::new();
    let kv = store(&stage);
    runtime().block_on(async {
        let mut tasks = Vec::new();
        for task in 0..300 {
            let mut watch = kv.watch(format!("k{task}")).unwrap();
            tasks.push(tokio::spawn(async move {
                assert_eq!(awaited(&mut watch).await, None);
                // A task that drops a wait has missed nothing.
                let short = Duration::from_millis(task % 20);
                assert!(tokio::time::timeout(short, awaited(&mut watch)).await.is_err());
                let limit = Duration::from_millis(5);
                let ended = watch.next().within(limit).await;
                assert!(matches!(ended, Err(KvError::TimedOut { .. })), "{ended:?}");
                awaited(&mut watch).await
            }));
        }
        let mut ends = kv.watch("ends").unwrap();
        kv.put_for("ends", "v", Duration::from_millis(300)).unwrap();
        assert_eq!(awaited(&mut ends).await.as_deref(), Some("v"));
        assert_eq!(awaited(&mut ends).await, None, "its time is over");
        let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
        assert!(threads < 100, "{threads} threads, those of other tests among them");
        tokio::time::sleep(Duration::from_millis(100)).await;
        for task in 0..300 {
            kv.put(format!("k{task}"), task.to_string()).unwrap();
        }
        for (number, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), Some(number.to_string()));
        }
        // The store ends at once, though its thread has just waited for seconds to come.
        let mut last = kv.watch("last").unwrap();
        assert_eq!(awaited(&mut last).await, None);
        let waits = tokio::time::timeout(Duration::from_millis(5), awaited(&mut last)).await;
        assert!(waits.is_err());
        let begun = Instant::now();
        drop((last, ends, kv));
        assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_task_is_told_that_its_store_was_removed() {
    let stage = Stage::new();
    let mut watch = store(&stage).watch("k").unwrap();
    runtime().block_on(async {
        assert_eq!(awaited(&mut watch).await, None);
        assert!(stage.options().remove_store("default").unwrap());
        assert!(matches!(watch.next().await, Err(KvError::Gone { .. })));
    });
}

/// A watcher that has lost its server is not told that a pair is gone of which the owner lives.
#[test]
fn a_watch_that_has_lost_its_server_does_not_say_that_an_owner_is_dead() {
    for way in [Signal::STOP, Signal::KILL] {
        let stage = Stage::new();
        let server = Serving::listening(&stage, "127.0.0.1:0", &["--lease", "2"]);
        let mut here = stage.farlock(&["kv", "hold", "here", "v"]);
        let mut here = here.stderr(Stdio::null()).spawn().unwrap();
        let mut there = stage.farlock(&["kv", "hold", "--server", &server.address, "there", "v"]);
        let there = there.stderr(Stdio::piped()).spawn().unwrap();
        stage.until(|| ["here", "there"].iter().all(|key| stage.run(&["kv", "get", key]).0 == 0));
        let watches = ["here", "there"].map(|key| {
            let mut watch = stage.farlock(&["kv", "watch", "--server", &server.address, key]);
            let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut seen = vec![0; key.len() + "\tv\n".len()];
            watch.stdout.as_mut().unwrap().read_exact(&mut seen).unwrap();
            assert_eq!(seen, format!("{key}\tv\n").into_bytes());
            watch
        });
        kill(pid(&server.child), way);
        for watch in watches {
            let (status, printed, said) = stage::ended(watch.wait_with_output().unwrap());
            assert_eq!(printed, "", "{way:?}: nothing has changed");
            assert_eq!((status, said.contains("[disconnected]")), (69, true), "{way:?}: {said}");
        }
        let (status, _, said) = stage::ended(there.wait_with_output().unwrap());
        assert_eq!((status, said.contains("[disconnected]")), (69, true), "{way:?}: {said}");
        here.kill().unwrap();
        here.wait().unwrap();
    }
}
