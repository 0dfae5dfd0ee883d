//! `farlock-lab storm --face kv`: processes that use a key-value store by `session.kv` are killed
//! and stopped at any moment, and others go on.
//!
//! Each writes down what it asked and was answered ([`diary`]). When all is over every key is read
//! once more, and a judge that knows nothing of farlock looks whether each key could have done one
//! thing after the other ([`judge`]): so nothing that was acknowledged is lost, no value is made up
//! or torn, and nothing is done twice. It must find out workers that say they have written what
//! they have not (`--canary`). With `--served` every other one uses the store by a server, which is
//! killed and started again (`--restarts`), and from which they are cut off (`--cuts`). With
//! `--parts` the store is over several regions.

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
use super::links::{Cut, Links};
use super::pulse::{Pulse, excused};
use super::serving::{COMES_BACK, LEASE, LOSES, Serving};
use crate::child;
use crate::provenance::Provenance;
use crate::record::{duration, grouped};
use crate::report::line;
use crate::scratch::Scratch;
use diary::{Diary, now};
use judge::{Hurts, Judge, Verdict};
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
/// The same where each trip passes through this process, so that it lasts longer than others need
/// to change a key that all of them change all the time: then a comparison fails again and again.
const SLOW_FAR_MAX: Duration = Duration::from_secs(5);
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

/// How often who is struck, and how.
#[derive(Clone, Copy, Debug)]
struct Strikes {
    kills: u64,
    stops: u64,
    restarts: u64,
    cuts: u64,
}

impl Strikes {
    fn count(self) -> u64 {
        self.kills + self.stops + self.restarts + self.cuts
    }
}

/// What came of a storm.
#[derive(Clone, Debug, Serialize)]
struct Row {
    face: &'static str,
    workload: &'static str,
    index: &'static str,
    parts: u8,
    served: bool,
    tls: bool,
    operations_by_server: u64,
    clients: u16,
    keys: u64,
    kills: u64,
    stops: u64,
    restarts: u64,
    cuts: u64,
    operations: u64,
    refused: u64,
    unfinished: u64,
    unknown: u64,
    failed: u64,
    made_up: u64,
    disordered: u64,
    changed_twice: u64,
    slowest_ns: u64,
    slowest_far_ns: u64,
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
    let scratch = Scratch::new()?;
    let serving = Serving::asked(args, scratch.path())?;
    let begun = Instant::now();
    let kills = args.kills.unwrap_or(KILLS);
    let stops = args.stops.unwrap_or(kills);
    let mut storm = Storm {
        scratch: &scratch,
        args,
        keys: args.locks.unwrap_or(KEYS).into(),
        workload: args.workload.unwrap_or_default(),
        index: args.index.unwrap_or_default(),
        links: serving.as_ref().map(Serving::links).transpose()?.flatten(),
        serving,
        workers: Vec::new(),
        hurts: Vec::new(),
        silent_until: begun,
        chance: Xoshiro256PlusPlus::seed_from_u64(args.seed),
        pulse: Pulse::new(),
        operations_by_server: 0,
    };
    let all = Strikes { kills, stops, restarts: args.restarts, cuts: args.cuts };
    let struck = storm.rage(all)?;
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
    /// What lies between workers and that server, where they are cut off from it.
    links: Option<Links>,
    workers: Vec<Worker>,
    /// By worker, from 1 on.
    hurts: Vec<Hurts>,
    /// Until when one hears nothing of the server, and has come back: no other does meanwhile.
    silent_until: Instant,
    chance: Xoshiro256PlusPlus,
    pulse: Pulse,
    /// How many operations by the server have ended.
    operations_by_server: u64,
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
    /// Strikes so often. Returns how often it has.
    fn rage(&mut self, all: Strikes) -> anyhow::Result<Strikes> {
        (0..self.args.clients).try_for_each(|_| self.start())?;
        let mut left = all;
        let mut next_strike = Instant::now();
        while left.count() > 0 {
            std::thread::sleep(TICK);
            self.pulse.beat();
            self.wake(Instant::now())?;
            if Instant::now() < next_strike {
                continue;
            }
            let lull = self.chance.random_range(0..2 * LULL_US);
            next_strike = Instant::now() + Duration::from_micros(lull);
            let victim = self.chance.random_range(0..self.workers.len());
            let chosen = self.chance.random_range(0..left.count());
            if chosen < left.kills {
                self.kill(victim)?;
                left.kills -= 1;
            } else if chosen < left.kills + left.stops {
                left.stops -= u64::from(self.stop(victim)?);
            } else if chosen < left.kills + left.stops + left.restarts {
                self.restart()?;
                left.restarts -= 1;
            } else {
                left.cuts -= u64::from(self.cut(victim));
            }
        }
        while !self.workers.is_empty() {
            self.end(0)?;
        }
        Ok(all)
    }

