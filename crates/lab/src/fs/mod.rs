//! `farlock-lab fs`: CitronFS, a file system in far memory under whichever lock, and the workloads
//! by which Citron's paper measures it (section 4.3, figure 8 and table 2).
#![doc = include_str!("../../../../docs/citronfs.md")]

mod args;
mod client;
mod course;
mod judge;
mod layout;
mod processes;
mod row;
mod simulated;
mod system;
mod transfer;

use anyhow::{Context, ensure};
use farlock_locks::registry;

use crate::bench::Fabric;
use crate::bench::crew::Crew;
use crate::bench::trial::{Arena, Face, Outcome, Span, Trial};
use crate::drive::Course;
use crate::provenance::Provenance;
use crate::report::show;
use crate::testbed::Testbed;
use crate::workload::{Dist, Workload as Requests};
pub use args::{FsArgs, WorkloadKind};
pub use course::{FsCourse, Workload};
pub use layout::{BLOCK_BYTES, Layout, Shape};
pub(crate) use processes::{FsPlayer, lost as lost_between_processes, words};
pub use row::{Latencies, Row};
pub use system::{File, FileSystem, FsError, Hold, NAME_BYTES};

/// The lock that does not exclude: what it lets happen is no fault.
const CANARY: &str = "none";
/// What a lock's option is called that stands for as many units as a request has.
const EXACT: &str = "=exact";
/// The most memory that clients share on this machine.
const SHARED_BYTES_MAX: u64 = 1 << 30;

/// Measures, and prints a row for each lock.
///
/// # Errors
/// A request failed, or files did not hold what was written to them under any lock but the canary.
pub fn run(args: &FsArgs, origin: &Provenance) -> anyhow::Result<()> {
    let rows = measure(args)?;
    show(origin, args.json, &rows, row::table)?;
    let is_broken = |row: &&Row| row.violations > Some(0) && row.lock != CANARY;
    let broken: Vec<&str> = rows.iter().filter(is_broken).map(|row| row.lock.as_str()).collect();
    ensure!(broken.is_empty(), "files were wrong under {}", broken.join(", "));
    Ok(())
}

/// Measures; a row for each lock, in the order asked for.
///
/// # Errors
/// What was asked for makes no sense, or a request failed.
pub fn measure(args: &FsArgs) -> anyhow::Result<Vec<Row>> {
    let testbed = args.testbed()?;
    let course = args.course(testbed.as_ref())?;
    let equip = |lock: &String| equipped(lock, &course, testbed.as_ref());
    let subjects = args.locks.iter().map(equip).collect::<anyhow::Result<Vec<_>>>()?;
    let trials: Vec<Trial> =
        subjects.into_iter().map(|subject| trial(args, course, subject)).collect();
    let outcomes: Vec<Outcome> = match &testbed {
        Some(testbed) => {
            let run = |trial| simulated::run(trial, &course, testbed);
            trials.iter().map(run).collect::<anyhow::Result<_>>()?
        }
        None => {
            let words = trials.iter().map(|trial| Arena::of(trial).words()).max().unwrap_or(0);
            ensure!(
                words as u64 * 8 <= SHARED_BYTES_MAX,
                "files and locks take {words} words: shared memory is for fewer"
            );
            let cores = args.placement.cores()?;
            let mut crew = Crew::start(course.clients, 1, words, cores, false)?;
            trials.iter().map(|trial| crew.run(trial)).collect::<anyhow::Result<_>>()?
        }
    };
    let named = args.locks.iter().zip(&outcomes);
    Ok(named.map(|(lock, outcome)| Row::new(args, &course, lock, outcome)).collect())
}

/// The lock as it is measured: of its size, by the testbed's processors.
fn equipped(lock: &str, course: &FsCourse, testbed: Option<&Testbed>) -> anyhow::Result<String> {
    let units = (course.io_bytes() + course.unit / 2) / course.unit;
    let lock = lock.replace(EXACT, &format!("={}", units.max(1)));
    let lock = testbed.map_or(lock.clone(), |testbed| testbed.equipped(&lock));
    let kind = registry::kind(&lock).with_context(|| lock.clone())?;
    let space = course.shape(0).units();
    Ok(if kind.units().is_some() { format!("{lock}:space={space}") } else { lock })
}

fn trial(args: &FsArgs, course: FsCourse, subject: String) -> Trial {
    let nanos = |seconds: f64| (seconds * 1e9) as u64;
    let seconds = args.seconds.unwrap_or(match args.fabric {
        Fabric::Sim => 0.02,
        Fabric::Shm => 1.0,
    });
    Trial {
        subject,
        face: Face::Async,
        counted: true,
        clients: course.clients,
        tasks: 1,
        threads: 1,
        handovers_max: 0,
        workload: Requests {
            locks: 1,
            dist: Dist::Uniform,
            reads: 0,
            seed: args.seed,
            dealt: 1,
            ranges: None,
        },
        course: Course { hold_ns: 0, think_ns: 0, sample: 1, skip_release: 0 },
        warm_up_ns: nanos(args.warmup.unwrap_or(seconds / 5.0)),
        span: Span::Nanos(nanos(seconds)),
        txn: None,
        fs: Some(course),
        near_wrap: None,
    }
}

#[cfg(test)]
mod tests;
