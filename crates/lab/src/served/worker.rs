//! A process that acquires and releases for a while, and says how often.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use serde::{Deserialize, Serialize};

use super::systems::{Cycle, LEASE_MS, Place, RELEASE, Scene, System, holder, session};
use crate::latency::Latency;
use crate::resp::{Answer, Line};
use crate::{child, face};

/// Between two looks at the clock: of what takes a round trip one cycle, else so many.
const CYCLES_AT_HAND: u64 = 64;

/// How a client is started.
#[derive(Clone, Debug, clap::Args)]
pub struct ServedClientArgs {
    /// The process that started it.
    #[arg(long)]
    pub parent: i32,
    /// What it asks.
    #[arg(long, value_enum)]
    pub system: System,
    /// With whom.
    #[arg(long, value_enum)]
    pub scene: Scene,
    /// Its number among the processes.
    #[arg(long)]
    pub number: u64,
    /// How many threads or tasks it is.
    #[arg(long)]
    pub clients: u64,
    /// Threads of the executor of tasks.
    #[arg(long)]
    pub executor_threads: usize,
    /// Where the server listens.
    #[arg(long)]
    pub port: u16,
    /// Where the region lies.
    #[arg(long)]
    pub dir: PathBuf,
    /// How long one waits that Redis has refused, in microseconds.
    #[arg(long)]
    pub pause_us: u64,
    /// How long.
    #[arg(long)]
    pub seconds: f64,
}

/// What one client did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Done {
    /// By each of its holders, in a second.
    pub(super) rates: Vec<f64>,
    /// Of a cycle.
    pub(super) latency: Latency,
}

impl Done {
    fn add(&mut self, cycles: u64, elapsed: Duration) {
        self.rates.push(cycles as f64 / elapsed.as_secs_f64());
    }
}

impl ServedClientArgs {
    fn place(&self) -> Place<'_> {
        Place { port: self.port, dir: &self.dir, pause: Duration::from_micros(self.pause_us) }
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// Runs a client, from its start to what it says in the end.
///
/// # Errors
/// What it was to measure did not work.
pub fn client(args: &ServedClientArgs) -> anyhow::Result<()> {
    child::die_with(args.parent, "served")?;
    let done = match (args.scene, args.system) {
        (Scene::Threads, _) => threads(args)?,
        (Scene::Tasks, System::Redis) => tasks_of_redis(args)?,
        (Scene::Tasks, _) => tasks(args)?,
        _ => {
            let mut holder = holder(args.system, args.scene, args.place(), args.number)?;
            holder.cycle()?;
            start()?;
            run(args, &mut *holder)?
        }
    };
    Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string(&done)?)?)
}

/// Says that all is ready, and waits for the others.
fn start() -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "ready")?;
    let heard = std::io::stdin().read_line(&mut String::new())?;
    ensure!(heard > 0, "nobody waits for this client any more");
    Ok(())
}

fn run(args: &ServedClientArgs, holder: &mut dyn Cycle) -> anyhow::Result<Done> {
    let at_once = if args.system.is_at_hand() { CYCLES_AT_HAND } else { 1 };
    let (time, begun, mut done) = (args.time(), Instant::now(), Done::default());
    let mut cycles = 0;
    loop {
        let at = begun.elapsed();
        if at >= time {
            done.add(cycles, at);
            return Ok(done);
        }
        for _ in 0..at_once {
            holder.cycle()?;
        }
        cycles += at_once;
        done.latency.record((begun.elapsed() - at).as_nanos() as u64 / at_once);
    }
}

/// Threads of this process: of farlock's they share one session.
fn threads(args: &ServedClientArgs) -> anyhow::Result<Done> {
    let shared = match args.system {
        System::Redis | System::Postgres => None,
        system => Some(session(system, args.place())?),
    };
    let (prepared, begins) =
        (Barrier::new(1 + args.clients as usize), Barrier::new(1 + args.clients as usize));
    std::thread::scope(|scope| {
        let thread = |number| {
            let (shared, prepared, begins) = (shared.clone(), &prepared, &begins);
            scope.spawn(move || {
                let opened = match shared {
                    Some(session) => Ok(of_session(session, args.system.rides(), number)),
                    None => holder(args.system, args.scene, args.place(), number),
                };
                let opened = opened.and_then(|mut holder| holder.cycle().map(|()| holder));
                prepared.wait();
                begins.wait();
                run(args, &mut *opened?)
            })
        };
        let threads: Vec<_> = (0..args.clients).map(thread).collect();
        prepared.wait();
        let started = start();
        begins.wait();
        let mut all = Done::default();
        for thread in threads {
            let done = thread.join().map_err(|_| anyhow!("a thread panicked"))??;
            all.rates.extend(done.rates);
            all.latency.add(&done.latency);
        }
        started.map(|()| all)
    })
}

