//! The crew of a storm over the faces: starts processes, kills, stops and continues them, and
//! writes down what it does. Only processes of this crew are signalled, by their ids.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use farlock_check::Unchecked;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

use super::super::links::Cut;
use super::super::log::{self, Log, Patience, Reader, Record, Refusal, What};
use super::super::part::{END, Part};
use super::super::serving::{COMES_BACK, LEASE, tls_environment};
use super::draw::{Draw, Offer};
use super::inside::Process;
use super::plan::{OVER, Storm, Taken, kernel_file, positions, unit};
use crate::{child, face};

/// Processes that are stopped at one time, at most.
const STOPPED_MAX: usize = 2;
/// The range of long stops, longer than the judge's bound, and the longest of the others, in
/// microseconds. One is long at a time, so that nobody has to wait for two. It is not killed
/// meanwhile, and those who wait are spared: they are to find out whether it stands in their way.
const LONG_STOP_US: std::ops::Range<u64> = 250_000..400_000;
const SHORT_STOP_US_MAX: u64 = 10_000;
/// Whom a strike is to meet: a waiter, a holder, the waiter that waits longest, or anybody.
const WAITER: u32 = 1;
const HOLDER: u32 = 2;
const FIRST: u32 = 3;
/// How long after its `farlock`'s death a command that was not seen may be left.
const UNSEEN: Duration = Duration::from_millis(50);
/// How long the dead are looked after. Who then lives on is taken for gone, and judged.
const DYING_MAX: Duration = Duration::from_secs(2);
/// How commands run what is inside: as they are, in a child, in a session of its own, as a daemon,
/// with other rights. The last one only where this user may, and the other one can reach it.
const MANNERS: [&[&str]; 5] = [
    &[],
    &["sh", "-c", "\"$0\" \"$@\" & wait $!"],
    &["setsid", "--wait"],
    &["sh", "-c", "setsid \"$0\" \"$@\" </dev/null >/dev/null 2>&1 & wait $!"],
    &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
];

/// Those of [`MANNERS`] by which a command remains one process: what ends it leaves nobody behind,
/// who would run on without the lock. The second of each: whether it stays in the caller's group.
const SINGLE: [(usize, bool); 3] = [(0, true), (2, false), (4, true)];
/// Signals that end a command in order: they are passed on to it, and `farlock` ends after it.
const ENDINGS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];
/// One killed command in so many that may be ends by one of them.
const ENDED_ONE_IN: u32 = 2;

/// How often it is written down that everybody is looked after.
const WATCH_NS: u64 = 5_000_000;
/// The status of a command that was not granted.
const CONFLICT: i32 = 75;
/// What the processes say on standard error.
pub(super) const SAID: &str = "said";

/// The processes of a storm. Those that are left are killed when it is dropped.
pub(super) struct Crew<'a> {
    storm: &'a Storm<'a>,
    log: Log,
    reader: Reader,
    seats: Vec<Seat>,
    /// What tries locks whose last users died.
    prober: Option<Child>,
    dying: Vec<Dying>,
    /// Where the operations of those that run are, and since when, as the log tells.
    phases: BTreeMap<(u64, u64), (Phase, u64)>,
    chance: Xoshiro256PlusPlus,
    next_who: u64,
    /// How many of [`MANNERS`] are possible here.
    manners: usize,
    calm: bool,
    /// When it last wrote down that it looks after everybody.
    watched: u64,
    pub(super) kills: u64,
    /// Of them, how many by a signal that ends a command in order.
    pub(super) endings: u64,
    pub(super) stops: u64,
    /// How often connections of one to its server were broken.
    pub(super) cuts: u64,
    /// Until when one that was cut off may hear nothing. There is one at a time, so that nobody has
    /// to wait for two.
    silent_until: Instant,
}

/// A place for one process after the other.
struct Seat {
    runner: Option<Runner>,
    /// The next one starts then.
    idle_until: Instant,
}

