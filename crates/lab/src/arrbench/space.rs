//! `addrspace`: threads whose allocators grow and shrink arenas of one address space.
//!
//! Kogan, Dice, Issa, *Scalable Range Locks* (EuroSys'20), section 7.2, figures 5 to 8, without the
//! kernel. Each thread has an arena, mapped without rights; as glibc's `malloc` does, it makes more
//! pages usable in small steps, touches them, and gives them back when the arena is full. Every
//! arena reaches its first page by splitting an area, which no speculation can do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;
use clap::{Args, value_parser};
use comfy_table::Table;
use farlock_local::address_space::{AddressSpace, Counts, PAGE, Protection, Refinement};
use farlock_local::baseline::{Park, Single, TreeRw};
use farlock_local::{ListRw, RawRangeRwLock};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use super::figures::{THREADS_MAX, chosen, median, warn_of_few_cores};
use super::threads::at_once;
use crate::provenance::Provenance;
use crate::record::grouped;
use crate::report::{show, table_of};
use crate::rounds::Rounds;

/// Pages of an arena: 64 MiB, as glibc reserves.
const ARENA_PAGES: u64 = 16_384;
/// The most pages that become usable at once.
const STEP_PAGES_MAX: u64 = 33;
/// Pages touched again for each that is touched first.
const FAULTS_AGAIN: u64 = 2;

/// What to measure.
#[derive(Clone, Debug, Args)]
pub struct AddrspaceArgs {
    /// Threads, an arena each
    #[arg(long, value_name = "N[,N..]", value_delimiter = ',', default_value = "1,2,4")]
    #[arg(value_parser = value_parser!(u16).range(1..=THREADS_MAX))]
    threads: Vec<u16>,
    /// Kinds to measure, or all
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',', default_value = "all")]
    kinds: Vec<String>,
    /// How long each kind is measured, spread over the rounds
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = crate::bench::seconds)]
    seconds: f64,
    /// Times every acquisition of the lock, which costs time itself
    #[arg(long)]
    time_waits: bool,
    #[command(flatten)]
    rounds: Rounds,
}

/// One run of a kind.
#[derive(Clone, Copy)]
struct Course {
    threads: u16,
    time: Duration,
    seed: u64,
    time_waits: bool,
}

/// What came of it.
#[derive(Clone, Copy, Default)]
struct Outcome {
    operations_per_s: f64,
    counts: Counts,
    tree_ns: u64,
    violations: u64,
}

struct Kind {
    name: &'static str,
    measure: fn(&Course) -> Outcome,
}

/// A lock that may say how long threads waited for what protects it inside.
trait Inside: RawRangeRwLock + Default {
    fn inside_ns(&self) -> u64 {
        0
    }
}

impl Inside for Single {}
impl Inside for ListRw {}
impl Inside for TreeRw<Park> {
    fn inside_ns(&self) -> u64 {
        self.waited_for_tree_ns()
    }
}

const fn kind<L: Inside, const PAGE_FAULT: bool, const MPROTECT: bool>(name: &'static str) -> Kind {
    Kind { name, measure: |course| measure::<L>(course, PAGE_FAULT, MPROTECT) }
}

/// The paper's five, and the two halves of the refinement.
const KINDS: &[Kind] = &[
    kind::<Single, false, false>("stock"),
    kind::<TreeRw<Park>, false, false>("tree-full"),
    kind::<ListRw, false, false>("list-full"),
    kind::<TreeRw<Park>, true, true>("tree-refined"),
    kind::<ListRw, true, true>("list-refined"),
    kind::<ListRw, true, false>("list-pf"),
    kind::<ListRw, false, true>("list-mprotect"),
];

#[derive(Serialize)]
struct Row {
    kind: &'static str,
    threads: u16,
    ops_per_s: f64,
    /// Calls of `mprotect` in a hundred that locked only their area.
    speculated_percent: f64,
    /// Speculations begun again for each call.
    retries_per_mprotect: f64,
    /// Mean wait of a shared and of an exclusive acquisition, if timed, and in the lock around the
    /// tree for each acquisition, of the trees.
    shared_wait_ns: Option<f64>,
    exclusive_wait_ns: Option<f64>,
    tree_wait_ns: Option<f64>,
    violations: u64,
    rounds: usize,
}

/// Measures, and prints what was measured.
pub(super) fn run(args: &AddrspaceArgs, origin: &Provenance) -> anyhow::Result<()> {
    let kinds = chosen(KINDS, |kind| kind.name, &args.kinds)?;
    warn_of_few_cores(origin.cores, &args.threads);
    let rows = rows(args, &kinds)?;
    show(origin, args.rounds.json, &rows, table)?;
    let violations: u64 = rows.iter().map(|row| row.violations).sum();
    ensure!(violations == 0, "{violations} page faults did not see what their thread had done");
    Ok(())
}

fn rows(args: &AddrspaceArgs, kinds: &[&Kind]) -> anyhow::Result<Vec<Row>> {
    let time = Duration::from_secs_f64(args.seconds / f64::from(args.rounds.rounds));
    let (time_waits, mut rows) = (args.time_waits, Vec::new());
    for &threads in &args.threads {
        let outcomes = args.rounds.of(kinds, |kind, round| {
            Ok((kind.measure)(&Course { threads, time, seed: round.into(), time_waits }))
        })?;
        rows.extend(kinds.iter().zip(outcomes).map(|(kind, rounds)| row(kind, threads, &rounds)));
    }
    Ok(rows)
}

