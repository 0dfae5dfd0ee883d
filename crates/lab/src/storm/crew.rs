//! The crew of a storm: a process in each seat. A killed process gets a successor, a stopped one is
//! continued after a while. Only processes of this crew are signalled, by their ids.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::args::StormArgs;
use super::ledger::{Ledger, Weather};
use super::log::{Log, Record, What};
use super::strike::{Deed, Moment, Strike};
use crate::child;
use crate::client::STRIKES;

/// The longest stop of a client that is stopped, in microseconds.
const STOP_US_MAX: u64 = 5_000;
/// A client is stopped at so many moments at most before it dies.
const STOPS_MAX: usize = 2;
/// A strike falls on the 2^11-th of its moments at the latest: a client's work of milliseconds.
const NTH_DOUBLINGS: u32 = 11;
/// The same for moments that are rarer, because another client must have acted first.
const RARE_DOUBLINGS: u32 = 6;
/// A client whose moment does not come dies at this one of all its moments at the latest.
const LIFE_MAX: u64 = 1 << 13;
/// Of so many strikes from outside one stops its victim instead of killing it.
const STOP_ONE_IN: u32 = 5;

/// The processes of a storm. Those that are left are killed when it is dropped.
#[derive(Debug)]
pub(super) struct Crew<'a> {
    args: &'a StormArgs,
    protocol: &'a str,
    dir: &'a Path,
    berths: Vec<PlaceCell>,
    chance: Xoshiro256PlusPlus,
    /// Where it is written whom a strike from outside kills, of locks that are had in parts.
    log: Option<Log>,
    next_who: u64,
    /// How many were killed.
    pub(super) kills: u64,
    /// How often one was stopped.
    pub(super) stops: u64,
}