struct Runner {
    child: Child,
    who: u64,
    /// What a command does.
    draw: Option<Draw>,
    /// When it goes on, if it is stopped.
    stopped_until: Option<Instant>,
    /// Whether it was stopped for long the last time.
    long: bool,
    /// Until when it was cut off from its server, and may have to come back.
    cut_until: Instant,
    /// What was seen of its command when it was killed.
    killed: Option<Vec<Process>>,
}

/// Killed, and its command may live yet.
struct Dying {
    who: u64,
    /// What it held or asked for.
    parts: Vec<Part>,
    kin: Vec<Process>,
    not_before: Instant,
    until: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Waits(Part),
    Holds(Part),
}

impl Phase {
    fn part(self) -> Option<Part> {
        match self {
            Self::Idle => None,
            Self::Waits(part) | Self::Holds(part) => Some(part),
        }
    }
}

/// Whom a strike meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// The process alone.
    Alone,
    /// Those below it: the guardian of its command, and that.
    Below,
    /// The process and the guardian.
    Guards,
    /// All of them.
    All,
}

impl Runner {
    /// The process, which is ours and not reaped: its id is nobody else's.
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn is_stopped_for_long(&self) -> bool {
        self.long && self.stopped_until.is_some()
    }

    /// The guardian of its command, and those below, as far as they are there by now.
    fn kin(&self) -> Vec<Process> {
        let mut kin = children(self.child.id());
        let mut next = 0;
        while let Some(process) = kin.get(next) {
            kin.extend(children(process.pid()));
            next += 1;
        }
        kin
    }

    fn signal(&self, reach: Reach, signal: Signal) -> rustix::io::Result<()> {
        // A worker of sessions has nobody below it, and no group of its own.
        if reach == Reach::All && kill_process_group(self.pid(), signal).is_ok() {
            return Ok(());
        }
        let below = match reach {
            Reach::Below => self.kin(),
            Reach::Guards => children(self.child.id()),
            Reach::Alone | Reach::All => Vec::new(),
        };
        for process in &below {
            // It may end just now.
            let _ = kill_process(process.as_pid(), signal);
        }
        if reach == Reach::Below && !below.is_empty() {
            Ok(())
        } else {
            kill_process(self.pid(), signal)
        }
    }
}

/// How many of [`MANNERS`] are possible here. For the last one the storm is opened to everybody.
fn manners(storm: &Storm<'_>) -> anyhow::Result<usize> {
    let (last, others) = MANNERS.split_last().expect("there are some");
    if !storm.face.is_command() || !rustix::process::geteuid().is_root() {
        return Ok(others.len());
    }
    // Nobody may move the region away that lies there.
    std::fs::set_permissions(storm.dir, Permissions::from_mode(0o1777))?;
    let mut shared = vec![log::path(storm.dir), storm.dir.join("marks")];
    shared.extend((0..storm.locks).map(|lock| storm.dir.join("marks").join(lock.to_string())));
    for path in shared {
        std::fs::set_permissions(path, Permissions::from_mode(0o777))?;
    }
    let mut command = Command::new(last[0]);
    command.args(&last[1..]).arg(std::env::current_exe()?).arg("--version");
    let tried = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let may = tried.is_ok_and(|status| status.success());
    Ok(if may { MANNERS.len() } else { others.len() })
}

fn children(pid: u32) -> Vec<Process> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace().filter_map(|pid| Process::find(pid.parse().ok()?)).collect()
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        let runners = self.seats.iter_mut().filter_map(|seat| seat.runner.as_mut());
        for runner in runners {
            // What counts is that none is left.
            let _ = runner.signal(Reach::All, Signal::KILL);
            let _ = runner.child.wait();
        }
        if let Some(prober) = &mut self.prober {
            let _ = prober.kill();
            let _ = prober.wait();
        }
    }
}

