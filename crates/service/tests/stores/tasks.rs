//! Specification of stores as tasks use them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use farlock::kv::{AsyncScan, Index, StoreOptions};
use farlock::{AsyncKv, Kv, KvError, RegionOptions, Token};
use tokio::runtime::{Builder, Runtime};

use crate::stage::serving::Serving;
use crate::stage::{Stage, block_on};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

fn opened(options: &RegionOptions) -> AsyncKv {
    Kv::open(options, "t").unwrap().into_async().unwrap()
}

/// What both kinds of regions are to do.
fn here_and_by_a_server(does: impl Fn(&Stage, &RegionOptions)) {
    let stage = Stage::new();
    does(&stage, &stage.options());
    let (stage, serving) = Serving::alone();
    does(&stage, &serving.options());
}

#[test]
fn a_task_does_what_a_thread_does() {
    here_and_by_a_server(|_, options| {
        let (kv, thread) = (opened(options), Kv::open(options, "t").unwrap());
        assert_eq!((kv.name(), kv.index()), ("t", thread.index()));
        block_on(async {
            kv.put("a", "1").await.unwrap();
            assert_eq!(thread.get("a").unwrap().unwrap(), b"1");
            assert_eq!(kv.get("a").await.unwrap().unwrap(), b"1");
            assert_eq!(kv.get("b").await.unwrap(), None);
            assert_eq!(kv.add("a", 41).await.unwrap(), 42);
            assert!(!kv.insert("a", "2").await.unwrap() && kv.insert("b", "2").await.unwrap());
            assert!(kv.replace("b", "3").await.unwrap() && !kv.replace("c", "3").await.unwrap());
            assert!(kv.compare_and_set("b", "3", "4").await.unwrap());
            assert!(!kv.compare_and_set("b", "3", "5").await.unwrap());
            let longer = |old: Option<&[u8]>| Some([old.unwrap(), b"+"].concat());
            assert_eq!(kv.update_with("b", longer).await.unwrap().unwrap(), b"4+");
            assert!(kv.remove("b").await.unwrap() && !kv.remove("b").await.unwrap());
            let hour = Duration::from_secs(3600);
            kv.put_for("timed", "1", hour).await.unwrap();
            assert!(!kv.insert_for("timed", "1", hour).await.unwrap());
            assert!(kv.replace_for("timed", "1", hour).await.unwrap());
            let left = kv.time_left("timed").await.unwrap().unwrap().unwrap();
            assert!(left <= hour && left > hour / 2, "{left:?}");
            assert_eq!(kv.time_left("a").await.unwrap(), Some(None));
            let fenced = kv.fenced(Token::from(7));
            fenced.put("f", "1").await.unwrap();
            assert_eq!(kv.token("f").await.unwrap(), Some(Token::from(7)));
            assert!(matches!(kv.put("f", "2").await, Err(KvError::Fenced { .. })));
            let stale = kv.fenced(Token::from(6)).put("f", "2").await;
            assert!(matches!(stale, Err(KvError::StaleToken { .. })), "{stale:?}");
            assert!(matches!(kv.put("", "1").await, Err(KvError::BadKey { bytes: 0 })));
            assert!(matches!(kv.add("timed", i64::MAX).await, Err(KvError::Overflow)));
            let mut watch = kv.watch("a").await.unwrap();
            assert_eq!(watch.next().await.unwrap().unwrap(), b"42");
        });
    });
}

#[test]
fn several_keys_of_a_task_are_asked_for_together() {
    here_and_by_a_server(|_, options| {
        let kv = opened(options);
        let mut model = BTreeMap::<String, String>::new();
        let keys: Vec<String> = (0..300).map(|key| (key % 120).to_string()).collect();
        block_on(async {
            let pairs = || (0..).zip(&keys).map(|(at, key): (u32, _)| (key, at.to_string()));
            assert!(kv.put_many(pairs()).await.iter().all(Result::is_ok));
            model.extend(pairs().map(|(key, value)| (key.clone(), value)));
            let got = kv.get_many(&keys).await.into_iter().map(|got| got.unwrap().unwrap());
            assert!(got.eq(keys.iter().map(|key| model[key].clone().into_bytes())));
            let removed = kv.remove_many(&keys).await.into_iter().map(Result::unwrap);
            assert!(removed.eq(keys.iter().map(|key| model.remove(key).is_some())));
        });
    });
}

