//! The stores that are measured, as a client of each sees them.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use farlock::{AsyncKv, Kv, KvError, Session};
use farlock_fabric::block_on;
use farlock_fabric::shm::{Region, ShmEndpoint};
use farlock_kv::index::Race;
use farlock_kv::sync::{Backoff, Optimistic};
use farlock_kv::{Index, Scheme, Shape, Store};
use serde::Serialize;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::face;
use crate::resp::{Line, number};
use crate::storm::region_options;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// `session.kv`.
    Session,
    /// The store under it.
    Store,
    /// `session.kv` by `farlock serve`, over loopback.
    Served,
    /// `session.kv` as tasks of one thread use it.
    SessionTasks,
    /// The same by `farlock serve`.
    ServedTasks,
    /// Redis, over loopback.
    Redis,
    /// memcached, over loopback.
    Memcached,
}

impl Target {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Session,
        Self::Store,
        Self::Served,
        Self::SessionTasks,
        Self::ServedTasks,
        Self::Redis,
        Self::Memcached,
    ];

    /// What the command line calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Store => "store",
            Self::Served => "served",
            Self::SessionTasks => "session-tasks",
            Self::ServedTasks => "served-tasks",
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        }
    }
}

/// A client of a store of pairs.
pub(super) trait Pairs {
    /// The length of a key's value, if it has one.
    fn get(&mut self, key: &[u8; 8]) -> anyhow::Result<Option<usize>>;

    fn put(&mut self, key: &[u8; 8], value: &[u8]) -> anyhow::Result<()>;

    /// Gets the values of some keys, and puts this one under others, at once where the store can.
    fn many(&mut self, gets: &[[u8; 8]], puts: &[[u8; 8]], value: &[u8]) -> anyhow::Result<()> {
        for key in gets {
            ensure!(self.get(key)?.is_some(), "a value is missing");
        }
        puts.iter().try_for_each(|key| self.put(key, value))
    }
}

/// Asks for many things in a row, as servers of text are asked, and then hears all answers.
macro_rules! in_a_row {
    () => {
        fn many(&mut self, gets: &[[u8; 8]], puts: &[[u8; 8]], value: &[u8]) -> anyhow::Result<()> {
            gets.iter().for_each(|key| self.ask_for(key));
            puts.iter().for_each(|key| self.ask_to_put(key, value));
            self.0.send()?;
            for _ in gets {
                ensure!(self.hear_value()?.is_some(), "a value is missing");
            }
            puts.iter().try_for_each(|_| self.hear_stored())
        }

        fn get(&mut self, key: &[u8; 8]) -> anyhow::Result<Option<usize>> {
            self.ask_for(key);
            self.0.send()?;
            self.hear_value()
        }

        fn put(&mut self, key: &[u8; 8], value: &[u8]) -> anyhow::Result<()> {
            self.ask_to_put(key, value);
            self.0.send()?;
            self.hear_stored()
        }
    };
}

/// A client of this store, whose server listens at this port, or whose memory lies in this
/// directory.
pub(super) fn open(target: Target, dir: &Path, port: u16) -> anyhow::Result<Box<dyn Pairs>> {
    Ok(match target {
        Target::Session => Box::new(Session::open(&face::region_options(dir))?.kv("measured")?),
        Target::Store => Box::new(Below::open(dir)?),
        Target::Served => Box::new(Session::connect(format!("127.0.0.1:{port}"))?.kv("served")?),
        Target::SessionTasks => {
            let session = Session::open(&face::region_options(dir))?;
            Box::new(Tasks::of(session.kv("measured by tasks")?)?)
        }
        Target::ServedTasks => {
            let session = Session::connect(format!("127.0.0.1:{port}"))?;
            Box::new(Tasks::of(session.kv("served to tasks")?)?)
        }
        Target::Redis => Box::new(Redis(Line::connect(port)?)),
        Target::Memcached => Box::new(Memcached(Line::connect(port)?)),
    })
}

impl Pairs for Kv {
    fn get(&mut self, key: &[u8; 8]) -> anyhow::Result<Option<usize>> {
        Ok(Self::get(self, key)?.map(|value| value.len()))
    }

    fn put(&mut self, key: &[u8; 8], value: &[u8]) -> anyhow::Result<()> {
        Ok(Self::put(self, key, value)?)
    }

    fn many(&mut self, gets: &[[u8; 8]], puts: &[[u8; 8]], value: &[u8]) -> anyhow::Result<()> {
        for found in self.get_many(gets) {
            ensure!(found?.is_some(), "a value is missing");
        }
        let stored = self.put_many(puts.iter().map(|key| (key, value)));
        Ok(stored.into_iter().collect::<Result<(), _>>()?)
    }
}

/// A store that is asked by tasks of one thread: of several things by a task each.
struct Tasks(AsyncKv, Runtime);

impl Tasks {
    fn of(kv: Kv) -> anyhow::Result<Self> {
        Ok(Self(kv.into_async()?, tokio::runtime::Builder::new_current_thread().build()?))
    }
}

