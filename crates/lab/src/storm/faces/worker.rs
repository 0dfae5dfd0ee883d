//! A process in a storm over sessions: asks for locks in all the ways there are, until it is told
//! to stop, or killed. It uses what the crate `farlock` publishes, and nothing else of ours.

use std::fs::File;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use farlock::session::Request;
use farlock::{AcquireError, Session};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::fs::FlockOperation;
use tokio::runtime::Runtime;

use super::draw::Draw;
use super::inside::Section;
use super::log::{Log, Patience, Record, Refusal, What};
use super::plan::{Taken, is_over, kernel_file, region_options};
use crate::{child, face};

/// Of so many guards one is dropped, without waiting for the end of its release.
const DROP_ONE_IN: u32 = 4;

/// How a worker is started.
#[derive(Clone, Debug, clap::Args)]
pub struct FaceWorkerArgs {
    /// Where the region, the log and the marks are.
    #[arg(long)]
    pub dir: PathBuf,
    /// Who started it.
    #[arg(long)]
    pub parent: i32,
    /// Its number in the storm.
    #[arg(long)]
    pub who: u64,
    /// How many locks there are.
    #[arg(long)]
    pub locks: u64,
    /// Decides what it asks for.
    #[arg(long)]
    pub seed: u64,
    /// It only tries the locks whose numbers it reads, a line each.
    #[arg(long)]
    pub probe: bool,
    /// What it takes.
    #[arg(long, value_enum)]
    pub taken: Taken,
}

/// Takes part in a storm.
pub fn run(args: &FaceWorkerArgs) -> anyhow::Result<()> {
    child::die_with(args.parent, "storm")?;
    let worker = Worker::open(args)?;
    let done = if args.probe { worker.probe() } else { worker.work() };
    if done.is_err() {
        worker.log.add(Record::now(What::Failed, args.who))?;
    }
    done
}

struct Worker<'a> {
    args: &'a FaceWorkerArgs,
    session: Session,
    executor: Runtime,
    log: Log,
}

impl<'a> Worker<'a> {
    fn open(args: &'a FaceWorkerArgs) -> anyhow::Result<Self> {
        let session = Session::open(&region_options(&args.dir))?;
        let executor = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(Self { args, session, executor, log: Log::open(&args.dir)? })
    }

    fn work(&self) -> anyhow::Result<()> {
        let mixed = self.args.seed ^ self.args.who.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(mixed);
        for op in 0.. {
            if is_over(&self.args.dir) {
                break;
            }
            let draw = Draw::of_session(self.args.locks, &mut chance);
            self.act(op, draw, &mut chance)?;
            std::thread::sleep(draw.think);
        }
        Ok(())
    }

    fn probe(&self) -> anyhow::Result<()> {
        for (op, line) in (0..).zip(std::io::stdin().lock().lines()) {
            let lock = line?.parse().context("the number of a lock is expected")?;
            self.act(op, Draw::probe(lock), &mut Xoshiro256PlusPlus::seed_from_u64(op))?;
        }
        Ok(())
    }

    /// One operation, from its request to its end.
    fn act(&self, op: u64, draw: Draw, chance: &mut impl Rng) -> anyhow::Result<()> {
        let Draw { lock, alone, patience, .. } = draw;
        let whose = Record { op, lock, alone, ..Record::now(What::Asks, self.args.who) };
        let at = |what, more| Record { what, more, time: super::log::now(), ..whose };
        if self.args.taken != Taken::Farlock {
            return self.act_otherwise(whose, draw);
        }
        let named = self.session.lock(face::name(lock));
        let request = if alone { named.exclusive() } else { named.shared() };
        self.log.add(at(What::Asks, patience.bits()))?;
        let guard = match self.ask(request, draw) {
            Ok(guard) => guard,
            Err(refusal) => return Ok(self.log.add(at(What::Refused, refusal? as u64))?),
        };
        let token = guard.token().to_string().parse().context("a token is a number")?;
        let section = Section { record: Record { token, ..whose }, hold: draw.hold };
        section.hold(&self.args.dir, &self.log)?;
        let drops = chance.random_range(0..DROP_ONE_IN) == 0;
        if drops {
            drop(guard);
        } else {
            guard.release().blocking()?;
        }
        Ok(self.log.add(at(What::Ended, drops.into()))?)
    }

    /// The same with a lock of the kernel, or none. Nothing is dropped or times out.
    fn act_otherwise(&self, whose: Record, draw: Draw) -> anyhow::Result<()> {
        let at = |what, more| Record { what, more, time: super::log::now(), ..whose };
        let tries = draw.patience == Patience::Try;
        let patience = if tries { Patience::Try } else { Patience::Endless };
        let path = kernel_file(&self.args.dir, draw.lock);
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

    /// Acquires, or says why not: a refusal, or an error that nothing should have.
    fn ask(&self, request: Request, draw: Draw) -> Result<farlock::Guard, anyhow::Result<Refusal>> {
        let granted = match draw.patience {
            Patience::Endless if draw.awaited => {
                self.executor.block_on(std::future::IntoFuture::into_future(request))
            }
            Patience::Endless => request.blocking(),
            Patience::Try => request.at_once().blocking(),
            Patience::For(nanos) => request.within(Duration::from_nanos(nanos)).blocking(),
            Patience::UntilDropped => {
                let limited = async { tokio::time::timeout(draw.drop_after, request).await };
                match self.executor.block_on(limited) {
                    Ok(granted) => granted,
                    Err(_) => return Err(Ok(Refusal::Dropped)),
                }
            }
        };
        granted.map_err(|error| match error {
            AcquireError::Busy { .. } => Ok(Refusal::Busy),
            AcquireError::TimedOut { .. } => Ok(Refusal::TimedOut),
            other => Err(other.into()),
        })
    }
}

/// Opens a session once, so that the region is there before the storm.
pub(super) fn prepare(dir: &Path) -> anyhow::Result<()> {
    let session = Session::open(&region_options(dir))?;
    if session.lock(face::name(0)).exclusive().blocking().is_err() {
        bail!("a lock of a new region is not free");
    }
    Ok(())
}
