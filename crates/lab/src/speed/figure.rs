//! A figure of the simulated world: what is counted, of what, in a run of which size.

use serde::Serialize;

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) size: u32,
    pub(super) seed: u64,
}

impl Course {
    /// This share of what is usual, at least one.
    pub(super) fn scaled(self, usual: u64) -> u64 {
        (usual * u64::from(self.size) / 100).max(1)
    }
}

/// What a round did, and how long it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// How many of what the figure counts.
    pub(super) count: u64,
    /// A hash of the run: equal for equal runs.
    pub(super) hash: u64,
    pub(super) seconds: f64,
}

/// What is measured of what.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Parameters {
    pub(super) figure: &'static str,
    pub(super) subject: &'static str,
    /// What is counted.
    pub(super) unit: &'static str,
    pub(super) clients: u16,
    /// How many locks the clients choose from, or words.
    pub(super) locks: u64,
    /// Acquisitions in a hundred that are shared.
    pub(super) reads: u8,
}

/// A figure: what it is of, and how a round of it is run.
pub(super) struct Figure {
    pub(super) parameters: Parameters,
    pub(super) run: Box<dyn Fn(Course) -> anyhow::Result<Round>>,
}
