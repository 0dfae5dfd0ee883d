//! `farlock-lab service-times`: what the structures of range servers take on this processor.
//!
//! A simulated server computes in no time, so that what it takes is data of a testbed. Here those
//! data are measured: for so many ranges that are held, how long another one takes to enter and
//! leave, and how many entries or nodes are looked at. A line through these says what an operation
//! takes in any case, and what for each that it looks at.
//!
//! That is so of one core that has all in its cache. Of several that change the structure in turn,
//! each finds most of what it looks at written by another one: then a step takes what a line takes
//! from core to core, which is measured as well.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;
use comfy_table::Table;
use farlock_locks::record::interval_tree::INTERVAL_TREE;
use farlock_locks::record::linked_list::LINKED_LIST;
use farlock_locks::record::range_btree::RANGE_BTREE;
use farlock_locks::record::range_server::{RangeServer, RangeSet};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use crate::bench::placement::{Placement, core_of, pin};
use crate::provenance::Provenance;
use crate::report::{show, table_of};
use crate::rounds::Rounds;

/// Ranges that are held meanwhile.
const HELD: [u32; 5] = [0, 12, 48, 96, 192];
/// Units of each range, and of the space.
const LENGTH: u32 = 16;
const SPACE: u32 = 1 << 28;
/// Operations of a round: half of them enter, half leave.
const OPERATIONS: u32 = 40_000;
/// How often a line goes there and back between two looks at the clock, and how many such times are
/// taken in a round.
const EXCHANGES: u32 = 50;
const EXCHANGES_TIMED: u32 = 100;
/// The structures.
const STRUCTURES: [(&str, RangeServer); 3] =
    [("interval-tree", INTERVAL_TREE), ("range-btree", RANGE_BTREE), ("linked-list", LINKED_LIST)];

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct ServiceTimesArgs {
    #[command(flatten)]
    rounds: Rounds,
}

/// What operations of a structure take, of the median round.
#[derive(Clone, Debug, Serialize)]
struct Row {
    structure: &'static str,
    /// In any case, in nanoseconds.
    entry_ns: f64,
    /// For each entry or node that is looked at, in nanoseconds.
    step_ns: f64,
    /// With so many ranges held: those looked at, and nanoseconds, of one operation.
    points: Vec<Point>,
}

/// What an operation takes beside so many ranges.
#[derive(Clone, Copy, Debug, Serialize)]
struct Point {
    held: u32,
    steps: f64,
    nanos: f64,
}

/// Measures, and prints what was measured.
///
/// # Errors
/// Nothing can be printed.
pub fn run(args: &ServiceTimesArgs, origin: &Provenance) -> anyhow::Result<()> {
    let subjects: Vec<(usize, u32)> =
        (0..STRUCTURES.len()).flat_map(|number| HELD.map(|held| (number, held))).collect();
    let measured = args.rounds.of(&subjects, |&(number, held), round| {
        Ok(point(&mut *STRUCTURES[number].1.structure(), held, round))
    })?;
    let medians: Vec<Point> = measured.into_iter().map(median).collect();
    let rows: Vec<Row> = STRUCTURES
        .iter()
        .zip(medians.chunks(HELD.len()))
        .map(|(&(structure, _), points)| {
            let (entry_ns, step_ns) = line(points);
            Row { structure, entry_ns, step_ns, points: points.to_vec() }
        })
        .collect();
    let transfer = transfer_ns(args.rounds.rounds)?;
    let line = Row { structure: "line", entry_ns: 0.0, step_ns: transfer, points: Vec::new() };
    let rows: Vec<Row> = rows.into_iter().chain([line]).collect();
    show(origin, args.rounds.json, &rows, table)
}

