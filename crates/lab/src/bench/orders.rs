//! What the director of a bench and its workers share: the region, orders, answers.

use std::path::Path;

use farlock_fabric::shm;
use serde::{Deserialize, Serialize};

use super::trial::Trial;
use crate::drive::Tally;

/// The region of the trials in this directory, as its creator and its workers open it.
pub fn region_options(dir: &Path) -> shm::Options {
    let options = shm::Options::new(dir.join("region"), dir.join("state"), "bench");
    shm::Options { create: false, ..options }
}

/// What a worker is told, a line each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// What to do.
    pub trial: Trial,
    /// As which client; the first of them, where the clients are threads.
    pub client: usize,
    /// The cores of clients that are threads, in turn; none to leave them alone.
    pub cores: Vec<usize>,
}

/// What a worker says, a line each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It has opened everything, or is about to begin a trial.
    Ready,
    /// What its clients did.
    Done(Vec<Tally>),
    /// Why it could not.
    Failed(String),
}
