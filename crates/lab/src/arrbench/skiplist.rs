//! `skiplist`: sets of keys under 80 % searches, 10 % insertions and 10 % removals.
//!
//! Kogan, Dice, Issa, *Scalable Range Locks* (EuroSys'20), section 7.1, figure 4: 8 million keys,
//! of which half are in. Every kind is filled once; rounds go on with what the last one left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;
use clap::{Args, value_parser};
use comfy_table::Table;
use farlock_local::baseline::{Park, TreeEx};
use farlock_local::skiplist::{ByNode, ByRange, Coordination, SkipSet};
use farlock_local::{IndexedLock, ListEx};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use super::figures::{THREADS_MAX, chosen, median, warn_of_few_cores};
use super::threads::at_once;
use crate::provenance::Provenance;
use crate::record::grouped;
use crate::report::{show, table_of};
use crate::rounds::Rounds;

/// Operations in a hundred that search; the others insert and remove by turns of a die.
const SEARCHES: u8 = 80;
/// Heights that count in the mean: one node in 2^24 is higher.
const HEIGHTS: usize = 24;
/// The kind that the others are compared with.
const ORIGINAL: &str = "node-locks";

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct SkiplistArgs {
    /// Threads that share the set
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',', default_value = "1,2")]
    #[arg(value_parser = value_parser!(u16).range(1..=THREADS_MAX))]
    threads: Vec<u16>,
    /// Keys there are; half of them are in at first
    #[arg(long, value_name = "N", default_value_t = 8_000_000)]
    #[arg(value_parser = value_parser!(u64).range(2..=100_000_000))]
    keys: u64,
    /// Kinds to measure, or all
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',', default_value = "all")]
    kinds: Vec<String>,
    /// How long each kind is measured, spread over the rounds
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = crate::bench::seconds)]
    seconds: f64,
    #[command(flatten)]
    rounds: Rounds,
}

/// A set, whatever its updates lock.
trait Keys: Send + Sync {
    fn contains(&self, key: u64) -> bool;
    fn insert(&self, key: u64) -> bool;
    fn remove(&self, key: u64) -> bool;
}

impl<C: Coordination + 'static> Keys for SkipSet<C> {
    fn contains(&self, key: u64) -> bool {
        self.contains(key)
    }

    fn insert(&self, key: u64) -> bool {
        self.insert(key)
    }

    fn remove(&self, key: u64) -> bool {
        self.remove(key)
    }
}

struct Kind {
    name: &'static str,
    empty: fn() -> Box<dyn Keys>,
    node_bytes: fn(usize) -> usize,
}

const fn kind<C: Coordination + 'static>(name: &'static str) -> Kind {
    Kind { name, empty: || Box::new(SkipSet::<C>::default()), node_bytes: SkipSet::<C>::node_bytes }
}

const KINDS: &[Kind] = &[
    kind::<ByNode>(ORIGINAL),
    kind::<ByRange<ListEx>>("range-list"),
    kind::<ByRange<IndexedLock>>("range-skip"),
    kind::<ByRange<TreeEx<Park>>>("range-tree"),
];

impl Kind {
    /// The mean over heights, of which each is half as frequent as the one below.
    fn node_bytes_mean(&self) -> f64 {
        let share = |height: usize| 0.5_f64.powi(height as i32);
        (1..=HEIGHTS).map(|height| (self.node_bytes)(height) as f64 * share(height)).sum()
    }
}

#[derive(Serialize)]
struct Row {
    kind: &'static str,
    threads: u16,
    keys: u64,
    reads: u8,
    ops_per_s: f64,
    /// Divided by the original's, if that was measured too: the median over the rounds.
    ratio_to_original: Option<f64>,
    /// Of a node, by the mean of its heights.
    node_bytes: f64,
    /// What a node of the original has more.
    node_bytes_saved: f64,
    rounds: usize,
}

/// Measures, and prints what was measured.
pub(super) fn run(args: &SkiplistArgs, origin: &Provenance) -> anyhow::Result<()> {
    let kinds = chosen(KINDS, |kind| kind.name, &args.kinds)?;
    warn_of_few_cores(origin.cores, &args.threads);
    let rows = measure(args, &kinds)?;
    show(origin, args.rounds.json, &rows, table)
}

