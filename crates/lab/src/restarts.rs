//! `farlock-lab restarts`: a server is killed and started again under the load of many sessions,
//! and how long they stand still is measured: until each had what it asked for when there was no
//! server.
//!
//! Each session holds a lock of its own all the time, and takes one that it shares with others
//! again and again. Holders look whether they are alone, and whether tokens grow.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::value_parser;
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use farlock::Session;
use farlock::session::Guard;
use farlock_check::say;
use serde::Serialize;

use crate::child;
use crate::clock::now;
use crate::connections::Serving;
use crate::provenance::Provenance;
use crate::record::duration;
use crate::report::line;
use crate::scratch::Scratch;

/// How long sessions work before, between and behind restarts; of that is told what takes longest.
const CALM: Duration = Duration::from_millis(1500);
/// How long sessions may take to go on before all is given up.
const PATIENCE: Duration = Duration::from_secs(8);

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct RestartsArgs {
    /// Sessions
    #[arg(long, default_value_t = 500, value_parser = value_parser!(u32).range(2..=600))]
    pub sessions: u32,
    /// Locks that they share
    #[arg(long, default_value_t = 50, value_parser = value_parser!(u32).range(1..=1000))]
    pub locks: u32,
    /// How long a session does nothing after a release, in milliseconds
    #[arg(long, default_value_t = 250, value_parser = value_parser!(u64).range(..=1000))]
    pub think_ms: u64,
    /// How often the server is killed, and started again
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=100))]
    pub restarts: u32,
    /// How long after the kill the next server is started, in milliseconds
    #[arg(long, default_value_t = 300, value_parser = value_parser!(u64).range(..=3000))]
    pub away_ms: u64,
    /// Fails where sessions stand still for longer than this beyond the time without a server, in
    /// milliseconds
    #[arg(long, value_name = "MS")]
    pub beyond_ms: Option<u64>,
    /// A line of JSON for each restart
    #[arg(long)]
    pub json: bool,
}

/// What came of one restart. Times are in nanoseconds.
#[derive(Clone, Debug, Default, Serialize)]
struct Row {
    sessions: u32,
    restart: u32,
    /// From the kill until the next server listens.
    away_ns: u64,
    /// Acquisitions that were under way then.
    under_way: u64,
    /// From the kill until the last of them was granted and released; until half of them were.
    pause_ns: u64,
    pause_median_ns: u64,
    /// By how much longer that is than there was no server.
    beyond_ns: u64,
    /// Acquisitions a second in the time before the kill.
    per_second: u64,
    /// What took longest in the time before the kill, and of what began behind the restart.
    longest_before_ns: u64,
    longest_behind_ns: u64,
    /// Holds that were lost until then, tokens that did not grow, holders that were not alone.
    lost: u64,
    token_errors: u64,
    overlaps: u64,
}

/// When an acquisition began, and when its release had ended.
type Turn = (u64, u64);

/// A lock that sessions share, as its holders see it.
#[derive(Default)]
struct Shared {
    token: AtomicU64,
    is_held: AtomicBool,
}

/// What all sessions work at.
#[derive(Default)]
struct Work {
    locks: Vec<Shared>,
    think: Duration,
    is_over: AtomicBool,
    token_errors: AtomicU64,
    overlaps: AtomicU64,
    /// By session: when its last turn ended.
    ended: Vec<AtomicU64>,
}

