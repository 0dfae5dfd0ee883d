//! What is measured, and one holder of each: what acquires a lock and releases it.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, ensure};
use farlock::session::{Lock, RangeLock};
use farlock::{RegionOptions, Session};
use serde::Serialize;

use super::postgres::{Connection, Statement};
use crate::face;
use crate::resp::{Answer, Line};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// farlock, by `farlock serve`; each release is asked how it went.
    Served,
    /// The same; guards are dropped, so that a release travels with the next acquisition.
    ServedRiding,
    /// Redis: `SET NX PX`, and a script that releases.
    Redis,
    /// PostgreSQL's advisory locks.
    Postgres,
    /// farlock, by shared memory.
    Memory,
    /// The same, in the region that the server serves.
    MemoryServed,
}

impl System {
    pub(super) const ALL: [Self; 6] = [
        Self::Served,
        Self::ServedRiding,
        Self::Redis,
        Self::Postgres,
        Self::Memory,
        Self::MemoryServed,
    ];

    /// What the command line calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::ServedRiding => "served-riding",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Memory => "memory",
            Self::MemoryServed => "memory-served",
        }
    }

    /// Whether its guards are dropped.
    pub(super) const fn rides(self) -> bool {
        matches!(self, Self::ServedRiding)
    }

    /// Whether a cycle takes no round trip, so that a look at the clock would count.
    pub(super) const fn is_at_hand(self) -> bool {
        matches!(self, Self::Memory | Self::MemoryServed)
    }
}

/// Which clients acquire and release what.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scene {
    /// One process, one lock.
    Alone,
    /// Processes, a lock each.
    Apart,
    /// Processes, one lock.
    Together,
    /// Threads of one process, a lock each.
    Threads,
    /// Tasks of one process, a lock each: of Redis by one connection with its requests in a row.
    Tasks,
    /// One process, one unit of a range.
    Range,
}

impl Scene {
    pub(super) const ALL: [Self; 6] =
        [Self::Alone, Self::Apart, Self::Together, Self::Threads, Self::Tasks, Self::Range];

    /// What the command line calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Apart => "apart",
            Self::Together => "together",
            Self::Threads => "threads",
            Self::Tasks => "tasks",
            Self::Range => "range",
        }
    }

    /// Whether anybody has it with this system. PostgreSQL knows no ranges, and a connection that
    /// waits takes nothing else; a release of a range is always waited for.
    pub(super) fn is_of(self, system: System) -> bool {
        match system {
            System::Postgres => !matches!(self, Self::Range | Self::Tasks),
            System::ServedRiding => self != Self::Range,
            _ => true,
        }
    }

    /// Whether there is one of those that acquire.
    pub(super) const fn is_single(self) -> bool {
        matches!(self, Self::Alone | Self::Range)
    }

    /// Whether each of them is a process.
    pub(super) const fn is_of_processes(self) -> bool {
        matches!(self, Self::Apart | Self::Together)
    }

    /// Which lock the one with this number takes.
    pub(super) const fn lock(self, number: u64) -> u64 {
        match self {
            Self::Apart | Self::Threads | Self::Tasks => number,
            Self::Alone | Self::Together | Self::Range => 0,
        }
    }
}

/// Where systems are found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) port: u16,
    pub(super) dir: &'a Path,
    /// How long one waits that Redis has refused.
    pub(super) pause: Duration,
}

/// One that acquires a lock and releases it, time after time.
pub(super) trait Cycle {
    /// Once; `held` runs in between.
    fn cycle_with(&mut self, held: &mut dyn FnMut()) -> anyhow::Result<()>;

    fn cycle(&mut self) -> anyhow::Result<()> {
        self.cycle_with(&mut || {})
    }
}

/// A session of one of farlock's systems.
pub(super) fn session(system: System, place: Place<'_>) -> anyhow::Result<Session> {
    let options = match system {
        System::Served | System::ServedRiding => {
            RegionOptions::of_server(format!("127.0.0.1:{}", place.port))
        }
        _ => face::region_options(place.dir),
    };
    Ok(Session::open(&options)?)
}

/// The client of this number in this scene.
pub(super) fn holder(
    system: System,
    scene: Scene,
    place: Place<'_>,
    number: u64,
) -> anyhow::Result<Box<dyn Cycle>> {
    let lock = scene.lock(number);
    Ok(match (system, scene) {
        (System::Redis, Scene::Range) => Box::new(RedisRange::open(place, number)?),
        (System::Redis, _) => Box::new(RedisLock::open(place, lock, number)?),
        (System::Postgres, _) => {
            Box::new(Advisory { connection: Connection::open(place.port)?, lock: lock as i64 })
        }
        (_, Scene::Range) => {
            let session = session(system, place)?;
            Box::new(Ranges { range: session.range(RANGE), _session: session })
        }
        _ => {
            let session = session(system, place)?;
            let (lock, rides) = (session.lock(face::name(lock)), system.rides());
            Box::new(Locks { lock, rides, _session: session })
        }
    })
}

/// The name of the range.
const RANGE: &str = "range";
/// What of it is taken.
const UNIT: std::ops::Range<u64> = 5..6;

