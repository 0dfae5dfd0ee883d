//! A client in a process of its own: what the hidden command `worker` does.
//!
//! It opens the region and the files of the trials, says that it is ready, and does what its
//! standard input orders until that ends. Should its parent die, the kernel ends it.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use anyhow::Context;
use farlock_fabric::shm::{Region, SystemKind};
use farlock_fabric::{Park, WideAtomics};
use farlock_locks::registry::{self, Visitor};
use farlock_locks::{Client, Lock, Options};
use parking_lot::RwLock;

use super::orders::{Answer, Order, region_options};
use super::placement;
use super::trial::{Arena, Face, Trial};
use crate::child;
use crate::drive::{Control, Cycles, Failure, Laps, Phase, Subject, Tally};
use crate::face::{self, Awaited, Blocking, Commands, Program};
use crate::fs::FsPlayer;
use crate::judge::Judge;
use crate::range_course::OwnRanges;
use crate::ranges::Ranges;
use crate::rival::{Flock, Mutexes, Ofd, Raw, Rival, SYSTEM_KINDS, Threads, rival};
use crate::subject::{AsyncFace, BlockingFace, Counting, Hooked, unstruck};
use crate::transactions::Transactions;

/// How a worker is started.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkerArgs {
    /// Where the region and the files are.
    #[arg(long)]
    pub dir: PathBuf,
    /// Who started it.
    #[arg(long)]
    pub parent: i32,
    /// Files of `flock` to open.
    #[arg(long)]
    pub flocks: u64,
    /// Locks of `pthread` that were made, of each kind.
    #[arg(long)]
    pub mutexes: u64,
    /// The core it runs on.
    #[arg(long)]
    pub core: Option<usize>,
}

/// Does what standard input orders.
pub fn run(args: &WorkerArgs) -> anyhow::Result<()> {
    child::die_with(args.parent, "bench")?;
    placement::pin(args.core)?;
    let mut worker = Worker::open(args)?;
    answer(&Answer::Ready)?;
    for line in std::io::stdin().lock().lines() {
        let order: Order = serde_json::from_str(&line?).context("an order that is no order")?;
        let done = worker.obey(&order).unwrap_or_else(|error| Answer::Failed(format!("{error:#}")));
        answer(&done)?;
    }
    Ok(())
}

fn answer(answer: &Answer) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}

struct Worker {
    /// Where the faces' region is.
    dir: PathBuf,
    region: Region,
    flock: Flock,
    ofd: Ofd,
    mutexes: Vec<(SystemKind, Mutexes)>,
}

impl Worker {
    fn open(args: &WorkerArgs) -> anyhow::Result<Self> {
        let region = Region::open(&region_options(&args.dir))?;
        let (flock, ofd) = (Flock::open(&args.dir, args.flocks)?, Ofd::open(&args.dir)?);
        let open = |kind| Ok((kind, Mutexes::open(&args.dir, args.mutexes, kind)?));
        let mutexes = SYSTEM_KINDS.into_iter().map(open).collect::<std::io::Result<_>>()?;
        let dir = args.dir.clone();
        Ok(Self { dir, region, flock, ofd, mutexes })
    }

    fn obey(&mut self, order: &Order) -> anyhow::Result<Answer> {
        let arena = Arena::of(&order.trial);
        let words = self.region.words();
        let seat = Seat {
            trial: &order.trial,
            client: order.client,
            tells: true,
            control: arena.control(words),
            judge: arena.judge(words),
        };
        let tally = match rival(&order.trial.subject) {
            None => self.lock(&seat, arena)?,
            Some(face @ (Rival::Session | Rival::SessionAsync)) => {
                return self.session(&seat, &order.cores, face).map(Answer::Done);
            }
            Some(Rival::Command(program)) => self.commands(&seat, program)?,
            Some(Rival::Raw) => {
                let threads = order.trial.threads;
                return on_threads(&seat, &order.cores, threads, raw).map(Answer::Done);
            }
            Some(Rival::Flock) => seat.run(&self.flock)?,
            Some(Rival::Ofd) => seat.run(&self.ofd)?,
            Some(Rival::Pthread(kind)) => {
                let mutexes = self.mutexes.iter().find(|(known, _)| *known == kind);
                seat.run(&mutexes.expect("every kind was opened").1)?
            }
            Some(Rival::ParkingLot) => return threads(&seat, &order.cores).map(Answer::Done),
        };
        Ok(Answer::Done(vec![tally]))
    }