/// Measures, and prints a row for each restart.
///
/// # Errors
/// The system refused something, a session failed, lost a hold or was not alone, or stood still for
/// too long.
pub fn run(args: &RestartsArgs, origin: &Provenance) -> anyhow::Result<()> {
    child::raise_file_limit()?;
    let scratch = Scratch::new()?;
    let mut server = Serving::start(scratch.path().to_owned(), "127.0.0.1:0")?;
    let sessions = server.sessions(args.sessions)?;
    let hold = |(number, session): (usize, &Session)| {
        Ok(session.lock(format!("own {number}")).exclusive().blocking()?)
    };
    let held: Vec<Guard> = sessions.iter().enumerate().map(hold).collect::<anyhow::Result<_>>()?;
    let work = Work {
        locks: (0..args.locks).map(|_| Shared::default()).collect(),
        think: Duration::from_millis(args.think_ms),
        ended: sessions.iter().map(|_| AtomicU64::new(0)).collect(),
        ..Work::default()
    };
    let work = &work;
    let (mut rows, turns) = std::thread::scope(|scope| {
        let spawn = |(number, session)| scope.spawn(move || take_turns(session, number, work));
        let threads: Vec<_> = sessions.iter().enumerate().map(spawn).collect();
        let restarted = restart(args, &mut server, work, &held);
        work.is_over.store(true, Ordering::SeqCst);
        let turns = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| anyhow::bail!("a session's thread panicked"))
        });
        // Why a session did not go on is to be told first.
        let turns = turns.collect::<Vec<_>>().into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        anyhow::Ok((restarted?, turns))
    })?;
    for guard in held {
        guard.release().blocking().context("a hold was lost")?;
    }
    server.end()?;
    let turns = turns.concat();
    rows.iter_mut().for_each(|(row, when)| row.reckon(*when, &turns));
    let rows: Vec<Row> = rows.into_iter().map(|(row, _)| row).collect();
    match args.json {
        true => rows.iter().try_for_each(|row| line(origin, row))?,
        false => say(table(&rows))?,
    }
    let beyond_ns_max = args.beyond_ms.map_or(u64::MAX, |ms| ms.saturating_mul(1_000_000));
    rows.iter().try_for_each(|row| row.pass(beyond_ns_max))
}

/// Takes a lock again and again. Returns when.
fn take_turns(session: &Session, number: usize, work: &Work) -> anyhow::Result<Vec<Turn>> {
    let at = number % work.locks.len();
    let (lock, shared) = (session.lock(format!("shared {at}")), &work.locks[at]);
    let mut turns = Vec::new();
    while !work.is_over.load(Ordering::SeqCst) {
        let begun = now();
        let guard = lock.exclusive().blocking()?;
        let was_held = shared.is_held.swap(true, Ordering::SeqCst);
        work.overlaps.fetch_add(was_held.into(), Ordering::SeqCst);
        let token = guard.token().get();
        let before = shared.token.swap(token, Ordering::SeqCst);
        work.token_errors.fetch_add(u64::from(token <= before), Ordering::SeqCst);
        shared.is_held.store(false, Ordering::SeqCst);
        guard.release().blocking()?;
        let ended = now();
        turns.push((begun, ended));
        work.ended[number].store(ended, Ordering::SeqCst);
        std::thread::sleep(work.think);
    }
    Ok(turns)
}

/// Kills the server and starts it again, and again. Returns what is known of each restart at once,
/// with the times of the kill and of the next server.
fn restart(
    args: &RestartsArgs,
    server: &mut Serving,
    work: &Work,
    held: &[Guard],
) -> anyhow::Result<Vec<(Row, Turn)>> {
    let mut rows = Vec::new();
    std::thread::sleep(CALM);
    for restart in 1..=args.restarts {
        let killed = now();
        server.restart(Duration::from_millis(args.away_ms))?;
        let listens = now();
        let has_gone_on = |ended: &AtomicU64| ended.load(Ordering::SeqCst) > listens;
        loop {
            let waiting = work.ended.iter().filter(|ended| !has_gone_on(ended)).count();
            if waiting == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            let late = Duration::from_nanos(now() - listens) > PATIENCE;
            ensure!(!late, "restart {restart}: {waiting} sessions do not go on");
        }
        std::thread::sleep(CALM);
        let is_lost = |guard: &&Guard| guard.lost_reason().is_some();
        let row = Row {
            sessions: args.sessions,
            restart,
            away_ns: listens - killed,
            lost: held.iter().filter(is_lost).count() as u64,
            token_errors: work.token_errors.load(Ordering::SeqCst),
            overlaps: work.overlaps.load(Ordering::SeqCst),
            ..Row::default()
        };
        rows.push((row, (killed, listens)));
    }
    Ok(rows)
}

