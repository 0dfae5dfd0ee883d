//! This process: what others are told of it, and how many places its threads keep.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use crate::error::ConnectError;

/// Places that one thread keeps at most, for one region handle: the kernel looks at 2048 robust
/// mutexes of a thread that ends, and the program may have some of its own.
pub const KEEPERS_MAX: u32 = 2000;

/// How many places each thread of a process keeps, for one region handle.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    counts: Mutex<HashMap<ThreadId, u32>>,
}

impl Keepers {
    fn counts(&self) -> MutexGuard<'_, HashMap<ThreadId, u32>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the calling thread can keep another place.
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        let keepers = self.counts().get(&std::thread::current().id()).copied().unwrap_or(0);
        if keepers < KEEPERS_MAX { Ok(()) } else { Err(ConnectError::ThreadFull { keepers }) }
    }

    pub(super) fn add(&self, thread: ThreadId) {
        *self.counts().entry(thread).or_default() += 1;
    }

    pub(super) fn remove(&self, thread: ThreadId) {
        let mut counts = self.counts();
        let count = counts.get_mut(&thread).expect("a keeper was counted");
        *count -= 1;
        if *count == 0 {
            counts.remove(&thread);
        }
    }
}

/// A process, as `ls` shows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// When it started, in clock ticks after boot; 0 where that cannot be read.
    pub(super) started_ticks: u64,
}

impl Process {
    /// The calling one. Reads a file of the system's, which takes longer than to attach.
    pub(super) fn own() -> Self {
        /// The 22nd field of the file, counted behind the name, which may contain anything.
        const FIELD_AFTER_NAME: usize = 19;
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let field = after_name.split_whitespace().nth(FIELD_AFTER_NAME);
        let started_ticks = field.and_then(|field| field.parse().ok()).unwrap_or(0);
        Self { pid: std::process::id(), started_ticks }
    }
}
