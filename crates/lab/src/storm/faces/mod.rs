//! `farlock-lab storm --face`: real sessions and real commands are killed, stopped, timed out and
//! dropped at any moment, and judged from outside.
//!
//! ```text
//! session         workers that use the crate `farlock`: awaited or not, within, at_once, dropped
//! command         `farlock lock NAME -- ..` again and again: endless, -w, -n
//! range           the same workers; threads of a session have several ranges at a time
//! range-command   `farlock lock -r START:LEN NAME -- ..`, as commands
//! ```
//!
//! A range is 1, 16 or 256 units of a table long, open at its end, or all of the table.
//!
//! Holders write down when they came and went (`inside`, `log`); the crew writes down whom it kills
//! and stops, and when (`crew`). A judge reads that log when all is over (`judge`), and shares no
//! code with farlock. It must find out processes that take no lock at all (`--canary`), and object
//! to nothing where the same processes take the kernel's (`--reference`).

mod account;
mod ask;
pub mod bounds;
mod crew;
mod draw;
pub mod inside;
pub mod judge;
mod plan;
mod ranges;
pub mod report;
mod several;
pub mod start;
pub mod worker;

use std::time::{Duration, Instant};

use anyhow::ensure;
use farlock_check::{Unchecked, say, tell};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::args::StormArgs;
use super::log::{Reader, What};
use super::pulse::Pulse;
use super::serving::{LEASE, LOSES, Serving};
use crate::latency::Latency;
use crate::provenance::Provenance;
use crate::report::line;
use crate::scratch::Scratch;
use crew::Crew;
use judge::Known;
use plan::{Storm, Taken};
use report::Row;

pub use plan::Face;

/// How often the crew is looked after.
const TICK: Duration = Duration::from_micros(300);
/// How long those who are left may take to be granted and to end, when nobody is hurt any more.
const CALM_MAX: Duration = Duration::from_secs(5);
/// How long a server may take to learn of a death, with all processors busy.
const TOLD_NS: u64 = 100_000_000;
/// Kills by default.
const KILLS: u64 = 200;
/// How long a storm may last by default, in seconds: as such, and for each kill and stop.
const SECONDS: f64 = 100.0;
const SECONDS_A_STRIKE: f64 = 0.1;
/// Locks by default: one that half of all ask for, and others that are often free.
const LOCKS: u16 = 4;
/// How many may pass a waiter, for each that stands in line: the bound of the lock of sessions
/// between two grants of the line, and the one that is granted.
const PASSES: u64 = 65;

/// Storms, and prints what came of it. Fails if the judge objects, but for the canary: there it
/// must.
pub(super) fn run(args: &StormArgs, face: Face, origin: &Provenance) -> anyhow::Result<()> {
    check(args, face)?;
    let scratch = Scratch::new()?;
    let serving = Serving::asked(args, scratch.path())?;
    let links = serving.as_ref().map(Serving::links).transpose()?.flatten();
    let kills = args.kills.unwrap_or(KILLS);
    let stops = args.stops.unwrap_or(kills);
    let enough = SECONDS + (kills + stops + args.cuts) as f64 * SECONDS_A_STRIKE;
    let storm = Storm {
        face,
        dir: scratch.path(),
        clients: args.clients,
        threads: args.threads,
        locks: args.locks.unwrap_or(LOCKS).into(),
        kills,
        stops,
        seed: args.seed,
        taken: match (args.canary, args.reference, args.exaggerated) {
            (true, _, _) => Taken::Nothing,
            (_, true, _) => Taken::Kernel,
            (_, _, true) => Taken::Less,
            _ => Taken::Farlock,
        },
        limit: Duration::from_secs_f64(args.seconds.unwrap_or(enough)),
        restarts: args.restarts,
        cuts: args.cuts,
        is_secured: args.tls,
        server: serving.as_ref().map(|serving| serving.address.clone()),
        links,
    };
    let row = storm.run(serving)?;
    for example in &row.verdict.examples {
        tell(example);
    }
    for line in &row.verdict.account {
        tell(format_args!("  {line}"));
    }
    if row.verdict.failures > 0 {
        let said = crew::said(storm.dir);
        tell(said.lines().rev().take(5).collect::<Vec<_>>().join("\n"));
    }
    if args.json {
        line(origin, &row)?;
    } else {
        say(report::table(&row))?;
    }
    row.pass()
}

/// Refuses what makes no sense at this face.
fn check(args: &StormArgs, face: Face) -> anyhow::Result<()> {
    ensure!(
        face != Face::RangeCommand || !args.reference,
        "the kernel has no command that locks ranges"
    );
    ensure!(face.has_ranges() || !args.exaggerated, "a session's locks are had as a whole");
    ensure!(
        args.workload.is_none() && args.index.is_none() && args.parts == 1,
        Unchecked("--workload, --index and --parts are for --face kv".into())
    );
    ensure!(
        face == Face::Session || args.cuts == 0,
        "a command, or a table, that loses its server fails: connections of sessions are broken"
    );
    ensure!(
        face == Face::Session || args.threads == 1,
        Unchecked("--threads is for --face session".into())
    );
    Ok(())
}

