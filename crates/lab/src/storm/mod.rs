//! `farlock-lab storm`: real processes on shared memory are killed and stopped at random moments.
//!
//! What is judged: that nobody living holds beside anybody living, that tokens grow, that no
//! survivor waits for long, and that every lock is free in the end. The judges ([`ledger`]) share
//! nothing with the protocols. Only processes that the storm started are signalled, by their ids.

pub mod client;
pub mod ledger;

use std::io::IsTerminal;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use farlock_fabric::shm::{self, Region, ShmEndpoint};
use farlock_fabric::{Endpoint, Nanos, block_on};
use farlock_locks::registry::{self, RECORD_LOCKS, Visitor};
use farlock_locks::{Client, Mode, Options, RecordLock};
use indicatif::ProgressBar;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::Signal;
use serde::Serialize;

use crate::scratch::Scratch;
use ledger::Ledger;

/// A survivor that waits longer than this is said to wait for ever.
const STALL: Duration = Duration::from_secs(5);
/// In the end every survivor is granted so many times more.
const LAST_GRANTS: u64 = 20;
/// The longest time between two blows, in microseconds.
const CALM_US_MAX: u64 = 3_000;
/// The longest stop of a client that is stopped, in microseconds.
const STOP_US_MAX: u64 = 5_000;
/// Of so many blows one stops its victim instead of killing it.
const STOP_ONE_IN: u32 = 5;

/// What kind of storm.
#[derive(Clone, Debug, clap::Args)]
pub struct StormArgs {
    /// The lock, as the registry names it, or `all`.
    #[arg(long, default_value = "all")]
    pub protocol: String,
    /// How many clients live at a time.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(2..=64))]
    pub clients: u16,
    /// How many locks they share.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub locks: u16,
    /// How many clients are killed, for each lock.
    #[arg(long, default_value_t = 1_000)]
    pub kills: u64,
    /// Decides when and whom. The processes' own timing decides as well.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Prints a line of JSON for each lock.
    #[arg(long)]
    pub json: bool,
}

/// What came of a storm.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    protocol: String,
    clients: u16,
    locks: u16,
    kills: u64,
    stops: u64,
    acquisitions: u64,
    violations: u64,
    stalls: u64,
    longest_wait_ns: Nanos,
    seconds: f64,
    seed: u64,
}

/// The region of the storm in this directory, as its clients open it.
pub(crate) fn region_options(dir: &Path) -> shm::Options {
    let options = shm::Options::new(dir.join("region"), dir.join("state"), "storm");
    shm::Options { create: false, endpoints: 128, ..options }
}

/// Storms, one lock after another. Fails if anything was violated or anybody stalled, but for the
/// canary, which must be violated.
pub fn run(args: &StormArgs) -> anyhow::Result<()> {
    let named = [args.protocol.as_str()];
    let all: Vec<&str> = RECORD_LOCKS.iter().map(|lock| lock.name).collect();
    let protocols = if args.protocol == "all" { &all[..] } else { &named[..] };
    let mut broken = Vec::new();
    for protocol in protocols {
        let report = Storm::begin(args, protocol)?.run()?;
        if args.json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            println!(
                "{protocol}: {} kills and {} stops of {} clients, {} acquisitions, {} violations, \
                 {} stalls, longest wait {:.1} ms, {:.1} s",
                report.kills,
                report.stops,
                report.clients,
                report.acquisitions,
                report.violations,
                report.stalls,
                report.longest_wait_ns as f64 / 1e6,
                report.seconds
            );
        }
        let clean = report.violations == 0 && report.stalls == 0;
        if clean == (*protocol == "none") {
            broken.push(*protocol);
        }
    }
    ensure!(broken.is_empty(), "not as it must be: {}", broken.join(", "));
    Ok(())
}

struct Storm<'a> {
    args: &'a StormArgs,
    protocol: &'a str,
    scratch: Scratch,
    region: Region,
    clients: Vec<Child>,
    chance: Xoshiro256PlusPlus,
    stalls: u64,
}

impl Drop for Storm<'_> {
    fn drop(&mut self) {
        for client in &mut self.clients {
            // Most have ended by themselves; what counts is that none is left.
            let _ = client.kill();
            let _ = client.wait();
        }
    }
}

impl<'a> Storm<'a> {
    fn begin(args: &'a StormArgs, protocol: &'a str) -> anyhow::Result<Self> {
        let scratch = Scratch::new()?;
        let bytes = Ledger::words(args.locks.into(), args.clients.into()) as u64 * 8;
        let mut options = region_options(scratch.path());
        (options.create, options.heap_bytes) = (true, bytes);
        let region = Region::open(&options).context("cannot create the region")?;
        let chance = Xoshiro256PlusPlus::seed_from_u64(args.seed);
        let mut storm =
            Self { args, protocol, scratch, region, clients: Vec::new(), chance, stalls: 0 };
        for seat in 0..args.clients {
            let client = storm.start(seat.into())?;
            storm.clients.push(client);
        }
        Ok(storm)
    }

