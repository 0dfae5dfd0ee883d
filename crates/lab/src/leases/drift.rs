//! `farlock-lab drift`: a year of leases, on clocks that go apart.
//!
//! Clients share one lock and use their leases to the last: half of the holds last until their
//! lease ends by the holder's own clock, many are never released. Every clock goes at a rate of its
//! own, for days, half the drift too fast or half of it too slow. What is judged: that nobody is
//! inside beside another while both leases last, each by its holder's clock, and that tokens grow
//! whatever the clocks do.

use std::time::Instant;

use anyhow::{Context, ensure};
use clap::{Args, value_parser};
use farlock_check::client::{AnyLock, named};
use farlock_fabric::{Addr, Endpoint, Nanos};
use farlock_locks::event::EventCounts;
use farlock_locks::registry;
use farlock_locks::{Mode, Options, ReleaseError};
use farlock_sim::{Config, Ratio, Task, Weakness, World};
use indicatif::ProgressBar;
use serde::Serialize;

use super::{Client, Inside, Verdict};
use crate::bench::trial;
use crate::provenance::Provenance;
use crate::record::grouped;
use crate::report::{show, table_of};
use crate::subject::Simulated;

/// The drift that the locks assume, in parts per million; ten times as much must do no harm either,
/// for their margins are larger.
const ASSUMED_PPM: u32 = 100;
const HARMLESS_PPM: u32 = 10 * ASSUMED_PPM;
/// A clock keeps its rate until it is so far off: for four days at the drift that is assumed. More
/// the simulation's clocks cannot be.
const CLOCK_ERROR_NS: Nanos = 18_000_000_000;
const DAY_NS: Nanos = 24 * 3_600 * 1_000_000_000;
/// The world stands still and shows how far it has come so often.
const STEPS: u64 = 64;

/// What to play.
#[derive(Clone, Debug, Args)]
pub struct DriftArgs {
    /// Locks with leases; a client that polls for hours should seldom poll
    #[arg(long, value_name = "NAME[,NAME..]", value_delimiter = ',')]
    #[arg(default_values = [
        "shiftlock:lease=60000000000:poll=15000000000",
        "dslr:lease=60000000000:omega=15000000000",
    ])]
    locks_kind: Vec<String>,
    /// How far apart two clocks go at most, in parts per million
    #[arg(long, value_name = "PPM[,PPM..]", value_delimiter = ',')]
    #[arg(default_values = ["100", "1000"])]
    #[arg(value_parser = value_parser!(u32).range(0..=1_900_000))]
    drift_ppm: Vec<u32>,
    /// How long, in virtual days
    #[arg(long, default_value_t = 365, value_parser = value_parser!(u64).range(1..=36_500))]
    days: u64,
    /// How many clients
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u16).range(2..=64))]
    clients: u16,
    /// Decides everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// One line of JSON per lock and drift
    #[arg(long)]
    json: bool,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
struct Row {
    protocol: String,
    clients: u16,
    days: u64,
    drift_ppm: u32,
    lease_ns: Nanos,
    #[serde(flatten)]
    verdict: Verdict,
    /// Holds that were never released.
    abandoned: u64,
    /// Holds that were released after their lease, and whose holders were told.
    lost: u64,
    /// Times that a client took the lock away from all.
    repaired: u64,
    events: u64,
    wall_seconds: f64,
    seed: u64,
}

/// Plays, and prints what came of it.
///
/// # Errors
/// Two held at once though their clocks agreed as well as the locks assume, or ten times worse; or
/// a token was no higher than one before it.
pub fn run(args: &DriftArgs, origin: &Provenance) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for lock in &args.locks_kind {
        ensure!(trial::facts(lock, 0)?.leased, "'{lock}' has no lease");
        for &drift_ppm in &args.drift_ppm {
            rows.push(play(args, lock, drift_ppm)?);
        }
    }
    let header = ["lock", "drift", "days", "grants", "abandoned", "lost", "repaired", "overlaps"];
    let header = [header.as_slice(), &["tokens back", "wall"]].concat();
    let cells = |row: &Row| {
        let verdict = row.verdict;
        let counts = [verdict.grants, row.abandoned, row.lost, row.repaired, verdict.overlaps];
        let mut cells = vec![row.protocol.clone(), format!("{} ppm", row.drift_ppm)];
        cells.extend([row.days.to_string()].into_iter().chain(counts.map(grouped)));
        cells.extend([grouped(verdict.tokens_back), format!("{:.1} s", row.wall_seconds)]);
        cells
    };
    show(origin, args.json, &rows, |rows| table_of(&header, 1, rows.iter().map(cells)))?;
    for row in &rows {
        let (name, verdict) = (&row.protocol, row.verdict);
        ensure!(verdict.grants > 0, "{name}: nobody was granted the lock");
        ensure!(verdict.tokens_back == 0, "{name}: tokens went back");
        let held = row.drift_ppm > HARMLESS_PPM || verdict.overlaps == 0;
        ensure!(held, "{name}: two held at once at {} ppm", row.drift_ppm);
    }
    Ok(())
}

