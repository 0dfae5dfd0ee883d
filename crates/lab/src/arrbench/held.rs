//! `held`: what one more acquisition and its release cost while many disjoint ranges are held.
//!
//! A list is linear in what is held, as Kogan, Dice, Issa say in section 3; the kernel's byte-range
//! locks are too; trees and an indexed list are not, nor the ranges of a session, which other
//! processes see.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, value_parser};
use comfy_table::Table;
use farlock::Session;
use farlock::session::{RangeGuard, RangeLock};
use farlock_local::baseline::{Spin, TreeEx, TreeRw};
use farlock_local::{IndexedLock, ListEx, ListRw, Range, RawRangeLock};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use super::figures::{chosen, median};
use super::published::{POSITIONS, RangeLockCrate, RangeMutexCrate};
use super::subject::{Exclusive, Subject};
use crate::face::region_options;
use crate::provenance::Provenance;
use crate::record::grouped;
use crate::report::{show, table_of};
use crate::rounds::Rounds;
use crate::scratch::Scratch;

/// The most ranges held.
const HELD_MAX: i64 = 100_000;
/// From the start of a held range to that of the next; half of it is held.
const STRIDE: u64 = 16;
const _: () = assert!(HELD_MAX as u64 * STRIDE <= POSITIONS as u64, "every range has a position");
/// The most ranges that a region's shelf has room for.
const SESSION_HELD_MAX: u32 = 65_536;
/// Acquisitions between two looks at the clock.
const BATCH: u32 = 16;

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct HeldArgs {
    /// How many disjoint ranges are held
    #[arg(
        long,
        value_name = "N[,N..]",
        value_delimiter = ',',
        default_value = "1,10,100,1000,10000"
    )]
    #[arg(value_parser = value_parser!(u32).range(1..=HELD_MAX))]
    held: Vec<u32>,
    /// Locks to measure, or all
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',', default_value = "all")]
    locks: Vec<String>,
    /// How long each lock is measured for each number of held ranges, spread over the rounds
    #[arg(long, value_name = "S", default_value_t = 0.25, value_parser = crate::bench::seconds)]
    seconds: f64,
    #[command(flatten)]
    rounds: Rounds,
}

/// Measures one lock with so many held ranges for so long: nanoseconds an acquisition and release.
type Measure = fn(u32, Duration) -> anyhow::Result<f64>;

struct HeldInfo {
    name: &'static str,
    /// The most ranges that it can hold, and one more.
    held_max: u32,
    measure: Measure,
}

const fn entry<L: RawRangeLock + Default>() -> HeldInfo {
    HeldInfo {
        name: L::NAME,
        held_max: u32::MAX,
        measure: |held, time| Ok(cycle_ns(&Exclusive(L::default()), held, time)),
    }
}

const SUBJECTS: &[HeldInfo] = &[
    entry::<ListEx>(),
    entry::<ListRw>(),
    entry::<IndexedLock>(),
    entry::<TreeEx<Spin>>(),
    entry::<TreeRw<Spin>>(),
    HeldInfo {
        name: RangeMutexCrate::NAME,
        held_max: u32::MAX,
        measure: |held, time| Ok(cycle_ns(&RangeMutexCrate::default(), held, time)),
    },
    HeldInfo {
        name: RangeLockCrate::NAME,
        held_max: u32::MAX,
        measure: |held, time| Ok(cycle_ns(&RangeLockCrate::default(), held, time)),
    },
    HeldInfo {
        name: "session",
        held_max: SESSION_HELD_MAX,
        measure: |held, time| Ok(cycle_ns(&SessionRanges::open()?, held, time)),
    },
    HeldInfo {
        name: "ofd",
        held_max: u32::MAX,
        measure: |held, time| Ok(cycle_ns(&ByteRanges::open()?, held, time)),
    },
];

#[derive(Serialize)]
struct Row {
    lock: &'static str,
    held: u32,
    /// The median round.
    cycle_ns: f64,
    /// The fastest round.
    cycle_ns_min: f64,
    rounds: usize,
}

/// Measures, and prints what was measured.
pub(super) fn run(args: &HeldArgs, origin: &Provenance) -> anyhow::Result<()> {
    let subjects = chosen(SUBJECTS, |subject| subject.name, &args.locks)?;
    let time = Duration::from_secs_f64(args.seconds / f64::from(args.rounds.rounds));
    let mut rows = Vec::new();
    for &held in &args.held {
        let (able, unable): (Vec<_>, Vec<_>) =
            subjects.iter().copied().partition(|subject| held <= subject.held_max);
        for HeldInfo { name, held_max, .. } in unable {
            eprintln!("{name} holds {held_max} ranges, not {held}: no row");
        }
        let cycles = args.rounds.of(&able, |subject, _| (subject.measure)(held, time))?;
        rows.extend(able.iter().zip(cycles).map(|(subject, cycles)| row(subject, held, cycles)));
    }
    show(origin, args.rounds.json, &rows, table)
}

