//! A process in a storm over a store: reads and changes a few keys by `session.kv`, and writes down
//! what it asked and was answered.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::bail;
use farlock::kv::StoreOptions;
use farlock::{Kv, KvError, RegionOptions, Session};
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::serving::{NAP, PATIENCE, connect};
use super::diary::{Diary, Record, What, now};
use super::judge::NONE;
use super::workload::{Step, StoreIndex, Workload};
use crate::{child, face};

/// The name of the store.
const STORE: &str = "storm";
/// How uneven the keys are drawn: as YCSB does.
const SKEW: f64 = 0.99;
/// The longest value, in words.
const WORDS_MAX: u64 = 400;

/// How a worker is started.
#[derive(Clone, Debug, clap::Args)]
pub struct KvWorkerArgs {
    /// Where the store and the diaries are.
    #[arg(long)]
    pub dir: PathBuf,
    /// The process that started it.
    #[arg(long)]
    pub parent: i32,
    /// Its number in the storm, from 1.
    #[arg(long)]
    pub who: u64,
    /// How many keys there are.
    #[arg(long)]
    pub keys: u64,
    /// Decides what it asks for.
    #[arg(long)]
    pub seed: u64,
    /// What it does.
    #[arg(long, value_enum)]
    pub workload: Workload,
    /// The index of the store.
    #[arg(long, value_enum)]
    pub index: StoreIndex,
    /// Over how many regions the store is.
    #[arg(long)]
    pub parts: u8,
    /// The server by which it uses the store; without one it does on its own.
    #[arg(long)]
    pub server: Option<String>,
    /// It says that it has done what it has not.
    #[arg(long)]
    pub lies: bool,
}

/// Takes part in a storm.
pub fn run(args: &KvWorkerArgs) -> anyhow::Result<()> {
    child::die_with(args.parent, "storm")?;
    let mut worker = Worker {
        kv: open(args)?,
        diary: Diary::open(&args.dir, args.who)?,
        lies: args.lies,
        next: args.who << 32,
    };
    let mixed = args.seed ^ args.who.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(mixed);
    let keys = Zipf::new(args.keys as f64, SKEW).map_err(|error| anyhow::anyhow!("{error:?}"))?;
    loop {
        let key = keys.sample(&mut chance) as u64;
        let done = match args.workload.draw(&mut chance) {
            Step::Read => worker.get(key).map(drop),
            Step::Update => worker.put(key, &mut chance),
            Step::Change => worker.change(key, &mut chance),
        };
        match done {
            Err(error) if error.is::<SessionLost>() => worker.kv = open(args)?,
            done => done?,
        }
    }
}

/// The store, by a session of its own.
fn open(args: &KvWorkerArgs) -> anyhow::Result<Kv> {
    let options = || StoreOptions::new(STORE).with_index(args.index.index());
    let Some(server) = &args.server else {
        let regions = regions(&args.dir, args.parts);
        let sessions = regions.iter().map(Session::open).collect::<Result<Vec<_>, _>>()?;
        return Ok(Kv::over(&sessions, options())?);
    };
    let begun = Instant::now();
    loop {
        match connect(server, &args.dir)?.kv(options()) {
            // The server is being started again, or it is out of reach: the next may be luckier.
            Err(_) if begun.elapsed() < PATIENCE => std::thread::sleep(NAP),
            opened => return Ok(opened?),
        }
    }
}

/// The session is gone, and with it what is known of the last operation.
#[derive(Debug, thiserror::Error)]
#[error("the session was lost")]
struct SessionLost;

/// The regions in which the store is that has so many parts.
fn regions(dir: &Path, parts: u8) -> Vec<RegionOptions> {
    let whole = face::region_options(dir);
    match parts {
        1 => vec![whole],
        _ => (1..=parts).map(|part| whole.clone().named(format!("part {part}"))).collect(),
    }
}

/// The store as it is, for who looks at it.
pub fn found(dir: &Path, parts: u8) -> anyhow::Result<Kv> {
    Ok(Kv::open_over(&regions(dir, parts), STORE)?)
}