impl<'a> Crew<'a> {
    pub(super) fn board(storm: &'a Storm<'a>) -> anyhow::Result<Self> {
        let log = Log::open(storm.dir)?;
        let reader = Reader::open(storm.dir)?;
        let seat = |_| Seat { runner: None, idle_until: Instant::now() };
        let mut crew = Self {
            storm,
            log,
            reader,
            seats: (0..storm.clients).map(seat).collect(),
            prober: None,
            dying: Vec::new(),
            phases: BTreeMap::new(),
            chance: Xoshiro256PlusPlus::seed_from_u64(storm.seed),
            next_who: 1,
            manners: manners(storm)?,
            calm: false,
            watched: 0,
            kills: 0,
            endings: 0,
            stops: 0,
            cuts: 0,
            silent_until: Instant::now(),
        };
        if !storm.face.is_command() && storm.taken != Taken::Nothing {
            let mut command = crew.worker(0)?;
            crew.prober = Some(command.arg("--probe").stdin(Stdio::piped()).spawn()?);
        }
        Ok(crew)
    }

    /// Looks after everybody.
    pub(super) fn tend(&mut self) -> anyhow::Result<()> {
        let now = log::now();
        if now - self.watched > WATCH_NS {
            self.watched = now;
            self.log.add(Record { time: now, ..Record::now(What::Watches, 0) })?;
        }
        self.read_log()?;
        for seat in 0..self.seats.len() {
            let Some(runner) = &self.seats[seat].runner else {
                if !self.calm && Instant::now() >= self.seats[seat].idle_until {
                    let draw = Draw::of_command(self.offer(), &mut self.chance);
                    self.start(seat, draw)?;
                }
                continue;
            };
            let options = WaitIdOptions::EXITED
                | WaitIdOptions::STOPPED
                | WaitIdOptions::NOHANG
                | WaitIdOptions::NOWAIT;
            match waitid(WaitId::Pid(runner.pid()), options)? {
                Some(news) if news.stopped() => self.note_stop(seat)?,
                Some(_) => self.bury(seat)?,
                None => {}
            }
            self.wake(seat, Instant::now())?;
        }
        self.look_after_the_dying()
    }

    /// How many run.
    pub(super) fn left(&self) -> usize {
        self.seats.iter().filter(|seat| seat.runner.is_some()).count() + self.dying.len()
    }

    /// Nobody is hurt any more, and nobody starts anew.
    pub(super) fn calm_down(&mut self) -> anyhow::Result<()> {
        self.calm = true;
        File::create(self.storm.dir.join(OVER))?;
        let later = Instant::now() + Duration::from_secs(3600);
        (0..self.seats.len()).try_for_each(|seat| self.wake(seat, later))
    }

    /// The storm is over: who is left waits for ever.
    pub(super) fn end(self) -> anyhow::Result<()> {
        Ok(self.log.add(Record::now(What::Over, 0))?)
    }

    fn offer(&self) -> Offer {
        Offer { locks: self.storm.locks, ranges: self.storm.face.has_ranges() }
    }

    fn read_log(&mut self) -> anyhow::Result<()> {
        for record in self.reader.news()? {
            let phase = match record.what {
                What::Asks => Phase::Waits(record.part),
                What::Enters => Phase::Holds(record.part),
                What::Ended | What::Refused => Phase::Idle,
                _ => continue,
            };
            let key = (record.who, record.op);
            match phase {
                Phase::Idle => drop(self.phases.remove(&key)),
                phase => drop(self.phases.insert(key, (phase, record.time))),
            }
        }
        Ok(())
    }