    fn hurts(&mut self, who: u64) -> &mut Hurts {
        &mut self.hurts[who as usize - 1]
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let who = self.hurts.len() as u64 + 1;
        let is_far = self.links.is_some() && is_served(who);
        self.hurts.push(Hurts { is_far, ..Hurts::default() });
        let mut command = child::command("kv-worker")?;
        command.arg("--dir").arg(self.scratch.path());
        command.args(["--who", &who.to_string(), "--keys", &self.keys.to_string()]);
        command.args(["--seed", &self.args.seed.to_string()]).stdin(Stdio::null());
        command.args(["--workload", self.workload.name(), "--index", self.index.index().name()]);
        command.args(["--parts", &self.args.parts.to_string()]);
        if let Some(serving) = self.serving.as_ref().filter(|_| is_served(who)) {
            let behind = self.links.as_ref().map(|links| links.address_of(who)).transpose()?;
            command.args(["--server", behind.as_ref().unwrap_or(&serving.address)]);
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
            self.hurts(worker.who).held_up.push((since, now()));
        }
        Ok(())
    }

    /// Stops a worker, unless it is. Whether it has.
    fn stop(&mut self, victim: usize) -> anyhow::Result<bool> {
        let worker = &mut self.workers[victim];
        if worker.stopped.is_some() {
            return Ok(false);
        }
        let pause = Duration::from_micros(self.chance.random_range(0..STOP_US_MAX));
        worker.stopped = Some((now(), Instant::now() + pause));
        kill_process(Pid::from_child(&worker.child), Signal::STOP)?;
        Ok(true)
    }

    /// Kills the server, and starts another one.
    fn restart(&mut self) -> anyhow::Result<()> {
        let Some(serving) = &mut self.serving else { return Ok(()) };
        let killed = now();
        serving.restart(self.scratch.path())?;
        let away = (killed, now() + COMES_BACK.as_nanos() as u64);
        let served = self.workers.iter().map(|worker| worker.who).filter(|who| is_served(*who));
        for who in served {
            let hurts = &mut self.hurts[who as usize - 1];
            hurts.held_up.push(away);
            hurts.forgotten.push(away);
        }
        Ok(())
    }

    /// Cuts a worker off from the server, if it uses it, is not stopped, and no other one hears
    /// nothing. Whether it has.
    fn cut(&mut self, victim: usize) -> bool {
        let Worker { who, stopped, .. } = self.workers[victim];
        let Some(links) = self.links.as_ref().filter(|_| is_served(who)) else { return false };
        if stopped.is_some() || self.silent_until > Instant::now() {
            return false;
        }
        let cut = Cut::draw(LEASE, &mut self.chance);
        let lasts = cut.time() + COMES_BACK;
        links.cut(who, cut);
        if cut.time() > Duration::ZERO {
            self.silent_until = Instant::now() + lasts;
        }
        let time = (now(), now() + lasts.as_nanos() as u64);
        let hurts = self.hurts(who);
        hurts.held_up.push(time);
        if cut.time() >= LOSES {
            hurts.cut_off.push(time);
        }
        true
    }

    /// Lets those go on whose time has come.
    fn wake(&mut self, at: Instant) -> anyhow::Result<()> {
        for worker in &mut self.workers {
            if let Some((since, until)) = worker.stopped
                && until <= at
            {
                kill_process(Pid::from_child(&worker.child), Signal::CONT)?;
                worker.stopped = None;
                self.hurts[worker.who as usize - 1].held_up.push((since, now()));
            }
        }
        Ok(())
    }

