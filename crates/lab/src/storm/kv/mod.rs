//! `farlock-lab storm --face kv`: processes that use a key-value store by `session.kv` are killed
//! and stopped at any moment, and others go on.
//!
//! Each writes down what it asked and was answered ([`diary`]). When all is over every key is read
//! once more, and a judge that knows nothing of farlock looks whether each key could have done one
//! thing after the other ([`judge`]): so nothing that was acknowledged is lost, no value is made up
//! or torn, and nothing is done twice. It must find out workers that say they have written what
//! they have not (`--canary`). With `--served` every other one uses the store by a server.

pub mod diary;
pub mod judge;
pub mod worker;
pub mod workload;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::ensure;
use comfy_table::Table;
use comfy_table::presets::UTF8_BORDERS_ONLY;
use farlock_check::{Unchecked, say, tell};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::args::StormArgs;
use super::pulse::{Pulse, excused};
use super::serving::Serving;
use crate::provenance::Provenance;
use crate::record::{duration, grouped};
use crate::report::line;
use crate::scratch::Scratch;
use crate::{child, face};
use diary::{Diary, now};
use judge::{Judge, Stops, Verdict};
use workload::{StoreIndex, Workload};

/// Kills by default.
const KILLS: u64 = 200;
/// Keys by default.
const KEYS: u16 = 24;
/// How often the workers are looked after.
const TICK: Duration = Duration::from_micros(300);
/// The mean time between two strikes, in microseconds: a worker must have had time to start.
const LULL_US: u64 = 5_000;
/// The longest stop, in microseconds.
const STOP_US_MAX: u64 = 150_000;
/// The longest that an operation may take beside others that are stopped and killed, where the
/// storm itself had processors all the time.
const SLOW_MAX: Duration = Duration::from_millis(100);
/// The same by a server: up to four round trips, in each of which two processes wait for a
/// processor.
const SLOW_SERVED_MAX: Duration = Duration::from_millis(400);
/// The most that the store may take, in bytes: for each client, which has a chunk of 2 MiB for each
/// class that it writes, of 30, and beside that. The memory of the dead comes back.
const STORE_BYTES_A_CLIENT: u64 = 80 << 20;
const STORE_BYTES: u64 = 32 << 20;

/// A worker, and the times at which it was stopped.
struct Worker {
    child: Child,
    who: u64,
    /// Since when it is stopped, and when it goes on.
    stopped: Option<(u64, Instant)>,
}

/// What came of a storm.
#[derive(Clone, Debug, Serialize)]
struct Row {
    face: &'static str,
    workload: &'static str,
    index: &'static str,
    served: bool,
    clients: u16,
    keys: u64,
    kills: u64,
    stops: u64,
    operations: u64,
    refused: u64,
    unfinished: u64,
    failed: u64,
    made_up: u64,
    disordered: u64,
    changed_twice: u64,
    slowest_ns: u64,
    longest_pause_ns: u64,
    store_bytes: u64,
    violations: u64,
    seconds: f64,
    seed: u64,
    #[serde(skip)]
    lies: bool,
}

/// Storms, and prints what came of it.
pub(super) fn run(args: &StormArgs, origin: &Provenance) -> anyhow::Result<()> {
    ensure!(!args.reference && !args.exaggerated, "a store has no such rounds");
    ensure!(
        args.restarts + args.cuts == 0,
        Unchecked("the server of a store is not killed, and its connections are not broken".into())
    );
    let scratch = Scratch::new()?;
    let serving = args.served.then(|| Serving::on(scratch.path(), "127.0.0.1:0", false));
    let begun = Instant::now();
    let kills = args.kills.unwrap_or(KILLS);
    let mut storm = Storm {
        scratch: &scratch,
        args,
        keys: args.locks.unwrap_or(KEYS).into(),
        workload: args.workload.unwrap_or_default(),
        index: args.index.unwrap_or_default(),
        serving: serving.transpose()?,
        workers: Vec::new(),
        stops: Vec::new(),
        chance: Xoshiro256PlusPlus::seed_from_u64(args.seed),
        pulse: Pulse::new(),
    };
    let struck = storm.rage(kills, args.stops.unwrap_or(kills))?;
    let verdict = storm.judge()?;
    let row = storm.row(&verdict, struck, begun.elapsed())?;
    verdict.examples.iter().for_each(tell);
    match args.json {
        true => line(origin, &row)?,
        false => say(table(&row))?,
    }
    row.pass()
}

