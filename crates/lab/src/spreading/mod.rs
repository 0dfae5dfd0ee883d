//! `farlock-lab spreading`: a table of ranges of which ever more units are asked for, from 2^10 to
//! 2^28, by clients that go on to use it (Citron, figure 10). Nothing may be held twice, and
//! nobody should wait for the table to grow.
//!
//! The paper's tree grows by a level at a time: until one client has scaled it up, all that ask for
//! units beyond it take turns at one mutex. Here all units are there from the first and only their
//! memory comes later, a *block* for each 2^18, when the first client asks for one of them. So
//! what there is to see is how long a block takes to come, and what that does to the others.

mod args;
mod asked;
mod course;
mod native;
mod report;
mod simulated;
mod trace;

use anyhow::ensure;

pub use args::{SpreadingArgs, WorkloadKind};
pub use report::{GrowthRow, Row};

use crate::bench::Fabric;
use crate::provenance::Provenance;
use crate::report::show;
use crate::testbed::Testbed;

/// The most threads of this machine.
const THREADS_MAX: u16 = 16;

/// Has ever more units of a table asked for, and prints how that went.
///
/// # Errors
/// A client failed, or a range was held twice.
pub fn run(args: &SpreadingArgs, origin: &Provenance) -> anyhow::Result<()> {
    let rows = measure(args)?;
    show(origin, args.json, &rows, report::table)?;
    let overlaps: u64 = rows.iter().map(|row| row.violations).sum();
    ensure!(overlaps == 0, "{overlaps} ranges were held beside others that they exclude");
    Ok(())
}

/// A row for each number of units.
///
/// # Errors
/// What was asked for makes no sense, or a client failed.
pub(crate) fn measure(args: &SpreadingArgs) -> anyhow::Result<Vec<Row>> {
    let spreading = match args.fabric {
        Fabric::Shm => {
            let is_random = args.workload == WorkloadKind::Random;
            ensure!(is_random, "writers are simulated: --fabric sim");
            ensure!(!args.whole, "a session's table grows: --whole is of --fabric sim");
            ensure!(args.clients() <= THREADS_MAX, "at most {THREADS_MAX} threads: --clients");
            native::run(args)?
        }
        Fabric::Sim => {
            ensure!(args.server.is_none(), "a simulated memory has no server's address");
            simulated::run(args, &Testbed::named(&args.testbed)?)?
        }
    };
    report::rows(args, &spreading)
}
