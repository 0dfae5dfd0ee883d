//! `farlock-lab connections`: what connections cost a server, and those that use it: ones that
//! never say what they want, ones that wait, and many that are busy at once.
//!
//! The server is a process of its own, so its memory is nobody else's. What is told of it is its
//! own memory, without the region's, which processes share.

use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Child, Stdio};
use std::sync::Barrier;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::value_parser;
use farlock::{DEFAULT_REGION, RegionOptions, Server, Session};
use farlock_check::say;
use farlock_fabric::tcp::{Remote, TcpEndpoint};
use farlock_fabric::{Addr, Completion, Connection as _, Endpoint as _, Wait, WaitState, block_on};
use serde::Serialize;

use crate::child;
use crate::face::region_options;
use crate::latency::{Latency, Summary};
use crate::provenance::Provenance;
use crate::record::{duration, grouped};
use crate::report::line;
use crate::scratch::Scratch;

/// Words of the heap that are not used by names: connections add to some, and wait for others.
const WORDS_BEGIN: u64 = 2 << 20;

/// Bytes of the server that a connection takes at most which never ends its greeting, and one that
/// is idle; and those that its allocator may take beside all of them.
const HALF_OPEN_BYTES_MAX: u64 = 1400;
const IDLE_BYTES_MAX: u64 = 32 << 10;
const SLACK_BYTES: u64 = 2 << 20;

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct ConnectionsArgs {
    /// Busy connections that the others are compared with
    #[arg(long, default_value_t = 16, value_parser = value_parser!(u32).range(2..=200))]
    pub few: u32,
    /// Busy connections
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u32).range(2..=500))]
    pub busy: u32,
    /// Idle connections beside them, each of which waits for a word
    #[arg(long, default_value_t = 800, value_parser = value_parser!(u32).range(1..=1000))]
    pub idle: u32,
    /// Connections that never end their greeting
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=15_000))]
    pub half_open: u32,
    /// For how long each of the measurements runs, in seconds
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u64).range(1..=5))]
    pub seconds: u64,
    /// A line of JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The server in a process of its own.
#[derive(Clone, Debug, clap::Args)]
pub struct ServingArgs {
    /// The process that started this one
    #[arg(long)]
    parent: i32,
    /// Where the region is
    #[arg(long)]
    dir: PathBuf,
    /// Where it listens
    #[arg(long)]
    listen: String,
}

/// What busy sessions did: each by a thread of its own, with a lock of its own.
#[derive(Clone, Debug, Serialize)]
struct Acquired {
    per_second: u64,
    /// Of an acquisition and its release, in nanoseconds.
    latency_ns: Summary,
}

#[derive(Debug, Serialize)]
struct Row {
    few: u32,
    acquired: Acquired,
    half_open: u32,
    half_open_bytes: u64,
    acquired_beside_half_open: Acquired,
    verbs_per_second_of_few: u64,
    idle: u32,
    bytes_an_idle_connection: u64,
    busy: u32,
    verbs_per_second_of_many: u64,
}

