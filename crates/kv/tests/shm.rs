//! Specification: the same text on memory that threads and processes share, where words really tear
//! and clients are really killed.
#![allow(clippy::unwrap_used)]

#[path = "../../fabric/tests/shm_support/mod.rs"]
mod support;

// Of the scene only the judge is of use here.
#[path = "simulated/scene/judge.rs"]
#[allow(dead_code, unreachable_pub)]
mod judge;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use farlock_fabric::shm::{Region, ShmEndpoint};
use farlock_fabric::{Endpoint, block_on};
use farlock_kv::index::Race;
use farlock_kv::sync::{Backoff, Cider, CiderRules, Optimistic};
use farlock_kv::{Index, Scheme, Shape, Store, WriteError};
use farlock_locks::record::mcs::Mcs;
use farlock_locks::{Client, Options};
use judge::{Answer, Ask, Judge};
use support::{Peer, TestDir, part, say};

type Shared = Store<Optimistic<ShmEndpoint>, Race>;

const INDEX: Race = Race::new(1);

/// A store in which an index grows for milliseconds, in bytes and chunks.
const LARGE_HEAP_BYTES: u64 = 4 << 20;
const LARGE_CHUNKS: u32 = 7_000;

fn shape(region: &Region, chunks: u32) -> Shape {
    let (base, bytes) = region.heap();
    let (index_bytes, index_tag) = (INDEX.bytes(), INDEX.tag());
    let shape = Shape { base, chunks, chunk_bytes: 512, index_bytes, index_tag };
    assert!(shape.bytes() <= bytes, "{} of {bytes}", shape.bytes());
    shape
}

fn store(region: &Region, chunks: u32) -> Shared {
    let scheme = Optimistic::new(region.endpoint().unwrap(), Backoff::NONE);
    now(Store::open(scheme, INDEX, shape(region, chunks))).unwrap()
}

/// Every verb completes where it is posted, so nothing ever waits.
fn now<F: Future>(future: F) -> F::Output {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut cx) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => unreachable!("a verb of shared memory completes in its post"),
    }
}

fn carry_out(store: &Shared, key: &[u8], ask: &Ask) -> Answer {
    let done = |ended: Result<(), WriteError>| ended.map(|()| Answer::Done);
    let ended = match ask {
        Ask::Get => now(store.get(key)).map(Answer::Value).map_err(WriteError::from),
        Ask::Insert(value) => done(now(store.insert(key, value))),
        Ask::Update(value) => done(now(store.update(key, value))),
        Ask::Upsert(value) => done(now(store.upsert(key, value))),
        Ask::Delete => done(now(store.delete(key))),
        Ask::CompareAndSet(old, new) => done(now(store.compare_and_set(key, old, new))),
        Ask::Increment(by) => now(store.increment(key, *by)).map(Answer::Sum),
    };
    match ended {
        Ok(answer) => answer,
        Err(WriteError::Unknown | WriteError::PoolFull) => unreachable!("{ask:?}: {ended:?}"),
        Err(error) => Answer::No(error),
    }
}

/// What a thread does next.
fn ask(store: &Shared, thread: u64, step: u64) -> Ask {
    let chance = store.scheme_endpoint().random();
    let number = thread << 32 | step;
    let length = 8 + chance as usize / 16 % 90;
    let value: Vec<u8> = (0..length).map(|at| (number >> (at % 8 * 8)) as u8).collect();
    match chance % 16 {
        0..=4 => Ask::Get,
        5..=6 => Ask::Insert(value),
        7..=8 => Ask::Update(value),
        9..=11 => Ask::Upsert(value),
        12..=13 => Ask::Delete,
        _ => Ask::Increment(1),
    }
}

trait OfStore {
    fn scheme_endpoint(&self) -> &ShmEndpoint;
}

impl OfStore for Shared {
    fn scheme_endpoint(&self) -> &ShmEndpoint {
        farlock_kv::Scheme::endpoint(self.scheme())
    }
}

