//! `farlock-lab storm`: real processes on shared memory are killed, stopped and started again, most
//! of them at the boundaries of their verbs ([`strike`]), the others at any moment.
//!
//! What is judged: that nobody living holds beside anybody living, that tokens grow, that no
//! survivor waits for long, and that every lock is free in the end. The judges share nothing with
//! the protocols: a [`ledger`] in memory, or, of locks that are had in parts, a [`log`] of who held
//! which of them, which is read when all is over ([`holds`]).

pub(crate) mod args;
mod crew;
pub mod faces;
pub mod holds;
pub mod kv;
pub mod ledger;
mod links;
pub mod log;
pub mod part;
pub mod pulse;
pub mod report;
mod serving;
pub mod spans;
pub mod story;
pub mod strike;
pub mod verdict;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use farlock_check::client::{block_on, named};
use farlock_check::{CANARY, Unchecked, say, subjects, tell};
use farlock_fabric::shm::{Region, ShmEndpoint};
use farlock_fabric::{Endpoint, Nanos};
use farlock_locks::{Mode, Options, registry};
use indicatif::{ProgressBar, ProgressStyle};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::client::units_of;
use crate::provenance::Provenance;
use crate::report::line;
use crate::scratch::Scratch;
use crate::subject::{Hooked, unstruck};
use crew::Crew;
use faces::Face;
use ledger::{Ledger, Weather};
use log::{Log, Reader, Record};
use pulse::Pulse;
use report::Row;
use story::Story;
use strike::Moment;
use verdict::Verdict;

pub use args::StormArgs;
pub(crate) use args::{named_or_all, region_options};

/// A survivor that waits longer than this is said to wait for ever.
const STALL: Duration = Duration::from_secs(5);
/// In the end every survivor is granted so many times more.
const LAST_GRANTS: u64 = 20;
/// The longest time between two strikes from outside, in microseconds.
const LULL_US_MAX: u64 = 20_000;
/// Kills by default.
const KILLS: u64 = 10_000;
/// How often the crew is looked after.
const TICK: Duration = Duration::from_micros(500);

/// Storms, one lock after another. Fails if anything was violated or anybody stalled, but for the
/// canary, which must be violated.
pub fn run(args: &StormArgs, origin: &Provenance) -> anyhow::Result<()> {
    if let Some(face) = args.face {
        return match face {
            Face::Kv => kv::run(args, origin),
            face => faces::run(args, face, origin),
        };
    }
    args.check_heeded()?;
    let outlives = |name: &str| subjects::player(name).is_ok_and(|player| player.outlives);
    let protocols = named_or_all(&args.protocol, outlives);
    if args.protocol == "all" {
        let left_out = named_or_all("all", |name| !outlives(name)).join(", ");
        tell(format_args!("left out, since they do not outlive their clients: {left_out}"));
    } else if registry::promises(&args.protocol).map_err(Unchecked::because_of)?.served {
        bail!(Unchecked(format!("{} asks servers, which no storm starts", args.protocol)));
    }
    protocols.iter().try_for_each(|protocol| check_unleased(protocol))?;
    let kills = args.kills.unwrap_or(KILLS).div_ceil(protocols.len() as u64);
    let mut rows = Vec::new();
    for protocol in protocols {
        let row = storm(args, protocol, kills).with_context(|| (*protocol).to_owned())?;
        if args.json {
            line(origin, &row)?;
        }
        rows.push(row);
    }
    if !args.json {
        say(report::table(&rows))?;
        if rows.iter().any(|row| row.protocol == CANARY && row.violations > 0) {
            say(format_args!("{CANARY} excludes nobody: that the judges see it is what is asked"))?;
        }
    }
    rows.iter().try_for_each(Row::pass)
}

/// Refuses a lock whose holds end by themselves: the ledger knows no time.
fn check_unleased(protocol: &str) -> anyhow::Result<()> {
    let leased = subjects::player(protocol).map_err(Unchecked::because)?.is_leased();
    ensure!(
        !leased,
        Unchecked(format!(
            "{protocol} has leases: a holder that is stopped for longer has lost the lock, which a \
             storm does not judge; takeover --protocol {protocol} --stops N does"
        ))
    );
    Ok(())
}

