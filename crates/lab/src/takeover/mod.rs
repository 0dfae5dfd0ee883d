//! `farlock-lab takeover`: how long a lock stays away when its holder dies.
//!
//! The holder of a lock is killed while others sleep in line for it. From just before the kill to
//! the first waiter's grant is the takeover. Before the first kill everybody idles for a second,
//! and a process that runs in it was woken for nothing. Holders of leases are stopped as well, past
//! the end of the lease and the grant of another: what they write when they go on is late, and a
//! register that looks at tokens must refuse it ([`board`]).

mod args;
pub mod board;
mod cast;
pub mod report;

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use farlock_fabric::Endpoint;
use farlock_fabric::shm::{Region, ShmEndpoint};
use farlock_locks::registry;

use crate::client::{DONE, HELD, REFUSED, Role};
use crate::latency::Latency;
use crate::provenance::Provenance;
use crate::report::line;
use crate::scratch::Scratch;
use crate::storm::{named_or_all, region_options};
use board::{Board, Register};
use cast::{Actor, Cast};
use report::Row;

pub use args::TakeoverArgs;

/// How long everybody idles before the first kill.
const IDLE: Duration = Duration::from_secs(1);

/// How long before that they come to rest: a waiter looks a few times before it sleeps for good.
const REST: Duration = Duration::from_millis(400);

/// Takes over, one lock after another. Fails if a judge objects.
pub fn run(args: &TakeoverArgs, origin: &Provenance) -> anyhow::Result<()> {
    let protocols = named_or_all(&args.protocol, |name| has_line(name).unwrap_or(false));
    let mut rows = Vec::new();
    for protocol in protocols {
        has_line(protocol)?;
        let row = take_over(args, protocol).with_context(|| (*protocol).to_owned())?;
        if args.json {
            line(origin, &row)?;
        }
        rows.push(row);
    }
    if !args.json {
        farlock_check::say(report::table(&rows))?;
    }
    rows.iter().try_for_each(Row::pass)
}

/// Whether clients of a lock stand in line, and sleep there. One that polls is woken by its clock.
fn has_line(lock: &str) -> anyhow::Result<bool> {
    let promises = registry::promises(lock)?;
    Ok(promises.outlives_clients && promises.order.bypass_max.is_some())
}

/// All deaths of one lock's holders.
fn take_over(args: &TakeoverArgs, protocol: &str) -> anyhow::Result<Row> {
    let begun = Instant::now();
    let seats = usize::from(args.waiters) + 1;
    let scratch = Scratch::new()?;
    let mut options = region_options(scratch.path(), "takeover");
    (options.create, options.heap_bytes) = (true, Board::words(seats) as u64 * 8);
    let region = Region::open(&options).context("cannot create the region")?;
    let cast = Cast::assemble(args, protocol, scratch.path())?;
    let board = Board::new(region.words(), seats);
    let mut stage = Stage { board, clock: region.endpoint()?, cast };
    let idle_wakeups = stage.idle()?;
    let (mut first, mut last) = (Latency::default(), Latency::default());
    for _ in 0..args.kills {
        let (one, all) = stage.kill()?;
        first.record(one);
        last.record(all);
    }
    let (mut late_refused, mut late_unfenced) = (0, 0);
    for _ in 0..args.stops {
        let (refused, spoiled) = stage.stop()?;
        late_refused += u64::from(refused);
        late_unfenced += u64::from(spoiled);
    }
    Ok(Row {
        protocol: protocol.to_owned(),
        waiters: args.waiters,
        resident_mib: args.resident,
        placement: args.placement.name().to_owned(),
        kills: args.kills,
        takeover_ns: first.summary(),
        all_granted_ns: last.summary(),
        idle_wakeups,
        stops: args.stops,
        late_refused,
        late_unfenced,
        violations: board.ledger().violations(),
        seconds: begun.elapsed().as_secs_f64(),
    })
}

struct Stage<'a> {
    board: Board<'a>,
    /// Tells the time by which clients say when they were granted.
    clock: ShmEndpoint,
    cast: Cast<'a>,
}

impl Stage<'_> {
    /// A holder, and everybody else asleep in line.
    fn set(&mut self, role: Role) -> anyhow::Result<Actor> {
        let holder = self.cast.start(role, 0)?;
        holder.expect(HELD)?;
        self.cast.send_waiters(&self.board)?;
        Ok(holder)
    }

    /// Everybody waits. Returns how often a process was woken all the same; `None` if a lease ends
    /// by itself, for then one must be.
    fn idle(&mut self) -> anyhow::Result<Option<u64>> {
        let mut holder = self.set(Role::Holder)?;
        let idles = self.board.ends_at(0).is_none();
        if idles {
            std::thread::sleep(REST);
        }
        let before = self.cast.sleeps()? + holder.sleeps()?;
        if idles {
            std::thread::sleep(IDLE);
        }
        let after = self.cast.sleeps()? + holder.sleeps()?;
        holder.kill()?;
        self.cast.expect_all(DONE)?;
        Ok(idles.then_some(after - before))
    }

    /// The holder is killed. Returns how long the first and the last waiter then waited, in
    /// nanoseconds.
    fn kill(&mut self) -> anyhow::Result<(u64, u64)> {
        let mut holder = self.set(Role::Holder)?;
        let killed_at = self.clock.now();
        holder.kill()?;
        let ended = self.board.ends_at(0).is_some_and(|at| at <= self.clock.now());
        ensure!(!ended, "a holder's lease ended before it was killed: ask for a longer one");
        self.cast.expect_all(DONE)?;
        let granted_at = self.cast.seats().map(|seat| self.board.granted_at(seat));
        let waits: Vec<u64> = granted_at.map(|at| at.saturating_sub(killed_at)).collect();
        let (first, last) = (waits.iter().min(), waits.iter().max());
        Ok(first.copied().zip(last.copied()).expect("somebody waits"))
    }

    /// The holder is stopped until all others were granted, then goes on. Returns whether its late
    /// write was refused, and whether it spoiled the register that refuses nobody.
    fn stop(&mut self) -> anyhow::Result<(bool, bool)> {
        let mut holder = self.cast.start(Role::Sleeper, 0)?;
        holder.expect(HELD)?;
        holder.await_stop()?;
        self.cast.order_waiters()?;
        self.cast.expect_all(DONE)?;
        let newest = self.board.written(Register::Unfenced);
        ensure!(newest == self.board.written(Register::Fenced), "both registers took all writes");
        holder.go_on()?;
        let said = holder.hear()?;
        holder.end()?;
        Ok((said == REFUSED, self.board.written(Register::Unfenced) < newest))
    }
}