    /// Kills a client: it aims at a waiter, a holder or anybody, with equal chances.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        let aim = self.chance.random_range(0..3);
        let Some(seat) = self.victim(aim) else { return Ok(()) };
        let all = [Reach::Alone, Reach::Below, Reach::Guards, Reach::All];
        let reach = all[self.chance.random_range(0..all.len())];
        let ending = self.ending(seat);
        let runner = self.seats[seat].runner.as_mut().expect("a victim runs");
        if runner.killed.is_some() || runner.is_stopped_for_long() {
            return Ok(());
        }
        let kin = runner.kin();
        self.log.add(Record::now(What::Kills, runner.who))?;
        self.endings += u64::from(ending.is_some());
        let (reach, signal) = ending.unwrap_or((reach, Signal::KILL));
        runner.signal(reach, signal).context("cannot kill a client")?;
        // Nobody wakes those later that left its group, and were stopped with it.
        for process in &kin {
            let _ = kill_process(process.as_pid(), Signal::CONT);
        }
        runner.killed = Some(kin);
        self.kills += 1;
        Ok(())
    }

    /// The signal that ends this client in order instead of killing it, if one is to: sent to
    /// `farlock`, or as a terminal does to its whole group.
    fn ending(&mut self, seat: usize) -> Option<(Reach, Signal)> {
        let runner = self.seats[seat].runner.as_ref()?;
        let manner = runner.who as usize % self.manners;
        let (_, in_group) = SINGLE.into_iter().find(|(single, _)| *single == manner)?;
        let is_farlock = runner.draw.is_some() && self.storm.taken == Taken::Farlock;
        if !is_farlock || self.chance.random_range(0..ENDED_ONE_IN) > 0 {
            return None;
        }
        let reach = if in_group && self.chance.random() { Reach::All } else { Reach::Alone };
        Some((reach, ENDINGS[self.chance.random_range(0..ENDINGS.len())]))
    }

    /// Stops a client for a while, unless enough are stopped.
    pub(super) fn stop(&mut self) -> anyhow::Result<()> {
        let runners = || self.seats.iter().filter_map(|seat| seat.runner.as_ref());
        let stopped = runners().filter(|runner| runner.stopped_until.is_some()).count();
        if stopped >= STOPPED_MAX {
            return Ok(());
        }
        let may_be_long = !runners().any(Runner::is_stopped_for_long);
        let long = may_be_long && self.chance.random_range(0..self.storm.face.long_one_in()) == 0;
        // Most long stops are to meet those who wait: others must pass them.
        let aim = if long && self.chance.random() { FIRST } else { self.chance.random_range(0..3) };
        let Some(seat) = self.victim(aim) else { return Ok(()) };
        let range = if long { LONG_STOP_US } else { 0..SHORT_STOP_US_MAX };
        let pause = Duration::from_micros(self.chance.random_range(range));
        let (reach, signal) = match self.chance.random_range(0..4) {
            0 => (Reach::Below, Signal::STOP),
            1 if self.storm.face.is_command() => (Reach::Alone, Signal::TSTP),
            _ => (Reach::Alone, Signal::STOP),
        };
        let runner = self.seats[seat].runner.as_mut().expect("a victim runs");
        let is_hurt = runner.killed.is_some() || runner.stopped_until.is_some();
        if is_hurt || runner.cut_until > Instant::now() {
            return Ok(());
        }
        // Who is granted a lock while its guardian is stopped is a stopped holder.
        let reach = if runner.kin().len() < 2 { Reach::Alone } else { reach };
        runner.stopped_until = Some(Instant::now() + pause);
        runner.long = long;
        self.log.add(Record::now(What::Stops, runner.who))?;
        runner.signal(reach, signal).context("cannot stop a client")?;
        self.stops += 1;
        Ok(())
    }

    /// Breaks the connections of a client to the server, unless enough is broken.
    pub(super) fn cut(&mut self) -> anyhow::Result<()> {
        let Some(links) = &self.storm.links else { return Ok(()) };
        let cut = Cut::draw(LEASE, &mut self.chance);
        let aim = self.chance.random_range(0..3);
        let Some(seat) = self.victim(aim) else { return Ok(()) };
        let now = Instant::now();
        let runner = self.seats[seat].runner.as_mut().expect("a victim runs");
        let is_hurt = runner.killed.is_some() || runner.stopped_until.is_some();
        let is_served = self.storm.is_served(runner.who);
        let is_too_much = cut.time() > Duration::ZERO && self.silent_until > now;
        if !is_served || is_hurt || is_too_much || runner.cut_until > now {
            return Ok(());
        }
        runner.cut_until = now + cut.time() + COMES_BACK;
        if cut.time() > Duration::ZERO {
            self.silent_until = runner.cut_until;
        }
        let record = Record::now(What::Cut, runner.who);
        self.log.add(Record { more: record.time + cut.time().as_nanos() as u64, ..record })?;
        links.cut(runner.who, cut);
        self.cuts += 1;
        Ok(())
    }

    /// Where the operations of a process are.
    fn phases_of(&self, who: u64) -> impl Iterator<Item = (Phase, u64)> + '_ {
        self.phases.range((who, 0)..=(who, u64::MAX)).map(|(_, phase)| *phase)
    }

    /// Where a process is: one that waits for something and holds something waits.
    fn phase(&self, who: u64) -> (Phase, u64) {
        let waits = |(phase, _): &(Phase, u64)| matches!(phase, Phase::Waits(_));
        let found = self.phases_of(who).find(waits).or_else(|| self.phases_of(who).next());
        found.unwrap_or((Phase::Idle, u64::MAX))
    }

    fn victim(&mut self, aim: u32) -> Option<usize> {
        let phase = |seat: usize| {
            let runner = self.seats[seat].runner.as_ref()?;
            Some((seat, self.phase(runner.who)))
        };
        let all = (0..self.seats.len()).filter_map(phase);
        let mut runners = self.seats.iter().filter_map(|seat| seat.runner.as_ref());
        let spared = runners.any(Runner::is_stopped_for_long);
        let struck =
            |(_, (phase, _)): &(usize, (Phase, u64))| !spared || !matches!(phase, Phase::Waits(_));
        let fits = |(_, (phase, _)): &&(usize, (Phase, u64))| match phase {
            Phase::Waits(_) => aim == WAITER || aim == FIRST,
            Phase::Holds(_) => aim == HOLDER,
            Phase::Idle => false,
        };
        let all: Vec<_> = all.filter(struck).collect();
        let fitting: Vec<_> = all.iter().filter(fits).copied().collect();
        let choice = if fitting.is_empty() { all } else { fitting };
        if aim == FIRST {
            return choice.iter().min_by_key(|(_, (_, since))| *since).map(|(seat, _)| *seat);
        }
        (!choice.is_empty()).then(|| choice[self.chance.random_range(0..choice.len())].0)
    }

    /// It was seen to be stopped.
    fn note_stop(&mut self, seat: usize) -> anyhow::Result<()> {
        let runner = self.seats[seat].runner.as_ref().expect("who is stopped runs");
        // Only takes note of what was just seen; it may have been killed since.
        let _ = waitid(WaitId::Pid(runner.pid()), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        Ok(self.log.add(Record::now(What::Stopped, runner.who))?)
    }

    /// Lets it go on, if its time has come by `now`.
    fn wake(&mut self, seat: usize, now: Instant) -> anyhow::Result<()> {
        let Some(runner) = &mut self.seats[seat].runner else { return Ok(()) };
        if runner.stopped_until.is_some_and(|until| now >= until) {
            runner.stopped_until = None;
            self.log.add(Record::now(What::Continues, runner.who))?;
            runner.signal(Reach::All, Signal::CONT)?;
            // Those that left the group may have been stopped too.
            for process in runner.kin() {
                let _ = kill_process(process.as_pid(), Signal::CONT);
            }
        }
        Ok(())
    }

    /// It has ended.
    fn bury(&mut self, seat: usize) -> anyhow::Result<()> {
        let Some(mut runner) = self.seats[seat].runner.take() else { return Ok(()) };
        let status = runner.child.wait()?;
        // What ends this storm ends its clients first.
        child::none_more_at_the_end();
        let Runner { who, draw, killed, .. } = runner;
        let think = draw.map_or(Duration::ZERO, |draw| draw.think);
        self.seats[seat].idle_until = Instant::now() + think;
        let asked = |draw: Draw| self.record(What::Ended, who, draw);
        match (draw, status.code()) {
            (Some(draw), Some(0)) => self.log.add(asked(draw))?,
            (Some(draw), Some(CONFLICT)) if killed.is_none() => {
                let why = match draw.patience {
                    Patience::Try => Refusal::Busy,
                    _ => Refusal::TimedOut,
                };
                let record = Record { what: What::Refused, more: why as u64, ..asked(draw) };
                self.log.add(record)?;
            }
            (None, Some(0)) if self.calm => {}
            _ if killed.is_some() => {}
            (_, None) if is_from_outside(status) => {
                bail!(Unchecked(format!(
                    "client {who} was ended by {status}, which this storm has not sent: nobody \
                     can judge it"
                )));
            }
            // A worker of sessions has said so itself.
            (None, Some(_)) => {}
            _ => self.log.add(Record::now(What::Failed, who))?,
        }
        if let Some(kin) = killed {
            let now = Instant::now();
            // A command that was started in the last moment was not seen, but its guardian alone.
            let unseen = draw.is_some() && kin.len() < 2;
            let not_before = if unseen { now + UNSEEN } else { now };
            let parts = self.phases_of(who).filter_map(|(phase, _)| phase.part()).collect();
            self.dying.push(Dying { who, parts, kin, not_before, until: now + DYING_MAX });
        }
        self.phases.retain(|(whose, _), _| *whose != who);
        Ok(())
    }

    fn look_after_the_dying(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let is_gone = |dying: &Dying| {
            // Until then a command's tether is held.
            let dead = dying.kin.iter().all(|process| process.has_ended());
            now >= dying.until || (dead && now >= dying.not_before)
        };
        let (gone, left) = std::mem::take(&mut self.dying).into_iter().partition(is_gone);
        self.dying = left;
        let gone: Vec<Dying> = gone;
        for Dying { who, parts, .. } in gone {
            self.log.add(Record::now(What::Gone, who))?;
            if !self.calm && self.storm.taken != Taken::Nothing {
                parts.into_iter().try_for_each(|part| self.probe(part))?;
            }
        }
        Ok(())
    }

    /// Has this tried at once.
    fn probe(&mut self, part: Part) -> anyhow::Result<()> {
        if let Some(prober) = &mut self.prober {
            let orders = prober.stdin.as_mut().expect("its input is a pipe");
            // One that is gone has said so in the log.
            let Part { lock, start, end } = part;
            let _ = writeln!(orders, "{lock} {start} {end}");
            return Ok(());
        }
        let free = |seat: &Seat| seat.runner.is_none();
        match self.seats.iter().position(free) {
            Some(seat) => self.start(seat, Draw::probe(part)),
            None => Ok(()),
        }
    }

    fn start(&mut self, seat: usize, draw: Draw) -> anyhow::Result<()> {
        child::none_more_at_the_end();
        // Every other seat is one of clients by a server, as every other number is.
        let who = self.next_who + (self.next_who + seat as u64) % 2;
        self.next_who = who + 1;
        let (mut command, draw) = match self.storm.face.is_command() {
            false => (self.worker(who)?, None),
            true => (self.command(who, draw)?, Some(draw)),
        };
        if let Some(draw) = draw {
            let more = draw.patience.bits();
            self.log.add(Record { more, ..self.record(What::Asks, who, draw) })?;
        }
        let child = command.spawn().context("cannot start a client")?;
        let (stopped_until, cut_until) = (None, Instant::now());
        let runner =
            Runner { child, who, draw, stopped_until, long: false, cut_until, killed: None };
        self.seats[seat].runner = Some(runner);
        Ok(())
    }

    /// A command is one operation, with the same number.
    fn record(&self, what: What, who: u64, draw: Draw) -> Record {
        let (part, alone) = (self.storm.taken.said(draw.part), draw.alone);
        Record { op: who, part, alone, ..Record::now(what, who) }
    }

    fn worker(&self, who: u64) -> anyhow::Result<Command> {
        let storm = self.storm;
        let mut command = child::command("face-worker")?;
        command.arg("--dir").arg(storm.dir).args(["--who", &who.to_string()]);
        command.args(["--locks", &storm.locks.to_string(), "--seed", &storm.seed.to_string()]);
        command.args(["--taken", storm.taken.name()]);
        command.args(["--threads", &storm.threads.to_string()]);
        command.args(storm.face.has_ranges().then_some("--ranges"));
        command.args(storm.server_of(who)?.map(|server| format!("--server={server}")));
        self.quietly(command)
    }

    fn command(&self, who: u64, draw: Draw) -> anyhow::Result<Command> {
        let storm = self.storm;
        let inside = std::env::current_exe().context("where is this program?")?;
        let mut command = match storm.taken {
            Taken::Farlock | Taken::Less => Command::new(face::farlock()?),
            Taken::Kernel => Command::new(face::flock().context("flock(1) is not installed")?),
            Taken::Nothing => Command::new(&inside),
        };
        if storm.taken.is_farlocks() {
            command.args(["lock", &face::name(draw.part.lock), "-q"]);
            command.args(self.range(draw));
        }
        if storm.taken != Taken::Nothing {
            command.args(["-E", &CONFLICT.to_string()]);
            command.args((!draw.alone).then_some("-s"));
            match draw.patience {
                Patience::Try => drop(command.arg("-n")),
                Patience::For(nanos) => {
                    command.args(["-w", &format!("{:.6}", nanos as f64 / 1e9)]);
                }
                Patience::Endless | Patience::UntilDropped => {}
            }
        }
        match storm.taken {
            Taken::Farlock | Taken::Less => {
                let manner = MANNERS[who as usize % self.manners];
                command.arg("--").args(manner).arg(&inside);
            }
            Taken::Kernel => {
                command.arg(kernel_file(storm.dir, draw.part.lock)).arg(&inside);
            }
            Taken::Nothing => {}
        }
        self.tell_inside(&mut command, who, draw);
        command.envs(face::environment(storm.dir)).envs(tls_environment(storm.dir));
        command.process_group(0);
        command.envs(storm.server_of(who)?.map(|server| ("FARLOCK_SERVER", server)));
        self.quietly(command)
    }

    /// How `farlock lock` is told which positions of a table it is to lock.
    fn range(&self, draw: Draw) -> Vec<String> {
        if !self.storm.face.has_ranges() {
            return Vec::new();
        }
        let positions = positions(draw.part, draw.inset);
        let length = if positions.end == END { 0 } else { positions.end - positions.start };
        let range = format!("{}:{length}", positions.start);
        ["-r", &range, "--unit", &unit(draw.part.lock).to_string()].map(str::to_owned).into()
    }

    /// What the process under the lock is told.
    fn tell_inside(&self, command: &mut Command, who: u64, draw: Draw) {
        let Part { lock, start, end } = self.storm.taken.said(draw.part);
        command.arg("face-inside").arg("--dir").arg(self.storm.dir);
        command.args(["--op", &who.to_string(), "--lock", &lock.to_string()]);
        command.args(["--start", &start.to_string(), "--end", &end.to_string()]);
        command.args((!draw.alone).then_some("--shared"));
        command.args(["--hold-us", &draw.hold.as_micros().to_string()]);
    }

    fn quietly(&self, mut command: Command) -> anyhow::Result<Command> {
        let said = File::options().append(true).create(true).open(self.storm.dir.join(SAID))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Ok(command)
    }
}

/// Whether a process that nobody here has killed was ended by others: by a signal that no bug of
/// its own sends.
fn is_from_outside(status: ExitStatus) -> bool {
    let others = [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
    status.signal().is_some_and(|signal| others.iter().any(|other| other.as_raw() == signal))
}

/// What the processes of a storm in this directory have said.
pub(super) fn said(dir: &Path) -> String {
    std::fs::read_to_string(dir.join(SAID)).unwrap_or_default()
}