/// Three threads change so many keys, and one of them makes the index larger now and then.
fn threads_change(name: &str, keys: u64, chunks: u32, grows: bool) -> u64 {
    const THREADS: u64 = 3;
    const STEPS: u64 = 4_000;
    let dir = TestDir::new(name);
    let mut options = dir.options();
    options.heap_bytes = 512 << 10;
    let region = Region::open(&options).unwrap();
    now(shape(&region, chunks).create(&region.endpoint().unwrap())).unwrap();
    let (judge, rereads) = (Mutex::new(Judge::default()), AtomicU64::new(0));
    let (growths, moves) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (region, judge, rereads) = (&region, &judge, &rereads);
            let (growths, moves) = (&growths, &moves);
            scope.spawn(move || {
                let store = store(region, chunks);
                for step in 0..STEPS {
                    if grows && thread == 0 && step % 500 == 250 {
                        // Until no run of chunks is left.
                        let _ = now(store.grow());
                    }
                    let key = (store.scheme_endpoint().random() % keys).to_le_bytes();
                    let ask = ask(&store, thread, step);
                    let called = judge.lock().unwrap().call(&key, ask.clone());
                    let answer = carry_out(&store, &key, &ask);
                    judge.lock().unwrap().answer(&key, called, ask, answer);
                }
                let counts = store.counts();
                rereads.fetch_add(counts.rereads, Ordering::Relaxed);
                growths.fetch_add(counts.growths, Ordering::Relaxed);
                moves.fetch_add(counts.moves, Ordering::Relaxed);
                now(store.close()).unwrap();
            });
        }
    });
    let (judge, growths) = (judge.into_inner().unwrap(), growths.into_inner());
    let (rereads, moves) = (rereads.into_inner(), moves.into_inner());
    println!("{} operations, {rereads} rereads, {growths} levels, {moves} moves", judge.answered);
    assert_eq!((judge.answered, judge.open), (THREADS * STEPS, 0));
    judge.verdict().unwrap();
    growths
}

#[test]
fn threads_see_each_key_do_one_thing_after_the_other() {
    assert_eq!(threads_change("kv-threads", 5, 256, false), 0);
}

#[test]
fn threads_see_no_key_get_lost_while_the_index_grows() {
    assert!(threads_change("kv-threads-grow", 5, 600, true) >= 4);
    assert!(threads_change("kv-threads-fill", 300, 900, false) >= 3);
}

/// Carries an operation out, and meanwhile settles what earlier ones have left.
fn settling<S: Scheme<Endpoint = ShmEndpoint>, F: Future>(
    store: &Store<S, Race>,
    operation: F,
) -> F::Output {
    let mut operation = pin!(operation);
    let both = poll_fn(|cx| {
        let polled = operation.as_mut().poll(cx);
        if polled.is_pending() {
            let _ = pin!(store.scheme().settle()).poll(cx);
        }
        polled
    });
    block_on(store.scheme().endpoint(), both)
}

/// Threads stand in line for one key; how many find others there is their scheduler's matter.
#[test]
fn threads_that_stand_in_line_see_the_key_do_one_thing_after_the_other() {
    const STEPS: u64 = 2_000;
    let dir = TestDir::new("kv-line");
    let region = dir.region();
    now(shape(&region, 48).create(&region.endpoint().unwrap())).unwrap();
    let (base, bytes) = region.heap();
    let (judge, combined) = (Mutex::new(Judge::default()), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (region, judge, combined) = (&region, &judge, &combined);
            scope.spawn(move || {
                let rules = CiderRules { credits: None, ..CiderRules::DEFAULT };
                let endpoint = region.endpoint().unwrap();
                let client = Client::new(endpoint, Mcs::default(), Options::default());
                let scheme = Cider::new(client, base.plus(bytes - 64), 1, rules);
                let store = now(Store::open(scheme, INDEX, shape(region, 48))).unwrap();
                for step in 0..STEPS {
                    let value = (thread << 32 | step).to_le_bytes().to_vec();
                    let ask = if step % 8 == 0 { Ask::Get } else { Ask::Upsert(value.clone()) };
                    let called = judge.lock().unwrap().call(b"key", ask.clone());
                    let answer = match step % 8 {
                        0 => Answer::Value(settling(&store, store.get(b"key")).unwrap()),
                        _ => {
                            settling(&store, store.upsert(b"key", &value)).unwrap();
                            Answer::Done
                        }
                    };
                    judge.lock().unwrap().answer(b"key", called, ask, answer);
                }
                combined.fetch_add(store.counts().combined, Ordering::Relaxed);
                block_on(store.scheme().endpoint(), store.scheme().settle());
                now(store.close()).unwrap();
            });
        }
    });
    let judge = judge.into_inner().unwrap();
    println!("{} operations, {} combined", judge.answered, combined.into_inner());
    assert_eq!((judge.answered, judge.open), (4 * STEPS, 0));
    judge.verdict().unwrap();
}

