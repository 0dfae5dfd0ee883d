//! `farlock demo`: everything in under half a minute, in real processes, checked.
//!
//! A private region is made for it and removed at its end, however it ends but by a kill. Every
//! claim is checked by something that is not farlock: a counter in a file that is read and written
//! back by plain loads and stores, and the system's clock.

mod actor;
mod acts;

use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use comfy_table::{Table, presets::NOTHING};
use farlock::RegionOptions;
use rustix::termios::tcgetwinsize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub(super) use actor::{NAME as ACTOR, main as act};

use super::report::{Exit, Failure, print, show};

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

/// A claim and whether it held.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Check {
    claim: &'static str,
    found: String,
    holds: bool,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.holds { "ok" } else { "FAILED" };
        write!(f, "{mark}: {}: {}", self.claim, self.found)
    }
}

/// The demo's own directories, removed at its end.
struct Stage {
    regions: PathBuf,
    state: PathBuf,
}

impl Stage {
    fn new() -> Result<Self, Failure> {
        let name = format!("farlock-demo-{}", std::process::id());
        let memory = PathBuf::from("/dev/shm");
        let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let (regions, state) = (place.join(&name), place.join(format!("{name}-state")));
        for dir in [&regions, &state] {
            std::fs::create_dir(dir)
                .and_then(|()| {
                    use std::os::unix::fs::PermissionsExt;
                    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
                })
                .map_err(|error| Failure::system(format!("cannot make {dir:?}"), error))?;
        }
        Ok(Self { regions, state })
    }

    fn options(&self) -> RegionOptions {
        RegionOptions::new(&self.regions, &self.state).named("demo").labelled("farlock demo")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        remove(&[&self.regions, &self.state]);
    }
}

fn remove(dirs: &[&Path]) {
    for dir in dirs {
        // What cannot be removed means nothing: nobody else knows its name.
        let _ = std::fs::remove_dir_all(dir);
    }
}

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

/// Progress for people: a line that is written anew on a terminal, and one per act elsewhere. No
/// library: the one for it asks for another of the system's, which every start of `farlock` loads.
struct Show {
    steps: u64,
    is_seen: bool,
}

/// Back to the beginning of a terminal's line, and what stands there is wiped out.
const ANEW: &str = "\r\x1b[K";

impl Show {
    fn begin(title: &str, steps: u64) -> Self {
        show(title);
        Self { steps, is_seen: stderr().is_terminal() }
    }

    fn step(&self, done: u64, message: &str) {
        const WIDTH: usize = 30;
        if self.is_seen {
            let done = (done.min(self.steps) * WIDTH as u64 / self.steps.max(1)) as usize;
            let bar = "█".repeat(done) + &"░".repeat(WIDTH - done);
            let line = format!("  {bar} {message}");
            // A line that wraps cannot be wiped out.
            let width = tcgetwinsize(stderr()).map_or(0, |size| usize::from(size.ws_col));
            let room = if width > 0 { width - 1 } else { usize::MAX };
            let line: String = line.chars().take(room).collect();
            // Nobody looks any more where it fails.
            let _ = write!(stderr(), "{ANEW}{line}");
        }
    }

    fn end(self, checks: &[Check]) {
        if self.is_seen {
            let _ = write!(stderr(), "{ANEW}");
        }
        for check in checks {
            show(format_args!("  {check}"));
        }
    }
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

/// What the acts found.
#[derive(Default)]
struct Summary {
    figures: Vec<(&'static str, String)>,
    checks: Vec<Check>,
}

impl Summary {
    fn figure(&mut self, name: &'static str, value: String) {
        self.figures.push((name, value));
    }

    fn check(&mut self, claim: &'static str, holds: bool, found: String) -> Check {
        let check = Check { claim, found, holds };
        self.checks.push(check.clone());
        check
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING);
        for (name, value) in &self.figures {
            table.add_row([*name, value.as_str()]);
        }
        let failed = self.checks.iter().filter(|check| !check.holds).count();
        let verdict = match failed {
            0 => "all hold".to_owned(),
            some => format!("{some} FAILED"),
        };
        let checks = format!("{} checks", self.checks.len());
        table.add_row([checks.as_str(), verdict.as_str()]);
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n") + "\n"
    }
}