fn table(rows: &[Row]) -> Table {
    let header = ["kind", "threads", "ops/s", "to node-locks", "bytes a node", "saved"];
    let cells = |row: &Row| {
        let ratio = row.ratio_to_original.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let mut cells = vec![row.kind.to_owned(), row.threads.to_string()];
        cells.extend([grouped(row.ops_per_s as u64), ratio]);
        cells.extend([row.node_bytes, row.node_bytes_saved].map(|bytes| format!("{bytes:.1}")));
        cells
    };
    table_of(&header, 1, rows.iter().map(cells))
}

fn measure(args: &SkiplistArgs, kinds: &[&Kind]) -> anyhow::Result<Vec<Row>> {
    let sets: Vec<_> = kinds.iter().map(|kind| filled((kind.empty)(), args.keys)).collect();
    let time = Duration::from_secs_f64(args.seconds / f64::from(args.rounds.rounds));
    let mut rows = Vec::new();
    for &threads in &args.threads {
        let rates = args
            .rounds
            .of(&sets, |set, round| Ok(rate(set.as_ref(), args.keys, threads, time, round)))?;
        let original = kinds.iter().position(|kind| kind.name == ORIGINAL);
        let original = original.map(|at| rates[at].clone());
        for (kind, rates) in kinds.iter().zip(rates) {
            rows.push(row(args, kind, threads, rates, original.as_deref()));
        }
    }
    ensure!(rows.iter().all(|row| row.ops_per_s > 0.0), "a kind did nothing");
    Ok(rows)
}

fn row(
    args: &SkiplistArgs,
    kind: &Kind,
    threads: u16,
    rates: Vec<f64>,
    original: Option<&[f64]>,
) -> Row {
    let ratio = |original: &[f64]| {
        median(rates.iter().zip(original).map(|(rate, original)| rate / original).collect())
    };
    let node_bytes = kind.node_bytes_mean();
    Row {
        kind: kind.name,
        threads,
        keys: args.keys,
        reads: SEARCHES,
        ratio_to_original: original.map(ratio),
        rounds: rates.len(),
        ops_per_s: median(rates).round(),
        node_bytes,
        node_bytes_saved: KINDS[0].node_bytes_mean() - node_bytes,
    }
}

/// Every second key, in an order that is the same for every kind.
fn filled(set: Box<dyn Keys>, keys: u64) -> Box<dyn Keys> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(keys);
    let mut missing = keys / 2;
    while missing > 0 {
        missing -= u64::from(set.insert(rng.random_range(0..keys)));
    }
    set
}

/// Operations a second of so many threads.
fn rate(set: &dyn Keys, keys: u64, threads: u16, time: Duration, round: u16) -> f64 {
    let (counts, elapsed) = at_once(threads, time, |index, start, stop| {
        start.wait();
        operations(set, keys, u64::from(round) << 32 | u64::from(index), stop)
    });
    counts.into_iter().sum::<u64>() as f64 / elapsed.as_secs_f64()
}

fn operations(set: &dyn Keys, keys: u64, seed: u64, stop: &AtomicBool) -> u64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut operations = 0;
    while !stop.load(Ordering::Relaxed) {
        let key = rng.random_range(0..keys);
        match rng.random_range(0..100) {
            die if die < SEARCHES => set.contains(key),
            die if die.is_multiple_of(2) => set.insert(key),
            _ => set.remove(key),
        };
        operations += 1;
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_save_a_mutex_in_each_node() {
        let saved = |name| {
            let kind = KINDS.iter().find(|kind| kind.name == name).unwrap();
            KINDS[0].node_bytes_mean() - kind.node_bytes_mean()
        };
        let mutex = size_of::<std::sync::Mutex<()>>() as f64;
        assert!((saved("range-list") - mutex).abs() < 0.001);
    }

    #[test]
    fn every_kind_does_something_among_threads() {
        for kind in KINDS {
            let set = filled((kind.empty)(), 1_000);
            assert!(rate(set.as_ref(), 1_000, 3, Duration::from_millis(10), 0) > 0.0);
        }
    }
}