impl Storm<'_> {
    fn run(&self, mut serving: Option<Serving>) -> anyhow::Result<Row> {
        let begun = Instant::now();
        inside::prepare(self.dir, self.locks)?;
        worker::prepare(self.dir)?;
        let mut crew = Crew::board(self)?;
        let mut pulse = Pulse::new();
        let restarts = self.rage(&mut crew, &mut pulse, serving.as_mut())?;
        crew.calm_down()?;
        let deadline = Instant::now() + CALM_MAX;
        while crew.left() > 0 && Instant::now() < deadline {
            pass_a_tick(&mut crew, &mut pulse)?;
        }
        let (kills, endings, stops, cuts) = (crew.kills, crew.endings, crew.stops, crew.cuts);
        crew.end()?;
        let (entering_ns, tokens) = (self.face.entering_ns(), self.taken.is_farlocks());
        serving.map_or(Ok(()), |mut serving| serving.end())?;
        let lives_on_ns = if restarts + cuts > 0 { LEASE.as_nanos() as u64 } else { 0 };
        let told_ns = if self.server.is_some() { TOLD_NS } else { 0 };
        let log = Reader::open(self.dir)?.news()?;
        let passes_max = tokens.then(|| PASSES * u64::from(self.clients) * u64::from(self.threads));
        let ranges = self.face.has_ranges();
        let loses_ns = LOSES.as_nanos() as u64;
        let known =
            Known { entering_ns, told_ns, lives_on_ns, loses_ns, tokens, ranges, passes_max };
        let mut verdict = judge::judge(&log, known);
        let entered = log.iter().filter(|record| record.what == What::Enters);
        let granted_by_server = entered.filter(|record| self.is_served(record.who)).count() as u64;
        // Until then those that died while there was no server live on.
        std::thread::sleep(Duration::from_nanos(lives_on_ns));
        verdict.left_over = worker::left_over(self)?;
        let mut takeover = Latency::default();
        verdict.takeovers.iter().for_each(|nanos| takeover.record(*nanos));
        Ok(Row {
            face: self.face.name(),
            clients: self.clients,
            threads: self.threads,
            locks: self.locks,
            taken: self.taken.name(),
            served: self.server.is_some(),
            tls: self.is_secured,
            granted_by_server,
            restarts,
            kills_asked: self.kills,
            stops_asked: self.stops,
            cuts_asked: self.cuts,
            kills,
            endings,
            stops,
            cuts,
            verdict,
            takeovers: takeover.count(),
            takeover_ns: takeover.summary(),
            longest_pause_ns: pulse.longest_pause(),
            seconds: begun.elapsed().as_secs_f64(),
            seed: self.seed,
        })
    }

    /// Hurts people until it is enough, or has taken too long. Returns how often the server was
    /// killed.
    fn rage(
        &self,
        crew: &mut Crew<'_>,
        pulse: &mut Pulse,
        mut serving: Option<&mut Serving>,
    ) -> anyhow::Result<u64> {
        let mut restarts = 0;
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(!self.seed);
        let begun = Instant::now();
        let mut next_strike = begun;
        let is_enough = |crew: &Crew<'_>, restarts| {
            let clients = crew.kills >= self.kills && crew.stops >= self.stops;
            clients && restarts >= self.restarts && crew.cuts >= self.cuts
        };
        while !is_enough(crew, restarts) {
            if begun.elapsed() > self.limit {
                break;
            }
            pass_a_tick(crew, pulse)?;
            if Instant::now() < next_strike {
                continue;
            }
            next_strike = Instant::now();
            next_strike += Duration::from_micros(chance.random_range(0..2 * self.face.lull_us()));
            let kills_left = self.kills.saturating_sub(crew.kills);
            let stops_left = self.stops.saturating_sub(crew.stops);
            let cuts_left = self.cuts.saturating_sub(crew.cuts);
            let restarts_left = self.restarts.saturating_sub(restarts);
            let clients_left = kills_left + stops_left;
            let chosen = chance.random_range(0..clients_left + cuts_left + restarts_left);
            if chosen < kills_left {
                crew.kill()?;
            } else if chosen < clients_left {
                crew.stop()?;
            } else if chosen < clients_left + cuts_left {
                crew.cut()?;
            } else if let Some(serving) = &mut serving {
                serving.restart(self.dir)?;
                restarts += 1;
            }
        }
        Ok(restarts)
    }
}

fn pass_a_tick(crew: &mut Crew<'_>, pulse: &mut Pulse) -> anyhow::Result<()> {
    std::thread::sleep(TICK);
    pulse.beat();
    crew.tend()
}