impl Row {
    /// What the turns of all sessions say of a restart.
    fn reckon(&mut self, (killed, listens): Turn, turns: &[Turn]) {
        let calm = CALM.as_nanos() as u64;
        let under_way = turns.iter().filter(|(begun, ended)| *begun < listens && *ended > listens);
        let mut pauses: Vec<u64> = under_way.map(|(_, ended)| ended - killed).collect();
        pauses.sort_unstable();
        let longest = |from: u64, to: u64| {
            let within = turns.iter().filter(|(begun, ended)| *begun >= from && *ended < to);
            within.map(|(begun, ended)| ended - begun).max().unwrap_or(0)
        };
        let before = killed.saturating_sub(calm);
        let ended = turns.iter().filter(|(_, ended)| (before..killed).contains(ended));
        self.per_second = (ended.count() as f64 / CALM.as_secs_f64()) as u64;
        self.under_way = pauses.len() as u64;
        self.pause_ns = pauses.last().copied().unwrap_or(self.away_ns);
        self.pause_median_ns = pauses.get(pauses.len() / 2).copied().unwrap_or(self.away_ns);
        self.beyond_ns = self.pause_ns.saturating_sub(self.away_ns);
        self.longest_before_ns = longest(before, killed);
        self.longest_behind_ns = longest(listens, listens + calm);
    }

    fn pass(&self, beyond_ns_max: u64) -> anyhow::Result<()> {
        let Self { restart, lost, token_errors, overlaps, beyond_ns, .. } = self;
        ensure!(*lost == 0, "restart {restart}: {lost} holds were lost");
        ensure!(*token_errors == 0, "restart {restart}: {token_errors} tokens did not grow");
        ensure!(*overlaps == 0, "restart {restart}: {overlaps} holders were not alone");
        let beyond = duration(*beyond_ns);
        let in_time = *beyond_ns <= beyond_ns_max;
        ensure!(in_time, "restart {restart}: sessions stood still {beyond} longer than its server");
        Ok(())
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([
        "restart",
        "a second",
        "no server",
        "under way",
        "half had it",
        "all had it",
        "beyond",
        "longest before",
        "longest behind",
        "lost",
        "tokens",
        "overlaps",
    ]);
    for row in rows {
        table.add_row([
            row.restart.to_string(),
            row.per_second.to_string(),
            duration(row.away_ns),
            row.under_way.to_string(),
            duration(row.pause_median_ns),
            duration(row.pause_ns),
            duration(row.beyond_ns),
            duration(row.longest_before_ns),
            duration(row.longest_behind_ns),
            row.lost.to_string(),
            row.token_errors.to_string(),
            row.overlaps.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_lasts_until_the_last_turn_that_was_under_way_has_ended() {
        let mut row = Row { away_ns: 20, ..Row::default() };
        // Two under way at the kill, one begun while there was no server, one behind it.
        let turns = [(10, 15), (98, 130), (99, 150), (110, 170), (121, 124)];
        row.reckon((100, 120), &turns);
        assert_eq!((row.under_way, row.pause_ns, row.pause_median_ns), (3, 70, 50));
        assert_eq!((row.beyond_ns, row.longest_before_ns, row.longest_behind_ns), (50, 5, 3));
        assert!(row.pass(50).is_ok());
        for bad in [
            Row { lost: 1, ..Row::default() },
            Row { token_errors: 1, ..Row::default() },
            Row { overlaps: 1, ..Row::default() },
            Row { beyond_ns: 51, ..Row::default() },
        ] {
            assert!(bad.pass(50).is_err(), "{bad:?}");
        }
    }
}
