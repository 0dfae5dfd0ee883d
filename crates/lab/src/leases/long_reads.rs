//! `farlock-lab long-reads`: long reads among short transactions, with one lease for all and with
//! tickets that are worth several (paper 004, section 6.5 and figure 11).
//!
//! A transaction is one lock, held for a while. A short one holds for microseconds; a long one
//! reads for some leases. With fixed leases a long read is cut short, and a waiter behind it
//! finds its own ticket void: both abort, pause for a random time and begin again. With tickets
//! worth several slots neither happens.

use anyhow::{Context, ensure};
use clap::{Args, value_parser};
use farlock_check::client::{AnyLock, named};
use farlock_fabric::{Addr, Endpoint, Nanos};
use farlock_locks::{Mode, Options, ReleaseError};
use farlock_sim::{Config, Ended, Task, Weakness, World};
use serde::Serialize;

use super::{Client, Inside, Verdict, percent};
use crate::provenance::Provenance;
use crate::record::grouped;
use crate::report::{show, table_of};
use crate::subject::Simulated;

/// How long a short transaction holds, in nanoseconds, and how long a long one, in leases.
const SHORT_NS: Nanos = 50_000;
const LONG_LEASES: Nanos = 3;
/// What a ticket is worth for a long read: its leases, and one for how long it takes to get there.
const SLOTS: u16 = LONG_LEASES as u16 + 1;

/// The pause between two looks for each ticket ahead, in nanoseconds: most waits last milliseconds.
const OMEGA_NS: Nanos = 100_000;

/// What to play.
#[derive(Clone, Debug, Args)]
pub struct LongReadsArgs {
    /// Shares of transactions that are long reads, in percent
    #[arg(long, value_name = "PERCENT[,PERCENT..]", value_delimiter = ',')]
    #[arg(default_values = ["5", "10", "20", "30", "40", "50"])]
    #[arg(value_parser = value_parser!(u8).range(0..=100))]
    long: Vec<u8>,
    /// How many clients
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u16).range(2..=512))]
    clients: u16,
    /// How many locks
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u16).range(1..=4096))]
    locks: u16,
    /// Which lock, of those whose tickets may be worth several slots
    #[arg(long, value_name = "NAME", default_value = "dslr")]
    lock: String,
    /// The lease, in nanoseconds
    #[arg(long, default_value_t = 10_000_000, value_parser = value_parser!(u64).range(10_000..))]
    lease_ns: Nanos,
    /// How long, in virtual seconds
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Decides everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// One line of JSON per share and kind of lease
    #[arg(long)]
    json: bool,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
struct Row {
    protocol: String,
    leases: &'static str,
    long_percent: u8,
    clients: u16,
    locks: u16,
    seconds: u64,
    lease_ns: Nanos,
    #[serde(flatten)]
    account: Account,
    #[serde(flatten)]
    verdict: Verdict,
    seed: u64,
}

/// Plays, and prints what came of it.
///
/// # Errors
/// A transaction aborted though its ticket was worth as much as it took, or two held at once.
pub fn run(args: &LongReadsArgs, origin: &Provenance) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for &long_percent in &args.long {
        for slots in [1, SLOTS] {
            rows.push(play(args, long_percent, slots)?);
        }
    }
    let header = ["long reads", "leases", "commits/s", "long commits/s", "aborts", "aborted"];
    let cells = |row: &Row| {
        let account = row.account;
        let (commits, aborts) = (account.short + account.long, account.cut + account.evicted);
        vec![
            format!("{} %", row.long_percent),
            row.leases.to_owned(),
            grouped(commits / row.seconds),
            grouped(account.long / row.seconds),
            grouped(aborts),
            percent(aborts, commits + aborts),
        ]
    };
    show(origin, args.json, &rows, |rows| table_of(&header, 1, rows.iter().map(cells)))?;
    for row in &rows {
        ensure!(row.verdict.overlaps + row.verdict.tokens_back == 0, "two held at once: {row:?}");
        let aborts = row.account.cut + row.account.evicted;
        ensure!(row.leases == FIXED || aborts == 0, "{aborts} aborts: {row:?}");
    }
    Ok(())
}

const FIXED: &str = "fixed";
const SEVERAL: &str = "several slots";

fn play(args: &LongReadsArgs, long_percent: u8, slots: u16) -> anyhow::Result<Row> {
    let endpoints = 2 * args.clients;
    let (seed, weakness) = (args.seed, Weakness::NONE);
    let world = World::new(Config { seed, weakness, endpoints, ..Config::default() });
    let base = world.region(world.node(), u64::from(args.locks) * 64);
    let inside: Vec<Inside> = (0..args.locks).map(|_| Inside::default()).collect();
    let (lock, lease_ns) = (&args.lock, args.lease_ns);
    let lease = format!("{lock}:lease={lease_ns}:slots-max={slots}:omega={OMEGA_NS}");
    let course = Course { long_percent, base, lease_ns, end: args.seconds * 1_000_000_000 };
    // The lock of short transactions; that of long ones has the same word.
    let (short, long) = (named(&lease)?, named(&format!("{lease}:slots={slots}"))?);
    let clients: Vec<Task<Account>> = (0..args.clients)
        .map(|who| Member { world: &world, inside: &inside, who, course }.spawn(&*short, &*long))
        .collect();
    let ended = world.run();
    ensure!(ended == Ended::Finished, "the simulated world ended in {ended:?}");
    let mut account = Account::default();
    for client in clients {
        account.add(client.take().context("a client has not finished")?);
    }
    let mut verdict = Verdict::default();
    for one in inside.iter().map(Inside::verdict) {
        verdict.grants += one.grants;
        verdict.overlaps += one.overlaps;
        verdict.tokens_back += one.tokens_back;
    }
    Ok(Row {
        protocol: lock.clone(),
        leases: if slots == 1 { FIXED } else { SEVERAL },
        long_percent,
        clients: args.clients,
        locks: args.locks,
        seconds: args.seconds,
        lease_ns,
        account,
        verdict,
        seed,
    })
}

