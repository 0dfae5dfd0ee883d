//! `farlock-lab ycsb`: the key-value store under the core workloads of YCSB, in the simulator.
//!
//! Clients are tasks of one world, whose memory node has the NIC model of the other figures, and
//! seconds are virtual. Keys are drawn by Zipf's law and hashed, so that hot keys do not lie side
//! by side in locks and buckets; a pointer array has them in the order of their heat. All records
//! are loaded before the measured time begins, which a warm-up precedes.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum, value_parser};
use farlock_fabric::{Addr, Endpoint, EndpointId, Nanos};
use farlock_kv::index::{PointerArray, Race};
use farlock_kv::sync::{Backoff, Cider, CiderCounts, CiderRules, Locked, Optimistic};
use farlock_kv::{Counts, Index, Scheme, Shape, Store, WriteError};
use farlock_locks::record::cas::Cas;
use farlock_locks::record::mcs::Mcs;
use farlock_locks::{Client, LockKind, Mode, Options};
use farlock_sim::{Config, Ended, SimEndpoint, Weakness, World};
use serde::Serialize;

use crate::latency::Latency;
use crate::provenance::Provenance;
use crate::report::line;
use crate::workload::{Dist, Draws, Workload};

/// The most clients: each has a place in the world's table.
const CLIENTS_MAX: i64 = 2_000;
/// The most keys, which all are loaded verb by verb.
const KEYS_MAX: u64 = 1 << 20;
/// Bytes of a chunk, some hundreds of blocks.
const CHUNK_BYTES: u64 = 1 << 14;
/// Bytes of a value, as the paper has it (CIDER, section 5.1).
const VALUE_BYTES: usize = 8;
/// Locks that keys share, by their hashes.
const LOCKS: u64 = 1 << 16;
/// How long a client waits for a turn, in nanoseconds. None dies here, and a client that loses
/// patience with a line joins those outside of it, which hold the line up.
const PATIENCE_NS: Nanos = 1_000_000_000;
/// Slots of a client: an operation in line, and duties that earlier ones have left.
const SLOTS: u8 = 4;

/// Which index finds the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IndexKind {
    /// A slot for each key
    Array,
    /// RACE's buckets
    Race,
}

/// How writers of one key keep out of each other's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sync {
    /// Not at all, and without backoff
    Optimistic,
    /// By a spin lock with backoff
    Cas,
    /// By a queue lock
    Mcs,
    /// By CIDER: a queue for hot keys, whose writes are combined
    Cider,
}

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// Half reads, half updates
    A,
    /// 95 % reads, 5 % updates
    B,
    /// Reads
    C,
    /// Half reads, half additions to what was read
    F,
    /// Values for keys, whether they exist or not
    WriteOnly,
}

impl Mix {
    /// Reads in a hundred operations.
    fn reads(self) -> u8 {
        match self {
            Self::A | Self::F => 50,
            Self::B => 95,
            Self::C => 100,
            Self::WriteOnly => 0,
        }
    }
}

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct YcsbArgs {
    /// Which index finds the keys
    #[arg(long, value_enum, default_value = "array")]
    index: IndexKind,
    /// How writers of one key keep out of each other's way
    #[arg(long, value_enum, default_value = "cider")]
    sync: Sync,
    /// What clients do
    #[arg(long, value_enum, default_value = "a")]
    workload: Mix,
    /// Clients, each with one operation at a time
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = value_parser!(u16).range(1..=CLIENTS_MAX))]
    clients: u16,
    /// Records
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = value_parser!(u64).range(1..=KEYS_MAX))]
    keys: u64,
    /// Which of them how often: uniform, or zipf:T
    #[arg(long, default_value = "zipf:0.99")]
    dist: Dist,
    /// Measured time, in virtual microseconds
    #[arg(long, value_name = "US", default_value_t = 5_000)]
    #[arg(value_parser = value_parser!(u64).range(1..=10_000_000))]
    us: u64,
    /// Warm-up before that, in virtual microseconds
    #[arg(long, value_name = "US", default_value_t = 1_000)]
    #[arg(value_parser = value_parser!(u64).range(0..=10_000_000))]
    warm_up_us: u64,
    /// Decides everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

