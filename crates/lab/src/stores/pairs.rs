//! The stores that are measured, as a client of each sees them.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use farlock::{Kv, Session};
use farlock_fabric::block_on;
use farlock_fabric::shm::{Region, ShmEndpoint};
use farlock_kv::index::Race;
use farlock_kv::sync::{Backoff, Optimistic};
use farlock_kv::{Index, Scheme, Shape, Store};
use serde::Serialize;

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
    /// Redis, over loopback.
    Redis,
    /// memcached, over loopback.
    Memcached,
}

impl Target {
    /// What the command line calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Store => "store",
            Self::Served => "served",
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
}

/// A client of this store, whose server listens at this port, or whose memory lies in this
/// directory.
pub(super) fn open(target: Target, dir: &Path, port: u16) -> anyhow::Result<Box<dyn Pairs>> {
    Ok(match target {
        Target::Session => Box::new(Session::open(&face::region_options(dir))?.kv("measured")?),
        Target::Store => Box::new(Below::open(dir)?),
        Target::Served => Box::new(Session::connect(format!("127.0.0.1:{port}"))?.kv("served")?),
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

impl Pairs for Redis {
    fn get(&mut self, key: &[u8; 8]) -> anyhow::Result<Option<usize>> {
        self.0.words(&[b"GET", key]);
        let first = self.0.ask()?;
        let length = number(first.strip_prefix(b"$").context("no answer to GET")?)?;
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        self.0.body(length)?;
        Ok(Some(length))
    }

    fn put(&mut self, key: &[u8; 8], value: &[u8]) -> anyhow::Result<()> {
        self.0.words(&[b"SET", key, value]);
        ensure!(self.0.ask()? == b"+OK", "Redis does not store");
        Ok(())
    }
}

/// By its text protocol. Keys are text there.
struct Memcached(Line);

impl Pairs for Memcached {
    fn get(&mut self, key: &[u8; 8]) -> anyhow::Result<Option<usize>> {
        write!(self.0.request, "get {:x}\r\n", u64::from_le_bytes(*key))?;
        let first = self.0.ask()?;
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

    fn put(&mut self, key: &[u8; 8], value: &[u8]) -> anyhow::Result<()> {
        write!(self.0.request, "set {:x} 0 0 {}\r\n", u64::from_le_bytes(*key), value.len())?;
        self.0.request.extend_from_slice(value);
        self.0.request.extend_from_slice(b"\r\n");
        ensure!(self.0.ask()? == b"STORED", "memcached does not store");
        Ok(())
    }
}