struct Storm<'a> {
    scratch: &'a Scratch,
    args: &'a StormArgs,
    keys: u64,
    workload: Workload,
    index: StoreIndex,
    serving: Option<Serving>,
    workers: Vec<Worker>,
    /// By worker, from 1 on.
    stops: Vec<Stops>,
    chance: Xoshiro256PlusPlus,
    pulse: Pulse,
}

impl Drop for Storm<'_> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // What counts is that none is left.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

impl Storm<'_> {
    /// Kills and stops so many. Returns how many of each.
    fn rage(&mut self, kills: u64, stops: u64) -> anyhow::Result<(u64, u64)> {
        (0..self.args.clients).try_for_each(|_| self.start())?;
        let (mut killed, mut stopped) = (0, 0);
        let mut next_strike = Instant::now();
        while killed < kills || stopped < stops {
            std::thread::sleep(TICK);
            self.pulse.beat();
            self.wake(Instant::now())?;
            if Instant::now() < next_strike {
                continue;
            }
            let lull = self.chance.random_range(0..2 * LULL_US);
            next_strike = Instant::now() + Duration::from_micros(lull);
            let victim = self.chance.random_range(0..self.workers.len());
            if self.chance.random_range(0..kills - killed + stops - stopped) < kills - killed {
                self.kill(victim)?;
                killed += 1;
            } else if self.workers[victim].stopped.is_none() {
                self.stop(victim)?;
                stopped += 1;
            }
        }
        while !self.workers.is_empty() {
            self.end(0)?;
        }
        Ok((killed, stopped))
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.stops.push(Stops::new());
        let who = self.stops.len() as u64;
        let mut command = child::command("kv-worker")?;
        command.arg("--dir").arg(self.scratch.path());
        command.args(["--who", &who.to_string(), "--keys", &self.keys.to_string()]);
        command.args(["--seed", &self.args.seed.to_string()]).stdin(Stdio::null());
        command.args(["--workload", self.workload.name(), "--index", self.index.index().name()]);
        if let Some(serving) = self.serving.as_ref().filter(|_| who % 2 == 1) {
            command.args(["--server", &serving.address]);
        }
        if self.args.canary {
            command.arg("--lies");
        }
        self.workers.push(Worker { child: command.spawn()?, who, stopped: None });
        Ok(())
    }

    fn kill(&mut self, victim: usize) -> anyhow::Result<()> {
        self.end(victim)?;
        self.start()
    }

    /// Kills a worker, which must not have ended before.
    fn end(&mut self, victim: usize) -> anyhow::Result<()> {
        let mut worker = self.workers.swap_remove(victim);
        let ended = worker.child.try_wait()?;
        ensure!(ended.is_none(), "worker {} ended by itself: {ended:?}", worker.who);
        worker.child.kill()?;
        worker.child.wait()?;
        if let Some((since, _)) = worker.stopped {
            self.stops[worker.who as usize - 1].push((since, now()));
        }
        Ok(())
    }

    fn stop(&mut self, victim: usize) -> anyhow::Result<()> {
        let pause = Duration::from_micros(self.chance.random_range(0..STOP_US_MAX));
        let worker = &mut self.workers[victim];
        worker.stopped = Some((now(), Instant::now() + pause));
        Ok(kill_process(Pid::from_child(&worker.child), Signal::STOP)?)
    }

    /// Lets those go on whose time has come.
    fn wake(&mut self, at: Instant) -> anyhow::Result<()> {
        for worker in &mut self.workers {
            if let Some((since, until)) = worker.stopped
                && until <= at
            {
                kill_process(Pid::from_child(&worker.child), Signal::CONT)?;
                worker.stopped = None;
                self.stops[worker.who as usize - 1].push((since, now()));
            }
        }
        Ok(())
    }

    /// Reads every key once more, and judges it all.
    fn judge(&mut self) -> anyhow::Result<Verdict> {
        self.stops.push(Stops::new());
        worker::read_all(self.scratch.path(), self.stops.len() as u64, self.keys)?;
        let mut judge = Judge::default();
        for (who, stops) in (1..).zip(&self.stops) {
            judge.hear(&Diary::read(self.scratch.path(), who)?, stops);
        }
        Ok(judge.verdict())
    }

    fn row(
        &self,
        verdict: &Verdict,
        (kills, stops): (u64, u64),
        took: Duration,
    ) -> anyhow::Result<Row> {
        let options = face::region_options(self.scratch.path());
        Ok(Row {
            face: "kv",
            workload: self.workload.name(),
            index: self.index.index().name(),
            served: self.serving.is_some(),
            clients: self.args.clients,
            keys: self.keys,
            kills,
            stops,
            operations: verdict.operations,
            refused: verdict.refused,
            unfinished: verdict.unfinished,
            failed: verdict.failed,
            made_up: verdict.made_up,
            disordered: verdict.disordered,
            changed_twice: verdict.changed_twice,
            slowest_ns: verdict.slowest_ns,
            longest_pause_ns: self.pulse.longest_pause(),
            store_bytes: farlock::Kv::open(&options, worker::STORE)?.bytes(),
            violations: verdict.made_up + verdict.disordered + verdict.changed_twice,
            seconds: took.as_secs_f64(),
            seed: self.args.seed,
            lies: self.args.canary,
        })
    }
}