/// Of those that found no room at once each asked for memory: 32 puts could lengthen a store by 64
/// MiB.
#[test]
fn puts_that_find_no_room_at_once_lengthen_the_store_once() {
    const CHUNK_BYTES: u64 = 2 << 20;
    here_and_by_a_server(|_, options| {
        let (kv, thread) = (opened(options), Kv::open(options, "t").unwrap());
        for length in (0..10).map(|class| 1_000 + class * 600) {
            let before = thread.bytes();
            let pairs = (0..32).map(|key| (format!("{length} {key}"), vec![7; length]));
            let ended = block_on(kv.put_many(pairs));
            assert!(ended.iter().all(Result::is_ok), "{ended:?}");
            // One that is needed, and those ahead of need.
            let chunks = (thread.bytes() - before) / CHUNK_BYTES;
            assert!(chunks <= 3, "{chunks} chunks for 32 values of {length} bytes");
        }
    });
}

/// The pairs that a scan gives, and how often it was asked in vain: each third future is dropped
/// after it was polled once.
async fn all_of(mut scan: AsyncScan) -> (Vec<String>, u32) {
    let (mut keys, mut dropped) = (Vec::new(), 0);
    loop {
        if keys.len() % 3 == 2 {
            let next = std::future::poll_fn(|cx| Poll::Ready(pin!(scan.next()).poll(cx)));
            match next.await {
                Poll::Ready(Some(pair)) => keys.push(String::from_utf8(pair.unwrap().key).unwrap()),
                Poll::Ready(None) => return (keys, dropped),
                Poll::Pending => dropped += 1,
            }
        }
        let Some(pair) = scan.next().await else { return (keys, dropped) };
        keys.push(String::from_utf8(pair.unwrap().key).unwrap());
    }
}

#[test]
fn a_task_scans_as_a_thread_does() {
    here_and_by_a_server(|stage, options| {
        let kv = Kv::open(options, StoreOptions::new("o").with_index(Index::Ordered)).unwrap();
        let (kv, thread) = (kv.another().unwrap().into_async().unwrap(), kv);
        let hash = opened(options);
        let places = [stage.options(), Stage::new().options()];
        let parts = StoreOptions::new("p").with_index(Index::Ordered);
        let parts = Kv::open_over(&places, parts).unwrap().into_async().unwrap();
        let name = |key: u32| format!("key {:03}", key * 7 % 997);
        let expected = |keep: &dyn Fn(&str) -> bool| -> Vec<String> {
            let mut keys: Vec<String> = (0..900).map(name).filter(|key| keep(key)).collect();
            keys.sort_unstable();
            keys
        };
        block_on(async {
            for kv in [&kv, &hash, &parts] {
                assert!(
                    kv.put_many((0..900).map(|key| (name(key), "v")))
                        .await
                        .iter()
                        .all(Result::is_ok)
                );
            }
            for kv in [&kv, &parts] {
                assert_eq!(all_of(kv.scan()).await.0, expected(&|_| true));
                let range = kv.scan_range("key 2".."key 5").unwrap();
                assert_eq!(
                    all_of(range).await.0,
                    expected(&|key| ("key 2".."key 5").contains(&key))
                );
                let mut down = expected(&|key| key.starts_with("key 4"));
                down.reverse();
                assert_eq!(all_of(kv.scan_prefix_reversed("key 4").unwrap()).await.0, down);
            }
            let (mut all, _) = all_of(hash.scan()).await;
            all.sort_unstable();
            assert_eq!(all, expected(&|_| true));
            assert!(matches!(hash.scan_prefix("k"), Err(KvError::OtherIndex { .. })));
        });
        assert_eq!(thread.scan().count(), 900);
    });
}