/// A seat and who sits there.
#[derive(Debug)]
struct PlaceCell {
    child: Child,
    /// Its number in the log.
    who: u64,
    /// When it is continued, if it is stopped.
    stopped_until: Option<Instant>,
    /// It has ended, and nobody came after it.
    empty: bool,
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        for PlaceCell { child, .. } in &mut self.berths {
            // Most have ended by themselves; what counts is that none is left.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl<'a> Crew<'a> {
    /// A client in every seat, in the region of this directory.
    pub(super) fn board(
        args: &'a StormArgs,
        protocol: &'a str,
        dir: &'a Path,
        log: Option<Log>,
    ) -> anyhow::Result<Self> {
        let chance = Xoshiro256PlusPlus::seed_from_u64(args.seed);
        let berths = Vec::new();
        let mut crew =
            Self { args, protocol, dir, berths, chance, log, next_who: 1, kills: 0, stops: 0 };
        for seat in 0..args.clients.into() {
            let berth = crew.start(seat, Weather::Storm)?;
            crew.berths.push(berth);
        }
        Ok(crew)
    }

    /// Kills or stops a client at a moment that is not its own choice.
    pub(super) fn strike(&mut self) -> anyhow::Result<()> {
        let stops = self.chance.random_range(0..STOP_ONE_IN) == 0;
        let seat = self.chance.random_range(0..self.berths.len());
        let signal = if stops { Signal::STOP } else { Signal::KILL };
        if let Some(log) = self.log.as_ref().filter(|_| !stops) {
            log.add(Record::now(What::Kills, self.berths[seat].who))?;
        }
        kill_process(self.pid(seat), signal).context("cannot strike a client")
    }

    /// Looks after everybody: continues the stopped when their time has come, and gives the killed
    /// successors, which are struck again while it storms. A client that ends otherwise is an
    /// error, unless all shall end.
    pub(super) fn tend(&mut self, ledger: &Ledger<'_>) -> anyhow::Result<()> {
        let weather = ledger.weather();
        for seat in 0..self.berths.len() {
            if self.berths[seat].empty {
                continue;
            }
            let options = WaitIdOptions::EXITED
                | WaitIdOptions::STOPPED
                | WaitIdOptions::NOHANG
                | WaitIdOptions::NOWAIT;
            match waitid(WaitId::Pid(self.pid(seat)), options)? {
                Some(news) if news.stopped() => self.lull(seat),
                Some(_) => self.bury(seat, weather)?,
                None => self.wake(seat)?,
            }
        }
        Ok(())
    }

    /// The client in this seat, which is ours and not reaped: its id is nobody else's.
    fn pid(&self, seat: usize) -> Pid {
        Pid::from_child(&self.berths[seat].child)
    }

    /// How many have not ended.
    pub(super) fn left(&self) -> usize {
        self.berths.iter().filter(|berth| !berth.empty).count()
    }

    fn bury(&mut self, seat: usize, weather: Weather) -> anyhow::Result<()> {
        let status = self.berths[seat].child.wait()?;
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        self.kills += u64::from(killed);
        if weather == Weather::Over {
            ensure!(killed || status.success(), "the client in seat {seat} failed: {status}");
            self.berths[seat].empty = true;
            return Ok(());
        }
        ensure!(killed, "the client in seat {seat} ended by itself: {status}");
        self.berths[seat] = self.start(seat, weather)?;
        Ok(())
    }

    /// It was stopped: it will be for a while.
    fn lull(&mut self, seat: usize) {
        // Only takes note of what was just seen; it may have been killed since.
        let _ = waitid(WaitId::Pid(self.pid(seat)), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        self.stops += 1;
        let pause = Duration::from_micros(self.chance.random_range(0..STOP_US_MAX));
        self.berths[seat].stopped_until = Some(Instant::now() + pause);
    }

    fn wake(&mut self, seat: usize) -> anyhow::Result<()> {
        if self.berths[seat].stopped_until.is_some_and(|until| Instant::now() >= until) {
            self.berths[seat].stopped_until = None;
            kill_process(self.pid(seat), Signal::CONT)?;
        }
        Ok(())
    }

    fn start(&mut self, seat: usize, weather: Weather) -> anyhow::Result<PlaceCell> {
        let (args, who) = (self.args, self.next_who);
        self.next_who += 1;
        let mut command = child::command("client")?;
        command
            .arg("--dir")
            .arg(self.dir)
            .args(["--protocol", self.protocol, "--role", "contender"])
            .args(["--seat", &seat.to_string(), "--who", &who.to_string()])
            .args(args.exaggerated.then_some("--exaggerates"))
            .args(["--seats", &args.clients.to_string()])
            .args(["--locks", &args.locks().to_string()])
            .env_remove(STRIKES)
            .stdin(Stdio::null());
        if weather == Weather::Storm {
            let strikes: Vec<String> = self.draw().iter().map(Strike::to_string).collect();
            command.env(STRIKES, strikes.join(","));
        }
        let child = command.spawn().context("cannot start a client")?;
        Ok(PlaceCell { child, who, stopped_until: None, empty: false })
    }

    /// What befalls the next client: stops, a death at a moment of some kind, and a death in case
    /// that moment never comes.
    fn draw(&mut self) -> Vec<Strike> {
        let chance = &mut self.chance;
        let stops = chance.random_range(0..=STOPS_MAX);
        let deeds = [Deed::Kill].into_iter().chain(std::iter::repeat_n(Deed::Stop, stops));
        let mut strikes: Vec<Strike> = deeds
            .map(|deed| {
                let moment = Moment::ALL[chance.random_range(0..Moment::ALL.len())];
                let rare = matches!(moment, Moment::Receive | Moment::Wait | Moment::Repair);
                let doublings = if rare { RARE_DOUBLINGS } else { NTH_DOUBLINGS };
                Strike::draw(deed, moment, doublings, chance)
            })
            .collect();
        let last = Strike::draw(Deed::Kill, Moment::Any, 0, chance);
        strikes.push(Strike { nth: chance.random_range(1..=LIFE_MAX), ..last });
        strikes
    }
}
