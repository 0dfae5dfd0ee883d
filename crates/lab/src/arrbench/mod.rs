//! Range locks inside one process, measured, and what stands on them.
//!
//! Threads of this process share a lock, so nothing here goes through the loop of
//! [`drive`](crate::drive), whose clients share memory at most.

mod array;
mod figures;
pub(crate) mod held;
mod published;
mod skiplist;
mod space;
mod subject;
mod table;
mod threads;

use anyhow::ensure;
use clap::{Args, Subcommand, ValueEnum, value_parser};
use comfy_table::Table;
use farlock_local::RawRangeLock;
use farlock_local::baseline::Segments;
use serde::Serialize;

use crate::latency::{Latency, Summary};
use crate::provenance::Provenance;
use crate::record::{duration, grouped};
use crate::report::{show, table_by};
use crate::rounds::Rounds;
use array::{Course, Outcome, SLOTS, Variant};
use figures::{THREADS_MAX, chosen, median, warn_of_few_cores};
use table::{LOCKS, LockInfo};

/// The commands that measure range locks inside one process.
#[derive(Subcommand)]
pub enum LocalCommand {
    /// Range locks of one process on an array of 256 slots, a row each.
    Arrbench(ArrbenchArgs),
    /// What one more acquisition costs while many disjoint ranges are held.
    Held(held::HeldArgs),
    /// Sets of keys whose updates lock a range, or nodes; operations, memory.
    Skiplist(skiplist::SkiplistArgs),
    /// Arenas of an address space that grow and shrink under range locks.
    Addrspace(space::AddrspaceArgs),
}

/// Measures, and prints what was measured.
pub fn run(command: &LocalCommand, origin: &Provenance) -> anyhow::Result<()> {
    match command {
        LocalCommand::Arrbench(args) => arrbench(args, origin),
        LocalCommand::Held(args) => held::run(args, origin),
        LocalCommand::Skiplist(args) => skiplist::run(args, origin),
        LocalCommand::Addrspace(args) => space::run(args, origin),
    }
}

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct ArrbenchArgs {
    /// Threads that share the array
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',', default_value = "1,2,4")]
    #[arg(value_parser = value_parser!(u16).range(1..=THREADS_MAX))]
    threads: Vec<u16>,
    /// Acquisitions in a hundred that only read
    #[arg(long, value_name = "PERCENT[,PERCENT..]", value_delimiter = ',', default_value = "60")]
    #[arg(value_parser = value_parser!(u8).range(0..=100))]
    reads: Vec<u8>,
    /// Equal parts into which the lock `segments` cuts the array
    #[arg(long, value_name = "N", default_value_t = SLOTS as u16)]
    #[arg(value_parser = value_parser!(u16).range(1..=SLOTS as i64))]
    segments: u16,
    /// How long each lock is measured, spread over the rounds
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = crate::bench::seconds)]
    seconds: f64,
    /// Locks to measure, or all
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',', default_value = "all")]
    locks: Vec<String>,
    /// Which slots a thread asks for
    #[arg(long, value_enum, value_delimiter = ',', default_value = "full,disjoint,random")]
    variants: Vec<Variant>,
    /// Decides everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    rounds: Rounds,
}

/// What was measured of a lock. The rate is the median round's, the rest is of all rounds.
#[derive(Clone, Debug, Serialize)]
struct Row {
    lock: &'static str,
    variant: Variant,
    threads: u16,
    reads: u8,
    /// Of the lock that has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<u16>,
    ops_per_s: f64,
    acquire_ns: Summary,
    violations: u64,
    rounds: usize,
    seconds: f64,
    seed: u64,
}

fn arrbench(args: &ArrbenchArgs, origin: &Provenance) -> anyhow::Result<()> {
    let locks = chosen(LOCKS, |lock| lock.name, &args.locks)?;
    warn_of_few_cores(origin.cores, &args.threads);
    let rows = measure(args, &locks)?;
    show(origin, args.rounds.json, &rows, table)?;
    let violations: u64 = rows.iter().map(|row| row.violations).sum();
    ensure!(violations == 0, "{violations} violations: some lock let threads meet");
    Ok(())
}

/// Every lock in every setting.
fn measure(args: &ArrbenchArgs, locks: &[&LockInfo]) -> anyhow::Result<Vec<Row>> {
    let settings = settings(args);
    let pairs = settings.iter().flat_map(|setting| locks.iter().map(move |lock| (setting, *lock)));
    let pairs: Vec<(&Course, &LockInfo)> = pairs.collect();
    let outcomes = args.rounds.of(&pairs, |(setting, lock), round| {
        let seed = args.seed.wrapping_add(u64::from(round));
        Ok((lock.measure)(&Course { seed, ..**setting }))
    })?;
    let rows = pairs.into_iter().zip(outcomes);
    Ok(rows.map(|((setting, lock), rounds)| row(args, lock, setting, rounds)).collect())
}

fn settings(args: &ArrbenchArgs) -> Vec<Course> {
    let seconds = args.seconds / f64::from(args.rounds.rounds);
    let mut settings = Vec::new();
    for &variant in &args.variants {
        for &reads in &args.reads {
            for &threads in &args.threads {
                let (segments, seed) = (args.segments, args.seed);
                settings.push(Course { variant, threads, reads, segments, seconds, seed });
            }
        }
    }
    settings
}

fn row(args: &ArrbenchArgs, lock: &LockInfo, setting: &Course, rounds: Vec<Outcome>) -> Row {
    let mut acquire = Latency::default();
    rounds.iter().for_each(|outcome| acquire.add(&outcome.acquire));
    let rates = rounds.iter().map(|outcome| outcome.operations as f64 / outcome.seconds);
    Row {
        lock: lock.name,
        variant: setting.variant,
        threads: setting.threads,
        reads: setting.reads,
        segments: (lock.name == Segments::NAME).then_some(setting.segments),
        ops_per_s: median(rates.collect()).round(),
        acquire_ns: acquire.summary(),
        violations: rounds.iter().map(|outcome| outcome.violations).sum(),
        rounds: rounds.len(),
        seconds: args.seconds,
        seed: args.seed,
    }
}

fn table(rows: &[Row]) -> Table {
    table_by(2, rows, |row| {
        [
            ("lock", row.lock.to_owned()),
            ("variant", row.variant.to_string()),
            ("threads", row.threads.to_string()),
            ("reads", format!("{} %", row.reads)),
            ("ops/s", grouped(row.ops_per_s as u64)),
            ("p50", duration(row.acquire_ns.p50)),
            ("p99", duration(row.acquire_ns.p99)),
            ("p99.9", duration(row.acquire_ns.p999)),
            ("max", duration(row.acquire_ns.max)),
            ("violations", grouped(row.violations)),
        ]
    })
}

impl std::fmt::Display for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.to_possible_value().expect("no variant is hidden");
        f.write_str(value.get_name())
    }
}