/// Each sum that is told is another one.
#[test]
fn tasks_that_add_to_the_same_keys_lose_nothing() {
    const TASKS: i64 = 200;
    const ROUNDS: i64 = 20;
    here_and_by_a_server(|_, options| {
        let kv = opened(options);
        let runtime = runtime();
        let adds = |task: i64| {
            let kv = kv.clone();
            async move {
                let mut sums = Vec::new();
                for round in 0..ROUNDS {
                    sums.push(kv.add(format!("sum {}", task % 3), 1).await.unwrap());
                    kv.put(format!("own {task}"), round.to_string()).await.unwrap();
                }
                sums
            }
        };
        let tasks: Vec<_> = (0..TASKS).map(|task| runtime.spawn(adds(task))).collect();
        let mut told: Vec<Vec<i64>> = vec![Vec::new(); 3];
        for (task, ended) in tasks.into_iter().enumerate() {
            told[task % 3].extend(runtime.block_on(ended).unwrap());
        }
        for sums in &mut told {
            sums.sort_unstable();
            assert!(sums.iter().copied().eq(1..=sums.len() as i64));
        }
        let own = |task: i64| runtime.block_on(kv.get(format!("own {task}"))).unwrap().unwrap();
        assert!((0..TASKS).all(|task| own(task) == (ROUNDS - 1).to_string().as_bytes()));
    });
}

/// In memory of this host each operation is done when it is polled: one task would have its thread
/// for itself.
#[test]
fn a_task_that_goes_on_and_on_leaves_its_thread_to_others() {
    let stage = Stage::new();
    let kv = opened(&stage.options());
    let runtime = Builder::new_current_thread().build().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let adds = runtime.spawn(async move {
        let mut sum = 0;
        while !is_over.load(Ordering::Relaxed) {
            sum = kv.add("sum", 1).await.unwrap();
            assert!(kv.get_many(["sum"; 3]).await.iter().all(Result::is_ok));
        }
        sum
    });
    runtime.spawn(async move { ends.store(true, Ordering::Relaxed) });
    assert!(runtime.block_on(adds).unwrap() > 0);
}

/// What a future that was dropped began is done or not, and delays nobody.
#[test]
fn futures_that_are_dropped_keep_no_other_waiting() {
    here_and_by_a_server(|_, options| {
        let kv = opened(options);
        let mut cx = Context::from_waker(Waker::noop());
        for round in 0..500 {
            let mut add = pin!(kv.add("sum", 1));
            // Now and then the first poll leaves the thread to others.
            let polls = if round % 2 == 0 { 2 } else { 0 };
            (0..polls).any(|_| add.as_mut().poll(&mut cx).is_ready());
        }
        // Behind all of them: those of a key are done in order.
        assert_eq!(block_on(kv.add("sum", 1)).unwrap(), 251);
    });
}

#[test]
fn a_closure_that_panics_ends_its_own_task_alone() {
    here_and_by_a_server(|_, options| {
        let kv = opened(options);
        let runtime = runtime();
        block_on(kv.put("a", "1")).unwrap();
        let panics = {
            let kv = kv.clone();
            runtime.spawn(async move { kv.update_with("a", |_| panic!("as it is to")).await })
        };
        let adds = {
            let kv = kv.clone();
            runtime.spawn(async move { kv.add("b", 1).await })
        };
        assert!(runtime.block_on(panics).unwrap_err().is_panic());
        assert_eq!(runtime.block_on(adds).unwrap().unwrap(), 1);
        assert_eq!(block_on(kv.add("a", 1)).unwrap(), 2);
    });
}

/// What was asked for and is not waited for any more is not waited for.
#[test]
fn the_last_clone_waits_for_no_server_that_is_gone() {
    let (_stage, mut serving) = Serving::alone();
    let kv = opened(&serving.options());
    block_on(kv.put("a", "1")).unwrap();
    serving.kill();
    let begun = Instant::now();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(pin!(kv.put("a", "2")).poll(&mut cx).is_pending());
    drop(kv);
    // A lease is ten seconds.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Drops its task when that is woken.
struct Drops(Mutex<Option<Task>>, AtomicU64);

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Also by the thread that carries out what it asks.
#[test]
fn a_task_that_has_the_last_clone_is_dropped_where_it_is_woken() {
    here_and_by_a_server(|stage, options| {
        let kv = opened(options);
        let drops = Arc::new(Drops(Mutex::new(None), AtomicU64::new(0)));
        let waker = Waker::from(Arc::clone(&drops));
        let mut task: Task = Box::pin(async move { kv.put("a", "1").await.unwrap() });
        // As long as it is locked, who wakes it waits.
        let mut slot = drops.0.lock().unwrap();
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            *slot = Some(task);
            drop(slot);
            stage.until(|| drops.1.load(Ordering::Relaxed) > 0);
        }
        let other = Kv::open(options, "t").unwrap();
        stage.until(|| other.get("a").unwrap().is_some());
    });
}

