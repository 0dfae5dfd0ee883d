//! `farlock-lab spreading`: a table of ranges of which ever more units are asked for, from 2^10 to
//! 2^28, by sessions that go on to use it (Citron, figure 10). Nothing may be held twice, and
//! nobody should wait for the table to grow.
//!
//! The paper's tree grows by a level at a time, and drains the old one before. Here all units are
//! there from the first and only their memory comes later, so there is no dip to be seen; what a
//! client pays that is the first to ask for far units is among the longest times.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::value_parser;
use farlock::session::RangeLock;
use farlock::{Mode, RegionOptions, Session};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use crate::face;
use crate::provenance::Provenance;
use crate::record::{duration, grouped};
use crate::report::{show, table_of};
use crate::scratch::Scratch;

/// Units that are asked for at first and at last, as powers of two, and by how many times more each
/// time.
const SPACES: [u32; 2] = [10, 28];
const SPACE_STEP: usize = 2;
/// How long a range is.
const LENGTHS: [u64; 3] = [1, 16, 256];
/// Of the ranges one in so many begins where many do.
const CROWDED_ONE_IN: u32 = 4;
/// Where they begin, in parts of the space.
const CROWDS: u64 = 3;

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct SpreadingArgs {
    /// Sessions that ask for ranges, each on a thread
    #[arg(long, default_value_t = 2, value_parser = value_parser!(u8).range(1..=16))]
    pub clients: u8,
    /// How long each number of units is asked for, in milliseconds
    #[arg(long, default_value_t = 500, value_parser = value_parser!(u32).range(1..=60_000))]
    pub phase_ms: u32,
    /// The server through which every second one asks, as HOST:PORT
    #[arg(long)]
    pub server: Option<String>,
    /// Decides what is asked for
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A line of JSON for each number of units instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What came of one number of units.
#[derive(Debug, Serialize)]
struct Row {
    units: u64,
    acquisitions: u64,
    per_second: f64,
    p50_ns: u64,
    p99_ns: u64,
    longest_ns: u64,
    overlaps: u64,
    seed: u64,
}

/// What is held at a moment, as the sessions say.
#[derive(Debug, Default)]
struct Held(Mutex<Vec<(u8, Mode, Range<u64>)>>);

impl Held {
    /// This one holds these from now on. With how many that it excludes.
    fn enter(&self, who: u8, mode: Mode, range: &Range<u64>) -> u64 {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let excludes = |(_, other, its): &&(u8, Mode, Range<u64>)| {
            let both_read = mode == Mode::Shared && *other == Mode::Shared;
            !both_read && its.start < range.end && range.start < its.end
        };
        let overlaps = held.iter().filter(excludes).count() as u64;
        held.push((who, mode, range.clone()));
        overlaps
    }

    /// This one holds nothing any more.
    fn leave(&self, who: u8) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, ..)| *other != who);
    }
}

/// A session, and what it has seen of one number of units.
struct Client {
    who: u8,
    table: RangeLock,
    chance: Xoshiro256PlusPlus,
    times: Vec<u64>,
    overlaps: u64,
}

impl Client {
    fn draw(&mut self, units: u64) -> (Mode, Range<u64>) {
        let length = LENGTHS[self.chance.random_range(0..LENGTHS.len())];
        let last = units - length;
        let start = match self.chance.random_range(0..CROWDED_ONE_IN) {
            0 => (units / CROWDS * self.chance.random_range(0..CROWDS)).min(last),
            _ => self.chance.random_range(0..=last),
        };
        let mode = if self.chance.random() { Mode::Shared } else { Mode::Exclusive };
        (mode, start..start + length)
    }

    fn use_until(&mut self, is_over: &AtomicBool, units: u64, held: &Held) -> anyhow::Result<()> {
        while !is_over.load(Ordering::Relaxed) {
            let (mode, range) = self.draw(units);
            let begun = Instant::now();
            let request = match mode {
                Mode::Shared => self.table.shared(range.clone()),
                Mode::Exclusive => self.table.exclusive(range.clone()),
            };
            let guard = request.blocking()?;
            self.times.push(begun.elapsed().as_nanos() as u64);
            self.overlaps += held.enter(self.who, mode, &range);
            held.leave(self.who);
            guard.release().blocking()?;
        }
        Ok(())
    }
}

/// Has ever more units of a table asked for, and prints how that went.
///
/// # Errors
/// A session failed, or a range was held twice.
pub fn run(args: &SpreadingArgs, origin: &Provenance) -> anyhow::Result<()> {
    let scratch = Scratch::new()?;
    let mut clients = clients(args, &scratch)?;
    let mut rows = Vec::new();
    for space in (SPACES[0]..=SPACES[1]).step_by(SPACE_STEP) {
        rows.push(phase(args, 1 << space, &mut clients)?);
    }
    show(origin, args.json, &rows, table)?;
    let overlaps: u64 = rows.iter().map(|row| row.overlaps).sum();
    ensure!(overlaps == 0, "{overlaps} ranges were held beside others that they exclude");
    Ok(())
}

fn clients(args: &SpreadingArgs, scratch: &Scratch) -> anyhow::Result<Vec<Client>> {
    let client = |who: u8| {
        let by_server = args.server.as_ref().filter(|_| who % 2 == 1);
        let options = match by_server {
            Some(server) => RegionOptions::of_server(server.clone()),
            None if args.server.is_some() => RegionOptions::for_user(),
            None => face::region_options(scratch.path()),
        };
        let table = Session::open(&options)?.range("spreading");
        let chance = Xoshiro256PlusPlus::seed_from_u64(args.seed ^ u64::from(who) << 32);
        Ok(Client { who, table, chance, times: Vec::new(), overlaps: 0 })
    };
    (0..args.clients).map(client).collect()
}

/// So many units are asked for.
fn phase(args: &SpreadingArgs, units: u64, clients: &mut [Client]) -> anyhow::Result<Row> {
    let (is_over, held, begun) = (AtomicBool::new(false), Held::default(), Instant::now());
    let done: anyhow::Result<()> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .map(|client| scope.spawn(|| client.use_until(&is_over, units, &held)))
            .collect();
        std::thread::sleep(Duration::from_millis(args.phase_ms.into()));
        is_over.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a client says how it failed"))
    });
    done?;
    let seconds = begun.elapsed().as_secs_f64();
    let mut times: Vec<u64> =
        clients.iter_mut().flat_map(|client| client.times.drain(..)).collect();
    times.sort_unstable();
    ensure!(!times.is_empty(), "nobody was granted anything among {units} units");
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    Ok(Row {
        units,
        acquisitions: times.len() as u64,
        per_second: times.len() as f64 / seconds,
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        longest_ns: at(1.0),
        overlaps: clients.iter_mut().map(|client| std::mem::take(&mut client.overlaps)).sum(),
        seed: args.seed,
    })
}

fn table(rows: &[Row]) -> comfy_table::Table {
    let cells = |row: &Row| {
        let [p50, p99, longest] = [row.p50_ns, row.p99_ns, row.longest_ns].map(duration);
        let rate = grouped(row.per_second as u64);
        [grouped(row.units), rate, p50, p99, longest, grouped(row.overlaps)]
    };
    let header = ["units", "a second", "p50", "p99", "longest", "overlaps"];
    table_of(&header, 0, rows.iter().map(cells))
}