/// One lock of a session.
pub(super) struct Locks {
    pub(super) lock: Lock,
    pub(super) rides: bool,
    pub(super) _session: Session,
}

impl Cycle for Locks {
    fn cycle_with(&mut self, held: &mut dyn FnMut()) -> anyhow::Result<()> {
        let guard = self.lock.exclusive().blocking()?;
        held();
        if self.rides {
            drop(guard);
            return Ok(());
        }
        Ok(guard.release().blocking()?)
    }
}

struct Ranges {
    range: RangeLock,
    _session: Session,
}

impl Cycle for Ranges {
    fn cycle_with(&mut self, held: &mut dyn FnMut()) -> anyhow::Result<()> {
        let guard = self.range.exclusive(UNIT).blocking()?;
        held();
        Ok(guard.release().blocking()?)
    }
}

struct Advisory {
    connection: Connection,
    lock: i64,
}

impl Cycle for Advisory {
    fn cycle_with(&mut self, held: &mut dyn FnMut()) -> anyhow::Result<()> {
        self.connection.run(Statement::Lock, self.lock)?;
        held();
        self.connection.run(Statement::Unlock, self.lock)
    }
}

/// How long a lock of Redis is its holder's, in milliseconds.
pub(super) const LEASE_MS: &[u8] = b"30000";

/// Releases a lock that is still its holder's.
pub(super) const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('del', KEYS[1]) else return 0 end";

/// A lock of Redis, as its documentation has it.
struct RedisLock {
    line: Line,
    release: Vec<u8>,
    key: String,
    token: String,
    pause: Duration,
}

impl RedisLock {
    fn open(place: Place<'_>, lock: u64, number: u64) -> anyhow::Result<Self> {
        let mut line = Line::connect(place.port)?;
        let release = line.script(RELEASE)?;
        let token = format!("{}-{number}", std::process::id());
        Ok(Self { line, release, key: face::name(lock), token, pause: place.pause })
    }
}

impl Cycle for RedisLock {
    fn cycle_with(&mut self, held: &mut dyn FnMut()) -> anyhow::Result<()> {
        let (key, token) = (self.key.as_bytes(), self.token.as_bytes());
        while self.line.asked(&[b"SET", key, token, b"NX", b"PX", LEASE_MS])? == Answer::Nil {
            sleep(self.pause);
        }
        held();
        let released = self.line.asked(&[b"EVALSHA", &self.release, b"1", key, token])?;
        ensure!(released == Answer::Number(1), "Redis lost a lock");
        Ok(())
    }
}

/// Takes units from ARGV[1] on, to before ARGV[2], in the name of ARGV[3], for ARGV[4]
/// milliseconds. What is held lies in a sorted set by its first unit and overlaps with nothing, so
/// only the last that begins before the end may be in the way.
const TAKE_RANGE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
while true do
  local held = redis.call('ZREVRANGEBYSCORE', KEYS[1], '(' .. ARGV[2], '-inf', 'LIMIT', 0, 1)
  if #held == 0 then break end
  local last, ends = string.match(held[1], '^(%d+):(%d+):')
  if tonumber(last) <= tonumber(ARGV[1]) then break end
  if tonumber(ends) > now then return false end
  redis.call('ZREM', KEYS[1], held[1])
end
local member = ARGV[2] .. ':' .. string.format('%d', now + ARGV[4]) .. ':' .. ARGV[3]
redis.call('ZADD', KEYS[1], ARGV[1], member)
return member";

const RELEASE_RANGE: &str = "return redis.call('ZREM', KEYS[1], ARGV[1])";

/// A range lock of scripts.
struct RedisRange {
    line: Line,
    take: Vec<u8>,
    release: Vec<u8>,
    token: String,
    pause: Duration,
}

impl RedisRange {
    fn open(place: Place<'_>, number: u64) -> anyhow::Result<Self> {
        let mut line = Line::connect(place.port)?;
        let (take, release) = (line.script(TAKE_RANGE)?, line.script(RELEASE_RANGE)?);
        let token = format!("{}-{number}", std::process::id());
        Ok(Self { line, take, release, token, pause: place.pause })
    }
}

impl Cycle for RedisRange {
    fn cycle_with(&mut self, held: &mut dyn FnMut()) -> anyhow::Result<()> {
        let (first, behind) = (UNIT.start.to_string(), UNIT.end.to_string());
        let (first, behind, token) = (first.as_bytes(), behind.as_bytes(), self.token.as_bytes());
        let member = loop {
            let take: &[&[u8]] =
                &[b"EVALSHA", &self.take, b"1", RANGE.as_bytes(), first, behind, token, LEASE_MS];
            match self.line.asked(take)? {
                Answer::Bytes(member) => break member,
                Answer::Nil => sleep(self.pause),
                other => bail!("Redis gives no range: {other:?}"),
            }
        };
        held();
        let release: &[&[u8]] = &[b"EVALSHA", &self.release, b"1", RANGE.as_bytes(), &member];
        ensure!(self.line.asked(release)? == Answer::Number(1), "Redis lost a range");
        Ok(())
    }
}