fn table(rows: &[Row]) -> Table {
    let cells = |row: &Row| {
        let last = row.points.last().map(|last| [last.steps, last.nanos]);
        let numbers = [row.entry_ns, row.step_ns].into_iter().chain(last.into_iter().flatten());
        let numbers = numbers.map(|number| format!("{number:.1}"));
        std::iter::once(row.structure.to_owned()).chain(numbers).collect::<Vec<_>>()
    };
    let header = ["structure", "ns", "ns a step", "steps among 192", "ns among 192"];
    table_of(&header, 1, rows.iter().map(cells))
}

/// The round with the median time.
fn median(mut rounds: Vec<Point>) -> Point {
    rounds.sort_by(|a, b| a.nanos.total_cmp(&b.nanos));
    rounds[rounds.len() / 2]
}

/// What an operation takes beside so many ranges, that lie anywhere.
fn point(set: &mut dyn RangeSet, held: u32, round: u16) -> Point {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(round.into());
    let mut draw = || {
        let first = chance.random_range(0..(SPACE - LENGTH) / LENGTH) * LENGTH;
        first..first + LENGTH
    };
    let mut left = held;
    while left > 0 {
        left -= u32::from(set.enter(&draw()).0);
    }
    let drawn: Vec<_> = (0..OPERATIONS / 2).map(|_| draw()).collect();
    let (mut steps, begun) = (0_u64, Instant::now());
    for units in &drawn {
        let (entered, looked) = set.enter(black_box(units));
        steps += u64::from(looked);
        if entered {
            steps += u64::from(set.leave(units.start));
        }
    }
    let nanos = begun.elapsed().as_nanos() as f64 / f64::from(OPERATIONS);
    Point { held, steps: steps as f64 / f64::from(OPERATIONS), nanos }
}

/// What a line takes from one core to another, in nanoseconds: of many exchanges of two threads, of
/// which some are disturbed, those of the fastest tenth.
fn transfer_ns(rounds: u16) -> anyhow::Result<f64> {
    let cores = Placement::Spread.cores()?;
    anyhow::ensure!(cores.len() > 1, "a line goes from one core to another: there is one");
    let word = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let waits = |until: u64| {
        while word.load(Ordering::Acquire) != until && !is_over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    let mut times = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = pin(core_of(&cores, 1));
            for turn in (0..).step_by(2) {
                waits(turn + 1);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                word.store(turn + 2, Ordering::Release);
            }
        });
        pin(core_of(&cores, 0))?;
        let (mut turn, mut times) = (0, Vec::new());
        for _ in 0..u32::from(rounds) * EXCHANGES_TIMED {
            let begun = Instant::now();
            for _ in 0..EXCHANGES {
                word.store(turn + 1, Ordering::Release);
                waits(turn + 2);
                turn += 2;
            }
            times.push(begun.elapsed().as_nanos() as f64 / f64::from(2 * EXCHANGES));
        }
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok(times)
    })?;
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 10])
}

/// The line through these points with the least squares: where it begins, and how steep it is. What
/// it begins with is not below nothing.
fn line(points: &[Point]) -> (f64, f64) {
    let mean = |of: fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (steps, nanos) = (mean(|point| point.steps), mean(|point| point.nanos));
    let squares: f64 = points.iter().map(|point| (point.steps - steps).powi(2)).sum();
    let products = points.iter().map(|point| (point.steps - steps) * (point.nanos - nanos));
    let steep = products.sum::<f64>() / squares;
    ((nanos - steep * steps).max(0.0), steep)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_its_points() {
        let at = |steps| Point { held: 0, steps, nanos: 7.0 + 3.0 * steps };
        let (entry, step) = line(&[at(1.0), at(2.0), at(9.0)]);
        assert!((entry - 7.0).abs() < 1e-9 && (step - 3.0).abs() < 1e-9, "{entry} {step}");
    }

    #[test]
    fn a_list_looks_at_more_than_a_tree() {
        let of = |number: usize| point(&mut *STRUCTURES[number].1.structure(), 192, 1).steps;
        assert!(of(2) > 3.0 * of(0) && of(0) > of(1), "{} {} {}", of(0), of(1), of(2));
    }
}