fn play(args: &DriftArgs, lock: &str, drift_ppm: u32) -> anyhow::Result<Row> {
    let weakness = Weakness {
        lost: Ratio::NEVER,
        drift_ppb: drift_ppm * 1_000,
        clock_error_ns: CLOCK_ERROR_NS,
        ..Weakness::FULL
    };
    let config = Config { seed: args.seed, weakness, endpoints: args.clients, ..Config::default() };
    let world = World::new(config);
    let (word, inside) = (world.region(world.node(), 64), Inside::default());
    let end = args.days * DAY_NS;
    let kind = named(lock)?;
    let clients: Vec<Task<Account>> = (0..args.clients)
        .map(|who| Member { world: &world, word, inside: &inside, who, end }.spawn(&*kind))
        .collect();
    let (begun, bar) = (Instant::now(), ProgressBar::new(args.days));
    for step in 1..=STEPS {
        world.run_until(end / STEPS * step);
        bar.set_position(args.days * step / STEPS);
    }
    // Clients that are still at it come to their end.
    world.run();
    bar.finish_and_clear();
    let mut all = Account::default();
    for client in clients {
        let one = client.take().with_context(|| format!("a client of {lock} waits for ever"))?;
        all.abandoned += one.abandoned;
        all.lost += one.lost;
        all.events.repaired += one.events.repaired;
    }
    Ok(Row {
        protocol: lock.to_owned(),
        clients: args.clients,
        days: args.days,
        drift_ppm,
        lease_ns: registry::promises(lock)?.lease_ns.unwrap_or(0),
        verdict: inside.verdict(),
        abandoned: all.abandoned,
        lost: all.lost,
        repaired: all.events.repaired,
        events: world.stats().events,
        wall_seconds: begun.elapsed().as_secs_f64(),
        seed: args.seed,
    })
}

/// What a client did.
#[derive(Clone, Copy, Default)]
struct Account {
    abandoned: u64,
    lost: u64,
    events: EventCounts,
}

/// A client of the lock.
struct Member<'a> {
    world: &'a World,
    word: Addr,
    inside: &'a Inside,
    who: u16,
    end: Nanos,
}

impl Member<'_> {
    fn spawn(self, lock: &dyn AnyLock<Simulated>) -> Task<Account> {
        let lease_ns = lock.kind().promises().lease_ns.unwrap_or(0);
        let client = lock.client(Simulated::new(self.world.endpoint()), Options::new(1));
        let id = client.endpoint().id();
        let (handle, inside) = (self.world.handle(), self.inside.clone());
        let (word, who, end) = (self.word, self.who, self.end);
        self.world.spawn(id, async move {
            let mut account = Account::default();
            while handle.now() < end {
                hold(&client, word, who, &inside, &mut account).await;
                // Mostly there is a waiter in line; now and then everybody is away for a day.
                let chance = client.endpoint().random();
                let away = if chance & 15 == 0 { 200 * lease_ns } else { 2 * lease_ns };
                client.endpoint().sleep((chance >> 4) % away).await;
            }
            account.events = client.events();
            account
        })
    }
}

/// One hold, as long as it may last or shorter.
async fn hold(client: &Client, word: Addr, who: u16, inside: &Inside, account: &mut Account) {
    let endpoint = client.endpoint();
    let chance = endpoint.random();
    let mode = if chance & 1 == 0 { Mode::Shared } else { Mode::Exclusive };
    let guard = client.acquire(word, mode).await.expect("nothing fails");
    inside.enter(who, client, &guard);
    let left = guard.expires().expect("a lease").saturating_sub(endpoint.now());
    let stay = if chance & 2 == 0 { left } else { (chance >> 8) % (left + 1) };
    endpoint.sleep(stay).await;
    inside.leave(who);
    if chance & 28 == 0 {
        guard.abandon();
        account.abandoned += 1;
        return;
    }
    match guard.release().await {
        Err(ReleaseError::Lost) => account.lost += 1,
        released => released.expect("nothing fails"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_day(lock: &str, drift_ppm: u32) -> Row {
        let args = DriftArgs {
            locks_kind: Vec::new(),
            drift_ppm: Vec::new(),
            days: 1,
            clients: 6,
            seed: 1,
            json: false,
        };
        play(&args, lock, drift_ppm).expect("it plays")
    }

    #[test]
    fn leases_last_on_clocks_that_agree_well_enough() {
        let locks = [
            "shiftlock:lease=60000000000:poll=15000000000",
            "dslr:lease=60000000000:omega=15000000000",
        ];
        for lock in locks {
            let row = a_day(lock, HARMLESS_PPM);
            assert!(row.verdict.grants > 500 && row.abandoned > 50 && row.lost > 50, "{row:?}");
            assert_eq!((row.verdict.overlaps, row.verdict.tokens_back), (0, 0), "{row:?}");
        }
    }

    /// The judge judges: clocks of which one runs many times as fast as the other do harm. Tokens
    /// grow all the same, where readers' releases compare. The leases are short, for such clocks
    /// soon turn.
    #[test]
    fn clocks_that_have_nothing_to_do_with_each_other_are_seen_to_do_harm() {
        let locks = [
            "shiftlock:lease=1000000000:strict:poll=250000000",
            "dslr:lease=1000000000:omega=250000000",
        ];
        for lock in locks {
            let row = a_day(lock, 1_800_000);
            assert!(row.verdict.overlaps > 0, "{row:?}");
            assert_eq!(row.verdict.tokens_back, 0, "{row:?}");
        }
    }
}
