//! `bench --tries`: what a try costs that is refused, by how many sessions are attached.
//!
//! A process of its own holds the lock with one session and keeps others open that are idle. This
//! process tries again and again through the blocking face, and times each try: a clock read is
//! little beside a refusal, which names the holder. The rounds of `flock`, tried while another file
//! description holds it, are interleaved.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use comfy_table::Table;
use farlock::{AcquireError, Session};
use farlock_fabric::Nanos;
use rustix::fs::FlockOperation;
use serde::Serialize;

use super::placement::{Placement, core_of, pin};
use crate::latency::{Latency, Summary};
use crate::provenance::Provenance;
use crate::record::{duration, grouped};
use crate::report::{show, table_of};
use crate::scratch::Scratch;
use crate::{child, face};

/// Rounds, each of [`TRIES`] of every subject.
const ROUNDS: usize = 20;
/// Tries of a subject in a round.
const TRIES: usize = 200;
/// A round of one subject ends after so long in any case.
const ROUND_MAX: Duration = Duration::from_millis(500);

/// What tries cost.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// The subject: `session` or `flock`.
    protocol: &'static str,
    /// Where it was measured.
    measured_at: &'static str,
    /// How many sessions there were beside the one that tries; one of them holds.
    attached: u16,
    /// How many tries were refused.
    tries: u64,
    /// How many were granted, beside a holder.
    violations: u64,
    /// How long they took.
    try_ns: Summary,
}

/// Measures, and prints what was measured.
pub(super) fn run(
    placement: Placement,
    attached: &[u16],
    json: bool,
    origin: &Provenance,
) -> anyhow::Result<()> {
    let cores = placement.cores()?;
    pin(core_of(&cores, 0))?;
    let mut rows = Vec::new();
    for &attached in attached {
        rows.extend(measure(attached)?);
    }
    show(origin, json, &rows, table)?;
    let violations: u64 = rows.iter().map(|row| row.violations).sum();
    ensure!(violations == 0, "{violations} tries were granted beside a holder");
    Ok(())
}

fn table(rows: &[Row]) -> Table {
    let cells = |row: &Row| {
        let counts = [row.attached.into(), row.tries].map(grouped);
        let mut cells = vec![row.protocol.to_owned()];
        cells.extend(counts.into_iter().chain([row.try_ns.p50, row.try_ns.p99].map(duration)));
        cells
    };
    table_of(&["face", "attached", "tries refused", "p50", "p99"], 1, rows.iter().map(cells))
}

fn measure(attached: u16) -> anyhow::Result<[Row; 2]> {
    let scratch = Scratch::new()?;
    let session = Session::open(&face::region_options(scratch.path()))?;
    let _others = Others::start(scratch.path(), attached)?;
    let lock = session.lock(face::name(0));
    let (held, tried) = (flock_file(scratch.path())?, flock_file(scratch.path())?);
    rustix::fs::flock(&held, FlockOperation::LockExclusive)?;
    let mut rows = [("session", "session"), ("flock", "system")].map(|(protocol, measured_at)| {
        let (tries, violations, try_ns) = (0, 0, Summary::default());
        Row { protocol, measured_at, attached, tries, violations, try_ns }
    });
    let mut latencies = [Latency::default(), Latency::default()];
    for _ in 0..ROUNDS {
        round(&mut rows[0], &mut latencies[0], || match lock.exclusive().at_once().blocking() {
            Err(AcquireError::Busy { .. }) => Ok(false),
            Ok(_) => Ok(true),
            Err(error) => Err(error.into()),
        })?;
        round(&mut rows[1], &mut latencies[1], || {
            match rustix::fs::flock(&tried, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
                Ok(()) => Ok(true),
                Err(error) => Err(error.into()),
            }
        })?;
    }
    for (row, latency) in rows.iter_mut().zip(latencies) {
        row.try_ns = latency.summary();
    }
    Ok(rows)
}

fn round(
    row: &mut Row,
    latency: &mut Latency,
    attempt: impl Fn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    for _ in 0..TRIES {
        let at = Instant::now();
        let granted = attempt()?;
        latency.record(at.elapsed().as_nanos() as Nanos);
        row.tries += u64::from(!granted);
        row.violations += u64::from(granted);
        if begun.elapsed() > ROUND_MAX {
            break;
        }
    }
    Ok(())
}

fn flock_file(dir: &std::path::Path) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).open(dir.join("flock"))
}

/// The process of the other sessions. Ended when dropped.
struct Others(Child);

impl Others {
    fn start(dir: &std::path::Path, sessions: u16) -> anyhow::Result<Self> {
        let mut command = child::command("attached")?;
        command.arg("--dir").arg(dir).args(["--sessions", &sessions.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut others = Self(command.spawn().context("cannot start the other sessions")?);
        let said = others.0.stdout.take().expect("its output is a pipe");
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        ensure!(line == "holds\n", "the other sessions could not be opened");
        Ok(others)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // What counts is that it is gone and reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