/// What was measured. Shares are of 1.
#[derive(Clone, Debug, Serialize)]
struct Row {
    index: IndexKind,
    sync: Sync,
    workload: Mix,
    clients: u16,
    keys: u64,
    dist: Dist,
    seed: u64,
    ops_per_s: f64,
    latency_ns: Quantiles,
    /// Compares that failed, for each write.
    retries_per_op: f64,
    /// Writes that were combined with another client's.
    wc_rate: f64,
    /// Writes that one change stood for, where it stood for more than one.
    wc_batch: f64,
    /// Writes that got in line.
    pessimistic_ratio: f64,
    verbs_per_op: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Quantiles {
    p50: u64,
    p99: u64,
}

/// A scheme as it is measured.
trait Measured: Scheme<Endpoint = SimEndpoint> + 'static {
    /// A client's, over locks in this table.
    fn make(endpoint: SimEndpoint, table: Addr) -> Self;

    /// What it counts of turns: of the other schemes all writes or none are in line.
    fn turns(&self, changes: u64) -> CiderCounts;
}

impl Measured for Optimistic<SimEndpoint> {
    fn make(endpoint: SimEndpoint, _: Addr) -> Self {
        Self::new(endpoint, Backoff::NONE)
    }

    fn turns(&self, changes: u64) -> CiderCounts {
        CiderCounts { optimistic: changes, ..CiderCounts::default() }
    }
}

impl Measured for Locked<SimEndpoint, Cas> {
    fn make(endpoint: SimEndpoint, table: Addr) -> Self {
        let client = Client::new(endpoint, Cas::with_backoff(), Options::default());
        Self::new(client, table, LOCKS, PATIENCE_NS)
    }

    fn turns(&self, changes: u64) -> CiderCounts {
        CiderCounts { pessimistic: changes, ..CiderCounts::default() }
    }
}

impl Measured for Locked<SimEndpoint, Mcs> {
    fn make(endpoint: SimEndpoint, table: Addr) -> Self {
        let client = Client::new(endpoint, Mcs::default(), Options::default());
        Self::new(client, table, LOCKS, PATIENCE_NS)
    }

    fn turns(&self, changes: u64) -> CiderCounts {
        CiderCounts { pessimistic: changes, ..CiderCounts::default() }
    }
}

impl Measured for Cider<SimEndpoint> {
    fn make(endpoint: SimEndpoint, table: Addr) -> Self {
        let client = Client::new(endpoint, Mcs::default(), Options::default());
        let rules = CiderRules { patience_ns: PATIENCE_NS, ..CiderRules::DEFAULT };
        Self::new(client, table, LOCKS, rules)
    }

    fn turns(&self, _: u64) -> CiderCounts {
        self.counts()
    }
}

/// Measures, and prints a line of JSON.
///
/// # Errors
/// An operation failed, or the world stood still.
pub fn run(args: &YcsbArgs, origin: &Provenance) -> anyhow::Result<()> {
    line(origin, &measure(args)?)
}

fn measure(args: &YcsbArgs) -> anyhow::Result<Row> {
    match args.index {
        IndexKind::Array => with_index(args, PointerArray::new(args.keys)),
        IndexKind::Race => with_index(args, Race::for_keys(args.keys + args.keys / 4)),
    }
}

fn with_index<I: Index + Copy + 'static>(args: &YcsbArgs, index: I) -> anyhow::Result<Row> {
    match args.sync {
        Sync::Optimistic => measure_by::<Optimistic<SimEndpoint>, I>(args, index),
        Sync::Cas => measure_by::<Locked<SimEndpoint, Cas>, I>(args, index),
        Sync::Mcs => measure_by::<Locked<SimEndpoint, Mcs>, I>(args, index),
        Sync::Cider => measure_by::<Cider<SimEndpoint>, I>(args, index),
    }
}

/// What all clients have done since a moment.
#[derive(Debug, Default)]
struct Done {
    latency: Latency,
    failed: Option<String>,
}

