//! What is known of clients that are stopped for good.

use farlock_fabric::Nanos;
use farlock_sim::mix;

/// For how long a waiter that is stopped may keep others from the lock, in nanoseconds.
pub(super) const STOPPED_NS_MAX: Nanos = 200_000_000;

/// What is known of those who are stopped.
#[derive(Default)]
pub(super) struct Stops {
    /// A bit for each client that is stopped for good.
    pub(super) stopped: u64,
    /// Those of them that may hold, for all that is known: their verbs are on their way.
    pub(super) undecided: u64,
    /// Since when they are.
    pub(super) since: Vec<(u16, Nanos)>,
    /// A bit for each of the scenario's stops in waits that has happened.
    pub(super) happened: u64,
    /// What was found out about one after the other.
    pub(super) found: Vec<bool>,
    /// In a run that is played to find out about the next: how many were found out about before.
    pub(super) told: Option<usize>,
    pub(super) probe: Option<Probe>,
}

/// A client acts alone, to show whether it holds.
pub(super) struct Probe {
    pub(super) who: u16,
    pub(super) changes: bool,
    pub(super) granted: bool,
}

impl Stops {
    /// What is known, as a part of the state.
    pub(super) fn ghost(&self) -> u64 {
        mix(mix(self.stopped, self.undecided), self.happened)
    }

    /// Whether this stop, which is due, has not happened yet.
    pub(super) fn is_first(&mut self, index: usize) -> bool {
        let before = self.happened;
        self.happened |= 1 << (index % 64);
        self.happened != before
    }

    /// Those that have been stopped so long that nobody may be kept from the lock by them.
    pub(super) fn overdue(&self, now: Nanos) -> u64 {
        let overdue = |&&(_, since): &&(u16, Nanos)| now >= since.saturating_add(STOPPED_NS_MAX);
        let overdue = self.since.iter().filter(overdue).fold(0, |all, (who, _)| all | 1 << who);
        overdue & self.stopped & !self.undecided
    }

    /// A verb of `who` changed a word, maybe one of a lock.
    pub(super) fn sees_change(&mut self, who: u16, is_lock: bool) {
        if let Some(probe) = self.probe.as_mut().filter(|probe| probe.who == who && is_lock) {
            probe.changes = true;
        }
    }

    /// Whether a client acts alone, to show whether it holds.
    pub(super) fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// `who` is granted the lock. Whether that is all that this run was to show.
    pub(super) fn is_granted(&mut self, who: u16) -> bool {
        let Some(probe) = self.probe.as_mut().filter(|probe| probe.who == who) else {
            return false;
        };
        probe.granted = !probe.changes;
        true
    }

    /// What went wrong, and who was stopped meanwhile.
    pub(super) fn told_of(&self, story: String) -> String {
        let stopped: Vec<u16> = (0..64).filter(|who| self.stopped >> who & 1 != 0).collect();
        match stopped.len() {
            0 => story,
            _ => format!("{story}; stopped for good: {stopped:?}"),
        }
    }
}
