//! A process in a storm over sessions: asks for locks in all the ways there are, until it is told
//! to stop, or killed. It uses what the crate `farlock` publishes, and nothing else of ours.

use std::fs::File;
use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use farlock::Session;
use farlock::session::{Guard, RangeLock};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::fs::FlockOperation;
use tokio::runtime::Runtime;

use super::super::log::{self, Log, Patience, Record, Refusal, What};
use super::super::part::Part;
use super::super::serving::connect;
use super::ask::ask;
use super::draw::{Draw, Offer};
use super::inside::Section;
use super::plan::{Storm, Taken, is_over, kernel_file, region_options};
use super::several::{Sharer, ballast, tables};
use super::start::{DROP_ONE_IN, FaceWorkerArgs};
use crate::{child, face};

/// Of so many holds one changes its mode before it is released.
const CONVERT_ONE_IN: u32 = 4;
/// Threads of a session whose ranges are asked for.
const THREADS: u64 = 2;

/// Takes part in a storm.
pub fn run(args: &FaceWorkerArgs) -> anyhow::Result<()> {
    child::die_with(args.parent, "storm")?;
    let worker = Worker::open(args)?;
    // Every other session holds more than it has places for.
    let holds_many = args.ranges && args.who.is_multiple_of(2);
    let _ballast = holds_many.then(|| ballast(&worker.session, args.who));
    let done = match (args.probe, args.ranges) {
        (true, _) => worker.probe(),
        (false, false) => worker.work_in_threads(args.threads, |thread| worker.work(thread)),
        (false, true) => worker.work_in_threads(THREADS, |thread| worker.sharer(thread)?.work()),
    };
    let is_lost = done.as_ref().is_err_and(|error| error.is::<SessionLost>());
    if done.is_err() && !is_lost {
        worker.log.add(Record::now(What::Failed, args.who))?;
    }
    done
}

struct Worker<'a> {
    args: &'a FaceWorkerArgs,
    session: Session,
    tables: Vec<RangeLock>,
    log: Log,
}

/// A session is over, since its server was out of reach. The judge knows for how long it was.
#[derive(Debug)]
struct SessionLost(String);

impl std::fmt::Display for SessionLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the session is lost: {}", self.0)
    }
}

impl std::error::Error for SessionLost {}

impl<'a> Worker<'a> {
    fn open(args: &'a FaceWorkerArgs) -> anyhow::Result<Self> {
        let session = match &args.server {
            Some(server) => connect(server, &args.dir)?,
            None => Session::open(&region_options(&args.dir))?,
        };
        let tables = tables(&session, if args.ranges { args.locks } else { 0 });
        Ok(Self { args, session, tables, log: Log::open(&args.dir)? })
    }

    fn chance(&self, thread: u64) -> Xoshiro256PlusPlus {
        let number = self.args.who * THREADS.max(self.args.threads) + thread;
        let mixed = self.args.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Xoshiro256PlusPlus::seed_from_u64(mixed)
    }

