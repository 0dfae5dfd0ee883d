//! The order in which a lock promises to be granted, and what a grant out of it is called.

use farlock_fabric::Endpoint;
use farlock_locks::RecordLock;
use farlock_sim::check::Passed;

/// What order a lock is held to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// Writers are granted in the order in which they got in line, but so many that come later may
    /// pass between two of them.
    pub writers: Option<u32>,
    /// A waiting writer keeps later readers out, and a waiting reader sees at most so many writers
    /// granted.
    pub readers: Option<u16>,
}

impl Order {
    /// What this lock promises.
    pub fn promised<E: Endpoint, L: RecordLock<E>>(lock: &L) -> Self {
        Self { writers: lock.bypass_max(), readers: lock.writers_before_reader() }
    }

    /// The same where so many give up: whoever does still takes its turn, which nobody sees, and
    /// ends one row of those that pass.
    #[must_use]
    pub fn with_turns_unseen(self, turns: u32) -> Self {
        Self { writers: self.writers.map(|most| most * (1 + turns)), ..self }
    }

    /// Whether an atomic gets its client in line. Where newcomers may pass those in line, one that
    /// changes nothing was an attempt to.
    pub fn gets_in_line(self, changes: bool) -> bool {
        changes || self.writers.is_none_or(|most| most == 0)
    }

    /// Whether there is anything to hold the lock to.
    pub fn is_any(self) -> bool {
        self != Self::default()
    }

    /// What is wrong with the grant of `who`, who passed these.
    pub fn objection(self, who: u16, passed: Passed) -> Option<String> {
        if self.writers.is_some_and(|most| passed.in_a_row > most) {
            let (before, row) = (passed.writers, passed.in_a_row);
            return Some(format!(
                "client {who} was granted before {before} that came earlier, the {row}. in a row"
            ));
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