    fn start(&self, seat: usize) -> anyhow::Result<Child> {
        let args = self.args;
        Command::new(std::env::current_exe()?)
            .arg("storm-client")
            .arg("--dir")
            .arg(self.scratch.path())
            .args(["--parent", &std::process::id().to_string()])
            .args(["--protocol", self.protocol])
            .args(["--seat", &seat.to_string()])
            .args(["--seats", &args.clients.to_string()])
            .args(["--locks", &args.locks.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start a client")
    }

    fn ledger<'r>(&self, region: &'r Region) -> Ledger<'r> {
        Ledger::new(region.words(), self.args.locks.into(), self.args.clients.into())
    }

    fn run(mut self) -> anyhow::Result<Report> {
        let started = Instant::now();
        let region = self.region.clone();
        let ledger = self.ledger(&region);
        let observer = region.endpoint()?;
        let bar = if self.args.json || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(self.args.kills)
        };
        let (mut kills, mut stops) = (0, 0);
        while kills < self.args.kills {
            let calm = self.chance.random_range(0..CALM_US_MAX);
            std::thread::sleep(Duration::from_micros(calm));
            let seat = self.chance.random_range(0..self.clients.len());
            if self.chance.random_range(0..STOP_ONE_IN) == 0 {
                self.stop(seat)?;
                stops += 1;
            } else {
                self.strike(seat)?;
                kills += 1;
                bar.inc(1);
            }
            self.look_for_stalls(&ledger, observer.now());
        }
        self.calm_down(&ledger, &observer)?;
        drop(observer);
        self.check_free()?;
        Ok(Report {
            protocol: self.protocol.to_owned(),
            clients: self.args.clients,
            locks: self.args.locks,
            kills,
            stops,
            acquisitions: ledger.acquisitions(),
            violations: ledger.violations(),
            stalls: self.stalls,
            longest_wait_ns: ledger.longest_wait(),
            seconds: started.elapsed().as_secs_f64(),
            seed: self.args.seed,
        })
    }

    /// Kills a client; another one takes its seat.
    fn strike(&mut self, seat: usize) -> anyhow::Result<()> {
        let victim = &mut self.clients[seat];
        if let Some(status) = victim.try_wait()? {
            bail!("the client in seat {seat} ended by itself: {status}");
        }
        victim.kill()?;
        victim.wait()?;
        self.clients[seat] = self.start(seat)?;
        Ok(())
    }

    /// Stops a client for a while.
    fn stop(&mut self, seat: usize) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.clients[seat]);
        rustix::process::kill_process(pid, Signal::STOP)?;
        let pause = self.chance.random_range(0..STOP_US_MAX);
        std::thread::sleep(Duration::from_micros(pause));
        rustix::process::kill_process(pid, Signal::CONT)?;
        Ok(())
    }

    fn look_for_stalls(&mut self, ledger: &Ledger<'_>, now: Nanos) {
        let waits = (0..self.clients.len()).filter_map(|seat| ledger.waiting_since(seat));
        let long = waits.filter(|since| now.saturating_sub(*since) > STALL.as_nanos() as Nanos);
        self.stalls = self.stalls.max(long.count() as u64);
    }

    /// Nobody is hurt any more: every survivor must be granted again, and then ends.
    fn calm_down(&mut self, ledger: &Ledger<'_>, clock: &ShmEndpoint) -> anyhow::Result<()> {
        let seats = 0..self.clients.len();
        let before: Vec<u64> = seats.clone().map(|seat| ledger.acquired(seat)).collect();
        let deadline = Instant::now() + STALL;
        let behind = |seat: &usize| ledger.acquired(*seat) < before[*seat] + LAST_GRANTS;
        while seats.clone().any(|seat| behind(&seat)) && Instant::now() < deadline {
            block_on(clock, clock.sleep(1_000_000));
        }
        self.stalls += seats.clone().filter(behind).count() as u64;
        ledger.stop();
        let deadline = Instant::now() + STALL;
        for seat in seats {
            while self.clients[seat].try_wait()?.is_none() {
                if Instant::now() > deadline {
                    self.stalls += 1;
                    break;
                }
                block_on(clock, clock.sleep(1_000_000));
            }
        }
        Ok(())
    }

    /// With everybody gone, every lock must be had at once, or by repair.
    fn check_free(&self) -> anyhow::Result<()> {
        let finder = Finder { locks: self.args.locks.into(), region: &self.region };
        registry::visit(self.protocol, finder)?
    }
}

struct Finder<'a> {
    locks: usize,
    region: &'a Region,
}

impl Visitor<ShmEndpoint> for Finder<'_> {
    type Output = anyhow::Result<()>;

    fn visit<L: RecordLock<ShmEndpoint>>(self, lock: L) -> anyhow::Result<()> {
        let client = Client::new(self.region.endpoint()?, lock, Options::default());
        for lock in 0..self.locks {
            let word = self.region.heap().0.plus(Ledger::lock_offset(lock));
            let patience = STALL.as_nanos() as Nanos;
            let guard = client.block_on(client.acquire_within(word, Mode::Exclusive, patience));
            guard.with_context(|| format!("lock {lock} is not free in the end"))?.unlock()?;
        }
        Ok(())
    }
}