    /// Reads every key once more, and judges it all.
    fn judge(&mut self) -> anyhow::Result<Verdict> {
        self.hurts.push(Hurts::default());
        let who = self.hurts.len() as u64;
        worker::read_all(self.scratch.path(), self.args.parts, who, self.keys)?;
        let mut judge = Judge::default();
        for (who, hurts) in (1..).zip(&self.hurts) {
            let diary = Diary::read(self.scratch.path(), who)?;
            if self.serving.is_some() && is_served(who) {
                let ended = diary.iter().filter(|record| record.what.is_answer());
                self.operations_by_server += ended.count() as u64;
            }
            judge.hear(&diary, hurts);
        }
        Ok(judge.verdict())
    }

    fn row(&self, verdict: &Verdict, struck: Strikes, took: Duration) -> anyhow::Result<Row> {
        let store = worker::found(self.scratch.path(), self.args.parts)?;
        Ok(Row {
            face: "kv",
            workload: self.workload.name(),
            index: self.index.index().name(),
            parts: self.args.parts,
            served: self.serving.is_some(),
            tls: self.args.tls,
            operations_by_server: self.operations_by_server,
            clients: self.args.clients,
            keys: self.keys,
            kills: struck.kills,
            stops: struck.stops,
            restarts: struck.restarts,
            cuts: struck.cuts,
            operations: verdict.operations,
            refused: verdict.refused,
            unfinished: verdict.unfinished,
            unknown: verdict.unknown,
            failed: verdict.failed,
            made_up: verdict.made_up,
            disordered: verdict.disordered,
            changed_twice: verdict.changed_twice,
            slowest_ns: verdict.slowest_ns,
            slowest_far_ns: verdict.slowest_far_ns,
            longest_pause_ns: self.pulse.longest_pause(),
            store_bytes: store.bytes(),
            violations: verdict.made_up + verdict.disordered + verdict.changed_twice,
            seconds: took.as_secs_f64(),
            seed: self.args.seed,
            lies: self.args.canary,
        })
    }
}

/// Whether this one uses the store by the server, if there is one.
fn is_served(who: u64) -> bool {
    who % 2 == 1
}

impl Row {
    /// How many clients had something at a time: those that die while there is no server, or while
    /// their end is in doubt, live on for a lease.
    fn clients_at_once(&self) -> u64 {
        let lives_on = if self.restarts + self.cuts > 0 { LEASE.as_secs_f64() } else { 0.0 };
        let share = (lives_on / self.seconds).min(1.0);
        u64::from(self.clients) + (self.kills as f64 * share) as u64
    }

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
        let a_part = STORE_BYTES + self.clients_at_once() * STORE_BYTES_A_CLIENT;
        let most = u64::from(self.parts) * a_part;
        ensure!(bytes <= most, "kv: the store grew to {bytes} bytes");
        let slow_max = if self.served { SLOW_SERVED_MAX } else { SLOW_MAX };
        for (slowest, most) in [(self.slowest_ns, slow_max), (self.slowest_far_ns, SLOW_FAR_MAX)] {
            let slowest = Duration::from_nanos(slowest);
            if slowest > most + Duration::from_nanos(self.longest_pause_ns) {
                let objection = anyhow::anyhow!("kv: an operation took {slowest:?}");
                return Err(excused(objection, self.longest_pause_ns));
            }
        }
        if self.operations < self.kills {
            return Err(Unchecked(format!("kv: {} operations were judged", self.operations)).into());
        }
        if self.served && self.operations_by_server == 0 {
            return Err(Unchecked("kv: no operation by the server was judged".into()).into());
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
        ("parts", row.parts.to_string()),
        ("by a server", if row.served { "every other client" } else { "nobody" }.to_owned()),
        ("killed", grouped(row.kills)),
        ("stopped", grouped(row.stops)),
        ("the server killed", grouped(row.restarts)),
        ("cut off from it", grouped(row.cuts)),
        ("operations", grouped(row.operations)),
        ("of them by the server", grouped(row.operations_by_server)),
        ("changes that others came before", grouped(row.refused)),
        ("ended by a kill", grouped(row.unfinished)),
        ("of unknown end", grouped(row.unknown)),
        ("the slowest", duration(row.slowest_ns)),
        ("the slowest of long trips", duration(row.slowest_far_ns)),
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
