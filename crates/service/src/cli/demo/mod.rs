//! `farlock demo`: everything in under half a minute, in real processes, checked.
//!
//! A private region is made for it and removed at its end, however it ends but by a kill. Every
//! claim is checked by something that is not farlock: a counter in a file that is read and written
//! back by plain loads and stores, and the system's clock.

mod actor;
mod acts;
mod stage;

use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub(super) use actor::{NAME as ACTOR, main as act};

use super::report::{Exit, Failure, print};
use stage::{Stage, Summary, remove};

/// See what farlock does, in real processes on this machine, in less than half a minute.
///
/// Needs no server and no configuration, and leaves nothing behind. Processes contend for a lock,
/// readers share one, holders are killed and their lock is taken over. What is claimed is checked;
/// the exit status is 1 if a check fails.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Seconds for each of the first two acts.
    #[arg(long, value_name = "SECONDS", default_value_t = 4, value_parser = seconds)]
    seconds: u64,
}

/// A number of seconds for an act.
fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=30).contains(seconds));
    seconds.ok_or_else(|| "a whole number from 1 to 30 is expected".to_owned())
}

const WHAT_NEXT: &str = "\
What next:
  farlock lock backup -- sh -c 'echo token $FARLOCK_TOKEN'   run under a lock
  farlock lock -n backup -- true                            fail rather than wait
  farlock ls                                                who holds what
";

/// Removes the stage where somebody ends the demo early; its processes end with it.
fn end_early(stage: &Stage) -> Result<(), Failure> {
    let failed = |error| Failure::system("signals cannot be caught", error);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let (regions, state) = (stage.regions.clone(), stage.state.clone());
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            remove(&[&regions, &state]);
            std::process::exit(Exit::killed_by(signal).0.into());
        }
    });
    Ok(())
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let stage = Stage::new()?;
    end_early(&stage)?;
    let time = Duration::from_secs(args.seconds);
    let mut summary = Summary::default();
    acts::contention(&stage, time, &mut summary)?;
    acts::sharing(&stage, time, &mut summary)?;
    acts::take_over(&stage, &mut summary)?;
    // Where this does not arrive, nothing before it did.
    print(&format!("\n{}{WHAT_NEXT}", summary.table()))?;
    Ok(if summary.checks.iter().all(|check| check.holds) { Exit::OK } else { Exit::CONFLICT })
}
