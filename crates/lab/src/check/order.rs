//! The order in which a lock promises to be granted, and what a grant out of it is called.

use farlock_fabric::Endpoint;
use farlock_locks::RecordLock;
use farlock_sim::check::Passed;

/// What order a lock is held to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// Writers are granted in the order in which they got in line.
    pub writers: bool,
    /// A waiting writer keeps later readers out, and a waiting reader sees at most so many writers
    /// granted.
    pub readers: Option<u16>,
}

impl Order {
    /// What this lock promises.
    pub fn promised<E: Endpoint, L: RecordLock<E>>(lock: &L) -> Self {
        Self { writers: L::FIRST_COME_FIRST_SERVED, readers: lock.writers_before_reader() }
    }

    /// Whether there is anything to hold the lock to.
    pub fn is_any(self) -> bool {
        self != Self::default()
    }

    /// What is wrong with the grant of `who`, who passed these.
    pub fn objection(self, who: u16, passed: Passed) -> Option<String> {
        if self.writers && passed.writers > 0 {
            let before = passed.writers;
            return Some(format!("client {who} was granted before {before} that came earlier"));
        }
        let bound = self.readers?;
        if let Some(writer) = passed.writer_kept_out {
            return Some(format!("reader {who} was let in before writer {writer}, who was first"));
        }
        let (reader, writers) = passed.reader?;
        (writers > u32::from(bound))
            .then(|| format!("reader {reader} has seen {writers} writers granted, not {bound}"))
    }
}