    /// A session of its own for each trial, which its threads share.
    fn session(&self, seat: &Seat<'_>, cores: &[usize], face: Rival) -> anyhow::Result<Vec<Tally>> {
        let session = farlock::Session::open(&face::region_options(&self.dir))?;
        let locks = seat.trial.workload.locks;
        on_threads(seat, cores, seat.trial.threads, |seat| {
            if face == Rival::Session {
                return Ok(seat.run(&Blocking::new(&session, locks))?);
            }
            let executor = tokio::runtime::Builder::new_current_thread().build()?;
            let subject = Awaited::new(&session, locks);
            seat.await_start();
            Ok(executor.block_on(seat.drive(&Cycles(&subject)))?)
        })
    }

    /// Commands are judged by what runs under them, in the trials that count; here each client
    /// looks at words of its own.
    fn commands(&self, seat: &Seat<'_>, program: Program) -> anyhow::Result<Tally> {
        let judged = seat.trial.counted.then_some(seat.trial.course.hold_ns);
        let commands = Commands::new(program, &self.dir, judged)?;
        let mut tally = seat.privately(|seat| Ok(seat.run(&commands)?))?;
        tally.violations += commands.overlaps();
        Ok(tally)
    }

    /// An endpoint of its own for each trial: no message of an earlier one reaches it.
    fn lock(&self, seat: &Seat<'_>, arena: Arena) -> anyhow::Result<Tally> {
        let endpoint = self.region.endpoint()?;
        let locks = arena.lock_words(self.region.heap().0);
        let subject = &seat.trial.subject;
        if let Some(course) = &seat.trial.fs {
            let endpoint = unstruck(endpoint);
            let player = FsPlayer::new(subject, endpoint, locks, course, seat.client)?;
            seat.await_start();
            return Ok(player.block_on(seat.drive(player.laps()))?);
        }
        Ok(if seat.trial.txn.is_some() || seat.trial.workload.ranges.is_some() {
            let endpoint = unstruck(endpoint);
            registry::visit(subject, OneLapper { endpoint, locks, seat })??
        } else if seat.trial.counted {
            // Its rates are reported where clients contend: the lock's own client.
            let endpoint = unstruck(endpoint);
            registry::visit(subject, OneClient { endpoint, locks, seat })??
        } else {
            registry::visit(subject, OneClient { endpoint, locks, seat })??
        })
    }
}

/// A client's place in a trial.
struct Seat<'a> {
    trial: &'a Trial,
    client: usize,
    /// Whether it says itself that it is ready; of several threads their process does.
    tells: bool,
    control: Control<'a>,
    judge: Judge<'a>,
}

impl Seat<'_> {
    /// Says that this client is ready and waits until all are.
    fn await_start(&self) {
        if self.tells {
            answer(&Answer::Ready).expect("a parent that is gone has taken this process along");
        }
        self.await_warm_up();
    }

    /// Runs a subject that is judged by words which nobody else sees.
    fn privately(
        &self,
        run: impl FnOnce(&Seat<'_>) -> anyhow::Result<Tally>,
    ) -> anyhow::Result<Tally> {
        let locks = self.trial.workload.locks;
        let words: Vec<AtomicU64> = (0..Judge::words(locks)).map(|_| AtomicU64::new(0)).collect();
        let judge = Judge::new(&words, locks);
        let mut tally = run(&Seat { judge, ..*self })?;
        tally.violations += judge.lost(tally.exclusive);
        Ok(tally)
    }

    fn await_warm_up(&self) {
        while self.control.is_in(Phase::Ready) {
            std::thread::yield_now();
        }
    }

    /// This client's account of the trial, to be awaited on this thread.
    async fn drive(&self, laps: &dyn Laps) -> Result<Tally, Failure> {
        self.trial.drive(laps, self.client, self.judge, self.control).await
    }

    /// Runs a subject that never waits for its executor.
    fn run<S: Subject>(&self, subject: &S) -> Result<Tally, Failure> {
        self.await_start();
        at_once(self.drive(&Cycles(subject)))
    }
}