/// Measures a server, and prints how it bears connections.
///
/// # Errors
/// The system refused something, or a session failed.
pub fn run(args: &ConnectionsArgs, origin: &Provenance) -> anyhow::Result<()> {
    child::raise_file_limit()?;
    let scratch = Scratch::new()?;
    let server = Serving::start(scratch.path().to_owned(), "127.0.0.1:0")?;
    let time = Duration::from_secs(args.seconds);
    let sessions = server.sessions(args.few)?;
    // What comes first finds nothing warm.
    acquire(&sessions, time / 4)?;
    let acquired = acquire(&sessions, time)?;
    let own = server.own_bytes()?;
    let half_open = server.half_open(args.half_open)?;
    let half_open_bytes = server.own_bytes()?.saturating_sub(own);
    let acquired_beside_half_open = acquire(&sessions, time)?;
    drop((half_open, sessions));
    let few = server.lanes(args.few)?;
    add(&few, time / 4)?;
    let verbs_per_second_of_few = add(&few, time)?;
    let own = server.own_bytes()?;
    let idle = server.lanes(args.idle)?;
    idle.iter().for_each(Lane::begin_to_wait);
    let many = server.lanes(args.busy)?;
    let idle_bytes = server.own_bytes()?.saturating_sub(own);
    add(&many, time / 4)?;
    let row = Row {
        few: args.few,
        acquired,
        half_open: args.half_open,
        half_open_bytes,
        acquired_beside_half_open,
        verbs_per_second_of_few,
        idle: args.idle,
        bytes_an_idle_connection: idle_bytes / u64::from(args.idle + args.busy),
        busy: args.busy,
        verbs_per_second_of_many: add(&many, time)?,
    };
    drop((few, idle, many));
    server.end()?;
    match args.json {
        true => line(origin, &row)?,
        false => tell(&row)?,
    }
    let half_open_max = HALF_OPEN_BYTES_MAX * u64::from(args.half_open) + SLACK_BYTES;
    ensure!(row.half_open_bytes <= half_open_max, "connections that say nothing take too much");
    ensure!(row.bytes_an_idle_connection <= IDLE_BYTES_MAX, "an idle connection takes too much");
    Ok(())
}

fn tell(row: &Row) -> anyhow::Result<()> {
    let of = |acquired: &Acquired| {
        let Acquired { per_second, latency_ns: Summary { p50, p99, .. } } = acquired;
        let (p50, p99) = (duration(*p50), duration(*p99));
        format!("{} acquisitions a second, p50 {p50}, p99 {p99}", grouped(*per_second))
    };
    say(format_args!(
        "{} sessions: {}\n\
         the same beside {} connections that never end their greeting, {} KiB in the server: {}\n\
         {} connections: {} verbs a second\n\
         {} connections beside {} that wait, {} bytes each in the server: {} verbs a second",
        row.few,
        of(&row.acquired),
        row.half_open,
        row.half_open_bytes >> 10,
        of(&row.acquired_beside_half_open),
        row.few,
        grouped(row.verbs_per_second_of_few),
        row.busy,
        row.idle,
        row.bytes_an_idle_connection,
        grouped(row.verbs_per_second_of_many),
    ))
}

/// A connection with a lane and a word.
struct Lane {
    endpoint: TcpEndpoint,
    word: Addr,
}

impl Lane {
    /// From now on it waits for its word to change, which it never does.
    fn begin_to_wait(&self) {
        let mut cx = Context::from_waker(Waker::noop());
        let wait = Wait { word: Some((self.word, 0)), ..Wait::default() };
        let _ = self.endpoint.poll_wait(&wait, &mut WaitState::default(), &mut cx);
    }

    /// One verb, under way when this returns.
    fn begin_to_add(&self) -> Completion<'_, TcpEndpoint> {
        let mut completion = self.endpoint.faa64(self.word, 1);
        let mut cx = Context::from_waker(Waker::noop());
        // Polled once, what was posted is sent.
        let _ = Pin::new(&mut completion).poll(&mut cx);
        completion
    }
}

/// Has each connection add to its word again and again: all have a verb under way, of one thread,
/// for few connections as for many. Returns how many verbs a second there were.
fn add(lanes: &[Lane], time: Duration) -> anyhow::Result<u64> {
    let (begun, mut verbs) = (Instant::now(), 0_u64);
    while begun.elapsed() < time {
        let under_way: Vec<_> = lanes.iter().map(Lane::begin_to_add).collect();
        for (lane, completion) in lanes.iter().zip(under_way) {
            block_on(&lane.endpoint, completion)?;
            verbs += 1;
        }
    }
    Ok((verbs as f64 / begun.elapsed().as_secs_f64()) as u64)
}

/// Has each session acquire and release a lock of its own, again and again.
fn acquire(sessions: &[Session], time: Duration) -> anyhow::Result<Acquired> {
    let start = Barrier::new(sessions.len());
    let latency = std::thread::scope(|scope| {
        let spawn = |(number, session)| {
            let start = &start;
            scope.spawn(move || use_one(session, number, start, time))
        };
        let threads: Vec<_> = sessions.iter().enumerate().map(spawn).collect();
        let mut all = Latency::default();
        for thread in threads {
            all.add(&thread.join().expect("a session that fails says so")?);
        }
        anyhow::Ok(all)
    })?;
    let per_second = (latency.count() as f64 / time.as_secs_f64()) as u64;
    Ok(Acquired { per_second, latency_ns: latency.summary() })
}

