//! Specification: the same text on memory that threads and processes share, where words really tear
//! and clients are really killed.
#![allow(clippy::unwrap_used)]

#[path = "../../fabric/tests/shm_support/mod.rs"]
mod support;

// Of the scene only the judge is of use here.
#[path = "scene/judge.rs"]
#[allow(dead_code, unreachable_pub)]
mod judge;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use farlock_fabric::shm::{Region, ShmEndpoint};
use farlock_fabric::{Endpoint, block_on};
use farlock_kv::index::Race;
use farlock_kv::sync::{Backoff, Optimistic};
use farlock_kv::{Index, Shape, Store, WriteError};
use judge::{Answer, Ask, Judge};
use support::{TestDir, part, say};

type Shared = Store<Optimistic<ShmEndpoint>, Race>;

const INDEX: Race = Race::new(8);

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

#[test]
fn threads_see_each_key_do_one_thing_after_the_other() {
    const THREADS: u64 = 3;
    const STEPS: u64 = 4_000;
    let dir = TestDir::new("kv-threads");
    let mut options = dir.options();
    options.heap_bytes = 256 << 10;
    let region = Region::open(&options).unwrap();
    now(shape(&region, 256).create(&region.endpoint().unwrap())).unwrap();
    let (judge, rereads) = (Mutex::new(Judge::default()), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (region, judge, rereads) = (&region, &judge, &rereads);
            scope.spawn(move || {
                let store = store(region, 256);
                for step in 0..STEPS {
                    let key = (store.scheme_endpoint().random() % 5).to_le_bytes();
                    let ask = ask(&store, thread, step);
                    let called = judge.lock().unwrap().call(&key, ask.clone());
                    let answer = carry_out(&store, &key, &ask);
                    judge.lock().unwrap().answer(&key, called, ask, answer);
                }
                rereads.fetch_add(store.counts().rereads, Ordering::Relaxed);
                now(store.close()).unwrap();
            });
        }
    });
    let judge = judge.into_inner().unwrap();
    println!("{} operations, {} rereads", judge.answered, rereads.into_inner());
    assert_eq!((judge.answered, judge.open), (THREADS * STEPS, 0));
    judge.verdict().unwrap();
}

/// Plays a part in another process; does nothing in the test run itself.
#[test]
fn child() {
    let Some((part, options)) = part() else { return };
    let region = Region::open(&options).unwrap();
    let store = store(&region, 32);
    let own = part.into_bytes();
    let begun = now(store.get(&own)).unwrap();
    let begun = begun.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
    for number in begun + 1.. {
        now(store.upsert(&own, &number.to_le_bytes())).unwrap();
        now(store.increment(b"sum", 1)).unwrap();
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