/// How long one of these locks is measured for a figure, each time.
const FIGURE_TIME: Duration = Duration::from_millis(150);
/// How often, of which the median counts.
const FIGURE_ROUNDS: usize = 3;

/// Nanoseconds of a cycle of the lock of this name, while so many ranges are held.
pub(crate) fn cycle(name: &str, held: u32) -> anyhow::Result<f64> {
    let subject = SUBJECTS.iter().find(|subject| subject.name == name);
    let subject = subject.with_context(|| format!("no lock named '{name}' holds ranges"))?;
    let rounds = (0..FIGURE_ROUNDS).map(|_| (subject.measure)(held, FIGURE_TIME));
    Ok(median(rounds.collect::<anyhow::Result<_>>()?))
}

fn table(rows: &[Row]) -> Table {
    let cells = |row: &Row| {
        let figures = [row.cycle_ns, row.cycle_ns_min].map(|ns| format!("{ns:.1}"));
        let mut cells = vec![row.lock.to_owned(), grouped(row.held.into())];
        cells.extend(figures);
        cells
    };
    let header = ["lock", "held", "ns a cycle", "fastest round"];
    table_of(&header, 1, rows.iter().map(cells))
}

fn row(subject: &HeldInfo, held: u32, cycles: Vec<f64>) -> Row {
    Row {
        lock: subject.name,
        held,
        cycle_ns_min: cycles.iter().copied().fold(f64::INFINITY, f64::min),
        rounds: cycles.len(),
        cycle_ns: median(cycles),
    }
}

/// Holds ranges, then takes and gives back gaps among them at random.
fn cycle_ns<S: Subject>(lock: &S, held: u32, time: Duration) -> f64 {
    let at = |index: u64, from: u64| {
        let start = index * STRIDE + from;
        Range::new(start, start + STRIDE / 2 - 1).expect("a range ends after its start")
    };
    let count = u64::from(held);
    let tokens: Vec<_> = (0..count).map(|index| lock.take(at(index, 0), false)).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(count);
    let began = Instant::now();
    let mut cycles = 0_u64;
    while began.elapsed() < time {
        for _ in 0..BATCH {
            let gap = at(rng.random_range(0..count), STRIDE / 2);
            lock.give(lock.take(gap, false));
        }
        cycles += u64::from(BATCH);
    }
    let spent = began.elapsed().as_nanos() as f64;
    tokens.into_iter().for_each(|token| lock.give(token));
    spent / cycles as f64
}

/// The ranges of a table, all of one session.
struct SessionRanges {
    table: RangeLock,
    _session: Session,
    _dir: Scratch,
}

impl SessionRanges {
    fn open() -> anyhow::Result<Self> {
        let dir = Scratch::new()?;
        let session = Session::open(&region_options(dir.path()))?;
        let table = session.range("held").in_units_of(STRIDE / 2);
        Ok(Self { table, _session: session, _dir: dir })
    }
}

impl Subject for SessionRanges {
    type Token<'a> = RangeGuard;

    fn take(&self, range: Range, shared: bool) -> RangeGuard {
        let positions = range.start()..range.last() + 1;
        let request = match shared {
            true => self.table.shared(positions),
            false => self.table.exclusive(positions),
        };
        request.blocking().expect("nobody else has this region")
    }

    fn give(&self, guard: RangeGuard) {
        guard.release().blocking().expect("it is held");
    }
}

/// The kernel's locks of byte ranges, all of one open file.
struct ByteRanges {
    file: File,
    _dir: Scratch,
}

impl ByteRanges {
    fn open() -> anyhow::Result<Self> {
        let dir = Scratch::new()?;
        let path = dir.path().join("bytes");
        let file = File::create_new(&path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { file, _dir: dir })
    }

    fn set(&self, range: Range, kind: i32) {
        let length = range.last() - range.start() + 1;
        let lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: i64::try_from(range.start()).expect("offsets are small"),
            l_len: i64::try_from(length).expect("lengths are small"),
            l_pid: 0,
        };
        fcntl(self.file.as_fd(), FcntlArg::F_OFD_SETLKW(&lock)).expect("nobody else has this file");
    }
}

impl Subject for ByteRanges {
    type Token<'a> = Range;

    fn take(&self, range: Range, _: bool) -> Range {
        self.set(range, libc::F_WRLCK);
        range
    }

    fn give(&self, range: Range) {
        self.set(range, libc::F_UNLCK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_can_hold_many_ranges() {
        for subject in SUBJECTS {
            let cycle = (subject.measure)(50, Duration::from_millis(1)).unwrap();
            assert!(cycle > 0.0, "{}", subject.name);
        }
    }
}