/// How often things had happened by a moment, at all clients.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    verbs: u64,
    changes: u64,
    retries: u64,
    combined: u64,
    batches: u64,
    pessimistic: u64,
    optimistic: u64,
}

fn measure_by<S: Measured, I: Index + Copy + 'static>(
    args: &YcsbArgs,
    index: I,
) -> anyhow::Result<Row> {
    let world = World::new(Config {
        seed: args.seed,
        endpoints: args.clients + 2,
        slots_per_endpoint: SLOTS,
        // As for every figure.
        weakness: Weakness::NONE,
        ..Config::default()
    });
    let shape = shape(&world, args, &index)?;
    let locks = world.region(world.node(), LOCKS * Mcs::BYTES.max(Cas::BYTES));
    let open = || {
        let scheme = S::make(world.endpoint(), locks);
        world.block_on(Store::open(scheme, index, shape)).map(Rc::new)
    };
    let loader = open().context("the store cannot be opened")?;
    let loads = async {
        for key in 0..args.keys {
            loader.insert(&name(key), &[0; VALUE_BYTES]).await?;
        }
        Ok::<(), WriteError>(())
    };
    world.block_on(loads).context("the records cannot be loaded")?;
    let stores = (0..args.clients).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
    let done: Rc<RefCell<Done>> = Rc::default();
    let ask = Workload {
        locks: args.keys,
        dist: args.dist,
        reads: args.workload.reads(),
        seed: args.seed,
        dealt: 1,
        ranges: None,
    };
    for (number, store) in stores.iter().enumerate() {
        let client = works(Rc::clone(store), ask.draws(number), args.workload, Rc::clone(&done));
        world.spawn(store.scheme().endpoint().id(), client);
    }
    advance(&world, args.warm_up_us)?;
    let before = counted(&world, &stores);
    *done.borrow_mut() = Done::default();
    advance(&world, args.us)?;
    let after = counted(&world, &stores);
    let done = done.borrow();
    ensure!(done.failed.is_none(), "an operation failed: {:?}", done.failed);
    Ok(row(args, &done.latency, &before, &after))
}

/// A store with room for all records and what clients have under way.
fn shape<I: Index>(world: &World, args: &YcsbArgs, index: &I) -> anyhow::Result<Shape> {
    let (index_bytes, index_tag) = (index.bytes(), index.tag());
    let chunks = args.keys * 48 / CHUNK_BYTES + 2 + 4 * u64::from(args.clients);
    let chunks = u32::try_from(chunks).context("too many records")?;
    let base = Addr::from_bits(0);
    let mut shape = Shape { base, chunks, chunk_bytes: CHUNK_BYTES, index_bytes, index_tag };
    shape.base = world.region(world.node(), shape.bytes());
    world.block_on(shape.create(&world.endpoint())).context("no store can be created")?;
    Ok(shape)
}

fn name(key: u64) -> [u8; 8] {
    key.to_le_bytes()
}

/// A client: one operation after the other. While one waits it also does what earlier ones have
/// left to be settled.
async fn works<S: Measured, I: Index>(
    store: Rc<Store<S, I>>,
    mut draws: Draws,
    mix: Mix,
    done: Rc<RefCell<Done>>,
) {
    let mut step = 0_u64;
    loop {
        let (key, mode) = draws.draw();
        let key = name(key.into());
        let begun = store.scheme().endpoint().now();
        step += 1;
        let operation = carry_out(&store, &key, mode, mix, step);
        if let Err(error) = beside_settling(&store, operation).await {
            done.borrow_mut().failed = Some(error.to_string());
            return;
        }
        let took = store.scheme().endpoint().now() - begun;
        done.borrow_mut().latency.record(took);
    }
}

async fn carry_out<S: Scheme, I: Index>(
    store: &Store<S, I>,
    key: &[u8],
    mode: Mode,
    mix: Mix,
    step: u64,
) -> Result<(), WriteError> {
    match (mode, mix) {
        (Mode::Shared, _) => {
            store.get(key).await?;
        }
        (Mode::Exclusive, Mix::F) => {
            store.increment(key, 1).await?;
        }
        (Mode::Exclusive, Mix::WriteOnly) => store.upsert(key, &step.to_le_bytes()).await?,
        (Mode::Exclusive, _) => store.update(key, &step.to_le_bytes()).await?,
    }
    Ok(())
}