    fn sharer(&self, thread: u64) -> anyhow::Result<Sharer<'_>> {
        let common = (self.tables.as_slice(), &self.log);
        Ok(Sharer::new(self.args, common, (thread, THREADS), self.chance(thread))?)
    }

    fn work_in_threads(
        &self,
        threads: u64,
        work: impl Fn(u64) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let work = &work;
            let work = |thread| scope.spawn(move || work(thread));
            let threads: Vec<_> = (0..threads).map(work).collect();
            let ended = threads.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|_| bail!("a thread of a worker panicked"))
            });
            ended.collect::<Vec<anyhow::Result<()>>>().into_iter().collect()
        })
    }

    /// What one thread of the session does; its operations have numbers of its own.
    fn work(&self, thread: u64) -> anyhow::Result<()> {
        let mut chance = self.chance(thread);
        let offer = Offer { locks: self.args.locks, ranges: false };
        let executor = executor()?;
        for op in (thread..).step_by(self.args.threads as usize) {
            if is_over(&self.args.dir) {
                break;
            }
            let draw = Draw::of_session(offer, &mut chance);
            self.act(&executor, op, draw, &mut chance)?;
            std::thread::sleep(draw.think);
        }
        Ok(())
    }

    fn probe(&self) -> anyhow::Result<()> {
        let (mut sharer, executor) = (self.sharer(0)?, executor()?);
        for (op, line) in (0..).zip(std::io::stdin().lock().lines()) {
            let numbers: Result<Vec<u64>, _> = line?.split(' ').map(str::parse).collect();
            let [lock, start, end] = numbers.context("numbers are expected")?[..] else {
                bail!("a lock, and where what is tried begins and ends, is expected");
            };
            let draw = Draw::probe(Part { lock, start, end });
            if self.args.ranges {
                sharer.act(&[draw])?;
            } else {
                self.act(&executor, op, draw, &mut self.chance(op))?;
            }
        }
        Ok(())
    }

    /// One operation, from its request to its end.
    fn act(
        &self,
        executor: &Runtime,
        op: u64,
        draw: Draw,
        chance: &mut impl Rng,
    ) -> anyhow::Result<()> {
        let Draw { part, alone, patience, .. } = draw;
        let whose = Record { op, part, alone, ..Record::now(What::Asks, self.args.who) };
        let at = |what, more| Record { what, more, time: log::now(), ..whose };
        if self.args.taken != Taken::Farlock {
            return self.act_otherwise(whose, draw);
        }
        let named = self.session.lock(face::name(part.lock));
        let request = if alone { named.exclusive() } else { named.shared() };
        self.log.add(at(What::Asks, patience.bits()))?;
        let lose = |why: String| {
            self.log.add(at(What::Refused, Refusal::Lost as u64))?;
            self.lose(why)
        };
        let guard = match ask(executor, request, draw) {
            Ok(guard) => guard,
            Err(Ok(refusal)) => return Ok(self.log.add(at(What::Refused, refusal as u64))?),
            Err(Err(error)) if self.args.server.is_some() => return lose(format!("{error:#}")),
            Err(Err(error)) => return Err(error),
        };
        // No longer than it is certain to have it, if that is bounded.
        let hold = guard.remaining().map_or(draw.hold, |remaining| draw.hold.min(remaining));
        if hold == Duration::ZERO && draw.hold > Duration::ZERO {
            return lose("what was granted is over".to_owned());
        }
        let section = Section { record: Record { token: guard.token().get(), ..whose }, hold };
        section.hold(&self.args.dir, &self.log)?;
        let guard = convert(guard, alone, chance);
        let drops = chance.random_range(0..DROP_ONE_IN) == 0;
        let released = if drops {
            drop(guard);
            Ok(())
        } else {
            guard.release().blocking()
        };
        self.log.add(at(What::Ended, (drops || released.is_err()).into()))?;
        match released {
            Err(error) if self.args.server.is_some() => self.lose(format!("{error:#?}")),
            released => Ok(released?),
        }
    }

    fn lose(&self, why: String) -> anyhow::Result<()> {
        self.log.add(Record::now(What::Lost, self.args.who))?;
        Err(SessionLost(why).into())
    }

    /// The same with a lock of the kernel, or none. Nothing is dropped or times out.
    fn act_otherwise(&self, whose: Record, draw: Draw) -> anyhow::Result<()> {
        let at = |what, more| Record { what, more, time: log::now(), ..whose };
        let tries = draw.patience == Patience::Try;
        let patience = if tries { Patience::Try } else { Patience::Endless };
        let path = kernel_file(&self.args.dir, draw.part.lock);
        let file = File::options().append(true).create(true).open(path)?;
        self.log.add(at(What::Asks, patience.bits()))?;
        if self.args.taken == Taken::Kernel {
            let operation = match (draw.alone, tries) {
                (true, false) => FlockOperation::LockExclusive,
                (true, true) => FlockOperation::NonBlockingLockExclusive,
                (false, false) => FlockOperation::LockShared,
                (false, true) => FlockOperation::NonBlockingLockShared,
            };
            match rustix::io::retry_on_intr(|| rustix::fs::flock(&file, operation)) {
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Ok(self.log.add(at(What::Refused, Refusal::Busy as u64))?);
                }
                taken => taken?,
            }
        }
        Section { record: whose, hold: draw.hold }.hold(&self.args.dir, &self.log)?;
        drop(file);
        Ok(self.log.add(at(What::Ended, 0))?)
    }
}

/// Where it is about to be released what is held may change its mode first, now and then.
fn convert(guard: Guard, alone: bool, chance: &mut impl Rng) -> Guard {
    if chance.random_range(0..CONVERT_ONE_IN) > 0 {
        return guard;
    }
    match alone {
        true => guard.downgrade(),
        false => guard.try_upgrade().unwrap_or_else(|guard| guard),
    }
}

fn executor() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_time().build()
}

/// Opens a session once, so that the region is there before the storm.
pub(super) fn prepare(dir: &Path) -> anyhow::Result<()> {
    let session = Session::open(&region_options(dir))?;
    if session.lock(face::name(0)).exclusive().blocking().is_err() {
        bail!("a lock of a new region is not free");
    }
    Ok(())
}

/// How many locks, or tables of ranges, cannot be had at once and as a whole now that all is over.
pub(super) fn left_over(storm: &Storm<'_>) -> anyhow::Result<u64> {
    let session = Session::open(&region_options(storm.dir))?;
    let is_free = |lock| match storm.face.has_ranges() {
        false => session.lock(face::name(lock)).exclusive().at_once().blocking().is_ok(),
        true => {
            let table = tables(&session, lock + 1).pop().expect("there is one at least");
            table.exclusive(..).at_once().blocking().is_ok()
        }
    };
    Ok((0..storm.locks).filter(|&lock| !is_free(lock)).count() as u64)
}
