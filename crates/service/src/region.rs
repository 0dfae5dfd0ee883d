//! Where regions live, and the capacities that service gives them.
//!
//! The environment is read by the command line alone; here everything is a parameter.

use std::path::PathBuf;

use farlock_fabric::shm;
use farlock_locks::record::shiftlock::ShiftLock;
use farlock_locks::{RecordLock, TokenSource};

/// The region used where none is named.
pub const DEFAULT_REGION: &str = "default";

/// The kind under which the directory enters locks: the protocol that uses their words.
pub const LOCK_KIND: &str = "shiftlock";

/// How many newcomers may pass between two writers that wait: what makes a lock that many want
/// fast where they are more than processors, at the price of so short a wait for the others.
const BYPASS: u8 = 64;

/// The lock that every session and command of a region uses: they must agree on its bound.
#[must_use]
pub fn lock_protocol() -> ShiftLock {
    ShiftLock { bypass: BYPASS, ..ShiftLock::default() }
}

/// A lock without fencing tokens is none that a service hands out.
const _: () = {
    let tokens = <ShiftLock as RecordLock<shm::ShmEndpoint>>::TOKENS;
    assert!(matches!(tokens, TokenSource::Word), "a service needs fencing tokens");
};

/// Endpoints of a region: sessions and running `farlock lock` commands at one time.
const ENDPOINTS: u16 = 1024;

/// Slots of an endpoint: locks that one session holds or awaits at one time.
const SLOTS: u8 = 32;

/// Bytes of a region's heap: its directory has room for more than 10,000 names.
const HEAP_BYTES: u64 = 4 << 20;

/// Which region, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionOptions {
    /// The directory of regions, on a filesystem in memory. Made with mode 0700 where missing.
    pub dir: PathBuf,
    /// The directory of durable incarnations, on disk. Tokens increase as long as it survives.
    pub state_dir: PathBuf,
    /// The region's name.
    pub name: String,
    /// What `farlock ls` calls this process; at most 40 bytes are shown. Empty: its program.
    pub label: String,
}

impl RegionOptions {
    /// The region [`DEFAULT_REGION`] in this directory, with its durable state in that one.
    pub fn new(dir: impl Into<PathBuf>, state_dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            state_dir: state_dir.into(),
            name: DEFAULT_REGION.to_owned(),
            label: String::new(),
        }
    }

    /// The same, but the region of this name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The same, but with this label.
    #[must_use]
    pub fn labelled(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// What the fabric is asked for: the region, created with service's capacities where missing.
    pub fn to_shm(&self) -> shm::Options {
        let mut options = shm::Options::new(&self.dir, &self.state_dir, &self.name);
        options.label = if self.label.is_empty() { program() } else { self.label.clone() };
        options.endpoints = ENDPOINTS;
        options.slots = SLOTS;
        options.heap_bytes = HEAP_BYTES;
        options
    }
}

/// The name of the running program; empty where the system does not tell.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