fn use_one(
    session: &Session,
    number: usize,
    start: &Barrier,
    time: Duration,
) -> anyhow::Result<Latency> {
    let (lock, mut latency) = (session.lock(format!("own {number}")), Latency::default());
    start.wait();
    let begun = Instant::now();
    while begun.elapsed() < time {
        let at = Instant::now();
        lock.exclusive().blocking()?.release().blocking()?;
        latency.record(at.elapsed().as_nanos() as u64);
    }
    Ok(latency)
}

/// A server in a process of its own. It ends with this one.
pub(crate) struct Serving {
    child: Child,
    address: String,
    dir: PathBuf,
}

impl Serving {
    pub(crate) fn start(dir: PathBuf, listen: &str) -> anyhow::Result<Self> {
        let mut command = child::command("connections-server")?;
        command.arg("--dir").arg(&dir).args(["--listen", listen]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("the server's process could not be started")?;
        let mut address = String::new();
        let output = child.stdout.take().context("its output is piped")?;
        BufReader::new(output).read_line(&mut address)?;
        ensure!(!address.is_empty(), "the server did not start");
        Ok(Self { child, address: address.trim().to_owned(), dir })
    }

    /// It is killed, and after so long another one started in its place. Returns when that one
    /// listens.
    pub(crate) fn restart(&mut self, away: Duration) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        std::thread::sleep(away);
        *self = Self::start(self.dir.clone(), &self.address)?;
        Ok(())
    }

    pub(crate) fn sessions(&self, count: u32) -> anyhow::Result<Vec<Session>> {
        let options = RegionOptions::of_server(&self.address);
        (0..count).map(|_| Ok(Session::open(&options)?)).collect()
    }

    fn lanes(&self, count: u32) -> anyhow::Result<Vec<Lane>> {
        let lane = |_| {
            let remote = Remote::connect(&self.address, DEFAULT_REGION, "lane")?;
            let endpoint = remote.endpoint()?;
            let word = remote.heap().0.plus(WORDS_BEGIN + u64::from(endpoint.id().index) * 64);
            Ok(Lane { endpoint, word })
        };
        (0..count).map(lane).collect()
    }

    /// Connections that have begun to say what they want, and stop there. A client's own
    /// descriptors and the server's are as many as the system gives.
    fn half_open(&self, count: u32) -> anyhow::Result<Vec<TcpStream>> {
        /// More is not kept of any.
        const SAID_BYTES: usize = 1000;
        let mut said = vec![1; SAID_BYTES];
        said[..4].copy_from_slice(&60_000_u32.to_le_bytes());
        let connect = |_| {
            let mut stream = TcpStream::connect(&self.address)?;
            stream.write_all(&said)?;
            Ok(stream)
        };
        let connected = (0..count).map(connect).collect::<std::io::Result<Vec<_>>>();
        let connected = connected.context("there are too few connections")?;
        // All have been accepted when one that came behind them has been served.
        drop(Session::open(&RegionOptions::of_server(&self.address))?);
        Ok(connected)
    }

    /// Bytes of the server's memory that are its own.
    fn own_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = own.and_then(|own| own.trim().strip_suffix(" kB"));
        Ok(kib.context("the system does not tell of memory")?.trim().parse::<u64>()? << 10)
    }

    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// Serves until it is killed.
///
/// # Errors
/// The system refused something.
pub fn serve(args: &ServingArgs) -> anyhow::Result<()> {
    child::die_with(args.parent, "connections")?;
    child::raise_file_limit()?;
    let server = Server::bind(&args.listen, &region_options(&args.dir))?;
    writeln!(std::io::stdout(), "{}", server.address()?)?;
    Ok(server.run()?)
}
