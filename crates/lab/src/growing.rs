//! `farlock-lab growing`: a store that begins small and is filled by one client, while another one
//! gets and puts what is there. No key may be lost, and none should take long.
//!
//! How long an operation takes is told twice: by the clock, which counts what others did on its
//! processor as well, and by what it ran itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::ensure;
use clap::value_parser;
use farlock::Kv;
use farlock_check::say;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::face;
use crate::provenance::Provenance;
use crate::record::{duration, grouped};
use crate::report::line;
use crate::scratch::Scratch;

/// Keys that the store begins with.
const FIRST: u64 = 1_000;
/// Of the operations beside, one in so many is a put.
const PUT_ONE_IN: u32 = 16;

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct GrowingArgs {
    /// Keys in the end, of 8 bytes
    #[arg(long, default_value_t = 10_000_000, value_parser = value_parser!(u64).range(FIRST + 1..))]
    pub keys: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u32).range(..=1 << 20))]
    pub value_bytes: u32,
    /// Decides which keys are asked for
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A line of JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The longest operation of a client, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Longest {
    /// By the clock.
    elapsed: u64,
    /// On a processor.
    ran: u64,
}

impl Longest {
    fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let (begun, ran) = (Instant::now(), processor_ns());
        let done = operation();
        self.ran = self.ran.max(processor_ns() - ran);
        self.elapsed = self.elapsed.max(begun.elapsed().as_nanos() as u64);
        done
    }
}

/// What this thread has run, in nanoseconds.
fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[derive(Debug, Serialize)]
struct Row {
    keys: u64,
    value_bytes: u32,
    seconds: f64,
    operations_beside: u64,
    lost: u64,
    longest_insert_ns: Longest,
    longest_beside_ns: Longest,
    /// Memory beside the pairs, a key.
    overhead_bytes: f64,
    seed: u64,
}

/// Fills a store, and prints how that went.
///
/// # Errors
/// A key was lost, or the store failed.
pub fn run(args: &GrowingArgs, origin: &Provenance) -> anyhow::Result<()> {
    let scratch = Scratch::new()?;
    let kv = Kv::open(&face::region_options(scratch.path()), "growing")?;
    let value = vec![7; args.value_bytes as usize];
    (0..FIRST).try_for_each(|key| kv.put(key.to_le_bytes(), &value))?;
    let (stored, other) = (AtomicU64::new(FIRST), kv.another()?);
    let begun = Instant::now();
    let (inserts, beside) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| use_beside(args, other, &stored));
        let inserts = fill(args, &kv, &stored);
        // It ends, whatever became of that.
        stored.store(args.keys, Ordering::Release);
        (inserts, beside.join().expect("a client that fails says so"))
    });
    let (longest_insert_ns, beside, seconds) = (inserts?, beside?, begun.elapsed().as_secs_f64());
    let is_there = |key: u64| kv.get(key.to_le_bytes()).map(|value| value.is_some());
    let mut lost = beside.lost;
    for key in 0..args.keys {
        lost += u64::from(!is_there(key)?);
    }
    let pairs = args.keys * (8 + u64::from(args.value_bytes));
    let overhead_bytes = (kv.bytes() as f64 - pairs as f64) / args.keys as f64;
    let row = Row {
        keys: args.keys,
        value_bytes: args.value_bytes,
        seconds,
        operations_beside: beside.operations,
        lost,
        longest_insert_ns,
        longest_beside_ns: beside.longest,
        overhead_bytes,
        seed: args.seed,
    };
    match args.json {
        true => line(origin, &row)?,
        false => tell(&row)?,
    }
    ensure!(lost == 0, "{lost} keys were not found");
    Ok(())
}

fn tell(row: &Row) -> anyhow::Result<()> {
    let longest =
        |of: Longest| format!("{}, of which it ran {}", duration(of.elapsed), duration(of.ran));
    say(format_args!(
        "{} keys in {:.1} s, {:.1} bytes beside a pair; {} operations beside, {} keys lost\n\
         longest insert {}; longest operation beside {}",
        grouped(row.keys),
        row.seconds,
        row.overhead_bytes,
        grouped(row.operations_beside),
        row.lost,
        longest(row.longest_insert_ns),
        longest(row.longest_beside_ns),
    ))
}

fn fill(args: &GrowingArgs, kv: &Kv, stored: &AtomicU64) -> anyhow::Result<Longest> {
    let (mut longest, value) = (Longest::default(), vec![7; args.value_bytes as usize]);
    for key in FIRST..args.keys {
        longest.time(|| kv.put(key.to_le_bytes(), &value))?;
        stored.store(key + 1, Ordering::Release);
    }
    Ok(longest)
}

/// What a client beside the one that fills has done.
#[derive(Debug, Default)]
struct Beside {
    operations: u64,
    lost: u64,
    longest: Longest,
}

fn use_beside(args: &GrowingArgs, kv: Kv, stored: &AtomicU64) -> anyhow::Result<Beside> {
    let (mut beside, value) = (Beside::default(), vec![8; args.value_bytes as usize]);
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(args.seed);
    loop {
        let there = stored.load(Ordering::Acquire);
        if there >= args.keys {
            return Ok(beside);
        }
        let key = chance.random_range(0..there).to_le_bytes();
        if chance.random_range(0..PUT_ONE_IN) == 0 {
            beside.longest.time(|| kv.put(key, &value))?;
        } else {
            beside.lost += u64::from(beside.longest.time(|| kv.get(key))?.is_none());
        }
        beside.operations += 1;
    }
}
