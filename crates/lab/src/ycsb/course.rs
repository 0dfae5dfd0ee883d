//! What clients do: one operation after the other, all of which are judged.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::ops::Bound;
use std::pin::pin;
use std::rc::Rc;

use anyhow::{Context, bail, ensure};
use farlock_fabric::{Endpoint, Nanos};
use farlock_kv::index::{PointerArray, Race, Smart};
use farlock_kv::{Index, Pair, Scheme, Store};
use farlock_locks::Mode;
use farlock_locks::local::together;

use super::cluster::{Pairs, Stores, name, value};
use super::ledger::Ledger;
use super::spec::Mix;
use super::turns::{Turns, endpoint_of};
use crate::latency::Latency;
use crate::workload::Draws;

/// Records that a scan asks for, at most.
const SCAN_MAX: u64 = 100;

/// An index, and how it is scanned.
pub(super) trait Scanned: Index + Copy + 'static {
    /// The first pairs from a key on.
    async fn scan(
        store: &Store<Turns, Self>,
        from: &[u8],
        most: usize,
    ) -> anyhow::Result<Vec<Pair>>;
}

impl Scanned for Smart {
    async fn scan(
        store: &Store<Turns, Self>,
        from: &[u8],
        most: usize,
    ) -> anyhow::Result<Vec<Pair>> {
        let found = store.scan_in_order(Bound::Included(from), Bound::Unbounded, most).await?;
        Ok(found.into_iter().collect::<Result<_, _>>()?)
    }
}

macro_rules! without_order {
    ($($index:ty),+) => {
        $(impl Scanned for $index {
            async fn scan(_: &Store<Turns, Self>, _: &[u8], _: usize) -> anyhow::Result<Vec<Pair>> {
                bail!("this index has no order")
            }
        })+
    };
}

without_order!(PointerArray, Race);

/// What all clients have done since a moment.
#[derive(Default)]
pub(super) struct Done {
    pub(super) latency: Latency,
    pub(super) ledger: Ledger,
    pub(super) failed: Option<anyhow::Error>,
}

/// What clients of one run have in common.
pub(super) struct Course<I> {
    pub(super) pairs: Rc<RefCell<Pairs<I>>>,
    pub(super) done: Rc<RefCell<Done>>,
    pub(super) mix: Mix,
    pub(super) value_bytes: u64,
    /// What a client computes for an operation.
    pub(super) compute_ns: Nanos,
    /// How many records were inserted.
    pub(super) inserted: Rc<Cell<u64>>,
}

impl<I> Clone for Course<I> {
    fn clone(&self) -> Self {
        let (pairs, done) = (Rc::clone(&self.pairs), Rc::clone(&self.done));
        Self { pairs, done, inserted: Rc::clone(&self.inserted), ..*self }
    }
}

impl<I: Index> Course<I> {
    /// The number of another record.
    fn inserted(&self) -> u64 {
        let number = self.inserted.get();
        self.inserted.set(number + 1);
        self.pairs.borrow().records() + number
    }
}

/// A compute node, whose clients draw these requests.
pub(super) async fn node<I: Scanned>(course: Course<I>, stores: Stores<I>, draws: Vec<Draws>) {
    together(draws.into_iter().map(|draws| client(&course, &stores, draws))).await;
}

async fn client<I: Scanned>(course: &Course<I>, stores: &Stores<I>, mut draws: Draws) {
    loop {
        if let Err(error) = operation(course, stores, &mut draws).await {
            course.done.borrow_mut().failed = Some(error);
            return;
        }
    }
}

/// One operation. While it waits its client also does what earlier ones have left to be settled.
async fn operation<I: Scanned>(
    course: &Course<I>,
    stores: &Stores<I>,
    draws: &mut Draws,
) -> anyhow::Result<()> {
    let (key, mode) = draws.draw();
    let key = match (mode, course.mix) {
        (Mode::Exclusive, Mix::E) => course.inserted(),
        _ => u64::from(key),
    };
    let node = {
        let mut pairs = course.pairs.borrow_mut();
        pairs.ask(key)?;
        pairs.node(key)
    };
    let store = &stores[node];
    let endpoint = endpoint_of(store.scheme());
    if course.compute_ns > 0 {
        endpoint.sleep(course.compute_ns).await;
    }
    let begun = endpoint.now();
    let mut carried_out = pin!(carry_out(course, stores, key, mode));
    let carried_out = poll_fn(|cx| {
        let polled = carried_out.as_mut().poll(cx);
        if polled.is_pending() {
            // What is left waits for its own events, which wake this task.
            let _ = pin!(store.scheme().settle()).poll(cx);
        }
        polled
    });
    carried_out.await.with_context(|| format!("key {key}"))?;
    let took = endpoint.now() - begun;
    course.done.borrow_mut().latency.record(took);
    Ok(())
}

async fn carry_out<I: Scanned>(
    course: &Course<I>,
    stores: &Stores<I>,
    key: u64,
    mode: Mode,
) -> anyhow::Result<()> {
    let store = &stores[course.pairs.borrow().node(key)];
    let now = || endpoint_of(store.scheme()).now();
    let ledger = || std::cell::RefMut::map(course.done.borrow_mut(), |done| &mut done.ledger);
    let number = |bytes: &[u8]| bytes.first_chunk().map(|number| u64::from_le_bytes(*number));
    match (mode, course.mix) {
        (Mode::Shared, Mix::E) => {
            let most = 1 + endpoint_of(store.scheme()).random() % SCAN_MAX;
            let pairs = scan(stores, key, most as usize).await?;
            let right = course.pairs.borrow().are_first(key, most as usize, &pairs);
            ledger().scanned(right);
        }
        (Mode::Exclusive, Mix::E) => {
            store.insert(&name(key), &value(0, course.value_bytes)).await?;
        }
        (Mode::Shared, mix) => {
            let known = ledger().reads(key);
            let found = store.get(&name(key)).await?;
            if mix != Mix::F {
                ledger().read(key, known, found.as_deref().and_then(number));
            }
        }
        (Mode::Exclusive, Mix::F) => {
            let sum = store.increment(&name(key), 1).await?;
            ledger().added(key, sum);
        }
        (Mode::Exclusive, mix) => {
            let written = ledger().writes(key, now());
            let value = value(written, course.value_bytes);
            match mix {
                Mix::Wo => store.upsert(&name(key), &value).await?,
                _ => store.update(&name(key), &value).await?,
            }
            ledger().wrote(written, now());
        }
    }
    Ok(())
}

/// The first pairs from a key on. Keys lie where their hashes say, so that all memory nodes are
/// asked, at once.
async fn scan<I: Scanned>(stores: &Stores<I>, key: u64, most: usize) -> anyhow::Result<Vec<Pair>> {
    let from = name(key);
    let parts = together(stores.iter().map(|store| I::scan(store, &from, most))).await;
    let mut pairs = Vec::new();
    for part in parts {
        pairs.extend(part?);
    }
    pairs.sort_unstable();
    pairs.truncate(most);
    Ok(pairs)
}

/// Whether a client has failed.
pub(super) fn check(done: &RefCell<Done>) -> anyhow::Result<()> {
    let failed = done.borrow_mut().failed.take();
    ensure!(failed.is_none(), "an operation failed: {:#}", failed.expect("there is one"));
    Ok(())
}