/// Reads every key once, as a worker of this number.
pub fn read_all(dir: &Path, parts: u8, who: u64, keys: u64) -> anyhow::Result<()> {
    let (kv, diary) = (found(dir, parts)?, Diary::open(dir, who)?);
    let mut worker = Worker { kv, diary, lies: false, next: who << 32 };
    (1..=keys).try_for_each(|key| worker.get(key).map(drop))
}

struct Worker {
    kv: Kv,
    diary: Diary,
    lies: bool,
    /// The last value that it wrote: none is written twice.
    next: u64,
}

impl Worker {
    fn note(&mut self, what: What, key: u64, one: u64, other: u64) -> anyhow::Result<()> {
        Ok(self.diary.add(Record { what, time: now(), key, one, other })?)
    }

    /// A value that nobody has written, of any length.
    fn fresh(&mut self, chance: &mut impl Rng) -> (u64, Vec<u8>) {
        self.next += 1;
        let words = 1 + chance.random_range(0..WORDS_MAX) * chance.random_range(0..2);
        (self.next, self.next.to_le_bytes().repeat(words as usize))
    }

    /// Whether it says of this value that it has written it, and does not.
    fn is_lie(&self, value: u64) -> bool {
        self.lies && value.is_multiple_of(16)
    }

    fn get(&mut self, key: u64) -> anyhow::Result<Option<Vec<u8>>> {
        self.note(What::Get, key, 0, 0)?;
        let found = match self.kv.get(key.to_le_bytes()) {
            Ok(found) => found,
            Err(error) => return self.fail(key, &error).map(|()| None),
        };
        let Some(number) = found.as_deref().map_or(Some(NONE), number) else {
            self.note(What::Failed, key, 0, 0)?;
            bail!("key {key}: pieces of two values")
        };
        self.note(What::Done, key, number, 0)?;
        Ok(found)
    }

    /// An operation came to nothing, or nobody knows to what. It fails if the worker cannot go on.
    fn fail(&mut self, key: u64, error: &KvError) -> anyhow::Result<()> {
        match error {
            KvError::Unknown => self.note(What::Unknown, key, 0, 0),
            KvError::Disconnected { .. } | KvError::SleptThrough { .. } => {
                self.note(What::Lost, key, 0, 0)?;
                bail!(SessionLost)
            }
            _ => {
                self.note(What::Failed, key, 0, 0)?;
                bail!("key {key}: {error}")
            }
        }
    }

    fn put(&mut self, key: u64, chance: &mut impl Rng) -> anyhow::Result<()> {
        let (number, value) = self.fresh(chance);
        self.note(What::Put, key, number, 0)?;
        if self.is_lie(number) {
            return self.note(What::Done, key, 0, 0);
        }
        match self.kv.put(key.to_le_bytes(), value) {
            Ok(()) => self.note(What::Done, key, 0, 0),
            Err(error) => self.fail(key, &error),
        }
    }

    /// Changes what it reads. A key that has no value gets one if it still has none.
    fn change(&mut self, key: u64, chance: &mut impl Rng) -> anyhow::Result<()> {
        let old = self.get(key)?;
        let Some(seen) = old.as_deref().map_or(Some(NONE), number) else { return Ok(()) };
        let (new, value) = self.fresh(chance);
        self.note(What::Change, key, seen, new)?;
        if self.is_lie(new) {
            return self.note(What::Done, key, 0, 0);
        }
        let name = key.to_le_bytes();
        let changed = match old {
            Some(old) => self.kv.compare_and_set(name, old, value),
            None => self.kv.insert(name, value),
        };
        match changed {
            Ok(true) => self.note(What::Done, key, 0, 0),
            Ok(false) => self.note(What::Refused, key, 0, 0),
            Err(error) => self.fail(key, &error),
        }
    }
}

/// The number that all words of a value are, if they are one.
fn number(value: &[u8]) -> Option<u64> {
    let (words, []) = value.as_chunks::<8>() else { return None };
    let first = words.first()?;
    words.iter().all(|word| word == first).then(|| u64::from_le_bytes(*first))
}