fn of_session(session: farlock::Session, rides: bool, number: u64) -> Box<dyn Cycle> {
    let lock = session.lock(face::name(number));
    Box::new(super::systems::Locks { lock, rides, _session: session })
}

/// Tasks of one session, on the threads that an executor has by itself.
fn tasks(args: &ServedClientArgs) -> anyhow::Result<Done> {
    let session = session(args.system, args.place())?;
    let runtime = match args.executor_threads {
        1 => tokio::runtime::Builder::new_current_thread().build()?,
        threads => tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build()?,
    };
    let locks: Vec<_> = (0..args.clients).map(|task| session.lock(face::name(task))).collect();
    for lock in &locks {
        lock.exclusive().blocking()?.release().blocking()?;
    }
    start()?;
    let (time, rides) = (args.time(), args.system.rides());
    let at_once = if args.system.is_at_hand() { CYCLES_AT_HAND } else { 1 };
    let task = |lock: farlock::Lock| async move {
        let (begun, mut done, mut cycles) = (Instant::now(), Done::default(), 0);
        loop {
            let at = begun.elapsed();
            if at >= time {
                done.add(cycles, at);
                return anyhow::Ok(done);
            }
            for _ in 0..at_once {
                let guard = lock.exclusive().await?;
                match rides {
                    true => drop(guard),
                    false => guard.release().await?,
                }
            }
            cycles += at_once;
            done.latency.record((begun.elapsed() - at).as_nanos() as u64 / at_once);
            // An executor's tasks take turns.
            tokio::task::yield_now().await;
        }
    };
    let tasks: Vec<_> = locks.into_iter().map(|lock| runtime.spawn(task(lock))).collect();
    let mut all = Done::default();
    for task in tasks {
        let done = runtime.block_on(task)??;
        all.rates.extend(done.rates);
        all.latency.add(&done.latency);
    }
    Ok(all)
}

/// Tasks that share a connection to Redis, which takes requests in a row: the best that a client
/// can make of that. Without an executor: each task is what it asked for last.
fn tasks_of_redis(args: &ServedClientArgs) -> anyhow::Result<Done> {
    struct Task {
        key: String,
        holds: bool,
        begun: Duration,
        cycles: u64,
    }
    let mut line = Line::connect(args.port)?;
    let release = line.script(RELEASE)?;
    let token = std::process::id().to_string();
    let ask = |line: &mut Line, task: &Task| match task.holds {
        true => line.words(&[b"EVALSHA", &release, b"1", task.key.as_bytes(), token.as_bytes()]),
        false => {
            let (key, token) = (task.key.as_bytes(), token.as_bytes());
            line.words(&[b"SET", key, token, b"NX", b"PX", LEASE_MS]);
        }
    };
    let task =
        |task| Task { key: face::name(task), holds: false, begun: Duration::ZERO, cycles: 0 };
    let mut tasks: Vec<Task> = (0..args.clients).map(task).collect();
    start()?;
    let (time, begun, mut done) = (args.time(), Instant::now(), Done::default());
    tasks.iter().for_each(|task| ask(&mut line, task));
    line.send()?;
    let mut left = tasks.len();
    let mut asked: VecDeque<usize> = (0..tasks.len()).collect();
    while left > 0 {
        let number = asked.pop_front().context("a task waits for nothing")?;
        let task = &mut tasks[number];
        let answer = line.answer()?;
        if task.holds {
            ensure!(answer == Answer::Number(1), "Redis lost a lock");
            task.cycles += 1;
            let now = begun.elapsed();
            done.latency.record((now - task.begun).as_nanos() as u64);
            task.begun = now;
        } else {
            ensure!(answer == Answer::Said("OK".to_owned()), "Redis refuses a lock of nobody");
        }
        task.holds = !task.holds;
        if !task.holds && task.begun >= time {
            done.add(task.cycles, task.begun);
            left -= 1;
        } else {
            ask(&mut line, task);
            asked.push_back(number);
        }
        // What all that has come leads to is sent at once.
        if !line.has_more() {
            line.send()?;
        }
    }
    Ok(done)
}

/// How many round trips an acquisition and a release of one client take by this port.
pub(super) fn trips_of(
    (system, scene): (System, Scene),
    place: Place<'_>,
    trips: impl Fn() -> u64,
) -> anyhow::Result<(f64, f64)> {
    /// After so many nothing is done for the first time.
    const FIRST: u64 = 50;
    const COUNTED: u64 = 500;
    let mut holder = holder(system, scene, place, 0)?;
    (0..FIRST).try_for_each(|_| holder.cycle())?;
    let (begun, mut acquiring) = (trips(), 0);
    for _ in 0..COUNTED {
        let before = trips();
        holder.cycle_with(&mut || acquiring += trips() - before)?;
    }
    let each = |trips: u64| trips as f64 / COUNTED as f64;
    Ok((each(acquiring), each(trips() - begun - acquiring)))
}

/// What clients wait for before they begin.
pub(super) const GO: &[u8] = b"go\n";