/// How transactions went.
#[derive(Clone, Copy, Default, Debug, Serialize)]
struct Account {
    /// Short ones that were done.
    short: u64,
    /// Long ones that were done.
    long: u64,
    /// Aborted since their lease ended before they did.
    cut: u64,
    /// Aborted since their ticket became void while they waited.
    evicted: u64,
}

impl Account {
    fn add(&mut self, other: Self) {
        self.short += other.short;
        self.long += other.long;
        self.cut += other.cut;
        self.evicted += other.evicted;
    }
}

#[derive(Clone, Copy)]
struct Course {
    long_percent: u8,
    base: Addr,
    lease_ns: Nanos,
    end: Nanos,
}

struct Member<'a> {
    world: &'a World,
    inside: &'a [Inside],
    who: u16,
    course: Course,
}

impl Member<'_> {
    fn spawn(self, short: &dyn AnyLock<Simulated>, long: &dyn AnyLock<Simulated>) -> Task<Account> {
        let Self { world, inside, who, course } = self;
        let client = |lock: &dyn AnyLock<Simulated>| {
            lock.client(Simulated::new(world.endpoint()), Options::new(1))
        };
        let (short, long) = (client(short), client(long));
        let inside = inside.to_vec();
        world.spawn(short.endpoint().id(), async move {
            let mut account = Account::default();
            let endpoint = short.endpoint();
            while endpoint.now() < course.end {
                let chance = endpoint.random();
                let number = (chance >> 32) as usize % inside.len();
                let word = course.base.plus(number as u64 * 64);
                let (judge, mut aborts) = (&inside[number], 0);
                if chance % 100 < u64::from(course.long_percent) {
                    let work = LONG_LEASES * course.lease_ns;
                    while !transact(&long, word, Mode::Shared, work, judge, who, &mut account).await
                        && endpoint.now() < course.end
                    {
                        pause(endpoint, course, &mut aborts).await;
                    }
                } else {
                    let mode = Mode::Exclusive;
                    while !transact(&short, word, mode, SHORT_NS, judge, who, &mut account).await
                        && endpoint.now() < course.end
                    {
                        pause(endpoint, course, &mut aborts).await;
                    }
                }
            }
            account
        })
    }
}

/// A client that aborted begins again after a random time, longer each time.
async fn pause(endpoint: &Simulated, course: Course, aborts: &mut u32) {
    *aborts = (*aborts + 1).min(4);
    endpoint.sleep(endpoint.random() % (course.lease_ns << *aborts)).await;
}

/// One attempt. Whether it was done.
async fn transact(
    client: &Client,
    word: Addr,
    mode: Mode,
    work: Nanos,
    inside: &Inside,
    who: u16,
    account: &mut Account,
) -> bool {
    let restarts = client.events().restarted;
    let guard = client.acquire(word, mode).await.expect("nothing fails");
    let evicted = client.events().restarted > restarts;
    let mut done = false;
    if evicted {
        account.evicted += 1;
    } else {
        inside.enter(who, client, &guard);
        client.endpoint().sleep(work).await;
        inside.leave(who);
        done = guard.expires() > Some(client.endpoint().now());
        match (done, mode) {
            (false, _) => account.cut += 1,
            (true, Mode::Shared) => account.long += 1,
            (true, Mode::Exclusive) => account.short += 1,
        }
    }
    match guard.release().await {
        Ok(()) | Err(ReleaseError::Lost) => done,
        Err(error) => panic!("nothing fails: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figure 11, in small.
    #[test]
    fn only_tickets_worth_several_slots_keep_long_reads_alive() {
        for lock in ["dslr", "dslr-64"] {
            let args = LongReadsArgs {
                long: Vec::new(),
                clients: 12,
                locks: 8,
                lock: lock.to_owned(),
                lease_ns: 10_000_000,
                seconds: 2,
                seed: 1,
                json: false,
            };
            let fixed = play(&args, 20, 1).expect("it plays").account;
            let several = play(&args, 20, SLOTS).expect("it plays").account;
            assert!(fixed.cut > 0 && fixed.evicted > 0 && fixed.long == 0, "{lock}: {fixed:?}");
            assert!(several.long > 0 && several.cut + several.evicted == 0, "{lock}: {several:?}");
        }
    }
}