async fn beside_settling<S: Scheme, I: Index, F: Future>(
    store: &Store<S, I>,
    operation: F,
) -> F::Output {
    let mut operation = pin!(operation);
    poll_fn(|cx| {
        let polled = operation.as_mut().poll(cx);
        if polled.is_pending() {
            // What is left waits for its own events, which wake this task.
            let _ = pin!(store.scheme().settle()).poll(cx);
        }
        match polled {
            Poll::Ready(output) => Poll::Ready(output),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

fn advance(world: &World, us: u64) -> anyhow::Result<()> {
    let ended = world.run_until(world.now() + us * 1_000);
    ensure!(!matches!(ended, Ended::Finished), "no client is left");
    Ok(())
}

fn counted<S: Measured, I: Index>(world: &World, stores: &[Rc<Store<S, I>>]) -> Counted {
    let mut sum = Counted::default();
    for store in stores {
        let id: EndpointId = store.scheme().endpoint().id();
        let Counts { changes, combined, retries, .. } = store.counts();
        let turns = store.scheme().turns(changes);
        sum.verbs += world.posted(id);
        sum.changes += changes;
        sum.retries += retries;
        sum.combined += combined;
        sum.batches += turns.batches;
        sum.pessimistic += turns.pessimistic;
        sum.optimistic += turns.optimistic;
    }
    sum
}

fn row(args: &YcsbArgs, latency: &Latency, before: &Counted, after: &Counted) -> Row {
    let since = |count: fn(&Counted) -> u64| (count(after) - count(before)) as f64;
    let share = |part: f64, whole: f64| if whole > 0.0 { rounded(part / whole) } else { 0.0 };
    let (combined, changes) = (since(|c| c.combined), since(|c| c.changes));
    let (pessimistic, optimistic) = (since(|c| c.pessimistic), since(|c| c.optimistic));
    let ops = latency.count() as f64;
    let summary = latency.summary();
    Row {
        index: args.index,
        sync: args.sync,
        workload: args.workload,
        clients: args.clients,
        keys: args.keys,
        dist: args.dist,
        seed: args.seed,
        ops_per_s: (ops * 1e6 / args.us as f64).round(),
        latency_ns: Quantiles { p50: summary.p50, p99: summary.p99 },
        retries_per_op: share(since(|c| c.retries), changes),
        wc_rate: share(combined, changes),
        wc_batch: 1.0 + share(combined, since(|c| c.batches)),
        pessimistic_ratio: share(pessimistic, pessimistic + optimistic),
        verbs_per_op: share(since(|c| c.verbs), ops),
    }
}

/// To four places.
fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(index: IndexKind, sync: Sync, workload: Mix) -> YcsbArgs {
        let (clients, keys, dist) = (24, 200, Dist::Zipf(0.99));
        YcsbArgs { index, sync, workload, clients, keys, dist, us: 600, warm_up_us: 200, seed: 3 }
    }

    #[test]
    fn every_scheme_does_every_mix() {
        for index in [IndexKind::Array, IndexKind::Race] {
            for sync in [Sync::Optimistic, Sync::Cas, Sync::Mcs, Sync::Cider] {
                for mix in [Mix::A, Mix::B, Mix::C, Mix::F, Mix::WriteOnly] {
                    let row = measure(&args(index, sync, mix)).expect("it is measured");
                    assert!(row.ops_per_s > 0.0 && row.verbs_per_op >= 2.0, "{row:?}");
                    let combines = sync == Sync::Cider && matches!(mix, Mix::A | Mix::WriteOnly);
                    assert_eq!(row.wc_rate > 0.0, combines, "{row:?}");
                }
            }
        }
    }

    #[test]
    fn the_same_seed_is_the_same_run() {
        let row = || measure(&args(IndexKind::Race, Sync::Cider, Mix::A)).expect("it is measured");
        assert_eq!(format!("{:?}", row()), format!("{:?}", row()));
    }
}