/// Plays a part in another process; does nothing in the test run itself.
#[test]
fn child() {
    let Some((part, mut options)) = part() else { return };
    let grows = part.starts_with("grows");
    if grows {
        options.heap_bytes = LARGE_HEAP_BYTES;
    }
    let region = Region::open(&options).unwrap();
    let store = store(&region, if grows { LARGE_CHUNKS } else { 32 });
    let own = part.into_bytes();
    let begun = now(store.get(&own)).unwrap();
    let begun = begun.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
    for number in begun + 1.. {
        now(store.upsert(&own, &number.to_le_bytes())).unwrap();
        now(store.increment(b"sum", 1)).unwrap();
        if grows {
            // Until no run of chunks is left.
            let _ = now(store.grow());
        }
        // When nobody listens any more this ends the process.
        say(number);
    }
}

#[test]
fn what_a_killed_process_was_told_is_there_and_its_memory_comes_back() {
    let dir = TestDir::new("kv-killed");
    let region = dir.region();
    now(shape(&region, 32).create(&region.endpoint().unwrap())).unwrap();
    let heir = store(&region, 32);
    let number = |key: &[u8]| {
        let value = now(heir.get(key)).unwrap();
        value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
    };
    let mut told = [0; 2];
    for kill in 0..30 {
        let mut children = [dir.child("one"), dir.child("two")];
        for (child, told) in children.iter_mut().zip(&mut told) {
            for _ in 0..1 + kill % 7 {
                *told = child.hear().parse::<u64>().unwrap();
            }
            child.kill_and_reap();
        }
        assert!(number(b"one") >= told[0] && number(b"two") >= told[1], "{told:?}");
        // One of each process may have been carried out and not told, or half of it.
        let (sum, all) = (number(b"sum"), number(b"one") + number(b"two"));
        assert!(sum <= all && sum + 2 * (kill + 1) >= all, "{sum} of {all}");
        now(heir.recover()).unwrap();
        now(heir.audit()).unwrap();
        if kill < 29 {
            // Others need the memory.
            now(heir.close()).unwrap();
        }
    }
    now(heir.settle());
    let census = heir.census();
    println!("told {told:?}, the heir has {census:?}");
    assert_eq!((census.published, census.in_hand, census.tainted), (3, 0, 0));
    // The face that blocks is the same.
    assert_eq!(block_on(heir.scheme_endpoint(), heir.delete(b"sum")), Ok(()));
}

#[test]
fn processes_that_are_killed_as_the_index_grows_leave_what_they_were_told() {
    let mut levels = Vec::new();
    for round in 0..16 {
        let dir = TestDir::new(&format!("kv-grows-{round}"));
        let mut options = dir.options();
        options.heap_bytes = LARGE_HEAP_BYTES;
        let region = Region::open(&options).unwrap();
        let shape = shape(&region, LARGE_CHUNKS);
        now(shape.create(&region.endpoint().unwrap())).unwrap();
        let heir = store(&region, LARGE_CHUNKS);
        let mut children = [dir.child("grows one"), dir.child("grows two")];
        let told = children.each_mut().map(|child| {
            (0..round % 4).for_each(|_| drop(child.hear()));
            child.hear().parse::<u64>().unwrap()
        });
        children.iter_mut().for_each(Peer::kill_and_reap);
        let number = |key: &[u8]| {
            let value = now(heir.get(key)).unwrap();
            value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
        };
        let (one, two, sum) = (number(b"grows one"), number(b"grows two"), number(b"sum"));
        assert!(one >= told[0] && two >= told[1], "{one}, {two}: {told:?}");
        assert!(sum <= one + two && sum + 2 >= one + two, "{sum} of {one} and {two}");
        now(heir.recover()).unwrap();
        now(heir.audit()).unwrap();
        let census = heir.census();
        assert_eq!((census.published, census.in_hand, census.tainted), (3, 0, 0));
        // It goes on where they were.
        for key in 0..40_u64 {
            now(heir.insert(&key.to_le_bytes(), b"more")).unwrap();
        }
        assert_eq!((number(b"grows one"), number(b"sum")), (one, sum));
        let word = |level: u64| {
            now(heir.scheme_endpoint().read64(shape.base.plus(64 + level * 8))).unwrap();
            heir.scheme_endpoint().old() as u64
        };
        levels.push((1..28).take_while(|&level| word(level) != 0).count());
    }
    println!("levels above the first: {levels:?}");
    assert!(levels.iter().any(|&levels| levels > 2), "{levels:?}");
}