/// A storm over one lock, in which at least so many clients are killed.
fn storm(args: &StormArgs, protocol: &str, kills: u64) -> anyhow::Result<Row> {
    let begun = Instant::now();
    let (locks, seats) = (args.locks(), usize::from(args.clients));
    let scratch = Scratch::new()?;
    let mut options = region_options(scratch.path(), "storm");
    (options.create, options.heap_bytes) = (true, Ledger::words(locks, seats) as u64 * 8);
    let region = Region::open(&options).context("cannot create the region")?;
    check_free(protocol, &region, locks)?;
    let units = units_of(named::<Hooked>(protocol)?.kind());
    ensure!(units.is_some() || !args.exaggerated, "{protocol} is not had in parts");
    let log = units.map(|_| Log::open(scratch.path())).transpose()?;
    let crew = Crew::board(args, protocol, scratch.path(), log)?;
    let ledger = Ledger::new(region.words(), locks, seats);
    let (clock, pulse) = (region.endpoint()?, Pulse::new());
    let mut storm = Storm { ledger, clock, crew, pulse, stalls: 0 };
    storm.rage(args, protocol, kills)?;
    storm.calm_down()?;
    let verdict = match units {
        Some(_) => judge_parts(&Reader::open(scratch.path())?.news()?),
        None => Verdict::default(),
    };
    verdict.examples.iter().for_each(tell);
    let row = Row {
        protocol: protocol.to_owned(),
        clients: args.clients,
        locks: args.locks() as u16,
        kills: storm.crew.kills,
        kills_at: Moment::ALL.map(|moment| (moment.name(), ledger.died_at(moment))).into(),
        stops: storm.crew.stops,
        acquisitions: ledger.acquisitions(),
        parts: units.map(|_| verdict.granted),
        exaggerated: args.exaggerated,
        violations: ledger.violations() + verdict.overlaps + verdict.token_errors,
        stalls: storm.stalls,
        longest_wait_ns: ledger.longest_wait(),
        late_wakes: ledger.late_wakes(),
        longest_pause_ns: storm.pulse.longest_pause(),
        seconds: begun.elapsed().as_secs_f64(),
        seed: args.seed,
    };
    drop(storm);
    check_free(protocol, &region, locks)?;
    Ok(row)
}

struct Storm<'a> {
    ledger: Ledger<'a>,
    /// Tells the time by which clients say since when they wait.
    clock: ShmEndpoint,
    crew: Crew<'a>,
    pulse: Pulse,
    stalls: u64,
}

impl Storm<'_> {
    fn rage(&mut self, args: &StormArgs, protocol: &str, kills: u64) -> anyhow::Result<()> {
        let bar = if args.json || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else {
            let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len}");
            ProgressBar::new(kills).with_style(style.expect("it is a template"))
        };
        bar.set_prefix(protocol.to_owned());
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(args.seed);
        let mut next_strike = Instant::now();
        while self.crew.kills < kills {
            self.pass_a_tick()?;
            bar.set_position(self.crew.kills);
            if Instant::now() >= next_strike {
                self.crew.strike()?;
                next_strike += Duration::from_micros(chance.random_range(0..LULL_US_MAX));
            }
            self.look_for_stalls();
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn pass_a_tick(&mut self) -> anyhow::Result<()> {
        std::thread::sleep(TICK);
        self.pulse.beat();
        self.crew.tend(&self.ledger)
    }

    fn look_for_stalls(&mut self) {
        let now = self.clock.now();
        let waits = self.ledger.seats().filter_map(|seat| self.ledger.waiting_since(seat));
        let long = waits.filter(|since| now.saturating_sub(*since) > STALL.as_nanos() as Nanos);
        self.stalls = self.stalls.max(long.count() as u64);
    }

    /// Nobody is hurt any more: every survivor must be granted again, and then ends.
    fn calm_down(&mut self) -> anyhow::Result<()> {
        let ledger = self.ledger;
        ledger.turn(Weather::Calm);
        let before: Vec<u64> = ledger.seats().map(|seat| ledger.acquired(seat)).collect();
        let behind = |seat: &usize| ledger.acquired(*seat) < before[*seat] + LAST_GRANTS;
        self.tend_until(|_| !ledger.seats().any(|seat| behind(&seat)))?;
        self.stalls += ledger.seats().filter(behind).count() as u64;
        ledger.turn(Weather::Over);
        self.tend_until(|crew| crew.left() == 0)?;
        self.stalls += self.crew.left() as u64;
        Ok(())
    }

    /// Looks after the crew until this holds, or for as long as nobody may wait.
    fn tend_until(&mut self, done: impl Fn(&Crew<'_>) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + STALL;
        while !done(&self.crew) && Instant::now() < deadline {
            self.pass_a_tick()?;
        }
        Ok(())
    }
}

/// What the log of a storm tells of holds of parts. A lock that has tokens has them always.
fn judge_parts(records: &[Record]) -> Verdict {
    let (story, mut verdict) = (Story::read(records), Verdict::default());
    let tokens = story.ops.iter().any(|op| op.token > 0);
    for ops in story.by_lock() {
        verdict.granted += ops.len() as u64;
        story.judge_overlaps(&ops, &mut verdict);
        if tokens {
            story.judge_tokens(&ops, &mut verdict);
        }
    }
    verdict
}

/// With nobody there, every lock must be had at once, or by repair.
fn check_free(protocol: &str, region: &Region, locks: usize) -> anyhow::Result<()> {
    let client = named(protocol)?.client(unstruck(region.endpoint()?), Options::default());
    for lock in 0..locks {
        let word = region.heap().0.plus(Ledger::lock_offset(lock));
        let patience = STALL.as_nanos() as Nanos;
        let guard = block_on(&*client, client.acquire_within(word, Mode::Exclusive, patience));
        block_on(&*client, guard.with_context(|| format!("lock {lock} is not free"))?.release())?;
    }
    Ok(())
}