/// The output of a future that never waits.
fn at_once<F: Future>(future: F) -> F::Output {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut cx) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("a blocking subject does not wait for an executor"),
    }
}

/// Raw lines are private, and so are the words by which they are judged.
fn raw(seat: &Seat<'_>) -> anyhow::Result<Tally> {
    seat.privately(|seat| Ok(seat.run(&Raw::new(seat.trial.workload.locks))?))
}

/// All clients of the trial, as threads of this process.
fn threads(seat: &Seat<'_>, cores: &[usize]) -> anyhow::Result<Vec<Tally>> {
    let locks: Vec<RwLock<()>> = (0..seat.trial.workload.locks).map(|_| RwLock::new(())).collect();
    let number = seat.trial.clients * seat.trial.threads;
    on_threads(seat, cores, number, |seat| Ok(seat.run(&Threads::new(&locks))?))
}

/// So many clients as threads of this process, numbered on from those of the processes before it;
/// one stays on this thread.
fn on_threads(
    seat: &Seat<'_>,
    cores: &[usize],
    number: usize,
    run: impl Fn(&Seat<'_>) -> anyhow::Result<Tally> + Sync,
) -> anyhow::Result<Vec<Tally>> {
    if number == 1 {
        return Ok(vec![run(seat)?]);
    }
    let (first, run) = (seat.client * number, &run);
    std::thread::scope(|scope| {
        let client = |client: usize| {
            let core = placement::core_of(cores, client);
            let seat = Seat { client, tells: false, ..*seat };
            scope.spawn(move || {
                placement::pin(core)?;
                run(&seat)
            })
        };
        let threads: Vec<_> = (first..first + number).map(client).collect();
        answer(&Answer::Ready)?;
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(tally) => tally,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    })
}

/// A client of the lock that is visited.
struct OneClient<'a, E> {
    endpoint: E,
    locks: farlock_fabric::Addr,
    seat: &'a Seat<'a>,
}

impl<E: WideAtomics + Park + Counting> Visitor<E> for OneClient<'_, E> {
    type Output = Result<Tally, Failure>;

    fn visit<L: Lock<E>>(self, lock: L) -> Self::Output {
        let client = Client::new(self.endpoint, lock, Options::default());
        match self.seat.trial.face {
            Face::Async => {
                let subject = AsyncFace::new(client.clone(), self.locks);
                self.seat.await_start();
                client.block_on(self.seat.drive(&Cycles(&subject)))
            }
            Face::Blocking => self.seat.run(&BlockingFace::new(client, self.locks)),
        }
    }
}

/// A client whose cycles are transactions over the visited lock, or ranges of it. Its verbs are
/// counted in any case, so that the compiler meets each lock once.
struct OneLapper<'a> {
    endpoint: Hooked,
    locks: farlock_fabric::Addr,
    seat: &'a Seat<'a>,
}

impl Visitor<Hooked> for OneLapper<'_> {
    type Output = Result<Tally, Failure>;

    fn asks_for_size(&self) -> bool {
        self.seat.trial.workload.ranges.is_some()
    }

    fn visit<L: Lock<Hooked>>(self, lock: L) -> Self::Output {
        let (kind, trial) = (lock.clone(), self.seat.trial);
        let client = Client::new(self.endpoint, lock, Options::default());
        let laps: Box<dyn Laps> = match (trial.workload.ranges, trial.txn) {
            (Some(ranges), _) => {
                let own = OwnRanges::new(ranges, self.seat.client);
                Box::new(Ranges::new(client.clone(), kind, self.locks, own))
            }
            (None, Some(course)) => {
                let number = (self.seat.client, trial.clients);
                Box::new(Transactions::new(client.clone(), self.locks, course, number))
            }
            (None, None) => unreachable!("cycles of whole locks have clients of their own"),
        };
        self.seat.await_start();
        client.block_on(self.seat.drive(&*laps))
    }
}