fn row(kind: &Kind, threads: u16, rounds: &[Outcome]) -> Row {
    let sum = |of: fn(&Outcome) -> u64| rounds.iter().map(of).sum::<u64>() as f64;
    let mprotects = sum(|outcome| outcome.counts.speculated + outcome.counts.unspeculated);
    let (shared, exclusive) = (sum(|o| o.counts.shared), sum(|o| o.counts.exclusive));
    let each =
        |total: f64, count: f64| (count > 0.0).then(|| (total / count * 10.0).round() / 10.0);
    let tree_ns = sum(|outcome| outcome.tree_ns);
    let speculated = sum(|outcome| outcome.counts.speculated) / mprotects * 100.0;
    Row {
        kind: kind.name,
        threads,
        ops_per_s: median(rounds.iter().map(|outcome| outcome.operations_per_s).collect()).round(),
        speculated_percent: (speculated * 1e3).round() / 1e3,
        retries_per_mprotect: sum(|outcome| outcome.counts.retries) / mprotects,
        shared_wait_ns: each(sum(|outcome| outcome.counts.shared_ns), shared),
        exclusive_wait_ns: each(sum(|outcome| outcome.counts.exclusive_ns), exclusive),
        tree_wait_ns: kind
            .name
            .starts_with("tree")
            .then(|| each(tree_ns, shared + exclusive))
            .flatten(),
        violations: rounds.iter().map(|outcome| outcome.violations).sum(),
        rounds: rounds.len(),
    }
}

fn table(rows: &[Row]) -> Table {
    let header = ["kind", "threads", "ops/s", "speculated", "read wait", "write wait", "tree wait"];
    let cells = |row: &Row| {
        let mut cells = vec![row.kind.to_owned(), row.threads.to_string()];
        cells.push(grouped(row.ops_per_s as u64));
        cells.push(format!("{:.3} %", row.speculated_percent));
        let waits = [row.shared_wait_ns, row.exclusive_wait_ns, row.tree_wait_ns];
        cells.extend(waits.map(|wait| wait.map_or("-".to_owned(), |ns| format!("{ns:.1} ns"))));
        cells
    };
    table_of(&header, 1, rows.iter().map(cells))
}

fn measure<L: Inside>(course: &Course, page_fault: bool, mprotect: bool) -> Outcome {
    let refinement = Refinement { page_fault, mprotect, time_waits: course.time_waits };
    let space = AddressSpace::<L>::new(refinement);
    let (tallies, elapsed) = at_once(course.threads, course.time, |index, start, stop| {
        // A page between arenas: neighbours would be one area.
        let arena = space.mmap((ARENA_PAGES + 1) * PAGE, Protection::NONE);
        let arena = arena.expect("the space is large");
        let gap = space.munmap(arena + ARENA_PAGES * PAGE, PAGE);
        gap.expect("these are whole pages");
        start.wait();
        allocate(&space, arena, course.seed << 16 | u64::from(index), stop)
    });
    let operations: u64 = tallies.iter().map(|(operations, _)| operations).sum();
    Outcome {
        operations_per_s: operations as f64 / elapsed.as_secs_f64(),
        counts: space.counts(),
        tree_ns: space.range_lock().inside_ns(),
        violations: tallies.iter().map(|(_, violations)| violations).sum(),
    }
}

/// What an allocator does to its arena: operations, and faults that were not as they had to be.
fn allocate<L: RawRangeRwLock>(
    space: &AddressSpace<L>,
    arena: u64,
    seed: u64,
    stop: &AtomicBool,
) -> (u64, u64) {
    let usable = Protection::READ | Protection::WRITE;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut used, mut operations, mut violations) = (0, 0, 0);
    let touch = |page: u64| space.page_fault(arena + page * PAGE, Protection::WRITE).is_err();
    while !stop.load(Ordering::Relaxed) {
        let more = rng.random_range(1..=STEP_PAGES_MAX);
        // The last page stays without rights, and the first usable: no area appears or goes.
        if used + more >= ARENA_PAGES {
            let done = space.mprotect(arena + PAGE, (used - 1) * PAGE, Protection::NONE);
            violations += u64::from(done.is_err());
            operations += 1;
            used = 1;
        }
        let done = space.mprotect(arena + used * PAGE, more * PAGE, usable);
        violations += u64::from(done.is_err());
        for page in used..used + more {
            violations += u64::from(touch(page));
            for _ in 1..FAULTS_AGAIN {
                violations += u64::from(touch(rng.random_range(0..=page)));
            }
        }
        used += more;
        violations += u64::from(!touch(used));
        operations += 2 + more * FAULTS_AGAIN;
    }
    (operations, violations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(threads: u16) -> Course {
        Course { threads, time: Duration::from_millis(30), seed: 1, time_waits: true }
    }

    #[test]
    fn every_kind_keeps_each_arena_as_its_thread_left_it() {
        for kind in KINDS {
            let outcome = (kind.measure)(&course(3));
            assert_eq!(outcome.violations, 0, "{}", kind.name);
            assert!(outcome.counts.shared > 0 && outcome.operations_per_s > 0.0, "{}", kind.name);
        }
    }

    #[test]
    fn arenas_grow_by_speculation() {
        let outcome = measure::<ListRw>(&course(2), true, true);
        let counts = outcome.counts;
        assert_eq!(counts.unspeculated, 2, "the first page of each arena");
    }
}