#[test]
fn ephemeral_pairs_of_tasks_end_with_the_last_clone() {
    here_and_by_a_server(|_, options| {
        let kv = opened(options);
        block_on(async {
            kv.put_ephemeral("here", "1").await.unwrap();
            assert!(!kv.insert_ephemeral("here", "2").await.unwrap());
            assert!(kv.insert_ephemeral("there", "2").await.unwrap());
        });
        let other = Kv::open(options, "t").unwrap();
        let clone = kv.clone();
        drop(kv);
        assert_eq!(other.get("here").unwrap().unwrap(), b"1");
        drop(clone);
        assert_eq!((other.get("here").unwrap(), other.get("there").unwrap()), (None, None));
    });
}

/// Of a verb that was cut off by the kill nobody may know whether it was executed.
#[test]
fn tasks_go_on_when_their_server_was_killed_and_started_again() {
    const TASKS: u64 = 64;
    const ROUNDS: u64 = 100;
    let stage = Stage::new();
    let mut serving = Serving::on(&stage);
    let kv = opened(&serving.options());
    let runtime = runtime();
    let done = Arc::new(AtomicU64::new(0));
    let works = |task: u64| {
        let (kv, done) = (kv.clone(), Arc::clone(&done));
        async move {
            let mut last = 0;
            for round in 1..=ROUNDS {
                match kv.put(format!("own {task}"), round.to_string()).await {
                    Ok(()) => last = round,
                    Err(KvError::Unknown) => {}
                    Err(error) => panic!("{error}"),
                }
                let added = kv.add(format!("sum {}", task % 5), 1).await;
                assert!(matches!(added, Ok(_) | Err(KvError::Unknown)), "{added:?}");
                done.fetch_add(1, Ordering::Relaxed);
            }
            last
        }
    };
    let tasks: Vec<_> = (0..TASKS).map(|task| runtime.spawn(works(task))).collect();
    for _ in 0..3 {
        let before = done.load(Ordering::Relaxed);
        stage.until(|| {
            let now = done.load(Ordering::Relaxed);
            now > before + 500 || now == TASKS * ROUNDS
        });
        serving.restart(&stage, &[]);
    }
    for (task, ended) in (0..).zip(tasks) {
        let last = runtime.block_on(ended).unwrap();
        let value = runtime.block_on(kv.get(format!("own {task}"))).unwrap().unwrap();
        let value: u64 = String::from_utf8(value).unwrap().parse().unwrap();
        assert!(value >= last, "{task}: {value}, {last} was told");
    }
}

/// Each part has a thread of its own: where its server is down its own keys wait, and no others.
#[test]
fn tasks_use_a_store_over_several_servers_and_one_in_memory() {
    let stages = [Stage::new(), Stage::new(), Stage::new()];
    let servers = [Serving::on(&stages[0]), Serving::on(&stages[1])];
    let places = [servers[0].options(), stages[2].options(), servers[1].options()];
    let kv = Kv::open_over(&places, "t").unwrap().into_async().unwrap();
    let name = |key: u32| format!("key {key}");
    block_on(async {
        let put = kv.put_many((0..200).map(|key| (name(key), key.to_string()))).await;
        assert!(put.iter().all(Result::is_ok), "{put:?}");
    });
    let thread = kv.handle().unwrap();
    assert_eq!(thread.parts(), 3);
    assert!(
        (0..200).all(|key| thread.get(name(key)).unwrap().unwrap() == key.to_string().as_bytes())
    );
}