impl Pairs for Tasks {
    fn get(&mut self, key: &[u8; 8]) -> anyhow::Result<Option<usize>> {
        Ok(self.1.block_on(self.0.get(key))?.map(|value| value.len()))
    }

    fn put(&mut self, key: &[u8; 8], value: &[u8]) -> anyhow::Result<()> {
        Ok(self.1.block_on(self.0.put(key, value))?)
    }

    fn many(&mut self, gets: &[[u8; 8]], puts: &[[u8; 8]], value: &[u8]) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        let value: Arc<[u8]> = value.into();
        for &key in gets {
            let kv = self.0.clone();
            tasks.spawn_on(async move { Ok(kv.get(key).await?.is_some()) }, self.1.handle());
        }
        for &key in puts {
            let (kv, value) = (self.0.clone(), Arc::clone(&value));
            tasks.spawn_on(async move { kv.put(key, value).await.map(|()| true) }, self.1.handle());
        }
        self.1.block_on(async {
            while let Some(ended) = tasks.join_next().await {
                let is_there: Result<bool, KvError> = ended?;
                ensure!(is_there?, "a value is missing");
            }
            Ok(())
        })
    }
}

/// The store under a session's.
struct Below(Store<Optimistic<ShmEndpoint>, Race>);

/// The region of the store under a session's, and its name.
pub(super) const BELOW: &str = "below";

impl Below {
    fn open(dir: &Path) -> anyhow::Result<Self> {
        let region = Region::open(&region_options(dir, BELOW))?;
        let endpoint = region.endpoint()?;
        let shape = shape(&region);
        let scheme = Optimistic::new(endpoint, Backoff::NONE);
        let store = Store::new(scheme, INDEX, shape);
        block_on(store.scheme().endpoint(), shape.check(store.scheme().endpoint()))?;
        Ok(Self(store))
    }
}

const CHUNK_BYTES: u64 = 2 << 20;

/// As that of a session's store.
const INDEX: Race = Race::new(5 * CHUNK_BYTES / 2 / Race::GROUP_BYTES);

/// The shape of the store below, which takes its whole region.
pub(super) fn shape(region: &Region) -> Shape {
    let (base, bytes) = region.heap();
    let (index_bytes, index_tag) = (INDEX.bytes(), INDEX.tag());
    let chunks = ((bytes - index_bytes) / (CHUNK_BYTES + 16)) as u32;
    Shape { base, chunks, chunk_bytes: CHUNK_BYTES, index_bytes, index_tag }
}

impl Pairs for Below {
    fn get(&mut self, key: &[u8; 8]) -> anyhow::Result<Option<usize>> {
        let found = block_on(self.0.scheme().endpoint(), self.0.get(key))?;
        Ok(found.map(|value| value.len()))
    }

    fn put(&mut self, key: &[u8; 8], value: &[u8]) -> anyhow::Result<()> {
        Ok(block_on(self.0.scheme().endpoint(), self.0.upsert(key, value))?)
    }
}

/// By its protocol, RESP 2.
struct Redis(Line);

impl Redis {
    fn ask_for(&mut self, key: &[u8; 8]) {
        self.0.words(&[b"GET", key]);
    }

    fn ask_to_put(&mut self, key: &[u8; 8], value: &[u8]) {
        self.0.words(&[b"SET", key, value]);
    }

    fn hear_value(&mut self) -> anyhow::Result<Option<usize>> {
        let first = self.0.line()?;
        let length = number(first.strip_prefix(b"$").context("no answer to GET")?)?;
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        self.0.body(length)?;
        Ok(Some(length))
    }

    fn hear_stored(&mut self) -> anyhow::Result<()> {
        ensure!(self.0.line()? == b"+OK", "Redis does not store");
        Ok(())
    }
}

impl Pairs for Redis {
    in_a_row!();
}

/// By its text protocol. Keys are text there.
struct Memcached(Line);

impl Memcached {
    fn ask_for(&mut self, key: &[u8; 8]) {
        // Bytes are written into memory.
        let _ = write!(self.0.request, "get {:x}\r\n", u64::from_le_bytes(*key));
    }

    fn ask_to_put(&mut self, key: &[u8; 8], value: &[u8]) {
        let (key, bytes) = (u64::from_le_bytes(*key), value.len());
        let _ = write!(self.0.request, "set {key:x} 0 0 {bytes}\r\n");
        self.0.request.extend_from_slice(value);
        self.0.request.extend_from_slice(b"\r\n");
    }

    fn hear_value(&mut self) -> anyhow::Result<Option<usize>> {
        let first = self.0.line()?;
        if first == b"END" {
            return Ok(None);
        }
        let Some(length) = first.rsplit(|&byte| byte == b' ').next() else {
            bail!("no answer to get")
        };
        let length = number(length)? as usize;
        self.0.body(length)?;
        ensure!(self.0.line()? == b"END", "memcached's answer makes no sense");
        Ok(Some(length))
    }

    fn hear_stored(&mut self) -> anyhow::Result<()> {
        ensure!(self.0.line()? == b"STORED", "memcached does not store");
        Ok(())
    }
}

impl Pairs for Memcached {
    in_a_row!();
}