impl Row {
    fn pass(&self) -> anyhow::Result<()> {
        if self.lies {
            ensure!(self.violations > 0, "workers lied, and the judge did not see it");
            return Ok(());
        }
        for (count, what) in [
            (self.made_up, "values were read that nobody had written"),
            (self.disordered, "values were there in no order"),
            (self.changed_twice, "values were changed twice"),
            (self.failed, "operations failed"),
        ] {
            ensure!(count == 0, "kv: {count} {what}");
        }
        let bytes = self.store_bytes;
        let most = STORE_BYTES + u64::from(self.clients) * STORE_BYTES_A_CLIENT;
        ensure!(bytes <= most, "kv: the store grew to {bytes} bytes");
        let slowest = Duration::from_nanos(self.slowest_ns);
        let slow_max = if self.served { SLOW_SERVED_MAX } else { SLOW_MAX };
        if slowest > slow_max + Duration::from_nanos(self.longest_pause_ns) {
            let objection = anyhow::anyhow!("kv: an operation took {slowest:?}");
            return Err(excused(objection, self.longest_pause_ns));
        }
        if self.operations < self.kills {
            return Err(Unchecked(format!("kv: {} operations were judged", self.operations)).into());
        }
        Ok(())
    }
}

/// A row as people read it.
fn table(row: &Row) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([row.face, ""]);
    for (what, value) in [
        ("workload", row.workload.to_owned()),
        ("index", row.index.to_owned()),
        ("by a server", if row.served { "every other client" } else { "nobody" }.to_owned()),
        ("killed", grouped(row.kills)),
        ("stopped", grouped(row.stops)),
        ("operations", grouped(row.operations)),
        ("changes that others came before", grouped(row.refused)),
        ("cut off", grouped(row.unfinished)),
        ("the slowest", duration(row.slowest_ns)),
        ("the storm's own longest pause", duration(row.longest_pause_ns)),
        ("bytes of the store", grouped(row.store_bytes)),
        ("MADE UP", grouped(row.made_up)),
        ("DISORDERED", grouped(row.disordered)),
        ("CHANGED TWICE", grouped(row.changed_twice)),
        ("FAILED", grouped(row.failed)),
        ("seconds", format!("{:.1}", row.seconds)),
    ] {
        table.add_row([what.to_owned(), value]);
    }
    table
}
