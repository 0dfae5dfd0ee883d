//! `farlock demo`: everything in under half a minute, in real processes, checked.
//!
//! A private region is made for it and removed at its end, however it ends but by a kill. Every
//! claim is checked by something that is not farlock: a counter in a file that is read and written
//! back by plain loads and stores, and the system's clock.

mod actor;
mod acts;
mod stage;

use std::time::Duration;

use farlock::SessionError;
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

/// Commands to try, by the name under which this program can be called.
fn what_next() -> String {
    let farlock = program();
    format!(
        "What next:\n  \
         {farlock} lock backup -- sh -c 'echo token $FARLOCK_TOKEN'   run under a lock\n  \
         {farlock} lock -n backup -- true                            fail rather than wait\n  \
         {farlock} ls                                                who holds what\n"
    )
}

/// `farlock`, if a shell finds it; else where it is.
fn program() -> String {
    const NAME: &str = "farlock";
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_found = std::env::split_paths(&path).any(|dir| dir.join(NAME).is_file());
    let own = std::env::current_exe().ok().filter(|_| !is_found);
    let Some(own) = own else { return NAME.to_owned() };
    let here = std::env::current_dir().unwrap_or_default();
    own.strip_prefix(&here).unwrap_or(&own).display().to_string()
}

/// Removes the stage where a signal ends the demo early; its processes end with it.
fn end_early(stage: &Stage) -> Result<(), Failure> {
    let failed = |error| Failure::system("signals cannot be caught", error);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let (regions, state) = (stage.regions.clone(), stage.state.clone());
    let thread = std::thread::Builder::new().name("farlock-signals".to_owned());
    let started = thread.spawn(move || {
        if let Some(signal) = signals.forever().next() {
            remove(&[&regions, &state]);
            std::process::exit(Exit::killed_by(signal).0.into());
        }
    });
    started.map_err(SessionError::Thread)?;
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
    print(&format!("\n{}{}", summary.table(), what_next()))?;
    Ok(if summary.checks.iter().all(|check| check.holds) { Exit::OK } else { Exit::CONFLICT })
}
